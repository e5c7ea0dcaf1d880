//! What a simulated Drive holds.

use aws_lc_rs::digest;
use bytes::Bytes;
use haul_core::{Algo, hash::hash_bytes};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The type of folders.
pub const FOLDER: &str = "application/vnd.google-apps.folder";
/// The type of shortcuts.
pub const SHORTCUT: &str = "application/vnd.google-apps.shortcut";
/// The type of texts that are edited in a browser.
pub const DOCUMENT: &str = "application/vnd.google-apps.document";
/// What such texts are exported as.
pub const WORD: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
/// What this user's own root really is called.
pub const ROOT: &str = "0AROOTofTHISuserPVA";

/// A file, folder or shortcut.
#[derive(Clone, Debug)]
pub struct File {
    /// Its id.
    pub id: String,
    /// Its name, which others may have too.
    pub name: String,
    /// Its type.
    pub mime: String,
    /// The folders that it is in: one, or none for what others share.
    pub parents: Vec<String>,
    /// Put into the trash itself.
    pub trashed: bool,
    /// It came into a folder that was in the trash already: nothing that is told of it says so.
    pub came_late: bool,
    /// When it was made.
    pub created: Timestamp,
    /// The time that users see and set.
    pub modified: Timestamp,
    /// Counts changes.
    pub version: u64,
    /// The content; `None` for what has none of its own.
    pub content: Option<Content>,
    /// What a shortcut leads to: id and type.
    pub target: Option<(String, String)>,
    /// The shared drive that it is in.
    pub drive: Option<String>,
    /// Somebody else's, shared with this user.
    pub shared_with_me: bool,
    /// Google takes it for harmful.
    pub abusive: bool,
    /// It has a star.
    pub starred: bool,
    /// What Google makes of a document, by type.
    pub exports: Vec<(String, Bytes)>,
}

