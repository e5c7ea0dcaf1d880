//! Hosts by ssh, beside rsync over the same sshd, which needs no port.

use crate::kind_clashes::{dated, make, meeting, shown};
use haul_testkit::{
    folder::{self, noise, write},
    lab::{Lab, ProgramResult},
    peers,
    sshd::{Setup, Sshd},
};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;
const MIB: usize = 1 << 20;

/// A server `far`, and folders of its user's.
struct Room {
    lab: Lab,
    sshd: Sshd,
}

impl Room {
    fn new() -> Option<Room> {
        let lab = Lab::new(HAUL);
        // haul at the host has a state directory of its own.
        let state = format!("SetEnv XDG_STATE_HOME={}", lab.path("far-state").display());
        let sshd = Sshd::start(&Setup { lines: vec![state], ..Setup::default() })?;
        Some(Room { lab, sshd })
    }

    fn shell(&self) -> String {
        format!("ssh -F {}", self.sshd.config().display())
    }

    fn far(&self, name: &str) -> String {
        format!("far:{}", self.lab.path(name).display())
    }

    /// `haul rsync` with haul there.
    fn haul(&self, words: &[&str]) -> ProgramResult {
        let (shell, path) = (self.shell(), format!("--rsync-path={HAUL}"));
        self.lab.haul(&[&["rsync", "-e", &shell, &path][..], words].concat())
    }

    fn rsync(&self, words: &[&str]) -> ProgramResult {
        let shell = self.shell();
        self.lab.run(Path::new("rsync"), &[&["-e", &shell][..], words].concat())
    }
}

/// A tree of what rsync knows.
fn tree(root: &Path) {
    for n in 0..40u64 {
        write(&root.join(format!("{}/f {n}é", n % 5)), &noise(n, (n * 911) as usize), TIME + n * 1_000_000_000);
    }
    write(&root.join("large"), &noise(99, 3 * MIB), TIME);
    write(&root.join("x.o"), b"left out", TIME);
    symlink("large", root.join("link")).expect("made");
    fs::create_dir(root.join("empty")).expect("made");
    dated(root, TIME);
}

/// The destination beforehand: some files as at the source, some with other content, and some that the source doesn't have.
fn before(root: &Path) {
    tree(root);
    fs::remove_dir_all(root.join("2")).expect("removed");
    write(&root.join("1/f 1é"), b"other", TIME - 7_000_000_000);
    write(&root.join("extra/deep"), b"extra", TIME);
    write(&root.join("large"), &noise(98, 2 * MIB), TIME - 1_000_000_000);
    dated(root, TIME - 9_000_000_000);
}

