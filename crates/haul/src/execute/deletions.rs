//! Carrying out deletions, once the job went well enough to trust them.

use super::{
    dir_work::Dirs,
    distinct_ends,
    moved::{ExistenceQuery, keep_unchanged},
    pending_deletes::{self, DELETE_BATCH, DeletionState, PendingDeletes},
};
use crate::{
    backup::Backup,
    consent::Consent,
    cx::Cx,
    destination_index::Index,
    ledger::Ledger,
    namesakes::has_other_kind,
    omitted::source_has,
    part::MayDelete,
    spool::{PendingDelete, Spool},
};
use futures::{StreamExt, stream};
use haul_core::{
    Entry, Error, ErrorKind, Key, Result, Side,
    event::Event,
    job::{DeleteWhen, Job},
    plan::Step,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// Delete requests in flight at once.
const DELETES_AT_ONCE: usize = 8;
/// Files of one such request that are backed up first, at once; the lane finds out how many requests are under way.
const BACKUPS_AT_ONCE: usize = 64;
/// So long what was listed is believed, where a store deletes whatever has the name by then. A question for a thousand keys costs a request.
const BELIEVED: Duration = Duration::from_secs(60);

/// Deletes at the destination what only it has.
pub(crate) struct Deleter {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    index: Arc<Index>,
    dirs: Arc<Dirs>,
    consent: Consent,
    /// Where deleted files go.
    backup: Backup,
    pending: PendingDeletes,
    /// Files of the destination that are redundant, because `--compare-dest` has them.
    redundant: Mutex<Spool>,
    /// Asked before anything is deleted.
    may_delete: Option<Arc<dyn MayDelete>>,
    /// Attributes are kept, so the directory of a file that can't be deleted may have been opened for it.
    opens_dirs: bool,
    began: Instant,
    /// How long what was listed is believed.
    believed: Duration,
}

impl Deleter {
    /// A deleter that nothing waits for.
    pub fn new(
        job: &Arc<Job>,
        cx: &Cx,
        ledger: &Arc<Ledger>,
        index: &Arc<Index>,
        dirs: &Arc<Dirs>,
        backup: &Backup,
        opens_dirs: bool,
    ) -> Deleter {
        Deleter {
            consent: Consent::new(cx, ledger),
            pending: PendingDeletes::new(&job.deletes),
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            index: index.clone(),
            dirs: dirs.clone(),
            backup: backup.clone(),
            redundant: Mutex::default(),
            may_delete: None,
            opens_dirs,
            began: Instant::now(),
            believed: BELIEVED,
        }
    }

    /// This deleter, which asks before it deletes.
    pub fn asking(self, may_delete: Option<Arc<dyn MayDelete>>) -> Deleter {
        Deleter { may_delete, ..self }
    }

    /// Errors: nothing may be deleted any more, and why.
    pub async fn check_may_delete(&self) -> Result<()> {
        match &self.may_delete {
            Some(may_delete) => may_delete.ask().await,
            None => Ok(()),
        }
    }

    /// False, with the reason among the errors, if nothing may be deleted any more.
    pub async fn may_still_delete(&self) -> bool {
        self.check_may_delete().await.map_err(|error| self.ledger.error(error)).is_ok()
    }

    /// Takes a file to be deleted: it waits until nothing speaks against that.
    pub async fn take(&self, step: Step) {
        self.ledger.decided(&step);
        let Some(dst) = step.dst else { return };
        if let Err(error) = self.pending.push(dst.into()) {
            self.ledger.error(error);
        }
        let during = self.job.deletes.when == DeleteWhen::During;
        if during && self.ledger.source_has_files() && self.pending.fills_a_batch() {
            self.delete_pending().await;
        }
    }

    /// Takes a file that is redundant: it waits for the end.
    pub fn take_redundant(&self, gone: PendingDelete) {
        if let Err(error) = self.redundant().push(gone) {
            self.ledger.error(error);
        }
    }

    fn redundant(&self) -> MutexGuard<'_, Spool> {
        self.redundant.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Deletes the waiting files, if the job went well enough to trust it. Called once at the end, or with
    /// `--delete-during` whenever a batch is full.
    pub async fn delete_pending(&self) {
        let mut spool = self.pending.take();
        let waiting = spool.len();
        if waiting == 0 {
            return;
        }
        if self.ledger.cut_short() {
            // The exit code reports the limit or signal; this only explains why files were kept.
            let files = if waiting == 1 { "file was" } else { "files were" };
            return self.ledger.notice(None, format!("{waiting} {files} not deleted, as the run was cut short"));
        }
        let grounds = DeletionState::of(&self.ledger, self.cx.src.locator());
        if let Some(refused) = self.pending.refusal(waiting, &grounds) {
            return refused.tell(&self.ledger);
        }
        let source = self.ledger.source_files().clone();
        match distinct_ends::source_among(&self.cx, &source, &mut spool).await {
            Ok(None) => self.delete_all(spool, true).await,
            Ok(Some(dir)) => {
                let message = format!("Refused to delete {waiting} files: {dir} is the source, reached in another way");
                self.ledger.error(Error::new(ErrorKind::Invalid, "delete", message));
            }
            Err(error) => self.ledger.error(error),
        }
    }

    /// Deletes these, up to `--max-delete`; `reports`: each one is reported to the sink.
    async fn delete_all(&self, spool: Spool, reports: bool) {
        let batch = self.cx.dst.caps().delete_batch.clamp(1, DELETE_BATCH);
        let mut batches = match spool.into_batches(batch) {
            Ok(batches) => batches,
            Err(error) => return self.ledger.error(error),
        };
        let mut left = self.ledger.may_still_delete(&self.job.deletes);
        let keys = stream::poll_fn(|_| {
            let mut next = batches.next_batch().map_err(|e| self.ledger.error(e)).unwrap_or_default();
            let more = !next.is_empty() && !self.cx.cancel.is_cancelled();
            // The limit may leave nothing of this batch; the files after it must still be counted.
            self.keep_to(&mut left, &mut next);
            std::task::Poll::Ready(more.then_some(next))
        });
        keys.for_each_concurrent(DELETES_AT_ONCE, |keys| self.delete_batch(keys, reports)).await;
    }

    /// Deletes redundant files of the destination if all went well, without reporting them.
    pub async fn delete_redundant(&self) {
        let spool = std::mem::take(&mut *self.redundant());
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

    /// Cuts `next` to the limit. The rest is counted, and makes the job fail in the end.
    pub fn keep_to<T>(&self, left: &mut Option<u64>, next: &mut Vec<T>) {
        let beyond = pending_deletes::cut(left, next);
        if beyond > 0 {
            let mut report = self.ledger.report();
            report.totals.not_deleted += beyond;
            report.stopped.get_or_insert(ErrorKind::Limit);
        }
    }

    async fn delete_batch(&self, batch: Vec<PendingDelete>, reports: bool) {
        if self.backup.is_on() && !self.may_still_delete().await {
            return;
        }
        let mut batch: Vec<PendingDelete> =
            batch.into_iter().filter(|gone| self.consent.to("delete", &gone.key)).collect();
        if reports && self.cx.src.caps().listing_may_omit {
            batch = self.lacking(batch).await;
        }
        let going = self.as_listed(self.not_kept(batch, reports).await).await;
        if going.is_empty() || !self.may_still_delete().await {
            return;
        }
        let request = going.iter().map(|gone| (gone.key.clone(), gone.version.clone())).collect();
        let answers = self.cx.dst.delete(request).await;
        for (gone, answer) in going.into_iter().zip(answers) {
            match answer {
                Ok(()) => self.deleted(gone.key, gone.size, reports),
                Err(error) if self.is_replaced(&gone.key, &error).await => {}
                Err(error) => {
                    if self.opens_dirs {
                        self.dirs.written(&gone.key);
                    }
                    self.ledger.error(error.with_key(&gone.key));
                }
            }
        }
    }

    /// Those that are really missing from the source; reports an error for each of the others. For a source whose listing proves nothing.
    async fn lacking(&self, batch: Vec<PendingDelete>) -> Vec<PendingDelete> {
        let at_once = self.job.pace.checkers.unwrap_or(BACKUPS_AT_ONCE).max(1);
        let lookups = stream::iter(batch).map(|gone| async {
            let there = source_has(&self.cx, &gone.key).await;
            (gone, there)
        });
        let mut lookups = std::pin::pin!(lookups.buffered(at_once));
        let (mut lacking, mut left_out) = (Vec::new(), BTreeMap::<Key, (Key, u64)>::new());
        while let Some((gone, there)) = lookups.next().await {
            match there {
                Ok(false) => lacking.push(gone),
                Ok(true) => left_out.entry(gone.key.parent()).or_insert_with(|| (gone.key, 0)).1 += 1,
                Err(error) => self.ledger.error(error.with_key(&gone.key)),
            }
        }
        // One line for each directory.
        for (first, names) in left_out.into_values() {
            let more =
                if names > 1 { format!(", as well as {} other names beside it", names - 1) } else { String::new() };
            let message = format!("the source has it{more}, though its listing didn't: nothing of it is deleted");
            self.ledger.error(Error::new(ErrorKind::Io, "list", message).with_key(&first));
        }
        lacking
    }

    /// Those that are unchanged since they were listed, if that is long ago and the store doesn't check itself.
    async fn as_listed(&self, going: Vec<PendingDelete>) -> Vec<PendingDelete> {
        if going.is_empty() || self.began.elapsed() < self.believed {
            return going;
        }
        let question = ExistenceQuery { store: &self.cx.dst, ledger: &self.ledger, at_once: self.job.pace.checkers };
        keep_unchanged(question, going, "changed since it was listed: it stays").await
    }

    /// True if the file to delete is missing by now and the source has an entry of another kind under this name: that entry was
    /// written there meanwhile.
    async fn is_replaced(&self, key: &Key, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound) && has_other_kind(&self.cx.src, key).await
    }

    /// Has these kept where backups go, with `--backup-dir` or `--suffix`; gives those that are still to be deleted.
    async fn not_kept(&self, batch: Vec<PendingDelete>, reports: bool) -> Vec<PendingDelete> {
        // On this machine a rename takes less time than another thread.
        let at_once = if self.cx.dst.caps().files { 1 } else { BACKUPS_AT_ONCE };
        let mut answers = stream::iter(batch).map(|gone| self.keep(gone)).buffered(at_once);
        let mut going = Vec::new();
        while let Some((gone, answer)) = answers.next().await {
            match answer {
                Ok(true) => self.deleted(gone.key, gone.size, reports),
                Ok(false) => going.push(gone),
                Err(error) if self.is_replaced(&gone.key, &error).await => {}
                Err(error) => self.ledger.error(error),
            }
        }
        going
    }

    /// Has a file kept if it is to be: true if that took it away.
    async fn keep(&self, gone: PendingDelete) -> (PendingDelete, Result<bool>) {
        self.index.will_write(&self.cx.dst, &gone.key, &self.backup).await;
        if !self.backup.keeps(&gone.key) {
            return (gone, Ok(false));
        }
        let listed = Entry { version: gone.version.clone(), ..Entry::with_bytes(gone.key.clone(), gone.size) };
        let kept = self.backup.keep(&self.cx, &listed).await;
        (gone, kept)
    }

    fn deleted(&self, key: Key, size: u64, reports: bool) {
        self.ledger.report().totals.deletes += 1;
        self.dirs.written(&key);
        self.index.is_absent(&key);
        if reports {
            self.ledger.tell(Event::Deleted { side: Side::Dst, key, size });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::future::BoxFuture;
    use haul_core::{event::Sink, plan};
    use haul_mem::MemStore;
    use haul_store::{LateFacts, Payload, Store, WriteSpec};

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Sink for Heard {
        fn emit(&self, event: &Event) {
            let Event::Deleted { key, .. } = event else { return };
            self.0.lock().unwrap().push(key.to_string());
        }
    }

    struct Nothing;

    impl MayDelete for Nothing {
        fn ask(&self) -> BoxFuture<'_, Result<()>> {
            Box::pin(async { Err(Error::new(ErrorKind::Cancelled, "delete", "another has taken over")) })
        }
    }

    /// A deleter at a destination that has these.
    async fn deleter(keys: &[&str]) -> (Deleter, Arc<Heard>) {
        let store = || Arc::new(MemStore::new()) as Arc<dyn Store>;
        let (heard, dst) = (Arc::<Heard>::default(), store());
        for key in keys {
            let upload = dst.write(&Key::new(*key), WriteSpec::default()).await.unwrap();
            let part = upload.part(0, 0, Payload::from(Bytes::from("x"))).await.unwrap();
            upload.publish(vec![part], LateFacts::default()).await.unwrap();
        }
        let cx = Cx { sink: heard.clone(), ..Cx::between(store(), dst) };
        let ledger = Arc::new(Ledger::new(cx.sink.clone(), cx.cancel.clone(), cx.filter.clone(), false));
        ledger.count_source_files(1);
        let (job, backup) = (Arc::<Job>::default(), Backup::default());
        (Deleter::new(&job, &cx, &ledger, &Arc::default(), &Arc::default(), &backup, false), heard)
    }

    async fn listed(deleter: &Deleter, key: &str) -> Option<Entry> {
        deleter.cx.dst.stat(&Key::new(key)).await.ok()
    }

    async fn take(deleter: &Deleter, key: &str) {
        deleter.take(plan::extra(listed(deleter, key).await.unwrap(), true)).await;
    }

    #[tokio::test]
    async fn a_source_that_may_leave_names_out_is_asked_for_each() {
        let (mut deleter, heard) = deleter(&["a", "b", "C"]).await;
        let src = MemStore::new().with_caps(|caps| caps.listing_may_omit = true);
        // One exists though no listing showed it; one is another file in other letters.
        for key in ["a", "c"] {
            let upload = src.write(&Key::new(key), WriteSpec::default()).await.unwrap();
            let part = upload.part(0, 0, Payload::from(Bytes::from("x"))).await.unwrap();
            upload.publish(vec![part], LateFacts::default()).await.unwrap();
        }
        deleter.cx.src = Arc::new(src);
        for key in ["C", "a", "b"] {
            take(&deleter, key).await;
        }
        deleter.delete_pending().await;
        assert_eq!(*heard.0.lock().unwrap(), ["C", "b"]);
        assert_eq!(deleter.ledger.report().error_count, 1);
        assert!(listed(&deleter, "a").await.is_some());
    }

    #[tokio::test]
    async fn what_is_taken_goes_when_it_is_told_to_and_not_after_an_error() {
        let (deleter, heard) = deleter(&["a", "b"]).await;
        take(&deleter, "a").await;
        assert!(listed(&deleter, "a").await.is_some());
        deleter.delete_pending().await;
        assert!(listed(&deleter, "a").await.is_none());
        take(&deleter, "b").await;
        deleter.ledger.error(Error::new(ErrorKind::Io, "read", "a bad disk"));
        deleter.delete_pending().await;
        assert!(listed(&deleter, "b").await.is_some());
        assert_eq!((&heard.0.lock().unwrap()[..], deleter.ledger.report().totals.deletes), (&["a".into()][..], 1));
    }

    #[tokio::test]
    async fn what_was_listed_long_ago_goes_only_if_it_is_the_same() {
        let (mut deleter, heard) = deleter(&["a", "b"]).await;
        deleter.believed = Duration::ZERO;
        let dst = MemStore::new().with_caps(|caps| caps.deletes_version = false);
        deleter.cx.dst = Arc::new(dst);
        let put = async |key: &'static str| {
            let upload = deleter.cx.dst.write(&Key::new(key), WriteSpec::default()).await.unwrap();
            let part = upload.part(0, 0, Payload::from(Bytes::from(key))).await.unwrap();
            upload.publish(vec![part], LateFacts::default()).await.unwrap();
        };
        for key in ["a", "b"] {
            put(key).await;
            take(&deleter, key).await;
        }
        put("a").await;
        deleter.delete_pending().await;
        assert!(listed(&deleter, "a").await.is_some(), "somebody has written it since");
        assert!(listed(&deleter, "b").await.is_none());
        assert_eq!((&heard.0.lock().unwrap()[..], deleter.ledger.report().error_count), (&["b".into()][..], 1));
    }

    #[tokio::test]
    async fn nothing_goes_once_nothing_may_be_deleted_any_more() {
        let (deleter, _) = deleter(&["a"]).await;
        let deleter = deleter.asking(Some(Arc::new(Nothing)));
        take(&deleter, "a").await;
        deleter.delete_pending().await;
        assert!(listed(&deleter, "a").await.is_some());
        assert_eq!(deleter.ledger.report().error_count, 1);
    }

    #[tokio::test]
    async fn redundant_copies_are_deleted_silently_and_stay_after_an_error() {
        let (deleter, heard) = deleter(&["a", "b"]).await;
        deleter.take_redundant(listed(&deleter, "a").await.unwrap().into());
        deleter.delete_redundant().await;
        assert!(listed(&deleter, "a").await.is_none() && heard.0.lock().unwrap().is_empty());
        deleter.take_redundant(listed(&deleter, "b").await.unwrap().into());
        deleter.ledger.error(Error::new(ErrorKind::Io, "read", "a bad disk"));
        deleter.delete_redundant().await;
        assert!(listed(&deleter, "b").await.is_some());
    }
}
