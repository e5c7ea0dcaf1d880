//! Files that have no name until they are whole: nothing is left of them when we are killed, and giving one its name costs less
//! than a rename (15 to 25 % of making a small file on ext4, xfs, btrfs and tmpfs).

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::{Errno, Result},
};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::OnceLock,
};

/// Makes such a file in the folder `path` (below `dir`) for reading and writing. `None` where it can't be done: the file system or
/// the kernel doesn't know them, or this process may not name one. That is found out once, under the name `probe` in that folder.
///
/// Errors: the kernel's, `NOENT` for a folder that isn't there.
pub fn create(dir: impl AsFd, path: &[u8], mode: Mode, probe: impl FnOnce() -> Vec<u8>) -> Result<Option<OwnedFd>> {
    let dir = dir.as_fd();
    let open = || match rustix::fs::openat(dir, path, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => Ok(None),
        answer => answer.map(Some),
    };
    let Some(file) = open()? else { return Ok(None) };
    // Allowed as root, or from Linux 6.10 on. Tested with a separate file: one that lost its last name can't get another.
    static MAY: OnceLock<bool> = OnceLock::new();
    let may = *MAY.get_or_init(|| {
        let name = [path, b"/", &probe()].concat();
        let named = open().ok().flatten().is_some_and(|file| give_name(&file, dir, &name).is_ok());
        if named && let Err(error) = rustix::fs::unlinkat(dir, &name[..], AtFlags::empty()) {
            tracing::warn!(%error, name = %name.escape_ascii(), "can't remove a file that was made to try names");
        }
        named
    });
    Ok(may.then_some(file))
}

/// Gives it its name, a path below `dir` on the same file system.
///
/// Errors: the kernel's, `EXIST` when something has that name.
pub fn give_name(file: impl AsFd, dir: impl AsFd, path: &[u8]) -> Result<()> {
    rustix::fs::linkat(file, c"", dir, path, AtFlags::EMPTY_PATH)
}
