//! What only the destination has: which of it may be deleted, and which stays.

use super::{Outlet, directories::kept_dir, kinds::Kinds, listings::is_one_device, outermost::Outermost};
use crate::{Cx, backup::Backup, ledger::Ledger, rename::Renames};
use futures::StreamExt;
use haul_core::{
    Entry, ErrorKind, Key, Listed,
    compare::Reason,
    job::{Job, Verb},
    plan::{self, Action, Step},
};
use haul_store::ListRequest;
use std::sync::Arc;

/// Decides about entries that are proved to be missing from the source.
pub(super) struct Extras {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    kinds: Arc<Kinds>,
    /// Takes those that may be a file of the source under another name.
    renames: Option<Arc<Renames>>,
    /// Where backups go.
    backup: Backup,
    /// Directories that stay with their contents.
    kept: Outermost,
    /// Directories that are to be deleted.
    dying: Outermost,
}

impl Extras {
    /// None was met yet.
    pub fn new(
        (job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>),
        kinds: &Arc<Kinds>,
        renames: &Option<Arc<Renames>>,
    ) -> Extras {
        Extras {
            backup: Backup::new(job, cx, None),
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            kinds: kinds.clone(),
            renames: renames.clone(),
            kept: Outermost::default(),
            dying: Outermost::default(),
        }
    }

    /// Decides about a file.
    pub async fn file(&self, dst: Entry, out: &impl Outlet) {
        if self.job.verb != Verb::Sync && self.job.tell.extra && dst.has_bytes() {
            return out.take(plan::extra(dst, false)).await;
        }
        if self.job.verb != Verb::Sync || !self.may_be_deleted(&dst) || self.kinds.in_its_place(&dst).await.is_some() {
            return;
        }
        if self.job.existing.spares_backups && self.backup.is_kept_name(&dst.key) {
            return;
        }
        match &self.renames {
            Some(renames) => renames.dst_only(dst),
            None => out.take(plan::extra(dst, true)).await,
        }
    }

    /// Decides about a directory.
    pub async fn dir(&self, dst: Entry, out: &impl Outlet) {
        if self.cx.filter.shown_by_another_source(&dst.key) {
            out.take(kept_dir(dst)).await;
        } else if self.may_be_deleted(&dst) {
            let name = Key::new(dst.key.path());
            let other = self.kinds.in_its_place(&dst).await;
            if other.is_some() || self.cx.filter.shown_by_another_source(&name) {
                // Its contents are deleted when its place is taken, which may never be; a dry run reports where they would be, unless
                // another job takes the place and reports it.
                let tells = self.job.dry_run && !self.job.deletes.alone;
                if !tells || other.is_some_and(|other| !self.kinds.can_be_copied(&other)) {
                    self.kept.note(&dst.key);
                }
            } else if self.below(&dst, out).await {
                self.lost(dst, out).await;
            }
        }
    }

    /// With a depth limit the contents of a directory to be deleted aren't listed: lists them here and deletes them too, except
    /// other file systems, where they are left alone, and the directories above them. False when `dir` itself must stay for that.
    async fn below(&self, dir: &Entry, out: &impl Outlet) -> bool {
        let limited = self.job.listing.max_depth.is_some() && self.job.verb == Verb::Sync;
        if !limited || !self.job.deletes.below_max_depth {
            return true;
        }
        let filter = Arc::new(self.cx.filter.for_destination());
        let request = ListRequest {
            prefix: dir.key.as_bytes().to_vec(),
            prune_by: Some(filter),
            one_device: is_one_device(&self.job),
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
                            false => self.file(entry, out).await,
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
        self.dying.note(&dst.key);
        out.take(plan::extra(dst, true)).await;
    }

    /// Whether the rules allow deleting this at the destination. Remembers directories that must stay with their contents.
    fn may_be_deleted(&self, dst: &Entry) -> bool {
        if self.cx.filter.shown_by_another_source(&dst.key) || self.kept.holds(&dst.key) {
            return false;
        }
        let may = self.cx.filter.may_delete(&dst.key, self.dying.holds(&dst.key.parent()));
        if !may && dst.is_dir() {
            self.kept.note(&dst.key);
        }
        may
    }
}
