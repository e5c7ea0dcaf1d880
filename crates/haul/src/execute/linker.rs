//! Further names of files: each waits for the first, and is linked to the result of that.

use super::{results::Results, way::InTheWay};
use crate::{
    consent::Consent,
    cx::Cx,
    hard_links::{HardLinks, Inode, Name},
    ledger::Ledger,
    plan::{FurtherNames, forbidden},
    transfer::{Mover, Order},
};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key,
    attributes::{Unkept, What, Why},
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
                    match self.way.make_way(&src.key).await {
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
            Order::new(step, from, name.src.key.clone(), name.dst.clone())
        };
        let mut orders: Vec<Order> = batch.iter().map(order).collect();
        let answers = self.mover.bring_by_server(&mut orders, CopyHow::Link).await;
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
                    let mut unkept = Unkept::default();
                    unkept.add(What::HardLink, Why::Lacking);
                    self.ledger.count_unkept(unkept);
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
