//! One job by many workers: processes that are killed, stopped beyond their leases and started again, answers that are lost, a
//! bucket and a shared folder as the job's folder. What they do together is what one run does.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder,
    lab::{Lab, ProgramResult, until},
    minio::Minio,
    peers,
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, SystemTime},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

pub(super) fn signal(child: &Child, name: &str) {
    let name = format!("-{name}");
    assert!(Command::new("kill").args([&name, &child.id().to_string()]).status().unwrap().success());
}

pub(super) fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

pub(super) fn worker(lab: &Lab, job: &str, more: &[&str]) -> Child {
    lab.start(&[&["fleet", "work", job, "--lease=1200ms", "--stats=0"], more].concat())
}

/// A number of the job's report.
pub(super) fn number(lab: &Lab, job: &str, of: &str) -> u64 {
    let ran = lab.haul(&["fleet", "report", "--json", job]);
    let report: serde_json::Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {} {}", ran.out, ran.err));
    report.pointer(of).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{of} of {report}"))
}

/// What the job keeps in its directory `job`, but for its spec: a directory of the job's id.
pub(super) fn records(lab: &Lab) -> PathBuf {
    let spec: serde_json::Value = serde_json::from_slice(&fs::read(lab.path("job/spec")).expect("made")).unwrap();
    lab.path("job").join(spec["id"].as_str().expect("text"))
}

fn keys(sim: &Cloudsim, bucket: &str) -> Vec<String> {
    sim.keys(bucket).into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
}

/// A cloud with 900 files in `src`, a tenth of them in `dst` already, with 60 that `src` lacks; and a lab whose remote `c` is it.
fn filled(settings: &[(&str, &str)]) -> (Cloudsim, Lab) {
    let sim = Cloudsim::with(settings);
    let lab = Lab::new(HAUL);
    lab.remote("c", &sim.endpoint());
    for n in 0..900 {
        let key = format!("d{}/{n:04}.bin", n % 7);
        sim.put("src", key.as_bytes(), format!("content of {n}"), &[]);
        if n % 15 == 0 {
            sim.put("dst", format!("{key}.old").as_bytes(), "old", &[]);
        }
    }
    sim.bucket("jobs", None);
    (sim, lab)
}

#[test]
fn workers_that_die_sleep_and_lose_answers_do_together_what_one_run_does() {
    let (sim, lab) = filled(&[("latency", "5ms"), ("fault", "lost-answer=0.02,error500=0.01")]);
    let job = "c:jobs/one";
    let made = lab.haul(&["fleet", "create", "c:src", "c:dst", "--sync", "--at", job, "--shards", "12"]).ok();
    assert!(made.out.contains("start workers with haul fleet work c:jobs/one"), "{}", made.out);
    // Slow, so that they are in the middle of it.
    let slow = ["--tpslimit=40", "--at-once=1"];
    let mut workers: Vec<Child> = (0..5).map(|_| worker(&lab, job, &slow)).collect();
    let copied = |least: usize| until(|| keys(&sim, "dst").len() >= 60 + least);
    assert!(copied(60), "they have begun");
    kill(workers.remove(0));
    signal(&workers[0], "STOP");
    assert!(copied(200));
    kill(workers.remove(1));
    workers.push(worker(&lab, job, &[]));
    let sleeper = workers.remove(0);
    for worker in workers {
        let ran = lab.end(worker).code(0);
        assert!(ran.out.starts_with("Complete: "), "{} {}", ran.out, ran.err);
    }
    // It wakes up when all is done, and finds its lease lost.
    sim.put("dst", b"d0/0000.bin.late", "of another program", &[]);
    let before = keys(&sim, "dst");
    signal(&sleeper, "CONT");
    lab.end(sleeper).code(0);
    assert!(keys(&sim, "dst") == before, "it deleted nothing any more");
    sim.set(None, &[("fault", "")]).unwrap();
    lab.haul(&["deletefile", "c:dst/d0/0000.bin.late"]).ok();
    let report = lab.haul(&["fleet", "report", job]).code(0);
    assert!(report.out.contains(", 0 errors"), "{}", report.out);
    assert!(keys(&sim, "dst") == keys(&sim, "src"), "the same names");
    lab.haul(&["check", "c:src", "c:dst"]).ok();
    let done = number(&lab, job, "/outcome/transfers") + number(&lab, job, "/outcome/unchanged");
    assert_eq!(done, 900, "each file is counted once, whoever worked at it");
    assert_eq!(number(&lab, job, "/held"), 0);
}

