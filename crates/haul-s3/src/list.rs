//! Listing: asks for pages and reads them.

use super::{
    error::{Fault, FaultResult},
    meta,
    provider::lists_by_directory,
    service::{Call, Service},
    xml::{self, Step},
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Algo, Entry, ErrorKind, Key, Kind, Result, Retry, encoding::Encoding};
use haul_net::Pages;
use haul_store::pages::{PageRequest, PageResponse, Pager};
use http::Method;
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// One page of a bucket, as the server gave it.
#[derive(Debug, Default, PartialEq)]
pub struct Page {
    /// Keys and common prefixes (as directories) in key order; keys are the bucket's.
    pub entries: Vec<Entry>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<Next>,
    /// The prefix that it is said to be of: as it came, and decoded, since not every server encodes it. Empty when nothing is said.
    pub of: Vec<Vec<u8>>,
}

/// How to ask for the next page.
#[derive(Debug, Clone, PartialEq, Hash)]
pub enum Next {
    /// By the server's token.
    Token(String),
    /// After this key (version 1).
    After(Vec<u8>),
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

    fn page<'a>(self: &'a Arc<Self>, question: PageRequest<'a, Next>) -> BoxFuture<'a, Result<PageResponse<Next>>> {
        async move {
            let own_order = PageResponse::ByDirectory { has_dirs: false };
            let by_directory = self.config.encoding.is_some() || self.lists_by_directory.load(Relaxed);
            if !question.any_order && by_directory {
                return Ok(own_order);
            }
            let page = match in_order(&question.scope.container) {
                true if question.any_order => page_of(self, &question, question.next).await,
                true => ordered_page(self, &question).await,
                false => all_pages(self, &question).await,
            };
            let page = page.map_err(|fault| fault.error("list"))?;
            // The first answer said what server it is.
            let learned = !question.any_order && question.next.is_none() && self.lists_by_directory.load(Relaxed);
            Ok(if learned { own_order } else { PageResponse::Page(page.entries, page.next) })
        }
        .boxed()
    }
}

/// A page of a bucket that lists in key order.
async fn ordered_page(service: &Service, question: &PageRequest<'_, Next>) -> FaultResult<Page> {
    let scope = question.scope;
    let after = scope.after.as_ref().filter(|after| **after > scope.prefix);
    let first = after.filter(|_| question.next.is_none()).map(|after| Next::After(after.clone()));
    let next = question.next.or(first.as_ref());
    let wanted = question.most.map_or(usize::MAX, |most| most.saturating_add(1));
    let call = call(service, question, service.config.list_chunk.min(wanted));
    let mut page = page(service, call, &scope.prefix, next).await?;
    if next.is_none() && page.next.is_none() {
        // The listing is complete, so a server's order doesn't matter.
        page.entries.sort_by(|a, b| a.key.cmp(&b.key));
    }
    match (next, page.entries.first()) {
        (Some(Next::After(after)), Some(begins)) if question.most.is_some() && begins.key.as_bytes() <= &after[..] => {
            let message = "the server doesn't begin a listing where it is asked to";
            Err(Fault::new(ErrorKind::Unsupported, Retry::Never, message))
        }
        _ => Ok(page),
    }
}

/// Everything of a bucket that lists in no order, as one page: it must be held as a whole to be put in order.
async fn all_pages(service: &Service, question: &PageRequest<'_, Next>) -> FaultResult<Page> {
    let (mut all, mut pages) = (Page::default(), Pages::default());
    loop {
        let page = page_of(service, question, all.next.as_ref()).await?;
        for entry in &page.entries {
            pages.is_new(&entry.key.to_string());
        }
        all.entries.extend(page.entries);
        all.next = page.next;
        let Some(next) = &all.next else { break };
        pages.next(next)?;
    }
    all.entries.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(all)
}

/// A page as the server gives it.
async fn page_of(service: &Service, question: &PageRequest<'_, Next>, next: Option<&Next>) -> FaultResult<Page> {
    page(service, call(service, question, service.config.list_chunk), &question.scope.prefix, next).await
}

/// A page of at most `most` entries.
fn call<'a>(service: &Service, question: &PageRequest<'a, Next>, most: usize) -> Call<'a> {
    let scope = question.scope;
    let call = Call::page(&service.config, &scope.container, &scope.prefix, most);
    match question.delimiter() {
        "" => call,
        delimiter => call.query("delimiter", delimiter),
    }
}

/// False for directory buckets, whose listings come in no order and can't begin after a key.
pub fn in_order(bucket: &str) -> bool {
    !bucket.ends_with("--x-s3")
}

