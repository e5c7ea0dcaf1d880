//! Listing: pages are fetched ahead of the reader; whatever breaks is a lost range, never a short listing.

use crate::{
    error::{Refused, plain},
    meta::{FOLDER, Facts},
    service::{Call, Namespace, Place, RANGES, Service},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Lost, Mtime, Result, Retry, error::NO_KEYS, key::after_prefix};
use haul_net::{Fault, Pages, Tried, at};
use haul_store::{
    ListRequest,
    task::Task,
    tree::{self, Folders, Found, Wanted},
    web,
    xml::{self, Step},
};
use http::Method;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::sync::mpsc;

/// Of a page so many may be none of what was asked for: the key after which it begins, and the directory that is listed.
pub const BESIDE: usize = 2;
/// Pages that wait for the reader, beside the one being fetched.
const AHEAD: usize = 2;

/// One page of a container.
#[derive(Debug, Default, PartialEq)]
pub struct Page {
    /// Blobs and common prefixes (as directories), in key order; keys are the container's.
    pub entries: Vec<Entry>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<String>,
    /// Directories of the account's own are among them.
    pub folders: bool,
}

/// Lists as [`haul_store::Store::list`] says.
pub fn list(service: Arc<Service>, request: ListRequest) -> BoxStream<'static, Listed> {
    // The task begins with the first poll: only then is a runtime sure to be there.
    let begin = async move {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let task = Task::spawn(async move { Lister { service, request, sender, given: 0 }.run().await });
        futures::stream::unfold((receiver, task), |(mut receiver, task)| async move {
            receiver.recv().await.map(|step| (step, (receiver, task)))
        })
    };
    futures::stream::once(begin).flatten().boxed()
}

struct Lister {
    service: Arc<Service>,
    request: ListRequest,
    sender: mpsc::Sender<Listed>,
    /// Entries that were given out.
    given: usize,
}

/// Whether the listing came to its end.
#[derive(PartialEq)]
enum Reached {
    End,
    /// The limit, or nobody listens any more: there may be more.
    Limit,
}

/// A part of the namespace that lies in one container.
struct Scope<'a> {
    container: &'a str,
    /// Prefix of the blobs to list.
    prefix: Vec<u8>,
    /// Only blobs after this one.
    after: Option<Vec<u8>>,
    /// What names lose at their front …
    cut: usize,
    /// … and get instead.
    front: Vec<u8>,
}

impl Lister {
    async fn run(mut self) {
        let result = match self.service.root.container.clone() {
            Some(container) => {
                let root = self.service.root.prefix.clone();
                let scope = Scope {
                    container: &container,
                    prefix: [&root[..], &self.request.prefix].concat(),
                    after: self.request.after.as_ref().map(|key| [&root[..], key.as_bytes()].concat()),
                    cut: root.len(),
                    front: Vec::new(),
                };
                self.scope(scope).await
            }
            None => self.all().await,
        };
        let last = match result {
            Ok(Reached::End) => Listed::End,
            Ok(Reached::Limit) => return,
            Err((from, error)) => {
                let to = after_prefix(&self.request.prefix).map(Key::new);
                Listed::Failed { lost: Lost { from, to }, error }
            }
        };
        // No reader, no report.
        let _ = self.sender.send(last).await;
    }

    /// All containers: they are the top directories.
    async fn all(&mut self) -> Result<Reached, (Key, Error)> {
        let (prefix, after) = (self.request.prefix.clone(), self.request.after.clone());
        if let Some(at) = prefix.iter().position(|b| *b == b'/') {
            let name = String::from_utf8_lossy(&prefix[..at]).into_owned();
            return self.inside(&name, prefix[at + 1..].to_vec(), after.as_ref()).await;
        }
        let mut found = containers(&self.service).await.map_err(|e| (Key::new(&prefix), e))?;
        found.retain(|entry| entry.key.as_bytes().starts_with(&prefix));
        for entry in found {
            // All in it is before `after`.
            if after.as_ref().is_some_and(|a| entry.key.after_prefix().is_some_and(|end| end <= *a)) {
                continue;
            }
            let name = String::from_utf8_lossy(entry.key.name()).into_owned();
            if after.as_ref().is_none_or(|a| entry.key > *a) && !self.give(vec![entry]).await {
                return Ok(Reached::Limit);
            }
            if self.request.recursive && self.inside(&name, Vec::new(), after.as_ref()).await? == Reached::Limit {
                return Ok(Reached::Limit);
            }
        }
        Ok(Reached::End)
    }

