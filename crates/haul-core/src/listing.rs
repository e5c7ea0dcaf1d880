//! What a listing gives: batches of entries, the ranges it could not read, and the proof that it saw the rest.

use crate::{Entry, Error, Key};
use serde::{Deserialize, Serialize};

/// One step of a listing. Only [`Listed::End`] proves that a range was seen whole; a stream that merely stops
/// did not get there.
#[derive(Debug)]
pub enum Listed {
    /// Entries in bytewise key order, all after the entries of earlier batches.
    Batch(Vec<Entry>),
    /// A range that could not be listed; what is in it is unknown, the rest goes on.
    Failed {
        /// The keys that were not seen.
        lost: Lost,
        /// Why. `Hidden` is no failure: the range was left out on purpose though something is in it.
        error: Error,
    },
    /// A name that was listed, and was no longer there when it was asked about or opened; told before the end, among what
    /// comes. Whoever must know whether it saw all looks again: a file that is renamed while its directory is listed may be
    /// seen under neither name. Stores whose listing is one answer have nothing to tell.
    Vanished(Key),
    /// Everything else was seen.
    End,
}

/// A range of keys that a listing did not see: `from` ≤ key < `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// First key that may be missing.
    pub from: Key,
    /// First key that is seen again; `None` for "to the end".
    pub to: Option<Key>,
}

impl Lost {
    /// Everything below the directory `key` (which ends in `/`, or is empty for the root).
    pub fn below(key: &Key) -> Self {
        Lost { from: key.clone(), to: key.after_prefix() }
    }

    /// What the directory `key` holds, but not that it is there.
    pub fn inside(key: &Key) -> Self {
        Lost { from: key.with_suffix([0]), to: key.after_prefix() }
    }

    /// This key alone, and what is below it if it is a directory's.
    pub fn only(key: &Key) -> Self {
        match key.is_dir() {
            true => Lost::below(key),
            false => Lost { from: key.clone(), to: Some(key.with_suffix([0])) },
        }
    }

    /// Everything from `key` on.
    pub fn from(key: Key) -> Self {
        Lost { from: key, to: None }
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
