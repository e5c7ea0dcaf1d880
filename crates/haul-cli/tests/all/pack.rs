//! Packs by the real binary: what a run costs in requests, what commands see, and what a second run does.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{assert_same, files, noise, read, write},
    lab::{Lab, until},
};
use std::{fs, path::Path, time::UNIX_EPOCH};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
/// As the issue has it.
const MANY: u64 = 100_000;
const TIME: u64 = 1_600_000_000_123_456_789;

/// A lab whose remote `r` is a simulated S3, and `p` packs in it.
fn lab(settings: &[(&str, &str)]) -> (Cloudsim, Lab) {
    let (server, lab) = (Cloudsim::with(settings), Lab::new(HAUL));
    server.bucket("b", None);
    lab.remote("r", &server.endpoint());
    let config = fs::read_to_string(lab.config()).unwrap();
    fs::write(lab.config(), config + "\n[p]\ntype = pack\nremote = r:b/dir\n").unwrap();
    (server, lab)
}

fn small(lab: &Lab, count: u64) {
    for n in 0..count {
        write(&lab.path(&format!("src/{:03}/{n:06}", n % 100)), &noise(n, (n % 1000) as usize), TIME + n);
    }
}

fn puts(server: &Cloudsim) -> u64 {
    let report = server.report();
    report.of("PutObject") + report.of("UploadPart")
}

#[test]
fn a_hundred_thousand_files_are_a_few_dozen_requests() {
    let (server, lab) = lab(&[("latency", "20ms")]);
    small(&lab, MANY);
    server.reset();
    lab.haul(&["copy", "--pack", "@src", "r:b/dir"]).ok();
    assert!(puts(&server) < 100, "{:?}", server.report().requests);
    assert!(server.report().total_requests < 110, "{:?}", server.report().requests);
    // Nothing is packed again, and to know that costs a listing and a read of each index.
    let indexes = server.keys("b").iter().filter(|key| key.ends_with(b".idx")).count() as u64;
    for how in [&["copy", "--pack", "@src", "r:b/dir"][..], &["sync", "@src", "p:"], &["check", "@src", "p:"]] {
        server.reset();
        lab.haul(how).ok();
        let report = server.report();
        assert_eq!((puts(&server), report.of("GetObject")), (0, indexes), "{how:?}: {:?}", report.requests);
        assert!(report.total_requests <= indexes + 3, "{how:?}: {:?}", report.requests);
    }
    let count = lab.haul(&["lsf", "-R", "--files-only", "p:"]).ok().out.lines().count() as u64;
    assert_eq!(count, MANY);
    // One file is one range of one pack.
    server.reset();
    assert_eq!(
        lab.haul(&["cat", "p:042/050042"]).ok().out.into_bytes().len(),
        lab.haul(&["cat", "@src/042/050042"]).ok().out.len()
    );
    assert_eq!(server.report().of("GetObject"), indexes + 1, "{:?}", server.report().requests);
}

#[test]
fn what_goes_in_comes_out() {
    let (server, lab) = lab(&[]);
    small(&lab, 300);
    write(&lab.path("src/big/large"), &noise(1, 3_000_000), TIME);
    write(&lab.path("src/big/larger"), &noise(2, 40_000_000), TIME);
    write(&lab.path("src/odd/\u{e9} \u{1F69A}\n"), b"odd", 1);
    lab.haul(&["copy", "@src", "p:"]).ok();
    let keys: Vec<String> = server.keys("b").iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    let ending = |end: &str| keys.iter().filter(|key| key.ends_with(end)).count();
    // A machine that lets a pack wait for its files for a moment has some more.
    assert!(ending(".tar") < 20 && ending("/big/large") == 1 && ending("/big/larger") == 1, "{keys:?}");
    server.reset();
    lab.haul(&["copy", "p:", "@back"]).ok();
    assert_same(&files(&read(&lab.path("src"))), &files(&read(&lab.path("back"))), "there and back");
    // Neighbours in a pack come together: 300 files and 45 MB in far fewer requests.
    assert!(server.report().of("GetObject") < 100, "{:?}", server.report().requests);
    assert_eq!(lab.haul(&["lsf", "p:big"]).ok().out, "large\nlarger\n");
    let cat = lab.haul(&["cat", "--offset", "100", "--count", "5", "p:000/000200"]).ok().out;
    assert_eq!(cat, String::from_utf8_lossy(&noise(200, 200)[100..105]));
    // Written as a connection string, of a folder in the packs.
    let listed = lab.haul(&["ls", ":pack,remote=\"r:b/dir\":odd"]).ok().out;
    assert!(listed.starts_with("        3 \u{e9} \u{1F69A}"), "{listed}");
}

