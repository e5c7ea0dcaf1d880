//! Writing: one request for a small file, else blocks in any order, which become visible when their list is committed. Each body has a
//! checksum that the server verifies: blocks a CRC-64 where the server confirms that it checked it, all others an MD5.

use crate::{
    error::ServiceError,
    meta::{self, quoted},
    read,
    service::{BlobAddress, Call, Service},
};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Algo, Error, ErrorKind, Hashes, Key, Result, Retry, Version, hash::to_hex, plan::Replace};
use haul_net::{Fault, FaultResult, at};
use haul_store::{
    Body, Direction, LateFacts, Part, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec,
    xml::{self, Step},
};
use http::{HeaderMap, HeaderValue, Method};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Random bytes of an upload's name. With the number of a block, 8 bytes too, they are as long as rclone's: a blob takes names of one
/// length only while blocks of it wait.
const CHANCE: usize = 8;
/// The receipt of a part that is held back and not yet sent.
const HELD: &[u8] = b"held";

/// A write.
pub struct Blocks {
    service: Arc<Service>,
    key: Key,
    place: BlobAddress,
    spec: WriteSpec,
    id: [u8; CHANCE],
    /// Blocks were sent, or will be.
    begun: AtomicBool,
    /// The first part, until it is known whether there will be others.
    held: Mutex<Option<Payload>>,
    /// A publish was requested, and its outcome is unknown.
    maybe: AtomicBool,
}

impl Blocks {
    /// Begins a write; sends nothing.
    ///
    /// Errors: `Invalid` for what can't be a blob's name.
    pub fn begin(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<Blocks> {
        let mut id = [0; CHANCE];
        aws_lc_rs::rand::fill(&mut id)
            .map_err(|_| Error::new(ErrorKind::Io, "write", "the system gives no random bytes").with_key(key))?;
        Blocks::with(service, key, spec, id, false)
    }

    fn with(service: Arc<Service>, key: &Key, spec: WriteSpec, id: [u8; CHANCE], begun: bool) -> Result<Blocks> {
        let place = service.place(key)?;
        if place.blob.is_empty() || key.is_dir() {
            return Err(Error::new(ErrorKind::Invalid, "write", "this can't be the name of a blob").with_key(key));
        }
        let (begun, held, maybe) = (AtomicBool::new(begun), Mutex::default(), AtomicBool::default());
        Ok(Blocks { service, key: key.clone(), place, spec, id, begun, held, maybe })
    }

    fn held(&self) -> MutexGuard<'_, Option<Payload>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn corrupt(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, "write", message).with_key(&self.key)
    }

    /// A first part of this size may turn out to be the only one.
    fn may_hold(&self, len: u64) -> bool {
        match self.spec.size {
            Some(size) if !self.spec.size_may_differ => size == len && size <= self.service.config.chunk_size,
            _ => len <= self.service.config.chunk_size,
        }
    }

    async fn send(&self, index: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        if index == 0 && !self.begun.load(Relaxed) && self.may_hold(size) {
            // Hashed now, while the reader of the source still checks that it doesn't change: the file must have the same content when it
            // is sent.
            let hashes = self.hash(&payload, Algo::Md5).await?;
            *self.held() = Some(payload.with_hashes(hashes));
            return Ok(Part { index, size, tag: HELD.into() });
        }
        self.begun.store(true, Relaxed);
        Ok(Part { index, size, tag: self.put_block(index, payload).await?.into_bytes() })
    }

    /// The checksum to send with a body. While the request has no upload slot its hash may wait too.
    async fn hash(&self, payload: &Payload, algo: Algo) -> Result<Hashes> {
        let lane = self.service.lanes.lane(Direction::Up);
        payload.hash_at(&[algo], &|| lane.is_full()).await.map_err(|e| e.with_key(&self.key))
    }

