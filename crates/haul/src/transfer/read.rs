//! The reading end of a transfer: pieces of one source file in order, read one after another or several at once.

use crate::budget::Budget;
use futures::StreamExt;
use haul_core::{Entry, Error, Result, plan::Route};
use haul_store::{Body, Payload, Read, Store};
use std::{ops::Range, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

/// An opened source.
pub struct Source {
    /// Its own facts; the size is the one to expect.
    pub facts: Entry,
    /// How to get at the bytes.
    pub bytes: Bytes,
}

/// How to get at a source's bytes.
pub enum Bytes {
    /// A file: any range at any time.
    File(Arc<std::fs::File>),
    /// Ranges, each a request of its own.
    Ranges {
        /// The store.
        store: Arc<dyn Store>,
        /// The key and the version that was opened.
        entry: Entry,
    },
    /// One stream from the start.
    Stream {
        /// Its pieces.
        stream: futures::stream::BoxStream<'static, Result<bytes::Bytes>>,
        /// Memory for two blocks, or for all of it if that is less; taken before the request was sent, since a stream
        /// that waits for memory would keep its connection from those that have memory and wait for a connection.
        memory: OwnedSemaphorePermit,
    },
}

impl Source {
    /// Opens `entry` for a transfer by `route`. By parts, nothing is read yet where the store serves ranges.
    /// Else memory is taken first, for two blocks of `block` bytes.
    pub async fn open(
        store: &Arc<dyn Store>,
        entry: &Entry,
        route: Route,
        budget: &Budget,
        block: u64,
    ) -> Result<Source> {
        if matches!(route, Route::Parts { .. }) && !store.caps().files {
            // A listing may not have all facts to send along (times, hashes, metadata); one request gets them.
            let known =
                entry.mtime.is_some() && !entry.hashes.is_empty() && (entry.meta.is_some() || !store.caps().meta);
            let facts = if known { entry.clone() } else { store.stat(&entry.key).await? };
            let version = facts.version.clone().or(entry.version.clone());
            // Separate reads without a version would mix two files where it is replaced meanwhile: that is read in one go.
            if version.is_some() {
                let of = Entry { version, ..facts.clone() };
                return Ok(Source { facts, bytes: Bytes::Ranges { store: store.clone(), entry: of } });
            }
        }
        let room = |size: u64| budget.memory((2 * block).min(size));
        let memory = if store.caps().files { None } else { Some(room(entry.size).await) };
        let Read { entry: facts, body } = store.read(&entry.key, entry.version.as_ref(), None).await?;
        let bytes = match body {
            Body::File(file, _) => Bytes::File(file),
            Body::Stream(stream) => {
                let memory = match memory {
                    Some(memory) => memory,
                    None => room(facts.size).await,
                };
                Bytes::Stream { stream, memory }
            }
        };
        Ok(Source { facts, bytes })
    }
}

/// Reads a range with a request of its own.
pub async fn store_range(store: Arc<dyn Store>, entry: Entry, range: Range<u64>) -> Result<Payload> {
    let want = range.end - range.start;
    let read = store.read(&entry.key, entry.version.as_ref(), Some(range)).await?;
    let Body::Stream(mut stream) = read.body else {
        return Err(Error::new(haul_core::ErrorKind::Unsupported, "read", "a range came as a file"));
    };
    let (mut pieces, mut got) = (Vec::new(), 0);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        got += piece.len() as u64;
        pieces.push(piece);
    }
    if got != want {
        return Err(haul_store::blocks::ended_early(got, want));
    }
    Ok(Payload::new(pieces))
}
