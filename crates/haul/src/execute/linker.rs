//! Further names of files: each waits for the first, and is linked to what it became.

use super::Executor;
use crate::{
    Cx,
    hard_links::{Inode, Name},
    plan::{Taker, forbidden},
    spool::Gone,
    transfer::{Mover, Order},
};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key,
    attributes::{Unkept, What, Why},
    event::Event,
    plan::{Action, Step},
};
use haul_store::CopyHow;
use std::sync::Arc;

/// Batches of links that are made at once.
const BATCHES_AT_ONCE: usize = 8;

impl Executor {
    /// Links the names that waited. Where a first name didn't arrive, the next takes its place and is brought over.
    pub async fn settle_links(self: &Arc<Self>) {
        while !self.ledger.stopping() {
            let turn = self.links.turn();
            if turn.is_empty() {
                return;
            }
            let mut first = turn.first;
            first.extend(self.link_all(turn.links).await);
            if !first.is_empty() {
                self.clone().bring_first(first).await;
            }
        }
    }

    /// Gives back those that can't be links.
    async fn link_all(&self, links: Vec<(Key, Option<Inode>, Name)>) -> Vec<Name> {
        let mut due = Vec::new();
        for (first, there, name) in links {
            let step = self.planner.further_name(first, there, name).await;
            self.ledger.decided(&step);
            let Step { action, why, src: Some(src), dst, link_to, .. } = step else { continue };
            match (action, link_to) {
                (Action::Link, Some(first)) if self.consent.to("link", &src.key) => {
                    match self.make_way(&src.key).await {
                        Ok(_) => due.push((first, Name { src, dst })),
                        Err(error) => self.ledger.error(error),
                    }
                }
                (Action::Refuse, _) => self.ledger.error(forbidden(&src.key)),
                (Action::Keep, _) => self.kept(&src, &src.key, why),
                _ => {}
            }
        }
        let batches: Vec<Vec<_>> = chunks(due, self.cx.copy_batch());
        let refused = futures::stream::iter(batches).map(|batch| self.link_batch(batch));
        refused.buffer_unordered(BATCHES_AT_ONCE).concat().await
    }

    async fn link_batch(&self, batch: Vec<(Key, Name)>) -> Vec<Name> {
        let mover = Mover { cx: Cx { src: self.cx.dst.clone(), ..self.cx.clone() }, ..self.mover.clone() };
        let order = |(leader, name): &(Key, Name)| {
            let step = self.ledger.next_step();
            let from = Entry { key: leader.clone(), version: None, ..name.src.clone() };
            Order::new(step, from, name.src.key.clone(), name.dst.clone())
        };
        let mut orders: Vec<Order> = batch.iter().map(order).collect();
        let answers = mover.bring_by_server(&mut orders, CopyHow::Link).await;
        let mut refused = Vec::new();
        for (((leader, name), answer), order) in batch.into_iter().zip(answers).zip(&mut orders) {
            let answer = match answer {
                Err(e) if e.kind() == ErrorKind::Exists && self.job.existing.other_kinds.are_replaced() => {
                    self.in_place_of_another_kind(&mover, order, CopyHow::Link).await
                }
                answer => answer,
            };
            match answer {
                Ok(_) => self.linked(&leader, &name.src),
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

    fn linked(&self, leader: &Key, src: &Entry) {
        self.ledger.report().totals.links += 1;
        self.dirs.written(&src.key);
        self.ledger.tell(Event::Linked { key: src.key.clone(), to: leader.clone() });
        if self.job.moves() {
            self.moved.push(Gone { size: 0, ..src.clone().into() });
        }
    }

    /// Brings over names that are first now, as any other file.
    async fn bring_first(self: Arc<Self>, names: Vec<Name>) {
        let (out, working) = self.start_working();
        for Name { src, dst } in names {
            self.planner.decide(src, dst, &out).await;
        }
        drop(out);
        self.finish_working(working).await;
    }
}

/// In parts of at most so many.
fn chunks(mut all: Vec<(Key, Name)>, most: usize) -> Vec<Vec<(Key, Name)>> {
    let mut batches = Vec::new();
    while !all.is_empty() {
        let rest = all.split_off(all.len().min(most));
        batches.push(std::mem::replace(&mut all, rest));
    }
    batches
}
