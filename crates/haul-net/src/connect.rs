//! How connections are made: from which address, and through which proxy, if any.

use crate::{Net, Proxies};
use futures::future::BoxFuture;
use haul_core::Retry;
use http::{HeaderValue, Request, Uri, header::PROXY_AUTHORIZATION, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{
            Connected, Connection, HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::Intercept,
    },
    rt::TokioIo,
};
use rustix::net::sockopt;
use rustls::ClientConfig;
use std::{
    fmt, io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::net::TcpStream;
use tower_service::Service;

type Tcp = TokioIo<TcpStream>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How connections are made.
#[derive(Clone, Debug)]
pub struct ConnectSettings {
    timeout: Duration,
    bind: Option<IpAddr>,
    class: Option<u8>,
    proxies: Proxies,
}

impl ConnectSettings {
    /// As the user says.
    pub fn of(net: &Net) -> ConnectSettings {
        ConnectSettings { timeout: net.connect_timeout, bind: net.bind, class: net.class, proxies: net.proxies.clone() }
    }

    /// These settings with a shorter timeout.
    pub fn within(&self, timeout: Duration) -> ConnectSettings {
        ConnectSettings { timeout, ..self.clone() }
    }

    /// Makes them, with TLS where the address says so.
    pub fn connector(&self, tls: ClientConfig) -> HttpsConnector<HostRoute> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_connect_timeout(Some(self.timeout));
        tcp.set_local_address(self.bind);
        let to_proxy = https(tls.clone(), tcp.clone());
        https(tls, HostRoute { tcp, to_proxy, class: self.class, proxies: self.proxies.clone(), timeout: self.timeout })
    }

    /// Tells the proxy who asks, where it reads the request itself: a tunnel was told as it was dug.
    pub fn introduce<B>(&self, request: &mut Request<B>) {
        if request.uri().scheme() != Some(&Scheme::HTTP) {
            return;
        }
        let auth = self.proxies.before(request.uri()).and_then(|proxy| proxy.basic_auth().cloned());
        if let Some(auth) = auth {
            request.headers_mut().insert(PROXY_AUTHORIZATION, auth);
        }
    }
}

fn https<C>(tls: ClientConfig, connector: C) -> HttpsConnector<C> {
    HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector)
}

/// The way to a host: straight, or through a proxy.
#[derive(Clone, Debug)]
pub struct HostRoute {
    tcp: HttpConnector,
    to_proxy: HttpsConnector<HttpConnector>,
    class: Option<u8>,
    proxies: Proxies,
    timeout: Duration,
}

impl Service<Uri> for HostRoute {
    type Response = Stream;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Stream, Failure>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        ready!(self.tcp.poll_ready(cx))?;
        self.to_proxy.poll_ready(cx)
    }

    fn call(&mut self, dst: Uri) -> Self::Future {
        let Some(proxy) = self.proxies.before(&dst) else {
            let (straight, class) = (self.tcp.call(dst), self.class);
            return Box::pin(async move {
                let tcp = straight.await?;
                mark(tcp.inner(), class);
                Ok(Stream { io: MaybeHttpsStream::Http(tcp), reads_requests: false })
            });
        };
        let (road, patience) = (self.clone(), self.timeout);
        let name = proxy.uri().authority().map_or_else(String::new, ToString::to_string);
        Box::pin(async move {
            let fail = |why: String, passes: bool| Box::new(ProxyFailed { name: name.clone(), why, passes }) as Failure;
            match tokio::time::timeout(patience, road.through(&proxy, dst)).await {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(e)) => {
                    let refused = matches!(e.to_string().as_str(), "tunnel error: proxy authorization required");
                    let why = match refused {
                        true => {
                            "it wants a user and a password: write them as http://USER:PASSWORD@HOST:PORT".to_owned()
                        }
                        false => crate::fault::innermost(&*e),
                    };
                    Err(fail(why, !refused))
                }
                Err(_) => Err(fail(format!("no connection within {patience:?}"), true)),
            }
        })
    }
}

/// Marks a connection's packets for routers on the way. One that can't be marked is as good as others.
fn mark(tcp: &TcpStream, class: Option<u8>) {
    let Some(class) = class else { return };
    // The upper six bits; the lower two are the network's own.
    let byte = class << 2;
    let _ = match tcp.peer_addr().is_ok_and(|peer| peer.is_ipv6()) {
        true => sockopt::set_ipv6_tclass(tcp, byte.into()),
        false => sockopt::set_ip_tos(tcp, byte),
    };
}

impl HostRoute {
    async fn through(mut self, proxy: &Intercept, dst: Uri) -> Result<Stream, Failure> {
        let at = proxy.uri().clone();
        if matches!(at.scheme_str(), Some("socks5" | "socks5h")) {
            let at = with_port(at, 1080)?;
            // As in Go, the proxy looks names up.
            let mut socks = SocksV5::new(at, self.tcp);
            if let Some((user, password)) = proxy.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            return Ok(Stream { io: MaybeHttpsStream::Http(socks.call(dst).await?), reads_requests: false });
        }
        if dst.scheme() == Some(&Scheme::HTTPS) {
            let mut tunnel = Tunnel::new(at, self.to_proxy);
            if let Some(auth) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(HeaderValue::clone(auth));
            }
            return Ok(Stream { io: tunnel.call(dst).await?, reads_requests: false });
        }
        Ok(Stream { io: self.to_proxy.call(at).await?, reads_requests: true })
    }
}

fn with_port(uri: Uri, port: u16) -> Result<Uri, Failure> {
    if uri.port().is_some() {
        return Ok(uri);
    }
    let host = uri.host().unwrap_or_default();
    Ok(format!("{}://{host}:{port}/", uri.scheme_str().unwrap_or("socks5")).parse()?)
}

/// The proxy stands in the way: it isn't reached, or doesn't reach the host.
#[derive(Debug)]
pub struct ProxyFailed {
    name: String,
    why: String,
    /// It may pass.
    passes: bool,
}

impl ProxyFailed {
    /// Whether to try again.
    pub fn retry(&self) -> Retry {
        if self.passes { Retry::Backoff } else { Retry::Never }
    }
}

impl fmt::Display for ProxyFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {} makes no connection: {}", self.name, self.why)
    }
}

impl std::error::Error for ProxyFailed {}

/// A connection, or the stretch of one before TLS begins.
#[derive(Debug)]
pub struct Stream {
    io: MaybeHttpsStream<Tcp>,
    /// It ends in a proxy, which reads requests and passes them on.
    reads_requests: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.reads_requests)
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}
