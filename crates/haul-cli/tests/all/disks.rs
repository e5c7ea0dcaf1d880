//! The real binary between two folders: killed at any moment, with a source that moves under it, onto a disk that is full; and
//! what it may cost in system calls and memory, which don't depend on the machine.

use crate::kind_clashes::shown;
use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{self, assert_same, noise, write},
    lab::{Lab, peak, until},
    peers,
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
const OLD: u64 = 1_500_000_000_000_000_000;

/// True for the name of a file on its way.
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name.starts_with(".haul-") && name.ends_with(".partial")
}

/// Hidden files in a folder and below.
fn hidden_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(hidden_in(&path));
        } else if is_hidden(&path) {
            found.push(path);
        }
    }
    found
}

/// Threads stop one after another: `kill` returns before the last has.
fn every_thread_is_stopped(process: u32) -> bool {
    fs::read_dir(format!("/proc/{process}/task")).unwrap().all(|task| {
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

#[test]
fn what_a_killed_run_left_is_gone_after_the_next_and_nobody_elses() {
    let (sim, lab) = (Cloudsim::with(&[("rate-out", "2M")]), Lab::new(HAUL));
    sim.bucket("b", None);
    lab.remote("c", &sim.endpoint());
    for n in 0..200u64 {
        write(&lab.path("src").join(format!("{}/f{n}", n % 3)), &noise(n, 100_000), TIME);
    }
    lab.haul(&["copy", "@src", "c:b"]).ok();
    let dst = lab.path("dst");
    let mut child = lab.start(&["copy", "c:b", "@dst"]);
    assert!(until(|| hidden_in(&dst).len() >= 3));
    // While it lives, though it sleeps, others over the same folder leave its own alone.
    Command::new("kill").args(["-STOP", &child.id().to_string()]).status().unwrap();
    assert!(until(|| every_thread_is_stopped(child.id())));
    let alive = hidden_in(&dst);
    lab.haul(&["copy", "@src", "@dst", "--include=none"]).ok();
    assert_eq!(hidden_in(&dst), alive);
    child.kill().unwrap();
    lab.end(child).code(137);
    let dead = hidden_in(&dst);
    assert!(!dead.is_empty());
    // As another machine's, and one that a later run may go on with, are called.
    let (head, rest) = dead[0].file_name().unwrap().to_str().unwrap().split_at(".haul-".len() + 16);
    let others = [format!("{head}-0123456789abcdef{}", &rest[17..]), format!("{head}{}", &rest[25..])];
    others.iter().for_each(|name| fs::write(dead[0].with_file_name(name), b"").unwrap());
    lab.haul(&["copy", "@src", "@dst", "--dry-run"]).ok();
    assert_eq!(hidden_in(&dst).len(), dead.len() + 2);
    lab.haul(&["copy", "@src", "@dst"]).ok();
    let left: BTreeSet<_> = hidden_in(&dst).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(left, others.map(OsString::from).into());
    // A copy changes nothing at its source. A killed move may have left something there, which the next one removes.
    let at_the_source = lab.path("src/0").join(dead[0].file_name().unwrap());
    fs::write(&at_the_source, b"").unwrap();
    lab.haul(&["copy", "@src", "@dst"]).ok();
    assert!(at_the_source.exists());
    lab.haul(&["move", "@src", "@dst", "--dry-run"]).ok();
    assert!(at_the_source.exists());
    lab.haul(&["move", "@src", "@dst"]).ok();
    assert!(!at_the_source.exists());
}

#[test]
fn killed_at_any_moment_it_leaves_old_or_new_and_never_half() {
    let lab = Lab::new(HAUL);
    let (small, large) = (300u64, 6u64);
    let new = |n: u64| noise(n, if n < small { 3_000 + n as usize } else { 5 * MIB + n as usize });
    let old = |n: u64| noise(n + 10_000, new(n).len() + 7);
    let name = |n: u64| format!("{}/f{n}", n % 5);
    for n in 0..small + large {
        write(&lab.path("src").join(name(n)), &new(n), TIME + n);
    }
    // How long an undisturbed run takes, so that the moments are spread over it.
    let begun = Instant::now();
    lab.haul(&["copy", "@src", "@whole"]).ok();
    let mut whole = begun.elapsed();
    let mut killed = 0;
    for round in 0..12u32 {
        let dst = lab.path("dst");
        // Half of the files are there in an older state, half are new.
        for n in (0..small + large).step_by(2) {
            write(&dst.join(name(n)), &old(n), OLD);
        }
        let mut child = lab.start(&["copy", "@src", "@dst"]);
        let moment = whole * (2 * round + 1) / 24;
        thread::sleep(moment);
        child.kill().unwrap();
        match lab.end(child).code {
            137 => killed += 1,
            // It takes less than it seemed, as the first run may have found the machine busy.
            _ => whole = whole.min(moment),
        }
        let there = folder::read(&dst);
        for n in 0..small + large {
            match fs::read(dst.join(name(n))) {
                Ok(bytes) => assert!(bytes == new(n) || n % 2 == 0 && bytes == old(n), "round {round}: {}", name(n)),
                Err(_) => assert!(n % 2 == 1, "round {round}: {} is gone", name(n)),
            }
        }
        let known = |path: &Path| (0..small + large).any(|n| path == Path::new(&name(n)));
        let strange: Vec<_> = folder::files(&there).into_keys().filter(|p| !known(p) && !is_hidden(p)).collect();
        assert!(strange.is_empty(), "round {round}: {strange:?}");
        fs::remove_dir_all(&dst).unwrap();
    }
    assert!(killed > 3, "only {killed} of 12 were killed before their end");
}

/// Files that are replaced, that grow, shrink and vanish while they are copied: what is at the destination is some state that
/// the source really had, and what couldn't be had is told.
#[test]
fn a_source_that_moves_is_copied_as_it_was_or_reported() {
    let lab = Lab::new(HAUL);
    let src = lab.path("src");
    // A state of file `n`: one byte over and over, as many as its state says.
    let state = |n: u64, turn: u64| vec![b'a' + (turn % 20) as u8; (100_000 + 1_000 * (turn % 7) + n) as usize];
    let path = |n: u64| src.join(format!("{}/f{n}", n % 3));
    for n in 0..120 {
        write(&path(n), &state(n, 0), TIME);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let changing = {
        let (stop, src) = (stop.clone(), src.clone());
        thread::spawn(move || {
            let path = |n: u64| src.join(format!("{}/f{n}", n % 3));
            let mut turn = 1;
            while !stop.load(Ordering::Relaxed) {
                for n in (0..120).filter(|n| n % 4 != 0) {
                    match n % 4 {
                        // Replaced as a whole by another state, larger or smaller.
                        1 => {
                            fs::write(src.join("next"), state(n, turn)).unwrap();
                            fs::rename(src.join("next"), path(n)).unwrap();
                        }
                        // There and gone.
                        2 if turn % 2 == 0 => fs::write(path(n), state(n, turn)).unwrap(),
                        2 => fs::remove_file(path(n)).unwrap_or_default(),
                        // Grows.
                        _ => {
                            use std::io::Write as _;
                            let file = fs::File::options().append(true).open(path(n));
                            file.unwrap().write_all(&[b'a'; 777]).unwrap();
                        }
                    }
                }
                turn += 1;
            }
        })
    };
    for round in 0..4 {
        let ran = lab.haul(&["copy", "@src", "@dst", "--retries=2"]);
        assert!(ran.code == 0 || ran.err.contains("ERROR"), "{}", ran.err);
        for n in 0..120u64 {
            let Ok(bytes) = fs::read(lab.path("dst").join(format!("{}/f{n}", n % 3))) else {
                assert!(n % 4 != 0, "round {round}: f{n} didn't move and isn't there");
                continue;
            };
            match n % 4 {
                0 => assert_eq!(bytes, state(n, 0)),
                // What is written in place may be seen half, by a copy as by any reader: only its kind of bytes counts.
                2 => assert!(bytes.len() <= 107_000 && bytes.iter().all(u8::is_ascii_lowercase)),
                1 => assert!((0..140).any(|turn| bytes == state(n, turn)), "round {round}: f{n} is no state that was"),
                _ => assert!(bytes.len() >= 100_000 && bytes.iter().all(|b| *b == b'a'), "round {round}: f{n}"),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    changing.join().unwrap();
    fs::remove_file(src.join("next")).unwrap_or_default();
    lab.haul(&["sync", "@src", "@dst"]).ok();
    assert_same(&folder::read(&src), &folder::read(&lab.path("dst")), "at rest");
}

#[test]
fn a_full_disk_ends_the_job_with_one_line_that_says_what_is_missing() {
    let lab = Lab::new(HAUL);
    let at = lab.path("small");
    fs::create_dir(&at).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "haul-test"]).arg(&at).output();
    if !mounted.is_ok_and(|out| out.status.success()) {
        return peers::skip("a small file system can't be mounted here");
    }
    let _unmounted = Mounted(&at);
    for n in 0..400 {
        write(&lab.path(&format!("src/{}/f{n}", n % 4)), &noise(n, 40_000), TIME);
    }
    let ran = lab.haul(&["copy", "@src", "@small/dst"]).code(1);
    let lines: Vec<_> = ran.err.lines().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(lines.len(), 1, "{}", ran.err);
    for part in ["no space left at ", "/small/dst: ", " are still to be copied and ", " are missing (it began with "] {
        assert!(lines[0].contains(part), "{part:?} isn't in {}", lines[0]);
    }
    let (kept, src) = (folder::files(&folder::read(&at.join("dst"))), folder::read(&lab.path("src")));
    assert!(kept.len() > 10 && kept.iter().all(|(path, node)| src.get(path) == Some(node)), "{:?}", kept.keys());
}

/// Directories need inodes as files do: where there are none left, that is said once too.
#[test]
fn a_disk_without_inodes_ends_the_job_with_one_line() {
    let lab = Lab::new(HAUL);
    let at = lab.path("small");
    fs::create_dir(&at).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "nr_inodes=50", "haul-test"]).arg(&at).output();
    if !mounted.is_ok_and(|out| out.status.success()) {
        return peers::skip("a small file system can't be mounted here");
    }
    let _unmounted = Mounted(&at);
    for n in 0..100 {
        fs::create_dir_all(lab.path(&format!("dirs/d{n}"))).unwrap();
        write(&lab.path(&format!("both/f{n}")), b"x", 0);
        fs::create_dir_all(lab.path(&format!("both/e{n}"))).unwrap();
    }
    for (src, said) in [("dirs", "no space left at "), ("both", " B are still to be copied and ")] {
        let dst = format!("@small/{src}");
        let ran = lab.haul(&["copy", "-a", &format!("@{src}"), &dst]).code(1);
        let lines: Vec<_> = ran.err.lines().filter(|line| line.contains("ERROR")).collect();
        assert_eq!(lines.len(), 1, "{}", ran.err);
        assert!(lines[0].contains(said) && lines[0].contains("look for a quota or missing inodes"), "{}", lines[0]);
        fs::remove_dir_all(at.join(src)).unwrap();
    }
}

/// Nothing had to be kept, so the folder for it isn't there, and nothing in it has to be forced to a device.
#[test]
fn a_backup_folder_that_nothing_needed_is_no_error_of_fsync() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"x", 0);
    lab.haul(&["sync", "--fsync=end", "--backup-dir", &lab.path("old").display().to_string(), "@src", "@dst"]).ok();
    assert!(lab.path("dst/f").exists() && !lab.path("old").exists());
}

/// A file is not to become a symlink since its bytes go by another way than the kernel's copy; a move would delete it then.
#[test]
fn a_file_that_is_called_as_a_symlink_is_stored_does_not_become_one() {
    let lab = Lab::new(HAUL);
    for flags in [&["-l"][..], &["-l", "--inplace"], &["-a", "--bwlimit=10M"]] {
        write(&lab.path("src/x.rclonelink"), b"not a target", 0);
        let ran = lab.haul(&[&["copy"], flags, &["@src", "@dst"]].concat());
        let name = lab.path(if ran.code == 0 { "dst/x.rclonelink" } else { "src/x.rclonelink" });
        assert_eq!(fs::read(name).unwrap(), b"not a target", "{flags:?}: {}", ran.err);
        assert!(fs::symlink_metadata(lab.path("dst/x")).is_err(), "{flags:?}");
        if ran.code != 0 {
            let message =
                "x.rclonelink: Failed to copy: a file whose name ends in .rclonelink would become a symbolic link here";
            assert!(ran.err.contains(message), "{}", ran.err);
        }
        let _ = fs::remove_dir_all(lab.path("dst"));
    }
    // Without -l it is a file like any other.
    lab.haul(&["copy", "--inplace", "@src", "@dst"]).ok();
    assert_eq!(fs::read(lab.path("dst/x.rclonelink")).unwrap(), b"not a target");
}

#[test]
fn a_symlink_goes_by_the_name_that_it_is_stored_under() {
    let lab = Lab::new(HAUL);
    folder::link(&lab.path("s"), "l", "t");
    write(&lab.path("s/t"), b"text", 0);
    write(&lab.path("s/q.rclonelink"), b"a file", 0);
    let out = |args: &[&str]| lab.haul(args).ok().out;
    assert_eq!(out(&["lsf", "-l", "@s"]), "l.rclonelink\nq.rclonelink\nt\n");
    assert_eq!(
        (out(&["cat", "-l", "@s/l.rclonelink"]), out(&["cat", "-l", "@s/q.rclonelink"])),
        ("t".into(), "a file".into())
    );
    fs::write(lab.path("names"), "l.rclonelink\nq.rclonelink\n").unwrap();
    let names = lab.path("names").display().to_string();
    for flags in [&[][..], &["--no-traverse"]] {
        lab.haul(&[&["copy", "-l", "--files-from", &names, "@s", "@named"], flags].concat()).ok();
        assert!(lab.path("named/l").is_symlink() && lab.path("named/q.rclonelink").is_file(), "{flags:?}");
        fs::remove_dir_all(lab.path("named")).unwrap();
    }
    lab.haul(&["copy", "-l", "@s", "@d"]).ok();
    let signs = out(&["check", "-l", "@s", "@d", "--combined", "-"]);
    assert_eq!(signs, "= l.rclonelink\n= q.rclonelink\n= t\n");
    lab.haul(&["moveto", "-l", "@d/l.rclonelink", "@d/m.rclonelink"]).ok();
    assert_eq!(fs::read_link(lab.path("d/m")).unwrap(), Path::new("t"));
    lab.haul(&["deletefile", "-l", "@d/m.rclonelink"]).ok();
    assert!(!lab.path("d/m").is_symlink() && !lab.path("d/l").is_symlink() && lab.path("d/t").is_file());
}

/// Unmounts when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // If it stays mounted, the folder can't be removed, which is all.
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Calls by which threads wait for each other, and the one by which a debug build checks each descriptor that it closes.
const LEFT_OUT: [&str; 5] = ["futex", "epoll_wait", "sched_yield", "fcntl", "total"];

/// System calls that a run makes, but those by which threads wait for each other, whose number is the machine's; by strace. `None` where that isn't there or may not trace.
fn calls(lab: &Lab, args: &[&str]) -> Option<u64> {
    let strace = peers::need("strace")?;
    let out = lab.path("strace.out");
    let mut words = vec!["-f", "-c", "-o", out.to_str().unwrap(), HAUL];
    words.extend(args);
    let ran = lab.run(&strace, &words);
    if ran.code != 0 {
        peers::skip(&format!("strace can't trace here: {}", ran.err.trim()));
        return None;
    }
    let text = fs::read_to_string(&out).unwrap();
    // Percent, seconds, microseconds a call, calls, perhaps errors, name.
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let counted = rows.filter(|row| row.len() > 4 && !LEFT_OUT.contains(&row[row.len() - 1]));
    Some(counted.filter_map(|row| row[3].parse::<u64>().ok()).sum())
}

#[test]
fn a_small_file_costs_ten_system_calls_and_an_unchanged_one_two() {
    let lab = Lab::new(HAUL);
    let files = 6_000;
    for n in 0..files {
        write(&lab.path(&format!("src/{}/f{n}", n % 20)), &noise(n, 6_500), TIME);
    }
    let Some(copied) = calls(&lab, &["copy", "@src", "@dst"]) else { return };
    // Ten of each file's own, and the start, some 500.
    assert!(copied > 9 * files && copied < 11 * files, "{copied} system calls for {files} files");
    let unchanged = calls(&lab, &["copy", "@src", "@dst"]).unwrap();
    assert!(unchanged >= 2 * files && unchanged < 3 * files, "{unchanged} system calls for {files} unchanged files");
    assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("dst")), "the copy");
}

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let lab = Lab::new(HAUL);
    for n in 0..20_000 {
        let path = lab.path(&format!("src/{}/{}/f{n}", n % 3, n % 100));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"x").unwrap();
    }
    for _ in 0..2 {
        let (code, kib) = peak(lab.haul_command(&["copy", "@src", "@dst"]));
        assert_eq!(code, 0);
        assert!(kib < 80 << 10, "{kib} KiB");
    }
}

