//! Large files on their way: noted in the job's journal, resumed when an earlier run or attempt left them half sent,
//! kept for the next one or removed when a transfer fails.

use super::{FileTransfer, Mover};
use crate::io::{ABORT_WITHIN, abort};
use crate::journal::{Journal, StartedWrite, UnfinishedWrite, WriteNumber};
use futures::future::BoxFuture;
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Result,
    event::{Event, Sink},
    plan::Route,
};
use haul_store::{LeftCopy, LogCopy, Part, SentPart, Upload, WriteSpec, offered};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

/// A write that a file's chunks go to.
pub struct Target {
    /// The write.
    pub upload: Box<dyn Upload>,
    /// Bytes of a chunk.
    pub block: u64,
    /// The store says how long they are: large ones can't be made smaller.
    pub dictated: bool,
    /// Chunks that are proved to be there already, by index.
    pub known: BTreeMap<u64, SentPart>,
    /// Where it is noted, if it is.
    pub track: Option<Track>,
    /// Only these chunks are to be sent: others send the rest.
    pub only: Option<Range<u64>>,
}

impl Target {
    /// One that isn't noted, and in which nothing is yet.
    pub fn new(upload: Box<dyn Upload>, block: u64) -> Target {
        Target { upload, block, dictated: false, known: BTreeMap::new(), track: None, only: None }
    }

    /// The chunks of a file of `size` bytes that are to go here, there or not.
    pub fn chunks(&self, size: u64) -> Range<u64> {
        let all = size.div_ceil(self.block);
        self.only.clone().map_or(0..all, |only| only.start.min(all)..only.end.min(all))
    }
}

/// A write's place in the journal.
pub struct Track {
    journal: Journal,
    write: WriteNumber,
}

impl Track {
    /// A chunk has arrived. `hashes` are its own and hold its CRC-64.
    pub fn sent(&self, part: Part, offset: u64, hashes: &Hashes) {
        if let Some(crc64) = hashes.crc64() {
            self.journal.part(self.write, SentPart { part, offset, crc64 });
        }
    }

    /// Left as it is, for the next run.
    pub fn left(&self) {
        self.journal.kept(self.write);
    }

    /// It was published.
    pub fn published(&self) {
        self.journal.closed(self.write);
    }
}

impl Mover {
    /// The write for a file: one that was begun and left with the same content in mind, else a new one, with chunks of `block` bytes
    /// unless the store says otherwise.
    pub(super) async fn target(&self, order: &FileTransfer, facts: &Entry, route: Route, block: u64) -> Result<Target> {
        let mut spec = self.spec(order, facts);
        let parts = matches!(route, Route::Parts { .. });
        if parts && self.job.write.store_md5 {
            self.learn_md5(facts, &mut spec).await?;
        }
        if let Some(target) = self.left(order, facts, parts, &spec).await? {
            return Ok(target);
        }
        // A single chunk may be sent as one request, which can't be resumed.
        let noted = self.cx.journal.as_ref().zip(facts.version.as_ref()).filter(|_| parts && facts.size > block);
        spec.resumable = noted.is_some();
        let upload = self.cx.dst.write(&order.to, spec).await?;
        let fixed_size = if parts { upload.part_size().await } else { Ok(None) };
        let (block, dictated) = match fixed_size {
            Ok(fixed_size) => (fixed_size.unwrap_or(block), fixed_size.is_some()),
            Err(error) => return Err(abort(upload, error).await),
        };
        let track = match noted {
            Some((journal, version)) => {
                let from = facts.key.clone();
                let opened = |token| StartedWrite {
                    from,
                    version: version.clone(),
                    size: facts.size,
                    to: order.to.clone(),
                    part_size: block,
                    token,
                };
                match upload.token().await {
                    Ok(Some(token)) => {
                        let write = note(journal, &*self.cx.sink, opened(token)).await;
                        write.map(|write| Track { journal: journal.clone(), write })
                    }
                    Ok(None) => None,
                    Err(error) => return Err(abort(upload, error).await),
                }
            }
            None => None,
        };
        Ok(Target { dictated, track, ..Target::new(upload, block) })
    }

    /// The MD5 of a file on a disk, for a store that keeps it: with an upload in parts it must be known before the first.
    async fn learn_md5(&self, facts: &Entry, spec: &mut WriteSpec) -> Result<()> {
        let wanted = self.cx.src.caps().cheap_reads && !self.cx.dst.caps().files;
        if wanted && spec.hashes.get(Algo::Md5).is_none() {
            spec.hashes.merge(&crate::hash::read_and_hash(&self.cx.src, facts, &[Algo::Md5]).await?);
        }
        Ok(())
    }

