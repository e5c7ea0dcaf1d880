//! A cache or remote as the engine sees it for one job: only what is to be moved is listed, and each entry has the MD5 that its
//! name promises, so that content which doesn't match its name is never published.

use crate::address::Address;
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use haul_core::{Entry, Hashes, Key, Listed, Meta, Mtime, Result, Version};
use haul_store::{
    Admin, Caps, CopyBatch, Deltas, Encrypted, Hashing, Inodes, Lanes, ListRequest, Read, Resumable, Store,
    StoredFacts, Upload, Watch, WriteSpec,
};
use std::{ops::Range, sync::Arc};

/// The entries to move, of a store whose names are hashes.
#[derive(Debug)]
pub struct Named {
    inner: Arc<dyn Store>,
    entries: Vec<Entry>,
}

impl Named {
    /// The store with only these entries, in key order.
    pub fn new(inner: Arc<dyn Store>, entries: Vec<Entry>) -> Self {
        Named { inner, entries: entries.into_iter().map(promised).collect() }
    }
}

/// An entry with what its name promises, and nothing else: of several hashes the engine proves one, the cheapest, and what the
/// store says of its bytes proves nothing of their name.
fn promised(mut entry: Entry) -> Entry {
    if let Some(address) = Address::of_key(entry.key.as_bytes()) {
        entry.hashes = Hashes::default().with(address.algo(), address.md5);
    }
    entry
}

impl Store for Named {
    fn locator(&self) -> &str {
        self.inner.locator()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn list(&self, _request: ListRequest) -> BoxStream<'static, Listed> {
        stream::iter([Listed::Batch(self.entries.clone()), Listed::End]).boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let root = key.is_root();
        let answer = self.inner.stat(key);
        async move { answer.await.map(|entry| if root { entry } else { promised(entry) }) }.boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let read = self.inner.read(key, want, range);
        async move { read.await.map(|read| Read { entry: promised(read.entry), body: read.body }) }.boxed()
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.inner.write(key, spec)
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.inner.make_dir(key, spec)
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
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
        self.inner.inodes()
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
