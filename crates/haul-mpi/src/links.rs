//! Names of one file, found by any rank in any order: the first goes as a file, the others wait for it and become links. One map
//! at the coordinator, of inodes of which some names are there and some aren't yet.

use crate::work::{Pin, Raw, SourceEntry};
use std::collections::HashMap;

/// Treatment of a name.
pub enum LinkAction {
    /// It is copied.
    First(SourceEntry),
    /// It becomes a link to this one.
    Ready(Raw, SourceEntry),
    /// The first is on its way.
    Waits,
}

enum State {
    Coming(Vec<(u32, SourceEntry)>),
    /// The first name, and how many are there.
    There(Raw, u32),
}

/// A version of a file: tree, inode, time of modification, size. An inode that was removed may be another file's by the time that its
/// next name is found. Where it is the same file after all that changed meanwhile, there are two copies of it until the next sync.
type File = (u16, Pin, (i64, u32), u64);

fn file(root: u16, item: &SourceEntry) -> Option<File> {
    item.linked?;
    Some((root, item.pin?, item.mtime, item.size))
}

/// All files that have several names.
#[derive(Default)]
pub struct Links {
    files: HashMap<File, State>,
    waiting: u64,
    /// The tree may show more names of an inode than that has.
    pub more_names: bool,
}

impl Links {
    /// A name was found in this directory.
    pub fn meet(&mut self, root: u16, node: u32, item: SourceEntry) -> LinkAction {
        let Some(file) = file(root, &item) else { return LinkAction::First(item) };
        match self.files.get_mut(&file) {
            None => {
                self.files.insert(file, State::Coming(Vec::new()));
                LinkAction::First(item)
            }
            Some(State::Coming(waiting)) => {
                waiting.push((node, item));
                self.waiting += 1;
                LinkAction::Waits
            }
            // Told again by a rank that took over a directory.
            Some(State::There(name, _)) if *name == item.key => LinkAction::First(item),
            Some(State::There(name, _)) => LinkAction::Ready(name.clone(), item),
        }
    }

    /// The first is there: those that waited.
    pub fn arrived(&mut self, root: u16, item: &SourceEntry) -> Vec<(u32, SourceEntry)> {
        let Some(file) = file(root, item) else { return Vec::new() };
        match self.files.insert(file, State::There(item.key.clone(), 1)) {
            Some(State::Coming(waiting)) => {
                self.waiting -= waiting.len() as u64;
                waiting
            }
            // One that was told again counts once.
            Some(there) => {
                self.files.insert(file, there);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// A further name is there. After the last one the file is forgotten: a tree may have millions of them.
    pub fn linked(&mut self, root: u16, item: &SourceEntry) {
        let Some(file) = file(root, item) else { return };
        let Some(State::There(_, names)) = self.files.get_mut(&file) else { return };
        *names += 1;
        if !self.more_names && item.linked.is_some_and(|all| *names >= all) {
            self.files.remove(&file);
        }
    }

    /// The first did not arrive: the one that takes its place.
    pub fn failed(&mut self, root: u16, item: &SourceEntry) -> Option<(u32, SourceEntry)> {
        let file = file(root, item)?;
        if let Some(State::Coming(waiting)) = self.files.get_mut(&file) {
            if let Some(next) = waiting.pop() {
                self.waiting -= 1;
                return Some(next);
            }
            self.files.remove(&file);
        }
        None
    }

    /// True while a name waits.
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Task;

    fn name(key: &str, ctime: i64, size: u64) -> SourceEntry {
        let pin = Some(Pin { ino: 5, ctime: (ctime, 0) });
        let (kind, mtime, on_root, task) = (haul_core::Kind::File, (1, 2), true, Task::Copy);
        SourceEntry { key: Raw::from(key), kind, size, mtime, pin, on_root, task, linked: Some(3) }
    }

    #[test]
    fn an_inode_that_has_become_another_file_is_one() {
        let mut links = Links::default();
        assert!(matches!(links.meet(0, 1, name("a", 7, 10)), LinkAction::First(_)));
        assert!(matches!(links.meet(0, 1, name("b", 7, 10)), LinkAction::Waits));
        let others = [name("changed", 8, 10), name("other", 8, 11)];
        for (number, other) in others.iter().enumerate() {
            assert!(matches!(links.meet(0, 1, other.clone()), LinkAction::First(_)), "{number}");
            assert!(links.arrived(0, other).is_empty(), "nobody waits for it");
        }
        assert!(links.is_waiting());
        let waited = links.arrived(0, &name("a", 7, 10));
        assert_eq!(waited.iter().map(|(_, item)| item.key.clone()).collect::<Vec<_>>(), [Raw::from("b")]);
        let LinkAction::Ready(to, _) = links.meet(0, 1, name("more", 8, 11)) else { panic!("its file is there") };
        assert_eq!((to, links.is_waiting()), (Raw::from("other"), false));
    }

    #[test]
    fn a_file_is_forgotten_when_all_its_names_are_there() {
        let mut links = Links::default();
        let [a, b, c] = ["a", "b", "c"].map(|key| name(key, 7, 10));
        assert!(matches!(links.meet(0, 1, a.clone()), LinkAction::First(_)));
        assert!(matches!(links.meet(0, 1, b.clone()), LinkAction::Waits));
        assert_eq!(links.arrived(0, &a).len(), 1);
        // A rank that took over a directory told and copied the first once more.
        assert!(matches!(links.meet(0, 1, a.clone()), LinkAction::First(_)));
        assert!(links.arrived(0, &a).is_empty());
        links.linked(0, &b);
        assert!(matches!(links.meet(0, 1, c.clone()), LinkAction::Ready(..)));
        links.linked(0, &c);
        assert!(links.files.is_empty());
    }
}
