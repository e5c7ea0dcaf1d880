//! Bringing a file of the cache into the workspace, by a link or a copy. Nothing is replaced that the caller didn't expect there,
//! and a kill leaves nothing in the workspace that wasn't or isn't to be there.

// A cache and a workspace are files of this machine's disk, which this crate reads and writes by itself.
#![allow(clippy::disallowed_methods)]

use crate::{
    cache::{Cache, cannot_link, discard, hidden, kept},
    config::Link,
};
use haul_cas::{
    address::Address,
    facts::{Facts, io_error, key},
};
use haul_core::{Error, ErrorKind, Result};
use haul_store::{late_errors, unnamed_file};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, RenameFlags},
    io::Errno,
};
use std::{
    fs::{self, File},
    os::{fd::AsFd, unix::ffi::OsStrExt as _},
    path::Path,
};

/// The expected entry in a place of the workspace that gets a file.
#[derive(Clone, Copy, Debug)]
pub enum Old {
    /// Whatever it is, it may go.
    Any,
    /// Nothing, or folders that hold no file.
    Nothing,
    /// The file of these facts, and nothing newer.
    File(Facts),
}

impl Old {
    /// Errors: something else is there, which somebody made meanwhile.
    pub fn check(&self, path: &Path) -> Result<()> {
        let Old::File(seen) = self else { return Ok(()) };
        let now = Facts::get(path, true).map_err(|e| io_error("read", path, e))?;
        match now {
            Some(now) if !now.same(seen) => Err(in_the_way(path)),
            _ => Ok(()),
        }
    }

    /// Gives `tmp` the name `path`; false when it is on another file system.
    fn replace(&self, tmp: &Path, path: &Path) -> Result<bool> {
        self.check(path)?;
        let rename = || match self {
            Old::Nothing => rename_to_free(tmp, path),
            Old::Any | Old::File(_) => rustix::fs::rename(tmp, path),
        };
        let renamed = match rename() {
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) if remove_empty(path) => rename(),
            other => other,
        };
        match renamed {
            Ok(()) => Ok(true),
            Err(Errno::XDEV) => Ok(false),
            Err(Errno::EXIST) => Err(in_the_way(path)),
            Err(e) => Err(io_error("write", path, e)),
        }
    }
}

/// Renames, unless something has the name.
fn rename_to_free(from: &Path, to: &Path) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems can't do it in one go.
        Err(Errno::INVAL | Errno::NOSYS) => match Facts::get(to, false)? {
            Some(_) => Err(Errno::EXIST),
            None => rustix::fs::rename(from, to),
        },
        other => other,
    }
}

/// Removes a folder that holds no file, with the folders in it; false where it couldn't, or when it is none.
fn remove_empty(folder: &Path) -> bool {
    let is_folder = Facts::get(folder, false).ok().flatten().is_some_and(|facts| facts.is_dir());
    let Some(entries) = fs::read_dir(folder).ok().filter(|_| is_folder) else { return false };
    entries.flatten().all(|entry| remove_empty(&entry.path())) && fs::remove_dir(folder).is_ok()
}

fn in_the_way(path: &Path) -> Error {
    let message = "a file appeared here meanwhile, or a .dvcignore hides it; it was not touched: move it away, or discard it with --force";
    Error::new(ErrorKind::Exists, "checkout", message).with_key(&key(path))
}

impl Cache {
    /// Brings a file of the cache into the workspace, by the first of `links` that works; what is at `path` is replaced at once,
    /// if it is what `old` says. Its folder must be there. Blocks.
    ///
    /// Errors: it isn't in the cache; `path` can't be written, or holds something else.
    pub fn give(&self, address: &Address, path: &Path, links: &[Link], isexec: bool, old: &Old) -> Result<()> {
        let from = self.path(address);
        let size = Facts::get(&from, true).map_err(|e| io_error("read", &from, e))?.map(|facts| facts.size);
        let Some(size) = size else {
            let message = "its content isn't cached; run haul dvc pull";
            return Err(Error::new(ErrorKind::NotFound, "checkout", message).with_key(&key(path)));
        };
        for link in links.iter().chain([&Link::Copy]) {
            // An executable file would need other bits than the cache's; an empty one is as good as its link, and ext4 allows
            // 65,000 names a file.
            let shares = matches!(link, Link::Hardlink | Link::Symlink);
            if shares && (isexec || *link == Link::Hardlink && size == 0) {
                continue;
            }
            if self.give_by(*link, &from, path, isexec, old)? {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Io, "checkout", "no link type works here").with_key(&key(path)))
    }