#[test]
fn twenty_workers_on_a_shared_folder_keep_what_one_run_keeps() {
    let lab = Lab::new(HAUL);
    for n in 0..400_u64 {
        let path = lab.path(&format!("src/a{}/b{}/{n:03}", n % 5, n % 11));
        folder::write(&path, format!("content {n}").as_bytes(), 1_500_000_000_000_000_000 + n);
    }
    for name in ["a0/b0", "a1/b1", "a2", "gone/deep"] {
        folder::write(&lab.path(&format!("dst/{name}/extra")), b"old", 1);
        folder::write(&lab.path(&format!("one/{name}/extra")), b"old", 1);
    }
    for dir in ["src/a0/b0", "src/a0", "src/a1", "src/a4/b3"] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_400_000_000);
        fs::File::open(lab.path(dir)).unwrap().set_modified(time).unwrap();
    }
    lab.haul(&["sync", "-a", "@src", "@one"]).ok();
    let made = lab.haul(&["fleet", "create", "src", "dst", "--sync", "-a", "--at", "@job", "--shards", "30"]).ok();
    assert!(made.out.starts_with("Created a job of "), "{}", made.out);
    let mut workers: Vec<Child> = (0..20).map(|_| worker(&lab, "@job", &[])).collect();
    assert!(until(|| fs::read_dir(records(&lab).join("shards")).is_ok_and(|shards| shards.count() > 3)));
    kill(workers.remove(7));
    kill(workers.remove(3));
    for worker in workers {
        lab.end(worker).code(0);
    }
    let (together, alone) = (folder::read(&lab.path("dst")), folder::read(&lab.path("one")));
    folder::assert_same(&together, &alone, "many workers and one run");
    lab.haul(&["fleet", "report", "@job"]).code(0);
}

#[test]
fn a_worker_that_is_asked_to_stop_gives_back_what_it_holds() {
    let (sim, lab) = filled(&[("latency", "5ms")]);
    let job = "c:jobs/stopped";
    lab.haul(&["fleet", "create", "c:src", "c:dst", "--at", job, "--shards=4"]).ok();
    let first = worker(&lab, job, &["--tpslimit=60"]);
    assert!(until(|| keys(&sim, "dst").len() >= 120));
    signal(&first, "TERM");
    let ran = lab.end(first).code(130);
    assert!(ran.err.contains("What this worker held is given back"), "{}", ran.err);
    let half = lab.haul(&["fleet", "report", job]).code(5);
    assert!(half.out.starts_with("Running: ") && half.out.contains(", 0 leased, 0 workers;"), "{}", half.out);
    assert!(number(&lab, job, "/outcome/transfers") > 0);
    // The next one need not wait for a lease to end.
    lab.haul(&["fleet", "work", job, "--lease=1h"]).code(0);
    assert_eq!(number(&lab, job, "/outcome/transfers"), 900);
    lab.haul(&["fleet", "watch", job]).code(0);
    assert_eq!(keys(&sim, "dst").len(), 960, "a copy deletes nothing");
}

#[test]
fn a_worker_is_through_when_its_last_shard_is() {
    let lab = Lab::new(HAUL);
    for n in 0..20_u64 {
        folder::write(&lab.path(&format!("src/a{n:02}")), b"small", n);
        folder::write(&lab.path(&format!("src/b{n:02}")), &[b'l'; 100_000], n);
    }
    lab.haul(&["fleet", "create", "@src", "@dst", "--at", "@job", "--shards=2"]).ok();
    // One half is done long before the other; what waits for it must not wait for the next look at the others, an age later.
    let ran = lab.haul(&["fleet", "work", "@job", "--lease=6h", "--bwlimit=1M"]).code(0);
    assert!(ran.out.starts_with("Complete: "), "{} {}", ran.out, ran.err);
}

