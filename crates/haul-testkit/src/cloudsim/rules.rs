//! What is refused whatever a bucket holds: signatures, regions, names, headers that are missing, too large or not known here.

use super::{
    answer::{NOT_IMPLEMENTED, Refusal},
    auth,
    body::Received,
    checksum,
    operation::Op,
    quirks::Quirk,
    request::AdmittedRequest,
};
use haul_core::Algo;
use hyper::{StatusCode, header::CONTENT_LENGTH};

/// Bytes of a key, and of metadata: S3's limits.
const KEY: usize = 1024;
const META: usize = 2048;
/// Bytes of one PUT, part or copy: S3's limit.
pub const LARGEST: u64 = 5 << 30;

const LONG_KEY: Refusal = Refusal::new(StatusCode::BAD_REQUEST, "KeyTooLongError", "Your key is too long");
const LARGE_META: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "MetadataTooLarge",
    "Your metadata headers exceed the maximum allowed metadata size",
);
const NO_LENGTH: Refusal = Refusal::new(
    StatusCode::LENGTH_REQUIRED,
    "MissingContentLength",
    "You must provide the Content-Length HTTP header.",
);
const INCOMPLETE: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "IncompleteBody",
    "You did not provide the number of bytes specified by the x-amz-decoded-content-length HTTP header",
);
const TRAILERS: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "MalformedTrailerError",
    "The request contained trailing data that was not well-formed or did not conform to our published schema.",
);
const TOO_LARGE: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "EntityTooLarge",
    "Your proposed upload exceeds the maximum allowed object size.",
);
const NO_DIGEST: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidRequest",
    "Missing required header for this request: Content-MD5 OR x-amz-checksum-*",
);
const BUCKET_NAME: Refusal =
    Refusal::new(StatusCode::BAD_REQUEST, "InvalidBucketName", "The specified bucket is not valid.");

/// Whether a request may be looked at.
///
/// Errors: why not.
pub fn check(admitted: &AdmittedRequest<'_>, received: &Received) -> Result<(), Refusal> {
    if !admitted.settings.trusting
        && let Some(region) = auth::signed_for(admitted.request, received)?
    {
        in_region(admitted, &region)?;
    }
    known(admitted)?;
    if admitted.target.key.len() > KEY {
        return Err(LONG_KEY);
    }
    let meta = admitted
        .headers
        .iter()
        .filter_map(|(name, value)| Some(name.as_str().strip_prefix("x-amz-meta-")?.len() + value.len()));
    if meta.sum::<usize>() > META {
        return Err(LARGE_META);
    }
    match admitted.op {
        Op::PutObject | Op::UploadPart => content(admitted, received),
        Op::DeleteObjects => {
            let sum = if admitted.keeps_checksums() { checksum::verified(admitted.headers, received)? } else { None };
            let md5 = admitted.md5_sent(received)?;
            if sum.is_none() && md5.is_none() { Err(NO_DIGEST) } else { Ok(()) }
        }
        Op::CreateBucket if admitted.settings.strict_names => bucket_name(&admitted.target.bucket),
        _ => Ok(()),
    }
}

fn in_region(admitted: &AdmittedRequest<'_>, signed: &str) -> Result<(), Refusal> {
    let (endpoint, place) = (&admitted.cloud.active("").settings.region, &admitted.settings.region);
    if signed == place {
        return Ok(());
    }
    if signed != endpoint {
        return Err(auth::wrong_region(signed, place));
    }
    // The endpoint was the right one for this signature, and the bucket is elsewhere.
    let message = "The bucket you are attempting to access must be addressed using the specified endpoint.";
    let moved = Refusal::new(StatusCode::MOVED_PERMANENTLY, "PermanentRedirect", message);
    let moved = moved.with("Bucket", &admitted.target.bucket).with("Endpoint", admitted.header("host"));
    Err(Refusal { header: Some(("x-amz-bucket-region", place.clone())), ..moved })
}

