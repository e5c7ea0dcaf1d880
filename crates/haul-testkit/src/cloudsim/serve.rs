//! Connections and requests: what every request goes through, whatever it asks.

use super::{
    admin,
    answer::{Answer, INTERNAL, Refusal},
    auth,
    body::{self, Pace, ReceiveOptions, Received, Sending},
    cloud::{Active, Cloud},
    exchange::Exchange,
    faults::Fault,
    limits::Pipe,
    objects,
    operation::{Op, Target},
    request::AdmittedRequest,
    settings::Keep,
};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::Incoming,
    header::{CONNECTION, ETAG, EXPECT, HeaderValue, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use tokio::net::TcpStream;

/// What is read at once, and what is written at once beside content.
const BUFFER: usize = 512 << 10;

/// A client's connection.
#[derive(Debug, Default)]
struct Line {
    /// 0 until it made a request that counts.
    number: AtomicU64,
    /// Closing it is a reset.
    resets: AtomicBool,
    pipe_in: Arc<Pipe>,
    pipe_out: Arc<Pipe>,
}

/// Serves a connection to its end.
pub async fn connection(cloud: Arc<Cloud>, socket: TcpStream) {
    // Without it, small answers wait for others: nothing else is lost.
    let _ = socket.set_nodelay(true);
    let line = Arc::new(Line::default());
    let service = service_fn(|request| answer(cloud.clone(), line.clone(), request));
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(BUFFER)
        .writev(true)
        .serve_connection(TokioIo::new(socket), service);
    // A client that hangs up is no concern of the server's.
    let _ = (&mut connection).await;
    let socket = connection.into_parts().io.into_inner();
    if line.resets.load(Relaxed) {
        // If it can't be set, closing still ends the answer too early.
        let _ = socket.set_zero_linger();
    }
    if line.number.load(Relaxed) > 0 {
        cloud.counters.disconnected();
    }
}

fn conflict(op: Op) -> Refusal {
    match op {
        Op::CreateBucket | Op::DeleteBucket => Refusal::new(
            StatusCode::CONFLICT,
            "OperationAborted",
            "A conflicting conditional operation is currently in progress against this resource. Please try again.",
        ),
        _ => Refusal::new(
            StatusCode::CONFLICT,
            "ConditionalRequestConflict",
            "The conditional request cannot succeed due to a conflicting operation against this resource.",
        ),
    }
}

type Reply = io::Result<Response<Sending>>;

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "cut on purpose")
}

fn respond(answer: Answer, pace: Pace, mut exchange: Exchange, spoilt: Option<(Fault, std::time::Duration)>) -> Reply {
    exchange.answers(answer.status.as_u16());
    let mut body = Sending::new(answer.pieces, pace, exchange);
    if let Some((fault, stall)) = spoilt {
        body = body.spoil(fault, stall);
    }
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    Ok(response)
}

fn pace(cloud: &Cloud, own: (&Arc<Pipe>, Option<u64>), all: (&Arc<Pipe>, Option<u64>)) -> Pace {
    let limit = |(pipe, rate): (&Arc<Pipe>, Option<u64>)| rate.map(|rate| (pipe.clone(), rate));
    Pace { start: cloud.start, clock: cloud.clock.clone(), own: limit(own), all: limit(all) }
}

