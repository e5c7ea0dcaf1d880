//! Choosing files by what isn't in their names, beside rclone: metadata, parts of all files, file systems, and what is said of
//! what can't be copied.

use haul_testkit::{
    folder::{self, link, write},
    lab::{Lab, ProgramResult},
    minio::Minio,
    peers,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;

fn both() -> Vec<PathBuf> {
    [PathBuf::from(HAUL)].into_iter().chain(peers::find("rclone")).collect()
}

#[test]
fn parts_of_all_files_are_rclones() {
    let lab = Lab::new(HAUL);
    for name in
        ["a", "B", "c d/E", "\u{c9}t\u{e9}", "e\u{301}te\u{301}", "x/y/z", "Stra\u{df}e", "1", "2", "3", "4", "5"]
    {
        write(&lab.path("src").join(name), b"text", TIME);
    }
    let mut all = Vec::new();
    for part in 0..3 {
        let part = format!("{part}/3");
        let lists = both()
            .into_iter()
            .map(|p| lab.run(&p, &["lsf", "-R", "--files-only", "@src", "--hash-filter", &part]).ok());
        let lists: Vec<Vec<String>> =
            lists.map(|ran| ran.lines().iter().map(|line| line.to_string()).collect()).collect();
        assert!(lists.windows(2).all(|pair| pair[0] == pair[1]), "{part}: {lists:?}");
        all.extend(lists[0].clone());
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 12, "{all:?}");
    // In the lab's own arguments an @ is a path.
    let by_chance =
        lab.haul_command(&["lsf", "-R", "--files-only", "@src"]).args(["--hash-filter", "@/3"]).output().unwrap();
    assert!(by_chance.status.success(), "{by_chance:?}");
    assert!(String::from_utf8_lossy(&by_chance.stdout).lines().count() < 12, "{by_chance:?}");
    let ran = lab.haul(&["lsf", "@src", "--hash-filter", "3"]).code(2);
    assert!(ran.err.contains("\"3\" isn't K/N, such as 1/4"), "{}", ran.err);
}

#[test]
fn metadata_of_a_bucket_chooses() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("m", &minio.endpoint());
    let bucket = format!("m:metadata-filters-{}", std::process::id());
    for (name, set) in [("red", "colour=red"), ("blue", "colour=blue"), ("none", "size=big"), ("d/red2", "colour=red")]
    {
        write(&lab.path("one"), name.as_bytes(), TIME);
        lab.haul(&["copyto", "@one", &format!("{bucket}/{name}"), "--metadata-set", set]).ok();
    }
    for filter in [
        &["--metadata-include", "colour=red"][..],
        &["--metadata-exclude", "colour=*"],
        &["--metadata-include", "{colour,size}=b*"],
        &["--metadata-filter", "- colour=b*", "--metadata-filter", "+ colour=*", "--metadata-filter", "- *"],
        &["--metadata-include", "content-type=application/*"],
    ] {
        let lists =
            both().into_iter().map(|p| lab.run(&p, &[&["lsf", "-R", "--files-only", &bucket], filter].concat()).ok());
        let lists: Vec<Vec<String>> =
            lists.map(|ran| ran.lines().iter().map(|line| line.to_string()).collect()).collect();
        assert!(lists.windows(2).all(|pair| pair[0] == pair[1]), "{filter:?}: {lists:?}");
        assert!(!lists[0].is_empty() && lists[0].len() <= 4, "{filter:?}: {lists:?}");
    }
    let of_red = ["--metadata-include", "colour=red"];
    lab.haul(&[&["copy", &bucket, "@got"][..], &of_red].concat()).ok();
    let got: Vec<String> = folder::files(&folder::read(&lab.path("got"))).keys().map(|k| format!("{k:?}")).collect();
    assert_eq!(got.len(), 2, "{got:?}");
    // What the source leaves out isn't absent from it; what the destination has beyond the filter stays.
    write(&lab.path("src/red"), b"red", TIME);
    lab.haul(&[&["sync", "@src", &bucket, "--metadata-exclude", "colour=blue"][..]].concat()).ok();
    let left = lab.haul(&["lsf", "-R", "--files-only", &bucket]).ok();
    assert_eq!(left.lines(), ["blue", "red"]);
    lab.haul(&["purge", &bucket]).ok();
}

