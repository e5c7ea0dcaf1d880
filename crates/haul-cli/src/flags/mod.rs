//! Every flag that stands before or after any command, in groups, and what each group becomes.
//!
//! Names, shorts, meanings and defaults are rclone's. A flag is here only if something acts on it, but for
//! those of `ignored`.

pub mod filter;
pub mod general;
pub mod ignored;
pub mod keep;
pub mod log;
pub mod network;
pub mod stores;
pub mod transfer;
pub mod values;

pub use filter::filter;
pub use keep::keep;
pub use network::net;
pub use transfer::job;

use crate::show::go_time;
use haul_core::{Mtime, job::ExtraEvents};
use haul_store::Links;
use jiff::{Timestamp, tz::TimeZone};

/// All of them.
#[derive(clap::Args, Clone, Debug)]
pub struct Flags {
    /// How to compare and transfer.
    #[command(flatten)]
    pub copy: transfer::CopyFlags,
    /// How to delete and back up.
    #[command(flatten)]
    pub sync: transfer::SyncFlags,
    /// What to keep besides the bytes.
    #[command(flatten)]
    pub meta: transfer::MetaFlags,
    /// How many at once, how often again.
    #[command(flatten)]
    pub pace: transfer::PaceFlags,
    /// Which files.
    #[command(flatten)]
    pub filter: filter::FilterFlags,
    /// Connections.
    #[command(flatten)]
    pub network: network::NetworkFlags,
    /// Logs and progress.
    #[command(flatten)]
    pub log: log::LogFlags,
    /// Configuration and the run as a whole.
    #[command(flatten)]
    pub config: general::GeneralFlags,
    /// Those of rclone without effect here.
    #[command(flatten)]
    pub ignored: ignored::IgnoredFlags,
}

/// A transformation of names as it is read: `date=X` is a suffix, whose `{LAYOUT}` is today's date in it.
pub fn with_date(text: &str) -> String {
    let (of, change) = match text.split_once(',') {
        Some((of @ ("file" | "dir" | "all"), change)) => (format!("{of},"), change),
        _ => (String::new(), text),
    };
    let Some(value) = change.strip_prefix("date=") else { return text.to_owned() };
    let (Some(open), Some(close)) = (value.find('{'), value.rfind('}')) else { return format!("{of}suffix={value}") };
    let layout = match value[open..close.max(open)].trim_matches(['{', '}']) {
        "YYYYMMDD" => "20060102",
        "MacFriendlyTime" | "macfriendlytime" | "mac" => "2006-01-02 0304PM",
        name => go_time::layout(name),
    };
    let (now, zone) = (Mtime(Timestamp::now().as_nanosecond()), TimeZone::system());
    let date = go_time::format(now, layout, &zone);
    format!("{of}suffix={}{date}{}", &value[..open], &value[(close + 1).max(open)..])
}

/// Reporting of entries that can't be copied.
pub fn tell(flags: &Flags) -> ExtraEvents {
    ExtraEvents { no_links: flags.meta.skip_links, no_specials: flags.meta.skip_specials, ..ExtraEvents::default() }
}

/// How symlinks are treated.
pub fn links(flags: &Flags) -> Links {
    match (flags.meta.links, flags.meta.copy_links) {
        (true, _) => Links::Keep,
        (_, true) => Links::Follow,
        _ => Links::Skip,
    }
}
