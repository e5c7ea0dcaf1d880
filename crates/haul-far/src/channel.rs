//! The connection to a far end: one pipe, or several where one can't carry what is under way. What an ssh session moves in a round trip
//! is bounded, so a long line takes several. All lead to one far end, which knows the same folders and writes on each.

use crate::{
    dial::Dial,
    message::{Answer, FolderId, Request},
    pack::Packing,
    wire::{Share, Wire},
};
use haul_core::Result;
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Bytes that a session of OpenSSH carries in a round trip: its window, which is fixed.
const WINDOW: u64 = 2 << 20;

/// Bytes a second that several sessions of one login carry together at most: one process encrypts them all.
const TOGETHER: u64 = 400_000_000;

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
    growth: Option<Growth>,
}

struct State {
    wires: Vec<Arc<Wire>>,
    opening: usize,
}

/// How further pipes are begun.
pub struct Growth {
    /// The way there.
    pub dial: Arc<dyn Dial>,
    /// What the far end has others name who join it.
    pub token: String,
    /// What both ends compress.
    pub packing: Packing,
    /// A further pipe has so long to be greeted.
    pub patience: Duration,
    /// And to say something, later.
    pub idle: Duration,
    /// One didn't come about: no other is tried. Shared with later connections to the same host.
    pub refused: Arc<AtomicBool>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.state().wires.len())
    }
}

impl Channel {
    /// A connection of one pipe; of more later, where `growth` says how.
    pub fn new(first: Arc<Wire>, growth: Option<Growth>) -> Arc<Channel> {
        let state = Mutex::new(State { wires: vec![first.clone()], opening: 0 });
        Arc::new(Channel { first, state, changed: Notify::new(), trip: AtomicU64::new(u64::MAX), growth })
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room on a pipe for work that moves so many bytes: on the one with the least to do. Waits while all are full and others are
    /// being begun.
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

    /// The same at once, whatever it has to do.
    fn share(self: &Arc<Self>, bytes: u64) -> Share {
        self.pick(bytes, false).unwrap_or_else(|| self.first.share(bytes))
    }

    /// The pipe with the least to do; begins others where that pays. `None` where `waits` and it is better to wait for those.
    fn pick(self: &Arc<Self>, bytes: u64, waits: bool) -> Option<Share> {
        let mut state = self.state();
        state.wires.retain(|wire| wire.is_open());
        let Some(least) = state.wires.iter().min_by_key(|wire| wire.load()).cloned() else {
            // The one that says why there is none.
            return Some(self.first.share(bytes));
        };
        let moving: u64 = state.wires.iter().map(|wire| wire.load()).sum::<u64>() + bytes;
        if let Some(growth) = &self.growth
            && !growth.refused.load(Ordering::Relaxed)
        {
            let trip = Duration::from_micros(self.trip.load(Ordering::Relaxed));
            let wanted = wanted(moving, trip, growth.dial.most());
            for _ in state.wires.len() + state.opening..wanted {
                state.opening += 1;
                tokio::spawn(self.clone().begin_another());
            }
        }
        (!waits || least.load() < FULL || state.opening == 0).then(|| least.share(bytes))
    }

    async fn begin_another(self: Arc<Self>) {
        let Some(growth) = &self.growth else { return };
        let Growth { dial, token, packing, patience, idle, refused } = growth;
        let greeted = async { dial.further().await?.greet(*packing, *patience, Some(token.clone())).await };
        let greeted = greeted.await;
        let mut state = self.state();
        state.opening -= 1;
        match greeted {
            Ok((pipe, _)) => state.wires.push(Wire::new(pipe, *idle, *packing)),
            Err(error) => {
                tracing::debug!(%error, "no further session for haul there");
                refused.store(true, Ordering::Relaxed);
            }
        }
        tracing::debug!(sessions = state.wires.len(), "to haul there");
        drop(state);
        self.changed.notify_waiters();
    }

    /// Sends a request.
    ///
    /// Errors: the connection is lost; the request is too large.
    pub fn ask(self: &Arc<Self>, folder: FolderId, request: &Request) -> Result<crate::wire::Asked> {
        self.share(request.weight()).ask(folder, request)
    }

    /// Sends a request that has one answer.
    ///
    /// Errors: the far end's, and those of [`Channel::ask`].
    pub async fn answer(self: &Arc<Self>, folder: FolderId, request: &Request) -> Result<Answer> {
        self.ask(folder, request)?.answer().await
    }
}

/// Pipes for so many bytes under way, on a line whose round trip takes `trip`: each has a window's worth, and all together no more than
/// a login carries.
fn wanted(moving: u64, trip: Duration, most: usize) -> usize {
    let in_a_trip = u64::try_from(trip.as_micros()).unwrap_or(u64::MAX).saturating_mul(TOGETHER / 1_000_000);
    // Before anything is known of the line.
    let useful = if trip.as_micros() >= u128::from(u64::MAX) { 1 } else { in_a_trip.div_ceil(WINDOW) };
    usize::try_from(useful.min(moving.div_ceil(WINDOW))).unwrap_or(usize::MAX).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_with_much_under_way_takes_several_pipes() {
        const MS: Duration = Duration::from_millis(1);
        let much = 64 << 20;
        assert_eq!(wanted(much, MS, 8), 1);
        assert_eq!(wanted(much, 10 * MS, 8), 2);
        assert_eq!(wanted(much, 100 * MS, 8), 8);
        assert_eq!(wanted(much, 100 * MS, 0), 1);
        assert_eq!(wanted(3 << 20, 100 * MS, 8), 2, "little is under way");
        assert_eq!(wanted(much, Duration::from_micros(u64::MAX), 8), 1, "nothing is known");
    }
}
