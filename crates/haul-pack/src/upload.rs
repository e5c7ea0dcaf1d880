//! Writing one file: a small one is kept in memory and joins a pack as it is published; a larger one is stored separately
//! and joins with its facts only. So one index entry makes either visible, and the file it replaces is whole until then.

use super::{
    Shared,
    gather::{FailedJoin, KeyRequest, Open, plain},
    index::Facts,
    keys::plain_key,
};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use haul_core::{Algo, Error, ErrorKind, Key, Mtime, Result};
use haul_store::{Body, LateFacts, Part, Payload, StoredFacts, Unpublished, Upload, WriteSpec};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

const OP: &str = "write";

pub async fn begin(shared: &Arc<Shared>, key: Key, spec: WriteSpec) -> Result<Box<dyn Upload>> {
    if key.is_root() || key.is_dir() || key.as_bytes().contains(&0) {
        return Err(Error::new(ErrorKind::Invalid, OP, "this can't be the name of a packed file").with_key(&key));
    }
    shared.indexes_to_write().await?;
    let small = spec.size.is_some_and(|size| size <= shared.settings.small) && !spec.size_may_differ;
    if small {
        let open = Some(Open::new(shared));
        return Ok(Box::new(SmallFile {
            shared: shared.clone(),
            key,
            spec,
            parts: Mutex::default(),
            whole: None,
            open,
        }));
    }
    let folder = shared.view.new_id()?;
    let place = plain_key(&folder, &shared.full(&key));
    let replace = haul_core::plan::Replace::Anything;
    let inner =
        shared.inner.write(&place, WriteSpec { replace, ..spec.clone() }).await.map_err(|e| e.with_key(&key))?;
    Ok(Box::new(LargeFile {
        shared: shared.clone(),
        key,
        spec,
        folder,
        place,
        inner: Some(inner),
        written: None,
        named: false,
    }))
}

fn unread(key: &Key) -> Error {
    Error::new(ErrorKind::Unsupported, OP, "what was sent can't be read before it is published").with_key(key)
}

fn now() -> Mtime {
    Mtime(jiff::Timestamp::now().as_nanosecond())
}

/// A file for a pack.
struct SmallFile {
    shared: Arc<Shared>,
    key: Key,
    spec: WriteSpec,
    /// By number: offset and bytes.
    parts: Mutex<BTreeMap<u64, (u64, Payload)>>,
    /// All bytes, after a publish that failed.
    whole: Option<Payload>,
    /// Until it joins.
    open: Option<Open>,
}

impl SmallFile {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, Payload)>> {
        self.parts.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn corrupt(&self, message: String) -> Error {
        Error::new(ErrorKind::Corrupt, OP, message).with_key(&self.key)
    }

    /// The bytes that the named parts make.
    fn whole(&self, named: &[Part]) -> Result<Payload> {
        if let Some(whole) = &self.whole {
            return Ok(whole.clone());
        }
        let parts = self.parts();
        let mut named: Vec<u64> = named.iter().map(|part| part.index).collect();
        named.sort_unstable();
        named.dedup();
        let (mut pieces, mut at) = (Vec::new(), 0);
        for index in named {
            let (offset, payload) =
                parts.get(&index).ok_or_else(|| self.corrupt(format!("part {index} never arrived")))?;
            if *offset != at {
                return Err(self.corrupt(format!("part {index} begins at {offset} instead of {at}")));
            }
            at += payload.len();
            pieces.extend(payload.pieces().unwrap_or_default().iter().filter(|bytes| !bytes.is_empty()).cloned());
        }
        match self.spec.size {
            Some(want) if want != at => {
                Err(self.corrupt(format!("{at} bytes arrived instead of {want}: nothing was changed")))
            }
            _ => Ok(Payload::new(pieces)),
        }
    }

    /// Everything that the pack must know.
    async fn ready(&self, parts: &[Part], late: &LateFacts) -> Result<KeyRequest> {
        let payload = self.whole(parts)?;
        let hashes = payload.hash(&[Algo::Md5, Algo::Crc64Nvme]).await?;
        for known in [&self.spec.hashes, &late.hashes] {
            if let Some((algo, false)) = known.agree(&hashes) {
                return Err(self.corrupt(format!("what arrived has another {algo}")));
            }
        }
        let mtime = late.mtime.or(self.spec.mtime).unwrap_or_else(now);
        let meta = late.meta.clone().or(self.spec.meta.clone());
        Ok(KeyRequest::Pack { payload, mtime, meta, hashes })
    }
}

