//! Carries out decisions: takes steps in order, and does each or passes it to the part that does it.
//!
//! Files go to the queue of transfers, attributes to their setter; deletions wait until the run is known to be free of errors,
//! directories until the files are done, further names of a file until the first has arrived.

mod alternates;
mod attributes;
mod delayed;
mod delayed_files;
mod deletions;
mod destination_full;
mod dir_work;
mod directories;
mod distinct_ends;
mod ending;
mod in_the_way;
mod linker;
mod moved;
pub(crate) mod pending_deletes;
mod results;
mod start_limit;
mod transfers;
mod worker;

use crate::{
    Cx,
    attribute_reads::DueLook,
    attributes::Attributes,
    backup::{Backup, ReplacedFile},
    consent::Consent,
    destination_index::Index,
    hard_links::Name,
    ledger::Ledger,
    overlap::is_probe,
    part::{LargeFile, RunControl},
    plan::{Outlet, Planner, StepSink as _, WalkResult, forbidden},
    transfer::{FileTransfer, Mover},
};
use alternates::AlternateResult;
use attributes::Setter;
use delayed::Delayed;
use deletions::Deleter;
use dir_work::Dirs;
use directories::Directories;
use futures::future::BoxFuture;
use haul_core::{
    Entry, ErrorKind, Key, Result,
    attributes::Differs,
    compare::Reason,
    event::Event,
    job::Job,
    plan::{self, Action, Step},
};
use haul_store::CopyHow;
use in_the_way::InTheWay;
use linker::Linker;
use results::Results;
use std::sync::Arc;
use transfers::Transfers;
use worker::WorkQueues;

/// Steps that are done as they come.
#[derive(Clone)]
pub(crate) struct ExecutedSteps {
    executor: Arc<Executor>,
    orders: WorkQueues,
}

impl Outlet for ExecutedSteps {
    async fn take(&self, step: Step) {
        self.executor.take(step, &self.orders).await;
    }
}

/// Does the steps of a job.
pub(crate) struct Executor {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    attributes: Arc<Attributes>,
    index: Arc<Index>,
    consent: Consent,
    /// Decides again when something turns out to be different.
    planner: Arc<Planner>,
    mover: Mover,
    /// Deletes files that only the destination has.
    pub deleter: Arc<Deleter>,
    /// Directories of both sides.
    pub directories: Directories,
    dirs: Arc<Dirs>,
    results: Arc<Results>,
    setter: Arc<Setter>,
    way: Arc<InTheWay>,
    delayed: Delayed,
    linker: Linker,
    transfers: Arc<Transfers>,
    /// Large files go to the holder of these, if it wants them.
    reins: Option<RunControl>,
}

impl Executor {
    /// An executor that has done nothing yet; `mover` moves bytes between the ends. With `reins` it asks before it deletes, and leaves
    /// large files to their holder.
    pub fn new(
        ledger: &Arc<Ledger>,
        attributes: &Arc<Attributes>,
        index: &Arc<Index>,
        planner: &Arc<Planner>,
        mover: Mover,
        reins: Option<RunControl>,
    ) -> Executor {
        let (job, cx) = (&mover.job, &mover.cx);
        let (dirs, keeps) = (Arc::<Dirs>::default(), attributes.keep.is_some());
        let may_delete = reins.as_ref().and_then(|reins| reins.may_delete.clone());
        let deleter = Deleter::new(job, cx, ledger, index, &dirs, &mover.backup, keeps).asking(may_delete);
        let deleter = Arc::new(deleter);
        let results = Arc::new(Results::new((job, cx, ledger), (index, &dirs, planner.links()), keeps));
        let setter = Arc::new(Setter::new(ledger, attributes, &mover, &results));
        let way = Arc::new(InTheWay::new((ledger, &mover), (&planner.kinds, &planner.directories), &deleter));
        Executor {
            directories: Directories::new(
                (job, cx, ledger),
                (attributes, planner, &dirs),
                (&deleter, &setter, &way, &results),
                mover.budget.checkers,
            ),
            delayed: Delayed::new((ledger, &dirs, &mover), (&setter, &way, &results)),
            linker: Linker::new((ledger, &planner.further, &mover), (&way, &results)),
            transfers: Arc::new(Transfers::new((ledger, &mover), (&setter, &way, &results))),
            consent: Consent::new(cx, ledger),
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            attributes: attributes.clone(),
            index: index.clone(),
            planner: planner.clone(),
            mover,
            deleter,
            dirs,
            results,
            setter,
            way,
            reins,
        }
    }

