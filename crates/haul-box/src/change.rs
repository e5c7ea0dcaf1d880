//! Changes: directories, copies, moves, times, deletes, links. Requests are conditional on ETags, so that a file that changed
//! since it was seen stays.

use crate::{
    error,
    facts::{FIELDS, Item, ids, time},
    list,
    service::{Service, folds},
};
use haul_core::{Entry, Error, ErrorKind, Key, Mtime, Result, Version, plan::Replace};
use haul_oauth::{Call, ServiceError, ServiceResult};
use haul_store::{CopyHow, CopyItem, Direction, StoredFacts, ids::Root, wrong_content};
use http::{Method, header};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// See [`haul_store::Store::make_dir`].
pub async fn make_dir(service: &Service, key: &Key) -> Result<()> {
    const OP: &str = "mkdir";
    if key.is_root() {
        // The known folder may no longer exist.
        service.forget_folder(key);
    }
    let id = service.made(key, OP).await?;
    // A folder that was named by its id alone can't be made.
    if key.is_root() && service.root.is_base() {
        service.folder(&id).await.map_err(|refused| match refused.fault.kind {
            ErrorKind::NotFound => service.no_root(OP),
            _ => refused.at(OP, key),
        })?;
    }
    Ok(())
}

/// Changes facts of a file, if it still has this tag.
pub async fn update(service: &Service, id: &str, tag: Option<&str>, facts: &Value) -> ServiceResult<Item> {
    let call = service.call("UpdateFile", Method::PUT, &format!("/files/{id}?fields={FIELDS}")).json(facts);
    service.api.json(&matching(call, tag)).await
}

#[derive(Deserialize)]
struct Versions {
    entries: Vec<EarlierVersion>,
}

/// An earlier version of a file.
#[derive(Deserialize)]
struct EarlierVersion {
    id: String,
    #[serde(default)]
    created_at: String,
}

impl EarlierVersion {
    /// In what order they came.
    fn age(&self) -> (Option<jiff::Timestamp>, Option<u64>) {
        (self.created_at.parse().ok(), self.id.parse().ok())
    }
}

/// A file whose content is wrong.
struct WrongUpload<'a> {
    service: &'a Service,
    key: &'a Key,
    item: &'a Item,
}

impl WrongUpload<'_> {
    async fn ask(&self, call: Call) -> Result<()> {
        self.service.api.ask(&call).await.map(|_| ()).map_err(|refused| refused.at("write", self.key))
    }
}

impl wrong_content::WrongContent for WrongUpload<'_> {
    async fn tag(&self) -> Result<Option<String>> {
        let now = match self.service.file(&self.item.id).await {
            Err(refused) if refused.fault.kind == ErrorKind::NotFound => return Ok(None),
            now => now.map_err(|refused| refused.at("write", self.key))?,
        };
        Ok((now.etag == self.item.etag).then(|| now.etag.unwrap_or_default()))
    }

    async fn before(&self) -> Result<Option<String>> {
        // The version that is there isn't among them.
        let path = format!("/files/{}/versions?fields=id,created_at&limit=1000", self.item.id);
        let call = self.service.call("ListVersions", Method::GET, &path);
        let versions =
            self.service.api.json::<Versions>(&call).await.map_err(|refused| refused.at("write", self.key))?;
        Ok(versions.entries.into_iter().max_by_key(EarlierVersion::age).map(|version| version.id))
    }

    async fn restore(&self, version: String) -> Result<()> {
        let call = self.service.call("Promote", Method::POST, &format!("/files/{}/versions/current", self.item.id));
        self.ask(call.json(&json!({ "type": "file_version", "id": version }))).await
    }

    async fn remove(&self, tag: String) -> Result<()> {
        self.service.forget(self.key);
        let call = self.service.call("DeleteFile", Method::DELETE, &format!("/files/{}", self.item.id));
        self.ask(matching(call, Some(&tag))).await
    }

    async fn date(&self, mtime: Mtime) -> Result<()> {
        let facts = json!({ "content_modified_at": time(mtime) });
        let set = update(self.service, &self.item.id, None, &facts).await;
        set.map(|_| ()).map_err(|refused| refused.at("write", self.key))
    }
}

