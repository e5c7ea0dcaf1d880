//! `--compare-dest` and `--copy-dest`: what another place has already need not be brought.

use crate::{
    Cx, decide,
    job::Run,
    transfer::{Arrived, Mover, Order},
};
use haul_core::{
    Entry, Key,
    compare::{Reason, Verdict},
    event::Event,
    plan::{Action, Route},
};
use haul_store::{CopyHow, Store};
use std::sync::{Arc, atomic::Ordering};

impl Run {
    /// `--compare-dest` and `--copy-dest`: true when nothing is left to transfer.
    pub async fn found_elsewhere(&self, src: &Entry, to: &Key, dst: Option<&Entry>, why: Reason) -> bool {
        for store in &self.cx.compare_dest {
            if self.same_in(store, src, to).await.is_some() {
                self.report().totals.unchanged += 1;
                return true;
            }
        }
        for store in &self.cx.copy_dest {
            let Some(found) = self.same_in(store, src, to).await else { continue };
            if self.policy.dry_run {
                return false;
            }
            let mover = Mover { cx: Cx { src: store.clone(), ..self.cx.clone() }, ..self.mover.clone() };
            let step = self.steps.fetch_add(1, Ordering::Relaxed);
            let found = Entry { mtime: src.mtime.or(found.mtime), ..found };
            let mut order = Order::new(step, found, to.clone(), dst.cloned());
            let mut answers = mover.bring_by_server(std::slice::from_mut(&mut order), CopyHow::Copy).await;
            if let Some(Ok(arrived)) = answers.pop() {
                let (key, size) = (to.clone(), src.size);
                self.cx.sink.emit(&Event::Decided {
                    key: key.clone(),
                    action: Action::Copy,
                    why,
                    size,
                    dry_run: false,
                });
                self.cx.sink.emit(&Event::Begun { step, key, size, route: Route::Server });
                // What arrived is from elsewhere, but it is this job's source that was brought over by it.
                let arrived = Arrived { version: src.version.clone(), ..arrived };
                self.dress_now(src, to).await;
                self.arrived(&Order { src: src.clone(), ..order }, arrived);
                return true;
            }
        }
        false
    }

    async fn same_in(&self, store: &Arc<dyn Store>, src: &Entry, to: &Key) -> Option<Entry> {
        let mut found = store.stat(to).await.ok()?;
        let mut src = src.clone();
        let cx = Cx { dst: store.clone(), ..self.cx.clone() };
        let rules = decide::rules(self.mode, &self.policy, &cx.src, &cx.dst);
        let verdict = decide::verdict(&cx, &self.policy, &rules, &mut src, &mut found).await.ok()?;
        matches!(verdict, Verdict::Same(_)).then_some(found)
    }
}
