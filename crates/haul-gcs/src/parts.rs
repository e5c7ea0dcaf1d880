//! Uploads whose parts go at once and in any order, by the XML interface
//! (<https://cloud.google.com/storage/docs/multipart-uploads>). Each part is checked by its CRC-32C, and so is the whole by what those come
//! to. This interface takes no conditions.

use crate::{
    meta::{self, Object},
    read,
    service::{ObjectAddress, Service, encoded},
};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use haul_core::{Algo, Error, ErrorKind, Hashes, Key, Mtime, Result, Retry, Version, hash};
use haul_net::{Fault, FaultResult, Reply};
use haul_oauth::{Call, ServiceResult};
use haul_store::{
    Direction, Part, Payload, WriteSpec,
    xml::{self, Step},
};
use http::{HeaderName, Method};
use std::fmt::Write as _;

/// Bytes that all parts but the last have at least …
pub const LEAST: u64 = 5 << 20;
/// … and at most.
pub const MOST: u64 = 5 << 30;
/// Parts of one upload.
pub const COUNT: u64 = 10_000;

fn call(service: &Service, kind: &'static str, method: Method, place: &ObjectAddress, query: &str) -> Call {
    let ObjectAddress { bucket, object } = place;
    let object = if object.is_empty() { String::new() } else { format!("/{}", encoded(object)) };
    let url = format!("{}/{}{object}?{query}", service.config.endpoint, encoded(bucket));
    let call = Call::new(kind, method, url);
    match &*service.config.user_project {
        "" => call,
        project => call.header(HeaderName::from_static("x-goog-user-project"), project),
    }
}

/// An object's properties and metadata, as headers of the request that begins its upload; `None` where headers can't represent them.
pub fn headers(service: &Service, place: &ObjectAddress, spec: &WriteSpec) -> Option<Vec<(HeaderName, String)>> {
    let resource = meta::resource(&place.object, spec.mtime, spec.meta.as_deref());
    let mut headers = Vec::new();
    for (ours, theirs) in meta::SYSTEM {
        if let Some(value) = resource.get(theirs).and_then(|value| value.as_str()) {
            headers.push((HeaderName::from_static(ours), value.to_owned()));
        }
    }
    for (name, value) in resource.get("metadata").and_then(|user| user.as_object()).into_iter().flatten() {
        let header = HeaderName::from_bytes(format!("x-goog-meta-{name}").as_bytes()).ok();
        // A header's name has no capitals.
        let header = header.filter(|header| header.as_str().ends_with(name.as_str()))?;
        headers.push((header, value.as_str()?.to_owned()));
    }
    let class = meta::class(spec.meta.as_deref()).unwrap_or(&service.config.storage_class);
    for (name, value) in [("x-goog-storage-class", class.clone()), ("x-goog-acl", dashed(&service.config.object_acl))] {
        if !value.is_empty() {
            headers.push((HeaderName::from_static(name), value));
        }
    }
    let is_plain = |value: &str| value.bytes().all(|b| (b' '..0x7f).contains(&b)) && value.trim() == value;
    headers.iter().all(|(_, value)| is_plain(value)).then_some(headers)
}

/// `publicRead` as this interface has it: `public-read`.
fn dashed(acl: &str) -> String {
    let mut words = String::new();
    for c in acl.chars() {
        match c.is_ascii_uppercase() {
            true => words.extend(['-', c.to_ascii_lowercase()]),
            false => words.push(c),
        }
    }
    words
}

/// Begins an upload; gives its id.
pub async fn begin(
    service: &Service,
    place: &ObjectAddress,
    headers: Vec<(HeaderName, String)>,
) -> ServiceResult<String> {
    let mut call = call(service, "CreateMultipartUpload", Method::POST, place, "uploads");
    for (name, value) in headers {
        call = call.header(name, value);
    }
    let body = service.in_bucket(&place.bucket, || service.api.ask(&call)).await?;
    let id = xml::text_of(&body, "UploadId").map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
    id.ok_or_else(|| Fault::broken("the service gave no id for the upload").into())
}

