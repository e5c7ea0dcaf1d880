//! The keys by which a store may have an entry of one name, and its entries under them.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt, stream::BoxStream};
use haul_core::{Entry, Key, Listed, Result};
use haul_store::{Body, ListRequest, Store};
use std::sync::Arc;

/// The keys by which a store knows what is called so and is no directory: of a file or the like, and of a symlink.
pub fn of_name(store: &Arc<dyn Store>, name: &[u8]) -> impl Iterator<Item = Key> {
    let link = store.caps().symlinks.then(|| Key::symlink(name));
    std::iter::once(Key::new(name)).chain(link)
}

/// Those of [`of_name`], and the directory's.
pub fn of_any_kind(store: &Arc<dyn Store>, name: &[u8]) -> impl Iterator<Item = Key> {
    of_name(store, name).chain([Key::new([name, b"/"].concat())])
}

/// True when the store has something else than `key` under its name.
pub async fn has_other_kind(store: &Arc<dyn Store>, key: &Key) -> bool {
    for other in of_any_kind(store, key.path()) {
        if other != *key && store.stat(&other).await.is_ok_and(|entry| entry.is_dir() == other.is_dir()) {
            return true;
        }
    }
    false
}

/// True when the store lists an entry like this in the directory of `key`. A name that can be asked for may be one that the store takes
/// for the same as another.
pub async fn lists_beside(store: &Arc<dyn Store>, key: &Key, is_like: impl Fn(&Entry) -> bool) -> bool {
    let mut listing = store.list(ListRequest::dir(key.parent().as_bytes()));
    while let Some(step) = listing.next().await {
        if matches!(&step, Listed::Batch(entries) if entries.iter().any(&is_like)) {
            return true;
        }
    }
    false
}

/// Target of a store's symlink; `None` for other entries.
///
/// Errors: it can't be read.
pub async fn target(store: &Arc<dyn Store>, key: &Key) -> Result<Option<Vec<u8>>> {
    let Body::Stream(pieces) = store.read(key, None, None).await?.body else { return Ok(None) };
    whole(pieces).await.map(Some)
}

/// Content of a symlink, in one piece.
///
/// Errors: it can't be read.
pub async fn whole(pieces: BoxStream<'static, Result<Bytes>>) -> Result<Vec<u8>> {
    let all = pieces.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    all.await
}
