//! DVC's lock on a repository (`.dvc/tmp/lock`): while it is held, no `dvc` changes `.dvc` files or the cache, nor another haul.

// The lock is a file.
#![allow(clippy::disallowed_methods)]

use crate::cache::is_hidden;
use haul_cas::facts::{io_error, key};
use haul_core::{Error, ErrorKind, Result};
use rustix::{fs::FlockOperation, io::Errno};
use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    thread,
    time::Duration,
};

/// As DVC: six tries, half a second apart.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(500);

/// Below `.dvc`: the folder of the lock and of files that are about to replace others in the workspace.
pub(crate) const TMP: &str = "tmp";

/// The lock, held. The kernel gives it back when this is dropped or the process ends, however it ends.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; waits up to three seconds for its holder. Blocks.
    ///
    /// Errors: `Busy` when it is still held then.
    pub fn take(dvc_dir: &Path) -> Result<Lock> {
        let folder = dvc_dir.join(TMP);
        fs::create_dir_all(&folder).map_err(|e| io_error("lock", &folder, e))?;
        let path = folder.join("lock");
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(|e| io_error("lock", &path, e))?;
        for tried in 0.. {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK | Errno::INTR) if tried < TRIES => thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let message = "another dvc or haul works in this repository: wait for it, and run this again";
                    return Err(Error::new(ErrorKind::Busy, "lock", message).with_key(&key(&path)));
                }
                Err(e) => return Err(io_error("lock", &path, e)),
            }
        }
        // The holder, as DVC writes it down. Only people read this.
        let _ = file.set_len(0).and_then(|()| writeln!(file, " {}", std::process::id()));
        clear(&folder);
        Ok(Lock { _file: file })
    }
}

/// Removes what a killed run left: only the holder of the lock makes such files.
fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_hidden(entry.file_name().as_bytes())
            && let Err(error) = fs::remove_file(entry.path())
        {
            tracing::debug!("{}: can't be removed: {error}", entry.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let held = Lock::take(dir.path()).unwrap();
        let error = Lock::take(dir.path()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(
            error
                .to_string()
                .ends_with("another dvc or haul works in this repository: wait for it, and run this again")
        );
        drop(held);
        let (left, other) = (dir.path().join("tmp/.haul-1-0.tmp"), dir.path().join("tmp/rwlock"));
        fs::write(&left, "x").unwrap();
        fs::write(&other, "{}").unwrap();
        Lock::take(dir.path()).unwrap();
        assert!(!left.exists() && other.exists());
    }
}
