//! One pipe to a far end: sends requests, and gives each its answers. Many are under way at once; none waits for another.

use crate::{
    compression::{Pace, Packing, pack, pack_behind},
    dial::Pipe,
    frame::{Frame, Kind, MOST, Marks, PIECE},
    history::{FrameCompression, History, ReceiverHistory, way},
    idle_timeout::Patient,
    message::{self, Answer, Folder, FolderId, FolderRequest, Request},
};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream::FuturesOrdered};
use haul_core::{Error, ErrorKind, Result, Retry};
use haul_ssh::End;
use haul_store::task::Task;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::{Notify, OwnedSemaphorePermit, mpsc},
};

/// Frames of content that wait to be written: some megabytes, so that the pipe is never idle.
const QUEUE: usize = 16;

/// Frames that are being compressed, or are and wait for their turn.
const PACKED_AHEAD: usize = 4;

/// Bytes of an answer that may be on their way for one request: what a link of 100 MB/s holds in 40 ms. A larger one has several requests.
pub const WINDOW: u64 = 4 << 20;

/// The asker reports consumed bytes in steps of this many.
const TELL: u64 = WINDOW / 4;

/// Bytes that may have arrived for one request and wait for the asker: a window, and one message that ends it. A far end that sends
/// more ignores the window, and has no bound.
const UNTAKEN: u64 = WINDOW + MOST as u64;

/// Overhead of a received frame, in bytes.
const EACH: u64 = 64;

/// A frame that waits to be written, and the room that it takes until then.
pub struct Queued {
    frame: Frame,
    _held: [Option<OwnedSemaphorePermit>; 2],
}

impl Queued {
    pub fn new(frame: Frame, held: [Option<OwnedSemaphorePermit>; 2]) -> Queued {
        Queued { frame, _held: held }
    }
}

impl From<Frame> for Queued {
    fn from(frame: Frame) -> Self {
        Queued::new(frame, [None, None])
    }
}

/// A pipe to a far end that was greeted.
pub struct Wire {
    /// Requests and what else is small: goes before content.
    first: mpsc::UnboundedSender<Queued>,
    /// Content.
    content: mpsc::Sender<Queued>,
    waiting: Arc<Waiters>,
    next: AtomicU32,
    /// Bytes that its users expect to move.
    load: AtomicU64,
    _tasks: (Task<()>, Task<()>),
}

/// Who waits for answers.
#[derive(Default)]
struct Waiters(Mutex<State>);

#[derive(Default)]
struct State {
    by_id: HashMap<u32, Waiter>,
    /// Why no more will come.
    over: Option<String>,
    /// When bytes last arrived for a waiter, and whether a long silence was reported.
    moved: Option<(Instant, bool)>,
}

/// Who waits for the answers of a request.
struct Waiter {
    tell: mpsc::UnboundedSender<ReceivedFrame>,
    /// Bytes that came and weren't taken yet.
    untaken: Arc<AtomicU64>,
}

/// A received frame, for the request's waiter.
#[derive(Debug)]
enum ReceivedFrame {
    Answer(Frame),
    Data(Bytes),
}

/// An answer or a piece of content.
#[derive(Debug)]
pub enum Incoming {
    /// An answer.
    Answer(Answer),
    /// Content.
    Data(Bytes),
}

/// A folder of the far end, as requests name it.
#[derive(Clone, Debug)]
pub struct Named {
    id: FolderId,
    /// The folder, where the far end opens it with the first request for it; and whether one has been answered.
    along: Option<Arc<(Folder, AtomicBool)>>,
}

impl From<FolderId> for Named {
    /// One that the far end has opened; 0 for none.
    fn from(id: FolderId) -> Named {
        Named { id, along: None }
    }
}

impl Named {
    /// One that the far end is to open under a number that this end has given to no other.
    pub fn along(id: FolderId, folder: Folder) -> Named {
        Named { id, along: Some(Arc::new((folder, AtomicBool::new(false)))) }
    }

    /// The folder to open along with a request.
    fn opens(&self) -> Option<&Folder> {
        self.along.as_ref().filter(|along| !along.1.load(Ordering::Relaxed)).map(|along| &along.0)
    }

    /// True while no request for it was answered.
    pub fn is_new(&self) -> bool {
        self.opens().is_some()
    }

    fn answered(&self) {
        self.along.iter().for_each(|along| along.1.store(true, Ordering::Relaxed));
    }
}

