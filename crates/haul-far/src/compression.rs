//! Compression of frames by zstd, where it makes them smaller: each alone, or with a prefix that both ends know. The level
//! follows the bottleneck: one more while the link is slower and a level more saves bytes, one less while compression is.

use bytes::{BufMut as _, Bytes};
use serde::{Deserialize, Serialize};
use std::{
    io::{Error, ErrorKind, Result},
    time::Duration,
};
use zstd::zstd_safe::{CCtx, CParameter, DCtx, compress_bound};

/// Smaller ones aren't worth it.
const LEAST: usize = 512;

/// Of larger ones a sample is tried first …
const SAMPLED: usize = 64 << 10;
/// … of this many bytes from the middle.
const SAMPLE: usize = 8 << 10;

/// A frame that saves less than one byte in this many is sent uncompressed.
const WORTH: usize = 20;

/// The level to begin with, which is zstd's own, and the range in which the level follows the link: beyond it little is gained.
const START: i32 = 3;
const LEVELS: std::ops::RangeInclusive<i32> = 1..=9;

/// A level more is kept that leaves no more than this of what the one before left.
const GAIN: f64 = 0.99;
/// Windows at a new level before it is judged: the first ones still bring what was compressed before.
const SETTLES: u32 = 2;
/// Windows before a level is tried again that won nothing: other content may come.
const RESTS: u32 = 32;

/// The level of what is compressed while others wait.
const QUICK: i32 = 3;

/// Levels that zstd has.
pub const ALL_LEVELS: std::ops::RangeInclusive<i32> = -7..=22;

/// Bytes after which the level is reconsidered.
const WINDOW: u64 = 2 << 20;

/// A link that takes fewer bytes a second is slow: one processor compresses several times as much.
const SLOW: f64 = 50e6;

/// A frame carries no more. The largest are listings' batches and small files as a whole; content goes in pieces of [`PIECE`].
pub const MOST: usize = 16 << 20;

/// When frames are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    /// Not at all.
    #[default]
    Never,
    /// Where the link turns out to be slow.
    Slow,
    /// In any case.
    Always,
}

/// Compression at both ends, as the near end prefers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Packing {
    /// When.
    pub when: Compression,
    /// This level of zstd's instead of what suits the link.
    pub level: Option<i32>,
    /// Frames of content are compressed with what went before as a prefix. Ends that don't know of it say nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub history: bool,
}

impl Packing {
    /// Frames may come compressed.
    pub fn packs(self) -> bool {
        self.when != Compression::Never
    }

    /// And what came is kept for those that follow.
    pub fn keeps(self) -> bool {
        self.packs() && self.history
    }
}

/// Adaptive level, found while frames are sent.
pub struct Pace {
    packing: Packing,
    /// 0: as they are.
    level: i32,
    /// Compressed size per byte at the level before the one being tried.
    before: Option<f64>,
    /// Windows that pass until the next step up, or the judgement of the last one.
    rests: u32,
    written: u64,
    plain: u64,
    /// Time spent waiting for the link, and for compression.
    link: Duration,
    work: Duration,
}

impl Pace {
    pub fn new(packing: Packing) -> Pace {
        let level = if packing.when == Compression::Always { packing.level.unwrap_or(START) } else { 0 };
        let (link, work) = (Duration::ZERO, Duration::ZERO);
        Pace { packing, level, before: None, rests: 0, written: 0, plain: 0, link, work }
    }

    /// The level of the next frame of content; `None`: as it is.
    pub fn level(&self) -> Option<i32> {
        (self.level != 0).then_some(self.level)
    }

    /// As [`Pace::level`], for frames that all others wait for.
    pub fn quick(&self) -> Option<i32> {
        self.level().map(|level| level.min(QUICK))
    }

