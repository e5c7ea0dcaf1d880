//! `haul bench` with the real binary against a simulated cloud and between directories: what it measures is no more than the cloud
//! gives, it removes what it sent in every case, and spends nothing unasked. How knee and limit follow from what was measured is tested where that is
//! decided, without a clock: a busy machine is slower than any cloud.

use haul_testkit::{
    cloudsim::Cloudsim,
    lab::{Lab, until},
    servers::{ACCESS_KEY, SECRET_KEY},
};
use serde_json::Value;
use std::{
    fs,
    process::Command,
    sync::{Mutex, PoisonError},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// What measures speeds runs alone: two at once would measure each other.
static ALONE: Mutex<()> = Mutex::new(());

/// A cloud with an empty bucket `b` that holds one file of somebody else's, and a lab whose remote `r` is it.
fn cloud(settings: &[(&str, &str)]) -> (Cloudsim, Lab) {
    let cloud = Cloudsim::with(settings);
    cloud.put("b", b"theirs", &b"not ours"[..], &[]);
    let lab = Lab::new(HAUL);
    let endpoint = cloud.endpoint();
    let text = format!(
        "[r]\ntype = s3\nprovider = Other\nendpoint = {endpoint}\naccess_key_id = {ACCESS_KEY}\nsecret_access_key = {SECRET_KEY}\n"
    );
    fs::write(lab.config(), text).unwrap();
    (cloud, lab)
}

#[track_caller]
fn assert_removed(cloud: &Cloudsim) {
    assert_eq!(cloud.keys("b"), [b"theirs".to_vec()], "only what was there before");
    assert_eq!(cloud.report().unfinished_uploads, 0);
}

fn sweep<'a>(json: &'a Value, direction: &str, size: u64) -> &'a Value {
    let sweeps = json["sweeps"].as_array().unwrap();
    sweeps.iter().find(|s| s["direction"] == direction && s["size"] == size).unwrap()
}

#[test]
fn no_more_is_measured_than_the_cloud_gives_and_no_more_sent_than_allowed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // One connection carries a tenth of what all carry together.
    let rates = [("connection-rate", "1M"), ("rate-in", "10M"), ("rate-out", "10M"), ("latency", "2ms")];
    let (cloud, lab) = cloud(&rates);
    // Bytes bound it, not time: on a busy machine the time of a bench may be up before it has come to its end.
    let bounds = ["--max-bytes=180M", "--sizes=300000B", "--max-concurrency=32", "--max-time=30m"];
    let ran = lab.haul(&[&["bench", "--yes", "--json", "--report=@r.html", "r:b"], &bounds[..]].concat()).ok();
    assert_removed(&cloud);

    let json: Value = serde_json::from_str(&ran.out).expect("JSON and nothing else");
    let report = cloud.report();
    for (direction, through) in [("up", report.bytes_in), ("down", report.bytes_out)] {
        let sweep = sweep(&json, direction, 300_000);
        let points = sweep["points"].as_array().unwrap();
        let levels: Vec<u64> = points.iter().map(|point| point["at_once"].as_u64().unwrap()).collect();
        assert!(levels.is_sorted() && levels[0] == 1 && levels.iter().all(|level| *level <= 32), "{}", ran.out);
        assert!(levels.contains(&sweep["knee"].as_u64().unwrap()), "{direction}: {}", ran.out);
        let measured = points.iter().chain([&sweep["auto"]]).map(|point| point["bytes"].as_u64().unwrap());
        assert!(measured.clone().all(|bytes| bytes > 0), "{direction}: {}", ran.out);
        assert!(measured.sum::<u64>() <= through, "{direction}: {report:?} {}", ran.out);
    }
    // None where haul left alone was faster, or the last doubling still brought more.
    let set = &json["settings"][0]["transfers"];
    assert!(set.is_null() || *set == sweep(&json, "up", 300_000)["knee"], "{}", ran.out);
    let verified = json["bytes_verified"].as_u64().unwrap();
    assert!(verified > 0 && verified <= 90 << 20, "{verified}");
    assert!(report.bytes_in + report.bytes_out < 190 << 20, "{report:?}");

    let page = fs::read_to_string(lab.path("r.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert_eq!(page.matches("<svg").count(), 3);
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for secret in [&page, &ran.out, &ran.err] {
        assert!(!secret.contains(SECRET_KEY));
    }
}

#[test]
fn a_limit_of_requests_is_told_from_one_of_bandwidth() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // 20 a second, 200 ms each: four at once are enough, and sixteen are refused.
    let (cloud, lab) = cloud(&[("latency", "200ms"), ("requests-per-second", "20,4")]);
    let bounds = ["--max-bytes=1.4M", "--sizes=5000B", "--max-concurrency=16", "--max-time=30m"];
    let ran = lab.haul(&[&["bench", "--yes", "--json", "r:b"], &bounds[..]].concat()).ok();
    assert_removed(&cloud);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(json["throttled"].as_u64().unwrap() > 0);
    // One of the two may have stood still on a busy machine.
    let rate_limited = ["up", "down"].iter().filter(|way| sweep(&json, way, 5000)["limit"] == "request rate").count();
    assert!(rate_limited > 0, "{}", ran.out);
}