    async fn inside(&mut self, container: &str, prefix: Vec<u8>, after: Option<&Key>) -> Result<Reached, (Key, Error)> {
        let front = [container.as_bytes(), b"/"].concat();
        let after = after.and_then(|a| a.as_bytes().strip_prefix(&front[..])).map(<[u8]>::to_vec);
        self.scope(Scope { container, prefix, after, cut: 0, front }).await
    }

    async fn scope(&mut self, scope: Scope<'_>) -> Result<Reached, (Key, Error)> {
        let (mut next, mut last): (Option<String>, Option<Vec<u8>>) = (None, None);
        let (mut whole, mut pages) = (self.service.whole_listings.load(Relaxed), Pages::default());
        if scope.after.is_some() && !whole {
            // Where an account has directories, what comes after a name is another matter.
            match self.service.namespace(scope.container).await {
                Namespace::Flat => {}
                Namespace::Hierarchical => return self.by_folder(&scope, None).await,
                Namespace::Untold => whole = true,
            }
        }
        let key_of = |blob: &[u8]| Key::new([&scope.front, blob.get(scope.cut..).unwrap_or_default()].concat());
        loop {
            let lost = || match &last {
                // The first key that may be missing comes right after the last one seen.
                Some(last) => key_of(last).with_suffix([0]),
                None => key_of(&scope.prefix),
            };
            let from = scope.after.as_deref().and_then(|after| begin(after, &scope.prefix)).filter(|_| !whole);
            // Where it can't begin at a name, a limit is no reason for a small page.
            let begins = scope.after.is_none() || from.is_some();
            let few = self.request.limit.filter(|_| begins).map(|limit| (limit - self.given.min(limit)) + BESIDE);
            let question = Question {
                prefix: &scope.prefix,
                delimiter: if self.request.recursive { "" } else { "/" },
                most: few.map_or(self.service.config.list_chunk, |few| few.min(self.service.config.list_chunk)),
                marker: next.as_deref(),
                from,
                meta: self.request.meta,
            };
            let page = match page(&self.service, scope.container, &question).await {
                Err(refused) if from.is_some() && next.is_none() && is_unknown(&refused) => {
                    // It knows no such question: all is listed, and what was to be left out is. Of a single folder it takes not all.
                    whole = true;
                    self.service.whole_listings.fetch_or(self.request.recursive, Relaxed);
                    continue;
                }
                other => plain(other).map_err(|fault| (lost(), fault.error("list")))?,
            };
            let is_parted = !self.request.recursive && next.is_none() && page.next.is_some();
            if page.folders || is_parted && self.service.namespace(scope.container).await == Namespace::Hierarchical {
                return self.by_folder(&scope, last).await;
            }
            let first = page.entries.first().filter(|_| next.is_none());
            if let (Some(from), Some(first)) = (from, first)
                && first.key.as_bytes() < from.as_bytes()
                && !from.as_bytes().starts_with(first.key.as_bytes())
            {
                // It knows no such question, and doesn't say so.
                self.service.whole_listings.store(true, Relaxed);
            }
            if page.entries.is_empty() && page.next.is_none() && last.is_none() && self.is_of_the_root() {
                // A directory of the account's own may be empty.
                return match folder(&self.service, scope.container, &scope.prefix).await {
                    Ok(Some(_)) => Ok(Reached::End),
                    Ok(None) => Err((lost(), no_root(&self.service, "list"))),
                    Err(fault) => Err((lost(), fault.error("list"))),
                };
            }
            if let Some(fault) = disorder(&page, last.as_deref(), &scope.prefix) {
                return Err((lost(), fault.error("list")));
            }
            let grows = !page.entries.is_empty();
            last = page.entries.last().map(|entry| entry.key.as_bytes().to_vec()).or(last);
            let entries = page.entries.into_iter().filter(|entry| {
                let key = entry.key.as_bytes();
                // The directory that is listed has no entry of its own in it.
                scope.after.as_ref().is_none_or(|after| key > &after[..])
                    && (key != &scope.prefix[..] || !scope.prefix.ends_with(b"/"))
                    && key.len() > scope.cut
            });
            let entries = entries.map(|entry| Entry { key: key_of(entry.key.as_bytes()), ..entry }).collect();
            let more = self.give(entries).await;
            match page.next {
                None => return Ok(Reached::End),
                Some(_) if !more => return Ok(Reached::Limit),
                Some(marker) => {
                    if grows {
                        pages.passed();
                    }
                    let from = || key_of(last.as_deref().unwrap_or(&scope.prefix));
                    pages.next(&marker).map_err(|fault| (from(), fault.error("list")))?;
                    next = Some(marker);
                }
            }
        }
    }

