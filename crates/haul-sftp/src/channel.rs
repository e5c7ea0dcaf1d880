//! One SFTP session over a pipe: requests are sent as they come, and answers in any order reach their waiters.

use crate::wire::{self, FRAME_MAX, Hello, MalformedFrame, Reply, Request};
use bytes::{Bytes, BytesMut};
use haul_core::{Error, ErrorKind, Result, Retry};
use haul_ssh::{End, OpeningSession, Pipe, Ssh};
use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::Instant,
};

/// Bytes that a login shell may print before the server's greeting.
const NOISE: usize = 64 << 10;

/// Answers with content on their way at once, in bytes: what OpenSSH's window lets through a session in a round trip. More would only
/// wait, and servers that can't read while they write would stop for good.
const READ_WINDOW: usize = (2 << 20) - (4 << 10);

/// Content on its way to the server at once, in bytes: a window's worth and as much again, so that there is always some to send.
const WRITE_WINDOW: usize = 4 << 20;

/// While the server fsyncs, it may be silent this many times as long. ssh finds out whether it is still alive.
const SLOW: u32 = 20;

/// Frames with less content are put together into one write.
const SMALL: usize = 16 << 10;

/// One session.
#[derive(Debug)]
pub struct Channel {
    /// Extensions that the server supports.
    pub hello: Hello,
    /// Tells sessions apart.
    pub number: u64,
    send: mpsc::UnboundedSender<Frame>,
    state: Arc<Mutex<State>>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    /// Bytes that its users expect to move.
    pub claimed: AtomicU64,
    end: End,
}

#[derive(Debug)]
struct Frame {
    head: Bytes,
    content: Vec<Bytes>,
}

#[derive(Debug, Default)]
struct State {
    next: u32,
    waiting: HashMap<u32, PendingRequest>,
    /// Why it has ended.
    dead: Option<Error>,
}

#[derive(Debug)]
struct PendingRequest {
    answer: oneshot::Sender<Result<Reply>>,
    /// It may take long without a word.
    slow: bool,
    since: Instant,
    /// Given back when the answer is there.
    _window: Option<OwnedSemaphorePermit>,
}

/// An answer that is still to come. Whoever drops it doesn't want it any more.
#[derive(Debug)]
pub struct PendingReply(oneshot::Receiver<Result<Reply>>);

impl Future for PendingReply {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|_| Err(ended("the session has ended"))))
    }
}

fn ended(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Io, "connect", message).with_retry(Retry::Backoff)
}