#[test]
fn a_worker_started_in_the_place_of_a_dead_one_waits_for_no_lease() {
    let (sim, lab) = filled(&[("latency", "5ms")]);
    let job = "c:jobs/again";
    lab.haul(&["fleet", "create", "c:src", "c:dst", "--at", job, "--shards=2"]).ok();
    let first = lab.start(&["fleet", "work", job, "--lease=6h", "--tpslimit=60"]);
    assert!(until(|| keys(&sim, "dst").len() >= 120));
    let running = lab.haul(&["fleet", "report", job]).code(5);
    assert!(running.out.contains(", 1 worker; ") && running.out.lines().count() == 1, "{}", running.out);
    kill(first);
    let left = lab.haul(&["fleet", "report", job]).code(5);
    let step = "No worker is running: start some with haul fleet work c:jobs/again";
    assert!(left.out.contains(", 1 worker (1 silent); "), "{}", left.out);
    assert_eq!(left.out.lines().last(), Some(step));
    lab.haul(&["fleet", "work", job, "--lease=6h"]).code(0);
    lab.haul(&["check", "--one-way", "c:src", "c:dst"]).ok();
}

#[test]
fn what_a_dead_worker_had_copied_is_copied_no_second_time() {
    // Neither ETags nor times of their own tell that an object is a copy.
    let (sim, lab) = filled(&[("latency", "5ms"), ("etag", "cheap")]);
    let job = "c:jobs/twice";
    lab.haul(&["fleet", "create", "c:src", "c:dst", "--at", job, "--shards=2"]).ok();
    // What is stored within the seconds by which clocks may differ isn't known to be the job's.
    thread::sleep(Duration::from_secs(5));
    let first = lab.start(&["fleet", "work", job, "--lease=6h", "--tpslimit=60"]);
    assert!(until(|| keys(&sim, "dst").len() >= 60 + 150));
    kill(first);
    lab.haul(&["fleet", "work", job, "--lease=6h"]).code(0);
    let report = sim.report();
    // What was on its way when the first one died may arrive after the second has looked.
    assert!((900..=902).contains(&report.of("CopyObject")), "{:?}", report.requests);
    assert_eq!(report.of("HeadObject"), 2, "the source is looked at by each worker: {:?}", report.requests);
    assert_eq!(number(&lab, job, "/outcome/transfers") + number(&lab, job, "/outcome/unchanged"), 900);
    // Another job knows nothing of this one.
    lab.haul(&["copy", "c:src", "c:dst"]).ok();
    assert!(sim.report().of("HeadObject") >= 1_800);
}

#[test]
fn a_bucket_that_is_not_there_yet_is_no_error_of_any_shard() {
    let (sim, lab) = filled(&[("latency", "50ms")]);
    let job = "c:jobs/new";
    lab.haul(&["fleet", "create", "c:src", "c:new", "--sync", "--at", job, "--shards=8"]).ok();
    let ran = lab.haul(&["fleet", "work", job, "--at-once=4", "-v"]).code(0);
    assert!(ran.out.contains(", 0 errors"), "{} {}", ran.out, ran.err);
    assert!(keys(&sim, "new") == keys(&sim, "src"));
    // What runs side by side tell isn't mixed up.
    assert_eq!(ran.err.matches("Copied (server-side copy)").count(), 900, "{}", ran.err);
}

#[test]
fn a_server_that_refuses_conditions_is_told_in_one_line() {
    let (sim, lab) = filled(&[("quirk", "no-conditions")]);
    let create = |remote: &str| {
        lab.haul(&["fleet", "create", "c:src", "c:dst", "--at", &format!("{remote}:jobs/one"), "--shards", "2"])
    };
    let ran = create("c").code(1);
    let told = "haul: c:jobs/one refuses writes on a condition, which its remote is set to have: set a provider without them \
                (provider = Other in an S3 remote), and workers are told apart by number\n";
    assert_eq!(ran.err, told);
    assert!(keys(&sim, "jobs").is_empty());
    lab.remote_of("o", "Other", &sim.endpoint(), &[]);
    let made = create("o").ok();
    assert!(made.out.contains("haul fleet work --worker I/N o:jobs/one"), "{}", made.out);
}

