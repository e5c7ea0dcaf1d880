//! The service's facts about a file.

use crate::formats::{Format, by_ending};
use haul_core::{Algo, Entry, Hashes, Key, Mtime, Version, hash::from_hex};
use haul_oauth::google::FileFacts;
use haul_store::web;
use serde::Deserialize;
use std::{borrow::Cow, collections::BTreeMap};

/// The type of folders.
pub const FOLDER: &str = "application/vnd.google-apps.folder";
const SHORTCUT: &str = "application/vnd.google-apps.shortcut";
const GOOGLES: &str = "application/vnd.google-apps.";
/// Kinds of documents of which Google makes files, by its table of export formats.
const EXPORTED: [&str; 4] = ["document", "spreadsheet", "presentation", "drawing"];

/// Fields requested for each file, to keep answers small.
pub const FIELDS: &str = "id,name,mimeType,size,createdTime,modifiedTime,md5Checksum,sha1Checksum,sha256Checksum,headRevisionId,parents,driveId,ownedByMe,trashed,explicitlyTrashed,exportLinks,shortcutDetails(targetId,targetMimeType)";

/// A file, folder or shortcut, as the service describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct File {
    pub id: String,
    pub name: String,
    pub mime_type: String,
    /// A number, as text.
    pub size: Option<String>,
    pub created_time: String,
    pub modified_time: String,
    pub md5_checksum: String,
    pub sha1_checksum: String,
    pub sha256_checksum: String,
    pub head_revision_id: String,
    pub parents: Vec<String>,
    /// The shared drive that it is in, if it is in one.
    pub drive_id: String,
    /// It is the user's own; nothing in a shared drive is.
    pub owned_by_me: bool,
    pub trashed: bool,
    /// Itself, not with a folder.
    pub explicitly_trashed: bool,
    /// For a document: export links by type.
    pub export_links: BTreeMap<String, String>,
    pub shortcut_details: Option<Shortcut>,
    /// The shortcut that led to it.
    #[serde(skip)]
    pub via: String,
    /// As what a document is shown.
    #[serde(skip)]
    pub format: Option<&'static Format>,
}

/// Target of a shortcut.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Shortcut {
    pub target_id: String,
    pub target_mime_type: String,
}

