//! Entries of different types under one name: backups, replacements, and files that are named like a translated symlink.

use super::{
    each,
    oracle::{Compare, Oracle},
};
use haul_testkit::lab::elsewhere;

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

/// Where the source's has no place at the destination, whatever else shows its name.
#[test]
fn what_a_directory_holds_stays_where_what_has_its_name_does_not_come() {
    let setup = r#"
mkdir -p s t dst/a dst/b/d dst/c/d; ln -s a s/a; ln -s b t/a; echo 1 >s/f; echo x >dst/a/x; mkfifo s/b; echo y >dst/b/d/y; echo k >s/c
echo z >dst/c/d/z; echo '- d/' >dst/c/.rsync-filter; find s t dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    for sources in ["s/", "s/ t/", "t/ s/"] {
        for options in [
            "-r --delete",
            "-rn --delete",
            "-r --delete-before",
            "-r --delete-after",
            "-r --force",
            "-a --no-D --no-l --delete",
            "-rF --force",
        ] {
            let line = format!("{options} --exclude=/c {sources} dst");
            each(setup, Compare::Trees, &[&line]);
        }
    }
    // A directory that a rule of the destination protects stays with its contents, and the file isn't written.
    let Some(oracle) = Oracle::new(setup) else { return };
    let (code, ..) = oracle.haul(&["-rF", "--force", "s/", "dst"]);
    assert!(code == Some(23) && oracle.folder().join("dst/c/d/z").exists());
}

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
fn each_link_in_a_directorys_place_is_kept_once() {
    let setup = "mkdir -p s dst; for i in $(seq 100); do mkdir s/d$i; echo $i >s/d$i/f; ln -s z dst/d$i; done; \
                 find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +";
    each(setup, Compare::Trees, &["-ab --inplace s/ dst", "-ab --backup-dir=../bk --inplace s/ dst"]);
}

#[test]
fn a_link_that_leads_to_no_directory_makes_way_for_one() {
    let setup =
        "mkdir -p s/p s/q dst; echo 1 >s/p/f; echo 2 >s/q/f; ln -s /nonexistent/zz dst/p; ln -s /dev/null dst/q";
    each(setup, Compare::Trees, &["-rK s/ dst", "-aK s/ dst"]);
}

#[test]
fn a_backup_on_another_file_system_is_kept_too() {
    let Some(oracle) = Oracle::new(KINDS) else { return };
    let Some(elsewhere) = elsewhere() else { return };
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
    // Nor is a new file more open than its source.
    let setup = "mkdir s dst; echo x >s/x; chmod 755 s/x; echo y >s/y; chmod 600 s/y; echo z >s/z; chmod 600 s/z; echo zz >dst/z; \
                 find s dst -exec touch -d 2020-01-01T00:00:00Z {} +";
    each(setup, Compare::Attributes, &["-rti --bwlimit=1000 s/ dst", "-rti --inplace s/ dst", "-rti s/ dst"]);
}

/// Files called as translated symlinks are: alone, beside the symlink, on either side, and in the way of directories.
const CALLED: &str = r#"
mkdir -p s/d s/d.rclonelink s/m.rclonelink dst/w; echo q >s/k.rclonelink; ln -s x s/k; echo n >s/n; echo o >s/only.rclonelink; echo e >s/.rclonelink
echo old >dst/k.rclonelink; ln -s y dst/k; echo gone >dst/gone.rclonelink; ln -s gone dst/gone; ln -s l s/left; echo left >dst/left.rclonelink
ln -s r dst/right; echo right >s/right.rclonelink; echo 1 >s/d/x; echo 2 >s/d.rclonelink/x; mkfifo s/p.rclonelink; ln -s a s/ll.rclonelink
echo 1 >s/m.rclonelink/1; echo m >dst/m.rclonelink; ln -s q dst/m; echo k.rclonelink >list
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

