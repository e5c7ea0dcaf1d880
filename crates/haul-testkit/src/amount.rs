//! How much a test does, and how much of it at once.

use std::{
    env,
    sync::{Condvar, Mutex, PoisonError},
    thread,
};

/// How many rounds a test makes that hits upon something by chance: few in a daily run, all of them where `make test FULL=1` asks.
pub fn rounds(few: u64, all: u64) -> u64 {
    let full = env::var_os("HAUL_TEST_FULL").is_some_and(|value| !value.is_empty());
    if full { all } else { few }
}

/// Cases that run at once, of all tests of a process together.
const AT_ONCE: usize = 6;

/// How many do.
static AT_WORK: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// A place among them, until it is dropped.
struct RoundSlot;

impl RoundSlot {
    fn take() -> RoundSlot {
        let (count, freed) = &AT_WORK;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        *freed.wait_while(count, |count| *count >= AT_ONCE).unwrap_or_else(PoisonError::into_inner) += 1;
        RoundSlot
    }
}

impl Drop for RoundSlot {
    fn drop(&mut self) {
        let (count, freed) = &AT_WORK;
        *count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        freed.notify_one();
    }
}

/// Does what mostly waits for each of some cases, several at once: no more of them with those of other tests than a small machine has
/// time for, since what they wait for must not be late because of the others. One that panics ends the test.
pub fn each<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    let cases: Vec<T> = cases.into_iter().collect();
    let waiting = Mutex::new(cases.into_iter());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                loop {
                    let _place = RoundSlot::take();
                    let Some(case) = next() else { return };
                    run(case);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn every_case_has_its_turn_and_a_panic_comes_through() {
        let sum = AtomicU64::new(0);
        each(0..100, |n| {
            sum.fetch_add(n, Relaxed);
        });
        assert_eq!(sum.into_inner(), 4950);
        let broken = std::panic::catch_unwind(|| each(0..100, |n| assert_ne!(n, 70)));
        assert!(broken.is_err());
    }
}
