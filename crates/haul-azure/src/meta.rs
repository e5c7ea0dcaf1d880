//! Times, metadata and hashes as headers and properties, both ways.

use crate::options::Config;
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use haul_core::{Algo, Entry, Error, ErrorKind, Hashes, Key, Kind, Meta, Mtime, Result, Version};
use haul_store::web;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Metadata that has headers of its own: our name, the request header, the response header.
const SYSTEM: [(&str, &str, &str); 5] = [
    ("cache-control", "x-ms-blob-cache-control", "cache-control"),
    ("content-disposition", "x-ms-blob-content-disposition", "content-disposition"),
    ("content-encoding", "x-ms-blob-content-encoding", "content-encoding"),
    ("content-language", "x-ms-blob-content-language", "content-language"),
    ("content-type", "x-ms-blob-content-type", "content-type"),
];
/// Tiers of blobs.
const TIERS: [&str; 4] = ["Hot", "Cool", "Cold", "Archive"];
const USER: &str = "x-ms-meta-";
/// The metadata in which rclone keeps the time.
pub const MTIME: &str = "mtime";
/// The metadata of a directory, in accounts that have such.
pub const FOLDER: &str = "hdi_isfolder";

/// Headers of a request that creates a blob: properties and metadata.
///
/// Errors: `Invalid` for metadata whose name can't be a header.
pub fn to_headers(
    config: &Config,
    blob: &[u8],
    mtime: Option<Mtime>,
    meta: Option<&Meta>,
    md5: Option<&[u8]>,
) -> Result<HeaderMap> {
    let mut headers = user_headers(mtime, meta)?;
    let mut put = |name: &'static str, value: &str| drop(headers.insert(name, header_value(value)));
    put("x-ms-blob-content-type", &content_type(blob));
    for (name, header, _) in SYSTEM {
        if let Some(value) = meta.and_then(|meta| meta.get(name)) {
            put(header, value);
        }
    }
    let tier = tier(&config.access_tier, meta);
    if !tier.is_empty() {
        put("x-ms-access-tier", tier);
    }
    if let Some(md5) = md5 {
        put("x-ms-blob-content-md5", &B64.encode(md5));
    }
    Ok(headers)
}

/// The tier in the metadata, else the chosen one. Tiers of other kinds of stores are ignored.
fn tier<'a>(chosen: &'a str, meta: Option<&'a Meta>) -> &'a str {
    let known = |tier: &&String| TIERS.contains(&tier.as_str());
    meta.and_then(|meta| meta.get("tier")).filter(known).map_or(chosen, String::as_str)
}

/// Headers of the metadata alone.
///
/// Errors: as [`to_headers`].
pub fn user_headers(mtime: Option<Mtime>, meta: Option<&Meta>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in meta.into_iter().flatten() {
        if name == "tier" || SYSTEM.iter().any(|(ours, ..)| ours == name) {
            continue;
        }
        let stored =
            value.parse().ok().filter(|_| name == MTIME).map(|t: jiff::Timestamp| mtime_text(Mtime(t.as_nanosecond())));
        headers.insert(user_name(name)?, header_value(stored.as_deref().unwrap_or(value)));
    }
    if let Some(mtime) = mtime {
        headers.insert(user_name(MTIME)?, header_value(&mtime_text(mtime)));
    }
    Ok(headers)
}

/// Properties as a request that sets them needs them: all of them, or those that are left out are removed.
pub fn property_headers(meta: &Meta, md5: Option<&[u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, header, _) in SYSTEM {
        if let Some(value) = meta.get(name) {
            headers.insert(header, header_value(value));
        }
    }
    if let Some(md5) = md5 {
        headers.insert("x-ms-blob-content-md5", header_value(&B64.encode(md5)));
    }
    headers
}

fn user_name(name: &str) -> Result<HeaderName> {
    let is_word = |name: &str| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
    };
    HeaderName::from_bytes(format!("{USER}{}", name.to_ascii_lowercase()).as_bytes())
        .ok()
        .filter(|_| is_word(name))
        .ok_or_else(|| {
            let message = format!("metadata name {name:?} can't be kept by Azure: use letters, digits and _");
            Error::new(ErrorKind::Invalid, "write", message)
        })
}

/// Values that aren't plain text go as RFC 2047 words.
fn header_value(value: &str) -> HeaderValue {
    let plain = value.bytes().all(|b| (b' '..0x7f).contains(&b)) && value.trim() == value && !value.starts_with("=?");
    let text = if plain { value.to_owned() } else { format!("=?UTF-8?B?{}?=", B64.encode(value)) };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn from_value(text: &str) -> String {
    let word = text.strip_prefix("=?UTF-8?B?").and_then(|word| word.strip_suffix("?="));
    let bytes = word.and_then(|word| B64.decode(word).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| text.to_owned())
}

fn content_type(blob: &[u8]) -> String {
    let name = String::from_utf8_lossy(haul_core::key::name(blob)).into_owned();
    mime_guess::from_path(&name).first_raw().unwrap_or("application/octet-stream").to_owned()
}

/// A time as rclone writes it.
fn mtime_text(mtime: Mtime) -> String {
    let time = jiff::Timestamp::from_nanosecond(mtime.0).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.9fZ").to_string()
}

fn parse_mtime(text: &str) -> Option<Mtime> {
    text.trim().parse::<jiff::Timestamp>().ok().map(|time| Mtime(time.as_nanosecond()))
}

/// Facts of a blob, from headers or from a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub size: u64,
    pub etag: String,
    pub changed: Option<Mtime>,
    /// Base64.
    pub md5: String,
    /// Properties by our names, and metadata by its own, in lower case.
    pub meta: Meta,
}

