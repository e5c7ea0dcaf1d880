//! `--index` in the real binary: what it saves, and that kills, full disks and other haul don't make it lie.

use haul_testkit::{
    cloudsim::{Cloudsim, report::Report},
    folder::write,
    lab::{Lab, ProgramResult},
    peers,
};
use std::{fs, path::Path, process::Command, thread, time::Duration};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;
/// Pages that are audited at most.
const PAGES: u64 = 16;

struct Site {
    lab: Lab,
    cloud: Cloudsim,
}

impl Site {
    fn new(files: u64) -> Site {
        let cloud = Cloudsim::with(&[("bucket", "b"), ("etag", "md5")]);
        let lab = Lab::new(HAUL);
        lab.remote("s", &cloud.endpoint());
        let site = Site { lab, cloud };
        (0..files).for_each(|n| site.file(n, "aaaa", TIME));
        site
    }

    fn file(&self, n: u64, text: &str, time: u64) {
        write(&self.lab.path(&format!("src/d{}/{n:04}", n % 5)), text.as_bytes(), time);
    }

    fn run(&self, args: &[&str]) -> (Report, ProgramResult) {
        self.cloud.reset();
        let ran = self.lab.haul(args);
        (self.cloud.report(), ran)
    }

    /// The bucket has what the source has.
    #[track_caller]
    fn assert_equal(&self, what: &str) {
        let ran = self.lab.haul(&["check", "@src", "s:b"]);
        assert_eq!(ran.code, 0, "{what}: {}", ran.err);
    }
}

#[test]
fn an_index_saves_requests() {
    let site = Site::new(400);
    let sync = ["sync", "--index", "@src", "s:b"];
    site.run(&sync).1.ok();
    let (report, ran) = site.run(&sync);
    ran.ok();
    assert_eq!((report.of("ListObjectsV2"), report.total_requests), (1, 1), "all of it fits on a page");
    site.file(7, "new!", TIME + 1);
    site.file(500, "more", TIME);
    fs::remove_file(site.lab.path("src/d3/0003")).unwrap();
    let (report, ran) = site.run(&["status", "--sync", "--index", "@src", "s:b"]);
    assert!(ran.out.ends_with("1 new, 1 changed (8 B to transfer), 1 to delete, 398 the same\n"), "{}", ran.out);
    assert!(report.total_requests <= 6, "{}", report.total_requests);
    let (report, ran) = site.run(&sync);
    let ran = ran.ok();
    let deleted = report.of("DeleteObjects") + report.of("DeleteObject");
    assert_eq!((report.of("PutObject"), deleted), (2, 1), "{}", ran.err);
    assert!(report.total_requests <= 9, "{}", report.total_requests);
    site.assert_equal("after it");
    // A check by it reads no more of the bucket, and hashes no file twice.
    thread::sleep(Duration::from_millis(150));
    for _ in 0..2 {
        let (report, ran) = site.run(&["check", "--index", "@src", "s:b"]);
        ran.ok();
        assert_eq!(report.total_requests, 1);
    }
    let mut command = site.lab.haul_command(&["sync", "--no-index", "-v", "@src", "s:b"]);
    let ran = command.env("HAUL_INDEX", "true").output().unwrap();
    assert!(!String::from_utf8_lossy(&ran.stderr).contains("index"));
}

#[test]
fn what_others_did_is_found() {
    let site = Site::new(300);
    site.run(&["copy", "--index", "@src", "s:b"]).1.ok();
    let delete = |key: &str| site.lab.haul(&["deletefile", &format!("s:b/{key}")]).ok();
    delete("d1/0001");
    let (_, ran) = site.run(&["copy", "--index", "@src", "s:b"]);
    let wanted = "s:b: the index is wrong, d1/0001 is gone: all below d1/ is looked at again";
    assert!(ran.clone().ok().err.contains(wanted), "{}", ran.err);
    site.assert_equal("one");
    delete("d1/0001");
    delete("d2/0002");
    let (_, ran) = site.run(&["copy", "--verify-index", "@src", "s:b"]);
    let wanted = "s:b: the index is right about 298 keys, 2 are gone, 0 were changed by others";
    assert!(ran.clone().ok().err.contains(wanted), "{}", ran.err);
    site.assert_equal("two");
}

