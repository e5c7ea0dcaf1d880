//! Which transfers `--max-transfer` still lets start.

use haul_core::job::{Cutoff, Limits};
use std::sync::Mutex;

/// Bytes of the transfers that were started, beside the limit.
pub struct StartLimit {
    limit: Option<u64>,
    cutoff: Cutoff,
    started: Mutex<u64>,
}

/// Whether a transfer may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Starts,
    /// It may; its bytes count as they are moved, and it stops when they reach the limit.
    AsksItself,
    /// It may not, nor may any after it.
    LimitReached,
    /// It may not; a smaller one may.
    TooLarge,
}

impl StartLimit {
    /// None was started yet.
    pub fn new(limits: &Limits) -> StartLimit {
        StartLimit { limit: limits.transfer, cutoff: limits.cutoff, started: Mutex::default() }
    }

    /// Asks for a transfer of `bytes` bytes.
    pub fn admit(&self, bytes: u64) -> Admission {
        let Some(limit) = self.limit else { return Admission::Starts };
        let mut started = self.started.lock().unwrap_or_else(|e| e.into_inner());
        let admission = match self.cutoff {
            Cutoff::Hard => Admission::AsksItself,
            Cutoff::Soft if *started >= limit => Admission::LimitReached,
            Cutoff::Cautious if started.saturating_add(bytes) > limit => Admission::TooLarge,
            Cutoff::Soft | Cutoff::Cautious => Admission::Starts,
        };
        if admission != Admission::TooLarge {
            *started = started.saturating_add(bytes);
        }
        admission
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admissions(limit: Option<u64>, cutoff: Cutoff, sizes: &[u64]) -> Vec<Admission> {
        let starts = StartLimit::new(&Limits { transfer: limit, cutoff, ..Limits::default() });
        sizes.iter().map(|size| starts.admit(*size)).collect()
    }

    #[test]
    fn each_cutoff_has_its_own_last_transfer() {
        use Admission::{AsksItself, LimitReached, Starts, TooLarge};
        let sizes = [6, 3, 2, 1, 0];
        for cutoff in [Cutoff::Hard, Cutoff::Soft, Cutoff::Cautious] {
            assert_eq!(admissions(None, cutoff, &sizes), [Starts; 5], "{cutoff:?}: no limit");
        }
        assert_eq!(admissions(Some(10), Cutoff::Hard, &sizes), [AsksItself; 5]);
        // The one that crosses the limit is finished.
        assert_eq!(admissions(Some(10), Cutoff::Soft, &sizes), [Starts, Starts, Starts, LimitReached, LimitReached]);
        // One that doesn't fit leaves its room to a smaller one.
        assert_eq!(admissions(Some(10), Cutoff::Cautious, &sizes), [Starts, Starts, TooLarge, Starts, Starts]);
        assert_eq!(admissions(Some(0), Cutoff::Cautious, &[1, 0]), [TooLarge, Starts]);
        assert_eq!(admissions(Some(u64::MAX), Cutoff::Cautious, &[u64::MAX, 1]), [Starts, Starts]);
    }
}
