//! The one place that retries: requests that failed in a way that may pass, with growing, randomised waits.
//!
//! Finished work isn't repeated: bodies resume at the byte that was reached, listings after the last key,
//! batches with the items that failed. Publishing is retried only for writes so small that their bytes are still
//! at hand; a store whose publish is one more request after many parts must retry it itself. Once the
//! user stops the run, nothing here waits any more.

use super::{LayerSettings, Stop, clock::Clock};
use crate::{
    Admin, AttributesBatch, AttributesResult, Body, Bundles, Caps, Cleanup, CopyBatch, CopyItem, Deltas, Doubles,
    Encrypted, EncryptedFile, Hashing, Inodes, Lanes, LateFacts, ListRequest, Meters, Part, Payload, Read, Relay,
    Resumable, ResumedWrite, SentPart, SettleItem, SpaceUsage, Store, StoredFacts, UnfinishedWrites, Unpublished,
    Upload, Watch, WriteSpec, none_offered, offered,
};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream, stream::BoxStream};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Listed, Meta, MissedRange, Mtime, Result, Retry, Version,
    attributes::FileAttributes, delta::Run, key::after_prefix, plan::Replace,
};
use std::{
    future::Future,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// After this many failures of one request in a row the user is warned, once per store; until then less than a second was waited.
const TOLD: u32 = 4;
/// A wait that a service asks for is told from this length on.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// A request that is under way when the user stops the run gets its answer within this time, or is given up: whoever presses
/// Ctrl-C waits for a healthy server, not for one that hangs.
const GRACE: Duration = Duration::from_secs(1);

/// The layer.
#[derive(Clone)]
pub struct Retrying(Arc<Shared>);

struct Shared {
    inner: Arc<dyn Store>,
    tries: u32,
    tries_unanswered: u32,
    backoff: Duration,
    backoff_max: Duration,
    clock: Arc<dyn Clock>,
    stop: Option<Stop>,
    meters: Arc<Meters>,
    reported: AtomicBool,
    /// The user was told that the service asked for a long wait.
    wait_reported: AtomicBool,
}

impl std::fmt::Debug for Retrying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.inner.fmt(f)
    }
}

impl Retrying {
    /// `inner`, tried again as `settings` say; counts in `meters`.
    pub fn new(inner: Arc<dyn Store>, settings: &LayerSettings, meters: Arc<Meters>) -> Self {
        // Work on a disk ends by itself, and leaves no remains only if it may finish.
        let stop = settings.stop.clone().filter(|_| !inner.caps().files);
        Retrying(Arc::new(Shared {
            inner,
            stop,
            tries: settings.tries.max(1),
            tries_unanswered: settings.tries_unanswered.max(1),
            backoff: settings.backoff,
            backoff_max: settings.backoff_max,
            clock: settings.clock.clone(),
            meters,
            reported: AtomicBool::new(false),
            wait_reported: AtomicBool::new(false),
        }))
    }
}

/// Counts the failures of one request in a row.
#[derive(Default)]
struct Failures(u32);

