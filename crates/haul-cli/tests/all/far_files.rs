//! Single files between two haul, by `haul rsync` over a command in ssh's place: what is built from the old file, and what has other names.

use haul_testkit::{
    folder::{noise, write},
    lab::{Lab, ProgramResult, until},
    peers,
};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Command,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;

/// A lab with a remote shell that runs its words here.
fn lab() -> Lab {
    let lab = Lab::new(HAUL);
    fs::write(lab.path("shell"), "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    fs::set_permissions(lab.path("shell"), fs::Permissions::from_mode(0o755)).unwrap();
    lab
}

fn rsync(lab: &Lab, words: &[&str]) -> ProgramResult {
    let (shell, path) = (format!("-e{}", lab.path("shell").display()), format!("--rsync-path={HAUL}"));
    let there = |word: &&str| match word.strip_prefix("x:") {
        Some(name) => format!("x:{}", lab.path(name).display()),
        None => (*word).to_owned(),
    };
    let words: Vec<String> = words.iter().map(there).collect();
    let words: Vec<&str> = ["rsync", &shell, &path].into_iter().chain(words.iter().map(String::as_str)).collect();
    lab.haul(&words)
}

#[test]
fn holes_stay_holes_in_what_is_built_from_the_old_file() {
    for ends in [["@src/", "x:dst/"], ["x:src/", "@dst/"]] {
        let lab = lab();
        fs::create_dir(lab.path("src")).unwrap();
        let image = OpenOptions::new().create_new(true).write(true).open(lab.path("src/image")).unwrap();
        image.set_len(64 << 20).unwrap();
        image.write_all_at(&noise(1, 8192), 1 << 20).unwrap();
        rsync(&lab, &[&["-aS", "--no-whole-file"][..], &ends].concat()).ok();
        image.write_all_at(&noise(2, 4096), 33 << 20).unwrap();
        // Data becomes a hole.
        image.write_all_at(&[0; 8192], 1 << 20).unwrap();
        image.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(TIME)).unwrap();
        let ran = rsync(&lab, &[&["-aS", "--no-whole-file", "--stats"][..], &ends].concat()).ok();
        assert!(ran.out.contains("Literal data: ") && !ran.out.contains("Literal data: 67,108,864"), "{}", ran.out);
        assert!(fs::read(lab.path("src/image")).unwrap() == fs::read(lab.path("dst/image")).unwrap());
        let blocks = fs::metadata(lab.path("dst/image")).unwrap().blocks();
        assert!(blocks < 1000, "{blocks} blocks of 512 bytes");
    }
}

