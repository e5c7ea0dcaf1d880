//! Deletions whose grounds are proved: what is doomed waits until the job went well enough to trust it.

use super::Executor;
use crate::spool::{Gone, Spool};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key, Result, Side,
    event::Event,
    job::{BeyondMax, DeleteWhen, Job},
};
use std::sync::{Mutex, MutexGuard};

/// Delete requests in flight at once.
const DELETES_AT_ONCE: usize = 8;

/// Most keys in one delete request, whatever the store would take.
pub(super) const DELETE_BATCH: usize = 1000;

/// Files at the destination that are to be deleted, and whether they may be.
pub struct Doomed {
    state: Mutex<State>,
    max: Option<u64>,
    max_size: Option<u64>,
}

#[derive(Default)]
struct State {
    spool: Spool,
    count: u64,
    bytes: u64,
}

impl Doomed {
    /// Nothing yet.
    pub fn new(job: &Job) -> Self {
        Doomed { state: Mutex::default(), max: job.deletes.max, max_size: job.deletes.max_size }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One more file to delete.
    pub fn push(&self, gone: Gone) -> Result<()> {
        let mut state = self.state();
        state.count += 1;
        state.bytes += gone.size;
        state.spool.push(gone)
    }

    /// True when a delete request's worth is waiting.
    pub fn full(&self) -> bool {
        self.state().spool.len() >= DELETE_BATCH as u64
    }
}

/// Files at the destination that it need not have, as `--compare-dest` has them.
#[derive(Default)]
pub struct Spare(Mutex<Spool>);

impl Spare {
    fn spool(&self) -> MutexGuard<'_, Spool> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One more.
    ///
    /// Errors: those of writing a temporary file.
    pub fn push(&self, gone: Gone) -> Result<()> {
        self.spool().push(gone)
    }
}

impl Executor {
    /// Deletes what is doomed, if the job went well enough to trust it. Called once at the end, or with
    /// `--delete-during` whenever a batch is full.
    pub async fn delete_doomed(&self) {
        let spool = {
            let mut state = self.doomed.state();
            if state.spool.is_empty() {
                return;
            }
            std::mem::take(&mut state.spool)
        };
        let waiting = spool.len();
        if self.ledger.cut_short() {
            // The limit or the signal is what the exit code tells; this only explains what stayed.
            return self.ledger.notice(None, format!("{waiting} files were not deleted, as the run was cut short"));
        }
        if let Some(error) = self.why_not_delete(waiting) {
            return self.ledger.error(error);
        }
        self.delete_all(spool, true).await;
    }

    /// Deletes these, as far as `--max-delete` lets; `told`: the sink is told of each.
    async fn delete_all(&self, spool: Spool, told: bool) {
        let batch = self.cx.dst.caps().delete_batch.clamp(1, DELETE_BATCH);
        let mut batches = match spool.into_batches(batch) {
            Ok(batches) => batches,
            Err(error) => return self.ledger.error(error),
        };
        let mut left = self.ledger.may_still_delete(&self.job.deletes);
        let keys = futures::stream::poll_fn(|_| {
            let mut next = batches.next_batch().map_err(|e| self.ledger.error(e)).unwrap_or_default();
            let more = !next.is_empty() && !self.cx.cancel.is_cancelled();
            // What the limit leaves of it may be nothing; what comes after it is still to be counted.
            self.keep_to(&mut left, &mut next);
            std::task::Poll::Ready(more.then_some(next))
        });
        keys.for_each_concurrent(DELETES_AT_ONCE, |keys| self.delete_batch(keys, told)).await;
    }

    /// Deletes what the destination need not have, if all went well: nothing is reported of it.
    pub async fn delete_spare(&self) {
        let spool = std::mem::take(&mut *self.spare.spool());
        let failed = self.ledger.report().error_count > 0 && !self.job.deletes.ignore_errors;
        if spool.is_empty() || self.ledger.cut_short() {
            return;
        }
        if failed {
            let waiting = spool.len();
            return self
                .ledger
                .notice(None, format!("{waiting} files that --compare-dest has were not deleted: there were errors"));
        }
        self.delete_all(spool, false).await;
    }

