//! The oldest kernel that haul runs on, Linux 3.10: no statx, openat2, renameat2, copy_file_range, getrandom, O_TMPFILE.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{self, assert_same, files, link, noise, write},
    lab::Lab,
    peers,
};
use std::{fs, os::unix::fs::PermissionsExt as _};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_123_456_789;

/// A lab whose haul finds such a kernel; `None`, said so, where that can't be had.
fn lab() -> Option<Lab> {
    if !cfg!(target_arch = "x86_64") {
        peers::skip("the numbers of system calls are those of x86-64");
        return None;
    }
    let python = peers::need("python3")?;
    let lab = Lab::new(HAUL);
    let (script, haul) = (lab.path("old_kernel.py"), lab.path("haul"));
    fs::write(&script, include_str!("../old_kernel.py")).unwrap();
    fs::write(&haul, format!("#!/bin/sh\nexec {} {} {HAUL} \"$@\"\n", python.display(), script.display())).unwrap();
    fs::set_permissions(&haul, fs::Permissions::from_mode(0o755)).unwrap();
    if lab.run(&haul, &["version"]).code == 99 {
        peers::skip("no right to hide system calls");
        return None;
    }
    Some(lab)
}

#[test]
fn directories_are_copied_synced_and_checked() {
    let Some(lab) = lab() else { return };
    let run = |args: &[&str]| lab.run(&lab.path("haul"), args);
    for n in 0..40 {
        write(&lab.path(&format!("src/d{}/{n}", n % 3)), &noise(n, 3_000 * n as usize), TIME + n);
    }
    link(&lab.path("src"), "link", "d1/1");
    let same = |what: &str| assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("dst")), what);
    run(&["copy", "-aHX", "@src", "@dst"]).ok();
    same("copy");
    fs::remove_file(lab.path("src/d1/4")).unwrap();
    write(&lab.path("src/d1/1"), b"changed", TIME + 1_000);
    run(&["sync", "-a", "--delete-during", "@src", "@dst"]).ok();
    same("sync");
    fs::remove_file(lab.path("src/d1/7")).unwrap();
    run(&["rsync", "-aH", "--delete", "@src/", "@dst/"]).ok();
    same("rsync");
    run(&["check", "--links", "--download", "@src", "@dst"]).ok();

    let cloud = Cloudsim::with(&[("bucket", "b")]);
    lab.remote("c", &cloud.endpoint());
    run(&["copy", "--links", "@src", "c:b"]).ok();
    run(&["move", "--links", "c:b", "@back"]).ok();
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path("back"))), "a bucket and back");
    run(&["snapshot", "push", "@src", "c:b/versions", "v"]).ok();
    run(&["snapshot", "pull", "c:b/versions", "v", "@restored"]).ok();
    assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("restored")), "a snapshot");
}
