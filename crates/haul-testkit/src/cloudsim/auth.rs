//! Signatures (SigV4) of requests and links: by the key that is known, for the right region, now, over all that is said. Links
//! end. Requests without any are let through, as to a bucket that everybody may use.

use super::{body::Received, operation::decoded, serve::Refusal};
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
    Ok(Some(claim.region))
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
    let asked = |name: &str| {
        query.iter().find(|(n, _)| n == name).map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let (credential, names, signature, date, expires) = if let Some(signature) = asked("X-Amz-Signature") {
        let of = |name: &str| asked(name).ok_or_else(|| malformed("a parameter is missing"));
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
    let text = format!("AWS4-HMAC-SHA256\n{}\n{}\n{digest}", claim.date, claim.scope);
    let mut key = format!("AWS4{SECRET_KEY}").into_bytes();
    for part in claim.scope.split('/').chain([&text[..]]) {
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
