//! Writing: each part is encrypted on its own as it is sent, so that parts may go in any order and be sent again by a later run.

use crate::{
    Service,
    content::{self, BLOCK, NONCE, Nonce, Opener, Sealer},
    part::SealedPart,
    read,
};
use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{
    Body, LateFacts, Part, PartLimits, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec,
    disk, offered,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::watch;

/// Bytes of the header, by which the first part is longer than the others.
const HEADER: usize = content::HEADER as usize;
/// Bytes of a CRC-64.
const CRC: usize = 8;

/// Limits of plain parts, so that encrypted ones keep within `inner`.
pub fn limits(inner: PartLimits) -> PartLimits {
    // A whole file keeps to no multiple.
    let multiple = |size: u64| if size >= 1 << 62 { size } else { size.next_multiple_of(BLOCK) };
    let fits = |most: u64| {
        let size = (most.saturating_sub(content::HEADER) / (BLOCK + 16)).saturating_mul(BLOCK);
        if most >= 1 << 62 { most } else { size }
    };
    let single = (inner.single.saturating_sub(content::HEADER) / (BLOCK + 16)).saturating_mul(BLOCK);
    PartLimits {
        min: multiple(inner.min),
        max: fits(inner.max),
        preferred: multiple(inner.preferred),
        single,
        multiple: BLOCK,
        waits: inner.equal,
        ..inner
    }
}

/// See [`haul_store::Store::write`].
pub async fn begin(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<Box<dyn Upload>> {
    if key.is_root() || key.is_dir() {
        return Err(Error::new(ErrorKind::Invalid, "write", "this can't be the name of a file").with_key(key));
    }
    let hidden = service.hidden(key)?;
    let Some(sealer) = service.content else {
        return service.inner.write(&hidden, spec).await.map_err(|e| e.with_key(key));
    };
    let nonce = Nonce::random().map_err(|e| e.with_key(key))?;
    let plain_size = spec.size.filter(|_| !spec.size_may_differ);
    let inner = service.inner.write(&hidden, encrypted(spec)).await.map_err(|e| e.with_key(key))?;
    let tails = is_equal(&service).then(Tails::default);
    Ok(Box::new(Sealed::new(inner, &service, sealer, nonce, key, plain_size, tails)))
}

/// Whether all parts but the last must have one size.
fn is_equal(service: &Service) -> bool {
    service.inner.caps().parts.is_some_and(|limits| limits.equal)
}

/// The other store's spec of a write.
fn encrypted(spec: WriteSpec) -> WriteSpec {
    WriteSpec { size: spec.size.map(content::sealed_size), hashes: Default::default(), ..spec }
}

/// See [`haul_store::Resumable::resume`].
pub async fn resume(
    service: Arc<Service>,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    let with_key = |e: Error| e.with_key(key);
    let hidden = service.hidden(key)?;
    let below = offered(service.inner.resumable(), "resume").map_err(with_key)?;
    let Some(sealer) = service.content else {
        return below.resume(&hidden, token, sent, spec).await.map_err(with_key);
    };
    let invalid = || Error::new(ErrorKind::Invalid, "resume", "the token is none of an encrypted write").with_key(key);
    let (nonce, token) = token.split_first_chunk::<NONCE>().ok_or_else(invalid)?;
    let nonce = Nonce(*nonce);
    let equal = is_equal(&service);
    let (mut mine, mut inner) = (BTreeMap::new(), Vec::new());
    let tails = equal.then(Tails::default);
    for one in sent {
        // A receipt that isn't ours is of a part that must be sent again.
        let Some(receipt) = Receipt::read(&one.part.tag, equal) else { continue };
        if receipt.plain != (one.offset, one.part.size, one.crc64) {
            continue;
        }
        inner.push(SentPart {
            part: Part { index: one.part.index, size: receipt.size, tag: receipt.inner.clone() },
            offset: receipt.offset,
            crc64: receipt.crc64,
        });
        if let (Some(tails), Some(tail)) = (&tails, receipt.tail) {
            tails.put(one.offset + one.part.size, tail);
        }
        mine.insert(one.part.index, one.part);
    }
    let plain_size = spec.size.filter(|_| !spec.size_may_differ);
    let (upload, there) = below.resume(&hidden, token, inner, encrypted(spec)).await.map_err(with_key)?;
    let parts = there.into_iter().filter_map(|part| mine.remove(&part.index)).collect();
    Ok((Box::new(Sealed::new(upload, &service, sealer, nonce, key, plain_size, tails)), parts))
}

/// The other store's token of a token that was given out here.
pub fn inner_token<'a>(service: &Service, token: &'a [u8]) -> Option<&'a [u8]> {
    if service.content.is_some() { token.get(NONCE..) } else { Some(token) }
}

struct Sealed {
    inner: Box<dyn Upload>,
    sealer: Sealer,
    nonce: Nonce,
    key: Key,
    /// Plain bytes that must come.
    plain_size: Option<u64>,
    tails: Option<Tails>,
    /// The other store takes bytes that it learns the checksum of as they pass; it saves encrypting them twice.
    passing: bool,
}

