//! Work done in a part of a job, as its record keeps it; and which errors end a worker.

use haul::Report;
use haul_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::{ops::AddAssign, sync::Arc};

/// Errors of a shard that are kept in full.
const KEPT: usize = 20;

/// Work done in a part of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkDone {
    /// Files compared.
    pub checks: u64,
    /// Files transferred, whole and verified.
    pub transfers: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Files deleted at the destination.
    pub deletes: u64,
    /// Directories deleted there.
    pub dirs_deleted: u64,
    /// Directories created.
    pub dirs_made: u64,
    /// Files left as they were.
    pub unchanged: u64,
    /// Files at the destination that could not be proved absent from the source, and so were left.
    pub protected: u64,
    /// All errors.
    pub error_count: u64,
    /// The first of them, each in one line.
    pub errors: Vec<String>,
}

impl WorkDone {
    /// Outcome of a run over a part; `line` puts an error in words.
    pub fn of(report: &Report, line: impl Fn(&Error) -> String) -> WorkDone {
        let totals = &report.totals;
        WorkDone {
            checks: totals.checks,
            transfers: totals.transfers,
            bytes: totals.bytes,
            deletes: totals.deletes,
            dirs_deleted: totals.dirs_deleted,
            dirs_made: totals.dirs_made,
            unchanged: totals.unchanged,
            protected: totals.protected,
            error_count: report.error_count,
            errors: report.errors.iter().take(KEPT).map(|error| line(error)).collect(),
        }
    }
}

impl AddAssign for WorkDone {
    fn add_assign(&mut self, other: WorkDone) {
        self.checks += other.checks;
        self.transfers += other.transfers;
        self.bytes += other.bytes;
        self.deletes += other.deletes;
        self.dirs_deleted += other.dirs_deleted;
        self.dirs_made += other.dirs_made;
        self.unchanged += other.unchanged;
        self.protected += other.protected;
        self.error_count += other.error_count;
        let room = KEPT.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
    }
}

/// True for an error after which this worker can do no more: others may.
pub(crate) fn is_fatal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unreachable | ErrorKind::Unauthenticated | ErrorKind::NoSpace | ErrorKind::Limit)
}

/// The error after which this worker can do no more, if there is one.
pub(crate) fn fatal(errors: &[Arc<Error>], stopped: Option<ErrorKind>) -> Option<Error> {
    // A limit that has not ended the run is a shard's own: what it doesn't delete because of an error in it, say.
    let ends = |kind| Some(kind) == stopped || is_fatal(kind) && kind != ErrorKind::Limit;
    // One that kept the run from beginning is of what this worker was given, and of every shard that it would try.
    let last = errors.iter().rev().find(|error| ends(error.kind()) || error.op() == "start");
    let of_kind = |kind| Error::new(kind, "work", "the run was ended");
    last.map(|error| error.to_report()).or_else(|| stopped.filter(|kind| *kind != ErrorKind::Cancelled).map(of_kind))
}
