//! Counters that the stores and layers keep, read by the summary: requests by kind, retries, bytes.

use crate::Clock;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Counts of one run; shared by every store that the run opens.
#[derive(Debug, Default)]
pub struct Meters {
    requests: Mutex<BTreeMap<&'static str, u64>>,
    retries: AtomicU64,
    throttled: AtomicU64,
    clock: Arc<Clock>,
}

impl Meters {
    /// One request of this kind (`ListObjectsV2`, `PutObject`, …) was sent, retries included.
    pub fn request(&self, kind: &'static str) {
        *self.requests.lock().unwrap_or_else(|e| e.into_inner()).entry(kind).or_default() += 1;
    }

    /// An operation is tried again.
    pub fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// The other side asked us to slow down.
    pub fn throttled(&self) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
    }

    /// How far clocks of servers were seen to be ahead.
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// Requests by kind.
    pub fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.requests.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Operations that were tried again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Times that the other side asked us to slow down.
    pub fn throttles(&self) -> u64 {
        self.throttled.load(Ordering::Relaxed)
    }
}
