//! State behind requests: locations of keys, ids of known folders, and which item has a name.

use crate::{
    downloads::Downloads,
    error::{self, ConflictingItem},
    facts::{FIELDS, Item, is_id},
    options::Config,
};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_net::{Fault, Pages};
use haul_oauth::{Api, Call, ServiceError, ServiceResult, few};
use haul_store::{
    Caps,
    ids::{Ids, Root},
    moves::LostMoves,
    tree::is_odd,
    web,
};
use http::{HeaderName, Method};
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// One page of a listing.
#[derive(Deserialize)]
struct Page {
    #[serde(deserialize_with = "few")]
    entries: Vec<Item>,
    next_marker: Option<String>,
}

/// The service's limit for a name, in characters.
const LONGEST: usize = 255;

/// Where a store begins, from the options and the path after the colon.
///
/// Errors: `Invalid` for what can't be names.
pub fn root(config: &Config, path: &[u8]) -> Result<Root> {
    let names = path.split(|b| *b == b'/').filter(|part| !part.is_empty());
    let names = names.map(|part| name(config, part, &Key::new(path))).collect::<Result<_>>()?;
    Ok(Root { base: config.root_folder_id.clone(), names })
}

/// The service's name for a part of a key.
fn name(config: &Config, part: &[u8], key: &Key) -> Result<String> {
    let wrong = |why: &str| Error::new(ErrorKind::Invalid, "path", why).with_key(key);
    if is_odd(part) && (part.is_empty() || part.contains(&b'/')) {
        return Err(wrong("Box can't hold a path with an empty name in it"));
    }
    let name = config.encoding.encode_text(part).ok_or_else(|| wrong("Box can't hold this name: rename it"))?;
    match name.chars().count() > LONGEST {
        true => Err(wrong("Box can't hold a name of more than 255 characters: rename it")),
        false => Ok(name),
    }
}

/// An account, and where in it the store is.
#[derive(Debug)]
pub struct Service {
    pub config: Config,
    pub root: Root,
    pub api: Api,
    pub caps: Caps,
    pub locator: String,
    pub downloads: Downloads,
    /// Folders by a base and their names below it.
    folders: Ids,
    /// Hashes of the paths of files whose very names were seen there.
    files: Mutex<HashSet<u64>>,
    random: RandomState,
    pub moves: LostMoves,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the id of a folder is kept.
fn place(root: &Root, names: &[String]) -> Key {
    let parts = std::iter::once(&root.base).chain(names);
    Key::new(parts.map(|part| format!("{part}/")).collect::<String>())
}

/// Why a name can't be written.
pub fn folds(there: &str) -> String {
    format!("{there:?} is there, which is the same name for Box: rename one of them")
}

impl Service {
    pub fn new(config: Config, root: Root, api: Api, caps: Caps, locator: String) -> Service {
        let (downloads, folders, files, moves) = Default::default();
        Service { config, root, api, caps, locator, downloads, folders, files, random: RandomState::new(), moves }
    }

    fn of_us(&self, call: Call) -> Call {
        match &*self.config.impersonate {
            "" => call,
            user => call.header(HeaderName::from_static("as-user"), user),
        }
    }

    /// A request; `path` begins behind the version.
    pub fn call(&self, kind: &'static str, method: Method, path: &str) -> Call {
        self.of_us(Call::new(kind, method, format!("{}{path}", self.config.api)))
    }

    /// A request to the hosts that take content.
    pub fn upload(&self, kind: &'static str, method: Method, path: &str) -> Call {
        self.of_us(Call::new(kind, method, format!("{}{path}", self.config.upload)))
    }

    /// Facts of a file.
    pub async fn file(&self, id: &str) -> ServiceResult<Item> {
        let item: Item =
            self.api.json(&self.call("GetFile", Method::GET, &format!("/files/{id}?fields={FIELDS}"))).await?;
        shown(item, Item::is_file)
    }

    /// Facts of a folder.
    pub async fn folder(&self, id: &str) -> ServiceResult<Item> {
        let item: Item =
            self.api.json(&self.call("GetFolder", Method::GET, &format!("/folders/{id}?fields={FIELDS}"))).await?;
        shown(item, Item::is_folder)
    }

    /// Facts of whatever has a name.
    pub async fn taker(&self, taken: &ConflictingItem) -> ServiceResult<Item> {
        if taken.is_folder { self.folder(&taken.id).await } else { self.file(&taken.id).await }
    }

