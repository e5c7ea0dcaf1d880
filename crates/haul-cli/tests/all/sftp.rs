//! The real binary and real SSH servers: every verb, beside rclone, by hosts of ssh's config, over a slow road, killed.

use haul_testkit::{
    amount,
    folder::{self, files, noise, write},
    lab::{Lab, ProgramResult, until},
    peers,
    relay::Road,
    sshd::{Setup, Sshd},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const TIME: u64 = 1_600_000_000 * SECOND;

/// A server, and a lab with the remote `far` on it; `far:X` is below the home directory, so paths are whole.
fn start(setup: &Setup) -> Option<(Sshd, Lab)> {
    let server = Sshd::start(setup)?;
    let lab = Lab::new(HAUL);
    fs::write(lab.config(), server.section("far")).expect("config");
    Some((server, lab))
}

fn far(server: &Sshd, path: &str) -> String {
    format!("far:{}", server.data().join(path).display())
}

/// A directory with names of all kinds.
fn tree(at: &Path) {
    for (n, name) in ["a", "d/b c", "d/e/ü", "d/e/'q\"", "d.x/.hidden", "-dash", "new\nline"].into_iter().enumerate() {
        write(&at.join(name), &noise(n as u64, 1000 * n), TIME + n as u64 * SECOND);
    }
    write(&at.join("big"), &noise(9, 20 * MIB + 7), TIME);
}

fn same(here: &Path, there: &Path) {
    assert_eq!(files(&folder::read(here)), files(&folder::read(there)));
}

#[test]
fn every_verb_does_what_it_does_elsewhere() {
    let Some((server, lab)) = start(&Setup::default()) else { return };
    tree(&lab.path("src"));
    let top = far(&server, "top");
    lab.haul(&["copy", "@src", &top]).ok();
    same(&lab.path("src"), &server.data().join("top"));
    let again = lab.haul(&["copy", "-v", "@src", &top]).ok();
    assert!(!again.err.contains("Copied"), "{}", again.err);
    assert_eq!(lab.haul(&["lsf", &format!("{top}/d")]).ok().out, "b c\ne/\n");
    let bytes = lab.haul(&["cat", &format!("{top}/d/b c")]).ok();
    assert_eq!(bytes.out.len(), String::from_utf8_lossy(&noise(1, 1000)).len());
    lab.haul(&["check", "--download", "@src", &top]).ok();
    lab.haul(&["copy", &top, "@back"]).ok();
    same(&lab.path("src"), &lab.path("back"));
    // One changed, one new, one gone.
    write(&lab.path("src/a"), b"changed", TIME + 99 * SECOND);
    fs::remove_file(lab.path("src/d/b c")).expect("removed");
    write(&lab.path("src/d/new"), b"new", TIME);
    lab.haul(&["sync", "@src", &top]).ok();
    same(&lab.path("src"), &server.data().join("top"));
    // Inside the host nothing passes here.
    let moved = lab.haul(&["moveto", "-v", &format!("{top}/big"), &far(&server, "moved/large")]).ok();
    assert!(server.data().join("moved/large").exists() && !server.data().join("top/big").exists(), "{}", moved.err);
    lab.haul(&["copy", &far(&server, "moved"), &far(&server, "copied")]).ok();
    same(&server.data().join("moved"), &server.data().join("copied"));
    lab.haul(&["mkdir", &far(&server, "empty/dir")]).ok();
    lab.haul(&["rmdir", &far(&server, "empty/dir")]).ok();
    assert!(!server.data().join("empty/dir").exists());
    lab.haul(&["delete", &format!("{top}/d")]).ok();
    assert!(server.data().join("top/d/e").is_dir() && files(&folder::read(&server.data().join("top/d"))).is_empty());
    lab.haul(&["purge", &top]).ok();
    assert!(!server.data().join("top").exists());
    let about = lab.haul(&["about", &far(&server, "")]).ok();
    assert!(about.out.contains("Free:"), "{}", about.out);
    let missing = lab.haul(&["lsf", &far(&server, "none")]).code(3);
    assert!(missing.err.contains("no such file or directory"), "{}", missing.err);
    lab.haul_reading(&["rcat", &far(&server, "piped")], b"from a pipe").ok();
    assert_eq!(fs::read(server.data().join("piped")).expect("there"), b"from a pipe");
}

/// The source is in the destination, and its path doesn't say so.
#[test]
fn a_source_in_the_destination_is_not_deleted_whatever_it_is_called() {
    let Some((server, lab)) = start(&Setup::default()) else { return };
    let dir = server.data().join("tree");
    for name in ["sub/d/one", "sub/two", "old/d/one", "top"] {
        write(&dir.join(name), b"content", TIME);
    }
    // Many that have one of its files.
    (0..30).for_each(|n| write(&dir.join(format!("old/{n}/two")), b"content", TIME));
    std::os::unix::fs::symlink(&dir, server.data().join("link")).expect("linked");
    let there = far(&server, "tree");
    let sources = ["link/../tree/sub", "link/sub"].map(|path| far(&server, path));
    for source in sources.iter().chain([&dir.join("sub").display().to_string()]) {
        for more in ["--delete-after", "--delete-during", "--delete-before"] {
            // Again, when nothing is to be copied any more.
            for _ in 0..2 {
                let ran = lab.haul(&["sync", source, &there, more]);
                let message = "sub/ is the source, reached in another way";
                assert!(ran.code != 0 && ran.err.contains(message), "{source} {more}: {}", ran.err);
                let left: Vec<_> = files(&folder::read(&dir)).into_keys().collect();
                let all = ["sub/d/one", "sub/two", "old/d/one", "top"].map(Path::new);
                assert!(all.iter().all(|name| left.iter().any(|path| path == name)), "{source} {more}: {left:?}");
                assert!(left.len() <= 36, "{left:?}");
            }
        }
    }
    // A path that only looks like the source is accepted.
    fs::rename(dir.join("sub"), server.data().join("apart")).expect("renamed");
    lab.haul(&["sync", &far(&server, "apart"), &there]).ok();
    same(&server.data().join("apart"), &dir);
}

#[test]
fn permissions_times_and_links_are_kept_as_asked() {
    let Some((server, lab)) = start(&Setup::default()) else { return };
    write(&lab.path("src/run"), b"x", TIME);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    fs::set_permissions(lab.path("src/run"), fs::Permissions::from_mode(0o750)).expect("set");
    std::os::unix::fs::symlink("run", lab.path("src/link")).expect("linked");
    let top = far(&server, "top");
    lab.haul(&["copy", "-M", "--links", "@src", &top]).ok();
    let there = server.data().join("top");
    assert_eq!(mode(&there.join("run")), 0o750);
    assert_eq!(fs::read_link(there.join("link")).expect("a link"), Path::new("run"));
    // What is replaced gives its permissions on.
    fs::set_permissions(there.join("run"), fs::Permissions::from_mode(0o711)).expect("set");
    write(&lab.path("src/run"), b"other", TIME + SECOND);
    lab.haul(&["copy", "@src", &top]).ok();
    assert_eq!((mode(&there.join("run")), fs::read(there.join("run")).expect("there")), (0o711, b"other".to_vec()));
    lab.haul(&["copy", "-M", "--links", &top, "@back"]).ok();
    assert_eq!(mode(&lab.path("back/run")), 0o711);
    assert_eq!(fs::read_link(lab.path("back/link")).expect("a link"), Path::new("run"));
    // Followed where nothing is said, left out where that is.
    assert_eq!(lab.haul(&["lsf", &top]).ok().out, "link\nrun\n");
    assert_eq!(lab.haul(&["lsf", "--files-only", "--sftp-skip-links", &top]).ok().out, "run\n");
    // Nothing behind a link to a directory is deleted.
    fs::create_dir(server.data().join("apart")).expect("made");
    write(&server.data().join("apart/kept"), b"kept", TIME);
    std::os::unix::fs::symlink("../apart", there.join("dir")).expect("linked");
    let ran = lab.haul(&["sync", "@src", &top]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("Refused to delete what is behind the symbolic link dir"), "{}", ran.err);
    assert!(server.data().join("apart/kept").exists());
}

#[test]
fn rclone_and_haul_see_the_same_tree() {
    let Some((server, lab)) = start(&Setup::default()) else { return };
    if !lab.has_rclone() {
        return;
    }
    tree(&lab.path("src"));
    fs::remove_file(lab.path("src/new\nline")).expect("rclone's external ssh doesn't take it everywhere");
    lab.haul(&["copy", "@src", &far(&server, "by-haul")]).ok();
    lab.rclone(&["check", "--download", "@src", &far(&server, "by-haul")]).ok();
    lab.rclone(&["copy", "@src", &far(&server, "by-rclone")]).ok();
    lab.haul(&["check", "--download", "@src", &far(&server, "by-rclone")]).ok();
    let listed = |ran: ProgramResult| {
        let mut lines: Vec<String> = ran.ok().out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let args = ["lsf", "-R", "--format", "pst"];
    let of = |place: &str| {
        let all = [&args[..], &[place]].concat();
        (listed(lab.haul(&all)), listed(lab.rclone(&all)))
    };
    for place in ["by-haul", "by-rclone"] {
        let (own, theirs) = of(&far(&server, place));
        assert_eq!(
            own.iter().filter(|l| !l.contains("/;")).collect::<Vec<_>>(),
            theirs.iter().filter(|l| !l.contains("/;")).collect::<Vec<_>>()
        );
    }
    // Nothing to do for either on what the other wrote.
    let again = lab.haul(&["sync", "-v", "@src", &far(&server, "by-rclone")]).ok();
    assert!(!again.err.contains("Copied"), "{}", again.err);
    let again = lab.rclone(&["sync", "-v", "@src", &far(&server, "by-haul")]).ok();
    assert!(!again.err.contains("Copied"), "{}", again.err);
}

/// A folder to put before `PATH`, with an `ssh` that has this config as the user's own.
fn path_with_ssh(lab: &Lab, config: &Path) -> String {
    let bin = lab.path("bin");
    fs::create_dir_all(&bin).expect("made");
    fs::write(bin.join("ssh"), format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", config.display()))
        .expect("written");
    fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).expect("set");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn a_host_of_sshs_config_needs_no_remote() {
    let Some(server) = Sshd::start(&Setup::default()) else { return };
    let lab = Lab::new(HAUL);
    let path = path_with_ssh(&lab, &server.config());
    write(&lab.path("a.txt"), b"hello", TIME);
    let haul = |args: &[&str]| {
        let mut command = lab.haul_command(args);
        let output = command.env("PATH", &path).output().expect("runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let data = far(&server, "");
    let (code, _, err) = haul(&["copy", "@a.txt", &data]);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(fs::read(server.data().join("a.txt")).expect("there"), b"hello");
    assert_eq!(haul(&["cat", &far(&server, "a.txt")]).1, "hello");
    let user = String::from_utf8(Command::new("id").arg("-un").output().expect("id").stdout).expect("a name");
    let at = format!("{}@{data}", user.trim());
    // Not through the lab, for which @ means its own folder.
    let ran = lab.command(Path::new(HAUL)).args(["lsf", &at]).env("PATH", &path).output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "a.txt\n", "{}", String::from_utf8_lossy(&ran.stderr));
    // Others are no hosts.
    let (code, _, err) = haul(&["lsf", "fat:x"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("unknown remote \"fat\""), "{err}");
    // A remote of that name comes first.
    fs::write(lab.config(), "[far]\ntype = memory\n").expect("config");
    assert_eq!(haul(&["lsf", "far:"]).1, "");
}

#[test]
fn a_connection_that_the_user_has_open_is_used() {
    let Some(server) = Sshd::start(&Setup::default()) else { return };
    let lab = Lab::new(HAUL);
    let mut config = fs::read_to_string(server.config()).expect("a config");
    config += &format!(" ControlPath {}\n", lab.path("cm").display());
    fs::write(server.config(), config).expect("written");
    fs::write(lab.config(), server.section("far")).expect("config");
    let config = server.config();
    let ssh = |args: &[&str]| {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(&config).args(args).status().expect("ssh").success()
    };
    assert!(ssh(&["-f", "-N", "-M", "far"]));
    tree(&lab.path("src"));
    lab.haul(&["copy", "@src", &far(&server, "top")]).ok();
    same(&lab.path("src"), &server.data().join("top"));
    assert_eq!(server.logins(), 1, "{}", server.log());
    // It is the user's, and stays.
    assert!(ssh(&["-O", "check", "far"]));
    assert!(ssh(&["-O", "exit", "far"]));
    lab.haul(&["lsf", &far(&server, "top")]).ok();
    assert_eq!(server.logins(), 2);
}

#[test]
fn servers_that_allow_little_get_little() {
    let few = Setup { lines: vec!["MaxSessions 2".into()], listens: true, ..Setup::default() };
    let one = Setup { lines: vec!["MaxSessions 1".into()], ..Setup::default() };
    let forced = Setup { lines: vec!["ForceCommand internal-sftp".into(), "PermitTTY no".into()], ..Setup::default() };
    let noisy = "echo Welcome to far; echo; exec /usr/lib/openssh/sftp-server";
    let noisy = Setup { lines: vec![format!("Subsystem sftp /bin/sh -c '{noisy}'")], ..Setup::default() };
    for (number, setup) in [few, one, forced, noisy].iter().enumerate() {
        let Some((server, lab)) = start(setup) else { return };
        tree(&lab.path("src"));
        // Long enough for another session to be asked for and refused.
        write(&lab.path("src/large"), &noise(8, 150 * MIB), TIME);
        let ran = lab.haul(&["copy", "-v", "@src", &far(&server, "top")]).ok();
        same(&lab.path("src"), &server.data().join("top"));
        assert_eq!(server.logins(), 1, "{number}: {}", server.log());
        if number < 2 {
            let message = format!("the server takes {} sessions at once on a connection (MaxSessions", 2 - number);
            assert!(ran.err.contains(&message), "{number}: {}", ran.err);
        }
    }
}

/// A run in which ssh's questions have no answer, not even from the terminal of who runs the tests.
fn asking_nobody(lab: &Lab, place: &str) -> ProgramResult {
    let mut command = lab.haul_command(&["lsf", place]);
    command.env("SSH_ASKPASS", "/bin/false").env("SSH_ASKPASS_REQUIRE", "force");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    lab.end(command.spawn().expect("haul starts"))
}

#[test]
fn what_keeps_ssh_from_logging_in_is_told_in_its_words() {
    let Some((server, lab)) = start(&Setup { passphrase: Some("of this key".into()), ..Setup::default() }) else {
        return;
    };
    let place = far(&server, "");
    let ran = asking_nobody(&lab, &place);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("Permission denied (publickey"), "{}", ran.err);
    // Somebody can: ssh's own helper.
    let helper = lab.path("askpass");
    fs::write(&helper, "#!/bin/sh\necho of this key\n").expect("written");
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).expect("set");
    let mut command = lab.haul_command(&["lsf", &place]);
    let output = command.env("SSH_ASKPASS", &helper).env("SSH_ASKPASS_REQUIRE", "force").output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The remote knows.
    let hidden = lab.haul(&["obscure", "of this key"]).ok().out;
    let config = format!("{}key_file_pass = {hidden}", server.section("far"));
    fs::write(lab.config(), config).expect("config");
    lab.haul(&["lsf", &place]).ok();
    let logins = server.logins();
    let wrong = lab.haul(&["obscure", "another"]).ok().out;
    fs::write(lab.config(), format!("{}key_file_pass = {wrong}", server.section("far"))).expect("config");
    assert_ne!(lab.haul(&["copy", &place, "@x"]).code, 0);
    assert_eq!(server.logins(), logins);
    let tries = server.log().lines().filter(|line| line.contains("Connection closed by authenticating")).count();
    assert!(tries <= 2, "asked once a run: {}", server.log());
}

#[test]
fn a_host_that_nobody_knows_is_refused() {
    let Some((server, lab)) = start(&Setup { stranger: true, ..Setup::default() }) else { return };
    let ran = asking_nobody(&lab, &far(&server, ""));
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("ssh doesn't know its key: type `"), "{}", ran.err);
    assert_eq!(server.logins(), 0);
}

#[test]
fn a_shell_that_does_nothing_is_told_of() {
    let setup = Setup { lines: vec!["ForceCommand echo This account is not available.".into()], ..Setup::default() };
    let Some((server, lab)) = start(&setup) else { return };
    let ran = lab.haul(&["lsf", &far(&server, "")]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("no SFTP there, but: This account is not available."), "{}", ran.err);
}

/// Its processes, by the folder that is in their command lines.
fn processes(server: &Sshd) -> usize {
    let folder = server.config().parent().expect("a folder").display().to_string();
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(&folder)).count()
}

#[test]
fn a_killed_run_leaves_no_connection_and_the_next_goes_on() {
    let Some(relay) = peers::own("haul-relay") else { return };
    let road = Road { rate: Some(20 << 20), ..Road::default() };
    let through = [relay.display().to_string()].into_iter().chain(road.words()).collect::<Vec<_>>().join(" ");
    let setup = Setup { lines: vec!["LogLevel VERBOSE".into()], through: Some(through), ..Setup::default() };
    let Some((server, lab)) = start(&setup) else { return };
    let bytes = noise(3, 200 * MIB);
    write(&lab.path("src/big"), &bytes, TIME);
    let top = far(&server, "top");
    let mut child = lab.start(&["copy", "@src", &top]);
    let hidden = || {
        let names = fs::read_dir(server.data().join("top")).into_iter().flatten().flatten();
        names
            .filter_map(|name| Some((name.file_name().into_string().ok()?, name.metadata().ok()?.len())))
            .collect::<Vec<_>>()
    };
    assert!(until(lab.journal_grows(300)), "no parts were noted");
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(hidden().iter().all(|(name, _)| name.starts_with(".haul-")), "nothing shows: {:?}", hidden());
    assert!(until(|| processes(&server) == 0), "its connection goes on");
    assert_eq!(lab.haul(&["lsf", &top]).ok().out, "");
    let ran = lab.haul(&["copy", "@src", &top, "-v"]).ok();
    assert!(fs::read(server.data().join("top/big")).expect("there") == bytes, "{}", ran.err);
    assert_eq!(hidden().len(), 1, "{:?}", hidden());
    assert!(server.log().contains("Starting session: command"), "what arrived was hashed there: {}", server.log());
    assert!(until(|| processes(&server) == 0));
}

/// A file whose open request is unanswered when the run is stopped may be created all the same.
#[test]
fn a_stopped_run_leaves_no_hidden_files() {
    let Some(relay) = peers::own("haul-relay") else { return };
    let road = Road { delay: Duration::from_millis(150), ..Road::default() };
    let through = [relay.display().to_string()].into_iter().chain(road.words()).collect::<Vec<_>>().join(" ");
    let Some((server, lab)) = start(&Setup { through: Some(through), ..Setup::default() }) else { return };
    (0..300).for_each(|n| write(&lab.path(&format!("src/{n}")), &noise(n, 60_000), TIME));
    let child = lab.start(&["copy", "@src", &far(&server, "top")]);
    let names = || fs::read_dir(server.data().join("top")).into_iter().flatten().flatten().count();
    assert!(until(|| names() > 3), "nothing came");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("stopped");
    let ran = lab.end(child).code(130);
    assert!(until(|| processes(&server) == 0), "its connection goes on");
    let left = fs::read_dir(server.data().join("top")).expect("there").flatten();
    let hidden: Vec<_> = left.map(|name| name.file_name()).filter(|name| name.as_encoded_bytes()[0] == b'.').collect();
    assert!(hidden.is_empty(), "{} of {}: {}", hidden.len(), names(), ran.err);
}

/// A symlink that the server follows is no second file.
#[test]
fn the_only_file_is_no_duplicate_of_a_link_to_it() {
    let Some((server, lab)) = start(&Setup::default()) else { return };
    let data = server.data();
    write(&data.join("dd/zreal"), b"content", TIME);
    write(&data.join("dd/z/real"), b"content of another", TIME);
    std::os::unix::fs::symlink("zreal", data.join("dd/alias")).expect("linked");
    std::os::unix::fs::symlink("z", data.join("dd/a")).expect("linked");
    write(&data.join("dd/zsame"), b"content", TIME);
    lab.haul(&["dedupe", "--by-hash", "first", &far(&server, "dd")]).ok();
    assert_eq!(fs::read(data.join("dd/alias")).expect("there"), b"content");
    assert_eq!(fs::read(data.join("dd/a/real")).expect("there"), b"content of another");
    assert!(!data.join("dd/zsame").exists(), "a duplicate goes");
    let ran = lab.haul(&["dedupe", "--by-hash", "--copy-links", "first", &far(&server, "dd")]).code(2);
    assert!(ran.err.contains("--copy-links: two names of one file"), "{}", ran.err);
}

/// What it led to may be away for a moment, and it is not known what that was.
#[test]
fn a_link_of_the_source_that_leads_nowhere_proves_nothing() {
    let Some((server, lab)) = start(&Setup::default()) else { return };
    let data = server.data();
    write(&data.join("s/f"), b"text", TIME);
    std::os::unix::fs::symlink("/not/mounted", data.join("s/dir")).expect("linked");
    for name in ["d/dir/x", "d/extra"] {
        write(&lab.path(name), b"own", TIME);
    }
    for more in [&["--delete-before"][..], &["--min-size=1B"], &[]] {
        let ran = lab.haul(&[&["sync", "--sftp-protocol=sftp", &far(&server, "s"), "@d"], more].concat());
        assert!(ran.code != 0 && ran.err.contains("the symbolic link points to nothing"), "{}", ran.err);
        assert!(lab.path("d/dir/x").exists() && lab.path("d/extra").exists(), "{more:?}: {}", ran.err);
    }
    assert!(lab.path("d/f").exists());
    for looks in ["lsf", "size"] {
        lab.haul(&[looks, "--sftp-protocol=sftp", &far(&server, "s")]).ok();
    }
    // In a destination it is a name that may go.
    lab.haul(&["sync", "--sftp-protocol=sftp", "@d/dir", &far(&server, "s")]).ok();
    assert!(data.join("s/x").exists() && !data.join("s/f").exists());
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    let Some(relay) = peers::own("haul-relay") else { return };
    let here = tempfile::tempdir().expect("a folder");
    let cut = here.path().join("cut");
    fs::write(&cut, "").expect("written");
    let road = Road { delay: Duration::from_millis(1), cut: Some((30 << 20, cut.clone())), ..Road::default() };
    let through = [relay.display().to_string()].into_iter().chain(road.words()).collect::<Vec<_>>().join(" ");
    let Some((server, lab)) = start(&Setup { through: Some(through), ..Setup::default() }) else { return };
    tree(&lab.path("src"));
    write(&lab.path("src/large"), &noise(4, 80 * MIB), TIME);
    let ran = lab.haul(&["copy", "-v", "@src", &far(&server, "top")]).ok();
    assert!(!cut.exists(), "it was cut");
    same(&lab.path("src"), &server.data().join("top"));
    assert!(server.logins() == 2, "{}", ran.err);
    lab.haul(&["copy", &far(&server, "top"), "@back"]).ok();
    same(&lab.path("src"), &lab.path("back"));
}

/// A server that lies writes nothing outside, and the run ends with one line.
#[test]
fn a_hostile_server_is_told_of_in_one_line() {
    let Some(hostile) = peers::own("haul-hostile-sftp") else { return };
    let lab = Lab::new(HAUL);
    let without_end = "lists this directory without an end";
    for (how, message) in [
        ("name=../escaped", "can't be a name"),
        ("name=a/b", "can't be a name"),
        ("name=..", ""),
        ("size", "ended after 7 of 1000 bytes"),
        ("endless", without_end),
        ("garbage", "can't be read"),
        ("huge", "can't be read"),
        ("strange", "answered another question"),
        ("more", "more bytes than"),
        ("silent", ""),
    ] {
        let config = format!("[far]\ntype = sftp\nssh = {} {how}\n", hostile.display());
        fs::write(lab.config(), config).expect("config");
        let ran = lab.haul(&["copy", "far:x", "@dst/in", "--low-level-retries=1", "--retries=1"]);
        let found: Vec<_> =
            fs::read_dir(lab.path("")).expect("the lab").flatten().map(|entry| entry.file_name()).collect();
        assert!(!lab.path("escaped").exists() && !lab.path("dst/escaped").exists(), "{how}: {found:?}");
        assert!(ran.err.contains(message), "{how}: {}", ran.err);
        let reported: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("haul: ")).collect();
        if how != "name=.." {
            assert!(ran.code != 0 && reported.len() <= 1, "{how}: {}", ran.err);
        }
        if lab.path("dst").exists() {
            let whole = files(&folder::read(&lab.path("dst")));
            assert!(whole.is_empty(), "{how}: {whole:?}");
        }
        let _ = fs::remove_dir_all(lab.path("dst"));
    }
}

