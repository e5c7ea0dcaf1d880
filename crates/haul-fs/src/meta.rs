//! Facts of files as entries, versions and metadata in rclone's names and forms, and how to set them.

use super::error::{self, fail};
use haul_core::{
    Entry, Error, ErrorKind, Inode, Key, Kind, Meta, Mtime, Posix, Result, Version, attributes::FileAttributes,
};
use haul_store::{
    CopyHow, CopyItem, recent_change,
    statx::{Statx, Time, statx},
};
use jiff::Timestamp;
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags},
    io::Errno,
};
use std::os::fd::{AsFd, AsRawFd};

/// statx fields that a listing requests.
pub(super) const FACTS: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::INO)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::BLOCKS)
    .union(StatxFlags::MODE);

/// Fields that it requests when metadata is wanted too.
pub(super) const FACTS_AND_META: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Fields that it requests when facts of inodes are wanted too.
pub(super) const FACTS_AND_POSIX: StatxFlags = StatxFlags::BASIC_STATS;

/// Names in [`Meta`] that aren't the user's own.
const SYSTEM: [&str; 7] = ["mode", "uid", "gid", "rdev", "atime", "btime", "mtime"];

/// Names of extended attributes that hold the user's own metadata.
const USER: &[u8] = b"user.";

/// Asks about an open file.
pub(super) fn facts(fd: impl AsFd, mask: StatxFlags) -> rustix::io::Result<Statx> {
    statx(fd, c"", AtFlags::EMPTY_PATH, mask)
}

/// Facts of an open file that is about to be read, once they show every change from then on, see [`recent_change`]. The second
/// value is true where that took an effort.
pub(super) fn still_facts(fd: impl AsFd, mask: StatxFlags) -> rustix::io::Result<(Statx, bool)> {
    let st = facts(&fd, mask)?;
    let waited = file_type(&st) == FileType::RegularFile && recent_change::wait(&fd, mtime(&st), changed(&st));
    Ok((if waited { facts(fd, mask)? } else { st }, waited))
}

/// Asks about a name, following a link when `follow`.
pub(super) fn facts_at(dir: impl AsFd, name: &[u8], follow: bool, mask: StatxFlags) -> rustix::io::Result<Statx> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, mask)
}

pub(super) fn file_type(st: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(st.stx_mode))
}

fn time(t: Time) -> Mtime {
    Mtime::new(t.tv_sec, t.tv_nsec)
}

/// The kernel's facts about an entry on another machine, as far as they were sent.
pub(super) fn of_carried(carried: &FileAttributes) -> Statx {
    let time = |time: Mtime| Time { tv_sec: time.secs(), tv_nsec: time.nanos() };
    Statx {
        stx_mask: FACTS.bits(),
        stx_mode: carried.mode as u16,
        stx_nlink: 1,
        stx_uid: carried.uid,
        stx_gid: carried.gid,
        stx_ino: 0,
        stx_size: 0,
        stx_blocks: 0,
        stx_atime: time(carried.atime),
        stx_btime: Time::default(),
        stx_ctime: Time::default(),
        stx_mtime: time(carried.mtime),
        stx_rdev_major: carried.rdev.0,
        stx_rdev_minor: carried.rdev.1,
        stx_dev_major: 0,
        stx_dev_minor: 0,
        stx_mnt_id: 0,
    }
}

pub(super) fn mtime(st: &Statx) -> Mtime {
    time(st.stx_mtime)
}

/// Device and inode, which identify it among all existing files.
pub(super) fn id(st: &Statx) -> (u32, u32, u64) {
    (st.stx_dev_major, st.stx_dev_minor, st.stx_ino)
}

/// When the file system last saw it change.
pub(super) fn changed(st: &Statx) -> Mtime {
    time(st.stx_ctime)
}

/// When the name last changed that leads to something which itself changed then: a link that was made later leads there since then.
/// `None` where the link can't be asked.
pub(super) fn changed_behind(dir: impl AsFd, name: &[u8], there: Option<Mtime>) -> Option<Mtime> {
    facts_at(dir, name, false, FACTS).ok().and_then(|link| there.max(Some(changed(&link))))
}

pub(super) fn atime(st: &Statx) -> Mtime {
    time(st.stx_atime)
}

/// True when a file about to be deleted still matches version `want`: all but the ctime, which also changes when another
/// name of the same file is deleted.
pub(super) fn pinned(want: &Version, st: &Statx) -> bool {
    let now = inode(st);
    Inode::of(want).is_some_and(|want| Inode { ctime: now.ctime, ..want } == now)
}

/// Pins content: ctime moves with any change and can't be set back.
fn inode(st: &Statx) -> Inode {
    Inode {
        dev: u64::from(st.stx_dev_major) << 32 | u64::from(st.stx_dev_minor),
        ino: st.stx_ino,
        ctime: changed(st),
        mtime: mtime(st),
        size: st.stx_size,
    }
}

