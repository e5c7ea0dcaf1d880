//! The HTTP client: HTTP/1.1 only, a capped pool, TLS by rustls, and a bound on every wait.

use crate::{
    Buffers, Clock, Cookies, EndpointLanes, Net,
    connect::{self, HostRoute},
    fault::{Fault, FaultResult},
    lanes::LanePermit,
    reach, tls,
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{ErrorKind, Result, Retry, concurrency::RequestResult};
use http::{
    HeaderMap, HeaderValue, Request, StatusCode,
    header::{CONNECTION, DATE},
    uri::{Authority, Scheme},
};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use jiff::Timestamp;
use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
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
/// No refusal is larger: an error of several lines for each of 1000 keys.
const MAX_REFUSAL: usize = 1 << 20;

/// A client of one service.
pub struct Http<B> {
    client: Client<HttpsConnector<HostRoute>, B>,
    connections: connect::ConnectSettings,
    permits: Arc<Semaphore>,
    idle: Duration,
    keep_alive: bool,
    cookies: Option<Arc<Cookies>>,
    buffers: Buffers,
    /// Knows which hosts have answered in this run.
    roads: Arc<EndpointLanes>,
    clock: Arc<Clock>,
}

impl<B> Clone for Http<B> {
    fn clone(&self) -> Self {
        Http {
            client: self.client.clone(),
            connections: self.connections.clone(),
            permits: self.permits.clone(),
            idle: self.idle,
            keep_alive: self.keep_alive,
            cookies: self.cookies.clone(),
            buffers: self.buffers.clone(),
            roads: self.roads.clone(),
            clock: self.clock.clone(),
        }
    }
}

impl<B> fmt::Debug for Http<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

/// A request's body that can be watched while a connection takes it.
pub trait WatchedBody: http_body::Body<Data = Bytes, Error = io::Error> + Send + Unpin + 'static {
    /// Tells whether it moves.
    fn watch(&self) -> Arc<dyn Watch>;
}

/// Whether a body still moves.
pub trait Watch: Send + Sync {
    /// The number of times that the connection has taken something so far; `None` while it is us who hold it back.
    fn count(&self) -> Option<u64>;
}

/// An answer whose body is still to come.
pub struct Reply {
    /// Its status, whatever it is.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    body: Frames,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The frames of an answer; holds the connection's permit until dropped, and its place in a lane until the end.
struct Frames {
    incoming: Incoming,
    idle: Duration,
    pass: Option<LanePermit>,
    buffers: Buffers,
    _permit: OwnedSemaphorePermit,
}

impl<B: WatchedBody> Http<B> {
    /// A client; `tls` says whether certificates will be needed.
    ///
    /// Errors: `Invalid` when a CA file can't be used.
    pub fn new(net: &Net, tls: bool) -> Result<Self> {
        net.proxies.check()?;
        let connections = connect::ConnectSettings::of(net);
        let connector = connections.connector(tls::config(net, tls)?);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(if net.keep_alive { net.connections.max(1) } else { 0 })
            .http1_read_buf_exact_size(BUFFER)
            .build(connector);
        let permits = Arc::new(Semaphore::new(net.connections.max(1)));
        let (buffers, roads, clock) = (net.buffers.clone(), net.roads.clone(), net.clock.clone());
        let (idle, keep_alive, cookies) = (net.idle_timeout, net.keep_alive, net.cookies.clone());
        Ok(Http { client, connections, permits, idle, keep_alive, cookies, buffers, roads, clock })
    }

