//! `--track-renames`, once both listings have ended: [`crate::rename`] finds files that only changed their name.

use super::{Outlet, Planner};
use crate::omitted::source_has;
use haul_core::{
    compare::Reason,
    plan::{self, Action, Step},
};

impl Planner {
    /// `--track-renames`: what both sides have under other names is renamed; the rest is copied and deleted.
    pub async fn settle_renames(&self, out: &impl Outlet) {
        let Some(renames) = &self.renames else { return };
        let mut settled = renames.settle(&self.cx, &self.rules()).await;
        for error in settled.errors {
            self.ledger.error(error);
        }
        for (src, old) in settled.renamed {
            // The listing left it out: the source has both.
            if self.cx.src.caps().listing_may_omit && source_has(&self.cx, &old.key).await.unwrap_or(true) {
                settled.missing.push(src);
                settled.extra.push(old);
                continue;
            }
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
