//! Waiting and chance, as something that a test can replace.

use futures::future::BoxFuture;
use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Lets time pass.
pub trait Clock: Send + Sync {
    /// A point in time that never goes back.
    fn now(&self) -> Instant;

    /// Resolves after `wait`.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;

    /// A number from 0 to below 1, by chance.
    fn chance(&self) -> f64;
}

/// Real time, real chance.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Clock for System {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }

    fn chance(&self) -> f64 {
        // Spreading waits needs no better source than the one that seeds hash maps.
        static SEED: OnceLock<RandomState> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let bits = SEED.get_or_init(RandomState::new).hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_stays_in_its_range_and_varies() {
        let drawn: Vec<f64> = (0..1000).map(|_| System.chance()).collect();
        assert!(drawn.iter().all(|c| (0.0..1.0).contains(c)));
        assert!(drawn.iter().any(|c| *c < 0.2) && drawn.iter().any(|c| *c > 0.8));
    }
}
