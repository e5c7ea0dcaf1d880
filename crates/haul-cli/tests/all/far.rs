//! haul at both ends: the real binary as near and far end, on a pair of pipes.

use haul_testkit::{
    folder::{self, noise, write},
    lab::{Lab, until},
    sshd::{Setup, Sshd},
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Command,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;

/// A lab with a remote `far:` that is this machine, reached by `command`.
fn lab(command: &str) -> Lab {
    let lab = Lab::new(HAUL);
    let command = command.replace("HAUL", HAUL);
    fs::write(lab.config(), format!("[far]\ntype = far\ncommand = {command}\n")).expect("config");
    lab
}

fn far(lab: &Lab, name: &str) -> String {
    format!("far:{}", lab.path(name).display())
}

#[test]
fn copied_compared_synced_moved_and_deleted() {
    let lab = lab("echo Welcome to node 7; exec HAUL far");
    for n in 0..300u64 {
        let size = if n % 100 == 0 { 9 * MIB + n as usize } else { (n * 37) as usize };
        write(&lab.path(&format!("src/{}/f {n}é", n % 7)), &noise(n, size), TIME + n);
    }
    fs::create_dir_all(lab.path("src/empty")).expect("made");
    symlink("0/f 0é", lab.path("src/link")).expect("made");
    fs::set_permissions(lab.path("src/0/f 7é"), fs::Permissions::from_mode(0o751)).expect("set");
    let there = far(&lab, "there");
    let copy = ["sync", "-l", "-M", "--create-empty-src-dirs", "-v"];
    lab.haul(&[&copy[..], &["@src", &there]].concat()).ok();
    folder::assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("there")), "there");
    let mode = fs::metadata(lab.path("there/0/f 7é")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o751);
    let again = lab.haul(&[&copy[..], &["@src", &there]].concat()).ok();
    assert!(!again.err.contains("Copied"), "nothing moves again: {}", again.err);
    lab.haul(&["check", "-l", "--download", "@src", &there]).ok();

    // And back, with what changed there meanwhile.
    fs::write(lab.path("there/1/f 1é"), "changed there").expect("written");
    fs::remove_dir_all(lab.path("there/2")).expect("removed");
    lab.haul(&[&copy[..], &[&there, "@src"]].concat()).ok();
    folder::assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("there")), "and back");

    // Inside the far end nothing passes through here.
    let inside = lab.haul(&["copy", "-l", &there, &far(&lab, "beside"), "-v"]).ok();
    assert!(inside.err.contains("COPY") && !inside.err.contains("READ"), "{}", inside.err);
    let files = |name: &str| folder::files(&folder::read(&lab.path(name)));
    folder::assert_same(&files("beside"), &files("src"), "beside");
    lab.haul(&["move", "-l", &far(&lab, "beside"), &far(&lab, "moved")]).ok();
    folder::assert_same(&files("moved"), &files("src"), "moved");
    assert_eq!(lab.haul(&["cat", &far(&lab, "moved/1/f 1é")]).ok().out, "changed there");
    lab.haul(&["purge", &far(&lab, "moved")]).ok();
    assert!(!lab.path("moved").exists());
    assert!(lab.haul(&["about", &there]).ok().out.contains("Total:"));
    lab.haul(&["lsf", &far(&lab, "nowhere")]).code(3);
}

#[test]
fn a_small_file_costs_one_request() {
    let lab = lab("exec HAUL far");
    for n in 0..500u64 {
        write(&lab.path(&format!("src/{n}")), &noise(n, 100), TIME);
    }
    let ran = lab.haul(&["copy", "@src", &far(&lab, "there"), "-v"]).ok();
    assert!(ran.err.contains("PUT 500"), "{}", ran.err);
    for question in ["STAT ", "WRITE ", "PART "] {
        let asked = ran.err.split(question).nth(1).map_or(0, |rest| {
            rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
        });
        assert!(asked <= 4, "{question}{asked}: {}", ran.err);
    }
}

#[test]
fn what_leads_to_no_haul_is_told_in_one_line() {
    for (command, told) in [
        ("echo Last login: today; exit 3", "no haul answered there, but: Last login: today"),
        ("exec no-such-haul far", "not found"),
        ("echo sorry >&2; exit 1", "sorry"),
    ] {
        let lab = lab(command);
        fs::create_dir(lab.path("src")).expect("made");
        write(&lab.path("src/a"), b"a", TIME);
        let ran = lab.haul(&["copy", "@src", "far:there"]);
        assert!(ran.err.contains(told), "{command}: {}", ran.err);
        assert_ne!(ran.code, 0, "{command}");
    }
}

