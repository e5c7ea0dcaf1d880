//! Names of a list that are missing from a source on another machine. One listing of all named paths shows it: a request for each name
//! would take a round trip each.

use super::{
    exit::Refusal,
    filters::{self, Scope},
    options::Options,
};
use futures::StreamExt as _;
use haul::ListOptions;
use haul_core::{Key, Listed, MissedRange, filter::first_match::SelectedNames};
use haul_store::{ListRequest, Store};
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

/// A store without directories lists everything for a few names: up to this many are looked up one by one.
const FEW: usize = 1000;
/// Such questions at once.
const AT_ONCE: usize = 32;

/// Names below which nothing is listed.
#[derive(Default)]
pub struct Unlisted {
    /// Names that are missing.
    pub missing: HashSet<Vec<u8>>,
    /// Names that are symlinks, which aren't followed.
    pub links: HashSet<Vec<u8>>,
    /// Names that are there although the listing leaves them out.
    pub left_out: HashSet<Vec<u8>>,
}

/// Those of `names` (paths below the root of `store`, whose listing shows symlinks) below which nothing is listed. Leaves out names that
/// can't be listed.
pub async fn unlisted(store: &Arc<dyn Store>, names: &[Vec<u8>]) -> Result<Unlisted, Refusal> {
    if !store.caps().dirs && names.len() <= FEW {
        let (_, missing) = ask(store, names.to_vec()).await;
        return Ok(Unlisted { missing, ..Unlisted::default() });
    }
    let mut links = HashSet::new();
    let mut unseen: BTreeSet<Vec<u8>> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
    let only = Some(SelectedNames::new(names.to_vec(), false));
    // No rules: paths that they leave out exist.
    let filter = filters::filter(&Options::default(), Scope { bare_root: true, only, ..Scope::default() })?;
    let request = ListOptions { dirs: true, posix: true, for_join: true, ..ListOptions::default() };
    let mut listing = haul::list(store, &Arc::new(filter), request);
    let mut dark: Vec<MissedRange> = Vec::new();
    let mut is_whole = false;
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) => entries.iter().for_each(|entry| {
                if unseen.remove(entry.key.path()) && entry.is_symlink() {
                    links.insert(entry.key.path().to_vec());
                }
            }),
            Listed::Failed { lost, .. } => dark.push(lost),
            Listed::Vanished(_) => {}
            Listed::End => is_whole = true,
        }
    }
    let is_dark = |name: &Vec<u8>| {
        let keys = [Key::new(name.clone()), Key::new([name, &b"/"[..]].concat()), Key::symlink(name.clone())];
        !is_whole || dark.iter().any(|lost| keys.iter().any(|key| lost.holds(key)))
    };
    let unseen: Vec<Vec<u8>> = unseen.into_iter().filter(|name| !is_dark(name)).collect();
    if !store.caps().listing_may_omit {
        return Ok(Unlisted { missing: unseen.into_iter().collect(), links, ..Unlisted::default() });
    }
    let (left_out, missing) = ask(store, unseen).await;
    Ok(Unlisted { missing, links, left_out })
}

/// Asks for each name: those that are there, and those that aren't.
async fn ask(store: &Arc<dyn Store>, names: Vec<Vec<u8>>) -> (HashSet<Vec<u8>>, HashSet<Vec<u8>>) {
    let lookups = futures::stream::iter(names).map(async |name| (is_there(store, &name).await, name));
    let mut lookups = std::pin::pin!(lookups.buffered(AT_ONCE));
    let (mut there, mut missing) = (HashSet::new(), HashSet::new());
    while let Some((is_there, name)) = lookups.next().await {
        if is_there { &mut there } else { &mut missing }.insert(name);
    }
    (there, missing)
}

/// True for a file, and for a prefix of any; also where the answer is another error than that there is none.
async fn is_there(store: &Arc<dyn Store>, name: &[u8]) -> bool {
    if name.is_empty() || !store.stat(&Key::new(name)).await.is_err_and(|error| error.is_missing()) {
        return true;
    }
    let prefix = [name, &b"/"[..]].concat();
    let mut listing = store.list(ListRequest { prefix, limit: Some(1), ..ListRequest::all() });
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) if entries.is_empty() => {}
            Listed::Failed { error, .. } if error.is_missing() => {}
            Listed::Batch(_) | Listed::Failed { .. } => return true,
            Listed::Vanished(_) | Listed::End => {}
        }
    }
    false
}
