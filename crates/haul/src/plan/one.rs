//! One file under a name of its own: `copyto`, `moveto`, and a source that is a file.

use super::{Outlet, Planner};
use haul_core::{
    Key, Result, Side,
    event::{Event, LeftOut},
    job::Lookup,
    plan::Step,
};

impl Planner {
    /// Decides about one file.
    ///
    /// Errors: a side can't be asked; something is in the file's way.
    pub async fn one(&self, from: &Key, to: &Key, out: &impl Outlet) -> Result<()> {
        let src = self.cx.src.stat(from).await.map_err(|e| e.with_key(from))?;
        if self.is_unsafe_link(&src).await {
            return Ok(());
        }
        if self.cx.filter.holds_back() && self.beyond_limits(&src) {
            self.ledger.left_out(&src, LeftOut::Limit);
            return Ok(());
        }
        if !self.can_be_copied(&src) {
            self.not_kept(&src).await;
            return Ok(());
        }
        self.ledger.tell(Event::Listed { side: Side::Src, files: 1, bytes: src.size });
        let there = match self.job.listing.lookup == Lookup::Never {
            true => None,
            false => match self.cx.dst.stat(to).await {
                Ok(entry) if !entry.is_dir() => Some(entry),
                Ok(_) => None,
                Err(e) if e.is_missing() => {
                    self.index.is_absent(to);
                    None
                }
                Err(error) => return Err(error.with_key(to)),
            },
        };
        if there.is_some() {
            self.ledger.report().totals.checks += 1;
        }
        if there.is_none()
            && self.job.existing.other_kinds.are_replaced()
            && let Some(error) = self.in_the_way(&src, to).await
        {
            return Err(error);
        }
        if let Some(step) = self.decision(src, there).await? {
            self.file(Step { to: Some(to.clone()), ..step }, out).await;
        }
        Ok(())
    }
}
