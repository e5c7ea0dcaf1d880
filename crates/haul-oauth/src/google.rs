//! Shared by Google's services: credentials that its own tools find, and uploads: facts and content as one body, or a session
//! that takes bytes in order (<https://developers.google.com/workspace/drive/api/guides/manage-uploads>).

// Google's own tools find credentials by these variables, and in files.
#![allow(clippy::disallowed_methods)]

use crate::{Api, Call, ServiceAccount, ServiceResult, text_of};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Key, Result};
use haul_net::{Fault, Reply};
use haul_store::{Direction, Payload, disk, in_order::Session};
use http::{Method, StatusCode, header};
use serde::de::DeserializeOwned;
use std::{
    env, fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Sessions take multiples of this, in bytes; all but the end.
pub const GRANULE: u64 = 256 << 10;
/// The type of what [`related`] makes.
pub const RELATED: &str = "multipart/related; boundary=haul-file-follows";
const BOUNDARY: &str = "haul-file-follows";
/// Answers of a session: go on (as 308), done.
const GO_ON: &[StatusCode] = &[StatusCode::PERMANENT_REDIRECT];

/// The service account, or the person, of a credentials file; `~/` begins at home.
///
/// Errors: `Invalid` for a file that can't be read, or holds something else.
pub fn account_of_file(path: &str, scope: &str, subject: Option<String>) -> Result<ServiceAccount> {
    ServiceAccount::from_file(&text_of(path, "the service account's file")?, scope, subject)
}

/// The account that Google's own tools would use here: the file that `GOOGLE_APPLICATION_CREDENTIALS` names, the one that
/// `gcloud auth application-default login` wrote, else the machine's account.
///
/// Errors: as for [`account_of_file`].
pub fn account_of_environment(scope: &str, subject: Option<String>) -> Result<ServiceAccount> {
    let named = env::var_os("GOOGLE_APPLICATION_CREDENTIALS").filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = env::home_dir().map(|home| home.join(".config/gcloud/application_default_credentials.json"));
    match named.or(usual.filter(|path| path.is_file())) {
        Some(path) => account_of_file(&path.to_string_lossy(), scope, subject),
        None => {
            let host = env::var("GCE_METADATA_HOST").ok().filter(|host| !host.is_empty());
            Ok(ServiceAccount::of_machine(host, scope))
        }
    }
}

/// Facts, as JSON, and content as one body (RFC 2387), of the type [`RELATED`].
///
/// Errors: the content can't be read.
pub async fn related(facts: &str, content: &Payload) -> Result<Payload> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{facts}\r\n--{BOUNDARY}\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    let pieces = match content.pieces() {
        Some(pieces) => pieces.to_vec(),
        None => {
            let content = content.clone();
            vec![Bytes::from(disk::run(move || content.concat()).await?)]
        }
    };
    let end = Bytes::from(format!("\r\n--{BOUNDARY}--\r\n"));
    Ok(content.with_pieces([vec![Bytes::from(head)], pieces, vec![end]].concat()))
}

/// A service's facts of a stored file.
pub trait FileFacts: DeserializeOwned + Clone + fmt::Debug + Send + 'static {
    /// Bytes; `None` when it wasn't told.
    fn size(&self) -> Option<u64>;
}

/// A session of an upload. Its file shows with the last byte.
#[derive(Debug)]
pub struct Pieces<T> {
    api: Arc<Api>,
    key: Key,
    /// Its address, which proves by itself that we may write there.
    pub url: String,
    size: Option<u64>,
    /// The file, once it shows.
    done: Mutex<Option<T>>,
}

impl<T: FileFacts> Pieces<T> {
    /// The session at this address, for a file of `size` bytes (`None`: unknown).
    pub fn new(api: Arc<Api>, key: Key, url: String, size: Option<u64>) -> Pieces<T> {
        Pieces { api, key, url, size, done: Mutex::default() }
    }

    /// The file, once it shows.
    pub fn done(&self) -> Option<T> {
        self.slot().clone()
    }

