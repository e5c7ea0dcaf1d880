//! Plans a job: lists, joins and compares both sides, and passes on a [`Step`] for each key. Reads only: an executor does the
//! steps, or a caller looks at them.
//!
//! Each stage knows only what it needs: [`Listings`] give pairs, [`Admission`] leaves some out, [`Comparison`] gives the verdict,
//! [`SourceDirs`], [`Extras`] and [`FurtherNames`] decide about what isn't a plain file of the source, and [`Completion`] adds to a
//! step what the executor must know. The planner joins them.

mod admission;
mod alternates;
mod checks;
mod comparison;
mod completion;
mod directories;
mod dirlinks;
mod distinct_files;
mod extras;
mod further_names;
mod kinds;
mod listings;
mod outermost;
mod preview;
mod source_names;
mod steps;
mod symlinks;
mod walk;

use crate::{
    Cx,
    attributes::Attributes,
    destination_index::Index,
    hard_links::{HardLinks, Name},
    ledger::Ledger,
    omitted::source_has,
    part::RunControl,
    rename::Renames,
};
use admission::Admission;
use checks::Checks;
use completion::Completion;
use directories::{both_dirs, kept_dir};
use dirlinks::Dirlinks;
use extras::Extras;
use futures::{StreamExt as _, stream};
use haul_core::{
    Entry, Key, Kind, Result, Side,
    compare::{Reason, Verdict},
    event::{Event, LeftOut},
    job::{Job, Lookup, Verb},
    join::Pair,
    plan::{self, Action, Step},
};
use std::{pin::pin, sync::Arc};
use symlinks::Symlinks;
use walk::Walk;

pub(crate) use alternates::{Alternates, told_of};
pub(crate) use comparison::Comparison;
pub(crate) use completion::forbidden;
pub(crate) use directories::SourceDirs;
pub(crate) use further_names::FurtherNames;
pub(crate) use kinds::{Kinds, no_way};
pub(crate) use listings::{Listings, asks_each, is_one_device};
pub(crate) use preview::Ahead;
pub use steps::{Steps, plan};
pub(crate) use walk::{WalkPurpose, WalkResult};

/// Decides what to do about each key.
pub(crate) struct Planner {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    index: Arc<Index>,
    /// How both sides are looked at.
    pub listings: Listings,
    admission: Admission,
    symlinks: Arc<Symlinks>,
    /// How two entries of a name are compared.
    pub comparison: Arc<Comparison>,
    /// Entries of another kind under a name.
    pub kinds: Arc<Kinds>,
    /// Directories that the source has.
    pub directories: Arc<SourceDirs>,
    extras: Extras,
    /// Other places that may have a file.
    pub alternates: Arc<Alternates>,
    /// Further names of files.
    pub further: Arc<FurtherNames>,
    completion: Completion,
    /// Files that may have got another name, until both sides are known.
    renames: Option<Arc<Renames>>,
    /// Pauses the walk, and receives its position.
    reins: Option<RunControl>,
}

/// Where steps go: to an executor, or to a caller who looks at them.
pub(crate) trait Outlet: Clone + Send + Sync + 'static {
    /// It takes a step for each unchanged file too. Otherwise the planner counts and reports those that their listed facts settle.
    const TAKES_UNCHANGED: bool = false;

    /// Takes a step.
    fn take(&self, step: Step) -> impl Future<Output = ()> + Send;
}

/// Takes the steps of a job: carries them out, or reports them.
pub(crate) trait StepSink {
    /// Where its steps go.
    type Out: Outlet;
    /// The workers of this outlet.
    type Working;

    /// Starts what works at the steps that come.
    fn start_working(self: &Arc<Self>) -> (Self::Out, Self::Working);

    /// Waits until all steps are done; the outlet and its clones must be dropped.
    fn finish_working(&self, working: Self::Working) -> impl Future<Output = ()> + Send;
}

