//! Stores that need no server, opened for a test.

use haul_store::{Links, OpenRequest, Store, StoreKind};
use std::{os::unix::ffi::OsStrExt, path::Path, sync::Arc};

/// The folder `path` as a store.
pub fn open(path: &Path, links: Links) -> Arc<dyn Store> {
    open_as(&haul_fs::KIND, path.as_os_str().as_bytes(), links)
}

/// The same of any kind without options.
pub fn open_as(kind: &StoreKind, path: &[u8], links: Links) -> Arc<dyn Store> {
    let request = OpenRequest { path: path.to_vec(), links, ..OpenRequest::default() };
    (kind.open)(request).expect("opened")
}
