//! Writing: one PUT for a small file, else a multipart upload. Every answer is compared with the bytes sent.

use super::{
    address::ObjectAddress,
    body,
    error::{Fault, FaultResult},
    meta,
    proof::{self, COMPLETED},
    provider::Checksum,
    read,
    service::{Call, Service, at},
    token::{Token, begun_with},
    xml,
};
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use haul_core::{Algo, Error, ErrorKind, Hashes, Key, Result, Retry, Version, plan::Replace};
use haul_store::{Body, Direction, LateFacts, Part, Payload, Relay, StoredFacts, Unpublished, Upload, WriteSpec};
use http::{HeaderMap, Method};
use std::{
    fmt::Write as _,
    ops::Range,
    sync::{Arc, Mutex, atomic::Ordering},
};
use tokio::sync::{OnceCell, Semaphore};

/// A write in progress.
pub struct S3Upload {
    service: Arc<Service>,
    key: Key,
    place: ObjectAddress,
    spec: WriteSpec,
    /// The first part, until it is known whether there will be others.
    held: Mutex<Option<Payload>>,
    /// Set once an upload in parts has begun.
    id: OnceCell<String>,
    /// Parts in flight, where the user pinned them.
    at_once: Option<Semaphore>,
}

/// Memory for parts that are gathered is counted in MiB …
const UNIT: u64 = 1 << 20;
/// … and this many are for all of them: the job has set aside only what parts take that are sent on as they come.
pub const GATHERED: u32 = 128;

/// The receipt of a part that is held back and not yet sent.
const HELD: &[u8] = b"";

