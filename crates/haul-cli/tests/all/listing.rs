//! The commands that list, print, hash and delete: the real binary on local folders. What is expected was read off
//! rclone 1.75.1 on the same tree.

use assert_cmd::Command;
use haul_testkit::lab::Lab;
use std::{fs, io::Write as _, path::Path, time::Duration};
use tempfile::TempDir;

/// Runs haul in a folder, without anyone's configuration, in UTC.
fn haul(dir: &Path, args: &[&str]) -> (i32, String, String) {
    haul_with(dir, args, b"")
}

fn haul_with(dir: &Path, args: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("haul").unwrap();
    let empty = dir.join("no.conf");
    let output = command
        .current_dir(dir)
        .env_clear()
        .env("TZ", "UTC")
        .env("HOME", dir)
        .env("HAUL_CONFIG", &empty)
        .env("RCLONE_CONFIG", &empty)
        .args(args)
        .write_stdin(input)
        .timeout(Duration::from_secs(60))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// What a command that succeeds prints.
fn out(dir: &Path, args: &[&str]) -> String {
    let (code, out, err) = haul(dir, args);
    assert_eq!(code, 0, "{args:?}: {err}");
    out
}

fn sample() -> TempDir {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("t");
    for (name, content, time) in [
        ("a.txt", "hello\n".to_string(), (1_600_000_000, 123_456_789)),
        ("big.bin", "x".repeat(1536), (1_700_000_000, 0)),
        ("d/b.txt", "b".to_string(), (981_173_106, 0)),
        ("d/e/c,d.json", "{}".to_string(), (981_173_106, 5)),
        (".hidden", String::new(), (0, 0)),
    ] {
        let path = at.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        set_time(&path, time);
    }
    fs::create_dir_all(at.join("empty/sub")).unwrap();
    for name in ["d", "d/e", "empty", "empty/sub"] {
        set_time(&at.join(name), (1_500_000_000, 0));
    }
    dir
}

fn set_time(path: &Path, (secs, nanos): (u64, u32)) {
    let time = std::time::UNIX_EPOCH + Duration::new(secs, nanos);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    out(dir, &["lsf", "-R", "t"]).lines().map(String::from).collect()
}

#[test]
fn ls_and_its_kin() {
    let dir = sample();
    let at = dir.path();
    assert_eq!(
        out(at, &["ls", "t"]),
        "        0 .hidden\n        6 a.txt\n     1536 big.bin\n        1 d/b.txt\n        2 d/e/c,d.json\n"
    );
    assert_eq!(out(at, &["ls", "t", "--human-readable", "--include", "*.bin"]), "  1.500Ki big.bin\n");
    assert_eq!(out(at, &["ls", "t", "--max-depth", "1", "--exclude", ".*"]), "        6 a.txt\n     1536 big.bin\n");
    assert_eq!(out(at, &["ls", "t/a.txt"]), "        6 a.txt\n");
    assert_eq!(
        out(at, &["lsl", "t", "--include", "{a.txt,b.txt}"]),
        "        6 2020-09-13 12:26:40.123456789 a.txt\n        1 2001-02-03 04:05:06.000000000 d/b.txt\n"
    );
    let dirs = out(at, &["lsd", "t"]);
    let dirs: Vec<&str> = dirs.lines().map(|l| &l[12..]).collect();
    assert_eq!(dirs, [" 2017-07-14 02:40:00        -1 d", " 2017-07-14 02:40:00        -1 empty"]);
    assert_eq!(out(at, &["lsd", "-R", "t"]).lines().count(), 4);
}

#[test]
fn lsf_formats() {
    let dir = sample();
    let at = dir.path();
    assert_eq!(out(at, &["lsf", "t"]), ".hidden\na.txt\nbig.bin\nd/\nempty/\n");
    assert_eq!(out(at, &["lsf", "t", "-R", "--dirs-only", "-d=false"]), "d\nd/e\nempty\nempty/sub\n");
    assert_eq!(out(at, &["lsf", "t/d", "-R", "--files-only", "--absolute"]), "/b.txt\n/e/c,d.json\n");
    assert_eq!(out(at, &["lsf", "t/d", "--files-only", "--dirs-only"]), "");
    assert_eq!(
        out(at, &["lsf", "t/d", "-R", "-F", "pst", "--csv"]),
        "b.txt,1,2001-02-03 04:05:06\ne/,-1,2017-07-14 02:40:00\n\"e/c,d.json\",2,2001-02-03 04:05:06\n"
    );
    assert_eq!(
        out(at, &["lsf", "t/a.txt", "-F", "hspm", "-s", " | "]),
        "b1946ac92492d2347c6235b4d2611184 | 6 | a.txt | text/plain; charset=utf-8\n"
    );
    for (format, expected) in [
        ("RFC3339", "2020-09-13T12:26:40Z"),
        ("max", "2020-09-13 12:26:40.123456789"),
        ("unix", "1600000000"),
        ("unixnano", "1600000000123456789"),
        ("Jan _2 06 3pm", "Sep 13 20 12pm"),
    ] {
        assert_eq!(out(at, &["lsf", "t/a.txt", "-F", "t", "-t", format]), format!("{expected}\n"));
    }
    let (code, _, err) = haul(at, &["lsf", "t", "-F", "z"]);
    assert_eq!(code, 2);
    assert!(err.contains("unknown format character 'z': use p, s, t, h, i, o, m, e, T, M"), "{err}");
}

#[test]
fn lsjson_rows() {
    let dir = sample();
    let at = dir.path();
    assert_eq!(
        out(at, &["lsjson", "t/d", "--hash-type", "md5", "--files-only"]),
        "[\n{\"Path\":\"b.txt\",\"Name\":\"b.txt\",\"Size\":1,\"MimeType\":\"text/plain; charset=utf-8\",\
         \"ModTime\":\"2001-02-03T04:05:06.000000000Z\",\"IsDir\":false,\
         \"Hashes\":{\"md5\":\"92eb5ffee6ae2fec3ad71c777531578f\"}}\n]\n"
    );
    assert_eq!(out(at, &["lsjson", "t/empty/sub"]), "[\n]\n");
    assert_eq!(
        out(at, &["lsjson", "--stat", "t/a.txt", "--no-mimetype"]),
        "{\n\t\"Path\": \"a.txt\",\n\t\"Name\": \"a.txt\",\n\t\"Size\": 6,\n\
         \t\"ModTime\": \"2020-09-13T12:26:40.123456789Z\",\n\t\"IsDir\": false\n}\n"
    );
    // A directory has no size, and a list of files isn't what --stat is about.
    let row = out(at, &["lsjson", "t/empty", "--no-modtime", "--no-mimetype"]);
    assert_eq!(row, "[\n{\"Path\":\"sub\",\"Name\":\"sub\",\"Size\":-1,\"ModTime\":\"\",\"IsDir\":true}\n]\n");
    fs::write(at.join("names"), "a.txt\n").unwrap();
    let row = out(at, &["lsjson", "--stat", "t", "--files-from", "names", "--no-modtime"]);
    assert!(row.contains("\"IsDir\": true") && !row.contains("a.txt"), "{row}");
    fs::write(at.join("t/<&>"), "").unwrap();
    assert_eq!(
        out(at, &["lsjson", "t/<&>", "--no-modtime", "--no-mimetype"]),
        "[\n{\"Path\":\"\\u003c\\u0026\\u003e\",\"Name\":\"\\u003c\\u0026\\u003e\",\"Size\":0,\"ModTime\":\"\",\"IsDir\":false}\n]\n"
    );
}

#[test]
fn tree_draws() {
    let dir = sample();
    let at = dir.path();
    assert_eq!(
        out(at, &["tree", "t"]),
        "/\n├── a.txt\n├── big.bin\n├── d\n│   ├── b.txt\n│   └── e\n│       └── c,d.json\n└── empty\n    └── sub\n\n\
         4 directories, 4 files\n"
    );
    assert_eq!(
        out(at, &["tree", "t", "-a", "--level", "1", "--noreport"]),
        "/\n├── .hidden\n├── a.txt\n├── big.bin\n├── d\n└── empty\n"
    );
    assert_eq!(
        out(at, &["tree", "t/d", "-s"]),
        "[          3]  /\n├── [          1]  b.txt\n└── [          2]  e\n    └── [          2]  c,d.json\n\n1 directories, 2 files\n"
    );
    assert_eq!(
        out(at, &["tree", "t/d", "-D", "--noreport", "--max-depth", "1"]),
        "/\n├── [Feb 03  2001]  b.txt\n└── e\n"
    );
    assert_eq!(
        out(at, &["tree", "t", "-d", "--dirsfirst"]),
        "/\n├── d\n│   └── e\n└── empty\n    └── sub\n\n4 directories\n"
    );
}

#[test]
fn size_and_about() {
    let dir = sample();
    let at = dir.path();
    assert_eq!(out(at, &["size", "t"]), "Total objects: 5\nTotal size: 1.509 KiB (1545 Byte)\n");
    assert_eq!(out(at, &["size", "t", "--json"]), "{\"count\":5,\"bytes\":1545,\"sizeless\":0}\n");
    let about = out(at, &["about", "t"]);
    let names: Vec<&str> = about.lines().map(|l| &l[..9]).collect();
    assert_eq!(names, ["Total:   ", "Used:    ", "Free:    "]);
}

#[test]
fn cat_windows() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    fs::create_dir(at.join("t")).unwrap();
    fs::write(at.join("t/1"), "0123456789").unwrap();
    fs::write(at.join("t/2"), "ab").unwrap();
    for (args, expected) in [
        (&["t/1"][..], "0123456789"),
        (&["t"], "0123456789ab"),
        (&["t", "--separator", "|"], "0123456789|ab|"),
        (&["t", "--head", "3"], "012ab"),
        (&["t", "--tail", "3"], "789ab"),
        (&["t/1", "--offset", "2", "--count", "3"], "234"),
        (&["t/1", "--offset", "-4", "--count", "2"], "67"),
        (&["t/1", "--offset", "20"], ""),
        (&["t/1", "--discard"], ""),
    ] {
        assert_eq!(out(at, &[&["cat"], args].concat()), expected, "{args:?}");
    }
    assert_eq!(haul(at, &["cat", "t", "--head", "1", "--tail", "1"]).0, 2);
}

