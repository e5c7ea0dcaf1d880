//! The drive's items and what becomes of them.

use super::names::{fold, is_legal};
use crate::spoils::Spoils;
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The drive's id.
pub const ID: &str = "b!drive-1";
/// The root's id.
pub const ROOT: &str = "ROOT";
/// The same of somebody else's drive.
pub const OTHER: &str = "b!drive-2";
const OTHER_ROOT: &str = "ROOT2";
/// Sessions take multiples of this but for the last bytes.
const GRANULE: u64 = 320 << 10;

/// A file or folder as tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileView {
    /// Bytes; `None` for a folder.
    pub size: Option<u64>,
    /// The client's time.
    pub mtime: String,
    /// Versions that count against the quota; 0 for a folder.
    pub versions: usize,
}

#[derive(Clone, Debug)]
pub struct Item {
    pub id: String,
    pub name: String,
    pub parent: String,
    pub file: Option<Content>,
    /// The item of another drive that it stands for.
    pub target: Option<String>,
    pub mtime: String,
    etag: u64,
    ctag: u64,
    pub versions: usize,
    /// The contents of all versions but the last.
    pub history: Vec<Content>,
    /// When it was changed last, on the drive's own count.
    pub change: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Content {
    pub size: u64,
    pub bytes: Bytes,
    pub hash: [u8; 20],
}

impl Content {
    fn of(bytes: Bytes) -> Content {
        let mut ring = Ring::default();
        ring.take(&bytes);
        Content { size: bytes.len() as u64, bytes, hash: ring.value() }
    }
}

#[derive(Debug)]
pub struct Session {
    pub parent: String,
    pub name: String,
    pub conflict: String,
    pub mtime: Option<String>,
    pub defer: bool,
    pub total: Option<u64>,
    pub has: u64,
    ring: Ring,
    pub bytes: Vec<u8>,
}

/// The value of QuickXorHash, bit by bit as Microsoft describes it.
#[derive(Debug, Default, Clone)]
struct Ring([u8; 20], u64);

impl Ring {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let bit = (self.1 * 11 % 160) as usize;
            let wide = u16::from(*byte) << (bit % 8);
            self.0[bit / 8] ^= wide as u8;
            self.0[(bit / 8 + 1) % 20] ^= (wide >> 8) as u8;
            self.1 += 1;
        }
    }

    fn value(&self) -> [u8; 20] {
        let mut value = self.0;
        (0..8).for_each(|i| value[12 + i] ^= self.1.to_le_bytes()[i]);
        value
    }
}

