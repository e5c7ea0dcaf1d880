//! File systems that take two names for one, by case: a regular file that came under one name in this run is not replaced under
//! another. What was there before is none of its business, nor are symlinks, devices, FIFOs and further hard links.

use super::{
    dir::Dir,
    hidden::{Owner, Suffix, temp_name},
    meta, publish,
};
use haul_core::{Error, ErrorKind, Key, Result, key::parent};
use rustix::{
    fs::{Mode, OFlags, RawDir, StatxFlags},
    io::Errno,
};
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

/// Most files that are remembered: what comes after them may be replaced. At some 200 bytes each this is 200 MB, and only where names
/// are folded.
const MOST: usize = 1 << 20;

/// Files without a letter in their names after which a hidden name with some is made to find out.
const LETTERLESS: usize = 1000;

/// Folders whose files get their names at the same time, at most.
const FOLDERS: usize = 32;

/// State of knowledge about a file system's names.
const UNKNOWN: u8 = 0;
const EXACT: u8 = 1;
const FOLDED: u8 = 2;

/// Files written to a destination, remembered only where names are folded, or while that isn't known.
#[derive(Default)]
pub(super) struct WrittenFiles {
    names: AtomicU8,
    files: Mutex<Files>,
    /// By hash of a folder's key in small letters: two names of one file may come at once.
    folders: [Mutex<()>; FOLDERS],
}

/// Identity of a file under another name: its inode, and its key in lower case (file systems in user space give each name an inode
/// number of its own).
struct FileIdentity<'a> {
    inode: Option<(u32, u32, u64)>,
    key: &'a Key,
}

/// By hash of what a file may be found by, its key.
#[derive(Default)]
struct Files {
    seed: RandomState,
    keys: HashMap<u64, Key>,
}

impl Files {
    fn hashes(&self, found: &FileIdentity<'_>) -> [Option<u64>; 2] {
        [found.inode.map(|inode| self.seed.hash_one(inode)), Some(self.seed.hash_one(small(found.key.as_bytes())))]
    }

    /// The other keys under which it may have been made.
    fn others(&self, found: &FileIdentity<'_>) -> Vec<Key> {
        let known = self.hashes(found).into_iter().flatten().filter_map(|hash| self.keys.get(&hash));
        known.filter(|key| *key != found.key).cloned().collect()
    }

    fn note(&mut self, found: &FileIdentity<'_>) {
        if self.keys.len() < 2 * MOST {
            self.keys.extend(self.hashes(found).into_iter().flatten().map(|hash| (hash, found.key.clone())));
        }
    }
}

