//! Names inside a store.

use std::{borrow::Cow, fmt, sync::Arc};

/// A name in one store: raw bytes with `/` between parts, ordered bytewise, never normalised.
///
/// Keys are relative to the store's root and never start with the root's own path. The key of a directory ends
/// in `/` (so `a-b` < `a/` < `a/x`: a directory stands right before what it holds, and a file `a` and a
/// directory `a/` can both exist in a bucket). Empty parts (`d//x`) are legal and come back as they were.
/// See `docs/adr/0001-keys-are-bytes.md`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// A key of exactly these bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Key(bytes.as_ref().into())
    }

    /// The bytes as given.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True for the key of a directory, which ends in `/`.
    pub fn is_dir(&self) -> bool {
        self.0.last() == Some(&b'/')
    }

    /// True for the empty key, which names the root itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The directory that holds this key, with its `/`: `a/b/c` and `a/b/c/` give `a/b/`; `a` and `a/` give the
    /// empty key.
    pub fn parent(&self) -> Key {
        Key::new(parent(&self.0))
    }

    /// The last part, without a directory's `/`: `a/b/c` and `a/b/c/` give `c`.
    pub fn name(&self) -> &[u8] {
        name(&self.0)
    }

    /// This key with `suffix` appended, byte for byte.
    pub fn with_suffix(&self, suffix: impl AsRef<[u8]>) -> Key {
        Key::new([&self.0, suffix.as_ref()].concat())
    }

    /// This key below `dir` (which is empty or ends in `/`).
    pub fn below(&self, dir: &[u8]) -> Key {
        Key::new([dir, &self.0].concat())
    }

    /// The key as a person reads it: invalid UTF-8 becomes the replacement character, and a name is shown without what tells it
    /// from a translated symlink's.
    pub fn display(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(crate::entry::unmarked(&self.0).unwrap_or(&self.0))
    }

    /// The first key after everything that starts with this one; `None` if there is none (all bytes are 0xFF).
    pub fn after_prefix(&self) -> Option<Key> {
        after_prefix(&self.0).map(Key::new)
    }
}

/// The part of `key` up to and with the last `/` that isn't its own end.
pub fn parent(key: &[u8]) -> &[u8] {
    let body = key.strip_suffix(b"/").unwrap_or(key);
    // Called some ten times for each file.
    match memchr::memrchr(b'/', body) {
        Some(at) => &key[..=at],
        None => b"",
    }
}

/// The last part of `key`, without a directory's `/`.
pub fn name(key: &[u8]) -> &[u8] {
    let body = key.strip_suffix(b"/").unwrap_or(key);
    &body[parent(key).len()..]
}

/// A text before `key` with few or no keys between them: where a listing begins so that `key` is its first. Valid UTF-8 without
/// control characters beyond those of `key`, as some services demand of such places.
pub fn just_before(key: &[u8]) -> Vec<u8> {
    let Some((last, head)) = key.split_last() else { return Vec::new() };
    let mut before = head.to_vec();
    // What follows `0~` up to `1` are only keys that go on behind a `~`.
    if (b'"'..0x7f).contains(last) {
        before.extend([last - 1, b'~']);
    }
    let valid = std::str::from_utf8(&before).map_or_else(|e| e.valid_up_to(), str::len);
    before.truncate(valid);
    before
}

/// The smallest byte string greater than every string that starts with `prefix`.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != 0xFF)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Key::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_and_name_split_a_key() {
        for (key, dir, leaf) in [
            ("a", "", "a"),
            ("a/", "", "a"),
            ("a/b", "a/", "b"),
            ("a/b/", "a/", "b"),
            ("d//x", "d//", "x"),
            ("d//", "d/", ""),
            ("/x", "/", "x"),
            ("", "", ""),
        ] {
            assert_eq!(Key::new(key).parent(), Key::new(dir), "{key}");
            assert_eq!(Key::new(key).name(), leaf.as_bytes(), "{key}");
        }
    }

    #[test]
    fn a_directory_stands_right_before_what_it_holds() {
        let mut keys: Vec<Key> = ["a/x", "a0", "a-b", "a/", "a"].map(Key::new).into();
        keys.sort();
        assert_eq!(keys, ["a", "a-b", "a/", "a/x", "a0"].map(Key::new));
    }

    #[test]
    fn just_before_is_before_and_text() {
        for key in ["a/1", "a", "é", "aé", "a\u{1F69A}b", "\n", "a ", "a!", "~", "ab"] {
            let before = just_before(key.as_bytes());
            assert!(before.as_slice() < key.as_bytes() && std::str::from_utf8(&before).is_ok(), "{key:?}");
        }
        assert_eq!((just_before(b""), just_before(b"a\xffb")), (vec![], b"a".to_vec()));
        assert_eq!(just_before(b"00/ab"), b"00/aa~");
    }

    #[test]
    fn after_prefix_is_the_next_key() {
        assert_eq!(after_prefix(b"a/"), Some(b"a0".to_vec()));
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
