//! Facts of files on this machine's disk, as the kernel tells them, and errors that name a path.

// A workspace and a cache are files of this machine's disk, which no store lists.
#![allow(clippy::disallowed_methods)]

use haul_core::{Error, ErrorKind, Key};
use haul_store::statx::{Statx, Time, statx};
use rustix::{
    fs::{AtFlags, StatxFlags},
    io::Errno,
};
use std::{io, os::fd::AsFd, os::unix::ffi::OsStrExt as _, path::Path};

/// Facts to ask of each file.
const MASK: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::MODE)
    .union(StatxFlags::INO)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::NLINK);

/// Facts that pin a file's content, and its mode. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: i64,
    /// Change time: no user can set it back.
    pub ctime: i64,
    /// Type and permission bits.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
}

impl Facts {
    fn new(st: &Statx) -> Facts {
        let time = |t: Time| t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec.into());
        Facts {
            dev: u64::from(st.stx_dev_major) << 32 | u64::from(st.stx_dev_minor),
            ino: st.stx_ino,
            size: st.stx_size,
            mtime: time(st.stx_mtime),
            ctime: time(st.stx_ctime),
            mode: u32::from(st.stx_mode),
            nlink: st.stx_nlink,
        }
    }

    /// Of an open file.
    pub fn of(fd: impl AsFd) -> rustix::io::Result<Facts> {
        Ok(Facts::new(&statx(fd, c"", AtFlags::EMPTY_PATH, MASK)?))
    }

    /// Of a name in a directory; a link itself unless `follow`.
    pub fn at(dir: impl AsFd, name: &[u8], follow: bool) -> rustix::io::Result<Facts> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(Facts::new(&statx(dir, name, flags, MASK)?))
    }

    /// Of a path; a link itself unless `follow`. `None` when nothing is there.
    pub fn get(path: &Path, follow: bool) -> rustix::io::Result<Option<Facts>> {
        Facts::get_at(rustix::fs::CWD, path.as_os_str().as_bytes(), follow)
    }

    /// As [`Facts::at`]; `None` when nothing is there.
    pub fn get_at(dir: impl AsFd, name: &[u8], follow: bool) -> rustix::io::Result<Option<Facts>> {
        match Facts::at(dir, name, follow) {
            Ok(facts) => Ok(Some(facts)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A regular file.
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// A directory.
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// A symlink.
    pub fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }

    /// A file that its owner may execute.
    pub fn is_exec(&self) -> bool {
        self.mode & 0o100 != 0
    }

    /// Same content, as far as facts can tell.
    pub fn same(&self, other: &Facts) -> bool {
        (self.dev, self.ino, self.size, self.mtime, self.ctime)
            == (other.dev, other.ino, other.size, other.mtime, other.ctime)
    }
}

/// A path as a key, to name it in an error.
pub fn key(path: &Path) -> Key {
    Key::new(path.as_os_str().as_bytes())
}

/// An operating system's error about a path.
pub fn io_error(op: &'static str, path: &Path, error: impl Into<io::Error>) -> Error {
    Error::from_io(op, error.into()).with_key(&key(path))
}

/// The error of what was there and is no longer.
pub fn went(path: &Path) -> Error {
    let message =
        "it went while the directory was looked at: run this again when nobody deletes or renames files there";
    Error::new(ErrorKind::Changed, "read", message).with_key(&key(path))
}

/// Something that is wrong with what a path holds.
pub fn invalid(op: &'static str, path: &Path, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, op, message).with_key(&key(path))
}
