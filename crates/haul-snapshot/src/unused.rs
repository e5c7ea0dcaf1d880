//! Content that no version refers to. Only finds: what is found is a person's to remove, and a push that is on its way may be
//! about to refer to it.

use crate::{check::referred, pull::Restored, versions};
use haul_core::{Error, Result};
use haul_dvc::{address::Address, remote::each};
use haul_store::{ListRequest, Store};
use std::{collections::HashSet, sync::Arc};

/// Where content is.
const CONTENT: &str = "files/md5/";

/// What nothing refers to, with sizes in bytes.
///
/// Errors: the remote can't be listed to its end, or a version can't be read: what that one refers to isn't known.
pub async fn unused(store: &Arc<dyn Store>) -> Result<Vec<(Address, u64)>> {
    let mut used: HashSet<Address> = HashSet::new();
    // Content first: a version that is made meanwhile refers to what was there before its record.
    let request = ListRequest { prefix: CONTENT.into(), ..ListRequest::all() };
    let mut content: Vec<(Address, u64)> = Vec::new();
    each(store, request, |entry| {
        content.extend(Address::of_key(entry.key.as_bytes()).map(|address| (address, entry.size)));
    })
    .await?;
    for (name, versions) in versions::versions(store, None).await? {
        for version in versions {
            let record = versions::record(store, &name, &version).await?;
            let tree = versions::tree(store, &record)
                .await
                .map_err(|error| Error::new(error.kind(), "gc", format!("{name}@{version}: {}", error.message())))?;
            used.extend(referred(&Restored { version, record, tree: Arc::new(tree) }));
        }
    }
    content.retain(|(address, _)| !used.contains(address));
    content.sort_unstable();
    Ok(content)
}
