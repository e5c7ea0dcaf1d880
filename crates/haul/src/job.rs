//! A job from start to end: list both sides, join, decide, transfer, and only then delete. Reads like the life of an
//! entry in ARCHITECTURE.md; each step's work is in a module of its own.

mod checks;
mod delayed;
mod ending;
mod full;
mod known;
pub(crate) mod links;
mod one;
mod renamed;
mod rsync;
mod sides;
mod transfers;
mod working;

use crate::{
    Cx, Report,
    attributes::Attributes,
    backup::Backup,
    budget::Budget,
    decide,
    elsewhere::Outcome,
    finish::{Dirs, Doomed, Spare},
    hard_links::HardLinks,
    index::RemoteIndex,
    overlap,
    pairs::Pairs,
    rename::Renames,
    spool::Gone,
    transfer::{Allowance, Mover, Order},
};
use checks::Checks;
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Result,
    attributes::{Differs, compare_special},
    compare::{Difference, FileType, HashAnswer, Need, Reason, Rules, Verdict, compare},
    event::{Event, LeftOut},
    join::Pair,
    plan::{self, Action, Step},
    policy::{Cutoff, DeleteWhen, Mode, Policy},
};
pub(crate) use sides::absent_is_empty;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
pub(crate) use working::Orders;

/// Runs a job between two folders (or buckets) to its end; returns when every task that it started has stopped.
///
/// Errors are in the report: one file's error never stops the others, but any error keeps a sync from deleting.
pub async fn run(mode: Mode, policy: Policy, cx: Cx) -> Report {
    let run = Run::new(mode, policy, cx);
    let clock = run.clone().watch_time_limit();
    run.clone().whole().await;
    run.end(clock).await
}

/// Brings over one file under a name of its own (`copyto`, `moveto`, `copy FILE DIR`).
pub async fn run_one(mode: Mode, policy: Policy, cx: Cx, from: &Key, to: &Key) -> Report {
    let run = Run::new(mode, policy, cx);
    let clock = run.clone().watch_time_limit();
    run.clone().one(from, to).await;
    run.end(clock).await
}

/// What a stopped job waits at most for disk threads to remove what they began.
const AT_REST_WITHIN: Duration = Duration::from_secs(2);

/// A job under way.
pub(crate) struct Run {
    pub mode: Mode,
    pub policy: Arc<Policy>,
    pub cx: Cx,
    pub rules: Rules,
    pub mover: Mover,
    report: Mutex<Report>,
    pub steps: AtomicU64,
    /// Start nothing new; what runs may finish.
    wind_down: AtomicBool,
    /// A store can't be reached or doesn't know us, and that was told.
    hopeless: AtomicBool,
    started_bytes: AtomicU64,
    pub doomed: Doomed,
    /// What the destination has although `--compare-dest` has it.
    pub spare: Spare,
    pub dirs: Dirs,
    pub attributes: Attributes,
    pub links: HardLinks,
    renames: Option<Renames>,
    /// Moved sources, to be deleted in batches.
    moved_away: Mutex<Vec<Gone>>,
    /// The last directory at the destination that rules protect with all that it holds.
    kept_below: Mutex<Option<Key>>,
    /// Directories of the source that are behind symlinks at the destination, which stay.
    kept_links: Mutex<Vec<(Key, links::Behind)>>,
    /// Files that wait for their names.
    delayed: delayed::Delayed,
    /// What found no room at the destination.
    full: full::Full,
    /// Source and destination are proved to be two places.
    apart: tokio::sync::Mutex<bool>,
    /// The destination's index, once it is opened.
    index: OnceLock<Arc<RemoteIndex>>,
}

