//! `--compare-dest`, `--copy-dest` and `--link-dest`: what another place has already need not be brought.

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
    policy::Compare,
};
use haul_store::{CopyBatch, CopyHow, Store};
use std::sync::{Arc, atomic::Ordering};

/// What another place has of a file.
struct Found<'a> {
    /// Its number among all other places.
    place: usize,
    store: &'a Arc<dyn Store>,
    entry: Entry,
    differs: Difference,
    /// Nothing that is to be kept differs.
    exact: bool,
}

/// What came of looking at other places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do about the file.
    Done,
    /// Nothing was done.
    Nothing,
    /// What the destination had went to where backups go, and nothing came in its place.
    SetAside,
}

impl Run {
    /// Whether there is another place to look at.
    pub fn looks_elsewhere(&self) -> bool {
        !(self.cx.compare_dest.is_empty() && self.cx.copy_dest.is_empty())
    }

    /// Whether another place counts for what the destination has too: under rsync's habits, where it would do instead.
    pub fn looks_elsewhere_for_all(&self) -> bool {
        self.policy.rsync.is_some() && (!self.cx.compare_dest.is_empty() || self.links_elsewhere())
    }

    /// Whether another place is to be looked at before this is done.
    pub fn is_elsewhere_of_use(&self, action: Action, why: Reason, dst: Option<&Entry>) -> bool {
        let there = dst.is_none_or(|dst| dst.kind == Kind::File);
        match action {
            _ if self.policy.rsync.is_some() && dst.is_some() => {
                let stays = matches!(action, Action::Keep | Action::Touch) && !why.is_left_alone();
                self.looks_elsewhere_for_all() && there && (stays || action == Action::Copy)
            }
            Action::Copy => self.looks_elsewhere(),
            _ => false,
        }
    }

    /// Takes a file from another place that has it.
    pub async fn found_elsewhere(&self, src: &Entry, to: &Key, dst: Option<&Entry>, why: Reason) -> Outcome {
        let mut next = 0;
        while let Some(found) = self.best_elsewhere(src, to, next).await {
            let outcome = self.use_found(&found, src, to, dst, why).await;
            // What was set aside can't be a second time.
            if outcome != Outcome::Nothing || self.policy.rsync.is_some() {
                return outcome;
            }
            // From there it could not be copied; another place may have it too.
            next = found.place + 1;
        }
        Outcome::Nothing
    }

    /// Does about a file what this makes possible.
    async fn use_found(&self, found: &Found<'_>, src: &Entry, to: &Key, dst: Option<&Entry>, why: Reason) -> Outcome {
        let rsync = self.policy.rsync.is_some();
        let compares = found.place < self.cx.compare_dest.len();
        if compares && (found.exact || !rsync) {
            // What hides the other place's file there makes way for this one.
            if rsync && dst.is_none() && self.other_kind_there(to).await {
                return Outcome::Nothing;
            }
            self.is_spare(src, to, dst, found);
            return Outcome::Done;
        }
        // Another name is one only of what has all that is to be kept.
        let links = self.links_elsewhere() && found.exact;
        let is_it = |dst: &Entry| dst.version.is_some() && dst.version == found.entry.version;
        if dst.is_some_and(|dst| !links || is_it(dst)) && rsync {
            return Outcome::Nothing;
        }
        if rsync || !self.policy.dry_run {
            for how in [CopyHow::Link, CopyHow::Copy] {
                let wanted = if how == CopyHow::Link { links } else { dst.is_none() || !rsync };
                let taken = if wanted { self.take(src, to, dst, why, found, how).await } else { Outcome::Nothing };
                if taken != Outcome::Nothing {
                    return taken;
                }
            }
        }
        Outcome::Nothing
    }

    /// Leaves a file out that `--compare-dest` has; what the destination has of it goes at the end.
    fn is_spare(&self, src: &Entry, to: &Key, dst: Option<&Entry>, found: &Found<'_>) {
        self.report().totals.unchanged += 1;
        let Some(habits) = &self.policy.rsync else { return };
        let (key, action, dry_run) = (to.clone(), Action::Keep, self.policy.dry_run);
        let (size, differs) = (src.size, Difference { what: FileType::of(src), ..Difference::default() });
        self.cx.sink.emit(&Event::Decided { key, action, why: Reason::Size, size, differs, dry_run });
        // Not where it is the very file that was found.
        let Some(dst) = dst.filter(|dst| dst.version.is_some() && dst.version != found.entry.version) else { return };
        if habits.drop_spare
            && !dry_run
            && let Err(error) = self.spare.push(dst.clone().into())
        {
            self.error(error);
        }
    }