impl Shared {
    /// Waits and says true when a request that failed with `error` should be sent again.
    async fn again(&self, error: &Error, failures: &mut Failures) -> bool {
        failures.0 += 1;
        let tries = if error.kind() == ErrorKind::Unreachable { self.tries_unanswered } else { self.tries };
        if error.retry() == Retry::Never || failures.0 >= tries {
            return false;
        }
        let wait = self.wait(error.retry(), failures.0);
        if self.stopped().now_or_never().is_some() {
            return false;
        }
        self.meters.retry();
        tracing::debug!(%error, failures = failures.0, ?wait, "trying again");
        if failures.0 == TOLD && !self.reported.swap(true, Ordering::Relaxed) {
            tracing::warn!("{error}; it has failed {TOLD} times in a row, trying again up to {tries} times");
        }
        if matches!(error.retry(), Retry::After(wait) if wait >= LONG_WAIT)
            && !self.wait_reported.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("{error}; the service asks for a wait of {} s, which is kept", wait.as_secs());
        }
        tokio::select! {
            () = self.clock.sleep(wait) => true,
            () = self.stopped() => false,
        }
    }

    async fn stopped(&self) {
        match &self.stop {
            Some(stop) => (stop.0)().await,
            None => std::future::pending().await,
        }
    }

    /// The answer of `request`, unless the run is stopped and it still has none [`GRACE`] later.
    async fn answer<T>(&self, request: impl Future<Output = T>) -> Result<T> {
        let late = async {
            self.stopped().await;
            self.clock.sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            answer = request => Ok(answer),
            () = late => Err(stopped()),
        }
    }

    /// "Full jitter" (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015): any time from 0 up to
    /// a bound that doubles. Many clients that failed together then don't come back together. A time that the server
    /// names is a lower bound, with a little spread on top.
    fn wait(&self, retry: Retry, failures: u32) -> Duration {
        let bound = self.backoff.saturating_mul(1 << (failures - 1).min(20)).min(self.backoff_max);
        match retry {
            Retry::After(least) => least + self.backoff.mul_f64(self.clock.chance()),
            _ => bound.mul_f64(self.clock.chance()),
        }
    }

    async fn attempt<T, F: Future<Output = Result<T>>>(&self, mut request: impl FnMut() -> F) -> Result<T> {
        let mut failures = Failures::default();
        loop {
            match self.answer(request()).await.flatten() {
                Err(error) if self.again(&error, &mut failures).await => {}
                answer => return answer,
            }
        }
    }

    /// Sends a batch, then again the items of it that failed in a way that may pass. `send` gets the numbers of those
    /// to send and gives one answer for each.
    async fn batch<T, F: Future<Output = Vec<Result<T>>>>(
        &self,
        count: usize,
        mut send: impl FnMut(&[usize]) -> F,
    ) -> Vec<Result<T>> {
        let mut answers: Vec<Option<Result<T>>> = (0..count).map(|_| None).collect();
        let mut rest: Vec<usize> = (0..count).collect();
        let mut failures = Failures::default();
        while !rest.is_empty() {
            let Ok(given) = self.answer(send(&rest)).await else {
                rest.iter().for_each(|number| answers[*number] = Some(Err(stopped())));
                break;
            };
            for (number, answer) in rest.iter().zip(given) {
                answers[*number] = Some(answer);
            }
            let retry = |answer: &Option<Result<T>>| match answer {
                Some(Err(error)) => error.retry(),
                _ => Retry::Never,
            };
            rest.retain(|number| retry(&answers[*number]) != Retry::Never);
            // The longest wait that any of them asks for is the one to keep.
            let longest = rest.iter().max_by_key(|number| match retry(&answers[**number]) {
                Retry::After(least) => least,
                _ => Duration::ZERO,
            });
            match longest.and_then(|number| answers[*number].as_ref()) {
                Some(Err(error)) if self.again(error, &mut failures).await => {}
                _ => break,
            }
        }
        let missing = || Error::new(ErrorKind::Io, "batch", "the store gave no answer for this");
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing()))).collect()
    }
}

/// The error of a request that was given up because the run was stopped.
fn stopped() -> Error {
    Error::new(ErrorKind::Cancelled, "wait", "stopped")
}

impl Store for Retrying {
    fn locator(&self) -> &str {
        self.0.inner.locator()
    }

