//! Which names the source has, whatever their kind, in the directories on the way to where the walk is. A store that isn't here is asked
//! once for each directory in which the destination has more, not for each of those names.

use futures::StreamExt as _;
use haul_core::{Key, Listed};
use haul_store::{ListRequest, Store};
use std::{collections::HashSet, hash::BuildHasher as _, hash::RandomState, sync::Arc};
use tokio::sync::Mutex;

/// The names in one directory, each as a number; `None` where it can't be listed.
type Held = Option<HashSet<u64>>;

/// Known facts of the directories above a name, the outermost first.
#[derive(Default)]
pub struct SourceNames {
    known: Mutex<Vec<(Key, Held)>>,
    numbers: RandomState,
}

impl SourceNames {
    /// False when `store` has nothing of this path, of whatever kind; true where that isn't known.
    pub async fn may_hold(&self, store: &Arc<dyn Store>, path: &[u8]) -> bool {
        let mut known = self.known.lock().await;
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let mut begin = 0;
        for (depth, end) in ends.chain([path.len()]).enumerate() {
            let dir = Key::new(&path[..begin]);
            if known.get(depth).is_none_or(|(key, _)| *key != dir) {
                known.truncate(depth);
                let held = self.held(store, &dir).await;
                known.push((dir, held));
            }
            match &known[depth].1 {
                Some(held) if !held.contains(&self.number(&path[..end])) => return false,
                Some(_) => begin = end + 1,
                None => return true,
            }
        }
        true
    }

    fn number(&self, path: &[u8]) -> u64 {
        self.numbers.hash_one(path)
    }

    async fn held(&self, store: &Arc<dyn Store>, dir: &Key) -> Held {
        let mut listing = store.list(ListRequest { posix: true, ..ListRequest::dir(dir.as_bytes()) });
        let mut held = HashSet::new();
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => held.extend(entries.iter().map(|entry| self.number(entry.key.path()))),
                Listed::Failed { error, .. } if error.is_missing() => {}
                Listed::Failed { .. } => return None,
                Listed::Vanished(_) => {}
                Listed::End => return Some(held),
            }
        }
        None
    }
}
