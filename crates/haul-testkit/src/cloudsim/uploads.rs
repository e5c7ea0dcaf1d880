//! Uploads in parts.

use super::{
    answer::{ARGUMENT, Answer, INTERNAL, MALFORMED, OperationResult, Refusal},
    body::{CRC, Received},
    checksum,
    etag::Tag,
    listing::listed_from,
    pattern,
    quirks::Quirk,
    report::now_ms,
    request::{AdmittedRequest, base64, document, quoted, range},
    space::{self, Part, Stored, UnfinishedUpload},
    sum::Announced,
    xml,
};
use haul_core::{Algo, hash::hash_bytes};
use hyper::{StatusCode, header::ETAG};
use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const NO_UPLOAD: Refusal =
    Refusal::new(StatusCode::NOT_FOUND, "NoSuchUpload", "The upload is not there: it was completed or aborted.");
const NO_PART: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidPart",
    "A part was not uploaded, or its ETag is not the one that is named.",
);
const ORDER: Refusal = Refusal::new(StatusCode::BAD_REQUEST, "InvalidPartOrder", "The parts are not in order.");
const SMALL: Refusal =
    Refusal::new(StatusCode::BAD_REQUEST, "EntityTooSmall", "A part other than the last is smaller than 5 MiB.");
const WHOLE: Refusal =
    Refusal::new(StatusCode::BAD_REQUEST, "BadDigest", "The checksum sent is not that of the parts put together.");

const UNEQUAL: Refusal =
    Refusal::new(StatusCode::BAD_REQUEST, "InvalidPart", "All non-trailing parts must have the same length.");

/// Smallest part but the last, and highest number: S3's limits.
const LEAST: u64 = 5 << 20;
const MOST: u32 = 10_000;

