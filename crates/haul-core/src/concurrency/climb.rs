//! Number of concurrent requests: doubles at the start while more of them raise goodput, then holds, and now and then tries a few more
//! or fewer for one window. It measures goodput only; the caller reports throttling ([`Climb::cut`]) and a busy
//! processor ([`Climb::crowded`]).

use super::{
    Limit,
    meter::{Mark, Meter, Span},
};
use std::time::Duration;

/// At the start, this much more in flight …
const MORE: f64 = 1.2;
/// … must raise goodput by this factor …
const GROWTH: f64 = 1.1;
/// … or it is a strike; this many in a row end the doubling (BBR's startup ends after three rounds below 1.25).
const STRIKES: u8 = 2;
/// Then the fewest requests are kept whose goodput was this part of the best.
const AS_GOOD: f64 = 0.95;
/// Rounds of the start that are remembered: doubling from 1 reaches 65,536.
const ROUNDS: usize = 16;

/// Bodies this long are judged by the bytes that flow, before they end …
const LONG: f64 = 4.0 * FRAME;
/// … after this many seconds, and this many bytes for each request in flight.
const STREAMED: f64 = 0.25;
const FRAME: f64 = 1_048_576.0;
/// Mean size of a body from which bytes count at the start.
const SIZED: f64 = 65536.0;

/// A window counts when this part of the limit was in flight on the average: else the caller had no more to do.
const LIMITED: f64 = 0.85;
/// Windows last three mean requests, within these bounds in seconds (before they are lengthened for noise).
const WINDOW: (f64, f64) = (0.02, 4.0);
/// Answers in a window, unless it grows to four times its length. Found by the simulation.
const ANSWERS: f64 = 24.0;
/// Longest wait after a change until its effect is measured, seconds.
const SETTLED: f64 = 2.0;
/// Noise above which windows are lengthened, and below which shortened.
const NOISE: (f64, f64) = (0.04, 0.015);
/// Longest lengthening.
const LONGEST: f64 = 8.0;
/// Longest window when lengthened, seconds.
const LENGTHENED: f64 = 2.5;
/// Window and wait for an effect where bodies are [`LONG`], seconds.
const STREAM_WINDOW: f64 = 1.0;
const STREAM_SETTLED: f64 = 0.4;

/// Steps upwards, the next one as long as the last one paid.
const UP: [f64; 3] = [1.25, 1.5, 2.0];
/// Steps downwards.
const DOWN: [f64; 3] = [0.8, 0.7, 0.6];
/// Part of a step up that must come back as goodput: 3.5 % for 25 %.
const PAYS: f64 = 0.14;
/// The gain that a step needs when requests take [`SLOWED`] times as long as they once did: then it is taken from others.
const PAYS_SLOWED: f64 = 0.7;
/// From and to which slowing the price of a step rises; beyond, none is tried.
const SLOWED: (f64, f64) = (1.5, 2.5);
/// Part of a step down that may be lost: 2.5 % for 20 %.
const FREE: f64 = 0.125;
/// Part of a step down that may be lost when requests are slowed that much: fewer requests do, whatever one noisy window says, and of two
/// callers that share a link the one with more yields.
const FREE_SLOWED: f64 = 0.4;
/// The most that noise may excuse: less than what the shortest step costs below the knee.
const NOISE_FREE: f64 = 0.14;
/// After this part of a window a step down is given up that loses this much more than any may.
const EARLY: (f64, f64) = (0.3, 1.5);
/// From and to which slowing it rises.
const QUEUED: (f64, f64) = (2.5, 4.5);
/// Most seconds between two tries upwards or downwards, unless four windows are longer.
const PAUSES: (f64, f64) = (4.0, 20.0);
/// A window this far off what went before, twice running, is a change of conditions.
const CHANGED: f64 = 0.15;

