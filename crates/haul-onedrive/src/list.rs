//! The service's facts about folders and files.

use crate::service::{Item, Service, own};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Entry, Error, ErrorKind, Key, Result, Retry};
use haul_net::{Fault, Pages};
use haul_oauth::{Call, ServiceResult, few};
use haul_store::{
    SpaceUsage,
    tree::{Folders, FoundName, WantedKeys, is_odd},
};
use http::Method;
use serde::Deserialize;
use std::{collections::BTreeMap, sync::Arc};

/// One page of a listing.
#[derive(Deserialize)]
struct Page {
    #[serde(deserialize_with = "few")]
    value: Vec<Item>,
    #[serde(rename = "@odata.nextLink")]
    next: Option<String>,
    #[serde(rename = "@odata.deltaLink")]
    delta: Option<String>,
}

/// All pages from an address on; `delta` where the last one must say that it is.
pub async fn pages(service: &Service, kind: &'static str, address: String, delta: bool) -> ServiceResult<Vec<Item>> {
    let (mut all, mut address, mut pages) = (Vec::new(), address, Pages::default());
    loop {
        let page: Page = service.api.json(&Call::new(kind, Method::GET, &address)).await?;
        for item in &page.value {
            pages.is_new(&item.id);
        }
        all.extend(page.value);
        let Some(next) = page.next else {
            return match delta && page.delta.is_none() {
                true => Err(Fault::broken("the service's listing ends without saying so").into()),
                false => Ok(all),
            };
        };
        own(&service.config, &next)?;
        pages.next(&next)?;
        address = next;
    }
}

/// The folders of a drive, one a directory.
pub struct Children(pub Arc<Service>);

impl Folders for Children {
    fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let service = self.0.clone();
        async move {
            let items = children(&service, &dir).await?;
            let mut found = BTreeMap::new();
            for item in items {
                let item = resolved(&service, &dir, item).await?;
                if let Some(one) = found_name(&service, &dir, &item)? {
                    put(&mut found, &item.id, one);
                }
            }
            Ok(found.into_values().map(|(_, one)| one).collect())
        }
        .boxed()
    }
}

/// Adds an entry to those of its directory, by key and with its id. An item may appear twice, and the later counts; of two with
/// the same name here, neither is listed.
pub fn put(found: &mut BTreeMap<Key, (String, FoundName)>, id: &str, one: FoundName) {
    let key = one.key().clone();
    let one = match found.remove(&key) {
        Some((other, _)) if other != id => {
            let why = "the service listed two of this name";
            FoundName::Failed(key.clone(), Error::new(ErrorKind::Invalid, "list", why).with_key(&key))
        }
        _ => one,
    };
    found.insert(key, (id.to_owned(), one));
}

/// See [`Service::resolved`]. What is shared no more stays what it is here.
pub async fn resolved(service: &Service, dir: &Key, item: Item) -> Result<Item> {
    let own = item.clone();
    match service.resolved(item).await {
        Err(refused) if matches!(refused.fault.kind, ErrorKind::NotFound | ErrorKind::Denied) => Ok(own),
        other => other.map_err(|refused| refused.at("list", dir)),
    }
}

/// All that is in a folder.
pub async fn children(service: &Service, dir: &Key) -> Result<Vec<Item>> {
    let failed = |error: Error| match dir.is_root() && error.kind() == ErrorKind::NotFound {
        true => no_root(service),
        false => error,
    };
    let ask = || async {
        let address = service.address("list", dir, "/children").await?;
        let question = format!("{address}?$top={}", service.config.list_chunk);
        let items = pages(service, "children", question, false).await.map_err(|refused| refused.at("list", dir))?;
        Ok::<Vec<Item>, Error>(items.into_iter().map(|item| service.found(&address, item)).collect())
    };
    let items = match ask().await {
        Err(error) if error.kind() == ErrorKind::NotFound && service.finds_shared("list").await? => ask().await,
        other => other,
    };
    let items = items.map_err(failed)?;
    // A file may have no children either.
    if items.is_empty() && !service.at("list", dir).await.map_err(failed)?.is_folder() {
        return Err(failed(Error::new(ErrorKind::NotFound, "list", "this is a file").with_key(dir)));
    }
    Ok(items)
}