impl Run {
    fn new(mode: Mode, mut policy: Policy, cx: Cx) -> Arc<Run> {
        let attributes = Attributes::new(&mut policy, &cx);
        let policy = Arc::new(policy);
        Arc::new_cyclic(|this: &std::sync::Weak<Run>| {
            let weak = this.clone();
            let stop: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                if let Some(run) = weak.upgrade() {
                    run.transfer_limit();
                }
            });
            let hard = policy.cutoff == Cutoff::Hard;
            let mover = Mover {
                cx: cx.clone(),
                mode,
                policy: policy.clone(),
                budget: Budget::new(&policy, cx.src.caps(), cx.dst.caps()),
                keep: attributes.keep.clone(),
                backup: Backup::new(&policy, &cx, attributes.keep.as_deref()),
                allowance: policy.max_transfer.filter(|_| hard).map(|limit| Arc::new(Allowance::new(limit, stop))),
            };
            Run {
                mode,
                rules: decide::rules(mode, &policy, &cx.src, &cx.dst),
                mover,
                report: Mutex::default(),
                steps: AtomicU64::new(1),
                wind_down: AtomicBool::new(false),
                hopeless: AtomicBool::new(false),
                started_bytes: AtomicU64::new(0),
                doomed: Doomed::new(&policy),
                spare: Spare::default(),
                dirs: Dirs::default(),
                attributes,
                links: HardLinks::default(),
                renames: policy.track_renames.filter(|_| mode == Mode::Sync).map(Renames::new),
                moved_away: Mutex::default(),
                kept_below: Mutex::default(),
                kept_links: Mutex::default(),
                delayed: delayed::Delayed::default(),
                full: full::Full::default(),
                apart: tokio::sync::Mutex::default(),
                index: OnceLock::new(),
                policy,
                cx,
            }
        })
    }

    /// The report as it grows.
    pub fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(|e| e.into_inner())
    }

    async fn end(self: Arc<Self>, clock: JoinHandle<()>) -> Report {
        clock.abort();
        if self.cx.cancel.is_cancelled() {
            haul_store::disk::at_rest(AT_REST_WITHIN).await;
        }
        self.force_to_device().await;
        self.say_if_full().await;
        self.end_journal().await;
        self.end_index().await;
        self.say_unkept();
        self.into_report()
    }

    fn into_report(self: Arc<Self>) -> Report {
        let mut report = std::mem::take(&mut *self.report());
        if report.stopped.is_none() && !report.time_limit && !report.transfer_limit && self.cx.cancel.is_cancelled() {
            report.stopped = Some(ErrorKind::Cancelled);
        }
        report
    }

    /// Where replaced and deleted files go.
    pub fn backup(&self) -> &Backup {
        &self.mover.backup
    }

    /// Metadata requests at once.
    pub fn checkers(&self) -> usize {
        self.mover.budget.checkers
    }

    /// Counts an error and tells the sink.
    pub fn error(&self, error: Error) {
        if self.was_hopeless(error.kind()) {
            return;
        }
        let error = Arc::new(error);
        self.report().error(error.clone());
        self.cx.sink.emit(&Event::Error(error));
    }

    /// Ends the job on an error that every further request would meet too: a store that can't be reached, or doesn't know us.
    /// True when that was told before.
    fn was_hopeless(&self, kind: ErrorKind) -> bool {
        let hopeless = matches!(kind, ErrorKind::Unreachable | ErrorKind::Unauthenticated);
        if hopeless {
            self.wind_down.store(true, Ordering::Relaxed);
        }
        hopeless && self.hopeless.swap(true, Ordering::Relaxed)
    }

    /// Tells the sink something that is no error.
    pub fn notice(&self, key: Option<&Key>, message: impl Into<String>) {
        self.cx.sink.emit(&Event::Notice { key: key.cloned(), message: message.into() });
    }

    /// True when nothing new may be started.
    pub fn stopping(&self) -> bool {
        let rules_unknown = self.cx.filter.has_broken_rules();
        self.wind_down.load(Ordering::Relaxed) || self.cx.cancel.is_cancelled() || rules_unknown
    }

    /// True when not all that was to be transferred could be: what takes the place of a file to be deleted may not be
    /// there.
    pub fn cut_short(&self) -> bool {
        let limited = {
            let report = self.report();
            report.transfer_limit || report.time_limit
        };
        limited || self.stopping()
    }

    fn transfer_limit(&self) {
        self.report().transfer_limit = true;
        self.wind_down.store(true, Ordering::Relaxed);
    }

    fn watch_time_limit(self: Arc<Self>) -> JoinHandle<()> {
        let deadline = self.policy.max_duration.map(|limit| Instant::now() + limit);
        tokio::spawn(async move {
            let Some(deadline) = deadline else { return };
            tokio::time::sleep_until(deadline.into()).await;
            self.report().time_limit = true;
            self.wind_down.store(true, Ordering::Relaxed);
            if self.policy.cutoff == Cutoff::Hard {
                self.cx.cancel.cancel();
            }
        })
    }

    async fn whole(self: Arc<Self>) {
        if let Err(error) = overlap::check(&self.cx, self.mode).and_then(|()| self.check_backup()) {
            return self.error(error);
        }
        let deletes = self.mode == Mode::Sync && !self.policy.no_check_dest && !self.policy.no_traverse;
        // A dry run tells of all in one walk.
        let deletes_first = deletes && self.policy.delete_when == DeleteWhen::Before && !self.policy.dry_run;
        // What deletions change of directories is told with what else differs.
        let later = deletes_first && self.policy.rsync.is_some() && self.cx.dst.stat(&Key::new("")).await.is_ok();
        if !later || self.deletes_only() {
            self.see_top_dir().await;
        }
        if self.deletes_only() {
            return self.delete_alone().await;
        }
        if let Err(error) = self.prepare_root().await {
            return self.error(error);
        }
        self.open_index().await;
        if deletes_first {
            self.clone().pass(Pass::DeletesOnly).await;
            self.delete_doomed().await;
            if later {
                self.delete_extra_dirs().await;
                self.see_top_dir().await;
            }
            // As in rsync, nothing is deleted after an error, and the rest is done.
            let goes_on = self.policy.ignore_errors || self.policy.rsync.is_some();
            if self.stopping() || (self.report().error_count > 0 && !goes_on) {
                return;
            }
        }
        self.clone().pass(Pass::Transfers).await;
        self.clear_stages().await;
        self.flush_moved_away(true).await;
        if deletes && self.policy.delete_when != DeleteWhen::Before {
            self.delete_doomed().await;
        }
        self.delete_spare().await;
        // What the deletions before left is not tried again.
        self.finish_dirs(deletes && !later).await;
    }

    fn check_backup(&self) -> Result<()> {
        overlap::check_backup(&self.cx, &self.policy)
    }

    /// One walk over both sides.
    async fn pass(self: Arc<Self>, pass: Pass) {
        let (orders, working) = self.clone().start_working(self.policy.check_first);
        let mut pairs = match self.pairs() {
            Ok(pairs) => pairs,
            Err(error) => {
                self.error(error);
                drop(orders);
                return self.finish_working(working).await;
            }
        };
        let mut checks = Checks::new(self.mover.budget.checkers);
        let (mut src_files, mut whole) = (0u64, false);
        while !self.stopping() {
            src_files += self.pass_by_unchanged(&mut pairs, pass);
            let next = tokio::select! {
                biased;
                () = self.cx.cancel.cancelled() => break,
                next = pairs.next() => next,
            };
            self.listing_errors(&mut pairs);
            if self.stopping() {
                break;
            }
            match next {
                Ok(Some(pair)) if self.is_pair_beyond_limits(&pair) => {
                    if let (Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src), Pass::Transfers) =
                        (pair, pass)
                        && self.policy.rsync.is_some()
                    {
                        self.left_out(&src, LeftOut::Limit);
                    }
                }
                Ok(Some(pair)) => {
                    if let Pair::Both(e, _) | Pair::SrcOnly(e) | Pair::SrcUnknown(e) = &pair
                        && e.has_bytes()
                    {
                        src_files += 1;
                    }
                    self.pair(pair, pass, src_files, &orders, &mut checks).await;
                }
                Ok(None) => {
                    whole = true;
                    break;
                }
                Err(error) => {
                    self.error(error);
                    break;
                }
            }
        }
        self.listing_errors(&mut pairs);
        checks.finish(&self).await;
        if whole {
            self.full.all_is_known();
        }
        self.doomed.source_seen(src_files > 0, pairs.src_complete());
        if whole && pass == Pass::Transfers && pairs.src_complete() {
            self.say_unknown_names(src_files);
        }
        self.settle_renames(&orders).await;
        drop((pairs, orders));
        self.finish_working(working).await;
        if pass == Pass::Transfers {
            self.settle_links().await;
        }
    }

    /// Says how many names of a list name none of the `found` files of the source: they may be misspelt, or folders.
    fn say_unknown_names(&self, found: u64) {
        let (Some(keys), Some(given)) = (self.cx.filter.files_from(), &self.cx.filter.spec().files_from) else {
            return;
        };
        let nameless = given.iter().filter(|name| name.iter().all(|b| *b == b'/')).count();
        let names = (keys.len() + nameless) as u64;
        // rsync's habits name each of them.
        if names > found && self.policy.rsync.is_none() {
            let (unknown, src) = (names - found, self.cx.src.locator());
            self.notice(None, format!("{unknown} of {names} names of --files-from are no files of {src}"));
        }
    }

    /// Counts the files at the front that are plainly the same, and how many they are: [`Run::pair`] would come to the same
    /// end, but moves each entry some ten times on its way.
    fn pass_by_unchanged(&self, pairs: &mut Pairs, pass: Pass) -> u64 {
        // Each of these asks more of a file than whether its listed facts agree.
        let more = self.moves()
            || self.policy.use_server_mtime
            || self.attributes.asks_more()
            || self.looks_elsewhere_for_all();
        if more || pass != Pass::Transfers {
            return 0;
        }
        let mut count = 0;
        pairs.drop_while(|src, dst| {
            if !src.has_bytes() || !self.cx.filter.within_limits(src) || self.looks_at_link(src) {
                return false;
            }
            let Verdict::Same(why) = compare(src, dst, &self.rules, false, HashAnswer::NotAsked) else { return false };
            if !self.attributes.agree(src, dst) {
                return false;
            }
            let (key, dry_run) = (src.key.clone(), self.policy.dry_run);
            let (action, size) = (Action::Keep, src.size);
            let differs = self.difference(src, Some(dst));
            self.cx.sink.emit(&Event::Decided { key, action, why, size, differs, dry_run });
            count += 1;
            true
        });
        if count > 0 {
            let totals = &mut self.report().totals;
            totals.checks += count;
            totals.unchanged += count;
        }
        count
    }

    /// True for a device, FIFO or socket that doesn't go along.
    fn is_never_kept(&self, entry: &Entry) -> bool {
        entry.kind == Kind::Special && self.attributes.special(entry).is_none()
    }

    /// True for a file that is left out for its size or age.
    fn beyond_limits(&self, entry: &Entry) -> bool {
        // rsync's limits are of regular files.
        let spared = self.policy.rsync.is_some() && matches!(entry.kind, Kind::Symlink | Kind::Special);
        !entry.is_dir() && !spared && !self.cx.filter.within_limits(entry)
    }

    /// The same of a pair: the source's facts decide where it has the file. What is left out there is not absent, and what the
    /// destination holds of it is only compared.
    fn is_pair_beyond_limits(&self, pair: &Pair) -> bool {
        match pair {
            Pair::Both(entry, _) | Pair::SrcOnly(entry) | Pair::SrcUnknown(entry) => self.beyond_limits(entry),
            Pair::DstOnly(entry) if !self.policy.delete_excluded && self.policy.rsync.is_none() => {
                self.beyond_limits(entry)
            }
            Pair::DstOnly(_) | Pair::DstUnknown(_) => false,
        }
    }

    /// Counts what could not be listed. A store that can't be reached, doesn't know us, can't make sense of the root that we ask
    /// for, or whose own record of what it holds is damaged would say so again for every file, so that is the end of the job.
    fn listing_errors(&self, pairs: &mut Pairs) {
        for (_, error) in pairs.errors.drain(..) {
            let hopeless = match error.kind() {
                ErrorKind::Corrupt => true,
                ErrorKind::Invalid => error.key().is_none(),
                kind => {
                    self.was_hopeless(kind);
                    false
                }
            };
            if hopeless {
                self.wind_down.store(true, Ordering::Relaxed);
            }
            self.report().error(error);
        }
    }

    /// What a file comes to in the end. The way of a file that is only copied makes no other future than its own: what else
    /// may happen is boxed, or a future of its size would be moved for each file, which was a fifth of the job's CPU time.
    async fn pair(self: &Arc<Self>, pair: Pair, pass: Pass, src_files: u64, orders: &Orders, checks: &mut Checks) {
        let pair = if self.has_habits_of(&pair) { Box::pin(self.by_habits(pair)).await } else { Some(pair) };
        let Some(pair) = pair else { return };
        match pair {
            Pair::Both(src, dst) if src.is_dir() && self.is_anothers(&src.key) => self.dirs.keep(dst),
            Pair::Both(src, dst) if src.is_dir() => {
                if pass == Pass::Transfers {
                    Box::pin(self.dir_seen(&src, Some(&dst))).await;
                }
                self.dirs.both(src, dst);
            }
            Pair::SrcOnly(src) | Pair::SrcUnknown(src) if src.is_dir() => {
                if pass == Pass::Transfers {
                    Box::pin(self.new_dir(src)).await;
                }
            }
            Pair::DstOnly(dst) if dst.is_dir() => Box::pin(self.extra_dir(dst, src_files)).await,
            Pair::DstOnly(dst) if self.policy.rsync.is_none() && self.is_never_kept(&dst) => {}
            Pair::DstOnly(dst) => Box::pin(self.extra(dst, src_files)).await,
            Pair::DstUnknown(dst) => {
                self.report().totals.protected += u64::from(self.mode == Mode::Sync && dst.has_bytes());
            }
            _ if pass == Pass::DeletesOnly => {}
            Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) if !self.can_be_copied(&src) => {
                Box::pin(self.not_kept(&src)).await;
            }
            Pair::Both(src, dst) => self.both(src, dst, orders, checks).await,
            Pair::SrcOnly(src) => {
                let Some((src, _)) = self.first_name(src, None) else { return };
                match &self.renames {
                    Some(renames) if src.has_bytes() => renames.src_only(src),
                    _ => self.missing(src, orders, checks).await,
                }
            }
            Pair::SrcUnknown(src) => {
                let (run, orders) = (self.clone(), orders.clone());
                checks.spawn(self, Box::pin(async move { run.ask_dst(src, orders).await })).await;
            }
        }
    }

    /// A file on both sides. What the listed facts settle is settled here; the rest is asked for on a task.
    async fn both(self: &Arc<Self>, src: Entry, dst: Entry, orders: &Orders, checks: &mut Checks) {
        let Some((mut src, Some(mut dst))) = self.first_name(src, Some(dst)) else { return };
        let quick = match self.policy.use_server_mtime {
            true => Verdict::Ask(Need::Mtime),
            false if self.is_mixed_up(&src, &dst) => Verdict::Differ(Reason::Linked),
            false if src.kind == Kind::Special => compare_special(&src, &dst, &self.rules),
            false => compare(&src, &dst, &self.rules, false, HashAnswer::NotAsked),
        };
        let quick_touch = quick == Verdict::Touch && src.kind != Kind::Special;
        // Which asks other places, but for what must be made anew whatever they say.
        let asks = self.looks_elsewhere_for_all() && quick != Verdict::Differ(Reason::Linked);
        if !matches!(quick, Verdict::Ask(_)) && !quick_touch && !asks {
            self.report().totals.checks += 1;
            if let Some(step) = self.step(src, dst, quick) {
                self.act(step, orders).await;
            }
            return;
        }
        let (run, orders) = (self.clone(), orders.clone());
        let check = async move {
            run.report().totals.checks += 1;
            let listed = dst.clone();
            match run.verdict(&mut src, &mut dst).await {
                Ok(verdict) => {
                    // What only the index said isn't seen anew, nor is a time that was made up here.
                    if dst != listed && !run.policy.use_server_mtime {
                        run.saw(&dst);
                    }
                    if let Some(step) = run.step(src, dst, verdict) {
                        run.act(step, &orders).await;
                    }
                }
                Err(error) => run.error(error),
            }
        };
        checks.spawn(self, Box::pin(check)).await;
    }

    /// Compares what has no bytes by its kind, all else as [`decide::verdict`] does.
    pub async fn verdict(&self, src: &mut Entry, dst: &mut Entry) -> Result<Verdict> {
        if src.kind == Kind::Special {
            return Ok(compare_special(src, dst, &self.rules));
        }
        decide::verdict(&self.cx, &self.policy, &self.rules, src, dst).await
    }

    /// What a verdict on a file of both sides calls for; `None` where there is nothing to do about it.
    pub fn step(&self, src: Entry, dst: Entry, verdict: Verdict) -> Option<Step> {
        let verdict = self.with_attributes(verdict, &src, &dst);
        plan::both(src, dst, verdict, &self.policy)
    }

    async fn missing(self: &Arc<Self>, src: Entry, orders: &Orders, checks: &mut Checks) {
        if self.asks_of_other_kinds() || self.may_be_in_the_way(&src.key) {
            let (run, orders) = (self.clone(), orders.clone());
            return checks.spawn(self, Box::pin(async move { run.missing_of_its_kind(src, &orders).await })).await;
        }
        let step = plan::missing(src, &self.policy);
        if step.action != Action::Copy || !self.looks_elsewhere() {
            return self.act(step, orders).await;
        }
        let (run, orders) = (self.clone(), orders.clone());
        checks.spawn(self, Box::pin(async move { run.act(step, &orders).await })).await;
    }

    /// Compares a file with what is at the destination, if anything is, and does what that calls for.
    pub async fn decide(&self, src: Entry, dst: Option<Entry>, orders: &Orders) {
        match self.decision(src, dst).await {
            Ok(Some(step)) => self.act(step, orders).await,
            Ok(None) => {}
            Err(error) => self.error(error),
        }
    }

    /// What a file calls for, compared with what is at the destination, if anything is.
    async fn decision(&self, mut src: Entry, dst: Option<Entry>) -> Result<Option<Step>> {
        let Some(mut dst) = dst else { return Ok(Some(plan::missing(src, &self.policy))) };
        let verdict = self.verdict(&mut src, &mut dst).await?;
        Ok(self.step(src, dst, verdict))
    }

    /// The destination's listing didn't get to this key: ask.
    async fn ask_dst(&self, src: Entry, orders: Orders) {
        let dst = match self.cx.dst.stat(&src.key).await {
            Ok(dst) => Some(dst),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {
                self.is_absent(&src.key);
                None
            }
            Err(error) => return self.error(error.with_key(&src.key)),
        };
        let Some((src, dst)) = self.first_name(src, dst) else { return };
        if dst.is_some() {
            self.report().totals.checks += 1;
        }
        self.decide(src, dst, &orders).await;
    }

    /// A file that the source provably lacks.
    async fn extra(&self, dst: Entry, src_files: u64) {
        if self.mode != Mode::Sync && self.policy.tell_extra && dst.kind == Kind::File {
            return self.decided(&plan::extra(dst, false));
        }
        if self.mode != Mode::Sync || !self.may_lose(&dst) || self.is_replaced(&dst).await {
            return;
        }
        if let Some(renames) = &self.renames {
            return renames.dst_only(dst);
        }
        if self.policy.dry_run && self.is_beyond_max_delete() {
            return;
        }
        let step = plan::extra(dst, true);
        self.decided(&step);
        let Some(dst) = step.dst else { return };
        if self.policy.dry_run {
            self.report().totals.deletes += 1;
            return;
        }
        if let Err(error) = self.doomed.push(dst.into()) {
            self.error(error);
        }
        if self.policy.delete_when == DeleteWhen::During && src_files > 0 && self.doomed.full() {
            self.delete_doomed().await;
        }
    }

    fn decided(&self, step: &Step) {
        let Some(entry) = step.src.as_ref().or(step.dst.as_ref()) else { return };
        let key = step.dst.as_ref().unwrap_or(entry).key.clone();
        let (action, why, dry_run) = (step.action, step.why, self.policy.dry_run);
        let differs = Difference { what: FileType::of(entry), ..Difference::default() };
        self.cx.sink.emit(&Event::Decided { key, action, why, size: entry.size, differs, dry_run });
    }

    /// Does what was decided about a file, or hands it to the scheduler.
    pub fn act<'a>(&'a self, step: Step, orders: &'a Orders) -> impl Future<Output = ()> + 'a {
        // Each future that only calls another would move all of it once more, for each file.
        let to = step.src.as_ref().map(|src| src.key.clone());
        self.act_on(step, to, orders)
    }

    /// As [`Run::act`], under the name `to` at the destination.
    async fn act_on(&self, step: Step, to: Option<Key>, orders: &Orders) {
        let (Step { mut action, src: Some(src), dst, why }, Some(to)) = (step, to) else { return };
        if self.moves()
            && let Err(error) = Box::pin(self.two_files(&src, &to, dst.as_ref())).await
        {
            return self.error(error);
        }
        if let Some(Err(error)) = dst.as_ref().map(|dst| self.check_not_behind_link(dst)) {
            return self.error(error);
        }
        let mut aside = false;
        if self.is_elsewhere_of_use(action, why, dst.as_ref()) {
            match Box::pin(self.found_elsewhere(&src, &to, dst.as_ref(), why)).await {
                Outcome::Done => return,
                Outcome::Nothing => {}
                // Though it was unchanged, it is there no more.
                Outcome::SetAside => (action, aside) = (Action::Copy, true),
            }
        }
        let change = action != Action::Keep;
        if change && !aside && !self.confirmed(action, &to) {
            return;
        }
        let dry_run = self.policy.dry_run;
        if change && !dry_run {
            self.will_write(&to).await;
        }
        self.note_first_name(action, &src, dst.as_ref(), why);
        if action == Action::Keep && self.must_look(why) {
            return Box::pin(self.look(src, to, why, &orders.attributes)).await;
        }
        let basis = match action == Action::Copy && dst.is_none() && self.looks_elsewhere() {
            true => Box::pin(self.basis_elsewhere(&src, &to)).await,
            false => None,
        };
        let differs = self.difference(&src, basis.as_ref().or(dst.as_ref()));
        self.cx.sink.emit(&Event::Decided { key: to.clone(), action, why, size: src.size, differs, dry_run });
        match action {
            Action::Keep => self.kept(&src, why),
            Action::Copy if dry_run => {
                let mut report = self.report();
                report.totals.transfers += 1;
                report.totals.bytes += src.size;
            }
            Action::Touch if dry_run => self.report().totals.touched += 1,
            Action::Copy => {
                let mut order = self.order(src, to, dst);
                order.kept = aside;
                self.send(order, orders).await;
            }
            Action::Touch if self.attributes.keep.is_some() => {
                Box::pin(self.dress(src, to, why, &orders.attributes)).await;
            }
            Action::Touch => Box::pin(self.touch(src, to, dst, orders)).await,
            Action::Refuse => self.refuse(&to),
            Action::MakeDir | Action::Delete | Action::Link | Action::Reuse => {}
        }
    }

    fn confirmed(&self, action: Action, key: &Key) -> bool {
        let what = match action {
            Action::Copy => "copy",
            Action::Touch => "update modification time",
            _ => return true,
        };
        self.confirm(what, key)
    }

    /// Asks the person, when there is one to ask (`--interactive`).
    pub fn confirm(&self, what: &str, key: &Key) -> bool {
        let Some(confirm) = &self.cx.confirm else { return true };
        // A question blocks; other transfers go on on the runtime's other threads.
        tokio::task::block_in_place(|| confirm.ask(what, key))
    }

    /// An unchanged file: a move still takes its source away.
    pub fn kept(&self, src: &Entry, why: Reason) {
        self.report().totals.unchanged += 1;
        if !self.moves() || why.is_left_alone() || self.policy.dry_run {
            return;
        }
        if self.confirm("delete", &src.key) {
            self.away(src.clone().into());
        }
    }

    fn order(&self, src: Entry, to: Key, replaced: Option<Entry>) -> Box<Order> {
        self.full.ordered(src.size);
        Box::new(Order::new(self.next_step(), src, to, replaced))
    }

    /// Equal bytes, other time. Where the store can't set times by themselves, the file is copied again.
    async fn touch(&self, src: Entry, to: Key, dst: Option<Entry>, orders: &Orders) {
        // Metadata that isn't known must not replace what is there.
        let meta = src.meta.as_ref().filter(|_| self.policy.metadata);
        let meta = meta.and_then(|_| crate::transfer::meta(&self.policy, &src));
        match self.cx.dst.set_meta(&to, src.mtime, meta.as_deref()).await {
            Ok(()) => {
                self.touched(to, Differs { mtime: true, ..Differs::default() });
                self.kept(&src, Reason::Mtime);
            }
            Err(e) if e.kind() == ErrorKind::Unsupported => self.send(self.order(src, to, dst), orders).await,
            Err(error) => {
                self.is_gone(&to, &error);
                self.error(error.with_key(&to));
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Transfers,
    /// `--delete-before` looks for what to delete first.
    DeletesOnly,
}