    /// What comes after `last`, directory by directory: an account with directories of its own has an order of its own.
    async fn by_folder(&mut self, scope: &Scope<'_>, last: Option<Vec<u8>>) -> Result<Reached, (Key, Error)> {
        let (service, container) = (self.service.clone(), scope.container.to_owned());
        let (root, front, meta) = (scope.prefix[..scope.cut].to_vec(), scope.front.clone(), self.request.meta);
        let levels = Levels { service, container, root, front, meta };
        let after = last.or_else(|| scope.after.clone());
        let request = ListRequest {
            prefix: levels.key_of(&scope.prefix),
            after: after.map(|after| Key::new(levels.key_of(&after))),
            limit: self.request.limit.map(|limit| limit - self.given.min(limit)),
            ..self.request.clone()
        };
        let mut listing = tree::list(Arc::new(levels), request);
        while let Some(listed) = listing.next().await {
            match listed {
                Listed::Batch(entries) => {
                    if !self.give(entries).await {
                        return Ok(Reached::Limit);
                    }
                }
                Listed::End => return Ok(Reached::End),
                failed => {
                    if self.sender.send(failed).await.is_err() {
                        return Ok(Reached::Limit);
                    }
                }
            }
        }
        Ok(Reached::Limit)
    }

    /// Hands entries to the reader; false when there is no need for more.
    async fn give(&mut self, entries: Vec<Entry>) -> bool {
        self.given += entries.len();
        if !entries.is_empty() && self.sender.send(Listed::Batch(entries)).await.is_err() {
            return false;
        }
        self.request.limit.is_none_or(|limit| self.given < limit)
    }

    /// True when all that is below the root is asked for, and the root is a directory.
    fn is_of_the_root(&self) -> bool {
        self.request.prefix.is_empty() && self.request.after.is_none() && !self.service.root.prefix.is_empty()
    }
}

/// The directories of a container, each asked for whole.
#[derive(Clone)]
struct Levels {
    service: Arc<Service>,
    container: String,
    /// What names have at their front that keys haven't …
    root: Vec<u8>,
    /// … and what keys have.
    front: Vec<u8>,
    meta: bool,
}

impl Levels {
    fn key_of(&self, blob: &[u8]) -> Vec<u8> {
        [&self.front[..], blob.get(self.root.len()..).unwrap_or_default()].concat()
    }
}

impl Folders for Levels {
    fn folder(&self, dir: Key, _: Wanted) -> BoxFuture<'static, Result<Vec<Found>>> {
        let prefix = [&self.root[..], dir.as_bytes().get(self.front.len()..).unwrap_or_default()].concat();
        let levels = self.clone();
        async move {
            let (mut found, mut next, mut pages) = (BTreeMap::<Key, Found>::new(), None::<String>, Pages::default());
            loop {
                let marker = next.as_deref();
                let (most, meta) = (levels.service.config.list_chunk, levels.meta);
                let question = Question { prefix: &prefix, delimiter: "/", most, marker, from: None, meta };
                let page =
                    plain(page(&levels.service, &levels.container, &question).await).map_err(at("list", &dir))?;
                for entry in page.entries {
                    let blob = entry.key.as_bytes();
                    if !blob.starts_with(&prefix) {
                        let message = format!("the server listed {}, which was not asked for", entry.key);
                        return Err(Fault::broken(message).at("list", &dir));
                    }
                    pages.is_new(&entry.key.to_string());
                    // The directory itself.
                    if blob.len() > prefix.len() {
                        let key = Key::new(levels.key_of(blob));
                        // Its own marker says more of a directory than that there is something in it.
                        let known = found.get(&key).is_some_and(|_| entry.version.is_none());
                        if !known {
                            found.insert(key.clone(), Found::Entry(Entry { key, ..entry }));
                        }
                    }
                }
                match page.next {
                    None => return Ok(found.into_values().collect()),
                    Some(marker) => {
                        pages.next(&marker).map_err(at("list", &dir))?;
                        next = Some(marker);
                    }
                }
            }
        }
        .boxed()
    }
}

