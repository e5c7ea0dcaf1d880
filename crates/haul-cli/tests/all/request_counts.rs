//! How many requests a job makes. They are billed, and they don't depend on the machine.

use haul_testkit::{folder::write, lab::Lab, minio::Minio, proxy::Proxy};
use std::collections::BTreeMap;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const KEYS: u64 = 2_500;
/// Pages of 1,000, and two more.
const LISTS: u64 = KEYS.div_ceil(1_000) + 2;

struct Counted {
    lab: Lab,
    proxy: Proxy,
    there: String,
}

impl Counted {
    /// A lab whose remote `r` goes through a proxy that counts, with a bucket and a folder of small files.
    fn new(hint: &str, files: u64) -> Option<Counted> {
        let minio = Minio::shared()?;
        let lab = Lab::new(HAUL);
        let proxy = Proxy::start(minio.address).unwrap();
        lab.remote("r", &proxy.endpoint());
        for n in 0..files {
            let path = lab.path(&format!("src/{}/{n:05}", n % 7));
            write(&path, n.to_string().as_bytes(), 1_600_000_000_123_456_789 + n);
        }
        Some(Counted { lab, proxy, there: format!("r:{}", minio.bucket(hint)) })
    }

    /// The requests of one run of haul.
    #[track_caller]
    fn count(&self, args: &[&str]) -> BTreeMap<&'static str, u64> {
        self.proxy.reset();
        self.lab.haul(args).ok();
        self.proxy.counts()
    }

    #[track_caller]
    fn assert_lists_only(&self, args: &[&str]) {
        let counts = self.count(args);
        let others: Vec<_> = counts.keys().filter(|name| **name != "ListObjectsV2").collect();
        assert!(others.is_empty() && counts["ListObjectsV2"] <= LISTS, "{args:?}: {counts:?}");
    }
}

#[test]
fn a_sync_without_changes_only_lists_after_haul_wrote() {
    let Some(c) = Counted::new("noop", KEYS) else { return };
    let up = c.count(&["sync", "@src", &c.there]);
    assert_eq!(up.get("PutObject"), Some(&KEYS), "{up:?}");
    assert!(up.values().sum::<u64>() <= KEYS + LISTS, "{up:?}");
    // Right after the upload, from both sides, by all ways to compare that a listing can answer.
    c.assert_lists_only(&["sync", "@src", &c.there]);
    c.assert_lists_only(&["sync", "@src", &c.there, "--size-only"]);
    c.assert_lists_only(&["sync", "@src", &c.there, "--checksum"]);
    c.assert_lists_only(&["copy", "@src", &c.there, "--ignore-existing"]);
    c.assert_lists_only(&["check", "@src", &c.there]);
    c.assert_lists_only(&["sync", "@src", &c.there, "--dry-run"]);
}

#[test]
fn a_sync_without_changes_only_lists_after_rclone_wrote() {
    let Some(c) = Counted::new("rclones", KEYS) else { return };
    if !c.lab.has_rclone() {
        return;
    }
    c.lab.rclone(&["copy", "@src", &c.there, "--transfers=16", "--checkers=16"]).ok();
    c.assert_lists_only(&["sync", "@src", &c.there]);
}

/// Neither a symlink that is pointed elsewhere nor a directory that is renamed changes a file's times.
#[test]
fn what_came_to_its_path_by_a_renaming_is_not_taken_for_what_was_there() {
    let Some(c) = Counted::new("swapped", 0) else { return };
    let there = |key: &str| c.lab.haul(&["cat", &format!("{}/{key}", c.there)]).ok().out;
    for release in ["1", "2"] {
        for (name, time) in [("app", 1_600_000_000_000_000_000), ("sub/x", 1_600_000_001_000_000_000)] {
            let path = c.lab.path(&format!("releases/{release}/{name}"));
            write(&path, release.as_bytes(), time + release.parse::<u64>().unwrap());
        }
    }
    let point_to = |release: &str| {
        let _ = std::fs::remove_file(c.lab.path("current"));
        std::os::unix::fs::symlink(format!("releases/{release}"), c.lab.path("current")).unwrap();
    };
    // What is stored from now on is later than any change of a file, by more than clocks may differ.
    let (sync, apart) = (["sync", "@current", &c.there], std::time::Duration::from_secs(5));
    for release in ["1", "2", "1"] {
        point_to(release);
        c.lab.haul(&sync).ok();
        assert_eq!((there("app"), there("sub/x")), (release.into(), release.into()));
        std::thread::sleep(apart);
    }
    // What a run has compared is asked for no more, and new names in a directory cost nothing.
    write(&c.lab.path("releases/1/new"), b"new", 1_600_000_000_000_000_000);
    let counts = c.count(&sync);
    assert_eq!((counts.get("HeadObject"), counts.get("PutObject")), (None, Some(&1)), "{counts:?}");
    let path = |path: &str| c.lab.path(path);
    std::fs::rename(path("releases/1/sub"), path("old")).unwrap();
    std::fs::rename(path("releases/2/sub"), path("releases/1/sub")).unwrap();
    // A dry run sees it, and what it sees is none that was done.
    let dry = c.lab.haul(&["sync", "@current", &c.there, "--dry-run"]).ok();
    assert!(dry.err.contains("sub/x"), "{}", dry.err);
    c.lab.haul(&sync).ok();
    assert_eq!((there("app"), there("sub/x")), ("1".into(), "2".into()));
    c.assert_lists_only(&sync);
}

