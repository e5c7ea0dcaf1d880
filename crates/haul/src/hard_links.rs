//! Names that are one file at the source become one file at the destination (`--hard-links`), whatever folders they are
//! in. The first name of each is transferred like any file; the others wait for it and are linked to its result.
//! Holds the inodes that have several names, and those of their names that aren't settled yet; nothing else.

use haul_core::{
    Entry, Key, Posix,
    plan::{Action, Step},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard},
};

/// An inode: device and number.
pub type Inode = ((u32, u32), u64);

/// The inode in a file system's facts.
pub fn inode(posix: &Posix) -> Inode {
    (posix.dev, posix.ino)
}

/// The inode of an entry that has several names.
fn shared(entry: &Entry) -> Option<Inode> {
    entry.posix.as_deref().filter(|posix| posix.nlink > 1 && !entry.is_dir()).map(inode)
}

/// The source's files with several names, and their results.
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
    /// Not yet settled; at the end of the transfers: it is missing, or the destination's file isn't the source's.
    Going,
    /// It is at the destination: unchanged, with the inode that the listing gave, or anew.
    There(Option<Inode>),
}

/// A name that waits.
pub struct Name {
    /// At the source.
    pub src: Entry,
    /// At the destination.
    pub dst: Option<Entry>,
}

/// Work to do for names that waited.
#[derive(Default)]
pub struct ReadyLinks {
    /// To be linked to the key; the inode that it has, when it was unchanged.
    pub links: Vec<(Key, Option<Inode>, Name)>,
    /// To be transferred themselves, as their first name didn't arrive.
    pub first: Vec<Name>,
}

impl ReadyLinks {
    /// True when there is no work.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.first.is_empty()
    }
}

impl HardLinks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// True when this name is the first of its file, or the only one.
    pub fn is_first(&self, src: &Entry) -> bool {
        let Some(inode) = shared(src) else { return true };
        let mut state = self.state();
        let group = state.groups.entry(inode);
        let group =
            group.or_insert_with(|| Group { leader: src.key.clone(), stage: Stage::Going, waiting: Vec::new() });
        group.leader == src.key
    }

    /// True when the destination's name is linked to one that is for another file of the source.
    pub fn is_mixed_up(&self, src: &Entry, dst: &Entry) -> bool {
        let (Some(there), Some(posix)) = (shared(dst), src.posix.as_deref()) else { return false };
        *self.state().claimed.entry(there).or_insert(inode(posix)) != inode(posix)
    }

    /// Notes the result of a first name; `there` is the destination's entry that was found and stayed.
    pub fn there(&self, src: &Entry, there: Option<&Entry>) {
        let Some(of) = shared(src) else { return };
        if let Some(group) = self.state().groups.get_mut(&of).filter(|group| group.leader == src.key) {
            group.stage = Stage::There(there.and_then(|dst| dst.posix.as_deref()).map(inode));
        }
    }

    /// Notes what a first name will be once this step is done.
    pub fn will_be(&self, step: &Step) {
        let Some(src) = &step.src else { return };
        match step.action {
            Action::Copy => self.there(src, None),
            Action::Touch => self.there(src, step.dst.as_ref()),
            Action::Keep if !step.why.is_left_alone() => self.there(src, step.dst.as_ref()),
            _ => {}
        }
    }

    /// Lets a further name wait; returns it if it is linked already to the destination's first name.
    pub fn wait(&self, src: Entry, dst: Option<Entry>) -> Option<Entry> {
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

    /// Names that waited, as far as it is settled what becomes of their first name.
    pub fn turn(&self) -> ReadyLinks {
        let mut turn = ReadyLinks::default();
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
    pub fn promote(&self, src: &Entry) {
        let Some(inode) = shared(src) else { return };
        if let Some(group) = self.state().groups.get_mut(&inode) {
            group.leader = src.key.clone();
            group.stage = Stage::Going;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Mtime;

    fn entry(key: &str, ino: u64, nlink: u32) -> Entry {
        let none = (0, 0);
        let posix = Posix {
            mode: 0o100644,
            uid: 0,
            gid: 0,
            rdev: none,
            nlink,
            dev: none,
            ino,
            atime: Mtime(0),
            size: 0,
            target: None,
        };
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
