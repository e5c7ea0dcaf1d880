//! Events of a job, as serialisable data: the terminal, JSON lines and tests are sinks of the same events.
//!
//! An event carries every fact that its readers show, so none of them looks at a file itself.

use crate::{
    Entry, Error, Key, Mtime, Posix,
    attributes::Differs,
    compare::{Difference, FileType, Reason},
    listing::Side,
    plan::{Action, Route, Step},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Number of a transfer within its job.
pub type StepId = u64;

/// Listed facts about the entry of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Its modification time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Mtime>,
    /// The facts of its inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posix: Option<Box<Posix>>,
}

impl Facts {
    /// The facts of an entry.
    pub fn of(entry: &Entry) -> Facts {
        Facts { mtime: entry.mtime, posix: entry.posix.clone() }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// More files and bytes were listed on a side.
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
    /// The decision about a key. `size` is the source's, or that of the file to delete.
    Decided {
        /// The key.
        key: Key,
        /// The action to take.
        action: Action,
        /// Why.
        why: Reason,
        /// Bytes.
        size: u64,
        /// Facts in which the two sides differ; empty for deletions.
        differs: Difference,
        /// The source's facts; empty for a file that only the destination has.
        facts: Facts,
        /// Nothing will be done: this is a dry run.
        dry_run: bool,
    },
    /// A directory of the source was compared; differing attributes are set at the end of the job.
    DirSeen {
        /// Its key; empty for the root.
        key: Key,
        /// Facts in which the two sides differ.
        differs: Difference,
        /// The destination has none: it was compared with an alternate destination's directory.
        elsewhere: bool,
        /// Of the source.
        facts: Facts,
    },
    /// A symlink that may lead out of the transferred tree is left out (`--safe-links`).
    UnsafeLink {
        /// Its key.
        key: Key,
        /// Where it points.
        target: String,
    },
    /// The job leaves out an entry of the source. Sent only to sinks that asked for details.
    LeftOut {
        /// Its key.
        key: Key,
        /// Its type.
        what: FileType,
        /// Bytes.
        size: u64,
        /// Why.
        why: LeftOut,
        /// Of the source.
        facts: Facts,
    },
    /// A directory that is missing from the source.
    DirExtra {
        /// Its key.
        key: Key,
        /// It is deleted; otherwise it still contains entries that stay.
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
    /// A transfer moved this many more bytes. Negative when an attempt is discarded and starts again.
    Moved {
        /// Its number.
        step: StepId,
        /// Bytes.
        bytes: i64,
    },
    /// This many bytes of a transfer are at the destination from an earlier run; as [`Event::Moved`], but not this run's work.
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
    /// A transfer is at the destination: whole, verified and visible.
    Done {
        /// Its number.
        step: StepId,
        /// Its key at the destination.
        key: Key,
        /// Bytes.
        size: u64,
        /// It replaced something.
        replaced: bool,
        /// The hash that proved it equal, if one did.
        proved: Option<crate::Algo>,
    },
    /// A transfer that was a range of a file is at the destination. The file isn't yet: other processes transfer other ranges.
    RangeDone {
        /// Its number.
        step: StepId,
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
        /// Attributes that were set.
        differs: Differs,
    },
    /// A name was hard-linked to a file at the destination.
    Linked {
        /// The new name.
        key: Key,
        /// The name that the file had.
        to: Key,
    },
    /// A transfer that can't be done here, a device for example. It isn't an error; a line at the end says how many there were.
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
    /// A message for the user that isn't an error.
    Notice {
        /// The key it is about.
        key: Option<Key>,
        /// One line.
        message: String,
    },
}

impl Event {
    /// The event for a decision about a file; `None` for a step without one.
    pub fn decided(step: &Step, dry_run: bool) -> Option<Event> {
        let (key, entry) = (step.key()?.clone(), step.src.as_ref().or(step.dst.as_ref())?);
        let facts = step.src.as_ref().map(Facts::of).unwrap_or_default();
        let Step { action, why, differs, .. } = *step;
        Some(Event::Decided { key, action, why, size: entry.size, differs, facts, dry_run })
    }
}

/// Why an entry of the source is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// Its kind isn't copied, which isn't an error: a device, for example. With a reason, that would leave it alone anyway.
    Kind(Option<Reason>),
    /// It would be a new directory, and nothing new is created (`--existing`).
    New,
    /// The destination has a non-empty directory of its name, which stays. An error, which has an event of its own.
    InTheWay,
    /// A size limit.
    Limit,
}

/// An error that can be kept and sent to several sinks.
pub type ErrorReport = std::sync::Arc<Error>;

/// Receives every event once, from any thread. Must not block on anything slower than a buffered write.
pub trait Sink: Send + Sync {
    /// Takes one event.
    fn emit(&self, event: &Event);
}

/// A sink that ignores everything.
pub struct NoSink;

impl Sink for NoSink {
    fn emit(&self, _event: &Event) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Algo,
        samples::{difference, error, facts, key, reason, side},
    };
    use proptest::{option, prelude::*, sample::select};