/// Lines without what differs between two runs: bytes on the wire and rates, in an order that both have.
fn error_lines(ran: &ProgramResult) -> Vec<String> {
    let changes = |line: &&str| {
        let first =
            ["sent ", "total size is", "Literal", "Matched", "File list", "Total bytes", "sending ", "receiving "];
        !first.iter().any(|begin| line.starts_with(begin)) && !line.trim().is_empty()
    };
    let mut lines: Vec<String> = ran.out.lines().filter(changes).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn there_and_back_it_is_as_with_rsync() {
    let Some(room) = Room::new() else { return };
    if peers::need("rsync").is_none() {
        return;
    }
    tree(&room.lab.path("src"));
    for (number, words) in [
        &["-ai", "--delete"][..],
        &["-av", "--exclude=*.o"],
        &["-rlt", "--stats", "--delete-excluded", "--exclude=*.o"],
        &["-rltin", "--delete"],
        &["-rlti", "--existing", "-u"],
        &["-rltci", "--max-size=20K"],
        &["-rltiz", "--bwlimit=100M", "--delete-after"],
    ]
    .into_iter()
    .enumerate()
    {
        for up in [true, false] {
            let dst = |who: &str| format!("{who}-{number}-{up}");
            let ends = |who: &str| {
                let (here, there) =
                    (|name: &str| room.lab.path(name).display().to_string(), |name: &str| room.far(name));
                let (src, dst) = if up { (here("src"), there(&dst(who))) } else { (there("src"), here(&dst(who))) };
                [src + "/", dst + "/"]
            };
            let run = |who: &str| {
                before(&room.lab.path(&dst(who)));
                let [src, dst] = ends(who);
                let words = [words, &[&src, &dst]].concat();
                if who == "rsync" { room.rsync(&words) } else { room.haul(&words) }
            };
            let (theirs, ours) = (run("rsync"), run("haul"));
            assert_eq!(
                (theirs.code, error_lines(&theirs)),
                (ours.code, error_lines(&ours)),
                "{words:?} {up}\n{}",
                ours.err
            );
            let read = |who: &str| folder::read(&room.lab.path(&dst(who)));
            folder::assert_same(&read("rsync"), &read("haul"), &format!("{words:?} {up}"));
        }
    }
}

#[test]
fn only_what_changed_goes_across() {
    let Some(room) = Room::new() else { return };
    let old = noise(1, 4 * MIB);
    let mut changed = old.clone();
    changed[MIB..MIB + 1000].fill(7);
    let mut longer = old.clone();
    longer.splice(MIB..MIB, noise(2, 10_000));
    let number = |ran: &ProgramResult, name: &str| -> u64 {
        let line = ran.out.lines().find_map(|line| line.strip_prefix(name)).expect("said");
        line.trim_end_matches(" bytes").replace(',', "").trim().parse().expect("a number")
    };
    for (name, new) in [("changed", &changed), ("longer", &longer)] {
        for up in [true, false] {
            for (how, whole) in
                [(&["--stats"][..], false), (&["--stats", "-W"], true), (&["--stats", "--inplace"], false)]
            {
                let (src, dst) = (room.lab.path(&format!("s/{name}")), room.lab.path(&format!("d/{name}")));
                write(&src, new, TIME);
                write(&dst, &old, TIME - 1_000_000_000);
                let inode = fs::metadata(&dst).expect("there").ino();
                let (far_src, far_dst) = (room.far(&format!("s/{name}")), room.far(&format!("d/{name}")));
                let (here_src, here_dst) = (src.display().to_string(), dst.display().to_string());
                let ends = if up { [here_src, far_dst] } else { [far_src, here_dst] };
                let ran = room.haul(&[&["-t"][..], how, &[&ends[0], &ends[1]]].concat()).ok();
                assert!(fs::read(&dst).expect("there") == *new, "{name} {up} {how:?}");
                let (literal, matched) = (number(&ran, "Literal data: "), number(&ran, "Matched data: "));
                assert_eq!(literal + matched, new.len() as u64, "{}", ran.out);
                assert_eq!(fs::metadata(&dst).expect("there").ino() == inode, how.contains(&"--inplace"), "{how:?}");
                // Behind an insertion nothing is at its place any more.
                let few = !(whole || how.contains(&"--inplace") && name == "longer");
                assert_eq!(literal < 200_000, few, "{name} {up} {how:?}: {literal} of {}", new.len());
                let in_place = few && name == "changed";
                assert!(!in_place || literal <= 8 << 10, "{up} {how:?}: {literal}, more than the blocks that changed");
            }
        }
    }
    assert_eq!(fs::read_dir(room.lab.path("d")).expect("there").count(), 2, "nothing is left behind");
    assert!(fs::read_dir(room.lab.path("far-state/haul/pieces")).expect("remembered").count() > 0);
}

#[test]
fn a_file_of_another_time_is_read_once_to_compare_and_to_build_it() {
    let Some(room) = Room::new() else { return };
    let (request_log, shell) = (room.lab.path("asked"), room.shell());
    let path = format!("--rsync-path=tee {} | {HAUL}", request_log.display());
    let (src, dst) = (room.lab.path("src/f"), room.lab.path("dst/f"));
    let from = room.lab.path("src/f").display().to_string();
    let run = || {
        room.lab.haul(&["rsync", "-e", &shell, &path, "-t", &from, &room.far("dst/f")]).ok();
        let requests = fs::read(&request_log).expect("told");
        // As MessagePack has the names of requests.
        let count = |name: &[u8]| requests.windows(name.len()).filter(|found| *found == name).count();
        [&b"\xa6Recipe"[..], b"\xa4Hash", b"\xa5Begin"].map(count)
    };
    let old = noise(1, 2 * MIB);
    let mut new = old.clone();
    new[MIB] ^= 1;
    write(&src, &new, TIME);
    write(&dst, &old, TIME - 1_000_000_000);
    assert_eq!(run(), [1, 0, 1], "what both hold is told once");
    assert!(fs::read(&dst).expect("there") == new);
    write(&src, &new, TIME + 1_000_000_000);
    let inode = fs::metadata(&dst).expect("there").ino();
    assert_eq!(run(), [1, 0, 0], "what is the same gets its time alone");
    let facts = fs::metadata(&dst).expect("there");
    assert_eq!((facts.ino(), facts.mtime()), (inode, fs::metadata(&src).expect("there").mtime()));
}

/// What is in a new directory is new: a question about each would be a round trip, one after the other.
#[test]
fn nothing_in_a_new_directory_is_looked_up() {
    let Some(room) = Room::new() else { return };
    for n in 0..30 {
        write(&room.lab.path(&format!("src/new/dir-{n}-/f")), b"text", TIME);
    }
    let (request_log, shell) = (room.lab.path("asked"), room.shell());
    // The bytes that are sent to the host.
    let path = format!("--rsync-path=tee -a {} | {HAUL}", request_log.display());
    let from = format!("{}/", room.lab.path("src").display());
    room.lab.haul(&["rsync", "-e", &shell, &path, "-rlt", &from, &room.far("dst")]).ok();
    folder::assert_same(&folder::read(&room.lab.path("src")), &folder::read(&room.lab.path("dst")), "there");
    let requests = fs::read(request_log).unwrap();
    let mut followed = Vec::new();
    for n in 0..30 {
        let name = format!("new/dir-{n}-");
        let found = requests.windows(name.len() + 1).filter(|found| found.starts_with(name.as_bytes()));
        followed.extend(found.map(|found| found[name.len()]));
    }
    assert!(
        followed.len() >= 60 && followed.iter().all(|byte| *byte == b'/'),
        "asked of a directory's name as a file's"
    );
}

#[test]
fn from_a_host_to_a_host_it_goes_through_here() {
    let (Some(room), Some(other)) = (Room::new(), Room::new()) else { return };
    tree(&room.lab.path("src"));
    // Two hosts in one config, each with its own server.
    let both = ["far", "other"].map(|name| {
        let sshd = if name == "far" { &room.sshd } else { &other.sshd };
        fs::read_to_string(sshd.config())
            .expect("config")
            .replace("Host far", &format!("Host {name}\n HostKeyAlias far"))
    });
    let config = room.lab.path("both");
    fs::write(&config, both.concat()).expect("written");
    let (shell, path) = (format!("ssh -F {}", config.display()), format!("--rsync-path={HAUL}"));
    let (src, dst) = (room.far("src"), format!("other:{}", room.lab.path("dst").display()));
    room.lab.haul(&["rsync", "-rlt", "-e", &shell, &path, &(src + "/"), &dst]).ok();
    folder::assert_same(&folder::read(&room.lab.path("src")), &folder::read(&room.lab.path("dst")), "there");
}

#[test]
fn names_that_a_host_does_not_have_are_told_and_then_nothing_is_deleted() {
    let Some(room) = Room::new() else { return };
    if peers::need("rsync").is_none() {
        return;
    }
    tree(&room.lab.path("src"));
    symlink("nowhere", room.lab.path("src/dangling")).expect("made");
    write(&room.lab.path("outside/q"), b"q", TIME);
    symlink("../outside", room.lab.path("src/out")).expect("made");
    let list = room.lab.path("list").display().to_string();
    let all = "1\nlarge\nlink\ndangling\nempty\nx.o\n2/f 2é\n";
    for (names, words, code) in [
        (all.to_owned(), &["-ai"][..], 0),
        (all.to_owned(), &["-ai", "--exclude=*.o"], 0),
        (format!("{all}gone\n2/gone\nno/such\n"), &["-ai"], 23),
        (format!("{all}gone\n"), &["-ai", "--ignore-missing-args"], 0),
        // What is behind a link that leads out is no missing name.
        (format!("{all}out/q\n"), &["-ai", "--copy-unsafe-links"], 0),
        (format!("{all}out/q\nout/gone\n"), &["-ai", "--copy-unsafe-links"], 23),
    ] {
        fs::write(&list, &names).expect("written");
        let run = |who: &str| {
            let dst = room.lab.path(who);
            let _ = fs::remove_dir_all(&dst);
            write(&dst.join("extra"), b"extra", TIME);
            write(&dst.join("1/extra"), b"extra", TIME);
            let from = format!("--files-from={list}");
            let (src, to) = (room.far("src"), dst.display().to_string());
            let words = [words, &[&from, &src, &to]].concat();
            let ran = if who == "rsync" { room.rsync(&words) } else { room.haul(&words) };
            let complaints = ran.err.lines().filter(|line| line.contains("link_stat")).count();
            (ran.code, complaints, folder::read(&dst))
        };
        let (theirs, ours) = (run("rsync"), run("haul"));
        assert_eq!((theirs.0, theirs.1), (code, ours.1), "{words:?} {names:?}");
        assert_eq!(ours.0, code, "{words:?} {names:?}");
        folder::assert_same(&theirs.2, &ours.2, &format!("{words:?} {names:?}"));
    }
    // rsync begins to delete before it knows.
    let dst = room.lab.path("haul");
    write(&dst.join("1/extra"), b"extra", TIME);
    fs::write(&list, format!("{all}gone\n")).expect("written");
    let from = format!("--files-from={list}");
    room.haul(&["-rt", "--delete", &from, &room.far("src"), &dst.display().to_string()]).code(23);
    assert!(dst.join("1/extra").exists());
}

#[test]
fn what_leads_nowhere_is_told_with_rsyncs_codes() {
    let Some(room) = Room::new() else { return };
    write(&room.lab.path("s/a"), b"a", TIME);
    let far = room.far("d");
    let shell = room.shell();
    let run = |words: &[&str]| {
        let ran = room.lab.haul(&[&["rsync", "-r", "@s/"][..], words].concat());
        (ran.code, ran.err)
    };
    let (code, output) = run(&["-e", &shell, "nowhere.invalid:d"]);
    assert_eq!(code, 255, "{output}");
    assert!(output.contains("error: nowhere.invalid can't be reached: ") && output.lines().count() == 1, "{output}");
    let (code, output) = run(&["-e", &shell, "--rsync-path=/no/such/haul", &far]);
    assert_eq!(code, 127, "{output}");
    assert!(output.contains("`/no/such/haul far` doesn't run on far") && output.lines().count() == 1, "{output}");
    let (code, output) = run(&["-e", "ssh 'x", &far]);
    assert_eq!((code, &*output), (1, "haul rsync: --rsh=ssh 'x: a quote doesn't end\n"));
    for daemon in ["rsync://far/m", "far::m"] {
        let (code, output) = run(&[daemon]);
        let message = "rsync daemons aren't supported: name the host as HOST:PATH, which goes by ssh, or use rsync";
        assert_eq!((code, output), (4, format!("haul rsync: {daemon}: {message}\n")));
    }
    assert_eq!(run(&["-z", "--zc=bogus", &far]), (1, "haul rsync: unknown compress name: bogus\n".into()));
    assert!(!room.lab.path("d").exists());
}

#[test]
fn without_haul_there_it_goes_by_sftp_and_says_what_that_cannot_keep() {
    let Some(room) = Room::new() else { return };
    tree(&room.lab.path("src"));
    let (shell, src, far) = (room.shell(), room.lab.path("src/").display().to_string(), room.far("dst"));
    // haul isn't in the PATH of the user at the host.
    let run = |words: &[&str]| {
        let mut command = room.lab.haul_command(&[&["rsync", "-rlt"][..], words, &[&src, &far]].concat());
        let ran = command.env("RSYNC_RSH", &shell).output().expect("it runs");
        (ran.status.code(), String::from_utf8(ran.stderr).expect("text"))
    };
    let (code, output) = run(&["-H"]);
    assert_eq!(code, Some(4), "{output}");
    assert!(output.contains("--hard-links needs haul on far: "), "{output}");
    assert!(!room.lab.path("dst").exists());
    let (code, output) = run(&[]);
    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.starts_with("haul rsync: no haul on far: files go by SFTP") && output.lines().count() == 2,
        "{output}"
    );
    assert!(output.contains("\nhaul rsync: attributes of files are kept between file systems only"), "{output}");
    let files = |name: &str| folder::files(&folder::read(&room.lab.path(name)));
    folder::assert_same(&files("src"), &files("dst"), "by SFTP");
    // Permissions are what SFTP can keep, in both directions.
    let mode = |path: &str| fs::metadata(room.lab.path(path)).expect("it is there").permissions().mode() & 0o7777;
    for (name, bits) in [("key", 0o600), ("run", 0o755), ("shared", 0o664), ("closed/f", 0o640), ("closed", 0o700)] {
        let path = room.lab.path("modes").join(name);
        if !path.exists() {
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(&path, name).expect("written");
        }
        fs::set_permissions(&path, Permissions::from_mode(bits)).expect("set");
    }
    let here = |name: &str| room.lab.path(name).display().to_string() + "/";
    for (words, from, to, changed) in [
        (&["-a"][..], here("modes"), room.far("there"), None),
        (&["-a"], room.far("there/"), here("back again"), None),
        (&["-a", "--chmod=F600"], here("modes"), room.far("changed"), Some(0o600)),
    ] {
        let mut command = room.lab.haul_command(&[&["rsync"][..], words, &[&from, &to]].concat());
        let ran = command.env("RSYNC_RSH", &shell).output().expect("it runs");
        let stderr = String::from_utf8(ran.stderr).expect("text");
        assert_eq!(ran.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("of attributes only the permissions of what is sent are kept"), "{stderr}");
        let name = to.trim_end_matches('/').rsplit('/').next().expect("a name").to_owned();
        for file in ["key", "run", "shared", "closed/f", "closed"] {
            let wanted = changed.filter(|_| file != "closed").unwrap_or_else(|| mode(&format!("modes/{file}")));
            assert_eq!(mode(&format!("{name}/{file}")), wanted, "{words:?} {file}");
        }
    }
    // A link that isn't kept isn't followed.
    symlink("..", room.lab.path("src/1/up")).expect("made");
    symlink("/etc/hostname", room.lab.path("src/out")).expect("made");
    let (src, back) = (room.far("src/"), room.lab.path("back/").display().to_string());
    let mut command = room.lab.haul_command(&["rsync", "-rt", &src, &back]);
    let ran = command.env("RSYNC_RSH", &shell).output().expect("it runs");
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(room.lab.path("back/1/f 1é").exists());
    assert!(!room.lab.path("back/1/up").exists() && !room.lab.path("back/out").exists());
}

