//! Writing. A small file is one form: facts, then content. A large one uses an upload session, which sets the size of its
//! parts; they are sent in any order, several at once, each with its SHA-1, and stay invisible until the commit, which has the SHA-1 of the
//! whole. Parts of other sizes are cut anew: the rest of one is sent with the next.

use crate::{
    change::{self, matching},
    error,
    facts::{FIELDS, Item, ids, time},
    options::LEAST,
    service::{Service, folds},
    whole_hash::{HashedPart, WholeHash, is_mark},
};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use haul_core::{Algo, Error, ErrorKind, Hashes, Key, Mtime, Result, Retry, Version, hash::from_hex, plan::Replace};
use haul_net::{Fault, fault::told_to_wait};
use haul_oauth::{ServiceError, ServiceResult};
use haul_store::{
    Body, Direction, LateFacts, Part, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec,
    disk,
};
use http::{HeaderName, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::{OnceCell, watch};

/// The size of parts that the service says for most files.
pub const PART: u64 = 8 << 20;
/// The largest that it was seen to say.
pub const LARGEST: u64 = 64 << 20;
/// Bytes of unknown size (a pipe) are buffered in memory up to this size: a session must know the size before its first bytes.
const WAITS: u64 = 64 << 20;
/// Pieces of one part that are sent at once.
const AT_ONCE: usize = 8;
/// Parts of each page of what a session has.
const PAGE: usize = 1000;
/// Between two questions whether a file is put together, where the service doesn't say how long to wait.
const AGAIN: Duration = Duration::from_secs(5);

/// Target of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UploadTarget {
    /// A new one, in a folder.
    New { parent: String, name: String },
    /// The next version of one that is there; only if it has this tag, where one is given.
    Version { id: String, tag: Option<String> },
}

/// A part as the service knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    part_id: String,
    offset: u64,
    size: u64,
    sha1: String,
}

#[derive(Deserialize)]
struct PartResponse {
    part: Piece,
}

#[derive(Deserialize)]
struct Pieces {
    entries: Vec<Piece>,
}

/// A session, as the service describes it.
#[derive(Deserialize)]
struct UploadSession {
    id: String,
    part_size: u64,
}

/// Files that were made by an upload.
#[derive(Deserialize)]
struct UploadedFiles {
    entries: Vec<Item>,
}

/// A session, and what finds it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Session {
    /// The names of the file, from the root's folder on.
    path: Vec<String>,
    total: u64,
    id: String,
    /// Bytes of each part but the last.
    part: u64,
    /// The file that gets another version, and the tag that it must have.
    file: Option<String>,
    tag: Option<String>,
}

/// The receipt of a part: the SHA-1s of the service's parts that were sent with it, by their offsets, and the hash of the whole up to
/// its end.
#[derive(Serialize, Deserialize)]
struct Receipt {
    at: u64,
    size: u64,
    sent: Vec<(u64, String)>,
    mark: String,
}

/// A write.
pub struct Write {
    service: Arc<Service>,
    key: Key,
    spec: WriteSpec,
    session: OnceCell<Session>,
    /// A session was asked for, whatever the size.
    begun: AtomicBool,
    whole: WholeHash,
    /// Pieces that the session has, by offset.
    has: Mutex<BTreeMap<u64, Piece>>,
    /// Ends of parts, sent with the next part, by the offset where that begins.
    tails: Mutex<BTreeMap<u64, watch::Sender<Option<Bytes>>>>,
    /// Parts of a file that is uploaded in one request.
    held: Mutex<BTreeMap<u64, Payload>>,
    /// A request that would have shown the file was sent, and its outcome is unknown.
    maybe: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn digest(value: &[u8]) -> String {
    format!("sha={}", B64.encode(value))
}

async fn sha1(payload: &Payload, key: &Key) -> Result<Vec<u8>> {
    let hashes = payload.hash(&[Algo::Sha1]).await.map_err(|e| e.with_key(key))?;
    Ok(hashes.get(Algo::Sha1).unwrap_or_default().to_vec())
}

/// Pieces of memory, of whatever it is.
async fn in_memory(payload: &Payload) -> Result<Vec<Bytes>> {
    match payload.pieces() {
        Some(pieces) => Ok(pieces.to_vec()),
        None => {
            let payload = payload.clone();
            Ok(vec![disk::run(move || payload.concat()).await?.into()])
        }
    }
}

impl Write {
    /// Begins a write; sends nothing.
    ///
    /// Errors: `Invalid` for what can't be a file's name.
    pub fn begin(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<Write> {
        Write::resumed(service, key, spec, Vec::new())
    }

    fn resumed(service: Arc<Service>, key: &Key, spec: WriteSpec, known: Vec<HashedPart>) -> Result<Write> {
        if key.is_root() || key.is_dir() {
            return Err(Error::new(ErrorKind::Invalid, "write", "this can't be the name of a file").with_key(key));
        }
        service.names(&service.root, key)?;
        let (session, begun, has, tails, held, maybe) = Default::default();
        let (key, whole) = (key.clone(), WholeHash::new(known));
        Ok(Write { service, key, spec, session, begun, whole, has, tails, held, maybe })
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, "write", message).with_key(&self.key)
    }