/// Where all parts but the last must have one size, the header makes the first too long. So each part but the last leaves its last 32
/// encrypted bytes to the next one, which waits for them; they are there as soon as the part before it was encrypted.
#[derive(Default)]
struct Tails(Mutex<BTreeMap<u64, watch::Sender<Tail>>>);

type Tail = Option<[u8; HEADER]>;

impl Tails {
    fn at(&self, end: u64) -> watch::Sender<Tail> {
        let mut tails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tails.entry(end).or_insert_with(|| watch::channel(None).0).clone()
    }

    /// The tail of the part that ends at `end` of the plain bytes.
    fn put(&self, end: u64, tail: [u8; HEADER]) {
        self.at(end).send_replace(Some(tail));
    }

    async fn get(&self, end: u64) -> [u8; HEADER] {
        let mut tail = self.at(end).subscribe();
        loop {
            if let Some(tail) = *tail.borrow_and_update() {
                return tail;
            }
            // The sender is kept here.
            let _ = tail.changed().await;
        }
    }
}

/// Receipt of a sent part: the other store's own, and the part's facts needed later.
struct Receipt {
    /// Where its plain bytes begin, how many they are, and their CRC-64/NVME.
    plain: (u64, u64, u64),
    /// Where its encrypted bytes begin.
    offset: u64,
    /// How many they are.
    size: u64,
    /// Their CRC-64/NVME.
    crc64: u64,
    /// See [`Tails`].
    tail: Tail,
    inner: Vec<u8>,
}

impl Receipt {
    fn write(&self) -> Vec<u8> {
        let (at, size, crc64) = self.plain;
        let numbers = [at, size, crc64, self.offset, self.size, self.crc64].map(u64::to_le_bytes);
        [numbers.as_flattened(), self.tail.as_ref().map_or(&[], |tail| &tail[..]), &self.inner].concat()
    }

    fn read(tag: &[u8], with_tail: bool) -> Option<Receipt> {
        let (numbers, rest) = tag.split_first_chunk::<{ 6 * CRC }>()?;
        let number = |n: usize| {
            let mut bytes = [0; CRC];
            bytes.copy_from_slice(&numbers[n * CRC..(n + 1) * CRC]);
            u64::from_le_bytes(bytes)
        };
        let (tail, inner) = match with_tail {
            true => rest.split_first_chunk::<HEADER>().map(|(tail, rest)| (Some(*tail), rest))?,
            false => (None, rest),
        };
        Some(Receipt {
            plain: (number(0), number(1), number(2)),
            offset: number(3),
            size: number(4),
            crc64: number(5),
            tail,
            inner: inner.to_vec(),
        })
    }
}

/// Encrypted bytes that belong to no plain part.
struct LeftOver {
    index: u64,
    offset: u64,
    bytes: Bytes,
}

impl Sealed {
    fn new(
        inner: Box<dyn Upload>,
        service: &Service,
        sealer: Sealer,
        nonce: Nonce,
        key: &Key,
        plain_size: Option<u64>,
        tails: Option<Tails>,
    ) -> Sealed {
        Sealed { inner, sealer, nonce, key: key.clone(), plain_size, tails, passing: service.inner.caps().relays }
    }

    /// Bytes still to send after all plain ones: the header of an empty file, or the tail of a last part that wasn't known to be
    /// the last.
    fn left_over(&self, parts: &[Part]) -> Option<LeftOver> {
        let Some(last) = parts.iter().max_by_key(|part| part.index) else {
            return Some(LeftOver { index: 0, offset: 0, bytes: Bytes::copy_from_slice(&self.nonce.header()) });
        };
        if self.tails.is_none() || self.plain_size.is_some() {
            return None;
        }
        let Receipt { offset, size, tail, .. } = Receipt::read(&last.tag, true)?;
        Some(LeftOver { index: last.index + 1, offset: offset + size, bytes: Bytes::copy_from_slice(&tail?) })
    }

    /// A part's last blocks, encrypted: at least as many bytes as it leaves to the next one, or all of it.
    async fn last_blocks(&self, offset: u64, payload: &Payload) -> Result<Vec<u8>> {
        let beside_tag = HEADER as u64 - content::TAG;
        let from = payload.len().saturating_sub(beside_tag) / BLOCK * BLOCK;
        let last = payload.slice(from..payload.len());
        let mut sealing = self.sealer.seal(self.nonce, (offset + from) / BLOCK, Default::default());
        let taken = disk::run(move || {
            last.each(|piece| sealing.take(piece))?;
            Ok(sealing.end())
        });
        Ok(taken.await?.to_vec())
    }

