//! Transfer of one file: choose the route, move the bytes, verify, publish; again from the start if needed.
//!
//! Routes are files here: `server` (inside a copy domain, in batches), `bundle` (small files, many with one request), `pump` (parts or one
//! stream through memory), `delta` (from the old file and what it doesn't have). `shared` is one file by several processes.

mod allowance;
mod bundle;
mod delta;
mod lost_answer;
mod pump;
mod read;
pub(crate) use allowance::Allowance;
use pump::ChunkRoute;
pub mod server;
pub mod shared;
mod unfinished;

use crate::{
    Cx,
    attributes::is_plain,
    backup::{Backup, ReplacedFile},
    budget::{Budget, Claim},
    cx::cancelled,
    decide,
    io::ABORT_WITHIN,
};
use delta::Delta;
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Kind, Meta, Mtime, Result, Retry, Version,
    attributes::{FileAttributes, UnpreservedAttributes},
    chmod::Chmod,
    chmod::MODE_BITS,
    event::{Event, Sink, StepId},
    job::{Fsync, Job, Lookup, Publish},
    keep::Keep,
    links::SourceLinks,
    plan::{Replace, Route},
};
use haul_store::{LateFacts, Meter, StoredFacts, WriteSpec};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use unfinished::{Target, Track};

/// So long after the job was stopped a file whose bytes are all sent may still be published: enough for a request to a healthy
/// store, but not for one that asks to come back later, or hangs.
const PUBLISH_WITHIN: Duration = Duration::from_secs(1);

/// How often a source may change under a copy before it is reported.
const CHANGED_RETRIES: u32 = 3;
/// Files up to this size are read at once, and not asked about again where that costs a request.
const AT_ONCE: u64 = 1 << 20;

/// Moves files between the two stores of a job.
#[derive(Clone)]
pub struct Mover {
    /// Stores, sink and cancellation.
    pub cx: Cx,
    /// The rules.
    pub job: Arc<Job>,
    /// Resources that may be used at once.
    pub budget: Budget,
    /// The attributes that go along between file systems.
    pub keep: Option<Arc<Keep>>,
    /// Where what is replaced goes.
    pub backup: Backup,
    /// The remaining allowance (`--max-transfer` with a hard cut-off).
    pub allowance: Option<Arc<Allowance>>,
}

/// One file to transfer.
#[derive(Clone, Debug)]
pub struct FileTransfer {
    /// Its number.
    pub step: StepId,
    /// The source as listed.
    pub src: Entry,
    /// Its key at the destination.
    pub to: Key,
    /// The destination's current entry.
    pub replaced: Option<Entry>,
    /// The old file is in the backup, so that the current entry isn't taken for it.
    pub kept: ReplacedFile,
    /// Bytes that were taken from the allowance for it before it was begun.
    pub taken: u64,
    /// The attributes of a source on this machine, which go along with the write: the store on the other one sets them.
    pub carried: Option<Arc<FileAttributes>>,
    /// It doesn't fit into the allowance: a large copy inside a service that is stopped where its parts reach what is left.
    pub stops_at_limit: bool,
    /// It may have been stored although its answer was lost, by a write that may replace nothing.
    pub unsure: bool,
}

impl FileTransfer {
    /// An order of which nothing is done yet.
    pub fn new(step: StepId, src: Entry, to: Key, replaced: Option<Entry>) -> Self {
        let kept = ReplacedFile::No;
        FileTransfer { step, src, to, replaced, kept, taken: 0, carried: None, stops_at_limit: false, unsure: false }
    }

    /// True for a regular file or a symlink: its bytes can be transferred by more than one route.
    pub fn is_file(&self) -> bool {
        self.src.has_bytes()
    }
}

/// A file that arrived, whole.
#[derive(Clone, Debug, Default)]
pub struct ArrivedFile {
    /// Bytes.
    pub size: u64,
    /// The hash that proved it equal.
    pub proved: Option<Algo>,
    /// The source states its hash, but part of it was transferred by an earlier run or attempt, and that hash can't be computed
    /// without reading that part again.
    pub unproved: Option<Algo>,
    /// It went inside a copy domain.
    pub by_server: bool,
    /// The source is missing already: it was renamed.
    pub renamed: bool,
    /// The version of the source that it is.
    pub version: Option<Version>,
    /// The attributes that could not be kept.
    pub unpreserved: UnpreservedAttributes,
    /// The destination's entry now, if known as well as its listing would show it.
    pub stored: Option<Box<Entry>>,
}

