//! Times, metadata and hashes as headers, both ways.

use super::{body, options::Config};
use haul_core::{Algo, Entry, Error, ErrorKind, Hashes, Key, Kind, Meta, Mtime, Result, Version};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Metadata that has headers of its own: our name, the header's.
const SYSTEM: [(&str, &str); 6] = [
    ("cache-control", "cache-control"),
    ("content-disposition", "content-disposition"),
    ("content-encoding", "content-encoding"),
    ("content-language", "content-language"),
    ("content-type", "content-type"),
    ("tier", "x-amz-storage-class"),
];
/// Tiers of Azure and of Google, which are no classes here.
const FOREIGN_TIERS: [&str; 10] = [
    "Hot",
    "Cool",
    "Cold",
    "Archive",
    "NEARLINE",
    "COLDLINE",
    "ARCHIVE",
    "MULTI_REGIONAL",
    "REGIONAL",
    "DURABLE_REDUCED_AVAILABILITY",
];
const USER: &str = "x-amz-meta-";
const MTIME: &str = "x-amz-meta-mtime";
const MD5SUM: &str = "x-amz-meta-md5chksum";

/// Facts stored with a key.
pub struct MetaFacts<'a> {
    pub mtime: Option<Mtime>,
    pub meta: Option<&'a Meta>,
    /// MD5 of content that is uploaded in parts, whose ETag won't be it.
    pub md5: Option<&'a [u8]>,
}

/// Headers of a request that creates a key: metadata, ACL, storage class, encryption.
///
/// Errors: `Invalid` for metadata whose name can't be a header.
pub fn to_headers(config: &Config, key: &[u8], kept: &MetaFacts<'_>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut put = |name: &str, value: &str| -> Result<()> {
        headers.insert(header_name(name)?, header_value(value));
        Ok(())
    };
    put("content-type", &content_type(key))?;
    for (name, value) in [
        ("x-amz-acl", &config.acl),
        ("x-amz-storage-class", &config.storage_class),
        ("x-amz-server-side-encryption", &config.server_side_encryption),
        ("x-amz-server-side-encryption-aws-kms-key-id", &config.sse_kms_key_id),
    ] {
        if !value.is_empty() {
            put(name, value)?;
        }
    }
    for (name, value) in config.lock.iter().filter(|(_, value)| !value.is_empty()) {
        put(name, value)?;
    }
    for (name, value) in kept.meta.into_iter().flatten() {
        match SYSTEM.iter().find(|(ours, _)| ours == name) {
            Some(("tier", _)) if FOREIGN_TIERS.contains(&value.as_str()) => {}
            Some((_, header)) => put(header, value)?,
            None if name == "mtime" => {
                let text = value.parse().ok().map(|t: jiff::Timestamp| mtime_text(Mtime(t.as_nanosecond())));
                put(MTIME, text.as_deref().unwrap_or(value))?;
            }
            None => put(&format!("{USER}{name}"), value)?,
        }
    }
    if let Some(mtime) = kept.mtime {
        put(MTIME, &mtime_text(mtime))?;
    }
    if let Some(md5) = kept.md5 {
        put(MD5SUM, &body::to_base64(md5))?;
    }
    customer_key(config, "x-amz-server-side-encryption-customer-", &mut headers);
    Ok(headers)
}

/// Headers that name the user's own encryption key, for requests that read or send content.
pub fn customer_key(config: &Config, prefix: &str, headers: &mut HeaderMap) {
    let Some(key) = &config.sse_customer else { return };
    for (name, value) in [("algorithm", &key.algorithm), ("key", &key.key_base64), ("key-md5", &key.key_md5_base64)] {
        if let Ok(name) = header_name(&format!("{prefix}{name}")) {
            headers.insert(name, header_value(value));
        }
    }
}

fn header_name(name: &str) -> Result<HeaderName> {
    HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes()).map_err(|_| {
        let name = name.trim_start_matches(USER);
        Error::new(
            ErrorKind::Invalid,
            "write",
            format!("metadata name {name:?} can't be a header: use letters, digits and -"),
        )
    })
}

/// Values that aren't plain text go as RFC 2047 words, as S3 itself returns them.
fn header_value(value: &str) -> HeaderValue {
    let plain = value.bytes().all(|b| (b' '..0x7f).contains(&b)) && value.trim() == value && !value.starts_with("=?");
    let text = if plain { value.to_owned() } else { format!("=?UTF-8?B?{}?=", body::to_base64(value.as_bytes())) };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn from_header_value(value: &HeaderValue) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD as B64};
    let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
    let word = text.strip_prefix("=?UTF-8?").or_else(|| text.strip_prefix("=?utf-8?"));
    let Some(word) = word.and_then(|w| w.strip_suffix("?=")) else { return text };
    let bytes = match word.split_at_checked(2) {
        Some(("B?" | "b?", data)) => B64.decode(data).ok(),
        Some(("Q?" | "q?", data)) => Some(unquote(data)),
        _ => None,
    };
    bytes.and_then(|b| String::from_utf8(b).ok()).unwrap_or(text)
}

