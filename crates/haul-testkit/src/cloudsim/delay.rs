//! How long a request takes: a fixed time, or one drawn from a log-normal distribution.

use super::pattern::splitmix;
use std::{
    f64::consts::TAU,
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A time to wait, or how to draw one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Delay {
    /// None at all: no timer is set.
    #[default]
    None,
    /// Always the same.
    Fixed(Duration),
    /// Drawn for each request.
    LogNormal {
        /// Half of the draws are below.
        median: Duration,
        /// Standard deviation of the logarithm: at 0.4 one draw in twenty is above twice the median (1.93 times).
        sigma: f64,
    },
}

impl Delay {
    /// The time for a request.
    pub fn draw(&self, random: &Random) -> Duration {
        match *self {
            Delay::None => Duration::ZERO,
            Delay::Fixed(time) => time,
            Delay::LogNormal { median, sigma } => {
                // Box and Muller's way from two even draws to a normal one; the first must not be 0.
                let (a, b) = (1.0 - random.draw(), random.draw());
                let normal = (-2.0 * a.ln()).sqrt() * (TAU * b).cos();
                median.mul_f64((sigma * normal).exp().min(1_000.0))
            }
        }
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Delay, String> {
        if matches!(text, "off" | "none") {
            return Ok(Delay::None);
        }
        let Some(rest) = text.strip_prefix("lognormal:") else {
            let time = duration(text)?;
            return Ok(if time.is_zero() { Delay::None } else { Delay::Fixed(time) });
        };
        let (median, sigma) = rest.split_once(',').ok_or("want lognormal:MEDIAN,SIGMA such as lognormal:50ms,0.4")?;
        let sigma = sigma.trim().parse().ok().filter(|s: &f64| (0.0..=5.0).contains(s));
        Ok(Delay::LogNormal { median: duration(median)?, sigma: sigma.ok_or("want a sigma from 0 to 5")? })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delay::None => write!(f, "0s"),
            Delay::Fixed(time) => write!(f, "{time:?}"),
            Delay::LogNormal { median, sigma } => write!(f, "lognormal:{median:?},{sigma}"),
        }
    }
}

/// A time as it is typed: a number with `us`, `ms`, `s`, `m` or `h`; a bare number is seconds.
///
/// Errors: what was wanted.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match text[digits..].trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("want a time such as 50ms, 1.5s or 2m".into()),
    };
    let number: f64 = text[..digits].parse().map_err(|_| "want a time such as 50ms, 1.5s or 2m")?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| "that time is too long".into())
}

/// Draws that are the same for the same seed and order.
#[derive(Debug, Default)]
pub struct Random {
    seed: AtomicU64,
    drawn: AtomicU64,
}

impl Random {
    /// Begins with this seed.
    pub fn new(seed: u64) -> Random {
        Random { seed: AtomicU64::new(seed), drawn: AtomicU64::new(0) }
    }

    /// Begins anew.
    pub fn restart(&self, seed: u64) {
        self.seed.store(seed, Relaxed);
        self.drawn.store(0, Relaxed);
    }

    /// The next number from 0 (included) to 1 (excluded).
    pub fn draw(&self) -> f64 {
        let n = self.drawn.fetch_add(1, Relaxed);
        // The 53 bits that an f64 holds exactly.
        (splitmix(self.seed.load(Relaxed), n) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_read() {
        let ms = Duration::from_millis;
        assert_eq!("50ms".parse(), Ok(Delay::Fixed(ms(50))));
        assert_eq!("1.5s".parse(), Ok(Delay::Fixed(ms(1500))));
        assert_eq!("0".parse(), Ok(Delay::None));
        assert_eq!("lognormal:50ms,0.4".parse(), Ok(Delay::LogNormal { median: ms(50), sigma: 0.4 }));
        for bad in ["", "x", "5 parsecs", "lognormal:50ms", "lognormal:50ms,-1", "-1s"] {
            assert!(bad.parse::<Delay>().is_err(), "{bad}");
        }
    }

    #[test]
    fn half_of_the_draws_are_below_the_median_and_one_in_twenty_is_above_twice_it() {
        let (delay, random) = (Delay::LogNormal { median: Duration::from_millis(50), sigma: 0.4 }, Random::new(1));
        let draws: Vec<_> = (0..20_000).map(|_| delay.draw(&random)).collect();
        let below = |ms: u64| draws.iter().filter(|d| **d < Duration::from_millis(ms)).count();
        assert!((9_700..10_300).contains(&below(50)), "{}", below(50));
        assert!((800..1_200).contains(&(20_000 - below(97))), "{}", below(97));
    }

    #[test]
    fn a_seed_gives_the_same_draws_again() {
        let random = Random::new(3);
        let first: Vec<_> = (0..5).map(|_| random.draw()).collect();
        random.restart(3);
        assert_eq!(first, (0..5).map(|_| random.draw()).collect::<Vec<_>>());
        assert!(first.iter().all(|d| (0.0..1.0).contains(d)));
    }
}
