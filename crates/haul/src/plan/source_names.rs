//! Which names the source has, whatever their kind, in the directories on the way to where the walk is. A store that isn't here is asked
//! once for each directory in which the destination has more, not for each of those names.

use futures::StreamExt as _;
use haul_core::{Key, Listed};
use haul_store::{ListRequest, Store};
use std::{collections::HashSet, hash::BuildHasher as _, hash::RandomState, sync::Arc};
use tokio::sync::Mutex;

/// The names in one directory, each as a number; `None` where it can't be listed.
type DirNames = Option<HashSet<u64>>;

/// Known facts of the directories above a name, the outermost first.
#[derive(Default)]
pub struct SourceNames {
    known: Mutex<Vec<(Key, DirNames)>>,
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

    async fn held(&self, store: &Arc<dyn Store>, dir: &Key) -> DirNames {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{disk, put};

    #[tokio::test]
    async fn a_name_may_be_held_only_where_its_directory_lists_it() {
        let store = disk();
        for key in ["a/b/c", "a-b", "d"] {
            put(&store, key).await;
        }
        let (store, names) = (Arc::new(store) as Arc<dyn Store>, SourceNames::default());
        // In the order of a walk; of any kind.
        for (path, may) in
            [("a-b", true), ("a-c", false), ("a", true), ("a/b", true), ("a/b/c", true), ("a/b/d", false)]
        {
            assert_eq!(names.may_hold(&store, path.as_bytes()).await, may, "{path}");
        }
        for (path, may) in [("a/c", false), ("a/c/d", false), ("ab/c", false), ("d", true), ("a/b/c", true)] {
            assert_eq!(names.may_hold(&store, path.as_bytes()).await, may, "{path}");
        }
    }

    #[tokio::test]
    async fn a_directory_is_listed_once_for_all_names_in_it() {
        let store = disk();
        put(&store, "a/b").await;
        let (store, names) = (Arc::new(store), SourceNames::default());
        let held: Arc<dyn Store> = store.clone();
        assert!(!names.may_hold(&held, b"a/c").await);
        put(&store, "a/d").await;
        assert!(!names.may_hold(&held, b"a/d").await, "what was listed is remembered");
    }
}
