//! A job from start to end: list both sides, join, decide, transfer, and only then delete. Reads like the life of an
//! entry in ARCHITECTURE.md; each step's work is in a module of its own.

mod ending;
mod transfers;

use crate::{
    Cx, ListOptions, Report,
    backup::Backup,
    budget::Budget,
    decide,
    finish::{Dirs, Doomed},
    list, overlap,
    pairs::Pairs,
    presence,
    rename::Renames,
    schedule::{BACKLOG, Queue},
    transfer::{Mover, Order},
};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Listed, Result, Side, Version,
    compare::{HashAnswer, Reason, Rules, Verdict, compare},
    event::Event,
    filter::Filter,
    join::Pair,
    plan::{self, Action, Step},
    policy::{Cutoff, DeleteWhen, Mode, Policy},
};
use haul_store::CopyHow;
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

/// Runs a job between two folders (or buckets) to its end; returns when every task that it started has stopped.
///
/// Errors are in the report: one file's error never stops the others, but any error keeps a sync from deleting.
pub async fn run(mode: Mode, policy: Policy, cx: Cx) -> Report {
    let run = Run::new(mode, policy, cx);
    let clock = run.clone().watch_time_limit();
    run.clone().whole().await;
    clock.abort();
    run.end_journal().await;
    run.into_report()
}

/// Brings over one file under a name of its own (`copyto`, `moveto`, `copy FILE DIR`).
pub async fn run_one(mode: Mode, policy: Policy, cx: Cx, from: &Key, to: &Key) -> Report {
    let run = Run::new(mode, policy, cx);
    let clock = run.clone().watch_time_limit();
    run.clone().one(from, to).await;
    clock.abort();
    run.end_journal().await;
    run.into_report()
}

/// A job under way.
pub(crate) struct Run {
    pub mode: Mode,
    pub policy: Arc<Policy>,
    pub cx: Cx,
    rules: Rules,
    pub mover: Mover,
    report: Mutex<Report>,
    pub steps: AtomicU64,
    /// Start nothing new; what runs may finish.
    wind_down: AtomicBool,
    started_bytes: AtomicU64,
    pub doomed: Doomed,
    pub dirs: Dirs,
    renames: Option<Renames>,
    /// Moved sources, to be deleted in batches.
    moved_away: Mutex<Vec<(Key, Option<Version>)>>,
}

