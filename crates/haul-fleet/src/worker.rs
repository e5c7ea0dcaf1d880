//! A worker: gives signs of life, claims shards, runs the engine over them, splits them where others wait, writes down what came of
//! them, and ends when nothing is left. Drives what [`crate::protocol`] decides.

use crate::{
    Board, Spec,
    cuts::cuts,
    ends::Machine,
    job_folder::{View, is_removed, is_spoiled},
    lease_check::{LifeSigns, ShardHold},
    outcome::{WorkDone, fatal},
    protocol::{
        Lease, NextAction, Patience, Progress, Record, RemainingWork, ShardId, ShardState, ShardView, WorkerId, choose,
        crossed, pieces, ripen,
    },
    report::{ReadRecords, Records, Summary, records, shorten, summary},
};
use futures::FutureExt;
use haul::{
    Cancel, Cx,
    part::{PartReport, RunControl, RunPosition},
    run_part,
};
use haul_core::{
    Error, ErrorKind, Key, Mtime, Result,
    job::{Job, Mounts, Verb},
    part::{KeyRange, Part},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

/// A worker that begins, or begins to wait, looks again after this part of an interval, then after twice that, and so on …
const SOONEST: u32 = 16;
/// … up to this part: so long at most it doesn't know that nothing is left. Who holds a shard while there is none to claim looks as often
/// whether others wait for a piece of it.
const LATEST: u32 = 4;

/// How a worker works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often it gives a sign of life, and looks at the others'.
    pub interval: Duration,
    /// After this many looks at an unchanged sign a worker counts as dead.
    pub patience: u32,
    /// Shards that it works at at once: while one comes to its end the other goes on.
    pub shards: usize,
    /// Finished work on a shard is recorded this often, if nothing else leads to it; after a quarter of that time for each
    /// holder that died over it, down to `interval`.
    pub note_every: Duration,
    /// After this many holders that died without recording any work, a shard is given up: it may be what kills
    /// them. A stopped worker returns the shards it holds, and doesn't count.
    pub deaths: u64,
    /// How long what was begun may take to end once the worker is to stop.
    pub grace: Duration,
    /// Which worker this is of how many, for a job whose shards belong to workers by number.
    pub number: Option<(usize, usize)>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            interval: Duration::from_secs(10),
            patience: 6,
            shards: 2,
            note_every: Duration::from_secs(300),
            deaths: 20,
            grace: Duration::from_secs(20),
            number: None,
        }
    }
}

/// Hears how many workers live, whenever it looks.
pub type LiveWorkers = Arc<dyn Fn(usize) + Send + Sync>;

/// True for a worker that has certainly ended, by facts other than its signs of life.
pub type IsDead = Arc<dyn Fn(&WorkerId) -> bool + Send + Sync>;

/// Puts an error in words, in one line.
pub type Line = Arc<dyn Fn(&Error) -> String + Send + Sync>;

/// A worker that has not begun.
pub struct Worker {
    /// Its name, which no other has.
    pub me: WorkerId,
    /// The job's folder.
    pub board: Board,
    /// The job.
    pub spec: Spec,
    /// The engine's job; its verb, part and limits are set here.
    pub job: Job,
    /// The surroundings of the engine.
    pub cx: Cx,
    /// How to work.
    pub settings: Settings,
    /// The machine on which it works.
    pub machine: Machine,
    /// Ends it: what it holds is given back.
    pub stop: Cancel,
    /// Shares rates between the live workers.
    pub living: LiveWorkers,
    /// Workers whose leases needn't be waited for.
    pub gone: IsDead,
    /// Words for errors in records.
    pub line: Line,
}

/// How a worker ended.
#[derive(Debug)]
pub enum WorkerEnd {
    /// No work is left in the job.
    NothingLeft(Box<Summary>),
    /// It was stopped, and gave back what it held.
    Stopped,
    /// The job was cancelled.
    Cancelled,
}

