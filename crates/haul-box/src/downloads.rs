//! Addresses of contents, kept for the next piece of the same file.

use crate::facts::ids;
use haul_core::{Entry, Version};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Mutex as Waiting;

/// For how long an address is used again: long enough for the pieces of a large file to come by one.
pub const LASTS: Duration = Duration::from_secs(60);
/// Addresses that are kept; twice as many while they are all in use.
const KEPT: usize = 256;

/// Addresses of contents that were read a moment ago, by version. Who asks for one lets the others wait: pieces of a large file are asked
/// for at once.
#[derive(Debug, Default)]
pub struct Downloads(Mutex<HashMap<Version, Slot>>);

pub type Slot = Arc<Waiting<Option<Address>>>;

#[derive(Clone, Debug)]
pub struct Address {
    pub url: String,
    pub entry: Entry,
    pub since: Instant,
}

impl Downloads {
    fn locked(&self) -> MutexGuard<'_, HashMap<Version, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn slot(&self, version: &Version) -> Slot {
        let mut kept = self.locked();
        if kept.len() >= KEPT && !kept.contains_key(version) {
            // Drops slots that nobody holds and that are old, or were never filled.
            let is_good = |slot: &Slot| match slot.try_lock() {
                Ok(address) => address.as_ref().is_some_and(|address| address.since.elapsed() < LASTS),
                Err(_) => true,
            };
            kept.retain(|_, slot| is_good(slot));
        }
        if kept.len() >= 2 * KEPT {
            return Slot::default();
        }
        kept.entry(version.clone()).or_default().clone()
    }

    /// The content of a file is another from now on.
    pub fn forget(&self, id: &str) {
        self.locked().retain(|version, _| ids(version).is_none_or(|(known, _)| known != id));
    }
}
