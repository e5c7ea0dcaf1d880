//! Hashes of bytes that arrive piece by piece, computed on disk threads. MD5s of several streams (concurrent files, parts of one file) are
//! computed side by side on one thread, which takes whatever is waiting at the moment. A single stream is hashed at once, unless
//! the caller says that there is time ([`Leisure`]).

use crate::{Payload, disk, payload::on_its_way};
use bytes::Bytes;
use haul_core::{Hasher, Result, hash};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// Up to this many bytes are hashed where they are; more go to a disk thread, so that no request waits for it: a tenth of a
/// millisecond, ten times what it costs to hand them over.
pub const INLINE: u64 = 64 << 10;

/// Bytes of each stream between two looks at what else waits: 30 microseconds.
const TURN: usize = 16 << 10;

/// The next bytes of one stream.
struct Stream {
    hasher: Hasher,
    pieces: Arc<[Bytes]>,
    /// The next piece, and where in it.
    next: (usize, usize),
    /// Returns the hasher to its waiter.
    answer: oneshot::Sender<Hasher>,
}

/// Streams that wait for a place beside others, and how many threads take them in.
struct Waiting {
    streams: VecDeque<Stream>,
    threads: usize,
}

struct Queue(Mutex<Waiting>);

/// The whole process's.
static QUEUE: Queue = Queue::new();

/// Streams that are worth beginning with when there is time: half of what one thread takes side by side (AVX-512).
const COMPANY: usize = 8;

/// So long a stream waits for company.
const PATIENCE: Duration = Duration::from_millis(20);

/// Returns whether a hash may wait a little for others, beside which it is cheaper: true while the caller waits for something else
/// as well.
pub type Leisure<'a> = &'a (dyn Fn() -> bool + Send + Sync);

/// It is wanted at once.
pub const NOW: Leisure<'static> = &|| false;

/// Feeds the bytes of `payload` into `hasher`. For a file, the next block is read while one is hashed.
///
/// Errors: a failed read of the payload ([`Payload::each`]); `Io` when a thread was lost.
pub async fn update(mut hasher: Hasher, payload: &Payload, leisure: Leisure<'_>) -> Result<Hasher> {
    if payload.relay().is_some() {
        return Err(on_its_way());
    }
    let pieces = payload.pieces_shared();
    if pieces.is_some() && payload.len() <= INLINE {
        payload.each(|piece| hasher.update(piece))?;
        return Ok(hasher);
    }
    if !hasher.gains_side_by_side() {
        let payload = payload.clone();
        return disk::run(move || {
            payload.each(|block| hasher.update(block))?;
            Ok(hasher)
        })
        .await;
    }
    if let Some(pieces) = pieces {
        return QUEUE.beside(hasher, pieces, leisure()).await;
    }
    let mut at = 0;
    let mut block = match payload.read_at(at) {
        Some(block) => block.await?,
        None => return Ok(hasher),
    };
    loop {
        at += block.len() as u64;
        let hashed = QUEUE.beside(hasher, [block].into(), leisure());
        let Some(next) = payload.read_at(at) else { return hashed.await };
        (hasher, block) = futures::try_join!(hashed, next)?;
    }
}

/// Takes one piece of a stream into `hasher`.
///
/// Errors: `Io` when a thread was lost.
pub async fn piece(mut hasher: Hasher, bytes: &Bytes) -> Result<Hasher> {
    if hasher.gains_side_by_side() && bytes.len() as u64 > INLINE {
        return QUEUE.beside(hasher, [bytes.clone()].into(), false).await;
    }
    hasher.update(bytes);
    Ok(hasher)
}

