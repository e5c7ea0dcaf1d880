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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, file, job, put};
    use haul_core::{Mtime, job::Verb};
    use haul_mem::MemStore;
    use haul_store::Store;

    /// A move within one bucket, or from one to another.
    fn apart(one: bool, lookup: Lookup, here: &MemStore) -> Apart {
        // Services that say nothing of who they are.
        let store = |store: MemStore| store.with_caps(|caps| caps.domain = None);
        let there = if one { here.clone() } else { MemStore::new() };
        let sample = Sample::new(job(Verb::Move, |job| job.listing.lookup = lookup), store(here.clone()), store(there));
        Apart::new(&sample.job, &sample.cx)
    }

    async fn error_of(apart: &Apart, src: &Entry, dst: Option<&Entry>) -> Option<ErrorKind> {
        apart.check(src, &src.key, dst).await.err().map(|error| error.kind())
    }

    #[tokio::test]
    async fn a_file_is_not_moved_onto_itself() {
        let here = MemStore::new();
        put(&here, "a").await;
        let entry = here.stat(&Key::new("a")).await.unwrap();
        let apart = apart(true, Lookup::default(), &here);
        assert_eq!(error_of(&apart, &entry, Some(&entry)).await, Some(ErrorKind::Invalid));
        let other = Entry { version: None, ..entry.clone() };
        assert_eq!(error_of(&apart, &entry, Some(&other)).await, None);
        assert_eq!(error_of(&apart, &entry, None).await, None, "the destination was looked at, and has none");
    }

    #[tokio::test]
    async fn a_destination_that_is_not_looked_at_is_asked_about_the_first_file_only() {
        let here = MemStore::new();
        for key in ["a", "b"] {
            put(&here, key).await;
        }
        let (a, b) = (here.stat(&Key::new("a")).await.unwrap(), here.stat(&Key::new("b")).await.unwrap());
        let one = apart(true, Lookup::Never, &here);
        assert_eq!(error_of(&one, &a, None).await, Some(ErrorKind::Invalid));
        assert_eq!(error_of(&one, &file("none"), None).await, Some(ErrorKind::NotFound), "which proves nothing");
        assert_eq!(error_of(&one, &b, None).await, Some(ErrorKind::Invalid));
        let two = apart(false, Lookup::Never, &here);
        assert_eq!(error_of(&two, &file("none"), None).await, Some(ErrorKind::NotFound));
        assert_eq!(error_of(&two, &a, None).await, None);
        assert_eq!(error_of(&two, &file("none"), None).await, None, "nobody is asked any more");
    }

    #[test]
    fn what_this_run_may_have_written_is_not_written_again_through_a_symlink() {
        let error_for = |keep_dirlinks, changed: Option<i128>| {
            let job = job(Verb::Copy, |job| {
                (job.existing.began, job.links.keep_dirlinks) = (Some(Mtime(10)), keep_dirlinks);
            });
            let sample = Sample::of(job);
            let there = Entry { changed: changed.map(Mtime), ..file("a") };
            Apart::new(&sample.job, &sample.cx).check_not_behind_link(&there).is_err()
        };
        assert!(error_for(true, Some(10)));
        assert!(!error_for(true, Some(9)) && !error_for(true, None) && !error_for(false, Some(10)));
    }
}