#[test]
fn a_large_file_goes_in_parts_and_nothing_stays() {
    let (cloud, lab) = cloud(&[("connection-rate", "5M"), ("etag", "md5")]);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let bounds = ["--max-bytes=170M", "--sizes=20M", "--max-concurrency=2", "--max-time=30m"];
    let ran = lab.haul(&[&["bench", "-y", "r:b/some folder"], &bounds[..]].concat()).ok();
    assert_removed(&cloud);
    assert!(ran.out.contains("1 x 20 MiB  up         2 parts"), "{}", ran.out);
    assert!(ran.out.contains("1 x 20 MiB  down       2 parts"), "{}", ran.out);
    // Which of them it is follows from speeds, and those from how busy this machine is.
    let known = [
        "Settings that suit copying to r:b/some folder: --multi-thread-streams 1",
        "Settings that suit copying to r:b/some folder: --multi-thread-streams 2",
        "Copying to r:b/some folder: set nothing; haul's own choice was faster than any fixed number.",
        "Copying to r:b/some folder: set nothing yet; the speed was still rising at the most that was tried.",
    ];
    assert!(ran.out.lines().any(|line| known.contains(&line)), "{}", ran.out);
    assert!(ran.out.ends_with("--report FILE.html writes this with plots.\n"), "{}", ran.out);
}

#[test]
fn it_spends_nothing_unasked() {
    let (cloud, lab) = cloud(&[]);
    let ran = lab.haul(&["bench", "r:b"]).code(2);
    let line =
        "haul: bench transfers data, which may cost money, and can't ask without a terminal: allow it with --yes\n";
    assert!(ran.err.ends_with(line), "{}", ran.err);
    assert!(ran.err.contains("  up      536.8 MB  about ") && ran.out.is_empty(), "{}", ran.err);
    lab.haul(&["bench", "--dry-run", "--yes", "r:b"]).ok();
    for (args, line) in [
        (&["bench", "-y", "r:"][..], "haul: r: is all buckets of the remote: name the one to measure"),
        (
            &["bench", "-y", "r:b", "--transfers=3"],
            "haul: bench finds out what suits, so it takes no --transfers: leave it out",
        ),
        (
            &["bench", "-y", "r:b", "--include=*.txt"],
            "haul: bench makes its own files and takes no filter: leave it out",
        ),
        (
            &["bench", "-y", "r:b", "--max-bytes=1M"],
            "haul: --max-bytes is too little to measure anything: allow at least 8M",
        ),
        (&["bench", "-y", "r:b", "--max-bytes=off"], "haul: --max-bytes must be a size: bench is always bounded"),
    ] {
        let ran = lab.haul(args).code(2);
        assert_eq!(ran.err.lines().last(), Some(line), "{args:?}");
    }
    assert_eq!(cloud.report().requests.values().sum::<u64>(), 0);
    // A mistyped path isn't made.
    lab.haul(&["bench", "-y", "@none"]).code(3);
    assert!(!lab.path("none").exists());
    lab.haul(&["bench", "-y", "r:none"]).code(3);
}

#[test]
fn what_comes_back_wrong_is_an_error_and_is_removed() {
    // The cloud forgets the bytes and gives others.
    let (cloud, lab) = cloud(&[("keep", "sizes")]);
    let ran = lab.haul(&["bench", "-y", "r:b", "--max-bytes=20M", "--retries=1"]).code(1);
    assert!(ran.err.contains("the 100000 bytes from 0 on are not those that were sent"), "{}", ran.err);
    assert!(ran.out.is_empty());
    assert_removed(&cloud);
}

#[test]
fn stopped_by_a_signal_it_removes_what_it_sent() {
    let (cloud, lab) = cloud(&[("latency", "30ms")]);
    let child = lab.start(&["bench", "-y", "r:b", "--sizes=100k,16M", "--max-bytes=400M"]);
    let puts = |cloud: &Cloudsim| cloud.keys("b").len();
    assert!(until(|| puts(&cloud) > 10), "it sends");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ran = lab.end(child).code(130);
    assert!(ran.out.is_empty(), "{}", ran.out);
    assert_removed(&cloud);
}