/// The search.
#[derive(Debug)]
pub(super) struct Climb {
    limit: usize,
    max: usize,
    phase: Phase,
    /// Where the round or window began.
    mark: Mark,
    /// Goodput at the limit, while it is held.
    held: Option<Span>,
    /// The span in which requests went fastest.
    fastest: Option<Span>,
    trial: Option<Trial>,
    /// Steps that paid in a row.
    streak: usize,
    up: Turn,
    down: Turn,
    /// Mean relative difference of windows that should be equal.
    noise: f64,
    lengthened: f64,
    /// Windows in a row that were far off.
    off: u8,
    /// Not above this many, until then: it was throttled.
    lid: Option<(usize, Duration)>,
    /// Whether the limit held the caller back in the last round or window.
    limited: bool,
    /// Whether bodies are [`LONG`].
    streams: bool,
    /// Whether this machine's processors are the limit: then more at once only makes all of them slower.
    crowded: bool,
}

#[derive(Debug)]
enum Phase {
    /// Doubling. The round ends when this many were answered, one of them from this number on.
    Start { first: u64, answers: u64, strikes: u8, rounds: Vec<Span> },
    /// The limit was changed; nothing is measured before then.
    Settle(Duration),
    /// A window.
    Measure,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    from: usize,
    /// How much more (or fewer) than before are in flight.
    step: f64,
}

/// When to try next in one direction.
#[derive(Clone, Copy, Debug)]
struct Turn {
    due: Duration,
    pause: f64,
}

impl Turn {
    fn lost(&mut self, now: Duration, window: f64, most: f64) {
        self.pause = (self.pause * 2.0).clamp(4.0 * window, most.max(4.0 * window));
        self.due = now + Duration::from_secs_f64(self.pause);
    }

    fn now(&mut self) {
        *self = Self { due: Duration::ZERO, pause: 0.0 };
    }
}

impl Climb {
    pub(super) fn new(start: usize, max: usize) -> Self {
        let at_once = Turn { due: Duration::ZERO, pause: 0.0 };
        Self {
            limit: start,
            max,
            phase: Phase::Start { first: 0, answers: start as u64, strikes: 0, rounds: Vec::with_capacity(ROUNDS) },
            mark: Mark::default(),
            held: None,
            fastest: None,
            trial: None,
            streak: 0,
            up: at_once,
            down: at_once,
            noise: 0.0,
            lengthened: 1.0,
            off: 0,
            lid: None,
            limited: true,
            streams: false,
            crowded: false,
        }
    }

    /// Whether this machine's processors are the limit now.
    pub(super) fn crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn searching(&self) -> bool {
        matches!(self.phase, Phase::Start { .. })
    }

    pub(super) fn by(&self) -> Limit {
        match self.phase {
            _ if !self.limited => Limit::Demand,
            _ if self.crowded => Limit::Processors,
            Phase::Start { .. } => Limit::Searching,
            _ if self.limit >= self.max => Limit::Max,
            _ if self.streak > 0 => Limit::Searching,
            _ => Limit::Knee,
        }
    }

