//! Facts about one listed entry.

use crate::{Error, ErrorKind, Hashes, Key, Kind, Result};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// A point in time: nanoseconds since the Unix epoch, UTC; negative before 1970. Its real precision is the
/// store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtime(pub i128);

impl Mtime {
    /// From whole seconds and nanoseconds (0..1e9) since the epoch.
    pub fn new(secs: i64, nanos: u32) -> Self {
        Mtime(i128::from(secs) * 1_000_000_000 + i128::from(nanos))
    }

    /// Whole seconds since the epoch, rounded down.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000) as i64
    }

    /// Nanoseconds within the second, 0..1e9.
    pub fn nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }

    /// Distance between two times in nanoseconds.
    pub fn distance(self, other: Mtime) -> u128 {
        self.0.abs_diff(other.0)
    }
}

/// Pins the content that a listing saw: an ETag, a version id, or device + inode + ctime + size. Opaque:
/// only the store that made it can read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub Arc<[u8]>);

impl Version {
    /// A version of exactly these bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Version(bytes.as_ref().into())
    }
}

/// Facts that pin the content of a file with an inode. Where a store's `Caps::changed` is an inode's ctime, its versions are
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// The device: major number in the upper half, minor in the lower.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
    /// Change time, which no user can set back.
    pub ctime: Mtime,
    /// Modification time.
    pub mtime: Mtime,
    /// Bytes.
    pub size: u64,
}

impl Inode {
    /// As a version: each number big-endian, times as seconds and nanoseconds.
    pub fn to_version(self) -> Version {
        let mut bytes = [0; 48];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&self.dev.to_be_bytes());
        put(&self.ino.to_be_bytes());
        for time in [self.ctime, self.mtime] {
            put(&time.secs().to_be_bytes());
            put(&time.nanos().to_be_bytes());
        }
        put(&self.size.to_be_bytes());
        Version::new(bytes)
    }

    /// Decodes a version; `None` when it isn't an inode's.
    pub fn of(version: &Version) -> Option<Inode> {
        let bytes: &[u8; 48] = version.0[..].try_into().ok()?;
        let long = |at: usize| bytes[at..at + 8].try_into().map(u64::from_be_bytes).ok();
        let time = |at: usize| {
            let nanos = bytes[at + 8..at + 12].try_into().map(u32::from_be_bytes).ok()?;
            Some(Mtime::new(long(at)? as i64, nanos))
        };
        Some(Inode { dev: long(0)?, ino: long(8)?, ctime: time(16)?, mtime: time(28)?, size: long(40)? })
    }
}

/// Metadata by name, in the names and text forms that rclone's `--metadata` uses: `mode` (octal), `uid`, `gid`,
/// `atime`, `btime`, `mtime` (RFC 3339), `content-type`, `tier`, … and the user's own.
pub type Meta = BTreeMap<String, String>;

/// File system facts of an inode beside size and times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posix {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Device numbers, major and minor, of a device.
    pub rdev: (u32, u32),
    /// Names that the inode has.
    pub nlink: u32,
    /// The device that it is on, major and minor.
    pub dev: (u32, u32),
    /// Its number there.
    pub ino: u64,
    /// Last access.
    pub atime: Mtime,
    /// Size as the file system reports it, also of entries without bytes of their own (directories, symlinks that aren't kept).
    pub size: u64,
    /// Where a symlink points, if that was read.
    #[serde(default, with = "crate::wire::maybe_bytes", skip_serializing_if = "Option::is_none")]
    pub target: Option<Box<[u8]>>,
}

impl Posix {
    /// True for a symlink.
    pub fn is_symlink(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }
}