/// The facts of a directory of the account's own; `None` where there is no such (`name` may end in a slash).
pub async fn folder(service: &Service, container: &str, name: &[u8]) -> Tried<Option<Facts>> {
    let blob = name.strip_suffix(b"/").unwrap_or(name).to_vec();
    if blob.is_empty() {
        return Ok(None);
    }
    let place = Place { container: container.to_owned(), blob };
    match service.ask(&Call::blob("GetBlobProperties", Method::HEAD, &place)).await {
        Ok((headers, _)) => Ok(Some(Facts::of(&headers, 0)).filter(Facts::is_folder)),
        Err(Refused { fault, .. }) if matches!(fault.kind, ErrorKind::NotFound | ErrorKind::DirNotFound) => Ok(None),
        Err(refused) => Err(refused.fault),
    }
}

/// The error of a root below which there is nothing: a container has no empty directories.
pub fn no_root(service: &Service, op: &'static str) -> Error {
    Error::new(ErrorKind::DirNotFound, op, format!("directory {} not found: {NO_KEYS}", service.locator))
}

/// A server that loses its place would make us list for ever, or miss keys.
fn disorder(page: &Page, last: Option<&[u8]>, prefix: &[u8]) -> Option<Box<Fault>> {
    let first = page.entries.first()?;
    if last.is_some_and(|last| first.key.as_bytes() <= last)
        || page.entries.windows(2).any(|two| two[0].key >= two[1].key)
    {
        let message = "the server's listing goes backwards: it can't be trusted to be whole";
        return Some(Fault::new(ErrorKind::Unsupported, Retry::Never, message));
    }
    let stray = page.entries.iter().find(|entry| !entry.key.as_bytes().starts_with(prefix))?;
    Some(Fault::broken(format!("the server listed {}, which was not asked for", stray.key)))
}

/// The name at which a listing of these names after `after` may begin; `None` where that is at the first of them.
fn begin<'a>(after: &'a [u8], prefix: &[u8]) -> Option<&'a str> {
    // As much of it as is text: where that begins is not after it.
    let text = after.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    Some(text).filter(|text| text.as_bytes() > prefix && text.as_bytes().starts_with(prefix))
}

/// The service doesn't know of listings that begin at a name, or not of this one.
fn is_unknown(refused: &Refused) -> bool {
    refused.fault.status == 400
}

/// Which page.
pub struct Question<'a> {
    pub prefix: &'a [u8],
    pub delimiter: &'a str,
    pub most: usize,
    pub marker: Option<&'a str>,
    /// From this name on.
    pub from: Option<&'a str>,
    pub meta: bool,
}

/// One page.
pub async fn page(service: &Service, container: &str, question: &Question<'_>) -> Result<Page, Refused> {
    let Question { prefix, delimiter, most, marker, from, meta } = question;
    let Ok(text) = std::str::from_utf8(prefix) else { return Ok(Page::default()) };
    let mut call = Call::container("ListBlobs", Method::GET, container)
        .query("comp", "list")
        // Times are metadata.
        .query("include", "metadata")
        .query("maxresults", most.to_string());
    for (name, value) in [("prefix", text), ("delimiter", delimiter), ("marker", marker.unwrap_or_default())] {
        if !value.is_empty() {
            call = call.query(name, value);
        }
    }
    if let Some(from) = from {
        call = call.query("startFrom", *from).version(RANGES);
    }
    let (_, body) = service.ask(&call).await?;
    Ok(parse(&body, text, *meta).map_err(Fault::broken)?)
}

#[derive(Default)]
struct Parsed {
    entries: Vec<Entry>,
    /// The answer is a listing …
    is_list: bool,
    /// … that says where it goes on, if only by an empty word: one that was cut doesn't.
    marker: Option<String>,
    of: String,
    now: Facts,
    name: Option<String>,
    size: Option<u64>,
    in_item: bool,
    in_meta: bool,
    folders: bool,
    wrong: Option<&'static str>,
}