    /// The request of this number was answered; `started` have started so far. Its place is still counted in flight.
    pub(super) fn answered(&mut self, meter: &Meter, number: u64, started: u64) {
        let limit = self.limit;
        let Phase::Start { first, answers, strikes, rounds } = &mut self.phase else { return };
        // One more for each that is answered doubles the limit in a round trip, as TCP does (RFC 5681), and like TCP
        // only if at least half of it is in use.
        if meter.in_flight * 2 > limit && limit < self.max && !self.crowded {
            self.limit += 1;
        }
        let span = meter.since(self.mark);
        let streamed = span.secs >= STREAMED && span.bytes >= limit as f64 * FRAME;
        if !streamed && (number < *first || span.done < *answers as f64) {
            return;
        }
        let requested = *answers as f64;
        (*first, *answers) = (started, self.limit as u64);
        self.mark = meter.mark();
        self.streams = span.bytes >= LONG * span.done;
        self.limited = span.in_flight() >= 0.6 * requested;
        if !self.limited {
            return;
        }
        let base = meter.base().unwrap_or(0.0);
        self.fastest.get_or_insert(span);
        let best = rounds.iter().copied().reduce(|a, b| if growth(&a, &b, base) >= GROWTH { b } else { a });
        if let Some(best) = best
            && span.in_flight() >= MORE * best.in_flight()
        {
            // In a queue, more of it is only gained from others.
            let queued = span.area > QUEUED.0 * rounds[0].cost(base).work(&span);
            let least = if queued { 1.0 + 0.6 * (span.in_flight() / best.in_flight() - 1.0) } else { GROWTH };
            *strikes = if growth(&best, &span, base) < least { *strikes + 1 } else { 0 };
        }
        match rounds.last_mut() {
            // About as many as before: a better measurement of the same point.
            Some(last) if span.in_flight() < MORE * last.in_flight() => {
                if growth(last, &span, base) > 1.0 {
                    *last = span;
                }
            }
            _ => rounds.push(span),
        }
        let top = self.limit >= self.max && requested >= self.max as f64;
        if *strikes < STRIKES && !top && !self.crowded && rounds.len() < ROUNDS {
            return;
        }
        let most = rounds.iter().copied().reduce(|a, b| if growth(&a, &b, base) > 1.0 { b } else { a });
        let enough = rounds
            .iter()
            .filter(|r| most.as_ref().is_none_or(|m| growth(m, r, base) >= AS_GOOD))
            .map(|r| r.in_flight().ceil() as usize)
            .min();
        let limit = enough.unwrap_or(limit).clamp(1, self.limit);
        self.set(limit, meter);
        let window = self.window(meter);
        self.down.due = self.mark.at + Duration::from_secs_f64(1.5 * window);
        self.up.due = self.mark.at + Duration::from_secs_f64(6.0 * window);
    }

    /// Requests were throttled with the limit in use: half of it is enough for now.
    pub(super) fn cut(&mut self, meter: &Meter, in_flight: usize) {
        let had = self.trial.map_or(self.limit, |t| t.from.max(self.limit)).min(in_flight.max(2));
        let now = meter.mark().at;
        self.lid = Some((had * 9 / 10, now + Duration::from_secs(10)));
        (self.trial, self.held, self.streak) = (None, None, 0);
        self.set((had / 2).max(1), meter);
        let window = self.window(meter);
        self.up.now();
        self.down.lost(now, window, PAUSES.1);
    }

    /// No more than `most` are taken: that many are enough for now.
    pub(super) fn keep_to(&mut self, meter: &Meter, most: usize) {
        if most >= self.limit {
            return;
        }
        // One was perhaps between two requests.
        self.lid = Some((most + 1, meter.mark().at + Duration::from_secs(10)));
        (self.trial, self.held, self.streak) = (None, None, 0);
        self.set(most, meter);
    }

    /// Changes the limit and waits for the effect.
    fn set(&mut self, limit: usize, meter: &Meter) {
        self.limit = limit.clamp(1, self.max);
        self.mark = meter.mark();
        let most = if self.streams { STREAM_SETTLED } else { SETTLED };
        self.phase = Phase::Settle(self.mark.at + Duration::from_secs_f64(meter.mean().clamp(WINDOW.0, most)));
    }

    /// Seconds of a window.
    fn window(&self, meter: &Meter) -> f64 {
        let most = if self.streams { STREAM_WINDOW } else { WINDOW.1 };
        let plain = (3.0 * meter.mean()).clamp(WINDOW.0, most);
        (plain * self.lengthened).min(LENGTHENED.max(plain))
    }

