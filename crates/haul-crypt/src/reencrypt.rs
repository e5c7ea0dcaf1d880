//! Other content encrypted as a stored file was: so that hashes of the stored file say whether the two are the same, and nobody has to
//! read it.

use crate::{
    Service,
    content::{self, BLOCK, Nonce, Sealer},
    read,
};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt as _;
use haul_core::{Algo, Error, ErrorKind, Key, Result, Version};
use haul_store::{EncryptedFile, Seal};
use std::fmt;

/// Plain bytes that are encrypted at once.
const PIECE: usize = 16 * BLOCK as usize;

struct Like {
    sealer: Sealer,
    nonce: Nonce,
    /// Plain bytes that were taken in before those that are held.
    offset: u64,
    held: BytesMut,
}

impl fmt::Debug for Like {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Like(…)")
    }
}

impl Like {
    fn sealed(&mut self, plain: &[u8]) -> Bytes {
        let header = self.nonce.header();
        let front = if self.offset == 0 { &header[..] } else { &[] };
        let size = content::sealed_part(self.offset, plain.len() as u64) as usize;
        let mut out = BytesMut::with_capacity(size);
        out.extend_from_slice(front);
        let mut sealing = self.sealer.seal(self.nonce, self.offset / BLOCK, out);
        sealing.take(plain);
        self.offset += plain.len() as u64;
        sealing.end().freeze()
    }
}

impl Seal for Like {
    fn take(&mut self, plain: &[u8]) -> Bytes {
        self.held.extend_from_slice(plain);
        if self.held.len() < PIECE {
            return Bytes::new();
        }
        let whole = self.held.len() / BLOCK as usize * BLOCK as usize;
        let piece = self.held.split_to(whole);
        self.sealed(&piece)
    }

    fn end(&mut self) -> Bytes {
        let last = std::mem::take(&mut self.held);
        self.sealed(&last)
    }
}

/// See [`haul_store::Encrypted::sealed`].
///
/// Errors: `Unsupported` where content isn't encrypted; those of reading.
pub async fn like(service: &Service, key: &Key, version: Option<&Version>) -> Result<EncryptedFile> {
    let with_key = |error: Error| error.with_key(key);
    let Some(sealer) = service.content else {
        let message = "its content isn't encrypted: use haul check";
        return Err(Error::new(ErrorKind::Unsupported, "check", message).with_key(key));
    };
    let hidden = service.hidden(key)?;
    let stored = service.inner.stat(&hidden).await.map_err(with_key)?;
    if version.is_some() && stored.version.as_ref() != version {
        return Err(Error::new(ErrorKind::Changed, "check", "changed since it was listed").with_key(key));
    }
    let header =
        service.inner.read(&hidden, stored.version.as_ref(), Some(0..content::HEADER)).await.map_err(with_key)?;
    let header: Vec<Bytes> = read::pieces(header.body, key).try_collect().await.map_err(with_key)?;
    let nonce = Nonce::of_header(&header.concat()).map_err(with_key)?;
    let like = Like { sealer, nonce, offset: 0, held: BytesMut::new() };
    let mut hashes = stored.hashes;
    if hashes.is_empty()
        && let Some(hashing) = service.inner.hashing()
    {
        let can = hashing.algos().await.map_err(with_key)?;
        // The one that costs least.
        let algo = can.iter().find(|algo| **algo == Algo::Blake3).or(can.first());
        if let Some(algo) = algo {
            hashes = hashing.hash(&hidden, stored.version.as_ref(), &[*algo]).await.map_err(with_key)?;
        }
    }
    Ok(EncryptedFile { hashes, like: Box::new(like) })
}
