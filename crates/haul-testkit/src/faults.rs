//! Faults on demand: a store that fails, cuts, lies or hangs at a chosen call, and a clock that doesn't take time.

use futures::{
    StreamExt,
    future::{BoxFuture, pending, ready},
    stream,
    stream::BoxStream,
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Listed, Meta, MissedRange, Mtime, Result, Retry, Version,
    attributes::FileAttributes, delta::Run,
};
use haul_store::{
    Admin, AttributesBatch, AttributesResult, Body, Bundles, Caps, Cleanup, CopyBatch, Deltas, Doubles, Encrypted,
    EncryptedFile, Hashing, Inodes, Lanes, LateFacts, ListRequest, Part, Payload, Read, Resumable, ResumedWrite,
    SentPart, SettleItem, SpaceUsage, Store, StoredFacts, UnfinishedWrites, Unpublished, Upload, Watch, WriteSpec,
    layers::clock::Clock,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::{Duration, Instant},
};

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the store's own verbs, and its facets'")]
pub enum Op {
    List,
    Stat,
    Read,
    Write,
    Resume,
    Discard,
    Part,
    Publish,
    MakeDir,
    Copy,
    SetMeta,
    Delete,
    Attributes,
    Settle,
    Admin,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The call fails with an error of this kind, and nothing is done. A batch fails for each item.
    Fail(ErrorKind, Retry),
    /// The call is done, then its answer is lost: an error of this kind comes instead.
    LoseAnswer(ErrorKind, Retry),
    /// These items of a batch fail, the others are done.
    FailItems(Vec<usize>, ErrorKind, Retry),
    /// A body breaks after so many bytes, a listing after so many entries, with an error that may pass.
    Break(u64),
    /// The same without an error: it merely ends.
    Cut(u64),
    /// A listing lacks this key, as one may that isn't atomic.
    Omit(Key),
    /// The same, told: it vanished while it was looked at.
    Vanish(Key),
    /// The store claims to have stored something else.
    WrongHash,
    /// No answer ever.
    Hang,
}

impl Fault {
    fn error(kind: ErrorKind, retry: Retry) -> Error {
        Error::new(kind, "fault", "injected").with_retry(retry)
    }
}

/// A store with faults. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    /// So much is the store's clock behind this machine's.
    behind: Duration,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By call: which one (from 1), what happens.
    faults: Mutex<BTreeMap<(Op, u64), Fault>>,
    calls: Mutex<BTreeMap<Op, u64>>,
    /// What uploads say of the size of their parts.
    part_size: OnceLock<u64>,
}

impl State {
    fn calls(&self) -> MutexGuard<'_, BTreeMap<Op, u64>> {
        self.calls.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Counts a call and says what goes wrong with it.
    fn call(&self, op: Op) -> Option<Fault> {
        let mut calls = self.calls();
        let count = calls.entry(op).or_default();
        *count += 1;
        self.faults.lock().unwrap_or_else(|e| e.into_inner()).get(&(op, *count)).cloned()
    }
}

impl Faulty {
    /// `inner` without faults yet.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Faulty { inner, behind: Duration::ZERO, state: Arc::default() }
    }

    /// Lets the `nth` call (from 1) of `op` go wrong.
    pub fn on(self, op: Op, nth: u64, fault: Fault) -> Self {
        self.state.faults.lock().unwrap_or_else(|e| e.into_inner()).insert((op, nth), fault);
        self
    }

    /// Lets uploads say that their parts have this size.
    pub fn parts_of(self, size: u64) -> Self {
        self.state.part_size.get_or_init(|| size);
        self
    }

    /// Lets the store's clock be behind this machine's: all times in listings are so much earlier.
    pub fn behind(self, behind: Duration) -> Self {
        Faulty { behind, ..self }
    }

    /// How often `op` was called so far.
    pub fn calls(&self, op: Op) -> u64 {
        self.state.calls().get(&op).copied().unwrap_or(0)
    }
}

/// Does `call` as the fault for it says.
async fn with<T>(fault: Option<Fault>, call: impl Future<Output = Result<T>>) -> Result<T> {
    match fault {
        Some(Fault::Fail(kind, retry)) => Err(Fault::error(kind, retry)),
        Some(Fault::LoseAnswer(kind, retry)) => {
            call.await?;
            Err(Fault::error(kind, retry))
        }
        Some(Fault::Hang) => pending().await,
        _ => call.await,
    }
}