    /// The caller's reins, if this file is large enough to be left to them.
    fn wants_large(&self, src: &Entry) -> Option<&RunControl> {
        let reins = self.reins.as_ref()?;
        (reins.large_from? <= src.size && self.mover.may_be_shared(src)).then_some(reins)
    }

    /// Does a step, or hands it to the part that does it.
    async fn take(self: &Arc<Self>, step: Step, orders: &WorkQueues) {
        if self.job.moves() && step.src.as_ref().is_some_and(|src| is_probe(&src.key)) {
            return;
        }
        // The other end may have the only copy.
        if let Some(Err(error)) = step.src.as_ref().filter(|_| !step.why.is_left_alone()).map(Entry::undamaged) {
            return self.ledger.error(error);
        }
        match step.action {
            _ if step.is_dir() => Box::pin(self.directory(step)).await,
            Action::Delete => Box::pin(self.deleter.take(step)).await,
            Action::Rename => self.rename(step, orders).await,
            _ => self.file(step, orders).await,
        }
    }

    async fn directory(&self, step: Step) {
        if let (Action::Keep, Some(src), Some(_)) = (step.action, &step.src, &step.dst) {
            self.delayed.note_stage(&src.key).await;
        }
        self.directories.take(step).await;
    }

    /// Does what was decided about a file, or hands it to the scheduler.
    async fn file(&self, mut step: Step, orders: &WorkQueues) {
        let mut aside = false;
        if step.elsewhere.is_some() {
            match Box::pin(self.take_elsewhere(&mut step)).await {
                AlternateResult::Done => return,
                AlternateResult::Nothing => {}
                AlternateResult::Differs => (step.action, step.look) = (Action::Copy, false),
                // It was unchanged, but it isn't there any more.
                AlternateResult::SetAside => (step.action, step.look, aside) = (Action::Copy, false, true),
            }
        }
        let Some(to) = step.key().filter(|_| step.src.is_some()).cloned() else {
            // Only the destination has it, and it stays.
            return self.ledger.decided(&step);
        };
        self.mover.backup.will_come(&to);
        let change = step.action != Action::Keep;
        if change && !aside && !self.consent.to_action(step.action, &to) {
            return;
        }
        if change {
            match self.way.replace_links(&to).await {
                Ok(true) => (step.action, step.dst) = (Action::Copy, None),
                Ok(false) => {}
                Err(error) => return self.ledger.error(error),
            }
            self.will_write(&to).await;
        }
        if step.action != Action::Copy {
            // A copied file exists once it has arrived.
            self.planner.links().will_be(&step);
        }
        if !step.look {
            self.ledger.decided(&step);
        }
        let Step { action, src: Some(src), dst, why, look, .. } = step else { return };
        match action {
            Action::Keep if look => Box::pin(send_due(DueLook { src, to, why, decided: false }, orders)).await,
            Action::Keep => self.results.kept(&src, &to, why).await,
            Action::Copy if !aside && let Some(reins) = self.wants_large(&src) => {
                reins.leave(LargeFile { src, replaced: dst });
            }
            Action::Copy => {
                let mut order = self.order(src, to, dst);
                order.kept = if aside { ReplacedFile::Done } else { ReplacedFile::No };
                self.send(order, orders).await;
            }
            Action::Touch if self.attributes.keep.is_some() => {
                Box::pin(send_due(DueLook { src, to, why, decided: true }, orders)).await;
            }
            Action::Touch => Box::pin(self.touch(src, to, dst, orders)).await,
            Action::Refuse => self.ledger.error(forbidden(&to)),
            Action::MakeDir | Action::Delete | Action::Rename | Action::Link | Action::Reuse => {}
        }
    }

