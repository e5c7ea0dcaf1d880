//! Further names of files: each waits for the first, and is linked to the result of that.

use super::{in_the_way::InTheWay, results::Results};
use crate::{
    consent::Consent,
    cx::Cx,
    hard_links::{HardLinks, Inode, Name},
    ledger::Ledger,
    plan::{FurtherNames, forbidden},
    transfer::{FileTransfer, Mover},
};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key,
    attributes::{Attribute, UnpreservedAttributes, UnpreservedReason},
    plan::{Action, Step},
};
use haul_store::CopyHow;
use std::sync::Arc;

/// Batches of links that are made at once.
const BATCHES_AT_ONCE: usize = 8;

/// Links names.
pub(super) struct Linker {
    ledger: Arc<Ledger>,
    links: Arc<HardLinks>,
    names: Arc<FurtherNames>,
    consent: Consent,
    /// Links inside the destination.
    mover: Mover,
    way: Arc<InTheWay>,
    results: Arc<Results>,
}

impl Linker {
    /// Links what the planner found to have several names.
    pub fn new(
        (ledger, names, mover): (&Arc<Ledger>, &Arc<FurtherNames>, &Mover),
        (way, results): (&Arc<InTheWay>, &Arc<Results>),
    ) -> Linker {
        let cx = Cx { src: mover.cx.dst.clone(), ..mover.cx.clone() };
        Linker {
            ledger: ledger.clone(),
            links: names.links().clone(),
            names: names.clone(),
            consent: Consent::new(&mover.cx, ledger),
            mover: Mover { cx, ..mover.clone() },
            way: way.clone(),
            results: results.clone(),
        }
    }

    /// Links the names that waited, as far as it is settled what became of their first. Gives those that are first themselves now, as
    /// that didn't arrive or can't be linked to; `None` where none is left.
    pub async fn turn(&self) -> Option<Vec<Name>> {
        let turn = self.links.turn();
        if turn.is_empty() {
            return None;
        }
        let mut first = turn.first;
        first.extend(self.link_all(turn.links).await);
        Some(first)
    }

    /// Gives back those that can't be links.
    async fn link_all(&self, links: Vec<(Key, Option<Inode>, Name)>) -> Vec<Name> {
        let mut due = Vec::new();
        for (first, there, name) in links {
            let step = self.names.step(first, there, name).await;
            self.ledger.decided(&step);
            let Step { action, why, src: Some(src), dst, link_to, .. } = step else { continue };
            match (action, link_to) {
                (Action::Link, Some(first)) if self.consent.to("link", &src.key) => {
                    match self.way.replace_links(&src.key).await {
                        Ok(_) => due.push((first, Name { src, dst })),
                        Err(error) => self.ledger.error(error),
                    }
                }
                (Action::Refuse, _) => self.ledger.error(forbidden(&src.key)),
                (Action::Keep, _) => self.results.kept(&src, &src.key, why).await,
                _ => {}
            }
        }
        let batches: Vec<Vec<_>> = chunks(due, self.mover.cx.copy_batch());
        let refused = futures::stream::iter(batches).map(|batch| self.link_batch(batch));
        refused.buffer_unordered(BATCHES_AT_ONCE).concat().await
    }

    async fn link_batch(&self, batch: Vec<(Key, Name)>) -> Vec<Name> {
        let order = |(leader, name): &(Key, Name)| {
            let step = self.ledger.next_step();
            let from = Entry { key: leader.clone(), version: None, ..name.src.clone() };
            FileTransfer::new(step, from, name.src.key.clone(), name.dst.clone())
        };
        let mut orders: Vec<FileTransfer> = batch.iter().map(order).collect();
        let answers = self.mover.copy_by_server(&mut orders, CopyHow::Link).await;
        let mut refused = Vec::new();
        for (((leader, name), answer), order) in batch.into_iter().zip(answers).zip(&mut orders) {
            let answer = match answer {
                Err(error) if self.way.may_clear(&error) => {
                    self.way.in_place_of_another_kind(&self.mover, order, CopyHow::Link).await
                }
                answer => answer,
            };
            match answer {
                Ok(_) => self.results.linked(&leader, &name.src),
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let mut unpreserved = UnpreservedAttributes::default();
                    unpreserved.add(Attribute::HardLink, UnpreservedReason::Lacking);
                    self.ledger.count_unpreserved(unpreserved);
                    self.links.promote(&name.src);
                    refused.push(name);
                }
                Err(error) => self.ledger.error(Error::with_key(error, &name.src.key)),
            }
        }
        refused
    }
}

/// Splits into parts of at most `most`.
fn chunks(mut all: Vec<(Key, Name)>, most: usize) -> Vec<Vec<(Key, Name)>> {
    let mut batches = Vec::new();
    while !all.is_empty() {
        let rest = all.split_off(all.len().min(most));
        batches.push(std::mem::replace(&mut all, rest));
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, executor, file, job, posix};
    use haul_core::job::Verb;

    fn name(key: &str) -> Entry {
        Entry { posix: posix(1, 3), ..file(key) }
    }

    #[test]
    fn links_go_in_batches_in_their_order() {
        let sizes = |count, most| {
            let all = (0..count).map(|n: usize| (Key::new("a"), Name { src: file(&format!("{n:03}")), dst: None }));
            let batches = chunks(all.collect(), most);
            let keys = batches.iter().flatten().map(|(_, name)| name.src.key.clone());
            assert!(keys.is_sorted());
            batches.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(5, 2), [2, 2, 1]);
        assert_eq!(sizes(4, 2), [2, 2]);
        assert!(sizes(0, 2).is_empty());
    }

    #[tokio::test]
    async fn names_that_a_store_cannot_link_become_files_and_the_next_wait_for_them() {
        let sample = Sample::of(job(Verb::Copy, |_| {}));
        let executor = executor(&sample);
        let (linker, links) = (&executor.linker, executor.planner.links());
        for key in ["a", "b"] {
            if !links.is_first(&name(key)) {
                links.wait(name(key), None);
            }
        }
        links.there(&name("a"), None);
        let first = linker.turn().await.unwrap();
        assert_eq!(first.iter().map(|name| name.src.key.clone()).collect::<Vec<_>>(), [Key::new("b")]);
        assert_eq!(sample.totals().unpreserved.len(), 1);
        assert!(links.is_first(&name("b")) && !links.is_first(&name("c")));
        assert!(linker.turn().await.is_none(), "nothing waits any more");
    }

    #[tokio::test]
    async fn where_the_first_name_did_not_arrive_the_next_is_transferred() {
        let executor = executor(&Sample::of(job(Verb::Copy, |_| {})));
        let links = executor.planner.links();
        for key in ["a", "b", "c"] {
            if !links.is_first(&name(key)) {
                links.wait(name(key), None);
            }
        }
        let first = executor.linker.turn().await.unwrap();
        assert_eq!(first.iter().map(|name| name.src.key.clone()).collect::<Vec<_>>(), [Key::new("b")]);
    }
}
