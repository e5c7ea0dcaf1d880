//! What it costs in requests, and how sure it is: git's history and directories' lists save questions, and are not believed blindly.

use super::site::{self, Site};
use haul_cas::address::{Address, Layout};
use haul_core::{Algo, hash::hash_bytes};
use haul_testkit::{cloudsim::Cloudsim, folder, lab::until, peers};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

const FILES: usize = 3_000;
const IN_SYNC: &str = "Cache and remote 's' are in sync.\n";

/// A repository whose directory of 3,000 files is at a remote that holds a million others; committed.
fn large() -> (Cloudsim, Site) {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b:keys=1000000,shape=dvc,size=1")]), Site::new());
    site.remote_at(&cloud.endpoint(), "b");
    for n in 0..FILES {
        site.write(&format!("data/{:02}/{n}", n % 30), format!("file {n}").as_bytes());
    }
    site.haul(&["dvc", "add", "data"]).ok();
    site.haul(&["dvc", "push"]).ok();
    site.commit();
    (cloud, site)
}

#[test]
fn one_change_among_many_costs_a_handful_of_requests() {
    let (cloud, site) = large();
    assert_eq!(cloud.keys("b").len(), FILES + 1);
    // Nothing that this machine remembers, only git and the cache.
    fs::remove_dir_all(site.lab.path("home/.local")).unwrap();
    site.write("data/07/7", b"another");
    site.haul(&["dvc", "add", "data"]).ok();
    site.commit();
    cloud.reset();
    let out = site.haul(&["dvc", "status", "-c"]).ok().out;
    assert_eq!(out, "\tnew:                data\n\tnew:                data/07/7\n");
    let report = cloud.report();
    assert!(report.total_requests <= 16, "{:?}", report.requests);
    cloud.reset();
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "2 files pushed\n");
    let report = cloud.report();
    assert!(report.total_requests <= 20 && report.of("PutObject") == 2, "{:?}", report.requests);
    cloud.reset();
    assert_eq!(site.haul(&["dvc", "status", "-c"]).ok().out, IN_SYNC);
    assert!(cloud.report().total_requests <= 14, "{:?}", cloud.report().requests);
    // A fresh clone fetches with one GET a file and few questions.
    let clone = site.clone_to("clone");
    cloud.reset();
    let out = site.haul_in(&clone, &["dvc", "fetch"]).ok().out;
    assert_eq!(out, format!("{} files fetched\n", FILES + 1));
    let report = cloud.report();
    assert_eq!(report.of("GetObject"), FILES as u64 + 1, "{:?}", report.requests);
    assert!(report.total_requests < 2 * FILES as u64, "{:?}", report.requests);
}

/// A status asks the disk once about each file of the cache.
#[test]
fn a_status_looks_at_each_file_of_the_cache_once() {
    let Some(strace) = peers::need("strace") else { return };
    let (_cloud, site) = large();
    let counts = site.lab.path("strace.out");
    let mut command = site.lab.command(&strace);
    command.args(["-f", "-c", "-e", "trace=statx", "-o"]).arg(&counts);
    command.args([site::HAUL, "dvc", "status", "-c"]);
    let ran = site.run(command, &site.repo);
    if ran.code != 0 && !ran.out.contains(IN_SYNC) {
        return peers::skip(&format!("strace can't trace here: {}", ran.err.trim()));
    }
    let text = fs::read_to_string(counts).unwrap();
    let line = text.lines().find(|line| line.ends_with(" statx")).unwrap_or_else(|| panic!("{text}"));
    let calls: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((FILES..FILES + 300).contains(&calls), "{calls} for {FILES} files");
}

/// What haul itself sent is in its index: the next run asks for the directory's list, and audits the index.
#[test]
fn a_second_run_asks_for_the_list_only() {
    let (cloud, site) = large();
    for args in [&["dvc", "status", "-c"][..], &["dvc", "push"]] {
        cloud.reset();
        site.haul(args).ok();
        let report = cloud.report();
        assert_eq!(report.of("HeadObject"), 1, "{args:?}: {:?}", report.requests);
        assert!(report.total_requests <= 17, "{args:?}: {:?}", report.requests);
    }
    site.write("data/07/7", b"another");
    site.haul(&["dvc", "add", "data"]).ok();
    cloud.reset();
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "2 files pushed\n");
    let report = cloud.report();
    assert!(report.total_requests <= 24 && report.of("PutObject") == 2, "{:?}", report.requests);
    // Every list is lost, the one that is wanted too: nothing is believed any more.
    for list in cloud.keys("b").into_iter().filter(|key| key.ends_with(b".dir")) {
        site.lab.haul(&["deletefile", &format!("m:b/{}", String::from_utf8(list).unwrap())]).ok();
    }
    let ran = site.haul(&["dvc", "push"]).ok();
    assert_eq!(ran.out, "1 file pushed\n", "{}", ran.err);
    assert!(ran.err.contains("the index is wrong"), "{}", ran.err);
    assert_eq!(site.haul(&["dvc", "status", "-c", "--no-index", "--verify"]).ok().out, IN_SYNC);
}

