//! Settings: one table of names from which the command line, the admin path and the help are made.

use super::{
    delay::{Delay, duration},
    faults::Faults,
    limits::Rate,
    presets,
    price::Price,
    quirks::Quirks,
    synthetic::SyntheticContent,
    units::bytes,
};
use std::{net::SocketAddr, time::Duration};

/// What is kept of content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All of it, in memory.
    #[default]
    Bytes,
    /// Its size and CRC-64/NVME: reading it back gives a pattern.
    Sizes,
}

/// How a simulated cloud behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// Threads that serve.
    pub threads: usize,
    /// From the end of a request to the beginning of its answer.
    pub latency: Delay,
    /// More of it for GET and HEAD.
    pub read_latency: Delay,
    /// More of it for PUT, POST and DELETE.
    pub write_latency: Delay,
    /// Bytes a second of one connection, each way.
    pub connection_rate: Option<u64>,
    /// Bytes a second to the server.
    pub rate_in: Option<u64>,
    /// Bytes a second from the server.
    pub rate_out: Option<u64>,
    /// All requests.
    pub requests_per_second: Option<Rate>,
    /// GET and HEAD.
    pub read_requests_per_second: Option<Rate>,
    /// PUT, POST and DELETE.
    pub write_requests_per_second: Option<Rate>,
    /// Status of a request beyond a rate: 503 or 429.
    pub reject: u16,
    /// Told with it.
    pub retry_after: Option<Duration>,
    /// Connections at once; one more is closed at its first request.
    pub max_connections: Option<usize>,
    /// Keys of a page of a listing, at most.
    pub page: usize,
    /// How long a new key takes to appear in listings.
    pub list_delay: Duration,
    /// What goes wrong.
    pub faults: Faults,
    /// How long a stalled body stops.
    pub stall_for: Duration,
    /// Of faults and drawn delays.
    pub seed: u64,
    /// What is kept of content.
    pub keep: Keep,
    /// Buckets to begin with.
    pub buckets: Vec<(String, Option<SyntheticContent>)>,
    /// The price list.
    pub price: Price,
    /// Keep a log of requests.
    pub log: bool,
    /// ETags are MD5s, computed when the client didn't send one. Else such an ETag is one that doesn't look like an MD5.
    pub etag_md5: bool,
    /// Check neither `Content-MD5` nor signatures.
    pub trusting: bool,
    /// The region to sign for.
    pub region: String,
    /// Buckets are named by AWS's rules.
    pub strict_names: bool,
    /// What it does otherwise than AWS.
    pub quirks: Quirks,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: 2,
            latency: Delay::None,
            read_latency: Delay::None,
            write_latency: Delay::None,
            connection_rate: None,
            rate_in: None,
            rate_out: None,
            requests_per_second: None,
            read_requests_per_second: None,
            write_requests_per_second: None,
            reject: 503,
            retry_after: None,
            max_connections: None,
            page: 1000,
            list_delay: Duration::ZERO,
            faults: Faults::default(),
            stall_for: Duration::from_secs(30),
            seed: 0,
            keep: Keep::Bytes,
            buckets: Vec::new(),
            price: Price::None,
            log: false,
            etag_md5: false,
            trusting: false,
            region: "us-east-1".to_owned(),
            strict_names: false,
            quirks: Quirks::default(),
        }
    }
}