#[test]
fn a_worker_that_gives_no_sign_of_life_is_shown_as_silent() {
    let (sim, lab) = filled(&[("latency", "5ms")]);
    let job = "c:jobs/silent";
    lab.haul(&["fleet", "create", "c:src", "c:dst", "--at", job, "--shards=2"]).ok();
    let first = worker(&lab, job, &["--tpslimit=100"]);
    assert!(until(|| keys(&sim, "dst").len() >= 120));
    signal(&first, "STOP");
    let mut watch = lab.start(&["fleet", "watch", job, "--every=100ms", "--lease=1500ms"]);
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line.contains(", 1 worker (1 silent); ")));
    let step = "No worker is running: start some with haul fleet work c:jobs/silent";
    assert_eq!(lines.next().as_deref(), Some(step), "said once");
    assert!(lines.next().is_some_and(|line| line.starts_with("Running: ")));
    signal(&first, "CONT");
    assert!(lines.by_ref().any(|line| line.starts_with("Complete: ")));
    lab.end(first).code(0);
    assert!(watch.wait().unwrap().success());
}

#[test]
fn a_job_in_minio() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("m", &minio.endpoint());
    let job = format!("m:{}/job", minio.bucket("fleet"));
    for n in 0..300_u64 {
        folder::write(&lab.path(&format!("src/d{}/{n:03}", n % 4)), format!("{n}").as_bytes(), n);
    }
    lab.haul(&["fleet", "create", "@src", "@dst", "--at", &job, "--shards=9"]).ok();
    let again = lab.haul(&["fleet", "create", "@src", "@dst", "--at", &job]).code(6);
    assert!(again.err.contains(&format!("there is a job at {job} already")), "{}", again.err);
    let workers: Vec<Child> = (0..3).map(|_| worker(&lab, &job, &[])).collect();
    for worker in workers {
        lab.end(worker).code(0);
    }
    folder::assert_same(
        &folder::files(&folder::read(&lab.path("dst"))),
        &folder::files(&folder::read(&lab.path("src"))),
        "MinIO",
    );
    assert_eq!(number(&lab, &job, "/outcome/transfers"), 300);
    // A record is made once: MinIO keeps the condition.
    let fixed = lab.haul(&["cat", &format!("{job}/spec")]).ok();
    assert!(fixed.out.contains("\"fixed\":false"), "{}", fixed.out);
}

#[test]
fn what_one_process_must_see_whole_is_refused() {
    let lab = Lab::new(HAUL);
    folder::write(&lab.path("src/a"), b"a", 1);
    for flag in ["--track-renames", "--max-delete=5", "--dry-run", "--delete-before", "--ignore-errors", "-H"] {
        let ran = lab.haul(&["fleet", "create", "@src", "@dst", "--sync", "--at", "@job", flag]).code(2);
        assert!(ran.err.contains("can't be shared between workers: use copy or sync for that"), "{flag}: {}", ran.err);
    }
    let one = lab.haul(&["fleet", "create", "@src/a", "@dst", "--at", "@job"]).code(2);
    assert!(one.err.contains("src/a is one file: use copy for that"), "{}", one.err);
    let secret = lab.haul(&["fleet", "create", ":s3,secret_access_key=hunter2:b", "@dst", "--at", "@job"]);
    assert!(secret.code != 0 && !lab.path("job").exists(), "{}", secret.err);
    for (flag, value) in [("--header", "Authorization: Bearer hunter2"), ("--sftp-ssh", "sshpass -p hunter2 ssh h")] {
        let ran = lab.haul(&["fleet", "create", "@src", "@dst", "--at", "@job", flag, value]).code(2);
        let says =
            format!("{flag} holds a secret, which can't be written into a job: configure a remote on each machine");
        assert!(ran.err.contains(&says) && !lab.path("job").exists(), "{}", ran.err);
    }
    let none = lab.haul(&["fleet", "work", "@nothing"]).code(4);
    assert!(none.err.contains("there is no job of haul fleet at "), "{}", none.err);
    fs::create_dir(lab.path("empty")).unwrap();
    let empty = lab.haul(&["fleet", "create", "@empty", "@dst", "--sync", "--at", "@job"]).code(7);
    assert!(empty.err.contains("refused to make a job that deletes all of the destination"), "{}", empty.err);
}

