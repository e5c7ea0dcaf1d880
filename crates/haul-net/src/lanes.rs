//! How many requests each service takes at once, found out as they pass: four lanes for each endpoint, by what their
//! requests do. A lane asks the pure controller in `haul_core::concurrency`, and keeps those that must wait in order.
//!
//! It stands at the request and not in a layer because one listing or upload is many requests (ADR 5).

use crate::processors;
use haul_core::concurrency::{Controller, ControllerState, RequestResult, Settings, Ticket, Wait};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Attempts to connect that are so far apart say nothing of the time between. A request waits 20 s at most before it is sent again,
/// and a minute for its connection.
const UNTRIED: Duration = Duration::from_secs(120);

/// Requests at once to begin with, in each lane. A run of two seconds has no time to creep up, and 32 hide 100 ms of
/// latency on small files; the controller doubles it within a few round trips where that gains.
const START: usize = 32;

/// Requests at once at most, in a lane that carries bodies. s5cmd runs 256 workers by default; beyond that, sockets
/// and file descriptors cost more than any service has been seen to give.
const MAX_DATA: usize = 256;

/// Questions at once at most: a service counts them against the same rate, and they need no bandwidth.
const MAX_META: usize = 128;

/// Answers at once whose bytes wait for a place elsewhere: with those that come, of [`MAX_DATA`] requests at most, they fit into the
/// connections that a store has.
const MAX_AHEAD: usize = 64;

/// Direction of a request, as far as its concurrency is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Its answer carries content.
    Down,
    /// It carries content.
    Up,
    /// The service copies by itself.
    Copy,
    /// Everything else: list, ask, delete, begin and complete.
    Meta,
}

/// Limits that the user fixed; `None` is found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedLimits {
    /// Requests that carry content at once.
    pub data: Option<usize>,
    /// Questions at once (`--checkers`).
    pub meta: Option<usize>,
    /// Connections are few (`--max-connections`).
    pub connections: bool,
}

/// Leave to ask for bytes for which there is no place yet; given back as it is dropped.
#[derive(Debug)]
pub struct ReadAheadPermit {
    _permit: OwnedSemaphorePermit,
}

/// The lanes of every endpoint that a run talks to.
#[derive(Default)]
pub struct EndpointLanes {
    pinned: FixedLimits,
    endpoints: Mutex<BTreeMap<String, Arc<Lanes>>>,
    /// Hosts, with their schemes and ports, that have answered a request.
    answered: RwLock<BTreeMap<String, Option<FailedConnections>>>,
}

/// Connections to a host that failed one after the other, with no answer between them.
#[derive(Clone, Copy)]
struct FailedConnections {
    first: Instant,
    last: Instant,
}

/// The lanes of one endpoint.
pub struct Lanes {
    label: String,
    down: Arc<Lane>,
    up: Arc<Lane>,
    copy: Arc<Lane>,
    meta: Arc<Lane>,
    /// For requests ahead; `None` where connections are few.
    ahead: Option<Arc<Semaphore>>,
}

/// One lane: requests of one direction to one endpoint.
pub struct Lane {
    begun: Instant,
    requests: AtomicU64,
    controller: Mutex<Controller>,
    /// Held by the first of those that wait; the lock is fair, so they start in order.
    turn: tokio::sync::Mutex<()>,
    /// Something ended: the first that waits may look again.
    freed: Notify,
}

/// One request's leave to be under way.
pub struct LanePermit {
    lane: Arc<Lane>,
    ticket: Option<Ticket>,
    /// It waits for us.
    waits: bool,
}

impl EndpointLanes {
    /// No endpoint yet.
    pub fn new(pinned: FixedLimits) -> Self {
        EndpointLanes { pinned, ..EndpointLanes::default() }
    }

