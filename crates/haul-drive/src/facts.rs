//! What the service tells of a file.

use haul_core::{Algo, Entry, Hashes, Key, Mtime, Version, hash::from_hex};
use haul_oauth::google::Shown;
use serde::Deserialize;

/// The type of folders.
pub const FOLDER: &str = "application/vnd.google-apps.folder";
const SHORTCUT: &str = "application/vnd.google-apps.shortcut";
const GOOGLES: &str = "application/vnd.google-apps.";

/// What is asked for of each file, so that an answer is small.
pub const FIELDS: &str = "id,name,mimeType,size,modifiedTime,md5Checksum,sha1Checksum,sha256Checksum,headRevisionId,parents,trashed,shortcutDetails(targetId,targetMimeType)";

/// A file, folder or shortcut, as the service tells of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct File {
    pub id: String,
    pub name: String,
    pub mime_type: String,
    /// A number, as text.
    pub size: Option<String>,
    pub modified_time: String,
    pub md5_checksum: String,
    pub sha1_checksum: String,
    pub sha256_checksum: String,
    pub head_revision_id: String,
    pub parents: Vec<String>,
    pub trashed: bool,
    pub shortcut_details: Option<Shortcut>,
    /// The shortcut that led to it.
    #[serde(skip)]
    pub via: String,
}

/// What a shortcut leads to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Shortcut {
    pub target_id: String,
    pub target_mime_type: String,
}

impl Shown for File {
    fn size(&self) -> Option<u64> {
        self.size.as_deref()?.parse().ok()
    }
}

impl File {
    pub fn is_folder(&self) -> bool {
        self.mime_type == FOLDER
    }

    pub fn is_shortcut(&self) -> bool {
        self.mime_type == SHORTCUT
    }

    /// Edited in a browser: it has no bytes.
    pub fn is_document(&self) -> bool {
        self.mime_type.starts_with(GOOGLES) && !self.is_folder() && !self.is_shortcut()
    }

    /// What its name stands for: itself, or the shortcut to it.
    pub fn named(&self) -> &str {
        if self.via.is_empty() { &self.id } else { &self.via }
    }

    pub fn mtime(&self) -> Option<Mtime> {
        self.modified_time.parse::<jiff::Timestamp>().ok().map(|time| Mtime(time.as_nanosecond()))
    }

    /// Hashes of the whole content, by the service.
    pub fn hashes(&self) -> Hashes {
        let all =
            [(Algo::Md5, &self.md5_checksum), (Algo::Sha1, &self.sha1_checksum), (Algo::Sha256, &self.sha256_checksum)];
        let known = all.into_iter().filter_map(|(algo, hex)| Some((algo, from_hex(hex)?)));
        known.filter(|(algo, hash)| hash.len() == algo.size()).fold(Hashes::default(), |h, (algo, v)| h.with(algo, v))
    }

    /// Its id and what pins its content; `None` for what has none.
    pub fn version(&self) -> Option<Version> {
        let content = if self.head_revision_id.is_empty() { &self.md5_checksum } else { &self.head_revision_id };
        let whole = !self.id.is_empty() && !content.is_empty();
        whole.then(|| Version::new(format!("{}\n{content}\n{}", self.id, self.via)))
    }

    /// The entry of a key. `None` for a file without a size or a version.
    pub fn entry(&self, key: Key) -> Option<Entry> {
        if self.is_folder() {
            return Some(Entry { mtime: self.mtime(), ..Entry::dir(key) });
        }
        let version = Some(self.version()?);
        Some(Entry { mtime: self.mtime(), version, hashes: self.hashes(), ..Entry::file(key, self.size()?) })
    }
}

/// The file's id in a version, and the shortcut's to it.
pub fn ids(version: &Version) -> Option<(String, String)> {
    let text = std::str::from_utf8(&version.0).ok()?;
    let mut lines = text.splitn(3, '\n');
    let (id, _, via) = (lines.next()?, lines.next()?, lines.next()?);
    let is_id = |id: &str| id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    (!id.is_empty() && is_id(id) && is_id(via)).then(|| (id.to_owned(), via.to_owned()))
}

/// A time as the service takes it: to the millisecond.
pub fn time(mtime: Mtime) -> Option<String> {
    let millis = jiff::Timestamp::from_nanosecond(mtime.0.div_euclid(1_000_000) * 1_000_000).ok()?;
    Some(millis.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_the_millisecond() {
        assert_eq!(time(Mtime(1_999_999)).unwrap(), "1970-01-01T00:00:00.001Z");
        assert_eq!(time(Mtime(-1)).unwrap(), "1969-12-31T23:59:59.999Z");
        let file = File { modified_time: "1969-12-31T23:59:59.999Z".into(), ..File::default() };
        assert_eq!(file.mtime(), Some(Mtime(-1_000_000)));
    }

    #[test]
    fn a_version_names_the_file() {
        let file = File { id: "1a_-".into(), md5_checksum: "aa".into(), via: "2".into(), ..File::default() };
        assert_eq!(ids(&file.version().unwrap()), Some(("1a_-".into(), "2".into())));
        assert!(File { id: "1".into(), ..File::default() }.version().is_none());
        for bad in ["never was", "a/b\nx\n", "\nx\n"] {
            assert_eq!(ids(&Version::new(bad)), None, "{bad}");
        }
    }
}