impl Planner {
    /// A planner that has decided nothing yet. `checkers`: questions to the stores at once; with `reins` its walks can be paused.
    pub fn new(
        of: (&Arc<Job>, &Cx, &Arc<Ledger>),
        attributes: &Arc<Attributes>,
        index: &Arc<Index>,
        checkers: usize,
        reins: Option<RunControl>,
    ) -> Planner {
        let (job, cx, ledger) = of;
        let comparison = Arc::new(Comparison::new(of, attributes, reins.as_ref().and_then(|reins| reins.made)));
        let alternates = Arc::new(Alternates::new((job, cx), attributes, &comparison));
        let kinds = Arc::new(Kinds::new(of, attributes));
        let (symlinks, dirlinks) = (Arc::new(Symlinks::new(of)), Arc::new(Dirlinks::new(of)));
        let renames = job.elsewhere.renamed.filter(|_| job.verb == Verb::Sync);
        let renames = renames.map(|by| Arc::new(Renames::new(by)));
        let examined = (&comparison, &alternates, &symlinks);
        Planner {
            listings: Listings::new((job, cx), (attributes, index), checkers),
            admission: Admission::new(job, &cx.filter, &symlinks, &dirlinks),
            directories: Arc::new(SourceDirs::new(of, (&comparison, &alternates), (&kinds, &dirlinks))),
            extras: Extras::new(of, &kinds, &renames),
            further: Arc::new(FurtherNames::new((job, ledger), attributes, examined)),
            completion: Completion::new(of, examined),
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            index: index.clone(),
            symlinks,
            comparison,
            kinds,
            alternates,
            renames,
            reins,
        }
    }

    /// Its walks can be paused.
    pub fn can_pause(&self) -> bool {
        self.reins.is_some()
    }

    /// The source's files with several names.
    pub fn links(&self) -> &Arc<HardLinks> {
        self.further.links()
    }

    /// One walk over both sides, to its end or to where the job stops.
    pub async fn walk<O: Outlet>(self: &Arc<Self>, pass: WalkPurpose, out: &O) -> WalkResult {
        match self.listings.pairs(self.comparison.settles()) {
            Ok(pairs) => Walk::new(self, pairs, pass, out).run().await,
            Err(error) => {
                self.ledger.error(error);
                WalkResult::default()
            }
        }
    }