/// Sends a part.
pub async fn put(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    id: &str,
    index: u64,
    payload: Payload,
) -> Result<Part> {
    let lane = service.api.lanes.lane(Direction::Up);
    let ours = payload.hash_at(&[Algo::Crc32c], &|| lane.is_full()).await.map_err(|e| e.with_key(key))?;
    let crc = B64.encode(ours.get(Algo::Crc32c).unwrap_or_default());
    let query = format!("partNumber={}&uploadId={}", index + 1, encoded(id));
    let size = payload.len();
    let call = call(service, "UploadPart", Method::PUT, place, &query)
        .body(Direction::Up, "application/octet-stream", payload)
        .header(HeaderName::from_static("x-goog-hash"), format!("crc32c={crc}"));
    let reply = service.api.send(&call).await.map_err(|refused| refused.at("write", key))?;
    let etag = receipt(&reply, &ours).map_err(|fault| fault.at("write", key))?;
    // The rest of the answer carries nothing.
    let _ = reply.bytes().await;
    Ok(Part { index, size, tag: format!("{crc} {etag}").into_bytes() })
}

/// The ETag of an answer to a part, whose hashes must match ours.
fn receipt(reply: &Reply, ours: &Hashes) -> FaultResult<String> {
    match read::hashes_of(&reply.headers).agree(ours) {
        Some((_, true)) => {}
        Some((algo, false)) => {
            let message = format!("the service has other bytes than were sent ({algo} differs)");
            return Err(Fault::new(ErrorKind::Corrupt, Retry::Backoff, message));
        }
        None => return Err(Fault::broken("the service doesn't say what it has received (x-goog-hash)")),
    }
    let etag = reply.headers.get(http::header::ETAG).and_then(|etag| etag.to_str().ok());
    let etag = etag.map(|etag| etag.trim().trim_matches('"')).filter(|etag| !etag.is_empty());
    etag.map(str::to_owned).ok_or_else(|| Fault::broken("the service gave no receipt (an ETag) for a part"))
}

/// CRC-32C and ETag of a part; `None` when it isn't a receipt of ours.
fn read_tag(part: &Part) -> Option<([u8; 4], &str)> {
    let (crc, etag) = std::str::from_utf8(&part.tag).ok()?.split_once(' ')?;
    let crc = B64.decode(crc).ok()?.try_into().ok()?;
    (!etag.is_empty()).then_some((crc, etag))
}

/// The CRC-32C of the whole that these parts make; `None` when one of them has no receipt.
pub fn whole(parts: &[Part]) -> Option<Hashes> {
    let crcs: Vec<[u8; 4]> = parts.iter().map(|part| Some(read_tag(part)?.0)).collect::<Option<_>>()?;
    let pieces = crcs.iter().zip(parts).map(|(crc, part)| (Some(&crc[..]), part.size));
    Some(Hashes::default().with(Algo::Crc32c, hash::combine(Algo::Crc32c, pieces)?))
}

/// Makes an object of these parts, in their order; gives its version where the answer names it.
pub async fn complete(
    service: &Service,
    place: &ObjectAddress,
    id: &str,
    parts: &[Part],
) -> ServiceResult<Option<Version>> {
    let mut list = String::from("<CompleteMultipartUpload>");
    for part in parts {
        let etag = read_tag(part).map_or("", |(_, etag)| etag);
        let (number, etag) = (part.index + 1, xml::escape(etag));
        let _ = write!(list, "<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag></Part>");
    }
    list.push_str("</CompleteMultipartUpload>");
    let query = format!("uploadId={}", encoded(id));
    let call = call(service, "CompleteMultipartUpload", Method::POST, place, &query);
    let reply = service.api.send(&call.body(Direction::Meta, "application/xml", Bytes::from(list).into())).await?;
    let generation = reply.headers.get("x-goog-generation").and_then(|value| value.to_str().ok()).map(Version::new);
    let body = reply.bytes().await?;
    // It may take minutes, and an error meanwhile follows the status.
    match root(&body).as_deref() {
        Some("CompleteMultipartUploadResult") => Ok(generation),
        _ => Err(Fault::broken("the service doesn't say that it has put the upload together").into()),
    }
}

fn root(body: &[u8]) -> Option<String> {
    let mut root = None;
    xml::walk(body, |step| {
        if let (Step::Open(name), None) = (step, &root) {
            root = Some(name.to_owned());
        }
    })?;
    root
}

/// The object that an upload of these parts made, if it did.
pub async fn landed(service: &Service, key: &Key, place: &ObjectAddress, parts: &[Part]) -> Option<Object> {
    let object = read::facts(service, key, place, None).await.ok()?;
    let size: u64 = parts.iter().map(|part| part.size).sum();
    let same = object.hashes().agree(&whole(parts)?) == Some((Algo::Crc32c, true));
    (same && object.told_size() == Some(size)).then_some(object)
}

