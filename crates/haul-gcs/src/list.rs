//! Listing: pages are fetched ahead of the reader; whatever breaks is a lost range, never a short listing.

use crate::{
    meta::{FIELDS, Object},
    service::Service,
};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Lost, Mtime, Result, Retry, error::NO_KEYS, key::after_prefix};
use haul_net::{Fault, Pages};
use haul_oauth::{Refusal, few};
use haul_store::{ListRequest, task::Task, tree};
use http::Method;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Objects of a page, at most.
pub const PAGE: usize = 1000;
/// Of a page so many may be none of what was asked for: the key after which it begins, and the directory that is listed.
pub const BESIDE: usize = 2;
/// Pages that wait for the reader, beside the one being fetched.
const AHEAD: usize = 2;

/// An answer to a listing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    kind: String,
    #[serde(default, deserialize_with = "few")]
    items: Vec<Object>,
    #[serde(default, deserialize_with = "few")]
    prefixes: Vec<String>,
    next_page_token: Option<String>,
}

/// One page of a bucket.
#[derive(Debug, Default, PartialEq)]
pub struct Page {
    /// Objects and common prefixes (as directories), in key order; keys are the bucket's.
    pub entries: Vec<Entry>,
    /// What the next page is asked for by; `None` on the last one.
    pub next: Option<String>,
    /// It has as many objects as it may have: that there are no more is not proved by it.
    pub full: bool,
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

/// A part of the namespace that lies in one bucket.
struct Scope<'a> {
    bucket: &'a str,
    /// Prefix of the objects to list.
    prefix: Vec<u8>,
    /// Only objects after this one.
    after: Option<Vec<u8>>,
    /// What names lose at their front …
    cut: usize,
    /// … and get instead.
    front: Vec<u8>,
}

