//! Folders in which things of each kind meet those of each other under one name.

use haul_testkit::folder::write;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::{fs, os::unix::fs::symlink, path::Path};

const TIME: u64 = 1_600_000_000_000_000_000;

const KINDS: [&str; 6] = ["file", "dir", "edir", "link", "dlink", "fifo"];

/// Something of this kind.
pub fn make(path: &Path, kind: &str, whose: &str) {
    match kind {
        "file" => write(path, whose.as_bytes(), TIME),
        "dir" => write(&path.join("in"), whose.as_bytes(), TIME),
        "edir" => fs::create_dir_all(path).expect("made"),
        "link" => symlink(format!("nowhere-{whose}"), path).expect("made"),
        "dlink" => symlink("zd", path).expect("made"),
        "fifo" => rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made"),
        _ => {}
    }
}

/// Each path with what it is.
pub fn shown(root: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.expect("read").path();
            let kind = fs::symlink_metadata(&path).expect("it is there").file_type();
            let is = match () {
                () if kind.is_symlink() => format!("-> {}", fs::read_link(&path).expect("read").display()),
                () if kind.is_dir() => "/".to_owned(),
                () if kind.is_file() => fs::read_to_string(&path).expect("read"),
                () => "special".to_owned(),
            };
            all.push(format!("{} {is}", path.strip_prefix(root).expect("below").display()));
            if kind.is_dir() {
                dirs.push(path);
            }
        }
    }
    all.sort();
    all
}

/// A source and a destination in which each kind meets each other.
pub fn meeting(top: &Path) {
    for side in ["s", "d"] {
        write(&top.join(side).join("zd/kept"), b"kept", TIME);
    }
    for (src, dst) in KINDS.iter().flat_map(|src| KINDS.map(|dst| (*src, dst))).filter(|(src, dst)| src != dst) {
        make(&top.join(format!("s/{src}-{dst}")), src, "s");
        make(&top.join(format!("d/{src}-{dst}")), dst, "d");
    }
    make(&top.join("d/extra-dlink"), "dlink", "d");
    make(&top.join("d/extra-dir"), "dir", "d");
    ["s", "d"].iter().for_each(|side| dated(&top.join(side), TIME));
}

/// Gives all that is no file a time, so that it doesn't hang on the second in which a test runs.
pub fn dated(path: &Path, ns: u64) {
    let kind = fs::symlink_metadata(path).expect("it is there").file_type();
    if kind.is_dir() {
        fs::read_dir(path).expect("read").for_each(|entry| dated(&entry.expect("read").path(), ns));
    }
    if !kind.is_file() {
        let time = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("set");
    }
}
