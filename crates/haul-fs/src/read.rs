//! Reading files, and facts of one key.

use super::{
    Local,
    dir::{Dir, Root},
    error::{changed, check_file, check_key, fail, root_error},
    meta,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use haul_core::{Algo, Entry, Error, ErrorKind, Hasher, Hashes, Key, Kind, Mtime, Posix, Result, Version, key::parent};
use haul_store::{Body, Links, Read, blocks, statx::Statx};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    ops::Range,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

/// Opens a source file for reading. A link is followed only when the store follows links; FIFOs don't block.
pub(super) fn open_file(dir: &Dir, name: &[u8], follow: bool) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// The name of the link that `key` stands for, when links are kept as such.
pub(super) fn link_name(links: Links, key: &Key) -> Option<&[u8]> {
    (links.keeps() && key.is_symlink()).then(|| key.name())
}

/// The key of a link stands for nothing else.
///
/// Errors: `NotFound`, for such a key; to be asked where no link was found.
pub(super) fn no_link(op: &'static str, key: &Key) -> Result<()> {
    if key.is_symlink() { Err(fail(op, key, Errno::NOENT)) } else { Ok(()) }
}

/// The target of a symlink.
pub(super) fn target(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    rustix::fs::readlinkat(dir, name, Vec::with_capacity(256)).map(|t| t.into_bytes())
}

/// The target of a symlink as shown to users.
fn shown_target(links: Links, dir: &Dir, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    target(dir, name).map(|target| links.munge().target(target))
}

/// Bytes of what a link is shown to hold.
pub(super) fn shown_size(links: Links, dir: impl AsFd, name: &[u8], st: &Statx) -> rustix::io::Result<u64> {
    if !links.munge().changes() {
        return Ok(st.stx_size);
    }
    target(dir, name).map(|target| links.munge().target(target).len() as u64)
}

/// Refuses what isn't a regular file.
pub(super) fn regular(op: &'static str, key: &Key, st: &Statx) -> Result<()> {
    match meta::file_type(st) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Error::new(ErrorKind::NotFound, op, "is a directory, not a file").with_key(key)),
        _ => Err(Error::new(ErrorKind::Unsupported, op, "is a device, FIFO or socket, not a file").with_key(key)),
    }
}

fn cut(range: Option<Range<u64>>, size: u64) -> Range<u64> {
    let range = range.unwrap_or(0..size);
    let start = range.start.min(size);
    start..range.end.clamp(start, size)
}

/// See [`haul_store::Store::read`]; runs on the pool.
pub(super) fn read(local: &Local, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    let (entry, content) = open(local, key, want)?;
    let body = match content {
        Content::Target(target) => {
            let range = cut(range, target.len() as u64);
            let bytes = Bytes::from(target).slice(range.start as usize..range.end as usize);
            Body::Stream(stream::iter([Ok(bytes)]).boxed())
        }
        Content::File(file) => Body::File(Arc::new(file), cut(range, entry.size)),
    };
    Ok(Read { entry, body })
}

/// See [`haul_store::Inodes::hash`]; runs on the pool.
pub(super) fn hash(local: &Local, key: &Key, want: Option<&Version>, algos: &[Algo]) -> Result<Hashes> {
    let (entry, content) = open(local, key, want)?;
    let mut hasher = Hasher::new(algos);
    match content {
        Content::Target(target) => hasher.update(&target),
        Content::File(file) => {
            let read = blocks::read(&file, 0..entry.size, |block| hasher.update(block));
            read.map_err(|e| e.with_key(key))?;
            let now = meta::facts(&file, meta::FACTS).map_err(|e| fail("hash", key, e))?;
            if entry.version != Some(meta::version(&now)) {
                let message = "changed while it was read";
                return Err(Error::new(ErrorKind::Changed, "hash", message).with_key(key));
            }
        }
    }
    Ok(hasher.finish())
}

/// Content behind a key.
enum Content {
    File(File),
    /// A link that is kept: what it holds.
    Target(Vec<u8>),
}

/// A regular file and its facts.
///
/// Errors: it is none, or isn't that version.
pub(super) fn open_regular(local: &Local, key: &Key, want: Option<&Version>) -> Result<(Entry, File)> {
    match open(local, key, want)? {
        (entry, Content::File(file)) => Ok((entry, file)),
        (_, Content::Target(_)) => {
            Err(Error::new(ErrorKind::Unsupported, "read", "is a symbolic link, not a file").with_key(key))
        }
    }
}

fn open(local: &Local, key: &Key, want: Option<&Version>) -> Result<(Entry, Content)> {
    const OP: &str = "read";
    check_file(OP, key)?;
    let dir = local.root.dir(parent(key.as_bytes())).map_err(|e| fail(OP, key, e))?;
    let name = key.name();
    if key.is_symlink()
        && local.links.tells()
        && let Ok(st) = meta::facts_at(&dir, name, false, meta::FACTS)
        && meta::file_type(&st) == FileType::Symlink
    {
        let target = shown_target(local.links, &dir, name).map_err(|e| fail(OP, key, e))?;
        let entry = Entry { size: target.len() as u64, ..meta::entry(key.clone(), Kind::Symlink, &st) };
        check_version(OP, key, want, &entry)?;
        return Ok((entry, Content::Target(target)));
    }
    no_link(OP, key)?;
    let file = open_file(&dir, name, local.root.follow()).map_err(|e| fail(OP, key, e))?;
    let (st, _) = meta::still_facts(&file, meta::FACTS).map_err(|e| fail(OP, key, e))?;
    regular(OP, key, &st)?;
    let entry = meta::entry(key.clone(), Kind::File, &st);
    check_version(OP, key, want, &entry)?;
    Ok((entry, Content::File(File::from(file))))
}

