//! Old versions of what a bucket holds (`--s3-versions`), or the bucket as it was at a time (`--s3-version-at`): a store around the
//! plain one, which lists, reads and deletes versions under rclone's names, `name-v2026-11-24-102030-123.ext`.
//!
//! A listing of versions is put in order by their new names, so it is held as a whole.

use super::{
    S3,
    address::ObjectAddress,
    delete::bypassing,
    error::{Fault, FaultResult},
    list, meta,
    options::VersionSelection,
    read,
    service::{Call, Service, at},
    xml::{self, Step},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream, stream::BoxStream};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, Meta, MissedRange, Mtime, Result, Version, key};
use haul_store::{
    Admin, Caps, CopyBatch, Lanes, ListRequest, Read, Resumable, Store, StoredFacts, Upload, Watch, WriteSpec,
};
use http::Method;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};

/// One version of a key, as listed.
#[derive(Clone, Debug, Default, PartialEq)]
struct ListedVersion {
    /// The bucket's key.
    object: Vec<u8>,
    id: String,
    latest: bool,
    marker: bool,
    changed: Option<Mtime>,
    etag: String,
    size: Option<u64>,
}

/// A page of a listing of versions.
#[derive(Debug, Default, PartialEq)]
struct Page {
    /// In the order in which they came: of one key the newest first.
    versions: Vec<ListedVersion>,
    /// With a delimiter: what stands for all below it.
    prefixes: Vec<Vec<u8>>,
    /// Key and version after which the next page begins.
    next: Option<(Vec<u8>, String)>,
}

/// The store.
#[derive(Debug)]
pub struct Versions {
    plain: S3,
    service: Arc<Service>,
    wanted: VersionSelection,
    caps: Caps,
    /// Versions that were listed, by the names that they have here.
    known: Arc<Mutex<BTreeMap<Key, NamedVersion>>>,
}

/// A version under its name here.
#[derive(Clone, Debug)]
struct NamedVersion {
    place: ObjectAddress,
    /// It is a marker of a deletion.
    marker: bool,
    entry: Entry,
}

impl NamedVersion {
    /// True for a version under the key's own name: the current one, or the one at the requested time.
    fn is_called(&self, key: &Key) -> bool {
        key::name(key.as_bytes()) == key::name(&self.place.object)
    }
}

impl Versions {
    /// The view of `plain` that `wanted` selects.
    pub fn new(plain: S3, wanted: VersionSelection) -> Versions {
        let service = plain.0.clone();
        // Server-side copies address an object by its key only. A listing here can't begin after a key at no cost.
        let caps = Caps { domain: None, page: None, ..service.caps.clone() };
        Versions { plain, service, wanted, caps, known: Arc::default() }
    }

    /// The version that a name here stands for; `None` for a missing one.
    async fn find(&self, key: &Key) -> Result<Option<NamedVersion>> {
        let known = self.known.lock().unwrap_or_else(|e| e.into_inner()).get(key).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let of_version = original(key.as_bytes()).filter(|_| self.wanted.at.is_none());
        let plain = of_version.map_or_else(|| key.as_bytes().to_vec(), |(name, _)| name);
        let place = self.service.place(&Key::new(&plain))?;
        let found = all(&self.service, &place.bucket, &place.object, Depth::One).await.map_err(at("stat", key))?;
        // Of the names that begin so, those of this key alone.
        let listed = found.0.into_iter().filter(|listed| listed.object == place.object).collect();
        let front = &key.as_bytes()[..key.as_bytes().len() - key::name(key.as_bytes()).len()];
        let cut = place.object.len() - key::name(&plain).len();
        let shown = shown(&self.service, listed, (&place.bucket, cut, front), self.wanted);
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        known.extend(shown);
        Ok(known.get(key).cloned())
    }

    fn missing(&self, op: &'static str, key: &Key) -> Error {
        Error::new(ErrorKind::NotFound, op, "no such version").with_key(key)
    }

