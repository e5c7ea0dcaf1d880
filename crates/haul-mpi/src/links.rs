//! Names of one file, found by any rank in any order: the first goes as a file, the others wait for it and become links. One map
//! at the coordinator, of inodes with several names only.

use crate::work::{Item, Raw};
use std::collections::HashMap;

/// What becomes of a name.
pub enum Met {
    /// It is copied.
    First(Item),
    /// It becomes a link to this one.
    Ready(Raw, Item),
    /// The first is on its way.
    Waits,
}

enum State {
    Coming(Vec<(u32, Item)>),
    There(Raw),
}

/// Files by tree and inode.
#[derive(Default)]
pub struct Links {
    files: HashMap<(u16, u64), State>,
    waiting: u64,
}

impl Links {
    /// A name was found in this directory.
    pub fn meet(&mut self, root: u16, ino: u64, node: u32, item: Item) -> Met {
        match self.files.get_mut(&(root, ino)) {
            None => {
                self.files.insert((root, ino), State::Coming(Vec::new()));
                Met::First(item)
            }
            Some(State::Coming(waiting)) => {
                waiting.push((node, item));
                self.waiting += 1;
                Met::Waits
            }
            // Told again by a rank that took over a directory.
            Some(State::There(name)) if *name == item.key => Met::First(item),
            Some(State::There(name)) => Met::Ready(name.clone(), item),
        }
    }

    /// The first is there: those that waited.
    pub fn arrived(&mut self, root: u16, ino: u64, name: &Raw) -> Vec<(u32, Item)> {
        match self.files.insert((root, ino), State::There(name.clone())) {
            Some(State::Coming(waiting)) => {
                self.waiting -= waiting.len() as u64;
                waiting
            }
            _ => Vec::new(),
        }
    }

    /// The first did not arrive: the one that takes its place.
    pub fn failed(&mut self, root: u16, ino: u64) -> Option<(u32, Item)> {
        if let Some(State::Coming(waiting)) = self.files.get_mut(&(root, ino)) {
            if let Some(next) = waiting.pop() {
                self.waiting -= 1;
                return Some(next);
            }
            self.files.remove(&(root, ino));
        }
        None
    }

    /// True while a name waits.
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }
}
