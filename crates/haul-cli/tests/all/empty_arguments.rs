//! What is empty on a command line is mostly a variable that isn't set: it means neither the current directory nor everything.

use haul_testkit::{folder::write, lab::Lab};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_123_456_789;

fn lab() -> Lab {
    let lab = Lab::new(HAUL);
    write(&lab.path("keep/a"), b"a", TIME);
    write(&lab.path("s/b.txt"), b"b", TIME);
    lab
}

/// Exit code and messages of haul in the directory `keep`.
fn there(lab: &Lab, args: &[&str]) -> (Option<i32>, String) {
    let ran = lab.haul_command(args).current_dir(lab.path("keep")).output().unwrap();
    (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[test]
fn an_empty_path_is_not_the_current_directory() {
    let lab = lab();
    for args in [
        &["purge", ""][..],
        &["sync", "../s", ""],
        &["delete", ""],
        &["copy", "", "../d"],
        &["rmdirs", ""],
        &["ls", ""],
    ] {
        let (code, err) = there(&lab, args);
        assert_eq!(code, Some(2), "{args:?}: {err}");
        assert!(err.contains("a path is empty: write . for the current directory"), "{args:?}: {err}");
    }
    assert_ne!(there(&lab, &["rsync", "-a", "--delete", "../s/", ""]).0, Some(0));
    fs::write(lab.config(), "[a]\ntype = alias\nremote =\n").unwrap();
    let (code, err) = there(&lab, &["purge", "a:"]);
    assert!(code != Some(0) && err.contains("alias \"a\" has no remote"), "{err}");
    assert!(lab.path("keep/a").exists());
    assert_eq!(there(&lab, &["ls", "."]).0, Some(0));
}

#[test]
fn patterns_that_are_empty_or_have_blanks_around_them() {
    let lab = lab();
    let ran = lab.haul(&["copy", "@s", "@d", "--include", " "]).code(2);
    assert!(ran.err.contains("an include pattern is empty"), "{}", ran.err);
    lab.haul(&["delete", "@s", "--exclude", "*.txt "]).ok();
    assert!(lab.path("s/b.txt").exists());
    // An include means what was typed, and what is left out is so in either meaning.
    for name in [" lead", "lead", "trail ", "trail", "x"] {
        write(&lab.path("p").join(name), b"p", TIME);
    }
    let kept = |flags: &[&str]| {
        let ran = lab.haul(&[&["lsf", "@p"], flags].concat()).ok();
        ran.lines().iter().map(|line| line.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(kept(&["--include", " lead"]), [" lead"]);
    assert_eq!(kept(&["--exclude", " lead", "--exclude", "trail "]), ["lead", "x"]);
    assert_eq!(kept(&["--filter", "- trail ", "--filter", "- lead"]), [" lead", "trail", "x"]);
}

#[test]
fn no_input_replaces_no_file() {
    let lab = lab();
    let ran = lab.haul(&["rcat", "@keep/a"]).code(2);
    assert!(ran.err.contains("nothing to read"), "{}", ran.err);
    assert_eq!(fs::read(lab.path("keep/a")).unwrap(), b"a");
    // A pipe that brings nothing was meant.
    lab.haul_reading(&["rcat", "@keep/a"], b"").ok();
    assert_eq!(fs::read(lab.path("keep/a")).unwrap(), b"");
}

#[test]
fn a_dry_run_fails_as_the_run_would() {
    let lab = lab();
    fs::create_dir(lab.path("e")).unwrap();
    for (args, why) in [
        (&["sync", "@e", "@keep"][..], "is empty (--allow-empty-source"),
        (&["sync", "@s", "@keep", "--max-delete=0"], "that is more than --max-delete 0"),
    ] {
        for dry_run in [&["-n"][..], &[]] {
            let ran = lab.haul(&[args, dry_run].concat()).code(7);
            assert!(ran.err.contains(why), "{args:?} {dry_run:?}: {}", ran.err);
            assert!(lab.path("keep/a").exists());
        }
    }
    lab.haul(&["sync", "@s", "@keep", "-n"]).ok();
}

#[test]
fn an_errors_own_code_counts() {
    let lab = lab();
    // A directory stands where a file is to come.
    fs::create_dir_all(lab.path("keep/b.txt/x")).unwrap();
    write(&lab.path("keep/b.txt/x/y"), b"y", TIME);
    let ran = lab.haul(&["sync", "@s", "@keep", "--exclude", "/b.txt/**", "--exclude=!", "--immutable"]);
    assert_ne!(ran.code, 7, "{}", ran.err);
}

#[test]
fn empty_directories_below_a_marker_stay() {
    for args in [&["move", "@s", "@d", "--delete-empty-src-dirs"][..], &["rmdirs", "@s"], &["delete", "@s", "--rmdirs"]]
    {
        let lab = lab();
        for dir in ["s/k/empty", "s/k/sub/e", "s/gone"] {
            fs::create_dir_all(lab.path(dir)).unwrap();
        }
        write(&lab.path("s/k/.ignore"), b"", TIME);
        write(&lab.path("s/k/sub/f"), b"f", TIME);
        lab.haul(&[args, &["--exclude-if-present", ".ignore"]].concat()).ok();
        assert!(lab.path("s/k/empty").exists() && lab.path("s/k/sub/e").exists(), "{args:?}");
        assert!(!lab.path("s/gone").exists(), "{args:?}");
    }
}

#[test]
fn a_link_is_purged_by_its_content_or_not_at_all() {
    let lab = lab();
    std::os::unix::fs::symlink("keep", lab.path("link")).unwrap();
    assert_eq!(lab.haul(&["purge", "@link"]).code, 2);
    assert!(lab.path("keep/a").exists());
    lab.haul(&["purge", "@link/"]).ok();
    assert!(!lab.path("keep/a").exists() && lab.path("link").exists());
    let ran = lab.haul(&["rmdirs", "@s/b.txt"]).code(2);
    assert!(ran.err.contains("is a file, not a directory"), "{}", ran.err);
}

/// Also where a directory is a part of keys: an object that stands for it isn't taken away from above what it holds.
#[test]
fn a_directory_of_a_bucket_that_holds_something_stays() {
    let (lab, sim) = (lab(), haul_testkit::cloudsim::Cloudsim::with(&[("bucket", "b")]));
    lab.remote("c", &sim.endpoint());
    lab.haul(&["mkdir", "--s3-directory-markers", "c:b/d"]).ok();
    lab.haul(&["copyto", "@s/b.txt", "c:b/d/x"]).ok();
    let ran = lab.haul(&["rmdir", "c:b/d"]);
    assert!(ran.code != 0 && ran.err.contains("is not empty"), "{}: {}", ran.code, ran.err);
    assert_eq!(sim.keys("b").len(), 2);
    // Without markers there is nothing to make, which is said.
    let made = |place: &str| lab.haul(&["mkdir", place]).ok().err;
    assert!(made("c:b/e").contains("keeps no empty directories"), "{}", made("c:b/e"));
    assert_eq!((made("c:b"), sim.keys("b").len()), (String::new(), 2));
    lab.haul(&["deletefile", "c:b/d/x"]).ok();
    lab.haul(&["rmdir", "c:b/d"]).ok();
    assert!(sim.keys("b").is_empty());
}

/// Everywhere else its name is a directory's: it is neither left out in silence nor overwritten nor deleted by a verb for directories.
#[test]
fn an_object_with_content_that_is_called_as_a_directory_is_told_and_kept() {
    let (lab, sim) = (lab(), haul_testkit::cloudsim::Cloudsim::with(&[("bucket", "b")]));
    lab.remote("c", &sim.endpoint());
    sim.put("b", b"d/", "content", &[]);
    sim.put("b", b"d/x", "x", &[]);
    const ENCODED: &str = "--s3-encoding=Slash";
    for flags in [&[][..], &["--max-depth=2"], &["--exclude-if-present=none"], &["--min-age=0s"], &[ENCODED]] {
        let ran = lab.haul(&[&["copy", "c:b", "@out"], flags].concat()).ok();
        assert!(ran.err.contains("d/: left out: an object with content"), "{flags:?}: {}", ran.err);
        assert!(lab.path("out/d/x").exists(), "{flags:?}");
    }
    lab.haul(&["copyto", "@s/b.txt", "c:b/d/y"]).ok();
    lab.haul(&["mkdir", "--s3-directory-markers", "c:b/d/e"]).ok();
    lab.haul(&["purge", "c:b/d/e"]).ok();
    for name in ["x", "y"] {
        lab.haul(&["deletefile", &format!("c:b/d/{name}")]).ok();
    }
    for flags in [&[][..], &[ENCODED], &["--s3-directory-markers"]] {
        assert_ne!(lab.haul(&[&["rmdir", "c:b/d"], flags].concat()).code, 0, "{flags:?}");
        lab.haul(&[&["rmdirs", "c:b"], flags].concat());
        lab.haul(&[&["sync", "--s3-directory-markers", "@keep", "c:b"], flags].concat()).ok();
    }
    assert_eq!(sim.get("b", b"d/").map(|held| held.bytes.to_vec()), Some(b"content".to_vec()));
}

#[test]
fn what_deletes_promises_no_backup_and_takes_no_root() {
    let lab = lab();
    for args in [&["delete", "@s"][..], &["purge", "@s"], &["deletefile", "@s/b.txt"], &["dedupe", "@s"]] {
        for flag in ["--backup-dir=/tmp", "--suffix=.old"] {
            let ran = lab.haul(&[args, &[flag]].concat()).code(2);
            assert!(ran.err.contains("keeps no backup"), "{args:?} {flag}: {}", ran.err);
        }
    }
    assert!(lab.path("s/b.txt").exists());
    let aliases = "[all]\ntype = alias\nremote = /\n[of-far]\ntype = alias\nremote = far:/\n[of-all]\ntype = alias\nremote = all:\n";
    fs::write(lab.config(), format!("[far]\ntype = far\ncommand = exec {HAUL} far\n{aliases}")).unwrap();
    for root in ["/", "//", "/.", "/tmp/..", "far:/", "far://./"] {
        let ran = lab.haul(&["purge", "--dry-run", root]).code(2);
        assert!(ran.err.contains("is all that there is"), "{root}: {}", ran.err);
    }
    for root in ["all:", "all:/", "all:tmp/..", "of-all:", "of-far:"] {
        let ran = lab.haul(&["purge", "--dry-run", root]).code(2);
        let told = "is the whole remote: name the directory to purge\n";
        assert!(ran.err.ends_with(told) || ran.err.contains("is all that there is"), "{root}: {}", ran.err);
    }
    assert_eq!(lab.haul(&["purge", "--one-file-system", "@s"]).code, 2);
}

/// Whatever deletes keeps to the limit, and deletes nothing rather than too much.
#[test]
fn no_command_deletes_more_than_it_may() {
    let lab = lab();
    for n in 0..8 {
        write(&lab.path(&format!("many/d{}/{n}", n % 2)), b"1234", TIME);
    }
    let left = || haul_testkit::folder::files(&haul_testkit::folder::read(&lab.path("many"))).len();
    for args in [&["delete"][..], &["purge"]] {
        for limit in ["--max-delete=7", "--max-delete-size=31B"] {
            let ran = lab.haul(&[args, &["@many", limit]].concat()).code(7);
            assert!(ran.err.contains("Refused to delete more than") && left() == 8, "{args:?} {limit}: {}", ran.err);
        }
    }
    lab.haul(&["delete", "@many", "--exclude=/d0/**", "--max-delete=4"]).ok();
    assert_eq!(left(), 4);
    lab.haul(&["purge", "@many", "--max-delete=4"]).ok();
    assert!(!lab.path("many").exists());
}

#[test]
fn a_file_is_no_folder_to_copy_to() {
    let lab = lab();
    let ran = lab.haul(&["copy", "@s/b.txt", "@keep/a"]).code(2);
    assert!(ran.err.contains("is a file: name a directory, or use copyto"), "{}", ran.err);
    assert_eq!(fs::read(lab.path("keep/a")).unwrap(), b"a");
}