impl S3Upload {
    /// A write of `key`; sends nothing yet.
    pub fn new(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<S3Upload> {
        let place = service.place(key)?;
        if place.object.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "write", "a bucket can't be a file").with_key(key));
        }
        Ok(S3Upload::with(service, key, place, spec, OnceCell::new()))
    }

    /// A write that resumes as multipart upload `id`.
    pub fn go_on(service: Arc<Service>, key: &Key, place: ObjectAddress, id: String, spec: WriteSpec) -> S3Upload {
        S3Upload::with(service, key, place, spec, OnceCell::new_with(Some(id)))
    }

    fn with(service: Arc<Service>, key: &Key, place: ObjectAddress, spec: WriteSpec, id: OnceCell<String>) -> S3Upload {
        let at_once = service.config.upload_concurrency.map(Semaphore::new);
        S3Upload { service, key: key.clone(), place, spec, held: Mutex::new(None), id, at_once }
    }

    /// A first part of this size may turn out to be the only one.
    fn may_hold(&self, len: u64) -> bool {
        match self.spec.size {
            Some(size) if !self.spec.size_may_differ => size <= self.service.config.upload_cutoff,
            _ => len < self.service.config.chunk_size,
        }
    }

    async fn send_part(&self, index: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        if index == 0 && payload.relay().is_none() && self.id.get().is_none() && self.may_hold(size) {
            // Hashed now, while the reader of the source still checks that it doesn't change: the file must have the same content when it
            // is sent.
            let hashes =
                checksums(&self.service, &payload, &self.spec.hashes).await.map_err(|e| e.with_key(&self.key))?;
            *self.held.lock().unwrap_or_else(|e| e.into_inner()) = Some(payload.with_hashes(hashes));
            return Ok(Part { index, size, tag: HELD.into() });
        }
        let id = self.id().await?;
        let _leave = match &self.at_once {
            Some(parts) => parts.acquire().await.ok(),
            None => None,
        };
        let tag = match payload.relay() {
            Some(relay) => self.pass_on(id, index, &payload, relay).await?,
            None => put_part(&self.service, &self.place, id, index, payload).await.map_err(at("write", &self.key))?,
        };
        Ok(Part { index, size, tag })
    }

    /// Sends a part as it comes from another store; where the server can't take it so, it is brought into memory first.
    async fn pass_on(&self, id: &str, index: u64, payload: &Payload, relay: &Relay) -> Result<Vec<u8>> {
        let service = &*self.service;
        let takes = || !service.takes_no_relays.load(Ordering::Relaxed);
        if takes() && service.config.provider.checksum == Checksum::Md5 {
            // Whether ETags prove anything shows with the first part: the others wait, or all of them might be sent twice.
            let mut tag = None;
            let first = async {
                tag = self.try_to_pass_on(id, index, payload, relay).await?;
                Ok::<(), Error>(())
            };
            service.relays_tried.get_or_try_init(|| first).await?;
            if let Some(tag) = tag {
                return Ok(tag);
            }
        }
        if takes()
            && let Some(tag) = self.try_to_pass_on(id, index, payload, relay).await?
        {
            return Ok(tag);
        }
        let units = payload.len().div_ceil(UNIT).clamp(1, GATHERED.into()) as u32;
        let _room = service.gathering.acquire_many(units).await;
        let whole = payload.gathered().await?;
        put_part(service, &self.place, id, index, whole).await.map_err(at("write", &self.key))
    }

    /// `None` when the server shows that it can't take a part so.
    async fn try_to_pass_on(&self, id: &str, index: u64, payload: &Payload, relay: &Relay) -> Result<Option<Vec<u8>>> {
        relay.open().await?;
        match relay_part(&self.service, &self.place, id, index, payload, relay).await {
            Ok(tag) => {
                self.service.takes_relays.store(true, Ordering::Relaxed);
                Ok(Some(tag))
            }
            Err(fault) => match relay.error() {
                Some(error) => Err(error),
                None if matches!(fault.kind, ErrorKind::Unsupported | ErrorKind::Invalid | ErrorKind::Corrupt) => {
                    // A server that has taken others had a bad moment.
                    let never = !self.service.takes_relays.load(Ordering::Relaxed);
                    tracing::debug!(%fault.message, never, "a part is brought into memory before it is sent");
                    self.service.takes_no_relays.fetch_or(never, Ordering::Relaxed);
                    Ok(None)
                }
                None => Err(fault.at("write", &self.key)),
            },
        }
    }

    async fn id(&self) -> Result<&str> {
        let begin = async {
            let kept = kept(&self.service, &self.spec);
            begin(&self.service, &self.key, &self.place, &kept, true).await
        };
        Ok(self.id.get_or_try_init(|| begin).await?)
    }

    fn held(&self) -> Option<Payload> {
        self.held.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    async fn finish(&self, mut parts: Vec<Part>, late: LateFacts) -> Result<StoredFacts> {
        let sent: u64 = parts.iter().map(|p| p.size).sum();
        if let Some(size) = self.spec.size
            && size != sent
            && !self.spec.size_may_differ
        {
            let message = format!("{sent} bytes came where {size} were announced");
            return Err(Error::new(ErrorKind::Corrupt, "write", message).with_key(&self.key));
        }
        let held = self.held();
        let Some(id) = self.id.get() else {
            let payload = held.unwrap_or_default();
            if payload.len() != sent {
                let message = format!("{sent} bytes came, of which {} are at hand", payload.len());
                return Err(Error::new(ErrorKind::Corrupt, "write", message).with_key(&self.key));
            }
            let spec = late_spec(self.spec.clone(), late);
            return put(&self.service, &self.key, &self.place, &spec, payload).await;
        };
        parts.sort_by_key(|p| p.index);
        if let Some(payload) = held
            && let Some(first) = parts.first_mut().filter(|p| p.index == 0 && p.tag == HELD)
        {
            first.tag = put_part(&self.service, &self.place, id, 0, payload).await.map_err(at("write", &self.key))?;
        }
        self.complete(&parts, late).await
    }

    async fn complete(&self, parts: &[Part], late: LateFacts) -> Result<StoredFacts> {
        let spec = late_spec(self.spec.clone(), late);
        let id = self.id().await?;
        let receipts =
            receipts(parts).map_err(|message| Error::new(ErrorKind::Corrupt, "write", message).with_key(&self.key))?;
        let stored = complete(&self.service, &self.key, &self.place, id, &receipts, &spec, true).await?;
        // Metadata is sent with the request that begins an upload; later facts need a copy onto itself.
        if spec.mtime != self.spec.mtime || spec.meta != self.spec.meta {
            return super::copy::touch(&self.service, &self.key, spec.mtime, spec.meta.as_deref(), Some(stored)).await;
        }
        Ok(stored)
    }
}

