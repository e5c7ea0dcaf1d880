//! Contents of a folder, as a version keeps it: names, modes, times, symlinks, empty folders, and the content hash of each
//! file. In order of paths, and such that no path leads out of the folder, whoever made it. Some 100 bytes a path, since there
//! may be millions: all paths lie in one place. Pure.

use crate::record::Totals;
use haul_cas::{address::Md5, manifest};
use haul_core::{Algo, Entry, Hashes, Key, Kind, Meta, Mtime, Version, chmod::MODE_BITS, key};
use std::{cmp::Ordering, collections::HashSet};

/// Longest path and longest target of a symlink, in bytes: what Linux takes.
const LONGEST: usize = 4095;
/// `S_IFREG`, as a mode in metadata has it.
const REGULAR: u32 = 0o100_000;
/// `S_IFDIR`.
const DIRECTORY: u32 = 0o040_000;
/// Permission bits without set-user-id, set-group-id and sticky.
const PERMISSIONS: u32 = 0o777;
/// Bytes of paths that are allocated together.
const CHUNK: usize = 1 << 20;

/// Kind of a path's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind<'a> {
    /// A file: its size in bytes, and its MD5.
    File(u64, Md5),
    /// A folder.
    Dir,
    /// A symlink to this.
    Link(&'a [u8]),
}

/// One path, and what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Below the folder, `/` between parts, without one at the end.
    pub path: &'a [u8],
    /// The entry's kind.
    pub what: EntryKind<'a>,
    /// Permission bits, where they are known; a symlink has none.
    pub mode: Option<u32>,
    /// Modification time, where it is known.
    pub mtime: Option<Mtime>,
}

/// All of a folder, in bytewise order of paths.
#[derive(Debug, Default)]
pub struct Tree {
    texts: Texts,
    packed: Vec<Packed>,
}

/// A tree while it is gathered, in any order.
#[derive(Debug, Default)]
pub struct TreeBuilder {
    texts: Texts,
    packed: Vec<Packed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackedKind {
    File,
    Dir,
    Link,
}

/// A node without its texts.
#[derive(Clone, Copy, Debug)]
struct Packed {
    /// Where its path is, and behind that the target of a link, or what pins a file's content.
    at: u64,
    size: u64,
    /// Of its time, where it has one.
    secs: i64,
    nanos: Option<std::num::NonZeroU32>,
    mode: Option<std::num::NonZeroU16>,
    path: u16,
    rest: u16,
    kind: PackedKind,
    md5: Md5,
}

/// Short texts, one behind the other.
#[derive(Debug, Default)]
struct Texts(Vec<Vec<u8>>);

impl Texts {
    /// Keeps two texts, of at most [`CHUNK`] bytes together; gives where they are.
    fn push(&mut self, a: &[u8], b: &[u8]) -> u64 {
        let needed = a.len() + b.len();
        if self.0.last().is_none_or(|last| last.len() + needed > CHUNK) {
            // The first one grows as it must: most trees are small.
            self.0.push(if self.0.is_empty() { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
        let chunk = self.0.len() - 1;
        let last = &mut self.0[chunk];
        let at = chunk * CHUNK + last.len();
        last.extend_from_slice(a);
        last.extend_from_slice(b);
        at as u64
    }

    fn get(&self, at: u64, length: u16) -> &[u8] {
        let (chunk, from) = (at as usize / CHUNK, at as usize % CHUNK);
        &self.0[chunk][from..from + usize::from(length)]
    }
}

impl Packed {
    fn path<'a>(&self, texts: &'a Texts) -> &'a [u8] {
        texts.get(self.at, self.path)
    }

    fn rest<'a>(&self, texts: &'a Texts) -> &'a [u8] {
        texts.get(self.at + u64::from(self.path), self.rest)
    }

    fn node<'a>(&self, texts: &'a Texts) -> Node<'a> {
        let what = match self.kind {
            PackedKind::File => EntryKind::File(self.size, self.md5),
            PackedKind::Dir => EntryKind::Dir,
            PackedKind::Link => EntryKind::Link(self.rest(texts)),
        };
        let mtime = self.nanos.map(|nanos| Mtime::new(self.secs, nanos.get() - 1));
        Node { path: self.path(texts), what, mode: self.mode.map(|mode| u32::from(mode.get()) - 1), mtime }
    }
}

