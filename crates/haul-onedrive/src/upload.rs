//! Writing. A file with an mtime uses an upload session even when it is small: setting the time afterwards makes another version
//! on OneDrive for Business and SharePoint. A session shows its file with the last byte, so the end of a large one is held back until
//! the publish.

use crate::{
    change,
    conditions::choose,
    options::GRANULE,
    service::{Item, Service, folds, time, times},
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Algo, Error, ErrorKind, Hashes, Key, Mtime, Result, Retry, hash, plan::Replace};
use haul_net::Fault;
use haul_oauth::{Call, ServiceError, ServiceResult};
use haul_store::{
    Body, Direction, LateFacts, Part, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec,
    in_order::{InOrder, Session},
};
use http::{Method, header};
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::sync::OnceCell;

/// The largest file sent by a plain PUT, where there is no time to keep.
const PLAIN: u64 = 4 << 20;
/// Bytes of unknown size (a pipe) are buffered in memory up to this size: a session must know the size with its first bytes.
const WAITS: u64 = 64 << 20;

/// A session of the service.
struct Open {
    service: Arc<Service>,
    key: Key,
    url: String,
    total: u64,
    /// The file, when the service has all of it.
    whole: Mutex<Option<Item>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    #[serde(default)]
    next_expected_ranges: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UploadSession {
    upload_url: String,
}

impl Open {
    fn whole(&self) -> MutexGuard<'_, Option<Item>> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the service has, from an answer.
    fn bytes_received(&self, body: &[u8]) -> ServiceResult<u64> {
        let expected: Expected = serde_json::from_slice(body)
            .map_err(|e| Fault::broken(format!("the answer about an upload can't be understood: {e}")))?;
        let Some(first) = expected.next_expected_ranges.first() else { return Ok(self.total) };
        let from = first.split('-').next().and_then(|from| from.trim().parse().ok());
        let from = from.filter(|from| *from <= self.total);
        from.ok_or_else(|| Fault::broken(format!("the service expects bytes {first:?} of {}", self.total)).into())
    }

    async fn put(&self, offset: u64, payload: Payload) -> ServiceResult<u64> {
        let end = offset + payload.len();
        let range = format!("bytes {offset}-{}/{}", end.saturating_sub(1), self.total);
        let call = Call::new("range", Method::PUT, &self.url).anonymous().header(header::CONTENT_RANGE, range).body(
            Direction::Up,
            "application/octet-stream",
            payload,
        );
        let reply = self.service.api.send(&call).await?;
        let status = reply.status.as_u16();
        let body = reply.bytes().await?;
        if status == 202 {
            return self.bytes_received(&body);
        }
        let item: Item = serde_json::from_slice(&body)
            .map_err(|e| Fault::broken(format!("the answer to an upload can't be understood: {e}")))?;
        let item = self.service.shown(&self.key, item).map_err(|error| Fault::broken(error.message()))?;
        *self.whole() = Some(item);
        Ok(self.total)
    }

    async fn ask(&self) -> ServiceResult<u64> {
        let call = Call::new("status", Method::GET, &self.url).anonymous();
        let body = self.service.api.ask(&call).await?;
        self.bytes_received(&body)
    }

    /// True when there was one to remove.
    async fn remove(&self) -> Result<bool> {
        let call = Call::new("cancel", Method::DELETE, &self.url).anonymous();
        match self.service.api.ask(&call).await {
            Ok(_) => Ok(true),
            Err(refused) if refused.fault.kind == ErrorKind::NotFound => Ok(false),
            Err(refused) => Err(refused.at("abort", &self.key)),
        }
    }
}

impl Session for Open {
    fn append(&self, offset: u64, payload: Payload, _: bool) -> BoxFuture<'_, Result<u64>> {
        async move {
            // All of it is there already, and an earlier answer said so.
            if self.whole().is_some() {
                return Ok(self.total);
            }
            match self.put(offset, payload).await {
                // It has other bytes than we thought.
                Err(refused) if refused.fault.status == 416 => self.has().await,
                other => other.map_err(|refused| refused.at("write", &self.key)),
            }
        }
        .boxed()
    }

    fn has(&self) -> BoxFuture<'_, Result<u64>> {
        async move {
            if self.whole().is_some() {
                return Ok(self.total);
            }
            self.ask().await.map_err(|refused| refused.at("write", &self.key))
        }
        .boxed()
    }
}

