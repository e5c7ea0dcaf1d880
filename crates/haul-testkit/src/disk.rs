//! Stores that need no server, opened for a test.

use haul_store::{Links, Meters, Net, OpenRequest, Store, StoreKind};
use std::{os::unix::ffi::OsStrExt, path::Path, sync::Arc};

/// The folder `path` as a store.
pub fn open(path: &Path, links: Links) -> Arc<dyn Store> {
    open_as(&haul_fs::KIND, path.as_os_str().as_bytes(), links)
}

/// The same of any kind without options.
pub fn open_as(kind: &StoreKind, path: &[u8], links: Links) -> Arc<dyn Store> {
    let request = OpenRequest {
        remote: String::new(),
        path: path.to_vec(),
        options: Default::default(),
        net: Net::default(),
        meters: Arc::new(Meters::default()),
        links,
        own_links: false,
        wrapped: Default::default(),
        section: None,
        shared: Default::default(),
    };
    (kind.open)(request).expect("opened")
}