impl TreeBuilder {
    /// Adds a node. `pin` shows later whether a file still has this content ([`Tree::pin`]).
    ///
    /// Errors: the node can't be restored, whatever else there is.
    pub fn add(&mut self, node: Node, pin: Option<&Version>) -> Result<(), String> {
        sound(&node)?;
        let (kind, size, md5, rest) = match node.what {
            EntryKind::File(size, md5) => (PackedKind::File, size, md5, pin.map_or(&[][..], |pin| &pin.0)),
            EntryKind::Dir => (PackedKind::Dir, 0, Md5::default(), &[][..]),
            EntryKind::Link(target) => (PackedKind::Link, 0, Md5::default(), target),
        };
        let short = |length: usize| u16::try_from(length).map_err(|_| "a version's pin is too long".to_string());
        // One more than the number, so that none has room beside it.
        let nanos = node.mtime.and_then(|mtime| std::num::NonZeroU32::new(mtime.nanos() + 1));
        let mode = node.mode.and_then(|mode| std::num::NonZeroU16::new((mode & MODE_BITS) as u16 + 1));
        let secs = node.mtime.map_or(0, Mtime::secs);
        if u32::try_from(self.packed.len()).is_err() {
            return wrong(&node, "a version has no room for more");
        }
        let (path, rest_length) = (short(node.path.len())?, short(rest.len())?);
        let at = self.texts.push(node.path, rest);
        self.packed.push(Packed { at, size, secs, nanos, mode, path, rest: rest_length, kind, md5 });
        Ok(())
    }

    /// The tree, sorted; folders that are only named in paths are added, without facts.
    ///
    /// Errors: the tree can't be restored: two nodes of one path, an entry below a path that is no folder.
    pub fn tree(mut self) -> Result<Tree, String> {
        self.sort();
        for path in self.implied() {
            self.add(Node { path: &path, what: EntryKind::Dir, mode: None, mtime: None }, None)?;
        }
        self.sort();
        self.as_it_is()
    }

    /// The tree, if it was gathered in order.
    ///
    /// Errors: as for [`TreeBuilder::tree`], and one that isn't in order, or in which a folder is missing.
    pub fn as_it_is(mut self) -> Result<Tree, String> {
        self.packed.shrink_to_fit();
        let tree = Tree { texts: self.texts, packed: self.packed };
        check(&tree)?;
        Ok(tree)
    }

    fn sort(&mut self) {
        let texts = &self.texts;
        self.packed.sort_unstable_by(|a, b| a.path(texts).cmp(b.path(texts)));
    }

    /// Folders that paths name and that aren't there, of what is sorted.
    fn implied(&self) -> HashSet<Vec<u8>> {
        let (mut implied, mut seen) = (HashSet::new(), HashSet::new());
        let known = |path: &[u8]| self.packed.binary_search_by(|other| other.path(&self.texts).cmp(path)).is_ok();
        for packed in &self.packed {
            let mut path = packed.path(&self.texts);
            while let Some(at) = path.iter().rposition(|b| *b == b'/') {
                path = &path[..at];
                if !seen.insert(path) {
                    break;
                }
                if !known(path) {
                    implied.insert(path.to_vec());
                }
            }
        }
        implied
    }
}

impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        self.nodes().eq(other.nodes())
    }
}