    /// The lanes of the endpoint and account of this name, shown to people as `label`; all stores that give the same name
    /// share them.
    pub fn to(&self, endpoint: &str, label: &str) -> Arc<Lanes> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(|e| e.into_inner());
        endpoints.entry(endpoint.to_owned()).or_insert_with(|| Arc::new(Lanes::new(label, self.pinned))).clone()
    }

    /// Notes that this host has answered: what fails from now on may pass.
    pub fn answered(&self, host: &str) {
        let known = self.answered.read().unwrap_or_else(PoisonError::into_inner).get(host).copied();
        if !matches!(known, Some(None)) {
            self.answered.write().unwrap_or_else(PoisonError::into_inner).insert(host.to_owned(), None);
        }
    }

    /// Notes that at this time no connection to this host came about. For how long it has been so, as far as was tried: whoever
    /// hasn't asked for two minutes doesn't know, and begins anew.
    pub fn missed(&self, host: &str, now: Instant) -> Duration {
        let mut hosts = self.answered.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = hosts.get_mut(host) else { return Duration::ZERO };
        let first =
            known.filter(|missed| now.saturating_duration_since(missed.last) < UNTRIED).map_or(now, |m| m.first);
        *known = Some(FailedConnections { first, last: now });
        now.saturating_duration_since(first)
    }

    /// True when this host has answered in this run.
    pub fn has_answered(&self, host: &str) -> bool {
        self.answered.read().unwrap_or_else(PoisonError::into_inner).contains_key(host)
    }

    /// The lanes of every endpoint.
    pub fn all(&self) -> Vec<Arc<Lanes>> {
        self.endpoints.lock().unwrap_or_else(|e| e.into_inner()).values().cloned().collect()
    }
}

impl Lanes {
    /// Lanes as the user pinned them, of an endpoint that people know as `label`.
    pub fn new(label: &str, pinned: FixedLimits) -> Self {
        let lane = |pinned, max| Arc::new(Lane::new(Settings { pinned, start: START, max }));
        Lanes {
            label: label.to_owned(),
            down: lane(pinned.data, MAX_DATA),
            up: lane(pinned.data, MAX_DATA),
            copy: lane(pinned.data, MAX_DATA),
            meta: lane(pinned.meta, MAX_META),
            ahead: (!pinned.connections).then(|| Arc::new(Semaphore::new(MAX_AHEAD))),
        }
    }

    /// Pins the lanes that carry content, or lets them find out anew. For between two jobs: requests under way are
    /// no longer counted.
    pub fn pin(&self, data: Option<usize>) {
        for lane in [&self.down, &self.up, &self.copy] {
            *lane.controller() = Controller::new(Settings { pinned: data, start: START, max: MAX_DATA });
        }
    }

    /// Begins an unused lane with `start` requests at once, for a service known to take few. Changes nothing
    /// if the user set the number.
    pub fn begin_with(&self, direction: Direction, start: usize) {
        let lane = self.lane(direction);
        let mut controller = lane.controller();
        if lane.requests() == 0 && !controller.is_pinned() {
            let max = if direction == Direction::Meta { MAX_META } else { MAX_DATA };
            *controller = Controller::new(Settings { pinned: None, start, max });
        }
    }

    /// Leave to ask for bytes before there is a place for them. `None` where the user said how many requests or connections there
    /// are: each is then for bytes that go on.
    pub fn ahead(&self) -> Option<ReadAheadPermit> {
        let pinned = self.down.controller().is_pinned();
        let permit = self.ahead.clone().filter(|_| !pinned)?.try_acquire_owned().ok()?;
        Some(ReadAheadPermit { _permit: permit })
    }

    /// The endpoint, as people know it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The lane of a direction.
    pub fn lane(&self, direction: Direction) -> &Arc<Lane> {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
            Direction::Copy => &self.copy,
            Direction::Meta => &self.meta,
        }
    }
}

impl Lane {
    fn new(settings: Settings) -> Self {
        Lane {
            begun: Instant::now(),
            requests: AtomicU64::new(0),
            controller: Mutex::new(Controller::new(settings)),
            turn: tokio::sync::Mutex::new(()),
            freed: Notify::new(),
        }
    }

