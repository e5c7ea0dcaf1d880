//! Carrying out deletions, once the job went well enough to trust them.

use super::{
    Executor,
    pending::{self, DELETE_BATCH, Grounds, Refused},
};
use crate::spool::{Gone, Spool};
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Key, Result, Side, event::Event};
use std::sync::{Mutex, MutexGuard};

/// Delete requests in flight at once.
const DELETES_AT_ONCE: usize = 8;

/// Files of the destination that are redundant, because `--compare-dest` has them.
#[derive(Default)]
pub struct Redundant(Mutex<Spool>);

impl Redundant {
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
    /// Deletes what waits to be deleted, if the job went well enough to trust it. Called once at the end, or with
    /// `--delete-during` whenever a batch is full.
    pub async fn delete_pending(&self) {
        let spool = self.pending.take();
        let waiting = spool.len();
        if waiting == 0 {
            return;
        }
        if self.ledger.cut_short() {
            // The exit code tells of the limit or signal; this only explains why files were kept.
            return self.ledger.notice(None, format!("{waiting} files were not deleted, as the run was cut short"));
        }
        let grounds = Grounds {
            errors: self.ledger.report().error_count,
            source_has_files: self.ledger.source_has_files(),
            source_is_complete: self.ledger.source_is_complete(),
            source: self.cx.src.locator(),
        };
        if let Some(Refused { message, ends_job }) = self.pending.refusal(waiting, &grounds) {
            if ends_job {
                self.ledger.report().stopped.get_or_insert(ErrorKind::Limit);
            }
            return self.ledger.error(Error::new(ErrorKind::Limit, "delete", message));
        }
        self.delete_all(spool, true).await;
    }

    /// Deletes these, up to `--max-delete`; `told`: each one is reported to the sink.
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
            // The limit may leave nothing of this batch; the files after it must still be counted.
            self.keep_to(&mut left, &mut next);
            std::task::Poll::Ready(more.then_some(next))
        });
        keys.for_each_concurrent(DELETES_AT_ONCE, |keys| self.delete_batch(keys, told)).await;
    }

    /// Deletes redundant files of the destination if all went well, without reporting them.
    pub async fn delete_redundant(&self) {
        let spool = std::mem::take(&mut *self.redundant.spool());
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

    /// Cuts `next` to what is allowed. The rest is counted, and makes the job fail in the end.
    pub(super) fn keep_to<T>(&self, left: &mut Option<u64>, next: &mut Vec<T>) {
        let beyond = pending::cut(left, next);
        if beyond > 0 {
            let mut report = self.ledger.report();
            report.totals.not_deleted += beyond;
            report.stopped.get_or_insert(ErrorKind::Limit);
        }
    }

    async fn delete_batch(&self, batch: Vec<Gone>, told: bool) {
        if self.backup().is_on() && !self.may_still_delete().await {
            return;
        }
        let mut going = Vec::with_capacity(batch.len());
        for gone in batch {
            if !self.consent.to("delete", &gone.key) {
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
        if going.is_empty() || !self.may_still_delete().await {
            return;
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

    /// Moves the file to the backups instead of deleting it, with `--backup-dir` or `--suffix`. True if that was done.
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
