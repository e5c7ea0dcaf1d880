//! Signatures (SigV4) of requests and links: by the key that is known, for the right region, now, over all that is said. Links
//! end. Requests without any are let through, as to a bucket that everybody may use.

use super::{answer::Refusal, body::Received, operation::decoded};
use crate::servers::{ACCESS_KEY, SECRET_KEY};
use aws_lc_rs::{digest, hmac};
use haul_core::{Algo, hash::to_hex};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// Seconds by which a client's clock may differ.
const SKEW: i64 = 15 * 60;
/// Seconds that a link may be good for: a week.
const LONGEST: i64 = 7 * 24 * 3600;
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// What stands for a body's hash begins so when its chunks are signed one by one, and ends with [`TRAILER`] if lines follow them.
pub const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const TRAILER: &str = "-TRAILER";
/// SHA-256 of nothing.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Bytes of a signed chunk but the last at least.
const LEAST_CHUNK: u64 = 8 << 10;

const SKEWED: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "RequestTimeTooSkewed",
    "The difference between the request time and the current time is too large.",
);
const UNKNOWN_KEY: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "InvalidAccessKeyId",
    "The AWS Access Key Id you provided does not exist in our records.",
);
const WRONG: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "SignatureDoesNotMatch",
    "The request signature we calculated does not match the signature you provided. Check your key and signing method.",
);
const NOT_SIGNED: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "AccessDenied",
    "There were headers present in the request which were not signed",
);
const EXPIRED: Refusal = Refusal::new(StatusCode::FORBIDDEN, "AccessDenied", "Request has expired");
const OTHER_BODY: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "XAmzContentSHA256Mismatch",
    "The provided 'x-amz-content-sha256' header does not match what was computed.",
);
const NO_BODY_HASH: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidRequest",
    "Missing required header for this request: x-amz-content-sha256",
);
const SMALL_CHUNK: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidChunkSizeError",
    "Only the last chunk is allowed to have a size less than 8192 bytes",
);
const OLD: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidRequest",
    "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
);

/// What a request says of its signature, in the header or in the query.
struct Claim {
    access_key: String,
    /// `DATE/REGION/s3/aws4_request`.
    scope: String,
    region: String,
    names: Vec<String>,
    signature: String,
    at: Timestamp,
    date: String,
    /// Of a link: seconds that it is good for.
    expires: Option<i64>,
}

/// The request that is signed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path and query as they came.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

/// The region that a request is signed for; `None` for one without a signature.
///
/// Errors: the signature is none, not the right one, or no longer good; the body is not the one that was signed.
pub fn signed_for(request: Request<'_>, received: &Received) -> Result<Option<String>, Refusal> {
    let Some(claim) = claim(request)? else { return Ok(None) };
    if claim.access_key != ACCESS_KEY {
        return Err(UNKNOWN_KEY);
    }
    in_time(&claim)?;
    let signed = |name: &str| claim.names.iter().any(|n| n == name);
    let mut names = request.headers.keys().map(hyper::header::HeaderName::as_str);
    if !signed("host") || names.any(|name| name.starts_with("x-amz-") && !signed(name)) {
        return Err(NOT_SIGNED);
    }
    let body = header(request.headers, "x-amz-content-sha256");
    let hash = match (claim.expires, &body[..]) {
        (Some(_), "") => UNSIGNED,
        (None, "") => return Err(NO_BODY_HASH),
        (_, hash) => hash,
    };
    if signature(request, &claim, hash) != claim.signature {
        return Err(WRONG);
    }
    let is_hash = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hash && received.hashes.hex(Algo::Sha256).is_some_and(|found| found != hash) {
        return Err(OTHER_BODY);
    }
    if hash.starts_with(SIGNED_CHUNKS) {
        chunks_are_signed(&claim, SECRET_KEY, hash.ends_with(TRAILER), received)?;
    }
    Ok(Some(claim.region))
}

