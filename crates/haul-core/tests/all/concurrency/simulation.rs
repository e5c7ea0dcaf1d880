//! A store and its callers on a fake clock: events in order of time, no sleeping, the same for the same seed.
//! The store: latency, a rate for each connection, a total shared evenly by all bodies that flow, a knee beyond which
//! the total falls, a token bucket, a number of connections it takes. Callers start whatever the controller lets them.

use haul_core::concurrency::{Controller, RequestResult, Settings, Ticket, Wait};
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// splitmix64 (Steele, Lea, Flood 2014).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Log-normal with median 1.
    pub fn noise(&mut self, sigma: f64) -> f64 {
        let (a, b) = (self.unit().max(1e-12), self.unit());
        (sigma * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()).exp()
    }
}

/// What the store can do.
#[derive(Clone, Debug)]
pub struct Store {
    /// Seconds until the body flows.
    pub latency: f64,
    /// σ of the logarithm of the latency, and of a body's work.
    pub sigma: f64,
    /// Bytes a second of one connection.
    pub connection: f64,
    /// Bytes a second of all.
    pub total: f64,
    /// Requests in flight beyond which the total falls …
    pub knee: f64,
    /// … to 1 / (1 + this × (in flight / knee − 1)).
    pub falls: f64,
    /// Requests a second and the burst of the bucket.
    pub bucket: Option<(f64, f64)>,
    /// Seconds until a throttled answer, and the `Retry-After` in it.
    pub refusal: f64,
    pub retry_after: Option<f64>,
    /// Requests in flight that it takes.
    pub takes: usize,
    /// Those beyond are dropped, not refused.
    pub drops: bool,
    /// Part of the requests throttled by chance.
    pub chance: f64,
    /// Bytes of a body that sockets take at once.
    pub absorbs: f64,
    /// It runs on the callers' processors, which are the total.
    pub here: bool,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            latency: 0.05,
            sigma: 0.0,
            connection: 1e12,
            total: 1e12,
            knee: 1e9,
            falls: 0.0,
            bucket: None,
            refusal: 0.05,
            retry_after: None,
            takes: usize::MAX,
            drops: false,
            chance: 0.0,
            absorbs: 0.0,
            here: false,
        }
    }
}

pub type Sizes = fn(&mut Random) -> f64;

/// One caller.
pub struct Caller {
    pub controller: Controller,
    pub sizes: Sizes,
    /// How many it offers at once, at a time.
    pub demand: fn(f64) -> usize,
    /// How many it has to do.
    pub todo: u64,
    pub begins: f64,
    random: Random,
    in_flight: usize,
    /// Bodies that are counted as they flow.
    flowing: usize,
    timer: f64,
    pub log: Log,
}

/// Result of a simulation.
#[derive(Default)]
pub struct Log {
    /// Answers: when the request started, when it ended, bytes, whether it was throttled.
    pub ended: Vec<(f64, f64, f64, bool)>,
    /// Limit and requests in flight, every 50 ms.
    pub limits: Vec<(f64, usize, usize)>,
    /// Starts.
    pub started: Vec<f64>,
}

impl Log {
    /// Bytes a second answered between two times.
    pub fn bytes(&self, from: f64, to: f64) -> f64 {
        self.done(from, to).map(|e| e.2).sum::<f64>() / (to - from)
    }

    /// Requests a second answered between two times.
    pub fn requests(&self, from: f64, to: f64) -> f64 {
        self.done(from, to).count() as f64 / (to - from)
    }

    fn done(&self, from: f64, to: f64) -> impl Iterator<Item = &(f64, f64, f64, bool)> {
        self.ended.iter().filter(move |e| !e.3 && e.1 >= from && e.1 < to)
    }

    /// Throttled requests, and all, that started between two times.
    pub fn throttled(&self, from: f64, to: f64) -> (usize, usize) {
        let all = || self.ended.iter().filter(|e| e.0 >= from && e.0 < to);
        (all().filter(|e| e.3).count(), all().count())
    }

    /// When the last one was answered.
    pub fn end(&self) -> f64 {
        self.ended.iter().filter(|e| !e.3).map(|e| e.1).fold(0.0, f64::max)
    }