impl Tree {
    /// In order of paths.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node<'_>> + DoubleEndedIterator {
        self.packed.iter().map(|packed| packed.node(&self.texts))
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// The node at a place, in order of paths.
    pub fn node(&self, place: usize) -> Node<'_> {
        self.packed[place].node(&self.texts)
    }

    /// The pin of a file's content when it was added, if it had one.
    pub fn pin(&self, place: usize) -> Option<Version> {
        let packed = &self.packed[place];
        (packed.kind == PackedKind::File && packed.rest > 0).then(|| Version::new(packed.rest(&self.texts)))
    }

    /// The place of the node that has this key in the folder.
    pub fn find(&self, key: &Key) -> Option<usize> {
        let (path, kind) = match (key.is_dir(), key.is_symlink()) {
            (true, _) => (key.path(), PackedKind::Dir),
            (false, true) => (key.path(), PackedKind::Link),
            (false, false) => (key.as_bytes(), PackedKind::File),
        };
        let place = self.packed.binary_search_by(|other| other.path(&self.texts).cmp(path)).ok()?;
        (self.packed[place].kind == kind).then_some(place)
    }

    /// Places of nodes in order of their keys.
    pub fn by_key(&self) -> Vec<u32> {
        let mut places: Vec<u32> = (0..self.packed.len() as u32).collect();
        let of = |place: u32| {
            let packed = &self.packed[place as usize];
            (packed.path(&self.texts), packed.kind.suffix())
        };
        // Nearly in order already.
        places.sort_by(|a, b| by_keys(of(*a), of(*b)));
        places
    }

    /// Places of files in order of their MD5s; of one content in order of paths.
    pub fn by_content(&self) -> Vec<u32> {
        let is_file = |place: &u32| self.packed[*place as usize].kind == PackedKind::File;
        let mut places: Vec<u32> = (0..self.packed.len() as u32).filter(is_file).collect();
        places.sort_unstable_by_key(|place| (self.packed[*place as usize].md5, *place));
        places
    }

    /// The size and MD5 of the file at a place; nothing of what is none.
    pub fn content(&self, place: u32) -> (u64, Md5) {
        let packed = &self.packed[place as usize];
        (packed.size, packed.md5)
    }

    /// In numbers.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for node in self.nodes() {
            match node.what {
                EntryKind::File(size, _) => {
                    (totals.files, totals.bytes) = (totals.files + 1, totals.bytes.saturating_add(size))
                }
                EntryKind::Dir => totals.dirs += 1,
                EntryKind::Link(_) => totals.links += 1,
            }
        }
        totals
    }

    /// The MD5s of the files that DVC's list can name, those whose names are text: sorted, each once.
    pub fn children(&self) -> Vec<Md5> {
        let named = |node: Node| match node.what {
            EntryKind::File(_, md5) => std::str::from_utf8(node.path).ok().map(|_| md5),
            _ => None,
        };
        let mut md5s: Vec<Md5> = self.nodes().filter_map(named).collect();
        md5s.sort_unstable();
        md5s.dedup();
        md5s
    }
}

/// Ending of files that the format of lists leaves out: not every store that a snapshot is restored to tells them from symlinks.
const STORED_LINK: &[u8] = b".rclonelink";

impl PackedKind {
    /// How a key ends beyond the path.
    fn suffix(self) -> &'static [u8] {
        key::ending(match self {
            PackedKind::File => Kind::File,
            PackedKind::Dir => Kind::Dir,
            PackedKind::Link => Kind::Symlink,
        })
    }
}

/// The order of two keys, of which each is a path and an ending.
fn by_keys((a, a_end): (&[u8], &[u8]), (b, b_end): (&[u8], &[u8])) -> Ordering {
    let both = a.len().min(b.len());
    let rest = || a[both..].iter().chain(a_end).cmp(b[both..].iter().chain(b_end));
    a[..both].cmp(&b[..both]).then_with(rest)
}

impl Node<'_> {
    /// The path as a person reads it.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(self.path).into_owned()
    }

    /// Its key in the folder.
    pub fn key(&self) -> Key {
        let kind = match self.what {
            EntryKind::File(..) => return Key::new(self.path),
            EntryKind::Dir => PackedKind::Dir,
            EntryKind::Link(_) => PackedKind::Link,
        };
        Key::new([self.path, kind.suffix()].concat())
    }

    /// The mode that it is to have; without `setid` only permissions.
    pub fn mode_to_set(&self, setid: bool) -> Option<u32> {
        let bits = if setid { MODE_BITS } else { PERMISSIONS };
        self.mode.map(|mode| mode & bits).filter(|_| !matches!(self.what, EntryKind::Link(_)))
    }

    /// Metadata that sets the mode.
    pub fn meta(&self, setid: bool) -> Option<Box<Meta>> {
        let kind = if self.what == EntryKind::Dir { DIRECTORY } else { REGULAR };
        let mode = self.mode_to_set(setid)?;
        Some(Box::new(Meta::from([("mode".to_string(), format!("{:o}", kind | mode))])))
    }

    /// The entry that stands for it in a job that restores it.
    pub fn entry(&self, setid: bool) -> Entry {
        let (kind, size, md5) = match self.what {
            EntryKind::File(size, md5) => (Kind::File, size, Some(md5)),
            EntryKind::Dir => (Kind::Dir, 0, None),
            EntryKind::Link(target) => (Kind::Symlink, target.len() as u64, Some(manifest::md5(target))),
        };
        Entry {
            kind,
            mtime: self.mtime,
            // Content under a hash doesn't change, so its hash pins it.
            version: md5.map(Version::new),
            hashes: md5.map(|md5| Hashes::default().with(Algo::Md5, md5)).unwrap_or_default(),
            meta: self.meta(setid),
            ..Entry::file(self.key(), size)
        }
    }
}