pub(super) fn version(st: &Statx) -> Version {
    inode(st).to_version()
}

/// The entry of something with these facts; `key` ends in `/` if and only if it is a directory.
pub(super) fn entry(key: Key, kind: Kind, st: &Statx) -> Entry {
    let bytes = matches!(kind, Kind::File | Kind::Symlink);
    Entry {
        kind,
        size: if bytes { st.stx_size } else { 0 },
        mtime: Some(mtime(st)),
        changed: Some(changed(st)),
        version: bytes.then(|| version(st)),
        ..Entry::file(key, 0)
    }
}

/// Facts of an inode that was asked for with [`FACTS_AND_POSIX`].
pub(super) fn posix(st: &Statx) -> Posix {
    Posix {
        mode: u32::from(st.stx_mode),
        uid: st.stx_uid,
        gid: st.stx_gid,
        rdev: (st.stx_rdev_major, st.stx_rdev_minor),
        nlink: st.stx_nlink,
        dev: (st.stx_dev_major, st.stx_dev_minor),
        ino: st.stx_ino,
        atime: time(st.stx_atime),
        size: st.stx_size,
        target: None,
    }
}

/// Metadata of `name` in `dir`: mode, owner, times, and the user's own from `user.*` attributes (those that are text).
pub(super) fn meta_at(dir: impl AsFd, name: &[u8], st: &Statx) -> Box<Meta> {
    // The path through /proc reaches the attributes without opening the file, which might not be allowed.
    let path = [format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).as_bytes(), name].concat();
    meta_of(&path, st)
}

/// As [`meta_at`], for a path.
pub(super) fn meta_of(path: &[u8], st: &Statx) -> Box<Meta> {
    let mut meta = system_meta(st);
    for attr in user_attrs(path) {
        if let (Ok(key), Some(value)) = (String::from_utf8(attr[USER.len()..].to_vec()), attr_value(path, &attr)) {
            meta.insert(key, value);
        }
    }
    Box::new(meta)
}

/// The extended attribute for a pair of metadata that is the user's own.
pub(super) fn user_attr(name: &str, value: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    (!SYSTEM.contains(&name)).then(|| ([USER, name.as_bytes()].concat(), value.into()))
}

fn user_attrs(path: &[u8]) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let len = match rustix::fs::llistxattr(path, &mut buffer[..]) {
        Err(Errno::RANGE) => {
            // The kernel's own limit of a list of names.
            buffer = vec![0; 64 << 10];
            rustix::fs::llistxattr(path, &mut buffer[..]).unwrap_or(0)
        }
        answer => answer.unwrap_or(0),
    };
    buffer[..len].split(|b| *b == 0).filter(|n| n.starts_with(USER)).map(<[u8]>::to_vec).collect()
}

fn attr_value(path: &[u8], attr: &[u8]) -> Option<String> {
    let size = rustix::fs::lgetxattr_query(path, attr).ok()?;
    let mut value = vec![0; size.max(1)];
    let len = rustix::fs::lgetxattr(path, attr, &mut value[..]).ok()?;
    value.truncate(len);
    String::from_utf8(value).ok()
}

fn system_meta(st: &Statx) -> Meta {
    let mut meta = Meta::new();
    meta.insert("mode".into(), format!("{:o}", st.stx_mode));
    meta.insert("uid".into(), st.stx_uid.to_string());
    meta.insert("gid".into(), st.stx_gid.to_string());
    let mut put = |name: &str, t: Time| {
        if let Ok(at) = Timestamp::new(t.tv_sec, t.tv_nsec as i32) {
            meta.insert(name.into(), at.to_string());
        }
    };
    put("mtime", st.stx_mtime);
    put("atime", st.stx_atime);
    if st.stx_mask & StatxFlags::BTIME.bits() != 0 {
        put("btime", st.stx_btime);
    }
    meta
}

/// A metadata value that is a time.
pub(super) fn meta_time(meta: Option<&Meta>, name: &str) -> Option<Mtime> {
    let at: Timestamp = meta?.get(name)?.parse().ok()?;
    Some(Mtime(at.as_nanosecond()))
}

/// The permission bits that metadata asks for.
pub(super) fn meta_mode(meta: Option<&Meta>, keep_setid: bool) -> Option<Mode> {
    let mode = u32::from_str_radix(meta?.get("mode")?, 8).ok()?;
    Some(Mode::from_raw_mode(mode & if keep_setid { 0o7777 } else { 0o777 }))
}