/// A request under way. Dropping it before its last answer tells the far end that it is no longer wanted.
pub struct Exchange {
    id: u32,
    folder: Named,
    came: mpsc::UnboundedReceiver<ReceivedFrame>,
    untaken: Arc<AtomicU64>,
    wire: Arc<Wire>,
    untold: u64,
    ended: bool,
    /// Ends with the request.
    _share: Share,
}

/// Bytes that some work expects to move on a wire; they count until it is dropped.
pub struct Share {
    wire: Arc<Wire>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.wire.load.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Waiters {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something moves.
    fn moves(&self) {
        self.state().moved = Some((Instant::now(), false));
    }

    /// The far end says that it is there, and nothing else. True where nothing has moved for `patience` though somebody waits, the
    /// first time that this is so.
    fn stands_still(&self, patience: Duration) -> bool {
        let mut state = self.state();
        let waits = !state.by_id.is_empty();
        match &mut state.moved {
            Some((at, told)) => waits && at.elapsed() >= patience && !std::mem::replace(told, true),
            None => false,
        }
    }

    /// False for a request that was given up before it was written: the word of that went before content.
    fn wants(&self, frame: &Frame) -> bool {
        frame.kind != Kind::Request || self.state().by_id.contains_key(&frame.id)
    }

    /// Nothing more arrives: all waiters get an error.
    fn end(&self, why: String) {
        let mut state = self.state();
        state.over.get_or_insert(why);
        state.by_id.clear();
    }
}

impl Wire {
    /// Starts reading and writing.
    ///
    /// A far end that is silent for `patience` is given up: it sends a sign of life every few seconds. One that sends
    /// nothing else is reported by `way`, the way there as a person writes it.
    pub fn new(pipe: Pipe, patience: Duration, packing: Packing, way: String) -> Arc<Wire> {
        let (first, firsts) = mpsc::unbounded_channel();
        let (content, contents) = mpsc::channel(QUEUE);
        let waiting = Arc::<Waiters>::default();
        let (reads, writes) = (waiting.clone(), waiting.clone());
        let over = Arc::new(Notify::new());
        let is_over = over.clone();
        let Pipe { input, output, end } = pipe;
        let reader = Task::spawn(async move {
            let ended = match take(input, &reads, (patience, &way), ReceiverHistory::of(packing)).await {
                Ok(()) => "the far end closed the connection".to_owned(),
                Err(error) => {
                    end.iter().for_each(End::stop);
                    error.to_string()
                }
            };
            reads.end(match end {
                Some(end) => format!("{ended} ({})", end.why().await.message()),
                None => ended,
            });
            over.notify_one();
        });
        let writer = Task::spawn(async move {
            let sent = tokio::select! {
                sent = send(output, firsts, contents, packing, |frame| writes.wants(frame)) => sent,
                // Nobody there reads any more, or nobody knows: what waits to be written would wait for good.
                () = is_over.notified() => return,
            };
            // The reader says why it ended, where that says more.
            if let Err(error) = sent
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                writes.end(error.to_string());
            }
        });
        let (next, load) = (AtomicU32::new(1), AtomicU64::new(0));
        Arc::new(Wire { first, content, waiting, next, load, _tasks: (reader, writer) })
    }

    /// True while requests can be sent.
    pub fn is_open(&self) -> bool {
        self.waiting.state().over.is_none()
    }

    fn lost(&self) -> Error {
        let why = self.waiting.state().over.clone();
        let why = why.unwrap_or_else(|| "the connection to the far end is lost".to_owned());
        Error::new(ErrorKind::Io, "connect", why).with_retry(Retry::Backoff)
    }

    /// Bytes that its users expect to move.
    pub fn load(&self) -> u64 {
        self.load.load(Ordering::Relaxed)
    }

    /// A share of the pipe, for work that moves `bytes` bytes.
    pub fn share(self: &Arc<Self>, bytes: u64) -> Share {
        self.load.fetch_add(bytes, Ordering::Relaxed);
        Share { wire: self.clone(), bytes }
    }
}

impl Share {
    /// Sends a request.
    ///
    /// Errors: the connection is lost; the request is too large.
    pub fn ask(self, folder: &Named, request: &Request) -> Result<Exchange> {
        let (frame, exchange) = self.begin(folder, request)?;
        // A failed send is answered by the end of the connection.
        let _ = exchange.wire.first.send(frame.into());
        Ok(exchange)
    }

