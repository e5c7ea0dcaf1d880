//! What happened: counters that cost an atomic addition each, and a log when it is asked for.

use super::{faults::Fault, operation::Op, price::Price};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Lines that a log keeps at most; later ones are dropped.
const LINES: usize = 1_000_000;

/// One request, as the log tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// When it came: milliseconds since the start or the last reset.
    pub ms: f64,
    /// S3's name of the operation.
    pub op: &'static str,
    /// The bucket.
    pub bucket: String,
    /// The key, or in a listing its prefix.
    pub key: String,
    /// Status of the answer; 0 when there was none.
    pub status: u16,
    /// Bytes of bodies, both ways.
    pub bytes: u64,
    /// Until the answer's body was gone: milliseconds.
    pub took_ms: f64,
    /// Requests under way when it came, itself included.
    pub in_flight: u64,
    /// Number of its connection.
    pub connection: u64,
}

/// What happened since the start or the last reset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Requests by S3's names, those that were rejected or spoilt included.
    pub requests: BTreeMap<&'static str, u64>,
    /// All of them.
    pub total_requests: u64,
    /// Those that were rejected by a rate.
    pub throttled: u64,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of answers' bodies.
    pub bytes_out: u64,
    /// Connections that made a request.
    pub connections: u64,
    /// Most of them at once.
    pub peak_connections: u64,
    /// Most requests under way at once.
    pub peak_in_flight: u64,
    /// When the first request came, in milliseconds.
    pub first_request_ms: Option<f64>,
    /// When the first one came that moves content: GetObject, PutObject, UploadPart, CopyObject or UploadPartCopy.
    pub first_get_or_put_ms: Option<f64>,
    /// When the last answer was gone.
    pub last_request_ms: Option<f64>,
    /// By the price list.
    pub cost_usd: f64,
    /// Uploads in parts that were begun and neither completed nor aborted.
    pub unfinished_uploads: u64,
}

impl Report {
    /// Requests of an operation.
    pub fn of(&self, op: &str) -> u64 {
        self.requests.get(op).copied().unwrap_or(0)
    }

    /// As the admin path tells it.
    pub fn json(&self) -> Value {
        let map = |all: &BTreeMap<&'static str, u64>| {
            all.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Map<_, _>>()
        };
        json!({
            "requests": map(&self.requests),
            "total_requests": self.total_requests,
            "throttled": self.throttled,
            "faults": map(&self.faults),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "connections": self.connections,
            "peak_connections": self.peak_connections,
            "peak_in_flight": self.peak_in_flight,
            "first_request_ms": self.first_request_ms,
            "first_get_or_put_ms": self.first_get_or_put_ms,
            "last_request_ms": self.last_request_ms,
            "cost_usd": self.cost_usd,
            "unfinished_uploads": self.unfinished_uploads,
        })
    }
}

/// A time that hasn't come yet.
const NEVER: u64 = u64::MAX;

/// Counters of one server.
#[derive(Debug)]
pub struct Counters {
    begun: Mutex<Instant>,
    requests: Vec<AtomicU64>,
    faults: Vec<AtomicU64>,
    throttled: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
    peak_open: AtomicU64,
    in_flight: AtomicU64,
    peak_in_flight: AtomicU64,
    /// Microseconds since the start.
    first: AtomicU64,
    first_content: AtomicU64,
    last: AtomicU64,
    logs: AtomicBool,
    log: Mutex<Vec<Line>>,
}

impl Counters {
    /// All at zero.
    pub fn new(logs: bool) -> Counters {
        let zeros = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        Counters {
            begun: Mutex::new(Instant::now()),
            requests: zeros(Op::ALL.len()),
            faults: zeros(Fault::ALL.len()),
            throttled: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            peak_open: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            peak_in_flight: AtomicU64::new(0),
            first: AtomicU64::new(NEVER),
            first_content: AtomicU64::new(NEVER),
            last: AtomicU64::new(NEVER),
            logs: AtomicBool::new(logs),
            log: Mutex::default(),
        }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment from which times are counted.
    pub fn begun(&self) -> Instant {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn micros(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.begun()).as_micros() as u64
    }

    /// Zeroes everything but what is under way right now, and empties the log.
    pub fn reset(&self) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let zeroed = [&self.throttled, &self.bytes_in, &self.bytes_out, &self.connections];
        for counter in self.requests.iter().chain(&self.faults).chain(zeroed) {
            counter.store(0, Relaxed);
        }
        for moment in [&self.first, &self.first_content, &self.last] {
            moment.store(NEVER, Relaxed);
        }
        self.peak_open.store(self.open.load(Relaxed), Relaxed);
        self.peak_in_flight.store(self.in_flight.load(Relaxed), Relaxed);
        self.lines().clear();
    }

