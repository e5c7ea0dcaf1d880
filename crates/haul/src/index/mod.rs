//! Knowledge that haul keeps from run to run to save work: hashes of files on disk, and the content of a destination.
//! Files in a folder that the caller names; each can be deleted at any time, and a damaged one counts as missing.

mod audit;
mod doubts;
mod findings;
pub mod hashes;
mod index_file;
mod join;
mod paths;
mod record;
mod remote;
mod section;
mod state_folder;
mod verify;

pub(crate) use audit::{IndexError, agree, random};
pub use hashes::FileHashes;
pub(crate) use join::{Candidate, IndexUse, Matcher, SettlesPair};
pub(crate) use paths::Paths;
pub use remote::{IndexScope, RemoteIndex, Settings};
pub use state_folder::now;
pub(crate) use verify::noted;

use crate::recipes::Recipes;
use std::{path::PathBuf, sync::Arc};

/// Knowledge from earlier runs, or from this one, that a job may rely on. None, unless a caller says so.
#[derive(Clone, Debug, Default)]
pub struct EarlierKnowledge {
    /// Hashes of files on disk.
    pub hashes: Option<Arc<FileHashes>>,
    /// How to use the index of the destination.
    pub index: Option<Settings>,
    /// Where it is noted in which directories a destination's source was: a folder.
    pub paths: Option<PathBuf>,
    /// A job of its kind sees all of its source, each time, except for filtered files: only then is it a sign of a restored file system
    /// that the newest change of all is an older one than before.
    pub whole: bool,
    /// Chunks of files, from their comparison until their transfer.
    pub recipes: Recipes,
}
