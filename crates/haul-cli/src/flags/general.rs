//! Flags about the configuration and the run as a whole.

use crate::show::go_time::NO_TIME;
use haul_core::{Mtime, units::parse_age};
use jiff::{Timestamp, tz::TimeZone};

/// Configuration and the run as a whole.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "General")]
pub struct GeneralFlags {
    /// Ask for the password of an encrypted configuration; --ask-password=false fails instead
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true",
        action = clap::ArgAction::Set, hide_possible_values = true)]
    pub ask_password: bool,
    /// Take the default answer to the yes-or-no questions of haul config
    #[arg(long)]
    pub auto_confirm: bool,
    /// Use this config file only
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::ffi::OsString>,
    /// Time to show for entries without one: a date, or how long ago [default: 2000-01-01T00:00:00Z]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub default_time: Option<Mtime>,
    /// Change nothing; show what would be done
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Exit with 9 when nothing was transferred
    #[arg(long)]
    pub error_on_no_transfer: bool,
    /// Show sizes as 1.5Mi instead of bytes
    #[arg(long)]
    pub human_readable: bool,
    /// Use what earlier runs remembered: hashes of unchanged files, and what is at the destination
    #[arg(long)]
    pub index: bool,
    /// Ask before each change
    #[arg(long, short = 'i')]
    pub interactive: bool,
    /// Don't use the index, even if HAUL_INDEX says so
    #[arg(long)]
    pub no_index: bool,
    /// Keep no journal: an interrupted transfer starts over
    #[arg(long)]
    pub no_journal: bool,
    /// Command that prints the password of an encrypted configuration
    #[arg(long, value_name = "COMMAND")]
    pub password_command: Option<String>,
    /// Directory for haul's state: journals of jobs, hashes, indexes [default: $XDG_STATE_HOME/haul or ~/.local/state/haul]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<std::ffi::OsString>,
    /// List the whole destination, report where its index is wrong, and rebuild the index
    #[arg(long)]
    pub verify_index: bool,
}

impl GeneralFlags {
    /// The time shown for entries without one.
    pub fn default_time(&self) -> Mtime {
        self.default_time.unwrap_or(NO_TIME)
    }
}

fn time(text: &str) -> Result<Mtime, String> {
    let now = Mtime(Timestamp::now().as_nanosecond());
    parse_age(text, now, &TimeZone::system())?.ok_or_else(|| "a time can't be off".into())
}