impl Upload for S3Upload {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        let token = async move {
            let id = self.id().await?.to_owned();
            let begun = begun_with(&self.service, &self.place, &kept(&self.service, &self.spec), true)?;
            Ok(Some(Token { place: self.place.clone(), id, begun }.to_bytes()))
        };
        token.boxed()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn read_back(&self, _range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let message = "parts can't be read before they are put together";
        ready(Err(Error::new(ErrorKind::Unsupported, "read", message).with_key(&self.key))).boxed()
    }

    fn part(&self, index: u64, _offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        self.send_part(index, payload).boxed()
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        async move {
            let published = self.finish(parts, late).await;
            published.map_err(|error| Unpublished { error, upload: self })
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let Some(id) = self.id.get() else { return Ok(()) };
            abort(&self.service, &self.place, id).await.map_err(at("abort", &self.key)).map(|_| ())
        }
        .boxed()
    }
}

fn late_spec(mut spec: WriteSpec, late: LateFacts) -> WriteSpec {
    spec.mtime = late.mtime.or(spec.mtime);
    spec.meta = late.meta.or(spec.meta);
    let mut hashes = late.hashes;
    hashes.merge(&spec.hashes);
    spec.hashes = hashes;
    spec
}

/// Facts stored with a multipart upload, as far as they are known when it begins.
pub fn kept<'a>(service: &Service, spec: &'a WriteSpec) -> meta::MetaFacts<'a> {
    let md5 = spec.hashes.get(Algo::Md5).filter(|_| !service.config.disable_checksum);
    meta::MetaFacts { mtime: spec.mtime, meta: spec.meta.as_deref(), md5 }
}

/// Puts a whole key by one request.
pub async fn put(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    spec: &WriteSpec,
    payload: Payload,
) -> Result<StoredFacts> {
    let size = payload.len();
    let kept = meta::MetaFacts { md5: None, ..kept(service, spec) };
    let mut headers = meta::to_headers(&service.config, &place.object, &kept)?;
    condition(service, key, place, &spec.replace, &mut headers).await?;
    // The source's own hashes are better than any computed from the bytes that reached us.
    let ours = checksums(service, &payload, &spec.hashes).await.map_err(|e| e.with_key(key))?;
    checksum_headers(&ours, &mut headers);
    let call = || Call::object("PutObject", Method::PUT, place).headers(headers.clone()).content(payload.clone(), true);
    let answer = service.ask_in_bucket(&place.bucket, call).await;
    let proved = match answer {
        Ok((answer, _)) => proof::of_body(service, &answer, ours.clone(), &payload, Some((key, place))).await,
        Err(fault) => Err(fault),
    };
    let proved = match proved {
        Ok(proved) => proved,
        Err(fault) if fault.kind == ErrorKind::Corrupt && !payload.still_has(&ours).await? => {
            return Err(Payload::changed().with_key(key));
        }
        Err(fault) => return Err(refused(*fault, &spec.replace, "write", key)),
    };
    Ok(StoredFacts {
        version: Some(meta::version(&proved.etag)),
        size,
        hashes: proved.hashes,
        ..StoredFacts::default()
    })
}

/// Checksums to send with a body: the provider's kind, and MD5 where it is known anyway. Other known hashes of the
/// payload aren't sent: a server refuses a checksum that wasn't announced.
async fn checksums(service: &Service, payload: &Payload, known: &Hashes) -> Result<Hashes> {
    let algo = match service.config.provider.checksum {
        Checksum::Crc64Nvme => Algo::Crc64Nvme,
        Checksum::Md5 => Algo::Md5,
    };
    let mut all = known.clone();
    all.merge(payload.hashes());
    if all.get(algo).is_none() {
        // While there is no upload slot, the hash may wait too.
        let lane = service.lanes.lane(Direction::Up);
        all.merge(&payload.hash_at(&[algo], &|| lane.is_full()).await?);
    }
    let sent = all.iter().filter(|(known, _)| [algo, Algo::Md5].contains(known));
    Ok(sent.fold(Hashes::default(), |sent, (algo, value)| sent.with(algo, value)))
}