    /// Waits for its turn, first come, first served.
    pub async fn enter(self: &Arc<Self>) -> LanePermit {
        let _turn = self.turn.lock().await;
        loop {
            let wait = match self.controller().start(self.begun.elapsed()) {
                Ok(ticket) => {
                    self.requests.fetch_add(1, Ordering::Relaxed);
                    return LanePermit { lane: self.clone(), ticket: Some(ticket), waits: false };
                }
                Err(wait) => wait,
            };
            // An end between the question and the wait is kept by `notify_one`.
            match wait {
                Wait::Finish => self.freed.notified().await,
                Wait::For(time) => {
                    let _ = tokio::time::timeout(time, self.freed.notified()).await;
                }
            }
        }
    }

    /// Requests that may be under way at once now.
    pub fn limit(&self) -> usize {
        self.controller().limit(self.begun.elapsed())
    }

    /// True when another request would have to wait.
    pub fn is_full(&self) -> bool {
        self.controller().is_full(self.begun.elapsed())
    }

    /// Requests that have entered it so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The lane's state for people.
    pub fn shown(&self) -> ControllerState {
        self.controller().shown(self.begun.elapsed())
    }

    fn controller(&self) -> MutexGuard<'_, Controller> {
        self.controller.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl LanePermit {
    /// So many more bytes of content have come or gone.
    pub fn moved(&self, bytes: u64) {
        self.lane.controller().moved(self.lane.begun.elapsed(), bytes);
    }

    /// The request waits for us, since nobody takes what comes, or goes on. While it waits its place is free for another (unless
    /// the user said how many there are), and its time says nothing of the service.
    pub fn waits(&mut self, waits: bool) {
        if std::mem::replace(&mut self.waits, waits) == waits {
            return;
        }
        let mut controller = self.lane.controller();
        match waits {
            true => controller.waits(self.lane.begun.elapsed()),
            false => controller.goes_on(self.lane.begun.elapsed()),
        }
        drop(controller);
        if waits {
            self.lane.freed.notify_one();
        }
    }

    /// The request has ended.
    pub fn end(mut self, outcome: RequestResult) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: RequestResult) {
        self.waits(false);
        if let Some(ticket) = self.ticket.take() {
            let busy = processors::are_busy();
            let mut controller = self.lane.controller();
            controller.crowded(busy);
            controller.finish(self.lane.begun.elapsed(), ticket, outcome);
            drop(controller);
            self.lane.freed.notify_one();
        }
    }
}

impl Drop for LanePermit {
    /// A request that nobody waits for any more says nothing of the service, but its place is free.
    fn drop(&mut self) {
        self.finish(RequestResult::Failed);
    }
}

