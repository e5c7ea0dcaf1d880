//! Changes: directories, copies, moves, times, deletes.

use crate::{
    AT_ONCE,
    facts::{FIELDS, File, pinned, time},
    placement::{UploadedFile, allowed},
    service::{Named, Service},
    upload::settled,
};
use haul_core::{Error, ErrorKind, Key, Mtime, Result, Version};
use haul_net::at;
use haul_oauth::{google::FileFacts as _, plain};
use haul_store::{CopyBatch, CopyHow, CopyItem, Direction, StoredFacts, Watch, ids::Root, one_by_one};
use http::Method;
use serde_json::json;

/// See [`haul_store::Store::make_dir`].
pub async fn make_dir(service: &Service, key: &Key) -> Result<String> {
    if key.is_root() {
        // The known folder may no longer exist.
        service.dirs.forget(key);
    }
    service.made(key).await
}

/// See [`haul_store::Admin::empty_trash`].
pub async fn empty_trash(service: &Service, dry_run: bool) -> Result<Vec<Key>> {
    const OP: &str = "cleanup";
    let trashed = service.search("trashed = true").await.map_err(|refused| refused.fault.error(OP))?;
    let own = trashed.iter().filter(|file| file.explicitly_trashed);
    let found = own.map(|file| Key::new(service.config.encoding.decode(file.name.as_bytes()))).collect();
    if !dry_run {
        let call =
            service.call("EmptyTrash", Method::DELETE, "/files/trash", &[("driveId", &service.config.team_drive)]);
        service.api.ask(&call).await.map_err(|refused| refused.fault.error(OP))?;
    }
    Ok(found)
}

/// See [`haul_store::Store::set_meta`].
pub async fn set_mtime(service: &Service, key: &Key, mtime: Option<Mtime>) -> Result<()> {
    const OP: &str = "set_meta";
    service.may_write(OP, key)?;
    let Some(mtime) = mtime else { return Ok(()) };
    let id = if key.is_dir() || key.is_root() {
        service.dir(key).await?
    } else {
        let missing = || Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key);
        service.at(key).await?.only(OP, key)?.ok_or_else(missing)?.id
    };
    let untellable = || Error::new(ErrorKind::Invalid, OP, "no such time can be kept").with_key(key);
    let facts = json!({ "modifiedTime": time(mtime).ok_or_else(untellable)? });
    plain(service.patch(&id, &[], &facts).await).map(|_| ()).map_err(at(OP, key))
}

/// See [`haul_store::Store::delete`].
pub async fn delete(service: &Service, key: &Key, version: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    service.may_write(OP, key)?;
    if key.is_dir() || key.is_root() {
        return delete_dir(service, key).await;
    }
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key);
    let named = match service.at(key).await {
        Err(error) if error.is_missing() => return Ok(()),
        other => other?,
    };
    let Some(file) = named.only(OP, key)? else { return Ok(()) };
    if version.is_some() && version != file.version().as_ref() {
        return Err(changed());
    }
    plain(service.remove(file.named()).await).map_err(at(OP, key))
}

