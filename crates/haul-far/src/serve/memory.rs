//! Memory that one near end can make this end hold, on all its pipes together. The reader of a pipe waits for room before it takes the
//! next request in; so a near end that asks much and reads nothing is no longer read from.
//!
//! Nobody waits for room of one kind while holding room of a kind that comes later here, and holders of the last two kinds finish by
//! writing, or by reading a disk. So room of each kind becomes free as long as the near end reads its answers.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of requests that are under way or whose answers wait to be written, as they are in memory.
const ASKED: usize = 256 << 20;

/// A parsed message takes this many times its bytes, in small allocations.
const READ: usize = 8;

/// And this many bytes for any request: a task, its queue, entries in tables.
const EACH: usize = 4 << 10;

/// Bytes of answers that are being made of many things, or of a whole file.
const MADE: usize = 128 << 20;

/// Bytes of answers that wait to be written.
const ANSWERS: usize = 64 << 20;

/// Bytes of content that were read and wait to be written.
const CONTENT: usize = 64 << 20;

/// Bytes of content that came and wait to be stored. A near end has 64 MiB on the way.
const UNSTORED: u64 = 256 << 20;

/// Overhead of a piece of content, in bytes.
const PIECE: u64 = 256;

/// Pipes of one near end. It has eight sessions and four connections at most. Where content is compressed, each holds
/// 16 MiB of what went before in either direction (`history`), beside what is counted here.
const PIPES: usize = 16;

/// Listings at once. Each may have read some megabytes ahead.
const LISTINGS: usize = 128;

/// Room that is held until it is dropped.
pub type RoomPermit = Option<OwnedSemaphorePermit>;

/// Room by kind.
#[derive(Debug)]
pub struct Room {
    requests: Arc<Semaphore>,
    made: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    content: Arc<Semaphore>,
    unstored: Arc<AtomicU64>,
    pipes: Arc<AtomicUsize>,
    listings: Arc<Semaphore>,
}

/// A pipe that is served.
#[derive(Debug)]
pub struct PipeSlot(Arc<AtomicUsize>);

impl Drop for PipeSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Room {
    pub fn new() -> Room {
        let of = |bytes| Arc::new(Semaphore::new(bytes));
        Room {
            requests: of(ASKED),
            made: of(MADE),
            answers: of(ANSWERS),
            content: of(CONTENT),
            unstored: Arc::default(),
            pipes: Arc::default(),
            listings: of(LISTINGS),
        }
    }

    /// Room for a request of `bytes` bytes, until its answer is written.
    pub async fn request(&self, bytes: usize) -> RoomPermit {
        hold(&self.requests, bytes.saturating_mul(READ).saturating_add(EACH), ASKED).await
    }

    /// For what is to become an answer.
    pub async fn made(&self, bytes: usize) -> RoomPermit {
        hold(&self.made, bytes, MADE).await
    }

    /// For an answer, until it is written.
    pub async fn answer(&self, bytes: usize) -> RoomPermit {
        hold(&self.answers, bytes, ANSWERS).await
    }

    /// Room for an answer where it isn't worth waiting for.
    pub fn answer_now(&self, bytes: usize) -> RoomPermit {
        self.answers.clone().try_acquire_many_owned(count(bytes, ANSWERS)).ok()
    }

    /// For a piece of content, before it is read, until it is written.
    pub async fn content(&self, bytes: usize) -> RoomPermit {
        hold(&self.content, bytes, CONTENT).await
    }

    /// For a listing.
    pub fn listing(&self) -> RoomPermit {
        self.listings.clone().try_acquire_owned().ok()
    }

    /// For one more pipe.
    ///
    /// Errors: `InvalidData` where there are too many.
    pub fn pipe(&self) -> io::Result<PipeSlot> {
        let place = PipeSlot(self.pipes.clone());
        match self.pipes.fetch_add(1, Ordering::Relaxed) < PIPES {
            true => Ok(place),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "the near end has too many pipes")),
        }
    }

    /// Counts a piece of content that came.
    ///
    /// Errors: `InvalidData` where too much waits.
    pub fn came(&self, bytes: usize) -> io::Result<()> {
        let bytes = piece(bytes);
        if self.unstored.fetch_add(bytes, Ordering::Relaxed) + bytes > UNSTORED {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the near end sends more than can be stored"));
        }
        Ok(())
    }

    /// Bytes that wait to be stored: whoever takes pieces out subtracts them.
    pub fn unstored(&self) -> Arc<AtomicU64> {
        self.unstored.clone()
    }
}

/// Bytes that a piece of content counts for.
pub fn piece(bytes: usize) -> u64 {
    bytes as u64 + PIECE
}

async fn hold(of: &Arc<Semaphore>, bytes: usize, all: usize) -> RoomPermit {
    // Closed never.
    of.clone().acquire_many_owned(count(bytes, all)).await.ok()
}

/// Anything larger than half counts as half: it gets its turn, and smaller ones continue beside it.
fn count(bytes: usize, all: usize) -> u32 {
    bytes.min(all / 2) as u32
}
