//! A proxy in front of an S3 server: passes everything on as it came (signatures stay valid), counts requests by
//! operation, and breaks what its rules say.

use crate::{
    cloudsim::operation::Op,
    serve::{Body, Line, Server},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Frame, Incoming},
    client::conn::http1,
    header::{ETAG, HeaderValue, RETRY_AFTER},
};
use hyper_util::rt::TokioIo;
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::net::TcpStream;

/// How long a fault holds up a client at most.
const HANG: Duration = Duration::from_secs(120);

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Status 500 with S3's `InternalError`; the server never sees the request.
    Internal,
    /// Status 503 with S3's `SlowDown` and a `Retry-After` of so many seconds.
    SlowDown(u32),
    /// The connection is reset before an answer; the server never sees the request.
    Reset,
    /// The answer's body ends after so many bytes, the connection with it.
    CutBody(u64),
    /// The answer's body stops after so many bytes, the connection stays open.
    StallBody(u64),
    /// The request is taken and never answered.
    Hang,
    /// Another ETag in the answer.
    WrongEtag,
    /// Status 200 with an `<Error>` as body; the server never sees the request.
    ErrorIn200,
    /// The server does it, and the connection is reset before its answer.
    LostAnswer,
    /// Status 200 with a web page, as one that asks a traveller to log in; the server never sees the request.
    Page,
}

/// Which of the requests that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleScope {
    /// These, counted from 1.
    Nth(Vec<u64>),
    /// Every k-th.
    Every(u64),
    /// So many of 1,000, picked by a seed.
    Rate(u64, u64),
    /// All.
    Always,
}

impl RuleScope {
    fn holds(&self, n: u64) -> bool {
        match self {
            RuleScope::Nth(which) => which.contains(&n),
            RuleScope::Every(k) => n.is_multiple_of(*k),
            RuleScope::Rate(seed, of_1000) => scatter(seed.wrapping_mul(0x9e37_79b9).wrapping_add(n)) % 1000 < *of_1000,
            RuleScope::Always => true,
        }
    }
}

/// splitmix64: evenly spread, the same every time.
fn scatter(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A request as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// S3's name of the operation.
    pub operation: &'static str,
    /// Path and query.
    pub target: String,
    /// What a rule did to it.
    pub fault: Option<Fault>,
}

