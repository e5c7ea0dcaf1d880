//! `snapshot forget` and `gc` with the real binary: what the rules keep, what is freed, and pushes beside it.

use super::site::{Site, facts, names};
use haul_testkit::{cloudsim::Cloudsim, folder, lab::until, minio::Minio};
use std::{fs, process::Command};

fn frees(site: &Site, remote: &str) {
    site.write("src/same", b"same");
    site.write("src/old", b"old");
    let push = || site.haul(&["snapshot", "push", "@src", remote, "data"]).ok().out.trim().to_string();
    let first = push();
    fs::remove_file(site.path("src/old")).unwrap();
    site.write("src/new", b"new");
    let second = push();
    // A dry run shows and changes nothing.
    let ran = site.haul(&["snapshot", "forget", "--dry-run", "--keep-last", "1", remote]).ok();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("remove  2") && lines[0].ends_with(&format!("  {first}")), "{}", ran.out);
    assert!(lines[1].starts_with("keep    2") && lines[1].ends_with(&format!("  {second}  (last)")), "{}", ran.out);
    site.haul(&["snapshot", "check", remote, &first]).ok();
    let ran = site.haul(&["snapshot", "forget", "--keep-last", "1", "--keep-within", "0s", remote, "data"]).ok();
    assert!(ran.out.contains(&format!("{second}  (last, within)\n")), "{}", ran.out);
    assert!(ran.out.ends_with("\n1 version removed; haul snapshot gc frees their content.\n"), "{}", ran.out);
    let ran = site.haul(&["snapshot", "gc", "--dry-run", remote]).ok();
    assert!(ran.out.contains("           3 files/md5/14/9603e6c03516362a8da23f624db945\n"), "{}", ran.out);
    assert!(ran.out.contains("\n3 contents with ") && ran.out.ends_with(" used by no version would be deleted.\n"));
    let ran = site.haul(&["snapshot", "gc", "--settle", "0s", remote]).ok();
    assert!(ran.out.starts_with("Deleted 3 contents with ") && ran.out.ends_with(" of 1 version.\n"), "{}", ran.out);
    assert!(ran.out.contains("; kept 4 contents with "), "{}", ran.out);
    site.haul(&["snapshot", "check", "--verify=read", remote]).ok();
    let ran = site.haul(&["snapshot", "gc", "--settle", "0s", remote]).ok();
    assert!(ran.out.starts_with("Deleted 0 contents with 0 B; "), "{}", ran.out);
    // What this machine remembers of the remote from before doesn't count: the old content is sent again.
    site.write("src/old", b"old");
    let third = push();
    site.haul(&["snapshot", "check", "--verify=read", remote]).ok();
    site.haul(&["snapshot", "pull", remote, &third, "@out"]).ok();
    assert_eq!(facts(&site.path("out")), facts(&site.path("src")));
}

#[test]
fn what_no_version_has_is_freed_in_a_folder() {
    frees(&Site::new(), "@store");
}

#[test]
fn what_a_killed_push_left_is_freed() {
    let (cloud, site) = (Cloudsim::with(&[("rate-out", "2M")]), Site::new());
    cloud.bucket("b", None);
    site.lab.remote("c", &cloud.endpoint());
    (0..200).for_each(|n| site.write(&format!("src/{n}"), &folder::noise(n, 100_000)));
    site.haul(&["copy", "@src", "c:b"]).ok();
    site.write("small/s", b"small");
    site.haul(&["snapshot", "push", "@small", "@store", "small"]).ok();
    let mut push = site.lab.start(&["snapshot", "push", "c:b", "@store", "data"]);
    let hidden = || names(&site.path("store")).iter().filter(|name| name.ends_with(".partial")).count();
    assert!(until(|| hidden() >= 3));
    push.kill().unwrap();
    push.wait().unwrap();
    let gc = |more: &str| site.haul(&["snapshot", "gc", "--settle", "0s", "--ignore-marks", "@store", more]).ok();
    gc("--dry-run");
    assert!(hidden() > 0);
    gc("-v");
    assert_eq!(hidden(), 0);
    site.haul(&["snapshot", "check", "--verify=read", "@store"]).ok();
}

