//! Bodies of requests: pieces as they are, no copies, with a note of when they last moved; and their checksums.

use crate::Payload;
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use futures::{future::BoxFuture, ready};
use haul_core::{Algo, Result};
use http_body::{Frame, SizeHint};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

/// Frames are no larger, so that a slow link still shows progress.
const FRAME: usize = 1 << 20;

/// A payload as a request's body. What is in a file is read as it is sent, one block ahead.
#[derive(Default)]
pub struct Pieces {
    payload: Payload,
    piece: usize,
    offset: usize,
    /// Bytes that are still to come.
    left: u64,
    /// The block of a file that is being read.
    reading: Option<BoxFuture<'static, Result<Bytes>>>,
    taken: Arc<AtomicU64>,
}

impl Pieces {
    /// All of `payload`.
    pub fn new(payload: Payload) -> Pieces {
        Pieces { left: payload.len(), payload, ..Pieces::default() }
    }

    /// Counts the frames that the connection has taken so far.
    pub fn progress(&self) -> Arc<AtomicU64> {
        self.taken.clone()
    }

    /// The next frame of what is in memory.
    fn next_piece(&mut self) -> Option<Bytes> {
        let pieces = self.payload.pieces()?;
        while let Some(piece) = pieces.get(self.piece) {
            if self.offset == piece.len() {
                (self.piece, self.offset) = (self.piece + 1, 0);
                continue;
            }
            let end = piece.len().min(self.offset + FRAME);
            let frame = piece.slice(self.offset..end);
            self.offset = end;
            return Some(frame);
        }
        None
    }

    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let at = self.payload.len() - self.left;
        if self.reading.is_none() {
            self.reading = self.payload.read_at(at).map(|read| Box::pin(read) as BoxFuture<'static, Result<Bytes>>);
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let block = ready!(reading.as_mut().poll(cx));
        let next = block.as_ref().ok().and_then(|block| self.payload.read_at(at + block.len() as u64));
        self.reading = next.map(|read| Box::pin(read) as BoxFuture<'static, Result<Bytes>>);
        Poll::Ready(Some(block))
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        this.taken.fetch_add(1, Ordering::Relaxed);
        let frame = match this.payload.pieces() {
            Some(_) => this.next_piece().map(Ok),
            None => ready!(this.poll_file(cx)),
        };
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|e| {
                // Nothing comes after an error.
                this.left = 0;
                io::Error::other(e.to_string())
            })?;
            this.left -= frame.len() as u64;
            Ok(Frame::data(frame))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
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
    #[allow(clippy::disallowed_methods)] // a test's own file
    async fn what_is_in_a_file_is_read_as_it_is_sent() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..700_000).map(|i| ((i * 7) >> 3) as u8).collect();
        io::Write::write_all(&mut file, &bytes).unwrap();
        let file = Arc::new(file);
        let body = |end| Pieces::new(Payload::of_file(file.clone(), 1..end, Default::default()));
        assert_eq!(http_body::Body::size_hint(&body(700_000)).exact(), Some(699_999));
        let frames = http_body_util::BodyStream::new(body(700_000)).map(|f| f.unwrap().into_data().unwrap());
        assert!(frames.collect::<Vec<Bytes>>().await.concat() == bytes[1..]);
        let last = http_body_util::BodyStream::new(body(700_001)).collect::<Vec<_>>().await.pop().unwrap();
        assert!(last.unwrap_err().to_string().contains("the file became shorter"));
    }

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