impl Queue {
    const fn new() -> Self {
        Self(Mutex::new(Waiting { streams: VecDeque::new(), threads: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hashes beside whatever else waits.
    async fn beside(&'static self, hasher: Hasher, pieces: Arc<[Bytes]>, leisure: bool) -> Result<Hasher> {
        let (answer, mut pending) = oneshot::channel();
        let waiting = {
            let mut queue = self.lock();
            queue.streams.push_back(Stream { hasher, pieces, next: (0, 0), answer });
            queue.streams.len()
        };
        if leisure && waiting < COMPANY {
            tokio::select! {
                biased;
                hasher = &mut pending => return hasher.map_err(|_| disk::lost("hash")),
                () = tokio::time::sleep(PATIENCE) => {}
            }
        }
        self.begin();
        pending.await.map_err(|_| disk::lost("hash"))
    }

    /// Has what waits hashed.
    fn begin(&'static self) {
        let more = {
            let mut queue = self.lock();
            // One thread for as many as it hashes side by side: a second would take as much time again for half as many each.
            let cores = thread::available_parallelism().map_or(1, |n| n.get());
            let more = queue.threads < cores && queue.streams.len() > queue.threads * hash::side_by_side();
            queue.threads += usize::from(more);
            more
        };
        if more && !disk::bytes().begin(|| self.take_in()) {
            let mut queue = self.lock();
            queue.threads -= 1;
            queue.streams.clear();
        }
    }

    /// Hashes what waits until nothing does.
    fn take_in(&self) {
        let most = hash::side_by_side();
        let mut streams: Vec<Stream> = Vec::with_capacity(most);
        loop {
            {
                let mut queue = self.lock();
                while streams.len() < most
                    && let Some(stream) = queue.streams.pop_front()
                {
                    streams.push(stream);
                }
                if streams.is_empty() {
                    queue.threads -= 1;
                    return;
                }
            }
            Hasher::update_each(streams.iter_mut().map(Stream::turn));
            for done in streams.extract_if(.., |stream| stream.next.0 == stream.pieces.len()) {
                // The caller may have stopped waiting.
                let _ = done.answer.send(done.hasher);
            }
            streams.retain(|stream| !stream.answer.is_closed());
        }
    }
}

impl Stream {
    /// The bytes that are next, and what takes them in.
    fn turn(&mut self) -> (&mut Hasher, &[u8]) {
        let (piece, at) = self.next;
        let Some(left) = self.pieces.get(piece).map(|piece| &piece[at..]) else { return (&mut self.hasher, &[]) };
        let bytes = &left[..left.len().min(TURN)];
        self.next = if bytes.len() == left.len() { (piece + 1, 0) } else { (piece, at + bytes.len()) };
        (&mut self.hasher, bytes)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use crate::Buffers;
    use futures::future::join_all;
    use haul_core::{Algo, hash::hash_bytes};

    /// Many at once, in memory and in files, in pieces of odd lengths: more than are hashed side by side.
    #[tokio::test(flavor = "multi_thread")]
    async fn many_at_once_have_the_hashes_that_each_has_alone() {
        let algos = [Algo::Md5, Algo::Crc64Nvme];
        let all: Vec<Vec<u8>> = (0..60usize)
            .map(|n| (0..n * 9_973).map(|i| ((i + n).wrapping_mul(2_654_435_761) >> 9) as u8).collect())
            .collect();
        let payload = |n: usize, bytes: &[u8]| {
            if n.is_multiple_of(3) {
                let mut file = tempfile::tempfile().unwrap();
                std::io::Write::write_all(&mut file, bytes).unwrap();
                return Payload::of_file(Arc::new(file), 0..bytes.len() as u64, Buffers::default());
            }
            Payload::new(bytes.chunks(70_001).map(Bytes::copy_from_slice).collect())
        };
        let hashed = all.iter().enumerate().map(|(n, bytes)| {
            let payload = payload(n, bytes);
            async move { update(Hasher::new(&algos), &payload, &|| n % 4 == 1).await.unwrap().finish() }
        });
        for (hashed, bytes) in join_all(hashed).await.into_iter().zip(&all) {
            assert_eq!(hashed, hash_bytes(&algos, bytes), "{} bytes", bytes.len());
        }
    }

    /// A queue of its own: in the process's queue, other tests would be the company.
    #[tokio::test]
    async fn who_has_time_waits_for_company_and_not_for_ever() {
        static OWN: Queue = Queue::new();
        let bytes = Bytes::from(vec![7; 100_000]);
        let begun = std::time::Instant::now();
        let hashes = OWN.beside(Hasher::new(&[Algo::Md5]), [bytes.clone()].into(), true).await.unwrap().finish();
        assert_eq!(hashes, hash_bytes(&[Algo::Md5], &bytes));
        assert!(begun.elapsed() >= PATIENCE);
        assert!(OWN.lock().streams.is_empty());
    }
}
