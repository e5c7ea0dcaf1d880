//! One large file by several processes, on any machines: one begins its write, each sends ranges of its parts, and one makes the whole
//! visible. They exchange data ([`SharedFile`], [`RangeResult`]); the caller distributes the work, and
//! makes sure that the file is finished only once every range has arrived.
//!
//! All of it is of one version of the source, the one that was seen as the write was begun.

use super::{Count, FileTransfer, Mover, pump, read, unfinished::Target};
use crate::{
    Cx,
    attributes::Attributes,
    backup::Backup,
    budget::Budget,
    cx::cancelled,
    io::{ABORT_WITHIN, abort},
    part::LargeFile,
};
use futures::future::BoxFuture;
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Kind, Result, Retry, Version,
    entry::Inode,
    event::{Event, StepId},
    hash,
    job::Job,
    plan::Route,
};
use haul_store::{Body, LateFacts, Part, Payload, StoredFacts, Unpublished, Upload, WriteSpec, disk, offered};
use serde::{Deserialize, Serialize};
use std::{
    num::NonZero,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// How often a publish is tried of which it isn't known what became of it.
const TRIES: u32 = 3;

/// Numbers of ranges are beyond those of a run's transfers: sinks hear both.
const FIRST_STEP: StepId = 1 << 48;

/// A file whose write is begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedFile {
    /// The source as it was seen then, with all that goes along.
    src: Entry,
    /// The destination's old entry.
    replaced: Option<Entry>,
    /// Finds the write.
    token: Vec<u8>,
    /// Bytes of each part but the last.
    part_size: NonZero<u64>,
}

impl SharedFile {
    /// Its name, at the source and at the destination.
    pub fn key(&self) -> &Key {
        &self.src.key
    }

    /// Bytes of the whole.
    pub fn size(&self) -> u64 {
        self.src.size
    }

    /// How many parts it goes in.
    pub fn parts(&self) -> u64 {
        self.src.size.div_ceil(self.part_size())
    }

    /// Bytes of each part but the last.
    pub fn part_size(&self) -> u64 {
        self.part_size.get()
    }

    /// Bytes of a part.
    fn len(&self, part: u64) -> u64 {
        self.src.size.saturating_sub(part.saturating_mul(self.part_size())).min(self.part_size())
    }
}

/// Result of a range that is at the destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeResult {
    /// The store's receipts.
    parts: Vec<Part>,
    /// Of the range's bytes.
    hashes: Hashes,
}

/// Asked before each part is sent: an error where others may have taken over what this process is about, and it is to stop.
pub type Fence = Arc<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// Transfers files together with other processes that have the same job between the same stores.
pub struct Sharing {
    mover: Mover,
}

impl Sharing {
    /// By the rules of `job`, between the ends of `cx`.
    pub fn new(mut job: Job, cx: Cx) -> Sharing {
        let attributes = Attributes::new(&mut job, &cx);
        let job = Arc::new(job);
        let budget = Budget::new(&job, &*cx.src, &*cx.dst);
        let backup = Backup::new(&job, &cx, attributes.keep.as_deref());
        Sharing { mover: Mover { cx, job, budget, keep: attributes.keep, backup, allowance: None } }
    }

