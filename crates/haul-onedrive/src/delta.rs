//! A whole drive by pages of all that it holds: a request for a thousand items, however many folders there are.

use crate::{
    list,
    service::{Item, Service},
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Error, ErrorKind, Key, Result, Retry};
use haul_store::tree::{Folders, FoundName, WantedKeys};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::sync::OnceCell;

type Tree = HashMap<String, Vec<Item>>;

/// The folders of a drive that is asked for once.
pub struct WholeDrive {
    service: Arc<Service>,
    tree: Arc<OnceCell<(String, Tree)>>,
    /// Ids of listed folders.
    ids: Arc<std::sync::Mutex<HashMap<Key, String>>>,
}

impl WholeDrive {
    pub fn new(service: Arc<Service>) -> WholeDrive {
        WholeDrive { service, tree: Arc::default(), ids: Arc::default() }
    }
}

impl Folders for WholeDrive {
    fn folder(&self, dir: Key, wanted: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let (service, tree, ids) = (self.service.clone(), self.tree.clone(), self.ids.clone());
        if service.is_shared(&dir) {
            // The delta leaves out items on other drives.
            return list::Children(service).folder(dir, wanted);
        }
        async move {
            let (root, tree) = tree.get_or_try_init(|| load(&service)).await?;
            let missing = || Error::new(ErrorKind::NotFound, "list", "no such directory").with_key(&dir);
            let id = match dir.is_root() {
                true => root.clone(),
                false => ids.lock().unwrap_or_else(|e| e.into_inner()).get(&dir).cloned().ok_or_else(missing)?,
            };
            let mut found = BTreeMap::new();
            for item in tree.get(&id).into_iter().flatten() {
                let item = &list::resolved(&service, &dir, item.clone()).await?;
                let Some(one) = list::found_name(&service, &dir, item)? else { continue };
                if one.key().is_dir() {
                    ids.lock().unwrap_or_else(|e| e.into_inner()).insert(one.key().clone(), item.id.clone());
                }
                list::put(&mut found, &item.id, one);
            }
            Ok(found.into_values().map(|(_, one)| one).collect())
        }
        .boxed()
    }
}

/// The root's id, and the items of each folder.
async fn load(service: &Service) -> Result<(String, Tree)> {
    let address = format!("{}/root/delta?$top={}", service.of_drive(), service.config.list_chunk);
    let items = list::pages(service, "delta", address, true).await.map_err(|refused| refused.fault.error("list"))?;
    assemble(items).map_err(|why| Error::new(ErrorKind::Io, "list", why).with_retry(Retry::Backoff))
}

/// An item may appear twice, and the later counts; parents need not come first.
///
/// Errors: an item is in a folder that didn't appear, or there is no root.
fn assemble(items: Vec<Item>) -> Result<(String, Tree), String> {
    let mut last: HashMap<String, Item> = HashMap::with_capacity(items.len());
    for item in items {
        match item.deleted {
            Some(_) => drop(last.remove(&item.id)),
            None => drop(last.insert(item.id.clone(), item)),
        }
    }
    let root = last.values().find(|item| item.root.is_some()).map(|item| item.id.clone());
    let root = root.ok_or("the service's listing of the drive has no root")?;
    let folders: HashMap<String, bool> =
        last.iter().map(|(id, item)| (id.clone(), item.is_folder() || item.package.is_some())).collect();
    let mut tree = Tree::new();
    for (id, item) in last {
        if id == root {
            continue;
        }
        let above = item.parent_reference.as_ref().and_then(|parent| parent.id.clone());
        let above = above.filter(|above| folders.get(above) == Some(&true));
        let above =
            above.ok_or_else(|| format!("the service's listing of the drive doesn't tell where {:?} is", item.name))?;
        tree.entry(above).or_default().push(item);
    }
    match reached(&root, &tree) == tree.values().map(Vec::len).sum::<usize>() {
        true => Ok((root, tree)),
        false => Err("the service's listing of the drive has folders that are in one another".into()),
    }
}

/// How many items there are on all ways from the root.
fn reached(root: &str, tree: &Tree) -> usize {
    let (mut count, mut folders) = (0, vec![root]);
    while let Some(folder) = folders.pop() {
        let items = tree.get(folder).map(Vec::as_slice).unwrap_or_default();
        count += items.len();
        folders.extend(items.iter().map(|item| &*item.id).filter(|id| tree.contains_key(*id)));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn items(values: Value) -> Vec<Item> {
        serde_json::from_value(values).unwrap()
    }

    #[test]
    fn a_drive_is_put_together_from_what_comes_in_any_order() {
        let at = |id: &str| json!({"id": id});
        let (root, tree) = assemble(items(json!([
            {"id": "f", "name": "old", "file": {}, "parentReference": at("r")},
            {"id": "gone", "name": "gone", "file": {}, "parentReference": at("d")},
            {"id": "r", "name": "root", "root": {}},
            {"id": "d", "name": "d", "folder": {}, "parentReference": at("r")},
            {"id": "f", "name": "new", "file": {}, "parentReference": at("d")},
            {"id": "gone", "deleted": {}},
        ])))
        .unwrap();
        assert_eq!(root, "r");
        let names = |id: &str| tree[id].iter().map(|item| &*item.name).collect::<Vec<_>>();
        assert_eq!((names("r"), names("d")), (vec!["d"], vec!["new"]));
    }

    #[test]
    fn what_has_no_place_is_an_error() {
        let orphan =
            json!([{"id": "r", "root": {}}, {"id": "f", "name": "f", "file": {}, "parentReference": {"id": "x"}}]);
        assert!(assemble(items(orphan)).is_err());
        // Two folders in one another are on no way from the root.
        let ring = json!([
            {"id": "r", "root": {}},
            {"id": "a", "name": "a", "folder": {}, "parentReference": {"id": "b"}},
            {"id": "b", "name": "b", "folder": {}, "parentReference": {"id": "a"}},
        ]);
        assert!(assemble(items(ring)).unwrap_err().contains("in one another"));
        assert!(assemble(items(json!([]))).is_err());
    }
}
