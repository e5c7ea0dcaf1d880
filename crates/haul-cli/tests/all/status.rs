//! `haul status`: what it says, in three forms, and how it exits.

use haul_testkit::{cloudsim::Cloudsim, folder::write, lab::Lab};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;

fn lab() -> Lab {
    let lab = Lab::new(HAUL);
    for (path, text, time) in [
        ("src/same", "same", TIME),
        ("src/new/a", "new", TIME),
        ("src/longer", "longer", TIME),
        ("src/touched", "t", TIME + 5_000_000_000),
        ("dst/same", "same", TIME),
        ("dst/longer", "long", TIME),
        ("dst/touched", "t", TIME),
        ("dst/extra", "x", TIME),
    ] {
        write(&lab.path(path), text.as_bytes(), time);
    }
    lab
}

#[test]
fn what_a_copy_would_do() {
    let lab = lab();
    let ran = lab.haul(&["status", "@src", "@dst"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(
        ran.out,
        "New (1):\n  new/a\nChanged (2):\n  longer  (size)\n  touched  (time only)\n\
         1 new, 2 changed (9 B to transfer), 1 the same\n"
    );
    assert!(
        !lab.path("dst/new").exists() && fs::read(lab.path("dst/longer")).unwrap() == b"long",
        "nothing is changed"
    );
}

#[test]
fn what_a_sync_would_do_and_every_form() {
    let lab = lab();
    let ran = lab.haul(&["status", "--sync", "--size-only", "--combined", "@list", "@src", "@dst"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(
        ran.out,
        "New (1):\n  new/a\nChanged (1):\n  longer  (size)\nExtra (1):\n  extra\n\
         1 new, 1 changed (9 B to transfer), 1 to delete, 2 the same\n"
    );
    let list = fs::read_to_string(lab.path("list")).unwrap();
    let mut lines: Vec<&str> = list.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["* longer", "+ new/a", "- extra", "= same", "= touched"]);
    let ran = lab.haul(&["status", "--json", "--sync", "--size-only", "@src", "@dst"]);
    let mut lines: Vec<&str> = ran.out.lines().collect();
    let last = lines.pop().unwrap();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            r#"{"path":"extra","status":"extra","why":"extra","size":1}"#,
            r#"{"path":"longer","status":"changed","why":"size","size":6}"#,
            r#"{"path":"new/a","status":"new","why":"missing","size":3}"#,
        ]
    );
    assert_eq!(
        last,
        r#"{"summary":true,"new":1,"changed":1,"extra":1,"same":2,"kept":0,"bytes":9,"renames":0,"errors":0}"#
    );
}

#[test]
fn in_step_and_errors_have_codes_of_their_own() {
    let lab = lab();
    let ran = lab.haul(&["status", "@src", "@src/../src/"]);
    assert_ne!(ran.code, 1, "a folder and itself is no difference: {}", ran.err);
    let ran = lab.haul(&["status", "@dst", "@dst2"]);
    assert_eq!(ran.code, 1);
    lab.haul(&["copy", "@dst", "@dst2"]).ok();
    let ran = lab.haul(&["status", "@dst", "@dst2"]);
    assert_eq!((ran.code, &*ran.out), (0, "Up to date, 4 the same\n"));
    assert_eq!(lab.haul(&["status", "@missing", "@dst"]).code, 3);
    let ran = lab.haul(&["status", "--immutable", "@src/longer", "@dst"]);
    assert_eq!(ran.code, 6, "{}{}", ran.out, ran.err);
}

/// One file is asked for, an empty bucket listed once, and a bucket isn't listed for a hundred files.
#[test]
fn it_asks_or_leaps() {
    let cloud = Cloudsim::with(&[("bucket", "b:keys=1000000,shape=dvc,size=1"), ("bucket", "empty")]);
    let lab = Lab::new(HAUL);
    lab.remote("s", &cloud.endpoint());
    let count = |args: &[&str]| {
        cloud.reset();
        let ran = lab.haul(args);
        assert_eq!(ran.code, 1, "{}", ran.err);
        (cloud.report(), ran)
    };
    write(&lab.path("one/files/md5/ab/new"), b"1", TIME);
    let (report, ran) = count(&["status", "-v", "@one", "s:b"]);
    assert_eq!(report.total_requests, 1, "{}", ran.err);
    assert!(ran.err.contains("s:b: asking for each file: there are only 1"), "{}", ran.err);
    for n in 0..3_000u64 {
        write(&lab.path(&format!("many/files/md5/{:02x}/{n}", n % 256)), b"1", TIME);
    }
    let (report, ran) = count(&["status", "-v", "@many", "s:empty"]);
    assert_eq!(report.total_requests, 1, "{}", ran.err);
    assert!(ran.err.contains("the first page was the last"), "{}", ran.err);
    let (report, _) = count(&["status", "--fast-list", "@one", "s:b"]);
    assert!((1_000..=1_050).contains(&report.of("ListObjectsV2")), "{}", report.of("ListObjectsV2"));
    let (report, _) = count(&["status", "--no-traverse", "@many", "s:b"]);
    assert_eq!((report.of("HeadObject"), report.of("ListObjectsV2")), (3_000, 0));
    let (report, _) = count(&["status", "@many", "s:b"]);
    assert!(report.total_requests <= 1_100, "{}", report.total_requests);
}

/// Whoever skips a symlink skips it on both sides: a file that stands against one is missing.
#[test]
fn a_file_that_stands_against_a_symlink_is_no_match() {
    let lab = Lab::new(HAUL);
    write(&lab.path("s/a"), b"hello", TIME);
    write(&lab.path("s/same"), b"same", TIME);
    write(&lab.path("d/same"), b"same", TIME);
    std::os::unix::fs::symlink("../o", lab.path("d/a")).unwrap();
    for flags in [&[][..], &["--one-way"], &["--download"], &["--size-only"]] {
        let ran = lab.haul(&[&["check", "@s", "@d", "--combined", "-"], flags].concat()).code(1);
        assert_eq!(ran.out, "+ a\n= same\n", "{flags:?}");
    }
    let ran = lab.haul(&["check", "@d", "@s", "--combined", "-"]).code(1);
    assert_eq!(ran.out, "- a\n= same\n");
    lab.haul(&["check", "@d", "@s", "--one-way"]).ok();
}
