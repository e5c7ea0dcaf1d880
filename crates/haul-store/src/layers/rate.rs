//! The bandwidth limit (`--bwlimit`): bytes a second, up and down apart, shared by all stores of a run. What passes between this
//! machine's disks and another store counts once, at the other store.

mod lane;

use super::clock::Clock;
use crate::{
    Admin, AttributesBatch, AttributesResult, Body, Bundles, Caps, CopyBatch, CopyHow, CopyItem, Deltas, Doubles,
    Encrypted, Hashing, Inodes, Lanes, LateFacts, ListRequest, Pace, Part, Payload, Read, Resumable, ResumedWrite,
    SentPart, SettleItem, Store, StoredFacts, Unpublished, Upload, Watch, WriteSpec, none_offered, offered,
};
use bytes::Bytes;
use futures::{
    StreamExt,
    future::{BoxFuture, ready},
    stream,
    stream::BoxStream,
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Listed, Meta, Mtime, Result, Version, attributes::FileAttributes,
    delta::Run,
};
use lane::Lane;
use std::{
    fs::File,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Bytes of a disk's file that are read at once while a limit is set.
const PIECE: u64 = 64 << 10;

/// A server that has begun to answer is kept waiting no longer; many hang up after 30 s.
const SERVER_WAITS: Duration = Duration::from_secs(20);

/// Bytes a second in each direction, changeable at any time.
#[derive(Debug, Default)]
pub struct Rate {
    up: Lane,
    down: Lane,
    /// One of the stores isn't on this machine's disks.
    remote: AtomicBool,
    /// Numbers of uploads, which tell one file from another.
    uploads: AtomicU64,
}

impl Rate {
    /// A limit of `up` and `down` bytes a second; `None` and 0 mean none.
    pub fn new(up: Option<u64>, down: Option<u64>) -> Self {
        let rate = Rate::default();
        rate.set(up, down);
        rate
    }

    /// Changes the limits; requests that wait already keep their old ones.
    pub fn set(&self, up: Option<u64>, down: Option<u64>) {
        self.up.set(up.filter(|limit| *limit > 0));
        self.down.set(down.filter(|limit| *limit > 0));
    }

    /// Sets other limits for each single file (`--bwlimit-file`).
    pub fn set_each(&self, up: Option<u64>, down: Option<u64>) {
        self.up.each.lock().limit = up.filter(|limit| *limit > 0);
        self.down.each.lock().limit = down.filter(|limit| *limit > 0);
    }

    /// True when either direction has a limit now.
    pub fn is_set(&self) -> bool {
        [&self.up, &self.down].iter().any(|lane| lane.limit().is_some() || lane.each.lock().limit.is_some())
    }
}

/// The layer.
#[derive(Clone)]
pub struct LimitedStore {
    inner: Arc<dyn Store>,
    rate: Arc<Rate>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for LimitedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl LimitedStore {
    /// `inner` at the pace of `rate`.
    pub fn new(inner: Arc<dyn Store>, rate: Arc<Rate>, clock: Arc<dyn Clock>) -> Self {
        rate.remote.fetch_or(!inner.caps().files, Relaxed);
        LimitedStore { inner, rate, clock }
    }

    /// True when there is a limit now and bytes count here. Bytes of a disk count only where all stores of the run are disks.
    fn is_limited(&self) -> bool {
        self.rate.is_set() && !(self.inner.caps().files && self.rate.remote.load(Relaxed))
    }

    fn upload(&self, inner: Box<dyn Upload>) -> Box<dyn Upload> {
        let file = self.rate.uploads.fetch_add(1, Relaxed);
        Box::new(LimitedUpload { inner, limited: self.clone(), file })
    }

    fn body(&self, body: Body, file: u64) -> Body {
        // Checked once for each file: a limit that is set later holds from the next file on.
        if self.inner.caps().files && !self.is_limited() {
            return body;
        }
        let pieces = match body {
            Body::File(file, range) => file_pieces(file, range),
            Body::Stream(pieces) => pieces,
        };
        let (rate, clock) = (self.rate.clone(), self.clock.clone());
        let paced = stream::unfold((pieces, Bytes::new()), move |(mut pieces, mut left)| {
            let (rate, clock) = (rate.clone(), clock.clone());
            async move {
                if left.is_empty() {
                    left = match pieces.next().await? {
                        Ok(piece) => piece,
                        failed => return Some((failed, (pieces, left))),
                    };
                }
                let piece = left.split_to(left.len().min(rate.down.piece()));
                rate.down.pass(file, piece.len() as u64, &*clock).await;
                Some((Ok(piece), (pieces, left)))
            }
        });
        Body::Stream(paced.boxed())
    }
}

/// Tells one key from another.
fn file_of(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.as_bytes().hash(&mut hasher);
    hasher.finish()
}

/// A file as pieces. Each read is short and, at a limited pace, rare, so it is done where it is asked for.
fn file_pieces(file: Arc<File>, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
    let read = |file: &File, at: u64, size: u64| {
        let mut bytes = vec![0; size as usize];
        let count = file.read_at(&mut bytes, at).map_err(|e| Error::from_io("read", e))?;
        bytes.truncate(count);
        Ok(Bytes::from(bytes))
    };
    stream::unfold(Some((file, range)), move |state| async move {
        let (file, range) = state?;
        if range.is_empty() {
            return None;
        }
        match read(&file, range.start, PIECE.min(range.end - range.start)) {
            // The file became shorter: the reader's count finds out.
            Ok(bytes) if bytes.is_empty() => None,
            Ok(bytes) => {
                let rest = range.start + bytes.len() as u64..range.end;
                Some((Ok(bytes), Some((file, rest))))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

impl Store for LimitedStore {
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
        let (key, want) = (key.clone(), want.cloned());
        Box::pin(async move {
            let (file, down) = (file_of(&key), &self.rate.down);
            let bytes = range.as_ref().map(|range| range.end.saturating_sub(range.start));
            if let Some(bytes) = bytes.filter(|_| self.is_limited()) {
                down.begin(file, bytes, &*self.clock).await;
            }
            let read = self.inner.read(&key, want.as_ref(), range).await?;
            if bytes.is_none() && self.is_limited() {
                // How much it is comes with the answer.
                let turn = down.begin(file, read.entry.size, &*self.clock);
                let _ = tokio::time::timeout(SERVER_WAITS, turn).await;
            }
            Ok(Read { entry: read.entry, body: self.body(read.body, file) })
        })
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let write = self.inner.write(key, spec);
        Box::pin(async move {
            let inner = write.await?;
            Ok(self.upload(inner))
        })
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.inner.make_dir(key, spec)
    }

    fn copy(&self, mut batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        let on_this_machine = self.caps().domain.as_ref().is_some_and(|domain| domain.name == "local");
        let copies = |item: &CopyItem| matches!(item.how, CopyHow::Copy | CopyHow::Append { .. });
        let limited = on_this_machine && self.is_limited();
        if limited {
            // From one file system to another a rename is a copy.
            batch.items.iter_mut().for_each(|item| item.spec.renamed_only = item.how == CopyHow::Rename);
        }
        if limited && batch.items.iter().any(copies) {
            // The kernel's copy can't be slowed down; streamed through the engine it can. What else goes along has no bytes.
            let keys: Vec<_> = batch.items.iter().map(|item| copies(item).then(|| item.to.clone())).collect();
            let items = batch.items.into_iter().filter(|item| !copies(item)).collect();
            let others = self.inner.copy(CopyBatch { items, ..batch }, Watch::default());
            return Box::pin(async move {
                let mut others = others.await.into_iter();
                let error = || Error::new(ErrorKind::Unsupported, "copy", "a bandwidth limit is set");
                let mut other = || others.next().unwrap_or_else(|| Err(error()));
                keys.into_iter().map(|key| key.map_or_else(&mut other, |key| Err(error().with_key(&key)))).collect()
            });
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
        self.inner.resumable().map(|_| self as &dyn Resumable)
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        self.inner.inodes().map(|_| self as &dyn Inodes)
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        self.inner.hashing().map(|_| self as &dyn Hashing)
    }

    // These move few bytes.

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }

    fn doubles(&self) -> Option<&dyn Doubles> {
        self.inner.doubles()
    }

    fn encrypted(&self) -> Option<&dyn Encrypted> {
        self.inner.encrypted()
    }

    fn deltas(&self) -> Option<&dyn Deltas> {
        self.inner.deltas()
    }

    fn bundles(&self) -> Option<&dyn Bundles> {
        // Many at once can't be slowed down evenly; each alone can.
        self.inner.bundles().filter(|_| !self.is_limited())
    }
}

impl Resumable for LimitedStore {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let resume = offered(self.inner.resumable(), "resume").map(|inner| inner.resume(key, token, sent, spec));
        Box::pin(async move {
            let (inner, parts) = resume?.await?;
            Ok((self.upload(inner), parts))
        })
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        match offered(self.inner.resumable(), "discard") {
            Ok(inner) => inner.discard(key, token),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn whole_version(&self, key: &Key, parts: &[Part]) -> Option<Version> {
        self.inner.resumable()?.whole_version(key, parts)
    }
}

impl Inodes for LimitedStore {
    fn file_system(&self) -> BoxFuture<'_, Option<u64>> {
        self.inner.inodes().map_or_else(|| Box::pin(ready(None)) as _, Inodes::file_system)
    }

    fn attributes(&self, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
        match self.inner.inodes() {
            Some(inner) => inner.attributes(batch),
            None => Box::pin(ready(none_offered(batch.items.len(), "set attributes"))),
        }
    }

    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
        match self.inner.inodes() {
            Some(inner) => inner.carry(keys, inside),
            None => Box::pin(ready(none_offered(keys.len(), "read attributes"))),
        }
    }

    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
        match self.inner.inodes() {
            Some(inner) => inner.settle(items),
            None => Box::pin(ready(none_offered(items.len(), "rename"))),
        }
    }
}

impl Hashing for LimitedStore {
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>> {
        match offered(self.inner.hashing(), "hash") {
            Ok(inner) => inner.algos(),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>> {
        let limited = || Error::new(ErrorKind::Unsupported, "hash", "a bandwidth limit is set");
        match offered(self.inner.hashing(), "hash") {
            // Read through here its bytes count.
            Ok(_) if self.is_limited() && self.inner.caps().files => Box::pin(ready(Err(limited()))),
            Ok(inner) => inner.hash(key, version, algos),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

struct LimitedUpload {
    inner: Box<dyn Upload>,
    limited: LimitedStore,
    file: u64,
}

impl Upload for LimitedUpload {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        self.inner.token()
    }

    fn part_size(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        self.inner.part_size()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        self.inner.read_back(range)
    }

    fn reuse(&self, version: &Version, runs: Vec<Run>) -> BoxFuture<'_, Result<Vec<Part>>> {
        self.inner.reuse(version, runs)
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        Box::pin(async move {
            let LimitedStore { inner, rate, clock } = &self.limited;
            let file = self.file;
            if inner.lanes().is_none() {
                if self.limited.is_limited() {
                    rate.up.pass(file, payload.len(), &**clock).await;
                }
                return self.inner.part(index, offset, payload).await;
            }
            rate.up.begin(file, payload.len(), &**clock).await;
            // Bytes over a network are throttled as they pass.
            let (rate, clock) = (rate.clone(), clock.clone());
            let piece = rate.up.piece();
            let pace = Pace::new(piece, move |bytes| {
                let (rate, clock) = (rate.clone(), clock.clone());
                Box::pin(async move { rate.up.pass(file, bytes, &*clock).await })
            });
            self.inner.part(index, offset, payload.paced(pace)).await
        })
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        let LimitedUpload { inner, limited, file } = *self;
        Box::pin(async move {
            inner.publish(parts, late).await.map_err(|Unpublished { error, upload }| {
                let upload = Box::new(LimitedUpload { inner: upload, limited, file });
                Unpublished { error, upload }
            })
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.inner.abort()
    }
}
