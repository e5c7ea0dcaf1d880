//! Proof that a write succeeded, from its answer. A missing answer proves nothing: without a receipt nothing counts as stored, whatever
//! the status says, and where a checksum was sent the server must confirm it.

use super::{
    address::ObjectAddress,
    body,
    error::{Fault, FaultResult},
    meta,
    provider::Checksum,
    read,
    service::Service,
    xml::{self, Step},
};
use haul_core::{Algo, ErrorKind, Hashes, Key, Retry};
use haul_store::Payload;
use http::HeaderMap;

/// The roots of the answers to CopyObject and UploadPartCopy.
pub const COPIED: [&str; 2] = ["CopyObjectResult", "CopyPartResult"];
/// The root of the answer to CompleteMultipartUpload.
pub const COMPLETED: [&str; 1] = ["CompleteMultipartUploadResult"];

/// A body that a server proved to hold.
pub struct ProvedBody {
    /// The receipt, as the server gave it.
    pub etag: String,
    /// Hashes of the stored bytes.
    pub hashes: Hashes,
}

/// Proof from the answer to a whole object or a part. `ours` was sent as headers; with `key`, a HEAD may ask for
/// facts that the answer leaves out.
///
/// Errors: `Corrupt` when it contradicts the bytes sent, `Io` without a receipt, `Unsupported` when nothing
/// confirms the checksum.
pub async fn of_body(
    service: &Service,
    answer: &HeaderMap,
    ours: Hashes,
    payload: &Payload,
    key: Option<(&Key, &ObjectAddress)>,
) -> FaultResult<ProvedBody> {
    let etag = receipt(answer)?;
    let size = payload.len();
    let theirs = meta::hashes(&service.config, answer);
    same(&theirs, &ours, size)?;
    // A server that knows `Content-MD5` has checked it, or it would not have answered so.
    if service.config.provider.checksum == Checksum::Md5 || theirs.get(Algo::Crc64Nvme).is_some() {
        return Ok(ProvedBody { etag, hashes: ours });
    }
    // A server that says nothing of a CRC may never have looked at it.
    if theirs.get(Algo::Md5).is_some() {
        let computed = payload.hash(&[Algo::Md5]).await.map_err(|e| Fault::new(e.kind(), e.retry(), e.message()))?;
        same(&theirs, &computed, size)?;
        return Ok(ProvedBody { etag, hashes: ours });
    }
    if let Some((key, place)) = key {
        let version = meta::version(&etag);
        let head = read::head(service, key, place, Some(&version)).await;
        let head = head.map_err(|e| Fault::new(e.kind(), e.retry(), e.message()))?;
        let theirs = meta::hashes(&service.config, &head);
        same(&theirs, &ours, size)?;
        if theirs.get(Algo::Crc64Nvme).is_some() {
            return Ok(ProvedBody { etag, hashes: ours });
        }
    }
    Err(unconfirmed())
}

/// Proof from the answer to a part that was sent with a trailing checksum, or none; `ours` are the hashes computed as it passed.
/// Returns the receipt.
///
/// Errors: as [`of_body`].
pub fn of_relay(service: &Service, answer: &HeaderMap, ours: &Hashes, size: u64) -> FaultResult<String> {
    let etag = receipt(answer)?;
    let theirs = meta::hashes(&service.config, answer);
    same(&theirs, ours, size)?;
    let confirmed =
        [Algo::Crc64Nvme, Algo::Md5].iter().any(|algo| theirs.get(*algo).is_some() && ours.get(*algo).is_some());
    if confirmed { Ok(etag) } else { Err(unconfirmed()) }
}

fn receipt(answer: &HeaderMap) -> FaultResult<String> {
    meta::etag(answer).map(str::to_owned).ok_or_else(|| {
        Fault::broken("the server gave no receipt (an ETag) for what was sent: is the endpoint an S3 server?")
    })
}

/// The server accepted the bytes but doesn't return their checksum.
pub fn unconfirmed() -> Box<Fault> {
    let message = "the server does not confirm the checksum of what was sent: set provider = Other";
    Fault::new(ErrorKind::Unsupported, Retry::Never, message)
}

fn same(theirs: &Hashes, ours: &Hashes, size: u64) -> FaultResult<()> {
    match theirs.agree(ours) {
        Some((algo, false)) => {
            let message = format!("the server stored something else than the {size} bytes sent: its {algo} differs");
            Err(Fault::new(ErrorKind::Corrupt, Retry::Backoff, message))
        }
        _ => Ok(()),
    }
}

/// Contents of a success document.
#[derive(Debug, Default, PartialEq)]
pub struct SuccessDocument {
    pub etag: Option<String>,
    /// The CRC-64 of the whole, not one of checksums of parts.
    pub crc: Option<Vec<u8>>,
}

/// Reads an answer of status 200, which may hold an error all the same; its root must be one of `roots`.
pub fn done(document: &[u8], roots: &[&str]) -> FaultResult<SuccessDocument> {
    let (mut root, mut found, mut composite) = (String::new(), SuccessDocument::default(), false);
    let (mut code, mut message) = (String::new(), String::new());
    let read = xml::walk(document, |step| match step {
        Step::Open(name) if root.is_empty() => root = name.to_owned(),
        Step::Close("ETag", text) if !text.trim().trim_matches('"').is_empty() => found.etag = Some(text.to_owned()),
        Step::Close("ChecksumCRC64NVME", text) => found.crc = body::from_base64(Algo::Crc64Nvme, text),
        Step::Close("ChecksumType", text) => composite = text.trim().eq_ignore_ascii_case("COMPOSITE"),
        Step::Close("Code", text) => code = text.to_owned(),
        Step::Close("Message", text) => message = text.to_owned(),
        _ => {}
    });
    if root == "Error" {
        return Err(Fault::coded(500, &code, &message, None));
    }
    if read.is_none() || !roots.contains(&root.as_str()) {
        return Err(Fault::broken("the server's answer is cut, or is not one of S3"));
    }
    if composite {
        found.crc = None;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_success_may_hold_an_error() {
        let ok = b"\n\n<?xml version=\"1.0\"?><CompleteMultipartUploadResult><ETag>\"x-1\"</ETag></CompleteMultipartUploadResult>";
        assert_eq!(done(ok, &COMPLETED).unwrap().etag.as_deref(), Some("\"x-1\""));
        let error = b"<Error><Code>InternalError</Code><Message>Try again.</Message></Error>";
        let fault = done(error, &COMPLETED).unwrap_err();
        assert_eq!((fault.kind, fault.retry, fault.is_ambiguous()), (ErrorKind::Io, Retry::Backoff, true));
        for bad in [&b"<CompleteMultipartUploadResult>"[..], b"", b"<html><body><ETag>x</ETag></body></html>"] {
            assert!(done(bad, &COMPLETED).is_err(), "{}", bad.escape_ascii());
        }
        assert_eq!(done(b"<CopyObjectResult/>", &COPIED).unwrap(), SuccessDocument::default());
    }

    #[test]
    fn a_checksum_of_checksums_is_not_one_of_the_whole() {
        let text = |kind: &str| {
            format!(
                "<CompleteMultipartUploadResult><ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME>{kind}</CompleteMultipartUploadResult>"
            )
        };
        let crc = |kind: &str| done(text(kind).as_bytes(), &COMPLETED).unwrap().crc;
        assert!(crc("").is_some() && crc("<ChecksumType>FULL_OBJECT</ChecksumType>").is_some());
        assert_eq!(crc("<ChecksumType>COMPOSITE</ChecksumType>"), None);
    }
}
