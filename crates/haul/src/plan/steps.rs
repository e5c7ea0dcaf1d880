//! A job's plan as a stream, for callers that show it or carry it out in their own way.

use super::{Outlet, Planner, WalkPurpose};
use crate::{
    Cx, Report, attributes::Attributes, budget::Budget, destination_index::Index, hard_links::HardLinks,
    ledger::Ledger, overlap,
};
use futures::Stream;
use haul_core::{job::Job, plan::Step};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{sync::mpsc, task::JoinHandle};

/// Steps that may wait to be looked at.
const AHEAD: usize = 1024;

/// Steps of `job` between the ends of `cx`, as they are decided; nothing is done. The sides are listed no faster than the
/// steps are taken.
///
/// There is a step for each key that the job decides about, unchanged ones too. Copies and moves report
/// files that only the destination has, with [`haul_core::job::ExtraEvents::extra`]. Excluded and unreadable entries have no step; the sink gets
/// them.
///
/// Steps of files come in the order of their keys, but for those whose comparison had to ask a store, renamed files and further
/// names of files, which come at the end. Errors go to the sink and into [`Steps::report`]: a step that deletes rests on nothing
/// once there is one.
pub fn plan(mut job: Job, cx: Cx) -> Steps {
    job.dry_run = true;
    let attributes = Arc::new(Attributes::new(&mut job, &cx));
    let (job, ledger, index) = (
        Arc::new(job),
        Arc::new(Ledger::new(cx.sink.clone(), cx.cancel.clone(), cx.filter.clone(), true)),
        Arc::<Index>::default(),
    );
    let budget = Budget::new(&job, &*cx.src, &*cx.dst);
    let planner = Arc::new(Planner::new((&job, &cx, &ledger), &attributes, &index, budget.checkers, None));
    let (steps, coming) = mpsc::channel(AHEAD);
    let walk_ledger = ledger.clone();
    let walk = tokio::spawn(async move {
        if let Err(error) = overlap::check(&cx, job.verb) {
            return walk_ledger.error(error);
        }
        index.open(&cx, planner.listings.uses_of_index()).await;
        let out = WatchedSteps { steps, links: planner.links().clone() };
        planner.directories.root(&out).await;
        planner.walk(if job.deletes.alone { WalkPurpose::DeletesOnly } else { WalkPurpose::Transfers }, &out).await;
        planner.settle_renames(&out).await;
        planner.settle_links(&out).await;
        index.end().await;
    });
    Steps { coming, ledger, walk }
}

/// The steps of a plan. Dropping it ends the planning.
pub struct Steps {
    coming: mpsc::Receiver<Step>,
    ledger: Arc<Ledger>,
    walk: JoinHandle<()>,
}

impl Steps {
    /// The report so far: errors, and files that were compared. Complete when the stream has ended.
    pub fn report(&self) -> Report {
        self.ledger.report().clone()
    }
}

impl Stream for Steps {
    type Item = Step;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        self.coming.poll_recv(cx)
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.walk.abort();
    }
}

/// Somebody looks at the steps; names of files that are to be linked wait for the end.
#[derive(Clone)]
struct WatchedSteps {
    steps: mpsc::Sender<Step>,
    links: Arc<HardLinks>,
}

impl Outlet for WatchedSteps {
    const TAKES_UNCHANGED: bool = true;

    async fn take(&self, step: Step) {
        self.links.will_be(&step);
        // Fails only when the stream was dropped.
        let _ = self.steps.send(step).await;
    }
}
