//! Symlinks in stores that have none: each is a file `NAME.rclonelink` that holds the target, as with rclone's `--links`.
//! Outside this layer a symlink is a [`Kind::Symlink`] with its own key; below it there are only files.
//!
//! The translation keeps the order ([`Key::symlink`] sorts where the file does), so listings stream through, and
//! positions in them can be passed to the store below.
//!
//! A regular file with such a name can't be told from a symlink below. Above this layer such files don't exist: reading one answers
//! not found, and writing one is refused.

use crate::{
    Admin, AttributesBatch, AttributesItem, AttributesResult, Bundles, Caps, Cleanup, CopyBatch, CopyItem, Deltas,
    Doubles, Encrypted, EncryptedFile, Hashing, Inodes, Lanes, ListRequest, Part, Read, Resumable, ResumedWrite,
    SentPart, SettleItem, SmallFile, SpaceUsage, Store, StoredFacts, UnfinishedWrites, Upload, Watch, WriteSpec,
    none_offered, offered,
};
use bytes::Bytes;
use futures::{
    StreamExt,
    future::{BoxFuture, ready},
    stream,
    stream::BoxStream,
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Kind, Listed, Meta, MissedRange, Mtime, Result, Version,
    attributes::FileAttributes,
    delta::{Chunking, Recipe},
    key::{just_before, stored_symlink},
};
use std::{ops::Range, sync::Arc, time::Duration};

/// The layer.
pub struct LinkFiles {
    inner: Arc<dyn Store>,
    caps: Caps,
}

impl std::fmt::Debug for LinkFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl LinkFiles {
    /// `inner`, with symlinks.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let caps = Caps { symlinks: true, ..inner.caps().clone() };
        LinkFiles { inner, caps }
    }
}

/// The key below of what has this key above; `None` for the name of a file that would be a symlink, of which none is there.
fn below(key: &Key) -> Option<Key> {
    match key.is_symlink() {
        true => Some(Key::new(key.stored())),
        false => stored_symlink(key.as_bytes()).is_none().then(|| key.clone()),
    }
}

/// Translates an entry of the store below.
fn above(entry: Entry) -> Entry {
    match stored_symlink(entry.key.as_bytes()).filter(|_| entry.kind == Kind::File) {
        Some(path) => Entry { key: Key::symlink(path), kind: Kind::Symlink, ..entry },
        None => entry,
    }
}

/// [`below`], for what must be there.
///
/// Errors: `NotFound`.
fn found(op: &'static str, key: &Key) -> Result<Key> {
    let missing = || Error::new(ErrorKind::NotFound, op, "only a symbolic link can be there").with_key(key);
    below(key).ok_or_else(missing)
}

/// [`below`], for what is to be written.
///
/// Errors: `Unsupported`.
fn written(key: &Key) -> Result<Key> {
    below(key).ok_or_else(|| {
        let message =
            "a file whose name ends in .rclonelink would become a symbolic link here: rename it, or leave out -l";
        Error::new(ErrorKind::Unsupported, "write", message).with_key(key)
    })
}

/// A place below behind which all is that is behind `after` above; and perhaps a little before it.
fn place(after: &Key) -> Key {
    // Keys of symlinks alone hold a zero byte: what is behind one is behind its file.
    let bytes = after.as_bytes();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
    let mut links = ends.filter(|at| stored_symlink(&bytes[..*at]).is_some());
    match (links.next(), stored_symlink(bytes)) {
        (Some(end), _) => Key::new(&bytes[..end]),
        (None, Some(_)) => Key::new(just_before(bytes)),
        (None, None) => after.clone(),
    }
}

/// The edge of a range above that is one's edge below: what is right behind a file there is right behind its symlink here.
fn edge(key: Key) -> Key {
    if key.is_symlink() { key.with_suffix([0]) } else { key }
}

/// Fields of the listing request.
struct ListingFields {
    prefix: Vec<u8>,
    after: Option<Key>,
}

impl ListingFields {
    fn holds(&self, key: &Key) -> bool {
        key.as_bytes().starts_with(&self.prefix) && self.after.as_ref().is_none_or(|after| key > after)
    }

    /// A part of a listing below, as it is above.
    fn above(&self, listed: Listed) -> Vec<Listed> {
        match listed {
            Listed::Batch(entries) => {
                let (mut parts, mut batch) = (Vec::new(), Vec::with_capacity(entries.len()));
                for entry in entries {
                    if entry.key.is_symlink() {
                        parts.push(Listed::Batch(std::mem::take(&mut batch)));
                        parts.push(unnamed(entry.key));
                        continue;
                    }
                    batch.push(above(entry));
                }
                parts.push(Listed::Batch(batch));
                for part in &mut parts {
                    if let Listed::Batch(entries) = part {
                        entries.retain(|entry| self.holds(&entry.key));
                    }
                }
                parts.retain(|part| !matches!(part, Listed::Batch(entries) if entries.is_empty()));
                parts
            }
            Listed::Failed { lost, error } => {
                vec![Listed::Failed { lost: MissedRange { from: edge(lost.from), to: lost.to.map(edge) }, error }]
            }
            Listed::Vanished(key) => vec![Listed::Vanished(Key::of_stored(key.as_bytes()))],
            Listed::End => vec![Listed::End],
        }
    }
}