    /// Renames a file of the destination. If the store can't, the file is copied from the source and the old one deleted.
    fn rename<'a>(self: &'a Arc<Self>, step: Step, orders: &'a WorkQueues) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (Some(src), Some(old)) = (step.src, step.dst) else { return };
            // Neither name changes without a yes.
            if !self.consent.to("rename", &old.key) {
                return;
            }
            if !self.is_renamed(&src, &old).await {
                let out = ExecutedSteps { executor: self.clone(), orders: orders.clone() };
                self.planner.file(plan::missing(src, &self.job), &out).await;
                self.deleter.take(plan::extra(old, true)).await;
            }
        })
    }

    async fn is_renamed(&self, src: &Entry, old: &Entry) -> bool {
        if self.way.replace_links(&src.key).await.is_err() {
            // It is reported when the file is copied instead.
            return false;
        }
        self.will_write(&old.key).await;
        self.will_write(&src.key).await;
        let mover = Mover { cx: Cx { src: self.cx.dst.clone(), ..self.cx.clone() }, ..self.mover.clone() };
        let step = self.ledger.next_step();
        let from = Entry { mtime: src.mtime.or(old.mtime), ..old.clone() };
        let order = FileTransfer::new(step, from, src.key.clone(), None);
        let renames = self.cx.dst.caps().renames;
        let how = if renames { CopyHow::Rename } else { CopyHow::Copy };
        match mover.copy_by_server(&mut [order], how).await.pop() {
            Some(Ok(_)) => {
                self.ledger.report().totals.renames += 1;
                self.dirs.written(&src.key);
                self.dirs.written(&old.key);
                if renames || self.is_deleted(old).await {
                    self.index.is_absent(&old.key);
                }
                self.setter.apply_attributes(src, &src.key, false).await;
                self.planner.links().there(src, None);
                self.ledger.tell(Event::Renamed { from: old.key.clone(), to: src.key.clone() });
                true
            }
            _ => false,
        }
    }

    /// Deletes a file of the destination that has another name by now.
    async fn is_deleted(&self, old: &Entry) -> bool {
        let answers = self.cx.dst.delete(vec![(old.key.clone(), old.version.clone())]).await;
        let deleted = answers.into_iter().collect::<Result<()>>();
        deleted.map_err(|error| self.ledger.error(error.with_key(&old.key))).is_ok()
    }

    /// Tells the index that a key of the destination is about to be written or deleted.
    async fn will_write(&self, key: &Key) {
        self.index.will_write(&self.cx.dst, key, self.backup()).await;
    }

    /// Links the names that waited. If a first name didn't arrive, the next takes its place and is transferred as any other file.
    pub async fn settle_links(self: &Arc<Self>) {
        while !self.ledger.decides_no_more() {
            let Some(first) = self.linker.turn().await else { return };
            if first.is_empty() {
                continue;
            }
            let (out, working) = self.start_working();
            for Name { src, dst } in first {
                self.planner.decide(src, dst, &out).await;
            }
            drop(out);
            self.finish_working(working).await;
        }
    }

    /// Removes the directories in which files waited.
    pub async fn clear_stages(&self) {
        self.delayed.clear_stages().await;
    }

    /// Deletes the sources of a move that are left.
    pub async fn delete_moved(&self) {
        self.results.moved.delete(true).await;
    }

    /// Notes that a walk ended, whole or early.
    pub fn walked(&self, walked: WalkResult) {
        if walked.whole {
            self.results.full.all_is_known();
        }
    }

    /// Sends an order on its way: by a place where it waits, or to its name.
    async fn send(&self, order: Box<FileTransfer>, orders: &WorkQueues) {
        let order = match self.delayed.delays(&order.src) {
            true => Box::pin(self.delayed.to_wait(*order)).await.map(Box::new),
            false => Some(order),
        };
        let Some(order) = order else { return };
        // Fails only when the scheduler is gone, which stops the job anyway.
        if let Ok(place) = orders.transfers.reserve().await {
            place.send(*order);
        }
    }

    fn order(&self, src: Entry, to: Key, replaced: Option<Entry>) -> Box<FileTransfer> {
        self.results.full.ordered(src.size);
        Box::new(FileTransfer::new(self.ledger.next_step(), src, to, replaced))
    }

    /// Sets the time of a file with equal bytes. If the store can't set only the time, the file is copied again.
    async fn touch(&self, src: Entry, to: Key, dst: Option<Entry>, orders: &WorkQueues) {
        // Unknown metadata must not replace the existing metadata.
        let meta = src.meta.as_ref().filter(|_| self.job.attributes.takes_metadata());
        let meta = meta.and_then(|_| crate::transfer::meta(&self.job, &src));
        match self.cx.dst.set_meta(&to, src.mtime, meta.as_deref()).await {
            Ok(()) => {
                self.results.touched(to.clone(), Differs { mtime: true, ..Differs::default() });
                self.results.kept(&src, &to, Reason::Mtime).await;
            }
            Err(e) if e.kind() == ErrorKind::Unsupported => self.send(self.order(src, to, dst), orders).await,
            Err(error) => {
                self.index.is_gone(&to, &error);
                self.ledger.error(error.with_key(&to));
            }
        }
    }

    /// Where replaced and deleted files go.
    fn backup(&self) -> &Backup {
        &self.mover.backup
    }
}

/// Sends a file to be looked at.
async fn send_due(due: DueLook, orders: &WorkQueues) {
    // Fails only when the job is stopping.
    let _ = orders.attributes.send(due).await;
}
