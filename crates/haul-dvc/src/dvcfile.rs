//! `.dvc` files and `dvc.lock`: what they say is tracked, and how a `.dvc` file is written and brought up to date without
//! touching what haul doesn't know. Pure.

use haul_cas::address::{Address, Layout};
use saphyr::{MarkedYaml, ScalarStyle, YamlData, YamlLoader};
use saphyr_parser::Parser;

/// Contents of one DVC file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DvcFile {
    /// Files and directories that belong to the file.
    pub outs: Vec<Out>,
    /// Their dependencies.
    pub deps: Vec<Out>,
    /// The folder that paths are relative to, itself relative to the file's.
    pub wdir: Option<String>,
    /// It tracks paths of another repository (`dvc import`).
    pub imported: bool,
    /// Its dependencies are not looked at.
    pub frozen: bool,
}

/// One tracked file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Out {
    /// As written.
    pub path: String,
    /// Where its content is; `None` when it isn't known yet.
    pub address: Option<Address>,
    /// Bytes, of all files of a directory.
    pub size: Option<u64>,
    /// Files of a directory.
    pub nfiles: Option<u64>,
    /// The file may be executed.
    pub isexec: bool,
    /// It is kept in the cache.
    pub cache: bool,
    /// It is pushed.
    pub push: bool,
    /// It has a remote of its own.
    pub remote: Option<String>,
    /// Its files are listed in the `.dvc` file itself, with their versions in the cloud.
    pub versioned: bool,
}

/// A stage of a pipeline, as `dvc.lock` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Its outputs and dependencies.
    pub file: DvcFile,
}

pub(crate) type Node<'a> = MarkedYaml<'a>;

pub(crate) fn load(text: &str) -> Result<Option<Node<'_>>, String> {
    let mut loader = YamlLoader::<Node<'_>>::default();
    // Scalars stay as they are written: an MD5 of digits alone is no number.
    loader.early_parse(false);
    let mut parser = Parser::new_from_str(text);
    let wrong = |e: &dyn std::fmt::Display| format!("not valid YAML: {e}");
    parser.load(&mut loader, false).map_err(|e| wrong(&e))?;
    if let Some(e) = loader.error() {
        return Err(wrong(e));
    }
    Ok(loader.into_documents().into_iter().next())
}

pub(crate) fn scalar<'a>(node: &'a Node<'_>) -> Option<&'a str> {
    match &node.data {
        YamlData::Representation(text, style, _) => {
            let null = *style == ScalarStyle::Plain && matches!(text.as_ref(), "" | "~" | "null");
            (!null).then_some(text.as_ref())
        }
        _ => None,
    }
}

/// The key under which a mapping names others whose pairs it takes over (a type of YAML 1.1, which DVC's reader keeps to).
const MERGED: &str = "<<";

/// The pairs of a mapping, those that it takes over from others last. Its own go before those, and so do an earlier one's.
pub(crate) fn map<'a, 'b>(node: &'a Node<'b>) -> impl Iterator<Item = (&'a str, &'a Node<'b>)> {
    let mut all: Vec<_> = own(node).filter(|(key, _)| *key != MERGED).collect();
    for other in merged(node) {
        let more: Vec<_> = map(other).filter(|(key, _)| all.iter().all(|(known, _)| known != key)).collect();
        all.extend(more);
    }
    all.into_iter()
}

fn own<'a, 'b>(node: &'a Node<'b>) -> impl Iterator<Item = (&'a str, &'a Node<'b>)> {
    let pairs = match &node.data {
        YamlData::Mapping(map) => Some(map.iter()),
        _ => None,
    };
    pairs.into_iter().flatten().filter_map(|(k, v)| Some((scalar(k)?, v)))
}

/// The mappings whose pairs this one takes over.
fn merged<'a, 'b>(node: &'a Node<'b>) -> impl Iterator<Item = &'a Node<'b>> {
    let named = own(node).filter(|(key, _)| *key == MERGED);
    named
        .flat_map(|(_, one)| if let YamlData::Sequence(all) = &one.data { &all[..] } else { std::slice::from_ref(one) })
}

