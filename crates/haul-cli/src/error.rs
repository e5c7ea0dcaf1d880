//! The one place that turns errors into words for a person and an exit code. Every other file only passes them on.

use haul::Report;
use haul_core::{Error, ErrorKind, Retry, error::NO_KEYS, units::size_text};
use haul_remotes as remotes;
pub use haul_terminal::one_line;
use std::fmt;

/// Exit codes; 0 to 10 mean what they mean in rclone.
pub mod code {
    /// Success: everything was done.
    pub const OK: u8 = 0;
    /// An error that has no code of its own.
    pub const OTHER: u8 = 1;
    /// The command line is wrong.
    pub const USAGE: u8 = 2;
    /// A directory, bucket or remote root isn't there.
    pub const DIR_NOT_FOUND: u8 = 3;
    /// A file isn't there.
    pub const FILE_NOT_FOUND: u8 = 4;
    /// Trying again might help.
    pub const RETRY: u8 = 5;
    /// An error that trying again won't mend, such as a change that `--immutable` forbids.
    pub const NO_RETRY: u8 = 6;
    /// The whole job was stopped by an error or a guard.
    pub const FATAL: u8 = 7;
    /// `--max-transfer` was reached.
    pub const TRANSFER_LIMIT: u8 = 8;
    /// Nothing was transferred, and `--error-on-no-transfer` was given.
    pub const NOTHING: u8 = 9;
    /// `--max-duration` was reached.
    pub const TIME_LIMIT: u8 = 10;
    /// Stopped by Ctrl-C or SIGTERM.
    pub const INTERRUPTED: u8 = 130;

    /// All of them, as `haul help exit-codes` and the reference show them.
    pub const MEANINGS: &[(u8, &str)] = &[
        (OK, "Success: everything was done"),
        (OTHER, "An error without a code of its own; differences found by check and status"),
        (USAGE, "The command line is wrong"),
        (DIR_NOT_FOUND, "A directory, bucket or remote path doesn't exist"),
        (FILE_NOT_FOUND, "A file doesn't exist"),
        (RETRY, "A temporary error: try again"),
        (NO_RETRY, "An error that a retry won't fix, such as a change that --immutable forbids"),
        (FATAL, "A guard refused to delete, or a limit ended the job"),
        (TRANSFER_LIMIT, "--max-transfer was reached"),
        (NOTHING, "Nothing was transferred, with --error-on-no-transfer"),
        (TIME_LIMIT, "--max-duration was reached"),
        (INTERRUPTED, "Stopped by Ctrl-C or SIGTERM"),
    ];
}

/// Result of a command.
#[derive(Debug, Default)]
pub enum CommandResult {
    /// It did what it should.
    #[default]
    Done,
    /// A job ran; its report decides.
    Job(Box<Report>),
    /// It has said all there is to say; exit with this code.
    Exit(u8),
}

/// A wrong command line: exit code 2. The text is one line that names the thing.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A wrong command line, as an error to return.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}

/// The message for a person, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct ExitMessage {
    /// One line.
    pub line: String,
    /// The exit code.
    pub code: u8,
}

/// Puts an error in words.
pub fn verdict(error: &anyhow::Error) -> ExitMessage {
    verdict_with(error, None)
}

/// As [`verdict`]; `missing` says more about a path that doesn't exist than haul's own hint does.
pub fn verdict_with(error: &anyhow::Error, missing: Option<&str>) -> ExitMessage {
    if let Some(line) = typed_wrong(error) {
        return ExitMessage { line: line.into(), code: code::USAGE };
    }
    let known = of_stores(error).next();
    let mut line = one_line(&chain(error));
    let Some(known) = known else { return ExitMessage { line, code: code::OTHER } };
    // These two are of this machine's folders, and say all themselves.
    let explained = matches!(known.op(), "lock" | "find");
    let missing = missing.filter(|_| known.kind() == ErrorKind::DirNotFound);
    if let Some(hint) = missing.or(hint(known)).filter(|_| !explained) {
        line = format!("{line} ({hint})");
    }
    ExitMessage { line, code: error_code(known) }
}

/// The errors of stores among the causes, the outermost first.
pub fn of_stores(error: &anyhow::Error) -> impl Iterator<Item = &Error> {
    error.chain().filter_map(of_store)
}

fn of_store<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Error> {
    match error.downcast_ref() {
        Some(remotes::Error::Store(of_store)) => Some(of_store),
        _ => error.downcast_ref(),
    }
}

/// The line of a wrong command line, which a remote on it may be.
fn typed_wrong(error: &anyhow::Error) -> Option<&str> {
    let own = error.downcast_ref::<Usage>().map(|usage| usage.0.as_str());
    own.or_else(|| {
        error.chain().find_map(|e| match e.downcast_ref() {
            Some(remotes::Error::Typed(line)) => Some(line.as_str()),
            _ => None,
        })
    })
}

