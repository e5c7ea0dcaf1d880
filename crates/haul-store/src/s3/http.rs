//! The HTTP client: HTTP/1.1 only, a capped pool, TLS by rustls, and a bound on every wait.

use super::{
    body::Pieces,
    error::{Fault, Tried},
};
use crate::{Buffers, Net, lanes::Pass};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{Error, ErrorKind, Result, Retry, concurrency::Outcome};
use http::{HeaderMap, Request, StatusCode, uri::Authority};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one read from a connection: eight system calls a megabyte, a buffer that stays in a core's cache, and little
/// memory for a few hundred connections. (Growing it as the data comes costs fresh memory at each step.)
const BUFFER: usize = 128 << 10;
/// Pieces that content is given out in: large enough that each costs little, small enough to show progress.
const PIECE: usize = 256 << 10;
/// Servers close idle connections after 5 s and more; using one at that very moment costs a retry.
const POOL_IDLE: Duration = Duration::from_secs(60);
/// No answer that isn't content is larger: a listing page of 1000 keys of 1 kB, percent-encoded, twice over.
const MAX_ANSWER: usize = 64 << 20;

/// A client of one service.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Pieces>,
    permits: Arc<Semaphore>,
    idle: Duration,
    buffers: Buffers,
}

/// An answer whose body is still to come.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Frames,
}

/// The frames of an answer; holds the connection's permit until dropped, and its place in a lane until the end.
struct Frames {
    incoming: Incoming,
    idle: Duration,
    pass: Option<Pass>,
    buffers: Buffers,
    _permit: OwnedSemaphorePermit,
}

impl Http {
    /// A client; `tls` says whether certificates will be needed.
    ///
    /// Errors: `Invalid` when a CA file can't be used.
    pub fn new(net: &Net, tls: bool) -> Result<Http> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_connect_timeout(Some(net.connect_timeout));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(net, tls)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(net.connections.max(1))
            .http1_read_buf_exact_size(BUFFER)
            .build(https);
        let permits = Arc::new(Semaphore::new(net.connections.max(1)));
        Ok(Http { client, permits, idle: net.idle_timeout, buffers: net.buffers.clone() })
    }

    /// Sends a request and waits for the answer's head, as long as bytes keep moving.
    pub async fn send(&self, request: Request<Pieces>) -> Tried<Reply> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Fault::broken("the client is closed"))?;
        let taken = request.body().progress();
        let host = request.uri().authority().cloned();
        let mut answer = std::pin::pin!(self.client.request(request));
        let mut seen = 0;
        let response = loop {
            match tokio::time::timeout(self.idle, &mut answer).await {
                Ok(done) => break done.map_err(|e| broken(e, host.as_ref()))?,
                // The body still moves: that is no silence.
                Err(_) if taken.load(Ordering::Relaxed) != seen => seen = taken.load(Ordering::Relaxed),
                Err(_) => return Err(Fault::timeout(format!("no answer within {:?}", self.idle))),
            }
        };
        let (head, incoming) = response.into_parts();
        let body = Frames { incoming, idle: self.idle, pass: None, buffers: self.buffers.clone(), _permit: permit };
        Ok(Reply { status: head.status, headers: head.headers, body })
    }
}

impl Reply {
    /// The request's place in its lane is kept until the body has come.
    pub fn keep(&mut self, pass: Pass) {
        self.body.pass = Some(pass);
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The whole body, which must be small.
    pub async fn bytes(mut self) -> Tried<Bytes> {
        let Some(first) = self.body.next().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.body.next().await? else { return Ok(first) };
        let mut all = BytesMut::from(&first[..]);
        all.extend_from_slice(&second);
        while let Some(frame) = self.body.next().await? {
            if all.len() + frame.len() > MAX_ANSWER {
                return Err(Fault::new(ErrorKind::Invalid, Retry::Never, "the server's answer is absurdly large"));
            }
            all.extend_from_slice(&frame);
        }
        Ok(all.freeze())
    }

    /// The body as it comes, in pieces of [`PIECE`] bytes; ends with an error unless it is `length` bytes long.
    pub fn stream(self, length: u64) -> BoxStream<'static, Result<Bytes>> {
        let content = Content { body: self.body, left: length, over: Bytes::new(), fault: None };
        let pieces = futures::stream::unfold(Some(content), |content| async move {
            let mut content = content?;
            match content.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(content))),
                Ok(None) => None,
                Err(fault) => Some((Err(fault.error("read")), None)),
            }
        });
        pieces.boxed()
    }
}