impl Channel {
    /// Waits for a session that is about to be: its server has the first time to greet, and later the second to say something.
    ///
    /// Errors: nobody can log in, the server takes no more sessions (`Busy`), or what is there isn't an SFTP server.
    pub async fn open(
        ssh: &Ssh,
        mut opening: OpeningSession,
        (patience, idle): (Duration, Duration),
    ) -> Result<Arc<Channel>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let host = ssh.shown();
        let hello = match opening.patience(patience).wait(greet(&mut opening.pipe)).await {
            Some(Greeting::Hello(hello)) => hello,
            Some(Greeting::Ended(noise)) => {
                let error = opening.failed().await;
                return Err(match noise.is_empty() {
                    true => error,
                    false => Error::new(error.kind(), "connect", format!("{host}: no SFTP there, but: {noise}")),
                });
            }
            Some(Greeting::Noise(noise)) => {
                let message = format!("{host}: what answers there isn't an SFTP server: {noise}");
                return Err(opening.give_up(Error::new(ErrorKind::Unreachable, "connect", message)));
            }
            None => {
                let message = format!("{host}: no answer within {} s", patience.as_secs());
                return Err(opening.give_up(Error::new(ErrorKind::Timeout, "connect", message)));
            }
        };
        let Pipe { input, output, end } = opening.is_up();
        let (send, frames) = mpsc::unbounded_channel();
        let state: Arc<Mutex<State>> = Arc::default();
        tokio::spawn(write(input, frames));
        tokio::spawn(read(output, state.clone(), send.downgrade(), end.clone(), (host, idle)));
        Ok(Arc::new(Channel {
            hello,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            send,
            state,
            reads: Arc::new(Semaphore::new(READ_WINDOW)),
            writes: Arc::new(Semaphore::new(WRITE_WINDOW)),
            claimed: AtomicU64::new(0),
            end,
        }))
    }

    /// Sends a request.
    pub fn ask(&self, request: &Request<'_>) -> PendingReply {
        self.send(request, Vec::new(), None, false)
    }

    /// As [`Channel::ask`], for a request that may take long and can't be split.
    pub fn ask_slow(&self, request: &Request<'_>) -> PendingReply {
        self.send(request, Vec::new(), None, true)
    }

    /// Sends a read request, once the window has room for its bytes.
    pub async fn read(&self, handle: &[u8], at: u64, len: u32) -> PendingReply {
        let window = self.reads.clone().acquire_many_owned(len).await.ok();
        self.send(&Request::Read(handle, at, len), Vec::new(), window, false)
    }

    /// Room in the window for sending `len` bytes: taken before they are read, so that waiting bytes aren't in memory.
    pub async fn room(&self, len: u32) -> Option<OwnedSemaphorePermit> {
        self.writes.clone().acquire_many_owned(len).await.ok()
    }

    /// Sends bytes.
    pub fn write(
        &self,
        handle: &[u8],
        at: u64,
        content: Vec<Bytes>,
        room: Option<OwnedSemaphorePermit>,
    ) -> PendingReply {
        let len = content.iter().map(Bytes::len).sum::<usize>() as u32;
        self.send(&Request::Write(handle, at, len), content, room, false)
    }

    fn send(
        &self,
        request: &Request<'_>,
        content: Vec<Bytes>,
        window: Option<OwnedSemaphorePermit>,
        slow: bool,
    ) -> PendingReply {
        let (answer, receiver) = oneshot::channel();
        let mut state = lock(&self.state);
        if let Some(dead) = &state.dead {
            // Nobody may wait for it any more.
            let _ = answer.send(Err(dead.to_report()));
            return PendingReply(receiver);
        }
        let id = state.next;
        state.next = id.wrapping_add(1);
        state.waiting.insert(id, PendingRequest { answer, slow, since: Instant::now(), _window: window });
        // In the order of their numbers. An ended session answers all waiters.
        let _ = self.send.send(Frame { head: request.frame(id), content });
        PendingReply(receiver)
    }

    /// Requests that wait for an answer.
    pub fn load(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// True once nothing more can come.
    pub fn is_dead(&self) -> bool {
        lock(&self.state).dead.is_some() || self.end.has_ended()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Greeting {
    Hello(Hello),
    /// The output has ended, after this.
    Ended(String),
    /// Something else speaks, without an end.
    Noise(String),
}

async fn greet(pipe: &mut Pipe) -> Greeting {
    // A failed write is explained by the failing read.
    let _ = pipe.input.write_all(&wire::init()).await;
    let mut got = Vec::new();
    loop {
        match pipe.output.read_buf(&mut got).await {
            Ok(0) | Err(_) => return Greeting::Ended(first_line(&got)),
            Ok(_) => {}
        }
        if let Some(hello) = wire::hello(&got) {
            if got.len() > FRAME_MAX {
                return Greeting::Noise(first_line(&got));
            }
            return Greeting::Hello(hello);
        }
        if got.len() > NOISE {
            return Greeting::Noise(first_line(&got));
        }
    }
}

fn first_line(noise: &[u8]) -> String {
    let text = String::from_utf8_lossy(noise);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

async fn write(mut input: ChildStdin, mut frames: mpsc::UnboundedReceiver<Frame>) {
    let mut buffer = BytesMut::with_capacity(64 << 10);
    while let Some(frame) = frames.recv().await {
        let mut next = Some(frame);
        while let Some(frame) = next {
            buffer.extend_from_slice(&frame.head);
            if frame.content.iter().map(Bytes::len).sum::<usize>() < SMALL {
                frame.content.iter().for_each(|piece| buffer.extend_from_slice(piece));
            } else {
                if input.write_all_buf(&mut buffer).await.is_err() {
                    return;
                }
                for mut piece in frame.content {
                    if input.write_all_buf(&mut piece).await.is_err() {
                        return;
                    }
                }
            }
            next = if buffer.len() < 64 << 10 { frames.try_recv().ok() } else { None };
        }
        if input.write_all_buf(&mut buffer).await.is_err() {
            return;
        }
        buffer.clear();
    }
}

async fn read(
    mut output: ChildStdout,
    state: Arc<Mutex<State>>,
    send: mpsc::WeakUnboundedSender<Frame>,
    end: End,
    (host, idle): (String, Duration),
) {
    let mut buffer = BytesMut::with_capacity(64 << 10);
    let error = loop {
        match frame(&mut output, &mut buffer, idle, &state).await {
            Ok(frame) => match wire::reply(frame) {
                Ok((id, reply)) => {
                    let waiting = lock(&state).waiting.remove(&id);
                    match waiting {
                        Some(waiting) => answer(waiting, Ok(reply), &state, &send),
                        None => break broken(&host),
                    }
                }
                Err(MalformedFrame) => break broken(&host),
            },
            Err(Stop::Ended) => break end.why().await.with_retry(Retry::Backoff),
            Err(Stop::Broken) => break broken(&host),
            Err(Stop::Silent) => {
                let message = format!("{host}: the server has been silent for {} seconds", idle.as_secs());
                break Error::new(ErrorKind::Timeout, "connect", message);
            }
        }
    };
    end.stop();
    let waiting = {
        let mut state = lock(&state);
        state.dead = Some(error.to_report());
        std::mem::take(&mut state.waiting)
    };
    for waiting in waiting.into_values() {
        // Nobody may wait for it any more.
        let _ = waiting.answer.send(Err(error.to_report()));
    }
}

/// Passes an answer to its waiter. A handle opened for a waiter that is gone is closed again.
fn answer(
    waiting: PendingRequest,
    reply: Result<Reply>,
    state: &Mutex<State>,
    send: &mpsc::WeakUnboundedSender<Frame>,
) {
    let Err(Ok(Reply::Handle(handle))) = waiting.answer.send(reply) else { return };
    if let Some(send) = send.upgrade() {
        let (nobody, _) = oneshot::channel();
        let mut state = lock(state);
        let id = state.next;
        state.next = id.wrapping_add(1);
        state.waiting.insert(id, PendingRequest { answer: nobody, slow: false, since: Instant::now(), _window: None });
        let _ = send.send(Frame { head: Request::Close(&handle).frame(id), content: Vec::new() });
    }
}

fn broken(host: &str) -> Error {
    let message = format!("{host}: the server's answer can't be read: it isn't SFTP any more");
    Error::new(ErrorKind::Invalid, "connect", message)
}

enum Stop {
    Ended,
    Broken,
    /// Nothing came for too long, while somebody waited.
    Silent,
}

async fn frame(
    output: &mut ChildStdout,
    buffer: &mut BytesMut,
    idle: Duration,
    state: &Mutex<State>,
) -> Result<Bytes, Stop> {
    more(output, buffer, 4, idle, state).await?;
    let head = [buffer[0], buffer[1], buffer[2], buffer[3]];
    let len = wire::length(head).map_err(|MalformedFrame| Stop::Broken)?;
    let _ = buffer.split_to(4);
    if len <= SMALL {
        more(output, buffer, len, idle, state).await?;
        return Ok(buffer.split_to(len).freeze());
    }
    // Content gets its own buffer, so that it doesn't keep another's alive.
    let mut whole = BytesMut::with_capacity(len);
    whole.extend_from_slice(&buffer.split_to(buffer.len().min(len)));
    while whole.len() < len {
        let left = len - whole.len();
        let mut rest = (&mut *output).take(left as u64);
        receive(&mut rest, &mut whole, idle, state).await?;
    }
    Ok(whole.freeze())
}

/// Reads until there are `len` bytes in the buffer.
async fn more(
    output: &mut ChildStdout,
    buffer: &mut BytesMut,
    len: usize,
    idle: Duration,
    state: &Mutex<State>,
) -> Result<(), Stop> {
    while buffer.len() < len {
        buffer.reserve(SMALL);
        receive(output, buffer, idle, state).await?;
    }
    Ok(())
}

async fn receive(
    from: &mut (impl AsyncReadExt + Unpin),
    into: &mut BytesMut,
    idle: Duration,
    state: &Mutex<State>,
) -> Result<(), Stop> {
    let mut silent = 0;
    loop {
        let began = Instant::now();
        match tokio::time::timeout(idle, from.read_buf(into)).await {
            Ok(Ok(0) | Err(_)) => return Err(Stop::Ended),
            Ok(Ok(_)) => return Ok(()),
            Err(_) => {}
        }
        let state = lock(state);
        // Requests sent meanwhile may be a moment old.
        if !state.waiting.values().any(|waiting| waiting.since <= began) {
            continue;
        }
        silent += 1;
        if silent >= SLOW || !state.waiting.values().any(|waiting| waiting.slow) {
            return Err(Stop::Silent);
        }
    }
}
