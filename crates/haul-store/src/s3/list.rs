//! Listing: pages are fetched ahead of the reader; whatever breaks is a lost range, never a short listing.

use super::{
    error::{Fault, Tried},
    meta,
    service::{Call, Service},
    xml::{self, Step},
};
use crate::{ListRequest, task::Task};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{Algo, Entry, Error, Key, Kind, Listed, Lost, Result, key::after_prefix};
use http::Method;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Pages that wait for the reader, beside the one being fetched.
const AHEAD: usize = 2;

/// One page of a bucket, as the server gave it.
#[derive(Debug, Default, PartialEq)]
pub struct Page {
    /// Keys and common prefixes (as directories) in key order; keys are the bucket's.
    pub entries: Vec<Entry>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<Next>,
}

/// How to ask for the next page.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// By the server's token.
    Token(String),
    /// After this key (version 1).
    After(Vec<u8>),
}

/// Lists as [`crate::Store::list`] says.
pub fn list(service: Arc<Service>, request: ListRequest) -> BoxStream<'static, Listed> {
    // The task begins with the first poll: only then is a runtime sure to be there.
    let begin = async move {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let task = Task::spawn(async move { Lister { service, request, sender, given: 0, seen: 0 }.run().await });
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
    /// Entries of the pages that were read, with those that aren't given out (the listed directory's own marker).
    seen: usize,
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
    /// Prefix of the bucket's keys to list.
    prefix: Vec<u8>,
    /// Only the bucket's keys after this one.
    after: Option<Vec<u8>>,
    /// What the bucket's keys lose at their front.
    cut: usize,
    /// What they get instead.
    front: Vec<u8>,
}