/// Times for the kernel. A missing access time becomes now, not the old one: many file systems in user
/// space (libfuse 2's) silently set neither time when asked to leave one alone. To keep the old access time,
/// pass it. A missing modification time stays as it is.
pub(super) fn times(atime: Option<Mtime>, mtime: Option<Mtime>) -> Timestamps {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let spec = |t: Mtime| Timespec { tv_sec: t.secs(), tv_nsec: t.nanos().into() };
    let none = if mtime.is_some() { UTIME_NOW } else { UTIME_OMIT };
    Timestamps {
        last_access: atime.map_or(special(none), spec),
        last_modification: mtime.map_or(special(UTIME_OMIT), spec),
    }
}

/// Sets everything that metadata says, times too, on an open file or directory. What this user may not set (the
/// owner, without root) or the file system can't keep (attributes) is left, as archiving tools do.
pub(super) fn apply(
    op: &'static str,
    key: &Key,
    fd: impl AsFd,
    meta: &Meta,
    mtime: Option<Mtime>,
    keep_setid: bool,
) -> Result<()> {
    let fd = fd.as_fd();
    let id = |name: &str| meta.get(name).and_then(|v| v.parse::<u32>().ok());
    let (uid, gid) = (id("uid").map(Uid::from_raw), id("gid").map(Gid::from_raw));
    // Owner before mode: changing the owner clears the set-id bits.
    if uid.is_some() || gid.is_some() {
        own(op, key, fd, uid, gid)?;
    }
    for (name, value) in meta.iter().filter(|(name, _)| !SYSTEM.contains(&name.as_str())) {
        let attr = [USER, name.as_bytes()].concat();
        match rustix::fs::fsetxattr(fd, &attr[..], value.as_bytes(), XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::RANGE | Errno::TOOBIG | Errno::NOSPC | Errno::INVAL) => {
                tracing::debug!(%key, name, "this file system can't keep this metadata");
            }
            Err(errno) => return Err(fail(op, key, errno)),
        }
    }
    if let Some(mode) = meta_mode(Some(meta), keep_setid) {
        rustix::fs::fchmod(fd, mode).map_err(|e| fail(op, key, e))?;
    }
    let mtime = mtime.or_else(|| meta_time(Some(meta), "mtime"));
    let atime = meta_time(Some(meta), "atime");
    if mtime.is_some() || atime.is_some() {
        let atime = atime.or_else(|| facts(fd, StatxFlags::ATIME).ok().map(|st| self::atime(&st)));
        rustix::fs::futimens(fd, &times(atime, mtime)).map_err(|e| fail(op, key, e))?;
    }
    Ok(())
}

fn own(op: &'static str, key: &Key, fd: impl AsFd, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
    match rustix::fs::fchown(&fd, uid, gid) {
        Err(Errno::PERM) => {
            // A user may still give a file to a group that they are in.
            if gid.is_none() || rustix::fs::fchown(&fd, None, gid).is_err() {
                tracing::debug!(%key, "not allowed to set the owner");
            }
            Ok(())
        }
        answer => answer.map_err(|e| fail(op, key, e)),
    }
}

/// Refuses a time that the kernel can't take, before it is silently cut.
pub(super) fn check_time(op: &'static str, key: &Key, mtime: Option<Mtime>) -> Result<()> {
    match mtime {
        Some(t) if i64::try_from(t.0.div_euclid(1_000_000_000)).is_err() => {
            Err(Error::new(ErrorKind::Invalid, op, "modification time is out of range").with_key(key))
        }
        _ => Ok(()),
    }
}

/// Refuses a source that isn't the listed one. For a rename the ctime may have moved, as it does when
/// another name of the same file is renamed.
pub(super) fn check_want(item: &CopyItem, st: &Statx) -> Result<()> {
    let is = |want: &Version| {
        *want == version(st) || matches!(item.how, CopyHow::Rename | CopyHow::Link) && pinned(want, st)
    };
    match &item.want {
        Some(want) if !is(want) => Err(error::changed("copy", &item.from)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_are_dropped_unless_asked_for() {
        let meta = Meta::from([("mode".to_string(), "104755".to_string())]);
        assert_eq!(meta_mode(Some(&meta), false), Some(Mode::from_raw_mode(0o755)));
        assert_eq!(meta_mode(Some(&meta), true), Some(Mode::from_raw_mode(0o4755)));
    }

    #[test]
    fn no_time_is_left_alone_beside_one_that_is_set() {
        let both = times(None, Some(Mtime(-1)));
        assert_eq!((both.last_modification.tv_sec, both.last_modification.tv_nsec), (-1, 999_999_999));
        assert_eq!(both.last_access.tv_nsec, UTIME_NOW);
        assert_eq!(times(None, None).last_access.tv_nsec, UTIME_OMIT);
    }

    #[test]
    fn times_in_metadata_are_rfc_3339() {
        let meta = Meta::from([("atime".to_string(), "1969-12-31T23:59:59.999999999Z".to_string())]);
        assert_eq!(meta_time(Some(&meta), "atime"), Some(Mtime(-1)));
        assert_eq!(meta_time(Some(&meta), "mtime"), None);
    }
}
