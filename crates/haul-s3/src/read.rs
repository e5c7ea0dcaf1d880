//! Reading: one GET or HEAD for each answer.

use super::{
    address::ObjectAddress,
    error::{Fault, FaultResult},
    list, meta,
    service::{Call, Service, at},
};
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Key, Result, Version};
use haul_net::Reply;
use haul_store::{Body, Read};
use http::{HeaderMap, Method};
use std::{ops::Range, sync::atomic::Ordering};

/// Facts of one key.
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    if key.is_root() {
        return stat_root(service).await;
    }
    let place = service.place(key)?;
    if key.is_dir() || (service.root.bucket.is_none() && place.object.is_empty()) {
        return stat_dir(service, key, &place).await;
    }
    if service.config.no_head_object {
        return stat_by_list(service, key, &place).await;
    }
    let headers = head(service, key, &place, None).await?;
    Ok(meta::entry(&service.config, key, &headers, size(&headers, key)?))
}

/// The headers of a key.
pub async fn head(service: &Service, key: &Key, place: &ObjectAddress, want: Option<&Version>) -> Result<HeaderMap> {
    let call = || Call::object("HeadObject", Method::HEAD, place);
    let reply = ask(service, call, want).await.map_err(at("stat", key))?;
    let headers = reply.headers.clone();
    reply.bytes().await.map_err(haul_net::at("stat", key))?;
    same_version(&headers, want, "stat", key)?;
    Ok(headers)
}

/// Some servers don't know `If-Match`; one that sends no version at all isn't an S3 server.
fn same_version(headers: &HeaderMap, want: Option<&Version>, op: &'static str, key: &Key) -> Result<()> {
    let Some(now) = meta::etag(headers).map(meta::version) else {
        let message = "the answer names no version (an ETag): is the endpoint an S3 server?";
        return Err(Fault::broken(message).at(op, key));
    };
    match want {
        Some(want) if *want != now => {
            Err(Error::new(ErrorKind::Changed, op, "the content has changed since it was listed").with_key(key))
        }
        _ => Ok(()),
    }
}

/// Sends a GET or HEAD for version `want`, and asks for checksums where the provider gives them. A server that doesn't know
/// the question is not asked it again.
async fn ask<'a>(service: &Service, call: impl Fn() -> Call<'a>, want: Option<&Version>) -> FaultResult<Reply> {
    let mut headers = HeaderMap::new();
    meta::customer_key(&service.config, "x-amz-server-side-encryption-customer-", &mut headers);
    let call = || match want {
        Some(want) => call().headers(headers.clone()).header("if-match", meta::quoted(want)),
        None => call().headers(headers.clone()),
    };
    if !service.config.provider.gives_checksums || service.asks_no_checksums.load(Ordering::Relaxed) {
        return service.call(call()).await;
    }
    match service.call(call().header("x-amz-checksum-mode", "ENABLED")).await {
        Err(fault) if fault.kind == ErrorKind::Unsupported => {
            let reply = service.call(call()).await?;
            service.asks_no_checksums.store(true, Ordering::Relaxed);
            tracing::debug!("the server can't be asked for checksums");
            Ok(reply)
        }
        other => other,
    }
}