fn checksum_headers(hashes: &Hashes, headers: &mut HeaderMap) {
    for (name, algo) in [("content-md5", Algo::Md5), ("x-amz-checksum-crc64nvme", Algo::Crc64Nvme)] {
        if let Some(value) = hashes.get(algo).and_then(|v| body::to_base64(v).parse().ok()) {
            headers.insert(name, value);
        }
    }
}

/// Headers that hold a write to its condition; where the provider has none, a look beforehand.
async fn condition(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    replace: &Replace,
    headers: &mut HeaderMap,
) -> Result<()> {
    let (name, value) = match replace {
        Replace::Anything => return Ok(()),
        _ if !service.caps.conditional => return look_first(service, key, place, replace).await,
        Replace::Absent => ("if-none-match", "*".to_owned()),
        Replace::Exactly(version) => ("if-match", meta::quoted(version)),
    };
    let value = value.parse().map_err(|_| Error::new(ErrorKind::Invalid, "write", "not a version of ours"))?;
    headers.insert(name, value);
    Ok(())
}

/// The condition of a write, checked just before it.
pub async fn look_first(service: &Service, key: &Key, place: &ObjectAddress, replace: &Replace) -> Result<()> {
    let found = match replace {
        Replace::Anything => return Ok(()),
        _ => read::head(service, key, place, None).await,
    };
    match (found, replace) {
        (Err(e), Replace::Absent) if e.kind() == ErrorKind::NotFound => Ok(()),
        (Err(e), Replace::Exactly(_)) if e.kind() == ErrorKind::NotFound => Err(gone(key)),
        (Err(e), _) => Err(e),
        (Ok(_), Replace::Absent) => Err(exists(key)),
        (Ok(headers), Replace::Exactly(version)) => {
            let now = meta::etag(&headers).map(meta::version);
            if now.as_ref() == Some(version) { Ok(()) } else { Err(gone(key)) }
        }
        (Ok(_), Replace::Anything) => Ok(()),
    }
}

fn exists(key: &Key) -> Error {
    Error::new(ErrorKind::Exists, "write", "something is there already").with_key(key)
}

fn gone(key: &Key) -> Error {
    Error::new(ErrorKind::Changed, "write", "what is there is no longer what was expected").with_key(key)
}

/// A fault of a conditional write as the condition's error.
fn refused(fault: Fault, replace: &Replace, op: &'static str, key: &Key) -> Error {
    match replace {
        Replace::Absent if fault.kind == ErrorKind::Changed => exists(key),
        Replace::Exactly(_) if matches!(fault.kind, ErrorKind::Changed | ErrorKind::NotFound) => gone(key),
        _ => fault.at(op, key),
    }
}

/// True when parts carry a CRC that the request that begins the upload announces, and the one that completes it repeats.
/// Strict servers refuse an unannounced one, after all parts were sent.
fn announces(service: &Service, checksums: bool) -> bool {
    checksums && service.config.provider.checksum == Checksum::Crc64Nvme
}

/// Begins a multipart upload and returns its id. `checksums`: the parts will be sent with the provider's checksum (server-side
/// copies of parts aren't).
pub async fn begin(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    kept: &meta::MetaFacts<'_>,
    checksums: bool,
) -> Result<String> {
    let mut headers = meta::to_headers(&service.config, &place.object, kept)?;
    if announces(service, checksums) {
        headers.insert("x-amz-checksum-algorithm", http::HeaderValue::from_static("CRC64NVME"));
        headers.insert("x-amz-checksum-type", http::HeaderValue::from_static("FULL_OBJECT"));
    }
    let call =
        || Call::object("CreateMultipartUpload", Method::POST, place).query("uploads", "").headers(headers.clone());
    let (_, body) = service.ask_in_bucket(&place.bucket, call).await.map_err(|mut fault| {
        if fault.kind == ErrorKind::Unsupported && announces(service, checksums) {
            fault.message.push_str(": set provider = Other");
        }
        fault.at("write", key)
    })?;
    let id = xml::text_of(&body, "UploadId").map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
    id.ok_or_else(|| Fault::broken("the server gave no upload id").at("write", key))
}

