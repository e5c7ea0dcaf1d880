//! `haul jobs`, `haul resume`, `haul jobs clean`: on journals as a killed run leaves them.

use haul::journal::{JobId, JobInfo, Journal, StartedWrite};
use haul_core::{Key, Mtime, Version, filter::FilterSpec, job::Verb};
use haul_store::{Part, Payload, SentPart, Store, WriteSpec};
use haul_testkit::{
    disk,
    folder::write,
    lab::{Lab, ProgramResult, until},
};
use std::{fs, os::unix::ffi::OsStrExt, path::PathBuf, sync::Arc};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

fn store(lab: &Lab, name: &str) -> Arc<dyn Store> {
    disk::open(&lab.path(name), Default::default())
}

fn id(lab: &Lab) -> JobId {
    JobId::new(Verb::Copy, &*store(lab, "src"), &*store(lab, "dst"), &FilterSpec::default(), None)
}

/// This machine's name.
fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim_end().to_string()
}

/// A lab in which `haul copy src dst` was killed while `big` was on its way, with 1000 bytes of it at `dst`; and the partial
/// file.
fn killed(argv: &[&str], complete: bool) -> (Lab, PathBuf) {
    killed_on(&host(), argv, complete)
}

/// The same on another machine, with the same state folder.
fn killed_on(host: &str, argv: &[&str], complete: bool) -> (Lab, PathBuf) {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/big"), &[7; 3000], 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let partial = runtime.block_on(async {
        let dst = store(&lab, "dst");
        let upload = dst.write(&Key::new("big"), WriteSpec::default()).await.unwrap();
        upload.part(0, 0, Payload::from(bytes::Bytes::from(vec![7; 1000]))).await.unwrap();
        let token = upload.token().await.unwrap().unwrap();
        let partial = lab.path("dst").join(std::ffi::OsStr::from_bytes(&token));
        let job = JobInfo {
            mode: "copy".into(),
            src: "src".into(),
            dst: "dst".into(),
            argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
            complete,
            folder: lab.path("").as_os_str().as_bytes().to_vec(),
            names_file: false,
            begun: Mtime::new(1_800_000_000, 0),
            host: host.into(),
        };
        let journal = Journal::open(&lab.jobs(), &id(&lab), job).unwrap();
        let key = Key::new("big");
        let version = Version::new("of another time");
        let opened = StartedWrite { from: key.clone(), version, size: 3000, to: key, part_size: 1000, token };
        let write = journal.opened(opened).await.unwrap().unwrap();
        journal.part(write, SentPart { part: Part { index: 0, size: 1000, tag: Vec::new() }, offset: 0, crc64: 1 });
        journal.end().await.unwrap();
        partial
    });
    assert!(partial.exists());
    // A child that another test is about to start has this process's files, locks with them, until it runs its program.
    assert!(until(|| !lab.haul(&["jobs"]).ok().out.contains("  running ")));
    (lab, partial)
}

fn says(ran: &ProgramResult, line: &str) {
    assert!(ran.err.lines().any(|l| l.ends_with(line)), "no {line:?} in\n{}", ran.err);
}

#[test]
fn without_unfinished_jobs_there_is_nothing_to_say() {
    let lab = Lab::new(HAUL);
    for args in [&["jobs"][..], &["jobs", "clean"]] {
        let ran = lab.haul(args).ok();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{args:?}");
    }
    assert!(!lab.path("home/.local").exists());
    write(&lab.path("src/f"), b"x", 1);
    lab.haul(&["copy", "@src", "@dst"]).ok();
    assert!(!lab.path("home/.local").exists(), "a job of small files keeps no journal");
}

#[test]
fn what_was_cut_short_is_listed() {
    let (lab, _) = killed(&["--checkers=3", "copy", "src", "dst"], true);
    let ran = lab.haul(&["jobs"]).ok();
    let want = format!(
        "ID                BEGUN                STATE    FILES         SENT  COMMAND\n\
         {}  2027-01-15 08:00:00  stopped      1       1000 B  haul --checkers=3 copy src dst\n",
        id(&lab)
    );
    assert_eq!(ran.out, want);
    assert_eq!(lab.haul(&["__complete", "zsh", "resume", ""]).ok().out, format!("{}\n", id(&lab)));
    let elsewhere = lab.haul(&["jobs", "--state-dir", "@other"]).ok();
    assert_eq!(elsewhere.out, "");
}