/// Bytes moved by one attempt; takes them back when the attempt fails.
pub(crate) struct Count<'a> {
    mover: &'a Mover,
    across: Arc<AttemptProgress>,
    skipped: AtomicI64,
    /// Taken from the allowance.
    taken: AtomicI64,
    /// Of these, those that no chunk has asked for yet.
    ahead: AtomicI64,
}

/// Bytes of one attempt that are across, reported as they go.
struct AttemptProgress {
    step: StepId,
    sink: Arc<dyn Sink>,
    /// `None` once the attempt is over: a connection that was given up may still take some.
    bytes: Mutex<Option<i64>>,
}

impl AttemptProgress {
    fn add(&self, more: i64) {
        let mut bytes = self.bytes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(bytes) = bytes.as_mut().filter(|_| more != 0) {
            *bytes += more;
            self.sink.emit(&Event::Moved { step: self.step, bytes: more });
        }
    }

    /// They were for nothing. Gives how many they were.
    fn take_back(&self) -> i64 {
        let bytes = self.bytes.lock().unwrap_or_else(|e| e.into_inner()).take().unwrap_or(0);
        if bytes != 0 {
            self.sink.emit(&Event::Moved { step: self.step, bytes: -bytes });
        }
        bytes
    }

    /// All of them are across, `bytes` in all, whatever was reported of them.
    fn end(&self, bytes: i64) {
        let counted = self.bytes.lock().unwrap_or_else(|e| e.into_inner()).unwrap_or(bytes);
        self.add(bytes - counted);
        self.bytes.lock().unwrap_or_else(|e| e.into_inner()).take();
    }
}

impl<'a> Count<'a> {
    /// A count of zero.
    fn new(mover: &'a Mover, step: StepId) -> Count<'a> {
        let zero = || AtomicI64::new(0);
        let (skipped, taken, ahead) = (zero(), zero(), zero());
        let across = AttemptProgress { step, sink: mover.cx.sink.clone(), bytes: Mutex::new(Some(0)) };
        Count { mover, across: Arc::new(across), skipped, taken, ahead }
    }

    /// False when this many more bytes exceed the user's limit: they aren't sent.
    pub fn allows(&self, bytes: u64) -> bool {
        let ahead = |ahead: i64| Some(ahead - bytes as i64).filter(|left| *left >= 0);
        self.ahead.fetch_update(Ordering::Relaxed, Ordering::Relaxed, ahead).is_ok() || self.take(bytes)
    }

    /// Takes the whole file from the allowance before it is opened, because opening it may already start the download.
    fn allows_whole(&self, bytes: u64) -> bool {
        let taken = self.take(bytes);
        if taken {
            self.ahead.store(bytes as i64, Ordering::Relaxed);
        }
        taken
    }

    fn take(&self, bytes: u64) -> bool {
        let Some(allowance) = &self.mover.allowance else { return true };
        let taken = allowance.take(bytes);
        if taken {
            self.taken.fetch_add(bytes as i64, Ordering::Relaxed);
        }
        taken
    }

    /// So many more bytes are across.
    pub fn add(&self, bytes: u64) {
        self.across.add(bytes as i64);
    }

    /// Counts a chunk's bytes as they go.
    pub fn meter(&self) -> Meter {
        let across = self.across.clone();
        Meter::new(move |bytes| across.add(bytes))
    }

    /// So many bytes are across already: shown as moved, but no limit counts them.
    pub fn skip(&self, bytes: u64) {
        if bytes > 0 {
            self.skipped.fetch_add(bytes as i64, Ordering::Relaxed);
            self.mover.cx.sink.emit(&Event::Resumed { step: self.across.step, bytes: bytes as i64 });
        }
    }

    /// The file of `size` bytes is at the destination.
    fn arrived(&self, size: u64) {
        self.across.end(size as i64 - self.skipped.load(Ordering::Relaxed));
    }

    fn take_back(&self) {
        let bytes = self.across.take_back();
        // Bytes that arrived count against the limit even if they were for nothing.
        let taken = self.taken.swap(0, Ordering::Relaxed) - bytes;
        if let (Some(allowance), Ok(taken)) = (&self.mover.allowance, u64::try_from(taken)) {
            allowance.give_back(taken);
        }
        let skipped = self.skipped.swap(0, Ordering::Relaxed);
        if skipped != 0 {
            self.mover.cx.sink.emit(&Event::Resumed { step: self.across.step, bytes: -skipped });
        }
    }
}

impl Mover {
    /// A copy by a store moved `bytes` more bytes (or, if negative, reported too many).
    fn count(&self, step: StepId, bytes: i64) {
        if bytes != 0 {
            self.cx.sink.emit(&Event::Moved { step, bytes });
        }
    }

