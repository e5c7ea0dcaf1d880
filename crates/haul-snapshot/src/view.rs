//! The engine's source in a push or pull: a store whose keys stand for something else's. In a push they are content's,
//! and the bytes come from the folder; in a pull they are the folder's, and the bytes come from content. Each entry has the
//! MD5 of its content, so that the engine publishes nothing else.

use crate::list::List;
use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_store::{
    Body, Caps, ChangedMeaning, CopyBatch, ListRequest, Read, Store, StoredFacts, Upload, Watch, WriteSpec,
};
use std::{ops::Range, sync::Arc};

/// Entries that a listing gives together.
const BATCH: usize = 1_000;

/// Where the bytes of a key come from.
#[derive(Clone, Debug)]
pub enum ContentSource {
    /// A key that may change at any time: the store is asked what it is now.
    Live(Key),
    /// A key whose content is what its name says, or wrong.
    Content(Key),
    /// These.
    Bytes(Bytes),
    /// The text of a list.
    List(Arc<List>),
    /// There are none: it is a directory.
    Nothing,
}

/// Keys of a view, each with a number below their count. None is built before it is asked for, since there may
/// be millions.
pub trait KeyList: std::fmt::Debug + Send + Sync {
    /// How many.
    fn count(&self) -> usize;
    /// The number of the `n`th in order of keys.
    fn nth(&self, n: usize) -> usize;
    /// The number of a key; `None` for another's.
    fn find(&self, key: &Key) -> Option<usize>;
    /// Its key.
    fn key(&self, number: usize) -> Key;
    /// All that is known of it.
    fn entry(&self, number: usize) -> Entry;
    /// Where its bytes are.
    fn from(&self, number: usize) -> ContentSource;
    /// Its name for people.
    fn shown(&self, number: usize) -> Key;
}

/// A few keys, held as they are.
#[derive(Debug)]
pub struct FewKeys(Vec<(Entry, ContentSource, Key)>);

impl FewKeys {
    /// These, each with what people know it by.
    pub fn new(mut all: Vec<(Entry, ContentSource, Key)>) -> FewKeys {
        all.sort_unstable_by(|(a, ..), (b, ..)| a.key.cmp(&b.key));
        FewKeys(all)
    }
}

impl KeyList for FewKeys {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn nth(&self, n: usize) -> usize {
        n
    }

    fn find(&self, key: &Key) -> Option<usize> {
        self.0.binary_search_by(|(entry, ..)| entry.key.cmp(key)).ok()
    }

    fn key(&self, number: usize) -> Key {
        self.0[number].0.key.clone()
    }

    fn entry(&self, number: usize) -> Entry {
        self.0[number].0.clone()
    }

    fn from(&self, number: usize) -> ContentSource {
        self.0[number].1.clone()
    }

    fn shown(&self, number: usize) -> Key {
        self.0[number].2.clone()
    }
}

/// A store that only reads, and only these keys.
#[derive(Debug)]
pub struct View {
    inner: Arc<dyn Store>,
    locator: String,
    caps: Caps,
    all: Arc<dyn KeyList>,
}

impl View {
    /// A view of `inner` with these keys. `cheap_reads`: what its hashes say may be computed again from its bytes.
    pub fn new(inner: Arc<dyn Store>, locator: String, all: Arc<dyn KeyList>, cheap_reads: bool) -> View {
        let caps = Caps {
            mtime: Some(std::time::Duration::from_nanos(1)),
            mtime_listed: true,
            changed: ChangedMeaning::Unknown,
            dirs: true,
            symlinks: true,
            // Every byte passes through this process, so that it is hashed.
            domain: None,
            cheap_reads,
            page: None,
            attributes: None,
            modes: false,
            ..inner.caps().clone()
        };
        View { inner, locator, caps, all }
    }

    fn find(&self, op: &'static str, key: &Key) -> Result<(Entry, ContentSource)> {
        let number = self.all.find(key);
        let found = number.map(|number| (self.all.entry(number), self.all.from(number)));
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, op, "it isn't part of this").with_key(key))
    }
}

