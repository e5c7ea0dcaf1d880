//! Requests per second: learned from throttling alone, after the cubic limiter of the AWS SDKs' adaptive retry
//! mode, but with the limit computed from accepted requests and a far gentler search above it (ADR 6).

use std::time::Duration;

/// Part of the rate kept at least when throttled: β of CUBIC (RFC 9438) and of the AWS SDKs' limiter.
const BETA: f64 = 0.7;

/// Part of the answers that are throttled from which the rate is far above the limit, and the part of it then kept at
/// least. Found by the simulation.
const FLOODED: f64 = 0.1;
const BETA_FLOODED: f64 = 0.5;

/// Share of the accepted rate to continue with: hold a little under the limit. Found by the simulation.
const UNDER: f64 = 0.97;

/// Distance of the cubic's flat middle below and above the ceiling. Found by the simulation.
const SWING: f64 = 0.05;

/// Requests per second gained each second, whatever the rate is: of two that share a limit, this helps the slower one more
/// (the linear part of CUBIC, RFC 9438 section 4.3). Found by the simulation.
const LINEAR: f64 = 0.025;

/// Part of the rate kept where the limit was hit before the rate was back at the ceiling: someone else uses it too, or it
/// was lowered. Found by the simulation.
const EARLY: f64 = 0.88;

/// Throttled answers in a hundred that are let pass once the lane is known: a server that fails one request in a hundred
/// by chance has no limit to be found.
const TOLERATED: f64 = 0.025;

/// Requests a second that every store takes. With fewer, one that refuses all of them because it is down would be asked so rarely
/// that the tries of one request last minutes.
const LEAST: f64 = 1.0;

/// Interval over which throttled answers are compared with all. Found by the simulation.
const RECENT: Duration = Duration::from_secs(4);

/// After this long without a throttled answer a limit that no longer binds is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// A timer is late by a millisecond or a few: what could have started meanwhile starts together.
const TIMER: f64 = 0.005;

/// Paces starts.
#[derive(Debug, Default)]
pub(super) struct Rate {
    learned: Option<Learned>,
    /// Starts allowed now; negative after a cut.
    credit: f64,
    at: Duration,
    recent: Recent,
    throttled: u64,
}

/// The limit, as far as it is known.
#[derive(Debug)]
struct Learned {
    /// Requests a second that the other side takes.
    ceiling: f64,
    /// Seconds from a cut until the rate is back at the ceiling.
    flat: f64,
    /// When the rate was cut, moved on by the time in which it did not bind.
    since: Duration,
    /// Requests from this one on started after the cut.
    first: u64,
    /// The latest-started request that was throttled by the last cut's limit.
    anchor: Anchor,
    last_throttle: Duration,
    last_bound: Duration,
}

/// A moment at which the other side had no room: time, requests started before it, and how many of them were throttled.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    at: Duration,
    number: u64,
    throttled: u64,
}

/// Answers of the current and the last [`RECENT`]: all, throttled.
#[derive(Debug, Default)]
struct Recent {
    began: Duration,
    now: (f64, f64),
    before: (f64, f64),
}

impl Recent {
    fn note(&mut self, now: Duration, throttled: bool) {
        if now >= self.began + RECENT {
            self.before = if now < self.began + 2 * RECENT { self.now } else { (0.0, 0.0) };
            (self.now, self.began) = ((0.0, 0.0), now);
        }
        self.now.0 += 1.0;
        self.now.1 += f64::from(u8::from(throttled));
    }

    /// Part of the answers that was throttled, and the others a second.
    fn throttled_and_answered(&self, now: Duration) -> (f64, f64) {
        let (all, throttled) = (self.now.0 + self.before.0, self.now.1 + self.before.1);
        let before = if self.before.0 > 0.0 { RECENT } else { Duration::ZERO };
        let secs = (now.saturating_sub(self.began) + before).as_secs_f64().max(1.0);
        (throttled / all.max(1.0), (all - throttled) / secs)
    }

    fn more_than_tolerated(&self) -> bool {
        let (all, throttled) = (self.now.0 + self.before.0, self.now.1 + self.before.1);
        let by_chance = if all > 100.0 { 2.0 } else { 0.0 };
        throttled > TOLERATED * all + by_chance
    }
}

/// A throttled request, and what the lane was doing.
pub(super) struct Throttle {
    pub(super) now: Duration,
    /// When the request started, and how many had before it.
    pub(super) at: Duration,
    pub(super) number: u64,
    /// How many have started by now.
    pub(super) started: u64,
    pub(super) in_flight: usize,
    /// Least seconds of a request; 0 if none was answered.
    pub(super) base: f64,
    /// Requests a second answered so far, of late.
    pub(super) answered: f64,
}

