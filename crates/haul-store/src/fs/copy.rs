//! Copying on this machine without passing the bytes through the engine: reflink, else the kernel's own copy, else
//! plain reads and writes. A batch is one job on one disk thread.

use super::{
    Local, attributes,
    dir::{Dir, Root},
    error::{changed, check_file, fail, fail_write},
    meta, place,
    place::Hidden,
    read::{link_name, open_file, regular, target},
};
use crate::{CopyHow, CopyItem, Progress, Stored, disk::Abandoned};
use haul_core::{Error, ErrorKind, Key, Mtime, Result, attributes::Unkept, key::parent, plan::Replace};
use rustix::{
    fs::{AtFlags, FileType, SeekFrom, Statx},
    io::Errno,
};
use std::{
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

const OP: &str = "copy";

/// Up to here one read and one write are cheaper than setting up an in-kernel copy.
const SMALL: u64 = 64 << 10;
/// Bytes for one call of the kernel's copy: large enough to cost nothing, small enough to show progress and to stop.
const STEP: u64 = 64 << 20;
/// Bytes for one plain read and write.
const BUFFER: usize = 1 << 20;

/// What was learned in this batch about what the pair of file systems can do, and the buffer.
struct Batch<'a> {
    local: &'a Local,
    from: &'a Root,
    progress: Option<&'a Progress>,
    abandoned: &'a Abandoned,
    can_clone: bool,
    can_copy_range: bool,
    buffer: Vec<u8>,
    /// The directory of the last source.
    last: Option<(Vec<u8>, Dir)>,
}

/// See [`crate::Store::copy`]; runs on the pool.
pub(super) fn copy(
    local: &Local,
    from: &Root,
    items: &[CopyItem],
    progress: Option<&Progress>,
    abandoned: &Abandoned,
) -> Vec<Result<Stored>> {
    let (can_clone, can_copy_range) = (true, true);
    let mut batch =
        Batch { local, from, progress, abandoned, can_clone, can_copy_range, buffer: Vec::new(), last: None };
    items.iter().enumerate().map(|(number, item)| batch.one(number, item)).collect()
}

/// Ends up in an error with the key at the source.
fn source_error(item: &CopyItem) -> impl Fn(Errno) -> Error {
    |errno| fail(OP, &item.from, errno)
}

/// The same with the key at the destination.
fn target_error(item: &CopyItem) -> impl Fn(Errno) -> Error {
    |errno| fail_write(OP, &item.to, errno)
}

