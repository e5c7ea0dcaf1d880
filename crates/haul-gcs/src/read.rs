//! Reading: one request for each answer.

use crate::{
    list::{self, PageQuery},
    meta::{self, FIELDS, Object},
    service::{ObjectAddress, Service},
};
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Hashes, Key, Kind, Result, Version};
use haul_net::{Fault, Pages, Reply, at};
use haul_oauth::{ServiceResult, google::FileFacts as _, plain};
use haul_store::{Body, Direction, Read, web};
use http::{HeaderMap, Method, header};
use std::ops::Range;

/// Facts of one key.
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    if key.is_root() {
        return stat_root(service).await;
    }
    let place = service.place(key)?;
    if key.is_dir() || place.object.is_empty() {
        return stat_dir(service, key, &place).await;
    }
    entry(&facts(service, key, &place, None).await?, key)
}

fn entry(object: &Object, key: &Key) -> Result<Entry> {
    let broken = || Fault::broken("the server told no size or generation of it").at("stat", key);
    object.entry(key.clone(), true).ok_or_else(broken)
}

/// The service's facts about an object, of this version if one is given.
pub async fn facts(service: &Service, key: &Key, place: &ObjectAddress, want: Option<&Version>) -> Result<Object> {
    let want = generation(want).map_err(|e| e.with_key(key))?;
    let query = [("generation", &*want), ("fields", FIELDS)];
    let call = service.of_object("GetObject", Method::GET, place, &query);
    let object: Object = plain(service.api.json(&call).await).map_err(at("stat", key))?;
    if object.name != place.object || object.version().is_none() || object.size().is_none() {
        return Err(Fault::broken("the server told of another object, or not its size and generation").at("stat", key));
    }
    Ok(object)
}

/// A version as a query parameter; empty for any.
///
/// Errors: `NotFound` when it never was a version of the service.
fn generation(want: Option<&Version>) -> Result<String> {
    let text = want.map(|want| String::from_utf8_lossy(&want.0).into_owned()).unwrap_or_default();
    match want.is_none() || text.parse::<u64>().is_ok() {
        true => Ok(text),
        false => Err(Error::new(ErrorKind::NotFound, "read", "no such version")),
    }
}

async fn stat_root(service: &Service) -> Result<Entry> {
    let Some(bucket) = &service.root.bucket else { return Ok(Entry::dir(Key::new(""))) };
    let prefix = &service.root.prefix;
    let found = first_below(service, bucket, prefix).await.map_err(|refused| refused.fault.error("stat"))?;
    if found.is_none() && !prefix.is_empty() {
        return Err(haul_store::pages::no_root(&service.locator, "stat"));
    }
    Ok(Entry::dir(Key::new("")))
}

/// A directory is there when anything is below it, its own marker included.
async fn stat_dir(service: &Service, key: &Key, place: &ObjectAddress) -> Result<Entry> {
    let found = first_below(service, &place.bucket, place.object.as_bytes()).await;
    match found.map_err(|refused| refused.at("stat", key))? {
        Some(marker) if marker.key.as_bytes() == place.object.as_bytes() && !place.object.is_empty() => {
            Ok(Entry { key: key.clone(), kind: Kind::Dir, ..marker })
        }
        Some(_) => Ok(Entry::dir(key.clone())),
        // A bucket, which may be empty.
        None if place.object.is_empty() => Ok(Entry::dir(key.clone())),
        None => Err(Error::new(ErrorKind::NotFound, "stat", "no such directory").with_key(key)),
    }
}

async fn first_below(service: &Service, bucket: &str, prefix: &[u8]) -> ServiceResult<Option<Entry>> {
    let (mut next, mut pages) = (None::<String>, Pages::default());
    loop {
        let question = PageQuery { prefix, delimiter: "", from: b"", most: 1, token: next.as_deref(), meta: false };
        let page = list::page(service, bucket, question).await?;
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
    const OP: &str = "read";
    let place = service.place(key)?;
    if key.is_dir() || place.object.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key));
    }
    let gone = async |error: Error| match (error.kind(), want) {
        // Is it another now, or none?
        (ErrorKind::NotFound, Some(_)) => match facts(service, key, &place, None).await {
            Ok(_) => Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key),
            Err(_) => error,
        },
        _ => error,
    };
    let empty = async || {
        let object = match facts(service, key, &place, want).await {
            Ok(object) => object,
            Err(error) => return Err(gone(error).await),
        };
        Ok(Read { entry: entry(&object, key)?, body: Body::Stream(futures::stream::empty().boxed()) })
    };
    if range.as_ref().is_some_and(|range| range.start >= range.end) {
        return empty().await;
    }
    let generation = match generation(want) {
        Ok(generation) => generation,
        Err(error) => return Err(gone(error.with_key(key)).await),
    };
    let query = [("alt", "media"), ("generation", &*generation)];
    let mut call = service.of_object("GetMedia", Method::GET, &place, &query).going(Direction::Down);
    // Otherwise the service unpacks gzip content, and size and hashes are those of other bytes.
    call = call.header(header::ACCEPT_ENCODING, "gzip");
    if let Some(range) = &range {
        call = call.header(header::RANGE, format!("bytes={}-{}", range.start, range.end - 1));
    }
    let reply = match service.api.send(&call).await {
        Ok(reply) => reply,
        // Nothing is behind the end.
        Err(refused) if refused.fault.status == 416 => return empty().await,
        Err(refused) => return Err(gone(refused.at(OP, key)).await),
    };
    // Content stored in this encoding arrives as it is stored.
    let stored = reply.header("x-goog-stored-content-encoding").zip(reply.header("content-encoding"));
    let carried = match stored {
        Some((stored, sent)) if stored.eq_ignore_ascii_case(sent) => web::carried_as_stored(&reply, range.as_ref()),
        _ => web::carried(&reply, range.as_ref()),
    };
    let (length, whole) = carried.map_err(at(OP, key))?;
    let object = of_headers(&reply, whole);
    let entry = object.entry(key.clone(), false);
    let unnamed = || Fault::broken("the answer names no version (x-goog-generation)").at(OP, key);
    let entry = entry.ok_or_else(unnamed)?;
    if want.is_some() && entry.version.as_ref() != want {
        return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key));
    }
    Ok(Read { entry, body: Body::Stream(web::content(reply, range.as_ref(), length, key)) })
}

/// The hashes in an answer's headers.
pub fn hashes_of(headers: &HeaderMap) -> Hashes {
    meta::hashes(&hash_of(headers, "md5="), &hash_of(headers, "crc32c="))
}

fn hash_of(headers: &HeaderMap, name: &str) -> String {
    // One header for each, or all in one.
    let lines = headers.get_all("x-goog-hash").iter().filter_map(|value| value.to_str().ok());
    let found = lines.flat_map(|line| line.split(',')).find_map(|hash| hash.trim().strip_prefix(name));
    found.unwrap_or_default().to_owned()
}

/// Facts in the headers of an answer with content.
fn of_headers(reply: &Reply, size: u64) -> Object {
    let text = |name: &str| reply.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let user = reply.headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix("x-goog-meta-")?;
        Some((name.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    Object {
        size: Some(size.to_string()),
        generation: text("x-goog-generation"),
        md5_hash: hash_of(&reply.headers, "md5="),
        crc32c: hash_of(&reply.headers, "crc32c="),
        metadata: user.collect(),
        updated: text("last-modified").and_then(|date| {
            let time = jiff::Timestamp::from_nanosecond(web::date(&date)?.0).ok()?;
            Some(time.to_string())
        }),
        content_type: text("content-type").unwrap_or_default(),
        ..meta::Object::default()
    }
}