/// One setting.
pub struct Flag {
    /// Its name on the command line and at the admin path.
    pub name: &'static str,
    /// What its value is called; empty for one that is on or off.
    pub value: &'static str,
    /// What it does.
    pub help: &'static str,
    /// It can be changed later, and for one bucket.
    pub later: bool,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// All settings.
pub const FLAGS: &[Flag] = &[
    fixed("listen", "ADDRESS:PORT", "Where to listen; port 0 takes any that is free [default: 127.0.0.1:0]", |s, v| {
        s.listen = v.parse().map_err(|_| "want an address and port such as 127.0.0.1:9000")?;
        Ok(())
    }),
    fixed("threads", "N", "Threads that serve [default: 2]", |s, v| whole(v, 1..=64).map(|n| s.threads = n as usize)),
    flag(
        "preset",
        "NAME",
        "aws-like, gdrive-like, b2-like or lan-minio: sets several of the others, which override it",
        |s, v| presets::pairs(v)?.iter().try_for_each(|(name, value)| s.set(name, value)),
    ),
    flag(
        "latency",
        "TIME",
        "From the end of a request to the first byte of its answer: 50ms, or lognormal:50ms,0.4 (median, sigma)",
        |s, v| v.parse().map(|d| s.latency = d),
    ),
    flag("read-latency", "TIME", "More latency of GET and HEAD", |s, v| v.parse().map(|d| s.read_latency = d)),
    flag("write-latency", "TIME", "More latency of PUT, POST and DELETE", |s, v| {
        v.parse().map(|d| s.write_latency = d)
    }),
    flag(
        "connection-rate",
        "BYTES",
        "Bytes a second of one connection, each way: 25M (decimal k, M, G) or off",
        |s, v| rate(v).map(|r| s.connection_rate = r),
    ),
    flag("rate-in", "BYTES", "Bytes a second to the server in all", |s, v| rate(v).map(|r| s.rate_in = r)),
    flag("rate-out", "BYTES", "Bytes a second from the server in all", |s, v| rate(v).map(|r| s.rate_out = r)),
    flag(
        "requests-per-second",
        "N[,BURST]",
        "Requests beyond are rejected; after a pause BURST come through at once [a second's worth]",
        |s, v| optional(v).map(|r| s.requests_per_second = r),
    ),
    flag("read-requests-per-second", "N[,BURST]", "The same for GET and HEAD alone", |s, v| {
        optional(v).map(|r| s.read_requests_per_second = r)
    }),
    flag("write-requests-per-second", "N[,BURST]", "The same for PUT, POST and DELETE alone", |s, v| {
        optional(v).map(|r| s.write_requests_per_second = r)
    }),
    flag(
        "reject",
        "STATUS",
        "How a request beyond is rejected: 503 (SlowDown) or 429 (TooManyRequests) [default: 503]",
        |s, v| {
            s.reject = v.parse().ok().filter(|r| matches!(r, 503 | 429)).ok_or("want 503 or 429")?;
            Ok(())
        },
    ),
    flag(
        "retry-after",
        "TIME",
        "Told in a header with a rejection, in whole seconds; off for none [default: off]",
        |s, v| {
            s.retry_after = if is_off(v) { None } else { Some(duration(v)?) };
            Ok(())
        },
    ),
    flag("max-connections", "N", "One more is closed at its first request [default: off]", |s, v| {
        s.max_connections = if is_off(v) { None } else { Some(whole(v, 1..=1_000_000)? as usize) };
        Ok(())
    }),
    flag("page", "N", "Keys of a page of a listing at most [default: 1000]", |s, v| {
        whole(v, 1..=100_000).map(|n| s.page = n as usize)
    }),
    flag("list-delay", "TIME", "A new key appears in listings after this long", |s, v| {
        duration(v).map(|d| s.list_delay = d)
    }),
    flag(
        "fault",
        "KIND=RATE[,…]",
        "What goes wrong, for a share of requests from 0 to 1: error500, reset, cut, stall, wrong-etag, complete-error, lost-answer",
        |s, v| v.parse().map(|f| s.faults = f),
    ),
    flag("stall-for", "TIME", "How long a stalled body stops [default: 30s]", |s, v| {
        duration(v).map(|d| s.stall_for = d)
    }),
    flag("seed", "N", "Of faults and drawn delays [default: 0]", |s, v| whole(v, 0..=u64::MAX).map(|n| s.seed = n)),
    flag(
        "keep",
        "WHAT",
        "bytes: content stays in memory; sizes: only its size and CRC-64/NVME, and reading it gives a pattern [default: bytes]",
        |s, v| {
            s.keep = match v {
                "bytes" => Keep::Bytes,
                "sizes" => Keep::Sizes,
                _ => return Err("want bytes or sizes".into()),
            };
            Ok(())
        },
    ),
    flag(
        "etag",
        "WHAT",
        "ETag of content that came without Content-MD5: cheap (doesn't look like an MD5) or md5 (computed) [default: cheap]",
        |s, v| {
            s.etag_md5 = match v {
                "cheap" => false,
                "md5" => true,
                _ => return Err("want cheap or md5".into()),
            };
            Ok(())
        },
    ),
    flag(
        "trusting",
        "",
        "Check neither Content-MD5 (a second for 600 MB) nor signatures: where speed is measured",
        |s, v| yes(v).map(|y| s.trusting = y),
    ),
    flag(
        "region",
        "NAME",
        "The region that requests must be signed for; of a bucket of its own: where it is [default: us-east-1]",
        |s, v| {
            v.clone_into(&mut s.region);
            Ok(())
        },
    ),
    flag("strict-names", "", "Buckets are named by AWS's rules; else any name will do", |s, v| {
        yes(v).map(|y| s.strict_names = y)
    }),
    flag("quirk", "NAME[,…]", "What it does otherwise than AWS; docs/cloudsim.md has the list", |s, v| {
        v.parse().map(|q| s.quirks = q)
    }),
    flag(
        "provider",
        "NAME",
        "Sets region and quirks as a row of haul's table of providers has them: Cloudflare, GCS, …",
        |s, v| {
            let (quirks, region) = Quirks::of_provider(v).ok_or("want a name of haul's table of providers")?;
            s.quirks = quirks;
            region.clone_into(&mut s.region);
            Ok(())
        },
    ),
    flag("price", "NAME", "Count what the requests would cost: aws, b2, gdrive or none [default: none]", |s, v| {
        v.parse().map(|p| s.price = p)
    }),
    fixed(
        "bucket",
        "NAME[:keys=N,…]",
        "Make a bucket: an empty one, or with computed keys, as NAME:keys=1000000,shape=flat|tree|dvc,size=1000; repeatable",
        |s, v| {
            let (name, made) = v.split_once(':').map_or((v, None), |(name, made)| (name, Some(made)));
            if name.is_empty() || name.contains('/') {
                return Err(format!("{name:?} can't be a bucket's name"));
            }
            s.buckets.push((name.to_owned(), made.map(SyntheticContent::parse).transpose()?));
            Ok(())
        },
    ),
    fixed("log", "", "Keep a log of requests (a million at most) for GET /_cloudsim/log", |s, v| {
        yes(v).map(|y| s.log = y)
    }),
];

type Set = fn(&mut Settings, &str) -> Result<(), String>;

const fn flag(name: &'static str, value: &'static str, help: &'static str, set: Set) -> Flag {
    Flag { name, value, help, later: true, set }
}

const fn fixed(name: &'static str, value: &'static str, help: &'static str, set: Set) -> Flag {
    Flag { name, value, help, later: false, set }
}

impl Settings {
    /// Sets one by its name.
    ///
    /// Errors: the name is unknown or the value is none of it; in one line, which tells what is wanted.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let flag = FLAGS.iter().find(|flag| flag.name == name);
        let flag = flag.ok_or_else(|| format!("no setting is called {name:?}"))?;
        (flag.set)(self, value.trim()).map_err(|why| format!("{name} {value:?}: {why}"))
    }

