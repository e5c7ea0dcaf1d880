//! Adaptive concurrency and request rate of one endpoint and direction, found while the work runs.
//! Pure: time is passed in as a [`Duration`] since any fixed start, so that a simulation can test it. It neither waits
//! nor sends; whoever sends asks [`Controller::start`] first. The algorithm and its constants: ADR 6.

mod climb;
mod meter;
mod rate;

use climb::Climb;
use meter::{Mark, Meter, Span};
use rate::{Rate, Throttle};
use std::time::Duration;

/// The user's limits, and where to begin.
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
pub enum RequestResult {
    /// It was answered.
    Done,
    /// The other side asked us to slow down (503 SlowDown, 429, connection refused); `Retry-After` if it named a time.
    Throttled(Option<Duration>),
    /// The connection was closed before an answer began. Now and then that is a fault; often, too many connections.
    Dropped,
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

/// Reason why the concurrency stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The caller never asked for more at once.
    Demand,
    /// Still looking.
    Searching,
    /// More at once brought no more.
    Knee,
    /// This machine's processors can do no more.
    Processors,
    /// The other side throttles: requests a second.
    Rate,
    /// Fixed by the user.
    Pinned,
    /// [`Settings::max`].
    Max,
}

/// State for display.
#[derive(Clone, Copy, Debug)]
pub struct ControllerState {
    /// Requests at once that may be in flight.
    pub limit: usize,
    /// Requests in flight now.
    pub in_flight: usize,
    /// Requests a second, when the other side throttles.
    pub rate: Option<f64>,
    /// Reason for the current limit.
    pub by: Limit,
    /// Bytes of bodies a second, over the last measured interval.
    pub bytes_per_second: f64,
    /// Answered requests a second, over the last measured interval.
    pub requests_per_second: f64,
    /// Least time that an answered request took of late, about the round trip.
    pub base: Option<Duration>,
}

/// Before the first answers, this part of [`Settings::start`] at once …
const FIRST: f64 = 3.0 / 8.0;
/// … then one each so long …
const EACH: Duration = Duration::from_millis(6);
/// … until this part of it is in flight, and no more before as many as began at once are answered: on a store that takes
/// five a second, all the others would be throttled. Found by the simulation.
const UNANSWERED: f64 = 5.0 / 8.0;

/// A lane counts as held back by its rate for so long at least after it was.
const BOUND: Duration = Duration::from_secs(1);

/// More connections than the other side takes: when this part of the last requests was dropped, …
const DROPPED: f64 = 0.12;
/// … which are about as many as the limit, but at least this many.
const DROPPED_OF: usize = 32;

/// Length of the intervals that are measured for [`ControllerState`], at least.
const SHOWN: f64 = 1.0;

/// A request in flight; hand it back to [`Controller::finish`].
#[derive(Debug)]
#[must_use = "a request that never finishes counts as in flight for ever"]
pub struct Ticket {
    /// When it started.
    at: Duration,
    /// How many had started before it.
    number: u64,
}

/// Decides for one endpoint and direction how many requests run at once.
#[derive(Debug)]
pub struct Controller {
    pinned: Option<usize>,
    start: usize,
    max: usize,
    meter: Meter,
    climb: Climb,
    rate: Rate,
    started: u64,
    ended: u64,
    /// Part of the last requests that were dropped.
    dropped: f64,
    /// Whether as many have ended as may start at once, and when the first one started.
    answered: bool,
    began: Option<Duration>,
    /// Nothing starts before this.
    paused: Duration,
    /// Where the interval began that is measured for [`ControllerState`], and the one before it.
    mark: Mark,
    last: Option<Span>,
}

