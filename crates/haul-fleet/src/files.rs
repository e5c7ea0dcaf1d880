//! Large files by many workers: a shard for each, whose holder begins the write and splits it into ranges; shards for those; and the worker
//! that finds all ranges done finishes the file. A file that can't be split belongs to one worker, as all others do.

use crate::{
    job_folder::is_spoiled,
    outcome::{WorkDone, fatal, is_fatal},
    protocol::{FileShard, Lease, Progress, Record, RemainingWork, ShardId, ShardState, Stage},
    report::AT_ONCE,
    worker::Crew,
};
use futures::{FutureExt, StreamExt, TryStreamExt};
use haul::{
    Cancel, Cx,
    part::LargeFile,
    run_one,
    shared::{Fence, RangeResult, SharedFile, Sharing},
};
use haul_core::{
    Error, ErrorKind, Key, Result, Retry,
    event::Event,
    job::{Job, Verb},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::sleep;

/// A range is this part of what files are split from: at 8 GiB, 1 GiB, which a worker sends in seconds while its lease costs some
/// requests …
const SHARE: u64 = 8;
/// … and not less of a file than this part of it: each range is some objects of the job's directory, which all workers list.
const MOST: u64 = 512;

/// A shard of a file is tried so often: much may have been sent for it, which one bad moment of a server must not cost.
const TRIES: u64 = 6;

/// Result of a range.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RangeEnd {
    /// It is at the destination.
    Sent(RangeResult),
    /// It isn't: why, in one line.
    Failed(String),
    /// Not tried, as another range had failed.
    LeftOut,
}

/// How work at a shard of a file ended that the worker has to leave.
enum EarlyEnd {
    /// Its lease is lost, or it is to stop, and others go on.
    ToOthers,
    /// It failed for a reason that may pass.
    Again,
    /// It can do no more. True if that is this shard's failure too, of which others may have as many as of any.
    Fatal(Error, bool),
    /// It failed.
    Failed(Error),
}

/// The ranges of a file, none smaller than this share of `split_from` bytes but the last.
fn ranges(file: &SharedFile, about: &str, split_from: u64) -> Vec<FileShard> {
    let bytes = (split_from / SHARE).max(file.size().div_ceil(MOST));
    let (step, parts) = (bytes.div_ceil(file.part_size()).max(1), file.parts());
    let range = |from: u64| Stage::Range(from, (from + step).min(parts));
    let shard = |from| FileShard { key: file.key().clone(), about: about.to_owned(), stage: range(from) };
    (0..parts).step_by(usize::try_from(step).unwrap_or(usize::MAX)).map(shard).collect()
}

/// Text form of a value that only this crate reads.
///
/// Errors: `Invalid` when JSON can't hold it.
fn text(value: &impl Serialize) -> Result<String> {
    let cannot = |e| Error::new(ErrorKind::Invalid, "write", format!("a large file can't be written down: {e}"));
    serde_json::to_string(value).map_err(cannot)
}

fn value<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|e| Error::new(ErrorKind::Corrupt, "read", format!("a large file's record can't be understood: {e}")))
}

/// True for a large file whose write is begun and has not ended.
pub fn has_write(record: &Record<WorkDone>) -> bool {
    record.state != ShardState::Done && matches!(&record.rest, RemainingWork::File(file) if file.stage == Stage::Begun)
}

/// Removes the writes of files that a job began and that nobody will finish; returns those that could not be removed.
pub async fn discard_writes(sharing: &Sharing, records: &BTreeMap<ShardId, Record<WorkDone>>) -> Vec<Error> {
    let mut failed = Vec::new();
    for record in records.values().filter(|record| has_write(record)) {
        let RemainingWork::File(FileShard { about, .. }) = &record.rest else { continue };
        let discarded = match value::<SharedFile>(about) {
            Ok(file) => sharing.discard(&file).await,
            Err(error) => Err(error),
        };
        failed.extend(discarded.err());
    }
    failed
}

