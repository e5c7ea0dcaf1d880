//! Plans a job: lists, joins and compares both sides, and passes on a [`Step`] for each key. Reads only: an executor does the
//! steps, or a caller looks at them.

mod ahead;
mod checks;
mod dirs;
mod elsewhere;
mod file;
mod further;
mod kinds;
mod links;
mod one;
mod renamed;
mod sides;
mod source_names;
mod steps;

use crate::{
    Cx,
    attributes::Attributes,
    backup::Backup,
    budget::Budget,
    decide,
    hard_links::HardLinks,
    index::Paths,
    known::Index,
    ledger::{Ledger, SOURCE_FILES},
    pairs::Pairs,
    part::{Reached, Reins},
    rename::Renames,
};
use checks::Checks;
pub(crate) use elsewhere::told_of;
pub(crate) use file::forbidden;
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Result,
    attributes::{Differs, Unkept, What, Why},
    compare::{Difference, HashAnswer, Need, Reason, Rules, Verdict, compare},
    event::LeftOut,
    job::{CompareBy, Job, Publish, Verb},
    join::Pair,
    plan::{self, Action, Step},
    refine,
};
pub(crate) use kinds::no_way;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};
pub use steps::{Steps, plan};

/// Decides what to do about each key.
pub(crate) struct Planner {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    rules: Rules,
    /// Since when the source's directories have been at their paths, where files are compared by that.
    paths: Option<Arc<Paths>>,
    attributes: Arc<Attributes>,
    index: Arc<Index>,
    /// The source's files with several names, which the executor links.
    links: Arc<HardLinks>,
    renames: Option<Renames>,
    /// Where backups go.
    backup: Backup,
    /// Concurrent questions to the stores.
    checkers: usize,
    /// The last directory of the destination that the rules protect with its contents.
    kept_below: Mutex<Option<Key>>,
    /// Directories of the source that are behind symlinks at the destination, which stay.
    kept_links: Mutex<Vec<(Key, links::Behind)>>,
    /// The last outermost directory that is missing from the destination.
    new: Mutex<Option<Key>>,
    /// The last outermost directory that only the destination has.
    dying: Mutex<Option<Key>>,
    /// Source and destination are proved to be different places.
    apart: tokio::sync::Mutex<bool>,
    /// Which names the source has, where it isn't here.
    names: source_names::SourceNames,
    /// It was said that content can't be compared.
    said_by_size: AtomicBool,
    /// Pauses the walk, and receives its position.
    reins: Option<Reins>,
}

/// Purpose of a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Transfers and deletions.
    Transfers,
    /// Deletions only: `--delete-before` looks for them first.
    DeletesOnly,
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walked {
    /// It reached the end of both sides.
    pub whole: bool,
    /// All of the source was listed.
    pub src_complete: bool,
    /// The position it reached is not the end but where it was paused.
    paused: bool,
}

/// Where steps go: to an executor, or to a caller who looks at them.
pub(crate) trait Outlet: Clone + Send + Sync + 'static {
    /// It takes a step for each unchanged file too. Otherwise the planner counts and reports those that their listed facts settle.
    const TAKES_UNCHANGED: bool = false;

    /// Takes a step.
    fn take(&self, step: Step) -> impl Future<Output = ()> + Send;
}

/// Takes the steps of a job: carries them out, or reports them.
pub(crate) trait Taker {
    /// Where its steps go.
    type Out: Outlet;
    /// The workers of this outlet.
    type Working;

    /// Starts what works at the steps that come.
    fn start_working(self: &Arc<Self>) -> (Self::Out, Self::Working);

    /// Waits until all steps are done; the outlet and its clones must be dropped.
    fn finish_working(&self, working: Self::Working) -> impl Future<Output = ()> + Send;
}

/// A directory on both sides.
fn both_dirs(src: Entry, dst: Entry) -> Step {
    Step::new(Action::Keep, Some(src), Some(dst), Reason::Mtime)
}

/// A directory of the destination that keeps what it has.
fn kept_dir(dst: Entry) -> Step {
    Step::new(Action::Keep, None, Some(dst), Reason::Existing)
}