    /// Decides what to do about a pair. The common case, a file that is only copied, needs no future but its own; the other cases
    /// are boxed, or a future of their size would be moved for each file, which was a fifth of the job's CPU time.
    async fn pair(self: &Arc<Self>, pair: Pair, pass: WalkPurpose, out: &impl Outlet, checks: &mut Checks) {
        let asks = self.admission.must_ask(&pair);
        let pair = if asks { Box::pin(self.admission.admit(pair)).await } else { Some(pair) };
        let Some(pair) = pair else { return };
        match pair {
            Pair::Both(src, dst) if src.is_dir() && self.directories.keeps_own_attributes(&src.key) => {
                out.take(kept_dir(dst)).await
            }
            Pair::Both(src, dst) if src.is_dir() => {
                if pass == WalkPurpose::Transfers {
                    Box::pin(self.directories.seen(&src, Some(&dst))).await;
                }
                out.take(both_dirs(src, dst)).await;
            }
            Pair::SrcOnly(src) | Pair::SrcUnknown(src) if src.is_dir() => {
                if pass == WalkPurpose::Transfers {
                    Box::pin(self.directories.missing(src, out)).await;
                }
            }
            Pair::DstOnly(dst) if dst.is_dir() => Box::pin(self.extras.dir(dst, out)).await,
            Pair::DstOnly(dst) if !self.job.deletes.specials && self.kinds.is_never_kept(&dst) => {}
            Pair::DstOnly(dst) => Box::pin(self.extras.file(dst, out)).await,
            Pair::DstUnknown(dst) => {
                self.ledger.report().totals.protected += u64::from(self.job.verb == Verb::Sync && dst.has_bytes());
            }
            _ if pass == WalkPurpose::DeletesOnly => {}
            Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) if !self.kinds.can_be_copied(&src) => {
                Box::pin(self.kinds.not_kept(&src)).await;
            }
            Pair::Both(src, dst) => self.both(src, dst, out, checks).await,
            Pair::SrcOnly(src) => {
                let Some((src, _)) = self.further.first(src, None, out).await else { return };
                match &self.renames {
                    Some(renames) if src.has_bytes() => renames.src_only(src),
                    _ => self.missing(src, out, checks).await,
                }
            }
            Pair::SrcUnknown(src) => {
                let (run, out) = (self.clone(), out.clone());
                checks.spawn(&self.ledger, Box::pin(async move { run.ask_dst(src, out).await })).await;
            }
        }
    }

    /// Decides about a file on both sides: here if the listed facts are enough, otherwise on a task that asks the stores.
    async fn both(self: &Arc<Self>, src: Entry, dst: Entry, out: &impl Outlet, checks: &mut Checks) {
        let Some((mut src, Some(mut dst))) = self.further.first(src, Some(dst), out).await else { return };
        let mixed_up = !self.job.compare.server_mtime && self.further.is_mixed_up(&src, &dst);
        let quick = match mixed_up {
            true => Verdict::Differ(Reason::Linked),
            false => self.comparison.by_listed_facts(&src, &dst),
        };
        let quick_touch = quick == Verdict::Touch && src.kind != Kind::Special;
        // Alternate destinations are asked, except for a file that must be made anew in any case.
        let asks = self.alternates.count_for_all() && quick != Verdict::Differ(Reason::Linked);
        if !matches!(quick, Verdict::Ask(_)) && !quick_touch && !asks {
            self.ledger.report().totals.checks += 1;
            if let Some(step) = self.comparison.step(src, dst, quick) {
                self.file(step, out).await;
            }
            return;
        }
        let (run, out) = (self.clone(), out.clone());
        let check = async move {
            run.ledger.report().totals.checks += 1;
            let listed = dst.clone();
            match run.comparison.verdict(&mut src, &mut dst).await {
                Ok(verdict) => {
                    run.comparison.say_by_size(verdict);
                    // Neither what only the index said nor a time that was made up here is news.
                    if dst != listed && !run.job.compare.server_mtime {
                        run.index.note_present(&dst);
                    }
                    if let Some(step) = run.comparison.step(src, dst, verdict) {
                        run.file(step, &out).await;
                    }
                }
                Err(error) => run.ledger.error(error),
            }
        };
        checks.spawn(&self.ledger, Box::pin(check)).await;
    }

    /// Decides about a file that is missing from the destination: here, unless a store must be asked.
    async fn missing(self: &Arc<Self>, src: Entry, out: &impl Outlet, checks: &mut Checks) {
        if self.kinds.must_ask(|| self.directories.is_new(&src.key.parent())) {
            let (run, out) = (self.clone(), out.clone());
            let check = async move {
                if let Some(step) = run.kinds.missing(src).await {
                    run.file(step, &out).await;
                }
            };
            return checks.spawn(&self.ledger, Box::pin(check)).await;
        }
        let step = plan::missing(src, &self.job);
        if step.action != Action::Copy || !self.alternates.any() {
            return self.file(step, out).await;
        }
        let (run, out) = (self.clone(), out.clone());
        checks.spawn(&self.ledger, Box::pin(async move { run.file(step, &out).await })).await;
    }

    /// Completes what was decided about a file and passes it on.
    pub async fn file(&self, mut step: Step, out: &impl Outlet) {
        if self.completion.complete(&mut step).await {
            out.take(step).await;
        }
    }

    /// Compares a file with the destination's, if there is one, and passes the step on.
    pub async fn decide(&self, src: Entry, dst: Option<Entry>, out: &impl Outlet) {
        match self.decision(src, dst).await {
            Ok(Some(step)) => self.file(step, out).await,
            Ok(None) => {}
            Err(error) => self.ledger.error(error),
        }
    }

    /// The step for a file, compared with the destination's, if there is one.
    async fn decision(&self, mut src: Entry, dst: Option<Entry>) -> Result<Option<Step>> {
        let Some(mut dst) = dst else { return Ok(Some(plan::missing(src, &self.job))) };
        let verdict = self.comparison.verdict(&mut src, &mut dst).await?;
        Ok(self.comparison.step(src, dst, verdict))
    }

    /// Asks the destination for a key that its listing didn't reach.
    async fn ask_dst(&self, src: Entry, out: impl Outlet) {
        let dst = match self.cx.dst.stat(&src.key).await {
            Ok(dst) => Some(dst),
            Err(e) if e.is_missing() => {
                self.index.is_absent(&src.key);
                None
            }
            Err(error) => return self.ledger.error(error.with_key(&src.key)),
        };
        let Some((src, dst)) = self.further.first(src, dst, &out).await else { return };
        if dst.is_some() {
            self.ledger.report().totals.checks += 1;
        }
        self.decide(src, dst, &out).await;
    }

    /// Decides about all names that waited, as if each step were done. Where a first name doesn't come, the next takes its place.
    pub async fn settle_links(&self, out: &impl Outlet) {
        while !self.ledger.decides_no_more() {
            let turn = self.links().turn();
            if turn.is_empty() {
                return;
            }
            for (first, there, name) in turn.links {
                out.take(self.further.step(first, there, name).await).await;
            }
            for Name { src, dst } in turn.first {
                self.decide(src, dst, out).await;
            }
        }
    }

    /// `--track-renames`, once both listings have ended: what both sides have under other names is renamed; the rest is copied and
    /// deleted.
    pub async fn settle_renames(&self, out: &impl Outlet) {
        let Some(renames) = &self.renames else { return };
        let mut settled = renames.settle(&self.cx, &self.comparison.rules()).await;
        for error in settled.errors {
            self.ledger.error(error);
        }
        let may_omit = self.cx.src.caps().listing_may_omit;
        let lookups = stream::iter(settled.renamed).map(async |(src, old)| {
            let both = may_omit && source_has(&self.cx, &old.key).await.unwrap_or(true);
            (src, old, both)
        });
        let mut lookups = pin!(lookups.buffered(self.listings.checkers().max(1)));
        while let Some((src, old, both)) = lookups.next().await {
            // The listing left it out: the source has both.
            if both {
                settled.missing.push(src);
                settled.extra.push(old);
                continue;
            }
            out.take(Step::new(Action::Rename, Some(src), Some(old), Reason::Missing)).await;
        }
        for src in settled.missing {
            self.file(plan::missing(src, &self.job), out).await;
        }
        for old in settled.extra {
            out.take(plan::extra(old, true)).await;
        }
    }

    /// Decides about one file under a name of its own: `copyto`, `moveto`, and a source that is a file.
    ///
    /// Errors: a side can't be asked; something is in the file's way.
    pub async fn one(&self, from: &Key, to: &Key, out: &impl Outlet) -> Result<()> {
        let src = self.cx.src.stat(from).await.map_err(|e| e.with_key(from))?;
        if self.symlinks.is_unsafe(&src).await {
            return Ok(());
        }
        if self.cx.filter.holds_back() && self.admission.is_beyond_limits(&src) {
            self.ledger.left_out(&src, LeftOut::Limit);
            return Ok(());
        }
        if !self.kinds.can_be_copied(&src) {
            self.kinds.not_kept(&src).await;
            return Ok(());
        }
        self.ledger.tell(Event::Listed { side: Side::Src, files: 1, bytes: src.size });
        let there = self.one_there(to).await?;
        if there.is_some() {
            self.ledger.report().totals.checks += 1;
        }
        if there.is_none()
            && self.job.existing.other_kinds.are_replaced()
            && let Some(error) = self.kinds.in_the_way(&src, to).await
        {
            return Err(error);
        }
        if let Some(step) = self.decision(src, there).await? {
            self.file(Step { to: Some(to.clone()), ..step }, out).await;
        }
        Ok(())
    }

    /// The destination's file at the place of a single one; `None` if there is none, or none is looked for.
    async fn one_there(&self, to: &Key) -> Result<Option<Entry>> {
        if self.job.listing.lookup == Lookup::Never {
            return Ok(None);
        }
        match self.cx.dst.stat(to).await {
            Ok(entry) => Ok(Some(entry).filter(|entry| !entry.is_dir())),
            Err(e) if e.is_missing() => {
                self.index.is_absent(to);
                Ok(None)
            }
            Err(error) => Err(error.with_key(to)),
        }
    }
}