#[test]
fn a_smaller_cutoff_sends_parts_where_one_put_would_do() {
    let Some(c) = Counted::new("parts", 0) else { return };
    let bytes: Vec<u8> = (0..12_000_000u32).map(|n| (n / 7) as u8).collect();
    write(&c.lab.path("src/f"), &bytes, 1_600_000_000_000_000_000);
    let counts = c.count(&["copy", "@src", &c.there, "--multi-thread-cutoff=6M", "--s3-chunk-size=5Mi"]);
    assert_eq!((counts.get("UploadPart"), counts.get("PutObject")), (Some(&3), None), "{counts:?}");
    let counts = c.count(&["copy", "@src", &format!("{}/whole", c.there), "--s3-chunk-size=5Mi"]);
    assert_eq!((counts.get("UploadPart"), counts.get("PutObject")), (None, Some(&1)), "{counts:?}");
    c.lab.haul(&["copy", &c.there, "@back"]).ok();
    assert!(std::fs::read(c.lab.path("back/f")).unwrap() == bytes);
    assert!(std::fs::read(c.lab.path("back/whole/f")).unwrap() == bytes);
}

#[test]
fn a_small_upload_is_one_put() {
    let Some(c) = Counted::new("put", 1) else { return };
    let counts = c.count(&["copy", "@src", &c.there]);
    assert_eq!(counts, BTreeMap::from([("HeadObject", 1), ("PutObject", 1)]));
    let counts = c.count(&["--no-check-dest", "copyto", "@src/0/00000", &format!("{}/a/b", c.there)]);
    assert_eq!(counts, BTreeMap::from([("PutObject", 1)]));
    // An empty file costs no more.
    write(&c.lab.path("empty/file"), b"", 1);
    let counts = c.count(&["--no-check-dest", "copy", "@empty", &c.there]);
    assert_eq!(counts, BTreeMap::from([("PutObject", 1)]));
}

#[test]
fn deletes_go_by_the_thousand() {
    let Some(c) = Counted::new("delete", KEYS) else { return };
    c.lab.haul(&["copy", "@src", &c.there]).ok();
    let counts = c.count(&["delete", &c.there, "--exclude", "/0/**"]);
    assert!(counts["DeleteObjects"] <= KEYS.div_ceil(1_000) && !counts.contains_key("DeleteObject"), "{counts:?}");
    c.lab.haul(&["copy", "@src", &c.there]).ok();
    write(&c.lab.path("few/0/00000"), b"0", 1_600_000_000_123_456_789);
    let counts = c.count(&["sync", "@few", &c.there]);
    assert!(counts["DeleteObjects"] <= KEYS.div_ceil(1_000) && !counts.contains_key("DeleteObject"), "{counts:?}");
    assert!(counts["ListObjectsV2"] <= LISTS, "{counts:?}");
    let left = c.lab.haul(&["lsf", "-R", "--files-only", &c.there]).ok();
    assert_eq!(left.lines(), ["0/00000"]);
}

#[test]
fn moves_and_backups_inside_the_service_delete_by_the_thousand() {
    let Some(c) = Counted::new("inside", 300) else { return };
    let at = |name: &str| format!("{}/{name}", c.there);
    c.lab.haul(&["copy", "@src", &at("a")]).ok();
    let counts = c.count(&["move", &at("a"), &at("b")]);
    let copies_and_deletes = |counts: &BTreeMap<&str, u64>| [counts["CopyObject"], counts["DeleteObjects"]];
    assert_eq!((copies_and_deletes(&counts), counts.values().sum::<u64>() < 310), ([300, 1], true), "{counts:?}");
    assert_eq!(c.lab.haul(&["lsf", "-R", "--files-only", &c.there]).ok().lines().len(), 300);
    write(&c.lab.path("few/0/00000"), b"another", 1_600_000_000_000_000_000);
    let counts = c.count(&["sync", "@few", &at("b"), "--backup-dir", &at("old")]);
    assert_eq!((copies_and_deletes(&counts), counts.contains_key("DeleteObject")), ([300, 1], false), "{counts:?}");
    c.lab.haul(&["check", "@src", &at("old")]).ok();
    c.lab.haul(&["check", "@few", &at("b")]).ok();
    // A file that has another name only.
    std::fs::rename(c.lab.path("few/0/00000"), c.lab.path("few/0/renamed")).unwrap();
    let counts = c.count(&["sync", "@few", &at("b"), "--track-renames"]);
    assert_eq!((counts["CopyObject"], counts.contains_key("PutObject")), (1, false), "{counts:?}");
    c.lab.haul(&["check", "@few", &at("b")]).ok();
}

#[test]
fn a_download_is_one_get_a_file() {
    let Some(c) = Counted::new("get", 100) else { return };
    c.lab.haul(&["copy", "@src", &c.there]).ok();
    let counts = c.count(&["copy", &c.there, "@back"]);
    assert_eq!(counts.get("GetObject"), Some(&100), "{counts:?}");
    assert!(!counts.contains_key("HeadObject"), "{counts:?}");
    // In this direction only the store knows the times: a HEAD each, as rclone, and no more.
    let counts = c.count(&["sync", &c.there, "@back"]);
    assert!(counts["HeadObject"] <= 100 && !counts.contains_key("GetObject"), "{counts:?}");
    c.assert_lists_only(&["sync", &c.there, "@back", "--size-only"]);
}
