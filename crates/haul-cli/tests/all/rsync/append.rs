//! `--append` and `--append-verify`: what a file here lacks is written behind what it has.

use super::{each, oracle::Compare};
use haul_testkit::{cloudsim::Cloudsim, folder::write, lab::Lab};
use std::{fs, os::unix::fs::MetadataExt as _, process::Command};

/// Files that are shorter, equal, longer, missing, and of another beginning at the destination.
const SHORTER: &str = r#"
mkdir -p s/d dst/d; echo "one two three" >s/a; printf 'one' >dst/a; echo equal >s/e; echo equal >dst/e; echo long >dst/f; echo lo >s/f
echo new >s/n; echo "right beginning" >s/d/w; printf wrong >dst/d/w; : >dst/z; echo zz >s/z; echo same >s/same; echo samE >dst/same
chmod 600 s/a; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z s/a s/f s/d/w s/same
"#;

#[test]
fn append_sends_what_rsync_sends() {
    let lines = [
        "-ai --append s/ dst",
        "-ani --append s/ dst",
        "-ri --append s/ dst",
        "-ai --append --no-t s/ dst",
        "-aci --append s/ dst",
        "-aui --append s/ dst",
        "-ai --append --inplace s/ dst",
        "-ai --append --size-only s/ dst",
        "-ai --append --delete s/ dst",
        "-ai --append -W s/ dst",
    ];
    each(SHORTER, Compare::Attributes, &lines);
    // rsync tells a file that it must send again twice.
    each(SHORTER, Compare::Trees, &["-a --append-verify s/ dst"]);
}

#[test]
fn the_file_itself_grows_unless_it_has_other_names() {
    let (whole, cut) = (vec![b'x'; 3_000_000], 2_000_000);
    for options in ["-a", "-rS"] {
        for append in ["--append", "--append-verify"] {
            let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
            for name in ["big", "held"] {
                write(&lab.path("s").join(name), &whole, 2_000_000_000);
                write(&lab.path("dst").join(name), &whole[..cut], 1_000_000_000);
            }
            fs::hard_link(lab.path("dst/held"), lab.path("dst/snapshot")).unwrap();
            let inode = || fs::metadata(lab.path("dst/big")).unwrap().ino();
            let before = inode();
            let ran = lab.haul(&["rsync", options, append, "@s/", "@dst"]);
            assert_eq!(ran.code, 0, "{}", ran.err);
            let read = |name: &str| fs::read(lab.path("dst").join(name)).unwrap();
            assert!(read("big") == whole && read("held") == whole, "{options} {append}");
            assert_eq!(inode(), before, "nothing was replaced");
            assert_eq!(read("snapshot").len(), cut, "what another name keeps is as it was");
        }
    }
}

#[test]
fn a_file_that_could_not_grow_is_as_it_was() {
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    let at = lab.path("small");
    fs::create_dir(&at).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "haul-test"]).arg(&at).output();
    if !mounted.is_ok_and(|out| out.status.success()) {
        return haul_testkit::peers::skip("a small file system can't be mounted here");
    }
    write(&lab.path("s/f"), &[7; 3 << 20], 1_000_000_000);
    fs::write(at.join("f"), [7; 4096]).unwrap();
    let ran = lab.haul(&["rsync", "-a", "--append", "@s/", "@small"]);
    let left = fs::metadata(at.join("f")).unwrap().size();
    let _ = Command::new("umount").arg(&at).status();
    assert_eq!((ran.code, left), (11, 4096), "{}", ran.err);
}

#[test]
fn a_remote_that_cannot_be_added_to_gets_the_whole_and_a_line_says_so() {
    let cloud = Cloudsim::with(&[]);
    cloud.bucket("b", None);
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    lab.remote("r", &cloud.endpoint());
    write(&lab.path("s/f"), b"one", 1_000_000_000);
    lab.haul(&["rsync", "-rt", "@s/", "r:b"]).ok();
    write(&lab.path("s/f"), b"one two", 2_000_000_000);
    let ran = lab.haul(&["rsync", "-rt", "--append", "@s/", "r:b"]).ok();
    let line = "haul rsync: --append: only files on disks can be added to; what is longer at the source goes whole";
    assert!(ran.err.lines().any(|told| told == line), "{}", ran.err);
    assert_eq!(lab.haul(&["cat", "r:b/f"]).ok().out, "one two");
}
