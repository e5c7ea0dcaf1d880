//! One pattern of rsync's filter rules as an expression on the bytes of a name. Follows rsync(1), "PATTERN MATCHING
//! RULES"; what the page leaves open (an unanchored pattern with a slash matches whole trailing parts) was found out by
//! trying rsync 3.5.

use regex::bytes::Regex;
use serde::{Deserialize, Serialize};

/// A compiled pattern.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Pattern {
    /// As it was given.
    source: Vec<u8>,
    expression: Regex,
    /// Ends in `/`: matches directories only.
    dirs_only: bool,
    /// Holds no slash and no `**`: looks at the last part of a name only.
    leaf: bool,
    /// Begins with `**`: a slash is put before the name, so that `**/x` matches `x` at the top.
    double_first: bool,
    /// Ends in `***`: a slash is put after a directory's name, so that `dir/***` matches the directory too.
    triple_last: bool,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// Errors: an empty one, and a class that never ends.
    pub fn new(text: &[u8]) -> Result<Pattern, String> {
        let source = text.to_vec();
        let (text, dirs_only) = match text {
            [head @ .., b'/'] if !head.is_empty() => (head, true),
            whole => (whole, false),
        };
        if text.is_empty() {
            return Err("the pattern is empty".into());
        }
        let wild = text.iter().any(|b| b"*?[".contains(b));
        let double = find(text, b"**").filter(|_| wild);
        let anchored = text[0] == b'/';
        let body = if anchored { &text[1..] } else { text };
        let double_first = double == Some(0);
        // A leading `**` crosses slashes already.
        let whole = anchored || double_first;
        // A backslash is a plain character where nothing is wild.
        let expression = if wild { translate(body)? } else { body.iter().map(|b| byte(*b)).collect() };
        let begin = if whole { "^" } else { "(?:^|/)" };
        let expression =
            Regex::new(&format!("(?s-u){begin}(?:{expression})$")).map_err(|_| "it is too long".to_string())?;
        Ok(Pattern {
            source,
            expression,
            dirs_only,
            leaf: !text.contains(&b'/') && double.is_none(),
            double_first,
            triple_last: double.is_some() && text.ends_with(b"***"),
        })
    }

    /// Does it match this name (without a slash at its end)?
    pub fn matches(&self, name: &[u8], is_dir: bool) -> bool {
        if self.dirs_only && !is_dir {
            return false;
        }
        let name = if self.leaf { crate::key::name(name) } else { name };
        let (before, after) = (self.double_first && name.first() != Some(&b'/'), self.triple_last && is_dir);
        if !before && !after {
            return self.expression.is_match(name);
        }
        let slash = |put: bool| if put { &b"/"[..] } else { b"" };
        self.expression.is_match(&[slash(before), name, slash(after)].concat())
    }
}

impl TryFrom<Vec<u8>> for Pattern {
    type Error = String;

    fn try_from(source: Vec<u8>) -> Result<Pattern, String> {
        Pattern::new(&source)
    }
}

impl From<Pattern> for Vec<u8> {
    fn from(pattern: Pattern) -> Vec<u8> {
        pattern.source
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

/// One byte as itself.
fn byte(b: u8) -> String {
    format!("\\x{b:02x}")
}

fn translate(text: &[u8]) -> Result<String, String> {
    let (mut out, mut at) = (String::new(), 0);
    while let Some(b) = text.get(at) {
        at += 1;
        match b {
            b'*' => {
                let more = text[at..].iter().take_while(|b| **b == b'*').count();
                at += more;
                out.push_str(if more == 0 { "[^/]*" } else { ".*" });
            }
            b'?' => out.push_str("[^/]"),
            b'[' => {
                let (class, used) = class(&text[at..]).ok_or("'[' without ']'")?;
                out.push_str(&class);
                at += used;
            }
            b'\\' if at < text.len() => {
                out.push_str(&byte(text[at]));
                at += 1;
            }
            b => out.push_str(&byte(*b)),
        }
    }
    Ok(out)
}

/// The class that begins after a `[`, and how many bytes it takes with its `]`. No class matches a slash.
fn class(text: &[u8]) -> Option<(String, usize)> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let begin = usize::from(negated);
    let (mut at, mut set) = (begin, [false; 256]);
    let mut last: Option<u8> = None;
    loop {
        let b = *text.get(at)?;
        let first = at == begin;
        at += 1;
        match b {
            b']' if !first => break,
            b'[' if text.get(at) == Some(&b':') => {
                let len = find(&text[at..], b":]")?;
                let name = std::str::from_utf8(&text[at + 1..at + len]).ok()?;
                (0..=255u8).filter(|b| in_class(name, *b)).for_each(|b| set[usize::from(b)] = true);
                at += len + 2;
                last = None;
            }
            b'-' if last.is_some() && !matches!(text.get(at), None | Some(b']')) => {
                let mut end = text[at];
                at += 1;
                if end == b'\\' {
                    end = *text.get(at)?;
                    at += 1;
                }
                (last?..=end).for_each(|b| set[usize::from(b)] = true);
                last = None;
            }
            b => {
                let mut b = b;
                if b == b'\\' {
                    b = *text.get(at)?;
                    at += 1;
                }
                set[usize::from(b)] = true;
                last = Some(b);
            }
        }
    }
    let wanted = (0..=255u8).filter(|b| set[usize::from(*b)] != negated && *b != b'/').map(byte);
    let wanted: String = wanted.collect();
    // A class that can match nothing.
    let class = if wanted.is_empty() { "[^\\x00-\\xff]".into() } else { format!("[{wanted}]") };
    Some((class, at))
}

fn in_class(name: &str, b: u8) -> bool {
    match name {
        "alnum" => b.is_ascii_alphanumeric(),
        "alpha" => b.is_ascii_alphabetic(),
        "blank" => matches!(b, b' ' | b'\t'),
        "cntrl" => b.is_ascii_control(),
        "digit" => b.is_ascii_digit(),
        "graph" => b.is_ascii_graphic(),
        "lower" => b.is_ascii_lowercase(),
        "print" => b.is_ascii_graphic() || b == b' ',
        "punct" => b.is_ascii_punctuation(),
        "space" => b.is_ascii_whitespace() || b == 0x0b,
        "upper" => b.is_ascii_uppercase(),
        "xdigit" => b.is_ascii_hexdigit(),
        _ => false,
    }
}