impl Lister {
    async fn run(mut self) {
        let result = match self.service.root.bucket.clone() {
            Some(bucket) => self.root_bucket(&bucket).await,
            None => self.buckets().await,
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

    async fn root_bucket(&mut self, bucket: &str) -> Result<Reached, (Key, Error)> {
        let root = self.service.root.prefix.clone();
        let scope = Scope {
            bucket,
            prefix: [&root[..], &self.request.prefix].concat(),
            after: self.request.after.as_ref().map(|k| [&root[..], k.as_bytes()].concat()),
            cut: root.len(),
            front: Vec::new(),
        };
        self.scope(scope).await
    }

    /// All buckets: they are the top directories.
    async fn buckets(&mut self) -> Result<Reached, (Key, Error)> {
        let prefix = self.request.prefix.clone();
        let after = self.request.after.clone();
        if let Some(at) = prefix.iter().position(|b| *b == b'/') {
            let name = String::from_utf8_lossy(&prefix[..at]).into_owned();
            return self.one_of_buckets(&name, prefix[at + 1..].to_vec(), after.as_ref()).await;
        }
        let start = || Key::new(&prefix);
        let mut buckets = buckets(&self.service).await.map_err(|e| (start(), e))?;
        buckets.retain(|b| b.key.as_bytes().starts_with(&prefix));
        if !self.request.recursive {
            buckets.retain(|b| after.as_ref().is_none_or(|a| b.key > *a));
            let all = buckets.len();
            buckets.truncate(self.request.limit.unwrap_or(usize::MAX));
            let whole = buckets.len() == all;
            self.give(buckets).await;
            return Ok(if whole { Reached::End } else { Reached::Limit });
        }
        for bucket in buckets {
            if after.as_ref().is_some_and(|a| bucket.key.after_prefix().is_some_and(|end| end <= *a)) {
                continue;
            }
            let name = String::from_utf8_lossy(bucket.key.name()).into_owned();
            if after.as_ref().is_none_or(|a| bucket.key > *a) && !self.give(vec![bucket]).await {
                return Ok(Reached::Limit);
            }
            if self.one_of_buckets(&name, Vec::new(), after.as_ref()).await? == Reached::Limit {
                return Ok(Reached::Limit);
            }
        }
        Ok(Reached::End)
    }

    async fn one_of_buckets(
        &mut self,
        bucket: &str,
        prefix: Vec<u8>,
        after: Option<&Key>,
    ) -> Result<Reached, (Key, Error)> {
        let front = [bucket.as_bytes(), b"/"].concat();
        let after = after.and_then(|a| a.as_bytes().strip_prefix(&front[..])).map(<[u8]>::to_vec);
        self.scope(Scope { bucket, prefix, after, cut: 0, front }).await
    }

    async fn scope(&mut self, scope: Scope<'_>) -> Result<Reached, (Key, Error)> {
        let mut next = scope.after.clone().filter(|a| *a > scope.prefix).map(Next::After);
        let mut last: Option<Vec<u8>> = None;
        let key_of = |object: &[u8]| Key::new([&scope.front, object.get(scope.cut..).unwrap_or_default()].concat());
        loop {
            let lost = || match &last {
                // The first key that may be missing comes right after the last one seen.
                Some(last) => key_of(last).with_suffix([0]),
                None => key_of(scope.after.as_deref().unwrap_or(&scope.prefix)),
            };
            let page = match self.page(&scope, next.as_ref()).await {
                Ok(page) => page,
                Err(fault) => return Err((lost(), fault.error("list"))),
            };
            if let Some(fault) = out_of_order(&page, last.as_deref(), &scope) {
                return Err((lost(), fault.error("list")));
            }
            let begins = page.entries.first().map(|e| e.key.as_bytes());
            if self.request.limit.is_some() && matches!((&next, begins), (Some(Next::After(a)), Some(b)) if b <= &a[..])
            {
                let message = "the server doesn't begin a listing where it is asked to";
                let fault = Fault::new(haul_core::ErrorKind::Unsupported, haul_core::Retry::Never, message);
                return Err((lost(), fault.error("list")));
            }
            last = page.entries.last().map(|e| e.key.as_bytes().to_vec()).or(last);
            self.seen += page.entries.len();
            let entries = page.entries.into_iter().filter(|e| {
                let key = e.key.as_bytes();
                // The directory that is listed has no entry of its own in it.
                scope.after.as_ref().is_none_or(|a| key > &a[..])
                    && (key != &scope.prefix[..] || !scope.prefix.ends_with(b"/"))
                    && key.len() > scope.cut
            });
            let entries = match scope.cut == 0 && scope.front.is_empty() {
                true => entries.collect(),
                false => entries.map(|e| Entry { key: key_of(e.key.as_bytes()), ..e }).collect(),
            };
            let more = self.give(entries).await;
            if page.next.is_none() {
                return Ok(Reached::End);
            }
            if !more {
                return Ok(Reached::Limit);
            }
            if page.next == next {
                return Err((
                    key_of(last.as_deref().unwrap_or_default()),
                    Fault::broken("the listing does not advance").error("list"),
                ));
            }
            next = page.next;
        }
    }

    /// Hands entries to the reader; false when there is no need for more.
    async fn give(&mut self, entries: Vec<Entry>) -> bool {
        self.given += entries.len();
        if !entries.is_empty() && self.sender.send(Listed::Batch(entries)).await.is_err() {
            return false;
        }
        // A page whose first entry isn't given out still counts as a whole one.
        self.request.limit.is_none_or(|limit| self.given == 0 || self.seen < limit)
    }

    async fn page(&self, scope: &Scope<'_>, next: Option<&Next>) -> Tried<Page> {
        let config = &self.service.config;
        let wanted = self.request.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.given).saturating_add(1));
        let delimiter = if self.request.recursive { "" } else { "/" };
        let mut call = page_call(&self.service, scope.bucket, &scope.prefix, config.list_chunk.min(wanted));
        if !delimiter.is_empty() {
            call = call.query("delimiter", delimiter);
        }
        call = match next {
            Some(Next::Token(token)) => call.query("continuation-token", token),
            Some(Next::After(key)) => call.raw_query(if config.list_v1 { "marker" } else { "start-after" }, key),
            None => call,
        };
        let (_, body) = self.service.ask(call).await?;
        parse(&body, config.etag_is_md5(), config.list_v1).ok_or_else(|| Fault::broken("the listing can't be read"))
    }
}

/// A request for the first `max` keys with `prefix`.
pub fn page_call<'a>(service: &Service, bucket: &'a str, prefix: &[u8], max: usize) -> Call<'a> {
    let config = &service.config;
    let kind = if config.list_v1 { "ListObjects" } else { "ListObjectsV2" };
    let mut call = Call::bucket(kind, Method::GET, bucket).query("max-keys", max.to_string());
    if !config.list_v1 {
        call = call.query("list-type", "2");
    }
    if config.list_url_encode {
        call = call.query("encoding-type", "url");
    }
    call.raw_query("prefix", prefix)
}

