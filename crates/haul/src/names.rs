//! A job whose files have other names at the destination (`--name-transform`, `--ignore-case-sync`): the source is shown under the
//! new names, and a destination that copies by itself is given the old ones. The engine knows the new names only.
//!
//! New names have another order, so all entries of the source are held in memory.

use crate::{Cx, ListOptions, list, overlap::is_probe};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Listed, Meta, MissedRange, Mtime, Result, Version,
    attributes::FileAttributes,
    delta::{Chunking, Recipe},
    filter::Filter,
    names::{NewNames, folded},
};
use haul_store::{
    Admin, AttributesBatch, AttributesResult, Caps, CopyBatch, Deltas, Encrypted, EncryptedFile, Hashing, Inodes,
    Lanes, ListRequest, Read, Resumable, SettleItem, Store, StoredFacts, Upload, Watch, WriteSpec, none_offered,
    offered,
};
use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{Arc, Mutex},
};

/// Where the new names come from.
#[derive(Debug, Default)]
pub struct Naming {
    /// Transformations of the old ones.
    pub new: Option<NewNames>,
    /// Names at the destination: a file whose name differs only by case is the same.
    pub at_destination: Option<FoldedNames>,
}

/// Changes what a job sees of its two sides, so that it gives files new names.
pub fn rename(cx: &mut Cx, naming: Naming) {
    let names = Arc::new(Names { naming, old: Mutex::default() });
    let place = cx.src.caps().domain.as_ref().map(|domain| domain.place.clone());
    let renamed = Arc::new(cx.filter.for_renamed());
    let filter = std::mem::replace(&mut cx.filter, renamed);
    // Its listing isn't one that may begin anywhere: it is that of the whole, once.
    let caps = Caps { page: None, ..cx.src.caps().clone() };
    let (inner, gathered) = (cx.src.clone(), Arc::default());
    cx.src = Arc::new(Source { inner, caps, names: names.clone(), filter, gathered });
    if let Some(place) = place {
        cx.dst = Arc::new(Destination { inner: cx.dst.clone(), names, place });
    }
}

/// Names by their case-folded form: there may be several.
pub type FoldedNames = BTreeMap<String, Vec<Key>>;

/// Folded names of a destination.
///
/// Errors: it can't be listed whole: a file may then be there under another name.
pub async fn by_folded_names(
    dst: &Arc<dyn Store>,
    filter: &Arc<Filter>,
    max_depth: Option<usize>,
) -> Result<FoldedNames> {
    let options = ListOptions { max_depth, dirs: true, ..ListOptions::default() };
    let renamed = filter.for_renamed();
    let mut listing = list(dst, &Arc::new(renamed.for_listing_destination()), options);
    let mut names = FoldedNames::new();
    while let Some(step) = listing.next().await {
        match unmissed(&renamed, step) {
            Listed::Batch(entries) => {
                for entry in entries {
                    names.entry(folded(entry.key.as_bytes())).or_default().push(entry.key);
                }
            }
            Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => return Ok(names),
            // No error for a mount point that is left out.
            Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => {}
            Listed::Failed { error, .. } => return Err(error),
            Listed::Vanished(_) => {}
            Listed::End => return Ok(names),
        }
    }
    Err(Error::new(ErrorKind::Io, "list", "the listing broke off"))
}

/// A step of a destination's listing, for a job that gives new names: what can't be read of a directory that the rules leave out is asked for
/// by its keys, if that is needed.
pub fn unmissed(filter: &Filter, step: Listed) -> Listed {
    match step {
        Listed::Failed { lost, error }
            if error.key().is_some_and(|dir| dir.is_dir() && filter.leaves_alone(&Entry::dir(dir.clone()))) =>
        {
            let hidden = Error::new(ErrorKind::Hidden, "list", "a rule leaves the directory out");
            Listed::Failed { lost, error: hidden.with_key(error.key().unwrap_or(&Key::new(""))) }
        }
        step => step,
    }
}

impl Naming {
    /// The new name of one file.
    ///
    /// Errors: it can have none.
    pub fn of(&self, key: &Key) -> Result<Key> {
        let key = match &self.new {
            Some(names) => changed(names, key)?,
            None => key.clone(),
        };
        let there = self.at_destination.as_ref().and_then(|there| there.get(&folded(key.as_bytes())));
        // Its own name is the nearest.
        let other = there.filter(|there| !there.contains(&key)).and_then(|there| there.first());
        Ok(other.cloned().unwrap_or(key))
    }
}

