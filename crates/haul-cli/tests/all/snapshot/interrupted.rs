//! Pushes that are killed, that run at once, or whose folder changes: no version that isn't whole, and the next push goes on.

use super::site::{Site, facts, names};
use haul_testkit::{cloudsim::Cloudsim, folder, lab::until};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

#[test]
fn a_killed_push_leaves_no_version_and_the_next_sends_only_what_is_missing() {
    const FILES: usize = 600;
    // So far away that a push isn't over before a busy machine has seen how far it is.
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("latency", "100ms")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..FILES {
        site.write(&format!("src/{:02}/{n}", n % 20), format!("file {n}").as_bytes());
    }
    let mut killed = 0;
    for part in [30, 150, 300] {
        let mut child = site.lab.start(&["snapshot", "push", "@src", "c:b/s"]);
        until(|| cloud.keys("b").len() >= part || child.try_wait().unwrap().is_some());
        killed += usize::from(child.try_wait().unwrap().is_none());
        let _ = child.kill();
        child.wait().unwrap();
        let there = cloud.keys("b");
        assert!(!there.iter().any(|key| key.starts_with(b"s/snapshots/")), "a version of what isn't whole");
        assert_eq!(site.haul(&["snapshot", "list", "c:b/s"]).ok().out, "");
    }
    assert!(killed > 0, "never killed while it ran");
    let before = cloud.keys("b").iter().filter(|key| key.starts_with(b"s/files/")).count() as u64;
    cloud.set(None, &[("latency", "10ms")]).unwrap();
    cloud.reset();
    site.haul(&["snapshot", "push", "@src", "c:b/s"]).ok();
    // The rest, two lists, the record, the push's mark.
    assert_eq!(cloud.report().of("PutObject"), FILES as u64 + 4 - before);
    site.haul(&["snapshot", "check", "c:b/s"]).ok();
    site.haul(&["snapshot", "pull", "c:b/s", "src", "@out"]).ok();
    assert_eq!(facts(&site.path("out")), facts(&site.path("src")));
}

#[test]
fn a_large_file_goes_on_with_the_parts_that_are_missing() {
    let cloud = Cloudsim::with(&[("bucket", "b"), ("connection-rate", "5M"), ("latency", "5ms")]);
    let site = Site::new();
    site.lab.remote("c", &cloud.endpoint());
    site.write("src/large", &folder::noise(7, 60 << 20));
    let flags =
        ["--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "--multi-thread-cutoff=5Mi", "--multi-thread-streams=2"];
    let mut child = site.lab.start(&[&["snapshot", "push", "@src", "c:b/s"][..], &flags].concat());
    until(|| cloud.report().of("UploadPart") >= 7 || child.try_wait().unwrap().is_some());
    assert!(child.try_wait().unwrap().is_none(), "it was done before it could be killed");
    let _ = child.kill();
    child.wait().unwrap();
    // Nothing but the mark of the push.
    assert!(cloud.keys("b").iter().all(|key| key.starts_with(b"s/snapshots.marks/push-")));
    cloud.set(None, &[("connection-rate", "off")]).unwrap();
    cloud.reset();
    site.haul(&[&["snapshot", "push", "@src", "c:b/s"][..], &flags].concat()).ok();
    let sent = cloud.report().of("UploadPart");
    assert!(sent <= 9, "{sent} of 12 parts were sent again");
    site.haul(&["snapshot", "check", "--verify=read", "c:b/s"]).ok();
}

/// What is hashed by then was a version before, and must not be taken for all of the folder.
#[test]
fn a_push_that_is_stopped_while_it_hashes_makes_no_version() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    site.write("src/a", b"a");
    site.write("src/b", &folder::noise(1, 1 << 20));
    site.haul(&["copy", "@src", "c:b"]).ok();
    let first = site.haul(&["snapshot", "push", "c:b", "@store", "s"]).ok().out;
    site.write("src/c", &folder::noise(2, 4 << 20));
    site.haul(&["copy", "@src", "c:b"]).ok();
    cloud.set(None, &[("connection-rate", "1M")]).unwrap();
    cloud.reset();
    let mut child = site.lab.start(&["snapshot", "push", "c:b", "@store", "s"]);
    assert!(until(|| cloud.report().of("GetObject") >= 3 || child.try_wait().unwrap().is_some()));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = site.lab.end(child).code(130);
    assert!(ran.out.is_empty() && ran.err.contains("No version was made"), "{}\n{}", ran.out, ran.err);
    cloud.set(None, &[("connection-rate", "off")]).unwrap();
    let second = site.haul(&["snapshot", "push", "c:b", "@store", "s"]).ok().out;
    assert_ne!(first, second);
    assert_eq!(site.haul(&["snapshot", "list", "@store", "s"]).ok().out.lines().count(), 3);
}