    /// False when an order for a copy by the destination's store doesn't fit into what may be moved: it is not begun then, unless it
    /// goes in parts of which the next run has use.
    pub fn allows_by_server(&self, order: &mut FileTransfer) -> bool {
        let Some(allowance) = &self.allowance else { return true };
        let caps = self.cx.dst.caps();
        let parts = !caps.files && caps.parts.is_some_and(|limits| order.src.size > limits.single_copy);
        let is_first = allowance.is_open();
        if allowance.take(order.src.size) {
            order.taken = order.src.size;
            return true;
        }
        order.stops_at_limit = parts && is_first;
        order.stops_at_limit
    }

    /// An order for the destination's store failed: what it was to move may be moved otherwise.
    pub fn give_back(&self, order: &mut FileTransfer) {
        let taken = std::mem::take(&mut order.taken);
        if let Some(allowance) = &self.allowance {
            allowance.give_back(taken);
        }
    }

    /// The route for a file of this size.
    pub fn route(&self, src: &Entry) -> Route {
        let (a, b) = (self.cx.src.caps(), self.cx.dst.caps());
        if let (Some(x), Some(y)) = (&a.domain, &b.domain)
            && (x.name == y.name || src.kind == Kind::Special)
        {
            return Route::Server;
        }
        self.route_through_memory(src.size)
    }

    /// The route for bytes that must pass through this process.
    fn route_through_memory(&self, size: u64) -> Route {
        let Some(limits) = self.cx.dst.caps().parts else { return Route::Stream };
        // Files that the store takes in one request go that way, unless the user wants parts from a smaller size on.
        let cutoff = self.job.pace.parts_cutoff.unwrap_or(limits.single.saturating_add(1).max(limits.preferred));
        if size < cutoff.max(1) || !self.budget.parts() {
            return Route::Stream;
        }
        let (src, dst) = (self.cx.src.caps(), self.cx.dst.caps());
        let along = match self.budget.road() {
            // Into a file, several chunks come with one request where the road suggests it.
            Some(road) if !dst.files => ChunkRoute::Rate(road),
            _ if dst.relays && !src.files => ChunkRoute::Passing,
            _ => ChunkRoute::Other,
        };
        Route::Parts { size: pump::part_size(&self.job, &limits, Some(size), &along) }
    }

    /// Chunks that a file of this size takes.
    pub fn chunks(&self, size: u64) -> u64 {
        size.div_ceil(pump::block(self, self.route_through_memory(size), size)).max(1)
    }