/// See [`wrong_content::undo_write`].
pub async fn undo_write(service: &Service, key: &Key, item: &Item, mtime: Option<Mtime>) -> Result<()> {
    wrong_content::undo_write(&WrongUpload { service, key, item }, mtime.or(item.mtime())).await
}

/// On condition that the item still has this tag.
pub fn matching(call: Call, tag: Option<&str>) -> Call {
    match tag.filter(|tag| !tag.is_empty()) {
        Some(tag) => call.header(header::IF_MATCH, tag),
        None => call,
    }
}

/// See [`haul_store::Store::set_meta`].
pub async fn set_mtime(service: &Service, key: &Key, mtime: Option<Mtime>) -> Result<()> {
    const OP: &str = "set_meta";
    let Some(mtime) = mtime else { return Ok(()) };
    if key.is_dir() || key.is_root() {
        return Err(Error::new(ErrorKind::Unsupported, OP, "Box gives folders their times by itself").with_key(key));
    }
    let item = service.at(OP, key).await?;
    if !item.is_file() {
        return Err(Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key));
    }
    let untellable = || Error::new(ErrorKind::Invalid, OP, "no such time can be kept").with_key(key);
    let facts = json!({ "content_modified_at": time(mtime).ok_or_else(untellable)? });
    update(service, &item.id, None, &facts).await.map(|_| ()).map_err(|refused| refused.at(OP, key))
}

/// See [`haul_store::Store::copy`].
pub async fn copy(service: &Service, from: Option<&Root>, item: &CopyItem) -> Result<StoredFacts> {
    match copy_item(service, from, item).await {
        Ok(stored) => {
            service.moves.forget(item);
            Ok(stored)
        }
        // A file that was moved has another tag.
        Err(error) if error.is_missing() || error.kind() == ErrorKind::Changed => {
            let id = |entry: &Entry| entry.version.as_ref().and_then(ids).map(|(id, _)| id.to_owned());
            let there = list::stat(service, &item.to);
            let stored = service.moves.done(item, there, |a, b| id(a) == id(b)).await.ok_or(error)?;
            if item.how == CopyHow::Rename {
                service.forget(&item.from);
                service.note_file(&item.to);
            }
            Ok(stored)
        }
        failed => failed,
    }
}

