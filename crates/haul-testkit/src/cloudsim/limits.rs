//! Limits: requests a second and bytes a second. Pure: times are given, as durations since any fixed moment.

use std::{
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// So many a second, and how many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second.
    pub per_second: f64,
    /// The bucket's size: requests that are let through at once after a pause.
    pub burst: f64,
}

impl FromStr for Rate {
    type Err = String;

    /// `N` or `N,BURST`; without one the burst is a second's worth, and at least one request.
    fn from_str(text: &str) -> Result<Rate, String> {
        let want = "want requests a second as N or N,BURST, such as 5 or 3500,7000";
        let number = |t: &str| t.trim().parse::<f64>().ok().filter(|n| *n > 0.0 && n.is_finite()).ok_or(want);
        let (rate, burst) = text.split_once(',').map_or((text, None), |(rate, burst)| (rate, Some(burst)));
        let per_second = number(rate)?;
        let burst = burst.map(number).transpose()?.unwrap_or(per_second).max(1.0);
        Ok(Rate { per_second, burst })
    }
}

/// A token bucket of requests.
#[derive(Debug)]
pub struct Requests {
    rate: Rate,
    /// Tokens, and when they were counted.
    state: Mutex<(f64, Duration)>,
}

impl Requests {
    /// A full bucket.
    pub fn new(rate: Rate) -> Requests {
        Requests { rate, state: Mutex::new((rate.burst, Duration::ZERO)) }
    }

    /// The rate that it was made for.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes a token; false if there is none.
    pub fn take(&self, now: Duration) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, counted) = *state;
        let now = now.max(counted);
        let tokens = (tokens + (now - counted).as_secs_f64() * self.rate.per_second).min(self.rate.burst);
        let goes = tokens >= 1.0;
        *state = (if goes { tokens - 1.0 } else { tokens }, now);
        goes
    }
}

/// Bytes through one pipe. Whoever sends takes first and sleeps off the debt.
#[derive(Debug, Default)]
pub struct Pipe {
    /// When the bytes taken so far have passed.
    free: Mutex<Duration>,
}

impl Pipe {
    /// Takes `bytes` at `rate` bytes a second, and gives the moment when they have passed. Time that was not used counts
    /// for as much as `credit`: it makes good for timers that fire late.
    pub fn take(&self, rate: u64, bytes: u64, now: Duration, credit: Duration) -> Duration {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        *free = (*free).max(now.saturating_sub(credit)) + takes;
        *free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn rates_are_read() {
        assert_eq!("5".parse(), Ok(Rate { per_second: 5.0, burst: 5.0 }));
        assert_eq!("0.5".parse(), Ok(Rate { per_second: 0.5, burst: 1.0 }));
        assert_eq!("10,3".parse(), Ok(Rate { per_second: 10.0, burst: 3.0 }));
        for bad in ["", "0", "-1", "x", "5,", "inf"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bucket_lets_its_burst_and_then_its_rate_through() {
        let bucket = Requests::new(Rate { per_second: 10.0, burst: 3.0 });
        let passed = |from: u64, to: u64| (from..to).filter(|n| bucket.take(ms(*n))).count();
        assert_eq!(passed(0, 50), 3);
        assert_eq!(passed(50, 1050), 10);
        assert_eq!(passed(5000, 5050), 3, "a pause fills it, no more");
        assert!(!bucket.take(ms(0)), "a clock that goes back gives nothing");
    }

    #[test]
    fn a_pipe_takes_as_long_as_its_rate_says() {
        let pipe = Pipe::default();
        assert_eq!(pipe.take(1000, 10, ms(100), ms(0)), ms(110));
        assert_eq!(pipe.take(1000, 10, ms(100), ms(0)), ms(120), "two share it");
        assert_eq!(pipe.take(1000, 10, ms(300), ms(0)), ms(310), "unused time is gone");
        assert_eq!(pipe.take(1000, 10, ms(315), ms(20)), ms(320), "but for the credit");
    }
}