    /// Begins the write of a file; `None` for one that only a single process can transfer: its store doesn't take parts from
    /// several, or the hash that proves the whole doesn't follow from ranges of it.
    ///
    /// Errors: the source can't be asked, or the write can't begin.
    pub fn begin<'a>(&'a self, large: &'a LargeFile) -> BoxFuture<'a, Result<Option<SharedFile>>> {
        Box::pin(async move {
            let mover = &self.mover;
            let mut src = mover.cx.src.stat(&large.src.key).await.map_err(|e| e.with_key(&large.src.key))?;
            src.meta = src.meta.take().or_else(|| large.src.meta.clone());
            let (Route::Parts { .. }, true) = (mover.route(&src), self.may_be_split(&src)) else { return Ok(None) };
            let part_size = pump::noted(mover, &src, mover.route(&src));
            let order = FileTransfer::new(FIRST_STEP, src.clone(), src.key.clone(), large.replaced.clone());
            let spec = WriteSpec { resumable: true, ..mover.spec(&order, &src) };
            let upload = mover.cx.dst.write(&src.key, spec).await?;
            if !upload.is_shared() {
                upload.abort().await?;
                return Ok(None);
            }
            let replaced = large.replaced.clone();
            let begun = async {
                let part_size = NonZero::new(upload.part_size().await?.unwrap_or(part_size));
                let (Some(part_size), Some(token)) = (part_size, upload.token().await?) else { return Ok(None) };
                let file = SharedFile { src, replaced, token, part_size };
                // One process finds out that a file is unreadable, not all of them.
                if mover.cx.src.caps().files {
                    self.source(&file).await?;
                }
                match self.write(&file).await {
                    Ok(_) => Ok(Some(file)),
                    // A server that can't find writes again.
                    Err(error) if is_none(&error) => Ok(None),
                    Err(error) => Err(error),
                }
            };
            match begun.await {
                Ok(Some(file)) => Ok(Some(file)),
                Ok(None) => upload.abort().await.map(|()| None),
                Err(error) => Err(abort(upload, error).await),
            }
        })
    }

    /// Ranges of it prove the whole, and nothing must be known of it before its first part.
    fn may_be_split(&self, src: &Entry) -> bool {
        let (job, caps) = (&self.mover.job, self.mover.cx.dst.caps());
        let hashed_first = job.write.store_md5 && !caps.files && src.hashes.get(Algo::Md5).is_none();
        src.version.is_some() && !hashed_first && pump::is_proved_by_ranges(&self.mover, src)
    }

