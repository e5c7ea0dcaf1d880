//! What the engine reads from in a push or pull: a store whose keys stand for something else's. In a push they are content's,
//! and the bytes come from the folder; in a pull they are the folder's, and the bytes come from content. Each entry has the
//! MD5 of its content, so that the engine publishes nothing else.

use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Listed, Meta, Mtime, Result, Version};
use haul_store::{
    Answer, Body, Caps, Changed, CopyBatch, Extra, ListRequest, Read, Resumed, Sent, Store, Stored, Upload, WriteSpec,
};
use std::{collections::HashMap, ops::Range, sync::Arc};

/// Where the bytes of a key come from.
#[derive(Clone, Debug)]
pub enum From {
    /// A key that may change at any time: the store is asked what it is now.
    Live(Key),
    /// A key whose content is what its name says, or wrong.
    Content(Key),
    /// These.
    Bytes(Bytes),
    /// There are none: it is a directory.
    Nothing,
}

/// A store that only reads, and only these keys.
#[derive(Debug)]
pub struct View {
    inner: Arc<dyn Store>,
    locator: String,
    caps: Caps,
    entries: Vec<Entry>,
    places: HashMap<Key, (usize, From)>,
}

impl View {
    /// A view of `inner` with these entries. `cheap_reads`: what its hashes say may be computed again from its bytes.
    pub fn new(inner: Arc<dyn Store>, locator: String, mut all: Vec<(Entry, From)>, cheap_reads: bool) -> View {
        all.sort_unstable_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        let caps = Caps {
            mtime: Some(std::time::Duration::from_nanos(1)),
            mtime_listed: true,
            changed: Changed::Unknown,
            dirs: true,
            // Every byte passes through this process, so that it is hashed.
            domain: None,
            cheap_reads,
            page: None,
            attributes: None,
            ..inner.caps().clone()
        };
        let mut places = HashMap::with_capacity(all.len());
        let mut entries = Vec::with_capacity(all.len());
        for (n, (entry, from)) in all.into_iter().enumerate() {
            places.insert(entry.key.clone(), (n, from));
            entries.push(entry);
        }
        View { inner, locator, caps, entries, places }
    }

    fn find(&self, op: &'static str, key: &Key) -> Result<(&Entry, &From)> {
        let place = self.places.get(key).map(|(n, from)| (&self.entries[*n], from));
        place.ok_or_else(|| Error::new(ErrorKind::NotFound, op, "it isn't part of this").with_key(key))
    }
}

/// What the store says of a live key, under the name that it has here.
fn live(listed: &Entry, now: Entry) -> Entry {
    let (key, hashes) = (listed.key.clone(), listed.hashes.clone());
    Entry { key, hashes, kind: Kind::File, mtime: None, meta: None, posix: None, ..now }
}

