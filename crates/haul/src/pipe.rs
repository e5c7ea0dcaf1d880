//! One key from or to a pipe: `cat` and `rcat`.

use crate::{
    cx::{Cancel, cancelled},
    io::{abort_for_good, file_range},
};
use bytes::Bytes;
use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered},
};
use haul_core::{Entry, Error, ErrorKind, Hasher, Hashes, Key, Result, hash};
use haul_store::{
    Body, Buffers, Direction, LateFacts, Part, PartLimits, Payload, Store, StoredFacts, Upload, WriteSpec, disk,
};
use std::{ops::Range, os::unix::fs::FileExt as _, sync::Arc, time::Duration};

/// A store may publish what was sent for so long after a run was stopped.
const PUBLISH_WITHIN: Duration = Duration::from_millis(500);
/// Bytes read from a file at a time.
const BLOCK: u64 = 1 << 20;

/// The bytes `range` of a key (all, when `None`) in order.
///
/// Errors: the read fails; a broken stream ends in an error, and so does a stream of all bytes whose hash differs from the one that the
/// store states.
pub fn read<'a>(
    store: &'a Arc<dyn Store>,
    entry: &'a Entry,
    range: Option<Range<u64>>,
) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes>>>> {
    Box::pin(async move {
        let whole = range.is_none();
        let read = store.read(&entry.key, entry.version.as_ref(), range).await?;
        let hashes = read.entry.hashes;
        let bytes = match read.body {
            Body::Stream(stream) => stream,
            Body::File(file, range) => {
                let buffers = Buffers::default();
                let starts = (range.start..range.end).step_by(BLOCK as usize);
                let blocks = futures::stream::iter(starts)
                    .then(move |at| file_range(file.clone(), at..(at + BLOCK).min(range.end), buffers.clone()));
                blocks.boxed()
            }
        };
        Ok(if whole { proved(bytes, &hashes, entry.key.clone()) } else { bytes })
    })
}

/// Passes the bytes on, and ends with an error if their hash is not the known one.
fn proved(bytes: BoxStream<'static, Result<Bytes>>, known: &Hashes, key: Key) -> BoxStream<'static, Result<Bytes>> {
    // One proves it; CRCs cost least.
    let cheap = known.iter().find(|(algo, _)| hash::combines(*algo)).or(known.iter().next());
    let Some((algo, value)) = cheap.map(|(algo, value)| (algo, value.to_vec())) else { return bytes };
    let begun = Some((bytes, Hasher::new(&[algo]), value, key));
    let checked = futures::stream::unfold(begun, move |state| async move {
        let (mut bytes, mut hasher, value, key) = state?;
        match bytes.next().await {
            Some(Ok(piece)) => {
                hasher.update(&piece);
                Some((Ok(piece), Some((bytes, hasher, value, key))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None if hasher.finish().get(algo) == Some(&value[..]) => None,
            None => {
                let message = format!("what was read does not have the {algo} that the source says it has");
                Some((Err(Error::new(ErrorKind::Corrupt, "read", message).with_key(&key)), None))
            }
        }
    });
    checked.boxed()
}

/// Bytes of a pipe that are held while they are sent, unless a single part is larger: enough for 25 MB/s on each of eight
/// connections.
const HELD: u64 = 64 << 20;

/// After this many parts the next ones are twice as large, where the store takes parts of several sizes: 10,000 parts then
/// reach beyond the 5 TiB that S3 allows, and a short pipe takes little memory.
const DOUBLE: u64 = 1000;

/// Writes all of `stream`, of unknown length unless the spec tells, to `key`, several parts at once. Nothing shows at
/// `key` before the stream has ended well; a stream that ends in an error leaves what was there. Can't be resumed: a
/// pipe can't be read twice.
///
/// Errors: of the stream, or of the write.
pub fn write<'a>(
    store: &'a Arc<dyn Store>,
    key: &'a Key,
    spec: WriteSpec,
    stream: BoxStream<'static, Result<Bytes>>,
) -> BoxFuture<'a, Result<StoredFacts>> {
    write_until(store, key, spec, stream, Cancel::default())
}

/// As [`write()`], until the run is stopped: what was there then stays, and what was sent is removed. Once all has been sent, the store has half
/// a second to publish it.
///
/// Errors: `Cancelled` besides.
pub fn write_until<'a>(
    store: &'a Arc<dyn Store>,
    key: &'a Key,
    mut spec: WriteSpec,
    mut stream: BoxStream<'static, Result<Bytes>>,
    cancel: Cancel,
) -> BoxFuture<'a, Result<StoredFacts>> {
    Box::pin(async move {
        if spec.size.is_none() && store.caps().parts.is_some_and(|limits| limits.sized) {
            let (size, whole) = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(cancelled()),
                measured = measured(stream) => measured?,
            };
            (spec.size, stream) = (Some(size), whole);
        }
        let upload = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(cancelled()),
            upload = store.write(key, spec) => upload?,
        };
        let sent = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(cancelled()),
            sent = send(store, &*upload, stream) => sent,
        };
        let parts = match sent {
            Ok(parts) => parts,
            Err(error) => return Err(abort_for_good(upload, error, key).await),
        };
        // A store that answers no more must not hold up the end.
        let late = async {
            cancel.cancelled().await;
            tokio::time::sleep(PUBLISH_WITHIN).await;
        };
        tokio::select! {
            published = upload.publish(parts, LateFacts::default()) => match published {
                Ok(stored) => Ok(stored),
                Err(failed) => Err(abort_for_good(failed.upload, failed.error, key).await),
            },
            () = late => Err(cancelled()),
        }
    })
}