    /// The size announced to a session; `None` for a write that waits until its size is known.
    fn total(&self) -> Option<u64> {
        let single = self.service.config.upload_cutoff;
        let least = match (self.spec.size_may_differ, self.begun.load(Relaxed)) {
            (true, _) => single.max(WAITS),
            (false, true) => LEAST - 1,
            (false, false) => single,
        };
        self.spec.size.filter(|size| *size > least)
    }

    /// The session, created on first use.
    async fn begun_session(&self) -> Result<Option<&Session>> {
        if !self.spec.size_may_differ && locked(&self.held).is_empty() {
            self.begun.store(true, Relaxed);
        }
        match self.total() {
            Some(total) => self.in_session(total).await.map(Some),
            None => Ok(None),
        }
    }

    async fn in_session(&self, total: u64) -> Result<&Session> {
        self.session.get_or_try_init(|| begin(&self.service, &self.key, &self.spec.replace, total)).await
    }

    async fn send(&self, index: u64, offset: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        let Some(total) = self.total() else {
            let mut held = locked(&self.held);
            let others: u64 = held.iter().filter(|(other, _)| **other != index).map(|(_, payload)| payload.len()).sum();
            if others + size > WAITS {
                let why =
                    "Box must be told the size of a file first: one whose size may differ can have 64 MiB at most";
                return Err(self.error(ErrorKind::Unsupported, why));
            }
            held.insert(index, payload);
            return Ok(Part { index, size, tag: Vec::new() });
        };
        let session = self.in_session(total).await?;
        let (sent, mark) = futures::try_join!(
            self.cut(session, offset, &payload),
            self.whole.take(offset, &payload).map(|mark| mark.map_err(|e| e.with_key(&self.key)))
        )?;
        // The next part has its own.
        locked(&self.tails).remove(&offset);
        let tag = serde_json::to_vec(&Receipt { at: offset, size, sent, mark: B64.encode(mark) }).unwrap_or_default();
        Ok(Part { index, size, tag })
    }

    fn tail(&self, at: u64) -> watch::Sender<Option<Bytes>> {
        locked(&self.tails).entry(at).or_insert_with(|| watch::channel(None).0).clone()
    }

