//! Directories that only the destination has, until they may go: the deepest first, and none that something holds.

use haul_core::Key;
use std::sync::{Mutex, MutexGuard};

/// Directories to be deleted.
#[derive(Default)]
pub(crate) struct ExtraDirs(Mutex<Vec<Key>>);

impl ExtraDirs {
    fn keys(&self) -> MutexGuard<'_, Vec<Key>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Adds a directory.
    pub fn push(&self, dir: Key) {
        self.keys().push(dir);
    }

    /// Marks `held` as not deletable, and the directories above it.
    pub fn spare(&self, held: &Key) {
        self.keys().retain(|dir| !held.as_bytes().starts_with(dir.as_bytes()));
    }

    /// All of them, the deepest first.
    pub fn take(&self) -> Vec<Key> {
        let mut dirs = std::mem::take(&mut *self.keys());
        dirs.sort_unstable_by(|a, b| b.cmp(a));
        // `--delete-before` walks twice.
        dirs.dedup();
        dirs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extra(keys: &[&str]) -> ExtraDirs {
        let dirs = ExtraDirs::default();
        keys.iter().for_each(|key| dirs.push(Key::new(*key)));
        dirs
    }

    fn taken(dirs: &ExtraDirs) -> Vec<String> {
        dirs.take().iter().map(Key::to_string).collect()
    }

    #[test]
    fn they_go_once_and_the_deepest_first() {
        let dirs = extra(&["a/", "a/b/", "a/b/c/", "x/", "a/b/"]);
        dirs.spare(&Key::new("x/y/held"));
        assert_eq!(taken(&dirs), ["a/b/c/", "a/b/", "a/"]);
        assert!(taken(&dirs).is_empty());
    }

    #[test]
    fn a_directory_that_must_stay_keeps_its_parents() {
        let dirs = extra(&["a/", "a/b/", "a/c/"]);
        dirs.spare(&Key::new("a/b/"));
        assert_eq!(taken(&dirs), ["a/c/"]);
    }
}