    /// The settings with some set by name.
    ///
    /// Panics if [`Settings::set`] fails: for tests.
    #[track_caller]
    pub fn with(mut self, pairs: &[(&str, &str)]) -> Settings {
        for (name, value) in pairs {
            self.set(name, value).unwrap_or_else(|why| panic!("{why}"));
        }
        self
    }
}

fn is_off(text: &str) -> bool {
    matches!(text, "off" | "none" | "0" | "")
}

fn yes(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("want true or false".into()),
    }
}

fn whole(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let want = || format!("want a whole number from {} to {}", range.start(), range.end());
    text.parse().ok().filter(|n| range.contains(n)).ok_or_else(want)
}

fn optional(text: &str) -> Result<Option<Rate>, String> {
    if is_off(text) { Ok(None) } else { text.parse().map(Some) }
}

fn rate(text: &str) -> Result<Option<u64>, String> {
    if is_off(text) {
        return Ok(None);
    }
    bytes(text).and_then(|n| if n > 0 { Ok(Some(n)) } else { Err("want more than 0".into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_by_name() {
        let settings = Settings::default().with(&[
            ("latency", "lognormal:50ms,0.4"),
            ("connection-rate", "25M"),
            ("rate-in", "1.25G"),
            ("requests-per-second", "10,3"),
            ("reject", "429"),
            ("retry-after", "1s"),
            ("fault", "error500=0.01"),
            ("keep", "sizes"),
            ("bucket", "a"),
            ("bucket", "b:keys=10,shape=dvc,size=5"),
            ("log", ""),
        ]);
        assert_eq!((settings.connection_rate, settings.rate_in), (Some(25_000_000), Some(1_250_000_000)));
        assert_eq!((settings.reject, settings.retry_after), (429, Some(Duration::from_secs(1))));
        assert_eq!((settings.buckets.len(), settings.keep, settings.log), (2, Keep::Sizes, true));
    }

    #[test]
    fn a_later_one_overrides_a_preset() {
        let settings = Settings::default().with(&[("preset", "aws-like"), ("connection-rate", "1M")]);
        assert_eq!(settings.connection_rate, Some(1_000_000));
        assert!(settings.read_requests_per_second.is_some());
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (name, value, why) in [
            ("latencies", "1s", "no setting is called \"latencies\""),
            ("latency", "soon", "latency \"soon\": want a time such as 50ms, 1.5s or 2m"),
            ("reject", "500", "reject \"500\": want 503 or 429"),
            ("page", "0", "page \"0\": want a whole number from 1 to 100000"),
            ("rate-in", "fast", "rate-in \"fast\": want bytes as a number with k, M, G or T, such as 25M"),
            ("bucket", "a/b", "bucket \"a/b\": \"a/b\" can't be a bucket's name"),
        ] {
            assert_eq!(Settings::default().set(name, value), Err(why.to_owned()));
        }
    }
}
