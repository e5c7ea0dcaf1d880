//! Publishes that wait together, and the packs that are made of them. Whoever joins is answered when the pack and the
//! index that names its file are both stored, the pack first: an index makes its pack visible.

use super::{
    Shared,
    index::{Facts, Head, Index, IndexEntry, Indexes, Location, Record, encode, find},
    keys::{index_key, plain_key, tar_key},
    load::time_of,
    tar,
};
use bytes::{Bytes, BytesMut};
use haul_core::{Error, ErrorKind, Hashes, Key, Meta, Mtime, Result, Version, plan::Replace};
use haul_store::{LateFacts, Part, Payload, StoredFacts, Upload, WriteSpec};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};

const OP: &str = "write";
/// How often a pack that gathers is looked at.
const TICK: Duration = Duration::from_millis(10);
/// Files below this many bytes are copied into a pack's buffers; larger ones go along as they are.
const COPIED: u64 = 64 << 10;
/// Size of such a buffer.
const BUFFER: usize = 1 << 20;

/// Request for one key.
pub enum KeyRequest {
    /// Its bytes.
    Pack { payload: Payload, mtime: Mtime, meta: Option<Box<Meta>>, hashes: Hashes },
    /// Record a file that is already stored separately.
    Plain(Facts),
    /// Other facts of the same bytes.
    Touch { mtime: Option<Mtime>, meta: Option<Box<Meta>> },
    /// Delete it, if it has this version.
    Delete(Option<Version>),
}

/// A join that failed, and the bytes to try again with.
pub struct FailedJoin {
    pub error: Error,
    pub payload: Option<Box<Payload>>,
    /// Its index may be stored all the same, where only the answer was lost.
    pub uncertain: bool,
}

type JoinResult = Result<StoredFacts, FailedJoin>;

struct Member {
    key: Key,
    full: Vec<u8>,
    replace: Replace,
    what: KeyRequest,
    /// Answered once, when all is stored or failed; closed without one only if the process ends.
    answer: oneshot::Sender<JoinResult>,
}

/// Requests that have joined and aren't sent yet.
#[derive(Default)]
pub struct Gather {
    waiting: Mutex<Waiting>,
    /// Small files that are being written and have not joined yet.
    open: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    /// Counts the packs begun, so that a watch knows whether its own is still there.
    number: u64,
    members: Vec<Member>,
    bytes: u64,
    /// When the first and the last joined.
    joined: Option<(Instant, Instant)>,
}

/// A small file that is being written; it counts until it is dropped.
pub struct Open(Arc<Shared>);