fn changed(names: &NewNames, key: &Key) -> Result<Key> {
    let bad = |why: String| Error::new(ErrorKind::Invalid, "rename", why).with_key(key);
    let path = std::str::from_utf8(key.path()).map_err(|_| bad("its name isn't UTF-8".into()))?;
    let new = names.of(path, key.is_dir()).map_err(bad)?;
    Ok(match (key.is_dir(), key.is_symlink()) {
        (true, _) => Key::new(format!("{new}/")),
        (_, true) => Key::symlink(new),
        _ => Key::new(new),
    })
}

/// New names, and the old ones of those that were listed.
struct Names {
    naming: Naming,
    old: Mutex<BTreeMap<Key, Key>>,
}

impl Names {
    fn old(&self, new: &Key) -> Option<Key> {
        if new.is_root() {
            return Some(new.clone());
        }
        self.old.lock().unwrap_or_else(|e| e.into_inner()).get(new).cloned()
    }

    /// The old name of an entry that must have been listed.
    fn found(&self, op: &'static str, new: &Key) -> Result<Key> {
        let probe = || is_probe(new).then(|| self.beside(new));
        let missing = || Error::new(ErrorKind::NotFound, op, "the source has no such file").with_key(new);
        self.old(new).or_else(probe).ok_or_else(missing)
    }

    /// The key of what has no old name and lies beside files that have: in their directory.
    fn beside(&self, new: &Key) -> Key {
        let dir = new.parent();
        let old = self.old.lock().unwrap_or_else(|e| e.into_inner());
        let mut below = old.range(dir.clone()..).take_while(|(key, _)| key.as_bytes().starts_with(dir.as_bytes()));
        let neighbour = below.find(|(key, _)| !key.is_dir() && key.parent() == dir);
        new.leaf().below(neighbour.map_or(dir.clone(), |(_, old)| old.parent()).as_bytes())
    }
}

/// All entries of the source's listing, under the new names, in order; and the unknown parts, and why.
#[derive(Default)]
struct Gathered {
    entries: Vec<Entry>,
    failed: Vec<(MissedRange, ErrorKind, String, Option<Key>)>,
    vanished: Vec<Key>,
    ended: bool,
}

impl Gathered {
    /// Entries behind a directory that is left out by a marker in it, or by its kind, are known to exist.
    fn failed(&mut self, names: &Names, error: &Error) {
        let hidden = error.key().filter(|dir| error.kind() == ErrorKind::Hidden && dir.is_dir());
        match hidden.map(|dir| names.naming.of(dir)) {
            Some(Ok(dir)) => {
                self.failed.push((MissedRange::below(&dir), error.kind(), error.message().to_owned(), Some(dir)));
            }
            _ => self.lost(error),
        }
    }

    /// Unlisted keys are unknown from now on: their new names can't be computed.
    fn lost(&mut self, error: &Error) {
        let all = MissedRange { from: Key::new(""), to: None };
        self.failed.push((all, error.kind(), error.message().to_owned(), error.key().cloned()));
    }
}

/// The source.
struct Source {
    inner: Arc<dyn Store>,
    caps: Caps,
    names: Arc<Names>,
    /// On the old names.
    filter: Arc<Filter>,
    /// Entries found by the last walk that began at the top, for its further requests.
    gathered: Arc<tokio::sync::Mutex<Option<Arc<Gathered>>>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Renamed({:?})", self.inner)
    }
}

async fn gather(inner: &Arc<dyn Store>, filter: &Arc<Filter>, names: &Names, request: &ListRequest) -> Gathered {
    let options = ListOptions {
        dirs: true,
        meta: request.meta,
        posix: request.posix,
        for_join: true,
        one_device: request.one_device,
        omit_mounts: request.omit_mounts,
        ..ListOptions::default()
    };
    let mut all = Gathered::default();
    let mut listing = list(inner, filter, options);
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) => entries.into_iter().for_each(|entry| add(&mut all, names, entry)),
            Listed::Failed { error, .. } => all.failed(names, &error),
            Listed::Vanished(key) => all.vanished.extend(names.naming.of(&key)),
            Listed::End => all.ended = true,
        }
    }
    all.entries.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

