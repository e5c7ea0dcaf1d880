//! Hashes of a file whose chunks come in any order: each chunk's own where they can be combined (CRCs), else one hasher
//! that takes the bytes in order, beside the transfer: from the file on a disk that they come from or go to, so that no chunk
//! waits for its turn in memory; where neither end is a file, from the chunks, which then do wait.

use super::reader::Piece;
use futures::future::BoxFuture;
use haul_core::{Algo, Hasher, Hashes, Result, hash};
use haul_store::{Buffers, Payload, SentPart, hashing};
use std::{collections::BTreeMap, fs::File, ops::Range, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

/// Bytes of a file that are passed to the hasher at a time: a stop waits for no more.
const STRETCH: u64 = 16 << 20;

/// The hashes of one file as its chunks pass.
pub struct Digest {
    algos: Vec<Algo>,
    /// By index: length and hashes of chunks that are hashed one by one.
    pieces: BTreeMap<u64, (u64, Hashes)>,
    next: Next,
    whole: Whole,
    /// Says whether a hash may wait for others.
    leisure: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// The hasher's next input.
enum Next {
    /// Chunks that wait for their turn, and the memory that they keep; the first is the one of this index.
    Chunks(BTreeMap<u64, (Payload, Arc<OwnedSemaphorePermit>)>, u64),
    File(Behind),
}

/// A file that holds the bytes.
struct Behind {
    file: Arc<File>,
    buffers: Buffers,
    /// Up to here it is hashed.
    at: u64,
    /// Up to here all bytes have come.
    reach: u64,
    /// Stretches that have come beyond that: by their start, with their end.
    beyond: BTreeMap<u64, u64>,
}

/// Where the hasher is that takes bytes in order.
enum Whole {
    /// Chunks are hashed one by one.
    Apart,
    Here(Hasher),
    Away(BoxFuture<'static, Result<Hasher>>),
}

/// True when no hash of these needs the bytes in order.
pub fn apart(algos: &[Algo]) -> bool {
    algos.iter().all(|algo| hash::combines(*algo))
}

impl Digest {
    /// Of these algorithms, from chunks; none costs nothing.
    pub fn new(algos: Vec<Algo>) -> Self {
        let whole = if apart(&algos) { Whole::Apart } else { Whole::Here(Hasher::new(&algos)) };
        Digest {
            algos,
            pieces: BTreeMap::new(),
            next: Next::Chunks(BTreeMap::new(), 0),
            whole,
            leisure: Arc::new(hashing::NOW),
        }
    }

    /// Of these algorithms, which need the bytes in order: from a file of which nothing is [there](Digest::there) yet.
    pub fn of_file(algos: Vec<Algo>, file: Arc<File>, buffers: Buffers) -> Self {
        let behind = Behind { file, buffers, at: 0, reach: 0, beyond: BTreeMap::new() };
        Digest { next: Next::File(behind), ..Digest::new(algos) }
    }

    /// Lets the hash of a file of one chunk wait a little where `leisure` says so.
    pub fn at_leisure(self, leisure: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Digest { leisure: Arc::new(leisure), ..self }
    }

    /// Hashes to compute of each chunk by itself, by the reader of the chunk.
    pub fn by_piece(&self) -> Vec<Algo> {
        if self.is_apart() { self.algos.clone() } else { Vec::new() }
    }

    /// Takes a chunk in.
    pub fn take(&mut self, piece: &Piece) {
        if self.is_apart() {
            self.chunk(piece.index, piece.payload.len(), piece.payload.hashes().clone());
        } else if let Next::Chunks(waiting, _) = &mut self.next {
            waiting.insert(piece.index, (piece.payload.clone(), piece.memory.clone()));
            self.go_on();
        }
    }

    /// True when chunks are hashed one by one, in no order.
    fn is_apart(&self) -> bool {
        matches!(self.whole, Whole::Apart)
    }

    /// True when it needs each chunk, to take it in in its turn.
    pub fn needs_chunks(&self) -> bool {
        !self.is_apart() && matches!(self.next, Next::Chunks(..))
    }

    /// Takes in what is known of a chunk.
    pub fn chunk(&mut self, index: u64, size: u64, hashes: Hashes) {
        if self.is_apart() && !self.algos.is_empty() {
            self.pieces.insert(index, (size, hashes));
        }
    }

    /// These bytes are in the file now.
    pub fn there(&mut self, range: Range<u64>) {
        let Next::File(behind) = &mut self.next else { return };
        behind.beyond.insert(range.start, range.end);
        while let Some(first) = behind.beyond.first_entry().filter(|first| *first.key() <= behind.reach) {
            behind.reach = behind.reach.max(first.remove());
        }
        self.go_on();
    }

    /// Takes in a chunk that was sent before and isn't read again.
    pub fn known(&mut self, sent: &SentPart) {
        let hashes = Hashes::default().with(Algo::Crc64Nvme, sent.crc64.to_be_bytes());
        self.chunk(sent.part.index, sent.part.size, hashes);
    }

    /// True when no hashing is under way.
    pub fn is_idle(&self) -> bool {
        !matches!(self.whole, Whole::Away(_))
    }

    /// Resolves when what is being hashed is done.
    ///
    /// Errors: it can't be read.
    pub async fn advance(&mut self) -> Result<()> {
        if let Whole::Away(hashing) = &mut self.whole {
            self.whole = Whole::Here(hashing.await?);
            self.go_on();
        }
        Ok(())
    }

    /// Hashes the next bytes, if they have come.
    fn go_on(&mut self) {
        if !matches!(self.whole, Whole::Here(_)) {
            return;
        }
        let (payload, memory) = match &mut self.next {
            Next::Chunks(waiting, next) => {
                let Some((payload, memory)) = waiting.remove(next) else { return };
                *next += 1;
                (payload, Some(memory))
            }
            Next::File(behind) => {
                if behind.at == behind.reach {
                    return;
                }
                let range = behind.at..behind.reach.min(behind.at + STRETCH);
                behind.at = range.end;
                (Payload::of_file(behind.file.clone(), range, behind.buffers.clone()), None)
            }
        };
        if let Whole::Here(hasher) = std::mem::replace(&mut self.whole, Whole::Apart) {
            let leisure = self.leisure.clone();
            self.whole = Whole::Away(Box::pin(async move {
                let hasher = hashing::update(hasher, &payload, &*leisure).await?;
                drop(memory);
                Ok(hasher)
            }));
        }
    }

    /// The hashes of the whole.
    pub fn finish(self) -> Hashes {
        if let Whole::Here(hasher) = self.whole {
            return hasher.finish();
        }
        let mut all = Hashes::default();
        for algo in self.algos {
            let pieces = self.pieces.values().map(|(len, hashes)| (hashes.get(algo), *len));
            if let Some(value) = hash::combine(algo, pieces) {
                all.set(algo, value);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::hash::hash_bytes;
    use tokio::sync::Semaphore;

    /// Chunks that are large enough to be hashed on a disk thread come in any order, also while one is being hashed.
    #[tokio::test]
    async fn chunks_in_any_order_give_the_hash_of_the_whole() {
        let chunk = hashing::INLINE as usize + 1;
        let bytes: Vec<u8> = (0..chunk * 5 + 7).map(|i| ((i * 31) >> 3) as u8).collect();
        let memory = Arc::new(Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap());
        for algos in [vec![Algo::Md5, Algo::Blake3], vec![Algo::Crc64Nvme], vec![Algo::Crc64Nvme, Algo::Md5], vec![]] {
            let mut digest = Digest::new(algos.clone());
            for index in [1, 0, 2, 5, 3, 4] {
                let part = &bytes[index * chunk..bytes.len().min((index + 1) * chunk)];
                let piece = Piece {
                    index: index as u64,
                    offset: (index * chunk) as u64,
                    payload: Payload::from(bytes::Bytes::copy_from_slice(part))
                        .with_hashes(hash_bytes(&digest.by_piece(), part)),
                    memory: memory.clone(),
                };
                digest.take(&piece);
            }
            while !digest.is_idle() {
                digest.advance().await.unwrap();
            }
            let (ours, want) = (digest.finish(), hash_bytes(&algos, &bytes));
            assert!(algos.iter().all(|algo| ours.get(*algo) == want.get(*algo)), "{algos:?}: {ours:?}");
        }
    }

    /// A file is hashed as far as it has come without a gap, in whatever order.
    #[tokio::test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    async fn stretches_of_a_file_in_any_order_give_the_hash_of_the_whole() {
        let bytes: Vec<u8> = (0..900_001).map(|i: usize| ((i * 31) >> 3) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let mut digest = Digest::of_file(vec![Algo::Md5], Arc::new(file), Buffers::default());
        assert!(!digest.needs_chunks() && digest.by_piece().is_empty());
        for range in [500_000..700_000, 0..1, 1..300_000, 700_000..900_001] {
            digest.there(range);
        }
        while !digest.is_idle() {
            digest.advance().await.unwrap();
        }
        digest.there(300_000..500_000);
        while !digest.is_idle() {
            digest.advance().await.unwrap();
        }
        assert_eq!(digest.finish(), hash_bytes(&[Algo::Md5], &bytes));
    }
}
