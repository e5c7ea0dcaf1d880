//! Writing a file: sent whole under a hidden name, compared with what the server says of it, then moved to its own.

use crate::{
    Service, answer, change, list,
    names::{hidden, hidden_as},
    proof,
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Entry, Error, ErrorKind, Hashes, Key, Mtime, Result};
use haul_net::at;
use haul_store::{Body, Direction, LateFacts, Part, Payload, StoredFacts, Unpublished, Upload, WriteSpec, web::Call};
use http::{HeaderName, Method, header};
use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A write.
pub struct FileUpload {
    service: Arc<Service>,
    key: Key,
    spec: WriteSpec,
    /// Where it is sent to: the key itself with `--inplace`.
    pub to: Key,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file was sent.
    sent: bool,
    /// Hashes of what was sent, as far as they are known.
    hashes: Hashes,
    /// A move was asked for and nobody knows whether it was made.
    maybe_moved: bool,
}

impl FileUpload {
    /// Begins a write; sends nothing.
    ///
    /// Errors: `Invalid` for what can't be a file's name.
    pub fn begin(service: Arc<Service>, key: &Key, spec: WriteSpec) -> Result<FileUpload> {
        let to = if spec.inplace { key.clone() } else { hidden(key)? };
        FileUpload::to(service, key, spec, to)
    }

    /// Begins a write under the hidden name with these digits; sends nothing.
    ///
    /// Errors: as [`FileUpload::begin`].
    pub fn hidden(service: Arc<Service>, key: &Key, spec: WriteSpec, digits: &str) -> Result<FileUpload> {
        FileUpload::to(service, key, spec, hidden_as(key, digits))
    }

    fn to(service: Arc<Service>, key: &Key, spec: WriteSpec, to: Key) -> Result<FileUpload> {
        if key.is_root() || key.is_dir() {
            return Err(Error::new(ErrorKind::Invalid, "write", "this can't be the name of a file").with_key(key));
        }
        service.web.url(key)?;
        if std::str::from_utf8(service.web.named(key)?.as_bytes()).is_err() {
            let message = "WebDAV can't hold this name, which isn't UTF-8: rename it, or replace characters as rclone does (--webdav-encoding)";
            return Err(Error::new(ErrorKind::Invalid, "write", message).with_key(key));
        }
        Ok(FileUpload { service, key: key.clone(), spec, to, state: Mutex::default() })
    }

    /// The file was sent.
    pub fn is_sent(&self) -> bool {
        self.state().sent
    }

