//! What happens during a job, as data: the terminal, JSON lines and tests are sinks of the same events.

use crate::{
    Error, Key,
    attributes::Differs,
    compare::{Difference, FileType, Reason},
    listing::Side,
    plan::{Action, Route},
};
use std::time::Duration;

/// Number of a transfer within its job.
pub type StepId = u64;

/// One thing that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// So many more files and bytes were listed on a side.
    Listed {
        /// Which side.
        side: Side,
        /// Files.
        files: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Part of a side could not be listed.
    ListFailed {
        /// Which side.
        side: Side,
        /// Why, with the key.
        error: ErrorReport,
    },
    /// A key was decided on; `size` is of the source, or of what is deleted.
    Decided {
        /// The key.
        key: Key,
        /// What will be done.
        action: Action,
        /// Why.
        why: Reason,
        /// Bytes.
        size: u64,
        /// In what the two sides differ; nothing, for what is deleted.
        differs: Difference,
        /// Nothing will be done: this is a dry run.
        dry_run: bool,
    },
    /// A directory of the source was looked at; what differs will be mended in the end.
    DirSeen {
        /// Its key; the empty one is the root.
        key: Key,
        /// In what the two sides differ.
        differs: Difference,
        /// The destination has none, and what it is compared with is another place's.
        elsewhere: bool,
    },
    /// A symlink that may lead out of what is transferred is left out (`--safe-links`).
    UnsafeLink {
        /// Its key.
        key: Key,
        /// Where it leads.
        target: String,
    },
    /// Something of the source that the job leaves out, where the job's details are told.
    LeftOut {
        /// Its key.
        key: Key,
        /// What it is.
        what: FileType,
        /// Bytes.
        size: u64,
        /// Why.
        why: LeftOut,
    },
    /// A directory that the source lacks.
    DirExtra {
        /// Its key.
        key: Key,
        /// It is deleted; else it still holds something that stays.
        deleted: bool,
        /// Nothing is done: this is a dry run.
        dry_run: bool,
    },
    /// A transfer began.
    Begun {
        /// Its number.
        step: StepId,
        /// Its key at the destination.
        key: Key,
        /// Bytes to move.
        size: u64,
        /// How.
        route: Route,
    },
    /// A transfer moved so many more bytes. Negative when an attempt is thrown away and begins again.
    Moved {
        /// Its number.
        step: StepId,
        /// Bytes.
        bytes: i64,
    },
    /// So many bytes of a transfer are at the destination since an earlier run; as [`Event::Moved`], but not this run's work.
    Resumed {
        /// Its number.
        step: StepId,
        /// Bytes.
        bytes: i64,
    },
    /// A transfer will be tried again.
    Retried {
        /// Its number.
        step: StepId,
        /// Why.
        error: ErrorReport,
        /// After this long.
        wait: Duration,
    },
    /// A transfer is at the destination, whole, checked, and visible.
    Done {
        /// Its number.
        step: StepId,
        /// Its key at the destination.
        key: Key,
        /// Bytes.
        size: u64,
        /// It replaced something.
        replaced: bool,
        /// What proved it equal, if anything did.
        proved: Option<crate::Algo>,
    },
    /// A transfer failed for good.
    Failed {
        /// Its number.
        step: StepId,
        /// Why, with the key.
        error: ErrorReport,
    },
    /// Something was deleted (at the destination, or a moved source).
    Deleted {
        /// Which side.
        side: Side,
        /// The key.
        key: Key,
        /// Bytes.
        size: u64,
    },
    /// A directory was created.
    DirMade {
        /// Its key.
        key: Key,
    },
    /// A time, attributes or other metadata were set on unchanged content.
    Touched {
        /// Its key.
        key: Key,
        /// What was set.
        differs: Differs,
    },
    /// A name became another name of a file that is at the destination.
    Linked {
        /// The new name.
        key: Key,
        /// The name that it had.
        to: Key,
    },
    /// A transfer that can't be done here, which is no error and is counted for a word at the end: a device, say.
    Skipped {
        /// Its number.
        step: StepId,
    },
    /// A file at the destination was renamed instead of sent again.
    Renamed {
        /// The old key.
        from: Key,
        /// The new key.
        to: Key,
    },
    /// An error that belongs to no transfer.
    Error(ErrorReport),
    /// Something that a person should know but that is no error.
    Notice {
        /// The key it is about.
        key: Option<Key>,
        /// In one line.
        message: String,
    },
}

/// Why something of the source is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// What it is isn't kept, and that is no error: a device, say. The reason is what would leave it alone in any case.
    Kind(Option<Reason>),
    /// It is a directory that the destination lacks, and nothing new is to come (`--existing`).
    New,
    /// A directory of its name is at the destination, holds something, and doesn't make way: an error, told besides.
    InTheWay,
    /// A limit of size.
    Limit,
}

/// An error in a shape that can be kept and sent to several sinks.
pub type ErrorReport = std::sync::Arc<Error>;

/// Receives every event once, from any thread. Must not block.
pub trait Sink: Send + Sync {
    /// Takes one event.
    fn emit(&self, event: &Event);
}

/// A sink that ignores everything.
pub struct NoSink;

impl Sink for NoSink {
    fn emit(&self, _event: &Event) {}
}
