//! The connection to a far end: one pipe, or several where one can't carry the load. The bytes that an ssh session moves in a round trip
//! are bounded, so a long line takes several; where the user asks for it, content uses pipes over TCP instead. All lead to one far
//! end, which knows the same folders and writes on each.

use crate::{
    compression::Packing,
    dial::{Call, Dial, Pipe},
    listen_address::{Listening, Ports},
    message::{Answer, Folder, Request},
    tcp,
    wire::{Named, Share, Wire, unexpected},
};
use haul_core::{Error, ErrorKind, Result};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, OnceCell};

/// Capacity of pipes of a kind.
struct Kind {
    /// Bytes that one pipe carries per round trip.
    window: u64,
    /// Bytes a second that all carry together at most: more pipes than that takes are no use.
    together: u64,
}

/// Sessions of OpenSSH: their window is fixed, and one process encrypts them all.
const SESSIONS: Kind = Kind { window: 2 << 20, together: 400_000_000 };

/// Connections over TCP: what Linux lets a connection have on its way without being told otherwise (`net.ipv4.tcp_wmem`).
const CONNECTIONS: Kind = Kind { window: 4 << 20, together: 1_500_000_000 };

/// Connections over TCP at most.
const MOST_CONNECTIONS: usize = 4;

/// A request with its answer that moves more is content.
const QUESTION: u64 = 1 << 10;

/// A pipe with this many bytes claimed takes no more while another is being begun: two parts, of which one moves while the other is
/// read.
const FULL: u64 = 12 << 20;

/// A pipe that is being begun is waited for so long.
const OPENS: Duration = Duration::from_secs(2);

/// A connection.
pub struct Channel {
    /// The far end lives as long as this one.
    first: Arc<Wire>,
    state: Mutex<State>,
    /// A further pipe has come, or won't.
    changed: Notify,
    /// Microseconds that a question took, the least of all.
    trip: AtomicU64,
    /// The far end opens folders along with requests.
    opens_along: bool,
    /// The last number that was given to a folder.
    last: AtomicU64,
    further: ExtraPipeSettings,
    sessions: Option<Sessions>,
    tcp: Option<Tcp>,
}

struct State {
    /// Of ssh's, or of the command's that leads there.
    sessions: Pipes,
    connections: Pipes,
}

/// Pipes of one kind.
struct Pipes {
    open: Vec<Arc<Wire>>,
    opening: usize,
    most: usize,
}

/// Settings of further pipes.
pub struct ExtraPipeSettings {
    /// The way there.
    pub dial: Arc<dyn Dial>,
    /// Compression, the same at both ends.
    pub packing: Packing,
    /// A further pipe has so long to be greeted.
    pub patience: Duration,
    /// And to say something, later.
    pub idle: Duration,
}

/// How further sessions are begun.
pub struct Sessions {
    /// Token that the far end requires of pipes that join it.
    pub token: String,
    /// One didn't come about: no other is tried. Shared with later connections to the same host.
    pub refused: Arc<AtomicBool>,
}

/// How connections over TCP are begun.
pub struct Tcp {
    ports: Ports,
    /// The far end says that it listens.
    listens: bool,
    /// None came about, and that was said: no other is tried. Shared with later connections to the same host.
    barred: Arc<AtomicBool>,
    listening: OnceCell<Listening>,
    /// By what name or address it was reached.
    host: OnceCell<String>,
}

impl Tcp {
    /// The far end listens on one of these ports, if it says that it can.
    pub fn new(ports: Ports, listens: bool, barred: Arc<AtomicBool>) -> Tcp {
        Tcp { ports, listens, barred, listening: OnceCell::new(), host: OnceCell::new() }
    }
}

impl Pipes {
    fn new(open: Vec<Arc<Wire>>, most: usize) -> Pipes {
        Pipes { open, opening: 0, most }
    }

    fn least(&self) -> Option<&Arc<Wire>> {
        self.open.iter().min_by_key(|wire| wire.load())
    }

    /// Counts those that are to be begun for `bytes` more under way, and says how many they are.
    fn lacking(&mut self, bytes: u64, trip: Duration, kind: &Kind) -> usize {
        let moving = self.open.iter().map(|wire| wire.load()).sum::<u64>() + bytes;
        let lacking = wanted(moving, trip, self.most, kind).saturating_sub(self.open.len() + self.opening);
        self.opening += lacking;
        lacking
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "Channel({}, {} over TCP)", state.sessions.open.len(), state.connections.open.len())
    }
}