/// Checks the chain of signatures of a body's chunks, which begins with the request's own, and that of the lines after them.
///
/// Errors: one of them is not the right one; a chunk is too small.
fn chunks_are_signed(claim: &Claim, secret: &str, trailer: bool, received: &Received) -> Result<(), Refusal> {
    let signed = |kind: &str, before: &str, hashes: &str| {
        hmac_of(claim, secret, &format!("{kind}\n{}\n{}\n{before}\n{hashes}", claim.date, claim.scope))
    };
    let mut before = &claim.signature;
    for (at, chunk) in received.chunks.iter().enumerate() {
        if chunk.signature != signed("AWS4-HMAC-SHA256-PAYLOAD", before, &format!("{EMPTY}\n{}", chunk.sha256)) {
            return Err(WRONG);
        }
        // The last one but one is the last with content.
        if chunk.size < LEAST_CHUNK && at + 2 < received.chunks.len() {
            return Err(SMALL_CHUNK);
        }
        before = &chunk.signature;
    }
    if received.chunks.last().is_none_or(|last| last.size > 0) {
        return Err(WRONG);
    }
    let lines = received.trailers.iter().filter_map(|line| line.split_once(':'));
    let lines = lines.map(|(name, value)| format!("{}:{}\n", name.trim().to_lowercase(), value.trim()));
    let hash = to_hex(digest::digest(&digest::SHA256, lines.collect::<String>().as_bytes()).as_ref());
    if trailer && received.trailer_signature != signed("AWS4-HMAC-SHA256-TRAILER", before, &hash) {
        return Err(WRONG);
    }
    Ok(())
}

/// A request signed for another region: where it should have gone is told.
pub fn wrong_region(signed: &str, wanted: &str) -> Refusal {
    let message =
        format!("The authorization header is malformed; the region '{signed}' is wrong; expecting '{wanted}'");
    Refusal::bad("AuthorizationHeaderMalformed", message).with("Region", wanted)
}

fn malformed(why: &str) -> Refusal {
    Refusal::bad("AuthorizationHeaderMalformed", format!("The authorization header is malformed; {why}"))
}

fn in_time(claim: &Claim) -> Result<(), Refusal> {
    let age = Timestamp::now().as_second() - claim.at.as_second();
    match claim.expires {
        None if age.abs() > SKEW => Err(SKEWED),
        Some(expires) if !(1..=LONGEST).contains(&expires) => {
            Err(Refusal::bad("AuthorizationQueryParametersError", "X-Amz-Expires must be from 1 to 604800".into()))
        }
        Some(_) if age < -SKEW => Err(EXPIRED),
        Some(expires) if age > expires => Err(EXPIRED),
        _ => Ok(()),
    }
}

fn claim(request: Request<'_>) -> Result<Option<Claim>, Refusal> {
    let authorization = header(request.headers, "authorization");
    let query = pairs(request.uri);
    let query_value = |name: &str| {
        query.iter().find(|(n, _)| n == name).map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let (credential, names, signature, date, expires) = if let Some(signature) = query_value("X-Amz-Signature") {
        let of = |name: &str| query_value(name).ok_or_else(|| malformed("a parameter is missing"));
        if of("X-Amz-Algorithm")? != "AWS4-HMAC-SHA256" {
            return Err(OLD);
        }
        let expires = of("X-Amz-Expires")?.parse().map_err(|_| malformed("X-Amz-Expires is no number"))?;
        (of("X-Amz-Credential")?, of("X-Amz-SignedHeaders")?, signature, of("X-Amz-Date")?, Some(expires))
    } else if authorization.is_empty() {
        return Ok(None);
    } else {
        let fields = authorization.strip_prefix("AWS4-HMAC-SHA256 ").ok_or(OLD)?;
        let field = |name: &str| {
            let mut fields = fields.split(',').filter_map(|field| field.trim().split_once('='));
            fields.find(|(n, _)| *n == name).map(|(_, value)| value.to_owned()).ok_or_else(|| malformed(name))
        };
        let date = header(request.headers, "x-amz-date");
        (field("Credential")?, field("SignedHeaders")?, field("Signature")?, date, None)
    };
    let (access_key, scope) = credential.split_once('/').ok_or_else(|| malformed("the credential has no scope"))?;
    let [day, region, "s3", "aws4_request"] = scope.split('/').collect::<Vec<_>>()[..] else {
        return Err(malformed("the scope is not DATE/REGION/s3/aws4_request"));
    };
    let time = DateTime::strptime("%Y%m%dT%H%M%SZ", &date).and_then(|time| time.to_zoned(TimeZone::UTC));
    let at = time.map_err(|_| malformed("X-Amz-Date is no time"))?.timestamp();
    if !date.starts_with(day) {
        return Err(malformed("the scope's date is not that of X-Amz-Date"));
    }
    Ok(Some(Claim {
        access_key: access_key.to_owned(),
        region: region.to_owned(),
        scope: scope.to_owned(),
        names: names.split(';').map(str::to_owned).collect(),
        signature,
        at,
        date,
        expires,
    }))
}

/// What the signature must be.
fn signature(request: Request<'_>, claim: &Claim, hash: &str) -> String {
    let mut query: Vec<_> = pairs(request.uri)
        .into_iter()
        .filter(|(name, _)| name != "X-Amz-Signature")
        .map(|(name, value)| (encoded(name.as_bytes(), false), encoded(&value, false)))
        .collect();
    query.sort();
    let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let path = encoded(&decoded(request.uri.path(), false), true);
    let mut text = format!("{}\n{path}\n{}\n", request.method, query.join("&"));
    for name in &claim.names {
        let values: Vec<_> =
            request.headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect();
        let words: Vec<_> =
            values.iter().map(|v| v.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ")).collect();
        text += &format!("{name}:{}\n", words.join(","));
    }
    text += &format!("\n{}\n{hash}", claim.names.join(";"));
    let digest = to_hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    hmac_of(claim, SECRET_KEY, &format!("AWS4-HMAC-SHA256\n{}\n{}\n{digest}", claim.date, claim.scope))
}

/// The signature of a text, by the key that the scope makes of the secret.
fn hmac_of(claim: &Claim, secret: &str, text: &str) -> String {
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in claim.scope.split('/').chain([text]) {
        key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
    }
    to_hex(&key)
}

/// The query's parameters, decoded; a value may be any bytes.
fn pairs(uri: &Uri) -> Vec<(String, Vec<u8>)> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let name = |part: &str| String::from_utf8_lossy(&decoded(part, true)).into_owned();
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(n, v)| (name(n), decoded(v, true))).collect()
}

