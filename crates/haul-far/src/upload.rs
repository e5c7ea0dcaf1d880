//! Writing: a small file goes as one message when it is published; of a large one the parts go as they come, many at once.

use crate::{
    Far,
    channel::Channel,
    crc64,
    message::{Answer, Request, UploadId},
    open::{SMALL, weight},
    read::{content, other_bytes},
    wire::{Named, unexpected},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use haul_core::{Algo, Error, ErrorKind, Hasher, Hashes, Key, Result, Retry, Version, delta::Run, hash};
use haul_store::{
    AttributesItem, Body, LateFacts, Part, Payload, StoredFacts, Unpublished, Upload, WriteSpec, body::Pieces,
};
use http_body_util::BodyExt as _;
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::OnceCell;

/// A write to the far end.
pub struct FarUpload {
    far: Arc<Far>,
    key: Key,
    spec: WriteSpec,
    begun: OnceCell<WriteSession>,
    /// The whole of a small file, or nothing yet.
    held: Mutex<Option<Bytes>>,
    /// By offset: length and CRC-64/NVME of parts that arrived.
    crcs: Mutex<BTreeMap<u64, (u64, u64)>>,
}

/// Where a write is begun at the far end: it ends with the connection.
pub struct WriteSession {
    pub channel: Arc<Channel>,
    pub folder: Named,
    pub id: UploadId,
}

impl WriteSession {
    async fn answer(&self, request: &Request) -> Result<Answer> {
        self.channel.answer(&self.folder, request).await
    }
}

/// The spec as sent to the far end: the bytes in transit are verified by other hashes.
pub fn wire_spec(spec: &WriteSpec) -> WriteSpec {
    // The hash by which a file is proved that is built from another.
    let whole = spec.hashes.get(Algo::Blake3).map(|whole| Hashes::default().with(Algo::Blake3, whole));
    WriteSpec { hashes: whole.unwrap_or_default(), ..spec.clone() }
}

/// The spec of a file that is sent whole, with the checksum that it must have when it arrives.
pub fn wire_spec_whole(spec: &WriteSpec, crc: &Hashes) -> WriteSpec {
    let described = wire_spec(spec);
    let hashes = described.hashes.iter().fold(crc.clone(), |hashes, (algo, value)| hashes.with(algo, value));
    WriteSpec { hashes, ..described }
}

impl Far {
    /// Removes what a far end published though it isn't what was sent: an older one finds out too late.
    pub async fn remove_wrong(&self, key: &Key, stored: StoredFacts) {
        let Some(version) = stored.version else { return };
        // The error to tell is that other bytes arrived.
        let _ = self.ask("DELETE", Request::Delete(vec![(key.clone(), Some(version))])).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FarUpload {
    /// A new one, of which the far end knows nothing yet.
    pub fn new(far: Arc<Far>, key: Key, spec: WriteSpec) -> Self {
        let begun = OnceCell::new();
        FarUpload { far, key, spec, begun, held: Mutex::default(), crcs: Mutex::default() }
    }

    /// One that the far end found again.
    pub fn found(far: Arc<Far>, key: Key, spec: WriteSpec, place: WriteSession) -> Self {
        FarUpload { begun: OnceCell::new_with(Some(place)), ..FarUpload::new(far, key, spec) }
    }

    async fn begun(&self) -> Result<&WriteSession> {
        let begun = self.begun.get_or_try_init(async || {
            let (channel, folder) = self.far.opened().await?;
            self.far.meters.request("WRITE");
            match channel.answer(&folder, &Request::Begin(self.key.clone(), wire_spec(&self.spec))).await? {
                Answer::Upload(id) => Ok(WriteSession { channel, folder, id }),
                _ => Err(unexpected()),
            }
        });
        let begun = begun.await?;
        if !begun.channel.is_open() {
            // Retrying is useless for a write bound to a broken connection: it no longer exists, and the engine
            // begins the file anew, or resumes it.
            let why = "the connection to the far end broke while the file was written";
            return Err(Error::new(ErrorKind::NotFound, "write", why).with_retry(Retry::Never).with_key(&self.key));
        }
        Ok(begun)
    }

    async fn send(&self, index: u64, offset: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        let place = self.begun().await?;
        let upload = place.id;
        // Closed never.
        let _room = self.far.line.on_the_way.acquire_many(weight(size)).await.ok();
        self.far.meters.request("PART");
        let room = place.channel.room(size).await;
        let exchange = room.ask(&place.folder, &Request::Part { upload, index, offset, size })?;
        let mut pieces = Pieces::new(payload);
        let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
        while let Some(frame) = pieces.frame().await {
            let bytes = frame.map_err(|e| Error::from_io("write", e))?.into_data().unwrap_or_default();
            hasher.update(&bytes);
            exchange.send(bytes).await?;
        }
        let crc = crc64(&hasher.finish());
        match exchange.answer().await? {
            Answer::Part(part, arrived) if arrived == crc => {
                lock(&self.crcs).insert(offset, (size, crc));
                Ok(part)
            }
            Answer::Part(..) => Err(other_bytes("write")),
            _ => Err(unexpected()),
        }
    }

    /// The CRC of the whole, where each byte's is known.
    fn whole(&self) -> Option<(u64, u64)> {
        let crcs = lock(&self.crcs);
        let mut at = 0;
        for (offset, (size, _)) in crcs.iter() {
            if *offset != at {
                return None;
            }
            at += size;
        }
        let values: Vec<_> = crcs.values().map(|(size, crc)| (crc.to_be_bytes(), *size)).collect();
        let crc = hash::combine(Algo::Crc64Nvme, values.iter().map(|(crc, size)| (Some(&crc[..]), *size)))?;
        Some((u64::from_be_bytes(crc.try_into().ok()?), at))
    }

    /// Sets the attributes that came along with a file that exists now, where the far end hasn't set them already.
    async fn with_attributes(&self, stored: StoredFacts) -> Result<StoredFacts> {
        let (Some(keep), Some(carried)) = (&self.spec.keep, &self.spec.carried) else { return Ok(stored) };
        let items = vec![AttributesItem::carried_along(&self.key, &self.spec, keep, carried)];
        let from = self.far.folder.path.clone();
        match self.far.ask("ATTRIBUTES", Request::Attributes { from, items, set: true }).await? {
            Answer::Attributed(mut answers) if answers.len() == 1 => {
                let unpreserved = answers.pop().ok_or_else(unexpected)??.unpreserved;
                Ok(StoredFacts { unpreserved, ..stored })
            }
            _ => Err(unexpected()),
        }
    }

    /// A small file, as one message.
    async fn put(&self, bytes: Bytes, late: &LateFacts) -> Result<StoredFacts> {
        let size = bytes.len() as u64;
        let spec = WriteSpec {
            mtime: late.mtime.or(self.spec.mtime),
            meta: late.meta.clone().or_else(|| self.spec.meta.clone()),
            ..self.spec.clone()
        };
        let crc = hash::hash_bytes(&[Algo::Crc64Nvme], &bytes);
        let spec = wire_spec_whole(&spec, &crc);
        let request = Request::Put { key: self.key.clone(), spec, bytes };
        // Closed never.
        let _room = self.far.line.on_the_way.acquire_many(weight(size)).await.ok();
        match self.far.ask("PUT", request).await? {
            Answer::Stored(stored, Some(arrived)) if arrived == crc64(&crc) && stored.size == size => {
                let stored = StoredFacts { hashes: crc, ..stored };
                let keeps = self.far.line.about.get().is_some_and(|about| about.keeps);
                if keeps { Ok(stored) } else { self.with_attributes(stored).await }
            }
            Answer::Stored(stored, _) => {
                self.far.remove_wrong(&self.key, stored).await;
                Err(other_bytes("write"))
            }
            _ => Err(unexpected()),
        }
    }

    async fn published(&self, parts: &[Part], late: &LateFacts) -> Result<StoredFacts> {
        if self.begun.get().is_none() {
            let held = lock(&self.held).clone();
            match held {
                Some(bytes) => return self.put(bytes, late).await,
                None if parts.is_empty() && self.spec.size.is_none_or(|size| size == 0) => {
                    return self.put(Bytes::new(), late).await;
                }
                None => {}
            }
        }
        let place = self.begun().await?;
        self.far.meters.request("PUBLISH");
        match place.answer(&Request::Publish(place.id, parts.to_vec(), late.clone())).await? {
            Answer::Stored(stored, _) => {
                let whole = self.whole().filter(|(_, size)| *size == stored.size);
                let hashes = whole.map(|(crc, _)| stored.hashes.clone().with(Algo::Crc64Nvme, crc.to_be_bytes()));
                let hashes = hashes.unwrap_or_else(|| stored.hashes.clone());
                self.with_attributes(StoredFacts { hashes, ..stored }).await
            }
            _ => Err(unexpected()),
        }
    }
}

impl Upload for FarUpload {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let place = self.begun().await?;
            match place.answer(&Request::Token(place.id)).await? {
                Answer::Token(token) => Ok(token),
                _ => Err(unexpected()),
            }
        })
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        Box::pin(async move {
            let place = self.begun().await?;
            Ok(Body::Stream(content(place.channel.ask(&place.folder, &Request::ReadBack(place.id, range))?)))
        })
    }

    fn reuse(&self, version: &Version, runs: Vec<Run>) -> BoxFuture<'_, Result<Vec<Part>>> {
        let version = version.clone();
        Box::pin(async move {
            let count = runs.len();
            let place = self.begun().await?;
            self.far.meters.request("REUSE");
            match place.answer(&Request::Reuse(place.id, version, runs)).await? {
                Answer::Parts(parts) if parts.len() == count => Ok(parts),
                _ => Err(unexpected()),
            }
        })
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        Box::pin(async move {
            let size = payload.len();
            let whole = offset == 0 && size <= SMALL && self.spec.size == Some(size) && self.begun.get().is_none();
            if !whole {
                return self.send(index, offset, payload).await;
            }
            let bytes = Pieces::new(payload).collect().await.map_err(|e| Error::from_io("write", e))?.to_bytes();
            *lock(&self.held) = Some(bytes);
            Ok(Part { index, size, tag: Vec::new() })
        })
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        Box::pin(async move {
            match self.published(&parts, &late).await {
                Ok(stored) => Ok(stored),
                Err(error) => Err(Unpublished { error, upload: self }),
            }
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let Some(place) = self.begun.get() else { return Ok(()) };
            match place.answer(&Request::Abort(place.id)).await? {
                Answer::Done => Ok(()),
                _ => Err(unexpected()),
            }
        })
    }
}
