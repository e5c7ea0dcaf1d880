//! Very many keys in one flat prefix, in bounded memory.

use haul_testkit::{
    amount::rounds,
    cloudsim::Cloudsim,
    lab::{Lab, peak},
    peers,
};
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
/// In KiB.
const MOST_MEMORY: u64 = 200 << 10;

fn run(lab: &Lab, args: &[&str]) -> (u64, u64) {
    let mut command = lab.haul_command(args);
    let (out, err) = (File::create(lab.path("out")).unwrap(), File::create(lab.path("err")).unwrap());
    command.stdout(out).stderr(err);
    let (code, peak) = peak(command);
    assert_eq!(code, 0, "{args:?}: {}", fs::read_to_string(lab.path("err")).unwrap());
    eprintln!("{args:?}: {peak} KiB at most");
    assert!(peak > 0 && peak < MOST_MEMORY, "{args:?} took {peak} KiB");
    let count = |name: &str| BufReader::new(File::open(lab.path(name)).unwrap()).lines().count() as u64;
    (count("out"), count("err"))
}

#[test]
fn a_million_keys_take_little_memory() {
    if !cfg!(target_os = "linux") {
        return peers::skip("peak memory is read from /proc");
    }
    // With a fifth of them what a key takes still shows: rclone's kilobyte for each would be this much.
    let keys = rounds(200_000, 1_000_000);
    let bucket = format!("b:keys={keys},shape=flat,size=1");
    let (server, lab) = (Cloudsim::with(&[("bucket", &bucket)]), Lab::new(HAUL));
    lab.remote("s", &server.endpoint());
    for verb in ["ls", "lsf"] {
        assert_eq!(run(&lab, &[verb, "s:b"]).0, keys, "{verb}");
    }
    run(&lab, &["size", "s:b"]);
    let size = fs::read_to_string(lab.path("out")).unwrap();
    assert!(size.contains(&format!("({keys})")), "{size}");
    let (_, lines) = run(&lab, &["sync", "s:b", "@dst", "--dry-run"]);
    assert!(lines >= keys, "{lines} lines");
    // Both sides large, and nothing to do.
    let other = Cloudsim::with(&[("bucket", &bucket)]);
    lab.remote("t", &other.endpoint());
    run(&lab, &["sync", "s:b", "t:b", "--size-only"]);
}
