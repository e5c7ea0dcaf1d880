//! Where keys are: ids of directories, kept once they are known, and files by name.

use crate::{
    exports::Exports,
    facts::{FIELDS, FOLDER, File, is_id},
    options::Config,
    pending_folders::PendingFolders,
};
use haul_core::{Error, ErrorKind, Key, Result, Retry};
use haul_net::{Fault, Pages};
use haul_oauth::{Api, Call, ServiceResult, few};
use haul_store::{
    Caps, KeyLocks,
    ids::{Ids, Root},
    tree,
};
use http::{HeaderName, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::OnceCell;

const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Several writers that make one folder at once agree within some requests: the waits before each look.
const AGREED: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800), Duration::from_millis(1600)];
/// Ids that are asked for at once.
const IDS: usize = 100;

/// A store's root, from the options and the path after the colon.
///
/// Errors: `Invalid` for names that can't be.
pub fn root(config: &Config, path: &[u8]) -> Result<Root> {
    let names = path.split(|b| *b == b'/').filter(|part| !part.is_empty());
    let bad = || Error::new(ErrorKind::Invalid, "open", "Google Drive can't hold such a path");
    let names = names.map(|name| config.encoding.encode_text(name).ok_or_else(bad)).collect::<Result<_>>()?;
    Ok(Root { base: config.start.clone(), names })
}

/// A page of a listing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(deserialize_with = "few")]
    files: Vec<File>,
    next_page_token: Option<String>,
    #[serde(default)]
    incomplete_search: bool,
}

#[derive(Deserialize)]
struct GeneratedIds {
    ids: Vec<String>,
}

/// Everything that requests need.
#[derive(Debug)]
pub struct Service {
    pub config: Config,
    pub root: Root,
    pub caps: Caps,
    pub locator: String,
    pub api: Arc<Api>,
    /// The real id of where the root's way starts.
    start: OnceCell<String>,
    /// Ids of directories.
    pub dirs: Ids,
    /// The folder that the root's last name was found in.
    above: Mutex<Option<String>>,
    pub standing: PendingFolders,
    /// Whoever makes a directory: two at once would make two of one name.
    pub making: tokio::sync::Mutex<()>,
    ids: tokio::sync::Mutex<Vec<String>>,
    pub exports: Exports,
    /// Whoever looks whether a name is free and then takes it: two at once would make two files of it.
    pub names: KeyLocks,
}

/// Items with one name in a folder.
#[derive(Debug, Default)]
pub struct Named {
    /// The newest first.
    pub files: Vec<File>,
    /// Of Google's own, shown as files.
    pub documents: Vec<File>,
    folders: Vec<File>,
}

impl Named {
    /// The readable one: the newest file, else the newest document.
    pub fn newest(self) -> Option<File> {
        self.files.into_iter().chain(self.documents).next()
    }

    /// The only one of this name that isn't a folder, if there is one.
    ///
    /// Errors: `Invalid` where there are several.
    pub fn only(self, op: &'static str, key: &Key) -> Result<Option<File>> {
        match self.files.len() + self.documents.len() {
            0 | 1 => Ok(self.newest()),
            count => Err(doubled(op, key, count)),
        }
    }

    /// True where nothing has the name.
    pub fn is_nothing(&self) -> bool {
        self.files.is_empty() && self.documents.is_empty() && self.folders.is_empty()
    }

