//! Chunks that go straight through: from a store's answer into a file at the destination, piece by piece as they come.
//! No chunk is ever whole in memory; each piece is written while it is still in the processor's cache. One request reads
//! a run of neighbouring chunks: long runs at first, so that the wait for an answer counts little, single chunks at the
//! end, so that all streams end together (guided self-scheduling, Polychronopoulos and Kuck 1987).

use super::{EndpointRate, MOST, Target, by_chunk, digest::Digest};
use crate::{
    budget::Claim,
    cx::cancelled,
    transfer::{Count, Mover},
};
use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    stream::{BoxStream, Fuse, FuturesUnordered},
};
use haul_core::{Algo, Entry, Error, ErrorKind, Hasher, Hashes, Result};
use haul_store::{Body, Part, Payload, Store};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Memory of one run under way: bytes that come, bytes being written, and the connection's buffer.
const IN_HAND: u64 = 1 << 20;

/// Bytes that are written at once, at most.
const AT_ONCE: usize = 512 << 10;

/// Bytes of a request at least, if there are as many: chunks are smaller because they are recorded one by one, unlike requests.
const REQUEST: u64 = 8 << 20;

/// A run takes this part of each stream's remaining share: half of it is enough for streams of unequal speed.
const SHARE: u64 = 2;

/// Where chunks come from.
pub struct From {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The key and the version that was opened.
    pub entry: Entry,
}

/// One chunk that has arrived, and its hashes.
struct Through {
    part: Part,
    hashes: Hashes,
}

/// Moves the chunks of these numbers, which ascend, into `target`, and hashes them with `digest`, which needs no chunk
/// itself.
///
/// Errors: the first of any read or write; everything still in flight is then given up. `Cancelled` when the rest is more than may be
/// moved; what was under way has arrived then.
pub async fn through(
    mover: &Mover,
    from: &From,
    target: &Target,
    chunks: &[u64],
    digest: &mut Digest,
    count: &Count<'_>,
    claim: &Claim,
) -> Result<Vec<Part>> {
    let budget = &mover.budget;
    let algos = &by_chunk(digest, target);
    // Each run sends what has arrived; closed never, and emptied before the end.
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut waiting = chunks;
    let mut moving = FuturesUnordered::new();
    let mut arrived = Vec::with_capacity(chunks.len());
    let mut cut = false;
    loop {
        // A run waits for its memory before it asks for its bytes: one that waited the other way round would keep a
        // connection from those that have memory.
        while moving.len() < budget.reads().max(1) && !waiting.is_empty() {
            let (least, road) = match mover.job.pace.part_size {
                Some(_) => (target.block, None),
                None => (REQUEST, budget.road()),
            };
            let (run, rest) = waiting.split_at(run(waiting, target.block, least, road));
            let len = |index: &u64| target.block.min(from.entry.size - index * target.block);
            let (run, rest) = match run.iter().position(|index| !count.allows(len(index))) {
                Some(allowed) => {
                    cut = true;
                    (&run[..allowed], &[][..])
                }
                None => (run, rest),
            };
            waiting = rest;
            if run.is_empty() {
                break;
            }
            let tell = &tell;
            moving.push(async move {
                let memory = budget.memory(IN_HAND.min(run.len() as u64 * target.block)).await;
                let moved = one(from, target, run, algos, count, tell).await;
                drop(memory);
                moved
            });
        }
        tokio::select! {
            biased;
            Some(chunk) = told.recv() => {
                let start = chunk.part.index * target.block;
                digest.there(start..start + chunk.part.size);
                digest.chunk(chunk.part.index, chunk.part.size, chunk.hashes);
                arrived.push(chunk.part);
            }
            Some(moved) = moving.next(), if !moving.is_empty() => {
                moved?;
                let requests = (waiting.len() as u64 * target.block).div_ceil(REQUEST.max(target.block));
                claim.left((requests + moving.len() as u64).max(1));
            }
            hashed = digest.advance(), if !digest.is_idle() => hashed?,
            () = std::future::ready(()), if moving.is_empty() && digest.is_idle() => {
                return if cut { Err(cancelled()) } else { Ok(arrived) };
            }
        }
    }
}

/// A request that takes this many round trips loses 6 % to the wait for its answer.
const ROUND_TRIPS: u64 = 16;

/// How many of the first of these chunks one request reads: neighbours, as many bytes as the road suggests, and no
/// more than a share of the rest for each stream, but at least about `least` bytes.
fn run(waiting: &[u64], block: u64, least: u64, road: Option<EndpointRate>) -> usize {
    let suits = road.map_or(0, |road| {
        let reach = (ROUND_TRIPS * road.delay).min(MOST).div_ceil(block);
        reach.min(waiting.len() as u64 / (SHARE * road.width.max(1)))
    });
    let most = suits.max(least / block).max(1) as usize;
    waiting.windows(2).take(most - 1).take_while(|two| two[1] == two[0] + 1).count() + 1
}

