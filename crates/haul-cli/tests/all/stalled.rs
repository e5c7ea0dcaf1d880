//! Far ends that take what they are asked and then say nothing, as a process does that is stopped: in the middle of a listing, of a read,
//! of a write, or of its end. The run goes on elsewhere or ends within `--timeout`, and the next one goes on.

use haul_testkit::{
    amount,
    folder::{self, files, noise, write},
    lab::{Lab, ProgramResult, until},
    peers,
    sshd::{Setup, Sshd},
};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_000_000_000;
/// A far end that is silent for this long is given up.
const PATIENCE: &str = "3s";
const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// Some small files and a large one.
fn tree(at: &Path) {
    for n in 0..30 {
        write(&at.join(format!("d/{n}")), &noise(n, 1000 * n as usize), TIME);
    }
    write(&at.join("large"), &noise(99, 24 * MIB), TIME);
}

/// A server that falls silent at what is `what`, as long as the file that comes with it is there; from there it copies if `down`, else to there.
fn over_sftp(what: &str, how: &str, after: usize) -> Option<(Sshd, Lab)> {
    let stall = peers::own("haul-stall")?;
    if !Path::new(SERVER).exists() {
        peers::skip("OpenSSH's sftp-server isn't there");
        return None;
    }
    let lab = Lab::new(HAUL);
    let flag = lab.path("flag");
    fs::write(&flag, "").expect("written");
    let line = format!("Subsystem sftp {} sftp {what} {how} {} {after} {SERVER}", stall.display(), flag.display());
    let server = Sshd::start(&Setup { lines: vec![line], ..Setup::default() })?;
    fs::write(lab.config(), server.section("far")).expect("config");
    Some((server, lab))
}

/// What is in a folder. What a stopped process had begun stays there under a hidden name until `haul cleanup` finds it old enough.
fn kept(at: &Path) -> Vec<String> {
    let all = files(&folder::read(at)).into_iter().map(|(name, facts)| format!("{}: {facts:?}", name.display()));
    all.filter(|line| !line.starts_with(".haul-") && !line.contains("/.haul-")).collect()
}

fn copy(lab: &Lab, from: &str, to: &str, more: &[&str]) -> ProgramResult {
    lab.haul(&[&["copy", "--timeout", PATIENCE, from, to], more].concat())
}

/// Whether an ssh still runs that went there.
fn is_connected(server: &Sshd) -> bool {
    let config = server.config().display().to_string();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut lines = all.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    lines.any(|line| line.starts_with("ssh\0") && line.contains(&config))
}

/// When it falls silent: at a kind of request or a text in it, after this many bytes of the answer; and whether the files come from there.
const SFTP: [(&str, usize, bool); 7] = [
    ("12", 0, true),
    ("12", 500, true),
    ("5", 0, true),
    ("5", 100_000, true),
    ("3", 0, false),
    ("6", 0, false),
    ("posix-rename", 0, false),
];

#[test]
fn a_server_that_falls_silent_is_asked_anew() {
    amount::each(SFTP, |(what, after, down)| {
        let Some((server, lab)) = over_sftp(what, "once", after) else { return };
        let (here, there) = (lab.path("here"), server.data().join("there"));
        let place = format!("far:{}", there.display());
        tree(if down { &there } else { &here });
        let ran = if down { copy(&lab, &place, "@here", &[]) } else { copy(&lab, "@here", &place, &[]) }.ok();
        assert!(!lab.path("flag").exists(), "{what}: it fell silent: {}", ran.err);
        assert_eq!(kept(&here), kept(&there), "{what}");
        assert!(until(|| !is_connected(&server)), "{what}: no connection is left behind");
    });
}

#[test]
fn a_server_that_stays_silent_ends_the_run_and_the_next_goes_on() {
    amount::each(SFTP, |(what, after, down)| {
        let Some((server, lab)) = over_sftp(what, "always", after) else { return };
        let (here, there) = (lab.path("here"), server.data().join("there"));
        let place = format!("far:{}", there.display());
        tree(if down { &there } else { &here });
        let few = ["--low-level-retries=2", "--retries=1"];
        let run =
            |more: &[&str]| if down { copy(&lab, &place, "@here", more) } else { copy(&lab, "@here", &place, more) };
        let ran = run(&few);
        // The first sessions, those that can't be begun any more, and those whose login was ended with a session that was silent.
        let words = ["the server has been silent for 3 seconds", "no answer", "ssh ended with code 255"];
        let explained = words.iter().any(|words| ran.err.contains(words));
        assert!(ran.code != 0 && explained, "{what}: {}", ran.err);
        // Each file that isn't there is told of once.
        let count_lines = |name: &str| ran.err.lines().filter(|line| line.contains(&format!(": {name}: "))).count();
        assert!(
            (0..30).all(|n| count_lines(&format!("d/{n}")) <= 1) && count_lines("large") <= 1,
            "{what}: {}",
            ran.err
        );
        let target = if down { &here } else { &there };
        let shown = fs::metadata(target.join("large"));
        assert!(shown.is_err() || shown.is_ok_and(|facts| facts.len() == 24 * MIB as u64), "{what}: nothing is half");
        fs::remove_file(lab.path("flag")).expect("removed");
        run(&[]).ok();
        assert_eq!(kept(&here), kept(&there), "{what}");
    });
}

