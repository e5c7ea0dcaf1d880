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

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(dirs: &[&str]) -> Outermost {
        let outermost = Outermost::default();
        dirs.iter().for_each(|dir| outermost.note(&Key::new(*dir)));
        outermost
    }

    fn holds(outermost: &Outermost, keys: &[&str]) -> Vec<bool> {
        keys.iter().map(|key| outermost.holds(&Key::new(*key))).collect()
    }

    #[test]
    fn nothing_is_held_before_a_directory_was_noted() {
        assert_eq!(holds(&noted(&[]), &["", "a", "a/"]), [false, false, false]);
    }

    #[test]
    fn a_directory_holds_itself_and_what_is_in_it_and_no_longer_name() {
        assert_eq!(holds(&noted(&["a/"]), &["a/", "a/b", "a/b/c"]), [true, true, true]);
        assert_eq!(holds(&noted(&["a/"]), &["a", "a-b", "a-b/", "ab/c", "b/a/"]), [false; 5]);
    }

    #[test]
    fn what_lies_in_the_outermost_does_not_take_its_place() {
        assert_eq!(holds(&noted(&["a/", "a/b/", "a/b/c/"]), &["a/z", "a/b/z"]), [true, true]);
    }

    #[test]
    fn a_later_directory_outside_becomes_the_outermost() {
        // In the order of a walk: `-` comes before `/`.
        assert_eq!(holds(&noted(&["a-b/", "a/", "a/b/"]), &["a-b/z", "a/z"]), [false, true]);
        assert_eq!(holds(&noted(&["a/b/", "a/c/"]), &["a/", "a/b/z", "a/c/z"]), [false, false, true]);
    }

    #[test]
    fn the_root_holds_everything() {
        assert_eq!(holds(&noted(&["", "a/"]), &["", "a/", "z"]), [true, true, true]);
    }
}
