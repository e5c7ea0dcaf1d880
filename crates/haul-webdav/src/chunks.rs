//! Large files for Nextcloud (its "chunked upload v2"): chunks are sent in any order into a separate directory beside the user's files. The
//! server assembles them under the hidden name, and from there on it is a write like any other (see `upload`). Such a directory
//! outlives the process, so a later run can resume it.

use crate::{
    Service, answer, change,
    list::{self, method},
    names::{self, hidden_as},
    proof,
    upload::{self, FileUpload},
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Mtime, Result, Retry};
use haul_net::{Fault, at};
use haul_store::{
    Body, Direction, LateFacts, Part, PartLimits, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload,
    WriteSpec, tree::FoundName, web::Call,
};
use http::{HeaderName, Method, header};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{sync::OnceCell, time::Instant};
use url::Url;

/// Chunks are called 1 to 10000.
const MOST: u64 = 10_000;
/// The largest chunk, in bytes.
const LARGEST: u64 = 5_000_000_000;
/// The smallest chunk but the last, in bytes, where the server passes chunks on to S3. The user may choose a smaller size.
const SMALLEST: u64 = 5 << 20;
/// Digits of a chunk's number: with a fixed width, chunks are in order however names are compared.
const DIGITS: usize = 5;
/// Directories of chunks are called so, and 32 hexadecimal digits.
const PREFIX: &str = "haul-";
/// The receipt of a part that is held back and not yet sent.
const HELD: &[u8] = b"held";
/// The receipt of a chunk that was sent: a server gives none that could be compared later.
const SENT: &[u8] = b"sent";
/// A server that has said nothing within the time of its proxy is given this long to put the chunks together, and …
const PATIENCE: Duration = Duration::from_secs(30);
/// … one second more for each this many bytes.
const ASSEMBLED: u64 = 20 << 20;

/// Where chunks go, and their size.
#[derive(Debug)]
pub struct Chunks {
    /// Directories of chunks are made here; it ends in `/`.
    home: Url,
    /// True when the store's root is all of the user's files.
    is_whole: bool,
    /// Bytes of a chunk.
    size: u64,
}

impl Chunks {
    /// For a store whose root is `…/dav/files/USER/…`; `None` for another address.
    pub fn of(root: &Url, size: u64) -> Option<Chunks> {
        const FILES: &str = "/dav/files/";
        let (base, rest) = root.path().split_once(FILES)?;
        let (user, below) = rest.split_once('/')?;
        if user.is_empty() {
            return None;
        }
        let mut home = root.clone();
        home.set_path(&format!("{base}/dav/uploads/{user}/"));
        Some(Chunks { home, is_whole: below.is_empty(), size })
    }

    /// How a file is cut.
    pub fn limits(&self) -> PartLimits {
        PartLimits {
            min: SMALLEST.min(self.size),
            max: LARGEST,
            count: MOST,
            preferred: self.size,
            // Servers and the proxies before them are set up for some size of request.
            chosen: true,
            multiple: 1,
            equal: false,
            waits: false,
            sized: false,
            single: self.size,
            single_copy: u64::MAX,
        }
    }

    /// The directory of an upload.
    fn dir(&self, id: &str) -> Url {
        let mut url = self.home.clone();
        url.set_path(&format!("{}{PREFIX}{id}/", self.home.path()));
        url
    }
}

fn chunk(dir: &Url, name: &str) -> Url {
    let mut url = dir.clone();
    url.set_path(&format!("{}{name}", dir.path()));
    url
}

/// A write that goes in chunks if it needs several.
pub struct Chunked {
    service: Arc<Service>,
    key: Key,
    spec: WriteSpec,
    /// The write itself, if it needs no chunks, or once its chunks are assembled.
    whole: FileUpload,
    /// The upload's name: the hidden file has it too.
    id: String,
    dir: Url,
    /// Set once the directory was made.
    begun: OnceCell<()>,
    /// An earlier run has sent chunks.
    resumed: bool,
    /// The first part, until it is known whether there will be others.
    held: Mutex<Option<Payload>>,
    assembled: AtomicBool,
}

impl Chunked {
    /// Begins a write; sends nothing.
    ///
    /// Errors: `Invalid` for what can't be a file's name.
    pub fn begin(service: Arc<Service>, chunks: &Chunks, key: &Key, spec: WriteSpec) -> Result<Chunked> {
        Chunked::with(service, chunks, key, spec, names::chance(key)?, false)
    }

