//! The bandwidth limit (`--bwlimit`): bytes a second, up and down apart, shared by all stores of a run. What passes between this
//! machine's disks and another store counts once, at the other store.

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
use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// Bytes of a disk's file that are read at once while a limit is set.
const PIECE: u64 = 64 << 10;

/// A request that moves more waits for its turn before it begins, so that those begun before it end first: what has arrived can
/// be sent on while the rest is still coming.
const LARGE: u64 = 256 << 10;

/// So long before those begun earlier will have moved all their bytes the next one begins: a request's wait for its answer
/// mustn't leave the line idle.
const LEAD: Duration = Duration::from_millis(250);

/// A server that has begun to answer is kept waiting no longer; many hang up after 30 s.
const SERVER_WAITS: Duration = Duration::from_secs(20);

/// Time that went by unused, because a timer rang late, is made up for up to this much.
const SLACK: Duration = Duration::from_millis(20);

/// Share of the limit that is used, so that catching up doesn't exceed it.
const SHARE: f64 = 0.995;

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

/// One direction: a line for the bytes as they pass, and one for large requests before they begin.
#[derive(Debug, Default)]
struct Lane {
    bytes: Line,
    requests: Line,
    /// Limit for each single file.
    each: Each,
}

impl Lane {
    fn set(&self, limit: Option<u64>) {
        self.bytes.lock().limit = limit;
        self.requests.lock().limit = limit;
    }

    fn limit(&self) -> Option<u64> {
        self.bytes.lock().limit
    }

    /// Bytes that pass at once: few milliseconds' worth, so that files take turns often.
    fn piece(&self) -> usize {
        let limits = [self.limit(), self.each.lock().limit];
        limits.into_iter().flatten().min().map_or(LARGE, |limit| (limit / 64).clamp(4 << 10, LARGE)) as usize
    }

    /// Waits until a request for `bytes` bytes of a file may begin.
    async fn begin(&self, file: u64, bytes: u64, clock: &dyn Clock) {
        if bytes > LARGE {
            self.requests.turn(file, bytes, LEAD, clock).await;
        }
    }

    /// Waits until `bytes` bytes of a file may have passed.
    async fn pass(&self, file: u64, bytes: u64, clock: &dyn Clock) {
        let own = self.each.lock().wait(file, bytes, clock.now());
        if !own.is_zero() {
            clock.sleep(own).await;
        }
        let wait = self.bytes.turn(file, bytes, Duration::ZERO, clock).await;
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
    }
}

/// Limits of single files, which don't wait for each other.
#[derive(Debug, Default)]
struct Each(Mutex<Paid>);

#[derive(Debug, Default)]
struct Paid {
    limit: Option<u64>,
    /// When the last byte of each file that was let through is paid for.
    files: HashMap<u64, Instant>,
}

impl Each {
    fn lock(&self) -> MutexGuard<'_, Paid> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Paid {
    /// How long until `bytes` bytes of a file are paid for.
    fn wait(&mut self, file: u64, bytes: u64, now: Instant) -> Duration {
        let Some(limit) = self.limit else { return Duration::ZERO };
        if self.files.len() >= REMEMBERED {
            self.files.retain(|_, paid| *paid > now);
        }
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let from = self.files.get(&file).map_or(now, |paid| (*paid).max(earliest));
        let paid = from + Duration::from_secs_f64(bytes as f64 / (limit as f64 * SHARE));
        self.files.insert(file, paid);
        paid.saturating_duration_since(now)
    }
}

/// A line in which every byte has its time, and in which files take turns.
#[derive(Debug, Default)]
struct Line(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limit: Option<u64>,
    /// When the last byte let through is paid for.
    paid: Option<Instant>,
    turns: Turns,
}

/// Who is next: whoever would be done first if all files shared alike (self-clocked fair queueing, Golestani 1994). A small file
/// needn't wait for all of a large one, nor a large one for all small ones. Bytes stand for time.
#[derive(Debug, Default)]
struct Turns {
    /// The end of the last one let through.
    now: u64,
    /// The end of the last one of each file.
    files: HashMap<u64, u64>,
    /// By their ends, then in the order in which they came.
    waiting: BTreeMap<(u64, u64), Arc<Notify>>,
    came: u64,
}

/// Files whose ends are remembered before those that don't matter any more are forgotten.
const REMEMBERED: usize = 4096;

impl Turns {
    fn enter(&mut self, file: u64, bytes: u64, wake: &Arc<Notify>) -> (u64, u64) {
        if self.files.len() >= REMEMBERED {
            let now = self.now;
            self.files.retain(|_, end| *end > now);
        }
        let end = self.files.get(&file).map_or(self.now, |end| self.now.max(*end)) + bytes;
        self.files.insert(file, end);
        self.came += 1;
        self.waiting.insert((end, self.came), wake.clone());
        (end, self.came)
    }

