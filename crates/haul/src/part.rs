//! Running a job over a part of its keys, for callers that spread one job over many processes: a run that can be paused at a key,
//! reports its position, and asks before it deletes.

use crate::{Cancel, Report};
use futures::future::BoxFuture;
use haul_core::{Entry, Error, Key, Mtime};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard};

/// A run is paused when it has left this many large files to its caller, who can let nobody begin them before it ends.
const MOST_LARGE: usize = 256;

/// How far a run came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunPosition {
    /// Unknown: it was stopped, or a listing broke off. All of it must be run again.
    #[default]
    Unknown,
    /// Everything up to and with this key is settled, nothing after it was begun.
    Key(Key),
    /// The end of its part.
    End,
}

/// Result of a run over a part.
#[derive(Debug)]
pub struct PartReport {
    /// Work done, and every error.
    pub report: Report,
    /// How far it came.
    pub reached: RunPosition,
    /// Large files that it left to its caller; see [`RunControl::large_from`].
    pub large: Vec<LargeFile>,
}

/// A large file that is to be transferred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargeFile {
    /// The source as listed.
    pub src: Entry,
    /// The destination's current entry.
    pub replaced: Option<Entry>,
}

/// Asked right before anything is deleted at the destination.
pub trait MayDelete: Send + Sync {
    /// Resolves to an error if nothing may be deleted any more: it becomes an error of the run.
    fn ask(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// How a run over a part is held in check from outside.
#[derive(Clone, Default)]
pub struct RunControl {
    /// Once set, no further key is taken up: what was begun is finished, deletions included, and the run ends there.
    pub pause: Cancel,
    /// Asked before each batch of deletions; `None` means yes.
    pub may_delete: Option<Arc<dyn MayDelete>>,
    /// Files from this many bytes on are left to the caller, where several processes may be able to transfer one together
    /// ([`crate::shared`]): they are reported in [`PartReport::large`] and count for nothing.
    pub large_from: Option<u64>,
    /// When the job was created, or later, by the source's clock. Where the destination has the same clock, files that it stored later were
    /// made by a run of this job whose end nobody heard of.
    pub made: Option<Mtime>,
    reached: Arc<Mutex<RunPosition>>,
    large: Arc<Mutex<Vec<LargeFile>>>,
}

impl RunControl {
    /// Nothing asks yet that the run be paused.
    pub fn new(may_delete: Option<Arc<dyn MayDelete>>) -> RunControl {
        RunControl { may_delete, ..RunControl::default() }
    }

    fn reached(&self) -> MutexGuard<'_, RunPosition> {
        self.reached.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The walk ended there.
    pub(crate) fn ended(&self, reached: RunPosition) {
        *self.reached() = reached;
    }

    /// How far the walk came.
    pub(crate) fn take(&self) -> RunPosition {
        std::mem::take(&mut *self.reached())
    }

    fn large(&self) -> MutexGuard<'_, Vec<LargeFile>> {
        self.large.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Leaves a file to the caller.
    pub(crate) fn leave(&self, file: LargeFile) {
        let mut large = self.large();
        large.push(file);
        if large.len() >= MOST_LARGE {
            self.pause.cancel();
        }
    }

    /// Files that were left to the caller.
    pub(crate) fn take_large(&self) -> Vec<LargeFile> {
        std::mem::take(&mut *self.large())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_met_many_large_files_is_paused() {
        let reins = RunControl::default();
        let leave = |n: usize| {
            reins.leave(LargeFile { src: Entry::file(Key::new(n.to_string()), 1), replaced: None });
            reins.pause.is_cancelled()
        };
        assert!((1..MOST_LARGE).all(|n| !leave(n)) && leave(MOST_LARGE));
        assert_eq!(reins.take_large().len(), MOST_LARGE);
    }
}
