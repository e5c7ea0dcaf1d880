//! Signature Version 4: signing requests and presigning links.

use aws_lc_rs::{digest, hmac};
use haul_core::hash::to_hex;
use jiff::{Timestamp, tz::TimeZone};
use std::sync::{Arc, Mutex};

/// Stands for a body's hash that isn't part of the signature.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// As [`UNSIGNED`], for a chunked body that ends in its checksum.
pub const UNSIGNED_WITH_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
/// SHA-256 of nothing.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Who signs.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
    pub token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(hidden)")
    }
}

/// Signs for one service; keeps the signing key of the day.
#[derive(Debug)]
pub struct Signer {
    service: &'static str,
    key: Mutex<Option<Arc<DayKey>>>,
}

struct DayKey {
    date: String,
    region: String,
    secret: String,
    key: hmac::Key,
}

impl std::fmt::Debug for DayKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DayKey({}, {})", self.date, self.region)
    }
}

/// The signed parts of a request, already encoded.
pub struct Signed<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// Sorted and encoded, joined with `&`.
    pub query: &'a str,
    /// Lower-case names with values, sorted by name.
    pub headers: &'a [(&'a str, &'a str)],
    pub payload_hash: &'a str,
    pub region: &'a str,
    pub at: Timestamp,
}

impl Signer {
    /// A signer for `service`.
    pub fn new(service: &'static str) -> Signer {
        Signer { service, key: Mutex::new(None) }
    }

    /// The `Authorization` header's value.
    pub fn authorization(&self, credentials: &Credentials, what: &Signed<'_>) -> String {
        let signature = self.signature(credentials, what);
        let scope = self.scope(what);
        let names = signed_names(what.headers);
        let access_key = &credentials.access_key;
        format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}")
    }

    /// The query of a link that is good for `seconds`.
    pub fn presigned_query(&self, credentials: &Credentials, what: &Signed<'_>, seconds: u64) -> String {
        let enc = |text: &str| super::address::encode_query(text.as_bytes());
        let credential = format!("{}/{}", credentials.access_key, self.scope(what));
        let mut pairs = vec![
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("X-Amz-Credential", enc(&credential)),
            ("X-Amz-Date", amz_date(what.at)),
            ("X-Amz-Expires", seconds.to_string()),
        ];
        if let Some(token) = &credentials.token {
            pairs.push(("X-Amz-Security-Token", enc(token)));
        }
        pairs.push(("X-Amz-SignedHeaders", enc(&signed_names(what.headers))));
        let query = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&");
        let signature = self.signature(credentials, &Signed { query: &query, ..*what });
        format!("{query}&X-Amz-Signature={signature}")
    }

    fn signature(&self, credentials: &Credentials, what: &Signed<'_>) -> String {
        let request = canonical_request(what);
        let hash = sha256_hex(request.as_bytes());
        let text = format!("AWS4-HMAC-SHA256\n{}\n{}\n{hash}", amz_date(what.at), self.scope(what));
        let key = self.day_key(credentials, what);
        to_hex(hmac::sign(&key.key, text.as_bytes()).as_ref())
    }

    fn scope(&self, what: &Signed<'_>) -> String {
        format!("{}/{}/{}/aws4_request", &amz_date(what.at)[..8], what.region, self.service)
    }

    fn day_key(&self, credentials: &Credentials, what: &Signed<'_>) -> Arc<DayKey> {
        let date = amz_date(what.at)[..8].to_owned();
        let mut kept = self.key.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(k) = &*kept
            && k.date == date
            && k.region == what.region
            && k.secret == credentials.secret_key
        {
            return k.clone();
        }
        let mut key = format!("AWS4{}", credentials.secret_key).into_bytes();
        for part in [&date, what.region, self.service, "aws4_request"] {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        let fresh = Arc::new(DayKey {
            date,
            region: what.region.to_owned(),
            secret: credentials.secret_key.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        });
        *kept = Some(fresh.clone());
        fresh
    }
}