/// A write.
pub struct Write {
    service: Arc<Service>,
    key: Key,
    spec: WriteSpec,
    session: OnceCell<InOrder<Open>>,
    /// Parts of a file that is sent in one request.
    held: Mutex<BTreeMap<u64, Payload>>,
    /// A request that would have shown the file was sent, and its outcome is unknown.
    maybe: AtomicBool,
}

impl Write {
    /// Begins a write; sends nothing.
    ///
    /// Errors: `Invalid` for what can't be a file's name.
    pub fn begin(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<Write> {
        if key.is_root() || key.is_dir() {
            return Err(Error::new(ErrorKind::Invalid, "write", "this can't be the name of a file").with_key(key));
        }
        service.path(key)?;
        let (session, held, maybe) = Default::default();
        Ok(Write { service, key: key.clone(), spec, session, held, maybe })
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, Payload>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, "write", message).with_key(&self.key)
    }

    /// The size announced to a session; `None` for a write that waits until its size is known.
    fn total(&self) -> Option<u64> {
        let single = self.service.config.single;
        self.spec.size.filter(|size| *size > if self.spec.size_may_differ { single.max(WAITS) } else { single })
    }

    async fn in_session(&self, total: u64) -> Result<&InOrder<Open>> {
        let begin = || async {
            let mtime = self.spec.mtime;
            let url = begin(&self.service, &self.key, &self.spec.replace, mtime).await?;
            let open = self.open(url, total);
            Ok(InOrder::new(open, Some(total), 0, GRANULE))
        };
        self.session.get_or_try_init(begin).await
    }

    fn open(&self, url: String, total: u64) -> Open {
        Open { service: self.service.clone(), key: self.key.clone(), url, total, whole: Mutex::default() }
    }

    async fn send(&self, index: u64, offset: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        let Some(total) = self.total() else {
            let mut held = self.held();
            let others: u64 = held.iter().filter(|(other, _)| **other != index).map(|(_, payload)| payload.len()).sum();
            if others + size > WAITS.max(self.service.config.single) {
                let why =
                    "OneDrive must be told the size of a file first: one whose size may differ can have 64 MiB at most";
                return Err(self.error(ErrorKind::Unsupported, why));
            }
            held.insert(index, payload);
            return Ok(Part { index, size, tag: Vec::new() });
        };
        // Hashed now, while the reader of the source still checks that it doesn't change.
        let hashes = payload.hash(&[Algo::QuickXor]).await.map_err(|e| e.with_key(&self.key))?;
        let tag = hashes.get(Algo::QuickXor).unwrap_or_default().to_vec();
        let sent = self.in_session(total).await?.part(index, offset, payload).await;
        let part = sent.map_err(|e| e.with_key(&self.key))?;
        Ok(Part { tag, ..part })
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
        let in_session = self.session.initialized() && self.held().is_empty();
        let (hash, payload) = match in_session {
            true => {
                let tags = parts.iter().map(|part| (Some(&part.tag[..]), part.size));
                let hash = hash::combine(Algo::QuickXor, tags);
                let hash = hash.ok_or_else(|| self.error(ErrorKind::Corrupt, "a part of the upload was never sent"))?;
                (hash, Payload::default())
            }
            false => {
                let payload = self.joined().await?;
                if payload.len() != bytes {
                    let why = format!("{bytes} bytes came, of which {} are at hand", payload.len());
                    return Err(self.error(ErrorKind::Corrupt, why));
                }
                let hashes = payload.hash(&[Algo::QuickXor]).await.map_err(|e| e.with_key(&self.key))?;
                (hashes.get(Algo::QuickXor).unwrap_or_default().to_vec(), payload)
            }
        };
        let ours = Hashes::default().with(Algo::QuickXor, &hash);
        let mut known = late.hashes;
        if !self.spec.size_may_differ {
            known.merge(&self.spec.hashes);
        }
        if let Some((algo, false)) = ours.agree(&known) {
            let why = format!("other bytes came than the source says that it has ({algo} differs)");
            return Err(self.error(ErrorKind::Corrupt, why));
        }
        let landed = if self.maybe.load(Relaxed) { self.landed(bytes, &ours, mtime).await? } else { None };
        let item = match landed {
            Some(item) => item,
            None => {
                let shown = if in_session { self.end(bytes).await } else { self.put(payload, mtime).await };
                match shown {
                    Ok(item) => item,
                    Err((error, ambiguous)) => {
                        self.maybe.fetch_or(ambiguous, Relaxed);
                        let gone = error.kind() == ErrorKind::NotFound && self.maybe.load(Relaxed);
                        match gone {
                            true => self.landed(bytes, &ours, mtime).await?.ok_or(error)?,
                            false => return Err(self.clash(error).await),
                        }
                    }
                }
            }
        };
        self.stored(item, bytes, &ours, mtime).await
    }