pub(crate) fn get<'a, 'b>(node: &'a Node<'b>, key: &str) -> Option<&'a Node<'b>> {
    let own = own(node).find(|(known, _)| *known == key).map(|(_, value)| value);
    own.or_else(|| merged(node).find_map(|other| get(other, key)))
}

pub(crate) fn list<'a, 'b>(node: Option<&'a Node<'b>>) -> &'a [Node<'b>] {
    match node.map(|n| &n.data) {
        Some(YamlData::Sequence(all)) => all,
        _ => &[],
    }
}

pub(crate) fn flag(node: &Node<'_>, key: &str, default: bool) -> bool {
    get(node, key).and_then(scalar).map_or(default, |v| v.eq_ignore_ascii_case("true"))
}

fn out(node: &Node<'_>) -> Result<Out, String> {
    let text = |key: &str| get(node, key).and_then(scalar);
    let path = text("path").ok_or("an entry has no path")?.to_string();
    let layout = match text("hash") {
        Some("md5") => Layout::V3,
        _ => Layout::V2,
    };
    let address = match text("md5") {
        Some(md5) => Some(Address::parse(layout, md5).ok_or_else(|| format!("{path}: {md5:?} isn't an MD5"))?),
        None => None,
    };
    Ok(Out {
        address,
        size: text("size").and_then(|n| n.parse().ok()),
        nfiles: text("nfiles").and_then(|n| n.parse().ok()),
        isexec: flag(node, "isexec", false),
        cache: flag(node, "cache", true),
        push: flag(node, "push", true),
        remote: text("remote").map(str::to_string),
        versioned: get(node, "files").is_some() || get(node, "cloud").is_some(),
        path,
    })
}

fn both(node: &Node<'_>) -> Result<DvcFile, String> {
    let all = |key: &str| list(get(node, key)).iter().map(out).collect::<Result<Vec<_>, _>>();
    let imported = list(get(node, "deps")).iter().any(|dep| get(dep, "repo").is_some() || get(dep, "db").is_some());
    Ok(DvcFile {
        outs: all("outs")?,
        // A dependency may be a URL, a parameter or a query, without a hash that haul could compare.
        deps: list(get(node, "deps")).iter().filter_map(|dep| out(dep).ok()).collect(),
        wdir: get(node, "wdir").and_then(scalar).map(str::to_string),
        imported,
        frozen: flag(node, "frozen", false),
    })
}

/// Reads a `.dvc` file.
///
/// Errors: no YAML, or an entry without a path or with something else for its MD5.
pub fn parse(text: &str) -> Result<DvcFile, String> {
    load(text)?.map_or_else(|| Ok(DvcFile::default()), |node| both(&node))
}

/// Reads a `dvc.lock`.
///
/// Errors: as for [`parse`].
pub fn parse_lock(text: &str) -> Result<Vec<Stage>, String> {
    let Some(node) = load(text)? else { return Ok(Vec::new()) };
    // The first version of the format had no `stages`.
    let stages = match get(&node, "schema") {
        Some(_) => get(&node, "stages"),
        None => Some(&node),
    };
    let stage = |(name, node): (&str, &Node<'_>)| Ok(Stage { name: name.into(), file: both(node)? });
    stages.into_iter().flat_map(map).map(stage).collect()
}

/// New facts of an out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutFacts {
    /// Its address, in the layout of DVC 3.
    pub address: Address,
    /// Bytes.
    pub size: u64,
    /// Files of a directory.
    pub nfiles: Option<u64>,
    /// A file that may be executed.
    pub isexec: bool,
}

impl OutFacts {
    /// The keys and values that describe it, in DVC's order.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("md5", quoted(&self.address.text())), ("size", self.size.to_string())];
        lines.extend(self.nfiles.map(|n| ("nfiles", n.to_string())));
        lines.extend(self.isexec.then(|| ("isexec", "true".to_string())));
        lines.push(("hash", "md5".into()));
        lines
    }
}