#[test]
fn rcat_writes_what_it_reads() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    for size in [0, 1, 1 << 20, (1 << 20) + 1, 3_000_000] {
        let content: Vec<u8> = (0..size).map(|i: u32| (i * 7 / 3) as u8).collect();
        let (code, _, err) = haul_with(at, &["rcat", "new/dir/f"], &content);
        assert_eq!(code, 0, "{err}");
        assert!(fs::read(at.join("new/dir/f")).unwrap() == content, "{size}");
    }
    assert_eq!(haul_with(at, &["rcat", "--size", "5", "short"], b"abc").0, 1);
    assert!(!at.join("short").exists());
    assert_eq!(haul_with(at, &["rcat", "-n", "dry"], b"abc").0, 0);
    assert!(!at.join("dry").exists());
    assert_eq!(fs::read_dir(at.join("new/dir")).unwrap().count(), 1);
}

/// Ctrl-C ends whoever writes the pipe too: what came until then isn't the file.
#[test]
fn rcat_that_is_stopped_leaves_what_was_there_and_nothing_else() {
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    fs::create_dir(lab.path("d")).unwrap();
    fs::write(lab.path("d/f"), "as it was").unwrap();
    let names = || fs::read_dir(lab.path("d")).unwrap().count();
    for _ in 0..3 {
        let mut child = lab.start_reading(&["rcat", "@d/f"]);
        let mut input = child.stdin.take().unwrap();
        input.write_all(&vec![7; 3_000_000]).unwrap();
        while names() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        drop(input);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!((fs::read(lab.path("d/f")).unwrap(), names()), (b"as it was".to_vec(), 1));
    }
}

