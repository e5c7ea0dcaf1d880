//! The server's facts about directories and files, by PROPFIND.

use crate::{
    Service,
    multistatus::{self, Response},
    names,
};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Entry, Error, ErrorKind, Key, Result, Retry};
use haul_net::{Fault, FaultResult, at};
use haul_store::{
    Direction, Payload, SpaceUsage,
    tree::{Folders, FoundName, WantedKeys, decoded, is_odd},
    web::{self, Call, Facts},
};
use http::{HeaderName, Method, header};
use std::sync::Arc;
use url::Url;

const FACTS: &str = "<?xml version=\"1.0\"?><d:propfind xmlns:d=\"DAV:\" xmlns:oc=\"http://owncloud.org/ns\"><d:prop><d:resourcetype/>\
                     <d:getcontentlength/><d:getlastmodified/><d:getetag/><oc:checksums/></d:prop></d:propfind>";
const QUOTA: &str = "<?xml version=\"1.0\"?><d:propfind xmlns:d=\"DAV:\"><d:prop><d:resourcetype/><d:quota-used-bytes/>\
                     <d:quota-available-bytes/></d:prop></d:propfind>";

/// A method that HTTP itself doesn't have.
pub fn method(name: &'static str) -> Method {
    Method::from_bytes(name.as_bytes()).unwrap_or_default()
}

/// The collections of a server, one a directory.
pub struct Collections(pub Arc<Service>);

impl Folders for Collections {
    fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let service = self.0.clone();
        async move {
            let found = collection(&service, &dir).await?;
            let seen = found.into_iter().filter(|found| !names::is_hidden(found.key().name()));
            Ok(seen.collect())
        }
        .boxed()
    }
}

/// All of a directory, hidden files too.
pub async fn collection(service: &Service, dir: &Key) -> Result<Vec<FoundName>> {
    let url = service.web.url(dir)?;
    let responses = match find(service, &url, FACTS, "1").await {
        Err(fault) if fault.status == 400 && !dir.is_root() => {
            let entry = misfit(service, dir, fault.at("list", dir)).await?;
            return Err(Error::new(ErrorKind::NotFound, "list", "this is a file").with_key(&entry.key));
        }
        other => other.map_err(at("list", dir))?,
    };
    read(service, &url, dir, responses)
}

/// All entries of a collection at a URL that isn't a directory of the store, with keys below `dir`.
pub async fn inside(service: &Service, url: &Url, dir: &Key) -> Result<Vec<FoundName>> {
    let responses = find(service, url, FACTS, "1").await.map_err(at("list", dir))?;
    read(service, url, dir, responses)
}

fn read(service: &Service, url: &Url, dir: &Key, responses: Vec<Response>) -> Result<Vec<FoundName>> {
    let wrong = |why: String| Error::new(ErrorKind::Invalid, "list", why).with_key(dir);
    let (mut found, mut names_itself) = (Vec::with_capacity(responses.len()), false);
    for response in responses {
        let to = address(url, &response)
            .ok_or_else(|| wrong(format!("the server listed {:?}, which isn't here", response.href)))?;
        let rest =
            to.path().strip_prefix(url.path()).or_else(|| (format!("{}/", to.path()) == url.path()).then_some(""));
        let rest = rest.ok_or_else(|| wrong(format!("the server listed {:?}, which isn't here", response.href)))?;
        if rest.is_empty() {
            check(&response).map_err(at("list", dir))?;
            if !response.props.is_dir {
                return Err(Error::new(ErrorKind::NotFound, "list", "this is a file").with_key(dir));
            }
            names_itself = true;
            continue;
        }
        let name = web::decoded(rest.strip_suffix('/').unwrap_or(rest));
        if is_odd(&name) || name.contains(&b'/') {
            return Err(wrong(format!("the server listed {:?}, which isn't directly here", response.href)));
        }
        let key = match service.web.encoding.map(|encoding| decoded(encoding, dir, &name)) {
            None => Key::new([dir.as_bytes(), &name].concat()),
            Some(Ok(key)) => key,
            Some(Err((key, error))) => {
                found.push(FoundName::Failed(key, error));
                continue;
            }
        };
        found.push(match check(&response) {
            Ok(()) => match entry(service, &key, &response) {
                Ok(entry) => FoundName::Entry(entry),
                Err(error) => FoundName::Failed(key, error),
            },
            Err(fault) => FoundName::Failed(key.clone(), fault.at("list", &key)),
        });
    }
    // An answer without the directory itself isn't one about it.
    if names_itself { Ok(found) } else { Err(wrong("the server's listing doesn't name the directory itself".into())) }
}

/// Where a response points; some servers write whole addresses, with a host as it is called behind their proxy.
fn address(base: &Url, response: &Response) -> Option<Url> {
    let to = base.join(&response.href).ok()?;
    let mut plain = base.clone();
    // Each server has its own way to write a name: what counts is the bytes.
    plain.set_path(&web::encoded(&web::decoded(to.path())));
    Some(plain)
}

