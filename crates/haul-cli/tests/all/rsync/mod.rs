//! `haul rsync` beside rsync itself: the same folders, options and arguments give the same folders, lines of `-i`, and exit
//! code.

mod alternate_dests;
mod append;
mod backup;
mod exits;
mod far_ends;
mod filters;
mod hosts;
mod kinds;
mod messages;
mod named_paths;
mod oracle;
mod own_links;
mod ownership;
mod remotes;
mod several_sources;
mod trees;

use oracle::{Compare, Oracle};

/// A source and an empty destination.
const FRESH: &str = r#"
mkdir -p s/d/e s/empty dst; echo hi >s/a; echo hello >s/d/b; echo deep >s/d/e/c.o; ln -s a s/l; echo x >s/k.txt
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

/// The same after a first run, with changes of every sort on both sides.
const CHANGED: &str = r#"
cp -a s/. dst; echo changed! >s/a; rm s/k.txt; ln -sfn k s/l; mkdir -p dst/xd/y; echo z >dst/xd/y/z; echo n >s/d/new
echo newer >dst/d/e/c.o; echo deeq >s/d/e/c.o; echo same-size-a >s/same; echo same-size-b >dst/same
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
touch -d 2021-05-05T00:00:00Z s/d/b; touch -d 2024-01-01T00:00:00Z s/d/e/c.o dst/d s/d/new s/a
touch -h -d 2020-02-02T00:00:00Z s/l; touch -d 2025-01-01T00:00:00Z dst/d/e/c.o
"#;

fn each(setup: &str, compare: Compare, lines: &[&str]) {
    let Some(oracle) = Oracle::new(setup) else { return };
    for line in lines {
        oracle.same(&line.split_whitespace().collect::<Vec<_>>(), compare);
    }
}