/// A body of known length. Its frames are copied into buffers that are used again: the connection's own buffer then
/// stays in the processor's cache, where frames that were kept would make it take fresh memory for every read, which
/// costs more (a page fault for every 4 KiB) than the copy.
struct Content {
    body: Frames,
    /// Bytes that are still to come.
    left: u64,
    /// What of the last frame belongs to the next piece.
    over: Bytes,
    /// Why there is no more, once what came before it is given out.
    fault: Option<Box<Fault>>,
}

impl Content {
    async fn next(&mut self) -> Tried<Option<Bytes>> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if self.left == 0 && self.over.is_empty() {
            return match self.body.next().await? {
                None => Ok(None),
                Some(_) => Err(Fault::broken("more bytes came than were announced")),
            };
        }
        let room = (self.left + self.over.len() as u64).min(PIECE as u64) as usize;
        let mut filling = self.body.buffers.begin(room);
        filling.add(&mut self.over);
        while !filling.is_full() {
            let mut frame = match self.frame().await {
                Ok(frame) => frame,
                Err(fault) if filling.is_empty() => return Err(fault),
                Err(fault) => {
                    self.fault = Some(fault);
                    break;
                }
            };
            self.left -= frame.len() as u64;
            filling.add(&mut frame);
            self.over = frame;
        }
        Ok(Some(filling.done()))
    }

    async fn frame(&mut self) -> Tried<Bytes> {
        match self.body.next().await? {
            Some(frame) if frame.len() as u64 <= self.left => Ok(frame),
            Some(_) => Err(Fault::broken("more bytes came than were announced")),
            None => Err(Fault::broken(format!("cut with {} bytes to come", self.left))),
        }
    }
}

impl Frames {
    async fn next(&mut self) -> Tried<Option<Bytes>> {
        loop {
            let frame = tokio::time::timeout(self.idle, self.incoming.frame())
                .await
                .map_err(|_| Fault::timeout(format!("nothing came for {:?}", self.idle)))?;
            match frame {
                None => {
                    if let Some(pass) = self.pass.take() {
                        pass.end(Outcome::Done);
                    }
                    return Ok(None);
                }
                Some(Err(e)) => return Err(Fault::broken(format!("the connection broke: {}", causes(&e)))),
                Some(Ok(frame)) => {
                    // Trailers carry nothing that we asked for.
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        if let Some(pass) = &self.pass {
                            pass.moved(data.len() as u64);
                        }
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

fn broken(error: hyper_util::client::legacy::Error, host: Option<&Authority>) -> Box<Fault> {
    let (text, host) = (causes(&error), host.map_or("the server", Authority::as_str));
    if let Some(tls) = certificate_error(&error) {
        let hint = "check the endpoint, or add the authority with --ca-cert";
        return Fault::new(ErrorKind::Io, Retry::Never, format!("no trusted connection: {tls}: {hint}"));
    }
    if error.is_connect() && text.contains("timed out") {
        return Fault::timeout(format!("can't connect to {host}: {text}"));
    }
    if error.is_connect() {
        let mut fault = Fault::broken(format!("can't connect to {host}: {text}"));
        fault.refused = text.contains("refused");
        return fault;
    }
    let mut fault = Fault::broken(format!("the connection broke: {text}"));
    fault.dropped = true;
    fault
}

fn certificate_error(error: &dyn std::error::Error) -> Option<String> {
    let mut next = error.source();
    while let Some(e) = next {
        // An io::Error shows its inner error's source, not the inner error itself.
        let inner = e.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
        let tls = inner.and_then(|i| i.downcast_ref()).or_else(|| e.downcast_ref::<rustls::Error>());
        if let Some(found @ rustls::Error::InvalidCertificate(_)) = tls {
            return Some(found.to_string());
        }
        next = e.source();
    }
    None
}

/// The innermost cause says most: `connection refused`.
fn causes(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn tls_config(net: &Net, needed: bool) -> Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::new(ErrorKind::Invalid, "open", format!("TLS can't be set up: {e}")))?;
    if net.insecure_tls {
        let blind = Arc::new(AnyCertificate(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(blind).with_no_client_auth());
    }
    let mut roots = if needed { known_authorities() } else { RootCertStore::empty() };
    for path in &net.ca_certs {
        let bad = |e: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Invalid, "open", format!("CA file {}: {e}", path.display()))
        };
        for cert in CertificateDer::pem_file_iter(path).map_err(|e| bad(&e))? {
            roots.add(cert.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
        }
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The system's authorities, or Mozilla's where the system has none. Read once a process: it takes milliseconds.
fn known_authorities() -> RootCertStore {
    static ROOTS: std::sync::OnceLock<RootCertStore> = std::sync::OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        roots
    };
    ROOTS.get_or_init(read).clone()
}

/// Takes any certificate (`--no-check-certificate`), but still checks that the peer holds its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