/// A file that has a symlink's key for a name.
fn unnamed(key: Key) -> Listed {
    let message = "a name that ends in .rclonelink and a zero byte can't be told from a symbolic link's: leave out -l";
    let error = Error::new(ErrorKind::Invalid, "list", message).with_key(&key);
    Listed::Failed { lost: MissedRange { to: Some(key.with_suffix([0])), from: key }, error }
}

impl Store for LinkFiles {
    fn locator(&self) -> &str {
        self.inner.locator()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let fields = ListingFields { prefix: request.prefix.clone(), after: request.after.clone() };
        let prefix = Key::new(&request.prefix).stored().to_vec();
        let after = request.after.as_ref().map(place);
        let listing = self.inner.list(ListRequest { prefix, after, ..request });
        listing.flat_map(move |listed| stream::iter(fields.above(listed))).boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = found("stat", key);
        Box::pin(async move { self.inner.stat(&key?).await.map(above) })
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (found("read", key), want.cloned());
        Box::pin(async move {
            let read = self.inner.read(&key?, want.as_ref(), range).await?;
            Ok(Read { entry: above(read.entry), body: read.body })
        })
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        match written(key) {
            Ok(key) => self.inner.write(&key, spec),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.inner.make_dir(key, spec)
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        let CopyBatch { from, items, links } = batch;
        let (mut numbers, mut goes) = (Vec::new(), Vec::new());
        let refused: Vec<Option<Error>> = items
            .into_iter()
            .enumerate()
            .map(|(number, item)| match written(&item.to) {
                Ok(to) => {
                    numbers.push(number);
                    goes.push(CopyItem { from: Key::new(item.from.stored()), to, ..item });
                    None
                }
                Err(error) => Some(error),
            })
            .collect();
        let watch = watch.of(numbers);
        Box::pin(async move {
            if goes.is_empty() {
                return refused.into_iter().flatten().map(Err).collect();
            }
            let mut answers = self.inner.copy(CopyBatch { from, items: goes, links }, watch).await.into_iter();
            let missing = || Err(Error::new(ErrorKind::Io, "copy", "the store gave no answer for this"));
            refused.into_iter().map(|error| error.map_or_else(|| answers.next().unwrap_or_else(missing), Err)).collect()
        })
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        match found("set_meta", key) {
            Ok(key) => self.inner.set_meta(&key, mtime, meta),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        // Missing keys count as deleted.
        let there: Vec<bool> = keys.iter().map(|(key, _)| below(key).is_some()).collect();
        let goes: Vec<_> = keys.into_iter().filter_map(|(key, version)| Some((below(&key)?, version))).collect();
        Box::pin(async move {
            let mut answers = self.inner.delete(goes).await.into_iter();
            let missing = || Err(Error::new(ErrorKind::Io, "delete", "the store gave no answer for this"));
            there.into_iter().map(|there| if there { answers.next().unwrap_or_else(missing) } else { Ok(()) }).collect()
        })
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.inner.lanes()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.inner.resumable().map(|_| self as &dyn Resumable)
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        self.inner.inodes().map(|_| self as &dyn Inodes)
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        self.inner.hashing().map(|_| self as &dyn Hashing)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin().map(|_| self as &dyn Admin)
    }

    fn doubles(&self) -> Option<&dyn Doubles> {
        self.inner.doubles()
    }

    fn encrypted(&self) -> Option<&dyn Encrypted> {
        self.inner.encrypted().map(|_| self as &dyn Encrypted)
    }

    fn deltas(&self) -> Option<&dyn Deltas> {
        self.inner.deltas().map(|_| self as &dyn Deltas)
    }

    fn bundles(&self) -> Option<&dyn Bundles> {
        self.inner.bundles().map(|_| self as &dyn Bundles)
    }
}

/// True where all these keys are the same in the store below; other keys go one by one.
fn are_same<'a>(mut keys: impl Iterator<Item = &'a Key>) -> bool {
    keys.all(|key| below(key).as_ref() == Some(key))
}

impl Bundles for LinkFiles {
    fn fetch(&self, wanted: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<(Entry, Bytes)>>> {
        match self.inner.bundles().filter(|_| are_same(wanted.iter().map(|(key, _)| key))) {
            Some(inner) => inner.fetch(wanted),
            None => Box::pin(ready(none_offered(wanted.len(), "read"))),
        }
    }

    fn put(&self, files: Vec<SmallFile>) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        match self.inner.bundles().filter(|_| are_same(files.iter().map(|file| &file.key))) {
            Some(inner) => inner.put(files),
            None => Box::pin(ready(none_offered(files.len(), "write"))),
        }
    }
}

impl Deltas for LinkFiles {
    fn smallest_block(&self) -> u32 {
        self.inner.deltas().map_or(u32::MAX, Deltas::smallest_block)
    }