#[test]
fn a_killed_pull_goes_on() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("latency", "10ms")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..400 {
        site.write(&format!("src/{:02}/{n}", n % 20), format!("file {n}").as_bytes());
    }
    site.haul(&["snapshot", "push", "@src", "c:b/s"]).ok();
    let mut child = site.lab.start(&["snapshot", "pull", "c:b/s", "src", "@out"]);
    until(|| names(&site.path("out")).len() > 50 || child.try_wait().unwrap().is_some());
    let _ = child.kill();
    child.wait().unwrap();
    let whole = |name: &String| {
        let (out, src) = (fs::read(site.path("out").join(name)), fs::read(site.path("src").join(name)));
        name.contains(".haul-") || out.unwrap() == src.unwrap()
    };
    assert!(names(&site.path("out")).iter().all(whole));
    site.haul(&["snapshot", "pull", "--delete", "c:b/s", "src", "@out"]).ok();
    site.haul(&["cleanup", "@out"]).ok();
    fs::read_dir(site.path("out")).unwrap().for_each(|entry| drop(entry.unwrap()));
    assert_eq!(site.haul(&["check", "@src", "@out"]).ok().code, 0);
}

/// Stopped or killed, and in a folder that was opened for what it lacked: the next pull restores exactly; and an orderly stop leaves no
/// folder with a mode that isn't the version's.
#[test]
fn a_pull_that_is_cut_short_leaves_folders_as_they_are_to_be() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    let folders = [("private", 0o700), ("shared", 0o775), ("closed", 0o555), ("closed/none", 0o500)];
    for (folder, _) in folders {
        for n in 0..60 {
            site.write(&format!("src/{folder}/{n}"), format!("{folder} {n}").as_bytes());
        }
    }
    folders.iter().for_each(|(folder, mode)| set(&site.path("src").join(folder), *mode));
    site.haul(&["snapshot", "push", "@src", "c:b/s"]).ok();
    for signal in ["-INT", "-TERM", "-KILL"] {
        let out = site.path(&format!("out{signal}"));
        let at = format!("@out{signal}");
        cloud.set(None, &[("latency", "0ms")]).unwrap();
        site.haul(&["snapshot", "pull", "c:b/s", "src", &at]).ok();
        for (folder, mode) in folders {
            set(&out.join(folder), 0o755);
            fs::remove_file(out.join(folder).join("7")).unwrap();
            set(&out.join(folder), mode);
        }
        // One that isn't there yet.
        fs::remove_dir_all(out.join("private")).unwrap();
        cloud.set(None, &[("latency", "80ms")]).unwrap();
        let mut child = site.lab.start(&["snapshot", "pull", "c:b/s", "src", &at, "--transfers=2"]);
        assert!(until(|| names(&out.join("private")).len() > 2 || child.try_wait().unwrap().is_some()));
        // Nobody else looks into it, not while it is filled and not after a kill.
        assert_eq!(format!("{:o}", mode(&out.join("private"))), "700", "{signal}");
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        if signal == "-KILL" {
            assert!(!child.wait().unwrap().success());
        } else {
            site.lab.end(child).code(130);
            for (folder, want) in folders {
                assert_eq!(format!("{:o}", mode(&out.join(folder))), format!("{want:o}"), "{signal}: {folder}");
            }
        }
        assert!(names(&out.join("private")).len() < 60, "{signal}: it was done before");
        cloud.set(None, &[("latency", "0ms")]).unwrap();
        site.haul(&["snapshot", "pull", "c:b/s", "src", &at, "--delete"]).ok();
        site.haul(&["cleanup", &at]).ok();
        // Its time may be that of a partial file's removal.
        site.haul(&["snapshot", "pull", "c:b/s", "src", &at, "--delete"]).ok();
        assert_eq!(facts(&out), facts(&site.path("src")), "{signal}");
    }
}

