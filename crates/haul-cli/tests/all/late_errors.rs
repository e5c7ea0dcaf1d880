//! File systems as networks have them: errors that come when a file is closed, in the middle of reading or listing, calls that are
//! lacking, NFSv4 ACLs. Whatever goes wrong there: no half under a final name, no source gone, nothing deleted, and it is said.

use haul_testkit::{
    attributes::{ctimes, set_xattr},
    cloudsim::Cloudsim,
    folder::{self, Node, Tree, assert_same, link, noise, write},
    fuse::{Fault, FaultOperation, FsBehaviour, MountedFs},
    lab::{Lab, ProgramResult, until},
};
use rustix::io::Errno;
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
const OLD: u64 = 1_500_000_000_000_000_000;
const LOST: &str = "write error reported on close";

/// The folder `net`, on a network's file system that holds what is in the folder `real`.
fn site(behaviour: FsBehaviour) -> Option<(Lab, MountedFs)> {
    let lab = Lab::new(HAUL);
    let net = MountedFs::new(&lab.path("real"), &lab.path("net"), behaviour)?;
    Some((lab, net))
}

fn errors(ran: &ProgramResult) -> Vec<&str> {
    ran.err.lines().filter(|line| line.contains("ERROR") || line.starts_with("haul rsync: ")).collect()
}

/// A source with a file in which something goes wrong, `wrong`, and some in which nothing does.
fn fill(root: &Path, bad: usize) -> Tree {
    for n in 0..20 {
        write(&root.join(format!("d{}/good{n}", n % 3)), &noise(n, 3_000 + n as usize), TIME + n);
    }
    write(&root.join("d1/wrong"), &noise(99, bad), TIME);
    write(&root.join("large"), &noise(98, 3 * MIB), TIME);
    folder::read(root)
}

/// Each file at the destination is either the source's, complete, or the earlier one. No partial files are left.
fn assert_whole(dst: &Path, src: &Tree, before: &Tree) {
    for (path, node) in folder::read(dst) {
        let known = src.get(&path) == Some(&node) || before.get(&path) == Some(&node);
        assert!(known, "{}: {node:?}", path.display());
    }
}

/// The ways of writing files.
const WAYS: [&[&str]; 7] = [
    &["copy"],
    &["copy", "--fsync=file"],
    &["copy", "--sparse"],
    &["move"],
    &["sync"],
    &["rsync", "-a", "--delete"],
    &["rsync", "-a", "--delay-updates"],
];

#[test]
fn what_is_lost_at_closing_gets_no_name_and_its_source_stays() {
    for (way, errno, size) in WAYS.iter().flat_map(|way| {
        [(Errno::IO, 10_000), (Errno::IO, 2 * MIB), (Errno::DQUOT, 10_000), (Errno::NOSPC, 2 * MIB)]
            .map(|(errno, size)| (way, errno, size))
    }) {
        let Some((lab, net)) = site(FsBehaviour::default()) else { return };
        let what = format!("{way:?} {errno:?} {size}");
        let (src, dst) = (lab.path("src"), lab.path("real/dst"));
        let want = fill(&src, size);
        // Another, older file under that name, and one that only the destination has.
        write(&dst.join("d1/wrong"), b"an older one", OLD);
        write(&dst.join("extra"), b"of the destination", OLD);
        let before = folder::read(&dst);
        net.fault(Fault::new(FaultOperation::Close(4_096), "wrong", errno));
        let slash = if way[0] == "rsync" { ["@src/", "@net/dst/"] } else { ["@src", "@net/dst"] };
        let ran = lab.haul(&[way, &slash[..]].concat());
        assert_ne!(ran.code, 0, "{what}\n{}", ran.err);
        assert_whole(&dst, &want, &before);
        assert_eq!(fs::read(dst.join("d1/wrong")).unwrap(), b"an older one", "{what}");
        assert!(dst.join("extra").exists(), "{what}: {}", ran.err);
        assert_eq!(fs::read(src.join("d1/wrong")).unwrap(), noise(99, size), "{what}");
        let error_lines = errors(&ran);
        if errno == Errno::IO {
            let lines = error_lines.iter().filter(|line| line.contains("wrong") && line.contains(LOST)).count();
            assert_eq!(lines, 1, "{what}\n{}", ran.err);
            // The others arrived.
            let there = folder::files(&folder::read(&dst));
            assert_eq!(there.len(), 20 + 1 + 1 + 1, "{what}\n{}", ran.err);
        } else {
            let lines = error_lines.iter().filter(|line| line.contains("no space left at ")).count();
            assert_eq!(lines, 1, "{what}\n{}", ran.err);
        }
        // What a move took away is at the destination.
        for (path, node) in folder::files(&want) {
            let there = folder::read(&src).get(&path) == Some(&node) || folder::read(&dst).get(&path) == Some(&node);
            assert!(there, "{what}: {} is gone", path.display());
        }
        net.heal();
        lab.haul(&[way, &slash[..]].concat()).ok();
        let now = folder::read(&dst);
        for (path, node) in folder::files(&want) {
            assert_eq!(now.get(&path), Some(&node), "{what}: {}", path.display());
        }
    }
}

