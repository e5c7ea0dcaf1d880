//! The bytes of one file on their way to another on this machine: reflink, else the kernel's own copy, else plain reads and
//! writes; holes stay holes. Names, facts and conditions are `copy`'s.

use super::{
    error::{source_error, target_error},
    meta, publish,
};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{CopyItem, Watch, WriteSpec, disk::Abandoned, recent_change, statx::Statx};
use rustix::{
    fs::{Advice, FallocateFlags, SeekFrom, StatxFlags},
    io::Errno,
};
use std::{
    num::NonZeroU64,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
};

const OP: &str = "copy";

/// Up to here one read and one write are cheaper than setting up an in-kernel copy.
const SMALL: u64 = 64 << 10;
/// Bytes for one call of the kernel's copy: large enough to cost nothing, small enough to show progress and to stop.
const STEP: u64 = 64 << 20;
/// Bytes for one plain read and write: the best of buffered calls on 11 systems (coreutils, ioblksize.h).
const BUFFER: usize = 256 << 10;
/// Zeros of this many bytes at such a place become a hole: the block of most file systems.
pub(super) const BLOCK: usize = 4096;

/// Abilities of the pair of file systems, as found out in this batch, and the buffer.
pub(super) struct Bytes<'a> {
    watch: &'a Watch,
    abandoned: &'a Abandoned,
    /// Blocks can be shared, as far as is known; the first file that can't ends it.
    can_clone: bool,
    can_copy_range: bool,
    buffer: Vec<u8>,
    /// Bytes of the next file that are in the buffer already.
    ahead: Option<usize>,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(watch: &'a Watch, abandoned: &'a Abandoned) -> Self {
        Bytes { watch, abandoned, can_clone: true, can_copy_range: true, buffer: Vec::new(), ahead: None }
    }

    pub(super) fn check_abandoned(&self, key: &Key) -> Result<()> {
        self.abandoned.check(OP, key)
    }

    /// Reads a small file whole before its version is checked: if that is the listed one, the bytes are too, and
    /// no further check is needed. Not where files may share their blocks, so that none need be read.
    pub(super) fn read_ahead(&mut self, item: &CopyItem, source: &OwnedFd) -> Result<()> {
        self.ahead = None;
        if item.want.is_none() || item.size > SMALL || self.may_share(item.size) {
            return Ok(());
        }
        let size = item.size as usize;
        self.room(size);
        let read = match read_full(source, &mut self.buffer[..size], 0) {
            // Not a file by now, which the caller finds out from its facts.
            Err(Errno::ISDIR | Errno::SPIPE | Errno::AGAIN | Errno::NXIO) => 0,
            answer => answer.map_err(source_error(item))?,
        };
        self.ahead = Some(read);
        Ok(())
    }

    /// Drops the bytes read ahead: they may be half of a change.
    pub(super) fn forget_ahead(&mut self) {
        self.ahead = None;
    }

    /// True for a file that is copied in no time: read already, or small and to be cloned.
    pub(super) fn is_quick(&self, st: &Statx) -> bool {
        self.is_ahead(st) || (st.stx_size <= SMALL && self.may_share(st.stx_size))
    }

    /// True for a file that may share the source's blocks. Less than a block is as cheap to copy as to share, and btrfs keeps
    /// it inline in the inode.
    fn may_share(&self, size: u64) -> bool {
        self.can_clone && size >= BLOCK as u64
    }

    /// True when the whole of the next file was read ahead.
    fn is_ahead(&self, st: &Statx) -> bool {
        // A file with holes is worth asking where they are.
        self.ahead.is_some_and(|read| read as u64 == st.stx_size) && !has_holes(st)
    }

    /// Writes the bytes read ahead; false when there are none to write in this way.
    pub(super) fn write_ahead(&mut self, number: usize, item: &CopyItem, st: &Statx, target: &OwnedFd) -> Result<bool> {
        let whole = self.is_ahead(st);
        self.ahead = None;
        if !whole {
            return Ok(false);
        }
        self.write(item, target, 0, st.stx_size as usize)?;
        if item.spec.sparse {
            rustix::fs::ftruncate(target, st.stx_size).map_err(target_error(item))?;
        }
        self.moved(number, st.stx_size);
        Ok(true)
    }

    fn room(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes.max(SMALL as usize), 0);
        }
    }

    /// Copies the bytes, exactly as many as the source had at first.
    pub(super) fn copy_bytes(
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
        if self.clone_file(item, source, target, size)? {
            self.moved(number, size);
            return Ok(());
        }
        if has_holes(st) {
            return self.sparse(number, item, source, target, st);
        }
        if item.spec.sparse {
            self.range(number, item, source, target, 0..size)?;
            return rustix::fs::ftruncate(target, size).map_err(target_error(item));
        }
        publish::reserve(target, size).map_err(target_error(item))?;
        self.range(number, item, source, target, 0..size)
    }

    /// Brings a range at the end of the source over, to the end of a file that holds the rest already.
    pub(super) fn copy_rest(
        &mut self,
        number: usize,
        item: &CopyItem,
        source: &OwnedFd,
        target: &OwnedFd,
        range: Range<u64>,
    ) -> Result<()> {
        let size = range.end;
        publish::reserve(target, size).map_err(target_error(item))?;
        self.range(number, item, source, target, range)?;
        // The last blocks may have been zeros, which weren't written.
        if item.spec.sparse { rustix::fs::ftruncate(target, size).map_err(target_error(item)) } else { Ok(()) }
    }

    /// True when the first `size` bytes of two files are the same.
    pub(super) fn begins_alike(&mut self, item: &CopyItem, files: (&OwnedFd, &OwnedFd), size: u64) -> Result<bool> {
        self.room(2 * BUFFER);
        let (ours, theirs) = self.buffer.split_at_mut(BUFFER);
        let mut at = 0;
        while at < size {
            let want = usize::try_from(size - at).unwrap_or(BUFFER).min(BUFFER);
            let read = read_full(files.0, &mut ours[..want], at).map_err(source_error(item))?;
            let also = read_full(files.1, &mut theirs[..want], at).map_err(target_error(item))?;
            if read != want || also != want || ours[..want] != theirs[..want] {
                return Ok(false);
            }
            at += want as u64;
            self.abandoned.check(OP, &item.to)?;
        }
        Ok(true)
    }

    fn clone_file(&mut self, item: &CopyItem, source: &OwnedFd, target: &OwnedFd, size: u64) -> Result<bool> {
        if !self.may_share(size) {
            return Ok(false);
        }
        match rustix::fs::ioctl_ficlone(target, source) {
            // The clone is of what the file is now; the caller finds out if it changed.
            Ok(()) => Ok(true),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => Err(target_error(item)(errno)),
            Err(_) => {
                self.can_clone = false;
                Ok(false)
            }
        }
    }

    /// Copies the parts that hold data; what lies between stays a hole. What a file system says of them that isn't known to be right is
    /// taken only where it agrees with the blocks that the file has.
    fn sparse(&mut self, number: usize, item: &CopyItem, source: &OwnedFd, target: &OwnedFd, st: &Statx) -> Result<()> {
        let size = st.stx_size;
        rustix::fs::ftruncate(target, size).map_err(target_error(item))?;
        // Reads everything, and skips writing zeros.
        let read = || CopyItem { spec: WriteSpec { sparse: true, ..item.spec.clone() }, ..item.clone() };
        let is_trusted = knows_its_holes(source);
        if !is_trusted && recent_change::is_fresh(meta::mtime(st), meta::changed(st)) {
            return self.range(number, &read(), source, target, 0..size);
        }
        let (mut at, mut found) = (0, 0);
        while at < size {
            let data = match rustix::fs::seek(source, SeekFrom::Data(at)) {
                Ok(data) => data.min(size),
                // Only a hole is left.
                Err(Errno::NXIO) => size,
                // This file system doesn't report its holes.
                Err(_) => return self.range(number, item, source, target, at..size),
            };
            self.moved(number, data - at);
            if data == size {
                break;
            }
            let hole = rustix::fs::seek(source, SeekFrom::Hole(data)).map_err(source_error(item))?.min(size);
            if hole <= data {
                return self.range(number, &read(), source, target, data..size);
            }
            self.range(number, item, source, target, data..hole)?;
            (at, found) = (hole, found + hole - data);
        }
        match is_trusted || accounts_for(found, st.stx_blocks * 512) {
            true => Ok(()),
            // Its bytes were counted as they were found.
            false => self.read_again(&read(), source, target, size),
        }
    }

    /// Reads the whole file again, after its file system reported less data than it holds.
    fn read_again(&mut self, item: &CopyItem, source: &OwnedFd, target: &OwnedFd, size: u64) -> Result<()> {
        let mut at = 0;
        while at < size {
            at += self.plain_step(item, source, target, at, (size - at).min(STEP))?;
            self.check_abandoned(&item.to)?;
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
        // The kernel's copy would write zeros out.
        let plain = range.end - range.start <= SMALL || item.spec.sparse;
        let mut cache = Cache::new(item.spec.drop_cache, &range);
        while at < range.end {
            let step = (range.end - at).min(STEP);
            let copied = match self.can_copy_range && !plain {
                true => self.kernel_step(item, source, target, at, step)?,
                false => self.plain_step(item, source, target, at, step)?,
            };
            at += copied;
            cache.passed(source, target, at);
            self.moved(number, copied);
            self.check_abandoned(&item.to)?;
        }
        cache.end(source, target, at);
        Ok(())
    }

    /// One in-kernel copy; may be short. Falls back to plain reads for good where the kernel can't.
    fn kernel_step(&mut self, item: &CopyItem, source: &OwnedFd, target: &OwnedFd, at: u64, step: u64) -> Result<u64> {
        let (mut from, mut to) = (at, at);
        let step_size = usize::try_from(step).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), step_size) {
            // Some file systems return 0 in the middle of a file: a plain read shows whether it has really ended.
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
        self.room(want);
        let read = match rustix::io::pread(source, &mut self.buffer[..want], at) {
            Err(Errno::INTR) => return Ok(0),
            answer => answer.map_err(source_error(item))?,
        };
        if read == 0 {
            let message = "became shorter while it was copied";
            return Err(Error::new(ErrorKind::Changed, OP, message).with_key(&item.from));
        }
        self.write(item, target, at, read)?;
        Ok(read as u64)
    }

    /// Writes the first `len` bytes of the buffer at `at`. With [`sparse`](haul_store::WriteSpec::sparse), blocks of zeros are left
    /// out: the file is new, so that nothing else is there, and its end is set afterwards.
    fn write(&self, item: &CopyItem, target: &OwnedFd, at: u64, len: usize) -> Result<()> {
        let bytes = &self.buffer[..len];
        if !item.spec.sparse {
            return write_at(target, bytes, at).map_err(target_error(item));
        }
        for data in data_runs(bytes, at) {
            write_at(target, &bytes[data.clone()], at + data.start as u64).map_err(target_error(item))?;
        }
        Ok(())
    }

    pub(super) fn moved(&self, number: usize, bytes: u64) {
        self.watch.copied(number, bytes);
    }
}