    /// Sends a range of parts, for as long as `fence` lets them. Sinks hear of one that fails as stopped: the caller
    /// knows whether it is tried again.
    ///
    /// Errors: `Changed` when the source changed since the write was begun; `NotFound` when the write is missing; `Invalid` when
    /// the file has no such parts; the fence's; else the last try's.
    pub fn send<'a>(
        &'a self,
        file: &'a SharedFile,
        parts: Range<u64>,
        fence: Fence,
    ) -> BoxFuture<'a, Result<RangeResult>> {
        Box::pin(async move {
            if parts.is_empty() || parts.end > file.parts() {
                let message = format!("a file of {} parts has no parts {parts:?}", file.parts());
                return Err(Error::new(ErrorKind::Invalid, "write", message).with_key(file.key()));
            }
            let (sink, step) = (&self.mover.cx.sink, next_step());
            let (key, size) = (file.key().clone(), parts.clone().map(|part| file.len(part)).sum());
            sink.emit(&Event::Begun { step, key, size, route: Route::Parts { size: file.part_size() } });
            let sent = self.send_range(file, parts, fence, step).await.map_err(|e| e.with_key(file.key()));
            sink.emit(&match &sent {
                Ok(_) => Event::RangeDone { step },
                Err(_) => Event::Failed { step, error: Arc::new(cancelled().with_key(file.key())) },
            });
            sent
        })
    }

    /// Tries it until it is done or can't be mended.
    async fn send_range(
        &self,
        file: &SharedFile,
        parts: Range<u64>,
        fence: Fence,
        step: StepId,
    ) -> Result<RangeResult> {
        let (mover, mut attempt) = (&self.mover, 0);
        loop {
            let count = Count::new(mover, step);
            let error = match self.attempt(file, parts.clone(), &fence, &count).await {
                Ok(brought) => {
                    count.arrived(parts.map(|part| file.len(part)).sum());
                    return Ok(brought);
                }
                Err(error) => error,
            };
            count.take_back();
            let tries = attempt < mover.job.pace.file_retries && !mover.cx.cancel.is_cancelled();
            if !tries || !may_be_mended(&error) {
                return Err(error);
            }
            attempt += 1;
            mover.wait_before_retry(step, error, attempt).await?;
        }
    }

    async fn attempt(
        &self,
        file: &SharedFile,
        parts: Range<u64>,
        fence: &Fence,
        count: &Count<'_>,
    ) -> Result<RangeResult> {
        let (mover, cx) = (&self.mover, &self.mover.cx);
        let stops = || cx.cancel.cancelled();
        let (source, upload) = tokio::select! {
            biased;
            () = stops() => return Err(cancelled()),
            found = async { Ok::<_, Error>((self.source(file).await?, self.write(file).await?)) } => found?,
        };
        let upload = Box::new(Fenced { upload, fence: fence.clone() });
        let target = Target { only: Some(parts.clone()), ..Target::new(upload, file.part_size()) };
        let claim = mover.budget.claim(parts.end - parts.start, None);
        let pumped = tokio::select! {
            biased;
            () = stops() => return Err(cancelled()),
            pumped = pump::pump(mover, source, &target, count, &claim) => pumped?,
        };
        if cx.src.caps().files {
            self.source_now(file).await?;
        }
        // Another machine publishes: what is only in this one's memory would be lost with it.
        if let Ok(Body::File(written, _)) = target.upload.read_back(0..file.size()).await {
            disk::run(move || written.sync_data().map_err(|e| Error::from_io("write", e))).await?;
        }
        let brought = RangeResult { parts: pumped.parts, hashes: pumped.hashes };
        check(file, parts, &brought.parts)?;
        Ok(brought)
    }

    /// The source as this machine sees it.
    ///
    /// Errors: `Changed` when it isn't what it was.
    async fn source_now(&self, file: &SharedFile) -> Result<Entry> {
        let now = self.mover.cx.src.stat(file.key()).await?;
        if is_same(&file.src, &now, self.mover.cx.src.caps().files) {
            return Ok(Entry { version: now.version, ..file.src.clone() });
        }
        Err(Error::new(ErrorKind::Changed, "read", "the file changed while it was copied"))
    }

    async fn source(&self, file: &SharedFile) -> Result<read::Source> {
        let cx = &self.mover.cx;
        let facts = self.source_now(file).await?;
        if !cx.src.caps().files {
            let bytes = read::Bytes::Ranges { store: cx.src.clone(), entry: facts.clone() };
            return Ok(read::Source { facts, bytes });
        }
        match cx.src.read(file.key(), facts.version.as_ref(), None).await?.body {
            Body::File(bytes, _) => Ok(read::Source { facts, bytes: read::Bytes::File(bytes) }),
            Body::Stream(_) => Err(Error::new(ErrorKind::Unsupported, "read", "a file came as a stream")),
        }
    }

    async fn write(&self, file: &SharedFile) -> Result<Box<dyn Upload>> {
        let writes = offered(self.mover.cx.dst.resumable(), "resume")?;
        let spec = self.mover.spec(&order(file), &file.src);
        Ok(writes.resume(file.key(), &file.token, Vec::new(), spec).await?.0)
    }

    /// Makes the whole visible, once all its ranges have arrived; `brought` has the result of each, in any order. Success if another
    /// process has done so already: after a publish of unknown outcome the destination is asked.
    ///
    /// Errors: as for [`Sharing::send`]; `Corrupt` when the whole differs from the source's own hash, or a range came without its
    /// hashes; the publish fails. The write may still exist: see [`Sharing::discard`].
    pub fn finish<'a>(&'a self, file: &'a SharedFile, brought: Vec<RangeResult>) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move { self.finish_whole(file, brought).await.map_err(|e| e.with_key(file.key())) })
    }

    async fn finish_whole(&self, file: &SharedFile, mut brought: Vec<RangeResult>) -> Result<u64> {
        let mover = &self.mover;
        brought.sort_by_key(|range| range.parts.first().map(|part| part.index));
        let hashes = whole(&brought, &pump::algos_of_ranges(mover, &file.src))?;
        let parts: Vec<Part> = brought.into_iter().flat_map(|range| range.parts).collect();
        check(file, 0..file.parts(), &parts)?;
        mover.check_moved(&file.src, file.size(), &hashes)?;
        // A file published earlier may have had its source replaced since.
        if let Err(error) = self.source_now(file).await {
            return self.landed_before(file, &hashes, &parts, error).await;
        }
        let mut upload = match self.write(file).await {
            Ok(upload) => upload,
            Err(error) => return self.landed_before(file, &hashes, &parts, error).await,
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let late = LateFacts { hashes: hashes.clone(), ..LateFacts::default() };
            let Unpublished { error, upload: again } = match upload.publish(parts.clone(), late).await {
                Ok(stored) => return self.published(file, &hashes, stored).await,
                Err(failed) => failed,
            };
            let error = match self.landed_before(file, &hashes, &parts, error).await {
                Err(error) => error,
                landed => return landed,
            };
            // The parts are what they are: a whole that is wrong stays wrong.
            let may_pass = error.kind() != ErrorKind::Corrupt && may_be_mended(&error);
            if attempt == TRIES || !may_pass || mover.cx.cancel.is_cancelled() {
                return Err(error);
            }
            mover.wait_before_retry(FIRST_STEP, error, attempt).await?;
            upload = again;
        }
    }

    /// Success if the file has arrived in spite of this error.
    async fn landed_before(&self, file: &SharedFile, hashes: &Hashes, parts: &[Part], error: Error) -> Result<u64> {
        let landed = may_be_done(&error) && self.has_landed(file, hashes, parts).await;
        if landed { Ok(self.arrived(file, None)) } else { Err(error) }
    }

    async fn published(&self, file: &SharedFile, hashes: &Hashes, stored: StoredFacts) -> Result<u64> {
        let proved = match self.mover.check_stored(file.size(), &file.src, hashes, &stored) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return Err(self.mover.take_away(&order(file), stored, error).await);
            }
            proved => proved?,
        };
        Ok(self.arrived(file, proved))
    }

    fn arrived(&self, file: &SharedFile, proved: Option<Algo>) -> u64 {
        let (key, size, replaced) = (file.key().clone(), file.size(), file.replaced.is_some());
        self.mover.cx.sink.emit(&Event::Done { step: FIRST_STEP, key, size, replaced, proved });
        size
    }

    /// True when the destination has the file already: another process finished it, or this one did and the answer was lost. A hash
    /// must prove it, or a version that only these parts make. Disks have neither: a file visible by its name is whole, so its
    /// time proves it, unless the replaced file had the same.
    async fn has_landed(&self, file: &SharedFile, hashes: &Hashes, parts: &[Part]) -> bool {
        let dst = &self.mover.cx.dst;
        let Ok(there) = dst.stat(file.key()).await else { return false };
        let (replaced, files) = (file.replaced.as_ref(), dst.caps().files);
        if there.size != file.size() || replaced.is_some_and(|old| old.version.is_none() || is_same(old, &there, files))
        {
            return false;
        }
        let time = self.mover.time(&file.src);
        let precision = dst.caps().mtime.map(|precision| precision.as_nanos() as i128);
        let same_time = |entry: &Entry| {
            let both = time.zip(entry.mtime).zip(precision);
            both.is_some_and(|((ours, theirs), precision)| (ours.0 - theirs.0).abs() <= precision)
        };
        let mut ours = hashes.clone();
        if !self.mover.job.write.ignore_checksum {
            ours.merge(&file.src.hashes);
        }
        let whole = dst.resumable().and_then(|writes| writes.whole_version(file.key(), parts));
        let proved = ours.agree(&there.hashes).map(|(_, same)| same);
        match proved.or_else(|| whole.map(|whole| there.version == Some(whole))) {
            Some(same) => same && (same_time(&there) || precision.is_none()),
            None => {
                let was_so = replaced.is_some_and(|old| old.size == file.size() && same_time(old));
                files && same_time(&there) && !was_so
            }
        }
    }

    /// Removes the sent parts of a file that is not to be finished. Success if they are missing already.
    ///
    /// Errors: of the store, or it gave no answer in time.
    pub fn discard<'a>(&'a self, file: &'a SharedFile) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let discarded = tokio::time::timeout(ABORT_WITHIN, self.mover.discard(file.key(), &file.token)).await;
            let silent = || Error::new(ErrorKind::Timeout, "discard", "the store gave no answer in time");
            discarded.unwrap_or_else(|_| Err(silent())).map(|_| ()).map_err(|e| e.with_key(file.key()))
        })
    }
}

