//! Completes the decision about a file: checks it, looks for alternate destinations, and adds what is reported.

use super::{alternates::Alternates, apart::Apart, comparison::Comparison, symlinks::Symlinks};
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