    fn caps(&self) -> &Caps {
        self.0.inner.caps()
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let inner = Some(self.0.inner.list(request.clone()));
        let failures = Failures::default();
        let listing =
            Listing { shared: self.0.clone(), request, inner, last: None, sent: 0, lost: Vec::new(), failures };
        stream::unfold(listing, |mut listing| async move {
            let listed = listing.next().await?;
            Some((listed, listing))
        })
        .boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        Box::pin(async move { self.0.attempt(|| self.0.inner.stat(&key)).await })
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        Box::pin(async move {
            let read = self.0.attempt(|| self.0.inner.read(&key, want.as_ref(), range.clone())).await?;
            let Body::Stream(pieces) = read.body else { return Ok(read) };
            let whole = 0..read.entry.size;
            let range = range.unwrap_or(whole.clone());
            let at = range.start.min(whole.end);
            // Without a version the rest might be of other content than the beginning.
            let want = want.or_else(|| read.entry.version.clone());
            let end = range.end.min(whole.end);
            let body = Resuming { shared: self.0.clone(), key, want, at, end, pieces, failures: Failures::default() };
            let pieces = stream::unfold(Some(body), |body| async move { body?.next().await });
            Ok(Read { entry: read.entry, body: Body::Stream(pieces.boxed()) })
        })
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let key = key.clone();
        Box::pin(async move {
            let inner = self.0.attempt(|| self.0.inner.write(&key, spec.clone())).await?;
            Ok(RetryingUpload::around(&self.0, inner, &spec))
        })
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let (key, spec) = (key.clone(), spec.clone());
        Box::pin(async move { self.0.attempt(|| self.0.inner.make_dir(&key, &spec)).await })
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        Box::pin(async move {
            let count = batch.items.len();
            let counts = Arc::new(Counts::new(watch, count));
            self.0
                .batch(count, |numbers| {
                    let items: Vec<CopyItem> = numbers.iter().map(|n| batch.items[*n].clone()).collect();
                    let batch = CopyBatch { from: batch.from.clone(), items, links: batch.links };
                    self.0.inner.copy(batch, counts.begin(numbers))
                })
                .await
        })
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        Box::pin(async move { self.0.attempt(|| self.0.inner.set_meta(&key, mtime, meta.as_ref())).await })
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move {
            let send = |numbers: &[usize]| self.0.inner.delete(numbers.iter().map(|n| keys[*n].clone()).collect());
            self.0.batch(keys.len(), send).await
        })
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.0.inner.lanes()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.0.inner.resumable().map(|_| self as &dyn Resumable)
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        self.0.inner.inodes().map(|_| self as &dyn Inodes)
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        self.0.inner.hashing().map(|_| self as &dyn Hashing)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.0.inner.admin().map(|_| self as &dyn Admin)
    }

    fn doubles(&self) -> Option<&dyn Doubles> {
        self.0.inner.doubles().map(|_| self as &dyn Doubles)
    }

    fn encrypted(&self) -> Option<&dyn Encrypted> {
        self.0.inner.encrypted().map(|_| self as &dyn Encrypted)
    }

    // Who gets no answer sends the whole file.
    fn deltas(&self) -> Option<&dyn Deltas> {
        self.0.inner.deltas()
    }

    // Or each alone.
    fn bundles(&self) -> Option<&dyn Bundles> {
        self.0.inner.bundles()
    }
}

impl Resumable for Retrying {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let (key, token) = (key.clone(), token.to_vec());
        Box::pin(async move {
            let below = offered(self.0.inner.resumable(), "resume")?;
            let resume = || below.resume(&key, &token, sent.clone(), spec.clone());
            let (inner, parts) = self.0.attempt(resume).await?;
            Ok((RetryingUpload::around(&self.0, inner, &spec), parts))
        })
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        let (key, token) = (key.clone(), token.to_vec());
        Box::pin(async move {
            let below = offered(self.0.inner.resumable(), "discard")?;
            self.0.attempt(|| below.discard(&key, &token)).await
        })
    }

    fn whole_version(&self, key: &Key, parts: &[Part]) -> Option<Version> {
        self.0.inner.resumable()?.whole_version(key, parts)
    }
}

impl Inodes for Retrying {
    fn file_system(&self) -> BoxFuture<'_, Option<u64>> {
        self.0.inner.inodes().map_or_else(|| Box::pin(std::future::ready(None)) as _, Inodes::file_system)
    }

    fn attributes(&self, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
        Box::pin(async move {
            let count = batch.items.len();
            let Some(below) = self.0.inner.inodes() else { return none_offered(count, "set attributes") };
            let send = |numbers: &[usize]| {
                let items = numbers.iter().map(|n| batch.items[*n].clone()).collect();
                below.attributes(AttributesBatch { from: batch.from.clone(), items, ..batch })
            };
            self.0.batch(count, send).await
        })
    }

    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
        Box::pin(async move {
            let Some(below) = self.0.inner.inodes() else { return none_offered(keys.len(), "read attributes") };
            let send = |numbers: &[usize]| below.carry(numbers.iter().map(|n| keys[*n].clone()).collect(), inside);
            self.0.batch(keys.len(), send).await
        })
    }

    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move {
            let Some(below) = self.0.inner.inodes() else { return none_offered(items.len(), "rename") };
            let send = |numbers: &[usize]| below.settle(numbers.iter().map(|n| items[*n].clone()).collect());
            self.0.batch(items.len(), send).await
        })
    }
}

