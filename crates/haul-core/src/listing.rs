//! Steps of a listing: batches of entries, the ranges it could not read, and the proof that it saw the rest.

use crate::{Entry, Error, Key};
use serde::{Deserialize, Serialize};

/// One step of a listing. Only [`Listed::End`] proves that a range was seen whole; a stream that merely stops
/// did not get there.
#[derive(Debug)]
pub enum Listed {
    /// Entries in bytewise key order, all after the entries of earlier batches.
    Batch(Vec<Entry>),
    /// A range that could not be listed: its contents are unknown, and the listing continues after it.
    Failed {
        /// The keys that were not seen.
        lost: MissedRange,
        /// Why. `Hidden` isn't a failure: the range was left out on purpose though it isn't empty.
        error: Error,
    },
    /// A name that was listed but no longer existed when it was examined or opened; reported before the end, between
    /// entries. Callers that need a complete view list again: a file renamed while its directory is listed may be
    /// seen under neither name. Stores that answer a listing in one piece never report it.
    Vanished(Key),
    /// Everything else was seen.
    End,
}

/// A range of keys that a listing did not see: `from` ≤ key < `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedRange {
    /// First key that may be missing.
    pub from: Key,
    /// First key that is seen again; `None` for "to the end".
    pub to: Option<Key>,
}

impl MissedRange {
    /// Everything below the directory `key` (which ends in `/`, or is empty for the root).
    pub fn below(key: &Key) -> Self {
        MissedRange { from: key.clone(), to: key.after_prefix() }
    }

    /// The contents of directory `key`, without the directory itself.
    pub fn inside(key: &Key) -> Self {
        MissedRange { from: key.with_suffix([0]), to: key.after_prefix() }
    }

    /// This key alone; for a directory, with everything below it.
    pub fn only(key: &Key) -> Self {
        match key.is_dir() {
            true => MissedRange::below(key),
            false => MissedRange { from: key.clone(), to: Some(key.with_suffix([0])) },
        }
    }

    /// Everything from `key` on.
    pub fn from(key: Key) -> Self {
        MissedRange { from: key, to: None }
    }

    /// True when `key` is in the range.
    pub fn holds(&self, key: &Key) -> bool {
        *key >= self.from && self.to.as_ref().is_none_or(|to| key < to)
    }
}

/// One of the two ends of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Where data comes from.
    Src,
    /// Where data goes to.
    Dst,
}
