//! rsync's filter rules in `haul rsync`, beside rsync itself: a table of rules, and rules made at random on small folders.

use super::{
    each,
    oracle::{Compare, Oracle},
};
use haul_testkit::{amount::rounds, folder::write, lab::Lab};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

const SETUP: &str = r#"
mkdir -p s/a/b/c s/x/a/b s/core s/cvs/.git dst
for f in f.o f.c a/f.o a/b/f.c a/b/keep.o x/a/b/q.o x/a/z core/k a/core 'a/[w]' 'a/w' 'a/b\c' cvs/.git/x cvs/y~ cvs/tags \
         a/b/c/d.txt; do echo "$f" >"s/$f"; done
cp -a s/. dst; for f in extra.o a/extra.o a/b/ex.c x/gone cvs/z~; do echo e >dst/$f; done
mkdir -p dst/old/b; echo 1 >dst/old/b/f.o; echo 2 >dst/old/k
for f in f.o a/b/f.c a/f.o x/a/b/q.o cvs/y~; do echo changed-now >s/$f; done; echo new >s/a/new.o; echo new >s/x/new.c
"#;
const DATE: &str = "\nfind s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +\n";

/// A file whose rules are all for one side, and a rule in it that names one: nobody could say for which it is.
#[test]
fn rules_for_one_side_name_no_other() {
    let setup = "mkdir -p s dst; echo a >s/a; echo b >dst/b; printf 'R x\\n' >s/.rules; printf -- '-r x\\n' >top";
    each(setup, Compare::Trees, &["-a --delete -f:se_.rules s/ dst", "-a --delete -f.s_top s/ dst"]);
}

