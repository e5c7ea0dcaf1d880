//! Listing one directory at a time, and facts of one name.

use crate::{
    change, dir_names, hidden,
    pool::{self, Fault},
    service::{Service, at},
    wire::{Attrs, Name, Request},
};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use haul_core::{Entry, Error, ErrorKind, Key, Result};
use haul_store::{
    ListRequest,
    tree::{self, Folders, FoundName, WantedKeys},
};
use std::sync::Arc;

const OP: &str = "list";

/// Names whose facts must be asked for at once.
const ASKED: usize = 64;

/// The directories of a store.
pub struct Directories {
    /// Whose.
    pub service: Arc<Service>,
    /// With metadata.
    pub meta: bool,
    /// Clean up after killed runs.
    pub sweep: bool,
}

impl Directories {
    /// Those that a request asks for.
    pub fn new(service: &Arc<Service>, request: &ListRequest) -> Directories {
        Directories { service: service.clone(), meta: request.meta, sweep: request.sweep }
    }
}

impl Folders for Directories {
    fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let (service, meta, sweep) = (self.service.clone(), self.meta, self.sweep);
        async move {
            let mut names = dir_names::of(&service, &dir).await?;
            let lost = asides(&service, &dir, &mut names, sweep).await;
            let mut found = found(&service, &dir, names, meta).await?;
            found.extend(lost);
            Ok(found)
        }
        .boxed()
    }
}

/// Files that a killed run had put aside and that nothing took the place of. Where things may be put right they get their names back, and
/// what isn't needed any more goes; else they are lost to this listing: that they aren't there would be wrong.
async fn asides(service: &Service, dir: &Key, names: &mut Vec<Name>, sweep: bool) -> Vec<FoundName> {
    let asides: Vec<(Key, Name)> = names
        .iter()
        .filter_map(|name| {
            let own = Bytes::copy_from_slice(hidden::put_aside(&name.name)?);
            let aside = Key::new([dir.as_bytes(), &name.name].concat());
            Some((aside, Name { name: own, attrs: name.attrs }))
        })
        .collect();
    let mut lost = Vec::new();
    for (aside, own) in asides {
        let key = Key::new([dir.as_bytes(), &own.name].concat());
        let is_there = names.iter().any(|name| name.name == own.name);
        if !sweep && !is_there {
            let message =
                "an interrupted run has put it aside: copy to this folder again, or clean it up (haul cleanup)";
            lost.push(FoundName::Failed(key.clone(), Error::new(ErrorKind::Changed, OP, message).with_key(&key)));
        }
        if !sweep {
            continue;
        }
        match change::put_back(service, &aside, &key).await {
            Ok(true) => names.push(own),
            Ok(false) => {}
            // It is in nobody's way.
            Err(error) if is_there => tracing::debug!(%error, "can't remove what a killed run left"),
            Err(error) => lost.push(FoundName::Failed(key, error)),
        }
    }
    lost
}

/// Entries of a directory's names.
async fn found(service: &Arc<Service>, dir: &Key, names: Vec<Name>, meta: bool) -> Result<Vec<FoundName>> {
    let (mut found, mut unclear) = (Vec::with_capacity(names.len()), Vec::new());
    for Name { name, attrs } in names {
        if hidden::is_hidden(&name) {
            continue;
        }
        let key = Key::new([dir.as_bytes(), &name].concat());
        if tree::is_odd(&name) || name.contains(&b'/') {
            let message = format!("the server listed {:?}, which can't be a name", String::from_utf8_lossy(&name));
            return Err(Error::new(ErrorKind::Invalid, OP, message).with_key(dir));
        }
        let follow = attrs.is_link() && service.follows();
        // Some servers tell no length of a symlink.
        let no_size = attrs.is_link() && service.links.keeps() && attrs.size.unwrap_or(0) == 0;
        match service.entry(&key, &attrs, meta).filter(|entry| !follow && !no_size && entry.mtime.is_some()) {
            Some(entry) => found.push(FoundName::Entry(entry)),
            None => unclear.push(key),
        }
    }
    let lookups = stream::iter(unclear).map(|key| {
        let service = service.clone();
        async move {
            match ask(&service, &key, meta).await {
                Ok(entry) => FoundName::Entry(entry),
                Err(error) if error.kind() == ErrorKind::NotFound => FoundName::Vanished(key),
                Err(error) => FoundName::Failed(key, error),
            }
        }
    });
    found.extend(lookups.buffered(ASKED).collect::<Vec<_>>().await);
    Ok(found)
}

/// The entry with this name, of any type. `plain` has no trailing `/`.
///
/// Errors: `NotFound`, and others.
pub async fn ask(service: &Service, plain: &Key, meta: bool) -> Result<Entry> {
    let path = service.path(plain)?;
    let attrs = service.facts(&path, service.follows() || plain.is_root()).await.map_err(at("stat", plain))?;
    // The target of a followed link is lost, as far as can be known.
    let damaged = attrs.is_link() && service.follows();
    entry(service, plain, &path, attrs, meta).await.map(|entry| Entry { damaged, ..entry })
}

async fn entry(service: &Service, plain: &Key, path: &[u8], mut attrs: Attrs, meta: bool) -> Result<Entry> {
    if attrs.is_link() && service.links.keeps() && attrs.size.unwrap_or(0) == 0 {
        attrs.size = Some(target(service, path).await.map_err(at("stat", plain))?.len() as u64);
    }
    service.entry(plain, &attrs, meta).ok_or_else(|| {
        let message = "the server doesn't say what kind of file this is, or how long it is";
        Error::new(ErrorKind::Invalid, "stat", message).with_key(plain)
    })
}

/// Where a symlink leads.
///
/// Errors: what the server says instead.
pub async fn target(service: &Service, path: &[u8]) -> Result<bytes::Bytes, Fault> {
    service.ask("Readlink", async |channel| pool::name(channel.ask(&Request::Readlink(path))).await).await
}

/// See [`haul_store::Store::stat`].
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    let plain = Key::new(key.path());
    let missing = || Error::new(ErrorKind::NotFound, "stat", "no such file or directory").with_key(key);
    if key.is_root() {
        return match ask(service, key, true).await {
            Ok(entry) if entry.is_dir() => Ok(entry),
            Ok(_) => Err(Error::new(
                ErrorKind::DirNotFound,
                "stat",
                format!("{}: is a file, not a directory", service.locator),
            )),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let message = format!("{}: no such directory", service.locator);
                Err(Error::new(ErrorKind::DirNotFound, "stat", message))
            }
            Err(error) => Err(error),
        };
    }
    // Nothing can be called so.
    if service.path(&plain).is_err() {
        return Err(missing());
    }
    match ask(service, &plain, true).await {
        Ok(entry) if entry.key == *key => Ok(entry),
        Ok(_) => Err(missing()),
        Err(error) => Err(error.with_key(key)),
    }
}
