//! Where the log goes and how its lines look, beside rclone: formats, files that begin anew, syslog, the journal of systemd,
//! statistics.

use haul_testkit::{
    folder::write,
    lab::{Lab, ProgramResult},
    peers,
};
use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;

/// A lab with `count` small files in `src`.
fn lab(count: usize) -> Lab {
    let lab = Lab::new(HAUL);
    (0..count).for_each(|n| write(&lab.path(&format!("src/file{n}")), b"text", TIME));
    lab
}

/// haul, and rclone where it is there.
fn both() -> Vec<PathBuf> {
    [PathBuf::from(HAUL)].into_iter().chain(peers::find("rclone")).collect()
}

/// Digits as `9`, and a number after `[`, the process's, as one of them: what stays the same from run to run.
fn shape(line: &str) -> String {
    let mut line: String = line.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    while line.contains("[99") {
        line = line.replace("[99", "[9");
    }
    line
}

/// What a line about a copied file begins with: how it was copied differs.
const COPIED: &str = "file0: Copied (";

/// The line about a copied file, as far as both programs say the same.
fn copied(text: &str) -> String {
    let line = text.lines().find(|line| line.contains(COPIED));
    shape(line.and_then(|line| line.rsplit_once(" (")).unwrap_or_else(|| panic!("{text}")).0)
}

#[test]
fn lines_have_the_parts_that_are_named() {
    let lab = lab(1);
    for (format, expected) in [
        ("date,time", "9999/99/99 99:99:99 INFO  : file9: Copied"),
        ("time", "99:99:99 INFO  : file9: Copied"),
        ("date,microseconds,UTC", "9999/99/99 99:99:99.999999 INFO  : file9: Copied"),
        ("pid,nolevel", "[9] file9: Copied"),
        ("nolevel", "file9: Copied"),
        ("", "INFO  : file9: Copied"),
    ] {
        for (n, program) in both().iter().enumerate() {
            let dst = format!("@{n}{}", format.replace(',', "-"));
            let ran = lab.run(program, &["copy", "@src", &dst, "-v", "--log-format", format]).ok();
            assert_eq!(copied(&ran.err), expected, "{}", ran.line);
        }
    }
    let ran = lab.haul(&["copy", "@src", "@json", "-v", "--log-format", "json,pid"]).ok();
    let line: serde_json::Value = serde_json::from_str(ran.err.lines().next().unwrap()).unwrap();
    assert!(line["pid"].is_number() && line["object"] == "file0", "{line}");
    let ran = lab.haul(&["copy", "@src", "@place", "-v", "--log-format", "shortfile"]).ok();
    assert!(copied(&ran.err).starts_with("src/progress.rs:9"), "{}", ran.err);
    let ran = lab.haul(&["ls", "@src", "--log-format", "date,tme"]).code(2);
    assert!(ran.err.contains("\"tme\" is none of date, time,"), "{}", ran.err);
}

