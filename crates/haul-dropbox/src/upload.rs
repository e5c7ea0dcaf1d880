//! Writing: what is small is kept until it is sent with others; what is less so is one request that begins and ends a session, and what is
//! large goes to a session that takes pieces in any order. All are published together with others.

use crate::{
    change,
    gather::{self, CommitError, File, Open},
    options::BLOCK,
    read,
    service::{Facts, Service, written},
    session::{blocks, hex, start, start_whole},
};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use haul_core::{
    Entry, Error, ErrorKind, Hashes, Key, Mtime, Result,
    hash::{from_hex, of_dropbox_blocks, to_hex},
    plan::Replace,
};
use haul_net::Fault;
use haul_oauth::{ServiceError, ServiceResult};
use haul_store::{
    Body, LateFacts, Part, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec, disk,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::sync::OnceCell;

/// Bytes of a file at most that is sent with others: larger ones wouldn't gain much by it, all that wait are in memory, and none of them
/// is published before all of a thousand are sent.
const TINY: u64 = 16 << 10;
/// The receipt of a part that is held back and not yet sent.
const HELD: &[u8] = b"held";
/// Prefix of the receipt of a part that shares blocks with its neighbours; then follow, as JSON, the hashes of runs of blocks of its own
/// and of theirs that were sent by then, with their offsets.
const JOINED: &[u8] = b"joined";
/// Bytes of the hash of a block.
const DIGEST: usize = 32;

/// A write.
pub struct Write {
    service: Arc<Service>,
    key: Key,
    path: String,
    spec: WriteSpec,
    /// The session of a write in pieces.
    session: OnceCell<String>,
    /// Pieces are asked for, or were sent by an earlier run.
    begun: AtomicBool,
    state: Mutex<State>,
    /// Until it joins the others.
    open: Mutex<Option<Open>>,
}

#[derive(Default)]
struct State {
    /// The session that holds the whole, and the hashes of its blocks.
    whole: Option<(String, Vec<u8>)>,
    /// By offset: bytes that wait for the part after them, or for the rest of their block.
    held: BTreeMap<u64, Payload>,
    /// Blocks, by offset, that are put together and on their way.
    joining: BTreeSet<u64>,
    /// By offset: the hashes of the blocks of what was sent.
    digests: BTreeMap<u64, Vec<u8>>,
    /// The end of the session was asked for.
    closing: bool,
    /// A commit was asked for, and nobody knows whether it was made.
    maybe: bool,
}

impl State {
    /// The held bytes of this range, if all of them are there.
    fn all_of(&self, bytes: Range<u64>) -> Option<Vec<Payload>> {
        let mut at = bytes.start;
        let mut pieces = Vec::new();
        for (offset, piece) in self.held.range(bytes.clone()) {
            if *offset != at {
                return None;
            }
            at += piece.len();
            pieces.push(piece.clone());
        }
        (at == bytes.end).then_some(pieces)
    }

    /// The block at this offset was sent.
    fn has(&self, block: u64) -> bool {
        let before = self.digests.range(..=block).next_back();
        before.is_some_and(|(offset, digests)| offset + (digests.len() / DIGEST) as u64 * BLOCK > block)
    }

    /// Runs of blocks among these that weren't sent.
    fn missing(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in (bytes.start..bytes.end).step_by(BLOCK as usize).filter(|block| !self.has(*block)) {
            match runs.last_mut() {
                Some(run) if run.end == block => run.end = block + BLOCK,
                _ => runs.push(block..block + BLOCK),
            }
        }
        runs
    }

    /// The receipt of a part whose bytes are these.
    fn receipt(&self, bytes: Range<u64>) -> Vec<u8> {
        let ends = |(offset, digests): &(&u64, &Vec<u8>)| *offset + (digests.len() / DIGEST) as u64 * BLOCK;
        let sent = self.digests.range(..bytes.end).filter(|run| ends(run) > bytes.start);
        let runs: Vec<(u64, String)> = sent.map(|(offset, digests)| (*offset, to_hex(digests))).collect();
        [JOINED, &serde_json::to_vec(&runs).unwrap_or_default()].concat()
    }

    /// Runs of held pieces that follow each other: offset, bytes.
    fn runs(&self) -> Vec<(u64, Vec<Payload>)> {
        let mut runs: Vec<(u64, Vec<Payload>)> = Vec::new();
        let mut end = None;
        for (offset, piece) in &self.held {
            match runs.last_mut() {
                Some((_, run)) if end == Some(*offset) => run.push(piece.clone()),
                _ => runs.push((*offset, vec![piece.clone()])),
            }
            end = Some(offset + piece.len());
        }
        runs
    }
}

/// Several payloads as one, in memory where there are several.
async fn joined(mut pieces: Vec<Payload>) -> Result<Payload> {
    if pieces.len() < 2 {
        return Ok(pieces.pop().unwrap_or_default());
    }
    let first = pieces.first().cloned().unwrap_or_default();
    let bytes = disk::run(move || pieces.iter().map(|piece| Ok(Bytes::from(piece.concat()?))).collect()).await?;
    Ok(first.with_pieces(bytes))
}

/// Contents of a resume token.
#[derive(Serialize, Deserialize)]
struct Token {
    path: String,
    session: String,
}

/// The write mode for a `replace` condition. A file that wasn't `seen` under exactly this name is written as a new file first: otherwise
/// one whose name differs by case alone would be replaced.
fn mode(replace: &Replace, seen: bool) -> Value {
    match replace {
        Replace::Anything if seen => json!({".tag": "overwrite"}),
        Replace::Anything | Replace::Absent => json!({".tag": "add"}),
        Replace::Exactly(version) => json!({".tag": "update", "update": String::from_utf8_lossy(&version.0)}),
    }
}

impl Write {
    /// Begins a write; sends nothing.
    ///
    /// Errors: `Invalid` for what can't be a file's name; `Exists` for one that differs by case only from another, or is in a folder that
    /// does.
    pub async fn begin(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<Write> {
        if key.is_root() || key.is_dir() {
            return Err(Error::new(ErrorKind::Invalid, "write", "this can't be the name of a file").with_key(key));
        }
        let path = service.path(key)?;
        // First, so that a refused write claims no name.
        service.has_room("write", key).await?;
        service.claim(key, &path)?;
        let limit = service.caps.parts.map_or(0, |parts| parts.single);
        let small = spec.size.is_some_and(|size| size <= limit);
        let open = Mutex::new(small.then(|| service.gather.open()));
        Ok(Write {
            service,
            key: key.clone(),
            path,
            spec,
            session: OnceCell::new(),
            begun: AtomicBool::default(),
            state: Mutex::default(),
            open,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn corrupt(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, "write", message).with_key(&self.key)
    }

    fn size(&self) -> Option<u64> {
        self.spec.size.filter(|_| !self.spec.size_may_differ)
    }

    async fn session(&self) -> Result<&String> {
        self.begun.store(true, Relaxed);
        let start = async || {
            let question = json!({"session_type": {".tag": "concurrent"}});
            start(&self.service, &question, Payload::default()).await.map_err(|refused| refused.at("write", &self.key))
        };
        self.session.get_or_try_init(start).await
    }

    async fn send(&self, index: u64, offset: u64, payload: Payload) -> Result<Part> {
        let size = payload.len();
        let limit = self.service.caps.parts.map_or(0, |parts| parts.single);
        let begun = self.begun.load(Relaxed);
        if index == 0 && !begun && self.size() == Some(size) && size > TINY && size <= limit {
            let digests = blocks(&payload).await.map_err(|e| e.with_key(&self.key))?;
            self.whole(payload, &digests).await?;
            return Ok(Part { index, size, tag: digests });
        }
        let end = offset + size;
        let ends = self.size() == Some(end);
        let is_aligned = offset.is_multiple_of(BLOCK);
        if ends && is_aligned || index == 0 && !begun && self.size().is_none() {
            // Who ends a session must know that all else is there; and what is small is one request.
            self.state().held.insert(offset, payload);
            if index > 0 {
                self.session().await?;
            }
            return Ok(Part { index, size, tag: HELD.into() });
        }
        if is_aligned && size.is_multiple_of(BLOCK) {
            let tag = self.append(offset, payload, false).await?;
            return Ok(Part { index, size, tag });
        }
        // Of other parts, encrypted ones say, whole blocks go at once and the others with what comes beside them.
        let from = offset.next_multiple_of(BLOCK).min(end);
        let to = if ends { from } else { (end / BLOCK * BLOCK).max(from) };
        let missing = self.state().missing(from..to.max(from));
        for run in missing {
            self.append(run.start, payload.slice(run.start - offset..run.end - offset), false).await?;
        }
        for bytes in [offset..from, to..end] {
            let piece = payload.slice(bytes.start - offset..bytes.end - offset);
            if !piece.is_empty() && !self.state().has(bytes.start / BLOCK * BLOCK) {
                // It outlives the memory that it came in.
                let copied = piece.clone();
                let copied = disk::run(move || copied.concat()).await.map_err(|e| e.with_key(&self.key))?;
                self.state().held.insert(bytes.start, piece.with_pieces(vec![copied.into()]));
            }
        }
        for block in BTreeSet::from([offset / BLOCK, end / BLOCK]) {
            self.join(block * BLOCK).await?;
        }
        let tag = self.state().receipt(offset..end);
        Ok(Part { index, size, tag })
    }

    /// Sends the block at this offset once all of it is held; the last one ends the session and stays.
    async fn join(&self, block: u64) -> Result<()> {
        let pieces = {
            let mut state = self.state();
            let is_last = self.size().is_some_and(|size| size <= block + BLOCK);
            let pieces = state.all_of(block..block + BLOCK).filter(|_| !is_last);
            let Some(pieces) = pieces.filter(|_| !state.joining.contains(&block)) else { return Ok(()) };
            state.joining.insert(block);
            pieces
        };
        let send = async { self.append(block, joined(pieces).await?, false).await };
        let sent = send.await;
        let mut state = self.state();
        state.joining.remove(&block);
        sent?;
        state.held.retain(|offset, _| !(block..block + BLOCK).contains(offset));
        Ok(())
    }

    /// Sends the whole by one request.
    async fn whole(&self, payload: Payload, digests: &[u8]) -> Result<()> {
        let sent = start_whole(&self.service, payload, digests).await;
        let session = sent.map_err(|refused| refused.at("write", &self.key))?;
        self.state().whole = Some((session, digests.to_vec()));
        Ok(())
    }

    /// Sends a piece; gives back the hashes of its blocks.
    async fn append(&self, offset: u64, payload: Payload, close: bool) -> Result<Vec<u8>> {
        let session = self.session().await?;
        let digests = blocks(&payload).await.map_err(|e| e.with_key(&self.key))?;
        let mut question = json!({"cursor": {"session_id": session, "offset": offset}, "close": close});
        if !payload.is_empty() {
            question["content_hash"] = hex(&digests).into();
        }
        let was_closing = std::mem::replace(&mut self.state().closing, close);
        let call = self.service.send("files/upload_session/append_v2", &question, payload);
        match self.service.api.ask(&call).await {
            // The answer to an earlier try was lost.
            Err(refused) if refused.code == "closed" && close && was_closing => {}
            Err(refused) => return Err(refused.at("write", &self.key)),
            Ok(_) => {}
        }
        self.state().digests.insert(offset, digests.clone());
        Ok(digests)
    }

    /// Sends what was held back, and ends the session. Gives back its name and the hashes of all blocks.
    async fn close(&self, bytes: u64) -> Result<(String, Vec<u8>)> {
        let done = self.state().whole.clone();
        if let Some(done) = done {
            return Ok(done);
        }
        // A further part may be too short to be sent before it is known that it is the last.
        let in_one = self.state().held.len() < 2;
        if !self.begun.load(Relaxed) && in_one {
            let payload = self.state().held.get(&0).cloned().unwrap_or_default();
            if payload.len() != bytes {
                return Err(self.corrupt(format!("{bytes} bytes came, of which {} are at hand", payload.len())));
            }
            let digests = blocks(&payload).await.map_err(|e| e.with_key(&self.key))?;
            self.whole(payload, &digests).await?;
            return self.state().whole.clone().ok_or_else(|| self.corrupt("nothing was sent"));
        }
        let runs = self.state().runs();
        let mut ended = false;
        for (offset, run) in runs {
            let run = joined(run).await.map_err(|e| e.with_key(&self.key))?;
            ended = offset + run.len() == bytes;
            self.append(offset, run, ended).await?;
        }
        if !ended {
            self.append(bytes, Payload::default(), true).await?;
        }
        let mut digests = Vec::new();
        for (offset, of_blocks) in &self.state().digests {
            if *offset < bytes && *offset != (digests.len() / DIGEST) as u64 * BLOCK {
                return Err(self.corrupt(format!("nothing was sent of what stands before byte {offset}")));
            }
            digests.extend_from_slice(of_blocks);
        }
        let done = (self.session().await?.clone(), digests);
        let mut state = self.state();
        state.held.clear();
        state.whole = Some(done.clone());
        Ok(done)
    }

    /// The content of a small file, none of which was sent.
    fn tiny(&self, bytes: u64) -> Option<Payload> {
        let state = self.state();
        let content = state.held.get(&0).filter(|content| content.len() == bytes && (1..=TINY).contains(&bytes))?;
        (state.whole.is_none() && !self.begun.load(Relaxed)).then(|| content.clone())
    }

    async fn finish(&self, mut parts: Vec<Part>, late: LateFacts) -> Result<StoredFacts> {
        let mtime = late.mtime.or(self.spec.mtime);
        let mut known = late.hashes;
        if !self.spec.size_may_differ {
            known.merge(&self.spec.hashes);
        }
        parts.sort_by_key(|part| part.index);
        let bytes: u64 = parts.iter().map(|part| part.size).sum();
        if let Some(size) = self.size().filter(|size| *size != bytes) {
            return Err(self.corrupt(format!("{bytes} bytes came where {size} were announced")));
        }
        if let Some((missing, _)) = (0..).zip(&parts).find(|(index, part)| *index != part.index) {
            return Err(self.corrupt(format!("part {missing} of the upload is missing")));
        }
        let tiny = self.tiny(bytes);
        let (session, digests) = match &tiny {
            Some(content) => (None, blocks(content).await.map_err(|e| e.with_key(&self.key))?),
            None => self.close(bytes).await.map(|(session, digests)| (Some(session), digests))?,
        };
        let ours = of_dropbox_blocks(&digests);
        if digests.len() as u64 != bytes.div_ceil(BLOCK) * DIGEST as u64 {
            return Err(self.corrupt("the hashes of the parts that were sent aren't known"));
        }
        if let Some((algo, false)) = ours.agree(&known) {
            return Err(self.corrupt(format!("other bytes came than the source says that it has ({algo} differs)")));
        }
        let seen = self.service.has_seen(&self.path);
        let mut commit =
            json!({"path": self.path, "mode": mode(&self.spec.replace, seen), "autorename": false, "mute": true});
        commit["strict_conflict"] = (self.spec.replace != Replace::Anything || !seen).into();
        if let Some(time) = mtime.and_then(written) {
            commit["client_modified"] = time.into();
        }
        let entry = json!({"cursor": {"session_id": session, "offset": bytes}, "commit": commit});
        let file = File { entry, content: tiny };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        match gather::commit(&self.service, file.clone()).await {
            Ok(facts) => self.stored(&facts, bytes, &ours).await,
            Err(failed) if failed.kind == ErrorKind::Exists => self.taken(failed, file, bytes, &ours, mtime).await,
            Err(failed) => Err(self.failed(failed)),
        }
    }

    /// Something has the name. An earlier commit that was done shows by its content; what may be replaced is replaced if its name is the
    /// very one.
    async fn taken(
        &self,
        failed: CommitError,
        mut file: File,
        bytes: u64,
        ours: &Hashes,
        mtime: Option<Mtime>,
    ) -> Result<StoredFacts> {
        let (maybe, anything) = (self.state().maybe, self.spec.replace == Replace::Anything);
        if !maybe && !anything {
            return Err(self.failed(failed));
        }
        let there = match read::facts(&self.service, &self.key, &self.path).await {
            // A file is in the place of a folder.
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.failed(failed)),
            there => there?,
        };
        let is_ours = |entry: Entry| {
            entry.size == bytes
                && matches!(entry.hashes.agree(ours), Some((_, true)))
                && mtime.is_none_or(|mtime| entry.mtime.map(Mtime::secs) == Some(mtime.secs()))
        };
        if maybe && there.entry(self.key.clone()).is_some_and(is_ours) {
            return self.stored(&there, bytes, ours).await;
        }
        if !anything {
            return Err(self.failed(failed));
        }
        let exists = |why: String| Err(Error::new(ErrorKind::Exists, "write", why).with_key(&self.key));
        if let Some(why) = self.service.differs(&self.key, &self.path, &there).await? {
            // Who has the name may still write.
            self.service.release(&self.path);
            return exists(why);
        }
        if there.is_folder() {
            return exists("is a directory".into());
        }
        self.service.note_file(&self.path);
        file.entry["commit"]["mode"] = mode(&self.spec.replace, true);
        file.entry["commit"]["strict_conflict"] = false.into();
        match gather::commit(&self.service, file).await {
            Ok(facts) => self.stored(&facts, bytes, ours).await,
            Err(failed) => Err(self.failed(failed)),
        }
    }

    /// The error of a commit; it may be done all the same.
    fn failed(&self, failed: CommitError) -> Error {
        self.state().maybe |= failed.ambiguous;
        let (kind, message) = match (&self.spec.replace, failed.kind) {
            (Replace::Exactly(_), ErrorKind::Exists) => (ErrorKind::Changed, "changed since it was listed".into()),
            _ => (failed.kind, failed.message),
        };
        tracing::debug!(code = failed.code, "a commit failed");
        Error::new(kind, "write", message).with_retry(failed.retry).with_key(&self.key)
    }

    /// Compares what the service has with what was sent. What differs doesn't stay.
    async fn stored(&self, facts: &Facts, bytes: u64, ours: &Hashes) -> Result<StoredFacts> {
        let entry = facts
            .entry(self.key.clone())
            .ok_or_else(|| Fault::broken("the service gave no receipt (a rev)").at("write", &self.key))?;
        if entry.size == bytes && matches!(entry.hashes.agree(ours), Some((_, true))) {
            let name = self.path.rsplit('/').next().unwrap_or_default();
            if name != facts.name && name.to_lowercase() == facts.name.to_lowercase() {
                let message = format!(
                    "it has replaced {:?}, which differs by upper and lower case only and is the same file to Dropbox: rename one",
                    facts.name
                );
                return Err(Error::new(ErrorKind::Exists, "write", message).with_key(&self.key));
            }
            self.service.note_file(&self.path);
            return Ok(StoredFacts {
                version: entry.version,
                size: bytes,
                hashes: entry.hashes,
                ..StoredFacts::default()
            });
        }
        let gone = change::delete(&self.service, vec![(self.key.clone(), entry.version)]).await;
        let left = if gone.iter().all(Result::is_ok) { "" } else { "; it could not be removed" };
        let message = format!("the service has other bytes than were sent ({} of {bytes}){left}", entry.size);
        Err(self.corrupt(message))
    }
}

/// Ends a session, so that nobody can resume it; false where it has ended already. A session expires after a week.
async fn end(service: &Service, session: &str) -> ServiceResult<bool> {
    match touch(service, session, true).await {
        Ok(()) => Ok(true),
        Err(refused) if is_gone(&refused) => Ok(false),
        Err(refused) => Err(refused),
    }
}

fn is_gone(refused: &ServiceError) -> bool {
    matches!(&*refused.code, "not_found" | "closed")
}

/// Sends nothing to a session: the answer tells whether it is there.
async fn touch(service: &Service, session: &str, close: bool) -> ServiceResult<()> {
    let question = json!({"cursor": {"session_id": session, "offset": 0}, "close": close});
    let call = service.send("files/upload_session/append_v2", &question, Payload::default());
    service.api.ask(&call).await.map(|_| ())
}

fn read_token(service: &Service, key: &Key, token: &[u8]) -> Result<String> {
    let bad = || Error::new(ErrorKind::Invalid, "resume", "this names no upload of this file").with_key(key);
    let token: Token = serde_json::from_slice(token).map_err(|_| bad())?;
    if token.path != service.path(key)? {
        return Err(bad());
    }
    Ok(token.session)
}

/// The blocks in a receipt, by offset, with their hashes; none for a receipt of something else.
fn blocks_of(sent: &SentPart) -> Vec<(u64, Vec<u8>)> {
    let SentPart { part: Part { size, tag, .. }, offset, .. } = sent;
    let runs: Vec<(u64, Vec<u8>)> = match tag.strip_prefix(JOINED) {
        Some(json) => {
            let runs: Vec<(u64, String)> = serde_json::from_slice(json).unwrap_or_default();
            runs.into_iter().filter_map(|(offset, digests)| Some((offset, from_hex(&digests)?))).collect()
        }
        None if size.is_multiple_of(BLOCK) && tag.len() as u64 == size / BLOCK * DIGEST as u64 => {
            vec![(*offset, tag.clone())]
        }
        None => Vec::new(),
    };
    let whole =
        |(offset, digests): &(u64, Vec<u8>)| offset.is_multiple_of(BLOCK) && digests.len().is_multiple_of(DIGEST);
    let each = |(offset, digests): (u64, Vec<u8>)| {
        let each = digests.chunks(DIGEST).zip(0..).map(|(digest, n)| (offset + n * BLOCK, digest.to_vec()));
        each.collect::<Vec<_>>()
    };
    runs.into_iter().filter(whole).flat_map(each).collect()
}

/// See [`haul_store::Resumable::resume`]. The service doesn't tell what a session has: what was sent is proved by the hash of the whole,
/// once it is committed.
pub async fn resume(
    service: &Arc<Service>,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    let session = read_token(service, key, token)?;
    let write = Write::begin(service.clone(), key, spec).await?;
    let gone = || Error::new(ErrorKind::NotFound, "resume", "the upload has ended").with_key(key);
    match touch(service, &session, false).await {
        Err(refused) if is_gone(&refused) => return Err(gone()),
        // It is there, and knows better than to take nothing.
        Err(refused) if refused.code.starts_with("concurrent_session") => {}
        Err(refused) => return Err(refused.at("resume", key)),
        Ok(()) => {}
    }
    let parts = {
        let mut state = write.state();
        for (block, digest) in sent.iter().flat_map(blocks_of) {
            state.digests.insert(block, digest);
        }
        // A part is there when all blocks are that it has bytes of.
        let is_there = |sent: &SentPart| {
            let end = sent.offset.saturating_add(sent.part.size);
            let mut blocks = (sent.offset / BLOCK * BLOCK..end).step_by(BLOCK as usize);
            sent.part.size > 0 && blocks.all(|block| state.has(block))
        };
        sent.into_iter().filter(is_there).map(|sent| sent.part).collect()
    };
    write.begun.store(true, Relaxed);
    // The cell is new.
    let _ = write.session.set(session);
    Ok((Box::new(write), parts))
}

/// See [`haul_store::Resumable::discard`].
pub async fn discard(service: &Service, key: &Key, token: &[u8]) -> Result<bool> {
    let session = read_token(service, key, token)?;
    end(service, &session).await.map_err(|refused| refused.at("discard", key))
}

impl Upload for Write {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async move {
            let session = self.session().await?.clone();
            Ok(serde_json::to_vec(&Token { path: self.path.clone(), session }).ok())
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
                Some(session) => {
                    end(&self.service, session).await.map(|_| ()).map_err(|refused| refused.at("abort", &self.key))
                }
                None => Ok(()),
            }
        }
        .boxed()
    }
}