#[test]
fn rules_match_what_they_match_in_rsync() {
    let Some(oracle) = Oracle::new(&[SETUP, DATE].concat()) else { return };
    let rules = r"--exclude=*.o|--exclude=/a|--exclude=a/|--exclude=a/b|--exclude=b/*.o|--include=keep.o;--exclude=*.o
        |--include=*/;--include=*.c;--exclude=*|--include=/a/;--include=/a/b/***;--exclude=*|--exclude=**/b/**
        |--exclude=/**/f.c|--exclude=a/**|--exclude=a/***|--exclude=f.?|--exclude=[!f]*|--exclude=[a-f].o
        |--exclude=*.[[:alpha:]]|--exclude=core/|--exclude=core|-C|-f;P *.o|-f;H *.o|-f;R *.o;--exclude=*.o
        |-f;S keep.o;-f;H *.o|-f;protect extra.o|-f;hide,! */;-f;- x|-f;-! *.o|-f;-s *.o|-f;-r *.o|-f;-p *.o
        |--exclude=+ keep.o;--exclude=*.o|--exclude=x;--exclude=!|-f;+_keep.o;-f;-_*.o|--exclude=\[w\]|--exclude=a/[w]
        |--exclude=b\c|--exclude=x/a|--exclude=x/*/b|--exclude=/x/**/q.o|--exclude=**|--exclude=*|--exclude=f.o/
        |--exclude=/old/b|--exclude=b|--exclude=**.o|--exclude=a**c|--exclude=/a*/*|--exclude=***|--exclude=x/***";
    for rules in rules.split('|').map(|rules| rules.trim()) {
        for delete in [&["--delete"][..], &["--delete", "--delete-excluded"], &[]] {
            let args: Vec<&str> =
                ["-ai"].iter().chain(delete).copied().chain(rules.split(';')).chain(["s/", "dst"]).collect();
            oracle.same(&args, Compare::All);
        }
    }
}

#[test]
fn names_begin_where_the_transfer_begins() {
    let Some(oracle) = Oracle::new(&[SETUP, "mkdir D; cp -a dst D/s", DATE].concat()) else { return };
    for rule in ["/s/a", "/a", "s", "/s/", "s/a/b"] {
        oracle.same(&["-ai", "--delete", &format!("--exclude={rule}"), "s", "D"], Compare::All);
    }
}

#[test]
fn rule_files_of_directories_name_further_ones() {
    let files = r#"
printf -- ': .more\n- *.o\n' >s/.rsync-filter; printf -- '- tags\n+ keep.o\n' >s/.more; printf -- '- /b/f.c\n- k\n' >s/a/.more
printf -- '- z\n: .own\n' >s/x/.rsync-filter; printf -- '- q.o\n' >s/x/.own; printf ':C\n' >s/core/.rsync-filter
printf 'k two\n' >s/core/.cvsignore; cp -a s/. dst; echo 1 >s/core/k; echo 2 >s/a/b/f.c; echo 3 >s/x/a/z
"#;
    let Some(oracle) = Oracle::new(&[SETUP, files, DATE].concat()) else { return };
    for delete in [&["--delete"][..], &["--delete", "--delete-excluded"], &[]] {
        for rules in ["-F", "--filter=:n .rsync-filter"] {
            let args: Vec<&str> = ["-ai"].iter().chain(delete).copied().chain([rules, "s/", "dst"]).collect();
            oracle.same(&args, Compare::All);
        }
    }
}

/// Which rules protect from deletion: the destination's own, as they were before or, with --delete-after, as they came.
#[test]
fn rule_files_of_the_destination_protect_what_they_name() {
    let folders = r#"
mkdir -p s/d t/d dst/d dst/s/d dst/x; for d in s s/d t t/d; do echo "$d" >$d/f; done; echo t >t/d/only-t
for d in dst dst/d dst/s dst/s/d dst/x; do for f in keep gone; do echo $f >$d/$f; done; done
"#;
    let protecting = [
        "printf -- '- keep\n' >dst/.rsync-filter",
        "printf -- '- keep\n' >s/.rsync-filter",
        "printf -- '- keep\n' >.rsync-filter",
        "printf -- 'P keep\n' >dst/.rsync-filter; printf -- 'P gone\n' >s/.rsync-filter",
        "printf -- 'P gone\n' >dst/.rsync-filter; printf -- 'P keep\n' >s/.rsync-filter;",
        "printf -- '- /keep\n' >dst/.rsync-filter; printf -- '- /d/keep\n' >dst/s/.rsync-filter; echo 'P gone' >dst/d/.rsync-filter",
        "printf -- '- keep\n' >dst/x/.rsync-filter; printf -- 'P gone\n' >s/d/.rsync-filter",
        "printf -- '-p keep\n' >dst/x/.rsync-filter; printf -- 'R keep\nP *\n' >dst/d/.rsync-filter",
        "printf -- ': .more\n' >dst/.rsync-filter; printf -- 'P keep\n' >dst/.more; printf -- 'P gone\n' >s/.more",
        "printf -- '. d/rules\n' >dst/.rsync-filter; printf -- 'P keep\n' >dst/d/rules; cp dst/.rsync-filter s; echo 'P gone' >s/d/rules",
    ];
    // In a daily run each sort of rules meets each line with two of the four ways to delete.
    let every = rounds(2, 1) as usize;
    for (rules, setup) in protecting.iter().enumerate() {
        let Some(oracle) = Oracle::new(&[folders, setup, DATE].concat()) else { return };
        for (way, delete) in
            ["--delete", "--delete-before", "--delete-after", "--delete --delete-excluded"].iter().enumerate()
        {
            let lines = [
                "-F s/",
                "-F s",
                "-FF s/",
                "-f:_.rsync-filter s/",
                "-f:_.rsync-filter s",
                "-FR s/d",
                "-F s/ t/",
                "-Fn s/",
            ];
            for (_, line) in lines.iter().enumerate().filter(|(number, _)| (rules + way + number) % every == 0) {
                let line = format!("-ai {delete} {line} dst");
                let comparison =
                    if line.contains("-Fn") || line.contains("t/") { Compare::Trees } else { Compare::All };
                oracle.same(&line.split(' ').collect::<Vec<_>>(), comparison);
            }
        }
    }
}

/// A move leaves nothing behind to compare with when all transfers are over.
#[test]
fn a_move_with_late_deletions_deletes_nothing_that_it_brought() {
    let setup = "mkdir -p s/d dst; echo 1 >s/d/f; echo 2 >dst/gone; echo 3 >dst/keep; echo 'P keep' >s/.rsync-filter";
    let Some(oracle) = Oracle::new(setup) else { return };
    oracle.same(&["-aF", "--remove-source-files", "--delete-after", "s/", "dst"], Compare::Trees);
}

/// rsync's partial files belong to no source. They are deleted with the directory that holds them.
#[test]
fn partial_files_of_rsync_are_left_alone() {
    let setup = "mkdir -p s/pd dst/pd dst/x/pd; echo 1 >s/f; echo 1 >s/pd/f; echo p >dst/pd/k; echo q >dst/x/pd/h; echo o >dst/x/o";
    let Some(oracle) = Oracle::new(setup) else { return };
    for line in [
        "--partial-dir=pd",
        "--partial-dir=./pd/",
        "--partial-dir=/nowhere/pd",
        "--include=*/ --partial-dir=pd",
        "--partial-dir=pd --include=*/",
        "--partial-dir=pd --partial-dir=other",
        "--partial-dir=pd --no-partial",
        "--partial-dir=pd --delay-updates",
        "--partial",
        "-C --partial-dir=pd",
    ] {
        let line = format!("-ai --delete {line} s/ dst");
        oracle.same(&line.split(' ').collect::<Vec<_>>(), Compare::All);
    }
}

