//! What a job has done and met so far: its report as it grows, what its sink hears, and whether anything new may begin.

use crate::{Cancel, Cx, Report};
use haul_core::{
    Entry, Error, ErrorKind, Key, Result,
    attributes::Unkept,
    compare::{Difference, FileType},
    event::{Event, LeftOut, Sink, StepId},
    filter::Filter,
    job::{BeyondMax, Deletes},
    plan::Step,
};
use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::task::JoinError;

/// The record of a job under way, shared by all that work at it.
pub(crate) struct Ledger {
    report: Mutex<Report>,
    sink: Arc<dyn Sink>,
    cancel: Cancel,
    filter: Arc<Filter>,
    /// Start nothing new; what runs may finish.
    winding_down: AtomicBool,
    /// A store can't be reached or doesn't know us, and that was told.
    hopeless: AtomicBool,
    next: AtomicU64,
    /// The source listed at least one file.
    source_has_files: AtomicBool,
    /// The source's listing saw everything.
    source_complete: AtomicBool,
}

impl Ledger {
    /// An empty record of a job in these surroundings.
    pub fn new(cx: &Cx) -> Self {
        Ledger {
            report: Mutex::default(),
            sink: cx.sink.clone(),
            cancel: cx.cancel.clone(),
            filter: cx.filter.clone(),
            winding_down: AtomicBool::new(false),
            hopeless: AtomicBool::new(false),
            next: AtomicU64::new(1),
            source_has_files: AtomicBool::new(false),
            source_complete: AtomicBool::new(false),
        }
    }

    /// The report as it grows.
    pub fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The report at the end.
    pub fn close(&self) -> Report {
        let mut report = std::mem::take(&mut *self.report());
        if report.stopped.is_none() && !report.time_limit && !report.transfer_limit && self.cancel.is_cancelled() {
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
    pub fn decided(&self, step: &Step, dry_run: bool) {
        let Some(entry) = step.src.as_ref().or(step.dst.as_ref()) else { return };
        let key = step.dst.as_ref().unwrap_or(entry).key.clone();
        let differs = Difference { what: FileType::of(entry), ..Difference::default() };
        self.tell(Event::Decided { key, action: step.action, why: step.why, size: entry.size, differs, dry_run });
    }

    /// Tells of something of the source that the job leaves out.
    pub fn left_out(&self, src: &Entry, why: LeftOut) {
        self.tell(Event::LeftOut { key: src.key.clone(), what: FileType::of(src), size: src.size, why });
    }

    /// Counts an error and tells the sink.
    pub fn error(&self, error: Error) {
        if self.was_hopeless(error.kind()) {
            return;
        }
        let error = Arc::new(error);
        self.report().error(error.clone());
        self.tell(Event::Error(error));
    }

    /// Ends the job on an error that every further request would meet too: a store that can't be reached, or doesn't know us.
    /// True when that was told before.
    pub fn was_hopeless(&self, kind: ErrorKind) -> bool {
        let hopeless = matches!(kind, ErrorKind::Unreachable | ErrorKind::Unauthenticated);
        if hopeless {
            self.wind_down();
        }
        hopeless && self.hopeless.swap(true, Ordering::Relaxed)
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

    /// True when not all that was to be transferred could be: what takes the place of a file to be deleted may not be
    /// there.
    pub fn cut_short(&self) -> bool {
        let limited = {
            let report = self.report();
            report.transfer_limit || report.time_limit
        };
        limited || self.stopping()
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
    pub fn count_unkept(&self, unkept: Unkept) {
        if unkept.is_empty() {
            return;
        }
        let mut report = self.report();
        for lost in unkept.iter() {
            *report.totals.unkept.entry(lost).or_default() += 1;
        }
    }

    /// A walk has seen this many files of the source.
    pub fn saw_source(&self, files: u64) {
        if files > 0 {
            self.source_has_files.store(true, Ordering::Relaxed);
        }
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
        Some(max.saturating_sub(report.totals.deletes + report.totals.dirs_deleted))
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
            "could not make way for it: --max-delete doesn't allow to delete what the directory of that name holds";
        Err(Error::new(ErrorKind::Limit, "write", message).with_key(dir))
    }
}