    fn recipe(&self, key: &Key, version: Option<&Version>, cut: Chunking) -> BoxFuture<'_, Result<Recipe>> {
        match found("read", key).and_then(|key| Ok((key, offered(self.inner.deltas(), "read")?))) {
            Ok((key, inner)) => inner.recipe(&key, version, cut),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

impl Resumable for LinkFiles {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        match written(key).and_then(|key| Ok((key, offered(self.inner.resumable(), "resume")?))) {
            Ok((key, inner)) => inner.resume(&key, token, sent, spec),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        match offered(self.inner.resumable(), "discard") {
            // Also of a file that an earlier run began without this layer.
            Ok(inner) => inner.discard(&Key::new(key.stored()), token),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn whole_version(&self, key: &Key, parts: &[Part]) -> Option<Version> {
        self.inner.resumable()?.whole_version(&Key::new(key.stored()), parts)
    }
}

impl Inodes for LinkFiles {
    fn attributes(&self, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
        let count = batch.items.len();
        let stored = |key: &Key| Key::new(key.stored());
        let each = batch.items.into_iter();
        let items =
            each.map(|item| AttributesItem { from: stored(&item.from), to: stored(&item.to), ..item }).collect();
        match self.inner.inodes() {
            Some(inner) => inner.attributes(AttributesBatch { items, ..batch }),
            None => Box::pin(ready(none_offered(count, "set attributes"))),
        }
    }

    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
        let keys: Vec<Key> = keys.iter().map(|key| Key::new(key.stored())).collect();
        match self.inner.inodes() {
            Some(inner) => inner.carry(keys, inside),
            None => Box::pin(ready(none_offered(keys.len(), "read attributes"))),
        }
    }

    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
        // Only of files, whose names are the same below.
        match self.inner.inodes() {
            Some(inner) => inner.settle(items),
            None => Box::pin(ready(none_offered(items.len(), "rename"))),
        }
    }
}

impl Hashing for LinkFiles {
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>> {
        match offered(self.inner.hashing(), "hash") {
            Ok(inner) => inner.algos(),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>> {
        match found("hash", key).and_then(|key| Ok((key, offered(self.inner.hashing(), "hash")?))) {
            Ok((key, inner)) => inner.hash(&key, version, algos),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

impl Admin for LinkFiles {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        match offered(self.inner.admin(), "about") {
            Ok(inner) => inner.about(),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        match offered(self.inner.admin(), "userinfo") {
            Ok(inner) => inner.user(),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn link(&self, key: &Key, lasts: Duration) -> BoxFuture<'_, Result<String>> {
        match found("link", key).and_then(|key| Ok((key, offered(self.inner.admin(), "link")?))) {
            Ok((key, inner)) => inner.link(&key, lasts),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        match offered(self.inner.admin(), "clean up") {
            Ok(inner) => inner.cleanup(what),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn empty_trash(&self, dry_run: bool) -> BoxFuture<'_, Result<Vec<Key>>> {
        match offered(self.inner.admin(), "empty the trash") {
            Ok(inner) => inner.empty_trash(dry_run),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn set_tier(&self, key: &Key, tier: &str) -> BoxFuture<'_, Result<()>> {
        const OP: &str = "set the storage class";
        match found(OP, key).and_then(|key| Ok((key, offered(self.inner.admin(), OP)?))) {
            Ok((key, inner)) => inner.set_tier(&key, tier),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        match offered(self.inner.admin(), "sync") {
            Ok(inner) => inner.sync(),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

impl Encrypted for LinkFiles {
    fn sealed(&self, key: &Key, version: Option<&Version>) -> BoxFuture<'_, Result<EncryptedFile>> {
        match found("check", key).and_then(|key| Ok((key, offered(self.inner.encrypted(), "check")?))) {
            Ok((key, inner)) => inner.sealed(&key, version),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn hidden(&self, key: &Key) -> Result<Key> {
        offered(self.inner.encrypted(), "encrypt")?.hidden(key)
    }

    fn plain(&self, hidden: &Key) -> Result<Key> {
        offered(self.inner.encrypted(), "decrypt")?.plain(hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_above_has_one_below_with_nothing_between() {
        let link = Key::symlink("d/k");
        for (after, below) in [
            (Key::new("a"), "a"),
            (link.clone(), "d/k.rclonelink"),
            (link.with_suffix([0]), "d/k.rclonelink"),
            (Key::new("d/k.rclonelink"), "d/k.rclonelinj~"),
            (Key::new("d/.rclonelink"), "d/.rclonelink"),
        ] {
            assert_eq!(place(&after), Key::new(below), "{after:?}");
        }
        // A range that begins right behind a file begins right behind its symlink, and one that ends there holds it.
        let lost = MissedRange { from: Key::new("c"), to: Some(Key::new("d/k.rclonelink").with_suffix([0])) };
        let fields = ListingFields { prefix: Vec::new(), after: None };
        let error = Error::new(ErrorKind::Io, "list", "no");
        let Listed::Failed { lost, .. } = fields.above(Listed::Failed { lost, error }).remove(0) else { panic!() };
        assert!(lost.holds(&link) && !lost.holds(&Key::new("d/k.rclonelink-")));
    }
}