impl Rate {
    /// One may start at `now`, or after the time returned. `opening` paces as long as nothing is learned.
    pub(super) fn take(&mut self, now: Duration, opening: Option<f64>) -> Result<(), Duration> {
        let Some(rate) = self.per_second(now).or(opening) else { return Ok(()) };
        let most = (rate * TIMER).max(1.0);
        let earned = now.saturating_sub(self.at).as_secs_f64() * rate;
        self.at = self.at.max(now);
        let wasted = self.credit + earned - most;
        self.credit = (self.credit + earned).min(most);
        if wasted > 0.0 && self.learned.as_ref().is_some_and(|l| now > l.last_throttle + FORGOTTEN) {
            self.learned = None;
        } else if let Some(learned) = &mut self.learned {
            if wasted > 0.0 {
                learned.since += Duration::from_secs_f64(wasted / rate);
            } else {
                learned.last_bound = now;
            }
        }
        // A timer may ring a hair early by rounding.
        if self.credit < 1.0 - 1e-6 {
            return Err(Duration::from_secs_f64((1.0 - self.credit) / rate));
        }
        self.credit -= 1.0;
        Ok(())
    }

    /// Requests a second allowed at `now`, once throttled.
    pub(super) fn per_second(&self, now: Duration) -> Option<f64> {
        let learned = self.learned.as_ref()?;
        let secs = now.saturating_sub(learned.since).as_secs_f64();
        let x = secs / learned.flat - 1.0;
        Some(learned.ceiling * (1.0 + SWING * x * x * x) + LINEAR * secs)
    }

    /// Whether the rate held starts back during the last `within`.
    pub(super) fn bound(&self, now: Duration, within: Duration) -> bool {
        self.learned.as_ref().is_some_and(|l| now.saturating_sub(l.last_bound) <= within)
    }

    pub(super) fn answered(&mut self, now: Duration) {
        self.recent.note(now, false);
    }

    /// A request was throttled. Whether the rate was cut for it: once for all that were in flight then.
    pub(super) fn throttled(&mut self, t: &Throttle) -> bool {
        self.recent.note(t.now, true);
        self.throttled += 1;
        let here = Anchor { at: t.at, number: t.number, throttled: self.throttled };
        if let Some(learned) = &mut self.learned {
            learned.last_throttle = t.now;
            if t.number < learned.first {
                if t.at >= learned.anchor.at {
                    learned.anchor = here;
                }
                return false;
            }
        }
        if !self.recent.more_than_tolerated() {
            return false;
        }
        let (ceiling, rate, flat) = match &self.learned {
            Some(learned) => self.again(learned, &here, t.now),
            // The first throttling: nothing can be computed yet. All requests in flight that weren't throttled were accepted within
            // a second or so, and half of the answers per second is surely not too little for long.
            None => {
                let rate = (0.5 * t.in_flight as f64 / t.base.max(1.0)).max(0.5 * t.answered).max(LEAST);
                (rate, rate, (3.0 * t.base).max(1.0))
            }
        };
        // Two starts are left out, so that a bucket that is empty now isn't emptied again by chance.
        self.credit = self.credit.min(0.0) - 2.0;
        self.at = t.now;
        // Position on the cubic at which it continues with `rate`.
        let behind = ((1.0 - rate / ceiling) / SWING).cbrt();
        // The effect isn't known before a round trip has passed.
        let known = t.now + Duration::from_secs_f64(t.base);
        let since = known.saturating_sub(Duration::from_secs_f64((flat * (1.0 - behind)).max(0.0)));
        self.learned = Some(Learned {
            ceiling,
            flat,
            since,
            first: t.started,
            anchor: here,
            last_throttle: t.now,
            last_bound: t.now,
        });
        true
    }

    /// Throttled again: the new ceiling, the rate to continue with, and the seconds until it is back at the ceiling.
    fn again(&self, learned: &Learned, here: &Anchor, now: Duration) -> (f64, f64, f64) {
        let rate = self.per_second(now).unwrap_or(learned.ceiling);
        let secs = here.at.saturating_sub(learned.anchor.at).as_secs_f64();
        let started = here.number.saturating_sub(learned.anchor.number);
        let accepted = started.saturating_sub(here.throttled.saturating_sub(learned.anchor.throttled)) as f64;
        // A token bucket was empty at both moments, so the tokens used between them are those that flowed in: the limit itself.
        // (Two more, as a short time measures inexactly.)
        let (share, answered) = self.recent.throttled_and_answered(now);
        let limit = if share > FLOODED {
            // The bucket was empty nearly all the time, so the answers equal the inflow.
            answered
        } else if secs >= 1.0 && accepted >= 5.0 {
            (accepted + 2.0) / secs
        } else if learned.flat > 1.0 {
            EARLY * rate
        } else {
            BETA * rate
        };
        let lasted = now.saturating_sub(learned.since).as_secs_f64() / learned.flat;
        let most = if lasted < 1.0 { EARLY * rate } else { rate };
        let least = if share > FLOODED { BETA_FLOODED } else { BETA };
        let limit = limit.clamp(least * rate, most).max(LEAST);
        // Long enough that searching costs one request in a hundred or so; short again where the limit has moved.
        let longest = (100.0 / limit).clamp(15.0, 30.0);
        let flat = if lasted > 3.0 { longest / 4.0 } else { (learned.flat * 4.0).min(longest) };
        (limit, limit * UNDER, flat)
    }
}
