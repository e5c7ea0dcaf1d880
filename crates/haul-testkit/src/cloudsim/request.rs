//! A request that is let through, and what operations read of it: bucket, conditions, checksums, metadata, ranges.

use super::{
    answer::{ARGUMENT, Answer, Refusal},
    auth,
    body::Received,
    checksum,
    cloud::Cloud,
    etag::Tag,
    operation::{Op, Target, decoded},
    quirks::Quirk,
    settings::Settings,
    space::{Bucket, KeptHeaders, Stored},
    sum::Sum,
    xml,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as B64};
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, HeaderName, IF_MATCH, IF_NONE_MATCH},
};
use std::{ops::Range, sync::Arc};

const NO_BUCKET: Refusal = Refusal::new(StatusCode::NOT_FOUND, "NoSuchBucket", "The specified bucket does not exist.");
/// The key isn't there.
pub const NO_KEY: Refusal = Refusal::new(StatusCode::NOT_FOUND, "NoSuchKey", "The specified key does not exist.");
/// A condition doesn't hold.
pub const FAILED: Refusal =
    Refusal::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "A condition of the request did not hold.");
const RANGE_BEYOND: Refusal =
    Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", "The range is beyond the end of the content.");
const DIGEST: Refusal =
    Refusal::new(StatusCode::BAD_REQUEST, "BadDigest", "The Content-MD5 you specified did not match what we received.");
const NO_DIGEST: Refusal = Refusal::new(StatusCode::BAD_REQUEST, "InvalidDigest", "Content-MD5 is none.");

/// A request that is let through.
#[derive(Debug)]
pub struct AdmittedRequest<'a> {
    /// The simulated cloud.
    pub cloud: &'a Cloud,
    /// Settings in force.
    pub settings: &'a Settings,
    /// The operation.
    pub op: Op,
    /// Bucket and key.
    pub target: &'a Target,
    /// Headers.
    pub headers: &'a HeaderMap,
    /// The request as received.
    pub request: auth::Request<'a>,
}

impl AdmittedRequest<'_> {
    /// A header as text; empty if it isn't there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// The bucket.
    pub fn bucket(&self) -> Result<Arc<Bucket>, Refusal> {
        self.cloud.bucket(&self.target.bucket).ok_or(NO_BUCKET)
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
    pub fn meta(&self) -> KeptHeaders {
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
    pub fn source_place(&self) -> Option<(String, Vec<u8>)> {
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
pub fn matches(condition: &str, tag: &str) -> Option<bool> {
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
}
