//! The bandwidth limit (`--bwlimit`): bytes a second, up and down apart, shared by all stores of a run. What passes between this
//! machine's disks and another store counts once, at the other store.

use super::clock::Clock;
use crate::{
    Answer, Body, Caps, CopyBatch, CopyHow, CopyItem, Extra, Late, ListRequest, Part, Payload, Read, Resumed, Sent,
    Store, Stored, Unpublished, Upload, WriteSpec,
};
use bytes::Bytes;
use futures::{
    StreamExt,
    future::{BoxFuture, ready},
    stream,
    stream::BoxStream,
};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Bytes of a file's body that are let through at once while a limit is set.
const PIECE: u64 = 64 << 10;

/// Bytes a second in each direction, changeable at any time.
#[derive(Debug, Default)]
pub struct Rate {
    up: Lane,
    down: Lane,
    /// One of the stores isn't on this machine's disks.
    remote: AtomicBool,
}

impl Rate {
    /// A limit of `up` and `down` bytes a second; `None` and 0 mean none.
    pub fn new(up: Option<u64>, down: Option<u64>) -> Self {
        let rate = Rate::default();
        rate.set(up, down);
        rate
    }

    /// Sets other limits; what waits already goes on as it was told.
    pub fn set(&self, up: Option<u64>, down: Option<u64>) {
        self.up.lock().limit = up.filter(|limit| *limit > 0);
        self.down.lock().limit = down.filter(|limit| *limit > 0);
    }

    /// True when there is a limit in either direction now.
    pub fn is_set(&self) -> bool {
        self.up.lock().limit.is_some() || self.down.lock().limit.is_some()
    }
}

/// One direction: a line in which every byte has its time. Bytes are let through first and paid for by the next ones,
/// so pieces of any size pass, and no more than what one caller has in hand is ever early.
#[derive(Debug, Default)]
struct Lane(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    limit: Option<u64>,
    /// When the last byte let through is paid for.
    paid: Option<Instant>,
}

impl Lane {
    fn lock(&self) -> std::sync::MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Enters `bytes` into the line and says how long to wait before the next ones may pass.
    fn take(&self, bytes: u64, now: Instant) -> Duration {
        let mut line = self.lock();
        let Some(limit) = line.limit else {
            line.paid = None;
            return Duration::ZERO;
        };
        let from = line.paid.map_or(now, |paid| paid.max(now));
        let paid = from + Duration::from_secs_f64(bytes as f64 / limit as f64);
        line.paid = Some(paid);
        paid.saturating_duration_since(now)
    }

    async fn pass(&self, bytes: u64, clock: &dyn Clock) {
        let wait = self.take(bytes, clock.now());
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
    }
}

/// The layer.
#[derive(Clone)]
pub struct Limited {
    inner: Arc<dyn Store>,
    rate: Arc<Rate>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Limited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Limited {
    /// `inner` at the pace of `rate`.
    pub fn new(inner: Arc<dyn Store>, rate: Arc<Rate>, clock: Arc<dyn Clock>) -> Self {
        rate.remote.fetch_or(!inner.caps().files, Relaxed);
        Limited { inner, rate, clock }
    }

    /// True when there is a limit now and bytes count here. Those of a disk only do where all stores of the run are disks.
    fn is_limited(&self) -> bool {
        self.rate.is_set() && !(self.inner.caps().files && self.rate.remote.load(Relaxed))
    }

    fn upload(&self, inner: Box<dyn Upload>) -> Box<dyn Upload> {
        Box::new(LimitedUpload { inner, limited: self.clone() })
    }

    fn body(&self, body: Body) -> Body {
        // Checked once for each file: a limit that is set later holds from the next file on.
        if self.inner.caps().files && !self.is_limited() {
            return body;
        }
        let pieces = match body {
            Body::File(file, range) => file_pieces(file, range),
            Body::Stream(pieces) => pieces,
        };
        let (rate, clock) = (self.rate.clone(), self.clock.clone());
        let paced = pieces.then(move |piece| {
            let (rate, clock) = (rate.clone(), clock.clone());
            async move {
                if let Ok(bytes) = &piece {
                    rate.down.pass(bytes.len() as u64, &*clock).await;
                }
                piece
            }
        });
        Body::Stream(paced.boxed())
    }
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

impl Store for Limited {
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
        let read = self.inner.read(key, want, range);
        Box::pin(async move {
            let read = read.await?;
            Ok(Read { entry: read.entry, body: self.body(read.body) })
        })
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let write = self.inner.write(key, spec);
        Box::pin(async move {
            let inner = write.await?;
            Ok(self.upload(inner))
        })
    }

    fn resume(&self, key: &Key, token: &[u8], sent: Vec<Sent>, spec: WriteSpec) -> BoxFuture<'_, Result<Resumed>> {
        let resume = self.inner.resume(key, token, sent, spec);
        Box::pin(async move {
            let (inner, parts) = resume.await?;
            Ok((self.upload(inner), parts))
        })
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        self.inner.discard(key, token)
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.inner.make_dir(key, spec)
    }

