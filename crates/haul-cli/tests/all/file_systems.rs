//! The same tree on each kind of file system that can be mounted here, by loop device: into it, within it and out of it again,
//! with holes kept, and without copying bytes where the file system shares them.

use haul_testkit::{
    attributes::{assert_same as assert_same_attributes, is_root, posix_acl, set_time, set_xattr, special},
    folder::{self, Tree, assert_same, link, noise, raw_name, write},
    lab::Lab,
    peers,
};
use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::Command,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: u64 = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
/// Bytes of an image, which takes up what is written to it. xfs wants 300 MB at least.
const IMAGE: u64 = 500 * MIB;

/// A file system in a file; unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    /// Makes and mounts one, or says why that can't be.
    fn new(lab: &Lab, kind: &str, options: &[&str]) -> Option<Disk> {
        let (image, at) = (lab.path(&format!("{kind}.img")), lab.path(kind));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(IMAGE).unwrap();
        let mkfs = format!("mkfs.{kind}");
        let ran = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
            let reason = String::from_utf8_lossy(&output.stderr).trim().lines().next().unwrap_or_default().to_owned();
            if output.status.success() { Ok(()) } else { Err(format!("{program}: {reason}")) }
        };
        let (image, place) = (image.to_str().unwrap(), at.to_str().unwrap());
        let made = ran(&mkfs, &[options, &[image]].concat()).and_then(|()| ran("mount", &["-o", "loop", image, place]));
        match made {
            Ok(()) => Some(Disk(at)),
            Err(why) => {
                peers::skip(&format!("{kind} can't be tried here: {why}"));
                None
            }
        }
    }

    /// Bytes that are in use, with all that is still in memory written out.
    fn used(&self) -> u64 {
        let dir = fs::File::open(&self.0).unwrap();
        rustix::fs::syncfs(&dir).unwrap();
        let st = rustix::fs::fstatvfs(&dir).unwrap();
        (st.f_blocks - st.f_bfree) * st.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The loop device goes with its mount.
        let unmounted = Command::new("umount").arg(&self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// Small and large files, one with holes, one that is a hole, odd names, links.
fn make(root: &Path) {
    for number in 0..100 {
        write(
            &root.join(format!("many/{}/f{number}", number % 7)),
            &noise(number, 37 * number as usize),
            TIME + number,
        );
    }
    for number in 0..300 {
        write(&root.join(format!("small/{}/f{number}", number % 3)), &noise(number, 50_000), TIME);
    }
    write(&root.join("large"), &noise(7, 16 * MIB as usize + 13), TIME);
    write(&root.join("middle"), &noise(8, 70_001), TIME);
    for name in ["a b", "-dash", "line\nbreak", "ümläut", "*?[x]", "\u{1F980}", " lead", ".dot", "trail "] {
        write(&root.join("odd").join(name), name.as_bytes(), TIME);
    }
    write(&root.join("odd").join(raw_name()), b"not text", TIME);
    fs::create_dir_all(root.join("empty/in")).unwrap();
    link(root, "link", "middle");
    link(root, "dangling", "nowhere");
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(64 * MIB).unwrap();
    sparse.write_all_at(&noise(9, 100_000), 5 * MIB).unwrap();
    sparse.write_all_at(&noise(10, 5_000), 50 * MIB + 3).unwrap();
    fs::File::create(root.join("hole")).unwrap().set_len(16 * MIB).unwrap();
}

/// What is at the destination, by inode and time: a file that was written again has another.
fn written(root: &Path, tree: &Tree) -> Vec<(PathBuf, u64, i64)> {
    let facts = |path: &PathBuf| {
        let st = fs::symlink_metadata(root.join(path)).unwrap();
        (path.clone(), st.ino(), st.ctime())
    };
    tree.keys().map(facts).collect()
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Everything about one kind of file system.
fn try_out(kind: &str, options: &[&str], shares: bool) {
    let lab = Lab::new(HAUL);
    let Some(disk) = Disk::new(&lab, kind, options) else { return };
    let src = lab.path("src");
    make(&src);
    let want = folder::read(&src);
    let copy = |from: &str, to: &str, more: &[&str]| {
        lab.haul(&[&["copy", "--links", "--create-empty-src-dirs", from, to], more].concat()).ok();
        assert_same(&want, &folder::read(&lab.path(&to[1..])), &format!("{kind}: {from} to {to} {more:?}"));
    };
    let inside = format!("@{kind}/in");
    for (more, to) in [(&[][..], "in"), (&["--fsync=file"], "in-file"), (&["--fsync=end", "--drop-cache"], "in-end")] {
        copy("@src", &format!("@{kind}/{to}"), more);
        for name in ["sparse", "hole"] {
            let size = allocated(&disk.0.join(to).join(name));
            assert!(size < MIB, "{kind}: {name} takes {size} bytes");
        }
        if to != "in" {
            fs::remove_dir_all(disk.0.join(to)).unwrap();
        }
    }
    let before = written(&disk.0.join("in"), &want);
    copy("@src", &inside, &[]);
    assert_eq!(written(&disk.0.join("in"), &want), before, "{kind}: the second run changed something");

    let used = disk.used();
    copy(&inside, &format!("@{kind}/again"), &[]);
    let grown = disk.used().saturating_sub(used);
    // A copy is 32 MB, of which the small files are 15; what is shared costs names and inodes.
    assert_eq!(grown < 8 * MIB, shares, "{kind}: copying within it took {grown} bytes");
    assert!(allocated(&disk.0.join("again/sparse")) < MIB, "{kind}: the hole was filled");

    copy(&inside, "@back", &[]);
    assert!(allocated(&lab.path("back/sparse")) < MIB, "{kind}: the hole was filled on the way back");
    lab.haul(&["check", "--links", &inside, "@back"]).ok();
}

#[test]
fn ext4() {
    try_out("ext4", &["-q", "-F"], false);
}

/// Directories that don't say of what kind their entries are (`DT_UNKNOWN`).
#[test]
fn ext4_without_kinds_in_directories() {
    try_out("ext4", &["-q", "-F", "-O", "^filetype"], false);
}

#[test]
fn xfs() {
    try_out("xfs", &["-q", "-m", "reflink=1"], true);
}

#[test]
fn btrfs() {
    try_out("btrfs", &["-q"], true);
}

/// `--sparse` makes holes of zeros, also within small files and at the end, and leaves the content as it is.
#[test]
fn zeros_become_holes() {
    let lab = Lab::new(HAUL);
    let mut bytes = vec![0; 4 * MIB as usize];
    bytes[100..200].copy_from_slice(&noise(1, 100));
    bytes[2_000_000..2_100_000].copy_from_slice(&noise(2, 100_000));
    write(&lab.path("src/large"), &bytes, TIME);
    write(&lab.path("src/small"), &bytes[..60_000], TIME);
    write(&lab.path("src/zeros"), &bytes[3_000_000..3_900_000], TIME);
    write(&lab.path("src/odd"), &bytes[..1_234_567], TIME);
    lab.haul(&["copy", "@src", "@dense"]).ok();
    lab.haul(&["copy", "--sparse", "@src", "@dst"]).ok();
    let want = folder::read(&lab.path("src"));
    assert_same(&want, &folder::read(&lab.path("dst")), "--sparse");
    assert_same(&want, &folder::read(&lab.path("dense")), "without");
    for (name, most) in [("large", 200_000), ("small", 8192), ("zeros", 0), ("odd", 8192)] {
        let (dense, sparse) = (allocated(&lab.path("dense").join(name)), allocated(&lab.path("dst").join(name)));
        assert!(sparse <= most && sparse < dense, "{name}: {sparse} bytes, {dense} without");
    }
    // The way through memory, as from a cloud: a source that is no copy domain of the destination.
    lab.haul(&["copyto", "--sparse", "--inplace", "@src/large", "@dst/small"]).ok();
    assert_eq!(fs::read(lab.path("dst/small")).unwrap(), bytes);
    write(&lab.path("full"), &noise(3, 4 * MIB as usize), TIME + 5);
    lab.haul(&["copyto", "--sparse", "--inplace", "@src/large", "@full", "--ignore-times"]).ok();
    assert_eq!(fs::read(lab.path("full")).unwrap(), bytes, "what was there before shows through");
    assert!(allocated(&lab.path("full")) < 300_000);
}

/// A folder of the source that is mounted elsewhere too is still in the source.
#[test]
fn a_destination_in_the_source_is_found_through_links_and_bind_mounts() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/in/f"), b"x", TIME);
    fs::create_dir(lab.path("bound")).unwrap();
    link(&lab.path(""), "way", "src/in");
    let refused = |dst: &str| {
        let ran = lab.haul(&["copy", "@src", dst]);
        assert!(ran.code != 0 && ran.err.contains(" is inside the source "), "{dst}: {}", ran.err);
        assert!(!lab.path("src/in/new").exists());
    };
    refused("@way");
    refused("@way/new");
    let bound = lab.path("bound");
    let mounted = Command::new("mount").arg("--bind").arg(lab.path("src/in")).arg(&bound).output();
    if !mounted.is_ok_and(|out| out.status.success()) {
        return peers::skip("no right to mount a folder elsewhere");
    }
    let _unmounted = Disk(bound);
    refused("@bound");
    refused("@bound/new");
}

/// xfs shows root what it keeps ACLs in as attributes too; taking those away takes the ACLs off the disk.
#[test]
fn acls_on_xfs_outlast_a_second_run() {
    let lab = Lab::new(HAUL);
    let Some(disk) = Disk::new(&lab, "xfs", &["-q"]) else { return };
    write(&lab.path("src/f"), b"x", TIME);
    set_xattr(&lab.path("src/f"), "system.posix_acl_access", &posix_acl(1234, 4321));
    set_xattr(&lab.path("src"), "system.posix_acl_default", &posix_acl(1234, 4321));
    lab.haul(&["copy", "-aAX", "@src", "@xfs/dst"]).ok();
    let again = lab.haul(&["copy", "-aAX", "-v", "@src", "@xfs/dst"]).ok();
    assert!(!again.err.contains("Set attributes"), "{}", again.err);
    for (name, kept) in [("dst/f", "trusted.SGI_ACL_FILE"), ("dst", "trusted.SGI_ACL_DEFAULT")] {
        let mut value = [0; 512];
        rustix::fs::getxattr(disk.0.join(name), kept, &mut value[..]).expect("the ACL is on the disk");
    }
    // Nor does it go along as an attribute that other file systems only store.
    lab.haul(&["copy", "-aAX", "@xfs/dst", "@back"]).ok();
    assert_same_attributes(&lab.path("src"), &lab.path("back"));
    lab.haul(&["copy", "-pX", "@xfs/dst", "@xfs/plain"]).ok();
    let mut value = [0; 512];
    rustix::fs::getxattr(disk.0.join("plain/f"), "system.posix_acl_access", &mut value[..]).expect_err("-X without -A");
}

/// A file system of Windows in user space, by `mount` with the image and the place; unmounted when dropped.
fn windows(lab: &Lab, mkfs: &str, mount: &[&str], loops: bool) -> Option<Disk> {
    let (image, at) = (lab.path("windows.img"), lab.path("win"));
    let skip = |why: &str| {
        peers::skip(why);
        None
    };
    if peers::find(mkfs).is_none() || peers::find(mount[0]).is_none() {
        return skip(&format!("{mkfs} or {} isn't installed", mount[0]));
    }
    fs::create_dir(&at).unwrap();
    fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let options: &[&str] = if loops { &[] } else { &["-F", "-q"] };
    let made = Command::new(mkfs).args(options).arg(&image).output();
    if !made.is_ok_and(|out| out.status.success()) {
        return skip(&format!("{mkfs} failed"));
    }
    let mut device = image.clone();
    if loops {
        let found = Command::new("losetup").args(["-f", "--show"]).arg(&image).output();
        match found {
            Ok(out) if out.status.success() => device = String::from_utf8_lossy(&out.stdout).trim().into(),
            _ => return skip("no loop device"),
        }
    }
    let mounted = Command::new(mount[0]).args(&mount[1..]).arg(&device).arg(&at).output();
    if loops {
        // It goes when its mount goes.
        let _ = Command::new("losetup").arg("-d").arg(&device).status();
    }
    if mounted.is_ok_and(|out| out.status.success()) {
        Some(Disk(at))
    } else {
        skip("no file systems in user space here")
    }
}

/// Where `A` and `a` are one file, what came first in a run stays and the other is an error, whatever way the bytes go.
#[test]
fn two_names_that_are_one_at_the_destination_are_an_error() {
    let lab = Lab::new(HAUL);
    let Some(disk) = windows(&lab, "mkfs.ntfs", &["lowntfs-3g", "-o", "ignore_case"], false) else { return };
    let names = [("A", "upper"), ("a", "lower"), ("Dir/f", "1"), ("dir/f", "2"), ("0", "3"), ("other", "4")];
    for ((name, text), time) in names.into_iter().zip((TIME..).step_by(1_000_000_000)) {
        write(&lab.path("src").join(name), text.as_bytes(), time);
    }
    for (way, to) in
        [(&["copy"][..], "one"), (&["sync", "--delete-before"], "two"), (&["copy", "--bwlimit=10M"], "three")]
    {
        let ran = lab.haul(&[way, &["@src", &format!("@win/{to}")]].concat()).code(6);
        let message = "the destination's file system takes this name for that of another file that was just copied";
        assert_eq!(ran.err.matches(message).count(), 2, "{way:?}: {}", ran.err);
        assert_eq!(folder::files(&folder::read(&disk.0.join(to))).len(), 4, "{way:?}");
    }
    // A second run may put the other there, as what an earlier one left makes way, and may find it changed meanwhile; it deletes neither.
    let again = lab.haul(&["sync", "@src", "@win/one"]);
    assert_eq!(folder::files(&folder::read(&disk.0.join("one"))).len(), 4, "{}", again.err);
    // An earlier file is replaced, as anywhere.
    write(&lab.path("new/OTHER"), b"5", TIME + 1_000_000_000);
    lab.haul(&["copy", "@new", "@win/one"]).ok();
    assert_eq!(fs::read(disk.0.join("one/other")).unwrap(), b"5");
    // A device is no file, whatever size it is said to have there.
    if !is_root("devices on NTFS") {
        return;
    }
    fs::create_dir(lab.path("dev")).unwrap();
    special(&lab.path("dev/c"), rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3), 0o600);
    fs::hard_link(lab.path("dev/c"), lab.path("dev/d")).unwrap();
    lab.haul(&["copy", "-aH", "@dev", "@win/dev"]).ok();
}

/// A move loses neither of two files whose names are one at the destination, by whatever way that is reached.
#[test]
fn two_names_that_are_one_there_lose_no_source() {
    let lab = Lab::new(HAUL);
    let Some(disk) = windows(&lab, "mkfs.ntfs", &["lowntfs-3g", "-o", "ignore_case"], false) else { return };
    fs::write(lab.config(), format!("[far]\ntype = far\ncommand = exec {HAUL} far\n")).unwrap();
    let sftp = Path::new("/usr/lib/openssh/sftp-server");
    let by_sftp = format!(":sftp,ssh='sh -c {}':", sftp.display());
    let ways = [("", true), ("far:", true), (&by_sftp[..], sftp.exists())];
    for (number, (way, _)) in ways.iter().enumerate().filter(|(_, (_, there))| *there) {
        let kept = format!("--backup-dir={way}{}", disk.0.join(format!("kept{number}")).display());
        for (again, more) in [&[][..], &["--inplace"], &[&kept, "--transfers=1"]].into_iter().enumerate() {
            let (src, to) = (lab.path("src"), disk.0.join(format!("{number}-{again}")));
            let _ = fs::remove_dir_all(&src);
            for (name, text) in [("File", "AAAA"), ("file", "bb"), ("Dir/x", "c"), ("dir/X", "dd")] {
                write(&src.join(name), text.as_bytes(), TIME);
            }
            let ran = lab.haul(&[&["move", "@src", &format!("{way}{}", to.display())], more].concat());
            assert_ne!(ran.code, 0, "{way} {more:?}: {}", ran.err);
            let all = [&src, &to].map(|folder| folder::files(&folder::read(folder)));
            let mut texts: Vec<Vec<u8>> =
                [&src, &to].iter().flat_map(|at| contents(at)).filter(|text| !text.is_empty()).collect();
            texts.sort();
            texts.dedup();
            assert_eq!(texts, [&b"AAAA"[..], b"bb", b"c", b"dd"], "{way} {more:?}: {all:?}, {}", ran.err);
        }
    }
}

/// What all files in a folder hold.
fn contents(folder: &Path) -> Vec<Vec<u8>> {
    let files = folder::files(&folder::read(folder)).into_keys();
    files.map(|name| fs::read(folder.join(name)).unwrap()).collect()
}

/// File systems in user space may set no time at all when one of two is left out, and make a file of what they can't make.
#[test]
fn exfat_gets_times_and_says_what_it_does_not_take() {
    let lab = Lab::new(HAUL);
    let Some(disk) = windows(&lab, "mkfs.exfat", &["mount.exfat-fuse"], true) else { return };
    let time = 1_500_000_000_000_000_000;
    write(&lab.path("src/d/f"), b"x", time);
    lab.haul(&["copy", "@src", "@win/plain"]).ok();
    lab.haul(&["copy", "-a", "@src", "@win/kept"]).ok();
    lab.haul(&["copy", "--inplace", "@src", "@win/there"]).ok();
    write(&disk.0.join("later/d/f"), b"x", time + 9_000_000_000);
    lab.haul(&["copy", "@src", "@win/later"]).ok();
    for at in ["plain", "kept", "there", "later"] {
        assert_eq!(fs::metadata(disk.0.join(at).join("d/f")).unwrap().mtime(), 1_500_000_000, "{at}");
    }
    write(&lab.path("odd/a:b"), b"x", time);
    link(&lab.path("odd"), "link", "a:b");
    if is_root("FIFOs") {
        special(&lab.path("odd/fifo"), rustix::fs::FileType::Fifo, 0, 0o600);
    }
    let ran = lab.haul(&["copy", "-a", "@odd", "@win/odd"]).code(1);
    for said in [
        "a:b: Failed to copy: name can't be stored on this file system: it doesn't take \" * : < > ? \\ | or control",
        "link: Failed to write: a symbolic link can't be made: the file system has none, or its directory is immutable",
    ] {
        assert!(ran.err.contains(said), "{said:?} isn't in {}", ran.err);
    }
    assert_eq!(fs::read_dir(disk.0.join("odd")).unwrap().count(), 0, "something is left");
}

/// Where the ctime is the time that a user sets, a file with new content and its old time is no other one: it is read again.
#[test]
fn a_snapshot_believes_no_time_that_anybody_can_set() {
    let lab = Lab::new(HAUL);
    let Some(disk) = windows(&lab, "mkfs.exfat", &["mount.exfat-fuse"], true) else { return };
    for text in [b"old", b"new"] {
        write(&disk.0.join("src/f"), text, TIME);
        lab.haul(&["snapshot", "push", "@win/src", "@store", "name"]).ok();
        lab.haul(&["snapshot", "pull", "@store", "name", "@out"]).ok();
        assert_eq!(fs::read(lab.path("out/f")).unwrap(), text);
    }
}

/// Errors of writes and deletes name the right side by its path.
#[test]
fn a_read_only_end_is_named() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"x", TIME);
    write(&lab.path("ours/f"), b"x", TIME);
    let at = lab.path("ro");
    fs::create_dir(&at).unwrap();
    let mount =
        |args: &[&str]| Command::new("mount").args(args).arg(&at).output().is_ok_and(|out| out.status.success());
    if !mount(&["--bind", lab.path("src").to_str().unwrap()]) {
        return peers::skip("no right to mount a folder elsewhere");
    }
    let _unmounted = Disk(at.clone());
    assert!(mount(&["-o", "remount,ro,bind"]));
    let ran = lab.haul(&["copy", "@ours", "@ro/new/in"]).code(1);
    let message =
        format!("ERROR : Failed to mkdir: {}: Read-only file system (os error 30)", at.join("new/in").display());
    assert!(ran.err.contains(&message), "{}", ran.err);
    let ran = lab.haul(&["move", "@ro", "@moved"]).code(1);
    assert!(ran.err.contains("f: Failed to delete the source: Read-only file system (os error 30)"), "{}", ran.err);
    assert_eq!(fs::read(lab.path("src/f")).unwrap(), fs::read(lab.path("moved/f")).unwrap());
}

