//! Directories, metadata and deletion.

use super::{
    Local, attributes,
    dir::{Dir, Root, reopen, unlink},
    error::{changed, check_key, fail, fail_make, root_error},
    hidden::{is_temp, put_aside},
    meta,
    read::{link_name, no_link},
};
use haul_core::{Error, ErrorKind, Key, Meta, Mtime, Result, Version, key::parent};
use haul_store::{Cleanup, Links, SpaceUsage, UnfinishedWrites, WriteSpec};
use rustix::{
    fs::{AtFlags, CWD, FileType, RawDir},
    io::Errno,
};
use std::os::fd::OwnedFd;

/// See [`haul_store::Store::make_dir`].
pub(super) fn make_dir(local: &Local, key: &Key, spec: &WriteSpec) -> Result<()> {
    const OP: &str = "mkdir";
    check_key(OP, key)?;
    meta::check_time(OP, key, spec.mtime)?;
    let key = if key.is_dir() || key.is_root() { key.clone() } else { key.with_suffix("/") };
    let root_error = |errno| match errno {
        // A link that leads to no directory is in the way as a file is.
        Errno::XDEV if leads_nowhere(local, &key) => fail_make(OP, &key, Errno::EXIST),
        Errno::EXIST if key.is_root() => root_error(OP, local.root.path(), Errno::NOTDIR),
        _ if key.is_root() => root_error(OP, local.root.path(), errno),
        _ => fail_make(OP, &key, errno),
    };
    if key.is_root() && spec.is_private() {
        local.root.make_private();
    }
    let dir = match local.root.make(key.as_bytes()) {
        // The descriptor is of a deleted directory: look again.
        Ok(dir) if gone(&dir) => {
            local.root.forget();
            local.root.make(key.as_bytes()).map_err(root_error)?
        }
        answer => answer.map_err(root_error)?,
    };
    match spec.meta.as_deref() {
        Some(meta) => {
            let fd = reopen(&dir).map_err(|e| fail(OP, &key, e))?;
            meta::apply(OP, &key, &fd, meta, spec.mtime, spec.keep_setid)
        }
        None if spec.mtime.is_some() => set_times(OP, &key, &dir, b".", false, spec.mtime),
        None => Ok(()),
    }
}

/// True for the name of a link that leads out of the root, and not to a directory.
fn leads_nowhere(local: &Local, key: &Key) -> bool {
    let name = key.as_bytes().strip_suffix(b"/").unwrap_or(key.as_bytes());
    let dir = local.root.dir_beneath(parent(name));
    let there = dir.and_then(|dir| meta::facts_at(&dir, haul_core::key::name(name), true, meta::FACTS));
    match there {
        Ok(st) => meta::file_type(&st) != FileType::Directory,
        Err(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP),
    }
}

fn gone(dir: &Dir) -> bool {
    meta::facts(dir, rustix::fs::StatxFlags::NLINK).is_ok_and(|st| st.stx_nlink == 0)
}

fn set_times(op: &'static str, key: &Key, dir: &Dir, name: &[u8], follow: bool, mtime: Option<Mtime>) -> Result<()> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let set = meta::facts_at(dir, name, follow, rustix::fs::StatxFlags::ATIME)
        .and_then(|st| rustix::fs::utimensat(dir, name, &meta::times(Some(meta::atime(&st)), mtime), flags));
    set.map_err(|e| fail(op, key, e))
}

