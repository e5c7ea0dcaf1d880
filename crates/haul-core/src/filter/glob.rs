//! One pattern of rclone's filter language as a regular expression on a key's bytes, and the directories that it can
//! reach.

use regex::bytes::{Regex, RegexBuilder};
use std::sync::OnceLock;

/// A compiled pattern.
///
/// A name that is UTF-8 is matched by characters (`?` is one character), as rclone does. Any other name is matched by an
/// expression in which a wildcard also takes a byte that belongs to no character.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Regex,
    raw: OnceLock<Option<Regex>>,
    glob: String,
    ignore_case: bool,
}

impl Pattern {
    /// Compiles `glob`. The error gives the problem, without naming the rule.
    pub fn new(glob: &str, ignore_case: bool) -> Result<Pattern, String> {
        let text = compile(glob, ignore_case, Wild::Chars)?;
        Ok(Pattern { text, raw: OnceLock::new(), glob: glob.into(), ignore_case })
    }

    /// Does it match this key (of a directory: with its `/`)?
    pub fn matches(&self, key: &[u8]) -> bool {
        if std::str::from_utf8(key).is_ok() {
            return self.text.is_match(key);
        }
        // It compiled for characters, so it compiles for bytes; if not, matching by characters is the best answer left.
        let raw = self.raw.get_or_init(|| compile(&self.glob, self.ignore_case, Wild::Bytes).ok());
        raw.as_ref().unwrap_or(&self.text).is_match(key)
    }
}

/// Bytes that a wildcard matches.
#[derive(Clone, Copy, PartialEq)]
enum Wild {
    /// A character.
    Chars,
    /// Any byte.
    Bytes,
}

fn compile(glob: &str, ignore_case: bool, wild: Wild) -> Result<Regex, String> {
    let expression = Translator::new(glob, wild).translate()?;
    RegexBuilder::new(&expression)
        .case_insensitive(ignore_case)
        // A name may contain a newline; `**` matches it.
        .dot_matches_new_line(true)
        .build()
        .map_err(|_| "not a valid regular expression".to_string())
}

/// Turns a pattern into an expression, left to right.
struct Translator {
    glob: Vec<char>,
    at: usize,
    out: String,
    depth: usize,
    wild: Wild,
}

impl Translator {
    fn new(glob: &str, wild: Wild) -> Self {
        Translator { glob: glob.chars().collect(), at: 0, out: String::new(), depth: 0, wild }
    }

    fn translate(mut self) -> Result<String, String> {
        let anchored = self.take('/');
        self.out.push_str(if anchored { "^" } else { "(?:^|/)" });
        while let Some(c) = self.next() {
            match c {
                '*' => self.stars()?,
                '?' => self.out.push_str(self.one()),
                '[' => self.class()?,
                ']' => return Err("']' without '['".into()),
                '{' if self.take('{') => self.expression()?,
                '{' => {
                    self.depth += 1;
                    self.out.push_str("(?:");
                }
                '}' if self.depth == 0 => return Err("'}' without '{'".into()),
                '}' => {
                    self.depth -= 1;
                    self.out.push(')');
                }
                ',' if self.depth > 0 => self.out.push('|'),
                '\\' => self.escape()?,
                c => self.literal(c),
            }
        }
        if self.depth > 0 {
            return Err("'{' without '}'".into());
        }
        self.out.push('$');
        Ok(self.out)
    }

    fn next(&mut self) -> Option<char> {
        let c = self.glob.get(self.at).copied();
        self.at += 1;
        c
    }

    fn take(&mut self, wanted: char) -> bool {
        let there = self.glob.get(self.at) == Some(&wanted);
        self.at += usize::from(there);
        there
    }

    fn literal(&mut self, c: char) {
        self.out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }

