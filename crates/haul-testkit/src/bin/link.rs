//! A link to a server on this machine: `link MILLISECONDS MEGABYTES PORT`, the round trip and the bandwidth a second. It tells its own port,
//! and ends with its standard input.

use haul_testkit::link::Link;
use std::{
    env,
    io::{self, Read as _},
    net::{Ipv4Addr, SocketAddr},
    thread,
    time::Duration,
};
use tokio::{net::TcpListener, runtime::Builder, sync::oneshot};

fn main() -> io::Result<()> {
    let words: Vec<f64> = env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [milliseconds, megabytes, port] = words[..] else {
        return Err(io::Error::other("type link MILLISECONDS MEGABYTES PORT"));
    };
    let link = Link { round_trip: Duration::from_secs_f64(milliseconds / 1e3), bandwidth: megabytes * 1e6 };
    let (ended, end) = oneshot::channel();
    thread::spawn(move || {
        // Its end is what is waited for.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("link {}", listener.local_addr()?.port());
        tokio::spawn(link.serve(listener, SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16))));
        end.await.map_err(io::Error::other)
    })
}
