//! The two sides of a job: their roots, and how each is listed or looked through.

use crate::{
    Cx, ListOptions,
    attributes::Attributes,
    decide,
    destination_index::{self, Index},
    index::{IndexScope, Paths, SettlesPair},
    list,
    pairs::{ListSrc, Pairs, Sides, absent_is_empty},
    presence,
};
use haul_core::{
    Result,
    filter::Filter,
    job::{DeleteWhen, Job, Lookup, Mounts, Verb},
};
use haul_store::pages::is_no_root;
use std::sync::Arc;

/// How a job looks at its sides.
pub(crate) struct Listings {
    job: Arc<Job>,
    cx: Cx,
    attributes: Arc<Attributes>,
    index: Arc<Index>,
    /// Since when the source's directories have been at their paths, where files are compared by that.
    paths: Option<Arc<Paths>>,
    /// Concurrent questions to the stores.
    checkers: usize,
}

/// True when files are asked for one by one, so that no directory is ever listed.
pub(crate) fn asks_each(job: &Job, filter: &Filter) -> bool {
    job.listing.no_traverse && filter.files_from().is_some()
}

/// True when neither side is listed beyond its own file system.
pub(crate) fn is_one_device(job: &Job) -> bool {
    job.listing.mounts != Mounts::Cross
}

impl Listings {
    /// Nothing was listed yet.
    pub fn new(
        (job, cx): (&Arc<Job>, &Cx),
        (attributes, index): (&Arc<Attributes>, &Arc<Index>),
        checkers: usize,
    ) -> Listings {
        // A move compares in another way, but its stored files have sources too.
        let dated = decide::goes_by_when_stored(&cx.src, &cx.dst);
        Listings {
            paths: dated.then(|| Paths::new(&cx.known, &*cx.dst, job, &cx.filter)),
            job: job.clone(),
            cx: cx.clone(),
            attributes: attributes.clone(),
            index: index.clone(),
            checkers,
        }
    }

    /// Questions to the stores at once.
    pub fn checkers(&self) -> usize {
        self.checkers
    }

    /// Both sides, beside each other. `settles`: which pairs an index of the destination settles.
    ///
    /// Errors: the index can't be read.
    pub fn pairs(&self, settles: SettlesPair) -> Result<Pairs> {
        let sides = Sides {
            job: &self.job,
            cx: &self.cx,
            index: self.index.get(),
            src: self.src(),
            dst: self.dst_options(),
            about: self.dst_filter(),
            all: self.job.verb == Verb::Sync,
            search: presence::options(&self.job, &self.cx.dst),
            settles,
        };
        sides.pairs()
    }

    fn src(&self) -> ListSrc {
        let posix = self.attributes.keep.is_some() || self.job.tell.needs_posix();
        let ask_each = asks_each(&self.job, &self.cx.filter);
        let options = ListOptions {
            max_depth: self.job.listing.max_depth,
            dirs: true,
            meta: self.job.attributes.takes_metadata(),
            posix: posix || self.paths.is_some() && !ask_each,
            for_join: !self.job.deletes.excluded,
            checkers: self.checkers,
            pages: self.job.pace.checkers.unwrap_or(0),
            waiting: Some(self.job.limits.listed),
            ask_each,
            prune_empty_dirs: self.job.dirs.prune_empty,
            one_device: is_one_device(&self.job),
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
    fn dst_filter(&self) -> Filter {
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
            waiting: Some(self.job.limits.listed),
            one_device: is_one_device(&self.job),
            sweep: !self.job.dry_run,
            part: self.job.listing.part.clone(),
            ..ListOptions::default()
        })
    }

    /// Keeps the seen places of the source's directories for the next run. `compared`: this run compared all of the
    /// source, and nothing failed. True if the source was set back to an earlier state.
    pub async fn keep_paths(&self, compared: bool) -> bool {
        match &self.paths {
            // Changes that a person refused aren't made.
            Some(paths) => paths.end(compared && self.cx.confirm.is_none()).await,
            None => false,
        }
    }

    /// The index uses of this job. A move deletes its source, so it trusts only the store.
    pub fn uses_of_index(&self) -> IndexScope {
        let job = &self.job;
        let all = job.verb == Verb::Sync;
        let attributes = self.attributes.keep.is_some() || job.compare.server_mtime;
        if attributes
            || !job.listing.part.is_all()
            || job.verb == Verb::Move
            || all && job.deletes.when == DeleteWhen::Before
        {
            return IndexScope::Nothing;
        }
        destination_index::uses(job, &self.cx.filter, all)
    }
}