fn wrong<T>(node: &Node, why: &str) -> Result<T, String> {
    Err(format!("{:?}: {why}", node.shown()))
}

/// Rule for every node by itself: its path is a relative one that leads nowhere else.
fn sound(node: &Node) -> Result<(), String> {
    let path = node.path;
    if path.len() > LONGEST {
        return wrong(node, "the path is longer than a disk takes");
    }
    if path.contains(&0) || path.split(|b| *b == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
        return wrong(node, "the path leads out of the directory, or isn't one");
    }
    match node.what {
        EntryKind::File(..) if path.ends_with(STORED_LINK) => {
            wrong(node, "files with such names stand for symlinks: rename it, or exclude it with --exclude")
        }
        EntryKind::Link(to) if to.is_empty() || to.contains(&0) || to.len() > LONGEST => {
            wrong(node, "what the symlink points to isn't a path")
        }
        _ => Ok(()),
    }
}

/// Rules for every tree, so that restoring one touches nothing outside of its folder: paths are in order, each once; an entry
/// with others below it is a folder and stands in the list itself.
fn check(tree: &Tree) -> Result<(), String> {
    let mut dirs: HashSet<&[u8]> = HashSet::new();
    let mut last: Option<&[u8]> = None;
    for node in tree.nodes() {
        if last.is_some_and(|last| last >= node.path) {
            return wrong(&node, "the path is there twice, or out of order");
        }
        last = Some(node.path);
        if let Some(at) = node.path.iter().rposition(|b| *b == b'/')
            && !dirs.contains(&node.path[..at])
        {
            return wrong(&node, "its parent isn't a directory");
        }
        if node.what == EntryKind::Dir {
            dirs.insert(node.path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(path: &'a str, what: EntryKind<'a>) -> Node<'a> {
        Node { path: path.as_bytes(), what, mode: Some(0o644), mtime: Some(Mtime(-1)) }
    }

    fn file(path: &str) -> Node<'_> {
        of(path, EntryKind::File(1, [7; 16]))
    }

    fn tree(nodes: &[Node]) -> Result<Tree, String> {
        let mut gathered = TreeBuilder::default();
        nodes.iter().try_for_each(|node| gathered.add(*node, None))?;
        gathered.tree()
    }

    #[test]
    fn nodes_come_back_in_order_with_what_pins_them() {
        let pin = Version::new("pinned");
        let mut gathered = TreeBuilder::default();
        let far = Mtime::new(i64::MAX, 999_999_999);
        let all = [
            Node { mode: None, ..of("z", EntryKind::Link(b"to/\xff")) },
            Node { mode: Some(0o7777), mtime: Some(far), ..of("a", EntryKind::File(u64::MAX, [9; 16])) },
            Node { mode: Some(0), mtime: None, ..of("d", EntryKind::Dir) },
        ];
        all.iter().for_each(|node| gathered.add(*node, Some(&pin)).unwrap());
        // More than what is allocated together.
        let names: Vec<String> = (0..40_000).map(|n| format!("d/{n:06}{}", "x".repeat(60))).collect();
        names.iter().rev().for_each(|name| gathered.add(file(name), Some(&pin)).unwrap());
        let tree = gathered.tree().unwrap();
        assert_eq!((tree.len(), tree.is_empty()), (40_003, false));
        assert_eq!((tree.node(0), tree.node(1), tree.node(40_002)), (all[1], all[2], all[0]));
        assert_eq!(tree.node(2).path, names[0].as_bytes());
        let pins = [0, 1, 2, 40_002].map(|place| tree.pin(place));
        assert_eq!(pins, [Some(pin.clone()), None, Some(pin), None]);
        assert!(std::mem::size_of::<Packed>() <= 56);
    }

    #[test]
    fn folders_that_only_paths_name_are_added() {
        let tree = tree(&[file("a/b/c"), file("a/b/d")]).unwrap();
        let paths: Vec<String> = tree.nodes().map(|node| node.shown()).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b/d"]);
        assert_eq!(tree.totals(), Totals { files: 2, bytes: 2, dirs: 2, links: 0 });
    }

    #[test]
    fn no_path_leads_out() {
        for path in ["", "/etc/x", "../x", "a/../../x", "a//b", "a/", "./a", "a/.", "a\0b", &"x/".repeat(3000)] {
            assert!(tree(&[file(path)]).is_err(), "{path:?}");
        }
        let through = [of("a", EntryKind::Link(b"/etc")), file("a/passwd")];
        assert_eq!(tree(&through).unwrap_err(), "\"a/passwd\": its parent isn't a directory");
        assert!(tree(&[file("a"), file("a/b")]).is_err());
        assert!(tree(&[file("a"), of("a", EntryKind::Link(b"b"))]).is_err());
        assert!(tree(&[of("a", EntryKind::Link(b""))]).is_err());
        assert!(tree(&[of("a", EntryKind::Link(&[b'x'; 70_000]))]).is_err());
        assert!(tree(&[file(&"x".repeat(70_000))]).is_err());
        assert!(tree(&[file("a.rclonelink")]).unwrap_err().contains("files with such names stand for symlinks"));
    }

    #[test]
    fn keys_are_found_and_in_the_order_of_a_listing() {
        let names = ["a", "a-b", "a.c", "ab", "d.rclonelink", "e"];
        let mut nodes: Vec<Node> = names.iter().take(4).map(|name| file(name)).collect();
        nodes.extend([
            of("a0", EntryKind::Dir),
            of("a0/x", EntryKind::Dir),
            of("d.rclonelink", EntryKind::Dir),
            of("e", EntryKind::Link(b"x")),
        ]);
        nodes.extend([
            of("e.rclone", EntryKind::Link(b"x")),
            of("f", EntryKind::Dir),
            file("f-g"),
            file("f/g"),
            file("f0"),
        ]);
        let tree = tree(&nodes).unwrap();
        let keys: Vec<Key> = tree.by_key().into_iter().map(|place| tree.node(place as usize).key()).collect();
        assert!(keys.windows(2).all(|two| two[0] < two[1]), "{keys:?}");
        assert_eq!(keys.len(), tree.len());
        for place in 0..tree.len() {
            assert_eq!(tree.find(&tree.node(place).key()), Some(place));
        }
        for none in ["", "/", "a/", "a0", "e", "f", "x", "a.rclonelink", "d.rclonelink"] {
            assert_eq!(tree.find(&Key::new(none)), None, "{none}");
        }
    }

    #[test]
    fn content_is_in_order_of_its_hashes() {
        let of = |path, n: u8| of(path, EntryKind::File(n.into(), [n; 16]));
        let tree =
            tree(&[of("a", 3), of("b", 1), of("c", 3), of("d", 2), super::tests::of("e", EntryKind::Dir)]).unwrap();
        assert_eq!(tree.by_content(), [1, 3, 0, 2]);
        assert_eq!(tree.content(3), (2, [2; 16]));
        assert_eq!(tree.children(), [[1; 16], [2; 16], [3; 16]]);
    }

    #[test]
    fn set_id_bits_come_only_when_asked_for() {
        let node = Node { mode: Some(0o4755), ..file("a") };
        assert_eq!((node.mode_to_set(false), node.mode_to_set(true)), (Some(0o755), Some(0o4755)));
        assert_eq!(node.meta(false).unwrap()["mode"], "100755");
        assert_eq!(of("l", EntryKind::Link(b"x")).meta(true), None);
    }
}
