//! Contents of a memory store, and the table of all of them in this process.

use bytes::Bytes;
use haul_core::{Entry, Error, ErrorKind, Hashes, Key, Kind, Meta, Mtime, Result, Version, plan::Replace};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Parts of a write, by number: offset and bytes.
pub(super) type Parts = Mutex<BTreeMap<u64, (u64, Bytes)>>;

/// One bucket.
#[derive(Default)]
pub(super) struct Space(Mutex<State>);

#[derive(Default)]
pub(super) struct State {
    pub exists: bool,
    pub items: BTreeMap<Vec<u8>, Item>,
    /// Parts of writes that can be found again, by token.
    pub writes: BTreeMap<Vec<u8>, Arc<Parts>>,
}

/// The entry under one key.
#[derive(Clone)]
pub(super) struct Item {
    pub kind: Kind,
    pub bytes: Bytes,
    pub mtime: Option<Mtime>,
    pub meta: Option<Box<Meta>>,
    pub hashes: Hashes,
    changed: Mtime,
    /// Number of the change that stored it, never used twice: two stores have no version in common.
    change: u64,
}

/// The spaces that are opened by name, which stay, and those that tests make, which go with their last store.
static NAMED: Mutex<BTreeMap<Vec<u8>, Arc<Space>>> = Mutex::new(BTreeMap::new());
static UNNAMED: Mutex<BTreeMap<Vec<u8>, Weak<Space>>> = Mutex::new(BTreeMap::new());

/// The space of this name, made when it is first asked for.
pub(super) fn named(name: &[u8]) -> Arc<Space> {
    NAMED.lock().unwrap_or_else(|e| e.into_inner()).entry(name.to_vec()).or_default().clone()
}

/// A new space and a name by which [`find`] finds it.
pub(super) fn unnamed() -> (Vec<u8>, Arc<Space>) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("\0{}", COUNT.fetch_add(1, Ordering::Relaxed)).into_bytes();
    let space = Arc::new(Space::default());
    let mut table = UNNAMED.lock().unwrap_or_else(|e| e.into_inner());
    table.retain(|_, space| space.strong_count() > 0);
    table.insert(name.clone(), Arc::downgrade(&space));
    (name, space)
}

/// The space and prefix of a [`haul_store::Domain::place`].
pub(super) fn find(place: &[u8]) -> Option<(Arc<Space>, Vec<u8>)> {
    let at = place.iter().position(|b| *b == b'/')?;
    let (name, prefix) = (&place[..at], place[at + 1..].to_vec());
    let unnamed = UNNAMED.lock().unwrap_or_else(|e| e.into_inner()).get(name).and_then(Weak::upgrade);
    let space = unnamed.or_else(|| NAMED.lock().unwrap_or_else(|e| e.into_inner()).get(name).cloned());
    Some((space?, prefix))
}

fn next_change() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Space {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Item {
    pub(super) fn file(bytes: Bytes, mtime: Option<Mtime>, meta: Option<Box<Meta>>, hashes: Hashes) -> Self {
        Item { kind: Kind::File, bytes, mtime, meta, hashes, changed: Mtime(0), change: 0 }
    }

    pub(super) fn version(&self) -> Option<Version> {
        (self.kind == Kind::File).then(|| Version::new(self.change.to_be_bytes()))
    }

    pub(super) fn entry(&self, key: Key, with_meta: bool) -> Entry {
        Entry {
            key,
            kind: self.kind,
            size: self.bytes.len() as u64,
            mtime: Some(self.mtime.unwrap_or(self.changed)),
            changed: Some(self.changed),
            version: self.version(),
            hashes: self.hashes.clone(),
            meta: self.meta.clone().filter(|_| with_meta),
            posix: None,
            sized: true,
            damaged: false,
        }
    }
}

impl State {
    /// Stores an item and gives its version.
    pub(super) fn put(&mut self, full: Vec<u8>, mut item: Item) -> Version {
        item.change = next_change();
        item.changed = Mtime(jiff::Timestamp::now().as_nanosecond());
        let version = Version::new(item.change.to_be_bytes());
        self.items.insert(full, item);
        version
    }

    /// Keeps the parts of a write until it ends, and gives their token.
    pub(super) fn keep(&mut self, full: &[u8], parts: &Arc<Parts>) -> Vec<u8> {
        let token = [full, b"\0", &next_change().to_be_bytes()].concat();
        self.writes.insert(token.clone(), parts.clone());
        token
    }

    pub(super) fn make_dir(&mut self, full: Vec<u8>, mtime: Option<Mtime>, meta: Option<Box<Meta>>) {
        match self.items.get_mut(&full) {
            Some(dir) => {
                dir.mtime = mtime.or(dir.mtime);
                dir.meta = meta.or(dir.meta.take());
            }
            None => {
                let dir = Item { kind: Kind::Dir, ..Item::file(Bytes::new(), mtime, meta, Hashes::default()) };
                self.put(full, dir);
            }
        }
    }

    /// Makes the directories above `full`, as a disk has them.
    pub(super) fn make_parents(&mut self, op: &'static str, key: &Key, full: &[u8]) -> Result<()> {
        let parent = haul_core::key::parent(full);
        let ends: Vec<usize> = (0..parent.len()).filter(|at| parent[*at] == b'/').collect();
        for end in ends {
            self.refuse_file_at(op, key, &parent[..=end])?;
            self.make_dir(parent[..=end].to_vec(), None, None);
        }
        Ok(())
    }

    /// An error when a file is where the directory `full` should be.
    pub(super) fn refuse_file_at(&self, op: &'static str, key: &Key, full: &[u8]) -> Result<()> {
        match self.items.contains_key(full.strip_suffix(b"/").unwrap_or(full)) {
            true => Err(Error::new(ErrorKind::Exists, op, "a file is where a directory is needed").with_key(key)),
            false => Ok(()),
        }
    }

    pub(super) fn check_replace(&self, op: &'static str, key: &Key, full: &[u8], replace: &Replace) -> Result<()> {
        let there = self.items.get(full);
        match replace {
            Replace::Absent if there.is_some() => {
                Err(Error::new(ErrorKind::Exists, op, "already exists").with_key(key))
            }
            Replace::Exactly(want) if there.and_then(Item::version).as_ref() != Some(want) => {
                Err(super::changed(op, key))
            }
            _ => Ok(()),
        }
    }
}
