//! Changes: moves, copies, times, deletes, links. A delete or a move by a file's name would affect a whole folder: the existing
//! item is looked up first, and then addressed by its id and tag.

use crate::{
    conditions::choose,
    list,
    service::{Item, Service, folds, times},
    version::parts_of,
};
use haul_core::{Entry, Error, ErrorKind, Key, Mtime, Result, Retry, Version, plan::Replace};
use haul_net::Fault;
use haul_oauth::Call;
use haul_store::{CopyHow, CopyItem, Direction, StoredFacts, ids::Root, wrong_content};
use http::{Method, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// How long a copy inside the service may take without getting on.
const PATIENCE: Duration = Duration::from_secs(600);

/// Sets a file's time.
pub async fn patch(service: &Service, key: &Key, id: &str, mtime: Mtime) -> Result<Item> {
    let address = service.by_id(id, "");
    let call = Call::new("patch", Method::PATCH, &address).json(&json!({"fileSystemInfo": times(mtime)}));
    let item = service.api.json(&call).await.map_err(|refused| refused.at("set_meta", key))?;
    Ok(service.found(&address, item))
}

/// See [`haul_store::Store::set_meta`].
pub async fn set_mtime(service: &Service, key: &Key, mtime: Option<Mtime>) -> Result<()> {
    let Some(mtime) = mtime else { return Ok(()) };
    let address = service.address("set_meta", key, "").await?;
    let call = Call::new("patch", Method::PATCH, address).json(&json!({"fileSystemInfo": times(mtime)}));
    service.api.ask(&call).await.map(|_| ()).map_err(|refused| refused.at("set_meta", key))
}

#[derive(Deserialize)]
struct Versions {
    value: Vec<Numbered>,
}

#[derive(Deserialize)]
struct Numbered {
    id: String,
}

/// The versions of a file; the one that is there comes first.
async fn versions(service: &Service, key: &Key, id: &str) -> Result<Vec<Numbered>> {
    let call = Call::new("versions", Method::GET, service.by_id(id, "/versions"));
    let versions: Versions = service.api.json(&call).await.map_err(|refused| refused.at("write", key))?;
    Ok(versions.value)
}

/// Removes all versions of a file but the one that is there.
pub async fn remove_versions(service: &Service, key: &Key, id: &str) -> Result<()> {
    for version in versions(service, key, id).await?.into_iter().skip(1) {
        let address = service.by_id(id, &format!("/versions/{}", version.id));
        match service.api.ask(&Call::new("versions", Method::DELETE, address)).await {
            Err(refused) if refused.fault.kind != ErrorKind::NotFound => return Err(refused.at("write", key)),
            _ => {}
        }
    }
    Ok(())
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
            let id = |entry: &Entry| entry.version.as_ref().and_then(parts_of).map(|(id, _)| id.to_owned());
            let there = list::stat(service, &item.to);
            let stored = service.moves.done(item, there, |a, b| id(a) == id(b)).await.ok_or(error)?;
            if item.how == CopyHow::Rename {
                service.forget(&item.from);
                service.saw(&item.to);
            }
            Ok(stored)
        }
        failed => failed,
    }
}

async fn copy_item(service: &Service, from: Option<&Root>, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let unsupported = |why: &str| Error::new(ErrorKind::Unsupported, OP, why).with_key(&item.to);
    if item.how.needs_inodes() && item.how != CopyHow::RenameDir {
        return Err(unsupported("a drive has no hard links, devices or attributes"));
    }
    let from = from.ok_or_else(|| unsupported("the source is on another drive"))?;
    let source = match item.want.as_ref().and_then(parts_of) {
        Some((id, _)) => service.by_id(id, ""),
        None => service.address_in(OP, from, &item.from, "").await?,
    };
    let there = service.item(source).await.map_err(|refused| refused.at(OP, &item.from))?;
    if there.is_folder() != (item.how == CopyHow::RenameDir) {
        return Err(Error::new(ErrorKind::NotFound, OP, "this is of another kind").with_key(&item.from));
    }
    if item.want.is_some() && item.want != there.version() {
        return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(&item.from));
    }
    let parent = service.make_dir(&item.to.parent(), OP).await?;
    let drive = |id: &str| id.split_once('#').map(|(drive, _)| drive.to_owned());
    if there.remote_item.is_some() || drive(&there.id) != drive(&parent) {
        return Err(unsupported("one of the two is on another drive"));
    }
    let mtime = item.spec.mtime.or(there.mtime());
    let name = service.leaf(&item.to)?;
    match item.how {
        CopyHow::RenameDir => rename_dir(service, item, &there, &parent, &name).await,
        CopyHow::Rename => rename(service, item, &there, &parent, &name, mtime).await,
        _ => duplicate(service, item, &there, &parent, &name, mtime).await,
    }
}