#[test]
fn resume_runs_the_command_again_in_its_folder() {
    let (lab, partial) = killed(&["copy", "src", "dst"], true);
    fs::create_dir(lab.path("else")).unwrap();
    let begin = &id(&lab).to_string()[..6];
    let mut command = lab.haul_command(&["resume", begin, "-n"]);
    let dry = command.current_dir(lab.path("else")).output().unwrap();
    assert!(dry.status.success() && !lab.path("dst/big").exists(), "flags may be added");
    let mut command = lab.haul_command(&["resume", begin]);
    assert!(command.current_dir(lab.path("else")).output().unwrap().status.success());
    assert_eq!(fs::read(lab.path("dst/big")).unwrap(), [7; 3000]);
    // It was of another version of the source, so it could not be gone on with.
    assert!(!partial.exists());
    assert_eq!(fs::read_dir(lab.jobs()).unwrap().count(), 0);
}

#[test]
fn clean_removes_what_was_sent_and_forgets_the_job() {
    let (lab, partial) = killed(&["copy", "src", "dst"], true);
    fs::write(lab.path("dst/whole"), "stays").unwrap();
    let ran = lab.haul(&["jobs", "clean", "-n"]).ok();
    says(&ran, "big: Skipped removing what was sent as --dry-run is set (size 1000)");
    assert!(partial.exists());
    let ran = lab.haul(&["jobs", "clean", "-v"]).ok();
    says(&ran, "big: Removed what was sent");
    assert!(!partial.exists());
    assert_eq!(fs::read_dir(lab.path("dst")).unwrap().count(), 1);
    assert_eq!(lab.haul(&["jobs"]).ok().out, "");
    assert_eq!(fs::read_dir(lab.jobs()).unwrap().count(), 0);
}

#[test]
fn what_cant_be_done_is_told() {
    let (lab, partial) = killed(&["copy", "src", ":s3,…:b"], false);
    let id = id(&lab);
    let secrets = format!(
        "job {id} was given secrets or standard input, which aren't kept: run it again as you did (haul copy src ':s3,\u{2026}:b')"
    );
    let secrets = secrets.replace("':s3,\u{2026}:b'", ":s3,\u{2026}:b");
    let ran = lab.haul(&["resume", &id.to_string()]).code(1);
    assert_eq!(ran.err.trim_end(), format!("haul: {secrets}"));
    let forget = lab.jobs().join(format!("{id}.journal"));
    let forget = format!("{secrets} (to forget it with what it left, delete {})", forget.display());
    says(&lab.haul(&["jobs", "clean"]).code(1), &forget);
    assert!(partial.exists());
    let unknown = "no unfinished job nosuch (see haul jobs)";
    assert_eq!(lab.haul(&["resume", "nosuch"]).code(2).err.trim_end(), format!("haul: {unknown}"));
    assert_eq!(lab.haul(&["jobs", "clean", "nosuch"]).code(2).err.trim_end(), format!("haul: {unknown}"));
    let nowhere = "haul: no directory for journals: set one with --state-dir";
    assert_eq!(lab.haul(&["jobs", "--state-dir", ""]).code(2).err.trim_end(), nowhere);
    let damaged = lab.jobs().join("00.journal");
    fs::write(&damaged, "HAULJRNL").unwrap();
    let ran = lab.haul(&["jobs"]).code(1);
    let line = format!("{} is damaged and doesn't say of which job it is: delete it", damaged.display());
    says(&ran, &line);
    assert!(ran.out.contains(&id.to_string()));
}