#[test]
fn what_no_version_has_is_freed_on_s3() {
    let Some(minio) = Minio::shared() else { return };
    let site = Site::new();
    site.lab.remote("m", &minio.endpoint());
    frees(&site, &format!("m:{}/deep/er", minio.bucket("gc")));
}

#[test]
fn what_no_version_has_is_freed_in_packs() {
    let site = Site::new();
    frees(&site, &format!(":pack,remote=\"{}\":", site.path("packs").display()));
}

/// What this machine remembers would promise it: too much to ask for piece by piece, too little of the remote for an audit to show.
#[test]
fn an_index_from_before_does_not_promise_what_was_freed() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b:keys=1000000,shape=dvc,size=1")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..300 {
        site.write(&format!("src/{n}"), format!("file {n}").as_bytes());
    }
    site.haul(&["snapshot", "push", "@src", "c:b", "data"]).ok();
    // As a gc elsewhere does once no version has them: it deletes, and leaves a mark.
    let other = Site::new();
    other.lab.remote("c", &cloud.endpoint());
    other.write("src/0", b"file 0");
    other.haul(&["snapshot", "push", "@src", "c:b", "data"]).ok();
    other.haul(&["snapshot", "forget", "--keep-last=1", "c:b"]).ok();
    let key = |n: usize| {
        let hash = haul_core::hash::hash_bytes(&[haul_core::Algo::Md5], format!("file {n}").as_bytes());
        let hex = hash.hex(haul_core::Algo::Md5).unwrap();
        format!("files/md5/{}/{}\n", &hex[..2], &hex[2..])
    };
    other.write("gone", (1..300).map(key).collect::<String>().as_bytes());
    other.haul(&["delete", "--files-from", &other.path("gone").display().to_string(), "--no-traverse", "c:b"]).ok();
    other.write("mark", b"{}");
    other.haul(&["copyto", "@mark", "c:b/snapshots.marks/freed-20260101T000000.000Z-0"]).ok();
    // Other lists than before, whose absence would show that something is wrong.
    site.write("src/more", b"more");
    site.haul(&["snapshot", "push", "@src", "c:b", "data"]).ok();
    site.haul(&["snapshot", "check", "c:b", "data"]).ok();
    // From here on the index counts again.
    site.write("src/more", b"yet more");
    cloud.reset();
    site.haul(&["snapshot", "push", "@src", "c:b", "data"]).ok();
    assert!(cloud.report().total_requests <= 40, "{:?}", cloud.report().requests);
}

#[test]
fn a_killed_gc_leaves_all_versions_whole_and_the_next_completes_it() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("latency", "2ms")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..2500 {
        site.write(&format!("src/{n}"), format!("old {n}").as_bytes());
    }
    site.haul(&["snapshot", "push", "@src", "c:b/s"]).ok();
    fs::remove_dir_all(site.path("src")).unwrap();
    site.write("src/kept", b"kept");
    site.haul(&["snapshot", "push", "@src", "c:b/s"]).ok();
    site.haul(&["snapshot", "forget", "--keep-last=1", "c:b/s"]).ok();
    // Each of its deletions takes so long that it can't be done before it is killed.
    cloud.set(None, &[("latency", "0ms"), ("write-latency", "3s")]).unwrap();
    cloud.reset();
    let mut child = site.lab.start(&["snapshot", "gc", "c:b/s"]);
    assert!(until(|| cloud.report().of("DeleteObjects") >= 2 || child.try_wait().unwrap().is_some()));
    assert!(child.try_wait().unwrap().is_none(), "it was done before it could be killed");
    child.kill().unwrap();
    child.wait().unwrap();
    cloud.set(None, &[("write-latency", "0ms")]).unwrap();
    let contents = || cloud.keys("b").iter().filter(|key| key.starts_with(b"s/files/")).count();
    assert!(contents() > 3, "nothing was left to do");
    site.haul(&["snapshot", "check", "--verify=read", "c:b/s"]).ok();
    // Its mark stands: nobody knows that it is dead, until told.
    let ran = site.haul(&["snapshot", "gc", "c:b/s"]).code(5);
    assert!(ran.err.contains("Refused to delete: another gc is running ("), "{}", ran.err);
    site.haul(&["snapshot", "gc", "--ignore-marks", "c:b/s"]).ok();
    assert_eq!(contents(), 3);
    site.haul(&["snapshot", "check", "--verify=read", "c:b/s"]).ok();
    assert!(cloud.keys("b").iter().all(|key| !key.starts_with(b"s/snapshots.marks/gc-")));
}

