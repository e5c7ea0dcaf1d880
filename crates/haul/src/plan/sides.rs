//! The two sides of a job: their roots, and how each is listed or looked through.

use super::Planner;
use crate::{
    ListOptions, decide,
    index::Uses,
    known, list,
    pairs::{ListSrc, Pairs, Sides, absent_is_empty},
    presence,
};
use haul_core::{
    Entry, Result,
    compare::{HashAnswer, Need, Verdict, compare},
    filter::Filter,
    job::{CompareBy, DeleteWhen, Lookup, Mounts, Verb},
};
use haul_store::pages::is_no_root;
use std::sync::Arc;

impl Planner {
    /// True when files are asked for one by one, so that no directory is ever listed.
    pub fn asks_each(&self) -> bool {
        self.job.listing.no_traverse && self.cx.filter.files_from().is_some()
    }

    fn list_src(&self) -> ListSrc {
        let posix = self.attributes.keep.is_some() || self.job.tell.needs_posix();
        let options = ListOptions {
            max_depth: self.job.listing.max_depth,
            dirs: true,
            meta: self.job.attributes.takes_metadata(),
            posix: posix || self.paths.is_some() && !self.asks_each(),
            for_join: !self.job.deletes.excluded,
            checkers: self.checkers,
            pages: self.job.pace.checkers.unwrap_or(0),
            ask_each: self.asks_each(),
            prune_empty_dirs: self.job.dirs.prune_empty,
            one_device: self.one_device(),
            omit_mounts: self.job.listing.mounts == Mounts::Omit,
            part: self.job.listing.part.clone(),
            // A killed move has put names aside there.
            sweep: self.job.moves() && !self.job.dry_run,
            ..ListOptions::default()
        };
        let (src, filter) = (self.cx.src.clone(), self.cx.filter.clone());
        // Without directories an empty one can't be told from a missing one.
        let may_be_absent = self.job.deletes.allow_empty_source && !src.caps().dirs;
        let paths = self.paths.clone();
        Arc::new(move || {
            let listing = list(&src, &filter, options.clone());
            let listing = match &paths {
                Some(paths) => paths.listing(src.clone(), listing, posix),
                None => listing,
            };
            // A bucket that isn't there was mistyped, as likely as not.
            if may_be_absent { absent_is_empty(listing, is_no_root) } else { listing }
        })
    }

    /// Filter for the destination.
    pub(super) fn dst_filter(&self) -> Filter {
        match self.job.deletes.excluded {
            true => Filter::default(),
            false => self.cx.filter.for_listing_destination(),
        }
    }

    /// How the destination is listed; `None` when it isn't looked at.
    fn dst_options(&self) -> Option<ListOptions> {
        (self.job.listing.lookup != Lookup::Never).then(|| ListOptions {
            max_depth: self.job.listing.max_depth,
            dirs: true,
            posix: self.attributes.keep.is_some() || self.job.tell.details,
            for_join: true,
            checkers: self.checkers,
            pages: self.job.pace.checkers.unwrap_or(0),
            one_device: self.one_device(),
            sweep: !self.job.dry_run,
            part: self.job.listing.part.clone(),
            ..ListOptions::default()
        })
    }

    /// Both sides, beside each other.
    pub(super) fn pairs(&self) -> Result<Pairs> {
        let (rules, clock) = (self.rules, self.cx.meters.clock().clone());
        let settles = move |src: &Entry, dst: &Entry| {
            match compare(src, dst, &decide::by_the_clock(&rules, clock.ahead()), false, HashAnswer::NotAsked) {
                Verdict::Same(_) => true,
                // The hashes are in the index.
                Verdict::Ask(Need::Hash) => {
                    !dst.hashes.is_empty() && (rules.compare == CompareBy::Checksum || src.is_symlink())
                }
                _ => false,
            }
        };
        let sides = Sides {
            job: &self.job,
            cx: &self.cx,
            index: self.index.get(),
            src: self.list_src(),
            dst: self.dst_options(),
            about: self.dst_filter(),
            all: self.job.verb == Verb::Sync,
            search: presence::options(&self.job, &self.cx.dst),
            settles: Arc::new(settles),
        };
        sides.pairs()
    }

    /// The index uses of this job. A move deletes its source, so it trusts only the store.
    pub fn uses_of_index(&self) -> Uses {
        let job = &self.job;
        let all = job.verb == Verb::Sync;
        let attributes = self.attributes.keep.is_some() || job.compare.server_mtime;
        if attributes
            || !job.listing.part.is_all()
            || job.verb == Verb::Move
            || all && job.deletes.when == DeleteWhen::Before
        {
            return Uses::Nothing;
        }
        known::uses(job, &self.cx.filter, all)
    }
}