impl FileFacts for File {
    fn size(&self) -> Option<u64> {
        self.size.as_deref()?.parse().ok().and_then(web::believed)
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

    /// A Google document that could be exported, but offers no format: its readers may not download it.
    pub fn is_withheld(&self) -> bool {
        let kind = self.mime_type.strip_prefix(GOOGLES);
        kind.is_some_and(|kind| EXPORTED.contains(&kind)) && self.export_links.is_empty()
    }

    /// The format that a document is exported as; `None` where Google offers none of the formats for it.
    pub fn format_of(&self, formats: &[&'static Format]) -> Option<&'static Format> {
        formats.iter().copied().find(|format| self.export_links.contains_key(format.mime))
    }

    /// Id of the item that has the name: the file's, or that of the shortcut to it.
    pub fn named(&self) -> &str {
        if self.via.is_empty() { &self.id } else { &self.via }
    }

    /// The name that it is shown by.
    pub fn shown_name(&self) -> Cow<'_, str> {
        match self.format {
            Some(format) => Cow::Owned(format!("{}.{}", self.name, format.ending)),
            None => Cow::Borrowed(&self.name),
        }
    }

    pub fn mtime(&self) -> Option<Mtime> {
        self.modified_time.parse::<jiff::Timestamp>().ok().map(|time| Mtime(time.as_nanosecond()))
    }

    /// Creation time and id: the smallest of several is the same for everybody.
    pub fn seniority(&self) -> (Option<jiff::Timestamp>, &str) {
        (self.created_time.parse().ok(), &self.id)
    }

    /// Made within the last minute, as far as clocks agree.
    pub fn is_young(&self) -> bool {
        let made = self.created_time.parse::<jiff::Timestamp>().ok();
        made.is_some_and(|made| jiff::Timestamp::now().duration_since(made).abs() < jiff::SignedDuration::from_mins(1))
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
        let content = match self.format {
            // A document has no revision that can be requested.
            Some(format) => format!("{}@{}", format.ending, self.modified_time),
            None if self.head_revision_id.is_empty() => self.md5_checksum.clone(),
            None => self.head_revision_id.clone(),
        };
        let whole = !self.id.is_empty() && !content.is_empty();
        whole.then(|| Version::new(format!("{}\n{content}\n{}", self.id, self.via)))
    }

    /// The entry of a key. `None` for a file without a size or a version, and for a document that isn't shown.
    pub fn entry(&self, key: Key) -> Option<Entry> {
        if self.is_folder() {
            return Some(Entry { mtime: self.mtime(), ..Entry::dir(key) });
        }
        let version = Some(self.version()?);
        if self.is_document() {
            self.format?;
            return Some(Entry { mtime: self.mtime(), version, sized: false, ..Entry::file(key, 0) });
        }
        Some(Entry { mtime: self.mtime(), version, hashes: self.hashes(), ..Entry::file(key, self.size()?) })
    }
}

/// Contents of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// The file.
    pub id: String,
    /// The shortcut to it.
    pub via: String,
    /// As what a document is shown.
    pub format: Option<&'static Format>,
}

impl FileVersion {
    /// A file as it is shown by this version's name.
    pub fn shown(&self, file: File) -> File {
        File { via: self.via.clone(), format: self.format.filter(|_| file.is_document()), ..file }
    }
}

/// True for a valid file id: it goes into addresses unescaped.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Parses a version; `None` when it isn't a Drive version.
pub fn pinned(version: &Version) -> Option<FileVersion> {
    let text = std::str::from_utf8(&version.0).ok()?;
    let mut lines = text.splitn(3, '\n');
    let (id, content, via) = (lines.next()?, lines.next()?, lines.next()?);
    let format = content.split_once('@').and_then(|(ending, _)| by_ending(ending));
    let (is, id, via) = (is_id(id) && (via.is_empty() || is_id(via)), id.to_owned(), via.to_owned());
    is.then_some(FileVersion { id, via, format })
}

/// A time as the service takes it: to the millisecond.
pub fn time(mtime: Mtime) -> Option<String> {
    let millis = jiff::Timestamp::from_nanosecond(mtime.0.div_euclid(1_000_000) * 1_000_000).ok()?;
    Some(millis.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::formats;

    #[test]
    fn the_first_available_export_format_is_used() {
        let of = |typed: &str| formats(typed).map(|all| all.iter().map(|f| f.ending).collect::<Vec<_>>());
        assert_eq!(of("docx, .XLSX,").unwrap(), ["docx", "xlsx"]);
        assert!(of("").unwrap().is_empty());
        let error = of("docx,doc").unwrap_err();
        assert!(error.message().starts_with("export_formats = \"doc\": use some of csv,docx,"), "{error}");
        let links = ["application/pdf", "text/plain"].map(|mime| (mime.to_owned(), String::new()));
        let file = File { export_links: links.into(), ..File::default() };
        assert_eq!(file.format_of(&formats("docx,txt,pdf").unwrap()).unwrap().ending, "txt");
        assert!(file.format_of(&formats("docx").unwrap()).is_none());
    }

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
        let named = pinned(&file.version().unwrap()).unwrap();
        assert_eq!((&*named.id, &*named.via, named.format), ("1a_-", "2", None));
        let shown = File { format: by_ending("pdf"), modified_time: "now".into(), ..file };
        assert_eq!(pinned(&shown.version().unwrap()).unwrap().format, by_ending("pdf"));
        assert!(File { id: "1".into(), ..File::default() }.version().is_none());
        for bad in ["never was", "a/b\nx\n", "\nx\n"] {
            assert_eq!(pinned(&Version::new(bad)), None, "{bad}");
        }
    }
}