/// A source with directories where the destination has symlinks.
fn behind_links(lab: &Lab) {
    for (path, text) in
        [("s/v1/f", "one"), ("s/current/f", "two-newer"), ("s/gone/x", "x"), ("d/v1/f", "one"), ("d/lf", "a file")]
    {
        write(&lab.path(path), text.as_bytes(), TIME);
    }
    fs::create_dir(lab.path("s/empty")).unwrap();
    for (target, name) in
        [("v1", "s/lf"), ("v1", "d/current"), ("nowhere", "d/gone"), ("v1", "d/empty"), ("../outside", "d/extra")]
    {
        std::os::unix::fs::symlink(target, lab.path(name)).unwrap();
    }
}

/// A symlink that is kept as one is no directory: nothing is written to where it leads.
#[test]
fn where_links_are_kept_they_make_way_for_what_is_written() {
    for words in [
        &["sync", "-a"][..],
        &["sync", "-a", "--delete-before"],
        &["sync", "-a", "--backup-dir=@bk"],
        &["sync", "-l"],
        &["copy", "-l"],
        &["copy", "-l", "--no-traverse"],
        &["move", "-l"],
    ] {
        let lab = Lab::new(HAUL);
        behind_links(&lab);
        if words[0] == "move" {
            // It puts a symlink over no file.
            fs::remove_file(lab.path("d/lf")).unwrap();
        }
        let wanted = shown(&lab.path("s"));
        lab.haul(&[words, &["@s", "@d"]].concat()).ok();
        let there = shown(&lab.path("d"));
        match words {
            ["sync", "-a", ..] => assert_eq!(there, wanted, "{words:?}"),
            _ => {
                // No empty directory is made, so what has its name stays unless all that is extra goes.
                let left = ["empty -> v1", "extra -> ../outside"].iter().filter(|_| words[0] != "sync");
                let mut wanted: Vec<String> = wanted.into_iter().filter(|line| line != "empty /").collect();
                wanted.extend(left.map(|line| line.to_string()));
                wanted.sort();
                assert_eq!(there, wanted, "{words:?}");
            }
        }
        if words.contains(&"--backup-dir=@bk") {
            assert!(shown(&lab.path("bk")).contains(&"current -> v1".to_owned()));
        }
    }
}