/// An index that the audit finds wanting isn't all that is there.
#[test]
fn what_others_added_is_a_difference_and_is_deleted() {
    let site = Site::new(50);
    let sync = ["sync", "--index", "@src", "s:b"];
    site.run(&sync).1.ok();
    site.run(&sync).1.ok();
    site.cloud.put("b", b"d1/stranger", "x", &[]);
    let ran = site.run(&["check", "--index", "@src", "s:b"]).1.code(1);
    assert!(ran.err.contains("d1/stranger"), "{}", ran.err);
    site.run(&sync).1.ok();
    assert!(site.cloud.get("b", b"d1/stranger").is_none());
}

/// Files go back and forth between two contents of one size, each with a time of its own, while runs are killed anywhere: an index
/// that says what was there before a killed run would take the one for the other.
#[test]
fn an_index_is_right_after_any_kill() {
    let site = Site::new(60);
    site.run(&["sync", "--index", "@src", "s:b"]).1.ok();
    site.cloud.set(None, &[("latency", "3ms")]).unwrap();
    let mut random = 7u64;
    let mut dice = |sides: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % sides
    };
    for round in 0..14 {
        for _ in 0..25 {
            let (n, b) = (dice(60), dice(2) == 1);
            site.file(n, if b { "bbbb" } else { "aaaa" }, if b { TIME + 1 } else { TIME });
        }
        let mut child = site.lab.start(&["sync", "--index", "--retries=1", "@src", "s:b"]);
        thread::sleep(Duration::from_millis(20 + dice(180)));
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 3 == 2 {
            site.run(&["sync", "--index", "@src", "s:b"]).1.ok();
            site.assert_equal(&format!("round {round}"));
        }
    }
}

#[test]
fn two_at_once() {
    let site = Site::new(120);
    site.run(&["sync", "--index", "@src", "s:b"]).1.ok();
    for round in 0..4 {
        for n in 0..40 {
            site.file(n, if round % 2 == 0 { "bbbb" } else { "aaaa" }, TIME + (round + 1) % 2);
        }
        fs::remove_file(site.lab.path(&format!("src/d{}/{:04}", round % 5, 100 + round))).ok();
        let both = [0, 1].map(|_| site.lab.start(&["sync", "--index", "@src", "s:b"]));
        for child in both {
            site.lab.end(child).ok();
        }
        site.run(&["sync", "--index", "@src", "s:b"]).1.ok();
        site.assert_equal(&format!("round {round}"));
    }
}

/// A small file system of its own; unmounted when dropped.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(at: &Path) -> Option<Small<'_>> {
        fs::create_dir(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=48k", "haul-test"]).arg(at).output();
        mounted.is_ok_and(|out| out.status.success()).then_some(Small(at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // If it stays mounted, the folder can't be removed, which is all.
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_costs_the_index_and_one_word() {
    let site = Site::new(1_500);
    let at = site.lab.path("small");
    let Some(_small) = Small::mount(&at) else { return peers::skip("a small file system can't be mounted here") };
    for _ in 0..2 {
        let (_, ran) = site.run(&["sync", "--index", "--no-journal", "--state-dir=@small", "@src", "s:b"]);
        let count = ran.clone().ok().err.matches("The index of s:b can't be kept").count();
        assert_eq!(count, 1, "{}", ran.err);
        assert!(
            !fs::read_dir(at.join("index")).unwrap().any(|e| e
                .unwrap()
                .path()
                .extension()
                .is_some_and(|e| e == "index"))
        );
    }
    site.assert_equal("full");
}

#[test]
fn a_large_bucket_costs_few_pages() {
    let cloud = Cloudsim::with(&[("bucket", "b:keys=60000,shape=dvc,size=1")]);
    let lab = Lab::new(HAUL);
    lab.remote("s", &cloud.endpoint());
    let names = lab.haul(&["lsf", "-R", "--files-only", "s:b"]).ok();
    let names: Vec<&str> = names.out.lines().step_by(20).collect();
    names.iter().for_each(|name| write(&lab.path("src").join(name), b"1", TIME));
    let run = |args: &[&str]| {
        cloud.reset();
        let ran = lab.haul(args);
        (cloud.report().total_requests, ran)
    };
    let status = ["status", "--index", "--size-only", "@src", "s:b"];
    run(&status).1.ok();
    write(&lab.path("src").join(names[1_234]), b"22", TIME);
    let (requests, ran) = run(&status);
    assert!(ran.out.ends_with("0 new, 1 changed (2 B to transfer), 2999 the same\n"), "{}", ran.out);
    assert!(requests <= PAGES + 1, "{requests}");
}