    /// Everything that waited, as one.
    async fn joined(&self) -> Result<Payload> {
        let held: Vec<Payload> = self.held().values().cloned().collect();
        let mut held = held.into_iter();
        let Some(first) = held.next() else { return Ok(Payload::default()) };
        let mut rest = held.peekable();
        if rest.peek().is_none() {
            return Ok(first);
        }
        let mut pieces = Vec::new();
        for payload in std::iter::once(first.clone()).chain(rest) {
            match payload.pieces() {
                Some(own) => pieces.extend(own.iter().cloned()),
                None => pieces.push(payload.concat().map_err(|e| e.with_key(&self.key))?.into()),
            }
        }
        Ok(first.with_pieces(pieces))
    }

    /// Sends the last bytes of a session. The flag of an error says that it may have succeeded all the same.
    async fn end(&self, bytes: u64) -> Result<Item, (Error, bool)> {
        let lost = |why: &str| (self.error(ErrorKind::Corrupt, why), false);
        let session = self.session.get().ok_or_else(|| lost("the upload was never begun"))?;
        if bytes != session.session.total {
            return Err(lost("another size came than was announced"));
        }
        // Any answer but a whole file leaves it open whether the service has the last bytes.
        session.finish(bytes).await.map_err(|error| (error.with_key(&self.key), true))?;
        let whole = session.session.whole().clone();
        whole.ok_or_else(|| lost("the service has all bytes and shows no file"))
    }

    /// A file by one request, or with its session by two.
    async fn put(&self, payload: Payload, mtime: Option<Mtime>) -> Result<Item, (Error, bool)> {
        let sure = |error| (error, false);
        if payload.is_empty() || mtime.is_none() && payload.len() <= PLAIN {
            let item = self.put_plain(&payload).await?;
            // Nobody minds a second version of nothing.
            return match mtime {
                Some(mtime) => change::patch(&self.service, &self.key, &item.id, mtime).await.map_err(sure),
                None => Ok(item),
            };
        }
        let url = begin(&self.service, &self.key, &self.spec.replace, mtime).await.map_err(sure)?;
        let total = payload.len();
        let session = InOrder::new(self.open(url, total), Some(total), 0, 0);
        let mut at = 0;
        for index in 0.. {
            let end = (at + self.service.config.chunk_size).min(total);
            let sent = session.part(index, at, payload.slice(at..end)).await;
            sent.map_err(|error| (error.with_key(&self.key), end == total))?;
            if end == total {
                break;
            }
            at = end;
        }
        let whole = session.session.whole().clone();
        whole.ok_or_else(|| sure(self.error(ErrorKind::Corrupt, "the service has all bytes and shows no file")))
    }