impl Worker {
    /// Works until nothing is left.
    ///
    /// Errors: the job's folder or an end of the job can't be reached, or isn't what it was; what it held is given back where that is
    /// possible, and goes to others in any case.
    pub async fn work(mut self) -> Result<WorkerEnd> {
        self.spec.ends.check((&self.cx.src, &self.cx.dst), self.machine).await?;
        if self.job.listing.mounts == Mounts::Cross {
            self.spec.ends.check_more((&self.cx.src, &self.cx.dst), &self.cx.filter, self.machine)?;
        }
        if self.spec.fixed && self.settings.number.is_none() {
            let message = "the job's store keeps no conditions, so each worker needs a number: --worker 0/4 for the first of four";
            return Err(Error::new(ErrorKind::Invalid, "start", message));
        }
        let shards = if self.spec.fixed { 1 } else { self.settings.shards.max(1) };
        self.job.limits.memory = (self.job.limits.memory / shards as u64).max(1);
        // Each shard has two listings. Its keys come no faster than they are dealt with, so what is listed far ahead only waits.
        self.job.limits.listed /= 2 * shards;
        let patience = Patience::new(self.settings.patience);
        let crew = Arc::new(Crew {
            spec: Arc::new(self.spec.clone()),
            state: Mutex::new(LastLook { patience, view: View::default(), known: BTreeMap::new(), open: 0, pieces: 1 }),
            held: Mutex::default(),
            looked: Notify::default(),
            sighted: Notify::default(),
            signs: Arc::new(LifeSigns::new(self.board.clone(), self.me.clone())),
            reading: tokio::sync::Mutex::default(),
            waiting: AtomicUsize::new(0),
            said_idle: AtomicBool::new(false),
            ended: Cancel::default(),
            removed: AtomicBool::new(false),
            shards,
            worker: self,
        });
        crew.clone().run().await
    }
}

/// A worker under way: one task that gives signs and looks, and one for each shard that it may hold.
pub(crate) struct Crew {
    pub worker: Worker,
    pub spec: Arc<Spec>,
    state: Mutex<LastLook>,
    /// The shards that it holds: the number of the record, and what ends the run if the lease is lost.
    held: Mutex<BTreeMap<ShardId, (u64, Cancel)>>,
    /// Told after the look of each interval, and when a task is through with a shard.
    looked: Notify,
    /// Told after each look.
    sighted: Notify,
    pub signs: Arc<LifeSigns>,
    /// Held while records are read.
    reading: tokio::sync::Mutex<()>,
    /// Tasks that found nothing to claim.
    waiting: AtomicUsize,
    /// The folder says that it waits.
    said_idle: AtomicBool,
    /// Nothing new is begun: it is to stop, or has failed.
    pub ended: Cancel,
    /// The job isn't there any more: no record is written.
    removed: AtomicBool,
    shards: usize,
}

/// Its last look.
pub(crate) struct LastLook {
    patience: Patience,
    pub view: View,
    known: ReadRecords,
    /// Shards that nobody has claimed yet.
    open: usize,
    /// Into how many pieces a holder is to cut what it has left.
    pieces: usize,
}

