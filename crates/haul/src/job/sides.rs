//! The two sides of a job: their roots, and how each is listed or looked through.

use super::Run;
use crate::{
    ListOptions, list, overlap,
    pairs::{ListSrc, Pairs},
    presence,
};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Result, filter::Filter};
use haul_store::WriteSpec;
use std::sync::Arc;

impl Run {
    /// Creates the destination's folder, so that listing it gives nothing rather than an error. A bucket is created by
    /// the first write.
    pub(super) async fn prepare_root(&self) -> Result<()> {
        if self.policy.dry_run || !self.cx.dst.caps().dirs {
            return Ok(());
        }
        // Only for a source that is there: a mistyped source must not leave an empty folder behind.
        if !self.cx.src.caps().dirs {
            self.see_prefix().await?;
        } else {
            let top = self.cx.src.stat(&Key::new("")).await?;
            if self.policy.rsync.is_some() && self.takes_top() && self.dirs.is_new(&top.key) {
                self.close_at_once(&top).await;
            }
            if self.attributes.keep.is_some() && self.takes_top() && !self.is_anothers(&top.key) {
                // As it is now: a move changes its time.
                self.dirs.src_only(top);
            }
        }
        // Not where some of what is made gets no permissions of its own in the end.
        let hides = !self.asks_each() && (self.takes_top() || !self.cx.filter.has_bare_way());
        let keep = self.attributes.keep.clone().filter(|_| hides);
        if !self.takes_top() {
            // It keeps the permissions with which it is made; what is made in it gets its own.
            self.cx.dst.make_dir(&Key::new(""), &WriteSpec::default()).await?;
        }
        self.cx.dst.make_dir(&Key::new(""), &WriteSpec { keep, ..WriteSpec::default() }).await
    }

    /// Where the source's folders are only beginnings of keys: that there are such keys, before a folder is made for them. Asked only
    /// where one is to be made; what else is wrong is told when they are listed.
    async fn see_prefix(&self) -> Result<()> {
        let root = Key::new("");
        match self.cx.dst.stat(&root).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {}
            _ => return Ok(()),
        }
        match self.cx.src.stat(&root).await {
            Err(error) if error.kind() == ErrorKind::DirNotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// That a file to be moved isn't the one that is there under the name `to`, reached in two ways: it would be deleted once it is
    /// "there". Where the destination isn't looked at (`--no-check-dest`) it is asked about the first file: two places of which one
    /// lacks a file of the other, or has another, are two for all files.
    ///
    /// Errors: `Invalid`; those of asking.
    pub(super) async fn two_files(&self, src: &Entry, to: &Key, dst: Option<&Entry>) -> Result<()> {
        let message = "source and destination are the same file under two names: moving it would delete it";
        let same = || Err(Error::new(ErrorKind::Invalid, "move", message).with_key(&src.key));
        if dst.is_some_and(|dst| overlap::one_file(&self.cx, src, to, dst)) {
            return same();
        }
        if !self.policy.no_check_dest || !overlap::could_be_one(&self.cx, &src.key, to) {
            return Ok(());
        }
        let mut apart = self.apart.lock().await;
        if *apart {
            return Ok(());
        }
        // Both in the same way: not every service lists a file under the version that it gives to those who ask for it.
        let (there, here) = tokio::join!(self.cx.dst.stat(to), self.cx.src.stat(&src.key));
        match (there, here) {
            (Ok(there), Ok(here)) if overlap::one_file(&self.cx, &here, to, &there) => return same(),
            (Ok(_), Ok(_)) => {}
            (Err(error), Ok(_)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {}
            (Err(error), Ok(_)) => return Err(error.with_key(to)),
            // The source is gone: that tells nothing of the others.
            (_, Err(error)) => return Err(error.with_key(&src.key)),
        }
        *apart = true;
        Ok(())
    }

    /// True when files are asked for one by one, so that no directory is ever listed.
    pub(super) fn asks_each(&self) -> bool {
        self.policy.no_traverse && self.cx.filter.files_from().is_some()
    }

    fn list_src(&self) -> ListSrc {
        let options = ListOptions {
            max_depth: self.policy.max_depth,
            dirs: true,
            meta: self.policy.metadata,
            posix: self.attributes.keep.is_some() || self.policy.rsync.is_some(),
            for_join: !self.policy.delete_excluded,
            checkers: self.mover.budget.checkers,
            pages: self.policy.checkers.unwrap_or(0),
            ask_each: self.asks_each(),
            prune_empty_dirs: self.policy.rsync.as_ref().is_some_and(|habits| habits.prune_empty_dirs),
            one_device: self.one_device(),
            omit_mounts: self.policy.rsync.as_ref().is_some_and(|habits| habits.omit_mounts),
            ..ListOptions::default()
        };
        let (src, filter) = (self.cx.src.clone(), self.cx.filter.clone());
        // Without directories one that holds nothing can't be told from one that isn't there.
        let may_be_absent = self.policy.allow_empty_source && !src.caps().dirs;
        Arc::new(move || {
            let listing = list(&src, &filter, options.clone());
            if may_be_absent { absent_is_empty(listing) } else { listing }
        })
    }

    /// What of the destination the job is about.
    pub(super) fn dst_filter(&self) -> Filter {
        match self.policy.delete_excluded {
            true => Filter::default(),
            false => self.cx.filter.for_destination(),
        }
    }

    fn list_dst(&self) -> BoxStream<'static, Listed> {
        if self.policy.no_check_dest {
            return futures::stream::iter([Listed::End]).boxed();
        }
        let options = ListOptions {
            max_depth: self.policy.max_depth,
            dirs: true,
            posix: self.attributes.keep.is_some() || self.policy.rsync.is_some(),
            for_join: true,
            checkers: self.mover.budget.checkers,
            pages: self.policy.checkers.unwrap_or(0),
            one_device: self.one_device(),
            sweep: !self.policy.dry_run,
            ..ListOptions::default()
        };
        self.noted(absent_is_empty(list(&self.cx.dst, &Arc::new(self.dst_filter()), options)))
    }

    /// Both sides: two listings where all of the destination must be known, else a search for what the source has; by an index
    /// where there is one.
    pub(super) fn pairs(&self) -> Result<Pairs> {
        let (sink, src) = (self.cx.sink.clone(), self.list_src());
        if let Some(how) = self.use_of_index() {
            let options = presence::Options { method: None, at_once: self.policy.checkers };
            return Pairs::indexed(src, &self.cx.dst, options, sink, how);
        }
        let options = presence::options(self.mode, &self.policy, &self.cx.dst).filter(|_| !self.verifies_index());
        Ok(match options {
            None => Pairs::new(src(), self.list_dst(), sink),
            Some(options) => Pairs::search(src(), &self.cx.dst, options, sink, self.index.get().cloned()).0,
        })
    }
}

/// A destination that doesn't exist holds nothing: that is proof, not a failure. So does a source that may be empty.
pub fn absent_is_empty(listing: BoxStream<'static, Listed>) -> BoxStream<'static, Listed> {
    listing
        .map(|step| match step {
            Listed::Failed { lost, error } if error.kind() == ErrorKind::DirNotFound && lost.from.is_root() => {
                Listed::End
            }
            other => other,
        })
        .boxed()
}