    /// The folder, if there is one.
    ///
    /// Errors: `Invalid` where there are several.
    pub fn folder(&self, key: &Key) -> Result<Option<File>> {
        match self.folders.len() {
            0 | 1 => Ok(self.folders.first().cloned()),
            count => Err(doubled("find", key, count)),
        }
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

/// Text as it stands in a query.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The error of a name that several files have.
pub fn doubled(op: &'static str, key: &Key, count: usize) -> Error {
    let message = format!("{count} have this name in Google Drive: rename or remove all but one");
    Error::new(ErrorKind::Invalid, op, message).with_key(key)
}

impl Service {
    /// Sends nothing.
    pub fn new(config: Config, root: Root, caps: Caps, locator: String, api: Arc<Api>) -> Service {
        Service {
            config,
            root,
            caps,
            locator,
            api,
            start: OnceCell::new(),
            dirs: Ids::default(),
            above: Mutex::default(),
            standing: PendingFolders::default(),
            making: tokio::sync::Mutex::default(),
            ids: tokio::sync::Mutex::default(),
            exports: Exports::default(),
            names: KeyLocks::default(),
        }
    }

    /// A request; `path` begins behind `/drive/v3`.
    pub fn call(&self, kind: &'static str, method: Method, path: &str, query: &[(&str, &str)]) -> Call {
        self.request(kind, method, &format!("/drive/v3{path}"), query)
    }

    /// A request with content; `path` is `/files` and perhaps an id.
    pub fn upload(&self, kind: &'static str, method: Method, path: &str, how: &str) -> Call {
        let mut query = vec![("uploadType", how), ("fields", FIELDS)];
        query.extend(self.config.keep_revision_forever.then_some(("keepRevisionForever", "true")));
        self.request(kind, method, &format!("/upload/drive/v3{path}"), &query)
    }

    fn request(&self, kind: &'static str, method: Method, path: &str, query: &[(&str, &str)]) -> Call {
        let all = query.iter().copied().chain([("supportsAllDrives", "true")]).filter(|(_, value)| !value.is_empty());
        let query: Vec<_> = all.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let call = Call::new(kind, method, format!("{}{path}?{}", self.config.endpoint, query.join("&")));
        match &*self.config.resource_key {
            "" => call,
            key => {
                let name = HeaderName::from_static("x-goog-drive-resource-keys");
                call.header(name, format!("{}/{key}", self.root.base))
            }
        }
    }

    /// Changes facts of a file.
    pub async fn patch(&self, id: &str, query: &[(&str, &str)], facts: &Value) -> ServiceResult<File> {
        let query = [query, &[("fields", FIELDS)]].concat();
        self.api.json(&self.call("UpdateFile", Method::PATCH, &format!("/files/{id}"), &query).json(facts)).await
    }

    /// Removes a file: into the trash, unless the user turned that off.
    pub async fn remove(&self, id: &str) -> ServiceResult<()> {
        if self.config.use_trash {
            return self.trash(id).await;
        }
        let call = self.call("DeleteFile", Method::DELETE, &format!("/files/{id}"), &[]);
        gone(self.api.ask(&call).await.map(|_| ()))
    }

    /// Puts a file or folder into the trash, with all that is in it.
    pub async fn trash(&self, id: &str) -> ServiceResult<()> {
        gone(self.patch(id, &[], &json!({ "trashed": true })).await.map(|_| ()))
    }

    /// Files that a search finds, all of them.
    pub async fn search(&self, query: &str) -> ServiceResult<Vec<File>> {
        let (size, fields) =
            (self.config.list_chunk.to_string(), format!("nextPageToken,incompleteSearch,files({FIELDS})"));
        let (mut all, mut token, mut pages) = (Vec::new(), String::new(), Pages::default());
        loop {
            let mut params = vec![("q", query), ("pageSize", &*size), ("fields", &*fields), ("pageToken", &*token)];
            params.push(("includeItemsFromAllDrives", "true"));
            if !self.config.team_drive.is_empty() {
                params.extend([("corpora", "drive"), ("driveId", &*self.config.team_drive)]);
            }
            let page: Page = self.api.json(&self.call("ListFiles", Method::GET, "/files", &params)).await?;
            if page.incomplete_search {
                return Err(Fault::broken("Google didn't search everything").into());
            }
            if !page.files.iter().all(|file| is_id(&file.id)) {
                return Err(Fault::broken("Google listed something by what is no id").into());
            }
            all.extend(page.files.into_iter().filter(|file| pages.is_new(&file.id)));
            match page.next_page_token {
                None => return Ok(all),
                Some(next) if next.is_empty() => return Err(Fault::broken("the listing does not advance").into()),
                Some(next) => {
                    pages.next(&next)?;
                    token = next;
                }
            }
        }
    }

    /// Facts of a file by its id.
    pub async fn by_id(&self, id: &str) -> ServiceResult<File> {
        let file: File =
            self.api.json(&self.call("GetFile", Method::GET, &format!("/files/{id}"), &[("fields", FIELDS)])).await?;
        if is_id(&file.id) { Ok(file) } else { Err(Fault::broken("the answer names no file").into()) }
    }

    /// The condition of being in a folder.
    pub fn inside(&self, id: &str) -> String {
        let is_root = id == self.root.base && self.root.is_base();
        match (is_root && self.config.shared_with_me, is_root && self.config.starred_only) {
            (true, true) => "sharedWithMe = true and starred = true".into(),
            (true, false) => "sharedWithMe = true".into(),
            (false, true) => "starred = true".into(),
            (false, false) => format!("{} in parents", quoted(id)),
        }
    }

    /// Restricts a query to the items that are shown.
    pub fn shown(&self, which: &str) -> String {
        match self.config.trashed_only {
            true => format!("(mimeType = {} or trashed = true) and ({which})", quoted(FOLDER)),
            false => format!("trashed = false and ({which})"),
        }
    }

    /// Contents of a folder.
    pub async fn children(&self, id: &str) -> ServiceResult<Vec<File>> {
        self.search(&self.shown(&self.inside(id))).await
    }

    /// Items of a folder with this name in any case; and documents that may be shown under it.
    async fn named(&self, id: &str, name: &str) -> ServiceResult<Vec<File>> {
        let inside = self.inside(id);
        let stem = |ending| name.strip_suffix(ending)?.strip_suffix('.').filter(|stem| !stem.is_empty());
        let stems = self.config.exports.iter().filter_map(|format| stem(format.ending));
        let any: Vec<_> = std::iter::once(name).chain(stems).map(|name| format!("name = {}", quoted(name))).collect();
        self.search(&self.shown(&format!("{inside} and ({})", any.join(" or ")))).await
    }

    /// The target of a shortcut; `None` for shortcuts and documents that are left out.
    pub async fn followed(&self, file: File) -> ServiceResult<Option<File>> {
        let mut file = match file.shortcut_details {
            Some(_) if self.config.skip_shortcuts => return Ok(None),
            Some(shortcut) if !is_id(&shortcut.target_id) => {
                return Err(Fault::broken("Google doesn't say what this shortcut leads to").into());
            }
            Some(shortcut) => {
                let target = match self.by_id(&shortcut.target_id).await {
                    Err(gone) if gone.fault.status == 404 && self.config.skip_dangling_shortcuts => return Ok(None),
                    target => target?,
                };
                if target.trashed && !self.config.trashed_only {
                    let message = "what this shortcut leads to is in the trash";
                    return Err(Fault::new(ErrorKind::Invalid, Retry::Never, message).into());
                }
                File { via: file.id, name: file.name, ..target }
            }
            None => file,
        };
        if file.is_withheld() && !self.config.skip_gdocs && !self.config.exports.is_empty() {
            let message = "Google offers no file of this document: its owner may not let others download it. \
                           --drive-skip-gdocs leaves out all of Google's documents";
            return Err(Fault::new(ErrorKind::Denied, Retry::Never, message).into());
        }
        file.format = file.format_of(&self.config.exports);
        let is_left_out = file.is_document() && file.format.is_none();
        Ok((!is_left_out).then_some(file))
    }

    /// True for the root of a Drive, which differs from other folders.
    pub fn is_top(&self, key: &Key) -> bool {
        key.is_root() && self.root.is_base()
    }

    /// A key's name in its directory, as the service has it.
    ///
    /// Errors: `Invalid` for a name that it can't have.
    pub fn name(&self, key: &Key) -> Result<String> {
        let plain = key.as_bytes().strip_suffix(b"/").unwrap_or(key.as_bytes());
        let bad = || Error::new(ErrorKind::Invalid, "name", "this can't be a name in Google Drive").with_key(key);
        if plain.split(|b| *b == b'/').any(tree::is_odd) {
            return Err(bad());
        }
        let name = plain.rsplit(|b| *b == b'/').next().unwrap_or_default();
        self.config.encoding.encode_text(name).ok_or_else(bad)
    }

    /// The real id of where the root's way starts: listings name it so.
    async fn start(&self, root: &Root) -> Result<String> {
        if root.base != "root" || self.config.shared_with_me || self.config.starred_only {
            return Ok(root.base.clone());
        }
        let ask = async || match self.by_id("root").await {
            Ok(file) => Ok(file.id),
            // A login limited to its own files can't see it, but may use it.
            Err(refused) if refused.fault.status == 404 => Ok("root".to_owned()),
            Err(refused) => Err(refused.fault.error("open")),
        };
        self.start.get_or_try_init(ask).await.cloned()
    }

    /// The items with exactly this name in a folder, by one query. Where several writers have just made a folder of this name it waits
    /// until they have agreed on one.
    pub async fn look(&self, parent: &str, name: &str, key: &Key) -> Result<Named> {
        for wait in AGREED {
            let named = self.look_now(parent, name, key).await?;
            if named.folders.len() < 2 || !named.folders.iter().any(File::is_young) {
                return Ok(named);
            }
            tokio::time::sleep(wait).await;
        }
        self.look_now(parent, name, key).await
    }

    async fn look_now(&self, parent: &str, name: &str, key: &Key) -> Result<Named> {
        let mut named = Named::default();
        for file in self.named(parent, name).await.map_err(|refused| refused.at("find", key))? {
            match self.followed(file).await.map_err(|refused| refused.at("find", key))? {
                // Case doesn't count for the service.
                Some(file) if file.shown_name() != name => {}
                Some(file) if file.is_folder() => named.folders.push(file),
                Some(file) if file.is_document() => named.documents.push(file),
                Some(file) => named.files.push(file),
                None => {}
            }
        }
        for files in [&mut named.files, &mut named.documents] {
            files.sort_by(|a, b| b.modified_time.cmp(&a.modified_time));
        }
        Ok(named)
    }

    /// The folder in a folder; `None` when there is none.
    pub async fn folder_in(&self, parent: &str, name: &str, key: &Key) -> Result<Option<File>> {
        self.look(parent, name, key).await?.folder(key)
    }

    /// The id of another root.
    ///
    /// Errors: `DirNotFound`.
    pub async fn root_of(&self, root: &Root) -> Result<String> {
        Ok(self.walk_root(root, false).await?.0)
    }

    /// See [`Service::above`].
    pub fn above(&self) -> Option<String> {
        self.above.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The id of a directory.
    ///
    /// Errors: `NotFound`; `DirNotFound` when the root is missing.
    pub async fn dir(&self, key: &Key) -> Result<String> {
        self.walk(key, false).await
    }

    /// As [`Service::dir`], but creates missing folders.
    pub async fn made(&self, key: &Key) -> Result<String> {
        if let Some(id) = self.dirs.get(key) {
            return Ok(id);
        }
        self.may_write("mkdir", key)?;
        let _alone = self.making.lock().await;
        self.walk(key, true).await
    }

    async fn walk(&self, key: &Key, make: bool) -> Result<String> {
        if let Some(id) = self.dirs.get(key) {
            return Ok(id);
        }
        let mut id = {
            let place = self.dirs.place(&Key::new("")).await;
            match place.id() {
                Some(id) => id,
                None => {
                    let (id, above) = self.walk_root(&self.root, make).await?;
                    *self.above.lock().unwrap_or_else(PoisonError::into_inner) = above;
                    place.keep(id)
                }
            }
        };
        for (at, _) in key.as_bytes().iter().enumerate().filter(|(_, b)| **b == b'/') {
            let dir = Key::new(&key.as_bytes()[..=at]);
            let place = self.dirs.place(&dir).await;
            if let Some(known) = place.id() {
                id = known;
                continue;
            }
            let name = self.name(&dir)?;
            let named = self.look(&id, &name, &dir).await?;
            let found = match named.folder(&dir)? {
                Some(folder) => folder.id,
                None if make => self.create_dir_in(&id, &name, &dir, &named).await?,
                None => return Err(Error::new(ErrorKind::NotFound, "find", "no such directory").with_key(&dir)),
            };
            id = place.keep(found);
        }
        Ok(id)
    }

    /// The id of a root's folder, and that of the folder that it is in, if it was found by a name.
    async fn walk_root(&self, root: &Root, make: bool) -> Result<(String, Option<String>)> {
        let key = Key::new("");
        let (mut id, mut above) = (self.start(root).await?, None);
        for name in &root.names {
            let named = self.look(&id, name, &key).await?;
            let missing = || Error::new(ErrorKind::DirNotFound, "find", format!("no folder {name:?} in Google Drive"));
            let next = match named.folder(&key)? {
                Some(folder) => folder.id,
                None if make => self.create_dir(&id, name, &key, &named).await?,
                None => return Err(missing()),
            };
            above = Some(std::mem::replace(&mut id, next));
        }
        Ok((id, above))
    }

    /// Makes a directory in one that may have been known for long.
    async fn create_dir_in(&self, parent: &str, name: &str, key: &Key, there: &Named) -> Result<String> {
        let made = self.create_dir(parent, name, key, there).await?;
        let above = key.parent();
        if self.stands(&above, parent).await? {
            return Ok(made);
        }
        // It was made in the trash, or elsewhere: the next try finds the way anew.
        self.lost(&above, parent);
        let error = Error::new(ErrorKind::Io, "mkdir", "the folder has gone");
        Err(error.with_retry(Retry::Backoff).with_key(key))
    }

    async fn create_dir(&self, parent: &str, name: &str, key: &Key, there: &Named) -> Result<String> {
        // A file must not be hidden behind a folder.
        if !there.files.is_empty() {
            return Err(Error::new(ErrorKind::Exists, "mkdir", "a file is in its place").with_key(key));
        }
        let id = self.new_id(key).await?;
        let question = json!({ "id": id, "name": name, "mimeType": FOLDER, "parents": [parent] });
        let call = self.call("CreateFolder", Method::POST, "/files", &[("fields", "id")]).json(&question);
        match self.api.ask(&call).await {
            Ok(_) => {}
            // Nobody knows whether it was made; by its id that can be seen, and nothing is made twice.
            Err(refused) if refused.fault.is_ambiguous() => {
                self.by_id(&id).await.map_err(|_| refused.at("mkdir", key))?;
            }
            Err(refused) => return Err(refused.at("mkdir", key)),
        }
        self.eldest(parent, name, key, id).await
    }

    /// Of several directories created at once with one name, the one that all writers choose: `made` is our own. It is deleted if it isn't
    /// the chosen one.
    async fn eldest(&self, parent: &str, name: &str, key: &Key, made: String) -> Result<String> {
        let there = self.look_now(parent, name, key).await?.folders;
        let eldest = there.iter().filter(|folder| folder.via.is_empty()).min_by_key(|folder| folder.seniority());
        let is_listed = there.iter().any(|folder| folder.id == made);
        let Some(eldest) = eldest.filter(|eldest| is_listed && eldest.id != made) else { return Ok(made) };
        // Nobody was given ours. If another writer found it all the same, it stays, and the user is warned of two.
        let inside = format!("trashed = false and {} in parents", quoted(&made));
        if self.search(&inside).await.map_err(|refused| refused.at("mkdir", key))?.is_empty() {
            // Into the trash, whatever is deleted otherwise: what comes into it in this moment isn't lost.
            self.trash(&made).await.map_err(|refused| refused.at("mkdir", key))?;
        }
        Ok(eldest.id.clone())
    }

    /// An id for a new file: creating it twice under one id creates one file.
    pub async fn new_id(&self, key: &Key) -> Result<String> {
        let mut ids = self.ids.lock().await;
        if ids.is_empty() {
            let count = IDS.to_string();
            let call =
                self.call("GenerateIds", Method::GET, "/files/generateIds", &[("count", &count), ("fields", "ids")]);
            let answer: GeneratedIds = self.api.json(&call).await.map_err(|refused| refused.at("write", key))?;
            *ids = answer.ids;
        }
        ids.pop().ok_or_else(|| Fault::broken("Google gave no ids").at("write", key))
    }

    /// The items with a key's name.
    ///
    /// Errors: `NotFound` when the directory is missing.
    pub async fn at(&self, key: &Key) -> Result<Named> {
        let parent = self.dir(&key.parent()).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => error.with_key(key),
            _ => error,
        })?;
        self.look(&parent, &self.name(key)?, key).await
    }

    /// Errors: `Unsupported` where only the trash is shown.
    pub fn may_write(&self, op: &'static str, key: &Key) -> Result<()> {
        match self.config.trashed_only {
            true => {
                let message = "with trashed_only nothing is written: it shows what is in the trash";
                Err(Error::new(ErrorKind::Unsupported, op, message).with_key(key))
            }
            false => Ok(()),
        }
    }
}

/// A missing item needn't be removed.
fn gone(done: ServiceResult<()>) -> ServiceResult<()> {
    match done {
        Err(refused) if refused.fault.status == 404 => Ok(()),
        other => other,
    }
}
