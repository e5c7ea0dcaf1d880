//! Further names of files: each waits for the first, and is linked to what it became.

use super::{Done, Executor};
use crate::{
    Cx,
    hard_links::{Inode, Name, inode},
    spool::Gone,
    transfer::{Mover, Order},
};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key,
    attributes::{Unkept, What, Why},
    compare::Reason,
    event::{Event, Facts},
    plan::{self, Action},
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
            if turn.links.is_empty() && turn.first.is_empty() {
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
        for (leader, there, mut name) in links {
            let linked = name.dst.as_ref().and_then(|dst| dst.posix.as_deref()).map(inode);
            let step = plan::link(&name.src, name.dst.as_ref(), there.is_some() && linked == there, &self.job);
            let (action, why) = step;
            let (key, size, dry_run) = (name.src.key.clone(), name.src.size, self.job.dry_run);
            let found = match &name.dst {
                None => self.planner.name_elsewhere(&leader, &name.src).await,
                Some(_) => None,
            };
            // Another place that is linked to has this name of it too.
            let why = if found.is_some() && self.job.elsewhere.link { Reason::Size } else { why };
            let differs = self.attributes.difference(&self.rules, &name.src, found.as_ref().or(name.dst.as_ref()));
            self.planner.read_link(&mut name.src, action).await;
            let (key_of, facts) = (key.clone(), Facts::of(&name.src));
            self.ledger.tell(Event::Decided { key: key_of, action, why, size, differs, facts, dry_run });
            match action {
                Action::Link if dry_run => {
                    self.ledger.report().totals.links += 1;
                    if self.job.tell.details {
                        self.ledger.tell(Event::Linked { key, to: leader });
                    }
                }
                Action::Link if self.confirm("link", &key) => due.push((leader, name)),
                Action::Refuse => self.refuse(&key),
                Action::Keep => self.kept(&name.src, why),
                _ => {}
            }
        }
        let batches: Vec<Vec<_>> = chunks(due, self.mover.copy_batch());
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
        for ((leader, name), answer) in batch.into_iter().zip(answers) {
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
            self.delete_source(Gone { size: 0, ..src.clone().into() });
        }
    }

    /// Brings over names that are first now, as any other file.
    async fn bring_first(self: Arc<Self>, names: Vec<Name>) {
        let (orders, working) = self.clone().start_working(false);
        let out = Done { executor: self.clone(), orders };
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