#[test]
fn tar_reads_a_pack_of_1_kb_files_and_it_costs_half_a_file_more() {
    let (server, lab) = lab(&[]);
    let deep = format!("{}/{}", "folder".repeat(16), "f".repeat(99));
    let keys: Vec<String> = (0..1000).map(|n| format!("{n:04}")).chain([deep, "\u{e9}/x".into()]).collect();
    for (n, key) in (0..).zip(&keys) {
        write(&lab.path("src").join(key), &noise(n, 1000), TIME);
    }
    lab.haul(&["copy", "--pack", "@src", "r:b/dir"]).ok();
    let tars: Vec<_> = server.keys("b").into_iter().filter(|key| key.ends_with(b".tar")).collect();
    // One, or some more on a machine that lets a pack wait for its files for a moment; each has an end of its own.
    assert!(tars.len() < 20, "{}", tars.len());
    fs::create_dir(lab.path("by-tar")).unwrap();
    let mut bytes = 0;
    for tar in &tars {
        let archive = server.get("b", tar).unwrap().bytes;
        bytes += archive.len();
        fs::write(lab.path("pack.tar"), &archive).unwrap();
        lab.run(Path::new("tar"), &["-xf", "@pack.tar", "-C", "@by-tar"]).ok();
    }
    assert!(bytes < keys.len() * 1_550 + (tars.len() - 1) * 10_240, "{bytes} bytes in {}", tars.len());
    for (n, key) in (0..).zip(&keys) {
        let path = lab.path("by-tar").join(key);
        assert!(fs::read(&path).unwrap() == noise(n, 1000), "{key}");
        let time = fs::metadata(&path).unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(time.as_secs(), TIME / 1_000_000_000, "{key}");
    }
    assert_eq!(files(&read(&lab.path("by-tar"))).len(), keys.len());
    // The time is whole for haul, from the index and without it.
    for remote in ["p:", ":pack,rebuild,remote=\"r:b/dir\":"] {
        let to = format!("@back{}", remote.len());
        lab.haul(&["copy", remote, &to]).ok();
        assert_same(&files(&read(&lab.path("src"))), &files(&read(&lab.path(&to[1..]))), remote);
        lab.haul(&["delete", "r:b/dir", "--include=*.idx"]).ok();
    }
}

#[test]
fn a_second_run_sends_what_is_new_and_sync_deletes() {
    let (server, lab) = lab(&[]);
    small(&lab, 200);
    lab.haul(&["sync", "--pack", "@src", "r:b/dir"]).ok();
    write(&lab.path("src/000/000100"), b"changed", TIME + 1);
    write(&lab.path("src/new"), b"new", TIME);
    fs::remove_file(lab.path("src/001/000001")).unwrap();
    server.reset();
    lab.haul(&["sync", "--pack", "@src", "r:b/dir"]).ok();
    // A pack of two files and its index, or one of each where the second comes a moment later, and an index of what is deleted.
    assert!((3..=5).contains(&server.report().of("PutObject")), "{:?}", server.report().requests);
    assert!(server.report().bytes_in < 10_000, "{:?}", server.report().bytes_in);
    assert_eq!(lab.haul(&["cat", "p:000/000100"]).ok().out, "changed");
    lab.haul(&["check", "@src", "p:"]).ok();
    lab.haul(&["copy", "p:", "@back"]).ok();
    assert_same(&files(&read(&lab.path("src"))), &files(&read(&lab.path("back"))), "after a sync");
    // With rclone's habit of naming a number of transfers, packs stay large all the same.
    let (server, lab) = self::lab(&[]);
    small(&lab, 500);
    lab.haul(&["copy", "--pack", "--transfers", "2", "@src", "r:b/dir"]).ok();
    assert!(server.report().of("PutObject") <= 40, "{:?}", server.report().requests);
}

#[test]
fn a_damaged_index_deletes_nothing() {
    let (server, lab) = lab(&[]);
    small(&lab, 50);
    lab.haul(&["copy", "--pack", "@src", "r:b/dir"]).ok();
    lab.haul(&["copy", "@src", "@other"]).ok();
    let index = server.keys("b").into_iter().find(|key| key.ends_with(b".idx")).unwrap();
    let mut bytes = server.get("b", &index).unwrap().bytes;
    bytes[100] ^= 1;
    server.put("b", &index, bytes, &[]);
    let ran = lab.haul(&["sync", "p:", "@other"]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("the index is damaged: its checksum is wrong"), "{}", ran.err);
    assert_same(&files(&read(&lab.path("src"))), &files(&read(&lab.path("other"))), "nothing is deleted");
    let rescued = lab.haul(&["copy", ":pack,remote=\"r:b/dir\",rebuild:", "@rescued"]).ok();
    assert!(rescued.err.contains("doing without it"), "{}", rescued.err);
    assert_same(&files(&read(&lab.path("src"))), &files(&read(&lab.path("rescued"))), "rescued");
}

