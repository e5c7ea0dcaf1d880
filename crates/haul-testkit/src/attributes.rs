//! Folders with everything that a file system can hold, and reading back all of it, to be compared attribute by attribute.

use crate::{folder, peers};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

/// All that is known of one thing in a folder.
#[derive(Clone, PartialEq, Eq)]
pub struct Facts {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Device number of a device.
    pub device: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime: i128,
    /// Content of a file, target of a link.
    pub bytes: Vec<u8>,
    /// All extended attributes, ACLs included.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// The first, by name, of the names that the inode has in the folder.
    pub same_as: PathBuf,
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { mode, owner: (uid, gid), device, mtime, bytes, xattrs, same_as } = self;
        let (len, names) = (bytes.len(), xattrs.keys().collect::<Vec<_>>());
        write!(f, "{mode:o} {uid}:{gid} device {device:x} at {mtime}, {len} bytes, {names:?}, as {}", same_as.display())
    }
}

/// Everything in a folder by path below it, the folder itself as the empty path.
///
/// Panics when anything of it can't be read.
pub fn read(root: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut all = BTreeMap::new();
    let mut first = BTreeMap::new();
    let mut paths = Vec::new();
    gather(root, Path::new(""), &mut paths);
    paths.sort();
    for below in paths {
        let path = root.join(&below);
        let st = fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let kind = st.file_type();
        let bytes = match () {
            () if kind.is_file() => fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
            () if kind.is_symlink() => fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec(),
            () => Vec::new(),
        };
        let same_as = match kind.is_dir() {
            true => below.clone(),
            false => first.entry((st.dev(), st.ino())).or_insert_with(|| below.clone()).clone(),
        };
        let device = if kind.is_block_device() || kind.is_char_device() { st.rdev() } else { 0 };
        let facts = Facts {
            mode: st.mode(),
            owner: (st.uid(), st.gid()),
            device,
            mtime: i128::from(st.mtime()) * 1_000_000_000 + i128::from(st.mtime_nsec()),
            bytes,
            xattrs: xattrs(&path),
            same_as,
        };
        all.insert(below, facts);
    }
    all
}

fn gather(root: &Path, below: &Path, paths: &mut Vec<PathBuf>) {
    paths.push(below.to_path_buf());
    let path = root.join(below);
    for item in fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
        let item = item.expect("an entry");
        let below = below.join(item.file_name());
        match item.file_type().expect("its type").is_dir() {
            true => gather(root, &below, paths),
            false => paths.push(below),
        }
    }
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        answer => answer.unwrap_or_else(|e| panic!("{}: {e}", path.display())),
    };
    let names = names[..len].split(|b| *b == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("a value");
        value.truncate(len);
        value
    };
    names.map(|name| (String::from_utf8_lossy(name).into_owned(), value(name))).collect()
}

/// The ctime of everything in a folder: it moves with any change, and nobody can set it back.
pub fn ctimes(root: &Path) -> BTreeMap<PathBuf, (i64, i64)> {
    let mut paths = Vec::new();
    gather(root, Path::new(""), &mut paths);
    let ctime = |below: PathBuf| {
        let st = fs::symlink_metadata(root.join(&below)).expect("facts");
        (below, (st.ctime(), st.ctime_nsec()))
    };
    paths.into_iter().map(ctime).collect()
}

/// Panics with what differs between two folders, thing by thing.
#[track_caller]
pub fn assert_same(want: &Path, have: &Path) {
    let (a, b) = (read(want), read(have));
    let mut wrong = Vec::new();
    for path in a.keys().chain(b.keys().filter(|path| !a.contains_key(*path))) {
        match (a.get(path), b.get(path)) {
            (x, y) if x == y => {}
            (x, y) => wrong.push(format!("{}\n  want {x:?}\n  have {y:?}", path.display())),
        }
    }
    assert!(wrong.is_empty(), "{} differs from {}:\n{}", have.display(), want.display(), wrong.join("\n"));
}

/// True when this process is root; otherwise says what isn't tried.
pub fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        peers::skip(&format!("{what}: only root may"));
    }
    root
}

/// Sets an extended attribute; says so where the file system has none of that kind.
pub fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    match rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::PERM) => peers::skip(&format!("{name} on {}: not possible here", path.display())),
        Err(errno) => panic!("{name} on {}: {errno}", path.display()),
    }
}

