//! The list of a folder, which keeps what content under its hash doesn't: names, modes, times, symlinks, empty folders. Lines
//! of JSON, sorted; docs/snapshots.md has the format. What is read was perhaps written by somebody who means harm: no path
//! in it leads out of the folder. Pure.

use crate::record::Totals;
use haul_core::{Algo, Entry, Hashes, Key, Kind, Meta, Mtime, Version, attributes::MODE_BITS, hash};
use haul_dvc::{
    address::{Address, Layout, Md5, parse_md5},
    manifest::{self, Child},
};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The first line.
const HEAD: &str = "{\"haul_tree\":1}";
/// How a symlink's key ends in a store that shows symlinks as files.
pub const LINK: &str = ".rclonelink";
/// Longest path and longest target of a symlink, in bytes: what Linux takes.
const LONGEST: usize = 4095;
/// `S_IFREG`, as a mode in metadata has it.
const REGULAR: u32 = 0o100_000;
/// `S_IFDIR`.
const DIRECTORY: u32 = 0o040_000;
/// Permission bits without set-user-id, set-group-id and sticky.
const PERMISSIONS: u32 = 0o777;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A file with so many bytes of this MD5.
    File(u64, Md5),
    /// A folder.
    Dir,
    /// A symlink to this.
    Link(Vec<u8>),
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Below the folder, `/` between parts, without one at the end.
    pub path: Vec<u8>,
    /// What is there.
    pub what: What,
    /// Permission bits, where they are known; a symlink has none.
    pub mode: Option<u32>,
    /// Modification time, where it is known.
    pub mtime: Option<Mtime>,
}

/// All of a folder, in bytewise order of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: Vec<Node>,
}

#[derive(Default, Serialize, Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
}

impl Tree {
    /// A tree of these nodes, put in order; folders that are only named in paths are added, with nothing known of them.
    ///
    /// Errors: what can't be restored: a path that isn't one, two nodes of one path, something in what is no folder.
    pub fn new(mut nodes: Vec<Node>) -> Result<Tree, String> {
        let known: HashSet<&[u8]> = nodes.iter().map(|n| &n.path[..]).collect();
        let mut implied: HashSet<Vec<u8>> = HashSet::new();
        for node in &nodes {
            let mut path = &node.path[..];
            while let Some(at) = path.iter().rposition(|b| *b == b'/') {
                path = &path[..at];
                if known.contains(path) || !implied.insert(path.to_vec()) {
                    break;
                }
            }
        }
        drop(known);
        nodes.extend(implied.into_iter().map(|path| Node { path, what: What::Dir, mode: None, mtime: None }));
        nodes.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        check(&nodes)?;
        Ok(Tree { nodes })
    }

    /// In order of paths.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// In numbers.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for node in &self.nodes {
            match &node.what {
                What::File(size, _) => (totals.files, totals.bytes) = (totals.files + 1, totals.bytes + size),
                What::Dir => totals.dirs += 1,
                What::Link(_) => totals.links += 1,
            }
        }
        totals
    }

    /// The list.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.nodes.len() * 150);
        bytes.extend_from_slice(HEAD.as_bytes());
        bytes.push(b'\n');
        for node in &self.nodes {
            // A line of strings and numbers always has a JSON form.
            let _ = serde_json::to_writer(&mut bytes, &node.line());
            bytes.push(b'\n');
        }
        bytes
    }

    /// Reads a list.
    ///
    /// Errors: what is wrong with it, in one line; a path that would lead out of the folder.
    pub fn parse(bytes: &[u8]) -> Result<Tree, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the list isn't text".to_string())?;
        let mut lines = text.split_terminator('\n');
        match lines.next() {
            Some(HEAD) if text.ends_with('\n') => {}
            Some(head) if head != HEAD && head.starts_with("{\"haul_tree\":") => {
                return Err("its list has a format that this haul doesn't know: use a newer haul".into());
            }
            _ => return Err("it is no list of a folder".into()),
        }
        let nodes = lines.enumerate().map(|(n, line)| {
            let line: Line = serde_json::from_str(line).map_err(|e| format!("line {} of its list: {e}", n + 2))?;
            node(line).map_err(|why| format!("line {} of its list: {why}", n + 2))
        });
        let nodes = nodes.collect::<Result<Vec<Node>, String>>()?;
        check(&nodes)?;
        Ok(Tree { nodes })
    }

    /// The files that DVC's list can name: those whose names are text. Sorted by it when it is written.
    pub fn children(&self) -> Vec<Child> {
        let child = |node: &Node| match (&node.what, std::str::from_utf8(&node.path)) {
            (What::File(_, md5), Ok(path)) => Some(Child { path: path.into(), md5: *md5 }),
            _ => None,
        };
        self.nodes.iter().filter_map(child).collect()
    }

    /// Each content once, with its size and the first path that has it.
    pub fn content(&self) -> Vec<(Address, u64, &Node)> {
        let mut seen = HashSet::new();
        let mut content = Vec::new();
        for node in &self.nodes {
            if let What::File(size, md5) = &node.what {
                let address = Address::file(Layout::V3, *md5);
                content.extend(seen.insert(address).then_some((address, *size, node)));
            }
        }
        content
    }
}