    /// Is anything below a directory?
    async fn dir(&self, key: &Key) -> Result<Entry> {
        let mut steps = self.list(ListRequest { limit: Some(1), ..ListRequest::dir(key.as_bytes()) });
        while let Some(step) = steps.next().await {
            match step {
                Listed::Batch(entries) if entries.is_empty() => {}
                Listed::Batch(_) => return Ok(Entry::dir(key.clone())),
                Listed::Failed { error, .. } => return Err(error),
                Listed::Vanished(_) => {}
                Listed::End => break,
            }
        }
        match key.is_root() {
            true => self.plain.stat(key).await,
            false => Err(Error::new(ErrorKind::NotFound, "stat", "no such directory").with_key(key)),
        }
    }

    /// Deletes a version by its name here; a current one like any key.
    async fn delete_one(&self, key: Key, version: Option<Version>) -> Result<()> {
        if let Some(refused) = self.now("delete") {
            return refused.await;
        }
        let found = if key.is_dir() { None } else { self.find(&key).await? };
        let Some(found) = found.filter(|found| !found.is_called(&key) && found.place.version.is_some()) else {
            let answers = self.plain.delete(vec![(key, version)]).await;
            return answers.into_iter().next().unwrap_or(Ok(()));
        };
        let call = Call::object("DeleteObject", Method::DELETE, &found.place);
        match self.service.ask_for_nothing(bypassing(&self.service, call)).await {
            Err(fault) if fault.kind == ErrorKind::NotFound => Ok(()),
            other => other.map_err(at("delete", &key)),
        }
    }

    /// Writing is of now, not of a time that is over.
    fn now<T: Send + 'static>(&self, op: &'static str) -> Option<BoxFuture<'static, Result<T>>> {
        self.wanted.at.map(|_| {
            let message = "what was can't be changed: leave out --s3-version-at";
            async move { Err(Error::new(ErrorKind::Unsupported, op, message)) }.boxed()
        })
    }
}

/// How much is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// All that begins with a prefix.
    All,
    /// Down to the next `/`.
    Dir,
    /// The key that is the prefix, which comes before all that begin with it.
    One,
}

/// Versions of all keys with a prefix, and the common prefixes further down.
async fn all(
    service: &Service,
    bucket: &str,
    prefix: &[u8],
    depth: Depth,
) -> FaultResult<(Vec<ListedVersion>, Vec<Vec<u8>>)> {
    let (mut versions, mut prefixes) = (Vec::new(), Vec::new());
    let mut next: Option<(Vec<u8>, String)> = None;
    loop {
        let most = service.config.list_chunk.to_string();
        let mut call = Call::bucket("ListObjectVersions", Method::GET, bucket);
        call = call.query("versions", "").query("max-keys", most).query("encoding-type", "url");
        call = call.raw_query("prefix", prefix);
        if depth == Depth::Dir {
            call = call.query("delimiter", "/");
        }
        if let Some((key, id)) = &next {
            call = call.raw_query("key-marker", key);
            if !id.is_empty() {
                call = call.query("version-id-marker", id);
            }
        }
        let (_, body) = service.ask(call).await?;
        let page = parse(&body).map_err(Fault::broken)?;
        let passed = depth == Depth::One && page.versions.last().is_some_and(|listed| listed.object != prefix);
        versions.extend(page.versions);
        prefixes.extend(page.prefixes);
        if page.next.is_none() || passed {
            return Ok((versions, prefixes));
        }
        if page.next == next {
            return Err(Fault::broken("the listing of versions does not advance"));
        }
        next = page.next;
    }
}

