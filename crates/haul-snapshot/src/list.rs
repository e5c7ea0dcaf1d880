//! The lists of a folder as text: haul's own, which keeps what content under its hash doesn't, and DVC's. docs/snapshots.md has
//! the format: lines of JSON, sorted. Both are made a piece at a time, as often as they are wanted, and read so: of a million
//! files they are too long to be held. What is read may have been written to do harm. Pure.

use crate::tree::{EntryKind, Node, Tree, TreeBuilder};
use bytes::Bytes;
use haul_cas::{
    address::{Address, Layout, Md5, parse_md5},
    manifest,
};
use haul_core::{Algo, Hasher, Mtime, chmod::MODE_BITS, hash};
use serde::{Deserialize, Serialize};
use std::{ops::Range, sync::Arc};

/// The first line.
const HEAD: &str = "{\"haul_tree\":1}\n";
/// Nodes whose text is made at once: some 200 kB.
const STEP: usize = 1_024;

/// Format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Own,
    /// Of the files whose names are text; the first of them stands at this place.
    Dvc(usize),
}

/// A list, by what it is made of.
#[derive(Debug)]
pub struct List {
    tree: Arc<Tree>,
    form: Form,
    /// Where the text of each [`STEP`] begins, and where the last one ends.
    starts: Vec<u64>,
    /// The key of the list is made of its MD5.
    pub address: Address,
}

impl List {
    /// The folder's list.
    pub fn own(tree: &Arc<Tree>) -> List {
        List::new(tree, Form::Own)
    }

    /// The list that DVC would make of the folder's files.
    pub fn dvc(tree: &Arc<Tree>) -> List {
        let first = tree.nodes().position(|node| child(&node).is_some());
        List::new(tree, Form::Dvc(first.unwrap_or_default()))
    }

    fn new(tree: &Arc<Tree>, form: Form) -> List {
        let mut list =
            List { tree: tree.clone(), form, starts: Vec::new(), address: Address::file(Layout::V3, [0; 16]) };
        let (mut hasher, mut at) = (Hasher::new(&[Algo::Md5]), 0);
        for step in 0..list.steps() {
            list.starts.push(at);
            let text = list.text(step);
            hasher.update(&text);
            at += text.len() as u64;
        }
        list.starts.push(at);
        list.address = Address { layout: Layout::V3, md5: md5_of(hasher), dir: form != Form::Own };
        list
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// A part of the text, in pieces; what is beyond the end isn't there.
    pub fn pieces(self: Arc<Self>, range: Range<u64>) -> impl Iterator<Item = Bytes> {
        let end = range.end.min(self.size());
        let first = self.starts.partition_point(|start| *start <= range.start).saturating_sub(1);
        let wanted = (first..self.steps()).take_while({
            let list = self.clone();
            move |step| list.starts[*step] < end && range.start < end
        });
        wanted.map(move |step| {
            let (from, text) = (self.starts[step], Bytes::from(self.text(step)));
            let cut = |at: u64| at.saturating_sub(from).min(text.len() as u64) as usize;
            text.slice(cut(range.start)..cut(end))
        })
    }

    /// An empty tree has a text too.
    fn steps(&self) -> usize {
        self.tree.len().div_ceil(STEP).max(1)
    }

    fn text(&self, step: usize) -> Vec<u8> {
        let places = step * STEP..self.tree.len().min((step + 1) * STEP);
        match self.form {
            Form::Own => self.own_text(places),
            Form::Dvc(first) => self.dvc_text(places, first),
        }
    }

    fn own_text(&self, places: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(places.len() * 200 + HEAD.len());
        if places.start == 0 {
            bytes.extend_from_slice(HEAD.as_bytes());
        }
        for place in places {
            // A line of strings and numbers always has a JSON form.
            let _ = serde_json::to_writer(&mut bytes, &line(&self.tree.node(place)));
            bytes.push(b'\n');
        }
        bytes
    }

    fn dvc_text(&self, places: Range<usize>, first: usize) -> Vec<u8> {
        let mut text = String::with_capacity(places.len() * 130 + 2);
        if places.start == 0 {
            text.push('[');
        }
        for place in places.clone() {
            if let Some((path, md5)) = child(&self.tree.node(place)) {
                text.push_str(if place == first { "" } else { ", " });
                manifest::add(&mut text, path, &md5);
            }
        }
        if places.end == self.tree.len() {
            text.push(']');
        }
        text.into_bytes()
    }
}

fn md5_of(hasher: Hasher) -> Md5 {
    hasher.finish().get(Algo::Md5).and_then(|md5| md5.try_into().ok()).unwrap_or_default()
}

/// The item of DVC's list for a node; none for entries other than files, or with a name that isn't text.
fn child<'a>(node: &Node<'a>) -> Option<(&'a str, Md5)> {
    match node.what {
        EntryKind::File(_, md5) => std::str::from_utf8(node.path).ok().map(|path| (path, md5)),
        _ => None,
    }
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

fn line(node: &Node) -> Line<'static> {
    let (path, path_hex) = text_or_hex(node.path);
    let base = Line {
        path,
        path_hex,
        mode: node.mode.map(|mode| format!("{mode:o}")),
        mtime: node.mtime.map(seconds),
        ..Line::default()
    };
    match node.what {
        EntryKind::File(size, md5) => Line { kind: "file", size: Some(size), md5: Some(hash::to_hex(&md5)), ..base },
        EntryKind::Dir => Line { kind: "dir", ..base },
        EntryKind::Link(to) => {
            let (target, target_hex) = text_or_hex(to);
            Line { kind: "link", target, target_hex, mode: None, ..base }
        }
    }
}