/// An error of content, told of what has the content.
fn lacking(error: Error, origin: &Key, key: &Key) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error.with_key(key);
    }
    Error::new(ErrorKind::NotFound, "read", format!("the remote lacks its content, {origin}")).with_key(key)
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
        let below = |entry: &&Entry| {
            let key = entry.key.as_bytes();
            let Some(rest) = key.strip_prefix(&request.prefix[..]) else { return false };
            let deeper = rest.strip_suffix(b"/").unwrap_or(rest).contains(&b'/');
            let passed = request.after.as_ref().is_some_and(|after| entry.key <= *after);
            let itself = rest.is_empty() && entry.is_dir();
            let left_out = passed || itself || deeper && !request.recursive;
            !left_out
        };
        let listed: Vec<Entry> = self.entries.iter().filter(below).cloned().collect();
        stream::iter([Listed::Batch(listed), Listed::End]).boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        if key.is_root() {
            return ready(Ok(Entry::dir(key.clone()))).boxed();
        }
        match self.find("stat", key) {
            Ok((listed, From::Live(origin))) => {
                let asked = self.inner.stat(origin);
                async move { asked.await.map(|now| live(listed, now)) }.boxed()
            }
            Ok((listed, _)) => ready(Ok(listed.clone())).boxed(),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (listed, from) = match self.find("read", key) {
            Ok(found) => found,
            Err(error) => return ready(Err(error)).boxed(),
        };
        match from {
            From::Live(origin) => {
                let read = self.inner.read(origin, want, range);
                async move { read.await.map(|read| Read { entry: live(listed, read.entry), body: read.body }) }.boxed()
            }
            From::Content(origin) => {
                let read = self.inner.read(origin, None, range);
                async move {
                    let read = read.await.map_err(|error| lacking(error, origin, &listed.key))?;
                    let (has, size) = (read.entry.size, listed.size);
                    if has != size {
                        let message = format!("the remote has {has} bytes of its content, and there are to be {size}");
                        return Err(Error::new(ErrorKind::Corrupt, "read", message));
                    }
                    Ok(Read { entry: listed.clone(), body: read.body })
                }
                .boxed()
            }
            From::Bytes(bytes) => {
                let whole = 0..bytes.len() as u64;
                let range = range.unwrap_or(whole.clone());
                let (start, end) = (range.start.min(whole.end), range.end.min(whole.end));
                let piece = bytes.slice(start as usize..end.max(start) as usize);
                let body = Body::Stream(stream::iter([Ok(piece)]).boxed());
                ready(Ok(Read { entry: listed.clone(), body })).boxed()
            }
            From::Nothing => {
                let error = Error::new(ErrorKind::NotFound, "read", "is a directory, not a file").with_key(key);
                ready(Err(error)).boxed()
            }
        }
    }

    fn write(&self, _key: &Key, _spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        ready(only_read("write")).boxed()
    }

    fn resume(&self, _key: &Key, _token: &[u8], _sent: Vec<Sent>, _spec: WriteSpec) -> BoxFuture<'_, Result<Resumed>> {
        ready(only_read("resume")).boxed()
    }

    fn discard(&self, _key: &Key, _token: &[u8]) -> BoxFuture<'_, Result<()>> {
        ready(only_read("discard")).boxed()
    }

    fn make_dir(&self, _key: &Key, _spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        ready(only_read("mkdir")).boxed()
    }

    fn copy(&self, batch: CopyBatch) -> BoxFuture<'_, Vec<Result<Stored>>> {
        ready(batch.items.iter().map(|_| only_read("copy")).collect()).boxed()
    }

    fn set_meta(&self, _key: &Key, _mtime: Option<Mtime>, _meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        ready(only_read("set_meta")).boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        ready(keys.iter().map(|_| only_read("delete")).collect()).boxed()
    }

    fn extra(&self, _request: Extra) -> BoxFuture<'_, Result<Answer>> {
        ready(only_read("extra")).boxed()
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
    async fn both(dir: &std::path::Path, from: fn(&Key) -> From) -> (Arc<dyn Store>, Arc<dyn Store>) {
        for name in ["a", "a-b", "d/x", "d/e/y", "z"] {
            fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            fs::write(dir.join(name), name).unwrap();
        }
        let disk = haul_testkit::disk::open(dir, Links::Translate);
        let mut all = Vec::new();
        for key in keys(&disk, ListRequest::all()).await {
            let entry = disk.stat(&key).await.unwrap();
            let from = if key.is_dir() { From::Nothing } else { from(&key) };
            all.push((entry, from));
        }
        (disk.clone(), Arc::new(View::new(disk, "view".into(), all, false)))
    }

    #[tokio::test]
    async fn it_lists_as_a_folder_does() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, view) = both(dir.path(), |key| From::Live(key.clone())).await;
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
        let (_, content) = both(dir.path(), |key| From::Content(key.clone())).await;
        let (_, live) = both(dir.path(), |key| From::Live(key.clone())).await;
        fs::write(dir.path().join("a"), "longer").unwrap();
        fs::remove_file(dir.path().join("z")).unwrap();
        let (a, z) = (Key::new("a"), Key::new("z"));
        let error = content.read(&a, None, None).await.unwrap_err();
        assert_eq!(error.to_string(), "read: the remote has 6 bytes of its content, and there are to be 1");
        let error = content.read(&z, None, None).await.unwrap_err();
        assert_eq!(error.to_string(), "z: read: the remote lacks its content, z");
        let before = live.stat(&Key::new("a-b")).await.unwrap();
        assert_eq!(live.stat(&a).await.unwrap().size, 6);
        assert_eq!(live.stat(&z).await.unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(dir.path().join("a-b"), "other").unwrap();
        let error = live.read(&Key::new("a-b"), before.version.as_ref(), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        assert_eq!(live.write(&a, WriteSpec::default()).await.err().unwrap().kind(), ErrorKind::Unsupported);
    }
}