    fn with(
        service: Arc<Service>,
        chunks: &Chunks,
        key: &Key,
        spec: WriteSpec,
        id: String,
        resumed: bool,
    ) -> Result<Chunked> {
        let whole = FileUpload::hidden(service.clone(), key, spec.clone(), &id)?;
        let begun = if resumed { OnceCell::new_with(Some(())) } else { OnceCell::new() };
        let (dir, held, assembled) = (chunks.dir(&id), Mutex::default(), AtomicBool::default());
        Ok(Chunked { service, key: key.clone(), spec, whole, id, dir, begun, resumed, held, assembled })
    }

    fn held(&self) -> MutexGuard<'_, Option<Payload>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn corrupt(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, "write", message).with_key(&self.key).with_retry(Retry::Backoff)
    }

    /// Makes the directory.
    async fn make(&self) -> Result<()> {
        let make = async {
            change::make_dir(&self.service, &self.key.parent()).await?;
            let call = self.call("MKCOL", Direction::Meta, method("MKCOL"), self.dir.clone())?;
            match answer::done(&self.service, call).await {
                // The answer to the first try was lost: nobody else knows the name.
                Err(fault) if fault.status == 405 => Ok(()),
                other => other.map_err(at("write", &self.key)),
            }
        };
        self.begun.get_or_try_init(|| make).await.map(|_| ())
    }

    /// A request of this upload: each says where the file will be, and how long.
    fn call(&self, kind: &'static str, direction: Direction, method: Method, url: Url) -> Result<Call> {
        let to = self.service.web.url(&self.whole.to)?;
        let call = Call::new(kind, direction, method, url).header(HeaderName::from_static("destination"), to.as_str());
        Ok(match self.spec.size.filter(|_| !self.spec.size_may_differ) {
            Some(size) => call.header(TOTAL, size.to_string()),
            None => call,
        })
    }

    async fn send(&self, index: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        let known = self.spec.size.filter(|_| !self.spec.size_may_differ);
        if index == 0 && self.begun.get().is_none() {
            if known == Some(size) {
                self.whole.send(&payload).await?;
                return Ok(Part { index, size, tag: SENT.into() });
            }
            if known.is_none() && payload.pieces().is_some() {
                *self.held() = Some(payload);
                return Ok(Part { index, size, tag: HELD.into() });
            }
        }
        if index >= MOST {
            let message =
                format!("the server takes {MOST} chunks of a file at most: set a larger nextcloud_chunk_size");
            return Err(Error::new(ErrorKind::Unsupported, "write", message).with_key(&self.key));
        }
        self.make().await?;
        Ok(Part { index, size, tag: self.put(index, payload).await? })
    }

    /// Sends a chunk and gives its receipt.
    async fn put(&self, index: u64, payload: Payload) -> Result<Vec<u8>> {
        let mut known = payload.hashes().clone();
        if payload.relay().is_none() && !proof::can(&self.service, &known) {
            known = payload.hash(&[Algo::Md5]).await.map_err(|e| e.with_key(&self.key))?;
        }
        let name = format!("{:0DIGITS$}", index + 1);
        let mut call = self.call("PUT", Direction::Up, Method::PUT, chunk(&self.dir, &name))?;
        call = call.header(header::CONTENT_TYPE, "application/octet-stream");
        call.body = payload.clone();
        match proof::ask(&self.service, call, &known).await {
            Ok(()) => Ok(SENT.into()),
            Err(fault) => match payload.relay().and_then(|relay| relay.error()) {
                Some(own) => Err(own),
                None if matches!(fault.status, 404 | 409) => Err(self.gone()),
                None => Err(fault.at("write", &self.key)),
            },
        }
    }

    fn gone(&self) -> Error {
        let message = "the server has removed the chunks that were sent";
        Error::new(ErrorKind::NotFound, "write", message).with_key(&self.key)
    }

    async fn finish(&self, mut parts: Vec<Part>, late: LateFacts) -> Result<StoredFacts> {
        let held = self.held().clone();
        if self.begun.get().is_none() {
            if let Some(payload) = held.filter(|_| !self.whole.is_sent()) {
                self.whole.send(&payload).await?;
            }
            return self.whole.finish(&parts, late).await;
        }
        parts.sort_by_key(|part| part.index);
        if let Some(missing) = (0..).zip(&parts).find(|(index, part)| *index != part.index) {
            return Err(self.corrupt(format!("chunk {} of the upload is missing", missing.0 + 1)));
        }
        let bytes: u64 = parts.iter().map(|part| part.size).sum();
        if let Some(size) = self.spec.size.filter(|size| *size != bytes && !self.spec.size_may_differ) {
            return Err(self.corrupt(format!("{bytes} bytes came where {size} were announced")));
        }
        if let (Some(payload), Some(first)) = (held, parts.first_mut().filter(|part| part.tag == HELD)) {
            if first.size != payload.len() {
                return Err(self.corrupt("another first part came than was sent last"));
            }
            first.tag = self.put(0, payload).await?;
            *self.held() = None;
        }
        if !self.assembled.load(Relaxed) {
            if self.resumed {
                self.compare(&parts).await?;
            }
            self.assemble(bytes, &late).await?;
            self.assembled.store(true, Relaxed);
            self.whole.is_there();
        }
        self.whole.finish(&parts, late).await
    }

    /// The chunks that an earlier run left must be exactly these.
    async fn compare(&self, parts: &[Part]) -> Result<()> {
        let there = match chunks(&self.service, &self.dir).await {
            // An earlier try may have put them together: that shows next.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|e| e.with_key(&self.key))?,
        };
        let ours: BTreeMap<u64, u64> = parts.iter().map(|part| (part.index, part.size)).collect();
        match there == ours {
            true => Ok(()),
            false => Err(self.corrupt("the server has other chunks than were sent")),
        }
    }

    /// Has the server put the chunks together under the hidden name.
    async fn assemble(&self, bytes: u64, late: &LateFacts) -> Result<()> {
        let mut known = late.hashes.clone();
        known.merge(&self.spec.hashes);
        let mut call = self.call("MOVE", Direction::Copy, method("MOVE"), chunk(&self.dir, ".file"))?;
        call.headers.remove(TOTAL);
        call = call.header(TOTAL, bytes.to_string()).header(HeaderName::from_static("overwrite"), "F");
        let mtime = late.mtime.or(self.spec.mtime);
        call = upload::kept(&self.service, call, mtime, &known);
        let fault = match proof::ask(&self.service, call, &known).await {
            Ok(_) => return Ok(()),
            Err(fault) => fault,
        };
        match fault.status {
            400 => Err(self.corrupt("the server refused to put the chunks together: they aren't what was sent")),
            // An earlier try has done it, or still does.
            0 | 404 | 412 | 423 | 500.. if fault.kind != ErrorKind::Corrupt => self.wait(bytes, *fault).await,
            _ => Err(fault.at("write", &self.key)),
        }
    }

    /// Finds out whether the chunks were put together although the server didn't say so.
    async fn wait(&self, bytes: u64, fault: Fault) -> Result<()> {
        let works = matches!(fault.status, 0 | 423 | 502 | 504) && !fault.refused;
        let patience = if works { PATIENCE + Duration::from_secs(bytes / ASSEMBLED) } else { Duration::ZERO };
        let (begun, mut pause) = (Instant::now(), Duration::from_millis(200));
        loop {
            match list::stat(&self.service, &self.whole.to).await {
                Ok(there) if there.size == bytes => return Ok(()),
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ if begun.elapsed() >= patience => break,
                _ => {}
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(Duration::from_secs(10));
        }
        Err(if fault.status == 404 { self.gone() } else { fault.at("write", &self.key) })
    }
}

