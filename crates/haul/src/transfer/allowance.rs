//! `--max-transfer` with a hard cut-off: how many bytes may still be moved. A chunk asks before it goes, so that what is under way
//! counts, and all of it arrives.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Remainder of a job's limit.
pub struct Allowance {
    left: AtomicU64,
    /// Something didn't fit: nothing more is begun.
    ended: AtomicBool,
    /// Called then, perhaps more than once.
    stop: Arc<dyn Fn() + Send + Sync>,
}

impl Allowance {
    /// Of `limit` bytes; `stop` is called as soon as something doesn't fit.
    pub fn new(limit: u64, stop: Arc<dyn Fn() + Send + Sync>) -> Self {
        Allowance { left: AtomicU64::new(limit), ended: AtomicBool::new(false), stop }
    }

    /// Takes `bytes` bytes; false when they don't fit, or others didn't before: the job is stopping.
    pub fn take(&self, bytes: u64) -> bool {
        let taken = !self.ended.load(Ordering::Acquire)
            && self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes)).is_ok();
        if !taken {
            self.ended.store(true, Ordering::Release);
            (self.stop)();
        }
        taken
    }

    /// Bytes that were taken and did not go.
    pub fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Bytes that nothing has taken.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// True when everything has fitted so far, and there is room for something.
    pub fn is_open(&self) -> bool {
        !self.ended.load(Ordering::Acquire) && self.left() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_beyond_the_allowance_stops_the_job() {
        let stops = Arc::new(AtomicU64::new(0));
        let counted = stops.clone();
        let allowance = Allowance::new(10, Arc::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)));
        assert!(allowance.take(6) && allowance.take(4) && allowance.take(0));
        allowance.give_back(4);
        assert!(allowance.is_open() && stops.load(Ordering::Relaxed) == 0, "exactly the limit is within it");
        assert!(!allowance.take(5));
        assert!(!allowance.take(1), "nothing else is begun in its place");
        assert!(!allowance.is_open() && stops.load(Ordering::Relaxed) > 0);
    }
}