impl Mover {
    /// True for a file that several processes may be able to transfer together: it goes in parts that can be found again, nothing of
    /// what it replaces is kept, and nothing else goes along with it that its write doesn't take.
    pub(crate) fn may_be_shared(&self, src: &Entry) -> bool {
        let parts = src.kind == Kind::File && src.sized && matches!(self.route(src), Route::Parts { .. });
        let write = &self.job.write;
        let alone = write.publish != haul_core::job::Publish::WhenWhole || write.delta || write.verify_read;
        let kept = self.keep.is_some() || self.backup.is_on() || self.allowance.is_some() || self.job.moves();
        parts && !alone && !kept && !self.job.compare.ignore_size && self.cx.dst.resumable().is_some()
    }
}

/// A write that sends nothing more once the fence says so.
struct Fenced {
    upload: Box<dyn Upload>,
    fence: Fence,
}

impl Upload for Fenced {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        self.upload.token()
    }

    fn part_size(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        self.upload.part_size()
    }

    fn is_shared(&self) -> bool {
        self.upload.is_shared()
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        self.upload.read_back(range)
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        Box::pin(async move {
            (self.fence)().await?;
            self.upload.part(index, offset, payload).await
        })
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        self.upload.publish(parts, late)
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.upload.abort()
    }
}

