//! Targets of the source's symlinks: those that are reported, and those that point out of the transferred tree (`--safe-links`).

use crate::{Cx, ledger::Ledger, namesakes::target};
use haul_core::{
    Entry,
    event::Event,
    job::{Job, LinkTargets},
    links,
    plan::Action,
};
use std::sync::Arc;

/// Reads targets as far as a job asks for them.
pub(super) struct Symlinks {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
}

impl Symlinks {
    /// Nothing was read yet.
    pub fn new((job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>)) -> Symlinks {
        Symlinks { job: job.clone(), cx: cx.clone(), ledger: ledger.clone() }
    }

    /// True for a symlink that is read before the decision: because `--safe-links` may leave it out, or because its target is
    /// reported.
    pub fn is_read(&self, src: &Entry, action: Action) -> bool {
        src.is_symlink() && (self.job.links.safe.is_some() || tells_target(self.job.tell.targets, action))
    }

    /// Reads the target of a symlink if it is reported. Only of symlinks on a disk, which cost no request.
    pub async fn read(&self, src: &mut Entry, action: Action) {
        if !src.is_symlink() || !tells_target(self.job.tell.targets, action) {
            return;
        }
        if let Some(posix) = src.posix.as_mut().filter(|posix| posix.target.is_none()) {
            // If it can't be read, the error comes when it is copied.
            posix.target = target(&self.cx.src, &src.key).await.ok().flatten().map(Vec::into_boxed_slice);
        }
    }

    /// True for a symlink that `--safe-links` leaves out, after reporting it.
    pub async fn is_unsafe(&self, src: &Entry) -> bool {
        match self.job.links.safe {
            Some(depth) if src.is_symlink() => self.leads_out(src, depth).await,
            _ => false,
        }
    }

    /// True for a symlink that points out of the tree, after reporting it; `depth` directories of the tree are above the root.
    async fn leads_out(&self, src: &Entry, depth: usize) -> bool {
        let target = match target(&self.cx.src, &src.key).await {
            Ok(Some(target)) => target,
            Ok(None) => return false,
            Err(error) => {
                self.ledger.error(error.with_key(&src.key));
                return true;
            }
        };
        let slashes = src.key.as_bytes().iter().filter(|b| **b == b'/').count();
        let out = links::leads_out(&target, depth + slashes);
        if out {
            let target = String::from_utf8_lossy(&target).into_owned();
            self.ledger.tell(Event::UnsafeLink { key: src.key.clone(), target });
        }
        out
    }
}

fn tells_target(targets: LinkTargets, action: Action) -> bool {
    match targets {
        LinkTargets::None => false,
        LinkTargets::OfChanges => action != Action::Keep,
        LinkTargets::OfAll => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, file, job, symlink};
    use haul_core::job::Verb;

    fn reads(change: impl FnOnce(&mut Job), entry: &Entry, action: Action) -> bool {
        Symlinks::new(Sample::of(job(Verb::Copy, change)).parts()).is_read(entry, action)
    }

    #[test]
    fn a_symlink_is_read_where_its_target_is_told_or_may_be_unsafe() {
        let link = symlink("a");
        assert!(!reads(|_| {}, &link, Action::Copy));
        assert!(reads(|job| job.links.safe = Some(0), &link, Action::Keep));
        assert!(reads(|job| job.tell.targets = LinkTargets::OfAll, &link, Action::Keep));
        assert!(reads(|job| job.tell.targets = LinkTargets::OfChanges, &link, Action::Copy));
        assert!(!reads(|job| job.tell.targets = LinkTargets::OfChanges, &link, Action::Keep));
        assert!(!reads(|job| job.links.safe = Some(0), &file("a"), Action::Copy));
    }

    #[tokio::test]
    async fn one_that_cannot_be_read_counts_as_unsafe_and_is_an_error() {
        let sample = Sample::of(job(Verb::Copy, |job| job.links.safe = Some(0)));
        let symlinks = Symlinks::new(sample.parts());
        assert!(!symlinks.is_unsafe(&file("a")).await);
        assert_eq!(sample.errors(), 0);
        assert!(symlinks.is_unsafe(&symlink("a")).await);
        assert_eq!(sample.errors(), 1);
    }
}
