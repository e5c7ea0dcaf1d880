//! Bodies of requests over HTTP: payloads as they are, no copies, with a note of when they last moved.

use crate::Payload;
use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, ready, stream::BoxStream, task::AtomicWaker};
use haul_core::{Algo, Result};
use http_body::{Frame, SizeHint};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

/// Frames are no larger, so that a slow link still shows progress.
const FRAME: usize = 256 << 10;

/// A payload as a request's body. Bytes in a file are read as they are sent, one block ahead; bytes in another store are
/// streamed through.
#[derive(Default)]
pub struct Pieces {
    payload: Payload,
    piece: usize,
    offset: usize,
    /// Bytes that are still to come.
    left: u64,
    /// The block of a file that is being read.
    reading: Option<BoxFuture<'static, Result<Bytes>>>,
    /// Bytes that were read and are held back, and until when.
    held: Bytes,
    waiting: Option<BoxFuture<'static, ()>>,
    progress: Arc<Moves>,
}

/// Whether a body still moves.
#[derive(Default)]
pub struct Moves {
    taken: AtomicU64,
    held: AtomicBool,
    /// Bytes that come from another store.
    passing: Mutex<Option<BoxStream<'static, Result<Bytes>>>>,
    given_up: AtomicBool,
    /// The connection, which waits for more.
    connection: AtomicWaker,
}

impl Moves {
    /// Nobody needs the rest: the connection sends no more of it and is closed, and the other store's stream is dropped at once. Without
    /// this, a connection whose server answered early would keep sending for as long as the server lets it.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        let passing = self.passing().take();
        drop(passing);
        self.connection.wake();
    }

    fn passing(&self) -> MutexGuard<'_, Option<BoxStream<'static, Result<Bytes>>>> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pieces {
    /// All of `payload`; of one of another store with its MD5 known at the end.
    pub fn new(payload: Payload) -> Pieces {
        let passing = payload.relay().map(|relay| relay.pieces(&[Algo::Md5]));
        let left = payload.len();
        Pieces::passing(payload, left, passing)
    }

    /// A payload of another store, sent in another form: `length` bytes, those of `form`.
    pub fn in_form(payload: Payload, length: u64, form: BoxStream<'static, Result<Bytes>>) -> Pieces {
        Pieces::passing(payload, length, Some(form))
    }

    fn passing(payload: Payload, left: u64, passing: Option<BoxStream<'static, Result<Bytes>>>) -> Pieces {
        payload.begin();
        let progress = Arc::new(Moves { passing: Mutex::new(passing), ..Moves::default() });
        Pieces { left, payload, progress, ..Pieces::default() }
    }

    /// Tells whether it moves.
    pub fn progress(&self) -> Arc<Moves> {
        self.progress.clone()
    }

    /// The next frame of the bytes at hand, once the pace allows it.
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

    /// The next frame of bytes in memory.
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

    fn poll_passing(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let piece = self.progress.passing().as_mut().map(|passing| passing.poll_next_unpin(cx));
        let Some(piece) = piece else { return self.poll_file(cx) };
        // The other store bounds its own silences.
        self.progress.held.store(piece.is_pending(), Ordering::Relaxed);
        piece
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

impl haul_net::Watch for Moves {
    fn count(&self) -> Option<u64> {
        (!self.held.load(Ordering::Relaxed)).then(|| self.taken.load(Ordering::Relaxed))
    }
}

impl haul_net::WatchedBody for Pieces {
    fn watch(&self) -> Arc<dyn haul_net::Watch> {
        self.progress.clone()
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        this.progress.taken.fetch_add(1, Ordering::Relaxed);
        this.progress.connection.register(cx.waker());
        if this.progress.given_up.load(Ordering::Relaxed) {
            this.left = 0;
            return Poll::Ready(Some(Err(io::Error::other("the rest is not wanted"))));
        }
        if this.held.is_empty() {
            let frame = match this.payload.pieces() {
                Some(_) => this.next_piece().map(Ok),
                None => ready!(this.poll_passing(cx)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use haul_net::Watch;

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
    async fn the_next_block_is_made_while_one_is_sent() {
        #[derive(Debug)]
        struct Told(std::sync::mpsc::SyncSender<u64>);
        impl crate::GeneratedBytes for Told {
            fn block(&self, at: u64, _: u64) -> Result<Bytes> {
                self.0.send(at).unwrap();
                Ok(Bytes::from_static(b"block"))
            }
        }
        let (tell, told) = std::sync::mpsc::sync_channel(10);
        let payload = Payload::default().with_made(Arc::new(Told(tell)), 15);
        let mut body = http_body_util::BodyStream::new(Pieces::new(payload));
        assert!(body.next().await.unwrap().is_ok());
        // Nobody asks the body for more meanwhile.
        let begun = |_| told.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
        assert_eq!([0, 1].map(begun), [0, 5]);
        assert_eq!(body.collect::<Vec<_>>().await.len(), 2);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [10]);
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
        let reported = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tell = reported.clone();
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
        assert_eq!(*reported.lock().unwrap(), [10, 10, -20, 10, 10, 5]);
    }

    /// A server that refuses a part before it has all of it may leave its connection open and read no more.
    #[tokio::test]
    async fn what_is_given_up_lets_go_of_the_other_store_and_wakes_its_connection() {
        let body = Pieces::new(
            crate::one_file_store::OneFileStore::new(&[7; 1_000_000]).payload(vec![]).paced(pace_of_one_frame()),
        );
        let moves = body.progress();
        let mut frames = http_body_util::BodyStream::new(body);
        assert!(frames.next().await.unwrap().is_ok());
        assert!(moves.passing().is_some());
        let waiting = tokio::spawn(async move { frames.next().await.unwrap().map(drop) });
        tokio::task::yield_now().await;
        moves.give_up();
        assert!(moves.passing().is_none());
        assert_eq!(waiting.await.unwrap().unwrap_err().to_string(), "the rest is not wanted");
    }

    /// Lets the first frame go and no other.
    fn pace_of_one_frame() -> crate::Pace {
        let first = AtomicBool::new(true);
        crate::Pace::new(FRAME, move |_| match first.swap(false, Ordering::Relaxed) {
            true => Box::pin(std::future::ready(())),
            false => Box::pin(std::future::pending()),
        })
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
