//! A directory that gets another name with all that is below it, see [`haul_store::CopyHow::RenameDir`].

use super::{
    Local,
    dir::Root,
    error::{check_key, source_error, target_error},
    meta,
};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{CopyItem, Stored};
use rustix::{
    fs::{FileType, RenameFlags},
    io::Errno,
};

/// Renames a directory of `from`.
pub(super) fn rename(local: &Local, from: &Root, item: &CopyItem) -> Result<Stored> {
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
    match rustix::fs::renameat_with(&above, old, &dir, new, RenameFlags::NOREPLACE) {
        Ok(()) => {
            from.forget();
            local.root.forget();
            Ok(Stored::default())
        }
        Err(Errno::EXIST) => Err(error(ErrorKind::Exists, "something is there already")),
        // Another file system, one that doesn't know the flag, a place in itself, a mount point.
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BUSY) => {
            Err(error(ErrorKind::Unsupported, "this directory can't be renamed to there"))
        }
        Err(errno) => Err(target_error(item)(errno)),
    }
}

/// The last part of a directory's key, without its slash.
fn name(dir: &Key) -> &[u8] {
    let name = dir.name();
    name.strip_suffix(b"/").unwrap_or(name)
}
