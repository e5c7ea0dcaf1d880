//! The gate that every network request passes: limits requests a second (`--tpslimit`), with a burst.
//!
//! It stands at the request and not in a layer because one listing or upload is many requests.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Lets requests through at a steady rate, which can be changed; an open gate costs nothing.
#[derive(Debug)]
pub struct Gate {
    /// Nanoseconds between two requests; 0 without a limit.
    interval: AtomicU64,
    burst: u32,
    /// When the last token given out is earned.
    next: Mutex<Option<Instant>>,
}

impl Gate {
    /// A gate without a limit.
    pub fn open() -> Self {
        Gate::per_second(0.0, 1)
    }

    /// At most `rate` requests a second (0 or less means no limit), of which `burst` (at least 1) may come at once.
    pub fn per_second(rate: f64, burst: u32) -> Self {
        let gate = Gate { interval: AtomicU64::new(0), burst: burst.max(1), next: Mutex::new(None) };
        gate.set(rate);
        gate
    }

    /// Another rate; what waits already goes on as it was told.
    pub fn set(&self, rate: f64) {
        let nanoseconds = if rate > 0.0 { (1e9 / rate).max(1.0) as u64 } else { 0 };
        self.interval.store(nanoseconds, Relaxed);
    }

    /// Waits until a request may be sent.
    pub async fn pass(&self) {
        let interval = self.interval.load(Relaxed);
        if interval == 0 {
            return;
        }
        let wait = self.take(Duration::from_nanos(interval), Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes a token at `now` and says how long to wait for it.
    fn take(&self, interval: Duration, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(|e| e.into_inner());
        let head_start = interval * (self.burst - 1);
        let earliest = now.checked_sub(head_start).unwrap_or(now);
        let at = next.map_or(earliest, |n| n.max(earliest));
        *next = Some(at + interval);
        at.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_a_steady_rate_which_can_be_changed() {
        let gate = Gate::per_second(10.0, 3);
        let interval = |gate: &Gate| Duration::from_nanos(gate.interval.load(Relaxed));
        let now = Instant::now() + Duration::from_secs(10);
        let waits: Vec<u128> = (0..5).map(|_| gate.take(interval(&gate), now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        let later = now + Duration::from_secs(9);
        assert_eq!(gate.take(interval(&gate), later).as_millis(), 0);
        gate.set(1000.0);
        assert_eq!(interval(&gate), Duration::from_millis(1));
    }

    #[test]
    fn no_limit_is_an_open_gate() {
        assert_eq!(Gate::per_second(0.0, 1).interval.load(Relaxed), 0);
    }
}
