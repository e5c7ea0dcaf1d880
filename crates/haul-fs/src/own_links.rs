//! Paths given by a person, opened without following symlinks of other users: someone who may write to a directory on the way must not
//! redirect a privileged run.

use rustix::{
    fs::{CWD, FileType, Mode, OFlags},
    io::{Errno, Result},
};
use std::os::fd::OwnedFd;

/// Links that are followed on one path, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// How a directory on the way, or a link, is held.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// `PROC_SUPER_MAGIC` (statfs(2)): only the kernel makes links there.
const PROC: rustix::fs::FsWord = 0x9fa0;

/// Opens what `path` leads to. Symbolic links on the way, and at its end, are followed where they belong to root or to this user.
///
/// Errors: `LOOP` for a link of another user; those of opening.
pub fn open_by_own_links(path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let mut here = start(path)?;
    let mut left: Vec<Vec<u8>> = reversed(path).collect();
    let mut links = 0;
    while let Some(part) = left.pop() {
        let found = match rustix::fs::openat(&here, &part[..], PLACE, Mode::empty()) {
            // It may be for the caller to make.
            Err(Errno::NOENT) if left.is_empty() => None,
            answer => Some(answer?),
        };
        if let Some(link) = found.as_ref().filter(|found| is_link(found)) {
            links += 1;
            let owner = rustix::fs::fstat(link)?.st_uid;
            if links > MOST_LINKS || (owner != 0 && owner != rustix::process::geteuid().as_raw()) {
                return Err(Errno::LOOP);
            }
            if rustix::fs::fstatfs(link)?.f_type == PROC {
                // Such as /dev/fd/63, a shell's `<(...)`: its link target isn't a path.
                match left.is_empty() {
                    true => return rustix::fs::openat(&here, &part[..], flags, mode),
                    false => {
                        here = rustix::fs::openat(&here, &part[..], OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?
                    }
                }
                continue;
            }
            let target = rustix::fs::readlinkat(link, c"", Vec::new())?.into_bytes();
            if target.starts_with(b"/") {
                here = start(&target)?;
            }
            left.extend(reversed(&target));
            continue;
        }
        match found {
            Some(dir) if !left.is_empty() => here = dir,
            // A component that became a link meanwhile isn't followed.
            _ => return rustix::fs::openat(&here, &part[..], flags | OFlags::NOFOLLOW, mode),
        }
    }
    rustix::fs::openat(&here, c".", flags, mode)
}

fn start(path: &[u8]) -> Result<OwnedFd> {
    let from = if path.starts_with(b"/") { c"/" } else { c"." };
    rustix::fs::openat(CWD, from, PLACE, Mode::empty())
}

/// The parts of a path, the last first.
fn reversed(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|b| *b == b'/').rev().filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}

fn is_link(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|st| FileType::from_raw_mode(st.st_mode) == FileType::Symlink)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use std::{
        fs,
        io::Read as _,
        os::unix::{ffi::OsStrExt as _, fs::symlink},
        path::Path,
    };

    fn text(path: &Path) -> Result<String> {
        let fd = open_by_own_links(path.as_os_str().as_bytes(), OFlags::RDONLY, Mode::empty())?;
        let mut text = String::new();
        fs::File::from(fd).read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn links_of_this_user_are_followed_and_those_of_others_are_not() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::write(at("d/f"), "f").unwrap();
        symlink("d", at("dir")).unwrap();
        symlink(at("d/f"), at("d/e/up")).unwrap();
        symlink("../../dir/./e/up", at("d/e/chain")).unwrap();
        for name in ["d/f", "dir/f", "dir/e/../f", "dir//e/up", "d/e/chain"] {
            assert_eq!(text(&at(name)).as_deref(), Ok("f"), "{name}");
        }
        symlink("loop", at("loop")).unwrap();
        assert_eq!(text(&at("loop")), Err(Errno::LOOP));
        assert_eq!(text(&at("d/f/x")), Err(Errno::NOTDIR));
        assert_eq!(text(&at("dir/none/x")), Err(Errno::NOENT));
        let held = fs::File::open(at("d/f")).unwrap();
        fs::remove_file(at("d/f")).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&held);
        assert_eq!(text(Path::new(&format!("/proc/self/fd/{fd}"))).as_deref(), Ok("f"), "no path leads to it");
        fs::write(at("d/f"), "f").unwrap();
        let made = OFlags::WRONLY | OFlags::CREATE;
        open_by_own_links(at("dir/new").as_os_str().as_bytes(), made, Mode::from_raw_mode(0o600)).unwrap();
        assert!(at("d/new").is_file());
        // Only root can give a link to another user.
        if std::os::unix::fs::lchown(at("dir"), Some(65534), None).is_ok() && rustix::process::geteuid().is_root() {
            assert_eq!(text(&at("dir/f")), Err(Errno::LOOP));
            assert_eq!(text(&at("d/e/chain")), Err(Errno::LOOP));
            assert_eq!(text(&at("d/e/up")).as_deref(), Ok("f"));
        }
    }
}