#[test]
fn hashes_print_and_check() {
    let dir = sample();
    let at = dir.path();
    let sums = "b1946ac92492d2347c6235b4d2611184  a.txt\n92eb5ffee6ae2fec3ad71c777531578f  d/b.txt\n";
    let only = ["--include", "{a,b}.txt"];
    assert_eq!(out(at, &[&["md5sum", "t"][..], &only].concat()), sums);
    assert_eq!(out(at, &[&["hashsum", "MD5", "t", "--download"][..], &only].concat()), sums);
    assert_eq!(out(at, &["sha1sum", "t/a.txt", "--base64"]), "9XLTlvrpIGYocU-yzgD3LpTyJY8=  a.txt\n");
    assert_eq!(haul_with(at, &["md5sum"], b"hello\n").1, "b1946ac92492d2347c6235b4d2611184  -\n");
    assert!(out(at, &["hashsum"]).starts_with("Supported hashes are:\n- md5\n- sha1\n"));
    assert_eq!(out(at, &[&["md5sum", "t", "--output-file", "sums"][..], &only].concat()), "");
    assert_eq!(fs::read_to_string(at.join("sums")).unwrap(), sums);
    let (code, told, err) = haul(at, &[&["md5sum", "t", "-C", "sums"][..], &only].concat());
    assert_eq!((code, &*told), (0, "= a.txt\n= d/b.txt\n"), "{err}");
    assert!(err.contains("0 differences found") && err.contains("2 matching files"), "{err}");
    fs::write(at.join("t/a.txt"), "HELLO\n").unwrap();
    let (code, told, err) = haul(at, &[&["md5sum", "t", "-C", "sums"][..], &only].concat());
    assert_eq!((code, &*told), (1, "* a.txt\n= d/b.txt\n"));
    assert!(err.contains("a.txt: files differ") && err.contains("1 differences found"), "{err}");
}

