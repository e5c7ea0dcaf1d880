//! Directories under way: each waits for its listing, its files and its directories, and then for its own finish. Those that are
//! only known by name are not here, so that memory goes with how deep and wide the walk is at a time.

use crate::work::{DirAddress, Raw};
use std::collections::HashMap;

/// A directory that is open.
pub struct Node {
    parent: Option<u32>,
    root: u16,
    key: Raw,
    /// Number of children it waits for.
    pending: u64,
    /// Made by this job.
    new: bool,
    /// It is deleted when it is empty.
    going: bool,
    /// It isn't a directory of the job's.
    alone: bool,
    finishing: bool,
    /// Its listing may have missed something.
    doubted: bool,
}

impl Node {
    /// One that is copied; waits for its listing.
    pub fn growing(parent: Option<u32>, root: u16, key: Raw, new: bool) -> Node {
        let (going, alone, finishing, doubted) = Default::default();
        Node { parent, root, key, pending: 1, new, going, alone, finishing, doubted }
    }

    /// One that is deleted.
    pub fn going(parent: Option<u32>, root: u16, key: Raw) -> Node {
        Node { going: true, ..Node::growing(parent, root, key, false) }
    }
}

/// The step after something is complete.
pub enum NextStep {
    /// It waits for more.
    Waits,
    /// Its attributes are due.
    Finish(DirAddress),
    /// It is empty and is to go.
    Rmdir(DirAddress),
    /// It is done, which the directory above waits for.
    Above(Option<u32>),
}

/// All that are open, by number.
#[derive(Default)]
pub struct Tree {
    nodes: HashMap<u32, Node>,
    next: u32,
}

impl Tree {
    /// Opens one.
    pub fn add(&mut self, node: Node) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.nodes.contains_key(&self.next) {
                self.nodes.insert(self.next, node);
                return self.next;
            }
        }
    }

    /// The node of a single file.
    pub fn virtual_node(&mut self, root: u16) -> u32 {
        self.add(Node { alone: true, ..Node::growing(None, root, Raw::new(), false) })
    }

    /// It waits for one thing more.
    pub fn wait(&mut self, node: u32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.pending += 1;
        }
    }

    /// Is it to be deleted?
    pub fn is_going(&self, node: u32) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.going)
    }

    /// Its listing may have missed something.
    pub fn doubt(&mut self, node: u32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.doubted = true;
        }
    }

    /// The key of a directory of which the listing may have missed something.
    pub fn doubted(&self, node: u32) -> Option<Raw> {
        self.nodes.get(&node).filter(|node| node.doubted).map(|node| node.key.clone())
    }

    /// The rank that looked at it set its attributes too.
    pub fn finished_itself(&mut self, node: u32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.finishing = true;
        }
    }

    /// One thing that it waited for is done. `attributes`: directories are finished with their own.
    pub fn complete(&mut self, number: u32, attributes: bool) -> NextStep {
        let Some(node) = self.nodes.get_mut(&number) else { return NextStep::Waits };
        node.pending -= 1;
        if node.pending > 0 {
            return NextStep::Waits;
        }
        if !node.finishing && !node.alone && (node.going || attributes) {
            (node.pending, node.finishing) = (1, true);
            let place = (node.root, number, node.key.clone(), node.new);
            return if node.going { NextStep::Rmdir(place) } else { NextStep::Finish(place) };
        }
        let parent = node.parent;
        self.nodes.remove(&number);
        NextStep::Above(parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_finished_after_all_that_is_in_it() {
        let mut tree = Tree::default();
        let top = tree.add(Node::growing(None, 0, Raw::new(), false));
        tree.wait(top);
        let sub = tree.add(Node::growing(Some(top), 0, Raw::from("a/"), true));
        assert!(matches!(tree.complete(top, true), NextStep::Waits), "its directory isn't done");
        assert!(matches!(tree.complete(sub, true), NextStep::Finish((0, number, _, true)) if number == sub));
        assert!(matches!(tree.complete(sub, true), NextStep::Above(Some(above)) if above == top));
        assert!(matches!(tree.complete(top, true), NextStep::Finish(_)));
        assert!(matches!(tree.complete(top, true), NextStep::Above(None)));
        assert!(tree.nodes.is_empty());
    }
}
