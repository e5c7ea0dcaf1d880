//! An HTTP proxy on loopback for clients whose hosts are fixed (rclone's for Drive, Dropbox and Box): it ends TLS for the hosts that it
//! is told of and passes what comes to a plain HTTP server of ours. No other host is reached.

use crate::{
    lab::Lab,
    proxy::pass,
    serve::Body,
    tls::{self, Certificate},
};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
};
use tokio_rustls::TlsAcceptor;

/// A request's head may be so long.
const HEAD: usize = 16 << 10;
const DATES: (&str, &str) = ("20200101000000Z", "20991231000000Z");

/// Hosts and where their servers listen.
type Hosts = Arc<BTreeMap<String, SocketAddr>>;

/// A running proxy.
#[derive(Debug)]
pub struct Interceptor {
    /// Where it listens.
    pub address: SocketAddr,
    ca: PathBuf,
    runtime: Option<Runtime>,
}

impl Interceptor {
    /// Starts one for these hosts (`www.googleapis.com`), with a certificate that is thrown away with the lab. `None` after saying that
    /// the test is skipped, where there is no openssl.
    ///
    /// Panics if there is no port to be had.
    pub fn start(lab: &Lab, hosts: &[(&str, SocketAddr)]) -> Option<Interceptor> {
        let names: Vec<_> = hosts.iter().map(|(host, _)| format!("DNS:{host}")).collect();
        let certificate = Certificate::make(lab, "interceptor", &names.join(","), DATES, false)?;
        let acceptor = TlsAcceptor::from(Arc::new(
            tls::config(&certificate.cert, &certificate.key).expect("the certificate can be used"),
        ));
        let hosts: Hosts = Arc::new(hosts.iter().map(|(host, to)| ((*host).to_owned(), *to)).collect());
        // It has a runtime of its own, which no test's may start.
        let start = move || -> io::Result<_> {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
            let address = listener.local_addr()?;
            runtime.spawn(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    tokio::spawn(connection(socket, acceptor.clone(), hosts.clone()));
                }
            });
            Ok((runtime, address))
        };
        let (runtime, address) = thread::spawn(start).join().expect("no panic").expect("started");
        Some(Interceptor { address, ca: certificate.cert, runtime: Some(runtime) })
    }

    /// `http://127.0.0.1:PORT`, for `--http-proxy`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The certificate that clients must trust, for `--ca-cert`.
    pub fn ca(&self) -> &Path {
        &self.ca
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn connection(mut socket: TcpStream, acceptor: TlsAcceptor, hosts: Hosts) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut first = [0];
    // Of the methods that clients use only CONNECT begins with a C.
    if socket.peek(&mut first).await? == 0 || first[0] != b'C' {
        return plain(socket, hosts).await;
    }
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD {
            return Err(io::Error::other("too long a head"));
        }
        head.push(socket.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let host = head.split([' ', ':']).nth(1).unwrap_or_default();
    let Some(upstream) = hosts.get(host).copied() else {
        return socket.write_all(b"HTTP/1.1 502 No such host here\r\ncontent-length: 0\r\n\r\n").await;
    };
    socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    let mut client = acceptor.accept(socket).await?;
    let mut server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// Requests without TLS, which name their hosts each: rclone sends those to 127.0.0.1 through its proxy too.
async fn plain(socket: TcpStream, hosts: Hosts) -> io::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let to = request.uri().authority().and_then(|authority| {
            let own = authority.as_str().parse::<SocketAddr>().ok().filter(|address| address.ip().is_loopback());
            own.or_else(|| hosts.get(authority.host()).copied())
        });
        async move {
            let to = to.ok_or_else(|| io::Error::other("no such host here"))?;
            let answer: io::Result<Response<Body>> = pass(request, to).await;
            answer
        }
    });
    let socket = TokioIo::new(socket);
    // A client that hangs up is no concern of the proxy's.
    let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(socket, service).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{peers, serve::Server};
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};

    #[test]
    fn a_client_reaches_our_server_by_a_hosts_name() {
        let server = Server::start(|request, _| async move {
            let host = request.headers().get("host").and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
            let text = format!("{} {host} {}", request.method(), request.uri().path());
            Ok(Response::new(Full::new(Bytes::from(text)).map_err(|e| match e {}).boxed_unsync()))
        })
        .unwrap();
        let lab = Lab::new("");
        let Some(curl) = peers::need("curl") else { return };
        let hosts = [("www.googleapis.com", server.address), ("api.dropboxapi.com", server.address)];
        let Some(interceptor) = Interceptor::start(&lab, &hosts) else { return };
        let (proxy, ca) = (interceptor.url(), interceptor.ca().display().to_string());
        let ask = |url: &str| lab.run(&curl, &["-sS", "--noproxy", "", "--proxy", &proxy, "--cacert", &ca, url]);
        assert_eq!(
            ask("https://www.googleapis.com/drive/v3/files?q=x").ok().out,
            "GET www.googleapis.com /drive/v3/files"
        );
        assert_eq!(ask("https://api.dropboxapi.com/2").ok().out, "GET api.dropboxapi.com /2");
        let plain = format!("{}/token", server.endpoint());
        assert_eq!(ask(&plain).ok().out, format!("GET {} /token", server.address));
        assert_ne!(ask("https://www.example.com/").code, 0);
        assert_ne!(ask("http://www.example.com/").code, 0);
    }
}