#[test]
fn deletes_only_what_was_named() {
    let dir = sample();
    let at = dir.path();
    let (code, _, err) = haul(at, &["delete", "t", "--include", "*.txt", "-n"]);
    assert_eq!(code, 0);
    assert!(err.contains("a.txt: Skipped delete as --dry-run is set (size 6)"), "{err}");
    assert_eq!(names(at).len(), 9);
    out(at, &["delete", "t", "--include", "*.txt"]);
    assert_eq!(names(at), [".hidden", "big.bin", "d/", "d/e/", "d/e/c,d.json", "empty/", "empty/sub/"]);
    out(at, &["deletefile", "t/big.bin"]);
    let (code, _, err) = haul(at, &["deletefile", "t/d"]);
    assert_eq!(code, 4);
    assert!(err.contains("t/d is a directory or doesn't exist"), "{err}");
    out(at, &["delete", "t", "--rmdirs", "--min-size", "1k"]);
    assert_eq!(names(at), [".hidden", "d/", "d/e/", "d/e/c,d.json"]);
    out(at, &["delete", "t", "--rmdirs", "--min-size", "1b"]);
    assert_eq!(names(at), [".hidden"]);
}

#[test]
fn directories_come_and_go() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    out(at, &["mkdir", "t/a/b"]);
    out(at, &["mkdir", "t/a/b"]);
    out(at, &["mkdir", "-n", "t/dry"]);
    assert_eq!(names(at), ["a/", "a/b/"]);
    let (code, _, err) = haul(at, &["rmdir", "t/a"]);
    assert_eq!((code, err.as_str()), (1, "haul: the directory isn't empty\n"));
    out(at, &["rmdir", "t/a/b"]);
    assert_eq!(haul(at, &["rmdir", "t/a/b"]).0, 3);
    out(at, &["mkdir", "t/a/c/d"]);
    out(at, &["mkdir", "t/e/f"]);
    fs::write(at.join("t/e/keep"), "").unwrap();
    out(at, &["rmdirs", "t"]);
    assert_eq!(names(at), ["e/", "e/keep"]);
    fs::remove_file(at.join("t/e/keep")).unwrap();
    out(at, &["rmdirs", "t", "--leave-root"]);
    assert!(names(at).is_empty());
    out(at, &["rmdirs", "t"]);
    assert!(!at.join("t").exists());
}

