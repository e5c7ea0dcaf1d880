//! Folders for tests: made from a description or a seed, and read back as plain values to be compared.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fmt, fs, io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{MetadataExt as _, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// A temporary folder whose name begins with `prefix`, for what asks nothing of a disk: in `$HAUL_TEST_DIR` where that is set (memory, say,
/// where many small files cost a third), else where temporary folders are.
///
/// Errors: it can't be made.
pub fn temporary(prefix: &str) -> io::Result<TempDir> {
    let place = env::var_os("HAUL_TEST_DIR").map_or_else(env::temp_dir, PathBuf::from);
    tempfile::Builder::new().prefix(prefix).tempdir_in(place)
}

/// One entry of a folder.
#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    /// A folder.
    Dir,
    /// A file: its bytes and its modification time in nanoseconds since 1970.
    File(Vec<u8>, i128),
    /// A symlink and its target.
    Link(PathBuf),
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Dir => f.write_str("a folder"),
            Node::File(bytes, ns) => {
                write!(f, "{} bytes ", bytes.len())?;
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(24)]);
                write!(f, "{text:?} of {}.{:09}", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
            }
            Node::Link(target) => write!(f, "a link to {}", target.display()),
        }
    }
}

/// What is in a folder, by path.
pub type Tree = BTreeMap<PathBuf, Node>;

/// Bytes that look random and are the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Writes a file with its folders and its modification time (nanoseconds since 1970).
///
/// Panics if it can't.
pub fn write(path: &Path, bytes: &[u8], mtime_ns: u64) {
    fs::create_dir_all(path.parent().expect("a path in a folder")).expect("folder");
    fs::write(path, bytes).expect("file");
    set_mtime(path, mtime_ns);
}

/// Sets a file's modification time (nanoseconds since 1970).
///
/// Panics if it can't.
pub fn set_mtime(path: &Path, mtime_ns: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(mtime_ns);
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(time).expect("mtime");
}

/// Reads a folder. One that isn't there is empty.
///
/// Panics if something in it can't be read.
pub fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    walk(root, root, &mut tree);
    tree
}

fn walk(dir: &Path, root: &Path, tree: &mut Tree) {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound && dir == root => return,
        Err(e) => panic!("{}: {e}", dir.display()),
    };
    for entry in entries {
        let path = entry.expect("entry").path();
        let meta = fs::symlink_metadata(&path).expect("metadata");
        let name = path.strip_prefix(root).expect("below the root").to_path_buf();
        let node = if meta.is_dir() {
            walk(&path, root, tree);
            Node::Dir
        } else if meta.is_symlink() {
            Node::Link(fs::read_link(&path).expect("link"))
        } else {
            let ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
            Node::File(fs::read(&path).expect("file"), ns)
        };
        tree.insert(name, node);
    }
}

/// Only the files and links: what a store without folders keeps.
pub fn files(tree: &Tree) -> Tree {
    tree.iter().filter(|(_, node)| **node != Node::Dir).map(|(path, node)| (path.clone(), node.clone())).collect()
}

/// Panics with each path that differs, and how.
pub fn assert_same(left: &Tree, right: &Tree, what: &str) {
    let mut wrong = String::new();
    for (path, node) in left {
        match right.get(path) {
            Some(other) if other == node => {}
            other => wrong.push_str(&format!("\n  {}: {node:?}, {other:?}", path.display())),
        }
    }
    for (path, node) in right.iter().filter(|(path, _)| !left.contains_key(*path)) {
        wrong.push_str(&format!("\n  {}: nothing, {node:?}", path.display()));
    }
    assert!(wrong.is_empty(), "{what} (left, right):{wrong}");
}

/// Names that a store may trip over. All are legal on Linux, and in S3 keys.
pub const NAMES: &[&str] = &[
    "plain.txt",
    "with space.txt",
    " leading",
    "trailing ",
    "100%.txt",
    "%41%2F%00.txt",
    "a+b.txt",
    "what?.txt",
    "#hash#.txt",
    "a&b<c>d\"e'f.txt",
    "semi;colon=equals,comma.txt",
    "back\\slash.txt",
    "star*[bracket]{brace}.txt",
    "co:lon.txt",
    "new\nline.txt",
    "tab\tname.txt",
    "emoji-🦀.txt",
    "grüße-日本語.txt",
    "nfd-e\u{301}.txt",
    "nfc-\u{e9}.txt",
    "._x",
    ".hidden",
    "UPPER.TXT",
    "upper.txt",
    "-dash",
    "~tilde",
    "x.rclonelink.txt",
    "dots...",
];

/// A name that is not UTF-8.
pub fn raw_name() -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(vec![b'r', b'a', b'w', b'-', 0xff, 0xfe]))
}

/// Fills a folder with every name, each in the root and in some folder, of sizes from 0 on, with times to the nanosecond.
///
/// Panics if it can't.
pub fn names(root: &Path) {
    for (i, name) in NAMES.iter().enumerate() {
        let text = noise(i as u64, i * 7 % 40);
        let time = 1_600_000_000_000_000_000 + i as u64 * 86_400_123_456_789;
        write(&root.join(OsStr::from_bytes(name.as_bytes())), &text, time);
        let stem = name.replace('.', "_");
        write(&root.join("deep").join(&stem).join(name), &text, time + 1);
    }
}

/// Fills a folder with files whose sizes stand around 0, 1, and each edge (in bytes).
///
/// Panics if it can't.
pub fn sizes(root: &Path, edges: &[usize]) {
    let around = edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]);
    for size in [0, 1].into_iter().chain(around) {
        let path = root.join(format!("sizes/{size}.bin"));
        write(&path, &noise(size as u64, size), 1_650_000_000_987_654_321 + size as u64);
    }
}

/// A symlink.
///
/// Panics if it can't be made.
pub fn link(root: &Path, name: &str, target: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a path in a folder")).expect("folder");
    symlink(target, path).expect("link");
}
