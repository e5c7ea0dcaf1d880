//! What snapshots cost in requests.

use super::site::Site;
use haul_testkit::{
    cloudsim::{Cloudsim, Report},
    lab::{ProgramResult, peak},
};
use std::fs;

const FILES: usize = 1_000;

/// A folder of 1,000 files, and a cloud that has a million contents of others.
fn large() -> (Cloudsim, Site) {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b:keys=1000000,shape=dvc,size=1")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..FILES {
        site.write(&format!("src/{:02}/{n}", n % 30), format!("file {n}").as_bytes());
    }
    (cloud, site)
}

/// Pushes `src`, and tells what that asked for.
#[track_caller]
fn push(cloud: &Cloudsim, site: &Site, remote: &str, flags: &[&str]) -> (ProgramResult, Report) {
    cloud.reset();
    let ran = site.haul(&[&["snapshot", "push", "@src", remote][..], flags].concat()).ok();
    (ran, cloud.report())
}

/// Keys that were written, but not by a computed bucket.
fn stored(cloud: &Cloudsim, bucket: &str) -> Vec<String> {
    cloud.keys(bucket).into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
}

#[test]
fn a_push_that_changes_nothing_costs_a_handful_of_requests() {
    let (cloud, site) = large();
    let push = |flags: &[&str]| {
        let (ran, report) = push(&cloud, &site, "c:b", flags);
        (ran.out, report)
    };
    let (first, report) = push(&[]);
    // Contents, two lists, the record, the push's mark.
    assert_eq!(report.of("PutObject"), FILES as u64 + 4, "{:?}", report.requests);
    let (second, report) = push(&[]);
    assert_eq!(first, second);
    // By the index: the mark, set and taken away; the newest's record, twice; both lists; the versions, the marks, the audit.
    let requests = ["PutObject", "GetObject", "HeadObject", "ListObjectsV2"].map(|op| report.of(op));
    assert_eq!((&requests[..3], report.total_requests), (&[1, 1, 3][..], 6 + requests[3]), "{:?}", report.requests);
    assert!(requests[3] <= 18, "{:?}", report.requests);
    site.write("src/07/7", b"another");
    let (third, report) = push(&[]);
    assert_ne!(first, third);
    assert_eq!(report.of("PutObject"), 5, "{:?}", report.requests);
    // Not the newest's list of files, which is long.
    assert!(report.of("GetObject") == 1 && report.total_requests <= 34, "{:?}", report.requests);
    // Without an index.
    let (again, report) = push(&["--no-index"]);
    assert!(again == third && report.total_requests <= 20 && report.of("PutObject") == 1, "{:?}", report.requests);
    fs::remove_dir_all(site.path("home/.local/state/haul/index")).unwrap();
    site.write("src/07/7", b"yet another");
    let (_, report) = push(&["--no-index"]);
    assert!(report.of("PutObject") == 5 && report.total_requests <= 35, "{:?}", report.requests);
    assert!(!site.path("home/.local/state/haul/index").exists());
    cloud.reset();
    site.haul(&["snapshot", "pull", "c:b", "src", "@out"]).ok();
    let report = cloud.report();
    // The record, the list, each content once for each file; a listing of versions.
    assert_eq!(report.of("GetObject"), FILES as u64 + 2, "{:?}", report.requests);
    assert!(report.total_requests <= FILES as u64 + 4, "{:?}", report.requests);
    cloud.reset();
    site.haul(&["snapshot", "pull", "c:b", "src", "@out"]).ok();
    assert!(cloud.report().total_requests <= 3, "{:?}", cloud.report().requests);
    cloud.reset();
    site.haul(&["snapshot", "list", "c:b", "src"]).ok();
    // Three records.
    assert!(cloud.report().total_requests <= 4, "{:?}", cloud.report().requests);
}

#[test]
fn a_bucket_that_is_not_there_is_no_reason_to_wait() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    let ran = site.haul(&["snapshot", "list", "c:other"]).code(3);
    assert!(ran.err.contains("bucket other does not exist"), "{}", ran.err);
    assert_eq!(cloud.report().total_requests, 2, "{:?}", cloud.report().requests);
    for args in [&["snapshot", "check", "c:b/none"][..], &["snapshot", "forget", "--keep-last=1", "c:b/none"]] {
        let ran = site.haul(args).code(3);
        assert!(
            ran.out.is_empty() && ran.err.ends_with("haul lsd shows the directories of the path above it)\n"),
            "{}",
            ran.err
        );
    }
    // A push makes it.
    site.write("src/a", b"a");
    cloud.reset();
    site.haul(&["snapshot", "push", "@src", "c:new/deep"]).ok();
    let report = cloud.report();
    assert!(report.of("CreateBucket") >= 1 && report.total_requests <= 20, "{:?}", report.requests);
    site.haul(&["snapshot", "check", "c:new/deep"]).ok();
}