impl WrittenFiles {
    /// Runs `publish`, which puts a file at `name` in `dir`.
    ///
    /// Errors: those of `publish`; `Exists` where this run wrote the existing file under another name.
    pub(super) fn publish<T>(
        &self,
        (op, key): (&'static str, &Key),
        (dir, name): (&Dir, &[u8]),
        publish: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.names.load(Ordering::Relaxed) == EXACT {
            return publish();
        }
        let folder = self.files().seed.hash_one(small(parent(key.as_bytes()))) % FOLDERS as u64;
        let folder = usize::try_from(folder).unwrap_or_default();
        let _alone = self.folders[folder].lock().unwrap_or_else(PoisonError::into_inner);
        if let there @ Some(_) = inode(dir, name) {
            let others = self.files().others(&FileIdentity { inode: there, key });
            if others.iter().any(|other| is_one(dir, key, other)) {
                let message = "the destination's file system takes this name for that of another file that was just \
                               copied: rename one of the two";
                return Err(Error::new(ErrorKind::Exists, op, message).with_key(key));
            }
        }
        let done = publish()?;
        if self.names.load(Ordering::Relaxed) == UNKNOWN {
            let names = match other_case(name) {
                Some(other) => folds(dir, name, &other),
                None if self.files().keys.len() < 2 * LETTERLESS => UNKNOWN,
                None => ask(dir),
            };
            // Another may have found out meanwhile.
            let _ = self.names.compare_exchange(UNKNOWN, names, Ordering::Relaxed, Ordering::Relaxed);
        }
        match self.names.load(Ordering::Relaxed) {
            EXACT => self.files().keys = HashMap::new(),
            _ => {
                let inode = inode(dir, name);
                self.files().note(&FileIdentity { inode, key });
            }
        }
        Ok(done)
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In lower case; in names that aren't text only ASCII letters change, so that only letters can make two names equal.
fn small(key: &[u8]) -> Vec<u8> {
    std::str::from_utf8(key).map_or_else(|_| key.to_ascii_lowercase(), |text| text.to_lowercase().into_bytes())
}

/// False when the file system shows both names where the two keys differ, so takes them for two: of other letters than it folds, say.
///
/// Of keys in quite different folders nothing is known but that they have one inode.
fn is_one(dir: &Dir, key: &Key, other: &Key) -> bool {
    let (one, two) = (key.as_bytes(), other.as_bytes());
    if parent(one) != parent(two) && small(one) != small(two) {
        return true;
    }
    let mut folder = b".".to_vec();
    for (one, two) in one.rsplit(|b| *b == b'/').zip(two.rsplit(|b| *b == b'/')) {
        if one != two && shows_both(dir, &folder, one, two) == Some(true) {
            return false;
        }
        folder.extend(b"/..");
    }
    true
}

/// The name with large letters for small ones and the reverse; `None` where that is the same name.
fn other_case(name: &[u8]) -> Option<Vec<u8>> {
    let swap = |b: &u8| if b.is_ascii_lowercase() { b.to_ascii_uppercase() } else { b.to_ascii_lowercase() };
    let other: Vec<u8> = name.iter().map(swap).collect();
    (other != name).then_some(other)
}

/// Folded when a name with the other case is there too, and a listing shows only one of them (which may be the other).
fn folds(dir: &Dir, name: &[u8], other: &[u8]) -> u8 {
    if inode(dir, other).is_none() {
        return EXACT;
    }
    match shows_both(dir, b".", name, other) {
        Some(true) => EXACT,
        Some(false) => FOLDED,
        None => UNKNOWN,
    }
}

/// Tests folding with a hidden file made for that. Where it can't be made, names may be folded.
fn ask(dir: &Dir) -> u8 {
    let name = temp_name(Owner::Process, b"case", Suffix::OWN);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(dir, &name[..], flags, publish::first_mode(true));
    let there = other_case(&name).map(|other| meta::facts_at(dir, &other, false, StatxFlags::INO));
    if made.is_ok() {
        publish::discard(dir, &name);
    }
    match there {
        Some(Err(Errno::NOENT)) if made.is_ok() => EXACT,
        _ => FOLDED,
    }
}

/// True when the folder at `path` from `dir` shows both names; `None` when it can't be listed.
fn shows_both(dir: &Dir, path: &[u8], one: &[u8], other: &[u8]) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, path, flags, Mode::empty()).ok()?;
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut items = RawDir::new(&fd, buffer.spare_capacity_mut());
    let mut shown = [false; 2];
    while let Some(item) = items.next() {
        let item = item.ok()?;
        let name = item.file_name().to_bytes();
        shown = [shown[0] || name == one, shown[1] || name == other];
        if shown == [true; 2] {
            return Some(true);
        }
    }
    Some(false)
}

fn inode(dir: &Dir, name: &[u8]) -> Option<(u32, u32, u64)> {
    meta::facts_at(dir, name, false, StatxFlags::INO).ok().map(|st| meta::id(&st))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use haul_testkit::fuse::{FsBehaviour, MountedFs};
    use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

    #[test]
    fn the_other_case_is_another_name_or_none() {
        assert_eq!(other_case(b"Ab1.\xff"), Some(b"aB1.\xff".to_vec()));
        assert_eq!(other_case("1é".as_bytes()), None);
    }

    #[test]
    fn a_file_is_found_by_inode_and_by_small_letters_but_is_never_anothers_under_its_own_key() {
        let mut files = Files::default();
        let is_anothers = |files: &Files, key: &str, ino| {
            !files.others(&FileIdentity { inode: Some((0, 0, ino)), key: &Key::new(key) }).is_empty()
        };
        files.note(&FileIdentity { inode: Some((0, 0, 7)), key: &Key::new("Dir/É") });
        assert!(!is_anothers(&files, "Dir/É", 7), "tried again");
        assert!(is_anothers(&files, "dir/é", 8), "another inode number for the other name");
        assert!(is_anothers(&files, "Dir/e\u{301}", 7), "another form of the letter");
        assert!(!is_anothers(&files, "other/é", 8));
    }

    /// Writes a file as a copy does.
    fn publish(made: &WrittenFiles, root: &Path, key: &[u8]) -> Result<()> {
        let path = root.join(OsStr::from_bytes(key));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let dir: Dir = Arc::new(fs::File::open(path.parent().unwrap()).unwrap().into());
        let key = Key::new(key);
        made.publish(("copy", &key), (&dir, haul_core::key::name(key.as_bytes())), || {
            fs::write(root.join("hidden"), "new").unwrap();
            fs::rename(root.join("hidden"), &path).unwrap();
            Ok(())
        })
    }

    #[test]
    fn what_is_shown_twice_is_two_files_and_what_is_not_is_one() {
        let lab = tempfile::tempdir().unwrap();
        let habits = FsBehaviour { folds_case: true, ..FsBehaviour::default() };
        let Some(_net) = MountedFs::new(&lab.path().join("real"), &lab.path().join("net"), habits) else { return };
        let (made, root) = (WrittenFiles::default(), lab.path().join("net"));
        // Folded, but not these letters, nor names that aren't text: the existing file is found, and is another one.
        let apart =
            [["é".as_bytes(), "É".as_bytes()], ["é-/f".as_bytes(), "É-/f".as_bytes()], [&b"x\xe8"[..], &b"x\xe9"[..]]];
        for two in apart {
            for key in two {
                let path = root.join(OsStr::from_bytes(key));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "old").unwrap();
            }
            two.iter().for_each(|key| publish(&made, &root, key).unwrap());
            let kept = two.map(|key| fs::read(root.join(OsStr::from_bytes(key))).unwrap());
            assert_eq!(kept, [b"new", b"new"], "{}", two[0].escape_ascii());
        }
        for [one, other] in [["A", "a"], ["Dir/1", "dir/1"]] {
            publish(&made, &root, one.as_bytes()).unwrap();
            assert_eq!(publish(&made, &root, other.as_bytes()).unwrap_err().kind(), ErrorKind::Exists, "{other}");
        }
    }

