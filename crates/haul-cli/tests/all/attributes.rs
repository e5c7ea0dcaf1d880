//! Everything kept between local file systems: a tree with all that a file system can hold, copied by the real binary and
//! compared attribute by attribute; beside rsync where it is installed.

use haul_testkit::{
    attributes::{Facts, assert_same, ctimes, fill, is_root, posix_acl, read, set_time, set_xattr, special},
    folder::write,
    lab::{Lab, ProgramResult, until},
    peers,
};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// A folder on each kind of file system that is here without asking: the temporary folder's, and memory.
fn places() -> Vec<TempDir> {
    let mut places = vec![tempfile::tempdir().unwrap()];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(place) => places.push(place),
        Err(why) => peers::skip(&format!("memory as a file system: /dev/shm: {why}")),
    }
    places
}

/// Runs haul with `@` for the place.
fn haul(place: &TempDir, line: &str) -> ProgramResult {
    let root = format!("{}/", place.path().display());
    let words: Vec<String> = line.split(' ').map(|word| word.replace('@', &root)).collect();
    Lab::new(HAUL).haul(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn everything_is_kept_and_a_second_run_changes_nothing() {
    for place in places() {
        let (src, dst) = (place.path().join("src"), place.path().join("dst"));
        fill(&src);
        haul(&place, "copy -aHAX @src @dst").ok();
        assert_same(&src, &dst);
        let blocks = |path: &Path| fs::metadata(path.join("sparse")).unwrap().blocks();
        assert!(blocks(&dst) <= blocks(&src) + 64, "{} blocks", blocks(&dst));
        let before = ctimes(&dst);
        let ran = haul(&place, "sync -aHAX -v @src @dst").ok();
        assert_eq!(ctimes(&dst), before, "{}", ran.err);
        assert!(!ran.err.contains("not kept") && !ran.err.contains("Attributes:"), "{}", ran.err);
    }
}

#[test]
fn what_crosses_file_systems_and_moves_keeps_everything() {
    let [disk, memory] = &places()[..] else { return };
    let (src, there, back) = (disk.path().join("src"), memory.path().join("there"), memory.path().join("back"));
    fill(&src);
    fill(&disk.path().join("same"));
    let lab = Lab::new(HAUL);
    let path = |path: &Path| path.display().to_string();
    lab.haul(&["copy", "-aHAX", &path(&src), &path(&there)]).ok();
    assert_same(&src, &there);
    // A move within a file system renames, one to another copies: the same comes of both.
    lab.haul(&["move", "-aHAX", &path(&there), &path(&back)]).ok();
    assert_same(&src, &back);
    lab.haul(&["move", "-aHAX", &path(&src), &path(&there)]).ok();
    assert_same(&back, &there);
    let files = |root: &Path| read(root).values().filter(|facts| facts.mode & 0o170_000 != 0o040_000).count();
    assert_eq!(files(&src), 0);
}

#[test]
fn archive_and_metadata_keep_what_they_promise() {
    for place in places() {
        fill(&place.path().join("src"));
        let of = |name: &str| read(&place.path().join(name));
        let src = of("src");
        haul(&place, "copy --archive @src @a").ok();
        haul(&place, "copy -M --links --create-empty-src-dirs @src @m").ok();
        let (a, m) = (of("a"), of("m"));
        for (path, want) in &src {
            // Without -H each name is a file; without -A no ACL comes along, but the bits that it shows as do.
            let is_acl = |name: &str| name.starts_with("system.");
            let (same_as, mut xattrs) = (path.clone(), want.xattrs.clone());
            xattrs.retain(|name, _| !is_acl(name));
            let metadata = Facts { same_as, xattrs, ..want.clone() };
            assert_eq!(m.get(path), Some(&metadata), "{}", path.display());
            let archive = Facts { xattrs: Default::default(), ..metadata };
            assert_eq!(a.get(path), Some(&archive), "{}", path.display());
        }
        assert_eq!((a.len(), m.len()), (src.len(), src.len()));
    }
}

#[test]
fn without_flags_nothing_but_bytes_and_times_comes_along() {
    let place = tempfile::tempdir().unwrap();
    write(&place.path().join("src/f"), b"f", 1_000_000_000);
    set_mode(&place.path().join("src/f"), 0o4700);
    set_xattr(&place.path().join("src/f"), "user.x", b"x");
    haul(&place, "copy @src @dst").ok();
    let dst = read(&place.path().join("dst"));
    assert_eq!(dst[Path::new("f")].mode & 0o7000, 0);
    assert!(dst[Path::new("f")].xattrs.is_empty());
    set_mode(&place.path().join("dst/f"), 0o640);
    let before = ctimes(&place.path().join("dst"));
    haul(&place, "sync @src @dst").ok();
    assert_eq!(ctimes(&place.path().join("dst")), before);
}

#[test]
fn changed_attributes_are_set_without_sending_bytes() {
    for place in places() {
        let (src, dst) = (place.path().join("src"), place.path().join("dst"));
        fill(&src);
        haul(&place, "copy -aHAX @src @dst").ok();
        let inode = |name: &str| fs::symlink_metadata(dst.join(name)).unwrap().ino();
        let names = ["plain", "deep/private", "elsewhere/program", "acl/file", "acl/plain", "pipe", "link", "shared"];
        let before = names.map(inode);
        set_mode(&dst.join("plain"), 0o600);
        set_xattr(&dst.join("plain"), "user.binary", b"another");
        set_xattr(&dst.join("deep/private"), "user.extra", b"to go");
        set_xattr(&dst.join("acl/plain"), "system.posix_acl_access", &posix_acl(1, 2));
        set_xattr(&dst.join("acl"), "system.posix_acl_default", &posix_acl(3, 4));
        set_mode(&dst.join("pipe"), 0o666);
        set_time(&dst.join("shared"), 1_234_567_890, 5);
        set_mode(&dst.join("deep"), 0o700);
        if is_root("owners") {
            std::os::unix::fs::lchown(dst.join("link"), Some(9), Some(9)).unwrap();
            // A new owner takes the capability away as well; both come back.
            std::os::unix::fs::chown(dst.join("elsewhere/program"), Some(9), Some(9)).unwrap();
        }
        let would = haul(&place, "sync -aHAX -n @src @dst").ok();
        assert!(would.err.contains("plain: Skipped set attributes as --dry-run is set"), "{}", would.err);
        assert_eq!(mode(&dst.join("plain")), 0o600);
        let ran = haul(&place, "sync -aHAX -v @src @dst").ok();
        assert!(!ran.err.contains("Copied"), "{}", ran.err);
        assert!(ran.err.contains("plain: Set attributes in destination"), "{}", ran.err);
        assert_same(&src, &dst);
        assert_eq!(names.map(inode), before);
    }
}

#[test]
fn rsync_makes_the_same_tree() {
    let Some(rsync) = peers::need("rsync") else { return };
    for place in places() {
        fill(&place.path().join("src"));
        let from = format!("{}/", place.path().join("src").display());
        for options in ["-a", "-aH", "-aHAX", "-aX", "-aA"] {
            let (ours, theirs) = (place.path().join("haul"), place.path().join("rsync"));
            haul(&place, &format!("copy {options} @src @haul")).ok();
            let status = Command::new(&rsync).arg(options).arg(&from).arg(&theirs).status().unwrap();
            assert!(status.success(), "rsync {options}");
            // rsync leaves the times of devices, FIFOs and sockets as they come.
            let timeless = |root: &Path| {
                let mut all = read(root);
                let special = |facts: &Facts| !matches!(facts.mode >> 12, 0o4 | 0o10 | 0o12);
                all.values_mut().filter(|facts| special(facts)).for_each(|facts| facts.mtime = 0);
                all
            };
            assert_eq!(timeless(&ours), timeless(&theirs), "rsync {options}");
            // Nothing that rsync would change after haul.
            let again = Command::new(&rsync).arg(options).args(["-n", "-i", "--delete"]).arg(&from).arg(&ours).output();
            assert_eq!(String::from_utf8_lossy(&again.unwrap().stdout), "", "rsync {options}");
            for made in [ours, theirs] {
                fs::remove_dir_all(made).unwrap();
            }
        }
    }
}

#[test]
fn changes_of_permissions_are_rsyncs() {
    let Some(rsync) = peers::need("rsync") else { return };
    let place = tempfile::tempdir().unwrap();
    let src = place.path().join("src");
    for (name, bits) in [("a", 0o644), ("b", 0o755), ("c", 0o4711), ("d/e", 0o600), ("d/f", 0o2775), ("g/h", 0o444)] {
        write(&src.join(name), name.as_bytes(), 1_000_000_000);
        set_mode(&src.join(name), bits);
    }
    set_mode(&src.join("g"), 0o3770);
    let from = format!("{}/", src.display());
    for change in [
        "644",
        "D755,F644",
        "u+w",
        "go-rwx",
        "Du=rwx,Dg=rx,Do=,Fu=rw",
        "a+X",
        "+X",
        "ug=rwX,o=",
        "u-s,g+s",
        "Fa-x,D+t",
        "=r,u+rwX",
        "o=w",
        "u=s",
        "+w",
        "Fo+r,Fg=X",
        "ugo=rwx,go-w",
        "F2755",
    ] {
        for archive in ["-a", "-r"] {
            let (ours, theirs) = (place.path().join("haul"), place.path().join("rsync"));
            let chmod = format!("--chmod={change}");
            let own = if archive == "-a" { "-a" } else { "--links" };
            haul(&place, &format!("copy {own} {chmod} @src @haul")).ok();
            let ran = Command::new(&rsync).args([archive, "-t", &chmod]).arg(&from).arg(&theirs).status().unwrap();
            assert!(ran.success(), "rsync {chmod}");
            let modes = |root: &Path| {
                let all = read(root).into_iter().filter(|(path, _)| archive == "-a" || root.join(path).is_file());
                all.map(|(path, facts)| (path, format!("{:o}", facts.mode))).collect::<Vec<_>>()
            };
            assert_eq!(modes(&ours), modes(&theirs), "{archive} {chmod}");
            for made in [ours, theirs] {
                fs::remove_dir_all(made).unwrap();
            }
        }
    }
}

#[test]
fn owners_are_given_and_executability_follows() {
    if !is_root("giving files away") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (src, dst) = (place.path().join("src"), place.path().join("dst"));
    write(&src.join("run"), b"run", 1_000_000_000);
    write(&src.join("read"), b"read", 1_000_000_000);
    set_mode(&src.join("run"), 0o755);
    write(&dst.join("read"), b"longer", 1_000_000_000);
    set_mode(&dst.join("read"), 0o770);
    haul(&place, "copy --chown 77:root --executability @src @dst").ok();
    let owner = |name: &str| read(&dst)[Path::new(name)].owner;
    assert_eq!((owner("run"), owner("read"), owner("")), ((77, 0), (77, 0), (77, 0)));
    assert_eq!((mode(&dst.join("run")) & 0o111, mode(&dst.join("read"))), (0o111, 0o660));
    let before = ctimes(&dst);
    haul(&place, "copy --chown 77:root --executability @src @dst").ok();
    assert_eq!(ctimes(&dst), before);
    // Between disks a user's own metadata goes with it, and stays.
    haul(&place, "copy -M --metadata-set colour=blue --metadata-set mode=640 @src @m").ok();
    let made = read(&place.path().join("m"));
    assert_eq!(made[Path::new("run")].xattrs["user.colour"], b"blue");
    assert_eq!(made[Path::new("run")].mode & 0o7777, 0o640);
    let before = ctimes(&place.path().join("m"));
    haul(&place, "sync -M --metadata-set colour=blue --metadata-set mode=640 @src @m").ok();
    assert_eq!(ctimes(&place.path().join("m")), before);
    let wrong = haul(&place, "copy --chmod u+q @src @dst").code(2);
    assert!(wrong.err.contains("--chmod: \"u+q\" isn't a change of permissions"), "{}", wrong.err);
}

#[test]
fn access_times_are_kept_when_asked_and_are_no_difference() {
    let place = tempfile::tempdir().unwrap();
    let src = place.path().join("src");
    write(&src.join("f"), b"f", 1_000_000_000);
    set_time(&src.join("f"), 1_000_000_000, 5);
    haul(&place, "copy --atimes @src @dst").ok();
    let st = fs::metadata(place.path().join("dst/f")).unwrap();
    assert_eq!((st.atime(), st.atime_nsec(), st.mtime()), (1_000_000_000, 5, 1_000_000_000));
    let before = ctimes(&place.path().join("dst"));
    haul(&place, "sync --atimes @src @dst").ok();
    assert_eq!(ctimes(&place.path().join("dst")), before);
}

/// Two names of one file in `src`, in two folders, and two files of their own.
fn linked(place: &TempDir) -> (PathBuf, PathBuf) {
    let (src, dst) = (place.path().join("src"), place.path().join("dst"));
    write(&src.join("a/one"), b"one file", 1_000_000_000);
    fs::create_dir_all(src.join("z")).unwrap();
    fs::hard_link(src.join("a/one"), src.join("z/two")).unwrap();
    fs::hard_link(src.join("a/one"), src.join("z/three")).unwrap();
    write(&src.join("own"), b"its own", 1_000_000_000);
    write(&src.join("own too"), b"its own", 1_000_000_000);
    (src, dst)
}

#[test]
fn names_of_one_file_are_mended() {
    for place in places() {
        let (src, dst) = linked(&place);
        let ran = haul(&place, "copy -aH -v @src @dst").ok();
        assert!(ran.err.contains("z/two: Linked to a/one") && ran.err.contains("Hard links:    2"), "{}", ran.err);
        assert_same(&src, &dst);
        // One name torn off, one gone, two that are one and should not be, one that the source doesn't have.
        fs::remove_file(dst.join("z/two")).unwrap();
        fs::copy(dst.join("a/one"), dst.join("z/two")).unwrap();
        fs::remove_file(dst.join("z/three")).unwrap();
        fs::remove_file(dst.join("own too")).unwrap();
        fs::hard_link(dst.join("own"), dst.join("own too")).unwrap();
        fs::hard_link(dst.join("a/one"), dst.join("extra")).unwrap();
        let before = read(&dst);
        let would = haul(&place, "sync -aH -n @src @dst").ok();
        assert!(would.err.contains("z/two: Skipped link as --dry-run is set"), "{}", would.err);
        assert_eq!(read(&dst), before);
        let ran = haul(&place, "sync -aH -v @src @dst").ok();
        assert_same(&src, &dst);
        assert!(!ran.err.contains("a/one: Copied"), "{}", ran.err);
        let before = ctimes(&dst);
        haul(&place, "sync -aH @src @dst").ok();
        assert_eq!(ctimes(&dst), before);
        // New content goes once, and all names show it.
        fs::remove_file(src.join("a/one")).unwrap();
        write(&src.join("z/two"), b"other bytes, and more", 1_000_000_009);
        fs::hard_link(src.join("z/three"), src.join("a/one")).unwrap();
        let ran = haul(&place, "sync -aH -v @src @dst").ok();
        assert_same(&src, &dst);
        assert_eq!(ran.err.matches(": Copied").count(), 1, "{}", ran.err);
        let ran = haul(&place, "move -aH -v @src @moved").ok();
        assert_same(&dst.join("z"), &place.path().join("moved/z"));
        assert_eq!(fs::metadata(place.path().join("moved/a/one")).unwrap().nlink(), 3, "{}", ran.err);
    }
}

#[test]
fn the_rules_about_what_exists_hold_for_further_names_too() {
    let place = tempfile::tempdir().unwrap();
    let (_, dst) = linked(&place);
    // The first name stays what it is; the others must not become names of that.
    write(&dst.join("a/one"), b"mine", 1_000_000_005);
    haul(&place, "copy -aH --ignore-existing @src @dst").ok();
    assert_eq!(fs::read(dst.join("a/one")).unwrap(), b"mine");
    assert_eq!(fs::read(dst.join("z/two")).unwrap(), b"one file");
    let inode = |name: &str| fs::metadata(dst.join(name)).unwrap().ino();
    assert_eq!(inode("z/two"), inode("z/three"));
    // A name that is newer stays with --update.
    write(&dst.join("a/one"), b"one file", 1_000_000_000);
    fs::remove_file(dst.join("z/two")).unwrap();
    write(&dst.join("z/two"), b"newer", 1_000_000_009);
    haul(&place, "copy -aH --update @src @dst").ok();
    assert_eq!(fs::read(dst.join("z/two")).unwrap(), b"newer");
    assert_eq!(inode("a/one"), inode("z/three"));
    haul(&place, "sync -aH --backup-dir @kept @src @dst").ok();
    assert_eq!(fs::read(place.path().join("kept/z/two")).unwrap(), b"newer");
    assert_eq!(inode("a/one"), inode("z/two"));
}

#[test]
fn specials_replace_and_are_deleted_as_files_are() {
    for place in places() {
        let (src, dst) = (place.path().join("src"), place.path().join("dst"));
        fs::create_dir_all(&src).unwrap();
        fs::create_dir_all(&dst).unwrap();
        special(&src.join("pipe"), rustix::fs::FileType::Fifo, 0, 0o644);
        write(&src.join("file"), b"now a file", 1_000_000_000);
        write(&dst.join("pipe"), b"was a file", 1_000_000_000);
        special(&dst.join("file"), rustix::fs::FileType::Fifo, 0, 0o644);
        special(&dst.join("extra"), rustix::fs::FileType::Fifo, 0, 0o644);
        // Left out without being asked for, with a word.
        let ran = haul(&place, "copy @src @plain").ok();
        assert!(ran.err.contains("pipe: not copied: a symlink or special file"), "{}", ran.err);
        haul(&place, "sync -a @src @dst").ok();
        assert_same(&src, &dst);
        haul(&place, "move -a @dst @moved").ok();
        assert_same(&src, &place.path().join("moved"));
        assert!(!dst.join("pipe").exists());
    }
}

/// Runs haul as a user who isn't root, with `@` for the place.
fn haul_as(place: &TempDir, user: u32, line: &str) -> Option<ProgramResult> {
    let program = place.path().join("haul");
    if !program.exists() {
        fs::copy(HAUL, &program).unwrap();
        set_mode(place.path(), 0o755);
    }
    let root = format!("{}/", place.path().display());
    let words = line.split(' ').map(|word| word.replace('@', &root));
    let run = || {
        let mut command = Command::new(&program);
        let command = command.env_clear().env("HOME", place.path()).current_dir("/").uid(user).gid(user);
        command.args(words.clone()).arg("--no-journal").output()
    };
    // A process that another test has just forked may still have the copy open for writing.
    let output = loop {
        match run() {
            Err(why) if why.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            output => break output,
        }
    };
    match output {
        Ok(output) => Some(ProgramResult {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            line: line.into(),
        }),
        Err(why) => {
            peers::skip(&format!("running as another user: {why}"));
            None
        }
    }
}

#[test]
fn who_is_not_root_keeps_what_they_may_and_is_told_the_rest_once() {
    const USER: u32 = 4321;
    if !is_root("becoming another user") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (src, dst) = (place.path().join("src"), place.path().join("dst"));
    for at in 0..20 {
        write(&src.join(format!("closed/in/{at}")), b"theirs", 1_000_000_000);
        std::os::unix::fs::chown(src.join(format!("closed/in/{at}")), Some(at % 2), Some(USER)).unwrap();
    }
    set_xattr(&src.join("closed/in/1"), "user.x", b"\xff");
    special(&src.join("null"), rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3), 0o666);
    special(&src.join("pipe"), rustix::fs::FileType::Fifo, 0, 0o644);
    set_mode(&src.join("closed/in/1"), 0o6444);
    for closed in ["closed/in", "closed"] {
        set_mode(&src.join(closed), 0o555);
    }
    fs::create_dir(&dst).unwrap();
    std::os::unix::fs::chown(&dst, Some(USER), Some(USER)).unwrap();
    let Some(ran) = haul_as(&place, USER, "copy -aHAX @src @dst") else { return };
    let ran = ran.ok();
    let count_lines = |text: &str| ran.err.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count_lines("not kept: only root may give files away"), 1, "{}", ran.err);
    assert_eq!(count_lines("1 device not copied: only root may make them"), 1, "{}", ran.err);
    assert_eq!(mode(&dst.join("closed/in")), 0o555);
    // The rights of another are not given away with the file.
    assert_eq!(mode(&dst.join("closed/in/1")), 0o2444);
    assert_eq!(read(&dst)[Path::new("closed/in/1")].xattrs["user.x"], b"\xff");
    let before = ctimes(&dst);
    let again = haul_as(&place, USER, "sync -aHAX -v @src @dst").unwrap().ok();
    assert_eq!(ctimes(&dst), before, "{}", again.err);
    // Into directories that forbid writing, and attributes of a file that forbids it.
    set_mode(&src.join("closed/in"), 0o755);
    write(&src.join("closed/in/new"), b"new", 1_000_000_000);
    set_xattr(&src.join("closed/in/1"), "user.x", b"changed");
    set_mode(&src.join("closed/in"), 0o555);
    set_time(&src.join("closed/in"), 1_000_000_001, 0);
    for extra in ["closed/in/extra", "closed/gone/extra"] {
        write(&dst.join(extra), b"extra", 1_000_000_000);
    }
    std::os::unix::fs::chown(dst.join("closed/gone"), Some(USER), None).unwrap();
    set_mode(&dst.join("closed/gone"), 0o555);
    haul_as(&place, USER, "sync -aHAX @src @dst").unwrap().ok();
    assert!(!dst.join("closed/in/extra").exists() && !dst.join("closed/gone").exists());
    assert_eq!(fs::read(dst.join("closed/in/new")).unwrap(), b"new");
    let now = read(&dst);
    assert_eq!(now[Path::new("closed/in/1")].xattrs["user.x"], b"changed");
    assert_eq!((mode(&dst.join("closed/in")), mode(&dst.join("closed/in/1"))), (0o555, 0o2444));
    assert_eq!(now[Path::new("closed/in")].mtime, 1_000_000_001_000_000_000);
}