fn check_version(op: &'static str, key: &Key, want: Option<&Version>, entry: &Entry) -> Result<()> {
    match want {
        Some(want) if entry.version.as_ref() != Some(want) => Err(changed(op, key)),
        _ => Ok(()),
    }
}

/// See [`haul_store::Store::stat`]; runs on the pool.
pub(super) fn stat(local: &Local, key: &Key) -> Result<Entry> {
    const OP: &str = "stat";
    if key.is_root() {
        return stat_root(&local.root);
    }
    check_key(OP, key)?;
    let dir = local.root.dir(parent(key.as_bytes())).map_err(|e| fail(OP, key, e))?;
    let facts = |name: &[u8], follow| meta::facts_at(&dir, name, follow, meta::FACTS_AND_META);
    if let Some(name) = link_name(local.links, key)
        && let Ok(st) = facts(name, false)
        && meta::file_type(&st) == FileType::Symlink
    {
        let meta = Some(meta::meta_at(&dir, name, &st));
        let size = shown_size(local.links, &dir, name, &st).map_err(|e| fail(OP, key, e))?;
        return Ok(Entry { size, meta, posix: posix(&st), ..meta::entry(key.clone(), Kind::Symlink, &st) });
    }
    no_link(OP, key)?;
    let st = facts(key.name(), local.root.follows(key)).map_err(|e| fail(OP, key, e))?;
    let kind = match meta::file_type(&st) {
        FileType::Directory => Kind::Dir,
        FileType::RegularFile => Kind::File,
        _ => Kind::Special,
    };
    if (kind == Kind::Dir) != key.is_dir() {
        let what = if key.is_dir() { "is not a directory" } else { "is a directory, not a file" };
        return Err(Error::new(ErrorKind::NotFound, OP, what).with_key(key));
    }
    let meta = Some(meta::meta_at(&dir, key.name(), &st));
    let mut entry = Entry { meta, posix: posix(&st), ..meta::entry(key.clone(), kind, &st) };
    if local.root.follows(key) {
        entry.changed = meta::changed_behind(&dir, key.name(), entry.changed);
    }
    Ok(entry)
}

fn stat_root(root: &Root) -> Result<Entry> {
    // By path each time: a root that was replaced must not be answered from an old descriptor.
    let st = meta::facts_at(CWD, root.path(), true, meta::FACTS_AND_META);
    let st = st.map_err(|e| root_error("stat", root.path(), e))?;
    if meta::file_type(&st) != FileType::Directory {
        return Err(root_error("stat", root.path(), Errno::NOTDIR));
    }
    let meta = Some(meta::meta_of(root.path(), &st));
    let mut entry = Entry { meta, posix: posix(&st), ..meta::entry(Key::new(""), Kind::Dir, &st) };
    entry.changed = links_changed(root.path(), entry.changed);
    Ok(entry)
}

/// The later of `there` and of when a link on the way to `path` last changed; `None` where one can't be asked.
fn links_changed(path: &[u8], there: Option<Mtime>) -> Option<Mtime> {
    let (mut latest, mut path) = (there, PathBuf::from(OsStr::from_bytes(path)));
    // As many as the kernel follows.
    for _ in 0..40 {
        let mut ancestors: Vec<_> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
        ancestors.reverse();
        let link = ancestors.into_iter().find_map(|part| {
            match meta::facts_at(CWD, part.as_os_str().as_bytes(), false, meta::FACTS) {
                Ok(st) if meta::file_type(&st) != FileType::Symlink => None,
                answer => Some((part, answer)),
            }
        });
        let Some((link, st)) = link else { return latest };
        latest = latest.max(Some(meta::changed(&st.ok()?)));
        let leads = rustix::fs::readlinkat(CWD, link, Vec::new()).ok()?;
        let from = link.parent().unwrap_or(Path::new("/")).join(OsStr::from_bytes(leads.as_bytes()));
        path = from.join(path.strip_prefix(link).unwrap_or(Path::new("")));
    }
    None
}

fn posix(st: &Statx) -> Option<Box<Posix>> {
    Some(Box::new(meta::posix(st)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_content() {
        assert_eq!(cut(None, 5), 0..5);
        assert_eq!(cut(Some(2..9), 5), 2..5);
        assert_eq!(cut(Some(7..9), 5), 5..5);
    }

    #[test]
    fn only_links_that_are_kept_have_a_link_name() {
        let (link, file) = (Key::symlink("a/b"), Key::new("a/b.rclonelink"));
        assert_eq!((link_name(Links::Keep, &link), link_name(Links::Skip, &link)), (Some(&b"b"[..]), None));
        assert_eq!(link_name(Links::Keep, &file), None);
        assert!(no_link("read", &file).is_ok() && no_link("read", &link).unwrap_err().kind() == ErrorKind::NotFound);
    }
}
