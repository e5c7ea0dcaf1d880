//! How connections are made: from which address, and through which proxy, if any.

use crate::Net;
use futures::future::BoxFuture;
use haul_core::{Error, ErrorKind, Result, Retry};
use http::{HeaderValue, Request, Uri, header::PROXY_AUTHORIZATION, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{
            Connected, Connection, HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustix::net::sockopt;
use rustls::ClientConfig;
use std::{
    fmt, io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::net::TcpStream;
use tower_service::Service;

type Tcp = TokioIo<TcpStream>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Which proxy stands before which host. By default none does.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Option<Arc<Rules>>);

#[derive(Debug)]
struct Rules {
    matcher: Matcher,
    /// Why a variable can't be used; told by who needs the network.
    wrong: Option<Error>,
    /// This machine itself is spoken to without one.
    spare_self: bool,
}

impl Proxies {
    /// One proxy before every host, as the user says (`--http-proxy`).
    ///
    /// Errors: `Invalid` when it isn't the address of a proxy of a kind that haul knows.
    pub fn always(address: &str) -> Result<Proxies> {
        checked("--http-proxy", address)?;
        Ok(Proxies(Some(Arc::new(Rules {
            matcher: Matcher::builder().all(address).build(),
            wrong: None,
            spare_self: false,
        }))))
    }

    /// Those that the variables of an environment name, looked up by `variable`: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
    /// `NO_PROXY`, or the same in small letters. As in Go, this machine's own addresses need no proxy. One that can't be used is
    /// told by [`Proxies::check`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let find = |name: &'static str| {
            let small = name.to_lowercase();
            let found = variable(name).map(|v| (name.to_owned(), v)).or_else(|| variable(&small).map(|v| (small, v)));
            found.filter(|(_, value)| !value.is_empty())
        };
        let mut wrong = None;
        let mut proxy = |name| {
            let Some((name, value)) = find(name) else { return String::new() };
            wrong = wrong.take().or(checked(&name, &value).err());
            value
        };
        // A web server's scripts get a client's header `Proxy` under this name.
        let http = if variable("REQUEST_METHOD").is_some() { String::new() } else { proxy("HTTP_PROXY") };
        let (https, all) = (proxy("HTTPS_PROXY"), proxy("ALL_PROXY"));
        if http.is_empty() && https.is_empty() && all.is_empty() {
            return Proxies::default();
        }
        let no = find("NO_PROXY").map(|(_, value)| value).unwrap_or_default();
        let matcher = Matcher::builder().all(all).http(http).https(https).no(no).build();
        Proxies(Some(Arc::new(Rules { matcher, wrong, spare_self: true })))
    }

    /// True unless no proxy is known at all.
    pub fn any(&self) -> bool {
        self.0.is_some()
    }

    /// Errors: `Invalid` when a variable names what isn't a proxy.
    pub fn check(&self) -> Result<()> {
        match self.0.as_ref().and_then(|rules| rules.wrong.as_ref()) {
            Some(wrong) => Err(Error::new(wrong.kind(), wrong.op(), wrong.message())),
            None => Ok(()),
        }
    }

    fn before(&self, uri: &Uri) -> Option<Intercept> {
        let rules = self.0.as_ref()?;
        if rules.spare_self && uri.host().is_some_and(is_self) {
            return None;
        }
        rules.matcher.intercept(uri)
    }
}

fn checked(name: &str, address: &str) -> Result<()> {
    let bad = |why: &str| {
        Err(Error::new(
            ErrorKind::Invalid,
            "open",
            format!("{name} {why}: write http://HOST:PORT, https:// or socks5://"),
        ))
    };
    let any = Uri::from_static("http://example.invalid/");
    match Matcher::builder().all(address).build().intercept(&any) {
        None => bad("names no proxy that haul knows"),
        Some(proxy) if matches!(proxy.uri().scheme_str(), Some("socks4" | "socks4a")) => bad("names a SOCKS 4 proxy"),
        Some(_) => Ok(()),
    }
}

/// `localhost`, or a loopback address.
fn is_self(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// How connections are made.
#[derive(Clone, Debug)]
pub struct Settings {
    timeout: Duration,
    bind: Option<IpAddr>,
    class: Option<u8>,
    proxies: Proxies,
}

impl Settings {
    /// As the user says.
    pub fn of(net: &Net) -> Settings {
        Settings { timeout: net.connect_timeout, bind: net.bind, class: net.class, proxies: net.proxies.clone() }
    }

    /// The same, given up sooner.
    pub fn within(&self, timeout: Duration) -> Settings {
        Settings { timeout, ..self.clone() }
    }

    /// Makes them, with TLS where the address says so.
    pub fn connector(&self, tls: ClientConfig) -> HttpsConnector<Road> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_connect_timeout(Some(self.timeout));
        tcp.set_local_address(self.bind);
        let to_proxy = https(tls.clone(), tcp.clone());
        https(tls, Road { tcp, to_proxy, class: self.class, proxies: self.proxies.clone(), timeout: self.timeout })
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
pub struct Road {
    tcp: HttpConnector,
    to_proxy: HttpsConnector<HttpConnector>,
    class: Option<u8>,
    proxies: Proxies,
    timeout: Duration,
}

impl Service<Uri> for Road {
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

impl Road {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &'static [(&'static str, &'static str)]) -> Proxies {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Proxies::from_variables(find)
    }

    fn before(proxies: &Proxies, uri: &'static str) -> Option<String> {
        proxies.before(&Uri::from_static(uri)).map(|proxy| proxy.uri().to_string())
    }

    #[test]
    fn the_environment_names_a_proxy_for_each_scheme_and_none_for_this_machine() {
        let proxies =
            of(&[("https_proxy", "http://s:1"), ("ALL_PROXY", "socks5://a:2"), ("NO_PROXY", "x.org,10.0.0.0/8")]);
        for (uri, proxy) in [
            ("https://b.org/", Some("http://s:1/")),
            ("http://b.org/", Some("socks5://a:2/")),
            ("https://c.x.org/", None),
            ("http://10.1.2.3/", None),
            ("https://localhost:9/", None),
            ("http://127.0.0.2/", None),
            ("http://[::1]:80/", None),
        ] {
            assert_eq!(before(&proxies, uri).as_deref(), proxy, "{uri}");
        }
        assert!(before(&of(&[("HTTP_PROXY", "p:1"), ("REQUEST_METHOD", "GET")]), "http://b.org/").is_none());
        let message = "http_proxy names no proxy that haul knows: write http://HOST:PORT, https:// or socks5://";
        assert_eq!(of(&[("http_proxy", "ftp://x")]).check().unwrap_err().message(), message);
    }

    #[test]
    fn a_proxy_that_is_typed_stands_before_all() {
        let proxies = Proxies::always("p:3128").unwrap();
        assert_eq!(before(&proxies, "http://127.0.0.1:9/").as_deref(), Some("http://p:3128/"));
        for (typed, message) in [
            ("ftp://p", "--http-proxy names no proxy that haul knows: write http://HOST:PORT, https:// or socks5://"),
            ("socks4://p", "--http-proxy names a SOCKS 4 proxy: write http://HOST:PORT, https:// or socks5://"),
        ] {
            assert_eq!(Proxies::always(typed).unwrap_err().message(), message);
        }
    }
}
