//! Chunks that go straight through: from a store's answer into a file at the destination, piece by piece as they come.
//! No chunk is ever whole in memory, so chunks may be large and many at once; each piece is written while it is still in
//! the processor's cache.

use super::Target;
use crate::{
    budget::{Budget, Claim},
    transfer::Count,
};
use futures::{StreamExt, stream::FuturesUnordered};
use haul_core::{Algo, Entry, Error, ErrorKind, Hasher, Hashes, Result};
use haul_store::{Body, Part, Payload, Store};
use std::{ops::Range, sync::Arc};

/// Memory of one chunk under way: a piece that comes, one that is written, and what the connection holds, with room to spare.
const IN_HAND: u64 = 1 << 20;

/// Where chunks come from.
pub struct From {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The key and the version that was opened.
    pub entry: Entry,
}

/// One chunk that has arrived, and its hashes.
pub struct Through {
    pub part: Part,
    pub hashes: Hashes,
}

/// Moves the chunks of these numbers into `target`; each comes with its hashes of `algos`.
///
/// Errors: the first of any read or write; everything still in flight is then given up.
pub async fn through(
    budget: &Budget,
    from: &From,
    target: &Target,
    chunks: Vec<u64>,
    algos: &[Algo],
    count: &Count<'_>,
    claim: &Claim,
) -> Result<Vec<Through>> {
    let mut left = chunks.len() as u64;
    let mut chunks = chunks.into_iter();
    let mut moving = FuturesUnordered::new();
    let mut arrived = Vec::new();
    loop {
        // A chunk waits for its memory before it asks for its bytes: one that waited the other way round would keep a
        // connection from those that have memory.
        while moving.len() < budget.reads().max(1)
            && let Some(index) = chunks.next()
        {
            let range = index * target.block..((index + 1) * target.block).min(from.entry.size);
            moving.push(async move {
                let memory = budget.memory(IN_HAND.min(range.end - range.start)).await;
                let chunk = one(from, target, index, range, algos, count).await;
                drop(memory);
                chunk
            });
        }
        let Some(chunk) = moving.next().await else { return Ok(arrived) };
        arrived.push(chunk?);
        left -= 1;
        claim.left(left.max(1));
    }
}

async fn one(
    from: &From,
    target: &Target,
    index: u64,
    range: Range<u64>,
    algos: &[Algo],
    count: &Count<'_>,
) -> Result<Through> {
    let read = from.store.read(&from.entry.key, from.entry.version.as_ref(), Some(range.clone())).await?;
    let Body::Stream(mut pieces) = read.body else {
        return Err(Error::new(ErrorKind::Unsupported, "read", "a range came as a file"));
    };
    let mut hasher = Hasher::new(algos);
    let mut at = range.start;
    let mut tag = Vec::new();
    // While one piece is written the next is read.
    let mut next = pieces.next().await;
    while let Some(piece) = next {
        let piece = piece?;
        let len = piece.len() as u64;
        if at + len > range.end {
            return Err(Error::new(ErrorKind::Corrupt, "read", "more bytes came than were asked for"));
        }
        hasher.update(&piece);
        let write = target.upload.part(index, at, Payload::from(piece));
        let (written, following) = futures::join!(write, pieces.next());
        tag = written?.tag;
        count.add(len);
        at += len;
        next = following;
    }
    let (got, want) = (at - range.start, range.end - range.start);
    if got != want {
        return Err(crate::hash::ended_early(got, want));
    }
    let part = Part { index, size: got, tag };
    let hashes = hasher.finish();
    if let Some(track) = &target.track {
        track.sent(part.clone(), range.start, &hashes);
    }
    Ok(Through { part, hashes })
}
