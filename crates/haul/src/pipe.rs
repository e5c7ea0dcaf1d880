//! One key from or to a pipe: `cat` and `rcat`.

use crate::transfer;
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use haul_core::{Entry, Key, Result};
use haul_store::{Body, Buffers, Late, Payload, Store, Stored, WriteSpec};
use std::{ops::Range, sync::Arc};

/// Bytes read from a file at a time.
const BLOCK: u64 = 1 << 20;

/// The bytes `range` of a key (all, when `None`) in order.
///
/// Errors: those of the read; a stream that breaks ends in one.
pub async fn read(
    store: &Arc<dyn Store>,
    entry: &Entry,
    range: Option<Range<u64>>,
) -> Result<BoxStream<'static, Result<Bytes>>> {
    let read = store.read(&entry.key, entry.version.as_ref(), range).await?;
    Ok(match read.body {
        Body::Stream(stream) => stream,
        Body::File(file, range) => {
            let buffers = Buffers::default();
            let starts = (range.start..range.end).step_by(BLOCK as usize);
            let blocks = futures::stream::iter(starts)
                .then(move |at| transfer::file_range(file.clone(), at..(at + BLOCK).min(range.end), buffers.clone()));
            blocks.boxed()
        }
    })
}

/// Writes all of `stream`, of unknown length unless the spec tells, to `key`. Nothing shows at `key` before the
/// stream has ended well; a stream that ends in an error leaves what was there. Can't be resumed: a pipe can't be
/// read twice.
///
/// Errors: the stream's, or those of the write.
pub async fn write(
    store: &Arc<dyn Store>,
    key: &Key,
    spec: WriteSpec,
    mut stream: BoxStream<'static, Result<Bytes>>,
) -> Result<Stored> {
    let limits = store.caps().parts;
    let block = limits.map_or(BLOCK, |l| l.preferred.max(l.min));
    let upload = store.write(key, spec).await?;
    let (mut parts, mut index, mut offset) = (Vec::new(), 0, 0);
    let (mut waiting, mut held) = (Vec::new(), 0);
    let failed = loop {
        let next = stream.next().await;
        let ended = next.is_none();
        match next {
            Some(Ok(piece)) => {
                held += piece.len() as u64;
                waiting.push(piece);
            }
            Some(Err(error)) => break Some(error),
            None => {}
        }
        while held >= block || (ended && held > 0) {
            let payload = cut(&mut waiting, block);
            let size = payload.len();
            match upload.part(index, offset, payload).await {
                Ok(part) => parts.push(part),
                Err(error) => return Err(transfer::abort(upload, error).await),
            }
            held -= size;
            index += 1;
            offset += size;
        }
        if ended {
            break None;
        }
    };
    if let Some(error) = failed {
        return Err(transfer::abort(upload, error).await);
    }
    match upload.publish(parts, Late::default()).await {
        Ok(stored) => Ok(stored),
        Err(failed) => Err(transfer::abort(failed.upload, failed.error).await),
    }
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
    fn cuts_pieces_at_the_block() {
        let mut waiting = vec![Bytes::from("abc"), Bytes::from("defg"), Bytes::from("h")];
        let cut = |w: &mut Vec<Bytes>| cut(w, 5).concat().unwrap();
        assert_eq!(cut(&mut waiting), b"abcde");
        assert_eq!(cut(&mut waiting), b"fgh");
        assert!(waiting.is_empty());
    }
}