/// One page: that which begins at `next`, of the keys with `prefix`, as `call` asks.
pub async fn page(service: &Service, call: Call<'_>, prefix: &[u8], next: Option<&Next>) -> FaultResult<Page> {
    let config = &service.config;
    let call = match next {
        Some(Next::Token(token)) => call.query("continuation-token", token),
        Some(Next::After(key)) => call.raw_query(if config.list_v1 { "marker" } else { "start-after" }, key),
        None => call,
    };
    let (headers, body) = service.ask(call).await?;
    let server = headers.get(http::header::SERVER).and_then(|server| server.to_str().ok());
    service.lists_by_directory.fetch_or(server.is_some_and(lists_by_directory), Relaxed);
    let page = parse(&body, config.etag_is_md5(), config.list_v1).map_err(Fault::broken)?;
    // Entries show by themselves whether they were asked for. Nothing does so only by what it is said to be of.
    match page.of.iter().any(|of| !of.is_empty()) && page.entries.is_empty() && page.of.iter().all(|of| of != prefix) {
        true => Err(Fault::broken("the listing is of another directory than was asked for")),
        false => Ok(page),
    }
}

/// Message for an answer that isn't a listing.
const UNREADABLE: &str = "the listing can't be read";
const CUT: &str = "the listing is truncated and doesn't say where it continues";

/// Parses a page of a listing, version 1 or 2. A page that doesn't say whether it is the last proves nothing, nor does one that
/// contradicts itself.
///
/// Errors: the problem with it.
fn parse(body: &[u8], etag_is_md5: bool, v1: bool) -> Result<Page, String> {
    let mut found = Parsed::default();
    xml::walk(body, |step| found.step(step, etag_is_md5)).ok_or(UNREADABLE)?;
    found.page(v1)
}

#[derive(Default)]
struct Parsed {
    is_listing: bool,
    keys: Vec<Entry>,
    /// As they came: they end in `/` once they are decoded.
    prefixes: Vec<String>,
    /// The prefix that the page is of.
    of: Option<String>,
    current: Option<ListedKey>,
    in_prefixes: bool,
    encoded: bool,
    truncated: Option<bool>,
    token: Option<String>,
    marker: Option<String>,
    count: Option<u64>,
    bad: bool,
}

/// One key, as far as it was listed.
struct ListedKey {
    entry: Entry,
    key: bool,
    size: bool,
}

impl Parsed {
    fn step(&mut self, step: Step<'_>, etag_is_md5: bool) {
        match step {
            Step::Open("ListBucketResult") => self.is_listing = true,
            Step::Open("Contents") => {
                self.current = Some(ListedKey { entry: Entry::file(Key::new(""), 0), key: false, size: false });
            }
            Step::Open("CommonPrefixes") => self.in_prefixes = true,
            Step::Close("CommonPrefixes", _) => self.in_prefixes = false,
            Step::Close("Contents", _) => match self.current.take() {
                Some(ListedKey { entry, key: true, size: true }) => self.keys.push(entry),
                _ => self.bad = true,
            },
            Step::Close("Prefix", "") if self.in_prefixes => self.bad = true,
            Step::Close("Prefix", text) if self.in_prefixes => self.prefixes.push(text.to_owned()),
            Step::Close("Prefix", text) if self.current.is_none() => self.of = Some(text.to_owned()),
            Step::Close("EncodingType", text) => self.encoded = text.eq_ignore_ascii_case("url"),
            Step::Close("IsTruncated", text) => match text.trim() {
                "true" => self.truncated = Some(true),
                "false" => self.truncated = Some(false),
                _ => self.bad = true,
            },
            Step::Close("NextContinuationToken", text) => self.token = Some(text.to_owned()).filter(|t| !t.is_empty()),
            Step::Close("NextMarker", text) => self.marker = Some(text.to_owned()).filter(|t| !t.is_empty()),
            Step::Close("KeyCount", text) => match text.trim().parse() {
                Ok(count) => self.count = Some(count),
                Err(_) => self.bad = true,
            },
            Step::Close(name, text) => self.fact(name, text, etag_is_md5),
            Step::Open(_) => {}
        }
    }

