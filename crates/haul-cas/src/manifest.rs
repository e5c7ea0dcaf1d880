//! A directory's manifest (`.dir`): the JSON that Python's `json.dumps` would write, byte for byte, since its MD5 names
//! the directory. Pure.

use crate::address::{Address, Layout, Md5, parse_md5};
use haul_core::{Algo, hash};
use serde::Deserialize;
use std::fmt::Write as _;

/// A file of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its path below the directory, `/` between parts.
    pub path: String,
    /// Its content.
    pub md5: Md5,
}

/// The manifest of these files, which are put in order: by the bytes of the whole path, which is the order of code points
/// that DVC sorts by.
pub fn write(children: &mut [Child]) -> Vec<u8> {
    children.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut text = String::with_capacity(2 + children.iter().map(|c| c.path.len() + 66).sum::<usize>());
    text.push('[');
    for (n, child) in children.iter().enumerate() {
        let comma = if n == 0 { "" } else { ", " };
        text.push_str(comma);
        add(&mut text, &child.path, &child.md5);
    }
    text.push(']');
    text.into_bytes()
}

/// Adds what a manifest says of one file. A manifest is these in order of paths, with `, ` between them, in brackets.
pub fn add(text: &mut String, path: &str, md5: &Md5) {
    text.push_str("{\"md5\": \"");
    text.push_str(&hash::to_hex(md5));
    text.push_str("\", \"relpath\": ");
    string(text, path);
    text.push('}');
}

/// The address of a manifest.
pub fn address(layout: Layout, manifest: &[u8]) -> Address {
    Address { layout, md5: md5(manifest), dir: true }
}

/// The MD5 of bytes.
pub fn md5(bytes: &[u8]) -> Md5 {
    let hashes = hash::hash_bytes(&[Algo::Md5], bytes);
    let mut md5 = Md5::default();
    md5.copy_from_slice(hashes.get(Algo::Md5).unwrap_or(&[0; 16]));
    md5
}

/// Python's string with `ensure_ascii`: everything outside of 0x20..0x7e as `\uXXXX`, in UTF-16.
fn string(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{c}' => text.push_str("\\f"),
            '\u{8}' => text.push_str("\\b"),
            ' '..='~' => text.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String can't fail.
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text.push('"');
}

#[derive(Deserialize)]
struct Line {
    md5: String,
    relpath: String,
}

/// Reads a manifest.
///
/// Errors: the problem with it: no JSON, no MD5, a path that leads out of the directory.
pub fn parse(bytes: &[u8]) -> Result<Vec<Child>, String> {
    let lines: Vec<Line> = serde_json::from_slice(bytes).map_err(|e| format!("not a list of files: {e}"))?;
    let child = |line: Line| {
        let md5 = parse_md5(&line.md5).ok_or_else(|| format!("{:?} isn't an MD5", line.md5))?;
        if !stays_inside(&line.relpath) {
            return Err(format!("the path {:?} leads out of the directory", line.relpath));
        }
        Ok(Child { path: line.relpath, md5 })
    };
    lines.into_iter().map(child).collect()
}

/// True for a relative path without empty parts, `.` and `..`.
pub fn stays_inside(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> (String, String) {
        let child = |(path, content): &(&str, &str)| Child { path: path.to_string(), md5: md5(content.as_bytes()) };
        let mut children: Vec<Child> = files.iter().map(child).collect();
        let bytes = write(&mut children);
        assert_eq!(parse(&bytes).unwrap(), children);
        (address(Layout::V3, &bytes).text(), String::from_utf8(bytes).unwrap())
    }

    // All hashes and texts here were written by DVC 3.67.1.
    #[test]
    fn bytes_as_dvc_writes_them() {
        let (name, text) = of(&[
            ("tab\tnl\n\u{1}\u{7f}", "9"),
            ("\u{ffee}", "7"),
            ("\u{1f600}", "6"),
            ("Z", "1"),
            ("a.d/x", "4"),
            ("a", "2"),
            ("a-b", "3"),
            ("ab/x", "5"),
            ("ln", "ext"),
        ]);
        assert_eq!(
            text,
            concat!(
                r#"[{"md5": "c4ca4238a0b923820dcc509a6f75849b", "relpath": "Z"}, "#,
                r#"{"md5": "c81e728d9d4c2f636f067f89cc14862c", "relpath": "a"}, "#,
                r#"{"md5": "eccbc87e4b5ce2fe28308fd9f2a7baf3", "relpath": "a-b"}, "#,
                r#"{"md5": "a87ff679a2f3e71d9181a67b7542122c", "relpath": "a.d/x"}, "#,
                r#"{"md5": "e4da3b7fbbce2345d7772b0674a318d5", "relpath": "ab/x"}, "#,
                r#"{"md5": "abf77184f55403d75b9d51d79162a7ca", "relpath": "ln"}, "#,
                r#"{"md5": "45c48cce2e2d7fbdea1afc51c7c6ad26", "relpath": "tab\tnl\n\u0001\u007f"}, "#,
                r#"{"md5": "8f14e45fceea167a5a36dedd4bea2543", "relpath": "\uffee"}, "#,
                r#"{"md5": "1679091c5a880faf6fb5e6087eb1b2dc", "relpath": "\ud83d\ude00"}]"#
            )
        );
        assert_eq!(name, "b1355a3eede363fce55ed8f3302e50c1.dir");
    }

    #[test]
    fn names_as_dvc_gives_them() {
        assert_eq!(of(&[]).0, "d751713988987e9331980363e24189ce.dir");
        assert_eq!(of(&[("a.txt", "hello\n")]).0, "b47e3488a546e2214c42aa9bec8396e2.dir");
        assert_eq!(of(&[("a", "hello\n"), ("s/b", "world\n")]).0, "217787b8d85f21cb1f5a3078574aabb6.dir");
        let tree = [
            ("a.txt", "hello\n"),
            ("crlf.txt", "hello\r\nworld\r\n"),
            ("empty", ""),
            ("sub/bin", "x\0y"),
            ("sub/dup.txt", "hello\n"),
            ("sub/run.sh", "exec"),
            ("ünï/日本 \"q\"\\ file.txt", "u"),
        ];
        assert_eq!(of(&tree).0, "1e22361e83161aaf6ea7cfed91cb7df2.dir");
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        for path in ["../x", "/etc/x", "a/../../x", "", "a//b", "./a", "a/.", "a\\u0000b"] {
            let text = format!(r#"[{{"md5": "c4ca4238a0b923820dcc509a6f75849b", "relpath": "{path}"}}]"#);
            assert!(parse(text.as_bytes()).unwrap_err().contains("leads out of the directory"), "{path}");
        }
        assert!(parse(b"{}").is_err());
        let message = parse(br#"[{"md5": "C4", "relpath": "a"}]"#).unwrap_err();
        assert_eq!(message, "\"C4\" isn't an MD5");
    }
}