    /// Brings one file over by parts or stream, trying again from the start where that can help.
    ///
    /// Errors: the last attempt's, with the source's key. `Cancelled` when the job was stopped.
    pub async fn transfer_file(&self, order: &mut FileTransfer, claim: &Claim) -> Result<ArrivedFile> {
        self.ask_names(order).await;
        let mut src = order.src.clone();
        if !src.sized {
            // How it goes depends on how long it is.
            src = self.cx.src.stat(&src.key).await.map_err(|e| e.with_key(&src.key))?;
        }
        let (mut attempt, mut changed, mut kept) = (0, 0, 0);
        loop {
            let route = self.route_through_memory(src.size);
            // A file that was built from the old one and isn't proved is sent whole the next time.
            let delta = if attempt + changed == 0 { self.delta(order, &src).await } else { None };
            let error = match self.attempt(order, &src, route, delta, claim).await {
                Ok(arrived) => return Ok(arrived),
                Err(error) => {
                    if error.key().is_some() {
                        error
                    } else {
                        error.with_key(&src.key)
                    }
                }
            };
            if error.kind() == ErrorKind::Exists
                && order.unsure
                && let Some(arrived) = self.stored_before(order, &src).await
            {
                self.count(order.step, arrived.size as i64);
                return Ok(arrived);
            }
            self.note_lost(order, &error);
            let now = self.cx.journal.as_ref().map_or(0, |journal| journal.bytes_left(&order.to));
            if now > kept {
                // The transfer resumes where it is, however often its connection breaks.
                (attempt, kept) = (0, now);
            }
            let again = match error.kind() {
                ErrorKind::Changed => {
                    // Its attributes may have changed too.
                    order.carried = None;
                    changed += 1;
                    changed < CHANGED_RETRIES
                }
                ErrorKind::Unreachable => false,
                ErrorKind::Corrupt => attempt < self.job.pace.file_retries,
                // Somebody took away what was half written: the folder, or the upload in parts.
                ErrorKind::NotFound if error.op() == "write" => attempt < self.job.pace.file_retries,
                _ => error.retry() != Retry::Never && attempt < self.job.pace.file_retries,
            };
            if !again || self.cx.cancel.is_cancelled() {
                return Err(error);
            }
            attempt += 1;
            self.wait_before_retry(order.step, error, attempt).await?;
            src = self.cx.src.stat(&src.key).await.map_err(|e| e.with_key(&src.key))?;
        }
    }