#[test]
fn a_local_folder_is_left_as_it_was() {
    let lab = Lab::new(HAUL);
    fs::create_dir(lab.path("d")).unwrap();
    fs::write(lab.path("d/theirs"), b"not ours").unwrap();
    let ran = lab.haul(&["bench", "-y", "--max-bytes=30M", "@d"]).ok();
    assert!(ran.out.contains("files x size  direction  at once"), "{}", ran.out);
    let names: Vec<_> = fs::read_dir(lab.path("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["theirs"]);
}

/// A lab with two directories, each of which holds a file of somebody else's.
fn two_folders() -> Lab {
    let lab = Lab::new(HAUL);
    for dir in ["from", "to"] {
        fs::create_dir(lab.path(dir)).unwrap();
        fs::write(lab.path(dir).join("theirs"), b"not ours").unwrap();
    }
    lab
}

/// What a directory of the lab holds.
fn names(lab: &Lab, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(lab.path(dir)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[track_caller]
fn assert_folders_as_before(lab: &Lab) {
    for dir in ["from", "to"] {
        assert_eq!(names(lab, dir), ["theirs"], "{dir}");
    }
}

#[test]
fn between_two_folders_copies_at_once_are_counted_and_nothing_stays() {
    let lab = two_folders();
    let bounds = ["--max-bytes=320M", "--sizes=10000B,4M", "--max-concurrency=2", "--max-time=30m"];
    let ran = lab.haul(&[&["bench", "-y", "--json", "--report=@r.html", "@from", "@to"], &bounds[..]].concat()).ok();
    assert_folders_as_before(&lab);
    let json: Value = serde_json::from_str(&ran.out).expect("JSON and nothing else");
    let sweeps = json["sweeps"].as_array().unwrap();
    let measured: Vec<_> =
        sweeps.iter().map(|s| (s["direction"].as_str().unwrap(), s["size"].as_u64().unwrap())).collect();
    assert_eq!(measured, [("across", 10_000), ("across", 4 << 20)]);
    for sweep in sweeps {
        let points = sweep["points"].as_array().unwrap();
        assert_eq!(points.iter().map(|p| p["at_once"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)], "{}", ran.out);
    }
    let most = sweeps.iter().filter_map(|sweep| sweep["knee"].as_u64()).max();
    let set = json["settings"][0]["transfers"].as_u64();
    assert!(set.is_none() || set == most, "{}", ran.out);
    let made = json["bytes_sent"].as_u64().unwrap();
    assert!(made > 0 && made <= 160 << 20, "{made}");
    assert!(json["at_once_per_rank"].as_u64().unwrap() >= 4 && json["to"].as_str().unwrap().ends_with("/to"));
    let page = fs::read_to_string(lab.path("r.html")).unwrap();
    assert!(page.contains("across, 10 kB") && page.contains("made and copied"), "{page}");

    // One directory can be both; the words end with how many ranks are worth it.
    let ran = lab.haul(&[&["bench", "-y", "@from", "@from"], &bounds[..]].concat()).ok();
    assert_folders_as_before(&lab);
    let reported = ran.err.lines().find(|line| line.contains("made in the first")).unwrap_or_default();
    assert_eq!(reported, "    167.8 MB  made in the first: 8388 x 10 kB, 20 x 4 MiB", "{}", ran.err);
    assert!(ran.out.contains("x 10 kB  across           1"), "{}", ran.out);
    assert!(ran.out.contains("and so does each rank of haul-mpi with a node like this one to itself: "), "{}", ran.out);
}

#[test]
fn between_two_folders_a_signal_removes_what_was_made_and_copied() {
    let lab = two_folders();
    let child = lab.start(&["bench", "-y", "--sizes=10000B", "--max-bytes=2G", "@from", "@to"]);
    let copied = || {
        let ours = names(&lab, "to").into_iter().find(|name| name.starts_with("haul-bench-"));
        ours.is_some_and(|ours| fs::read_dir(lab.path("to").join(ours)).is_ok_and(|mut dirs| dirs.next().is_some()))
    };
    assert!(until(copied), "it copies");
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let ran = lab.end(child).code(130);
    assert!(ran.out.is_empty(), "{}", ran.out);
    assert_folders_as_before(&lab);
}

#[test]
fn between_two_folders_what_can_not_be_measured_is_refused() {
    let (cloud, lab) = cloud(&[]);
    fs::create_dir(lab.path("from")).unwrap();
    let remote = "haul: with two paths bench copies between local or mounted directories: measure r:b by itself";
    for (args, line) in [
        (&["bench", "-y", "@from", "r:b"][..], remote),
        (&["bench", "-y", "r:b", "@from"], remote),
        (
            &["bench", "-y", "@from", "@from", "--max-bytes=20M"],
            "haul: --max-bytes is too little to measure anything: allow at least 98M",
        ),
    ] {
        assert_eq!(lab.haul(args).code(2).err.lines().last(), Some(line), "{args:?}");
    }
    assert_eq!(cloud.report().requests.values().sum::<u64>(), 0);
    // Neither of two mistyped paths is made.
    lab.haul(&["bench", "-y", "@from", "@none"]).code(3);
    lab.haul(&["bench", "-y", "@none", "@from"]).code(3);
    assert!(!lab.path("none").exists() && names(&lab, "from").is_empty());
}
