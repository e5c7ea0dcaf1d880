//! Carries out decisions: takes steps in order, and does each or hands it to the part that does it.
//!
//! Files go to the queue of transfers, attributes to their setter; deletions wait until it is known that nothing went wrong,
//! directories until the files are done, further names of a file until the first is there.

mod attributes;
mod delayed;
mod deletions;
mod directories;
mod dirs;
mod elsewhere;
mod ending;
mod full;
mod linker;
mod moved;
mod pending;
mod places;
mod starts;
mod transfers;
mod way;
mod working;

use crate::{
    Cx,
    attributes::Attributes,
    backup::Backup,
    cx::Consent,
    hard_links::HardLinks,
    known::Index,
    ledger::Ledger,
    looks::Due,
    overlap::is_probe,
    part::{Large, Reins},
    plan::{Outlet, Planner, Walked, forbidden},
    transfer::{Mover, Order},
};
use deletions::Deleter;
use dirs::Dirs;
use elsewhere::Outcome;
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
use moved::MovedSources;
use starts::Starts;
use std::sync::Arc;
use working::Orders;

/// Steps that are done as they come.
#[derive(Clone)]
pub(crate) struct Done {
    executor: Arc<Executor>,
    orders: Orders,
}

impl Outlet for Done {
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
    starts: Starts,
    /// What only the destination has.
    pub deleter: Deleter,
    dirs: Arc<Dirs>,
    links: Arc<HardLinks>,
    /// What a move deletes at the source.
    pub moved: MovedSources,
    /// Files that wait for their names.
    delayed: delayed::Delayed,
    /// Symlinks that are to make way.
    in_the_way: tokio::sync::Mutex<way::InTheWay>,
    /// Directories in whose place something else stays.
    closed: std::sync::Mutex<Vec<Key>>,
    /// What is said where there is no room.
    full: full::Full,
    /// Large files go to whoever holds these, if he wants them.
    reins: Option<Reins>,
}

impl Executor {
    /// An executor that has done nothing yet; `mover` moves bytes between the ends of `cx`.
    pub fn new(
        job: &Arc<Job>,
        cx: &Cx,
        ledger: &Arc<Ledger>,
        attributes: &Arc<Attributes>,
        index: &Arc<Index>,
        planner: &Arc<Planner>,
        mover: Mover,
    ) -> Executor {
        let dirs = Arc::<Dirs>::default();
        let keeps = attributes.keep.is_some();
        Executor {
            deleter: Deleter::new(job, cx, ledger, index, &dirs, &mover.backup, keeps),
            moved: MovedSources::new(job, cx, ledger),
            full: full::Full::new(&cx.dst, ledger),
            mover,
            dirs,
            links: planner.links().clone(),
            consent: Consent::new(cx),
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            attributes: attributes.clone(),
            index: index.clone(),
            planner: planner.clone(),
            starts: Starts::new(&job.limits),
            delayed: delayed::Delayed::default(),
            in_the_way: tokio::sync::Mutex::default(),
            closed: std::sync::Mutex::default(),
            reins: None,
        }
    }

    /// This executor, which asks before it deletes, and leaves large files to who wants them.
    pub fn reined(self, reins: Option<Reins>) -> Executor {
        let may_delete = reins.as_ref().and_then(|reins| reins.may_delete.clone());
        Executor { deleter: self.deleter.asking(may_delete), reins, ..self }
    }

    /// Who wants this file, as it is large.
    fn wants_large(&self, src: &Entry) -> Option<&Reins> {
        let reins = self.reins.as_ref()?;
        (reins.large_from? <= src.size && self.mover.may_be_shared(src)).then_some(reins)
    }

