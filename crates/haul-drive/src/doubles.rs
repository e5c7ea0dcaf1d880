//! Names shared by several items: an item's version holds its id, which tells it from the others.

use crate::{
    AT_ONCE,
    facts::{File, pinned},
    service::{Service, doubled, quoted},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use haul_core::{Entry, Error, ErrorKind, Key, Result, Version};
use haul_net::at;
use haul_oauth::plain;
use serde_json::json;

/// See [`haul_store::Doubles::all_in`].
pub async fn all_in(service: &Service, dir: &Key) -> Result<Vec<Entry>> {
    const OP: &str = "list";
    let id = service.dir(dir).await?;
    let mut entries = Vec::new();
    for file in service.children(&id).await.map_err(|refused| refused.at(OP, dir))? {
        let Some(file) = service.followed(file).await.map_err(|refused| refused.at(OP, dir))? else { continue };
        let shown = file.shown_name();
        let name = service.config.encoding.decode(shown.as_bytes());
        let key = Key::new([dir.as_bytes(), &name].concat());
        let entry = match file.is_folder() {
            true => {
                let version = Some(Version::new(format!("{}\nfolder\n{}", file.id, file.via)));
                Some(Entry { mtime: file.mtime(), version, ..Entry::dir(key.with_suffix("/")) })
            }
            false => file.entry(key.clone()),
        };
        let untold = || Error::new(ErrorKind::Unsupported, OP, "Google tells neither size nor checksum").with_key(&key);
        entries.push(entry.ok_or_else(untold)?);
    }
    // Of the same name the oldest first, whatever Google's order is.
    let id = |entry: &Entry| entry.version.as_ref().map(|version| version.0.clone());
    entries.sort_by_cached_key(|entry| (entry.key.clone(), entry.mtime, id(entry)));
    Ok(entries)
}

/// The current state of the file behind an entry; `None` when it no longer exists.
///
/// Errors: `Changed` when it has changed since.
async fn found(service: &Service, op: &'static str, entry: &Entry) -> Result<Option<File>> {
    let changed = || Error::new(ErrorKind::Changed, op, "changed since it was listed").with_key(&entry.key);
    let it = entry.version.as_ref().and_then(pinned).filter(|_| !entry.is_dir()).ok_or_else(changed)?;
    let file = match service.by_id(&it.id).await {
        Ok(file) => it.shown(file),
        Err(refused) if refused.fault.status == 404 => return Ok(None),
        Err(refused) => return Err(refused.at(op, &entry.key)),
    };
    match (file.trashed, file.version() == entry.version) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(file)),
        (false, false) => Err(changed()),
    }
}

/// See [`haul_store::Doubles::check_one`].
pub async fn check_one(service: &Service, entry: &Entry) -> Result<()> {
    const OP: &str = "stat";
    let gone = || Error::new(ErrorKind::Changed, OP, "removed since it was listed").with_key(&entry.key);
    found(service, OP, entry).await?.map(|_| ()).ok_or_else(gone)
}

/// See [`haul_store::Doubles::delete_one`].
pub async fn delete_one(service: &Service, entry: &Entry) -> Result<()> {
    const OP: &str = "delete";
    service.may_write(OP, &entry.key)?;
    let Some(file) = found(service, OP, entry).await? else { return Ok(()) };
    plain(service.remove(file.named()).await).map_err(at(OP, &entry.key))
}

/// See [`haul_store::Doubles::rename_one`].
pub async fn rename_one(service: &Service, entry: &Entry, to: &Key) -> Result<()> {
    const OP: &str = "rename";
    service.may_write(OP, to)?;
    let gone = || Error::new(ErrorKind::Changed, OP, "removed since it was listed").with_key(&entry.key);
    let file = found(service, OP, entry).await?.ok_or_else(gone)?;
    let name = service.name(to)?;
    let _alone = service.names.at(to).await;
    let parent = service.dir(&to.parent()).await?;
    let there = service.look(&parent, &name, to).await?;
    if there.folder(to)?.is_some() || there.only(OP, to)?.is_some_and(|there| there.named() != file.named()) {
        return Err(Error::new(ErrorKind::Exists, OP, "the name is taken").with_key(to));
    }
    let name = match file.format {
        // A document's own name has no ending.
        Some(format) => name.strip_suffix(format.ending).and_then(|name| name.strip_suffix('.')).map(str::to_owned),
        None => Some(name),
    };
    let odd = || Error::new(ErrorKind::Invalid, OP, "a document of Google's keeps its ending").with_key(to);
    let facts = json!({ "name": name.ok_or_else(odd)? });
    plain(service.patch(file.named(), &[], &facts).await).map(|_| ()).map_err(at(OP, to))
}

/// See [`haul_store::Doubles::merge_dirs`].
pub async fn merge_dirs(service: &Service, dirs: &[Entry]) -> Result<()> {
    const OP: &str = "merge";
    let Some(first) = dirs.first() else { return Ok(()) };
    let key = &first.key;
    service.may_write(OP, key)?;
    let mut ids = Vec::new();
    for dir in dirs {
        let it = dir.version.as_ref().and_then(pinned).filter(|_| dir.is_dir());
        let it = it.ok_or_else(|| doubled(OP, key, dirs.len()))?;
        if !it.via.is_empty() {
            let message = "one of these directories is a shortcut: rename or remove it by hand";
            return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(key));
        }
        ids.push(it.id);
    }
    let target = ids.remove(0);
    // A holder of a directory's id would write into one that is being deleted.
    let _alone = service.making.lock().await;
    service.dirs.forget(key);
    let first_now = service.by_id(&target).await.map_err(|refused| refused.at(OP, key))?;
    if first_now.trashed || !first_now.is_folder() {
        return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key));
    }
    for old in &ids {
        // Entries that Drive doesn't show as files are moved too.
        let all = format!("trashed = false and {} in parents", quoted(old));
        let inside = service.search(&all).await.map_err(|refused| refused.at(OP, key))?;
        let moves = inside.into_iter().map(|file| {
            let query = [("addParents", &*target), ("removeParents", &**old)];
            async move { plain(service.patch(&file.id, &query, &json!({})).await).map(|_| ()).map_err(at(OP, key)) }
        });
        stream::iter(moves).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        if !service.search(&all).await.map_err(|refused| refused.at(OP, key))?.is_empty() {
            return Err(Error::new(ErrorKind::Exists, OP, "something came into it meanwhile").with_key(key));
        }
        // An item that a search doesn't show yet would be trashed too.
        plain(service.trash(old).await).map_err(at(OP, key))?;
    }
    service.dirs.forget(key);
    Ok(())
}