    async fn put_block(&self, index: u64, payload: Payload) -> Result<String> {
        let name = block_name(&self.id, index);
        let mut arrived = false;
        // Whether the service looks at a CRC-64 shows with the first block: the others wait, or all of them might be sent twice.
        let first = async {
            arrived = self.put_checked(&name, &payload).await?;
            Ok::<bool, Error>(arrived)
        };
        let looks = *self.service.crc64.get_or_try_init(|| first).await?;
        if arrived || looks && self.put_checked(&name, &payload).await? {
            return Ok(name);
        }
        let payload = payload.clone().with_hashes(self.hash(&payload, Algo::Md5).await?);
        let call = self.block(&name, &payload).header("content-md5", md5_of(payload.hashes()));
        let answer = self.service.ask_in(&self.place.container, &call).await;
        let (headers, _) = answer.map_err(|refused| refused.fault.at("write", &self.key))?;
        confirmed(&headers, payload.hashes()).map_err(at("write", &self.key))?;
        Ok(name)
    }

    fn block(&self, name: &str, payload: &Payload) -> Call {
        let call = Call::blob("PutBlock", Method::PUT, &self.place).query("comp", "block").query("blockid", name);
        call.body(Direction::Up, payload.clone())
    }

    /// Sends a block with its CRC-64; false when the service doesn't say that it looked at it, or doesn't take it.
    async fn put_checked(&self, name: &str, payload: &Payload) -> Result<bool> {
        let hashes = self.hash(payload, Algo::Crc64Nvme).await?;
        // Its bytes go the other way round.
        let crc: Vec<u8> = hashes.get(Algo::Crc64Nvme).unwrap_or_default().iter().rev().copied().collect();
        let ours = B64.encode(crc);
        let call = self.block(name, payload).header("x-ms-content-crc64", &ours);
        let answer = match self.service.ask_in(&self.place.container, &call).await {
            Ok((headers, _)) => headers,
            Err(refused) if refused.fault.status == 400 || refused.code == "FeatureNotSupported" => return Ok(false),
            Err(refused) => return Err(refused.fault.at("write", &self.key)),
        };
        match answer.get("x-ms-content-crc64").map(|theirs| theirs.as_bytes() == ours.as_bytes()) {
            Some(true) => Ok(true),
            None => Ok(false),
            Some(false) => {
                let message = "the server took other bytes than were sent (crc64nvme differs)";
                Err(self.corrupt(message).with_retry(Retry::Backoff))
            }
        }
    }

    /// Headers stored with the blob.
    fn headers(&self, spec: &WriteSpec) -> Result<HeaderMap> {
        let md5 = spec.hashes.get(Algo::Md5);
        let mut headers =
            meta::to_headers(&self.service.config, &self.place.blob, spec.mtime, spec.meta.as_deref(), md5)
                .map_err(|e| e.with_key(&self.key))?;
        headers.extend(condition(&spec.replace));
        Ok(headers)
    }

    /// Identifies the write for a later run.
    pub fn name(&self) -> Vec<u8> {
        self.begun.store(true, Relaxed);
        token(&self.place, &self.id)
    }

    /// Has the service copy a block from another blob of the account, of this version.
    pub async fn copy_part(
        &self,
        index: u64,
        from: &BlobAddress,
        version: &Version,
        range: Range<u64>,
    ) -> Result<Part, ServiceError> {
        self.begun.store(true, Relaxed);
        let (name, size) = (block_name(&self.id, index), range.end - range.start);
        let call = Call::blob("PutBlockFromURL", Method::PUT, &self.place)
            .going(Direction::Copy)
            .query("comp", "block")
            .query("blockid", &name)
            .header("x-ms-source-range", format!("bytes={}-{}", range.start, range.end - 1))
            .header("x-ms-source-if-match", quoted(version));
        let call = call.headers(self.service.signed_source(from).await?);
        self.service.ask_in(&self.place.container, &call).await?;
        Ok(Part { index, size, tag: name.into_bytes() })
    }

