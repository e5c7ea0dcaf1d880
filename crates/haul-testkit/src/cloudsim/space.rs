//! What buckets hold: keys and content, unfinished uploads. Knows nothing of HTTP.

use super::{
    etag::Tag,
    pattern,
    sum::{Announced, Sum},
    synthetic::SyntheticContent,
};
use bytes::Bytes;
use haul_core::{Algo, Hasher};
use hyper::header::{HeaderName, HeaderValue};
use std::{
    collections::BTreeMap,
    ops::{Bound, Range},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// A run of content.
#[derive(Clone, Debug)]
pub enum Piece {
    /// The bytes themselves.
    Bytes(Bytes),
    /// Computed: so many bytes of a seed's pattern from a place on.
    Pattern {
        /// The seed.
        seed: u64,
        /// The place of the first byte.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// Not kept: a range of something of which only size and CRC-64/NVME are known.
    Lost {
        /// Of the whole that the range is of.
        crc: u64,
        /// Of the whole.
        size: u64,
        /// The range.
        range: (u64, u64),
    },
}

impl Piece {
    /// Bytes in it.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Pattern { len, .. } => *len,
            Piece::Lost { range, .. } => range.1 - range.0,
        }
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A range of it.
    pub fn slice(&self, part: Range<u64>) -> Piece {
        match self {
            Piece::Bytes(bytes) => Piece::Bytes(bytes.slice(part.start as usize..part.end as usize)),
            Piece::Pattern { seed, start, .. } => {
                Piece::Pattern { seed: *seed, start: start + part.start, len: part.end - part.start }
            }
            Piece::Lost { crc, size, range } => {
                Piece::Lost { crc: *crc, size: *size, range: (range.0 + part.start, range.0 + part.end) }
            }
        }
    }

    /// Its CRC-64/NVME; `None` when it can't be known.
    pub fn crc(&self) -> Option<u64> {
        match self {
            Piece::Bytes(bytes) => {
                let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
                hasher.update(bytes);
                Some(pattern::finished(hasher))
            }
            Piece::Pattern { seed, start, len } => Some(pattern::crc(*seed, *start, *len)),
            Piece::Lost { crc, size, range } if *range == (0, *size) => Some(*crc),
            Piece::Lost { .. } => None,
        }
    }
}

/// A range of some pieces.
pub fn slice(pieces: &[Piece], range: Range<u64>) -> Vec<Piece> {
    let (mut found, mut at) = (Vec::new(), 0);
    for piece in pieces {
        let len = piece.len();
        let (from, to) = (range.start.clamp(at, at + len) - at, range.end.clamp(at, at + len) - at);
        if from < to {
            found.push(piece.slice(from..to));
        }
        at += len;
    }
    found
}

/// Puts neighbouring ranges of lost content together, so that a copy in parts of something that is not kept is known to
/// be equal to it.
pub fn join(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if let (Some(Piece::Lost { crc, size, range }), Piece::Lost { crc: c, size: s, range: next }) =
            (joined.last_mut(), &piece)
            && (*crc, *size, range.1) == (*c, *s, next.0)
        {
            range.1 = next.1;
        } else {
            joined.push(piece);
        }
    }
    joined
}

/// CRC-64/NVME of some pieces; `None` when it can't be known.
pub fn crc(pieces: &[Piece]) -> Option<u64> {
    pieces.iter().try_fold(0, |crc, piece| Some(pattern::combine(crc, piece.crc()?, piece.len())))
}

/// Headers that are kept.
pub type KeptHeaders = Box<[(HeaderName, HeaderValue)]>;

/// What a key holds.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Bytes.
    pub size: u64,
    /// CRC-64/NVME of the content; `None` when it can't be known.
    pub crc: Option<u64>,
    /// The ETag.
    pub tag: Tag,
    /// When it was written: milliseconds since 1970.
    pub modified: u64,
    /// From when on it is listed: milliseconds since 1970.
    pub listed: u64,
    /// Metadata headers: `content-type`, `x-amz-meta-…` and the like.
    pub meta: KeptHeaders,
    /// The checksum that is told; `None` for its CRC-64/NVME.
    pub sum: Option<Sum>,
    /// The content.
    pub pieces: Vec<Piece>,
}

