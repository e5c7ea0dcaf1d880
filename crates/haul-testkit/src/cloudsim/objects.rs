//! S3's operations on buckets and keys. Uploads in parts are in `uploads`.

use super::{
    auth,
    body::{CRC, How, Received},
    checksum::{self, Sum},
    cloud::Cloud,
    listing,
    operation::{Op, Target, decoded},
    pattern,
    quirks::Quirk,
    report::now_ms,
    rules,
    serve::{Answer, Refusal},
    settings::{Keep, Settings},
    space::{self, Bucket, Kept, MADE, Piece, Stored, Tag, listed_from},
    uploads, xml,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as B64};
use haul_core::{Algo, Hasher};
use hyper::{
    HeaderMap, StatusCode,
    header::{
        ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
        IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED, RANGE,
    },
};
use std::{fmt::Write as _, ops::Range, sync::Arc};

/// What an operation comes to.
pub type Done = Result<Answer, Refusal>;

const NO_BUCKET: Refusal = Refusal::new(StatusCode::NOT_FOUND, "NoSuchBucket", "The specified bucket does not exist.");
const NO_KEY: Refusal = Refusal::new(StatusCode::NOT_FOUND, "NoSuchKey", "The specified key does not exist.");
const NOT_EMPTY: Refusal = Refusal::new(StatusCode::CONFLICT, "BucketNotEmpty", "The bucket is not empty.");
const OWNED: Refusal =
    Refusal::new(StatusCode::CONFLICT, "BucketAlreadyOwnedByYou", "The bucket is there already and is yours.");
const FAILED: Refusal =
    Refusal::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "A condition of the request did not hold.");
const UNCHANGED: Refusal = Refusal::new(StatusCode::NOT_MODIFIED, "NotModified", "Not modified.");
const RANGE_BEYOND: Refusal =
    Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", "The range is beyond the end of the content.");
const DIGEST: Refusal =
    Refusal::new(StatusCode::BAD_REQUEST, "BadDigest", "The Content-MD5 you specified did not match what we received.");
const NO_DIGEST: Refusal = Refusal::new(StatusCode::BAD_REQUEST, "InvalidDigest", "Content-MD5 is none.");
/// What isn't known here.
pub const NOT_IMPLEMENTED: Refusal = Refusal::new(
    StatusCode::NOT_IMPLEMENTED,
    "NotImplemented",
    "A header you provided implies functionality that is not implemented.",
);
const SELF_COPY: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidRequest",
    "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.",
);
const LARGE_COPY: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidRequest",
    "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120",
);
/// A request that can't be read.
pub const MALFORMED: Refusal = Refusal::new(StatusCode::BAD_REQUEST, "MalformedXML", "The document can't be read.");
/// A parameter or header that makes no sense.
pub const ARGUMENT: Refusal = Refusal::new(StatusCode::BAD_REQUEST, "InvalidArgument", "A parameter makes no sense.");

/// How the body of a request is received.
pub fn how(op: Op, headers: &HeaderMap, settings: &Settings) -> How {
    let content = matches!(op, Op::PutObject | Op::UploadPart);
    let hash = headers.get("x-amz-content-sha256").and_then(|v| v.to_str().ok()).unwrap_or_default();
    How {
        keep: if content { settings.keep } else { Keep::Bytes },
        algos: rules::hashes(op, headers, settings),
        signed: !settings.trusting && hash.starts_with(auth::SIGNED_CHUNKS),
    }
}

/// A request that is let through.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Where.
    pub cloud: &'a Cloud,
    /// How.
    pub settings: &'a Settings,
    /// What.
    pub op: Op,
    /// Of what.
    pub target: &'a Target,
    /// With what.
    pub headers: &'a HeaderMap,
    /// As it came.
    pub request: auth::Request<'a>,
}