    /// Sends a request and waits for the answer's head, as long as bytes keep moving.
    pub async fn send(&self, mut request: Request<B>) -> FaultResult<Reply> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Fault::broken("the client is closed"))?;
        let taken = request.body().watch();
        let uri = request.uri().clone();
        self.connections.introduce(&mut request);
        if !self.keep_alive {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(cookies) = &self.cookies {
            cookies.tell(&uri, request.headers_mut());
        }
        let host = uri.authority().map_or("", Authority::as_str);
        // One port answers to one scheme: another remote's success says nothing.
        let road = format!("{}://{host}", uri.scheme_str().unwrap_or_default());
        let answered = self.roads.has_answered(&road);
        let began = Timestamp::now();
        let mut answer = std::pin::pin!(self.client.request(request));
        let mut seen = Some(0);
        // A host that waits for the end of a line would take a handshake for its beginning, and keep silent.
        let mut doubt = !answered && uri.scheme() == Some(&Scheme::HTTPS);
        let response = loop {
            let patience = if doubt { reach::SILENCE.min(self.idle) } else { self.idle };
            match tokio::time::timeout(patience, &mut answer).await {
                Ok(Ok(response)) => break response,
                Ok(Err(e)) => {
                    let missed = (answered && e.is_connect()).then(|| self.roads.missed(&road, Instant::now()));
                    return Err(match missed.filter(|missed| *missed >= self.idle) {
                        Some(missed) => reach::gone(&e, host, missed),
                        None => reach::fault(e, &uri, answered, &self.connections).await,
                    });
                }
                Err(_) if doubt => {
                    doubt = false;
                    if reach::speaks_other(&uri, &self.connections).await {
                        return Err(reach::no_tls(host));
                    }
                }
                // The body still moves, or is held back by us: that is no silence.
                Err(_) if taken.count() != seen || seen.is_none() => seen = taken.count(),
                Err(_) => return Err(Fault::timeout(format!("no answer within {:?}", self.idle))),
            }
        };
        self.roads.answered(&road);
        let (head, incoming) = response.into_parts();
        self.clock.answered(head.headers.get(DATE).and_then(|date| date.to_str().ok()), began);
        if let Some(cookies) = &self.cookies {
            cookies.learn(&uri, &head.headers);
        }
        let body = Frames { incoming, idle: self.idle, pass: None, buffers: self.buffers.clone(), _permit: permit };
        Ok(Reply { status: head.status, headers: head.headers, body })
    }
}

impl Reply {
    /// The request's place in its lane is kept until the body has come.
    pub fn keep(&mut self, pass: LanePermit) {
        self.body.pass = Some(pass);
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The whole body, which must be small.
    pub async fn bytes(self) -> FaultResult<Bytes> {
        self.at_most(MAX_ANSWER).await
    }

    /// The whole body of a refusal, which says why and no more.
    pub async fn refusal(self) -> FaultResult<Bytes> {
        self.at_most(MAX_REFUSAL).await
    }

    async fn at_most(mut self, most: usize) -> FaultResult<Bytes> {
        let Some(first) = self.body.next().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.body.next().await? else { return Ok(first) };
        let mut all = BytesMut::from(&first[..]);
        all.extend_from_slice(&second);
        while let Some(frame) = self.body.next().await? {
            if all.len() + frame.len() > most {
                return Err(Fault::new(ErrorKind::Invalid, Retry::Never, "the server's answer is absurdly large"));
            }
            all.extend_from_slice(&frame);
        }
        Ok(all.freeze())
    }

    /// The body as it comes, whose length isn't known: safe only if its end is marked (chunks), as one that just stops can't be
    /// distinguished from one that ended.
    pub fn to_end(self) -> BoxStream<'static, Result<Bytes>> {
        let frames = futures::stream::unfold(Some(self.body), |body| async move {
            let mut body = body?;
            match body.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(body))),
                Ok(None) => None,
                Err(fault) => Some((Err(fault.error("read")), None)),
            }
        });
        frames.boxed()
    }

    /// The body as it comes, in pieces of 256 KiB at most; ends with an error unless it is `length` bytes long.
    pub fn stream(mut self, length: u64) -> BoxStream<'static, Result<Bytes>> {
        // Until somebody wants it: that may be when another store has a place for it.
        self.body.waits(true);
        let content = Content { body: self.body, left: length, over: Bytes::new(), fault: None };
        let pieces = futures::stream::unfold(Some(content), |content| async move {
            let mut content = content?;
            content.body.waits(false);
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
    /// The part of the last frame that belongs to the next piece.
    over: Bytes,
    /// Why there is no more, once what came before it is given out.
    fault: Option<Box<Fault>>,
}

impl Content {
    async fn next(&mut self) -> FaultResult<Option<Bytes>> {
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

    async fn frame(&mut self) -> FaultResult<Bytes> {
        match self.body.next().await? {
            Some(frame) if frame.len() as u64 <= self.left => Ok(frame),
            Some(_) => Err(Fault::broken("more bytes came than were announced")),
            None => Err(Fault::broken(format!("cut with {} bytes to come", self.left))),
        }
    }
}

impl Frames {
    /// Nobody takes what comes, or somebody does now.
    fn waits(&mut self, waits: bool) {
        if let Some(pass) = &mut self.pass {
            pass.waits(waits);
        }
    }

    async fn next(&mut self) -> FaultResult<Option<Bytes>> {
        loop {
            let frame = tokio::time::timeout(self.idle, self.incoming.frame())
                .await
                .map_err(|_| Fault::timeout(format!("nothing came for {:?}", self.idle)))?;
            match frame {
                None => {
                    if let Some(pass) = self.pass.take() {
                        pass.end(RequestResult::Done);
                    }
                    return Ok(None);
                }
                Some(Err(e)) => {
                    return Err(Fault::broken(format!("the connection broke: {}", crate::fault::innermost(&e))));
                }
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