    /// Writing took `link` for `written` bytes, which stand for `plain` ones, and `work` was spent waiting for compression.
    pub fn wrote(&mut self, (written, plain): (usize, usize), link: Duration, work: Duration) {
        (self.written, self.plain) = (self.written + written as u64, self.plain + plain as u64);
        (self.link, self.work) = (self.link + link, self.work + work);
        if self.written < WINDOW || self.packing.when == Compression::Never {
            return;
        }
        let slow = (self.written as f64) < SLOW * self.link.as_secs_f64();
        self.level = match (self.packing.when, self.level) {
            (Compression::Slow, 0) if slow => self.packing.level.unwrap_or(START),
            (Compression::Slow, _) if self.link < self.work / 4 => 0,
            (_, 0) => 0,
            _ if self.packing.level.is_some() => self.level,
            (_, level) if self.work > self.link => {
                self.before = None;
                (level - 1).max(*LEVELS.start())
            }
            (_, level) if self.work < self.link / 4 => self.harder(level),
            (_, level) => level,
        };
        (self.written, self.plain, self.link, self.work) = (0, 0, Duration::ZERO, Duration::ZERO);
    }

    /// The level after this one, where there is time for a higher one: one more, unless the last one more won nothing.
    fn harder(&mut self, level: i32) -> i32 {
        if self.rests > 0 {
            self.rests -= 1;
            return level;
        }
        let left = self.written as f64 / self.plain.max(1) as f64;
        if self.before.take().is_some_and(|before| left > GAIN * before) {
            self.rests = RESTS;
            return (level - 1).max(*LEVELS.start());
        }
        if level == *LEVELS.end() {
            return level;
        }
        (self.before, self.rests) = (Some(left), SETTLES);
        level + 1
    }
}

fn is_worth(packed: usize, plain: usize) -> bool {
    packed + plain / WORTH < plain
}

/// False for what is too small to be compressed, or a sample of which hardly gets smaller.
pub fn is_worth_trying(body: &[u8]) -> bool {
    if body.len() < SAMPLED {
        return body.len() >= LEAST;
    }
    let from = (body.len() - SAMPLE) / 2;
    zstd::bulk::compress(&body[from..from + SAMPLE], 1).is_ok_and(|sample| is_worth(sample.len(), SAMPLE))
}

/// A compressed body, behind its size (4 bytes, big-endian); `None` where that is hardly smaller.
pub fn pack(body: &[u8], level: i32) -> Option<Vec<u8>> {
    is_worth_trying(body).then_some(())?;
    let packed = zstd::bulk::compress(body, level).ok()?;
    headed(&[body.len()], &packed, body.len())
}

/// A body that is worth trying, compressed with `before` as a prefix: behind its size and the prefix's (4 bytes each, big-endian), and
/// with a checksum, since another prefix would give other bytes. `None` where that is hardly smaller. The two lie in different memory:
/// zstd heeds no prefix that overlaps.
pub fn pack_behind(body: &[u8], before: &[u8], level: i32) -> Option<Vec<u8>> {
    let mut context = CCtx::try_create()?;
    context.set_parameter(CParameter::CompressionLevel(level)).ok()?;
    context.set_parameter(CParameter::ChecksumFlag(true)).ok()?;
    context.ref_prefix(before).ok()?;
    let mut packed = Vec::with_capacity(compress_bound(body.len()));
    context.compress2(&mut packed, body).ok()?;
    headed(&[body.len(), before.len()], &packed, body.len())
}