/// A server that loses its place would make us list for ever, or miss keys.
fn out_of_order(page: &Page, last: Option<&[u8]>, scope: &Scope<'_>) -> Option<Box<Fault>> {
    let first = page.entries.first()?;
    let backwards = last.is_some_and(|last| first.key.as_bytes() <= last)
        || page.entries.windows(2).any(|pair| pair[0].key >= pair[1].key);
    if backwards {
        return Some(Fault::new(
            haul_core::ErrorKind::Unsupported,
            haul_core::Retry::Never,
            "the server's listing goes backwards: it can't be trusted to be whole",
        ));
    }
    let stray = page.entries.iter().find(|e| !e.key.as_bytes().starts_with(&scope.prefix))?;
    Some(Fault::broken(format!("the server listed {}, which was not asked for", stray.key)))
}

/// Reads a page of a listing, version 1 or 2.
pub fn parse(body: &[u8], etag_is_md5: bool, v1: bool) -> Option<Page> {
    let mut found = Parsed::default();
    xml::walk(body, |step| found.step(step, etag_is_md5))?;
    found.page(v1)
}

#[derive(Default)]
struct Parsed {
    is_listing: bool,
    keys: Vec<Entry>,
    prefixes: Vec<Entry>,
    current: Option<Entry>,
    in_prefixes: bool,
    encoded: bool,
    truncated: bool,
    token: Option<String>,
    marker: Option<String>,
    bad: bool,
}

impl Parsed {
    fn step(&mut self, step: Step<'_>, etag_is_md5: bool) {
        match step {
            Step::Open("ListBucketResult") => self.is_listing = true,
            Step::Open("Contents") => self.current = Some(Entry::file(Key::new(""), 0)),
            Step::Open("CommonPrefixes") => self.in_prefixes = true,
            Step::Close("CommonPrefixes", _) => self.in_prefixes = false,
            Step::Close("Contents", _) => self.keys.extend(self.current.take()),
            Step::Close("Prefix", text) if self.in_prefixes => self.prefixes.push(Entry::dir(Key::new(text))),
            Step::Close("EncodingType", text) => self.encoded = text.eq_ignore_ascii_case("url"),
            Step::Close("IsTruncated", text) => self.truncated = text.trim() == "true",
            Step::Close("NextContinuationToken", text) => self.token = Some(text.to_owned()),
            Step::Close("NextMarker", text) => self.marker = Some(text.to_owned()),
            Step::Close(name, text) => self.fact(name, text, etag_is_md5),
            Step::Open(_) => {}
        }
    }

    fn fact(&mut self, name: &str, text: &str, etag_is_md5: bool) {
        let Some(entry) = &mut self.current else { return };
        match name {
            "Key" => entry.key = Key::new(text),
            "Size" => match text.trim().parse() {
                Ok(size) => entry.size = size,
                Err(_) => self.bad = true,
            },
            "LastModified" => entry.changed = meta::iso_date(text),
            "ETag" => {
                entry.version = Some(meta::version(text));
                if etag_is_md5 && let Some(md5) = meta::etag_md5(text) {
                    entry.hashes.set(Algo::Md5, md5);
                }
            }
            _ => {}
        }
    }