/// The parts sent by an earlier run that the upload has.
///
/// Errors: `NotFound` when the upload no longer exists; `Corrupt` when the service's answer can't be read.
pub async fn there(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    id: &str,
    sent: Vec<Part>,
) -> Result<Vec<Part>> {
    const OP: &str = "resume";
    let (mut found, mut marker) = (Vec::new(), 0);
    loop {
        let query = format!("uploadId={}&part-number-marker={marker}", encoded(id));
        let call = call(service, "ListParts", Method::GET, place, &query);
        let body = service.api.ask(&call).await.map_err(|refused| refused.at(OP, key))?;
        let broken = |why: &str| {
            let message = format!("the service can't tell what it has of an unfinished upload: {why}");
            Error::new(ErrorKind::Corrupt, OP, message).with_retry(Retry::Backoff).with_key(key)
        };
        let (page, next) = parse_parts(&body).ok_or_else(|| broken("the list of parts can't be read"))?;
        found.extend(page);
        match next {
            Some(next) if next > marker => marker = next,
            Some(_) => return Err(broken("the list of parts does not advance")),
            None => break,
        }
    }
    let is_there = |part: &Part| {
        let etag = read_tag(part).map(|(_, etag)| etag);
        etag.is_some_and(|etag| {
            found.iter().any(|(index, size, theirs)| (*index, *size, &**theirs) == (part.index, part.size, etag))
        })
    };
    Ok(sent.into_iter().filter(is_there).collect())
}

/// Index, bytes, ETag of each part, and after which number the next page begins.
type Parts = (Vec<(u64, u64, String)>, Option<u64>);

fn parse_parts(body: &[u8]) -> Option<Parts> {
    let (mut parts, mut next, mut more, mut is_list) = (Vec::new(), None, None, false);
    let (mut number, mut size, mut etag) = (None::<u64>, None, String::new());
    xml::walk(body, |step| match step {
        Step::Open("ListPartsResult") => is_list = true,
        Step::Open("Part") => (number, size, etag) = (None, None, String::new()),
        Step::Close("PartNumber", text) => number = text.trim().parse().ok(),
        Step::Close("Size", text) => size = text.trim().parse().ok(),
        Step::Close("ETag", text) => etag = text.trim().trim_matches('"').to_owned(),
        Step::Close("Part", _) => {
            // Unlisted parts are sent again.
            if let (Some(index), Some(size)) = (number.and_then(|number| number.checked_sub(1)), size) {
                parts.push((index, size, std::mem::take(&mut etag)));
            }
        }
        Step::Close("NextPartNumberMarker", text) => next = text.trim().parse().ok(),
        Step::Close("IsTruncated", text) => more = Some(text.trim() == "true"),
        _ => {}
    })?;
    match (is_list, more?) {
        (true, false) => Some((parts, None)),
        (true, true) => Some((parts, Some(next?))),
        (false, _) => None,
    }
}

/// Removes an upload with its parts; false when it no longer exists.
pub async fn abort(service: &Service, place: &ObjectAddress, id: &str) -> ServiceResult<bool> {
    let query = format!("uploadId={}", encoded(id));
    match service.api.ask(&call(service, "AbortMultipartUpload", Method::DELETE, place, &query)).await {
        Err(refused) if refused.fault.status == 404 => Ok(false),
        other => other.map(|_| true),
    }
}

/// An upload that was begun and neither completed nor removed.
#[derive(Debug, Default, PartialEq)]
pub struct UnfinishedUpload {
    pub object: String,
    pub id: String,
    pub begun: Option<Mtime>,
}

/// All uploads of a bucket whose objects begin with `prefix`.
///
/// Errors: they can't be listed.
pub async fn unfinished(service: &Service, bucket: &str, prefix: &str) -> Result<Vec<UnfinishedUpload>> {
    const OP: &str = "clean up";
    let place = ObjectAddress { bucket: bucket.to_owned(), object: String::new() };
    let (mut all, mut next): (Vec<UnfinishedUpload>, Option<Marker>) = (Vec::new(), None);
    loop {
        let mut query = format!("uploads&prefix={}", encoded(prefix));
        if let Some((key, id)) = &next {
            let _ = write!(query, "&key-marker={}&upload-id-marker={}", encoded(key), encoded(id));
        }
        let call = call(service, "ListMultipartUploads", Method::GET, &place, &query);
        let body = service.api.ask(&call).await.map_err(|refused| refused.fault.error(OP))?;
        let broken = |why: &str| Fault::broken(why).error(OP);
        let (page, more) = parse_uploads(&body).ok_or_else(|| broken("the list of uploads can't be read"))?;
        all.extend(page);
        if more.is_none() {
            return Ok(all);
        }
        if more == next {
            return Err(broken("the list of uploads does not advance"));
        }
        next = more;
    }
}