async fn put_part(
    service: &Service,
    place: &ObjectAddress,
    id: &str,
    index: u64,
    payload: Payload,
) -> FaultResult<Vec<u8>> {
    let ours = checksums(service, &payload, &Hashes::default()).await;
    let ours = ours.map_err(|e| Fault::new(e.kind(), e.retry(), e.message()))?;
    let mut headers = HeaderMap::new();
    checksum_headers(&ours, &mut headers);
    let call = part_call(service, place, id, index).headers(headers).content(payload.clone(), true);
    let (answer, _) = service.ask(call).await?;
    let proved = proof::of_body(service, &answer, ours, &payload, None).await?;
    // A known CRC shows at the end whether the parts are the source's content.
    let crc = proved.hashes.get(Algo::Crc64Nvme).or(payload.hashes().get(Algo::Crc64Nvme));
    Ok(receipt(&proved.etag, crc))
}

/// Sends a part whose hashes are known only once it has passed.
async fn relay_part(
    service: &Service,
    place: &ObjectAddress,
    id: &str,
    index: u64,
    payload: &Payload,
    relay: &Relay,
) -> FaultResult<Vec<u8>> {
    let checksum = service.config.provider.checksum;
    let (answer, _) = service.ask(part_call(service, place, id, index).relayed(payload.clone(), checksum)).await?;
    let ours = relay.hashes().ok_or_else(|| Fault::broken("the server answered before all was sent"))?;
    let etag = proof::of_relay(service, &answer, &ours, relay.size())?;
    Ok(receipt(&etag, ours.get(Algo::Crc64Nvme)))
}

fn part_call<'a>(service: &Service, place: &'a ObjectAddress, id: &str, index: u64) -> Call<'a> {
    let mut headers = HeaderMap::new();
    meta::customer_key(&service.config, "x-amz-server-side-encryption-customer-", &mut headers);
    Call::object("UploadPart", Method::PUT, place)
        .query("partNumber", (index + 1).to_string())
        .query("uploadId", id)
        .headers(headers)
}

/// One part as the request that completes an upload names it.
#[derive(Debug, PartialEq)]
pub struct Receipt {
    pub number: u64,
    pub size: u64,
    pub etag: String,
    pub crc: Option<u64>,
}

/// A receipt as bytes: the ETag without quotes, and the CRC-64 where there is one.
pub fn receipt(etag: &str, crc: Option<&[u8]>) -> Vec<u8> {
    let mut tag = etag.trim().trim_matches('"').to_owned();
    if let Some(crc) = crc {
        let _ = write!(tag, " {}", body::to_base64(crc));
    }
    tag.into_bytes()
}

fn receipts(parts: &[Part]) -> Result<Vec<Receipt>, String> {
    let mut found = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        if part.index != at as u64 {
            return Err(format!("part {at} of the upload is missing"));
        }
        let text = std::str::from_utf8(&part.tag).unwrap_or_default();
        let (etag, crc) = text.split_once(' ').map_or((text, None), |(etag, crc)| (etag, Some(crc)));
        if etag.is_empty() {
            return Err(format!("part {at} of the upload was never sent"));
        }
        let crc = crc
            .and_then(|c| body::from_base64(Algo::Crc64Nvme, c))
            .and_then(|c| Some(u64::from_be_bytes(c.try_into().ok()?)));
        found.push(Receipt { number: part.index + 1, size: part.size, etag: etag.to_owned(), crc });
    }
    Ok(found)
}

/// CRC-64 of the whole from those of its parts.
fn whole_crc(receipts: &[Receipt]) -> Option<u64> {
    let values: Option<Vec<[u8; 8]>> = receipts.iter().map(|part| Some(part.crc?.to_be_bytes())).collect();
    let values = values?;
    let pieces = values.iter().zip(receipts).map(|(value, part)| (Some(&value[..]), part.size));
    let whole = haul_core::hash::combine(Algo::Crc64Nvme, pieces)?;
    Some(u64::from_be_bytes(whole.try_into().ok()?))
}

