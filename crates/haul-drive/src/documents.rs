//! Google's own documents (Docs, Sheets, Slides, Drawings). They have no bytes: each is shown as a file of the first of the user's formats
//! that Google makes of it, and how long that is isn't known before it is made.

use crate::{facts::File, formats::Format, service::Service};
use bytes::Bytes;
use haul_core::{Entry, Error, ErrorKind, Key, Result};
use haul_net::{Fault, FaultResult, Reply};
use haul_oauth::{Call, google::is_at};
use haul_store::Direction;
use http::{Method, StatusCode};
use url::Url;

/// Redirections that are followed.
const HOPS: usize = 5;

/// A document as a file, and its bytes: those that a question for its size has left, or new ones.
///
/// Errors: `Changed` where somebody edits it just now; `Unsupported` for what isn't shown as a file.
pub async fn content(
    service: &Service,
    file: &File,
    key: &Key,
    op: &'static str,
    whole: bool,
) -> Result<(Entry, Bytes)> {
    let unshown = || Error::new(ErrorKind::Unsupported, op, "Google makes no file of this document").with_key(key);
    let listed = file.entry(key.clone()).ok_or_else(unshown)?;
    let (format, version) = (file.format.ok_or_else(unshown)?, listed.version.clone().ok_or_else(unshown)?);
    let bytes = match service.exports.get(&version, whole) {
        Some(bytes) => bytes,
        None => {
            let bytes = export(service, file, format, key, op).await?;
            // The exported content may be of a newer revision.
            let now = service.by_id(&file.id).await.map_err(|refused| refused.at(op, key))?;
            if now.modified_time != file.modified_time {
                return Err(Error::new(ErrorKind::Changed, op, "it is being edited").with_key(key));
            }
            if !whole {
                service.exports.keep(&version, &bytes);
            }
            bytes
        }
    };
    Ok((Entry { size: bytes.len() as u64, sized: true, ..listed }, bytes))
}

async fn export(service: &Service, file: &File, format: &Format, key: &Key, op: &'static str) -> Result<Bytes> {
    let path = format!("/files/{}/export", file.id);
    let call = service.call("Export", Method::GET, &path, &[("mimeType", format.mime)]).going(Direction::Down);
    match service.api.send(&call).await {
        Ok(reply) => all(reply).await.map_err(|fault| fault.at(op, key)),
        // More than 10 MB come by the document's own link only.
        Err(refused) if refused.code == "exportSizeLimitExceeded" => by_link(service, file, format, key, op).await,
        Err(refused) => Err(refused.at(op, key)),
    }
}

/// All bytes of an answer, if its end can be told from a broken connection.
async fn all(reply: Reply) -> FaultResult<Bytes> {
    if reply.header("content-length").is_none() && reply.header("transfer-encoding").is_none() {
        return Err(Fault::broken("nobody can tell whether all of the export came"));
    }
    reply.bytes().await
}

async fn by_link(service: &Service, file: &File, format: &Format, key: &Key, op: &'static str) -> Result<Bytes> {
    const ELSEWHERE: &[StatusCode] = &[StatusCode::FOUND, StatusCode::SEE_OTHER, StatusCode::TEMPORARY_REDIRECT];
    let mut link = file.export_links.get(format.mime).cloned().unwrap_or_default();
    for _ in 0..HOPS {
        let call = Call::new("Export", Method::GET, &link).going(Direction::Down).accepts(ELSEWHERE);
        // Our token is for Google alone; a redirect elsewhere works without it.
        let call = if is_googles(service, &link) { call } else { call.anonymous() };
        let reply = service.api.send(&call).await.map_err(|refused| refused.at(op, key))?;
        if reply.status.is_success() {
            return all(reply).await.map_err(|fault| fault.at(op, key));
        }
        let from = Url::parse(&link).ok();
        let next = from.zip(reply.header("location")).and_then(|(from, next)| from.join(next).ok());
        link = next
            .map(String::from)
            .ok_or_else(|| Fault::broken("Google leads on, and doesn't say where to").at(op, key))?;
    }
    Err(Fault::broken("Google leads on again and again").at(op, key))
}

fn is_googles(service: &Service, link: &str) -> bool {
    is_at(link, "https://docs.google.com") || is_at(link, &service.config.endpoint)
}