#[test]
fn two_pushes_of_one_name_at_once_both_end_up_whole() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("latency", "5ms")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for who in ["one", "two"] {
        for n in 0..100 {
            let mine = if n % 2 == 0 { "both" } else { who };
            site.write(&format!("{who}/{n}"), format!("{mine} {n}").as_bytes());
        }
    }
    let children: Vec<_> = ["one", "two"]
        .iter()
        .map(|who| site.lab.start(&["snapshot", "push", &format!("@{who}"), "c:b/s", "data"]))
        .collect();
    let versions: Vec<String> =
        children.into_iter().map(|child| site.lab.end(child).ok().out.trim().to_string()).collect();
    assert_ne!(versions[0], versions[1]);
    for (version, who) in versions.iter().zip(["one", "two"]) {
        site.haul(&["snapshot", "check", "--verify=read", "c:b/s", version]).ok();
        site.haul(&["snapshot", "pull", "c:b/s", version, &format!("@out-{who}")]).ok();
        assert_eq!(facts(&site.path(&format!("out-{who}"))), facts(&site.path(who)));
    }
    assert_eq!(cloud.keys("b").iter().filter(|key| key.starts_with(b"s/snapshots/data/")).count(), 2);
}

#[test]
fn a_file_that_changes_is_never_stored_under_a_wrong_hash() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("latency", "2ms")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..200 {
        site.write(&format!("src/{n}"), &folder::noise(n, 2_000));
    }
    site.write("src/log", b"begins\n");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = fs::File::options().append(true).open(site.path("src/log")).unwrap();
            while !stop.load(Ordering::Relaxed) {
                log.write_all(b"one more line\n").unwrap();
                thread::yield_now();
            }
        });
        for _ in 0..3 {
            let ran = site.haul(&["--retries", "1", "snapshot", "push", "@src", "c:b/s"]);
            assert!(ran.code == 0 || ran.err.contains("No version was made"), "{}", ran.err);
            assert_eq!(ran.code == 0, ran.out.starts_with("src@"), "{}\n{}", ran.out, ran.err);
        }
        stop.store(true, Ordering::Relaxed);
    });
    site.haul(&["snapshot", "push", "@src", "c:b/s"]).ok();
    site.haul(&["snapshot", "check", "--verify=read", "c:b/s"]).ok();
    for key in cloud.keys("b") {
        let text = String::from_utf8(key.clone()).unwrap();
        if let Some(name) = text.strip_prefix("s/files/md5/") {
            let hash = haul_core::hash::hash_bytes(&[haul_core::Algo::Md5], &cloud.get("b", &key).unwrap().bytes);
            let name = name.replace('/', "").replace(".dir", "");
            assert_eq!(hash.hex(haul_core::Algo::Md5).unwrap(), name);
        }
    }
}