/// A pipe can be read but once, and rules are asked for more often.
#[test]
fn rules_of_a_pipe_count_for_both_sides() {
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    for (file, text) in
        [("s/new", "1"), ("dst/keep", "2"), ("dst/gone", "3"), ("dst/.rsync-filter", "P .rsync-filter\n")]
    {
        write(&lab.path(file), text.as_bytes(), 0);
    }
    let line = format!(
        "cd {} && {} rsync -aF --delete --exclude-from=<(echo keep) s/ dst",
        lab.path("").display(),
        env!("CARGO_BIN_EXE_haul")
    );
    let done = std::process::Command::new("bash").args(["-c", &line]).status().unwrap();
    assert!(done.success());
    let there = |name: &str| lab.path("dst").join(name).exists();
    assert!(there("new") && there("keep") && there(".rsync-filter") && !there("gone"));
}

#[test]
fn rules_that_cannot_be_read_stop_the_run() {
    let setup = "mkdir -p s/a/b s/z dst/a; echo x >s/a/x; echo y >s/z/y; echo old >dst/a/old; printf -- '- x\n? y\n' >s/a/.rsync-filter";
    let Some(oracle) = Oracle::new(setup) else { return };
    let (code, lines, errors) = oracle.haul(&["-a", "-F", "--delete", "s/", "dst"]);
    let file = oracle.folder().join("s/a/.rsync-filter");
    let line = format!(
        "haul rsync: {}: bad filter rule \"? y\": it begins with none of - + . : H S P R !\n\
         haul rsync: error: syntax or usage error (code 1)\n",
        file.display()
    );
    assert_eq!((code, lines.as_str(), errors), (Some(1), "", line));
    let there = |name: &str| oracle.folder().join("dst").join(name).exists();
    assert!(!there("a/x") && there("a/old"));
    // At the destination too.
    let setup = "mkdir -p s/a dst/a; echo x >s/a/x; echo old >dst/a/old; echo '? y' >dst/a/.rsync-filter";
    let Some(oracle) = Oracle::new(setup) else { return };
    let (code, ..) = oracle.haul(&["-a", "-F", "--delete", "s/", "dst"]);
    assert!(code == Some(1) && oracle.folder().join("dst/a/old").exists());
}

