//! Lists of files that `copy`, `sync` and `move` write, beside those of rclone.

use haul_testkit::{folder::write, lab::Lab};
use std::{collections::BTreeSet, fs, process::Command};

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

/// `checksum` beside rclone's: the same lists and exit codes, through filters too.
#[test]
fn checksums_lists_are_rclones() {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    for (name, content) in [("same", "x"), ("sub/same too", "y"), ("sub/changed", "z"), ("extra", "e")] {
        write(&lab.path(&format!("d/{name}")), content.as_bytes(), TIME);
    }
    let line = |name: &str, content: &str| {
        let hash = haul_core::hash::hash_bytes(&[haul_core::Algo::Sha256], content.as_bytes());
        format!("{}  {name}\n", hash.hex(haul_core::Algo::Sha256).unwrap())
    };
    let right = [line("same", "x"), line("sub/same too", "y")].concat();
    let sums = [right.clone(), line("sub/changed", "other"), line("gone", "g")].concat();
    fs::write(lab.path("sums"), sums).unwrap();
    fs::write(lab.path("right"), right).unwrap();
    let names = ["combined", "differ", "match", "missing-on-src", "missing-on-dst", "error"];
    for (sums, more, code) in [
        ("@sums", &[][..], 1),
        ("@sums", &["--one-way"], 1),
        ("@sums", &["--download"], 1),
        ("@sums", &["--exclude=gone", "--exclude=extra"], 1),
        ("@right", &[], 1),
        ("@right", &["--one-way"], 0),
        ("@right", &["--include=same"], 0),
        ("@right", &["--one-way", "--exclude=changed"], 0),
    ] {
        let run = |side: &str, command: &[&str]| {
            let lists: Vec<String> = names.iter().map(|list| format!("--{list}=@{side}.{list}")).collect();
            let args: Vec<&str> = command
                .iter()
                .chain(&[sums, "@d"])
                .copied()
                .chain(more.iter().copied())
                .chain(lists.iter().map(String::as_str))
                .collect();
            if side == "ours" { lab.haul(&args).code(code) } else { lab.rclone(&args).code(code) }
        };
        // The second is the same by another name.
        for command in [&["checksum", "sha256"][..], &["check", "-C", "sha256"]] {
            run("ours", command);
            run("theirs", command);
            for list in names {
                assert_eq!(lines(&lab, "ours", list), lines(&lab, "theirs", list), "{command:?} {more:?}: {list}");
            }
        }
    }
    let ran = lab.haul(&["checksum", "sha256", "@sums", "@d"]).code(1);
    assert!(ran.err.contains("gone: file not found") && ran.err.contains("sub/changed: files differ"), "{}", ran.err);
}

/// Names that would break a line, and lines with the algorithm's name.
#[test]
fn hashes_of_odd_names_go_to_the_gnu_tools_and_back() {
    let lab = Lab::new(HAUL);
    let names = ["a\nb", "back\\slash", "both\\\n", "plain"];
    names.iter().for_each(|name| write(&lab.path(&format!("d/{name}")), name.as_bytes(), TIME));
    let md5sum = |args: &[&str]| Command::new("md5sum").args(args).current_dir(lab.path("d")).output();
    for tag in [&[][..], &["--tag"]] {
        let Ok(sums) = md5sum(&[tag, &["--"], &names].concat()) else {
            haul_testkit::peers::skip("there is no md5sum");
            return;
        };
        fs::write(lab.path("sums"), sums.stdout).unwrap();
        lab.haul(&["checksum", "md5", "@sums", "@d"]).ok();
        write(&lab.path("d/a\nb"), b"another", TIME);
        lab.haul(&["checksum", "md5", "@sums", "@d"]).code(1);
        write(&lab.path("d/a\nb"), b"a\nb", TIME);
    }
    lab.haul(&["md5sum", "@d", "--output-file=@ours"]).ok();
    assert_eq!(fs::read_to_string(lab.path("ours")).unwrap().lines().count(), names.len());
    let read = md5sum(&["--strict", "-c", lab.path("ours").to_str().unwrap()]).unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    lab.haul(&["md5sum", "@d", "--checkfile=@ours"]).ok();
}

/// `listremotes` beside rclone's: patterns and orders.
#[test]
fn remotes_are_chosen_as_by_rclone() {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    let config = "[a1]\ntype = local\ndescription = first one\n\n[b2]\ntype = alias\nremote = /tmp\n\n[a3]\ntype = alias\nremote = /\n";
    fs::write(lab.config(), config).unwrap();
    for args in [
        &["a"][..],
        &["{{^a.$}}"],
        &["--type=al"],
        &["--type=ALIAS"],
        &["--name=[ab]?"],
        &["--name=a"],
        &["--description=FIRST"],
        &["--description=/x"],
        &["--exact", "--type=alias"],
        &["--exact", "a"],
        &["--exact", "a1"],
        &["--source=file"],
        &["--source=env"],
        &["--type=al", "--name=3"],
    ] {
        let with = |more: &[&'static str]| [&["listremotes", "--order-by=name"][..], args, more].concat();
        assert_eq!(lab.haul(&with(&[])).ok().out, lab.rclone(&with(&[])).ok().out, "{args:?}");
    }
    for order in ["name", "type,name", "TYPE=desc,name=descending", "type=asc,name=desc", "description=descending,name"]
    {
        let args = ["listremotes", "--order-by", order];
        assert_eq!(lab.haul(&args).ok().out, lab.rclone(&args).ok().out, "{order}");
    }
    let json = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
    let args = ["listremotes", "--json", "--order-by=name"];
    assert_eq!(json(lab.haul(&args).ok().out), json(lab.rclone(&args).ok().out));
    let ran = lab.haul(&["listremotes", "--name", "{{"]).code(2);
    assert!(ran.err.starts_with("haul: the pattern \"{{\" isn't one: "), "{}", ran.err);
}

/// The unit of speeds beside rclone's; JSON has bytes all the same.
#[test]
fn speeds_are_in_bits_where_asked_for() {
    let lab = Lab::new(HAUL);
    write(&lab.path("d/x"), &[7; 3000], TIME);
    let args = |to: &'static str| ["copy", "@d", to, "--stats-unit=bits", "-v"];
    let unit = |text: &str| {
        let line = text.lines().find(|line| line.contains("Transferred:") && line.contains("ETA")).unwrap().to_owned();
        line.contains("bit/s, ETA")
    };
    assert!(unit(&lab.haul(&args("@ours")).ok().err));
    if lab.has_rclone() {
        assert!(unit(&lab.rclone(&args("@theirs")).ok().err));
    }
    let ran = lab.haul(&["copy", "@d", "@bytes", "-v"]).ok();
    assert!(!ran.err.contains("bit/s") && ran.err.contains("B/s, ETA"), "{}", ran.err);
    lab.haul(&["copy", "@d", "@x", "--stats-unit=bitz"]).code(2);
}
