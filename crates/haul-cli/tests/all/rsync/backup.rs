//! What is kept aside with `--backup`: whose directories it is in, what makes way for it, and what is written in place.

use super::{each, oracle::Compare};

#[test]
fn directories_of_backups_are_as_open_as_what_they_stand_for() {
    let setup = r#"
mkdir -p s/p/q dst/p/q dst/gone/e; echo 1 >s/p/q/f; echo 22 >dst/p/q/f; echo x >dst/gone/e/x; chmod 700 dst/p; chmod 750 dst/p/q
chmod 711 dst/gone; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines =
        ["-r -b --backup-dir=../bk s/ dst", "-r -b --backup-dir=../bk --delete s/ dst", "-r -b --backup-dir=bk s/ dst"];
    each(setup, Compare::Modes, &lines);
}

#[test]
fn an_empty_directory_makes_way_for_a_backup() {
    let setup = r#"
mkdir -p s dst/f~ dst/g~ bk/f; echo 1 >s/f; echo 1 >s/g; echo 22 >dst/f; echo 22 >dst/g
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    each(setup, Compare::Trees, &["-rt -b s/ dst", "-rt -b --backup-dir=../bk s/ dst"]);
}

#[test]
fn what_is_written_in_place_keeps_its_inode_and_a_copy_of_it_is_kept() {
    let setup = r#"
mkdir s dst; echo 1 >s/f; echo 22 >dst/f; ln dst/f dst/other; touch -d 2020-01-01T00:00:00Z s/f; touch -d 2019-01-01T00:00:00Z dst/f
"#;
    // rsync 3.5 fails where `--backup-dir` leads out of the destination.
    each(setup, Compare::Links, &["-t --inplace -b s/f dst", "-t --inplace -b --backup-dir=bk s/f dst"]);
}

#[test]
fn what_makes_way_for_a_file_in_place_leaves_it_no_permissions() {
    let setup = "mkdir s dst; echo f >s/f; echo g >s/g; ln -s zz dst/f; mkfifo -m 600 dst/g; chmod 644 s/f s/g";
    each(setup, Compare::Modes, &["-r --inplace s/ dst", "--inplace s/f dst"]);
}

#[test]
fn names_that_are_one_file_at_the_destination_alone_become_what_they_are() {
    let setup = r#"
mkdir s dst; echo a >s/a; ln s/a s/c; echo bb >s/b; echo o >dst/a; ln dst/a dst/b; echo 9 >dst/c
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z s/a s/b
"#;
    let Some(oracle) = super::oracle::Oracle::new(setup) else { return };
    // rsync overwrites one with the other, run by run.
    let (code, _, errors) = oracle.haul(&["-aH", "--inplace", "s/", "dst"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let read = |name: &str| std::fs::read_to_string(oracle.folder().join("dst").join(name)).unwrap();
    assert_eq!([read("a"), read("b"), read("c")], ["a\n", "bb\n", "a\n"]);
}

/// An unsafe symlink must not survive as a backup, where nobody looks for it.
#[test]
fn symlinks_that_lead_out_are_not_kept_with_safe_links() {
    let setup = r#"
mkdir -p s/d dst/d; echo 1 >s/e; echo 1 >s/d/g; ln -s in s/l; ln -s ../../out dst/e; ln -s ../../out dst/l; ln -s ../../out dst/gone
ln -s ../../../o dst/d/g; ln -s ../x dst/d/in; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines = ["-aib", "-aib --delete", "-ai --backup-dir=../bk --delete", "-ainb --delete"];
    let safe = lines.map(|line| format!("{line} --safe-links s/ dst"));
    each(setup, Compare::All, &safe.each_ref().map(String::as_str));
    each(setup, Compare::All, &lines.map(|line| format!("{line} s dst")).each_ref().map(String::as_str));
}

/// Its files and backups would replace each other.
#[test]
fn a_directory_of_the_source_does_not_get_among_the_backups() {
    let setup = r#"
mkdir -p s/bk dst/bk; echo new >s/bk/n; echo 1 >s/f; echo 22 >dst/f; echo kept >dst/bk/kept; find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let Some(oracle) = super::oracle::Oracle::new(setup) else { return };
    let line = ["-rt", "--delete", "-b", "--backup-dir=bk"];
    for sources in [&["s/"][..], &["s/bk"]] {
        let (code, _, errors) = oracle.haul(&[&line[..], sources, &["dst"]].concat());
        assert!(code == Some(1) && errors.contains("choose another"), "{sources:?}: {code:?}: {errors}");
    }
    // What stands beside a file that alone is meant isn't brought.
    for (sources, dst) in [(&["s/f"][..], "dst"), (&["s/f"], "dst/f")] {
        let (code, _, errors) = oracle.haul(&[&["-tb", "--backup-dir=bk"], sources, &[dst]].concat());
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{dst}");
    }
    std::fs::write(oracle.folder().join("dst/f"), "other again").unwrap();
    for more in ["--exclude=/bk/", "--delete-excluded"] {
        let (code, _, errors) = oracle.haul(&[&line[..], &["--exclude=/bk/", more, "s/", "dst"]].concat());
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{more}");
        let kept = oracle.folder().join("dst/bk");
        assert!(kept.join("kept").exists() && kept.join("f").exists() && !kept.join("n").exists());
    }
}

/// rsync makes a backup of the backup.
#[test]
fn a_backup_gets_no_name_that_a_file_of_the_source_has() {
    let setup = r#"
mkdir s t dst; echo newer >s/f; echo theirs >s/f~; echo old >dst/f; echo newer >s/g; echo old >dst/g; echo theirs >t/g~
find s t dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines = [
        "-rtb s/ dst",
        "-rtb --remove-source-files s/ dst",
        "-rtb --suffix=~ s/ dst",
        "-rtb s/ t/ dst",
        "-rtb t/ s/ dst",
    ];
    each(setup, Compare::Trees, &lines);
    // One of its name is there too: all four are left, where rsync keeps three.
    let Some(oracle) =
        super::oracle::Oracle::new(&format!("{setup} echo older >dst/f~; touch -d 2019-01-01T00:00:00Z dst/f~"))
    else {
        return;
    };
    let (code, _, errors) = oracle.haul(&["-rtb", "s/", "dst"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let mut all: Vec<String> = std::fs::read_dir(oracle.folder().join("dst"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"f"))
        .map(|entry| std::fs::read_to_string(entry.path()).unwrap())
        .collect();
    all.sort();
    assert_eq!(all, ["newer\n", "old\n", "older\n", "theirs\n"]);
    assert_eq!(std::fs::read_to_string(oracle.folder().join("dst/f~")).unwrap(), "theirs\n");
}

#[test]
fn a_file_whose_name_has_the_suffix_keeps_one_backup() {
    let lab = haul_testkit::lab::Lab::new(env!("CARGO_BIN_EXE_haul"));
    for name in ["~$doc", "notes~"] {
        for run in 0..4 {
            haul_testkit::folder::write(
                &lab.path("s").join(name),
                "x".repeat(run + 1).as_bytes(),
                1_600_000_000_000_000_000 + run as u64,
            );
            lab.haul(&["rsync", "-rtb", "@s/", "@d"]).ok();
        }
        let kept = std::fs::read_to_string(lab.path("d").join(format!("{name}~"))).unwrap();
        assert_eq!(kept, "xxx", "{name}");
    }
    assert_eq!(std::fs::read_dir(lab.path("d")).unwrap().count(), 4);
}