/// One listed entry. Facts only: no error, no decision, no handle to its store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name, relative to the store's root.
    pub key: Key,
    /// File, directory, symlink …
    pub kind: Kind,
    /// Size in bytes; 0 for entries without content.
    pub size: u64,
    /// False where the size is unknown before the bytes arrive: it is reported as 0 and ignored; `stat` finds it out.
    pub sized: bool,
    /// The modification time that a user sees; `None` when this listing can't know it without asking again.
    pub mtime: Option<Mtime>,
    /// When the store last saw it change, by the store's own clock: an inode's ctime, or a bucket's LastModified.
    /// `Caps::changed` gives its meaning; a user can't set it, which is what makes it worth having.
    pub changed: Option<Mtime>,
    /// Pins the content, for conditional reads and writes.
    pub version: Option<Version>,
    /// Hashes known without reading the bytes.
    pub hashes: Hashes,
    /// Metadata, when it was asked for.
    pub meta: Option<Box<Meta>>,
    /// Facts of its inode, when they were asked for and it has one.
    pub posix: Option<Box<Posix>>,
    /// The store knows that its content is lost or truncated: it equals no other file, and can't be read. For a
    /// [special](Kind::Special) entry: a followed symlink whose target is missing; the target may have been a directory.
    #[serde(default, skip_serializing_if = "crate::wire::is_false")]
    pub damaged: bool,
}

impl Entry {
    /// A file of which only key and size are known.
    pub fn file(key: Key, size: u64) -> Self {
        Entry {
            key,
            kind: Kind::File,
            size,
            sized: true,
            mtime: None,
            changed: None,
            version: None,
            hashes: Hashes::default(),
            meta: None,
            posix: None,
            damaged: false,
        }
    }

    /// A directory; `key` gets a trailing `/` if missing.
    pub fn dir(key: Key) -> Self {
        let key = if key.is_dir() || key.is_root() { key } else { key.with_suffix("/") };
        Entry { kind: Kind::Dir, ..Entry::file(key, 0) }
    }

    /// A file or symlink, depending on its key, of which only the size is known.
    pub fn with_bytes(key: Key, size: u64) -> Self {
        let kind = if key.is_symlink() { Kind::Symlink } else { Kind::File };
        Entry { kind, ..Entry::file(key, size) }
    }

    /// True for a symlink that is kept as one.
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }

    /// True for an entry with bytes: a file, or a symlink that is kept as one.
    pub fn has_bytes(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Symlink)
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// Refuses an entry whose content is damaged, also one without bytes, which needn't be read.
    ///
    /// Errors: `Corrupt` where the content is known to be damaged.
    pub fn undamaged(&self) -> Result<()> {
        let message = "its store knows that its content is lost or was cut off";
        if self.damaged { Err(Error::new(ErrorKind::Corrupt, "read", message).with_key(&self.key)) } else { Ok(()) }
    }

    /// True where both sizes are known and differ.
    pub fn size_differs(&self, other: &Entry) -> bool {
        self.sized && other.sized && self.size != other.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_a_symlink_from_a_file_that_is_called_as_it_is_stored() {
        assert_eq!(Entry::with_bytes(Key::symlink("d/k"), 1).kind, Kind::Symlink);
        assert_eq!(Entry::with_bytes(Key::new("d/k.rclonelink"), 1), Entry::file(Key::new("d/k.rclonelink"), 1));
    }

    #[test]
    fn times_before_the_epoch_keep_their_parts() {
        let t = Mtime(-1);
        assert_eq!((t.secs(), t.nanos()), (-1, 999_999_999));
        assert_eq!(Mtime::new(t.secs(), t.nanos()), t);
    }

    #[test]
    fn a_version_of_an_inode_says_what_it_pins() {
        let inode =
            Inode { dev: 8 << 32 | 1, ino: 77, ctime: Mtime(-5), mtime: Mtime(1_600_000_000_000_000_001), size: 9 };
        assert_eq!(Inode::of(&inode.to_version()), Some(inode));
        assert_eq!(Inode::of(&Version::new("764efa883dda1e11db47671c4a3bbd9e")), None);
    }

    #[test]
    fn a_directory_entry_ends_in_a_slash() {
        assert_eq!(Entry::dir(Key::new("a")).key, Key::new("a/"));
        assert_eq!(Entry::dir(Key::new("a/")).key, Key::new("a/"));
        assert_eq!(Entry::dir(Key::new("")).key, Key::new(""));
    }
}
