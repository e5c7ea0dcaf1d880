//! Exit codes that scripts go by, each come to as a user would come to it. 3, 4, 11, 23 and 25 are also met beside rsync
//! elsewhere.

use super::{each, oracle::Compare};
use haul_testkit::{
    cloudsim::Cloudsim,
    folder::write,
    lab::{Lab, until},
};
use std::{fs, process::Command};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// A bucket `b` of a remote `r` that behaves like this, with a file of 1 MB and two small ones.
fn cloud(settings: &[(&str, &str)]) -> (Cloudsim, Lab) {
    let (cloud, lab) = (Cloudsim::with(settings), Lab::new(HAUL));
    cloud.bucket("b", None);
    for (key, size) in [("a", 10), ("big", 1 << 20), ("z", 10)] {
        cloud.put("b", key.as_bytes(), vec![7; size], &[]);
    }
    lab.remote("r", &cloud.endpoint());
    (cloud, lab)
}

#[test]
fn done_wrong_usage_and_wrong_places() {
    let lab = Lab::new(HAUL);
    write(&lab.path("s/a"), b"a", 1_000_000_000);
    write(&lab.path("s/b"), b"b", 1_000_000_000);
    assert_eq!(lab.haul(&["rsync", "-a", "@s/", "@d"]).code, 0);
    assert_eq!(lab.haul(&["rsync", "-a", "--no-such-option", "@s/", "@d"]).code, 1);
    assert_eq!(lab.haul(&["rsync", "-a", "@s/", "@s/a"]).code, 3, "a folder to a file");
    assert_eq!(lab.haul(&["rsync", "-a", "@s/", "host::module"]).code, 4);
    assert_eq!(lab.haul(&["rsync", "-a", "@s/", "@no/such/place"]).code, 11);
    assert_eq!(lab.haul(&["rsync", "-a", "@s/a", "@s/nosuch", "@d"]).code, 23);
    assert_eq!(lab.haul(&["rsync", "-a", "--delete", "--max-delete=0", "@s/b", "@s/", "@d"]).code, 0);
    fs::write(lab.path("d/extra"), "").unwrap();
    assert_eq!(lab.haul(&["rsync", "-a", "--delete", "--max-delete=0", "@s/", "@d"]).code, 25);
}

#[test]
fn options_that_cannot_be_meant_end_as_in_rsync() {
    each(
        "mkdir -p s dst; echo a>s/a; touch -d 2020-01-01T00:00:00Z s/a s dst; echo a>list",
        Compare::Trees,
        &[
            "-a --files-from=none s/ dst",
            "-a --files-from=list none/ dst",
            "-a --files-from=list s/a dst",
            "-a --exclude-from=none s/ dst",
            "-a --include-from=none s/ dst",
            "-a --filter=._none s/ dst",
            "-a --filter=x s/ dst",
            "-a --inplace --partial-dir=p s/ dst",
            "-a --append --partial-dir=p s/ dst",
            "-a --append-verify --partial-dir=p s/ dst",
            "-a --partial-dir=p s/ dst",
            "-a --checksum-choice=bogus s/ dst",
            "-a --checksum-choice=md5,bogus s/ dst",
            "-a --checksum-choice=md5 s/ dst",
        ],
    );
}

#[test]
fn a_signal_is_20() {
    for signal in ["-INT", "-TERM"] {
        let (cloud, lab) = cloud(&[("connection-rate", "50K")]);
        let child = lab.start(&["rsync", "-a", "r:b/", "@d"]);
        assert!(until(|| cloud.report().requests.get("GetObject").is_some_and(|n| *n > 2)));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let ran = lab.end(child);
        assert_eq!(ran.code, 20, "{signal}: {}", ran.err);
        assert!(!lab.path("d/big").exists());
    }
}

#[test]
fn files_that_vanish_are_24() {
    let (cloud, lab) = cloud(&[("latency", "2s")]);
    let child = lab.start(&["rsync", "-a", "r:b/", "@d"]);
    assert!(until(|| cloud.report().requests.get("GetObject").is_some_and(|n| *n > 0)));
    cloud.bucket("b", None);
    let ran = lab.end(child);
    assert_eq!(ran.code, 24, "{}", ran.err);
    assert!(ran.err.contains("haul rsync: file has vanished: \"big\""), "{}", ran.err);
}

#[test]
fn no_answer_in_time_is_30() {
    let (_cloud, lab) = cloud(&[("fault", "stall=1"), ("stall-for", "60s")]);
    let ran = lab.haul(&["--low-level-retries=1", "rsync", "-a", "--timeout=1", "r:b/", "@d"]);
    assert_eq!(ran.code, 30, "{}", ran.err);
}