/// What a listing tells of a key.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Bytes.
    pub size: u64,
    /// The ETag.
    pub tag: Tag,
    /// When it was written: milliseconds since 1970.
    pub modified: u64,
}

/// When everything that is made up was written: 2024-01-02T03:04:05Z, in milliseconds since 1970.
pub const MADE: u64 = 1_704_164_645_000;

/// The keys of one bucket: stored ones over made-up ones.
#[derive(Debug, Default)]
pub struct Space {
    /// Synthetic content.
    pub made: Option<SyntheticContent>,
    /// Bits of the made-up keys that were deleted or overwritten, by number; as long as needed.
    gone: Vec<u64>,
    stored: BTreeMap<Box<[u8]>, Arc<Stored>>,
}

impl Space {
    /// A bucket with synthetic content, or an empty one.
    pub fn new(made: Option<SyntheticContent>) -> Space {
        Space { made, ..Space::default() }
    }

    fn is_gone(&self, i: u64) -> bool {
        self.gone.get((i / 64) as usize).is_some_and(|word| word >> (i % 64) & 1 == 1)
    }

    /// The made-up key's number, if it is there.
    fn made_up(&self, key: &[u8]) -> Option<(SyntheticContent, u64)> {
        let made = self.made?;
        let i = made.find(key)?;
        (!self.is_gone(i)).then_some((made, i))
    }

    fn forget(&mut self, i: u64) {
        let word = (i / 64) as usize;
        if self.gone.len() <= word {
            self.gone.resize(word + 1, 0);
        }
        self.gone[word] |= 1 << (i % 64);
    }

    /// What a key holds.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Stored>> {
        if let Some(stored) = self.stored.get(key) {
            return Some(stored.clone());
        }
        let (made, i) = self.made_up(key)?;
        let piece = Piece::Pattern { seed: 0, start: made.start(i), len: made.size };
        Some(Arc::new(Stored {
            size: made.size,
            crc: piece.crc(),
            tag: made.tag(i),
            modified: MADE,
            listed: 0,
            meta: KeptHeaders::default(),
            sum: None,
            pieces: vec![piece],
        }))
    }

    /// Stores something. What was listed stays listed, however long new keys take to be.
    pub fn put(&mut self, key: &[u8], mut stored: Stored) {
        if let Some(before) = self.stored.get(key) {
            stored.listed = stored.listed.min(before.listed);
        } else if let Some((_, i)) = self.made_up(key) {
            stored.listed = 0;
            self.forget(i);
        }
        self.stored.insert(key.into(), Arc::new(stored));
    }

    /// Deletes a key; no matter if it isn't there.
    pub fn remove(&mut self, key: &[u8]) {
        self.stored.remove(key);
        if let Some((_, i)) = self.made_up(key) {
            self.forget(i);
        }
    }

    /// True if no key is there.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.next_made(0).is_none()
    }

    /// The stored keys, in bytewise order; made-up ones are not among them.
    pub fn stored(&self) -> impl Iterator<Item = (&[u8], &Arc<Stored>)> {
        self.stored.iter().map(|(key, stored)| (&key[..], stored))
    }

    /// The number of the first made-up key from `i` on that is there.
    fn next_made(&self, mut i: u64) -> Option<u64> {
        let keys = self.made?.keys;
        while i < keys {
            // Words of deleted keys are skipped as a whole: a bucket may lose millions.
            let word = self.gone.get((i / 64) as usize).map_or(0, |word| word >> (i % 64));
            if word & 1 == 0 {
                return Some(i);
            }
            i = (i + u64::from((!word).trailing_zeros())).min((i / 64 + 1) * 64);
        }
        None
    }

    /// The keys from a place on, in bytewise order, both kinds.
    pub fn from<'a>(&'a self, place: &[u8]) -> Keys<'a> {
        let stored = self.stored.range::<[u8], _>((Bound::Included(place), Bound::Unbounded));
        let mut keys = Keys { space: self, stored, next: None, made: None, name: String::new() };
        keys.next = keys.stored.next().map(|(key, stored)| (&key[..], stored));
        keys.go_to(self.made.map_or(0, |made| made.first_from(place)));
        keys
    }
}