    async fn put_plain(&self, payload: &Payload) -> Result<Item, (Error, bool)> {
        let (service, key) = (&self.service, &self.key);
        service.make_dir(&key.parent(), "write").await.map_err(|error| (error, false))?;
        let ask = |conflict: &'static str, tag: Option<String>| async move {
            let address = service.address("write", key, "/content").await.map_err(|error| (error, false))?;
            let question = format!("{address}?@microsoft.graph.conflictBehavior={conflict}");
            let call = conditional(Call::new("put", Method::PUT, question), tag);
            let call = call.body(Direction::Up, "application/octet-stream", payload.clone());
            let put = service.api.json::<Item>(&call).await;
            put.map(|item| service.found(&address, item)).map_err(|refused| failed(refused, &self.spec.replace, key))
        };
        choose(service, key, &self.spec.replace, ask).await
    }

    /// The file when it is what we sent: an earlier try was done.
    async fn landed(&self, bytes: u64, ours: &Hashes, mtime: Option<Mtime>) -> Result<Option<Item>> {
        let item = match self.service.at("write", &self.key).await {
            Ok(item) => item,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let same_time = mtime.is_none_or(|mtime| item.mtime().is_some_and(|there| there.secs() == mtime.secs()));
        let same = item.size == Some(bytes) && matches!(item.hashes().agree(ours), Some((_, true))) && same_time;
        Ok(same.then_some(item))
    }

    /// Why a file couldn't show that was asked for as a new one: another came between.
    async fn clash(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Exists || self.spec.replace != Replace::Anything {
            return error;
        }
        match (self.service.at("write", &self.key).await, self.service.leaf(&self.key)) {
            (Ok(there), _) if there.is_folder() => self.error(ErrorKind::Exists, "is a directory"),
            (Ok(there), Ok(leaf)) if there.name != leaf => self.error(ErrorKind::Exists, folds(&there.name)),
            (Ok(_), _) => {
                self.service.saw(&self.key);
                let why = "another file of this name was written meanwhile";
                self.error(ErrorKind::Io, why).with_retry(Retry::Backoff)
            }
            _ => error,
        }
    }

    /// The error for content that differs from the bytes sent. It is removed where the next run would take it, by its size, for the right
    /// one.
    async fn refused(&self, item: Item, bytes: u64, other: String, mtime: Option<Mtime>) -> Error {
        let is_rewritten = is_rewritten(self.key.name());
        let stays = is_rewritten && item.size != Some(bytes);
        let taken = if stays { Ok(()) } else { change::undo_write(&self.service, &self.key, &item, mtime).await };
        let left = match taken {
            Ok(()) => String::new(),
            Err(error) => format!("; it could not be taken back ({})", error.message()),
        };
        if is_rewritten {
            // It would be so each time.
            let why = format!(
                "the service has {other}: SharePoint writes into Office and HTML files what it knows of them. Copy these with --ignore-size and --ignore-checksum{left}"
            );
            return self.error(ErrorKind::Unsupported, why);
        }
        let error = self.error(ErrorKind::Corrupt, format!("the service has {other}{left}"));
        match self.session.get() {
            // The session has ended: it must be sent anew.
            Some(session) => {
                session.session.whole().take();
                error
            }
            None => error.with_retry(Retry::Backoff),
        }
    }

    /// Verifies the stored file against the bytes sent.
    async fn stored(&self, mut item: Item, bytes: u64, ours: &Hashes, mtime: Option<Mtime>) -> Result<StoredFacts> {
        self.service.downloads.forget(&item.id);
        self.service.saw(&self.key);
        let theirs = item.hashes();
        let other = if item.size != Some(bytes) {
            Some(format!(
                "{} bytes instead of {bytes}",
                item.size.map_or("an unknown number of".into(), |n| n.to_string())
            ))
        } else {
            theirs.agree(ours).filter(|(_, same)| !same).map(|(algo, _)| format!("another {algo}"))
        };
        if let Some(other) = other.filter(|_| !self.spec.size_may_differ) {
            return Err(self.refused(item, bytes, other, mtime).await);
        }
        // A time that was learnt only as the bytes passed.
        if let Some(mtime) = mtime.filter(|mtime| item.mtime().is_none_or(|there| there.secs() != mtime.secs())) {
            item = change::patch(&self.service, &self.key, &item.id, mtime).await?;
        }
        if self.service.config.no_versions {
            change::remove_versions(&self.service, &self.key, &item.id).await?;
        }
        let hashes = if theirs.is_empty() { Hashes::default() } else { theirs };
        Ok(StoredFacts { version: item.version(), size: bytes, hashes, ..StoredFacts::default() })
    }
}

/// SharePoint may write into such a file.
fn is_rewritten(name: &[u8]) -> bool {
    const ENDINGS: [&str; 22] = [
        "doc", "docm", "docx", "dot", "dotm", "dotx", "xls", "xlsb", "xlsm", "xlsx", "xltx", "ppt", "pptm", "pptx",
        "potx", "ppsx", "one", "vsd", "vsdx", "htm", "html", "aspx",
    ];
    let ending = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
    ENDINGS.iter().any(|known| known.as_bytes() == ending)
}

fn conditional(call: Call, tag: Option<String>) -> Call {
    match tag {
        Some(tag) => call.header(header::IF_MATCH, tag),
        None => call,
    }
}

fn failed(refused: ServiceError, replace: &Replace, key: &Key) -> (Error, bool) {
    let ambiguous = refused.fault.is_ambiguous();
    let unmet = matches!(refused.fault.kind, ErrorKind::Changed | ErrorKind::NotFound | ErrorKind::Exists);
    match replace {
        Replace::Exactly(_) if unmet => {
            (Error::new(ErrorKind::Changed, "write", "changed since it was listed").with_key(key), ambiguous)
        }
        _ => (refused.at("write", key), ambiguous),
    }
}