/// Reads a page. One that doesn't say whether it is the last proves nothing.
fn parse(body: &[u8]) -> Result<Page, String> {
    const UNREADABLE: &str = "the listing of versions can't be read";
    let mut page = Page::default();
    let (mut is_listing, mut encoded, mut truncated, mut bad) = (false, false, None, false);
    let (mut next_key, mut next_id, mut in_prefixes) = (None, String::new(), false);
    let mut current: Option<ListedVersion> = None;
    xml::walk(body, |step| match step {
        Step::Open("ListVersionsResult") => is_listing = true,
        Step::Open(kind @ ("Version" | "DeleteMarker")) => {
            current = Some(ListedVersion { marker: kind == "DeleteMarker", ..ListedVersion::default() });
        }
        Step::Open("CommonPrefixes") => in_prefixes = true,
        Step::Close("CommonPrefixes", _) => in_prefixes = false,
        Step::Close("Version" | "DeleteMarker", _) => match current.take() {
            Some(listed) if !listed.object.is_empty() && (listed.marker || listed.size.is_some()) => {
                page.versions.push(listed)
            }
            _ => bad = true,
        },
        Step::Close("Prefix", text) if in_prefixes => page.prefixes.push(text.as_bytes().to_vec()),
        Step::Close("IsTruncated", text) => match text.trim() {
            "true" => truncated = Some(true),
            "false" => truncated = Some(false),
            _ => bad = true,
        },
        Step::Close("EncodingType", text) => encoded = text.trim() == "url",
        Step::Close("NextKeyMarker", text) => next_key = Some(text.as_bytes().to_vec()).filter(|key| !key.is_empty()),
        Step::Close("NextVersionIdMarker", text) => next_id = text.to_owned(),
        Step::Close(name, text) => {
            let Some(listed) = &mut current else { return };
            match name {
                "Key" => listed.object = text.as_bytes().to_vec(),
                "VersionId" => listed.id = text.to_owned(),
                "IsLatest" => listed.latest = text.trim() == "true",
                "LastModified" => listed.changed = meta::iso_date(text),
                "ETag" => listed.etag = text.to_owned(),
                "Size" => listed.size = text.trim().parse().ok(),
                _ => {}
            }
        }
        Step::Open(_) => {}
    })
    .ok_or(UNREADABLE)?;
    if !is_listing || bad {
        return Err(UNREADABLE.into());
    }
    let decode = |text: &mut Vec<u8>| {
        if encoded {
            *text = list::form_decode(text);
        }
    };
    page.versions.iter_mut().for_each(|listed| decode(&mut listed.object));
    page.prefixes.iter_mut().for_each(decode);
    page.next = match (truncated, next_key) {
        (None, _) => return Err("the listing of versions doesn't say whether it is complete (no IsTruncated)".into()),
        (Some(false), _) => None,
        (Some(true), None) => return Err("the listing of versions doesn't say where it continues".into()),
        (Some(true), Some(mut key)) => {
            decode(&mut key);
            Some((key, next_id))
        }
    };
    Ok(page)
}

/// The names here of versions of keys that lose `cut` bytes at their front and get others.
fn shown(
    service: &Service,
    versions: Vec<ListedVersion>,
    (bucket, cut, front): (&str, usize, &[u8]),
    wanted: VersionSelection,
) -> BTreeMap<Key, NamedVersion> {
    let mut found = BTreeMap::new();
    for of_key in by_key(versions) {
        for listed in chosen(of_key, wanted) {
            let name = [front, listed.object.get(cut..).unwrap_or_default()].concat();
            let plain = wanted.at.is_some() || (listed.latest && !listed.marker);
            let size = listed.size.unwrap_or_default();
            if listed.object.ends_with(b"/")
                && size > 0
                && haul_store::pages::leaves_out(&Entry::file(Key::new(&name), size))
            {
                continue;
            }
            if !plain && listed.object.ends_with(b"/") {
                // A directory's marker has no content of which there could be another.
                continue;
            }
            let name = if plain { name } else { with_time(&name, listed.changed) };
            let key = Key::new(&name);
            let mut entry = Entry::file(key.clone(), listed.size.unwrap_or_default());
            entry.changed = listed.changed;
            if !listed.marker {
                entry.version = Some(meta::version(&listed.etag));
                if service.config.etag_is_md5()
                    && let Some(md5) = meta::etag_md5(&listed.etag)
                {
                    entry.hashes.set(Algo::Md5, md5);
                }
            }
            if key.is_dir() {
                entry = Entry::dir(key.clone());
            }
            // An id of `null` is of before versions were kept; a server that names none has only what there is now.
            let version = Some(listed.id.clone()).filter(|id| !id.is_empty());
            let place = ObjectAddress { bucket: bucket.to_owned(), object: listed.object.clone(), version };
            // Of two of one millisecond the newer is shown.
            found.entry(key).or_insert(NamedVersion { place, marker: listed.marker, entry });
        }
    }
    found
}

