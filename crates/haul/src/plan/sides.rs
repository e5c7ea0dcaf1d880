//! The two sides of a job: their roots, and how each is listed or looked through.

use super::Planner;
use crate::{
    ListOptions,
    index::{Use, Uses, noted},
    list,
    pairs::{ListSrc, Pairs},
    presence,
};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{
    Entry, ErrorKind, Listed, Result,
    compare::{HashAnswer, Need, Verdict, compare},
    filter::Filter,
    job::{CompareBy, DeleteWhen, Lookup, Mounts, Verb},
};
use std::sync::Arc;

impl Planner {
    /// True when files are asked for one by one, so that no directory is ever listed.
    pub fn asks_each(&self) -> bool {
        self.job.listing.no_traverse && self.cx.filter.files_from().is_some()
    }

    fn list_src(&self) -> ListSrc {
        let options = ListOptions {
            max_depth: self.job.listing.max_depth,
            dirs: true,
            meta: self.job.attributes.metadata,
            posix: self.attributes.keep.is_some() || self.job.tell.details,
            for_join: !self.job.deletes.excluded,
            checkers: self.checkers,
            pages: self.job.pace.checkers.unwrap_or(0),
            ask_each: self.asks_each(),
            prune_empty_dirs: self.job.dirs.prune_empty,
            one_device: self.one_device(),
            omit_mounts: self.job.listing.mounts == Mounts::Omit,
            ..ListOptions::default()
        };
        let (src, filter) = (self.cx.src.clone(), self.cx.filter.clone());
        // Without directories one that holds nothing can't be told from one that isn't there.
        let may_be_absent = self.job.deletes.allow_empty_source && !src.caps().dirs;
        Arc::new(move || {
            let listing = list(&src, &filter, options.clone());
            if may_be_absent { absent_is_empty(listing) } else { listing }
        })
    }

    /// What of the destination the job is about.
    pub(super) fn dst_filter(&self) -> Filter {
        match self.job.deletes.excluded {
            true => Filter::default(),
            false => self.cx.filter.for_destination(),
        }
    }

    fn list_dst(&self) -> BoxStream<'static, Listed> {
        if self.job.listing.lookup == Lookup::Never {
            return futures::stream::iter([Listed::End]).boxed();
        }
        let options = ListOptions {
            max_depth: self.job.listing.max_depth,
            dirs: true,
            posix: self.attributes.keep.is_some() || self.job.tell.details,
            for_join: true,
            checkers: self.checkers,
            pages: self.job.pace.checkers.unwrap_or(0),
            one_device: self.one_device(),
            sweep: !self.job.dry_run,
            ..ListOptions::default()
        };
        self.noted(absent_is_empty(list(&self.cx.dst, &Arc::new(self.dst_filter()), options)))
    }

    /// Both sides: two listings where all of the destination must be known, else a search for what the source has; by an index
    /// where there is one.
    pub(super) fn pairs(&self) -> Result<Pairs> {
        let (sink, src) = (self.cx.sink.clone(), self.list_src());
        if let Some(how) = self.use_of_index() {
            let options = presence::Options { method: None, at_once: self.job.pace.checkers };
            return Pairs::indexed(src, &self.cx.dst, options, sink, how);
        }
        let options = presence::options(&self.job, &self.cx.dst).filter(|_| !self.verifies_index());
        Ok(match options {
            None => Pairs::new(src(), self.list_dst(), sink),
            Some(options) => Pairs::search(src(), &self.cx.dst, options, sink, self.index.get().cloned()).0,
        })
    }

    /// How the job goes by the index; `None` when it doesn't.
    pub(super) fn use_of_index(&self) -> Option<Use> {
        let index = self.index.get()?;
        let snapshot = index.snapshot()?;
        let all = self.job.verb == Verb::Sync;
        let (rules, about) = (self.rules, self.dst_filter());
        if all && !index.knows_all(&about) {
            return None;
        }
        let settles = move |src: &Entry, dst: &Entry| match compare(src, dst, &rules, false, HashAnswer::NotAsked) {
            Verdict::Same(_) => true,
            // The hashes are in the index.
            Verdict::Ask(Need::Hash) => !dst.hashes.is_empty() && rules.compare == CompareBy::Checksum,
            _ => false,
        };
        let is_about = move |dst: &Entry| about.wants_name(dst);
        let extras = all.then(|| Arc::new(is_about) as _);
        Some(Use { index: index.clone(), snapshot, settles: Arc::new(settles), extras })
    }

    /// What this job may go by the index for. A move deletes its source, so it believes nobody but the store.
    pub fn uses_of_index(&self) -> Uses {
        let (job, filter) = (&self.job, &self.cx.filter);
        let asks = job.listing.lookup != Lookup::Cheapest || job.listing.no_traverse;
        let attributes = self.attributes.keep.is_some() || job.compare.server_mtime;
        match self.job.verb {
            _ if asks || attributes => Uses::Nothing,
            Verb::Copy | Verb::Check => Uses::Wanted,
            // Of these the index can't tell what of the destination they leave out.
            Verb::Sync if job.listing.max_depth.is_some() || !filter.markers().is_empty() || filter.needs_mtime() => {
                Uses::Nothing
            }
            Verb::Sync if job.deletes.when == DeleteWhen::Before => Uses::Nothing,
            Verb::Sync => Uses::All,
            Verb::Move => Uses::Nothing,
        }
    }

    /// All of the destination is listed to see whether the index is right.
    pub(super) fn verifies_index(&self) -> bool {
        self.index.get().is_some_and(|index| index.to_verify().is_some())
    }

    /// The destination's listing, noted in the index as it goes by.
    pub(super) fn noted(&self, listing: BoxStream<'static, Listed>) -> BoxStream<'static, Listed> {
        let filter = self.job.listing.max_depth.is_none().then(|| self.dst_filter());
        noted(listing, self.index.get(), filter)
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
