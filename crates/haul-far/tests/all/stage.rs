//! A near and a far end in one process, on a pair of pipes in memory.

use futures::future::BoxFuture;
use haul_core::Result;
use haul_far::{Call, Dial, Pipe, Settings};
use haul_store::{Links, OpenRequest, Store};
use std::{
    io,
    net::Ipv4Addr,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncWrite, BufReader, BufWriter, duplex, split};

/// Serves each connection from this process.
pub struct Here(pub Settings);

impl std::fmt::Debug for Here {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Here")
    }
}

impl Dial for Here {
    fn dial(&self) -> BoxFuture<'_, Result<Call>> {
        let settings = self.0.clone();
        let (near, far) = duplex(1 << 20);
        tokio::spawn(async move {
            let (from, to) = split(far);
            haul_far::serve(BufReader::new(from), BufWriter::new(to), settings).await
        });
        let (input, output) = split(near);
        let pipe = Pipe { input: Box::new(BufReader::new(input)), output: Box::new(BufWriter::new(output)), end: None };
        Box::pin(std::future::ready(Ok(Call::Pipes(pipe))))
    }
}

/// What opens folders of this machine.
pub fn settings() -> Settings {
    let open = |path: &[u8], links: Links, own_links: bool| {
        let request = OpenRequest { links, own_links, ..request(path) };
        (haul_fs::KIND.open)(request)
    };
    Settings { open: Arc::new(open), root: None, read_only: false, listens: Some(Ipv4Addr::LOCALHOST.into()) }
}

pub fn request(path: &[u8]) -> OpenRequest {
    OpenRequest { remote: "far".into(), path: path.to_vec(), links: Links::Keep, ..OpenRequest::default() }
}

/// A store on a folder, through both ends.
pub fn open(folder: &Path, settings: Settings) -> Arc<dyn Store> {
    let path = std::os::unix::ffi::OsStrExt::as_bytes(folder.as_os_str());
    haul_far::open_on(&request(path), Arc::new(Here(settings)), "far here").unwrap()
}

/// Serves as [`Here`], by pipes that change this word of what the near end sends.
#[derive(Debug)]
pub struct Garbled(pub Here);

pub const GARBLED: &str = "marked";

/// What changes it.
struct Garbles<W>(W);

impl<W: AsyncWrite + Unpin> AsyncWrite for Garbles<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut bytes = bytes.to_vec();
        let found: Vec<usize> = bytes
            .windows(GARBLED.len())
            .enumerate()
            .filter(|(_, at)| *at == GARBLED.as_bytes())
            .map(|(at, _)| at)
            .collect();
        found.into_iter().for_each(|at| bytes[at] ^= 1);
        Pin::new(&mut self.0).poll_write(cx, &bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Dial for Garbled {
    fn dial(&self) -> BoxFuture<'_, Result<Call>> {
        Box::pin(async {
            Ok(match self.0.dial().await? {
                Call::Pipes(Pipe { input, output, end }) => {
                    Call::Pipes(Pipe { input, output: Box::new(Garbles(output)), end })
                }
                other => other,
            })
        })
    }
}
