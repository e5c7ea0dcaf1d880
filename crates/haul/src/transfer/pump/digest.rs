//! Hashes of a file whose chunks come in any order: each chunk's own where they can be combined (CRCs), else one hasher
//! that takes the chunks in order, on a disk thread, beside the transfer.

use super::reader::Piece;
use futures::future::BoxFuture;
use haul_core::{Algo, Hasher, Hashes, Result, hash};
use haul_store::{Payload, Sent, disk};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

/// The hashes of one file as its chunks pass.
pub struct Digest {
    algos: Vec<Algo>,
    /// By index: length and hashes of chunks that are hashed one by one.
    pieces: BTreeMap<u64, (u64, Hashes)>,
    /// Chunks that wait for their turn, and the memory that they keep.
    waiting: BTreeMap<u64, (Payload, Arc<OwnedSemaphorePermit>)>,
    next: u64,
    whole: Whole,
}

/// Where the hasher is that takes chunks in order.
enum Whole {
    /// Chunks are hashed one by one.
    Apart,
    Here(Hasher),
    Away(BoxFuture<'static, Result<Hasher>>),
}

impl Digest {
    /// Of these algorithms; none costs nothing.
    pub fn new(algos: Vec<Algo>) -> Self {
        let apart = algos.iter().all(|algo| hash::combines(*algo));
        let whole = if apart { Whole::Apart } else { Whole::Here(Hasher::new(&algos)) };
        Digest { algos, pieces: BTreeMap::new(), waiting: BTreeMap::new(), next: 0, whole }
    }

    /// What to hash of each chunk by itself, by whoever read it.
    pub fn by_piece(&self) -> Vec<Algo> {
        if matches!(self.whole, Whole::Apart) { self.algos.clone() } else { Vec::new() }
    }

    /// Takes a chunk in.
    ///
    /// Errors: it can't be read.
    pub fn take(&mut self, piece: &Piece) -> Result<()> {
        if self.is_apart() {
            self.chunk(piece.index, piece.payload.len(), piece.payload.hashes().clone());
            return Ok(());
        }
        self.waiting.insert(piece.index, (piece.payload.clone(), piece.memory.clone()));
        self.go_on()
    }

    /// True when chunks are hashed one by one, in no order.
    pub fn is_apart(&self) -> bool {
        matches!(self.whole, Whole::Apart)
    }

    /// Takes in what is known of a chunk.
    pub fn chunk(&mut self, index: u64, size: u64, hashes: Hashes) {
        if !self.algos.is_empty() {
            self.pieces.insert(index, (size, hashes));
        }
    }

    /// Takes in a chunk that was sent before and isn't read again.
    pub fn known(&mut self, sent: &Sent) {
        if self.is_apart() {
            let hashes = Hashes::default().with(Algo::Crc64Nvme, sent.crc64.to_be_bytes());
            self.chunk(sent.part.index, sent.part.size, hashes);
        }
    }

    /// True when no hashing is under way.
    pub fn is_idle(&self) -> bool {
        !matches!(self.whole, Whole::Away(_))
    }

    /// Resolves when the chunk that is being hashed is done.
    pub async fn advance(&mut self) -> Result<()> {
        if let Whole::Away(hashing) = &mut self.whole {
            self.whole = Whole::Here(hashing.await?);
            self.go_on()?;
        }
        Ok(())
    }

    /// Hashes what is next, as long as it is there.
    fn go_on(&mut self) -> Result<()> {
        while matches!(self.whole, Whole::Here(_)) {
            let Some((payload, memory)) = self.waiting.remove(&self.next) else { return Ok(()) };
            let Whole::Here(mut hasher) = std::mem::replace(&mut self.whole, Whole::Apart) else { return Ok(()) };
            self.next += 1;
            let large = payload.len() > disk::HASH_INLINE;
            let update = move || {
                payload.each(|block| hasher.update(block))?;
                drop(memory);
                Ok(hasher)
            };
            if large {
                self.whole = Whole::Away(Box::pin(disk::run(update)));
                return Ok(());
            }
            self.whole = Whole::Here(update()?);
        }
        Ok(())
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
        let chunk = disk::HASH_INLINE as usize + 1;
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
                digest.take(&piece).unwrap();
            }
            while !digest.is_idle() {
                digest.advance().await.unwrap();
            }
            let (ours, want) = (digest.finish(), hash_bytes(&algos, &bytes));
            assert!(algos.iter().all(|algo| ours.get(*algo) == want.get(*algo)), "{algos:?}: {ours:?}");
        }
    }
}