/// See [`CopyHow::RenameDir`].
async fn rename_dir(service: &Service, item: &CopyItem, there: &Item, parent: &str, name: &str) -> Result<StoredFacts> {
    let question = json!({"name": name, "parentReference": Service::reference(parent)});
    let call = Call::new("patch", Method::PATCH, service.by_id(&there.id, "")).json(&question);
    let moved = service.api.ask(&call).await;
    service.forget_folder(&item.from)?;
    if moved.as_ref().is_err_and(|refused| refused.fault.is_ambiguous()) {
        service.moves.note(item, Entry::dir(Key::new(item.from.path())));
    }
    moved.map(|_| StoredFacts::default()).map_err(|refused| refused.at("copy", &item.to))
}

/// Moves a file without sending it again; an item with the new name isn't replaced.
async fn rename(
    service: &Service,
    item: &CopyItem,
    there: &Item,
    parent: &str,
    name: &str,
    mtime: Option<Mtime>,
) -> Result<StoredFacts> {
    let mut question = json!({"name": name, "parentReference": Service::reference(parent)});
    if let Some(mtime) = mtime {
        question["fileSystemInfo"] = times(mtime);
    }
    let address = service.by_id(&there.id, "");
    let mut call = Call::new("patch", Method::PATCH, &address).json(&question);
    if let Some(tag) = &there.e_tag {
        call = call.header(header::IF_MATCH, tag);
    }
    let moved = service.api.json::<Item>(&call).await;
    if moved.as_ref().is_err_and(|refused| refused.fault.is_ambiguous()) {
        service.moves.note(item, there.entry(&item.from, service.config.hash)?);
    }
    let moved = moved.map_err(|refused| match refused.fault.kind {
        ErrorKind::Exists if item.spec.replace == Replace::Absent => {
            Error::new(ErrorKind::Exists, "copy", "is there already").with_key(&item.to)
        }
        ErrorKind::Exists => Error::new(ErrorKind::Unsupported, "copy", "something is there").with_key(&item.to),
        _ => refused.at("copy", &item.to),
    })?;
    let moved = service.found(&address, moved);
    service.downloads.forget(&there.id);
    service.forget(&item.from);
    service.saw(&item.to);
    Ok(StoredFacts {
        version: moved.version(),
        size: moved.size.unwrap_or(item.size),
        hashes: moved.hashes(),
        ..StoredFacts::default()
    })
}