/// Results of rsync and haul on a folder that `build` creates: exit code, the tree afterwards, and the messages.
fn beside(
    room: &Room,
    words: &[&str],
    [src, dst]: [&str; 2],
    up: bool,
    build: impl Fn(&Path),
) -> [(i32, Vec<String>, String); 2] {
    ["rsync", "haul"].map(|who| {
        let top = room.lab.path(who);
        let _ = fs::remove_dir_all(&top);
        build(&top);
        let (here, there) = (top.display().to_string(), room.far(who));
        let (from, to) = if up { (here, there) } else { (there, here) };
        let ends = [from + src, to + dst];
        let words = [words, &[&ends[0], &ends[1]]].concat();
        let ran = if who == "rsync" { room.rsync(&words) } else { room.haul(&words) };
        (ran.code, shown(&top), ran.err)
    })
}

#[test]
fn what_is_of_another_kind_makes_way_as_with_rsync() {
    let Some(room) = Room::new() else { return };
    if peers::need("rsync").is_none() {
        return;
    }
    for words in [
        &["-a", "--delete"][..],
        &["-a", "--delete", "-c"],
        &["-a"],
        &["-r", "--delete"],
        &["-rl", "--delete-after"],
        &["-a", "--force"],
        &["-a", "-b", "--delete", "--backup-dir=../bk"],
    ] {
        for up in [true, false] {
            let [theirs, ours] = beside(&room, words, ["/s/", "/d/"], up, meeting);
            assert_eq!(theirs.1, ours.1, "{words:?} {up}\n{}", ours.2);
            assert_eq!(theirs.0, ours.0, "{words:?} {up}\n{}", ours.2);
        }
    }
}

