//! The service's facts about folders and files.

use crate::{
    facts::{Item, whole},
    service::Service,
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Entry, Error, ErrorKind, Key, Result};
use haul_store::{
    SpaceUsage,
    tree::{Folders, FoundName, WantedKeys, is_odd},
};
use http::Method;
use serde::Deserialize;
use std::sync::Arc;

/// The folders of an account, one a directory.
pub struct Directories(pub Arc<Service>);

impl Folders for Directories {
    fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let service = self.0.clone();
        async move {
            let items = children(&service, &dir).await?;
            items.iter().filter_map(|item| entry(&service, &dir, item).transpose()).collect()
        }
        .boxed()
    }
}

/// All that is in a directory.
pub async fn children(service: &Service, dir: &Key) -> Result<Vec<Item>> {
    let id = service.dir(dir, "list").await?;
    service.items(&id).await.map_err(|refused| match refused.fault.kind {
        ErrorKind::NotFound => {
            service.forget_folder(dir);
            if dir.is_root() { service.no_root("list") } else { refused.at("list", dir) }
        }
        _ => refused.at("list", dir),
    })
}

/// The listing entry of an item in `dir`; `None` for hidden items.
///
/// Errors: its name can't be a key.
fn entry(service: &Service, dir: &Key, item: &Item) -> Result<Option<FoundName>> {
    let name = service.config.encoding.decode(item.name.as_bytes());
    if is_odd(&name) || name.contains(&b'/') || item.name.is_empty() {
        let why = format!("the service listed {:?}, which can't be a name", item.name);
        return Err(Error::new(ErrorKind::Invalid, "list", why).with_key(dir));
    }
    let owner = &service.config.owned_by;
    // Bookmarks have no bytes.
    let is_known = item.is_file() || item.is_folder();
    if !is_known || !item.is_there() || !owner.is_empty() && !item.is_owned_by(owner) {
        return Ok(None);
    }
    let key = Key::new([dir.as_bytes(), &name].concat());
    Ok(Some(match item.entry(&key) {
        Ok(entry) => {
            match entry.is_dir() {
                true => service.note_folder(&entry.key, &item.id),
                false => service.note_file(&entry.key),
            }
            FoundName::Entry(entry)
        }
        Err(error) => FoundName::Failed(key, error),
    }))
}

/// See [`haul_store::Store::stat`].
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    const OP: &str = "stat";
    if key.is_root() || key.is_dir() {
        // The known folder may no longer exist.
        service.forget_folder(key);
        let id = service.dir(key, OP).await?;
        let item = service.folder(&id).await.map_err(|refused| match refused.fault.kind {
            ErrorKind::NotFound if key.is_root() => service.no_root(OP),
            _ => refused.at(OP, key),
        })?;
        return if key.is_root() { Ok(Entry::dir(key.clone())) } else { item.entry(key) };
    }
    let item = service.at(OP, key).await?;
    if !item.is_file() {
        return Err(Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key));
    }
    service.note_file(key);
    item.entry(key)
}

#[derive(Deserialize)]
struct User {
    space_amount: Option<serde_json::Number>,
    space_used: Option<serde_json::Number>,
    login: Option<String>,
    name: Option<String>,
}

/// See [`haul_store::Admin::user`].
pub async fn user(service: &Service) -> Result<Vec<(&'static str, String)>> {
    let call = service.call("Me", Method::GET, "/users/me?fields=login,name");
    let user: User = service.api.json(&call).await.map_err(|refused| refused.fault.error("userinfo"))?;
    let facts = [("email", user.login), ("name", user.name)];
    Ok(facts.into_iter().filter_map(|(word, fact)| Some((word, fact?))).collect())
}

/// See [`haul_store::Admin::about`].
pub async fn about(service: &Service) -> Result<SpaceUsage> {
    let call = service.call("Me", Method::GET, "/users/me?fields=space_amount,space_used");
    let user: User = service.api.json(&call).await.map_err(|refused| refused.fault.error("about"))?;
    let number = |number: Option<serde_json::Number>| number.as_ref().and_then(whole);
    let (total, used) = (number(user.space_amount), number(user.space_used));
    Ok(SpaceUsage { total, used, free: total.zip(used).map(|(total, used)| total.saturating_sub(used)) })
}
