//! The chunks of one source: ranges, several at once, returned as they come; or one stream, in order.

use super::{
    super::read::{Bytes, Source, store_range},
    ChunkRoute, part_size,
};
use crate::{
    budget::Budget,
    io::file_range,
    transfer::{Mover, unfinished::Target},
};
use futures::{
    StreamExt, TryFutureExt,
    future::{BoxFuture, ready},
    stream,
    stream::{BoxStream, FuturesUnordered},
};
use haul_core::{Algo, Result, plan::Route};
use haul_store::{Payload, task::Task};
use std::{collections::BTreeSet, fs::File, ops::Range, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

/// Block of a write that isn't bound to parts, in bytes.
pub const BLOCK: u64 = 512 << 10;

/// Memory of a chunk that is read as it is sent: a block on its way, and one ahead.
const IN_HAND: u64 = 512 << 10;

/// Memory of a chunk that is sent on as it comes: a piece that comes, one that is sent, and the buffers of both connections.
const PASSING: u64 = 1 << 20;

/// One chunk.
pub struct Piece {
    pub index: u64,
    pub offset: u64,
    /// Its bytes, with their hashes of the algorithms that the reader was asked for; a chunk that is sent on as it comes has them
    /// afterwards.
    pub payload: Payload,
    /// The memory that it takes.
    pub memory: Arc<OwnedSemaphorePermit>,
}

/// Treatment of chunks that are at the destination already.
pub enum Reread {
    /// They aren't read.
    Never,
    /// They are read from what the destination has of the file.
    Back(Arc<File>),
    /// They are read from the source.
    Source,
}

/// Gives out the chunks of a source.
pub enum Reader {
    Ranged(Ranged),
    Streamed(Streamed),
}

impl Reader {
    /// A reader of the chunks of `source` that are missing from `target`, and, depending on `again`, of those it has; each chunk comes with
    /// its hashes of `algos`. A stream is read from its start in any case. `apart`: nobody needs the chunks in order, so those of a file,
    /// or of a store whose bytes the destination sends on, may stay where they are until they are sent.
    pub fn new(mover: &Mover, source: Source, target: &Target, again: Reread, algos: Vec<Algo>, apart: bool) -> Self {
        let size = source.facts.size;
        let block = target.block;
        let budget = mover.budget.clone();
        let buffers = budget.buffers.clone();
        let passes = apart && mover.cx.dst.caps().relays && matches!(again, Reread::Never);
        let ranged = |read: ReadRange, in_hand: u64, passing: bool| {
            let wanted = |index: &u64| !matches!(again, Reread::Never) || !target.known.contains_key(index);
            let chunks: Vec<u64> = target.chunks(size).filter(wanted).collect();
            let back = match again {
                Reread::Back(file) => Some((file, target.known.keys().copied().collect())),
                Reread::Never | Reread::Source => None,
            };
            let reading = FuturesUnordered::new();
            Reader::Ranged(Ranged {
                read,
                budget,
                size,
                block,
                in_hand,
                passing,
                back,
                chunks,
                next: 0,
                cut: false,
                memory: None,
                reading,
                algos: algos.clone().into(),
            })
        };
        match source.bytes {
            Bytes::File(file) if apart && size > IN_HAND && !mover.cx.dst.caps().files => {
                let lazy = move |range| ready(Ok(Payload::of_file(file.clone(), range, buffers.clone())));
                ranged(Box::new(move |range| Box::pin(lazy(range))), IN_HAND, false)
            }
            Bytes::File(file) => {
                let read = move |range| file_range(file.clone(), range, buffers.clone()).map_ok(Payload::from);
                ranged(Box::new(move |range| Box::pin(read(range))), block, false)
            }
            Bytes::Ranges { store, entry } if passes => {
                let algos = algos.clone();
                let lazy =
                    move |range| ready(Ok(Payload::of_store(store.clone(), entry.clone(), range, algos.clone())));
                ranged(Box::new(move |range| Box::pin(lazy(range))), PASSING, true)
            }
            Bytes::Ranges { store, entry } => {
                ranged(Box::new(move |range| Box::pin(store_range(store.clone(), entry.clone(), range))), block, false)
            }
            Bytes::Stream { stream, memory } => Reader::Streamed(Streamed {
                stream: stream.fuse(),
                frames: Vec::new(),
                got: 0,
                left: bytes::Bytes::new(),
                index: 0,
                offset: 0,
                block,
                ended: false,
                cut: false,
                algos,
                memory: Arc::new(memory),
            }),
        }
    }

    /// Makes ready to read more, where `reads` chunks may be read at once, and `writes` written, of which `writing` are.
    /// A range for whose number and length `goes` is false, and those after it, are left out.
    /// True when [`Reader::next`] has something to wait for.
    pub fn start(&mut self, reads: usize, writes: usize, writing: usize, goes: &dyn Fn(u64, u64) -> bool) -> bool {
        match self {
            Reader::Ranged(ranged) => ranged.start(reads, writes, writing, goes),
            // The memory of a stream is taken once, for two blocks: one to fill and one to write.
            Reader::Streamed(streamed) => !streamed.ended && writing <= 1,
        }
    }

    /// The next chunk that is read, in any order; `None` when there is none yet, or there was none left.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Piece>> {
        match self {
            Reader::Ranged(ranged) => ranged.next().await,
            Reader::Streamed(streamed) => streamed.next().await,
        }
    }

    /// True for one whose chunks are read as they are sent.
    pub fn passes(&self) -> bool {
        matches!(self, Reader::Ranged(Ranged { passing: true, .. }))
    }

    /// True for one that learns how long its chunks are as they come.
    pub fn is_stream(&self) -> bool {
        matches!(self, Reader::Streamed(_))
    }

    /// Leaves out what is still to come.
    pub fn cut(&mut self) {
        match self {
            Reader::Ranged(ranged) => ranged.cut(),
            Reader::Streamed(streamed) => (streamed.ended, streamed.cut) = (true, true),
        }
    }

    /// True when something was left out.
    pub fn is_cut(&self) -> bool {
        match self {
            Reader::Ranged(ranged) => ranged.cut,
            Reader::Streamed(streamed) => streamed.cut,
        }
    }

    /// Chunks that are still to come.
    pub fn left(&self) -> u64 {
        match self {
            Reader::Ranged(ranged) => (ranged.chunks.len() - ranged.next + ranged.reading.len()) as u64,
            Reader::Streamed(streamed) => u64::from(!streamed.ended),
        }
    }
}

