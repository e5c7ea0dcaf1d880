//! What is refused, told and made where one end is a host: beside rsync by the same shell, which is none but this machine's.

use crate::kind_clashes::{dated, shown};
use haul_testkit::{
    folder::write,
    lab::{Lab, ProgramResult, temporary},
    peers,
};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;
/// As seconds.
const THEN: i64 = 1_600_000_000;

/// A host `x`, which is this machine: its home folder is where the test works. Where the test is root, one `n` too, whose user
/// may not read everything.
struct Room {
    lab: Lab,
    rsync: PathBuf,
    shell: String,
    /// Where another user finds haul.
    _haul: TempDir,
}

impl Room {
    fn new() -> Option<Room> {
        let rsync = peers::need("rsync")?;
        let lab = Lab::new(HAUL);
        let haul = temporary("haul-far-ends-").expect("a folder");
        fs::set_permissions(haul.path(), Permissions::from_mode(0o755)).expect("set");
        fs::copy(HAUL, haul.path().join("haul")).expect("copied");
        fs::create_dir(haul.path().join("state")).expect("made");
        fs::set_permissions(haul.path().join("state"), Permissions::from_mode(0o777)).expect("set");
        let (home, bin) = (lab.path("w").display().to_string(), haul.path().display().to_string());
        let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = -l ] && shift 2\nhost=$1; shift; as=\n[ $host = n ] && as='{nobody}'\ncd '{home}'\n\
             export PATH='{bin}':$PATH XDG_STATE_HOME='{bin}/state' LC_ALL=C.UTF-8\nexec $as sh -c \"$*\"\n"
        );
        let shell = lab.path("shell");
        fs::write(&shell, text).expect("written");
        fs::set_permissions(&shell, Permissions::from_mode(0o755)).expect("set");
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o755)).expect("set");
        Some(Room { shell: shell.display().to_string(), lab, rsync, _haul: haul })
    }

    /// The folder that is made anew by `build` for each run.
    fn build(&self, build: &dyn Fn(&Path)) {
        let top = self.lab.path("w");
        let _ = fs::set_permissions(top.join("closed"), Permissions::from_mode(0o700));
        let _ = fs::remove_dir_all(&top);
        fs::create_dir(&top).expect("made");
        fs::create_dir(top.join("d")).expect("made");
        build(&top);
    }

    fn run(&self, who: &str, words: &[&str]) -> ProgramResult {
        let first = if who == "rsync" { &["-e"][..] } else { &["rsync", "-e"][..] };
        let words = [first, &[&self.shell[..]], words].concat();
        let program = if who == "rsync" { self.rsync.clone() } else { PathBuf::from(HAUL) };
        let output = self.lab.command(&program).args(&words).current_dir(self.lab.path("w")).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let (code, line) = (output.status.code().unwrap_or(-1), words.join(" "));
        ProgramResult { code, out: text(output.stdout), err: text(output.stderr), line }
    }

    fn haul(&self, words: &[&str]) -> ProgramResult {
        self.run("haul", words)
    }

    /// Both programs must come to the same code and the same files, with the same times of directories that were made of a source;
    /// gives what haul printed, its lines as rsync prints them too.
    fn same(&self, line: &str, build: &dyn Fn(&Path)) -> ProgramResult {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [theirs, ours] = ["rsync", "haul"].map(|who| {
            self.build(build);
            let ran = self.run(who, &words);
            let mut lines: Vec<String> = ran.out.lines().filter(|line| is_compared(line)).map(str::to_owned).collect();
            lines.sort();
            (ran.code, lines, shown(&self.lab.path("w")), times(&self.lab.path("w")), ran)
        });
        let all = |side: &(i32, Vec<String>, Vec<String>, Vec<String>, ProgramResult)| {
            (side.0, side.1.clone(), side.2.clone(), side.3.clone())
        };
        assert_eq!(all(&theirs), all(&ours), "{line}\nrsync: {}\nhaul: {}", theirs.4.err, ours.4.err);
        ours.4
    }
}