/// Advice for an error of this kind, if there is any beyond its message.
fn hint(error: &Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::DirNotFound if error.message().ends_with(NO_KEYS) => {
            "check the spelling: haul lsd shows the directories of the path above it"
        }
        // A path to list, read or remove is not to be created.
        ErrorKind::DirNotFound if matches!(error.op(), "write" | "copy" | "move") => {
            "check the spelling, or create it with haul mkdir"
        }
        ErrorKind::DirNotFound => "check the spelling",
        ErrorKind::Denied => "the store knows you but doesn't allow this: check the permissions",
        // Of this machine, and it says what to do.
        ErrorKind::Busy if error.message().contains("ulimit") => return None,
        ErrorKind::Busy => "the store asks to slow down: try --tpslimit or a smaller --transfers",
        ErrorKind::Timeout => "check the network and the endpoint, or raise --timeout and --contimeout",
        ErrorKind::NoSpace => "make room at the destination",
        _ => return None,
    })
}

fn error_code(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::DirNotFound => code::DIR_NOT_FOUND,
        ErrorKind::NotFound => code::FILE_NOT_FOUND,
        ErrorKind::Cancelled => code::INTERRUPTED,
        ErrorKind::Limit => code::FATAL,
        // A directory that isn't empty is an ordinary error, as in rclone.
        ErrorKind::Exists if error.op() != "delete" => code::NO_RETRY,
        _ if error.retry() != Retry::Never => code::RETRY,
        _ => code::OTHER,
    }
}

/// The exit code of a job.
pub fn report_code(report: &Report, error_on_no_transfer: bool) -> u8 {
    if report.stopped == Some(ErrorKind::Cancelled) {
        return code::INTERRUPTED;
    }
    if report.transfer_limit {
        return code::TRANSFER_LIMIT;
    }
    if report.time_limit {
        return code::TIME_LIMIT;
    }
    if report.stopped == Some(ErrorKind::Limit) {
        return code::FATAL;
    }
    // As in rclone the last error speaks for all; that nothing was deleted because of others only follows from them.
    let follows = |error: &Error| error.kind() == ErrorKind::Limit && error.op() == "delete";
    if let Some(last) = report.errors.iter().rfind(|error| !follows(error)).or(report.errors.last()) {
        return error_code(last);
    }
    if !report.is_ok() {
        return code::OTHER;
    }
    if error_on_no_transfer && report.totals.transfers + report.totals.renames == 0 { code::NOTHING } else { code::OK }
}

/// Why a job ended before its end, or with a code that no error explains; one line.
pub fn why_stopped(report: &Report, error_on_no_transfer: bool) -> Option<&'static str> {
    match report_code(report, error_on_no_transfer) {
        code::TRANSFER_LIMIT => Some("Stopped: --max-transfer was reached. Run the same command to transfer more."),
        code::TIME_LIMIT => Some("Stopped: --max-duration was reached. Run the same command to transfer the rest."),
        code::INTERRUPTED => Some("Stopped. Run the same command to transfer the rest."),
        code::NOTHING => Some("Nothing was transferred, and --error-on-no-transfer is set"),
        _ => None,
    }
}

/// Unfinished transfers that a stopped run leaves for the next one; one line.
pub fn half_sent(report: &Report) -> Option<String> {
    let what = match report.half_sent {
        0 => return None,
        1 => "1 large file was".into(),
        n => format!("{n} large files were"),
    };
    let kept = size_text(report.half_sent_bytes);
    Some(format!("{what} partly sent ({kept} kept). The next run continues there; haul jobs clean removes it"))
}

/// The error and what lies beneath it, without what was said already: an error of the system is both message and cause.
fn chain(error: &anyhow::Error) -> String {
    error.chain().map(words).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        before if before.ends_with(&cause) => said,
        before => format!("{before}: {cause}"),
    })
}