#[test]
fn a_download_that_is_lost_at_closing_gets_no_name_and_its_source_stays() {
    let Some((lab, net)) = site(FsBehaviour::default()) else { return };
    let cloud = Cloudsim::with(&[]);
    lab.remote("c", &cloud.endpoint());
    let want = fill(&lab.path("src"), 10_000);
    write(&lab.path("src/d2/wrong too"), &noise(97, 12 * MIB), TIME);
    lab.haul(&["copy", "@src", "c:b"]).ok();
    let keys = cloud.keys("b").len();
    let (dst, quick) = (lab.path("real/dst"), ["--multi-thread-cutoff=6Mi", "--retries=2", "--retries-sleep=1ms"]);
    for (way, errno) in [
        (&["copy"][..], Errno::IO),
        (&["copy", "--fsync=file"], Errno::STALE),
        (&["move"], Errno::IO),
        (&["move"], Errno::DQUOT),
        (&["sync"], Errno::NOSPC),
        (&["copy", "--inplace"], Errno::IO),
    ] {
        let what = format!("{way:?} {errno:?}");
        net.fault(Fault::new(FaultOperation::Close(4_096), "wrong", errno));
        let ran = lab.haul(&[way, &quick, &["c:b", "@net/dst"]].concat());
        assert_ne!(ran.code, 0, "{what}\n{}", ran.err);
        assert_whole(&dst, &want, &Tree::new());
        let there = folder::read(&dst);
        assert!(there.keys().all(|path| !path.to_string_lossy().contains("wrong")), "{what}: {:?}", there.keys());
        let text = if errno == Errno::DQUOT || errno == Errno::NOSPC { "no space left at " } else { LOST };
        assert!(errors(&ran).iter().any(|line| line.contains(text)), "{what}\n{}", ran.err);
        for key in ["d1/wrong", "d2/wrong too"] {
            assert!(cloud.keys("b").iter().any(|k| k.ends_with(key.as_bytes())), "{what}: {key} is gone");
        }
        if way[0] != "move" {
            assert_eq!(cloud.keys("b").len(), keys, "{what}");
        }
        net.heal();
        // An error that passes is over with the next try.
        net.fault(Fault { times: 1, ..Fault::new(FaultOperation::Close(0), "wrong", Errno::IO) });
        lab.haul(&["copy", "--retries=2", "c:b", "@net/dst"]).ok();
        net.heal();
        for (path, node) in folder::files(&folder::read(&lab.path("src"))) {
            assert_eq!(folder::read(&dst).get(&path), Some(&node), "{what}: {}", path.display());
        }
        fs::remove_dir_all(&dst).unwrap();
        lab.haul(&["copy", "@src", "c:b"]).ok();
    }
}