/// Which of a key's versions are shown.
fn chosen(mut of_key: Vec<ListedVersion>, wanted: VersionSelection) -> Vec<ListedVersion> {
    // Servers list versions and markers together or separately; of equal times the latest one comes first.
    of_key.sort_by_key(|listed| std::cmp::Reverse((listed.latest, listed.changed)));
    match wanted.at {
        Some(at) => {
            let then = of_key.into_iter().find(|listed| listed.changed.is_some_and(|changed| changed <= at));
            then.filter(|listed| !listed.marker || wanted.deleted).into_iter().collect()
        }
        None => of_key.into_iter().filter(|listed| !listed.marker || wanted.deleted).collect(),
    }
}

/// Where a name's extension begins; a name of an extension alone has none.
fn extension(name: &[u8]) -> usize {
    let begin = name.len() - key::name(name).len();
    let dot = name[begin..].iter().rposition(|b| *b == b'.').map(|at| begin + at);
    dot.filter(|at| *at > begin).unwrap_or(name.len())
}

/// The format of times in names, but for the milliseconds.
const TIME: &str = "-v%Y-%m-%d-%H%M%S";
/// Bytes of a time in a name.
const TIME_LEN: usize = "-v2006-01-02-150405-000".len();

/// A name with a version's time in front of its extension.
fn with_time(name: &[u8], time: Option<Mtime>) -> Vec<u8> {
    let time = time.and_then(|time| Timestamp::from_nanosecond(time.0).ok()).unwrap_or_default();
    let millis = time.as_millisecond().rem_euclid(1000);
    let (stem, extension) = name.split_at(extension(name));
    [stem, format!("{}-{millis:03}", time.strftime(TIME)).as_bytes(), extension].concat()
}

/// The name and the time that a version's name is made of; `None` for any other name.
fn original(name: &[u8]) -> Option<(Vec<u8>, Mtime)> {
    let (stem, extension) = name.split_at(extension(name));
    let (stem, time) = stem.split_at(stem.len().checked_sub(TIME_LEN)?);
    let (seconds, millis) = std::str::from_utf8(time).ok()?.rsplit_once('-')?;
    let millis: u32 = Some(millis).filter(|millis| millis.len() == 3)?.parse().ok()?;
    let at = DateTime::strptime(TIME, seconds).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(([stem, extension].concat(), Mtime::new(at.as_second(), millis * 1_000_000)))
}

/// The versions of each key.
fn by_key(versions: Vec<ListedVersion>) -> impl Iterator<Item = Vec<ListedVersion>> {
    let mut keys: BTreeMap<Vec<u8>, Vec<ListedVersion>> = BTreeMap::new();
    versions.into_iter().for_each(|listed| keys.entry(listed.object.clone()).or_default().push(listed));
    keys.into_values()
}

/// The part of a prefix that the service knows: what it has under a name is shown under names with `-v` and a time in them.
fn before_version(prefix: &[u8]) -> &[u8] {
    let name = prefix.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let at = prefix[name..].windows(2).position(|two| two == b"-v");
    at.map_or(prefix, |at| &prefix[..name + at])
}