/// True when fewer blocks are allocated than the size would take: holes, or compression.
fn has_holes(st: &Statx) -> bool {
    st.stx_size > BLOCK as u64 && st.stx_blocks * 512 < st.stx_size
}

/// True for a native Linux file system, which knows at once where a file has holes (magic numbers as in statfs(2)).
fn knows_its_holes(file: &OwnedFd) -> bool {
    const EXT: rustix::fs::FsWord = 0xef53;
    const XFS: rustix::fs::FsWord = 0x5846_5342;
    const BTRFS: rustix::fs::FsWord = 0x9123_683e;
    const F2FS: rustix::fs::FsWord = 0xf2f5_2010;
    rustix::fs::fstatfs(file).is_ok_and(|st| [EXT, XFS, BTRFS, F2FS, publish::TMPFS].contains(&st.f_type))
}

/// Whether `data` bytes of data explain the `allocated` ones. Further blocks hold extents, or were
/// preallocated; where no data at all is reported, no block should be allocated.
fn accounts_for(data: u64, allocated: u64) -> bool {
    allocated <= data || data > 0 && allocated <= data + data / 8 + ELSE
}

/// Bytes that a file may have allocated besides its data.
const ELSE: u64 = 1 << 20;

/// Reads as much as there is from `at` on, at most what fits.
fn read_full(file: &OwnedFd, buffer: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        read += match rustix::io::pread(file, &mut buffer[read..], at + read as u64) {
            Err(Errno::INTR) => continue,
            Ok(0) => break,
            answer => answer?,
        };
    }
    Ok(read)
}

