//! Packs and files that indexes name and that don't exist: found by comparing the indexes with listings.

use super::{
    index::{Facts, Indexes, Location},
    keys::{plain_key, tar_key},
    merge::Merge,
};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use haul_core::{Key, Mtime, Result};
use haul_store::Store;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Questions at once.
const AT_ONCE: usize = 16;

/// Packs and files that indexes name, but that are missing or too short: deleted by someone, or lost by a disk. Files in them are damaged.
#[derive(Default)]
pub struct MissingFiles {
    /// Keys below the wrapped root, and how many bytes there should be at least.
    keys: BTreeMap<Key, u64>,
    /// The files that aren't packed were listed.
    pub knows_files: bool,
}

impl MissingFiles {
    /// True where the content of a file is missing. `full` is its key in all packs.
    pub fn holds(&self, full: &[u8], place: &Location) -> bool {
        let key = || match place {
            Location::Packed { pack, .. } => tar_key(pack),
            Location::Plain { folder } => plain_key(folder, full),
        };
        !self.is_empty() && self.keys.contains_key(&key())
    }

    /// True where nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Compares `indexes` with the listings; `files` are the separately stored ones, unless they weren't listed.
    pub fn of(indexes: &Indexes, tars: &BTreeMap<String, Tar>, files: Option<&HashMap<Key, u64>>) -> MissingFiles {
        let mut missing = MissingFiles { keys: BTreeMap::new(), knows_files: files.is_some() };
        for (pack, end) in indexes.iter().flat_map(|index| index.packs()) {
            if tars.get(pack).is_none_or(|tar| tar.size < end) {
                missing.keys.insert(tar_key(pack), end);
            }
        }
        let Some(files) = files else { return missing };
        for (full, facts) in Merge::new(indexes.clone(), b"") {
            if let Some(Facts { place: Location::Plain { folder }, size, .. }) = facts {
                let key = plain_key(&folder, &full);
                if files.get(&key).is_none_or(|there| *there < size) {
                    missing.keys.insert(key, size);
                }
            }
        }
        missing
    }

    /// The ones that are missing by a stat, too: a store may list a name in another spelling, or omit a file that can be read.
    ///
    /// Errors: the stat failed.
    pub async fn confirmed(&self, inner: &Arc<dyn Store>) -> Result<MissingFiles> {
        let lookups: Vec<_> = self.keys.iter().map(|(key, size)| lacks(inner, key, *size).boxed()).collect();
        let gone: Vec<Option<(Key, u64)>> = stream::iter(lookups).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(MissingFiles { keys: gone.into_iter().flatten().collect(), knows_files: self.knows_files })
    }

    /// Says so, a line each.
    pub fn tell(&self) {
        for key in self.keys.keys() {
            tracing::warn!("{key}: it is gone or was cut off: what it held is damaged");
        }
    }
}

/// The key, if fewer than `size` bytes are stored.
async fn lacks(inner: &Arc<dyn Store>, key: &Key, size: u64) -> Result<Option<(Key, u64)>> {
    let lacks = match inner.stat(key).await {
        Err(error) if error.is_missing() => true,
        there => there.map_err(|error| error.with_key(key))?.size < size,
    };
    Ok(lacks.then(|| (key.clone(), size)))
}

/// A pack.
#[derive(Clone, Copy)]
pub struct Tar {
    /// When it was stored, by the store's clock, where that is known.
    pub stored: Option<Mtime>,
    /// Bytes.
    pub size: u64,
}