    /// One character or byte that isn't `/`.
    fn one(&self) -> &'static str {
        if self.wild == Wild::Chars { "[^/]" } else { "(?-u:[^/])" }
    }

    fn stars(&mut self) -> Result<(), String> {
        if !self.take('*') {
            self.out.push_str(self.one());
            self.out.push('*');
            return Ok(());
        }
        if self.take('*') {
            return Err("too many '*' in a row".into());
        }
        self.out.push_str(if self.wild == Wild::Chars { ".*" } else { "(?s-u:.)*" });
        Ok(())
    }

    /// `\` takes the next character as it is, but `\d \s \w` and their opposites are classes, as in rclone.
    fn escape(&mut self) -> Result<(), String> {
        let c = self.next().ok_or("nothing after the last '\\'")?;
        match ascii_class(c) {
            Some(class) => {
                self.out.push('[');
                self.out.push_str(class);
                self.out.push(']');
            }
            None if c.is_ascii_alphanumeric() => {
                self.out.push('\\');
                self.out.push(c);
            }
            None => self.literal(c),
        }
        Ok(())
    }

    /// `{{regexp}}`: the longest run of `}` ends it.
    fn expression(&mut self) -> Result<(), String> {
        let rest = &self.glob[self.at..];
        let mut end = rest.windows(2).position(|w| w == ['}', '}']).ok_or("'{{' without '}}'")?;
        while rest.get(end + 2) == Some(&'}') {
            end += 1;
        }
        self.out.push_str("(?:");
        self.out.extend(&rest[..end]);
        self.out.push(')');
        self.at += end + 2;
        Ok(())
    }

    /// `[…]`: a character class of a regular expression, rewritten so that no character in it means more than it does
    /// in rclone.
    fn class(&mut self) -> Result<(), String> {
        let negated = self.take('^');
        let mut class = String::from(if negated { "[^" } else { "[" });
        let first = self.at;
        loop {
            match self.next().ok_or("'[' without ']'")? {
                ']' if self.at - 1 == first => return Err("nothing between '[' and ']'".into()),
                ']' => break,
                '[' => class.push_str(&self.named_class()?),
                c => self.range(c, &mut class)?,
            }
        }
        class.push(']');
        match (negated, self.wild) {
            (true, Wild::Bytes) => {
                self.out.push_str("(?:");
                self.out.push_str(&class);
                self.out.push_str(r"|(?-u:[\x80-\xFF]))");
            }
            _ => self.out.push_str(&class),
        }
        Ok(())
    }

    /// `[:alpha:]` after its `[`.
    fn named_class(&mut self) -> Result<String, String> {
        let rest = &self.glob[self.at..];
        let end = rest.windows(2).position(|w| w == [':', ']']).filter(|_| rest.first() == Some(&':'));
        let end = end.ok_or("'[' within '[…]': write it as \\[")?;
        let name: String = rest[..end].iter().collect();
        self.at += end + 2;
        Ok(format!("[{name}:]"))
    }

    /// One character of a class, or a range that starts with it.
    fn range(&mut self, c: char, class: &mut String) -> Result<(), String> {
        let from = match c {
            '\\' => {
                let c = self.next().ok_or("'[' without ']'")?;
                if let Some(all) = ascii_class(c) {
                    class.push_str(all);
                    return Ok(());
                }
                c
            }
            c => c,
        };
        push_in_class(from, class);
        let to = self.glob.get(self.at + 1).copied().filter(|to| !"]\\[".contains(*to));
        if let (Some('-'), Some(to)) = (self.glob.get(self.at), to) {
            class.push('-');
            push_in_class(to, class);
            self.at += 2;
        }
        Ok(())
    }
}

fn push_in_class(c: char, class: &mut String) {
    if c.is_ascii_punctuation() {
        class.push('\\');
    }
    class.push(c);
}

/// Meaning of `\d` and its like, ASCII only.
fn ascii_class(letter: char) -> Option<&'static str> {
    Some(match letter {
        'd' => "0-9",
        'D' => "[:^digit:]",
        's' => r"\t\n\x0C\r ",
        'S' => r"[^\t\n\x0C\r ]",
        'w' => "0-9A-Za-z_",
        'W' => "[:^word:]",
        _ => return None,
    })
}

