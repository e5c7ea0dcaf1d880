//! Proof that a source and its place at the destination are two files, where one could be the other under another name.

use crate::{Cx, overlap};
use haul_core::{
    Entry, Error, ErrorKind, Key, Result,
    job::{Job, Lookup},
};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Guards files that have two names.
pub(super) struct Apart {
    job: Arc<Job>,
    cx: Cx,
    /// Source and destination are proved to be different places.
    proved: Mutex<bool>,
}

impl Apart {
    /// Nothing is proved yet.
    pub fn new(job: &Arc<Job>, cx: &Cx) -> Apart {
        Apart { job: job.clone(), cx: cx.clone(), proved: Mutex::default() }
    }

    /// Checks that a file to be moved isn't itself the file `to` of the destination, reached by another path: it would be deleted
    /// after "arriving". With `--no-check-dest` the destination is asked about the first file only: if one side is missing it or has
    /// another file, the two are different places for all files.
    ///
    /// Errors: `Invalid`; those of asking.
    pub async fn check(&self, src: &Entry, to: &Key, dst: Option<&Entry>) -> Result<()> {
        let message = "source and destination are the same file under two names: moving it would delete it";
        let same = || Err(Error::new(ErrorKind::Invalid, "move", message).with_key(&src.key));
        if dst.is_some_and(|dst| overlap::one_file(&self.cx, src, to, dst)) {
            return same();
        }
        if self.job.listing.lookup != Lookup::Never || !overlap::could_be_one(&self.cx, &src.key, to) {
            return Ok(());
        }
        let mut proved = self.proved.lock().await;
        if *proved {
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
        *proved = true;
        Ok(())
    }

    /// Where symlinks of the destination stay, two names of the source may be the same place there.
    ///
    /// Errors: `Exists`, for a file that this run may have written.
    pub fn check_not_behind_link(&self, there: &Entry) -> Result<()> {
        let began = self.job.existing.began.filter(|_| self.job.links.keep_dirlinks);
        if began.is_none_or(|began| there.changed.is_none_or(|changed| changed < began)) {
            return Ok(());
        }
        let message =
            "this name leads, through a symbolic link of the destination, to a file that was copied in this run";
        Err(Error::new(ErrorKind::Exists, "write", message).with_key(&there.key))
    }
}
