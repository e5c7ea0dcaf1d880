//! `--link-dest`, `--copy-dest` and `--compare-dest`: what of another place counts as a file of the source; and destinations that
//! can't be, or aren't there yet.

use super::{
    each,
    oracle::{Compare, Oracle},
};
use haul_testkit::{
    folder::write,
    lab::{Lab, elsewhere},
};
use std::fs;

/// Another place that has some files alike, others of the same name, and younger ones; the destination has one of them otherwise.
const ELSEWHERE: &str = r#"
mkdir -p s/d/e s/n s/m old/d/e old/m dst/d dst/x; echo 1 >s/d/1; cp s/d/1 old/d/1; echo 2 >s/d/e/2; echo 22 >old/d/e/2; echo n >s/n/n; echo f >s/f
cp s/f old/f; echo g >s/g; cp s/g old/g; ln -s f s/l; ln -s f old/l; ln -s f s/l2; ln -s q old/l2; mkfifo s/p old/p; echo m >s/m/m; cp s/m/m old/m/m
echo o >s/young; echo p >old/young; chmod 700 old/d/e; find s dst old -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
touch -d 2021-01-01T00:00:00Z s/n old/m old/young
"#;
const OTHERWISE: &str = "echo other >dst/g; touch -d 2020-01-01T00:00:00Z dst/g dst\n";

/// Relative paths of alternate destinations are relative to the directory that the file goes into.
#[test]
fn one_file_that_gets_a_name_finds_other_places_beside_its_directory() {
    let setup = r#"
mkdir -p s dst other; echo 1 >s/e; echo old >dst/e; cp s/e other/e; cp s/e other/new; echo 3 >s/f
find s dst other -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z s/f
"#;
    each(
        setup,
        Compare::Links,
        &[
            "-ai --compare-dest=../other s/e dst/e",
            "-ai --copy-dest=../other s/e dst/new",
            "-ai --link-dest=../other s/e dst/new",
            "-ai -b --backup-dir=../bk s/e dst/e",
            "-ai -b --backup-dir=../bk s/f dst/e",
            "-ai -b --backup-dir=bk s/f dst/e",
        ],
    );
}

/// What only the other place has doesn't stand for what the destination has of another kind.
#[test]
fn a_file_stays_no_file_where_another_place_has_the_fifo() {
    let setup = "mkdir -p s other dst; mkfifo s/c other/c; echo x >dst/c; touch -d 2020-01-01T00:00:00Z s/c other/c dst/c s dst";
    each(setup, Compare::Links, &["-ai --compare-dest=../other s/ dst", "-ai --compare-dest=../other s/c dst"]);
}

