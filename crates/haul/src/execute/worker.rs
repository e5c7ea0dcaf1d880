//! Carries out decided work, and makes the small decisions on the way: transfers on one side, attributes of files with
//! unchanged bytes on the other.

use super::{ExecutedSteps, Executor};
use crate::{
    attribute_reads::{DueLook, FileLooks},
    plan::StepSink,
    schedule::{COMING, COMING_BEFORE_A_PAUSE, Queue},
    transfer::FileTransfer,
};
use std::sync::Arc;
use tokio::{sync::mpsc, task::JoinHandle};

/// Where decided work goes; its receivers are in [`Worker`].
#[derive(Clone)]
pub(crate) struct WorkQueues {
    /// Files to transfer.
    pub transfers: mpsc::Sender<FileTransfer>,
    /// Files whose attributes are to be looked at.
    pub attributes: mpsc::Sender<DueLook>,
}

/// The worker of a run; ends when all senders of its [`WorkQueues`] are dropped.
pub(crate) struct Worker {
    scheduler: JoinHandle<()>,
    setter: JoinHandle<()>,
}

impl StepSink for Executor {
    type Out = ExecutedSteps;
    type Working = Worker;

    fn start_working(self: &Arc<Self>) -> (ExecutedSteps, Worker) {
        let pauses = self.planner.can_pause();
        let (transfers, coming) = mpsc::channel(if pauses { COMING_BEFORE_A_PAUSE } else { COMING });
        let queue = Queue::new(coming, self.job.pace.order_by, self.job.pace.check_first, self.cx.copy_batch());
        let queue = if pauses { queue.before_a_pause() } else { queue };
        let scheduler = tokio::spawn(self.transfers.clone().schedule(queue));
        let looks =
            FileLooks { size: self.cx.copy_batch(), at_once: self.mover.budget.checkers, ledger: self.ledger.clone() };
        let setter = self.setter.clone();
        let (attributes, setter) = looks.start(move |files| {
            let setter = setter.clone();
            async move { setter.attribute_batch(files).await }
        });
        let orders = WorkQueues { transfers, attributes };
        (ExecutedSteps { executor: self.clone(), orders }, Worker { scheduler, setter })
    }

    async fn finish_working(&self, working: Worker) {
        self.ledger.joined("transfer", working.scheduler.await);
        self.ledger.joined("set attributes", working.setter.await);
        self.delayed.publish().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::Outlet,
        samples::{Sample, executor, has, job, put},
    };
    use haul_core::{Key, job::Verb, plan};
    use haul_mem::MemStore;

    #[tokio::test]
    async fn all_that_was_taken_is_done_when_the_work_has_ended() {
        let src = MemStore::new();
        for key in ["a", "b"] {
            put(&src, key).await;
        }
        let sample = Sample::new(job(Verb::Copy, |_| {}), src, MemStore::new());
        let executor = executor(&sample);
        let (out, working) = executor.start_working();
        for key in ["a", "b", "none"] {
            let src = sample.cx.src.stat(&Key::new(key)).await;
            let src = src.unwrap_or_else(|_| crate::samples::file(key));
            out.take(plan::missing(src, &sample.job)).await;
        }
        drop(out);
        executor.finish_working(working).await;
        assert!(has(&sample.cx.dst, "a").await && has(&sample.cx.dst, "b").await);
        assert_eq!((sample.totals().transfers, sample.errors()), (2, 1));
    }
}
