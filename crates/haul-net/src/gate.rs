//! The gate that every network request passes: so many a second (`--tpslimit`), with a burst.
//!
//! It stands at the request and not in a layer because one listing or upload is many requests.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// Lets requests through at a steady rate; an open gate costs nothing.
#[derive(Debug)]
pub struct Gate(Option<Bucket>);

#[derive(Debug)]
struct Bucket {
    interval: Duration,
    burst: u32,
    /// When the last token given out is earned.
    next: Mutex<Option<Instant>>,
}

impl Gate {
    /// A gate without a limit.
    pub fn open() -> Self {
        Gate(None)
    }

    /// At most `rate` requests a second (0 or less means no limit), of which `burst` (at least 1) may come at once.
    pub fn per_second(rate: f64, burst: u32) -> Self {
        if rate <= 0.0 {
            return Gate::open();
        }
        let interval = Duration::from_secs_f64(1.0 / rate);
        Gate(Some(Bucket { interval, burst: burst.max(1), next: Mutex::new(None) }))
    }

    /// Waits until a request may be sent.
    pub async fn pass(&self) {
        let Some(bucket) = &self.0 else { return };
        let wait = bucket.take(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

impl Bucket {
    /// Takes a token at `now` and says how long to wait for it.
    fn take(&self, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(|e| e.into_inner());
        let head_start = self.interval * (self.burst - 1);
        let earliest = now.checked_sub(head_start).unwrap_or(now);
        let at = next.map_or(earliest, |n| n.max(earliest));
        *next = Some(at + self.interval);
        at.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_a_steady_rate() {
        let Gate(Some(bucket)) = Gate::per_second(10.0, 3) else { panic!("limited") };
        let now = Instant::now() + Duration::from_secs(10);
        let waits: Vec<u128> = (0..5).map(|_| bucket.take(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        assert_eq!(bucket.take(now + Duration::from_secs(9)).as_millis(), 0);
    }

    #[test]
    fn no_limit_is_an_open_gate() {
        assert!(Gate::per_second(0.0, 1).0.is_none());
    }
}
