//! What haul remembers from run to run so that it need not find it out again: hashes of files on disk. Files in a folder that the
//! caller names; each can be thrown away at any time, and a damaged one is as good as none.

mod files;
pub mod hashes;

pub use files::now;
pub use hashes::{FileHashes, HashKind};

use std::sync::Arc;

/// What a job may go by of what earlier runs found out. Nothing, unless a caller says so.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Hashes of files on disk.
    pub hashes: Option<Arc<FileHashes>>,
}