/// A file that a directory's file names by `.` is looked for where the transfer begins, as in rsync, and a path beside the file; there
/// it must be.
#[test]
fn files_that_rule_files_merge_are_where_the_transfer_begins() {
    let setup = "mkdir -p s/d dst; echo '- f' >s/d/rules; echo '- g' >rules; echo '. rules' >s/d/.rsync-filter; touch s/d/f s/d/g";
    let Some(oracle) = Oracle::new(setup) else { return };
    oracle.same(&["-a", "-F", "s", "dst"], Compare::Trees);
    oracle.same(&["-a", "-F", "s/d/", "dst"], Compare::Trees);
    let paths = "mkdir -p s/d/e dst; echo '- f' >s/d/e/rules; echo '. e/rules' >s/d/.rsync-filter; touch s/d/f s/d/g";
    let Some(beside) = Oracle::new(paths) else { return };
    beside.same(&["-a", "-F", "s", "dst"], Compare::Trees);
    beside.same(&["-a", "-F", "s/", "dst"], Compare::Trees);
    let (code, _, errors) = oracle.haul(&["-a", "-F", "s/", "dst"]);
    assert!(code == Some(11) && errors.contains("bad filter rule \". rules\": no such file"), "{code:?} {errors}");
}

#[test]
fn directories_bring_rules() {
    let files = r#"
printf -- '- *.o\n' >s/a/.rsync-filter; printf -- '+ keep.o\n- /c\n' >s/a/b/.rsync-filter; printf -- '!\n- b/\n' >s/x/.rsync-filter
printf -- '# c\n; d\n\n- tags\n+ core/\n- c*\n' >m
for d in a a/b x; do cp s/$d/.rsync-filter dst/$d; done
"#;
    let Some(oracle) = Oracle::new(&[SETUP, files, DATE].concat()) else { return };
    let rules = "-F|-FF|-f;: .rsync-filter|-f;:n .rsync-filter|-f;:e .rsync-filter|-f;. m|-f;merge m|--exclude-from=m|-f;.- m\
                 |-f;dir-merge,s .rsync-filter|-f;:w- .rsync-filter";
    for rules in rules.split('|') {
        for delete in [&["--delete"][..], &[]] {
            let args: Vec<&str> =
                ["-ai"].iter().chain(delete).copied().chain(rules.split(';')).chain(["s/", "dst"]).collect();
            oracle.same(&args, Compare::All);
        }
    }
}

/// A small folder as a script, with few names so that both sides meet.
fn folder(root: &'static str) -> impl Strategy<Value = String> {
    folder_of(root, vec!["file", "file", "file", "link"])
}

/// The same of these kinds.
fn folder_of(root: &'static str, kinds: Vec<&'static str>) -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "a.o", "x", "d/a", "d/b.o", "d/e/a", "e/d/a.o", "l", "e/l"]);
    let kind = prop::sample::select(kinds);
    let content = prop::sample::select(vec!["x", "y", "long"]);
    let day = 1..4u8;
    let mode = prop::sample::select(vec!["644", "600"]);
    prop::collection::btree_map(name, (kind, content, day, mode), 0..8).prop_map(move |files| {
        let mut script = format!("mkdir -p {root}\n");
        for (name, (kind, content, day, mode)) in files {
            let path = format!("{root}/{name}");
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            let make = if kind == "link" { format!("ln -s {content} {path}") } else { format!("echo {content} >{path} && chmod {mode} {path}") };
            // Another name may have made a file of a directory's.
            script.push_str(&format!("mkdir -p {dir} 2>/dev/null && [ ! -e {path} ] && {make} && touch -h -d 2020-01-0{day}T00:00:00Z {path} || true\n"));
        }
        script.push_str(&format!("find {root} -type d -depth -exec touch -d 2020-01-01T00:00:00Z {{}} +\n"));
        script
    })
}

