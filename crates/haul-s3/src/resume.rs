//! Uploads in parts that an earlier run left: what finds them again, and the parts that they have.

use super::{
    body,
    error::Fault,
    service::{Call, Service, at},
    token::{self, Token},
    upload::{self, S3Upload, receipt},
    xml::{self, Step},
};
use haul_core::{Algo, Error, ErrorKind, Key, Result, Retry};
use haul_store::{Part, ResumedWrite, SentPart, WriteSpec};
use http::Method;
use std::sync::Arc;

/// See [`haul_store::Resumable::resume`].
pub async fn resume(
    service: &Arc<Service>,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    let found = of_key(service, key, token)?;
    if found.begun != token::begun_with(service, &found.place, &upload::kept(service, &spec), true)? {
        let message = "the upload was begun with other metadata or settings";
        return Err(Error::new(ErrorKind::Changed, "resume", message).with_key(key));
    }
    let there = parts(service, token).await.map_err(|e| e.with_key(key))?;
    let known = sent.into_iter().map(|sent| sent.part);
    let parts = known.filter(|part| there.iter().any(|other| same(part, other))).collect();
    let upload = S3Upload::go_on(service.clone(), key, found.place, found.id, spec);
    Ok((Box::new(upload), parts))
}

/// True when the service has the part: its receipt names the same bytes as ours. Not every service repeats
/// the checksum in its list.
pub fn same(ours: &Part, theirs: &Part) -> bool {
    let (ours_tag, theirs_tag) = (ours.tag.split(|b| *b == b' '), theirs.tag.split(|b| *b == b' '));
    (ours.index, ours.size) == (theirs.index, theirs.size)
        && !ours.tag.is_empty()
        && ours_tag.zip(theirs_tag).all(|(a, b)| a == b)
}

/// See [`haul_store::Resumable::discard`].
pub async fn discard(service: &Service, key: &Key, token: &[u8]) -> Result<bool> {
    let Token { place, id, .. } = of_key(service, key, token)?;
    upload::abort(service, &place, &id).await.map_err(at("discard", key))
}

fn of_key(service: &Service, key: &Key, token: &[u8]) -> Result<Token> {
    let place = service.place(key)?;
    let found = Token::read(token).filter(|token| token.place == place);
    found.ok_or_else(|| Error::new(ErrorKind::Invalid, "resume", "this isn't the token of a write to it").with_key(key))
}

/// The parts of an unfinished multipart upload, in order.
///
/// Errors: `NotFound` when the upload no longer exists; `Corrupt` when the server's answer can't be read.
pub async fn parts(service: &Service, token: &[u8]) -> Result<Vec<Part>> {
    let Some(Token { place, id, .. }) = Token::read(token) else { return Ok(Vec::new()) };
    let (mut parts, mut marker) = (Vec::new(), 0);
    loop {
        let mut call = Call::object("ListParts", Method::GET, &place).query("uploadId", &id);
        if marker > 0 {
            call = call.query("part-number-marker", marker.to_string());
        }
        let (_, body) = service.ask(call).await.map_err(|fault| untold(fault).error("list"))?;
        let broken = |message: &str| unreadable(message).error("list");
        let page = parse_parts(&body).ok_or_else(|| broken("the list of parts can't be read"))?;
        parts.extend(page.0);
        match page.1 {
            Some(next) if next > marker => marker = next,
            Some(_) => return Err(broken("the list of parts does not advance")),
            None => break,
        }
    }
    parts.sort_by_key(|p: &Part| p.index);
    Ok(parts)
}

/// A healthy server that can't list an upload's parts won't be able to tomorrow (S3Proxy answers 500 for ever once a
/// part was cut off): such an answer counts as a damaged upload. One from a gateway, one that asks for patience, or none at
/// all, says nothing about the upload.
fn untold(mut fault: Box<Fault>) -> Box<Fault> {
    let gateway = matches!(fault.status, 502 | 504);
    if fault.kind == ErrorKind::Io && fault.status >= 500 && !gateway {
        fault = unreadable(&fault.message);
    }
    fault
}

fn unreadable(why: &str) -> Box<Fault> {
    let message = format!("the server can't tell what it has of an unfinished upload: {why}");
    Fault::new(ErrorKind::Corrupt, Retry::Backoff, message)
}