/// In a bucket of its own the audit shows all that a small repository has: every loss is found by the next push.
#[test]
fn every_loss_is_repaired_in_a_small_remote() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e")]), Site::new());
    site.remote_at(&cloud.endpoint(), "e");
    for n in 0..500 {
        site.write(&format!("data/{n}"), format!("file {n}").as_bytes());
    }
    site.haul(&["dvc", "add", "data"]).ok();
    site.haul(&["dvc", "push"]).ok();
    cloud.reset();
    assert_eq!(site.haul(&["dvc", "status", "-c"]).ok().out, IN_SYNC);
    let report = cloud.report();
    assert_eq!((report.of("HeadObject"), report.total_requests), (1, 2), "{:?}", report.requests);
    let keys: Vec<Vec<u8>> = cloud.keys("e").into_iter().filter(|key| !key.ends_with(b".dir")).collect();
    for key in keys.iter().step_by(60) {
        site.lab.haul(&["deletefile", &format!("m:e/{}", String::from_utf8_lossy(key))]).ok();
        let ran = site.haul(&["dvc", "push"]).ok();
        assert_eq!(ran.out, "1 file pushed\n", "{}", ran.err);
        assert!(ran.err.contains("the index is wrong"), "{}", ran.err);
    }
    assert_eq!(site.haul(&["dvc", "status", "-c", "--no-index", "--verify"]).ok().out, IN_SYNC);
    let ran = site.haul(&["dvc", "push", "--verify-index"]).ok();
    assert_eq!(ran.out, "Everything is up to date.\n");
}

#[test]
fn a_first_push_into_an_empty_bucket_asks_once() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e")]), Site::new());
    site.remote_at(&cloud.endpoint(), "e");
    for n in 0..500 {
        site.write(&format!("data/{n}"), format!("file {n}").as_bytes());
    }
    site.haul(&["dvc", "add", "data"]).ok();
    cloud.reset();
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "501 files pushed\n");
    let report = cloud.report();
    assert_eq!(report.of("PutObject"), 501, "{:?}", report.requests);
    assert!(report.total_requests <= 501 + 4, "{:?}", report.requests);
}

#[test]
fn what_was_lost_is_found_by_the_sample_or_by_looking() {
    let (cloud, site) = large();
    let stored: Vec<String> = cloud.keys("b").into_iter().map(|key| String::from_utf8(key).unwrap()).collect();
    let files: Vec<&String> = stored.iter().filter(|key| !key.ends_with(".dir")).collect();
    let lose = |keys: &[&String]| {
        let list: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
        fs::write(site.lab.path("lost"), list.join("\n")).unwrap();
        site.lab.haul(&["delete", "--files-from", "@lost", "--no-traverse", "m:b"]).ok();
        assert_eq!(cloud.keys("b").len(), FILES + 1 - keys.len());
    };
    // One of 3,000 may escape a sample, but not --verify.
    lose(&files[..1]);
    assert_eq!(site.haul(&["dvc", "push", "--verify"]).ok().out, "1 file pushed\n");
    // 8 pages, each with four promised files or so, and not one shows a loss of two thirds: that doesn't happen.
    lose(&files[..FILES * 2 / 3]);
    let ran = site.haul(&["dvc", "push"]).ok();
    assert_eq!(ran.out, "2000 files pushed\n");
    assert!(
        ran.err.contains("2000 files missing from the remote although the directory was pushed; sending again"),
        "{}",
        ran.err
    );
    assert_eq!(site.haul(&["dvc", "status", "-c", "--verify"]).ok().out, IN_SYNC);
}

/// A hundred files of one directory that were pushed to a bucket, and the key of one.
fn hundred() -> (Cloudsim, Site, String) {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e")]), Site::new());
    site.remote_at(&cloud.endpoint(), "e");
    for n in 0..100 {
        site.write(&format!("data/{n}"), format!("file {n}").as_bytes());
    }
    site.haul(&["dvc", "add", "data"]).ok();
    site.haul(&["dvc", "push"]).ok();
    let key = String::from_utf8(cloud.keys("e").into_iter().find(|key| !key.ends_with(b".dir")).unwrap()).unwrap();
    (cloud, site, key)
}