/// Remembers the outermost of nested directories, as an ordered walk meets them.
fn outermost(last: &Mutex<Option<Key>>, dir: &Key) {
    let mut last = last.lock().unwrap_or_else(|e| e.into_inner());
    if !last.as_ref().is_some_and(|top| dir.as_bytes().starts_with(top.as_bytes())) {
        *last = Some(dir.clone());
    }
}

/// True for the directory that was remembered last and for everything in it.
fn is_within(last: &Mutex<Option<Key>>, dir: &Key) -> bool {
    let last = last.lock().unwrap_or_else(|e| e.into_inner());
    last.as_ref().is_some_and(|top| dir.as_bytes().starts_with(top.as_bytes()))
}

impl Planner {
    /// A planner of `job` that has decided nothing yet.
    pub fn new(
        job: &Arc<Job>,
        cx: &Cx,
        ledger: &Arc<Ledger>,
        attributes: &Arc<Attributes>,
        index: &Arc<Index>,
        budget: &Budget,
    ) -> Planner {
        let rules = decide::rules(job, &cx.src, &cx.dst);
        // A move compares in another way, but its stored files have sources too.
        let dated = decide::goes_by_when_stored(&cx.src, &cx.dst);
        let paths = dated.then(|| Paths::new(&cx.known, &*cx.dst, job, &cx.filter));
        Planner {
            rules,
            paths,
            renames: job.elsewhere.renamed.filter(|_| job.verb == Verb::Sync).map(Renames::new),
            backup: Backup::new(job, cx, None),
            checkers: budget.checkers,
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            attributes: attributes.clone(),
            index: index.clone(),
            links: Arc::default(),
            kept_below: Mutex::default(),
            kept_links: Mutex::default(),
            new: Mutex::default(),
            dying: Mutex::default(),
            apart: tokio::sync::Mutex::default(),
            names: source_names::SourceNames::default(),
            said_by_size: AtomicBool::new(false),
            reins: None,
        }
    }

    /// This planner, whose walks can be paused.
    pub fn reined(self, reins: Reins) -> Planner {
        let rules =
            Rules { made: reins.made.filter(|_| decide::is_one_clock(&*self.cx.src, &*self.cx.dst)), ..self.rules };
        Planner { reins: Some(reins), rules, ..self }
    }

    /// Its walks can be paused.
    pub fn can_pause(&self) -> bool {
        self.reins.is_some()
    }