impl Crew {
    /// The shards of large files that were met; `outcome` takes in which can't be.
    pub fn shards_of(&self, all: &[LargeFile], outcome: &mut WorkDone) -> Vec<FileShard> {
        let shard = |large: &LargeFile| match text(large) {
            Ok(about) => Some(FileShard { key: large.src.key.clone(), about, stage: Stage::New }),
            Err(error) => {
                *outcome += self.failed(&error.with_key(&large.src.key));
                None
            }
        };
        all.iter().filter_map(shard).collect()
    }

    /// Works at a large file, or at a range of one, until that is done, given back or lost.
    pub async fn hold_file(&self, lease: Lease<WorkDone>, file: FileShard) -> Result<()> {
        let cancel = Cancel::default();
        let (_, lost) = self.held().get(&lease.id).cloned().unwrap_or_default();
        let worked = {
            let work = self.work_at(&lease, &file, &cancel).boxed_local();
            let watch = async {
                tokio::select! {
                    () = lost.cancelled() => {}
                    () = async {
                        self.ended.cancelled().await;
                        sleep(self.worker.settings.grace).await;
                    } => {}
                }
                cancel.cancel();
            };
            tokio::pin!(work, watch);
            tokio::select! {
                worked = &mut work => worked,
                () = &mut watch => work.await,
            }
        };
        let back = || lease.with(Progress::GivesBack(None, WorkDone::default(), Vec::new()));
        match worked {
            Ok(()) => Ok(()),
            Err(_) if lost.is_cancelled() => Ok(()),
            Err(EarlyEnd::ToOthers) => self.write(&back()).await.map(drop),
            Err(EarlyEnd::Again) => self.write(&lease.with(Progress::Fails)).await.map(drop),
            Err(EarlyEnd::Fatal(error, counts)) => {
                self.write(&if counts { lease.with(Progress::Fails) } else { back() }).await?;
                Err(error)
            }
            Err(EarlyEnd::Failed(error)) => {
                let error = error.with_key(&file.key);
                self.tell(&error);
                self.is_done(&lease, self.failed(&error)).await
            }
        }
    }

    async fn work_at(&self, lease: &Lease<WorkDone>, file: &FileShard, cancel: &Cancel) -> Result<(), EarlyEnd> {
        match &file.stage {
            Stage::New => self.begin(lease, file, cancel).await,
            Stage::Begun => self.finish_file(lease, file, cancel).await,
            Stage::Range(from, to) => self.send(lease, file, (*from, *to), cancel).await,
            // It is done, and nobody claims a done shard.
            Stage::Came(_) => Ok(()),
        }
    }

    /// Begins the write of a file and splits it into ranges; copies it whole where that can't be.
    async fn begin(&self, lease: &Lease<WorkDone>, file: &FileShard, cancel: &Cancel) -> Result<(), EarlyEnd> {
        let sharing = self.sharing(cancel);
        let large: LargeFile = value(&file.about).map_err(EarlyEnd::Failed)?;
        let begun = match sharing.begin(&large).await {
            Ok(Some(begun)) => begun,
            Ok(None) => return self.copy_whole(lease, file, cancel).await,
            Err(error) => match self.left(lease, error, cancel) {
                EarlyEnd::Failed(error) => {
                    tracing::debug!(key = %file.key, %error, "its write can't be begun for many workers");
                    return self.copy_whole(lease, file, cancel).await;
                }
                left => return Err(left),
            },
        };
        let about = match text(&begun) {
            Ok(about) => about,
            Err(error) => {
                self.discard(&sharing, &begun).await;
                return Err(EarlyEnd::Failed(error));
            }
        };
        let ranges = ranges(&begun, &about, self.spec.split_files_from);
        let file = FileShard { about, stage: Stage::Begun, ..file.clone() };
        let lease = lease.with(Progress::Begun(file, ranges));
        if !self.write(&lease).await? {
            // Nobody knows of the write.
            self.discard(&sharing, &begun).await;
            return Ok(());
        }
        self.board().create_split_shards(&lease).await?;
        self.write(&lease.with(Progress::GivesBack(None, WorkDone::default(), Vec::new()))).await?;
        Ok(())
    }

