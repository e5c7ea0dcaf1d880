//! The outermost of nested directories, as an ordered walk meets them.

use haul_core::Key;
use std::sync::{Mutex, MutexGuard};

/// Remembers the last noted directory that lies in no other noted one. A walk meets keys in order, so that everything in a directory
/// follows it at once: one directory is enough to remember.
#[derive(Default)]
pub(super) struct Outermost(Mutex<Option<Key>>);

impl Outermost {
    fn last(&self) -> MutexGuard<'_, Option<Key>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Notes a directory, unless it lies in the remembered one.
    pub fn note(&self, dir: &Key) {
        let mut last = self.last();
        if !is_within(&last, dir) {
            *last = Some(dir.clone());
        }
    }

    /// True for the remembered directory and for everything in it.
    pub fn holds(&self, key: &Key) -> bool {
        is_within(&self.last(), key)
    }
}

fn is_within(top: &Option<Key>, key: &Key) -> bool {
    top.as_ref().is_some_and(|top| key.as_bytes().starts_with(top.as_bytes()))
}
