//! A job from start to end: a planner decides, an executor carries out, and only then files are deleted; a dry run only reports. Reads like
//! the life of an entry in ARCHITECTURE.md.

use crate::{
    Cx, Report,
    attributes::Attributes,
    backup::Backup,
    budget::Budget,
    destination_index::Index,
    dry_run::DryRun,
    execute::Executor,
    ledger::Ledger,
    overlap,
    part::{PartReport, RunControl, RunPosition},
    plan::{Planner, StepSink, WalkPurpose, WalkResult},
    transfer::{Allowance, Mover},
};
use futures::future::LocalBoxFuture;
use haul_core::{
    Error, ErrorKind, Key, Retry,
    job::{Cutoff, DeleteWhen, Job, Lookup, Verb},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// Runs a job between two folders (or buckets) to its end; returns when every task that it started has stopped.
///
/// Errors are in the report: one file's error never stops the others, but any error keeps a sync from deleting.
pub fn run(job: Job, cx: Cx) -> LocalBoxFuture<'static, Report> {
    Box::pin(async move { Run::new(job, cx, None).complete(Task::Whole).await })
}

/// Runs a job over the part of its keys that [`haul_core::job::Listing::part`] says, to its end or to where `reins` pause it. Runs
/// over ranges that touch do together what one run does, but for what needs all of the source: renames and further names of files
/// are looked for within a part only, and directories through which a cut goes are finished by a run over
/// [`haul_core::part::Part::Dirs`], after all others.
pub fn run_part(job: Job, cx: Cx, reins: RunControl) -> LocalBoxFuture<'static, PartReport> {
    Box::pin(async move {
        let report = Run::new(job, cx, Some(reins.clone())).complete(Task::Whole).await;
        let (reached, large) = (reins.take(), reins.take_large());
        let cut = report.stopped.is_some() || report.time_limit || report.transfer_limit;
        PartReport { report, reached: if cut { RunPosition::Unknown } else { reached }, large }
    })
}

/// Brings over one file under a name of its own (`copyto`, `moveto`, `copy FILE DIR`).
pub fn run_one<'a>(job: Job, cx: Cx, from: &'a Key, to: &'a Key) -> LocalBoxFuture<'a, Report> {
    Box::pin(async move { Run::new(job, cx, None).complete(Task::One { from, to }).await })
}

/// Longest wait of a stopped job for disk threads to remove their temporary files.
const AT_REST_WITHIN: Duration = Duration::from_secs(2);

/// The subject of a run.
#[derive(Clone, Copy)]
enum Task<'a> {
    /// All keys of both sides.
    Whole,
    /// One file, under a name of its own.
    One { from: &'a Key, to: &'a Key },
}

/// A job under way.
struct Run {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    attributes: Arc<Attributes>,
    index: Arc<Index>,
    planner: Arc<Planner>,
    budget: Budget,
    reins: Option<RunControl>,
    time_limit: JoinHandle<()>,
}

impl Run {
    fn new(mut job: Job, cx: Cx, reins: Option<RunControl>) -> Run {
        let attributes = Arc::new(Attributes::new(&mut job, &cx));
        let ledger = Ledger::new(cx.sink.clone(), cx.cancel.clone(), cx.filter.clone(), job.dry_run);
        // Parts of a job run beside each other.
        let ledger = if reins.is_some() { ledger.beside_others() } else { ledger };
        let (job, ledger, index) = (Arc::new(job), Arc::new(ledger), Arc::<Index>::default());
        let wants_metadata = job.attributes.metadata || !job.attributes.metadata_set.is_empty();
        if wants_metadata && !cx.dst.caps().meta && cx.dst.caps().attributes.is_none() {
            ledger.notice(None, format!("{} keeps no metadata of files: it isn't copied", cx.dst.locator()));
        }
        let budget = Budget::new(&job, &*cx.src, &*cx.dst);
        let planner = Planner::new((&job, &cx, &ledger), &attributes, &index, budget.checkers, reins.clone());
        let planner = Arc::new(planner);
        let time_limit = watch_time_limit(&job, &ledger, &cx);
        Run { job, cx, ledger, attributes, index, planner, budget, reins, time_limit }
    }