    /// Goes on if a wait or a window is over. `free` is whether nothing but the limit held starts back.
    pub(super) fn check(&mut self, meter: &Meter, free: bool) {
        let now = meter.mark().at;
        match self.phase {
            Phase::Start { .. } => {}
            Phase::Settle(until) => {
                // Requests above a lowered limit have to finish first.
                if now >= until && (meter.in_flight <= self.limit || self.trial.is_none()) {
                    self.mark = meter.mark();
                    self.phase = Phase::Measure;
                }
            }
            Phase::Measure => {
                let span = meter.since(self.mark);
                let window = self.window(meter);
                let enough = span.done >= ANSWERS * self.lengthened || self.streams;
                if span.secs < window || (!enough && span.secs < 4.0 * window) {
                    return self.give_up_early(meter, &span, window);
                }
                self.mark = meter.mark();
                self.streams = span.bytes >= LONG * span.done;
                self.limited = free && span.in_flight() >= LIMITED * self.limit as f64;
                if self.limited {
                    self.judge(meter, &span);
                } else if let Some(trial) = self.trial.take() {
                    self.streak = 0;
                    self.set(trial.from, meter);
                }
            }
        }
    }

    /// Ends a step down before its window is over where bodies stream and it costs far too much: that is plain early.
    fn give_up_early(&mut self, meter: &Meter, span: &Span, window: f64) {
        let (Some(trial), Some(held)) = (self.trial, self.held) else { return };
        if trial.step > 1.0 || !self.streams || span.secs < EARLY.0 * window {
            return;
        }
        let allowed = FREE_SLOWED * (trial.step - 1.0);
        let loss = span.over(&held, meter.base().unwrap_or(0.0)) - 1.0;
        if loss < (EARLY.1 * allowed).min(-4.0 * self.noise) {
            self.trial = None;
            self.mark = meter.mark();
            self.decide(meter, &trial, false, span, &held);
        }
    }

    /// A window in which the limit was in use.
    fn judge(&mut self, meter: &Meter, span: &Span) {
        let base = meter.base().unwrap_or(0.0);
        let slowed = self.slowed(span, base);
        match (self.trial.take(), self.held) {
            (Some(trial), Some(held)) => {
                let gain = span.over(&held, base) - 1.0;
                let step = trial.step - 1.0;
                let keep = if step > 0.0 {
                    gain >= (pays(slowed) * step).max(1.2 * self.noise)
                } else {
                    // Requests that take longer than they could wait for something: fewer do, whatever one noisy
                    // window says.
                    let noise = if slowed > SLOWED.0 { self.noise.min(NOISE_FREE) } else { 0.0 };
                    gain >= (free(slowed) * step).min(-noise)
                };
                self.decide(meter, &trial, keep, span, &held);
            }
            (_, None) => self.held = Some(*span),
            (None, Some(held)) => {
                let change = span.over(&held, base) - 1.0;
                let known = self.noise;
                self.noise += (change.abs().min(2.0 * CHANGED) - self.noise) * 0.25;
                if change.abs() > CHANGED.max(4.0 * known) {
                    self.off += if change.abs() > 2.0 * CHANGED.max(4.0 * known) { 2 } else { 1 };
                    if self.off >= 2 {
                        self.changed();
                    }
                    return;
                }
                self.off = 0;
                self.held = Some(held.joined(span, 0.3));
                self.next(meter);
            }
        }
    }

    /// How many times as long as once, at its fastest, the same work takes now.
    fn slowed(&mut self, span: &Span, base: f64) -> f64 {
        let Some(fastest) = &self.fastest else {
            self.fastest = Some(*span);
            return 1.0;
        };
        let slowed = span.area / fastest.cost(base).work(span).max(1e-12);
        if slowed < 1.0 {
            self.fastest = Some(*span);
        }
        slowed
    }