/// The address of a new session, with the folders above.
async fn begin(service: &Service, key: &Key, replace: &Replace, mtime: Option<Mtime>) -> Result<String> {
    service.make_dir(&key.parent(), "write").await?;
    let ask = |conflict: &'static str, tag: Option<String>| async move {
        let address = service.address("write", key, "/createUploadSession").await.map_err(|error| (error, false))?;
        let mut item = json!({"@microsoft.graph.conflictBehavior": conflict});
        if let Some(mtime) = mtime {
            item["fileSystemInfo"] = times(mtime);
        }
        let call = conditional(Call::new("session", Method::POST, address).json(&json!({"item": item})), tag);
        service.api.json::<UploadSession>(&call).await.map_err(|refused| failed(refused, replace, key))
    };
    let begun = choose(service, key, replace, ask).await.map_err(|(error, _)| error)?;
    Ok(begun.upload_url)
}

/// Resume token: the facts that a session was begun with, and its address, in a line each.
fn token(service: &Service, key: &Key, total: u64, mtime: Option<Mtime>, url: &str) -> Result<String> {
    let time = mtime.map(time).unwrap_or_default();
    Ok(format!("{}\n{total}\n{time}\n{url}", service.path(key)?))
}

/// The session of a token of this key.
///
/// Errors: `Invalid`.
fn named(service: &Arc<Service>, key: &Key, bytes: &[u8]) -> Result<(Open, String)> {
    let wrong = || Error::new(ErrorKind::Invalid, "resume", "this isn't the token of a write to it").with_key(key);
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    let mut lines = text.splitn(4, '\n');
    let mut next = || lines.next().ok_or_else(wrong);
    let (address, total, time, url) = (next()?, next()?, next()?, next()?);
    if address != service.path(key)? {
        return Err(wrong());
    }
    let total = total.parse().map_err(|_| wrong())?;
    let (url, time) = (url.to_owned(), time.to_owned());
    Ok((Open { service: service.clone(), key: key.clone(), url, total, whole: Mutex::default() }, time))
}

/// See [`haul_store::Resumable::resume`].
pub async fn resume(
    service: &Arc<Service>,
    key: &Key,
    bytes: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    let (open, begun_for) = named(service, key, bytes)?;
    let has = open.ask().await.map_err(|refused| refused.at("resume", key))?;
    if Some(open.total) != spec.size || spec.mtime.map(time).unwrap_or_default() != begun_for {
        return Err(Error::new(ErrorKind::Changed, "resume", "it was begun for something else").with_key(key));
    }
    let total = open.total;
    let write = Write::begin(service.clone(), key, spec)?;
    let tags = sent.iter().map(|sent| (sent.part.index, sent.part.tag.clone()));
    // Without the hash of a part there is none of the whole.
    let tags: BTreeMap<u64, Vec<u8>> = tags.filter(|(_, tag)| tag.len() == Algo::QuickXor.size()).collect();
    let proved = InOrder::<Open>::proved(sent, has);
    let parts =
        proved.into_iter().filter_map(|part| Some(Part { tag: tags.get(&part.index)?.clone(), ..part })).collect();
    // It is new, so nothing else has set it.
    let _ = write.session.set(InOrder::new(open, Some(total), has, GRANULE));
    Ok((Box::new(write), parts))
}

/// See [`haul_store::Resumable::discard`].
pub async fn discard(service: &Arc<Service>, key: &Key, bytes: &[u8]) -> Result<bool> {
    named(service, key, bytes)?.0.remove().await
}

impl Upload for Write {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async move {
            let Some(total) = self.total() else { return Ok(None) };
            let session = self.in_session(total).await?;
            let url = &session.session.url;
            Ok(Some(token(&self.service, &self.key, total, self.spec.mtime, url)?.into_bytes()))
        }
        .boxed()
    }

    fn read_back(&self, _: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let message = "what was sent can't be read before it is published";
        async move { Err(Error::new(ErrorKind::Unsupported, "read", message).with_key(&self.key)) }.boxed()
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
                Some(session) => session.session.remove().await.map(|_| ()),
                None => Ok(()),
            }
        }
        .boxed()
    }
}