impl Parsed {
    fn step(&mut self, step: Step<'_>, wanted: bool) {
        match step {
            Step::Open("EnumerationResults") => self.is_list = true,
            Step::Open("Blob" | "BlobPrefix") => {
                (self.now, self.name, self.size, self.in_item) = (Facts::default(), None, None, true);
            }
            Step::Open("Metadata") => self.in_meta = true,
            Step::Close("Metadata", _) => self.in_meta = false,
            Step::Close(name, text) if self.in_meta => {
                self.now.meta.insert(name.to_ascii_lowercase(), text.to_owned());
            }
            Step::Close("Blob", _) => {
                let (facts, name, size) = (std::mem::take(&mut self.now), self.name.take(), self.size);
                self.in_item = false;
                match (name, size) {
                    // An account with real directories shows them so.
                    (Some(name), _) if facts.is_folder() && !name.is_empty() => {
                        self.folders = true;
                        let slash = if name.ends_with('/') { "" } else { "/" };
                        self.entries.push(facts.entry(Key::new(format!("{name}{slash}")), wanted));
                    }
                    (Some(name), Some(size)) if !facts.etag.is_empty() => {
                        let key = Key::new(name);
                        if !key.is_dir() || size == 0 {
                            self.entries.push(Facts { size, ..facts }.entry(key, wanted));
                        } else {
                            self.wrong = Some("it holds a blob with content whose name ends in a slash");
                        }
                    }
                    _ => self.wrong = Some("a blob in it has no name, size or ETag"),
                }
            }
            Step::Close("BlobPrefix", _) => {
                self.in_item = false;
                match self.name.take() {
                    Some(name) if name.ends_with('/') => self.entries.push(Entry::dir(Key::new(name))),
                    _ => self.wrong = Some("a directory in it has no name"),
                }
            }
            Step::Close("NextMarker", text) => self.marker = Some(text.to_owned()),
            Step::Close("Prefix", text) if !self.in_item => text.clone_into(&mut self.of),
            Step::Close(name, text) if self.in_item => self.property(name, text),
            _ => {}
        }
    }

    fn property(&mut self, name: &str, text: &str) {
        match name {
            "Name" => self.name = Some(text.to_owned()),
            "Content-Length" => self.size = text.trim().parse().ok().and_then(web::believed),
            "Etag" => self.now.etag = crate::meta::bare(text),
            "Last-Modified" => self.now.changed = web::date(text),
            "Content-MD5" => text.trim().clone_into(&mut self.now.md5),
            "ResourceType" if text == "directory" => drop(self.now.meta.insert(FOLDER.into(), "true".into())),
            "AccessTier" => drop(self.now.meta.insert("tier".into(), text.to_owned())),
            "Cache-Control" | "Content-Disposition" | "Content-Encoding" | "Content-Language" | "Content-Type"
                if !text.is_empty() =>
            {
                self.now.meta.insert(name.to_ascii_lowercase(), text.to_owned());
            }
            _ => {}
        }
    }
}

/// Reads a page. One that doesn't say whether it is the last proves nothing.
///
/// Errors: what is wrong with it.
fn parse(body: &[u8], prefix: &str, meta: bool) -> Result<Page, String> {
    let mut found = Parsed::default();
    xml::walk(body, |step| found.step(step, meta)).ok_or("the listing can't be read")?;
    if !found.is_list {
        return Err("the server's answer is no listing".into());
    }
    if body.windows(14).any(|at| at == b"Encoded=\"true\"") {
        return Err("a name in the listing can't be written in XML".into());
    }
    if let Some(wrong) = found.wrong {
        return Err(format!("the listing is wrong: {wrong}"));
    }
    if !found.of.is_empty() && found.of != prefix {
        return Err("the listing is of another directory than was asked for".into());
    }
    let marker = found.marker.ok_or("the listing is cut: it doesn't say whether there is more")?;
    let mut entries = found.entries;
    // Blobs and directories come apart.
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    // A directory's own marker, beside the directory that stands for what is in it.
    entries.dedup_by(|b, a| a.key == b.key && a.is_dir());
    Ok(Page { entries, next: Some(marker).filter(|marker| !marker.is_empty()), folders: found.folders })
}

/// All containers, as directories.
///
/// Errors: they can't be listed.
pub async fn containers(service: &Service) -> Result<Vec<Entry>> {
    if let Some(only) = &service.config.container {
        // A signature for one container can't ask for others.
        return Ok(vec![Entry::dir(Key::new(format!("{only}/")))]);
    }
    let (mut found, mut marker, mut pages) = (Vec::new(), None::<String>, Pages::default());
    loop {
        let mut call = Call::service("ListContainers", Method::GET).query("comp", "list");
        if let Some(marker) = &marker {
            call = call.query("marker", marker);
        }
        let (_, body) = plain(service.ask(&call).await).map_err(|fault| fault.error("list"))?;
        let broken = || Fault::broken("the list of containers can't be read").error("list");
        let (page, next) = parse_containers(&body).ok_or_else(broken)?;
        for entry in &page {
            pages.is_new(&entry.key.to_string());
        }
        found.extend(page);
        match next {
            None => break,
            Some(next) => {
                pages.next(&next).map_err(|fault| fault.error("list"))?;
                marker = Some(next);
            }
        }
    }
    found.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(found)
}

