//! Setting attributes: on what has the same bytes already, in batches on the disks' own threads, and on what came by a way that keeps
//! none.

use super::results::Results;
use crate::{
    attribute_reads::DueLook,
    attributes::{Attributes, ask_ends, is_plain},
    cx::Cx,
    ledger::Ledger,
    transfer::{FileTransfer, Mover},
};
use haul_core::{Entry, Error, Key, job::Job, keep::Keep};
use haul_store::{AttributesItem, AttributesResult};
use std::sync::Arc;

/// Sets attributes of files.
pub(super) struct Setter {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    attributes: Arc<Attributes>,
    /// Knows which time and which rules a file gets.
    mover: Mover,
    results: Arc<Results>,
}

impl Setter {
    /// Sets the attributes of `attributes` on files that `mover` transfers.
    pub fn new(ledger: &Arc<Ledger>, attributes: &Arc<Attributes>, mover: &Mover, results: &Arc<Results>) -> Setter {
        Setter {
            job: mover.job.clone(),
            cx: mover.cx.clone(),
            ledger: ledger.clone(),
            attributes: attributes.clone(),
            mover: mover.clone(),
            results: results.clone(),
        }
    }

    /// Sets the attributes of files with equal bytes that differ.
    pub async fn attribute_batch(&self, files: Vec<DueLook>) {
        let omit_links = self.job.attributes.omit_link_times.is_some();
        let omit = |src: &Entry| self.job.attributes.no_update_mtime || (omit_links && src.is_symlink());
        let time = |due: &DueLook| due.src.mtime.filter(|_| due.decided && !omit(&due.src));
        let items = files.iter().map(|due| self.attributes.item(&due.src, &due.to, time(due))).collect();
        let answers = self.set_attributes(items).await;
        for (due, answer) in files.into_iter().zip(answers) {
            match answer {
                Ok(AttributesResult { differs: found, unpreserved }) => {
                    self.ledger.count_unpreserved(unpreserved);
                    due.tell(found, &self.ledger);
                    if found.any() {
                        self.results.touched(due.to.clone(), found);
                    }
                    self.results.kept(&due.src, &due.to, due.why).await;
                }
                Err(error) => due.failed(error, &self.ledger),
            }
        }
    }

    /// Has the attributes of a batch set; one answer for each.
    pub async fn set_attributes(&self, items: Vec<AttributesItem>) -> Vec<Result<AttributesResult, Error>> {
        ask_ends(&self.cx, items, self.job.links.source, true).await
    }

    /// Sets the attributes of a file that came by a way that keeps none.
    pub async fn apply_attributes(&self, src: &Entry, to: &Key, new: bool) {
        self.apply_attributes_by(src, to, new, self.attributes.keep.clone()).await;
    }

    /// Has the attributes of new files go along with their bytes, where the destination is on another machine: a request of their own
    /// would cost as much again as the file.
    pub async fn carry_along(&self, orders: &mut [FileTransfer]) {
        let (src, dst) = (&self.cx.src, &self.cx.dst);
        let apart = !dst.caps().files && dst.inodes().is_some() && src.caps().domain != dst.caps().domain;
        // A read-back reads the version that was written.
        let goes = apart && self.attributes.only_of_source() && !self.job.write.verify_read;
        let (true, Some(inodes)) = (goes, src.inodes()) else { return };
        // The replaced file has permissions that a user may have set.
        let mut orders: Vec<_> = orders.iter_mut().filter(|o| !o.replaced.as_ref().is_some_and(is_plain)).collect();
        for order in &mut orders {
            order.carried = self.attributes.listed(&order.src).map(Arc::new);
        }
        let untold: Vec<_> = orders.into_iter().filter(|order| order.carried.is_none()).collect();
        if untold.is_empty() {
            return;
        }
        // Files that can't be asked now are asked when the bytes have arrived.
        let keys = untold.iter().map(|order| order.src.key.clone()).collect();
        let carried = inodes.carry(keys, self.attributes.looks_inside()).await;
        for (order, carried) in untold.into_iter().zip(carried) {
            order.carried = carried.ok().map(Arc::new);
        }
    }

    /// Applies the attributes of files that orders transferred.
    pub async fn apply_attributes_of(&self, orders: &[&FileTransfer]) {
        let each = orders.iter().map(|order| {
            // Something of another kind that was replaced has left no permissions.
            let new = !order.replaced.as_ref().is_some_and(is_plain);
            self.dressed(&order.src, &order.to, new, self.mover.keep_of(order))
        });
        self.apply(each.flatten().collect()).await;
    }

    /// Applies attributes by other rules than the job's (`keep`); nothing without rules.
    pub async fn apply_attributes_by(&self, src: &Entry, to: &Key, new: bool, keep: Option<Arc<Keep>>) {
        self.apply(self.dressed(src, to, new, keep).into_iter().collect()).await;
    }

    fn dressed(&self, src: &Entry, to: &Key, new: bool, keep: Option<Arc<Keep>>) -> Option<AttributesItem> {
        keep.as_ref()?;
        let item = self.attributes.item(src, to, self.mover.time(src));
        Some(AttributesItem { keep, new, ..item })
    }

    async fn apply(&self, items: Vec<AttributesItem>) {
        if items.is_empty() {
            return;
        }
        let keys: Vec<Key> = items.iter().map(|item| item.to.clone()).collect();
        for (key, answer) in keys.iter().zip(self.set_attributes(items).await) {
            match answer {
                Ok(done) => self.ledger.count_unpreserved(done.unpreserved),
                Err(error) => self.ledger.error(error.with_key(key)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, executor, file, job};
    use haul_core::{Mtime, compare::Reason, job::Verb};

    fn setter(sample: &Sample) -> Arc<Setter> {
        executor(sample).setter.clone()
    }

    #[test]
    fn a_file_gets_attributes_only_by_rules_and_the_time_that_the_job_gives() {
        let src = Entry { mtime: Some(Mtime(1)), ..file("a") };
        let keep = || Some(Arc::new(Keep { perms: true, ..Keep::default() }));
        let item = |change: fn(&mut Job), keep| {
            let setter = setter(&Sample::of(job(Verb::Copy, change)));
            setter.dressed(&src, &Key::new("to"), true, keep)
        };
        assert!(item(|_| {}, None).is_none());
        let plain = item(|_| {}, keep()).unwrap();
        assert_eq!(
            (plain.from, plain.to, plain.mtime, plain.new),
            (Key::new("a"), Key::new("to"), Some(Mtime(1)), true)
        );
        assert_eq!(plain.keep, keep());
        let other = item(|job| job.attributes.set_time = Some(Mtime(2)), keep()).unwrap();
        assert_eq!(other.mtime, Some(Mtime(2)));
    }

    #[tokio::test]
    async fn each_file_whose_attributes_cannot_be_set_is_an_error_and_not_done() {
        let sample = Sample::of(job(Verb::Copy, |_| {}));
        let due = |key: &str| DueLook { src: file(key), to: Key::new(key), why: Reason::Mtime, decided: true };
        setter(&sample).attribute_batch(vec![due("a"), due("b")]).await;
        let report = sample.ledger.report();
        assert_eq!((report.error_count, report.totals.unchanged, report.totals.touched), (2, 0, 0));
        assert_eq!(report.errors[0].key(), Some(&Key::new("a")));
    }
}