    async fn wait_before_retry(&self, step: StepId, error: Error, attempt: u32) -> Result<()> {
        let wait = match error.retry() {
            Retry::After(wait) => wait,
            _ => self.job.pace.retries_sleep.max(Duration::from_millis(200) * attempt),
        };
        self.cx.meters.retry();
        self.cx.sink.emit(&Event::Retried { step, error: Arc::new(error.to_report()), wait });
        tokio::select! {
            () = self.cx.cancel.cancelled() => Err(cancelled()),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }

    async fn attempt(
        &self,
        order: &mut FileTransfer,
        src: &Entry,
        route: Route,
        delta: Option<Delta>,
        claim: &Claim,
    ) -> Result<ArrivedFile> {
        let count = Count::new(self, order.step);
        if delta.is_none() && self.chunks(src.size) == 1 && !count.allows_whole(src.size) {
            return Err(cancelled());
        }
        let route = if delta.is_some() { Delta::ROUTE } else { route };
        let result = async {
            if self.writes_in_place(order) {
                // Before it is opened: what reserves its blocks changes it.
                self.keep_replaced(order).await?;
            }
            let open = self.open(order, src, route, delta).await?;
            self.carry(order, src, open, &count, claim).await
        };
        let result = result.await;
        match &result {
            Ok(arrived) => count.arrived(arrived.size),
            Err(_) => {
                count.take_back();
                self.take_back(order).await;
            }
        }
        result
    }

    /// Opens the source first, so that what it says of itself goes along with the write.
    async fn open(&self, order: &FileTransfer, src: &Entry, route: Route, delta: Option<Delta>) -> Result<Open> {
        let block = pump::block(self, route, src.size);
        if let Route::Parts { .. } = route {
            pump::check_size(src.size, block)?;
        }
        let mut source = tokio::select! {
            biased;
            () = self.cx.cancel.cancelled() => return Err(cancelled()),
            source = read::Source::open(&self.cx.src, src, route, &self.budget, block) => source?,
        };
        // A disk's metadata is listed; reading a file doesn't ask for it again.
        source.facts.meta = source.facts.meta.take().or_else(|| src.meta.clone());
        if !self.job.compare.ignore_size && source.facts.size != src.size {
            let message = format!("it was {} bytes when listed and is {} now", src.size, source.facts.size);
            return Err(Error::new(ErrorKind::Changed, "read", message));
        }
        let facts = source.facts.clone();
        let chunk = pump::noted(self, &facts, route);
        let target = {
            let mut target = std::pin::pin!(async {
                let Some(delta) = &delta else { return self.target(order, &facts, route, chunk).await };
                let mut spec = self.spec(order, &facts);
                spec.hashes.merge(&delta.whole());
                Ok(Target::new(self.cx.dst.write(&order.to, spec).await?, chunk))
            });
            tokio::select! {
                biased;
                () = self.cx.cancel.cancelled() => {
                    // A write that is being begun would be left behind if nobody took it.
                    return Err(match tokio::time::timeout(ABORT_WITHIN, target).await {
                        Ok(Ok(Target { upload, track, .. })) => self.give_up(upload, track, cancelled()).await,
                        _ => cancelled(),
                    });
                }
                target = &mut target => target?,
            }
        };
        Ok(Open { source, target, delta })
    }

    /// How the source shows its links.
    pub(crate) fn source_links(&self) -> SourceLinks {
        self.job.links.source
    }

    /// The time that a file gets: its source's, unless the job says another.
    pub(crate) fn time(&self, facts: &Entry) -> Option<Mtime> {
        let attributes = &self.job.attributes;
        let set = attributes.set_time.or(attributes.omit_link_times.filter(|_| facts.is_symlink()));
        set.or_else(|| decide::server_time(&self.job, &self.cx.src, facts)).or(facts.mtime)
    }

    /// Entries that a file may replace.
    fn replaces(&self, order: &FileTransfer) -> Replace {
        let caps = self.cx.dst.caps();
        // A disk may treat two names as one (by case, say), and the source of the first is deleted when the second comes.
        // The same holds for two names where a symlink of the destination stays.
        let two_names = self.job.moves() || self.job.links.keep_dirlinks;
        let disk = caps.files || caps.set_dir_mtime;
        let move_to_disk = two_names && disk && self.job.listing.lookup != Lookup::Never;
        let never_replace = self.job.existing.ignore || self.job.existing.immutable || move_to_disk;
        // Where files wait for their names, an existing file is from an earlier run; a move has removed that.
        let waits = self.job.write.publish == Publish::AtEnd;
        // By SFTP a server is asked, though not all of them answer for one moment.
        let can = caps.conditional || move_to_disk;
        let conditional = never_replace && order.replaced.is_none() && can && (!waits || move_to_disk);
        if conditional { Replace::Absent } else { Replace::Anything }
    }

    /// How the file is written: what may be there, which times and metadata go along.
    pub(crate) fn spec(&self, order: &FileTransfer, facts: &Entry) -> WriteSpec {
        WriteSpec {
            size: Some(facts.size),
            replace: self.replaces(order),
            mtime: self.time(facts),
            meta: meta(&self.job, facts),
            hashes: facts.hashes.clone(),
            inplace: self.writes_in_place(order),
            partial_suffix: self.job.write.partial_suffix.clone(),
            renamed_only: false,
            keep_setid: self.job.attributes.keep_setid || self.cx.src.caps().files,
            size_may_differ: self.job.compare.ignore_size,
            keep: self.keep_of(order),
            carried: order.carried.clone(),
            sparse: self.job.write.sparse,
            fsync: self.job.write.fsync == Fsync::File,
            drop_cache: self.job.write.drop_cache,
            resumable: false,
        }
    }

    /// True for a file that is overwritten where it is. Not where names that are one file are kept so and this one has others:
    /// those may be other files at the source.
    fn writes_in_place(&self, order: &FileTransfer) -> bool {
        // If the number of names is unknown, a move doesn't assume it is the only one.
        let several = |there: &Entry| there.posix.as_ref().map_or(self.job.moves(), |posix| posix.nlink > 1);
        let shared = self.protects_other_names() && order.replaced.as_ref().is_some_and(several);
        self.job.write.publish == Publish::InPlace && !shared
    }

    /// True if a write to one name of a file must not reach its other names. Those may be different files at the source, where they
    /// stay apart, or the source is deleted.
    fn protects_other_names(&self) -> bool {
        self.job.attributes.keep.hard_links || self.job.moves()
    }

    /// Finds out how many names a file has that is to be written in place, if that counts and no listing had it.
    async fn ask_names(&self, order: &mut FileTransfer) {
        if self.job.write.publish == Publish::InPlace
            && self.protects_other_names()
            && let Some(there) = order.replaced.as_mut().filter(|there| there.posix.is_none())
            && let Ok(now) = self.cx.dst.stat(&there.key).await
        {
            there.posix = now.posix;
        }
    }

    /// True if a file is to have the permissions of the one that it replaces, and that one goes to the backup.
    pub(crate) fn keeps_replaced_mode(&self, order: &FileTransfer) -> bool {
        let plain = order.src.kind == Kind::File;
        let mode_is_kept = self.keep.as_ref().is_none_or(|keep| keep.perms || keep.acls);
        let there = order.replaced.as_ref().is_some_and(|there| there.posix.is_some() && is_plain(there));
        self.backup.is_on() && plain && there && !mode_is_kept
    }

    /// Attributes to keep, with such permissions made explicit.
    pub(crate) fn keep_of(&self, order: &FileTransfer) -> Option<Arc<Keep>> {
        let keep = self.keep.as_ref()?;
        let mode = |entry: &Entry| entry.posix.as_deref().map_or(0, |posix| posix.mode);
        let there = order.replaced.as_ref().filter(|_| self.keeps_replaced_mode(order)).map(mode);
        let Some(there) = there else { return Some(keep.clone()) };
        let set = match keep.executability.then(|| mode(&order.src) & 0o111) {
            Some(0) => there & 0o666,
            // Readers may also execute it.
            Some(_) if there & 0o111 == 0 => there & 0o666 | (there & 0o444) >> 2,
            _ => there & 0o777,
        };
        let chmod = vec![Chmod { dirs: false, files: true, clear: MODE_BITS, set, exec_if_any: 0, copied: None }];
        Some(Arc::new(Keep { perms: true, chmod, ..(**keep).clone() }))
    }

    /// Moves the bytes, verifies, publishes; after a failure the unfinished write is removed, or kept for the next
    /// attempt or run if it can be resumed.
    async fn carry(
        &self,
        order: &mut FileTransfer,
        src: &Entry,
        open: Open,
        count: &Count<'_>,
        claim: &Claim,
    ) -> Result<ArrivedFile> {
        let Open { source, target, delta } = open;
        let facts = source.facts.clone();
        let bytes = async {
            match &delta {
                Some(delta) => delta::pump(self, source, &target, delta, count).await,
                None => pump::pump(self, source, &target, count, claim).await,
            }
        };
        let pumped = tokio::select! {
            biased;
            () = self.cx.cancel.cancelled() => Err(cancelled()),
            pumped = bytes => pumped,
        };
        let Target { upload, track, .. } = target;
        let pumped = match self.check_source(src, &facts, pumped).await {
            Ok(pumped) => pumped,
            Err(error) => return Err(self.give_up(upload, track, error).await),
        };
        if let Err(error) = self.keep_replaced(order).await {
            return Err(self.give_up(upload, track, error).await);
        }
        let (bytes, hashes, memory, unproved) = (pumped.bytes, pumped.hashes, pumped.memory, pumped.unproved);
        let late = LateFacts { hashes: hashes.clone(), ..LateFacts::default() };
        let gathered = self.budget.gather(claim).await;
        let published = tokio::select! {
            biased;
            published = upload.publish(pumped.parts, late) => published,
            () = self.stopped_long_ago() => {
                // The outcome is unknown: the next run finds out.
                track.iter().for_each(Track::left);
                return Err(cancelled());
            }
        };
        let stored = match published {
            Ok(stored) => stored,
            Err(failed) => return Err(self.give_up(failed.upload, track, failed.error).await),
        };
        drop((memory, gathered));
        track.iter().for_each(Track::published);
        let proved = match self.check_stored(bytes, &facts, &hashes, &stored) {
            Ok(_) if self.job.write.verify_read => self.read_back(order, &stored, &hashes).await,
            checked => checked,
        };
        let proved = match proved {
            Err(error) if error.kind() == ErrorKind::Corrupt => return Err(self.take_away(order, stored, error).await),
            proved => proved?,
        };
        // The store's own checksum proves the bytes sent, not that they are the source's.
        let proved = proved.filter(|_| unproved.is_none());
        Ok(ArrivedFile { proved, unproved, ..self.arrived_as(order, facts, bytes, stored) })
    }

    /// The result for a stored file of `bytes` bytes.
    fn arrived_as(&self, order: &FileTransfer, facts: Entry, bytes: u64, stored: StoredFacts) -> ArrivedFile {
        let unpreserved = stored.unpreserved;
        let holds = Entry {
            version: stored.version,
            hashes: stored.hashes,
            mtime: facts.mtime.filter(|_| self.cx.dst.caps().mtime.is_some()),
            ..Entry::with_bytes(order.to.clone(), stored.size)
        };
        ArrivedFile {
            size: bytes,
            version: facts.version,
            stored: Some(Box::new(holds)),
            unpreserved,
            ..ArrivedFile::default()
        }
    }

    /// Moves what the order replaces to where backups go: once, whatever becomes of the transfer then.
    pub(crate) async fn keep_replaced(&self, order: &mut FileTransfer) -> Result<()> {
        match &order.replaced {
            _ if order.kept != ReplacedFile::No => return Ok(()),
            // A file written in place keeps its identity, and a copy of it is kept.
            Some(old) if self.writes_in_place(order) && is_plain(old) => self.backup.keep_copy(&self.cx, old).await?,
            Some(old) => {
                order.kept = self.backup.keep_replaced(&self.cx, old).await?;
                return Ok(());
            }
            None => self.keep_other_kind(&order.to).await?,
        }
        order.kept = ReplacedFile::Done;
        Ok(())
    }

    /// Gives what an order replaces its name back where nothing came in its place. Not after a stop, when that may still come; and
    /// on a disk alone, whose answers say what was done.
    pub(crate) async fn take_back(&self, order: &mut FileTransfer) {
        let undoes = matches!(order.kept, ReplacedFile::Linked | ReplacedFile::Moved) && self.cx.dst.caps().files;
        let Some(old) = order.replaced.as_ref().filter(|_| undoes && !self.cx.cancel.is_cancelled()) else {
            return;
        };
        match self.backup.take_back(&self.cx, old, order.kept).await {
            Ok(true) => order.kept = ReplacedFile::No,
            // The new file is published: its predecessor has been kept, whatever failed then.
            Ok(false) => order.kept = ReplacedFile::Done,
            Err(error) => {
                tracing::debug!(%error, key = %old.key, "what was to be replaced stays where backups go");
            }
        }
    }

    /// Keeps a file, device or FIFO that a symlink replaces, or a symlink that one of those replaces: they have other keys, so the
    /// comparison doesn't see them.
    async fn keep_other_kind(&self, to: &Key) -> Result<()> {
        let meets = self.job.existing.other_kinds.are_replaced() || self.job.links.replace_links;
        if !meets || !self.backup.is_on() || !self.cx.dst.caps().dirs {
            return Ok(());
        }
        let other = if to.is_symlink() { Key::new(to.path()) } else { Key::symlink(to.path()) };
        match self.cx.dst.stat(&other).await {
            Ok(old) if !old.is_dir() => self.backup.keep(&self.cx, &old).await.map(|_| ()),
            Err(error) if !error.is_missing() => Err(error.with_key(&other)),
            _ => Ok(()),
        }
    }

    async fn stopped_long_ago(&self) {
        self.cx.cancel.cancelled().await;
        tokio::time::sleep(PUBLISH_WITHIN).await;
    }

    /// Checks, before anything becomes visible, that the moved bytes match the source's own hash, and that the source is unchanged.
    async fn check_source(
        &self,
        src: &Entry,
        facts: &Entry,
        pumped: Result<pump::PumpResult>,
    ) -> Result<pump::PumpResult> {
        let pumped = pumped?;
        self.check_moved(facts, pumped.bytes, &pumped.hashes)?;
        let caps = self.cx.src.caps();
        let may_be_torn = caps.files || (caps.written_in_place && facts.size > AT_ONCE);
        if may_be_torn && facts.version.is_some() {
            let now = self.cx.src.stat(&src.key).await?;
            if now.version != facts.version {
                return Err(Error::new(ErrorKind::Changed, "read", "the file changed while it was copied"));
            }
        }
        Ok(pumped)
    }

    /// Is what we moved what the source says it holds?
    fn check_moved(&self, facts: &Entry, bytes: u64, hashes: &Hashes) -> Result<()> {
        if bytes != facts.size && !self.job.compare.ignore_size {
            return Err(haul_store::blocks::ended_early(bytes, facts.size));
        }
        if !self.job.write.ignore_checksum
            && let Some((algo, false)) = facts.hashes.agree(hashes)
        {
            let message = format!("what was read does not have the {algo} that the source says it has");
            return Err(Error::new(ErrorKind::Corrupt, "read", message));
        }
        Ok(())
    }

    /// After publishing: does the store's own answer match what was sent?
    fn check_stored(&self, bytes: u64, facts: &Entry, moved: &Hashes, stored: &StoredFacts) -> Result<Option<Algo>> {
        if stored.size != bytes && !self.job.compare.ignore_size {
            let message = format!("{bytes} bytes were sent but the store says that it holds {}", stored.size);
            return Err(Error::new(ErrorKind::Corrupt, "write", message));
        }
        let mut ours = moved.clone();
        ours.merge(&facts.hashes);
        match ours.agree(&stored.hashes) {
            Some((algo, false)) if !self.job.write.ignore_checksum => {
                let message = format!("the store's {algo} of it is not that of what was sent");
                Err(Error::new(ErrorKind::Corrupt, "write", message))
            }
            Some((algo, true)) => Ok(Some(algo)),
            // The source's own hash matched what passed, or the store checked what it got against what it was sent.
            _ => Ok(moved.agree(&facts.hashes).or(stored.hashes.iter().next().map(|(a, _)| (a, true))).map(|(a, _)| a)),
        }
    }

    /// A file that is proved corrupt must not stay: with its size and time right, the next run would take it for the file.
    async fn take_away(&self, order: &FileTransfer, stored: StoredFacts, error: Error) -> Error {
        for answer in self.cx.dst.delete(vec![(order.to.clone(), stored.version)]).await {
            if let Err(e) = answer {
                tracing::debug!("{}: what arrived corrupt could not be deleted: {e}", order.to);
            }
        }
        error
    }

    /// `--verify=read`: reads back what was written and hashes it.
    async fn read_back(&self, order: &FileTransfer, stored: &StoredFacts, moved: &Hashes) -> Result<Option<Algo>> {
        let mut entry = Entry::with_bytes(order.to.clone(), stored.size);
        entry.version = stored.version.clone();
        let back = crate::hash::read_and_hash(&self.cx.dst, &entry, &[VERIFY]).await?;
        match back.agree(moved) {
            Some((algo, true)) => Ok(Some(algo)),
            _ => Err(Error::new(ErrorKind::Corrupt, "verify", "what was read back is not what was sent")),
        }
    }
}

/// Hash of `--verify=read`: computed on both sides, so the fastest strong one.
pub(crate) const VERIFY: Algo = Algo::Blake3;

struct Open {
    source: read::Source,
    target: Target,
    delta: Option<Delta>,
}

/// The metadata that goes along: the source's as far as the job takes it, and that of `--metadata-set`. `None` when there is
/// none: then a store that copies by itself keeps the source's own.
pub(crate) fn meta(job: &Job, facts: &Entry) -> Option<Box<Meta>> {
    let own = job.attributes.of_metadata(facts.meta.as_deref(), facts.is_dir());
    if own.is_none() && job.attributes.metadata_set.is_empty() {
        return None;
    }
    let mut meta = own.unwrap_or_default();
    meta.extend(job.attributes.metadata_set.iter().cloned());
    Some(Box::new(meta))
}
