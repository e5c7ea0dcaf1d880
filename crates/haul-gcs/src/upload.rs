//! Writing: one request for a small file, else concurrent parts ([`crate::parts`]). A conditional write, or one with facts that
//! parts can't carry, uses a session that takes bytes in order. There an object is visible with its last byte, so the last bytes are
//! held back until the publish.

use crate::{
    conditions::{condition, refusal},
    meta::{self, Object},
    parts, read,
    service::{ObjectAddress, Service},
};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Algo, Error, ErrorKind, Hashes, Key, Result, hash::hash_bytes, plan::Replace};
use haul_net::Fault;
use haul_oauth::{
    ServiceError, ServiceResult,
    google::{FileFacts as _, GRANULE, Pieces, RELATED, forget, is_at, open_session, related},
};
use haul_store::{
    Body, Direction, LateFacts, Part, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec,
    in_order::{InOrder, Session as _},
};
use serde::{Deserialize, Serialize};
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

/// A write.
pub struct Write {
    service: Arc<Service>,
    key: Key,
    place: ObjectAddress,
    spec: WriteSpec,
    /// Parts may go at once.
    at_once: bool,
    /// The id of such an upload, when it has begun.
    id: OnceCell<String>,
    /// The session of a write in pieces, when there is one.
    pieces: OnceCell<InOrder<Pieces<Object>>>,
    /// Pieces are asked for, or were sent by an earlier run.
    begun: AtomicBool,
    /// The only part of a small file.
    held: Mutex<Option<Payload>>,
    /// A publish was requested, and its outcome is unknown.
    maybe: AtomicBool,
}

/// Contents of a resume token.
#[derive(Serialize, Deserialize)]
struct Token {
    bucket: String,
    object: String,
    way: UploadMethod,
    /// See [`Write::begun_with`].
    begun: String,
}

/// The way of an upload.
#[derive(Serialize, Deserialize)]
enum UploadMethod {
    /// The address of its session.
    Session(String),
    /// Its id.
    Parts(String),
}

