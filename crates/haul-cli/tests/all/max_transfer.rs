//! `--max-transfer` by the real binary: with a hard cut-off not a byte of content more goes over the line, and the next run goes on.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{assert_same, files, noise, read, write},
    lab::Lab,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: u64 = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
/// What requests and answers hold beside content, at most.
const TALK: u64 = 200_000;
const SAID: &str = "NOTICE: Stopped: --max-transfer was reached. Run the same command to transfer more.\n";

fn lab() -> (Cloudsim, Lab) {
    let (server, lab) = (Cloudsim::with(&[("latency", "20ms")]), Lab::new(HAUL));
    server.bucket("b", None);
    lab.remote("r", &server.endpoint());
    (server, lab)
}

/// Runs until all is there: three times with a limit of 13 MiB, then without; each time no more than allowed, and nothing twice.
fn in_steps(lab: &Lab, how: &[&str], across: &dyn Fn() -> u64) {
    let mut all = 0;
    for step in 1..=3 {
        let before = across();
        let ran = lab
            .haul(&[how, &["--max-transfer=13Mi", "--s3-chunk-size=5Mi", "--multi-thread-chunk-size=5Mi"]].concat())
            .code(8);
        assert!(ran.err.contains(SAID) && ran.err.contains("1 large file was partly sent ("), "{}", ran.err);
        assert!(!ran.err.contains("ERROR"), "{}", ran.err);
        let moved = across() - before;
        assert!(moved <= 13 * MIB + TALK, "{how:?}: {moved} bytes in step {step}");
        assert!(moved >= 10 * MIB, "{how:?}: only {moved} bytes in step {step}");
        all += moved;
    }
    let before = across();
    lab.haul(&[how, &["--s3-chunk-size=5Mi", "--multi-thread-chunk-size=5Mi"]].concat()).ok();
    all += across() - before;
    assert!(all <= 48 * MIB + 4 * TALK, "{how:?}: {all} bytes of 48 MiB");
}

#[test]
fn a_large_file_goes_in_steps() {
    let (server, lab) = lab();
    write(&lab.path("src/large"), &noise(1, 48 << 20), TIME);
    in_steps(&lab, &["copy", "@src", "r:b/up"], &|| server.report().bytes_in);
    in_steps(&lab, &["copy", "r:b/up", "@back"], &|| server.report().bytes_out);
    assert_same(&files(&read(&lab.path("src"))), &files(&read(&lab.path("back"))), "there and back");
    let other = Cloudsim::with(&[]);
    other.bucket("b", None);
    lab.remote("other", &other.endpoint());
    in_steps(&lab, &["copy", "r:b/up", "other:b"], &|| other.report().bytes_in);
    assert!(other.get("b", b"large").unwrap().bytes == noise(1, 48 << 20));
}

#[test]
fn a_copy_inside_the_service_that_does_not_fit_stops_no_other() {
    let (server, lab) = (Cloudsim::with(&[("latency", "50ms")]), Lab::new(HAUL));
    server.bucket("b", None);
    lab.remote("r", &server.endpoint());
    write(&lab.path("src/1"), &noise(1, 12 << 20), TIME);
    write(&lab.path("src/2"), &noise(2, 48 << 20), TIME);
    lab.haul(&["copy", "@src", "r:b/up"]).ok();
    // Copied by one request, it goes as a whole or not at all.
    lab.haul(&["copy", "r:b/up/2", "r:b/copy", "--max-transfer=13Mi"]).code(8);
    assert_eq!(lab.haul(&["lsf", "r:b"]).ok().out, "up/\n");
    let copy = ["copy", "r:b/up", "r:b/copy", "--s3-copy-cutoff=5Mi", "--s3-upload-concurrency=1"];
    let limited = [&copy[..], &["--max-transfer=13Mi"]].concat();
    let ran = lab.haul(&limited).code(8);
    assert!(ran.err.contains(SAID) && ran.err.contains("1 large file was partly sent ("), "{}", ran.err);
    assert_eq!(lab.haul(&["lsf", "r:b/copy"]).ok().out, "1\n", "it had its allowance");
    // What was copied before counts no more.
    let runs = (0..8).take_while(|_| lab.haul(&limited).code == 8).count();
    assert!((2..=4).contains(&runs), "{runs}");
    assert_eq!(lab.haul(&["check", "r:b/up", "r:b/copy"]).code, 0);
}

#[test]
fn of_small_files_as_many_go_as_fit() {
    let (server, lab) = lab();
    (0..40).for_each(|n| write(&lab.path(&format!("src/{n:02}")), &noise(n, 300_000), TIME));
    for (step, there) in [(1, 13), (2, 26)] {
        let before = server.report().bytes_in;
        let ran = lab.haul(&["copy", "@src", "r:b/up", "--max-transfer=4000000B"]).code(8);
        assert!(ran.err.ends_with(SAID) && !ran.err.contains("ERROR"), "{}", ran.err);
        let moved = server.report().bytes_in - before;
        assert!(moved <= 4_000_000 + TALK, "{moved} in step {step}");
        assert_eq!(server.keys("b").len(), there, "whole files, and no more than fit");
    }
    let before = server.report().bytes_out;
    lab.haul(&["copy", "r:b/up", "@back", "--max-transfer=4000000B"]).code(8);
    let moved = server.report().bytes_out - before;
    assert!(moved <= 4_000_000 + TALK, "{moved}");
    assert_eq!(read(&lab.path("back")).len(), 13);
    // Exactly the limit is within it.
    lab.haul(&["copy", "@src", "r:b/all", "--max-transfer=12000000B"]).ok();
    lab.haul(&["copy", "@src", "@local", "--max-transfer=4000000B"]).code(8);
    assert_eq!(read(&lab.path("local")).len(), 13);
    lab.haul(&["copy", "r:b/all", "r:b/copy", "--max-transfer=4000000B"]).code(8);
    assert_eq!(lab.haul(&["lsf", "r:b/copy"]).ok().out.lines().count(), 13);
}