impl Asked<'_> {
    /// Does it.
    ///
    /// Errors: what S3 would answer.
    pub fn perform(&self, received: Received) -> Done {
        rules::check(self, &received)?;
        match self.op {
            Op::ListBuckets => Ok(self.list_buckets()),
            Op::HeadBucket => {
                let region = &self.settings.region;
                self.bucket().map(|_| Answer::new(StatusCode::OK).with("x-amz-bucket-region", region))
            }
            Op::CreateBucket => self.create_bucket(&received),
            Op::DeleteBucket => self.delete_bucket(),
            Op::GetBucketLocation => self.bucket().map(|_| {
                // The oldest region has no name here.
                let region = if self.settings.region == OLDEST { "" } else { &self.settings.region };
                document(format!("<LocationConstraint {}>{region}</LocationConstraint>", xml::SPACE))
            }),
            Op::ListObjects | Op::ListObjectsV2 => {
                let text = listing::answer(self.op, &*self.bucket()?, self.target, self.settings, now_ms());
                text.map(|text| Answer::xml(StatusCode::OK, text)).ok_or(ARGUMENT)
            }
            Op::HeadObject | Op::GetObject => self.read(),
            Op::PutObject => self.put(received),
            Op::CopyObject => self.copy(),
            Op::DeleteObject => {
                self.bucket()?.change().remove(&self.target.key);
                Ok(Answer::new(StatusCode::NO_CONTENT))
            }
            Op::DeleteObjects => self.delete_many(&received),
            Op::CreateMultipartUpload => uploads::create(self),
            Op::UploadPart => uploads::part(self, received),
            Op::UploadPartCopy => uploads::part_copy(self),
            Op::ListParts => uploads::list_parts(self),
            Op::CompleteMultipartUpload => uploads::complete(self, &received),
            Op::AbortMultipartUpload => uploads::abort(self),
            Op::ListMultipartUploads => uploads::list(self),
            Op::ListObjectVersions => Err(NOT_IMPLEMENTED),
            Op::Other => self.aspect(),
        }
    }

    /// A header as text; empty if it isn't there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// The bucket.
    pub fn bucket(&self) -> Result<Arc<Bucket>, Refusal> {
        self.cloud.bucket(&self.target.bucket).ok_or(NO_BUCKET)
    }

    fn list_buckets(&self) -> Answer {
        let mut text = format!("<ListAllMyBucketsResult {}><Owner><ID>cloudsim</ID></Owner><Buckets>", xml::SPACE);
        for (name, created) in self.cloud.buckets() {
            text.push_str("<Bucket><Name>");
            xml::escape(&name, &mut text);
            // Writing to a String can't fail.
            let _ = write!(text, "</Name><CreationDate>{}</CreationDate></Bucket>", xml::iso(created));
        }
        text.push_str("</Buckets></ListAllMyBucketsResult>");
        document(text)
    }

    /// Makes a bucket in the region that the request names, or in this endpoint's.
    fn create_bucket(&self, received: &Received) -> Done {
        let (name, endpoint) = (&self.target.bucket, &self.settings.region);
        if name.is_empty() {
            return Err(ARGUMENT);
        }
        let body = received.bytes();
        let place = if body.is_empty() { None } else { xml::location(&body).ok_or(MALFORMED)? };
        let wrong = |code, message: String| Err(Refusal::bad(code, message));
        match place.as_deref() {
            Some(_) if self.has(Quirk::NoLocation) => {
                return wrong("InvalidLocationConstraint", "The specified location-constraint is not valid".into());
            }
            Some(OLDEST) => {
                return wrong("InvalidLocationConstraint", "The specified location-constraint is not valid".into());
            }
            Some(place) if endpoint != OLDEST && endpoint != "auto" && place != endpoint => {
                let message = format!(
                    "The {place} location constraint is incompatible for the region specific endpoint this request was sent to."
                );
                return wrong("IllegalLocationConstraintException", message);
            }
            None if endpoint != OLDEST && endpoint != "auto" => {
                let message = "The unspecified location constraint is incompatible for the region specific endpoint this request was sent to.";
                return wrong("IllegalLocationConstraintException", message.into());
            }
            _ => {}
        }
        if !self.cloud.create(name) {
            return Err(OWNED);
        }
        if let Some(place) = place.filter(|place| place != endpoint) {
            self.cloud
                .set(Some(name), &[("region".to_owned(), place)])
                .map_err(|why| Refusal::bad("InvalidRequest", why))?;
        }
        Ok(Answer::new(StatusCode::OK).with("location", format!("/{name}")))
    }

    fn delete_bucket(&self) -> Done {
        if !self.bucket()?.space().is_empty() {
            return Err(NOT_EMPTY);
        }
        self.cloud.drop_bucket(&self.target.bucket);
        Ok(Answer::new(StatusCode::NO_CONTENT))
    }

    /// What clients ask in passing: nobody has set any of it.
    fn aspect(&self) -> Done {
        self.bucket()?;
        match self.target.query.first().map(|(name, _)| &name[..]) {
            Some("versioning") => Ok(document(format!("<VersioningConfiguration {}/>", xml::SPACE))),
            Some("tagging") if !self.target.key.is_empty() => {
                Ok(document(format!("<Tagging {}><TagSet/></Tagging>", xml::SPACE)))
            }
            _ => Err(NOT_IMPLEMENTED),
        }
    }

    fn read(&self) -> Done {
        let stored = self.bucket()?.space().get(&self.target.key).ok_or(NO_KEY)?;
        let tag = stored.tag.text();
        if !matches(self.header(IF_MATCH.as_str()), &tag).unwrap_or(true) {
            return Err(FAILED);
        }
        if matches(self.header(IF_NONE_MATCH.as_str()), &tag).unwrap_or(false) {
            return Err(UNCHANGED);
        }
        let range = range(self.header(RANGE.as_str()), stored.size)?;
        let mut answer = Answer::new(if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK });
        answer.headers.reserve(16);
        facts(&stored, &mut answer.headers);
        let lost = stored.pieces.iter().any(|piece| matches!(piece, Piece::Lost { .. }));
        // Of a part of the content, or of content that isn't sent as it was, no checksum is told.
        let whole = range.is_none() && (self.op == Op::HeadObject || !lost);
        if whole && self.keeps_checksums() && self.header("x-amz-checksum-mode").eq_ignore_ascii_case("enabled") {
            sums(&stored, &mut answer.headers);
        }
        let (from, to) = range.as_ref().map_or((0, stored.size), |r| (r.start, r.end));
        if range.is_some() {
            answer = answer.with(CONTENT_RANGE.as_str(), format!("bytes {from}-{}/{}", to - 1, stored.size));
        }
        if self.op == Op::HeadObject {
            answer.headers.insert(CONTENT_LENGTH, HeaderValue::from(to - from));
        } else {
            answer.pieces =
                if range.is_some() { space::slice(&stored.pieces, from..to) } else { stored.pieces.clone() };
        }
        Ok(answer)
    }

    /// Checks `If-Match` and `If-None-Match` of a write against what is there.
    ///
    /// Errors: they don't hold.
    pub fn condition(&self, now: Option<&Stored>) -> Result<(), Refusal> {
        let tag = now.map(|stored| stored.tag.text());
        match (self.header(IF_MATCH.as_str()), &tag) {
            ("", _) => {}
            (_, None) => return Err(NO_KEY),
            (wanted, Some(tag)) => matches(wanted, tag).filter(|m| *m).map(|_| ()).ok_or(FAILED)?,
        }
        match tag {
            Some(tag) if matches(self.header(IF_NONE_MATCH.as_str()), &tag) == Some(true) => Err(FAILED),
            _ => Ok(()),
        }
    }

    /// Whether it is otherwise here than on AWS.
    pub fn has(&self, quirk: Quirk) -> bool {
        self.settings.quirks.has(quirk)
    }

    /// Whether checksums other than MD5 are known here.
    pub fn keeps_checksums(&self) -> bool {
        !self.has(Quirk::RefusesChecksums) && !self.has(Quirk::IgnoresChecksums)
    }

    /// The MD5 that came with a body.
    ///
    /// Errors: it is none, or that of something else.
    pub fn md5_sent(&self, received: &Received) -> Result<Option<[u8; 16]>, Refusal> {
        let sent = match self.header("content-md5") {
            "" => return Ok(None),
            text => B64.decode(text).ok().and_then(|md5| <[u8; 16]>::try_from(md5).ok()).ok_or(NO_DIGEST)?,
        };
        if received.md5().is_some_and(|md5| md5 != sent) { Err(DIGEST) } else { Ok(Some(sent)) }
    }

    /// Compares what came with the checksums that came with it; gives its ETag and what was sent besides an MD5.
    ///
    /// Errors: they differ.
    pub fn verified(&self, received: &Received) -> Result<(Tag, Option<Sum>), Refusal> {
        let sum = if self.keeps_checksums() { checksum::verified(self.headers, received)? } else { None };
        let md5 = self.md5_sent(received)?.or(received.md5());
        Ok((md5.map_or_else(|| Tag::cheap(received.crc, received.size, 1), Tag::md5), sum))
    }

    /// The metadata headers of a request.
    pub fn meta(&self) -> Kept {
        let kept = self.headers.iter().filter(|(name, _)| is_meta(name));
        kept.filter_map(|(name, value)| match name {
            // What the body was wrapped in is no property of the content.
            name if name == CONTENT_ENCODING => {
                let text = value.to_str().unwrap_or_default();
                let rest: Vec<_> =
                    text.split(',').map(str::trim).filter(|e| !e.is_empty() && *e != "aws-chunked").collect();
                (!rest.is_empty()).then(|| Some((name.clone(), rest.join(", ").parse().ok()?)))?
            }
            name => Some((name.clone(), value.clone())),
        })
        .collect()
    }

    fn put(&self, received: Received) -> Done {
        let bucket = self.bucket()?;
        let (tag, sum) = self.verified(&received)?;
        let now = now_ms();
        let stored = Stored {
            size: received.size,
            crc: Some(received.crc),
            tag,
            modified: now,
            listed: listed_from(self.settings, now),
            meta: self.meta(),
            sum: sum.filter(|sum| sum.algo != Algo::Crc64Nvme),
            pieces: received.pieces,
        };
        let mut answer = Answer::new(StatusCode::OK);
        if !self.has(Quirk::PutWithoutEtag) {
            answer = answer.with(ETAG.as_str(), quoted(&tag));
        }
        if self.keeps_checksums() {
            sums(&stored, &mut answer.headers);
        }
        self.store(&bucket, stored)?;
        Ok(answer)
    }

    /// Stores under the request's key if its conditions hold.
    ///
    /// Errors: they don't.
    pub fn store(&self, bucket: &Bucket, stored: Stored) -> Result<(), Refusal> {
        let key = &self.target.key;
        let mut space = bucket.change();
        if self.headers.contains_key(IF_MATCH) || self.headers.contains_key(IF_NONE_MATCH) {
            self.condition(space.get(key).as_deref())?;
        }
        space.put(key, stored);
        Ok(())
    }

    /// Bucket and key of what a copy is of.
    fn source_place(&self) -> Option<(String, Vec<u8>)> {
        let text = self.header("x-amz-copy-source").trim_start_matches('/');
        let text = text.split_once("?versionId=").map_or(text, |(path, _)| path);
        // A first slash may be encoded too.
        let path = decoded(text, false);
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        let at = path.iter().position(|b| *b == b'/')?;
        Some((String::from_utf8_lossy(&path[..at]).into_owned(), path[at + 1..].to_vec()))
    }

    /// What a copy is of.
    ///
    /// Errors: it isn't there, or no longer what was expected.
    pub fn source(&self) -> Result<Arc<Stored>, Refusal> {
        let (bucket, key) = self.source_place().ok_or(ARGUMENT)?;
        let bucket = self.cloud.bucket(&bucket).ok_or(NO_BUCKET)?;
        let stored = bucket.space().get(&key).ok_or(NO_KEY)?;
        let tag = stored.tag.text();
        let wanted = matches(self.header("x-amz-copy-source-if-match"), &tag).unwrap_or(true);
        let unwanted = matches(self.header("x-amz-copy-source-if-none-match"), &tag).unwrap_or(false);
        if wanted && !unwanted { Ok(stored) } else { Err(FAILED) }
    }

    fn copy(&self) -> Done {
        let bucket = self.bucket()?;
        let source = self.source()?;
        let now = now_ms();
        let replaces = self.header("x-amz-metadata-directive").eq_ignore_ascii_case("replace");
        let here = (self.target.bucket.clone(), self.target.key.clone());
        let same = self.source_place() == Some(here) && self.header("x-amz-storage-class").is_empty();
        if !replaces && same {
            return Err(SELF_COPY);
        }
        if source.size > rules::LARGEST {
            return Err(LARGE_COPY);
        }
        let meta = if replaces { self.meta() } else { source.meta.clone() };
        let listed = listed_from(self.settings, now);
        let stored = Stored { meta, modified: now, listed, ..(*source).clone() };
        let mut text = format!("<CopyObjectResult {}><LastModified>{}</LastModified>", xml::SPACE, xml::iso(now));
        if !self.has(Quirk::CopyWithoutEtag) {
            let _ = write!(text, "<ETag>&quot;{}&quot;</ETag>", stored.tag.text());
        }
        if let Some(sum) = stored.sum.as_ref().filter(|_| self.keeps_checksums()) {
            let _ = write!(text, "<Checksum{0}>{1}</Checksum{0}>", checksum::name(sum.algo), sum.value);
        } else if let Some(crc) = stored.crc.filter(|_| self.keeps_checksums()) {
            let _ = write!(text, "<ChecksumCRC64NVME>{}</ChecksumCRC64NVME>", base64(crc));
        }
        text.push_str("</CopyObjectResult>");
        self.store(&bucket, stored)?;
        Ok(document(text))
    }

    fn delete_many(&self, received: &Received) -> Done {
        let bucket = self.bucket()?;
        let (keys, quiet) = xml::deleted(&received.bytes()).ok_or(MALFORMED)?;
        if keys.len() > 1000 {
            return Err(MALFORMED);
        }
        let mut text = format!("<DeleteResult {}>", xml::SPACE);
        let mut space = bucket.change();
        for key in keys {
            space.remove(key.as_bytes());
            if !quiet {
                text.push_str("<Deleted><Key>");
                xml::escape(&key, &mut text);
                text.push_str("</Key></Deleted>");
            }
        }
        text.push_str("</DeleteResult>");
        Ok(document(text))
    }
}

