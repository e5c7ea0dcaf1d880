//! Reading: the blocks that hold a range, and the nonce, which is at a file's beginning.

use crate::{
    Service,
    content::{self, BLOCK, HEADER, Nonce, Opener, Sealer},
};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Result, Version};
use haul_store::{Body, ListRequest, Read, disk, pages};
use std::{
    collections::HashMap,
    ops::Range,
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::OnceCell;

/// Nonces that are remembered: a large file is read in pieces, several at once.
const REMEMBERED: usize = 256;
/// Bytes of a file on disk that are read at a time: four blocks.
const PIECE: u64 = 4 * (64 << 10);

/// Nonces of versions that are being read.
#[derive(Default)]
pub struct Nonces(Mutex<HashMap<(Key, Version), CachedNonce>>);

/// A nonce that was asked for.
type CachedNonce = Arc<OnceCell<Nonce>>;

impl Nonces {
    fn of(&self, key: &Key, version: &Version) -> CachedNonce {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.entry((key.clone(), version.clone())).or_default().clone()
    }
}

/// See [`haul_store::Store::read`].
pub async fn read(
    service: &Arc<Service>,
    key: &Key,
    want: Option<&Version>,
    range: Option<Range<u64>>,
) -> Result<Read> {
    let hidden = service.hidden(key)?;
    let with_key = |error: Error| error.with_key(key);
    let Some(sealer) = service.content else {
        let mut read = service.inner.read(&hidden, want, range).await.map_err(with_key)?;
        read.entry = service.shown(read.entry, key);
        return Ok(read);
    };
    match range {
        Some(range) if range.start > 0 || range.is_empty() => part(service, sealer, key, &hidden, want, range).await,
        range => from_the_start(service, sealer, key, &hidden, want, range).await,
    }
}

/// A file from its first byte on: the nonce comes with the bytes.
async fn from_the_start(
    service: &Arc<Service>,
    sealer: Sealer,
    key: &Key,
    hidden: &Key,
    want: Option<&Version>,
    range: Option<Range<u64>>,
) -> Result<Read> {
    let wanted = range.as_ref().map(|range| 0..content::sealed_size(range.end.next_multiple_of(BLOCK)));
    let read = service.inner.read(hidden, want, wanted).await.map_err(|e| e.with_key(key))?;
    let sealed = read.entry.size;
    let entry = service.whole(read.entry, key)?;
    let size = entry.size;
    let end = range.as_ref().map_or(size, |range| range.end.min(size));
    let whole = range.is_none() || end == size;
    let mut encrypted = pieces(read.body, key);
    let mut held = Vec::new();
    while (held.len() as u64) < HEADER {
        match encrypted.try_next().await.map_err(|e| e.with_key(key))? {
            Some(piece) => held.extend_from_slice(&piece),
            None => return Err(cut(key)),
        }
    }
    let rest = Bytes::from(held.split_off(HEADER as usize));
    let nonce = Nonce::of_header(&held).map_err(|e| e.with_key(key))?;
    if let Some(version) = &entry.version {
        // Others that read further parts of it needn't ask.
        service.nonces.of(key, version).set(nonce).ok();
    }
    let expected = if whole { sealed } else { content::sealed_range(&(0..end), size).end };
    let encrypted = stream::iter([Ok(rest)]).chain(encrypted).boxed();
    let plain = opened(Opener::new(sealer, nonce, 0), encrypted, Some(expected - HEADER), 0..end, key.clone());
    Ok(Read { entry, body: Body::Stream(plain) })
}

/// A part of a file: its nonce is asked for once.
async fn part(
    service: &Arc<Service>,
    sealer: Sealer,
    key: &Key,
    hidden: &Key,
    want: Option<&Version>,
    range: Range<u64>,
) -> Result<Read> {
    let with_key = |error: Error| error.with_key(key);
    let cell = want.map(|version| service.nonces.of(key, version)).unwrap_or_default();
    let ask = || async {
        let read = service.inner.read(hidden, want, Some(0..HEADER)).await.map_err(with_key)?;
        let header: Vec<Bytes> = pieces(read.body, key).try_collect().await.map_err(with_key)?;
        Ok::<_, Error>((Nonce::of_header(&header.concat()).map_err(with_key)?, read.entry))
    };
    // Without a version, what is read must be one with the header.
    let (nonce, version) = match want {
        Some(version) => {
            (*cell.get_or_try_init(|| async { Ok::<_, Error>(ask().await?.0) }).await?, Some(version.clone()))
        }
        None => {
            let (nonce, entry) = ask().await?;
            (nonce, entry.version)
        }
    };
    let first = range.start / BLOCK;
    // The size isn't known yet; stores give what there is of a range.
    let encrypted_range = HEADER + first * (BLOCK + 16)..HEADER + range.end.div_ceil(BLOCK) * (BLOCK + 16);
    let encrypted_range = if range.is_empty() { encrypted_range.start..encrypted_range.start } else { encrypted_range };
    let read = service.inner.read(hidden, version.as_ref(), Some(encrypted_range)).await.map_err(with_key)?;
    let entry = service.whole(read.entry, key)?;
    let range = range.start.min(entry.size)..range.end.min(entry.size);
    let expected = content::sealed_range(&range, entry.size);
    let opener = Opener::new(sealer, nonce, first);
    let skip = range.start.saturating_sub(first * BLOCK);
    let length = range.end - range.start;
    let plain =
        opened(opener, pieces(read.body, key), Some(expected.end - expected.start), skip..skip + length, key.clone());
    Ok(Read { entry, body: Body::Stream(plain) })
}

fn cut(key: &Key) -> Error {
    Error::new(ErrorKind::Io, "read", "the content ended early").with_key(key)
}

/// The bytes of a body, whatever it is.
pub fn pieces(body: Body, key: &Key) -> BoxStream<'static, Result<Bytes>> {
    match body {
        Body::Stream(stream) => stream,
        Body::File(file, range) => {
            let key = key.clone();
            stream::try_unfold((file, range), move |(file, mut range)| {
                let key = key.clone();
                async move {
                    if range.is_empty() {
                        return Ok(None);
                    }
                    let now = range.start..range.end.min(range.start + PIECE);
                    range.start = now.end;
                    let source = file.clone();
                    let bytes = disk::run(move || {
                        let mut bytes = vec![0; (now.end - now.start) as usize];
                        match source.read_exact_at(&mut bytes, now.start) {
                            Ok(()) => Ok(bytes),
                            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(cut(&key)),
                            Err(e) => Err(Error::from_io("read", e).with_key(&key)),
                        }
                    })
                    .await?;
                    Ok(Some((Bytes::from(bytes), (file, range))))
                }
            })
            .boxed()
        }
    }
}

