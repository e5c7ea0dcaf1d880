//! Offset of servers' clocks from this machine's, as the `Date` of their answers shows. The time of storing is by
//! their clock, the time of a file's change by ours.

use jiff::{Span, Timestamp};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A clock that is no further ahead is right: `Date` has whole seconds.
const RIGHT: i64 = 1;

/// The furthest that any server's clock was seen to be ahead.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// An answer with this `Date`, if it has one, has come to a request that was sent at `began`.
    pub fn answered(&self, date: Option<&str>, began: Timestamp) {
        let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else { return };
        let date = date.timestamp();
        if date.as_second().saturating_sub(Timestamp::now().as_second()) <= RIGHT {
            return;
        }
        // It was written after the request, at the end of its second.
        let Ok(written) = date.checked_add(Span::new().seconds(RIGHT)) else { return };
        let ahead = written.as_nanosecond().saturating_sub(began.as_nanosecond());
        self.0.fetch_max(u64::try_from(ahead).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How far that is; nothing where all are right, or behind.
    pub fn ahead(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_ahead_is_noticed_and_others_are_not() {
        let clock = Clock::default();
        let now = Timestamp::now();
        let date = |seconds: i64| {
            let then = now.checked_add(Span::new().seconds(seconds)).unwrap();
            jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&then).unwrap()
        };
        for said in [Some(date(0)), Some(date(-900)), Some("yesterday".to_owned()), None] {
            clock.answered(said.as_deref(), now);
            assert_eq!(clock.ahead(), Duration::ZERO, "{said:?}");
        }
        clock.answered(Some(&date(600)), now);
        let ahead = clock.ahead().as_secs();
        assert!((600..=601).contains(&ahead), "{ahead}");
        clock.answered(Some(&date(300)), now);
        assert_eq!(clock.ahead().as_secs(), ahead, "another server's");
    }
}
