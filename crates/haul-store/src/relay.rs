//! Bytes of one store that another store's request sends on as they come: no part of a file is ever whole in memory. They are asked
//! for anew whenever they are sent again, and hashed as they pass.

use crate::{Body, Store, blocks::ended_early, hashing};
use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use haul_core::{Algo, Entry, Error, ErrorKind, Hasher, Hashes, Result};
use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A stretch of a key; clones are of the same one.
#[derive(Clone)]
pub struct Relay(Arc<Shared>);

struct Shared {
    store: Arc<dyn Store>,
    entry: Entry,
    range: Range<u64>,
    algos: Vec<Algo>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// An answer whose bytes nobody has taken yet.
    opened: Option<BoxStream<'static, Result<Bytes>>>,
    /// Hashes of all bytes, once they have passed.
    hashes: Option<Hashes>,
    /// They could not be read.
    lost: bool,
    /// Why, until it is asked for.
    error: Option<Error>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relay({} {:?} of {:?})", self.0.entry.key, self.0.range, self.0.store)
    }
}

impl Relay {
    /// Bytes `range` of the version of `entry`, hashed by `algos` as they pass.
    pub fn new(store: Arc<dyn Store>, entry: Entry, range: Range<u64>, algos: Vec<Algo>) -> Self {
        Relay(Arc::new(Shared { store, entry, range, algos, state: Mutex::default() }))
    }

    /// Number of bytes.
    pub fn size(&self) -> u64 {
        self.0.range.end - self.0.range.start
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the bytes. Who sends them does this before it takes a place among uploads: whoever waits for a place to read then
    /// holds none that another needs to go on.
    ///
    /// Errors: those of [`Store::read`].
    pub async fn open(&self) -> Result<()> {
        let pieces = self.ask().await;
        *self.state() = State { lost: pieces.is_err(), ..State::default() };
        self.state().opened = Some(pieces?);
        Ok(())
    }

    async fn ask(&self) -> Result<BoxStream<'static, Result<Bytes>>> {
        let Shared { store, entry, range, .. } = &*self.0;
        match store.read(&entry.key, entry.version.as_ref(), Some(range.clone())).await?.body {
            Body::Stream(pieces) => Ok(pieces),
            Body::File(..) => Err(Error::new(ErrorKind::Unsupported, "read", "a range came as a file")),
        }
    }

    /// The bytes, hashed by `more` too; those that were asked for already, else asked for now.
    pub fn pieces(&self, more: &[Algo]) -> BoxStream<'static, Result<Bytes>> {
        let mut algos = self.0.algos.clone();
        algos.extend(more.iter().filter(|algo| !self.0.algos.contains(algo)));
        let passing = Passing { relay: self.clone(), pieces: None, hasher: Hasher::new(&algos), got: 0 };
        stream::unfold(Some(passing), |passing| async move {
            let mut passing = passing?;
            match passing.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(passing))),
                Ok(None) => None,
                Err(error) => {
                    // A body's error is only a text to the connection.
                    let shown = Error::new(error.kind(), "read", error.message());
                    let mut state = passing.relay.state();
                    (state.lost, state.error) = (true, Some(error));
                    drop(state);
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

/// Bytes on their way.
struct Passing {
    relay: Relay,
    pieces: Option<BoxStream<'static, Result<Bytes>>>,
    hasher: Hasher,
    got: u64,
}

impl Passing {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let pieces = match &mut self.pieces {
            Some(pieces) => pieces,
            none => {
                let opened = self.relay.state().opened.take();
                none.insert(match opened {
                    Some(opened) => opened,
                    None => self.relay.ask().await?,
                })
            }
        };
        let want = self.relay.size();
        let Some(piece) = pieces.next().await.transpose()? else {
            return if self.got == want { Ok(None) } else { Err(ended_early(self.got, want)) };
        };
        self.got += piece.len() as u64;
        if self.got > want {
            return Err(Error::new(ErrorKind::Corrupt, "read", "more bytes came than were asked for"));
        }
        let hasher = std::mem::replace(&mut self.hasher, Hasher::new(&[]));
        self.hasher = hashing::piece(hasher, &piece).await?;
        if self.got == want {
            // Who sends it knows how long it is, and may not ask for its end.
            let hasher = std::mem::replace(&mut self.hasher, Hasher::new(&[]));
            self.relay.state().hashes = Some(hasher.finish());
        }
        Ok(Some(piece))
    }
}
