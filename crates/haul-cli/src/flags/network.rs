//! Flags about connections and bandwidth.

use super::values::{Span, path, span};
use crate::bwlimit::Timetable;
use haul_store::{
    Buffers, Gate, Net,
    lanes::{Pinned, Roads},
};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Connections, bandwidth, request rate.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Network")]
pub struct NetworkFlags {
    /// Limit the bandwidth in KiB/s or with a suffix: 10M, 10M:1M (up:down), or a timetable: "08:00,512k 19:00,off"
    #[arg(long, value_name = "LIMIT", value_parser = Timetable::parse)]
    pub bwlimit: Option<Timetable>,
    /// Also trust these certificate authorities (PEM file; may repeat)
    #[arg(long, value_name = "FILE", value_parser = path)]
    pub ca_cert: Vec<PathBuf>,
    /// Give up connecting after this long
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1m")]
    pub contimeout: Span,
    /// Log requests and answers, without secrets; as -v, it shows transfers too
    #[arg(long, value_name = "WHAT")]
    pub dump: Option<Dump>,
    /// List the whole destination, even where looking up single files is cheaper
    #[arg(long)]
    pub fast_list: bool,
    /// Don't verify the server's certificate (unsafe)
    #[arg(long)]
    pub no_check_certificate: bool,
    /// Give up if no data moves for this long
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "5m")]
    pub timeout: Span,
    /// Maximum requests per second; 0 means no limit
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub tpslimit: f64,
    /// Maximum burst of requests under --tpslimit
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub tpslimit_burst: u32,
    /// The User-Agent header
    #[arg(long, value_name = "TEXT")]
    pub user_agent: Option<String>,
    /// Maximum connections to one host; 0 leaves it to haul
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_connections: usize,
}

/// `--dump`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// Request lines and headers
    Headers,
}

/// A time limit that stands for "never", where the network needs some number.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long to wait. As in rclone, 0 means no limit.
pub fn patience(limit: Option<Duration>) -> Duration {
    limit.filter(|limit| !limit.is_zero()).unwrap_or(FOREVER)
}

/// What all network stores share, as the flags say.
pub fn net(flags: &super::Flags) -> Net {
    let (pace, copy) = (&flags.pace, &flags.copy);
    let flags = &flags.network;
    let default = Net::default();
    Net {
        connect_timeout: patience(flags.contimeout.0),
        idle_timeout: patience(flags.timeout.0),
        connections: if flags.max_connections > 0 { flags.max_connections } else { default.connections },
        user_agent: flags.user_agent.clone().unwrap_or(default.user_agent),
        insecure_tls: flags.no_check_certificate,
        ca_certs: flags.ca_cert.clone(),
        gate: Arc::new(Gate::per_second(flags.tpslimit, flags.tpslimit_burst)),
        roads: Arc::new(Roads::new(Pinned {
            // As many requests as the files and their parts that the user asked for; parts alone pin no more than one file.
            data: pace.transfers.map(|files| files.max(1) * copy.multi_thread_streams.unwrap_or(haul::STREAMS).max(1)),
            meta: pace.checkers.map(|n| n.max(1)),
            connections: flags.max_connections > 0,
        })),
        buffers: Buffers::keeping(usize::try_from(super::transfer::max_memory(copy) / 4).unwrap_or(usize::MAX)),
        dump_headers: flags.dump == Some(Dump::Headers),
    }
}