/// The ETag of an upload in parts: the MD5 of the parts' MD5s, and their number.
fn whole_etag(service: &Service, receipts: &[Receipt]) -> Option<String> {
    if !service.config.etag_is_md5() {
        return None;
    }
    let md5s: Option<Vec<Vec<u8>>> = receipts.iter().map(|r| meta::etag_md5(&r.etag)).collect();
    let md5 = haul_core::hash::hash_bytes(&[Algo::Md5], &md5s?.concat()).hex(Algo::Md5)?;
    Some(format!("{md5}-{}", receipts.len()))
}

/// See [`haul_store::Resumable::whole_version`].
pub fn whole_version(service: &Service, parts: &[Part]) -> Option<Version> {
    let receipts = receipts(parts).ok()?;
    whole_etag(service, &receipts).map(Version::new)
}

/// Makes an upload in parts visible. `checksums` as in [`begin`].
pub async fn complete(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    id: &str,
    receipts: &[Receipt],
    spec: &WriteSpec,
    checksums: bool,
) -> Result<StoredFacts> {
    let size = receipts.iter().map(|r| r.size).sum();
    let crc = whole_crc(receipts).map(u64::to_be_bytes);
    if let (Some(ours), Some(known)) = (&crc, spec.hashes.get(Algo::Crc64Nvme))
        && ours != known
    {
        let message = "the parts sent are not the source's content: their crc64nvme differs";
        return Err(Error::new(ErrorKind::Corrupt, "write", message).with_key(key));
    }
    let sent = crc.filter(|_| announces(service, checksums));
    let mut headers = HeaderMap::new();
    condition(service, key, place, &spec.replace, &mut headers).await?;
    meta::customer_key(&service.config, "x-amz-server-side-encryption-customer-", &mut headers);
    let mut call = Call::object("CompleteMultipartUpload", Method::POST, place)
        .query("uploadId", id)
        .headers(headers)
        .document(complete_xml(receipts, sent.is_some()));
    if let Some(crc) = &sent {
        call =
            call.header("x-amz-checksum-crc64nvme", body::to_base64(crc)).header("x-amz-checksum-type", "FULL_OBJECT");
    }
    let expected = whole_etag(service, receipts);
    let refused = |fault: Box<Fault>| refused(*fault, &spec.replace, "write", key);
    let answer = service.ask(call).await.and_then(|(_, document)| CompletedObject::read(&document));
    let whole = match answer {
        Ok(whole) => whole,
        Err(fault) if fault.is_ambiguous() => match landed(service, key, place, expected.as_deref(), size).await {
            Some(etag) => CompletedObject { etag, crc: None },
            None => return Err(refused(fault)),
        },
        // The parts are what they are: the same question gets the same answer.
        Err(fault) if fault.kind == ErrorKind::Corrupt => return Err(refused(fault).with_retry(Retry::Never)),
        Err(fault) => return Err(refused(fault)),
    };
    if let Some(expected) = &expected
        && meta::version(&whole.etag).0[..] != *expected.as_bytes()
        && whole.etag.contains('-')
    {
        let message = format!("the server put the parts together wrongly: ETag {}, not {expected}", whole.etag);
        return Err(Error::new(ErrorKind::Corrupt, "write", message).with_key(key).with_retry(Retry::Backoff));
    }
    let proved = whole.is_proved(service, key, place, expected.as_deref(), sent.as_ref()).await?;
    let hashes =
        crc.filter(|_| proved).map_or_else(Hashes::default, |crc| Hashes::default().with(Algo::Crc64Nvme, crc));
    Ok(StoredFacts { version: Some(meta::version(&whole.etag)), size, hashes, ..StoredFacts::default() })
}

/// The server's facts about the completed object.
struct CompletedObject {
    etag: String,
    crc: Option<Vec<u8>>,
}

impl CompletedObject {
    fn read(document: &[u8]) -> FaultResult<CompletedObject> {
        let done = proof::done(document, &COMPLETED)?;
        let etag = done.etag.ok_or_else(|| Fault::broken("the server's answer holds no ETag"))?;
        Ok(CompletedObject { etag, crc: done.crc })
    }

