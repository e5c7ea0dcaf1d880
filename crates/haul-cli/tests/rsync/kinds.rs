//! What is of another kind under one name: what is kept of it, what makes way, and files that have a translated symlink's name.

use super::{
    each,
    oracle::{Compare, Oracle},
};

/// Each kind replaced by each, and of each kind one that no source has.
const KINDS: &str = r#"
mkdir s dst; echo f >s/lf; ln -s x dst/lf; echo f >s/ff; mkfifo dst/ff; ln -s new s/ll; ln -s old dst/ll; ln -s t s/fl; echo file >dst/fl
mkfifo s/pf; echo pf >dst/pf; mkfifo s/pl; ln -s q dst/pl; ln -s a s/lp; mkfifo dst/lp; mkdir s/dir; echo 1 >s/dir/1; ln -s z dst/dir
mkdir s/dir2; mkfifo dst/dir2; mkdir s/d3; echo df >dst/d3; mkfifo -m 600 s/pp dst/pp; chmod 644 s/pp; ln -s gone dst/xl; mkfifo dst/xp; echo x >dst/xf
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

/// A file that replaces a directory of things of each kind.
const FULL: &str = r#"
mkdir -p s dst/fd; mkfifo dst/fd/p; ln -s a dst/fd/l; echo i >dst/fd/f; echo fd >s/fd; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

#[test]
fn a_backup_is_kept_of_whatever_goes() {
    let lines = [
        "-ai -b s/ dst",
        "-ai -b --backup-dir=../bk s/ dst",
        "-ai -b --delete s/ dst",
        "-ai -b --delete --backup-dir=../bk s/ dst",
        "-ai -b --delay-updates s/ dst",
        "-ai -b --inplace s/ dst",
        "-ai -b --suffix=.old --remove-source-files s/ dst",
        "-ai -b --bwlimit=1000 s/ dst",
        "-rti -b s/ dst",
        "-rti -b --backup-dir=../bk s/ dst",
    ];
    each(KINDS, Compare::All, &lines);
    each(
        FULL,
        Compare::Trees,
        &["-a -b --delete --backup-dir=../bk s/ dst", "-a -b --force --backup-dir=../bk s/ dst"],
    );
}

#[test]
fn a_backup_on_another_file_system_is_kept_too() {
    let Some(oracle) = Oracle::new(KINDS) else { return };
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = elsewhere.path().join("bk");
    let option = format!("--backup-dir={}", dir.display());
    let (code, _, errors) = oracle.haul(&["-a", "-b", "--delete", &option, "s/", "dst"]);
    assert_eq!(code, Some(0), "{errors}");
    let kept = |name: &str| std::fs::symlink_metadata(dir.join(name)).unwrap().file_type();
    use std::os::unix::fs::FileTypeExt as _;
    assert!(["ff", "lp", "dir2", "xp"].into_iter().all(|name| kept(name).is_fifo()));
    assert!(["fl", "pf", "d3", "xf"].into_iter().all(|name| kept(name).is_file()));
    for (name, target) in [("lf", "x"), ("ll", "old"), ("pl", "q"), ("dir", "z"), ("xl", "gone")] {
        assert_eq!(std::fs::read_link(dir.join(name)).unwrap(), std::path::Path::new(target), "{name}");
    }
}

#[test]
fn a_limit_of_bandwidth_holds_back_nothing_that_has_no_bytes() {
    let setup =
        "mkdir s dst; mkfifo s/p; echo f >s/f; ln -s f s/l; find s dst -exec touch -h -d 2020-01-01T00:00:00Z {} +";
    each(setup, Compare::Attributes, &["-ai --bwlimit=1000 s/ dst"]);
}