#[test]
fn a_new_time_is_not_set_on_other_names_of_the_old_file() {
    for ends in [["@src/", "x:dst/"], ["x:src/", "@dst/"]] {
        let lab = lab();
        write(&lab.path("snap/f"), b"the same", TIME);
        fs::set_permissions(lab.path("snap/f"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::create_dir(lab.path("dst")).unwrap();
        fs::hard_link(lab.path("snap/f"), lab.path("dst/f")).unwrap();
        write(&lab.path("src/f"), b"the same", TIME + 7_000_000_000);
        fs::set_permissions(lab.path("src/f"), fs::Permissions::from_mode(0o600)).unwrap();
        rsync(&lab, &[&["-a"][..], &ends].concat()).ok();
        let facts =
            |name: &str| fs::metadata(lab.path(name)).map(|it| (it.mtime(), it.mode() & 0o777, it.nlink())).unwrap();
        assert_eq!((facts("snap/f"), facts("dst/f")), ((1_600_000_000, 0o644, 1), (1_600_000_007, 0o600, 1)));
        // Two equal files that are one there become two.
        write(&lab.path("src/g"), b"the same", TIME + 9_000_000_000);
        fs::hard_link(lab.path("dst/f"), lab.path("dst/g")).unwrap();
        rsync(&lab, &[&["-a"][..], &ends].concat()).ok();
        let again = rsync(&lab, &[&["-ai"][..], &ends].concat()).ok();
        assert_eq!((again.out.as_str(), facts("dst/f").0, facts("dst/g").0), ("", 1_600_000_007, 1_600_000_009));
    }
}

#[test]
fn what_a_move_takes_from_the_source_is_not_of_what_may_be_deleted() {
    let lab = lab();
    for name in ["src/a", "src/b", "dst/x", "dst/y"] {
        write(&lab.path(name), name.as_bytes(), TIME);
    }
    let words = ["-a", "--remove-source-files", "--delete", "--max-delete=2", "@src/", "@dst/"];
    rsync(&lab, &words).ok();
    assert!(!lab.path("dst/x").exists() && !lab.path("dst/y").exists() && lab.path("dst/a").exists());
}

#[test]
fn a_file_that_changes_while_it_is_read_there_arrives_as_one() {
    let lab = lab();
    write(&lab.path("src/f"), &noise(1, 24 << 20), TIME);
    let (shell, path) = (format!("-e{}", lab.path("shell").display()), format!("--rsync-path={HAUL}"));
    let from = format!("x:{}/", lab.path("src").display());
    let child = lab.start(&["rsync", "-av", "--bwlimit=12M", &shell, &path, &from, "@dst/"]);
    let begun = || {
        let hidden = fs::read_dir(lab.path("dst")).into_iter().flatten().flatten();
        hidden.filter_map(|file| file.metadata().ok()).any(|file| file.is_file() && file.blocks() > 8192)
    };
    assert!(until(begun), "some of it has come");
    let file = OpenOptions::new().write(true).open(lab.path("src/f")).unwrap();
    file.write_all_at(&noise(2, 24 << 20), 0).unwrap();
    let ran = lab.end(child).ok();
    assert!(fs::read(lab.path("src/f")).unwrap() == fs::read(lab.path("dst/f")).unwrap(), "{}", ran.err);
}

const DROP_RIGHTS: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// As root nothing is closed, so haul runs as nobody.
#[test]
fn a_directory_of_ones_own_that_is_closed_is_opened_for_what_comes() {
    let as_root = is_root();
    for ends in [["src/", "x:dst/"], ["x:src/", "dst/"], ["src/", "dst/"]] {
        let lab = lab();
        let haul = lab.path("haul");
        fs::copy(HAUL, &haul).unwrap();
        for (file, size) in [("small", 100), ("large", 3 << 20)] {
            write(&lab.path("src/ro").join(file), &noise(1, size), TIME);
        }
        std::os::unix::fs::symlink("small", lab.path("src/ro/link")).unwrap();
        fs::create_dir_all(lab.path("dst/ro")).unwrap();
        for side in ["src/ro", "dst/ro"] {
            fs::set_permissions(lab.path(side), fs::Permissions::from_mode(0o555)).unwrap();
        }
        let there = |end: &str| match end.strip_prefix("x:") {
            Some(name) => format!("x:{}/", lab.path(name).display()),
            None => format!("{}/", lab.path(end).display()),
        };
        let (shell, path) = (format!("-e{}", lab.path("shell").display()), format!("--rsync-path={}", haul.display()));
        let (from, to, haul) = (there(ends[0]), there(ends[1]), haul.display().to_string());
        let words = [&*haul, "rsync", "-a", &shell, &path, &from, &to];
        let ran = match as_root {
            true => {
                Command::new("chown").args(["-R", "65534:65534"]).arg(lab.path("")).status().unwrap();
                lab.run(Path::new(DROP_RIGHTS[0]), &[&DROP_RIGHTS[1..], &words].concat())
            }
            false => lab.run(Path::new(words[0]), &words[1..]),
        };
        if as_root && ran.err.contains("setpriv") {
            return peers::skip("setpriv is not installed, and to root nothing is closed");
        }
        ran.ok();
        for name in ["small", "large", "link"] {
            assert!(fs::read(lab.path("dst/ro").join(name)).is_ok(), "{ends:?} {name}");
        }
        assert_eq!(fs::metadata(lab.path("dst/ro")).unwrap().mode() & 0o777, 0o555, "{ends:?}");
        fs::set_permissions(lab.path("src/ro"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(lab.path("dst/ro"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n")
}