/// Does a batch as the fault for it says; `call` gets the numbers of the items that are really done.
async fn batch<T, F: Future<Output = Vec<Result<T>>>>(
    fault: Option<Fault>,
    count: usize,
    call: impl FnOnce(Vec<usize>) -> F,
) -> Vec<Result<T>> {
    let (failing, kind, retry) = match fault {
        Some(Fault::Fail(kind, retry)) => ((0..count).collect(), kind, retry),
        Some(Fault::FailItems(items, kind, retry)) => (items, kind, retry),
        Some(Fault::Hang) => pending().await,
        _ => (Vec::new(), ErrorKind::Io, Retry::Never),
    };
    let done: Vec<usize> = (0..count).filter(|n| !failing.contains(n)).collect();
    let mut answers = if done.is_empty() { Vec::new() } else { call(done).await }.into_iter();
    (0..count)
        .map(|n| match failing.contains(&n) {
            true => Err(Fault::error(kind, retry)),
            false => answers.next().unwrap_or_else(|| Err(Fault::error(ErrorKind::Io, Retry::Never))),
        })
        .collect()
}

fn break_body(body: Body, after: u64, error: bool) -> Body {
    let pieces = match body {
        Body::Stream(pieces) => pieces,
        file => return file,
    };
    let broken = stream::unfold(Some((pieces, after)), move |state| async move {
        let (mut pieces, left) = state?;
        if left == 0 {
            let failed = Err(Fault::error(ErrorKind::Io, Retry::Backoff));
            return error.then_some((failed, None));
        }
        match pieces.next().await? {
            Ok(piece) => {
                let piece = piece.slice(..piece.len().min(left as usize));
                let left = left - piece.len() as u64;
                Some((Ok(piece), Some((pieces, left))))
            }
            failed => Some((failed, None)),
        }
    });
    Body::Stream(broken.boxed())
}

/// A listing of what becomes of each entry.
fn each_entry(
    listing: BoxStream<'static, Listed>,
    becomes: impl Fn(Entry) -> Option<Entry> + Send + 'static,
) -> BoxStream<'static, Listed> {
    listing
        .map(move |step| match step {
            Listed::Batch(batch) => Listed::Batch(batch.into_iter().filter_map(&becomes).collect()),
            other => other,
        })
        .boxed()
}