    /// The reason not to delete, if there is one: an error anywhere, a source that holds nothing, a limit.
    fn why_not_delete(&self, waiting: u64) -> Option<Error> {
        let during = self.job.deletes.when == DeleteWhen::During;
        let (count, bytes, empty) = {
            let state = self.doomed.state();
            (state.count, state.bytes, !self.ledger.source_has_files() && (!during || self.ledger.source_is_complete()))
        };
        let errors = self.ledger.report().error_count;
        if errors > 0 && !self.job.deletes.ignore_errors {
            let message =
                format!("Refused to delete {waiting} files: there were errors (--ignore-errors deletes all the same)");
            return Some(Error::new(ErrorKind::Limit, "delete", message));
        }
        if empty && !self.job.deletes.allow_empty_source {
            let message = format!(
                "Refused to delete {waiting} files: source {} is empty (--allow-empty-source if that is intended)",
                self.cx.src.locator()
            );
            return Some(self.fatal(message));
        }
        if let Some(max) =
            self.doomed.max.filter(|max| count > *max && self.job.deletes.beyond_max == BeyondMax::KeepAll)
        {
            return Some(
                self.fatal(format!("Refused to delete {waiting} files: that is more than --max-delete {max}")),
            );
        }
        if let Some(max) = self.doomed.max_size.filter(|max| bytes > *max) {
            return Some(
                self.fatal(format!(
                    "Refused to delete {waiting} files: that is more than --max-delete-size {max} bytes"
                )),
            );
        }
        None
    }

    fn fatal(&self, message: String) -> Error {
        self.ledger.report().stopped.get_or_insert(ErrorKind::Limit);
        Error::new(ErrorKind::Limit, "delete", message)
    }

    /// Cuts `next` to what is allowed; what is beyond it is counted, and stops the job in the end.
    pub(super) fn keep_to<T>(&self, left: &mut Option<u64>, next: &mut Vec<T>) {
        let Some(left) = left else { return };
        let allowed = usize::try_from(*left).unwrap_or(usize::MAX).min(next.len());
        *left -= allowed as u64;
        let beyond = next.split_off(allowed).len() as u64;
        if beyond > 0 {
            let mut report = self.ledger.report();
            report.totals.not_deleted += beyond;
            report.stopped.get_or_insert(ErrorKind::Limit);
        }
    }

    async fn delete_batch(&self, batch: Vec<Gone>, told: bool) {
        let mut going = Vec::with_capacity(batch.len());
        for gone in batch {
            if !self.confirm("delete", &gone.key) {
                continue;
            }
            if self.backup().is_on() {
                self.will_write(&gone.key).await;
            }
            if !self.backup_before_delete(&gone, told).await {
                going.push(gone);
            }
        }
        for gone in &going {
            self.will_write(&gone.key).await;
        }
        let request = going.iter().map(|gone| (gone.key.clone(), gone.version.clone())).collect();
        let answers = self.cx.dst.delete(request).await;
        for (gone, answer) in going.into_iter().zip(answers) {
            match answer {
                Ok(()) => self.deleted(gone.key, gone.size, told),
                Err(error) => {
                    if self.attributes.keep.is_some() {
                        // Its directory may have been opened for it.
                        self.dirs.written(&gone.key);
                    }
                    self.ledger.error(error.with_key(&gone.key));
                }
            }
        }
    }

    /// With `--backup-dir` or `--suffix` a deleted file is moved away instead; true when that is all there was to do.
    async fn backup_before_delete(&self, gone: &Gone, told: bool) -> bool {
        let backup = self.backup();
        if !backup.keeps(&gone.key) {
            return false;
        }
        let listed = Entry { version: gone.version.clone(), ..Entry::with_bytes(gone.key.clone(), gone.size) };
        match backup.keep(&self.cx, &listed).await {
            Ok(()) => self.deleted(gone.key.clone(), gone.size, told),
            Err(error) => self.ledger.error(error),
        }
        true
    }

    fn deleted(&self, key: Key, size: u64, told: bool) {
        self.ledger.report().totals.deletes += 1;
        self.dirs.written(&key);
        self.index.is_absent(&key);
        if told {
            self.ledger.tell(Event::Deleted { side: Side::Dst, key, size });
        }
    }
}
