//! Work done and errors met by a job: its report as it grows, the events for its sink, and whether new work may begin.

use crate::{Cancel, Report};
use haul_core::{
    Entry, Error, ErrorKind, Key, Result,
    attributes::UnpreservedAttributes,
    compare::{Difference, FileType, Reason},
    event::{Event, Facts, LeftOut, Sink, StepId},
    filter::Filter,
    job::{BeyondMax, Deletes},
    plan::{Action, Step},
};
use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::task::JoinError;

/// Files of the source that are remembered.
pub(crate) const SOURCE_FILES: usize = 16;

/// What a file does that takes the place of a directory.
const REPLACE: &str = "replace";

/// The record of a job under way, shared by all that work at it.
pub(crate) struct Ledger {
    report: Mutex<Report>,
    sink: Arc<dyn Sink>,
    cancel: Cancel,
    filter: Arc<Filter>,
    /// Decided steps are not carried out.
    dry_run: bool,
    /// Start nothing new; what runs may finish.
    winding_down: AtomicBool,
    /// A person refuses all further changes.
    quit: AtomicBool,
    /// A store can't be reached or rejects our login, and that was reported.
    hopeless: AtomicBool,
    /// A limit of the destination's was reported.
    limit_met: AtomicBool,
    next: AtomicU64,
    /// Some of the source's files, and how many bytes they have.
    source_files: Mutex<Vec<(Key, u64)>>,
    /// The source listed at least one file.
    source_has_files: AtomicBool,
    /// The source's listing saw everything.
    source_complete: AtomicBool,
}

/// A run beside others has this many bits for the numbers of its transfers: a million runs then stay below those of ranges of large files.
const STEPS_BITS: u32 = 28;

impl Ledger {
    /// An empty record of a job that `sink` hears of, that `cancel` stops, and that is about what `filter` lets through; of a
    /// `dry_run`, events say so.
    pub fn new(sink: Arc<dyn Sink>, cancel: Cancel, filter: Arc<Filter>, dry_run: bool) -> Self {
        Ledger {
            report: Mutex::default(),
            sink,
            cancel,
            filter,
            dry_run,
            winding_down: AtomicBool::new(false),
            quit: AtomicBool::new(false),
            hopeless: AtomicBool::new(false),
            limit_met: AtomicBool::new(false),
            next: AtomicU64::new(1),
            source_files: Mutex::default(),
            source_has_files: AtomicBool::new(false),
            source_complete: AtomicBool::new(false),
        }
    }