/// Takes an entry in under its new name, unless it can have none, or another has it.
fn add(all: &mut Gathered, names: &Names, entry: Entry) {
    let key = match names.naming.of(&entry.key) {
        Ok(key) => key,
        Err(error) => return all.lost(&error),
    };
    let mut old = names.old.lock().unwrap_or_else(|e| e.into_inner());
    match old.get(&key).filter(|there| **there != entry.key) {
        // Two directories become one.
        Some(_) if entry.is_dir() => {}
        Some(there) => {
            let message = format!("would have the name {key}, as {there} has: it is left out");
            all.lost(&Error::new(ErrorKind::Exists, "rename", message).with_key(&entry.key));
        }
        None => {
            old.insert(key.clone(), entry.key.clone());
            all.entries.push(Entry { key, ..entry });
        }
    }
}

/// The part of all gathered entries that a request asks for.
fn answer(all: &Gathered, request: &ListRequest) -> Vec<Listed> {
    let wanted = |entry: &&Entry| {
        let Some(rest) = entry.key.as_bytes().strip_prefix(&request.prefix[..]) else { return false };
        let inner = rest.strip_suffix(b"/").unwrap_or(rest);
        let shown = request.recursive || !inner.contains(&b'/');
        !rest.is_empty() && shown && request.after.as_ref().is_none_or(|after| entry.key > *after)
    };
    let failed = all.failed.iter().map(|(lost, kind, message, key)| {
        let error = Error::new(*kind, "list", message.clone());
        let error = key.iter().fold(error, |error, key| error.with_key(key));
        Listed::Failed { lost: lost.clone(), error }
    });
    let entries = all.entries.iter().filter(wanted).cloned().collect();
    let end = all.ended.then_some(Listed::End);
    let vanished = all.vanished.iter().cloned().map(Listed::Vanished);
    failed.chain(vanished).chain([Listed::Batch(entries)]).chain(end).collect()
}

impl Store for Source {
    fn locator(&self) -> &str {
        self.inner.locator()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let (inner, filter, names) = (self.inner.clone(), self.filter.clone(), self.names.clone());
        let gathered = self.gathered.clone();
        let steps = async move {
            let begins = request.prefix.is_empty() && request.after.is_none();
            let mut kept = gathered.lock().await;
            let all = match kept.take().filter(|_| !begins) {
                Some(all) => all,
                None => Arc::new(gather(&inner, &filter, &names, &request).await),
            };
            *kept = Some(all.clone());
            stream::iter(answer(&all, &request))
        };
        steps.into_stream().flatten().boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let mut old = self.names.found("stat", key);
        // A listing may have left it out. By transformed names nobody can tell; by others it has its own.
        if old.is_err() && self.caps.listing_may_omit && self.names.naming.new.is_none() {
            old = Ok(key.clone());
        }
        let key = key.clone();
        async move { self.inner.stat(&old?).await.map(|entry| Entry { key, ..entry }) }.boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, old, want) = (key.clone(), self.names.found("read", key), want.cloned());
        async move {
            let read = self.inner.read(&old?, want.as_ref(), range).await?;
            Ok(Read { entry: Entry { key, ..read.entry }, body: read.body })
        }
        .boxed()
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.inner.write(&self.names.beside(key), spec)
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.inner.make_dir(key, spec)
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        self.inner.copy(batch, watch)
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (old, meta) = (self.names.found("set_meta", key), meta.cloned());
        async move { self.inner.set_meta(&old?, mtime, meta.as_ref()).await }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        // A file that was never listed isn't deleted.
        let old: Vec<_> = keys.iter().map(|(key, _)| self.names.found("delete", key)).collect();
        let known = old.iter().flatten().cloned().zip(keys.into_iter().zip(&old).filter(|(_, old)| old.is_ok()));
        let request = known.map(|(old, ((_, version), _))| (old, version)).collect();
        async move {
            let mut answers = self.inner.delete(request).await.into_iter();
            let missing = || Err(Error::new(ErrorKind::Io, "delete", "the store gave no answer"));
            old.into_iter().map(|old| old.and_then(|_| answers.next().unwrap_or_else(missing))).collect()
        }
        .boxed()
    }

    // Nothing is written to a source, and what is asked of it as a whole has no names.
    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.inner.lanes()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.inner.resumable()
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        self.inner.inodes().map(|_| self as &dyn Inodes)
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        self.inner.hashing().map(|_| self as &dyn Hashing)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }

    fn encrypted(&self) -> Option<&dyn Encrypted> {
        self.inner.encrypted().map(|_| self as &dyn Encrypted)
    }

    fn deltas(&self) -> Option<&dyn Deltas> {
        self.inner.deltas().map(|_| self as &dyn Deltas)
    }
}