    /// Sends a request that brings content: in turn with other content, and compressed as that is.
    ///
    /// Errors: as [`Share::ask`].
    pub async fn ask_in_turn(self, folder: &Named, request: &Request) -> Result<Exchange> {
        let (frame, exchange) = self.begin(folder, request)?;
        let _ = exchange.wire.content.send(frame.into()).await;
        exchange.wire.waiting.moves();
        Ok(exchange)
    }

    fn begin(self, folder: &Named, request: &Request) -> Result<(Frame, Exchange)> {
        let wire = self.wire.clone();
        let id = wire.next.fetch_add(1, Ordering::Relaxed);
        let frame = message::frame(
            Kind::Request,
            id,
            &FolderRequest { folder: folder.id, opens: folder.opens().cloned(), request },
        )
        .map_err(|error| Error::new(ErrorKind::Invalid, "connect", error.to_string()))?;
        let (tell, came) = mpsc::unbounded_channel();
        let untaken = Arc::<AtomicU64>::default();
        {
            let mut state = wire.waiting.state();
            if state.over.is_some() {
                drop(state);
                return Err(wire.lost());
            }
            if state.by_id.is_empty() {
                state.moved = Some((Instant::now(), false));
            }
            state.by_id.insert(id, Waiter { tell, untaken: untaken.clone() });
        }
        Ok((frame, Exchange { id, folder: folder.clone(), came, untaken, wire, untold: 0, ended: false, _share: self }))
    }
}

impl Exchange {
    /// Sends content of the request, in pieces.
    ///
    /// Errors: the connection is lost.
    pub async fn send(&self, mut content: Bytes) -> Result<()> {
        while !content.is_empty() {
            let body = content.split_to(PIECE.min(content.len()));
            let frame = Frame { kind: Kind::Data, id: self.id, body };
            if self.wire.content.send(frame.into()).await.is_err() {
                return Err(self.wire.lost());
            }
            self.wire.waiting.moves();
        }
        Ok(())
    }

    /// The next answer or content.
    ///
    /// Errors: the far end's; the connection is lost.
    pub async fn next(&mut self) -> Result<Incoming> {
        let came = self.came.recv().await;
        let Some(came) = came else {
            self.ended = true;
            return Err(self.wire.lost());
        };
        self.untaken.fetch_sub(came.size(), Ordering::Relaxed);
        match came {
            ReceivedFrame::Data(bytes) => {
                self.took(bytes.len() as u64);
                Ok(Incoming::Data(bytes))
            }
            ReceivedFrame::Answer(frame) => {
                // A far end waits for a whole window at most.
                let size = (frame.body.len() as u64).min(WINDOW);
                let answer = message::read::<Answer>(&frame);
                self.ended = answer.as_ref().is_ok_and(Answer::is_last);
                match answer? {
                    Answer::Failed(error) => Err(error),
                    answer => {
                        self.folder.answered();
                        if !answer.is_last() {
                            self.took(size);
                        }
                        Ok(Incoming::Answer(answer))
                    }
                }
            }
        }
    }

    /// The one answer.
    ///
    /// Errors: as [`Exchange::next`].
    pub async fn answer(mut self) -> Result<Answer> {
        match self.next().await? {
            Incoming::Answer(answer) => Ok(answer),
            Incoming::Data(_) => Err(unexpected()),
        }
    }

    /// More comes, though the last answer of another request would look so.
    pub fn goes_on(&mut self) {
        self.ended = false;
    }