    /// Runs to the end, carried out or reported.
    async fn complete(self, task: Task<'_>) -> Report {
        match self.job.dry_run {
            true => self.tell(task).await,
            false => self.execute(task).await,
        }
        self.index.end().await;
        let compared = matches!(task, Task::Whole) && self.ledger.source_is_complete() && self.ledger.report().is_ok();
        if self.planner.listings.keep_paths(compared && !self.cx.cancel.is_cancelled()).await {
            let message = format!(
                "{} seems to have been set back to an earlier state (a snapshot or an image), so that files may be taken for unchanged \
                 that aren't: run this again, which compares all of them with what the destination keeps",
                self.cx.src.locator()
            );
            self.ledger.error(Error::new(ErrorKind::Changed, "compare", message).with_retry(Retry::Backoff));
        }
        self.attributes.report_unpreserved(&self.ledger);
        self.ledger.close()
    }

    /// False when the task must not be begun or there is nothing to do, which is reported.
    fn may_begin(&self, task: Task<'_>) -> bool {
        if self.job.verb != Verb::Sync && self.is_one_place(task) {
            let place = self.cx.src.locator();
            self.ledger.notice(None, format!("Nothing to do: source and destination are the same: {place}"));
            return false;
        }
        let parts = if let Task::Whole = task { overlap::check(&self.cx, self.job.verb) } else { Ok(()) };
        let checked = parts.and_then(|()| overlap::check_backup(&self.cx, &self.job));
        checked.map_err(|error| self.ledger.error(error)).is_ok()
    }

    fn is_one_place(&self, task: Task<'_>) -> bool {
        match task {
            Task::Whole => overlap::is_one_place(&self.cx),
            Task::One { from, to } => match (&self.cx.src.caps().domain, &self.cx.dst.caps().domain) {
                (Some(a), Some(b)) => a == b && from == to,
                _ => false,
            },
        }
    }

    /// Tells what [`Run::execute`] would do, in one walk.
    async fn tell(&self, task: Task<'_>) {
        if self.may_begin(task) {
            let dry_run = Arc::new(DryRun::new((&self.job, &self.cx, &self.ledger), &self.attributes, &self.planner));
            match task {
                Task::Whole => self.tell_whole(&dry_run).await,
                Task::One { from, to } => self.one(from, to, &dry_run).await,
            }
        }
        self.rest().await;
    }

    async fn tell_whole(&self, dry_run: &Arc<DryRun>) {
        self.see_root(dry_run).await;
        if self.job.deletes.alone {
            if self.is_anything_there().await {
                self.pass(WalkPurpose::DeletesOnly, dry_run).await;
                dry_run.tell_refused();
                dry_run.tell_extra_dirs().await;
            }
            return;
        }
        self.index.open(&self.cx, self.planner.listings.uses_of_index()).await;
        self.pass(WalkPurpose::Transfers, dry_run).await;
        dry_run.settle_links().await;
        if self.deletes() {
            dry_run.tell_refused();
            dry_run.tell_extra_dirs().await;
        }
    }

    /// Does the task.
    async fn execute(&self, task: Task<'_>) {
        let executor = Arc::new(self.executor());
        match task {
            _ if !self.may_begin(task) => {}
            Task::Whole => self.execute_whole(&executor).await,
            Task::One { from, to } => {
                self.one(from, to, &executor).await;
                executor.clear_stages().await;
                executor.delete_moved().await;
                executor.deleter.delete_redundant().await;
            }
        }
        self.rest().await;
        executor.end().await;
    }

    async fn execute_whole(&self, executor: &Arc<Executor>) {
        let deletes = self.deletes();
        let deletes_first = deletes && self.job.deletes.when == DeleteWhen::Before;
        // Directory attributes changed by deletions are reported with the other differences.
        let later = deletes_first && self.job.tell.details && self.cx.dst.stat(&Key::new("")).await.is_ok();
        if !later || self.job.deletes.alone {
            self.see_root(executor).await;
        }
        if self.job.deletes.alone {
            return self.delete_alone(executor).await;
        }
        if let Err(error) = executor.directories.prepare_root().await {
            return self.ledger.error(error);
        }
        self.index.open(&self.cx, self.planner.listings.uses_of_index()).await;
        if deletes_first {
            executor.walked(self.pass(WalkPurpose::DeletesOnly, executor).await);
            executor.deleter.delete_pending().await;
            if later {
                executor.directories.delete_extra().await;
                self.see_root(executor).await;
            }
            let goes_on = self.job.deletes.ignore_errors || self.job.deletes.errors_spare_transfers;
            if self.ledger.decides_no_more() || (self.ledger.report().error_count > 0 && !goes_on) {
                return;
            }
        }
        executor.walked(self.pass(WalkPurpose::Transfers, executor).await);
        executor.settle_links().await;
        executor.clear_stages().await;
        executor.delete_moved().await;
        if deletes && self.job.deletes.when != DeleteWhen::Before {
            executor.deleter.delete_pending().await;
        }
        executor.deleter.delete_redundant().await;
        // Deletions that failed before are not tried again.
        executor.directories.finish(deletes && !later).await;
    }

