//! The sessions to one host: as many as there is work for and the server takes. What one of them can move in a round trip is bounded,
//! and the server works on one request of each at a time.

use crate::{
    channel::{Channel, PendingReply},
    wire::{self, Hello, Reply, Request, status},
};
use haul_core::{Error, ErrorKind, Result};
use haul_ssh::{Remote, Ssh};
use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// A session with this many bytes claimed takes no more as long as another one may be begun: two chunks, of which one moves while the
/// other is opened.
const FULL: u64 = 12 << 20;

/// From this many claimed bytes or waiting requests on another session pays.
const BUSY: (u64, usize) = (1 << 20, 16);

/// Further sessions that may fail for reasons of their own before no other is tried.
const FAILURES: usize = 3;

/// A session that commands are left.
const SPARE: usize = 1;

/// Bytes of a request to read or write as long as the server doesn't say: what every server takes.
const SURE: u32 = 32 << 10;

/// Bytes of one at most, whatever the server says: what fits into a frame beside the rest.
const MOST: u32 = 255 << 10;

/// Sessions to a host. Shared by all stores of a run that go there as the same user.
#[derive(Debug)]
pub struct Pool {
    /// The way to the host.
    pub ssh: Ssh,
    /// There is no shell for commands, as was found out.
    pub no_shell: AtomicBool,
    remote: Remote,
    /// How long a session may take to be greeted on, once somebody is logged in.
    patience: Duration,
    /// How long nothing may come, later.
    pub idle: Duration,
    /// Sessions at most, if the user says so.
    most: Option<usize>,
    /// Bytes of a request, if the user says so.
    chunk: Option<u32>,
    state: Mutex<State>,
    changed: Notify,
    /// The first session is begun by one alone.
    first: tokio::sync::Mutex<()>,
    /// Bytes of a request to read, and of one to write, as far as the server takes them.
    read_len: AtomicU32,
    write_len: AtomicU32,
    /// Sessions that were begun.
    begun: AtomicUsize,
    /// See [`Pool::keeps_at_close`].
    keeps_at_close: OnceLock<bool>,
}

#[derive(Debug, Default)]
struct State {
    channels: Vec<Arc<Channel>>,
    opening: usize,
    /// The server took no more.
    refused: bool,
    /// Others that didn't come about.
    failed: usize,
}

/// A session for some work. The work's bytes count until it is dropped.
#[derive(Debug)]
pub struct Claim {
    pool: Arc<Pool>,
    channel: Arc<Channel>,
    bytes: u64,
}

impl Deref for Claim {
    type Target = Arc<Channel>;

    fn deref(&self) -> &Arc<Channel> {
        &self.channel
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.channel.claimed.fetch_sub(self.bytes, Ordering::Relaxed);
        self.pool.changed.notify_waiters();
    }
}

impl Pool {
    /// No session yet.
    pub fn new(
        ssh: Ssh,
        remote: Remote,
        (patience, idle): (Duration, Duration),
        most: Option<usize>,
        chunk: Option<u32>,
    ) -> Pool {
        Pool {
            ssh,
            no_shell: AtomicBool::new(false),
            remote,
            patience,
            idle,
            most,
            chunk,
            state: Mutex::default(),
            changed: Notify::new(),
            first: tokio::sync::Mutex::default(),
            read_len: AtomicU32::new(chunk.unwrap_or(SURE).min(SURE)),
            write_len: AtomicU32::new(chunk.unwrap_or(SURE).min(SURE)),
            begun: AtomicUsize::new(0),
            keeps_at_close: OnceLock::new(),
        }
    }

    /// Whether a file that was opened to be written is there only once it is closed, and then with what came through this opening alone:
    /// SeaweedFS's server does so. `None` as long as no new file was opened.
    pub fn keeps_at_close(&self) -> Option<bool> {
        self.keeps_at_close.get().copied()
    }

    /// Finds that out by a file that was just made.
    ///
    /// Errors: no answer.
    pub async fn learn_when_it_keeps(&self, made: &Handle) -> Result<bool, Fault> {
        if let Some(known) = self.keeps_at_close() {
            return Ok(known);
        }
        let late = match made.channel.hello.is_in_order() {
            true => false,
            false => match attrs(made.channel.ask(&Request::Fstat(&made.name))).await {
                Err(fault @ Fault::Lost(_)) => return Err(fault),
                closed => closed.is_err_and(|fault| fault.is(status::NO_SUCH_FILE)),
            },
        };
        Ok(*self.keeps_at_close.get_or_init(|| late))
    }

