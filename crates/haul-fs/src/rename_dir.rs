//! A directory that gets another name with all that is below it, see [`haul_store::CopyHow::RenameDir`].

use super::{
    Local,
    dir::{Dir, Root},
    error::{check_key, source_error, target_error},
    meta,
};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{CopyItem, StoredFacts};
use rustix::{
    fs::{AtFlags, FileType, Mode, RenameFlags},
    io::Errno,
};

/// Renames a directory of `from`.
pub(super) fn rename(local: &Local, from: &Root, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let error = |kind, message| Error::new(kind, OP, message).with_key(&item.to);
    for key in [&item.from, &item.to] {
        check_key(OP, key)?;
    }
    let (old, new) = (name(&item.from), name(&item.to));
    let above = from.dir_beneath(item.from.parent().as_bytes()).map_err(source_error(item))?;
    let st = meta::facts_at(&above, old, false, meta::FACTS).map_err(source_error(item))?;
    if meta::file_type(&st) != FileType::Directory {
        return Err(error(ErrorKind::Unsupported, "what is to be renamed is no directory itself"));
    }
    let dir = local.root.make(item.to.parent().as_bytes()).map_err(target_error(item))?;
    let renamed = match rustix::fs::renameat_with(&above, old, &dir, new, RenameFlags::NOREPLACE) {
        // Some network file systems don't know the flag, and a directory in itself is as wrong to those that do.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => over_empty((&above, old), (&dir, new)),
        answer => answer,
    };
    match renamed {
        Ok(()) => {
            from.forget();
            local.root.forget();
            Ok(StoredFacts::default())
        }
        Err(Errno::EXIST) => Err(error(ErrorKind::Exists, "something is there already")),
        // Another file system, a place in itself, a mount point.
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BUSY) => {
            Err(error(ErrorKind::Unsupported, "this directory can't be renamed to there"))
        }
        Err(errno) => Err(target_error(item)(errno)),
    }
}

/// Renames a directory over an empty one that is made for it: so nothing is replaced that somebody else has made.
fn over_empty((from, old): (&Dir, &[u8]), (to, new): (&Dir, &[u8])) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(to, new, Mode::RWXU)?;
    rustix::fs::renameat(from, old, to, new).inspect_err(|_| {
        // Report the first error, which says more than one from the cleanup would.
        let _ = rustix::fs::unlinkat(to, new, AtFlags::REMOVEDIR);
    })
}

/// The last part of a directory's key, without its slash.
fn name(dir: &Key) -> &[u8] {
    let name = dir.name();
    name.strip_suffix(b"/").unwrap_or(name)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests make their own files.
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn without_the_flag_nothing_is_replaced_either() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("old/in")).unwrap();
        fs::set_permissions(path("old"), fs::Permissions::from_mode(0o751)).unwrap();
        fs::create_dir(path("empty")).unwrap();
        fs::write(path("file"), "own").unwrap();
        let root = Root::new(folder.path().as_os_str().as_encoded_bytes().to_vec(), false);
        let dir = |key: &str| root.dir_beneath(key.as_bytes()).unwrap();
        for there in ["empty", "file"] {
            assert_eq!(over_empty((&dir(""), b"old"), (&dir(""), there.as_bytes())), Err(Errno::EXIST), "{there}");
        }
        assert_eq!(over_empty((&dir(""), b"old"), (&dir("old/in/"), b"new")), Err(Errno::INVAL));
        assert!(!path("old/in/new").exists(), "what was made for it goes");
        over_empty((&dir(""), b"old"), (&dir(""), b"new")).unwrap();
        assert!(path("new/in").is_dir() && !path("old").exists());
        assert_eq!(fs::metadata(path("new")).unwrap().permissions().mode() & 0o777, 0o751);
    }
}
