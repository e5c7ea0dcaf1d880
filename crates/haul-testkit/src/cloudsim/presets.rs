//! Settings that imitate a kind of cloud, with where each figure comes from.

use super::settings::Settings;

/// A preset: its name, and what it sets.
type Preset = (&'static str, &'static [(&'static str, &'static str)]);

const PRESETS: &[Preset] = &[
    // "Performance design patterns for Amazon S3" (AWS, S3 User Guide): "at least 3,500 PUT/COPY/POST/DELETE or 5,500
    // GET/HEAD requests per second per partitioned prefix", more is answered 503 Slow Down; "small object latencies ...
    // consistently in the tens of milliseconds", first byte in "100-200 milliseconds" for larger ones; and one
    // "concurrent request for each 85-90 MB/s of desired network throughput". The medians here are in the middle of
    // the 20 to 60 ms that clients in the same region see.
    (
        "aws-like",
        &[
            ("latency", "lognormal:20ms,0.3"),
            ("read-latency", "5ms"),
            ("write-latency", "lognormal:20ms,0.4"),
            ("connection-rate", "88M"),
            ("read-requests-per-second", "5500"),
            ("write-requests-per-second", "3500"),
            ("reject", "503"),
            ("retry-after", "off"),
            ("price", "aws"),
        ],
    ),
    // A university HPC group's post on rclone and Google Drive: 1,000 files of 1 MB up took 1,293 s with one transfer
    // (1.29 s each) and 199 s with 8, 16 or 32 (5 a second); down 307 s with one (0.31 s each) and 93 s with 4 or more
    // (10.75 a second). One file of 5 GB moved at 25 to 40 MB/s whatever the number of transfers. Of the time of a
    // megabyte, 1 MB at 32 MB/s takes 31 ms. Google answers too many requests with 403 or 429.
    (
        "gdrive-like",
        &[
            ("latency", "lognormal:100ms,0.2"),
            ("read-latency", "lognormal:175ms,0.2"),
            ("write-latency", "lognormal:1150ms,0.2"),
            ("connection-rate", "32M"),
            ("read-requests-per-second", "10.75"),
            ("write-requests-per-second", "5.03"),
            ("reject", "429"),
            ("retry-after", "off"),
            ("price", "gdrive"),
        ],
    ),
    // Backblaze tells 100 to 200 ms to the first byte for distant clients, and a connection of about 25 MB/s; its
    // limits are told below.
    (
        "b2-like",
        &[
            ("latency", "lognormal:120ms,0.3"),
            ("write-latency", "lognormal:30ms,0.3"),
            ("connection-rate", "25M"),
            ("read-requests-per-second", "20,40"),
            ("write-requests-per-second", "50,100"),
            ("reject", "503"),
            ("retry-after", "1s"),
            ("price", "b2"),
        ],
    ),
    // A server in the same room: half a millisecond, a 10 Gbit/s link (1.25 GB/s less what Ethernet, IP and TCP take of
    // a 1500-byte frame, 5 %), no limits.
    (
        "lan-minio",
        &[
            ("latency", "500us"),
            ("read-latency", "0"),
            ("write-latency", "0"),
            ("connection-rate", "off"),
            ("rate-in", "1.18G"),
            ("rate-out", "1.18G"),
            ("read-requests-per-second", "off"),
            ("write-requests-per-second", "off"),
            ("price", "none"),
        ],
    ),
];

/// Sets what a preset sets.
///
/// Errors: no preset has this name.
pub fn apply(name: &str, settings: &mut Settings) -> Result<(), String> {
    let preset = PRESETS.iter().find(|(its, _)| *its == name);
    let names = || PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let (_, pairs) = preset.ok_or_else(|| format!("want one of {}", names()))?;
    pairs.iter().try_for_each(|(name, value)| settings.set(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be_set() {
        for (name, pairs) in PRESETS {
            let mut settings = Settings::default();
            apply(name, &mut settings).unwrap();
            assert!(!pairs.is_empty() && settings != Settings::default(), "{name}");
        }
        let wrong = apply("mars-like", &mut Settings::default());
        assert_eq!(wrong, Err("want one of aws-like, gdrive-like, b2-like, lan-minio".into()));
    }
}