/// The server lists `f`, and has also what is called `half`.
#[test]
fn a_named_file_that_a_listing_leaves_out_is_not_missing() {
    let Some(hostile) = peers::own("haul-hostile-sftp") else { return };
    let lab = Lab::new(HAUL);
    fs::write(lab.config(), format!("[far]\ntype = sftp\nssh = {} plain\n", hostile.display())).expect("config");
    fs::write(lab.path("list"), "f\nhalf\n").expect("a list");
    for flag in ["--ignore-missing-args", "--times"] {
        let ran = lab.haul(&["rsync", "-r", flag, "--files-from=@list", "far:folder/", "@dst/"]).code(23);
        assert!(ran.err.contains("half\" isn't missing, but the server's listing"), "{flag}: {}", ran.err);
        assert!(lab.path("dst/f").exists(), "{flag}");
    }
}

#[test]
fn a_server_that_answers_at_random_writes_nothing_outside() {
    let Some(hostile) = peers::own("haul-hostile-sftp") else { return };
    anything(|seed| format!("[far]\ntype = sftp\nprotocol = sftp\nssh = {} fuzz={seed}\n", hostile.display()));
}

/// Whatever the server answers, haul writes below the destination only, and ends with a message.
pub fn anything(config: impl Fn(u64) -> String + Sync) {
    amount::each(0..amount::rounds(40, 2000), |seed| {
        let lab = Lab::new(HAUL);
        fs::write(lab.config(), config(seed)).expect("config");
        write(&lab.path("src/small"), b"content", TIME);
        write(&lab.path("src/large"), &noise(1, 3 * MIB), TIME);
        let attempt = |args: [&str; 3]| {
            let few = ["--low-level-retries=2", "--retries=1", "--timeout=2s", "--contimeout=2s"];
            let ran = lab.haul(&[&args[..], &few].concat());
            let lines = ran.err.lines().filter(|line| line.starts_with("haul: ")).count();
            let panics = ran.err.contains("panicked") || ran.code > 100;
            assert!(!panics && lines <= 1, "seed {seed}, {args:?}: {} {}", ran.code, ran.err);
        };
        // At once: a far end that says nothing is waited for 20 s each time, whatever the flags say.
        thread::scope(|scope| {
            for args in [["copy", "far:x", "@dst/in/deep"], ["copy", "@src", "far:x"], ["check", "@src", "far:x"]] {
                scope.spawn(move || attempt(args));
            }
        });
        let names = |path: &str| {
            let listed = fs::read_dir(lab.path(path)).into_iter().flatten().flatten();
            listed.map(|entry| entry.file_name().into_string().expect("a name")).collect::<Vec<_>>()
        };
        let beside = [names("dst"), names("dst/in"), names("")].concat();
        let known = ["in", "deep", "dst", "src", "home", "rclone.conf"];
        let others: Vec<_> = beside.iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(others.is_empty() && !Path::new("/etc/escaped").exists(), "seed {seed}: {others:?}");
    });
}