/// Half a file stays where it was when what was added to it, or written over it in place, is lost.
#[test]
fn what_is_written_in_place_is_told_to_be_lost() {
    let Some((lab, net)) = site(FsBehaviour::default()) else { return };
    let bytes = noise(1, 300_000);
    write(&lab.path("src/f"), &bytes, TIME);
    write(&lab.path("real/dst/f"), &bytes[..100_000], OLD);
    net.fault(Fault::new(FaultOperation::Close(150_000), "dst/f", Errno::IO));
    let ran = lab.haul(&["rsync", "-a", "--append", "@src/", "@net/dst/"]).code(23);
    assert!(ran.err.contains(LOST), "{}", ran.err);
    assert_eq!(fs::read(lab.path("real/dst/f")).unwrap(), &bytes[..100_000]);
    let ran = lab.haul(&["rsync", "-a", "--inplace", "@src/", "@net/dst/"]).code(23);
    assert!(ran.err.contains(LOST), "{}", ran.err);
    let ran = lab.haul(&["moveto", "--inplace", "@src/f", "@net/dst/new/dst/f"]);
    assert!(ran.code != 0 && ran.err.contains(LOST), "{}", ran.err);
    assert!(lab.path("src/f").exists() && !lab.path("real/dst/new/dst/f").exists());
    net.heal();
    lab.haul(&["rsync", "-a", "--inplace", "@src/", "@net/dst/"]).ok();
    assert_eq!(fs::read(lab.path("real/dst/f")).unwrap(), bytes);
}

