//! Directories of the source, and the job's root: which are on both sides, which are new, and how they differ.

use super::{
    Outlet, alternates::Alternates, comparison::Comparison, dirlinks::Dirlinks, kinds::Kinds, listings::asks_each,
    outermost::Outermost,
};
use crate::{Cx, ledger::Ledger};
use haul_core::{
    Entry, Key,
    compare::Reason,
    event::{Event, Facts, LeftOut},
    job::{Job, Root},
    plan::{Action, Step},
};
use std::sync::Arc;

/// Decides about directories that the source has.
pub(crate) struct SourceDirs {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    comparison: Arc<Comparison>,
    alternates: Arc<Alternates>,
    kinds: Arc<Kinds>,
    dirlinks: Arc<Dirlinks>,
    /// Those that are missing from the destination.
    new: Outermost,
}

/// A directory on both sides.
pub(super) fn both_dirs(src: Entry, dst: Entry) -> Step {
    Step::new(Action::Keep, Some(src), Some(dst), Reason::Mtime)
}

/// A directory of the destination that keeps what it has.
pub(super) fn kept_dir(dst: Entry) -> Step {
    Step::new(Action::Keep, None, Some(dst), Reason::Existing)
}

impl SourceDirs {
    /// None was met yet.
    pub(super) fn new(
        (job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>),
        (comparison, alternates): (&Arc<Comparison>, &Arc<Alternates>),
        (kinds, dirlinks): (&Arc<Kinds>, &Arc<Dirlinks>),
    ) -> SourceDirs {
        SourceDirs {
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            comparison: comparison.clone(),
            alternates: alternates.clone(),
            kinds: kinds.clone(),
            dirlinks: dirlinks.clone(),
            new: Outermost::default(),
        }
    }

