//! Several sources in one command, and files that get their names together.

use super::{
    each,
    oracle::{Compare, Oracle},
};
use std::{fs, os::unix::fs::MetadataExt as _, process::Command};

/// Sources that show the same names: files, directories with other attributes, and names of another kind.
const SHARED: &str = r#"
mkdir -p a/d/e b c/d dst/d/e dst/extra y/b; echo a>a/x; echo ad>a/d/1; echo c>c/x; echo cd1>c/d/1; echo cd2>c/d/2; echo c3>c/3; echo b1>b/b1
echo yb1>y/b/b1; echo yb2>y/b/b2; echo old>dst/d/1; echo gone>dst/d/gone; echo gone>dst/e; echo ex>dst/extra/f
mkdir a/kind; echo in>a/kind/in; echo file>c/kind; echo afile>a/k2; mkdir c/k2; echo cin>c/k2/in; ln -s x a/l; echo notlink>c/l
mkdir -p dst/b; echo bgone>dst/b/gone; chmod 700 c/d; chmod 750 a/d; mkdir -p c/onlyc/sub; echo deep>c/onlyc/sub/f
find a b c y dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
touch -d 2021-01-01T00:00:00Z a/d c/x c; touch -d 2022-01-01T00:00:00Z c/d a
"#;

#[test]
fn several_sources_make_one_tree_as_in_rsync() {
    let lines = [
        "-ai a/ c/ dst",
        "-ai a/ b c/ dst",
        "-ai a/ c/ new",
        "-rti a/ b/ dst",
        "-ai --exclude=/x a/ c/ dst",
        "-ai b y/b a/x c/x dst",
        "-ai --delete a/ b c/ dst",
        "-ani --delete a/ b c/ dst",
        "-ai --delete-after b a/ c/ dst",
        "-ai --delete b y/b dst",
        "-ai --delete-excluded --exclude=gone a/ c/ dst",
        "-aiR a/./d/1 c/./d/2 y/./b dst",
        "-aiR --delete a/./d c/./d dst",
        "-ai a/ nosuch/ c/ dst",
    ];
    each(SHARED, Compare::Attributes, &lines);
    // Told in another order, or by other lines.
    let trees = [
        "-a --delete-before a/ c/ dst",
        "-a --delete a/ nosuch/ c/ dst",
        "-a --remove-source-files a/ c/ dst",
        "-a --remove-source-files --delete a/ b c/ dst",
    ];
    each(SHARED, Compare::Trees, &trees);
}

#[test]
fn a_link_in_one_source_hides_nothing_of_another() {
    let setup = r#"
mkdir -p r5/deep a/d b/l/deep b/d c dst/l/deep; echo r >r5/x; echo r >r5/deep/y; ln -s ../r5 a/l; echo b >b/l/x; echo b >b/l/deep/y; echo b >b/l/own
echo a >a/d/1; echo b >b/d/1; echo gone >dst/l/gone; ln -s /usr c/l; mkdir b/l/bin
find a b c r5 dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines = ["-ai a/ b/ dst", "-ai b/ a/ dst", "-ai --delete a/ c/ b/ dst", "-aki a/ b/ dst", "-rti a/ b/ dst"];
    each(setup, Compare::Trees, &lines);
}

#[test]
fn an_error_in_one_source_keeps_what_all_lack() {
    // A directory that holds something is where a file of the second source belongs.
    let setup = [SHARED, "mkdir -p dst/3; touch dst/3/full"].concat();
    let Some(oracle) = Oracle::new(&setup) else { return };
    let (code, _, errors) = oracle.haul(&["-a", "--delete", "--exclude=full", "a/", "c/", "dst"]);
    assert_eq!(code, Some(23), "{errors}");
    assert!(errors.contains("IO error encountered -- skipping file deletion"), "{errors}");
    let there = |name: &str| oracle.folder().join("dst").join(name).exists();
    assert!(there("extra/f") && there("e") && there("d/gone") && there("x") && there("onlyc/sub/f"));
}