#[test]
fn only_what_is_the_sources_is_taken_from_elsewhere() {
    let options = [
        "-a",
        "-a --ignore-existing",
        "-dlptgoD",
        "-dlptgoD --ignore-existing",
        "-rt",
        "-a --delete",
        "-an",
        "-aH",
        "-a -u",
    ];
    for place in ["--compare-dest", "--link-dest", "--copy-dest"] {
        for dest in ["dst", "new"] {
            let lines: Vec<String> =
                options.iter().map(|options| format!("-i {options} {place}=../old s/ {dest}")).collect();
            each(ELSEWHERE, Compare::Links, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    // A file to be replaced becomes a hard link to the existing one.
    let lines = options.map(|options| format!("-i {options} --link-dest=../old s/ dst"));
    each(&[ELSEWHERE, OTHERWISE].concat(), Compare::Links, &lines.each_ref().map(String::as_str));
}

#[test]
fn flags_that_keep_existing_files_ignore_alternate_destinations() {
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    write(&lab.path("src/f"), b"the source's", 1_600_000_000_000_000_000);
    write(&lab.path("old/f"), b"another", 1_700_000_000_000_000_000);
    for (number, place) in ["--compare-dest", "--copy-dest"].into_iter().enumerate() {
        for flag in ["--ignore-existing", "--update"] {
            let to = format!("dst{number}{flag}");
            lab.haul(&["copy", flag, place, "@old", "@src", &format!("@{to}")]).ok();
            assert_eq!(fs::read(lab.path(&to).join("f")).unwrap(), b"the source's", "{place} {flag}");
        }
    }
}

#[test]
fn destinations_that_can_not_be_are_told_with_rsyncs_codes() {
    let setup = r#"
mkdir -p s/d o; echo f >s/f; echo g >s/d/g; ln -s nowhere dangle; echo file >file; ln -s file lfile; ln -s o ldir; mkfifo fifo; ln -s x/y deep
find s o -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    for dest in ["dangle", "dangle/", "file", "file/", "lfile/", "ldir/", "fifo", "fifo/", "deep", "file/x", "dangle/x"]
    {
        let lines =
            ["s/", "s", "s/f", "s/f s/d", "--mkpath s/", "--mkpath s/f"].map(|sources| format!("-ai {sources} {dest}"));
        each(setup, Compare::All, &lines.each_ref().map(String::as_str));
    }
}

#[test]
fn a_missing_destination_has_nothing_to_delete() {
    let setup = "mkdir -p s/d t dst; echo f >s/f; ln -s f s/l; echo t >t/t; find s t dst -exec touch -h -d 2020-01-01T00:00:00Z {} +";
    let lines = [
        "-rti -K --delete-delay s t dst/new",
        "-ai -K --delete s/ t/ dst/new",
        "-ai --delete-before s/ t/ dst/new",
        "-rti -K --delete s t dst",
    ];
    each(setup, Compare::All, &lines);
}

#[test]
fn what_is_in_the_way_makes_way_for_what_is_written_in_place() {
    let setup = r#"
mkdir -p s dst/d dst/e/in out; echo f >s/d; echo e >s/e; echo l >s/l; ln -s t dst/l; echo t >dst/t; echo p >s/p; mkfifo dst/p; ln -s n s/ln; echo x >dst/ln
ln -s ../out dst/lo; echo o >out/o; echo lo >s/lo; mkdir dst/real; echo r >dst/real/r; ln -s real dst/lr; echo lr >s/lr; mkdir s/real
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    for how in ["--inplace", "--bwlimit=1000"] {
        let options = [
            "",
            "--delete",
            "--force",
            "-b",
            "--backup-dir=../bk -b --delete",
            "--remove-source-files",
            "-K",
            "-H",
            "--existing",
        ];
        let lines = options.map(|options| format!("-a {how} {options} s/ dst"));
        each(setup, Compare::Trees, &lines.each_ref().map(String::as_str));
    }
}

/// Files named by what the destination has of them, and what the other place: nothing, the same, other content, other permissions,
/// another time.
const EACH_WAY: &str = r#"
mkdir -p s/d dst/d old/d; for n in eq_eq df_eq tm_eq md_eq no_eq eq_tm df_tm tm_tm no_tm eq_md df_md no_md df_df no_df eq_no df_no no_no
do echo $n >s/$n; cp s/$n old/$n; cp s/$n dst/$n; done; for f in dst/df_*; do echo other >$f; done; for f in old/*_df; do echo longer >$f.; mv $f. $f; done
rm dst/no_* old/*_no; echo q >s/d/q; cp s/d/q old/d/q; echo old >dst/d/q; ln -s x s/l; ln -s x old/l; ln -s x s/l2; ln -s x old/l2; ln -s y dst/l2
for f in dst/df_*; do echo longer >$f; done; find s dst old -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
touch -d 2021-01-01T00:00:00Z dst/tm_* old/*_tm; chmod 600 dst/md_* old/*_md
"#;

#[test]
fn what_another_place_has_is_used_with_its_attributes_as_by_rsync() {
    let options = [
        "-ai",
        "-aii",
        "-ani",
        "-rti",
        "-ri",
        "-rci",
        "-aci",
        "-rpi",
        "-rlpgoDi",
        "-aui",
        "-aHi",
        "-ai --delete",
        "-ai --existing",
        "-ai --ignore-existing",
    ];
    for place in ["--compare-dest", "--copy-dest", "--link-dest"] {
        for dest in ["dst", "new"] {
            let lines = options.map(|options| format!("{options} {place}=../old s/ {dest}"));
            each(EACH_WAY, Compare::Attributes, &lines.each_ref().map(String::as_str));
        }
        each(EACH_WAY, Compare::Attributes, &[&format!("-ai {place}=../none {place}=../dst {place}=../old s/ new")]);
    }
}

#[test]
fn what_compare_dest_has_goes_only_when_all_went_well() {
    let Some(oracle) = Oracle::new(&[EACH_WAY, "mkdir dst/no_no; touch dst/no_no/full; ln -s dst same\n"].concat())
    else {
        return;
    };
    let read = |name: &str| fs::read_to_string(oracle.folder().join("dst").join(name)).ok();
    let here = Some("longer\n".into());
    let (code, _, errors) = oracle.haul(&["-a", "--compare-dest=../old", "s/", "dst"]);
    assert_eq!((code, read("df_eq")), (Some(23), here.clone()), "{errors}");
    let line = "haul rsync: 5 files that --compare-dest has were not deleted: there were errors";
    assert!(errors.lines().any(|told| told == line), "{errors}");
    let good = ["-a", "--exclude=no_no", "--compare-dest=../old", "s/", "dst"];
    let (code, _, errors) = oracle.haul(&[&["--max-delete=0"], &good[..]].concat());
    assert_eq!((code, read("df_eq")), (Some(25), here.clone()), "{errors}");
    let (code, _, errors) = oracle.haul(&[&["--backup-dir=../kept"], &good[..]].concat());
    assert_eq!((code, read("df_eq"), read("../kept/df_eq")), (Some(0), None, here), "{errors}");
    let (code, _, errors) = oracle.haul(&[&["--remove-source-files"], &good[..]].concat());
    assert_eq!((code, read("df_eq"), read("../s/df_eq")), (Some(0), None, Some("df_eq\n".into())), "{errors}");
    // What is found is the destination's own file.
    for other in ["--compare-dest=.", "--compare-dest=../same", "--link-dest=../same"] {
        let (code, _, errors) = oracle.haul(&["-a", "--exclude=no_no", other, "s/", "dst"]);
        assert_eq!(
            (code, read("eq_eq"), read("df_eq")),
            (Some(0), Some("eq_eq\n".into()), Some("df_eq\n".into())),
            "{errors}"
        );
    }
}

/// A file that was unchanged, and was set aside for a link that can't be made, comes anew.
#[test]
fn a_link_that_fails_takes_no_file_away() {
    let setup = "mkdir s dst; echo same >s/a; echo new >s/b; cp s/a dst/a; echo old >dst/b; find s dst -depth -exec touch -d 2020-01-01T00:00:00Z {} +";
    for moved in [&[][..], &["--remove-source-files"]] {
        let Some(elsewhere) = elsewhere() else { return };
        let Some(oracle) = Oracle::new(&format!("{setup}; cp -a s/. {}", elsewhere.path().display())) else { return };
        let link = format!("--link-dest={}", elsewhere.path().display());
        let (code, _, errors) = oracle.haul(&[&["-a", "-b", &link], moved, &["s/", "dst"]].concat());
        assert_eq!(code, Some(0), "{errors}");
        for (name, content) in [("a", "same\n"), ("b", "new\n")] {
            assert_eq!(
                fs::read_to_string(oracle.folder().join("dst").join(name)).unwrap(),
                content,
                "{name} {moved:?}"
            );
            assert_eq!(oracle.folder().join("s").join(name).exists(), moved.is_empty());
        }
    }
}