#[test]
fn a_full_log_file_is_put_aside() {
    let lab = lab(3);
    for (n, program) in both().iter().enumerate() {
        let log = lab.path(&format!("log{n}"));
        fs::create_dir(&log).unwrap();
        fs::write(log.join("x.log"), [&b"#".repeat((1 << 20) - 20)[..], b"\n"].concat()).unwrap();
        for name in ["x-2020-01-02T03-04-05.678.log", "x-2020-01-02T03-04-05.679.log", "x-other.log"] {
            fs::write(log.join(name), name).unwrap();
        }
        let file = format!("@log{n}/x.log");
        let limits = ["--log-file-max-size=300k", "--log-file-max-backups=2", "--log-file-compress"];
        let (src, dst) = ("@src", format!("@dst{n}"));
        lab.run(program, &[&["copy", src, &dst, "-v", "--log-file", &file][..], &limits].concat()).ok();
        // rclone ends before its old files are compressed and removed; its next run does it.
        let aside = "x-9999-99-99T99-99-99.999.log.gz";
        let so = haul_testkit::lab::until(|| {
            lab.run(program, &[&["copy", src, &dst, "-v", "--log-file", &file][..], &limits].concat()).ok();
            let shapes: Vec<String> = names(&log).iter().map(|name| shape(name)).collect();
            shapes == [aside, aside, "x-other.log", "x.log"]
        });
        let names = names(&log);
        assert!(so, "{} {names:?}", program.display());
        assert!(names[0].starts_with("x-2020-01-02T03-04-05.679."), "{names:?}");
        let now = fs::read_to_string(log.join("x.log")).unwrap();
        assert!(!now.contains('#') && now.contains("file2: Copied ("), "{now}");
    }
    // By age, in days.
    fs::write(lab.path("log0/x-2020-01-02T03-04-05.679.log.gz"), "old").unwrap();
    let age = ["--log-file-max-size=1M", "--log-file-max-age=1w"];
    lab.haul(&[&["ls", "@src", "--log-file", "@log0/x.log"][..], &age].concat()).ok();
    assert_eq!(names(&lab.path("log0")).len(), 3);
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs a program that finds `@run` at `/run`; `None` where that can't be.
fn with_own_run(lab: &Lab, program: &Path, args: &[&str]) -> Option<ProgramResult> {
    let run = lab.path("run");
    let script = format!("mount --make-rprivate / && mount --bind {} /run && exec $0 $*", run.display());
    let probe = lab.run(Path::new("unshare"), &["-m", "sh", "-c", &script, "true"]);
    if probe.code != 0 {
        peers::skip("a folder can't be mounted here");
        return None;
    }
    let program = program.to_str().unwrap();
    Some(lab.run(Path::new("unshare"), &[&["-m", "sh", "-c", &script, program][..], args].concat()))
}

/// A socket at `@run`, and all that was sent to it so far.
fn socket(lab: &Lab, name: &str) -> (UnixDatagram, impl Fn(&UnixDatagram) -> Vec<String> + use<>) {
    let path = lab.path("run").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let read = |socket: &UnixDatagram| {
        let mut buffer = vec![0; 1 << 16];
        let mut all = Vec::new();
        while let Ok(len) = socket.recv(&mut buffer) {
            all.push(String::from_utf8_lossy(&buffer[..len]).into_owned());
        }
        all
    };
    (socket, read)
}

#[test]
fn syslog_hears_of_it() {
    if Path::new("/dev/log").exists() {
        return peers::skip("this machine's own syslog would be written to");
    }
    let lab = lab(1);
    let (socket, sent) = socket(&lab, "log");
    for (n, program) in both().iter().enumerate() {
        for (facility, copy, notice) in [("DAEMON", "<30>", "<29>"), ("LOCAL3", "<158>", "<157>")] {
            let dst = format!("@{n}{facility}");
            let args = ["copy", "@src", &dst, "-v", "--syslog", "--syslog-facility", facility];
            let Some(ran) = with_own_run(&lab, program, &args) else { return };
            let ran = ran.ok();
            assert_eq!(ran.err, "", "{}", ran.line);
            let first = sent(&socket);
            let name = program.file_name().unwrap().to_str().unwrap();
            let line = first.iter().find(|line| line.contains(COPIED)).unwrap_or_else(|| panic!("{first:?}"));
            assert!(line.starts_with(copy) && line.contains("]: file0: Copied ("), "{line}");
            assert!(line.contains(&format!(" {name}[")), "{line}");
            let args = ["copy", "@src", &format!("{dst}2"), "-n", "--syslog", "--syslog-facility", facility];
            with_own_run(&lab, program, &args).unwrap().ok();
            let sent_lines = sent(&socket);
            assert!(
                sent_lines.iter().any(|line| line.starts_with(notice) && line.contains("--dry-run")),
                "{sent_lines:?}"
            );
        }
    }
    let ran = lab.haul(&["ls", "@src", "--syslog", "--log-file", "@x"]).code(2);
    assert!(ran.err.contains("--syslog and --log-file can't be used together: choose one"), "{}", ran.err);
    drop(socket);
    fs::remove_file(lab.path("run/log")).unwrap();
    let ran = with_own_run(&lab, Path::new(HAUL), &["ls", "@src", "--syslog"]).unwrap().code(1);
    assert!(ran.err.contains("can't reach syslog"), "{}", ran.err);
}

#[test]
fn the_journal_hears_of_it() {
    let lab = lab(1);
    let (socket, sent) = socket(&lab, "systemd/journal/socket");
    for (n, program) in both().iter().enumerate() {
        let dst = format!("@{n}");
        let args = ["copy", "@src", &dst, "-v", "--log-systemd"];
        let Some(ran) = with_own_run(&lab, program, &args) else { return };
        let ran = ran.ok();
        assert_eq!(ran.err, "", "{}", ran.line);
        let sent = sent(&socket);
        let line = sent.iter().find(|line| line.contains(COPIED)).unwrap_or_else(|| panic!("{sent:?}"));
        assert!(line.contains("PRIORITY=6\n") && line.contains("INFO"), "{line}");
        assert!(line.contains(": file0: Copied ("), "{line}");
        // Statistics have several lines.
        assert!(sent.iter().any(|line| line.contains("Transferred:") && line.contains("MESSAGE\n")), "{sent:?}");
    }
    drop(socket);
    fs::remove_file(lab.path("run/systemd/journal/socket")).unwrap();
    let ran = with_own_run(&lab, Path::new(HAUL), &["copy", "@src", "@last", "-v", "--log-systemd"]).unwrap().ok();
    assert!(ran.err.lines().any(|line| line.starts_with("<6>INFO  : file0: Copied (")), "{}", ran.err);
}

#[test]
fn statistics_have_a_level_and_a_date() {
    let lab = lab(1);
    for (n, program) in both().iter().enumerate() {
        let run = |name: &str, args: &[&str]| {
            let dst = format!("@{n}{name}");
            lab.run(program, &[&["copy", "@src", &dst][..], args].concat()).ok().err
        };
        let err = run("a", &["--stats=1m", "--stats-log-level=NOTICE", "--stats-one-line-date"]);
        let line = shape(err.lines().last().unwrap_or_default());
        assert!(line.starts_with("9999/99/99 99:99:99 NOTICE: 9999/99/99 99:99:99 - "), "{err}");
        let err = run("b", &["--stats=1m", "--stats-log-level=ERROR", "--stats-one-line-date-format=2006 Jan <"]);
        let line = err.lines().last().unwrap_or_default();
        assert!(line.contains(" ERROR : 2") && line.contains(" <"), "{err}");
        let err = run("c", &["--stats=1m", "--stats-log-level=INFO"]);
        assert!(!err.contains("Transferred:"), "{err}");
    }
}