/// Reads a folder's list as it comes.
pub struct Reader {
    gathered: TreeBuilder,
    hasher: Hasher,
    /// The beginning of a line that isn't there yet as a whole.
    begun: Vec<u8>,
    /// Lines that were read.
    lines: usize,
    wrong: Option<String>,
}

impl Default for Reader {
    fn default() -> Reader {
        let hasher = Hasher::new(&[Algo::Md5]);
        Reader { gathered: TreeBuilder::default(), hasher, begun: Vec::new(), lines: 0, wrong: None }
    }
}

impl Reader {
    /// Takes what follows. What is wrong with it, the end tells.
    pub fn take(&mut self, mut bytes: &[u8]) {
        self.hasher.update(bytes);
        while let Some(at) = bytes.iter().position(|b| *b == b'\n').filter(|_| self.wrong.is_none()) {
            let (line, rest) = bytes.split_at(at + 1);
            bytes = rest;
            let read = match self.begun.is_empty() {
                true => self.line(line),
                false => {
                    let mut whole = std::mem::take(&mut self.begun);
                    whole.extend_from_slice(line);
                    self.line(&whole)
                }
            };
            self.wrong = read.err();
        }
        if self.wrong.is_none() {
            self.begun.extend_from_slice(bytes);
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        self.lines += 1;
        if self.lines == 1 {
            return match line == HEAD.as_bytes() {
                true => Ok(()),
                false if line.starts_with(b"{\"haul_tree\":") => {
                    Err("its list has a format that this haul doesn't know: use a newer haul".into())
                }
                false => Err("not a list of a directory".into()),
            };
        }
        let place = |why: String| format!("line {} of its list: {why}", self.lines);
        let line: Line = serde_json::from_slice(line).map_err(|e| place(e.to_string()))?;
        let texts = Texts::of(&line).map_err(place)?;
        let node = texts.node(&line).map_err(place)?;
        self.gathered.add(node, None)
    }

    /// The tree, and the MD5 of all bytes, which is valid even if the tree is not.
    ///
    /// Errors: the problem with it, in one line; a path that would lead out of the folder.
    pub fn end(self) -> (Md5, Result<Tree, String>) {
        let md5 = md5_of(self.hasher);
        let tree = match self.wrong {
            Some(wrong) => Err(wrong),
            None if self.lines == 0 || !self.begun.is_empty() => Err("not a list of a directory".into()),
            None => self.gathered.as_it_is(),
        };
        (md5, tree)
    }
}

/// The texts of a line as bytes.
struct Texts {
    path: Vec<u8>,
    target: Vec<u8>,
}

impl Texts {
    fn of(line: &Line) -> Result<Texts, String> {
        let link = line.kind == "link";
        let target = if link { bytes_of(&line.target, &line.target_hex, "target")? } else { Vec::new() };
        Ok(Texts { path: bytes_of(&line.path, &line.path_hex, "path")?, target })
    }

