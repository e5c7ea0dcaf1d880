//! Messages, counts and results where types clash, where something is left out, and for a transfer of one entry.

use super::{
    each,
    oracle::{Compare, Oracle},
};

/// Each kind where the destination has another.
const CLASHES: &str = r#"
mkdir -p s/d dst/d s/k4 dst/k1/in dst/k2 dst/k5 dst/k6 dst/k7 dst/k8 s/k9 s/ka dst/kh s/newdir dst/xx/yy
echo a>s/a; echo a>dst/a; echo b>s/d/b; echo b>dst/d/b; echo k>s/k1; echo z>dst/k1/in/z; echo k>s/k2; echo k>dst/k4
ln -s x s/k5; echo q>dst/k6/q; ln -s x s/k6; mkfifo s/k7 s/k8 dst/k9 dst/kc s/kd s/ke s/newfifo dst/xx/p; echo r>dst/k8/r
echo w>s/k9/w; ln -s d dst/ka; echo y>s/ka/y; ln -s d dst/kb; echo y>s/kb; echo y>s/kc; echo y>dst/kd; ln -s q dst/ke
ln -s q s/kf; echo f>dst/kf; ln -s a s/lnk; echo nf >s/newdir/nf; echo x>dst/xx/yy/z
find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
chmod 600 s/a; touch -d 2021-01-01T00:00:00Z s/d/b
"#;

/// The numbers that both programs know.
fn numbers(text: &str) -> Vec<String> {
    let known = ["Number of", "Total file", "Total tr"];
    text.lines().filter(|line| known.iter().any(|begin| line.starts_with(begin))).map(String::from).collect()
}

