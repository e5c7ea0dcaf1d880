//! Listing: requests pages and reads them; directory by directory where an account has an order of its own.

use crate::{
    error::{ServiceError, plain},
    meta::{FOLDER, Facts},
    service::{BlobAddress, Call, Namespace, RANGES, Service},
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Entry, Key, Kind, Mtime, Result, encoding::Encoding};
use haul_net::{Fault, FaultResult, Pages};
use haul_store::{
    pages::{self, PageResponse, Pager},
    tree, web,
    xml::{self, Step},
};
use http::Method;
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// Entries of a page that may not be part of the answer: the key after which it begins, and the listed directory itself.
pub const BESIDE: usize = 2;

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

/// How the next page is asked for.
#[derive(Hash)]
pub struct Next {
    marker: String,
    /// The listing began at the first name, since the service knows of no other beginning.
    whole: bool,
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
        containers(self).boxed()
    }

    fn encoding(&self) -> Option<Encoding> {
        self.config.encoding
    }

    fn page<'a>(
        self: &'a Arc<Self>,
        request: pages::PageRequest<'a, Next>,
    ) -> BoxFuture<'a, Result<PageResponse<Next>>> {
        next_page(self, request).boxed()
    }

    /// A directory of the account's own may be empty.
    fn empty_root(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let container = self.root.bucket.as_deref().unwrap_or_default();
            match folder(self, container, &self.root.prefix).await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(pages::no_root(&self.locator, "list")),
                Err(fault) => Err(fault.error("list")),
            }
        }
        .boxed()
    }
}

async fn next_page(service: &Arc<Service>, request: pages::PageRequest<'_, Next>) -> Result<PageResponse<Next>> {
    let scope = request.scope;
    let mut whole = request.next.map_or_else(|| service.whole_listings.load(Relaxed), |next| next.whole);
    if service.config.encoding.is_some() && !request.any_order {
        // Where the account doesn't say, a directory too many does no harm; one too few would not be deleted with the others.
        let has_dirs = service.namespace(&scope.container).await != Namespace::Flat;
        return Ok(PageResponse::ByDirectory { has_dirs });
    }
    let own_order = PageResponse::ByDirectory { has_dirs: true };
    if request.next.is_none() && scope.after.is_some() && !whole {
        // Where an account has directories, what comes after a name is another matter.
        match service.namespace(&scope.container).await {
            Namespace::Flat => {}
            Namespace::Hierarchical => return Ok(own_order),
            Namespace::Untold => whole = true,
        }
    }
    let page = loop {
        let from = scope.after.as_deref().and_then(|after| begin(after, &scope.prefix)).filter(|_| !whole);
        // Where a listing can't begin at a name, a limit is no reason for a small page.
        let begins = scope.after.is_none() || from.is_some();
        let few = request.most.filter(|_| begins).map_or(usize::MAX, |most| most.saturating_add(BESIDE));
        let question = PageQuery {
            prefix: &scope.prefix,
            delimiter: request.delimiter(),
            most: few.min(service.config.list_chunk),
            marker: request.next.map(|next| next.marker.as_str()),
            from,
            meta: request.meta,
        };
        match page(service, &scope.container, &question).await {
            Err(refused) if from.is_some() && request.next.is_none() && is_unknown(&refused) => {
                // It doesn't support such a request: list all, and filter. For a single folder it returns less than all.
                whole = true;
                service.whole_listings.fetch_or(request.recursive, Relaxed);
            }
            other => {
                let page = plain(other).map_err(|fault| fault.error("list"))?;
                if request.next.is_none() && from.is_some_and(|from| begins_before(&page, from)) {
                    // It knows no such question, and doesn't say so.
                    service.whole_listings.store(true, Relaxed);
                }
                break page;
            }
        }
    };
    let is_parted = !request.recursive && request.next.is_none() && page.next.is_some();
    let has_own_order = !request.any_order
        && (page.folders || is_parted && service.namespace(&scope.container).await == Namespace::Hierarchical);
    if has_own_order {
        return Ok(own_order);
    }
    Ok(PageResponse::Page(page.entries, page.next.map(|marker| Next { marker, whole })))
}

/// A page begins before the name that it was to begin at.
fn begins_before(page: &Page, from: &str) -> bool {
    let first = page.entries.first().map(|entry| entry.key.as_bytes());
    first.is_some_and(|first| first < from.as_bytes() && !from.as_bytes().starts_with(first))
}