fn encoded(bytes: &[u8], path: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(byte) || (path && *byte == b'/') {
            text.push(char::from(*byte));
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    text
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{super::body::Chunk, *};

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn claim(signature: &str) -> Claim {
        Claim {
            access_key: String::new(),
            scope: "20130524/us-east-1/s3/aws4_request".into(),
            region: "us-east-1".into(),
            names: Vec::new(),
            signature: signature.into(),
            at: Timestamp::UNIX_EPOCH,
            date: "20130524T000000Z".into(),
            expires: None,
        }
    }

    /// 65 KiB of `a` in chunks with these signatures.
    fn received(signatures: [&str; 3]) -> Received {
        let chunks = signatures.into_iter().zip([64 << 10, 1 << 10, 0]).map(|(signature, size)| Chunk {
            signature: signature.into(),
            sha256: to_hex(digest::digest(&digest::SHA256, &vec![b'a'; size]).as_ref()),
            size: size as u64,
        });
        Received { chunks: chunks.collect(), ..Received::default() }
    }

    /// The examples of AWS's pages "Signature calculations for the authorization header: transferring payload in multiple
    /// chunks" and "… including trailing headers".
    #[test]
    fn the_chain_of_signatures_is_that_of_the_documents() {
        let seed = claim("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
        let signatures = [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ];
        assert_eq!(chunks_are_signed(&seed, SECRET, false, &received(signatures)), Ok(()));
        assert_eq!(chunks_are_signed(&seed, "another", false, &received(signatures)), Err(WRONG));
        for at in 0..3 {
            let mut wrong = received(signatures);
            wrong.chunks[at].sha256 = EMPTY.replace('e', "f");
            assert_eq!(chunks_are_signed(&seed, SECRET, false, &wrong), Err(WRONG), "{at}");
        }
        let mut cut = received(signatures);
        cut.chunks.pop();
        assert_eq!(chunks_are_signed(&seed, SECRET, false, &cut), Err(WRONG), "without its end");

        let seed = claim("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
        let mut with = received([
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ]);
        with.trailers = vec!["x-amz-checksum-crc32c:sOO8/Q==".into()];
        with.trailer_signature = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435".into();
        assert_eq!(chunks_are_signed(&seed, SECRET, true, &with), Ok(()));
        with.trailers[0].push('x');
        assert_eq!(chunks_are_signed(&seed, SECRET, true, &with), Err(WRONG));
    }

    #[test]
    fn only_the_last_chunk_is_small() {
        let mut chunks = received([""; 3]).chunks;
        chunks.swap(0, 1);
        let mut received = Received { chunks, ..Received::default() };
        let (seed, mut before) = (claim("0"), "0".to_owned());
        for chunk in &mut received.chunks {
            let claim = &seed;
            let text = format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{before}\n{EMPTY}\n{}",
                claim.date, claim.scope, chunk.sha256
            );
            chunk.signature = hmac_of(claim, SECRET, &text);
            before.clone_from(&chunk.signature);
        }
        assert_eq!(chunks_are_signed(&seed, SECRET, false, &received), Err(SMALL_CHUNK));
    }
}
