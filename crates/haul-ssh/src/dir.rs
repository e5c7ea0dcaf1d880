//! The folder for sockets: the user's own, that nobody else can look into.

#![allow(clippy::disallowed_methods)] // Its files live as long as a login.

use haul_core::{Error, ErrorKind, Result};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode},
    io::Errno,
};
use std::{
    collections::hash_map::RandomState,
    ffi::OsString,
    hash::BuildHasher,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Where the folder is when the system has none for what a session's processes need (`XDG_RUNTIME_DIR`).
const ELSE: &str = "/tmp";

/// Answers ssh's questions for a password or passphrase from the environment of the one process that asks. Everything else, above all
/// whether a host's key is to be trusted, stays unanswered.
const ASKPASS: &str = "#!/bin/sh
case \"$1\" in
*assphrase*) answer=$HAUL_SSH_PASSPHRASE ;;
*assword*) answer=$HAUL_SSH_PASSWORD ;;
esac
test -n \"$answer\" || exit 1
printf '%s\\n' \"$answer\"
";

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

/// The program that answers ssh's questions; it is removed when what is returned is dropped.
///
/// Errors: it can't be written.
pub fn askpass(dir: &Path) -> Result<tempfile::TempPath> {
    let io = |e| Error::from_io("connect", e);
    let permissions = std::fs::Permissions::from_mode(0o700);
    let made = tempfile::Builder::new().prefix("ask").permissions(permissions).tempfile_in(dir);
    let mut file = made.map_err(io)?;
    file.write_all(ASKPASS.as_bytes()).map_err(io)?;
    Ok(file.into_temp_path())
}

/// Its path, as ssh's environment takes it.
pub fn variable(path: &Path) -> OsString {
    path.as_os_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_open_is_refused() {
        let runtime = tempfile::tempdir().unwrap();
        let dir = of_user(Some(runtime.path())).unwrap();
        assert_eq!(of_user(Some(runtime.path())).unwrap(), dir);
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = of_user(Some(runtime.path())).unwrap_err();
        let said = format!("{} isn't a directory of this user alone: remove it or set XDG_RUNTIME_DIR", dir.display());
        assert_eq!(error.message(), said);
        assert_ne!(new_name(&dir), new_name(&dir));
    }

    #[test]
    fn only_passwords_are_answered() {
        let dir = tempfile::tempdir().unwrap();
        let program = askpass(dir.path()).unwrap();
        let ask = |question: &str| {
            let mut ssh = std::process::Command::new(&program);
            let asked = ssh.arg(question).env("HAUL_SSH_PASSWORD", "pa$s %s").env("HAUL_SSH_PASSPHRASE", "phrase");
            let output = asked.output().unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(ask("anna@host's password: "), (true, "pa$s %s\n".into()));
        assert_eq!(ask("Enter passphrase for key '/k': "), (true, "phrase\n".into()));
        assert_eq!(ask("Are you sure you want to continue connecting (yes/no)? "), (false, String::new()));
        assert_eq!(ask("Verification code: "), (false, String::new()));
    }
}
