//! Settings of a far end.

use haul_core::Result;
use haul_store::{Links, Store};
use std::{net::IpAddr, sync::Arc};

/// Opens a folder of this machine.
pub type Open = Arc<dyn Fn(&[u8], Links, bool) -> Result<Arc<dyn Store>> + Send + Sync>;

/// Permissions of a far end, and how it opens folders.
#[derive(Clone)]
pub struct Settings {
    /// Opens folders.
    pub open: Open,
    /// Only this folder and what is in it.
    pub root: Option<Vec<u8>>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// It may open a port for pipes over TCP, on this address of its machine: the one that the near end has reached, and no other.
    pub listens: Option<IpAddr>,
}

#[cfg(test)]
impl Settings {
    /// Of a far end on this machine's disk that opens no port.
    pub fn of_disk(root: Option<Vec<u8>>, read_only: bool) -> Settings {
        let open = |path: &[u8], links: Links, own_links: bool| {
            let request = haul_store::OpenRequest { path: path.to_vec(), links, own_links, ..Default::default() };
            (haul_fs::KIND.open)(request)
        };
        Settings { open: Arc::new(open), root, read_only, listens: None }
    }
}