impl Hashing for Retrying {
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>> {
        Box::pin(async move {
            let below = offered(self.0.inner.hashing(), "hash")?;
            self.0.attempt(|| below.algos()).await
        })
    }

    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>> {
        let (key, version, algos) = (key.clone(), version.cloned(), algos.to_vec());
        Box::pin(async move {
            let below = offered(self.0.inner.hashing(), "hash")?;
            self.0.attempt(|| below.hash(&key, version.as_ref(), &algos)).await
        })
    }
}

impl Doubles for Retrying {
    fn all_in(&self, dir: &Key) -> BoxFuture<'_, Result<Vec<Entry>>> {
        let dir = dir.clone();
        Box::pin(async move {
            let below = offered(self.0.inner.doubles(), "list")?;
            self.0.attempt(|| below.all_in(&dir)).await
        })
    }

    fn check_one(&self, entry: &Entry) -> BoxFuture<'_, Result<()>> {
        let entry = entry.clone();
        Box::pin(async move {
            let below = offered(self.0.inner.doubles(), "stat")?;
            self.0.attempt(|| below.check_one(&entry)).await
        })
    }

    fn delete_one(&self, entry: &Entry) -> BoxFuture<'_, Result<()>> {
        let entry = entry.clone();
        Box::pin(async move {
            let below = offered(self.0.inner.doubles(), "delete")?;
            self.0.attempt(|| below.delete_one(&entry)).await
        })
    }

    fn rename_one(&self, entry: &Entry, to: &Key) -> BoxFuture<'_, Result<()>> {
        let (entry, to) = (entry.clone(), to.clone());
        Box::pin(async move {
            let below = offered(self.0.inner.doubles(), "rename")?;
            self.0.attempt(|| below.rename_one(&entry, &to)).await
        })
    }

    fn merge_dirs(&self, dirs: Vec<Entry>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let below = offered(self.0.inner.doubles(), "merge")?;
            self.0.attempt(|| below.merge_dirs(dirs.clone())).await
        })
    }
}

impl Admin for Retrying {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        Box::pin(async move {
            let below = offered(self.0.inner.admin(), "about")?;
            self.0.attempt(|| below.about()).await
        })
    }

    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        Box::pin(async move {
            let below = offered(self.0.inner.admin(), "userinfo")?;
            self.0.attempt(|| below.user()).await
        })
    }

    fn link(&self, key: &Key, lasts: Duration) -> BoxFuture<'_, Result<String>> {
        let key = key.clone();
        Box::pin(async move {
            let below = offered(self.0.inner.admin(), "link")?;
            self.0.attempt(|| below.link(&key, lasts)).await
        })
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        Box::pin(async move {
            let below = offered(self.0.inner.admin(), "clean up")?;
            self.0.attempt(|| below.cleanup(what.clone())).await
        })
    }

    fn empty_trash(&self, dry_run: bool) -> BoxFuture<'_, Result<Vec<Key>>> {
        Box::pin(async move {
            let below = offered(self.0.inner.admin(), "empty the trash")?;
            self.0.attempt(|| below.empty_trash(dry_run)).await
        })
    }

    fn set_tier(&self, key: &Key, tier: &str) -> BoxFuture<'_, Result<()>> {
        let (key, tier) = (key.clone(), tier.to_owned());
        Box::pin(async move {
            let below = offered(self.0.inner.admin(), "set the storage class")?;
            self.0.attempt(|| below.set_tier(&key, &tier)).await
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let below = offered(self.0.inner.admin(), "sync")?;
            self.0.attempt(|| below.sync()).await
        })
    }
}

impl Encrypted for Retrying {
    fn sealed(&self, key: &Key, version: Option<&Version>) -> BoxFuture<'_, Result<EncryptedFile>> {
        let (key, version) = (key.clone(), version.cloned());
        Box::pin(async move {
            let below = offered(self.0.inner.encrypted(), "check")?;
            self.0.attempt(|| below.sealed(&key, version.as_ref())).await
        })
    }

    fn hidden(&self, key: &Key) -> Result<Key> {
        offered(self.0.inner.encrypted(), "encrypt")?.hidden(key)
    }

    fn plain(&self, hidden: &Key) -> Result<Key> {
        offered(self.0.inner.encrypted(), "decrypt")?.plain(hidden)
    }
}

