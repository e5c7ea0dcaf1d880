//! Reading: one GET or HEAD for each answer.

use crate::{
    error::plain,
    list::{self, PageQuery},
    meta::{Facts, quoted},
    service::{BlobAddress, Call, Service},
};
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Result, Version};
use haul_net::{Fault, FaultResult, Pages, at};
use haul_store::{Body, Direction, Read, web};
use http::Method;
use std::ops::Range;

/// Facts of one key.
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    if key.is_root() {
        return stat_root(service).await;
    }
    let place = service.place(key)?;
    if key.is_dir() || place.blob.is_empty() {
        return stat_dir(service, key, &place).await;
    }
    Ok(head(service, key, &place, None).await?.entry(key.clone(), true))
}

/// The facts of a blob.
pub async fn head(service: &Service, key: &Key, place: &BlobAddress, want: Option<&Version>) -> Result<Facts> {
    let mut call = Call::blob("GetBlobProperties", Method::HEAD, place);
    if let Some(want) = want {
        call = call.header("if-match", quoted(want));
    }
    let (headers, _) = plain(service.ask(&call).await).map_err(at("stat", key))?;
    let size = headers.get("content-length").and_then(|size| size.to_str().ok()?.parse().ok());
    let broken = |why: &str| Fault::broken(why).at("stat", key);
    let facts = Facts::of(&headers, size.ok_or_else(|| broken("the server did not tell the size"))?);
    if facts.etag.is_empty() {
        return Err(broken("the answer names no version (an ETag): is the endpoint Azure's blob service?"));
    }
    if facts.is_folder() {
        return Err(Error::new(ErrorKind::NotFound, "stat", "this is a directory").with_key(key));
    }
    Ok(facts)
}

async fn stat_root(service: &Service) -> Result<Entry> {
    let Some(container) = &service.root.bucket else { return Ok(Entry::dir(Key::new(""))) };
    let prefix = &service.root.prefix;
    let found = first_below(service, container, prefix).await.map_err(|fault| fault.error("stat"))?;
    if found.is_none() && !prefix.is_empty() {
        let folder = list::folder(service, container, prefix).await.map_err(|fault| fault.error("stat"))?;
        folder.ok_or_else(|| haul_store::pages::no_root(&service.locator, "stat"))?;
    }
    Ok(Entry::dir(Key::new("")))
}

/// A directory is there when anything is below it, its own marker included.
async fn stat_dir(service: &Service, key: &Key, place: &BlobAddress) -> Result<Entry> {
    let found = first_below(service, &place.container, &place.blob).await.map_err(at("stat", key))?;
    match found {
        Some(marker) if marker.key.as_bytes() == place.blob && !place.blob.is_empty() => {
            Ok(Entry { key: key.clone(), kind: Kind::Dir, ..marker })
        }
        Some(_) => Ok(Entry::dir(key.clone())),
        // A container, which may be empty.
        None if place.blob.is_empty() => Ok(Entry::dir(key.clone())),
        None => match list::folder(service, &place.container, &place.blob).await.map_err(at("stat", key))? {
            Some(facts) => Ok(facts.entry(key.clone(), true)),
            None => Err(Error::new(ErrorKind::NotFound, "stat", "no such directory").with_key(key)),
        },
    }
}

async fn first_below(service: &Service, container: &str, prefix: &[u8]) -> FaultResult<Option<Entry>> {
    let (mut next, mut pages) = (None::<String>, Pages::default());
    loop {
        let question = PageQuery { prefix, delimiter: "", most: 1, marker: next.as_deref(), from: None, meta: false };
        let page = plain(list::page(service, container, &question).await)?;
        match (page.entries.into_iter().next(), page.next) {
            // A page that isn't the last may be empty.
            (None, Some(more)) => {
                pages.next(&more)?;
                next = Some(more);
            }
            (first, _) => return Ok(first),
        }
    }
}

/// The bytes of a key, as [`haul_store::Store::read`] says.
pub async fn read(service: &Service, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    let place = service.place(key)?;
    if key.is_dir() || place.blob.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "read", "no such file").with_key(key));
    }
    let empty = async || {
        let entry = head(service, key, &place, want).await?.entry(key.clone(), true);
        Ok(Read { entry, body: Body::Stream(futures::stream::empty().boxed()) })
    };
    if range.as_ref().is_some_and(|range| range.start >= range.end) {
        return empty().await;
    }
    let mut call = Call::blob("GetBlob", Method::GET, &place).going(Direction::Down);
    if let Some(range) = &range {
        call = call.header("range", format!("bytes={}-{}", range.start, range.end - 1));
    }
    if let Some(want) = want {
        call = call.header("if-match", quoted(want));
    }
    let reply = match service.call(&call).await {
        Ok(reply) => reply,
        // Nothing is behind the end.
        Err(refused) if refused.fault.status == 416 => return empty().await,
        Err(refused) => return Err(refused.fault.at("read", key)),
    };
    // An encoding is a property of the blob: the service packs and unpacks nothing.
    let (length, whole) = web::carried_as_stored(&reply, range.as_ref()).map_err(at("read", key))?;
    let entry = Facts::of(&reply.headers, whole).entry(key.clone(), true);
    if entry.version.is_none() || want.is_some() && entry.version.as_ref() != want {
        return Err(Error::new(ErrorKind::Changed, "read", "changed since it was listed").with_key(key));
    }
    Ok(Read { entry, body: Body::Stream(web::content(reply, range.as_ref(), length, key)) })
}