/// The batches of a listing.
struct Batches {
    all: Arc<dyn KeyList>,
    request: ListRequest,
    /// The place of the next key.
    at: usize,
}

impl Batches {
    fn new(all: Arc<dyn KeyList>, request: ListRequest) -> Batches {
        let before = |key: Key| {
            let passed = request.after.as_ref().is_some_and(|after| key <= *after);
            passed || key.as_bytes() < &request.prefix[..]
        };
        let (mut low, mut high) = (0, all.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match before(all.key(all.nth(middle))) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Batches { all, request, at: low }
    }
}

impl Iterator for Batches {
    type Item = Listed;

    fn next(&mut self) -> Option<Listed> {
        let (count, mut batch) = (self.all.count(), Vec::new());
        while self.at < count && batch.len() < BATCH {
            let number = self.all.nth(self.at);
            let key = self.all.key(number);
            let Some(rest) = key.as_bytes().strip_prefix(&self.request.prefix[..]) else {
                self.at = count;
                break;
            };
            self.at += 1;
            let deeper = rest.strip_suffix(b"/").unwrap_or(rest).contains(&b'/');
            let itself = rest.is_empty() && key.is_dir();
            if !itself && (self.request.recursive || !deeper) {
                batch.push(self.all.entry(number));
            }
        }
        (!batch.is_empty()).then_some(Listed::Batch(batch))
    }
}

/// The store's facts of a live key, under its name here.
fn live(listed: &Entry, now: Entry) -> Entry {
    let (key, hashes) = (listed.key.clone(), listed.hashes.clone());
    Entry { key, hashes, kind: listed.kind, mtime: None, meta: None, posix: None, ..now }
}

/// An error of content, with the path that has the content.
fn lacking(error: Error, origin: &Key, key: &Key) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error.with_key(key);
    }
    Error::new(ErrorKind::NotFound, "read", format!("its content is missing at the remote, {origin}")).with_key(key)
}

fn only_read<T>(op: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, op, "a snapshot is only read"))
}