    /// Sends a range of a file.
    async fn send(
        &self,
        lease: &Lease<WorkDone>,
        file: &FileShard,
        (from, to): (u64, u64),
        cancel: &Cancel,
    ) -> Result<(), EarlyEnd> {
        let came = if self.sight().view.failed.contains(&file_of(lease)) {
            RangeEnd::LeftOut
        } else {
            match self.sent(lease, file, (from, to), cancel).await {
                Ok(brought) => RangeEnd::Sent(brought),
                Err(EarlyEnd::Failed(error)) => {
                    let error = error.with_key(&file.key);
                    self.tell(&error);
                    RangeEnd::Failed((self.worker.line)(&error))
                }
                Err(left) => return Err(left),
            }
        };
        let (failed, came) = (matches!(came, RangeEnd::Failed(_)), text(&came).map_err(EarlyEnd::Failed)?);
        Ok(self.range_is_done(lease, came, failed).await?)
    }

    /// Notes that a range is done, with this result.
    async fn range_is_done(&self, lease: &Lease<WorkDone>, came: String, failed: bool) -> Result<()> {
        // A worker that has lost the lease reports nothing of the file: another may have sent the range.
        if !self.write(&lease.with(Progress::Came(came))).await? {
            return Ok(());
        }
        if failed {
            self.board().note_failed(&file_of(lease)).await?;
        }
        self.board().note_done(&lease.id).await
    }

    /// Notes that this range is not tried again.
    pub async fn range_failed(&self, lease: &Lease<WorkDone>, error: &Error) -> Result<()> {
        self.range_is_done(lease, text(&RangeEnd::Failed((self.worker.line)(error)))?, true).await
    }

    async fn sent(
        &self,
        lease: &Lease<WorkDone>,
        file: &FileShard,
        (from, to): (u64, u64),
        cancel: &Cancel,
    ) -> Result<RangeResult, EarlyEnd> {
        let begun: SharedFile = value(&file.about).map_err(EarlyEnd::Failed)?;
        let sent = self.sharing(cancel).send(&begun, from..to, self.fence(lease)).await;
        sent.map_err(|error| self.left(lease, error, cancel))
    }

    /// Makes a file visible whose ranges are all there, or removes what was sent of one that failed.
    async fn finish_file(&self, lease: &Lease<WorkDone>, file: &FileShard, cancel: &Cancel) -> Result<(), EarlyEnd> {
        let Some(came) = self.came(lease).await? else { return Err(EarlyEnd::ToOthers) };
        let begun: SharedFile = value(&file.about).map_err(EarlyEnd::Failed)?;
        let sharing = self.sharing(cancel);
        // No other worker has it, as far as the store knows.
        self.grip(lease).holds().await.map_err(|error| self.left(lease, error, cancel))?;
        let brought = match all_sent(came, &file.key) {
            Ok(brought) => brought,
            Err(why) => {
                self.give_up(lease, &sharing, &begun).await?;
                let outcome = WorkDone { error_count: 1, errors: vec![why], ..WorkDone::default() };
                return Ok(self.is_done(lease, outcome).await?);
            }
        };
        let left = match sharing.finish(&begun, brought).await {
            Ok(bytes) => {
                let outcome = WorkDone { transfers: 1, bytes, ..WorkDone::default() };
                return Ok(self.is_done(lease, outcome).await?);
            }
            Err(error) => self.left(lease, error, cancel),
        };
        match left {
            EarlyEnd::Failed(error) => {
                self.give_up(lease, &sharing, &begun).await?;
                // Something of another kind has its name. Whoever copies a file alone knows what becomes of that.
                if error.kind() == ErrorKind::Exists && self.worker.job.existing.other_kinds.are_replaced() {
                    return self.copy_whole(lease, file, cancel).await;
                }
                Err(EarlyEnd::Failed(error))
            }
            left => Err(left),
        }
    }

