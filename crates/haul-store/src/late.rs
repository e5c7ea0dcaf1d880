//! Errors that a file system tells only when a file is closed: NFS, SMB, FUSE and their like take bytes into memory, and send them
//! to where they stay, or find the quota used up, no sooner than that. Dropping a descriptor loses such an error; so whoever is
//! about to give a file its name, or to say that it is whole, asks here first.

use rustix::{
    fs::{AtFlags, FsWord, Statx, StatxFlags},
    io::{Errno, Result},
};
use std::{
    os::fd::AsFd,
    sync::{Mutex, PoisonError},
};

/// Kinds of file systems (`f_type` of statfs(2)) on which closing tells nothing that writing didn't: they have no `flush` to answer
/// with (Linux 6.12, `fs/*/file.c`), and find room for bytes when they take them. All others count as late: those of networks
/// and FUSE are, and being wrong about one costs two calls a file.
const PROMPT: [FsWord; 13] = [
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

/// Asked again so often when a signal came between; each time the bytes go on from where they were.
const TRIES: usize = 8;

/// True where closing a file may be the first to tell that what was written is lost. Of a file system that can't be asked too.
pub fn is_late(on: impl AsFd) -> bool {
    rustix::fs::fstatfs(on).map_or(true, |st| !PROMPT.contains(&st.f_type))
}

/// What closing this open file would answer. It stays open: each descriptor of it that is closed is answered for, so one more is
/// made, and closed.
///
/// Errors: those of what was written before, each told once; no descriptor left for another.
pub fn closing(file: impl AsFd) -> Result<()> {
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

/// Which mounts are late, each asked about once: a file system of a network is asked over the network.
#[derive(Debug, Default)]
pub struct Mounts(Mutex<Vec<(Mount, bool)>>);

/// Device and number of a mount.
type Mount = (u32, u32, u64);

impl Mounts {
    /// [`is_late`] of what is open, also if only as a place.
    pub fn is_late(&self, on: impl AsFd) -> bool {
        // What the kernel knows by itself.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        match rustix::fs::statx(&on, c"", flags, StatxFlags::MNT_ID) {
            Ok(st) => self.is_late_of(on, &st),
            Err(_) => is_late(on),
        }
    }

    /// [`closing`] of a written file where that is to be asked.
    ///
    /// Errors: as that.
    pub fn check(&self, file: impl AsFd) -> Result<()> {
        if self.is_late(&file) { closing(file) } else { Ok(()) }
    }

    /// [`Mounts::is_late`] with facts of it that hold [`StatxFlags::MNT_ID`].
    pub fn is_late_of(&self, on: impl AsFd, st: &Statx) -> bool {
        let mount = (st.stx_dev_major, st.stx_dev_minor, st.stx_mnt_id);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter().find(|(of, _)| *of == mount) {
            Some((_, late)) => *late,
            None => {
                let late = is_late(on);
                known.push((mount, late));
                late
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use std::{fs::File, io::Write as _};

    #[test]
    fn a_file_can_be_written_on_after_its_closing_was_asked_about() {
        let mut file = tempfile::tempfile().unwrap();
        for _ in 0..3 {
            file.write_all(b"bytes").unwrap();
            closing(&file).unwrap();
        }
        assert_eq!(file.metadata().unwrap().len(), 15);
    }

    #[test]
    fn what_is_not_known_to_be_prompt_is_late() {
        assert!(is_late(File::open("/proc/self").unwrap()));
        let (proc, memory) = (File::open("/proc/self").unwrap(), File::open("/dev/shm"));
        let mounts = Mounts::default();
        for _ in 0..2 {
            assert!(mounts.is_late(&proc));
            if let Ok(memory) = &memory {
                assert!(!mounts.is_late(memory));
            }
        }
    }
}
