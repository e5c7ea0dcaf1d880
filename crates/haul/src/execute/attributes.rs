//! Setting attributes: on what has the same bytes already, in batches on the disks' own threads, and on what came by a way that keeps
//! none.

use super::Executor;
use crate::{
    attributes::{ask_ends, is_plain},
    looks::Due,
    transfer::Order,
};
use haul_core::{Entry, Error, Key, attributes::Differs, event::Event, keep::Keep};
use haul_store::{Attributed, AttributesItem};
use std::sync::Arc;

impl Executor {
    /// Sets the attributes of files with equal bytes that differ.
    pub(super) async fn attribute_batch(&self, files: Vec<Due>) {
        let omit_links = self.job.attributes.omit_link_times.is_some();
        let omit = |src: &Entry| self.job.attributes.no_update_mtime || (omit_links && src.is_symlink());
        let time = |due: &Due| due.src.mtime.filter(|_| due.decided && !omit(&due.src));
        let items = files.iter().map(|due| self.attributes.item(&due.src, &due.to, time(due))).collect();
        let answers = self.set_attributes(items).await;
        for (due, answer) in files.into_iter().zip(answers) {
            match answer {
                Ok(Attributed { differs: found, unkept }) => {
                    self.ledger.count_unkept(unkept);
                    due.tell(found, &self.ledger);
                    if found.any() {
                        self.touched(due.to, found);
                    }
                    self.kept(&due.src, due.why);
                }
                Err(error) => due.failed(error, &self.ledger),
            }
        }
    }

    /// Counts a file whose time or attributes were set.
    pub fn touched(&self, key: Key, differs: Differs) {
        self.ledger.report().totals.touched += 1;
        self.ledger.tell(Event::Touched { key, differs });
    }

    /// Has the attributes of a batch set; one answer for each.
    pub async fn set_attributes(&self, items: Vec<AttributesItem>) -> Vec<Result<Attributed, Error>> {
        ask_ends(&self.cx, items, self.job.links.source, true).await
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
        let answers = self.set_attributes(vec![AttributesItem { keep, new, ..item }]).await;
        for answer in answers {
            match answer {
                Ok(done) => self.ledger.count_unkept(done.unkept),
                Err(error) => self.ledger.error(error.with_key(to)),
            }
        }
    }
}