    /// Results of all ranges of a file; `None` if some aren't done.
    async fn came(&self, lease: &Lease<WorkDone>) -> Result<Option<Vec<RangeEnd>>> {
        let ids: Vec<ShardId> = (0..lease.record.born).map(|number| lease.id.child(number)).collect();
        let reads = ids.into_iter().map(|id| async move {
            let Some(number) = self.board().latest(&id).await? else { return Ok::<_, Error>(None) };
            let record = match self.board().record(&id, number).await {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(None),
                Err(error) if is_spoiled(&error) => return Ok(self.unread(lease, &id, &error)),
                Err(error) => return Err(error),
            };
            match (record.state, record.rest) {
                (_, RemainingWork::File(FileShard { stage: Stage::Came(came), key, .. })) => {
                    Ok(Some(self.read_came(&came, &key)))
                }
                // The record of one that was given up could not be read.
                (ShardState::Done, _) => Ok(Some(RangeEnd::LeftOut)),
                _ => Ok(None),
            }
        });
        let reads: Vec<_> = reads.map(FutureExt::boxed_local).collect();
        let came: Vec<Option<RangeEnd>> = futures::stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        Ok(came.into_iter().collect())
    }

    /// A record that can't be understood is one file's failure.
    fn read_came(&self, came: &str, key: &Key) -> RangeEnd {
        value(came).unwrap_or_else(|error| RangeEnd::Failed((self.worker.line)(&error.with_key(key))))
    }

    /// Result of a range whose record can't be read. If it isn't known to be done, the next worker there gives it up.
    fn unread(&self, lease: &Lease<WorkDone>, range: &ShardId, error: &Error) -> Option<RangeEnd> {
        let RemainingWork::File(file) = &lease.record.rest else { return None };
        let why = || format!("{}: what came of a range can't be read: {}", file.key, (self.worker.line)(error));
        self.sight().view.done.contains(range).then(|| RangeEnd::Failed(why()))
    }

    /// Copies a file as one run does. Its second comparison isn't counted.
    async fn copy_whole(&self, lease: &Lease<WorkDone>, file: &FileShard, cancel: &Cancel) -> Result<(), EarlyEnd> {
        let (job, cx) = (self.job(), self.cx(cancel));
        let report = run_one(job, cx, &file.key, &file.key).boxed_local().await;
        if let Some(error) = fatal(&report.errors, report.stopped) {
            return Err(EarlyEnd::Fatal(error, false));
        }
        if report.stopped.is_some() {
            return Err(EarlyEnd::ToOthers);
        }
        let outcome = WorkDone { checks: 0, ..WorkDone::of(&report, &*self.worker.line) };
        Ok(self.is_done(lease, outcome).await?)
    }

    /// Removes what was sent of a file that failed. Where another worker may have taken it over, and be about to make it visible,
    /// that is left to the other.
    async fn give_up(&self, lease: &Lease<WorkDone>, sharing: &Sharing, file: &SharedFile) -> Result<(), EarlyEnd> {
        self.grip(lease).holds().await.map_err(|_| EarlyEnd::ToOthers)?;
        self.discard(sharing, file).await;
        Ok(())
    }

    /// Gives up a file with this known state.
    pub async fn give_up_about(&self, lease: &Lease<WorkDone>, about: &str) {
        // A worker that can't read it can do nothing about it; one that has lost the lease needn't.
        if let Ok(file) = value::<SharedFile>(about) {
            let _ = self.give_up(lease, &self.sharing(&Cancel::default()), &file).await;
        }
    }

    async fn discard(&self, sharing: &Sharing, file: &SharedFile) {
        if let Err(error) = sharing.discard(file).await {
            tracing::warn!("What was sent of a file that failed is still there: {}", (self.worker.line)(&error));
        }
    }