    async fn send(&self, index: u64, offset: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        if !offset.is_multiple_of(BLOCK) {
            let message = format!("an encrypted part begins at a multiple of {BLOCK}, not at {offset}");
            return Err(Error::new(ErrorKind::Invalid, "write", message));
        }
        let mut at = content::sealed_offset(offset);
        let mut front = Bytes::new();
        let mut tail = None;
        if offset == 0 {
            front = Bytes::copy_from_slice(&self.nonce.header());
        }
        if let Some(tails) = &self.tails {
            if offset > 0 {
                at -= HEADER as u64;
            }
            // The last part, where it is known by the size, keeps what it has.
            let leaves = self.plain_size.is_none_or(|all| offset + size < all);
            let mut end = Vec::new();
            if leaves {
                end = self.last_blocks(offset, &payload).await?;
                tail = end.last_chunk().copied();
            }
            if let Some(tail) = tail {
                // Before one is waited for: all parts may be on their way.
                tails.put(offset + size, tail);
            }
            if offset > 0 {
                front = Bytes::copy_from_slice(&tails.get(offset).await);
            }
            if leaves && tail.is_none() {
                // Shorter than what it leaves: it is the last of unknown size.
                let bytes = [&front[..], &end].concat();
                tail = bytes.last_chunk().copied();
                tail.iter().for_each(|tail| tails.put(offset + size, *tail));
            }
        }
        let left = if tail.is_some() { HEADER as u64 } else { 0 };
        let part = Arc::new(SealedPart::new(self.sealer, self.nonce, offset, payload.clone(), front, left));
        let mut sealed = payload.with_made(part.clone(), part.size());
        // A part that may become a whole file in one request must have its checksum first.
        if self.passing && (offset > 0 || self.plain_size.is_some_and(|all| all > size)) {
            sealed = sealed.passing(Vec::new());
        }
        let sent = self.inner.part(index, at, sealed).await?;
        let (plain_crc64, crc64) = disk::run(move || part.crc64()).await?;
        let tail = self.tails.as_ref().map(|_| tail.unwrap_or_default());
        let receipt =
            Receipt { plain: (offset, size, plain_crc64), offset: at, size: sent.size, crc64, tail, inner: sent.tag };
        Ok(Part { index, size, tag: receipt.write() })
    }
}

impl Upload for Sealed {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async move {
            let token = self.inner.token().await.map_err(|e| e.with_key(&self.key))?;
            Ok(token.map(|token| [&self.nonce.0[..], &token].concat()))
        }
        .boxed()
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let first = range.start / BLOCK;
        // The last block may be shorter; what there is of the range comes.
        let encrypted_range =
            content::HEADER + first * (BLOCK + 16)..content::HEADER + range.end.div_ceil(BLOCK) * (BLOCK + 16);
        async move {
            if self.tails.is_some() {
                let message = "the end of each part is in the next one";
                return Err(Error::new(ErrorKind::Unsupported, "read", message).with_key(&self.key));
            }
            let body = self.inner.read_back(encrypted_range).await.map_err(|e| e.with_key(&self.key))?;
            let opener = Opener::new(self.sealer, self.nonce, first);
            let skip = range.start - first * BLOCK;
            let wanted = skip..skip + (range.end - range.start);
            Ok(Body::Stream(read::opened(opener, read::pieces(body, &self.key), None, wanted, self.key.clone())))
        }
        .boxed()
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        async move { self.send(index, offset, payload).await.map_err(|e| e.with_key(&self.key)) }.boxed()
    }

    fn publish(
        mut self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        async move {
            let size: u64 = parts.iter().map(|part| part.size).sum();
            let mut error = None;
            if let Some(wanted) = self.plain_size.filter(|wanted| *wanted != size) {
                let message = format!("{size} bytes came where {wanted} were announced");
                error = Some(Error::new(ErrorKind::Corrupt, "write", message));
            }
            let with_tails = self.tails.is_some();
            let mut inner = Vec::with_capacity(parts.len().max(1));
            for part in &parts {
                match Receipt::read(&part.tag, with_tails) {
                    Some(receipt) => inner.push(Part { index: part.index, size: receipt.size, tag: receipt.inner }),
                    None => error = Some(Error::new(ErrorKind::Invalid, "write", "the receipt is of another write")),
                }
            }
            if let (Some(last), None) = (self.left_over(&parts), &error) {
                match self.inner.part(last.index, last.offset, last.bytes.into()).await {
                    Ok(part) => inner.push(part),
                    Err(failed) => error = Some(failed),
                }
            }
            if let Some(error) = error {
                let error = error.with_key(&self.key);
                return Err(Unpublished { error, upload: self });
            }
            let late = LateFacts { hashes: Default::default(), ..late };
            match self.inner.publish(inner, late).await {
                Ok(stored) => Ok(StoredFacts { size, hashes: Default::default(), ..stored }),
                Err(Unpublished { error, upload }) => {
                    self.inner = upload;
                    let error = error.with_key(&self.key);
                    Err(Unpublished { error, upload: self })
                }
            }
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.inner.abort()
    }
}