/// A damaged index is one error, not one for each file.
#[test]
fn a_damaged_index_is_told_once() {
    let (server, lab) = lab(&[]);
    small(&lab, 50);
    lab.haul(&["copy", "--pack", "@src", "r:b/dir"]).ok();
    let index = server.keys("b").into_iter().find(|key| key.ends_with(b".idx")).unwrap();
    server.put("b", &index, &b"damaged"[..], &[]);
    let before = server.keys("b");
    for how in [
        &["copy", "@src", "p:"][..],
        &["sync", "@src", "p:"],
        &["copy", "--no-traverse", "@src", "p:"],
        &["purge", "p:"],
    ] {
        server.reset();
        let ran = lab.haul(how).code(1);
        assert_eq!(ran.err.matches("the index is damaged").count(), 1, "{how:?}: {}", ran.err);
        // A listing and a read of the index, at most once for each file that was asked for while the first answer came; not again
        // for each that is compared, and each try.
        assert!(server.report().total_requests <= 110, "{how:?}: {:?}", server.report().requests);
        assert_eq!(server.keys("b"), before);
    }
}

#[test]
fn a_damaged_archive_is_told_and_each_retry_is_counted_once() {
    let (server, lab) = lab(&[]);
    write(&lab.path("src/f"), &noise(1, 1000), TIME);
    lab.haul(&["copy", "@src", "p:"]).ok();
    let tar = server.keys("b").into_iter().find(|key| key.ends_with(b".tar")).unwrap();
    let mut bytes = server.get("b", &tar).unwrap().bytes;
    bytes.iter_mut().for_each(|byte| *byte ^= 1);
    server.put("b", &tar, bytes, &[]);
    let ran = lab.haul(&["copy", "p:", "@back"]).code(1);
    assert!(ran.err.contains("ERROR : f: Failed to read: the pack holds something else"), "{}", ran.err);
    // Three tries.
    assert!(ran.err.contains("Retries:       2, "), "{}", ran.err);
    assert_eq!(fs::read_dir(lab.path("back")).map_or(0, Iterator::count), 0);
}

/// A pack without an index is no pack: what a kill leaves is either whole or not there, and the next run completes it.
#[test]
fn killed_while_packing_loses_nothing() {
    let (server, lab) = lab(&[("latency", "10ms"), ("rate-in", "20M")]);
    small(&lab, 20_000);
    let mut killed = 0;
    for put in 1..=4 {
        let puts_before = puts(&server);
        let mut child = lab.start(&["copy", "@src", "p:", "--s3-chunk-size=5Mi"]);
        until(|| puts(&server) >= puts_before + put || child.try_wait().unwrap().is_some());
        killed += u64::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        // Whatever can be seen now is right.
        let seen = format!("@seen{put}");
        if server.keys("b").is_empty() {
            // Before the first pack is whole there is no folder to read.
            lab.haul(&["copy", "p:", &seen]).code(3);
            continue;
        }
        lab.haul(&["copy", "p:", &seen]).ok();
        let (source, seen) = (read(&lab.path("src")), files(&read(&lab.path(&seen[1..]))));
        assert!(seen.iter().all(|(name, node)| source.get(name) == Some(node)), "after {put}");
    }
    assert!(killed >= 2, "only {killed} runs were killed while they went on");
    lab.haul(&["copy", "@src", "p:"]).ok();
    lab.haul(&["copy", "p:", "@back"]).ok();
    assert_same(&files(&read(&lab.path("src"))), &files(&read(&lab.path("back"))), "after all");
    assert_eq!(server.report().unfinished_uploads, 0, "the journal knows of what was begun");
}

