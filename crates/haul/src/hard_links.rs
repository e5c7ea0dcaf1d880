//! Names that are one file at the source become one file at the destination (`--hard-links`), whatever folders they are
//! in. The first name of each is brought over like any file; the others wait for it and are linked to what it became.
//! Holds the inodes that have several names, and those of their names that aren't settled yet; nothing else.

use crate::{
    Cx,
    job::Run,
    spool::Gone,
    transfer::{Mover, Order},
};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key, Posix,
    attributes::{Differs, Unkept, What, Why},
    compare::{Difference, Reason},
    event::Event,
    plan::{self, Action},
};
use haul_store::CopyHow;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

/// Batches of links that are made at once.
const BATCHES_AT_ONCE: usize = 8;

/// An inode: device and number.
type Inode = ((u32, u32), u64);

fn inode(posix: &Posix) -> Inode {
    (posix.dev, posix.ino)
}

/// The inode of an entry that has several names.
fn shared(entry: &Entry) -> Option<Inode> {
    entry.posix.as_deref().filter(|posix| posix.nlink > 1 && !entry.is_dir()).map(inode)
}

/// The source's files with several names, and what became of them.
#[derive(Default)]
pub struct HardLinks(Mutex<State>);

#[derive(Default)]
struct State {
    groups: BTreeMap<Inode, Group>,
    /// Inodes with several names at the destination, and the source's inode that the first of them is for.
    claimed: HashMap<Inode, Inode>,
}

struct Group {
    /// The name that the others are linked to.
    leader: Key,
    stage: Stage,
    waiting: Vec<Name>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not yet settled; at the end of the transfers: it isn't there, or what is there isn't the source's.
    Going,
    /// It is at the destination: unchanged, with the inode that the listing gave, or anew.
    There(Option<Inode>),
}

/// A name that waits.
struct Name {
    src: Entry,
    dst: Option<Entry>,
}

/// What is to be done about names that waited.
#[derive(Default)]
struct Turn {
    /// To be linked to the key; the inode that it has, when it was unchanged.
    links: Vec<(Key, Option<Inode>, Name)>,
    /// To be brought over themselves, as their first name didn't arrive.
    first: Vec<Name>,
}

impl HardLinks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// True when this name is the first of its file, or the only one.
    fn is_first(&self, src: &Entry) -> bool {
        let Some(inode) = shared(src) else { return true };
        let mut state = self.state();
        let group = state.groups.entry(inode);
        let group =
            group.or_insert_with(|| Group { leader: src.key.clone(), stage: Stage::Going, waiting: Vec::new() });
        group.leader == src.key
    }

    /// True when the destination's name is linked to one that is for another file of the source.
    fn is_mixed_up(&self, src: &Entry, dst: &Entry) -> bool {
        let (Some(there), Some(posix)) = (shared(dst), src.posix.as_deref()) else { return false };
        *self.state().claimed.entry(there).or_insert(inode(posix)) != inode(posix)
    }

    /// Notes what became of a first name; `there` is what was found at the destination and stayed.
    pub fn there(&self, src: &Entry, there: Option<&Entry>) {
        let Some(of) = shared(src) else { return };
        if let Some(group) = self.state().groups.get_mut(&of).filter(|group| group.leader == src.key) {
            group.stage = Stage::There(there.and_then(|dst| dst.posix.as_deref()).map(inode));
        }
    }

    /// Lets a further name wait; gives it back where it is linked already to what its first name is there.
    fn wait(&self, src: Entry, dst: Option<Entry>) -> Option<Entry> {
        let inode = shared(&src)?;
        let mut state = self.state();
        let group = state.groups.get_mut(&inode)?;
        let is = dst.as_ref().and_then(|dst| dst.posix.as_deref()).map(self::inode);
        if is.is_some() && group.stage == Stage::There(is) {
            return Some(src);
        }
        group.waiting.push(Name { src, dst });
        None
    }

    fn turn(&self) -> Turn {
        let mut turn = Turn::default();
        for group in self.state().groups.values_mut().filter(|group| !group.waiting.is_empty()) {
            let waiting = std::mem::take(&mut group.waiting);
            match group.stage {
                Stage::There(inode) => {
                    turn.links.extend(waiting.into_iter().map(|name| (group.leader.clone(), inode, name)));
                }
                Stage::Going => {
                    let mut waiting = waiting.into_iter();
                    let Some(first) = waiting.next() else { continue };
                    group.leader = first.src.key.clone();
                    group.stage = Stage::Going;
                    group.waiting = waiting.collect();
                    turn.first.push(first);
                }
            }
        }
        turn
    }

    /// Makes a name that can't be linked the first of its file, for those that come after it.
    fn promote(&self, src: &Entry) {
        let Some(inode) = shared(src) else { return };
        if let Some(group) = self.state().groups.get_mut(&inode) {
            group.leader = src.key.clone();
            group.stage = Stage::Going;
        }
    }
}

impl Run {
    /// Keeps back a further name of a file that has several; gives back all others.
    pub fn first_name(&self, src: Entry, dst: Option<Entry>) -> Option<(Entry, Option<Entry>)> {
        if !self.attributes.hard_links() || self.links.is_first(&src) {
            return Some((src, dst));
        }
        self.report().totals.checks += 1;
        if let Some(src) = self.links.wait(src, dst) {
            let (action, why, dry_run) = (Action::Keep, Reason::Linked, self.policy.dry_run);
            let (key, size, differs) = (src.key.clone(), src.size, Difference::of(&src, Differs::default()));
            self.cx.sink.emit(&Event::Decided { key, action, why, size, differs, dry_run });
            self.kept(&src, Reason::Linked);
        }
        None
    }

