//! Single addresses, of any server, typed whole with their queries (`copyurl`): what each leads to is asked for at once. What has a
//! length, can be read in parts and would show a change is a file of a store that has no other; all else is a stream.

use crate::{Site, read, read_only};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_net::{Reply, at};
use haul_store::{
    Body, Caps, CopyBatch, Direction, Lanes, ListRequest, OpenRequest, Read, Store, StoredFacts, Upload, Watch,
    WriteSpec,
    web::{self, Call, Facts, Web},
};
use http::{HeaderMap, Method};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};
use url::Url;

/// Result of looking up a URL.
#[derive(Debug)]
pub struct UrlFacts {
    /// The last part of the path, at the end of all redirections.
    pub name: Option<String>,
    /// The name that the server gives it (`Content-Disposition`).
    pub file_name: Option<String>,
    /// When it was changed, if the server says it.
    pub mtime: Option<Mtime>,
    /// Its bytes, if the server says how many.
    pub size: Option<u64>,
    address: Address,
    reply: Reply,
}

/// How it is read.
pub enum Content {
    /// As a file.
    File(Box<Address>),
    /// From its beginning to its end, once.
    Stream(BoxStream<'static, Result<bytes::Bytes>>),
}

/// A file at an address.
#[derive(Debug)]
pub struct Address {
    site: Site,
    entry: Entry,
    /// The answer to the first request, whose body is still arriving.
    first: Mutex<Option<Reply>>,
}

/// Requests `url`.
///
/// Errors: `Invalid` when it isn't an address; the server's.
pub async fn find(mut request: OpenRequest, url: &str) -> Result<UrlFacts> {
    let bad = || Error::new(ErrorKind::Invalid, "open", "this is no address: write https://HOST/PATH");
    let mut only = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    request.options.insert("url".into(), url.into());
    request.path.clear();
    let web = Web::open(&request, crate::KIND.name, HeaderMap::new())?;
    if let Some(only) = &mut only {
        // They go in a header.
        let _ = (only.set_username(""), only.set_password(None));
        only.set_fragment(None);
    }
    let site = Site { web, no_slash: false, no_head: true, only: Some(only.ok_or_else(bad)?) };
    let key = Key::new("");
    let call = Call::new("GetFile", Direction::Down, Method::GET, site.url(&key)?);
    let answer = site.web.follow(call).await.map_err(at("read", &key))?;
    let header = |name: &str| answer.reply.header(name);
    let plain = header("content-encoding").is_none_or(|coding| coding.eq_ignore_ascii_case("identity"));
    if !plain {
        let message = "the server sends the content in another encoding";
        return Err(Error::new(ErrorKind::Unsupported, "read", message));
    }
    let size = header("content-length").and_then(|length| length.trim().parse().ok());
    let facts = Facts::of(&answer.reply.headers, size.unwrap_or_default());
    let name = answer.url.path_segments().and_then(|mut parts| parts.next_back()).map(web::decoded);
    Ok(UrlFacts {
        name: name.and_then(|name| String::from_utf8(name).ok()).filter(|name| is_name(name)),
        file_name: header("content-disposition").and_then(disposition),
        mtime: facts.modified,
        size,
        address: Address { site, entry: facts.entry(key), first: Mutex::default() },
        reply: answer.reply,
    })
}

impl UrlFacts {
    /// Its content. With `keep`, the body of the first answer, which is still arriving, is used as the beginning of the file, and has a
    /// connection to itself until then; else the file is requested again.
    ///
    /// Errors: the server reports neither its length nor where it ends.
    pub fn content(self, keep: bool) -> Result<Content> {
        let header = |name: &str| self.reply.header(name);
        let in_parts = header("accept-ranges").is_some_and(|unit| unit.eq_ignore_ascii_case("bytes"));
        let pinned = self.mtime.is_some() || header("etag").is_some();
        if self.size.is_some() && in_parts && pinned {
            let first = Mutex::new(Some(self.reply).filter(|_| keep));
            return Ok(Content::File(Box::new(Address { first, ..self.address })));
        }
        self.stream().map(Content::Stream)
    }

    /// The bytes, once.
    ///
    /// Errors: as [`UrlFacts::content`].
    pub fn stream(self) -> Result<BoxStream<'static, Result<bytes::Bytes>>> {
        let chunked = self.reply.header("transfer-encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked"));
        match self.size {
            Some(size) => Ok(self.reply.stream(size)),
            None if chunked => Ok(self.reply.to_end()),
            None => {
                let message = "the server tells neither how long this is nor where it ends";
                Err(Error::new(ErrorKind::Unsupported, "read", message))
            }
        }
    }
}

