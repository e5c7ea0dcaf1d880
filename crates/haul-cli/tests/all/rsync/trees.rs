//! Options that say which part of a tree takes part: links that lead out of it, mount points, empty directories; and sources
//! that go away while the destination loses what they lack.

use super::{
    CHANGED, FRESH, each,
    oracle::{Compare, Oracle},
};
use haul_testkit::{
    folder::{self, write},
    lab::Lab,
    peers,
};
use std::{fs, os::unix::fs::MetadataExt as _, path::Path, process::Command};

#[test]
fn empty_directories_are_left_out_as_by_rsync() {
    let setup = r#"
mkdir -p s/a/b/c s/x/y s/z dst/z dst/a s/q/r; echo hi >s/x/y/f; ln -s q s/z/l; echo no >s/q/r/n.tmp; echo t >dst/z/t; echo u >dst/a/u
mkfifo s/a/b/p; mkdir -p s/only/spec s/none/at/all dst/none/at; mkfifo s/only/spec/p
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines = [
        "-aim s/ dst",
        "-aim --delete s/ dst",
        "-aim --delete --exclude=*.tmp s/ dst",
        "-aimn --delete --exclude=*.tmp s dst",
        "-rim s/ dst",
    ];
    each(setup, Compare::All, &lines);
}

#[test]
fn links_are_treated_as_by_rsync() {
    let setup = r#"
mkdir -p s/d/e s/in out dst; echo o >out/o; echo a >s/a; ln -s ../out s/up; ln -s ../out/o s/upf; ln -s /etc/passwd s/abs; ln -s a s/ok
ln -s ../a s/d/ok; ln -s ../../out s/d/bad; ln -s ../in s/d/din; ln -s d/../a s/odd; ln -s nowhere s/dang; ln -s ../nowhere s/dang2
ln -s other dst/abs; ln -s gone dst/extra; find s dst out -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let safe = [
        "-ai --safe-links s/ dst",
        "-ai --safe-links s dst",
        "-aii --safe-links --delete s/ dst",
        "-ani --safe-links s/ dst",
    ];
    each(setup, Compare::All, &safe);
    let Some(oracle) = Oracle::new(setup) else { return };
    let (_, lines, _) = oracle.haul(&["-av", "--safe-links", "s/", "dst"]);
    assert!(lines.contains("ignoring unsafe symlink \"d/bad\" -> \"../../out\""), "{lines}");
    let times = r#"
mkdir -p s dst; ln -s a s/x; ln -s b s/y; cp -a s/. dst; ln -sfn other dst/y; ln -s new s/n; echo f >s/f; echo f >dst/f
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -h -d 2021-01-01T00:00:00Z s/x s/y
"#;
    each(times, Compare::All, &["-aiJ s/ dst", "-aniJ s/ dst", "-aiiJ s/ dst", "-aciJ s/ dst"]);
}

/// Links that lead out of the tree, by text or in fact, to every kind of thing, and one that does in a directory that is one.
const UNSAFE: &str = r#"
mkdir -p s/d/e s/in out/sub dst; echo o >out/o; echo u >out/sub/u; echo a >s/a; ln -s ../out s/up; ln -s ../out/o s/upf; ln -s a s/ok
ln -s ../a s/d/ok; ln -s ../../out s/d/bad; ln -s ../in s/d/din; ln -s d/../a s/odd; ln -s nowhere s/dang; ln -s sub/u out/in; ln -s up s/up2
ln -s other dst/upf; ln -s gone dst/extra; ln -s ../x s/d/e/x; mkfifo out/p; ln -s ../out/p s/fifo; echo x >s/d/x; chmod 600 out/o
mkdir dst/up; echo gone >dst/up/gone; ln -s ../out/o top; find s dst out -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

