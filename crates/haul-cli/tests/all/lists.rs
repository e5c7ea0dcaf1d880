//! Lists of files that `copy`, `sync` and `move` write, beside those of rclone.

use haul_testkit::{folder::write, lab::Lab};
use std::{collections::BTreeSet, fs};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const LISTS: [&str; 7] = ["combined", "differ", "match", "missing-on-src", "missing-on-dst", "error", "dest-after"];
const TIME: u64 = 1_700_000_000_000_000_000;

fn build(lab: &Lab, side: &str) {
    for (name, content) in [("same", "x"), ("sub/new", "y"), ("sub/other", "longer"), ("time", "t"), ("umlaut ä", "u")]
    {
        write(&lab.path(&format!("{side}/src/{name}")), content.as_bytes(), TIME);
    }
    for (name, content, time) in
        [("same", "x", TIME), ("sub/other", "z", TIME), ("time", "t", TIME + 9_000_000_000), ("extra/deep", "e", TIME)]
    {
        write(&lab.path(&format!("{side}/dst/{name}")), content.as_bytes(), time);
    }
}

fn args(verb: &str, side: &str) -> Vec<String> {
    let mut args = vec![verb.to_owned(), format!("@{side}/src"), format!("@{side}/dst")];
    args.extend(LISTS.iter().map(|list| format!("--{list}=@{side}.{list}")));
    args
}

/// A list's lines; the two programs write them in their own order.
fn lines(lab: &Lab, side: &str, list: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(lab.path(&format!("{side}.{list}"))).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn lists_are_rclones() {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    for (verb, more) in [
        ("copy", &[][..]),
        ("sync", &[]),
        ("move", &[]),
        ("copy", &["--dry-run"]),
        ("sync", &["--dry-run"]),
        ("sync", &["--ignore-existing"]),
        ("copy", &["--size-only"]),
    ] {
        for side in ["ours", "theirs"] {
            if lab.path(side).exists() {
                fs::remove_dir_all(lab.path(side)).unwrap();
            }
            build(&lab, side);
        }
        let with = |side: &str| [args(verb, side), more.iter().map(|flag| (*flag).to_owned()).collect()].concat();
        let (ours, theirs) = (with("ours"), with("theirs"));
        lab.haul(&ours.iter().map(String::as_str).collect::<Vec<_>>()).ok();
        lab.rclone(&theirs.iter().map(String::as_str).collect::<Vec<_>>()).ok();
        for list in LISTS {
            let mut theirs = lines(&lab, "theirs", list);
            if verb == "move" {
                // rclone takes what it need not move for an error, too.
                theirs.retain(|line| !line.starts_with("! ") && list != "error");
            }
            assert_eq!(lines(&lab, "ours", list), theirs, "{verb} {more:?} --{list}");
        }
    }
}

#[test]
fn what_fails_is_in_the_list_of_errors() {
    let lab = Lab::new(HAUL);
    build(&lab, "ours");
    let lists = ["--combined=-", "--error=@ours.error", "--dest-after=@ours.after"];
    let ran = lab.haul(&[&["copy", "@ours/src", "@ours/dst", "--size-only", "--immutable"][..], &lists].concat());
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert!(ran.out.contains("! sub/other\n"), "{}", ran.out);
    assert_eq!(lines(&lab, "ours", "error").into_iter().collect::<Vec<_>>(), ["sub/other"]);
    assert!(lines(&lab, "ours", "after").contains("sub/new"));
}