impl Batch<'_> {
    fn one(&mut self, number: usize, item: &CopyItem) -> Result<Stored> {
        self.check_abandoned(&item.to)?;
        match self.attempt(number, item) {
            Err(error) if attributes::denied(&error, &item.spec) && attributes::open_up(&self.local.root, &item.to) => {
                self.attempt(number, item)
            }
            answer => answer,
        }
    }

    fn attempt(&mut self, number: usize, item: &CopyItem) -> Result<Stored> {
        if let CopyHow::Attributes { set } = item.how {
            return attributes::existing(self.local, self.from, item, set);
        }
        check_file(OP, &item.from)?;
        check_file(OP, &item.to)?;
        meta::check_time(OP, &item.to, item.spec.mtime)?;
        let dir = self.source_dir(item)?;
        if item.how == CopyHow::Special {
            return attributes::special(self.local, item, &dir);
        }
        if let Some(name) = link_name(self.local.links, &item.from)
            && let Ok(st) = meta::facts_at(&dir, name, false, attributes::FACTS)
            && meta::file_type(&st) == FileType::Symlink
        {
            return match item.how {
                CopyHow::Link => self.hard_link(item, &dir),
                _ => self.link(number, item, &dir, name, &st),
            };
        }
        if item.how == CopyHow::Link {
            return self.hard_link(item, &dir);
        }
        if item.how == CopyHow::Rename
            && let Some(stored) = self.rename(number, item, &dir)?
        {
            return Ok(stored);
        }
        let file = open_file(&dir, item.from.name(), self.from.follow()).map_err(source_error(item))?;
        let mask = if item.spec.keep.is_some() { attributes::FACTS } else { meta::FACTS };
        let before = meta::facts(&file, mask).map_err(source_error(item))?;
        regular(OP, &item.from, &before)?;
        check_want(item, &before)?;
        let stored = if item.spec.inplace {
            // Rare, and not worth a second way of writing in place here: the engine streams it.
            let message = "writing in place isn't done by copying on the disk";
            return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
        } else {
            self.file(number, item, &file, &before)?
        };
        if item.how == CopyHow::Rename {
            remove_source(item, &dir, item.from.name(), &before)?;
        }
        Ok(stored)
    }

    fn check_abandoned(&self, key: &Key) -> Result<()> {
        match self.abandoned.get() {
            true => Err(Error::new(ErrorKind::Cancelled, OP, "stopped").with_key(key)),
            false => Ok(()),
        }
    }

    fn source_dir(&mut self, item: &CopyItem) -> Result<Dir> {
        let key = parent(item.from.as_bytes());
        if let Some((last, dir)) = &self.last
            && last == key
        {
            return Ok(dir.clone());
        }
        let dir = self.from.dir(key).map_err(source_error(item))?;
        self.last = Some((key.to_vec(), dir.clone()));
        Ok(dir)
    }

    fn file(&mut self, number: usize, item: &CopyItem, source: &OwnedFd, before: &Statx) -> Result<Stored> {
        let private = item.spec.keep.as_ref().is_some_and(|keep| keep.private());
        let hidden = place::create(&self.local.root, OP, &item.to, &item.spec.partial_suffix, private)?;
        self.fill(number, item, source, before, &hidden).inspect_err(|_| place::discard(&hidden.dir, &hidden.temp))
    }

    fn fill(
        &mut self,
        number: usize,
        item: &CopyItem,
        source: &OwnedFd,
        before: &Statx,
        hidden: &Hidden,
    ) -> Result<Stored> {
        let target = &hidden.file;
        self.content(number, item, source, before, target)?;
        let after = meta::facts(source, meta::FACTS).map_err(source_error(item))?;
        if meta::version(&after) != meta::version(before) {
            let message = "changed while it was copied";
            return Err(Error::new(ErrorKind::Changed, OP, message).with_key(&item.from));
        }
        let spec = &item.spec;
        let meta = spec.meta.as_deref();
        let mtime = spec.mtime.or_else(|| meta::meta_time(meta, "mtime")).unwrap_or(meta::mtime(before));
        let mut stored = Stored { version: None, size: before.stx_size, ..Stored::default() };
        let mut own_mode = meta::meta_mode(meta, spec.keep_setid).is_some();
        match (attributes::keeper(self.local, spec), meta) {
            (Some(keeper), _) => {
                let replaced = keeper.replaced(&hidden.dir, item.to.name());
                stored.unkept = keeper.new_file(item, (source, before), target, replaced.as_ref(), mtime)?;
                own_mode = keeper.keep.private() || replaced.is_some();
            }
            (None, Some(meta)) => meta::apply(OP, &item.to, target, meta, Some(mtime), spec.keep_setid)?,
            (None, None) => set_times(item, target, mtime)?,
        }
        let keep_mode = (!own_mode).then_some(target);
        place::settle(OP, &item.to, (&hidden.dir, &hidden.temp, item.to.name()), &spec.replace, keep_mode)?;
        Ok(stored)
    }

    /// Brings the bytes over, exactly as many as the source had at first.
    fn content(
        &mut self,
        number: usize,
        item: &CopyItem,
        source: &OwnedFd,
        st: &Statx,
        target: &OwnedFd,
    ) -> Result<()> {
        let size = st.stx_size;
        if size == 0 {
            return Ok(());
        }
        if size > SMALL && self.clone_file(item, source, target, size)? {
            self.moved(number, size);
            return Ok(());
        }
        if size > SMALL && st.stx_blocks * 512 < size {
            return self.sparse(number, item, source, target, size);
        }
        self.range(number, item, source, target, 0..size)
    }

    fn clone_file(&mut self, item: &CopyItem, source: &OwnedFd, target: &OwnedFd, size: u64) -> Result<bool> {
        if !self.can_clone {
            return Ok(false);
        }
        match rustix::fs::ioctl_ficlone(target, source) {
            // The clone is of what the file is now; the caller finds out if it grew or shrank.
            Ok(()) => meta::facts(target, meta::FACTS).map(|st| st.stx_size == size).map_err(target_error(item)),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => Err(target_error(item)(errno)),
            Err(_) => {
                self.can_clone = false;
                Ok(false)
            }
        }
    }

    /// Copies the parts that hold data; what lies between stays a hole.
    fn sparse(&mut self, number: usize, item: &CopyItem, source: &OwnedFd, target: &OwnedFd, size: u64) -> Result<()> {
        rustix::fs::ftruncate(target, size).map_err(target_error(item))?;
        let mut at = 0;
        while at < size {
            let data = match rustix::fs::seek(source, SeekFrom::Data(at)) {
                Ok(data) => data.min(size),
                // Only a hole is left.
                Err(Errno::NXIO) => size,
                // This file system doesn't tell its holes.
                Err(_) => return self.range(number, item, source, target, at..size),
            };
            self.moved(number, data - at);
            if data == size {
                break;
            }
            let hole = rustix::fs::seek(source, SeekFrom::Hole(data)).map_err(source_error(item))?.min(size);
            self.range(number, item, source, target, data..hole)?;
            at = hole;
        }
        Ok(())
    }

    fn range(
        &mut self,
        number: usize,
        item: &CopyItem,
        source: &OwnedFd,
        target: &OwnedFd,
        range: Range<u64>,
    ) -> Result<()> {
        let mut at = range.start;
        let small = range.end - range.start <= SMALL;
        while at < range.end {
            let step = (range.end - at).min(STEP);
            let copied = match self.can_copy_range && !small {
                true => self.kernel_step(item, source, target, at, step)?,
                false => self.plain_step(item, source, target, at, step)?,
            };
            at += copied;
            self.moved(number, copied);
            self.check_abandoned(&item.to)?;
        }
        Ok(())
    }

    /// One in-kernel copy; may be short. Falls back to plain reads for good where the kernel can't.
    fn kernel_step(&mut self, item: &CopyItem, source: &OwnedFd, target: &OwnedFd, at: u64, step: u64) -> Result<u64> {
        let (mut from, mut to) = (at, at);
        let step_size = usize::try_from(step).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), step_size) {
            // Some file systems answer 0 in the middle of a file: a plain read tells whether it has really ended.
            Ok(0) => self.plain_step(item, source, target, at, step),
            Ok(copied) => Ok(copied as u64),
            Err(Errno::INTR) => Ok(0),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::FBIG)) => Err(target_error(item)(errno)),
            Err(_) => {
                self.can_copy_range = false;
                self.plain_step(item, source, target, at, step)
            }
        }
    }

    /// One read and the writes it takes.
    fn plain_step(&mut self, item: &CopyItem, source: &OwnedFd, target: &OwnedFd, at: u64, step: u64) -> Result<u64> {
        let want = usize::try_from(step).unwrap_or(BUFFER).min(BUFFER);
        if self.buffer.len() < want {
            self.buffer.resize(want.max(SMALL as usize), 0);
        }
        let read = match rustix::io::pread(source, &mut self.buffer[..want], at) {
            Err(Errno::INTR) => return Ok(0),
            answer => answer.map_err(source_error(item))?,
        };
        if read == 0 {
            let message = "became shorter while it was copied";
            return Err(Error::new(ErrorKind::Changed, OP, message).with_key(&item.from));
        }
        let mut done = 0;
        while done < read {
            done += match rustix::io::pwrite(target, &self.buffer[done..read], at + done as u64) {
                Err(Errno::INTR) => continue,
                Ok(0) => return Err(target_error(item)(Errno::IO)),
                answer => answer.map_err(target_error(item))?,
            };
        }
        Ok(read as u64)
    }

    fn moved(&self, number: usize, bytes: u64) {
        if let Some(progress) = self.progress
            && bytes > 0
        {
            (progress.0)(number, bytes);
        }
    }

    fn link(&mut self, number: usize, item: &CopyItem, dir: &Dir, name: &[u8], st: &Statx) -> Result<Stored> {
        check_want(item, st)?;
        let Some(to) = link_name(self.local.links, &item.to) else {
            let message = "a symbolic link can only be copied to a name that ends in .rclonelink";
            return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
        };
        let key = Key::new([item.to.parent().as_bytes(), to].concat());
        let target = target(dir, name).map_err(source_error(item))?;
        let meta_mtime = meta::meta_time(item.spec.meta.as_deref(), "mtime");
        let mtime = item.spec.mtime.or(meta_mtime).unwrap_or(meta::mtime(st));
        let mut stored = Stored { size: target.len() as u64, ..Stored::default() };
        match attributes::keeper(self.local, &item.spec) {
            Some(keeper) => {
                let (source, made) = ((dir, name, st), (&key, &target[..]));
                stored.unkept = attributes::link(self.local, item, keeper, source, made, mtime)?;
            }
            None => place::link(&self.local.root, OP, &key, &target, &item.spec, Some(mtime))?,
        }
        if item.how == CopyHow::Rename {
            remove_source(item, dir, name, st)?;
        }
        self.moved(number, stored.size);
        Ok(stored)
    }

    /// Gives the source, whatever it is but a directory, another name.
    fn hard_link(&self, item: &CopyItem, from: &Dir) -> Result<Stored> {
        let name = link_name(self.local.links, &item.from).unwrap_or(item.from.name());
        let st = meta::facts_at(from, name, false, meta::FACTS).map_err(source_error(item))?;
        check_want(item, &st)?;
        let key = match link_name(self.local.links, &item.to) {
            Some(to) => Key::new([item.to.parent().as_bytes(), to].concat()),
            None => item.to.clone(),
        };
        let (dir, made) = place::in_dir_or_errno(&self.local.root, OP, &key, |dir| {
            let temp = place::temp_name(key.name(), &item.spec.partial_suffix);
            rustix::fs::linkat(from, name, dir, &temp[..], AtFlags::empty())?;
            Ok(temp)
        })?;
        let temp = match made {
            Ok(temp) => temp,
            // Another file system, one without hard links, or an inode that has as many names as it can.
            Err(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                let message = "a hard link to it can't be made here";
                return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
            }
            Err(errno) => return Err(target_error(item)(errno)),
        };
        let no_file: Option<&OwnedFd> = None;
        place::settle(OP, &key, (&dir, &temp, key.name()), &item.spec.replace, no_file)
            .inspect_err(|_| place::discard(&dir, &temp))?;
        // Renaming one name of an inode over another does nothing: then the hidden name is still there.
        if st.stx_nlink > 1 {
            let _ = rustix::fs::unlinkat(&dir, &temp[..], AtFlags::empty());
        }
        Ok(Stored { size: st.stx_size, ..Stored::default() })
    }

    /// Renames; `None` when source and destination aren't on one file system, or the source is a link that is followed.
    fn rename(&self, number: usize, item: &CopyItem, from: &Dir) -> Result<Option<Stored>> {
        let st = meta::facts_at(from, item.from.name(), false, meta::FACTS).map_err(source_error(item))?;
        if meta::file_type(&st) == FileType::Symlink && self.from.follow() {
            return Ok(None);
        }
        regular(OP, &item.from, &st)?;
        check_want(item, &st)?;
        // Not through a hidden name: the file is whole already, and a rename shows it at once.
        let moved = place::in_dir_or_errno(&self.local.root, OP, &item.to, |dir| match &item.spec.replace {
            Replace::Absent => place::rename_new((from, item.from.name()), (dir, item.to.name())),
            Replace::Anything => rustix::fs::renameat(from, item.from.name(), dir, item.to.name()),
            Replace::Exactly(want) => match meta::facts_at(dir, item.to.name(), false, meta::FACTS) {
                Ok(st) if meta::version(&st) == *want => {
                    rustix::fs::renameat(from, item.from.name(), dir, item.to.name())
                }
                Ok(_) => Err(Errno::BADF),
                Err(errno) => Err(errno),
            },
        })?;
        let dir = match moved {
            (dir, Ok(())) => dir,
            (_, Err(Errno::XDEV)) => return Ok(None),
            (_, Err(Errno::BADF)) => return Err(changed(OP, &item.to)),
            (_, Err(errno)) => return Err(target_error(item)(errno)),
        };
        if item.spec.mtime.is_some_and(|t| t != meta::mtime(&st)) || item.spec.meta.is_some() {
            let file = open_file(&dir, item.to.name(), false).map_err(target_error(item))?;
            match item.spec.meta.as_deref().filter(|_| item.spec.keep.is_none()) {
                Some(meta) => meta::apply(OP, &item.to, &file, meta, item.spec.mtime, item.spec.keep_setid)?,
                None => set_times(item, &file, item.spec.mtime.unwrap_or(meta::mtime(&st)))?,
            }
        }
        self.moved(number, st.stx_size);
        let unkept = match attributes::keeper(self.local, &item.spec) {
            Some(keeper) => attributes::renamed(item, keeper, &dir)?,
            None => Unkept::default(),
        };
        Ok(Some(Stored { size: st.stx_size, unkept, ..Stored::default() }))
    }
}

