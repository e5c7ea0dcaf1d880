//! Appends to a file the bytes of a longer one that it is missing, in place: rsync's `--append`. The only copy on this
//! machine that changes a file users can see; only [`CopyHow::Append`](haul_store::CopyHow) asks for it.

use super::{
    Local, attributes,
    content::Bytes,
    dir::Dir,
    error::{fail_close, source_error, target_error},
    meta,
    read::open_file,
};
use haul_core::{Error, ErrorKind, Result, key::parent};
use haul_store::{AttributesItem, CopyItem, StoredFacts, statx::Statx};
use rustix::fs::{FileType, Mode, OFlags, StatxFlags};
use std::os::fd::OwnedFd;

/// How a source is reached.
pub(super) struct Source<'a> {
    pub root: &'a super::dir::Root,
    pub dir: &'a Dir,
}

/// Appends; `None` where the existing file can't be appended to, so that the whole must be copied: it isn't a regular
/// file, it has other names too (which would change with it), it isn't shorter, we may not open it, or (with `verify`) its bytes differ.
///
/// Errors: `Changed` for a source that isn't the one that was listed. After any error but a stop, the file has its old length; a stop keeps
/// the bytes that arrived, and the next run continues from there.
pub(super) fn append(
    local: &Local,
    from: Source<'_>,
    (number, item): (usize, &CopyItem),
    bytes: &mut Bytes<'_>,
    verify: bool,
) -> Result<Option<StoredFacts>> {
    let Ok(dir) = local.root.dir_beneath(parent(item.to.as_bytes())) else { return Ok(None) };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(target) = rustix::fs::openat(&dir, item.to.name(), flags, Mode::empty()) else { return Ok(None) };
    let there = meta::facts(&target, meta::FACTS.union(StatxFlags::NLINK)).map_err(target_error(item))?;
    let source = open_file(from.dir, item.from.name(), from.root.follow()).map_err(source_error(item))?;
    let (before, _) = meta::still_facts(&source, meta::FACTS).map_err(source_error(item))?;
    meta::check_want(item, &before)?;
    let files = [&before, &there].iter().all(|st| meta::file_type(st) == FileType::RegularFile);
    if !files || meta::id(&before) == meta::id(&there) || there.stx_nlink > 1 || there.stx_size >= before.stx_size {
        return Ok(None);
    }
    if verify && !bytes.begins_alike(item, (&source, &target), there.stx_size)? {
        return Ok(None);
    }
    let added = add(item, number, (&source, &before), (&target, there.stx_size), bytes);
    // Also after a stop: the next run continues from the bytes that are there.
    let close_result = local.late.ask(&target).map_err(|errno| fail_close("copy", &item.to, errno));
    match close_result.and(added) {
        Err(error) if error.kind() != ErrorKind::Cancelled => {
            rustix::fs::ftruncate(&target, there.stx_size).map_err(target_error(item))?;
            return Err(error);
        }
        added => added?,
    }
    let timed = AttributesItem {
        from: item.from.clone(),
        to: item.to.clone(),
        mtime: item.spec.mtime.or(Some(meta::mtime(&before))),
        meta: item.spec.meta.clone(),
        keep: item.spec.keep.clone(),
        carried: None,
        new: false,
    };
    let set = attributes::existing(local, from.root, &timed, true)?;
    if item.spec.fsync {
        rustix::fs::fsync(&target).map_err(target_error(item))?;
    }
    Ok(Some(StoredFacts { size: before.stx_size, unpreserved: set.unpreserved, ..StoredFacts::default() }))
}

fn add(
    item: &CopyItem,
    number: usize,
    (source, before): (&OwnedFd, &Statx),
    (target, at): (&OwnedFd, u64),
    bytes: &mut Bytes<'_>,
) -> Result<()> {
    bytes.copy_rest(number, item, source, target, at..before.stx_size)?;
    let after = meta::facts(source, meta::FACTS).map_err(source_error(item))?;
    if meta::version(&after) != meta::version(before) {
        let message = "changed while it was copied";
        return Err(Error::new(ErrorKind::Changed, "copy", message).with_key(&item.from));
    }
    Ok(())
}
