//! haul at both ends: the real binary as near and far end, on a pair of pipes.

use haul_testkit::{
    attributes::{self, ctimes},
    folder::{self, noise, write},
    lab::{Lab, until},
    peers, ports,
    relay::Road,
    sshd::{Setup, Sshd},
};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    process::{Command, Stdio},
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
fn many_small_files_cost_one_request() {
    let lab = lab("exec HAUL far");
    for n in 0..500u64 {
        write(&lab.path(&format!("src/{n}")), &noise(n, 100), TIME);
    }
    // Its attributes go along with it; those of what comes from there were listed.
    let there = far(&lab, "there");
    for (flags, from, to, what) in [
        (&["-v"][..], "@src", &there[..], "PUT "),
        (&["-v", "-aX"], "@src", &far(&lab, "kept"), "PUT "),
        (&["-v", "-a"], &there, "@back", "READ "),
    ] {
        let ran = lab.haul(&[&["copy", from, to], flags].concat()).ok();
        let number_after = |question: &str| {
            ran.err.split(question).nth(1).map_or(0, |rest| {
                rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
            })
        };
        // Those that are decided when a place is free go together: few at first.
        assert!((2..=250).contains(&number_after(what)), "{}", ran.err);
        for question in ["STAT ", "WRITE ", "PART ", "ATTRIBUTES ", "CARRY "] {
            assert!(number_after(question) <= 4, "{question}{}: {}", number_after(question), ran.err);
        }
    }
    for name in ["there", "kept", "back"] {
        folder::assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path(name)), name);
    }
}

/// Written in place, a file is kept before its first byte goes, and what is another file there too isn't written through it.
#[test]
fn what_is_written_in_place_there_costs_nothing_that_is_kept() {
    let lab = lab("exec HAUL far");
    let there = far(&lab, "there");
    let (old, new) = (noise(1, 2 << 20), noise(2, (2 << 20) + 5));
    for run in [&["copy", "--inplace", "--suffix=~"][..], &["rsync", "-rt", "--inplace", "--backup"]] {
        write(&lab.path("src/large"), &new, TIME);
        write(&lab.path("there/large"), &old, TIME - 1_000_000_000);
        lab.haul(&[run, &["@src/", &format!("{there}/")]].concat()).ok();
        assert!(fs::read(lab.path("there/large~")).expect("kept") == old, "{run:?}");
        assert!(fs::read(lab.path("there/large")).expect("there") == new, "{run:?}");
    }
    for run in [&["move", "--inplace"][..], &["rsync", "-a", "--inplace", "--remove-source-files"]] {
        write(&lab.path("two/x"), b"11", TIME);
        write(&lab.path("two/y"), b"222", TIME);
        let _ = fs::remove_dir_all(lab.path("one"));
        write(&lab.path("one/x"), b"1", TIME);
        fs::hard_link(lab.path("one/x"), lab.path("one/y")).expect("linked");
        lab.haul(&[run, &["@two/", &format!("{}/", far(&lab, "one"))]].concat()).ok();
        let arrived = ["one/x", "one/y"].map(|name| fs::read(lab.path(name)).expect("there"));
        assert_eq!(arrived, [b"11".to_vec(), b"222".to_vec()], "{run:?}");
    }
}

