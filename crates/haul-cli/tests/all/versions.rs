//! Old versions in a bucket on MinIO, beside rclone: names, content, states at a time, deleting.

use haul_testkit::{
    folder::{self, write},
    lab::Lab,
    minio::Minio,
    peers,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;

/// Now, as both programs read it.
fn now() -> String {
    let out = Command::new("date").args(["-u", "+%FT%T.%3NZ"]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn old_versions_are_rclones() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    lab.remote("m", &minio.endpoint());
    let bucket = format!("m:versions-{}", std::process::id());
    lab.haul(&["mkdir", &bucket]).ok();
    lab.rclone(&["backend", "versioning", &bucket, "Enabled"]).ok();
    let put = |name: &str, text: &[u8], time: u64| {
        write(&lab.path("one"), text, time);
        lab.haul(&["copyto", "@one", &format!("{bucket}/{name}"), "--ignore-times"]).ok();
    };
    put("one.txt", b"first", TIME);
    put("d/two.tar.gz", b"two", TIME);
    put("gone", b"soon gone", TIME);
    let first = now();
    put("one.txt", b"the second", TIME + 1_000_000_000);
    put(".profile", b"a", TIME);
    put(".profile", b"bb", TIME);
    lab.haul(&["deletefile", &format!("{bucket}/gone")]).ok();
    let second = now();
    put("one.txt", b"three", TIME + 2_000_000_000);
    put("d/deeper/x", b"x", TIME);
    put("d/deeper/x", b"xx", TIME);

    let programs: Vec<PathBuf> = [PathBuf::from(HAUL)].into_iter().chain(peers::find("rclone")).collect();
    let at = |time: &str| format!("--s3-version-at={time}");
    let (first, second, long_ago, an_hour) = (at(&first), at(&second), at("2001-01-01"), at("1h"));
    let list = |program: &Path, path: &str, flags: &[&str]| {
        let ran = lab.run(program, &[&["lsf", "-R", "-F", "pst", path], flags].concat()).ok();
        let lines = ran.lines();
        lines.iter().filter(|line| !line.contains("/;")).map(|line| line.to_string()).collect::<Vec<_>>()
    };
    for flags in [
        &["--s3-versions"][..],
        &["--s3-versions", "--max-depth=1"],
        &["--s3-versions", "--include=*.txt"],
        &[&first],
        &[&second],
        &[&second, "--max-depth=1"],
        &[&long_ago],
        &[&an_hour],
    ] {
        for path in [bucket.clone(), format!("{bucket}/d")] {
            let lists: Vec<_> = programs
                .iter()
                .map(|program| {
                    let ran = lab.run(program, &[&["lsf", "-R", "-F", "pst", &path], flags].concat());
                    ran.lines()
                        .iter()
                        .filter(|line| !line.contains("/;"))
                        .map(|line| line.to_string())
                        .collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(lists[0], lists[1], "{path} {flags:?}");
        }
    }
    let all = list(Path::new(HAUL), &bucket, &["--s3-versions"]);
    assert_eq!(all.len(), 9, "{all:?}");
    let deleted = list(Path::new(HAUL), &bucket, &["--s3-versions", "--s3-version-deleted"]);
    assert_eq!(deleted.len(), 10, "{deleted:?}");

    // The bytes, and the bucket as it was.
    let trees: Vec<folder::Tree> = ["a", "b"]
        .iter()
        .zip(&programs)
        .map(|(side, program)| {
            lab.run(program, &["copy", &bucket, &format!("@{side}/all"), "--s3-versions"]).ok();
            lab.run(program, &["copy", &bucket, &format!("@{side}/then"), &first]).ok();
            folder::files(&folder::read(&lab.path(side)))
        })
        .collect();
    folder::assert_same(&trees[0], &trees[1], "copy of versions");
    assert_eq!(std::fs::read(lab.path("a/then/one.txt")).unwrap(), b"first");
    assert_eq!(std::fs::read(lab.path("a/then/gone")).unwrap(), b"soon gone");
    let old = all.iter().find(|line| line.starts_with("one-v") && line.contains(";5;")).unwrap();
    let old = format!("{bucket}/{}", old.split(';').next().unwrap());
    assert_eq!(lab.haul(&["cat", "--s3-versions", &old]).ok().out, "first");

    // A version goes for good, and nothing else; the past can't be changed.
    lab.haul(&["deletefile", "--s3-versions", &old]).ok();
    for program in &programs {
        assert_eq!(list(program, &bucket, &["--s3-versions"]).len(), 8, "{}", program.display());
    }
    assert_eq!(lab.haul(&["cat", &format!("{bucket}/one.txt")]).ok().out, "three");
    let marker = deleted.iter().find(|line| line.starts_with("gone-v") && line.contains(";0;")).unwrap();
    let marker = format!("{bucket}/{}", marker.split(';').next().unwrap());
    lab.haul(&["deletefile", "--s3-versions", "--s3-version-deleted", &marker]).ok();
    assert_eq!(lab.haul(&["cat", &format!("{bucket}/gone")]).ok().out, "soon gone");
    for args in [&["deletefile", &format!("{bucket}/gone")][..], &["copyto", "@one", &format!("{bucket}/new")]] {
        let ran = lab.haul(&[args, &[&first, "--retries=1"][..]].concat());
        assert!(ran.code != 0 && ran.err.contains("what was can't be changed"), "{}", ran.err);
    }
    let ran = lab.haul(&["ls", &bucket, "--s3-versions", &first]);
    assert!(ran.code != 0 && ran.err.contains("versions and version_at can't be used together"), "{}", ran.err);
}