/// Begins an upload.
pub fn create(admitted: &AdmittedRequest<'_>) -> OperationResult {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let bucket = admitted.bucket()?;
    let id = format!("{:016x}", pattern::splitmix(4, NUMBER.fetch_add(1, Relaxed)));
    let announced = Announced::read(admitted.headers)?.filter(|_| admitted.keeps_checksums());
    let mut text = format!("<InitiateMultipartUploadResult {}><Bucket>", xml::SPACE);
    xml::escape(&admitted.target.bucket, &mut text);
    text.push_str("</Bucket><Key>");
    xml::escape(&String::from_utf8_lossy(&admitted.target.key), &mut text);
    // Writing to a String can't fail.
    let _ = write!(text, "</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
    let mut answer = document(text);
    if let Some(announced) = announced {
        answer = answer.with("x-amz-checksum-algorithm", checksum::name(announced.algo));
        answer = answer.with("x-amz-checksum-type", announced.kind());
    }
    let key = admitted.target.key.clone();
    let upload = UnfinishedUpload { key, begun: now_ms(), meta: admitted.meta(), announced, parts: Default::default() };
    bucket.uploads().insert(id, upload);
    Ok(answer)
}

/// The request's upload, for `change`.
fn upload<T>(
    admitted: &AdmittedRequest<'_>,
    change: impl FnOnce(&mut UnfinishedUpload) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let bucket = admitted.bucket()?;
    let mut uploads = bucket.uploads();
    let upload = uploads.get_mut(admitted.target.text("uploadId")).filter(|u| u.key == admitted.target.key);
    change(upload.ok_or(NO_UPLOAD)?)
}

fn number(admitted: &AdmittedRequest<'_>) -> Result<u32, Refusal> {
    admitted.target.text("partNumber").parse().ok().filter(|n| (1..=MOST).contains(n)).ok_or(ARGUMENT)
}

/// Takes a part.
pub fn part(admitted: &AdmittedRequest<'_>, received: Received) -> OperationResult {
    let number = number(admitted)?;
    let (tag, sum) = admitted.verified(&received)?;
    let Received { size, crc, pieces, .. } = received;
    let mut answer = Answer::new(StatusCode::OK).with(ETAG.as_str(), quoted(&tag));
    if let Some(sum) = sum.as_ref().filter(|sum| sum.algo != Algo::Crc64Nvme) {
        answer.headers.extend(checksum::sum_header(sum));
    } else if admitted.keeps_checksums() {
        answer = answer.with(CRC, base64(crc));
    }
    upload(admitted, |upload| {
        if admitted.keeps_checksums() {
            checksum::part_fits(upload.announced, sum.as_ref())?;
        }
        let sum = sum.filter(|sum| sum.algo != Algo::Crc64Nvme);
        upload.parts.insert(number, Part { size, crc: Some(crc), sum, tag, modified: now_ms(), pieces });
        Ok(())
    })?;
    Ok(answer)
}

/// Takes a part from another key.
pub fn part_copy(admitted: &AdmittedRequest<'_>) -> OperationResult {
    let number = number(admitted)?;
    let source = admitted.source()?;
    if admitted.has(Quirk::EmptyPartCopy) {
        let part =
            Part { size: 0, crc: Some(0), sum: None, tag: Tag::md5(md5(b"")), modified: now_ms(), pieces: Vec::new() };
        upload(admitted, |upload| Ok(upload.parts.insert(number, part)))?;
        return Ok(Answer::new(StatusCode::OK));
    }
    let wanted = admitted.header("x-amz-copy-source-range");
    let within = wanted.is_empty()
        || wanted.rsplit('-').next().and_then(|last| last.parse().ok()).is_some_and(|last: u64| last < source.size);
    let range = match admitted.has(Quirk::NoCopyRange) {
        true => 0..source.size,
        false => range(wanted, source.size)?.unwrap_or(0..source.size),
    };
    if !within {
        return Err(Refusal::bad(
            "InvalidArgument",
            format!("Range specified is not valid for source object of size: {}", source.size),
        ));
    }
    let size = range.end - range.start;
    let pieces = space::slice(&source.pieces, range);
    let crc = if size == source.size { source.crc } else { space::crc(&pieces) };
    let tag = Tag::cheap(crc.unwrap_or(u64::from(number)), size, 1);
    let now = now_ms();
    let mut text = format!(
        "<CopyPartResult {}><LastModified>{}</LastModified><ETag>&quot;{}&quot;</ETag>",
        xml::SPACE,
        xml::iso(now),
        tag.text()
    );
    upload(admitted, |upload| {
        // What S3 copies it hashes itself, with what was announced.
        let other = upload.announced.filter(|announced| announced.algo != Algo::Crc64Nvme);
        let sum = other.and_then(|announced| checksum::sum_of(&pieces, announced.algo));
        if let Some(sum) = &sum {
            let _ = write!(text, "<Checksum{0}>{1}</Checksum{0}>", checksum::name(sum.algo), sum.value);
        } else if let Some(crc) = crc.filter(|_| upload.announced.is_some()) {
            let _ = write!(text, "<ChecksumCRC64NVME>{}</ChecksumCRC64NVME>", base64(crc));
        }
        upload.parts.insert(number, Part { size, crc, sum, tag, modified: now, pieces });
        Ok(())
    })?;
    text.push_str("</CopyPartResult>");
    Ok(document(text))
}

/// Tells the parts that there are.
pub fn list_parts(admitted: &AdmittedRequest<'_>) -> OperationResult {
    if admitted.has(Quirk::NoListParts) {
        return Err(INTERNAL);
    }
    let after: u32 = admitted.target.text("part-number-marker").parse().unwrap_or(0);
    let most: usize = admitted.target.text("max-parts").parse().unwrap_or(1000).min(1000);
    upload(admitted, |upload| {
        let mut text = format!("<ListPartsResult {}><Bucket>", xml::SPACE);
        xml::escape(&admitted.target.bucket, &mut text);
        text.push_str("</Bucket><Key>");
        xml::escape(&String::from_utf8_lossy(&upload.key), &mut text);
        let mut later = upload.parts.range(after + 1..);
        let rows: Vec<_> = later.by_ref().take(most).collect();
        let (more, last) = (later.next().is_some(), rows.last().map_or(0, |(number, _)| **number));
        let _ = write!(
            text,
            "</Key><UploadId>{}</UploadId><StorageClass>STANDARD</StorageClass><PartNumberMarker>{after}\
             </PartNumberMarker><NextPartNumberMarker>{last}</NextPartNumberMarker><MaxParts>{most}</MaxParts>\
             <IsTruncated>{more}</IsTruncated>",
            admitted.target.text("uploadId")
        );
        if let Some(announced) = upload.announced {
            let (algo, kind) = (checksum::name(announced.algo), announced.kind());
            let _ = write!(text, "<ChecksumAlgorithm>{algo}</ChecksumAlgorithm><ChecksumType>{kind}</ChecksumType>");
        }
        for (number, part) in rows {
            let _ = write!(
                text,
                "<Part><PartNumber>{number}</PartNumber><LastModified>{}</LastModified><ETag>&quot;{}&quot;</ETag>\
                 <Size>{}</Size>",
                xml::iso(part.modified),
                part.tag.text(),
                part.size
            );
            if let Some(sum) = &part.sum {
                let _ = write!(text, "<Checksum{0}>{1}</Checksum{0}>", checksum::name(sum.algo), sum.value);
            } else if let Some(crc) = part.crc.filter(|_| admitted.keeps_checksums()) {
                let _ = write!(text, "<ChecksumCRC64NVME>{}</ChecksumCRC64NVME>", base64(crc));
            }
            text.push_str("</Part>");
        }
        text.push_str("</ListPartsResult>");
        Ok(document(text))
    })
}

/// Puts the parts together.
pub fn complete(admitted: &AdmittedRequest<'_>, received: &Received) -> OperationResult {
    let bucket = admitted.bucket()?;
    let named = xml::parts(&received.bytes()).filter(|parts| !parts.is_empty()).ok_or(MALFORMED)?;
    if named.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        return Err(ORDER);
    }
    let id = admitted.target.text("uploadId");
    // Held to the end: of two that complete an upload one finds it, and the other finds that it is gone.
    let mut uploads = bucket.uploads();
    let upload = uploads.get(id).filter(|u| u.key == admitted.target.key).ok_or(NO_UPLOAD)?;
    let mut parts = Vec::with_capacity(named.len());
    for (at, named_part) in named.iter().enumerate() {
        let part =
            upload.parts.get(&named_part.number).filter(|part| part.tag.text() == named_part.tag).ok_or(NO_PART)?;
        if part.size < LEAST && at + 1 < named.len() {
            return Err(SMALL);
        }
        parts.push(part);
    }
    if admitted.has(Quirk::EqualParts) && !equal(&parts) {
        return Err(UNEQUAL);
    }
    let size: u64 = parts.iter().map(|part| part.size).sum();
    let announced = admitted.header("x-amz-mp-object-size");
    if !announced.is_empty() && announced.parse() != Ok(size) {
        return Err(Refusal::bad(
            "InvalidRequest",
            format!("The parts have {size} bytes, x-amz-mp-object-size says {announced}"),
        ));
    }
    if admitted.keeps_checksums() {
        let sums: Vec<_> = named.iter().map(|part| part.sums.clone()).collect();
        checksum::completion_fits(admitted.headers, upload.announced, &parts, &sums)?;
    }
    let pieces = space::join(parts.iter().flat_map(|part| part.pieces.iter().cloned()).collect());
    let crc = parts.iter().try_fold(0, |crc, part| Some(pattern::combine(crc, part.crc?, part.size)));
    let crc = crc.or_else(|| space::crc(&pieces));
    let sent = admitted.header(CRC);
    if !sent.is_empty() && admitted.keeps_checksums() && crc.is_some_and(|crc| base64(crc) != sent) {
        return Err(WHOLE);
    }
    let sum = checksum::whole(upload.announced, &parts);
    let claimed = sum.as_ref().map_or("", |sum| checksum::claimed(admitted.headers, sum));
    if sum.as_ref().is_some_and(|sum| !claimed.is_empty() && claimed != sum.value) {
        return Err(WHOLE);
    }
    let count = parts.len() as u32;
    let md5s: Option<Vec<[u8; 16]>> = parts.iter().map(|part| part.tag.plain()).collect();
    let tag = match md5s {
        Some(md5s) => Tag::of_parts(md5(&md5s.concat()), count),
        None => Tag::cheap(crc.unwrap_or(size), size, count),
    };
    let mut text = format!("<CompleteMultipartUploadResult {}><Location>/", xml::SPACE);
    xml::escape(&admitted.target.bucket, &mut text);
    text.push_str("</Location><Bucket>");
    xml::escape(&admitted.target.bucket, &mut text);
    text.push_str("</Bucket><Key>");
    xml::escape(&String::from_utf8_lossy(&admitted.target.key), &mut text);
    let _ = write!(text, "</Key><ETag>&quot;{}&quot;</ETag>", tag.text());
    let other = sum.as_ref().map(|sum| (checksum::name(sum.algo), sum.value.clone(), sum.composite));
    if let Some((name, value, composite)) = other.or_else(|| crc.map(|crc| ("CRC64NVME", base64(crc), false)))
        && admitted.keeps_checksums()
    {
        let kind = if composite { "COMPOSITE" } else { "FULL_OBJECT" };
        let _ = write!(text, "<Checksum{name}>{value}</Checksum{name}><ChecksumType>{kind}</ChecksumType>");
    }
    text.push_str("</CompleteMultipartUploadResult>");
    let now = now_ms();
    let listed = listed_from(admitted.settings, now);
    let stored = Stored { size, crc, tag, modified: now, listed, meta: upload.meta.clone(), sum, pieces };
    admitted.store(&bucket, stored)?;
    uploads.remove(id);
    Ok(document(text))
}

