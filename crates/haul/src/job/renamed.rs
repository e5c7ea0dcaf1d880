//! `--track-renames`, once both listings have ended: [`crate::rename`] tells what is only named otherwise.

use super::{Run, working::Orders};
use crate::{
    Cx,
    transfer::{Mover, Order},
};
use haul_core::{Entry, event::Event, plan};
use haul_store::CopyHow;
use std::sync::Arc;

impl Run {
    /// `--track-renames`: what both sides have under other names is renamed; the rest is copied and deleted.
    pub(super) async fn settle_renames(self: &Arc<Self>, orders: &Orders) {
        let Some(renames) = &self.renames else { return };
        let settled = renames.settle(&self.cx, &self.rules).await;
        for error in settled.errors {
            self.error(error);
        }
        for (src, old) in settled.renamed {
            if self.policy.dry_run {
                self.report().totals.renames += 1;
                self.notice(Some(&old.key), format!("Skipped rename to {} as --dry-run is set", src.key));
                continue;
            }
            if !self.rename(&src, &old).await {
                self.act(plan::missing(src, &self.policy), orders).await;
                self.doom_or_count(old);
            }
        }
        for src in settled.missing {
            self.act(plan::missing(src, &self.policy), orders).await;
        }
        for old in settled.extra {
            self.doom_or_count(old);
        }
    }

    fn doom_or_count(&self, old: Entry) {
        let step = plan::extra(old, true);
        self.decided(&step);
        let Some(old) = step.dst else { return };
        if self.policy.dry_run {
            self.report().totals.deletes += 1;
        } else if let Err(error) = self.doomed.push(old.into()) {
            self.error(error);
        }
    }

    async fn rename(&self, src: &Entry, old: &Entry) -> bool {
        self.will_write(&old.key).await;
        self.will_write(&src.key).await;
        let mover = Mover { cx: Cx { src: self.cx.dst.clone(), ..self.cx.clone() }, ..self.mover.clone() };
        let step = self.next_step();
        let from = Entry { mtime: src.mtime.or(old.mtime), ..old.clone() };
        let order = Order::new(step, from, src.key.clone(), None);
        match mover.bring_by_server(&mut [order], CopyHow::Rename).await.pop() {
            Some(Ok(_)) => {
                self.report().totals.renames += 1;
                self.dirs.written(&src.key);
                self.dirs.written(&old.key);
                self.is_absent(&old.key);
                self.dress_now(src, &src.key, false).await;
                self.links.there(src, None);
                self.cx.sink.emit(&Event::Renamed { from: old.key.clone(), to: src.key.clone() });
                true
            }
            _ => false,
        }
    }
}
