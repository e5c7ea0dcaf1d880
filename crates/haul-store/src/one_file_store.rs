//! A store that holds one file, for the unit tests of what reads stores: it only reads.

use crate::{Body, Caps, CopyBatch, ListRequest, Payload, Read, Store, StoredFacts, Upload, Watch, WriteSpec, web};
use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use std::{ops::Range, sync::Arc};

#[derive(Debug)]
pub(crate) struct OneFileStore {
    bytes: Bytes,
    caps: Caps,
}

impl OneFileStore {
    pub(crate) fn new(bytes: &[u8]) -> OneFileStore {
        let caps = web::caps();
        OneFileStore { bytes: Bytes::copy_from_slice(bytes), caps }
    }

    /// All of the file as a payload of its store, with those hashes that are asked for.
    pub(crate) fn payload(self, algos: Vec<Algo>) -> Payload {
        let (entry, size) = (self.entry(), self.bytes.len() as u64);
        Payload::of_store(Arc::new(self), entry, 0..size, algos)
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry::file(Key::new("f"), self.bytes.len() as u64)
    }
}

fn only_read<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "write", "it is only read"))
}

impl Store for OneFileStore {
    fn locator(&self) -> &str {
        "held"
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, _: ListRequest) -> BoxStream<'static, Listed> {
        stream::iter([Listed::Batch(vec![self.entry()]), Listed::End]).boxed()
    }

    fn stat(&self, _: &Key) -> BoxFuture<'_, Result<Entry>> {
        ready(Ok(self.entry())).boxed()
    }

    fn read(&self, _: &Key, _: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let whole = self.bytes.len() as u64;
        let range = range.unwrap_or(0..whole);
        let content = self.bytes.slice(range.start.min(whole) as usize..range.end.min(whole) as usize);
        let pieces: Vec<_> = content.chunks(300_000).map(|piece| Ok(content.slice_ref(piece))).collect();
        ready(Ok(Read { entry: self.entry(), body: Body::Stream(stream::iter(pieces).boxed()) })).boxed()
    }

    fn write(&self, _: &Key, _: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        ready(only_read()).boxed()
    }

    fn make_dir(&self, _: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        ready(only_read()).boxed()
    }

    fn copy(&self, batch: CopyBatch, _: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        ready(batch.items.iter().map(|_| only_read()).collect()).boxed()
    }

    fn set_meta(&self, _: &Key, _: Option<Mtime>, _: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        ready(only_read()).boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        ready(keys.iter().map(|_| only_read()).collect()).boxed()
    }
}
