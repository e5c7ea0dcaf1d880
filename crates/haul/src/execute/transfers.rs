//! The transfers of a job: started as permits become free; each result is counted and reported, and in a move the source is
//! deleted.

use super::{Executor, starts::Admission};
use crate::{
    budget::Claim,
    cx::cancelled,
    schedule::Queue,
    spool::Gone,
    transfer::{Arrived, Mover, Order},
};
use haul_core::{Error, ErrorKind, Kind, Result, Retry, attributes::What, event::Event, plan::Route};
use haul_store::{CopyHow, Small};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How a file goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Through memory, by itself.
    Alone,
    /// Through memory, with other small ones.
    Bundled,
    /// By the destination's store.
    ByServer,
}

/// So many small files that go together count as one chunk under way: what is in memory of them is counted by itself.
const BUNDLED: usize = 4;

impl Executor {
    /// Starts transfers as permits become free, until the queue is done.
    pub(super) async fn schedule(self: Arc<Self>, mut queue: Queue) {
        let mut running = JoinSet::new();
        let budget = &self.mover.budget;
        let batches = self.cx.dst.caps().files;
        loop {
            let pinned = match &budget.transfers {
                Some(files) => files.clone().acquire_owned().await.ok(),
                None => None,
            };
            budget.room().await;
            let Some(first) = queue.next().await else { break };
            let way = self.way(&first);
            let mut batch = vec![first];
            match way {
                // What is made anew on another machine goes alone.
                Way::ByServer if batches && batch.iter().all(|order| order.src.kind != Kind::Special) => {
                    queue.fill(&mut batch);
                }
                Way::Bundled => {
                    let most = (Small::COUNT, Small::TOGETHER);
                    queue.fill_with(&mut batch, most, |order| self.way(order) == Way::Bundled);
                }
                _ => {}
            }
            batch.retain_mut(|order| self.may_start(order, way));
            if let Some(first) = batch.first() {
                let chunks = match way {
                    Way::Alone => self.mover.chunks(first.src.size),
                    Way::ByServer => 1,
                    Way::Bundled => batch.len().div_ceil(BUNDLED) as u64,
                };
                let claim = budget.claim(chunks, pinned);
                running.spawn(self.clone().transfer(batch, way, claim));
            }
            while let Some(ended) = running.try_join_next() {
                self.ledger.joined("transfer", ended);
            }
        }
        while let Some(ended) = running.join_next().await {
            self.ledger.joined("transfer", ended);
        }
    }

    /// How a file goes.
    fn way(&self, order: &Order) -> Way {
        match self.mover.route(&order.src) {
            Route::Server => Way::ByServer,
            _ if self.mover.is_bundled(order) => Way::Bundled,
            _ => Way::Alone,
        }
    }

    /// False when the job is stopping, or a limit leaves no room for this file.
    fn may_start(&self, order: &mut Order, way: Way) -> bool {
        if self.ledger.stopping() {
            return false;
        }
        match self.starts.admit(order.src.size) {
            Admission::Starts => true,
            // Transfers through this process ask chunk by chunk.
            Admission::AsksItself => way != Way::ByServer || self.mover.allows_by_server(order),
            Admission::LimitReached => {
                self.ledger.transfer_limit();
                false
            }
            Admission::TooLarge => {
                self.ledger.report().transfer_limit = true;
                false
            }
        }
    }

    async fn transfer(self: Arc<Self>, mut batch: Vec<Order>, way: Way, claim: Claim) {
        for order in &batch {
            let route = self.mover.route(&order.src);
            self.ledger.tell(Event::Begun { step: order.step, key: order.to.clone(), size: order.src.size, route });
        }
        match way {
            Way::Alone => {
                for order in &mut batch {
                    self.carry_along(std::slice::from_mut(order)).await;
                    self.alone(order, &claim).await;
                }
            }
            Way::Bundled => self.bundled(batch).await,
            Way::ByServer => self.by_server(batch, &claim).await,
        }
        self.moved.delete(false).await;
    }

