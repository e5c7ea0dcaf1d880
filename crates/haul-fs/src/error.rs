//! The system's error numbers in words for users of a local disk.

use haul_core::{Error, ErrorKind, Key, Result, Retry, key};
use haul_store::CopyItem;
use rustix::io::Errno;

/// The error for `errno` while doing `op` to `key`.
pub(super) fn fail(op: &'static str, key: &Key, errno: Errno) -> Error {
    let new = |kind, message: &str| Error::new(kind, op, message).with_source(std::io::Error::from(errno));
    let error = match errno {
        // Given by openat2 for a path that leaves the root; the true cross-device cases are handled where they occur.
        Errno::XDEV => new(ErrorKind::Denied, "a symbolic link on the way leads out of the directory: remove the link"),
        Errno::LOOP => new(ErrorKind::Denied, "a symbolic link is in the way, or links form a loop"),
        Errno::ISDIR => new(ErrorKind::Exists, "is a directory"),
        Errno::NOTDIR => new(ErrorKind::NotFound, "a part of the path is not a directory"),
        Errno::NAMETOOLONG => new(ErrorKind::Invalid, "name can't be stored on a local disk: it is too long"),
        Errno::ILSEQ => new(ErrorKind::Invalid, "name can't be stored on this file system: it isn't valid text"),
        Errno::FBIG => new(ErrorKind::Invalid, "is larger than a file can be on this file system"),
        Errno::MFILE | Errno::NFILE => new(ErrorKind::Busy, "too many open files: raise the limit (ulimit -n)"),
        Errno::STALE | Errno::INTR | Errno::AGAIN => Error::from_io(op, errno.into()).with_retry(Retry::Backoff),
        _ => Error::from_io(op, errno.into()),
    };
    error.with_key(key)
}

/// Like [`fail`], for making something: a file where a directory is needed is in the way.
pub(super) fn fail_write(op: &'static str, key: &Key, errno: Errno) -> Error {
    match errno {
        Errno::NOTDIR => {
            Error::new(ErrorKind::Exists, op, "a file is where a directory is needed: remove or rename it")
                .with_source(std::io::Error::from(errno))
                .with_key(key)
        }
        Errno::PERM => {
            let message =
                "not permitted: immutable or append-only (see lsattr), or another user's in a sticky directory";
            Error::new(ErrorKind::Denied, op, message).with_source(std::io::Error::from(errno)).with_key(key)
        }
        _ => fail(op, key, errno),
    }
}

/// As [`fail_write`], where a name is created in an existing directory.
pub(super) fn fail_make(op: &'static str, key: &Key, errno: Errno) -> Error {
    match errno {
        // Answers of FAT, exFAT, NTFS and Windows' servers to a name that they refuse.
        Errno::INVAL | Errno::NOENT if only_elsewhere(key) => {
            let message =
                "name can't be stored on this file system: it doesn't take \" * : < > ? \\ | or control characters";
            Error::new(ErrorKind::Invalid, op, message).with_source(std::io::Error::from(errno)).with_key(key)
        }
        _ => fail_write(on_target(op, errno), key, errno),
    }
}

/// The failed operation: a copy whose target directory vanished hasn't lost its source.
fn on_target(op: &'static str, errno: Errno) -> &'static str {
    if errno == Errno::NOENT { "write" } else { op }
}

/// The error that closing a written file gave. What the file holds isn't known then, so trying again means to write it again;
/// asked once more, the file system would say that all is well.
pub(super) fn fail_close(op: &'static str, key: &Key, errno: Errno) -> Error {
    let write_error = fail_write(op, key, errno);
    if write_error.kind() == ErrorKind::Busy {
        // There was no descriptor to ask through.
        return write_error;
    }
    let kind = if write_error.kind() == ErrorKind::NoSpace { ErrorKind::NoSpace } else { ErrorKind::Corrupt };
    let message = format!("write error reported on close: {}", write_error.message());
    Error::new(kind, op, message).with_source(std::io::Error::from(errno)).with_key(key)
}

/// The error for a symbolic link that can't be made.
pub(super) fn fail_link(op: &'static str, key: &Key, errno: Errno) -> Error {
    match errno {
        Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS => {
            let message = "a symbolic link can't be made: the file system has none, or its directory is immutable";
            Error::new(ErrorKind::Unsupported, op, message).with_source(std::io::Error::from(errno)).with_key(key)
        }
        _ => fail_make(op, key, errno),
    }
}

/// True for a name that Linux' own file systems accept, and those of Windows don't.
fn only_elsewhere(key: &Key) -> bool {
    key.name().iter().any(|b| b.is_ascii_control() || b"\"*:<>?\\|".contains(b))
}

/// Why the root can't be used.
pub(super) fn root_error(op: &'static str, path: &[u8], errno: Errno) -> Error {
    let path = String::from_utf8_lossy(path);
    match errno {
        Errno::NOENT => Error::new(ErrorKind::DirNotFound, op, format!("{path}: no such file or directory")),
        Errno::NOTDIR => Error::new(ErrorKind::DirNotFound, op, format!("{path}: is a file, not a directory")),
        _ => {
            let error = fail(op, &Key::new(""), errno);
            Error::new(error.kind(), op, format!("{path}: {}", error.message())).with_retry(error.retry())
        }
    }
}

/// Makes errors of a copy, with the key at the source.
pub(super) fn source_error(item: &CopyItem) -> impl Fn(Errno) -> Error {
    |errno| fail("copy", &item.from, errno)
}

/// As [`source_error`], with the key at the destination.
pub(super) fn target_error(item: &CopyItem) -> impl Fn(Errno) -> Error {
    |errno| fail_write(on_target("copy", errno), &item.to, errno)
}

/// The error for content that isn't the version asked for.
pub(super) fn changed(op: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::Changed, op, "changed since it was listed").with_key(key)
}

/// Refuses names that a local disk can't hold or that would lead elsewhere.
pub(super) fn check_key(op: &'static str, key: &Key) -> Result<()> {
    let invalid = |why: &str| {
        let message = format!("name can't be stored on a local disk: {why}");
        Err(Error::new(ErrorKind::Invalid, op, message).with_key(key))
    };
    if key.is_root() {
        return Ok(());
    }
    let bytes = key::plain(key.as_bytes());
    if bytes.contains(&0) {
        return invalid("it contains a zero byte");
    }
    for part in bytes.strip_suffix(b"/").unwrap_or(bytes).split(|b| *b == b'/') {
        match part {
            b"" => return invalid("a part of it is empty"),
            b"." | b".." => return invalid("a part of it is \".\" or \"..\""),
            _ => {}
        }
    }
    Ok(())
}

/// [`check_key`] for the key of a file.
pub(super) fn check_file(op: &'static str, key: &Key) -> Result<()> {
    if key.is_root() || key.is_dir() {
        return Err(Error::new(ErrorKind::Invalid, op, "this names a directory, not a file").with_key(key));
    }
    check_key(op, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for bad in ["/a", "a//b", "../a", "a/..", "a/../b", ".", "./a", "a/./b", "a\0b", "//", "a//"] {
            let error = check_key("write", &Key::new(bad)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}");
            assert!(error.to_string().contains("name can't be stored on a local disk"), "{error}");
        }
        for good in ["a", "a/", "a/b", "...", " ", "a\nb", "..a/b.."] {
            check_key("write", &Key::new(good)).unwrap();
        }
        assert!(check_file("write", &Key::new("a/")).is_err());
        assert!(check_file("write", &Key::new("")).is_err());
    }
}