    /// Checks that blocks of these sizes wait for their list.
    ///
    /// Errors: `Unsupported` where sizes differ, so that the file goes through this machine.
    pub async fn are_waiting(&self, parts: &[Part]) -> Result<()> {
        let list = list(&self.service, &self.key, &self.place, "uncommitted").await?;
        let is_there = |part: &Part| list.waiting.get(&*String::from_utf8_lossy(&part.tag)) == Some(&part.size);
        match parts.iter().all(is_there) {
            true => Ok(()),
            false => {
                let message = "the service doesn't copy the ranges that it is asked for";
                Err(Error::new(ErrorKind::Unsupported, "copy", message).with_key(&self.key))
            }
        }
    }

    /// Makes the blob of its parts.
    pub async fn finish(&self, mut parts: Vec<Part>, late: LateFacts) -> Result<StoredFacts> {
        let mut spec = self.spec.clone();
        spec.mtime = late.mtime.or(spec.mtime);
        spec.meta = late.meta.or(spec.meta);
        let mut hashes = late.hashes;
        if !spec.size_may_differ {
            hashes.merge(&spec.hashes);
        }
        spec.hashes = hashes;
        let bytes: u64 = parts.iter().map(|part| part.size).sum();
        if let Some(size) = spec.size.filter(|size| *size != bytes && !spec.size_may_differ) {
            return Err(self.corrupt(format!("{bytes} bytes came where {size} were announced")));
        }
        let held = self.held().clone();
        if !self.begun.load(Relaxed) {
            let payload = held.unwrap_or_default();
            if payload.len() != bytes {
                return Err(self.corrupt(format!("{bytes} bytes came, of which {} are at hand", payload.len())));
            }
            return self.put_blob(spec, payload).await;
        }
        parts.sort_by_key(|part| part.index);
        if let Some((missing, _)) = (0..).zip(&parts).find(|(index, part)| *index != part.index) {
            return Err(self.corrupt(format!("part {missing} of the upload is missing")));
        }
        if let (Some(payload), Some(first)) = (held, parts.first_mut().filter(|part| part.tag == HELD)) {
            if first.size != payload.len() {
                return Err(self.corrupt("another first part came than was sent last"));
            }
            first.tag = self.put_block(0, payload).await?.into_bytes();
        }
        if parts.iter().any(|part| part.tag != block_name(&self.id, part.index).as_bytes()) {
            return Err(self.corrupt("a part of the upload was never sent"));
        }
        self.put_list(spec, &parts).await
    }

    async fn put_blob(&self, mut spec: WriteSpec, payload: Payload) -> Result<StoredFacts> {
        let payload = payload.clone().with_hashes(self.hash(&payload, Algo::Md5).await?);
        if let Some((algo, false)) = payload.hashes().agree(&spec.hashes) {
            return Err(self.corrupt(format!("other bytes came than the source says that it has ({algo} differs)")));
        }
        spec.hashes.merge(payload.hashes());
        let call = Call::blob("PutBlob", Method::PUT, &self.place)
            .header("x-ms-blob-type", "BlockBlob")
            .header("content-md5", md5_of(payload.hashes()))
            .headers(self.headers(&spec)?)
            .body(Direction::Up, payload.clone());
        let (headers, _) = match self.service.ask_in(&self.place.container, &call).await {
            Ok(answer) => answer,
            Err(refused) => return self.doubt(refused, &spec, payload.hashes(), payload.len()).await,
        };
        confirmed(&headers, payload.hashes()).map_err(at("write", &self.key))?;
        Ok(StoredFacts {
            version: Some(receipt(&headers).map_err(at("write", &self.key))?),
            size: payload.len(),
            hashes: payload.hashes().clone(),
            ..StoredFacts::default()
        })
    }