/// `OC-Total-Length`.
const TOTAL: HeaderName = HeaderName::from_static("oc-total-length");

/// The chunks in a directory: bytes by index.
async fn chunks(service: &Service, dir: &Url) -> Result<BTreeMap<u64, u64>> {
    let mut there = BTreeMap::new();
    for found in list::inside(service, dir, &Key::new("")).await? {
        match found {
            FoundName::Entry(entry) => {
                let number = std::str::from_utf8(entry.key.name()).ok().and_then(|name| name.parse::<u64>().ok());
                if let Some(index) = number.and_then(|number| number.checked_sub(1)) {
                    there.insert(index, entry.size);
                }
            }
            FoundName::Failed(_, error) => return Err(error),
            FoundName::Vanished(_) => {}
        }
    }
    Ok(there)
}

/// Upload and place, in a line each.
fn token(service: &Service, key: &Key, id: &str) -> Result<Vec<u8>> {
    Ok(format!("{id}\n{}", service.web.url(key)?.path()).into_bytes())
}

/// The upload that a token of this key names.
///
/// Errors: `Invalid`.
fn named(service: &Service, key: &Key, bytes: &[u8]) -> Result<String> {
    let id = std::str::from_utf8(bytes).ok().and_then(|text| Some(text.split_once('\n')?.0.to_owned()));
    let id = id.filter(|id| names::is_chance(id.as_bytes()));
    let ours = id.filter(|id| token(service, key, id).is_ok_and(|ours| ours == bytes));
    ours.ok_or_else(|| Error::new(ErrorKind::Invalid, "resume", "this isn't the token of a write to it").with_key(key))
}