/// Lists as [`Store::list`] says; what it finds is known then.
async fn listing(
    service: Arc<Service>,
    known: Arc<Mutex<BTreeMap<Key, NamedVersion>>>,
    wanted: VersionSelection,
    request: ListRequest,
) -> Vec<Listed> {
    let failed = |error: Error| {
        let to = key::after_prefix(&request.prefix).map(Key::new);
        vec![Listed::Failed { lost: MissedRange { from: Key::new(&request.prefix), to }, error }]
    };
    let root = &service.root;
    let (bucket, prefix, cut, front) = match (&root.bucket, request.prefix.iter().position(|b| *b == b'/')) {
        (Some(bucket), _) => {
            (bucket.clone(), [&root.prefix[..], &request.prefix].concat(), root.prefix.len(), Vec::new())
        }
        (None, Some(at)) => {
            let bucket = String::from_utf8_lossy(&request.prefix[..at]).into_owned();
            (bucket, request.prefix[at + 1..].to_vec(), 0, request.prefix[..=at].to_vec())
        }
        (None, None) => {
            let message = "versions are listed of one bucket at a time: name it";
            return failed(Error::new(ErrorKind::Unsupported, "list", message));
        }
    };
    let depth = if request.recursive { Depth::All } else { Depth::Dir };
    let (versions, prefixes) = match all(&service, &bucket, before_version(&prefix), depth).await {
        Ok(found) => found,
        Err(fault) => return failed(fault.error("list")),
    };
    if versions.is_empty() && prefixes.is_empty() && request.prefix.is_empty() && !root.prefix.is_empty() {
        return failed(haul_store::pages::no_root(&service.locator, "list"));
    }
    let found = shown(&service, versions, (&bucket, cut, &front), wanted);
    let dirs = prefixes.iter().map(|prefix| [&front[..], prefix.get(cut..).unwrap_or_default()].concat());
    let mut entries: Vec<Entry> = found.values().map(|found| found.entry.clone()).collect();
    entries.extend(dirs.map(|dir| Entry::dir(Key::new(dir))));
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    entries.dedup_by(|a, b| a.key == b.key);
    // A listed directory has no entry of its own in the listing.
    entries.retain(|entry| {
        let key = entry.key.as_bytes();
        let itself = key == request.prefix && key.ends_with(b"/");
        key.starts_with(&request.prefix) && !itself && request.after.as_ref().is_none_or(|after| entry.key > *after)
    });
    known.lock().unwrap_or_else(|e| e.into_inner()).extend(found);
    vec![Listed::Batch(entries), Listed::End]
}