#[test]
fn purge_stays_inside() {
    let dir = sample();
    let at = dir.path();
    fs::create_dir(at.join("outside")).unwrap();
    fs::write(at.join("outside/precious"), "").unwrap();
    std::os::unix::fs::symlink(at.join("outside"), at.join("t/link")).unwrap();
    std::os::unix::fs::symlink(at.join("outside/precious"), at.join("t/d/link")).unwrap();
    assert_eq!(haul(at, &["purge", "t", "--include", "*.txt"]).0, 2);
    assert_eq!(haul(at, &["purge", "t", "-L"]).0, 2);
    out(at, &["purge", "-n", "t"]);
    assert!(at.join("t/a.txt").exists());
    out(at, &["purge", "t"]);
    assert!(!at.join("t").exists());
    assert!(at.join("outside/precious").exists());
    assert_eq!(haul(at, &["purge", "t"]).0, 3);
}

#[test]
fn touch_sets_times() {
    let dir = sample();
    let at = dir.path();
    let time = |name: &str| out(at, &["lsf", "-F", "t", "-t", "max", name]);
    out(at, &["touch", "t/a.txt", "-t", "2006-01-02T15:04:05.5"]);
    assert_eq!(time("t/a.txt"), "2006-01-02 15:04:05.500000000\n");
    out(at, &["touch", "t/new", "-t", "171030"]);
    assert_eq!(time("t/new"), "2017-10-30 00:00:00.000000000\n");
    let (_, _, err) = haul(at, &["touch", "-C", "t/none"]);
    assert!(err.contains("t/none: Not touching nonexistent file due to --no-create"), "{err}");
    assert!(!at.join("t/none").exists());
    out(at, &["touch", "t/d", "-t", "171031"]);
    assert_eq!(time("t/d/b.txt"), "2017-10-31 00:00:00.000000000\n");
    assert_eq!(time("t/d/e/c,d.json"), "2001-02-03 04:05:06.000000005\n");
    out(at, &["touch", "-R", "t/d", "-t", "171101"]);
    assert_eq!(time("t/d/e/c,d.json"), "2017-11-01 00:00:00.000000000\n");
    assert_eq!(haul(at, &["touch", "t/a.txt", "-t", "1"]).0, 2);
}

#[test]
fn what_is_not_there_has_its_exit_code() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    for command in
        ["ls", "lsl", "lsd", "lsf", "lsjson", "tree", "size", "cat", "md5sum", "rmdir", "rmdirs", "purge", "delete"]
    {
        let (code, _, err) = haul(at, &[command, "nope"]);
        assert_eq!(code, 3, "{command}: {err}");
        assert!(err.contains("nope"), "{command}: {err}");
        assert_eq!(err.lines().count(), 1, "{command}: {err}");
    }
    assert_eq!(haul(at, &["deletefile", "nope"]).0, 4);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    fs::create_dir(at.join("t")).unwrap();
    for i in 0..5000 {
        fs::write(at.join(format!("t/a-file-with-a-rather-long-name-{i:05}")), "").unwrap();
    }
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("haul"))
        .current_dir(at)
        .args(["ls", "t"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
