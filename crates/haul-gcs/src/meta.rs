//! The service's facts about an object, and those that are sent to it.

use base64::{Engine, engine::general_purpose::STANDARD as B64};
use haul_core::{Algo, Entry, Hashes, Key, Kind, Meta, Mtime, Version};
use haul_oauth::google::FileFacts;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Metadata that are properties: our name, the service's.
pub const SYSTEM: [(&str, &str); 5] = [
    ("cache-control", "cacheControl"),
    ("content-disposition", "contentDisposition"),
    ("content-encoding", "contentEncoding"),
    ("content-language", "contentLanguage"),
    ("content-type", "contentType"),
];
/// Storage classes.
const CLASSES: [&str; 7] =
    ["STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "MULTI_REGIONAL", "REGIONAL", "DURABLE_REDUCED_AVAILABILITY"];
/// The metadata in which rclone keeps the time, …
const MTIME: &str = "mtime";
/// … and that of gsutil, in seconds.
const SECONDS: &str = "goog-reserved-file-mtime";

/// Fields requested for each listed object, to keep pages small.
pub const FIELDS: &str = "name,size,generation,updated,timeCreated,md5Hash,crc32c,metadata,contentType,contentEncoding,contentLanguage,contentDisposition,cacheControl";

/// An object, as the service describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object {
    pub name: String,
    /// A number, as text.
    pub size: Option<String>,
    pub generation: Option<String>,
    pub updated: Option<String>,
    /// When its bytes were stored: `updated` moves with its metadata too.
    pub time_created: Option<String>,
    pub md5_hash: String,
    pub crc32c: String,
    pub metadata: BTreeMap<String, String>,
    pub content_type: String,
    pub content_encoding: String,
    pub content_language: String,
    pub content_disposition: String,
    pub cache_control: String,
}

impl FileFacts for Object {
    fn size(&self) -> Option<u64> {
        self.told_size()
    }
}

impl Object {
    /// Bytes; `None` when missing.
    pub fn told_size(&self) -> Option<u64> {
        self.size.as_deref()?.parse().ok().and_then(haul_store::web::believed)
    }

    /// Its version; `None` when missing.
    pub fn version(&self) -> Option<Version> {
        self.generation.as_ref().filter(|text| !text.is_empty()).map(Version::new)
    }

    /// Hashes of the whole content, by the service.
    pub fn hashes(&self) -> Hashes {
        hashes(&self.md5_hash, &self.crc32c)
    }

    /// The time that was given to it.
    pub fn kept(&self) -> Option<Mtime> {
        let seconds = || self.metadata.get(SECONDS)?.trim().parse().ok().map(|secs| Mtime::new(secs, 0));
        self.metadata.get(MTIME).and_then(|text| time(text)).or_else(seconds)
    }

    /// The entry of a key; with metadata only if it is wanted. `None` without a size or a version.
    pub fn entry(&self, key: Key, wanted: bool) -> Option<Entry> {
        let mut entry = Entry::file(key, self.size()?);
        if entry.key.is_dir() {
            entry.kind = Kind::Dir;
        }
        let updated = self.updated.as_deref().and_then(time);
        entry.changed = self.time_created.as_deref().and_then(time).or(updated);
        entry.mtime = self.kept().or(updated);
        entry.version = Some(self.version()?);
        entry.hashes = self.hashes();
        if wanted {
            entry.meta = Some(Box::new(self.meta(entry.mtime, updated)));
        }
        Some(entry)
    }

    fn meta(&self, mtime: Option<Mtime>, changed: Option<Mtime>) -> Meta {
        let own = |name: &str| match name {
            "cache-control" => &self.cache_control,
            "content-disposition" => &self.content_disposition,
            "content-encoding" => &self.content_encoding,
            "content-language" => &self.content_language,
            _ => &self.content_type,
        };
        let user = self.metadata.iter().filter(|(name, _)| !matches!(&***name, MTIME | SECONDS));
        let mut meta: Meta = user.map(|(name, value)| (name.clone(), value.clone())).collect();
        for (name, _) in SYSTEM {
            if !own(name).is_empty() {
                meta.insert(name.to_owned(), own(name).clone());
            }
        }
        for (name, time) in [(MTIME, mtime), ("btime", changed)] {
            if let Some(time) = time.and_then(|time| jiff::Timestamp::from_nanosecond(time.0).ok()) {
                meta.insert(name.to_owned(), time.to_string());
            }
        }
        meta
    }
}

