//! Snapshots with the real binary: what is pushed comes back exactly, from folders and from S3; what is cut short leaves no
//! version; what is lost or damaged is found; no list leads out of the folder.

mod attacks;
mod freeing;
mod interrupted;
mod requests;
mod site;

use haul_testkit::{folder, minio::Minio};
use site::{Site, facts, names};
use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::Path,
};

/// Everything that a folder can hold and a version keeps.
fn odd_folder(site: &Site) {
    site.write("src/a/b/x", b"hello\n");
    site.write("src/a/dup", b"hello\n");
    site.write("src/run.sh", b"exec");
    site.write("src/zero", b"");
    site.write("src/ro/f", b"read only");
    site.write("src/ tab\t\"quotes\"\\ ünï 日本 \u{1}", b"odd");
    fs::write(site.path("src").join(std::ffi::OsStr::from_bytes(b"not\xfftext\n")), b"bytes").unwrap();
    let link = |to: &[u8], name: &[u8]| {
        symlink(std::ffi::OsStr::from_bytes(to), site.path("src").join(std::ffi::OsStr::from_bytes(name))).unwrap();
    };
    link(b"a/b/x", b"link");
    link(b"../../nowhere \xfe", b"dangling");
    link(b"/etc", b"absolute");
    link(b"x", b"link.rclonelink");
    fs::create_dir_all(site.path("src/empty/deep")).unwrap();
    fs::hard_link(site.path("src/zero"), site.path("src/hard")).unwrap();
    for (name, mode) in [("run.sh", 0o750), ("a/dup", 0o600), ("empty", 0o700), ("ro", 0o555), ("empty/deep", 0o711)] {
        fs::set_permissions(site.path("src").join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (n, name) in ["a/b/x", "empty/deep", "empty", "a", "dangling", "ro"].iter().enumerate() {
        haul_testkit::attributes::set_time(&site.path("src").join(name), 1_000_000_000 + n as i64, 123_456_789);
    }
}

fn there_and_back(site: &Site, remote: &str) {
    odd_folder(site);
    let version = site.haul(&["snapshot", "push", "@src", remote]).ok().out;
    assert!(version.starts_with("src@2") && version.ends_with('\n'), "{version}");
    // A second time nothing is new, and nothing is hashed or sent.
    assert_eq!(site.haul(&["snapshot", "push", "@src", remote, "src"]).ok().out, version);
    let ran = site.haul(&["snapshot", "list", remote]).ok();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["VERSIONS", "NEWEST", "FILES", "SIZE", "SNAPSHOT"]);
    assert!(
        lines[1].starts_with("       1  2") && lines[1].ends_with(&format!("      8  33 B  {}", version.trim())),
        "{}",
        ran.out
    );
    let ran = site.haul(&["snapshot", "list", remote, "src"]).ok();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "               TIME  FILES  SIZE  VERSION");
    assert!(lines[1].ends_with(&format!("      8  33 B  {}", version[4..].trim())), "{}", ran.out);
    assert_eq!(
        site.haul(&["snapshot", "check", remote, "--verify=read"]).ok().out,
        format!("{}: all 7 there\n", version.trim())
    );
    assert_eq!(site.haul(&["snapshot", "pull", remote, "src", "@out"]).ok().out, "");
    assert_eq!(facts(&site.path("out")), facts(&site.path("src")));
    // A second pull changes nothing, not even a ctime.
    let before = haul_testkit::attributes::ctimes(&site.path("out"));
    site.haul(&["snapshot", "pull", remote, "src", "@out"]).ok();
    assert_eq!(haul_testkit::attributes::ctimes(&site.path("out")), before);
    // Differences are repaired. Extra files stay unless their deletion is requested.
    fs::write(site.path("out/a/dup"), "changed").unwrap();
    fs::remove_file(site.path("out/zero")).unwrap();
    fs::remove_file(site.path("out/link")).unwrap();
    symlink("elsewhere", site.path("out/link")).unwrap();
    fs::set_permissions(site.path("out/run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(site.path("out/empty/deep"), fs::Permissions::from_mode(0o777)).unwrap();
    site.write("out/more/file", b"mine");
    let ran = site.haul(&["snapshot", "pull", remote, "src", "@out"]).ok();
    let left = format!("Kept 1 file not in {}; use --delete to remove them", version.trim());
    assert!(ran.err.contains(&left), "{}", ran.err);
    assert_eq!(fs::read(site.path("out/more/file")).unwrap(), b"mine");
    let ran = site.haul(&["snapshot", "pull", "--delete", "--dry-run", remote, "src", "@out"]).ok();
    assert!(ran.err.contains("more/file: Skipped delete as --dry-run is set"), "{}", ran.err);
    site.haul(&["snapshot", "pull", "--delete", remote, "src", "@out"]).ok();
    assert_eq!(facts(&site.path("out")), facts(&site.path("src")));
}

#[test]
fn a_folder_comes_back_exactly_from_a_folder() {
    there_and_back(&Site::new(), "@store");
}

#[test]
fn a_folder_comes_back_exactly_from_s3() {
    let Some(minio) = Minio::shared() else { return };
    let site = Site::new();
    site.lab.remote("m", &minio.endpoint());
    there_and_back(&site, &format!("m:{}/deep/er", minio.bucket("snap")));
}

#[test]
fn versions_share_content_and_each_comes_back() {
    let site = Site::new();
    site.write("src/same", b"same");
    site.write("src/old", b"old");
    let first = site.push();
    site.write("src/new", b"new");
    fs::remove_file(site.path("src/old")).unwrap();
    let content = names(&site.path("store/files"));
    let second = site.push();
    assert!(second > first, "{second} is later than {first}");
    // The new file and two lists.
    assert_eq!(names(&site.path("store/files")).len(), content.len() + 3);
    site.haul(&["snapshot", "pull", "@store", &first, "@one"]).ok();
    assert_eq!(names(&site.path("one")).into_iter().collect::<Vec<_>>(), ["old", "same"]);
    let id = second.rsplit_once('-').unwrap().1;
    site.haul(&["snapshot", "pull", "@store", &format!("src@{}", &id[..8]), "@one", "--delete"]).ok();
    assert_eq!(facts(&site.path("one")), facts(&site.path("src")));
    let ran = site.haul(&["snapshot", "diff", "@store", &first]).code(1);
    assert_eq!(ran.out, "+ new\n- old\n");
    assert_eq!(site.haul(&["snapshot", "diff", "@store", &first, &first]).ok().out, "");
    // A part of a version.
    site.haul(&["snapshot", "pull", "@store", "src", "@part", "--include", "n*"]).ok();
    assert_eq!(names(&site.path("part")).into_iter().collect::<Vec<_>>(), ["new"]);
    // Removing a version removes no content, and what the others have is whole.
    assert_eq!(site.haul(&["snapshot", "gc", "--dry-run", "@store"]).ok().out, "Every content is some version's.\n");
    let before = names(&site.path("store/files"));
    site.haul(&["snapshot", "rm", "--dry-run", "@store", &first]).ok();
    site.haul(&["snapshot", "check", "@store", &first]).ok();
    site.haul(&["snapshot", "rm", "@store", &first]).ok();
    assert_eq!(names(&site.path("store/files")), before);
    assert_eq!(site.haul(&["snapshot", "check", "@store"]).ok().out, format!("{second}: all 3 there\n"));
    let out = site.haul(&["snapshot", "gc", "--dry-run", "@store"]).ok().out;
    assert!(
        out.contains(" files/md5/14/9603e6c03516362a8da23f624db945\n") && out.contains("3 contents with "),
        "{out}"
    );
}

/// As after a power cut: the names are there, the bytes aren't.
#[test]
fn what_was_cut_off_at_the_remote_is_sent_again() {
    let site = Site::new();
    site.write("src/a", b"hello\n");
    site.write("src/b", b"world\n");
    let version = site.push();
    for args in [&["snapshot", "push", "@src", "@store"][..], &["snapshot", "push", "--verify", "@src", "@store"]] {
        for name in names(&site.path("store/files")) {
            let path = site.path("store/files").join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3).unwrap();
        }
        site.haul(&["snapshot", "check", "@store"]).code(1);
        assert_eq!(site.haul(args).ok().out.trim(), version);
        let ran = site.haul(&["snapshot", "check", "--verify=read", "@store"]).ok();
        assert_eq!(ran.out, format!("{version}: all 3 there\n"));
    }
}

/// A clock that was ahead made the newest version, whose record is damaged: the next one is the newest all the same.
#[test]
fn a_version_after_one_that_can_not_be_read_is_the_newest() {
    let site = Site::new();
    site.write("src/a", b"a");
    site.push();
    let damaged = "20991231T000000.000Z-0123456789abcdef";
    site.write(&format!("store/snapshots/src/{damaged}"), b"damaged");
    site.write("src/a", b"other");
    let version = site.push();
    assert!(version.starts_with("src@20991231T000000.001Z-"), "{version}");
    site.haul(&["snapshot", "pull", "@store", "src", "@out"]).ok();
    assert_eq!(fs::read(site.path("out/a")).unwrap(), b"other");
}

#[test]
fn filters_leave_out_and_a_dry_run_sends_nothing() {
    let site = Site::new();
    site.write("src/keep/a", b"a");
    site.write("src/drop/b", b"b");
    site.write("src/c.tmp", b"c");
    let flags = ["--exclude", "*.tmp", "--exclude", "/drop/**"];
    let ran = site.haul(&[&["snapshot", "push", "-n", "@src", "@store"][..], &flags].concat()).ok();
    assert!(ran.out.is_empty() && ran.err.contains("keep/a: Skipped copy as --dry-run is set"), "{}", ran.err);
    assert!(!site.path("store").exists());
    site.haul(&[&["snapshot", "push", "@src", "@store"][..], &flags].concat()).ok();
    site.haul(&["snapshot", "pull", "@store", "src", "@out"]).ok();
    assert_eq!(names(&site.path("out")).into_iter().collect::<Vec<_>>(), ["keep/a"]);
    // What was left out may be nowhere else.
    let before = names(&site.path("src"));
    let ran = site.haul(&["snapshot", "pull", "--delete", "@store", "src", "@src"]).code(1);
    let why = "was pushed through a filter, so --delete could delete files that it excluded (--delete-excluded if that is intended)\n";
    assert!(ran.err.starts_with("haul: Refused to delete: src@2") && ran.err.ends_with(why), "{}", ran.err);
    assert_eq!(names(&site.path("src")), before);
    site.haul(&["snapshot", "pull", "--delete", "--delete-excluded", "@store", "src", "@src"]).ok();
    assert_eq!(names(&site.path("src")).into_iter().collect::<Vec<_>>(), ["keep/a"]);
    // The same folder without a filter is a version that may be trusted with it.
    site.push();
    site.write("src/more", b"more");
    site.haul(&["snapshot", "pull", "--delete", "@store", "src", "@src"]).ok();
    assert_eq!(names(&site.path("src")).into_iter().collect::<Vec<_>>(), ["keep/a"]);
}

#[test]
fn folders_that_hold_no_file_are_versions_too() {
    let site = Site::new();
    fs::create_dir(site.path("src")).unwrap();
    site.push();
    site.haul(&["snapshot", "pull", "@store", "src", "@out"]).ok();
    assert!(fs::read_dir(site.path("out")).unwrap().next().is_none());
    symlink("nowhere", site.path("src/only")).unwrap();
    site.push();
    site.haul(&["snapshot", "pull", "@store", "src", "@out"]).ok();
    assert_eq!(fs::read_link(site.path("out/only")).unwrap(), Path::new("nowhere"));
}

#[test]
fn a_remote_folder_can_be_what_a_version_is_of() {
    let Some(minio) = Minio::shared() else { return };
    let site = Site::new();
    site.lab.remote("m", &minio.endpoint());
    let bucket = minio.bucket("snapsrc");
    site.write("src/a/x", &folder::noise(1, 100_000));
    site.write("src/large", &folder::noise(2, 12 << 20));
    site.haul(&["copy", "--s3-upload-cutoff=5Mi", "@src", &format!("m:{bucket}/data")]).ok();
    let version = site.haul(&["snapshot", "push", &format!("m:{bucket}/data"), &format!("m:{bucket}/store")]).ok().out;
    assert!(version.starts_with("data@"), "{version}");
    site.haul(&["snapshot", "pull", &format!("m:{bucket}/store"), "data", "@out"]).ok();
    assert_eq!(folder::read(&site.path("out")), folder::read(&site.path("src")));
    // And onto a remote.
    site.haul(&["snapshot", "pull", &format!("m:{bucket}/store"), "data", &format!("m:{bucket}/again")]).ok();
    site.haul(&["check", "--download", "@src", &format!("m:{bucket}/again")]).ok();
}

#[test]
fn dvc_finds_the_content_where_it_looks() {
    let site = Site::new();
    let Some(dvc) = haul_testkit::peers::need("dvc") else { return };
    site.write("src/a", b"hello\n");
    site.write("src/s/b", b"world\n");
    site.push();
    let list = site.haul(&["snapshot", "list", "@store", "src", "--json"]).ok().out;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list[0]["dvc"], "217787b8d85f21cb1f5a3078574aabb6.dir");
    let repo = site.path("r");
    fs::create_dir_all(&repo).unwrap();
    let run = |args: &[&str]| {
        let mut command = site.lab.command(&dvc);
        command.args(args).current_dir(&repo).env("DVC_NO_ANALYTICS", "1").env("DVC_SITE_CACHE_DIR", site.path("site"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["init", "-q", "--no-scm"]);
    run(&["remote", "add", "-q", "-d", "s", &site.path("store").display().to_string()]);
    let tracked = format!(
        "outs:\n- md5: {}\n  size: 12\n  nfiles: 2\n  hash: md5\n  path: data\n",
        list[0]["dvc"].as_str().unwrap()
    );
    fs::write(repo.join("data.dvc"), tracked).unwrap();
    run(&["pull", "-q"]);
    let content =
        |path: &Path| -> Vec<_> { names(path).iter().map(|name| fs::read(path.join(name)).unwrap()).collect() };
    assert_eq!(content(&repo.join("data")), content(&site.path("src")));
}

#[test]
fn what_is_wrong_is_told_in_a_line() {
    let site = Site::new();
    site.write("src/a", b"a");
    site.write("links/a.rclonelink", b"no link");
    let version = site.push();
    for (args, code, message) in [
        (
            &["snapshot", "pull", "@store", "other", "@out"][..],
            4,
            "haul: no snapshot \"other\" (see haul snapshot list)\n",
        ),
        (
            &["snapshot", "pull", "@store", "src@ffff", "@out"],
            4,
            "haul: no version \"ffff\" of \"src\" (see haul snapshot list)\n",
        ),
        (
            &["snapshot", "push", "@src", "@store", "a/b"],
            2,
            "haul: a snapshot can't be called \"a/b\": a name has no / \\ @ or :\n",
        ),
        (
            &["snapshot", "push", "@src", "@src/store"],
            1,
            "haul: the destination ROOT/src/store is inside the source ROOT/src: exclude it with a filter, or choose another\n",
        ),
        (
            &["snapshot", "pull", "@store", "src", "@store/files"],
            1,
            "haul: the destination ROOT/store/files is inside the source ROOT/store: exclude it with a filter, or choose another\n",
        ),
        (
            &["snapshot", "pull", "-L", "@store", "src", "@out"],
            2,
            "haul: --copy-links has no meaning here: leave it out\n",
        ),
        (
            &["snapshot", "forget", "@store"],
            2,
            "haul: say what to keep: --keep-last N, --keep-daily N, --keep-within 30d …\n",
        ),
        (
            &["snapshot", "gc", "--interactive", "@store"],
            2,
            "haul: --interactive has no meaning here: use --dry-run to see what would be deleted\n",
        ),
        (
            &["snapshot", "rm", "@store", "src"],
            2,
            "haul: say which version is to go: NAME@VERSION, see haul snapshot list\n",
        ),
        (
            &["snapshot", "push", "@nowhere", "@store"],
            3,
            "haul: ROOT/nowhere: no such directory (check the spelling)\n",
        ),
        (&["snapshot", "list", "@nowhere"], 3, "haul: ROOT/nowhere: no such file or directory (check the spelling)\n"),
        (&["snapshot", "check", "@nowhere"], 3, "haul: ROOT/nowhere: no such file or directory (check the spelling)\n"),
        (
            &["snapshot", "forget", "--keep-last=1", "@nowhere"],
            3,
            "haul: ROOT/nowhere: no such file or directory (check the spelling)\n",
        ),
        (
            &["snapshot", "rm", "@nowhere", "src@ffff"],
            3,
            "haul: ROOT/nowhere: no such file or directory (check the spelling)\n",
        ),
        (
            &["snapshot", "pull", "@nowhere", "src", "@out"],
            3,
            "haul: ROOT/nowhere: no such file or directory (check the spelling)\n",
        ),
        (&["snapshot", "list", "@store", "other"], 4, "haul: no snapshot \"other\"\n"),
    ] {
        let ran = site.haul(args).code(code);
        assert_eq!(ran.err.replace(&site.path("").display().to_string(), "ROOT/"), message, "{args:?}");
    }
    let ran = site.haul(&["snapshot", "push", "@links", "@store"]).code(1);
    let why = "\"a.rclonelink\": files with such names stand for symlinks: rename it, or exclude it with --exclude";
    assert!(ran.err.contains(why) && ran.err.contains("No version was made"), "{}", ran.err);
    assert!(site.haul(&["snapshot", "list", "@store"]).ok().out.ends_with(&format!("  {version}\n")));
}