/// See [`haul_store::Resumable::resume`]. What a chunk holds can't be asked for; its receipt was given once all of it had arrived.
pub async fn resume(
    service: &Arc<Service>,
    chunks_of: &Chunks,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    let id = named(service, key, token)?;
    let there = chunks(service, &chunks_of.dir(&id)).await.map_err(|e| e.with_key(key))?;
    let known = sent.into_iter().map(|sent| sent.part).filter(|part| part.tag == SENT);
    let parts = known.filter(|part| there.get(&part.index) == Some(&part.size)).collect();
    let upload = Chunked::with(service.clone(), chunks_of, key, spec, id, true)?;
    Ok((Box::new(upload), parts))
}

/// See [`haul_store::Resumable::discard`].
pub async fn discard(service: &Service, chunks: &Chunks, key: &Key, token: &[u8]) -> Result<bool> {
    let id = named(service, key, token)?;
    let had_chunks = remove(service, chunks.dir(&id)).await.map_err(at("discard", key))?;
    let had_file = remove(service, service.web.url(&hidden_as(key, &id))?).await.map_err(at("discard", key))?;
    Ok(had_chunks || had_file)
}

/// Deletes an entry that only haul knows; false when it is missing already.
async fn remove(service: &Service, url: Url) -> haul_net::FaultResult<bool> {
    match answer::done(service, Call::new("DELETE", Direction::Meta, Method::DELETE, url)).await {
        Err(fault) if matches!(fault.status, 404 | 409) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Directories of chunks that were begun before a time, in seconds, and never put together; removes them unless `dry_run`. They don't
/// tell for which file they are, so they are looked for only where all of the user's files are.
pub async fn cleanup(
    service: &Service,
    chunks: &Chunks,
    oldest: i64,
    dry_run: bool,
) -> (Vec<(Key, Option<Mtime>)>, Vec<Error>) {
    let (mut left, mut failed) = (Vec::new(), Vec::new());
    if !chunks.is_whole {
        return (left, failed);
    }
    let found = match list::inside(service, &chunks.home, &Key::new("")).await {
        Ok(found) => found,
        // A user who has never sent any has none.
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            failed.push(error);
            Vec::new()
        }
    };
    for found in found {
        let entry = match found {
            FoundName::Entry(entry) => entry,
            FoundName::Failed(_, error) => {
                failed.push(error);
                continue;
            }
            FoundName::Vanished(_) => continue,
        };
        let Some(id) = id_of(&entry) else { continue };
        let Some(begun) = entry.mtime.filter(|time| time.secs() <= oldest) else { continue };
        let key = Key::new([b"uploads/", entry.key.as_bytes()].concat());
        if !dry_run && let Err(fault) = remove(service, chunks.dir(&id)).await {
            failed.push(fault.at("cleanup", &key));
        }
        left.push((key, Some(begun)));
    }
    (left, failed)
}

/// The name of the upload whose directory this is.
fn id_of(entry: &Entry) -> Option<String> {
    let name = entry.key.as_bytes().strip_suffix(b"/")?.strip_prefix(PREFIX.as_bytes())?;
    String::from_utf8(name.to_vec()).ok().filter(|id| names::is_chance(id.as_bytes()))
}

impl Upload for Chunked {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async move {
            self.make().await?;
            token(&self.service, &self.key, &self.id).map(Some)
        }
        .boxed()
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
        async move {
            if self.begun.get().is_some() {
                remove(&self.service, self.dir.clone()).await.map_err(at("abort", &self.key))?;
            }
            self.whole.remove().await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_go_beside_the_users_files() {
        let of = |url: &str| {
            let chunks = Chunks::of(&Url::parse(url).unwrap(), 10)?;
            Some((chunks.dir("x").to_string(), chunks.is_whole))
        };
        let dir = "https://h:1/a/remote.php/dav/uploads/an%20na/haul-x/".to_owned();
        assert_eq!(of("https://h:1/a/remote.php/dav/files/an%20na/"), Some((dir.clone(), true)));
        assert_eq!(of("https://h:1/a/remote.php/dav/files/an%20na/b/dav/files/c/"), Some((dir, false)));
        for other in ["https://h/remote.php/webdav/", "https://h/dav/files/", "https://h/dav/files//x/"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn small_chunks_are_for_who_asks_for_them() {
        let limits = |size| Chunks::of(&Url::parse("https://h/dav/files/u/").unwrap(), size).unwrap().limits();
        assert_eq!((limits(1 << 20).min, limits(10 << 20).min), (1 << 20, SMALLEST));
        assert_eq!((limits(10 << 20).single, limits(10 << 20).preferred), (10 << 20, 10 << 20));
    }
}