/// See [`haul_store::Store::set_meta`].
pub(super) fn set_meta(local: &Local, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> Result<()> {
    const OP: &str = "set attributes";
    check_key(OP, key)?;
    meta::check_time(OP, key, mtime)?;
    if key.is_root() || key.is_dir() {
        let dir = local.root.dir_beneath(key.as_bytes()).map_err(|e| fail(OP, key, e))?;
        return match meta {
            Some(meta) => {
                let fd = reopen(&dir).map_err(|e| fail(OP, key, e))?;
                meta::apply(OP, key, &fd, meta, mtime, has_setid(&fd, meta))
            }
            None => set_times(OP, key, &dir, b".", false, mtime),
        };
    }
    let dir = local.root.dir_beneath(parent(key.as_bytes())).map_err(|e| fail(OP, key, e))?;
    if let Some(name) = link_name(local.links, key)
        && is_link(&dir, name)
    {
        let mtime = mtime.or_else(|| meta::meta_time(meta, "mtime"));
        return set_times(OP, key, &dir, name, false, mtime);
    }
    no_link(OP, key)?;
    let follow = local.root.follow();
    match meta {
        None => set_times(OP, key, &dir, key.name(), follow, mtime),
        Some(meta) => {
            let fd = super::read::open_file(&dir, key.name(), follow).map_err(|e| fail(OP, key, e))?;
            meta::apply(OP, key, &fd, meta, mtime, has_setid(&fd, meta))
        }
    }
}

/// Set-id and sticky bits in metadata are kept when they are set already, never added.
fn has_setid(fd: &OwnedFd, meta: &Meta) -> bool {
    let wanted = meta::meta_mode(Some(meta), true).map_or(0, |mode| mode.as_raw_mode() & 0o7000);
    meta::facts(fd, meta::FACTS).is_ok_and(|st| u32::from(st.stx_mode) & 0o7000 == wanted)
}

fn is_link(dir: &Dir, name: &[u8]) -> bool {
    meta::facts_at(dir, name, false, meta::FACTS).is_ok_and(|st| meta::file_type(&st) == FileType::Symlink)
}

/// See [`haul_store::Store::delete`].
pub(super) fn delete(local: &Local, keys: &[(Key, Option<Version>)]) -> Vec<Result<()>> {
    keys.iter().map(|(key, version)| delete_one(local, key, version.as_ref())).collect()
}

fn delete_one(local: &Local, key: &Key, version: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    check_key(OP, key)?;
    let answer = if key.is_root() {
        local.root.forget();
        rustix::fs::unlinkat(CWD, local.root.path(), AtFlags::REMOVEDIR)
    } else {
        delete_below(local, key, version)?
    };
    match answer {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTDIR) if key.is_dir() => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            Err(Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key))
        }
        Err(errno) => Err(fail(OP, key, errno)),
    }
}

fn delete_below(local: &Local, key: &Key, version: Option<&Version>) -> Result<rustix::io::Result<()>> {
    let dir = match local.root.dir_beneath(parent(key.as_bytes())) {
        Ok(dir) => dir,
        // Nothing can be in what isn't there.
        Err(Errno::NOTDIR) => return Ok(Ok(())),
        Err(errno) => return Ok(Err(errno)),
    };
    // Files seen through a link are listed under their own names too, and may belong there.
    if local.links == Links::Follow && local.root.is_behind_link(parent(key.as_bytes())).unwrap_or(true) {
        let why = "is behind a symbolic link, where nothing is deleted";
        return Err(Error::new(ErrorKind::Denied, "delete", why).with_key(key));
    }
    let link = link_name(local.links, key).filter(|name| is_link(&dir, name));
    if link.is_none() && no_link("delete", key).is_err() {
        return Ok(Ok(()));
    }
    let name = link.unwrap_or(key.name());
    if let Some(want) = version {
        // The version was read through a link; the link itself is deleted.
        let follow = local.root.follow() && link.is_none();
        match meta::facts_at(&dir, name, follow, meta::FACTS) {
            Ok(st) if !meta::pinned(want, &st) => return Err(changed("delete", key)),
            Ok(_) => {}
            Err(errno) => return Ok(Err(errno)),
        }
    }
    let mut answer = unlink(&dir, name, key.is_dir());
    if answer == Err(Errno::ACCESS) && local.root.is_private() && attributes::open_up(&local.root, key) {
        answer = unlink(&dir, name, key.is_dir());
    }
    if answer.is_ok() && (key.is_dir() || link.is_some()) {
        // A new directory of this name must not be mistaken for the deleted one, or for a link's target.
        local.root.forget();
    }
    Ok(answer)
}

