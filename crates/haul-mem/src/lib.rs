//! A store in memory (`memory`): a bucket that lives as long as the process. For tests, and for trying things out.
//!
//! It keeps every promise of the contract in the simplest way, and its abilities can be set, so that the engine can be
//! tried against stores of any make.

mod space;
mod upload;

use futures::{
    StreamExt,
    future::{BoxFuture, ready},
    stream,
    stream::BoxStream,
};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Kind, Listed, Meta, MissedRange, Mtime, Result, Version};
use haul_store::{
    Body, Caps, ChangedMeaning, CopyBatch, CopyHow, CopyItem, Domain, ListRequest, OpenRequest, PartLimits, Read,
    Resumable, ResumedWrite, SentPart, Store, StoreKind, StoredFacts, Upload, Watch, WriteSpec,
};
use space::{Item, Space};
use std::{fmt, ops::Range, sync::Arc, time::Duration};

/// The kind.
pub const KIND: StoreKind =
    StoreKind { name: "memory", description: "In memory, gone when haul ends", options: &[], open };

/// Bytes of one piece of a body: what a network store would give at a time.
const PIECE: usize = 64 << 10;
/// Entries of a batch.
const BATCH: usize = 1000;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let path = request.path.as_slice();
    let (bucket, folder) = match path.iter().position(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (path, &b""[..]),
    };
    let mut prefix = folder.strip_suffix(b"/").unwrap_or(folder).to_vec();
    if !prefix.is_empty() {
        prefix.push(b'/');
    }
    let name = [request.remote.as_bytes(), b":", bucket].concat();
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(path));
    Ok(Arc::new(MemStore::in_space(space::named(&name), &name, prefix, locator)))
}

/// A store in memory.
#[derive(Clone)]
pub struct MemStore {
    locator: String,
    caps: Caps,
    space: Arc<Space>,
    /// Prefix of all of this store's keys in the space: empty, or a folder with its `/`.
    prefix: Vec<u8>,
}

impl fmt::Debug for MemStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemStore({:?})", self.locator)
    }
}

impl Default for MemStore {
    fn default() -> Self {
        MemStore::new()
    }
}

impl MemStore {
    /// An empty store with a space of its own, whose root exists already.
    pub fn new() -> Self {
        let (name, space) = space::unnamed();
        space.lock().exists = true;
        MemStore::in_space(space, &name, Vec::new(), ":memory:".into())
    }

    /// With other abilities: `caps` may change any of them. `dirs` makes it behave like a disk, with directories that
    /// exist by themselves; `keeps_empty_dirs` alone gives markers, as in a bucket.
    pub fn with_caps(mut self, change: impl FnOnce(&mut Caps)) -> Self {
        change(&mut self.caps);
        self
    }

    fn in_space(space: Arc<Space>, name: &[u8], prefix: Vec<u8>, locator: String) -> Self {
        let place = [name, b"/", &prefix].concat();
        let caps = Caps {
            mtime: Some(Duration::from_nanos(1)),
            set_mtime: true,
            set_dir_mtime: false,
            mtime_listed: true,
            changed: ChangedMeaning::Stored,
            dirs: false,
            symlinks: false,
            keeps_empty_dirs: false,
            hashes_listed: vec![Algo::Md5],
            hashes_stored: vec![Algo::Md5],
            cheap_reads: true,
            written_in_place: false,
            listing_may_omit: false,
            files: false,
            parts: Some(PartLimits {
                min: 1,
                max: 1 << 40,
                count: 1 << 32,
                preferred: 8 << 20,
                chosen: false,
                multiple: 1,
                equal: false,
                waits: false,
                sized: false,
                single: 8 << 20,
                single_copy: u64::MAX,
            }),
            domain: Some(Domain { name: "memory".into(), place: place.into(), on_device: None }),
            place: None,
            renames: true,
            renames_dirs: false,
            delete_batch: 1000,
            conditional: true,
            deletes_version: true,
            page: None,
            case_insensitive: false,
            meta: true,
            attributes: None,
            modes: false,
            concurrency: 16,
            copy_batch: 1,
            gathers: 0,
            rests_on: Vec::new(),
            relays: true,
        };
        MemStore { locator, caps, space, prefix }
    }

    /// Refuses what can't be a file's name here; with directories, what couldn't be on a disk.
    fn check_file(&self, op: &'static str, key: &Key) -> Result<()> {
        let odd = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
        if key.is_root() || self.caps.dirs && key.as_bytes().split(|b| *b == b'/').any(odd) {
            return Err(Error::new(ErrorKind::Invalid, op, "this can't be the name of a file").with_key(key));
        }
        Ok(())
    }

    fn full(&self, key: &Key) -> Vec<u8> {
        [&self.prefix, key.as_bytes()].concat()
    }

    fn entry(&self, full: &[u8], item: &Item, with_meta: bool) -> Entry {
        let key = Key::new(&full[self.prefix.len()..]);
        item.entry(key, with_meta)
    }