/// Bytes of a chunk of a file of `size` bytes that takes this route.
pub fn block(mover: &Mover, route: Route, size: u64) -> u64 {
    match (route, mover.cx.dst.caps().parts) {
        (Route::Parts { size }, _) => size,
        // A file that fits into one request must come as one piece.
        (_, Some(limits)) if size <= limits.single => size.max(1),
        (_, Some(limits)) if limits.min > 1 => part_size(&mover.job, &limits, Some(size), &ChunkRoute::Other),
        _ => BLOCK,
    }
}

type ReadRange = Box<dyn Fn(Range<u64>) -> BoxFuture<'static, Result<Payload>> + Send + Sync>;

/// Chunks that can be read at any offset. Memory is taken in their order, so that the one that a hasher waits for
/// always has its own.
pub struct Ranged {
    read: ReadRange,
    budget: Budget,
    size: u64,
    block: u64,
    /// Memory of a chunk at most.
    in_hand: u64,
    /// They are read as they are sent.
    passing: bool,
    /// Chunks that the destination's own file has, and that file.
    back: Option<(Arc<File>, BTreeSet<u64>)>,
    /// The chunks to read, in order.
    chunks: Vec<u64>,
    /// Place in `chunks` of the next to be begun.
    next: usize,
    /// Some were left out.
    cut: bool,
    /// Waits for the memory of `next`.
    memory: Option<BoxFuture<'static, OwnedSemaphorePermit>>,
    reading: FuturesUnordered<Task<Result<Piece>>>,
    algos: Arc<[Algo]>,
}

