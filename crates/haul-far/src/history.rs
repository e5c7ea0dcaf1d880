//! Earlier bytes on a pipe, in one direction: frames of content are compressed with some of them as a prefix, so that bytes in
//! common are sent once. Both ends keep the same history, namely the plain bytes of the frames flagged so ([`Marks`]), in the order in
//! which they cross, and take the prefix from it by the same rule.
//!
//! Bytes that aren't compressed, or don't profit, aren't kept: they cost nothing at either end, and displace nothing.
//!
//! [`Marks`]: crate::frame::Marks

use crate::compression::{self, Packing};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    io::{Error, ErrorKind, Result},
};

/// Largest prefix, in bytes. More hardly helps at the levels used: those up to 3 look no further back.
pub const REACH: usize = 1 << 20;

/// Of so much the levels up to this one make use.
const QUICK: (i32, usize) = (1, 128 << 10);

/// The prefix is loaded anew for each frame: it has this many times the frame's bytes, where that is more than the minimum.
const TIMES: usize = 4;
const LEAST: usize = 32 << 10;

/// Bytes that are kept: the reach of sixteen requests that take turns, as many as a near end has under way when it reads large files.
const KEPT: usize = 16 << 20;

/// A frame counts for no less, so that they are few.
const EACH: usize = 8 << 10;

/// History of one direction.
#[derive(Debug, Default)]
pub struct History {
    /// Request numbers and their content, the newest last.
    frames: VecDeque<(u32, Bytes)>,
    /// Bytes that they count for.
    size: usize,
}

impl History {
    /// Keeps the plain bytes of a frame, which is of this request. They share their memory with nothing that is larger.
    pub fn keep(&mut self, id: u32, body: Bytes) {
        let count = |body: &Bytes| body.len().max(EACH);
        self.size += count(&body);
        self.frames.push_back((id, body));
        while self.size > KEPT
            && let Some((_, oldest)) = self.frames.pop_front()
        {
            self.size -= count(&oldest);
        }
    }

    /// The last `length` bytes of this request, preceded by those of other requests where it has fewer.
    ///
    /// Errors: `InvalidData` where there are fewer in all.
    pub fn last(&self, id: u32, length: usize) -> Result<Vec<u8>> {
        let mut missing = length;
        let mut pieces = Vec::new();
        for own in [true, false] {
            for (_, body) in self.frames.iter().rev().filter(|(of, _)| (*of == id) == own) {
                if missing == 0 {
                    break;
                }
                let piece = &body[body.len().saturating_sub(missing)..];
                missing -= piece.len();
                pieces.push(piece);
            }
        }
        if missing > 0 || length > REACH {
            return Err(Error::new(ErrorKind::InvalidData, "a compressed frame follows on more than there was"));
        }
        pieces.reverse();
        Ok(pieces.concat())
    }

    /// The prefix for a frame of `size` bytes, at this level.
    fn before(&self, id: u32, size: usize, level: i32) -> Vec<u8> {
        let (quick, quick_reach) = QUICK;
        let reach = if level <= quick { quick_reach } else { REACH };
        let there: usize = self.frames.iter().map(|(_, body)| body.len()).sum();
        let length = (TIMES * size).max(LEAST).min(reach).min(there);
        self.last(id, length).unwrap_or_default()
    }
}

/// How a frame of content is to be compressed.
#[derive(Debug)]
pub enum FrameCompression {
    /// It goes as it is.
    No,
    /// By itself.
    Alone(i32),
    /// Behind these bytes. It is kept.
    Behind(i32, Vec<u8>),
}

/// The sender's half: how the next frame of content, which is of this request, is compressed at this level. What is compressed behind
/// others is kept for those that follow.
pub fn way(history: Option<&mut History>, (id, body): (u32, &[u8]), level: Option<i32>) -> FrameCompression {
    match (level, history) {
        (None, _) => FrameCompression::No,
        (Some(level), None) => FrameCompression::Alone(level),
        (Some(_), Some(_)) if !compression::is_worth_trying(body) => FrameCompression::No,
        (Some(level), Some(history)) => {
            let before = history.before(id, body.len(), level);
            // A copy: it may be a small part of what was read.
            history.keep(id, Bytes::copy_from_slice(body));
            FrameCompression::Behind(level, before)
        }
    }
}

/// The receiver's half: what was agreed on, and what came. By default nothing was.
#[derive(Debug, Default)]
pub struct ReceiverHistory {
    /// Frames may be compressed.
    pub packs: bool,
    /// And be kept for others.
    pub history: Option<History>,
}

impl ReceiverHistory {
    /// By what was agreed on.
    pub fn of(packing: Packing) -> ReceiverHistory {
        ReceiverHistory { packs: packing.packs(), history: packing.keeps().then(History::default) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_before_is_bounded_and_begins_with_its_own_request() {
        let mut history = History::default();
        let noise = |seed, size| Bytes::from(haul_testkit::folder::noise(seed, size));
        let kept: Vec<(u32, Bytes)> = (0..200).map(|n| (n % 3, noise(n.into(), 100 << 10))).collect();
        for (id, body) in &kept {
            history.keep(*id, body.clone());
            assert!(history.size <= KEPT);
        }
        let own = [&kept[195].1[..], &kept[198].1].concat();
        assert_eq!(history.last(0, 200 << 10).unwrap(), own);
        assert_eq!(history.last(0, 150 << 10).unwrap(), own[50 << 10..]);
        // A request that is new follows on what came last.
        assert_eq!(history.last(7, 150 << 10).unwrap(), [&kept[198].1[50 << 10..], &kept[199].1].concat());
        let refused = |history: &History, length| history.last(0, length).unwrap_err().to_string();
        assert_eq!(refused(&history, REACH + 1), "a compressed frame follows on more than there was");
        let mut history = History::default();
        (0..9).for_each(|id| history.keep(id, noise(id.into(), 1000)));
        history.keep(0, noise(9, 10));
        let others = (1..9).map(|id| noise(id, 1000));
        let all: Vec<Bytes> = others.chain([noise(0, 1000), noise(9, 10)]).collect();
        assert_eq!(history.last(0, 9010).unwrap(), all.concat());
        assert_eq!(refused(&history, 9011), "a compressed frame follows on more than there was");
        // Even if they are small.
        (0..100_000).for_each(|id| history.keep(id, Bytes::new()));
        assert!(history.frames.len() <= KEPT / EACH);
        history.keep(0, noise(1, 2 * KEPT));
        assert!(history.frames.is_empty());
    }

    #[test]
    fn what_does_not_get_smaller_leaves_no_trace() {
        let mut history = History::default();
        assert!(matches!(
            way(Some(&mut history), (1, &haul_testkit::folder::noise(1, REACH)), Some(3)),
            FrameCompression::No
        ));
        assert!(matches!(way(Some(&mut history), (1, &[0; REACH]), None), FrameCompression::No));
        assert!(matches!(way(Some(&mut history), (1, &[0; 100]), Some(3)), FrameCompression::No));
        assert!(history.frames.is_empty());
        assert!(matches!(way(None, (1, &[0; REACH]), Some(3)), FrameCompression::Alone(3)));
        let mut before = |size, level| match way(Some(&mut history), (1, &vec![0; size]), Some(level)) {
            FrameCompression::Behind(_, before) => before.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!([before(1000, 3), before(REACH, 3), before(REACH, 3)], [0, 1000, REACH]);
        assert_eq!([before(1000, 3), before(50_000, 3), before(REACH, 1)], [LEAST, 200_000, 128 << 10]);
    }
}
