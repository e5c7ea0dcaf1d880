//! A job from start to end: a planner decides, an executor does, and only then is deleted. Reads like the life of an entry in
//! ARCHITECTURE.md.

use crate::{
    Cx, Report,
    attributes::Attributes,
    backup::Backup,
    budget::Budget,
    execute::{Done, Executor},
    known::Index,
    ledger::Ledger,
    overlap,
    part::{PartReport, Reached, Reins},
    plan::{Pass, Planner},
    transfer::{Allowance, Mover},
};
use futures::future::LocalBoxFuture;
use haul_core::{
    Error, ErrorKind, Key, Result,
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
    Box::pin(async move {
        let run = Run::new(job, cx);
        let clock = run.watch_time_limit();
        run.whole().await;
        run.end(clock).await
    })
}

/// Runs a job over the part of its keys that [`haul_core::job::Listing::part`] says, to its end or to where `reins` pause it. Runs
/// over ranges that touch do together what one run does, but for what needs all of the source: renames and further names of files
/// are looked for within a part only, and directories through which a cut goes are finished by a run over
/// [`haul_core::part::Part::Dirs`], after all others.
pub fn run_part(job: Job, cx: Cx, reins: Reins) -> LocalBoxFuture<'static, PartReport> {
    Box::pin(async move {
        let run = Run::held(job, cx, Some(reins.clone()));
        let clock = run.watch_time_limit();
        run.whole().await;
        let report = run.end(clock).await;
        let cut = report.stopped.is_some() || report.time_limit || report.transfer_limit;
        let reached = reins.take();
        PartReport { report, reached: if cut { Reached::Unknown } else { reached } }
    })
}

/// Brings over one file under a name of its own (`copyto`, `moveto`, `copy FILE DIR`).
pub fn run_one<'a>(job: Job, cx: Cx, from: &'a Key, to: &'a Key) -> LocalBoxFuture<'a, Report> {
    Box::pin(async move {
        let run = Run::new(job, cx);
        let clock = run.watch_time_limit();
        run.one(from, to).await;
        run.end(clock).await
    })
}

/// What a stopped job waits at most for disk threads to remove what they began.
const AT_REST_WITHIN: Duration = Duration::from_secs(2);

/// A job under way.
struct Run {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    index: Arc<Index>,
    planner: Arc<Planner>,
    executor: Arc<Executor>,
}

impl Run {
    fn new(job: Job, cx: Cx) -> Run {
        Run::held(job, cx, None)
    }

    fn held(mut job: Job, cx: Cx, reins: Option<Reins>) -> Run {
        let attributes = Arc::new(Attributes::new(&mut job, &cx));
        let (job, ledger, index) = (
            Arc::new(job),
            Arc::new(Ledger::new(cx.sink.clone(), cx.cancel.clone(), cx.filter.clone())),
            Arc::<Index>::default(),
        );
        let wants_metadata = job.attributes.metadata || !job.attributes.metadata_set.is_empty();
        if wants_metadata && !cx.dst.caps().meta && cx.dst.caps().attributes.is_none() {
            ledger.notice(None, format!("{} keeps no metadata of files: it isn't copied", cx.dst.locator()));
        }
        let budget = Budget::new(&job, &*cx.src, &*cx.dst);
        let planner = Planner::new(&job, &cx, &ledger, &attributes, &index, &budget);
        let may_delete = reins.as_ref().and_then(|reins| reins.may_delete.clone());
        let planner = Arc::new(match reins {
            Some(reins) => planner.reined(reins),
            None => planner,
        });
        let told = ledger.clone();
        let stop: Arc<dyn Fn() + Send + Sync> = Arc::new(move || told.transfer_limit());
        let hard = job.limits.cutoff == Cutoff::Hard;
        let mover = Mover {
            cx: cx.clone(),
            job: job.clone(),
            budget,
            keep: attributes.keep.clone(),
            backup: Backup::new(&job, &cx, attributes.keep.as_deref()),
            allowance: job.limits.transfer.filter(|_| hard).map(|limit| Arc::new(Allowance::new(limit, stop))),
        };
        let executor = Executor::new(&job, &cx, &ledger, &attributes, &index, &planner, mover).asking(may_delete);
        Run { job, cx, ledger, index, planner, executor: Arc::new(executor) }
    }