/// Several runs write into the same packs at once: what each was told is stored can be seen, and the loss of any one's index is noticed
/// by the run after.
#[test]
fn several_writers_at_once_lose_nothing() {
    let (server, lab) = lab(&[("latency", "20ms"), ("rate-in", "20M")]);
    let who = ["a", "b", "c"];
    for (number, who) in who.iter().enumerate() {
        for n in 0..400 {
            let seed = 1000 * number as u64 + n;
            write(&lab.path(&format!("{who}/{who}/{n:04}")), &noise(seed, (seed % 3000) as usize), TIME + n);
        }
        write(&lab.path(&format!("{who}/{who}/large")), &noise(number as u64, 3_000_000), TIME);
    }
    let runs = who.map(|who| lab.start(&["copy", &format!("@{who}"), "p:", "--pack-size=100Ki"]));
    for mut run in runs {
        assert!(run.wait().unwrap().success());
    }
    for who in who {
        lab.haul(&["check", &format!("@{who}/{who}"), &format!("p:{who}"), "--download"]).ok();
    }
    write(&lab.path("more/f"), b"more", TIME);
    lab.haul(&["copy", "@more", "p:"]).ok();
    let indexes: Vec<_> = server.keys("b").into_iter().filter(|key| key.ends_with(b".idx")).collect();
    assert!(indexes.len() > 6, "{}", indexes.len());
    for index in indexes[..indexes.len() - 1].iter().rev().take(8) {
        let kept = server.get("b", index).unwrap().bytes;
        lab.haul(&["deletefile", &format!("r:b/{}", String::from_utf8_lossy(index))]).ok();
        let ran = lab.haul(&["lsf", "p:"]).code(1);
        assert!(ran.err.contains("the index is missing"), "{}", ran.err);
        server.put("b", index, kept, &[]);
    }
    lab.haul(&["lsf", "p:"]).ok();
}

#[test]
fn mistakes_are_told() {
    let (_server, lab) = lab(&[]);
    write(&lab.path("src/f"), b"1", TIME);
    let err = |args: &[&str]| {
        let ran = lab.haul(args);
        assert_ne!(ran.code, 0, "{args:?}");
        ran.err.lines().last().unwrap_or_default().to_string()
    };
    let forgotten = err(&["ls", ":pack,remote=r:b/dir:"]);
    assert!(forgotten.contains("write it in quotes as \"r:PATH\", or ./r for a directory here"), "{forgotten}");
    let none = err(&["ls", ":pack:"]);
    assert!(none.contains("a pack remote needs the option remote: where the packs are"), "{none}");
    fs::write(lab.path("loop.conf"), "[l]\ntype = pack\nremote = l:x\n").unwrap();
    let looped = err(&["--config", "@loop.conf", "ls", "l:"]);
    assert!(looped.contains("remote \"l\" is made on itself, through 8 others"), "{looped}");
    let one = err(&["copyto", "--pack", "@src/f", "r:b/dir/g"]);
    assert!(one.contains("--pack takes a directory as DEST"), "{one}");
    // A pack remote is packed already, and a folder may be one.
    lab.haul(&["copy", "--pack", "@src", "p:"]).ok();
    lab.haul(&["copy", "--pack", "@src", "@packed"]).ok();
    assert_eq!(lab.haul(&["cat", "p:f"]).ok().out, "1");
    assert_eq!(fs::read_dir(lab.path("packed/packs")).unwrap().count(), 2);
}

/// The files of a lost pack are sent again. A move deletes no source because of the lost copy.
#[test]
fn archives_and_files_that_are_gone_are_told_and_sent_again() {
    let lab = Lab::new(HAUL);
    let there = format!(":pack,remote=\"{}\":", lab.path("packs").display());
    let fill = || {
        small(&lab, 30);
        write(&lab.path("src/large"), &noise(7, 2 << 20), TIME);
    };
    fill();
    lab.haul(&["copy", "@src", &there]).ok();
    let ending = |end: &str| -> Vec<_> {
        let all = files(&read(&lab.path("packs"))).into_keys().map(|name| lab.path("packs").join(name));
        all.filter(|name| name.to_string_lossy().ends_with(end)).collect()
    };
    type Loss = fn(&Path);
    let cut: Loss = |file| fs::OpenOptions::new().write(true).open(file).unwrap().set_len(700).unwrap();
    let gone: Loss = |file| fs::remove_file(file).unwrap();
    for (end, loss) in [(".tar", gone), (".tar", cut), ("/large", gone), ("/large", cut)] {
        ending(end).iter().for_each(|file| loss(file));
        let ran = lab.haul(&["check", "@src", &there]).code(1);
        assert!(ran.err.contains("it is gone or was cut off"), "{end}: {}", ran.err);
        assert_ne!(lab.haul(&["copy", &there, "@out"]).code, 0, "{end}");
        lab.haul(&["move", "@src", &there]).ok();
        assert!(files(&read(&lab.path("src"))).is_empty(), "{end}");
        fill();
        lab.haul(&["check", "@src", &there, "--download"]).ok();
    }
    let ran = lab.haul(&[
        "copy",
        ":pack,remote=\"@packs\":none".replace("@packs", lab.path("packs").to_str().unwrap()).as_str(),
        "@none",
    ]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let ran = lab.haul(&["sync", &there, "@"]);
    assert!(ran.code != 0 && ran.err.contains("is inside the destination"), "{}", ran.err);
    let ran = lab.haul(&["copy", "@", &there]);
    assert!(ran.code != 0 && ran.err.contains("is inside the source"), "{}", ran.err);
}
