//! Bytes through memory: read pieces (in order, several reads at once where the source allows), hash them in order,
//! write parts (out of order, several at once). Memory is taken from the job's budget before a piece is read, and
//! given back when it is written.

use super::{
    Count, Mover, VERIFY,
    read::{Bytes, Source, file_range, store_range},
};
use futures::{
    StreamExt, TryFutureExt,
    stream::{self, BoxStream, FuturesUnordered},
};
use haul_core::{Algo, Entry, Error, Hasher, Hashes, Result, plan::Route, policy::Policy};
use haul_store::{Part, PartLimits, Payload, Upload, disk};
use std::{future::Future, ops::Range, pin::Pin, task};
use tokio::{sync::OwnedSemaphorePermit, task::JoinHandle};

/// What went across.
pub struct Pumped {
    /// Bytes.
    pub bytes: u64,
    /// Receipts of the parts, by index.
    pub parts: Vec<Part>,
    /// Hashes of the bytes as they passed.
    pub hashes: Hashes,
}

/// Block of a write that isn't bound to parts, in bytes.
const BLOCK: u64 = 4 << 20;

/// Up to this many bytes are hashed where they are; more go to a disk thread, so that no request waits for it.
const HASH_INLINE: u64 = 256 << 10;

struct Piece {
    index: u64,
    offset: u64,
    payload: Payload,
    memory: OwnedSemaphorePermit,
}

/// The size of parts for a file of `size` bytes (`None`: unknown): the user's, else the store's, but never so small
/// that the file needs more parts than the store allows.
pub fn part_size(policy: &Policy, limits: &PartLimits, size: Option<u64>) -> u64 {
    let wanted = policy.part_size.unwrap_or(limits.preferred);
    // An unknown size could be anything up to the 5 TiB that S3 allows; rclone stops at 48 GiB with its default.
    let least = size.unwrap_or(0).div_ceil(limits.count.max(1)).next_multiple_of(1 << 20);
    wanted.max(least).clamp(limits.min, limits.max)
}

/// Moves all bytes of `source` into `upload`.
///
/// Errors: the first of any read or write; everything still in flight is then given up.
pub async fn pump(mover: &Mover, source: Source, upload: &dyn Upload, count: &Count<'_>) -> Result<Pumped> {
    let algos = algos(mover, &source.facts);
    let mut hasher = Hasher::new(&algos);
    let mut pieces = pieces(mover, source);
    let mut writes = FuturesUnordered::new();
    let (mut bytes, mut parts, mut ended) = (0, Vec::new(), false);
    while !ended || !writes.is_empty() {
        tokio::select! {
            Some(part) = writes.next(), if !writes.is_empty() => parts.push(part?),
            piece = pieces.next(), if !ended && writes.len() < mover.budget.streams => {
                let Some(piece) = piece else {
                    ended = true;
                    continue;
                };
                let piece = piece?;
                bytes += piece.payload.len();
                if !algos.is_empty() {
                    hasher = hash(hasher, piece.payload.clone()).await?;
                }
                writes.push(write(upload, piece, count));
            }
        }
    }
    parts.sort_by_key(|p: &Part| p.index);
    Ok(Pumped { bytes, parts, hashes: hasher.finish() })
}

async fn write(upload: &dyn Upload, piece: Piece, count: &Count<'_>) -> Result<Part> {
    let size = piece.payload.len();
    let part = upload.part(piece.index, piece.offset, piece.payload).await?;
    drop(piece.memory);
    count.add(size);
    Ok(part)
}

/// Which hashes to compute on the way: one that the source knows of the whole, to prove that we read what it holds,
/// and one to compare with when the result is read back.
fn algos(mover: &Mover, facts: &Entry) -> Vec<Algo> {
    let mut algos = Vec::new();
    if !mover.policy.ignore_checksum {
        // The cheapest first: a CRC runs at memory speed, MD5 at half a gigabyte a second.
        let known = [Algo::Crc64Nvme, Algo::Crc32c, Algo::Crc32, Algo::Blake3, Algo::Sha256, Algo::Sha1, Algo::Md5];
        algos.extend(known.into_iter().find(|a| facts.hashes.get(*a).is_some()));
    }
    if mover.policy.verify_read && !algos.contains(&VERIFY) {
        algos.push(VERIFY);
    }
    algos
}

