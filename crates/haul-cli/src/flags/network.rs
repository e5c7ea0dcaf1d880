//! Flags about connections and bandwidth.

use super::values::{Span, path, span};
use crate::{bwlimit::Timetable, error::usage};
use anyhow::Result;
use haul_remotes::config::obscure::reveal;
use haul_store::{
    Buffers, ClientCert, Gate, Header, Headers, Net, Proxies,
    lanes::{EndpointLanes, FixedLimits},
    patience,
};
use std::{net::IpAddr, path::PathBuf, sync::Arc};

/// Connections, bandwidth, request rate.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Network")]
pub struct NetworkFlags {
    /// Limit the bandwidth in KiB/s or with a suffix: 10M, 10M:1M (up:down), or a timetable: "08:00,512k 19:00,off"
    #[arg(long, value_name = "LIMIT", value_parser = Timetable::parse)]
    pub bwlimit: Option<Timetable>,
    /// Limit the bandwidth of each single file, as --bwlimit does for all together
    #[arg(long, value_name = "LIMIT", value_parser = Timetable::parse)]
    pub bwlimit_file: Option<Timetable>,
    /// Use this local address for connections
    #[arg(long, value_name = "ADDR")]
    pub bind: Option<IpAddr>,
    /// Also trust these certificate authorities (PEM file; may repeat)
    #[arg(long, value_name = "FILE", value_parser = path)]
    pub ca_cert: Vec<PathBuf>,
    /// Present this certificate (PEM file) to servers that ask for one
    #[arg(long, value_name = "FILE", value_parser = path)]
    pub client_cert: Option<PathBuf>,
    /// The key of --client-cert (PEM file); by default in the same file
    #[arg(long, value_name = "FILE", value_parser = path, requires = "client_cert")]
    pub client_key: Option<PathBuf>,
    /// The obscured password of an encrypted --client-key
    #[arg(long, value_name = "PASSWORD", requires = "client_cert")]
    pub client_pass: Option<String>,
    /// Give up connecting after this long
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1m")]
    pub contimeout: Span,
    /// Make a new connection for each request
    #[arg(long)]
    pub disable_http_keep_alives: bool,
    /// Mark packets for routers that give priorities: LE, CS0 to CS7, AF11 to AF43, EF, BE, or a number up to 63
    #[arg(long, value_name = "CLASS", value_parser = dscp)]
    pub dscp: Option<u8>,
    /// Log requests and responses, without secrets; also logs transfers, like -v
    #[arg(long, value_name = "WHAT")]
    pub dump: Option<Dump>,
    /// List the whole destination, even where looking up single files is cheaper
    #[arg(long)]
    pub fast_list: bool,
    /// Add a header to every request: "Name: value" (may repeat)
    #[arg(long, value_name = "HEADER", value_parser = header)]
    pub header: Vec<Header>,
    /// Add a header to requests that download content (may repeat)
    #[arg(long, value_name = "HEADER", value_parser = header)]
    pub header_download: Vec<Header>,
    /// Add a header to requests that upload content (may repeat)
    #[arg(long, value_name = "HEADER", value_parser = header)]
    pub header_upload: Vec<Header>,
    /// Connect through this proxy, whatever HTTPS_PROXY and the like say: http://HOST:PORT, https:// or socks5://
    #[arg(long, value_name = "URL", value_parser = proxy)]
    pub http_proxy: Option<Proxies>,
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
    /// Keep cookies that servers set, for this run
    #[arg(long)]
    pub use_cookies: bool,
    /// The User-Agent header
    #[arg(long, value_name = "TEXT")]
    pub user_agent: Option<String>,
    /// Maximum connections to one host; 0 lets haul choose
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_connections: usize,
}