/// Where only whole seconds are kept, what was copied is the same in the next run: nothing is read or set again.
#[test]
fn coarse_times_are_no_difference() {
    let lab = Lab::new(HAUL);
    // Inodes of 128 bytes have no room for fractions of a second.
    let Some(_disk) = Disk::new(&lab, "ext4", &["-q", "-F", "-I", "128"]) else { return };
    for n in 0..5 {
        write(&lab.path(&format!("src/d{n}/f")), b"x", TIME + n);
        set_time(&lab.path(&format!("src/d{n}")), 1_600_000_000, 123_456_789);
    }
    for flags in [&[][..], &["-a"], &["-aAX"]] {
        lab.haul(&[&["copy"], flags, &["@src", "@ext4/dst"]].concat()).ok();
        let again = lab.haul(&[&["copy", "-vv"], flags, &["@src", "@ext4/dst"]].concat()).ok();
        assert!(!again.err.contains("Touch") && !again.err.contains("Attributes:"), "{flags:?}: {}", again.err);
    }
    write(&lab.path("src/d0/f"), b"y", TIME + 1_000_000_000);
    lab.haul(&["copy", "@src", "@ext4/dst"]).ok();
    assert_eq!(fs::read(lab.path("ext4/dst/d0/f")).unwrap(), b"y");
}