/// A host on which we are nobody: a remote on this machine; `None` where that can't be had.
fn as_nobody() -> Option<(Lab, String)> {
    let program = "/usr/lib/openssh/sftp-server";
    let as_nobody = ["--reuid", "65534", "--clear-groups"];
    let may = Command::new("setpriv").args(as_nobody).arg("true").status().is_ok_and(|status| status.success());
    if !may || !Path::new(program).exists() {
        peers::skip("nobody can't be had (root, setpriv, sftp-server)");
        return None;
    }
    let lab = Lab::new(HAUL);
    fs::set_permissions(lab.path(""), fs::Permissions::from_mode(0o755)).expect("set");
    Some((lab, format!(":sftp,ssh='setpriv {} sh -c {program}':", as_nobody.join(" "))))
}

/// OpenSSH leaves out each name of which it can't tell more: all of those in a directory that may be listed but not entered.
#[test]
fn a_directory_that_may_not_be_entered_is_not_empty() {
    let Some((lab, host)) = as_nobody() else { return };
    for at in ["src/closed/f", "src/open/f", "dst/closed/f", "dst/closed/g"] {
        write(&lab.path(at), b"content", TIME);
    }
    fs::set_permissions(lab.path("src/closed"), fs::Permissions::from_mode(0o744)).expect("set");
    let src = format!("{host}{}", lab.path("src").display());
    let ran = lab.haul(&["sync", &src, "@dst"]);
    assert!(ran.code != 0 && ran.err.contains("closed"), "{}: {}", ran.code, ran.err);
    assert!(lab.path("dst/closed/f").exists() && lab.path("dst/closed/g").exists() && lab.path("dst/open/f").exists());
    assert_ne!(lab.haul(&["lsf", "-R", &src]).code, 0);
}