    /// A whole blob was refused, or the outcome is unknown. An earlier try that succeeded shows by the content.
    async fn doubt(&self, refused: ServiceError, spec: &WriteSpec, ours: &Hashes, size: u64) -> Result<StoredFacts> {
        let unmet = matches!(refused.fault.kind, ErrorKind::Exists | ErrorKind::Changed);
        if unmet && self.maybe.load(Relaxed) {
            let facts = read::head(&self.service, &self.key, &self.place, None).await?;
            if facts.size == size && facts.md5().as_deref() == ours.get(Algo::Md5) {
                return Ok(StoredFacts {
                    version: Some(Version::new(facts.etag)),
                    size,
                    hashes: ours.clone(),
                    ..StoredFacts::default()
                });
            }
        }
        self.maybe.fetch_or(refused.fault.is_ambiguous(), Relaxed);
        Err(refusal(refused, &spec.replace, &self.key))
    }

    async fn put_list(&self, spec: WriteSpec, parts: &[Part]) -> Result<StoredFacts> {
        let names: Vec<String> = parts.iter().map(|part| block_name(&self.id, part.index)).collect();
        let body = Bytes::from(document(&names));
        let md5 = haul_core::hash::hash_bytes(&[Algo::Md5], &body);
        let call = Call::blob("PutBlockList", Method::PUT, &self.place)
            .query("comp", "blocklist")
            .header("content-type", "application/xml")
            .header("content-md5", md5_of(&md5))
            .headers(self.headers(&spec)?)
            .body(Direction::Meta, body.into());
        let size = parts.iter().map(|part| part.size).sum();
        let mut stored = StoredFacts { size, ..StoredFacts::default() };
        // Each block was verified on its own; only the source knows the hash of the whole.
        match self.service.ask(&call).await {
            Ok((headers, _)) => stored.version = Some(receipt(&headers).map_err(at("write", &self.key))?),
            Err(refused) => {
                let unmet = matches!(refused.fault.kind, ErrorKind::Exists | ErrorKind::Changed | ErrorKind::NotFound);
                let before = self.maybe.load(Relaxed);
                self.maybe.fetch_or(refused.fault.is_ambiguous(), Relaxed);
                // An earlier try succeeded: no other writer has blocks of these names.
                let landed = if unmet && before { self.landed(parts).await } else { None };
                stored.version = Some(landed.ok_or_else(|| refusal(refused, &spec.replace, &self.key))?);
            }
        }
        Ok(stored)
    }

    /// The version of the blob when it is made of these blocks.
    async fn landed(&self, parts: &[Part]) -> Option<Version> {
        let call = Call::blob("GetBlockList", Method::GET, &self.place)
            .query("comp", "blocklist")
            .query("blocklisttype", "committed");
        let (headers, body) = self.service.ask(&call).await.ok()?;
        let there = parse_blocks(&body)?;
        let ours = parts.iter().map(|part| (block_name(&self.id, part.index), part.size));
        there.committed.into_iter().eq(ours).then(|| receipt(&headers).ok()).flatten()
    }
}

fn block_name(id: &[u8; CHANCE], index: u64) -> String {
    B64.encode([&index.to_be_bytes()[..], &id[..]].concat())
}

fn md5_of(hashes: &Hashes) -> String {
    B64.encode(hashes.get(Algo::Md5).unwrap_or_default())
}

/// The server says which MD5 it has checked; one that says another has something else.
fn confirmed(answer: &HeaderMap, ours: &Hashes) -> FaultResult<()> {
    let server_md5 = answer.get("content-md5").and_then(|value| B64.decode(value.as_bytes()).ok());
    match server_md5 {
        Some(server_md5) if Some(&server_md5[..]) != ours.get(Algo::Md5) => Err(Fault::new(
            ErrorKind::Corrupt,
            Retry::Backoff,
            "the server took other bytes than were sent (md5 differs)",
        )),
        _ => Ok(()),
    }
}

