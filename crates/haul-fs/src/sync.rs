//! fsync of written data: every file system mounted at or below the root.

use super::{
    Local,
    error::{fail, root_error},
    mounts::{Mount, mounts},
};
use haul_core::{Key, Result};
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
};
use std::os::fd::OwnedFd;

const OP: &str = "sync";

/// See [`haul_store::Admin::sync`]; runs on the pool. What was written before a writeback failed is lost then, so its error is
/// the job's.
pub(super) fn sync(local: &Local) -> Result<()> {
    let root = open(local.root.path()).map_err(|e| root_error(OP, local.root.path(), e))?;
    rustix::fs::syncfs(&root).map_err(|e| root_error(OP, local.root.path(), e))?;
    // Opening an automounter's place would mount something.
    for mount in mounts().into_iter().filter(|mount| mount.is_below(&local.place) && mount.kind != b"autofs") {
        let synced = match open(&mount.place) {
            // Unmounted meanwhile (which wrote everything out), or not ours to open, so that nothing was written there.
            Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
            Ok(fd) => rustix::fs::syncfs(fd),
        };
        synced.map_err(|errno| fail(OP, &Key::new(&mount.place), errno))?;
    }
    Ok(())
}

fn open(path: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

impl Mount {
    /// True when it is mounted below `root`, which has no `/` at its end.
    fn is_below(&self, root: &[u8]) -> bool {
        self.place.strip_prefix(root).is_some_and(|below| below.len() > 1 && below[0] == b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mounted_below_the_root_counts() {
        let at =
            |place: &[u8]| Mount { device: vec![], root: vec![], place: place.to_vec(), kind: vec![], source: vec![] };
        assert!(at(b"/data/in").is_below(b"/data"));
        assert!(!at(b"/data").is_below(b"/data"));
        assert!(!at(b"/database").is_below(b"/data"));
    }
}