#[test]
fn attributes_that_do_not_fit_are_said_and_the_rest_is_kept() {
    let [disk, memory] = &places()[..] else { return };
    let (src, dst) = (memory.path().join("src"), disk.path().join("dst"));
    write(&src.join("f"), b"f", 1_000_000_000);
    // More than ext4 has room for, less than the kernel's most.
    set_xattr(&src.join("f"), "user.big", &[7; 20_000]);
    set_xattr(&src.join("f"), "user.small", b"small");
    let lab = Lab::new(HAUL);
    let path = |path: &Path| path.display().to_string();
    let ran = lab.haul(&["copy", "-aX", &path(&src), &path(&dst)]).ok();
    let kept = read(&dst).remove(Path::new("f")).unwrap().xattrs;
    assert_eq!(kept.get("user.small"), read(&src)[Path::new("f")].xattrs.get("user.small"));
    if kept.contains_key("user.big") {
        return peers::skip("an attribute that doesn't fit: the temporary folder's file system takes it");
    }
    let why =
        "extended attributes of 1 file not kept, or not all: the destination's file system takes none of that kind";
    assert_eq!(ran.err.matches(why).count(), 1, "{}", ran.err);
}

#[test]
fn what_arrives_is_private_until_it_has_its_own_permissions() {
    let place = tempfile::tempdir().unwrap();
    let src = place.path().join("src");
    write(&src.join("secret/f"), &[1; 100_000], 1_000_000_000);
    set_mode(&src.join("secret"), 0o700);
    // A job that is stopped before its end leaves its directories closed.
    haul(&place, "copy -a --max-transfer 1B --cutoff-mode hard @src @dst");
    let made = place.path().join("dst/secret");
    assert!(!made.exists() || mode(&made) & 0o077 == 0);
    haul(&place, "copy -a @src @dst").ok();
    assert_same(&src, &place.path().join("dst"));
}

