//! The syntax: `name:path`, `name,key=value:path`, `:backend,key="v:1":path`, or a path of this machine. Paths are raw
//! bytes.

use crate::{Error, Result};
use std::collections::BTreeMap;

/// A path as a user typed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Where.
    pub place: Location,
    /// The path in it.
    pub path: Vec<u8>,
}

/// Where a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this machine.
    Local,
    /// On a configured remote.
    Remote {
        /// Its name.
        name: String,
        /// Options typed with it.
        options: BTreeMap<String, String>,
    },
    /// On a store of this type, without configuration.
    Backend {
        /// Its type.
        kind: String,
        /// Options typed with it.
        options: BTreeMap<String, String>,
    },
}

impl Spec {
    /// A path of this machine, whatever it looks like.
    pub fn local(path: impl Into<Vec<u8>>) -> Spec {
        Spec { place: Location::Local, path: path.into() }
    }

    /// Reads what a user typed.
    ///
    /// Errors: a name that can't be one, quotes or options that don't end; nothing at all.
    pub fn parse(text: &[u8]) -> Result<Spec> {
        if text.is_empty() {
            // Mostly a variable that isn't set: it must not mean the current directory, which may then be emptied.
            return Err(Error::Typed("a path is empty: write . for the current directory".into()));
        }
        let local = || Spec::local(text);
        let backend = text.first() == Some(&b':');
        let start = usize::from(backend);
        let Some(end) = text[start..].iter().position(|b| matches!(b, b'/' | b':' | b',')).map(|at| at + start) else {
            return if backend { Err(wrong(text, "the colon before the path is missing")) } else { Ok(local()) };
        };
        if text[end] == b'/' {
            return if backend { Err(wrong(text, "a type can't hold a /")) } else { Ok(local()) };
        }
        let head = &text[start..end];
        let (options, path) = match text[end] {
            b',' => match options(&text[end + 1..]) {
                Ok(Some((options, used))) => (options, &text[end + 1 + used..]),
                // A comma and no colon at all: a file of this machine.
                Ok(None) if !backend => return Ok(local()),
                Ok(None) => return Err(wrong(text, "an option's value must end with , or :")),
                Err(why) => return Err(wrong(text, why)),
            },
            _ => (BTreeMap::new(), &text[end + 1..]),
        };
        let name = std::str::from_utf8(head).ok().filter(|name| is_name(name));
        let name = name.ok_or_else(|| wrong(text, NAME_RULE))?.to_string();
        let place =
            if backend { Location::Backend { kind: name, options } } else { Location::Remote { name, options } };
        Ok(Spec { place, path: path.to_vec() })
    }
}

const NAME_RULE: &str = "a remote's name holds letters, digits, _ - . + @ and space, and neither starts with - or space \
                         nor ends with space; write ./ before a path that holds a colon";

const ADDRESS_RULE: &str = "an address as an option's value needs quotes, and quotes around the whole for the shell: \
                            \":http,url='https://host/dir/':path\"";

/// Can this be a remote's name?
pub fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '@' | ' ');
    !name.is_empty() && name.chars().all(legal) && !name.starts_with(['-', ' ']) && !name.ends_with(' ')
}

fn wrong(text: &[u8], why: &str) -> Error {
    // Options may hold secrets, so what follows the name isn't shown.
    let head = text.split(|b| *b == b',').next().unwrap_or_default();
    let more = if head.len() < text.len() { ",…" } else { "" };
    Error::Typed(format!("bad remote {:?}{more}: {why}", String::from_utf8_lossy(head)))
}

/// Options, and how many bytes they took with the colon.
type Typed = (BTreeMap<String, String>, usize);