impl Node {
    /// The path as a person reads it.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// Its key in a folder that shows symlinks as files.
    pub fn key(&self) -> Key {
        let end = match self.what {
            What::File(..) => "",
            What::Dir => "/",
            What::Link(_) => LINK,
        };
        Key::new([&self.path[..], end.as_bytes()].concat())
    }

    /// The mode that it is to have; without `setid` only permissions.
    pub fn mode_to_set(&self, setid: bool) -> Option<u32> {
        let bits = if setid { MODE_BITS } else { PERMISSIONS };
        self.mode.map(|mode| mode & bits).filter(|_| !matches!(self.what, What::Link(_)))
    }

    /// Metadata that sets the mode.
    pub fn meta(&self, setid: bool) -> Option<Box<Meta>> {
        let kind = if self.what == What::Dir { DIRECTORY } else { REGULAR };
        let mode = self.mode_to_set(setid)?;
        Some(Box::new(Meta::from([("mode".to_string(), format!("{:o}", kind | mode))])))
    }

    /// The entry that stands for it in a job that restores it.
    pub fn entry(&self, setid: bool) -> Entry {
        let (kind, size, md5) = match &self.what {
            What::File(size, md5) => (Kind::File, *size, Some(*md5)),
            What::Dir => (Kind::Dir, 0, None),
            What::Link(target) => (Kind::File, target.len() as u64, Some(manifest::md5(target))),
        };
        Entry {
            kind,
            mtime: self.mtime,
            // What it is doesn't change, so its hash pins it.
            version: md5.map(Version::new),
            hashes: md5.map(|md5| Hashes::default().with(Algo::Md5, md5)).unwrap_or_default(),
            meta: self.meta(setid),
            ..Entry::file(self.key(), size)
        }
    }

    fn line(&self) -> Line<'static> {
        let (path, path_hex) = text_or_hex(&self.path);
        let base = Line {
            path,
            path_hex,
            mode: self.mode.map(|mode| format!("{mode:o}")),
            mtime: self.mtime.map(seconds),
            ..Line::default()
        };
        match &self.what {
            What::File(size, md5) => Line { kind: "file", size: Some(*size), md5: Some(hash::to_hex(md5)), ..base },
            What::Dir => Line { kind: "dir", ..base },
            What::Link(to) => {
                let (target, target_hex) = text_or_hex(to);
                Line { kind: "link", target, target_hex, mode: None, ..base }
            }
        }
    }
}

fn text_or_hex(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(hash::to_hex(bytes))),
    }
}

fn bytes_of(text: Option<String>, hex: Option<String>, what: &str) -> Result<Vec<u8>, String> {
    match (text, hex) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(hex)) => hash::from_hex(&hex).ok_or_else(|| format!("{what} {hex:?} isn't hexadecimal")),
        _ => Err(format!("it has no {what}, or two")),
    }
}