/// The plain bytes of `encrypted`, of which `expected` bytes must come (`None`: nobody knows how many), cut to `range` of them. A cut
/// between two blocks can't be told from their content, so the bytes are counted.
pub fn opened(
    opener: Opener,
    encrypted: BoxStream<'static, Result<Bytes>>,
    expected: Option<u64>,
    range: Range<u64>,
    key: Key,
) -> BoxStream<'static, Result<Bytes>> {
    struct State {
        opener: Option<Opener>,
        encrypted: BoxStream<'static, Result<Bytes>>,
        left: Option<u64>,
        at: u64,
    }
    let state = State { opener: Some(opener), encrypted, left: expected, at: 0 };
    stream::try_unfold(state, move |mut state| {
        let (key, range) = (key.clone(), range.clone());
        async move {
            let with_key = |error: Error| error.with_key(&key);
            while let Some(mut opener) = state.opener.take() {
                let blocks = match state.encrypted.try_next().await.map_err(with_key)? {
                    Some(mut piece) => {
                        // A store may give more than was asked for only at the end of a range, which nobody needs.
                        if let Some(left) = &mut state.left {
                            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                            *left -= piece.len() as u64;
                        }
                        let (blocks, opener) = disk::run(move || {
                            let blocks = opener.take(&piece)?;
                            Ok((blocks, opener))
                        })
                        .await
                        .map_err(with_key)?;
                        state.opener = Some(opener);
                        blocks
                    }
                    None if state.left.is_some_and(|left| left > 0) => return Err(cut(&key)),
                    None => opener.end().map_err(with_key)?.into_iter().collect(),
                };
                let mut wanted = Vec::new();
                for mut block in blocks {
                    let (start, end) = (state.at, state.at + block.len() as u64);
                    state.at = end;
                    block.truncate((range.end.clamp(start, end) - start) as usize);
                    let from = range.start.clamp(start, start + block.len() as u64) - start;
                    wanted.push(block.slice(from as usize..));
                }
                wanted.retain(|block| !block.is_empty());
                if !wanted.is_empty() {
                    return Ok(Some((wanted, state)));
                }
            }
            Ok(None)
        }
    })
    .map_ok(|blocks| stream::iter(blocks.into_iter().map(Ok)))
    .try_flatten()
    .boxed()
}

/// Facts of an entry from the other store, with the plain key and size.
///
/// Errors: those of `stat`.
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    let hidden = service.hidden(key)?;
    if key.is_root() && !service.caps.dirs && !hidden.is_root() {
        // A directory is there as soon as something is in it.
        let first = ListRequest { prefix: hidden.as_bytes().to_vec(), limit: Some(1), ..ListRequest::all() };
        let mut listing = service.inner.list(first);
        return match listing.next().await {
            Some(Listed::Batch(entries)) if !entries.is_empty() => Ok(Entry::dir(key.clone())),
            Some(Listed::Failed { error, .. }) => Err(error),
            _ => Err(pages::no_root(&service.locator, "stat")),
        };
    }
    let entry = service.inner.stat(&hidden).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound if key.is_root() => Error::new(ErrorKind::DirNotFound, "stat", error.message()),
        _ => error.with_key(key),
    })?;
    Ok(service.shown(entry, key))
}
