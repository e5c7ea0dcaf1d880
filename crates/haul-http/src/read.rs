//! Asking about files, and reading them.

use crate::Site;
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Key, Result, Version};
use haul_net::{Reply, at};
use haul_store::{
    Body, Direction, Read,
    web::{self, Call, Facts},
};
use http::{Method, header};
use std::ops::Range;

/// See [`haul_store::Store::stat`].
pub async fn stat(site: &Site, key: &Key) -> Result<Entry> {
    let entry = ask(site, key).await.map_err(|e| match key.is_root() && e.kind() == ErrorKind::NotFound {
        true => Error::new(ErrorKind::DirNotFound, "stat", format!("{}: {}", site.web.root, e.message())),
        false => e,
    })?;
    // `d` isn't `d/`, nor the reverse.
    match entry.key == *key {
        true => Ok(entry),
        false => Err(Error::new(ErrorKind::NotFound, "stat", "no such file").with_key(key)),
    }
}

/// The entry at `key`, a file or a directory: a redirect from `d` to `d/` shows that it is a directory.
pub async fn ask(site: &Site, key: &Key) -> Result<Entry> {
    let call = Call::new("HeadFile", Direction::Meta, Method::HEAD, site.url(key)?);
    let answer = site.web.follow(call).await.map_err(at("stat", key))?;
    if key.is_root() || key.is_dir() {
        return Ok(Entry::dir(key.clone()));
    }
    // Where names of directories look like others, a page is one, as rclone has it.
    let is_page = || answer.reply.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
    if answer.url.path().ends_with('/') || site.no_slash && is_page() {
        return Ok(Entry::dir(key.with_suffix("/")));
    }
    let length = |reply: &Reply| reply.header("content-length").and_then(|length| length.trim().parse().ok());
    let mut size = length(&answer.reply);
    if size.is_none() {
        // Apache doesn't say so of an empty file, until it is asked for the file itself.
        let call = Call::new("GetFile", Direction::Down, Method::GET, site.url(key)?);
        size = length(&site.web.follow(call).await.map_err(at("stat", key))?.reply);
    }
    let size = size.ok_or_else(|| {
        let message = "the server doesn't say how long this is: it may be made anew for each reader";
        Error::new(ErrorKind::Unsupported, "stat", message).with_key(key)
    })?;
    Ok(Facts::of(&answer.reply.headers, size).entry(key.clone()))
}

/// See [`haul_store::Store::read`].
pub async fn read(site: &Site, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    if range.as_ref().is_some_and(|range| range.start >= range.end) {
        let entry = stat(site, key).await?;
        same(want, &entry, key)?;
        return Ok(Read { entry, body: Body::Stream(futures::stream::empty().boxed()) });
    }
    let mut call = Call::new("GetFile", Direction::Down, Method::GET, site.url(key)?);
    if let Some(range) = &range {
        call = call.header(header::RANGE, format!("bytes={}-{}", range.start, range.end - 1));
    }
    let answer = site.web.follow(call).await.map_err(at("read", key))?;
    if answer.url.path().ends_with('/') && site.only.is_none() {
        return Err(Error::new(ErrorKind::NotFound, "read", "no such file").with_key(key));
    }
    let carried = web::carried(&answer.reply, range.as_ref());
    if let (Err(_), Some(want)) = (&carried, want)
        && let Some(length) = answer.reply.header("content-length").and_then(|v| v.parse().ok())
        && answer.reply.header("content-range").is_none()
        && !Facts::of(&answer.reply.headers, length).may_be(want)
    {
        // An answer with another version proves nothing about the server's abilities.
        return Err(changed(key));
    }
    let (length, whole) = carried.map_err(at("read", key))?;
    let facts = Facts::of(&answer.reply.headers, whole);
    if want.is_some_and(|want| !facts.may_be(want)) {
        return Err(changed(key));
    }
    let mut entry = facts.entry(key.clone());
    if let Some(want) = want {
        entry.version = Some(want.clone());
    }
    let body = web::content(answer.reply, range.as_ref(), length, key);
    Ok(Read { entry, body: Body::Stream(body) })
}

fn same(want: Option<&Version>, entry: &Entry, key: &Key) -> Result<()> {
    if want.is_some() && want != entry.version.as_ref() {
        return Err(changed(key));
    }
    Ok(())
}

fn changed(key: &Key) -> Error {
    Error::new(ErrorKind::Changed, "read", "changed since it was listed").with_key(key)
}
