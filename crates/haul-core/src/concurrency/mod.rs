//! How many requests at once, and how many a second: found out while the work goes on, for one endpoint and direction.
//! Pure: time is handed in as a [`Duration`] since any fixed start, so that a simulation can test it. It neither waits
//! nor sends; whoever sends asks [`Controller::start`] first. The algorithm and its constants: ADR 6.

use std::time::Duration;

/// What the user fixed and where to begin.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Exactly this many requests at once: nothing is found out, throttling only delays (`--transfers` and the like).
    pub pinned: Option<usize>,
    /// Requests at once to begin with.
    pub start: usize,
    /// Never more than this at once.
    pub max: usize,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Done,
    /// The other side asked us to slow down (503 SlowDown, 429, connection refused); `Retry-After` if it named a time.
    Throttled(Option<Duration>),
    /// It failed or was given up in a way that says nothing of load.
    Failed,
}

/// When a request may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// When another one finishes. The limit may have risen by then: ask for as many as wait, until one is refused.
    Finish,
    /// Not before this long (the rate is limited, or `Retry-After`).
    For(Duration),
}

/// What holds the concurrency where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The caller never asked for more at once.
    Demand,
    /// Still looking.
    Searching,
    /// More at once brought no more.
    Knee,
    /// The other side throttles: requests a second.
    Rate,
    /// Fixed by the user.
    Pinned,
    /// [`Settings::max`].
    Max,
}

/// What a person may see of it.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Requests at once that may be in flight.
    pub limit: usize,
    /// Requests in flight now.
    pub in_flight: usize,
    /// Requests a second, when the other side throttles.
    pub rate: Option<f64>,
    /// What holds it there.
    pub by: Limit,
    /// Bytes of bodies a second, over the last measured interval.
    pub bytes_per_second: f64,
    /// Answered requests a second, over the last measured interval.
    pub requests_per_second: f64,
    /// Least time that an answered request took of late, about the round trip.
    pub base: Option<Duration>,
}

/// A request in flight; hand it back to [`Controller::finish`].
#[derive(Debug)]
#[must_use = "a request that never finishes counts as in flight for ever"]
pub struct Ticket {
    /// When it started.
    at: Duration,
}

/// Decides for one endpoint and direction how many requests run at once.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    limit: usize,
    in_flight: usize,
    /// Nothing starts before this.
    paused: Duration,
    /// Throttled requests that started before this don't halve again.
    cut: Duration,
    base: Option<Duration>,
    since: Duration,
    bytes: u64,
    done: u64,
}

impl Controller {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let limit = settings.pinned.unwrap_or(settings.start.min(settings.max)).max(1);
        Self {
            settings,
            limit,
            in_flight: 0,
            paused: Duration::ZERO,
            cut: Duration::ZERO,
            base: None,
            since: Duration::ZERO,
            bytes: 0,
            done: 0,
        }
    }

    /// A request wants to start at `now`. `Ok` counts it as in flight.
    ///
    /// # Errors
    /// When to ask again.
    pub fn start(&mut self, now: Duration) -> Result<Ticket, Wait> {
        if now < self.paused {
            return Err(Wait::For(self.paused - now));
        }
        if self.in_flight >= self.limit {
            return Err(Wait::Finish);
        }
        self.in_flight += 1;
        Ok(Ticket { at: now })
    }

    /// `bytes` of bodies moved on this lane since last said. Called for every frame: it only counts.
    pub fn moved(&mut self, _now: Duration, bytes: u64) {
        self.bytes += bytes;
    }

    /// The request of `ticket` ended.
    pub fn finish(&mut self, now: Duration, ticket: Ticket, outcome: Outcome) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match outcome {
            Outcome::Done => {
                let took = now.saturating_sub(ticket.at);
                self.base = Some(self.base.map_or(took, |b| b.min(took)));
                self.done += 1;
            }
            Outcome::Throttled(after) => {
                self.paused = self.paused.max(now + after.unwrap_or_default());
                if ticket.at >= self.cut && self.settings.pinned.is_none() {
                    self.limit = (self.limit / 2).max(1);
                    self.cut = now;
                }
            }
            Outcome::Failed => {}
        }
    }

    /// What it has come to.
    #[must_use]
    pub fn shown(&self, now: Duration) -> Shown {
        let secs = now.saturating_sub(self.since).as_secs_f64().max(1e-3);
        Shown {
            limit: self.limit,
            in_flight: self.in_flight,
            rate: None,
            by: if self.settings.pinned.is_some() { Limit::Pinned } else { Limit::Searching },
            bytes_per_second: self.bytes as f64 / secs,
            requests_per_second: self.done as f64 / secs,
            base: self.base,
        }
    }
}