fn unquote(text: &str) -> Vec<u8> {
    let percent = text.replace('%', "=25").replace('_', " ").replace('=', "%");
    percent_encoding::percent_decode_str(&percent).collect()
}

fn content_type(key: &[u8]) -> String {
    let name = String::from_utf8_lossy(haul_core::key::name(key)).into_owned();
    mime_guess::from_path(&name).first_raw().unwrap_or("application/octet-stream").to_owned()
}

/// Facts about a key from the headers of a GET or HEAD; `size` is of the whole content.
pub fn entry(config: &Config, key: &Key, headers: &HeaderMap, size: u64) -> Entry {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let changed = text("last-modified").and_then(http_date);
    let mut entry = Entry::file(key.clone(), size);
    if key.is_dir() {
        entry.kind = Kind::Dir;
    }
    entry.changed = changed;
    entry.mtime = text(MTIME).and_then(parse_mtime).or(changed);
    entry.version = etag(headers).map(version);
    entry.hashes = hashes(config, headers);
    entry.meta = Some(Box::new(from_headers(headers, &entry)));
    entry
}

fn from_headers(headers: &HeaderMap, entry: &Entry) -> Meta {
    let mut meta = Meta::new();
    for (ours, header) in SYSTEM {
        if let Some(value) = headers.get(header) {
            meta.insert(ours.to_owned(), from_header_value(value));
        }
    }
    for (name, value) in headers {
        if let Some(user) = name.as_str().strip_prefix(USER)
            && name != MTIME
            && name != MD5SUM
        {
            meta.insert(user.to_owned(), from_header_value(value));
        }
    }
    for (name, time) in [("mtime", entry.mtime), ("btime", entry.changed)] {
        if let Some(text) = time.and_then(rfc3339) {
            meta.entry(name.to_owned()).or_insert(text);
        }
    }
    meta
}

fn rfc3339(time: Mtime) -> Option<String> {
    jiff::Timestamp::from_nanosecond(time.0).ok().map(|t| t.to_string())
}

/// Hashes that headers carry: the ETag where it is one, a checksum of the whole, rclone's `md5chksum`.
pub fn hashes(config: &Config, headers: &HeaderMap) -> Hashes {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let mut hashes = Hashes::default();
    let encryption = text("x-amz-server-side-encryption").unwrap_or_default();
    let customer = text("x-amz-server-side-encryption-customer-algorithm").is_some();
    if config.etag_is_md5()
        && !encryption.starts_with("aws:kms")
        && !customer
        && let Some(md5) = etag(headers).and_then(etag_md5)
    {
        hashes.set(Algo::Md5, md5);
    }
    if hashes.is_empty()
        && let Some(md5) = text(MD5SUM).and_then(|t| body::from_base64(Algo::Md5, t))
    {
        hashes.set(Algo::Md5, md5);
    }
    for (name, algo) in [
        ("x-amz-checksum-crc64nvme", Algo::Crc64Nvme),
        ("x-amz-checksum-crc32c", Algo::Crc32c),
        ("x-amz-checksum-crc32", Algo::Crc32),
        ("x-amz-checksum-sha1", Algo::Sha1),
        ("x-amz-checksum-sha256", Algo::Sha256),
    ] {
        // A checksum of checksums ends in `-N`, which isn't base64.
        let composite = text("x-amz-checksum-type").is_some_and(|t| t.eq_ignore_ascii_case("COMPOSITE"));
        if let Some(value) = text(name).filter(|_| !composite).and_then(|t| body::from_base64(algo, t)) {
            hashes.set(algo, value);
        }
    }
    hashes
}

/// The ETag of an answer; `None` when there is none, or an empty one.
pub fn etag(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("etag")?.to_str().ok()?;
    (!text.trim().trim_matches('"').is_empty()).then_some(text)
}

/// The version that an ETag pins, without its quotes.
pub fn version(etag: &str) -> Version {
    Version::new(etag.trim().trim_matches('"'))
}

/// A version as `If-Match` wants it.
pub fn quoted(version: &Version) -> String {
    format!("\"{}\"", String::from_utf8_lossy(&version.0))
}

/// The MD5 that an ETag is, if it looks like one.
pub fn etag_md5(etag: &str) -> Option<Vec<u8>> {
    let plain = etag.trim().trim_matches('"');
    (plain.len() == 32).then(|| haul_core::hash::from_hex(plain)).flatten()
}

/// Seconds since the epoch with up to 9 digits of fraction, as rclone writes it.
pub fn mtime_text(time: Mtime) -> String {
    let sign = if time.0 < 0 { "-" } else { "" };
    let (secs, nanos) = (time.0.unsigned_abs() / 1_000_000_000, time.0.unsigned_abs() % 1_000_000_000);
    if nanos == 0 {
        return format!("{sign}{secs}");
    }
    let fraction = format!("{nanos:09}");
    format!("{sign}{secs}.{}", fraction.trim_end_matches('0'))
}