#[test]
fn a_named_symlink_at_a_host_is_not_taken_for_its_target() {
    let Some(room) = Room::new() else { return };
    if peers::need("rsync").is_none() {
        return;
    }
    // What a directory meets at the destination; and what a name of the source is.
    for (mine, other) in
        [("dir", "file"), ("dir", "link"), ("dir", "dlink"), ("dir", "fifo"), ("dir", ""), ("link", ""), ("dlink", "")]
    {
        for (words, up) in [(&["-a", "--delete"][..], true), (&["-a"], true), (&["-a", "--remove-source-files"], false)]
        {
            let [theirs, ours] = beside(&room, words, ["/s/n", "/d"], up, |top| {
                write(&top.join("s/zd/kept"), b"kept", TIME);
                write(&top.join("d/zd/kept"), b"kept", TIME);
                make(&top.join("s/n"), mine, "s");
                make(&top.join("d/n"), other, "d");
            });
            assert_eq!(theirs.1, ours.1, "{mine} {other} {words:?}\n{}", ours.2);
            assert_eq!(theirs.0, ours.0, "{mine} {other} {words:?}\n{}", ours.2);
        }
    }
}

#[test]
fn names_and_paths_mean_there_what_they_mean_to_rsync() {
    let Some(room) = Room::new() else { return };
    if peers::need("rsync").is_none() {
        return;
    }
    // The words, and whether the host is the source. `<S>` and `<D>` stand for the two ends' folder.
    for (words, up) in [
        (&["-a", "<S>/*.o", "<D>/d"][..], false),
        (&["-a", "<S>/[13]", "<S>/?arge", "<D>/d"], false),
        (&["-a", "<S>/*/f*", "<D>/d"], false),
        (&["-a", "<S>/none*", "<D>/d"], false),
        (&["-a", "<S>/none", "<D>/d"], false),
        (&["-aR", "<S>/./*.o", "<S>/./[12]/f*", "<D>/d"], false),
        (&["-a", "<S>/empty", "<D>/new"], true),
        (&["-a", "<S>/", "<D>/a/b/c/"], true),
        (&["-a", "<S>/large", "<D>/a/b/c"], true),
        (&["-a", "--mkpath", "<S>/large", "<D>/a/b/c"], true),
        (&["-a", "--link-dest=<D>/other", "<S>/", "<D>/d/"], true),
        (&["-a", "--backup-dir=<D>/bk", "-b", "<S>/", "<D>/other/"], true),
    ] {
        let run = |who: &str| {
            let top = room.lab.path(who);
            let _ = fs::remove_dir_all(&top);
            tree(&top.join("src"));
            before(&top.join("other"));
            let (here, there) = (top.display().to_string(), room.far(who));
            let (src, dst) = if up { (here.clone() + "/src", &there) } else { (there.clone() + "/src", &here) };
            let words: Vec<String> = words
                .iter()
                .map(|word| match word.split_once('=') {
                    Some((option, path)) => format!("{option}={}", path.replace("<D>", &here)),
                    None => word.replace("<S>", &src).replace("<D>", dst),
                })
                .collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ran = if who == "rsync" { room.rsync(&words) } else { room.haul(&words) };
            let linked = fs::metadata(top.join("d/0/f 0é")).map_or(0, |facts| facts.nlink());
            (ran.code, linked, folder::read(&top), ran.err)
        };
        let (theirs, ours) = (run("rsync"), run("haul"));
        folder::assert_same(&theirs.2, &ours.2, &format!("{words:?}\n{}", ours.3));
        assert_eq!((theirs.0, theirs.1), (ours.0, ours.1), "{words:?}\n{}", ours.3);
    }
}