#[test]
fn what_changes_between_hashing_and_sending_is_looked_at_again() {
    const FILES: usize = 300;
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("latency", "30ms")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    // Content goes in the order of its hashes: the last two are changed while the first are sent.
    let mut order: Vec<(String, usize)> = Vec::new();
    for n in 0..FILES {
        let bytes = format!("file {n}");
        site.write(&format!("src/{n}"), bytes.as_bytes());
        let hash = haul_core::hash::hash_bytes(&[haul_core::Algo::Md5], bytes.as_bytes());
        order.push((hash.hex(haul_core::Algo::Md5).unwrap(), n));
    }
    order.sort();
    let (gone, changed) = (order[FILES - 1].1, order[FILES - 2].1);
    let mut child = site.lab.start(&["snapshot", "push", "@src", "c:b/s", "--transfers=4", "-v"]);
    assert!(until(|| cloud.keys("b").len() >= 8 || child.try_wait().unwrap().is_some()));
    fs::remove_file(site.path(&format!("src/{gone}"))).unwrap();
    site.write(&format!("src/{changed}"), b"changed meanwhile");
    let ran = site.lab.end(child).ok();
    let message = format!("{changed}: it changed while it was read: looking at it again");
    assert!(ran.err.contains(&message) && !ran.err.contains("ERROR"), "{}", ran.err);
    site.haul(&["snapshot", "check", "--verify=read", "c:b/s"]).ok();
    site.haul(&["snapshot", "pull", "c:b/s", "src", "@out"]).ok();
    assert_eq!(facts(&site.path("out")), facts(&site.path("src")));
}

#[test]
fn a_push_goes_on_as_a_job_of_haul_resume() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("connection-rate", "4M")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    site.write("src/large", &folder::noise(9, 60 << 20));
    let flags =
        ["--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "--multi-thread-cutoff=5Mi", "--multi-thread-streams=2"];
    let mut child = site.lab.start(&[&["snapshot", "push", "@src", "c:b/s", "big"][..], &flags].concat());
    until(|| cloud.report().of("UploadPart") >= 5 || child.try_wait().unwrap().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    cloud.set(None, &[("connection-rate", "off")]).unwrap();
    let jobs = site.haul(&["jobs"]).ok().out;
    let id = jobs.lines().nth(1).and_then(|line| line.split(' ').next()).unwrap_or_else(|| panic!("no job: {jobs}"));
    let ran = site.haul(&["resume", id]).ok();
    assert!(ran.out.starts_with("big@"), "{}", ran.out);
    assert_eq!(site.haul(&["snapshot", "check", "--verify=read", "c:b/s"]).ok().out.lines().count(), 1);
}

#[test]
fn a_cloud_with_faults_gets_whole_versions_and_gives_them_back() {
    let faults = "error500=0.03,reset=0.03,lost-answer=0.1,cut=0.05,wrong-etag=0.02";
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b"), ("fault", faults)]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..150 {
        site.write(&format!("src/{n}"), &folder::noise(n, 3_000));
    }
    for n in 0..4 {
        site.write("src/changes", format!("{n}").as_bytes());
        site.haul(&["snapshot", "push", "@src", "c:b/s"]).ok();
    }
    cloud.set(None, &[("fault", "cut=0.05")]).unwrap();
    let out = site.haul(&["snapshot", "check", "--verify=read", "c:b/s"]).ok().out;
    assert_eq!(out.lines().count(), 4, "{out}");
    site.haul(&["snapshot", "pull", "c:b/s", "src", "@out"]).ok();
    assert_eq!(facts(&site.path("out")), facts(&site.path("src")));
}

#[test]
fn what_can_not_be_read_makes_no_version() {
    let site = Site::new();
    site.write("src/a", b"a");
    site.write("src/b", b"b");
    // Root reads everything, so the file is one that nobody can: it is gone when it is read, and its folder is a link's.
    std::os::unix::fs::symlink("nowhere", site.path("src/gone")).unwrap();
    let ran = site.haul(&["snapshot", "push", "--copy-links", "@src", "@store"]).code(4);
    assert!(ran.err.contains("the symbolic link points to nothing"), "{}", ran.err);
    assert!(ran.err.contains("No version was made"), "{}", ran.err);
    assert!(!site.path("store").exists());
}
