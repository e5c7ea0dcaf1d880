//! rsync's exit codes.

use haul::Report;
use haul_core::{Error, ErrorKind};

/// The command line is wrong.
pub const USAGE: u8 = 1;
/// Sources or the destination are wrong.
pub const SELECTION: u8 = 3;
/// haul can't do this.
pub const UNSUPPORTED: u8 = 4;
/// A disk or store failed.
pub const FILE_IO: u8 = 11;
/// The connection to a far end broke.
pub const STREAM: u8 = 12;
/// Stopped by a signal.
pub const SIGNAL: u8 = 20;
/// Some files or attributes could not be transferred.
pub const PARTIAL: u8 = 23;
/// Some files of the source were missing when their turn came.
pub const VANISHED: u8 = 24;
/// `--max-delete` was reached.
pub const MAX_DELETE: u8 = 25;
/// Something didn't answer in time.
pub const TIMEOUT: u8 = 30;
/// A program isn't at the far end.
pub const NO_COMMAND: u8 = 127;
/// ssh failed.
pub const SSH: u8 = 255;

/// Why nothing can be done: exit code and line.
pub type Refusal = (u8, String);

/// Problems of a run.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// Files that disappeared.
    pub vanished: u64,
    /// Anything else about single files.
    pub partial: u64,
    /// No room, or a store that failed as a whole.
    pub io: bool,
    /// The connection to a far end broke.
    pub stream: bool,
    /// No answer in time.
    pub timeout: bool,
    /// `--max-delete` was reached.
    pub max_delete: bool,
    /// Stopped by a signal.
    pub signal: bool,
    /// A directory holds rules that can't be read.
    pub rules: bool,
}

impl Problems {
    /// An error of one file or listing.
    pub fn note(&mut self, error: &Error) {
        match error.kind() {
            ErrorKind::NotFound if matches!(error.op(), "read" | "copy" | "stat") => self.vanished += 1,
            ErrorKind::Timeout => self.timeout = true,
            ErrorKind::NoSpace => self.io = true,
            ErrorKind::Io | ErrorKind::Unreachable if error.op() == "connect" => self.stream = true,
            _ => self.partial += 1,
        }
    }

    /// Adds the problems of a job's report.
    pub fn take(&mut self, report: &Report) {
        // As in rsync, whose time is up.
        self.timeout |= report.time_limit;
        match report.stopped {
            Some(ErrorKind::Cancelled) => self.signal = true,
            Some(ErrorKind::Limit) if report.totals.not_deleted > 0 => self.max_delete = true,
            Some(_) => self.io = true,
            None => {}
        }
    }

    /// The exit code, and its text.
    pub fn code(&self) -> (u8, &'static str) {
        match self {
            Problems { signal: true, .. } => (SIGNAL, "stopped by a signal"),
            Problems { rules: true, .. } => (USAGE, "syntax or usage error"),
            Problems { stream: true, .. } => (STREAM, "error in rsync protocol data stream"),
            Problems { io: true, .. } => (FILE_IO, "error in file IO"),
            Problems { timeout: true, .. } => (TIMEOUT, "timeout in data send/receive"),
            Problems { partial: 1.., .. } => (PARTIAL, "some files/attrs were not transferred (see previous errors)"),
            Problems { max_delete: true, .. } => (MAX_DELETE, "the --max-delete limit stopped deletions"),
            Problems { vanished: 1.., .. } => (VANISHED, "some files vanished before they could be transferred"),
            _ => (0, ""),
        }
    }
}