/// A bucket shows no directories, only names that imply them.
#[test]
fn links_make_way_for_what_comes_from_a_bucket() {
    let (sim, lab) = (Cloudsim::with(&[]), Lab::new(HAUL));
    sim.bucket("b", None);
    lab.remote("c", &sim.endpoint());
    behind_links(&lab);
    write(&lab.path("s/current/deep/er/x"), b"deep", TIME);
    lab.haul(&["sync", "-l", "@s", "c:b"]).ok();
    lab.haul(&["sync", "-l", "c:b", "@d"]).ok();
    let wanted: Vec<String> = shown(&lab.path("s")).into_iter().filter(|line| line != "empty /").collect();
    assert_eq!(shown(&lab.path("d")), wanted);
}

#[test]
fn a_link_that_must_stay_keeps_its_directory_out_and_nothing_is_written_behind_it() {
    for words in [
        &["sync", "-l", "--immutable"][..],
        &["copy", "-l", "--immutable"],
        &["sync", "-l", "--exclude=/current.rclonelink"],
        &["sync", "-l", "--dry-run"],
        &["copy", "-l", "--existing"],
        &["copy", "-l", "--ignore-existing"],
    ] {
        let lab = Lab::new(HAUL);
        behind_links(&lab);
        let ran = lab.haul(&[words, &["@s", "@d"]].concat());
        let there = shown(&lab.path("d"));
        assert!(there.contains(&"current -> v1".to_owned()) && there.contains(&"v1/f one".to_owned()), "{there:?}");
        let is_refused = !words.contains(&"--dry-run") && !words.contains(&"--existing");
        assert_eq!(ran.code != 0, is_refused, "{words:?}: {}", ran.err);
    }
}

#[test]
fn a_snapshot_is_restored_over_links_to_directories() {
    for delete in [&[][..], &["--delete"]] {
        let lab = Lab::new(HAUL);
        write(&lab.path("s/v1/f"), b"one", TIME);
        write(&lab.path("s/current/f"), b"two-newer", TIME);
        write(&lab.path("d/v1/f"), b"one", TIME);
        std::os::unix::fs::symlink("v1", lab.path("d/current")).unwrap();
        lab.haul(&["snapshot", "push", "@s", "@store", "n"]).ok();
        lab.haul(&[&["snapshot", "pull", "@store", "n", "@d"], delete].concat()).ok();
        assert_eq!(shown(&lab.path("d")), shown(&lab.path("s")), "{delete:?}");
    }
}