#[test]
fn where_kinds_clash_the_same_is_done_and_told() {
    let options = "|--force|--delete|--existing|-u|--size-only|-b|--no-D|-m|--max-size=1|--no-l|--no-l --existing";
    let lines: Vec<String> = options
        .split('|')
        .flat_map(|options| ["-i", "-ni", "-nii"].map(|told| format!("-a {told} {options} s/ dst")))
        .chain(["k1", "k2", "k6", "k8"].map(|name| format!("-ani s/{name} dst")))
        .collect();
    each(CLASHES, Compare::All, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let Some(oracle) = Oracle::new(CLASHES) else { return };
    // Which says so, before the line of a file would say that it comes.
    for dry in [&["-ai"][..], &["-ani"]] {
        let (code, lines, errors) = oracle.haul(&[dry, &["s/", "dst"]].concat());
        assert!(code == Some(23) && !lines.contains("+ k1") && !lines.contains("+ k6"), "{lines}");
        assert_eq!(errors.lines().filter(|line| line.contains("can't replace")).count(), 3, "{errors}");
    }
}

#[test]
fn all_of_the_source_and_what_becomes_of_it_is_counted_as_in_rsync() {
    let Some(oracle) = Oracle::new(CLASHES) else { return };
    let options = "-a|-rt|-rlt|-a -n|-rt -n|-a --existing|-rt --existing|-a --delete|-a --delete -n|-a --force|-a --force -n\
                   |-a --max-size=1|-a --min-size=2 -n|-a -u|-a -H|-d|-a --no-D";
    for options in options.split('|') {
        for dest in ["dst", "new"] {
            let args: Vec<&str> = options.split_whitespace().chain(["--stats", "s/", dest]).collect();
            let (_, lines, errors) = oracle.haul(&args);
            assert_eq!(numbers(&lines), numbers(&oracle.rsync_lines(&args)), "{args:?} {errors}");
        }
    }
}

#[test]
fn names_alone_and_all_names_are_told_as_in_rsync() {
    let Some(oracle) = Oracle::new(CLASHES) else { return };
    let theirs =
        ["sent ", "total size", "Total ", "File list", "Literal", "delta-", "total:", "building file list", "k", "  "];
    let without = |text: &str| {
        let line = |line: &&str| !theirs.iter().any(|begin| line.starts_with(begin));
        text.lines().filter(line).map(String::from).collect::<Vec<_>>()
    };
    // Those that rsync writes itself in its tongue of wildcards are left out: names that begin with k clash.
    let options = "-av|-anv|-avv|-aivv|-rtvv|-rtvv --existing|-avv --existing\
                   |-avv --max-size=1|-avv --min-size=2|-avv --remove-source-files|-av --info=remove --remove-source-files\
                   |-aiv --delete-delay|-aiv --delete-after|-aiv --no-i-r|-aiv -m|-aiv --out-format=%f|-avv --out-format=%i_%n";
    for options in options.split('|') {
        for source in ["s/", "s/a", "s/d"] {
            let args: Vec<&str> = options.split_whitespace().chain([source, "dst"]).collect();
            let (_, lines, errors) = oracle.haul(&args);
            assert_eq!(without(&lines), without(&oracle.rsync_lines(&args)), "{args:?} {errors}");
        }
    }
    let late = |option: &str| oracle.haul(&["-av", "-n", option, "s/d", "dst"]).1;
    assert!(late("--delete-delay").contains("sending incremental file list"));
    assert!(late("--delete-after").contains("building file list ... done"));
    assert!(late("--no-i-r").contains("building file list ... done"));
}

const EMPTY: &str = "mkdir -p empty dst full/sub; echo x>full/a; echo f>afile; mkfifo pipe; ln -s a link
find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +";

#[test]
fn one_entry_gets_the_destinations_name_and_several_a_directory() {
    let paths = "empty new|empty/ new|empty new/|empty dst|empty afile|empty/ afile|full new|full/ x/y|empty x/y|empty/ x/y|afile x/y|pipe new\
                 |link new|pipe afile|full/sub new|nosuch afile new|nosuch empty new|afile nosuch new|empty full new|full/ empty/ new";
    let options = ["-ai", "-ani", "-ai --mkpath", "-di", "-ti", "-ai --exclude=*"];
    let mut lines: Vec<String> =
        options.iter().flat_map(|options| paths.split('|').map(move |path| format!("{options} {path}"))).collect();
    // rsync looks for the destination's parent also where there is nothing to transfer.
    let nothing = |line: &String| line.starts_with("-ti ") || line.starts_with("-ai --exclude=* ");
    lines.retain(|line| !nothing(line) || !line.ends_with("x/y"));
    lines.retain(|line| !line.starts_with("-ti ") || !line.ends_with("new/"));
    let odd = "-aiR empty new|-aiR afile new|-aiR full new|-aiR ./afile new|-aiR full/./a new|-aiR --no-implied-dirs ./full/a dst\
               |-ai --existing empty new|-ai --existing empty/ new|-aim empty dst|-aim empty new|-aim empty/ new|-aim full dst\
               |-aim --exclude=a full dst|-ai --exclude=afile afile full/a new|-a --info=name empty new|-aR full/../afile dst";
    lines.extend(odd.split('|').map(String::from));
    each(EMPTY, Compare::Attributes, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn what_is_in_a_directory_that_a_list_names_with_a_slash_comes() {
    let lists = [
        r"d/\n",
        r".\n",
        r"./a\n",
        r"d/.\n",
        r"d\n./d/e/\n",
        r"d/./e\n",
        r"x/../a\n",
        r"d/../a\n",
        r"./no\n",
        r"no\n",
        r"d/e/c\n",
    ];
    for list in lists {
        let setup = format!(
            "mkdir -p s/d/e/g s/empty dst; echo a>s/a; echo b>s/d/b; echo c>s/d/e/c; echo q >s/d/e/g/q; printf '{list}' >list
             find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {{}} +"
        );
        let lines = ["-ai s dst", "-air s dst", "-rti s new", "-ani s new"];
        let lines = lines.map(|line| format!("--files-from=list {line}"));
        each(&setup, Compare::All, &lines.each_ref().map(String::as_str));
    }
}

#[test]
fn nobody_may_read_more_than_before_where_permissions_are_not_kept() {
    let setup = r#"
mkdir -p s/private dst; chmod 700 s/private; echo n >s/private/n
for m in 600 644 777; do echo n>s/n$m; chmod $m s/n$m; for o in 600 640 755; do
echo new>s/r${m}_$o; chmod $m s/r${m}_$o; echo o>dst/r${m}_$o; chmod $o dst/r${m}_$o; done; done
cp -a s/n644 s/n4755; chmod 4755 s/n4755; cp -a s/n4755 s/n2711; chmod 2711 s/n2711
find . -mindepth 1 -depth -exec touch -h -d 2021-01-01T00:00:00Z {} +; find dst -type f -exec touch -d 2019-01-01T00:00:00Z {} +
"#;
    let options = [
        "-rli",
        "-rlti -b",
        "-rlti -b --backup-dir=../bk",
        "-rEi -b",
        "-rEi",
        "-rlti --remove-source-files",
        "-rltogi --remove-source-files",
    ];
    let options = options.into_iter().chain([
        "-rti -b --remove-source-files",
        "-rti -b --bwlimit=9999",
        "-rti -b --delay-updates",
        "-rti -b --chmod=go-w",
    ]);
    let lines: Vec<String> = options.map(|options| format!("{options} s/ dst")).collect();
    each(
        &format!("{setup}chmod 700 s"),
        Compare::Attributes,
        &["-rli s/ new", "-rli s new", "-rli s dst", "-rli s/private/ new"],
    );
    each(setup, Compare::Attributes, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

/// What is at the destination before each line.
const LINKED: &str = r#"
mkdir -p s/d dst; echo 1 >s/a; ln s/a s/b; ln s/a s/d/c; echo 2 >s/x; ln s/x s/y; echo 5 >s/n; ln s/n s/o; cp -a s/. dst
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

#[test]
fn further_names_of_files_are_told_as_in_rsync() {
    let is_other = "mv dst other; mkdir dst; touch -d 2020-01-01T00:00:00Z dst";
    for (setup, lines) in [
        ("", "-aiiH|-avvH|-aiiHn"),
        ("echo 333 >s/a", "-aiH|-riH|-aiHn|-avH"),
        ("rm dst/b", "-aiH|-aiHn|-riH"),
        ("rm dst/b; cp -p dst/a dst/b", "-aiH|-aiHn|-avH|-riH|-aiH --size-only|-aiHu"),
        ("rm dst/b; cp dst/x dst/b", "-aiH"),
        ("rm dst/y; cp -p dst/x dst/y; chmod 600 s/x", "-aiiH|-aiH|-rpiH"),
        (
            is_other,
            "-aiH --link-dest=../other|-aiiH --link-dest=../other|-aiH --copy-dest=../other|-aiHn --copy-dest=../other",
        ),
        (is_other, "-aiiH --copy-dest=../other|-aiH --compare-dest=../other|-avH --copy-dest=../other"),
        ("mv dst other; mkdir dst; cp -p other/b dst/b", "-aiH --link-dest=../other"),
        ("mv dst other; mkdir dst; chmod 600 s/x", "-aiH --link-dest=../other"),
        ("mv dst other; mkdir dst; rm other/b; cp -p other/a other/b", "-aiH --link-dest=../other"),
        ("mv dst other; mkdir dst; rm other/b; cp -p other/a other/b; chmod 600 other/b", "-aiH --copy-dest=../other"),
    ] {
        let Some(oracle) = Oracle::new(&[LINKED, setup].concat()) else { return };
        for line in lines.split('|') {
            let compare = if line.starts_with("-av") { Compare::Trees } else { Compare::Links };
            let args: Vec<&str> = line.split(' ').chain(["s/", "dst"]).collect();
            oracle.same(&args, compare);
            let named =
                |text: String| text.lines().filter(|line| line.contains(" => ")).map(String::from).collect::<Vec<_>>();
            assert_eq!(named(oracle.haul(&args).1), named(oracle.rsync_lines(&args)), "{line}");
        }
    }
}

#[test]
fn directories_are_told_that_only_deletions_before_all_else_changed() {
    let setup = r#"
mkdir -p s/d/e dst; echo 1 >s/e; echo 1 >s/d/g; cp -a s/. dst; echo 1 >dst/d/x; mkdir -p dst/xd/y dst/d/e/q;  echo 1 >dst/xd/y/z
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    each(
        setup,
        Compare::All,
        &[
            "-ai --delete-before s/ dst",
            "-aiO --delete-before s/ dst",
            "-ain --delete-before s/ dst",
            "-ai --delete-before s/ new",
            "-rti --delete-before s/ dst",
        ],
    );
}

/// Unreadable entries of the source are errors. Of an unreadable directory only the directory itself is created.
#[test]
fn what_cannot_be_read_is_not_told_as_transferred() {
    let setup = r#"
mkdir -p s/d s/u s/v dst/v; echo 1 >s/e; echo 1 >s/d/g; echo 2 >s/u/x; echo 3 >s/no; echo o >dst/v/old; echo k >dst/no; echo n >s/d/no
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; chmod 000 s/u s/v s/no s/d/no
"#;
    let Some(oracle) = Oracle::unprivileged(setup) else { return };
    for line in ["-ai s/ dst", "-ri s/ dst", "-ain s/ dst", "-ai s dst", "-ai s/no s/e dst", "-ai s/no dst/name"] {
        oracle.same(&line.split(' ').collect::<Vec<_>>(), Compare::Attributes);
    }
    // An unreadable directory prevents deletions, but not transfers. It is reported once.
    for delete in ["--delete-before", "--delete -K"] {
        let args: Vec<&str> = ["-ai"].into_iter().chain(delete.split(' ')).chain(["s/", "dst"]).collect();
        let (code, lines, errors) = oracle.haul(&args);
        assert!(code == Some(23) && lines.contains(">f+++++++++ d/g"), "{lines} {errors}");
        assert_eq!(errors.lines().filter(|line| line.contains("list \"u/\" failed")).count(), 1, "{errors}");
    }
    // Of what the source may hold nothing is deleted.
    let (code, ..) = oracle.haul(&["-ai", "--delete", "--ignore-errors", "s/", "dst"]);
    assert_eq!(code, Some(23));
    let old = oracle.folder().join("dst/v");
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert!(old.join("old").exists());
}

#[test]
fn a_dry_run_ends_as_the_run_where_too_much_is_in_a_files_way() {
    let setup = "mkdir -p s dst/f; echo x >s/f; echo 1 >dst/f/1; echo 2 >dst/f/2";
    let Some(oracle) = Oracle::new(setup) else { return };
    for options in ["-ri --delete --max-delete=1", "-ri --force --max-delete=1", "-ri --force --max-delete=2"] {
        let run = |dry: &[&str]| oracle.haul(&[&options.split(' ').collect::<Vec<_>>(), dry, &["s/", "dst"]].concat());
        let (code, ..) = run(&[]);
        let (dry, lines, errors) = run(&["-n"]);
        assert_eq!(dry, code, "{options} {lines} {errors}");
        assert_eq!(dry == Some(23), errors.contains("can't replace") && !lines.contains("+ f"), "{lines} {errors}");
    }
}

#[test]
fn the_path_of_what_goes_is_the_destinations() {
    let setup = "mkdir -p s/a dst/s/only dst/only; echo x >dst/only/x; echo x >dst/s/only/x; echo f >s/a/f
                 find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +";
    each(setup, Compare::All, &["-a --delete --out-format=%i_%f_%n s/ dst", "-a --delete --out-format=%i_%f_%n s dst"]);
}

const OWNED: &str = "mkdir -p s/d dst/y; echo a>s/a; echo b>s/d/b; ln -s a s/l; echo x>dst/x; chown -h 7:8 s/a s/l dst/x 2>/dev/null || true
find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +";

#[test]
fn forms_of_lines_tell_what_they_tell_in_rsync() {
    let Some(oracle) = Oracle::new(OWNED) else { return };
    for options in
        ["-a --delete", "-rlt --delete", "-a --chmod=F600,D700", "-rl", "-ag --no-o --delete", "-a -n --delete"]
    {
        for format in ["%i_%n_%B_%G_%m_%U", "%%i_%n", "%n%%%G", "%%%i_%n", "%M_%n"] {
            let args: Vec<&str> = options.split(' ').chain(["--out-format", format, "s/", "dst"]).collect();
            oracle.same(&args, Compare::All);
        }
    }
    let (_, lines, _) = oracle.haul(&["-a", "--out-format=%n|%c|%C|", "s/a", "dst"]);
    assert_eq!(lines, format!("a|0|{}|", " ".repeat(32)), "nothing is known of rsync's checksums");
}

#[test]
fn lists_tell_where_symlinks_point() {
    let listed =
        |text: String| text.lines().filter(|line| !line.starts_with('d')).map(String::from).collect::<Vec<_>>();
    let Some(oracle) = Oracle::new(OWNED) else { return };
    for options in ["--list-only", "--list-only -l", "--list-only -rl", "-a"] {
        for source in ["s/", "s", "s/l", "s/a"] {
            let args: Vec<&str> = options.split(' ').chain([source]).collect();
            assert_eq!(listed(oracle.haul(&args).1), listed(oracle.rsync_lines(&args)), "{args:?}");
        }
    }
}

#[test]
fn columns_of_progress_are_as_wide_as_in_rsync() {
    let Some(oracle) = Oracle::new("mkdir s; head -c 300000 /dev/zero >s/a") else { return };
    // The last picture of each line; the rate is what differs.
    let columns = |text: &str| {
        let line = text.rsplit(['\r', '\n']).find(|part| part.contains('%')).unwrap_or_default();
        line.find("B/s").map(|at| (line.find('%').unwrap_or(0), at))
    };
    for option in ["--progress", "--info=progress2"] {
        let args = ["-a", option, "s/", "dst"];
        let (ours, theirs) = (oracle.haul(&args).1, oracle.rsync_lines(&args));
        assert!(columns(&theirs).is_some(), "{theirs}");
        assert_eq!(columns(&ours), columns(&theirs), "{ours}\n{theirs}");
    }
}

#[test]
fn levels_and_the_version_are_told() {
    let Some(oracle) = Oracle::new("mkdir s") else { return };
    let (code, help, _) = oracle.haul(&["-a", "--info=help", "s/", "dst"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("  name      names of what is transferred; 2: of what is not, too (-v)"), "{help}");
    let (code, help, _) = oracle.haul(&["-a", "--debug=help", "s/", "dst"]);
    assert_eq!(
        (code, &help[..]),
        (Some(0), "--debug changes nothing. To see what haul does, write: haul -vv rsync ...")
    );
    assert!(!oracle.folder().join("dst").exists());
    let version = env!("CARGO_PKG_VERSION");
    let json = format!("{{\"program\": \"haul rsync\", \"version\": \"{version}\"}}");
    assert_eq!(oracle.haul(&["-VV"]).1, json);
}

#[test]
fn a_dry_run_keeps_to_max_delete() {
    let setup = "mkdir -p s dst; echo a>s/a; echo x>dst/x; find . -mindepth 1 -exec touch -d 2020-01-01T00:00:00Z {} +";
    let lines = [
        "-ain --delete --max-delete=0 s/ dst",
        "-ain --delete --max-delete=1 s/ dst",
        "-ai --delete --max-delete=0 s/ dst",
    ];
    let Some(oracle) = Oracle::new(setup) else { return };
    for line in lines {
        let args: Vec<&str> = line.split(' ').collect();
        let (code, ours, errors) = oracle.haul(&args);
        let theirs = oracle.rsync_lines(&args);
        let theirs: Vec<&str> = theirs.lines().filter(|line| !line.starts_with("Deletions stopped")).collect();
        assert_eq!(ours.lines().collect::<Vec<_>>(), theirs, "{line}: {errors}");
        assert_eq!(code, Some(if line.contains("=0") { 25 } else { 0 }), "{line}: {errors}");
    }
    let Some(oracle) = Oracle::new("mkdir -p s dst/d; touch dst/x dst/d/y dst/d/z") else { return };
    for (max, lines) in [("0", 0), ("1", 1), ("3", 3), ("4", 4)] {
        let (code, ours, errors) = oracle.haul(&["-rin", "--delete", &format!("--max-delete={max}"), "s/", "dst"]);
        assert_eq!(ours.lines().filter(|line| line.starts_with("*deleting")).count(), lines, "{max}: {ours} {errors}");
        assert_eq!(code, Some(if max == "4" { 0 } else { 25 }), "{max}: {errors}");
    }
}

#[test]
fn paths_that_are_kept_leave_directories_out_without_r() {
    let setup = "mkdir -p s/q/r dst; echo a>s/q/a; find . -mindepth 1 -exec touch -d 2020-01-01T00:00:00Z {} +";
    each(
        setup,
        Compare::All,
        &["-Ri s/q dst", "-Ri s/q/ dst", "-Ri s/q/a s/q dst", "-Rid s/q dst", "-Ri s/./q new", "-Rri s/q dst"],
    );
}

#[test]
fn a_directory_that_deletions_before_leave_is_told_once() {
    let lab = haul_testkit::lab::Lab::new(env!("CARGO_BIN_EXE_haul"));
    for name in ["s/a", "d/a", "d/y/only", "d/y/gone"] {
        haul_testkit::folder::write(&lab.path(name), name.as_bytes(), 1_000_000_000);
    }
    for dry in ["-rin", "-ri"] {
        let ran = lab.haul(&["rsync", dry, "--delete-before", "-fP_only", "@s/", "@d"]).code(0);
        let message = "cannot delete non-empty directory: y\n";
        assert_eq!(ran.out.matches(message).count(), 1, "{dry} {}", ran.out);
    }
}

#[test]
fn a_directory_that_can_not_be_read_is_pruned_and_takes_no_files_place() {
    let setup = r#"
mkdir -p s/m s/g/h s/k/l d/k/l; echo in >s/m/in; echo in >s/g/h/in; echo in >s/k/l/in; echo f >s/k/f
echo mine >d/m; echo mine >d/g; echo old >d/k/l/old
find s d -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; chmod 0 s/m s/g/h s/k/l
"#;
    let Some(oracle) = Oracle::unprivileged(setup) else { return };
    for line in ["-aim s/ d", "-rim s/ d", "-ain -m s/ d"] {
        oracle.same(&line.split(' ').collect::<Vec<_>>(), Compare::Attributes);
    }
    for delete in ["--delete", "--delete-before", "--delete-after"] {
        let (code, _, errors) = oracle.haul(&["-am", delete, "s/", "d"]);
        assert_eq!(code, Some(23), "{errors}");
        for (name, text) in [("d/m", "mine\n"), ("d/g", "mine\n"), ("d/k/l/old", "old\n")] {
            assert_eq!(std::fs::read_to_string(oracle.folder().join(name)).unwrap(), text, "{name} {errors}");
        }
    }
}

#[test]
fn options_that_would_be_passed_over_are_refused() {
    let Some(oracle) = super::oracle::Oracle::new("mkdir s dst; echo 1 >s/f; echo f >list") else { return };
    for line in [&["-a", "-M--fake-super", "s/", "dst"][..], &["--list-only", "--files-from=list", "s/"]] {
        let (code, _, errors) = oracle.haul(line);
        assert!(code == Some(1) && !errors.is_empty(), "{line:?}: {code:?} {errors}");
    }
    assert!(!oracle.folder().join("dst/f").exists());
}

#[test]
fn a_list_heeds_rules_and_tells_those_that_cannot_be_read() {
    let setup = "mkdir -p s/d s/e; echo 1 >s/d/f; echo '- x' >s/.rules; echo '- /../' >s/d/.rules; printf 'nonsense here\\n' >s/e/.rules";
    let Some(oracle) = super::oracle::Oracle::new(setup) else { return };
    let (code, list, _) = oracle.haul(&["-rm", "--list-only", "--exclude=.rules", "s/"]);
    assert!(code == Some(0) && list.contains("d/f") && !list.contains(" e\n"), "{list}");
    let (code, _, errors) = oracle.haul(&["-r", "--list-only", "--filter=: .rules", "s/"]);
    assert!(code == Some(23) && errors.contains("nonsense"), "{code:?} {errors}");
}

#[test]
fn a_missing_source_keeps_from_deleting_but_with_ignore_errors() {
    let setup = "mkdir s dst; echo 1 >s/f; echo 1 >dst/gone";
    let Some(oracle) = super::oracle::Oracle::new(setup) else { return };
    assert_eq!(oracle.haul(&["-r", "--delete", "nope", "s/", "dst"]).0, Some(23));
    assert!(oracle.folder().join("dst/gone").exists());
    assert_eq!(oracle.haul(&["-r", "--delete", "--ignore-errors", "nope", "s/", "dst"]).0, Some(23));
    assert!(!oracle.folder().join("dst/gone").exists());
}
