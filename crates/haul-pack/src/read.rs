//! Reading: a file in a pack is a range of its tar; one request, whatever the file.

use super::{
    Shared,
    index::{Facts, Index, Location, find},
    keys::{plain_key, tar_key},
    load::pieces,
    merge::{Merge, holds},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Result, Version, hash::hash_bytes};
use haul_store::{Body, Read, pages};
use std::{future::ready, ops::Range, sync::Arc};

pub async fn stat(shared: &Shared, key: &Key) -> Result<Entry> {
    const OP: &str = "stat";
    let full = shared.full(key);
    if key.is_root() && shared.prefix.is_empty() {
        return shared.inner.stat(key).await;
    }
    let indexes = shared.indexes(false).await?;
    if !key.is_root()
        && let Some(facts) = find(&indexes, &full)
    {
        let missing = shared.view.missing();
        let damaged = match &facts.place {
            Location::Plain { folder } if !missing.knows_files => {
                match shared.inner.stat(&plain_key(folder, &full)).await {
                    Err(error) if error.is_missing() => true,
                    there => there?.size < facts.size,
                }
            }
            place => missing.holds(&full, place),
        };
        return Ok(Entry { damaged, ..facts.entry(key.clone(), true) });
    }
    if (key.is_root() || key.is_dir()) && holds(Merge::new(indexes, &full), &full) {
        return Ok(Entry::dir(key.clone()));
    }
    match key.is_root() {
        true => Err(pages::no_root(&shared.locator, OP)),
        false => Err(shared.not_found(OP, key)),
    }
}

pub async fn read(shared: &Shared, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    const OP: &str = "read";
    let full = shared.full(key);
    let indexes = shared.indexes(false).await?;
    let facts = find(&indexes, &full).ok_or_else(|| shared.not_found(OP, key))?;
    if want.is_some_and(|want| *want != facts.version()) {
        return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key));
    }
    let entry = facts.entry(key.clone(), true);
    let range = range.unwrap_or(0..facts.size);
    let range = range.start.min(facts.size)..range.end.min(facts.size);
    if range.is_empty() {
        return Ok(Read { entry, body: Body::Stream(stream::empty().boxed()) });
    }
    let body = match &facts.place {
        Location::Packed { pack, offset } => {
            let whole = range == (0..facts.size);
            shared.ahead.learn(pack, size_of(&indexes, pack));
            let range = offset + range.start..offset + range.end;
            let body = packed(shared, pack, range, whole).await.map_err(|e| gone(e, key))?;
            if whole { stream::once(checked(body, facts, key.clone())).boxed() } else { pieces(body) }
        }
        Location::Plain { folder } => {
            let read = shared.inner.read(&plain_key(folder, &full), None, Some(range)).await;
            pieces(read.map_err(|e| gone(e, key))?.body)
        }
    };
    Ok(Read { entry, body: Body::Stream(body) })
}

/// A range of a pack; of whole files, perhaps what is around it too.
async fn packed(shared: &Shared, pack: &Arc<str>, range: Range<u64>, whole: bool) -> Result<Body> {
    if whole && let Some(bytes) = shared.read_ahead(pack, &range).await {
        let bytes = bytes?;
        return Ok(Body::Stream(stream::once(ready(Ok(bytes))).boxed()));
    }
    let read = shared.inner.read(&tar_key(pack), None, Some(range)).await?;
    shared.ahead.learn(pack, Some(read.entry.size));
    Ok(read.body)
}

/// The size of a pack, as its own index has it; `None` when that was put together with others.
fn size_of(indexes: &[Arc<Index>], pack: &str) -> Option<u64> {
    let at = indexes.binary_search_by(|index| index.head.id.as_str().cmp(pack)).ok()?;
    Some(indexes[at].head.tar)
}

/// A pack or file that an index names is never rewritten, so if it is missing another run has replaced it.
fn gone(error: Error, key: &Key) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::new(ErrorKind::Changed, "read", format!("what holds it is gone: {error}")),
        _ => error,
    }
    .with_key(key)
}

/// A packed file as a whole, proved to be what was packed before any of it is given out.
async fn checked(body: Body, facts: Facts, key: Key) -> Result<Bytes> {
    let mut frames = pieces(body);
    let mut bytes = Vec::with_capacity(facts.size as usize);
    while let Some(frame) = frames.next().await {
        bytes.extend_from_slice(&frame?);
    }
    let algo = [Algo::Crc64Nvme, Algo::Md5].into_iter().find(|a| facts.hashes.get(*a).is_some());
    let same = bytes.len() as u64 == facts.size
        && algo.is_none_or(|algo| hash_bytes(&[algo], &bytes).get(algo) == facts.hashes.get(algo));
    if !same {
        let message = "the pack holds something else than its index says: it is damaged";
        return Err(Error::new(ErrorKind::Corrupt, "read", message).with_key(&key));
    }
    Ok(bytes.into())
}