    /// Resolves once the walk is to take up no further key.
    async fn paused(&self) {
        match &self.reins {
            Some(reins) => reins.pause.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Somebody wants the walk to take up no further key.
    fn is_paused(&self) -> bool {
        self.reins.as_ref().is_some_and(|reins| reins.pause.is_cancelled())
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

    /// The source's files with several names.
    pub fn links(&self) -> &Arc<HardLinks> {
        &self.links
    }

    /// Questions to the stores at once.
    pub fn checkers(&self) -> usize {
        self.checkers
    }

    /// How files are compared, with the present knowledge of the stores' clocks.
    pub fn rules(&self) -> Rules {
        decide::by_the_clock(&self.rules, self.cx.meters.clock().ahead())
    }

    /// One walk over both sides, to its end or to where the job stops.
    pub async fn walk<O: Outlet>(self: &Arc<Self>, pass: Pass, out: &O) -> Walked {
        let mut walked = Walked::default();
        let mut pairs = match self.pairs() {
            Ok(pairs) => pairs,
            Err(error) => {
                self.ledger.error(error);
                return walked;
            }
        };
        let mut checks = Checks::new(self.checkers);
        let mut src_files = 0u64;
        let mut last: Option<Key> = None;
        while !self.ledger.decides_no_more() {
            if !O::TAKES_UNCHANGED {
                src_files += self.pass_by_unchanged(&mut pairs, pass, &mut last);
            }
            if self.is_paused() && last.is_some() {
                (walked.whole, walked.paused) = (true, true);
                break;
            }
            let next = tokio::select! {
                biased;
                () = self.cx.cancel.cancelled() => break,
                next = pairs.next() => next,
                () = self.paused(), if last.is_some() => continue,
            };
            self.listing_errors(&mut pairs);
            if self.ledger.decides_no_more() {
                break;
            }
            if let (Ok(Some(pair)), Some(_)) = (&next, &self.reins) {
                last = Some(pair.key().clone());
            }
            match next {
                // Before the limits, which ask the link itself.
                Ok(Some(Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src)))
                    if src.kind == Kind::Special && src.damaged =>
                {
                    self.leads_nowhere(&src);
                }
                Ok(Some(Pair::DstOnly(dst))) if !self.job.deletes.excluded && self.cx.filter.leaves_alone(&dst) => {}
                Ok(Some(pair)) if self.is_pair_beyond_limits(&pair) => {
                    if let (Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src), Pass::Transfers) =
                        (pair, pass)
                        && self.job.tell.details
                    {
                        self.ledger.left_out(&src, LeftOut::Limit);
                    }
                }
                Ok(Some(pair)) => {
                    if let Pair::Both(e, _) | Pair::SrcOnly(e) | Pair::SrcUnknown(e) = &pair
                        && e.has_bytes()
                    {
                        if src_files < SOURCE_FILES as u64 {
                            self.ledger.saw_source_file(e);
                        }
                        src_files += 1;
                    }
                    self.ledger.saw_source(src_files);
                    self.pair(pair, pass, out, &mut checks).await;
                }
                Ok(None) => {
                    walked.whole = true;
                    break;
                }
                Err(error) => {
                    self.ledger.error(error);
                    break;
                }
            }
        }
        self.listing_errors(&mut pairs);
        checks.finish(&self.ledger).await;
        self.ledger.saw_source(src_files);
        // Up to where it was paused, an error would be about unseen files.
        walked.src_complete = pairs.src_complete() || walked.paused && self.ledger.report().error_count == 0;
        if let Some(reins) = &self.reins {
            reins.ended(match (walked.whole, walked.paused, last) {
                (true, true, Some(last)) => Reached::Key(last),
                (true, false, _) => Reached::End,
                _ => Reached::Unknown,
            });
        }
        if walked.whole && pass == Pass::Transfers && walked.src_complete && self.job.listing.part.is_all() {
            self.say_unknown_names(src_files);
        }
        walked
    }

    /// Says how many names of `--files-from` are none of the `found` files of the source: they may be misspelt, or folders.
    fn say_unknown_names(&self, found: u64) {
        let (Some(keys), Some(given)) = (self.cx.filter.files_from(), &self.cx.filter.spec().files_from) else {
            return;
        };
        let nameless = given.iter().filter(|name| name.iter().all(|b| *b == b'/')).count();
        let names = (keys.len() + nameless) as u64;
        // A sink that hears details names each one itself.
        if names > found && !self.job.tell.details {
            let (unknown, src) = (names - found, self.cx.src.locator());
            self.ledger.notice(None, format!("{unknown} of {names} names of --files-from are no files of {src}"));
        }
    }

    /// Counts the unchanged files at the front, and says how many they are: [`Planner::pair`] would decide the same, but moves
    /// each entry about ten times on its way.
    fn pass_by_unchanged(&self, pairs: &mut Pairs, pass: Pass, last: &mut Option<Key>) -> u64 {
        // Each of these needs more of a file than its listed facts.
        let more = self.job.moves()
            || self.job.compare.server_mtime
            || self.attributes.asks_more()
            || self.looks_elsewhere_for_all();
        if more || pass != Pass::Transfers {
            return 0;
        }
        let mut count = 0;
        pairs.drop_while(|src, dst| {
            if !src.has_bytes() || !self.cx.filter.within_limits(src) || self.reads_link(src, Action::Keep) {
                return false;
            }
            let Verdict::Same(why) = compare(src, dst, &self.rules(), false, HashAnswer::NotAsked) else {
                return false;
            };
            if !self.attributes.agree(src, dst) {
                return false;
            }
            if self.reins.is_some() {
                if self.is_paused() && last.is_some() {
                    return false;
                }
                *last = Some(src.key.clone());
            }
            let differs = self.attributes.difference(&self.rules(), src, Some(dst));
            self.ledger.decided_of(src, &src.key, (Action::Keep, why), differs);
            if count < SOURCE_FILES as u64 {
                self.ledger.saw_source_file(src);
            }
            count += 1;
            true
        });
        if count > 0 {
            let totals = &mut self.ledger.report().totals;
            totals.checks += count;
            totals.unchanged += count;
        }
        count
    }

    /// True for a device, FIFO or socket that isn't copied.
    fn is_never_kept(&self, entry: &Entry) -> bool {
        entry.kind == Kind::Special && self.attributes.special(entry).is_none()
    }

    /// True for a file that is left out for its size or age.
    fn beyond_limits(&self, entry: &Entry) -> bool {
        !entry.is_dir() && !self.cx.filter.within_limits(entry)
    }

    /// Applies the limits of size and age to a pair, by the source's facts where both sides have the file. A file that the limits
    /// leave out at the source is not missing there.
    fn is_pair_beyond_limits(&self, pair: &Pair) -> bool {
        match pair {
            Pair::Both(entry, _) | Pair::SrcOnly(entry) | Pair::SrcUnknown(entry) => self.beyond_limits(entry),
            Pair::DstOnly(entry) if !self.job.deletes.excluded && !self.cx.filter.holds_back() => {
                self.beyond_limits(entry)
            }
            Pair::DstOnly(_) | Pair::DstUnknown(_) => false,
        }
    }

    /// Counts errors of listings. A store that can't be reached, doesn't know us, can't understand the root or has a damaged record
    /// of its contents would fail again for every file, so the job ends.
    fn listing_errors(&self, pairs: &mut Pairs) {
        for (_, error) in pairs.errors.drain(..) {
            let hopeless = match error.kind() {
                ErrorKind::Corrupt => true,
                ErrorKind::Invalid => error.key().is_none(),
                kind => {
                    self.ledger.was_hopeless(kind);
                    false
                }
            };
            if hopeless {
                self.ledger.wind_down();
            }
            self.ledger.report().error(error);
        }
    }

    /// Decides what to do about a pair. The common case, a file that is only copied, needs no future but its own; the other cases
    /// are boxed, or a future of their size would be moved for each file, which was a fifth of the job's CPU time.
    async fn pair(self: &Arc<Self>, pair: Pair, pass: Pass, out: &impl Outlet, checks: &mut Checks) {
        let looks = self.must_be_looked_at(&pair);
        let pair = if looks { Box::pin(self.before_comparing(pair)).await } else { Some(pair) };
        let Some(pair) = pair else { return };
        match pair {
            Pair::Both(src, dst) if src.is_dir() && self.keeps_own_attributes(&src.key) => {
                out.take(kept_dir(dst)).await
            }
            Pair::Both(src, dst) if src.is_dir() => {
                if pass == Pass::Transfers {
                    Box::pin(self.dir_seen(&src, Some(&dst))).await;
                }
                out.take(both_dirs(src, dst)).await;
            }
            Pair::SrcOnly(src) | Pair::SrcUnknown(src) if src.is_dir() => {
                if pass == Pass::Transfers {
                    Box::pin(self.new_dir(src, out)).await;
                }
            }
            Pair::DstOnly(dst) if dst.is_dir() => Box::pin(self.extra_dir(dst, out)).await,
            Pair::DstOnly(dst) if !self.job.deletes.specials && self.is_never_kept(&dst) => {}
            Pair::DstOnly(dst) => Box::pin(self.extra(dst, out)).await,
            Pair::DstUnknown(dst) => {
                self.ledger.report().totals.protected += u64::from(self.job.verb == Verb::Sync && dst.has_bytes());
            }
            _ if pass == Pass::DeletesOnly => {}
            Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) if !self.can_be_copied(&src) => {
                Box::pin(self.not_kept(&src)).await;
            }
            Pair::Both(src, dst) => self.both(src, dst, out, checks).await,
            Pair::SrcOnly(src) => {
                let Some((src, _)) = self.first_name(src, None, out).await else { return };
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
        let Some((mut src, Some(mut dst))) = self.first_name(src, Some(dst), out).await else { return };
        let quick = match self.job.compare.server_mtime {
            true => Verdict::Ask(Need::Mtime),
            false if self.is_mixed_up(&src, &dst) => Verdict::Differ(Reason::Linked),
            false if src.kind == Kind::Special => refine::compare_special(&src, &dst, &self.rules()),
            false => compare(&src, &dst, &self.rules(), false, HashAnswer::NotAsked),
        };
        let quick_touch = quick == Verdict::Touch && src.kind != Kind::Special;
        // Alternate destinations are asked, except for a file that must be made anew in any case.
        let asks = self.looks_elsewhere_for_all() && quick != Verdict::Differ(Reason::Linked);
        if !matches!(quick, Verdict::Ask(_)) && !quick_touch && !asks {
            self.ledger.report().totals.checks += 1;
            if let Some(step) = self.step(src, dst, quick) {
                self.file(step, out).await;
            }
            return;
        }
        let (run, out) = (self.clone(), out.clone());
        let check = async move {
            run.ledger.report().totals.checks += 1;
            let listed = dst.clone();
            match run.verdict(&mut src, &mut dst).await {
                Ok(verdict) => {
                    run.say_by_size(verdict);
                    // Neither what only the index said nor a time that was made up here is news.
                    if dst != listed && !run.job.compare.server_mtime {
                        run.index.saw(&dst);
                    }
                    if let Some(step) = run.step(src, dst, verdict) {
                        run.file(step, &out).await;
                    }
                }
                Err(error) => run.ledger.error(error),
            }
        };
        checks.spawn(&self.ledger, Box::pin(check)).await;
    }

    /// Says once that a file counts as the same by its size alone, though content was to be compared.
    fn say_by_size(&self, verdict: Verdict) {
        let by_size = verdict == Verdict::Same(Reason::Size) && self.job.compare.by == CompareBy::Checksum;
        if by_size && !self.said_by_size.swap(true, Ordering::Relaxed) {
            let text =
                "--checksum: source and destination have no hash in common, so files of one size count as the same";
            self.ledger.notice(None, text);
        }
    }

    /// Compares devices and the like by their kind, and everything else with [`decide::verdict`].
    pub async fn verdict(&self, src: &mut Entry, dst: &mut Entry) -> Result<Verdict> {
        if src.kind == Kind::Special {
            return Ok(refine::compare_special(src, dst, &self.rules()));
        }
        decide::verdict(&self.cx, &self.job, &self.rules(), src, dst).await
    }

    /// The step for a file on both sides, by the verdict on it; `None` if there is nothing to do.
    pub fn step(&self, src: Entry, dst: Entry, verdict: Verdict) -> Option<Step> {
        // Otherwise the job's author defined what makes a file different, or all names of a file are handled.
        let by_time = self.job.compare.by == CompareBy::SizeAndTime
            && !self.attributes.keep.as_ref().is_some_and(|k| k.hard_links);
        let has_names = dst.posix.as_ref().is_some_and(|posix| posix.nlink > 1);
        let verdict = match self.with_attributes(verdict, &src, &dst) {
            // Its other names may be another tree's, which keeps its time: what comes is a new file.
            Verdict::Touch if has_names && by_time && self.job.write.publish != Publish::InPlace => {
                Verdict::Differ(Reason::Mtime)
            }
            verdict => verdict,
        };
        plan::both(src, dst, verdict, &self.job)
    }

    async fn missing(self: &Arc<Self>, src: Entry, out: &impl Outlet, checks: &mut Checks) {
        if self.asks_of_other_kinds() || self.may_be_in_the_way(&src.key) {
            let (run, out) = (self.clone(), out.clone());
            return checks.spawn(&self.ledger, Box::pin(async move { run.missing_of_its_kind(src, &out).await })).await;
        }
        let step = plan::missing(src, &self.job);
        if step.action != Action::Copy || !self.looks_elsewhere() {
            return self.file(step, out).await;
        }
        let (run, out) = (self.clone(), out.clone());
        checks.spawn(&self.ledger, Box::pin(async move { run.file(step, &out).await })).await;
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
        let verdict = self.verdict(&mut src, &mut dst).await?;
        Ok(self.step(src, dst, verdict))
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
        let Some((src, dst)) = self.first_name(src, dst, &out).await else { return };
        if dst.is_some() {
            self.ledger.report().totals.checks += 1;
        }
        self.decide(src, dst, &out).await;
    }

    /// Decides about a file that is proved to be missing from the source.
    async fn extra(&self, dst: Entry, out: &impl Outlet) {
        if self.job.verb != Verb::Sync && self.job.tell.extra && dst.has_bytes() {
            return out.take(plan::extra(dst, false)).await;
        }
        if self.job.verb != Verb::Sync || !self.may_be_deleted(&dst) || self.is_replaced(&dst).await {
            return;
        }
        if self.job.existing.spares_backups && self.backup.is_kept_name(&dst.key) {
            return;
        }
        match &self.renames {
            Some(renames) => renames.dst_only(dst),
            None => out.take(plan::extra(dst, true)).await,
        }
    }

    /// Adds what the facts of inodes say about attributes to a verdict on bytes.
    pub fn with_attributes(&self, verdict: Verdict, src: &Entry, dst: &Entry) -> Verdict {
        let Some(keep) = &self.attributes.keep else { return verdict };
        let (verdict, unkept) = refine::refine(verdict, src, dst, keep, &self.attributes.rights);
        if !self.attributes.looks_inside() && matches!(verdict, Verdict::Same(_)) {
            self.ledger.count_unkept(unkept);
        }
        verdict
    }

    /// True when the attributes of an unchanged file must be examined before it counts as unchanged.
    pub fn must_look(&self, why: Reason) -> bool {
        !why.is_left_alone() && self.attributes.looks_inside()
    }

    /// Holds back a further name of a file with several names; returns all other files.
    async fn first_name(&self, src: Entry, dst: Option<Entry>, out: &impl Outlet) -> Option<(Entry, Option<Entry>)> {
        if !self.attributes.hard_links() || self.links.is_first(&src) {
            return Some((src, dst));
        }
        self.ledger.report().totals.checks += 1;
        if let Some(mut src) = self.links.wait(src, dst) {
            self.read_link(&mut src, Action::Keep).await;
            let differs = Difference::of(&src, Differs::default());
            out.take(Step { differs, ..Step::new(Action::Keep, Some(src), None, Reason::Linked) }).await;
        }
        None
    }

    /// True when the destination's file must be made anew, because it is hard-linked to a name of another file.
    pub fn is_mixed_up(&self, src: &Entry, dst: &Entry) -> bool {
        self.attributes.hard_links() && self.links.is_mixed_up(src, dst)
    }

    /// False for devices and the like that aren't copied.
    pub(super) fn can_be_copied(&self, src: &Entry) -> bool {
        let kept = |what| what == What::Special || self.attributes.rights.devices;
        src.kind != Kind::Special || self.attributes.special(src).is_some_and(kept)
    }

    /// Reports a symlink that is followed: what it led to may come back, so nothing at the destination is deleted for it.
    fn leads_nowhere(&self, src: &Entry) {
        let error = Error::new(ErrorKind::NotFound, "list", "the symbolic link points to nothing");
        self.ledger.error(error.with_key(&src.key));
    }

    /// Reports or counts something that can't be copied.
    pub(super) async fn not_kept(&self, src: &Entry) {
        if src.damaged {
            return self.leads_nowhere(src);
        }
        if let Some(what) = self.attributes.special(src) {
            let mut unkept = Unkept::default();
            unkept.add(what, Why::Denied);
            self.ledger.count_unkept(unkept);
        } else if !self.job.tell.details && self.job.tell.of_left_out(src) {
            self.ledger.notice(Some(&src.key), "not copied: a symlink or special file (see --links and --copy-links)");
        }
        if self.job.tell.details {
            self.ledger.left_out(src, LeftOut::Kind(self.left_alone(src).await));
        }
    }
}