    /// Transfers a file through memory, with its attributes.
    async fn alone(&self, order: &mut Order, claim: &Claim) {
        let result = self.bring(order, claim).await;
        if result.is_ok() && order.carried.is_none() {
            self.apply_attributes_of(&[order]).await;
        }
        self.ended(order, result);
    }

    /// Transfers small files together, and those alone that can't go so.
    async fn bundled(&self, mut batch: Vec<Order>) {
        self.carry_along(&mut batch).await;
        let answers = self.mover.bring_bundle(&batch).await;
        let bare = |(order, answer): (&Order, &Result<Arrived>)| answer.is_ok() && order.carried.is_none();
        let bare: Vec<&Order> = batch.iter().zip(&answers).filter(|each| bare(*each)).map(|(order, _)| order).collect();
        self.apply_attributes_of(&bare).await;
        for (mut order, answer) in batch.into_iter().zip(answers) {
            match answer {
                Err(error) if goes_alone(&error) && !self.ledger.stopping() => {
                    tracing::debug!(%error, key = %order.to, "goes alone");
                    // The bundle's claim is for all that are left.
                    let claim = self.mover.budget.claim(self.mover.chunks(order.src.size), None);
                    self.alone(&mut order, &claim).await;
                }
                // Nothing is wrong with it but that nobody brings it any more.
                Err(error) if error.kind() == ErrorKind::Unsupported => self.ended(&order, Err(cancelled())),
                answer => self.ended(&order, answer),
            }
        }
    }