    fn slot(&self) -> MutexGuard<'_, Option<T>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, kind: &'static str, range: String, payload: Payload) -> Call {
        let call = Call::new(kind, Method::PUT, &*self.url).body(Direction::Up, "application/octet-stream", payload);
        call.header(header::CONTENT_RANGE, range).accepts(GO_ON)
    }

    /// How many bytes the session has, by its answer to a piece up to `end`.
    async fn bytes_received(&self, reply: Reply, end: u64) -> Result<u64, Box<Fault>> {
        if reply.status != StatusCode::PERMANENT_REDIRECT {
            let body = reply.bytes().await?;
            let shown: T = serde_json::from_slice(&body)
                .map_err(|e| Fault::broken(format!("the answer to an upload can't be understood: {e}")))?;
            *self.slot() = Some(shown);
            return Ok(end);
        }
        let range = reply.headers.get(header::RANGE).and_then(|range| range.to_str().ok()).map(str::to_owned);
        // The rest of the answer tells nothing.
        let _ = reply.bytes().await;
        match range {
            // It has nothing yet.
            None => Ok(0),
            Some(range) => {
                let last = range.strip_prefix("bytes=0-").and_then(|last| last.parse::<u64>().ok());
                let odd = || Fault::broken(format!("the service says that it has {range:?} of the upload"));
                Ok(last.ok_or_else(odd)? + 1)
            }
        }
    }
}

impl<T: FileFacts> Session for Pieces<T> {
    fn append(&self, offset: u64, payload: Payload, last: bool) -> BoxFuture<'_, Result<u64>> {
        async move {
            let end = offset + payload.len();
            let total = if last { end.to_string() } else { self.size.map_or("*".into(), |size| size.to_string()) };
            let range = match payload.is_empty() {
                true => format!("bytes */{total}"),
                false => format!("bytes {offset}-{}/{total}", end - 1),
            };
            let reply = self.api.send(&self.call("UploadPiece", range, payload)).await;
            let reply = reply.map_err(|refused| refused.at("write", &self.key))?;
            self.bytes_received(reply, end).await.map_err(|fault| fault.at("write", &self.key))
        }
        .boxed()
    }

    fn has(&self) -> BoxFuture<'_, Result<u64>> {
        async move {
            let total = self.size.map_or("*".into(), |size| size.to_string());
            let call = self.call("UploadState", format!("bytes */{total}"), Payload::default());
            let reply = self.api.send(&call).await.map_err(|refused| refused.at("write", &self.key))?;
            let has = self.bytes_received(reply, 0).await.map_err(|fault| fault.at("write", &self.key))?;
            Ok(self.done().and_then(|shown| shown.size()).unwrap_or(has))
        }
        .boxed()
    }
}

/// Begins a session by this request; gives its address. Our token goes there too, so that it must be the service's own.
pub async fn open_session(api: &Api, call: &Call) -> ServiceResult<String> {
    let reply = api.send(call).await?;
    let url = reply.headers.get(header::LOCATION).and_then(|url| url.to_str().ok()).map(str::to_owned);
    // The rest of the answer tells nothing.
    let _ = reply.bytes().await;
    let url = url.ok_or_else(|| Fault::broken("the service gave no address for the upload"))?;
    match is_at(&url, call.origin()) {
        true => Ok(url),
        false => Err(Fault::broken("the service's upload goes on at another service").into()),
    }
}

/// Where Google takes tokens that are to be good no more.
pub const REVOKE: &str = "https://oauth2.googleapis.com/revoke";

/// True for an address at `endpoint`: one that was read from a file must lead to the service itself.
pub fn is_at(url: &str, endpoint: &str) -> bool {
    url.strip_prefix(endpoint).is_some_and(|rest| rest.starts_with('/'))
}

/// Ends the session at this address; false when it is gone.
///
/// Errors: it couldn't be ended.
pub async fn forget(api: &Api, key: &Key, url: &str) -> Result<bool> {
    match api.ask(&Call::new("CancelUpload", Method::DELETE, url)).await {
        Ok(_) => Ok(true),
        // "Client closed request" is how it says that it did.
        Err(refused) if refused.fault.status == 499 => Ok(true),
        Err(refused) if matches!(refused.fault.status, 404 | 410) => Ok(false),
        Err(refused) => Err(refused.at("discard", key)),
    }
}
