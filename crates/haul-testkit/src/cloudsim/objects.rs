//! S3's operations on buckets and keys. Uploads in parts are in `uploads`.

use super::{
    answer::{ARGUMENT, Answer, MALFORMED, NOT_IMPLEMENTED, OperationResult, Refusal},
    auth,
    body::{CRC, ReceiveOptions, Received},
    checksum::{self, sum_header},
    listing::{self, listed_from},
    operation::Op,
    quirks::Quirk,
    report::now_ms,
    request::{AdmittedRequest, FAILED, NO_KEY, base64, document, matches, quoted, range},
    rules,
    settings::{Keep, Settings},
    space::{self, MADE, Piece, Stored},
    uploads, xml,
};
use haul_core::Algo;
use hyper::{
    HeaderMap, StatusCode,
    header::{
        ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH,
        LAST_MODIFIED, RANGE,
    },
};
use std::fmt::Write as _;

const NOT_EMPTY: Refusal = Refusal::new(StatusCode::CONFLICT, "BucketNotEmpty", "The bucket is not empty.");
const OWNED: Refusal =
    Refusal::new(StatusCode::CONFLICT, "BucketAlreadyOwnedByYou", "The bucket is there already and is yours.");
const UNCHANGED: Refusal = Refusal::new(StatusCode::NOT_MODIFIED, "NotModified", "Not modified.");
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
/// How the body of a request is received.
pub fn how(op: Op, headers: &HeaderMap, settings: &Settings) -> ReceiveOptions {
    let content = matches!(op, Op::PutObject | Op::UploadPart);
    let hash = headers.get("x-amz-content-sha256").and_then(|v| v.to_str().ok()).unwrap_or_default();
    ReceiveOptions {
        keep: if content { settings.keep } else { Keep::Bytes },
        algos: rules::hashes(op, headers, settings),
        signed: !settings.trusting && hash.starts_with(auth::SIGNED_CHUNKS),
    }
}

impl AdmittedRequest<'_> {
    /// Does it.
    ///
    /// Errors: what S3 would answer.
    pub fn perform(&self, received: Received) -> OperationResult {
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
    fn create_bucket(&self, received: &Received) -> OperationResult {
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

    fn delete_bucket(&self) -> OperationResult {
        if !self.bucket()?.space().is_empty() && !self.settings.quirks.has(Quirk::DeletesFullBuckets) {
            return Err(NOT_EMPTY);
        }
        self.cloud.drop_bucket(&self.target.bucket);
        Ok(Answer::new(StatusCode::NO_CONTENT))
    }

    /// Settings that clients query in passing. None of them is ever set.
    fn aspect(&self) -> OperationResult {
        self.bucket()?;
        match self.target.query.first().map(|(name, _)| &name[..]) {
            Some("versioning") => Ok(document(format!("<VersioningConfiguration {}/>", xml::SPACE))),
            Some("tagging") if !self.target.key.is_empty() => {
                Ok(document(format!("<Tagging {}><TagSet/></Tagging>", xml::SPACE)))
            }
            _ => Err(NOT_IMPLEMENTED),
        }
    }

    fn read(&self) -> OperationResult {
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
        // No checksum is reported for a range, or for content that isn't sent as it was stored.
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

    fn put(&self, received: Received) -> OperationResult {
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

    fn copy(&self) -> OperationResult {
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

    fn delete_many(&self, received: &Received) -> OperationResult {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_what_is_made_up() {
        assert_eq!(MADE_DATE, xml::http_date(MADE));
    }
}
