//! Listing: asks for pages and reads them.

use crate::{
    meta::{FIELDS, Object},
    service::Service,
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Mtime, Result, encoding::Encoding};
use haul_net::{Fault, Pages};
use haul_oauth::{ServiceResult, few};
use haul_store::{
    pages::{self, Pager},
    tree,
};
use http::Method;
use serde::Deserialize;
use std::sync::Arc;

/// Objects of a page, at most.
pub const PAGE: usize = 1000;
/// Entries of a page that may not be part of the answer: the key after which it begins, and the listed directory itself.
pub const BESIDE: usize = 2;

/// An answer to a listing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListResponse {
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
    /// Token of the next page; `None` on the last one.
    pub next: Option<String>,
    /// It has as many objects as it may have: that there are no more is not proved by it.
    pub full: bool,
}

/// How the next page is asked for.
#[derive(Hash)]
pub enum Next {
    /// By the server's token.
    Token(String),
    /// From this name on, which was listed already: a full page without a token doesn't prove the end.
    From(Vec<u8>),
}

impl Pager for Service {
    type Next = Next;

    fn locator(&self) -> &str {
        &self.locator
    }

    fn root(&self) -> (Option<&str>, &[u8]) {
        (self.root.bucket.as_deref(), &self.root.prefix)
    }

    fn containers(&self) -> BoxFuture<'_, Result<Vec<Entry>>> {
        buckets(self).boxed()
    }

    fn encoding(&self) -> Option<Encoding> {
        self.config.encoding
    }

    fn page<'a>(
        self: &'a Arc<Self>,
        request: pages::PageRequest<'a, Next>,
    ) -> BoxFuture<'a, Result<pages::PageResponse<Next>>> {
        next_page(self, request).boxed()
    }
}

async fn next_page(service: &Service, request: pages::PageRequest<'_, Next>) -> Result<pages::PageResponse<Next>> {
    let scope = request.scope;
    if service.config.encoding.is_some() && !request.any_order {
        return Ok(pages::PageResponse::ByDirectory { has_dirs: false });
    }
    let (token, last_name) = match request.next {
        Some(Next::Token(token)) => (Some(token.as_str()), None),
        Some(Next::From(name)) => (None, Some(&name[..])),
        None => (None, None),
    };
    let question = PageQuery {
        prefix: &scope.prefix,
        delimiter: request.delimiter(),
        from: last_name.or(scope.after.as_deref()).unwrap_or_default(),
        most: request.most.map_or(PAGE, |most| most.saturating_add(BESIDE).min(PAGE)),
        token,
        meta: request.meta,
    };
    let page = page(service, &scope.container, question).await.map_err(|refused| refused.fault.error("list"))?;
    let mut entries = page.entries;
    entries.retain(|entry| last_name != Some(entry.key.as_bytes()));
    let next = match (page.next, entries.last()) {
        (Some(token), _) => Some(Next::Token(token)),
        (None, Some(last)) if page.full => Some(Next::From(last.key.as_bytes().to_vec())),
        (None, _) => None,
    };
    Ok(pages::PageResponse::Page(entries, next))
}

/// Which page.
pub struct PageQuery<'a> {
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
pub async fn page(service: &Service, bucket: &str, question: PageQuery<'_>) -> ServiceResult<Page> {
    let PageQuery { prefix, delimiter, from, most, token, meta } = question;
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
    let answer = match service.api.json::<ListResponse>(&call).await {
        // A bucket answers 404 for no other reason.
        Err(mut refused) if refused.fault.status == 404 => {
            refused.fault.kind = ErrorKind::DirNotFound;
            return Err(refused);
        }
        other => other?,
    };
    let full = answer.items.len() >= most;
    Ok(read(answer, meta).map(|page| Page { full, ..page }).map_err(Fault::broken)?)
}

/// Entries of a page.
///
/// Errors: the problem with it.
fn read(answer: ListResponse, meta: bool) -> Result<Page, String> {
    if answer.kind != "storage#objects" {
        return Err("the server's answer is no listing".into());
    }
    let mut entries = Vec::with_capacity(answer.items.len() + answer.prefixes.len());
    for object in answer.items {
        let wrong = || format!("an object in the listing has no name, size or generation ({:?})", object.name);
        if object.name.is_empty() {
            return Err(wrong());
        }
        let mut entry = object.entry(Key::new(&object.name), meta).ok_or_else(wrong)?;
        if entry.size > 0 {
            // Whatever its name, a directory's marker has no content.
            entry.kind = Kind::File;
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
    // A directory's own marker, beside the common prefix of its contents.
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

/// A bucket can't be called this: it would lead elsewhere.
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
            r#"{"kind":"storage#objects","prefixes":["a"]}"#,
            r#"{"kind":"storage#objects","items":["#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        // An object with content isn't a directory's marker.
        let odd = r#"{"kind":"storage#objects","items":[{"name":"a/","size":"1","generation":"1"},{"name":"b/","size":"0","generation":"1"}]}"#;
        let kinds =
            parse(odd).unwrap().entries.iter().map(|entry| (entry.key.to_string(), entry.kind)).collect::<Vec<_>>();
        assert_eq!(kinds, [("a/".to_owned(), Kind::File), ("b/".to_owned(), Kind::Dir)]);
    }
}