    /// Mean and greatest limit between two times.
    pub fn limit(&self, from: f64, to: f64) -> (f64, usize) {
        let of: Vec<usize> = self.limits.iter().filter(|l| l.0 >= from && l.0 < to).map(|l| l.1).collect();
        (of.iter().sum::<usize>() as f64 / of.len().max(1) as f64, of.iter().copied().max().unwrap_or(0))
    }
}

impl Caller {
    pub fn new(settings: Settings, sizes: Sizes, seed: u64) -> Self {
        Self {
            controller: Controller::new(settings),
            sizes,
            demand: |_| usize::MAX,
            todo: u64::MAX,
            begins: 0.0,
            random: Random(seed),
            in_flight: 0,
            flowing: 0,
            timer: f64::INFINITY,
            log: Log::default(),
        }
    }
}

/// Times as keys of a heap: microunits, so that they are ordered; a number breaks ties.
type Due = Reverse<(u64, u64)>;

fn key(x: f64) -> u64 {
    (x.max(0.0) * 1e9).ceil() as u64
}

enum Event {
    /// Look again, whoever waits for a time.
    Timer(usize),
    Begins(usize),
    /// The latency of a request is over.
    Flows(Request),
    Ends(Request, RequestResult),
    /// All its bytes are on their way.
    Counted(usize),
    Sample,
    Change(usize),
}

struct Request {
    caller: usize,
    ticket: Ticket,
    at: f64,
    size: f64,
    work: f64,
}

pub type Change = (f64, fn(&mut Store));

/// The store and its callers.
pub struct World {
    pub store: Store,
    pub callers: Vec<Caller>,
    pub changes: Vec<Change>,
    now: f64,
    number: u64,
    /// Events by time, and by bytes that each flowing body has got since the beginning.
    times: BinaryHeap<(Due, usize)>,
    served: BinaryHeap<(Due, usize)>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    got: f64,
    flowing: usize,
    admitted: usize,
    tokens: f64,
    filled: f64,
    random: Random,
}

impl World {
    pub fn new(store: Store, callers: Vec<Caller>, seed: u64) -> Self {
        let tokens = store.bucket.map_or(0.0, |b| b.1);
        Self {
            store,
            callers,
            changes: Vec::new(),
            now: 0.0,
            number: 0,
            times: BinaryHeap::new(),
            served: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            got: 0.0,
            flowing: 0,
            admitted: 0,
            tokens,
            filled: 0.0,
            random: Random(seed ^ 0x5EED),
        }
    }

    fn add(&mut self, due: f64, by_bytes: bool, event: Event) {
        self.number += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[slot] = Some(event);
        let heap = if by_bytes { &mut self.served } else { &mut self.times };
        heap.push((Reverse((key(due), self.number)), slot));
    }

    /// Bytes a second of each flowing body.
    fn speed(&self) -> f64 {
        let s = &self.store;
        let over = (self.admitted as f64 / s.knee - 1.0).max(0.0);
        s.connection.min(s.total / (1.0 + s.falls * over) / self.flowing.max(1) as f64)
    }

