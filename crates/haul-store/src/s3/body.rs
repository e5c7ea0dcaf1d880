//! Bodies of requests: pieces as they are, no copies, with a note of when they last moved; and their checksums.

use crate::Payload;
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use haul_core::{Algo, Hasher, Hashes};
use http_body::{Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

/// Frames are no larger, so that a slow link still shows progress.
const FRAME: usize = 1 << 20;

/// A payload as a request's body.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    pieces: Payload,
    piece: usize,
    offset: usize,
    left: u64,
    taken: Arc<AtomicU64>,
}

impl Pieces {
    /// All of `payload`.
    pub fn new(payload: Payload) -> Pieces {
        Pieces { left: payload.len(), pieces: payload, ..Pieces::default() }
    }

    /// Counts the frames that the connection has taken so far.
    pub fn progress(&self) -> Arc<AtomicU64> {
        self.taken.clone()
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        this.taken.fetch_add(1, Ordering::Relaxed);
        while let Some(piece) = this.pieces.0.get(this.piece) {
            if this.offset == piece.len() {
                (this.piece, this.offset) = (this.piece + 1, 0);
                continue;
            }
            let end = piece.len().min(this.offset + FRAME);
            let frame = piece.slice(this.offset..end);
            this.offset = end;
            this.left -= frame.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Hashes of a payload.
pub fn hash(algos: &[Algo], payload: &Payload) -> Hashes {
    let mut hasher = Hasher::new(algos);
    payload.0.iter().for_each(|piece| hasher.update(piece));
    hasher.finish()
}

/// One hash of some bytes in base64.
pub fn base64_of(algo: Algo, bytes: &[u8]) -> String {
    B64.encode(haul_core::hash::hash_bytes(&[algo], bytes).get(algo).unwrap_or_default())
}

/// Bytes in base64.
pub fn to_base64(bytes: &[u8]) -> String {
    B64.encode(bytes)
}

/// Base64 of `algo`'s length as bytes.
pub fn from_base64(algo: Algo, text: &str) -> Option<Vec<u8>> {
    B64.decode(text.trim()).ok().filter(|v| v.len() == algo.size())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    #[tokio::test]
    async fn frames_are_the_pieces_in_order_and_bounded() {
        let big = Bytes::from(vec![7; FRAME + 3]);
        let payload = Payload::new(vec![Bytes::new(), Bytes::from_static(b"ab"), big.clone(), Bytes::new()]);
        let body = Pieces::new(payload);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(FRAME as u64 + 5));
        let frames = http_body_util::BodyStream::new(body).map(|f| f.unwrap().into_data().unwrap());
        let frames: Vec<Bytes> = frames.collect().await;
        assert_eq!(frames.iter().map(Bytes::len).collect::<Vec<_>>(), [2, FRAME, 3]);
        assert_eq!(frames[1].as_ptr(), big.as_ptr(), "not copied");
    }
}