#[test]
fn a_job_that_would_eat_itself_or_its_source_is_refused() {
    let lab = Lab::new(HAUL);
    folder::write(&lab.path("all/src/a"), b"a", 1);
    folder::write(&lab.path("dst/b"), b"b", 1);
    for (src, dst, job, says) in [
        ("@all/src", "@dst", "@dst/job", "is inside the destination"),
        ("@all/src", "@dst", "@all/src/job", "is inside the source"),
        ("@all/src", "@all", "@job", "is inside the destination"),
        ("@all", "@all/src", "@job", "is inside the source"),
    ] {
        let ran = lab.haul(&["fleet", "create", src, dst, "--sync", "--at", job]);
        assert!(ran.code != 0 && ran.err.contains(says), "{src} {dst} {job}: {}", ran.err);
        assert!(!lab.path(&job[1..]).exists());
    }
    // What the filter leaves out is safe from the job.
    lab.haul(&["fleet", "create", "@all/src", "@dst", "--sync", "--at", "@dst/job", "--exclude=/job/**"]).ok();
    lab.haul(&["fleet", "work", "@dst/job"]).code(0);
    assert!(lab.path("dst/a").is_file() && !lab.path("dst/b").exists());
    let done = lab.haul(&["fleet", "cancel", "@dst/job"]).ok();
    assert_eq!(done.out, "Nothing to cancel: the job is complete\n");
    lab.haul(&["fleet", "report", "@dst/job"]).code(0);
}

#[test]
fn a_job_that_nobody_understands_is_cancelled_with_a_warning() {
    let lab = Lab::new(HAUL);
    folder::write(&lab.path("src/a"), b"a", 1);
    lab.haul(&["fleet", "create", "@src", "@dst", "--at", "@job"]).ok();
    folder::write(&records(&lab).join("shards/000000/0000000001"), b"<", 1);
    let ran = lab.haul(&["fleet", "cancel", "@job"]).code(0);
    assert_eq!(ran.out, "Cancelled: workers stop at their next look at the job\n");
    assert!(ran.err.contains("Parts of a large file may still be at the destination: "), "{}", ran.err);
    assert!(records(&lab).join("cancelled").exists());
}

#[test]
fn a_worker_of_a_job_that_was_purged_does_nothing_of_the_next_one_in_its_directory() {
    let lab = Lab::new(HAUL);
    for n in 0..30_u64 {
        folder::write(&lab.path(&format!("A/{n:02}")), &[b'a'; 300_000], n);
        folder::write(&lab.path(&format!("B/{n:02}")), b"other", n);
    }
    lab.haul(&["fleet", "create", "--bwlimit=1M", "--shards=4", "@A", "@dstA", "--at=@job"]).ok();
    let first = worker(&lab, "@job", &[]);
    let watch = lab.start(&["fleet", "watch", "@job", "--every=100ms"]);
    assert!(until(|| fs::read_dir(lab.path("dstA")).is_ok_and(|files| files.count() > 3)));
    // What its worker writes meanwhile may stay.
    lab.haul(&["purge", "@job"]);
    lab.haul(&["fleet", "create", "--shards=4", "@B", "@dstB", "--at=@job"]).ok();
    for ended in [first, watch] {
        let ended = lab.end(ended).code(4);
        assert!(ended.err.contains("removed"), "{} {}", ended.out, ended.err);
    }
    assert!(fs::read_dir(lab.path("dstA")).unwrap().count() < 30, "it went on to the end");
    let report = lab.haul(&["fleet", "report", "@job"]).code(5);
    assert!(report.out.contains(" 0 leased, 0 workers; 0 transferred "), "{}", report.out);
    lab.end(worker(&lab, "@job", &[])).code(0);
    lab.haul(&["check", "@B", "@dstB"]).ok();
    assert_eq!(number(&lab, "@job", "/outcome/transfers"), 30);
}