impl Crew {
    pub fn sight(&self) -> MutexGuard<'_, LastLook> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn held(&self) -> MutexGuard<'_, BTreeMap<ShardId, (u64, Cancel)>> {
        self.held.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn me(&self) -> &WorkerId {
        &self.worker.me
    }

    pub fn board(&self) -> &Board {
        &self.worker.board
    }

    async fn run(self: Arc<Self>) -> Result<WorkerEnd> {
        self.signs.give().await?;
        let crew = self.clone();
        let signs = tokio::spawn(async move { crew.keep_signing().await });
        let crew = self.clone();
        let stops = tokio::spawn(async move {
            crew.worker.stop.cancelled().await;
            crew.ended.cancel();
        });
        // On this task: what the engine does beside it, it starts itself.
        let tasks = (0..self.shards).map(|_| async {
            let ended = self.shards().await;
            if ended.is_err() {
                self.ended.cancel();
            }
            ended
        });
        let failed = futures::future::join_all(tasks).await.into_iter().find_map(Result::err);
        signs.abort();
        stops.abort();
        // A sign of life that stays counts as dead later; nothing depends on it.
        let _ = self.say_idle(false).await;
        let _ = self.board().leave(self.me()).await;
        if let Some(error) = failed {
            return Err(error);
        }
        let view = self.board().look().await?;
        let (records, stopped) = (self.records(&view).boxed_local().await?, self.worker.stop.is_cancelled());
        let summary = summary(&self.spec, &view, &records);
        if view.cancelled && !summary.complete {
            self.discard_writes(&records).boxed_local().await;
        }
        Ok(match summary {
            summary if view.cancelled && !summary.complete => WorkerEnd::Cancelled,
            summary if summary.complete || self.spec.fixed && !stopped => WorkerEnd::NothingLeft(Box::new(summary)),
            _ => WorkerEnd::Stopped,
        })
    }

    /// Gives signs and looks, for as long as the worker works.
    async fn keep_signing(&self) {
        let interval = self.worker.settings.interval;
        // Workers are started together: those that begin a little later are to be known before shared rates are exceeded for long.
        let (mut is_first, mut pauses) = (true, [SOONEST, SOONEST, SOONEST / 2, LATEST, 2].as_slice());
        loop {
            let begun = Instant::now();
            self.look(true).await;
            self.looked.notify_waiters();
            let (last, before) = pauses.split_last().unwrap_or((&1, &[]));
            for part in before {
                sleep(interval / *part).await;
                let may_split = !self.held().is_empty() && self.sight().open == 0 && !self.spec.fixed;
                // The next sign of life is no later for it, however long a look takes.
                if (may_split || is_first) && begun.elapsed() < interval {
                    self.look(false).await;
                }
            }
            sleep(interval / *last).await;
            (is_first, pauses) = (false, &[LATEST; LATEST as usize]);
            if let Err(error) = self.signs.give().await {
                tracing::warn!("can't write into the job's directory: {}", (self.worker.line)(&error));
            }
        }
    }

    async fn look(&self, next_interval: bool) {
        match self.board().look().await {
            Ok(view) => self.saw(view, next_interval),
            Err(error) if is_removed(&error) => self.lose_all(),
            Err(error) => tracing::warn!("can't look at the job's directory: {}", (self.worker.line)(&error)),
        }
        self.sighted.notify_waiters();
    }

    /// The job was removed, so work under way must stop: another job may be in its folder, of other ends.
    fn lose_all(&self) {
        self.removed.store(true, Relaxed);
        self.ended.cancel();
        self.held().values().for_each(|(_, lost)| lost.cancel());
    }

    /// Adds a look: live workers, waiting workers, lost leases. One that isn't the first of its interval says nothing about who lives.
    fn saw(&self, view: View, next_interval: bool) {
        if view.cancelled {
            self.ended.cancel();
        }
        for (id, (number, lost)) in self.held().iter() {
            if view.latest.get(id).is_some_and(|latest| latest > number) && !self.spec.fixed {
                tracing::warn!("Shard {id} was taken over by another worker while this one gave no sign of life");
                lost.cancel();
            }
        }
        let mut sight = self.sight();
        let holders: BTreeSet<WorkerId> =
            sight.known.values().filter(|(_, r)| r.state == ShardState::Held).map(|(_, r)| r.by.clone()).collect();
        if next_interval {
            sight.patience.look(&view.signs, &holders);
        }
        let is_dead = |worker: &WorkerId| self.is_dead(&sight, worker);
        let living = view.signs.keys().filter(|worker| !is_dead(worker)).count().max(1);
        // A worker that ended without removing that has removed its sign of life, or was silent for long.
        let waits = |worker: &&WorkerId| view.signs.contains_key(*worker) && !is_dead(worker) && *worker != self.me();
        let idle = view.idle.iter().filter(waits).count();
        let all = self.all(&view, &sight.known);
        let begun = |id: &ShardId| view.latest.get(id).is_some_and(|number| *number > 0);
        let open = all.iter().filter(|id| !begun(id) && !id.is_finish()).count();
        let holders = all.iter().filter(|id| begun(id) && !view.done.contains(*id)).count();
        sight.open = open;
        sight.pieces = if self.spec.fixed { 1 } else { pieces(idle, open, holders) };
        sight.view = view;
        drop(sight);
        (self.worker.living)(living);
    }

    /// Nothing was heard of it for long enough, or it has surely ended.
    fn is_dead(&self, sight: &LastLook, worker: &WorkerId) -> bool {
        sight.patience.is_dead(worker) || (self.worker.gone)(worker)
    }

    /// The names of all shards, in order: those that the job was made with, that are listed, or of which something is known.
    fn all(&self, view: &View, known: &ReadRecords) -> BTreeSet<ShardId> {
        let first = self.spec.shards().into_iter().map(|(id, _)| id);
        let finish = self.spec.finish.then(ShardId::finish);
        first.chain(view.latest.keys().chain(known.keys()).cloned()).chain(finish).collect()
    }

    /// The last records of all shards.
    async fn records(&self, view: &View) -> Result<Records> {
        // Records that one task reads, the others needn't.
        let _alone = self.reading.lock().await;
        let mut known = self.sight().known.clone();
        let all = records(self.board(), &self.spec, view, &mut known).await?;
        self.sight().known.extend(known);
        Ok(all)
    }

    /// Claims and works until nothing is left, or the worker is to end.
    async fn shards(&self) -> Result<()> {
        let soonest = self.worker.settings.interval / SOONEST;
        let mut pause = soonest;
        while !self.ended.is_cancelled() {
            // Before it chooses: a notice during the look must not be missed.
            let looked = self.looked.notified();
            match self.choice().boxed_local().await? {
                NextAction::Over => {
                    // The other tasks needn't wait for the next look to know.
                    self.looked.notify_waiters();
                    return Ok(());
                }
                NextAction::Claim(id) => {
                    let claimed = self.claim(id.clone()).boxed_local().await;
                    if !matches!(claimed, Ok(Some(_))) {
                        self.held().remove(&id);
                    }
                    let Some(lease) = claimed? else { continue };
                    self.say_idle(false).await?;
                    if pause > soonest {
                        // Where there is one to claim after a while, there may be more.
                        self.looked.notify_waiters();
                    }
                    pause = soonest;
                    self.hold(lease).boxed_local().await?;
                    // The other tasks may wait for just this shard, and the next look may be far.
                    self.looked.notify_waiters();
                }
                NextAction::Wait => {
                    let others = self.waiting.fetch_add(1, Relaxed);
                    // All of its tasks wait, so it could use a part of the others' work.
                    let all_wait = others + 1 == self.shards;
                    if all_wait {
                        self.say_idle(true).await?;
                    }
                    // It looks more often by itself: a worker that has just begun may split off ranges of a large file at once.
                    tokio::select! {
                        () = looked => {}
                        () = sleep(pause), if all_wait => {}
                        () = self.ended.cancelled() => {}
                    }
                    pause = (pause * 2).min(self.worker.settings.interval / LATEST);
                    self.waiting.fetch_sub(1, Relaxed);
                }
            }
        }
        Ok(())
    }

    async fn say_idle(&self, waits: bool) -> Result<()> {
        if !self.spec.fixed && self.said_idle.swap(waits, Relaxed) != waits {
            self.board().idle(self.me(), waits).await?;
        }
        Ok(())
    }

    async fn choice(&self) -> Result<NextAction> {
        let view = match self.board().look().await {
            Err(error) if is_removed(&error) => {
                self.lose_all();
                return Err(error);
            }
            view => view?,
        };
        if view.cancelled {
            self.ended.cancel();
            return Ok(NextAction::Over);
        }
        let choice = self.choice_of(&self.seen(&view));
        if let NextAction::Claim(_) = choice {
            return Ok(choice);
        }
        // Only an idle worker reads records of others. When no work seems to be left, they may name a shard that isn't listed.
        self.records(&view).boxed_local().await?;
        Ok(self.choice_of(&self.seen(&view)))
    }

    /// Next action for shards in these states.
    fn choice_of(&self, seen: &[ShardView]) -> NextAction {
        let start = self.me().0.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let (sight, mut held) = (self.sight(), self.held());
        let free = seen.iter().filter(|shard| !held.contains_key(&shard.id) || shard.state == ShardState::Done);
        let free: Vec<ShardView> = free
            .map(|shard| match shard.by == *self.me() && shard.state == ShardState::Held {
                // Its own claim, of whose answer it never heard.
                true => ShardView { state: ShardState::Open, ..shard.clone() },
                false => shard.clone(),
            })
            .collect();
        match choose(&free, start, |by| self.is_dead(&sight, by)) {
            // Shards that it holds itself aren't over.
            NextAction::Over | NextAction::Claim(_) if !held.is_empty() && waits_for_own(&free) => NextAction::Wait,
            // From here on no other task of this worker claims it: both would write the same record, and believe in it.
            NextAction::Claim(id) => {
                held.insert(id.clone(), (u64::MAX, Cancel::default()));
                NextAction::Claim(id)
            }
            choice => choice,
        }
    }

    /// All shards as a listing shows them, with the known state of their records.
    fn seen(&self, view: &View) -> Vec<ShardView> {
        let sight = self.sight();
        let of_others = WorkerId("?".into());
        let shard = |(at, id): (usize, ShardId)| {
            let number = view.latest.get(&id).copied().unwrap_or(0);
            let known = sight.known.get(&id).filter(|(known, _)| *known >= number).map(|(_, record)| record);
            let (state, by, waits) = match known {
                _ if view.done.contains(&id) => (ShardState::Done, of_others.clone(), false),
                Some(record) => (record.state, record.by.clone(), record.waits()),
                _ if number == 0 => (ShardState::Open, of_others.clone(), false),
                None => (ShardState::Held, of_others.clone(), false),
            };
            let seen = ShardView { id, state, by, waits };
            let Some((worker, of)) = self.worker.settings.number.filter(|_| self.spec.fixed) else {
                return Some(seen);
            };
            // One's own are one's own, whoever held them before; the last is the first worker's, once all are done.
            let is_finish = seen.id.is_finish();
            let own = if is_finish { worker == 0 } else { at % of.max(1) == worker };
            match (own, state) {
                (true, ShardState::Held) => Some(ShardView { state: ShardState::Open, ..seen }),
                (true, _) => Some(seen),
                (false, _) if worker != 0 || is_finish => None,
                (false, ShardState::Done) => Some(seen),
                (false, _) => Some(ShardView { state: ShardState::Held, by: of_others.clone(), ..seen }),
            }
        };
        let mut all: Vec<ShardView> = self.all(view, &sight.known).into_iter().enumerate().filter_map(shard).collect();
        ripen(&mut all);
        all
    }

    /// The first record of a shard that the job was created with, which nobody writes.
    fn first_record(&self, id: &ShardId) -> Option<Record<WorkDone>> {
        let shards = self.spec.shards();
        let range = shards.into_iter().find(|(first, _)| first == id).map(|(_, range)| range);
        let range = range.or_else(|| id.is_finish().then(Default::default))?;
        Some(Record::first(&WorkerId(String::new()), RemainingWork::Keys(range)))
    }

    async fn claim(&self, id: ShardId) -> Result<Option<Lease<WorkDone>>> {
        let latest = self.board().latest(&id).await?;
        let number = latest.unwrap_or(0);
        let there = match self.record(&id, number).await {
            Err(error) if is_spoiled(&error) => return self.take_unread(id, number, &error).boxed_local().await,
            there => there?,
        };
        let Some(mut record) = there else {
            // It existed when its parent was done. Being unlisted for this long is no delay.
            let is_gone = latest.is_none() && id.parent().is_some();
            return if is_gone { Err(gone(&id)) } else { Ok(None) };
        };
        // A shard that was claimable when it was chosen need not be so any more.
        if record.state == ShardState::Done || record.state == ShardState::Held && !self.may_take_from(&record.by) {
            shorten(&mut record);
            self.sight().known.insert(id, (number, record));
            return Ok(None);
        }
        let base = Lease { id: id.clone(), number, record };
        self.board().create_split_shards(&base).await?;
        let lease = base.claimed(self.me());
        Ok(self.write(&lease).await?.then_some(lease))
    }

    /// A shard's record, also the first of one that the job was made with.
    pub async fn record(&self, id: &ShardId, number: u64) -> Result<Option<Record<WorkDone>>> {
        match self.first_record(id).filter(|_| number == 0) {
            Some(record) => Ok(Some(record)),
            None => self.board().record(id, number).await,
        }
    }

    /// True if a shard held by `by` may be taken over.
    pub fn may_take_from(&self, by: &WorkerId) -> bool {
        self.is_dead(&self.sight(), by) || by == self.me() || self.spec.fixed
    }

    /// Writes a record of its own. True if it stands.
    pub async fn write(&self, lease: &Lease<WorkDone>) -> Result<bool> {
        // Before it is written: a look that sees it must not take it for another's.
        self.held().insert(lease.id.clone(), (lease.number, Cancel::default()));
        if self.removed.load(Relaxed) { Ok(false) } else { self.board().write(lease).await }
    }

    /// Works at a shard until it is done, given back or lost.
    async fn hold(&self, lease: Lease<WorkDone>) -> Result<()> {
        let id = lease.id.clone();
        let done = match lease.record.rest.clone() {
            _ if self.is_given_up(&lease) => self.give_up_shard(lease).boxed_local().await,
            RemainingWork::Keys(_) if id.is_finish() => self.finish(lease).boxed_local().await,
            RemainingWork::Keys(range) => self.hold_range(lease, range).boxed_local().await,
            RemainingWork::File(file) => match self.unseen().boxed_local().await {
                Some(error) => self.leave(lease, error).boxed_local().await,
                None => self.hold_file(lease, file).boxed_local().await,
            },
            RemainingWork::Nothing => self.is_done(&lease, WorkDone::default()).boxed_local().await,
        };
        self.held().remove(&id);
        done
    }

    /// Notes that a shard is done.
    pub async fn is_done(&self, lease: &Lease<WorkDone>, outcome: WorkDone) -> Result<()> {
        match self.write(&lease.with(Progress::Done(outcome))).await? {
            true => self.board().note_done(&lease.id).await,
            false => Ok(()),
        }
    }

    async fn hold_range(&self, mut lease: Lease<WorkDone>, mut range: KeyRange) -> Result<()> {
        loop {
            let part = Part::Range(range.clone());
            let PartReport { report, reached, large } =
                self.run_part(&lease, part, lease.record.outcome.error_count).boxed_local().await;
            let (_, lost) = self.held().get(&lease.id).cloned().unwrap_or_default();
            if lost.is_cancelled() {
                return Ok(());
            }
            let mut outcome = WorkDone::of(&report, &*self.worker.line);
            // An end that isn't seen now may have been missing before.
            if let Some(error) = self.unseen().boxed_local().await {
                return self.leave(lease, error).boxed_local().await;
            }
            let fatal = fatal(&report.errors, report.stopped);
            let ending = self.ended.is_cancelled();
            let files = self.shards_of(&large, &mut outcome);
            let settled = |outcome| match files.is_empty() {
                true => Progress::Done(outcome),
                false => Progress::Settled(outcome, files.clone()),
            };
            let deaths = self.worker.settings.deaths;
            let progress = match reached {
                // A walk that was whole is no proof that its transfers were tried. One file that each worker fails so on is its own error.
                RunPosition::End | RunPosition::Key(_) if fatal.is_some() && lease.record.failures < deaths => {
                    Progress::Fails
                }
                RunPosition::End => settled(outcome),
                RunPosition::Key(key) if ending => Progress::GivesBack(Some(key), outcome, files),
                RunPosition::Key(key) => {
                    range.after = Some(key.clone());
                    let cuts = self.cuts(&lease, &range).boxed_local().await;
                    Progress::Reached(key, outcome, cuts, files)
                }
                // The next holder repeats this work: it is counted there, not here.
                RunPosition::Unknown if ending || fatal.is_some() => {
                    Progress::GivesBack(None, WorkDone::default(), Vec::new())
                }
                // A listing that broke off. The errors tell, and nothing was deleted.
                RunPosition::Unknown => settled(unsettled(outcome)),
            };
            lease = lease.with(progress);
            if !self.write(&lease).await? {
                return Ok(());
            }
            self.board().create_split_shards(&lease).await?;
            if let Some(error) = fatal.filter(|_| lease.record.state == ShardState::Open) {
                return Err(error);
            }
            match (lease.record.state, &lease.record.rest) {
                (ShardState::Done, _) => return self.board().note_done(&lease.id).await,
                (ShardState::Open, _) => return Ok(()),
                (ShardState::Held, RemainingWork::Keys(rest)) => range = rest.clone(),
                (ShardState::Held, _) => return self.is_done(&lease, WorkDone::default()).await,
            }
        }
    }

    /// The last shard: directories through which cuts go.
    async fn finish(&self, lease: Lease<WorkDone>) -> Result<()> {
        let Some(records) = self.all_done().boxed_local().await? else {
            return self.write(&lease.with(Progress::GivesBack(None, WorkDone::default(), Vec::new()))).await.map(drop);
        };
        let own = self.spec.cuts.iter();
        let dirs = crossed(own.chain(records.values().flat_map(|record| &record.cuts)));
        let errors = records.values().map(|record| record.outcome.error_count).sum();
        let PartReport { report, reached, .. } = self.run_part(&lease, dirs, errors).boxed_local().await;
        let outcome = WorkDone::of(&report, &*self.worker.line);
        if let Some(error) = self.unseen().boxed_local().await {
            return self.leave(lease, error).boxed_local().await;
        }
        let fatal = fatal(&report.errors, report.stopped);
        let (_, lost) = self.held().get(&lease.id).cloned().unwrap_or_default();
        if lost.is_cancelled() {
            return Ok(());
        }
        let lease = lease.with(match reached {
            RunPosition::End if fatal.is_some() && lease.record.failures < self.worker.settings.deaths => {
                Progress::Fails
            }
            RunPosition::Unknown if self.ended.is_cancelled() || fatal.is_some() => {
                Progress::GivesBack(None, WorkDone::default(), Vec::new())
            }
            RunPosition::Unknown => Progress::Done(unsettled(outcome)),
            RunPosition::Key(_) => Progress::GivesBack(None, WorkDone::default(), Vec::new()),
            RunPosition::End => Progress::Done(outcome),
        });
        let stands = self.write(&lease).await?;
        match (stands && lease.record.state == ShardState::Done, fatal) {
            (true, _) => self.board().note_done(&lease.id).await,
            (false, Some(error)) => Err(error),
            (false, None) => Ok(()),
        }
    }

    /// The records of all shards once all but the last are surely done; `None` if they aren't. A listing of a folder reads its names
    /// before what they hold: it may show a shard as done, and not yet the one that was split off before. The next one shows that.
    async fn all_done(&self) -> Result<Option<Records>> {
        let mut before = None;
        loop {
            let view = self.board().look().await?;
            let records = self.records(&view).boxed_local().await?;
            if self.seen(&view).iter().any(|shard| !shard.id.is_finish() && shard.state != ShardState::Done) {
                return Ok(None);
            }
            let all = Some(self.all(&view, &self.sight().known));
            if before == all {
                return Ok(Some(records));
            }
            before = all;
        }
    }

    /// Where to cut what is left of a shard, if others wait for something to do.
    async fn cuts(&self, lease: &Lease<WorkDone>, rest: &KeyRange) -> Vec<Key> {
        let pieces = std::mem::replace(&mut self.sight().pieces, 1);
        match cuts(&self.worker.cx.src, rest, pieces).await {
            Ok(cuts) => cuts,
            Err(error) => {
                tracing::warn!("Shard {} isn't split: {}", lease.id, (self.worker.line)(&error));
                Vec::new()
            }
        }
    }

    /// Gives a shard back as it was taken, for an error that is this machine's.
    async fn leave(&self, lease: Lease<WorkDone>, error: Error) -> Result<()> {
        self.write(&lease.with(Progress::GivesBack(None, WorkDone::default(), Vec::new()))).await?;
        Err(error)
    }

    /// Why this machine doesn't see the ends of the job, if it doesn't: file systems are mounted and unmounted under a worker.
    async fn unseen(&self) -> Option<Error> {
        let Worker { spec, cx, machine, .. } = &self.worker;
        spec.ends.check_mounted((&cx.src, &cx.dst), *machine).await.err()
    }

    /// The hold on a shard, by this record.
    pub fn grip(&self, lease: &Lease<WorkDone>) -> ShardHold {
        let worker = &self.worker;
        ShardHold {
            board: worker.board.clone(),
            spec: self.spec.clone(),
            src: worker.cx.src.clone(),
            dst: worker.cx.dst.clone(),
            machine: worker.machine,
            id: lease.id.clone(),
            number: lease.number,
            signs: self.signs.clone(),
            fresh: worker.settings.interval * worker.settings.patience / 2,
        }
    }

    /// One run of the engine, until it ends, or is paused because there is something to record.
    async fn run_part(&self, lease: &Lease<WorkDone>, part: Part, errors: u64) -> PartReport {
        let worker = &self.worker;
        let (_, lost) = self.held().get(&lease.id).cloned().unwrap_or_default();
        let mut reins = RunControl::new(Some(Arc::new(self.grip(lease))));
        // The next holder after a death needs this to know which work is done.
        let made = self.spec.made.filter(|_| lease.record.deaths > 0);
        reins.made = made.map(|seconds| Mtime::new(seconds, 0));
        // Without conditions nothing is split.
        reins.large_from = Some(self.spec.split_files_from).filter(|from| *from > 0 && !self.spec.fixed);
        let job = worker.job.clone().with(|job| {
            // An error anywhere in a shard means that nothing is deleted in it.
            job.verb = if self.spec.sync && errors == 0 { Verb::Sync } else { Verb::Copy };
            // Its witnesses prove that the source isn't empty.
            job.deletes.allow_empty_source = true;
            job.listing.part = part;
        });
        let cancel = Cancel::default();
        let cx = Cx { cancel: cancel.clone(), ..worker.cx.clone() };
        // Boxed, as it is large.
        let mut run = run_part(job, cx, reins.clone()).boxed_local();
        let holds_in_check = self.pause_or_end(&reins.pause, &cancel, &lost, lease.record.deaths);
        tokio::pin!(holds_in_check);
        tokio::select! {
            done = &mut run => done,
            () = &mut holds_in_check => run.await,
        }
    }

    /// Pauses a run, or ends it, when there is a reason to; returns once it has been ended.
    async fn pause_or_end(&self, pause: &Cancel, cancel: &Cancel, lost: &Cancel, deaths: u64) {
        let settings = &self.worker.settings;
        let deaths = u32::try_from(deaths).unwrap_or(u32::MAX).min(8);
        let note_every = (settings.note_every / 4_u32.pow(deaths)).max(settings.interval.min(settings.note_every));
        let split = async {
            // So much is done at least between two splits.
            sleep(settings.interval / LATEST).await;
            loop {
                let sighted = self.sighted.notified();
                if self.sight().pieces > 1 {
                    return;
                }
                sighted.await;
            }
        };
        tokio::select! {
            () = lost.cancelled() => return cancel.cancel(),
            () = self.ended.cancelled() => {}
            () = split => {}
            () = sleep(note_every) => {}
        }
        pause.cancel();
        tokio::select! {
            () = lost.cancelled() => {}
            () = async {
                self.ended.cancelled().await;
                sleep(settings.grace).await;
            } => {}
        }
        cancel.cancel();
    }
}

/// True if only shards that this worker holds itself are left, which `seen` leaves out, and the last shard.
fn waits_for_own(seen: &[ShardView]) -> bool {
    seen.iter().all(|shard| shard.state == ShardState::Done || shard.id.is_finish())
}

fn gone(id: &ShardId) -> Error {
    let message = format!(
        "the records of shard {id} are gone from the job's directory: what it was to do isn't known: make another job for the rest"
    );
    Error::new(ErrorKind::NotFound, "read", message)
}

/// Outcome of a part that could not be looked at completely.
fn unsettled(mut outcome: WorkDone) -> WorkDone {
    outcome.errors.push("not all of this shard could be looked at: make another job for the rest".into());
    outcome.error_count += 1;
    outcome
}