#[test]
fn a_stopped_gc_takes_its_mark_away() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    site.write("src/a", b"a");
    site.haul(&["snapshot", "push", "@src", "c:b"]).ok();
    site.write("src/a", b"b");
    site.haul(&["snapshot", "push", "@src", "c:b"]).ok();
    site.haul(&["snapshot", "forget", "--keep-last=1", "c:b"]).ok();
    let before = cloud.keys("b").len();
    cloud.reset();
    let mut child = site.lab.start(&["snapshot", "gc", "--settle", "1h", "c:b"]);
    assert!(until(|| cloud.report().of("ListObjectsV2") >= 6 || child.try_wait().unwrap().is_some()));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    site.lab.end(child).code(130);
    assert_eq!(cloud.keys("b").len(), before);
}

/// Pushes of changing folders and gcs at once, for a while: whatever order they come in, all versions are whole.
#[test]
fn pushes_beside_gcs_lose_nothing() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("latency", "3ms")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..100 {
        site.write(&format!("both/{n}"), &folder::noise(n, 500));
    }
    let mut done = 0;
    for round in 0..6 {
        // The same content goes and comes back, so that each push may rely on what a gc is about to delete.
        for who in ["one", "two"] {
            fs::remove_dir_all(site.path(who)).ok();
            for n in (0..100).filter(|n| (n + round) % 3 != 0) {
                let bytes = fs::read(site.path(&format!("both/{n}"))).unwrap();
                site.write(&format!("{who}/{n}"), &bytes);
            }
        }
        let gc = site.lab.start(&["snapshot", "gc", "c:b"]);
        let pushes = ["one", "two"].map(|who| site.lab.start(&["snapshot", "push", &format!("@{who}"), "c:b", "data"]));
        for push in pushes {
            site.lab.end(push).ok();
        }
        done += usize::from(site.lab.end(gc).code == 0);
        site.haul(&["snapshot", "check", "--verify=read", "c:b"]).ok();
        site.haul(&["snapshot", "forget", "--keep-last=1", "c:b"]).ok();
    }
    site.haul(&["snapshot", "gc", "c:b"]).ok();
    site.haul(&["snapshot", "check", "--verify=read", "c:b"]).ok();
    assert!(done <= 6);
}

#[test]
fn a_version_that_can_not_be_read_is_a_reason_to_remove_nothing() {
    let site = Site::new();
    site.write("src/a", b"a");
    let first = site.push();
    site.write("src/a", b"b");
    let second = site.push();
    let record = site.path("store/snapshots/src").join(first.split_once('@').unwrap().1);
    fs::write(&record, "damaged").unwrap();
    let ran = site.haul(&["snapshot", "forget", "--keep-last=1", "@store"]).code(1);
    let why = "Refused to delete: ";
    assert!(ran.err.contains(why) && ran.err.contains(&first) && ran.out.is_empty(), "{}\n{}", ran.out, ran.err);
    let ran = site.haul(&["snapshot", "gc", "--settle=0s", "@store"]);
    assert!(ran.code != 0 && ran.err.contains("the record doesn't match its name"), "{}", ran.err);
    assert!(record.exists());
    site.haul(&["snapshot", "check", "@store", &second]).ok();
}