#[test]
fn directories_in_flags_are_those_of_where_the_job_was_created() {
    let lab = Lab::new(HAUL);
    folder::write(&lab.path("A/new"), b"new", 1);
    folder::write(&lab.path("A/known"), b"known", 1);
    folder::write(&lab.path("before/known"), b"known", 1);
    folder::write(&lab.path("dst/new"), b"replaced", 1);
    folder::write(&lab.path("dst/extra"), b"deleted", 1);
    fs::create_dir(lab.path("elsewhere")).unwrap();
    let flags = ["--backup-dir=bak", "--compare-dest=before", "--copy-dest=before", "--client-cert=own.pem"];
    let line = [&["fleet", "create", "--sync", "--shards=1", "A", "dst", "--at=job"], &flags[..3]].concat();
    let created = |line: &[&str]| lab.haul_command(line).current_dir(lab.path("")).output().unwrap();
    let made = created(&line);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut worker = lab.haul_command(&["fleet", "work", lab.path("job").to_str().unwrap()]);
    assert!(worker.current_dir(lab.path("elsewhere")).output().unwrap().status.success());
    let read = |name: &str| fs::read_to_string(lab.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!([read("bak/new"), read("bak/extra")], ["replaced", "deleted"]);
    assert_eq!(fs::read_dir(lab.path("elsewhere")).unwrap().count(), 0);
    assert!(!lab.path("dst/known").exists(), "it is in the other directory already");
    // So are files that go with connections.
    assert!(created(&["fleet", "create", "A", "dst", "--at=other", flags[3]]).status.success());
    let spec = read("other/spec");
    assert!(spec.contains(&format!("--client-cert={}", lab.path("own.pem").display())), "{spec}");
}

#[test]
fn a_record_that_nobody_can_read_is_one_error_and_all_else_goes_on() {
    let lab = Lab::new(HAUL);
    for n in 0..40_u64 {
        folder::write(&lab.path(&format!("src/d{}/{n:02}", n / 10)), b"content", n);
    }
    for dir in 0..4 {
        folder::write(&lab.path(&format!("dst/d{dir}/05.old")), b"old", 1);
    }
    lab.haul(&["fleet", "create", "@src", "@dst", "--at=@job", "--shards=40"]).ok();
    for shard in 0..23 {
        folder::write(&records(&lab).join(format!("shards/{shard:06}/0000000001")), b"", 1);
    }
    let many = lab.haul(&["fleet", "report", "@job"]).code(5);
    assert!(
        many.out.contains("\n  … and 3 more, in the output of the workers\nNo worker is running: "),
        "{}",
        many.out
    );
    fs::remove_dir_all(lab.path("job")).unwrap();
    lab.haul(&["fleet", "create", "@src", "@dst", "--sync", "--at=@job", "--shards=4"]).ok();
    let id = records(&lab).file_name().unwrap().to_str().unwrap().to_owned();
    folder::write(&records(&lab).join("shards/000001/0000000001"), b"", 1);
    let running = lab.haul(&["fleet", "report", "@job"]).code(5);
    assert!(
        running
            .out
            .contains(&format!("  the record {id}/shards/000001/0000000001 can't be read: it can't be understood: ")),
        "{}",
        running.out
    );
    // It may be a holder's, who lives and goes on: so others wait as long as for a lease.
    let first = worker(&lab, "@job", &[]);
    let second = lab.end(worker(&lab, "@job", &[])).code(0);
    let first = lab.end(first).code(0);
    let stderr = [first.err, second.err].concat();
    assert_eq!(
        stderr.matches(&format!(" (shard 000001): its record can't be read: {id}/shards/000001/0000000001: ")).count(),
        1,
        "{stderr}"
    );
    let report = lab.haul(&["fleet", "report", "@job"]).code(1);
    let line = report.out.lines().nth(1).unwrap_or_default();
    assert!(line.starts_with("  ") && line.contains("files after d0/"), "{}", report.out);
    assert!(line.ends_with("; a new job transfers what is missing"), "{}", report.out);
    assert!(report.out.starts_with("Complete: ") && report.out.contains(", 1 error\n"), "{}", report.out);
    let there = |dir: u64| folder::files(&folder::read(&lab.path(&format!("dst/d{dir}")))).len();
    assert_eq!([0, 2, 3].map(there), [10; 3], "other shards are done, and what they had too much is deleted");
    assert!(lab.path("dst/d1/05.old").exists(), "nothing is deleted in a shard that was given up");
    fs::remove_dir_all(lab.path("job")).unwrap();
    lab.haul(&["fleet", "create", "@src", "@dst", "--sync", "--at=@job", "--shards=4"]).ok();
    lab.haul(&["fleet", "work", "@job"]).code(0);
    lab.haul(&["check", "@src", "@dst"]).ok();
}

#[test]
fn a_worker_that_sees_another_source_and_a_cancelled_job_end_for_good() {
    let lab = Lab::new(HAUL);
    folder::write(&lab.path("src/a"), b"a", 1);
    folder::write(&lab.path("dst/b"), b"b", 1);
    lab.haul(&["fleet", "create", "@src", "@dst", "--sync", "--at", "@job"]).ok();
    fs::remove_file(lab.path("src/a")).unwrap();
    let ran = lab.haul(&["fleet", "work", "@job"]).code(7);
    assert!(ran.err.contains("has none of the files that it had when the job was made"), "{}", ran.err);
    assert!(lab.path("dst/b").exists());
    lab.haul(&["fleet", "cancel", "@job"]).ok();
    folder::write(&lab.path("src/a"), b"a", 1);
    lab.haul(&["fleet", "work", "@job"]).code(6);
    lab.haul(&["fleet", "report", "@job"]).code(6);
    assert!(lab.path("dst/b").exists());
}

/// Runs haul where tmpfs are mounted at these places.
fn where_mounted(lab: &Lab, at: &[&str], args: &[&str]) -> ProgramResult {
    let mount = |at: &&str| format!("mount -t tmpfs none {} && ", lab.path(at).display());
    let script = format!("mount --make-rprivate / && {}exec $0 $*", at.iter().map(mount).collect::<String>());
    lab.run(Path::new("unshare"), &[&["-m", "sh", "-c", &script, HAUL], args].concat())
}

#[test]
fn a_worker_that_sees_another_destination_does_nothing() {
    let lab = Lab::new(HAUL);
    folder::write(&lab.path("src/a"), b"a", 1);
    folder::write(&lab.path("src/m/b"), b"b", 1);
    lab.haul(&["fleet", "create", "@src", "@dst", "--sync", "--at", "@job"]).ok();
    // The job's destination was moved away, and another directory has its name.
    fs::rename(lab.path("dst"), lab.path("was")).unwrap();
    fs::create_dir(lab.path("dst")).unwrap();
    let ran = lab.haul(&["fleet", "work", "@job"]).code(7);
    assert!(
        ran.err.contains("dst isn't the directory that it was when the job was made: is it mounted"),
        "{}",
        ran.err
    );
    fs::remove_dir(lab.path("dst")).unwrap();
    lab.haul(&["fleet", "work", "@job"]).code(7);
    assert!(!lab.path("dst/a").exists() && number(&lab, "@job", "/done") == 0);
    fs::remove_dir_all(lab.path("dst")).unwrap_or_default();
    fs::rename(lab.path("was"), lab.path("dst")).unwrap();
    if where_mounted(&lab, &["src/m"], &["version"]).code != 0 {
        return peers::skip("a file system can't be mounted here");
    }
    // A job of a machine that has more mounted than another.
    let job = ["fleet", "create", "@src", "@dst", "--sync", "--at", "@more", "--allow-empty-source"];
    where_mounted(&lab, &["src/m"], &job).ok();
    let ran = lab.haul(&["fleet", "work", "@more"]).code(7);
    assert!(ran.err.contains("src has no file system mounted at m, as it had when the job was made"), "{}", ran.err);
    // And one that has more than that.
    let ran = where_mounted(&lab, &["src/m"], &["fleet", "work", "@job"]).code(7);
    assert!(ran.err.contains("src has a file system mounted at m, as it had not when the job was made"), "{}", ran.err);
    // What the job leaves out needn't be mounted.
    let out = ["fleet", "create", "@src", "@dst", "--at", "@out", "--exclude=/m/**"];
    where_mounted(&lab, &["src/m"], &out).ok();
    lab.haul(&["fleet", "work", "@out"]).code(0);
    // The roots of two file systems, which have one number.
    where_mounted(&lab, &["dst"], &["fleet", "create", "@src", "@dst", "--at", "@roots"]).ok();
    let ran = where_mounted(&lab, &["dst"], &["fleet", "work", "@roots"]).code(7);
    assert!(ran.err.contains("dst isn't the directory that it was when the job was made"), "{}", ran.err);
    fs::remove_file(lab.path("dst/a")).unwrap();
    // An automounter is made to mount what is to be seen.
    let autofs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/autofs.py");
    let auto = format!(
        "mount --make-rprivate / && mkdir -p {0}-too && mount --bind {0} {0}-too && : > {0}-said && {{ python3 {1} {0} {0}-too > {0}-said & }} &&
         until grep -q ready {0}-said; do kill -0 $! || exit 99; sleep 0.05; done; $0 $*",
        lab.path("dst").display(),
        autofs.display()
    );
    let ran = lab.run(Path::new("unshare"), &["-m", "sh", "-c", &auto, HAUL, "fleet", "work", "@job"]);
    match ran.code {
        99 => peers::skip("no automounter can run here"),
        _ => assert!(ran.code == 0 && lab.path("dst/a").exists(), "{} {}", ran.out, ran.err),
    }
    fs::remove_file(lab.path("dst/a")).unwrap_or_default();
    lab.haul(&["fleet", "create", "@src", "@dst", "--sync", "--at", "@ro"]).ok();
    // A destination that only this worker can't write leaves the shards to others.
    let read_only = format!(
        "mount --make-rprivate / && mount --bind {0} {0} && mount -o remount,ro,bind {0} && exec $0 $*",
        lab.path("dst").display()
    );
    let args = ["-m", "sh", "-c", &read_only, HAUL, "fleet", "work", "@ro"];
    let ran = lab.run(Path::new("unshare"), &args).code(7);
    assert!(ran.err.contains("dst is mounted so that it can only be read"), "{}", ran.err);
    lab.haul(&["fleet", "work", "@ro"]).code(0);
    assert!(lab.path("dst/a").exists() && lab.path("dst/m/b").exists());
}

#[test]
fn an_error_of_one_worker_fails_no_shard() {
    let lab = Lab::new(HAUL);
    folder::write(&lab.path("src/a"), b"a", 1);
    let inside = lab.haul(&["fleet", "create", "@src", "@dst", "--at", "@job", "--backup-dir", "@dst/old"]);
    assert!(inside.code != 0 && inside.err.contains("overlaps with the destination"), "{}", inside.err);
    let own =
        ["fleet", "create", "@src", "@dst", "--sync", "--at", "@dst/job", "--exclude=/job/**", "--delete-excluded"];
    let ran = lab.haul(&own);
    assert!(ran.code != 0 && ran.err.contains("is inside the destination"), "{}", ran.err);
    lab.haul(&["fleet", "create", "@src", "@dst", "--at", "@job"]).ok();
    let ran = lab.haul(&["fleet", "work", "@job", "--exclude=*"]).code(2);
    assert!(ran.err.contains("--exclude counts for the whole job: give it to haul fleet create"), "{}", ran.err);
    // What is set for all commands is not the worker's own.
    let of_all =
        lab.haul_command(&["fleet", "work", "@job", "--at-once=none"]).env("HAUL_EXCLUDE", "x").output().unwrap();
    let stderr = String::from_utf8_lossy(&of_all.stderr).into_owned();
    assert!(!stderr.contains("counts for the whole job"), "{stderr}");
    let ran = lab.haul(&["fleet", "work", "@job", "--backup-dir", "@dst/old"]);
    assert!(ran.code != 0 && ran.err.contains("overlaps with the destination"), "{}", ran.err);
    let left = lab.haul(&["fleet", "work", "@job"]).code(0);
    assert!(left.out.contains("1 transferred") && lab.path("dst/a").exists(), "{}", left.out);
}
