//! One large file by many workers of `haul fleet`: from disks and buckets to others, with a worker that is killed, one that sleeps,
//! a source that changes and a job that is cancelled in the middle. What they do together is what one run does.

use super::fleet::{kill, number, records, signal, worker};
use haul_testkit::{
    cloudsim::Cloudsim,
    folder,
    lab::{Lab, until},
    minio::Minio,
    web_servers::{Make, WebServer},
};
use std::{fs, process::Child};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// Bytes of the large file.
const SIZE: usize = 64 << 20;

/// A range is an eighth of what files are split from, a part at least.
const SPLIT: &str = "--split-files-from=32M";

/// Parts and metadata, the same for one run and for many workers.
const FLAGS: [&str; 3] = ["--s3-chunk-size=5M", "--s3-upload-cutoff=5M", "--metadata"];

/// Each worker is slow enough that something can befall it.
const SLOW: [&str; 3] = ["--bwlimit=10M", "--at-once=1", "--grace=100ms"];

/// A lab with a source directory `src` that holds a large file and two small ones.
fn lab() -> Lab {
    let lab = Lab::new(HAUL);
    folder::write(&lab.path("src/d/large"), &folder::noise(7, SIZE), 1_500_000_000_123_456_789);
    folder::write(&lab.path("src/d/a"), b"small", 1_400_000_000_000_000_000);
    folder::write(&lab.path("src/e"), b"small too", 1_400_000_000_000_000_001);
    lab
}

fn create(lab: &Lab, src: &str, dst: &str) {
    lab.haul(&[&["fleet", "create", src, dst, "--at=@job", "--shards=2", SPLIT], &FLAGS[..]].concat()).ok();
}

fn workers(lab: &Lab, count: usize) -> Vec<Child> {
    (0..count).map(|_| worker(lab, "@job", &SLOW)).collect()
}

/// So slow that a busy machine still gets something done before they are through: eight seconds after the first range.
fn slower(lab: &Lab, count: usize) -> Vec<Child> {
    (0..count).map(|_| worker(lab, "@job", &["--bwlimit=3M", "--at-once=1", "--grace=100ms"])).collect()
}

/// Ranges that are done so far: shards of the third generation.
fn ranges(lab: &Lab) -> usize {
    let done = fs::read_dir(records(lab).join("done")).into_iter().flatten();
    done.filter(|entry| entry.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().matches('~').count() == 2)).count()
}

/// Facts of what a remote or directory holds, as one run and many workers must leave them.
fn facts(lab: &Lab, at: &str) -> String {
    let ran = lab.haul(&["lsjson", "--recursive", "--metadata", "--files-only", at]).ok();
    let listed: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let own = ["btime", "atime", "tier", "content-md5"];
    let fact = |file: &serde_json::Value| {
        let mut meta = file["Metadata"].as_object().cloned().unwrap_or_default();
        meta.retain(|name, _| !own.contains(&name.as_str()));
        format!("{} {} {} {meta:?}\n", file["Path"], file["Size"], file["ModTime"])
    };
    listed.as_array().unwrap().iter().map(fact).collect()
}

/// Four workers, of which one is killed in the middle, do what one run does.
fn goes(lab: &Lab, src: &str, dst: &str, alone: &str) {
    create(lab, src, dst);
    let mut all = workers(lab, 4);
    assert!(until(|| ranges(lab) >= 2), "ranges are sent one by one");
    kill(all.remove(0));
    for worker in all {
        let ran = lab.end(worker).code(0);
        assert!(ran.out.starts_with("Complete: "), "{} {}", ran.out, ran.err);
    }
    let report = lab.haul(&["fleet", "report", "@job"]).code(0);
    assert!(report.out.contains("; 3 transferred (64.000 Mi") && report.out.contains(" 0 errors"), "{}", report.out);
    assert!(ranges(lab) >= 8, "{} ranges", ranges(lab));
    lab.haul(&["check", "--download", src, dst]).ok();
    lab.haul(&[&["copy", src, alone], &FLAGS[..]].concat()).ok();
    assert_eq!(facts(lab, dst), facts(lab, alone), "many workers and one run");
    // A rerun finds nothing to do.
    let again = lab.haul(&["copy", "--dry-run", "--stats=0", src, dst]).ok();
    assert!(!again.err.contains("Skipped copy"), "{}", again.err);
    fs::remove_dir_all(lab.path("job")).unwrap();
}