async fn hash(mut hasher: Hasher, payload: Payload) -> Result<Hasher> {
    let large = payload.len() > HASH_INLINE;
    let update = move || {
        payload.0.iter().for_each(|piece| hasher.update(piece));
        Ok(hasher)
    };
    if large { disk::run(update).await } else { update() }
}

/// The source's bytes in order, each piece with the memory that it takes.
fn pieces(mover: &Mover, source: Source) -> BoxStream<'static, Result<Piece>> {
    let limits = mover.cx.dst.caps().parts;
    let size = source.facts.size;
    let block = match (mover.route_through_memory(size), limits) {
        (Route::Parts { size }, _) => size,
        // What fits into one request must come as one piece.
        (_, Some(limits)) if size <= limits.single => size.max(1),
        (_, Some(limits)) if limits.min > 1 => part_size(&mover.policy, &limits, Some(size)),
        _ => BLOCK,
    };
    match source.bytes {
        Bytes::File(file) => {
            ranged(mover, size, block, move |range| file_range(file.clone(), range).map_ok(Payload::from))
        }
        Bytes::Ranges { store, entry, size: part } => {
            ranged(mover, size, part, move |range| store_range(store.clone(), entry.clone(), range))
        }
        Bytes::Stream(stream) => streamed(mover, stream, block),
    }
}

/// Pieces that can be read at any offset: several at once, given out in order. Memory is taken in order too, so the
/// piece that is waited for always has its own.
fn ranged<F, R>(mover: &Mover, size: u64, block: u64, read: F) -> BoxStream<'static, Result<Piece>>
where
    F: Fn(Range<u64>) -> R + Send + 'static,
    R: Future<Output = Result<Payload>> + Send + 'static,
{
    let budget = mover.budget.clone();
    let streams = budget.streams;
    stream::iter(0..size.div_ceil(block))
        .then(move |index| {
            let budget = budget.clone();
            async move {
                let range = index * block..((index + 1) * block).min(size);
                let memory = budget.memory(range.end - range.start).await;
                (index, range, memory)
            }
        })
        .map(move |(index, range, memory)| {
            let (offset, reading) = (range.start, Task(tokio::spawn(read(range))));
            async move { Ok(Piece { index, offset, payload: reading.await?, memory }) }
        })
        .buffered(streams)
        .boxed()
}

/// Pieces of one stream, gathered up to `block` bytes each.
fn streamed(
    mover: &Mover,
    stream: BoxStream<'static, Result<bytes::Bytes>>,
    block: u64,
) -> BoxStream<'static, Result<Piece>> {
    let budget = mover.budget.clone();
    let start = Gather { stream: stream.fuse(), left: bytes::Bytes::new(), index: 0, offset: 0 };
    stream::try_unfold(start, move |mut gather| {
        let budget = budget.clone();
        async move {
            let memory = budget.memory(block).await;
            Ok(gather.piece(block, memory).await?.map(|piece| (piece, gather)))
        }
    })
    .boxed()
}

struct Gather {
    stream: stream::Fuse<BoxStream<'static, Result<bytes::Bytes>>>,
    /// What of the last frame belongs to the next piece.
    left: bytes::Bytes,
    index: u64,
    offset: u64,
}

impl Gather {
    async fn piece(&mut self, block: u64, memory: OwnedSemaphorePermit) -> Result<Option<Piece>> {
        let (mut frames, mut got) = (Vec::new(), 0);
        while got < block {
            let mut frame = std::mem::take(&mut self.left);
            if frame.is_empty() {
                let Some(next) = self.stream.next().await else { break };
                frame = next?;
            }
            let take = (block - got).min(frame.len() as u64) as usize;
            self.left = frame.split_off(take);
            got += take as u64;
            frames.push(frame);
        }
        if got == 0 {
            return Ok(None);
        }
        let piece = Piece { index: self.index, offset: self.offset, payload: Payload::new(frames), memory };
        self.index += 1;
        self.offset += got;
        Ok(Some(piece))
    }
}

/// A task that ends when nobody waits for it any more.
struct Task<T>(JoinHandle<Result<T>>);

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> task::Poll<Result<T>> {
        Pin::new(&mut self.0).poll(cx).map(|joined| match joined {
            Ok(result) => result,
            Err(error) => Err(Error::new(haul_core::ErrorKind::Io, "read", error.to_string())),
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