/// Bytes that were reported of each item of a copy, so that those copied again aren't reported again.
struct Counts {
    watch: Watch,
    /// By item: reported in all, copied in this try.
    items: Mutex<Vec<(u64, u64)>>,
}

impl Counts {
    fn new(watch: Watch, count: usize) -> Self {
        Counts { watch, items: Mutex::new(vec![(0, 0); count]) }
    }

    /// The watch to pass along with a try of these items.
    fn begin(self: &Arc<Self>, numbers: &[usize]) -> Watch {
        let mut items = self.items.lock().unwrap_or_else(|e| e.into_inner());
        for number in numbers {
            items[*number].1 = 0;
        }
        drop(items);
        let counts = self.clone();
        self.watch.through(numbers.to_vec(), move |number, bytes| counts.add(number, bytes))
    }

    fn add(&self, number: usize, bytes: u64) {
        let mut items = self.items.lock().unwrap_or_else(|e| e.into_inner());
        let (reported, copied) = &mut items[number];
        *copied += bytes;
        let new = copied.saturating_sub(*reported);
        *reported += new;
        drop(items);
        self.watch.copied(number, new);
    }
}

/// A body that resumes where it broke off.
struct Resuming {
    shared: Arc<Shared>,
    key: Key,
    want: Option<Version>,
    /// Next byte to come, and the one after the last.
    at: u64,
    end: u64,
    pieces: BoxStream<'static, Result<Bytes>>,
    failures: Failures,
}

impl Resuming {
    async fn next(mut self) -> Option<(Result<Bytes>, Option<Self>)> {
        loop {
            let next = match self.shared.answer(self.pieces.next()).await {
                Ok(next) => next,
                Err(error) => return Some((Err(error.with_key(&self.key)), None)),
            };
            let error = match next {
                Some(Ok(piece)) => {
                    self.at += piece.len() as u64;
                    if !piece.is_empty() {
                        self.failures = Failures::default();
                    }
                    return Some((Ok(piece), Some(self)));
                }
                Some(Err(error)) => error,
                None if self.at >= self.end => return None,
                None => {
                    let message = format!("the body ended {} bytes early", self.end - self.at);
                    Error::new(ErrorKind::Io, "read", message).with_key(&self.key).with_retry(Retry::Backoff)
                }
            };
            if self.want.is_none() || self.at >= self.end {
                return Some((Err(error), None));
            }
            if let Err(error) = self.resume(error).await {
                return Some((Err(error), None));
            }
        }
    }

    /// Asks for the rest of the same version.
    async fn resume(&mut self, mut error: Error) -> Result<()> {
        while self.shared.again(&error, &mut self.failures).await {
            let read = self.shared.inner.read(&self.key, self.want.as_ref(), Some(self.at..self.end));
            match self.shared.answer(read).await.flatten() {
                Ok(Read { body: Body::Stream(pieces), .. }) => {
                    self.pieces = pieces;
                    return Ok(());
                }
                // No store gives a stream first and a file then.
                Ok(_) => return Err(error),
                Err(next) => error = next,
            }
        }
        Err(error)
    }
}

/// A listing that resumes after its last key.
struct Listing {
    shared: Arc<Shared>,
    request: ListRequest,
    /// `None` once it is over.
    inner: Option<BoxStream<'static, Listed>>,
    last: Option<Key>,
    sent: usize,
    /// Ranges that were reported lost: what a later try finds in them isn't given any more.
    lost: Vec<MissedRange>,
    failures: Failures,
}

impl Listing {
    async fn next(&mut self) -> Option<Listed> {
        loop {
            let Ok(next) = self.shared.answer(self.inner.as_mut()?.next()).await else {
                // Without its end, nobody takes it for a whole listing.
                self.inner = None;
                return None;
            };
            match next {
                Some(Listed::Batch(batch)) => {
                    let batch = self.fresh(batch);
                    if !batch.is_empty() {
                        return Some(Listed::Batch(batch));
                    }
                }
                Some(vanished @ Listed::Vanished(_)) => return Some(vanished),
                Some(Listed::End) => {
                    self.inner = None;
                    return Some(Listed::End);
                }
                Some(Listed::Failed { lost, error }) => {
                    if self.reaches_the_end(&lost) && self.shared.again(&error, &mut self.failures).await {
                        self.restart();
                        continue;
                    }
                    self.lost.push(lost.clone());
                    return Some(Listed::Failed { lost, error });
                }
                // That was all that was asked for.
                None if self.request.limit.is_some_and(|limit| self.sent >= limit) => {
                    self.inner = None;
                    return None;
                }
                None => {
                    let reported = self.lost.iter().any(|lost| self.reaches_the_end(lost));
                    let cut = Error::new(ErrorKind::Io, "list", "the listing broke off").with_retry(Retry::Backoff);
                    if !reported && self.shared.again(&cut, &mut self.failures).await {
                        self.restart();
                        continue;
                    }
                    self.inner = None;
                    return None;
                }
            }
        }
    }

