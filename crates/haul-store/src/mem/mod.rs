//! placeholder
use crate::{OpenRequest, Store, StoreKind};
use haul_core::Result;
use std::sync::Arc;
/// The kind.
pub const KIND: StoreKind = StoreKind { name: "memory", description: "", options: &[], open };
fn open(_request: OpenRequest) -> Result<Arc<dyn Store>> {
    Err(haul_core::Error::new(haul_core::ErrorKind::Unsupported, "open", "x"))
}