/// Object and id after which a page begins.
type Marker = (String, String);

fn parse_uploads(body: &[u8]) -> Option<(Vec<UnfinishedUpload>, Option<Marker>)> {
    let (mut all, mut current): (Vec<UnfinishedUpload>, Option<UnfinishedUpload>) = (Vec::new(), None);
    let (mut is_list, mut more, mut marker) = (false, None, Marker::default());
    xml::walk(body, |step| match step {
        Step::Open("ListMultipartUploadsResult") => is_list = true,
        Step::Open("Upload") => current = Some(UnfinishedUpload::default()),
        Step::Close("Upload", _) => all.extend(current.take()),
        Step::Close("IsTruncated", text) => more = Some(text.trim() == "true"),
        Step::Close("NextKeyMarker", text) => text.clone_into(&mut marker.0),
        Step::Close("NextUploadIdMarker", text) => text.clone_into(&mut marker.1),
        Step::Close(name, text) => {
            if let Some(upload) = &mut current {
                match name {
                    "Key" => text.clone_into(&mut upload.object),
                    "UploadId" => text.trim().clone_into(&mut upload.id),
                    "Initiated" => upload.begun = meta::time(text),
                    _ => {}
                }
            }
        }
        Step::Open(_) => {}
    })?;
    let complete = all.iter().all(|upload| !upload.object.is_empty() && !upload.id.is_empty());
    match (is_list && complete, more?) {
        (true, false) => Some((all, None)),
        (true, true) if !marker.0.is_empty() => Some((all, Some(marker))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_tells_what_the_whole_must_be() {
        let part = |index, bytes: &[u8], etag: &str| {
            let crc = hash::hash_bytes(&[Algo::Crc32c], bytes);
            let tag = format!("{} {etag}", B64.encode(crc.get(Algo::Crc32c).unwrap())).into_bytes();
            Part { index, size: bytes.len() as u64, tag }
        };
        let parts = [part(0, b"abc", "x"), part(1, b"defgh", "y")];
        assert_eq!(whole(&parts).unwrap(), hash::hash_bytes(&[Algo::Crc32c], b"abcdefgh"));
        for tag in [&b"held"[..], b"", b"AAAAAA== ", b"AAAA x", b"x"] {
            assert_eq!(whole(&[Part { index: 0, size: 1, tag: tag.to_vec() }]), None);
        }
    }

    #[test]
    fn lists_that_prove_nothing_are_refused() {
        let parts = "<ListPartsResult xmlns='x'><NextPartNumberMarker>2</NextPartNumberMarker><IsTruncated>true</IsTruncated>\
            <Part><PartNumber>2</PartNumber><ETag>\"e2\"</ETag><Size>5</Size></Part></ListPartsResult>";
        assert_eq!(parse_parts(parts.as_bytes()), Some((vec![(1, 5, "e2".into())], Some(2))));
        let uploads = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>d/a&amp;b</Key><UploadId>i</UploadId>\
            <Initiated>2024-01-02T03:04:05.678Z</Initiated></Upload></ListMultipartUploadsResult>";
        let (all, next) = parse_uploads(uploads.as_bytes()).unwrap();
        assert_eq!((&*all[0].object, &*all[0].id, next), ("d/a&b", "i", None));
        assert!(all[0].begun.is_some());
        for bad in [
            "<html></html>",
            "<ListPartsResult/>",
            "<ListPartsResult><IsTruncated>true</IsTruncated></ListPartsResult>",
        ] {
            assert_eq!(parse_parts(bad.as_bytes()), None, "{bad}");
        }
        let uploads_bad = uploads.replace("<UploadId>i</UploadId>", "");
        for bad in [&*uploads_bad, "<ListMultipartUploadsResult/>", "<Error/>"] {
            assert_eq!(parse_uploads(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn access_lists_have_other_words_here() {
        let words = ["private", "publicRead", "bucketOwnerFullControl"].map(dashed);
        assert_eq!(words, ["private", "public-read", "bucket-owner-full-control"]);
    }
}