#[test]
fn another_machines_job_is_left_to_it() {
    let (lab, partial) = killed_on("node7", &["copy", "src", "dst"], true);
    let id = id(&lab);
    assert!(lab.haul(&["jobs"]).ok().out.ends_with("haul copy src dst  (on node7)\n"));
    let ran = lab.haul(&["jobs", "clean"]).ok();
    says(&ran, &format!("job {id} is node7's and may be running there: run haul jobs clean there, or name the job"));
    assert!(partial.exists() && lab.jobs().join(format!("{id}.journal")).exists());
    lab.haul(&["jobs", "clean", &id.to_string()]).ok();
    assert!(!partial.exists());
    // Gone on with here, it is this machine's.
    let (lab, _) = killed_on("node7", &["copy", "src", "dst"], true);
    fs::remove_file(lab.path("src/big")).unwrap();
    fs::create_dir(lab.path("src/big")).unwrap();
    write(&lab.path("src/other"), b"x", 1);
    lab.haul(&["copy", "@src", "@dst", "--max-transfer=0B"]);
    assert!(lab.haul(&["jobs"]).ok().out.ends_with("haul copy src dst\n"), "{}", lab.haul(&["jobs"]).out);
}

#[test]
fn a_disk_that_is_not_there_forgets_nothing() {
    let (lab, partial) = killed(&["copy", "src", "dst"], true);
    let id = id(&lab);
    fs::rename(lab.path("dst"), lab.path("away")).unwrap();
    let ran = lab.haul(&["jobs", "clean"]).code(1);
    let away = format!("job {id}: its destination is missing: mount it, or name the job");
    assert!(ran.err.contains(&away) && !ran.err.contains("delete"), "{}", ran.err);
    // Only its mount point is.
    fs::create_dir(lab.path("dst")).unwrap();
    let ran = lab.haul(&["jobs", "clean"]).code(1);
    says(&ran, &format!("job {id}: big: discard: its partial file is missing: mount its disk, or name the job"));
    fs::remove_dir(lab.path("dst")).unwrap();
    fs::rename(lab.path("away"), lab.path("dst")).unwrap();
    lab.haul(&["jobs", "clean"]).ok();
    assert!(!partial.exists());
    assert_eq!(lab.haul(&["jobs"]).ok().out, "");
    // One that never comes back, with and without a mount point.
    for is_mount_point in [false, true] {
        let (lab, _) = killed(&["copy", "src", "dst"], true);
        fs::remove_dir_all(lab.path("dst")).unwrap();
        if is_mount_point {
            fs::create_dir(lab.path("dst")).unwrap();
        }
        lab.haul(&["jobs", "clean", &self::id(&lab).to_string()]).ok();
        assert_eq!(lab.haul(&["jobs"]).ok().out, "");
    }
}

#[test]
fn a_job_is_resumed_once_at_a_time() {
    let (lab, partial) = killed(&["copy", "src", "dst"], true);
    let id = id(&lab).to_string();
    let file = fs::File::open(lab.jobs().join(format!("{id}.journal"))).unwrap();
    // Another that has begun, and one that begins after this one has looked.
    for (way, lock) in [("before", fs::File::lock as fn(&fs::File) -> _), ("meanwhile", fs::File::lock_shared)] {
        lock(&file).unwrap();
        let ran = lab.haul(&["resume", &id]).code(1);
        assert!(ran.err.ends_with(&format!("job {id} is running now\n")), "{way}: {}", ran.err);
        file.unlock().unwrap();
    }
    file.lock().unwrap();
    let ran = lab.haul(&["jobs", "clean", &id]).code(1);
    // Who deleted the journal of a running job would lose what it has sent.
    says(&ran, &format!("job {id}: journal: another haul is doing the same job now"));
    assert!(partial.exists() && !lab.path("dst/big").exists());
}

/// What a full disk or a kill leaves of a journal in which nothing was noted.
#[test]
fn an_empty_journal_is_no_job() {
    let lab = Lab::new(HAUL);
    fs::create_dir_all(lab.jobs()).unwrap();
    fs::write(lab.jobs().join("00.journal"), "").unwrap();
    for args in [&["jobs"][..], &["jobs", "clean"]] {
        let ran = lab.haul(args).ok();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{args:?}");
    }
}