/// Directories' lists know no sizes, but the cache does.
#[test]
fn what_was_cut_off_behind_a_list_is_sent_again() {
    let (cloud, site, key) = hundred();
    let list = String::from_utf8(cloud.keys("e").into_iter().find(|key| key.ends_with(b".dir")).unwrap()).unwrap();
    fs::write(site.lab.path("short"), "f").unwrap();
    for (lost, status) in [(&key, "\tnew:                data/"), (&list, "\tnew:                data\n")] {
        for flag in ["--no-index", "--verify", "--verify-index"] {
            site.lab.haul(&["copyto", "@short", &format!("m:e/{lost}")]).ok();
            let ran = site.haul(&["dvc", "status", "-c", flag]).ok();
            assert!(ran.out.starts_with(status) && ran.out.lines().count() == 1, "{flag}: {}", ran.out);
            assert_eq!(site.haul(&["dvc", "push", flag]).ok().out, "1 file pushed\n");
            assert_eq!(site.haul(&["dvc", "status", "-c", flag]).ok().out, IN_SYNC);
        }
    }
    // Where the cache's is the one that was cut off, the remote's isn't called wrong.
    let cached = site.repo.join(".dvc/cache").join(&key);
    fs::set_permissions(&cached, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&cached, "f").unwrap();
    fs::set_permissions(&cached, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(site.haul(&["dvc", "status", "-c", "--no-index"]).ok().out, IN_SYNC);
    assert_eq!(site.haul(&["dvc", "push", "--no-index"]).ok().out, "Everything is up to date.\n");
}

/// A store that gives a checksum of what it holds doesn't say that this is what its name promises.
#[test]
fn content_is_proved_by_its_name_whatever_the_store_says_of_it() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e")]), Site::new());
    site.lab.remote("m", &cloud.endpoint());
    site.set_config("[core]\n    remote = s\n['remote \"s\"']\n    url = haul:m:e\n");
    site.write("one", b"hello\n");
    site.haul(&["dvc", "add", "one"]).ok();
    site.haul(&["dvc", "push"]).ok();
    let key = String::from_utf8(cloud.keys("e")[0].clone()).unwrap();
    fs::write(site.lab.path("other"), "jello\n").unwrap();
    site.lab.haul(&["copyto", "@other", &format!("m:e/{key}")]).ok();
    fs::remove_dir_all(site.repo.join(".dvc/cache")).unwrap();
    fs::remove_file(site.repo.join("one")).unwrap();
    let ran = site.haul(&["dvc", "pull"]).code(1);
    assert!(ran.err.contains("what was read does not have the md5"), "{}", ran.err);
    assert!(!site.repo.join("one").exists() && !site.repo.join(".dvc/cache").join(&key).exists());
}

/// The older layout's hash isn't that of the bytes, so no store can check it: only what passes tells.
#[test]
fn content_of_the_older_layout_has_its_name_only_when_it_is_proved() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e"), ("connection-rate", "200k")]), Site::new());
    site.remote_at(&cloud.endpoint(), "e");
    let name = |bytes: &[u8]| {
        let hashes = hash_bytes(&[Algo::Md5Text], bytes);
        let address = Address::file(Layout::V2, hashes.get(Algo::Md5Text).unwrap().try_into().unwrap());
        (address.text(), String::from_utf8(address.key().as_bytes().to_vec()).unwrap())
    };
    let (text, large) = (b"hello\r\nworld\r\n", folder::noise(1, 3 << 20));
    for (path, bytes) in [("text", &text[..]), ("large", &large)] {
        let (md5, key) = name(bytes);
        site.write(&format!("{path}.dvc"), format!("outs:\n- md5: {md5}\n  path: {path}\n").as_bytes());
        cloud.put("e", key.as_bytes(), bytes.to_vec(), &[]);
    }
    let key = name(text).1;
    let cached = site.repo.join(".dvc/cache").join(&key);
    cloud.put("e", key.as_bytes(), &b"jello\r\nworld\r\n"[..], &[]);
    // What is wrong is read again, while the large file is on its way.
    let mut command = site.lab.haul_command(&["dvc", "fetch"]);
    let mut child = command.current_dir(&site.repo).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(until(|| cached.exists() || cloud.report().of("GetObject") >= 3));
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!cached.exists());
    cloud.set(None, &[("connection-rate", "off")]).unwrap();
    let ran = site.haul(&["dvc", "pull"]).code(1);
    assert!(ran.err.contains("what was read does not have the md5-dos2unix that the source says"), "{}", ran.err);
    assert!(!cached.exists() && !site.repo.join("text").exists());
    cloud.put("e", key.as_bytes(), &text[..], &[]);
    site.haul(&["dvc", "pull"]).ok();
    assert_eq!(fs::read(site.repo.join("text")).unwrap(), text);
    assert_eq!(fs::read(site.repo.join("large")).unwrap(), large);
    assert_eq!(fs::metadata(&cached).unwrap().permissions().mode() & 0o7777, 0o444);
}