    fn took(&mut self, bytes: u64) {
        self.untold += bytes;
        if self.untold >= TELL {
            let _ = self.wire.first.send(Frame::taken(self.id, self.untold).into());
            self.untold = 0;
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.wire.waiting.state().by_id.remove(&self.id);
        if !self.ended {
            let _ = self.wire.first.send(Frame { kind: Kind::Cancel, id: self.id, body: Bytes::new() }.into());
        }
    }
}

/// The error of an answer that doesn't belong to its request.
pub fn unexpected() -> Error {
    Error::new(ErrorKind::Corrupt, "connect", "the far end answered something else than what was asked")
}

impl ReceivedFrame {
    fn size(&self) -> u64 {
        let (ReceivedFrame::Answer(Frame { body, .. }) | ReceivedFrame::Data(body)) = self;
        body.len() as u64 + EACH
    }
}

/// Hands on what comes until the pipe ends.
async fn take(
    from: impl AsyncRead + Unpin,
    waiting: &Waiters,
    (patience, way): (Duration, &str),
    mut reading: ReceiverHistory,
) -> io::Result<()> {
    let mut from = Patient::new(from, patience);
    while let Some(frame) = Frame::read(&mut from, &mut reading).await? {
        let (id, came) = match frame.kind {
            Kind::Data => (frame.id, ReceivedFrame::Data(frame.body)),
            Kind::Answer => (frame.id, ReceivedFrame::Answer(frame)),
            Kind::Alive => {
                if waiting.stands_still(patience) {
                    let seconds = patience.as_secs();
                    tracing::warn!(
                        "{way}: haul there lives and has moved nothing for {seconds} s: its disk may hang; waiting for it"
                    );
                }
                continue;
            }
            Kind::Request | Kind::Taken | Kind::Cancel => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the far end asks, where it should answer"));
            }
        };
        waiting.moves();
        // A request given up meanwhile has no waiter.
        if let Some(waits) = waiting.state().by_id.get(&id) {
            let size = came.size();
            if waits.untaken.fetch_add(size, Ordering::Relaxed) + size > UNTAKEN {
                let why = "the far end sends more than there is room for";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let _ = waits.tell.send(came);
        }
    }
    Ok(())
}

/// Writes queued frames, small ones before content, until all senders are gone. Content is compressed meanwhile, several
/// frames at once. Frames no longer wanted when their turn comes are skipped; nothing else depends on them then.
pub async fn send(
    mut to: impl AsyncWrite + Unpin,
    mut firsts: mpsc::UnboundedReceiver<Queued>,
    mut contents: mpsc::Receiver<Queued>,
    packing: Packing,
    is_wanted: impl Fn(&Frame) -> bool,
) -> io::Result<()> {
    let mut pace = Pace::new(packing);
    // Content keeps its order from here on.
    let mut history = packing.keeps().then(History::default);
    let mut ahead = FuturesOrdered::new();
    loop {
        while ahead.len() < PACKED_AHEAD
            && let Ok(frame) = contents.try_recv()
        {
            ahead.push_back(packed(frame, pace.level(), history.as_mut()));
        }
        let (began, waits) = (Instant::now(), !ahead.is_empty());
        let mut flushed = Duration::ZERO;
        let step = {
            let mut next = std::pin::pin!(async {
                tokio::select! {
                    biased;
                    frame = firsts.recv() => frame.map_or(Step::End, Step::First),
                    Some(packed) = ahead.next() => Step::Content(packed),
                    Some(frame) = contents.recv(), if !waits => Step::More(frame),
                }
            });
            match next.as_mut().now_or_never() {
                Some(step) => step,
                None => {
                    // Nothing else is ready: what was written goes now.
                    let flushing = Instant::now();
                    to.flush().await?;
                    flushed = flushing.elapsed();
                    next.await
                }
            }
        };
        match step {
            Step::End => return to.shutdown().await,
            Step::More(frame) => ahead.push_back(packed(frame, pace.level(), history.as_mut())),
            Step::First(Queued { frame, _held }) => match pace.quick().and_then(|level| pack(&frame.body, level)) {
                Some(packed) => frame.write_as(Marks { packed: true, kept: false }, &packed, &mut to).await?,
                None => frame.write(&mut to).await?,
            },
            Step::Content(Packed { queued, .. }) if !is_wanted(&queued.frame) => {}
            Step::Content(Packed { queued: Queued { frame, _held }, body, kept }) => {
                // It was compressed while the link took what was written before.
                let (work, began) = (began.elapsed().saturating_sub(flushed), Instant::now());
                let marks = Marks { packed: body.is_some(), kept };
                let body = body.as_deref().unwrap_or(&frame.body);
                frame.write_as(marks, body, &mut to).await?;
                pace.wrote((body.len(), frame.body.len()), began.elapsed() + flushed, work);
            }
        }
    }
}

/// The next frame to write.
enum Step {
    First(Queued),
    Content(Packed),
    More(Queued),
    End,
}

/// A frame of content that is to be written.
struct Packed {
    queued: Queued,
    /// Its body compressed, where that was wanted and pays.
    body: Option<Vec<u8>>,
    kept: bool,
}

/// Compresses a frame of content at this level. What it is compressed behind is settled when this is called.
fn packed(queued: Queued, level: Option<i32>, history: Option<&mut History>) -> impl Future<Output = Packed> + use<> {
    let body = queued.frame.body.clone();
    // Answers that go in order with content are not kept: only content is, of which there is more.
    let history = history.filter(|_| queued.frame.kind == Kind::Data);
    let way = way(history, (queued.frame.id, &body), level);
    let kept = matches!(way, FrameCompression::Behind(..));
    async move {
        let work = match way {
            FrameCompression::No => return Packed { queued, body: None, kept },
            FrameCompression::Alone(level) => tokio::spawn(async move { pack(&body, level) }),
            FrameCompression::Behind(level, before) => tokio::spawn(async move { pack_behind(&body, &before, level) }),
        };
        // An incompressible body is sent as it is.
        Packed { queued, body: work.await.unwrap_or_default(), kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compression::Compression, frame::crossing};
    use proptest::prelude::*;
    use tokio::{io::AsyncReadExt as _, time::timeout};

    #[tokio::test(flavor = "multi_thread")]
    async fn frames_cross_compressed_in_their_order() {
        let text: Vec<u8> = (0..10_000u32).flat_map(|n| format!("line {n} of a log\n").into_bytes()).collect();
        for (when, smaller) in [(Compression::Always, true), (Compression::Slow, false), (Compression::Never, false)] {
            let packing = Packing { when, ..Packing::default() };
            let (first, firsts) = mpsc::unbounded_channel();
            let (content, contents) = mpsc::channel(QUEUE);
            let (mut from, to) = tokio::io::duplex(1 << 16);
            let sender = tokio::spawn(send(to, firsts, contents, packing, |_| true));
            let noise = Bytes::from(haul_testkit::folder::noise(1, PIECE));
            let bodies: Vec<_> =
                (0..6).map(|n| if n == 3 { noise.clone() } else { Bytes::from(text.clone()) }).collect();
            for (id, body) in bodies.iter().enumerate() {
                content.send(Frame { kind: Kind::Data, id: id as u32, body: body.clone() }.into()).await.unwrap();
            }
            let (mut wire, mut came) = (Vec::new(), Vec::new());
            while came.len() < bodies.len() {
                from.read_buf(&mut wire).await.unwrap();
                let (mut left, mut reading) = (&wire[..], ReceiverHistory { packs: true, history: None });
                came.clear();
                while let Ok(Some(frame)) = Frame::read(&mut left, &mut reading).await {
                    came.push(frame);
                }
            }
            let ids: Vec<u32> = came.iter().map(|frame| frame.id).collect();
            assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
            assert!(came.iter().map(|frame| &frame.body).eq(&bodies));
            let plain: usize = bodies.iter().map(Bytes::len).sum();
            assert_eq!(wire.len() < plain / 2, smaller, "{when:?}: {} of {plain}", wire.len());
            drop((first, content));
            sender.await.unwrap().unwrap();
        }
    }

    /// Requests that take turns.
    const LANES: u32 = 3;

    /// Bytes written for these bodies.
    async fn written(bodies: &[Bytes], packing: Packing) -> Vec<u8> {
        let (first, firsts) = mpsc::unbounded_channel();
        let (content, contents) = mpsc::channel(QUEUE);
        let (mut from, to) = tokio::io::duplex(1 << 16);
        let sender = tokio::spawn(send(to, firsts, contents, packing, |_| true));
        let (many, bodies) = (bodies.len(), bodies.to_vec());
        let small = first.clone();
        let feeder = tokio::spawn(async move {
            for (id, body) in bodies.into_iter().enumerate() {
                // Small frames overtake content.
                let _ = small.send(Frame::ALIVE.into());
                content.send(Frame { kind: Kind::Data, id: id as u32 % LANES, body }.into()).await.unwrap();
            }
        });
        let (mut wire, mut came) = (Vec::new(), 0);
        while came < many {
            let (head, mut body) = crossing(&mut from).await;
            came += usize::from(head[4] & 0x3f == 3);
            wire.extend_from_slice(&head);
            wire.append(&mut body);
        }
        feeder.await.unwrap();
        drop(first);
        sender.await.unwrap().unwrap();
        wire
    }

    /// The bodies of content in what was written.
    async fn read(mut wire: &[u8], mut reading: ReceiverHistory) -> io::Result<Vec<Bytes>> {
        let mut bodies = Vec::new();
        while let Some(frame) = Frame::read(&mut wire, &mut reading).await? {
            if frame.kind == Kind::Data {
                assert_eq!(frame.id, bodies.len() as u32 % LANES);
                bodies.push(frame.body);
            }
        }
        Ok(bodies)
    }

    const ALONE: Packing = Packing { when: Compression::Always, level: None, history: false };
    const BEHIND: Packing = Packing { history: true, ..ALONE };

    #[tokio::test(flavor = "multi_thread")]
    async fn what_content_has_in_common_with_what_went_before_is_sent_once() {
        let words = haul_testkit::folder::noise(1, 200 << 10);
        let text: String = words.iter().map(|byte| format!("{byte} ")).collect();
        let pieces: Vec<Bytes> = text.as_bytes().chunks(PIECE).map(Bytes::copy_from_slice).collect();
        let noise = Bytes::from(haul_testkit::folder::noise(2, PIECE));
        let bodies = [&pieces[..], &[noise], &pieces[..]].concat();
        let alone = written(&bodies, ALONE).await;
        let behind = written(&bodies, BEHIND).await;
        assert!(behind.len() - PIECE < (alone.len() - PIECE) * 6 / 10, "{} of {}", behind.len(), alone.len());
        assert_eq!(read(&behind, ReceiverHistory::of(BEHIND)).await.unwrap(), bodies);
        // An end without support for history reads frames compressed alone, and no others.
        assert_eq!(read(&alone, ReceiverHistory { packs: true, history: None }).await.unwrap(), bodies);
        assert!(read(&behind, ReceiverHistory { packs: true, history: None }).await.is_err());
        // Other levels look at another part of what was.
        for level in [-7, 1, 2, 9, 19] {
            let packing = Packing { level: Some(level), ..BEHIND };
            assert_eq!(
                read(&written(&bodies, packing).await, ReceiverHistory::of(packing)).await.unwrap(),
                bodies,
                "{level}"
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn answers_in_order_with_content_are_compressed_by_themselves() {
        let text: Vec<u8> = (0..2_000u32).flat_map(|n| format!("line {n} of a log\n").into_bytes()).collect();
        let (first, firsts) = mpsc::unbounded_channel();
        let (content, contents) = mpsc::channel(QUEUE);
        let (mut from, to) = tokio::io::duplex(1 << 20);
        let sender = tokio::spawn(send(to, firsts, contents, BEHIND, |_| true));
        let mut reading = ReceiverHistory::of(BEHIND);
        for kind in [Kind::Data, Kind::Answer, Kind::Data, Kind::Answer] {
            let frame = Frame { kind, id: 1, body: text.clone().into() };
            content.send(frame.clone().into()).await.unwrap();
            let came = Frame::read(&mut from, &mut reading).await.unwrap();
            assert!(came == Some(frame), "{kind:?}");
        }
        drop(first);
        sender.await.unwrap().unwrap();
    }

    /// A body of some kind and size: text, noise, or a part of one that was.
    fn body() -> impl Strategy<Value = (u8, u64, usize)> {
        (0..4_u8, 0..6_u64, prop_oneof![0..2_000_usize, 60_000..70_000_usize, 200_000..=PIECE, PIECE..5 * PIECE])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn frames_of_any_kind_come_as_they_were(all in prop::collection::vec(body(), 1..24), level in 1..6_i32) {
            let bodies: Vec<Bytes> = all.into_iter().map(|(kind, seed, size)| match kind {
                0 => Bytes::from(haul_testkit::folder::noise(seed, size)),
                1 => vec![seed as u8; size].into(),
                _ => (seed * 1000..).flat_map(|n| format!("line {n} of a log\n").into_bytes()).take(size).collect(),
            }).collect();
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            runtime.block_on(async {
                for packing in [ALONE, BEHIND, Packing { level: Some(level), ..BEHIND }] {
                    let wire = written(&bodies, packing).await;
                    assert_eq!(read(&wire, ReceiverHistory::of(packing)).await.unwrap(), bodies);
                }
            });
        }
    }

    /// A wire over a pipe that holds `bytes` bytes, and the pipe's other end.
    fn piped(bytes: usize, patience: Duration) -> (Arc<Wire>, tokio::io::DuplexStream) {
        let (near, far) = tokio::io::duplex(bytes);
        let (input, output) = tokio::io::split(near);
        let pipe = Pipe { input: Box::new(input), output: Box::new(output), end: None };
        (Wire::new(pipe, patience, Packing::default(), "far".into()), far)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_far_end_that_heeds_no_window_is_given_up() {
        let (wire, mut far) = piped(1 << 16, Duration::from_secs(20));
        let mut exchange = wire.share(0).ask(&1.into(), &Request::About).unwrap();
        let piece = Frame { kind: Kind::Data, id: exchange.id, body: Bytes::from(vec![1; PIECE]) };
        let mut sent = 0;
        // Nobody reads any more when it is given up.
        while sent < 1000 && matches!(timeout(Duration::from_secs(2), piece.write(&mut far)).await, Ok(Ok(()))) {
            sent += 1;
        }
        assert!(sent as u64 * (PIECE as u64) < 2 * UNTAKEN, "{sent}");
        let error = loop {
            if let Err(error) = exchange.next().await {
                break error;
            }
        };
        assert_eq!(error.message(), "the far end sends more than there is room for");
    }

    /// Like a stopped process: the pipe stays open, and nobody reads it.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_sends_to_a_far_end_that_stands_still_does_not_wait_for_good() {
        let (wire, mut far) = piped(1 << 16, Duration::from_secs(1));
        let exchange =
            wire.share(0).ask(&1.into(), &Request::Part { upload: 1, index: 0, offset: 0, size: 64 << 20 }).unwrap();
        assert_eq!(Frame::read_plain(&mut far).await.unwrap().unwrap().kind, Kind::Request);
        let sent = timeout(Duration::from_secs(20), exchange.send(Bytes::from(vec![1; 64 << 20]))).await;
        assert_eq!(sent.expect("it ends").unwrap_err().message(), "nothing came for 1 s");
        assert!(!wire.is_open());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bundle_that_is_given_up_before_its_turn_is_not_written() {
        let (wire, mut far) = piped(1 << 10, Duration::from_secs(20));
        let small = |bytes: usize| {
            let (key, spec, bytes) = (haul_core::Key::new("f"), Default::default(), vec![1; bytes].into());
            Request::PutAll(vec![haul_store::SmallFile { key, spec, bytes }])
        };
        // More than the pipe holds, so that the next has to wait.
        let first = wire.share(0).ask_in_turn(&1.into(), &small(64 << 10)).await.unwrap();
        let given_up = wire.share(0).ask_in_turn(&1.into(), &small(1)).await.unwrap();
        let last = wire.share(0).ask_in_turn(&1.into(), &small(1)).await.unwrap();
        let ids = [first.id, last.id];
        let cancelled = given_up.id;
        drop(given_up);
        let mut came = Vec::new();
        while came.len() < 3 {
            let frame = Frame::read_plain(&mut far).await.unwrap().unwrap();
            came.push((frame.kind, frame.id));
        }
        came.sort_by_key(|(kind, id)| (*kind == Kind::Request, *id));
        assert_eq!(came, [(Kind::Cancel, cancelled), (Kind::Request, ids[0]), (Kind::Request, ids[1])]);
    }

    #[test]
    fn a_far_end_that_lives_and_moves_nothing_is_told_of_once() {
        let waiting = Waiters::default();
        let (now, long) = (Duration::ZERO, Duration::from_secs(3600));
        waiting.moves();
        assert!(!waiting.stands_still(now), "nobody waits");
        let (tell, _came) = mpsc::unbounded_channel();
        waiting.state().by_id.insert(1, Waiter { tell, untaken: Arc::default() });
        assert!(!waiting.stands_still(long));
        assert_eq!([waiting.stands_still(now), waiting.stands_still(now)], [true, false]);
        waiting.moves();
        assert!(waiting.stands_still(now), "it moved between");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_read_that_is_given_up_is_ended_there_too() {
        let (wire, mut far) = piped(1 << 16, Duration::from_secs(20));
        let key = haul_core::Key::new("f");
        let exchange = wire.share(0).ask(&1.into(), &Request::Read(key.clone(), None, None)).unwrap();
        let id = exchange.id;
        assert_eq!(Frame::read_plain(&mut far).await.unwrap().unwrap().kind, Kind::Request);
        let facts = Answer::Entry(haul_core::Entry::file(key, 1 << 30));
        message::frame(Kind::Answer, id, &facts).unwrap().write(&mut far).await.unwrap();
        let read = crate::read::read(exchange).await.unwrap();
        drop(read);
        let frame = Frame::read_plain(&mut far).await.unwrap().unwrap();
        assert_eq!((frame.kind, frame.id), (Kind::Cancel, id));
    }
}
