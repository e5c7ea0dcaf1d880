//! One at a time for each key, where a store can't say itself that two writers met.

use haul_core::Key;
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::{Mutex, MutexGuard};

/// Few keys are in work at once: that two of them share a place costs a wait at most.
const PLACES: usize = 1024;

/// Turns at keys, within this process. Several keys share a place, so whoever holds one must not ask for another.
#[derive(Debug)]
pub struct KeyLocks(Vec<Mutex<()>>);

impl Default for KeyLocks {
    fn default() -> Self {
        KeyLocks(std::iter::repeat_with(Mutex::default).take(PLACES).collect())
    }
}

impl KeyLocks {
    /// Waits until nobody else has a turn at this key; the turn lasts as long as what is returned.
    pub async fn at(&self, key: &Key) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        key.as_bytes().hash(&mut hasher);
        self.0[hasher.finish() as usize % PLACES].lock().await
    }
}
