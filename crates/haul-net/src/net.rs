//! Settings and state that all network stores share.

use crate::{Buffers, Clock, Cookies, Direction, EndpointLanes, Gate, Proxies};
use haul_core::{Error, ErrorKind, Result};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::{fmt, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

/// Settings that all network stores share.
#[derive(Clone, Debug)]
pub struct Net {
    /// Give up connecting after this long (`--contimeout`).
    pub connect_timeout: Duration,
    /// Give up if no data moves for this long (`--timeout`).
    pub idle_timeout: Duration,
    /// Connections to one host at most. By default as many as a lane of content and a lane of questions together.
    pub connections: usize,
    /// `User-Agent` header.
    pub user_agent: String,
    /// Don't verify certificates (`--no-check-certificate`).
    pub insecure_tls: bool,
    /// Extra certificate authorities, PEM files (`--ca-cert`).
    pub ca_certs: Vec<PathBuf>,
    /// A certificate of our own with its key, PEM files, for servers that ask for one (`--client-cert`, `--client-key`).
    pub client_cert: Option<ClientCert>,
    /// Cookies that servers set in this run (`--use-cookies`); `None` where none are kept.
    pub cookies: Option<Arc<Cookies>>,
    /// Connections are used again (`--disable-http-keep-alives` says no).
    pub keep_alive: bool,
    /// The class of service that packets are marked with (`--dscp`), of 6 bits.
    pub class: Option<u8>,
    /// Connections are made from this address of this machine (`--bind`).
    pub bind: Option<IpAddr>,
    /// Which proxy stands before which host.
    pub proxies: Proxies,
    /// Headers that the user adds to requests.
    pub headers: Headers,
    /// Requests a second (`--tpslimit`), shared by the whole run.
    pub gate: Arc<Gate>,
    /// How far clocks of servers are ahead, for the whole run.
    pub clock: Arc<Clock>,
    /// How many requests each endpoint takes at once, shared by the whole run.
    pub roads: Arc<EndpointLanes>,
    /// Buffers for data read from the network.
    pub buffers: Buffers,
    /// Where the system keeps what a session's processes need, such as sockets (`XDG_RUNTIME_DIR`).
    pub runtime: Option<PathBuf>,
    /// Where haul keeps what it remembers; `None` where it remembers nothing.
    pub state: Option<PathBuf>,
    /// Log requests and answers' headers, without secrets (`--dump headers`).
    pub dump_headers: bool,
}

impl Default for Net {
    fn default() -> Self {
        Net {
            connect_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            connections: 384,
            user_agent: concat!("haul/", env!("CARGO_PKG_VERSION")).into(),
            insecure_tls: false,
            ca_certs: Vec::new(),
            client_cert: None,
            cookies: None,
            keep_alive: true,
            class: None,
            bind: None,
            proxies: Proxies::default(),
            headers: Headers::default(),
            gate: Arc::new(Gate::open()),
            clock: Arc::default(),
            roads: Arc::default(),
            buffers: Buffers::default(),
            runtime: None,
            state: None,
            dump_headers: false,
        }
    }
}

/// A certificate of our own.
#[derive(Clone)]
pub struct ClientCert {
    /// The certificate, with those between it and its authority.
    pub cert: PathBuf,
    /// Its key, which may be in the same file.
    pub key: PathBuf,
    /// The key's password, where it is encrypted (`--client-pass`).
    pub password: Option<String>,
}

impl fmt::Debug for ClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCert").field("cert", &self.cert).field("key", &self.key).finish_non_exhaustive()
    }
}

/// One header.
#[derive(Clone, Debug)]
pub struct Header(HeaderName, HeaderValue);

impl Header {
    /// As people write it: `Name: value`. It counts as a secret in logs, since it may be one.
    ///
    /// Errors: `Invalid`.
    pub fn parse(text: &str) -> Result<Header> {
        let why = || format!("{text:?} isn't a header: write it as \"Name: value\"");
        let bad = || Error::new(ErrorKind::Invalid, "open", why());
        let (name, value) = text.split_once(':').ok_or_else(bad)?;
        Header::new(name.trim(), value.trim()).ok_or_else(bad)
    }

    /// A name and a value, if they can be such.
    pub fn new(name: &str, value: &str) -> Option<Header> {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some(Header(HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    }

    /// Sets it.
    pub fn insert_into(self, headers: &mut HeaderMap) {
        headers.insert(self.0, self.1);
    }
}

/// Headers that the user adds to requests, by what the requests do.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    /// To all (`--header`).
    all: HeaderMap,
    /// To those that carry content (`--header-upload`).
    upload: HeaderMap,
    /// To those whose answer carries content (`--header-download`).
    download: HeaderMap,
}

impl Headers {
    /// Those to all requests, to uploads and to downloads.
    pub fn new(all: &[Header], upload: &[Header], download: &[Header]) -> Headers {
        let map = |of: &[Header]| of.iter().cloned().map(|Header(name, value)| (name, value)).collect();
        Headers { all: map(all), upload: map(upload), download: map(download) }
    }

    /// Adds those of a request of this direction; they replace what is set already.
    pub fn add(&self, direction: Direction, headers: &mut HeaderMap) {
        let own = match direction {
            Direction::Down => Some(&self.download),
            Direction::Up => Some(&self.upload),
            Direction::Copy | Direction::Meta => None,
        };
        for (name, value) in self.all.iter().chain(own.into_iter().flatten()) {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// A time limit that stands for "never", where the network needs some number.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long to wait. As in rclone, 0 means no limit.
pub fn patience(limit: Option<Duration>) -> Duration {
    limit.filter(|limit| !limit.is_zero()).unwrap_or(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_with_what_requests_do() {
        let map = |text| [Header::parse(text).unwrap()];
        let headers = Headers::new(&map("a: 1"), &map("u:2"), &map("D : 3 "));
        for (direction, has) in [
            (Direction::Up, &["a", "u"][..]),
            (Direction::Down, &["a", "d"]),
            (Direction::Meta, &["a"]),
            (Direction::Copy, &["a"]),
        ] {
            let mut all = HeaderMap::new();
            headers.add(direction, &mut all);
            assert_eq!(all.keys().map(HeaderName::as_str).collect::<Vec<_>>(), has);
        }
        let error = Header::parse("novalue").unwrap_err();
        assert_eq!(error.message(), "\"novalue\" isn't a header: write it as \"Name: value\"");
    }
}
