//! Is all of a version at the remote? By name and size, or, when asked to, by reading all of it.

use crate::{
    pull::Restored,
    tree::{Node, What},
};
use futures::{StreamExt as _, stream};
use haul_core::{Algo, Entry, Error, ErrorKind, Result};
use haul_dvc::{
    address::{Address, Layout},
    remote::entries,
};
use haul_store::Store;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Content that is read at once.
const AT_ONCE: usize = 16;

/// What is wrong with content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It isn't there.
    Missing,
    /// It has so many bytes.
    Size(u64),
    /// It has other bytes.
    Content,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Checked {
    /// Content that is right.
    pub right: u64,
    /// What is wrong, with the address, the path that a person knows it by (the first of several), and how many share it.
    pub wrong: Vec<(Address, String, u64, Wrong)>,
}

/// Content that was looked at already: many versions share most of theirs.
#[derive(Debug, Default)]
pub struct Known(HashMap<Address, Option<Wrong>>);

/// Looks for all content of a version, and its lists; `read` has all of it read and hashed. What `known` has isn't looked at
/// again.
///
/// Errors: the remote can't be asked.
pub async fn check(store: &Arc<dyn Store>, version: &Restored, read: bool, known: &mut Known) -> Result<Checked> {
    let dir = version.record.dir_address();
    let content = version.tree.content();
    let mut sizes: HashMap<Address, Option<u64>> = content.iter().map(|(a, size, _)| (*a, Some(*size))).collect();
    // How large DVC's list is stands nowhere; the folder's own was read to get here.
    sizes.insert(dir, None);
    let new: Vec<Address> = sizes.keys().copied().filter(|a| !known.0.contains_key(a)).collect();
    let there: HashMap<Address, Entry> = entries(store, new.clone())
        .await?
        .into_iter()
        .filter_map(|entry| Some((Address::of_key(entry.key.as_bytes())?, entry)))
        .collect();
    let mut to_read = Vec::new();
    for address in new {
        let wrong = match (there.get(&address), sizes[&address]) {
            (None, _) => Some(Wrong::Missing),
            (Some(entry), Some(size)) if entry.size != size => Some(Wrong::Size(entry.size)),
            (Some(entry), _) => {
                to_read.extend(read.then(|| (address, entry.clone())));
                None
            }
        };
        known.0.insert(address, wrong);
    }
    let mut reading = stream::iter(to_read)
        .map(|(address, entry)| async move { (address, is_right(store, &address, &entry).await) })
        .buffer_unordered(AT_ONCE);
    while let Some((address, right)) = reading.next().await {
        known.0.insert(address, (!right?).then_some(Wrong::Content));
    }
    let mut checked = Checked::default();
    let mut users: HashMap<Address, u64> = HashMap::new();
    for node in version.tree.nodes() {
        if let What::File(_, md5) = &node.what {
            *users.entry(Address::file(Layout::V3, *md5)).or_default() += 1;
        }
    }
    let all = content.iter().map(|(address, _, node)| (*address, node.shown()));
    for (address, path) in all.chain([(dir, "(list for DVC)".to_string())]) {
        match known.0.get(&address).cloned().flatten() {
            None => checked.right += 1,
            Some(wrong) => {
                let users = users.get(&address).copied().unwrap_or(1);
                checked.wrong.push((address, path, users, wrong));
            }
        }
    }
    Ok(checked)
}

async fn is_right(store: &Arc<dyn Store>, address: &Address, entry: &Entry) -> Result<bool> {
    match haul::hash::read_and_hash(store, entry, &[Algo::Md5]).await {
        Ok(hashes) => Ok(hashes.get(Algo::Md5) == Some(&address.md5[..])),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::new(error.kind(), "read", error.message()).with_key(&entry.key)),
    }
}

/// All content that versions refer to, their lists with it.
pub fn referred(version: &Restored) -> HashSet<Address> {
    let file = |node: &Node| match &node.what {
        What::File(_, md5) => Some(Address::file(Layout::V3, *md5)),
        _ => None,
    };
    let files = version.tree.nodes().iter().filter_map(file);
    files.chain([version.record.tree_address(), version.record.dir_address()]).collect()
}