/// The kernel copies between two folders, and what it copied is hashed before it gets its name.
#[test]
fn content_from_a_folder_is_proved_by_its_name() {
    let site = Site::new();
    site.write("one", b"hello\n");
    let old = "outs:\n- md5: 0f723ae7f9bf07744445e93ac5595156\n  path: two\n";
    site.write("two.dvc", old.as_bytes());
    site.haul(&["dvc", "add", "one"]).ok();
    site.haul(&["dvc", "push", "one"]).ok();
    let keys = ["files/md5/b1/946ac92492d2347c6235b4d2611184", "0f/723ae7f9bf07744445e93ac5595156"];
    let put = |key: &str, bytes: &[u8]| {
        let path = site.lab.path("rem").join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        fs::write(path, bytes).unwrap();
    };
    keys.iter().for_each(|key| put(key, b"jello\n"));
    fs::remove_dir_all(site.repo.join(".dvc/cache")).unwrap();
    fs::remove_file(site.repo.join("one")).unwrap();
    let ran = site.haul(&["dvc", "fetch"]).code(1);
    for hash in ["md5 ", "md5-dos2unix "] {
        assert!(ran.err.contains(&format!("what was read does not have the {hash}that the source")), "{}", ran.err);
    }
    keys.iter().for_each(|key| assert!(!site.repo.join(".dvc/cache").join(key).exists(), "{key}"));
    put(keys[0], b"hello\n");
    put(keys[1], b"hello\r\nworld\r\n");
    let ran = site.haul(&["dvc", "pull", "-v"]).ok();
    assert!(ran.err.contains("Proved equal:  1 by md5, 1 by md5-dos2unix"), "{}", ran.err);
    assert_eq!(fs::read(site.repo.join("two")).unwrap(), b"hello\r\nworld\r\n");
}

/// A run that has no use for what was cut off notes it as it finds it; one that has must not take it for whole.
#[test]
fn what_the_index_has_in_another_size_than_the_cache_is_sent_again() {
    let (_cloud, site, key) = hundred();
    // So many that the index is used, and audited.
    (0..70).for_each(|n| site.write(&format!("other/{n}"), format!("other {n}").as_bytes()));
    site.haul(&["dvc", "add", "other"]).ok();
    fs::write(site.lab.path("short"), "f").unwrap();
    site.lab.haul(&["copyto", "@short", &format!("m:e/{key}")]).ok();
    let ran = site.haul(&["dvc", "push", "other"]).ok();
    assert_eq!(ran.out, "71 files pushed\n");
    assert!(ran.err.contains("the index is wrong"), "{}", ran.err);
    assert_eq!(site.haul(&["dvc", "push", "data"]).ok().out, "1 file pushed\n");
    assert_eq!(site.haul(&["dvc", "status", "-c", "--verify"]).ok().out, IN_SYNC);
}

/// They are asked for one by one in any case.
#[test]
fn a_few_files_cost_no_audit_of_the_index() {
    let (cloud, site, _) = hundred();
    site.write("other", b"other");
    site.haul(&["dvc", "add", "other"]).ok();
    cloud.reset();
    assert_eq!(site.haul(&["dvc", "push", "other"]).ok().out, "1 file pushed\n");
    let report = cloud.report();
    assert_eq!((report.of("ListObjectsV2"), report.total_requests), (0, 2), "{report:?}");
    // The index has it now.
    cloud.reset();
    assert_eq!(site.haul(&["dvc", "status", "-c"]).ok().out, IN_SYNC);
    assert!(cloud.report().of("HeadObject") <= 1, "{:?}", cloud.report());
}

/// Stopped before anything was sent isn't up to date.
#[test]
fn a_push_that_is_stopped_while_it_looks_says_so() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "e")]), Site::new());
    site.remote_at(&cloud.endpoint(), "e");
    site.write("one", b"one");
    site.haul(&["dvc", "add", "one"]).ok();
    let stopped = |args: &[&str]| {
        cloud.set(None, &[("latency", "2s")]).unwrap();
        cloud.reset();
        let mut command = site.lab.haul_command(args);
        command.current_dir(&site.repo).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        assert!(until(|| cloud.report().total_requests >= 1 || child.try_wait().unwrap().is_some()));
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let ran = site.lab.end(child).code(130);
        assert_eq!(ran.out, "", "{args:?}: {}", ran.err);
        cloud.set(None, &[("latency", "0ms")]).unwrap();
    };
    stopped(&["dvc", "push"]);
    assert!(cloud.keys("e").is_empty());
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "1 file pushed\n");
}