impl fmt::Debug for EndpointLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = [&self.down, &self.up, &self.copy, &self.meta].map(|lane| lane.limit());
        write!(f, "Lanes({}: down {}, up {}, copy {}, meta {})", self.label, limits[0], limits[1], limits[2], limits[3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_host_is_missed_counts_from_the_first_attempt_since_its_last_answer() {
        let (roads, start) = (EndpointLanes::default(), Instant::now());
        let missed = |seconds: u64| roads.missed("here:1", start + Duration::from_secs(seconds)).as_secs();
        // It has never answered.
        assert_eq!((missed(0), missed(300)), (0, 0));
        assert!(!roads.has_answered("here:1"));
        roads.answered("here:1");
        assert_eq!((missed(300), missed(310), missed(420), missed(500)), (0, 10, 120, 200));
        roads.answered("here:1");
        assert_eq!((missed(510), missed(520)), (0, 10));
        // Nobody asked in between.
        assert_eq!((missed(640), missed(650)), (0, 10));
        assert!(roads.has_answered("here:1") && !roads.has_answered("there:1"));
    }

    fn pinned(n: usize) -> Lanes {
        Lanes::new("here", FixedLimits { data: Some(n), ..FixedLimits::default() })
    }

    #[tokio::test]
    async fn no_more_than_pinned_and_in_order() {
        let lanes = pinned(2);
        let lane = lanes.lane(Direction::Up).clone();
        let (first, second) = (lane.enter().await, lane.enter().await);
        let waits = |lane: &Arc<Lane>| {
            let lane = lane.clone();
            tokio::spawn(async move { lane.enter().await })
        };
        let third = waits(&lane);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!third.is_finished());
        first.end(RequestResult::Done);
        let third = third.await.unwrap();
        drop((second, third));
        assert_eq!(lane.shown().in_flight, 0);
    }

    #[tokio::test]
    async fn one_that_is_given_up_while_it_waits_holds_up_nobody() {
        let lane = pinned(1).lane(Direction::Down).clone();
        let first = lane.enter().await;
        let given_up = tokio::time::timeout(Duration::from_millis(10), lane.enter()).await;
        assert!(given_up.is_err());
        first.end(RequestResult::Done);
        lane.enter().await.end(RequestResult::Done);
    }

    #[tokio::test]
    async fn one_that_waits_for_us_leaves_its_place_to_another() {
        let lane = Arc::new(Lane::new(Settings { pinned: None, start: 1, max: 1 }));
        let mut first = lane.enter().await;
        first.waits(true);
        let second = lane.enter().await;
        first.waits(false);
        assert_eq!(lane.shown().in_flight, 2);
        let third = tokio::time::timeout(Duration::from_millis(10), lane.enter()).await;
        assert!(third.is_err());
        first.waits(true);
        drop((first, second));
        assert_eq!(lane.shown().in_flight, 0);
        let lane = pinned(1).lane(Direction::Down).clone();
        let mut first = lane.enter().await;
        first.waits(true);
        assert!(tokio::time::timeout(Duration::from_millis(10), lane.enter()).await.is_err());
    }

    #[test]
    fn nothing_is_asked_for_ahead_where_places_are_counted() {
        assert!(pinned(8).ahead().is_none());
        assert!(Lanes::new("here", FixedLimits { connections: true, ..FixedLimits::default() }).ahead().is_none());
        let lanes = Lanes::new("here", FixedLimits::default());
        let ahead: Vec<ReadAheadPermit> = (0..MAX_AHEAD).map_while(|_| lanes.ahead()).collect();
        assert!(ahead.len() == MAX_AHEAD && lanes.ahead().is_none());
        drop(ahead);
        assert!(lanes.ahead().is_some());
    }

    #[tokio::test]
    async fn a_lane_begins_with_few_where_few_are_taken() {
        let lanes = Lanes::new("here", FixedLimits::default());
        lanes.begin_with(Direction::Up, 4);
        assert_eq!((lanes.lane(Direction::Up).limit(), lanes.lane(Direction::Down).limit()), (4, START));
        // The measured limit counts, and so does the user's.
        lanes.lane(Direction::Down).enter().await.end(RequestResult::Done);
        lanes.begin_with(Direction::Down, 4);
        assert_eq!(lanes.lane(Direction::Down).limit(), START);
        let pinned = pinned(16);
        pinned.begin_with(Direction::Up, 4);
        assert_eq!(pinned.lane(Direction::Up).limit(), 16);
    }

    #[tokio::test]
    async fn a_pin_can_be_set_between_jobs() {
        let lanes = pinned(2);
        lanes.pin(Some(5));
        assert_eq!(lanes.lane(Direction::Up).limit(), 5);
        lanes.pin(None);
        assert_eq!(lanes.lane(Direction::Up).limit(), START);
    }

    #[test]
    fn stores_of_one_endpoint_share_its_lanes() {
        let roads = EndpointLanes::default();
        assert!(Arc::ptr_eq(&roads.to("a", "A"), &roads.to("a", "A")));
        assert!(!Arc::ptr_eq(&roads.to("a", "A"), &roads.to("b", "A")));
    }
}