fn words(error: &(dyn std::error::Error + 'static)) -> String {
    of_store(error).map_or_else(|| error.to_string(), error_text)
}

/// An error of a store as a person reads it. The operation is an internal word, so it is only told where the message is the
/// system's own, which names nothing.
pub fn error_text(known: &Error) -> String {
    let message = match known.message() {
        system if system.contains("(os error ") => match known.op() {
            "stat" if known.is_missing() => format!("can't be found: {system}"),
            "stat" => format!("can't read attributes: {system}"),
            op => format!("can't {op}: {system}"),
        },
        own => own.to_owned(),
    };
    match known.key().filter(|key| !key.is_root()) {
        Some(key) if !message.starts_with(&*key.display()) => format!("{key}: {message}"),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Key;
    use std::sync::Arc;

    fn of(kind: ErrorKind) -> ExitMessage {
        verdict(&Error::new(kind, "read", "it broke").with_key(&Key::new("a/b")).into())
    }

    #[test]
    fn kinds_have_rclones_exit_codes() {
        for (kind, code) in [
            (ErrorKind::NotFound, 4),
            (ErrorKind::DirNotFound, 3),
            (ErrorKind::Denied, 1),
            (ErrorKind::Exists, 6),
            (ErrorKind::Busy, 5),
            (ErrorKind::Timeout, 5),
            (ErrorKind::Limit, 7),
            (ErrorKind::Cancelled, 130),
            (ErrorKind::Io, 1),
        ] {
            assert_eq!(of(kind).code, code, "{kind:?}");
        }
        assert_eq!(verdict(&usage("no")).code, 2);
        assert_eq!(verdict(&anyhow::anyhow!("no")).code, 1);
    }

    #[test]
    fn an_error_is_one_line_that_names_the_thing_and_what_to_do() {
        assert_eq!(of(ErrorKind::NotFound).line, "a/b: it broke");
        assert_eq!(of(ErrorKind::NoSpace).line, "a/b: it broke (make room at the destination)");
        let held = Error::new(ErrorKind::Busy, "lock", "another one works in it");
        assert_eq!(verdict(&held.into()).line, "another one works in it");
        let full = Error::from_io("write", std::io::Error::from_raw_os_error(28)).with_key(&Key::new("a/b"));
        let line = "a/b: can't write: No space left on device (os error 28) (make room at the destination)";
        assert_eq!(verdict(&full.into()).line, line);
        for (code, line) in [
            (2, "a/b: can't be found: No such file or directory (os error 2)"),
            (5, "a/b: can't read attributes: Input/output error (os error 5)"),
        ] {
            let stat_error = Error::from_io("stat", std::io::Error::from_raw_os_error(code)).with_key(&Key::new("a/b"));
            assert_eq!(verdict(&stat_error.into()).line, line);
        }
        let within = anyhow::Error::from(std::io::Error::other("it broke")).context("can't save");
        assert_eq!(verdict(&within).line, "can't save: it broke");
        let nested = anyhow::Error::from(Error::new(ErrorKind::DirNotFound, "list", "no such bucket")).context("r:b");
        assert_eq!(verdict(&nested), ExitMessage { line: "r:b: no such bucket (check the spelling)".into(), code: 3 });
        let written = Error::new(ErrorKind::DirNotFound, "write", "no such bucket");
        let line = "no such bucket (check the spelling, or create it with haul mkdir)".to_string();
        assert_eq!(verdict(&written.into()), ExitMessage { line, code: 3 });
    }

    #[test]
    fn an_error_of_a_remote_reads_and_counts_as_what_it_is() {
        let typed = || remotes::Error::Typed("bad remote".into());
        let usage = ExitMessage { line: "bad remote".into(), code: 2 };
        assert_eq!(verdict(&typed().into()), usage);
        assert_eq!(verdict(&anyhow::Error::from(typed().within("alias \"a\"")).context("more")), usage);
        let config = remotes::Error::config("it is empty").within("remote \"r\"");
        let line = "remote \"r\": it is empty".to_string();
        assert_eq!(verdict(&config.into()), ExitMessage { line, code: 1 });
        let denied = || remotes::Error::from(Error::new(ErrorKind::DirNotFound, "list", "no such bucket"));
        let line = "no such bucket (check the spelling)".to_string();
        assert_eq!(verdict(&denied().into()), ExitMessage { line: line.clone(), code: 3 });
        let within = verdict(&anyhow::Error::from(denied().within("r")).context("c"));
        assert_eq!(within, ExitMessage { line: format!("c: r: {line}"), code: 3 });
        let system = remotes::Error::system("can't write x", std::io::Error::from_raw_os_error(28));
        assert_eq!(verdict(&system.into()).line, "can't write x: No space left on device (os error 28)");
    }

    #[test]
    fn what_is_half_sent_is_told() {
        let of = |half_sent| half_sent_line(half_sent);
        assert_eq!(of(0), None);
        let rest = "partly sent (88 MiB kept). The next run continues there; haul jobs clean removes it";
        assert_eq!(of(1), Some(format!("1 large file was {rest}")));
        assert_eq!(of(3), Some(format!("3 large files were {rest}")));
    }

    fn half_sent_line(half_sent: usize) -> Option<String> {
        super::half_sent(&Report { half_sent, half_sent_bytes: 88 << 20, ..Report::default() })
    }

    #[test]
    fn a_report_decides_the_exit_code() {
        let mut report = Report::default();
        assert_eq!(report_code(&report, false), 0);
        assert_eq!(report_code(&report, true), 9);
        report.error(Arc::new(Error::new(ErrorKind::Denied, "read", "no")));
        report.error(Arc::new(Error::new(ErrorKind::Busy, "read", "no")));
        assert_eq!(report_code(&report, false), 5);
        assert_eq!(report_code(&Report { transfer_limit: true, ..report.clone() }, false), 8);
        assert_eq!(report_code(&Report { time_limit: true, ..report.clone() }, false), 10);
        assert_eq!(report_code(&Report { stopped: Some(ErrorKind::Limit), ..report.clone() }, false), 7);
        let stopped = Report { stopped: Some(ErrorKind::Cancelled), ..report.clone() };
        assert_eq!(report_code(&stopped, false), 130);
        assert_eq!(why_stopped(&stopped, false), Some("Stopped. Run the same command to transfer the rest."));
        assert_eq!(why_stopped(&report, true), None);
    }
}