/// Reads `key=value,key2="v:1",bare:`; `None` when no colon ends them.
fn options(text: &[u8]) -> Result<Option<Typed>, &'static str> {
    let mut all = BTreeMap::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let Some(len) = rest.iter().position(|b| matches!(b, b'=' | b',' | b':')) else { return Ok(None) };
        let key = std::str::from_utf8(&rest[..len]).ok().filter(|k| is_key(k));
        let end = rest[len];
        at += len + 1;
        let (value, end) = match end {
            b'=' => match value(&text[at..])? {
                Some((value, used, end)) => {
                    at += used;
                    (value, end)
                }
                None => return Ok(None),
            },
            end => ("true".to_string(), end),
        };
        let key = key.ok_or("an option's name holds letters, digits and _ only")?;
        all.insert(key.replace('-', "_"), value);
        if end == b':' {
            return Ok(Some((all, at)));
        }
    }
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Reads one value up to its `,` or `:`; gives it, the bytes it took with that end, and the end.
fn value(text: &[u8]) -> Result<Option<(String, usize, u8)>, &'static str> {
    let utf8 = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "an option's value isn't UTF-8");
    let quote = match text.first() {
        Some(quote @ (b'"' | b'\'')) => *quote,
        _ => {
            let Some(len) = text.iter().position(|b| matches!(b, b',' | b':')) else { return Ok(None) };
            if matches!(&text[..len], b"http" | b"https") && text[len..].starts_with(b"://") {
                return Err(ADDRESS_RULE);
            }
            return Ok(Some((utf8(text[..len].to_vec())?, len + 1, text[len])));
        }
    };
    let (mut bytes, mut at) = (Vec::new(), 1);
    loop {
        match (text.get(at), text.get(at + 1)) {
            (None, _) => return Err("an option's closing quote is missing"),
            (Some(b), Some(next)) if *b == quote && *next == quote => {
                bytes.push(quote);
                at += 2;
            }
            (Some(b), Some(end @ (b',' | b':'))) if *b == quote => return Ok(Some((utf8(bytes)?, at + 2, *end))),
            (Some(b), None) if *b == quote => return Ok(None),
            (Some(b), _) if *b == quote => return Err("after an option's closing quote comes , or :"),
            (Some(b), _) => {
                bytes.push(*b);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(options: &[(&str, &str)]) -> BTreeMap<String, String> {
        options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn what_users_type() {
        let local = |path: &str| (Location::Local, path.to_string());
        let remote = |name: &str, o: &[(&str, &str)], path: &str| {
            (Location::Remote { name: name.into(), options: map(o) }, path.to_string())
        };
        let backend = |kind: &str, o: &[(&str, &str)], path: &str| {
            (Location::Backend { kind: kind.into(), options: map(o) }, path.to_string())
        };
        for (text, (place, path)) in [
            ("a/b", local("a/b")),
            ("/x:y", local("/x:y")),
            ("./a:b", local("./a:b")),
            ("a,b", local("a,b")),
            ("a,b=c", local("a,b=c")),
            ("a/b,c:d", local("a/b,c:d")),
            ("r:", remote("r", &[], "")),
            ("r:b/k:x", remote("r", &[], "b/k:x")),
            ("my rem-1.x@y+z:p", remote("my rem-1.x@y+z", &[], "p")),
            ("r,a=1,b:p", remote("r", &[("a", "1"), ("b", "true")], "p")),
            ("r,a=\"x:y,z\":p", remote("r", &[("a", "x:y,z")], "p")),
            ("r,a=\"x\"\"y\",b='it''s':p", remote("r", &[("a", "x\"y"), ("b", "it's")], "p")),
            ("r,a=:p", remote("r", &[("a", "")], "p")),
            (":s3:b", backend("s3", &[], "b")),
            (":s3,provider=Minio,env-auth:b/c", backend("s3", &[("provider", "Minio"), ("env_auth", "true")], "b/c")),
            (":local:/x/y", backend("local", &[], "/x/y")),
        ] {
            let spec = Spec::parse(text.as_bytes()).unwrap();
            assert_eq!((spec.place, String::from_utf8(spec.path).unwrap()), (place, path), "{text}");
        }
        assert_eq!(Spec::parse(b"r:a\xff").unwrap().path, b"a\xff");
        assert_eq!(Spec::parse(b"").unwrap_err().to_string(), "a path is empty: write . for the current directory");
    }

    #[test]
    fn what_cannot_be_meant_is_told_without_secrets() {
        for (text, message) in [
            ("a*b:c", format!("bad remote \"a*b:c\": {NAME_RULE}")),
            (":loc/x", "bad remote \":loc/x\": a type can't hold a /".into()),
            (":local", "bad remote \":local\": the colon before the path is missing".into()),
            (":s3,secret=hunter2", "bad remote \":s3\",…: an option's value must end with , or :".into()),
            ("r,a=\"x:p", "bad remote \"r\",…: an option's closing quote is missing".into()),
            ("r,a=\"x\"y:p", "bad remote \"r\",…: after an option's closing quote comes , or :".into()),
            (":http,url=https://host/:p", format!("bad remote \":http\",…: {ADDRESS_RULE}")),
            ("r,a b=1:p", "bad remote \"r\",…: an option's name holds letters, digits and _ only".into()),
        ] {
            assert_eq!(Spec::parse(text.as_bytes()).unwrap_err().to_string(), message, "{text}");
        }
    }
}
