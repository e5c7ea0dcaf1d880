//! Facts of files as the kernel tells them: by statx, or by stat where a kernel (before 4.11) or a sandbox has no statx.

use rustix::{
    fs::{AtFlags, Stat, StatxFlags, major, minor},
    io::{Errno, Result},
    path::Arg,
};
use std::os::fd::AsFd;

/// The fields of the kernel's `struct statx` that haul uses, under the kernel's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // statx(2) says what they are.
pub struct Statx {
    /// Which of the others the file system told.
    pub stx_mask: u32,
    pub stx_mode: u16,
    pub stx_nlink: u32,
    pub stx_uid: u32,
    pub stx_gid: u32,
    pub stx_ino: u64,
    pub stx_size: u64,
    pub stx_blocks: u64,
    pub stx_atime: Time,
    pub stx_btime: Time,
    pub stx_ctime: Time,
    pub stx_mtime: Time,
    pub stx_rdev_major: u32,
    pub stx_rdev_minor: u32,
    pub stx_dev_major: u32,
    pub stx_dev_minor: u32,
    pub stx_mnt_id: u64,
}

/// A time, its nanoseconds below a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // As in statx(2).
pub struct Time {
    pub tv_sec: i64,
    pub tv_nsec: u32,
}

/// Calls statx on a name in a directory, or with [`AtFlags::EMPTY_PATH`] on an open file. Without statx in the kernel there is no birth
/// time and no mount ID.
pub fn statx(dir: impl AsFd, name: impl Arg + Copy, flags: AtFlags, mask: StatxFlags) -> Result<Statx> {
    match rustix::fs::statx(&dir, name, flags, mask) {
        Ok(st) => Ok(st.into()),
        Err(Errno::NOSYS) => {
            let known = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            rustix::fs::statat(dir, name, flags & known).map(Statx::from)
        }
        Err(e) => Err(e),
    }
}

impl From<rustix::fs::Statx> for Statx {
    fn from(st: rustix::fs::Statx) -> Statx {
        let time = |t: rustix::fs::StatxTimestamp| Time { tv_sec: t.tv_sec, tv_nsec: t.tv_nsec };
        Statx {
            stx_mask: st.stx_mask,
            stx_mode: st.stx_mode,
            stx_nlink: st.stx_nlink,
            stx_uid: st.stx_uid,
            stx_gid: st.stx_gid,
            stx_ino: st.stx_ino,
            stx_size: st.stx_size,
            stx_blocks: st.stx_blocks,
            stx_atime: time(st.stx_atime),
            stx_btime: time(st.stx_btime),
            stx_ctime: time(st.stx_ctime),
            stx_mtime: time(st.stx_mtime),
            stx_rdev_major: st.stx_rdev_major,
            stx_rdev_minor: st.stx_rdev_minor,
            stx_dev_major: st.stx_dev_major,
            stx_dev_minor: st.stx_dev_minor,
            stx_mnt_id: st.stx_mnt_id,
        }
    }
}

impl From<Stat> for Statx {
    fn from(st: Stat) -> Statx {
        // Nanoseconds are less than a billion, and sizes no less than nothing.
        let time = |tv_sec: i64, nsec: u64| Time { tv_sec, tv_nsec: nsec as u32 };
        Statx {
            stx_mask: StatxFlags::BASIC_STATS.bits(),
            // The type and permissions are its lower sixteen bits.
            stx_mode: st.st_mode as u16,
            stx_nlink: st.st_nlink as u32,
            stx_uid: st.st_uid,
            stx_gid: st.st_gid,
            stx_ino: st.st_ino,
            stx_size: st.st_size as u64,
            stx_blocks: st.st_blocks as u64,
            stx_atime: time(st.st_atime, st.st_atime_nsec),
            stx_btime: Time::default(),
            stx_ctime: time(st.st_ctime, st.st_ctime_nsec),
            stx_mtime: time(st.st_mtime, st.st_mtime_nsec),
            stx_rdev_major: major(st.st_rdev),
            stx_rdev_minor: minor(st.st_rdev),
            stx_dev_major: major(st.st_dev),
            stx_dev_minor: minor(st.st_dev),
            stx_mnt_id: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::path::Path;

    #[test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    fn stat_tells_the_same_as_statx() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let file = temp.path().join("file");
        std::fs::File::create(&file).unwrap().set_len(1 << 33).unwrap();
        for path in [temp.path(), &link, &file, Path::new("/dev/null")] {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let want = statx(CWD, path, flags, StatxFlags::BASIC_STATS).unwrap();
            let got = Statx::from(rustix::fs::statat(CWD, path, flags).unwrap());
            // Known to statx only.
            let want = Statx { stx_btime: got.stx_btime, stx_mask: got.stx_mask, stx_mnt_id: got.stx_mnt_id, ..want };
            assert_eq!(got, want, "{}", path.display());
        }
    }
}