    fn copy(&self, batch: CopyBatch) -> BoxFuture<'_, Vec<Result<Stored>>> {
        let on_this_machine = self.caps().domain.as_ref().is_some_and(|domain| domain.name == "local");
        let copies = |item: &CopyItem| matches!(item.how, CopyHow::Copy | CopyHow::Append { .. });
        if on_this_machine && self.is_limited() && batch.items.iter().any(copies) {
            // The kernel's copy can't be slowed down; streamed through the engine it can. What else goes along has no bytes.
            let keys: Vec<_> = batch.items.iter().map(|item| copies(item).then(|| item.to.clone())).collect();
            let items = batch.items.into_iter().filter(|item| !copies(item)).collect();
            let others = self.inner.copy(CopyBatch { items, progress: None, ..batch });
            return Box::pin(async move {
                let mut others = others.await.into_iter();
                let error = || Error::new(ErrorKind::Unsupported, "copy", "a bandwidth limit is set");
                let mut other = || others.next().unwrap_or_else(|| Err(error()));
                keys.into_iter().map(|key| key.map_or_else(&mut other, |key| Err(error().with_key(&key)))).collect()
            });
        }
        self.inner.copy(batch)
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        self.inner.set_meta(key, mtime, meta)
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        self.inner.delete(keys)
    }

    fn extra(&self, request: Extra) -> BoxFuture<'_, Result<Answer>> {
        if matches!(request, Extra::Hash { .. }) && self.is_limited() {
            // Read through here its bytes count.
            let error = Error::new(ErrorKind::Unsupported, "hash", "a bandwidth limit is set");
            return Box::pin(ready(Err(error)));
        }
        self.inner.extra(request)
    }
}

struct LimitedUpload {
    inner: Box<dyn Upload>,
    limited: Limited,
}

impl Upload for LimitedUpload {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        self.inner.token()
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        self.inner.read_back(range)
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        Box::pin(async move {
            if self.limited.is_limited() {
                self.limited.rate.up.pass(payload.len(), &*self.limited.clock).await;
            }
            self.inner.part(index, offset, payload).await
        })
    }

    fn publish(self: Box<Self>, parts: Vec<Part>, late: Late) -> BoxFuture<'static, Result<Stored, Unpublished>> {
        let LimitedUpload { inner, limited } = *self;
        Box::pin(async move {
            inner
                .publish(parts, late)
                .await
                .map_err(|Unpublished { error, upload }| Unpublished { error, upload: limited.upload(upload) })
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.inner.abort()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_limit_whatever_their_pieces() {
        let now = Instant::now();
        let lane = Rate::new(Some(1000), None).up;
        assert_eq!(lane.take(500, now), Duration::from_millis(500));
        assert_eq!(lane.take(1500, now), Duration::from_secs(2));
        // Two seconds later all is paid for; time that passed unused isn't saved up.
        let later = now + Duration::from_secs(60);
        assert_eq!(lane.take(1000, later), Duration::from_secs(1));
    }

    #[test]
    fn a_limit_can_be_changed_and_taken_away() {
        let now = Instant::now();
        let rate = Rate::new(None, Some(10));
        assert!(rate.is_set());
        assert_eq!(rate.up.take(1 << 40, now), Duration::ZERO);
        assert_eq!(rate.down.take(10, now), Duration::from_secs(1));
        rate.set(None, Some(20));
        assert_eq!(rate.down.take(20, now), Duration::from_secs(2));
        rate.set(None, Some(0));
        assert_eq!(rate.down.take(1 << 40, now), Duration::ZERO);
        assert!(!rate.is_set());
    }
}
