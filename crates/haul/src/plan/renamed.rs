//! `--track-renames`, once both listings have ended: [`crate::rename`] finds files that only changed their name.

use super::{Outlet, Planner};
use haul_core::{
    compare::Reason,
    plan::{self, Action, Step},
};

impl Planner {
    /// `--track-renames`: what both sides have under other names is renamed; the rest is copied and deleted.
    pub async fn settle_renames(&self, out: &impl Outlet) {
        let Some(renames) = &self.renames else { return };
        let settled = renames.settle(&self.cx, &self.rules()).await;
        for error in settled.errors {
            self.ledger.error(error);
        }
        for (src, old) in settled.renamed {
            out.take(Step::new(Action::Rename, Some(src), Some(old), Reason::Missing)).await;
        }
        for src in settled.missing {
            self.file(plan::missing(src, &self.job), out).await;
        }
        for old in settled.extra {
            out.take(plan::extra(old, true)).await;
        }
    }
}