#[test]
fn unsafe_links_are_what_they_point_to() {
    let lines = [
        "-ai --copy-unsafe-links s/ dst",
        "-ai --copy-unsafe-links s dst",
        "-ai --copy-unsafe-links --delete s/ dst",
        "-ani --copy-unsafe-links --delete s/ dst",
        "-ai --copy-unsafe-links --safe-links s/ dst",
        "-aki --copy-unsafe-links s/ dst",
        "-aLi --copy-unsafe-links s/up s/d/ok dst",
        "-ri --copy-unsafe-links s/ dst",
        "-aci --copy-unsafe-links s/ dst",
        "-ai --copy-unsafe-links s/up s/upf s/ok dst",
        "-ai --copy-unsafe-links top dst",
        "-ai --copy-unsafe-links s/ out/ dst",
    ];
    each(UNSAFE, Compare::Attributes, &lines);
    // A second run finds nothing to do, and a link that leads nowhere is an error.
    each(
        &[UNSAFE, "rsync -a --copy-unsafe-links s/ dst\n"].concat(),
        Compare::All,
        &["-ai --copy-unsafe-links s/ dst"],
    );
    let dangling = [UNSAFE, "ln -s /no/such/place s/lost; touch -d 2020-01-01T00:00:00Z s\n"].concat();
    each(&dangling, Compare::Trees, &["-a --copy-unsafe-links --delete s/ dst"]);
    let Some(oracle) = Oracle::new(UNSAFE) else { return };
    for source in ["s", "s/"] {
        let args = ["-r", "--copy-unsafe-links", "--list-only", source];
        // A directory's own size is the file system's.
        let files = |text: &str| {
            text.lines().filter(|line| !line.starts_with(['d', 'p'])).map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(files(&oracle.haul(&args).1), files(&oracle.rsync_lines(&args)), "{source}");
    }
}

#[test]
fn the_destinations_links_are_not_followed_with_the_sources() {
    let setup = r#"
mkdir -p s/d out dst/in; echo f >s/f; ln -s f s/l; echo d >s/d/1; echo f >out/f; echo keep >out/keep; ln -s ../out dst/d; ln -s ../out/f dst/f
ln -s ../out dst/extra; ln -s in dst/l; find s dst out -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    for follow in ["-aLi", "-rLti", "-aki --copy-unsafe-links"] {
        let lines = ["s/ dst", "--delete s/ dst", "-n --delete s/ dst", "s/d s/f dst", "--delete s/d dst"];
        // Without -l symlinks that only the destination has stay, other than in rsync.
        let lines = lines.iter().filter(|line| follow != "-rLti" || !line.contains("--delete s/"));
        let lines: Vec<String> = lines.map(|line| format!("{follow} {line}")).collect();
        each(setup, Compare::All, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn what_a_followed_link_leads_to_stays_when_sources_go() {
    let setup = "mkdir -p s out/sub dst; echo o >out/o; echo u >out/sub/u; ln -s ../out s/up; ln -s ../out/o s/upf; echo f >s/f";
    let Some(oracle) = Oracle::new(setup) else { return };
    for follow in ["--copy-unsafe-links", "-L", "-k"] {
        let (code, _, errors) = oracle.haul(&["-a", follow, "--remove-source-files", "s/", "dst"]);
        let line = "haul rsync: delete \"up/o\" failed: \
                    a symbolic link on the way leads out of the directory: remove the link";
        assert!(code == Some(23) && errors.lines().any(|told| told == line), "{follow}: {code:?} {errors}");
        let read = |name: &str| fs::read_to_string(oracle.folder().join(name)).unwrap_or_default();
        for side in ["dst/up", "out"] {
            assert_eq!((read(&format!("{side}/o")), read(&format!("{side}/sub/u"))), ("o\n".into(), "u\n".into()));
        }
        let gone = |name: &str| oracle.folder().join(name).symlink_metadata().is_err();
        assert!(gone("s/f") && gone("s/upf") && !gone("dst/upf") && !gone("s/up"), "{follow}");
    }
}

#[test]
fn links_are_munged_as_by_rsync() {
    let setup = r#"
mkdir -p s/d dst/d; ln -s a s/plain; ln -s /rsyncd-munged/../x s/munged; ln -s /rsyncd-munged/ s/bare; echo f >s/f
ln -s /rsyncd-munged//rsyncd-munged/a s/d/twice; ln -s ../out s/d/bad; ln -s a dst/plain; ln -s ../x dst/munged; ln -s /rsyncd-munged/../out dst/d/bad
ln -s /rsyncd-munged/a s/same; ln -s a dst/same; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines = [
        "-ai --munge-links s/ dst",
        "-ani --munge-links s/ dst",
        "-ai -M--munge-links s/ dst",
        "-ai -M --munge-links s dst",
        "-ai --munge-links -M--munge-links s/ dst",
        "-ai --munge-links --safe-links s/ dst",
        "-ai -M--munge-links --safe-links s/ dst",
        "-ai --munge-links --copy-unsafe-links s/plain s/d dst",
        "-ai --munge-links --delete --remote-option=--munge-links s/ dst",
        "-ai --munge-links --no-munge-links s/ dst",
    ];
    each(setup, Compare::All, &lines);
    // There and back again.
    let Some(oracle) = Oracle::new(setup) else { return };
    oracle.haul(&["-a", "-M--munge-links", "s/", "dst"]);
    let read = |name: &str| fs::read_link(oracle.folder().join(name)).unwrap();
    assert_eq!(read("dst/plain").to_str(), Some("/rsyncd-munged/a"));
    let refused = oracle.haul(&["-a", "--munge-links", ":memory:b", "dst"]);
    let line = "haul rsync: --munge-links needs sources on this machine: what a remote keeps of symlinks goes as it is";
    assert_eq!((refused.0, refused.2.trim_end()), (Some(4), line));
}

#[test]
fn links_to_directories_are_directories_with_k() {
    let setup = r#"
mkdir -p s/d/e s/in out/sub dst; echo o >out/o; echo u >out/sub/u; echo a >s/a; ln -s ../out s/up; ln -s ../out/o s/file; ln -s in s/in2
echo i >s/in/i; ln -s nowhere s/dang; ln -s ../in s/d/din; mkdir dst/real; echo r >dst/real/r; ln -s real dst/keep; ln -s out top
chmod 750 out; find s dst out -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z out out/o
"#;
    let lines = [
        "-aki s/ dst",
        "-aki s dst",
        "-akni s/ dst",
        "-rki s/ dst",
        "-aki --delete s/ dst",
        "-aki top dst",
        "-akci s/ dst",
        "-aki s/ out/ dst",
    ];
    each(setup, Compare::Attributes, &lines);
    each(&[setup, "cp -aL s/. dst 2>/dev/null || true; echo changed >out/o"].concat(), Compare::Trees, &["-ak s/ dst"]);
}

/// Directories with attributes of their own on the way to files, some of them at the destination with others.
const ON_THE_WAY: &str = r#"
mkdir -p s/d/e s/n dst/d/e; echo hi >s/d/f; echo hi >dst/d/f; echo x >s/d/e/g; cp s/d/e/g dst/d/e/g; mkdir -p s/n/m; echo t >s/n/m/t
chmod 700 s/d; chmod 750 s/d/e s/n; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
touch -d 2021-01-01T00:00:00Z s/d s; touch -d 2022-02-02T00:00:00Z s/n/m s/d/e; printf 'd/e/g\nn/m/t\n' >list; printf 'd/f\n' >one
"#;

#[test]
fn directories_on_the_way_are_treated_as_by_rsync() {
    let lines = [
        "-ai --files-from=list s dst",
        "-ani --files-from=list s dst",
        "-ai --files-from=one s dst",
        "-ai --files-from=list --no-implied-dirs s dst",
        "-aiR --no-implied-dirs s/./d/f s/./n dst",
        "-aniR s/./d/f dst",
    ];
    each(ON_THE_WAY, Compare::Attributes, &lines);
    // `haul copy` keeps attributes of directories on the way to listed names too, as rsync with the same names does.
    let Some(oracle) = Oracle::new(&[ON_THE_WAY, "cp -a dst ours; touch -r dst ours"].concat()) else { return };
    oracle.rsync_lines(&["-a", "--files-from=list", "s", "dst"]);
    let ran = Command::new(env!("CARGO_BIN_EXE_haul"))
        .args(["copy", "-a", "--no-traverse", "--files-from", "list", "s", "ours"])
        .current_dir(oracle.folder())
        .env("HOME", oracle.folder())
        .status()
        .unwrap();
    assert!(ran.success());
    for dir in ["d", "d/e", "n", "n/m"] {
        let facts = |side: &str| {
            let st = fs::metadata(oracle.folder().join(side).join(dir)).unwrap();
            (st.mode(), st.mtime())
        };
        assert_eq!(facts("ours"), facts("dst"), "{dir}");
    }
}

/// The destination has a link to one of its directories, and one that leads elsewhere, where the source has directories.
const DIRLINKS: &str = r#"
mkdir -p s/d/e dst/real/e out; echo 1 >s/d/1; echo 2 >s/d/e/2; echo old >dst/real/1; echo extra >dst/real/extra; ln -s real dst/d; echo t >s/t
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z s/d/1
"#;

#[test]
fn links_to_directories_stay_with_k() {
    each(DIRLINKS, Compare::All, &["-aiK s/ dst", "-aniK s/ dst"]);
    // Without it the link makes way, and what it led to is as it was.
    each(DIRLINKS, Compare::All, &["-ai s/ dst"]);
    // What the destination alone has behind the link stays, other than in rsync.
    let Some(oracle) = Oracle::new(DIRLINKS) else { return };
    let (code, lines, errors) = oracle.haul(&["-aiK", "--delete", "--exclude=/real", "s/", "dst"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(!lines.contains("deleting") && oracle.folder().join("dst/real/extra").exists(), "{lines}");
    let Some(oracle) = Oracle::new(&[DIRLINKS, "ln -sfn ../out dst/d; touch dst/gone"].concat()) else { return };
    let (code, _, errors) = oracle.haul(&["-aK", "--delete", "s/", "dst"]);
    assert_eq!(code, Some(23), "nothing is written outside");
    assert!(errors.contains("\"d/\" failed: a symbolic link on the way leads out of the directory"), "{errors}");
    let there = |name: &str| oracle.folder().join(name).symlink_metadata().is_ok();
    assert!(
        there("dst/t") && !there("dst/gone") && there("dst/d") && !there("out/1"),
        "what goes, goes before the first transfer"
    );
}

#[test]
fn what_is_behind_a_link_that_stays_is_not_lost_under_its_other_name() {
    let setup = r#"
mkdir -p s/d b dst/real; echo only >s/d/f; ln -s real dst/d; cp s/d/f dst/real/f; echo b >b/1
find s b dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let Some(oracle) = Oracle::new(setup) else { return };
    for when in ["--delete", "--delete-after", "--delete-before"] {
        for more in
            [&["--remove-source-files", "s/"][..], &["s/"], &["--remove-source-files", "s/", "b/"], &["s/", "b/"]]
        {
            let args = [&["-aK", when][..], more, &["dst"]].concat();
            let (code, _, errors) = oracle.haul(&args);
            assert_eq!((code, errors.as_str()), (Some(0), ""), "{args:?}");
            let text = fs::read_to_string(oracle.folder().join("dst/d/f"));
            assert_eq!(text.ok().as_deref(), Some("only\n"), "{args:?}");
        }
    }
}

#[test]
fn a_link_where_an_argument_goes_is_replaced_or_kept_like_any_other() {
    let setup = r#"
mkdir -p s/d out dst/real; echo f >s/d/f; echo o >out/o; echo r >dst/real/r; ln -s real dst/d; ln -s ../out dst/up; mkdir s/up; echo u >s/up/u
find s dst out -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines =
        ["-ai s/d dst", "-ai s/up dst", "-ani s/d dst", "-ai --delete s/d dst", "-ai s/d s/up dst", "-aiK s/d dst"];
    each(setup, Compare::All, &lines);
    let file = "mkdir -p s/d dst; echo f >s/d/f; echo old >dst/d; touch -d 2020-01-01T00:00:00Z dst/d s/d/f s/d";
    each(file, Compare::Trees, &["-a s/d dst", "-an s/d dst", "-a --delete s/d dst"]);
    // Nothing is written through a link that leads out.
    let Some(oracle) = Oracle::new(setup) else { return };
    for more in [&["s/up"][..], &["s/up", "s/d"]] {
        let (code, _, errors) = oracle.haul(&[&["-aK", "--delete"][..], more, &["dst"]].concat());
        assert_eq!(code, Some(23), "{errors}");
        assert!(errors.contains("\"up/\" failed: a symbolic link on the way leads out of the directory"), "{errors}");
        let at = |name: &str| oracle.folder().join(name);
        assert!(!at("out/u").exists() && at("out/o").exists() && at("dst/up").is_symlink());
    }
}

#[test]
fn two_names_of_one_place_neither_overwrite_nor_delete() {
    // Three sources end up in `real`: by `d`, by `e` through another link, and by its own name.
    let setup = r#"
mkdir -p s/d/sub t/real/sub u/e all dst/real; echo s>s/d/f; echo t>t/real/f; echo u>u/e/f; echo s>s/d/sub/1; echo t>t/real/sub/2; echo s>s/d/only
echo old >dst/real/old; echo old>dst/real/f; ln -s real dst/d; mkdir dst/via; ln -s ../via/../d dst/via/l; ln -s via/l dst/e; cp -a s/d t/real u/e all
find s t u all dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z s/d/f u/e/f all/d/f
"#;
    let Some(oracle) = Oracle::new(setup) else { return };
    let read = |name: &str| fs::read_to_string(oracle.folder().join("dst").join(name)).unwrap_or_default();
    for (sources, first) in [
        (&["s/d", "t/real"][..], "t\n"),
        (&["t/real", "s/d"], "t\n"),
        (&["s/d", "u/e"], "s\n"),
        (&["u/e", "s/d"], "u\n"),
        (&["s/", "t/"], "t\n"),
        (&["all/"], "t\n"),
        (&["all/d", "all/real"], "t\n"),
    ] {
        for more in [&[][..], &["--delete", "--exclude=/via"], &["--remove-source-files"], &["-l"], &["--no-l"]] {
            let args = [&["-aK"][..], more, sources, &["dst"]].concat();
            let (code, _, errors) = oracle.haul(&args);
            assert_eq!(code, Some(23), "{args:?} {errors}");
            let lines = errors.lines().filter(|line| line.contains("a symbolic link of the destination"));
            // Sources that go are taken in the reverse order.
            let unknown = more == ["--remove-source-files"];
            assert!(lines.count() >= 1, "{args:?} {errors}");
            assert!(unknown || read("real/f") == first, "{args:?} {errors}");
            assert!(["s\n", "t\n", "u\n"].contains(&read("real/f").as_str()), "{args:?}");
            for (name, text) in
                [("s/d/f", "s\n"), ("t/real/f", "t\n"), ("u/e/f", "u\n"), ("all/d/f", "s\n"), ("all/real/f", "t\n")]
            {
                let at_source = fs::read_to_string(oracle.folder().join(name)).is_ok_and(|read| read == text);
                assert!(at_source || read("real/f") == text, "{args:?} {name} is lost: {errors}");
            }
            // Files without a counterpart are always transferred.
            let has = |source: &str| sources.iter().any(|s| s.starts_with(source) || *s == "all/");
            assert!(!has("s/") || read("real/only") == "s\n" && read("real/sub/1") == "s\n", "{args:?} {errors}");
            assert!(!has("t/") || read("real/sub/2") == "t\n", "{args:?} {errors}");
        }
    }
}

#[test]
fn what_came_in_this_run_makes_no_way() {
    // Two names of one place, as on a disk that ignores case: by `d` a file comes to where `real` is to have a directory, and
    // a link.
    let setup = r#"
mkdir -p s/d s/real/x dst/real; echo only >s/d/x; echo in >s/real/x/in; ln -s real dst/d; for n in $(seq 600); do echo $n >s/e$n; done
"#;
    let Some(oracle) = Oracle::new(setup) else { return };
    for more in [&[][..], &["--force"], &["--delete"]] {
        let args = [&["-aK", "--remove-source-files"][..], more, &["s/", "dst"]].concat();
        let (code, _, errors) = oracle.haul(&args);
        let has =
            |name: &str, text: &str| fs::read_to_string(oracle.folder().join(name)).is_ok_and(|read| read == text);
        assert_eq!(code, Some(23), "{args:?} {errors}");
        assert!(has("s/d/x", "only\n") || has("dst/real/x", "only\n"), "{args:?} {errors}");
        assert!(has("s/real/x/in", "in\n") || has("dst/real/x/in", "in\n"), "{args:?} {errors}");
    }
}

#[test]
fn directories_alone_lose_what_the_source_lacks() {
    each(&[FRESH, CHANGED].concat(), Compare::All, &["-di --delete s/ dst", "-dni --delete s/ dst"]);
}

#[test]
fn sources_may_go_in_a_sync() {
    let lines = [
        "-ai --remove-source-files --delete s/ dst",
        "-ai --remove-source-files --delete-after s/ dst",
        "-ani --remove-source-files --delete s/ dst",
        "-aiH --remove-source-files --delete-excluded --exclude=*.o s/ dst",
    ];
    each(&[FRESH, CHANGED].concat(), Compare::All, &lines);
    each(&[FRESH, CHANGED].concat(), Compare::Trees, &["-a --remove-source-files --delete-before s/ dst"]);
}

/// A file that has other names elsewhere arrives as a file of its own: who writes to it there, later, doesn't write to both.
#[test]
fn a_source_that_goes_leaves_nothing_of_its_inode() {
    let setup = "mkdir -p s out dst; echo o >out/o; ln out/o s/h; echo a >s/a";
    let Some(oracle) = Oracle::new(setup) else { return };
    let (code, _, errors) = oracle.haul(&["-a", "--remove-source-files", "s/", "dst"]);
    assert_eq!(code, Some(0), "{errors}");
    let inode = |path: &str| fs::metadata(oracle.folder().join(path)).unwrap().ino();
    assert_ne!(inode("out/o"), inode("dst/h"));
    assert!(fs::read_dir(oracle.folder().join("s")).unwrap().next().is_none(), "the sources went");
}

#[test]
fn an_error_keeps_extra_files_and_the_source_that_failed() {
    let Some(oracle) = Oracle::new(&[FRESH, "mkdir dst/k.txt; touch dst/k.txt/full dst/extra"].concat()) else {
        return;
    };
    let (code, _, errors) =
        oracle.haul(&["-a", "--remove-source-files", "--delete-after", "--exclude=full", "s/", "dst"]);
    assert_eq!(code, Some(23), "{errors}");
    let there = |name: &str| oracle.folder().join(name).exists();
    assert!(there("dst/extra") && there("s/k.txt") && !there("s/a") && there("dst/a"), "{errors}");
}

#[test]
fn other_file_systems_are_left_alone() {
    let Some(rsync) = peers::need("rsync") else { return };
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    let make = |path: &str, text: &str| {
        write(&lab.path(path), text.as_bytes(), 1_600_000_000_000_000_000);
    };
    fs::create_dir_all(lab.path("s/m")).unwrap();
    let Some(_mounted) = Mounted::new(&lab.path("s/m")) else {
        return peers::skip("a file system can't be mounted here");
    };
    for (path, text) in [("s/m/in", "in"), ("s/m/sub/x", "x"), ("s/f", "f"), ("s/d/g", "g")] {
        make(path, text);
    }
    for side in ["a", "b"] {
        for (path, text) in [("m/keep", "keep"), ("m/kd/x", "x"), ("m/in", "old"), ("gone", "gone")] {
            make(&format!("{side}/{path}"), text);
        }
    }
    // Directories too: those of `a` and `b` may have been made in two seconds.
    let dated = Command::new("find")
        .args(["s", "a", "b", "-depth", "-type", "d", "-exec", "touch", "-d", "2020-01-01T00:00:00Z", "{}", "+"])
        .current_dir(lab.path(""))
        .status();
    assert!(dated.unwrap().success());
    for (options, source, ours, theirs) in [("-aix", "@s/", "a", "b"), ("-aix", "@s", "new", "new2")] {
        let source_path = format!("{}{}", lab.path("s").display(), source.trim_start_matches("@s"));
        let expected =
            Command::new(&rsync).args([options, "--delete", &source_path]).arg(lab.path(theirs)).output().unwrap();
        let ran = lab.haul(&["rsync", options, "--delete", source, &format!("@{ours}")]).ok();
        let sorted = |text: &str| {
            let mut lines: Vec<String> =
                text.lines().filter(|line| !line.starts_with("created ")).map(String::from).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ran.out), sorted(&String::from_utf8_lossy(&expected.stdout)));
        let files = |side: &str| folder::files(&folder::read(&lab.path(side)));
        folder::assert_same(&files(ours), &files(theirs), options);
    }
}

#[test]
fn mount_points_are_left_out_with_xx() {
    let Some(rsync) = peers::need("rsync") else { return };
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    for dir in ["s/m", "s/d/m", "t/m"] {
        fs::create_dir_all(lab.path(dir)).unwrap();
    }
    let mounts = ["s/m", "s/d/m"].map(|at| Mounted::new(&lab.path(at)));
    if mounts.iter().any(Option::is_none) {
        return peers::skip("a file system can't be mounted here");
    }
    let time = 1_600_000_000_000_000_000;
    for path in ["s/m/in", "s/d/m/in", "s/d/f", "s/f", "t/m/1"] {
        write(&lab.path(path), b"text", time);
    }
    for (options, sources) in [("-axx", &["s/"][..]), ("-axx", &["s"]), ("-dtxx", &["s/"]), ("-axx", &["s/", "t/"])] {
        for side in ["a", "b"] {
            let _ = fs::remove_dir_all(lab.path(side));
            fs::create_dir(lab.path(side)).unwrap();
        }
        let paths: Vec<String> = sources
            .iter()
            .map(|s| format!("{}{}", lab.path(s.trim_end_matches('/')).display(), &s[s.trim_end_matches('/').len()..]))
            .collect();
        let ran = Command::new(&rsync).arg(options).args(&paths).arg(lab.path("b")).output().unwrap();
        assert!(ran.status.success());
        let sources: Vec<&str> = paths.iter().map(String::as_str).collect();
        lab.haul(&[&["rsync", options][..], &sources, &["@a"]].concat()).ok();
        folder::assert_same(
            &folder::read(&lab.path("a")),
            &folder::read(&lab.path("b")),
            &format!("{options} {paths:?}"),
        );
    }
    // What the destination has where the source has a mount point stays, other than in rsync.
    write(&lab.path("dst/m/keep"), b"text", time);
    write(&lab.path("dst/gone"), b"text", time);
    lab.haul(&["rsync", "-axx", "--delete", "@s/", "@dst"]).ok();
    assert!(lab.path("dst/m/keep").exists() && !lab.path("dst/gone").exists() && !lab.path("dst/d/m").exists());
    lab.haul(&["rsync", "-axx", "--no-x", "@s/", "@dst"]).ok();
    assert!(lab.path("dst/m/in").exists() && lab.path("dst/d/m/in").exists());
}

#[test]
fn deletions_stop_at_other_file_systems() {
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    let make = |path: &str| write(&lab.path(path), b"text", 1_600_000_000_000_000_000);
    make("s/m");
    make("s/f");
    for at in ["d/m/on", "d/x/on", "d/top"] {
        fs::create_dir_all(lab.path(at)).unwrap();
    }
    let mounts = ["d/m/on", "d/x/on", "d/top"].map(|at| Mounted::new(&lab.path(at)));
    if mounts.iter().any(Option::is_none) {
        return peers::skip("a file system can't be mounted here");
    }
    let kept = ["d/m/on/keep", "d/x/on/keep", "d/x/on/in/keep", "d/top/keep"];
    kept.into_iter().for_each(make);
    ["d/m/beside", "d/x/plain", "d/x/in/plain"].into_iter().for_each(make);
    let there = |path: &str| lab.path(path).exists();
    // A file is to come where a directory holds a mount point: nothing of the directory goes.
    let ran = lab.haul(&["rsync", "-ax", "--force", "@s/", "@d"]);
    assert_eq!(ran.code, 23, "{}", ran.err);
    assert!(ran.err.contains("another file system begins here"), "{}", ran.err);
    assert!(kept.into_iter().all(there) && there("d/m/beside") && there("d/f"));
    // Extra entries of the destination are deleted if they are on the same file system.
    fs::remove_file(lab.path("s/m")).unwrap();
    fs::create_dir(lab.path("s/m")).unwrap();
    let ran = lab.haul(&["rsync", "-dtx", "--delete", "@s/", "@d"]).ok();
    assert!(kept.into_iter().all(there), "{} {}", ran.out, ran.err);
    assert!(!there("d/x/plain") && !there("d/x/in"), "{} {}", ran.out, ran.err);
}

/// A file system of its own; unmounted when dropped.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(at: &Path) -> Option<Mounted> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "haul-test"]).arg(at).output();
        mounted.is_ok_and(|out| out.status.success()).then(|| Mounted(at.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // If it stays mounted, the folder can't be removed, which is all.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Where the source has files, links and a FIFO, the destination has directories that hold something.
const DIRS_IN_THE_WAY: &str = r#"
mkdir -p s/real t dst/f/sub dst/l/q dst/out/q dst/p dst/real; echo f >s/f; echo r >s/real/x; ln -s real s/l; ln -s /no/where s/out; mkfifo s/p
echo 1 >dst/f/1; echo 2 >dst/f/sub/2; echo x >dst/real/x; ln dst/real/x dst/l/x; echo 3 >dst/out/3; echo 4 >dst/p/4; echo 5 >dst/extra
find s t dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch s/real/x; touch -d 2019-01-01T00:00:00Z dst
"#;

#[test]
fn what_is_in_the_way_goes_only_when_its_place_is_taken() {
    for when in ["--delete", "--delete-before", "--delete-after", "--delete-delay"] {
        for sources in ["s/", "s/ t/"] {
            let lines = [
                format!("-ai {when} {sources} dst"),
                format!("-rltpi --safe-links {when} {sources} dst"),
                format!("-rlti --delay-updates {when} {sources} dst"),
                format!("-ai --ignore-existing {when} {sources} dst"),
                format!("-rlti --max-size=1 {when} {sources} dst"),
            ];
            each(DIRS_IN_THE_WAY, Compare::All, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    each(DIRS_IN_THE_WAY, Compare::All, &["-rti --delete s/ dst", "-rti --delete-after s/ t/ dst"]);
    let Some(oracle) = Oracle::new(DIRS_IN_THE_WAY) else { return };
    for sources in [&["s/"][..], &["s/", "t/"]] {
        let (code, _, errors) = oracle.haul(&[&["-rlt", "--delete", "--max-delete=1"][..], sources, &["dst"]].concat());
        assert_eq!(code, Some(23), "{errors}");
        assert!(errors.contains("--max-delete allows"), "{errors}");
        assert!(oracle.folder().join("dst/f/1").exists() && oracle.folder().join("dst/f/sub/2").exists(), "{errors}");
    }
}

#[test]
fn a_symlink_makes_way_for_a_file_where_links_to_directories_stay() {
    let setup = r#"
mkdir -p s/d t dst/real out; echo f >s/f; ln -s new s/l; echo x >s/d/x; echo o >out/o; ln -s ../out/o dst/f; echo l >dst/l; ln -s real dst/d; ln -s gone dst/real/x
find s t dst out -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines = ["-aiK s/ dst", "-aiK s/ t/ dst", "-aiK --delay-updates s/ dst", "-aiKc --existing s/ dst"];
    each(setup, Compare::Trees, &lines);
}

#[test]
fn what_exists_makes_no_way_for_a_directory_where_it_is_to_stay() {
    let setup = r#"
mkdir -p s/f/sub s/l dst out; echo 1 >s/f/1; echo 2 >s/f/sub/2; echo 3 >s/l/3; echo n >s/new; echo keep >dst/f; ln -s ../out dst/l
find s dst out -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    for more in ["", " --delete", " --force"] {
        each(setup, Compare::Trees, &[&format!("-a --ignore-existing{more} s/ dst")]);
    }
    // rsync writes through a link that stays within the destination.
    let Some(oracle) = Oracle::new("mkdir -p s/in dst/real; echo 4 >s/in/4; ln -s real dst/in") else { return };
    let (code, _, errors) = oracle.haul(&["-a", "--ignore-existing", "s/", "dst"]);
    assert!(code == Some(23) && errors.contains("existing files aren't replaced"), "{errors}");
    assert!(oracle.folder().join("dst/in").is_symlink() && !oracle.folder().join("dst/real/4").exists());
}

#[test]
fn a_new_directory_hands_on_the_group_of_the_one_above_it() {
    let setup = "mkdir -p s/d/e dst; echo x >s/d/e/f; chmod 700 s/d; chmod 2755 dst
                 find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +";
    each(setup, Compare::Attributes, &["-rti s/ dst", "-rti s dst", "-rti --chmod=Dg-s s/ dst", "-rtpi s/ dst"]);
}