    /// All keys of a request, and whether the bucket exists.
    fn entries(&self, request: &ListRequest) -> Option<Vec<Entry>> {
        let state = self.space.lock();
        if !state.exists {
            return None;
        }
        let begin = [&self.prefix[..], &request.prefix].concat();
        let after = request.after.as_ref().map(|key| self.full(key));
        // One more shows whether there are more.
        let limit = request.limit.unwrap_or(usize::MAX).max(1).saturating_add(1);
        let mut entries: Vec<Entry> = Vec::new();
        for (full, item) in state.items.range(begin.clone()..).take_while(|(full, _)| full.starts_with(&begin)) {
            let key = &full[self.prefix.len()..];
            // The listed directory itself isn't in the listing.
            if key == request.prefix && (key.is_empty() || key.ends_with(b"/")) {
                continue;
            }
            let rest = &key[request.prefix.len()..];
            let cut = if request.recursive { None } else { rest.iter().position(|b| *b == b'/') };
            let entry = match cut {
                Some(at) if at + 1 < rest.len() => Entry::dir(Key::new(&key[..request.prefix.len() + at + 1])),
                _ => self.entry(full, item, request.meta),
            };
            let again = entries.last().is_some_and(|last| last.key == entry.key);
            let early = after.as_ref().is_some_and(|after| self.full(&entry.key) <= *after);
            if again || early || self.pruned(request, entry.key.as_bytes()) {
                continue;
            }
            entries.push(entry);
            if entries.len() >= limit {
                break;
            }
        }
        Some(entries)
    }

    fn pruned(&self, request: &ListRequest, key: &[u8]) -> bool {
        let mut dirs = (request.prefix.len()..key.len()).filter(|at| key[*at] == b'/');
        dirs.any(|at| !request.descends(&key[..=at]))
    }

    fn missing(&self, op: &'static str) -> Error {
        let name = self.locator.split('/').next().unwrap_or(&self.locator);
        Error::new(ErrorKind::DirNotFound, op, format!("{name}: no such bucket"))
    }

    fn stat_now(&self, key: &Key) -> Result<Entry> {
        const OP: &str = "stat";
        let state = self.space.lock();
        if !state.exists {
            return Err(self.missing(OP));
        }
        let full = self.full(key);
        let below = |full: &[u8]| state.items.range(full.to_vec()..).next().is_some_and(|(k, _)| k.starts_with(full));
        if key.is_root() {
            return match self.prefix.is_empty() || below(&full) {
                true => Ok(Entry::dir(Key::new(""))),
                false => Err(Error::new(ErrorKind::DirNotFound, OP, format!("{}: no such directory", self.locator))),
            };
        }
        match state.items.get(&full) {
            Some(item) => Ok(self.entry(&full, item, true)),
            None if key.is_dir() && below(&full) => Ok(Entry::dir(key.clone())),
            None => Err(not_found(OP, key)),
        }
    }

    fn read_now(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
        const OP: &str = "read";
        let state = self.space.lock();
        let full = self.full(key);
        let item = state.items.get(&full).filter(|item| item.kind == Kind::File).ok_or_else(|| not_found(OP, key))?;
        let entry = self.entry(&full, item, true);
        if want.is_some() && want != entry.version.as_ref() {
            return Err(changed(OP, key));
        }
        let range = range.unwrap_or(0..entry.size);
        let end = range.end.min(entry.size);
        let bytes = item.bytes.slice(range.start.min(end) as usize..end as usize);
        let pieces = (0..bytes.len()).step_by(PIECE);
        let body = stream::iter(pieces.map(move |at| Ok(bytes.slice(at..(at + PIECE).min(bytes.len())))));
        Ok(Read { entry, body: Body::Stream(body.boxed()) })
    }

    fn make_dir_now(&self, key: &Key, spec: &WriteSpec) -> Result<()> {
        let mut state = self.space.lock();
        state.exists = true;
        let full = self.full(key);
        if key.is_root() || !self.caps.has_dirs() {
            return Ok(());
        }
        let full = if key.is_dir() { full } else { [&full[..], b"/"].concat() };
        if self.caps.dirs {
            state.make_parents("mkdir", key, &full)?;
            state.refuse_file_at("mkdir", key, &full)?;
        }
        state.make_dir(full, spec.mtime, spec.meta.clone());
        Ok(())
    }

