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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, Taken, dir, disk, file, first_match, job, put};
    use haul_core::job::{OtherKinds, RenameBy};
    use haul_mem::MemStore;

    fn extras(sample: &Sample) -> Extras {
        Extras::new(sample.parts(), &Arc::new(Kinds::new(sample.parts(), &Arc::default())), &None)
    }

    /// Goes over entries of the destination in the order of a walk.
    async fn walk(extras: &Extras, keys: &[&str]) -> Vec<(Action, String)> {
        let out = Taken::default();
        for key in keys {
            match key.ends_with('/') {
                true => extras.dir(dir(key), &out).await,
                false => extras.file(file(key), &out).await,
            }
        }
        out.steps()
    }

    fn deleted(keys: &[&str]) -> Vec<(Action, String)> {
        keys.iter().map(|key| (Action::Delete, key.to_string())).collect()
    }

    #[tokio::test]
    async fn a_protected_directory_stays_with_its_contents_and_no_other() {
        let sample = Sample::of(job(Verb::Sync, |_| {})).with(first_match(&["P a/"], &[], None));
        let steps = walk(&extras(&sample), &["a-b", "a/", "a/b", "a/b/", "a/b/c", "ab", "b/", "b/a"]).await;
        assert_eq!(steps, deleted(&["a-b", "ab", "b/", "b/a"]));
    }

    #[tokio::test]
    async fn perishable_rules_do_not_hold_in_a_directory_that_goes() {
        let sample = Sample::of(job(Verb::Sync, |_| {})).with(first_match(&["Pp k"], &[], None));
        let steps = walk(&extras(&sample), &["a-b/", "a/", "a/b/", "a/b/k", "a/k", "k"]).await;
        assert_eq!(steps, deleted(&["a-b/", "a/", "a/b/", "a/b/k", "a/k"]));
    }

    #[tokio::test]
    async fn the_contents_of_a_replaced_directory_go_with_it() {
        let src = disk();
        put(&src, "a").await;
        let steps_of = async |dry_run| {
            let job = job(Verb::Sync, |job| {
                (job.dry_run, job.existing.other_kinds) = (dry_run, OtherKinds::Replace);
            });
            walk(&extras(&Sample::new(job, src.clone(), disk())), &["a/", "a/b", "a/c/", "b"]).await
        };
        assert_eq!(steps_of(false).await, deleted(&["b"]));
        assert_eq!(steps_of(true).await, deleted(&["a/b", "a/c/", "b"]), "a dry run tells of them");
    }

    #[tokio::test]
    async fn below_the_depth_limit_everything_goes_if_the_job_says_so() {
        let dst = MemStore::new();
        for key in ["a/b", "a/c/d"] {
            put(&dst, key).await;
        }
        let steps_of = async |below| {
            let job = job(Verb::Sync, |job| {
                (job.listing.max_depth, job.deletes.below_max_depth) = (Some(1), below);
            });
            walk(&extras(&Sample::new(job, MemStore::new(), dst.clone())), &["a/"]).await
        };
        assert_eq!(steps_of(false).await, deleted(&["a/"]));
        assert_eq!(steps_of(true).await, deleted(&["a/b", "a/c/d", "a/"]));
    }

    #[tokio::test]
    async fn a_copy_tells_of_extra_files_only_where_they_are_asked_for() {
        let steps_of =
            async |extra| walk(&extras(&Sample::of(job(Verb::Copy, |job| job.tell.extra = extra))), &["a"]).await;
        assert_eq!(steps_of(false).await, []);
        assert_eq!(steps_of(true).await, [(Action::Keep, "a".to_string())]);
    }

    #[tokio::test]
    async fn one_that_may_be_renamed_waits() {
        let sample = Sample::of(job(Verb::Sync, |_| {}));
        let by = RenameBy { hash: false, leaf: false, mtime: false };
        let renames = Arc::new(Renames::new(by));
        let kinds = Arc::new(Kinds::new(sample.parts(), &Arc::default()));
        let extras = Extras::new(sample.parts(), &kinds, &Some(renames.clone()));
        assert_eq!(walk(&extras, &["a"]).await, []);
        let rules = crate::decide::rules(&sample.job, &sample.cx.src, &sample.cx.dst);
        assert_eq!(renames.settle(&sample.cx, &rules).await.extra, [file("a")]);
    }
}