    /// Has the destination's store copy files.
    async fn by_server(&self, mut batch: Vec<Order>, claim: &Claim) {
        let how = if self.renames(&batch) { CopyHow::Rename } else { CopyHow::Copy };
        if how == CopyHow::Rename {
            batch = self.without_own(batch).await;
        }
        let answers = self.mover.bring_by_server(&mut batch, how).await;
        for (order, answer) in batch.iter_mut().zip(answers) {
            if answer.is_err() {
                self.mover.give_back(order);
            }
            let result = match answer {
                // Another route may work where the store's own copy doesn't, or the file has stopped changing.
                Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::Changed) && is_file(order) => {
                    let brought = self.bring(order, claim).await;
                    if brought.is_ok() {
                        self.apply_attributes_of(&[order]).await;
                    }
                    brought
                }
                Err(e) if e.kind() == ErrorKind::Exists && self.job.existing.other_kinds.are_replaced() => {
                    self.in_place_of_another_kind(&self.mover, order, how).await
                }
                other => other,
            };
            self.ended(order, result);
        }
    }

    /// Has the store bring what something of another kind was in the way of.
    pub(super) async fn in_place_of_another_kind(
        &self,
        mover: &Mover,
        order: &mut Order,
        how: CopyHow,
    ) -> Result<Arrived> {
        self.clear_target(order).await?;
        let again = mover.bring_by_server(std::slice::from_mut(order), how).await.pop();
        again.unwrap_or_else(|| Err(cancelled()))
    }

    /// Transfers a file through memory. Something of another kind at its name is replaced if the job allows it.
    async fn bring(&self, order: &mut Order, claim: &Claim) -> Result<Arrived> {
        match self.mover.bring(order, claim).await {
            Err(error) if error.kind() == ErrorKind::Exists && self.job.existing.other_kinds.are_replaced() => {
                self.clear_target(order).await?;
                self.mover.bring(order, claim).await
            }
            brought => brought,
        }
    }

    /// Leaves out what is to replace a file that may be the source itself, reached in another way: renamed onto itself it could be lost.
    async fn without_own(&self, batch: Vec<Order>) -> Vec<Order> {
        let replace = batch.iter().filter(|order| order.replaced.is_some());
        let one =
            self.moved.in_one_place(replace.map(|order| (order.src.key.clone(), order.to.clone())).collect()).await;
        let own = |order: &Order| order.replaced.is_some() && one.contains(&order.src.key.parent());
        let (own, apart): (Vec<Order>, Vec<Order>) = batch.into_iter().partition(own);
        // Why was told.
        own.iter().for_each(|order| self.ended(order, Err(cancelled())));
        apart
    }

    /// True when these files may be moved by renaming. Not where the store doesn't, nor if they wait for their names (until then the
    /// source must stay), nor if a file has other names elsewhere and needs an inode of its own.
    fn renames(&self, batch: &[Order]) -> bool {
        let shared = |order: &Order| order.src.posix.as_ref().is_some_and(|posix| posix.nlink > 1);
        // Attributes that aren't kept must not come along with the inode.
        let (keep, only_kept) = (&self.job.attributes.keep, self.job.attributes.only_kept);
        let kept = !only_kept || keep.perms && keep.owner && keep.group;
        let renames = self.job.moves() && self.cx.dst.caps().renames;
        renames && kept && !self.delays_any() && !(only_kept && batch.iter().any(shared))
    }

    /// Records the result of an order.
    pub(super) fn ended(&self, order: &Order, result: Result<Arrived>) {
        match result {
            Ok(arrived) if !is_file(order) && could_not_be(&arrived) => {
                self.ledger.count_unkept(arrived.unkept);
                self.ledger.tell(Event::Skipped { step: order.step });
            }
            Ok(arrived) => {
                if let Some(arrived) = self.delayed.keep(order, arrived) {
                    self.arrived(order, arrived);
                }
            }
            Err(error) => {
                if self.attributes.keep.is_some() {
                    // Its directory may have been opened for it.
                    self.dirs.written(&order.to);
                }
                // Every further file would fail the same way, after filling the little space that is left: reported once, at the end.
                let error = if error.kind() == ErrorKind::NoSpace { self.full.no_room(error) } else { error };
                let error = if self.ledger.was_hopeless(error.kind()) { cancelled() } else { error };
                let kind = error.kind();
                let error = Arc::new(error);
                self.ledger.tell(Event::Failed { step: order.step, error: error.clone() });
                if kind != ErrorKind::Cancelled {
                    self.ledger.report().error(error);
                }
            }
        }
    }

    /// Counts a file that arrived and tells the sink.
    pub fn arrived(&self, order: &Order, arrived: Arrived) {
        if let Some(stored) = &arrived.stored {
            self.index.saw(stored);
        }
        {
            let mut report = self.ledger.report();
            let totals = &mut report.totals;
            totals.transfers += 1;
            totals.bytes += arrived.size;
            totals.server_copies += u64::from(arrived.by_server);
            if let Some(algo) = arrived.proved {
                *totals.proved.entry(algo).or_default() += 1;
            }
            totals.unproved += u64::from(arrived.unproved.is_some());
        }
        if let Some(algo) = arrived.unproved {
            let message = format!(
                "it was resumed after an interruption, so its {algo} is not proved: haul check compares, and \
                 --verify=read reads what was sent before again"
            );
            self.ledger.tell(Event::Notice { key: Some(order.to.clone()), message });
        }
        self.ledger.count_unkept(arrived.unkept);
        self.links.there(&order.src, None);
        self.full.arrived(order.src.size);
        self.dirs.written(&order.to);
        self.ledger.tell(Event::Done {
            step: order.step,
            key: order.to.clone(),
            size: arrived.size,
            replaced: order.replaced.is_some(),
            proved: arrived.proved,
        });
        if self.job.moves() && arrived.renamed {
            self.moved.renamed(&order.src.key, order.src.size);
        } else if self.job.moves() {
            let gone = Gone { key: order.src.key.clone(), size: arrived.size, version: arrived.version };
            match &order.replaced {
                Some(_) => self.moved.found(gone, &order.to),
                None => self.moved.push(gone),
            }
        }
    }
}

/// True where bringing a small file alone may mend what failed: not if no space is left, nor if nobody can be reached for good.
fn goes_alone(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::NoSpace => false,
        ErrorKind::Unreachable | ErrorKind::Unauthenticated => error.retry() != Retry::Never,
        _ => true,
    }
}

/// True for a regular file or a symlink: its bytes can be transferred by more than one route.
fn is_file(order: &Order) -> bool {
    order.src.has_bytes()
}

/// True when a device, FIFO or socket couldn't be made.
fn could_not_be(arrived: &Arrived) -> bool {
    arrived.unkept.holds(What::Device) || arrived.unkept.holds(What::Special)
}
