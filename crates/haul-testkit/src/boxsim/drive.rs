//! Items by id, and what becomes of them. Names that differ by case alone are one.

use crate::spoils::Spoils;
use bytes::Bytes;
use haul_core::{
    Algo,
    hash::{hash_bytes, to_hex},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The id of the topmost folder.
pub const ROOT: &str = "0";

/// Status and code of a refusal.
pub type No = (u16, &'static str);

/// A refusal, and what the service says about it.
#[derive(Debug)]
pub struct Problem {
    pub no: No,
    pub context: Value,
}

impl From<No> for Problem {
    fn from(no: No) -> Self {
        Problem { no, context: Value::Null }
    }
}

/// A file or folder as tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileView {
    /// Bytes; `None` for a folder.
    pub size: Option<u64>,
    /// The client's time.
    pub mtime: String,
    /// Versions; 0 for a folder.
    pub versions: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Folder,
    File { bytes: Bytes, sha1: String, versions: usize, history: Vec<Earlier> },
    Bookmark,
}

/// A version of a file that was replaced.
#[derive(Clone, Debug)]
struct Earlier {
    id: String,
    bytes: Bytes,
    sha1: String,
}

#[derive(Clone, Debug)]
struct Item {
    name: String,
    parent: String,
    kind: Kind,
    mtime: String,
    etag: u64,
    trashed: bool,
}

#[derive(Debug)]
pub struct Drive {
    items: BTreeMap<String, Item>,
    /// By parent and folded name; not what is in the trash.
    names: BTreeMap<(String, String), String>,
    count: u64,
    pub spoils: Spoils,
}

const MISSING: No = (404, "not_found");
const CHANGED: No = (412, "precondition_failed");

fn fold(name: &str) -> String {
    name.to_lowercase()
}

fn now() -> String {
    second(&jiff::Timestamp::now().to_string()).unwrap_or_default()
}

/// The service keeps whole seconds, and tells them in its own time zone.
pub fn second(text: &str) -> Option<String> {
    let time: jiff::Timestamp = text.parse().ok()?;
    let time = jiff::Timestamp::from_second(time.as_second() - i64::from(time.subsec_nanosecond() < 0)).ok()?;
    let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(-8));
    Some(time.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

pub fn check(name: &str) -> Result<(), No> {
    if name.chars().count() > 255 {
        return Err((400, "item_name_too_long"));
    }
    let odd = |c: char| c == '/' || c == '\\' || c < ' ' || c == '\u{7f}';
    match name.is_empty() || matches!(name, "." | "..") || name.ends_with(' ') || name.contains(odd) {
        true => Err((400, "item_name_invalid")),
        false => Ok(()),
    }
}

impl Drive {
    pub fn new() -> Drive {
        let mut drive = Drive { items: BTreeMap::new(), names: BTreeMap::new(), count: 100, spoils: Spoils::default() };
        let root = Item {
            name: "All Files".into(),
            parent: String::new(),
            kind: Kind::Folder,
            mtime: now(),
            etag: 0,
            trashed: false,
        };
        drive.items.insert(ROOT.into(), root);
        drive
    }

    fn item(&self, id: &str) -> Result<&Item, No> {
        let item = self.items.get(id).ok_or(MISSING)?;
        if item.trashed { Err((404, "trashed")) } else { Ok(item) }
    }

    fn folder(&self, id: &str) -> Result<&Item, No> {
        self.item(id).and_then(|item| if matches!(item.kind, Kind::Folder) { Ok(item) } else { Err(MISSING) })
    }

    fn file(&self, id: &str) -> Result<&Item, No> {
        self.item(id).and_then(|item| if matches!(item.kind, Kind::File { .. }) { Ok(item) } else { Err(MISSING) })
    }

    /// Errors: it isn't a file or folder as wanted.
    pub fn value(&self, id: &str, folder: bool) -> Result<Value, No> {
        let item = if folder { self.folder(id)? } else { self.file(id)? };
        Ok(self.item_json(id, item))
    }

    fn item_json(&self, id: &str, item: &Item) -> Value {
        let kind = match item.kind {
            Kind::Folder => "folder",
            Kind::File { .. } => "file",
            Kind::Bookmark => "web_link",
        };
        let status = if item.trashed { "trashed" } else { "active" };
        let mut value = json!({
            "type": kind, "id": id, "sequence_id": item.etag.to_string(), "etag": item.etag.to_string(), "name": item.name,
            "created_at": item.mtime, "modified_at": now(), "content_created_at": item.mtime, "content_modified_at": item.mtime,
            "item_status": status, "owned_by": {"type": "user", "id": "7", "name": "A B", "login": "a@example.com"},
            "parent": {"type": "folder", "id": item.parent}, "shared_link": null,
        });
        if let Kind::File { bytes, sha1, versions, .. } = &item.kind {
            // The service writes large numbers so; it is legal for all.
            let size = if bytes.len() > 1 << 20 { json!(bytes.len() as f64) } else { json!(bytes.len()) };
            value["size"] = size;
            value["sha1"] = sha1.as_str().into();
            value["file_version"] = json!({"type": "file_version", "id": format!("{id}{versions}"), "sha1": sha1});
        }
        value
    }

    /// What has this name in a folder, as a conflict.
    ///
    /// Errors: the name is taken, or can't be one.
    pub fn free(&self, parent: &str, name: &str, but: Option<&str>, in_list: bool) -> Result<(), Problem> {
        self.folder(parent)?;
        check(name)?;
        match self.names.get(&(parent.to_owned(), fold(name))) {
            Some(id) if Some(&**id) != but => {
                let item_json = self.item_json(id, &self.items[id]);
                let mut mini = json!({});
                for field in ["type", "id", "sequence_id", "etag", "name", "sha1", "file_version"] {
                    if !item_json[field].is_null() {
                        mini[field] = item_json[field].clone();
                    }
                }
                let conflicts = if in_list { json!([mini]) } else { mini };
                Err(Problem { no: (409, "item_name_in_use"), context: json!({ "conflicts": conflicts }) })
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, parent: &str, name: &str, kind: Kind, mtime: Option<String>) -> String {
        self.count += 1;
        let id = self.count.to_string();
        let (parent, name) = (parent.to_owned(), name.to_owned());
        self.names.insert((parent.clone(), fold(&name)), id.clone());
        let mtime = mtime.unwrap_or_else(now);
        self.items.insert(id.clone(), Item { name, parent, kind, mtime, etag: 0, trashed: false });
        id
    }

    pub fn create_folder(&mut self, parent: &str, name: &str) -> Result<String, Problem> {
        self.free(parent, name, None, true)?;
        Ok(self.add(parent, name, Kind::Folder, None))
    }

    pub fn create_file(
        &mut self,
        parent: &str,
        name: &str,
        bytes: Bytes,
        mtime: Option<String>,
    ) -> Result<String, Problem> {
        self.free(parent, name, None, false)?;
        let bytes = self.spoils.stored(bytes);
        let kind = Kind::File { sha1: sha1(&bytes), bytes, versions: 1, history: Vec::new() };
        Ok(self.add(parent, name, kind, mtime))
    }

    /// Errors: it has another tag.
    pub fn matches(&self, id: &str, tag: Option<&str>) -> Result<(), No> {
        let item = self.item(id)?;
        if tag.is_some_and(|tag| tag != item.etag.to_string()) { Err(CHANGED) } else { Ok(()) }
    }

    pub fn new_version(
        &mut self,
        id: &str,
        bytes: Bytes,
        mtime: Option<String>,
        tag: Option<&str>,
    ) -> Result<String, Problem> {
        self.file(id)?;
        self.matches(id, tag)?;
        let bytes = self.spoils.stored(bytes);
        self.replace(id, bytes)?;
        self.items.get_mut(id).ok_or(MISSING)?.mtime = mtime.unwrap_or_else(now);
        Ok(id.to_owned())
    }

    fn replace(&mut self, id: &str, content: Bytes) -> Result<(), No> {
        let item = self.items.get_mut(id).ok_or(MISSING)?;
        if let Kind::File { bytes, sha1: hash, versions, history } = &mut item.kind {
            let other = sha1(&content);
            let (bytes, sha1) = (std::mem::replace(bytes, content), std::mem::replace(hash, other));
            history.push(Earlier { id: format!("{id}{versions}"), bytes, sha1 });
            *versions += 1;
        }
        item.etag += 1;
        Ok(())
    }

    /// The versions that were replaced, the last first.
    pub fn earlier(&self, id: &str) -> Result<Vec<Value>, No> {
        let Kind::File { history, .. } = &self.file(id)?.kind else { return Err(MISSING) };
        let value = |(number, version): (usize, &Earlier)| {
            let created = format!("2020-01-01T00:00:{:02}-08:00", number % 60);
            json!({"type": "file_version", "id": version.id, "sha1": version.sha1, "size": version.bytes.len(), "created_at": created})
        };
        Ok(history.iter().enumerate().map(value).rev().collect())
    }

    /// Makes another version with the content of an earlier one; its time isn't said to come back with it.
    pub fn promote(&mut self, id: &str, version: &str) -> Result<Value, No> {
        let Kind::File { history, .. } = &self.file(id)?.kind else { return Err(MISSING) };
        let earlier = history.iter().find(|earlier| earlier.id == version).ok_or(MISSING)?;
        self.replace(id, earlier.bytes.clone())?;
        Ok(self.value(id, false)?["file_version"].clone())
    }

    pub fn at(&self, path: &str) -> Option<Bytes> {
        let mut id = ROOT.to_owned();
        for part in path.split('/') {
            id = self.names.get(&(id, fold(part)))?.clone();
        }
        self.content(&id).ok()
    }

    pub fn content(&self, id: &str) -> Result<Bytes, No> {
        match &self.file(id)?.kind {
            Kind::File { bytes, .. } => Ok(bytes.clone()),
            _ => Err(MISSING),
        }
    }

    /// Some of what is in a folder, in no order that anybody could count on, and how many there are in all.
    pub fn children(&self, id: &str, from: usize, most: usize) -> Result<(Vec<Value>, usize), No> {
        let mut ids: Vec<&String> = if id == "trash" {
            self.items.iter().filter(|(_, item)| item.trashed).map(|(id, _)| id).collect()
        } else {
            self.folder(id)?;
            let all = self.names.range((id.to_owned(), String::new())..).take_while(|((parent, _), _)| parent == id);
            all.map(|(_, id)| id).collect()
        };
        let mixed = |id: &String| id.parse().unwrap_or(0_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ids.sort_unstable_by_key(|id| mixed(id));
        let page = ids.iter().skip(from).take(most).map(|id| self.item_json(id, &self.items[*id]));
        Ok((page.collect(), ids.len()))
    }

    /// Changes name, place and time.
    pub fn update(&mut self, id: &str, facts: &Value, tag: Option<&str>) -> Result<(), Problem> {
        self.matches(id, tag)?;
        let item = self.item(id)?;
        let name = facts["name"].as_str().unwrap_or(&item.name).to_owned();
        let parent = facts["parent"]["id"].as_str().unwrap_or(&item.parent).to_owned();
        let old = (item.parent.clone(), fold(&item.name));
        if (&parent, &name) != (&item.parent, &item.name) {
            if id == ROOT {
                return Err((403, "access_denied_insufficient_permissions").into());
            }
            self.free(&parent, &name, Some(id), false)?;
            self.names.remove(&old);
            self.names.insert((parent.clone(), fold(&name)), id.to_owned());
        }
        let item = self.items.get_mut(id).ok_or(MISSING)?;
        (item.name, item.parent) = (name, parent);
        if let Some(time) = facts["content_modified_at"].as_str() {
            item.mtime = second(time).ok_or((400, "bad_request"))?;
        }
        item.etag += 1;
        Ok(())
    }

    /// A copy has the time of what it was made of.
    pub fn copy(&mut self, id: &str, parent: &str, name: Option<&str>) -> Result<String, Problem> {
        let item = self.file(id)?.clone();
        let name = name.unwrap_or(&item.name);
        self.free(parent, name, None, false)?;
        let kind = match item.kind {
            Kind::File { bytes, .. } => {
                let bytes = self.spoils.stored(bytes);
                Kind::File { sha1: sha1(&bytes), bytes, versions: 1, history: Vec::new() }
            }
            other => other,
        };
        Ok(self.add(parent, name, kind, Some(item.mtime)))
    }

    pub fn remove(&mut self, id: &str, recursive: bool, tag: Option<&str>) -> Result<(), No> {
        self.matches(id, tag)?;
        if id == ROOT {
            return Err((403, "access_denied_insufficient_permissions"));
        }
        let inside: Vec<String> =
            self.names.iter().filter(|((parent, _), _)| parent == id).map(|(_, id)| id.clone()).collect();
        if !inside.is_empty() && !recursive {
            return Err((400, "folder_not_empty"));
        }
        for id in inside {
            self.remove(&id, true, None)?;
            self.items.remove(&id);
        }
        let item = self.items.get_mut(id).ok_or(MISSING)?;
        item.trashed = true;
        let name = (item.parent.clone(), fold(&item.name));
        self.names.remove(&name);
        Ok(())
    }

    pub fn remove_for_good(&mut self, id: &str) -> Result<(), No> {
        match self.items.get(id) {
            Some(item) if item.trashed => {
                self.items.remove(id);
                Ok(())
            }
            _ => Err(MISSING),
        }
    }

    pub fn used(&self) -> usize {
        let sizes =
            self.items.values().map(|item| if let Kind::File { bytes, .. } = &item.kind { bytes.len() } else { 0 });
        sizes.sum()
    }

    pub fn trashed(&self) -> usize {
        self.items.values().filter(|item| item.trashed).count()
    }

    pub fn bookmark(&mut self, name: &str) {
        self.add(ROOT, name, Kind::Bookmark, None);
    }

    pub fn put(&mut self, path: &str, bytes: Bytes) {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut parent = ROOT.to_owned();
        for part in above.split('/').filter(|part| !part.is_empty()) {
            parent = match self.names.get(&(parent.clone(), fold(part))) {
                Some(id) => id.clone(),
                None => self.create_folder(&parent, part).expect("a name"),
            };
        }
        let there = self.names.get(&(parent.clone(), fold(name))).cloned();
        let done = match there {
            Some(id) => self.new_version(&id, bytes, None, None),
            None => self.create_file(&parent, name, bytes, None),
        };
        done.expect("a path");
    }

    pub fn shown(&self) -> BTreeMap<String, FileView> {
        let path = |item: &Item| {
            let (mut parts, mut at) = (vec![item.name.clone()], item.parent.clone());
            while at != ROOT {
                let above = self.items.get(&at)?;
                parts.push(above.name.clone());
                at = above.parent.clone();
            }
            parts.reverse();
            Some(parts.join("/"))
        };
        let active = self.items.iter().filter(|(id, item)| *id != ROOT && !item.trashed);
        let show = |item: &Item| match &item.kind {
            Kind::File { bytes, versions, .. } => (Some(bytes.len() as u64), *versions),
            _ => (None, 0),
        };
        let all = active.filter_map(|(_, item)| {
            let (size, versions) = show(item);
            Some((path(item)?, FileView { size, mtime: item.mtime.clone(), versions }))
        });
        all.collect()
    }
}

pub fn sha1(bytes: &[u8]) -> String {
    to_hex(hash_bytes(&[Algo::Sha1], bytes).get(Algo::Sha1).unwrap_or_default())
}