    fn page(mut self, v1: bool) -> Option<Page> {
        if !self.is_listing || self.bad {
            return None;
        }
        let encoded = self.encoded;
        let decode = |text: &[u8]| if encoded { form_decode(text) } else { text.to_vec() };
        if encoded {
            for entry in self.keys.iter_mut().chain(&mut self.prefixes) {
                if entry.key.as_bytes().iter().any(|b| matches!(b, b'%' | b'+')) {
                    entry.key = Key::new(decode(entry.key.as_bytes()));
                }
            }
        }
        for entry in &mut self.keys {
            if entry.key.is_dir() && entry.size == 0 {
                (entry.kind, entry.hashes) = (Kind::Dir, Default::default());
            }
        }
        // With a delimiter a marker `d/` and what is below it are one common prefix, so the two never meet.
        let mut entries = self.keys;
        if !self.prefixes.is_empty() {
            entries.append(&mut self.prefixes);
            entries.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let next = match (self.truncated, self.token, v1) {
            (false, ..) => None,
            (true, Some(token), false) => Some(Next::Token(token)),
            (true, None, false) => return None,
            (true, _, true) => match self.marker {
                Some(marker) => Some(Next::After(decode(marker.as_bytes()))),
                None => Some(Next::After(entries.last()?.key.as_bytes().to_vec())),
            },
        };
        Some(Page { entries, next })
    }
}

/// Listings encode as HTML forms do: `+` for a space.
pub fn form_decode(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    percent_encoding::percent_decode(&spaced).collect()
}

/// Every bucket as a directory.
pub async fn buckets(service: &Service) -> Result<Vec<Entry>> {
    let (_, body) = service.ask(Call::service("ListBuckets", Method::GET)).await.map_err(|f| f.error("list"))?;
    let mut found: Vec<Entry> = Vec::new();
    let mut in_bucket = false;
    let read = xml::walk(&body, |step| match step {
        Step::Open("Bucket") => {
            in_bucket = true;
            found.push(Entry::dir(Key::new("")));
        }
        Step::Close("Bucket", _) => in_bucket = false,
        Step::Close("Name", text) if in_bucket => {
            if let Some(last) = found.last_mut() {
                last.key = Key::new(format!("{text}/"));
            }
        }
        Step::Close("CreationDate", text) if in_bucket => {
            if let Some(last) = found.last_mut() {
                last.mtime = meta::iso_date(text);
            }
        }
        _ => {}
    });
    read.ok_or_else(|| Fault::broken("the list of buckets can't be read").error("list"))?;
    found.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(page: &Page) -> Vec<String> {
        page.entries.iter().map(|e| format!("{:?}", e.key)).collect()
    }

    #[test]
    fn a_page_with_everything() {
        let xml = br#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix></Prefix>
<IsTruncated>true</IsTruncated><NextContinuationToken>t/=</NextContinuationToken>
<Contents><Key>a+b%2B%FF%0A</Key><LastModified>2024-01-02T03:04:05.678Z</LastModified>
<ETag>&quot;764efa883dda1e11db47671c4a3bbd9e&quot;</ETag><Size>3</Size><Owner><ID>x</ID></Owner></Contents>
<Contents><Key>m/</Key><ETag>"d41d8cd98f00b204e9800998ecf8427e"</ETag><Size>0</Size></Contents>
<CommonPrefixes><Prefix>c%2F/</Prefix></CommonPrefixes><EncodingType>url</EncodingType></ListBucketResult>"#;
        let page = parse(xml, true, false).unwrap();
        assert_eq!(keys(&page), ["a b+\\xff\\n", "c//", "m/"]);
        assert_eq!(page.entries[0].hashes.hex(Algo::Md5).as_deref(), Some("764efa883dda1e11db47671c4a3bbd9e"));
        assert_eq!(page.entries[0].changed, Some(haul_core::Mtime::new(1_704_164_645, 678_000_000)));
        assert_eq!(page.entries.iter().map(|e| e.kind).collect::<Vec<_>>(), [Kind::File, Kind::Dir, Kind::Dir]);
        assert_eq!(page.next, Some(Next::Token("t/=".into())));
        assert!(parse(xml, false, false).unwrap().entries[0].hashes.is_empty());
    }

    #[test]
    fn keys_stay_as_they_are_unless_the_server_says_that_it_encoded_them() {
        let xml = b"<ListBucketResult><Contents><Key>a+b%2B</Key><Size>1</Size></Contents></ListBucketResult>";
        assert_eq!(keys(&parse(xml, true, false).unwrap()), ["a+b%2B"]);
    }

    #[test]
    fn version_1_goes_on_after_the_marker_or_the_last_key() {
        let with = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextMarker>m</NextMarker></ListBucketResult>";
        assert_eq!(parse(with, true, true).unwrap().next, Some(Next::After(b"m".to_vec())));
        let without =
            b"<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>k</Key></Contents></ListBucketResult>";
        assert_eq!(parse(without, true, true).unwrap().next, Some(Next::After(b"k".to_vec())));
    }

    #[test]
    fn what_is_no_whole_listing_is_refused() {
        for bad in [
            &b"<html></html>"[..],
            b"<ListBucketResult><Contents><Key>a</Key>",
            b"<ListBucketResult><Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>",
            b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        ] {
            assert_eq!(parse(bad, true, false), None, "{}", bad.escape_ascii());
        }
    }
}