    /// Who has this name in a folder, by the service's sense of names; `None` when it is free.
    pub async fn who(&self, parent: &str, name: &str) -> ServiceResult<Option<ConflictingItem>> {
        let question = json!({ "name": name, "parent": { "id": parent } });
        let call = self.call("Preflight", Method::OPTIONS, "/files/content").json(&question);
        match self.api.ask(&call).await {
            Ok(_) => Ok(None),
            Err(refused) if refused.fault.status == 409 && refused.fault.kind == ErrorKind::Exists => {
                match error::taken(&refused) {
                    Some(taken) => Ok(Some(taken)),
                    None => self.look(parent, name).await,
                }
            }
            // Who may not write there may still look.
            Err(refused) if refused.fault.kind == ErrorKind::Denied => self.look(parent, name).await,
            Err(refused) => Err(refused),
        }
    }

    /// All that is in a folder.
    pub async fn items(&self, id: &str) -> ServiceResult<Vec<Item>> {
        let base = format!("/folders/{id}/items?limit={}&usemarker=true&fields={FIELDS}", self.config.list_chunk);
        let (mut all, mut path, mut pages) = (Vec::new(), base.clone(), Pages::default());
        loop {
            let call: Call = self.call("ListItems", Method::GET, &path);
            let page: Page = self.api.json(&call).await?;
            if !page.entries.iter().all(|item| is_id(&item.id)) {
                return Err(Fault::broken("the service listed something by what is no id").into());
            }
            all.extend(page.entries.into_iter().filter(|item| pages.is_new(&format!("{}/{}", item.kind, item.id))));
            match page.next_marker.filter(|marker| !marker.is_empty()) {
                None => return Ok(all),
                Some(marker) => {
                    path = format!("{base}&marker={}", web::encoded(marker.as_bytes()));
                    pages.next(&marker)?;
                }
            }
        }
    }

    /// Finds the item with a name by listing its parent.
    async fn look(&self, parent: &str, name: &str) -> ServiceResult<Option<ConflictingItem>> {
        let folded = name.to_lowercase();
        let items = self.items(parent).await?;
        let found = items.into_iter().find(|item| item.name.to_lowercase() == folded);
        Ok(found.map(|item| ConflictingItem { is_folder: !item.is_file(), id: item.id }))
    }

    /// The names of a key below a root's base.
    ///
    /// Errors: `Invalid` for what can't be a name.
    pub fn names(&self, root: &Root, key: &Key) -> Result<Vec<String>> {
        let mut names = root.names.clone();
        let plain = key.as_bytes().strip_suffix(b"/").unwrap_or(key.as_bytes());
        if !plain.is_empty() {
            for part in plain.split(|b| *b == b'/') {
                names.push(name(&self.config, part, key)?);
            }
        }
        Ok(names)
    }

    /// The service's own name of the last part of a key.
    pub fn leaf(&self, key: &Key) -> Result<String> {
        Ok(self.names(&self.root, key)?.pop().unwrap_or_default())
    }

    fn number(&self, key: &Key) -> u64 {
        self.random.hash_one(key.as_bytes())
    }

    /// A file with this very name is there.
    pub fn note_file(&self, key: &Key) {
        locked(&self.files).insert(self.number(key));
    }

    pub fn has_seen(&self, key: &Key) -> bool {
        locked(&self.files).contains(&self.number(key))
    }

    /// It is there no more.
    pub fn forget(&self, key: &Key) {
        locked(&self.files).remove(&self.number(key));
    }

    /// A folder with this very name is there.
    pub fn note_folder(&self, key: &Key, id: &str) {
        if let Ok(names) = self.names(&self.root, key) {
            self.folders.put(&place(&self.root, &names), id);
        }
    }

    /// Forgets a folder and everything below it, which may have changed.
    pub fn forget_folder(&self, key: &Key) {
        self.forget_in(&self.root, key);
    }

    fn forget_in(&self, root: &Root, key: &Key) {
        if let Ok(names) = self.names(root, key) {
            self.folders.forget(&place(root, &names));
        }
    }

    /// The id of the folder `key`.
    ///
    /// Errors: `NotFound`; `DirNotFound` when the root is missing.
    pub async fn dir(&self, key: &Key, op: &'static str) -> Result<String> {
        self.dir_in(&self.root, key, op).await
    }

    /// As [`Service::dir`], below another root of the account.
    pub async fn dir_in(&self, root: &Root, key: &Key, op: &'static str) -> Result<String> {
        self.walk(root, key, false, op).await
    }

    /// The id of the folder `key`, which is made as far as it is missing.
    ///
    /// Errors: `Exists` when a file is in its place, or a folder whose name differs by case.
    pub async fn made(&self, key: &Key, op: &'static str) -> Result<String> {
        self.walk(&self.root, key, true, op).await
    }

