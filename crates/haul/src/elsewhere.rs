//! `--compare-dest` and `--copy-dest`: what another place has already need not be brought.

use crate::{
    Cx, decide,
    job::Run,
    transfer::{Arrived, Mover, Order},
};
use haul_core::{
    Entry, Key, Kind,
    compare::{Difference, FileType, Reason, Verdict},
    event::Event,
    plan::{Action, Route},
};
use haul_store::{CopyHow, Store};
use std::sync::{Arc, atomic::Ordering};

impl Run {
    /// Whether there is another place to look at.
    pub fn looks_elsewhere(&self) -> bool {
        !(self.cx.compare_dest.is_empty() && self.cx.copy_dest.is_empty())
    }

    /// `--compare-dest` and `--copy-dest`: true when nothing is left to transfer.
    pub async fn found_elsewhere(&self, src: &Entry, to: &Key, dst: Option<&Entry>, why: Reason) -> bool {
        // rsync looks elsewhere for what isn't there, and for another name of what is to be replaced.
        let links = |dst: &Entry| self.links_elsewhere() && dst.kind == Kind::File && !dst.is_link();
        if self.policy.rsync.is_some() && dst.is_some_and(|dst| !links(dst)) {
            return false;
        }
        for store in &self.cx.compare_dest {
            if self.same_in(store, src, to).await.is_some() {
                self.report().totals.unchanged += 1;
                if self.policy.rsync.is_some() {
                    let (key, action, dry_run) = (to.clone(), Action::Keep, self.policy.dry_run);
                    let (size, differs) = (src.size, Difference { what: FileType::of(src), ..Difference::default() });
                    self.cx.sink.emit(&Event::Decided { key, action, why: Reason::Size, size, differs, dry_run });
                }
                return true;
            }
        }
        for store in &self.cx.copy_dest {
            let Some(found) = self.same_in(store, src, to).await else { continue };
            let rsync = self.policy.rsync.as_ref();
            let how = if self.links_elsewhere() { CopyHow::Link } else { CopyHow::Copy };
            let differs = self.difference(src, Some(&found));
            let action = if rsync.is_some() { Action::Reuse } else { Action::Copy };
            if how == CopyHow::Link && !self.keeps_all(differs) {
                continue;
            }
            let decided = |dry_run| {
                let (key, size) = (to.clone(), src.size);
                self.cx.sink.emit(&Event::Decided { key, action, why, size, differs, dry_run });
            };
            if self.policy.dry_run {
                if rsync.is_some() {
                    decided(true);
                }
                return rsync.is_some();
            }
            self.will_write(to).await;
            let mover = Mover { cx: Cx { src: store.clone(), ..self.cx.clone() }, ..self.mover.clone() };
            let step = self.steps.fetch_add(1, Ordering::Relaxed);
            let found = Entry { mtime: src.mtime.or(found.mtime), ..found };
            let mut order = Order::new(step, found, to.clone(), dst.cloned());
            let mut answers = mover.bring_by_server(std::slice::from_mut(&mut order), how).await;
            if let Some(Ok(arrived)) = answers.pop() {
                let (key, size) = (to.clone(), src.size);
                decided(false);
                self.cx.sink.emit(&Event::Begun { step, key, size, route: Route::Server });
                // What arrived is from elsewhere, but it is this job's source that was brought over by it.
                let arrived = Arrived { version: src.version.clone(), ..arrived };
                self.dress_now(src, to, false).await;
                self.arrived(&Order { src: src.clone(), ..order }, arrived);
                return true;
            }
        }
        false
    }

    fn links_elsewhere(&self) -> bool {
        self.policy.rsync.as_ref().is_some_and(|habits| habits.link)
    }

    /// What rsync compares a file with that the destination lacks, to tell what differs: the first that another place has.
    pub async fn basis_elsewhere(&self, src: &Entry, to: &Key) -> Option<Entry> {
        self.policy.rsync.as_ref()?;
        for store in self.cx.compare_dest.iter().chain(&self.cx.copy_dest) {
            if let Ok(found) = store.stat(to).await
                && found.kind == src.kind
            {
                return Some(found);
            }
        }
        None
    }

    /// True when another name of a file would do: nothing that is to be kept differs.
    fn keeps_all(&self, differs: Difference) -> bool {
        let keep = &self.policy.keep;
        let perms = (keep.perms || keep.acls) && differs.perms || keep.executability && differs.executable;
        !(perms || keep.owner && differs.owner || keep.group && differs.group)
    }

    async fn same_in(&self, store: &Arc<dyn Store>, src: &Entry, to: &Key) -> Option<Entry> {
        let mut found = store.stat(to).await.ok()?;
        let mut src = src.clone();
        let cx = Cx { dst: store.clone(), ..self.cx.clone() };
        // What makes a destination's file stay although it is another one says nothing of this one.
        let rules = decide::rules(self.mode, &self.policy, &cx.src, &cx.dst).for_content();
        let verdict = decide::verdict(&cx, &self.policy, &rules, &mut src, &mut found).await.ok()?;
        matches!(verdict, Verdict::Same(_)).then_some(found)
    }
}