impl Store for Versions {
    fn locator(&self) -> &str {
        self.plain.locator()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        // The buckets themselves have no versions.
        if self.service.root.bucket.is_none() && !request.recursive && !request.prefix.contains(&b'/') {
            return self.plain.list(request);
        }
        let steps = listing(self.service.clone(), self.known.clone(), self.wanted, request);
        stream::once(steps).flat_map(stream::iter).boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        async move {
            if key.is_root() || key.is_dir() {
                return self.dir(&key).await;
            }
            let found = self.find(&key).await?.ok_or_else(|| self.missing("stat", &key))?;
            if found.marker {
                return Ok(found.entry);
            }
            // Somebody may have written since it was listed.
            if self.wanted.at.is_none() && found.is_called(&key) {
                return self.plain.stat(&key).await;
            }
            let headers = read::head(&self.service, &key, &found.place, None).await?;
            Ok(meta::entry(&self.service.config, &key, &headers, read::size(&headers, &key)?))
        }
        .boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        async move {
            let found = self.find(&key).await?.ok_or_else(|| self.missing("read", &key))?;
            if found.marker {
                let message = "this marks a deletion: it has no content";
                return Err(Error::new(ErrorKind::Unsupported, "read", message).with_key(&key));
            }
            read::read_at(&self.service, &key, &found.place, want.as_ref(), range).await
        }
        .boxed()
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.now("write").unwrap_or_else(|| self.plain.write(key, spec))
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.now("mkdir").unwrap_or_else(|| self.plain.make_dir(key, spec))
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        self.plain.copy(batch, watch)
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        async move {
            match self.find(&key).await? {
                Some(found) if self.wanted.at.is_none() && found.is_called(&key) => {
                    self.plain.set_meta(&key, mtime, meta.as_ref()).await
                }
                _ => {
                    let message = "an old version can't be changed";
                    Err(Error::new(ErrorKind::Unsupported, "set_meta", message).with_key(&key))
                }
            }
        }
        .boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        async move {
            let mut answers = Vec::with_capacity(keys.len());
            for (key, version) in keys {
                answers.push(self.delete_one(key, version).await);
            }
            answers
        }
        .boxed()
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.plain.lanes()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.plain.resumable()
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.plain.admin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_rclones() {
        let time = Mtime::new(1_467_641_403, 7_000_000);
        for (name, with) in [
            ("one.txt", "one-v2016-07-04-141003-007.txt"),
            ("d.x/one", "d.x/one-v2016-07-04-141003-007"),
            ("a.tar.gz", "a.tar-v2016-07-04-141003-007.gz"),
            (".profile", ".profile-v2016-07-04-141003-007"),
        ] {
            assert_eq!(String::from_utf8(with_time(name.as_bytes(), Some(time))).unwrap(), with);
            assert_eq!(original(with.as_bytes()), Some((name.as_bytes().to_vec(), time)), "{with}");
        }
        for other in ["one.txt", "one-v2016-07-04-141003.txt", "one-v2016-17-04-141003-007.txt", "-v1", ""] {
            assert_eq!(original(other.as_bytes()), None, "{other}");
        }
    }

    fn listed_version(id: &str, at: i64, latest: bool, marker: bool) -> ListedVersion {
        ListedVersion {
            object: b"k".into(),
            id: id.into(),
            latest,
            marker,
            changed: Some(Mtime::new(at, 0)),
            ..ListedVersion::default()
        }
    }

    #[test]
    fn each_key_has_at_most_one_version_at_a_time() {
        let all = || {
            vec![
                listed_version("d", 40, true, true),
                listed_version("c", 30, false, false),
                listed_version("b", 20, false, true),
                listed_version("a", 10, false, false),
            ]
        };
        let ids = |at: Option<i64>, deleted| {
            let wanted = VersionSelection { at: at.map(|at| Mtime::new(at, 0)), deleted };
            chosen(all(), wanted).into_iter().map(|listed| listed.id).collect::<String>()
        };
        assert_eq!(ids(None, false), "ca");
        assert_eq!(ids(None, true), "dcba");
        for (at, id, with_markers) in [(5, "", ""), (10, "a", "a"), (25, "", "b"), (39, "c", "c"), (99, "", "d")] {
            assert_eq!((ids(Some(at), false).as_str(), ids(Some(at), true).as_str()), (id, with_markers), "{at}");
        }
    }

    #[test]
    fn a_page_that_may_be_cut_is_refused() {
        let page = |inner: &str| parse(format!("<ListVersionsResult>{inner}</ListVersionsResult>").as_bytes());
        let version = "<Version><Key>a%2Bb</Key><VersionId>1</VersionId><Size>3</Size></Version>";
        let whole =
            page(&format!("<EncodingType>url</EncodingType>{version}<IsTruncated>false</IsTruncated>")).unwrap();
        assert_eq!((whole.versions[0].object.as_slice(), whole.next), (&b"a+b"[..], None));
        let more = "<NextKeyMarker>k</NextKeyMarker><NextVersionIdMarker>7</NextVersionIdMarker>";
        let more = page(&format!("{version}<IsTruncated>true</IsTruncated>{more}")).unwrap();
        assert_eq!(more.next, Some((b"k".to_vec(), "7".into())));
        for bad in [version, "<IsTruncated>true</IsTruncated>", "<Version></Version><IsTruncated>false</IsTruncated>"] {
            assert!(page(bad).is_err(), "{bad}");
        }
    }
}