/// The reverse of [`mtime_text`], exactly; digits beyond the ninth are dropped.
pub fn parse_mtime(text: &str) -> Option<Mtime> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (secs, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if secs.is_empty() || !all_digits(secs) || !all_digits(fraction) {
        return None;
    }
    let nanos = format!("{fraction:0<9}");
    let secs: i64 = secs.parse().ok()?;
    Some(Mtime(sign * (i128::from(secs) * 1_000_000_000 + nanos[..9].parse::<i128>().ok()?)))
}

fn http_date(text: &str) -> Option<Mtime> {
    let time = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Mtime(time.as_nanosecond()))
}

/// A time as listings write it.
pub fn iso_date(text: &str) -> Option<Mtime> {
    let time: jiff::Timestamp = text.trim().parse().ok()?;
    Some(Mtime(time.as_nanosecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways_in_full() {
        for (time, text) in [
            (Mtime::new(1_704_164_645, 120_000_000), "1704164645.12"),
            (Mtime::new(1_704_164_645, 0), "1704164645"),
            (Mtime::new(1_700_000_000, 123_456_789), "1700000000.123456789"),
            (Mtime(-315_521_754_500_000_000), "-315521754.5"),
            (Mtime(1), "0.000000001"),
            (Mtime(-1), "-0.000000001"),
            (Mtime(0), "0"),
        ] {
            assert_eq!(mtime_text(time), text);
            assert_eq!(parse_mtime(text), Some(time));
        }
        assert_eq!(parse_mtime("1.1234567899"), Some(Mtime(1_123_456_789)));
        for bad in ["", "-", ".5", "1e9", "1.x", "2024-01-01"] {
            assert_eq!(parse_mtime(bad), None, "{bad}");
        }
    }

    #[test]
    fn metadata_goes_both_ways() {
        let config = Config::read(&crate::tests::request("", vec![])).unwrap();
        let meta: Meta = [
            ("cache-control", "no-cache"),
            ("content-type", "text/x-own"),
            ("colour", "grün\n"),
            ("mode", "100644"),
            ("mtime", "2024-01-02T03:04:05.12Z"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        let kept = MetaFacts { mtime: None, meta: Some(&meta), md5: Some(&[1; 16]) };
        let headers = to_headers(&config, b"a/b.txt", &kept).unwrap();
        assert_eq!(headers["content-type"], "text/x-own");
        assert_eq!(headers["x-amz-meta-mtime"], "1704164645.12");
        assert_eq!(headers["x-amz-meta-md5chksum"], "AQEBAQEBAQEBAQEBAQEBAQ==");
        let back = entry(&config, &Key::new("b.txt"), &headers, 3);
        assert_eq!(*back.meta.unwrap(), meta);
        assert_eq!(back.hashes.get(Algo::Md5), Some(&[1; 16][..]));
        let bad: Meta = [("no header".to_owned(), String::new())].into();
        let error = to_headers(&config, b"k", &MetaFacts { mtime: None, meta: Some(&bad), md5: None }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "write: metadata name \"no header\" can't be a header: use letters, digits and -"
        );
    }

    #[test]
    fn encoded_words_are_read() {
        for (header, text) in [("=?UTF-8?Q?gr=C3=BCn_x?=", "grün x"), ("=?UTF-8?B?Z3LDvG4=?=", "grün"), ("=?x", "=?x")]
        {
            assert_eq!(from_header_value(&HeaderValue::from_static(header)), text);
        }
    }

    #[test]
    fn only_plain_etags_and_whole_checksums_are_hashes() {
        let read = |options: Vec<(String, String)>, headers: &[(&'static str, &'static str)]| {
            let config = Config::read(&crate::tests::request("", options)).unwrap();
            let headers = headers.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect();
            hashes(&config, &headers).iter().map(|(a, _)| a).collect::<Vec<_>>()
        };
        let etag = ("etag", "\"764efa883dda1e11db47671c4a3bbd9e\"");
        assert_eq!(read(vec![], &[etag]), [Algo::Md5]);
        assert_eq!(read(vec![], &[("etag", "\"764efa883dda1e11db47671c4a3bbd9e-3\"")]), []);
        assert_eq!(read(vec![], &[etag, ("x-amz-server-side-encryption", "aws:kms")]), []);
        assert_eq!(read(vec![("server_side_encryption".into(), "aws:kms".into())], &[etag]), []);
        assert_eq!(read(vec![], &[("x-amz-checksum-crc64nvme", "rosUhgp5mIg=")]), [Algo::Crc64Nvme]);
        assert_eq!(read(vec![], &[("x-amz-checksum-crc64nvme", "rosUhgp5mIg=-2")]), []);
        let composite = ("x-amz-checksum-type", "COMPOSITE");
        assert_eq!(read(vec![], &[("x-amz-checksum-crc32c", "4waSgw=="), composite]), []);
    }
}