#[derive(Debug, Default)]
struct State {
    seen: Vec<SeenRequest>,
    rules: Vec<(&'static str, RuleScope, Fault, u64)>,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    server: Server,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    /// Starts a proxy in front of a server.
    ///
    /// Errors: no thread or port to be had.
    pub fn start(upstream: SocketAddr) -> io::Result<Proxy> {
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        let server = Server::start(move |request, line| {
            let fault = meet(&mut lock(&shared), &request);
            answer(request, line, upstream, fault)
        })?;
        Ok(Proxy { server, state })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// Adds a rule for an operation, `*` for all. The first rule that holds counts.
    pub fn rule(&self, operation: &'static str, when: RuleScope, fault: Fault) {
        lock(&self.state).rules.push((operation, when, fault, 0));
    }

    /// Forgets rules and requests.
    pub fn reset(&self) {
        *lock(&self.state) = State::default();
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<SeenRequest> {
        lock(&self.state).seen.clone()
    }

    /// How many requests of each operation so far.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        lock(&self.state).seen.iter().for_each(|seen| *counts.entry(seen.operation).or_default() += 1);
        counts
    }

    /// How many requests a rule has spoilt.
    pub fn faults(&self) -> usize {
        lock(&self.state).seen.iter().filter(|seen| seen.fault.is_some()).count()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn meet(state: &mut State, request: &Request<Incoming>) -> Option<Fault> {
    let operation = Op::of(request.method(), request.uri(), request.headers()).name();
    let mut fault = None;
    for (about, when, what, met) in &mut state.rules {
        if *about != "*" && *about != operation {
            continue;
        }
        *met += 1;
        if fault.is_none() && when.holds(*met) {
            fault = Some(*what);
        }
    }
    state.seen.push(SeenRequest { operation, target: request.uri().to_string(), fault });
    fault
}

async fn answer(
    request: Request<Incoming>,
    line: Line,
    upstream: SocketAddr,
    fault: Option<Fault>,
) -> io::Result<Response<Body>> {
    let Some(fault) = fault else { return pass(request, upstream).await };
    let cut = || io::Error::new(io::ErrorKind::ConnectionReset, "cut by a rule");
    match fault {
        Fault::Internal => Ok(refuse(request, StatusCode::INTERNAL_SERVER_ERROR, "InternalError").await),
        Fault::ErrorIn200 => Ok(refuse(request, StatusCode::OK, "InternalError").await),
        Fault::SlowDown(secs) => {
            let mut response = refuse(request, StatusCode::SERVICE_UNAVAILABLE, "SlowDown").await;
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(secs));
            Ok(response)
        }
        Fault::Reset => {
            line.reset_on_close();
            Err(cut())
        }
        Fault::Hang => {
            tokio::time::sleep(HANG).await;
            Err(cut())
        }
        Fault::Page => {
            let mut response = refuse(request, StatusCode::OK, "").await;
            let page = Full::new(Bytes::from_static(b"<!doctype html><title>Log in</title>"));
            *response.body_mut() = page.map_err(|e| match e {}).boxed_unsync();
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/html"));
            Ok(response)
        }
        Fault::LostAnswer => {
            let response = pass(request, upstream).await?;
            response.into_body().collect().await?;
            line.reset_on_close();
            Err(cut())
        }
        Fault::WrongEtag => {
            let mut response = pass(request, upstream).await?;
            response.headers_mut().insert(ETAG, HeaderValue::from_static("\"00000000000000000000000000000bad\""));
            Ok(response)
        }
        Fault::CutBody(after) => Ok(pass(request, upstream).await?.map(|body| first(body, after, false))),
        Fault::StallBody(after) => Ok(pass(request, upstream).await?.map(|body| first(body, after, true))),
    }
}

/// Sends a request on as it is, and the answer back as it comes.
pub(crate) async fn pass<B>(request: Request<B>, upstream: SocketAddr) -> io::Result<Response<Body>>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let socket = TcpStream::connect(upstream).await?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
    // It ends with the answer's body; its errors come out there too.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    Ok(response.map(|body| body.map_err(io::Error::other).boxed_unsync()))
}

/// Takes a request's body, as S3 does before it refuses, and says no.
async fn refuse(request: Request<Incoming>, status: StatusCode, code: &str) -> Response<Body> {
    // A client that stops sending gets its answer all the same.
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>a test's fault</Message>\
         <RequestId>0</RequestId></Error>"
    );
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|e| match e {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/xml"));
    response
}

/// The first bytes of a body, then the end of the connection or silence.
fn first(body: Body, after: u64, silence: bool) -> Body {
    let start = (BodyStream::new(body), after);
    let frames = stream::try_unfold(start, move |(mut body, left)| async move {
        if left == 0 {
            if silence {
                tokio::time::sleep(HANG).await;
            }
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "cut by a rule"));
        }
        let Some(frame) = body.next().await else { return Ok(None) };
        let Ok(mut data) = frame?.into_data() else { return Ok(None) };
        data.truncate(usize::try_from(left).unwrap_or(usize::MAX).min(data.len()));
        let left = left - data.len() as u64;
        Ok(Some((Frame::data(data), (body, left))))
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spoils_about_its_share() {
        let spoilt = (0..10_000).filter(|n| RuleScope::Rate(7, 100).holds(*n)).count();
        assert!((800..1200).contains(&spoilt), "{spoilt}");
        assert!(RuleScope::Nth(vec![2, 3]).holds(3) && !RuleScope::Nth(vec![2, 3]).holds(1));
        assert!(RuleScope::Every(3).holds(6) && !RuleScope::Every(3).holds(7));
    }
}