fn write_at(target: &OwnedFd, bytes: &[u8], at: u64) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += match rustix::io::pwrite(target, &bytes[done..], at + done as u64) {
            Err(Errno::INTR) => continue,
            Ok(0) => return Err(Errno::IO),
            answer => answer?,
        };
    }
    Ok(())
}

/// The ranges of `bytes`, which stand at `at` in their file, that aren't whole blocks of zeros.
pub(super) fn data_runs(bytes: &[u8], at: u64) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let to_boundary = BLOCK - ((at + start as u64) % BLOCK as u64) as usize;
        let end = (start + to_boundary).min(bytes.len());
        if bytes[start..end].iter().any(|b| *b != 0) {
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        start = end;
    }
    runs
}

/// Makes a range read as zeros. False where that can't be done but by writing them.
pub(super) fn make_zeros(file: impl AsFd + Copy, offset: u64, size: u64) -> rustix::io::Result<bool> {
    // A hole at the end appears once the file gets its size.
    if meta::facts(file, StatxFlags::SIZE)?.stx_size <= offset {
        return Ok(true);
    }
    match rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, size) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// Takes what passed out of the page cache again (`--drop-cache`), one window behind the copy: the first advice makes the
/// kernel begin to write the window out, the second, a window later, finds its pages clean.
struct Cache {
    on: bool,
    /// Not yet advised about; advised about once.
    fresh: u64,
    begun: u64,
}

