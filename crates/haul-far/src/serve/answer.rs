//! Answers one request with the store.

use super::{
    OpenFolder, Session, bundle,
    keys::{far, near, near_each, near_entry, near_key},
    memory::{RoomPermit, piece},
};
use crate::{
    crc64,
    frame::{Frame, Kind, PIECE},
    message::{self, Answer, Folder, FolderRequest, Request},
    wire::{Queued, WINDOW},
};
use bytes::Bytes;
use futures::{StreamExt as _, future::ready, stream};
use haul_core::{
    Algo, Error, ErrorKind, Hasher, Hashes, Key, Listed, Result, Retry, Version,
    delta::{Chunking, Cutter, Recipe},
    listing::MissedRange,
};
use haul_store::{
    AttributesBatch, AttributesItem, AttributesResult, Body, Cleanup, CopyBatch, CopyItem, LateFacts, ListRequest,
    Payload, Read, SettleItem, SmallFile, StoredFacts, Watch, WriteSpec, blocks, disk, offered, pieces,
};
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::{Semaphore, mpsc};

/// Entries in one answer of a listing: below a megabyte.
const BATCH: usize = 2000;

/// Most files in one request. A near end sends a thousand.
const ITEMS: usize = 10_000;

/// Bytes of a file that are read at a time, and go in pieces: each time costs two changes of threads.
const BLOCK: usize = 4 * PIECE;

/// Blocks of a file that are read ahead.
const AHEAD: usize = 2;

/// Answers that go to one request.
pub struct Replies {
    session: Arc<Session>,
    pub id: u32,
    first: mpsc::UnboundedSender<Queued>,
    content: mpsc::Sender<Queued>,
    /// Bytes that the near end has room for.
    window: Arc<Semaphore>,
    /// The request's room, until the last answer is written.
    request_permit: Mutex<RoomPermit>,
}

/// Content that comes with one request.
pub struct Incoming {
    pieces: mpsc::UnboundedReceiver<Bytes>,
    /// Counts what waits, of all requests.
    unstored: Arc<AtomicU64>,
    /// Of that, what was taken here.
    taken: u64,
}

impl Incoming {
    pub fn new(pieces: mpsc::UnboundedReceiver<Bytes>, unstored: Arc<AtomicU64>) -> Self {
        Incoming { pieces, unstored, taken: 0 }
    }