/// For every route of the bytes, and also if the run is killed.
#[test]
fn nobody_else_can_read_what_is_private_while_it_comes() {
    let ways = [
        ("copy -a --bwlimit 64k @s @d/new", true),
        ("copy -a --bwlimit 64k --inplace @s @d/new", true),
        ("rsync -rp --bwlimit=64 @s @t @d/", true),
        ("rsync -r --bwlimit=64 @s/ @d/", false),
    ];
    for (line, dirs) in ways {
        let lab = Lab::new(HAUL);
        let (source, dest) = (lab.path("s"), lab.path("d"));
        for file in [source.join("sub/f"), lab.path("t/g")] {
            write(&file, &[7; 1 << 20], 1_000_000_000);
            set_mode(&file, 0o600);
        }
        for dir in [&source, &source.join("sub"), &lab.path("t")] {
            set_mode(dir, 0o700);
        }
        fs::create_dir(&dest).unwrap();
        set_mode(&dest, 0o755);
        let mut child = lab.start(&line.split(' ').collect::<Vec<_>>());
        let modes = || read_modes(&dest);
        assert!(until(|| modes().iter().any(|(_, is_dir, _)| !is_dir)), "{line}: nothing came");
        child.kill().unwrap();
        child.wait().unwrap();
        for (path, is_dir, mode) in modes().into_iter().filter(|(_, is_dir, _)| dirs || !is_dir) {
            assert_eq!(mode & 0o077, 0, "{line}: {} {} {mode:o}", path.display(), if is_dir { "dir" } else { "file" });
        }
    }
}