    fn is_first(&self, at: (u64, u64)) -> bool {
        self.waiting.first_key_value().is_none_or(|(first, _)| *first >= at)
    }

    /// Takes it out of the line and wakes the next.
    fn leave(&mut self, at: (u64, u64)) {
        self.waiting.remove(&at);
        if let Some((_, next)) = self.waiting.first_key_value() {
            next.notify_one();
        }
    }
}

/// A place in a line; given up as it is dropped.
struct InLine<'a> {
    line: &'a Line,
    at: (u64, u64),
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.line.lock().turns.leave(self.at);
    }
}

enum Look {
    /// It is let through, and paid for after this long.
    Go(Duration),
    /// It is the next, after this long.
    Wait(Duration),
    /// Others are before it.
    Behind,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until what was let through before is paid for, or `lead` sooner, and it is the turn of these bytes. Says how long
    /// it takes then until they are paid for.
    async fn turn(&self, file: u64, bytes: u64, lead: Duration, clock: &dyn Clock) -> Duration {
        let wake = Arc::new(Notify::new());
        let place = {
            let mut state = self.lock();
            if state.limit.is_none() {
                state.paid = None;
                return Duration::ZERO;
            }
            InLine { line: self, at: state.turns.enter(file, bytes, &wake) }
        };
        loop {
            let look = self.lock().look(place.at, bytes, lead, clock.now());
            match look {
                Look::Go(paid) => return paid,
                Look::Wait(time) => clock.sleep(time).await,
                Look::Behind => wake.notified().await,
            }
        }
    }
}

