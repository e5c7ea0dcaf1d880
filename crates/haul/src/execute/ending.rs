//! The end of a job: written data is flushed to the device, a full destination is reported, writes that no run will resume are
//! removed from the journal, and the others are counted.

use super::Executor;
use haul_core::{ErrorKind, job::Fsync};

impl Executor {
    /// Ends the job, once all that was begun has ended.
    pub async fn end(&self) {
        self.force_to_device().await;
        self.results.full.say().await;
        self.end_journal().await;
    }

    /// `--fsync end`: what was written is on the device before the job says that it is done.
    async fn force_to_device(&self) {
        if self.job.write.fsync != Fsync::End {
            return;
        }
        for (at, store) in std::iter::once(&self.cx.dst).chain(&self.cx.backup).enumerate() {
            let Some(admin) = store.admin() else { continue };
            match admin.sync().await {
                // No backup was needed, so nobody created the folder for it.
                Err(error) if at > 0 && error.kind() == ErrorKind::DirNotFound => {}
                Err(error) if error.kind() != ErrorKind::Unsupported => self.ledger.error(error),
                _ => {}
            }
        }
    }

    /// Ends the journal. After a run without errors, unfinished writes of earlier runs have no use any more: the
    /// source is deleted, or the destination's file is equal to it.
    async fn end_journal(&self) {
        let Some(journal) = &self.cx.journal else { return };
        if !self.ledger.cut_short() && self.ledger.report().is_ok() {
            for half in journal.take_rest() {
                let key = &half.opened.to;
                match self.mover.discard(key, &half.opened.token).await {
                    Ok(_) => journal.closed(half.write),
                    Err(error) => {
                        self.ledger.notice(Some(key), format!("what an earlier run sent can't be removed: {error}"))
                    }
                }
            }
        }
        let (half_sent, bytes) = journal.half_done();
        {
            let mut report = self.ledger.report();
            (report.half_sent, report.half_sent_bytes) = (half_sent, bytes);
        }
        if let Err(error) = journal.end().await {
            self.ledger.notice(None, format!("The journal could not be brought to its end: {}", error.message()));
        }
    }
}