fn cloud(lab: &Lab, name: &str) -> Cloudsim {
    let sim = Cloudsim::with(&[("latency", "5ms")]);
    lab.remote(name, &sim.endpoint());
    ["src", "dst", "one"].into_iter().for_each(|bucket| sim.bucket(bucket, None));
    sim
}

#[test]
fn a_large_file_goes_by_four_workers_between_disks_and_buckets() {
    let lab = lab();
    let (sim, other) = (cloud(&lab, "c"), cloud(&lab, "o"));
    goes(&lab, "@src", "c:dst", "c:one");
    lab.haul(&[&["copy", "@src", "c:src", "--metadata-set=kind=large"], &FLAGS[..]].concat()).ok();
    goes(&lab, "c:src", "@dst", "@one");
    let hidden = fs::read_dir(lab.path("dst/d")).unwrap().count();
    assert_eq!(hidden, 2, "no partial file is left");
    goes(&lab, "c:src", "o:dst", "o:one");
    for sim in [sim, other] {
        assert_eq!(sim.report().unfinished_uploads, 0);
    }
}

#[test]
fn a_large_file_goes_by_four_workers_to_minio_and_back() {
    let Some(minio) = Minio::shared() else { return };
    let lab = lab();
    lab.remote("m", &minio.endpoint());
    let _sim = cloud(&lab, "c");
    let bucket = |name| format!("m:{}", minio.bucket(name));
    let (dst, one) = (bucket("large"), bucket("large-one"));
    goes(&lab, "@src", &dst, &one);
    goes(&lab, &dst, "c:dst", "c:one");
    goes(&lab, &dst, "@dst", "@one");
}

#[test]
fn a_large_file_goes_by_four_workers_to_azurite_and_back() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let lab = lab();
    let section = format!(
        "[az]\ntype = azureblob\nuse_emulator = true\nendpoint = {}/devstoreaccount1\nchunk_size = 4M\n",
        server.url()
    );
    fs::write(lab.config(), section).expect("config");
    ["az:dst", "az:one"].iter().for_each(|container| drop(lab.haul(&["mkdir", container]).ok()));
    goes(&lab, "@src", "az:dst", "az:one");
    goes(&lab, "az:dst", "@dst", "@one");
}

#[test]
fn a_worker_that_wakes_up_when_all_is_done_changes_nothing() {
    let lab = lab();
    let sim = cloud(&lab, "c");
    lab.haul(&[&["copy", "@src", "c:src"], &FLAGS[..]].concat()).ok();
    create(&lab, "c:src", "@dst");
    let mut all = workers(&lab, 4);
    assert!(until(|| ranges(&lab) >= 2));
    let sleeper = all.remove(0);
    signal(&sleeper, "STOP");
    for worker in all {
        lab.end(worker).code(0);
    }
    // It may have been stopped within a write, of bytes that others wrote meanwhile: when that ends, the file has another time.
    let content = || {
        let read = |name: &str| fs::read(lab.path("dst").join(name)).expect("there");
        (["d/large", "d/a", "e"].map(read), fs::read_dir(lab.path("dst/d")).expect("there").count())
    };
    let before = content();
    signal(&sleeper, "CONT");
    lab.end(sleeper).code(0);
    assert!(content() == before, "after it woke up");
    lab.haul(&["check", "--download", "@src", "@dst"]).ok();
    assert_eq!(number(&lab, "@job", "/outcome/transfers"), 3);
    drop(sim);
}

#[test]
fn a_source_that_changes_on_the_way_is_an_error_and_leaves_nothing() {
    let lab = lab();
    let sim = cloud(&lab, "c");
    create(&lab, "@src", "c:dst");
    // Made beforehand, as it takes a while.
    let other = folder::noise(8, SIZE);
    let all = slower(&lab, 2);
    assert!(until(|| ranges(&lab) >= 1));
    // The same size and time: only the inode tells.
    folder::write(&lab.path("src/d/large"), &other, 1_500_000_000_123_456_789);
    for worker in all {
        let ran = lab.end(worker).code(0);
        assert!(ran.err.contains("There were errors"), "{}", ran.err);
    }
    let report = lab.haul(&["fleet", "report", "@job"]).code(1);
    assert!(report.out.contains(", 1 error\n"), "{}", report.out);
    // A read during the rewrite may find a shorter file.
    let ways = ["changed while it was copied", "changed while it was sent", "became shorter while it was read"];
    assert!(report.out.contains("d/large") && ways.iter().any(|way| report.out.contains(way)), "{}", report.out);
    assert_eq!(sim.keys("dst"), [b"d/a".to_vec(), b"e".to_vec()]);
    assert_eq!(sim.report().unfinished_uploads, 0);
}