    /// Removes what was begun in a job that is cancelled.
    pub async fn discard_writes(&self, records: &BTreeMap<ShardId, Record<WorkDone>>) {
        for error in discard_writes(&self.sharing(&Cancel::default()), records).await {
            tracing::warn!("What was sent of a file is still there: {}", (self.worker.line)(&error));
        }
    }

    fn job(&self) -> Job {
        self.worker.job.clone().with(|job| job.verb = Verb::Copy)
    }

    fn cx(&self, cancel: &Cancel) -> Cx {
        Cx { cancel: cancel.clone(), ..self.worker.cx.clone() }
    }

    fn sharing(&self, cancel: &Cancel) -> Sharing {
        Sharing::new(self.job(), self.cx(cancel))
    }

    /// Parts are sent for as long as the lease is surely this worker's.
    fn fence(&self, lease: &Lease<WorkDone>) -> Fence {
        let grip = Arc::new(self.grip(lease));
        Arc::new(move || {
            let grip = grip.clone();
            async move { grip.may_go_on().await }.boxed()
        })
    }

    /// Meaning of an error for this worker.
    fn left(&self, lease: &Lease<WorkDone>, error: Error, cancel: &Cancel) -> EarlyEnd {
        let may_pass = error.kind() != ErrorKind::Changed && error.retry() != Retry::Never;
        let is_last = lease.record.failures + 1 >= TRIES;
        match error.kind() {
            ErrorKind::Cancelled => EarlyEnd::ToOthers,
            _ if cancel.is_cancelled() => EarlyEnd::ToOthers,
            kind if is_fatal(kind) => EarlyEnd::Fatal(error, false),
            _ if is_own(lease, &error) && !is_last => EarlyEnd::Fatal(error, true),
            _ if may_pass && !is_last => {
                tracing::warn!("Shard {} is given back, to be tried again: {}", lease.id, (self.worker.line)(&error));
                EarlyEnd::Again
            }
            _ => EarlyEnd::Failed(error),
        }
    }

    /// Reports a final failure to this worker's sinks.
    pub fn tell(&self, error: &Error) {
        self.worker.cx.sink.emit(&Event::Error(Arc::new(error.to_report())));
    }

    /// The outcome of a file that failed.
    pub fn failed(&self, error: &Error) -> WorkDone {
        WorkDone { error_count: 1, errors: vec![(self.worker.line)(error)], ..WorkDone::default() }
    }
}

/// The file that a range is of.
fn file_of(lease: &Lease<WorkDone>) -> ShardId {
    lease.id.parent().unwrap_or_else(|| lease.id.clone())
}

/// True for an error that the worker's own configuration causes: the worker that began the write of the file had none such.
fn is_own(lease: &Lease<WorkDone>, error: &Error) -> bool {
    let is_begun = matches!(&lease.record.rest, RemainingWork::File(file) if file.stage != Stage::New);
    is_begun && (error.kind() == ErrorKind::Denied || error.kind() == ErrorKind::Changed && error.op() == "resume")
}

/// All ranges of a file, or why it failed: a range's own reason before that one was left out.
fn all_sent(came: Vec<RangeEnd>, key: &Key) -> Result<Vec<RangeResult>, String> {
    let (mut brought, mut failed, mut left_out) = (Vec::new(), None, false);
    for range in came {
        match range {
            RangeEnd::Sent(range) => brought.push(range),
            RangeEnd::Failed(why) => failed = failed.or(Some(why)),
            RangeEnd::LeftOut => left_out = true,
        }
    }
    match failed {
        Some(why) => Err(why),
        None if left_out => Err(format!("{key}: a range of it was left out, as another was said to have failed")),
        None => Ok(brought),
    }
}

impl From<Error> for EarlyEnd {
    /// An error of the job's directory: without it nobody can go on.
    fn from(error: Error) -> EarlyEnd {
        EarlyEnd::Fatal(error, false)
    }
}