/// A POSIX ACL as the kernel keeps it: owner `rwx`, one named user, one named group, mask, others none.
pub fn posix_acl(user: u32, group: u32) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in
        [(0x01u16, 7u16, NONE), (0x02, 6, user), (0x04, 5, NONE), (0x08, 4, group), (0x10, 7, NONE), (0x20, 0, NONE)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// A file capability as the kernel keeps it (version 2, `cap_net_raw` permitted and effective).
pub const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Fills a folder with everything: extended attributes (binary too), ACLs and default ACLs, capabilities, set-id bits,
/// owners, devices, FIFOs, sockets, hard links across folders, links with times, holes, directories that can't be written.
/// What this process or the file system can't do is left out and said.
///
/// Panics when something that everybody can do fails.
pub fn fill(root: &Path) {
    for dir in ["deep/er", "deep/closed", "elsewhere", "empty", "acl"] {
        fs::create_dir_all(root.join(dir)).expect("directory");
    }
    let write = |name: &str, text: &[u8], mode: u32| {
        folder::write(&root.join(name), text, 1_000_000_000);
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("mode");
    };
    write("plain", b"plain", 0o644);
    write("deep/private", b"private", 0o600);
    write("deep/er/nobody may", b"nothing", 0o000);
    write("deep/closed/file", b"in a closed directory", 0o444);
    write("elsewhere/program", b"#!/bin/sh\n", 0o755);
    write("acl/file", b"with an ACL", 0o640);
    write("acl/plain", b"without", 0o640);
    write("shared", b"one file of three names", 0o640);
    for name in ["deep/er/shared too", "elsewhere/a shared"] {
        fs::hard_link(root.join("shared"), root.join(name)).expect("hard link");
    }
    let sparse = fs::File::create(root.join("sparse")).expect("file");
    sparse.set_len(3 << 20).expect("size");
    std::os::unix::fs::FileExt::write_at(&sparse, b"data", 2 << 20).expect("data");
    for (name, to) in [("link", "plain"), ("deep/dangling", "nowhere"), ("elsewhere/up", "../deep/er")] {
        symlink(to, root.join(name)).expect("link");
        set_time(&root.join(name), 981_173_106, 789_000_001);
    }
    special(&root.join("pipe"), FileType::Fifo, 0, 0o620);
    drop(UnixListener::bind(root.join("deep/socket")).expect("socket"));
    set_xattr(&root.join("plain"), "user.binary", &(0..=255).collect::<Vec<u8>>());
    set_xattr(&root.join("plain"), "user.empty", b"");
    set_xattr(&root.join("shared"), "user.large", &[7; 2000]);
    set_xattr(&root.join("deep"), "user.directory", b"has one too");
    set_xattr(root, "user.top", b"\xff\x00");
    set_xattr(&root.join("acl/file"), "system.posix_acl_access", &posix_acl(1234, 5678));
    if is_root("owners, devices, capabilities") {
        special(&root.join("null"), FileType::CharacterDevice, rustix::fs::makedev(1, 3), 0o666);
        special(&root.join("deep/disk"), FileType::BlockDevice, rustix::fs::makedev(7, 200), 0o660);
        for (name, owner) in [("plain", 12), ("deep/private", 34), ("link", 56), ("pipe", 78), ("elsewhere", 90)] {
            std::os::unix::fs::lchown(root.join(name), Some(owner), Some(owner + 1)).expect("owner");
        }
        set_xattr(&root.join("elsewhere/program"), "security.capability", &CAPABILITY);
        set_xattr(&root.join("deep/private"), "trusted.secret", b"\x00\x01");
        set_xattr(&root.join("link"), "trusted.on a link", b"odd");
    }
    for (name, mode) in [("deep/private", 0o4700), ("plain", 0o2755), ("empty", 0o1777), ("acl", 0o2750)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("mode");
    }
    // After the files in it, which would get it too.
    set_xattr(&root.join("acl"), "system.posix_acl_default", &posix_acl(99, 98));
    for (at, name) in ["deep/er", "deep", "elsewhere", "empty", "acl", "deep/closed", ""].into_iter().enumerate() {
        set_time(&root.join(name), 1_111_111_111 + at as i64, 123_456_789);
    }
    for name in ["deep/closed", "elsewhere"] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o555)).expect("mode");
    }
}

/// Makes a device, FIFO or socket; says so when this isn't allowed here.
pub fn special(path: &Path, kind: FileType, device: u64, mode: u32) {
    match rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode"),
        Err(Errno::PERM) => peers::skip(&format!("{}: can't be made here", path.display())),
        Err(errno) => panic!("{}: {errno}", path.display()),
    }
}

/// Sets the times of a name; a link isn't followed.
pub fn set_time(path: &Path, secs: i64, nanos: i64) {
    let time = Timespec { tv_sec: secs, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("times");
}