/// Finds hidden files that killed writes left behind, last written before `older_than` ago; removes them unless
/// `dry_run`. Links are not followed.
///
/// Errors: nothing is found as `below` can't be looked through. Of other folders the answer has them.
pub(super) fn cleanup(local: &Local, what: Cleanup) -> Result<UnfinishedWrites> {
    let Cleanup { older_than, dry_run, below } = what;
    check_key(CLEANUP, &below)?;
    let root = Root::new(local.root.path().to_vec(), false).by_own_links(local.root.goes_by_own_links());
    let age = i128::try_from(older_than.as_nanos()).unwrap_or(i128::MAX);
    let before = Mtime(jiff::Timestamp::now().as_nanosecond().saturating_sub(age));
    let top = below.clone();
    let (mut found, mut folders, mut failed) = (Vec::new(), vec![below], Vec::new());
    while let Some(folder) = folders.pop() {
        match cleanup_in(&root, &folder, before, dry_run, (&mut found, &mut folders)) {
            // Somebody else removed it, with its contents.
            Err(Errno::NOENT) if folder != top => {}
            Err(errno) => {
                let error = match folder.is_root() {
                    true => root_error(CLEANUP, root.path(), errno),
                    false => fail(CLEANUP, &folder, errno),
                };
                if folder == top && found.is_empty() && folders.is_empty() {
                    return Err(error);
                }
                failed.push(error);
            }
            Ok(()) => {}
        }
    }
    found.sort();
    Ok(UnfinishedWrites { found, failed })
}

const CLEANUP: &str = "clean up";

/// Cleans up one folder; its subfolders are left to the caller.
fn cleanup_in(
    root: &Root,
    folder: &Key,
    before: Mtime,
    dry_run: bool,
    (found, folders): (&mut Vec<(Key, Option<Mtime>)>, &mut Vec<Key>),
) -> rustix::io::Result<()> {
    let fd = root.open_to_list(folder.as_bytes())?;
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut items = RawDir::new(&fd, buffer.spare_capacity_mut());
    let mut refused = None;
    while let Some(item) = items.next() {
        let item = item?;
        let name = item.file_name().to_bytes();
        let Ok(st) = meta::facts_at(&fd, name, false, meta::FACTS) else { continue };
        if meta::file_type(&st) == FileType::Directory {
            if name != b"." && name != b".." {
                folders.push(Key::new([folder.as_bytes(), name, b"/"].concat()));
            }
        } else if is_temp(name) && meta::mtime(&st) <= before && !is_all(&fd, name) {
            let removed = if dry_run { Ok(()) } else { rustix::fs::unlinkat(&fd, name, AtFlags::empty()) };
            match removed {
                Ok(()) => found.push((Key::new([folder.as_bytes(), name].concat()), Some(meta::mtime(&st)))),
                Err(Errno::NOENT) => {}
                Err(errno) => refused = refused.or(Some(errno)),
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

/// True for a file set aside for one that doesn't exist.
fn is_all(folder: &OwnedFd, hidden: &[u8]) -> bool {
    put_aside(hidden).is_some_and(|own| meta::facts_at(folder, own, false, meta::FACTS).is_err())
}

/// How much space there is.
pub(super) fn about(local: &Local) -> Result<SpaceUsage> {
    let dir = local.root.root().map_err(|e| root_error("about", local.root.path(), e))?;
    let st = rustix::fs::fstatvfs(&*dir).map_err(|e| fail("about", &Key::new(""), e))?;
    let bytes = |blocks: u64| Some(blocks.saturating_mul(st.f_frsize));
    Ok(SpaceUsage {
        total: bytes(st.f_blocks),
        used: bytes(st.f_blocks.saturating_sub(st.f_bfree)),
        free: bytes(st.f_bavail),
    })
}
