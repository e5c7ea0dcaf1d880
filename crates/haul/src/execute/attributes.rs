//! Setting attributes on what has the same bytes already, in batches on the disks' own threads, and saying once, at the end,
//! what could not be kept.

use super::Executor;
use crate::{
    attributes::{ask, is_plain, words},
    transfer::Order,
};
use haul_core::{
    Entry, Error, Key,
    attributes::{Differs, UnkeptCounts},
    compare::{Difference, Reason},
    event::{Event, Facts},
    keep::Keep,
    plan::Action,
};
use haul_store::{Attributed, AttributesItem};
use std::sync::Arc;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

/// Files that may wait to have their attributes looked at.
pub(super) const BACKLOG: usize = 4096;

/// A file at the destination whose attributes are to be looked at.
pub(crate) struct Due {
    /// The source.
    src: Entry,
    /// Its key at the destination.
    to: Key,
    /// Why they are to be set, when that is known.
    why: Option<Reason>,
    /// Why the bytes are the same.
    same: Reason,
}

impl Executor {
    /// Has the attributes of an unchanged file looked at.
    pub async fn look(&self, src: Entry, to: Key, same: Reason, to_look_at: &mpsc::Sender<Due>) {
        // Fails only when the job is stopping.
        let _ = to_look_at.send(Due { src, to, why: None, same }).await;
    }

    /// Has attributes and time of a file set.
    pub async fn queue_attributes(&self, src: Entry, to: Key, why: Reason, to_look_at: &mpsc::Sender<Due>) {
        let _ = to_look_at.send(Due { src, to, why: Some(why), same: why }).await;
    }

    /// Sets attributes in batches as they become due, until no more can come.
    pub async fn set_attributes(self: Arc<Self>, mut due: mpsc::Receiver<Due>) {
        let permits = Arc::new(Semaphore::new(self.checkers()));
        let mut running = JoinSet::new();
        let most = self.mover.copy_batch();
        while let Some(first) = due.recv().await {
            let mut batch = vec![first];
            while let (true, Ok(next)) = (batch.len() < most, due.try_recv()) {
                batch.push(next);
            }
            let Ok(permit) = permits.clone().acquire_owned().await else { break };
            let run = self.clone();
            running.spawn(async move {
                run.attribute_batch(batch).await;
                drop(permit);
            });
            while let Some(ended) = running.try_join_next() {
                self.ledger.joined("set attributes", ended);
            }
        }
        while let Some(ended) = running.join_next().await {
            self.ledger.joined("set attributes", ended);
        }
    }

    async fn attribute_batch(&self, batch: Vec<Due>) {
        let dry_run = self.job.dry_run;
        let omit_links = self.job.attributes.omit_link_times.is_some();
        let omit = |src: &Entry| self.job.attributes.no_update_mtime || (omit_links && src.is_symlink());
        let time = |due: &Due| due.why.and(due.src.mtime).filter(|_| !omit(&due.src));
        let items = batch.iter().map(|due| self.attributes.item(&due.src, &due.to, time(due))).collect();
        let answers = self.ask_attributes(items, !dry_run).await;
        for (due, answer) in batch.into_iter().zip(answers) {
            let Due { src, to, why, same } = due;
            match answer {
                Ok(Attributed { differs: found, unkept }) => {
                    self.ledger.count_unkept(unkept);
                    let changed = found.any();
                    if why.is_none() {
                        let (action, why) = match changed {
                            true => (Action::Touch, Reason::Attributes(found)),
                            false => (Action::Keep, same),
                        };
                        let (key, size, differs) = (to.clone(), src.size, Difference::of(&src, found));
                        let facts = Facts::of(&src);
                        self.ledger.tell(Event::Decided { key, action, why, size, differs, facts, dry_run });
                    }
                    if changed {
                        self.touched(to, found);
                    }
                    self.kept(&src, same);
                }
                Err(error) => self.ledger.error(if error.key().is_some() { error } else { error.with_key(&to) }),
            }
        }
    }

    /// Counts a file whose time or attributes were set (or, in a dry run, would be).
    pub fn touched(&self, key: Key, differs: Differs) {
        self.ledger.report().totals.touched += 1;
        if !self.job.dry_run {
            self.ledger.tell(Event::Touched { key, differs });
        }
    }

    /// Has the attributes of a batch compared, or set; one answer for each.
    pub async fn ask_attributes(&self, items: Vec<AttributesItem>, set: bool) -> Vec<Result<Attributed, Error>> {
        let count = items.len();
        let stopped = || (0..count).map(|_| Err(crate::transfer::cancelled())).collect();
        tokio::select! {
            biased;
            () = self.cx.cancel.cancelled() => stopped(),
            answers = ask(&*self.cx.src, &*self.cx.dst, items, self.job.links.source, set) => answers,
        }
    }

    /// Sets the attributes of a file that came by a way that keeps none.
    pub async fn apply_attributes(&self, src: &Entry, to: &Key, new: bool) {
        self.apply_attributes_by(src, to, new, self.attributes.keep.clone()).await;
    }

    /// Has the attributes of a new file go along with its bytes, where the destination is on another machine: a request of their own
    /// would cost as much again as the file.
    pub async fn carry_along(&self, order: &mut Order) {
        let (src, dst) = (&self.cx.src, &self.cx.dst);
        let apart = !dst.caps().files && dst.inodes().is_some() && src.caps().domain != dst.caps().domain;
        // What was there has permissions that a user may have set; what is read back is read at the version that was written.
        let plain = order.replaced.as_ref().is_some_and(is_plain) || self.job.write.verify_read;
        let (true, false, Some(inodes)) = (apart && self.attributes.only_of_source(), plain, src.inodes()) else {
            return;
        };
        let carried = match self.attributes.listed(&order.src) {
            None => {
                // Who can't be asked now is asked when the bytes are there.
                let inside = self.attributes.looks_inside();
                inodes.carry(vec![order.src.key.clone()], inside).await.pop().and_then(Result::ok)
            }
            listed => listed,
        };
        order.carried = carried.map(Arc::new);
    }

    /// Applies the attributes of a file that an order transferred.
    pub async fn apply_attributes_of(&self, order: &Order) {
        // Something of another kind that was replaced has left no permissions.
        let new = !order.replaced.as_ref().is_some_and(is_plain);
        self.apply_attributes_by(&order.src, &order.to, new, self.mover.keep_of(order)).await;
    }

    /// Applies attributes by other rules than the job's (`keep`); nothing without rules.
    pub async fn apply_attributes_by(&self, src: &Entry, to: &Key, new: bool, keep: Option<Arc<Keep>>) {
        if keep.is_none() {
            return;
        }
        let item = self.attributes.item(src, to, self.mover.set_time(src).or(src.mtime));
        let answers = self.ask_attributes(vec![AttributesItem { keep, new, ..item }], true).await;
        for answer in answers {
            match answer {
                Ok(done) => self.ledger.count_unkept(done.unkept),
                Err(error) => self.ledger.error(error.with_key(to)),
            }
        }
    }

    /// Says what could not be kept: once for each kind.
    pub fn say_unkept(&self) {
        if let Some(lacking) = self.attributes.lacking {
            self.ledger.notice(None, lacking);
        }
        let counts: UnkeptCounts = self.ledger.report().totals.unkept.clone();
        for ((what, why), count) in counts {
            self.ledger.notice(None, words(what, why, count));
        }
    }
}