/// Status and code of a refusal.
pub type No = (u16, &'static str);
pub const MISSING: No = (404, "itemNotFound");
pub const EXISTS: No = (409, "nameAlreadyExists");
pub const BAD: No = (400, "invalidRequest");
pub const CHANGED: No = (412, "resourceModified");

#[derive(Debug)]
pub struct Drive {
    kind: &'static str,
    pub rewrites: bool,
    pub spoils: Spoils,
    keep: u64,
    pub items: BTreeMap<String, Item>,
    /// By parent and folded name.
    by_name: BTreeMap<(String, String), String>,
    pub sessions: BTreeMap<String, Session>,
    /// When items were deleted, by id.
    pub deleted: BTreeMap<String, u64>,
    pub recycled: usize,
    pub count: u64,
}

impl Drive {
    pub fn new(kind: &'static str, rewrites: bool, keep: u64) -> Drive {
        let mut drive = Drive {
            kind,
            rewrites,
            spoils: Spoils::default(),
            keep,
            items: BTreeMap::new(),
            by_name: BTreeMap::new(),
            sessions: BTreeMap::new(),
            deleted: BTreeMap::new(),
            recycled: 0,
            count: 0,
        };
        for id in [ROOT, OTHER_ROOT] {
            let root = drive.item("root".into(), String::new(), None, None);
            drive.items.insert(id.into(), Item { id: id.into(), ..root });
        }
        drive
    }

    pub fn tick(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn item(&mut self, name: String, parent: String, file: Option<Content>, mtime: Option<String>) -> Item {
        let change = self.tick();
        let versions = usize::from(file.is_some());
        let mtime = mtime.unwrap_or_else(now);
        let (target, history) = Default::default();
        Item {
            id: format!("ITEM{change}"),
            name,
            parent,
            file,
            target,
            mtime,
            etag: 1,
            ctag: 1,
            versions,
            history,
            change,
        }
    }

    /// The root of a drive.
    pub fn root(drive: &str) -> &'static str {
        if drive == OTHER { OTHER_ROOT } else { ROOT }
    }

    /// The drive that an item is on.
    pub fn drive_of(&self, id: &str) -> &'static str {
        let mut at = id;
        while let Some(item) = self.items.get(at).filter(|item| !item.parent.is_empty()) {
            at = &item.parent;
        }
        if at == OTHER_ROOT { OTHER } else { ID }
    }

    /// Shows what is at a path of the other drive under a name in this one.
    pub fn share(&mut self, path: &str, name: &str) -> Result<(), No> {
        let target = self.find(OTHER_ROOT, path)?.id.clone();
        let item = self.item(name.into(), ROOT.into(), None, None);
        self.add(Item { target: Some(target), ..item });
        Ok(())
    }

    pub fn find(&self, base: &str, path: &str) -> Result<&Item, No> {
        let mut item = self.items.get(base).ok_or(MISSING)?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let id = self.by_name.get(&(item.id.clone(), fold(part))).ok_or(MISSING)?;
            item = &self.items[id];
        }
        Ok(item)
    }

    pub fn children(&self, id: &str) -> impl Iterator<Item = &Item> {
        let from = (id.to_owned(), String::new());
        let own = id.to_owned();
        self.by_name.range(from..).take_while(move |((parent, _), _)| *parent == own).map(|(_, id)| &self.items[id])
    }

    /// The folder at a path, made where it is missing, as uploads by path do.
    pub fn folders(&mut self, base: &str, path: &str) -> Result<String, No> {
        let mut at = self.items.get(base).ok_or(MISSING)?.id.clone();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = match self.by_name.get(&(at.clone(), fold(part))) {
                Some(id) if self.items[id].file.is_some() || self.items[id].target.is_some() => return Err(BAD),
                Some(id) => id.clone(),
                None => self.make_folder(&at, part, "fail", None)?,
            };
        }
        Ok(at)
    }

    pub fn make_folder(
        &mut self,
        parent: &str,
        name: &str,
        conflict: &str,
        mtime: Option<String>,
    ) -> Result<String, No> {
        let above = self.items.get(parent).ok_or(MISSING)?;
        if above.file.is_some() || !is_legal(name) {
            return Err(BAD);
        }
        if let Some(id) = self.by_name.get(&(parent.to_owned(), fold(name))) {
            let is_folder = self.items[id].file.is_none();
            return if conflict == "replace" && is_folder { Ok(id.clone()) } else { Err(EXISTS) };
        }
        let item = self.item(name.into(), parent.into(), None, mtime);
        Ok(self.add(item))
    }

    /// The content's tag of a folder changes with whatever is in it.
    fn touch(&mut self, folder: &str) {
        let mut at = folder.to_owned();
        while let Some(item) = self.items.get_mut(&at) {
            item.ctag += 1;
            at = item.parent.clone();
        }
    }

    fn add(&mut self, item: Item) -> String {
        self.touch(&item.parent);
        let id = item.id.clone();
        self.by_name.insert((item.parent.clone(), fold(&item.name)), id.clone());
        self.items.insert(id.clone(), item);
        id
    }

    pub fn put(&mut self, path: &str, bytes: Bytes, mtime: Option<String>, conflict: &str) -> Result<String, No> {
        self.put_below(ROOT, path, bytes, mtime, conflict)
    }

    pub fn put_below(
        &mut self,
        base: &str,
        path: &str,
        bytes: Bytes,
        mtime: Option<String>,
        conflict: &str,
    ) -> Result<String, No> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.folders(base, above)?;
        self.store(&parent, name, Content::of(bytes), mtime, conflict)
    }

    pub fn may_store(&self, parent: &str, name: &str, conflict: &str, condition: Option<&str>) -> Result<(), No> {
        if !is_legal(name) {
            return Err(BAD);
        }
        let there = self.by_name.get(&(parent.to_owned(), fold(name))).map(|id| &self.items[id]);
        match there {
            Some(item) if condition.is_some_and(|tag| !item.is(tag)) => Err(CHANGED),
            None if condition.is_some() => Err(CHANGED),
            Some(item) if item.file.is_none() || conflict == "fail" => Err(EXISTS),
            _ => Ok(()),
        }
    }

    /// Stores a content; a file that is there gets another version of it, and keeps its name.
    fn store(
        &mut self,
        parent: &str,
        name: &str,
        mut content: Content,
        mtime: Option<String>,
        conflict: &str,
    ) -> Result<String, No> {
        self.may_store(parent, name, conflict, None)?;
        if self.rewrites && (name.ends_with(".docx") || name.ends_with(".xlsx")) {
            content = Content::of([&content.bytes, &b"<properties/>"[..]].concat().into());
        }
        if let Some(other) = self.spoils.other(&content.bytes) {
            content = Content { size: content.size, ..Content::of(other) };
        }
        match self.by_name.get(&(parent.to_owned(), fold(name))).cloned() {
            Some(id) => {
                self.touch(parent);
                let change = self.tick();
                let item = self.items.get_mut(&id).ok_or(MISSING)?;
                item.history.extend(item.file.replace(content));
                item.mtime = mtime.unwrap_or_else(now);
                (item.etag, item.ctag) = (item.etag + 1, item.ctag + 1);
                (item.versions, item.change) = (item.versions + 1, change);
                Ok(id)
            }
            None => {
                let item = self.item(name.into(), parent.into(), Some(content), mtime);
                Ok(self.add(item))
            }
        }
    }

    /// Makes another version with the content of an earlier one; its time isn't said to come back with it.
    pub fn restore(&mut self, id: &str, number: usize) -> Result<(), No> {
        let change = self.tick();
        let item = self.items.get_mut(id).ok_or(MISSING)?;
        let content = number.checked_sub(1).and_then(|at| item.history.get(at)).ok_or(MISSING)?.clone();
        item.history.extend(item.file.replace(content));
        (item.etag, item.ctag) = (item.etag + 1, item.ctag + 1);
        (item.versions, item.change) = (item.versions + 1, change);
        Ok(())
    }

    /// Bytes for a session: the item's id when it is whole.
    pub fn append(&mut self, id: &str, from: u64, total: u64, pieces: &[Bytes]) -> Result<Option<String>, No> {
        let session = self.sessions.get_mut(id).ok_or(MISSING)?;
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let last = from + len == total;
        if session.total.is_some_and(|known| known != total) || len == 0 || len >= 60 << 20 {
            return Err(BAD);
        }
        if from != session.has || from + len > total {
            return Err((416, "invalidRange"));
        }
        if !last && !len.is_multiple_of(GRANULE) {
            return Err(BAD);
        }
        session.total = Some(total);
        for piece in pieces {
            session.ring.take(piece);
            if total <= self.keep {
                session.bytes.extend_from_slice(piece);
            }
        }
        session.has += len;
        if !last || session.defer { Ok(None) } else { self.commit(id).map(Some) }
    }

    pub fn commit(&mut self, id: &str) -> Result<String, No> {
        let session = self.sessions.get(id).ok_or(MISSING)?;
        if session.total != Some(session.has) {
            return Err(BAD);
        }
        self.may_store(&session.parent, &session.name, &session.conflict, None)?;
        let session = self.sessions.remove(id).ok_or(MISSING)?;
        let content = Content { size: session.has, bytes: session.bytes.into(), hash: session.ring.value() };
        self.store(&session.parent, &session.name, content, session.mtime, &session.conflict)
    }

    pub fn open(
        &mut self,
        parent: String,
        name: String,
        conflict: String,
        mtime: Option<String>,
        defer: bool,
    ) -> String {
        let id = format!("S{}", self.tick());
        let session = Session {
            parent,
            name,
            conflict,
            mtime,
            defer,
            total: None,
            has: 0,
            ring: Ring::default(),
            bytes: Vec::new(),
        };
        self.sessions.insert(id.clone(), session);
        id
    }

    /// Changes name, place and time. Business keeps a version of a file for a time too.
    pub fn patch(
        &mut self,
        id: &str,
        name: Option<&str>,
        parent: Option<&str>,
        mtime: Option<String>,
    ) -> Result<(), No> {
        let item = self.items.get(id).ok_or(MISSING)?.clone();
        let (to, name) = (parent.unwrap_or(&item.parent).to_owned(), name.unwrap_or(&item.name).to_owned());
        let is_root = item.parent.is_empty();
        if is_root && (to != item.parent || name != item.name) || !is_root && !is_legal(&name) {
            return Err(BAD);
        }
        if !is_root && self.drive_of(&to) != self.drive_of(id) {
            return Err((400, "notSupported"));
        }
        if !is_root {
            if self.items.get(&to).is_none_or(|folder| folder.file.is_some()) {
                return Err(MISSING);
            }
            let (old, new) = ((item.parent.clone(), fold(&item.name)), (to.clone(), fold(&name)));
            if self.by_name.get(&new).is_some_and(|there| there != id) {
                return Err(EXISTS);
            }
            self.by_name.remove(&old);
            self.by_name.insert(new, id.to_owned());
            self.touch(&item.parent);
            self.touch(&to);
        }
        let (change, versions) =
            (self.tick(), usize::from(self.kind != "personal" && mtime.is_some() && item.file.is_some()));
        let there = self.items.get_mut(id).ok_or(MISSING)?;
        (there.name, there.parent, there.change) = (name, to, change);
        if versions > 0 {
            there.history.extend(there.file.clone());
        }
        there.versions += versions;
        there.etag += 1;
        if let Some(mtime) = mtime {
            there.mtime = mtime;
        }
        Ok(())
    }

    pub fn remove(&mut self, id: &str, forever: bool) -> Result<(), No> {
        if [ROOT, OTHER_ROOT].contains(&id) {
            return Err(BAD);
        }
        let inside: Vec<String> = self.children(id).map(|item| item.id.clone()).collect();
        for id in inside {
            self.remove(&id, true)?;
        }
        let item = self.items.remove(id).ok_or(MISSING)?;
        self.touch(&item.parent);
        self.by_name.remove(&(item.parent, fold(&item.name)));
        let change = self.tick();
        self.deleted.insert(id.to_owned(), change);
        self.recycled += usize::from(!forever);
        Ok(())
    }

    /// A copy has the time at which it was made.
    pub fn copy(&mut self, id: &str, parent: &str, name: &str, conflict: &str) -> Result<String, No> {
        let item = self.items.get(id).ok_or(MISSING)?.clone();
        match item.file {
            Some(content) => self.store(parent, name, content, None, conflict),
            None => {
                let made = self.make_folder(parent, name, conflict, None)?;
                let inside: Vec<(String, String)> = self.children(id).map(|c| (c.id.clone(), c.name.clone())).collect();
                for (child, name) in inside {
                    self.copy(&child, &made, &name, conflict)?;
                }
                Ok(made)
            }
        }
    }

    pub fn path(&self, id: &str) -> String {
        let mut parts = Vec::new();
        let mut at = &self.items[id];
        while !at.parent.is_empty() {
            parts.push(at.name.clone());
            at = &self.items[&at.parent];
        }
        parts.reverse();
        parts.join("/")
    }

    pub fn used(&self) -> u64 {
        self.items.values().filter_map(|item| item.file.as_ref()).map(|content| content.size).sum()
    }

    pub fn shown(&self, drive: &str) -> BTreeMap<String, FileView> {
        let items = self.items.values().filter(|item| !item.parent.is_empty() && self.drive_of(&item.id) == drive);
        let show = |item: &Item| FileView {
            size: item.file.as_ref().map(|content| content.size),
            mtime: item.mtime.clone(),
            versions: item.versions,
        };
        items.map(|item| (self.path(&item.id), show(item))).collect()
    }

    /// An item as the service tells it; Business tells the content's tag neither of folders
    /// (<https://learn.microsoft.com/graph/api/resources/driveitem>) nor in changes.
    pub fn json(&self, item: &Item, base: &str, in_delta: bool) -> Value {
        let mut value = json!({
            "id": item.id,
            "name": item.name,
            "eTag": item.etag(),
            "cTag": item.ctag(),
            "createdDateTime": "2020-01-01T00:00:00Z",
            "lastModifiedDateTime": now(),
            "size": item.file.as_ref().map_or(0, |content| content.size),
            "webUrl": format!("{base}/web/{}", item.id),
            "fileSystemInfo": {"createdDateTime": "2020-01-01T00:00:00Z", "lastModifiedDateTime": item.mtime},
            "parentReference": {"driveId": self.drive_of(&item.id), "driveType": self.kind},
        });
        if !item.parent.is_empty() {
            let above = self.path(&item.parent);
            let path =
                format!("/drives/{}/root:{}{above}", self.drive_of(&item.id), if above.is_empty() { "" } else { "/" });
            value["parentReference"]["id"] = json!(item.parent);
            value["parentReference"]["path"] = json!(path);
        }
        if let Some(target) = item.target.as_ref().and_then(|id| self.items.get(id)) {
            // The entry describes its target, without hashes of the content.
            let mut there = self.json(target, base, true);
            if let Some(file) = there.get_mut("file").and_then(Value::as_object_mut) {
                file.remove("hashes");
            }
            // Which is optional.
            there.as_object_mut().map(|there| there.remove("name"));
            value["remoteItem"] = there;
            return value;
        }
        match &item.file {
            Some(content) => {
                let hashes = json!({"quickXorHash": B64.encode(content.hash)});
                value["file"] = json!({"mimeType": "application/octet-stream", "hashes": hashes});
                if !in_delta {
                    value["@microsoft.graph.downloadUrl"] = json!(download(base, item));
                }
            }
            None => value["folder"] = json!({"childCount": self.children(&item.id).count()}),
        }
        if item.parent.is_empty() {
            value["root"] = json!({});
        }
        if self.kind != "personal" && (in_delta || item.file.is_none()) {
            value.as_object_mut().map(|map| map.remove("cTag"));
        }
        value
    }
}

/// An address that is good without a token, for the content as it is now.
pub fn download(base: &str, item: &Item) -> String {
    format!("{base}/dl/{}?tempauth=t{}", item.id, item.ctag)
}

impl Item {
    pub fn etag(&self) -> String {
        format!("\"{{{}}},{}\"", self.id, self.etag)
    }

    fn ctag(&self) -> String {
        format!("\"c:{{{}}},{}\"", self.id, self.ctag)
    }

    /// True when the tag is one of this item as it is.
    pub fn is(&self, tag: &str) -> bool {
        tag == self.etag() || tag == self.ctag()
    }
}

/// The service keeps whole seconds.
pub fn second(text: &str) -> Option<String> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(jiff::Timestamp::from_second(time.as_second()).ok()?.to_string())
}

pub fn now() -> String {
    second(&jiff::Timestamp::now().to_string()).unwrap_or_default()
}