/// A document with its first line.
pub fn document(text: String) -> Answer {
    Answer::xml(StatusCode::OK, xml::HEAD.to_owned() + &text)
}

/// An ETag as headers have it.
pub fn quoted(tag: &Tag) -> String {
    format!("\"{}\"", tag.text())
}

/// A CRC-64 as headers and documents have it.
pub fn base64(crc: u64) -> String {
    B64.encode(crc.to_be_bytes())
}

/// Whether a condition names this ETag; `None` when there is no condition.
fn matches(condition: &str, tag: &str) -> Option<bool> {
    if condition.is_empty() {
        return None;
    }
    Some(condition.split(',').map(|one| one.trim().trim_matches('"')).any(|one| one == "*" || one == tag))
}

fn is_meta(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-amz-meta-")
        || matches!(
            name,
            "content-type"
                | "content-encoding"
                | "content-disposition"
                | "content-language"
                | "cache-control"
                | "expires"
                | "x-amz-storage-class"
                | "x-amz-website-redirect-location"
        )
}

fn facts(stored: &Stored, headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("binary/octet-stream"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    for (name, value) in &stored.meta {
        // S3 doesn't tell the class that everything has.
        if name != "x-amz-storage-class" || value != "STANDARD" {
            headers.insert(name, value.clone());
        }
    }
    let date = if stored.modified == MADE { MADE_DATE.to_owned() } else { xml::http_date(stored.modified) };
    headers.extend(HeaderValue::try_from(quoted(&stored.tag)).map(|v| (ETAG, v)));
    headers.extend(HeaderValue::try_from(date).map(|v| (LAST_MODIFIED, v)));
}

/// The region that S3 had first: a bucket there is in none that has to be named.
const OLDEST: &str = "us-east-1";

/// [`MADE`] as headers have it.
const MADE_DATE: &str = "Tue, 02 Jan 2024 03:04:05 GMT";

fn sums(stored: &Stored, headers: &mut HeaderMap) {
    if let Some(sum) = &stored.sum {
        headers.extend(sum_header(sum));
        let kind = if sum.composite { "COMPOSITE" } else { "FULL_OBJECT" };
        headers.insert("x-amz-checksum-type", HeaderValue::from_static(kind));
    } else if let Some(value) = stored.crc.and_then(|crc| HeaderValue::try_from(base64(crc)).ok()) {
        headers.insert(CRC, value);
        headers.insert("x-amz-checksum-type", HeaderValue::from_static("FULL_OBJECT"));
    }
}

/// A checksum as headers have it.
pub fn sum_header(sum: &Sum) -> Option<(HeaderName, HeaderValue)> {
    let name = format!("x-amz-checksum-{}", checksum::name(sum.algo).to_lowercase());
    Some((name.parse().ok()?, sum.value.parse().ok()?))
}

/// A checksum of some pieces; `None` when their bytes aren't known.
pub fn sum_of(pieces: &[Piece], algo: Algo) -> Option<Sum> {
    let mut hasher = Hasher::new(&[algo]);
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => hasher.update(bytes),
            Piece::Pattern { seed, start, len } => hasher.update(&pattern::bytes(*seed, *start, *len)),
            Piece::Lost { .. } => return None,
        }
    }
    Some(Sum { algo, value: B64.encode(hasher.finish().get(algo)?), composite: false })
}