    /// Sends what of the session's parts is whole with these bytes; gives their offsets and SHA-1s.
    async fn cut(&self, session: &Session, offset: u64, payload: &Payload) -> Result<Vec<(u64, String)>> {
        let end = offset + payload.len();
        if end > session.total {
            return Err(self.error(ErrorKind::Corrupt, "more bytes came than were announced"));
        }
        let first = offset / session.part * session.part;
        let has = |at: u64| locked(&self.has).contains_key(&at);
        // Bytes left by the part before, unless an earlier run has sent them.
        let mut head = Bytes::new();
        if first < offset && !has(first) {
            let mut left = self.tail(offset).subscribe();
            let stopped = |_| self.error(ErrorKind::Cancelled, "stopped");
            head = left.wait_for(Option::is_some).await.map_err(stopped)?.clone().unwrap_or_default();
        }
        let last = end / session.part * session.part;
        if last < end && end < session.total && !has(last) {
            let rest = in_memory(&payload.slice(last.max(offset) - offset..end - offset)).await?;
            let before = if last < offset { head.clone() } else { Bytes::new() };
            let left = std::iter::once(before).chain(rest).collect::<Vec<_>>().concat();
            self.tail(end).send_replace(Some(left.into()));
        }
        let starts = (first..end).step_by(usize::try_from(session.part).unwrap_or(usize::MAX));
        let whole = starts.map(|from| from..(from + session.part).min(session.total)).filter(|piece| piece.end <= end);
        let sending = whole.map(|piece| {
            let head = head.clone();
            async move {
                let bytes = payload.slice(piece.start.max(offset) - offset..piece.end - offset);
                if piece.start >= offset {
                    return self.piece(session, piece.start, bytes).await.map(Some);
                }
                if has(piece.start) {
                    return Ok(None);
                }
                let pieces = std::iter::once(head).chain(in_memory(&bytes).await?).collect();
                self.piece(session, piece.start, payload.with_pieces(pieces)).await.map(Some)
            }
        });
        let sent: Vec<_> = stream::iter(sending).buffered(AT_ONCE).try_collect().await?;
        Ok(sent.into_iter().flatten().collect())
    }

    /// Sends one of the session's parts, unless it is there.
    async fn piece(&self, session: &Session, offset: u64, payload: Payload) -> Result<(u64, String)> {
        let hash = sha1(&payload, &self.key).await?;
        let (ours, size) =
            (Hashes::default().with(Algo::Sha1, &hash).hex(Algo::Sha1).unwrap_or_default(), payload.len());
        let same =
            |piece: &Piece| piece.offset == offset && piece.size == size && piece.sha1.eq_ignore_ascii_case(&ours);
        let known = locked(&self.has).get(&offset).cloned();
        if let Some(known) = known {
            return match same(&known) {
                true => Ok((offset, ours)),
                false => Err(self.error(ErrorKind::Corrupt, "a part of the upload is there with other bytes")),
            };
        }
        let range = format!("bytes {offset}-{}/{}", offset + size - 1, session.total);
        let path = format!("/files/upload_sessions/{}", session.id);
        let call = self.service.upload("UploadPart", Method::PUT, &path);
        let call = call
            .header(header::CONTENT_RANGE, range)
            .header(HeaderName::from_static("digest"), digest(&hash))
            .body(Direction::Up, "application/octet-stream", payload);
        let piece = match self.service.api.json::<PartResponse>(&call).await {
            Ok(answered) => answered.part,
            // The answer to an earlier try was lost.
            Err(refused) if matches!(refused.fault.status, 409 | 416) => {
                let there =
                    parts_of(&self.service, &session.id).await.map_err(|refused| refused.at("write", &self.key))?;
                there.into_iter().find(&same).ok_or_else(|| refused.at("write", &self.key))?
            }
            Err(refused) => return Err(refused.at("write", &self.key)),
        };
        if !same(&piece) {
            let why = "the service has other bytes of a part than were sent";
            return Err(self.error(ErrorKind::Corrupt, why).with_retry(Retry::Backoff));
        }
        locked(&self.has).insert(offset, piece);
        Ok((offset, ours))
    }