fn break_list(listing: BoxStream<'static, Listed>, after: u64, error: bool) -> BoxStream<'static, Listed> {
    stream::unfold(Some((listing, after, Key::new(""))), move |state| async move {
        let (mut listing, left, last) = state?;
        if left == 0 {
            let lost = MissedRange::from(last.with_suffix([0]));
            let failed = Listed::Failed { lost, error: Fault::error(ErrorKind::Io, Retry::Backoff) };
            return error.then_some((failed, None));
        }
        match listing.next().await? {
            Listed::Batch(mut batch) => {
                batch.truncate(left as usize);
                let last = batch.last().map_or(last, |entry| entry.key.clone());
                let left = left - batch.len() as u64;
                Some((Listed::Batch(batch), Some((listing, left, last))))
            }
            other => Some((other, Some((listing, left, last)))),
        }
    })
    .boxed()
}

impl Store for Faulty {
    fn locator(&self) -> &str {
        self.inner.locator()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let mut listing = self.inner.list(request);
        if !self.behind.is_zero() {
            let behind = self.behind.as_nanos() as i128;
            let earlier = move |entry: Entry| {
                let earlier = |time: Option<Mtime>| time.map(|time| Mtime(time.0 - behind));
                Entry { mtime: earlier(entry.mtime), changed: earlier(entry.changed), ..entry }
            };
            listing = each_entry(listing, move |entry| Some(earlier(entry)));
        }
        match self.state.call(Op::List) {
            Some(Fault::Fail(kind, retry)) => {
                let error = Fault::error(kind, retry);
                stream::iter([Listed::Failed { lost: MissedRange::from(Key::new("")), error }]).boxed()
            }
            Some(Fault::Break(after)) => break_list(listing, after, true),
            Some(Fault::Cut(after)) => break_list(listing, after, false),
            Some(Fault::Omit(key)) => each_entry(listing, move |entry| (entry.key != key).then_some(entry)),
            Some(Fault::Vanish(key)) => {
                let vanished = stream::iter([Listed::Vanished(key.clone())]);
                vanished.chain(each_entry(listing, move |entry| (entry.key != key).then_some(entry))).boxed()
            }
            Some(Fault::Hang) => stream::pending().boxed(),
            _ => listing,
        }
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        Box::pin(with(self.state.call(Op::Stat), self.inner.stat(key)))
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let fault = self.state.call(Op::Read);
        let read = self.inner.read(key, want, range);
        Box::pin(async move {
            let read = with(fault.clone(), read).await?;
            let body = match fault {
                Some(Fault::Break(after)) => break_body(read.body, after, true),
                Some(Fault::Cut(after)) => break_body(read.body, after, false),
                _ => read.body,
            };
            Ok(Read { entry: read.entry, body })
        })
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let write = with(self.state.call(Op::Write), self.inner.write(key, spec));
        Box::pin(async move {
            let inner = write.await?;
            Ok(Box::new(FaultyUpload { write: Write::Open(inner), state: self.state.clone() }) as Box<dyn Upload>)
        })
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        Box::pin(with(self.state.call(Op::MakeDir), self.inner.make_dir(key, spec)))
    }

    fn copy(&self, request: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        let fault = self.state.call(Op::Copy);
        Box::pin(async move {
            let CopyBatch { from, items, links } = request;
            let call = |numbers: Vec<usize>| {
                let items = numbers.iter().map(|n| items[*n].clone()).collect();
                let watch = watch.of(numbers);
                self.inner.copy(CopyBatch { from, items, links }, watch)
            };
            batch(fault, items.len(), call).await
        })
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        Box::pin(with(self.state.call(Op::SetMeta), self.inner.set_meta(key, mtime, meta)))
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        let fault = self.state.call(Op::Delete);
        Box::pin(async move {
            let call = |numbers: Vec<usize>| self.inner.delete(numbers.into_iter().map(|n| keys[n].clone()).collect());
            batch(fault, keys.len(), call).await
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
        self.inner.deltas()
    }

    fn bundles(&self) -> Option<&dyn Bundles> {
        self.inner.bundles()
    }
}

impl Faulty {
    /// A facet of the store, of which `Store` said that it is there.
    fn below<'a, T: ?Sized>(&'a self, facet: fn(&'a dyn Store) -> Option<&'a T>) -> &'a T {
        facet(&*self.inner).expect("the store has the facet")
    }
}

impl Resumable for Faulty {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let below = self.below(Store::resumable).resume(key, token, sent, spec);
        let resume = with(self.state.call(Op::Resume), below);
        Box::pin(async move {
            let (inner, parts) = resume.await?;
            let upload = FaultyUpload { write: Write::Open(inner), state: self.state.clone() };
            Ok((Box::new(upload) as Box<dyn Upload>, parts))
        })
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        Box::pin(with(self.state.call(Op::Discard), self.below(Store::resumable).discard(key, token)))
    }

    fn whole_version(&self, key: &Key, parts: &[Part]) -> Option<Version> {
        self.below(Store::resumable).whole_version(key, parts)
    }
}

impl Inodes for Faulty {
    fn attributes(&self, request: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
        let fault = self.state.call(Op::Attributes);
        Box::pin(async move {
            let call = |numbers: Vec<usize>| {
                let items = numbers.into_iter().map(|n| request.items[n].clone()).collect();
                self.below(Store::inodes).attributes(AttributesBatch { from: request.from.clone(), items, ..request })
            };
            batch(fault, request.items.len(), call).await
        })
    }

    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
        let fault = self.state.call(Op::Attributes);
        Box::pin(async move {
            let call = |numbers: Vec<usize>| {
                self.below(Store::inodes).carry(numbers.into_iter().map(|n| keys[n].clone()).collect(), inside)
            };
            batch(fault, keys.len(), call).await
        })
    }

    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
        let fault = self.state.call(Op::Settle);
        Box::pin(async move {
            let call = |numbers: Vec<usize>| {
                self.below(Store::inodes).settle(numbers.into_iter().map(|n| items[n].clone()).collect())
            };
            batch(fault, items.len(), call).await
        })
    }
}

impl Hashing for Faulty {
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>> {
        self.below(Store::hashing).algos()
    }

    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>> {
        Box::pin(with(self.state.call(Op::Read), self.below(Store::hashing).hash(key, version, algos)))
    }
}

impl Admin for Faulty {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        Box::pin(with(self.state.call(Op::Admin), self.below(Store::admin).about()))
    }

    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        Box::pin(with(self.state.call(Op::Admin), self.below(Store::admin).user()))
    }

    fn link(&self, key: &Key, lasts: Duration) -> BoxFuture<'_, Result<String>> {
        Box::pin(with(self.state.call(Op::Admin), self.below(Store::admin).link(key, lasts)))
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        Box::pin(with(self.state.call(Op::Admin), self.below(Store::admin).cleanup(what)))
    }

    fn empty_trash(&self, dry_run: bool) -> BoxFuture<'_, Result<Vec<Key>>> {
        Box::pin(with(self.state.call(Op::Admin), self.below(Store::admin).empty_trash(dry_run)))
    }

    fn set_tier(&self, key: &Key, tier: &str) -> BoxFuture<'_, Result<()>> {
        Box::pin(with(self.state.call(Op::Admin), self.below(Store::admin).set_tier(key, tier)))
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(with(self.state.call(Op::Admin), self.below(Store::admin).sync()))
    }
}

