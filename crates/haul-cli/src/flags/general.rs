//! Flags about the configuration and the run as a whole.

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
    /// Change nothing; show what would be done
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Exit with 9 when nothing was transferred
    #[arg(long)]
    pub error_on_no_transfer: bool,
    /// Sizes as 1.5Mi instead of bytes
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
