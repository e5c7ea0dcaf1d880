//! Names of a list that a source on another machine doesn't have. One listing of all that is named tells: a question for each name would
//! take a round trip each.

use super::{
    exit::Refusal,
    filters::{self, Scope},
    options::Options,
};
use futures::StreamExt as _;
use haul::ListOptions;
use haul_core::{Key, Listed, Lost, filter::first_match::Only};
use haul_store::Store;
use std::{collections::BTreeSet, sync::Arc};

/// Those of `names` (paths below the root of `store`, which tells of symlinks) that aren't there. Of what can't be listed nothing is said.
pub async fn missing(store: &Arc<dyn Store>, names: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut unseen: BTreeSet<Vec<u8>> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
    let only = Some(Only::new(names.to_vec(), false));
    // No rules: what they leave out is there.
    let filter = filters::filter(&Options::default(), Scope { bare_root: true, only, ..Scope::default() })?;
    let request = ListOptions { dirs: true, posix: true, for_join: true, ..ListOptions::default() };
    let mut listing = haul::list(store, &Arc::new(filter), request);
    let mut dark: Vec<Lost> = Vec::new();
    let mut is_whole = false;
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) => entries.iter().for_each(|entry| {
                unseen.remove(entry.key.path());
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
    Ok(unseen.into_iter().filter(|name| !is_dark(name)).collect())
}
