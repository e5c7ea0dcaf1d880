//! What haul remembers from run to run so that it need not find it out again: hashes of files on disk, and what is at a destination.
//! Files in a folder that the caller names; each can be thrown away at any time, and a damaged one is as good as none.

mod audit;
mod doubts;
mod files;
pub mod hashes;
mod join;
mod kept;
mod learned;
mod paths;
mod record;
mod remote;
mod section;
mod verify;

pub(crate) use audit::{Wrong, agree, random};
pub use files::now;
pub use hashes::FileHashes;
pub(crate) use join::{Candidate, Matcher, Settles, Use};
pub(crate) use paths::Paths;
pub use remote::{RemoteIndex, Settings, Uses};
pub(crate) use verify::noted;

use crate::recipes::Recipes;
use std::{path::PathBuf, sync::Arc};

/// What a job may go by of what earlier runs found out, or it itself. Nothing, unless a caller says so.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Hashes of files on disk.
    pub hashes: Option<Arc<FileHashes>>,
    /// What is at the destination: how to use its index.
    pub index: Option<Settings>,
    /// Where it is noted in which directories a destination's source was: a folder.
    pub paths: Option<PathBuf>,
    /// A job of its kind sees all that its source has, each time, but for what its filter leaves out: only then it tells something that the
    /// newest change of all is an older one than before.
    pub whole: bool,
    /// What files hold in pieces, from when they are compared until they are transferred.
    pub recipes: Recipes,
}