/// A class of service: its name, or its number.
fn dscp(text: &str) -> Result<u8, String> {
    let name = text.to_ascii_uppercase();
    let digits = |rest: &str| rest.chars().map(|c| c.to_digit(10)).collect::<Option<Vec<u32>>>();
    let class = match name.as_str() {
        "BE" | "DF" => Some(0),
        "LE" => Some(1),
        "EF" => Some(46),
        _ => match (name.get(..2), name.get(2..).and_then(digits).as_deref()) {
            (Some("CS"), Some([class @ 0..=7])) => Some(class * 8),
            (Some("AF"), Some([class @ 1..=4, drop @ 1..=3])) => Some(class * 8 + drop * 2),
            _ => name.parse().ok().filter(|class| *class < 64),
        },
    };
    class
        .and_then(|class| u8::try_from(class).ok())
        .ok_or_else(|| format!("{text:?} is no class: write LE, CS0 to CS7, AF11 to AF43, EF, BE or a number up to 63"))
}

fn header(text: &str) -> Result<Header, String> {
    Header::parse(text).map_err(|e| e.message().to_owned())
}

fn proxy(text: &str) -> Result<Proxies, String> {
    Proxies::always(text).map_err(|e| e.message().to_owned())
}

/// `--dump`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// Request lines and headers
    Headers,
}

/// Settings of all network stores, by the flags.
///
/// Errors: a password that isn't obscured.
pub fn net(flags: &super::Flags) -> Result<Net> {
    let (pace, copy) = (&flags.pace, &flags.copy);
    let flags = &flags.network;
    let default = Net::default();
    let client_pass = flags.client_pass.as_deref().map(|pass| {
        reveal(pass).map_err(|_| usage("--client-pass isn't an obscured password: type haul obscure PASSWORD"))
    });
    let client_pass = client_pass.transpose()?;
    Ok(Net {
        connect_timeout: patience(flags.contimeout.0),
        idle_timeout: patience(flags.timeout.0),
        connections: if flags.max_connections > 0 { flags.max_connections } else { default.connections },
        user_agent: flags.user_agent.clone().unwrap_or(default.user_agent),
        insecure_tls: flags.no_check_certificate,
        ca_certs: flags.ca_cert.clone(),
        client_cert: flags.client_cert.clone().map(|cert| {
            let key = flags.client_key.clone().unwrap_or_else(|| cert.clone());
            ClientCert { cert, key, password: client_pass.clone() }
        }),
        cookies: flags.use_cookies.then(Arc::default),
        keep_alive: !flags.disable_http_keep_alives,
        class: flags.dscp,
        bind: flags.bind,
        // Those of the environment count where none is typed: the session reads them.
        proxies: flags.http_proxy.clone().unwrap_or_default(),
        headers: Headers::new(&flags.header, &flags.header_upload, &flags.header_download),
        gate: Arc::new(Gate::per_second(flags.tpslimit, flags.tpslimit_burst)),
        clock: default.clock,
        roads: Arc::new(EndpointLanes::new(FixedLimits {
            // As many requests as the files and their parts that the user asked for; parts alone pin no more than one file.
            data: pace.transfers.map(|files| files.max(1) * copy.multi_thread_streams.unwrap_or(haul::STREAMS).max(1)),
            meta: pace.checkers.map(|n| n.max(1)),
            connections: flags.max_connections > 0,
        })),
        buffers: Buffers::keeping(usize::try_from(super::transfer::max_memory(copy) / 4).unwrap_or(usize::MAX)),
        dump_headers: flags.dump == Some(Dump::Headers),
        // The session reads it from the environment.
        runtime: default.runtime,
        // So does who knows the folder.
        state: default.state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_names_or_numbers() {
        for (text, class) in
            [("BE", 0), ("le", 1), ("CS1", 8), ("cs7", 56), ("AF11", 10), ("AF43", 38), ("EF", 46), ("63", 63)]
        {
            assert_eq!(dscp(text), Ok(class), "{text}");
        }
        for bad in ["CS8", "AF14", "AF5", "64", "-1", "", "\u{e4}\u{f6}"] {
            assert!(dscp(bad).unwrap_err().contains("is no class"), "{bad}");
        }
    }
}