/// Whether nothing is in a folder.
pub async fn is_empty(service: &Service, id: &str) -> ServiceResult<bool> {
    let address = service.by_id(id, "/children?$top=1");
    let page: Page = service.api.json(&Call::new("children", Method::GET, address)).await?;
    Ok(page.value.is_empty() && page.next.is_none())
}

fn no_root(service: &Service) -> Error {
    Error::new(ErrorKind::DirNotFound, "list", format!("{}: no such directory", service.locator))
}

/// The listing entry of an item in `dir`; `None` for hidden items.
///
/// Errors: its name can't be a key.
pub fn found_name(service: &Service, dir: &Key, item: &Item) -> Result<Option<FoundName>> {
    let name = service.config.encoding.decode(item.name.as_bytes());
    if is_odd(&name) || name.contains(&b'/') || item.name.is_empty() {
        let why = format!("the service listed {:?}, which can't be a name", item.name);
        return Err(Error::new(ErrorKind::Invalid, "list", why).with_key(dir));
    }
    if item.package.is_some() && !service.config.onenote {
        return Ok(None);
    }
    let key = Key::new([dir.as_bytes(), &name].concat());
    if item.remote_item.is_some() && !item.is_folder() {
        let why = "it is shared in from another drive, and can't be read there (any more)";
        return Ok(Some(FoundName::Failed(key.clone(), Error::new(ErrorKind::Denied, "list", why).with_key(&key))));
    }
    Ok(Some(match item.entry(&key, service.config.hash) {
        Ok(entry) => {
            match entry.is_dir() {
                true => service.saw_folder(&entry.key, item),
                false => service.saw(&entry.key),
            }
            FoundName::Entry(entry)
        }
        Err(error) => FoundName::Failed(key, error),
    }))
}

/// See [`haul_store::Store::stat`].
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    let item =
        service.at("stat", key).await.map_err(|error| match key.is_root() && error.kind() == ErrorKind::NotFound {
            true => no_root(service),
            false => error,
        })?;
    if key.is_root() {
        return match item.is_folder() {
            true => Ok(Entry::dir(key.clone())),
            false => Err(no_root(service)),
        };
    }
    let item = service.resolved(item).await.map_err(|refused| refused.at("stat", key))?;
    let entry = item.entry(key, service.config.hash)?;
    // A name that differs by case is another key, which isn't there.
    if entry.key != *key || item.name != service.leaf(key)? {
        return Err(Error::new(ErrorKind::NotFound, "stat", "no such file").with_key(key));
    }
    match entry.is_dir() {
        true => service.saw_folder(key, &item),
        false => service.saw(key),
    }
    Ok(entry)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Drive {
    quota: Option<Quota>,
    owner: Option<Owner>,
    drive_type: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    user: Option<Identity>,
    group: Option<Identity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    email: Option<String>,
    display_name: Option<String>,
}

/// See [`haul_store::Admin::user`]. Of the drive's owner: no further permission is needed for it.
pub async fn user(service: &Service) -> Result<Vec<(&'static str, String)>> {
    let call = Call::new("drive", Method::GET, service.of_drive());
    let drive: Drive = service.api.json(&call).await.map_err(|refused| refused.fault.error("userinfo"))?;
    let who = drive.owner.and_then(|owner| owner.user.or(owner.group));
    let (email, name) = who.map_or((None, None), |who| (who.email, who.display_name));
    let facts = [("email", email), ("name", name), ("drive", drive.drive_type)];
    Ok(facts.into_iter().filter_map(|(word, fact)| Some((word, fact?))).collect())
}

#[derive(Deserialize)]
struct Quota {
    total: Option<u64>,
    used: Option<u64>,
    remaining: Option<u64>,
}

/// See [`haul_store::Admin::about`].
pub async fn about(service: &Service) -> Result<SpaceUsage> {
    let call = Call::new("drive", Method::GET, service.of_drive());
    let drive: Drive = service.api.json(&call).await.map_err(|refused| refused.fault.error("about"))?;
    let unknown = || {
        let why = "the service doesn't tell how much space there is";
        Error::new(ErrorKind::Unsupported, "about", why).with_retry(Retry::Never)
    };
    let quota = drive.quota.ok_or_else(unknown)?;
    let total = quota.total.filter(|total| *total > 0);
    if total.is_none() && quota.used.is_none_or(|used| used == 0) {
        return Err(unknown());
    }
    Ok(SpaceUsage { total, used: quota.used, free: quota.remaining.filter(|_| total.is_some()) })
}