/// A walk over keys.
pub struct Keys<'a> {
    space: &'a Space,
    stored: std::collections::btree_map::Range<'a, Box<[u8]>, Arc<Stored>>,
    next: Option<(&'a [u8], &'a Arc<Stored>)>,
    /// The made-up key that comes next, whose name is in `name`.
    made: Option<(SyntheticContent, u64)>,
    name: String,
}

impl Keys<'_> {
    fn go_to(&mut self, i: u64) {
        self.made = self.space.made.zip(self.space.next_made(i));
        if let Some((made, i)) = self.made {
            made.write(i, &mut self.name);
        }
    }

    /// Gives the next key that is listed at `now` (milliseconds since 1970) to `see`; `None` at the end.
    pub fn next<T>(&mut self, now: u64, see: impl FnOnce(&[u8], Facts) -> T) -> Option<T> {
        loop {
            let made_first = match (self.next, self.made) {
                (None, None) => return None,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some((key, _)), Some(_)) => self.name.as_bytes() < key,
            };
            if made_first {
                let (made, i) = self.made?;
                let seen = see(self.name.as_bytes(), Facts { size: made.size, tag: made.tag(i), modified: MADE });
                self.go_to(i + 1);
                return Some(seen);
            }
            let (key, stored) = self.next?;
            self.next = self.stored.next().map(|(key, stored)| (&key[..], stored));
            if stored.listed <= now {
                return Some(see(key, Facts { size: stored.size, tag: stored.tag, modified: stored.modified }));
            }
        }
    }
}

/// A part that was uploaded.
#[derive(Clone, Debug)]
pub struct Part {
    /// Bytes.
    pub size: u64,
    /// CRC-64/NVME; `None` when it can't be known.
    pub crc: Option<u64>,
    /// The checksum of another kind that it came with.
    pub sum: Option<Sum>,
    /// The ETag.
    pub tag: Tag,
    /// When: milliseconds since 1970.
    pub modified: u64,
    /// The content.
    pub pieces: Vec<Piece>,
}

/// An upload in parts that is not complete.
#[derive(Clone, Debug)]
pub struct UnfinishedUpload {
    /// The key that it is for.
    pub key: Vec<u8>,
    /// When it was begun: milliseconds since 1970.
    pub begun: u64,
    /// Metadata headers.
    pub meta: KeptHeaders,
    /// The checksum that the client announced.
    pub announced: Option<Announced>,
    /// The parts, by number.
    pub parts: BTreeMap<u32, Part>,
}

/// A bucket.
#[derive(Debug)]
pub struct Bucket {
    /// When it was made: milliseconds since 1970.
    pub created: u64,
    space: RwLock<Space>,
    uploads: Mutex<BTreeMap<String, UnfinishedUpload>>,
}

impl Bucket {
    /// A new one.
    pub fn new(made: Option<SyntheticContent>, created: u64) -> Bucket {
        Bucket { created, space: RwLock::new(Space::new(made)), uploads: Mutex::default() }
    }

    /// To look at.
    pub fn space(&self) -> RwLockReadGuard<'_, Space> {
        self.space.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change.
    pub fn change(&self) -> RwLockWriteGuard<'_, Space> {
        self.space.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unfinished uploads, by id.
    pub fn uploads(&self) -> MutexGuard<'_, BTreeMap<String, UnfinishedUpload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