impl Cache {
    /// Bytes between two advices: a device writes this in some hundredths of a second.
    const WINDOW: u64 = 16 << 20;

    fn new(on: bool, range: &Range<u64>) -> Self {
        Cache { on, fresh: range.start, begun: range.start }
    }

    fn passed(&mut self, source: &OwnedFd, target: &OwnedFd, at: u64) {
        if self.on && at - self.fresh >= Self::WINDOW {
            self.advise(source, target, at);
        }
    }

    fn end(&mut self, source: &OwnedFd, target: &OwnedFd, at: u64) {
        if self.on {
            self.advise(source, target, at);
        }
    }

    /// Advice only: a file system that doesn't take it keeps its pages.
    fn advise(&mut self, source: &OwnedFd, target: &OwnedFd, at: u64) {
        let drop = |file: &OwnedFd, from: u64| {
            let _ = rustix::fs::fadvise(file, from, NonZeroU64::new(at - from), Advice::DontNeed);
        };
        drop(source, self.fresh);
        drop(target, self.begun);
        (self.begun, self.fresh) = (self.fresh, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_of_zeros_are_left_out() {
        let runs = |bytes: &[u8], at| data_runs(bytes, at).iter().map(|run| (run.start, run.end)).collect::<Vec<_>>();
        let mut bytes = vec![0; 5 * BLOCK];
        assert!(runs(&bytes, 0).is_empty());
        bytes[BLOCK] = 1;
        bytes[3 * BLOCK - 1] = 1;
        assert_eq!(runs(&bytes, 0), [(BLOCK, 3 * BLOCK)]);
        // Blocks are counted from the beginning of the file.
        assert_eq!(runs(&bytes, 1), [(BLOCK - 1, 2 * BLOCK - 1), (3 * BLOCK - 1, 4 * BLOCK - 1)]);
        assert_eq!(runs(b"x", 100), [(0, 1)]);
        assert!(runs(&[0; 10], 100).is_empty());
    }
}