/// All bytes of a stream, and their number: in memory while few, then in a temporary file without a name.
///
/// Errors: of the stream, and of the file.
async fn measured(mut stream: BoxStream<'static, Result<Bytes>>) -> Result<(u64, BoxStream<'static, Result<Bytes>>)> {
    let (mut pieces, mut size) = (Vec::new(), 0);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        size += piece.len() as u64;
        pieces.push(piece);
        if size > HELD {
            return spooled(pieces, stream).await;
        }
    }
    Ok((size, futures::stream::iter(pieces.into_iter().map(Ok)).boxed()))
}

async fn spooled(
    begin: Vec<Bytes>,
    rest: BoxStream<'static, Result<Bytes>>,
) -> Result<(u64, BoxStream<'static, Result<Bytes>>)> {
    let failed = |error| Error::from_io("write a temporary file", error);
    tracing::info!("the store must be told the size first: what comes is kept in a temporary file until its end");
    let file = Arc::new(disk::run(move || tempfile::tempfile().map_err(failed)).await?);
    let (mut all, mut size) = (futures::stream::iter(begin.into_iter().map(Ok)).chain(rest), 0);
    while let Some(piece) = all.next().await {
        let (piece, file, at) = (piece?, file.clone(), size);
        size += piece.len() as u64;
        disk::run(move || file.write_all_at(&piece, at).map_err(failed)).await?;
    }
    let buffers = Buffers::default();
    let blocks = futures::stream::iter((0..size).step_by(BLOCK as usize))
        .then(move |at| file_range(file.clone(), at..(at + BLOCK).min(size), buffers.clone()));
    Ok((size, blocks.boxed()))
}

async fn send(
    store: &Arc<dyn Store>,
    upload: &dyn Upload,
    mut stream: BoxStream<'static, Result<Bytes>>,
) -> Result<Vec<Part>> {
    let limits = store.caps().parts;
    let lanes = store.lanes();
    let mut sending = FuturesUnordered::new();
    let (mut parts, mut index, mut offset) = (Vec::new(), 0, 0);
    let (mut waiting, mut held) = (Vec::new(), 0);
    let mut ended = false;
    loop {
        let block = limits.map_or(BLOCK, |limits| block(&limits, index));
        let room = (HELD / block).max(1) as usize;
        let most = lanes.map_or(room, |lanes| lanes.lane(Direction::Up).limit().min(room));
        let whole = held >= block || (ended && held > 0);
        if whole && sending.len() < most {
            let payload = cut(&mut waiting, block);
            let size = payload.len();
            sending.push(upload.part(index, offset, payload));
            held -= size;
            index += 1;
            offset += size;
            continue;
        }
        if ended && !whole && sending.is_empty() {
            return Ok(parts);
        }
        tokio::select! {
            Some(part) = sending.next(), if !sending.is_empty() => parts.push(part?),
            piece = stream.next(), if !ended && !whole => match piece {
                Some(piece) => {
                    let piece = piece?;
                    held += piece.len() as u64;
                    waiting.push(piece);
                }
                None => ended = true,
            },
        }
    }
}

