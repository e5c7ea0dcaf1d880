//! Against clouds that misbehave, throttle or are far away: everything is right in the end, nothing stays behind, few
//! requests are refused, and memory is bounded whatever is in flight.

use haul_testkit::{
    cloudsim::{
        Cloudsim, ObjectSpec,
        synthetic::{Shape, SyntheticContent},
    },
    folder::{self, files, noise, write},
    lab::{Lab, peak},
    peers,
};
use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: u64 = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
/// Little patience, and parts as small as S3 allows.
const QUICK: [&str; 5] =
    ["--timeout=2s", "--retries=6", "--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "--multi-thread-cutoff=6Mi"];

fn cloud(settings: &[(&str, &str)]) -> (Cloudsim, Lab) {
    let (cloud, lab) = (Cloudsim::with(settings), Lab::new(HAUL));
    lab.remote("c", &cloud.endpoint());
    (cloud, lab)
}

/// Every kind of fault in a hundredth of the requests, up, across and down: files of all sizes, some in parts.
#[test]
fn one_fault_in_a_hundred_of_every_kind_spoils_nothing() {
    let faults = "error500=0.01,reset=0.01,cut=0.01,stall=0.01,wrong-etag=0.01,complete-error=0.01,lost-answer=0.01";
    let settings = [("latency", "1ms"), ("fault", faults), ("stall-for", "6s"), ("seed", "7"), ("etag", "md5")];
    let (cloud, lab) = cloud(&settings);
    let other = Cloudsim::with(&[("latency", "1ms"), ("fault", faults), ("seed", "8"), ("etag", "md5")]);
    lab.remote("d", &other.endpoint());
    for n in 0..1_000u64 {
        let size = if n % 100 == 0 { 11 * MIB as usize + n as usize } else { (n * n % 70_000) as usize };
        write(&lab.path(&format!("src/{}/{n}", n % 7)), &noise(n, size), TIME + n);
    }
    let run = |args: &[&str]| lab.haul(&[args, &QUICK[..]].concat()).ok();
    run(&["copy", "@src", "c:b/up"]);
    run(&["copy", "c:b/up", "d:b/across"]);
    run(&["copy", "d:b/across", "@back"]);
    folder::assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path("back"))), "");
    for (cloud, bucket) in [(&cloud, "up"), (&other, "across")] {
        let report = cloud.report();
        // The id of an upload is lost with the answer that carries it. That may leave a few of ten, which `cleanup` removes.
        assert!(report.unfinished_uploads <= 3, "{bucket}: {}", report.unfinished_uploads);
        assert!(report.faults.values().sum::<u64>() > 20, "{bucket}: {:?}", report.faults);
        assert_eq!(cloud.keys("b").len(), 1_000, "{bucket}");
    }
    let left: Vec<_> =
        folder::read(&lab.path("back")).into_keys().filter(|name| name.to_string_lossy().contains(".haul")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Where connections or requests are counted, a part that breaks off on its way from cloud to cloud gets a place again to go on:
/// no other one may keep it while it waits for the place that the first has at the other cloud.
#[test]
fn parts_that_break_off_between_clouds_go_on_with_few_places() {
    let (from, lab) = cloud(&[("fault", "cut=0.3"), ("seed", "3")]);
    let to = Cloudsim::with(&[]);
    lab.remote("d", &to.endpoint());
    for n in 0..3 {
        let wanted = ObjectSpec { size: 40 * MIB, seed: n, mtime: Some("1600000000".into()), md5: false };
        from.make("b", format!("from/{n}").as_bytes(), &wanted);
    }
    for (n, pinned) in
        ["--max-connections=1", "--max-connections=2", "--transfers=1 --multi-thread-streams=2"].iter().enumerate()
    {
        let into = format!("d:b/{n}");
        let bounded = ["copy", "c:b/from", &into, "--max-duration=240s", "--cutoff-mode=hard", "--s3-chunk-size=5Mi"];
        lab.haul(&[&bounded[..], &pinned.split(' ').collect::<Vec<_>>()].concat()).ok();
        lab.haul(&["check", "c:b/from", &into]).ok();
    }
}

/// Both sides are asked in one lane: questions to one of them must not keep their places in it while nobody takes the answers.
#[test]
fn questions_to_both_sides_of_one_endpoint_all_come_to_an_end() {
    let (cloud, lab) = cloud(&[("latency", "2ms")]);
    cloud.bucket("a", Some(SyntheticContent { keys: 1_200, shape: Shape::Flat, size: 3 }));
    cloud.bucket("b", None);
    let names = lab.haul(&["lsf", "c:a"]).ok().out;
    fs::write(lab.path("names"), &names).unwrap();
    let list = lab.path("names");
    lab.haul(&["copy", "c:a", "c:b", "--no-traverse", "--files-from", list.to_str().unwrap()]).ok();
    assert_eq!((cloud.keys("b").len(), names.lines().count()), (1_200, 1_200));
}

/// A store that takes 40 requests a second: their rate is found, so that few are refused.
#[test]
fn a_rate_limit_is_found_and_kept() {
    let limit = [("latency", "20ms"), ("write-requests-per-second", "40,10"), ("reject", "429")];
    let (cloud, lab) = cloud(&limit);
    for n in 0..400u64 {
        write(&lab.path(&format!("src/{n}")), &noise(n, 1_000), TIME + n);
    }
    let ran = lab.haul(&["copy", "@src", "c:b/up", "-v"]).ok();
    assert_eq!(cloud.keys("b").len(), 400);
    let report = cloud.report();
    assert!(report.throttled < 120, "{} of {} requests were refused", report.throttled, report.total_requests);
    assert!(ran.err.contains("Requests:      up "), "{}", ran.err);
    assert!(ran.err.contains(" a second (throttled by server)"), "{}", ran.err);
}

/// `--tpslimit` is one limit for the whole run: both sides, and all jobs of a line with several sources, keep to it together.
#[test]
fn requests_to_both_sides_keep_to_one_limit() {
    const PER_SECOND: u32 = 40;
    let (from, lab) = cloud(&[]);
    let to = Cloudsim::with(&[]);
    lab.remote("d", &to.endpoint());
    for n in 0..40 {
        from.put("b", format!("x/{}/{n}", n % 2).as_bytes(), b"text".to_vec(), &[]);
    }
    let limit = format!("--tpslimit={PER_SECOND}");
    for args in [&["copy", "c:b/x"][..], &["rsync", "-r", "c:b/x/"], &["rsync", "-r", "c:b/x/0", "c:b/x/1"]] {
        from.reset();
        to.reset();
        let into = format!("d:b/{}", args.len());
        let begun = Instant::now();
        lab.haul(&[&[limit.as_str()], args, &[&into]].concat()).ok();
        let took = begun.elapsed();
        assert_eq!(to.report().of("PutObject"), 40, "{args:?}");
        let requests = from.report().total_requests + to.report().total_requests;
        // The first one goes at once. A busy machine only makes it slower.
        let least = Duration::from_secs(requests - 1) / PER_SECOND;
        assert!(took >= least, "{args:?}: {requests} requests in {took:?}");
    }
}

/// A store that closes all but eight connections: as many are used as it takes, and few more are tried.
#[test]
fn a_limited_number_of_connections_is_found_and_kept() {
    let (cloud, lab) = cloud(&[("latency", "20ms"), ("max-connections", "8")]);
    for n in 0..600u64 {
        write(&lab.path(&format!("src/{n}")), &noise(n, 1_000), TIME + n);
    }
    let ran = lab.haul(&["copy", "@src", "c:b/up", "-v"]).ok();
    assert_eq!(cloud.keys("b").len(), 600);
    let tries: u64 =
        ran.err.split("Retries:").nth(1).map_or(0, |row| {
            row.trim_start().split(',').next().and_then(|n| n.parse().ok()).expect("a number of retries")
        });
    assert!(tries < 200, "{}", ran.err);
}

/// The parts of a pipe go several at once.
#[test]
fn a_pipe_is_sent_in_parts_at_once() {
    // Longer than a busy machine takes for three parts.
    let (cloud, lab) = cloud(&[("latency", "1s")]);
    let bytes = noise(3, 47 * MIB as usize + 5);
    lab.haul_reading(&["rcat", "c:b/pipe"], &bytes).ok();
    let report = cloud.report();
    assert_eq!((report.of("UploadPart"), report.of("CompleteMultipartUpload")), (6, 1));
    assert!(report.peak_in_flight > 3, "{} at once", report.peak_in_flight);
    cloud.set(None, &[("latency", "0ms")]).unwrap();
    lab.haul(&["copyto", "c:b/pipe", "@back"]).ok();
    assert!(fs::read(lab.path("back")).unwrap() == bytes);
}

/// However many parts are in flight, none of them is whole in memory: on the way up it is read as it is sent, on the way
/// down it is written as it comes.
#[test]
fn a_large_file_takes_little_memory_both_ways() {
    if !cfg!(target_os = "linux") {
        return peers::skip("peak memory is read from /proc");
    }
    const SIZE: u64 = 600 * MIB;
    /// In KiB: what haul takes anyway, and half of a part of 8 MiB for each that is under way (a busy machine has fewer).
    const BASE: u64 = 90 << 10;
    const A_PART: u64 = 4 << 10;
    // So slow a connection that parts pile up on a busy machine too.
    let slow = [("keep", "sizes"), ("latency", "20ms"), ("connection-rate", "6M")];
    let (cloud, lab) = cloud(&slow);
    cloud.make("b", b"made", &ObjectSpec { size: SIZE, seed: 5, mtime: Some("1600000000".into()), md5: false });
    // A hole: nothing is read from a disk.
    fs::File::create(lab.path("sent")).and_then(|file| file.set_len(SIZE)).unwrap();
    // More streams than useful for a file of this size: a kill would lose a large part of it.
    let wide = "--multi-thread-streams=40";
    let (other, _) = self::cloud(&slow);
    lab.remote("other", &other.endpoint());
    lab.haul(&["config", "create", "sealed", "crypt", "remote=c:b", "password=p"]).ok();
    let ways = [["@sent", "c:b/sent"], ["c:b/made", "@made"], ["c:b/made", "other:b/made"], ["@sent", "sealed:sent"]];
    for args in ways.map(|[from, to]| ["copyto", from, to, wide]) {
        let mut command = lab.haul_command(&args);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (code, kib) = peak(command);
        assert_eq!(code, 0, "{args:?}");
        let at_once = cloud.report().peak_in_flight;
        assert!(kib > 0 && kib < BASE + at_once * A_PART, "{args:?} took {kib} KiB, {at_once} parts at once");
        assert!(at_once >= 10, "{args:?}: not much was in flight: {at_once}");
        cloud.reset();
    }
    assert_eq!(fs::metadata(lab.path("made")).unwrap().len(), SIZE);
}