/// Facts of a real directory (hierarchical namespace); `None` where it is missing (`name` may end in a slash).
pub async fn folder(service: &Service, container: &str, name: &[u8]) -> FaultResult<Option<Facts>> {
    let blob = name.strip_suffix(b"/").unwrap_or(name).to_vec();
    if blob.is_empty() {
        return Ok(None);
    }
    let place = BlobAddress { container: container.to_owned(), blob };
    match service.ask(&Call::blob("GetBlobProperties", Method::HEAD, &place)).await {
        Ok((headers, _)) => Ok(Some(Facts::of(&headers, 0)).filter(Facts::is_folder)),
        Err(ServiceError { fault, .. }) if fault.kind.is_missing() => Ok(None),
        Err(refused) => Err(refused.fault),
    }
}

/// Whether the directory `name` (which may end in a slash) has nothing below it but its own marker.
pub async fn is_empty(service: &Service, container: &str, name: &[u8]) -> FaultResult<bool> {
    let prefix = [name.strip_suffix(b"/").unwrap_or(name), b"/"].concat();
    let (mut marker, mut pages) = (None::<String>, Pages::default());
    loop {
        let marker_text = marker.as_deref();
        let question =
            PageQuery { prefix: &prefix, delimiter: "", most: BESIDE, marker: marker_text, from: None, meta: false };
        let found = page(service, container, &question).await.map_err(|refused| refused.fault)?;
        if found.entries.iter().any(|entry| entry.key.as_bytes() != prefix) {
            return Ok(false);
        }
        // A page may be empty and not the last.
        let Some(next) = found.next else { return Ok(true) };
        pages.next(&next)?;
        marker = Some(next);
    }
}

/// The name at which a listing of these names after `after` may begin; `None` where that is at the first of them.
fn begin<'a>(after: &'a [u8], prefix: &[u8]) -> Option<&'a str> {
    // As much of it as is text: where that begins is not after it.
    let text = after.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    Some(text).filter(|text| text.as_bytes() > prefix && text.as_bytes().starts_with(prefix))
}

/// The service doesn't know of listings that begin at a name, or not of this one.
fn is_unknown(refused: &ServiceError) -> bool {
    refused.fault.status == 400
}

/// Which page.
pub struct PageQuery<'a> {
    pub prefix: &'a [u8],
    pub delimiter: &'a str,
    pub most: usize,
    pub marker: Option<&'a str>,
    /// From this name on.
    pub from: Option<&'a str>,
    pub meta: bool,
}

/// One page.
pub async fn page(service: &Service, container: &str, question: &PageQuery<'_>) -> Result<Page, ServiceError> {
    let PageQuery { prefix, delimiter, most, marker, from, meta } = question;
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
    /// … that has a next marker, if only an empty one: a cut answer has none.
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
                        let mut entry = Facts { size, ..facts }.entry(Key::new(name), wanted);
                        if size > 0 {
                            // Whatever its name, a directory's marker has no content.
                            entry.kind = Kind::File;
                        }
                        self.entries.push(entry);
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
            Step::Close(name, text) if self.in_item => self.property(name, text, wanted),
            _ => {}
        }
    }

    fn property(&mut self, name: &str, text: &str, with_meta: bool) {
        match name {
            "Name" => self.name = Some(text.to_owned()),
            "Content-Length" => self.size = text.trim().parse().ok().and_then(web::believed),
            "Etag" => self.now.etag = crate::meta::bare(text),
            "Last-Modified" => self.now.changed = web::date(text),
            "Content-MD5" => text.trim().clone_into(&mut self.now.md5),
            "ResourceType" if text == "directory" => drop(self.now.meta.insert(FOLDER.into(), "true".into())),
            // A million blobs have a million of these, if metadata is requested.
            _ if !with_meta => {}
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

/// Parses a page. One that doesn't say whether it is the last proves nothing.
///
/// Errors: the problem with it.
fn parse(body: &[u8], prefix: &str, meta: bool) -> Result<Page, String> {
    let mut found = Parsed::default();
    xml::walk(body, |step| found.step(step, meta)).ok_or("the listing can't be read")?;
    if !found.is_list {
        return Err("the server's answer is no listing".into());
    }
    if std::str::from_utf8(body).is_ok_and(|text| text.contains("Encoded=\"true\"")) {
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
    // A directory's own marker, beside the common prefix of its contents.
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
    // A container can't be called this: it would lead elsewhere.
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