/// What a quirk doesn't know.
fn known(admitted: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let sends = |name: &str| admitted.headers.contains_key(name);
    let mut sums = admitted.headers.keys().map(hyper::header::HeaderName::as_str);
    let sums = sums.any(|name| {
        (name.starts_with("x-amz-checksum-") && name != "x-amz-checksum-mode") || name == "x-amz-sdk-checksum-algorithm"
    });
    let conditions = !admitted.op.reads() && (sends("if-match") || sends("if-none-match"));
    let odd = conditions && sends("if-none-match") && admitted.header("if-none-match") != "*";
    for (refused, quirk) in [
        (sums, Quirk::RefusesChecksums),
        (sends("x-amz-checksum-mode"), Quirk::RefusesChecksumMode),
        (conditions, Quirk::NoConditions),
        (admitted.op == Op::DeleteObjects, Quirk::NoBatchDelete),
        (admitted.op == Op::UploadPartCopy, Quirk::NoPartCopy),
    ] {
        if refused && admitted.has(quirk) {
            return Err(NOT_IMPLEMENTED);
        }
    }
    if odd { Err(NOT_IMPLEMENTED) } else { Ok(()) }
}

fn content(admitted: &AdmittedRequest<'_>, received: &Received) -> Result<(), Refusal> {
    let decoded = admitted.header("x-amz-decoded-content-length");
    let chunked = admitted.header("x-amz-content-sha256").starts_with("STREAMING-");
    if decoded.is_empty() && (chunked || !admitted.headers.contains_key(CONTENT_LENGTH)) {
        return Err(NO_LENGTH);
    }
    if !decoded.is_empty() && decoded.parse() != Ok(received.size) {
        return Err(INCOMPLETE);
    }
    trailers(admitted, received)?;
    if received.size > LARGEST { Err(TOO_LARGE) } else { Ok(()) }
}

/// The trailers after the body must be exactly those that were announced.
fn trailers(admitted: &AdmittedRequest<'_>, received: &Received) -> Result<(), Refusal> {
    let announced = admitted.header("x-amz-trailer").split(',').map(|name| name.trim().to_lowercase());
    let mut announced: Vec<_> = announced.filter(|name| !name.is_empty()).collect();
    let came = received.trailers.iter().map(|line| line.split_once(':').map_or("", |(name, _)| name.trim()));
    let mut came: Vec<_> = came.map(str::to_lowercase).collect();
    announced.sort();
    came.sort();
    let is_so = admitted.header("x-amz-content-sha256").ends_with("-TRAILER") != announced.is_empty();
    if is_so && announced == came { Ok(()) } else { Err(TRAILERS) }
}

/// AWS's rules for names of buckets.
fn bucket_name(name: &str) -> Result<(), Refusal> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = name.chars().all(|c| edge(Some(c)) || matches!(c, '.' | '-'));
    let length = (3..=63).contains(&name.len());
    let address = name.parse::<std::net::Ipv4Addr>().is_ok();
    let reserved = name.starts_with("xn--") || name.ends_with("-s3alias");
    let good = length && inner && edge(name.chars().next()) && edge(name.chars().last()) && !name.contains("..");
    if good && !address && !reserved { Ok(()) } else { Err(BUCKET_NAME) }
}

/// What is computed of a body: what came with it, and what is needed to check it.
pub fn hashes(op: Op, headers: &hyper::HeaderMap, settings: &super::Settings) -> Vec<Algo> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut algos = checksum::needed(headers);
    let content = matches!(op, Op::PutObject | Op::UploadPart);
    let sent = !text("content-md5").is_empty();
    if (sent && !settings.trusting) || (!sent && content && settings.etag_md5) {
        algos.push(Algo::Md5);
    }
    if !settings.trusting && text("x-amz-content-sha256").len() == 64 && !algos.contains(&Algo::Sha256) {
        algos.push(Algo::Sha256);
    }
    algos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_buckets() {
        for good in ["abc", "a-b.c", "1bucket", &"a".repeat(63)] {
            assert!(bucket_name(good).is_ok(), "{good}");
        }
        for bad in ["ab", "Abc", "a_b", "-abc", "abc-", "a..b", "192.168.0.1", "xn--abc", &"a".repeat(64), "ü-bucket"]
        {
            assert!(bucket_name(bad).is_err(), "{bad}");
        }
    }
}