/// False for amounts of a protocol that isn't spoken here, and for what rsync says of deletions that nothing would come of.
fn is_compared(line: &str) -> bool {
    let amounts = ["sent ", "total size", "sending ", "receiving ", "building ", "IO error encountered"];
    !line.is_empty() && !amounts.iter().any(|begin| line.starts_with(begin))
}

/// The old times of directories: whatever is new is just made.
fn times(top: &Path) -> Vec<String> {
    let (mut all, mut dirs) = (Vec::new(), vec![top.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.expect("read").path();
            let facts = fs::symlink_metadata(&path).expect("it is there");
            if facts.is_dir() {
                let time = Some(facts.mtime()).filter(|time| *time < THEN + 1_000_000);
                all.push(format!("{} {time:?}", path.strip_prefix(top).expect("below").display()));
                dirs.push(path);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn nothing_is_deleted_at_a_host_that_its_own_rules_may_protect() {
    let Some(room) = Room::new() else { return };
    let build = |top: &Path| {
        write(&top.join("s/c/new"), b"new", TIME);
        write(&top.join("d/c/.rsync-filter"), b"P p\n", TIME);
        write(&top.join("d/c/p"), b"kept", TIME);
        write(&top.join("d/c/q"), b"extra", TIME);
        write(&top.join("rules"), b"P p\n", TIME);
    };
    let line = "haul rsync: Refused to delete by per-directory rules (-F, dir-merge) at a host: its own files of rules aren't read. Give the \
                rules as --filter='merge FILE', or leave the deletion out\n";
    for options in [
        &["-F", "--del"][..],
        &["-F", "--delete-excluded"],
        &["-CF", "--delete-after"],
        &["-F", "--force"],
        &["-nF", "--delete-before"],
        &["--filter=:n .rsync-filter", "--delete"],
    ] {
        for dest in ["x:d/", "x:new/"] {
            room.build(&build);
            let ran = room.haul(&[&["-rl"][..], options, &["s/", dest]].concat());
            assert_eq!((ran.code, &*ran.out, &*ran.err), (1, "", line), "{options:?} {dest}");
            let top = room.lab.path("w");
            assert!(top.join("d/c/p").exists() && !top.join("d/c/new").exists() && !top.join("new").exists());
        }
    }
    room.build(&build);
    room.haul(&["-rlF", "s/", "x:d/"]).ok();
    room.haul(&["-rlC", "--delete", "s/", "x:cvs/"]).ok();
    room.haul(&["-rlF", "--delete", "s/", ":memory:d"]).ok();
    room.haul(&["-rl", "--filter=. rules", "--delete", "s/", "x:d/"]).ok();
    let c = room.lab.path("w/d/c");
    assert!(c.join("p").exists() && c.join("new").exists() && !c.join("q").exists());
}

#[test]
fn home_directories_of_others_are_refused() {
    let Some(room) = Room::new() else { return };
    room.build(&|top| write(&top.join("s/a"), b"a", TIME));
    for (words, path) in [
        (&["s/", "x:~anna/"][..], "~anna/"),
        (&["x:~anna", "d"], "~anna"),
        (&["x:s", ":~anna/a", "d"], "~anna/a"),
        (&["--list-only", "x:~anna/"], "~anna/"),
    ] {
        let ran = room.haul(&[&["-a"][..], words].concat());
        let line = format!(
            "haul rsync: Refused x:{path}: haul doesn't know where the home directory ~anna is. Write its absolute path, or \
             x:./{path} for a file of that name\n"
        );
        assert_eq!((ran.code, &*ran.err), (1, &*line), "{words:?}");
    }
    assert!(!room.lab.path("w/~anna").exists());
    room.haul(&["-a", "s/", "x:./~anna/"]).ok();
    room.haul(&["-a", "x:~/./~anna/", "d/"]).ok();
    assert!(room.lab.path("w/~anna/a").exists() && room.lab.path("w/d/a").exists());
}

#[test]
fn what_is_in_a_directory_of_a_host_comes_with_d_and_its_path() {
    let Some(room) = Room::new() else { return };
    let build = |top: &Path| {
        write(&top.join("s/p"), b"p", TIME);
        write(&top.join("s/sub/q"), b"q", TIME);
        write(&top.join("d/s/extra"), b"extra", TIME);
        symlink("sub", top.join("s/link")).expect("made");
        write(&top.join("list"), b"sub/\n", TIME);
        dated(top, TIME);
    };
    for line in [
        "-dR x:s/ d/",
        "-dR x:s/. d/",
        "-dR x:s/sub/ d/",
        "-dlR x:s/./ d/",
        "-dR x:s/./ :s/./sub/q d/",
        "-dtR --delete x:s/ d/",
        "-dR --exclude=p x:s/ d/",
        "-d --files-from=list x:s d/",
        "-dRk x:s/link/ d/",
        "-dR x:s/none/ d/",
    ] {
        room.same(line, &build);
    }
    room.build(&build);
    for options in ["-dR", "-aR"] {
        let ran = room.haul(&[options, "x:s/link/", "d/"]).code(23);
        let line =
            "haul rsync: \"s/link\" is a symbolic link to a directory, which only -k (--copy-dirlinks) follows\n";
        assert!(ran.err.starts_with(line), "{}", ran.err);
    }
}

#[test]
fn one_bad_source_at_a_host_does_not_keep_the_others_back() {
    let Some(room) = Room::new() else { return };
    let is_root = rustix::process::geteuid().is_root();
    let build = |top: &Path| {
        write(&top.join("ok/f"), b"f", TIME);
        write(&top.join("closed/a"), b"a", TIME);
        write(&top.join("file"), b"file", TIME);
        write(&top.join("d/old"), b"old", TIME);
        symlink("loop", top.join("loop")).expect("made");
        fs::set_permissions(top.join("closed"), Permissions::from_mode(0o700)).expect("set");
        if !is_root {
            fs::set_permissions(top.join("closed"), Permissions::from_mode(0o000)).expect("set");
        }
    };
    let host = if is_root { "n" } else { "x" };
    let denied = "Permission denied (os error 13)";
    for (sources, message) in [
        ("file/ :ok", "link_stat \"file\" failed: Not a directory (20)".into()),
        ("file/./ :ok", "link_stat \"file/.\" failed: Not a directory (20)".into()),
        ("none/ :ok", "link_stat \"none\" failed: No such file or directory (2)".into()),
        ("loop/ :ok", "link_stat \"loop\" failed: a symbolic link is in the way, or links form a loop".into()),
        ("closed/a :ok", format!("link_stat \"closed/a\" failed: {denied}")),
        ("closed/a :ok/", format!("link_stat \"closed/a\" failed: {denied}")),
        ("closed/ :ok", format!("/w/closed/: {denied}")),
        ("closed/* :ok", format!("link_stat \"closed/*\" failed: {denied}")),
        ("*/f", String::new()),
        ("loop :ok", String::new()),
        ("loop", String::new()),
        ("file/", "link_stat \"file\" failed: Not a directory (20)".into()),
        ("closed/a", format!("link_stat \"closed/a\" failed: {denied}")),
    ] {
        for options in ["-rlt", "-rlt --delete", "-rlt -b --backup-dir=bk", "-rlt --ignore-missing-args"] {
            let ran = room.same(&format!("{options} {host}:{sources} d/"), &build);
            assert!(ran.err.contains(&message), "{sources}: {}", ran.err);
            assert!(room.lab.path("w/d/old").exists(), "an error means that nothing is deleted");
        }
    }
    fs::set_permissions(room.lab.path("w/closed"), Permissions::from_mode(0o700)).expect("set");
}

#[test]
fn f_in_a_format_is_the_name_where_files_come_from_a_host() {
    let Some(room) = Room::new() else { return };
    let build = |top: &Path| {
        write(&top.join("s/d/e/f"), b"f", TIME);
        write(&top.join("s/a"), b"a", TIME);
        write(&top.join("d/extra"), b"extra", TIME);
        write(&top.join("list"), b"a\nd/e\n", TIME);
        dated(&top.join("s"), TIME);
    };
    let sources = ["s/", "s", "s/a", "./s/d", "s/a :s/d", "--delete x:s/", "-R x:s/d/e", "--files-from=list x:s"];
    for source in sources {
        let source = if source.contains("x:") { source.to_owned() } else { format!("x:{source}") };
        let ran = room.same(&format!("-a --out-format=%n|%f|%i {source} d/"), &build);
        assert!(!ran.out.contains("||"), "{}", ran.out);
    }
    room.same("-a --out-format=%f x:s/a d/name", &build);
}

#[test]
fn nothing_is_created_for_sources_that_a_host_does_not_have() {
    let Some(room) = Room::new() else { return };
    let build = |top: &Path| {
        fs::create_dir_all(top.join("s/in")).expect("made");
        fs::create_dir_all(top.join("d/s")).expect("made");
        write(&top.join("list"), b"s/none\n", TIME);
        dated(&top.join("s"), TIME);
        dated(&top.join("d"), TIME - 5_000_000_000);
    };
    for line in [
        "-a x:none new/",
        "-a x:none new",
        "-a --mkpath x:none new/a/b/",
        "-a --mkpath x:none new/a/b",
        "-aR x:s/none d/",
        "-aR x:s/none new/",
        "-aR x:s/none :s/in d/",
        "-aR x:s/none :s/in new/",
        "-a --files-from=list x: d/",
        "-a --files-from=list x: new/",
        "-aR --ignore-missing-args x:s/none d/",
        "-a --exclude=* x:s/in new/",
        "-a x:none :s/in new/",
    ] {
        room.same(line, &build);
    }
}

#[test]
fn a_directory_for_what_is_under_way_must_be_at_the_host() {
    let Some(room) = Room::new() else { return };
    let build = |top: &Path| {
        write(&top.join("s/a"), b"a", TIME);
        fs::create_dir_all(top.join("tmp")).expect("made");
        fs::create_dir_all(top.join("d/in")).expect("made");
    };
    for (dir, ends, is_there) in [
        ("none", "s/ x:d", false),
        ("/no/such/none", "s/ x:d", false),
        ("tmp", "s/ x:d", false),
        ("none", "s/a x:d/b", false),
        ("in", "s/ x:d", true),
        ("in", "s/a x:d/b", true),
        ("tmp", "s/a x:b", true),
    ] {
        let ran = room.same(&format!("-r --temp-dir={dir} {ends}"), &build);
        let message = format!("haul rsync: The temp-dir does not exist: {dir}\n");
        assert_eq!((ran.code, ran.err == message), (i32::from(!is_there), !is_there), "{dir} {ends}: {}", ran.err);
    }
}

#[test]
fn directories_that_are_made_above_a_destination_at_a_host_are_counted() {
    let Some(room) = Room::new() else { return };
    let build = |top: &Path| {
        write(&top.join("s/a"), b"a", TIME);
        symlink("d", top.join("link")).expect("made");
        dated(&top.join("s"), TIME);
    };
    let absolute = room.lab.path("w/d/n/b").display().to_string();
    for ends in
        ["s/ x:n/a/b", "s/a x:n/a/b", "s/a x:n/a/b/", "s/ x:d/n", "s/ x:d", "s/a x:n", "s/ x:./d/n/b/", "s/ x:link/n"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("s/ x:{absolute}")])
    {
        for options in ["-av", "-ai", "-anv", "-a"] {
            room.same(&format!("{options} --mkpath {ends}"), &build);
        }
    }
}

#[test]
fn with_several_sources_from_a_host_the_destination_has_the_time_of_the_first() {
    let Some(room) = Room::new() else { return };
    let build = |top: &Path| {
        for (name, time) in [("s1", TIME), ("s2", TIME - 1_000_000_000), ("d", TIME - 2_000_000_000)] {
            write(&top.join(name).join(format!("{name}.txt")), b"text", TIME);
            dated(&top.join(name), time);
        }
        write(&top.join("f"), b"f", TIME);
    };
    for options in ["-ai", "-ri", "-aOi", "-ab", "-an"] {
        for ends in
            ["x:s1/ :s2 d/", "x:s2 :s1/ d/", "x:s1/ :f d", "x:s1 :s2 d", "x:s1/ :s2 new/", "-R x:s2/./s2.txt :s1/./ d/"]
        {
            room.same(&format!("{options} {ends}"), &build);
        }
    }
}