    /// Does a step, or hands it to the part that does it.
    async fn take(self: &Arc<Self>, step: Step, orders: &Orders) {
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

    /// Does what was decided about a file, or hands it to the scheduler.
    async fn file(&self, mut step: Step, orders: &Orders) {
        let mut aside = false;
        if step.elsewhere.is_some() {
            match Box::pin(self.take_elsewhere(&mut step)).await {
                Outcome::Done => return,
                Outcome::Nothing => {}
                // It was unchanged, but it isn't there any more.
                Outcome::SetAside => (step.action, step.look, aside) = (Action::Copy, false, true),
            }
        }
        let Some(to) = step.key().filter(|_| step.src.is_some()).cloned() else {
            // Only the destination has it, and it stays.
            return self.ledger.decided(&step);
        };
        let change = step.action != Action::Keep;
        if change && !aside && !self.consent.to_action(step.action, &to) {
            return;
        }
        if change {
            match self.make_way(&to).await {
                Ok(true) => (step.action, step.dst) = (Action::Copy, None),
                Ok(false) => {}
                Err(error) => return self.ledger.error(error),
            }
            self.will_write(&to).await;
        }
        if step.action != Action::Copy {
            // What is copied is there once it has arrived.
            self.links.will_be(&step);
        }
        if !step.look {
            self.ledger.decided(&step);
        }
        let Step { action, src: Some(src), dst, why, look, .. } = step else { return };
        match action {
            Action::Keep if look => Box::pin(send_due(Due { src, to, why, decided: false }, orders)).await,
            Action::Keep => self.kept(&src, &to, why),
            Action::Copy if !aside && let Some(reins) = self.wants_large(&src) => {
                reins.leave(Large { src, replaced: dst });
            }
            Action::Copy => {
                let mut order = self.order(src, to, dst);
                order.kept = aside;
                self.send(order, orders).await;
            }
            Action::Touch if self.attributes.keep.is_some() => {
                Box::pin(send_due(Due { src, to, why, decided: true }, orders)).await;
            }
            Action::Touch => Box::pin(self.touch(src, to, dst, orders)).await,
            Action::Refuse => self.ledger.error(forbidden(&to)),
            Action::MakeDir | Action::Delete | Action::Rename | Action::Link | Action::Reuse => {}
        }
    }

    /// Renames a file of the destination. If the store can't, the file is copied from the source and the old one deleted.
    fn rename<'a>(self: &'a Arc<Self>, step: Step, orders: &'a Orders) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (Some(src), Some(old)) = (step.src, step.dst) else { return };
            if !self.is_renamed(&src, &old).await {
                let out = Done { executor: self.clone(), orders: orders.clone() };
                self.planner.file(plan::missing(src, &self.job), &out).await;
                self.deleter.take(plan::extra(old, true)).await;
            }
        })
    }

    async fn is_renamed(&self, src: &Entry, old: &Entry) -> bool {
        if self.make_way(&src.key).await.is_err() {
            // It is told when the file is to be copied instead.
            return false;
        }
        self.will_write(&old.key).await;
        self.will_write(&src.key).await;
        let mover = Mover { cx: Cx { src: self.cx.dst.clone(), ..self.cx.clone() }, ..self.mover.clone() };
        let step = self.ledger.next_step();
        let from = Entry { mtime: src.mtime.or(old.mtime), ..old.clone() };
        let order = Order::new(step, from, src.key.clone(), None);
        let renames = self.cx.dst.caps().renames;
        let how = if renames { CopyHow::Rename } else { CopyHow::Copy };
        match mover.bring_by_server(&mut [order], how).await.pop() {
            Some(Ok(_)) => {
                self.ledger.report().totals.renames += 1;
                self.dirs.written(&src.key);
                self.dirs.written(&old.key);
                if renames || self.is_deleted(old).await {
                    self.index.is_absent(&old.key);
                }
                self.apply_attributes(src, &src.key, false).await;
                self.links.there(src, None);
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

    /// Notes that a walk ended, whole or early.
    pub fn walked(&self, walked: Walked) {
        if walked.whole {
            self.full.all_is_known();
        }
    }

    /// Counts an unchanged file. A move still deletes its source.
    fn kept(&self, src: &Entry, to: &Key, why: Reason) {
        self.ledger.report().totals.unchanged += 1;
        if !self.job.moves() || why.is_left_alone() {
            return;
        }
        if self.consent.to("delete", &src.key) {
            self.moved.found(src.clone().into(), to);
        }
    }

    fn order(&self, src: Entry, to: Key, replaced: Option<Entry>) -> Box<Order> {
        self.full.ordered(src.size);
        Box::new(Order::new(self.ledger.next_step(), src, to, replaced))
    }

    /// Sets the time of a file with equal bytes. If the store can't set only the time, the file is copied again.
    async fn touch(&self, src: Entry, to: Key, dst: Option<Entry>, orders: &Orders) {
        // Unknown metadata must not replace the existing metadata.
        let meta = src.meta.as_ref().filter(|_| self.job.attributes.metadata);
        let meta = meta.and_then(|_| crate::transfer::meta(&self.job, &src));
        match self.cx.dst.set_meta(&to, src.mtime, meta.as_deref()).await {
            Ok(()) => {
                self.touched(to.clone(), Differs { mtime: true, ..Differs::default() });
                self.kept(&src, &to, Reason::Mtime);
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

    /// Metadata requests at once.
    fn checkers(&self) -> usize {
        self.mover.budget.checkers
    }
}

/// Sends a file to be looked at.
async fn send_due(due: Due, orders: &Orders) {
    // Fails only when the job is stopping.
    let _ = orders.attributes.send(due).await;
}
