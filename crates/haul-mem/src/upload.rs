//! Writing to memory: parts are kept until they are published.

use super::{
    MemStore,
    space::{Item, Parts},
};
use bytes::{Bytes, BytesMut};
use futures::{
    StreamExt,
    future::{BoxFuture, ready},
    stream,
};
use haul_core::{Algo, Error, ErrorKind, Key, Result, hash::hash_bytes};
use haul_store::{
    Body, LateFacts, Part, PartLimits, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, MutexGuard, OnceLock},
};

const OP: &str = "write";

pub(super) fn begin(store: MemStore, key: Key, spec: WriteSpec) -> Box<dyn Upload> {
    Box::new(MemWrite { store, key, spec, parts: Arc::default(), token: OnceLock::new() })
}

/// See [`haul_store::Resumable::resume`].
pub(super) fn resume(
    store: MemStore,
    key: Key,
    token: &[u8],
    sent: &[SentPart],
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    check_token(&store, &key, token)?;
    let parts = store.space.lock().writes.get(token).cloned();
    let gone = || Error::new(ErrorKind::NotFound, "resume", "the write is gone").with_key(&key);
    let parts = parts.ok_or_else(gone)?;
    let proved = {
        let there = parts.lock().unwrap_or_else(|e| e.into_inner());
        let same = |sent: &&SentPart| {
            there.get(&sent.part.index).is_some_and(|(offset, bytes)| {
                let crc = hash_bytes(&[Algo::Crc64Nvme], bytes);
                *offset == sent.offset && crc.get(Algo::Crc64Nvme) == Some(&sent.crc64.to_be_bytes()[..])
            })
        };
        sent.iter().filter(same).map(|sent| sent.part.clone()).collect()
    };
    let token = OnceLock::from(token.to_vec());
    Ok((Box::new(MemWrite { store, key, spec, parts, token }), proved))
}

/// See [`haul_store::Resumable::discard`].
pub(super) fn discard(store: &MemStore, key: &Key, token: &[u8]) -> Result<bool> {
    check_token(store, key, token)?;
    Ok(store.space.lock().writes.remove(token).is_some())
}

fn check_token(store: &MemStore, key: &Key, token: &[u8]) -> Result<()> {
    match token.starts_with(&[&store.full(key)[..], b"\0"].concat()) {
        true => Ok(()),
        false => {
            let message = "this isn't the token of a write to it";
            Err(Error::new(ErrorKind::Invalid, "resume", message).with_key(key))
        }
    }
}

struct MemWrite {
    store: MemStore,
    key: Key,
    spec: WriteSpec,
    parts: Arc<Parts>,
    /// Once it was asked for: the space keeps the parts then.
    token: OnceLock<Vec<u8>>,
}

impl MemWrite {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, Bytes)>> {
        self.parts.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The write has ended: its parts go with it.
    fn forget(&self) {
        if let Some(token) = self.token.get() {
            self.store.space.lock().writes.remove(token);
        }
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, OP, message).with_key(&self.key)
    }

    fn take(&self, index: u64, offset: u64, payload: &Payload) -> Result<Part> {
        let mut parts = self.parts();
        let size = payload.len();
        match &self.store.caps.parts {
            None if index != 0 && !parts.contains_key(&(index - 1)) => {
                return Err(self.error(ErrorKind::Invalid, "this store takes the bytes in order only"));
            }
            Some(limits) if size > limits.max || index >= limits.count => {
                return Err(self.error(ErrorKind::Invalid, "the part is too large, or one too many"));
            }
            _ => {}
        }
        parts.insert(index, (offset, payload.concat()?.into()));
        Ok(Part { index, size, tag: index.to_be_bytes().to_vec() })
    }

    fn whole(&self, named: &[Part]) -> Result<Bytes> {
        let parts = self.parts();
        let limits = self.store.caps.parts;
        let mut bytes = BytesMut::new();
        let mut named: Vec<&Part> = named.iter().collect();
        named.sort_by_key(|part| part.index);
        named.dedup_by_key(|part| part.index);
        for (number, part) in named.iter().enumerate() {
            let Some((offset, piece)) = parts.get(&part.index) else {
                return Err(self.error(ErrorKind::Corrupt, format!("part {} never arrived", part.index)));
            };
            if *offset != bytes.len() as u64 {
                let message = format!("part {} begins at {offset} instead of {}", part.index, bytes.len());
                return Err(self.error(ErrorKind::Corrupt, message));
            }
            let last = number + 1 == named.len();
            if !last && limits.is_some_and(|limits: PartLimits| (piece.len() as u64) < limits.min) {
                return Err(self.error(ErrorKind::Invalid, format!("part {} is too small", part.index)));
            }
            bytes.extend_from_slice(piece);
        }
        Ok(bytes.freeze())
    }

    fn publish(&self, parts: &[Part], late: LateFacts) -> Result<StoredFacts> {
        let bytes = self.whole(parts)?;
        if let Some(want) = self.spec.size
            && want != bytes.len() as u64
            && !self.spec.size_may_differ
        {
            let message = format!("{} bytes arrived instead of {want}: nothing was changed", bytes.len());
            return Err(self.error(ErrorKind::Corrupt, message));
        }
        let caps = &self.store.caps;
        let hashes = hash_bytes(&caps.hashes_stored, &bytes);
        for known in [&self.spec.hashes, &late.hashes] {
            if let Some((algo, false)) = known.agree(&hashes) {
                return Err(self.error(ErrorKind::Corrupt, format!("what arrived has another {algo}")));
            }
        }
        let mtime = late.mtime.or(self.spec.mtime).filter(|_| caps.mtime.is_some());
        let meta = late.meta.or(self.spec.meta.clone()).filter(|_| caps.meta);
        let stored = self.store.put(OP, &self.key, &self.spec, Item::file(bytes, mtime, meta, hashes))?;
        self.forget();
        Ok(stored)
    }
}

impl Upload for MemWrite {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        let token = self.token.get_or_init(|| {
            let full = self.store.full(&self.key);
            self.store.space.lock().keep(&full, &self.parts)
        });
        Box::pin(ready(Ok(Some(token.clone()))))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let parts = self.parts();
        let pieces = parts.values().filter_map(|(offset, bytes)| {
            let (from, to) = (range.start.max(*offset), range.end.min(offset + bytes.len() as u64));
            (from < to).then(|| (from, bytes.slice((from - offset) as usize..(to - offset) as usize)))
        });
        let pieces: BTreeMap<u64, Bytes> = pieces.collect();
        drop(parts);
        Box::pin(ready(Ok(Body::Stream(stream::iter(pieces.into_values().map(Ok)).boxed()))))
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        Box::pin(async move { self.take(index, offset, &payload.gathered().await?) })
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        Box::pin(
            async move { MemWrite::publish(&self, &parts, late).map_err(|error| Unpublished { error, upload: self }) },
        )
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.forget();
        Box::pin(ready(Ok(())))
    }
}