impl Open {
    pub fn new(shared: &Arc<Shared>) -> Self {
        shared.gather.open.fetch_add(1, Ordering::AcqRel);
        Open(shared.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.gather.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gather {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Waiting {
    /// All that waits.
    fn take(&mut self) -> Vec<Member> {
        self.number += 1;
        (self.bytes, self.joined) = (0, None);
        std::mem::take(&mut self.members)
    }
}

impl Shared {
    /// Does what is asked of a key, together with others.
    ///
    /// Errors: `Exists` or `Changed` when the condition doesn't hold; `NotFound` for facts of what isn't there; those of
    /// writing the pack.
    pub async fn join(self: &Arc<Self>, key: Key, replace: Replace, what: KeyRequest) -> JoinResult {
        if self.settings.rebuild {
            let message = "a pack remote with the option rebuild is for reading only";
            return Err(unjoined(Error::new(ErrorKind::Unsupported, OP, message).with_key(&key), what));
        }
        if let Err(error) = self.indexes_to_write().await {
            return Err(unjoined(error, what));
        }
        let (answer, answered) = oneshot::channel();
        let member = Member { full: self.full(&key), key, replace, what, answer };
        self.add(member);
        answered.await.unwrap_or_else(|_| {
            let error = Error::new(ErrorKind::Io, OP, "the pack was given up");
            Err(FailedJoin { error, payload: None, uncertain: true })
        })
    }

    fn add(self: &Arc<Self>, member: Member) {
        let now = Instant::now();
        let mut waiting = self.gather.waiting();
        if let KeyRequest::Pack { payload, .. } = &member.what {
            waiting.bytes += payload.len().next_multiple_of(tar::BLOCK) + tar::BLOCK;
        }
        waiting.members.push(member);
        let first = waiting.joined.map_or(now, |(first, _)| first);
        let begun = waiting.joined.replace((first, now)).is_none();
        if waiting.bytes >= self.settings.size || waiting.members.len() >= self.settings.files {
            let members = waiting.take();
            drop(tokio::spawn(self.clone().send(members)));
        } else if begun {
            drop(tokio::spawn(self.clone().watch(waiting.number)));
        }
    }

    /// Sends the pack of this number when nothing more seems to come for it.
    async fn watch(self: Arc<Self>, number: u64) {
        loop {
            tokio::time::sleep(TICK).await;
            let members = {
                let mut waiting = self.gather.waiting();
                let (true, Some((first, last))) = (waiting.number == number, waiting.joined) else { return };
                let more = self.gather.open.load(Ordering::Acquire) > 0;
                let quiet = if more { self.settings.stalled } else { self.settings.quiet };
                if last.elapsed() < quiet && first.elapsed() < self.settings.patience {
                    continue;
                }
                waiting.take()
            };
            return self.send(members).await;
        }
    }

    async fn send(self: Arc<Self>, members: Vec<Member>) {
        // New facts of old bytes must not restore a file that another run has replaced meanwhile, nor may the deletion of one version
        // delete a newer one.
        let looks = members.iter().any(|m| matches!(m.what, KeyRequest::Touch { .. } | KeyRequest::Delete(Some(_))));
        let indexes = if looks { self.indexes(true).await } else { self.indexes_to_write().await };
        // An id that comes after all that is known: what this pack replaces is older than it, so it may go afterwards.
        let prepared = match indexes.and_then(|indexes| Ok((self.view.new_id()?, indexes))) {
            Ok((id, indexes)) => Pack::new(id, &indexes, members),
            Err(error) => {
                for Member { what, answer, .. } in members {
                    let _ = answer.send(Err(unjoined(error.to_report(), what)));
                }
                return;
            }
        };
        let Pack { id, tar, records, done, replaced } = prepared;
        let stored = if records.is_empty() { Ok(()) } else { self.store(&id, &tar.pieces, records).await };
        let tar = tar.pieces;
        for FinishedMember { answer, result, kept } in done {
            let answered = match (&stored, result) {
                (_, Err(error)) => {
                    Err(FailedJoin { error, payload: kept.map(|k| Box::new(k.payload(&tar))), uncertain: false })
                }
                (Ok(()), Ok(stored)) => Ok(stored),
                (Err((error, uncertain)), _) => Err(FailedJoin {
                    error: error.to_report(),
                    payload: kept.map(|k| Box::new(k.payload(&tar))),
                    uncertain: *uncertain,
                }),
            };
            // Whoever gave up waiting doesn't need to know.
            let _ = answer.send(answered);
        }
        if stored.is_ok() && !replaced.is_empty() {
            for answer in self.inner.delete(replaced.into_iter().map(|key| (key, None)).collect()).await {
                if let Err(error) = answer {
                    tracing::debug!("a replaced file stays until cleanup: {error}");
                }
            }
        }
    }

    /// Stores the pack, then its index, and takes the index in.
    ///
    /// Errors: with whether the index may be stored all the same.
    async fn store(&self, id: &str, tar: &[Bytes], records: Vec<Record>) -> Result<(), (Error, bool)> {
        let size = tar.iter().map(|piece| piece.len() as u64).sum();
        let unseen = |error| (error, false);
        if size > 0 {
            self.put(&tar_key(id), tar, size).await.map_err(unseen)?;
        }
        self.still_there(id, &records).await.map_err(unseen)?;
        let head = Head { id: id.into(), tar: size, previous: self.view.unnamed(), replaces: Vec::new() };
        self.store_index(head, &records).await.map_err(|error| (error, true))
    }

    /// House-keeping takes a file that no index has named for a day for left behind. So a file that took long to get its index (a
    /// large one, a machine that slept) is looked up before it is named. House-keeping also merges indexes older than a
    /// day into one, which would count more than an index with an older id that arrives after it, so a late one isn't sent.
    ///
    /// Errors: `Changed` where a file is missing, or the id is late; both can be sent again.
    async fn still_there(&self, id: &str, records: &[Record]) -> Result<()> {
        let late = self.settings.late.as_nanos() as i128;
        let now = || jiff::Timestamp::now().as_nanosecond();
        let old = |id: &str| time_of(id).is_some_and(|time| now() - i128::from(time) >= late);
        let files = records.iter().filter_map(|record| match &record.entry {
            IndexEntry::Stored(Facts { place: Location::Plain { folder }, .. }) if old(folder) => {
                Some(plain_key(folder, &record.key))
            }
            _ => None,
        });
        for key in files {
            if let Err(error) = self.inner.stat(&key).await {
                return Err(match error.kind() {
                    ErrorKind::NotFound => {
                        let message = "it was removed while it waited for its index";
                        Error::new(ErrorKind::Changed, OP, message).with_key(&key)
                    }
                    _ => error,
                });
            }
        }
        if old(id) {
            let message = "the index took so long that others may have tidied up meanwhile: it must be sent anew";
            return Err(Error::new(ErrorKind::Changed, OP, message).with_key(&index_key(id)));
        }
        Ok(())
    }

    /// Stores an index and takes it in.
    pub async fn store_index(&self, head: Head, records: &[Record]) -> Result<()> {
        let bytes = Bytes::from(encode(&head, records));
        let index = Index::read(&head.id, bytes.clone());
        let index =
            index.map_err(|why| Error::new(ErrorKind::Invalid, OP, format!("the new index is wrong: {why}")))?;
        let size = bytes.len() as u64;
        self.put(&index_key(&head.id), &[bytes], size).await?;
        self.view.add(index);
        Ok(())
    }

    /// Writes a new key of the wrapped store.
    pub async fn put(&self, key: &Key, pieces: &[Bytes], size: u64) -> Result<()> {
        let upload = self.inner.write(key, WriteSpec { size: Some(size), ..WriteSpec::default() }).await?;
        let failed = match self.put_parts(&*upload, pieces, size).await {
            Ok(parts) => match upload.publish(parts, LateFacts::default()).await {
                Ok(stored) if stored.size == size => return Ok(()),
                Ok(stored) => {
                    let message = format!("{size} bytes were sent but the store says that it holds {}", stored.size);
                    return Err(Error::new(ErrorKind::Corrupt, OP, message).with_key(key));
                }
                Err(failed) => (failed.error, failed.upload),
            },
            Err(error) => (error, upload),
        };
        if let Err(error) = failed.1.abort().await {
            tracing::debug!("{key}: the unfinished write could not be removed: {error}");
        }
        Err(failed.0)
    }

    async fn put_parts(&self, upload: &dyn Upload, pieces: &[Bytes], size: u64) -> Result<Vec<Part>> {
        let part = match self.inner.caps().parts {
            Some(limits) if size > limits.single => {
                limits.preferred.max(limits.min).max(size.div_ceil(limits.count.max(1))).min(limits.max)
            }
            _ => size,
        };
        let (mut parts, mut offset) = (Vec::new(), 0);
        for payload in cut(pieces, part.max(1)) {
            let sent = payload.len();
            parts.push(upload.part(parts.len() as u64, offset, payload).await?);
            offset += sent;
        }
        Ok(parts)
    }
}

/// Pieces put together anew: each payload but the last has `size` bytes.
fn cut(pieces: &[Bytes], size: u64) -> Vec<Payload> {
    let (mut payloads, mut now, mut room) = (Vec::new(), Vec::new(), size);
    for piece in pieces {
        let mut rest = piece.clone();
        while !rest.is_empty() {
            let take = rest.split_to(room.min(rest.len() as u64) as usize);
            room -= take.len() as u64;
            now.push(take);
            if room == 0 {
                payloads.push(Payload::new(std::mem::take(&mut now)));
                room = size;
            }
        }
    }
    if !now.is_empty() {
        payloads.push(Payload::new(now));
    }
    payloads
}

fn unjoined(error: Error, what: KeyRequest) -> FailedJoin {
    let payload = match what {
        KeyRequest::Pack { payload, .. } => Some(Box::new(payload)),
        _ => None,
    };
    FailedJoin { error, payload, uncertain: false }
}

/// A pack that is ready to be sent.
struct Pack {
    id: String,
    tar: Tar,
    records: Vec<Record>,
    done: Vec<FinishedMember>,
    /// Files of the wrapped store that nothing names any more once the index is stored.
    replaced: Vec<Key>,
}

/// A member whose answer is known, should the pack be stored.
struct FinishedMember {
    answer: oneshot::Sender<JoinResult>,
    result: Result<StoredFacts>,
    /// Where its bytes are, should it not.
    kept: Option<MemberBytes>,
}

enum MemberBytes {
    Slice { piece: usize, start: usize, len: usize },
    Payload(Payload),
}

impl MemberBytes {
    fn payload(self, pieces: &[Bytes]) -> Payload {
        match self {
            MemberBytes::Slice { piece, start, len } => Payload::from(pieces[piece].slice(start..start + len)),
            MemberBytes::Payload(payload) => payload,
        }
    }
}

impl Pack {
    fn new(id: String, indexes: &Indexes, members: Vec<Member>) -> Pack {
        let name: Arc<str> = id.as_str().into();
        let mut tar = Tar::default();
        let mut done = Vec::with_capacity(members.len());
        let mut replaced = Vec::new();
        let mut sets: BTreeMap<Vec<u8>, IndexEntry> = BTreeMap::new();
        for Member { key, full, replace, what, answer } in members {
            let old = sets.get(&full).cloned().map_or_else(|| find(indexes, &full), IndexEntry::facts);
            let (new, kept) = match change(&key, old.as_ref(), &replace, what) {
                Ok(Change::None) => {
                    done.push(FinishedMember { answer, result: Ok(StoredFacts::default()), kept: None });
                    continue;
                }
                Ok(Change::Set(entry)) => (entry, None),
                Ok(Change::Pack(mut facts, payload)) => {
                    let (offset, kept) = tar.add(&full, &facts, payload);
                    facts.place = Location::Packed { pack: name.clone(), offset };
                    (IndexEntry::Stored(facts), Some(kept))
                }
                Err(refused) => {
                    let (error, what) = *refused;
                    let kept = unjoined(error, what);
                    done.push(FinishedMember {
                        answer,
                        result: Err(kept.error),
                        kept: kept.payload.map(|payload| MemberBytes::Payload(*payload)),
                    });
                    continue;
                }
            };
            let stored = new.clone().facts();
            if let Some(Facts { place: Location::Plain { folder }, .. }) = &old
                && stored.as_ref().map(|new| &new.place) != old.as_ref().map(|old| &old.place)
            {
                replaced.push(plain_key(folder, &full));
            }
            let stored = stored.map(|facts| StoredFacts {
                version: Some(facts.version()),
                size: facts.size,
                hashes: facts.hashes,
                ..StoredFacts::default()
            });
            done.push(FinishedMember { answer, result: Ok(stored.unwrap_or_default()), kept });
            sets.insert(full, new);
        }
        tar.finish();
        let records = sets.into_iter().map(|(key, entry)| Record { key, entry }).collect();
        Pack { id, tar, records, done, replaced }
    }
}

/// Change to a key.
enum Change {
    /// It stays as it is.
    None,
    /// This holds from now on.
    Set(IndexEntry),
    /// These facts hold, but for the place, which is where the bytes come in the pack.
    Pack(Facts, Payload),
}

fn change(
    key: &Key,
    old: Option<&Facts>,
    replace: &Replace,
    what: KeyRequest,
) -> Result<Change, Box<(Error, KeyRequest)>> {
    let error = |kind, message: &str| Error::new(kind, OP, message).with_key(key);
    let version = old.map(Facts::version);
    match replace {
        Replace::Absent if old.is_some() => return Err(Box::new((error(ErrorKind::Exists, "already exists"), what))),
        Replace::Exactly(want) if version.as_ref() != Some(want) => {
            return Err(Box::new((error(ErrorKind::Changed, "changed since it was listed"), what)));
        }
        _ => {}
    }
    Ok(match (what, old) {
        (KeyRequest::Pack { payload, mtime, meta, hashes }, _) => {
            let place = Location::Packed { pack: "".into(), offset: 0 };
            Change::Pack(Facts { place, size: payload.len(), mtime, hashes, meta }, payload)
        }
        (KeyRequest::Plain(facts), _) => Change::Set(IndexEntry::Stored(facts)),
        (KeyRequest::Touch { mtime, meta }, Some(old)) => {
            let old = old.clone();
            let meta = meta.or(old.meta.clone());
            Change::Set(IndexEntry::Stored(Facts { mtime: mtime.unwrap_or(old.mtime), meta, ..old }))
        }
        (what @ KeyRequest::Touch { .. }, None) => {
            return Err(Box::new((error(ErrorKind::NotFound, "no such key"), what)));
        }
        (KeyRequest::Delete(_), None) => Change::None,
        (what @ KeyRequest::Delete(Some(_)), Some(_)) if !same_version(&what, &version) => {
            return Err(Box::new((error(ErrorKind::Changed, "changed since it was listed"), what)));
        }
        (KeyRequest::Delete(None), Some(_)) => Change::Set(IndexEntry::Deleted),
        (KeyRequest::Delete(Some(_)), Some(old)) => Change::Set(IndexEntry::DeletedAt(old.place.clone())),
    })
}

fn same_version(what: &KeyRequest, version: &Option<Version>) -> bool {
    matches!(what, KeyRequest::Delete(want) if want == version)
}

/// A tar in the making.
#[derive(Default)]
struct Tar {
    pieces: Vec<Bytes>,
    buffer: BytesMut,
    /// Bytes so far.
    size: u64,
}

impl Tar {
    /// Adds a file; gives back where its bytes begin in the tar, and where they are in memory.
    fn add(&mut self, full: &[u8], facts: &Facts, payload: Payload) -> (u64, MemberBytes) {
        let header = tar::header(full, facts.size, facts.mtime, facts.meta.as_deref());
        let copied = facts.size < COPIED;
        let more = header.len() + if copied { facts.size as usize } else { 0 };
        if self.buffer.len() + more > BUFFER {
            self.seal();
        }
        self.put(&header);
        let offset = self.size;
        let kept = if copied {
            let (piece, start) = (self.pieces.len(), self.buffer.len());
            payload.pieces().unwrap_or_default().iter().for_each(|bytes| self.put(bytes));
            MemberBytes::Slice { piece, start, len: facts.size as usize }
        } else {
            self.seal();
            let pieces = payload.pieces().unwrap_or_default();
            self.pieces.extend(pieces.iter().filter(|bytes| !bytes.is_empty()).cloned());
            self.size += facts.size;
            MemberBytes::Payload(payload)
        };
        self.put(&[0; tar::BLOCK as usize][..tar::padding(facts.size)]);
        (offset, kept)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.size += bytes.len() as u64;
    }

    /// Turns the buffer into a piece, even when it is empty: slices count pieces.
    fn seal(&mut self) {
        self.pieces.push(self.buffer.split().freeze());
    }

    /// Ends the archive, if there is anything in it.
    fn finish(&mut self) {
        if self.size > 0 {
            self.put(&tar::END);
            self.seal();
        }
    }
}

/// Index facts of a file that is stored separately.
pub fn plain(folder: &str, size: u64, mtime: Mtime, hashes: Hashes, meta: Option<Box<Meta>>) -> Facts {
    Facts { place: Location::Plain { folder: folder.into() }, size, mtime, hashes, meta }
}
