//! Errors that a file system reports late: NFS, SMB, FUSE and their like take bytes into memory, and write them back, or
//! find the quota used up, afterwards. Dropping a descriptor loses the errors of its close; so a caller that is about to rename a file
//! to its final name, or to report it as complete, asks here first.

use crate::statx::{Statx, statx};
use rustix::{
    fs::{AtFlags, FsWord, StatxFlags},
    io::{Errno, Result},
};
use std::{
    os::fd::AsFd,
    sync::{Mutex, PoisonError},
};

/// When a file system reports the loss of bytes that it accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReporting {
    /// When they are written, or when the device fails later: nothing is to be asked.
    AtOnce,
    /// When the file is closed.
    Closing,
    /// When they are forced out (fdatasync), and at closing not all of it.
    Forced,
}

/// Kinds of file systems (`f_type` of statfs(2)) on which close reports nothing that write didn't: they reserve space for bytes when
/// they take them, and write them to a device of this machine. All others count as late: network file systems and FUSE are, and a
/// wrong guess costs two calls a file.
const AT_ONCE: [FsWord; 13] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlay, whose upper layer is one of these
    0x2FC1_2FC1, // zfs
    0xF2F5_2010, // f2fs
    0xCA45_1A4E, // bcachefs
    0x3153_464A, // jfs
    0x4D44,      // fat
    0x2011_BAB0, // exfat
    0x7366_746E, // ntfs3
];

/// File systems that must be fsynced. On close, NFS reports only errors of what it writes then, not earlier ones, and with a write
/// delegation doesn't wait for it (Linux 6.12, `nfs_file_flush`, `nfs4_file_flush`); otherwise close sends everything to the server too, so
/// that the fsync costs nothing more. Ceph's client reports nothing on close (`ceph_file_fops`); fdatasync waits for the data alone.
const FORCED: [FsWord; 2] = [
    0x6969,      // nfs
    0x00C3_6400, // ceph
];

/// Tries when a signal interrupts; each continues the write-out where the last one stopped.
const TRIES: usize = 8;

/// When the file system of an open file reports errors, by its kind. [`LossReporting::Closing`] if that can't be found out.
pub fn tells(on: impl AsFd) -> LossReporting {
    rustix::fs::fstatfs(on).map_or(LossReporting::Closing, |st| by_kind(st.f_type))
}

fn by_kind(kind: FsWord) -> LossReporting {
    match kind {
        kind if AT_ONCE.contains(&kind) => LossReporting::AtOnce,
        kind if FORCED.contains(&kind) => LossReporting::Forced,
        _ => LossReporting::Closing,
    }
}

/// Asks the file system whether it holds the data written to an open file, which stays open.
///
/// Errors: write errors, reported here once; no descriptor left for another.
pub fn ask(file: impl AsFd, tells: LossReporting) -> Result<()> {
    match tells {
        LossReporting::AtOnce => Ok(()),
        LossReporting::Closing => closing(file),
        LossReporting::Forced => rustix::fs::fdatasync(&file).and_then(|()| closing(file)),
    }
}

/// The error that closing this open file would report. Every close of a descriptor reports, so a duplicate is made and closed.
fn closing(file: impl AsFd) -> Result<()> {
    for _ in 0..TRIES {
        let twin = rustix::io::fcntl_dupfd_cloexec(&file, 0)?;
        match nix::unistd::close(twin) {
            // Linux closes it all the same, so only another can be asked.
            Err(nix::errno::Errno::EINTR) => {}
            answer => return answer.map_err(|errno| Errno::from_raw_os_error(errno as i32)),
        }
    }
    Err(Errno::INTR)
}

/// When the file system of each mount reports errors, found out once: for a network file system that is a request.
#[derive(Debug, Default)]
pub struct Mounts(Mutex<Vec<(Mount, LossReporting)>>);

/// Device and number of a mount.
type Mount = (u32, u32, u64);

impl Mounts {
    /// [`tells`] for an open file, even one opened with `O_PATH`.
    pub fn tells(&self, on: impl AsFd) -> LossReporting {
        // Answered from the kernel's cache.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        match statx(&on, c"", flags, StatxFlags::MNT_ID) {
            Ok(st) => self.tells_of(on, &st),
            Err(_) => tells(on),
        }
    }

    /// As [`Mounts::tells`], for a caller that has facts of it with [`StatxFlags::MNT_ID`].
    pub fn tells_of(&self, on: impl AsFd, st: &Statx) -> LossReporting {
        let mount = (st.stx_dev_major, st.stx_dev_minor, st.stx_mnt_id);
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, told)) = known().iter().find(|(of, _)| *of == mount) {
            return *told;
        }
        // Not while others wait: a network may take its time.
        let reporting = tells(on);
        known().push((mount, reporting));
        reporting
    }

    /// [`ask`] of a written file as its mount wants it.
    ///
    /// Errors: as that.
    pub fn ask(&self, file: impl AsFd) -> Result<()> {
        let tells = self.tells(&file);
        ask(file, tells)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use std::{fs::File, io::Write as _};

    #[test]
    fn a_file_can_be_written_on_after_it_was_asked_about() {
        let mut file = tempfile::tempfile().unwrap();
        for tells in [LossReporting::AtOnce, LossReporting::Closing, LossReporting::Forced] {
            file.write_all(b"bytes").unwrap();
            ask(&file, tells).unwrap();
        }
        assert_eq!(file.metadata().unwrap().len(), 15);
    }

    #[test]
    fn what_is_not_known_tells_at_closing() {
        let (proc, memory) = (File::open("/proc/self").unwrap(), File::open("/dev/shm"));
        let mounts = Mounts::default();
        for _ in 0..2 {
            assert_eq!(mounts.tells(&proc), LossReporting::Closing);
            if let Ok(memory) = &memory {
                assert_eq!(mounts.tells(memory), LossReporting::AtOnce);
            }
        }
        assert_eq!(
            [0x6969, 0x9123_683E, 0xFE53_4D42].map(by_kind),
            [LossReporting::Forced, LossReporting::AtOnce, LossReporting::Closing]
        );
    }
}