    /// This record, of one of several runs of which one sink hears: their transfers have numbers that differ.
    pub fn beside_others(self) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Ledger { next: AtomicU64::new((run << STEPS_BITS) + 1), ..self }
    }

    /// The report as it grows.
    pub fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The report at the end.
    pub fn close(&self) -> Report {
        let mut report = std::mem::take(&mut *self.report());
        if report.stopped.is_none()
            && !report.time_limit
            && !report.transfer_limit
            && (self.cancel.is_cancelled() || self.was_quit())
        {
            report.stopped = Some(ErrorKind::Cancelled);
        }
        report
    }

    /// Tells the sink.
    pub fn tell(&self, event: Event) {
        self.sink.emit(&event);
    }

    /// Tells the sink something that is no error.
    pub fn notice(&self, key: Option<&Key>, message: impl Into<String>) {
        self.tell(Event::Notice { key: key.cloned(), message: message.into() });
    }

    /// Tells the sink what was decided about a file.
    pub fn decided(&self, step: &Step) {
        if let Some(event) = Event::decided(step, self.dry_run) {
            self.tell(event);
        }
    }

    /// As [`Ledger::decided`], of a file of the source that is `to` at the destination.
    pub fn decided_of(&self, src: &Entry, to: &Key, (action, why): (Action, Reason), differs: Difference) {
        let (key, size, facts, dry_run) = (to.clone(), src.size, Facts::of(src), self.dry_run);
        self.tell(Event::Decided { key, action, why, size, differs, facts, dry_run });
    }

    /// Tells of something of the source that the job leaves out.
    pub fn left_out(&self, src: &Entry, why: LeftOut) {
        let (key, what, size) = (src.key.clone(), FileType::of(src), src.size);
        self.tell(Event::LeftOut { key, what, size, why, facts: Facts::of(src) });
    }

    /// Counts an error and reports it to the sink.
    pub fn error(&self, error: Error) {
        if self.was_hopeless(error.kind()) {
            return;
        }
        let error = Arc::new(error);
        self.report().error(error.clone());
        self.tell(Event::Error(error));
    }

    /// Ends the job on an error that every further request would meet too: a store that can't be reached, or rejects our login.
    /// True when that was reported before.
    pub fn was_hopeless(&self, kind: ErrorKind) -> bool {
        let hopeless = matches!(kind, ErrorKind::Unreachable | ErrorKind::Unauthenticated);
        if hopeless {
            self.wind_down();
        }
        hopeless && self.hopeless.swap(true, Ordering::Relaxed)
    }

    /// Ends the job on an error by a limit that every further transfer would meet too, such as one of the destination's for a day. True when
    /// that was reported before.
    pub fn met_limit(&self, error: &Error) -> bool {
        // How much one file may delete in its way says nothing of others.
        if error.kind() != ErrorKind::Limit || error.op() == REPLACE {
            return false;
        }
        self.wind_down();
        self.report().stopped.get_or_insert(ErrorKind::Limit);
        // A limit of deletions stops the job by the same word, and says nothing of transfers.
        self.limit_met.swap(true, Ordering::Relaxed)
    }

    /// Starts nothing new from now on; what runs may finish.
    pub fn wind_down(&self) {
        self.winding_down.store(true, Ordering::Relaxed);
    }

    /// True when nothing new may be started.
    pub fn stopping(&self) -> bool {
        let rules_unknown = self.filter.has_broken_rules();
        self.winding_down.load(Ordering::Relaxed) || self.cancel.is_cancelled() || rules_unknown
    }

    /// Decides nothing more from now on; what was agreed to is done.
    pub fn quit(&self) {
        self.quit.store(true, Ordering::Relaxed);
    }

    /// True when a person has asked for that.
    pub fn was_quit(&self) -> bool {
        self.quit.load(Ordering::Relaxed)
    }

    /// True when nothing more is to be decided.
    pub fn decides_no_more(&self) -> bool {
        self.stopping() || self.was_quit()
    }

    /// True when not all that was to be transferred could be: what takes the place of a file to be deleted may not be
    /// there.
    pub fn cut_short(&self) -> bool {
        let limited = {
            let report = self.report();
            report.transfer_limit || report.time_limit
        };
        limited || self.decides_no_more()
    }

    /// `--max-transfer` is reached.
    pub fn transfer_limit(&self) {
        self.report().transfer_limit = true;
        self.wind_down();
    }

    /// The number of the next transfer.
    pub fn next_step(&self) -> StepId {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A task that died did not do its work: that is an error like any other.
    pub fn joined(&self, op: &'static str, ended: std::result::Result<(), JoinError>) {
        if let Err(error) = ended {
            self.error(Error::new(ErrorKind::Io, op, error.to_string()));
        }
    }

    /// Counts what of one file could not be kept.
    pub fn count_unpreserved(&self, unpreserved: UnpreservedAttributes) {
        if unpreserved.is_empty() {
            return;
        }
        let mut report = self.report();
        for lost in unpreserved.iter() {
            *report.totals.unpreserved.entry(lost).or_default() += 1;
        }
    }

    /// A walk has seen this many files of the source.
    pub fn count_source_files(&self, files: u64) {
        if files > 0 {
            self.source_has_files.store(true, Ordering::Relaxed);
        }
    }

    /// A walk has seen this file of the source: the first of them are remembered.
    pub fn remember_source_file(&self, file: &Entry) {
        let mut known = self.source_files();
        if known.len() < SOURCE_FILES {
            known.push((file.key.clone(), file.size));
        }
    }

    /// Some of the source's files, and how many bytes they have.
    pub fn source_files(&self) -> MutexGuard<'_, Vec<(Key, u64)>> {
        self.source_files.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A walk saw the source's end, and all before it or not.
    pub fn source_ended(&self, complete: bool) {
        self.source_complete.store(complete, Ordering::Relaxed);
    }

    /// True when the source has at least one file.
    pub fn source_has_files(&self) -> bool {
        self.source_has_files.load(Ordering::Relaxed)
    }

    /// True when the source's listing saw everything.
    pub fn source_is_complete(&self) -> bool {
        self.source_complete.load(Ordering::Relaxed)
    }

    /// How many more deletions `--max-delete` allows, where it doesn't stop all before the first.
    pub fn may_still_delete(&self, deletes: &Deletes) -> Option<u64> {
        let max = deletes.max.filter(|_| deletes.beyond_max == BeyondMax::KeepRest)?;
        let report = self.report();
        let (totals, of_source) = (&report.totals, report.totals.sources_deleted);
        Some(max.saturating_sub(totals.deletes - of_source.min(totals.deletes) + totals.dirs_deleted))
    }

    /// In a dry run, for one more deletion: true, and counted, when `--max-delete` doesn't allow it.
    pub fn is_beyond_max_delete(&self, deletes: &Deletes) -> bool {
        let beyond = self.may_still_delete(deletes) == Some(0);
        if beyond {
            let mut report = self.report();
            report.totals.not_deleted += 1;
            report.stopped.get_or_insert(ErrorKind::Limit);
        }
        beyond
    }

    /// Errors: `Limit`, when a directory holds more than `--max-delete` still allows; what it holds is then counted as left.
    pub fn check_may_delete(&self, deletes: &Deletes, dir: &Key, count: u64) -> Result<()> {
        if self.may_still_delete(deletes).is_none_or(|left| count <= left) {
            return Ok(());
        }
        self.report().totals.not_deleted += count;
        let message =
            "can't replace a non-empty directory with a file: it holds more than --max-delete allows to delete";
        Err(Error::new(ErrorKind::Limit, REPLACE, message).with_key(dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::attributes::{Attribute, UnpreservedReason};

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Sink for Heard {
        fn emit(&self, event: &Event) {
            let line = match event {
                Event::Error(error) => error.to_string(),
                other => format!("{other:?}"),
            };
            self.0.lock().unwrap().push(line);
        }
    }

    fn ledger() -> (Ledger, Arc<Heard>, Cancel) {
        let (heard, cancel) = (Arc::<Heard>::default(), Cancel::default());
        (Ledger::new(heard.clone(), cancel.clone(), Arc::default(), false), heard, cancel)
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "list", format!("{kind:?}"))
    }

    #[test]
    fn a_store_that_can_not_be_reached_is_said_once_and_ends_the_job() {
        let (ledger, heard, _) = ledger();
        ledger.error(error(ErrorKind::Denied));
        assert!(!ledger.stopping(), "one file's error ends nothing");
        for _ in 0..3 {
            ledger.error(error(ErrorKind::Unreachable));
        }
        ledger.error(error(ErrorKind::Unauthenticated));
        assert!(ledger.stopping() && ledger.cut_short());
        assert_eq!(*heard.0.lock().unwrap(), ["list: Denied", "list: Unreachable"]);
        assert_eq!(ledger.report().error_count, 2);
    }

    #[test]
    fn what_ends_a_job_is_told_in_its_report() {
        let stopped = |end: fn(&Ledger, &Cancel)| {
            let (ledger, _, cancel) = ledger();
            end(&ledger, &cancel);
            let stopping = ledger.stopping();
            (stopping, ledger.cut_short(), ledger.close().stopped)
        };
        assert_eq!(stopped(|_, _| {}), (false, false, None));
        assert_eq!(stopped(|_, cancel| cancel.cancel()), (true, true, Some(ErrorKind::Cancelled)));
        assert_eq!(stopped(|ledger, _| ledger.wind_down()), (true, true, None));
        // A limit is reported as such, though it may stop running transfers as a person would.
        let limit: fn(&Ledger, &Cancel) = |ledger, cancel| {
            ledger.transfer_limit();
            cancel.cancel();
        };
        assert_eq!(stopped(limit), (true, true, None));
        let time: fn(&Ledger, &Cancel) = |ledger, cancel| {
            ledger.report().time_limit = true;
            cancel.cancel();
        };
        assert_eq!(stopped(time), (true, true, None));
        let full: fn(&Ledger, &Cancel) = |ledger, cancel| {
            ledger.report().stopped = Some(ErrorKind::NoSpace);
            cancel.cancel();
        };
        assert_eq!(stopped(full), (true, true, Some(ErrorKind::NoSpace)));
    }

    #[test]
    fn deletions_count_towards_their_limit_directories_too() {
        let (ledger, ..) = ledger();
        let keep_rest = |max| Deletes { max, beyond_max: BeyondMax::KeepRest, ..Deletes::default() };
        {
            let mut report = ledger.report();
            (report.totals.deletes, report.totals.dirs_deleted) = (2, 1);
        }
        assert_eq!(ledger.may_still_delete(&keep_rest(None)), None);
        assert_eq!(ledger.may_still_delete(&keep_rest(Some(5))), Some(2));
        assert_eq!(ledger.may_still_delete(&keep_rest(Some(1))), Some(0));
        // Where the limit stops all before the first, it is no number to count down from.
        let keep_all = Deletes { beyond_max: BeyondMax::KeepAll, ..keep_rest(Some(5)) };
        assert_eq!(ledger.may_still_delete(&keep_all), None);
        let reported = || {
            let report = ledger.report();
            (report.totals.not_deleted, report.stopped)
        };
        assert!(!ledger.is_beyond_max_delete(&keep_rest(Some(4))));
        assert_eq!(reported(), (0, None));
        assert!(ledger.is_beyond_max_delete(&keep_rest(Some(3))));
        assert_eq!(reported(), (1, Some(ErrorKind::Limit)));
        // Which says nothing of a limit that transfers meet.
        let no_more_today = Error::new(ErrorKind::Limit, "write", "no more uploads today");
        assert_eq!([ledger.met_limit(&no_more_today), ledger.met_limit(&no_more_today)], [false, true]);
    }

    #[test]
    fn a_directory_makes_way_whole_or_not_at_all() {
        let (ledger, ..) = ledger();
        let deletes = Deletes { max: Some(3), beyond_max: BeyondMax::KeepRest, ..Deletes::default() };
        assert!(ledger.check_may_delete(&deletes, &Key::new("d/"), 3).is_ok());
        let error = ledger.check_may_delete(&deletes, &Key::new("d/"), 4).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Limit, Some(&Key::new("d/"))));
        assert_eq!(ledger.report().totals.not_deleted, 4);
    }

    #[test]
    fn files_are_counted_by_what_they_lost() {
        let (ledger, ..) = ledger();
        let mut lost = UnpreservedAttributes::default();
        ledger.count_unpreserved(lost);
        lost.add(Attribute::Owner, UnpreservedReason::Denied);
        ledger.count_unpreserved(lost);
        lost.add(Attribute::Acls, UnpreservedReason::Lacking);
        ledger.count_unpreserved(lost);
        let counts = ledger.report().totals.unpreserved.clone();
        assert_eq!(
            counts.into_iter().collect::<Vec<_>>(),
            [((Attribute::Owner, UnpreservedReason::Denied), 2), ((Attribute::Acls, UnpreservedReason::Lacking), 1)]
        );
    }

    #[tokio::test]
    async fn a_task_that_died_is_an_error() {
        let (ledger, heard, _) = ledger();
        ledger.joined("transfer", tokio::spawn(async {}).await);
        assert_eq!(ledger.report().error_count, 0);
        ledger.joined("transfer", tokio::spawn(async { panic!("wanted by the test") }).await);
        assert_eq!(ledger.report().error_count, 1);
        assert!(heard.0.lock().unwrap()[0].starts_with("transfer: "));
    }

    #[test]
    fn what_the_walks_saw_of_the_source_is_kept() {
        let (ledger, ..) = ledger();
        ledger.count_source_files(0);
        assert!(!ledger.source_has_files() && !ledger.source_is_complete());
        ledger.count_source_files(1);
        ledger.count_source_files(0);
        ledger.source_ended(true);
        assert!(ledger.source_has_files() && ledger.source_is_complete());
        ledger.source_ended(false);
        assert!(!ledger.source_is_complete(), "the last walk counts");
        assert_eq!((ledger.next_step(), ledger.next_step()), (1, 2));
    }
}
