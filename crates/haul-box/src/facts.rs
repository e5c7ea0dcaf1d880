//! The service's facts about a file or folder.

use haul_core::{Algo, Entry, Error, ErrorKind, Hashes, Key, Mtime, Result, Version, hash::from_hex};
use haul_store::web;
use serde::Deserialize;

/// Fields requested for each item, to keep answers small.
pub const FIELDS: &str = "type,id,etag,sha1,name,size,modified_at,content_modified_at,item_status,owned_by";

/// A file, a folder or a bookmark (`web_link`).
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Item {
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
    #[serde(default)]
    pub name: String,
    pub etag: Option<String>,
    pub sha1: Option<String>,
    /// Large ones come as `1.0e+12`.
    size: Option<serde_json::Number>,
    modified_at: Option<String>,
    content_modified_at: Option<String>,
    item_status: Option<String>,
    owned_by: Option<Owner>,
}

#[derive(Clone, Debug, Deserialize)]
struct Owner {
    #[serde(default)]
    login: String,
}

/// True for a valid id: it goes into addresses unescaped.
pub fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// A number of bytes, which may come as a fraction.
pub fn whole(number: &serde_json::Number) -> Option<u64> {
    number
        .as_u64()
        .or_else(|| number.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0 && *n < 1.8e19).map(|n| n as u64))
}

/// A time as the service takes it: whole seconds.
pub fn time(mtime: Mtime) -> Option<String> {
    Some(jiff::Timestamp::from_second(mtime.secs()).ok()?.to_string())
}

impl Item {
    pub fn is_folder(&self) -> bool {
        self.kind == "folder"
    }

    pub fn is_file(&self) -> bool {
        self.kind == "file"
    }

    /// It is where it was put, not in the trash.
    pub fn is_there(&self) -> bool {
        self.item_status.as_deref().is_none_or(|status| status == "active")
    }

    pub fn is_owned_by(&self, login: &str) -> bool {
        self.owned_by.as_ref().is_some_and(|owner| owner.login == login)
    }

    pub fn size(&self) -> Option<u64> {
        self.size.as_ref().and_then(whole).and_then(web::believed)
    }

    pub fn mtime(&self) -> Option<Mtime> {
        let time: jiff::Timestamp =
            self.content_modified_at.as_deref().or(self.modified_at.as_deref())?.parse().ok()?;
        Some(Mtime(time.as_nanosecond()))
    }

    pub fn hashes(&self) -> Hashes {
        let value = self.sha1.as_deref().and_then(from_hex).filter(|value| value.len() == Algo::Sha1.size());
        value.map_or_else(Hashes::default, |value| Hashes::default().with(Algo::Sha1, value))
    }

    /// Its version: the item, and its ETag, which every change renews.
    pub fn version(&self) -> Option<Version> {
        let tag = self.etag.as_ref().filter(|tag| !tag.is_empty())?;
        Some(Version::new(format!("{}\n{tag}", self.id)))
    }

    /// The entry of `key`; whether the key is a directory's isn't checked.
    ///
    /// Errors: a required field is missing.
    pub fn entry(&self, key: &Key) -> Result<Entry> {
        let wrong = |why: &str| Error::new(ErrorKind::Invalid, "list", why).with_key(key);
        if self.is_folder() {
            let plain = key.as_bytes().strip_suffix(b"/").unwrap_or(key.as_bytes());
            return Ok(Entry { mtime: self.mtime(), ..Entry::dir(Key::new(plain)) });
        }
        let size = self.size().ok_or_else(|| wrong("the service doesn't say how long this file is"))?;
        let version = self.version().ok_or_else(|| wrong("the service names no version of this file (etag)"))?;
        Ok(Entry {
            mtime: self.mtime(),
            version: Some(version),
            hashes: self.hashes(),
            ..Entry::file(key.clone(), size)
        })
    }
}

/// Id and tag of a version; `None` for one that isn't ours.
pub fn ids(version: &Version) -> Option<(&str, &str)> {
    let (id, tag) = std::str::from_utf8(&version.0).ok()?.split_once('\n')?;
    (!id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric())).then_some((id, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times() {
        let item = |size: &str| -> Item {
            let text = format!(
                "{{\"type\":\"file\",\"id\":\"1\",\"etag\":\"3\",\"size\":{size},\"content_modified_at\":\"1969-12-31T15:59:59-08:00\"}}"
            );
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(item("1.0e+12").size(), Some(1_000_000_000_000));
        assert_eq!((item("7").size(), item("-1").size(), item("0.5").size()), (Some(7), None, None));
        assert_eq!(item("7").mtime(), Some(Mtime::new(-1, 0)));
        assert_eq!(time(Mtime::new(-1, 999)).unwrap(), "1969-12-31T23:59:59Z");
        assert_eq!(ids(&item("7").version().unwrap()), Some(("1", "3")));
        for bad in ["never was", "a/b\nx", "\nx"] {
            assert_eq!(ids(&Version::new(bad)), None, "{bad}");
        }
    }
}