    fn copy_one(&self, from: &[u8], item: &CopyItem) -> Result<StoredFacts> {
        const OP: &str = "copy";
        if item.how.needs_inodes() {
            return Err(Error::new(ErrorKind::Unsupported, OP, "memory has no hard links, devices or attributes")
                .with_key(&item.to));
        }
        let (space, prefix) = space::find(from)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, OP, "the source isn't in memory").with_key(&item.to))?;
        let full = [&prefix, item.from.as_bytes()].concat();
        let found = {
            let state = space.lock();
            let found = state.items.get(&full).filter(|item| item.kind == Kind::File);
            found.ok_or_else(|| not_found(OP, &item.from))?.clone()
        };
        if item.want.is_some() && item.want != found.version() {
            return Err(changed(OP, &item.from));
        }
        let mut copy = found.clone();
        copy.mtime = item.spec.mtime.or(found.mtime);
        copy.meta = item.spec.meta.clone().or(found.meta.clone());
        let size = copy.bytes.len() as u64;
        let mut stored = self.put(OP, &item.to, &item.spec, copy)?;
        if item.how == CopyHow::Rename && (from, &item.from) != (self.place(), &item.to) {
            space.lock().items.remove(&full);
        }
        stored.size = size;
        Ok(stored)
    }

    fn place(&self) -> &[u8] {
        self.caps.domain.as_ref().map_or(b"", |domain| &domain.place)
    }

    /// Stores `item` under the condition of `spec`, its hashes checked and kept.
    fn put(&self, op: &'static str, key: &Key, spec: &WriteSpec, item: Item) -> Result<StoredFacts> {
        let full = self.full(key);
        let mut state = self.space.lock();
        state.check_replace(op, key, &full, &spec.replace)?;
        if self.caps.dirs {
            state.make_parents(op, key, &full)?;
            if state.items.contains_key(&[&full[..], b"/"].concat()) {
                return Err(Error::new(ErrorKind::Exists, op, "is a directory").with_key(key));
            }
        }
        state.exists = true;
        let size = item.bytes.len() as u64;
        let hashes = item.hashes.clone();
        let version = state.put(full, item);
        Ok(StoredFacts { version: Some(version), size, hashes, ..StoredFacts::default() })
    }

    fn set_meta_now(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> Result<()> {
        let mut state = self.space.lock();
        if key.is_root() {
            return Ok(());
        }
        let item = state.items.get_mut(&self.full(key)).ok_or_else(|| not_found("set_meta", key))?;
        item.mtime = mtime.or(item.mtime);
        if let Some(meta) = meta {
            item.meta = Some(Box::new(meta.clone()));
        }
        Ok(())
    }

    fn delete_one(&self, key: &Key, version: Option<&Version>) -> Result<()> {
        const OP: &str = "delete";
        let mut state = self.space.lock();
        let full = self.full(key);
        let not_empty = || Err(Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key));
        if key.is_root() || key.is_dir() {
            let held = state.items.range(full.clone()..).find(|(k, _)| **k != full || key.is_root());
            if held.is_some_and(|(k, _)| k.starts_with(&full)) {
                return not_empty();
            }
        }
        if key.is_root() {
            if self.prefix.is_empty() {
                state.exists = false;
            }
            return Ok(());
        }
        if let (Some(want), Some(item)) = (version, state.items.get(&full))
            && item.version().as_ref() != Some(want)
        {
            return Err(changed(OP, key));
        }
        state.items.remove(&full);
        Ok(())
    }
}

pub(crate) fn not_found(op: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, op, "no such key").with_key(key)
}

fn changed(op: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::Changed, op, "changed since it was listed").with_key(key)
}

impl Store for MemStore {
    fn locator(&self) -> &str {
        &self.locator
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let Some(mut entries) = self.entries(&request) else {
            let error = self.missing("list");
            return stream::iter([Listed::Failed { lost: MissedRange::from(Key::new("")), error }]).boxed();
        };
        let limit = request.limit.unwrap_or(usize::MAX).max(1);
        let end = (entries.len() <= limit).then_some(Listed::End);
        entries.truncate(limit);
        let batches: Vec<Listed> = entries.chunks(BATCH).map(|chunk| Listed::Batch(chunk.to_vec())).collect();
        stream::iter(batches.into_iter().chain(end)).boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        Box::pin(async move { self.stat_now(&key) })
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        Box::pin(async move { self.read_now(&key, want.as_ref(), range) })
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let begin = self.check_file("write", key).map(|()| upload::begin(self.clone(), key.clone(), spec));
        Box::pin(ready(begin))
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let (key, spec) = (key.clone(), spec.clone());
        Box::pin(async move { self.make_dir_now(&key, &spec) })
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        Box::pin(async move {
            let one = |(number, item)| {
                let stored = self.copy_one(&batch.from, item)?;
                watch.copied(number, stored.size);
                Ok(stored)
            };
            batch.items.iter().enumerate().map(one).collect()
        })
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        Box::pin(async move { self.set_meta_now(&key, mtime, meta.as_ref()) })
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move { keys.iter().map(|(key, version)| self.delete_one(key, version.as_ref())).collect() })
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
}

impl Resumable for MemStore {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        Box::pin(ready(upload::resume(self.clone(), key.clone(), token, &sent, spec)))
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        Box::pin(ready(upload::discard(self, key, token)))
    }
}