#[test]
fn no_source_is_where_another_deletes() {
    let setup = "mkdir -p other/sub2 other/a dst/sub/in dst/a/x dst/free; echo o >other/o; echo 1 >other/a/1; echo f >dst/sub/in/f; \
                 echo g >dst/a/x/g; echo h >dst/a/h";
    let Some(oracle) = Oracle::new(setup) else { return };
    let there = |name: &str| oracle.folder().join(name).exists();
    for (args, source) in [
        (&["-a", "--delete-before", "other/", "dst/sub/", "dst/"][..], "dst/sub/"),
        (&["-a", "--delete", "--remove-source-files", "other/", "dst/sub/", "dst/"], "dst/sub/"),
        (&["-a", "--delete", "dst/sub/", "other/", "dst/"], "dst/sub/"),
        (&["-a", "--remove-source-files", "other/", "dst/sub/", "dst/"], "dst/sub/"),
        (&["-a", "--delete", "other/a", "dst/a/x", "dst/"], "dst/a/x"),
        (&["-a", "--delete", "other/a", "dst/a/h", "dst/"], "dst/a/"),
    ] {
        let (code, _, errors) = oracle.haul(args);
        let message = format!("haul rsync: the source {source} is inside the destination ");
        assert!(code == Some(1) && errors.starts_with(&message), "{args:?}: {code:?} {errors}");
        assert!(errors.ends_with(": exclude it with a filter\n"), "{errors}");
        assert!(there("dst/sub/in/f") && there("dst/a/x/g") && there("dst/a/h") && there("other/o"), "{args:?}");
        assert!(!there("dst/o") && !there("dst/a/1") && !there("dst/in"), "nothing is begun: {args:?}");
    }
    // As in rsync where nothing is deleted, or where a filter excludes the source inside the destination.
    let lines = [
        "-ai other/ dst/sub/ dst/",
        "-ai --delete --exclude=/sub other/ dst/sub/ dst/",
        "-ai --delete other/a dst/sub/in dst",
    ];
    each(setup, Compare::Trees, &lines);
}

/// Changed and new files, one that replaces a directory, two names of one file, and what a killed run left.
const DELAYED: &str = r#"
mkdir -p s/d dst/d s/k dst/kk; echo one1 >s/a; echo old >dst/a; echo two2 >s/d/b; echo old >dst/d/b; echo new >s/n; echo f >s/kk
chmod 600 dst/a; chmod 755 dst/d/b; chmod 700 s/n; ln -s x s/l; echo same >s/same; cp -p s/same dst/same
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z s/a s/d/b; ln s/a s/a2
"#;

/// What a killed run left: a file that is the source's by now, one that isn't, and one that no source has.
const LEFT: &str = r#"
mkdir dst/.~tmp~ dst/d/.~tmp~; echo one1 >dst/.~tmp~/a; touch -d 2021-01-01T00:00:00Z dst/.~tmp~/a; echo stale >dst/d/.~tmp~/b
touch -d 2020-01-01T00:00:00Z s dst dst/d
"#;

#[test]
fn delayed_files_arrive_as_in_rsync() {
    let lines = [
        "-ai --delay-updates s/ dst",
        "-ani --delay-updates s/ dst",
        "-rti --delay-updates s/ dst",
        "-rtEi --delay-updates s/ dst",
        "-ai --delay-updates -b s/ dst",
        "-ai --delay-updates --delete-after -b --backup-dir=../bk s/ dst",
        "-ai --delay-updates --remove-source-files s/ dst",
        "-ai --delay-updates --no-t s/ dst",
        "-ai --delay-updates s/a dst/",
        "-ai --delay-updates --delete s/ dst/",
        "-ai --delay-updates --inplace s/ dst",
        "-ai --delay-updates --append s/ dst",
    ];
    each(DELAYED, Compare::Attributes, &lines);
    each(&[DELAYED, LEFT].concat(), Compare::Attributes, &["-ai --delay-updates s/ dst"]);
    // A directory of that name that the source has too isn't what a killed run left.
    let own = "mkdir -p s/.~tmp~ dst/.~tmp~; echo own >s/.~tmp~/own; cp s/.~tmp~/own dst/.~tmp~/own\n";
    each(&[own, DELAYED].concat(), Compare::Trees, &["-a --delay-updates s/ dst"]);
    if let Some(oracle) = Oracle::new(DELAYED) {
        oracle.same_but_for_lines(&["-aH", "--delay-updates", "--delete", "s/", "dst"], Compare::Attributes);
    }
}