/// The end of a move by copying: only what was copied goes. Where the two names turn out to be one, the source is the
/// copy by now.
fn remove_source(item: &CopyItem, dir: &Dir, name: &[u8], copied: &Statx) -> Result<()> {
    let now = meta::facts_at(dir, name, false, meta::FACTS).map_err(source_error(item))?;
    // Under a link that was followed is what was copied; the link itself says nothing of it.
    if meta::file_type(&now) == meta::file_type(copied) && !meta::pinned(&meta::version(copied), &now) {
        return Err(changed(OP, &item.from));
    }
    super::upload::unlink(dir, name, false).map_err(source_error(item))
}

fn set_times(item: &CopyItem, file: impl AsFd, mtime: Mtime) -> Result<()> {
    rustix::fs::futimens(file, &meta::times(None, Some(mtime))).map_err(target_error(item))
}

fn check_want(item: &CopyItem, st: &Statx) -> Result<()> {
    match &item.want {
        Some(want) if *want != meta::version(st) => Err(changed(OP, &item.from)),
        _ => Ok(()),
    }
}

/// The answer to every item when none could be begun.
pub(super) fn all_failed(items: &[CopyItem], error: impl Fn() -> Error) -> Vec<Result<Stored>> {
    items.iter().map(|item| Err(error().with_key(&item.to))).collect()
}

/// The source's root for a batch: this store's own descriptors when it copies within itself.
pub(super) fn source_root(local: &Arc<Local>, from: &[u8]) -> Arc<Root> {
    match *from == *local.place {
        true => local.root.clone(),
        false => Arc::new(Root::new(from.to_vec(), local.root.follow())),
    }
}