    fn fresh(&mut self, mut batch: Vec<Entry>) -> Vec<Entry> {
        if !self.lost.is_empty() {
            batch.retain(|entry| !self.lost.iter().any(|lost| lost.holds(&entry.key)));
        }
        if let Some(last) = batch.last() {
            self.last = Some(last.key.clone());
            self.sent += batch.len();
            self.failures = Failures::default();
        }
        batch
    }

    fn reaches_the_end(&self, lost: &MissedRange) -> bool {
        match (&lost.to, after_prefix(&self.request.prefix)) {
            (None, _) => true,
            (Some(to), Some(end)) => to.as_bytes() >= &end[..],
            (Some(_), None) => false,
        }
    }

    fn restart(&mut self) {
        let mut request = self.request.clone();
        request.after = self.last.clone().or(request.after);
        request.limit = request.limit.map(|limit| limit.saturating_sub(self.sent).max(1));
        self.inner = Some(self.shared.inner.list(request));
    }
}

struct RetryingUpload {
    shared: Arc<Shared>,
    inner: Box<dyn Upload>,
    /// The write is under a condition.
    conditional: bool,
}

impl RetryingUpload {
    fn around(shared: &Arc<Shared>, inner: Box<dyn Upload>, spec: &WriteSpec) -> Box<dyn Upload> {
        let conditional = spec.replace != Replace::Anything;
        Box::new(RetryingUpload { shared: shared.clone(), inner, conditional })
    }

    /// A publish under a condition that may have been done although its answer was lost would now fail by its own
    /// success; only a refusal is sure not to have been done.
    fn may_redo(&self, error: &Error) -> bool {
        !self.conditional || error.kind() == ErrorKind::Busy
    }
}

impl Upload for RetryingUpload {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move { self.shared.attempt(|| self.inner.token()).await })
    }

    fn part_size(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        Box::pin(async move { self.shared.attempt(|| self.inner.part_size()).await })
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        Box::pin(async move { self.shared.attempt(|| self.inner.read_back(range.clone())).await })
    }

    fn reuse(&self, version: &Version, runs: Vec<Run>) -> BoxFuture<'_, Result<Vec<Part>>> {
        let version = version.clone();
        Box::pin(async move { self.shared.attempt(|| self.inner.reuse(&version, runs.clone())).await })
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        Box::pin(async move {
            // Bytes that another store failed to supply were retried often enough there.
            let lost = || payload.relay().is_some_and(Relay::is_lost);
            let mut failures = Failures::default();
            loop {
                let part = self.inner.part(index, offset, payload.clone());
                let error = match self.shared.answer(part).await.flatten() {
                    Err(error) if !lost() => error,
                    answer => return answer,
                };
                // Sent with the same hashes it would be refused again and again.
                if error.kind() == ErrorKind::Corrupt && !payload.still_has(payload.hashes()).await? {
                    return Err(Payload::changed());
                }
                if !self.shared.again(&error, &mut failures).await {
                    return Err(error);
                }
            }
        })
    }

    fn publish(
        mut self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        Box::pin(async move {
            let mut failures = Failures::default();
            loop {
                let Unpublished { error, upload } = match self.inner.publish(parts.clone(), late.clone()).await {
                    Ok(stored) => return Ok(stored),
                    Err(failed) => failed,
                };
                self.inner = upload;
                if !self.may_redo(&error) || !self.shared.again(&error, &mut failures).await {
                    return Err(Unpublished { error, upload: self });
                }
            }
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.shared.answer(self.inner.abort()).await.flatten() })
    }
}