/// The state after the worker that published the large file was killed before it recorded that.
fn forget_the_end(lab: &Lab) {
    let shards = fs::read_dir(records(lab).join("shards")).unwrap();
    let names: Vec<String> = shards.map(|shard| shard.unwrap().file_name().into_string().unwrap()).collect();
    let range = names.iter().find(|name| name.matches('~').count() == 2).expect("a range");
    let (file, _) = range.rsplit_once('~').unwrap();
    let all = fs::read_dir(records(lab).join("shards").join(file)).unwrap();
    let last = all.map(|record| record.unwrap().path()).max().unwrap();
    assert!(fs::read_to_string(&last).unwrap().contains("\"state\":\"done\""));
    fs::remove_file(last).unwrap();
    fs::remove_file(records(lab).join("done").join(file)).unwrap();
}

#[test]
fn a_file_that_a_dead_worker_made_visible_is_known_by_its_etag_where_there_is_no_crc() {
    let lab = lab();
    let sim = Cloudsim::with(&[("quirk", "ignores-checksums")]);
    lab.remote_of("c", "Other", &sim.endpoint(), &[]);
    sim.bucket("dst", None);
    create(&lab, "@src", "c:dst");
    lab.end(worker(&lab, "@job", &[])).code(0);
    assert!(ranges(&lab) > 3, "it was split");
    forget_the_end(&lab);
    lab.haul(&["fleet", "report", "@job"]).code(5);
    lab.end(worker(&lab, "@job", &[])).code(0);
    let report = lab.haul(&["fleet", "report", "@job"]).code(0);
    assert!(report.out.contains("; 3 transferred "), "{}", report.out);
    // Other content proves nothing.
    forget_the_end(&lab);
    sim.put("dst", b"d/large", folder::noise(9, SIZE), &[]);
    lab.end(worker(&lab, "@job", &[])).code(0);
    let report = lab.haul(&["fleet", "report", "@job"]).code(1);
    assert!(report.out.contains("\n  d/large: "), "{}", report.out);
}

#[test]
fn a_cancelled_job_leaves_no_upload_behind() {
    let lab = lab();
    let sim = cloud(&lab, "c");
    create(&lab, "@src", "c:dst");
    // Whether workers hear of it or are dead.
    for dead in [true, false] {
        let all = slower(&lab, 2);
        assert!(until(|| ranges(&lab) >= 1));
        assert_eq!(sim.report().unfinished_uploads, 1);
        if dead {
            all.into_iter().for_each(kill);
            lab.haul(&["fleet", "cancel", "@job"]).ok();
        } else {
            lab.haul(&["fleet", "cancel", "@job"]).ok();
            all.into_iter().for_each(|worker| drop(lab.end(worker).code(6)));
        }
        assert!(sim.get("dst", b"d/large").is_none());
        assert_eq!(sim.report().unfinished_uploads, 0, "dead: {dead}");
        fs::remove_dir_all(lab.path("job")).unwrap();
        create(&lab, "@src", "c:dst");
    }
}

#[test]
fn small_files_and_those_of_a_job_that_says_so_are_one_workers() {
    let lab = lab();
    let _sim = cloud(&lab, "c");
    for flag in ["--split-files-from=0", "--split-files-from=65M"] {
        let line = ["fleet", "create", "@src", "c:dst", "--at=@job", "--shards=2", flag];
        lab.haul(&line).ok();
        lab.haul(&["fleet", "work", "@job"]).code(0);
        assert_eq!(ranges(&lab), 0, "{flag}");
        fs::remove_dir_all(lab.path("job")).unwrap();
    }
    let wrong = ["fleet", "create", "@src", "c:dst", "--at=@job", "--split-files-from=big"];
    assert!(lab.haul(&wrong).code(2).err.contains("--split-files-from"));
}