    fn watch_time_limit(&self) -> JoinHandle<()> {
        let deadline = self.job.limits.duration.map(|limit| Instant::now() + limit);
        let (ledger, cancel, hard) =
            (self.ledger.clone(), self.cx.cancel.clone(), self.job.limits.cutoff == Cutoff::Hard);
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

    async fn whole(&self) {
        if let Err(error) = overlap::check(&self.cx, self.job.verb).and_then(|()| self.check_backup()) {
            return self.ledger.error(error);
        }
        let looks = self.job.listing.lookup != Lookup::Never && !self.job.listing.no_traverse;
        let deletes = self.job.verb == Verb::Sync && looks;
        // A dry run tells of all in one walk.
        let deletes_first = deletes && self.job.deletes.when == DeleteWhen::Before && !self.job.dry_run;
        // What deletions change of directories is told with what else differs.
        let later = deletes_first && self.job.tell.details && self.cx.dst.stat(&Key::new("")).await.is_ok();
        if !later || self.job.deletes.alone {
            self.see_root().await;
        }
        if self.job.deletes.alone {
            return self.delete_alone().await;
        }
        if let Err(error) = self.executor.prepare_root().await {
            return self.ledger.error(error);
        }
        self.index.open(&self.cx, self.planner.uses_of_index()).await;
        if deletes_first {
            self.pass(Pass::DeletesOnly).await;
            self.executor.delete_pending().await;
            if later {
                self.executor.delete_extra_dirs().await;
                self.see_root().await;
            }
            let goes_on = self.job.deletes.ignore_errors || self.job.deletes.errors_spare_transfers;
            if self.ledger.stopping() || (self.ledger.report().error_count > 0 && !goes_on) {
                return;
            }
        }
        self.pass(Pass::Transfers).await;
        self.executor.clear_stages().await;
        self.executor.delete_moved_sources(true).await;
        if deletes && self.job.deletes.when != DeleteWhen::Before {
            self.executor.delete_pending().await;
        }
        self.executor.delete_redundant().await;
        // What the deletions before left is not tried again.
        self.executor.finish_dirs(deletes && !later).await;
    }

    fn check_backup(&self) -> Result<()> {
        overlap::check_backup(&self.cx, &self.job)
    }

    /// Takes the job's root along, where it is part of the transfer.
    async fn see_root(&self) {
        let (orders, working) = self.executor.clone().start_working(false);
        let out = Done { executor: self.executor.clone(), orders };
        self.planner.see_root(&out).await;
        drop(out);
        self.executor.finish_working(working).await;
    }

    /// One walk over both sides, whose steps are done as they come.
    async fn pass(&self, pass: Pass) {
        let (orders, working) = self.executor.clone().start_working(self.job.pace.check_first);
        let out = Done { executor: self.executor.clone(), orders };
        let walked = self.planner.walk(pass, &out).await;
        self.ledger.source_ended(walked.src_complete);
        self.executor.walked(walked.whole);
        self.planner.settle_renames(&out).await;
        drop(out);
        self.executor.finish_working(working).await;
        if pass == Pass::Transfers {
            self.executor.settle_links().await;
        }
    }

    /// A job that only deletes.
    async fn delete_alone(&self) {
        // Where nothing is nothing goes.
        if self.cx.dst.stat(&Key::new("")).await.is_err_and(|error| error.kind() == ErrorKind::DirNotFound) {
            return;
        }
        self.pass(Pass::DeletesOnly).await;
        self.executor.delete_pending().await;
        self.executor.finish_dirs(true).await;
    }

    /// One file under a name of its own.
    async fn one(&self, from: &Key, to: &Key) {
        let same_place = match (&self.cx.src.caps().domain, &self.cx.dst.caps().domain) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        };
        if same_place && from == to {
            let message = format!("source and destination are the same file: {}", self.cx.src.locator());
            return self.ledger.error(Error::new(ErrorKind::Invalid, "start", message).with_key(from));
        }
        if let Err(error) = self.check_backup() {
            return self.ledger.error(error);
        }
        self.index.open(&self.cx, self.planner.uses_of_index()).await;
        let (orders, working) = self.executor.clone().start_working(false);
        let out = Done { executor: self.executor.clone(), orders };
        if let Err(error) = self.planner.one(from, to, &out).await {
            self.ledger.error(error);
        }
        drop(out);
        self.executor.finish_working(working).await;
        self.executor.clear_stages().await;
        self.executor.delete_moved_sources(true).await;
        self.executor.delete_redundant().await;
    }

    async fn end(self, clock: JoinHandle<()>) -> Report {
        clock.abort();
        if self.cx.cancel.is_cancelled() {
            haul_store::disk::at_rest(AT_REST_WITHIN).await;
        }
        self.executor.force_to_device().await;
        self.executor.say_if_full().await;
        self.executor.end_journal().await;
        self.index.end().await;
        self.executor.say_unkept();
        self.ledger.close()
    }
}