async fn duplicate(
    service: &Service,
    item: &CopyItem,
    there: &Item,
    parent: &str,
    name: &str,
    mtime: Option<Mtime>,
) -> Result<StoredFacts> {
    if let Replace::Exactly(version) = &item.spec.replace {
        let now = service.at("copy", &item.to).await?;
        if now.version().as_ref() != Some(version) {
            return Err(Error::new(ErrorKind::Changed, "copy", "changed since it was listed").with_key(&item.to));
        }
        service.saw(&item.to);
    }
    let replace = match &item.spec.replace {
        Replace::Absent => Replace::Absent,
        _ => Replace::Anything,
    };
    let ask = |conflict: &'static str, _| async move {
        let address = service.by_id(&there.id, &format!("/copy?@microsoft.graph.conflictBehavior={conflict}"));
        let question = json!({"name": name, "parentReference": Service::reference(parent)});
        let call = Call::new("copy", Method::POST, address).json(&question).going(Direction::Copy);
        let reply = service.api.send(&call).await.map_err(|refused| (refused.at("copy", &item.to), false))?;
        let monitor = reply.header("location").map(str::to_owned);
        let missing =
            || (Fault::broken("the service doesn't say where to ask for the copy").at("copy", &item.to), false);
        wait(service, &item.to, &monitor.ok_or_else(missing)?).await.map_err(|error| (error, false))
    };
    choose(service, &item.to, &replace, ask).await.map_err(|(error, _)| error)?;
    let mut copy = service.at("copy", &item.to).await?;
    service.downloads.forget(&copy.id);
    if copy.name != name {
        return Err(Error::new(ErrorKind::Exists, "copy", folds(&copy.name)).with_key(&item.to));
    }
    let same = copy.size == there.size && !matches!(copy.hashes().agree(&there.hashes()), Some((_, false)));
    if !same {
        let why = "the service's copy has other bytes than what it copied";
        let left = undo_write(service, &item.to, &copy, mtime).await.map_or("; it could not be taken back", |()| "");
        return Err(Error::new(ErrorKind::Corrupt, "copy", format!("{why}{left}")).with_key(&item.to));
    }
    service.saw(&item.to);
    if let Some(mtime) = mtime.filter(|mtime| copy.mtime().is_none_or(|there| there.secs() != mtime.secs())) {
        copy = patch(service, &item.to, &copy.id, mtime).await?;
    }
    if service.config.no_versions {
        remove_versions(service, &item.to, &copy.id).await?;
    }
    Ok(StoredFacts {
        version: copy.version(),
        size: copy.size.unwrap_or(item.size),
        hashes: copy.hashes(),
        ..StoredFacts::default()
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    #[serde(default)]
    status: String,
    #[serde(default)]
    percentage_complete: f64,
    error: Option<ErrorDetail>,
    error_code: Option<String>,
}

#[derive(Deserialize)]
struct ErrorDetail {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Waits for a copy to end.
async fn wait(service: &Service, key: &Key, monitor: &str) -> Result<()> {
    let mut pause = Duration::from_millis(100);
    let (mut since, mut done) = (tokio::time::Instant::now(), -1.0);
    loop {
        let call = Call::new("monitor", Method::GET, monitor).anonymous().accepts(&[StatusCode::SEE_OTHER]);
        let reply = service.api.send(&call).await.map_err(|refused| refused.at("copy", key))?;
        if reply.status == StatusCode::SEE_OTHER {
            return Ok(());
        }
        let body = reply.bytes().await.map_err(|fault| fault.at("copy", key))?;
        let progress: Progress = serde_json::from_slice(&body)
            .map_err(|e| Fault::broken(format!("the answer about a copy can't be understood: {e}")).at("copy", key))?;
        match &*progress.status {
            "completed" => return Ok(()),
            "notStarted" | "inProgress" | "running" | "waiting" | "updating" => {}
            status => {
                let ErrorDetail { code, message } =
                    progress.error.unwrap_or(ErrorDetail { code: String::new(), message: String::new() });
                let code = if code.is_empty() { progress.error_code.unwrap_or_default() } else { code };
                let kind = if code == "nameAlreadyExists" { ErrorKind::Exists } else { ErrorKind::Io };
                let why = format!("the service gave the copy up: {status} {code} {message}");
                return Err(Error::new(kind, "copy", why.trim_end()).with_key(key));
            }
        }
        if progress.percentage_complete > done {
            (since, done) = (tokio::time::Instant::now(), progress.percentage_complete);
        }
        if since.elapsed() > PATIENCE {
            let why = "the service's copy doesn't get on";
            return Err(Error::new(ErrorKind::Timeout, "copy", why).with_retry(Retry::Never).with_key(key));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// A file whose content is wrong.
struct WrongUpload<'a> {
    service: &'a Service,
    key: &'a Key,
    item: &'a Item,
}

impl wrong_content::WrongContent for WrongUpload<'_> {
    async fn tag(&self) -> Result<Option<String>> {
        let now = match self.service.item(self.service.by_id(&self.item.id, "")).await {
            Err(refused) if refused.fault.kind == ErrorKind::NotFound => return Ok(None),
            now => now.map_err(|refused| refused.at("write", self.key))?,
        };
        let is_content = now.c_tag.is_some() && now.c_tag == self.item.c_tag;
        Ok((now.e_tag == self.item.e_tag || is_content).then(|| now.e_tag.unwrap_or_default()))
    }

    async fn before(&self) -> Result<Option<String>> {
        // The first is the one that is there.
        Ok(versions(self.service, self.key, &self.item.id).await?.into_iter().nth(1).map(|version| version.id))
    }

    async fn restore(&self, version: String) -> Result<()> {
        let address = self.service.by_id(&self.item.id, &format!("/versions/{version}/restoreVersion"));
        let answer = self.service.api.ask(&Call::new("versions", Method::POST, address)).await;
        answer.map(|_| ()).map_err(|refused| refused.at("write", self.key))
    }

    async fn remove(&self, tag: String) -> Result<()> {
        self.service.forget(self.key);
        remove(self.service, self.key, &self.item.id, Some(&*tag).filter(|tag| !tag.is_empty()), false).await
    }

    async fn date(&self, mtime: Mtime) -> Result<()> {
        patch(self.service, self.key, &self.item.id, mtime).await.map(|_| ())
    }
}

/// See [`wrong_content::undo_write`].
pub async fn undo_write(service: &Service, key: &Key, item: &Item, mtime: Option<Mtime>) -> Result<()> {
    wrong_content::undo_write(&WrongUpload { service, key, item }, mtime.or(item.mtime())).await
}

/// Removes exactly this item, as it is.
async fn remove(service: &Service, key: &Key, id: &str, tag: Option<&str>, forever: bool) -> Result<()> {
    let call = match forever && !service.config.is_personal {
        true => Call::new("permanentDelete", Method::POST, service.by_id(id, "/permanentDelete")),
        false => Call::new("delete", Method::DELETE, service.by_id(id, "")),
    };
    let call = match tag {
        Some(tag) => call.header(header::IF_MATCH, tag),
        None => call,
    };
    service.api.ask(&call).await.map(|_| ()).map_err(|refused| refused.at("delete", key))
}

/// See [`haul_store::Store::delete`].
pub async fn delete(service: &Service, key: &Key, version: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key);
    if key.is_dir() || key.is_root() {
        return delete_folder(service, key).await;
    }
    let (id, tag) = match version.and_then(parts_of).filter(|_| !service.config.hard_delete) {
        // A file that is shared in stays where it is.
        Some((id, tag)) if !id.contains('#') || service.is_shared(&key.parent()) => (id.to_owned(), tag.to_owned()),
        _ => {
            let there = match service.at(OP, key).await {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                other => other?,
            };
            // No file is called so.
            if there.is_folder() || there.name != service.leaf(key)? {
                return Ok(());
            }
            let is_shared = there.remote_item.is_some();
            let now = match is_shared {
                true => service.resolved(there.clone()).await.map_err(|refused| refused.at(OP, key))?.version(),
                false => there.version(),
            };
            if version.is_some() && version != now.as_ref() {
                return Err(changed());
            }
            (there.id, there.e_tag.unwrap_or_default())
        }
    };
    service.downloads.forget(&id);
    let tag = Some(&*tag).filter(|tag| !tag.is_empty());
    match remove(service, key, &id, tag, service.config.hard_delete).await {
        Ok(()) => {
            service.forget(key);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Changed => Err(changed()),
        // Gone, or another is there by now.
        Err(error) if error.kind() == ErrorKind::NotFound => match service.at(OP, key).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(there) if there.is_folder() => Ok(()),
            Ok(_) => Err(changed()),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// The service deletes a folder with all its contents: so it is looked up right before, to see that it is empty. On personal drives a
/// folder has a content tag, which changes with its contents, so that only the folder as it was seen is deleted. OneDrive for Business and
/// SharePoint have none: an entry that arrives between the two requests is deleted with the folder, so it always goes to the recycle bin.
async fn delete_folder(service: &Service, key: &Key) -> Result<()> {
    const OP: &str = "delete";
    let there = match service.at(OP, key).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !there.is_folder() || !key.is_root() && there.name != service.leaf(key)? {
        return Ok(());
    }
    if there.root.is_some() {
        return Err(Error::new(ErrorKind::Unsupported, OP, "a drive's root can't be deleted").with_key(key));
    }
    let full = || Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key);
    // By its id: by its name it could be another by now.
    match list::is_empty(service, &there.target().unwrap_or_else(|| there.id.clone())).await {
        Ok(false) => return Err(full()),
        Err(refused) if refused.fault.kind == ErrorKind::NotFound => return Ok(()),
        other => other.map(|_| ()).map_err(|refused| refused.at(OP, key))?,
    }
    service.forget_folder(key)?;
    match remove(service, key, &there.id, there.c_tag.as_deref(), false).await {
        Err(error) if error.kind() == ErrorKind::Changed => Err(full()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[derive(Deserialize)]
struct Linked {
    link: Link,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    web_url: String,
}

/// See [`haul_store::Admin::link`].
pub async fn link(service: &Service, key: &Key, lasts: Duration) -> Result<String> {
    let [kind, scope, password] = &service.config.link;
    let mut question = json!({"type": kind, "scope": scope});
    if !password.is_empty() {
        question["password"] = json!(password);
    }
    let ends = jiff::Timestamp::now().as_second().checked_add(i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX));
    if let Some(ends) = ends.and_then(|ends| jiff::Timestamp::from_second(ends).ok()) {
        question["expirationDateTime"] = json!(ends.to_string());
    }
    let call =
        Call::new("createLink", Method::POST, service.address("link", key, "/createLink").await?).json(&question);
    let linked: Linked = service.api.json(&call).await.map_err(|refused| refused.at("link", key))?;
    Ok(linked.link.web_url)
}
