//! Flags about logs, progress and statistics.

use super::values::{Span, duration, path, size, span};
use crate::{
    error::usage,
    log::{
        Settings, Target,
        format::Format,
        rotate::Limits,
        system::{Facility, Journal},
    },
};
use anyhow::Result;
use clap::ValueEnum;
use haul_core::units::Size;
use std::path::PathBuf;
use tracing::Level;

/// Logs, progress, statistics.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Log and progress")]
pub struct LogFlags {
    /// When to use colours
    #[arg(long, value_name = "WHEN", ignore_case = true, default_value = "auto")]
    pub color: crate::colour::Choice,
    /// Append the log to this file instead of standard error
    #[arg(long, value_name = "FILE", value_parser = path)]
    pub log_file: Option<PathBuf>,
    /// Compress old log files with gzip
    #[arg(long)]
    pub log_file_compress: bool,
    /// Remove old log files after this time, in whole days: 7d
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub log_file_max_age: Option<Span>,
    /// Keep at most this many old log files; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub log_file_max_backups: usize,
    /// Rotate the log file at this size, in whole MiB; old files get a time stamp
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub log_file_max_size: Option<Size>,
    /// Parts of each line: any of date, time, microseconds, UTC, shortfile, longfile, pid, nolevel, json [default: date,time]
    #[arg(long, value_name = "PARTS", value_parser = Format::parse)]
    pub log_format: Option<Format>,
    /// Lowest level to log [default: NOTICE]
    #[arg(long, value_name = "LEVEL", ignore_case = true)]
    pub log_level: Option<LogLevel>,
    /// Log to the systemd journal (automatic if standard error goes there)
    #[arg(long)]
    pub log_systemd: bool,
    /// Show progress while transferring
    #[arg(long, short = 'P')]
    pub progress: bool,
    /// Show errors only
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Time between statistics when there is no live display; 0 for none
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub stats: Option<Span>,
    /// Maximum length of names in the live display; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 45)]
    pub stats_file_name_length: usize,
    /// Level of the statistics in the log [default: INFO; with --stats or --dry-run NOTICE]
    #[arg(long, value_name = "LEVEL", ignore_case = true)]
    pub stats_log_level: Option<LogLevel>,
    /// Print statistics on one line
    #[arg(long)]
    pub stats_one_line: bool,
    /// Print statistics on one line that begins with date and time
    #[arg(long)]
    pub stats_one_line_date: bool,
    /// Statistics on one line with date and time in this layout, written as in Go: "2006-01-02 15:04:05 "
    #[arg(long, value_name = "LAYOUT")]
    pub stats_one_line_date_format: Option<String>,
    /// Unit of speeds
    #[arg(long, value_name = "UNIT", ignore_case = true, default_value = "bytes")]
    pub stats_unit: StatsUnit,
    /// Log to syslog
    #[arg(long)]
    pub syslog: bool,
    /// Syslog facility, for --syslog
    #[arg(long, value_name = "FACILITY", ignore_case = true, default_value = "DAEMON")]
    pub syslog_facility: Facility,
    /// Write the log as JSON, one object per line
    #[arg(long)]
    pub use_json_log: bool,
    /// Log every transfer; -vv logs every decision
    #[arg(long, short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `--stats-unit`.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatsUnit {
    /// Bytes a second
    #[default]
    Bytes,
    /// Bits a second
    Bits,
}

/// `--log-level`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "UPPER")]
pub enum LogLevel {
    /// Every decision
    Debug,
    /// Every transfer
    Info,
    /// Notices
    Notice,
    /// Errors only
    Error,
}

impl LogLevel {
    /// As events have it.
    pub fn level(self) -> Level {
        match self {
            LogLevel::Debug => Level::DEBUG,
            LogLevel::Info => Level::INFO,
            LogLevel::Notice => Level::WARN,
            LogLevel::Error => Level::ERROR,
        }
    }
}

/// Where the log goes.
fn target(flags: &LogFlags) -> Result<Target> {
    Ok(match &flags.log_file {
        Some(_) if flags.syslog => return Err(usage("--syslog and --log-file can't be used together: choose one")),
        Some(file) => Target::File(file.clone(), limits(flags)),
        None if flags.syslog => Target::Syslog(flags.syslog_facility),
        None if flags.log_systemd || Journal::has_stderr() => Target::Journal,
        None => Target::Terminal,
    })
}

/// rclone's: where a file may have no size at all.
const USUAL_SIZE: u64 = 100 << 20;

/// When the log file begins anew, in whole MiB and days as in rclone; `None` for never.
fn limits(flags: &LogFlags) -> Option<Limits> {
    let rounded = |n: u64, unit: u64| if n == 0 { 0 } else { ((n + unit / 2) / unit).max(1) };
    let size = rounded(flags.log_file_max_size.and_then(Size::bytes)?, 1 << 20) << 20;
    let days = duration(flags.log_file_max_age).map_or(0, |age| rounded(age.as_secs(), 24 * 3600));
    Some(Limits {
        size: if size == 0 { USUAL_SIZE } else { size },
        backups: Some(flags.log_file_max_backups).filter(|most| *most > 0),
        days: u32::try_from(days).ok().filter(|days| *days > 0),
        compress: flags.log_file_compress,
    })
}

/// Level, format and target of the log.
pub fn settings(flags: &super::Flags) -> Result<Settings> {
    let dump = flags.network.dump.is_some();
    let flags = &flags.log;
    if flags.quiet && flags.verbose > 0 {
        return Err(usage("-v and -q can't be used together: choose one"));
    }
    if flags.log_level.is_some() && (flags.quiet || flags.verbose > 0) {
        return Err(usage("--log-level can't be used with -v or -q: choose one"));
    }
    let level = match (flags.log_level, flags.verbose) {
        (Some(level), _) => level.level(),
        _ if flags.quiet => Level::ERROR,
        (None, 0) => Level::WARN,
        (None, 1) => Level::INFO,
        (None, _) => Level::DEBUG,
    };
    // A dump goes into the log as INFO, and the user who asks for it wants to see it.
    let level = if dump { level.max(Level::INFO) } else { level };
    let format = flags.log_format.unwrap_or_default();
    let format = Format { json: format.json || flags.use_json_log, ..format };
    Ok(Settings { level, target: target(flags)?, format })
}
