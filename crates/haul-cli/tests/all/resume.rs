//! Killed and stopped in the middle of large files: the same command goes on where it was, moves little again, and what
//! arrives is the source, whatever happened to source, journal and partial files meanwhile.

use haul_testkit::{
    amount::rounds,
    cloudsim::{Cloudsim, ObjectSpec, pattern::splitmix},
    folder::{noise, write},
    lab::{Lab, ProgramResult, until},
    minio::Minio,
};
use std::{
    fs,
    path::Path,
    process::{Child, Command},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: u64 = 1 << 20;
/// Bytes of a part, the smallest that S3 takes.
const PART: u64 = 5 * MIB;
/// Parts of a file in memory at most: so many are read at once, and so many written (`--multi-thread-streams`).
const IN_FLIGHT: u64 = 2 * 4;
/// Bytes that may move in all for a file that was killed once: its own, those in flight, a part that arrived while it was
/// killed, and what requests take beside their bodies.
const MOST: u64 = SIZE + (IN_FLIGHT + 1) * PART + MIB;
const TIME: u64 = 1_600_000_000_123_456_789;
const FLAGS: [&str; 7] = [
    "--s3-upload-cutoff=5Mi",
    "--s3-chunk-size=5Mi",
    "--multi-thread-cutoff=5Mi",
    "--multi-thread-chunk-size=5Mi",
    "--multi-thread-streams=4",
    "--stats=0",
    "-v",
];

/// Numbers that look random and are the same in each run.
struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice { seed, thrown: 0 }
    }

    fn next(&mut self) -> u64 {
        self.thrown += 1;
        splitmix(self.seed, self.thrown - 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A cloud with the given rate of one connection, and a lab with a remote of it.
fn cloud(rate: &str) -> (Lab, Cloudsim) {
    far_cloud(rate, "5ms")
}

fn far_cloud(rate: &str, latency: &str) -> (Lab, Cloudsim) {
    let sim = Cloudsim::with(&[("connection-rate", rate), ("latency", latency)]);
    let lab = Lab::new(HAUL);
    lab.remote("c", &sim.endpoint());
    (lab, sim)
}

fn start(lab: &Lab, args: &[&str]) -> Child {
    lab.start(&[args, &FLAGS].concat())
}

fn run(lab: &Lab, args: &[&str]) -> ProgramResult {
    lab.haul(&[args, &FLAGS].concat())
}

/// Kills the child as soon as something is so, or lets it end.
fn kill_when(mut child: Child, so: impl Fn() -> bool) -> bool {
    until(|| so() || child.try_wait().unwrap().is_some());
    let killed = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    killed
}

/// Kills a run as soon as something is so. One that was over by then, as a busy machine may have it, counts for nothing: `afresh`
/// makes all as it was before, and another one begins.
#[track_caller]
fn kill_in_time(begin: impl Fn() -> Child, so: impl Fn() -> bool, afresh: impl Fn()) {
    let killed = (0..20).any(|_| {
        afresh();
        kill_when(begin(), &so)
    });
    assert!(killed, "no run was killed in time");
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

/// No journal is left, and no hidden file in `folder`.
#[track_caller]
fn assert_clean(lab: &Lab, folder: Option<&Path>) {
    let left = |folder: &Path| fs::read_dir(folder).map_or(0, Iterator::count);
    assert_eq!(lab.journals().len(), 0, "a journal is left");
    if let Some(folder) = folder {
        assert_eq!(left(folder), 1, "a partial file is left in {}", folder.display());
    }
}

/// A provider that keeps checksums of its own, or one of which only MD5s are known.
fn provider(md5: bool) -> &'static str {
    if md5 { "--s3-provider=Other" } else { "--s3-provider=Minio" }
}

const SIZE: u64 = 100 * MIB + 12_345;

#[test]
fn killed_uploads_go_on() {
    let (lab, sim) = cloud("40M");
    let bytes = noise(1, SIZE as usize);
    write(&lab.path("src/big"), &bytes, TIME);
    let (mut dice, mut killed) = (Dice::new(1), 0);
    let rounds = rounds(6, 20);
    for round in 0..rounds {
        sim.bucket("b", None);
        sim.reset();
        let at = dice.below(SIZE + SIZE / 20);
        killed += u64::from(kill_when(start(&lab, &["copy", "@src", "c:b"]), || sim.report().bytes_in >= at));
        // Transfers with a bandwidth limit, or with verification by reading back, resume too.
        let how = ["--verify=store", "--verify=read", "--bwlimit=1G"][round as usize % 3];
        let ran = run(&lab, &["copy", "@src", "c:b", how]).ok();
        assert!(sim.get("b", b"big").unwrap().bytes == bytes, "round {round}: other bytes arrived");
        let report = sim.report();
        assert!(
            report.bytes_in <= MOST,
            "round {round}: {} bytes were sent, killed at {at}\n{}",
            report.bytes_in,
            ran.err
        );
        assert_eq!(report.unfinished_uploads, 0, "round {round}");
        assert_clean(&lab, None);
    }
    assert!(killed >= rounds / 2, "only {killed} runs were killed in time");
}

#[test]
fn killed_downloads_go_on() {
    let (lab, sim) = cloud("40M");
    let (mut dice, mut killed) = (Dice::new(2), 0);
    let rounds = rounds(8, 20);
    for round in 0..rounds {
        // With a true MD5, which needs all bytes in order, and without: then CRC-64 proves it.
        let wanted = ObjectSpec { size: SIZE, seed: round, mtime: Some("1600000000".into()), md5: round % 4 == 0 };
        let provider = provider(wanted.md5);
        sim.make("b", b"big", &wanted);
        sim.reset();
        let at = dice.below(SIZE + SIZE / 20);
        killed +=
            u64::from(kill_when(start(&lab, &["copy", "c:b", "@dst", provider]), || sim.report().bytes_out >= at));
        let ran = run(&lab, &["copy", "c:b", "@dst", provider]).ok();
        let bytes = fs::read(lab.path("dst/big")).unwrap();
        assert!(bytes == sim.get("b", b"big").unwrap().bytes, "round {round}: other bytes arrived");
        let report = sim.report();
        assert!(report.bytes_out <= MOST, "round {round}: {} bytes were sent", report.bytes_out);
        if ran.err.contains("Copied") {
            let by = if wanted.md5 { "Proved equal:  1 by md5" } else { "Proved equal:  1 by crc64nvme" };
            assert!(ran.err.contains(by), "round {round}\n{}", ran.err);
        }
        assert_clean(&lab, Some(&lab.path("dst")));
        fs::remove_dir_all(lab.path("dst")).unwrap();
    }
    assert!(killed >= rounds / 2, "only {killed} runs were killed in time");
}

/// A request brings several neighbours here: chunks are noted one by one all the same.
#[test]
fn killed_downloads_in_runs_of_chunks_go_on() {
    // So far that a request brings several also where a busy machine gets a quarter of the bytes.
    let (lab, sim) = far_cloud("40M", "120ms");
    let flags = ["copy", "c:b", "@dst", "--transfers=1", "--multi-thread-streams=2"];
    for round in 0..4 {
        sim.make("b", b"big", &ObjectSpec { size: SIZE, seed: round, mtime: Some("1600000000".into()), md5: false });
        sim.reset();
        let at = SIZE * round / 4;
        if round > 0 {
            let afresh = || {
                // It isn't there at the first call.
                let _ = fs::remove_dir_all(lab.path("dst"));
                sim.reset();
            };
            kill_in_time(|| lab.start(&flags), || sim.report().bytes_out >= at, afresh);
        }
        lab.haul(&flags).ok();
        assert!(fs::read(lab.path("dst/big")).unwrap() == sim.get("b", b"big").unwrap().bytes, "round {round}");
        let report = sim.report();
        assert!(report.bytes_out <= SIZE + 2 * 24 * MIB, "round {round}: {} bytes were sent", report.bytes_out);
        if round == 0 {
            let requests = report.of("GetObject");
            assert!(requests < 13, "{requests} requests for 13 chunks");
        }
        assert_clean(&lab, Some(&lab.path("dst")));
        fs::remove_dir_all(lab.path("dst")).unwrap();
    }
}

#[test]
fn killed_copies_between_stores_go_on() {
    let (lab, from) = cloud("40M");
    let to = Cloudsim::with(&[("connection-rate", "40M"), ("latency", "5ms")]);
    lab.remote("d", &to.endpoint());
    let (mut dice, mut killed) = (Dice::new(3), 0);
    let rounds = rounds(8, 20);
    for round in 0..rounds {
        let wanted = ObjectSpec { size: SIZE, seed: round, mtime: Some("1600000000".into()), md5: round % 4 == 0 };
        let provider = provider(wanted.md5);
        from.make("b", b"big", &wanted);
        to.bucket("b", None);
        from.reset();
        to.reset();
        let at = dice.below(SIZE + SIZE / 20);
        killed += u64::from(kill_when(start(&lab, &["copy", "c:b", "d:b", provider]), || to.report().bytes_in >= at));
        run(&lab, &["copy", "c:b", "d:b", provider]).ok();
        assert!(to.get("b", b"big").unwrap().bytes == from.get("b", b"big").unwrap().bytes, "round {round}");
        let (read, written) = (from.report().bytes_out, to.report().bytes_in);
        assert!(read <= MOST, "round {round}: {read} bytes were read");
        assert!(written <= MOST, "round {round}: {written} bytes were written");
        assert_eq!(to.report().unfinished_uploads, 0, "round {round}");
        assert_clean(&lab, None);
    }
    assert!(killed >= rounds / 2, "only {killed} runs were killed in time");
}

/// Of a source of which only an MD5 is known, what an earlier run brought is not proved by it: that is said, and not counted as
/// proved by what the destination says of it; unless it is read again, as it is before a move deletes it.
#[test]
fn a_resumed_copy_between_stores_says_what_is_proved() {
    let (lab, from) = cloud("40M");
    let to = Cloudsim::with(&[("connection-rate", "40M"), ("latency", "5ms")]);
    lab.remote("d", &to.endpoint());
    let notice = "big: it was resumed after an interruption, so its md5 is not proved: haul check compares, and \
                  --verify=read reads what was sent before again";
    for (md5, first, proved) in [
        (true, &["copy"][..], None),
        (true, &["copy", "--verify=read"], Some("1 by blake3")),
        (true, &["move"], Some("1 by ")),
        (false, &["copy"], Some("1 by crc64nvme")),
    ] {
        from.make("b", b"big", &ObjectSpec { size: SIZE, seed: 1, mtime: Some("1600000000".into()), md5 });
        let afresh = || {
            to.bucket("b", None);
            to.reset();
        };
        // The destination is one that gives checksums of its own.
        let source = if md5 { "c,provider=Other:b" } else { "c:b" };
        let args = [first, &[source, "d:b", "-v"]].concat();
        kill_in_time(|| start(&lab, &args), || to.report().bytes_in >= 40 * MIB, afresh);
        let ran = run(&lab, &args).ok();
        assert_eq!(ran.err.contains(notice), proved.is_none(), "{}", ran.err);
        let line = |name: &str| ran.err.lines().find(|line| line.starts_with(name)).map(str::to_string);
        match proved {
            Some(by) => {
                assert!(line("Proved equal:").is_some_and(|line| line.contains(by)), "{}", ran.err);
                assert_eq!(line("Not proved:"), None);
            }
            None => {
                assert_eq!(line("Proved equal:"), None);
                let message = "Not proved:    1 resumed from an earlier run; --verify=read proves them";
                assert_eq!(line("Not proved:").as_deref(), Some(message));
            }
        }
    }
}

#[test]
fn a_killed_copy_inside_a_service_goes_on() {
    let (lab, sim) = cloud("40M");
    sim.set(None, &[("write-latency", "100ms")]).unwrap();
    let wanted = ObjectSpec { size: SIZE, seed: 5, mtime: Some("1600000000".into()), md5: false };
    sim.make("a", b"big", &wanted);
    let copy = ["copy", "c:a", "c:b", "--s3-copy-cutoff=5Mi", "--s3-upload-concurrency=4"];
    let afresh = || {
        sim.bucket("b", None);
        sim.reset();
    };
    kill_in_time(|| start(&lab, &copy), || sim.report().of("UploadPartCopy") >= 12, afresh);
    assert_eq!(sim.report().unfinished_uploads, 1);
    let ran = run(&lab, &copy).ok();
    // Once to know what is there, once to see that all is.
    assert!(ran.err.contains("ListParts 2") && !ran.err.contains("CreateMultipartUpload"), "{}", ran.err);
    assert!(sim.get("b", b"big").unwrap().bytes == sim.get("a", b"big").unwrap().bytes);
    let copied = sim.report().of("UploadPartCopy");
    assert!(copied <= SIZE.div_ceil(PART) + 5, "{copied} parts were copied");
    assert_eq!(sim.report().unfinished_uploads, 0);
    assert_clean(&lab, None);

    kill_in_time(|| start(&lab, &copy), || sim.report().of("UploadPartCopy") >= 12, afresh);
    lab.haul(&["jobs", "clean"]).ok();
    assert_eq!(sim.report().unfinished_uploads, 0);
    assert_clean(&lab, None);
}

const ANEW: &str = "big: Starting over: the server can't tell what it has of an unfinished upload: \
    We encountered an internal error (InternalError)";

/// A server that can't tell what it has of an upload (S3Proxy, once a part was cut off) costs bytes, and nobody has to do anything.
#[test]
fn an_upload_of_which_nothing_can_be_told_begins_anew() {
    let (lab, sim, bytes) = half_uploaded("20M");
    sim.set(Some("b"), &[("quirk", "no-list-parts")]).unwrap();
    sim.reset();
    let ran = run(&lab, &["copy", "@src", "c:b", "--low-level-retries=3"]).ok();
    assert!(ran.err.contains(ANEW), "{}", ran.err);
    let of = |name: &str| sim.report().of(name);
    assert_eq!(
        ["ListParts", "AbortMultipartUpload", "CreateMultipartUpload", "CompleteMultipartUpload"].map(of),
        [3, 1, 1, 1]
    );
    assert!(sim.get("b", b"big").unwrap().bytes == bytes);
    assert_eq!(sim.report().unfinished_uploads, 0);
    assert_clean(&lab, None);
}

/// No answer is no reason to throw away what was sent.
#[test]
fn an_upload_on_a_server_that_is_away_is_kept() {
    let (lab, sim, bytes) = half_uploaded("20M");
    sim.set(None, &[("fault", "reset=1")]).unwrap();
    let ran = run(&lab, &["copy", "@src", "c:b", "--low-level-retries=2", "--retries=1"]);
    assert!(ran.code != 0 && !ran.err.contains("Begins anew"), "{}", ran.err);
    sim.set(None, &[("fault", "off")]).unwrap();
    sim.reset();
    let ran = run(&lab, &["copy", "@src", "c:b"]).ok();
    assert!(ran.err.contains("ListParts 1") && !ran.err.contains("CreateMultipartUpload"), "{}", ran.err);
    assert!(sim.get("b", b"big").unwrap().bytes == bytes);
    assert_clean(&lab, None);
}

#[test]
fn a_copy_of_which_nothing_can_be_told_begins_anew() {
    let (lab, sim) = cloud("40M");
    sim.set(None, &[("write-latency", "100ms")]).unwrap();
    sim.make("a", b"big", &ObjectSpec { size: SIZE, seed: 5, mtime: Some("1600000000".into()), md5: false });
    let copy = ["copy", "c:a", "c:b", "--s3-copy-cutoff=5Mi", "--s3-upload-concurrency=4"];
    let afresh = || {
        sim.bucket("b", None);
        sim.reset();
    };
    kill_in_time(|| start(&lab, &copy), || sim.report().of("UploadPartCopy") >= 12, afresh);
    sim.set(Some("b"), &[("quirk", "no-list-parts")]).unwrap();
    let ran = run(&lab, &copy).ok();
    assert!(ran.err.contains(ANEW) && ran.err.contains("AbortMultipartUpload 1"), "{}", ran.err);
    assert!(sim.get("b", b"big").unwrap().bytes == sim.get("a", b"big").unwrap().bytes);
    assert_eq!(sim.report().unfinished_uploads, 0);
    assert_clean(&lab, None);
}

/// A store that asks to come back in a minute doesn't keep a job that was stopped.
#[test]
fn a_job_that_is_stopped_while_a_store_asks_to_wait_ends() {
    let (lab, sim) = cloud("40M");
    sim.bucket("b", None);
    sim.set(None, &[("write-requests-per-second", "0.01,1"), ("retry-after", "60s")]).unwrap();
    for name in ["a", "b"] {
        write(&lab.path("src").join(name), &noise(1, 1000), TIME);
    }
    let child = lab.start(&["copy", "@src", "c:b", "-v"]);
    // The other one may be answered later than that.
    assert!(until(|| sim.report().throttled > 0 && sim.keys("b").len() == 1));
    interrupt(&child);
    let ran = lab.end(child).code(130);
    assert_eq!(sim.report().of("PutObject"), 2, "one that came through, one that was turned down: {}", ran.err);
    assert_eq!(sim.keys("b").len(), 1);
}

/// A lab in which an upload of `src/big`, 60 MiB, was killed in its middle, with one whole part there at least.
fn half_uploaded(rate: &str) -> (Lab, Cloudsim, Vec<u8>) {
    let (lab, sim) = cloud(rate);
    let bytes = noise(1, 60 * MIB as usize);
    write(&lab.path("src/big"), &bytes, TIME);
    kill_half(&lab, &sim);
    assert_eq!(sim.report().unfinished_uploads, 1);
    (lab, sim, bytes)
}

/// The kill that [`half_uploaded`] begins with, into an empty bucket.
#[track_caller]
fn kill_half(lab: &Lab, sim: &Cloudsim) {
    let afresh = || {
        sim.bucket("b", None);
        sim.reset();
    };
    kill_in_time(|| start(lab, &["copy", "@src", "c:b"]), || sim.report().bytes_in >= 30 * MIB, afresh);
}

#[test]
fn what_was_stopped_is_kept_and_told() {
    // Slow enough that the signal, sent once the first parts in flight have arrived, comes before the end.
    let (lab, sim) = cloud("3M");
    write(&lab.path("src/big"), &noise(1, 120 * MIB as usize), TIME);
    sim.bucket("b", None);
    let child = start(&lab, &["copy", "@src", "c:b"]);
    assert!(until(|| sim.report().bytes_in >= IN_FLIGHT * PART + 6 * MIB));
    interrupt(&child);
    let ran = lab.end(child).code(130);
    let message = " kept). The next run continues there; haul jobs clean removes it";
    assert!(ran.err.contains("1 large file was partly sent (") && ran.err.contains(message), "{}", ran.err);
    assert!(ran.err.contains("NOTICE: Stopped. Run the same command to transfer the rest.\n"), "{}", ran.err);
    assert_eq!(sim.report().unfinished_uploads, 1);
    let listed = lab.haul(&["jobs"]).ok().out;
    assert!(listed.contains("stopped") && listed.contains(" copy "), "{listed}");
    lab.haul(&["jobs", "clean"]).ok();
    assert_eq!((sim.report().unfinished_uploads, sim.keys("b").len()), (0, 0));
    assert_clean(&lab, None);
}

#[test]
fn a_source_that_changed_meanwhile_begins_again() {
    let (lab, sim, _) = half_uploaded("20M");
    // Of the same size, and with the same modification time.
    let other = noise(2, 60 * MIB as usize);
    write(&lab.path("src/big"), &other, TIME);
    sim.reset();
    run(&lab, &["copy", "@src", "c:b"]).ok();
    assert!(sim.get("b", b"big").unwrap().bytes == other);
    let report = sim.report();
    assert!(report.bytes_in >= 60 * MIB && report.of("AbortMultipartUpload") == 1);
    assert_eq!(report.unfinished_uploads, 0);
    assert_clean(&lab, None);
}

#[test]
fn a_source_that_is_gone_or_an_upload_that_is_gone_leaves_nothing() {
    let (lab, sim, bytes) = half_uploaded("20M");
    fs::rename(lab.path("src/big"), lab.path("src/other")).unwrap();
    run(&lab, &["copy", "@src", "c:b"]).ok();
    assert!(sim.get("b", b"other").unwrap().bytes == bytes);
    assert_eq!(sim.report().unfinished_uploads, 0);
    assert_clean(&lab, None);

    let (lab, sim, bytes) = half_uploaded("20M");
    sim.bucket("b", None);
    run(&lab, &["copy", "@src", "c:b"]).ok();
    assert!(sim.get("b", b"big").unwrap().bytes == bytes);
    assert_eq!(sim.report().unfinished_uploads, 0);
    assert_clean(&lab, None);
}

/// Wherever a journal is torn or damaged, what arrives is the source. A half-sent upload is used once, so each round begins
/// with a new one.
#[test]
fn an_upload_whose_bucket_is_gone_is_forgotten() {
    let (lab, sim, _) = half_uploaded("20M");
    sim.drop_bucket("b");
    lab.haul(&["jobs", "clean"]).ok();
    assert_clean(&lab, None);
}

#[test]
fn a_damaged_journal_costs_bytes_but_not_content() {
    let (lab, sim, bytes) = half_uploaded("80M");
    let mut dice = Dice::new(4);
    for round in 0..rounds(8, 16) {
        let path = lab.journals().pop().expect("a journal");
        let mut content = fs::read(&path).unwrap();
        let at = dice.below(content.len() as u64) as usize;
        match round % 2 {
            0 => content.truncate(at),
            _ => content[at] ^= 1 << dice.below(8),
        }
        fs::write(&path, &content).unwrap();
        run(&lab, &["copy", "@src", "c:b"]).ok();
        assert!(sim.get("b", b"big").unwrap().bytes == bytes, "round {round}: other bytes arrived");
        assert_clean(&lab, None);
        kill_half(&lab, &sim);
    }
}

#[test]
fn a_damaged_partial_file_costs_bytes_but_not_content() {
    let (lab, sim) = cloud("40M");
    let wanted = ObjectSpec { size: 60 * MIB, seed: 9, mtime: Some("1600000000".into()), md5: false };
    sim.make("b", b"big", &wanted);
    let bytes = sim.get("b", b"big").unwrap().bytes;
    let mut dice = Dice::new(5);
    for round in 0..6 {
        let afresh = || {
            // It isn't there at the first call.
            let _ = fs::remove_dir_all(lab.path("dst"));
            sim.reset();
        };
        kill_in_time(|| start(&lab, &["copy", "c:b", "@dst"]), || sim.report().bytes_out >= 45 * MIB, afresh);
        let partial = fs::read_dir(lab.path("dst")).unwrap().next().unwrap().unwrap().path();
        let mut content = fs::read(&partial).unwrap();
        match round % 3 {
            // What a loss of power leaves of bytes that were never written to the disk.
            0 => content.iter_mut().take(8 * MIB as usize).for_each(|byte| *byte = 0),
            1 => content.truncate(dice.below(content.len() as u64) as usize),
            _ => (0..20).for_each(|_| content[dice.below(60 * MIB / 2) as usize] ^= 1),
        }
        fs::write(&partial, content).unwrap();
        run(&lab, &["copy", "c:b", "@dst"]).ok();
        assert!(fs::read(lab.path("dst/big")).unwrap() == bytes, "round {round}: other bytes arrived");
        assert_clean(&lab, Some(&lab.path("dst")));
        fs::remove_dir_all(lab.path("dst")).unwrap();
    }
}

#[test]
fn two_of_one_job_at_once_are_both_right() {
    // So slow that the first isn't over when the second begins.
    let (lab, sim) = cloud("2M");
    let bytes = noise(1, 40 * MIB as usize);
    write(&lab.path("src/big"), &bytes, TIME);
    sim.bucket("b", None);
    let first = start(&lab, &["copy", "@src", "c:b"]);
    assert!(until(|| sim.report().bytes_in >= MIB));
    let second = start(&lab, &["copy", "@src", "c:b"]);
    let (first, second) = (lab.end(first).ok(), lab.end(second).ok());
    let message = "No journal: another haul is doing the same job now. \
                An interrupted run will restart large files from the beginning";
    assert!(second.err.contains(message) && !first.err.contains("No journal"), "{}", second.err);
    assert!(sim.get("b", b"big").unwrap().bytes == bytes);
    assert_eq!(sim.report().unfinished_uploads, 0);
    assert_clean(&lab, None);
}

#[test]
fn a_state_folder_that_cant_be_written_costs_a_notice() {
    let (lab, sim) = cloud("200M");
    for name in ["one", "two"] {
        write(&lab.path(&format!("src/{name}")), &noise(1, 12 * MIB as usize), TIME);
    }
    sim.bucket("b", None);
    fs::write(lab.path("file"), "").unwrap();
    let ran = run(&lab, &["copy", "@src", "c:b", "--state-dir=@file/state"]).ok();
    assert_eq!(ran.err.matches("No journal: ").count(), 1, "{}", ran.err);
    assert!(ran.err.contains("file/state"), "{}", ran.err);
    assert_eq!(sim.keys("b").len(), 2);
    sim.bucket("b", None);
    let ran = run(&lab, &["copy", "@src", "c:b", "--no-journal"]).ok();
    assert!(!ran.err.contains("No journal") && !lab.jobs().exists(), "{}", ran.err);
}

#[test]
fn an_upload_to_a_real_server_goes_on() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("m", &minio.endpoint());
    let bucket = minio.bucket("resume");
    let (there, bytes) = (format!("m:{bucket}"), noise(1, SIZE as usize));
    write(&lab.path("src/big"), &bytes, TIME);
    // Some parts were noted.
    assert!(kill_when(start(&lab, &["copy", "@src", &there, "--bwlimit=15M"]), || lab.journaled() > 1_200));
    let ran = run(&lab, &["copy", "@src", &there]).ok();
    let parts = SIZE.div_ceil(PART);
    let sent = ran.err.split("UploadPart ").nth(1).and_then(|rest| rest.split(')').next()?.parse::<u64>().ok());
    assert!(sent.is_some_and(|sent| sent < parts), "all parts were sent again:\n{}", ran.err);
    assert!(ran.err.contains("ListParts 1") && !ran.err.contains("CreateMultipartUpload"), "{}", ran.err);
    assert!(ran.err.contains("Proved equal:  1 by crc64nvme"), "{}", ran.err);
    lab.haul(&["copy", &there, "@back"]).ok();
    assert!(fs::read(lab.path("back/big")).unwrap() == bytes);
    assert_clean(&lab, None);
}

#[test]
fn a_kill_costs_at_most_15_percent_of_a_gigabyte() {
    const GB: u64 = 1_000_000_000;
    // Slow enough in all that what was sent isn't still in sockets: that is lost too.
    let rates = [("connection-rate", "40M"), ("rate-out", "200M")];
    let sim = Cloudsim::with(&[&rates[..], &[("latency", "20ms"), ("keep", "sizes")]].concat());
    sim.bucket("b", None);
    sim.make("b", b"down/f", &ObjectSpec { size: GB, seed: 1, mtime: Some("1600000000".into()), md5: false });
    let lab = Lab::new(HAUL);
    lab.remote("c", &sim.endpoint());
    fs::create_dir(lab.path("src")).unwrap();
    fs::File::create(lab.path("src/f")).unwrap().set_len(GB).unwrap();
    for (from, to, is_up) in [("@src", "c:b/up", true), ("c:b/down", "@dst", false)] {
        let moved = || if is_up { sim.report().bytes_in } else { sim.report().bytes_out };
        for at in [200, 600] {
            let args = ["copy", from, &format!("{to}{at}"), "--stats=0"];
            sim.reset();
            assert!(kill_when(lab.start(&args), || moved() >= at * 1_000_000), "{args:?}: it ended too soon");
            lab.haul(&args).ok();
            let again = moved() - GB;
            assert!(again <= GB * 15 / 100, "{args:?}: {again} bytes went again");
        }
    }
}