async fn copy_item(service: &Service, from: Option<&Root>, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let unsupported = |why: &str| Error::new(ErrorKind::Unsupported, OP, why).with_key(&item.to);
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(&item.from);
    if item.how == CopyHow::RenameDir {
        return rename_dir(service, from, item).await;
    }
    if item.how.needs_inodes() {
        return Err(unsupported("Box has no hard links, devices or attributes"));
    }
    // The service copies under a free name only, and puts nothing in another's place.
    if matches!(item.spec.replace, Replace::Exactly(_)) {
        return Err(unsupported("Box copies onto no file"));
    }
    let from = from.ok_or_else(|| unsupported("the source is in another account"))?;
    let source = match &item.want {
        Some(want) => match service.file(ids(want).ok_or_else(changed)?.0).await {
            Ok(item) => item,
            Err(refused) if refused.fault.kind == ErrorKind::NotFound => return Err(changed()),
            Err(refused) => return Err(refused.at(OP, &item.from)),
        },
        None => service.at_in(from, OP, &item.from).await?,
    };
    if !source.is_file() {
        return Err(Error::new(ErrorKind::NotFound, OP, "this is a directory").with_key(&item.from));
    }
    if !source.is_there() || item.want.is_some() && item.want != source.version() {
        return Err(changed());
    }
    let (parent, name) = (service.made(&item.to.parent(), OP).await?, service.leaf(&item.to)?);
    let mut facts = json!({ "name": name, "parent": { "id": parent } });
    let mtime = item.spec.mtime.or(source.mtime());
    let made = match item.how {
        CopyHow::Rename => {
            if let Some(time) = mtime.and_then(time) {
                facts["content_modified_at"] = time.into();
            }
            update(service, &source.id, source.etag.as_deref(), &facts).await
        }
        _ => {
            let path = format!("/files/{}/copy?fields={FIELDS}", source.id);
            let call = service.call("Copy", Method::POST, &path).json(&facts).going(Direction::Copy);
            service.api.json::<Item>(&call).await
        }
    };
    let mut made = match made {
        Ok(made) => made,
        Err(refused) if refused.fault.kind == ErrorKind::Exists => {
            return Err(clash(service, refused, &name, item).await);
        }
        Err(refused) if refused.fault.kind == ErrorKind::Changed => return Err(changed()),
        Err(refused) => {
            if refused.fault.is_ambiguous() && item.how == CopyHow::Rename {
                service.moves.note(item, source.entry(&item.from)?);
            }
            return Err(refused.at(OP, &item.to));
        }
    };
    let same = made.size() == source.size() && !matches!(made.hashes().agree(&source.hashes()), Some((_, false)));
    if !same {
        let why = "the service's copy has other bytes than what it copied";
        // The source itself was moved.
        let left = match item.how {
            CopyHow::Rename => "",
            _ => undo_write(service, &item.to, &made, mtime).await.map_or("; it could not be taken back", |()| ""),
        };
        return Err(Error::new(ErrorKind::Corrupt, OP, format!("{why}{left}")).with_key(&item.to));
    }
    service.downloads.forget(&source.id);
    if item.how == CopyHow::Rename {
        service.forget(&item.from);
    }
    service.note_file(&item.to);
    if let Some(mtime) = mtime.filter(|mtime| made.mtime().is_none_or(|there| there.secs() != mtime.secs()))
        && let Some(time) = time(mtime)
    {
        let facts = json!({ "content_modified_at": time });
        made = update(service, &made.id, None, &facts).await.map_err(|refused| refused.at(OP, &item.to))?;
    }
    Ok(StoredFacts {
        version: made.version(),
        size: made.size().unwrap_or(item.size),
        hashes: made.hashes(),
        ..StoredFacts::default()
    })
}

/// See [`CopyHow::RenameDir`].
async fn rename_dir(service: &Service, from: Option<&Root>, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let elsewhere = || Error::new(ErrorKind::Unsupported, OP, "the source is in another account").with_key(&item.to);
    let folder = service.dir_in(from.ok_or_else(elsewhere)?, &item.from, OP).await?;
    let (parent, name) = (service.made(&item.to.parent(), OP).await?, service.leaf(&item.to)?);
    let facts = json!({ "name": name, "parent": { "id": parent } });
    let call = service.call("UpdateFolder", Method::PUT, &format!("/folders/{folder}")).json(&facts);
    let moved = service.api.ask(&call).await;
    service.forget_folder(&item.from);
    if moved.as_ref().is_err_and(|refused| refused.fault.is_ambiguous()) {
        service.moves.note(item, Entry::dir(Key::new(item.from.path())));
    }
    moved.map(|_| StoredFacts::default()).map_err(|refused| refused.at(OP, &item.to))
}

/// Why a copy or move found its name taken.
async fn clash(service: &Service, refused: ServiceError, name: &str, item: &CopyItem) -> Error {
    let exists = |why: String| Error::new(ErrorKind::Exists, "copy", why).with_key(&item.to);
    if let Some(taken) = error::taken(&refused) {
        if taken.is_folder {
            return exists("is a directory".into());
        }
        match service.file(&taken.id).await {
            Ok(there) if there.name != name => return exists(folds(&there.name)),
            Ok(_) => {}
            Err(refused) => return refused.at("copy", &item.to),
        }
    }
    match item.spec.replace {
        Replace::Absent => exists("is there already".into()),
        _ => Error::new(ErrorKind::Unsupported, "copy", "Box copies onto no file").with_key(&item.to),
    }
}

