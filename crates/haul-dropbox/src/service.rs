//! Locations of keys, the service's facts about them, and its requests.

use crate::{
    gather::Gather,
    listed_folders::{ListedFolders, hash},
    options::Config,
    root::{self, FolderAddress},
};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Kind, Mtime, Result, Version, hash::from_hex};
use haul_oauth::{Api, Call};
use haul_store::{Caps, Direction, Payload, ids::Ids, moves::LostMoves, web};
use http::{HeaderName, Method};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

/// Changes that are asked for at once: the service makes one at a time, so that more only wait, or are refused.
pub const TURNS: usize = 4;

/// The service's facts about a file or folder.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Facts {
    #[serde(rename = ".tag", default)]
    pub tag: String,
    pub name: String,
    #[serde(default)]
    pub path_lower: String,
    #[serde(default)]
    pub rev: String,
    pub size: Option<u64>,
    #[serde(default)]
    pub content_hash: String,
    #[serde(default)]
    pub client_modified: String,
    #[serde(default)]
    pub server_modified: String,
    pub is_downloadable: Option<bool>,
}

fn time(text: &str) -> Option<Mtime> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(Mtime(time.as_nanosecond()))
}

/// A time as the service takes it.
pub fn written(mtime: Mtime) -> Option<String> {
    let time = jiff::Timestamp::from_second(mtime.secs()).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

impl Facts {
    pub fn is_folder(&self) -> bool {
        self.tag == "folder"
    }

    /// As an entry of this key, without the `/` of a folder's; `None` for a file without size or version.
    pub fn entry(&self, key: Key) -> Option<Entry> {
        if self.is_folder() {
            return Some(Entry::dir(key));
        }
        if self.rev.is_empty() {
            return None;
        }
        let mut entry = Entry::file(key, self.size.and_then(web::believed)?);
        if self.is_downloadable == Some(false) {
            // A document of the service's own, which has no bytes.
            entry.kind = Kind::Special;
        }
        entry.mtime = time(&self.client_modified);
        entry.changed = time(&self.server_modified);
        entry.version = Some(Version::new(&self.rev));
        if let Some(hash) = from_hex(&self.content_hash).filter(|hash| hash.len() == Algo::Dropbox.size()) {
            entry.hashes.set(Algo::Dropbox, hash);
        }
        Some(entry)
    }
}

/// Everything that requests need.
#[derive(Debug)]
pub struct Service {
    pub config: Config,
    /// The folder that is the root, as it was typed: empty, or `/a/b`.
    pub typed: String,
    /// It was typed with a slash before it: the root is that of the person's team.
    pub of_team: bool,
    /// Where that is.
    pub place: OnceCell<FolderAddress>,
    pub caps: Caps,
    pub locator: String,
    pub api: Api,
    pub gather: Gather,
    /// For each change that is asked for at once.
    pub turns: Semaphore,
    /// Known folders: see [`crate::verified_folders`].
    pub folders: Ids,
    /// See [`crate::verified_folders`].
    pub seen: Mutex<ListedFolders>,
    /// Hashes of the paths of files whose very names were seen there.
    pub files: Mutex<HashSet<u64>>,
    /// Written paths: the hash of a path in lower case, and of the path itself.
    pub claimed: Mutex<HashMap<u64, u64>>,
    pub moves: LostMoves,
}

/// JSON that can stand in a header.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ' '..='~' => out.push(character),
            _ => character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    out
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The service's path of the folder `path` as a user writes it.
///
/// Errors: `Invalid` for a name that can't be.
pub fn root(config: &Config, path: &[u8]) -> Result<String> {
    let mut root = String::new();
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let name = config.encoding.encode_text(part);
        let bad = || Error::new(ErrorKind::Invalid, "open", "Dropbox can't have a folder of this name");
        root = format!("{root}/{}", name.ok_or_else(bad)?);
    }
    Ok(root)
}

impl Service {
    /// Finds out the remote's root, once; await it before any other request.
    ///
    /// Errors: those of [`root::find`]; a remote of all shared folders has nothing but their names.
    pub async fn ready(&self, op: &'static str) -> Result<()> {
        match self.place.get_or_try_init(|| root::find(self)).await?.all_shared {
            true => Err(root::only_names(op)),
            false => Ok(()),
        }
    }

    /// The folder that is the root: empty, or `/a/b`.
    pub fn root(&self) -> &str {
        self.place.get().map_or(&self.typed, |place| &place.root)
    }

