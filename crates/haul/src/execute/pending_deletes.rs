//! Deletions that wait until the run is known to be free of errors, and reasons against carrying them out.

use crate::{
    ledger::Ledger,
    spool::{PendingDelete, Spool},
};
use haul_core::{
    Error, ErrorKind, Result,
    job::{BeyondMax, DeleteWhen, Deletes},
};
use std::sync::{Mutex, MutexGuard};

/// Most keys in one delete request, whatever the store would take.
pub const DELETE_BATCH: usize = 1000;

/// Files at the destination that are to be deleted, and the rules by which they may be.
pub struct PendingDeletes {
    state: Mutex<State>,
    rules: Deletes,
}

#[derive(Default)]
struct State {
    spool: Spool,
    count: u64,
    bytes: u64,
}

/// State of a job when it is about to delete.
#[derive(Clone, Copy, Debug)]
pub struct DeletionState<'a> {
    /// Errors so far.
    pub errors: u64,
    /// The source listed at least one file.
    pub source_has_files: bool,
    /// The source's listing saw everything.
    pub source_is_complete: bool,
    /// The source as messages name it.
    pub source: &'a str,
}

impl<'a> DeletionState<'a> {
    /// The state so far.
    pub fn of(ledger: &Ledger, source: &'a str) -> DeletionState<'a> {
        DeletionState {
            errors: ledger.report().error_count,
            source_has_files: ledger.source_has_files(),
            source_is_complete: ledger.source_is_complete(),
            source,
        }
    }
}

/// Why nothing is deleted.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedDeletes {
    /// In one line.
    pub message: String,
    /// A limit or guard: the job has failed, not only a file.
    pub ends_job: bool,
}

impl RefusedDeletes {
    /// Tells it, and counts it as an error.
    pub fn tell(self, ledger: &Ledger) {
        if self.ends_job {
            ledger.report().stopped.get_or_insert(ErrorKind::Limit);
        }
        ledger.error(Error::new(ErrorKind::Limit, "delete", self.message));
    }
}