/// A `.dvc` file that tracks one thing beside it.
pub fn write(fresh: &OutFacts, path: &str) -> String {
    let mut text = String::from("outs:\n");
    let path = ("path", quoted(path));
    for (n, (key, value)) in fresh.lines().into_iter().chain([path]).enumerate() {
        let bullet = if n == 0 { "- " } else { "  " };
        text.push_str(&format!("{bullet}{key}: {value}\n"));
    }
    text
}

/// The `.dvc` file with its `index`th out brought up to date; comments, other keys and their order stay.
///
/// Errors: the file is written in a way that can't be changed line by line (`{…}` on one line, say).
pub fn update(text: &str, index: usize, fresh: &OutFacts) -> Result<String, String> {
    let unusual =
        || "it isn't written as DVC writes it: change it by hand, or remove it and add the path again".to_string();
    let node = load(text)?.ok_or_else(unusual)?;
    let entry = list(get(&node, "outs")).get(index).ok_or_else(unusual)?;
    let YamlData::Mapping(pairs) = &entry.data else { return Err(unusual()) };
    let mut lines: Vec<Option<String>> = text.lines().map(|l| Some(l.to_string())).collect();
    let wanted = fresh.lines();
    let (mut seen, mut last, mut column) = (Vec::new(), 0, 0);
    for (key, value) in pairs {
        let name = scalar(key).ok_or_else(unusual)?;
        // Lines count from 1, columns from 0.
        let (line, at) = (key.span.start.line() - 1, key.span.start.col());
        column = at;
        last = last.max(line).max(end_line(value).saturating_sub(1));
        let old = lines.get(line).cloned().flatten().ok_or_else(unusual)?;
        if let Some((known, new)) = wanted.iter().find(|(known, _)| *known == name) {
            seen.push(*known);
            let start = value.span.start.col();
            if value.span.start.line() != line + 1 || scalar(value).is_none() {
                return Err(unusual());
            }
            lines[line] = Some(replaced(&old, start, new).ok_or_else(unusual)?);
        } else if matches!(name, "nfiles" | "isexec" | "files" | "cloud" | "etag" | "version_id") {
            let first_of_entry = old.chars().take(at).any(|c| c == '-');
            if first_of_entry {
                return Err(unusual());
            }
            for gone in &mut lines[line..=end_line(value).saturating_sub(1).max(line)] {
                *gone = None;
            }
        }
    }
    let missing = wanted.iter().filter(|(key, _)| !seen.contains(key));
    let added: Vec<String> = missing.map(|(key, value)| format!("{}{key}: {value}", " ".repeat(column))).collect();
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        for line in line.iter().chain(added.iter().filter(|_| n == last)) {
            out.push_str(line);
            out.push('\n');
        }
    }
    let (was, now) = (parse(text)?, parse(&out).map_err(|_| unusual())?);
    let same_others = was.outs.len() == now.outs.len()
        && was
            .outs
            .iter()
            .zip(&now.outs)
            .enumerate()
            .all(|(n, (a, b))| if n == index { a.path == b.path } else { a == b });
    let recorded = now.outs.get(index).is_some_and(|out| {
        out.address == Some(fresh.address)
            && out.size == Some(fresh.size)
            && out.nfiles == fresh.nfiles
            && out.isexec == fresh.isexec
    });
    if same_others && recorded { Ok(out) } else { Err(unusual()) }
}

/// The last line, counted from 1, that a value takes.
fn end_line(value: &Node<'_>) -> usize {
    match &value.data {
        YamlData::Sequence(all) => all.last().map_or(value.span.start.line(), end_line),
        YamlData::Mapping(all) => all.back().map_or(value.span.start.line(), |(_, v)| end_line(v)),
        YamlData::Representation(text, _, _) => {
            value.span.start.line() + text.trim_end_matches('\n').matches('\n').count()
        }
        _ => value.span.start.line(),
    }
}

/// A line with the scalar that begins in this column replaced; a comment after it stays.
fn replaced(line: &str, column: usize, value: &str) -> Option<String> {
    let at = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
    let rest = &line[at..];
    let end = match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => rest[1..].find(quote)? + 2,
        _ => rest.find(" #").unwrap_or(rest.len()),
    };
    Some(format!("{}{value}{}", &line[..at], &rest[end..]))
}