    fn fact(&mut self, name: &str, text: &str, etag_is_md5: bool) {
        let Some(ListedKey { entry, key, size }) = &mut self.current else { return };
        match name {
            "Key" => (entry.key, *key) = (Key::new(text), true),
            "Size" => match text.trim().parse() {
                Ok(decoded_size) => (entry.size, *size) = (decoded_size, true),
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

    /// Some servers count the keys alone, without the prefixes.
    fn is_counted(&self) -> bool {
        let (keys, prefixes) = (self.keys.len() as u64, self.prefixes.len() as u64);
        self.count.is_none_or(|count| count == keys + prefixes || count == keys)
    }

    fn page(mut self, v1: bool) -> Result<Page, String> {
        if !self.is_listing || self.bad {
            return Err(UNREADABLE.into());
        }
        if !self.is_counted() {
            let (count, held) = (self.count.unwrap_or(0), self.keys.len() + self.prefixes.len());
            return Err(format!("the listing counts {count} entries and holds {held}"));
        }
        let encoded = self.encoded;
        let decode = |text: &[u8]| if encoded { form_decode(text) } else { text.to_vec() };
        if encoded {
            for entry in &mut self.keys {
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
        // With a delimiter a marker `d/` and the keys below it are one common prefix, so the two never meet.
        let mut entries = self.keys;
        if !self.prefixes.is_empty() {
            // The delimiter may be encoded too: what ends a prefix shows only when it is decoded.
            entries.extend(self.prefixes.iter().map(|prefix| Entry::dir(Key::new(decode(prefix.as_bytes())))));
            entries.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let next = match (self.truncated, self.token, self.marker) {
            (None, ..) => return Err("the listing doesn't say whether it is complete (no IsTruncated)".into()),
            (Some(false), None, None) => None,
            (Some(false), ..) => return Err("the listing says that it is complete, and where it continues".into()),
            (Some(true), Some(token), _) if !v1 => Some(Next::Token(token)),
            (Some(true), _, Some(marker)) if v1 => Some(Next::After(decode(marker.as_bytes()))),
            (Some(true), ..) => match entries.last().filter(|_| v1) {
                Some(last) => Some(Next::After(last.key.as_bytes().to_vec())),
                None if v1 => return Err(CUT.into()),
                // Servers that only know version 1 answer with it whatever they are asked.
                None => return Err(format!("{CUT}: try --s3-list-version 1")),
            },
        };
        let of = self.of.iter().flat_map(|of| [of.as_bytes().to_vec(), decode(of.as_bytes())]).collect();
        Ok(Page { entries, next, of })
    }
}

/// Listings encode as HTML forms do: `+` for a space.
pub fn form_decode(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    percent_encoding::percent_decode(&spaced).collect()
}

/// Every bucket as a directory.
pub async fn buckets(service: &Service) -> Result<Vec<Entry>> {
    let (mut found, mut next): (Vec<Entry>, Option<String>) = (Vec::new(), None);
    loop {
        let mut call = Call::service("ListBuckets", Method::GET);
        if let Some(token) = &next {
            call = call.query("continuation-token", token);
        }
        let (_, body) = service.ask(call).await.map_err(|f| f.error("list"))?;
        let broken = |message: &str| Fault::broken(message).error("list");
        let page = parse_buckets(&body).ok_or_else(|| broken("the list of buckets can't be read"))?;
        found.extend(page.0);
        if page.1.is_none() {
            found.sort_by(|a, b| a.key.cmp(&b.key));
            return Ok(found);
        }
        if page.1 == next {
            return Err(broken("the list of buckets does not advance"));
        }
        next = page.1;
    }
}

fn parse_buckets(body: &[u8]) -> Option<(Vec<Entry>, Option<String>)> {
    let (mut is_list, mut in_bucket, mut next) = (false, false, None);
    let mut found: Vec<Entry> = Vec::new();
    xml::walk(body, |step| match step {
        Step::Open("ListAllMyBucketsResult") => is_list = true,
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
        Step::Close("ContinuationToken", text) => next = Some(text.to_owned()).filter(|t| !t.is_empty()),
        _ => {}
    })?;
    let named = found.iter().all(|bucket| bucket.key.name() != b"");
    (is_list && named).then_some((found, next))
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
<CommonPrefixes><Prefix>c%2F/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>my_data%2F</Prefix></CommonPrefixes>
<KeyCount>4</KeyCount><EncodingType>url</EncodingType></ListBucketResult>"#;
        let page = parse(xml, true, false).unwrap();
        assert_eq!(keys(&page), ["a b+\\xff\\n", "c//", "m/", "my_data/"]);
        assert_eq!(page.entries[0].hashes.hex(Algo::Md5).as_deref(), Some("764efa883dda1e11db47671c4a3bbd9e"));
        assert_eq!(page.entries[0].changed, Some(haul_core::Mtime::new(1_704_164_645, 678_000_000)));
        assert_eq!(
            page.entries.iter().map(|e| e.kind).collect::<Vec<_>>(),
            [Kind::File, Kind::Dir, Kind::Dir, Kind::Dir]
        );
        assert_eq!(page.next, Some(Next::Token("t/=".into())));
        assert!(parse(xml, false, false).unwrap().entries[0].hashes.is_empty());
    }

    #[test]
    fn keys_stay_as_they_are_unless_the_server_says_that_it_encoded_them() {
        let xml = whole("<Contents><Key>a+b%2B</Key><Size>1</Size></Contents>");
        assert_eq!(keys(&parse(&xml, true, false).unwrap()), ["a+b%2B"]);
    }

    #[test]
    fn version_1_goes_on_after_the_marker_or_the_last_key() {
        let with = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextMarker>m</NextMarker></ListBucketResult>";
        assert_eq!(parse(with, true, true).unwrap().next, Some(Next::After(b"m".to_vec())));
        let without =
            b"<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>k</Key><Size>1</Size></Contents></ListBucketResult>";
        assert_eq!(parse(without, true, true).unwrap().next, Some(Next::After(b"k".to_vec())));
    }

    fn whole(text: &str) -> Vec<u8> {
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{text}</ListBucketResult>").into_bytes()
    }

    #[test]
    fn what_is_no_whole_listing_is_refused() {
        let (key, prefix) =
            ("<Contents><Key>a</Key><Size>1</Size></Contents>", "<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes>");
        let token = "<NextContinuationToken>t</NextContinuationToken>";
        let cut = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
        let cut_with_a_key = text(&whole(key)).replace("false", "true");
        for (bad, why) in [
            ("<html></html>".to_owned(), UNREADABLE),
            ("<ListBucketResult><Contents><Key>a</Key>".to_owned(), UNREADABLE),
            (text(&whole("<Contents><Key>a</Key><Size>x</Size></Contents>")), UNREADABLE),
            (text(&whole("<Contents><Key>a</Key></Contents>")), UNREADABLE),
            (text(&whole("<Contents><Size>1</Size></Contents>")), UNREADABLE),
            (text(&whole("<CommonPrefixes><Prefix/></CommonPrefixes>")), UNREADABLE),
            (text(&whole(key)).replace("false", "maybe"), UNREADABLE),
            (
                text(&whole(key)).replace("<IsTruncated>false</IsTruncated>", ""),
                "the listing doesn't say whether it is complete (no IsTruncated)",
            ),
            (text(&whole(&format!("{key}{token}"))), "the listing says that it is complete, and where it continues"),
            (cut.to_owned(), "the listing is truncated and doesn't say where it continues: try --s3-list-version 1"),
            (cut_with_a_key, "the listing is truncated and doesn't say where it continues: try --s3-list-version 1"),
            (text(&whole(&format!("{key}{prefix}<KeyCount>3</KeyCount>"))), "the listing counts 3 entries and holds 2"),
            (text(&whole(&format!("{key}<KeyCount>0</KeyCount>"))), "the listing counts 0 entries and holds 1"),
        ] {
            assert_eq!(parse(bad.as_bytes(), true, false), Err(why.to_owned()), "{bad}");
        }
    }

    fn text(xml: &[u8]) -> String {
        String::from_utf8_lossy(xml).into_owned()
    }

    #[test]
    fn a_page_names_its_prefix() {
        let of = |text: &str| parse(&whole(text), true, false).unwrap().of;
        assert_eq!(of(""), Vec::<Vec<u8>>::new());
        assert_eq!(of("<Prefix>a+b/</Prefix><CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes>"), [b"a+b/", b"a+b/"]);
        assert_eq!(of("<EncodingType>url</EncodingType><Prefix>a+b/</Prefix>"), [b"a+b/", b"a b/"]);
    }

    #[test]
    fn servers_may_leave_out_the_count_or_count_the_keys_alone() {
        let both =
            "<Contents><Key>a</Key><Size>1</Size></Contents><CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes>";
        for count in ["", "<KeyCount>2</KeyCount>", "<KeyCount>1</KeyCount>"] {
            assert_eq!(keys(&parse(&whole(&format!("{both}{count}")), true, false).unwrap()), ["a", "d/"], "{count}");
        }
        assert!(parse(&whole("<NextContinuationToken/><NextMarker></NextMarker>"), true, false).is_ok());
    }

    #[test]
    fn a_list_of_buckets() {
        let page = |next: &str| {
            let bucket = "<Bucket><Name>b</Name></Bucket>";
            format!("<ListAllMyBucketsResult><Buckets>{bucket}</Buckets>{next}</ListAllMyBucketsResult>")
        };
        let (found, next) = parse_buckets(page("").as_bytes()).unwrap();
        assert_eq!((found[0].key.as_bytes(), found.len(), next), (&b"b/"[..], 1, None));
        let token = "<ContinuationToken>t</ContinuationToken>";
        assert_eq!(parse_buckets(page(token).as_bytes()).unwrap().1.as_deref(), Some("t"));
        for bad in [&b"<html></html>"[..], b"", b"<ListAllMyBucketsResult><Bucket/></ListAllMyBucketsResult>"] {
            assert_eq!(parse_buckets(bad), None);
        }
    }
}