/// The version that an answer names.
///
/// Errors: it names none.
pub fn receipt(answer: &HeaderMap) -> FaultResult<Version> {
    let etag = answer.get("etag").and_then(|etag| etag.to_str().ok()).map(meta::bare).filter(|etag| !etag.is_empty());
    etag.map(Version::new).ok_or_else(|| {
        Fault::broken("the server gave no receipt (an ETag) for what was sent: is the endpoint Azure's blob service?")
    })
}

/// Headers that hold a write to its condition.
pub fn condition(replace: &Replace) -> HeaderMap {
    let mut headers = HeaderMap::new();
    match replace {
        Replace::Anything => {}
        Replace::Absent => drop(headers.insert("if-none-match", HeaderValue::from_static("*"))),
        Replace::Exactly(version) => {
            // A foreign version matches no blob.
            let value = HeaderValue::from_str(&quoted(version)).unwrap_or_else(|_| HeaderValue::from_static("\"\""));
            headers.insert("if-match", value);
        }
    }
    headers
}

/// The error of a write that was refused.
pub fn refusal(refused: ServiceError, replace: &Replace, key: &Key) -> Error {
    let kind = refused.fault.kind;
    let unmet = matches!(kind, ErrorKind::Exists | ErrorKind::Changed | ErrorKind::NotFound);
    match replace {
        Replace::Absent if matches!(kind, ErrorKind::Exists | ErrorKind::Changed) => {
            Error::new(ErrorKind::Exists, "write", "is there already").with_key(key)
        }
        Replace::Exactly(_) if unmet && !refused.code.starts_with("InvalidBlo") => {
            Error::new(ErrorKind::Changed, "write", "changed since it was listed").with_key(key)
        }
        _ => refused.fault.at("write", key),
    }
}

fn document(names: &[String]) -> String {
    let names: String = names.iter().map(|name| format!("<Uncommitted>{name}</Uncommitted>")).collect();
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{names}</BlockList>")
}

/// Blocks of a blob: names and bytes.
#[derive(Debug, Default, PartialEq)]
struct List {
    committed: Vec<(String, u64)>,
    waiting: BTreeMap<String, u64>,
}

fn parse_blocks(body: &[u8]) -> Option<List> {
    let (mut list, mut is_list, mut waiting, mut name, mut size) = (List::default(), false, false, None, None);
    xml::walk(body, |step| match step {
        Step::Open("BlockList") => is_list = true,
        Step::Open("CommittedBlocks") => waiting = false,
        Step::Open("UncommittedBlocks") => waiting = true,
        Step::Open("Block") => (name, size) = (None, None),
        Step::Close("Name", text) => name = Some(text.trim().to_owned()),
        Step::Close("Size", text) => size = text.trim().parse().ok(),
        Step::Close("Block", _) => match (name.take(), size, waiting) {
            (Some(name), Some(size), true) => drop(list.waiting.insert(name, size)),
            (Some(name), Some(size), false) => list.committed.push((name, size)),
            _ => {}
        },
        _ => {}
    })?;
    is_list.then_some(list)
}

/// Upload, container and blob, in a line each. Only a blob could hold a newline, so it comes last.
fn token(place: &BlobAddress, id: &[u8; CHANCE]) -> Vec<u8> {
    [to_hex(id).as_bytes(), b"\n", place.container.as_bytes(), b"\n", &place.blob].concat()
}

/// The upload that a token of this key names.
///
/// Errors: `Invalid`.
fn named(service: &Service, key: &Key, bytes: &[u8]) -> Result<[u8; CHANCE]> {
    let place = service.place(key)?;
    let hex = bytes.split(|b| *b == b'\n').next().and_then(|hex| std::str::from_utf8(hex).ok());
    let id = hex.and_then(haul_core::hash::from_hex).and_then(|id| <[u8; CHANCE]>::try_from(id).ok());
    id.filter(|id| token(&place, id) == bytes)
        .ok_or_else(|| Error::new(ErrorKind::Invalid, "resume", "this isn't the token of a write to it").with_key(key))
}