    /// The first write left by earlier runs or attempts that matches this transfer.
    async fn left(&self, order: &FileTransfer, facts: &Entry, parts: bool, spec: &WriteSpec) -> Result<Option<Target>> {
        let Some(journal) = &self.cx.journal else { return Ok(None) };
        let mut halves = journal.take(&order.to).into_iter();
        while let Some(half) = halves.next() {
            let found = self.go_on(journal, half, facts, parts, spec).await;
            if !matches!(found, Ok(None)) {
                halves.for_each(|half| journal.kept(half.write));
                return found;
            }
        }
        Ok(None)
    }

    /// The log of a copy that the store makes by itself.
    pub(super) fn copy_log(&self, order: &FileTransfer) -> Option<Arc<dyn LogCopy>> {
        let (journal, version) = (self.cx.journal.clone()?, order.src.version.clone()?);
        let opened = StartedWrite {
            from: order.src.key.clone(),
            version,
            size: order.src.size,
            to: order.to.clone(),
            part_size: 0,
            token: Vec::new(),
        };
        let sink = self.cx.sink.clone();
        Some(Arc::new(ServerCopy { journal, opened, sink, state: Mutex::default() }))
    }

    /// Resumes a half-sent write if it matches this transfer; else removes it.
    ///
    /// Errors: the store can't be asked for it now.
    async fn go_on(
        &self,
        journal: &Journal,
        half: UnfinishedWrite,
        facts: &Entry,
        parts: bool,
        spec: &WriteSpec,
    ) -> Result<Option<Target>> {
        let UnfinishedWrite { write, opened, mut sent } = half;
        let same = opened.from == facts.key
            && facts.version.as_ref() == Some(&opened.version)
            && opened.size == facts.size
            && opened.part_size > 0
            && !spec.size_may_differ;
        if !parts || !same {
            self.remove(journal, write, &opened).await;
            return Ok(None);
        }
        sent.retain(|sent| is_chunk(sent, &opened));
        let resumed = match offered(self.cx.dst.resumable(), "resume") {
            Ok(writes) => writes.resume(&opened.to, &opened.token, sent.clone(), spec.clone()).await,
            Err(error) => Err(error),
        };
        match resumed {
            Ok((upload, there)) => {
                let there: BTreeMap<u64, Part> = there.into_iter().map(|part| (part.index, part)).collect();
                let found = |sent: &SentPart| there.get(&sent.part.index) == Some(&sent.part);
                let known: BTreeMap<u64, SentPart> =
                    sent.into_iter().filter(found).map(|sent| (sent.part.index, sent)).collect();
                tracing::debug!(key = %opened.to, chunks = known.len(), "resuming a partly sent file");
                let track = Some(Track { journal: journal.clone(), write });
                let dictated = upload.part_size().await?.is_some();
                Ok(Some(Target { dictated, known, track, ..Target::new(upload, opened.part_size) }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                journal.closed(write);
                Ok(None)
            }
            Err(error) if may_pass(&error) => {
                journal.kept(write);
                Err(error)
            }
            Err(error) => {
                if error.kind() == ErrorKind::Corrupt {
                    self.cx.sink.emit(&anew(&opened.to, &error));
                }
                tracing::debug!(key = %opened.to, %error, "a half-sent file is removed");
                self.remove(journal, write, &opened).await;
                Ok(None)
            }
        }
    }

    /// Removes what was sent. Where that fails the journal still knows of it.
    async fn remove(&self, journal: &Journal, write: WriteNumber, opened: &StartedWrite) {
        // The new write doesn't wait for a removal that the server can't do.
        match tokio::time::timeout(ABORT_WITHIN, self.discard(&opened.to, &opened.token)).await {
            Ok(Ok(_)) => journal.closed(write),
            answer => tracing::debug!(key = %opened.to, ?answer, "a half-sent file could not be removed"),
        }
    }

    /// Removes what is left of a write at the destination; see [`Resumable::discard`](haul_store::Resumable::discard).
    pub(crate) async fn discard(&self, key: &Key, token: &[u8]) -> Result<bool> {
        offered(self.cx.dst.resumable(), "discard")?.discard(key, token).await
    }

    /// Ends a transfer that failed: a write that the next attempt or run can resume is kept, all else removed.
    pub(super) async fn give_up(&self, upload: Box<dyn Upload>, track: Option<Track>, error: Error) -> Error {
        let Some(Track { journal, write }) = track else { return abort(upload, error).await };
        // A write that isn't found may only be out of reach, with the connection that broke: the resuming run asks for it.
        let may_be_there = may_pass(&error) || error.kind() == ErrorKind::NotFound && error.op() == "write";
        if may_be_there && journal.has_parts(write) {
            journal.kept(write);
            return error;
        }
        match tokio::time::timeout(ABORT_WITHIN, upload.abort()).await {
            Ok(Ok(())) => journal.closed(write),
            answer => {
                tracing::debug!(?answer, "an unfinished write could not be removed");
                // The connection that it was bound to may be what broke.
                if let Some(opened) = journal.begun_as(write) {
                    self.remove(&journal, write, &opened).await;
                }
            }
        }
        error
    }
}

/// A copy inside a domain: only the store knows whether it goes in parts, and reports it.
struct ServerCopy {
    journal: Journal,
    /// How it would begin, but for token and size of parts.
    opened: StartedWrite,
    sink: Arc<dyn Sink>,
    state: Mutex<CopyState>,
}

#[derive(Default)]
struct CopyState {
    /// The copy that was left or begun.
    copy: Option<(WriteNumber, LeftCopy)>,
    /// How often the store could not report on the copy that was left.
    untold: u32,
}

/// A store that could not tell so often what was left won't be able to: the copy begins anew. Those tries take about a second.
const UNTOLD: u32 = 5;

impl ServerCopy {
    fn state(&self) -> MutexGuard<'_, CopyState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl LogCopy for ServerCopy {
    fn left(&self) -> Option<LeftCopy> {
        let mut state = self.state();
        if state.copy.is_none() && state.untold == 0 {
            for half in self.journal.take(&self.opened.to) {
                let UnfinishedWrite { write, opened, sent } = half;
                let same = (&opened.from, &opened.version, opened.size)
                    == (&self.opened.from, &self.opened.version, self.opened.size);
                if !same || state.copy.is_some() {
                    // Removed when the job has ended well.
                    self.journal.kept(write);
                    continue;
                }
                let parts = sent.iter().filter(|sent| is_chunk(sent, &opened)).map(|sent| sent.part.clone()).collect();
                state.copy = Some((write, LeftCopy { token: opened.token, part_size: opened.part_size, parts }));
            }
        }
        state.copy.as_ref().map(|(_, left)| left.clone())
    }

    fn begun(&self, token: Vec<u8>, part_size: u64) -> BoxFuture<'_, ()> {
        let opened = StartedWrite { token: token.clone(), part_size, ..self.opened.clone() };
        Box::pin(async move {
            let write = note(&self.journal, &*self.sink, opened).await;
            self.state().copy = write.map(|write| (write, LeftCopy { token, part_size, parts: Vec::new() }));
        })
    }

    fn copied(&self, part: Part) {
        if let Some((write, left)) = &mut self.state().copy {
            left.parts.push(part.clone());
            // The service holds the bytes and vouches for them: they never passed this machine.
            let offset = part.index * left.part_size;
            self.journal.part(*write, SentPart { part, offset, crc64: 0 });
        }
    }

    fn ended(&self) {
        if let Some((write, _)) = self.state().copy.take() {
            self.journal.closed(write);
        }
    }

    fn untold(&self, error: &Error) -> bool {
        let mut state = self.state();
        state.untold += 1;
        if state.untold < UNTOLD {
            return false;
        }
        if let Some((write, _)) = state.copy.take() {
            // Removed when the job has ended well.
            self.journal.kept(write);
        }
        self.sink.emit(&anew(&self.opened.to, error));
        true
    }
}

/// Tells that what was sent earlier is sent again.
fn anew(to: &Key, error: &Error) -> Event {
    Event::Notice { key: Some(to.clone()), message: format!("Starting over: {}", error.message()) }
}

/// Notes that a write begins. A journal that can't be written keeps no file from going.
async fn note(journal: &Journal, sink: &dyn Sink, opened: StartedWrite) -> Option<WriteNumber> {
    match journal.opened(opened).await {
        Ok(write) => write,
        Err(error) => {
            let why = error.message();
            let message = format!("No journal: {why}. An interrupted run will restart large files from the beginning");
            sink.emit(&Event::Notice { key: None, message });
            None
        }
    }
}

/// True for errors that say nothing against what was sent so far.
fn may_pass(error: &Error) -> bool {
    use ErrorKind::{Busy, Cancelled, Io, Limit, Timeout, Unauthenticated};
    matches!(error.kind(), Busy | Cancelled | Io | Limit | Timeout | Unauthenticated)
}

/// True for a part that is exactly the chunk of its number.
fn is_chunk(sent: &SentPart, opened: &StartedWrite) -> bool {
    let Some(offset) = sent.part.index.checked_mul(opened.part_size) else { return false };
    let end = offset.saturating_add(opened.part_size).min(opened.size);
    sent.offset == offset && offset < opened.size && sent.part.size == end - offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Version;

    #[test]
    fn a_part_must_be_the_chunk_of_its_number() {
        let opened = StartedWrite {
            from: Key::new("a"),
            version: Version::new("v"),
            size: 25,
            to: Key::new("a"),
            part_size: 10,
            token: Vec::new(),
        };
        let sent = |index, offset, size| SentPart { part: Part { index, size, tag: Vec::new() }, offset, crc64: 0 };
        for (chunk, is) in [
            (sent(0, 0, 10), true),
            (sent(2, 20, 5), true),
            (sent(2, 20, 10), false),
            (sent(1, 0, 10), false),
            (sent(3, 30, 0), false),
            (sent(u64::MAX, 0, 10), false),
        ] {
            assert_eq!(is_chunk(&chunk, &opened), is, "{chunk:?}");
        }
    }
}