fn node(line: Line) -> Result<Node, String> {
    let path = bytes_of(line.path, line.path_hex, "path")?;
    let what = match line.kind {
        "file" => {
            let md5 = line.md5.as_deref().and_then(parse_md5).ok_or("it has no MD5")?;
            What::File(line.size.ok_or("it has no size")?, md5)
        }
        "dir" => What::Dir,
        "link" => What::Link(bytes_of(line.target, line.target_hex, "target")?),
        other => return Err(format!("it is of an unknown type {other:?}")),
    };
    let octal = |text: String| {
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= MODE_BITS);
        mode.ok_or_else(|| format!("{text:?} is no mode"))
    };
    let time = |text: String| parse_seconds(&text).ok_or_else(|| format!("{text:?} is no time"));
    Ok(Node { path, what, mode: line.mode.map(octal).transpose()?, mtime: line.mtime.map(time).transpose()? })
}

/// Seconds since 1970 with nine digits behind the point; before that with a minus in front of all of it.
fn seconds(time: Mtime) -> String {
    let sign = if time.0 < 0 { "-" } else { "" };
    let nanos = time.0.unsigned_abs();
    format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn parse_seconds(text: &str) -> Option<Mtime> {
    let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (secs, nanos) = rest.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(secs) || !digits(nanos) || nanos.len() != 9 {
        return None;
    }
    let secs = i128::from(secs.parse::<i64>().ok()?);
    Some(Mtime(sign * (secs * 1_000_000_000 + nanos.parse::<i128>().ok()?)))
}

/// What every tree keeps to, so that restoring one touches nothing outside of its folder: paths are relative and in order,
/// each once; what holds something is a folder and stands in the list itself.
fn check(nodes: &[Node]) -> Result<(), String> {
    let mut dirs: HashSet<&[u8]> = HashSet::new();
    let mut last: Option<&[u8]> = None;
    for node in nodes {
        let path = &node.path[..];
        let wrong = |why: &str| Err(format!("{:?}: {why}", node.shown()));
        if path.len() > LONGEST {
            return wrong("the path is longer than a disk takes");
        }
        if path.contains(&0) || path.split(|b| *b == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
            return wrong("the path leads out of the folder, or isn't one");
        }
        if last.is_some_and(|last| last >= path) {
            return wrong("the path is there twice, or out of order");
        }
        last = Some(path);
        if let Some(at) = path.iter().rposition(|b| *b == b'/')
            && !dirs.contains(&path[..at])
        {
            return wrong("what it is in is no folder");
        }
        match &node.what {
            What::Dir => drop(dirs.insert(path)),
            What::File(..) if path.ends_with(LINK.as_bytes()) => {
                return wrong("haul takes files of such names for symlinks: rename it, or leave it out with --exclude");
            }
            What::Link(to) if to.is_empty() || to.contains(&0) || to.len() > LONGEST => {
                return wrong("what the symlink points to isn't a path");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(path: &[u8], what: What) -> Node {
        Node { path: path.into(), what, mode: Some(0o644), mtime: Some(Mtime(-1)) }
    }

    fn file(path: &str) -> Node {
        of(path.as_bytes(), What::File(1, [7; 16]))
    }

    #[test]
    fn a_list_reads_back() {
        let link = Node { mode: None, ..of(b"l\xff", What::Link(b"../\xfe".to_vec())) };
        let nodes =
            vec![file("b"), of(b"d", What::Dir), link, Node { mode: None, mtime: None, ..file("d/\u{1}\"\\ü") }];
        let tree = Tree::new(nodes).unwrap();
        let text = String::from_utf8(tree.write()).unwrap();
        assert_eq!(
            text,
            concat!(
                "{\"haul_tree\":1}\n",
                r#"{"type":"file","path":"b","mode":"644","mtime":"-0.000000001","size":1,"md5":"07070707070707070707070707070707"}"#,
                "\n",
                r#"{"type":"dir","path":"d","mode":"644","mtime":"-0.000000001"}"#,
                "\n",
                r#"{"type":"file","path":"d/\u0001\"\\ü","size":1,"md5":"07070707070707070707070707070707"}"#,
                "\n",
                r#"{"type":"link","path_hex":"6cff","mtime":"-0.000000001","target_hex":"2e2e2ffe"}"#,
                "\n",
            )
        );
        assert_eq!(Tree::parse(text.as_bytes()), Ok(tree));
    }

    #[test]
    fn folders_that_only_paths_name_are_added() {
        let tree = Tree::new(vec![file("a/b/c"), file("a/b/d")]).unwrap();
        let paths: Vec<String> = tree.nodes().iter().map(Node::shown).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b/d"]);
        assert_eq!(tree.totals(), Totals { files: 2, bytes: 2, dirs: 2, links: 0 });
    }

    #[test]
    fn no_path_leads_out() {
        for path in ["", "/etc/x", "../x", "a/../../x", "a//b", "a/", "./a", "a/.", "a\0b", &"x/".repeat(3000)] {
            assert!(Tree::new(vec![file(path)]).is_err(), "{path:?}");
        }
        let through = [of(b"a", What::Link(b"/etc".to_vec())), file("a/passwd")];
        assert_eq!(Tree::new(through.to_vec()).unwrap_err(), "\"a/passwd\": what it is in is no folder");
        assert!(Tree::new(vec![file("a"), file("a/b")]).is_err());
        assert!(Tree::new(vec![file("a"), of(b"a", What::Link(b"b".to_vec()))]).is_err());
        assert!(Tree::new(vec![of(b"a", What::Link(vec![]))]).is_err());
        assert!(Tree::new(vec![file("a.rclonelink")]).unwrap_err().contains("takes files of such names for symlinks"));
    }

    #[test]
    fn a_list_that_was_tampered_with_is_refused() {
        let line = |rest: &str| format!("{HEAD}\n{{{rest}}}\n");
        let md5 = r#""md5":"07070707070707070707070707070707""#;
        for (text, why) in [
            (line(&format!(r#""type":"file","path":"../x","size":1,{md5}"#)), "leads out of the folder"),
            (line(&format!(r#""type":"file","path_hex":"2e2e2f78","size":1,{md5}"#)), "leads out of the folder"),
            (line(&format!(r#""type":"file","path":"a/b","size":1,{md5}"#)), "what it is in is no folder"),
            (line(&format!(r#""type":"file","path":"a","path_hex":"61","size":1,{md5}"#)), "no path, or two"),
            (line(&format!(r#""type":"file","path":"a",{md5}"#)), "line 2 of its list: it has no size"),
            (line(&format!(r#""type":"disk","path":"a",{md5}"#)), "unknown type"),
            (line(r#""type":"file","path":"a","size":1,"md5":"x""#), "it has no MD5"),
            (line(r#""type":"dir","path":"a","mode":"100644""#), "is no mode"),
            (line(r#""type":"dir","path":"a","mtime":"1""#), "is no time"),
            (format!("{HEAD}\n{{\"type\":\"dir\",\"path\":\"a\"}}"), "it is no list of a folder"),
            ("{\"haul_tree\":2}\n".into(), "use a newer haul"),
            (String::new(), "it is no list of a folder"),
        ] {
            let told = Tree::parse(text.as_bytes()).unwrap_err();
            assert!(told.contains(why), "{told} isn't {why}");
        }
    }

    #[test]
    fn set_id_bits_come_only_when_asked_for() {
        let node = Node { mode: Some(0o4755), ..file("a") };
        assert_eq!((node.mode_to_set(false), node.mode_to_set(true)), (Some(0o755), Some(0o4755)));
        assert_eq!(node.meta(false).unwrap()["mode"], "100755");
        assert_eq!(of(b"l", What::Link(b"x".to_vec())).meta(true), None);
    }

    proptest! {
        #[test]
        fn times_read_back(nanos in i64::MIN..i64::MAX) {
            prop_assert_eq!(parse_seconds(&seconds(Mtime(nanos.into()))), Some(Mtime(nanos.into())));
        }

        #[test]
        fn whatever_is_read_stays_inside(bytes in proptest::collection::vec(any::<u8>(), 0..200), path in ".{0,40}") {
            let line = serde_json::json!({"type": "file", "path": path, "size": 1, "md5": "07".repeat(16)});
            for text in [bytes, format!("{HEAD}\n{line}\n").into_bytes()] {
                for node in Tree::parse(&text).unwrap_or_default().nodes() {
                    prop_assert!(manifest::stays_inside(&node.shown()));
                }
            }
        }
    }
}
