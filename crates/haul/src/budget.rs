//! What a job may use at once: bytes in memory and transfers. One budget for the whole job, whatever the mix of files.

use haul_core::policy::Policy;
use haul_store::Caps;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in units of this many bytes, so that a semaphore's 32-bit permits reach far enough.
const UNIT: u64 = 64 << 10;

/// Shared by all transfers of a job.
#[derive(Clone)]
pub struct Budget {
    memory: Arc<Semaphore>,
    units: u64,
    /// Files transferred at once.
    pub transfers: Arc<Semaphore>,
    /// Parts of one file in flight at most.
    pub streams: usize,
    /// Metadata requests at once.
    pub checkers: usize,
}

impl Budget {
    /// The budget that `policy` asks for between two stores of these abilities.
    pub fn new(policy: &Policy, src: &Caps, dst: &Caps) -> Self {
        let units = (policy.max_memory / UNIT).clamp(1, Semaphore::MAX_PERMITS as u64);
        // A disk's number of threads says nothing of how many requests a network end takes.
        let slower = match (src.files, dst.files) {
            (true, false) => dst.concurrency,
            (false, true) => src.concurrency,
            _ => src.concurrency.min(dst.concurrency),
        };
        Budget {
            memory: Arc::new(Semaphore::new(units as usize)),
            units,
            transfers: Arc::new(Semaphore::new(policy.transfers.unwrap_or(slower).max(1))),
            streams: policy.streams.unwrap_or(DEFAULT_STREAMS).max(1),
            checkers: policy.checkers.unwrap_or(src.concurrency.max(dst.concurrency)).max(1),
        }
    }

    /// Waits until `bytes` may be held in memory; more than the whole budget counts as the whole budget.
    pub async fn memory(&self, bytes: u64) -> OwnedSemaphorePermit {
        let units = bytes.div_ceil(UNIT).clamp(1, self.units).min(u64::from(u32::MAX)) as u32;
        match self.memory.clone().acquire_many_owned(units).await {
            Ok(permit) => permit,
            Err(_) => unreachable!("this semaphore is never closed"),
        }
    }
}

/// Parts of one file in flight when the user doesn't say. rclone uses 4; with 8 MiB parts 8 keep 640 Mbit/s busy over
/// 100 ms.
const DEFAULT_STREAMS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn more_than_everything_is_everything() {
        let policy = Policy { max_memory: 1 << 20, ..Policy::default() };
        let budget = Budget {
            memory: Arc::new(Semaphore::new((policy.max_memory / UNIT) as usize)),
            units: policy.max_memory / UNIT,
            transfers: Arc::new(Semaphore::new(1)),
            streams: 1,
            checkers: 1,
        };
        let all = budget.memory(1 << 40).await;
        assert_eq!(budget.memory.available_permits(), 0);
        drop(all);
        let _one = budget.memory(1).await;
        assert_eq!(budget.memory.available_permits(), 15);
    }
}