fn parse_containers(body: &[u8]) -> Option<(Vec<Entry>, Option<String>)> {
    let (mut found, mut next, mut name, mut changed) = (Vec::new(), None, None, None::<Mtime>);
    // What no container can be called: it would lead elsewhere.
    let mut is_odd = false;
    xml::walk(body, |step| match step {
        Step::Open("Container") => (name, changed) = (None, None),
        Step::Close("Name", text) => name = Some(text.to_owned()),
        Step::Close("Last-Modified", text) => changed = web::date(text),
        Step::Close("Container", _) => {
            if let Some(name) = name.take() {
                is_odd |= tree::is_odd(name.as_bytes()) || name.contains('/');
                found.push(Entry { mtime: changed, changed, ..Entry::dir(Key::new(format!("{name}/"))) });
            }
        }
        Step::Close("NextMarker", text) => next = Some(text.to_owned()),
        _ => {}
    })?;
    // Without that word it was cut.
    Some((found, Some(next?).filter(|next| !next.is_empty()))).filter(|_| !is_odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: &str = "<Blob><Name>d/a&amp;b</Name><Properties><Last-Modified>Tue, 02 Jan 2024 03:04:05 GMT</Last-Modified>\
        <Etag>0x1</Etag><Content-Length>5</Content-Length><Content-MD5>kAFQmDzST7DWlj99KOF/cg==</Content-MD5></Properties>\
        <Metadata><Mtime>2020-09-13T12:26:40.120000000Z</Mtime></Metadata></Blob>";

    fn page(inner: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><EnumerationResults><Prefix>d/</Prefix><Blobs>{inner}</Blobs><NextMarker>m</NextMarker></EnumerationResults>"
        )
    }

    #[test]
    fn a_page_is_in_order() {
        let text = page(&format!("{BLOB}<BlobPrefix><Name>d/B/</Name></BlobPrefix>"));
        let page = parse(text.as_bytes(), "d/", false).unwrap();
        assert_eq!(page.next.as_deref(), Some("m"));
        let keys: Vec<_> = page.entries.iter().map(|entry| entry.key.to_string()).collect();
        assert_eq!(keys, ["d/B/", "d/a&b"]);
        let entry = &page.entries[1];
        assert_eq!((entry.size, entry.mtime), (5, Some(Mtime(1_600_000_000_120_000_000))));
        assert_eq!(entry.hashes, haul_core::hash::hash_bytes(&[haul_core::Algo::Md5], b"abc"));
        assert_eq!(entry.changed, Some(Mtime::new(1_704_164_645, 0)));
    }

    #[test]
    fn what_proves_nothing_is_refused() {
        let whole = page(BLOB);
        for (bad, why) in [
            ("<html></html>".to_owned(), "the server's answer is no listing"),
            (
                whole.replace("<NextMarker>m</NextMarker>", ""),
                "the listing is cut: it doesn't say whether there is more",
            ),
            (whole.replace("<Prefix>d/", "<Prefix>e/"), "the listing is of another directory than was asked for"),
            (whole.replace("<Etag>0x1</Etag>", ""), "the listing is wrong: a blob in it has no name, size or ETag"),
            (
                whole.replace("<Content-Length>5", "<Content-Length>x"),
                "the listing is wrong: a blob in it has no name, size or ETag",
            ),
            (whole.replace("<Name>d", "<Name Encoded=\"true\">d"), "a name in the listing can't be written in XML"),
            (whole.replace("</Blobs>", ""), "the listing can't be read"),
        ] {
            assert_eq!(parse(bad.as_bytes(), "d/", false).unwrap_err(), why, "{bad}");
        }
        assert!(parse_containers(b"<EnumerationResults><Containers/></EnumerationResults>").is_none());
    }

    #[test]
    fn directories_of_the_account_are_directories() {
        let marked = BLOB.replace("<Mtime>2020-09-13T12:26:40.120000000Z</Mtime>", "<hdi_isfolder>true</hdi_isfolder>");
        let typed = BLOB.replace("<Etag>", "<ResourceType>directory</ResourceType><Etag>");
        for folder in [marked, typed] {
            let page = parse(page(&folder).as_bytes(), "d/", false).unwrap();
            let entries: Vec<_> = page.entries.iter().map(|entry| (entry.key.to_string(), entry.is_dir())).collect();
            assert_eq!((entries, page.folders), (vec![("d/a&b/".to_owned(), true)], true));
        }
    }
}