    #[test]
    fn a_thousand_names_without_a_letter_hide_nothing() {
        let lab = tempfile::tempdir().unwrap();
        let habits = FsBehaviour { folds_case: true, ..FsBehaviour::default() };
        let Some(_net) = MountedFs::new(&lab.path().join("real"), &lab.path().join("net"), habits) else { return };
        for (root, folded) in [("net", true), ("plain", false)] {
            let (made, root) = (WrittenFiles::default(), lab.path().join(root));
            for number in 0..=LETTERLESS {
                publish(&made, &root, number.to_string().as_bytes()).unwrap();
            }
            assert_eq!(made.names.load(Ordering::Relaxed), if folded { FOLDED } else { EXACT });
            publish(&made, &root, b"A").unwrap();
            assert_eq!(publish(&made, &root, b"a").is_err(), folded);
            assert_eq!(fs::read_dir(&root).unwrap().count(), LETTERLESS + if folded { 2 } else { 3 });
        }
    }

    #[test]
    fn files_of_different_folders_get_their_names_at_once() {
        let lab = tempfile::tempdir().unwrap();
        let (made, root) = (WrittenFiles::default(), lab.path());
        let (tell, told) = std::sync::mpsc::channel();
        let (key, dir) = (Key::new("1/1"), Arc::new(fs::File::open(root).unwrap().into()));
        std::thread::scope(|scope| {
            let published = made.publish(("copy", &key), (&dir, b"1"), || {
                // Some may share a lock with the first, not all.
                for number in 2..12 {
                    let (made, dir, tell) = (&made, &dir, tell.clone());
                    scope.spawn(move || {
                        let key = Key::new(format!("{number}/1"));
                        made.publish(("copy", &key), (dir, b"1"), || Ok(tell.send(()))).unwrap().unwrap();
                    });
                }
                Ok(told.recv_timeout(std::time::Duration::from_secs(30)))
            });
            published.unwrap().unwrap();
        });
    }
}