    async fn finish(&self, mut parts: Vec<Part>, late: LateFacts) -> Result<StoredFacts> {
        parts.sort_by_key(|part| part.index);
        let bytes: u64 = parts.iter().map(|part| part.size).sum();
        if let Some(size) = self.spec.size.filter(|size| *size != bytes && !self.spec.size_may_differ) {
            let why = format!("{bytes} bytes came where {size} were announced");
            return Err(self.error(ErrorKind::Corrupt, why));
        }
        if let Some((missing, _)) = (0..).zip(&parts).find(|(index, part)| *index != part.index) {
            return Err(self.error(ErrorKind::Corrupt, format!("part {missing} of the upload is missing")));
        }
        let mtime = late.mtime.or(self.spec.mtime);
        let mut payload = None;
        if !self.session.initialized() {
            let held = self.joined().await?;
            if held.len() != bytes {
                let why = format!("{bytes} bytes came, of which {} are at hand", held.len());
                return Err(self.error(ErrorKind::Corrupt, why));
            }
            match bytes > self.service.config.upload_cutoff {
                true => {
                    let session = self.in_session(bytes).await?;
                    futures::try_join!(self.cut(session, 0, &held), self.whole.take(0, &held))?;
                }
                false => payload = Some(held),
            }
        }
        let hash = match &payload {
            Some(payload) => sha1(payload, &self.key).await?,
            None => {
                let hash = self.whole.finish(bytes).await;
                hash.ok_or_else(|| self.error(ErrorKind::Corrupt, "a part of the upload was never sent"))?
            }
        };
        let ours = Hashes::default().with(Algo::Sha1, &hash);
        let mut known = late.hashes;
        if !self.spec.size_may_differ {
            known.merge(&self.spec.hashes);
        }
        if let Some((algo, false)) = ours.agree(&known) {
            let why = format!("other bytes came than the source says that it has ({algo} differs)");
            return Err(self.error(ErrorKind::Corrupt, why));
        }
        if self.maybe.load(Relaxed)
            && let Some(item) = self.landed(bytes, &ours).await?
        {
            return self.stored(item, bytes, &ours, mtime).await;
        }
        let shown = match &payload {
            Some(payload) => self.put(payload, &hash, mtime).await,
            None => self.commit(bytes, &hash, mtime).await,
        };
        let item = match shown {
            Ok(item) => item,
            Err((error, ambiguous)) => {
                self.maybe.fetch_or(ambiguous, Relaxed);
                let gone = error.kind() == ErrorKind::NotFound && self.maybe.load(Relaxed);
                match gone {
                    true => self.landed(bytes, &ours).await?.ok_or(error)?,
                    false => return Err(error),
                }
            }
        };
        self.stored(item, bytes, &ours, mtime).await
    }

    /// Everything that waited, as one.
    async fn joined(&self) -> Result<Payload> {
        let held: Vec<Payload> = locked(&self.held).values().cloned().collect();
        let Some(first) = held.first() else { return Ok(Payload::default()) };
        if held.len() == 1 {
            return Ok(first.clone());
        }
        let mut pieces = Vec::new();
        for payload in &held {
            pieces.extend(in_memory(payload).await.map_err(|e| e.with_key(&self.key))?);
        }
        Ok(first.with_pieces(pieces))
    }

    /// Uploads a file in one request. The flag of an error says that it may have succeeded all the same.
    async fn put(&self, payload: &Payload, hash: &[u8], mtime: Option<Mtime>) -> Result<Item, (Error, bool)> {
        let content = in_memory(payload).await.map_err(|e| (e.with_key(&self.key), false))?;
        let (content, hex) = (&content, &haul_core::hash::to_hex(hash));
        let ask = |place: UploadTarget| async move {
            let (kind, path, mut facts, tag) = match place {
                UploadTarget::New { parent, name } => {
                    ("Upload", "/files/content".into(), json!({ "name": name, "parent": { "id": parent } }), None)
                }
                UploadTarget::Version { id, tag } => ("UploadVersion", format!("/files/{id}/content"), json!({}), tag),
            };
            if kind == "UploadVersion" {
                facts["name"] = self.service.leaf(&self.key).unwrap_or_default().into();
            }
            if let Some(time) = mtime.and_then(time) {
                facts["content_modified_at"] = time.into();
            }
            let (kept, form) = form(&facts.to_string(), content);
            let call = self.service.upload(kind, Method::POST, &format!("{path}?fields={FIELDS}"));
            let call = call
                .body(Direction::Up, "multipart/form-data", payload.with_pieces(form))
                .header(header::CONTENT_TYPE, format!("multipart/form-data; boundary={kept}"))
                // So it is called, and the SHA-1 it is.
                .header(HeaderName::from_static("content-md5"), hex);
            one(self.service.api.json(&matching(call, tag.as_deref())).await?)
        };
        choose(&self.service, &self.key, &self.spec.replace, ask).await
    }