#[test]
fn what_has_no_time_shows_the_one_that_is_given() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("m", &minio.endpoint());
    let bucket = format!("m:default-time-{}", std::process::id());
    write(&lab.path("src/d/f"), b"text", TIME);
    lab.haul(&["copy", "@src", &bucket]).ok();
    for time in ["2020-06-01", "2020-06-01T10:20:30Z", ""] {
        let flag = format!("--default-time={time}");
        let flags = if time.is_empty() { vec![] } else { vec![flag.as_str()] };
        for args in [&["lsf", "-F", "pt", &bucket][..], &["lsd", &bucket]] {
            let shown: Vec<String> = both().iter().map(|p| lab.run(p, &[args, &flags].concat()).ok().out).collect();
            let expected = if time.is_empty() { "2000-01-01" } else { "2020-06-01" };
            assert!(shown[0].contains(expected), "{shown:?}");
            assert!(shown.windows(2).all(|pair| pair[0] == pair[1]), "{args:?} {flag}: {shown:?}");
        }
    }
    lab.haul(&["purge", &bucket]).ok();
    let ran = lab.haul(&["ls", "@src", "--default-time", "never"]).code(2);
    assert!(ran.err.contains("--default-time"), "{}", ran.err);
}

/// Runs a program in a namespace of its own, with a file system mounted at each place, which holds a file `in`.
fn with_mounts(lab: &Lab, at: &[&str], program: &Path, args: &[&str]) -> ProgramResult {
    let mounts: Vec<String> = at
        .iter()
        .map(|at| lab.path(at).display().to_string())
        .map(|at| format!("mount -t tmpfs none {at} && echo text >{at}/in && "))
        .collect();
    let script = format!("mount --make-rprivate / && {}exec $0 $*", mounts.concat());
    lab.run(Path::new("unshare"), &[&["-m", "sh", "-c", &script, program.to_str().unwrap()], args].concat())
}

#[test]
fn what_is_mounted_is_left_out() {
    let lab = Lab::new(HAUL);
    let make = || {
        for dir in ["src/m", "src/d/m", "dst/m", "dst/x/m"] {
            fs::create_dir_all(lab.path(dir)).unwrap();
        }
        ["src/f", "src/d/f", "dst/gone", "dst/x/gone"].iter().for_each(|f| write(&lab.path(f), b"text", TIME));
    };
    make();
    if with_mounts(&lab, &["src/m"], Path::new("true"), &[]).code != 0 {
        return peers::skip("a file system can't be mounted here");
    }
    let mut trees = Vec::new();
    for program in both() {
        make();
        let list = |args: &[&str]| {
            let ran = with_mounts(&lab, &["src/m", "src/d/m"], &program, args).ok();
            ran.lines().iter().map(|line| line.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(list(&["lsf", "-R", "@src", "-x"]), ["d/", "d/f", "f"], "{}", program.display());
        assert_eq!(list(&["lsf", "-R", "--max-depth=2", "@src", "--one-file-system"]), ["d/", "d/f", "f"]);
        assert!(list(&["lsf", "-R", "@src"]).contains(&"d/m/in".to_owned()));
        let copy = ["sync", "@src", "@dst", "-x", "--create-empty-src-dirs"];
        with_mounts(&lab, &["src/m", "src/d/m"], &program, &copy).ok();
        trees.push(folder::read(&lab.path("dst")));
        fs::remove_dir_all(lab.path("dst")).unwrap();
    }
    assert!(trees[0].keys().any(|key| Path::new(key).ends_with("d/f")), "{:?}", trees[0]);
    if let [ours, theirs] = &trees[..] {
        // haul doesn't look into other file systems below the source, so it keeps the destination's files there.
        let without = |tree: &folder::Tree| -> folder::Tree {
            tree.clone().into_iter().filter(|(key, _)| !Path::new(key).starts_with("m")).collect()
        };
        folder::assert_same(&without(ours), &without(theirs), "sync -x");
    }
    // Nothing is deleted from what is mounted at the destination.
    make();
    let sync = ["sync", "@src", "@dst", "-x", "--dry-run", "--combined", "-"];
    let ran = with_mounts(&lab, &["dst/m", "dst/x/m"], Path::new(HAUL), &sync);
    assert!(!ran.out.contains("m/in") && ran.out.contains("- gone"), "{}{}", ran.out, ran.err);
}

#[test]
fn nothing_is_said_of_what_is_skipped() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"text", TIME);
    link(&lab.path("src"), "link", "f");
    let made = Command::new("mkfifo").arg(lab.path("src/pipe")).status().unwrap();
    assert!(made.success());
    for program in both() {
        for (flags, link, pipe) in [
            (&[][..], true, true),
            (&["--skip-links"], false, true),
            (&["--skip-specials"], true, false),
            (&["--skip-links", "--skip-specials"], false, false),
        ] {
            for command in [&["copy", "@src", "@dst"][..], &["lsf", "@src"]] {
                let ran = lab.run(&program, &[command, flags].concat()).ok();
                let mentioned = (ran.err.contains("link: "), ran.err.contains("pipe: "));
                assert_eq!(mentioned, (link, pipe), "{}\n{}", ran.line, ran.err);
            }
        }
    }
}