    /// A connection made its first request; gives its number and how many there are now, itself included.
    pub fn connected(&self) -> (u64, u64) {
        let open = self.open.fetch_add(1, Relaxed) + 1;
        self.peak_open.fetch_max(open, Relaxed);
        (self.connections.fetch_add(1, Relaxed) + 1, open)
    }

    /// One that had made a request is gone.
    pub fn disconnected(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// A request came; gives how many are under way now.
    pub fn came(&self, op: Op, now: Instant) -> u64 {
        let now = self.micros(now);
        self.requests[op as usize].fetch_add(1, Relaxed);
        self.first.fetch_min(now, Relaxed);
        if matches!(op, Op::GetObject | Op::PutObject | Op::UploadPart | Op::CopyObject | Op::UploadPartCopy) {
            self.first_content.fetch_min(now, Relaxed);
        }
        let in_flight = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.peak_in_flight.fetch_max(in_flight, Relaxed);
        in_flight
    }

    /// Its answer is gone, whichever way.
    pub fn went(&self, now: Instant) {
        self.in_flight.fetch_sub(1, Relaxed);
        let now = self.micros(now);
        if self.last.fetch_max(now, Relaxed) == NEVER {
            self.last.store(now, Relaxed);
        }
    }

    /// Bytes of a request's body came.
    pub fn received(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Relaxed);
    }

    /// Bytes of an answer's body went.
    pub fn sent(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Relaxed);
    }

    /// A request was rejected by a rate.
    pub fn throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
    }

    /// A request was spoilt.
    pub fn spoilt(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, Relaxed);
    }

    /// True if lines are kept.
    pub fn logs(&self) -> bool {
        self.logs.load(Relaxed)
    }

    /// Keeps a line; its `ms` is filled in.
    pub fn log(&self, came: Instant, mut line: Line) {
        line.ms = self.micros(came) as f64 / 1e3;
        let mut lines = self.lines();
        if lines.len() < LINES {
            lines.push(line);
        }
    }

    /// The log so far, in the order in which answers were gone.
    pub fn logged(&self) -> Vec<Line> {
        self.lines().clone()
    }

    /// What happened.
    pub fn report(&self, price: Price, unfinished_uploads: u64) -> Report {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let moment = |counter: &AtomicU64| Some(load(counter)).filter(|m| *m != NEVER).map(|m| m as f64 / 1e3);
        let by_op = || Op::ALL.iter().zip(&self.requests).map(|(op, n)| (*op, load(n))).filter(|(_, n)| *n > 0);
        let faults = Fault::ALL.iter().zip(&self.faults).map(|(fault, n)| (fault.name(), load(n)));
        Report {
            requests: by_op().map(|(op, n)| (op.name(), n)).collect(),
            total_requests: by_op().map(|(_, n)| n).sum(),
            throttled: load(&self.throttled),
            faults: faults.filter(|(_, n)| *n > 0).collect(),
            bytes_in: load(&self.bytes_in),
            bytes_out: load(&self.bytes_out),
            connections: load(&self.connections),
            peak_connections: load(&self.peak_open),
            peak_in_flight: load(&self.peak_in_flight),
            first_request_ms: moment(&self.first),
            first_get_or_put_ms: moment(&self.first_content),
            last_request_ms: moment(&self.last),
            cost_usd: price.cost(by_op(), load(&self.bytes_out)),
            unfinished_uploads,
        }
    }
}

/// A log as JSON lines.
pub fn json_lines(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let line = json!({
            "ms": line.ms, "op": line.op, "bucket": line.bucket, "key": line.key, "status": line.status,
            "bytes": line.bytes, "took_ms": line.took_ms, "in_flight": line.in_flight, "connection": line.connection,
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_millis() as u64
}
