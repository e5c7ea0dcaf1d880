//! Questions to the stores that run beside the walk over both sides.

use crate::ledger::Ledger;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::{sync::Semaphore, task::JoinSet};

/// A bounded number of them at once.
pub(super) struct Checks {
    permits: Arc<Semaphore>,
    tasks: JoinSet<()>,
}

impl Checks {
    pub(super) fn new(checkers: usize) -> Self {
        Checks { permits: Arc::new(Semaphore::new(checkers)), tasks: JoinSet::new() }
    }

    pub(super) async fn spawn(&mut self, ledger: &Ledger, check: BoxFuture<'static, ()>) {
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        self.tasks.spawn(async move {
            check.await;
            drop(permit);
        });
        while let Some(ended) = self.tasks.try_join_next() {
            ledger.joined("check", ended);
        }
    }

    pub(super) async fn finish(mut self, ledger: &Ledger) {
        while let Some(ended) = self.tasks.join_next().await {
            ledger.joined("check", ended);
        }
    }
}