    /// Has the service put the parts of the session together.
    async fn commit(&self, bytes: u64, hash: &[u8], mtime: Option<Mtime>) -> Result<Item, (Error, bool)> {
        let sure = |error| (error, false);
        let lost = |why: &str| sure(self.error(ErrorKind::Corrupt, why));
        let session = self.session.get().ok_or_else(|| lost("the upload was never begun"))?;
        if bytes != session.total {
            return Err(lost("another size came than was announced"));
        }
        let pieces: Vec<Piece> = locked(&self.has).values().cloned().collect();
        let ends = pieces.iter().try_fold(0, |at, piece| (piece.offset == at).then_some(at + piece.size));
        if ends != Some(bytes) {
            return Err(lost("a part of the upload was never sent"));
        }
        let mut question = json!({ "parts": pieces });
        if let Some(time) = mtime.and_then(time) {
            question["attributes"] = json!({ "content_modified_at": time });
        }
        let path = format!("/files/upload_sessions/{}/commit", session.id);
        let call = self.service.upload("Commit", Method::POST, &path).json(&question);
        let call = matching(call.header(HeaderName::from_static("digest"), digest(hash)), session.tag.as_deref());
        for _ in 0..self.service.config.commit_retries {
            let wait = match self.service.api.send(&call).await {
                Ok(reply) if reply.status == StatusCode::ACCEPTED => {
                    let wait = told_to_wait(&reply.headers);
                    // The rest of the answer carries nothing.
                    let _ = reply.bytes().await;
                    if wait.is_none()
                        && let Some(item) = self.unchanged(session, bytes, hash).await.map_err(|error| (error, true))?
                    {
                        return Ok(item);
                    }
                    wait.unwrap_or(AGAIN)
                }
                Ok(reply) => {
                    let body = reply.bytes().await.map_err(|fault| (fault.at("write", &self.key), true))?;
                    let made = serde_json::from_slice(&body)
                        .map_err(|e| Fault::broken(format!("the answer to a commit can't be understood: {e}")).into());
                    return made.and_then(one).map_err(|refused: ServiceError| (refused.at("write", &self.key), true));
                }
                // It hasn't seen the last parts yet.
                Err(refused) if refused.code == "parts_mismatch" => AGAIN,
                Err(refused) => return Err(failed(refused, &self.spec.replace, &self.key)),
            };
            tokio::time::sleep(wait).await;
        }
        let why = "Box doesn't get on with putting the parts together";
        Err((self.error(ErrorKind::Timeout, why).with_retry(Retry::Never), true))
    }

    /// The file that was to get another version, if it has these bytes already. Then the service makes none, and says no time to come
    /// back.
    async fn unchanged(&self, session: &Session, bytes: u64, hash: &[u8]) -> Result<Option<Item>> {
        let Some(id) = &session.file else { return Ok(None) };
        let item = self.service.file(id).await.map_err(|refused| refused.at("write", &self.key))?;
        let same = item.size() == Some(bytes) && item.hashes().get(Algo::Sha1) == Some(hash);
        let is_meant = session.tag.is_none() || session.tag == item.etag;
        if !same || !is_meant {
            return Ok(None);
        }
        if let Err(refused) = end(&self.service, &session.id).await {
            tracing::debug!(code = refused.code, "a session that made no version stays for a week");
        }
        Ok(Some(item))
    }