impl Upload for SmallFile {
    /// Too small to be worth going on with.
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn read_back(&self, _: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        std::future::ready(Err(unread(&self.key))).boxed()
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        let size = payload.len();
        // The file that it may still be in need not be open, nor the same, when the pack is written.
        let kept = match payload.pieces() {
            Some(_) => Ok(payload),
            None => payload.concat().map(|bytes| Payload::from(Bytes::from(bytes))),
        };
        let part = kept.map(|payload| {
            self.parts().insert(index, (offset, payload));
            Part { index, size, tag: Vec::new() }
        });
        std::future::ready(part).boxed()
    }

    fn publish(
        mut self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        async move {
            let what = match self.ready(&parts, &late).await {
                Ok(what) => what,
                Err(error) => return Err(Unpublished { error, upload: self }),
            };
            // From here on the pack holds the bytes.
            self.parts().clear();
            (self.whole, self.open) = (None, None);
            match self.shared.join(self.key.clone(), self.spec.replace.clone(), what).await {
                Ok(stored) => Ok(stored),
                Err(FailedJoin { error, payload, .. }) => {
                    self.whole = payload.map(|payload| *payload);
                    Err(Unpublished { error, upload: self })
                }
            }
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// A file that is stored separately.
struct LargeFile {
    shared: Arc<Shared>,
    key: Key,
    spec: WriteSpec,
    /// Names its place; no two writes have the same.
    folder: String,
    place: Key,
    /// Until it is published.
    inner: Option<Box<dyn Upload>>,
    /// From then on.
    written: Option<Facts>,
    /// An index that names it may be stored, though its join failed.
    named: bool,
}

impl LargeFile {
    async fn write(&mut self, inner: Box<dyn Upload>, parts: Vec<Part>, late: LateFacts) -> Result<Facts> {
        let stored = match inner.publish(parts, late.clone()).await {
            Ok(stored) => stored,
            Err(failed) => {
                self.inner = Some(failed.upload);
                return Err(failed.error.with_key(&self.key));
            }
        };
        let mut hashes = stored.hashes.clone();
        hashes.merge(&late.hashes);
        let mtime = late.mtime.or(self.spec.mtime).unwrap_or_else(now);
        Ok(plain(&self.folder, stored.size, mtime, hashes, late.meta.or(self.spec.meta.clone())))
    }
}

impl Upload for LargeFile {
    /// Only this write knows where its remains are, so another one can't resume it.
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn part_size(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        match &self.inner {
            Some(inner) => inner.part_size(),
            None => std::future::ready(Ok(None)).boxed(),
        }
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        match &self.inner {
            Some(inner) => inner.read_back(range),
            None => std::future::ready(Err(unread(&self.key))).boxed(),
        }
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        match &self.inner {
            Some(inner) => inner.part(index, offset, payload),
            None => {
                let error = Error::new(ErrorKind::Invalid, OP, "the file is written already").with_key(&self.key);
                std::future::ready(Err(error)).boxed()
            }
        }
    }

    fn publish(
        mut self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        async move {
            if let Some(inner) = self.inner.take() {
                match self.write(inner, parts, late).await {
                    Ok(facts) => self.written = Some(facts),
                    Err(error) => return Err(Unpublished { error, upload: self }),
                }
            }
            let Some(facts) = self.written.clone() else {
                let error = Error::new(ErrorKind::Invalid, OP, "nothing was written").with_key(&self.key);
                return Err(Unpublished { error, upload: self });
            };
            let joined = self.shared.join(self.key.clone(), self.spec.replace.clone(), KeyRequest::Plain(facts)).await;
            joined.map_err(|failed| {
                self.named |= failed.uncertain;
                Unpublished { error: failed.error, upload: self }
            })
        }
        .boxed()
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            if let Some(inner) = self.inner.take() {
                return inner.abort().await;
            }
            // Without its bytes it would be a file that can't be read, in the place of what was there before. If no index names it,
            // cleanup removes it.
            if self.named {
                return Ok(());
            }
            let mut answers = self.shared.inner.delete(vec![(self.place.clone(), None)]).await;
            answers.pop().unwrap_or(Ok(()))
        }
        .boxed()
    }
}