/// Can a file be called so?
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// The file name in a `Content-Disposition`: the last part of it, were it a path.
fn disposition(text: &str) -> Option<String> {
    let parts = text.split(';').skip(1).filter_map(|part| part.split_once('='));
    let find = |wanted: &str| {
        let mut parts = parts.clone().map(|(name, value)| (name.trim(), value.trim()));
        parts.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    let name = match find("filename*").and_then(|value| value.split_once("''")) {
        Some((charset, value)) if charset.eq_ignore_ascii_case("utf-8") => {
            String::from_utf8(web::decoded(value)).ok()?
        }
        _ => find("filename")?.trim_matches('"').replace("\\\"", "\""),
    };
    let leaf = name.replace('\\', "/");
    let leaf = leaf.trim_end_matches('/').rsplit('/').next()?.to_owned();
    is_name(&leaf).then_some(leaf)
}

/// Files at addresses, under names of the caller's.
#[derive(Debug)]
pub struct Addresses {
    files: BTreeMap<Key, Box<Address>>,
    caps: Caps,
}

impl Addresses {
    /// These; `None` where there are none.
    pub fn new(files: BTreeMap<Key, Box<Address>>) -> Option<Addresses> {
        (!files.is_empty()).then(|| Addresses { files, caps: web::caps() })
    }

    fn file(&self, key: &Key) -> Result<&Address> {
        self.files
            .get(key)
            .map(|file| &**file)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "read", "no such address").with_key(key))
    }

    async fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
        let file = self.file(key)?;
        let begins = range.as_ref().is_none_or(|range| range.start == 0 && range.end > 0);
        let first = begins.then(|| file.first.lock().unwrap_or_else(|e| e.into_inner()).take()).flatten();
        if let Some(reply) = first
            && want.is_none_or(|want| Some(want) == file.entry.version.as_ref())
        {
            let entry = Entry { key: key.clone(), ..file.entry.clone() };
            let body = web::content(reply, range.as_ref(), file.entry.size, key);
            return Ok(Read { entry, body: Body::Stream(body) });
        }
        read::read(&file.site, key, want, range).await
    }
}

impl Store for Addresses {
    fn locator(&self) -> &str {
        // Addresses may hold secrets.
        "http:"
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, _: ListRequest) -> BoxStream<'static, Listed> {
        let entries = self.files.iter().map(|(key, file)| Entry { key: key.clone(), ..file.entry.clone() });
        let entries = entries.collect();
        futures::stream::iter([Listed::Batch(entries), Listed::End]).boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let entry = match key.is_root() {
            true => Ok(Entry::dir(key.clone())),
            false => self.file(key).map(|file| Entry { key: key.clone(), ..file.entry.clone() }),
        };
        async { entry }.boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        async move { self.read(&key, want.as_ref(), range).await }.boxed()
    }

    fn write(&self, _: &Key, _: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        async { read_only("write") }.boxed()
    }

    fn make_dir(&self, _: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        async { read_only("mkdir") }.boxed()
    }

    fn copy(&self, batch: CopyBatch, _: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        async move { batch.items.iter().map(|_| read_only("copy")).collect() }.boxed()
    }

    fn set_meta(&self, _: &Key, _: Option<Mtime>, _: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        async { read_only("set_meta") }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        async move { keys.iter().map(|_| read_only("delete")).collect() }.boxed()
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.files.values().next().map(|file| &file.site.web.lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_from_headers() {
        for (header, name) in [
            ("attachment; filename=\"a b.txt\"", Some("a b.txt")),
            ("inline; FileName=x.bin; size=3", Some("x.bin")),
            ("attachment; filename=plain.txt; filename*=UTF-8''n%C3%A4me.txt", Some("n\u{e4}me.txt")),
            ("attachment; filename=\"C:\\\\dir\\\\x.txt\"", Some("x.txt")),
            ("attachment; filename=\"../../etc/passwd\"", Some("passwd")),
            ("attachment; filename=\"..\"", None),
            ("attachment; filename=\"\"", None),
            ("attachment", None),
        ] {
            assert_eq!(disposition(header).as_deref(), name, "{header}");
        }
    }
}