/// Hashes from base64; what isn't one is left out.
pub fn hashes(md5: &str, crc32c: &str) -> Hashes {
    let mut hashes = Hashes::default();
    for (algo, text, len) in [(Algo::Md5, md5, 16), (Algo::Crc32c, crc32c, 4)] {
        if let Some(hash) = B64.decode(text).ok().filter(|hash| hash.len() == len) {
            hashes = hashes.with(algo, hash);
        }
    }
    hashes
}

/// Parses the service's form of a time.
pub fn time(text: &str) -> Option<Mtime> {
    text.trim().parse::<jiff::Timestamp>().ok().map(|time| Mtime(time.as_nanosecond()))
}

/// The storage class in the metadata. Classes of other kinds of stores are ignored.
pub fn class(meta: Option<&Meta>) -> Option<&String> {
    meta?.get("tier").filter(|class| CLASSES.contains(&class.as_str()))
}

/// The resource of a written object: properties, metadata, time; `name` decides on its type where nothing else does.
pub fn resource(name: &str, mtime: Option<Mtime>, meta: Option<&Meta>) -> Map<String, Value> {
    let mut resource = Map::new();
    let leaf = String::from_utf8_lossy(haul_core::key::name(name.as_bytes())).into_owned();
    let guessed = mime_guess::from_path(&leaf).first_raw().unwrap_or("application/octet-stream");
    resource.insert("contentType".into(), guessed.into());
    for (ours, theirs) in SYSTEM {
        if let Some(value) = meta.and_then(|meta| meta.get(ours)) {
            resource.insert(theirs.into(), value.as_str().into());
        }
    }
    let own = |name: &str| matches!(name, MTIME | "btime" | "tier") || SYSTEM.iter().any(|(ours, _)| *ours == name);
    let user = meta.into_iter().flatten().filter(|(name, _)| !own(name));
    let mut user: Map<String, Value> = user.map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    user.extend(times(mtime));
    resource.insert("metadata".into(), user.into());
    resource
}

/// The time, in both ways in which tools look for it.
pub fn times(mtime: Option<Mtime>) -> Map<String, Value> {
    let mut times = Map::new();
    if let Some(mtime) = mtime {
        let text = jiff::Timestamp::from_nanosecond(mtime.0).unwrap_or_default();
        times.insert(MTIME.into(), text.strftime("%Y-%m-%dT%H:%M:%S%.9fZ").to_string().into());
        times.insert(SECONDS.into(), json!(mtime.secs().to_string()));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_an_entry() {
        let text = r#"{"name":"d/a","size":"3","generation":"17","updated":"2024-01-02T03:04:05.678Z","md5Hash":"kAFQmDzST7DWlj99KOF/cg==",
            "crc32c":"Nks/tw==","metadata":{"mtime":"2020-09-13T14:26:40.12+02:00","note":"x"},"contentType":"text/plain"}"#;
        let object: Object = serde_json::from_str(text).unwrap();
        let entry = object.entry(Key::new("a"), true).unwrap();
        assert_eq!((entry.size, entry.version), (3, Some(Version::new("17"))));
        assert_eq!(entry.hashes, haul_core::hash::hash_bytes(&[Algo::Md5, Algo::Crc32c], b"abc"));
        assert_eq!(entry.mtime, Some(Mtime(1_600_000_000_120_000_000)));
        let meta = entry.meta.unwrap();
        assert_eq!(meta.get("note").map(String::as_str), Some("x"));
        assert_eq!(meta.get("content-type").map(String::as_str), Some("text/plain"));
        let gsutils = Object { metadata: [(SECONDS.to_owned(), "1600000000".to_owned())].into(), ..object.clone() };
        assert_eq!(gsutils.kept(), Some(Mtime::new(1_600_000_000, 0)));
        for bad in [Object { size: None, ..object.clone() }, Object { generation: None, ..object }] {
            assert!(bad.entry(Key::new("a"), false).is_none());
        }
    }

    #[test]
    fn times_go_both_ways() {
        for time in [Mtime(1_600_000_000_120_000_007), Mtime(-1), Mtime(0)] {
            let metadata =
                times(Some(time)).into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned()));
            assert_eq!(Object { metadata: metadata.collect(), ..Object::default() }.kept(), Some(time));
        }
        let meta: Meta = [("content-type", "text/x"), ("note", "größe"), ("btime", "x"), ("tier", "NEARLINE")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        let resource = Value::from(resource("a.txt", None, Some(&meta)));
        assert_eq!(resource, json!({ "contentType": "text/x", "metadata": { "note": "größe" } }));
        assert_eq!(class(Some(&meta)).map(String::as_str), Some("NEARLINE"));
        let glacier: Meta = [("tier".to_owned(), "GLACIER".to_owned())].into();
        assert_eq!(class(Some(&glacier)), None);
    }
}