#[test]
fn what_no_source_has_any_more_is_removed_and_what_is_still_good_is_used() {
    let setup = [DELAYED, LEFT, "touch dst/d/.~tmp~/nobodys; ln dst/.~tmp~/a kept"].concat();
    let Some(oracle) = Oracle::new(&setup) else { return };
    let (code, _, errors) = oracle.haul(&["-a", "--delay-updates", "s/", "dst"]);
    assert_eq!(code, Some(0), "{errors}");
    let at = |name: &str| oracle.folder().join(name);
    assert!(!at("dst/.~tmp~").exists() && !at("dst/d/.~tmp~").exists());
    let inode = |name: &str| fs::metadata(at(name)).unwrap().ino();
    assert_eq!(inode("dst/a"), inode("kept"), "what waited got its name, and nothing was sent again");
}

#[test]
fn two_files_never_wait_under_one_name_when_their_sources_go() {
    // Two names of one place, as on a disk that ignores case; what a killed run left is there too.
    let setup = r#"
mkdir -p s/d s/real dst/real/.~tmp~; ln -s real dst/d; echo first >s/d/f; echo other >s/real/f; echo 1 >s/d/g; echo left >dst/real/.~tmp~/g
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let Some(oracle) = Oracle::new(setup) else { return };
    for more in [&["-t"][..], &["--no-t"], &["--force"]] {
        let args = [&["-aK", "--delay-updates", "--remove-source-files"][..], more, &["s/", "dst"]].concat();
        let (code, _, errors) = oracle.haul(&args);
        let has =
            |name: &str, text: &str| fs::read_to_string(oracle.folder().join(name)).is_ok_and(|read| read == text);
        assert_eq!(code, Some(23), "{args:?} {errors}");
        for (text, source) in [("first\n", "s/d/f"), ("other\n", "s/real/f")] {
            assert!(has(source, text) || has("dst/real/f", text), "{args:?} {text} {errors}");
        }
        assert!(has("dst/d/g", "1\n"), "{args:?} {errors}");
    }
}