/// Who may rename another user's file may not set its time: it has kept that.
#[test]
fn what_belongs_to_others_is_kept_where_backups_are() {
    let Some((lab, host)) = as_nobody() else { return };
    write(&lab.path("src/f"), b"new", TIME);
    write(&lab.path("dst/f"), b"old", TIME - SECOND);
    fs::set_permissions(lab.path("dst"), fs::Permissions::from_mode(0o777)).expect("set");
    lab.haul(&["sync", "@src", &format!("{host}{}", lab.path("dst").display()), "--suffix=.old"]).ok();
    let read = |name: &str| fs::read(lab.path(name)).expect("there");
    assert_eq!((&read("dst/f")[..], &read("dst/f.old")[..]), (&b"new"[..], &b"old"[..]));
}

#[test]
fn purge_takes_links_away_and_not_what_they_lead_to() {
    let Some((server, lab)) = start(&Setup::default()) else { return };
    let section = fs::read_to_string(lab.config()).expect("config");
    fs::write(lab.config(), format!("{section}[both]\ntype = far\ncommand = exec {HAUL} far\n")).expect("config");
    let data = server.data();
    for remote in ["far", "both"] {
        write(&data.join("out/deep/f"), b"precious", TIME);
        write(&data.join("top/sub/x"), b"x", TIME);
        for (to, name) in [("../out", "dir"), ("nowhere", "dangling"), ("../out/deep/f", "sub/file")] {
            std::os::unix::fs::symlink(to, data.join("top").join(name)).expect("linked");
        }
        lab.haul(&["purge", &format!("{remote}:{}", data.join("top").display())]).ok();
        assert!(!data.join("top").exists() && data.join("out/deep/f").exists(), "{remote}");
    }
}
