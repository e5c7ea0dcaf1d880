//! Bytes of one store that another store's request sends on as they come, or that are made as they are sent: no part of a file is ever
//! whole in memory. They are asked for anew whenever they are sent again, and hashed as they pass.

use crate::{Ahead, Body, Payload, Store, blocks::ended_early, hashing};
use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use haul_core::{Algo, Entry, Error, ErrorKind, Hasher, Hashes, Result};
use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const MORE: &str = "more bytes came than were asked for";

/// A stretch of a key; clones are of the same one.
#[derive(Clone)]
pub struct Relay(Arc<Shared>);

/// Where the bytes are.
enum Origin {
    Store {
        store: Arc<dyn Store>,
        entry: Entry,
        range: Range<u64>,
    },
    /// A file, or what is made.
    Here(Payload),
}

struct Shared {
    origin: Origin,
    algos: Vec<Algo>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// An answer whose bytes nobody has taken yet, and its leave to wait.
    opened: Option<(BoxStream<'static, Result<Bytes>>, Option<Ahead>)>,
    /// How often they were sent so far: what is left of an earlier time, on a connection that was given up, changes nothing here.
    time: u64,
    /// Hashes of all bytes, once they have passed.
    hashes: Option<Hashes>,
    /// They could not be read.
    lost: bool,
    /// Why, until it is asked for.
    error: Option<Error>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.origin {
            Origin::Store { store, entry, range } => write!(f, "Relay({} {range:?} of {store:?})", entry.key),
            Origin::Here(payload) => write!(f, "Relay({payload:?})"),
        }
    }
}

impl Relay {
    /// Bytes `range` of the version of `entry`, hashed by `algos` as they pass.
    pub fn new(store: Arc<dyn Store>, entry: Entry, range: Range<u64>, algos: Vec<Algo>) -> Self {
        Relay::of(Origin::Store { store, entry, range }, algos)
    }

    /// All bytes of a payload, likewise.
    pub fn of_payload(payload: Payload, algos: Vec<Algo>) -> Self {
        Relay::of(Origin::Here(payload), algos)
    }

    fn of(origin: Origin, algos: Vec<Algo>) -> Self {
        Relay(Arc::new(Shared { origin, algos, state: Mutex::default() }))
    }

    /// Number of bytes.
    pub fn size(&self) -> u64 {
        match &self.0.origin {
            Origin::Store { range, .. } => range.end - range.start,
            Origin::Here(payload) => payload.len(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the bytes before there is a place among uploads for them, so that a place never waits for an answer. Only where
    /// that takes no place from bytes that are being sent on: those may have to be asked for again, when their connection breaks,
    /// and keep their place among uploads until they have come. Else they are asked for as they are sent.
    ///
    /// Errors: those of [`Store::read`].
    pub async fn open(&self) -> Result<()> {
        let Origin::Store { store, .. } = &self.0.origin else { return Ok(()) };
        let lanes = store.lanes();
        let leave = lanes.and_then(|lanes| lanes.ahead());
        let opened = match (lanes, leave) {
            (Some(_), None) => None,
            (_, leave) => match self.ask().await {
                Ok(pieces) => Some((pieces, leave)),
                Err(error) => {
                    self.state().lost = true;
                    return Err(error);
                }
            },
        };
        self.state().opened = opened;
        Ok(())
    }

    async fn ask(&self) -> Result<BoxStream<'static, Result<Bytes>>> {
        let (store, entry, range) = match &self.0.origin {
            Origin::Store { store, entry, range } => (store, entry, range),
            Origin::Here(payload) => return Ok(blocks(payload.clone())),
        };
        match store.read(&entry.key, entry.version.as_ref(), Some(range.clone())).await?.body {
            Body::Stream(pieces) => Ok(pieces),
            Body::File(..) => Err(Error::new(ErrorKind::Unsupported, "read", "a range came as a file")),
        }
    }

    /// The bytes, hashed by `more` too; those that were asked for already, else asked for now.
    pub fn pieces(&self, more: &[Algo]) -> BoxStream<'static, Result<Bytes>> {
        let mut algos = self.0.algos.clone();
        algos.extend(more.iter().filter(|algo| !self.0.algos.contains(algo)));
        let time = {
            let mut state = self.state();
            (state.hashes, state.lost, state.error) = (None, false, None);
            state.time += 1;
            state.time
        };
        let passing = Passing { relay: self.clone(), time, pieces: None, hasher: Hasher::new(&algos), got: 0 };
        stream::unfold(Some(passing), |passing| async move {
            let mut passing = passing?;
            match passing.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(passing))),
                Ok(None) => None,
                Err(error) => {
                    // A body's error is only a text to the connection.
                    let shown = Error::new(error.kind(), "read", error.message());
                    passing.note(|state| (state.lost, state.error) = (true, Some(error)));
                    Some((Err(shown), None))
                }
            }
        })
        .boxed()
    }

    /// Hashes of all bytes, if they passed to the end when they were sent last.
    pub fn hashes(&self) -> Option<Hashes> {
        self.state().hashes.clone()
    }

    /// True when they could not be read when they were sent last: nothing that the other end can help.
    pub fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// Why they could not be read, once.
    pub fn error(&self) -> Option<Error> {
        self.state().error.take()
    }
}