/// Content that exists only according to the index. Each push asks for the lists themselves, so it notices a lost one.
#[test]
fn a_lost_list_shows_in_the_next_push_and_nothing_is_believed_then() {
    let (cloud, site) = large();
    let version = push(&cloud, &site, "c:b", &[]).0.out;
    let keys = stored(&cloud, "b");
    let files: Vec<&String> = keys.iter().filter(|key| key.starts_with("files/") && !key.ends_with(".dir")).collect();
    let list = site.haul(&["snapshot", "list", "c:b", "src", "--json"]).ok().out;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let key = |field: &str| {
        let text = list[0][field].as_str().unwrap();
        format!("files/md5/{}/{}", &text[..2], &text[2..])
    };
    for lost in [key("list"), key("dvc")] {
        // One more file is deleted, which an audit of 16 pages among a million need not find.
        let file = files.iter().find(|file| ***file != key("list")).unwrap();
        for key in [&lost, *file] {
            site.haul(&["deletefile", &format!("c:b/{key}")]).ok();
        }
        let (ran, report) = push(&cloud, &site, "c:b", &[]);
        assert_eq!((&ran.out, report.of("PutObject")), (&version, 3), "{}", ran.err);
        assert!(ran.err.contains("the index is wrong"), "{}", ran.err);
        site.haul(&["snapshot", "check", "c:b"]).ok();
    }
    // Without its record there is no version to be like.
    let record = keys.iter().find(|key| key.starts_with("snapshots/")).unwrap();
    site.haul(&["deletefile", &format!("c:b/{record}")]).ok();
    let (ran, report) = push(&cloud, &site, "c:b", &[]);
    assert!(ran.out > version && report.of("PutObject") == 2, "{}", ran.out);
    site.haul(&["snapshot", "check", "c:b"]).ok();
}

/// In a bucket of its own the audit shows all that a small folder has: every loss is found by the next push.
#[test]
fn every_loss_is_repaired_in_a_small_remote() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..500 {
        site.write(&format!("src/{n}"), format!("file {n}").as_bytes());
    }
    site.write("short", b"f");
    let version = push(&cloud, &site, "c:e", &[]).0.out;
    let (_, report) = push(&cloud, &site, "c:e", &[]);
    assert_eq!((report.of("HeadObject"), report.total_requests), (3, 9), "{:?}", report.requests);
    let keys: Vec<String> = stored(&cloud, "e").into_iter().filter(|key| key.starts_with("files/")).collect();
    for (n, key) in keys.iter().step_by(60).enumerate() {
        match n % 2 {
            0 => site.haul(&["deletefile", &format!("c:e/{key}")]).ok(),
            // Or it has lost some of its bytes.
            _ => site.haul(&["copyto", "@short", &format!("c:e/{key}")]).ok(),
        };
        let (ran, report) = push(&cloud, &site, "c:e", &[]);
        assert_eq!((&ran.out, report.of("PutObject")), (&version, 2), "{}", ran.err);
        assert!(ran.err.contains("the index is wrong"), "{}", ran.err);
    }
    site.haul(&["snapshot", "check", "--verify=read", "c:e"]).ok();
}

/// One loss among a million: no audit is sure to find it, `--verify-index`, `--verify` and `--no-index --verify` are.
#[test]
fn a_single_loss_is_found_by_whoever_looks_for_everything() {
    let (cloud, site) = large();
    let version = push(&cloud, &site, "c:b", &[]).0.out;
    let keys = stored(&cloud, "b");
    let file = keys.iter().find(|key| key.starts_with("files/") && !key.ends_with(".dir")).unwrap();
    for flags in [&["--verify-index"][..], &["--verify"], &["--no-index", "--verify"]] {
        site.haul(&["deletefile", &format!("c:b/{file}")]).ok();
        let (ran, report) = push(&cloud, &site, "c:b", flags);
        assert_eq!((&ran.out, report.of("PutObject")), (&version, 2), "{flags:?}: {}", ran.err);
        // The index that was made anew is gone by again.
        let (_, report) = push(&cloud, &site, "c:b", &[]);
        assert!(report.of("PutObject") == 1 && report.total_requests <= 24, "{flags:?}: {:?}", report.requests);
    }
}

/// Much of it is gone: the audit of one run shows that, though it sees a part of it only.
#[test]
fn a_large_loss_shows_in_the_audit() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e"), ("page", "10")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..FILES {
        site.write(&format!("src/{n}"), format!("file {n}").as_bytes());
    }
    let version = push(&cloud, &site, "c:e", &[]).0.out;
    let keys: Vec<String> =
        stored(&cloud, "e").into_iter().filter(|key| key.starts_with("files/") && !key.ends_with(".dir")).collect();
    // Every other one: 16 pages of 10 can't miss that.
    fs::write(site.path("lost"), keys.iter().step_by(2).fold(String::new(), |all, key| all + key + "\n")).unwrap();
    site.haul(&["delete", "--files-from", "@lost", "--no-traverse", "c:e"]).ok();
    let (ran, _) = push(&cloud, &site, "c:e", &[]);
    assert!(ran.out == version && ran.err.contains("the index is wrong"), "{}", ran.err);
    site.haul(&["snapshot", "check", "c:e"]).ok();
}

/// A million files are to fit beside other work: what is held of each is bounded.
#[test]
fn a_push_holds_little_of_each_file() {
    const FEW: u64 = 15_000;
    const MANY: u64 = 60_000;
    /// Bytes for each file more, with paths of 38 bytes: some 300, and as much again for 30 MB that the allocator may keep in one
    /// run and not in the other.
    const MOST: u64 = 1000;
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for (of, count) in [("few", FEW), ("many", MANY)] {
        for n in 0..count {
            let folder = site.path(&format!("{of}/folder-{:03}/below", n % 200));
            if n < 200 {
                fs::create_dir_all(&folder).unwrap();
            }
            fs::write(folder.join(format!("file-{n:016}")), format!("{of} {n}")).unwrap();
        }
    }
    let peak = |of: &str| {
        let mut command = site.lab.haul_command(&["snapshot", "push", "-n", "-q", of, "c:e/s"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let (code, kib) = peak(command);
        assert_eq!(code, 0);
        kib * 1024
    };
    // Files that are hashed, and files that were.
    for _ in 0..2 {
        let each = peak("@many").saturating_sub(peak("@few")) / (MANY - FEW);
        eprintln!("{each} bytes a file");
        assert!(each < MOST, "{each} bytes a file");
    }
}
