//! A link to a server: every byte arrives half a round trip later, and all connections share its bandwidth, each way. So servers of different
//! makes are compared at the same distance.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::mpsc,
    time::{Instant, sleep_until},
};

/// Bytes that are read at a time, …
const PIECE: usize = 64 << 10;
/// … and pieces of a connection that may be on their way, each way.
const ON_THE_WAY: usize = 128;

/// How far away, and how wide.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// There and back.
    pub round_trip: Duration,
    /// Bytes a second, each way, of all connections.
    pub bandwidth: f64,
}

/// When the next byte may go.
type Turn = Arc<Mutex<Instant>>;

impl Link {
    /// Connects whoever comes to `listener` with `server`, until the listener fails.
    pub async fn serve(self, listener: TcpListener, server: SocketAddr) {
        let turns: [Turn; 2] = std::array::from_fn(|_| Arc::new(Mutex::new(Instant::now())));
        while let Ok((client, _)) = listener.accept().await {
            let [up, down] = turns.clone();
            tokio::spawn(async move {
                let server = TcpStream::connect(server).await?;
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(self.carry(from_client, to_server, up));
                self.carry(from_server, to_client, down).await;
                Ok::<(), std::io::Error>(())
            });
        }
    }

    /// Carries bytes one way until they end.
    async fn carry(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, turn: Turn) {
        let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
        let read = async move {
            loop {
                let mut piece = vec![0; PIECE];
                match from.read(&mut piece).await {
                    Ok(0) | Err(_) => return,
                    Ok(len) => piece.truncate(len),
                }
                if sender.send((self.arrival(&turn, piece.len()), piece)).await.is_err() {
                    return;
                }
            }
        };
        let write = async move {
            while let Some((at, piece)) = receiver.recv().await {
                sleep_until(at).await;
                if to.write_all(&piece).await.is_err() {
                    return;
                }
            }
            // The dropped half signals the end.
            let _ = to.shutdown().await;
        };
        tokio::join!(read, write);
    }

    fn arrival(self, turn: &Turn, bytes: usize) -> Instant {
        let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = (*turn).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / self.bandwidth);
        *turn + self.round_trip / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_and_the_end_of_the_stream_pass_the_link() {
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = echo.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = echo.accept().await.unwrap();
            let mut all = Vec::new();
            socket.read_to_end(&mut all).await.unwrap();
            socket.write_all(&all).await.unwrap();
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = listener.local_addr().unwrap();
        let link = Link { round_trip: Duration::from_millis(2), bandwidth: 1e9 };
        tokio::spawn(link.serve(listener, server));
        let mut client = TcpStream::connect(near).await.unwrap();
        let bytes = crate::tree::content(1, 3 * PIECE as u64 + 7);
        client.write_all(&bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).await.unwrap();
        assert!(back == bytes);
    }
}
