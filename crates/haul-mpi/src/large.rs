//! Large files in pieces: which ranges are still to be given out. A piece is a share of what is left, so that pieces get smaller
//! towards the end and no rank waits for another's; each is a run of the file, as parallel file systems like it.

use crate::{
    journal::UnfinishedFiles,
    work::{LargeFileStart, Raw, SourceEntry, Task, UnfinishedFile, Work},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Files of this size and more go in pieces.
pub const LARGE: u64 = 64 << 20;
/// Smallest and largest piece, and what all but the last are a multiple of: stripes of parallel file systems are 1 to 16 MiB.
const SMALLEST: u64 = 16 << 20;
const LARGEST: u64 = 1 << 30;

/// A range, and the CRC-64 that an earlier run gave it.
type Range = (u64, u64, Option<u64>);

/// Where a file is among those that have ranges left: whether it is written, size, number. Copies come before comparisons: the journal
/// knows nothing of what was compared, so that a job which its time limit ends again and again would compare for ever and copy nothing.
type Place = (bool, u64, u32);

/// A large file under way.
pub struct LargeFile {
    /// Which tree.
    pub root: u16,
    /// Its directory.
    pub node: u32,
    /// The file.
    pub item: SourceEntry,
    /// A piece is not what is at the destination.
    pub differs: bool,
    token: Option<Raw>,
    todo: Vec<Range>,
    next: u64,
    out: u64,
    failed: bool,
}

/// Does it go in pieces?
pub fn is_large(item: &SourceEntry) -> bool {
    let has_pieces = matches!(item.task, Task::Copy | Task::Compare);
    has_pieces && item.size >= LARGE && item.kind == haul_core::Kind::File
}

impl LargeFile {
    /// Is it compared with what is there, and not written?
    fn compares(&self) -> bool {
        self.item.task == Task::Compare
    }

    fn place(&self, id: u32) -> Place {
        (!self.compares(), self.item.size, id)
    }

    fn is_given(&self) -> bool {
        self.failed || (self.todo.is_empty() && self.next >= self.item.size)
    }

    fn left(&self) -> u64 {
        if self.failed { 0 } else { self.item.size.saturating_sub(self.next) }
    }
}

/// All of them.
pub struct LargeFiles {
    files: BTreeMap<u32, LargeFile>,
    /// To be begun: size, number; the largest first.
    begin: BTreeSet<(u64, u32)>,
    /// Ranges of these are left. The last is taken first.
    active: BTreeSet<Place>,
    publish: VecDeque<(usize, u32)>,
    /// Files to remove: the number if it is one of this run's, tree, key, where it was written.
    discard: VecDeque<(Option<u32>, u16, Raw, Raw)>,
    left: UnfinishedFiles,
    next: u32,
    out: usize,
}

impl LargeFiles {
    /// With what an earlier run left.
    pub fn new(left: UnfinishedFiles) -> LargeFiles {
        LargeFiles {
            files: BTreeMap::new(),
            begin: BTreeSet::new(),
            active: BTreeSet::new(),
            publish: VecDeque::new(),
            discard: VecDeque::new(),
            left,
            next: 0,
            out: 0,
        }
    }

    /// None is left.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.discard.is_empty()
    }

    /// Pieces that somebody has.
    pub fn under_way(&self) -> usize {
        self.out
    }

    /// Adds a file.
    pub fn add(&mut self, root: u16, node: u32, item: SourceEntry) {
        self.next += 1;
        let id = self.next;
        let (token, todo) = (None, Vec::new());
        let large = LargeFile { root, node, item, differs: false, token, todo, next: 0, out: 0, failed: false };
        // Of a comparison nothing is written, so nothing is to be begun.
        match large.compares() {
            true => self.active.insert(large.place(id)),
            false => self.begin.insert((large.item.size, id)),
        };
        self.files.insert(id, large);
    }

    /// The next piece, of the largest file that has one to write or else to compare, or the next file to begin.
    pub fn next(&mut self, slots: usize) -> Option<Work> {
        // Files are begun before ranks run out of pieces to write, however much is to be compared.
        let written = self.active.range((true, 0, 0)..).count();
        if written < slots
            && let Some((_, id)) = self.begin.pop_last()
        {
            let large = self.files.get(&id)?;
            let left: Option<UnfinishedFile> = large.item.pin.and_then(|pin| self.left.remove(&(large.root, pin.ino)));
            return Some(Work::Begin { id, root: large.root, item: large.item.clone(), left });
        }
        // As many as give each slot two pieces: a tree may have a million files to compare, and this is done for each lease.
        let first = self.active.iter().rev().take(2 * slots);
        let all: u64 = first.map(|(.., id)| self.files.get(id).map_or(0, LargeFile::left)).sum();
        let place @ (.., id) = *self.active.last()?;
        let large = self.files.get_mut(&id)?;
        let (offset, len, crc) = match large.todo.pop() {
            Some(range) => range,
            None => {
                let share = all / (2 * slots as u64);
                let len = share.clamp(SMALLEST, LARGEST).next_multiple_of(SMALLEST).min(large.left());
                let offset = large.next;
                large.next += len;
                (offset, len, None)
            }
        };
        large.out += 1;
        self.out += 1;
        let token = large.token.clone().unwrap_or_default();
        let work = Work::Piece { id, root: large.root, item: large.item.clone(), token, offset, len, crc };
        if large.is_given() {
            self.active.remove(&place);
        }
        Some(work)
    }

    /// It was begun.
    pub fn began(&mut self, id: u32, began: LargeFileStart) {
        let Some(large) = self.files.get_mut(&id) else { return };
        let size = large.item.size;
        match began {
            LargeFileStart::Whole(token) => {
                large.token = Some(token);
                large.next = size;
                self.publish.push_back((usize::MAX, id));
                return;
            }
            LargeFileStart::Anew(token) | LargeFileStart::Found(token) => large.token = Some(token),
            // It is whole under its own name.
            LargeFileStart::Linked | LargeFileStart::Blocked => return,
        }
        self.active.insert(large.place(id));
    }

    /// Pieces that the earlier run wrote of a file, now found again: they are verified, and the gaps are written.
    pub fn found(&mut self, id: u32, mut pieces: Vec<(u64, u64, u64)>) {
        let Some(large) = self.files.get_mut(&id) else { return };
        pieces.sort_unstable();
        let mut at = 0;
        for (offset, len, crc) in pieces {
            let end = offset.saturating_add(len);
            if offset < at || end > large.item.size {
                continue;
            }
            let mut gap = at;
            while gap < offset {
                let step = (offset - gap).min(LARGEST);
                large.todo.push((gap, step, None));
                gap += step;
            }
            large.todo.push((offset, len, Some(crc)));
            at = end;
        }
        large.next = at;
    }

    /// A piece came back. `Some` when that ends a comparison: whether all that had to be read was.
    pub fn piece(&mut self, id: u32, rank: usize, arrived: bool, differs: bool) -> Option<bool> {
        self.out = self.out.saturating_sub(1);
        let large = self.files.get_mut(&id)?;
        large.out -= 1;
        large.differs |= differs;
        if !arrived || (large.compares() && differs) {
            large.failed |= !arrived;
            // No more of it is leased.
            (large.next, large.todo) = (large.item.size, Vec::new());
            self.active.remove(&large.place(id));
        }
        if large.out > 0 || !large.is_given() {
            return None;
        }
        if !large.compares() && !large.failed {
            self.publish.push_back((rank, id));
            return None;
        }
        self.given_up(id)
    }

    /// Nobody has a piece of a file any more of which no more are given out. `Some` of a comparison: whether all that had to be read was.
    fn given_up(&mut self, id: u32) -> Option<bool> {
        let large = self.files.get(&id)?;
        if large.compares() {
            return Some(!large.failed);
        }
        self.discard(id);
        None
    }

    /// Removes the written pieces of a file. If the disk is full no more are leased, and the next run resumes it.
    pub fn discard(&mut self, id: u32) {
        let Some(large) = self.files.get(&id) else { return };
        self.discard.push_back((Some(id), large.root, large.item.key.clone(), large.token.clone().unwrap_or_default()));
    }

    /// A rank that was given up had begun a file, which another has begun anew since.
    pub fn discard_other(&mut self, root: u16, key: Raw, token: Raw) {
        self.discard.push_back((None, root, key, token));
    }

    /// Notes the pieces that an earlier run left of a file that isn't begun yet.
    pub fn keep(&mut self, root: u16, left: UnfinishedFile) {
        self.left.insert((root, left.pin.ino), left);
    }

    /// All large files were met: what an earlier run left of others is removed.
    pub fn discard_left(&mut self) {
        let left = self.left.drain().map(|((root, _), left)| (None, root, left.key, left.token));
        self.discard.extend(left);
    }

    /// The next that is removed.
    pub fn discarded(&mut self) -> Option<Work> {
        let (id, root, key, token) = self.discard.pop_front()?;
        Some(Work::Discard { id, root, key, token })
    }

    /// Queues a piece again that a lost rank had. `Some` when none of them is left and that ends a comparison, as for a piece that came
    /// back.
    pub fn again(&mut self, id: u32, range: Range) -> Option<bool> {
        self.out = self.out.saturating_sub(1);
        let large = self.files.get_mut(&id)?;
        large.out -= 1;
        // One difference is enough.
        if !large.failed && !large.differs {
            large.todo.push(range);
            self.active.insert(large.place(id));
            return None;
        }
        if large.out == 0 { self.given_up(id) } else { None }
    }

    /// A file that is complete: preferably one whose last piece this rank wrote.
    pub fn publish(&mut self, rank: usize) -> Option<Work> {
        let own = self.publish.iter().position(|(by, _)| *by == rank).unwrap_or(0);
        let (_, id) = self.publish.remove(own)?;
        let large = self.files.get(&id)?;
        let (root, item, token) = (large.root, large.item.clone(), large.token.clone().unwrap_or_default());
        Some(Work::Publish { id, root, item, token })
    }

    /// It is done with.
    pub fn remove(&mut self, id: u32) -> Option<LargeFile> {
        self.files.remove(&id)
    }
}