/// All but the last of one size, and the last not larger.
fn equal(parts: &[&Part]) -> bool {
    let [rest @ .., last] = parts else { return true };
    rest.iter().all(|part| part.size == rest[0].size) && rest.first().is_none_or(|first| last.size <= first.size)
}

fn md5(bytes: &[u8]) -> [u8; 16] {
    let hashes = hash_bytes(&[Algo::Md5], bytes);
    hashes.get(Algo::Md5).and_then(|md5| md5.try_into().ok()).unwrap_or_default()
}

/// Gives an upload up.
pub fn abort(admitted: &AdmittedRequest<'_>) -> OperationResult {
    let bucket = admitted.bucket()?;
    let gone = bucket.uploads().remove(admitted.target.text("uploadId"));
    gone.map(|_| Answer::new(StatusCode::NO_CONTENT)).ok_or(NO_UPLOAD)
}

/// Tells the uploads that are not complete, by key and id.
pub fn list(admitted: &AdmittedRequest<'_>) -> OperationResult {
    let bucket = admitted.bucket()?;
    let target = admitted.target;
    let encoded = target.text("encoding-type") == "url";
    let prefix = target.bytes("prefix").unwrap_or_default();
    let after = (target.bytes("key-marker").unwrap_or_default(), target.text("upload-id-marker"));
    let most: usize = target.text("max-uploads").parse().unwrap_or(1000).min(1000);
    let uploads = bucket.uploads();
    let mut rows: Vec<_> = uploads.iter().filter(|(_, u)| u.key.starts_with(prefix)).collect();
    rows.sort_by(|(a, x), (b, y)| (&x.key, a).cmp(&(&y.key, b)));
    // Without an id, all of the marker's key are passed over.
    rows.retain(|(id, u)| if after.1.is_empty() { u.key[..] > *after.0 } else { (&u.key[..], &id[..]) > after });
    let more = rows.len() > most;
    rows.truncate(most);
    let mut text = format!("<ListMultipartUploadsResult {}><Bucket>", xml::SPACE);
    xml::escape(&target.bucket, &mut text);
    let _ = write!(text, "</Bucket><MaxUploads>{most}</MaxUploads><IsTruncated>{more}</IsTruncated>");
    if encoded {
        text.push_str("<EncodingType>url</EncodingType>");
    }
    if let Some((id, last)) = rows.last().filter(|_| more) {
        text.push_str("<NextKeyMarker>");
        xml::key(&last.key, encoded, &mut text);
        let _ = write!(text, "</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>");
    }
    for (id, upload) in rows {
        text.push_str("<Upload><Key>");
        xml::key(&upload.key, encoded, &mut text);
        let _ = write!(
            text,
            "</Key><UploadId>{id}</UploadId><StorageClass>STANDARD</StorageClass><Initiated>{}</Initiated></Upload>",
            xml::iso(upload.begun)
        );
    }
    text.push_str("</ListMultipartUploadsResult>");
    Ok(document(text))
}