impl Deltas for Source {
    fn smallest_block(&self) -> u32 {
        self.inner.deltas().map_or(u32::MAX, Deltas::smallest_block)
    }

    fn recipe(&self, key: &Key, version: Option<&Version>, cut: Chunking) -> BoxFuture<'_, Result<Recipe>> {
        match self.names.found("read", key).and_then(|key| Ok((key, offered(self.inner.deltas(), "read")?))) {
            Ok((key, inner)) => inner.recipe(&key, version, cut),
            Err(error) => ready(Err(error)).boxed(),
        }
    }
}

impl Inodes for Source {
    fn file_system(&self) -> BoxFuture<'_, Option<u64>> {
        self.inner.inodes().map_or_else(|| Box::pin(std::future::ready(None)) as _, Inodes::file_system)
    }

    fn attributes(&self, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
        attributes(&*self.inner, batch)
    }

    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
        carry(&*self.inner, keys.iter().map(|key| self.names.old(key).unwrap_or_else(|| key.clone())).collect(), inside)
    }

    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
        settle(&*self.inner, items)
    }
}

impl Hashing for Source {
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>> {
        match offered(self.inner.hashing(), "hash") {
            Ok(inner) => inner.algos(),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>> {
        match self.names.found("hash", key).and_then(|key| Ok((key, offered(self.inner.hashing(), "hash")?))) {
            Ok((key, inner)) => inner.hash(&key, version, algos),
            Err(error) => ready(Err(error)).boxed(),
        }
    }
}

impl Encrypted for Source {
    fn sealed(&self, key: &Key, version: Option<&Version>) -> BoxFuture<'_, Result<EncryptedFile>> {
        match self.names.found("check", key).and_then(|key| Ok((key, offered(self.inner.encrypted(), "check")?))) {
            Ok((key, inner)) => inner.sealed(&key, version),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn hidden(&self, key: &Key) -> Result<Key> {
        offered(self.inner.encrypted(), "encrypt")?.hidden(&self.names.found("encrypt", key)?)
    }

    fn plain(&self, hidden: &Key) -> Result<Key> {
        offered(self.inner.encrypted(), "decrypt")?.plain(hidden)
    }
}

fn attributes(inner: &dyn Store, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
    match inner.inodes() {
        Some(inner) => inner.attributes(batch),
        None => ready(none_offered(batch.items.len(), "set attributes")).boxed(),
    }
}

fn carry(inner: &dyn Store, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
    match inner.inodes() {
        Some(inner) => inner.carry(keys, inside),
        None => ready(none_offered(keys.len(), "read attributes")).boxed(),
    }
}

fn settle(inner: &dyn Store, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
    match inner.inodes() {
        Some(inner) => inner.settle(items),
        None => ready(none_offered(items.len(), "rename")).boxed(),
    }
}

/// The destination, which may copy from the source by itself.
struct Destination {
    inner: Arc<dyn Store>,
    names: Arc<Names>,
    /// Where the source is.
    place: Arc<[u8]>,
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Store for Destination {
    fn locator(&self) -> &str {
        self.inner.locator()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        self.inner.list(request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        self.inner.stat(key)
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        self.inner.read(key, want, range)
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.inner.write(key, spec)
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.inner.make_dir(key, spec)
    }

    fn copy(&self, mut batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        if batch.from == self.place {
            batch.items.iter_mut().for_each(|item| item.from = self.old(&item.from));
        }
        self.inner.copy(batch, watch)
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        self.inner.set_meta(key, mtime, meta)
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        self.inner.delete(keys)
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.inner.lanes()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.inner.resumable()
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        self.inner.inodes().map(|_| self as &dyn Inodes)
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        self.inner.hashing()
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }

    fn encrypted(&self) -> Option<&dyn Encrypted> {
        self.inner.encrypted()
    }

    fn deltas(&self) -> Option<&dyn Deltas> {
        self.inner.deltas()
    }
}

impl Destination {
    /// The source's own name of a key.
    fn old(&self, key: &Key) -> Key {
        self.names.old(key).unwrap_or_else(|| key.clone())
    }
}

impl Inodes for Destination {
    fn attributes(&self, mut batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
        if batch.from == self.place {
            batch.items.iter_mut().for_each(|item| item.from = self.old(&item.from));
        }
        attributes(&*self.inner, batch)
    }

    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
        carry(&*self.inner, keys, inside)
    }

    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
        settle(&*self.inner, items)
    }
}
