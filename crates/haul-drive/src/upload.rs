//! Writing: one request for a small file, else a session that takes bytes in order. A file is visible with its last byte, so the last
//! bytes are held back until the publish. A new file gets its id in advance, so that no retry makes two files of it.

use crate::{
    facts::{File, time},
    placement::{UploadedFile, allowed},
    service::Service,
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Algo, Error, ErrorKind, Hashes, Key, Mtime, Result, Retry};
use haul_net::at;
use haul_oauth::{
    Call, ServiceError, ServiceResult,
    google::{FileFacts as _, GRANULE, Pieces, RELATED, forget, is_at, open_session, related},
    plain,
};
use haul_store::{
    Body, Direction, LateFacts, Part, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec,
    ids::Root,
    in_order::{InOrder, Session as _},
};
use http::{HeaderName, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::sync::OnceCell;

/// The receipt of a part that is held back and not yet sent.
const HELD: &[u8] = b"held";
/// In nanoseconds.
const DAY: i128 = 86_400_000_000_000;

/// A write.
pub struct Write {
    service: Arc<Service>,
    key: Key,
    name: String,
    spec: WriteSpec,
    /// The id of the file, if it is new.
    id: OnceCell<String>,
    /// The file that the session writes.
    target: OnceCell<WriteTarget>,
    /// The session of a write in pieces, when there is one.
    pieces: OnceCell<InOrder<Pieces<File>>>,
    /// Pieces are asked for, or were sent by an earlier run.
    begun: AtomicBool,
    /// The only part of a small file.
    held: Mutex<Option<Payload>>,
}

/// Contents of a resume token.
#[derive(Serialize, Deserialize)]
struct Token {
    /// The root and the key.
    root: Root,
    key: Vec<u8>,
    session: String,
    /// The file's id.
    id: String,
    /// It replaces one.
    over: bool,
    /// The folder.
    #[serde(default)]
    parent: String,
}

/// Target of a write.
#[derive(Clone, Debug)]
struct WriteTarget {
    /// The file that it replaces.
    before: Option<File>,
    /// The folder and name of a new one, and its id.
    parent: String,
    name: String,
    id: String,
}

impl WriteTarget {
    fn id(&self) -> &str {
        self.before.as_ref().map_or(&self.id, |before| &before.id)
    }
}

/// Verifies the service's facts against the bytes sent.
///
/// Errors: `Corrupt`.
pub fn settled(file: &File, size: Option<u64>, ours: &Hashes, key: &Key) -> Result<StoredFacts> {
    let corrupt = |message: String| Err(Error::new(ErrorKind::Corrupt, "write", message).with_key(key));
    let hashes = file.hashes();
    match hashes.agree(ours) {
        Some((algo, false)) => return corrupt(format!("Google has other bytes than were sent ({algo} differs)")),
        _ if file.size() != size => {
            return corrupt(format!("Google has {:?} bytes where {size:?} were sent", file.size()));
        }
        _ => {}
    }
    match file.version() {
        Some(version) => {
            Ok(StoredFacts { version: Some(version), size: size.unwrap_or_default(), hashes, ..StoredFacts::default() })
        }
        None => corrupt("Google gave neither a revision nor a checksum".into()),
    }
}

impl Write {
    /// Begins a write; sends nothing.
    ///
    /// Errors: `Invalid` for what can't be a file's name.
    pub fn begin(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<Write> {
        if key.is_root() || key.is_dir() {
            return Err(Error::new(ErrorKind::Invalid, "write", "this can't be the name of a file").with_key(key));
        }
        let name = service.name(key)?;
        service.may_write("write", key)?;
        // Each folder on the way must be possible too.
        for (at, _) in key.as_bytes().iter().enumerate().filter(|(_, b)| **b == b'/') {
            service.name(&Key::new(&key.as_bytes()[..=at]))?;
        }
        Ok(Write {
            service,
            key: key.clone(),
            name,
            spec,
            id: OnceCell::new(),
            target: OnceCell::new(),
            pieces: OnceCell::new(),
            begun: AtomicBool::default(),
            held: Mutex::default(),
        })
    }

    /// Finds the file to replace, or the folder for a new one.
    async fn aim(&self) -> Result<WriteTarget> {
        let parent = self.service.made(&self.key.parent()).await?;
        let before = allowed(&self.service, &parent, &self.name, &self.key, &self.spec.replace, "").await;
        let id = match &before {
            Ok(Some(_)) => String::new(),
            _ => self.id.get_or_try_init(|| self.service.new_id(&self.key)).await?.clone(),
        };
        Ok(WriteTarget { before: before?, parent, name: self.name.clone(), id })
    }

    fn held(&self) -> MutexGuard<'_, Option<Payload>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn corrupt(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, "write", message).with_key(&self.key)
    }

    fn size(&self) -> Option<u64> {
        self.spec.size.filter(|_| !self.spec.size_may_differ)
    }

    /// A first part of this size may turn out to be the only one; one that isn't a multiple is the last.
    fn may_hold(&self, len: u64) -> bool {
        self.size().is_none_or(|size| size == len || !len.is_multiple_of(GRANULE))
            && len <= self.service.config.upload_cutoff
    }

    async fn pieces(&self) -> Result<&InOrder<Pieces<File>>> {
        let open = async || {
            let target = self.target.get_or_try_init(|| self.aim()).await?;
            let url = self.open_session(target).await.map_err(|refused| self.refused(refused))?;
            Ok(InOrder::new(self.session(url), self.size(), 0, GRANULE))
        };
        self.begun.store(true, Relaxed);
        self.pieces.get_or_try_init(open).await
    }

    fn refused(&self, refused: ServiceError) -> Error {
        if refused.fault.kind == ErrorKind::NotFound {
            // The folder was deleted meanwhile: the next try creates it again.
            self.service.dirs.forget(&self.key.parent());
            return Error::new(ErrorKind::Io, "write", "the folder has gone")
                .with_retry(Retry::Backoff)
                .with_key(&self.key);
        }
        if refused.fault.status == 409 {
            // The id is new, so an earlier try was done: the next one finds it.
            let message = "the answer to an earlier try was lost";
            return Error::new(ErrorKind::Io, "write", message).with_retry(Retry::Backoff).with_key(&self.key);
        }
        refused.at("write", &self.key)
    }

    fn session(&self, url: String) -> Pieces<File> {
        Pieces::new(self.service.api.clone(), self.key.clone(), url, self.size())
    }

    fn request(&self, kind: &'static str, target: &WriteTarget, how: &str) -> Call {
        match &target.before {
            Some(before) => self.service.upload(kind, Method::PATCH, &format!("/files/{}", before.id), how),
            None => self.service.upload(kind, Method::POST, "/files", how),
        }
    }

    async fn open_session(&self, target: &WriteTarget) -> ServiceResult<String> {
        let mut call = self.request("BeginUpload", target, "resumable").json(&self.facts(target, self.spec.mtime));
        if let Some(size) = self.size() {
            call = call.header(HeaderName::from_static("x-upload-content-length"), size.to_string());
        }
        open_session(&self.service.api, &call).await
    }

    fn facts(&self, target: &WriteTarget, mtime: Option<Mtime>) -> Value {
        let mut facts = json!({});
        if target.before.is_none() {
            let mime = mime_guess::from_path(&target.name).first_or_octet_stream().to_string();
            facts = json!({ "id": target.id, "name": target.name, "parents": [target.parent], "mimeType": mime });
        }
        if let Some(time) = mtime.and_then(time) {
            facts["modifiedTime"] = time.into();
        }
        facts
    }

    async fn send(&self, index: u64, offset: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        if index == 0 && !self.begun.load(Relaxed) && self.may_hold(size) {
            // Hashed now, while the reader of the source still checks that it doesn't change.
            let lane = self.service.api.lanes.lane(Direction::Up);
            let hashes = payload.hash_at(&[Algo::Md5], &|| lane.is_full()).await.map_err(|e| e.with_key(&self.key))?;
            *self.held() = Some(payload.with_hashes(hashes));
            if self.begun.load(Relaxed) {
                // The next part came meanwhile, found nothing to be sent before it, and waits for this one.
                self.release().await?;
            }
            return Ok(Part { index, size, tag: HELD.into() });
        }
        if index > 0 {
            // Set first: a part held back after this is sent by its own caller.
            self.begun.store(true, Relaxed);
            self.release().await?;
        }
        self.pieces().await?.part(index, offset, payload).await
    }

    /// The first part wasn't the only one.
    async fn release(&self) -> Result<()> {
        let held = self.held().clone();
        if let Some(payload) = held {
            self.pieces().await?.part(0, 0, payload).await?;
            *self.held() = None;
        }
        Ok(())
    }

    async fn finish(&self, mut parts: Vec<Part>, late: LateFacts) -> Result<StoredFacts> {
        let mut spec = self.spec.clone();
        spec.mtime = late.mtime.or(spec.mtime);
        let mut hashes = late.hashes;
        if !spec.size_may_differ {
            hashes.merge(&spec.hashes);
        }
        spec.hashes = hashes;
        parts.sort_by_key(|part| part.index);
        let bytes: u64 = parts.iter().map(|part| part.size).sum();
        if let Some(size) = spec.size.filter(|size| *size != bytes && !spec.size_may_differ) {
            return Err(self.corrupt(format!("{bytes} bytes came where {size} were announced")));
        }
        if let Some((missing, _)) = (0..).zip(&parts).find(|(index, part)| *index != part.index) {
            return Err(self.corrupt(format!("part {missing} of the upload is missing")));
        }
        if !self.begun.load(Relaxed) {
            let payload = self.held().clone().unwrap_or_default();
            if payload.len() != bytes {
                return Err(self.corrupt(format!("{bytes} bytes came, of which {} are at hand", payload.len())));
            }
            return self.whole(spec, payload).await;
        }
        self.release().await?;
        let pieces = self.pieces().await?;
        let _alone = self.service.names.at(&self.key).await;
        if pieces.session.done().is_none()
            && let Some(target) = self.target.get()
        {
            self.still(target).await?;
        }
        pieces.finish(bytes).await?;
        let done = pieces.session.done();
        let mut file = done.ok_or_else(|| self.corrupt("the service took all bytes and shows no file"))?;
        let target = self.target.get().ok_or_else(|| self.corrupt("nobody knows where it was sent"))?;
        if spec.mtime != self.spec.mtime
            && let Some(time) = spec.mtime.and_then(time)
        {
            // It came after the session began.
            let facts = json!({ "modifiedTime": time });
            let changed = self.service.patch(&file.id, &[], &facts).await;
            file = plain(changed).map_err(at("write", &self.key))?;
        }
        self.stored(file, bytes, &spec, target.before.as_ref(), &target.parent).await
    }

    /// Whether the file seen when the session began is still the current one. So is the new file, if the answer to its last piece was lost.
    async fn still(&self, target: &WriteTarget) -> Result<()> {
        let (own, replace) = (if target.before.is_none() { target.id() } else { "" }, &self.spec.replace);
        let now = allowed(&self.service, &target.parent, &target.name, &self.key, replace, own).await?;
        if now.as_ref().map(|now| &now.id) == target.before.as_ref().map(|before| &before.id) {
            return Ok(());
        }
        let message = "another file got this name while it was sent";
        Err(Error::new(ErrorKind::Changed, "write", message).with_key(&self.key))
    }

    /// Verifies the service's facts against the bytes sent, and that the file is where it belongs. A new file that differs is removed;
    /// a replaced one gets another time, so that no run takes it for the source's.
    async fn stored(
        &self,
        file: File,
        bytes: u64,
        spec: &WriteSpec,
        before: Option<&File>,
        parent: &str,
    ) -> Result<StoredFacts> {
        let stored = match (settled(&file, Some(bytes), &spec.hashes, &self.key), before) {
            (Ok(stored), _) => stored,
            (Err(error), None) => {
                let gone = self.service.remove(&file.id).await;
                let left = gone.err().map(|_| "; it could not be removed").unwrap_or_default();
                return Err(self.corrupt(format!("{}{left}", error.message())));
            }
            (Err(error), Some(_)) => {
                let wanted_time = spec.mtime.or(file.mtime()).unwrap_or(Mtime(0));
                let facts = json!({ "modifiedTime": time(Mtime(wanted_time.0 - DAY)) });
                let marked = self.service.patch(&file.id, &[], &facts).await;
                let left = marked.err().map(|_| "; it could not be marked as other than the source");
                return Err(self.corrupt(format!("{}{}", error.message(), left.unwrap_or_default())));
            }
        };
        let (key, name, replace) = (&self.key, &*self.name, &self.spec.replace);
        let again = !self.begun.load(Relaxed);
        let arriving = UploadedFile { op: "write", key, name, replace, parent: parent.to_owned(), before, again };
        arriving.settle(&self.service, file).await?;
        Ok(stored)
    }

    async fn whole(&self, mut spec: WriteSpec, payload: Payload) -> Result<StoredFacts> {
        let hashes = payload.hash(&[Algo::Md5]).await.map_err(|e| e.with_key(&self.key))?;
        if let Some((algo, false)) = hashes.agree(&spec.hashes) {
            return Err(self.corrupt(format!("other bytes came than the source says that it has ({algo} differs)")));
        }
        spec.hashes.merge(&hashes);
        let _alone = self.service.names.at(&self.key).await;
        // An earlier try may have been done, though its answer was lost.
        if let Some(id) = self.id.get()
            && let Ok(file) = self.service.by_id(id).await
        {
            let parent = match file.parents.first() {
                Some(parent) => parent.clone(),
                None => self.service.made(&self.key.parent()).await?,
            };
            return self.stored(file, payload.len(), &spec, None, &parent).await;
        }
        let target = self.aim().await?;
        let facts = self.facts(&target, spec.mtime);
        let body = related(&facts.to_string(), &payload).await.map_err(|e| e.with_key(&self.key))?;
        let call = self.request("UploadFile", &target, "multipart").body(Direction::Up, RELATED, body);
        match self.service.api.json::<File>(&call).await {
            Ok(file) => self.stored(file, payload.len(), &spec, target.before.as_ref(), &target.parent).await,
            Err(refused) => Err(self.refused(refused)),
        }
    }
}

fn read_token(service: &Service, key: &Key, token: &[u8]) -> Result<Token> {
    let bad = || Error::new(ErrorKind::Invalid, "resume", "this names no upload of this file").with_key(key);
    let token: Token = serde_json::from_slice(token).map_err(|_| bad())?;
    // Its address came from a file: what it leads to must be the service itself.
    let ours = is_at(&token.session, &service.config.endpoint);
    if token.root != service.root || token.key != key.as_bytes() || !ours {
        return Err(bad());
    }
    Ok(token)
}

/// See [`haul_store::Resumable::resume`].
pub async fn resume(
    service: &Arc<Service>,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    let Token { session: url, id, over, parent, .. } = read_token(service, key, token)?;
    let write = Write::begin(service.clone(), key, spec)?;
    let session = write.session(url);
    let has = session
        .has()
        .await
        .map_err(|error| Error::new(error.kind(), "resume", error.message()).with_retry(error.retry()).with_key(key))?;
    if session.done().is_some() {
        // It was published, and the publisher didn't get the answer.
        return Err(Error::new(ErrorKind::NotFound, "resume", "the upload has ended").with_key(key));
    }
    // Those of a session have no receipts.
    let sent = sent.into_iter().filter(|sent| sent.part.tag.is_empty()).collect();
    let parts = InOrder::<Pieces<File>>::proved(sent, has);
    if parts.is_empty() && has == 0 {
        return Err(Error::new(ErrorKind::NotFound, "resume", "nothing of the upload is there").with_key(key));
    }
    let pieces = InOrder::new(session, write.size(), has, GRANULE);
    write.begun.store(true, Relaxed);
    let target = write.aim().await?;
    if over != target.before.is_some() || over && target.id() != id {
        return Err(Error::new(ErrorKind::Changed, "resume", "another file has this name now").with_key(key));
    }
    // The session's file comes into the folder that it was begun for.
    if parent != target.parent {
        return Err(Error::new(ErrorKind::Changed, "resume", "the folder is another now").with_key(key));
    }
    // The cells are new.
    let _ = (write.target.set(WriteTarget { id, ..target }), write.pieces.set(pieces));
    Ok((Box::new(write), parts))
}

/// See [`haul_store::Resumable::discard`].
pub async fn discard(service: &Service, key: &Key, token: &[u8]) -> Result<bool> {
    let url = read_token(service, key, token)?.session;
    forget(&service.api, key, &url).await
}

impl Upload for Write {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async move {
            let session = self.pieces().await?.session.url.clone();
            let of = |target: &WriteTarget| (target.id().to_owned(), target.before.is_some(), target.parent.clone());
            let (id, over, parent) = self.target.get().map(of).unwrap_or_default();
            let (root, key) = (self.service.root.clone(), self.key.as_bytes().to_vec());
            Ok(serde_json::to_vec(&Token { root, key, session, id, over, parent }).ok())
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
            match self.pieces.get() {
                Some(pieces) => forget(&self.service.api, &self.key, &pieces.session.url).await.map(|_| ()),
                None => Ok(()),
            }
        }
        .boxed()
    }
}