    /// Lets time pass until `end`, or until all is done.
    pub fn run(&mut self, end: f64) {
        for i in 0..self.callers.len() {
            self.add(self.callers[i].begins, false, Event::Begins(i));
        }
        for i in 0..self.changes.len() {
            self.add(self.changes[i].0, false, Event::Change(i));
        }
        self.add(0.0, false, Event::Sample);
        while self.now < end && self.callers.iter().any(|c| c.todo > 0 || c.in_flight > 0) {
            let speed = self.speed();
            let timed = self.times.peek().map_or(f64::INFINITY, |e| e.0.0.0 as f64 / 1e9);
            let flowed = self
                .served
                .peek()
                .map_or(f64::INFINITY, |e| self.now + (e.0.0.0 as f64 / 1e9 - self.got).max(0.0) / speed);
            let next = timed.min(flowed).max(self.now);
            let bytes = (next - self.now) * speed;
            self.got += bytes;
            self.now = next;
            for caller in &mut self.callers {
                let moved = (bytes * caller.flowing as f64) as u64;
                if moved > 0 {
                    caller.controller.moved(Duration::from_secs_f64(next), moved);
                }
            }
            let heap = if flowed <= timed { &mut self.served } else { &mut self.times };
            let (_, slot) = heap.pop().expect("something happens");
            self.free.push(slot);
            let event = self.events[slot].take().expect("an event happens once");
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begins(i) => self.offer(i),
            Event::Timer(i) => {
                if self.now + 1e-8 >= self.callers[i].timer {
                    self.callers[i].timer = f64::INFINITY;
                    self.offer(i);
                }
            }
            Event::Flows(r) => {
                if r.size < 1.0 {
                    return self.ended(r, RequestResult::Done);
                }
                self.flowing += 1;
                self.callers[r.caller].flowing += 1;
                let absorbed = self.store.absorbs.min(r.size);
                let now = Duration::from_secs_f64(self.now);
                self.callers[r.caller].controller.moved(now, absorbed as u64);
                // Noise lengthens the work, not what is counted.
                let (work, caller) = (r.work, r.caller);
                let counted = self.got + (r.size - absorbed).min(work);
                let ends = self.got + work;
                self.add(counted, true, Event::Counted(caller));
                self.add(ends, true, Event::Ends(r, RequestResult::Done));
            }
            Event::Counted(i) => self.callers[i].flowing -= 1,
            Event::Ends(r, outcome) => {
                if outcome == RequestResult::Done {
                    self.flowing -= 1;
                }
                self.ended(r, outcome);
            }
            Event::Sample => {
                let now = Duration::from_secs_f64(self.now);
                let busy = self.store.here && self.speed() < self.store.connection;
                for caller in &mut self.callers {
                    caller.controller.crowded(busy);
                    let shown = caller.controller.shown(now);
                    caller.log.limits.push((self.now, shown.limit, shown.in_flight));
                }
                self.add(self.now + 0.05, false, Event::Sample);
                // Demand may have risen.
                (0..self.callers.len()).for_each(|i| {
                    if self.now >= self.callers[i].begins {
                        self.offer(i);
                    }
                });
            }
            Event::Change(i) => self.changes[i].1(&mut self.store),
        }
    }

    fn ended(&mut self, r: Request, outcome: RequestResult) {
        let throttled = outcome != RequestResult::Done;
        if !throttled {
            self.admitted -= 1;
        }
        let caller = &mut self.callers[r.caller];
        caller.in_flight -= 1;
        caller.todo += u64::from(throttled && caller.todo < u64::MAX / 2);
        caller.log.ended.push((r.at, self.now, r.size, throttled));
        caller.controller.finish(Duration::from_secs_f64(self.now), r.ticket, outcome);
        self.offer(r.caller);
    }

    /// Starts what may start.
    fn offer(&mut self, i: usize) {
        loop {
            let caller = &mut self.callers[i];
            if caller.todo == 0 || caller.in_flight >= (caller.demand)(self.now) {
                return;
            }
            match caller.controller.start(Duration::from_secs_f64(self.now)) {
                Ok(ticket) => {
                    caller.todo -= 1;
                    caller.in_flight += 1;
                    caller.log.started.push(self.now);
                    let size = (caller.sizes)(&mut caller.random);
                    self.arrives(Request { caller: i, ticket, at: self.now, size, work: size });
                }
                Err(Wait::Finish) => return,
                Err(Wait::For(time)) => {
                    // As a runtime's timer rings: on the next whole millisecond.
                    let due = ((self.now + time.as_secs_f64()) * 1e3).ceil() / 1e3 + 1e-9;
                    if due < caller.timer {
                        caller.timer = due;
                        self.add(due, false, Event::Timer(i));
                    }
                    return;
                }
            }
        }
    }

    fn arrives(&mut self, mut r: Request) {
        let s = &self.store;
        let mut refused = self.admitted >= s.takes || self.random.unit() < s.chance;
        if let Some((rate, burst)) = s.bucket {
            self.tokens = (self.tokens + (self.now - self.filled) * rate).min(burst);
            self.filled = self.now;
            if self.tokens >= 1.0 {
                self.tokens -= 1.0;
            } else {
                refused = true;
            }
        }
        if refused {
            let outcome = match s.drops {
                true => RequestResult::Dropped,
                false => RequestResult::Throttled(s.retry_after.map(Duration::from_secs_f64)),
            };
            let due = self.now + s.refusal;
            return self.add(due, false, Event::Ends(r, outcome));
        }
        let latency = s.latency * self.random.noise(s.sigma);
        r.work = r.size * self.random.noise(s.sigma);
        self.admitted += 1;
        self.add(self.now + latency, false, Event::Flows(r));
    }
}