fn canonical_request(what: &Signed<'_>) -> String {
    let mut text = format!("{}\n{}\n{}\n", what.method, what.path, what.query);
    for (name, value) in what.headers {
        text.push_str(name);
        text.push(':');
        // Runs of spaces count as one, and none at the ends.
        let mut words = value.split(' ').filter(|w| !w.is_empty());
        text.extend(words.next());
        words.for_each(|w| {
            text.push(' ');
            text.push_str(w);
        });
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&signed_names(what.headers));
    text.push('\n');
    text.push_str(what.payload_hash);
    text
}

fn signed_names(headers: &[(&str, &str)]) -> String {
    headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
}

/// A time as `x-amz-date` writes it.
pub fn amz_date(at: Timestamp) -> String {
    let t = TimeZone::UTC.to_datetime(at);
    let (y, m, d) = (t.year(), t.month(), t.day());
    format!("{y:04}{m:02}{d:02}T{:02}{:02}{:02}Z", t.hour(), t.minute(), t.second())
}

/// SHA-256 in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    to_hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The examples that AWS publishes in "Signature Calculations for the Authorization Header" and "Authenticating
    // Requests: Using Query Parameters" of the S3 API reference.
    fn credentials() -> Credentials {
        Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        }
    }

    const AT: &str = "2013-05-24T00:00:00Z";
    const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");
    const DATE: (&str, &str) = ("x-amz-date", "20130524T000000Z");

    fn signature(method: &str, path: &str, query: &str, headers: &[(&str, &str)], payload_hash: &str) -> String {
        let what = Signed { method, path, query, headers, payload_hash, region: "us-east-1", at: AT.parse().unwrap() };
        let text = Signer::new("s3").authorization(&credentials(), &what);
        text.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn get_with_range() {
        let headers = [HOST, ("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY_SHA256), DATE];
        assert_eq!(
            signature("GET", "/test.txt", "", &headers, EMPTY_SHA256),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    #[test]
    fn put_with_storage_class() {
        let hash = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        assert_eq!(sha256_hex(b"Welcome to Amazon S3."), hash);
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            HOST,
            ("x-amz-content-sha256", hash),
            DATE,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        assert_eq!(
            signature("PUT", "/test%24file.text", "", &headers, hash),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
    }

    #[test]
    fn get_with_a_query() {
        let headers = [HOST, ("x-amz-content-sha256", EMPTY_SHA256), DATE];
        assert_eq!(
            signature("GET", "/", "lifecycle=", &headers, EMPTY_SHA256),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature("GET", "/", "max-keys=2&prefix=J", &headers, EMPTY_SHA256),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn presigned_link() {
        let what = Signed {
            method: "GET",
            path: "/test.txt",
            query: "",
            headers: &[HOST],
            payload_hash: UNSIGNED,
            region: "us-east-1",
            at: AT.parse().unwrap(),
        };
        let query = Signer::new("s3").presigned_query(&credentials(), &what, 86400);
        assert!(
            query.starts_with("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2F")
        );
        assert!(query.ends_with("aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"), "{query}");
    }

    #[test]
    fn the_day_key_follows_day_region_and_secret() {
        let signer = Signer::new("s3");
        let sign = |credentials: &Credentials, region, at: &str| {
            let at = at.parse().unwrap();
            let what =
                Signed { method: "GET", path: "/", query: "", headers: &[HOST], payload_hash: UNSIGNED, region, at };
            let fresh = Signer::new("s3").authorization(credentials, &what);
            assert_eq!(signer.authorization(credentials, &what), fresh);
        };
        let other = Credentials { secret_key: "other".into(), ..credentials() };
        sign(&credentials(), "us-east-1", AT);
        sign(&credentials(), "eu-west-1", AT);
        sign(&credentials(), "eu-west-1", "2013-05-25T00:00:00Z");
        sign(&other, "eu-west-1", "2013-05-25T00:00:00Z");
    }

    #[test]
    fn secrets_stay_out_of_debug_output() {
        let signer = Signer::new("s3");
        let what = Signed {
            method: "GET",
            path: "/",
            query: "",
            headers: &[HOST],
            payload_hash: UNSIGNED,
            region: "r",
            at: AT.parse().unwrap(),
        };
        signer.authorization(&credentials(), &what);
        let shown = format!("{signer:?} {:?}", credentials());
        assert!(!shown.contains("wJalr") && !shown.contains("AKIA"), "{shown}");
    }
}
