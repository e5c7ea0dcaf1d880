//! Completes the decision about a file: checks it, looks for alternate destinations, and adds what is reported.

use super::{Outlet, Planner};
use crate::overlap;
use haul_core::{
    Entry, Error, ErrorKind, Key, Result,
    job::Lookup,
    plan::{Action, Step},
};

/// The error for a file that exists and differs where `--immutable` forbids to change it.
pub(crate) fn forbidden(key: &Key) -> Error {
    let message = "it exists and differs, and --immutable forbids to change it";
    Error::new(ErrorKind::Exists, "copy", message).with_key(key)
}

impl Planner {
    /// Completes what was decided about a file and passes it on.
    pub async fn file(&self, mut step: Step, out: &impl Outlet) {
        let Some(src) = &step.src else { return };
        let (to, dst) = (step.to.as_ref().unwrap_or(&src.key), step.dst.as_ref());
        if self.job.moves()
            && let Err(error) = Box::pin(self.two_files(src, to, dst)).await
        {
            return self.ledger.error(error);
        }
        if let Some(Err(error)) = dst.map(|dst| self.check_not_behind_link(dst)) {
            return self.ledger.error(error);
        }
        let elsewhere = match self.is_elsewhere_of_use(step.action, step.why, dst) {
            true => Box::pin(self.found_elsewhere(src, to, dst, 0)).await,
            false => None,
        };
        let basis = match step.action == Action::Copy && dst.is_none() && self.looks_elsewhere() && elsewhere.is_none()
        {
            true => Box::pin(self.basis_elsewhere(src, to)).await,
            false => None,
        };
        // The attributes of a hard link were examined under its first name.
        step.look = step.action == Action::Keep && self.must_look(step.why);
        step.differs = self.attributes.difference(&self.rules(), src, basis.as_ref().or(dst));
        step.elsewhere = elsewhere.map(Box::new);
        let (action, look) = (step.action, step.look);
        if let Some(src) = &mut step.src {
            self.read_link(src, if look { Action::Touch } else { action }).await;
        }
        out.take(step).await;
    }

    /// Where symlinks of the destination stay, two names of the source may be the same place there.
    ///
    /// Errors: `Exists`, for a file that this run may have written.
    fn check_not_behind_link(&self, there: &Entry) -> Result<()> {
        let began = self.job.existing.began.filter(|_| self.job.links.keep_dirlinks);
        if began.is_none_or(|began| there.changed.is_none_or(|changed| changed < began)) {
            return Ok(());
        }
        let message =
            "this name leads, through a symbolic link of the destination, to a file that was copied in this run";
        Err(Error::new(ErrorKind::Exists, "write", message).with_key(&there.key))
    }

    /// Checks that a file to be moved isn't itself the file `to` of the destination, reached by another path: it would be deleted
    /// after "arriving". With `--no-check-dest` the destination is asked about the first file only: if one side is missing it or has
    /// another file, the two are different places for all files.
    ///
    /// Errors: `Invalid`; those of asking.
    async fn two_files(&self, src: &Entry, to: &Key, dst: Option<&Entry>) -> Result<()> {
        let message = "source and destination are the same file under two names: moving it would delete it";
        let same = || Err(Error::new(ErrorKind::Invalid, "move", message).with_key(&src.key));
        if dst.is_some_and(|dst| overlap::one_file(&self.cx, src, to, dst)) {
            return same();
        }
        if self.job.listing.lookup != Lookup::Never || !overlap::could_be_one(&self.cx, &src.key, to) {
            return Ok(());
        }
        let mut apart = self.apart.lock().await;
        if *apart {
            return Ok(());
        }
        // Both in the same way: some services list a file with another version than they give when asked for it.
        let (there, here) = tokio::join!(self.cx.dst.stat(to), self.cx.src.stat(&src.key));
        match (there, here) {
            (Ok(there), Ok(here)) if overlap::one_file(&self.cx, &here, to, &there) => return same(),
            (Ok(_), Ok(_)) => {}
            (Err(error), Ok(_)) if error.is_missing() => {}
            (Err(error), Ok(_)) => return Err(error.with_key(to)),
            // The source is missing: that says nothing about the other files.
            (_, Err(error)) => return Err(error.with_key(&src.key)),
        }
        *apart = true;
        Ok(())
    }
}