async fn answer(cloud: Arc<Cloud>, line: Arc<Line>, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    if head.uri.path().starts_with(admin::PATH) {
        let free = Pace { start: cloud.start, clock: cloud.clock.clone(), own: None, all: None };
        let how = ReceiveOptions { keep: Keep::Bytes, algos: Vec::new(), signed: false };
        let received = body::receive(body, &HeaderMap::new(), how, &free, |_| ()).await?;
        let answer = admin::answer(&cloud, &head, &received.bytes()).await;
        return respond(answer, free, Exchange::silent(cloud), None);
    }
    let op = Op::of(&head.method, &head.uri, &head.headers);
    let target = Target::of(&head.uri);
    let active = cloud.active(&target.bucket);
    let settings = &active.settings;
    let number = enter(&cloud, &line, settings.max_connections)?;
    let mut exchange = Exchange::begin(cloud.clone(), op, &target, number);
    let own = settings.connection_rate;
    let into = pace(&cloud, (&line.pipe_in, own), (&active.pipe_in, settings.rate_in));
    let out = pace(&cloud, (&line.pipe_out, own), (&active.pipe_out, settings.rate_out));
    let has_body = head.method != hyper::Method::HEAD;

    if !active.admits(op, cloud.start.elapsed()) {
        cloud.counters.throttled();
        let mut answer = rejected(&active).answer(has_body);
        if let Some(after) = settings.retry_after {
            answer.headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil() as u64));
        }
        // A client that waits to be told to send its body needn't send it; then the connection can't go on.
        if head.headers.contains_key(EXPECT) {
            answer.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        } else {
            let how = ReceiveOptions { keep: Keep::Sizes, algos: Vec::new(), signed: false };
            receive(&cloud, &mut exchange, body, &head.headers, how, &into).await?;
        }
        cloud.clock.wait(settings.latency.draw(&cloud.random)).await;
        return respond(answer, out, exchange, None);
    }
    let conditional = head.headers.contains_key(IF_MATCH) || head.headers.contains_key(IF_NONE_MATCH);
    let fault = settings.faults.draw(op, conditional, &cloud.random);
    if let Some(fault) = fault {
        cloud.counters.spoilt(fault);
    }
    if fault == Some(Fault::Reset) {
        line.resets.store(true, Relaxed);
        return Err(cut());
    }
    let received =
        receive(&cloud, &mut exchange, body, &head.headers, objects::how(op, &head.headers, settings), &into);
    let received = received.await?;
    let delay = active.delay(op, &cloud.random);
    if !delay.is_zero() {
        cloud.clock.wait(delay).await;
    }
    if fault == Some(Fault::Error500) {
        return respond(INTERNAL.answer(has_body), out, exchange, None);
    }
    if fault == Some(Fault::Conflict) {
        return respond(conflict(op).answer(has_body), out, exchange, None);
    }
    if fault == Some(Fault::CompleteError) {
        let answer = Refusal { status: StatusCode::OK, ..INTERNAL };
        return respond(answer.answer(true), out, exchange, None);
    }
    let request = auth::Request { method: &head.method, uri: &head.uri, headers: &head.headers };
    let admitted = AdmittedRequest { cloud: &cloud, settings, op, target: &target, headers: &head.headers, request };
    let mut answer = admitted.perform(received).unwrap_or_else(|refusal| refusal.answer(has_body));
    if fault == Some(Fault::LostAnswer) {
        line.resets.store(true, Relaxed);
        return Err(cut());
    }
    if fault == Some(Fault::WrongEtag) && answer.status.is_success() {
        answer.headers.insert(ETAG, HeaderValue::from_static("\"00000000000000000000000000000bad\""));
    }
    let spoilt = fault.filter(|f| matches!(f, Fault::Cut | Fault::Stall) && answer.status.is_success());
    respond(answer, out, exchange, spoilt.map(|fault| (fault, settings.stall_for)))
}

/// Counts the connection at its first request; gives its number.
///
/// Errors: there are too many.
fn enter(cloud: &Cloud, line: &Line, most: Option<usize>) -> io::Result<u64> {
    let number = line.number.load(Relaxed);
    if number > 0 {
        return Ok(number);
    }
    let (number, open) = cloud.counters.connected();
    line.number.store(number, Relaxed);
    if most.is_some_and(|most| open > most as u64) {
        line.resets.store(true, Relaxed);
        return Err(cut());
    }
    Ok(number)
}

fn rejected(active: &Active) -> Refusal {
    match active.settings.reject {
        429 => Refusal::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "Rate limit exceeded."),
        _ => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."),
    }
}

async fn receive(
    cloud: &Cloud,
    exchange: &mut Exchange,
    body: Incoming,
    headers: &HeaderMap,
    how: ReceiveOptions,
    pace: &Pace,
) -> io::Result<Received> {
    let counted = |bytes: u64| {
        exchange.received(bytes);
        cloud.counters.received(bytes);
    };
    body::receive(body, headers, how, pace, counted).await
}
