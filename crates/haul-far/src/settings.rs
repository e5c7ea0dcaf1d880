//! What a far end was started with.

use haul_core::Result;
use haul_store::{Links, Store};
use std::{net::IpAddr, sync::Arc};

/// Opens a folder of this machine.
pub type Open = Arc<dyn Fn(&[u8], Links, bool) -> Result<Arc<dyn Store>> + Send + Sync>;

/// What the far end lets others do.
#[derive(Clone)]
pub struct Settings {
    /// Opens folders.
    pub open: Open,
    /// Only this folder and what is in it.
    pub root: Option<Vec<u8>>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// It may open a port for pipes over TCP.
    pub listens: bool,
    /// The address of this machine that the near end has reached: the only one to listen on; `None`, where nobody knows: all.
    pub address: Option<IpAddr>,
}
