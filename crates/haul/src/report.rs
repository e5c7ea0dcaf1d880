//! Results of a job.

use haul_core::{Algo, Error, ErrorKind, attributes::UnpreservedCounts};
use std::{collections::BTreeMap, sync::Arc};

/// Counts of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files compared.
    pub checks: u64,
    /// Files transferred, whole and verified.
    pub transfers: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Files deleted.
    pub deletes: u64,
    /// Of those, files of the source, which a move had transferred.
    pub sources_deleted: u64,
    /// Directories deleted.
    pub dirs_deleted: u64,
    /// Files renamed instead of sent.
    pub renames: u64,
    /// Files whose time or metadata was set.
    pub touched: u64,
    /// Names that became further names of files at the destination.
    pub links: u64,
    /// Files of which an attribute could not be kept, by attribute and reason.
    pub unpreserved: UnpreservedCounts,
    /// Directories created.
    pub dirs_made: u64,
    /// Files left as they were.
    pub unchanged: u64,
    /// Transfers copied inside the provider or kernel.
    pub server_copies: u64,
    /// Transfers proved equal by a hash, by algorithm.
    pub proved: BTreeMap<Algo, u64>,
    /// Transfers resumed from an earlier run or attempt whose source hash was not compared.
    pub unproved: u64,
    /// Files and directories beyond `--max-delete`, which were left.
    pub not_deleted: u64,
    /// Files at the destination that could not be proved absent from the source, and so were left.
    pub protected: u64,
}

impl Totals {
    fn add(&mut self, other: Totals) {
        self.checks += other.checks;
        self.transfers += other.transfers;
        self.bytes += other.bytes;
        self.deletes += other.deletes;
        self.sources_deleted += other.sources_deleted;
        self.dirs_deleted += other.dirs_deleted;
        self.renames += other.renames;
        self.touched += other.touched;
        self.dirs_made += other.dirs_made;
        self.unchanged += other.unchanged;
        self.server_copies += other.server_copies;
        self.protected += other.protected;
        self.links += other.links;
        self.not_deleted += other.not_deleted;
        self.unproved += other.unproved;
        for (lost, count) in other.unpreserved {
            *self.unpreserved.entry(lost).or_default() += count;
        }
        for (algo, count) in other.proved {
            *self.proved.entry(algo).or_default() += count;
        }
    }
}

/// Result of a job.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Counts.
    pub totals: Totals,
    /// Every error, up to [`Report::KEPT`].
    pub errors: Vec<Arc<Error>>,
    /// All errors, kept or not.
    pub error_count: u64,
    /// The kind of the error that stopped the job, if one did (`Cancelled`, `Limit`, `NoSpace`, …).
    pub stopped: Option<ErrorKind>,
    /// `--max-duration` was reached.
    pub time_limit: bool,
    /// `--max-transfer` was reached.
    pub transfer_limit: bool,
    /// Large files that are half sent, with a journal to resume them.
    pub half_sent: usize,
    /// Bytes of those that are at the destination.
    pub half_sent_bytes: u64,
}

impl Report {
    /// How many errors are kept in full.
    pub const KEPT: usize = 1000;

    /// Counts an error and keeps it while there is room.
    pub fn error(&mut self, error: Arc<Error>) {
        self.error_count += 1;
        if self.errors.len() < Self::KEPT {
            self.errors.push(error);
        }
    }

    /// Takes in what came of another job that ran after this one.
    pub fn add(&mut self, other: Report) {
        self.totals.add(other.totals);
        let room = Self::KEPT.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
        self.error_count += other.error_count;
        self.stopped = other.stopped.or(self.stopped);
        self.time_limit |= other.time_limit;
        self.transfer_limit |= other.transfer_limit;
        self.half_sent += other.half_sent;
        self.half_sent_bytes += other.half_sent_bytes;
    }

    /// True when everything that was asked for is done.
    pub fn is_ok(&self) -> bool {
        self.error_count == 0 && self.stopped.is_none() && !self.time_limit && !self.transfer_limit
    }
}