async fn delete_dir(service: &Service, key: &Key) -> Result<()> {
    const OP: &str = "delete";
    service.dirs.forget(key);
    let (id, named) = if key.is_root() {
        match service.dir(key).await {
            Err(error) if error.is_missing() => return Ok(()),
            other => other.map(|id| (id.clone(), id))?,
        }
    } else {
        let parent = match service.dir(&key.parent()).await {
            Err(error) if error.is_missing() => return Ok(()),
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
    // For a shortcut only the shortcut is deleted, not its target.
    if named == id {
        // Entries that Drive doesn't show as files count too.
        let query = format!("trashed = false and {}", service.inside(&id));
        if !service.search(&query).await.map_err(|refused| refused.at(OP, key))?.is_empty() {
            return Err(Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key));
        }
    }
    // Into the trash, whatever is deleted otherwise: what a search doesn't show yet, and what lies in the trash, would go with it for good.
    let done = plain(service.trash(&named).await).map_err(at(OP, key));
    service.dirs.forget(key);
    done
}

/// See [`haul_store::Store::copy`].
pub async fn copy(service: &Service, batch: CopyBatch, watch: Watch) -> Vec<Result<StoredFacts>> {
    let CopyBatch { from, items, .. } = batch;
    let root = &Root::parse(&from);
    one_by_one::copied(items, &watch, AT_ONCE, |item| async move { copy_item(service, root.as_ref(), &item).await })
        .await
}

/// The file behind a key of a root.
async fn source(service: &Service, root: Option<&Root>, item: &CopyItem) -> Result<File> {
    const OP: &str = "copy";
    let missing = || Error::new(ErrorKind::NotFound, OP, "no such file").with_key(&item.from);
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(&item.from);
    if let Some(want) = &item.want {
        let it = pinned(want).ok_or_else(changed)?;
        let file = match service.by_id(&it.id).await {
            Ok(file) => it.shown(file),
            Err(refused) if refused.fault.status == 404 => return Err(changed()),
            Err(refused) => return Err(refused.at(OP, &item.from)),
        };
        return if file.trashed || file.version().as_ref() != Some(want) { Err(changed()) } else { Ok(file) };
    }
    let named = match root == Some(&service.root) {
        true => service.at(&item.from).await?,
        false => elsewhere(service, root, item).await?,
    };
    named.only(OP, &item.from)?.ok_or_else(missing)
}

/// The items with an item's name in another root.
async fn elsewhere(service: &Service, root: Option<&Root>, item: &CopyItem) -> Result<Named> {
    let missing = || Error::new(ErrorKind::NotFound, "copy", "no such file").with_key(&item.from);
    let foreign = || Error::new(ErrorKind::Unsupported, "copy", "the source is in no Drive of this account");
    let mut id = service.root_of(root.ok_or_else(foreign)?).await?;
    let dir = item.from.parent();
    for (at, _) in dir.as_bytes().iter().enumerate().filter(|(_, b)| **b == b'/') {
        let above = Key::new(&dir.as_bytes()[..=at]);
        id = service.folder_in(&id, &service.name(&above)?, &item.from).await?.ok_or_else(missing)?.id;
    }
    service.look(&id, &service.name(&item.from)?, &item.from).await
}

/// See [`CopyHow::RenameDir`].
async fn rename_dir(service: &Service, root: Option<&Root>, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "move";
    let refused = |kind, message: &str| Err(Error::new(kind, OP, message).with_key(&item.to));
    service.may_write(OP, &item.to)?;
    let folder = elsewhere(service, root, item).await?.folder(&item.from)?;
    let missing = || Error::new(ErrorKind::NotFound, OP, "no such directory").with_key(&item.from);
    let folder = folder.ok_or_else(missing)?;
    let [old] = &folder.parents[..] else { return refused(ErrorKind::Unsupported, "it has no one parent") };
    if !folder.via.is_empty() {
        return refused(ErrorKind::Unsupported, "what is to be renamed is a shortcut");
    }
    let (parent, name) = (service.made(&item.to.parent()).await?, service.name(&item.to)?);
    let _alone = service.names.at(&item.to).await;
    if !service.look(&parent, &name, &item.to).await?.is_nothing() {
        return refused(ErrorKind::Exists, "something is there already");
    }
    let query: &[_] = if *old == parent { &[] } else { &[("addParents", &*parent), ("removeParents", old)] };
    let moved = plain(service.patch(&folder.id, query, &json!({ "name": name })).await);
    service.dirs.forget(&item.from);
    moved.map_err(at(OP, &item.to)).map(|_| StoredFacts::default())
}

/// Whether a file that is about to be removed, since another took its name, is what it was before that began: copying takes minutes.
///
/// Errors: `Invalid` when it isn't, and has to stay beside the other.
async fn still_is(service: &Service, before: &File, key: &Key) -> Result<()> {
    let now = match plain(service.by_id(&before.id).await) {
        Err(fault) if fault.kind == ErrorKind::NotFound => return Ok(()),
        now => now.map_err(at("copy", key))?,
    };
    if before.format.is_some() || now.version() == (File { via: String::new(), ..before.clone() }).version() {
        return Ok(());
    }
    let message = "somebody wrote the file of this name while it was replaced: now there are two of the name";
    Err(Error::new(ErrorKind::Invalid, "copy", message).with_key(key))
}

async fn copy_item(service: &Service, root: Option<&Root>, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    if item.how == CopyHow::RenameDir {
        return rename_dir(service, root, item).await;
    }
    if item.how.needs_inodes() {
        let message = "Google Drive has no hard links, devices or attributes";
        return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
    }
    service.may_write(OP, &item.to)?;
    let source = source(service, root, item).await?;
    let (parent, shown) = (service.made(&item.to.parent()).await?, service.name(&item.to)?);
    let mut name = shown.clone();
    let _alone = service.names.at(&item.to).await;
    let is_itself = root == Some(&service.root) && item.from == item.to;
    let moves = item.how == CopyHow::Rename && source.via.is_empty() && !is_itself;
    // An earlier try may have moved it, though its answer was lost.
    let own = if moves { &*source.id } else { "" };
    let before = allowed(service, &parent, &name, &item.to, &item.spec.replace, own).await?;
    if let Some(format) = source.format {
        // It stays a document, whose name has no ending.
        let stem =
            name.strip_suffix(format.ending).and_then(|name| name.strip_suffix('.')).filter(|stem| !stem.is_empty());
        let other = || {
            format!(
                "a document of Google's that is shown as .{0} stays one: its new name must end in .{0}",
                format.ending
            )
        };
        let stem = stem.ok_or_else(|| Error::new(ErrorKind::Invalid, OP, other()).with_key(&item.to))?;
        name = stem.to_owned();
    }
    if before.as_ref().is_some_and(|before| before.id == source.id) {
        let message = "it would be copied onto itself";
        return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
    }
    let mut facts = json!({ "name": name });
    if let Some(mtime) = item.spec.mtime.or(source.mtime()).and_then(time) {
        facts["modifiedTime"] = mtime.into();
    }
    let made = if moves {
        let old = source.parents.first().map(String::as_str).unwrap_or_default();
        let query: &[_] = if old == parent { &[] } else { &[("addParents", &*parent), ("removeParents", old)] };
        plain(service.patch(&source.id, query, &facts).await).map_err(at("move", &item.to))?
    } else {
        facts["parents"] = json!([parent]);
        // Google doesn't accept ids for its own documents.
        let id = if source.is_document() { None } else { Some(service.new_id(&item.to).await?) };
        if let Some(id) = &id {
            facts["id"] = id.as_str().into();
        }
        let path = format!("/files/{}/copy", source.id);
        let call = service.call("CopyFile", Method::POST, &path, &[("fields", FIELDS)]).json(&facts);
        match (service.api.json::<File>(&call.going(Direction::Copy)).await, id) {
            // Nobody knows whether it was made; by its id that can be seen.
            (Err(refused), Some(id)) if refused.fault.is_ambiguous() => {
                service.by_id(&id).await.map_err(|_| refused.at(OP, &item.to))?
            }
            (other, _) => plain(other).map_err(at(OP, &item.to))?,
        }
    };
    let stored = match source.is_document() {
        true => {
            StoredFacts { version: File { format: source.format, ..made.clone() }.version(), ..StoredFacts::default() }
        }
        false => match settled(&made, source.size(), &source.hashes(), &item.to) {
            Err(error) if !moves => {
                let gone = service.remove(&made.id).await;
                let left = gone.err().map(|_| "; it could not be removed").unwrap_or_default();
                let message = format!("{}{left}", error.message());
                return Err(Error::new(error.kind(), OP, message).with_key(&item.to));
            }
            settled => settled?,
        },
    };
    let replace = &item.spec.replace;
    let arriving = UploadedFile { op: OP, key: &item.to, name: &shown, replace, parent, before: None, again: false };
    arriving.settle(service, made).await?;
    // There was a file of this name: for a moment there are two, never none.
    if let Some(before) = before {
        still_is(service, &before, &item.to).await?;
        plain(service.remove(before.named()).await).map_err(at(OP, &item.to))?;
    }
    if item.how == CopyHow::Rename && !source.via.is_empty() {
        plain(service.remove(&source.via).await).map_err(at("move", &item.from))?;
    }
    Ok(stored)
}