    /// One of each kind of event.
    fn all() -> impl Strategy<Value = Vec<Event>> {
        let actions = select(vec![Action::Copy, Action::MakeDir, Action::Delete, Action::Refuse]);
        let routes = select(vec![Route::Server, Route::Parts { size: 8 << 20 }, Route::Stream]);
        let left_out = prop_oneof![
            option::of(reason()).prop_map(LeftOut::Kind),
            select(vec![LeftOut::New, LeftOut::InTheWay, LeftOut::Limit])
        ];
        let plain = (side(), key(), key(), error(), any::<[u64; 3]>(), any::<i64>(), any::<bool>(), ".{0,12}");
        let decided = (actions, reason(), difference(), facts(), routes, left_out, option::of(key()));
        (plain, decided).prop_map(|(plain, decided)| {
            let (side, key, other, error, [step, files, size], moved, flag, text) = plain;
            let (action, why, differs, facts, route, left_out, about) = decided;
            let wait = Duration::from_nanos(size);
            vec![
                Event::Listed { side, files, bytes: size },
                Event::ListFailed { side, error: error.clone() },
                Event::Decided { key: key.clone(), action, why, size, differs, facts: facts.clone(), dry_run: flag },
                Event::DirSeen { key: key.clone(), differs, elsewhere: flag, facts: facts.clone() },
                Event::UnsafeLink { key: key.clone(), target: text.clone() },
                Event::LeftOut { key: key.clone(), what: differs.what, size, why: left_out, facts },
                Event::DirExtra { key: key.clone(), deleted: flag, dry_run: !flag },
                Event::Begun { step, key: key.clone(), size, route },
                Event::Moved { step, bytes: moved },
                Event::Resumed { step, bytes: moved },
                Event::Retried { step, error: error.clone(), wait },
                Event::Done { step, key: key.clone(), size, replaced: flag, proved: flag.then_some(Algo::Crc64Nvme) },
                Event::Failed { step, error: error.clone() },
                Event::Deleted { side, key: key.clone(), size },
                Event::DirMade { key: key.clone() },
                Event::Touched { key: key.clone(), differs: Differs { owner: flag, ..Differs::default() } },
                Event::Linked { key: key.clone(), to: other.clone() },
                Event::Skipped { step },
                Event::Renamed { from: key, to: other },
                Event::Error(error),
                Event::Notice { key: about, message: text },
                Event::RangeDone { step },
            ]
        })
    }

    /// Its place in [`all`]: without a place a new kind of event doesn't compile.
    fn place(event: &Event) -> usize {
        match event {
            Event::Listed { .. } => 0,
            Event::ListFailed { .. } => 1,
            Event::Decided { .. } => 2,
            Event::DirSeen { .. } => 3,
            Event::UnsafeLink { .. } => 4,
            Event::LeftOut { .. } => 5,
            Event::DirExtra { .. } => 6,
            Event::Begun { .. } => 7,
            Event::Moved { .. } => 8,
            Event::Resumed { .. } => 9,
            Event::Retried { .. } => 10,
            Event::Done { .. } => 11,
            Event::Failed { .. } => 12,
            Event::Deleted { .. } => 13,
            Event::DirMade { .. } => 14,
            Event::Touched { .. } => 15,
            Event::Linked { .. } => 16,
            Event::Skipped { .. } => 17,
            Event::Renamed { .. } => 18,
            Event::Error(_) => 19,
            Event::Notice { .. } => 20,
            Event::RangeDone { .. } => 21,
        }
    }

    proptest! {
        #[test]
        fn every_event_comes_back_from_its_text(all in all()) {
            for (at, event) in all.iter().enumerate() {
                prop_assert_eq!(place(event), at);
                let text = serde_json::to_string(event).unwrap();
                prop_assert!(!text.contains('\n'), "one line: {}", text);
                let back: Event = serde_json::from_str(&text).unwrap();
                // Debug shows all but how an error may be retried, which the text has.
                prop_assert_eq!(format!("{back:?}"), format!("{event:?}"));
                prop_assert_eq!(serde_json::to_string(&back).unwrap(), text);
            }
        }
    }
}
