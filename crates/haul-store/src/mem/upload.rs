//! Writing to memory: parts are kept until they are published.

use super::{MemStore, space::Item};
use crate::{Late, Part, PartLimits, Payload, Stored, Unpublished, Upload, WriteSpec};
use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, ready};
use haul_core::{Error, ErrorKind, Key, Result, hash::hash_bytes};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

const OP: &str = "write";

pub(super) fn begin(store: MemStore, key: Key, spec: WriteSpec) -> Box<dyn Upload> {
    Box::new(MemWrite { store, key, spec, parts: Mutex::default() })
}

struct MemWrite {
    store: MemStore,
    key: Key,
    spec: WriteSpec,
    /// By number: offset and bytes.
    parts: Mutex<BTreeMap<u64, (u64, Bytes)>>,
}

impl MemWrite {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, Bytes)>> {
        self.parts.lock().unwrap_or_else(|e| e.into_inner())
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
        parts.insert(index, (offset, payload.0.concat().into()));
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

    fn publish(&self, parts: &[Part], late: Late) -> Result<Stored> {
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
        self.store.put(OP, &self.key, &self.spec, Item::file(bytes, mtime, meta, hashes))
    }
}

impl Upload for MemWrite {
    fn token(&self) -> Vec<u8> {
        self.key.as_bytes().to_vec()
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        Box::pin(async move { self.take(index, offset, &payload) })
    }

    fn publish(self: Box<Self>, parts: Vec<Part>, late: Late) -> BoxFuture<'static, Result<Stored, Unpublished>> {
        Box::pin(
            async move { MemWrite::publish(&self, &parts, late).map_err(|error| Unpublished { error, upload: self }) },
        )
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(ready(Ok(())))
    }
}