impl PendingDeletes {
    /// Nothing waits yet.
    pub fn new(rules: &Deletes) -> Self {
        PendingDeletes { state: Mutex::default(), rules: rules.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Adds a file to delete.
    ///
    /// Errors: a temporary file can't be written.
    pub fn push(&self, gone: PendingDelete) -> Result<()> {
        let mut state = self.state();
        state.count += 1;
        state.bytes += gone.size;
        state.spool.push(gone)
    }

    /// True when a delete request's worth is waiting.
    pub fn fills_a_batch(&self) -> bool {
        self.state().spool.len() >= DELETE_BATCH as u64
    }

    /// Takes all waiting deletions; they still count towards the limits.
    pub fn take(&self) -> Spool {
        std::mem::take(&mut self.state().spool)
    }

    /// Why `waiting` files must not be deleted, if anything speaks against it: an error anywhere, a source that holds nothing, a
    /// limit that all deletions of the job together exceed.
    pub fn refusal(&self, waiting: u64, grounds: &DeletionState<'_>) -> Option<RefusedDeletes> {
        let all = {
            let state = self.state();
            (state.count, state.bytes)
        };
        refusal(&self.rules, waiting, all, grounds)
    }
}

/// Why `waiting` of a job's deletions, `count` files with `bytes` bytes in all, must not be made.
pub fn refusal(
    rules: &Deletes,
    waiting: u64,
    (count, bytes): (u64, u64),
    grounds: &DeletionState<'_>,
) -> Option<RefusedDeletes> {
    let refused = |why: String, ends_job| {
        let message = format!("Refused to delete {waiting} files: {why}");
        Some(RefusedDeletes { message, ends_job })
    };
    if grounds.errors > 0 && !rules.ignore_errors {
        return refused("there were errors (--ignore-errors deletes all the same)".into(), false);
    }
    // While the listing runs, a file may yet come.
    let ended = rules.when != DeleteWhen::During || grounds.source_is_complete;
    if !grounds.source_has_files && ended && !rules.allow_empty_source {
        let source = grounds.source;
        return refused(format!("source {source} is empty (--allow-empty-source if that is intended)"), true);
    }
    if let Some(max) = rules.max.filter(|max| count > *max && rules.beyond_max == BeyondMax::KeepAll) {
        return refused(format!("that is more than --max-delete {max}"), true);
    }
    if let Some(max) = rules.max_size.filter(|max| bytes > *max) {
        return refused(format!("that is more than --max-delete-size {max} bytes"), true);
    }
    None
}

/// Cuts `next` to how many deletions are `left` (`None`: any number), and counts down; gives how many were cut off.
pub fn cut<T>(left: &mut Option<u64>, next: &mut Vec<T>) -> u64 {
    let Some(left) = left else { return 0 };
    let allowed = usize::try_from(*left).unwrap_or(usize::MAX).min(next.len());
    *left -= allowed as u64;
    next.split_off(allowed).len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Key;

    fn pending(sizes: &[u64], rules: impl FnOnce(&mut Deletes)) -> PendingDeletes {
        let mut deletes = Deletes::default();
        rules(&mut deletes);
        let pending = PendingDeletes::new(&deletes);
        for size in sizes {
            pending.push(PendingDelete { key: Key::new("k"), size: *size, version: None }).unwrap();
        }
        pending
    }

    /// Rules, the state of the job, and the expected refusal.
    type Row = (fn(&mut Deletes), DeletionState<'static>, Option<RefusedDeletes>);

    const GOOD: DeletionState =
        DeletionState { errors: 0, source_has_files: true, source_is_complete: true, source: "/src" };

    #[test]
    fn each_reason_against_deletions_keeps_everything() {
        let none: fn(&mut Deletes) = |_| {};
        let refused = |why: &str, ends_job| {
            Some(RefusedDeletes { message: format!("Refused to delete 2 files: {why}"), ends_job })
        };
        let errors = "there were errors (--ignore-errors deletes all the same)";
        let empty = "source /src is empty (--allow-empty-source if that is intended)";
        let table: [Row; 13] = [
            (none, GOOD, None),
            (none, DeletionState { errors: 1, ..GOOD }, refused(errors, false)),
            (|rules| rules.ignore_errors = true, DeletionState { errors: 1, ..GOOD }, None),
            (none, DeletionState { source_has_files: false, ..GOOD }, refused(empty, true)),
            (none, DeletionState { source_has_files: false, source_is_complete: false, ..GOOD }, refused(empty, true)),
            (|rules| rules.allow_empty_source = true, DeletionState { source_has_files: false, ..GOOD }, None),
            (
                |rules| rules.when = DeleteWhen::During,
                DeletionState { source_has_files: false, source_is_complete: false, ..GOOD },
                None,
            ),
            (
                |rules| rules.when = DeleteWhen::During,
                DeletionState { source_has_files: false, ..GOOD },
                refused(empty, true),
            ),
            (|rules| rules.max = Some(2), GOOD, None),
            (
                |rules| (rules.max, rules.beyond_max) = (Some(1), BeyondMax::KeepAll),
                GOOD,
                refused("that is more than --max-delete 1", true),
            ),
            (|rules| (rules.max, rules.beyond_max) = (Some(1), BeyondMax::KeepRest), GOOD, None),
            (|rules| rules.max_size = Some(30), GOOD, None),
            (|rules| rules.max_size = Some(29), GOOD, refused("that is more than --max-delete-size 29 bytes", true)),
        ];
        for (at, (rules, grounds, expected)) in table.into_iter().enumerate() {
            assert_eq!(pending(&[10, 20], rules).refusal(2, &grounds), expected, "row {at}");
        }
    }

    #[test]
    fn what_was_taken_counts_towards_the_limits_all_the_same() {
        let pending = pending(&[1, 1], |rules| (rules.max, rules.beyond_max) = (Some(2), BeyondMax::KeepAll));
        assert_eq!((pending.take().len(), pending.take().len()), (2, 0));
        assert!(pending.refusal(0, &GOOD).is_none());
        pending.push(PendingDelete { key: Key::new("third"), size: 1, version: None }).unwrap();
        assert!(pending.refusal(1, &GOOD).is_some());
    }

    #[test]
    fn a_batch_is_as_many_as_a_request_takes() {
        let pending = pending(&[0; DELETE_BATCH - 1], |_| {});
        assert!(!pending.fills_a_batch());
        pending.push(PendingDelete { key: Key::new("k"), size: 0, version: None }).unwrap();
        assert!(pending.fills_a_batch());
    }

    #[test]
    fn batches_are_cut_to_what_is_left() {
        let cut_of = |mut left: Option<u64>, count| {
            let mut next: Vec<u8> = vec![0; count];
            let beyond = cut(&mut left, &mut next);
            (next.len(), beyond, left)
        };
        assert_eq!(cut_of(None, 3), (3, 0, None));
        assert_eq!(cut_of(Some(5), 3), (3, 0, Some(2)));
        assert_eq!(cut_of(Some(2), 3), (2, 1, Some(0)));
        assert_eq!(cut_of(Some(0), 3), (0, 3, Some(0)));
    }
}