    /// The service's path of a key.
    ///
    /// Errors: `Invalid` for a name that it can't have.
    pub fn path(&self, key: &Key) -> Result<String> {
        self.path_below(self.root(), key)
    }

    /// The path of a key below another root.
    ///
    /// Errors: as [`Service::path`].
    pub fn path_below(&self, root: &str, key: &Key) -> Result<String> {
        let mut path = root.to_owned();
        let bytes = key.as_bytes();
        let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
        if key.is_root() {
            return Ok(path);
        }
        for part in bytes.split(|byte| *byte == b'/') {
            let wrong = |why: &str| {
                Error::new(ErrorKind::Invalid, "name", format!("Dropbox can't hold this name: {why}; rename it"))
                    .with_key(key)
            };
            if part.is_empty() {
                return Err(wrong("a part of it is empty"));
            }
            let name = self.config.encoding.encode_text(part).ok_or_else(|| wrong("it would come back as another"))?;
            if name.chars().count() > 255 {
                return Err(wrong("a part of it is longer than 255 characters"));
            }
            path.push('/');
            path.push_str(&name);
        }
        Ok(path)
    }

    /// A request for the person that we act for.
    pub fn of_person(&self, call: Call) -> Call {
        match &*self.config.impersonate {
            "" => call,
            person => call.header(HeaderName::from_static("dropbox-api-select-user"), person),
        }
    }

    fn of_us(&self, call: Call) -> Call {
        let call = self.of_person(call);
        match self.place.get().map(|place| &*place.namespace) {
            None | Some("") => call,
            Some(namespace) => {
                let root = json!({".tag": "namespace_id", "namespace_id": namespace});
                call.header(HeaderName::from_static("dropbox-api-path-root"), root.to_string())
            }
        }
    }

    /// The turn of a single change request, held until it is dropped.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.turns.acquire().await.ok()
    }

    /// A request with a question.
    pub fn ask(&self, name: &'static str, question: &impl Serialize) -> Call {
        self.of_us(Call::new(name, Method::POST, format!("{}/2/{name}", self.config.api)).json(question))
    }

    /// A request without one.
    pub fn ask_plainly(&self, name: &'static str) -> Call {
        self.of_us(Call::new(name, Method::POST, format!("{}/2/{name}", self.config.api)))
    }

    fn content(&self, name: &'static str, question: &serde_json::Value) -> Call {
        let call = Call::new(name, Method::POST, format!("{}/2/{name}", self.config.content));
        self.of_us(call).header(HeaderName::from_static("dropbox-api-arg"), ascii(&question.to_string()))
    }

    /// A request that brings content.
    pub fn send(&self, name: &'static str, question: &serde_json::Value, payload: Payload) -> Call {
        self.content(name, question).body(Direction::Up, "application/octet-stream", payload)
    }

    /// A request for content.
    pub fn fetch(&self, name: &'static str, question: &serde_json::Value) -> Call {
        self.content(name, question).going(Direction::Down)
    }

    pub fn seen(&self) -> MutexGuard<'_, ListedFolders> {
        lock(&self.seen)
    }

    /// Notes that `path` is written, and the folders above it with it: names that differ by case only are one.
    ///
    /// Errors: `Exists` when another such was written.
    pub fn claim(&self, key: &Key, path: &str) -> Result<()> {
        let mut claimed = lock(&self.claimed);
        for end in path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]) {
            let own = hash(&path[..end]);
            if *claimed.entry(hash(&path[..end].to_lowercase())).or_insert(own) != own {
                let message = "another name that differs by upper and lower case only was written before it, and Dropbox has \
                               one for both: rename one";
                return Err(Error::new(ErrorKind::Exists, "write", message).with_key(key));
            }
        }
        Ok(())
    }

    /// True when a path was written under a name in other case.
    pub fn is_claimed_otherwise(&self, path: &str) -> bool {
        let claimed = lock(&self.claimed);
        claimed.get(&hash(&path.to_lowercase())).is_some_and(|own| *own != hash(path))
    }

    /// Nothing is there, or something else.
    pub fn release(&self, path: &str) {
        lock(&self.files).remove(&hash(path));
        lock(&self.claimed).remove(&hash(&path.to_lowercase()));
    }

    /// A file with this very path is there.
    pub fn note_file(&self, path: &str) {
        lock(&self.files).insert(hash(path));
    }

    pub fn has_seen(&self, path: &str) -> bool {
        lock(&self.files).contains(&hash(path))
    }
}