    /// True when the parts are proved to be assembled as they are: by the ETag made of theirs, or by the CRC
    /// `sent`, in the answer or asked for.
    ///
    /// Errors: `Corrupt` when the CRC differs; `Unsupported` when one was sent and nothing confirms it.
    async fn is_proved(
        &self,
        service: &Service,
        key: &Key,
        place: &ObjectAddress,
        expected: Option<&str>,
        sent: Option<&[u8; 8]>,
    ) -> Result<bool> {
        let version = meta::version(&self.etag);
        let by_etag = expected.is_some_and(|expected| *expected.as_bytes() == version.0[..]);
        let theirs = match (sent, &self.crc) {
            (Some(_), Some(theirs)) => Some(theirs.clone()),
            (Some(_), None) if !by_etag => {
                let head = read::head(service, key, place, Some(&version)).await?;
                meta::hashes(&service.config, &head).get(Algo::Crc64Nvme).map(<[u8]>::to_vec)
            }
            _ => return Ok(by_etag),
        };
        let theirs = theirs.ok_or_else(|| proof::unconfirmed().at("write", key))?;
        if sent.is_some_and(|sent| sent[..] != theirs[..]) {
            let message = "the server put the parts together wrongly: its crc64nvme differs";
            return Err(Error::new(ErrorKind::Corrupt, "write", message).with_key(key).with_retry(Retry::Backoff));
        }
        Ok(true)
    }
}

fn complete_xml(receipts: &[Receipt], checksums: bool) -> String {
    let mut xml = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for part in receipts {
        let _ = write!(
            xml,
            "<Part><PartNumber>{}</PartNumber><ETag>&quot;{}&quot;</ETag>",
            part.number,
            xml::escape(&part.etag)
        );
        if let Some(crc) = part.crc.filter(|_| checksums) {
            let _ = write!(xml, "<ChecksumCRC64NVME>{}</ChecksumCRC64NVME>", body::to_base64(&crc.to_be_bytes()));
        }
        xml.push_str("</Part>");
    }
    xml.push_str("</CompleteMultipartUpload>");
    xml
}

/// After an answer that leaves it open: the ETag when the whole is there after all.
async fn landed(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    expected: Option<&str>,
    size: u64,
) -> Option<String> {
    let expected = expected?;
    let headers = read::head(service, key, place, None).await.ok()?;
    let same = read::size(&headers, key).ok() == Some(size)
        && meta::etag(&headers).is_some_and(|etag| meta::version(etag).0[..] == *expected.as_bytes());
    same.then(|| expected.to_owned())
}

/// Aborts a multipart upload; false when it no longer exists, perhaps with its bucket.
pub async fn abort(service: &Service, place: &ObjectAddress, id: &str) -> FaultResult<bool> {
    let call = Call::object("AbortMultipartUpload", Method::DELETE, place).query("uploadId", id);
    match service.ask_for_nothing(call).await {
        Err(fault) if fault.kind.is_missing() => Ok(false),
        other => other.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_checksums_make_the_whole_one() {
        let data: Vec<u8> = (0..100_000u32).map(|i| (i * 31) as u8).collect();
        let crc = |bytes: &[u8]| haul_core::hash::hash_bytes(&[Algo::Crc64Nvme], bytes);
        let parts: Vec<Part> = data
            .chunks(40_000)
            .enumerate()
            .map(|(i, c)| Part {
                index: i as u64,
                size: c.len() as u64,
                tag: receipt("\"e\"", crc(c).get(Algo::Crc64Nvme)),
            })
            .collect();
        let whole = whole_crc(&receipts(&parts).unwrap()).unwrap();
        assert_eq!(crc(&data).get(Algo::Crc64Nvme), Some(&whole.to_be_bytes()[..]));
    }

    #[test]
    fn parts_must_be_whole_and_sent() {
        let part = |index, tag: &[u8]| Part { index, size: 1, tag: tag.to_vec() };
        assert_eq!(receipts(&[part(0, b"a"), part(2, b"b")]).unwrap_err(), "part 1 of the upload is missing");
        assert_eq!(receipts(&[part(0, b"")]).unwrap_err(), "part 0 of the upload was never sent");
    }
}