/// The size of the part of this number.
fn block(limits: &PartLimits, index: u64) -> u64 {
    let first = limits.preferred.max(limits.min).next_multiple_of(limits.multiple.max(1));
    let doubled = if limits.equal { 0 } else { (index / DOUBLE).min(20) };
    (first << doubled).min(limits.max)
}

/// Takes up to `block` bytes off the front.
fn cut(waiting: &mut Vec<Bytes>, block: u64) -> Payload {
    let (mut taken, mut got) = (Vec::new(), 0);
    let mut rest = Vec::new();
    for mut piece in waiting.drain(..) {
        let room = (block - got) as usize;
        if room == 0 {
            rest.push(piece);
            continue;
        }
        let left = piece.split_off(piece.len().min(room));
        got += piece.len() as u64;
        taken.push(piece);
        if !left.is_empty() {
            rest.push(left);
        }
    }
    *waiting = rest;
    Payload::new(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_pipe_reach_five_tebibytes() {
        let limits = PartLimits { min: 5 << 20, max: 5 << 30, count: 10_000, ..PartLimits::FILE };
        let sum = (0..limits.count).map(|index| block(&limits, index)).sum::<u64>();
        assert!(sum > 5 << 40 && block(&limits, 999) == 8 << 20 && block(&limits, 1000) == 16 << 20);
        assert_eq!(block(&PartLimits { equal: true, ..limits }, 9_999), 8 << 20);
    }

    #[tokio::test]
    async fn bytes_that_are_not_what_the_store_says_end_in_an_error() {
        let read = |known: Hashes| async move {
            let pieces = ["ab", "c"].map(|piece| Ok(Bytes::from(piece)));
            let all = proved(futures::stream::iter(pieces).boxed(), &known, Key::from("k")).collect::<Vec<_>>().await;
            all.into_iter().map(|p| p.map_or_else(|e| e.to_string(), |p| format!("{p:?}"))).collect::<Vec<_>>()
        };
        let right = hash::hash_bytes(&[haul_core::Algo::Md5], b"abc");
        let bytes = ["b\"ab\"", "b\"c\""];
        assert_eq!(read(Hashes::default()).await, bytes);
        assert_eq!(read(right).await, bytes);
        let wrong = "k: read: what was read does not have the md5 that the source says it has";
        assert_eq!(read(Hashes::default().with(haul_core::Algo::Md5, [0; 16])).await, [bytes[0], bytes[1], wrong]);
    }

    #[tokio::test]
    async fn a_stream_is_the_same_after_its_size_was_measured() {
        for count in [0, 3, 70] {
            let piece = |n: usize| Bytes::from(vec![n as u8; (1 << 20) + n]);
            let stream = futures::stream::iter((0..count).map(move |n| Ok(piece(n)))).boxed();
            let (size, whole) = measured(stream).await.unwrap();
            let back: Vec<u8> = whole.map(|piece| piece.unwrap()).collect::<Vec<_>>().await.concat();
            assert!(back == (0..count).map(piece).collect::<Vec<_>>().concat() && back.len() as u64 == size);
        }
        let broken = || Err(Error::new(ErrorKind::Io, "read", "broke off"));
        assert!(measured(futures::stream::iter([Ok(Bytes::from("a")), broken()]).boxed()).await.is_err());
    }

    #[test]
    fn cuts_pieces_at_the_block() {
        let mut waiting = vec![Bytes::from("abc"), Bytes::from("defg"), Bytes::from("h")];
        let cut = |w: &mut Vec<Bytes>| cut(w, 5).concat().unwrap();
        assert_eq!(cut(&mut waiting), b"abcde");
        assert_eq!(cut(&mut waiting), b"fgh");
        assert!(waiting.is_empty());
    }
}