/// The blocks of a blob, and those that wait for their list: `all`, or one of the two.
async fn list(service: &Service, key: &Key, place: &BlobAddress, which: &str) -> Result<List> {
    let call = Call::blob("GetBlockList", Method::GET, place).query("comp", "blocklist").query("blocklisttype", which);
    let (_, body) = service.ask(&call).await.map_err(|refused| refused.fault.at("resume", key))?;
    parse_blocks(&body).ok_or_else(|| {
        let message = "the server can't tell what it has of an unfinished upload";
        Error::new(ErrorKind::Corrupt, "resume", message).with_retry(Retry::Backoff).with_key(key)
    })
}

/// See [`haul_store::Resumable::resume`]. Blocks are identified by their unique names; the server has verified each. A caller that
/// names no block gets the write back unless it was published: blocks sent by others don't matter to it.
pub async fn resume(
    service: &Arc<Service>,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    again(service, key, token, sent, spec).await.map(|(blocks, parts)| (Box::new(blocks) as Box<dyn Upload>, parts))
}

/// Resumes a write, or a copy.
pub async fn again(
    service: &Arc<Service>,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<(Blocks, Vec<Part>)> {
    let id = named(service, key, token)?;
    let gone = || Err(Error::new(ErrorKind::NotFound, "resume", "the upload is gone").with_key(key));
    let none = sent.is_empty();
    let list = match list(service, key, &service.place(key)?, "all").await {
        // Before its first block the service knows nothing of a write.
        Err(error) if none && error.is_missing() => List::default(),
        other => other?,
    };
    if list.committed.first().is_some_and(|(name, _)| *name == block_name(&id, 0)) {
        return gone();
    }
    let is_there = |part: &Part| {
        let name = block_name(&id, part.index);
        part.tag == name.as_bytes() && list.waiting.get(&name) == Some(&part.size)
    };
    let parts: Vec<Part> = sent.into_iter().map(|sent| sent.part).filter(is_there).collect();
    if parts.is_empty() && !none {
        return gone();
    }
    let blocks = Blocks::with(service.clone(), key, spec, id, true)?;
    // Another process may publish it meanwhile.
    blocks.maybe.store(none, Relaxed);
    Ok((blocks, parts))
}

/// See [`haul_store::Resumable::discard`]: the service has no request that removes blocks. They expire a week after the last one was sent.
///
/// Errors: `Invalid` when the token doesn't belong to this key.
pub fn discard(service: &Service, key: &Key, token: &[u8]) -> Result<bool> {
    named(service, key, token).map(|_| false)
}

impl Upload for Blocks {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async move { Ok(Some(self.name())) }.boxed()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn read_back(&self, _: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let message = "what was sent can't be read before it is published";
        async move { Err(Error::new(ErrorKind::Unsupported, "read", message).with_key(&self.key)) }.boxed()
    }

    fn part(&self, index: u64, _: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        self.send(index, payload).boxed()
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
        // As `discard`.
        async { Ok(()) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_blocks_have_one_length() {
        let names = [0, 1, 49_999].map(|index| block_name(&[7; CHANCE], index));
        assert!(names.iter().all(|name| name.len() == 24), "{names:?}");
    }

    #[test]
    fn lists_of_blocks() {
        let xml = b"<?xml version=\"1.0\"?><BlockList><CommittedBlocks><Block><Name>a</Name><Size>1</Size></Block></CommittedBlocks>\
            <UncommittedBlocks><Block><Name>b</Name><Size>2</Size></Block></UncommittedBlocks></BlockList>";
        let list = parse_blocks(xml).unwrap();
        assert_eq!(list.committed, [("a".to_owned(), 1)]);
        assert_eq!(list.waiting, [("b".to_owned(), 2)].into());
        assert_eq!(parse_blocks(b"<html></html>"), None);
    }
}