/// Requests to haul at the far end.
const FAR: [(&str, usize, bool); 6] = [
    ("List", 0, true),
    ("Read", 0, true),
    ("Read", 100_000, true),
    ("Put", 0, false),
    ("Part", 0, false),
    ("Publish", 0, false),
];

#[test]
fn a_haul_there_that_falls_silent_is_asked_anew() {
    let Some(stall) = peers::own("haul-stall") else { return };
    amount::each(FAR, |(what, after, down)| {
        let lab = Lab::new(HAUL);
        let flag = lab.path("flag");
        fs::write(&flag, "").expect("written");
        let command = format!("exec {} far {what} once {} {after} {HAUL} far", stall.display(), flag.display());
        fs::write(lab.config(), format!("[far]\ntype = far\ncommand = {command}\n")).expect("config");
        let (here, there) = (lab.path("here"), lab.path("there"));
        let place = format!("far:{}", there.display());
        tree(if down { &there } else { &here });
        let ran = if down { copy(&lab, &place, "@here", &[]) } else { copy(&lab, "@here", &place, &[]) }.ok();
        assert!(!flag.exists(), "{what}: it fell silent: {}", ran.err);
        assert_eq!(kept(&here), kept(&there), "{what}");
    });
}

/// Processes that are stopped while content is on its way to them, over ssh and over TCP beside it.
#[test]
fn a_far_end_that_is_stopped_is_given_up_and_another_begun() {
    amount::each(["sftp", "far", "far\ntcp = auto"], |kind| {
        let lab = Lab::new(HAUL);
        let pids = lab.path("pids");
        let begins = |name: &str, command: &str| {
            let text = format!("#!/bin/sh\necho $$ >> {}\nexec {command} \"$@\"\n", pids.display());
            write(&lab.path(name), text.as_bytes(), TIME);
            fs::set_permissions(lab.path(name), fs::Permissions::from_mode(0o755)).expect("set");
            lab.path(name).display().to_string()
        };
        let line = format!("Subsystem sftp {}", begins("sftp.sh", SERVER));
        let Some(server) = Sshd::start(&Setup { lines: vec![line], ..Setup::default() }) else { return };
        let haul = format!("SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' {}", begins("far.sh", HAUL));
        let protocol = if kind == "sftp" { "protocol = sftp" } else { "" };
        let section = format!("[far]\ntype = {kind}\nssh = {}\nhaul_path = {haul}\n{protocol}\n", server.command());
        fs::write(lab.config(), section).expect("config");
        write(&lab.path("here/large"), &noise(7, 96 * MIB), TIME);
        let there = server.data().join("there");
        let place = format!("far:{}", there.display());
        let child = lab.start(&["copy", "--timeout", PATIENCE, "--bwlimit", "24M", "@here", &place]);
        let arrived = || {
            let listed = fs::read_dir(&there).into_iter().flatten().flatten();
            listed.map(|entry| entry.metadata().map_or(0, |facts| facts.len())).sum::<u64>()
        };
        assert!(until(|| arrived() >= 16 * MIB as u64), "{kind}: parts arrive");
        let begun = || fs::read_to_string(&pids).expect("pids").lines().map(str::to_owned).collect::<Vec<_>>();
        let stopped = begun();
        // One that has ended meanwhile is none.
        let kill = |signal: &str| {
            let all = stopped.iter().map(|pid| Command::new("kill").args([signal, pid]).status().expect("kill"));
            all.filter(|status| status.success()).count()
        };
        assert!(kill("-STOP") > 0, "{kind}");
        let ran = lab.end(child);
        let begun = begun();
        let more = begun.len() > stopped.len();
        let states = begun.iter().map(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default());
        let states = states.collect::<String>();
        kill("-KILL");
        assert!(ran.code == 0 && more, "{kind}: {}{states}", ran.err);
        assert!(fs::read(there.join("large")).expect("there") == noise(7, 96 * MIB), "{kind}");
    });
}