/// Everything below a folder, whether it is a directory, and its permissions.
fn read_modes(folder: &Path) -> Vec<(PathBuf, bool, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // What is being copied may be renamed meanwhile.
        let Ok(st) = fs::symlink_metadata(entry.path()) else { continue };
        found.push((entry.path(), st.is_dir(), st.mode() & 0o7777));
        found.extend(read_modes(&entry.path()));
    }
    found
}

/// A folder that can't be looked through is said, and leaves the others no dirtier.
#[test]
fn cleanup_goes_on_after_a_closed_folder() {
    if !is_root("another user") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    // The second half of the digits follows from the first.
    let partial = place.path().join("in/z/.haul-123456789eb7f594.x.partial");
    write(&partial, b"half", 1_000_000_000_000_000_000);
    fs::create_dir(place.path().join("in/a")).unwrap();
    for name in ["in", "in/z", "in/a", "in/z/.haul-123456789eb7f594.x.partial"] {
        std::os::unix::fs::chown(place.path().join(name), Some(4711), Some(4711)).unwrap();
    }
    set_mode(&place.path().join("in/a"), 0);
    for flag in ["--dry-run", "-v"] {
        let Some(ran) = haul_as(&place, 4711, &format!("cleanup {flag} @in")) else { return };
        assert!(ran.code == 1 && ran.err.contains("a/: can't clean up: Permission denied"), "{} {}", ran.code, ran.err);
        assert!(ran.err.contains("z/.haul-123456789eb7f594.x.partial: "), "{flag}: {}", ran.err);
        assert_eq!(partial.exists(), flag == "--dry-run");
    }
}