    /// Decides about the job's root, if it is part of the transfer.
    pub async fn root(&self, out: &impl Outlet) {
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
                self.make(src.clone(), out).await;
            }
            self.seen(&src, dst.as_ref()).await;
            // Writing into it changes its time, so the time is set in any case.
            let there = Entry { mtime: None, ..src.clone() };
            out.take(both_dirs(src, there)).await;
        }
    }

    /// True for a directory of the destination whose attributes don't come from this source.
    pub fn keeps_own_attributes(&self, dir: &Key) -> bool {
        self.job.deletes.alone || self.cx.filter.is_of_earlier_source(dir)
    }

    /// Reports a directory of the source and how the destination's differs.
    pub async fn seen(&self, src: &Entry, dst: Option<&Entry>) {
        if !self.job.tell.details {
            return;
        }
        let mut differs = self.comparison.difference(src, dst);
        let mut elsewhere = false;
        if differs.new
            && let Some(found) = self.alternates.dir(&src.key).await
        {
            (differs, elsewhere) = (self.comparison.difference(src, Some(&found)), true);
        }
        self.ledger.tell(Event::DirSeen { key: src.key.clone(), differs, elsewhere, facts: Facts::of(src) });
    }

    /// Decides about a directory that only the source has: it is created unless nothing new may be, and something of another kind
    /// at its name is replaced.
    pub async fn missing(&self, src: Entry, out: &impl Outlet) {
        if !self.job.existing.other_kinds.are_replaced() {
            // Where keys are asked for one by one, directories weren't asked for.
            let there = match asks_each(&self.job, &self.cx.filter) {
                true => self.cx.dst.stat(&src.key).await.ok(),
                false => None,
            };
            return match there {
                Some(dst) => out.take(both_dirs(src, dst)).await,
                None => self.make(src, out).await,
            };
        }
        if self.job.existing.only && !self.kinds.is_there(&src.key).await {
            return self.ledger.left_out(&src, LeftOut::New);
        }
        if self.job.dry_run && self.keeps_own_attributes(&src.key) {
            return;
        }
        if self.dirlinks.keeps(&src).await {
            return;
        }
        if self.job.existing.ignore && self.kinds.is_there(&src.key).await {
            return self.dirlinks.close(&src.key);
        }
        self.seen(&src, None).await;
        self.make(src, out).await;
    }

    async fn make(&self, src: Entry, out: &impl Outlet) {
        self.new.note(&src.key);
        out.take(Step::new(Action::MakeDir, Some(src), None, Reason::Missing)).await;
    }

    /// True for a directory that is known to be missing from the destination, as far as the walk has come.
    pub fn is_new(&self, dir: &Key) -> bool {
        self.new.holds(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, Taken, dir, disk, job, put};
    use haul_core::job::{OtherKinds, Verb};
    use haul_mem::MemStore;

    fn source_dirs(sample: &Sample) -> SourceDirs {
        let of = sample.parts();
        let comparison = Arc::new(Comparison::new(of, &Arc::default(), None));
        let alternates = Arc::new(Alternates::new((of.0, of.1), &Arc::default(), &comparison));
        let kinds = Arc::new(Kinds::new(of, &Arc::default()));
        SourceDirs::new(of, (&comparison, &alternates), (&kinds, &Arc::new(Dirlinks::new(of))))
    }

    async fn sample(change: impl FnOnce(&mut Job), there: &[&str]) -> Sample {
        let dst = disk();
        for key in there {
            put(&dst, key).await;
        }
        Sample::new(job(Verb::Copy, change), disk(), dst)
    }

    fn replacing(job: &mut Job) {
        job.existing.other_kinds = OtherKinds::Replace;
    }

    #[tokio::test]
    async fn what_is_below_a_missing_directory_is_new() {
        let (sample, out) = (sample(|_| {}, &[]).await, Taken::default());
        let dirs = source_dirs(&sample);
        for key in ["a-b/", "a/", "a/b/"] {
            dirs.missing(dir(key), &out).await;
        }
        let is_new = |key: &str| dirs.is_new(&Key::new(key));
        assert!(is_new("a/") && is_new("a/b/") && is_new("a/c/"));
        assert!(!is_new("") && !is_new("ab/"));
        let made = |key: &str| (Action::MakeDir, key.to_string());
        assert_eq!(out.steps(), ["a-b/", "a/", "a/b/"].map(made));
    }

    #[tokio::test]
    async fn nothing_new_is_made_unless_it_replaces_something() {
        let only = |job: &mut Job| (job.existing.other_kinds, job.existing.only) = (OtherKinds::Replace, true);
        let (sample, out) = (sample(only, &["a"]).await, Taken::default());
        let dirs = source_dirs(&sample);
        dirs.missing(dir("a/"), &out).await;
        dirs.missing(dir("b/"), &out).await;
        assert_eq!(out.steps(), [(Action::MakeDir, "a/".to_string())]);
        assert!(!dirs.is_new(&Key::new("b/")));
    }

    #[tokio::test]
    async fn a_directory_whose_name_something_else_keeps_is_an_error() {
        let ignore = |job: &mut Job| (job.existing.other_kinds, job.existing.ignore) = (OtherKinds::Replace, true);
        for (change, errors) in [(ignore as fn(&mut Job), 1), (replacing, 0)] {
            let (sample, out) = (sample(change, &["a"]).await, Taken::default());
            source_dirs(&sample).missing(dir("a/"), &out).await;
            assert_eq!((sample.errors(), out.steps().len()), (errors, 1 - errors as usize));
        }
    }

    #[tokio::test]
    async fn the_root_takes_part_only_where_it_is_included() {
        let steps = async |root, alone| {
            let job = job(Verb::Sync, |job| (job.dirs.root, job.deletes.alone) = (root, alone));
            let (sample, out) = (Sample::new(job, MemStore::new(), MemStore::new()), Taken::default());
            source_dirs(&sample).root(&out).await;
            out.steps().len()
        };
        assert_eq!(steps(Root::Excluded, false).await, 0);
        assert_eq!(steps(Root::Included, false).await, 1);
        assert_eq!(steps(Root::Excluded, true).await, 1, "it keeps its own attributes");
    }
}