/// Removes exactly this item, if it still has this tag.
async fn remove(service: &Service, is_folder: bool, id: &str, tag: Option<&str>) -> ServiceResult<()> {
    let (kind, path, query) = match is_folder {
        true => ("DeleteFolder", format!("/folders/{id}"), "?recursive=false"),
        false => ("DeleteFile", format!("/files/{id}"), ""),
    };
    let call = service.call(kind, Method::DELETE, &format!("{path}{query}"));
    service.api.ask(&matching(call, tag)).await?;
    if service.config.hard_delete {
        let call = service.call("DeleteForGood", Method::DELETE, &format!("{path}/trash"));
        match service.api.ask(&call).await {
            Err(refused) if refused.fault.kind != ErrorKind::NotFound => return Err(refused),
            _ => {}
        }
    }
    Ok(())
}

/// See [`haul_store::Store::delete`].
pub async fn delete(service: &Service, key: &Key, version: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key);
    if key.is_dir() || key.is_root() {
        return delete_folder(service, key).await;
    }
    let (id, tag) = match version.and_then(ids) {
        // A listed item is known by its id.
        Some((id, tag)) => (id.to_owned(), Some(tag.to_owned())),
        None => match service.at(OP, key).await {
            Err(error) if error.is_missing() => return Ok(()),
            Ok(item) if !item.is_file() => return Ok(()),
            Ok(_) if version.is_some() => return Err(changed()),
            other => other.map(|item| (item.id, item.etag))?,
        },
    };
    service.downloads.forget(&id);
    match remove(service, false, &id, tag.as_deref()).await {
        Ok(()) => {
            service.forget(key);
            Ok(())
        }
        Err(refused) if refused.fault.kind == ErrorKind::Changed => Err(changed()),
        // Gone, or another is there by now.
        Err(refused) if refused.fault.kind == ErrorKind::NotFound => match service.at(OP, key).await {
            Err(error) if error.is_missing() => Ok(()),
            Ok(there) if !there.is_file() => Ok(()),
            Ok(_) => Err(changed()),
            Err(error) => Err(error),
        },
        Err(refused) => Err(refused.at(OP, key)),
    }
}

/// The service itself deletes no folder in which something is.
async fn delete_folder(service: &Service, key: &Key) -> Result<()> {
    const OP: &str = "delete";
    service.forget_folder(key);
    let id = match service.dir(key, OP).await {
        Err(error) if error.is_missing() => return Ok(()),
        other => other?,
    };
    let full = || Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key);
    if key.is_root() && service.root.is_base() {
        if !service.items(&id).await.map_err(|refused| refused.at(OP, key))?.is_empty() {
            return Err(full());
        }
        let why = "a folder that was named by its id alone isn't deleted";
        return Err(Error::new(ErrorKind::Unsupported, OP, why).with_key(key));
    }
    let done = remove(service, true, &id, None).await;
    service.forget_folder(key);
    match done {
        Ok(()) => Ok(()),
        Err(refused) => match refused.fault.kind {
            ErrorKind::Exists => Err(full()),
            ErrorKind::NotFound => Ok(()),
            _ => Err(refused.at(OP, key)),
        },
    }
}

#[derive(Deserialize)]
struct Shared {
    shared_link: Link,
}

#[derive(Deserialize)]
struct Link {
    url: String,
}

/// See [`haul_store::Admin::link`].
pub async fn link(service: &Service, key: &Key, lasts: Duration) -> Result<String> {
    const OP: &str = "link";
    let path = match key.is_dir() || key.is_root() {
        true => format!("/folders/{}", service.dir(key, OP).await?),
        false => format!("/files/{}", service.at(OP, key).await?.id),
    };
    let mut question = json!({ "shared_link": {} });
    let ends = jiff::Timestamp::now().as_second().checked_add(i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX));
    if let Some(ends) = ends.and_then(|ends| jiff::Timestamp::from_second(ends).ok()) {
        question["shared_link"]["unshared_at"] = json!(ends.to_string());
    }
    let call = service.call("Link", Method::PUT, &format!("{path}?fields=shared_link")).json(&question);
    let shared: Shared = service.api.json(&call).await.map_err(|refused| refused.at(OP, key))?;
    Ok(shared.shared_link.url)
}
