//! Directories: which are new, which are on both sides, which may be deleted at the destination, and the job's root.

use super::{Outlet, Planner, both_dirs, is_within, kept_dir, outermost};
use futures::StreamExt;
use haul_core::{
    Entry, ErrorKind, Key, Listed,
    compare::Reason,
    event::{Event, Facts, LeftOut},
    job::{Mounts, Root, Verb},
    plan::{self, Action, Step},
};
use haul_store::ListRequest;
use std::sync::Arc;

impl Planner {
    /// Reports a directory of the source and how the destination's differs.
    pub(super) async fn dir_seen(&self, src: &Entry, dst: Option<&Entry>) {
        if !self.job.tell.details {
            return;
        }
        let mut differs = self.attributes.difference(&self.rules(), src, dst);
        let mut elsewhere = false;
        if differs.new
            && let Some(found) = self.dir_elsewhere(&src.key).await
        {
            (differs, elsewhere) = (self.attributes.difference(&self.rules(), src, Some(&found)), true);
        }
        self.ledger.tell(Event::DirSeen { key: src.key.clone(), differs, elsewhere, facts: Facts::of(src) });
    }

    async fn dir_elsewhere(&self, key: &Key) -> Option<Entry> {
        for store in self.cx.compare_dest.iter().chain(&self.cx.copy_dest) {
            if let Ok(found) = store.stat(key).await {
                return Some(found);
            }
        }
        None
    }

    /// Decides about a directory that only the source has: it is created unless nothing new may be, and something of another kind
    /// at its name is replaced.
    pub(super) async fn new_dir(&self, src: Entry, out: &impl Outlet) {
        if !self.job.existing.other_kinds.are_replaced() {
            // Where keys are asked for one by one, directories weren't asked for.
            let there = match self.asks_each() {
                true => self.cx.dst.stat(&src.key).await.ok(),
                false => None,
            };
            return match there {
                Some(dst) => out.take(both_dirs(src, dst)).await,
                None => self.made(src, out).await,
            };
        }
        if self.job.existing.only && !self.other_kind_there(&src.key).await {
            return self.ledger.left_out(&src, LeftOut::New);
        }
        if self.job.dry_run && self.keeps_own_attributes(&src.key) {
            return;
        }
        if self.keeps_dirlink(&src).await {
            return;
        }
        if self.job.existing.ignore && self.other_kind_there(&src.key).await {
            return self.close(&src.key);
        }
        self.dir_seen(&src, None).await;
        self.made(src, out).await;
    }

    async fn made(&self, src: Entry, out: &impl Outlet) {
        outermost(&self.new, &src.key);
        out.take(Step::new(Action::MakeDir, Some(src), None, Reason::Missing)).await;
    }

    /// True for a directory that is known to be missing from the destination, as far as the walk has come.
    pub fn is_new(&self, dir: &Key) -> bool {
        is_within(&self.new, dir)
    }

    /// Decides about a directory that is proved to be missing from the source.
    pub(super) async fn extra_dir(&self, dst: Entry, out: &impl Outlet) {
        if self.cx.filter.shown_by_another_source(&dst.key) {
            out.take(kept_dir(dst)).await;
        } else if self.may_be_deleted(&dst) {
            let name = Key::new(dst.key.path());
            let other = self.in_its_place(&dst).await;
            if other.is_some() || self.cx.filter.shown_by_another_source(&name) {
                // Its contents are deleted when its place is taken, which may never be; a dry run reports where they would be, unless
                // another job takes the place and reports it.
                let tells = self.job.dry_run && !self.deletes_only();
                if !tells || other.is_some_and(|other| !self.can_be_copied(&other)) {
                    *self.kept_below.lock().unwrap_or_else(|e| e.into_inner()) = Some(dst.key);
                }
            } else if self.extra_below(&dst, out).await {
                self.lost(dst, out).await;
            }
        }
    }

    /// With a depth limit the contents of a directory to be deleted aren't listed: lists them here and deletes them too, except
    /// other file systems, where they are left alone, and the directories above them. False when `dir` itself must stay for that.
    async fn extra_below(&self, dir: &Entry, out: &impl Outlet) -> bool {
        let limited = self.job.listing.max_depth.is_some() && self.job.verb == Verb::Sync;
        if !limited || !self.job.deletes.below_max_depth {
            return true;
        }
        let filter = Arc::new(self.cx.filter.for_destination());
        let request = ListRequest {
            prefix: dir.key.as_bytes().to_vec(),
            prune_by: Some(filter),
            one_device: self.one_device(),
            ..ListRequest::all()
        };
        let mut listing = self.cx.dst.list(request);
        let mut goes = true;
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => {
                    for entry in entries {
                        match entry.is_dir() {
                            true if self.may_be_deleted(&entry) => self.lost(entry, out).await,
                            true => {}
                            false => self.extra(entry, out).await,
                        }
                    }
                }
                Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => {
                    goes = false;
                    if let Some(mount) = error.key() {
                        let held = Entry::dir(mount.clone());
                        out.take(Step::new(Action::Keep, None, Some(held), Reason::NotSeen)).await;
                    }
                }
                Listed::Failed { error, .. } => self.ledger.error(error),
                Listed::Vanished(_) | Listed::End => {}
            }
        }
        goes
    }

    async fn lost(&self, dst: Entry, out: &impl Outlet) {
        outermost(&self.dying, &dst.key);
        out.take(plan::extra(dst, true)).await;
    }

    /// Decides about the job's root, if it is part of the transfer.
    pub async fn see_root(&self, out: &impl Outlet) {
        let root = Key::new("");
        if self.keeps_own_attributes(&root) {
            // A root that doesn't exist yet has no attributes to keep.
            if let Ok(dst) = self.cx.dst.stat(&root).await {
                out.take(kept_dir(dst)).await;
            }
            return;
        }
        if self.job.dirs.root != Root::Included {
            return;
        }
        // A missing source is reported when it is listed.
        if let Ok(src) = self.cx.src.stat(&root).await {
            let dst = self.cx.dst.stat(&root).await.ok();
            if dst.is_none() {
                // Everything in it is new too.
                self.made(src.clone(), out).await;
            }
            self.dir_seen(&src, dst.as_ref()).await;
            // Writing into it changes its time, so the time is set in any case.
            let there = Entry { mtime: None, ..src.clone() };
            out.take(both_dirs(src, there)).await;
        }
    }

    /// True for a directory of the destination whose attributes don't come from this source.
    pub fn keeps_own_attributes(&self, dir: &Key) -> bool {
        self.deletes_only() || self.cx.filter.is_of_earlier_source(dir)
    }

    /// Whether the rules allow deleting this at the destination. Remembers directories that must stay with their contents.
    pub(super) fn may_be_deleted(&self, dst: &Entry) -> bool {
        if self.cx.filter.shown_by_another_source(&dst.key) {
            return false;
        }
        let mut kept = self.kept_below.lock().unwrap_or_else(|e| e.into_inner());
        if kept.as_ref().is_some_and(|dir| dst.key.as_bytes().starts_with(dir.as_bytes())) {
            return false;
        }
        let dying = is_within(&self.dying, &dst.key.parent());
        let may = self.cx.filter.may_delete(&dst.key, dying);
        if !may && dst.is_dir() {
            *kept = Some(dst.key.clone());
        }
        may
    }

    /// Only deletions are asked for.
    fn deletes_only(&self) -> bool {
        self.job.deletes.alone
    }

    /// True when neither side is listed beyond its own file system.
    pub fn one_device(&self) -> bool {
        self.job.listing.mounts != Mounts::Cross
    }
}