/// True if a write that was just begun isn't found, or the server can't say.
fn is_none(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Unsupported | ErrorKind::Changed)
}

fn order(file: &SharedFile) -> FileTransfer {
    FileTransfer::new(FIRST_STEP, file.src.clone(), file.src.key.clone(), file.replaced.clone())
}

/// The number of a range that is sent. Those of a write that is begun and of a file that is finished are [`FIRST_STEP`].
fn next_step() -> StepId {
    static STEP: AtomicU64 = AtomicU64::new(FIRST_STEP + 1);
    STEP.fetch_add(1, Ordering::Relaxed)
}

/// True for an error that a publish which was done can leave behind. Others say that what is visible is wrong or unproved, or that
/// nothing is.
fn may_be_done(error: &Error) -> bool {
    use ErrorKind::{Busy, Changed, Exists, Io, NotFound, Timeout, Unreachable};
    matches!(error.kind(), NotFound | Exists | Changed | Io | Timeout | Busy | Unreachable)
}

/// True if another try can help. A changed file is no longer part of this job.
fn may_be_mended(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Changed | ErrorKind::Unreachable => false,
        ErrorKind::Corrupt => true,
        _ => error.retry() != Retry::Never,
    }
}

/// True for the version that was seen before. Machines may number the devices of one shared file system (`files`) differently.
fn is_same(before: &Entry, now: &Entry, files: bool) -> bool {
    let anywhere = |version: &Option<Version>| {
        let version = version.as_ref()?;
        let inode = Inode::of(version).filter(|_| files);
        Some(inode.map_or_else(|| version.clone(), |inode| Inode { dev: 0, ..inode }.to_version()))
    };
    before.size == now.size && before.version.is_some() && anywhere(&before.version) == anywhere(&now.version)
}