impl Channel {
    /// A connection of one pipe; of more later, of the kinds that there are.
    pub fn new(
        first: Arc<Wire>,
        opens_along: bool,
        further: ExtraPipeSettings,
        sessions: Option<Sessions>,
        tcp: Option<Tcp>,
    ) -> Arc<Channel> {
        let own = Pipes::new(vec![first.clone()], further.dial.most());
        let state = Mutex::new(State { sessions: own, connections: Pipes::new(Vec::new(), MOST_CONNECTIONS) });
        let (changed, trip, last) = (Notify::new(), AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let channel = Arc::new(Channel { first, state, changed, trip, opens_along, last, further, sessions, tcp });
        // While the first questions are answered.
        if !channel.is_barred() {
            channel.state().connections.opening = 1;
            tokio::spawn(channel.clone().connect());
        }
        channel
    }

    /// True while requests can be sent.
    pub fn is_open(&self) -> bool {
        self.first.is_open()
    }

    /// A question that costs the far end nothing was answered after this long.
    pub fn took(&self, trip: Duration) {
        let micros = u64::try_from(trip.as_micros()).unwrap_or(u64::MAX);
        self.trip.fetch_min(micros, Ordering::Relaxed);
    }

    /// A folder that the far end opens with the first request for what is in it; `None` where it must be asked to, as this one is
    /// older.
    pub fn name(&self, folder: &Folder) -> Option<Named> {
        let number = || self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.opens_along.then(|| Named::along(number(), folder.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share of a pipe for work that moves `bytes` bytes: of the one with the least to do. Waits while all are full and more are
    /// being opened.
    pub async fn room(self: &Arc<Self>, bytes: u64) -> Share {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.pick(bytes, true) {
                Some(share) => return share,
                None if tokio::time::timeout(OPENS, changed).await.is_ok() => {}
                None => return self.share(bytes),
            }
        }
    }

    /// As [`Channel::room`], at once, whatever the pipe has to do.
    fn share(self: &Arc<Self>, bytes: u64) -> Share {
        self.pick(bytes, false).unwrap_or_else(|| self.first.share(bytes))
    }

    /// The pipe with the least to do; begins others where that pays. `None` where `waits` and it is better to wait for those.
    fn pick(self: &Arc<Self>, bytes: u64, waits: bool) -> Option<Share> {
        let trip = Duration::from_micros(self.trip.load(Ordering::Relaxed));
        let mut state = self.state();
        let State { sessions, connections } = &mut *state;
        sessions.open.retain(|wire| wire.is_open());
        connections.open.retain(|wire| wire.is_open());
        if !self.is_open() {
            // It says why.
            return Some(self.first.share(bytes));
        }
        let by_tcp = !self.is_barred();
        if by_tcp {
            for _ in 0..connections.lacking(bytes, trip, &CONNECTIONS) {
                tokio::spawn(self.clone().connect());
            }
        } else if self.sessions.as_ref().is_some_and(|sessions| !sessions.refused.load(Ordering::Relaxed)) {
            sessions.most = self.further.dial.most();
            for _ in 0..sessions.lacking(bytes, trip, &SESSIONS) {
                tokio::spawn(self.clone().begin_session());
            }
        }
        let opening = if by_tcp { connections.opening } else { sessions.opening };
        let least = match connections.least().filter(|_| by_tcp) {
            // A question doesn't wait behind what the system has taken of the content.
            Some(connection) if bytes <= QUESTION => {
                sessions.least().filter(|s| s.load() < connection.load()).or(Some(connection))
            }
            Some(connection) => Some(connection),
            // Until there is one.
            None => sessions.least(),
        };
        let least = least.unwrap_or(&self.first);
        (!waits || least.load() < FULL || opening == 0).then(|| least.share(bytes))
    }

    /// True where nothing may use TCP.
    fn is_barred(&self) -> bool {
        self.tcp.as_ref().is_none_or(|tcp| tcp.barred.load(Ordering::Relaxed))
    }

    async fn begin_session(self: Arc<Self>) {
        let Some(Sessions { token, refused }) = &self.sessions else { return };
        let ExtraPipeSettings { dial, packing, patience, idle } = &self.further;
        let greeted = async { dial.further().await?.greet(*packing, *patience, Some(token.clone())).await };
        let greeted = greeted.await;
        let mut state = self.state();
        state.sessions.opening -= 1;
        match greeted {
            Ok((pipe, about)) => {
                let packing = about.agreed_further(*packing);
                state.sessions.open.push(Wire::new(pipe, *idle, packing, dial.shown()));
            }
            Err(error) => {
                tracing::debug!(%error, "no further session for haul there");
                refused.store(true, Ordering::Relaxed);
            }
        }
        tracing::debug!(sessions = state.sessions.open.len(), "to haul there");
        drop(state);
        self.changed.notify_waiters();
    }

    async fn connect(self: Arc<Self>) {
        let Some(tcp) = &self.tcp else { return };
        let connected = self.connected(tcp).await;
        let mut state = self.state();
        let Pipes { open, opening, most } = &mut state.connections;
        *opening -= 1;
        match connected {
            Ok(pipe) => {
                let ExtraPipeSettings { dial, packing, idle, .. } = &self.further;
                open.push(Wire::new(pipe, *idle, *packing, dial.shown()));
            }
            // The existing pipes suffice.
            Err(error) if !open.is_empty() => {
                tracing::debug!(%error, "no further connection to haul there");
                *most = open.len();
            }
            Err(error) => {
                if !tcp.barred.swap(true, Ordering::Relaxed) {
                    let way = self.further.dial.shown();
                    tracing::warn!("{way}: content goes by ssh and not by TCP: {}", error.message());
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A connection over TCP, to the port that the far end opens when it is first asked.
    ///
    /// Errors: none can be had.
    async fn connected(&self, tcp: &Tcp) -> Result<Pipe> {
        let (listening, named) = tokio::join!(tcp.listening.get_or_try_init(|| self.listening(tcp)), async {
            match tcp.host.get() {
                Some(host) => Some(host.clone()),
                None => self.further.dial.host().await,
            }
        });
        let listening = listening?;
        let address = listening.address.to_string();
        let host = named.unwrap_or_else(|| address.clone());
        let is_last = tcp.host.get().is_some() || host == address;
        match self.reached(tcp, listening, &host).await {
            // The name that the user gave says more than an address that only the host may have.
            Err(error) if !is_last => self.reached(tcp, listening, &address).await.map_err(|_| error),
            reached => reached,
        }
    }

    async fn reached(&self, tcp: &Tcp, listening: &Listening, host: &str) -> Result<Pipe> {
        let ExtraPipeSettings { dial, packing, patience, .. } = &self.further;
        let call = Call::Pipes(tcp::connect(host, listening).await?);
        let (pipe, _) = call.greet(*packing, (*patience).min(tcp::HANDSHAKE), None).await?;
        if tcp.host.set(host.to_owned()).is_ok() {
            tracing::info!("{}: content goes by TCP, to port {} of {host}", dial.shown(), listening.port);
        }
        Ok(pipe)
    }

    async fn listening(&self, tcp: &Tcp) -> Result<Listening> {
        if !tcp.listens {
            let why = "haul there opens no port: it is older, is confined and was started without --listen, or doesn't know \
                       at which address it was reached";
            return Err(Error::new(ErrorKind::Unsupported, "connect", why));
        }
        match self.first.share(QUESTION).ask(&0.into(), &Request::Listen(tcp.ports))?.answer().await? {
            Answer::Listens(listening) if tcp.ports.allow(listening.port) => Ok(listening),
            Answer::Listens(listening) => {
                let why = format!("haul there names port {}, which it was not asked for", listening.port);
                Err(Error::new(ErrorKind::Denied, "connect", why))
            }
            _ => Err(unexpected()),
        }
    }

    /// Sends a request.
    ///
    /// Errors: the connection is lost; the request is too large.
    pub fn ask(self: &Arc<Self>, folder: &Named, request: &Request) -> Result<crate::wire::Exchange> {
        self.share(request.weight()).ask(folder, request)
    }

    /// Sends a request that has one answer.
    ///
    /// Errors: the far end's, and those of [`Channel::ask`].
    pub async fn answer(self: &Arc<Self>, folder: &Named, request: &Request) -> Result<Answer> {
        self.ask(folder, request)?.answer().await
    }
}

/// Number of pipes of a kind for `moving` bytes under way, on a line with round trip time `trip`: each has a window's worth, and all
/// together no more than they can carry.
fn wanted(moving: u64, trip: Duration, most: usize, kind: &Kind) -> usize {
    let in_a_trip = u64::try_from(trip.as_micros()).unwrap_or(u64::MAX).saturating_mul(kind.together / 1_000_000);
    // Before anything is known of the line.
    let useful = if trip.as_micros() >= u128::from(u64::MAX) { 1 } else { in_a_trip.div_ceil(kind.window) };
    usize::try_from(useful.min(moving.div_ceil(kind.window))).unwrap_or(usize::MAX).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_with_much_under_way_takes_several_pipes() {
        const MS: Duration = Duration::from_millis(1);
        let much = 64 << 20;
        let wanted = |moving, trip, most| super::wanted(moving, trip, most, &SESSIONS);
        assert_eq!(wanted(much, MS, 8), 1);
        assert_eq!(wanted(much, 10 * MS, 8), 2);
        assert_eq!(wanted(much, 100 * MS, 8), 8);
        assert_eq!(wanted(much, 100 * MS, 0), 1);
        assert_eq!(wanted(3 << 20, 100 * MS, 8), 2, "little is under way");
        assert_eq!(wanted(much, Duration::from_micros(u64::MAX), 8), 1, "nothing is known");
        let wanted = |moving, trip| super::wanted(moving, trip, MOST_CONNECTIONS, &CONNECTIONS);
        assert_eq!([1, 5, 100].map(|ms| wanted(much, ms * MS)), [1, 2, 4]);
        assert_eq!(wanted(3 << 20, 100 * MS), 1, "little is under way");
    }
}