    /// The file is there, by other means than [`FileUpload::send`].
    pub fn is_there(&self) {
        self.state().sent = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the file.
    ///
    /// Errors: the server's, and the source's.
    pub async fn send(&self, payload: &Payload) -> Result<()> {
        let parent = self.key.parent();
        change::make_dir(&self.service, &parent).await?;
        let mut sent = self.put(payload).await;
        if sent.as_ref().is_err_and(|fault| matches!(fault.status, 404 | 409)) {
            // Somebody has removed the directory since it was made.
            self.service.forget(&parent);
            change::make_dir(&self.service, &parent).await?;
            sent = self.put(payload).await;
        }
        if let Err(fault) = sent {
            let own = payload.relay().and_then(|relay| relay.error());
            return Err(own.unwrap_or_else(|| fault.at("write", &self.key)));
        }
        let mut hashes = payload.hashes().clone();
        hashes.merge(&payload.relay().and_then(|relay| relay.hashes()).unwrap_or_default());
        let mut state = self.state();
        (state.sent, state.hashes) = (true, hashes);
        Ok(())
    }

    async fn put(&self, payload: &Payload) -> haul_net::FaultResult<()> {
        let url = self.service.web.url(&self.to).map_err(|e| haul_net::Fault::new(e.kind(), e.retry(), e.message()))?;
        let call =
            Call::new("PUT", Direction::Up, Method::PUT, url).header(header::CONTENT_TYPE, "application/octet-stream");
        let mut known = payload.hashes().clone();
        if !self.spec.size_may_differ {
            known.merge(&self.spec.hashes);
        }
        let mut call = kept(&self.service, call, self.spec.mtime, &self.spec.hashes);
        call.body = payload.clone();
        proof::ask(&self.service, call, &known).await
    }

    /// Verifies the sent bytes against the server's facts, and renames the file to its final name.
    ///
    /// Errors: those of [`Upload::publish`].
    pub async fn finish(&self, parts: &[Part], late: LateFacts) -> Result<StoredFacts> {
        let bytes: u64 = parts.iter().map(|part| part.size).sum();
        let corrupt = |message: String| Error::new(ErrorKind::Corrupt, "write", message).with_key(&self.key);
        if let Some(size) = self.spec.size.filter(|size| *size != bytes && !self.spec.size_may_differ) {
            return Err(corrupt(format!("{bytes} bytes came where {size} were announced")));
        }
        if parts.is_empty() && !self.state().sent {
            self.send(&Payload::default()).await?;
        }
        let (known, maybe_moved) = {
            let state = self.state();
            let mut known = state.hashes.clone();
            known.merge(&late.hashes);
            known.merge(&self.spec.hashes);
            (known, state.maybe_moved)
        };
        let mtime = late.mtime.or(self.spec.mtime);
        let there = match list::stat(&self.service, &self.to).await {
            // The answer to an earlier move was lost.
            Err(error) if error.kind() == ErrorKind::NotFound && maybe_moved => {
                let there = list::stat(&self.service, &self.key).await?;
                proved(&there, bytes, &known).map_err(corrupt)?;
                return Ok(stored(there));
            }
            other => other?,
        };
        proved(&there, bytes, &known).map_err(corrupt)?;
        date(&self.service, &self.to, &there, mtime).await?;
        if self.to != self.key {
            let moved = change::settle(&self.service, &self.to, &self.key, &self.spec.replace).await;
            if let Err((error, ambiguous)) = moved {
                self.state().maybe_moved |= ambiguous;
                return Err(error);
            }
        }
        Ok(stored(there))
    }
}

impl FileUpload {
    /// Removes what was sent.
    ///
    /// Errors: the server's.
    pub async fn remove(&self) -> Result<()> {
        // In place it is the user's file.
        if self.to == self.key {
            return Ok(());
        }
        let url = self.service.web.url(&self.to)?;
        let call = Call::new("DELETE", Direction::Meta, Method::DELETE, url);
        match answer::done(&self.service, call).await {
            Err(fault) if fault.status != 404 && fault.status != 409 => Err(at("abort", &self.key)(fault)),
            _ => Ok(()),
        }
    }
}

/// Adds what a file's time and content are, as far as the server keeps that with them.
pub fn kept(service: &Service, mut call: Call, mtime: Option<Mtime>, known: &Hashes) -> Call {
    if let Some(mtime) = mtime.filter(|_| service.vendor.oc_mtime) {
        call = call.header(HeaderName::from_static("x-oc-mtime"), mtime.secs().to_string());
    }
    match service.vendor.hashes.iter().find_map(|algo| Some((algo, known.hex(*algo)?))) {
        Some((algo, value)) => {
            call.header(HeaderName::from_static("oc-checksum"), format!("{}:{value}", algo.name().to_uppercase()))
        }
        None => call,
    }
}

/// Whether the server has what was sent.
///
/// Errors: why not.
pub fn proved(there: &Entry, bytes: u64, known: &Hashes) -> Result<(), String> {
    if there.size != bytes {
        return Err(format!("{bytes} bytes were sent, and the server has {}", there.size));
    }
    match there.hashes.agree(known) {
        Some((algo, false)) => Err(format!("the server has other content than was sent ({algo} differs)")),
        _ => Ok(()),
    }
}

/// Sets the time of what was sent, where the server keeps times and has another.
///
/// Errors: it can't be set.
pub async fn date(service: &Service, key: &Key, there: &Entry, mtime: Option<Mtime>) -> Result<()> {
    match mtime {
        Some(mtime) if service.vendor.prop_mtime && there.mtime.map(Mtime::secs) != Some(mtime.secs()) => {
            change::set_mtime(service, key, Some(mtime)).await
        }
        _ => Ok(()),
    }
}

fn stored(there: Entry) -> StoredFacts {
    StoredFacts { size: there.size, hashes: there.hashes, ..StoredFacts::default() }
}

impl Upload for FileUpload {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async { Ok(None) }.boxed()
    }

    fn read_back(&self, _: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let message = "what was sent can't be read before it is published";
        async move { Err(Error::new(ErrorKind::Unsupported, "read", message).with_key(&self.key)) }.boxed()
    }

    fn part(&self, index: u64, _: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        async move {
            if index > 0 {
                let message = "a file goes to this server as a whole";
                return Err(Error::new(ErrorKind::Unsupported, "write", message).with_key(&self.key));
            }
            self.send(&payload).await?;
            Ok(Part { index, size: payload.len(), tag: Vec::new() })
        }
        .boxed()
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        async move {
            match self.finish(&parts, late).await {
                Ok(stored) => Ok(stored),
                Err(error) => Err(Unpublished { error, upload: self }),
            }
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move { self.remove().await }.boxed()
    }
}