/// Checks that these are the parts of the range, each once and whole.
fn check(file: &SharedFile, range: Range<u64>, parts: &[Part]) -> Result<()> {
    let right = parts.iter().map(|part| (part.index, part.size)).eq(range.map(|part| (part, file.len(part))));
    let wrong = || Error::new(ErrorKind::Corrupt, "write", "the parts that were sent don't make up the file");
    if right { Ok(()) } else { Err(wrong()) }
}

/// Hashes of the whole from those of its ranges, in order.
///
/// Errors: `Corrupt` when a range came without one of these.
fn whole(brought: &[RangeResult], algos: &[Algo]) -> Result<Hashes> {
    let len = |range: &RangeResult| range.parts.iter().map(|part| part.size).sum();
    let mut all = Hashes::default();
    for algo in algos {
        let pieces = brought.iter().map(|range| (range.hashes.get(*algo), len(range)));
        let missing =
            || Error::new(ErrorKind::Corrupt, "write", format!("a range of the file came without its {algo}"));
        all.set(*algo, hash::combine(*algo, pieces).ok_or_else(missing)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Mtime, hash::hash_bytes};

    fn file() -> SharedFile {
        let src = Entry { version: Some(Version::new("v")), ..Entry::file(Key::new("large"), 25) };
        SharedFile { src, replaced: None, token: Vec::new(), part_size: NonZero::new(10).unwrap() }
    }

    #[test]
    fn parts_make_up_the_file_or_nothing_is_published() {
        let part = |index, size| Part { index, size, tag: Vec::new() };
        let all = [part(0, 10), part(1, 10), part(2, 5)];
        let holds = |range, parts: &[Part]| check(&file(), range, parts).is_ok();
        assert!(holds(0..3, &all) && holds(1..3, &all[1..]) && !holds(0..3, &all[1..]) && !holds(0..3, &all[..2]));
        assert!(!holds(0..3, &[part(0, 10), part(1, 9), part(2, 5)]) && !holds(0..1, &[part(1, 10)]));
        assert!(!holds(0..3, &[part(0, 10), part(1, 10), part(1, 10), part(2, 5)]));
    }

    #[test]
    fn ranges_prove_the_whole() {
        let bytes: Vec<u8> = (0..25).collect();
        let algos = [Algo::Crc64Nvme, Algo::Crc32c];
        let range = |from: usize, to: usize| RangeResult {
            parts: vec![Part { index: 0, size: (to - from) as u64, tag: Vec::new() }],
            hashes: hash_bytes(&algos, &bytes[from..to]),
        };
        let mut ranges = [range(0, 10), range(10, 20), range(20, 25)];
        assert_eq!(whole(&ranges, &algos).unwrap(), hash_bytes(&algos, &bytes));
        ranges[1].hashes = hash_bytes(&algos[..1], &bytes[10..20]);
        assert_eq!(whole(&ranges, &algos).unwrap_err().kind(), ErrorKind::Corrupt, "one of a range is missing");
    }

    #[test]
    fn a_file_is_the_same_on_another_machine_whatever_the_number_of_its_device() {
        let inode = Inode { dev: 1, ino: 2, ctime: Mtime::new(3, 4), mtime: Mtime::new(5, 6), size: 25 };
        let seen = |inode: Inode| Entry { version: Some(inode.to_version()), ..file().src };
        let first = seen(inode);
        let same = |now: &Entry| is_same(&first, now, true);
        let other_device = seen(Inode { dev: 9, ..inode });
        assert!(same(&first) && same(&other_device) && !is_same(&first, &other_device, false));
        assert!(!same(&seen(Inode { ctime: Mtime::new(3, 5), ..inode })) && !same(&seen(Inode { ino: 3, ..inode })));
        assert!(!same(&Entry { size: 26, ..first.clone() }) && !same(&file().src));
        let unknown = Entry { version: None, ..file().src };
        assert!(is_same(&file().src, &file().src, false) && !is_same(&unknown, &unknown, false), "nothing proves it");
    }
}