    fn node(&self, line: &Line) -> Result<Node<'_>, String> {
        let what = match line.kind {
            "file" => {
                let md5 = line.md5.as_deref().and_then(parse_md5).ok_or("it has no MD5")?;
                EntryKind::File(line.size.ok_or("it has no size")?, md5)
            }
            "dir" => EntryKind::Dir,
            "link" => EntryKind::Link(&self.target),
            other => return Err(format!("it is of an unknown type {other:?}")),
        };
        let octal = |text: &String| {
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= MODE_BITS);
            mode.ok_or_else(|| format!("{text:?} isn't a mode"))
        };
        let time = |text: &String| parse_seconds(text).ok_or_else(|| format!("{text:?} isn't a time"));
        let mode = line.mode.as_ref().map(octal).transpose()?;
        Ok(Node { path: &self.path, what, mode, mtime: line.mtime.as_ref().map(time).transpose()? })
    }
}

fn text_or_hex(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(hash::to_hex(bytes))),
    }
}

fn bytes_of(text: &Option<String>, hex: &Option<String>, what: &str) -> Result<Vec<u8>, String> {
    match (text, hex) {
        (Some(text), None) => Ok(text.clone().into_bytes()),
        (None, Some(hex)) => hash::from_hex(hex).ok_or_else(|| format!("{what} {hex:?} isn't hexadecimal")),
        _ => Err(format!("it has no {what}, or two")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of<'a>(path: &'a [u8], what: EntryKind<'a>) -> Node<'a> {
        Node { path, what, mode: Some(0o644), mtime: Some(Mtime(-1)) }
    }

    fn tree(nodes: &[Node]) -> Arc<Tree> {
        let mut gathered = TreeBuilder::default();
        nodes.iter().for_each(|node| gathered.add(*node, None).unwrap());
        Arc::new(gathered.tree().unwrap())
    }

    fn text(list: List) -> Vec<u8> {
        let (size, address, list) = (list.size(), list.address, Arc::new(list));
        let bytes = list.pieces(0..u64::MAX).fold(Vec::new(), |mut all, piece| {
            all.extend_from_slice(&piece);
            all
        });
        assert_eq!((bytes.len() as u64, manifest::md5(&bytes)), (size, address.md5));
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Tree, String> {
        let mut reader = Reader::default();
        reader.take(bytes);
        let (md5, tree) = reader.end();
        assert_eq!(md5, manifest::md5(bytes));
        tree
    }

    #[test]
    fn a_list_reads_back() {
        let file = |path| of(path, EntryKind::File(1, [7; 16]));
        let link = Node { mode: None, ..of(b"l\xff", EntryKind::Link(b"../\xfe")) };
        let bare = Node { mode: None, mtime: None, ..file("d/\u{1}\"\\ü".as_bytes()) };
        let tree = tree(&[file(b"b"), of(b"d", EntryKind::Dir), link, bare]);
        let own = text(List::own(&tree));
        assert_eq!(
            String::from_utf8_lossy(&own),
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
        assert_eq!(parse(&own).unwrap(), *tree);
        // For every way of cutting it into pieces.
        for size in [1, 2, 7, 100] {
            let mut reader = Reader::default();
            own.chunks(size).for_each(|piece| reader.take(piece));
            assert_eq!(reader.end().1.unwrap(), *tree);
        }
    }

    #[test]
    fn any_part_of_a_long_list_is_the_same_as_in_the_whole() {
        let names: Vec<String> = (0..3 * STEP + 17).map(|n| format!("{n:05}")).collect();
        let mut nodes: Vec<Node> = names.iter().map(|n| of(n.as_bytes(), EntryKind::File(1, [7; 16]))).collect();
        // The first and the last aren't DVC's.
        nodes.extend([of(b"\"", EntryKind::Dir), of(b"\xff", EntryKind::File(1, [7; 16]))]);
        let tree = tree(&nodes);
        for list in [List::own, List::dvc] {
            let (whole, list) = (text(list(&tree)), Arc::new(list(&tree)));
            let size = whole.len();
            let cuts = [0, 1, size / 3, size / 2, size / 2 + 1, size - 1, size, size + 9];
            for from in cuts {
                for to in cuts {
                    let part: Vec<u8> = list.clone().pieces(from as u64..to as u64).flatten().collect();
                    let expected = whole.get(from.min(size)..to.min(size)).unwrap_or_default();
                    assert_eq!(part, expected, "{from}..{to} of {size}");
                }
            }
        }
    }

    #[test]
    fn dvcs_list_is_what_dvc_would_write() {
        let content = [("Z", 1), ("a.d/x", 4), ("a", 2), ("a-b", 3), ("ab/x", 5), ("\u{ffee}", 7), ("\u{1f600}", 6)];
        let mut nodes: Vec<Node> =
            content.iter().map(|(path, n)| of(path.as_bytes(), EntryKind::File(1, [*n; 16]))).collect();
        let mut children: Vec<manifest::Child> =
            content.iter().map(|(path, n)| manifest::Child { path: path.to_string(), md5: [*n; 16] }).collect();
        nodes.extend([
            of(b"l", EntryKind::Link(b"x")),
            of(b"not\xfftext", EntryKind::File(1, [8; 16])),
            of(b"A", EntryKind::Dir),
        ]);
        let list = List::dvc(&tree(&nodes));
        assert_eq!(list.address, manifest::address(Layout::V3, &manifest::write(&mut children)));
        assert_eq!(String::from_utf8(text(list)), String::from_utf8(manifest::write(&mut children)));
        assert_eq!(text(List::dvc(&Arc::default())), b"[]");
        assert_eq!(text(List::own(&Arc::default())), HEAD.as_bytes());
    }

    #[test]
    fn a_list_that_was_tampered_with_is_refused() {
        let line = |rest: &str| format!("{HEAD}{{{rest}}}\n");
        let md5 = r#""md5":"07070707070707070707070707070707""#;
        let file = |path: &str| format!(r#"{{"type":"file","path":"{path}","size":1,{md5}}}"#);
        for (text, why) in [
            (line(&format!(r#""type":"file","path":"../x","size":1,{md5}"#)), "leads out of the directory"),
            (line(&format!(r#""type":"file","path_hex":"2e2e2f78","size":1,{md5}"#)), "leads out of the directory"),
            (line(&format!(r#""type":"file","path":"a/b","size":1,{md5}"#)), "its parent isn't a directory"),
            (line(&format!(r#""type":"file","path":"a","path_hex":"61","size":1,{md5}"#)), "no path, or two"),
            (line(&format!(r#""type":"file","path":"a",{md5}"#)), "line 2 of its list: it has no size"),
            (line(&format!(r#""type":"disk","path":"a",{md5}"#)), "unknown type"),
            (line(r#""type":"file","path":"a","size":1,"md5":"x""#), "it has no MD5"),
            (line(r#""type":"dir","path":"a","mode":"100644""#), "isn't a mode"),
            (line(r#""type":"dir","path":"a","mtime":"1""#), "isn't a time"),
            (line(r#""type":"link","path":"a""#), "no target, or two"),
            (format!("{HEAD}{}\n{}\n", file("b"), file("a")), "twice, or out of order"),
            (format!("{HEAD}{}\n{}\n", file("a"), file("a")), "twice, or out of order"),
            (format!("{HEAD}{{\"type\":\"dir\",\"path\":\"a\"}}"), "not a list of a directory"),
            ("{\"haul_tree\":2}\n".into(), "use a newer haul"),
            (String::new(), "not a list of a directory"),
        ] {
            let message = parse(text.as_bytes()).unwrap_err();
            assert!(message.contains(why), "{message} isn't {why}");
        }
    }

    proptest! {
        #[test]
        fn times_read_back(nanos in i64::MIN..i64::MAX) {
            prop_assert_eq!(parse_seconds(&seconds(Mtime(nanos.into()))), Some(Mtime(nanos.into())));
        }

        #[test]
        fn whatever_is_read_stays_inside(bytes in proptest::collection::vec(any::<u8>(), 0..200), path in ".{0,40}") {
            let line = serde_json::json!({"type": "file", "path": path, "size": 1, "md5": "07".repeat(16)});
            for text in [bytes, format!("{HEAD}{line}\n").into_bytes()] {
                for node in parse(&text).unwrap_or_default().nodes() {
                    prop_assert!(manifest::stays_inside(&node.shown()));
                }
            }
        }
    }
}