    /// A job that only deletes.
    async fn delete_alone(&self, executor: &Arc<Executor>) {
        if !self.is_anything_there().await {
            return;
        }
        executor.walked(self.pass(WalkPurpose::DeletesOnly, executor).await);
        executor.deleter.delete_pending().await;
        executor.directories.finish(true).await;
    }

    fn executor(&self) -> Executor {
        let limit_ledger = self.ledger.clone();
        let stop: Arc<dyn Fn() + Send + Sync> = Arc::new(move || limit_ledger.transfer_limit());
        let hard = self.job.limits.cutoff == Cutoff::Hard;
        let mover = Mover {
            cx: self.cx.clone(),
            job: self.job.clone(),
            budget: self.budget.clone(),
            keep: self.attributes.keep.clone(),
            backup: Backup::new(&self.job, &self.cx, self.attributes.keep.as_deref()),
            allowance: self.job.limits.transfer.filter(|_| hard).map(|limit| Arc::new(Allowance::new(limit, stop))),
        };
        let reins = self.reins.clone();
        Executor::new(&self.ledger, &self.attributes, &self.index, &self.planner, mover, reins)
    }

    /// True if files that only the destination has are to be deleted, and are known.
    fn deletes(&self) -> bool {
        let looks = self.job.listing.lookup != Lookup::Never && !self.job.listing.no_traverse;
        self.job.verb == Verb::Sync && looks
    }

    /// False where there is no destination, so that nothing can be deleted.
    async fn is_anything_there(&self) -> bool {
        !self.cx.dst.stat(&Key::new("")).await.is_err_and(|error| error.kind() == ErrorKind::DirNotFound)
    }

    /// Takes the job's root along, where it is part of the transfer.
    async fn see_root(&self, taker: &Arc<impl StepSink>) {
        let (out, working) = taker.start_working();
        self.planner.directories.root(&out).await;
        drop(out);
        taker.finish_working(working).await;
    }

    /// One walk over both sides, whose steps are taken as they come.
    async fn pass(&self, pass: WalkPurpose, taker: &Arc<impl StepSink>) -> WalkResult {
        let (out, working) = taker.start_working();
        let walked = self.planner.walk(pass, &out).await;
        self.ledger.source_ended(walked.src_complete);
        self.planner.settle_renames(&out).await;
        drop(out);
        taker.finish_working(working).await;
        walked
    }

    /// One file under a name of its own.
    async fn one(&self, from: &Key, to: &Key, taker: &Arc<impl StepSink>) {
        self.index.open(&self.cx, self.planner.listings.uses_of_index()).await;
        let (out, working) = taker.start_working();
        if let Err(error) = self.planner.one(from, to, &out).await {
            self.ledger.error(error);
        }
        drop(out);
        taker.finish_working(working).await;
    }

    /// The work has ended; what was stopped is given time to remove what it began.
    async fn rest(&self) {
        self.time_limit.abort();
        if self.cx.cancel.is_cancelled() {
            haul_store::disk::at_rest(AT_REST_WITHIN).await;
        }
    }
}

/// Ends the job when its time is over.
fn watch_time_limit(job: &Job, ledger: &Arc<Ledger>, cx: &Cx) -> JoinHandle<()> {
    let deadline = job.limits.duration.map(|limit| Instant::now() + limit);
    let (ledger, cancel, hard) = (ledger.clone(), cx.cancel.clone(), job.limits.cutoff == Cutoff::Hard);
    tokio::spawn(async move {
        let Some(deadline) = deadline else { return };
        tokio::time::sleep_until(deadline.into()).await;
        ledger.report().time_limit = true;
        ledger.wind_down();
        if hard {
            cancel.cancel();
        }
    })
}