/// The bytes of a payload, each block asked for when the one before was taken.
fn blocks(payload: Payload) -> BoxStream<'static, Result<Bytes>> {
    if let Some(pieces) = payload.pieces() {
        let pieces = pieces.to_vec();
        return stream::iter(pieces.into_iter().map(Ok)).boxed();
    }
    stream::try_unfold((payload, 0), |(payload, at)| async move {
        let Some(block) = payload.read_at(at) else { return Ok(None) };
        let block = block.await?;
        let next = at + block.len() as u64;
        Ok(Some((block, (payload, next))))
    })
    .boxed()
}

/// Bytes on their way.
struct Passing {
    relay: Relay,
    /// Of [`State::time`].
    time: u64,
    pieces: Option<BoxStream<'static, Result<Bytes>>>,
    hasher: Hasher,
    got: u64,
}

impl Passing {
    /// Says how it went, unless they are being sent anew.
    fn note(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.relay.state();
        if state.time == self.time {
            change(&mut state);
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let pieces = match &mut self.pieces {
            Some(pieces) => pieces,
            none => {
                let opened = self.relay.state().opened.take();
                none.insert(match opened {
                    Some((opened, _)) => opened,
                    None => self.relay.ask().await?,
                })
            }
        };
        let want = self.relay.size();
        if self.got == want {
            // Their end was seen with the last of them.
            return Ok(None);
        }
        let Some(piece) = pieces.next().await.transpose()? else {
            return Err(ended_early(self.got, want));
        };
        self.got += piece.len() as u64;
        if self.got > want {
            return Err(Error::new(ErrorKind::Corrupt, "read", MORE));
        }
        let hasher = std::mem::replace(&mut self.hasher, Hasher::new(&[]));
        self.hasher = hashing::piece(hasher, &piece).await?;
        if self.got == want {
            // Who sends it knows how long it is, and may not ask for its end; without that the request counts as given up.
            if pieces.next().await.transpose()?.is_some_and(|more| !more.is_empty()) {
                return Err(Error::new(ErrorKind::Corrupt, "read", MORE));
            }
            let hasher = std::mem::replace(&mut self.hasher, Hasher::new(&[]));
            self.note(|state| state.hashes = Some(hasher.finish()));
        }
        Ok(Some(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::Held;

    #[tokio::test]
    async fn what_is_left_of_an_earlier_time_changes_nothing() {
        let held = Held::new(b"too short");
        let entry = held.entry();
        let relay = Relay::new(Arc::new(held), entry, 0..100, vec![Algo::Crc64Nvme]);
        let (earlier, later) = (relay.pieces(&[]), relay.pieces(&[]));
        assert!(earlier.collect::<Vec<_>>().await.last().unwrap().is_err());
        assert!(!relay.is_lost() && relay.error().is_none());
        assert!(later.collect::<Vec<_>>().await.last().unwrap().is_err());
        assert!(relay.is_lost());
        assert_eq!(relay.error().unwrap().message(), "it ended after 9 of 100 bytes");
        drop(relay.pieces(&[]));
        assert!(!relay.is_lost());
    }
}
