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

use haul_store::Links;

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

/// How symlinks are treated.
pub fn links(flags: &Flags) -> Links {
    match (flags.meta.links, flags.meta.copy_links) {
        (true, _) => Links::Keep,
        (_, true) => Links::Follow,
        _ => Links::Skip,
    }
}
