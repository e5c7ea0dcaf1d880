//! Definition of a job: written once, when it is created, and read by every worker. It holds no secrets.

use crate::{ends::EndpointFacts, protocol::ShardId};
use haul_core::{Key, filter::FilterSpec, part::KeyRange};
use serde::{Deserialize, Serialize};

/// The format that this code writes and reads.
pub const FORMAT: u32 = 3;

/// A job as its folder keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// See [`FORMAT`].
    pub format: u32,
    /// The version of haul that made it.
    pub haul: String,
    /// Tells this job from others that were in the same folder, where it is the first part of its keys.
    pub id: String,
    /// Flags of the command line that made it, for workers to read again.
    pub flags: Vec<String>,
    /// The source, as any worker may open it.
    pub src: String,
    /// The destination, as any worker may open it.
    pub dst: String,
    /// Filter for the source.
    pub filter: FilterSpec,
    /// Extra files of the destination are deleted.
    pub sync: bool,
    /// Where the shards that the job is made with are cut.
    pub cuts: Vec<Key>,
    /// The store keeps no conditions: shards aren't claimed but belong to workers by number.
    pub fixed: bool,
    /// By what workers know both ends again.
    #[serde(flatten)]
    pub ends: EndpointFacts,
    /// Requests a second of all workers together (0: no limit).
    pub requests_a_second: f64,
    /// Bytes a second of all workers together, up and down.
    pub bytes_a_second: (Option<u64>, Option<u64>),
    /// Directories through which cuts go, and those of files that are split, are finished at the end.
    pub finish: bool,
    /// Files from this many bytes on are split into ranges, which any worker takes (0: none is).
    pub split_files_from: u64,
    /// When it was made, in seconds since 1970 by the source's clock, or later; `None` where that is unknown.
    #[serde(default)]
    pub made: Option<i64>,
}

impl Spec {
    /// The shards that the job is made with.
    pub fn shards(&self) -> Vec<(ShardId, KeyRange)> {
        let pieces = KeyRange::default().pieces(&self.cuts).into_iter();
        pieces.enumerate().map(|(at, range)| (ShardId::first(at), range)).collect()
    }
}