impl State {
    fn look(&mut self, at: (u64, u64), bytes: u64, lead: Duration, now: Instant) -> Look {
        let Some(limit) = self.limit else {
            self.turns.leave(at);
            return Look::Go(Duration::ZERO);
        };
        if !self.turns.is_first(at) {
            return Look::Behind;
        }
        let wait = self.paid.map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now));
        if wait > lead {
            return Look::Wait(wait - lead);
        }
        let from = self.paid.map_or(now, |paid| paid.max(now.checked_sub(SLACK).unwrap_or(now)));
        let paid = from + Duration::from_secs_f64(bytes as f64 / (limit as f64 * SHARE));
        self.paid = Some(paid);
        self.turns.now = self.turns.now.max(at.0);
        self.turns.leave(at);
        Look::Go(paid.saturating_duration_since(now))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Poll, Wake, Waker},
    };

    /// A clock that advances when nothing else can run.
    struct Virtual {
        begun: Instant,
        now: Mutex<Instant>,
        /// Ends of sleeps and their wakers; numbered, as several may end together.
        sleeping: Mutex<BTreeMap<(Instant, u64), Waker>>,
        slept: AtomicU64,
    }

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    impl Virtual {
        fn new() -> Arc<Virtual> {
            let begun = Instant::now();
            let (now, sleeping, slept) = (Mutex::new(begun), Mutex::default(), AtomicU64::new(0));
            Arc::new(Virtual { begun, now, sleeping, slept })
        }

        fn elapsed(&self) -> f64 {
            (*self.now.lock().unwrap() - self.begun).as_secs_f64()
        }

        fn run<T>(&self, work: impl Future<Output = T>) -> T {
            let mut work = pin!(work);
            let woken = Arc::new(Woken(AtomicBool::new(true)));
            let waker = Waker::from(woken.clone());
            loop {
                while woken.0.swap(false, Relaxed) {
                    if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return done;
                    }
                }
                let ((next, _), sleeper) = self.sleeping.lock().unwrap().pop_first().expect("somebody sleeps");
                *self.now.lock().unwrap() = next;
                sleeper.wake();
            }
        }
    }

    impl Clock for Arc<Virtual> {
        fn now(&self) -> Instant {
            *self.now.lock().unwrap()
        }

        fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
            let (clock, end, number) = (self.clone(), self.now() + wait, self.slept.fetch_add(1, Relaxed));
            Box::pin(std::future::poll_fn(move |cx| {
                if clock.now() >= end {
                    return Poll::Ready(());
                }
                clock.sleeping.lock().unwrap().insert((end, number), cx.waker().clone());
                Poll::Pending
            }))
        }

        fn chance(&self) -> f64 {
            0.0
        }
    }

    const MI: u64 = 1 << 20;

    /// Time from the beginning, and bytes that have passed then.
    type Passed = Arc<Mutex<Vec<(f64, u64)>>>;

    async fn move_bytes(lane: &Lane, file: u64, bytes: u64, clock: &Arc<Virtual>, passed: &Passed) {
        lane.begin(file, bytes, clock).await;
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(lane.piece() as u64);
            lane.pass(file, piece, clock).await;
            passed.lock().unwrap().push((clock.elapsed(), piece));
            left -= piece;
        }
    }

    /// The most bytes of any ten seconds.
    fn most(passed: &Passed) -> u64 {
        let passed = passed.lock().unwrap();
        let within = |from: f64| passed.iter().filter(move |(at, _)| (from..=from + 10.0).contains(at));
        passed.iter().step_by(16).map(|(from, _)| within(*from).map(|(_, bytes)| bytes).sum()).max().unwrap_or(0)
    }

    #[test]
    fn what_comes_is_sent_on_while_the_rest_is_still_coming() {
        let (limit, clock) = (40 * MI, Virtual::new());
        let rate = Rate::new(Some(limit), Some(limit));
        let (down, up) = (Passed::default(), Passed::default());
        let chunk = async |file: u64| {
            move_bytes(&rate.down, file, 8 * MI, &clock, &down).await;
            move_bytes(&rate.up, file, 8 * MI, &clock, &up).await;
        };
        let chunks = 80;
        clock.run(futures::future::join_all((0..chunks).map(|n| chunk(n % 5))));
        let (took, best) = (clock.elapsed(), (chunks * 8 * MI) as f64 / limit as f64);
        assert!(took >= best && took < best / 0.9, "{took} s where {best} would do");
        assert!(most(&down) <= 10 * limit && most(&up) <= 10 * limit, "{} {}", most(&down), most(&up));
    }

    #[test]
    fn a_large_file_keeps_small_ones_waiting_no_longer_than_they_it() {
        let (limit, clock) = (12 * MI, Virtual::new());
        let rate = Rate::new(Some(limit), None);
        let ends = async |file: u64, sizes: Vec<u64>| {
            let all = Passed::default();
            let parts = sizes.into_iter().map(|size| move_bytes(&rate.up, file, size, &clock, &all));
            futures::future::join_all(parts).await;
            clock.elapsed()
        };
        let small = futures::future::join_all((1..=200).map(|n| ends(n, vec![64 << 10])));
        let (large, small) = clock.run(async { futures::join!(ends(0, vec![8 * MI; 12]), small) });
        let last = small.into_iter().fold(0.0, f64::max);
        // 12.5 MiB of small files would take 1 s alone, and the large one 8 s.
        assert!(last < 2.5, "the last small file took {last} s");
        assert!(large > 9.0 && large < 10.0, "{large}");
    }

    #[test]
    fn who_gives_up_waiting_holds_up_nobody() {
        let clock = Virtual::new();
        let rate = Rate::new(Some(1000), None);
        clock.run(async {
            rate.up.pass(0, 1000, &clock).await;
            let mut first = Box::pin(rate.up.pass(1, 1000, &clock));
            let second = rate.up.pass(2, 1000, &clock);
            assert!(futures::poll!(&mut first).is_pending());
            drop(first);
            second.await;
        });
        assert!(clock.elapsed() < 3.1);
    }

    #[test]
    fn a_limit_can_be_changed_and_taken_away() {
        let clock = Virtual::new();
        let rate = Rate::new(None, Some(10));
        let passes = |lane: &Lane, bytes: u64| {
            clock.run(lane.pass(0, bytes, &clock));
            clock.elapsed().round()
        };
        assert!(rate.is_set());
        assert_eq!(passes(&rate.up, 1 << 40), 0.0);
        assert_eq!(passes(&rate.down, 10), 1.0);
        rate.set(None, Some(20));
        assert_eq!(passes(&rate.down, 20), 2.0);
        rate.set(None, Some(0));
        assert_eq!(passes(&rate.down, 1 << 40), 2.0);
        assert!(!rate.is_set());
    }

    #[test]
    fn each_file_is_paid_for_by_itself() {
        let now = Instant::now();
        let mut paid = Paid { limit: Some(1000), ..Paid::default() };
        let seconds = |wait: Duration| (wait.as_secs_f64() * 10.0).round() / 10.0;
        assert_eq!(seconds(paid.wait(1, 1000, now)), 1.0);
        assert_eq!(seconds(paid.wait(1, 1000, now)), 2.0);
        assert_eq!(seconds(paid.wait(2, 500, now)), 0.5);
        // Only a little unused time is made up for.
        assert_eq!(seconds(paid.wait(1, 1000, now + Duration::from_secs(60))), 1.0);
        paid.limit = None;
        assert_eq!(paid.wait(1, 1000, now), Duration::ZERO);
    }
}