/// Moves one run with one request.
async fn one(
    from: &From,
    target: &Target,
    run: &[u64],
    algos: &[Algo],
    count: &Count<'_>,
    tell: &mpsc::UnboundedSender<Through>,
) -> Result<()> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
    let range = first * target.block..((last + 1) * target.block).min(from.entry.size);
    let read = from.store.read(&from.entry.key, from.entry.version.as_ref(), Some(range.clone())).await?;
    let Body::Stream(pieces) = read.body else {
        return Err(Error::new(ErrorKind::Unsupported, "read", "a range came as a file"));
    };
    let mut coming = Coming { pieces: pieces.fuse(), left: Bytes::new() };
    let mut chunk = Chunk::begin(*first, algos);
    let mut at = range.start;
    // To the end of the chunk; behind the last one nothing may come.
    let room = |index: u64, at: u64| (((index + 1) * target.block).min(range.end) - at).max(1);
    // While some is written the next is read.
    let mut next = coming.next(room(chunk.index, at)).await?;
    while !next.is_empty() {
        let len = next.iter().map(|piece| piece.len() as u64).sum::<u64>();
        if at + len > range.end {
            return Err(Error::new(ErrorKind::Corrupt, "read", "more bytes came than were asked for"));
        }
        next.iter().for_each(|piece| chunk.hasher.update(piece));
        let ends = len == room(chunk.index, at);
        let write = target.upload.part(chunk.index, at, Payload::new(next));
        let more = coming.next(room(chunk.index + u64::from(ends), at + len));
        let (written, following) = futures::join!(write, more);
        chunk.size += len;
        chunk.tag = written?.tag;
        count.add(len);
        at += len;
        if ends {
            let index = chunk.index + 1;
            // The receiver outlives every run.
            let _ = tell.send(std::mem::replace(&mut chunk, Chunk::begin(index, algos)).end(target));
        }
        next = following?;
    }
    if at < range.end {
        return Err(haul_store::blocks::ended_early(at - range.start, range.end - range.start));
    }
    Ok(())
}

/// Bytes of one run as they come.
struct Coming {
    pieces: Fuse<BoxStream<'static, Result<Bytes>>>,
    /// The rest of a piece of which some was given.
    left: Bytes,
}

impl Coming {
    /// The next bytes, at most `most`: all that are ready in one go, as each write costs two changes of threads. Empty at
    /// the end.
    ///
    /// Errors: the read fails. Bytes that came before are lost with it.
    async fn next(&mut self, most: u64) -> Result<Vec<Bytes>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(AT_ONCE);
        let (mut found, mut bytes) = (Vec::new(), 0);
        while bytes < most {
            if self.left.is_empty() {
                let next = match found.is_empty() {
                    true => self.pieces.next().await,
                    false => self.pieces.next().now_or_never().flatten(),
                };
                match next {
                    Some(piece) => self.left = piece?,
                    None => break,
                }
                continue;
            }
            let piece = self.left.split_to(self.left.len().min(most - bytes));
            bytes += piece.len();
            found.push(piece);
        }
        Ok(found)
    }
}

/// One chunk on its way.
struct Chunk {
    index: u64,
    size: u64,
    tag: Vec<u8>,
    hasher: Hasher,
}

impl Chunk {
    fn begin(index: u64, algos: &[Algo]) -> Self {
        Chunk { index, size: 0, tag: Vec::new(), hasher: Hasher::new(algos) }
    }

    /// All of it has arrived.
    fn end(self, target: &Target) -> Through {
        let part = Part { index: self.index, size: self.size, tag: self.tag };
        let hashes = self.hasher.finish();
        if let Some(track) = &target.track {
            track.sent(part.clone(), part.index * target.block, &hashes);
        }
        Through { part, hashes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;

    #[tokio::test]
    async fn what_is_there_comes_in_one_go_and_nothing_beyond_the_end_of_a_chunk() {
        let pieces = [b"ab".as_slice(), b"", b"cdef", b"g"].map(|piece| Ok(Bytes::from_static(piece)));
        let pieces = futures::stream::iter(pieces).boxed().fuse();
        let mut coming = Coming { pieces, left: Bytes::new() };
        for (most, wanted) in [(3, "ab|c"), (2, "de"), (9, "f|g"), (1, ""), (1, "")] {
            let pieces = coming.next(most).await.unwrap();
            let pieces: Vec<_> = pieces.iter().map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            assert_eq!(pieces.join("|"), wanted);
        }
        let failing =
            futures::stream::iter([Ok(Bytes::from_static(b"ab")), Err(Error::new(ErrorKind::Io, "read", "cut"))]);
        let mut coming =
            Coming { pieces: failing.chain(futures::stream::pending()).boxed().fuse(), left: Bytes::new() };
        assert!(coming.next(9).await.is_err());
    }

    #[test]
    fn runs_are_long_at_first_and_short_at_the_end() {
        let road = |reach, width| Some(EndpointRate { delay: reach * MI / ROUND_TRIPS, width });
        let all: Vec<u64> = (0..640).collect();
        let run = |chunks: &[u64], block, road| run(chunks, block, REQUEST, road);
        assert_eq!(run(&all, 8 * MI, None), 1);
        assert_eq!(run(&all, 16 * MI, None), 1);
        assert_eq!(run(&all, MI, None), 8, "never many small requests");
        assert_eq!(run(&all, MI, road(20, 10)), 20);
        assert_eq!(run(&all[..39], MI, road(20, 10)), 8);
        assert_eq!(run(&all[..3], MI, road(20, 10)), 3);
        assert_eq!(run(&all, 8 * MI, road(20, 10)), 3);
        assert_eq!(run(&all, 8 * MI, road(1000, 10)), 8, "64 MiB at most");
        assert_eq!(run(&all[..100], 8 * MI, road(1000, 10)), 5);
        assert_eq!(run(&all[..39], 8 * MI, road(1000, 10)), 1);
        assert_eq!(run(&[3, 4, 5, 9, 10], 8 * MI, road(64, 1)), 2);
        assert_eq!(run(&[0, 1, 2, 3, 4, 5, 6, 7, 9], 8 * MI, road(64, 1)), 4);
        assert_eq!(run(&[7], 8 * MI, road(64, 0)), 1);
    }
}