/// An error of one file among many is reported for that file and affects no other.
#[test]
fn one_failing_small_file_fails_alone() {
    let lab = lab("exec HAUL far");
    for n in 0..60u64 {
        write(&lab.path(&format!("src/{n:02}")), &noise(n, 1000), TIME);
    }
    // A directory is where one of them is to be, with something in it.
    write(&lab.path("there/30/mine"), b"mine", TIME);
    let ran = lab.haul(&["copy", "@src", &far(&lab, "there")]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    let reported: Vec<_> = ran.err.lines().filter(|line| line.contains("30")).collect();
    assert!(!reported.is_empty(), "{}", ran.err);
    for n in (0..60).filter(|n| *n != 30) {
        assert_eq!(std::fs::read(lab.path(&format!("there/{n:02}"))).unwrap(), noise(n, 1000), "{n}");
    }
    assert_eq!(std::fs::read(lab.path("there/30/mine")).unwrap(), b"mine");
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
    // More than may be on its way at once.
    for n in 0..400u64 {
        write(&lab.path(&format!("there/{n}")), &noise(n, 100_000), TIME);
    }
    let copy = lab.start(&["copy", &far(&lab, "there"), "@back", "--bwlimit", "8M"]);
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
fn a_large_file_goes_on_where_it_was_however_often_the_far_end_breaks() {
    // Killed when so much of it is there: soon, and again and again. (One that is killed before it has said that the file is begun leaves it.)
    for breaks in [&[1][..], &[10, 15, 20, 25, 30]] {
        let lab = lab("");
        let pids = lab.path("pids");
        let config = format!("[far]\ntype = far\ncommand = echo $$ >> {}; exec {HAUL} far\n", pids.display());
        fs::write(lab.config(), config).expect("config");
        let content = noise(3, 48 * MIB);
        write(&lab.path("src/large"), &content, TIME);
        let there = far(&lab, "there");
        let copy = lab.start(&["copy", "@src", &there, "--bwlimit=8M", "--multi-thread-chunk-size=1M", "-v"]);
        let hidden = || {
            let listed = fs::read_dir(lab.path("there")).into_iter().flatten().flatten();
            listed.map(|entry| entry.metadata().map_or(0, |facts| facts.blocks() * 512)).max()
        };
        let started = || fs::read_to_string(&pids).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
        let mut before = None;
        for (number, mib) in breaks.iter().enumerate() {
            // More than the one before had: it has gone on by then, however late this is seen.
            let more = || hidden().filter(|bytes| *bytes >= mib * MIB as u64) > before;
            assert!(until(|| started().len() > number && more()), "{mib} MiB arrive");
            let last = started().pop().expect("started");
            assert!(Command::new("kill").args(["-9", &last]).status().expect("kill").success());
            let is_gone = || fs::read(format!("/proc/{last}/cmdline")).map_or(true, |line| line.is_empty());
            assert!(until(is_gone), "it is killed");
            before = hidden();
        }
        let ran = lab.end(copy).ok();
        assert_eq!(started().len(), breaks.len() + 1);
        assert!(!ran.err.contains("partly sent"), "{}", ran.err);
        assert!(fs::read(lab.path("there/large")).expect("there") == content);
        assert_eq!(fs::read_dir(lab.path("there")).expect("there").count(), 1, "nothing hidden is left");
        assert!(lab.haul(&["jobs"]).ok().out.is_empty());
        if breaks.len() > 1 {
            let message = format!("RESUME {}", breaks.len());
            assert!(ran.err.contains(&message), "{message}: {}", ran.err);
        }
    }
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
    assert!(ran.err.contains("PUT ") && server.logins() == 1, "{} {}", ran.err, server.log());
    // A command that is none is told in the shell's words.
    fs::write(lab.config(), section("no-such-haul")).expect("config");
    let ran = lab.haul(&["lsf", &there]);
    assert!(
        ran.code != 0 && ran.err.contains("no haul answered there") && ran.err.contains("not found"),
        "{}",
        ran.err
    );
}

/// A server, and a lab with a remote on it of this type and these further options; haul there is this one.
fn host(setup: &Setup, options: &str) -> Option<(Sshd, Lab)> {
    let server = Sshd::start(setup)?;
    let lab = Lab::new(HAUL);
    let section = format!("[far]\nssh = {}\nhaul_path = {HAUL}\n{options}\n", server.command());
    fs::write(lab.config(), section).expect("config");
    Some((server, lab))
}

#[test]
fn everything_is_kept_over_the_wire_as_between_disks() {
    let Some((server, lab)) = host(&Setup::default(), "type = far") else { return };
    let (src, data) = (lab.path("src"), server.data());
    attributes::fill(&src);
    let far = |name: &str| format!("far:{}", data.join(name).display());
    let all = ["-aHAX", "--sparse", "-v"];
    let haul = |verb: &str, from: &str, to: &str| lab.haul(&[&[verb], &all[..], &[from, to]].concat()).ok();
    haul("copy", "@src", &far("there"));
    attributes::assert_same(&src, &data.join("there"));
    let blocks = |path: &std::path::Path| {
        std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path.join("sparse")).expect("there"))
    };
    assert!(blocks(&data.join("there")) <= blocks(&src) + 64, "holes are kept");
    // A second run changes nothing.
    let before = ctimes(&data.join("there"));
    let again = haul("sync", "@src", &far("there"));
    assert_eq!(ctimes(&data.join("there")), before, "{}", again.err);
    assert!(!again.err.contains("not kept") && !again.err.contains("Attributes:"), "{}", again.err);
    // Attributes that were changed at the destination are restored, and nothing else.
    fs::set_permissions(data.join("there/plain"), fs::Permissions::from_mode(0o600)).expect("set");
    attributes::set_xattr(&data.join("there/acl/plain"), "user.more", b"more");
    let again = haul("sync", "@src", &far("there"));
    attributes::assert_same(&src, &data.join("there"));
    assert!(!again.err.contains("Copied"), "{}", again.err);
    // And back, and inside, where no bytes pass here.
    haul("copy", &far("there"), "@back");
    attributes::assert_same(&src, &lab.path("back"));
    let inside = haul("copy", &far("there"), &far("beside"));
    attributes::assert_same(&src, &data.join("beside"));
    assert!(inside.err.contains("COPY") && !inside.err.contains("READ"), "{}", inside.err);
    // rsync sees the same tree, both by what it makes and by what it would change.
    let ssh = format!("ssh -F {}", server.config().display());
    let rsync = |args: &[&str]| {
        let output = Command::new("rsync").args(["-aHAXS", "--numeric-ids", "-e", &ssh]).args(args).output().ok()?;
        Some((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let (from, place) = (format!("{}/", src.display()), |name: &str| format!("far:{}/", data.join(name).display()));
    let Some((done, _)) = rsync(&[&from, &place("by-rsync")]) else { return };
    assert!(done);
    attributes::assert_same(&data.join("by-rsync"), &data.join("there"));
    assert_eq!(rsync(&["-n", "-i", &from, &place("there")]), Some((true, String::new())));
}

#[test]
fn content_is_compared_where_it_lies() {
    let Some(relay) = peers::own("haul-relay") else { return };
    // A road that is cut after a mebibyte, which removes the file that says so.
    let here = tempfile::tempdir().expect("a folder");
    let cut = here.path().join("cut");
    fs::write(&cut, "").expect("written");
    let road = Road { cut: Some((1 << 20, cut.clone())), ..Road::default() };
    let through = [relay.display().to_string()].into_iter().chain(road.words()).collect::<Vec<_>>().join(" ");
    let setup = Setup { through: Some(through), ..Setup::default() };
    let Some((server, lab)) = host(&setup, "type = far") else { return };
    let there = server.data().join("there");
    for n in 0..20u64 {
        for folder in [&lab.path("src"), &there] {
            write(&folder.join(format!("{n}")), &noise(n, 1 + n as usize * MIB), TIME);
        }
    }
    let place = format!("far:{}", there.display());
    lab.haul(&["check", "@src", &place]).ok();
    let sums = |place: &str| lab.haul(&["md5sum", place]).ok().out;
    assert_eq!(sums(&place), sums("@src"));
    // Of the same size and time.
    write(&there.join("7"), &noise(99, 1 + 7 * MIB), TIME);
    let ran = lab.haul(&["check", "@src", &place]);
    assert!(ran.code == 1 && ran.err.contains("1 differences found"), "{}", ran.err);
    assert!(cut.exists(), "bytes came over the wire");
}

#[test]
fn a_host_is_reached_by_haul_where_it_answers_and_else_by_sftp() {
    let Some((server, lab)) = host(&Setup::default(), "type = sftp") else { return };
    for n in 0..30u64 {
        write(&lab.path(&format!("src/{n}")), &noise(n, 100), 1_600_000_000_000_000_000);
    }
    let same = |name: &str| {
        folder::assert_same(&folder::read(&lab.path("src")), &folder::read(&server.data().join(name)), name);
    };
    let place = |name: &str| format!("far:{}/{name}", server.data().display());
    let ran = lab.haul(&["copy", "-v", "@src", &place("a")]).ok();
    assert!(ran.err.contains("haul answers there") && ran.err.contains("PUT "), "{}", ran.err);
    same("a");
    assert_eq!(server.logins(), 1, "{}", server.log());
    // Links are what they lead to, as by SFTP.
    symlink("0", lab.path("src/link")).expect("made");
    symlink("0", server.data().join("a/link")).expect("made");
    assert_eq!(lab.haul(&["lsf", "--include", "link", &place("a")]).ok().out, "link\n");
    fs::remove_file(lab.path("src/link")).expect("removed");
    // Each way may be asked for.
    let ran = lab.haul(&["copy", "-v", "--sftp-protocol", "sftp", "@src", &place("b")]).ok();
    assert!(!ran.err.contains("haul answers") && !ran.err.contains("going by SFTP"), "{}", ran.err);
    same("b");
    let none = "no-such-haul";
    let ran = lab.haul(&["lsf", "--sftp-protocol", "far", "--sftp-haul-path", none, &place("a")]);
    assert!(ran.code != 0 && ran.err.contains("no haul answered there"), "{}", ran.err);
    // Without haul there it is SFTP, in the same login, and one line says why.
    let logins = server.logins();
    let ran = lab.haul(&["copy", "--sftp-haul-path", none, "@src", &place("c")]).ok();
    same("c");
    assert_eq!(server.logins(), logins + 1, "{}", server.log());
    let reported: Vec<&str> = ran.err.lines().filter(|line| line.contains("going by SFTP, which is slower")).collect();
    assert!(reported.len() == 1 && reported[0].contains("not found"), "{}", ran.err);
    let ran = lab.haul(&["lsf", "--sftp-protocol", "scp", &place("a")]);
    assert!(ran.err.contains("protocol can be auto, far or sftp, not \"scp\""), "{}", ran.err);
}

#[test]
fn a_server_that_has_sftp_alone_or_one_session_is_no_worse_off() {
    for line in ["ForceCommand internal-sftp", "MaxSessions 1"] {
        let setup = Setup { lines: vec![line.into()], ..Setup::default() };
        let Some((server, lab)) = host(&setup, "type = sftp") else { return };
        write(&lab.path("src/f"), b"bytes", 1_600_000_000_000_000_000);
        let ran = lab.haul(&["copy", "@src", &format!("far:{}/a", server.data().display())]).ok();
        assert!(ran.err.contains("going by SFTP"), "{line}: {}", ran.err);
        assert_eq!(fs::read(server.data().join("a/f")).expect("there"), b"bytes");
        assert_eq!(server.logins(), 1, "{line}: {}", server.log());
    }
}

/// What stands in a user's `authorized_keys`, or in the server's own configuration, confines whoever logs in with that key.
#[test]
fn a_key_for_one_folder_gives_no_more() {
    let Some((server, lab)) = host(&Setup::default(), "type = sftp") else { return };
    write(&server.data().join("d/a"), b"inside", TIME);
    let forced = format!("{HAUL} far --read-only --root {}", server.data().display());
    let keys = server.key().with_extension("pub");
    let key = fs::read_to_string(&keys).expect("a key");
    fs::write(&keys, format!("command=\"{forced}\",restrict {key}")).expect("written");
    let confined = || {
        assert_eq!(lab.haul(&["cat", "far:d/a"]).ok().out, "inside");
        for outside in ["far:/etc/passwd", "far:../id"] {
            let ran = lab.haul(&["cat", outside]);
            assert!(ran.code != 0 && ran.err.contains("is outside of"), "{}", ran.err);
        }
        let ran = lab.haul(&["touch", "far:d/b"]);
        assert!(ran.code != 0 && ran.err.contains("haul there was started with --read-only"), "{}", ran.err);
        // Whatever command is asked for.
        let ran = lab.haul(&["lsf", "--sftp-haul-path", "touch made;", "far:"]).ok();
        assert_eq!(ran.out, "d/\n");
    };
    confined();
    let forced = Setup { lines: vec![format!("ForceCommand {forced}")], ..Setup::default() };
    let Some(other) = Sshd::start(&forced) else { return };
    let section = format!("[far]\ntype = far\nssh = {}\n", other.command());
    fs::write(lab.config(), section).expect("config");
    assert_eq!(lab.haul(&["cat", "far:d/a"]).ok().out, "inside");
    assert_eq!(other.logins(), 1);
}

#[test]
fn haul_is_installed_there_once_and_only_when_asked() {
    let Some((server, lab)) =
        host(&Setup { lines: vec!["AcceptEnv XDG_CACHE_HOME".into()], ..Setup::default() }, "type = sftp")
    else {
        return;
    };
    // The host's home is ours, so its cache is set apart.
    let cache = lab.path("there");
    let set = format!(
        "[far]\ntype = sftp\nssh = ssh -o SetEnv=XDG_CACHE_HOME={} -F {} far\n",
        cache.display(),
        server.config().display()
    );
    fs::write(lab.config(), &set).expect("config");
    write(&lab.path("src/f"), b"bytes", TIME);
    let place = format!("far:{}/top", server.data().display());
    let installed =
        || fs::read_dir(cache.join("haul/far")).into_iter().flatten().flatten().map(|f| f.path()).collect::<Vec<_>>();
    lab.haul(&["lsf", &format!("far:{}", server.data().display())]).ok();
    assert_eq!(installed(), Vec::<std::path::PathBuf>::new());
    let ran = lab.haul(&["copy", "-v", "--sftp-install-far-end", "@src", &place]).ok();
    assert!(ran.err.contains("haul answers there") && ran.err.contains("PUT 1"), "{}", ran.err);
    let one = installed();
    assert!(one.len() == 1 && fs::read(&one[0]).expect("read") == fs::read(HAUL).expect("read"), "{one:?}");
    let facts = |path: &std::path::Path| {
        use std::os::unix::fs::MetadataExt as _;
        let facts = fs::metadata(path).expect("there");
        (facts.ino(), facts.mode() & 0o777)
    };
    let (ino, mode) = facts(&one[0]);
    assert_eq!(mode, 0o700);
    // It is found from now on, with the option and without it.
    for option in ["--sftp-install-far-end", "-v"] {
        assert_eq!(lab.haul(&["cat", option, &format!("{place}/f")]).ok().out, "bytes");
    }
    let ran = lab.haul(&["copy", "-v", &place, "@back"]).ok();
    assert!(ran.err.contains("haul answers there"), "{}", ran.err);
    assert_eq!((installed(), facts(&one[0]).0), (one.clone(), ino));
    assert_eq!(server.logins(), 5, "{}", server.log());
}

/// haul at a terminal of its own, which `script` makes. Once it asks, `keys` are typed. How it ended, and what it showed.
fn at_a_terminal(lab: &Lab, script: &std::path::Path, args: &[&str], keys: Option<&str>) -> (Option<i32>, String) {
    let screen = lab.path("screen");
    fs::remove_file(&screen).ok();
    let words: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let mut command = lab.command(script);
    command.args(["-qfec", &format!("{HAUL} {}", words.join(" "))]).arg(&screen).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("script starts");
    let shown = || String::from_utf8_lossy(&fs::read(&screen).unwrap_or_default()).into_owned();
    let mut ended = None;
    let prompted = until(|| {
        ended = child.try_wait().expect("it can be waited for");
        ended.is_some() || keys.is_some() && shown().contains("[y/N]")
    });
    assert!(prompted, "{}", shown());
    if let (None, Some(keys)) = (ended, keys) {
        child.stdin.as_mut().expect("piped").write_all(keys.as_bytes()).expect("typed");
        assert!(until(|| child.try_wait().expect("it can be waited for").is_some()), "{}", shown());
    }
    (child.wait().expect("ended").code(), shown())
}

/// The host's user has a home of its own, without haul.
#[test]
fn a_person_is_asked_before_haul_is_put_there() {
    let Some(script) = peers::need("script") else { return };
    let lab = Lab::new(HAUL);
    let home = lab.path("home-there");
    fs::create_dir_all(&home).expect("made");
    let lines = vec![format!("SetEnv HOME={} PATH=/usr/bin:/bin", home.display())];
    let Some(server) = Sshd::start(&Setup { lines, ..Setup::default() }) else { return };
    fs::write(lab.config(), format!("[site]\ntype = sftp\nssh = {}\n", server.command())).expect("config");
    write(&lab.path("src/f"), b"bytes", TIME);
    let (src, data) = (lab.path("src").display().to_string(), server.data());
    let place = |name: &str| format!("site:{}", data.join(name).display());
    // To rsync, what is no remote is a host.
    let host = |name: &str| format!("far:{}", data.join(name).display());
    let installed = || fs::read_dir(home.join(".cache/haul/far")).into_iter().flatten().flatten().count();
    let came = |name: &str| fs::read(data.join(name).join("f")).is_ok_and(|content| content == b"bytes");
    // Nobody is there, or wants to be asked.
    let ran = lab.haul(&["copy", "@src", &place("unasked")]).ok();
    assert!(ran.err.contains("going by SFTP") && !ran.err.contains("[y/N]"), "{}", ran.err);
    let shell = format!("ssh -F {}", server.config().display());
    for (number, line) in [
        &["copy", "-q"][..],
        &["copy", "--dry-run"],
        &["copy", "--sftp-install-far-end=false"],
        &["copy", "--sftp-protocol=sftp"],
        &["copy", "--sftp-haul-path=no-such-haul"],
        &["rsync", "-rq", "-e", &shell],
        &["--far-install-far-end=false", "rsync", "-r", "-e", &shell],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("unasked-{number}");
        let to = if line.contains(&"copy") { place(&name) } else { host(&name) };
        let (code, shown) = at_a_terminal(&lab, &script, &[line, &[&format!("{src}/"), &to]].concat(), None);
        assert!(code == Some(0) && !shown.contains("[y/N]"), "{line:?}: {shown}");
        assert!(came(&name) || line.contains(&"--dry-run"), "{line:?}: {shown}");
    }
    // Stopped, no, and what is no yes.
    let (code, shown) = at_a_terminal(&lab, &script, &["copy", &src, &place("stopped")], Some("\x03"));
    assert!(code == Some(130) && !data.join("stopped").exists(), "{code:?}: {shown}");
    for (name, keys) in [("no", "n\n"), ("empty", "\n")] {
        let (code, shown) = at_a_terminal(&lab, &script, &["copy", "-v", &src, &place(name)], Some(keys));
        let prompts = shown.matches("haul isn't at ").count();
        assert!(code == Some(0) && prompts == 1 && shown.contains("going by SFTP"), "{code:?}: {shown}");
        assert!(came(name) && shown.contains("into ~/.cache/haul/far there"), "{shown}");
    }
    assert_eq!(installed(), 0);
    let (code, shown) = at_a_terminal(&lab, &script, &["copy", "-v", &src, &place("yes")], Some("y\n"));
    assert!(code == Some(0) && came("yes"), "{code:?}: {shown}");
    assert!(shown.contains("haul answers there") && !shown.contains("going by SFTP"), "{shown}");
    assert_eq!((installed(), shown.matches("[y/N]").count()), (1, 1), "{shown}");
    // It is found from now on.
    let (code, shown) = at_a_terminal(&lab, &script, &["copy", "-v", &src, &place("again")], None);
    assert!(code == Some(0) && shown.contains("haul answers there") && !shown.contains("[y/N]"), "{shown}");
    // Hosts of rsync are asked about likewise.
    fs::remove_dir_all(home.join(".cache")).expect("removed");
    let line = ["rsync", "-r", "-e", &shell, &format!("{src}/"), &host("rsync")];
    let (code, shown) = at_a_terminal(&lab, &script, &line, Some("y\n"));
    assert!(code == Some(0) && came("rsync") && !shown.contains("SFTP"), "{code:?}: {shown}");
    assert_eq!((installed(), shown.matches("[y/N]").count()), (1, 1), "{shown}");
}

/// A long line carries more in several sessions of one login, as far as the server takes them. How many a short line has depends on how
/// busy this machine is.
#[test]
fn a_long_line_has_several_sessions_as_far_as_the_server_takes_them() {
    let Some(relay) = peers::own("haul-relay") else { return };
    let content = noise(1, 40 * MIB);
    for (delay, most, sessions) in [(25, 10, 3..=8), (25, 2, 2..=2)] {
        let road = Road { delay: std::time::Duration::from_millis(delay), ..Road::default() };
        let through = [relay.display().to_string()].into_iter().chain(road.words()).collect::<Vec<_>>().join(" ");
        let lines = vec![format!("MaxSessions {most}"), "LogLevel VERBOSE".to_owned()];
        let setup = Setup { through: Some(through), lines, ..Setup::default() };
        let Some((server, lab)) = host(&setup, "type = far") else { return };
        let begun = || server.log().lines().filter(|line| line.contains("Starting session: command")).count();
        write(&lab.path("src/large"), &content, TIME);
        let place = format!("far:{}/top", server.data().display());
        lab.haul(&["copy", "@src", &place]).ok();
        assert!(fs::read(server.data().join("top/large")).expect("there") == content);
        let up = begun();
        assert!(sessions.contains(&up), "{delay} ms, {most}: {up} up: {}", server.log());
        lab.haul(&["copy", &place, "@back"]).ok();
        assert!(fs::read(lab.path("back/large")).expect("back") == content);
        let down = begun() - up;
        assert!(sessions.contains(&down), "{delay} ms, {most}: {down} down: {}", server.log());
        let logins = server.log().lines().filter(|line| line.contains("Accepted publickey")).count();
        assert_eq!(logins, 2, "{}", server.log());
    }
}

/// A server that counts what goes by ssh, and a lab with a remote on it, whose host is reached at `host` beside ssh. Its haul believes
/// that it was reached at 127.0.0.1, as it would be told by a server with a port.
fn host_with_tcp(host: &str, options: &str) -> Option<(Sshd, Lab, std::path::PathBuf)> {
    let relay = peers::own("haul-relay")?;
    let lab = Lab::new(HAUL);
    let count = lab.path("count");
    let road = Road { count: Some(count.clone()), ..Road::default() };
    let through = [relay.display().to_string()].into_iter().chain(road.words()).collect::<Vec<_>>().join(" ");
    let server = Sshd::start(&Setup { through: Some(through), ..Setup::default() })?;
    let ssh = server.command().replace("ssh ", &format!("ssh -o HostName={host} -o HostKeyAlias=far "));
    let haul = format!("SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' {HAUL}");
    fs::write(lab.config(), format!("[far]\nssh = {ssh}\nhaul_path = {haul}\n{options}\n")).expect("config");
    Some((server, lab, count))
}

fn by_ssh(count: &std::path::Path) -> usize {
    fs::read_to_string(count).expect("counted").parse().expect("a number")
}

#[test]
fn content_goes_by_tcp_where_the_user_wants_it() {
    let content = noise(1, 64 * MIB);
    for kind in ["sftp", "far"] {
        let Some((server, lab, count)) = host_with_tcp("127.0.0.1", &format!("type = {kind}")) else { return };
        write(&lab.path("src/large"), &content, TIME);
        let place = format!("far:{}/top", server.data().display());
        let flag = format!("--{kind}-tcp");
        for (from, to) in [("@src", &place[..]), (&place, "@back")] {
            let ran = lab.haul(&["copy", "-v", &flag, "auto", from, to]).ok();
            let reported = ran.err.lines().filter(|line| line.contains("content goes by TCP, to port ")).count();
            assert!(reported == 1 && ran.err.contains("of 127.0.0.1"), "{}", ran.err);
            // Only transfers that begin before the port is reached go by ssh.
            assert!(by_ssh(&count) < content.len() / 2, "{from}: {} bytes went by ssh", by_ssh(&count));
        }
        assert!(fs::read(server.data().join("top/large")).expect("there") == content);
        assert!(fs::read(lab.path("back/large")).expect("back") == content);
        if kind == "sftp" {
            continue;
        }
        // Nobody is asked for a port without the option.
        fs::remove_dir_all(lab.path("back")).expect("removed");
        let ran = lab.haul(&["copy", "-v", &place, "@back"]).ok();
        assert!(!ran.err.contains("TCP") && by_ssh(&count) > content.len(), "{} {}", by_ssh(&count), ran.err);
    }
}

#[test]
fn where_no_port_is_to_be_had_all_goes_by_ssh_and_one_line_says_so() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let Some((server, lab, count)) = host_with_tcp("127.0.0.1", &format!("type = far\ntcp = {port}")) else { return };
    let content = noise(1, 24 * MIB);
    write(&lab.path("src/large"), &content, TIME);
    let place = format!("far:{}/top", server.data().display());
    let copied = |told: &str| {
        let ran = lab.haul(&["copy", "--ignore-times", "@src", &place]).ok();
        let lines: Vec<&str> =
            ran.err.lines().filter(|line| line.contains("content goes by ssh and not by TCP")).collect();
        assert!(lines.len() == 1 && lines[0].contains(told), "{}", ran.err);
        assert!(fs::read(server.data().join("top/large")).expect("there") == content);
        assert!(by_ssh(&count) > content.len());
    };
    copied(&format!("it can't listen on port {port}: Address already in use"));
    // One that is confined opens none unasked; nor one that doesn't know where to.
    let config = fs::read_to_string(lab.config()).expect("config");
    let confined = format!("/bin/sh -c 'exec {HAUL} far --root {}'", server.data().display());
    let none = "haul there opens no port: ";
    for (haul, told) in [
        (confined.clone(), none),
        (confined.replace("--root", "--listen --root"), "it can't listen on port "),
        (format!("SSH_CONNECTION= {HAUL}"), none),
    ] {
        fs::write(lab.config(), config.replace(HAUL, &haul)).expect("config");
        copied(told);
    }
}

#[test]
fn content_goes_by_ssh_again_when_the_way_over_tcp_breaks() {
    let Some(relay) = peers::own("haul-relay") else { return };
    let port = ports::free().expect("a port").to_string();
    let Some((server, lab, _)) = host_with_tcp("127.0.0.2", &format!("type = far\ntcp = {port}")) else { return };
    let cut = lab.path("cut");
    fs::write(&cut, "").expect("written");
    let between = Some(([127, 0, 0, 2].into(), [127, 0, 0, 1].into()));
    let road = Road { cut: Some((16 << 20, cut.clone())), between, ..Road::default() };
    let mut started = Command::new(relay);
    let mut relay =
        started.args(road.words()).arg(&port).stdout(std::process::Stdio::piped()).spawn().expect("started");
    let mut greeting = [0; 10];
    std::io::Read::read_exact(relay.stdout.as_mut().expect("a pipe"), &mut greeting).expect("it listens");
    let content = noise(1, 96 * MIB);
    write(&lab.path("src/large"), &content, TIME);
    let ran = lab.haul(&["copy", "-v", "@src", &format!("far:{}/top", server.data().display())]).ok();
    // It ends by itself.
    assert!(relay.wait().expect("ended").code() == Some(1) && !cut.exists());
    assert!(fs::read(server.data().join("top/large")).expect("there") == content);
    let lines = |what: &str| ran.err.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        (lines("content goes by TCP, to port"), lines("content goes by ssh and not by TCP")),
        (1, 1),
        "{}",
        ran.err
    );
}

#[test]
fn a_far_end_that_says_what_comes_into_its_mind_writes_nothing_outside() {
    let Some(hostile) = peers::own("haul-hostile-far") else { return };
    crate::sftp::anything(|seed| format!("[far]\ntype = far\ncommand = {} {seed}\n", hostile.display()));
}

/// A list of its chunks would take all memory there is. Some file systems have no room for so large a file, and say so first.
#[test]
fn a_file_that_is_said_to_be_larger_than_any_is_refused() {
    let Some(hostile) = peers::own("haul-hostile-far") else { return };
    let lab = Lab::new(HAUL);
    // What this one says of a file is its size: 2^63 bytes.
    fs::write(lab.config(), format!("[far]\ntype = far\ncommand = {} 21\n", hostile.display())).expect("config");
    let here = tempfile::tempdir().expect("a directory");
    for to in [here.path(), &lab.path("dst")] {
        let to = to.display().to_string();
        let args = ["copy", "far:x", &to, "--low-level-retries=2", "--retries=1", "--timeout=2s"];
        let ran = lab.haul(&args);
        let messages =
            ["it is said to have 9223372036854775808 bytes: for a file as large as that raise", "no space left at "];
        assert!(ran.code != 0 && messages.iter().any(|message| ran.err.contains(message)), "{}", ran.err);
    }
}
