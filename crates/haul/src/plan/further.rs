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