#[test]
fn a_killed_run_changes_nothing_and_the_next_one_ends_it() {
    let setup = r#"
mkdir s dst; for n in 1 2 3 4; do head -c 40000 /dev/zero | tr '\0' $n >s/$n; echo old >dst/$n; done; echo small >s/small; echo old >dst/small
find s dst -depth -exec touch -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z s/*
"#;
    let Some(oracle) = Oracle::new(setup) else { return };
    oracle.haul(&["-n", "s/", "dst"]);
    let at = |name: &str| oracle.folder().join(name);
    let mut child = Command::new(env!("CARGO_BIN_EXE_haul"))
        .args(["rsync", "-a", "--delay-updates", "--bwlimit=10", "s/", "dst"])
        .current_dir(oracle.folder())
        .env("XDG_STATE_HOME", oracle.folder().join("state"))
        .spawn()
        .unwrap();
    let arrived = haul_testkit::lab::until(|| at("dst/.~tmp~").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(arrived, "nothing began");
    for name in ["1", "2", "3", "4", "small"] {
        assert_eq!(fs::read_to_string(at("dst").join(name)).unwrap(), "old\n", "{name}");
    }
    let again = Command::new(env!("CARGO_BIN_EXE_haul"))
        .args(["rsync", "-a", "--delay-updates", "s/", "dst"])
        .current_dir(oracle.folder())
        .env("XDG_STATE_HOME", oracle.folder().join("state"))
        .status()
        .unwrap();
    assert!(again.success() && !at("dst/.~tmp~").exists());
    for name in ["1", "2", "3", "4", "small"] {
        assert!(fs::read(at("dst").join(name)).unwrap() == fs::read(at("s").join(name)).unwrap(), "{name}");
    }
}

/// Two sources that make one tree, all of it at the destination, which has more.
const WHOLE: &str = r#"
mkdir -p s/x t/x d/x d/y; touch s/x/1 t/x/2 t/b d/x/1 d/x/2 d/x/3 d/b d/q d/y/only
"#;

const WHOLE_DATED: &str = "\nfind s t d -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +\n";

#[test]
fn what_another_source_holds_beside_broken_rules_is_not_deleted() {
    let all = ["d/x/1", "d/x/2", "d/x/3", "d/b", "d/q", "d/y/only"];
    for (rules, code) in [("echo bogus >t/x/.rsync-filter", 1), ("echo '. missing' >t/x/.rsync-filter", 11)] {
        let Some(oracle) = Oracle::new(&[WHOLE, rules, WHOLE_DATED].concat()) else { return };
        for when in ["--delete", "--delete-before", "--delete-delay", "--delete-excluded"] {
            for sources in [["s/", "t/"], ["s/x", "t/x"]] {
                for dry in ["-aniF", "-aiF"] {
                    let (ended, lines, errors) = oracle.haul(&[dry, when, sources[0], sources[1], "d/"]);
                    assert!(ended == Some(code) && !lines.contains("deleting"), "{dry} {when} {lines} {errors}");
                    assert_eq!(errors.matches("bad filter rule").count(), 1, "{errors}");
                    assert!(all.iter().all(|kept| oracle.folder().join(kept).exists()), "{dry} {when} {errors}");
                }
            }
        }
    }
    // rsync takes rules that it may not read for none.
    let closed = "echo 'P 3' >t/x/.rsync-filter; chmod 0 t/x/.rsync-filter";
    let Some(oracle) = Oracle::unprivileged(&[WHOLE, closed, WHOLE_DATED].concat()) else { return };
    for more in ["-i", "--ignore-errors"] {
        let (code, lines, errors) = oracle.haul(&["-aF", more, "--delete", "s/", "t/", "d/"]);
        assert!(code == Some(1) && errors.contains("t/x/.rsync-filter: Permission denied"), "{lines} {errors}");
        assert!(all.iter().all(|kept| oracle.folder().join(kept).exists()), "{lines} {errors}");
    }
}

#[test]
fn what_another_source_may_hold_keeps_deletions_from_being_done() {
    for closed in ["chmod 0 t/x", "chmod 311 t/x", "chmod 600 t/x", "chmod 311 t"] {
        let Some(oracle) = Oracle::unprivileged(&[WHOLE, WHOLE_DATED, closed].concat()) else { return };
        oracle.same_but_for_lines(&["-aF", "--delete-before", "s/", "t/", "d/"], Compare::All);
        for line in ["-aF --delete", "-aF --delete-delay", "-a --delete-before", "-a --delete --remove-source-files"] {
            let args: Vec<&str> = line.split(' ').chain(["s/", "t/", "d/"]).collect();
            let (code, _, errors) = oracle.haul(&args);
            assert!(code == Some(23), "{line} {errors}");
            assert_eq!(errors.matches("Permission denied").count(), 1, "{errors}");
            let none = Command::new("chmod").args(["-R", "u+rwX"]).arg(oracle.folder()).status().unwrap();
            assert!(none.success());
            for kept in ["d/x/2", "d/x/3", "d/q", "d/y/only"] {
                assert!(oracle.folder().join(kept).exists(), "{closed} {line} {kept} {errors}");
            }
        }
    }
}

#[test]
fn a_dry_run_of_several_sources_tells_once_what_makes_way() {
    for other in ["ln -s /nowhere t/y", "echo file >t/y"] {
        let Some(oracle) = Oracle::new(&[WHOLE, other, WHOLE_DATED].concat()) else { return };
        for when in ["--delete", "--delete-before", "--delete-after", "--delete-delay"] {
            let tells = |dry: &str| {
                let (code, mut lines, errors) = oracle.haul(&[dry, when, "s/", "t/", "d/"]);
                assert_eq!(code, Some(0), "{errors}");
                lines.retain(|c| c != '\r');
                lines
            };
            assert_eq!(tells("-ain"), tells("-ai"), "{when} {other}");
        }
    }
}
