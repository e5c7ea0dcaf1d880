//! Settings that imitate a kind of cloud, with where each figure comes from.

/// A preset: its name, and what it sets.
type Preset = (&'static str, &'static [(&'static str, &'static str)]);

const PRESETS: &[Preset] = &[
    // Rates: "Best practices design patterns: optimizing Amazon S3 performance" (S3 User Guide): at least 3,500 PUT,
    // COPY, POST, DELETE and 5,500 GET, HEAD a second for each partitioned prefix, 503 Slow Down beyond. Connections:
    // "Performance design patterns", there: one request for each 85 to 90 MB/s that are wanted. Latency: that page
    // promises 100 to 200 ms for small content; clients in the same region measure 20 to 60 ms to the first byte, and
    // a write takes longer than a read. A rate holds for the whole bucket here: one partition.
    (
        "aws-like",
        &[
            ("latency", "lognormal:20ms,0.3"),
            ("read-latency", "5ms"),
            ("write-latency", "lognormal:20ms,0.4"),
            ("connection-rate", "88M"),
            ("rate-in", "off"),
            ("rate-out", "off"),
            ("requests-per-second", "off"),
            ("read-requests-per-second", "5500"),
            ("write-requests-per-second", "3500"),
            ("reject", "503"),
            ("retry-after", "off"),
            ("price", "aws"),
        ],
    ),
    // A university HPC group's post on rclone with Google Drive: 1,000 files of 1 MB up took 1,293 s with one transfer
    // (1.29 s each) and 199 s with 8, 16 or 32 (5.03 a second); down 307 s with one (0.31 s each) and 93 s with 4 or
    // more (10.75 a second). A file of 5 GB moved at 25 to 40 MB/s whatever the number of transfers, so 1 MB takes
    // 31 ms at 32 MB/s and the rest is latency (a log-normal's mean is above its median by 2 % at 0.2). Drive answers
    // too many requests with 403 or 429 and tells no time to wait.
    (
        "gdrive-like",
        &[
            ("latency", "lognormal:100ms,0.2"),
            ("read-latency", "lognormal:170ms,0.2"),
            ("write-latency", "lognormal:1135ms,0.2"),
            ("connection-rate", "32M"),
            ("rate-in", "off"),
            ("rate-out", "off"),
            ("requests-per-second", "off"),
            ("read-requests-per-second", "10.75"),
            ("write-requests-per-second", "5.03"),
            ("reject", "429"),
            ("retry-after", "off"),
            ("price", "gdrive"),
        ],
    ),
    // Rate: "Rate limits" (Backblaze documentation, cloud-storage-rate-limits): a new account has 500 requests a
    // second for uploads and downloads; beyond, the S3 interface answers 503 SlowDown, which may come with
    // Retry-After. Latency and connections are no promise of Backblaze's but what distant clients see: 100 to 200 ms
    // and about 25 MB/s.
    (
        "b2-like",
        &[
            ("latency", "lognormal:120ms,0.3"),
            ("read-latency", "off"),
            ("write-latency", "lognormal:40ms,0.3"),
            ("connection-rate", "25M"),
            ("rate-in", "off"),
            ("rate-out", "off"),
            ("requests-per-second", "500"),
            ("read-requests-per-second", "off"),
            ("write-requests-per-second", "off"),
            ("reject", "503"),
            ("retry-after", "1s"),
            ("price", "b2"),
        ],
    ),
    // A server in the same room: half a millisecond, and a 10 Gbit/s link, which carries 1.18 GB/s of content (of
    // 1,538 bytes on the wire for each Ethernet frame 1,448 are TCP's payload). No limits of requests.
    (
        "lan-minio",
        &[
            ("latency", "500us"),
            ("read-latency", "off"),
            ("write-latency", "off"),
            ("connection-rate", "off"),
            ("rate-in", "1.18G"),
            ("rate-out", "1.18G"),
            ("requests-per-second", "off"),
            ("read-requests-per-second", "off"),
            ("write-requests-per-second", "off"),
            ("price", "none"),
        ],
    ),
];

/// Names and values of the settings that a preset sets.
///
/// Errors: no preset has this name.
pub fn pairs(name: &str) -> Result<&'static [(&'static str, &'static str)], String> {
    let preset = PRESETS.iter().find(|(its, _)| *its == name);
    let names = || PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    preset.map(|(_, pairs)| *pairs).ok_or_else(|| format!("want one of {}", names()))
}

#[cfg(test)]
mod tests {
    use super::{super::settings::Settings, *};

    #[test]
    fn every_preset_can_be_set() {
        for (name, pairs) in PRESETS {
            let mut settings = Settings::default();
            settings.set("preset", name).unwrap();
            assert!(!pairs.is_empty() && settings != Settings::default(), "{name}");
        }
        assert_eq!(pairs("mars-like"), Err("want one of aws-like, gdrive-like, b2-like, lan-minio".into()));
    }
}