impl Encrypted for Faulty {
    fn sealed(&self, key: &Key, version: Option<&Version>) -> BoxFuture<'_, Result<EncryptedFile>> {
        Box::pin(with(self.state.call(Op::Read), self.below(Store::encrypted).sealed(key, version)))
    }

    fn hidden(&self, key: &Key) -> Result<Key> {
        self.below(Store::encrypted).hidden(key)
    }

    fn plain(&self, hidden: &Key) -> Result<Key> {
        self.below(Store::encrypted).plain(hidden)
    }
}

struct FaultyUpload {
    write: Write,
    state: Arc<State>,
}

enum Write {
    /// Under way.
    Open(Box<dyn Upload>),
    /// Published, but the answer was lost: publishing again gives it again, as a repeated PUT does.
    Published(StoredFacts),
}

impl FaultyUpload {
    fn open(&self) -> Result<&dyn Upload> {
        match &self.write {
            Write::Open(inner) => Ok(inner.as_ref()),
            Write::Published(_) => Err(Fault::error(ErrorKind::Invalid, Retry::Never)),
        }
    }

    async fn publish_as(
        self: Box<Self>,
        fault: Option<Fault>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> Result<StoredFacts, Unpublished> {
        match fault {
            Some(Fault::Fail(kind, retry)) => {
                return Err(Unpublished { error: Fault::error(kind, retry), upload: self });
            }
            Some(Fault::Hang) => pending::<()>().await,
            _ => {}
        }
        let FaultyUpload { write, state } = *self;
        let mut stored = match write {
            Write::Published(stored) => stored,
            Write::Open(inner) => {
                inner.publish(parts, late).await.map_err(|Unpublished { error, upload }| Unpublished {
                    error,
                    upload: Box::new(FaultyUpload { write: Write::Open(upload), state: state.clone() }),
                })?
            }
        };
        match fault {
            Some(Fault::LoseAnswer(kind, retry)) => {
                let upload = Box::new(FaultyUpload { write: Write::Published(stored), state });
                return Err(Unpublished { error: Fault::error(kind, retry), upload });
            }
            Some(Fault::WrongHash) => {
                let wrong = |value: &[u8]| value.iter().map(|byte| !byte).collect::<Vec<u8>>();
                stored.hashes = stored.hashes.iter().fold(Hashes::default(), |all, (algo, v)| all.with(algo, wrong(v)));
            }
            _ => {}
        }
        Ok(stored)
    }
}

impl Upload for FaultyUpload {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move { self.open()?.token().await })
    }

    fn part_size(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        Box::pin(async move {
            match self.state.part_size.get() {
                Some(size) => Ok(Some(*size)),
                None => self.open()?.part_size().await,
            }
        })
    }

    fn is_shared(&self) -> bool {
        self.open().is_ok_and(Upload::is_shared)
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        Box::pin(async move { self.open()?.read_back(range).await })
    }

    fn reuse(&self, version: &Version, runs: Vec<Run>) -> BoxFuture<'_, Result<Vec<Part>>> {
        let (fault, version) = (self.state.call(Op::Part), version.clone());
        Box::pin(async move { with(fault, self.open()?.reuse(&version, runs)).await })
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        let fault = self.state.call(Op::Part);
        Box::pin(async move { with(fault, self.open()?.part(index, offset, payload)).await })
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        let fault = self.state.call(Op::Publish);
        Box::pin(self.publish_as(fault, parts, late))
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        match self.write {
            Write::Open(inner) => inner.abort(),
            Write::Published(_) => Box::pin(std::future::ready(Ok(()))),
        }
    }
}

/// A clock on which waiting takes no time, and chance is always the same.
#[derive(Debug)]
pub struct FakeClock {
    begun: Instant,
    /// Every wait so far.
    waits: Mutex<Vec<Duration>>,
    chance: f64,
}

impl FakeClock {
    /// A clock whose lots all give `chance` (0 to below 1).
    pub fn new(chance: f64) -> Arc<Self> {
        Arc::new(FakeClock { begun: Instant::now(), waits: Mutex::default(), chance })
    }

    /// Every wait so far, in order.
    pub fn waits(&self) -> Vec<Duration> {
        self.waits.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        self.begun + self.waits().iter().sum::<Duration>()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.waits.lock().unwrap_or_else(|e| e.into_inner()).push(wait);
        Box::pin(ready(()))
    }

    fn chance(&self) -> f64 {
        self.chance
    }
}
