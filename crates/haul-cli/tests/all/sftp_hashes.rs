//! Hashes that a host computes by commands of its own, over SFTP: many files a command, beside rclone's.

use haul_testkit::{
    folder::{self, files, noise, write},
    lab::Lab,
    sshd::{Setup, Sshd},
};
use std::{fs, os::unix::fs::PermissionsExt as _};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const SECOND: u64 = 1_000_000_000;
const TIME: u64 = 1_600_000_000 * SECOND;

/// Names that a shell, a command or a line might take for something else.
const ODD: [&str; 8] = ["-n", "--help", "a  b ", "'q\"$HOME`id`", "back\\slash", "new\nline", "re\rturn", "*"];

/// A server that writes down its sessions, and a lab with the remote `far` on it, which has these options too.
fn start(lines: &[&str], options: &str) -> Option<(Sshd, Lab)> {
    let lines = ["LogLevel VERBOSE"].iter().chain(lines).map(|line| (*line).to_owned()).collect();
    let server = Sshd::start(&Setup { lines, ..Setup::default() })?;
    let lab = Lab::new(HAUL);
    fs::write(lab.config(), format!("{}{options}\n", server.section("far"))).expect("config");
    Some((server, lab))
}

fn far(server: &Sshd, path: &str) -> String {
    format!("far:{}", server.data().join(path).display())
}

