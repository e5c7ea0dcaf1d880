//! Unused content of a cache or remote. Only finds it: removal is a person's decision.

use crate::{
    repo::{Repo, SelectedPath},
    wanted::content_of,
};
use haul_cas::{
    address::{Address, Layout},
    remote::each,
};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{ListRequest, Store, disk};
use std::{collections::HashSet, sync::Arc};

/// Everything that is used.
#[derive(Debug, Default)]
pub struct UsedContent(HashSet<Address>);

impl UsedContent {
    /// Content that tracked paths use.
    ///
    /// Errors: `NotFound` for a directory whose list of files isn't in the cache: its files would be taken for unused.
    pub async fn of(repo: &Repo, chosen: &[SelectedPath]) -> Result<UsedContent> {
        let wanted = content_of(repo, chosen).await?;
        if let Some(unknown) = wanted.dirs.iter().find(|dir| dir.children.is_none()) {
            let message = "its file list isn't cached, so its files can't be told from unused ones; run haul dvc fetch";
            let key = Key::new(wanted.name(&unknown.address));
            return Err(Error::new(ErrorKind::NotFound, "gc", message).with_key(&key));
        }
        Ok(UsedContent(wanted.all().iter().copied().collect()))
    }
}

fn sorted(mut all: Vec<(Address, u64)>, used: &UsedContent) -> Vec<(Address, u64)> {
    all.retain(|(address, _)| !used.0.contains(address));
    // As dvc removes: lists of directories before files.
    all.sort_unstable_by_key(|(address, _)| (address.layout != Layout::V3, !address.dir, address.md5));
    all
}

/// The cache's unused content, with sizes in bytes.
///
/// Errors: it can't be read.
pub async fn unused(repo: &Repo, used: &UsedContent) -> Result<Vec<(Address, u64)>> {
    let cache = repo.cache.clone();
    let all = disk::run(move || cache.all()).await?;
    Ok(sorted(all, used))
}

/// A remote's unused content, with sizes in bytes.
///
/// Errors: it can't be listed to its end.
pub async fn unused_at(store: &Arc<dyn Store>, used: &UsedContent) -> Result<Vec<(Address, u64)>> {
    let mut all = Vec::new();
    each(store, ListRequest::all(), |entry| {
        all.extend(Address::of_key(entry.key.as_bytes()).map(|address| (address, entry.size)));
    })
    .await?;
    Ok(sorted(all, used))
}