/// The parts, and where the next page begins. A server that doesn't say whether there are more has listed all that it will:
/// unlisted parts are sent again. So is a part whose receipt is missing: see [`same`].
fn parse_parts(body: &[u8]) -> Option<(Vec<Part>, Option<u64>)> {
    let (mut parts, mut next, mut more, mut is_list) = (Vec::new(), None, false, false);
    let (mut number, mut size, mut etag, mut crc) = (0u64, None, String::new(), None);
    xml::walk(body, |step| match step {
        // moto calls it a response.
        Step::Open("ListPartsResult" | "ListPartsResponse") => is_list = true,
        Step::Open("Part") => (number, size, etag, crc) = (0, None, String::new(), None),
        Step::Close("PartNumber", text) => number = text.trim().parse().unwrap_or(0),
        Step::Close("Size", text) => size = text.trim().parse().ok(),
        Step::Close("ETag", text) => etag = text.to_owned(),
        Step::Close("ChecksumCRC64NVME", text) => crc = body::from_base64(Algo::Crc64Nvme, text),
        Step::Close("Part", _) => {
            if let (Some(index), Some(size)) = (number.checked_sub(1), size) {
                parts.push(Part { index, size, tag: receipt(&etag, crc.as_deref()) });
            }
        }
        Step::Close("NextPartNumberMarker", text) => next = text.trim().parse().ok(),
        Step::Close("IsTruncated", text) => more = text.trim() == "true",
        _ => {}
    })?;
    match (is_list, more) {
        (true, false) => Some((parts, None)),
        (true, true) => Some((parts, Some(next?))),
        (false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_same_by_number_size_and_receipt() {
        let part = |index, size, tag: &str| Part { index, size, tag: tag.into() };
        let ours = part(1, 5, "e2 rosUhgp5mIg=");
        assert!(same(&ours, &ours));
        assert!(same(&ours, &part(1, 5, "e2")));
        for other in [part(0, 5, "e2"), part(1, 4, "e2"), part(1, 5, "e3"), part(1, 5, "e2 AAAAAAAAAAA=")] {
            assert!(!same(&ours, &other), "{other:?}");
        }
        assert!(!same(&part(0, 1, ""), &part(0, 1, "")));
    }

    #[test]
    fn an_upload_of_which_nothing_can_be_told_is_as_good_as_damaged() {
        for (status, code, kind) in [
            (500, "InternalError", ErrorKind::Corrupt),
            (500, "", ErrorKind::Corrupt),
            (502, "", ErrorKind::Io),
            (503, "SlowDown", ErrorKind::Busy),
            (504, "", ErrorKind::Io),
            (404, "NoSuchUpload", ErrorKind::NotFound),
            (403, "AccessDenied", ErrorKind::Denied),
        ] {
            let fault = untold(Fault::coded(status, code, "words", None));
            assert_eq!(fault.kind, kind, "{status} {code}");
        }
        assert_eq!(untold(Fault::broken("the connection broke")).kind, ErrorKind::Io);
        let fault = untold(Fault::coded(500, "InternalError", "We failed.", None));
        assert_eq!(fault.retry, Retry::Backoff);
        let message = "the server can't tell what it has of an unfinished upload: We failed (InternalError)";
        assert_eq!(fault.message, message);
    }

    #[test]
    fn a_list_of_parts() {
        let xml = b"<ListPartsResult><NextPartNumberMarker>2</NextPartNumberMarker><IsTruncated>true</IsTruncated>\
            <Part><PartNumber>2</PartNumber><ETag>\"e2\"</ETag><Size>5</Size>\
            <ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME></Part></ListPartsResult>";
        let (parts, next) = parse_parts(xml).unwrap();
        assert_eq!(parts, [Part { index: 1, size: 5, tag: b"e2 rosUhgp5mIg=".to_vec() }]);
        assert_eq!(next, Some(2));
        for bad in [&b"<html></html>"[..], b"<ListPartsResult><IsTruncated>true</IsTruncated></ListPartsResult>"] {
            assert_eq!(parse_parts(bad), None, "{}", bad.escape_ascii());
        }
        // rclone's server says no more of it than this.
        assert_eq!(parse_parts(b"<ListPartsResult></ListPartsResult>"), Some((vec![], None)));
    }
}
