//! The folder for sockets: the user's own, that nobody else can look into.

#![allow(clippy::disallowed_methods)] // It is the user's runtime folder, and no store.

use haul_core::{Error, ErrorKind, Result};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode},
    io::Errno,
};
use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Where the folder is when the system has none for what a session's processes need (`XDG_RUNTIME_DIR`).
const ELSE: &str = "/tmp";

/// The folder, made if it isn't there.
///
/// Errors: it can't be made, or belongs to another user or is open to others.
pub fn of_user(runtime: Option<&Path>) -> Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let path = match runtime {
        Some(runtime) => runtime.join("haul"),
        None => Path::new(ELSE).join(format!("haul-{uid}")),
    };
    let fail = |errno: Errno| {
        let message = format!("{}: {}", path.display(), std::io::Error::from(errno));
        Error::new(ErrorKind::Io, "connect", message)
    };
    match rustix::fs::mkdir(&path, Mode::RWXU) {
        Err(errno) if errno != Errno::EXIST => return Err(fail(errno)),
        _ => {}
    }
    let st = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
    let own = FileType::from_raw_mode(st.st_mode) == FileType::Directory && st.st_uid == uid && st.st_mode & 0o077 == 0;
    match own {
        true => Ok(path),
        false => {
            let message =
                format!("{} isn't a directory of this user alone: remove it or set XDG_RUNTIME_DIR", path.display());
            Err(Error::new(ErrorKind::Denied, "connect", message))
        }
    }
}

/// A name that nothing has yet.
pub fn new_name(dir: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let random = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
    dir.join(format!("{random:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_open_is_refused() {
        let runtime = tempfile::tempdir().unwrap();
        let dir = of_user(Some(runtime.path())).unwrap();
        assert_eq!(of_user(Some(runtime.path())).unwrap(), dir);
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error = of_user(Some(runtime.path())).unwrap_err();
        let expected =
            format!("{} isn't a directory of this user alone: remove it or set XDG_RUNTIME_DIR", dir.display());
        assert_eq!(error.message(), expected);
        assert_ne!(new_name(&dir), new_name(&dir));
    }
}