    /// False when this kind of link doesn't work here.
    fn give_by(&self, link: Link, from: &Path, path: &Path, isexec: bool, old: &Old) -> Result<bool> {
        let free = match old {
            Old::Any => Facts::get(path, false).is_ok_and(|there| there.is_none()),
            Old::Nothing => true,
            Old::File(_) => false,
        };
        if free && let Some(worked) = straight(&self.late, link, from, (path, isexec))? {
            return Ok(worked);
        }
        let apart = self.scratch.as_ref().map(|folder| hidden(&folder.join("new")));
        for tmp in apart.into_iter().chain([hidden(path)]) {
            if !make(&self.late, link, from, (&tmp, isexec))? {
                continue;
            }
            match old.replace(&tmp, path) {
                Ok(true) => return Ok(true),
                Ok(false) => fs::remove_file(&tmp).map_err(|e| io_error("delete", &tmp, e))?,
                Err(error) => return Err(discard(&tmp, error)),
            }
        }
        Ok(false)
    }
}

/// Gives a free name to a link or to a copy that had none before it was whole; false when this kind of link doesn't work here,
/// `None` when the name is taken or a file without a name can't be made.
fn straight(
    late: &late_errors::Mounts,
    link: Link,
    from: &Path,
    (path, isexec): (&Path, bool),
) -> Result<Option<bool>> {
    let named = match link {
        Link::Hardlink => rustix::fs::linkat(CWD, from, CWD, path, AtFlags::empty()),
        Link::Symlink => rustix::fs::symlinkat(from, CWD, path),
        Link::Reflink | Link::Copy => {
            let folder = path.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes();
            let probe = || hidden(path).file_name().unwrap_or_default().as_bytes().to_vec();
            let made =
                unnamed_file::create(CWD, folder, mode(isexec), probe).map_err(|e| io_error("checkout", path, e))?;
            let Some(out) = made.map(File::from) else { return Ok(None) };
            if !fill(link, from, &out).map_err(|e| io_error("checkout", path, e))? {
                return Ok(Some(false));
            }
            kept(late, &out, path)?;
            unnamed_file::give_name(&out, CWD, path.as_os_str().as_bytes())
        }
    };
    match named {
        Ok(()) => Ok(Some(true)),
        Err(Errno::EXIST) => Ok(None),
        Err(e) if cannot_link(e) => Ok(Some(false)),
        Err(e) => Err(io_error("write", path, e)),
    }
}

/// Makes `tmp` from the cache's file; false when this kind of link doesn't work here.
fn make(late: &late_errors::Mounts, link: Link, from: &Path, (tmp, isexec): (&Path, bool)) -> Result<bool> {
    let linked = match link {
        Link::Hardlink => rustix::fs::linkat(CWD, from, CWD, tmp, AtFlags::empty()),
        Link::Symlink => rustix::fs::symlinkat(from, CWD, tmp),
        Link::Reflink | Link::Copy => return copy(late, link, from, (tmp, isexec)),
    };
    match linked {
        Ok(()) => Ok(true),
        Err(e) if cannot_link(e) => Ok(false),
        Err(e) => Err(io_error("checkout", tmp, e)),
    }
}

fn mode(isexec: bool) -> Mode {
    Mode::from_raw_mode(if isexec { 0o777 } else { 0o666 })
}

fn copy(late: &late_errors::Mounts, link: Link, from: &Path, (tmp, isexec): (&Path, bool)) -> Result<bool> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let out = rustix::fs::open(tmp, flags, mode(isexec)).map_err(|e| io_error("checkout", tmp, e))?;
    let out = File::from(out);
    match fill(link, from, &out) {
        Ok(true) => kept(late, &out, tmp).map(|()| true).map_err(|e| discard(tmp, e)),
        Ok(false) => fs::remove_file(tmp).map(|()| false).map_err(|e| io_error("delete", tmp, e)),
        Err(e) => Err(discard(tmp, io_error("checkout", tmp, e))),
    }
}

/// Fills a new file with what the cache has; false when blocks can't be shared here.
fn fill(link: Link, from: &Path, mut out: &File) -> std::io::Result<bool> {
    let source = File::open(from)?;
    if link == Link::Reflink {
        return match rustix::fs::ioctl_ficlone(out.as_fd(), &source) {
            Ok(()) => Ok(true),
            Err(e) if cannot_link(e) => Ok(false),
            Err(e) => Err(e.into()),
        };
    }
    // std copies inside the kernel where it can.
    std::io::copy(&mut &source, &mut out).map(|_| true)
}
