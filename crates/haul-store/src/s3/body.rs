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
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

/// Frames are no larger, so that a slow link still shows progress.
const FRAME: usize = 256 << 10;

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
    /// What was read and is held back, and until when.
    held: Bytes,
    waiting: Option<BoxFuture<'static, ()>>,
    progress: Arc<Moves>,
}

/// Whether a body still moves.
#[derive(Debug, Default)]
pub struct Moves {
    taken: AtomicU64,
    held: AtomicBool,
}

impl Moves {
    /// The number of times that the connection has taken something so far; `None` while it is us who hold it back.
    pub fn count(&self) -> Option<u64> {
        (!self.held.load(Ordering::Relaxed)).then(|| self.taken.load(Ordering::Relaxed))
    }
}

impl Pieces {
    /// All of `payload`.
    pub fn new(payload: Payload) -> Pieces {
        payload.begin();
        Pieces { left: payload.len(), payload, ..Pieces::default() }
    }

    /// Tells whether it moves.
    pub fn progress(&self) -> Arc<Moves> {
        self.progress.clone()
    }

    /// The next frame of what is at hand, once it may go.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let most = self.payload.piece().unwrap_or(FRAME);
        let next = self.held.len().min(most);
        if self.waiting.is_none() {
            self.waiting = self.payload.hold(next as u64);
        }
        if let Some(waiting) = &mut self.waiting {
            let done = waiting.as_mut().poll(cx).is_ready();
            self.progress.held.store(!done, Ordering::Relaxed);
            if !done {
                return Poll::Pending;
            }
            self.waiting = None;
        }
        Poll::Ready(self.held.split_to(next))
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
        this.progress.taken.fetch_add(1, Ordering::Relaxed);
        if this.held.is_empty() {
            let frame = match this.payload.pieces() {
                Some(_) => this.next_piece().map(Ok),
                None => ready!(this.poll_file(cx)),
            };
            match frame {
                None => return Poll::Ready(None),
                Some(Ok(frame)) => this.held = frame,
                Some(Err(e)) => {
                    // Nothing comes after an error.
                    this.left = 0;
                    return Poll::Ready(Some(Err(io::Error::other(e.to_string()))));
                }
            }
        }
        let frame = ready!(this.poll_held(cx));
        this.left -= frame.len() as u64;
        this.payload.sent(frame.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(frame))))
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

    #[tokio::test]
    async fn bytes_are_counted_as_they_go_and_taken_back_when_they_go_again() {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tell = told.clone();
        let payload = Payload::from(Bytes::from(vec![7; 25]))
            .metered(crate::Meter::new(move |bytes| tell.lock().unwrap().push(bytes)))
            .paced(crate::Pace::new(10, |_| Box::pin(std::future::ready(()))));
        let mut first = http_body_util::BodyStream::new(Pieces::new(payload.clone()));
        first.next().await;
        first.next().await;
        drop(first);
        let second = http_body_util::BodyStream::new(Pieces::new(payload));
        let frames = second.map(|f| f.unwrap().into_data().unwrap().len());
        assert_eq!(frames.collect::<Vec<_>>().await, [10, 10, 5]);
        assert_eq!(*told.lock().unwrap(), [10, 10, -20, 10, 10, 5]);
    }

    #[tokio::test]
    async fn what_is_held_back_does_not_count_as_silence() {
        let payload = Payload::from(Bytes::from_static(b"x"));
        let body = Pieces::new(payload.paced(crate::Pace::new(1, |_| Box::pin(std::future::pending()))));
        let moves = body.progress();
        let mut frames = http_body_util::BodyStream::new(body);
        assert!(moves.count().is_some());
        assert!(futures::poll!(frames.next()).is_pending());
        assert!(moves.count().is_none());
    }
}