impl Run {
    fn new(mode: Mode, policy: Policy, cx: Cx) -> Arc<Run> {
        let policy = Arc::new(policy);
        Arc::new_cyclic(|this: &std::sync::Weak<Run>| {
            let weak = this.clone();
            let stop: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                if let Some(run) = weak.upgrade() {
                    run.transfer_limit(true);
                }
            });
            let hard = policy.cutoff == Cutoff::Hard;
            let mover = Mover {
                cx: cx.clone(),
                mode,
                policy: policy.clone(),
                budget: Budget::new(&policy, cx.src.caps(), cx.dst.caps()),
                backup: Backup::new(&policy, &cx),
                moved: Arc::default(),
                at_limit: policy.max_transfer.filter(|_| hard).map(|limit| (limit, stop)),
            };
            Run {
                mode,
                rules: decide::rules(mode, &policy, &cx.src, &cx.dst),
                mover,
                report: Mutex::default(),
                steps: AtomicU64::new(1),
                wind_down: AtomicBool::new(false),
                started_bytes: AtomicU64::new(0),
                doomed: Doomed::new(&policy),
                dirs: Dirs::default(),
                renames: policy.track_renames.filter(|_| mode == Mode::Sync).map(Renames::new),
                moved_away: Mutex::default(),
                policy,
                cx,
            }
        })
    }

    /// The report as it grows.
    pub fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(|e| e.into_inner())
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
        let error = Arc::new(error);
        self.report().error(error.clone());
        self.cx.sink.emit(&Event::Error(error));
    }

    /// Tells the sink something that is no error.
    pub fn notice(&self, key: Option<&Key>, message: impl Into<String>) {
        self.cx.sink.emit(&Event::Notice { key: key.cloned(), message: message.into() });
    }

    /// True when nothing new may be started.
    pub fn stopping(&self) -> bool {
        self.wind_down.load(Ordering::Relaxed) || self.cx.cancel.is_cancelled()
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

    fn transfer_limit(&self, at_once: bool) {
        self.report().transfer_limit = true;
        self.wind_down.store(true, Ordering::Relaxed);
        if at_once {
            self.cx.cancel.cancel();
        }
    }

    fn watch_time_limit(self: Arc<Self>) -> tokio::task::JoinHandle<()> {
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
        if let Err(error) = self.prepare_root().await {
            return self.error(error);
        }
        let deletes = self.mode == Mode::Sync && !self.policy.no_check_dest && !self.policy.no_traverse;
        if deletes && self.policy.delete_when == DeleteWhen::Before {
            self.clone().pass(Pass::DeletesOnly).await;
            self.delete_doomed().await;
            if self.stopping() || (self.report().error_count > 0 && !self.policy.ignore_errors) {
                return;
            }
        }
        self.clone().pass(Pass::Transfers).await;
        self.flush_moved_away(true).await;
        if deletes && self.policy.delete_when != DeleteWhen::Before {
            self.delete_doomed().await;
        }
        self.finish_dirs(deletes).await;
    }

    fn check_backup(&self) -> Result<()> {
        overlap::check_backup(&self.cx, &self.policy)
    }

    /// Creates the destination's folder, so that listing it gives nothing rather than an error. A bucket is created by
    /// the first write.
    async fn prepare_root(&self) -> Result<()> {
        if self.policy.dry_run || !self.cx.dst.caps().dirs {
            return Ok(());
        }
        // Only for a source that is there: a mistyped source must not leave an empty folder behind.
        if self.cx.src.caps().dirs {
            self.cx.src.stat(&Key::new("")).await?;
        }
        self.cx.dst.make_dir(&Key::new(""), &Default::default()).await
    }

    fn list_src(&self) -> BoxStream<'static, Listed> {
        let options = ListOptions {
            max_depth: self.policy.max_depth,
            dirs: true,
            meta: self.policy.metadata,
            for_join: !self.policy.delete_excluded,
            checkers: self.mover.budget.checkers,
            pages: self.policy.checkers.unwrap_or(0),
            ask_each: self.policy.no_traverse && self.cx.filter.files_from().is_some(),
            ..ListOptions::default()
        };
        list(&self.cx.src, &self.cx.filter, options)
    }

    fn list_dst(&self) -> BoxStream<'static, Listed> {
        if self.policy.no_check_dest {
            return futures::stream::iter([Listed::End]).boxed();
        }
        let all = Arc::new(Filter::default());
        let filter = if self.policy.delete_excluded { &all } else { &self.cx.filter };
        let options = ListOptions {
            max_depth: self.policy.max_depth,
            dirs: true,
            for_join: true,
            checkers: self.mover.budget.checkers,
            pages: self.policy.checkers.unwrap_or(0),
            ..ListOptions::default()
        };
        absent_is_empty(list(&self.cx.dst, filter, options))
    }

    /// Both sides: two listings where all of the destination must be known, else a search for what the source has.
    fn pairs(&self) -> Pairs {
        let sink = self.cx.sink.clone();
        let Some(options) = presence::options(self.mode, &self.policy, &self.cx.dst) else {
            return Pairs::new(self.list_src(), self.list_dst(), sink);
        };
        Pairs::search(self.list_src(), &self.cx.dst, options, sink).0
    }

    /// One walk over both sides.
    async fn pass(self: Arc<Self>, pass: Pass) {
        let (orders, coming) = mpsc::channel(BACKLOG);
        let queue = Queue::new(coming, self.policy.order_by, self.policy.check_first);
        let scheduler = tokio::spawn(self.clone().schedule(queue));
        let mut pairs = self.pairs();
        let mut checks = Checks::new(self.mover.budget.checkers);
        let mut src_files = 0u64;
        while !self.stopping() {
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
                Ok(Some(pair)) if self.beyond_limits(&pair) => {}
                Ok(Some(pair)) => {
                    if let Pair::Both(e, _) | Pair::SrcOnly(e) | Pair::SrcUnknown(e) = &pair
                        && e.kind == Kind::File
                    {
                        src_files += 1;
                    }
                    self.pair(pair, pass, src_files, &orders, &mut checks).await;
                }
                Ok(None) => break,
                Err(error) => {
                    self.error(error);
                    break;
                }
            }
        }
        self.listing_errors(&mut pairs);
        checks.finish(&self).await;
        self.doomed.source_seen(src_files > 0, pairs.src_complete());
        self.settle_renames(&orders).await;
        drop((pairs, orders));
        self.joined("transfer", scheduler.await);
    }

    /// True for a file that is left out for its size or age. The source's facts decide where it has the file: left out
    /// there is not absent, and what the destination holds of it is only compared.
    fn beyond_limits(&self, pair: &Pair) -> bool {
        let entry = match pair {
            Pair::Both(e, _) | Pair::SrcOnly(e) | Pair::SrcUnknown(e) => e,
            Pair::DstOnly(e) if !self.policy.delete_excluded => e,
            Pair::DstOnly(_) | Pair::DstUnknown(_) => return false,
        };
        !entry.is_dir() && !self.cx.filter.within_limits(entry)
    }

    /// Counts what could not be listed. A store that doesn't know us, or that can't make sense of the root that we ask
    /// for, would say so again for every file, so that is the end of the job.
    fn listing_errors(&self, pairs: &mut Pairs) {
        for (_, error) in pairs.errors.drain(..) {
            let hopeless = match error.kind() {
                ErrorKind::Unauthenticated => true,
                ErrorKind::Invalid => error.key().is_none(),
                _ => false,
            };
            if hopeless {
                self.wind_down.store(true, Ordering::Relaxed);
            }
            self.report().error(error);
        }
    }

    async fn pair(self: &Arc<Self>, pair: Pair, pass: Pass, src_files: u64, orders: &Orders, checks: &mut Checks) {
        match pair {
            Pair::Both(src, dst) if src.is_dir() => self.dirs.both(src, &dst),
            Pair::SrcOnly(src) | Pair::SrcUnknown(src) if src.is_dir() => self.dirs.src_only(src),
            Pair::DstOnly(dst) if dst.is_dir() => self.dirs.extra(dst),
            Pair::DstOnly(dst) if dst.kind == Kind::Special => {}
            Pair::DstOnly(dst) => self.extra(dst, src_files).await,
            Pair::DstUnknown(dst) => {
                self.report().totals.protected += u64::from(self.mode == Mode::Sync && dst.kind == Kind::File);
            }
            _ if pass == Pass::DeletesOnly => {}
            Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) if src.kind == Kind::Special => {
                self.notice(Some(&src.key), "not copied: a symlink or special file (see --links and --copy-links)");
            }
            Pair::Both(src, dst) => self.both(src, dst, orders, checks).await,
            Pair::SrcOnly(src) => match &self.renames {
                Some(renames) => renames.src_only(src),
                None => self.missing(src, orders, checks).await,
            },
            Pair::SrcUnknown(src) => {
                let (run, orders) = (self.clone(), orders.clone());
                checks.spawn(self, async move { run.ask_dst(src, orders).await }).await;
            }
        }
    }

    /// A file on both sides. What the listed facts settle is settled here; the rest is asked for on a task.
    async fn both(self: &Arc<Self>, mut src: Entry, mut dst: Entry, orders: &Orders, checks: &mut Checks) {
        let quick = match self.policy.use_server_mtime {
            true => Verdict::Ask(haul_core::compare::Need::Mtime),
            false => compare(&src, &dst, &self.rules, false, HashAnswer::NotAsked),
        };
        if !matches!(quick, Verdict::Ask(_) | Verdict::Touch) {
            self.report().totals.checks += 1;
            return self.settle(src, dst, quick, orders).await;
        }
        let (run, orders) = (self.clone(), orders.clone());
        let check = async move {
            run.report().totals.checks += 1;
            match decide::verdict(&run.cx, &run.policy, &run.rules, &mut src, &mut dst).await {
                Ok(verdict) => run.settle(src, dst, verdict, &orders).await,
                Err(error) => run.error(error),
            }
        };
        checks.spawn(self, check).await;
    }

    async fn settle(&self, src: Entry, dst: Entry, verdict: Verdict, orders: &Orders) {
        if let Some(step) = plan::both(src, dst, verdict, &self.policy) {
            self.act(step, orders).await;
        }
    }

    async fn missing(self: &Arc<Self>, src: Entry, orders: &Orders, checks: &mut Checks) {
        let step = plan::missing(src, &self.policy);
        if step.action != Action::Copy || (self.cx.compare_dest.is_empty() && self.cx.copy_dest.is_empty()) {
            return self.act(step, orders).await;
        }
        let (run, orders) = (self.clone(), orders.clone());
        checks.spawn(self, async move { run.act(step, &orders).await }).await;
    }

    /// The destination's listing didn't get to this key: ask.
    async fn ask_dst(&self, mut src: Entry, orders: Orders) {
        match self.cx.dst.stat(&src.key).await {
            Ok(mut dst) => {
                self.report().totals.checks += 1;
                match decide::verdict(&self.cx, &self.policy, &self.rules, &mut src, &mut dst).await {
                    Ok(verdict) => self.settle(src, dst, verdict, &orders).await,
                    Err(error) => self.error(error),
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {
                self.act(plan::missing(src, &self.policy), &orders).await;
            }
            Err(error) => self.error(error.with_key(&src.key)),
        }
    }

    /// A file that the source provably lacks.
    async fn extra(&self, dst: Entry, src_files: u64) {
        if self.mode != Mode::Sync {
            return;
        }
        if let Some(renames) = &self.renames {
            return renames.dst_only(dst);
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
        self.cx.sink.emit(&Event::Decided { key, action, why, size: entry.size, dry_run });
    }

    /// Does what was decided about a file, or hands it to the scheduler.
    async fn act(&self, step: Step, orders: &Orders) {
        let Step { action, src: Some(src), dst, why } = step else { return };
        let to = src.key.clone();
        self.act_on(action, src, to, dst, why, orders).await;
    }

    async fn act_on(&self, action: Action, src: Entry, to: Key, dst: Option<Entry>, why: Reason, orders: &Orders) {
        if self.mode == Mode::Move && self.one_file(&src, dst.as_ref()) {
            let message = "source and destination are the same file under two names: moving it would delete it";
            return self.error(Error::new(ErrorKind::Invalid, "move", message).with_key(&src.key));
        }
        if action == Action::Copy && self.found_elsewhere(&src, &to, dst.as_ref(), why).await {
            return;
        }
        let change = action != Action::Keep;
        if change && !self.confirmed(action, &to) {
            return;
        }
        let dry_run = self.policy.dry_run;
        self.cx.sink.emit(&Event::Decided { key: to.clone(), action, why, size: src.size, dry_run });
        match action {
            Action::Keep => self.kept(&src, why),
            Action::Copy if dry_run => {
                let mut report = self.report();
                report.totals.transfers += 1;
                report.totals.bytes += src.size;
            }
            Action::Touch if dry_run => self.report().totals.touched += 1,
            Action::Copy => self.order(src, to, dst, orders).await,
            Action::Touch => self.touch(src, to, dst, orders).await,
            Action::Refuse => {
                let message = "it exists and differs, and --immutable forbids to change it";
                self.error(Error::new(ErrorKind::Exists, "copy", message).with_key(&to));
            }
            Action::MakeDir | Action::Delete => {}
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
    fn kept(&self, src: &Entry, why: Reason) {
        self.report().totals.unchanged += 1;
        let there = !matches!(why, Reason::Existing | Reason::NotExisting | Reason::Newer);
        if self.mode != Mode::Move || !there || self.policy.dry_run {
            return;
        }
        if self.confirm("delete", &src.key) {
            self.away(src.key.clone(), src.version.clone());
        }
    }

    /// On disks a version pins the file itself: equal ones are one file, reached by two paths (a bind mount, say).
    fn one_file(&self, src: &Entry, dst: Option<&Entry>) -> bool {
        let files = self.cx.src.caps().files && self.cx.dst.caps().files;
        files && src.version.is_some() && dst.is_some_and(|dst| dst.version == src.version)
    }

    async fn order(&self, src: Entry, to: Key, replaced: Option<Entry>, orders: &Orders) {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        // Fails only when the scheduler is gone, which stops the job anyway.
        let _ = orders.send(Order::new(step, src, to, replaced)).await;
    }

    /// Equal bytes, other time. Where the store can't set times by themselves, the file is copied again.
    async fn touch(&self, src: Entry, to: Key, dst: Option<Entry>, orders: &Orders) {
        // Metadata that isn't known must not replace what is there.
        let meta = src.meta.as_ref().filter(|_| self.policy.metadata);
        let meta = meta.and_then(|_| crate::transfer::meta(&self.policy, &src));
        match self.cx.dst.set_meta(&to, src.mtime, meta.as_deref()).await {
            Ok(()) => {
                self.report().totals.touched += 1;
                self.cx.sink.emit(&Event::Touched { key: to });
                self.kept(&src, Reason::Mtime);
            }
            Err(e) if e.kind() == ErrorKind::Unsupported => self.order(src, to, dst, orders).await,
            Err(error) => self.error(error.with_key(&to)),
        }
    }

    /// `--track-renames`: what both sides have under other names is renamed; the rest is copied and deleted.
    async fn settle_renames(self: &Arc<Self>, orders: &Orders) {
        let Some(renames) = &self.renames else { return };
        let settled = renames.settle(&self.cx, &self.rules).await;
        for error in settled.errors {
            self.error(error);
        }
        for (src, old) in settled.renamed {
            if self.policy.dry_run {
                self.report().totals.renames += 1;
                self.notice(Some(&old.key), format!("Skipped rename to {} as --dry-run is set", src.key));
                continue;
            }
            if !self.rename(&src, &old).await {
                self.act(plan::missing(src, &self.policy), orders).await;
                self.doom_or_count(old);
            }
        }
        for src in settled.missing {
            self.act(plan::missing(src, &self.policy), orders).await;
        }
        for old in settled.extra {
            self.doom_or_count(old);
        }
    }

    fn doom_or_count(&self, old: Entry) {
        let step = plan::extra(old, true);
        self.decided(&step);
        let Some(old) = step.dst else { return };
        if self.policy.dry_run {
            self.report().totals.deletes += 1;
        } else if let Err(error) = self.doomed.push(old.into()) {
            self.error(error);
        }
    }

    async fn rename(&self, src: &Entry, old: &Entry) -> bool {
        let mover = Mover { cx: Cx { src: self.cx.dst.clone(), ..self.cx.clone() }, ..self.mover.clone() };
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        let from = Entry { mtime: src.mtime.or(old.mtime), ..old.clone() };
        let order = Order::new(step, from, src.key.clone(), None);
        match mover.bring_by_server(&mut [order], CopyHow::Rename).await.pop() {
            Some(Ok(_)) => {
                self.report().totals.renames += 1;
                self.dirs.written(&src.key);
                self.dirs.written(&old.key);
                self.cx.sink.emit(&Event::Renamed { from: old.key.clone(), to: src.key.clone() });
                true
            }
            _ => false,
        }
    }

    /// One file under a name of its own.
    async fn one(self: Arc<Self>, from: &Key, to: &Key) {
        let same_place = match (&self.cx.src.caps().domain, &self.cx.dst.caps().domain) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        };
        if same_place && from == to {
            let message = format!("source and destination are the same file: {}", self.cx.src.locator());
            return self.error(Error::new(ErrorKind::Invalid, "start", message).with_key(from));
        }
        if let Err(error) = self.check_backup() {
            return self.error(error);
        }
        let (orders, coming) = mpsc::channel(BACKLOG);
        let scheduler = tokio::spawn(self.clone().schedule(Queue::new(coming, None, false)));
        if let Err(error) = self.decide_one(from, to, &orders).await {
            self.error(error);
        }
        drop(orders);
        self.joined("transfer", scheduler.await);
        self.flush_moved_away(true).await;
    }

    async fn decide_one(&self, from: &Key, to: &Key, orders: &Orders) -> Result<()> {
        let mut src = self.cx.src.stat(from).await.map_err(|e| e.with_key(from))?;
        self.cx.sink.emit(&Event::Listed { side: Side::Src, files: 1, bytes: src.size });
        let there = match self.policy.no_check_dest {
            true => None,
            false => match self.cx.dst.stat(to).await {
                Ok(entry) if !entry.is_dir() => Some(entry),
                Ok(_) => None,
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => None,
                Err(error) => return Err(error.with_key(to)),
            },
        };
        let step = match there {
            None => Some(plan::missing(src, &self.policy)),
            Some(mut dst) => {
                self.report().totals.checks += 1;
                let verdict = decide::verdict(&self.cx, &self.policy, &self.rules, &mut src, &mut dst).await?;
                plan::both(src, dst, verdict, &self.policy)
            }
        };
        if let Some(Step { action, src: Some(src), dst, why }) = step {
            self.act_on(action, src, to.clone(), dst, why, orders).await;
        }
        Ok(())
    }
}

/// Where decided transfers go.
pub(crate) type Orders = mpsc::Sender<Order>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Transfers,
    /// `--delete-before` looks for what to delete first.
    DeletesOnly,
}

/// Questions to the stores that run beside the walk, a bounded number at once.
struct Checks {
    permits: Arc<Semaphore>,
    tasks: JoinSet<()>,
}

impl Checks {
    fn new(checkers: usize) -> Self {
        Checks { permits: Arc::new(Semaphore::new(checkers)), tasks: JoinSet::new() }
    }

    async fn spawn(&mut self, run: &Run, check: impl Future<Output = ()> + Send + 'static) {
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        self.tasks.spawn(async move {
            check.await;
            drop(permit);
        });
        while let Some(ended) = self.tasks.try_join_next() {
            run.joined("check", ended);
        }
    }

    async fn finish(mut self, run: &Run) {
        while let Some(ended) = self.tasks.join_next().await {
            run.joined("check", ended);
        }
    }
}

/// A destination that doesn't exist holds nothing: that is proof, not a failure.
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