impl Controller {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let max = settings.max.max(1);
        let start = settings.start.clamp(1, max);
        Self {
            pinned: settings.pinned.map(|n| n.max(1)),
            start,
            max,
            meter: Meter::default(),
            climb: Climb::new(start, max),
            rate: Rate::default(),
            started: 0,
            ended: 0,
            dropped: 0.0,
            answered: false,
            began: None,
            paused: Duration::ZERO,
            mark: Mark::default(),
            last: None,
        }
    }

    /// A request wants to start at `now`. `Ok` counts it as in flight.
    ///
    /// # Errors
    /// When to ask again.
    pub fn start(&mut self, now: Duration) -> Result<Ticket, Wait> {
        self.meter.tick(now);
        if now < self.paused {
            return Err(Wait::For(self.paused - now));
        }
        let limit = self.limit(now);
        if self.meter.in_flight >= limit {
            return Err(Wait::Finish);
        }
        let began = *self.began.get_or_insert(now);
        if self.pinned.is_none() && !self.answered {
            self.unanswered(now, began)?;
        }
        // Twice the limit in a round trip is what doubling needs; more at once is a burst that may be throttled.
        let opening = self.meter.base().filter(|_| self.pinned.is_none() && self.climb.searching());
        let opening = opening.map(|base| 2.0 * limit as f64 / base.max(1e-4));
        self.rate.take(now, opening).map_err(Wait::For)?;
        self.meter.in_flight += 1;
        self.started += 1;
        Ok(Ticket { at: now, number: self.started - 1 })
    }

    /// Whether one more may start though the first ones aren't answered yet.
    fn unanswered(&self, now: Duration, began: Duration) -> Result<(), Wait> {
        let part = |of: f64| (self.start as f64 * of).ceil() as u64;
        let (first, most) = (part(FIRST), part(UNANSWERED));
        if self.meter.in_flight as u64 >= most {
            return Err(Wait::Finish);
        }
        let due = began + EACH * u32::try_from((self.started + 1).saturating_sub(first)).unwrap_or(u32::MAX);
        if now < due && self.started < most { Err(Wait::For(due - now)) } else { Ok(()) }
    }

    /// `bytes` of bodies moved on this lane since last said. Called for every frame: it only counts.
    pub fn moved(&mut self, now: Duration, bytes: u64) {
        self.meter.tick(now);
        self.meter.moved(bytes);
    }

    /// Whether this machine's processors, and with them the caller, can do no more: fewer at once are tried then, but not more.
    pub fn crowded(&mut self, crowded: bool) {
        self.climb.crowded(crowded);
    }

    /// A request waits for the caller: until [`Controller::goes_on`] it is not in flight, unless the user said how many are.
    pub fn waits(&mut self, now: Duration) {
        if self.pinned.is_none() {
            self.meter.tick(now);
            self.meter.in_flight = self.meter.in_flight.saturating_sub(1);
        }
    }

    /// A request that waited for the caller resumes.
    pub fn goes_on(&mut self, now: Duration) {
        if self.pinned.is_none() {
            self.meter.tick(now);
            self.meter.in_flight += 1;
        }
    }

    /// The request of `ticket` ended.
    pub fn finish(&mut self, now: Duration, ticket: Ticket, outcome: RequestResult) {
        self.meter.tick(now);
        self.ended += 1;
        let dropped = if outcome == RequestResult::Dropped { 1.0 } else { 0.0 };
        self.dropped += (dropped - self.dropped) / self.limit(now).max(DROPPED_OF) as f64;
        self.answered |= self.ended as f64 >= self.start as f64 * FIRST;
        match outcome {
            RequestResult::Done => {
                self.meter.answered(now.saturating_sub(ticket.at).as_secs_f64());
                self.rate.answered(now);
                if self.pinned.is_none() {
                    self.climb.answered(&self.meter, ticket.number, self.started);
                }
            }
            RequestResult::Throttled(after) => self.throttled(now, &ticket, after),
            RequestResult::Failed | RequestResult::Dropped => {}
        }
        self.meter.in_flight = self.meter.in_flight.saturating_sub(1);
        if outcome == RequestResult::Dropped && self.dropped > DROPPED && self.pinned.is_none() {
            // Keep as many as are in flight, unless the limit is falling altogether.
            self.climb.keep_to(&self.meter, self.meter.in_flight.max(self.start / 8));
        }
        let span = self.meter.since(self.mark);
        if span.secs >= SHOWN {
            (self.mark, self.last) = (self.meter.mark(), Some(span));
        }
        if self.pinned.is_none() {
            let free = !self.rate_bound(now) && self.floor(now) <= self.climb.limit();
            self.climb.check(&self.meter, free);
        }
    }

    fn throttled(&mut self, now: Duration, ticket: &Ticket, after: Option<Duration>) {
        self.paused = self.paused.max(now.saturating_add(after.unwrap_or_default()));
        let rate_bound = self.rate_bound(now);
        let span = self.measured();
        let cut = self.rate.throttled(&Throttle {
            now,
            at: ticket.at,
            number: ticket.number,
            started: self.started,
            in_flight: self.meter.in_flight,
            base: self.meter.base().unwrap_or(0.0),
            answered: span.done / span.secs,
        });
        // Starts that the rate spaced out were too many a second, not too many at once.
        if cut && !rate_bound && self.pinned.is_none() {
            self.climb.cut(&self.meter, self.meter.in_flight);
        }
    }

    /// Whether the rate, not the limit, held starts back of late.
    fn rate_bound(&self, now: Duration) -> bool {
        self.rate.bound(now, BOUND.max(Duration::from_secs_f64(2.0 * self.meter.mean())))
    }

    /// True when no more may start before one has finished.
    #[must_use]
    pub fn is_full(&self, now: Duration) -> bool {
        self.meter.in_flight >= self.limit(now)
    }

    /// True when the user fixed the number.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Requests at once that may be in flight.
    #[must_use]
    pub fn limit(&self, now: Duration) -> usize {
        self.pinned.unwrap_or_else(|| self.climb.limit().max(self.floor(now)))
    }

    /// Requests at once without which a learned rate could not be reached: twice the rate's in-flight mean (Little's
    /// law), at the least time of a request, so that a queue can't raise it.
    fn floor(&self, now: Duration) -> usize {
        match (self.rate.per_second(now), self.meter.base()) {
            (Some(rate), Some(base)) => ((2.0 * rate * base).ceil() as usize + 1).min(self.max),
            _ => 1,
        }
    }

    /// The last measured interval, or the first one so far.
    fn measured(&self) -> Span {
        self.last.unwrap_or_else(|| self.meter.since(self.mark))
    }

    /// The current state.
    #[must_use]
    pub fn shown(&self, now: Duration) -> ControllerState {
        let span = self.measured();
        let by = match self.pinned {
            _ if self.rate_bound(now) => Limit::Rate,
            Some(_) => Limit::Pinned,
            None => self.climb.by(),
        };
        ControllerState {
            limit: self.limit(now),
            in_flight: self.meter.in_flight,
            rate: self.rate.per_second(now),
            by,
            bytes_per_second: span.bytes / span.secs,
            requests_per_second: span.done / span.secs,
            base: self.meter.base().map(Duration::from_secs_f64),
        }
    }
}