/// Errors: the resource's own status isn't success, or that of a required property isn't.
fn check(response: &Response) -> FaultResult<()> {
    let bad = response.status.filter(|status| !(200..300).contains(status));
    if let Some(status) = bad.and_then(|status| http::StatusCode::from_u16(status).ok()) {
        return Err(Fault::answer(status, &http::HeaderMap::new(), None));
    }
    // Properties that a server doesn't have are 404; whatever else failed hides something.
    if let Some(status) = response.groups.iter().find(|status| !matches!(status, 200 | 404)) {
        let status = http::StatusCode::from_u16(*status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        return Err(Fault::answer(status, &http::HeaderMap::new(), None));
    }
    match response.props.has_type {
        true => Ok(()),
        false => Err(Fault::new(
            ErrorKind::Invalid,
            Retry::Never,
            "the server doesn't say whether this is a file or a directory",
        )),
    }
}

fn entry(service: &Service, key: &Key, response: &Response) -> Result<Entry> {
    let props = &response.props;
    if props.is_dir {
        let dir = Entry::dir(key.with_suffix("/"));
        return Ok(Entry { mtime: props.modified, changed: service.changed(props.modified), ..dir });
    }
    let size = props.size.ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "list", "the server doesn't say how long this file is").with_key(key)
    })?;
    let facts = Facts { size, modified: props.modified, etag: props.etag.clone() };
    Ok(Entry { hashes: props.hashes.clone(), changed: service.changed(props.modified), ..facts.entry(key.clone()) })
}

async fn find(service: &Service, url: &Url, question: &'static str, depth: &'static str) -> FaultResult<Vec<Response>> {
    let mut call = Call::new("PROPFIND", Direction::Meta, method("PROPFIND"), url.clone())
        .header(HeaderName::from_static("depth"), depth)
        .header(header::CONTENT_TYPE, "application/xml; charset=utf-8");
    call.body = Payload::from(Bytes::from_static(question.as_bytes()));
    let reply = service.web.ask(call).await?;
    let status = reply.status.as_u16();
    let body = reply.bytes().await?;
    if status != 207 {
        let why = format!("the server answered {status} to PROPFIND: it doesn't speak WebDAV at {url}");
        return Err(Fault::new(ErrorKind::Unsupported, Retry::Never, why));
    }
    multistatus::read(&body).ok_or_else(|| Fault::broken("the server's answer to PROPFIND can't be read"))
}

/// See [`haul_store::Store::stat`].
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    let entry = whatever(service, key).await.map_err(|e| match key.is_root() && e.kind() == ErrorKind::NotFound {
        true => Error::new(ErrorKind::DirNotFound, "stat", format!("{}: no such directory", service.web.root)),
        false => e,
    })?;
    match entry.key == *key {
        true => Ok(entry),
        false => Err(Error::new(ErrorKind::NotFound, "stat", "no such file").with_key(key)),
    }
}

/// The entry with this name, a file or a directory.
pub async fn whatever(service: &Service, key: &Key) -> Result<Entry> {
    let found = at_url(service, &service.web.url(key)?, key).await;
    match found {
        Err(error) if error.kind() == ErrorKind::Invalid && !key.is_root() => misfit(service, key, error).await,
        found => found,
    }
}

/// The entry at `key` where the server rejects the request: Apache does so for a path below a file, and for a file
/// requested as a directory.
async fn misfit(service: &Service, key: &Key, error: Error) -> Result<Entry> {
    let plain = Key::new(key.as_bytes().strip_suffix(b"/").unwrap_or(key.as_bytes()));
    let mut at = plain.clone();
    while !at.is_root() {
        match at_url(service, &service.web.url(&at)?, &at).await {
            Ok(entry) if entry.is_dir() => return Err(error),
            Ok(entry) if at == plain => return Ok(entry),
            Ok(_) => return Err(Error::new(ErrorKind::NotFound, "stat", "no such file").with_key(key)),
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(e.with_key(key)),
            Err(e) if e.kind() != ErrorKind::Invalid => return Err(e),
            Err(_) => {
                let above = at.parent();
                at = Key::new(above.as_bytes().strip_suffix(b"/").unwrap_or(above.as_bytes()));
            }
        }
    }
    Err(error)
}

/// The resource at a URL, as the entry of `key`.
pub async fn at_url(service: &Service, url: &Url, key: &Key) -> Result<Entry> {
    let mut found = find(service, url, FACTS, "0").await;
    if found.as_ref().is_err_and(|fault| (300..400).contains(&fault.status)) && !url.path().ends_with('/') {
        // Apache points from a directory's name to its address.
        let mut slashed = url.clone();
        slashed.set_path(&format!("{}/", url.path()));
        found = find(service, &slashed, FACTS, "0").await;
    }
    let responses = found.map_err(at("stat", key))?;
    let [response] = &responses[..] else {
        return Err(Error::new(ErrorKind::Invalid, "stat", "the server's answer isn't about one file").with_key(key));
    };
    check(response).map_err(at("stat", key))?;
    if key.is_root() && response.props.is_dir {
        return Ok(Entry::dir(key.clone()));
    }
    let plain = Key::new(key.as_bytes().strip_suffix(b"/").unwrap_or(key.as_bytes()));
    entry(service, &plain, response)
}

/// See [`haul_store::Admin::about`].
pub async fn about(service: &Service) -> Result<SpaceUsage> {
    let responses = find(service, &service.web.root, QUOTA, "0").await.map_err(|fault| fault.error("about"))?;
    let props = responses.into_iter().next().map(|response| response.props).unwrap_or_default();
    let (used, free) = (props.used, props.free);
    if used.is_none() && free.is_none() {
        return Err(Error::new(ErrorKind::Unsupported, "about", "the server doesn't tell how much space there is"));
    }
    Ok(SpaceUsage { total: used.zip(free).map(|(used, free)| used + free), used, free })
}