impl Write {
    /// Begins a write; sends nothing.
    ///
    /// Errors: `Invalid` for what can't be an object's name.
    pub fn begin(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<Write> {
        let place = service.place(key)?;
        if place.object.is_empty() || key.is_dir() {
            return Err(Error::new(ErrorKind::Invalid, "write", "this can't be the name of an object").with_key(key));
        }
        let at_once = spec.replace == Replace::Anything
            && service.config.chunk_size >= parts::LEAST
            && parts::headers(&service, &place, &spec).is_some();
        Ok(Write {
            service,
            key: key.clone(),
            place,
            spec,
            at_once,
            id: OnceCell::new(),
            pieces: OnceCell::new(),
            begun: AtomicBool::default(),
            held: Mutex::default(),
            maybe: AtomicBool::default(),
        })
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

    /// A first part of this size may turn out to be the only one.
    fn may_hold(&self, len: u64) -> bool {
        self.size().is_none_or(|size| size == len) && len <= self.service.config.chunk_size
    }

    async fn pieces(&self) -> Result<&InOrder<Pieces<Object>>> {
        let open = async || {
            let url = self.open_session().await.map_err(|refused| refusal(refused, &self.spec.replace, &self.key))?;
            Ok(InOrder::new(self.session(url), self.size(), 0, GRANULE))
        };
        self.begun.store(true, Relaxed);
        self.pieces.get_or_try_init(open).await
    }

    /// The id of the upload whose parts go at once.
    async fn id(&self) -> Result<&str> {
        let begin = async || {
            let headers = parts::headers(&self.service, &self.place, &self.spec).unwrap_or_default();
            let begun = parts::begin(&self.service, &self.place, headers).await;
            begun.map_err(|refused| refused.at("write", &self.key))
        };
        self.begun.store(true, Relaxed);
        Ok(self.id.get_or_try_init(begin).await?)
    }

    /// A digest of everything that is fixed when an upload begins: an upload begun with other values can't be used.
    fn begun_with(&self) -> String {
        let resource = serde_json::Value::from(self.resource(&self.spec, None)).to_string();
        let all = [resource.as_str(), &self.service.config.object_acl, &condition(&self.spec.replace)].join("\n");
        hash_bytes(&[Algo::Xxh128], all.as_bytes()).hex(Algo::Xxh128).unwrap_or_default()
    }

    fn session(&self, url: String) -> Pieces<Object> {
        Pieces::new(self.service.api.clone(), self.key.clone(), url, self.size())
    }

    async fn open_session(&self) -> ServiceResult<String> {
        let condition = condition(&self.spec.replace);
        let resource = self.resource(&self.spec, None);
        let query = [("uploadType", "resumable"), ("name", &*self.place.object), ("ifGenerationMatch", &condition)];
        let query: Vec<_> = query.into_iter().chain([("predefinedAcl", &*self.service.config.object_acl)]).collect();
        let send = || async {
            let call = self.service.upload("BeginUpload", &self.place, &query).json(&resource);
            open_session(&self.service.api, &call).await
        };
        self.service.in_bucket(&self.place.bucket, send).await
    }

    fn resource(&self, spec: &WriteSpec, md5: Option<&[u8]>) -> serde_json::Map<String, serde_json::Value> {
        let mut resource = meta::resource(&self.place.object, spec.mtime, spec.meta.as_deref());
        resource.insert("name".into(), self.place.object.as_str().into());
        let class = meta::class(spec.meta.as_deref()).unwrap_or(&self.service.config.storage_class);
        if !class.is_empty() {
            resource.insert("storageClass".into(), class.as_str().into());
        }
        if let Some(md5) = md5 {
            // The service compares.
            resource.insert("md5Hash".into(), B64.encode(md5).into());
        }
        resource
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
        if self.at_once {
            let id = self.id().await?;
            return parts::put(&self.service, &self.key, &self.place, id, index, payload).await;
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
        spec.meta = late.meta.or(spec.meta);
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
        if self.at_once {
            return self.put_together(spec, parts).await;
        }
        self.release().await?;
        let pieces = self.pieces().await?;
        pieces.finish(bytes).await.map_err(|error| match (error.kind(), &spec.replace) {
            (ErrorKind::Changed, Replace::Absent) => {
                Error::new(ErrorKind::Exists, "write", "is there already").with_key(&self.key)
            }
            _ => error,
        })?;
        let done = pieces.session.done();
        let object = done.ok_or_else(|| self.corrupt("the service took all bytes and shows no object"))?;
        let stored = self.stored(&object, bytes, &spec.hashes).await?;
        self.describe(&spec, &object).await?;
        Ok(stored)
    }

    /// Tells of an object what came after its upload had begun.
    async fn describe(&self, spec: &WriteSpec, object: &Object) -> Result<()> {
        if (spec.mtime, &spec.meta) == (self.spec.mtime, &self.spec.meta) {
            return Ok(());
        }
        let (service, version) = (&self.service, object.version());
        crate::change::patch(service, &self.key, &self.place, version.as_ref(), spec.mtime, spec.meta.as_deref()).await
    }

    /// Makes an object of parts that went at once.
    async fn put_together(&self, mut spec: WriteSpec, mut parts: Vec<Part>) -> Result<StoredFacts> {
        let (id, held) = (self.id().await?, self.held().clone());
        if let (Some(payload), Some(first)) = (held, parts.first_mut().filter(|part| part.tag == HELD)) {
            if first.size != payload.len() {
                return Err(self.corrupt("another first part came than was sent last"));
            }
            *first = parts::put(&self.service, &self.key, &self.place, id, 0, payload).await?;
        }
        if parts.is_empty() {
            // An object of no bytes has one part all the same.
            parts.push(parts::put(&self.service, &self.key, &self.place, id, 0, Payload::default()).await?);
        }
        let whole = parts::whole(&parts).ok_or_else(|| self.corrupt("a part of the upload was never sent"))?;
        if let Some((algo, false)) = whole.agree(&spec.hashes) {
            return Err(self.corrupt(format!("other bytes came than the source says that it has ({algo} differs)")));
        }
        spec.hashes.merge(&whole);
        // Only what the answer names is sure to be ours: what has the name by now may be another's.
        let mut is_ours = true;
        let object = match parts::complete(&self.service, &self.place, id, &parts).await {
            Ok(version) => {
                is_ours = version.is_some();
                read::facts(&self.service, &self.key, &self.place, version.as_ref()).await?
            }
            Err(refused) => {
                let gone = refused.fault.kind == ErrorKind::NotFound && self.maybe.load(Relaxed);
                self.maybe.fetch_or(refused.fault.is_ambiguous(), Relaxed);
                // An earlier try succeeded, and its answer was lost.
                let landed =
                    if gone { parts::landed(&self.service, &self.key, &self.place, &parts).await } else { None };
                landed.ok_or_else(|| refused.at("write", &self.key))?
            }
        };
        if object.hashes().agree(&whole).is_none() {
            return Err(Fault::broken("the service tells no CRC-32C of what it has").at("write", &self.key));
        }
        let bytes = parts.iter().map(|part| part.size).sum();
        let is_equal = matches!(object.hashes().agree(&spec.hashes), Some((_, true))) && object.size() == Some(bytes);
        if !is_ours && !is_equal {
            let message = "another object has this name by now: what was sent can't be compared";
            return Err(Error::new(ErrorKind::Changed, "write", message).with_key(&self.key));
        }
        let stored = self.stored(&object, bytes, &spec.hashes).await?;
        self.describe(&spec, &object).await?;
        Ok(stored)
    }

    /// Verifies the service's facts against the bytes sent. A differing object is removed.
    async fn stored(&self, object: &Object, bytes: u64, ours: &Hashes) -> Result<StoredFacts> {
        let Some(version) = object.version() else {
            return Err(Fault::broken("the service gave no receipt (a generation)").at("write", &self.key));
        };
        let size = object.size();
        let hashes = object.hashes();
        let differs = match hashes.agree(ours) {
            Some((algo, false)) => Some(format!("the service has other bytes than were sent ({algo} differs)")),
            _ if size != Some(bytes) => Some(format!("the service has {size:?} bytes and {bytes} were sent")),
            _ => None,
        };
        if let Some(message) = differs {
            // The old object no longer exists; the next try sends the whole.
            let gone = crate::change::remove(&self.service, &self.place, Some(&version)).await;
            let left = gone.err().map(|_| "; it could not be removed").unwrap_or_default();
            return Err(self.corrupt(format!("{message}{left}")));
        }
        Ok(StoredFacts { version: Some(version), size: bytes, hashes, ..StoredFacts::default() })
    }

    async fn whole(&self, mut spec: WriteSpec, payload: Payload) -> Result<StoredFacts> {
        let hashes = payload.hash(&[Algo::Md5]).await.map_err(|e| e.with_key(&self.key))?;
        if let Some((algo, false)) = hashes.agree(&spec.hashes) {
            return Err(self.corrupt(format!("other bytes came than the source says that it has ({algo} differs)")));
        }
        spec.hashes.merge(&hashes);
        let resource = serde_json::Value::from(self.resource(&spec, hashes.get(Algo::Md5)));
        let body = related(&resource.to_string(), &payload).await.map_err(|e| e.with_key(&self.key))?;
        let condition = condition(&spec.replace);
        let query = [
            ("uploadType", "multipart"),
            ("name", &*self.place.object),
            ("ifGenerationMatch", &condition),
            ("predefinedAcl", &self.service.config.object_acl),
        ];
        let send = || async {
            let call = self.service.upload("InsertObject", &self.place, &query);
            self.service.api.json::<Object>(&call.body(Direction::Up, RELATED, body.clone())).await
        };
        match self.service.in_bucket(&self.place.bucket, send).await {
            Ok(object) => self.stored(&object, payload.len(), &spec.hashes).await,
            Err(refused) => self.doubt(refused, &spec, payload.len()).await,
        }
    }

    /// A whole object was refused, or the outcome is unknown. An earlier try that succeeded shows by the content.
    async fn doubt(&self, refused: ServiceError, spec: &WriteSpec, size: u64) -> Result<StoredFacts> {
        if refused.fault.kind == ErrorKind::Changed && self.maybe.load(Relaxed) {
            let object = read::facts(&self.service, &self.key, &self.place, None).await?;
            if object.size() == Some(size) && matches!(object.hashes().agree(&spec.hashes), Some((_, true))) {
                return self.stored(&object, size, &spec.hashes).await;
            }
        }
        self.maybe.fetch_or(refused.fault.is_ambiguous(), Relaxed);
        Err(refusal(refused, &spec.replace, &self.key))
    }
}

fn read_token(service: &Service, key: &Key, token: &[u8]) -> Result<Token> {
    let bad = || Error::new(ErrorKind::Invalid, "resume", "this names no upload of this file").with_key(key);
    let token: Token = serde_json::from_slice(token).map_err(|_| bad())?;
    let place = service.place(key)?;
    // Its address came from a file: what it leads to must be the service itself.
    let ours = match &token.way {
        UploadMethod::Session(url) => is_at(url, &service.config.endpoint),
        UploadMethod::Parts(id) => !id.is_empty(),
    };
    if (&token.bucket, &token.object) != (&place.bucket, &place.object) || !ours {
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
    const OP: &str = "resume";
    let token = read_token(service, key, token)?;
    let mut write = Write::begin(service.clone(), key, spec)?;
    if token.begun != write.begun_with() {
        let message = "the upload was begun with other metadata or settings";
        return Err(Error::new(ErrorKind::Changed, OP, message).with_key(key));
    }
    write.begun.store(true, Relaxed);
    let gone = |why: &str| Error::new(ErrorKind::NotFound, OP, why).with_key(key);
    let url = match token.way {
        UploadMethod::Session(url) => url,
        UploadMethod::Parts(id) => {
            let sent = sent.into_iter().map(|sent| sent.part).collect();
            let there = parts::there(service, key, &write.place, &id, sent).await?;
            (write.at_once, write.id) = (true, OnceCell::new_with(Some(id)));
            return Ok((Box::new(write), there));
        }
    };
    write.at_once = false;
    let session = write.session(url);
    let has = session
        .has()
        .await
        .map_err(|error| Error::new(error.kind(), OP, error.message()).with_retry(error.retry()).with_key(key))?;
    if session.done().is_some() {
        // It was published, and the publisher didn't get the answer.
        return Err(gone("the upload has ended"));
    }
    let parts = InOrder::<Pieces<Object>>::proved(sent, has);
    if parts.is_empty() && has == 0 {
        return Err(gone("nothing of the upload is there"));
    }
    let pieces = InOrder::new(session, write.size(), has, GRANULE);
    // The cell is new.
    let _ = write.pieces.set(pieces);
    Ok((Box::new(write), parts))
}

/// See [`haul_store::Resumable::discard`].
pub async fn discard(service: &Service, key: &Key, token: &[u8]) -> Result<bool> {
    match read_token(service, key, token)?.way {
        UploadMethod::Session(url) => forget(&service.api, key, &url).await,
        UploadMethod::Parts(id) => {
            let gone = parts::abort(service, &service.place(key)?, &id).await;
            gone.map_err(|refused| refused.at("discard", key))
        }
    }
}

impl Upload for Write {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async move {
            let way = match self.at_once {
                true => UploadMethod::Parts(self.id().await?.to_owned()),
                false => UploadMethod::Session(self.pieces().await?.session.url.clone()),
            };
            let ObjectAddress { bucket, object } = self.place.clone();
            Ok(serde_json::to_vec(&Token { bucket, object, way, begun: self.begun_with() }).ok())
        }
        .boxed()
    }

    fn is_shared(&self) -> bool {
        self.at_once
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
            if let Some(id) = self.id.get() {
                let gone = parts::abort(&self.service, &self.place, id).await;
                return gone.map(|_| ()).map_err(|refused| refused.at("abort", &self.key));
            }
            match self.pieces.get() {
                Some(pieces) => forget(&self.service.api, &self.key, &pieces.session.url).await.map(|_| ()),
                None => Ok(()),
            }
        }
        .boxed()
    }
}
