//! File systems that take two names for one (by case, or by the form of a character): what came under one name in this run is not
//! replaced under another. What was there before is none of its business.

use super::{dir::Dir, meta};
use haul_core::{Error, ErrorKind, Key, Result};
use rustix::fs::{Mode, OFlags, RawDir, StatxFlags};
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{
        Mutex,
        atomic::{AtomicU8, Ordering},
    },
};

/// Most files that are remembered: what comes after them may be replaced. 64 MB, and only where names are folded.
const MOST: usize = 1 << 20;

/// Files without a letter in their names after which it isn't asked any more whether there are two names for one.
const LETTERLESS: usize = 1000;

/// What is known of a file system's names.
const UNKNOWN: u8 = 0;
const EXACT: u8 = 1;
const FOLDED: u8 = 2;

/// What was made at a destination, remembered only where names are folded, or while that isn't known.
#[derive(Default)]
pub(super) struct Made {
    names: AtomicU8,
    files: Mutex<Files>,
}

/// A file as it may be found again: its inode, and its key in small letters (file systems in user space give each name an inode
/// number of its own).
struct Found<'a> {
    inode: Option<(u32, u32, u64)>,
    key: &'a Key,
}

/// By hash of what a file may be found by, the hash of its key.
#[derive(Default)]
struct Files {
    seed: RandomState,
    keys: HashMap<u64, u64>,
}

impl Files {
    fn hashes(&self, found: &Found<'_>) -> [Option<u64>; 2] {
        let small = String::from_utf8_lossy(found.key.as_bytes()).to_lowercase();
        [found.inode.map(|inode| self.seed.hash_one(inode)), Some(self.seed.hash_one(small))]
    }

    /// True when it was made under another key.
    fn is_anothers(&self, found: &Found<'_>) -> bool {
        let this = self.seed.hash_one(found.key);
        self.hashes(found).iter().flatten().any(|hash| self.keys.get(hash).is_some_and(|key| *key != this))
    }

    fn note(&mut self, found: &Found<'_>) {
        if self.keys.len() < 2 * MOST {
            let this = self.seed.hash_one(found.key);
            self.keys.extend(self.hashes(found).iter().flatten().map(|hash| (*hash, this)));
        }
    }
}

impl Made {
    /// Runs `publish`, which puts a file at `name` in `dir`.
    ///
    /// Errors: those of `publish`; `Exists` where the file there came in this run, under another name.
    pub(super) fn publish<T>(
        &self,
        (op, key): (&'static str, &Key),
        (dir, name): (&Dir, &[u8]),
        publish: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.names.load(Ordering::Relaxed) == EXACT {
            return publish();
        }
        // Two names of one file may come at once.
        let mut files = self.files.lock().unwrap_or_else(|e| e.into_inner());
        if let there @ Some(_) = inode(dir, name)
            && files.is_anothers(&Found { inode: there, key })
        {
            let message = "the destination's file system takes this name for that of another file that was just copied: \
                           rename one of the two";
            return Err(Error::new(ErrorKind::Exists, op, message).with_key(key));
        }
        let done = publish()?;
        if self.names.load(Ordering::Relaxed) == UNKNOWN {
            let names = match other_case(name) {
                Some(other) if folds(dir, name, &other) => FOLDED,
                None if files.keys.len() < 2 * LETTERLESS => UNKNOWN,
                _ => EXACT,
            };
            self.names.store(names, Ordering::Relaxed);
        }
        match self.names.load(Ordering::Relaxed) {
            EXACT => files.keys = HashMap::new(),
            _ => files.note(&Found { inode: inode(dir, name), key }),
        }
        Ok(done)
    }
}

/// The name with large letters for small ones and the reverse; `None` where that is the same name.
fn other_case(name: &[u8]) -> Option<Vec<u8>> {
    let swap = |b: &u8| if b.is_ascii_lowercase() { b.to_ascii_uppercase() } else { b.to_ascii_lowercase() };
    let other: Vec<u8> = name.iter().map(swap).collect();
    (other != name).then_some(other)
}

/// True when a name with the other case is there too, and a listing shows only one of them (which may be the other).
fn folds(dir: &Dir, name: &[u8], other: &[u8]) -> bool {
    inode(dir, other).is_some() && !(is_listed(dir, name) && is_listed(dir, other))
}

fn is_listed(dir: &Dir, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(dir, c".", flags, Mode::empty()) else { return true };
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut items = RawDir::new(&fd, buffer.spare_capacity_mut());
    while let Some(item) = items.next() {
        match item {
            Ok(item) if item.file_name().to_bytes() == name => return true,
            Ok(_) => {}
            Err(_) => return true,
        }
    }
    false
}

fn inode(dir: &Dir, name: &[u8]) -> Option<(u32, u32, u64)> {
    let st = meta::facts_at(dir, name, false, StatxFlags::INO).ok()?;
    Some((st.stx_dev_major, st.stx_dev_minor, st.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_case_is_another_name_or_none() {
        assert_eq!(other_case(b"Ab1.\xff"), Some(b"aB1.\xff".to_vec()));
        assert_eq!(other_case("1é".as_bytes()), None);
    }

    #[test]
    fn a_file_is_found_by_inode_and_by_small_letters_but_is_never_anothers_under_its_own_key() {
        let mut files = Files::default();
        let is_anothers =
            |files: &Files, key: &str, ino| files.is_anothers(&Found { inode: Some((0, 0, ino)), key: &Key::new(key) });
        files.note(&Found { inode: Some((0, 0, 7)), key: &Key::new("Dir/É") });
        assert!(!is_anothers(&files, "Dir/É", 7), "tried again");
        assert!(is_anothers(&files, "dir/é", 8), "another inode number for the other name");
        assert!(is_anothers(&files, "Dir/e\u{301}", 7), "another form of the letter");
        assert!(!is_anothers(&files, "other/é", 8));
    }
}
