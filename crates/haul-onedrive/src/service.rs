//! State behind requests: addresses of items, Graph's facts about one, and known folders.

use crate::{downloads::Downloads, options::Config};
use haul_core::{Algo, Entry, Error, ErrorKind, Hashes, Key, Mtime, Result, Version, hash::from_hex};
use haul_net::Fault;
use haul_oauth::{Api, Call, ServiceError, ServiceResult};
use haul_store::{
    Caps,
    ids::{IdSlot, Ids, Root},
    moves::LostMoves,
    tree::is_odd,
    web,
};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::OnceCell;

/// An item of a drive, as Graph describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Of an item of another drive both ids, with `#` between.
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub name: String,
    pub size: Option<u64>,
    pub e_tag: Option<String>,
    pub c_tag: Option<String>,
    pub file: Option<File>,
    pub folder: Option<Value>,
    pub package: Option<Value>,
    /// Its target, which is on another drive.
    pub remote_item: Option<Box<Item>>,
    pub deleted: Option<Value>,
    pub root: Option<Value>,
    pub file_system_info: Option<Times>,
    pub last_modified_date_time: Option<String>,
    pub parent_reference: Option<Parent>,
    #[serde(rename = "@microsoft.graph.downloadUrl")]
    download: Option<String>,
    /// Name of the field in a tenant's service.
    #[serde(rename = "@content.downloadUrl")]
    content_download: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct File {
    #[serde(default)]
    hashes: Option<Sums>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sums {
    quick_xor_hash: Option<String>,
    sha1_hash: Option<String>,
    sha256_hash: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    last_modified_date_time: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    pub id: Option<String>,
    drive_id: Option<String>,
}

impl Item {
    pub fn is_folder(&self) -> bool {
        self.folder.is_some() || self.root.is_some() || self.remote_item.as_ref().is_some_and(|item| item.is_folder())
    }

    /// The id of what it stands for on another drive.
    pub fn target(&self) -> Option<String> {
        let item = self.remote_item.as_ref()?;
        let drive = item.parent_reference.as_ref()?.drive_id.as_ref()?;
        Some(format!("{drive}#{}", item.id)).filter(|_| !item.id.is_empty())
    }

    /// Download address of its content, if given; works without a token.
    pub fn download(&self) -> Option<&str> {
        self.download.as_deref().or(self.content_download.as_deref())
    }

    pub fn mtime(&self) -> Option<Mtime> {
        let own = self.file_system_info.as_ref().and_then(|times| times.last_modified_date_time.as_deref());
        let time: jiff::Timestamp = own.or(self.last_modified_date_time.as_deref())?.parse().ok()?;
        Some(Mtime(time.as_nanosecond()))
    }

    /// Its version: the item, and its tag, which every change renews.
    pub fn version(&self) -> Option<Version> {
        let tag = self.e_tag.as_ref().filter(|tag| !tag.is_empty())?;
        Some(Version::new(format!("{}\n{tag}", self.id)))
    }

    pub fn hashes(&self) -> Hashes {
        use base64::{Engine, engine::general_purpose::STANDARD as B64};
        let mut hashes = Hashes::default();
        let Some(sums) = self.file.as_ref().and_then(|file| file.hashes.as_ref()) else { return hashes };
        let quick = sums.quick_xor_hash.as_ref().and_then(|text| B64.decode(text).ok());
        let of_hex = |text: &Option<String>| text.as_deref().and_then(from_hex);
        let known =
            [(Algo::QuickXor, quick), (Algo::Sha1, of_hex(&sums.sha1_hash)), (Algo::Sha256, of_hex(&sums.sha256_hash))];
        for (algo, value) in known {
            if let Some(value) = value.filter(|value| value.len() == algo.size()) {
                hashes.set(algo, value);
            }
        }
        hashes
    }

    /// The entry of `key`; whether the key is a directory's isn't checked.
    ///
    /// Errors: a required field is missing.
    pub fn entry(&self, key: &Key, hash: Option<Algo>) -> Result<Entry> {
        let wrong = |kind, why: &str| Error::new(kind, "list", why).with_key(key);
        if self.remote_item.is_some() && self.target().is_none() {
            return Err(wrong(ErrorKind::Invalid, "it is on another drive, and the service doesn't tell on which"));
        }
        if self.is_folder() {
            let plain = key.as_bytes().strip_suffix(b"/").unwrap_or(key.as_bytes());
            let dir = Entry::dir(Key::new(plain));
            return Ok(Entry { mtime: self.mtime(), ..dir });
        }
        if self.file.is_none() && self.package.is_none() {
            return Err(wrong(ErrorKind::Unsupported, "the service tells of it neither as a file nor as a folder"));
        }
        let size = self
            .size
            .and_then(web::believed)
            .ok_or_else(|| wrong(ErrorKind::Invalid, "the service doesn't say how long this file is"))?;
        let version = self
            .version()
            .ok_or_else(|| wrong(ErrorKind::Invalid, "the service names no version of this file (eTag)"))?;
        let mut hashes = Hashes::default();
        if let Some((algo, value)) = hash.and_then(|algo| Some((algo, self.hashes().get(algo)?.to_vec()))) {
            hashes.set(algo, value);
        }
        Ok(Entry { mtime: self.mtime(), version: Some(version), hashes, ..Entry::file(key.clone(), size) })
    }
}

/// Graph's form of a time: whole seconds.
pub fn time(mtime: Mtime) -> String {
    jiff::Timestamp::from_second(mtime.secs()).unwrap_or_default().to_string()
}

/// The facet that sets a file's time.
pub fn times(mtime: Mtime) -> Value {
    json!({"lastModifiedDateTime": time(mtime)})
}

/// The base of a root that is the drive's own.
const DRIVE: &str = "root";

/// Where a store begins: below the drive's root, or an item (`items/ID`).
///
/// Errors: `Invalid` for what can't be names.
pub fn root(config: &Config, path: &[u8]) -> Result<Root> {
    let base = match &*config.root_folder_id {
        "" => DRIVE.into(),
        id => format!("items/{}", web::encoded(id.as_bytes())),
    };
    let names = path.split(|b| *b == b'/').filter(|part| !part.is_empty());
    let names = names.map(|part| name(config, part, &Key::new(path))).collect::<Result<_>>()?;
    Ok(Root { base, names })
}

/// It is the root of the drive.
pub fn is_drive(root: &Root) -> bool {
    root.base == DRIVE && root.is_base()
}

/// The service's name for a part of a key.
fn name(config: &Config, part: &[u8], key: &Key) -> Result<String> {
    let wrong = |why: &str| Error::new(ErrorKind::Invalid, "path", why).with_key(key);
    if is_odd(part) && (part.is_empty() || part.contains(&b'/')) {
        return Err(wrong("OneDrive can't hold a path with an empty name in it"));
    }
    config.encoding.encode_text(part).ok_or_else(|| wrong("OneDrive can't hold this name: rename it"))
}

/// A drive, and where in it the store is.
#[derive(Debug)]
pub struct Service {
    pub config: Config,
    pub root: Root,
    pub api: Api,
    pub caps: Caps,
    pub locator: String,
    pub downloads: Downloads,
    /// Folders by their names below the root's base.
    folders: Ids,
    /// Those that are shared in: the places of their names, and what they stand for.
    shared: Mutex<HashMap<Key, String>>,
    /// The folders above the root were looked at for such.
    looked: OnceCell<bool>,
    /// Hashes of the paths of files whose very names were seen there.
    files: Mutex<HashSet<u64>>,
    random: RandomState,
    pub moves: LostMoves,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    pub fn new(config: Config, root: Root, api: Api, caps: Caps, locator: String) -> Service {
        let (downloads, folders, shared, looked, files, moves) = Default::default();
        let random = RandomState::new();
        Service { config, root, api, caps, locator, downloads, folders, shared, looked, files, random, moves }
    }

    fn drive(&self) -> String {
        format!("{}/{}", self.config.endpoint, self.config.drive)
    }

    /// The address of the drive.
    pub fn of_drive(&self) -> String {
        self.drive()
    }

    /// The address of the item with this id, or of a request about it.
    pub fn by_id(&self, id: &str, verb: &str) -> String {
        let (drive, id) = match id.split_once('#') {
            Some((drive, id)) => (format!("{}/drives/{}", self.config.endpoint, web::encoded(drive.as_bytes())), id),
            None => (self.drive(), id),
        };
        format!("{drive}/items/{}{verb}", web::encoded(id.as_bytes()))
    }

    /// An item that was found at this address, known by its drive's id too where that is another.
    pub fn found(&self, address: &str, mut item: Item) -> Item {
        let foreign = address.strip_prefix(&*format!("{}/drives/", self.config.endpoint));
        let foreign = foreign.filter(|_| !address.starts_with(&*format!("{}/", self.drive())));
        if let Some(drive) = foreign.and_then(|rest| rest.split('/').next()) {
            let drive = percent_encoding::percent_decode_str(drive).decode_utf8_lossy();
            item.id = format!("{drive}#{}", item.id);
        }
        item
    }

    /// The entry as the service shows it once all of a key's content has arrived.
    pub fn shown(&self, key: &Key, item: Item) -> Result<Item> {
        Ok(self.found(&self.by_names(&self.root, &self.names(&self.root, key)?, "/content"), item))
    }

    /// A folder as others name it: with its drive, where that is another.
    pub fn reference(id: &str) -> Value {
        match id.split_once('#') {
            Some((drive, id)) => json!({"driveId": drive, "id": id}),
            None => json!({"id": id}),
        }
    }

    /// The names of a key below a root's base.
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

    fn by_names(&self, root: &Root, names: &[String], verb: &str) -> String {
        let (base, names) = self.nearest(root, names, verb);
        if let ([name], true) = (names, self.config.by_child) {
            // A quotation mark stands twice in a text.
            return format!("{base}/children('{}'){verb}", web::encoded(name.replace('\'', "''").as_bytes()));
        }
        let path = web::encoded(names.join("/").as_bytes());
        match (path.is_empty(), verb.is_empty()) {
            (true, _) => format!("{base}{verb}"),
            (_, true) => format!("{base}:/{path}"),
            _ => format!("{base}:/{path}:{verb}"),
        }
    }

    /// Start of the names in an address: at a shared folder, which only its own drive knows; where only children
    /// have names, at the parent folder. The folder itself is addressed in its own drive, so that a change affects it and not its
    /// target.
    fn nearest<'a>(&self, root: &Root, names: &'a [String], verb: &str) -> (String, &'a [String]) {
        let own = format!("{}/{}", self.drive(), root.base);
        if root.base != self.root.base {
            return (own, names);
        }
        let most = if verb.is_empty() { names.len().saturating_sub(1) } else { names.len() };
        let shared = locked(&self.shared);
        for count in (1..=most).rev() {
            let place = place(&names[..count]);
            let known = if self.config.by_child { self.folders.get(&place) } else { shared.get(&place).cloned() };
            if let Some(id) = known {
                return (self.by_id(&id, ""), &names[count..]);
            }
        }
        (own, names)
    }

    /// The address of a key below this store's root, or of a request about it (`/children`).
    ///
    /// Errors: `Invalid` for an invalid name; `NotFound` when a parent folder doesn't exist under exactly its name.
    pub async fn address(&self, op: &'static str, key: &Key, verb: &str) -> Result<String> {
        self.address_in(op, &self.root, key, verb).await
    }

    /// As [`Service::address`], below another root of the drive.
    pub async fn address_in(&self, op: &'static str, root: &Root, key: &Key, verb: &str) -> Result<String> {
        let names = self.names(root, key)?;
        if root.base == self.root.base {
            // How the root was typed counts for nothing; but where only children have names, it is found step by step.
            let first = if self.config.by_child { 1 } else { root.names.len() + 1 };
            let most = if verb == "/children" { names.len() } else { names.len().saturating_sub(1) };
            for count in first..=most {
                self.finds(op, key, &names[..count], count > root.names.len()).await?;
            }
        }
        Ok(self.by_names(root, &names, verb))
    }

    /// Looks up a folder that must exist, once; with `exactly`, a name in other case is another one. The service would silently accept
    /// it on the way to an entry below.
    async fn finds(&self, op: &'static str, key: &Key, names: &[String], exactly: bool) -> Result<()> {
        let made = self.folders.place(&place(names)).await;
        if made.id().is_some() {
            return Ok(());
        }
        let item = self.item(self.by_names(&self.root, names, "")).await.map_err(|refused| refused.at(op, key))?;
        let missing = |why: &str| Error::new(ErrorKind::NotFound, op, why).with_key(key);
        if !item.is_folder() {
            return Err(missing("a file is in the place of a folder"));
        }
        if exactly && names.last() != Some(&item.name) {
            return Err(missing("no such directory"));
        }
        self.keep(made, names, &item);
        Ok(())
    }

    /// Caches the facts of a folder; returns its id.
    fn keep(&self, made: IdSlot, names: &[String], item: &Item) -> String {
        let shared = item.target().inspect(|id| drop(locked(&self.shared).insert(place(names), id.clone())));
        made.keep(shared.unwrap_or_else(|| item.id.clone()))
    }

    /// A key's path in the drive, by which a write is known later.
    pub fn path(&self, key: &Key) -> Result<String> {
        Ok(format!(
            "{}/{}:/{}",
            self.drive(),
            self.root.base,
            web::encoded(self.names(&self.root, key)?.join("/").as_bytes())
        ))
    }

    /// The item at an address.
    pub async fn item(&self, address: String) -> ServiceResult<Item> {
        let item = self.api.json(&Call::new("item", Method::GET, &address)).await?;
        Ok(self.found(&address, item))
    }

    /// The item of a key, whatever it is.
    pub async fn at(&self, op: &'static str, key: &Key) -> Result<Item> {
        match self.item_of(op, key).await {
            Err(error) if error.kind() == ErrorKind::NotFound && self.finds_shared(op).await? => {
                self.item_of(op, key).await
            }
            other => other,
        }
    }

    async fn item_of(&self, op: &'static str, key: &Key) -> Result<Item> {
        self.item(self.address(op, key, "").await?).await.map_err(|refused| refused.at(op, key))
    }

    /// Looks once whether a folder on the way to the root is shared in; true when it is.
    pub async fn finds_shared(&self, op: &'static str) -> Result<bool> {
        let look = async {
            let mut found = false;
            for count in 1..=self.root.names.len() {
                match self.item(self.by_names(&self.root, &self.root.names[..count], "")).await {
                    Ok(item) if item.is_folder() => {
                        found |= item.remote_item.is_some();
                        self.put_folder(&place(&self.root.names[..count]), &item);
                    }
                    Ok(_) => break,
                    Err(refused) if refused.fault.kind == ErrorKind::NotFound => break,
                    Err(refused) => return Err(refused.fault.error(op)),
                }
            }
            Ok(found)
        };
        let first = !self.looked.initialized();
        Ok(*self.looked.get_or_try_init(|| look).await? && first)
    }

    /// A file that is shared in is what it stands for, under the name that it has here.
    pub async fn resolved(&self, item: Item) -> ServiceResult<Item> {
        match item.target().filter(|_| !item.is_folder()) {
            Some(id) => Ok(Item { name: item.name, ..self.item(self.by_id(&id, "")).await? }),
            None => Ok(item),
        }
    }

    fn put_folder(&self, place: &Key, item: &Item) {
        match item.target() {
            Some(id) => {
                self.folders.put(place, &id);
                locked(&self.shared).insert(place.clone(), id);
            }
            None => self.folders.put(place, &item.id),
        }
    }

    /// True for a shared folder, and for everything below one.
    pub fn is_shared(&self, key: &Key) -> bool {
        let shared = locked(&self.shared);
        let names = self.names(&self.root, key).unwrap_or_default();
        !shared.is_empty() && (1..=names.len()).any(|count| shared.contains_key(&place(&names[..count])))
    }

    /// The service's own name of the last part of a key.
    pub fn leaf(&self, key: &Key) -> Result<String> {
        Ok(self.names(&self.root, key)?.pop().unwrap_or_default())
    }

    fn number(&self, key: &Key) -> u64 {
        self.random.hash_one(key.as_bytes())
    }

    /// A file with this very name is there.
    pub fn saw(&self, key: &Key) {
        locked(&self.files).insert(self.number(key));
    }

    pub fn has_seen(&self, key: &Key) -> bool {
        locked(&self.files).contains(&self.number(key))
    }

    /// It is there no more.
    pub fn forget(&self, key: &Key) {
        locked(&self.files).remove(&self.number(key));
    }

    /// Forgets a folder and everything below it.
    pub fn forget_folder(&self, key: &Key) -> Result<()> {
        let place = place(&self.names(&self.root, key)?);
        self.folders.forget(&place);
        locked(&self.shared).remove(&place);
        Ok(())
    }

    /// A folder with this very name is there.
    pub fn saw_folder(&self, key: &Key, item: &Item) {
        if let Ok(names) = self.names(&self.root, key) {
            self.put_folder(&place(&names), item);
        }
    }

    /// The id of the folder `key`, which is made where it is missing.
    ///
    /// Errors: `Exists` when a file is in its place, or a folder whose name differs by case.
    pub async fn make_dir(&self, key: &Key, op: &'static str) -> Result<String> {
        match self.makes(key, op).await {
            // Cached facts about parent folders were outdated.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.folders.forget(&Key::new(""));
                self.makes(key, op).await
            }
            other => other,
        }
    }

    /// From the top: the service accepts a path whose folders differ in case, and reports only the last name of it.
    async fn makes(&self, key: &Key, op: &'static str) -> Result<String> {
        let names = self.names(&self.root, key)?;
        // Nothing may be created in place of a shared folder.
        self.finds_shared(op).await?;
        let mut id = self.folder(&names[..names.len().min(1)], None, key, op).await?;
        for count in 2..=names.len() {
            id = self.folder(&names[..count], Some(id), key, op).await?;
        }
        Ok(id)
    }

    async fn folder(&self, names: &[String], parent: Option<String>, key: &Key, op: &'static str) -> Result<String> {
        let made = self.folders.place(&place(names)).await;
        if let Some(id) = made.id() {
            return Ok(id);
        }
        let failed = |refused: ServiceError| refused.at(op, key);
        let Some((name, above)) = names.split_last() else {
            let root = self.item(self.by_names(&self.root, &[], "")).await.map_err(failed)?;
            return Ok(made.keep(root.id));
        };
        let address = match parent {
            Some(id) => self.by_id(&id, "/children"),
            None => self.by_names(&self.root, above, "/children"),
        };
        let question = json!({"name": name, "folder": {}, "@microsoft.graph.conflictBehavior": "fail"});
        let call = Call::new("mkdir", Method::POST, &address).json(&question);
        let item: Item = match self.api.json(&call).await {
            Ok(item) => self.found(&address, item),
            Err(refused) if refused.fault.kind == ErrorKind::Exists => {
                let there = self.item(self.by_names(&self.root, names, "")).await.map_err(failed)?;
                let exists = |why: String| Err(Error::new(ErrorKind::Exists, op, why).with_key(key));
                if !there.is_folder() {
                    return exists(format!("a file is in the place of the folder {name:?}"));
                }
                // How the root was typed counts for nothing.
                if there.name != *name && names.len() > self.root.names.len() {
                    return exists(folds(&there.name));
                }
                there
            }
            Err(refused) => return Err(failed(refused)),
        };
        Ok(self.keep(made, names, &item))
    }
}

/// Where the id of a folder is kept.
fn place(names: &[String]) -> Key {
    Key::new(names.iter().map(|name| format!("{name}/")).collect::<String>())
}

/// Why a name can't be written.
pub fn folds(there: &str) -> String {
    format!("{there:?} is there, which is the same name for OneDrive: rename one of them")
}

/// Checks that an address given by the service, to which our token is sent, is the service's.
///
/// Errors: it leads elsewhere.
pub fn own(config: &Config, address: &str) -> ServiceResult<()> {
    let origin = |text: &str| url::Url::parse(text).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
    match origin(address) == origin(&config.endpoint) {
        true => Ok(()),
        false => Err(Fault::broken("the service's listing goes on at another service").into()),
    }
}