/// A revision's content.
#[derive(Clone, Debug)]
pub struct Content {
    /// The bytes.
    pub bytes: Bytes,
    /// Its id.
    pub revision: String,
    hashes: [(&'static str, String); 3],
}

impl Content {
    /// Of these bytes.
    pub fn new(bytes: Bytes, revision: u64) -> Content {
        let hashes = hash_bytes(&[Algo::Md5, Algo::Sha1, Algo::Sha256], &bytes);
        let hex = |algo| hashes.hex(algo).unwrap_or_default();
        let hashes =
            [("md5Checksum", hex(Algo::Md5)), ("sha1Checksum", hex(Algo::Sha1)), ("sha256Checksum", hex(Algo::Sha256))];
        Content { bytes, revision: format!("0Brev{revision:024}"), hashes }
    }
}

impl File {
    /// An empty file.
    pub fn new(id: String, name: &str, mime: &str, parent: Option<String>) -> File {
        let now = Timestamp::now();
        File {
            id,
            name: name.to_owned(),
            mime: mime.to_owned(),
            parents: parent.into_iter().collect(),
            trashed: false,
            came_late: false,
            created: now,
            modified: now,
            version: 1,
            content: None,
            target: None,
            drive: None,
            shared_with_me: false,
            abusive: false,
            starred: false,
            exports: Vec::new(),
        }
    }

    /// True for what is edited in a browser and has no bytes.
    pub fn is_document(&self) -> bool {
        self.mime.starts_with("application/vnd.google-apps.") && self.mime != FOLDER && self.mime != SHORTCUT
    }
}

/// Everything that there is.
#[derive(Debug, Default)]
pub struct Space {
    /// Files by id.
    pub files: BTreeMap<String, File>,
    children: BTreeMap<String, BTreeSet<String>>,
    /// Shared drives: id, name.
    pub drives: BTreeMap<String, String>,
    /// Ids that were given out and aren't used yet.
    pub given: BTreeSet<String>,
    number: u64,
    /// When the last file was made.
    latest: Timestamp,
    /// Where links to documents lead.
    pub documents_at: String,
}

impl Space {
    /// A Drive with an empty root.
    pub fn new() -> Space {
        let mut space = Space { documents_at: "https://docs.google.com".into(), ..Space::default() };
        space.put(File::new(ROOT.into(), "My Drive", FOLDER, None));
        space
    }

    /// A number that no other call gives.
    pub fn count(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// The present, later than any time that it gave before, by a millisecond or more.
    pub fn now(&mut self) -> Timestamp {
        self.latest = Timestamp::now().max(self.latest + Duration::from_millis(1));
        self.latest
    }

    /// A new id; no order of ids is that of their making.
    pub fn id(&mut self) -> String {
        let number = self.count();
        let digest = digest::digest(&digest::SHA256, &number.to_be_bytes());
        let text: String = digest.as_ref()[..14].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("1{text}-{number}")
    }

    /// The id behind the word `root`.
    pub fn real<'a>(&self, id: &'a str) -> &'a str {
        if id == "root" { ROOT } else { id }
    }

    /// Adds or replaces a file.
    pub fn put(&mut self, file: File) {
        if let Some(before) = self.files.get(&file.id) {
            for parent in before.parents.clone() {
                self.children.entry(parent).or_default().remove(&file.id);
            }
        }
        for parent in &file.parents {
            self.children.entry(parent.clone()).or_default().insert(file.id.clone());
        }
        self.files.insert(file.id.clone(), file);
    }

    /// Removes a file, and all below a folder.
    pub fn remove(&mut self, id: &str) {
        for child in self.children.remove(id).unwrap_or_default() {
            self.remove(&child);
        }
        if let Some(file) = self.files.remove(id) {
            for parent in file.parents {
                if let Some(children) = self.children.get_mut(&parent) {
                    children.remove(id);
                }
            }
        }
    }

    /// Ids of what is in a folder.
    pub fn children(&self, id: &str) -> impl Iterator<Item = &str> {
        self.children.get(self.real(id)).into_iter().flatten().map(String::as_str)
    }

    /// In the trash, itself or with a folder that it is in.
    pub fn is_trashed(&self, file: &File) -> bool {
        file.trashed || file.parents.iter().any(|parent| self.files.get(parent).is_some_and(|p| self.is_trashed(p)))
    }

    /// Nothing in its folder was made before it.
    pub fn is_eldest(&self, file: &File) -> bool {
        let beside = file.parents.iter().flat_map(|parent| self.children(parent)).filter_map(|id| self.files.get(id));
        !beside.into_iter().any(|other| (other.created, &other.id) < (file.created, &file.id))
    }

    /// Whether the service reports the file as trashed.
    pub fn says_trashed(&self, file: &File) -> bool {
        let above = || file.parents.iter().filter_map(|parent| self.files.get(parent));
        file.trashed || !file.came_late && above().any(|parent| self.says_trashed(parent))
    }

    /// Whether any of these folders is in the trash.
    pub fn any_trashed(&self, folders: &[String]) -> bool {
        folders.iter().filter_map(|id| self.files.get(id)).any(|folder| self.is_trashed(folder))
    }

    /// True for what isn't the user's own: it was shared with him, or is in a folder that was, or in a shared drive.
    pub fn is_somebodys(&self, file: &File) -> bool {
        let mut above = file.parents.iter().filter_map(|parent| self.files.get(parent));
        file.shared_with_me || file.drive.is_some() || above.any(|parent| self.is_somebodys(parent))
    }

    /// A file's metadata, as the service reports them.
    pub fn facts(&self, file: &File) -> Value {
        let mut facts = json!({
            "kind": "drive#file",
            "id": file.id,
            "name": file.name,
            "mimeType": file.mime,
            "parents": file.parents,
            "trashed": self.says_trashed(file),
            "explicitlyTrashed": file.trashed,
            "createdTime": time(file.created),
            "modifiedTime": time(file.modified),
            "version": file.version.to_string(),
            "webViewLink": format!("https://drive.google.com/file/d/{}/view", file.id),
            "ownedByMe": !self.is_somebodys(file),
            "starred": file.starred,
        });
        if file.parents.is_empty() {
            facts.as_object_mut().map(|facts| facts.remove("parents"));
        }
        if let Some(drive) = &file.drive {
            facts["driveId"] = drive.as_str().into();
        }
        if let Some(content) = &file.content {
            facts["size"] = content.bytes.len().to_string().into();
            facts["headRevisionId"] = content.revision.as_str().into();
            content.hashes.iter().for_each(|(name, hex)| facts[*name] = hex.as_str().into());
        }
        if file.is_document() {
            // They count for the quota; no bytes can be read by it.
            facts["size"] = "1024".into();
            let link = |mime: &str| format!("{}/export/link?id={}&mime={mime}", self.documents_at, file.id);
            file.exports.iter().for_each(|(mime, _)| facts["exportLinks"][mime] = link(mime).into());
        }
        if let Some((id, mime)) = &file.target {
            facts["shortcutDetails"] = json!({ "targetId": id, "targetMimeType": mime });
        }
        facts
    }
}

/// A time as it is told: to the millisecond.
pub fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// A time that a client tells, to the millisecond.
pub fn read_time(text: &str) -> Option<Timestamp> {
    let time: Timestamp = text.parse().ok()?;
    Timestamp::from_nanosecond(time.as_nanosecond().div_euclid(1_000_000) * 1_000_000).ok()
}
