//! Addresses of contents, kept for the next piece of the same file.

use crate::version::parts_of;
use haul_core::{Entry, Key, Version};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// For how long an address is used again: long enough for the pieces of a large file to come by one.
const LASTS: Duration = Duration::from_secs(60);
/// Addresses that are kept.
const KEPT: usize = 256;

/// Addresses of contents that were read a moment ago, by version.
#[derive(Debug, Default)]
pub struct Downloads(Mutex<HashMap<Version, Address>>);

#[derive(Clone, Debug)]
pub struct Address {
    pub url: String,
    pub entry: Entry,
    pub since: Instant,
    /// The content's own tag, as the first answer had it.
    pub tag: Option<String>,
}

impl Downloads {
    pub fn locked(&self) -> MutexGuard<'_, HashMap<Version, Address>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, version: Option<&Version>, key: &Key) -> Option<Address> {
        let found = self.locked().get(version?).cloned();
        found.filter(|found| found.since.elapsed() < LASTS && found.entry.key == *key)
    }

    pub fn put(&self, version: &Version, address: Address) {
        let mut kept = self.locked();
        if kept.len() >= KEPT {
            kept.retain(|_, address| address.since.elapsed() < LASTS);
        }
        if kept.len() < KEPT {
            kept.insert(version.clone(), address);
        }
    }

    /// The content of an item is another from now on.
    pub fn forget(&self, id: &str) {
        self.locked().retain(|version, _| parts_of(version).is_none_or(|(known, _)| known != id));
    }

    pub fn drop(&self, version: &Version) {
        self.locked().remove(version);
    }
}