#[test]
fn options_do_what_they_do_in_rsync() {
    let options = "|--delete|-u|-c|--size-only|-I|--existing|--ignore-existing|--delete -n|-u --delete\
                   |--delete-after|--delete-delay|--existing --ignore-existing --delete|-O|--no-t|--no-l|-b --backup-dir=../bk\
                   |-b --backup-dir=../bk --delete|--remove-source-files|--inplace|--max-size=5|--min-size=6\
                   |--max-size=5 --delete|-ii|-W -z --partial|--modify-window=1|-@-1|--suffix=.old -b|-c --delete -n\
                   |-nu|--delete --ignore-errors --force|-c --size-only|-c --size-only --no-c|--size-only -I|-c -I";
    let lines: Vec<String> = options.split('|').map(|options| format!("-ai {options} s/ dst")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    each(&[FRESH, CHANGED].concat(), Compare::All, &lines);
    each(&[FRESH, CHANGED].concat(), Compare::All, &["-ai --delete-before s/ dst"]);
    each(&[FRESH, CHANGED].concat(), Compare::All, &["-ri s/ dst", "-rti s/ dst", "-rlti --delete s/ dst"]);
}

#[test]
fn sources_mean_what_they_mean_in_rsync() {
    let setup =
        [FRESH, "printf 'a\\nd/e\\nd//b\\nno\\n' >list; printf 'a\\0d/e\\0' >list0; printf 'd\\n' >dirs"].concat();
    each(
        &setup,
        Compare::All,
        &[
            "-ai s/ dst",
            "-ai s dst",
            "-ai s/ new",
            "-ai s new",
            "-ai s/. new",
            "-ai s/a s/d new",
            "-ai s/a dst/name",
            "-ai s/a dst",
            "-ai s/a dst/",
            "-ai s/a no/such",
            "-ai s/l dst",
            "-ai s/ no/such/dir",
            "-ai s/nosuch s/a dst",
            "-ai s/ s/a",
            "-aiR s/d/e s/a dst",
            "-aiR s/./d/e dst",
            "-aiR --delete s/./d dst",
            "-ai --files-from=list s dst",
            "-ai -0 --files-from=list0 s dst",
            "-ai --exclude=d --files-from=list s dst",
            "-ai --exclude=/d/ --files-from=list s dst",
            "-ai --exclude=e --files-from=list s dst",
            "-air --exclude=d --files-from=dirs s dst",
            "-aiR --exclude=d s/./d/e dst",
            "-aiR --exclude=s s/a dst",
            "-air --files-from=dirs s dst",
            "-di s/ dst",
            "-i s/ dst",
            "-i s/a s/k.txt dst",
        ],
    );
    each(&[FRESH, CHANGED].concat(), Compare::All, &["-ai --delete s/a s/d dst", "-ai --delete s dst"]);
    let paths =
        ["s/ a/b", "s a/b", "s/a a/b", "s/a a/b/", "s/a s/d a/b", "s/ dst/x/", "s/a x", "s/ x", "-R s/d x/y", "s/ dst"];
    for options in ["-ai", "-ani", "-aqi", "-aiO", "-ai --existing"] {
        let lines = paths.map(|path| format!("{options} --mkpath {path}"));
        each(&[FRESH, "chmod 700 s"].concat(), Compare::Attributes, &lines.each_ref().map(String::as_str));
    }
}

/// As a shell's `*` names it.
#[test]
fn rules_and_limits_are_of_a_source_that_is_one_file_too() {
    let setup = r#"
mkdir -p s/k.d dst; echo hi >s/d.tmp; echo hello >s/e.tmp; ln -s a s/l.tmp; mkfifo s/p.tmp; echo in >s/k.d/x.tmp; echo a >s/k.d/a
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let rules = ["--exclude=*.tmp", "--exclude=/d.tmp", "--exclude=/s/*.tmp", "--max-size=1", "--min-size=5"];
    let sources =
        ["s/d.tmp", "s/l.tmp", "s/p.tmp", "s/d.tmp s/k.d", "s/d.tmp s/e.tmp", "--remove-source-files s/d.tmp"];
    for rule in rules {
        let lines = sources.map(|source| format!("-ai {rule} {source} dst"));
        each(setup, Compare::All, &lines.each_ref().map(String::as_str));
    }
}

#[test]
fn nothing_new_comes_where_only_what_exists_is_updated() {
    let lines = [
        "s dst",
        "s new",
        "s/d s/empty dst",
        "--delete s dst",
        "-n s dst",
        "-m s dst",
        "-H s new",
        "-K s dst",
        "-R s dst",
    ];
    let lines = lines.map(|line| format!("-ai --existing {line}"));
    each(FRESH, Compare::All, &lines.each_ref().map(String::as_str));
}

#[test]
fn what_is_written_in_place_without_times_is_dated_now() {
    each(
        &[FRESH, CHANGED].concat(),
        Compare::All,
        &["-ri --inplace s/ dst", "-rli --inplace s/ new", "-rci --inplace s/ dst"],
    );
}

#[test]
fn v_prints_the_names_that_rsync_prints() {
    let Some(oracle) = Oracle::new(&[FRESH, CHANGED].concat()) else { return };
    for options in [&["-av"][..], &["-anv", "--delete"], &["-av", "--delete"], &["-rtv"]] {
        let args = [options, &["s/", "dst"]].concat();
        let without_amounts = |text: &str| {
            let line = |line: &&str| !line.starts_with("sent ") && !line.starts_with("total size");
            text.lines().filter(line).map(String::from).collect::<Vec<_>>()
        };
        let (code, lines, _) = oracle.haul(&args);
        assert_eq!(code, Some(0), "{args:?}");
        assert!(lines.contains("total size is "), "{lines}");
        let expected = oracle.rsync_lines(&args);
        assert_eq!(without_amounts(&lines), without_amounts(&expected), "{args:?}");
    }
}

#[test]
fn what_is_told_is_what_rsync_tells() {
    let Some(oracle) = Oracle::new(
        &[
            FRESH,
            CHANGED,
            "touch -d 2031-01-01T00:00:00Z dst/l dst/d/b; ln -s /x s/out; touch -h -d 2020-02-02T00:00:00Z s/out s\n",
        ]
        .concat(),
    ) else {
        return;
    };
    // Amounts of a protocol that isn't spoken here, and rsync's words about its deltas.
    let theirs =
        ["sent ", "total size", "Total bytes", "File list", "Literal", "delta-", "total:", "building file list"];
    let without = |text: &str| {
        let line = |line: &&str| !theirs.iter().any(|begin| line.starts_with(begin));
        text.lines().filter(line).map(String::from).collect::<Vec<_>>()
    };
    let cases = "--info=name|--info=name0 -v|--info=NAME,stats0|--info=stats2|-v --info=none|--info=flist0,name -v|--info=all0 -i|-q -i|-q -v\
                |-n -P|--info=del --delete|--info=name,del --delete -n|--delete -v --info=del0|-i --delete --info=del0|-v --out-format=%n --delete\
                |--out-format=%n --delete|--info=skip -u|--info=skip --ignore-existing|--info=skip --existing|-vn --no-l|--no-l --info=nonreg0\
                |-v --safe-links|--safe-links --info=symsafe|--safe-links -v --info=symsafe0|--stats -n|-h --stats -n|--no-h --stats -n";
    for options in cases.split('|') {
        for dest in ["dst", "new"] {
            // A few options are enough for new entries.
            if dest == "new" && !["--info=name", "-n -P", "-q -i"].contains(&options) {
                continue;
            }
            let args: Vec<&str> = ["-a"].into_iter().chain(options.split_whitespace()).chain(["s/", dest]).collect();
            let (code, lines, errors) = oracle.haul(&args);
            assert_eq!(code, Some(0), "{args:?} {errors}");
            assert_eq!(without(&lines), without(&oracle.rsync_lines(&args)), "{args:?}");
        }
    }
    // rsync's %b of what is transferred is of its protocol.
    let format = "--out-format=%n %l %i %% %M %B %U %G %o %b %f|%20n|%-20n|%10'l|%-9l|%'l %''l %'''l";
    for source in ["s/", "s", "./s/", "s/d", "s/a"] {
        oracle.same(&["-an", format, source, "dst"], Compare::All);
    }
    oracle.same(&["-a", &format.replace("%b", ""), "s/", "dst"], Compare::All);
    let (code, _, errors) = oracle.haul(&["-a", "--info=name,bogus", "s/", "dst"]);
    assert_eq!((code, errors.as_str()), (Some(1), "haul rsync: Unknown --info item: \"bogus\"\n"));
}

#[test]
fn a_log_holds_what_rsyncs_log_holds() {
    let Some(oracle) = Oracle::new(&[FRESH, CHANGED].concat()) else { return };
    let log = || {
        let text = std::fs::read_to_string(oracle.folder().join("log")).unwrap();
        // After the date, the time, and the process's number.
        let lines = text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap().to_string());
        let mut lines: Vec<String> =
            lines.filter(|line| !line.starts_with("sent ") && !line.starts_with("total ")).collect();
        lines.sort();
        (lines, text)
    };
    for options in [
        &["-a", "--delete"][..],
        &["-aiv", "--delete"],
        &["-aq", "--delete"],
        &["-rt", "--info=nonreg0"],
        &["-a", "--log-file-format=%n %l"],
        &["-a", "--log-file-format="],
    ] {
        for dest in ["dst", "new"] {
            let args = [options, &["--log-file=log", "s/", dest]].concat();
            assert_eq!(oracle.haul(&args).0, Some(0), "{args:?}");
            let (ours, text) = log();
            oracle.rsync_lines(&args);
            assert_eq!(ours, log().0, "{args:?}");
            assert!(options.contains(&"-aiv") || text.lines().last().unwrap().contains("] sent "), "{text}");
            assert!(!options.contains(&"-aiv") || text.lines().last().unwrap().contains("] total size is "), "{text}");
        }
    }
    // Nothing happens in a dry run.
    assert_eq!(oracle.haul(&["-an", "--delete", "--log-file=log", "s/", "dst"]).0, Some(0));
    assert_eq!(log().0, ["building file list"]);
    // Errors are in it too, and it grows.
    let (code, _, errors) = oracle.haul(&["-a", "--log-file=dst/a", "--exclude=a", "s/", "nosuch", "dst"]);
    let text = std::fs::read_to_string(oracle.folder().join("dst/a")).unwrap();
    assert!(text.contains("hi\n") && code == Some(23), "{text}");
    assert!(errors.lines().count() == 2 && errors.lines().all(|line| text.contains(line)), "{errors} {text}");
    let (code, _, errors) = oracle.haul(&["-a", "--log-file=no/such/log", "s/", "dst"]);
    let line = "haul rsync: --log-file no/such/log: No such file or directory (os error 2): there will be no log\n";
    assert_eq!((code, errors.as_str()), (Some(0), line));
}

