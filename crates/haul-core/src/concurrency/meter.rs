//! Counts what a lane did: answered requests, bytes, and the sum of the times that requests were in flight, whose
//! differences over a time are a [`Span`]. Judges nothing.

use std::time::Duration;

/// How long the least time of a request is remembered: 10 to 20 s, as BBR keeps its round trip (10 s, draft-ietf-ccwg-bbr).
const REMEMBERED: Duration = Duration::from_secs(10);

/// Weight of a new request in the mean time of one: about the last 32 count.
const MEAN_WEIGHT: f64 = 1.0 / 32.0;

/// Below this size a body is hardly what a request's time is for: 64 KiB pass in 3 ms at 25 MB/s a connection.
const SMALL_BODY: f64 = 65536.0;

/// Running sums, from the lane's beginning.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) in_flight: usize,
    now: Duration,
    sums: Sums,
    /// Mean seconds of an answered request, of late.
    mean: f64,
    /// Least seconds of an answered request: of the interval before this one, and of this one, which began then.
    least: (Option<f64>, Option<f64>, Duration),
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    done: u64,
    bytes: u64,
    /// Request-seconds: how many were in flight, times how long.
    area: f64,
}

/// The sums at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub(super) at: Duration,
    sums: Sums,
}

/// Work done between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) secs: f64,
    pub(super) done: f64,
    pub(super) bytes: f64,
    /// Request-seconds.
    pub(super) area: f64,
}

impl Meter {
    /// Time went on to `now`.
    pub(super) fn tick(&mut self, now: Duration) {
        if now > self.now {
            self.sums.area += self.in_flight as f64 * (now - self.now).as_secs_f64();
            self.now = now;
        }
    }

    pub(super) fn moved(&mut self, bytes: u64) {
        self.sums.bytes += bytes;
    }

    /// A request was answered after `secs`.
    pub(super) fn answered(&mut self, secs: f64) {
        self.sums.done += 1;
        self.mean += (secs - self.mean) * MEAN_WEIGHT.max(1.0 / self.sums.done as f64);
        let (_, current, began) = self.least;
        if self.now > began + REMEMBERED {
            self.least = (current, Some(secs), self.now);
        } else {
            self.least.1 = Some(current.map_or(secs, |least| least.min(secs)));
        }
    }

    /// Mean seconds of an answered request, of late; 0 before the first.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// Least seconds of an answered request, of late.
    pub(super) fn base(&self) -> Option<f64> {
        match self.least {
            (Some(a), Some(b), _) => Some(a.min(b)),
            (a, b, _) => a.or(b),
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { at: self.now, sums: self.sums }
    }

    /// Work done since `mark`.
    pub(super) fn since(&self, mark: Mark) -> Span {
        Span {
            secs: (self.now - mark.at).as_secs_f64().max(1e-6),
            done: (self.sums.done - mark.sums.done) as f64,
            bytes: (self.sums.bytes - mark.sums.bytes) as f64,
            area: self.sums.area - mark.sums.area,
        }
    }
}

impl Span {
    /// Mean requests in flight.
    pub(super) fn in_flight(&self) -> f64 {
        self.area / self.secs
    }

    /// Cost of a request and of a byte in this span, given the least time of a request.
    pub(super) fn cost(&self, base: f64) -> Cost {
        if self.done < 1.0 || self.bytes < 1.0 {
            return Cost { request: self.area / self.done.max(1.0), byte: self.area / self.bytes.max(1.0) };
        }
        let took = self.area / self.done;
        let size = self.bytes / self.done;
        // Where all requests take about as long, bytes measure the same more finely, because they count unfinished ones.
        let request = (base * (1.0 - base / took)).max(took * SMALL_BODY / (size + SMALL_BODY)).clamp(0.0, took);
        Cost { request, byte: (took - request) / size }
    }

    /// Both spans' work a second at one price; `self` over `other`.
    pub(super) fn over(&self, other: &Span, base: f64) -> f64 {
        let cost = other.cost(base);
        (cost.work(self) / self.secs) / (cost.work(other) / other.secs).max(1e-12)
    }

    /// Both spans as one.
    pub(super) fn joined(&self, other: &Span, weight: f64) -> Span {
        let mix = |a: f64, b: f64| a * (1.0 - weight) + b * weight;
        // As rates, so that a long one does not outweigh a short one.
        Span {
            secs: 1.0,
            done: mix(self.done / self.secs, other.done / other.secs),
            bytes: mix(self.bytes / self.secs, other.bytes / other.secs),
            area: mix(self.in_flight(), other.in_flight()),
        }
    }
}

/// Time of a request = `request` + `byte` × its size: latency and the speed of a connection. Streams of mixed sizes can
/// then be compared by one number, request-seconds of work done a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    request: f64,
    byte: f64,
}

impl Cost {
    /// Request-seconds that the span's work is worth.
    pub(super) fn work(&self, span: &Span) -> f64 {
        span.done * self.request + span.bytes * self.byte
    }
}
