//! The store of local disks, opened for a test.

use haul_store::{Links, Meters, Net, OpenRequest, Store, fs};
use std::{os::unix::ffi::OsStrExt, path::Path, sync::Arc};

/// The folder `path` as a store.
pub fn open(path: &Path, links: Links) -> Arc<dyn Store> {
    let request = OpenRequest {
        remote: String::new(),
        path: path.as_os_str().as_bytes().to_vec(),
        options: Default::default(),
        net: Net::default(),
        meters: Arc::new(Meters::default()),
        links,
        own_links: false,
        wrapped: Default::default(),
        section: None,
        shared: Default::default(),
    };
    (fs::KIND.open)(request).expect("opened")
}