    /// Bytes of a request to read.
    pub fn read_len(&self) -> u32 {
        self.read_len.load(Ordering::Relaxed)
    }

    /// Bytes of a request to write.
    pub fn write_len(&self) -> u32 {
        self.write_len.load(Ordering::Relaxed)
    }

    /// Notes that the server returns at most `len` bytes per answer.
    pub fn reads_are_shorter(&self, len: u32) {
        self.read_len.fetch_min(len.max(4 << 10), Ordering::Relaxed);
    }

    /// The server's extensions; logs in if there is no session yet.
    ///
    /// Errors: as [`Pool::claim`].
    pub async fn hello(self: &Arc<Self>) -> Result<Hello> {
        Ok(self.claim(0).await?.hello.clone())
    }

    /// A session for work that moves `bytes` bytes: the one with the least to do. Opens more where that pays.
    ///
    /// Errors: login failed.
    pub async fn claim(self: &Arc<Self>, bytes: u64) -> Result<Claim> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.pick(bytes) {
                Pick::Take(claim) => return Ok(claim),
                Pick::None => self.begin_first().await?,
                Pick::Wait => changed.await,
            }
        }
    }

    fn pick(self: &Arc<Self>, bytes: u64) -> Pick {
        let mut state = self.state();
        state.channels.retain(|channel| !channel.is_dead());
        let weigh = |channel: &Arc<Channel>| {
            let load = channel.load();
            (channel.claimed.load(Ordering::Relaxed) + (load as u64) * 4096, load)
        };
        let Some((channel, (claimed, load))) =
            state.channels.iter().map(|channel| (channel.clone(), weigh(channel))).min_by_key(|(_, weight)| *weight)
        else {
            return Pick::None;
        };
        let begun = state.channels.len() + state.opening;
        let wanted = claimed >= BUSY.0 || load >= BUSY.1;
        if wanted && !state.refused && state.failed < FAILURES && begun < self.limit() {
            state.opening += 1;
            tokio::spawn(self.clone().begin_another());
        }
        if claimed >= FULL && bytes > 0 && state.opening > 0 {
            return Pick::Wait;
        }
        channel.claimed.fetch_add(bytes, Ordering::Relaxed);
        Pick::Take(Claim { pool: self.clone(), channel, bytes })
    }

    fn limit(&self) -> usize {
        let limit = self.ssh.limit();
        // Where there is one session only, nothing can be left.
        let limit = if limit > 2 { limit - SPARE } else { limit };
        self.most.map_or(limit, |most| most.min(limit)).max(1)
    }

    async fn begin_first(self: &Arc<Self>) -> Result<()> {
        let _alone = self.first.lock().await;
        if self.state().channels.iter().any(|channel| !channel.is_dead()) {
            return Ok(());
        }
        // Another store may be logged in there; where we were, the connection is lost.
        let opening = match self.begun.load(Ordering::Relaxed) {
            0 => self.ssh.any(&self.remote).await?,
            _ => self.ssh.first(&self.remote).await?,
        };
        let channel = Channel::open(&self.ssh, opening, (self.patience, self.idle)).await?;
        if self.begun.fetch_add(1, Ordering::Relaxed) == 0 && channel.hello.has("limits@openssh.com", "1") {
            let reply = channel.ask(&Request::Extended("limits@openssh.com", &[]));
            let pool = self.clone();
            tokio::spawn(async move { pool.learn(reply).await });
        }
        let mut state = self.state();
        (state.refused, state.failed) = (channel.hello.takes_one_session(), 0);
        state.channels.push(channel);
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    async fn learn(&self, reply: PendingReply) {
        let Ok(Reply::Extended(answer)) = reply.await else { return };
        let Some((read, write)) = wire::limits(answer) else { return };
        let may = |len: u64| u32::try_from(len).unwrap_or(u32::MAX).min(MOST).min(self.chunk.unwrap_or(MOST));
        for (len, limit) in [(&self.read_len, read), (&self.write_len, write)] {
            if limit > 0 {
                len.store(may(limit), Ordering::Relaxed);
            }
        }
    }

    async fn begin_another(self: Arc<Self>) {
        let opened = async {
            let opening = self.ssh.further(&self.remote).await?;
            Channel::open(&self.ssh, opening, (self.patience, self.idle)).await
        };
        let opened = opened.await;
        let mut state = self.state();
        state.opening -= 1;
        match opened {
            Ok(channel) => {
                state.channels.push(channel);
                self.begun.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(%error, "no further session");
                match error.kind() {
                    ErrorKind::Busy => state.refused = true,
                    _ => state.failed += 1,
                }
            }
        }
        if state.refused && state.opening == 0 {
            let have = state.channels.len();
            drop(state);
            self.ssh.lower(have);
        }
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Pick {
    Take(Claim),
    /// There is no session.
    None,
    /// Others are being begun.
    Wait,
}

/// An open file or directory on a session. Dropping it closes it, and ignores the server's answer.
#[derive(Debug)]
pub struct Handle {
    /// The session that knows it.
    pub channel: Arc<Channel>,
    /// The server's handle.
    pub name: bytes::Bytes,
    open: AtomicBool,
}

impl Handle {
    /// From the answer to a request that opens something.
    ///
    /// Errors: what the server said instead.
    pub async fn opened(channel: &Arc<Channel>, reply: PendingReply) -> Result<Handle, Fault> {
        match reply.await? {
            Reply::Handle(name) => Ok(Handle { channel: channel.clone(), name, open: AtomicBool::new(true) }),
            other => Err(Fault::unexpected(other)),
        }
    }

    /// Closes it.
    pub fn close(&self) -> PendingReply {
        self.is_closed();
        self.channel.ask(&Request::Close(&self.name))
    }

    /// Somebody has asked for that.
    pub fn is_closed(&self) {
        self.open.store(false, Ordering::Relaxed);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.open.load(Ordering::Relaxed) {
            drop(self.channel.ask(&Request::Close(&self.name)));
        }
    }
}

/// Why a request wasn't done.
#[derive(Debug)]
pub enum Fault {
    /// The server said no: a code of [`status`], and its words.
    Status(u32, String),
    /// There was no answer, or none to what was asked.
    Lost(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Lost(error)
    }
}

impl Fault {
    /// From an answer of another kind than was asked for.
    pub fn unexpected(reply: Reply) -> Fault {
        match reply {
            Reply::Status(status::OK, _) => {
                Fault::Lost(Error::new(ErrorKind::Invalid, "connect", "the server said that it was done, but not what"))
            }
            Reply::Status(code, words) => Fault::Status(code, words),
            _ => Fault::Lost(Error::new(ErrorKind::Invalid, "connect", "the server answered another question")),
        }
    }

    /// True for this status code of the server.
    pub fn is(&self, code: u32) -> bool {
        matches!(self, Fault::Status(own, _) if *own == code)
    }
}

/// Waits for a request to be done.
///
/// Errors: it wasn't.
pub async fn done(reply: PendingReply) -> Result<(), Fault> {
    is_done(reply.await?)
}

/// Whether an answer says that a request was done.
///
/// Errors: it doesn't.
pub fn is_done(reply: Reply) -> Result<(), Fault> {
    match reply {
        Reply::Status(status::OK, _) => Ok(()),
        other => Err(Fault::unexpected(other)),
    }
}

/// Waits for facts.
///
/// Errors: what the server said instead.
pub async fn attrs(reply: PendingReply) -> Result<wire::Attrs, Fault> {
    match reply.await? {
        Reply::Attrs(attrs) => Ok(attrs),
        other => Err(Fault::unexpected(other)),
    }
}

/// Waits for the only name of an answer.
///
/// Errors: what the server said instead.
pub async fn name(reply: PendingReply) -> Result<bytes::Bytes, Fault> {
    match reply.await? {
        Reply::Names(names) if names.len() == 1 => {
            Ok(names.into_iter().map(|name| name.name).next().unwrap_or_default())
        }
        other => Err(Fault::unexpected(other)),
    }
}
