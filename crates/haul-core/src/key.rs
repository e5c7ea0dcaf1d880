//! Names inside a store.

use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, sync::Arc};

/// Ending of a symlink's name in a store that has no symlinks; rclone's (`--links`).
const STORED: &[u8] = b".rclonelink";

/// Ending of a symlink's key: [`STORED`] and a byte that is in no name on a disk, see [`Key::symlink`].
const SYMLINK: &[u8] = b".rclonelink\0";

/// Kind of the entry that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Bytes under a name.
    File,
    /// A symlink that is kept as one (`--links`): its bytes are its target. Its key is [`Key::symlink`]'s.
    Symlink,
    /// A directory, or a directory marker of a bucket; its key ends in `/`.
    Dir,
    /// A device, FIFO, socket, or a symlink that is neither followed nor kept: listed so that it can be
    /// counted. Devices, FIFOs and sockets are made anew where a job keeps them.
    Special,
}

/// A name in one store: raw bytes with `/` between parts, ordered bytewise, never normalised.
///
/// Keys are relative to the store's root and never start with the root's own path. A key shows the kind of its entry: a
/// directory's ends in `/` (so `a-b` < `a/` < `a/x`: a directory comes right before its contents, and a file `a` and a
/// directory `a/` can both exist in a bucket), a symlink's is made by [`Key::symlink`] only. Empty parts (`d//x`) are
/// legal and come back as they were. See `docs/adr/0001-keys-are-bytes.md` and `docs/adr/0014-symlinks.md`.
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

    /// The key of the symlink with this path.
    ///
    /// It sorts where a store without symlinks keeps the link, right after a regular file with the link's stored name
    /// (`a` < `a-b` < `a.rclonelink` < the symlink `a` < `a/`): so such a store lists symlinks and files in one order without
    /// looking ahead.
    pub fn symlink(path: impl AsRef<[u8]>) -> Key {
        Key::new([path.as_ref(), SYMLINK].concat())
    }

    /// True for the key of a symlink.
    pub fn is_symlink(&self) -> bool {
        self.0.ends_with(SYMLINK)
    }

    /// The path without the kind's suffix: `a` for the file `a`, the symlink `a` and the directory `a/`.
    pub fn path(&self) -> &[u8] {
        path(&self.0)
    }

    /// The name in a store without symlinks, as rclone's commands and rules show it: a symlink's ends in
    /// `.rclonelink`, all others equal their keys.
    pub fn stored(&self) -> &[u8] {
        if self.is_symlink() { &self.0[..self.0.len() - 1] } else { &self.0 }
    }

    /// The key of a name in a store without symlinks that keeps them as files: see [`Key::stored`].
    pub fn of_stored(name: impl AsRef<[u8]>) -> Key {
        let name = name.as_ref();
        stored_symlink(name).map_or_else(|| Key::new(name), Key::symlink)
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

    /// The last path component, without the kind's suffix: `a/b/c`, the symlink `a/b/c` and `a/b/c/` give `c`.
    pub fn name(&self) -> &[u8] {
        name(&self.0)
    }

    /// The last path component as a key.
    pub fn leaf(&self) -> Key {
        Key::new(&self.0[parent(&self.0).len()..])
    }

    /// This key with `suffix` appended, byte for byte.
    pub fn with_suffix(&self, suffix: impl AsRef<[u8]>) -> Key {
        Key::new([&self.0, suffix.as_ref()].concat())
    }

    /// This key moved below `dir` (which is empty or ends in `/`).
    pub fn below(&self, dir: &[u8]) -> Key {
        Key::new([dir, &self.0].concat())
    }

    /// The key for display: as a store without symlinks names it, with the replacement character for invalid UTF-8.
    pub fn display(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.stored())
    }

    /// The first key after everything that starts with this one; `None` if there is none (all bytes are 0xFF).
    pub fn after_prefix(&self) -> Option<Key> {
        after_prefix(&self.0).map(Key::new)
    }
}

/// `key` up to and including the last `/` that isn't at its end.
pub fn parent(key: &[u8]) -> &[u8] {
    let body = key.strip_suffix(b"/").unwrap_or(key);
    // Called some ten times for each file.
    match memchr::memrchr(b'/', body) {
        Some(at) => &key[..=at],
        None => b"",
    }
}

/// The last path component of `key`, without the kind's suffix.
pub fn name(key: &[u8]) -> &[u8] {
    &path(key)[parent(key).len()..]
}

/// Suffix of a key of this kind, after the path.
pub fn ending(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::File | Kind::Special => b"",
        Kind::Dir => b"/",
        Kind::Symlink => SYMLINK,
    }
}

/// See [`Key::path`].
pub fn path(key: &[u8]) -> &[u8] {
    key.strip_suffix(b"/").unwrap_or(plain(key))
}

/// `key` without a symlink's suffix; a directory's keeps its `/`.
pub fn plain(key: &[u8]) -> &[u8] {
    key.strip_suffix(SYMLINK).unwrap_or(key)
}

/// The path of the symlink that a store without symlinks keeps under `name`; `None` for the name of a file or directory.
pub fn stored_symlink(name: &[u8]) -> Option<&[u8]> {
    name.strip_suffix(STORED).filter(|path| !path.is_empty() && !path.ends_with(b"/"))
}

/// A text before `key` with few or no keys between them: where to begin a listing so that `key` comes first. Valid UTF-8 without
/// control characters beyond those of `key`, as some services demand of start positions.
pub fn just_before(key: &[u8]) -> Vec<u8> {
    let Some((last, head)) = key.split_last() else { return Vec::new() };
    let mut before = head.to_vec();
    // Keys from `0~` up to `1` are only those with a further byte after a `~`.
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
    fn a_symlink_has_a_key_of_its_own_that_tells_its_path_and_how_it_is_stored() {
        let link = Key::symlink("d/k");
        assert!(link.is_symlink() && !link.is_dir() && !Key::new("d/k.rclonelink").is_symlink());
        assert_eq!((link.path(), link.name(), link.parent()), (&b"d/k"[..], &b"k"[..], Key::new("d/")));
        assert_eq!((link.stored(), &*link.display()), (&b"d/k.rclonelink"[..], "d/k.rclonelink"));
        assert_eq!(Key::of_stored("d/k.rclonelink"), link);
        for file in ["d/k", "d/.rclonelink", ".rclonelink", "d/k.rclonelink/", "d/k.rclonelink.txt"] {
            assert_eq!((Key::of_stored(file), Key::new(file).stored()), (Key::new(file), file.as_bytes()));
        }
        assert_eq!((path(b"d/k/"), plain(b"d/k/"), plain(link.as_bytes())), (&b"d/k"[..], &b"d/k/"[..], &b"d/k"[..]));
    }

    #[test]
    fn keys_that_are_stored_as_files_keep_their_order() {
        let names =
            ["a", "a-b", "a.rclonelink", "a.rclonelink-", "a.rclonelink.rclonelink", "a.rclonelink/x", "a/", "a0"];
        let keys = names.map(Key::of_stored);
        assert!(keys.is_sorted() && keys.iter().zip(names).all(|(key, name)| key.stored() == name.as_bytes()));
        let file = Key::new("a.rclonelink");
        assert!(file < keys[2] && file.with_suffix("\0") == keys[2], "nothing comes between");
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