    async fn walk(&self, root: &Root, key: &Key, make: bool, op: &'static str) -> Result<String> {
        match self.go(root, key, make, op).await {
            // Cached ids of parent folders were outdated.
            Err((_, true)) => {
                self.folders.forget(&Key::new(""));
                self.go(root, key, make, op).await.map_err(|(error, _)| error)
            }
            other => other.map_err(|(error, _)| error),
        }
    }

    /// The flag of an error says that a folder known to exist is missing.
    async fn go(&self, root: &Root, key: &Key, make: bool, op: &'static str) -> Result<String, (Error, bool)> {
        let sure = |error: Error| (error, false);
        let names = self.names(root, key).map_err(sure)?;
        let mut id = root.base.clone();
        for end in 1..=names.len() {
            let slot = self.folders.place(&place(root, &names[..end])).await;
            if let Some(known) = slot.id() {
                id = known;
                continue;
            }
            let (name, of_root) = (&names[end - 1], end <= root.names.len());
            let failed = |refused: ServiceError| {
                let gone = refused.fault.kind == ErrorKind::NotFound && end > 1;
                (refused.at(op, key), gone)
            };
            let taken = match make {
                true => match self.create(&id, name).await {
                    Ok(made) => {
                        id = slot.keep(made);
                        continue;
                    }
                    Err(refused) if refused.fault.kind == ErrorKind::Exists => match error::taken(&refused) {
                        Some(taken) => Some(taken),
                        None => self.look(&id, name).await.map_err(failed)?,
                    },
                    Err(refused) => return Err(failed(refused)),
                },
                false => self.who(&id, name).await.map_err(failed)?,
            };
            let missing = || match of_root {
                true => self.no_root(op),
                false => Error::new(ErrorKind::NotFound, op, "no such directory").with_key(key),
            };
            let exists = |why: String| Error::new(ErrorKind::Exists, op, why).with_key(key);
            let Some(taken) = taken else { return Err(sure(missing())) };
            if !taken.is_folder {
                let why = || exists(format!("a file is in the place of the folder {name:?}"));
                return Err(sure(if make { why() } else { missing() }));
            }
            // How the root was typed counts for nothing.
            if !of_root {
                let there = self.folder(&taken.id).await.map_err(failed)?;
                if there.name != *name {
                    return Err(sure(if make { exists(folds(&there.name)) } else { missing() }));
                }
            }
            id = slot.keep(taken.id);
        }
        Ok(id)
    }

    /// Creates a folder; gives its id.
    async fn create(&self, parent: &str, name: &str) -> ServiceResult<String> {
        let question = json!({ "name": name, "parent": { "id": parent } });
        let call = self.call("CreateFolder", Method::POST, "/folders?fields=type,id,name").json(&question);
        Ok(shown(self.api.json(&call).await?, Item::is_folder)?.id)
    }

    /// The error of a root that is missing.
    pub fn no_root(&self, op: &'static str) -> Error {
        Error::new(ErrorKind::DirNotFound, op, format!("{}: no such directory", self.locator))
    }

    /// Whatever has a key's name: its facts, if the name is the very one.
    ///
    /// Errors: `NotFound`.
    pub async fn at(&self, op: &'static str, key: &Key) -> Result<Item> {
        self.at_in(&self.root, op, key).await
    }

    /// As [`Service::at`], below another root of the account.
    pub async fn at_in(&self, root: &Root, op: &'static str, key: &Key) -> Result<Item> {
        let missing = || Error::new(ErrorKind::NotFound, op, "no such file").with_key(key);
        let name = self.names(root, key)?.pop().unwrap_or_default();
        let mut again = true;
        loop {
            let parent = self.dir_in(root, &key.parent(), op).await.map_err(|error| match error.kind() {
                ErrorKind::NotFound => missing(),
                _ => error,
            })?;
            let item = match self.who(&parent, &name).await {
                Ok(Some(taken)) => self.taker(&taken).await,
                Ok(None) => return Err(missing()),
                Err(refused) => Err(refused),
            };
            match item {
                Ok(item) if item.name == name && item.is_there() => return Ok(item),
                Ok(_) => return Err(missing()),
                // The folder may be another by now.
                Err(refused) if refused.fault.kind == ErrorKind::NotFound && again => {
                    self.forget_in(root, &key.parent());
                    again = false;
                }
                Err(refused) if refused.fault.kind == ErrorKind::NotFound => return Err(missing()),
                Err(refused) => return Err(refused.at(op, key)),
            }
        }
    }
}

/// The item, if it is of the requested type.
fn shown(item: Item, is: fn(&Item) -> bool) -> ServiceResult<Item> {
    match is(&item) && is_id(&item.id) {
        true => Ok(item),
        false => Err(Fault::broken("the service tells of something else than it was asked for").into()),
    }
}