/// The range that a header asks for; `None` for all, also when the header makes no sense.
///
/// Errors: it begins beyond the end.
pub fn range(header: &str, size: u64) -> Result<Option<Range<u64>>, Refusal> {
    let Some((from, to)) = header.strip_prefix("bytes=").and_then(|r| r.split_once('-')) else { return Ok(None) };
    match (from.trim().parse::<u64>(), to.trim().parse::<u64>()) {
        (Ok(from), _) if from >= size => Err(RANGE_BEYOND),
        (Ok(from), Ok(to)) if to < from => Ok(None),
        (Ok(from), Ok(to)) => Ok(Some(from..size.min(to.saturating_add(1)))),
        (Ok(from), Err(_)) if to.trim().is_empty() => Ok(Some(from..size)),
        (Err(_), Ok(0)) => Err(RANGE_BEYOND),
        (Err(_), Ok(_)) if size == 0 => Err(RANGE_BEYOND),
        (Err(_), Ok(last)) if from.trim().is_empty() => Ok(Some(size.saturating_sub(last)..size)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (header, found) in [
            ("", Ok(None)),
            ("bytes=0-9", Ok(Some(0..10))),
            ("bytes=90-200", Ok(Some(90..100))),
            ("bytes=90-", Ok(Some(90..100))),
            ("bytes=-10", Ok(Some(90..100))),
            ("bytes=-200", Ok(Some(0..100))),
            ("bytes=100-", Err(RANGE_BEYOND)),
            ("bytes=9-3", Ok(None)),
            ("bytes=a-b", Ok(None)),
        ] {
            assert_eq!(range(header, 100), found, "{header}");
        }
        assert_eq!(range("bytes=0-0", 0), Err(RANGE_BEYOND));
    }

    #[test]
    fn conditions_name_an_etag_or_any() {
        assert_eq!(matches("", "x"), None);
        assert_eq!(matches("\"a\", \"x\"", "x"), Some(true));
        assert_eq!(matches("*", "x"), Some(true));
        assert_eq!(matches("\"a\"", "x"), Some(false));
    }

    #[test]
    fn the_date_of_what_is_made_up() {
        assert_eq!(MADE_DATE, xml::http_date(MADE));
    }
}