impl Lister {
    async fn run(mut self) {
        let result = match self.service.root.bucket.clone() {
            Some(bucket) => {
                let root = self.service.root.prefix.clone();
                let scope = Scope {
                    bucket: &bucket,
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

    /// All buckets: they are the top directories.
    async fn all(&mut self) -> Result<Reached, (Key, Error)> {
        let (prefix, after) = (self.request.prefix.clone(), self.request.after.clone());
        if let Some(at) = prefix.iter().position(|b| *b == b'/') {
            let name = String::from_utf8_lossy(&prefix[..at]).into_owned();
            return self.inside(&name, prefix[at + 1..].to_vec(), after.as_ref()).await;
        }
        let mut found = buckets(&self.service).await.map_err(|e| (Key::new(&prefix), e))?;
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

    async fn inside(&mut self, bucket: &str, prefix: Vec<u8>, after: Option<&Key>) -> Result<Reached, (Key, Error)> {
        let front = [bucket.as_bytes(), b"/"].concat();
        let after = after.and_then(|a| a.as_bytes().strip_prefix(&front[..])).map(<[u8]>::to_vec);
        self.scope(Scope { bucket, prefix, after, cut: 0, front }).await
    }

    async fn scope(&mut self, scope: Scope<'_>) -> Result<Reached, (Key, Error)> {
        let (mut next, mut last): (Option<String>, Option<Vec<u8>>) = (None, None);
        let (mut from, mut pages) = (scope.after.clone().unwrap_or_default(), Pages::default());
        let key_of = |object: &[u8]| Key::new([&scope.front, object.get(scope.cut..).unwrap_or_default()].concat());
        loop {
            let lost = || match &last {
                // The first key that may be missing comes right after the last one seen.
                Some(last) => key_of(last).with_suffix([0]),
                None => key_of(&scope.prefix),
            };
            let question = Question {
                prefix: &scope.prefix,
                delimiter: if self.request.recursive { "" } else { "/" },
                from: &from,
                most: self.request.limit.map_or(PAGE, |limit| (limit - self.given.min(limit) + BESIDE).min(PAGE)),
                token: next.as_deref(),
                meta: self.request.meta,
            };
            let page = page(&self.service, scope.bucket, question).await;
            let page = page.map_err(|refused| (lost(), refused.fault.error("list")))?;
            let full = page.full;
            if page.entries.is_empty() && page.next.is_none() && last.is_none() && self.is_of_the_root() {
                return Err((lost(), no_root(&self.service, "list")));
            }
            let mut page = page;
            // Where a page begins with what the one before ended with.
            page.entries.retain(|entry| next.is_some() || last.as_deref() != Some(entry.key.as_bytes()));
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
                None if full && grows && more => {
                    from = last.clone().unwrap_or_default();
                    next = None;
                }
                None if full && grows => return Ok(Reached::Limit),
                None => return Ok(Reached::End),
                Some(_) if !more => return Ok(Reached::Limit),
                Some(token) => {
                    if grows {
                        pages.passed();
                    }
                    let from = || key_of(last.as_deref().unwrap_or(&scope.prefix));
                    pages.next(&token).map_err(|fault| (from(), fault.error("list")))?;
                    next = Some(token);
                }
            }
        }
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

/// The error of a root below which there is nothing: a bucket has no empty directories.
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

/// Which page.
pub struct Question<'a> {
    pub prefix: &'a [u8],
    pub delimiter: &'a str,
    /// From this name on.
    pub from: &'a [u8],
    pub most: usize,
    pub token: Option<&'a str>,
    pub meta: bool,
}

/// As much of a name as is text: where that begins is not after it.
fn text(name: &[u8]) -> &str {
    let valid = name.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    // Names end where a line does.
    valid.split(['\r', '\n']).next().unwrap_or_default()
}

/// One page.
pub async fn page(service: &Service, bucket: &str, question: Question<'_>) -> Refusal<Page> {
    let Question { prefix, delimiter, from, most, token, meta } = question;
    let Ok(prefix) = std::str::from_utf8(prefix) else { return Ok(Page::default()) };
    let fields = format!("kind,nextPageToken,prefixes,items({FIELDS})");
    let query = [
        ("prefix", prefix),
        ("delimiter", delimiter),
        ("startOffset", text(from)),
        ("maxResults", &most.to_string()),
        ("pageToken", token.unwrap_or_default()),
        ("fields", &fields),
    ];
    let call = service.of_bucket("ListObjects", Method::GET, bucket, "/o", &query);
    let answer = match service.api.json::<Answer>(&call).await {
        // Of a bucket there is no other 404.
        Err(mut refused) if refused.fault.status == 404 => {
            refused.fault.kind = ErrorKind::DirNotFound;
            return Err(refused);
        }
        other => other?,
    };
    let full = answer.items.len() >= most;
    Ok(read(answer, meta).map(|page| Page { full, ..page }).map_err(Fault::broken)?)
}

/// A page's entries.
///
/// Errors: what is wrong with it.
fn read(answer: Answer, meta: bool) -> Result<Page, String> {
    if answer.kind != "storage#objects" {
        return Err("the server's answer is no listing".into());
    }
    let mut entries = Vec::with_capacity(answer.items.len() + answer.prefixes.len());
    for object in answer.items {
        let wrong = || format!("an object in the listing has no name, size or generation ({:?})", object.name);
        if object.name.is_empty() {
            return Err(wrong());
        }
        let entry = object.entry(Key::new(&object.name), meta).ok_or_else(wrong)?;
        if entry.is_dir() && entry.size > 0 {
            return Err("the listing holds an object with content whose name ends in a slash".into());
        }
        entries.push(entry);
    }
    for prefix in answer.prefixes {
        if !prefix.ends_with('/') {
            return Err("a directory in the listing has no name".into());
        }
        entries.push(Entry::dir(Key::new(prefix)));
    }
    // Objects and directories come apart.
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    // A directory's own marker, beside the directory that stands for what is in it.
    entries.dedup_by(|b, a| a.key == b.key && a.is_dir());
    Ok(Page { entries, next: answer.next_page_token.filter(|token| !token.is_empty()), full: false })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Buckets {
    kind: String,
    #[serde(default, deserialize_with = "few")]
    items: Vec<Bucket>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bucket {
    name: String,
    time_created: Option<String>,
}

/// What no bucket can be called: it would lead elsewhere.
fn is_odd(bucket: &str) -> bool {
    tree::is_odd(bucket.as_bytes()) || bucket.contains('/')
}

/// All buckets of the project, as directories.
///
/// Errors: they can't be listed.
pub async fn buckets(service: &Service) -> Result<Vec<Entry>> {
    if service.config.project.is_empty() {
        let message = "to list buckets, set project_number; else name a bucket: REMOTE:BUCKET";
        return Err(Error::new(ErrorKind::Invalid, "list", message));
    }
    let (mut found, mut token, mut pages) = (Vec::new(), None::<String>, Pages::default());
    loop {
        let query = [("project", &*service.config.project), ("pageToken", token.as_deref().unwrap_or_default())];
        let call = service.call("ListBuckets", Method::GET, "/b", &query);
        let answer: Buckets = service.api.json(&call).await.map_err(|refused| refused.fault.error("list"))?;
        let broken = || Fault::broken("the list of buckets can't be read").error("list");
        if answer.kind != "storage#buckets" || answer.items.iter().any(|bucket| is_odd(&bucket.name)) {
            return Err(broken());
        }
        for bucket in &answer.items {
            pages.is_new(&bucket.name);
        }
        found.extend(answer.items.into_iter().map(|bucket| {
            let time = bucket.time_created.and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let time = time.map(|time| Mtime(time.as_nanosecond()));
            Entry { mtime: time, changed: time, ..Entry::dir(Key::new(format!("{}/", bucket.name))) }
        }));
        match answer.next_page_token.filter(|token| !token.is_empty()) {
            None => break,
            Some(next) => {
                pages.next(&next).map_err(|fault| fault.error("list"))?;
                token = Some(next);
            }
        }
    }
    found.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Page, String> {
        read(serde_json::from_str(text).map_err(|e| e.to_string())?, false)
    }

    #[test]
    fn a_page_is_in_order() {
        let text = r#"{"kind":"storage#objects","nextPageToken":"t","prefixes":["d/B/"],
            "items":[{"name":"d/a","size":"1","generation":"2"},{"name":"d/B/","size":"0","generation":"3"}]}"#;
        let page = parse(text).unwrap();
        assert_eq!(page.next.as_deref(), Some("t"));
        assert_eq!(page.entries.iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>(), ["d/B/", "d/a"]);
        assert_eq!(parse(r#"{"kind":"storage#objects"}"#).unwrap(), Page::default());
        assert_eq!((text_of(b"a\xffb"), text_of(b"a\nb")), ("a", "a"));
    }

    fn text_of(name: &[u8]) -> &str {
        text(name)
    }

    #[test]
    fn what_proves_nothing_is_refused() {
        for bad in [
            "{}",
            "[]",
            r#"{"kind":"storage#object"}"#,
            r#"{"kind":"storage#objects","items":[{"name":"a","size":"1"}]}"#,
            r#"{"kind":"storage#objects","items":[{"name":"a","generation":"1"}]}"#,
            r#"{"kind":"storage#objects","items":[{"size":"1","generation":"1"}]}"#,
            r#"{"kind":"storage#objects","items":[{"name":"a/","size":"1","generation":"1"}]}"#,
            r#"{"kind":"storage#objects","prefixes":["a"]}"#,
            r#"{"kind":"storage#objects","items":["#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