#[test]
fn missing_sources_may_be_ignored() {
    let setup = [FRESH, CHANGED, "printf 'a\\nno\\nd/no\\n' >list"].concat();
    let lines = [
        "-ai --ignore-missing-args s/no s/a s/d dst",
        "-ai --ignore-missing-args --delete s/no s/d dst",
        "-ai --ignore-missing-args s/no dst",
        "-ai --ignore-missing-args --files-from=list s dst",
        "-aiR --no-i-d s/./d/e dst",
        "-aiR --no-implied-dirs --implied-dirs s/./d/e dst",
    ];
    each(&setup, Compare::All, &lines);
    // What can't be seen isn't missing: whatever came from it stays.
    let setup = [&setup[..], "; ln -s nowhere s/dangling; mkdir dst/x; echo >dst/extra"].concat();
    let unseen = ["s/no/ s/d", "s/no/. s/d", "s/a/ s/d", "s/dangling/ s/d", "-r s/a/in s/d"];
    let lines = unseen.map(|sources| format!("-a --ignore-missing-args --delete {sources}/ dst"));
    each(&setup, Compare::Trees, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_run_stops_when_its_time_is_up() {
    let Some(oracle) = Oracle::new(FRESH) else { return };
    for (option, line) in [
        ("--stop-after=0", "invalid --stop-after value: 0"),
        ("--time-limit=x", "invalid --stop-after value: x"),
        ("--stop-at=99:99", "invalid --stop-at format: 99:99"),
        ("--stop-at=2000-01-01", "--stop-at time is not in the future: 2000-01-01"),
    ] {
        let (code, _, errors) = oracle.haul(&["-a", option, "s/", "dst"]);
        assert_eq!((code, errors.trim_end()), (Some(1), &*format!("haul rsync: {line}")));
    }
    each(FRESH, Compare::All, &["-ai --stop-after=10 s/ dst", "-ai --stop-at=2099/12/31T23:59 s/ dst"]);
}

#[test]
fn stats_have_rsyncs_words() {
    let Some(oracle) = Oracle::new(&[FRESH, CHANGED].concat()) else { return };
    let args = ["-a", "--stats", "--delete", "s/", "dst"];
    let counted = |text: &str| {
        let line = |line: &&str| {
            line.starts_with("Number of") || line.starts_with("Total file") || line.starts_with("Total tr")
        };
        text.lines().filter(line).map(String::from).collect::<Vec<_>>()
    };
    let words = |text: &str| {
        let word = |line: &str| line.split(':').next().unwrap_or_default().to_string();
        text.lines().filter(|line| line.contains(": ")).map(word).collect::<Vec<_>>()
    };
    let (code, lines, _) = oracle.haul(&args);
    let expected = oracle.rsync_lines(&args);
    assert_eq!(code, Some(0));
    assert_eq!(counted(&lines), counted(&expected));
    assert_eq!(words(&lines), words(&expected));
}

#[test]
fn other_places_are_used_as_rsync_uses_them() {
    let setup = [FRESH, "rsync -a s/ old; rsync -a s olds; echo q >s/q; touch -d 2020-01-01T00:00:00Z s/q s"].concat();
    each(
        &setup,
        Compare::Links,
        &[
            "-ai --link-dest=../old s/ new",
            "-ai --copy-dest=../old s/ new",
            "-ai --compare-dest=../old s/ new",
            "-ai --link-dest=../olds s new",
            "-ai --link-dest=../old s/ dst",
        ],
    );
}

#[test]
fn what_is_of_another_kind_is_replaced() {
    let setup = r#"
mkdir -p s/d1 dst/f1/in; echo f >s/f1; echo q >s/d1/q; ln -s t s/l1; echo f >s/f2; echo file >dst/d1; echo z >dst/f1/in/z
echo l >dst/l1; ln -s zz dst/f2; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    each(setup, Compare::All, &["-ai --delete s/ dst", "-ai --force s/ dst"]);
    each(setup, Compare::Trees, &["-ab --delete s/ dst", "-ab --delete --backup-dir=../kept s/ dst"]);
    each(setup, Compare::Trees, &["-a --remove-source-files --force s/ dst"]);
    // Without either nothing that holds something goes.
    each(setup, Compare::Trees, &["-a s/ dst"]);
}

#[test]
fn a_further_name_takes_the_place_of_a_directory() {
    let setup = r#"
mkdir -p s dst/b dst/c/in; echo 1 >s/a; ln s/a s/b; ln s/a s/c; echo x >dst/c/in/x
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    each(setup, Compare::Links, &["-aH --delete s/ dst", "-aH --force s/ dst"]);
}

#[test]
fn backups_of_a_run_are_not_what_it_deletes() {
    let setup = r#"
mkdir s1 s2 dst; echo new >s1/f; echo x >s2/g; echo oldcontent >dst/f; echo extra >dst/e
find s1 s2 dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    each(setup, Compare::Trees, &["-a --delete-excluded --backup s1/ s2/ dst", "-a --delete --backup s1/ s2/ dst"]);
}

#[test]
fn max_delete_stops_with_25() {
    let Some(oracle) = Oracle::new(&[FRESH, "touch dst/1 dst/2 dst/3"].concat()) else { return };
    let (code, _, errors) = oracle.haul(&["-a", "--delete", "--max-delete=1", "s/", "dst"]);
    assert_eq!(code, Some(25));
    let left = ["1", "2", "3"].iter().filter(|name| oracle.folder().join("dst").join(name).exists()).count();
    assert_eq!(left, 2, "one may go");
    assert!(errors.contains("Deletions stopped due to --max-delete limit (2 skipped)"), "{errors}");
}

#[test]
fn what_is_refused_is_said() {
    let Some(oracle) = Oracle::new(&[FRESH, "mkdir d"].concat()) else { return };
    for (args, code, line) in [
        (&["-aN", "s/", "dst"][..], 1, "haul rsync: -N, --crtimes: haul rsync doesn't support this option"),
        (&["--nope", "s/", "dst"], 1, "haul rsync: --nope: unknown option (see haul rsync --help)"),
        (
            &["-a", "s/", "h::m"],
            4,
            "haul rsync: h::m: rsync daemons aren't supported: name the host as HOST:PATH, which goes by ssh, or use rsync",
        ),
        (&["-a", "--exclude=[", "s/", "dst"], 1, "haul rsync: bad filter rule \"[\": '[' without ']'"),
        (
            &["-a", "-f", "x", "s/", "dst"],
            1,
            "haul rsync: bad filter rule \"x\": it begins with none of - + . : H S P R !",
        ),
        (
            &["-a", "--delay-updates", "s/", ":memory:b"],
            4,
            "haul rsync: --delay-updates needs a destination on this machine: a remote shows each file when it is whole",
        ),
        (&["s/", "--delete", "dst"], 1, "haul rsync: --delete does not work without --recursive (-r) or --dirs (-d)."),
        (&[], 1, "haul rsync: it needs SRC and DEST (see haul rsync --help)"),
    ] {
        let (got, _, errors) = oracle.haul(args);
        assert_eq!((got, errors.trim_end()), (Some(code), line), "{args:?}");
    }
    let (code, _, errors) = oracle.haul(&["-a", "-e", "ssh -F none", "s/", "nohost:x"]);
    assert_eq!(code, Some(255));
    assert!(errors.starts_with("haul rsync: error: nohost can't be reached: "), "{errors}");
}

#[test]
fn a_source_that_is_partly_unknown_deletes_nothing() {
    let Some(oracle) = Oracle::new(&[FRESH, "touch dst/extra"].concat()) else { return };
    let (code, _, errors) = oracle.haul(&["-a", "--delete", "s/a", "s/nosuch", "dst"]);
    assert_eq!(code, Some(23));
    assert!(errors.contains("link_stat") && errors.contains("No such file or directory (2)"), "{errors}");
    assert!(oracle.folder().join("dst/extra").exists() && oracle.folder().join("dst/a").exists());
}

#[test]
fn list_only_lists_as_rsync_does() {
    let Some(oracle) = Oracle::new(FRESH) else { return };
    for args in [&["s/"][..], &["-r", "s/"], &["-r", "--list-only", "s/"], &["s/a"]] {
        let (code, lines, _) = oracle.haul(args);
        assert_eq!(code, Some(0));
        // A directory's own size is the file system's.
        let files =
            |text: &str| text.lines().filter(|line| !line.starts_with('d')).map(String::from).collect::<Vec<_>>();
        assert_eq!(files(&lines), files(&oracle.rsync_lines(args)), "{args:?}");
    }
}

/// Attributes of every sort; as root owners and devices too.
const ATTRIBUTES: &str = r#"
mkdir -p s/d s/closed dst; echo a >s/a; echo b >s/d/b; echo run >s/run; ln -s a s/l; mkfifo s/p; ln s/a s/d/second; echo w >s/w
chmod 755 s/run; chmod 640 s/a; chmod 600 s/d/b; chmod 2750 s/d; chmod 4755 s/w; chmod 500 s/closed; chmod 711 s
if [ "$(id -u)" = 0 ]; then chown 7:8 s/d/b; chown -h 9:9 s/l; chgrp 12 s/d; chown 1:1 s; mknod s/null c 1 3; fi
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

/// The same with other attributes at the destination. Names there are files of their own, so that each is told of once.
const OTHER_ATTRIBUTES: &str = r#"
cp -a --no-preserve=links s/. dst; chmod 777 dst/a dst/d; chmod 644 dst/run; chmod 755 dst/closed
if [ "$(id -u)" = 0 ]; then chown 20:21 dst/run; chgrp 5 dst/d/b; fi
echo more >>s/d/b; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

#[test]
fn attributes_are_kept_as_by_rsync() {
    let kept = [
        "-ai s/ dst",
        "-ai s dst",
        "-ai s/ new",
        "-rltpi s/ dst",
        "-ai --no-o --no-g s/ dst",
        "-ai --chmod=Dg-s,F600 s/ dst",
        "-ain s/ dst",
        "-aiO s/ dst",
        "-aniO s/ dst",
        "-aii s/ dst",
    ];
    each(ATTRIBUTES, Compare::Attributes, &kept);
    each(&[ATTRIBUTES, OTHER_ATTRIBUTES].concat(), Compare::Attributes, &kept);
    // Without --perms new folders get the usual permissions, in rsync the source's: so here these are the usual ones.
    let usual = "chmod 755 s/d s/closed; touch -d 2020-01-01T00:00:00Z s/d s/closed s\n";
    let not_kept = ["-rlti s/ dst", "-rltiE s/ dst", "-rlDti s/ dst", "-rlti --chmod=a+r,u+X s/ dst"];
    each(&[ATTRIBUTES, usual].concat(), Compare::Attributes, &not_kept);
    each(&[ATTRIBUTES, usual, OTHER_ATTRIBUTES].concat(), Compare::Attributes, &not_kept);
    // Which name counts as the first, so that the others are told as its links, is another one.
    let setup = [ATTRIBUTES, "ln s/run s/run2; cp -a s/. dst; rm dst/d/second dst/run2"].concat();
    if let Some(oracle) = Oracle::new(&setup) {
        oracle.same_but_for_lines(&["-aH", "s/", "dst"], Compare::Attributes);
        oracle.same_but_for_lines(&["-aH", "--delete", "s/", "dst"], Compare::Attributes);
    }
}
