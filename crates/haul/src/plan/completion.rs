//! Completes the decision about a file: checks it, looks for alternate destinations, and adds what is reported.

use super::{alternates::Alternates, comparison::Comparison, distinct_files::Apart, symlinks::Symlinks};
use crate::{Cx, ledger::Ledger};
use haul_core::{
    Entry, Error, ErrorKind, Key,
    job::Job,
    plan::{Action, Step},
};
use std::sync::Arc;

/// Completes steps.
pub(super) struct Completion {
    job: Arc<Job>,
    ledger: Arc<Ledger>,
    comparison: Arc<Comparison>,
    alternates: Arc<Alternates>,
    symlinks: Arc<Symlinks>,
    apart: Apart,
}

/// The error for a file that exists and differs where `--immutable` forbids to change it.
pub(crate) fn forbidden(key: &Key) -> Error {
    let message = "it exists and differs, and --immutable forbids to change it";
    Error::new(ErrorKind::Exists, "copy", message).with_key(key)
}

impl Completion {
    /// Nothing was checked yet.
    pub fn new(
        (job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>),
        (comparison, alternates, symlinks): (&Arc<Comparison>, &Arc<Alternates>, &Arc<Symlinks>),
    ) -> Completion {
        Completion {
            job: job.clone(),
            ledger: ledger.clone(),
            comparison: comparison.clone(),
            alternates: alternates.clone(),
            symlinks: symlinks.clone(),
            apart: Apart::new(job, cx),
        }
    }

    /// Completes what was decided about a file; false if it can't be done, which is reported.
    pub async fn complete(&self, step: &mut Step) -> bool {
        let Some(src) = &step.src else { return false };
        let (to, dst) = (step.to.as_ref().unwrap_or(&src.key), step.dst.as_ref());
        if self.job.moves()
            && let Err(error) = Box::pin(self.apart.check(src, to, dst)).await
        {
            self.ledger.error(error);
            return false;
        }
        if let Some(Err(error)) = dst.map(|dst| self.apart.check_not_behind_link(dst)) {
            self.ledger.error(error);
            return false;
        }
        let elsewhere = match self.alternates.are_of_use(step.action, step.why, dst) {
            true => Box::pin(self.alternates.find(src, to, dst, 0)).await,
            false => None,
        };
        let basis = match self.asks_for_basis(step.action, dst) && elsewhere.is_none() {
            true => Box::pin(self.alternates.basis(src, to)).await,
            false => None,
        };
        // The attributes of a hard link were examined under its first name.
        step.look = step.action == Action::Keep && self.comparison.must_look(step.why);
        step.differs = self.comparison.difference(src, basis.as_ref().or(dst));
        step.elsewhere = elsewhere.map(Box::new);
        let action = if step.look { Action::Touch } else { step.action };
        if let Some(src) = &mut step.src {
            self.symlinks.read(src, action).await;
        }
        true
    }

    /// True for a missing file: where it isn't taken from an alternate destination, that may have one to compare with.
    fn asks_for_basis(&self, action: Action, dst: Option<&Entry>) -> bool {
        action == Action::Copy && dst.is_none() && self.alternates.any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attributes::Attributes,
        samples::{Sample, file, job, put},
    };
    use haul_core::{
        Entry,
        compare::Reason,
        job::{CompareBy, Verb},
        keep::Keep,
    };
    use haul_mem::MemStore;
    use haul_store::Store;

    fn completion(sample: &Sample, keep: Option<Keep>) -> Completion {
        let attributes = Arc::new(keep.map_or_else(Attributes::default, Attributes::keeping));
        let (job, cx, _) = sample.parts();
        let comparison = Arc::new(Comparison::new(sample.parts(), &attributes, None));
        let alternates = Arc::new(Alternates::new((job, cx), &attributes, &comparison));
        Completion::new(sample.parts(), (&comparison, &alternates, &Arc::new(Symlinks::new(sample.parts()))))
    }

    #[tokio::test]
    async fn unchanged_files_are_looked_at_where_no_listing_has_all_attributes() {
        let looks = async |keep, action, why| {
            let sample = Sample::of(job(Verb::Copy, |_| {}));
            let mut step = Step::new(action, Some(file("a")), Some(file("a")), why);
            assert!(completion(&sample, keep).complete(&mut step).await);
            step.look
        };
        let inside = || Some(Keep { xattrs: true, ..Keep::default() });
        assert!(looks(inside(), Action::Keep, Reason::Mtime).await);
        assert!(!looks(inside(), Action::Keep, Reason::Newer).await);
        assert!(!looks(inside(), Action::Copy, Reason::Mtime).await);
        assert!(!looks(None, Action::Keep, Reason::Mtime).await);
    }

    #[tokio::test]
    async fn a_file_that_would_be_moved_onto_itself_is_an_error_and_no_step() {
        let store = MemStore::new();
        put(&store, "a").await;
        let entry = store.stat(&Key::new("a")).await.unwrap();
        for (verb, errors) in [(Verb::Move, 1), (Verb::Copy, 0)] {
            let sample = Sample::new(job(verb, |_| {}), store.clone(), store.clone());
            let mut step = Step::new(Action::Keep, Some(entry.clone()), Some(entry.clone()), Reason::Mtime);
            assert_eq!(completion(&sample, None).complete(&mut step).await, errors == 0);
            assert_eq!(sample.errors(), errors);
        }
    }

    #[tokio::test]
    async fn an_alternate_destination_goes_into_the_step() {
        let by_size = job(Verb::Copy, |job| job.compare.by = CompareBy::SizeOnly);
        let (mut sample, place) = (Sample::of(by_size), MemStore::new());
        put(&place, "a").await;
        sample.cx.copy_dest.push(Arc::new(place));
        let completion = completion(&sample, None);
        for (size, found) in [(1, true), (2, false)] {
            let src = Entry { size, ..file("a") };
            let mut step = Step::new(Action::Copy, Some(src), None, Reason::Missing);
            assert!(completion.complete(&mut step).await);
            assert_eq!(step.elsewhere.is_some(), found);
        }
    }
}