fn options() -> impl Strategy<Value = Vec<String>> {
    let flags = [
        "-u -c --existing --ignore-existing --size-only -I -n --force -O -m -J -k --append --delay-updates --safe-links --copy-unsafe-links",
        "--remove-source-files -b",
    ];
    let flags = flags.iter().flat_map(|flags| flags.split(' ')).collect::<Vec<_>>();
    let flags = prop::sample::subsequence(flags, 0..4);
    let patterns = vec!["*", "a", "/a", "*.o", "d/", "d/a", "/d/**", "e", "**/a", "d/***", "[ab]", "b?o"];
    let rule = (
        prop::sample::select(vec!["+", "-", "-", "P", "H", "R", "S", "-!", "-s", "-r"]),
        prop::sample::select(patterns),
    );
    let rules = prop::collection::vec(rule, 0..3);
    let delete = prop::sample::select(vec!["", "--delete", "--delete", "--delete-excluded", "--delete-after"]);
    (flags, rules, delete).prop_map(|(flags, rules, delete)| {
        let mut args: Vec<String> = flags.iter().map(|flag| flag.to_string()).collect();
        if args.iter().any(|arg| arg == "--append") {
            // A backup moves the old file away, so the whole file would be transferred, and not rsync's mixture of two that differ.
            args.retain(|arg| arg != "-b");
        }
        args.extend(rules.iter().flat_map(|(sign, pattern)| ["-f".to_string(), format!("{sign} {pattern}")]));
        args.extend((!delete.is_empty()).then(|| delete.to_string()));
        args
    })
}

