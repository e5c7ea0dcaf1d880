//! Flags about logs, progress and statistics.

use super::values::{Span, path, span};
use crate::{error::usage, log::Settings};
use anyhow::Result;
use clap::ValueEnum;
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
    /// Lowest level to log [default: NOTICE]
    #[arg(long, value_name = "LEVEL", ignore_case = true)]
    pub log_level: Option<LogLevel>,
    /// Show progress while transferring
    #[arg(long, short = 'P')]
    pub progress: bool,
    /// Show errors only
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Time between statistics without a live display; 0 for none
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub stats: Option<Span>,
    /// Longest name in the live display; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 45)]
    pub stats_file_name_length: usize,
    /// Statistics on one line
    #[arg(long)]
    pub stats_one_line: bool,
    /// Unit of speeds
    #[arg(long, value_name = "UNIT", ignore_case = true, default_value = "bytes")]
    pub stats_unit: StatsUnit,
    /// The log as lines of JSON
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

/// What the log shows and where it goes.
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
        (Some(LogLevel::Debug), _) => Level::DEBUG,
        (Some(LogLevel::Info), _) => Level::INFO,
        (Some(LogLevel::Notice), _) => Level::WARN,
        (Some(LogLevel::Error), _) => Level::ERROR,
        _ if flags.quiet => Level::ERROR,
        (None, 0) => Level::WARN,
        (None, 1) => Level::INFO,
        (None, _) => Level::DEBUG,
    };
    // What is dumped goes into the log as INFO, and whoever asks for it wants to see it.
    let level = if dump { level.max(Level::INFO) } else { level };
    Ok(Settings { level, file: flags.log_file.clone(), json: flags.use_json_log })
}