    /// True when what is at the destination must be made anew, as it is one file with another name that it must not be.
    pub fn is_mixed_up(&self, src: &Entry, dst: &Entry) -> bool {
        self.attributes.hard_links() && self.links.is_mixed_up(src, dst)
    }

    /// Links the names that waited. Where a first name didn't arrive, the next takes its place and is brought over.
    pub async fn settle_links(self: &Arc<Self>) {
        while !self.stopping() {
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
        for (leader, there, name) in links {
            let linked = name.dst.as_ref().and_then(|dst| dst.posix.as_deref()).map(inode);
            let step = plan::link(&name.src, name.dst.as_ref(), there.is_some() && linked == there, &self.policy);
            let (action, why) = step;
            let (key, size, dry_run) = (name.src.key.clone(), name.src.size, self.policy.dry_run);
            let found = match &name.dst {
                None => self.name_elsewhere(&leader, &name.src).await,
                Some(_) => None,
            };
            // Another place that is linked to has this name of it too.
            let why = if found.is_some() && self.links_elsewhere() { Reason::Size } else { why };
            let differs = self.difference(&name.src, found.as_ref().or(name.dst.as_ref()));
            self.cx.sink.emit(&Event::Decided { key: key.clone(), action, why, size, differs, dry_run });
            match action {
                Action::Link if dry_run => {
                    self.report().totals.links += 1;
                    if self.policy.rsync.is_some() {
                        self.cx.sink.emit(&Event::Linked { key, to: leader });
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
            let step = self.steps.fetch_add(1, Ordering::Relaxed);
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
                    self.count_unkept(unkept);
                    self.links.promote(&name.src);
                    refused.push(name);
                }
                Err(error) => self.error(Error::with_key(error, &name.src.key)),
            }
        }
        refused
    }

    fn linked(&self, leader: &Key, src: &Entry) {
        self.report().totals.links += 1;
        self.dirs.written(&src.key);
        self.cx.sink.emit(&Event::Linked { key: src.key.clone(), to: leader.clone() });
        if self.moves() {
            self.away(Gone { size: 0, ..src.clone().into() });
        }
    }

    /// Brings over names that are first now, as any other file.
    async fn bring_first(self: Arc<Self>, names: Vec<Name>) {
        let (orders, working) = self.clone().start_working(false);
        for Name { src, dst } in names {
            self.decide(src, dst, &orders).await;
        }
        drop(orders);
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

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Mtime;

    fn entry(key: &str, ino: u64, nlink: u32) -> Entry {
        let none = (0, 0);
        let posix = Posix { mode: 0o100644, uid: 0, gid: 0, rdev: none, nlink, dev: none, ino, atime: Mtime(0) };
        Entry { posix: Some(Box::new(posix)), ..Entry::file(Key::new(key), 1) }
    }

    #[test]
    fn the_first_name_goes_and_the_others_wait_for_it() {
        let links = HardLinks::default();
        assert!(links.is_first(&entry("a", 1, 2)) && links.is_first(&entry("x", 2, 1)));
        assert!(!links.is_first(&entry("b", 1, 2)));
        assert!(links.wait(entry("b", 1, 2), None).is_none());
        links.there(&entry("a", 1, 2), None);
        let turn = links.turn();
        assert_eq!((turn.links.len(), turn.first.len()), (1, 0));
        assert_eq!(turn.links[0].0, Key::new("a"));
        assert!(links.turn().links.is_empty());
    }

    #[test]
    fn when_the_first_name_fails_the_next_takes_its_place() {
        let links = HardLinks::default();
        for key in ["a", "b", "c"] {
            if !links.is_first(&entry(key, 1, 3)) {
                links.wait(entry(key, 1, 3), None);
            }
        }
        let turn = links.turn();
        assert_eq!((turn.links.len(), turn.first[0].src.key.clone()), (0, Key::new("b")));
        links.there(&entry("b", 1, 3), None);
        assert_eq!(links.turn().links[0].0, Key::new("b"));
    }

    #[test]
    fn what_is_linked_already_is_known_at_once() {
        let links = HardLinks::default();
        links.is_first(&entry("a", 1, 2));
        links.there(&entry("a", 1, 2), Some(&entry("a", 70, 2)));
        links.is_first(&entry("b", 1, 2));
        assert!(links.wait(entry("b", 1, 2), Some(entry("b", 70, 2))).is_some());
        assert!(links.wait(entry("b", 1, 2), Some(entry("b", 71, 2))).is_none());
    }

    #[test]
    fn a_name_that_must_not_be_linked_is_found() {
        let links = HardLinks::default();
        assert!(!links.is_mixed_up(&entry("a", 1, 1), &entry("a", 70, 2)));
        assert!(!links.is_mixed_up(&entry("a", 1, 1), &entry("a", 70, 2)));
        assert!(links.is_mixed_up(&entry("b", 2, 1), &entry("b", 70, 2)));
        assert!(!links.is_mixed_up(&entry("c", 3, 1), &entry("c", 71, 1)));
    }
}