    /// All of it, and its CRC-64/NVME.
    async fn all(&mut self, size: u64) -> Result<(Vec<Bytes>, u64)> {
        let (mut pieces, mut hasher, mut left) = (Vec::new(), Hasher::new(&[Algo::Crc64Nvme]), size);
        while left > 0 {
            // The near end hung up, or gave the request up: nobody hears the answer.
            let Some(piece) = self.pieces.recv().await else {
                return Err(Error::new(ErrorKind::Io, "write", "the near end hung up"));
            };
            self.taken += self::piece(piece.len());
            left = left
                .checked_sub(piece.len() as u64)
                .ok_or_else(|| Error::new(ErrorKind::Corrupt, "write", "the near end sent more than it said"))?;
            hasher.update(&piece);
            pieces.push(piece);
        }
        Ok((pieces, crc64(&hasher.finish())))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        while let Ok(piece) = self.pieces.try_recv() {
            self.taken += self::piece(piece.len());
        }
        self.unstored.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

impl Replies {
    /// None yet. `ways`: of what goes first, and of what goes in order.
    pub fn new(
        session: Arc<Session>,
        id: u32,
        ways: (mpsc::UnboundedSender<Queued>, mpsc::Sender<Queued>),
        window: Arc<Semaphore>,
        request_permit: RoomPermit,
    ) -> Replies {
        let (first, content) = ways;
        Replies { session, id, first, content, window, request_permit: Mutex::new(request_permit) }
    }

    fn request_permit(&self) -> RoomPermit {
        self.request_permit.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The only answer, or the last.
    pub async fn last(&self, answer: Answer) {
        let frame = self.frame(&answer);
        drop(answer);
        let room = self.session.room.answer(frame.body.len()).await;
        // Who hung up hears nothing.
        let _ = self.first.send(Queued::new(frame, [room, self.request_permit()]));
    }

    /// One of several, in order with content: waits until the near end has room for it.
    async fn next(&self, answer: Answer) {
        let frame = self.frame(&answer);
        near_has_room(&self.window, frame.body.len()).await;
        let _ = self.content.send(frame.into()).await;
    }

    async fn data(&self, body: Bytes, room: RoomPermit) {
        let frame = Frame { kind: Kind::Data, id: self.id, body };
        let _ = self.content.send(Queued::new(frame, [room, None])).await;
    }

    /// Facts, which go before content.
    async fn facts(&self, answer: Answer) {
        let _ = self.content.send(self.frame(&answer).into()).await;
    }

    /// The last of several: behind those.
    async fn end(&self, answer: Answer) {
        let frame = self.frame(&answer);
        let _ = self.content.send(Queued::new(frame, [None, self.request_permit()])).await;
    }

    fn frame(&self, answer: &Answer) -> Frame {
        let failed = |error: std::io::Error| {
            let error = Error::new(ErrorKind::Invalid, "connect", error.to_string());
            message::frame(Kind::Answer, self.id, &Answer::Failed(error))
        };
        match message::frame(Kind::Answer, self.id, answer).or_else(failed) {
            Ok(frame) => frame,
            Err(_) => unreachable!("an error fits into a frame"),
        }
    }
}

/// Waits until the near end has room for `bytes` more bytes.
async fn near_has_room(window: &Semaphore, bytes: usize) {
    let bytes = (bytes as u64).min(WINDOW) as u32;
    if let Ok(room) = window.acquire_many(bytes).await {
        room.forget();
    }
}

/// Answers a request, whose content comes in `incoming`.
///
/// Errors: what is to be the answer.
pub async fn answer(
    session: &Arc<Session>,
    asking: FolderRequest<Request>,
    replies: &Replies,
    incoming: Incoming,
) -> Result<()> {
    let read_only = session.settings.read_only;
    if read_only && asking.request.changes() {
        return Err(Error::new(ErrorKind::Denied, "write", "haul there was started with --read-only"));
    }
    if asking.request.items() > ITEMS {
        let why = format!("the near end asks for more than {ITEMS} files at once");
        return Err(Error::new(ErrorKind::Invalid, "connect", why));
    }
    let _made = session.room.made(asking.request.takes()).await;
    if let Request::Open(folder) = &asking.request {
        replies.last(Answer::Folder(session.keep(session.open(folder)?)?)).await;
        return Ok(());
    }
    if let Request::Listen(ports) = asking.request {
        replies.last(Answer::Listens(session.listen(ports)?)).await;
        return Ok(());
    }
    let folder = match &asking.opens {
        Some(folder) => session.folder_along(asking.folder, folder)?,
        None => session.folder(asking.folder)?,
    };
    let request = match asking.request {
        // Remains of dead processes are only removed where the folder is writable.
        Request::List(list) => Request::List(ListRequest { sweep: list.sweep && !read_only, ..list }),
        request => request,
    };
    let answered = in_folder(session, &folder, request, replies, incoming).await;
    answered.map_err(|error| near(&folder, error))
}

async fn in_folder(
    session: &Session,
    folder: &Arc<OpenFolder>,
    request: Request,
    replies: &Replies,
    mut incoming: Incoming,
) -> Result<()> {
    let store = &folder.store;
    let answer = match request {
        Request::Open(_) | Request::Listen(_) => unreachable!("it is answered before"),
        Request::List(request) => {
            let Some(_listing) = session.room.listing() else {
                let why = "the near end has too many listings under way";
                return Err(Error::new(ErrorKind::Busy, "list", why).with_retry(Retry::Backoff));
            };
            list(folder, request, replies).await;
            return Ok(());
        }
        Request::Stat(key) => Answer::Entry(near_entry(folder, store.stat(&far(folder, &key)).await?)),
        Request::Read(key, version, range) => {
            let (store, key) = (store.clone(), far(folder, &key));
            // Of a small file, which is read at once.
            let first = session.room.content(PIECE).await;
            let read = disk::together(async move {
                let read = store.read(&key, version.as_ref(), range).await?;
                let body = match read.body {
                    Body::File(file, range) if !range.is_empty() && range.end - range.start <= PIECE as u64 => {
                        let block = block(&file, range)?;
                        Body::Stream(stream::once(ready(Ok(block))).boxed())
                    }
                    body => body,
                };
                Ok(Read { body, ..read })
            });
            let read = read.await?;
            replies.facts(Answer::Entry(near_entry(folder, read.entry))).await;
            return send(read.body, replies, first).await;
        }
        Request::Put { key, spec, bytes } => {
            let (folder, key) = (folder.clone(), far(folder, &key));
            let put = disk::together(async move { put(&folder, &key, spec, bytes).await });
            let (stored, crc64) = put.await?;
            Answer::Stored(stored, Some(crc64))
        }
        Request::PutAll(files) => Answer::AllStored(near_each(folder, bundle::put(folder, files).await)),
        Request::GetAll(wanted) => {
            // It is content.
            near_has_room(&replies.window, SmallFile::FETCHED as usize).await;
            replies.end(Answer::Files(near_each(folder, bundle::get(folder, wanted).await))).await;
            return Ok(());
        }
        Request::Begin(key, spec) => {
            let resumable = spec.resumable;
            session.check_uploads()?;
            Answer::Upload(session.hold(store.write(&far(folder, &key), spec).await?, resumable))
        }
        Request::Resume(key, token, sent, spec) => {
            let resumable = offered(store.resumable(), "resume")?;
            session.let_go(&token);
            session.check_uploads()?;
            let (upload, parts) = resumable.resume(&far(folder, &key), &token, sent, spec).await?;
            let id = session.hold(upload, true);
            session.note_token(id, token);
            Answer::Resumed(id, parts)
        }
        Request::Discard(key, token) => {
            let resumable = offered(store.resumable(), "discard")?;
            session.let_go(&token);
            Answer::Flag(resumable.discard(&far(folder, &key), &token).await?)
        }
        Request::Token(id) => {
            let token = session.held(id)?.upload.token().await?;
            token.iter().for_each(|token| session.note_token(id, token.clone()));
            Answer::Token(token)
        }
        Request::Part { upload, index, offset, size } => {
            let upload = session.held(upload)?.upload;
            let (pieces, crc64) = incoming.all(size).await?;
            let part = upload.part(index, offset, Payload::new(pieces)).await?;
            Answer::Part(part, crc64)
        }
        // Stores remember what they found, on their disk.
        Request::Recipe(key, version, cut) if session.settings.read_only => {
            Answer::Recipe(recipe(folder, &far(folder, &key), version.as_ref(), cut).await?)
        }
        Request::Recipe(key, version, cut) => {
            let deltas = offered(store.deltas(), "read")?;
            Answer::Recipe(deltas.recipe(&far(folder, &key), version.as_ref(), cut).await?)
        }
        Request::Reuse(id, version, runs) => Answer::Parts(session.held(id)?.upload.reuse(&version, runs).await?),
        Request::ReadBack(id, range) => {
            let body = session.held(id)?.upload.read_back(range).await?;
            return send(body, replies, None).await;
        }
        Request::Publish(id, parts, late) => {
            let (upload, after) = session.release(id).await?;
            match upload.publish(parts, late).await {
                Ok(stored) => Answer::Stored(stored, None),
                Err(unpublished) => {
                    session.uploads().insert(id, super::OpenWrite { upload: Arc::new(unpublished.upload), after });
                    return Err(unpublished.error);
                }
            }
        }
        Request::Abort(id) => {
            session.release(id).await?.0.abort().await?;
            Answer::Done
        }
        Request::MakeDir(key, spec) => {
            store.make_dir(&far(folder, &key), &spec).await?;
            Answer::Done
        }
        Request::Copy(batch) => copy(session, folder, batch, replies).await?,
        Request::SetMeta(key, mtime, meta) => {
            store.set_meta(&far(folder, &key), mtime, meta.as_ref()).await?;
            Answer::Done
        }
        Request::Delete(keys) => {
            let keys = keys.into_iter().map(|(key, version)| (far(folder, &key), version)).collect();
            Answer::Deleted(near_each(folder, store.delete(keys).await))
        }
        Request::Carry(keys, inside) => {
            let keys = keys.iter().map(|key| far(folder, key)).collect();
            let carried = offered(store.inodes(), "read attributes")?.carry(keys, inside).await;
            Answer::Carried(near_each(folder, carried))
        }
        Request::Attributes { from, items, set } => {
            let (source, place) = source(session, folder, from)?;
            let each = items.into_iter();
            let items =
                each.map(|item| AttributesItem { from: far(&source, &item.from), to: far(folder, &item.to), ..item });
            let batch = AttributesBatch { from: place, items: items.collect(), links: Default::default(), set };
            let done = offered(store.inodes(), "set attributes")?.attributes(batch).await;
            Answer::Attributed(near_each(folder, done))
        }
        Request::Settle(items) => {
            let items = items.into_iter();
            let items =
                items.map(|item| SettleItem { from: far(folder, &item.from), to: far(folder, &item.to), ..item });
            let done = offered(store.inodes(), "rename")?.settle(items.collect()).await;
            Answer::Settled(near_each(folder, done))
        }
        Request::Hash(key, version, algos) => {
            Answer::Hashes(hash(folder, &far(folder, &key), version.as_ref(), &algos).await?)
        }
        Request::About => Answer::Space(offered(store.admin(), "about")?.about().await?),
        Request::Cleanup(what) => {
            let what = Cleanup { below: far(folder, &what.below), ..what };
            let done = offered(store.admin(), "clean up")?.cleanup(what).await?;
            let found = done.found.into_iter().map(|(key, begun)| (near_key(folder, &key), begun)).collect();
            Answer::Unfinished(found, done.failed.into_iter().map(|error| near(folder, error)).collect())
        }
        Request::Sync => {
            offered(store.admin(), "sync")?.sync().await?;
            Answer::Done
        }
    };
    replies.last(answer).await;
    Ok(())
}

/// A listing, as it comes.
async fn list(folder: &OpenFolder, request: ListRequest, replies: &Replies) {
    let request = ListRequest {
        prefix: [&folder.below[..], &request.prefix].concat(),
        after: request.after.map(|key| far(folder, &key)),
        // It speaks of the near end's keys.
        prune_by: request.prune_by.filter(|_| folder.below.is_empty()),
        ..request
    };
    let mut listing = folder.store.list(request);
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(entries) => {
                let mut entries = entries.into_iter().map(|entry| near_entry(folder, entry));
                loop {
                    let batch: Vec<_> = entries.by_ref().take(BATCH).collect();
                    if batch.is_empty() {
                        break;
                    }
                    replies.next(Answer::Batch(batch)).await;
                }
            }
            Listed::Failed { lost, error } => {
                let lost = MissedRange {
                    from: near_key(folder, &lost.from),
                    to: lost.to.filter(|to| to.as_bytes().starts_with(&folder.below)).map(|to| near_key(folder, &to)),
                };
                replies.next(Answer::Lost(lost, near(folder, error))).await;
            }
            Listed::Vanished(key) => replies.next(Answer::Vanished(near_key(folder, &key))).await,
            Listed::End => return replies.end(Answer::End).await,
        }
    }
    replies.end(Answer::Cut).await;
}

/// Writes a small file as a whole; with the CRC-64/NVME of what arrived.
async fn put(folder: &OpenFolder, key: &Key, spec: WriteSpec, bytes: Bytes) -> Result<(StoredFacts, u64)> {
    let payload = Payload::from(bytes);
    let hashes = payload.hash(&[Algo::Crc64Nvme]).await?;
    bundle::arrived(&spec, crc64(&hashes))?;
    let along = spec.keep.as_ref().zip(spec.carried.as_ref());
    let along = along.map(|(keep, carried)| AttributesItem::carried_along(key, &spec, keep, carried));
    let upload = folder.store.write(key, spec).await?;
    let stored = match upload.part(0, 0, payload.with_hashes(hashes.clone())).await {
        Ok(part) => {
            upload.publish(vec![part], LateFacts::default()).await.map_err(|failed| (failed.error, failed.upload))
        }
        Err(error) => Err((error, upload)),
    };
    match stored {
        Ok(mut stored) => {
            if let Some(item) = along {
                stored.unpreserved = set(folder, item).await?.unpreserved;
            }
            Ok((stored, crc64(&hashes)))
        }
        Err((error, upload)) => {
            // The first error is the one to tell; what can't be removed now is found by a cleanup.
            let _ = upload.abort().await;
            Err(error)
        }
    }
}

/// Sets attributes that came along.
async fn set(folder: &OpenFolder, item: AttributesItem) -> Result<AttributesResult> {
    let from = Arc::from(&folder.as_asked.path[..]);
    let batch = AttributesBatch { from, items: vec![item], links: Default::default(), set: true };
    let mut answers = offered(folder.store.inodes(), "set attributes")?.attributes(batch).await;
    answers.pop().unwrap_or_else(|| Err(Error::new(ErrorKind::Io, "set attributes", "the store gave no answer")))
}

/// Sends content, then its checksum. `first` is the room of a file that was read already.
async fn send(body: Body, replies: &Replies, mut first: RoomPermit) -> Result<()> {
    let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
    match body {
        Body::File(file, range) => {
            drop(first);
            let starts = range.clone().step_by(BLOCK).map(|from| from..range.end.min(from + BLOCK as u64));
            let (session, window) = (replies.session.clone(), replies.window.clone());
            let blocks = stream::iter(starts).then(move |range| {
                let (file, session, window) = (file.clone(), session.clone(), window.clone());
                async move {
                    // First the near end's: what waits for that would take the room of all others.
                    let bytes = (range.end - range.start) as usize;
                    near_has_room(&window, bytes).await;
                    (session.room.content(bytes).await, file, range)
                }
            });
            let blocks = blocks.map(|(room, file, range)| async move {
                disk::run(move || block(&file, range)).await.map(|block| (block, room))
            });
            let mut blocks = std::pin::pin!(blocks.buffered(AHEAD));
            while let Some(block) = blocks.next().await {
                let (mut block, mut room) = block?;
                hasher.update(&block);
                while !block.is_empty() {
                    let piece = block.split_to(PIECE.min(block.len()));
                    // The block is in memory until its last piece is written.
                    let room = if block.is_empty() { room.take() } else { None };
                    replies.data(piece, room).await;
                }
            }
        }
        Body::Stream(mut pieces) => {
            while let Some(piece) = pieces.next().await {
                let mut piece = piece?;
                hasher.update(&piece);
                while !piece.is_empty() {
                    let part = piece.split_to(PIECE.min(piece.len()));
                    near_has_room(&replies.window, part.len()).await;
                    let room = match first.take() {
                        Some(room) => Some(room),
                        None => replies.session.room.content(part.len()).await,
                    };
                    replies.data(part, room).await;
                }
            }
        }
    }
    replies.end(Answer::Sent(crc64(&hasher.finish()))).await;
    Ok(())
}

fn block(file: &std::fs::File, range: Range<u64>) -> Result<Bytes> {
    let want = range.end - range.start;
    let block = blocks::held(file, range).map_err(|errno| Error::from_io("read", errno.into()))?;
    match block.len() as u64 == want {
        true => Ok(block.into()),
        false => Err(Error::new(ErrorKind::Changed, "read", "the file became shorter while it was read")),
    }
}

/// Copies from another folder of this machine.
async fn copy(session: &Session, folder: &OpenFolder, request_permit: CopyBatch, replies: &Replies) -> Result<Answer> {
    let (source, place) = source(session, folder, request_permit.from.to_vec())?;
    let here = |item: CopyItem| CopyItem { from: far(&source, &item.from), to: far(folder, &item.to), ..item };
    let items = request_permit.items.into_iter().map(here).collect();
    let (id, first, session) = (replies.id, replies.first.clone(), replies.session.clone());
    let watch = Watch::new(move |item, bytes| {
        // It is for people: nobody waits until it can be told.
        if let Ok(frame) = message::frame(Kind::Answer, id, &Answer::Progress(item, bytes))
            && let Some(room) = session.room.answer_now(frame.body.len())
        {
            let _ = first.send(Queued::new(frame, [Some(room), None]));
        }
    });
    // How the near end shows links of another store says nothing of this one.
    let batch = CopyBatch { from: place, items, links: Default::default() };
    let answers: Vec<Result<StoredFacts>> = folder.store.copy(batch, watch).await;
    Ok(Answer::Copied(near_each(folder, answers)))
}

/// Another folder of this machine, and the place by which its store is known to one beside it.
fn source(session: &Session, folder: &OpenFolder, path: Vec<u8>) -> Result<(OpenFolder, Arc<[u8]>)> {
    let source = session.open(&Folder { path, ..folder.as_asked.clone() })?;
    match source.store.caps().domain.clone() {
        Some(domain) => Ok((source, domain.place)),
        None => Err(Error::new(ErrorKind::Unsupported, "copy", "it copies nothing by itself")),
    }
}

/// Pieces of a file, without any remembered ones.
async fn recipe(folder: &OpenFolder, key: &Key, version: Option<&Version>, cut: Chunking) -> Result<Recipe> {
    let cutter = Cutter::new(cut).map_err(|e| e.with_key(key))?;
    let read = folder.store.read(key, version, None).await?;
    let Body::File(file, range) = read.body else {
        let why = "it is no file that can be cut in pieces";
        return Err(Error::new(ErrorKind::Unsupported, "read", why).with_key(key));
    };
    let version = read.entry.version;
    let recipe = disk::run(move || pieces::cut(&file, range, cutter, version)).await.map_err(|e| e.with_key(key))?;
    if folder.store.stat(key).await?.version != recipe.version {
        return Err(Error::new(ErrorKind::Changed, "read", "changed while it was read").with_key(key));
    }
    Ok(recipe)
}

/// Hashes content where it lies.
async fn hash(folder: &OpenFolder, key: &Key, version: Option<&Version>, algos: &[Algo]) -> Result<Hashes> {
    let store = &folder.store;
    if let Some(hashing) = store.hashing() {
        match hashing.hash(key, version, algos).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            hashes => return hashes,
        }
    }
    let read = store.read(key, version, None).await?;
    let Body::File(file, range) = read.body else {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "hash",
            "its bytes come from nowhere that they can be read again",
        ));
    };
    let algos = algos.to_vec();
    let hashes = disk::run(move || {
        let mut hasher = Hasher::new(&algos);
        blocks::read(&file, range, |block| hasher.update(block))?;
        Ok(hasher.finish())
    });
    let hashes = hashes.await;
    // Also where it became shorter under the reader.
    if read.entry.version.is_some() && store.stat(key).await?.version != read.entry.version {
        return Err(Error::new(ErrorKind::Changed, "hash", "changed while it was read").with_key(key));
    }
    hashes
}