/// Rules tell which files of the source are meant; under its new name a file is still seen at the destination.
#[test]
fn rules_are_about_old_names_and_hide_no_file_that_has_a_new_one() {
    let lab = Lab::new(HAUL);
    write(&lab.path("s/a.JPG"), b"old", TIME);
    write(&lab.path("s/other"), b"other", TIME);
    write(&lab.path("d/a.jpg"), b"newer", TIME + 60_000_000_000);
    write(&lab.path("d/kept.txt"), b"none of ours", TIME);
    let update = ["@s", "@d", "--include=*.JPG", "--name-transform=all,lowercase", "--update"];
    lab.haul(&[&["copy"], &update[..]].concat()).ok();
    assert_eq!(fs::read(lab.path("d/a.jpg")).unwrap(), b"newer");
    // What only the destination has is judged by its own name, as it was.
    lab.haul(&[&["sync"], &update[..]].concat()).ok();
    assert_eq!(fs::read(lab.path("d/a.jpg")).unwrap(), b"newer");
    assert!(lab.path("d/kept.txt").exists() && !lab.path("d/other").exists());
    let sync = ["sync", "@s", "@d", "--include=*.JPG", "--name-transform=all,lowercase", "--backup-dir=@old"];
    lab.haul(&sync).ok();
    assert_eq!(fs::read(lab.path("d/a.jpg")).unwrap(), b"old");
    assert_eq!(fs::read(lab.path("old/a.jpg")).unwrap(), b"newer");
    let again = lab.haul(&[&sync[..], &["-v"]].concat()).ok();
    assert!(!again.err.contains("Copied"), "{}", again.err);
}

#[test]
fn of_names_that_differ_by_case_a_files_own_is_the_nearest() {
    let lab = Lab::new(HAUL);
    write(&lab.path("s/name"), b"new", TIME + 60_000_000_000);
    for name in ["NAME", "Name", "name"] {
        write(&lab.path("d").join(name), name.as_bytes(), TIME);
    }
    lab.haul(&["copy", "@s", "@d", "--ignore-case-sync"]).ok();
    let all = ["NAME", "Name", "name"].map(|name| fs::read_to_string(lab.path("d").join(name)).unwrap());
    assert_eq!(all, ["NAME", "Name", "new"]);
    fs::remove_file(lab.path("d/name")).unwrap();
    lab.haul(&["copy", "@s", "@d", "--ignore-case-sync", "--include=name"]).ok();
    assert!(!lab.path("d/name").exists());
    assert_eq!(fs::read(lab.path("d/NAME")).unwrap(), b"new");
}
