//! One page of a listing: one request to a store that lists in pages, whatever else of the listing is wanted.

use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Listed, Result};
use haul_store::{ListRequest, Store};
use std::sync::Arc;

/// Answer to one request.
pub struct Page {
    /// Entries in key order.
    pub entries: Vec<Entry>,
    /// Nothing comes after them: proved.
    pub ended: bool,
}

/// The first page of the listing `request`; its `limit` should be [`haul_store::Caps::page`]. A page that hasn't ended has
/// at least one entry.
///
/// Errors: of the listing; entries before the error are of no use and dropped.
pub async fn page(store: &Arc<dyn Store>, request: ListRequest) -> Result<Page> {
    let mut steps = store.list(request);
    let mut entries = Vec::new();
    while let Some(step) = steps.next().await {
        match step {
            Listed::Batch(batch) if entries.is_empty() => entries = batch,
            Listed::Batch(batch) => entries.extend(batch),
            Listed::Failed { error, .. } => return Err(error),
            Listed::Vanished(_) => {}
            Listed::End => return Ok(Page { entries, ended: true }),
        }
    }
    if entries.is_empty() {
        return Err(Error::new(ErrorKind::Io, "list", "the listing broke off"));
    }
    if entries.windows(2).any(|pair| pair[0].key >= pair[1].key) {
        return Err(Error::new(ErrorKind::Io, "list", "the listing is out of order: it can't be trusted to be whole"));
    }
    Ok(Page { entries, ended: false })
}