/// The same care for errors that come in time: of writing, of forcing to the device.
#[test]
fn errors_of_writing_and_forcing_leave_no_half() {
    let Some((lab, net)) = site(FsBehaviour::default()) else { return };
    let (src, dst) = (lab.path("src"), lab.path("real/dst"));
    let want = fill(&src, 2 * MIB);
    for (way, of, errno) in [
        (&["move"][..], FaultOperation::Write(4_096), Errno::IO),
        (&["move"], FaultOperation::Write(MIB as u64), Errno::NOSPC),
        (&["sync"], FaultOperation::Write(MIB as u64), Errno::DQUOT),
        (&["move", "--fsync=file"], FaultOperation::Fsync, Errno::IO),
        (&["move", "--fsync=file"], FaultOperation::Fsync, Errno::NOSPC),
    ] {
        let what = format!("{way:?} {of:?} {errno:?}");
        net.fault(Fault::new(of, "wrong", errno));
        let ran = lab.haul(&[way, &["@src", "@net/dst"]].concat());
        assert!(ran.code != 0 && errors(&ran).len() == 1, "{what}\n{}", ran.err);
        assert_whole(&dst, &want, &Tree::new());
        assert!(!dst.join("d1/wrong").exists() && src.join("d1/wrong").exists(), "{what}");
        net.heal();
        lab.haul(&["copy", "@net/dst", "@src"]).ok();
        assert_same(&folder::files(&want), &folder::files(&folder::read(&src)), &what);
        fs::remove_dir_all(&dst).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_is_one_error_and_the_others_arrive() {
    let Some((lab, net)) = site(FsBehaviour::default()) else { return };
    let want = fill(&lab.path("real/src"), 2 * MIB);
    for (way, from) in [("move", MIB), ("sync", 0), ("copy", 2 * MIB - 1), ("rsync", MIB)] {
        let dst = lab.path("dst");
        write(&dst.join("extra"), b"of the destination", OLD);
        net.fault(Fault::new(FaultOperation::Read(from as u64..from as u64 + 1), "wrong", Errno::IO));
        let words: &[&str] =
            if way == "rsync" { &["rsync", "-a", "@net/src/", "@dst/"] } else { &[way, "@net/src", "@dst"] };
        let ran = lab.haul(words);
        assert_ne!(ran.code, 0, "{way}\n{}", ran.err);
        let error_lines = errors(&ran);
        assert!(error_lines.iter().filter(|line| line.contains("wrong")).count() == 1, "{way}\n{}", ran.err);
        assert!(dst.join("extra").exists() && !dst.join("d1/wrong").exists(), "{way}");
        assert_eq!(fs::read(lab.path("real/src/d1/wrong")).unwrap(), noise(99, 2 * MIB));
        assert_eq!(folder::files(&folder::read(&dst)).len(), 20 + 1 + 1, "{way}\n{}", ran.err);
        net.heal();
        lab.haul(&["copy", "@dst", "@net/src", "--exclude=extra"]).ok();
        assert_same(&folder::files(&want), &folder::files(&folder::read(&lab.path("real/src"))), way);
        fs::remove_dir_all(&dst).unwrap();
    }
}

#[test]
fn names_that_cannot_be_looked_up_or_listed_delete_nothing() {
    let Some((lab, net)) = site(FsBehaviour::default()) else { return };
    fill(&lab.path("real/src"), 100);
    lab.haul(&["copy", "@net/src", "@dst"]).ok();
    let before = folder::read(&lab.path("dst"));
    for (of, at, errno) in [
        (FaultOperation::List(3), "src/d1", Errno::IO),
        (FaultOperation::List(0), "src", Errno::STALE),
        (FaultOperation::Lookup, "src/d1/good", Errno::IO),
        (FaultOperation::Lookup, "src/d1", Errno::STALE),
    ] {
        for way in [&["sync"][..], &["rsync", "-a", "--delete"]] {
            let what = format!("{way:?} {of:?} {at} {errno:?}");
            net.fault(Fault::new(of.clone(), at, errno));
            let ran = lab.haul(&[&["--low-level-retries=2", "--retries=1"], way, &["@net/src/", "@dst/"]].concat());
            assert_ne!(ran.code, 0, "{what}\n{}", ran.err);
            assert_same(&before, &folder::read(&lab.path("dst")), &what);
            net.heal();
        }
    }
    // At the destination: what isn't seen there isn't taken for absent, nor replaced by a move.
    write(&lab.path("one/d1/good1"), b"another", TIME);
    net.fault(Fault::new(FaultOperation::List(3), "src/d1", Errno::IO));
    let was = folder::read(&lab.path("real/src"));
    for way in ["sync", "move"] {
        let ran = lab.haul(&[way, "@one", "@net/src"]);
        assert_ne!(ran.code, 0, "{way}\n{}", ran.err);
        let now = folder::read(&lab.path("real/src"));
        assert!(was.keys().all(|path| now.contains_key(path)), "{way}: {:?}", now.keys());
    }
}

/// Without conditional renames, hard links, attributes of users; with whole seconds and other inode numbers each time.
#[test]
fn what_a_file_system_lacks_costs_no_file_and_no_second_copy() {
    let lacking = FsBehaviour {
        no_conditional_rename: true,
        no_hard_links: true,
        no_user_xattrs: true,
        whole_seconds: true,
        ..FsBehaviour::default()
    };
    let Some((lab, mut net)) = site(lacking) else { return };
    let (src, dst) = (lab.path("src"), lab.path("real/dst"));
    fill(&src, 2 * MIB);
    link(&src, "link", "d1/wrong");
    fs::hard_link(src.join("large"), src.join("second name")).unwrap();
    let content = |root: &Path| {
        let node = |(path, node)| match node {
            Node::File(bytes, _) => (path, Node::File(bytes, 0)),
            other => (path, other),
        };
        folder::files(&folder::read(root)).into_iter().map(node).collect::<Tree>()
    };
    for (number, way) in [
        &["copy", "--links", "--modify-window=1s", "@src", "@net/dst"][..],
        &["sync", "-aHAX", "--modify-window=1s", "@src", "@net/dst"],
        &["rsync", "-aHAX", "@src/", "@net/dst/"],
    ]
    .iter()
    .enumerate()
    {
        let ran = lab.haul(way);
        assert_eq!(content(&src), content(&dst), "{way:?}\n{}", ran.err);
        let before = ctimes(&dst);
        drop(net);
        let again = FsBehaviour { first_inode: 1_000_000 * (number as u64 + 1), ..lacking };
        let Some(mounted) = MountedFs::new(&lab.path("real"), &lab.path("net"), again) else { return };
        net = mounted;
        let ran = lab.haul(way);
        assert_eq!(ctimes(&dst), before, "{way:?}\n{}", ran.err);
        // Times that can't be so fine cost no copy either.
        let ran = lab.haul(&["copy", "-v", "--links", "@src", "@net/dst"]).ok();
        assert!(!ran.err.contains(": Copied"), "{way:?}\n{}", ran.err);
        // And back, from inodes that have other numbers than before.
        lab.haul(&["sync", "--links", "@net/dst", "@back"]).ok();
        assert_eq!(content(&dst), content(&lab.path("back")), "{way:?}");
        lab.haul(&["move", "--links", "@net/dst", "@net/moved"]).ok();
        assert_eq!(content(&src), content(&lab.path("real/moved")), "{way:?}");
        fs::remove_dir_all(lab.path("real/moved")).unwrap();
        let _ = fs::remove_dir_all(&dst);
    }
}

fn acl(path: &Path) -> String {
    let mut value = [0; 200];
    let len = rustix::fs::lgetxattr(path, "system.nfs4_acl", &mut value[..]).unwrap();
    String::from_utf8_lossy(&value[..len]).into_owned()
}

#[test]
fn nfsv4_acls_are_kept_compared_and_missed_where_they_cannot_be() {
    let Some((lab, _net)) = site(FsBehaviour { nfs4_acls: true, ..FsBehaviour::default() }) else { return };
    let (src, dst) = (lab.path("net/src"), lab.path("net/dst"));
    for name in ["a", "d/b", "d/c"] {
        write(&lab.path("real/src").join(name), name.as_bytes(), TIME);
    }
    set_xattr(&src.join("a"), "system.nfs4_acl", b"0640 A::user@example:rx");
    set_xattr(&src.join("d/b"), "system.nfs4_acl", b"0604 D:g:group@example:w");
    set_xattr(&src.join("d"), "system.nfs4_acl", b"0750 A:fd:user@example:rwx");
    let names = ["a", "d/b", "d/c", "d"];
    let of = |root: &Path| names.map(|name| acl(&root.join(name)));
    for way in [&["copy", "-A"][..], &["sync", "-aAX"], &["rsync", "-aA"], &["move", "-A"]] {
        let want = of(&src);
        let first = if way[0] == "move" { lab.path("net/away") } else { src.clone() };
        if way[0] == "move" {
            lab.haul(&["copy", "-aAX", "@net/src", "@net/away"]).ok();
        }
        let (from, to) = (format!("{}/", first.display()), format!("{}/", dst.display()));
        let args = [way, &[&from[..], &to]].concat();
        lab.haul(&args).ok();
        assert_eq!(of(&dst), want, "{way:?}");
        if way[0] != "move" {
            let inode = |name: &str| fs::metadata(dst.join(name)).unwrap().ino();
            let (before, inodes) = (ctimes(&lab.path("real/dst")), names.map(inode));
            lab.haul(&args).ok();
            assert_eq!(ctimes(&lab.path("real/dst")), before, "{way:?}: a second run changed something");
            // A changed ACL alone, with the same permissions.
            set_xattr(&dst.join("a"), "system.nfs4_acl", b"0640 A::somebody@else:rwx");
            set_xattr(&dst.join("d"), "system.nfs4_acl", b"0750 A:fd:somebody@else:rwx");
            lab.haul(&args).ok();
            assert_eq!(of(&dst), want, "{way:?}: a changed ACL");
            assert_eq!(names.map(inode), inodes, "{way:?}: it was copied again");
        }
        fs::remove_dir_all(lab.path("real/dst")).unwrap();
    }
    // -X alone leaves them, and a place without them is told of once.
    lab.haul(&["copy", "-X", "@net/src", "@net/dst"]).ok();
    assert_ne!(acl(&dst.join("a")), acl(&src.join("a")));
    let ran = lab.haul(&["copy", "-A", "@net/src", "@elsewhere"]).ok();
    assert_eq!(ran.err.lines().filter(|line| line.contains("ACL")).count(), 1, "{}", ran.err);
}

/// A cache of DVC's believes its names: what was lost must not have one.
#[test]
fn a_cache_of_dvcs_and_a_restored_snapshot_hold_no_half() {
    let Some((lab, net)) = site(FsBehaviour::default()) else { return };
    let run = |args: &[&str]| {
        let mut command = lab.haul_command(args);
        let out = command.current_dir(lab.path("repo")).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    fs::create_dir_all(lab.path("repo/.dvc")).unwrap();
    fs::write(lab.path("repo/.dvc/config"), format!("[cache]\n    dir = {}\n", lab.path("net/cache").display()))
        .unwrap();
    write(&lab.path("repo/small"), &noise(1, 20_000), TIME);
    write(&lab.path("repo/large"), &noise(2, 2 * MIB), TIME);
    let cached = || folder::files(&folder::read(&lab.path("real/cache")));
    for name in ["small", "large"] {
        net.fault(Fault::new(FaultOperation::Close(4_096), "cache", Errno::IO));
        let (code, err) = run(&["dvc", "add", name]);
        assert!(code != 0 && err.contains(LOST), "{name}: {err}");
        assert!(cached().is_empty(), "{name}: {:?}", cached());
        assert_eq!(
            fs::metadata(lab.path("repo").join(name)).unwrap().len(),
            if name == "small" { 20_000 } else { 2 * MIB as u64 }
        );
        net.heal();
    }
    assert_eq!(run(&["dvc", "add", "small", "large"]).0, 0);
    assert_eq!(cached().len(), 2);
    // Out of the cache again, into a workspace on the network.
    fs::rename(lab.path("repo"), lab.path("real/repo")).unwrap();
    std::os::unix::fs::symlink(lab.path("net/repo"), lab.path("repo")).unwrap();
    fs::remove_file(lab.path("real/repo/large")).unwrap();
    net.fault(Fault::new(FaultOperation::Close(4_096), "repo", Errno::IO));
    let (code, err) = run(&["dvc", "checkout"]);
    assert!(code != 0 && err.contains(LOST), "{err}");
    assert!(!lab.path("real/repo/large").exists());
    net.heal();
    assert_eq!(run(&["dvc", "checkout"]).0, 0);
    assert_eq!(fs::read(lab.path("real/repo/large")).unwrap(), noise(2, 2 * MIB));

    let want = fill(&lab.path("src"), 10_000);
    lab.haul(&["snapshot", "push", "@src", "@store", "v"]).ok();
    net.fault(Fault::new(FaultOperation::Close(100), "wrong", Errno::IO));
    let ran = lab.haul(&["snapshot", "pull", "@store", "v", "@net/restored"]);
    assert!(ran.code != 0 && ran.err.contains(LOST), "{}", ran.err);
    assert_whole(&lab.path("real/restored"), &want, &Tree::new());
    net.heal();
    lab.haul(&["snapshot", "pull", "@store", "v", "@net/restored"]).ok();
    assert_eq!(fs::read(lab.path("real/restored/d1/wrong")).unwrap(), noise(99, 10_000));
}

/// Where a test keeps a mount for another process, to end with it.
const KEPT: &str = "HAUL_TEST_KEEPS_MOUNT";

#[test]
fn the_mount_goes_with_the_process_that_made_it() {
    if let Some(place) = std::env::var_os(KEPT).map(PathBuf::from) {
        let _mounted = MountedFs::new(&place.join("real"), &place.join("net"), FsBehaviour::default()).unwrap();
        fs::write(place.join("net/there"), "").unwrap();
        loop {
            std::thread::park();
        }
    }
    let Some((lab, net)) = site(FsBehaviour::default()) else { return };
    let mounted = |place: &Path| {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table.contains(&place.display().to_string())
    };
    let place = lab.path("net");
    assert!(mounted(&place));
    let open = fs::File::create(place.join("open")).unwrap();
    drop(net);
    assert!(!mounted(&place));
    drop(open);
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "late_errors::the_mount_goes_with_the_process_that_made_it"])
        .env(KEPT, lab.path(""))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(until(|| lab.path("net/there").exists()));
    assert!(mounted(&place));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(until(|| !mounted(&place)));
}

#[test]
fn a_file_system_that_lets_wait_is_asked_for_many_files_at_once() {
    let Some((lab, net)) = site(FsBehaviour { delay: Duration::from_millis(8), ..FsBehaviour::default() }) else {
        return;
    };
    for n in 0..640 {
        write(&lab.path("src").join(format!("f{n}")), &noise(n, 1_000), TIME + n);
    }
    let want = folder::read(&lab.path("src"));
    for (from, to) in [("src", "net/there"), ("net/there", "back")] {
        lab.haul(&["copy", &format!("@{from}"), &format!("@{to}")]).ok();
        assert_same(&want, &folder::read(&lab.path(to)), to);
    }
    // On the smallest machines there are four threads for disks, and four for listing them.
    assert!(net.most_at_once() > 16, "{} requests at once", net.most_at_once());
}

/// Files that have other inode numbers by the time they are copied than when they were listed.
#[test]
fn an_inode_number_that_shifts_keeps_no_file_from_being_copied() {
    for way in [&["copy"][..], &["sync", "-aHAX"], &["rsync", "-a"], &["move"]] {
        let Some((lab, _net)) = site(FsBehaviour { shifting_inodes: true, ..FsBehaviour::default() }) else { return };
        let (src, dst) = (lab.path("real/src"), lab.path("dst"));
        for (number, size) in [0, 3_000, 100_000, 2 * MIB].into_iter().enumerate() {
            write(&src.join(format!("d{}/f{number}", number % 2)), &noise(number as u64, size), TIME);
        }
        let want = folder::files(&folder::read(&src));
        let ran = lab.haul(&[way, &["@net/src/", "@dst/"]].concat());
        // A move may take it for another file once it was copied: then it stays, which is said.
        assert!(
            ran.code == 0 || way[0] == "move" && ran.err.contains("changed since it was listed"),
            "{way:?}\n{}",
            ran.err
        );
        assert_same(&want, &folder::files(&folder::read(&dst)), &format!("{way:?}"));
        let again = lab.haul(&[way, &["@net/src/", "@dst/"]].concat()).ok();
        assert_same(&want, &folder::files(&folder::read(&dst)), &again.err);
    }
}

/// Where names are folded, what came in a run under one name isn't taken for what was listed under another, and moved to the
/// backups.
#[test]
fn a_backup_takes_nothing_that_just_came_under_another_name() {
    for names in [&["A"][..], &["A", "a"]] {
        for kept in ["--backup-dir=@net/kept", "--suffix=.bak"] {
            let Some((lab, _net)) = site(FsBehaviour { folds_case: true, ..FsBehaviour::default() }) else { return };
            names.iter().for_each(|name| write(&lab.path("src").join(name), format!("new {name}").as_bytes(), TIME));
            write(&lab.path("real/dst/a"), b"old", OLD);
            let ran = lab.haul(&["sync", kept, "@src", "@net/dst"]);
            let one = |said: &str| ran.err.contains(said);
            assert!(
                one("changed since it was listed") || one("that of another file that was just copied"),
                "{}",
                ran.err
            );
            assert!(ran.code != 0, "{names:?} {kept}: {}", ran.err);
            for place in ["real/kept/a", "real/dst/a.bak"] {
                let kept = fs::read(lab.path(place)).unwrap_or_default();
                assert!(kept.is_empty() || kept == b"old", "{names:?} {place}");
            }
            let there = ["A", "a"].map(|name| fs::read(lab.path("real/dst").join(name)).unwrap_or_default()).concat();
            assert_eq!(there, b"new A", "{names:?} {kept}");
        }
    }
}

/// Two names of one file: the first backup moves the ctime of the second.
#[test]
fn hard_links_are_kept_both() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/stays"), b"x", TIME);
    write(&lab.path("dst/one"), b"old", OLD);
    fs::hard_link(lab.path("dst/one"), lab.path("dst/two")).unwrap();
    lab.haul(&["sync", "--backup-dir=@kept", "@src", "@dst"]).ok();
    let kept = folder::files(&folder::read(&lab.path("kept")));
    assert_eq!(kept.keys().collect::<Vec<_>>(), [Path::new("one"), Path::new("two")]);
}