/// The compressed bytes, after their sizes; `None` where it isn't worth it.
fn headed(sizes: &[usize], packed: &[u8], plain: usize) -> Option<Vec<u8>> {
    is_worth(packed.len(), plain).then_some(())?;
    let mut headed = Vec::with_capacity(4 * sizes.len() + packed.len());
    sizes.iter().for_each(|size| headed.put_u32(*size as u32));
    headed.extend_from_slice(packed);
    Some(headed)
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// The size at the beginning, and what follows.
fn size(body: &[u8]) -> Result<(usize, &[u8])> {
    let (size, rest) = body.split_first_chunk().ok_or_else(|| wrong("a compressed frame is too short"))?;
    Ok((u32::from_be_bytes(*size) as usize, rest))
}

/// The size that a body will have.
fn plain_size(body: &[u8]) -> Result<(usize, &[u8])> {
    let (size, rest) = size(body)?;
    if size > MOST {
        return Err(wrong("a compressed frame is too large"));
    }
    Ok((size, rest))
}

/// The body again.
///
/// Errors: `InvalidData` for what nobody compressed, or what is larger than a frame may be.
pub fn unpack(body: &[u8]) -> Result<Bytes> {
    let (size, packed) = plain_size(body)?;
    plain(packed, &[], size)
}

/// Unpacks a body that was compressed with a prefix. `last` supplies that many earlier bytes.
///
/// Errors: those of [`unpack`] and of `last`; `InvalidData` where the earlier bytes differ.
pub fn unpack_behind(body: &[u8], last: impl FnOnce(usize) -> Result<Vec<u8>>) -> Result<Bytes> {
    let (size, rest) = plain_size(body)?;
    let (before, packed) = self::size(rest)?;
    plain(packed, &last(before)?, size)
}

fn plain(packed: &[u8], before: &[u8], size: usize) -> Result<Bytes> {
    let damaged = || wrong("a compressed frame is damaged");
    let mut context = DCtx::try_create().ok_or_else(damaged)?;
    context.ref_prefix(before).map_err(|_| damaged())?;
    let mut plain = Vec::with_capacity(size);
    context.decompress(&mut plain, packed).map_err(|_| damaged())?;
    if plain.len() != size {
        return Err(wrong("a compressed frame has another size than it says"));
    }
    Ok(plain.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_gets_smaller_is_packed_and_nothing_else() {
        let text: Vec<u8> = (0..20_000u32).flat_map(|n| format!("line {n} of a log\n").into_bytes()).collect();
        let packed = pack(&text, 3).unwrap();
        assert!(packed.len() < text.len() / 3);
        assert_eq!(unpack(&packed).unwrap(), text);
        assert!(pack(&text[..100], 3).is_none(), "too small");
        assert!(pack(&haul_testkit::folder::noise(1, 300_000), 3).is_none());
    }

    #[test]
    fn the_level_follows_who_waits() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(1));
        let run = |when, level, link, work| {
            let mut pace = Pace::new(Packing { when, level, ..Packing::default() });
            // Each level halves what is left.
            let plain = |level: Option<i32>| (WINDOW as usize) << level.unwrap_or(0).max(0);
            (0..30).for_each(|_| pace.wrote((WINDOW as usize, plain(pace.level())), link, work));
            pace.level()
        };
        assert_eq!(run(Compression::Never, None, long, short), None);
        assert_eq!(run(Compression::Slow, None, short, Duration::ZERO), None, "2 GB/s");
        assert_eq!(run(Compression::Slow, None, long, short), Some(9), "2 MB/s");
        assert_eq!(run(Compression::Always, None, short, long), Some(1));
        assert_eq!(run(Compression::Always, Some(-3), long, short), Some(-3));
    }

    #[test]
    fn a_level_that_wins_nothing_is_left_and_tried_again_much_later() {
        let mut pace = Pace::new(Packing { when: Compression::Always, ..Packing::default() });
        let levels: Vec<_> = (0..70)
            .map(|_| {
                // Up to 5 each level leaves a tenth less.
                let left = 0.9f64.powi(pace.level().unwrap().min(5));
                let plain = (WINDOW as f64 / left) as usize;
                pace.wrote((WINDOW as usize, plain), Duration::from_secs(1), Duration::from_millis(1));
                pace.level().unwrap()
            })
            .collect();
        let windows = |level| levels.iter().filter(|&&l| l == level).count();
        assert_eq!((windows(4), windows(6), windows(7)), (3, 6, 0), "{levels:?}");
        assert_eq!(levels.last(), Some(&5));
    }

    proptest! {
        #[test]
        fn nobody_is_made_to_hold_more_than_a_frame(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(plain) = unpack(&bytes) {
                prop_assert!(plain.len() <= MOST);
            }
        }
    }
}