impl Facts {
    /// From the headers of an answer; `size` is of the whole content.
    pub fn of(headers: &HeaderMap, size: u64) -> Facts {
        let text = |name: &str| headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).trim().to_owned());
        let mut meta: Meta = SYSTEM
            .iter()
            .filter_map(|(ours, _, theirs)| Some(((*ours).to_owned(), from_value(&text(theirs)?))))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        for (name, value) in headers {
            if let Some(user) = name.as_str().strip_prefix(USER) {
                meta.insert(user.to_owned(), from_value(&String::from_utf8_lossy(value.as_bytes())));
            }
        }
        if let Some(tier) = text("x-ms-access-tier") {
            meta.insert("tier".into(), tier);
        }
        // The answer to a range has the whole's MD5 in a separate header.
        let md5 = match headers.contains_key("content-range") {
            true => text("x-ms-blob-content-md5"),
            false => text("x-ms-blob-content-md5").or_else(|| text("content-md5")),
        };
        Facts {
            size,
            etag: text("etag").map(|etag| bare(&etag)).unwrap_or_default(),
            changed: text("last-modified").as_deref().and_then(web::date),
            md5: md5.unwrap_or_default(),
            meta,
        }
    }

    /// The MD5 of the content, if its writer supplied one.
    pub fn md5(&self) -> Option<Vec<u8>> {
        B64.decode(&self.md5).ok().filter(|md5| md5.len() == 16)
    }

    /// True for a foreign placeholder of a directory.
    pub fn is_folder(&self) -> bool {
        self.meta.get(FOLDER).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The entry of a key; with metadata only if it is wanted.
    pub fn entry(mut self, key: Key, wanted: bool) -> Entry {
        let mut entry = Entry::file(key.clone(), self.size);
        if key.is_dir() {
            entry.kind = Kind::Dir;
        }
        entry.changed = self.changed;
        let kept = self.meta.remove(MTIME);
        entry.mtime = kept.as_deref().and_then(parse_mtime).or(self.changed);
        entry.version = Some(Version::new(self.etag.clone())).filter(|_| !self.etag.is_empty());
        if let Some(md5) = self.md5() {
            entry.hashes = Hashes::default().with(Algo::Md5, md5);
        }
        if wanted {
            for (name, time) in [(MTIME, entry.mtime), ("btime", entry.changed)] {
                let text =
                    time.and_then(|time| jiff::Timestamp::from_nanosecond(time.0).ok()).map(|time| time.to_string());
                if let Some(text) = text {
                    self.meta.entry(name.to_owned()).or_insert(text);
                }
            }
            entry.meta = Some(Box::new(self.meta));
        }
        entry
    }
}

/// An ETag without quotes: listings have none.
pub fn bare(etag: &str) -> String {
    etag.trim().trim_matches('"').to_owned()
}

/// A version as a condition.
pub fn quoted(version: &Version) -> String {
    format!("\"{}\"", String::from_utf8_lossy(&version.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rclones() {
        let time = Mtime(1_600_000_000_120_000_000);
        assert_eq!(mtime_text(time), "2020-09-13T12:26:40.120000000Z");
        assert_eq!(parse_mtime("2020-09-13T14:26:40.12+02:00"), Some(time));
        assert_eq!(parse_mtime(&mtime_text(Mtime(-1))), Some(Mtime(-1)));
    }

    #[test]
    fn metadata_goes_both_ways() {
        let meta: Meta = [("content-type", "text/x"), ("note", "größe"), ("tier", "Cool")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let headers = user_headers(Some(Mtime(0)), Some(&meta)).unwrap();
        assert_eq!(headers.len(), 2);
        let facts = Facts::of(&headers, 3);
        assert_eq!(facts.meta.get("note").map(String::as_str), Some("größe"));
        let entry = facts.entry(Key::new("x"), true);
        assert_eq!((entry.mtime, entry.meta.unwrap().get("note").cloned()), (Some(Mtime(0)), Some("größe".into())));
        assert_eq!((tier("Hot", Some(&meta)), tier("Hot", None)), ("Cool", "Hot"));
        let glacier: Meta = [("tier".to_owned(), "GLACIER".to_owned())].into();
        assert_eq!(tier("Hot", Some(&glacier)), "Hot");
        for bad in ["a-b", "1a", "", "ä"] {
            let meta: Meta = [(bad.to_owned(), String::new())].into();
            assert_eq!(user_headers(None, Some(&meta)).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