/// Runs both programs on `sources` and `dst`, made of any trees, with any options.
fn any(trees: impl Strategy<Value = String>, sources: &[&str]) {
    if Oracle::new("true").is_none() {
        return;
    }
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let strategy = (trees, folder("dst"), options());
    // The same trees in each run; more of them with PROPTEST_CASES.
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let ran = runner.run(&strategy, |(trees, dst, options)| {
        let Some(oracle) = Oracle::new(&[trees, dst].concat()) else { return Ok(()) };
        let mut args = vec!["-a".to_string()];
        // With several sources an empty directory of the destination stays where one of them has it, though empty.
        args.extend(options.into_iter().filter(|arg| sources.len() == 1 || arg != "-m"));
        if sources.len() > 1 && args.iter().any(|arg| arg == "--append") {
            // The whole file comes, and not what rsync makes of two that differ.
            args.retain(|arg| arg != "--remove-source-files");
        }
        args.extend(sources.iter().chain(&["dst"]).map(|arg| arg.to_string()));
        // A dry run's lines are compared as well; what conflicts in kind is told in other words.
        let compare = Compare::Trees;
        oracle.same(&args, compare);
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn any_rules_and_options_do_what_they_do_in_rsync() {
    any(folder("s"), &["s/"]);
}

#[test]
fn any_two_sources_make_one_tree_as_in_rsync() {
    let both = || (folder("s"), folder("t/d")).prop_map(|(s, t)| [s, t].concat());
    any(both(), &["s/", "t/"]);
    any(both(), &["t/d", "s/"]);
}

#[test]
fn any_other_places_are_used_as_in_rsync() {
    if Oracle::new("true").is_none() {
        return;
    }
    // Unlike rsync, haul transfers an entry whose name has another type at the destination.
    let files = |root| folder_of(root, vec!["file"]);
    let flags =
        ["-c", "-u", "-I", "-n", "-O", "-H", "-J", "-m", "--existing", "--ignore-existing", "--delete", "--inplace"];
    let flags = prop::sample::subsequence(flags.to_vec(), 0..3);
    let base = prop::sample::select(vec!["-ai", "-ai", "-aii", "-rlti", "-rli", "-ri"]);
    let place = prop::sample::select(vec!["compare", "copy", "link"]);
    let paths = prop::sample::select(vec!["s/ dst", "s/ dst", "s/ new", "s/ t/ dst", "s/z t dst", "--mkpath s/ x/y"]);
    let trees = (folder("s"), files("t"), files("dst"), files("old"), files("older"));
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let ran = runner.run(&(trees, base, flags, place, paths), |(trees, base, flags, place, paths)| {
        let (s, t, dst, old, older) = trees;
        // A directory without anything is another thing to rsync: where nothing is yet, its copy gets the destination's name.
        let something = "echo z >s/z; touch -d 2020-01-01T00:00:00Z s/z s\n".to_string();
        let Some(oracle) = Oracle::new(&[s, t, dst, old, older, something].concat()) else { return Ok(()) };
        let places = [format!("--{place}-dest=../old"), format!("--{place}-dest=../older")];
        // What is written in place isn't told of as a copy.
        let lines = !flags.contains(&"--inplace");
        // Without -p rsync gives a file the permissions of another place's, whatever is in that.
        let compare = if base.starts_with("-a") { Compare::Attributes } else { Compare::Links };
        let flags = flags.iter().map(|flag| flag.to_string());
        let args: Vec<String> = [base.to_string()]
            .into_iter()
            .chain(flags)
            .chain(places)
            .chain(paths.split(' ').map(String::from))
            .collect();
        match lines {
            true => oracle.same(&args, compare),
            false => oracle.same_but_for_lines(&args.iter().map(String::as_str).collect::<Vec<_>>(), compare),
        }
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn rules_of_the_folder_that_holds_an_argument_say_nothing_of_it() {
    let setup =
        "mkdir -p s/d dst; for f in a b d/a d/b; do echo $f >s/$f; done; printf -- '- a\\n- d\\n' >s/.rsync-filter
printf -- '- b\\n' >s/d/.rsync-filter; printf -- '- d\\n' >.rsync-filter; printf 'd\\n' >list";
    let Some(oracle) = Oracle::new(&[setup, DATE].concat()) else { return };
    let paths = "s/a|s/a s/b|s/d|s|s/|s/d/|s/d/b|-R s/./d|-R s/d|-R s/a|-r --files-from=list s";
    for path in paths.split('|') {
        for rules in ["-F", "-FF", "--filter=:_.rsync-filter"] {
            let args: Vec<&str> = ["-ai", rules].into_iter().chain(path.split(' ')).chain(["dst"]).collect();
            oracle.same(&args, Compare::All);
        }
    }
}

#[test]
fn lines_that_end_in_nul_may_be_comments() {
    let setup = "mkdir -p s dst; touch s/a s/b 's/#x' 's/;y'; printf 'a\\0#x\\0;y\\0' >list; printf -- '- a\\0#x\\0;y\\0' >rules; cp rules s/r";
    let Some(oracle) = Oracle::new(&[setup, DATE].concat()) else { return };
    for option in ["--files-from=list", "--exclude-from=list", "--filter=._rules", "--filter=:_r"] {
        oracle.same(&["-ai0", option, "s/", "dst"], Compare::All);
    }
}

#[test]
fn the_list_of_cvs_in_a_rule_is_that_of_the_option() {
    let setup = "mkdir -p s dst; touch s/a.o s/b.mine s/c; echo '*.mine' >../.cvsignore";
    let Some(oracle) = Oracle::new(&[setup, DATE].concat()) else { return };
    for option in ["-C", "--filter=-C", "--filter=:C"] {
        oracle.same(&["-ai", option, "s/", "dst"], Compare::All);
    }
    // In a directory that goes its own list keeps nothing, and what the user says does.
    let setup = "mkdir -p s dst/old dst/going; touch s/c dst/old/x.o dst/going/x.o dst/old/gone dst/old/mine.mine; \
                 echo '*.mine' >../.cvsignore; echo results.dat >dst/old/.cvsignore; touch dst/old/results.dat";
    for option in ["-C", "--filter=-C", "--filter=:C"] {
        let Some(oracle) = Oracle::new(&[setup, DATE].concat()) else { return };
        oracle.same(&["-ai", "--delete", option, "s/", "dst"], Compare::Trees);
    }
}

#[test]
fn rules_from_standard_input_hold_for_all_that_is_done() {
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    for name in ["s/a", "s/b", "t/a", "t/c", "d/a", "d/gone"] {
        write(&lab.path(name), name.as_bytes(), 1_000_000_000);
    }
    for rules in ["--exclude-from=-", "--filter=merge_-"] {
        for sources in [&["@s/"][..], &["@s/", "@t/"]] {
            let args = [&["rsync", "-ai", "--delete", rules][..], sources, &["@d"]].concat();
            let ran = lab.haul_reading(&args, b"- a\n- gone\n");
            assert_eq!(ran.code, 0, "{}", ran.err);
            assert_eq!(std::fs::read(lab.path("d/a")).unwrap(), b"d/a", "{args:?}");
            assert!(lab.path("d/gone").exists() && lab.path("d/b").exists(), "{args:?}");
        }
    }
}