impl Ranged {
    fn start(&mut self, reads: usize, writes: usize, writing: usize, goes: &dyn Fn(u64, u64) -> bool) -> bool {
        let reading = self.reading.len();
        let next = self.chunks.get(self.next).filter(|_| self.memory.is_none()).copied();
        if let Some(next) = next
            && reading < reads
            && reading + writing < reads + writes
        {
            let range = self.range(next);
            let len = range.end - range.start;
            if goes(next, len) {
                let (bytes, budget) = (len.min(self.in_hand), self.budget.clone());
                self.memory = Some(Box::pin(async move { budget.memory(bytes).await }));
            } else {
                self.cut();
            }
        }
        self.memory.is_some() || reading > 0
    }

    fn cut(&mut self) {
        self.chunks.truncate(self.next);
        self.cut = true;
    }

    fn range(&self, index: u64) -> Range<u64> {
        index * self.block..((index + 1) * self.block).min(self.size)
    }

    /// Begins the read that memory has come for (then there is no chunk yet), or returns one that is done.
    async fn next(&mut self) -> Result<Option<Piece>> {
        tokio::select! {
            Some(piece) = self.reading.next(), if !self.reading.is_empty() => piece.map(Some),
            memory = async { match &mut self.memory { Some(memory) => memory.await, None => std::future::pending().await } } => {
                self.memory = None;
                self.begin(memory);
                Ok(None)
            }
        }
    }

    fn begin(&mut self, memory: OwnedSemaphorePermit) {
        let index = self.chunks[self.next];
        let range = self.range(index);
        self.next += 1;
        let (offset, algos) = (range.start, self.algos.clone());
        let read = match &self.back {
            Some((file, there)) if there.contains(&index) => {
                Box::pin(file_range(file.clone(), range, self.budget.buffers.clone()).map_ok(Payload::from))
            }
            _ => (self.read)(range),
        };
        self.reading.push(Task::spawn(async move {
            let mut payload = read.await?;
            if payload.relay().is_none() {
                let hashes = payload.hash(&algos).await?;
                payload = payload.with_hashes(hashes);
            }
            Ok(Piece { index, offset, payload, memory: Arc::new(memory) })
        }));
    }
}

/// Pieces of one stream, gathered up to `block` bytes each.
pub struct Streamed {
    stream: stream::Fuse<BoxStream<'static, Result<bytes::Bytes>>>,
    /// Frames so far of the piece that is being gathered.
    frames: Vec<bytes::Bytes>,
    got: u64,
    /// The part of the last frame that belongs to the next piece.
    left: bytes::Bytes,
    index: u64,
    offset: u64,
    block: u64,
    ended: bool,
    /// There was more.
    cut: bool,
    algos: Vec<Algo>,
    memory: Arc<OwnedSemaphorePermit>,
}

impl Streamed {
    async fn next(&mut self) -> Result<Option<Piece>> {
        while self.got < self.block {
            let mut frame = std::mem::take(&mut self.left);
            if frame.is_empty() {
                let Some(next) = self.stream.next().await else {
                    self.ended = true;
                    break;
                };
                frame = next?;
            }
            let take = (self.block - self.got).min(frame.len() as u64) as usize;
            self.left = frame.split_off(take);
            self.got += take as u64;
            self.frames.push(frame);
        }
        if self.got == 0 {
            return Ok(None);
        }
        let payload = Payload::new(std::mem::take(&mut self.frames));
        let hashes = payload.hash(&self.algos).await?;
        let payload = payload.with_hashes(hashes);
        let piece = Piece { index: self.index, offset: self.offset, payload, memory: self.memory.clone() };
        self.index += 1;
        self.offset += std::mem::take(&mut self.got);
        Ok(Some(piece))
    }
}
