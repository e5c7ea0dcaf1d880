//! The signature of a request with an account's key (Shared Key). Pure.

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use http::{HeaderMap, Method};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::BTreeMap;

/// A signature for a source lasts longer than a request that copies from it.
pub const LASTS: SignedDuration = SignedDuration::from_hours(1);
/// The version by whose rules such signatures are made.
const VERSION: &str = "2021-12-02";

/// Headers that are signed by their values alone, in this order.
const PLAIN: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// The string to sign: the method, headers, and the path and query as the service reads them.
pub fn text(method: &Method, headers: &HeaderMap, account: &str, path: &str, query: &[(&str, String)]) -> String {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
    let mut text = format!("{method}\n");
    for name in PLAIN {
        let value = value(name);
        // An empty body has no length here.
        text += if name == "content-length" && value == "0" { "" } else { value };
        text.push('\n');
    }
    let own: BTreeMap<&str, &str> = headers
        .keys()
        .map(|name| name.as_str())
        .filter(|name| name.starts_with("x-ms-"))
        .map(|n| (n, value(n)))
        .collect();
    own.iter().for_each(|(name, value)| text += &format!("{name}:{value}\n"));
    text += &format!("/{account}{path}");
    let sorted: BTreeMap<String, &String> =
        query.iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    sorted.iter().for_each(|(name, value)| text += &format!("\n{name}:{value}"));
    text
}

/// The `Authorization` header for a string to sign.
pub fn authorization(account: &str, key: &[u8], text: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    format!("SharedKey {account}:{}", B64.encode(tag))
}

/// Query of a service SAS: whoever has it may read this blob until then.
pub fn sas(account: &str, key: &[u8], container: &str, blob: &str, until: Timestamp) -> String {
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    // Rights, begin, end, what, policy, addresses, protocols, version, a blob; neither snapshot, encryption scope nor headers.
    let text = format!("r\n\n{until}\n/blob/{account}/{container}/{blob}\n\n\n\n{VERSION}\nb\n\n\n\n\n\n\n");
    let tag = B64.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()));
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    format!("sv={VERSION}&sr=b&sp=r&se={}&sig={}", encoded(&until), encoded(&tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_is_signed() {
        let headers =
            [("x-ms-version", "2021-12-02"), ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"), ("range", "bytes=0-9")];
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| {
            map.insert(*name, HeaderValue::from_static(value));
        });
        map.insert("content-length", HeaderValue::from_static("0"));
        let query = [("restype", "container".to_owned()), ("comp", "list".to_owned()), ("prefix", "a b".to_owned())];
        assert_eq!(
            text(&Method::GET, &map, "acct", "/mine", &query),
            "GET\n\n\n\n\n\n\n\n\n\n\nbytes=0-9\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2021-12-02\n\
             /acct/mine\ncomp:list\nprefix:a b\nrestype:container"
        );
    }
}