/// The size in the headers.
///
/// Errors: `Io` when there is none.
pub fn size(headers: &HeaderMap, key: &Key) -> Result<u64> {
    let length = headers.get(http::header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    length.and_then(|t| t.parse().ok()).ok_or_else(|| Fault::broken("the server did not tell the size").at("stat", key))
}

async fn stat_root(service: &Service) -> Result<Entry> {
    let Some(bucket) = &service.root.bucket else { return Ok(Entry::dir(Key::new(""))) };
    let prefix = &service.root.prefix;
    let found = first_below(service, bucket, prefix).await.map_err(|f| f.error("stat"))?;
    if found.is_none() && !prefix.is_empty() {
        return Err(haul_store::pages::no_root(&service.locator, "stat"));
    }
    Ok(Entry::dir(Key::new("")))
}

/// A directory is there when anything is below it, its own marker included.
async fn stat_dir(service: &Service, key: &Key, place: &ObjectAddress) -> Result<Entry> {
    let found = first_below(service, &place.bucket, &place.object).await;
    let missing = || Error::new(ErrorKind::NotFound, "stat", "no such directory").with_key(key);
    match found {
        Ok(Some(marker)) if marker.key.as_bytes() == place.object && marker.size == 0 && !place.object.is_empty() => {
            Ok(Entry { key: key.clone(), kind: haul_core::Kind::Dir, ..marker })
        }
        Ok(Some(_)) => Ok(Entry::dir(key.clone())),
        // A bucket, which may be empty.
        Ok(None) if place.object.is_empty() => Ok(Entry::dir(key.clone())),
        Ok(None) => Err(missing()),
        Err(fault) => Err(fault.at("stat", key)),
    }
}

async fn stat_by_list(service: &Service, key: &Key, place: &ObjectAddress) -> Result<Entry> {
    let found = first_below(service, &place.bucket, &place.object).await.map_err(at("stat", key))?;
    let found = found.filter(|e| e.key.as_bytes() == place.object);
    let entry = found.ok_or_else(|| Error::new(ErrorKind::NotFound, "stat", "no such key").with_key(key))?;
    Ok(Entry { key: key.clone(), mtime: entry.changed, ..entry })
}

async fn first_below(service: &Service, bucket: &str, prefix: &[u8]) -> FaultResult<Option<Entry>> {
    let mut next = None;
    loop {
        let page = list::page(service, Call::page(&service.config, bucket, prefix, 1), prefix, next.as_ref()).await?;
        match (page.entries.into_iter().next(), page.next) {
            // A page that isn't the last may be empty.
            (None, Some(more)) if next.as_ref() != Some(&more) => next = Some(more),
            (None, Some(_)) => return Err(Fault::broken("the listing does not advance")),
            (first, _) => return Ok(first),
        }
    }
}

/// The bytes of a key, as [`haul_store::Store::read`] says.
pub async fn read(service: &Service, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    read_at(service, key, &service.place(key)?, want, range).await
}

/// As [`read`], for an object at a place.
pub async fn read_at(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    want: Option<&Version>,
    range: Option<Range<u64>>,
) -> Result<Read> {
    if range.as_ref().is_some_and(|r| r.start >= r.end) {
        return empty(service, key, place, want).await;
    }
    let call = || {
        let call = Call::object("GetObject", Method::GET, place);
        match &range {
            Some(range) => call.header("range", format!("bytes={}-{}", range.start, range.end - 1)),
            None => call,
        }
    };
    let reply = match ask(service, call, want).await {
        Ok(reply) => reply,
        Err(fault) if fault.status == 416 => return empty(service, key, place, want).await,
        Err(fault) => return Err(fault.at("read", key)),
    };
    same_version(&reply.headers, want, "read", key)?;
    let length = size(&reply.headers, key)?;
    let whole = match (&range, reply.status.as_u16()) {
        (None, 200) => length,
        (None, status) => return Err(Fault::broken(format!("the server answered {status} to a read")).at("read", key)),
        // rclone's server answers so with status 200: what counts is the range that it says it sends.
        (Some(range), 206 | 200) if reply.header("content-range").is_some() => {
            part_of(reply.header("content-range"), range, length).map_err(at("read", key))?
        }
        // A server may ignore a range that covers everything.
        (Some(range), 200) if range.start == 0 && length <= range.end => length,
        (Some(_), _) => return Err(Fault::broken("the server ignored the range").at("read", key)),
    };
    let mut entry = meta::entry(&service.config, key, &reply.headers, whole);
    if range.is_some() && length != whole {
        // Checksums that come with a part may be of the part.
        entry.hashes = meta::hashes(&service.config, &without_checksums(&reply.headers));
    }
    let named = key.clone();
    let body = reply.stream(length).map(move |piece| piece.map_err(|e| e.with_key(&named))).boxed();
    Ok(Read { entry, body: Body::Stream(body) })
}

/// The size of the whole from `bytes 0-9/100`, which must start where we asked.
fn part_of(header: Option<&str>, range: &Range<u64>, length: u64) -> FaultResult<u64> {
    let parsed = header.and_then(|h| {
        let (span, whole) = h.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = span.split_once('-')?;
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?, whole.parse::<u64>().ok()?))
    });
    match parsed {
        Some((first, last, whole)) if first == range.start && last < range.end && last + 1 - first == length => {
            Ok(whole)
        }
        _ => Err(Fault::broken("the server sent another range than we asked for")),
    }
}

fn without_checksums(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| !name.as_str().starts_with("x-amz-checksum-"));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// No bytes of a key that must be there all the same.
async fn empty(service: &Service, key: &Key, place: &ObjectAddress, want: Option<&Version>) -> Result<Read> {
    let headers = head(service, key, place, want).await?;
    let entry = meta::entry(&service.config, key, &headers, size(&headers, key)?);
    Ok(Read { entry, body: Body::Stream(futures::stream::empty().boxed()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_must_be_the_range_asked_for() {
        let range = 5..10;
        assert_eq!(part_of(Some("bytes 5-9/100"), &range, 5).ok(), Some(100));
        assert_eq!(part_of(Some("bytes 5-7/8"), &range, 3).ok(), Some(8));
        for bad in [None, Some("bytes 0-4/100"), Some("bytes 5-9/*"), Some("bytes 5-11/100")] {
            assert!(part_of(bad, &range, 5).is_err(), "{bad:?}");
        }
    }
}