    /// Takes what was found, if that can be.
    async fn take(
        &self,
        src: &Entry,
        to: &Key,
        dst: Option<&Entry>,
        why: Reason,
        found: &Found<'_>,
        how: CopyHow,
    ) -> Outcome {
        let action = if self.policy.rsync.is_some() { Action::Reuse } else { Action::Copy };
        let decided = |dry_run| {
            let (key, size, differs) = (to.clone(), src.size, found.differs);
            self.cx.sink.emit(&Event::Decided { key, action, why, size, differs, dry_run });
        };
        if self.policy.dry_run {
            decided(true);
            self.links.there(src, None);
            return Outcome::Done;
        }
        self.will_write(to).await;
        let mover = Mover { cx: Cx { src: found.store.clone(), ..self.cx.clone() }, ..self.mover.clone() };
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { mtime: src.mtime.or(found.entry.mtime), ..found.entry.clone() };
        let mut order = Order::new(step, entry, to.clone(), dst.cloned());
        let mut answers = mover.bring_by_server(std::slice::from_mut(&mut order), how).await;
        let Some(Ok(arrived)) = answers.pop() else {
            let aside = order.kept && dst.is_some() && self.mover.backup.is_on();
            return if aside { Outcome::SetAside } else { Outcome::Nothing };
        };
        let (key, size) = (to.clone(), src.size);
        decided(false);
        self.cx.sink.emit(&Event::Begun { step, key, size, route: Route::Server });
        // What arrived is from elsewhere, but it is this job's source that was brought over by it.
        let arrived = Arrived { version: src.version.clone(), ..arrived };
        if how != CopyHow::Link {
            // Another name has all of it, and what is set by it is set of the other place's file.
            self.dress_now(src, to, true).await;
        }
        self.arrived(&Order { src: src.clone(), ..order }, arrived);
        Outcome::Done
    }

    /// Whether what another place has gets a further name.
    pub fn links_elsewhere(&self) -> bool {
        self.policy.rsync.as_ref().is_some_and(|habits| habits.link)
    }

    /// Of the other places from this one on, the first that has a file with all that is to be kept, else the first that has its
    /// content.
    async fn best_elsewhere(&self, src: &Entry, to: &Key, from: usize) -> Option<Found<'_>> {
        let mut best = None;
        for (place, store) in self.cx.compare_dest.iter().chain(&self.cx.copy_dest).enumerate().skip(from) {
            let Some(entry) = self.same_in(store, src, to).await else { continue };
            let differs = self.difference(src, Some(&entry));
            let exact = self.keeps_all(src, differs) && self.agrees_inside(store, src, to).await;
            let found = Found { place, store, entry, differs, exact };
            // What is only copied is dressed as the source is.
            if exact || self.policy.rsync.is_none() {
                return Some(found);
            }
            best.get_or_insert(found);
        }
        best
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

    /// What another place has of a further name of a file, under rsync's habits: where it is linked to, only what is one file with
    /// the first name there.
    pub async fn name_elsewhere(&self, first: &Key, src: &Entry) -> Option<Entry> {
        self.policy.rsync.as_ref()?;
        for store in &self.cx.copy_dest {
            let Some(found) = self.same_in(store, src, &src.key).await else { continue };
            if !self.links_elsewhere() {
                return Some(found);
            }
            let exact = self.keeps_all(src, self.difference(src, Some(&found)));
            let first = store.stat(first).await.ok().and_then(|first| first.version);
            if exact && first.is_some() && first == found.version {
                return Some(found);
            }
        }
        None
    }

    /// True when another name of a file would do: nothing that is to be kept differs.
    fn keeps_all(&self, src: &Entry, differs: Difference) -> bool {
        let keep = &self.policy.keep;
        let all = keep.perms || keep.acls;
        let perms = !src.is_symlink() && (all && differs.perms || keep.executability && differs.executable);
        let times = !self.policy.no_update_mtime && differs.mtime;
        !(perms || times || keep.owner && differs.owner || keep.group && differs.group)
    }

    /// Where attributes are kept that no listing tells: true when the other place's file has the source's.
    async fn agrees_inside(&self, store: &Arc<dyn Store>, src: &Entry, to: &Key) -> bool {
        let Some(domain) = self.cx.src.caps().domain.as_ref().filter(|_| self.attributes.looks_inside()) else {
            return true;
        };
        let item = self.attribute_item(src, to, None, false);
        let links = self.mover.source_links();
        let answers =
            store.copy(CopyBatch { from: domain.place.clone(), items: vec![item], progress: None, links }).await;
        answers.iter().all(|answer| answer.as_ref().is_ok_and(|stored| !stored.differs.any()))
    }

    async fn same_in(&self, store: &Arc<dyn Store>, src: &Entry, to: &Key) -> Option<Entry> {
        let mut found = store.stat(to).await.ok()?;
        let mut src = src.clone();
        let cx = Cx { dst: store.clone(), ..self.cx.clone() };
        // What makes a destination's file stay although it is another one says nothing of this one.
        let rules = decide::rules(self.mode, &self.policy, &cx.src, &cx.dst).for_content();
        let verdict = decide::verdict(&cx, &self.policy, &rules, &mut src, &mut found).await.ok()?;
        // Where content decides, another time is no other file.
        let same = match verdict {
            Verdict::Same(_) => true,
            Verdict::Touch => self.policy.rsync.is_some() && self.policy.compare == Compare::Checksum,
            _ => false,
        };
        same.then_some(found)
    }
}
