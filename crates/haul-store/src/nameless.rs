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
    // As root, or from Linux 6.10 on. With a file of its own: one that lost its last name can't get another.
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

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test reads its own files.
mod tests {
    use super::*;

    #[test]
    fn it_appears_whole_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dir = rustix::fs::open(folder.path(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let make = |path: &[u8]| create(&dir, path, Mode::from_raw_mode(0o400), || b"probe".to_vec());
        let Some(file) = make(b".").unwrap() else {
            return haul_testkit::peers::skip("files without a name can't be made here");
        };
        rustix::io::write(&file, b"whole").unwrap();
        assert_eq!(names(), 0);
        give_name(&file, &dir, b"name").unwrap();
        assert_eq!((names(), std::fs::read(folder.path().join("name")).unwrap()), (1, b"whole".to_vec()));
        let other = make(b".").unwrap().unwrap();
        assert_eq!(give_name(&other, &dir, b"name").unwrap_err(), Errno::EXIST);
        assert_eq!(make(b"none").unwrap_err(), Errno::NOENT);
    }
}