/// A text as a YAML scalar, in quotes where it could be read as something else.
fn quoted(text: &str) -> String {
    let plain_char = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+' | ' ' | '@' | '=' | ',');
    let first = text.chars().next();
    let plain = first.is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '/' | '0'..='9'))
        && text.chars().all(plain_char)
        && !text.ends_with(' ')
        && !looks_like_something_else(text);
    if plain {
        return text.into();
    }
    // Line ends and marks of byte order, which a reader may take for none of the text.
    let odd = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    if !text.chars().any(odd) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let escape = |c: char| match c {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        c if odd(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// Numbers, dates, truth values: what a YAML reader of any age might not take for text.
fn looks_like_something_else(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let word = matches!(lower.as_str(), "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n");
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '_' | '.' | 'e' | '+' | '-' | ':');
    let number =
        lower.starts_with(|c: char| c.is_ascii_digit()) && lower.chars().all(digits) && lower.matches('e').count() < 2;
    let radix = lower.starts_with("0x") || lower.starts_with("0o") || lower.starts_with("0b");
    word || number || radix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_taken_over_from_other_mappings() {
        let text = "base: &b {a: 1, c: 2}\nx:\n  a: 3\n  <<: *b\ny: {<<: [{a: 5, d: 6}, *b]}\n";
        let node = load(text).unwrap().unwrap();
        for (name, pairs) in [("x", vec![("a", "3"), ("c", "2")]), ("y", vec![("a", "5"), ("d", "6"), ("c", "2")])] {
            let one = get(&node, name).unwrap();
            assert_eq!(map(one).map(|(key, value)| (key, scalar(value).unwrap())).collect::<Vec<_>>(), pairs);
            pairs
                .iter()
                .for_each(|(key, value)| assert_eq!(get(one, key).and_then(scalar), Some(*value), "{name} {key}"));
        }
        assert_eq!(quoted("a\u{2028}b"), "\"a\\u2028b\"");
    }

    fn fresh(md5: &str, size: u64, nfiles: Option<u64>) -> OutFacts {
        OutFacts { address: Address::parse(Layout::V3, md5).unwrap(), size, nfiles, isexec: false }
    }

    const DATA: &str =
        "outs:\n- md5: 1e22361e83161aaf6ea7cfed91cb7df2.dir\n  size: 34\n  nfiles: 7\n  hash: md5\n  path: data\n";

    #[test]
    fn written_as_dvc_writes_it_and_read_back() {
        let text = write(&fresh("1e22361e83161aaf6ea7cfed91cb7df2.dir", 34, Some(7)), "data");
        assert_eq!(text, DATA);
        let file = parse(&text).unwrap();
        let address = Address::parse(Layout::V3, "1e22361e83161aaf6ea7cfed91cb7df2.dir");
        assert_eq!((file.outs[0].address, file.outs[0].size, file.outs[0].nfiles), (address, Some(34), Some(7)));
        let exec = OutFacts { isexec: true, ..fresh("764efa883dda1e11db47671c4a3bbd9e", 3, None) };
        assert_eq!(
            write(&exec, "x.sh"),
            "outs:\n- md5: 764efa883dda1e11db47671c4a3bbd9e\n  size: 3\n  isexec: true\n  hash: md5\n  path: x.sh\n"
        );
    }

    #[test]
    fn without_hash_it_is_the_old_layout() {
        let file = parse("outs:\n- md5: f002d69cdbd0d536fcd0a4eea1cb2091.dir\n  size: 34\n  path: data\n").unwrap();
        assert_eq!(file.outs[0].address.unwrap().layout, Layout::V2);
        assert!(file.outs[0].cache && file.outs[0].push);
    }

    #[test]
    fn an_md5_of_digits_is_text() {
        let digits = "12345678901234567890123456789012";
        let text = write(&fresh(digits, 1, None), "a: b's");
        assert!(text.contains(&format!("md5: '{digits}'")) && text.contains("path: 'a: b''s'"), "{text}");
        for text in [text, format!("outs:\n- md5: {digits}\n  path: \"a: b's\"\n")] {
            let out = &parse(&text).unwrap().outs[0];
            assert_eq!((out.address.unwrap().text().as_str(), out.path.as_str()), (digits, "a: b's"));
        }
    }

    #[test]
    fn an_update_leaves_the_rest_alone() {
        let old = "# ours\nmeta:\n  who: me\nouts:\n- md5: f002d69cdbd0d536fcd0a4eea1cb2091.dir # c\n  size: 34\n  nfiles: 7\n  \
                   path: data\n  desc: |\n    two\n    lines\n# end\n";
        let file = update(old, 0, &fresh("b1946ac92492d2347c6235b4d2611184", 6, None)).unwrap();
        assert_eq!(
            file,
            "# ours\nmeta:\n  who: me\nouts:\n- md5: b1946ac92492d2347c6235b4d2611184 # c\n  size: 6\n  path: data\n  \
             desc: |\n    two\n    lines\n  hash: md5\n# end\n"
        );
        let again = update(DATA, 0, &fresh("d751713988987e9331980363e24189ce.dir", 0, Some(0))).unwrap();
        assert_eq!(
            again,
            DATA.replace("1e22361e83161aaf6ea7cfed91cb7df2", "d751713988987e9331980363e24189ce")
                .replace("34", "0")
                .replace("nfiles: 7", "nfiles: 0")
        );
    }

    #[test]
    fn versions_in_the_cloud_go_when_the_content_changes() {
        let old = "outs:\n- hash: md5\n  path: data\n  files:\n  - relpath: a.txt\n    md5: b1946ac92492d2347c6235b4d2611184\n    \
                   size: 6\n";
        let new = update(old, 0, &fresh("d751713988987e9331980363e24189ce.dir", 0, Some(0))).unwrap();
        assert_eq!(
            new,
            "outs:\n- hash: md5\n  path: data\n  md5: d751713988987e9331980363e24189ce.dir\n  size: 0\n  nfiles: 0\n"
        );
    }

    #[test]
    fn what_cannot_be_changed_by_lines_is_left() {
        let flow = "outs: [{md5: b1946ac92492d2347c6235b4d2611184, path: a}]\n";
        assert!(
            update(flow, 0, &fresh("d41d8cd98f00b204e9800998ecf8427e", 0, None)).unwrap_err().starts_with("it isn't")
        );
    }

    #[test]
    fn a_lock_file() {
        let lock = "schema: '2.0'\nstages:\n  train:\n    cmd: x\n    deps:\n    - path: data\n      hash: md5\n      md5: \
                    1e22361e83161aaf6ea7cfed91cb7df2.dir\n      size: 34\n    params:\n      p.yaml:\n        a: 1\n    outs:\n    \
                    - path: out\n      hash: md5\n      md5: 212e33b7a67e62269b5c6c4f1c820164.dir\n      size: 6\n      nfiles: 1\n";
        let stages = parse_lock(lock).unwrap();
        assert_eq!((stages.len(), stages[0].name.as_str()), (1, "train"));
        assert_eq!(stages[0].file.outs[0].address.unwrap().text(), "212e33b7a67e62269b5c6c4f1c820164.dir");
        assert_eq!(stages[0].file.deps[0].path, "data");
        let old = "train:\n  cmd: x\n  outs:\n  - path: out\n    md5: 212e33b7a67e62269b5c6c4f1c820164\n";
        assert_eq!(parse_lock(old).unwrap()[0].file.outs[0].address.unwrap().layout, Layout::V2);
    }

    #[test]
    fn what_is_wrong_is_told() {
        assert_eq!(parse("outs:\n- md5: x\n  path: a\n").unwrap_err(), "a: \"x\" isn't an MD5");
        assert_eq!(parse("outs:\n- md5: x\n").unwrap_err(), "an entry has no path");
        assert!(parse("a: [").unwrap_err().starts_with("not valid YAML: "));
        assert_eq!(parse("").unwrap(), DvcFile::default());
    }
}
