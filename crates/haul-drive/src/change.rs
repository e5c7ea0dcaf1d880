//! Changing what is there: directories, copies, moves, times, deletes.

use crate::{
    AT_ONCE,
    facts::{FIELDS, File, ids, time},
    service::{Root, Service, doubled},
    upload::{allowed, settled},
};
use futures::{StreamExt, stream};
use haul_core::{Error, ErrorKind, Key, Mtime, Result, Version};
use haul_net::at;
use haul_oauth::{Refusal, google::Shown as _, plain};
use haul_store::{CopyBatch, CopyHow, CopyItem, Direction, Stored};
use http::Method;
use serde_json::{Value, json};

/// See [`haul_store::Store::make_dir`].
pub async fn make_dir(service: &Service, key: &Key) -> Result<String> {
    if key.is_root() {
        // What is known may have gone.
        service.dirs.forget(key);
    }
    service.made(key).await
}

/// Changes facts of a file.
pub async fn patch(service: &Service, id: &str, query: &[(&str, &str)], facts: &Value) -> Refusal<File> {
    let query = [query, &[("fields", FIELDS)]].concat();
    service.api.json(&service.call("UpdateFile", Method::PATCH, &format!("/files/{id}"), &query).json(facts)).await
}

/// See [`haul_store::Store::set_meta`].
pub async fn set_mtime(service: &Service, key: &Key, mtime: Option<Mtime>) -> Result<()> {
    const OP: &str = "set_meta";
    let Some(mtime) = mtime else { return Ok(()) };
    let id = if key.is_dir() || key.is_root() {
        service.dir(key).await?
    } else {
        let mut files = service.files(key).await?;
        match (files.len(), files.pop()) {
            (1, Some(file)) => file.id,
            (0, _) => return Err(Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key)),
            (count, _) => return Err(doubled(OP, key, count)),
        }
    };
    let untellable = || Error::new(ErrorKind::Invalid, OP, "no such time can be kept").with_key(key);
    let facts = json!({ "modifiedTime": time(mtime).ok_or_else(untellable)? });
    plain(patch(service, &id, &[], &facts).await).map(|_| ()).map_err(at(OP, key))
}

/// Takes a file away: into the trash, unless the user wants none.
pub async fn remove(service: &Service, id: &str) -> Refusal<()> {
    let done = if service.config.use_trash {
        patch(service, id, &[], &json!({ "trashed": true })).await.map(|_| ())
    } else {
        let call = service.call("DeleteFile", Method::DELETE, &format!("/files/{id}"), &[]);
        service.api.ask(&call).await.map(|_| ())
    };
    match done {
        Err(refused) if refused.fault.status == 404 => Ok(()),
        other => other,
    }
}

/// See [`haul_store::Store::delete`].
pub async fn delete(service: &Service, key: &Key, version: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    if key.is_dir() || key.is_root() {
        return delete_dir(service, key).await;
    }
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key);
    let mut files = match service.files(key).await {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => return Ok(()),
        other => other?,
    };
    let file = match (files.len(), files.pop()) {
        (1, Some(file)) => file,
        (0, _) => return Ok(()),
        (count, _) => return Err(doubled(OP, key, count)),
    };
    if version.is_some() && version != file.version().as_ref() {
        return Err(changed());
    }
    plain(remove(service, file.named()).await).map_err(at(OP, key))
}

async fn delete_dir(service: &Service, key: &Key) -> Result<()> {
    const OP: &str = "delete";
    service.dirs.forget(key);
    let (id, named) = if key.is_root() {
        match service.dir(key).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => return Ok(()),
            other => other.map(|id| (id.clone(), id))?,
        }
    } else {
        let parent = match service.dir(&key.parent()).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => return Ok(()),
            other => other?,
        };
        match service.folder_in(&parent, &service.name(key)?, key).await? {
            Some(folder) => (folder.id.clone(), folder.named().to_owned()),
            None => return Ok(()),
        }
    };
    if service.is_top(key) {
        return Err(
            Error::new(ErrorKind::Unsupported, OP, "this is a Drive's own root: it isn't deleted").with_key(key)
        );
    }
    // Of a shortcut alone the shortcut goes, and nothing that is behind it.
    if named == id {
        // What Drive doesn't show as files counts too.
        let query = format!("trashed = false and {}", service.inside(&id));
        if !service.search(&query).await.map_err(|refused| refused.at(OP, key))?.is_empty() {
            return Err(Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key));
        }
    }
    let done = plain(remove(service, &named).await).map_err(at(OP, key));
    service.dirs.forget(key);
    done
}