    /// The file when it is what we sent: an earlier try was done.
    async fn landed(&self, bytes: u64, ours: &Hashes) -> Result<Option<Item>> {
        let item = match self.service.at("write", &self.key).await {
            Ok(item) => item,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let same = item.size() == Some(bytes) && matches!(item.hashes().agree(ours), Some((_, true)));
        Ok((item.is_file() && same).then_some(item))
    }

    /// Verifies the stored file against the bytes sent. A differing one is removed.
    async fn stored(&self, mut item: Item, bytes: u64, ours: &Hashes, mtime: Option<Mtime>) -> Result<StoredFacts> {
        self.service.downloads.forget(&item.id);
        self.service.note_file(&self.key);
        let other = if item.size() != Some(bytes) {
            let size = item.size().map_or("an unknown number of".into(), |n| n.to_string());
            Some(format!("{size} bytes instead of {bytes}"))
        } else {
            item.hashes().agree(ours).filter(|(_, same)| !same).map(|(algo, _)| format!("another {algo}"))
        };
        if let Some(other) = other {
            let left = match change::undo_write(&self.service, &self.key, &item, mtime).await {
                Ok(()) => String::new(),
                Err(error) => format!("; it could not be taken back ({})", error.message()),
            };
            let error = self.error(ErrorKind::Corrupt, format!("the service has {other}{left}"));
            // A session has ended: it must be sent anew.
            return Err(if self.session.initialized() { error } else { error.with_retry(Retry::Backoff) });
        }
        if let Some(mtime) = mtime.filter(|mtime| item.mtime().is_none_or(|there| there.secs() != mtime.secs()))
            && let Some(time) = time(mtime)
        {
            let facts = json!({ "content_modified_at": time });
            let set = change::update(&self.service, &item.id, None, &facts).await;
            item = set.map_err(|refused| refused.at("write", &self.key))?;
        }
        Ok(StoredFacts { version: item.version(), size: bytes, hashes: item.hashes(), ..StoredFacts::default() })
    }
}

/// Facts and content as a form (RFC 7578), and the line that parts them, which is in neither.
fn form(facts: &str, content: &[Bytes]) -> (String, Vec<Bytes>) {
    let random = || RandomState::new().build_hasher().finish();
    let line = format!("haul-{:016x}{:016x}", random(), random());
    let head = format!(
        "--{line}\r\nContent-Disposition: form-data; name=\"attributes\"\r\nContent-Type: application/json\r\n\r\n{facts}\r\n--{line}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    let end = format!("\r\n--{line}--\r\n");
    (line, [&[Bytes::from(head)], content, &[Bytes::from(end)]].concat())
}

/// The one file that an upload made.
fn one(mut made: UploadedFiles) -> ServiceResult<Item> {
    match (made.entries.len(), made.entries.pop()) {
        (1, Some(item)) if item.is_file() => Ok(item),
        (count, _) => Err(Fault::broken(format!("the service tells of {count} files after an upload")).into()),
    }
}

fn failed(refused: ServiceError, replace: &Replace, key: &Key) -> (Error, bool) {
    let ambiguous = refused.fault.is_ambiguous();
    let exists = |kind, why: &str| (Error::new(kind, "write", why).with_key(key), ambiguous);
    match (replace, refused.fault.kind) {
        (Replace::Exactly(_), ErrorKind::Changed | ErrorKind::NotFound | ErrorKind::Exists) => {
            exists(ErrorKind::Changed, "changed since it was listed")
        }
        (Replace::Absent, ErrorKind::Exists) => exists(ErrorKind::Exists, "is there already"),
        // A session for a new file can't become a version of another: begin anew.
        (Replace::Anything, ErrorKind::Exists) => {
            exists(ErrorKind::NotFound, "another file of this name was written meanwhile")
        }
        _ => (refused.at("write", key), ambiguous),
    }
}

/// Requests a file at `key` under its condition. One that isn't known to exist under exactly this name is requested as a new one first;
/// the refusal says which item has the name. The flag of an error says that it may have succeeded.
async fn choose<T, A: Future<Output = ServiceResult<T>>>(
    service: &Service,
    key: &Key,
    replace: &Replace,
    ask: impl Fn(UploadTarget) -> A,
) -> Result<T, (Error, bool)> {
    let failed = |refused| failed(refused, replace, key);
    let sure = |error: Error| (error, false);
    let changed = || sure(Error::new(ErrorKind::Changed, "write", "changed since it was listed").with_key(key));
    if let Replace::Exactly(version) = replace {
        let (id, tag) = exactly(service, key, version).await.map_err(sure)?.ok_or_else(changed)?;
        return ask(UploadTarget::Version { id, tag: Some(tag) }).await.map_err(failed);
    }
    let (folder, name) = (key.parent(), service.leaf(key).map_err(sure)?);
    let parent = service.made(&folder, "write").await.map_err(sure)?;
    let known = match *replace == Replace::Anything && service.has_seen(key) {
        true => service.who(&parent, &name).await.map_err(failed)?,
        false => None,
    };
    let taken = match known {
        Some(taken) => taken,
        None => match ask(UploadTarget::New { parent: parent.clone(), name: name.clone() }).await {
            Err(refused) if refused.fault.kind == ErrorKind::Exists && *replace == Replace::Anything => {
                match error::taken(&refused) {
                    Some(taken) => taken,
                    None => service.who(&parent, &name).await.map_err(failed)?.ok_or_else(|| failed(refused))?,
                }
            }
            Err(refused) => {
                if refused.fault.kind == ErrorKind::NotFound {
                    // The folder is there no more.
                    service.forget_folder(&folder);
                }
                return Err(failed(refused));
            }
            done => return done.map_err(failed),
        },
    };
    let there = service.taker(&taken).await.map_err(failed)?;
    let exists = |why: String| sure(Error::new(ErrorKind::Exists, "write", why).with_key(key));
    if there.is_folder() {
        return Err(exists("is a directory".into()));
    }
    if there.name != name {
        return Err(exists(folds(&there.name)));
    }
    service.note_file(key);
    ask(UploadTarget::Version { id: there.id, tag: None }).await.map_err(failed)
}

/// Id and tag of the version that is to be replaced, if it is what has this name.
async fn exactly(service: &Service, key: &Key, version: &Version) -> Result<Option<(String, String)>> {
    let Some((id, tag)) = ids(version) else { return Ok(None) };
    let there = match service.at("write", key).await {
        Err(error) if error.is_missing() => return Ok(None),
        there => there?,
    };
    Ok((there.id == id).then(|| (id.to_owned(), tag.to_owned())))
}

/// A new session, with the folders above.
async fn begin(service: &Service, key: &Key, replace: &Replace, total: u64) -> Result<Session> {
    let ask = |place: UploadTarget| async move {
        let (path, question, file, tag) = match place {
            UploadTarget::New { parent, name } => {
                let question = json!({ "folder_id": parent, "file_name": name, "file_size": total });
                ("/files/upload_sessions".into(), question, None, None)
            }
            UploadTarget::Version { id, tag } => {
                (format!("/files/{id}/upload_sessions"), json!({ "file_size": total }), Some(id), tag)
            }
        };
        let call = service.upload("CreateSession", Method::POST, &path).json(&question);
        Ok((service.api.json::<UploadSession>(&call).await?, file, tag))
    };
    let (session, file, tag) = choose(service, key, replace, ask).await.map_err(|(error, _)| error)?;
    let is_id =
        !session.id.is_empty() && session.id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if !is_id || session.part_size == 0 {
        return Err(Fault::broken("the service says neither what the upload is called nor how long its parts are")
            .at("write", key));
    }
    let path = service.names(&service.root, key)?;
    Ok(Session { path, total, id: session.id, part: session.part_size, file, tag })
}

/// Pieces that a session has.
async fn parts_of(service: &Service, session: &str) -> ServiceResult<Vec<Piece>> {
    let mut all: Vec<Piece> = Vec::new();
    loop {
        let path = format!("/files/upload_sessions/{session}/parts?limit={PAGE}&offset={}", all.len());
        let page: Pieces = service.api.json(&service.upload("ListParts", Method::GET, &path)).await?;
        let Some(first) = page.entries.first() else { return Ok(all) };
        if all.contains(first) {
            return Err(Fault::broken("the service's list of parts does not advance").into());
        }
        all.extend(page.entries);
    }
}

/// The session of a token of this key.
///
/// Errors: `Invalid`.
fn named(service: &Service, key: &Key, token: &[u8]) -> Result<Session> {
    let wrong = || Error::new(ErrorKind::Invalid, "resume", "this isn't the token of a write to it").with_key(key);
    let session: Session = serde_json::from_slice(token).map_err(|_| wrong())?;
    match session.path == service.names(&service.root, key)? && session.part > 0 {
        true => Ok(session),
        false => Err(wrong()),
    }
}

/// See [`haul_store::Resumable::resume`]. A part is there when all of the session's parts are that it went in, with the hashes that they
/// had; the commit proves the whole.
pub async fn resume(
    service: &Arc<Service>,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    let session = named(service, key, token)?;
    let listed = parts_of(service, &session.id).await.map_err(|refused| refused.at("resume", key))?;
    let replaces = match &spec.replace {
        Replace::Exactly(version) => ids(version).map(|(id, tag)| (Some(id.to_owned()), Some(tag.to_owned()))),
        Replace::Absent => Some((None, None)),
        // A session is for a new file, or for one that is there: what has the name now?
        Replace::Anything => match service.at("resume", key).await {
            Ok(there) => Some((Some(there.id), None)),
            Err(error) if error.is_missing() => Some((None, None)),
            Err(error) => return Err(error),
        },
    };
    if Some(session.total) != spec.size || replaces != Some((session.file.clone(), session.tag.clone())) {
        return Err(Error::new(ErrorKind::Changed, "resume", "it was begun for something else").with_key(key));
    }
    let has: BTreeMap<u64, Piece> = listed
        .into_iter()
        .filter(|piece| {
            let end = (piece.offset.saturating_add(session.part)).min(session.total);
            piece.offset.is_multiple_of(session.part) && piece.offset.saturating_add(piece.size) == end
        })
        .map(|piece| (piece.offset, piece))
        .collect();
    let (mut parts, mut known) = (Vec::new(), Vec::new());
    for SentPart { part, offset, .. } in sent {
        let Ok(receipt) = serde_json::from_slice::<Receipt>(&part.tag) else { continue };
        let Ok(mark) = B64.decode(&receipt.mark) else { continue };
        let end = offset.saturating_add(part.size);
        if (receipt.at, receipt.size) != (offset, part.size) || part.size == 0 || !is_mark(&mark) || end > session.total
        {
            continue;
        }
        let sent_hash = |at: &u64| receipt.sent.iter().find(|(sent, _)| sent == at).map(|(_, sha1)| sha1);
        let step = usize::try_from(session.part).unwrap_or(usize::MAX);
        let there = (offset / session.part * session.part..end).step_by(step).all(|at| {
            has.get(&at).is_some_and(|piece| sent_hash(&at).is_none_or(|sha1| from_hex(sha1) == from_hex(&piece.sha1)))
        });
        if there {
            known.push(HashedPart { from: offset, end, mark });
            parts.push(part);
        }
    }
    let write = Write::resumed(service.clone(), key, spec, known)?;
    write.begun.store(true, Relaxed);
    *locked(&write.has) = has;
    // The cell is new.
    let _ = write.session.set(session);
    Ok((Box::new(write), parts))
}

/// Ends a session; false where it has ended already.
async fn end(service: &Service, session: &str) -> ServiceResult<bool> {
    let call = service.upload("AbortSession", Method::DELETE, &format!("/files/upload_sessions/{session}"));
    match service.api.ask(&call).await {
        Ok(_) => Ok(true),
        Err(refused) if refused.fault.kind == ErrorKind::NotFound => Ok(false),
        Err(refused) => Err(refused),
    }
}

/// See [`haul_store::Resumable::discard`].
pub async fn discard(service: &Service, key: &Key, token: &[u8]) -> Result<bool> {
    let session = named(service, key, token)?;
    end(service, &session.id).await.map_err(|refused| refused.at("discard", key))
}

impl Upload for Write {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async move { Ok(self.begun_session().await?.and_then(|session| serde_json::to_vec(session).ok())) }.boxed()
    }

    fn part_size(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        async move { Ok(self.begun_session().await?.map(|session| session.part)) }.boxed()
    }

    fn read_back(&self, _: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let message = "what was sent can't be read before it is published";
        async move { Err(self.error(ErrorKind::Unsupported, message)) }.boxed()
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        self.send(index, offset, payload).boxed()
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        async move {
            match self.finish(parts, late).await {
                Ok(stored) => Ok(stored),
                Err(error) => Err(Unpublished { error, upload: self }),
            }
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            match self.session.get() {
                Some(session) => {
                    let ended = end(&self.service, &session.id).await;
                    ended.map(|_| ()).map_err(|refused| refused.at("abort", &self.key))
                }
                None => Ok(()),
            }
        }
        .boxed()
    }
}