    fn decide(&mut self, meter: &Meter, trial: &Trial, keep: bool, span: &Span, held: &Span) {
        let base = meter.base().unwrap_or(0.0);
        let (now, window) = (meter.mark().at, self.window(meter));
        // Two steps in a row that pay in full show that nothing waits in a queue: this is the current speed.
        let gain = span.over(held, base) - 1.0;
        let in_full = trial.step > 1.0 && gain >= PAYS_SLOWED * (trial.step - 1.0) && gain > 3.0 * self.noise;
        if in_full && self.streak > 0 {
            self.fastest = Some(*span);
        }
        let turn = if trial.step > 1.0 { &mut self.up } else { &mut self.down };
        if keep {
            turn.now();
            self.held = Some(*span);
            self.streak += 1;
            let step = steps(trial.step)[self.streak.min(2)];
            if !self.attempt(meter, step) {
                self.streak = 0;
            }
            return;
        }
        turn.lost(now, window, if trial.step > 1.0 { PAUSES.0 } else { PAUSES.1 });
        self.streak = 0;
        self.set(trial.from, meter);
    }

    /// Conditions changed: earlier measurements don't count any more, and both directions are worth a try.
    fn changed(&mut self) {
        (self.held, self.off) = (None, 0);
        self.lengthened = 1.0;
        self.noise = self.noise.min(NOISE.0);
        self.up.now();
        self.down.now();
    }

    /// After a window of holding: tries a step if it's time.
    fn next(&mut self, meter: &Meter) {
        let now = meter.mark().at;
        self.lengthened = if self.noise > NOISE.0 {
            (self.lengthened * 2.0).min(LONGEST)
        } else if self.noise < NOISE.1 {
            (self.lengthened / 2.0).max(1.0)
        } else {
            self.lengthened
        };
        // Whichever has waited longer; upwards first after a change.
        let up = now >= self.up.due;
        if up && self.up.due <= self.down.due && self.attempt(meter, UP[0]) {
            return;
        }
        // Where processors are busy, fewer cost nothing for a long way.
        let down = DOWN[if self.crowded { 2 } else { 0 }];
        if now >= self.down.due && self.attempt(meter, down) {
            return;
        }
        if up {
            self.attempt(meter, UP[0]);
        }
    }

    /// Sets the limit for a trial; not if there is no room for it.
    fn attempt(&mut self, meter: &Meter, step: f64) -> bool {
        let now = meter.mark().at;
        let most = match self.lid {
            Some((lid, until)) if now < until => lid.min(self.max),
            _ => self.max,
        };
        let from = self.limit;
        let wanted = from as f64 * step;
        let limit = if step > 1.0 { (wanted.ceil() as usize).min(most) } else { (wanted.floor() as usize).max(1) };
        if (step > 1.0) != (limit > from) || limit == from || (step > 1.0 && self.crowded) {
            return false;
        }
        self.trial = Some(Trial { from, step: limit as f64 / from as f64 });
        self.set(limit, meter);
        true
    }
}

/// Steps in the direction of `step`.
fn steps(step: f64) -> [f64; 3] {
    if step > 1.0 { UP } else { DOWN }
}

/// Part of a step up that must come back when requests are slowed by this factor.
fn pays(slowed: f64) -> f64 {
    let part = ((slowed - SLOWED.0) / (SLOWED.1 - SLOWED.0)).clamp(0.0, 1.0);
    PAYS + part * (PAYS_SLOWED - PAYS)
}

/// Part of a step down that may be lost when requests are slowed by this factor.
fn free(slowed: f64) -> f64 {
    let part = ((slowed - QUEUED.0) / (QUEUED.1 - QUEUED.0)).clamp(0.0, 1.0);
    FREE + part * (FREE_SLOWED - FREE)
}

/// Goodput of `new` over that of `old` while the limit grows: nothing is settled then. Bodies of the next round are
/// already on their way, and small requests overtake long ones, so answers and bytes must both have grown, as far as
/// there are enough of them to count.
fn growth(old: &Span, new: &Span, base: f64) -> f64 {
    let work = new.over(old, base);
    let mut least = work;
    if old.done >= 8.0 && new.done >= 8.0 {
        least = least.min((new.done / new.secs) / (old.done / old.secs));
    }
    if new.bytes >= SIZED * new.done && old.bytes > 0.0 {
        least = least.min((new.bytes / new.secs) / (old.bytes / old.secs));
    }
    least
}