#[test]
fn a_file_called_as_a_translated_link_is_a_file() {
    let options = "|--delete|--delete -n|-b|-b --delete|-b --backup-dir=../bk --delete|-I --delete|-H --delete|--exclude=k|--exclude=k.rclonelink\
                   |--exclude=*.rclonelink --delete|--include=k --exclude=*|--bwlimit=1000|--inplace|--delay-updates|-c|-K|--append|--existing\
                   |--ignore-existing|-u|--safe-links|--remove-source-files|--no-l|--force|--munge-links|--files-from=list|-m --delete-after|--max-size=1";
    let lines: Vec<String> = options.split('|').map(|options| format!("-ai {options} s/ dst")).collect();
    each(CALLED, Compare::All, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let named = [
        "-ai s/k.rclonelink dst",
        "-ai s/k.rclonelink dst/w",
        "-ai s/k.rclonelink dst/new",
        "-ai s/k.rclonelink dst/new.rclonelink",
        "-ai s/n dst/right.rclonelink",
        "-ai s/k.rclonelink s/n dst",
        "-ai s/k s/k.rclonelink dst/",
        "-ai s/ s/k.rclonelink dst",
        "-aiR s/k.rclonelink s/d dst",
        "--list-only s/k.rclonelink",
    ];
    each(CALLED, Compare::All, &named);
    let followed =
        "mkdir s dst; echo q >s/k.rclonelink; echo f >s/f; ln -s f s/l; touch -d 2020-01-01T00:00:00Z s dst s/*";
    each(followed, Compare::All, &["-aLi s/ dst", "-rLti --inplace s/ dst", "-rti --copy-unsafe-links s/ dst"]);
}

#[test]
fn no_file_makes_way_for_one_that_only_a_links_key_would_name() {
    let setup = r#"
mkdir -p s/d t/d/k dst/d; echo x >dst/d/k.rclonelink; echo a >s/d/k; echo y >dst/d/l.rclonelink; mkdir s/d/l; ln -s m s/d/m.rclonelink; echo z >dst/d/m.rclonelink
find s t dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    for sources in ["s/", "s/ t/"] {
        let options = [
            "-rlt",
            "-rt",
            "-a -b --suffix=.old",
            "-rt -b --backup-dir=../bk",
            "-aK",
            "-a --delay-updates",
            "-a --inplace",
        ];
        let lines = options.map(|options| format!("{options} {sources} dst"));
        each(setup, Compare::Trees, &lines.each_ref().map(String::as_str));
    }
}

#[test]
fn a_folder_that_is_named_as_a_remote_tells_a_link_from_a_file_called_so_too() {
    let Some(oracle) = Oracle::new(CALLED) else { return };
    oracle.haul(&["-n", "s/", "dst"]);
    let to = format!(":local:{}", oracle.folder().join("dst").display());
    let at = |name: &str| oracle.folder().join("dst").join(name);
    let (code, _, errors) = oracle.haul(&["-a", "s/k.rclonelink", "s/n", &to]);
    assert!(code == Some(0) && at("k").is_symlink(), "{code:?} {errors}");
    assert_eq!(std::fs::read_to_string(at("k.rclonelink")).unwrap(), "q\n");
    for options in [&["-a", "--bwlimit=1000"][..], &["-rltL", "--inplace"], &["-a"]] {
        let (code, _, errors) = oracle.haul(&[options, &["--exclude=left", "s/only.rclonelink", &to]].concat());
        assert!(code == Some(0) && at("only.rclonelink").is_file() && !at("only").is_symlink(), "{code:?} {errors}");
        std::fs::remove_file(at("only.rclonelink")).unwrap();
    }
    let (code, _, errors) = oracle.haul(&["-a", "--delete", "s/", &to]);
    assert_eq!((code, &*errors), (Some(0), ""));
    let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    assert_eq!((&*read("k.rclonelink"), &*read("only.rclonelink")), ("q\n", "o\n"));
    assert_eq!(std::fs::read_link(at("k")).unwrap().to_str(), Some("x"));
    assert!(!at("gone").is_symlink() && !at("gone.rclonelink").exists());
}

#[test]
fn a_link_that_leads_nowhere_is_not_missed_where_it_is_left_out() {
    let setup = "mkdir -p s/d dst; ln -s no s/k; ln -s no s/d/k; echo n >s/n; echo n >list; touch -d 2020-01-01T00:00:00Z s/n s/d s dst";
    each(
        setup,
        Compare::All,
        &["-rLti --exclude=k s/ dst", "-rLti --files-from=list s dst", "-aLi --exclude=k s/ dst"],
    );
}

#[test]
fn what_only_the_destination_has_goes_whatever_its_kind() {
    let setup = "mkdir -p s/d dst/d; echo a>s/a; mkfifo dst/p dst/d/p; mknod dst/n c 1 3 2>/dev/null || true; mkfifo s/both dst/both
find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +";
    each(
        setup,
        Compare::All,
        &["-ri --delete s/ dst", "-ai --no-D --delete s/ dst", "-ai --no-D s/ dst", "-rlti --delete -n s/ dst"],
    );
}

#[test]
fn only_files_are_skipped_for_being_newer() {
    let setup =
        "mkdir -p s dst; mkfifo s/p dst/p; chmod 600 dst/p; ln -s x s/l; ln -s y dst/l; echo a>s/f; echo bb>dst/f
find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -h -d 2021-01-01T00:00:00Z dst/*";
    each(setup, Compare::Attributes, &["-aiu s/ dst", "-aiuH s/ dst", "-rliu s/ dst", "-aiu --no-p s/ dst"]);
}

#[test]
fn what_was_kept_before_is_not_kept_again_when_it_is_deleted() {
    let setup = "mkdir -p s dst/d; echo a>s/a; echo b>dst/gone; echo c>dst/stale~; echo d>dst/d/x~; ln -s q dst/l~; echo e>dst/k.old
find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +";
    let lines = [
        "-ai -b --delete --filter=R_*~ s/ dst",
        "-ai -b --delete s/ dst",
        "-ai -b --delete-excluded s/ dst",
        "-ai -b --suffix=.old --delete --filter=R_*.old s/ dst",
        "-ai -b --backup-dir=../bk --delete s/ dst",
        "-ai -b --backup-dir=../bk --suffix=~ --delete s/ dst",
    ];
    each(setup, Compare::Trees, &lines);
}
