//! Files with several names: which name of the source is the first of its file, and what becomes of the further ones once the first
//! is settled.

use super::{Outlet, alternates::Alternates, comparison::Comparison, symlinks::Symlinks};
use crate::{
    attributes::Attributes,
    hard_links::{HardLinks, Inode, Name, inode},
    ledger::Ledger,
};
use haul_core::{
    Entry, Key,
    attributes::Differs,
    compare::{Difference, Reason},
    job::Job,
    plan::{self, Action, Step},
};
use std::sync::Arc;

/// Decides about further names of files.
pub(crate) struct FurtherNames {
    job: Arc<Job>,
    ledger: Arc<Ledger>,
    comparison: Arc<Comparison>,
    alternates: Arc<Alternates>,
    symlinks: Arc<Symlinks>,
    /// The source's files with several names, which the executor links.
    links: Arc<HardLinks>,
    /// The job keeps hard links.
    kept: bool,
}

impl FurtherNames {
    /// None was met yet.
    pub(super) fn new(
        (job, ledger): (&Arc<Job>, &Arc<Ledger>),
        attributes: &Attributes,
        (comparison, alternates, symlinks): (&Arc<Comparison>, &Arc<Alternates>, &Arc<Symlinks>),
    ) -> FurtherNames {
        FurtherNames {
            job: job.clone(),
            ledger: ledger.clone(),
            comparison: comparison.clone(),
            alternates: alternates.clone(),
            symlinks: symlinks.clone(),
            links: Arc::default(),
            kept: attributes.hard_links(),
        }
    }

    /// The source's files with several names.
    pub fn links(&self) -> &Arc<HardLinks> {
        &self.links
    }

    /// Holds back a further name of a file with several names; returns all other files.
    pub async fn first(&self, src: Entry, dst: Option<Entry>, out: &impl Outlet) -> Option<(Entry, Option<Entry>)> {
        if !self.kept || self.links.is_first(&src) {
            return Some((src, dst));
        }
        self.ledger.report().totals.checks += 1;
        if let Some(mut src) = self.links.wait(src, dst) {
            self.symlinks.read(&mut src, Action::Keep).await;
            let differs = Difference::of(&src, Differs::default());
            out.take(Step { differs, ..Step::new(Action::Keep, Some(src), None, Reason::Linked) }).await;
        }
        None
    }

    /// True when the destination's file must be made anew, because it is hard-linked to a name of another file.
    pub fn is_mixed_up(&self, src: &Entry, dst: &Entry) -> bool {
        self.kept && self.links.is_mixed_up(src, dst)
    }

    /// Decides about a further name of the file that is, or will be, `first` at the destination: the inode `there`, where it is
    /// unchanged.
    pub async fn step(&self, first: Key, there: Option<Inode>, name: Name) -> Step {
        let Name { mut src, dst } = name;
        let linked = dst.as_ref().and_then(|dst| dst.posix.as_deref()).map(inode);
        let (action, why) = plan::link(&src, dst.as_ref(), there.is_some() && linked == there, &self.job);
        let found = match &dst {
            None => self.alternates.further_name(&first, &src).await,
            Some(_) => None,
        };
        // Another place that is linked to has this name of it too.
        let why = if found.is_some() && self.job.elsewhere.link { Reason::Size } else { why };
        let differs = self.comparison.difference(&src, found.as_ref().or(dst.as_ref()));
        self.symlinks.read(&mut src, action).await;
        let link_to = (action == Action::Link).then_some(first);
        Step { differs, link_to, ..Step::new(action, Some(src), dst, why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, Taken, file, job, posix};
    use haul_core::{job::Verb, keep::Keep};

    fn further(sample: &Sample, hard_links: bool) -> FurtherNames {
        let attributes = Arc::new(Attributes::keeping(Keep { hard_links, ..Keep::default() }));
        let (job, cx, ledger) = sample.parts();
        let comparison = Arc::new(Comparison::new(sample.parts(), &attributes, None));
        let alternates = Arc::new(Alternates::new((job, cx), &attributes, &comparison));
        let symlinks = Arc::new(Symlinks::new(sample.parts()));
        FurtherNames::new((job, ledger), &attributes, (&comparison, &alternates, &symlinks))
    }

    fn name(key: &str, ino: u64) -> Entry {
        Entry { posix: posix(ino, 2), ..file(key) }
    }

    #[tokio::test]
    async fn a_further_name_waits_where_hard_links_are_kept() {
        for hard_links in [true, false] {
            let (sample, out) = (Sample::of(job(Verb::Copy, |_| {})), Taken::default());
            let further = further(&sample, hard_links);
            assert!(further.first(name("a", 1), None, &out).await.is_some());
            assert!(further.first(name("b", 2), None, &out).await.is_some());
            assert_eq!(further.first(name("c", 1), None, &out).await.is_none(), hard_links);
            assert_eq!((out.steps().len(), further.links().turn().first.len()), (0, usize::from(hard_links)));
        }
    }

    #[tokio::test]
    async fn a_name_that_is_linked_already_is_kept_at_once() {
        let (sample, out) = (Sample::of(job(Verb::Copy, |_| {})), Taken::default());
        let further = further(&sample, true);
        further.first(name("a", 1), None, &out).await;
        further.links().there(&name("a", 1), Some(&name("a", 7)));
        assert!(further.first(name("b", 1), Some(name("b", 7)), &out).await.is_none());
        assert_eq!(out.steps(), [(Action::Keep, "b".to_string())]);
        assert!(further.links().turn().is_empty());
    }

    #[tokio::test]
    async fn a_step_links_to_the_first_name_unless_it_is_linked() {
        let further = further(&Sample::of(job(Verb::Copy, |_| {})), true);
        let step = async |dst: Option<Entry>| {
            let waited = Name { src: name("b", 1), dst };
            further.step(Key::new("a"), Some(((0, 0), 7)), waited).await
        };
        let (new, other, same) = (step(None).await, step(Some(name("b", 8))).await, step(Some(name("b", 7))).await);
        assert_eq!((new.action, new.link_to), (Action::Link, Some(Key::new("a"))));
        assert_eq!((other.action, other.link_to), (Action::Link, Some(Key::new("a"))));
        assert_eq!((same.action, same.link_to), (Action::Keep, None));
    }
}