/// The patterns of all directories that can hold what `glob` matches: a directory that matches none of them holds nothing
/// of it. They follow rclone's derivation, since it decides what a rule means below directories.
pub(super) fn dir_globs(glob: &str) -> Vec<String> {
    if too_hard(glob) {
        return vec!["/**".into()];
    }
    let mut rest = squash_slashes(glob);
    let mut globs: Vec<String> = Vec::new();
    loop {
        let slash = rest.rfind('/');
        let stars = rest.rfind("**");
        let Some(at) = slash.max(stars) else { break };
        let kept = if stars > slash { "**/" } else { "/" };
        rest.truncate(at);
        let found = format!("{rest}{kept}");
        if globs.last() != Some(&found) {
            globs.push(found);
        }
    }
    if globs.is_empty() {
        globs.push("/**".into());
    }
    // The root is always opened.
    globs.retain(|g| g != "/");
    globs
}

/// Braces that hold `/`, `**` or more braces can't be split into directories.
fn too_hard(glob: &str) -> bool {
    let mut group: Option<usize> = None;
    for (at, c) in glob.char_indices() {
        match (c, group) {
            ('{', Some(_)) => return true,
            ('{', None) => group = Some(at),
            ('}', Some(from)) => {
                if glob[from..at].contains('/') || glob[from..at].contains("**") {
                    return true;
                }
                group = None;
            }
            _ => {}
        }
    }
    glob.contains("}}")
}

fn squash_slashes(glob: &str) -> String {
    let mut out = String::with_capacity(glob.len());
    for c in glob.chars() {
        if c != '/' || !out.ends_with('/') {
            out.push(c);
        }
    }
    out
}

/// The bytes with which everything starts that an anchored `glob` matches; empty when it isn't anchored.
pub(super) fn literal_prefix(glob: &str) -> &str {
    let Some(rest) = glob.strip_prefix('/') else { return "" };
    let end = rest.find(['*', '?', '[', ']', '{', '}', '\\']).unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_a_pattern() {
        for (glob, dirs) in [
            ("*", &["/**"][..]),
            ("*.jpg", &["/**"]),
            ("/a/b.txt", &["/a/"]),
            ("/a", &[]),
            ("a/b/c", &["a/b/", "a/"]),
            ("a/**", &["a/**/", "a/"]),
            ("/a//b/*", &["/a/b/", "/a/"]),
            ("**", &["**/"]),
            ("{a,b}/c", &["{a,b}/"]),
            ("{a/b,c}", &["/**"]),
            ("{a,{b,c}}/d", &["/**"]),
            ("{{x.*}}/d", &["/**"]),
            ("a**b/c", &["a**b/", "a**/"]),
        ] {
            assert_eq!(dir_globs(glob), dirs, "{glob}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_match_by_bytes() {
        let matches = |glob, key: &[u8]| Pattern::new(glob, false).unwrap().matches(key);
        assert!(matches("a?b", b"a\xffb"));
        assert!(!matches("a?b", b"a\xff\xfeb"));
        assert!(matches("a*", b"a\xff\xfe"));
        assert!(matches("d/**", b"d/\xff/\n/x"));
        assert!(matches("[^x]", b"\xff"));
        assert!(matches("*é", "\u{fffd}é".as_bytes()));
        assert!(matches("*é", b"\xff\xc3\xa9"));
        assert!(matches("?", "é".as_bytes()));
        assert!(!matches("??", "é".as_bytes()));
        assert!(matches("[é]", "é".as_bytes()));
    }

    #[test]
    fn a_bad_pattern_says_why() {
        for (glob, why) in [
            ("a***", "too many '*' in a row"),
            ("[a", "'[' without ']'"),
            ("a]", "']' without '['"),
            ("[]", "nothing between '[' and ']'"),
            ("[a[b]", "'[' within '[…]': write it as \\["),
            ("{a", "'{' without '}'"),
            ("a}", "'}' without '{'"),
            ("{{a", "'{{' without '}}'"),
            ("{{(}}", "not a valid regular expression"),
            ("a\\", "nothing after the last '\\'"),
            ("[z-a]", "not a valid regular expression"),
        ] {
            assert_eq!(Pattern::new(glob, false).unwrap_err(), why, "{glob}");
        }
    }

    #[test]
    fn literal_prefixes() {
        for (glob, prefix) in [("/a/b*", "a/b"), ("a/b", ""), ("/a/{b,c}", "a/"), ("/a\\*", "a"), ("/x/y", "x/y")] {
            assert_eq!(literal_prefix(glob), prefix, "{glob}");
        }
    }
}