/// Sessions for commands that a server had.
fn commands(server: &Sshd) -> usize {
    server.log().lines().filter(|line| line.contains("Starting session: command")).count()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn many_files_are_hashed_by_few_commands() {
    const FILES: u64 = 3000;
    // The host's md5sum, which writes down each of its commands.
    let tools = tempfile::tempdir().expect("a folder");
    let (program, log) = (tools.path().join("md5sum"), tools.path().join("log"));
    fs::write(&program, format!("#!/bin/sh\necho >>{}\nexec /usr/bin/md5sum \"$@\"\n", log.display()))
        .expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    let path = format!("SetEnv PATH={}:/usr/bin:/bin", tools.path().display());
    let Some((server, lab)) = start(&[&path], "") else { return };
    let top = server.data().join("top");
    for n in 0..FILES {
        write(&top.join(format!("d{}/{n}", n % 7)), &noise(n, 100 + n as usize % 900), TIME);
    }
    let ran = lab.haul(&["md5sum", &far(&server, "top")]).ok();
    assert_eq!(ran.out.lines().count() as u64, FILES);
    assert_eq!(commands(&server), 1, "one session is enough for what is small");
    let batches = fs::read_to_string(&log).expect("it was asked").lines().count() as u64;
    println!("{batches} commands for {FILES} files");
    assert!(batches < FILES / 10, "{batches} commands for {FILES} files");
    if lab.has_rclone() {
        for kind in ["md5", "sha1"] {
            let own = lab.haul(&["hashsum", kind, &far(&server, "top")]).ok();
            let theirs = lab.rclone(&["hashsum", kind, top.to_str().expect("a path")]).ok();
            assert_eq!(sorted(&own.out), sorted(&theirs.out));
        }
    }
}

#[test]
fn names_of_all_kinds_have_their_own_hashes() {
    let Some((server, lab)) = start(&[], "") else { return };
    let top = server.data().join("top");
    for name in ODD {
        write(&top.join(name), name.as_bytes(), TIME);
    }
    write(&top.join("empty"), b"", TIME);
    let of = |place: &str| lab.haul(&["hashsum", "sha256", place]).ok().out;
    assert_eq!(sorted(&of(&far(&server, "top"))), sorted(&of(top.to_str().expect("a path"))));
    let json = lab.haul(&["lsjson", "--hash", &far(&server, "top")]).ok().out;
    assert!(json.contains("\"md5\":\"d41d8cd98f00b204e9800998ecf8427e\""), "{json}");
}

#[test]
fn what_differs_in_its_bytes_alone_is_found() {
    let Some((server, lab)) = start(&[], "") else { return };
    let top = server.data().join("top");
    for n in 0..50 {
        write(&lab.path(&format!("src/{n}")), &noise(n, 1000), TIME);
        write(&top.join(n.to_string()), &noise(n, 1000), TIME);
    }
    write(&top.join("7"), &noise(8, 1000), TIME);
    let place = far(&server, "top");
    lab.haul(&["sync", "@src", &place]).ok();
    assert!(fs::read(top.join("7")).expect("there") == noise(8, 1000), "size and time are the same");
    let ran = lab.haul(&["check", "@src", &place, "--combined", "-"]).code(1);
    let lines = sorted(&ran.out);
    assert!(lines.contains(&"* 7") && lines.iter().filter(|line| line.starts_with('=')).count() == 49, "{lines:?}");
    let ran = lab.haul(&["sync", "-v", "--checksum", "@src", &place]).ok();
    assert_eq!(ran.err.lines().filter(|line| line.contains("Copied")).count(), 1, "{}", ran.err);
    assert_eq!(files(&folder::read(&lab.path("src"))), files(&folder::read(&top)));
    // Both ends hash.
    lab.haul(&["copy", &place, &far(&server, "other")]).ok();
    let before = commands(&server);
    lab.haul(&["check", &place, &far(&server, "other")]).ok();
    assert!(commands(&server) > before);
}

#[test]
fn a_host_without_a_shell_is_asked_for_no_hashes() {
    let message = "the store keeps no md5 hashes: use --download to read the files";
    for (lines, options) in [
        (&["ForceCommand internal-sftp"][..], ""),
        (&[], "shell_type = none"),
        (&[], "disable_hashcheck = true"),
        (&[], "hashes = sha1"),
        (&[], "md5sum_command = none"),
    ] {
        let Some((server, lab)) = start(lines, options) else { return };
        write(&server.data().join("top/f"), b"content", TIME);
        let ran = lab.haul(&["md5sum", &far(&server, "top")]).code(1);
        assert!(ran.err.contains(message), "{options}: {}", ran.err);
        let read = lab.haul(&["md5sum", "--download", &far(&server, "top")]).ok();
        assert_eq!(read.out, "9a0364b9e99bb480dd25e1f0284c8555  f\n");
        lab.haul(&["check", &far(&server, "top"), server.data().join("top").to_str().expect("a path")]).ok();
    }
}

#[test]
fn the_users_own_commands_and_places_count() {
    let Some((server, lab)) = start(&[], "") else { return };
    write(&server.data().join("top/it's"), b"content", TIME);
    // As rclone has it: the name of one file is the last word, and the hash the first that is printed.
    let own = server.data().join("own");
    fs::write(&own, format!("#!/bin/sh\necho \"$1\" >>{0}\nmd5sum \"$1\"\n", own.with_extension("log").display()))
        .expect("written");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).expect("set");
    let section = server.section("far");
    let with = |options: &str| fs::write(lab.config(), format!("{section}{options}\n")).expect("config");
    let hash = || lab.haul(&["md5sum", &far(&server, "top")]);
    let right = "9a0364b9e99bb480dd25e1f0284c8555  it's\n";
    with(&format!("md5sum_command = {}", own.display()));
    assert_eq!(hash().ok().out, right);
    let commands = fs::read_to_string(own.with_extension("log")).expect("it was asked");
    assert_eq!(commands, format!("{}\n", server.data().join("top/it's").display()));
    // Where SFTP shows other directories than the shell does.
    with("path_override = /no/such/place");
    let ran = hash();
    assert!(ran.code != 0 && ran.err.contains("finds it elsewhere than SFTP does (path_override)"), "{}", ran.err);
    with(&format!("path_override = {}", server.data().join("top").display()));
    assert_eq!(hash().ok().out, right);
    with("path_override = @/proc/self/root");
    assert_eq!(hash().ok().out, right);
}
