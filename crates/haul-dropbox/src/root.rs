//! Where a remote is: a team's space, or a folder that was shared, is found out by requests before all others.

use crate::service::Service;
use haul_core::{Entry, Error, ErrorKind, Key, Result};
use haul_net::{Fault, Pages};
use haul_oauth::{Call, few};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Folders of a page.
const PAGE: u32 = 1000;

/// Where it is.
#[derive(Debug, Default)]
pub struct FolderAddress {
    /// The folder that is the root: empty, or `/a/b`.
    pub root: String,
    /// The namespace that paths are in; empty for the person's own.
    pub namespace: String,
    /// It shows the folders that others share, and nothing more.
    pub all_shared: bool,
}

/// A folder that is shared.
#[derive(Debug, Deserialize)]
struct Folder {
    name: String,
    shared_folder_id: String,
    /// Where it is among the person's own folders, if it is.
    path_lower: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(deserialize_with = "few")]
    entries: Vec<Folder>,
    cursor: Option<String>,
}

fn failed(refused: haul_oauth::ServiceError) -> Error {
    refused.fault.error("open")
}

/// Finds out where a remote is that is typed so.
///
/// Errors: `DirNotFound` for a folder that nobody shares; those of the service.
pub async fn find(service: &Service) -> Result<FolderAddress> {
    let config = &service.config;
    let place =
        FolderAddress { root: service.typed.clone(), namespace: config.root_namespace.clone(), all_shared: false };
    if service.of_team {
        return Ok(FolderAddress { namespace: team_root(service).await?, ..place });
    }
    if !config.shared_folders {
        return Ok(place);
    }
    let Some(rest) = service.typed.strip_prefix('/') else { return Ok(FolderAddress { all_shared: true, ..place }) };
    let (name, below) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let mut found = folders(service).await?.into_iter().filter(|folder| folder.name == name);
    let none =
        || Error::new(ErrorKind::DirNotFound, "open", format!("nobody shares a folder {name:?} with this account"));
    let folder = found.next().ok_or_else(none)?;
    if found.next().is_some() {
        let message = format!(
            "several folders {name:?} are shared with this account: mount the one that is meant at www.dropbox.com"
        );
        return Err(Error::new(ErrorKind::Invalid, "open", message));
    }
    let root = match folder.path_lower {
        Some(path) => path,
        None => mount(service, &folder).await?,
    };
    Ok(FolderAddress { root: root + below, ..place })
}

/// The space that a person's team has, in which the person's own folder is one among others.
async fn team_root(service: &Service) -> Result<String> {
    let call = service.of_person(own(service, "users/get_current_account"));
    let account: Value = service.api.json(&call).await.map_err(failed)?;
    let root = account["root_info"]["root_namespace_id"].as_str().map(str::to_owned);
    root.ok_or_else(|| Fault::broken("the service doesn't tell where the account's root is").error("open"))
}

/// Makes it one of the person's own folders; gives its path.
async fn mount(service: &Service, folder: &Folder) -> Result<String> {
    let name = "sharing/mount_folder";
    let call = service.of_person(own(service, name).json(&json!({"shared_folder_id": folder.shared_folder_id})));
    match service.api.json::<Folder>(&call).await {
        Ok(Folder { path_lower: Some(path), .. }) => Ok(path),
        // Another has done it meanwhile; or it doesn't tell, and its name is free.
        Ok(_) => Ok(format!("/{}", folder.name)),
        Err(refused) if refused.code.contains("already_mounted") => Ok(format!("/{}", folder.name)),
        Err(refused) => Err(failed(refused)),
    }
}

fn own(service: &Service, name: &'static str) -> Call {
    Call::new(name, Method::POST, format!("{}/2/{name}", service.config.api))
}

async fn folders(service: &Service) -> Result<Vec<Folder>> {
    let (mut all, mut pages) = (Vec::new(), Pages::default());
    let mut call = own(service, "sharing/list_folders").json(&json!({"limit": PAGE}));
    loop {
        let page: Page = service.api.json(&service.of_person(call)).await.map_err(failed)?;
        all.extend(page.entries.into_iter().filter(|folder| pages.is_new(&folder.shared_folder_id)));
        let Some(cursor) = page.cursor.filter(|cursor| !cursor.is_empty()) else { return Ok(all) };
        pages.next(&cursor).map_err(|fault| fault.error("open"))?;
        call = own(service, "sharing/list_folders/continue").json(&json!({"cursor": cursor}));
    }
}

/// All folders that are shared, in order; each name once.
pub async fn shared(service: &Service) -> Result<Vec<Entry>> {
    let mut found = BTreeMap::new();
    for folder in folders(service).await? {
        let name = service.config.encoding.decode(folder.name.as_bytes());
        let key = Key::new([&name[..], b"/"].concat());
        found.insert(key.clone(), Entry::dir(key));
    }
    Ok(found.into_values().collect())
}

/// The error of whatever else is asked of a remote that shows all shared folders.
pub fn only_names(op: &'static str) -> Error {
    let message = "with shared_folders, name one of the folders: remote:FOLDER (haul lsd remote: lists them)";
    Error::new(ErrorKind::Unsupported, op, message)
}