/// See [`haul_store::Store::copy`].
pub async fn copy(service: &Service, batch: CopyBatch) -> Vec<Result<Stored>> {
    let CopyBatch { from, items, progress, .. } = batch;
    let (root, progress) = (Root::parse(&from), progress.as_ref());
    let root = &root;
    stream::iter(items.into_iter().enumerate())
        .map(|(number, item)| async move {
            let stored = copy_item(service, root.as_ref(), &item).await?;
            if let Some(progress) = progress {
                (progress.0)(number, stored.size);
            }
            Ok(stored)
        })
        .buffered(AT_ONCE)
        .collect()
        .await
}

/// The file behind a key of a root.
async fn source(service: &Service, root: Option<&Root>, item: &CopyItem) -> Result<File> {
    const OP: &str = "copy";
    let missing = || Error::new(ErrorKind::NotFound, OP, "no such file").with_key(&item.from);
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(&item.from);
    if let Some(want) = &item.want {
        let (id, via) = ids(want).ok_or_else(changed)?;
        let file = match service.by_id(&id).await {
            Ok(file) => File { via, ..file },
            Err(refused) if refused.fault.status == 404 => return Err(changed()),
            Err(refused) => return Err(refused.at(OP, &item.from)),
        };
        return if file.trashed || file.version().as_ref() != Some(want) { Err(changed()) } else { Ok(file) };
    }
    let mut files = if root == Some(&service.root) {
        service.files(&item.from).await?
    } else {
        let elsewhere = || Error::new(ErrorKind::Unsupported, OP, "the source is in no Drive of this account");
        let mut id = service.root_of(root.ok_or_else(elsewhere)?).await?;
        let dir = item.from.parent();
        for (at, _) in dir.as_bytes().iter().enumerate().filter(|(_, b)| **b == b'/') {
            let above = Key::new(&dir.as_bytes()[..=at]);
            id = service.folder_in(&id, &service.name(&above)?, &item.from).await?.ok_or_else(missing)?.id;
        }
        service.look(&id, &service.name(&item.from)?, &item.from).await?.files
    };
    match (files.len(), files.pop()) {
        (1, Some(file)) => Ok(file),
        (0, _) => Err(missing()),
        (count, _) => Err(doubled(OP, &item.from, count)),
    }
}

async fn copy_item(service: &Service, root: Option<&Root>, item: &CopyItem) -> Result<Stored> {
    const OP: &str = "copy";
    if item.how.needs_inodes() {
        let message = "Google Drive has no hard links, devices or attributes";
        return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
    }
    let source = source(service, root, item).await?;
    let (parent, name) = (service.made(&item.to.parent()).await?, service.name(&item.to)?);
    let _alone = service.alone(&item.to).await;
    let before = allowed(service, &parent, &name, &item.to, &item.spec.replace).await?;
    if before.as_ref().is_some_and(|before| before.id == source.id) {
        let message = "it would be copied onto itself";
        return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
    }
    let mut facts = json!({ "name": name });
    if let Some(mtime) = item.spec.mtime.or(source.mtime()).and_then(time) {
        facts["modifiedTime"] = mtime.into();
    }
    let made = if item.how == CopyHow::Rename && source.via.is_empty() {
        let old = source.parents.first().map(String::as_str).unwrap_or_default();
        let query: &[_] = if old == parent { &[] } else { &[("addParents", &*parent), ("removeParents", old)] };
        plain(patch(service, &source.id, query, &facts).await).map_err(at("move", &item.to))?
    } else {
        let id = service.new_id(&item.to).await?;
        (facts["id"], facts["parents"]) = (id.as_str().into(), json!([parent]));
        let path = format!("/files/{}/copy", source.id);
        let call = service.call("CopyFile", Method::POST, &path, &[("fields", FIELDS)]).json(&facts);
        match service.api.json::<File>(&call.going(Direction::Copy)).await {
            // Nobody knows whether it was made; by its id that can be seen.
            Err(refused) if refused.fault.is_ambiguous() => {
                service.by_id(&id).await.map_err(|_| refused.at(OP, &item.to))?
            }
            other => plain(other).map_err(at(OP, &item.to))?,
        }
    };
    let stored = settled(&made, source.size(), &source.hashes(), &item.to)?;
    // There was a file of this name: for a moment there are two, never none.
    if let Some(before) = before {
        plain(remove(service, before.named()).await).map_err(at(OP, &item.to))?;
    }
    if item.how == CopyHow::Rename && !source.via.is_empty() {
        plain(remove(service, &source.via).await).map_err(at("move", &item.from))?;
    }
    Ok(stored)
}