impl Store for View {
    fn locator(&self) -> &str {
        &self.locator
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        stream::iter(Batches::new(self.all.clone(), request).chain([Listed::End])).boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        if key.is_root() {
            return ready(Ok(Entry::dir(key.clone()))).boxed();
        }
        match self.find("stat", key) {
            Ok((listed, ContentSource::Live(origin))) => {
                async move { self.inner.stat(&origin).await.map(|now| live(&listed, now)) }.boxed()
            }
            Ok((listed, _)) => ready(Ok(listed)).boxed(),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (listed, from) = match self.find("read", key) {
            Ok(found) => found,
            Err(error) => return ready(Err(error)).boxed(),
        };
        let want = want.cloned();
        match from {
            ContentSource::Live(origin) => async move {
                let read = self.inner.read(&origin, want.as_ref(), range).await?;
                Ok(Read { entry: live(&listed, read.entry), body: read.body })
            }
            .boxed(),
            ContentSource::Content(origin) => async move {
                let read = self.inner.read(&origin, None, range).await;
                let read = read.map_err(|error| lacking(error, &origin, &listed.key))?;
                let (has, size) = (read.entry.size, listed.size);
                if has != size {
                    let message = format!("the remote has {has} bytes of its content, and there are to be {size}");
                    return Err(Error::new(ErrorKind::Corrupt, "read", message));
                }
                Ok(Read { entry: listed, body: read.body })
            }
            .boxed(),
            ContentSource::Bytes(bytes) => {
                let whole = 0..bytes.len() as u64;
                let range = range.unwrap_or(whole.clone());
                let (start, end) = (range.start.min(whole.end), range.end.min(whole.end));
                let piece = bytes.slice(start as usize..end.max(start) as usize);
                let body = Body::Stream(stream::iter([Ok(piece)]).boxed());
                ready(Ok(Read { entry: listed, body })).boxed()
            }
            ContentSource::List(list) => {
                let pieces = list.pieces(range.unwrap_or(0..u64::MAX));
                let body = Body::Stream(stream::iter(pieces.map(Ok)).boxed());
                ready(Ok(Read { entry: listed, body })).boxed()
            }
            ContentSource::Nothing => {
                let error = Error::new(ErrorKind::NotFound, "read", "is a directory, not a file").with_key(key);
                ready(Err(error)).boxed()
            }
        }
    }

    fn write(&self, _key: &Key, _spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        ready(only_read("write")).boxed()
    }

    fn make_dir(&self, _key: &Key, _spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        ready(only_read("mkdir")).boxed()
    }

    fn copy(&self, batch: CopyBatch, _: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        ready(batch.items.iter().map(|_| only_read("copy")).collect()).boxed()
    }

    fn set_meta(&self, _key: &Key, _mtime: Option<Mtime>, _meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        ready(only_read("set_meta")).boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        ready(keys.iter().map(|_| only_read("delete")).collect()).boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // A test makes its own files.

    use super::*;
    use haul_store::Links;
    use std::fs;

    async fn keys(store: &Arc<dyn Store>, request: ListRequest) -> Vec<Key> {
        let steps: Vec<Listed> = store.list(request).collect().await;
        assert!(matches!(steps.last(), Some(Listed::End)));
        let entries = steps.into_iter().filter_map(|step| match step {
            Listed::Batch(entries) => Some(entries),
            _ => None,
        });
        entries.flatten().map(|entry| entry.key).collect()
    }

    /// A folder on disk, and a view of it under the same keys.
    async fn both(dir: &std::path::Path, from: fn(&Key) -> ContentSource) -> (Arc<dyn Store>, Arc<dyn Store>) {
        for name in ["a", "a-b", "d/x", "d/e/y", "z"] {
            fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            fs::write(dir.join(name), name).unwrap();
        }
        let disk = haul_testkit::disk::open(dir, Links::Keep);
        let mut all = Vec::new();
        for key in keys(&disk, ListRequest::all()).await {
            let entry = disk.stat(&key).await.unwrap();
            let from = if key.is_dir() { ContentSource::Nothing } else { from(&key) };
            all.push((entry, from, key));
        }
        (disk.clone(), Arc::new(View::new(disk, "view".into(), Arc::new(FewKeys::new(all)), false)))
    }

    #[tokio::test]
    async fn it_lists_as_a_folder_does() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, view) = both(dir.path(), |key| ContentSource::Live(key.clone())).await;
        for prefix in ["", "d/", "d/e/", "a", "none"] {
            for recursive in [true, false] {
                for after in ["", "a", "d/", "d/e/", "z"] {
                    let after = (!after.is_empty()).then(|| Key::new(after));
                    let request = ListRequest { prefix: prefix.into(), after, recursive, ..ListRequest::all() };
                    assert_eq!(keys(&view, request.clone()).await, keys(&disk, request.clone()).await, "{request:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn content_of_another_size_is_an_error_and_live_files_are_asked_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (_, content) = both(dir.path(), |key| ContentSource::Content(key.clone())).await;
        let (_, live) = both(dir.path(), |key| ContentSource::Live(key.clone())).await;
        fs::write(dir.path().join("a"), "longer").unwrap();
        fs::remove_file(dir.path().join("z")).unwrap();
        let (a, z) = (Key::new("a"), Key::new("z"));
        let error = content.read(&a, None, None).await.unwrap_err();
        assert_eq!(error.to_string(), "read: the remote has 6 bytes of its content, and there are to be 1");
        let error = content.read(&z, None, None).await.unwrap_err();
        assert_eq!(error.to_string(), "z: read: its content is missing at the remote, z");
        let before = live.stat(&Key::new("a-b")).await.unwrap();
        assert_eq!(live.stat(&a).await.unwrap().size, 6);
        assert_eq!(live.stat(&z).await.unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(dir.path().join("a-b"), "other").unwrap();
        let error = live.read(&Key::new("a-b"), before.version.as_ref(), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        assert_eq!(live.write(&a, WriteSpec::default()).await.err().unwrap().kind(), ErrorKind::Unsupported);
    }
}
