//! Directories, as the driver of listings asks for them.

use crate::{
    facts::File,
    gather::Gather,
    service::{Service, doubled},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::tree::{Folders, FoundName, WantedKeys};
use std::{
    collections::BTreeMap,
    sync::{Arc, Once},
};

/// Directories asked for ahead: they share requests.
const AHEAD: usize = 200;
/// Shortcuts that are followed at once.
const AT_ONCE: usize = 16;
/// That some documents are left out is said once.
static DOCUMENTS: Once = Once::new();

/// The directories of one listing.
pub struct Directories {
    service: Arc<Service>,
    gather: Arc<Gather>,
}

impl Directories {
    /// State of a new listing.
    pub fn new(service: Arc<Service>, recursive: bool) -> Directories {
        let gather = Gather::new(service.clone(), recursive);
        Directories { service, gather }
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        self.gather.stop();
    }
}

impl Folders for Directories {
    fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let (service, gather) = (self.service.clone(), self.gather.clone());
        async move {
            let id = service.dir(&dir).await?;
            match gather.children(&id, &dir).await {
                Ok(files) => found(&service, &dir, files).await,
                Err(error) => {
                    if error.kind() == ErrorKind::NotFound {
                        service.dirs.forget(&dir);
                    }
                    Err(error)
                }
            }
        }
        .boxed()
    }

    fn ahead(&self) -> usize {
        AHEAD
    }
}

/// Entries of a directory, by key.
async fn found(service: &Arc<Service>, dir: &Key, files: Vec<File>) -> Result<Vec<FoundName>> {
    let config = &service.config;
    let is_left_out =
        |file: &File| file.is_document() && !file.is_withheld() && file.format_of(&config.exports).is_none();
    if !config.skip_gdocs && files.iter().any(is_left_out) {
        DOCUMENTS.call_once(|| {
            tracing::warn!(
                "{}: some of Google's own documents are left out: Google makes none of export_formats of them",
                service.locator
            );
        });
    }
    let followed: Vec<_> = stream::iter(files)
        .map(|file| {
            let service = service.clone();
            async move {
                let name = file.name.clone();
                (name, service.followed(file).await)
            }
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut by_key: BTreeMap<Key, Vec<Result<File>>> = BTreeMap::new();
    for (name, file) in followed {
        let name = match &file {
            Ok(Some(file)) => file.shown_name().into_owned(),
            _ => name,
        };
        let part = service.config.encoding.decode(name.as_bytes());
        let key = Key::new([dir.as_bytes(), &part].concat());
        match file {
            Ok(None) => {}
            Ok(Some(file)) if file.is_folder() => {
                if !file.via.is_empty() && is_above(service, dir, &file.id) {
                    tracing::warn!("{key}: this shortcut leads to a folder that it is in: left out");
                    continue;
                }
                by_key.entry(key.with_suffix("/")).or_default().push(Ok(file));
            }
            Ok(Some(file)) => by_key.entry(key).or_default().push(Ok(file)),
            Err(refused) => {
                let error = refused.at("list", &key);
                by_key.entry(key).or_default().push(Err(error));
            }
        }
    }
    let entries = by_key.into_iter().map(|(key, mut files)| match (files.len(), files.pop()) {
        (1, Some(Ok(file))) => {
            if key.is_dir() {
                service.dirs.put(&key, &file.id);
            }
            let untold =
                || Error::new(ErrorKind::Unsupported, "list", "Google tells neither size nor checksum").with_key(&key);
            match file.entry(key.clone()) {
                Some(entry) => FoundName::Entry(entry),
                None => {
                    let error = untold();
                    FoundName::Failed(key, error)
                }
            }
        }
        (1, Some(Err(error))) => FoundName::Failed(key, error),
        (count, _) => {
            let error = doubled("list", &key, count);
            FoundName::Failed(key, error)
        }
    });
    Ok(entries.collect())
}

/// Whether a folder is the directory itself or above it.
fn is_above(service: &Service, dir: &Key, id: &str) -> bool {
    let bytes = dir.as_bytes();
    let ends = (0..=bytes.len()).filter(|at| *at == 0 || bytes[at - 1] == b'/');
    ends.map(|at| Key::new(&bytes[..at])).any(|above| service.dirs.get(&above).as_deref() == Some(id))
}
