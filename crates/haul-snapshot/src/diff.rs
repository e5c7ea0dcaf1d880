//! In what two trees differ, by their lists alone. Pure.

use crate::tree::{EntryKind, Node, Tree};
use std::cmp::Ordering;

/// One difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// Other content, another target, or a thing of another kind.
    Content,
    /// Only mode or time.
    Attributes,
}

impl Change {
    /// The sign that `haul check --combined` has for it where it has one.
    pub fn sign(self) -> char {
        match self {
            Change::Added => '+',
            Change::Removed => '-',
            Change::Content => '*',
            Change::Attributes => 'm',
        }
    }
}

/// The differences from `a` to `b`, in order of paths.
pub fn diff<'a>(a: &'a Tree, b: &'a Tree) -> impl Iterator<Item = (Change, Node<'a>)> {
    let (mut a, mut b) = (a.nodes().peekable(), b.nodes().peekable());
    let pairs = std::iter::from_fn(move || {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(x), Some(y)) => x.path.cmp(y.path),
        };
        let first = if order == Ordering::Greater { None } else { a.next() };
        let second = if order == Ordering::Less { None } else { b.next() };
        Some((first, second))
    });
    pairs.filter_map(|pair| match pair {
        (Some(x), Some(y)) => between(&x, &y).map(|change| (change, y)),
        (Some(x), None) => Some((Change::Removed, x)),
        (None, y) => y.map(|y| (Change::Added, y)),
    })
}

fn between(x: &Node, y: &Node) -> Option<Change> {
    // Entries added to or removed from a folder change its time, and are reported themselves.
    let times = x.what != EntryKind::Dir && x.mtime != y.mtime;
    match x.what == y.what {
        false => Some(Change::Content),
        true => (times || x.mode != y.mode).then_some(Change::Attributes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::TreeBuilder;
    use haul_core::Mtime;

    fn tree(nodes: &[(&str, EntryKind, u32, i128)]) -> Tree {
        let mut gathered = TreeBuilder::default();
        for (path, what, mode, mtime) in nodes {
            let (mode, mtime) = (Some(*mode), Some(Mtime(*mtime)));
            gathered.add(Node { path: path.as_bytes(), what: *what, mode, mtime }, None).unwrap();
        }
        gathered.tree().unwrap()
    }

    #[test]
    fn every_kind_of_difference_is_told_once() {
        let file = |n: u8| EntryKind::File(1, [n; 16]);
        let a = tree(&[
            ("content", file(1), 0o644, 1),
            ("dir", EntryKind::Dir, 0o755, 1),
            ("gone", file(1), 0o644, 1),
            ("kind", file(1), 0o644, 1),
            ("mode", file(1), 0o644, 1),
            ("same", file(1), 0o644, 1),
            ("time", file(1), 0o644, 1),
        ]);
        let b = tree(&[
            ("content", file(2), 0o644, 1),
            ("dir", EntryKind::Dir, 0o755, 2),
            ("kind", EntryKind::Link(b"x"), 0o644, 1),
            ("mode", file(1), 0o600, 1),
            ("new", file(1), 0o644, 1),
            ("same", file(1), 0o644, 1),
            ("time", file(1), 0o644, 2),
        ]);
        let reported: Vec<String> = diff(&a, &b).map(|(c, n)| format!("{} {}", c.sign(), n.shown())).collect();
        assert_eq!(reported, ["* content", "- gone", "* kind", "m mode", "+ new", "m time"]);
        assert_eq!(diff(&a, &a).count(), 0);
    }
}