#[test]
fn a_far_end_is_confined_to_what_it_was_started_for() {
    let lab = lab("exec HAUL far --root /nowhere-at-all");
    let root = lab.path("allowed");
    fs::create_dir(&root).expect("made");
    let config = format!("[far]\ntype = far\ncommand = exec {HAUL} far --read-only --root {}\n", root.display());
    fs::write(lab.config(), config).expect("config");
    write(&lab.path("allowed/d/a"), b"inside", TIME);
    write(&lab.path("outside"), b"outside", TIME);
    assert_eq!(lab.haul(&["cat", "far:d/a"]).ok().out, "inside");
    let ran = lab.haul(&["cat", &far(&lab, "outside")]);
    assert!(ran.err.contains("is outside of"), "{}", ran.err);
    let ran = lab.haul(&["copyto", "@outside", "far:d/b"]);
    assert!(ran.err.contains("haul there was started with --read-only"), "{}", ran.err);
    assert!(!lab.path("allowed/d/b").exists());
    lab.haul(&["deletefile", "far:d/a"]);
    assert!(lab.path("allowed/d/a").exists());
}

#[test]
fn an_interrupted_upload_resumes_at_the_far_end() {
    let lab = lab("exec HAUL far");
    let content = noise(1, 40 * MIB);
    write(&lab.path("src/large"), &content, TIME);
    let there = far(&lab, "there");
    // Slow enough that it is under way for seconds; it is killed as soon as a part of it is there.
    let mut slow = lab.start(&["copy", "@src", &there, "--bwlimit", "8M"]);
    let hidden = || {
        let listed = fs::read_dir(lab.path("there")).into_iter().flatten().flatten();
        listed.map(|entry| entry.metadata().map_or(0, |facts| facts.len())).sum::<u64>()
    };
    assert!(until(|| hidden() >= 16 * MIB as u64), "parts arrive");
    slow.kill().expect("killed");
    slow.wait().expect("ended");
    let ran = lab.haul(&["copy", "@src", &there, "-v"]).ok();
    assert!(ran.err.contains("RESUME 1"), "{}", ran.err);
    assert!(fs::read(lab.path("there/large")).expect("there") == content);
    assert_eq!(fs::read_dir(lab.path("there")).expect("there").count(), 1, "nothing hidden is left");
}

#[test]
fn a_far_end_that_is_killed_is_reached_again() {
    let lab = lab("");
    let pids = lab.path("pids");
    let config = format!("[far]\ntype = far\ncommand = echo $$ >> {}; exec {HAUL} far\n", pids.display());
    fs::write(lab.config(), config).expect("config");
    for n in 0..60u64 {
        write(&lab.path(&format!("there/{n}")), &noise(n, 50_000), TIME);
    }
    let copy = lab.start(&["copy", &far(&lab, "there"), "@back", "--bwlimit", "1M"]);
    let came = || fs::read_dir(lab.path("back")).map_or(0, Iterator::count);
    assert!(until(|| came() > 10), "files arrive");
    let started = || fs::read_to_string(&pids).expect("pids").lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(started().len(), 1);
    assert!(Command::new("kill").args(["-9", &started()[0]]).status().expect("kill").success());
    lab.end(copy).ok();
    assert_eq!(started().len(), 2);
    let files = |name: &str| folder::files(&folder::read(&lab.path(name)));
    folder::assert_same(&files("back"), &files("there"), "back");
}

#[test]
fn the_far_end_ends_when_its_input_does() {
    let mut far = Command::new(HAUL).arg("far").stdin(std::process::Stdio::null()).spawn().expect("started");
    assert!(!far.wait().expect("ended").success(), "nobody said hello");
}

#[test]
fn at_a_host_of_sshs_all_goes_in_one_login() {
    let Some(server) = Sshd::start(&Setup::default()) else { return };
    let lab = Lab::new(HAUL);
    let section = |path: &str| format!("[far]\ntype = far\nssh = {}\nhaul_path = {path}\n", server.command());
    fs::write(lab.config(), section(HAUL)).expect("config");
    for n in 0..40u64 {
        write(&lab.path(&format!("src/{n}")), &noise(n, 1000 * n as usize), TIME + n);
    }
    let there = format!("far:{}/top", server.data().display());
    let ran = lab.haul(&["copy", "-v", "@src", &there]).ok();
    folder::assert_same(&folder::read(&lab.path("src")), &folder::read(&server.data().join("top")), "there");
    assert!(ran.err.contains("PUT 40") && server.logins() == 1, "{} {}", ran.err, server.log());
    // A command that is none is told in the shell's words.
    fs::write(lab.config(), section("no-such-haul")).expect("config");
    let ran = lab.haul(&["lsf", &there]);
    assert!(
        ran.code != 0 && ran.err.contains("no haul answered there") && ran.err.contains("not found"),
        "{}",
        ran.err
    );
}
