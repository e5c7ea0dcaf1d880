//! DVC repositories with the real binary, beside the real dvc: each takes what the other wrote, in both layouts, on folders and
//! on S3; what was lost is repaired; what is cut short leaves nothing wrong.

mod daily;
mod requests;
mod site;
mod version_2;

use haul_testkit::lab::until;
use site::{Site, TREE, TREE_V2, UP_TO_DATE, names, same_files};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Stdio,
};

#[test]
fn dvc_takes_what_haul_wrote() {
    let site = Site::new();
    site.tree();
    site.write("x.sh", b"hi\n");
    fs::set_permissions(site.repo.join("x.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let ran = site.haul(&["dvc", "add", "data", "x.sh"]).ok();
    assert_eq!(ran.out, "\nTo track the changes with git, run:\n\n\tgit add .gitignore data.dvc x.sh.dvc\n");
    let text = fs::read_to_string(site.repo.join("data.dvc")).unwrap();
    assert_eq!(text, format!("outs:\n- md5: {TREE}\n  size: 34\n  nfiles: 7\n  hash: md5\n  path: data\n"));
    assert_eq!(fs::read_to_string(site.repo.join(".gitignore")).unwrap(), "/data\n/x.sh\n");
    for name in names(&site.repo.join(".dvc/cache")) {
        let mode = fs::metadata(site.repo.join(".dvc/cache").join(&name)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o444, "{name}");
    }
    // A second time nothing is new.
    let before = fs::metadata(site.repo.join("data.dvc")).unwrap().mtime_nsec();
    assert_eq!(site.haul(&["dvc", "add", "data"]).ok().out, "");
    assert_eq!(fs::metadata(site.repo.join("data.dvc")).unwrap().mtime_nsec(), before);
    let dry = site.haul(&["dvc", "push", "--dry-run"]).ok();
    assert!(dry.out.is_empty() && dry.err.contains("Skipped copy as --dry-run is set"), "{}", dry.err);
    assert!(!site.lab.path("rem").exists());
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "8 files pushed\n");
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "Everything is up to date.\n");
    site.commit();
    if !site.has_dvc() {
        return;
    }
    assert_eq!(site.dvc(&["status"]).ok().out, UP_TO_DATE);
    assert_eq!(site.dvc(&["status", "-c"]).ok().out, "Cache and remote 's' are in sync.\n");
    let clone = site.clone_to("clone");
    site.dvc_in(&clone, &["pull", "-q"]).ok();
    same_files(&clone.join("data"), &site.repo.join("data"));
    assert!(fs::metadata(clone.join("x.sh")).unwrap().mode() & 0o100 != 0);
}

#[test]
fn haul_takes_what_dvc_wrote_and_writes_the_same() {
    let site = Site::new();
    if !site.has_dvc() {
        return;
    }
    site.tree();
    site.write("deep/er/file: x", b"some\n");
    site.dvc(&["add", "-q", "data", "deep/er/file: x"]).ok();
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    let (file, cache) = (site.repo.join("deep/er/file: x.dvc"), names(&site.repo.join(".dvc/cache")));
    let theirs =
        [file.clone(), site.repo.join("data.dvc"), site.repo.join(".gitignore"), site.repo.join("deep/er/.gitignore")];
    let theirs = theirs.map(|path| (path.clone(), fs::read_to_string(path).unwrap()));
    site.commit();
    site.dvc(&["push", "-q"]).ok();
    // haul writes, from nothing, the same files and the same cache.
    for (path, _) in &theirs {
        fs::remove_file(path).unwrap();
    }
    fs::rename(site.repo.join(".dvc/cache"), site.lab.path("old")).unwrap();
    site.haul(&["dvc", "add", "data", "deep/er/file: x"]).ok();
    for (path, text) in &theirs {
        let ours = fs::read_to_string(path).unwrap();
        let sorted = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_string).collect() };
        assert_eq!(sorted(&ours), sorted(text), "{}", path.display());
    }
    assert_eq!(names(&site.repo.join(".dvc/cache")), cache);
    // And a clone pulls what dvc pushed.
    let clone = site.clone_to("clone");
    let ran = site.haul_in(&clone, &["dvc", "pull"]).ok();
    assert_eq!(ran.out, "A\tdata/\nA\tdeep/er/file: x\n8 files fetched and 8 files added\n");
    same_files(&clone.join("data"), &site.repo.join("data"));
    assert_eq!(site.dvc_in(&clone, &["status"]).ok().out, UP_TO_DATE);
    // Both see the same change.
    site.write("data/new", b"new");
    fs::remove_file(site.repo.join("deep/er/file: x")).unwrap();
    let (ours, theirs) = (site.haul(&["dvc", "status", "--json"]).ok(), site.dvc(&["status", "--json"]).ok());
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(&ours.out), json(&theirs.out));
}

#[test]
fn on_s3_both_ways_and_a_lost_file_is_repaired() {
    let site = Site::new();
    let Some((_, bucket)) = site.on_s3() else { return };
    site.tree();
    site.haul(&["dvc", "add", "data"]).ok();
    let out = site.haul(&["dvc", "status", "-c", "--json"]).ok().out;
    assert!(out.contains("\"data/a.txt\":\"new\"") && out.contains("\"data\":\"new\""), "{out}");
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "7 files pushed\n");
    site.commit();
    let lost = format!("m:{bucket}/deep/er/files/md5/b1/946ac92492d2347c6235b4d2611184");
    site.lab.haul(&["deletefile", &lost]).ok();
    if site.has_dvc() {
        // The list of the directory is there, so dvc doesn't see it.
        assert_eq!(site.dvc(&["status", "-c"]).ok().out, "Cache and remote 's' are in sync.\n");
        assert_eq!(site.dvc(&["push"]).ok().out, "Everything is up to date.\n");
    }
    assert_eq!(site.haul(&["dvc", "status", "-c"]).ok().out, "\tnew:                data/a.txt\n");
    let ran = site.haul(&["dvc", "push"]).ok();
    assert_eq!(ran.out, "1 file pushed\n");
    assert_eq!(site.haul(&["dvc", "status", "-c"]).ok().out, "Cache and remote 's' are in sync.\n");
    let clone = site.clone_to("clone");
    assert_eq!(site.haul_in(&clone, &["dvc", "fetch"]).ok().out, "7 files fetched\n");
    assert_eq!(site.haul_in(&clone, &["dvc", "checkout"]).ok().out, "A\tdata/\n");
    same_files(&clone.join("data"), &site.repo.join("data"));
    if site.has_dvc() {
        site.write("data/more", b"more\n");
        site.dvc(&["add", "-q", "data"]).ok();
        site.dvc(&["push", "-q"]).ok();
        site.commit();
        site.lab.command(Path::new("git")).arg("-C").arg(&clone).args(["pull", "-q"]).status().unwrap();
        let ran = site.haul_in(&clone, &["dvc", "pull"]).ok();
        assert_eq!(ran.out, "M\tdata/\n2 files fetched and 1 file added\n");
        let other = site.clone_to("other");
        site.dvc_in(&other, &["pull", "-q"]).ok();
        same_files(&other.join("data"), &clone.join("data"));
    }
}

/// A repository of DVC 2: the old layout in the cache, no `hash` in the `.dvc` file.
fn old_repository(site: &Site) {
    site.tree();
    let cache = site.repo.join(".dvc/cache");
    let put = |name: &str, content: &[u8]| {
        let path = cache.join(&name[..2]).join(&name[2..]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    };
    let content: [(&str, &str, &[u8]); 7] = [
        ("a.txt", "b1946ac92492d2347c6235b4d2611184", b"hello\n"),
        ("crlf.txt", "0f723ae7f9bf07744445e93ac5595156", b"hello\r\nworld\r\n"),
        ("empty", "d41d8cd98f00b204e9800998ecf8427e", b""),
        ("sub/bin", "7b774effe4a349c6dd82ad4f4f21d34c", b"u"),
        ("sub/dup.txt", "b1946ac92492d2347c6235b4d2611184", b"hello\n"),
        ("sub/run.sh", "", b"exec"),
        ("\\u00fcn\\u00ef/\\u65e5\\u672c \\\"q\\\"\\\\ file.txt", "", b"u"),
    ];
    let md5 = |bytes: &[u8]| {
        let path = site.lab.path("hash-me");
        fs::write(&path, bytes).unwrap();
        site.lab.haul(&["md5sum", "@hash-me"]).ok().out[..32].to_string()
    };
    let mut lines = Vec::new();
    for (name, hash, bytes) in content {
        let bytes = if name == "sub/bin" { b"x\0y" } else { bytes };
        // Of what holds no line end of DOS, both layouts have the same hash.
        let hash = if name == "crlf.txt" { hash.to_string() } else { md5(bytes) };
        put(&hash, bytes);
        lines.push(format!("{{\"md5\": \"{hash}\", \"relpath\": \"{name}\"}}"));
    }
    let manifest = format!("[{}]", lines.join(", "));
    assert_eq!(md5(manifest.as_bytes()), TREE_V2.trim_end_matches(".dir"));
    put(TREE_V2, manifest.as_bytes());
    site.write(
        "data.dvc",
        format!("# old\nouts:\n- md5: {TREE_V2}\n  size: 34\n  nfiles: 7\n  path: data\n").as_bytes(),
    );
    site.write(".gitignore", b"/data\n");
    site.commit();
}

#[test]
fn the_old_layout_is_read_and_pushed_and_new_content_gets_the_new_one() {
    let site = Site::new();
    old_repository(&site);
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "7 files pushed\n");
    let remote = names(&site.lab.path("rem"));
    assert!(remote.contains("f0/02d69cdbd0d536fcd0a4eea1cb2091.dir") && remote.len() == 7, "{remote:?}");
    let clone = site.clone_to("clone");
    assert_eq!(site.haul_in(&clone, &["dvc", "pull"]).ok().out, "A\tdata/\n7 files fetched and 7 files added\n");
    same_files(&clone.join("data"), &site.repo.join("data"));
    if site.has_dvc() {
        assert_eq!(site.dvc(&["status"]).ok().out, UP_TO_DATE);
        assert_eq!(site.dvc(&["status", "-c"]).ok().out, "Cache and remote 's' are in sync.\n");
        assert_eq!(site.dvc_in(&clone, &["status"]).ok().out, UP_TO_DATE);
        let other = site.clone_to("other");
        site.dvc_in(&other, &["pull", "-q"]).ok();
        same_files(&other.join("data"), &site.repo.join("data"));
    }
    // Fetched content must match its name.
    let damaged = site.lab.path("rem/0f/723ae7f9bf07744445e93ac5595156");
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&damaged, "hello\nwOrld\n").unwrap();
    let third = site.clone_to("third");
    let ran = site.haul_in(&third, &["dvc", "fetch"]).code(1);
    assert!(ran.err.contains("does not have the md5-dos2unix that the source says"), "{}", ran.err);
    assert!(!third.join(".dvc/cache/0f/723ae7f9bf07744445e93ac5595156").exists());
    site.write("data/a.txt", b"other\n");
    site.haul(&["dvc", "add", "data"]).ok();
    let text = fs::read_to_string(site.repo.join("data.dvc")).unwrap();
    assert!(text.starts_with("# old\nouts:\n- md5: ") && text.ends_with("  path: data\n  hash: md5\n"), "{text}");
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    if site.has_dvc() {
        assert_eq!(site.dvc(&["status"]).ok().out, UP_TO_DATE);
    }
}

/// Threads that take in files of one content meet at its name in the cache.
#[test]
fn many_files_of_one_content_become_links_to_it() {
    for kind in ["hardlink", "symlink"] {
        let site = Site::new();
        site.set_config(&format!("[core]\n    analytics = false\n[cache]\n    type = \"{kind}\"\n"));
        for number in 0..600 {
            site.write(&format!("data/{number:03}"), format!("content {}\n", number / 20).as_bytes());
        }
        site.haul(&["dvc", "add", "data"]).ok();
        assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE, "{kind}");
        let inode = |number: usize| fs::metadata(site.repo.join(format!("data/{number:03}"))).unwrap().ino();
        for number in 0..600 {
            assert_eq!(inode(number), inode(number / 20 * 20), "{kind} {number}");
        }
        let cached = names(&site.repo.join(".dvc/cache/files/md5"));
        assert_eq!(cached.len(), 31, "{kind}: {cached:?}");
    }
}

#[test]
fn every_kind_of_link() {
    for kind in ["copy", "hardlink", "symlink", "reflink,hardlink"] {
        let site = Site::new();
        site.set_config(&format!("[core]\n    remote = s\n    analytics = false\n[cache]\n    type = \"{kind}\"\n['remote \"s\"']\n    url = ../../rem\n"));
        site.tree();
        site.haul(&["dvc", "add", "data"]).ok();
        assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE, "{kind}");
        let cached = site.repo.join(".dvc/cache/files/md5/7a/c062d8a84466e70d9b899c0821a51c");
        let check = |path: &Path| {
            let (own, inode) = (fs::symlink_metadata(path).unwrap(), fs::metadata(&cached).unwrap().ino());
            match kind {
                "hardlink" => assert_eq!(own.ino(), inode),
                "symlink" => assert!(own.is_symlink() && fs::metadata(path).unwrap().ino() == inode),
                "copy" => assert!(own.ino() != inode && own.mode() & 0o200 != 0),
                _ => assert!(own.is_file()),
            }
        };
        check(&site.repo.join("data/crlf.txt"));
        fs::remove_dir_all(site.repo.join("data")).unwrap();
        assert_eq!(site.haul(&["dvc", "checkout"]).ok().out, "A\tdata/\n");
        check(&site.repo.join("data/crlf.txt"));
        assert_eq!(fs::read(site.repo.join("data/sub/bin")).unwrap(), b"x\0y");
        assert_eq!(fs::symlink_metadata(site.repo.join("data/empty")).unwrap().nlink(), 1, "{kind}");
        assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE, "{kind}");
        if site.has_dvc() {
            assert_eq!(site.dvc(&["status"]).ok().out, UP_TO_DATE, "{kind}");
        }
    }
}

#[test]
fn the_list_of_a_directory_goes_last_and_only_when_all_is_there() {
    let site = Site::new();
    site.tree();
    site.write("single", b"single\n");
    site.haul(&["dvc", "add", "data", "single"]).ok();
    fs::remove_file(site.repo.join(".dvc/cache/files/md5/7a/c062d8a84466e70d9b899c0821a51c")).unwrap();
    let ran = site.haul(&["dvc", "push"]).code(1);
    assert!(
        ran.err.contains("data/crlf.txt: Failed to transfer: neither the cache nor the remote has its content"),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains(
            "data: Failed to push: the list of the directory's files isn't sent, since some of the files aren't at the remote"
        ),
        "{}",
        ran.err
    );
    let remote = names(&site.lab.path("rem"));
    assert!(!remote.iter().any(|name| name.ends_with(".dir")) && remote.len() == 6, "{remote:?}");
    assert_eq!(site.haul(&["dvc", "add", "data"]).ok().out, "");
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "2 files pushed\n");
}

#[test]
fn a_damaged_file_of_the_cache_is_never_sent_nor_a_damaged_one_of_the_remote_taken() {
    let site = Site::new();
    let Some((_, bucket)) = site.on_s3() else { return };
    site.tree();
    site.haul(&["dvc", "add", "data"]).ok();
    let damaged = site.repo.join(".dvc/cache/files/md5/7a/c062d8a84466e70d9b899c0821a51c");
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&damaged, "hello\r\nwOrld\r\n").unwrap();
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o444)).unwrap();
    let ran = site.haul(&["--retries", "1", "dvc", "push"]).code(1);
    assert!(ran.err.contains("does not have the md5 that the source says it has"), "{}", ran.err);
    let stored = site.lab.haul(&["lsf", "-R", "--files-only", &format!("m:{bucket}")]).ok().out;
    assert!(!stored.contains("c062d8a8") && !stored.contains(".dir"), "{stored}");
    // Without its mark it is found, and makes way when the right content comes.
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o644)).unwrap();
    let ran = site.haul(&["dvc", "status"]).ok();
    assert!(ran.out.contains("not in cache:       data") && damaged.exists(), "{}", ran.out);
    site.haul(&["dvc", "add", "data"]).ok();
    assert_eq!(fs::read(&damaged).unwrap(), b"hello\r\nworld\r\n");
    site.haul(&["dvc", "push"]).ok();
    site.commit();
    fs::write(site.lab.path("bad"), "hello\r\nwOrld\r\n").unwrap();
    let key = format!("m:{bucket}/deep/er/files/md5/7a/c062d8a84466e70d9b899c0821a51c");
    site.lab.haul(&["copyto", "--ignore-times", "@bad", &key]).ok();
    let clone = site.clone_to("clone");
    let ran = site.haul_in(&clone, &["--retries", "1", "dvc", "pull"]).code(1);
    assert!(ran.err.contains("does not have the md5 that the source says it has"), "{}", ran.err);
    assert!(!clone.join("data/crlf.txt").exists() && clone.join("data/a.txt").exists());
}

/// A file of the workspace that is a symlink is the cache's: what was written into it is nowhere else.
#[test]
fn what_was_written_through_a_symlink_is_not_lost() {
    let site = Site::new();
    let config = fs::read_to_string(site.repo.join(".dvc/config")).unwrap();
    site.set_config(&format!("{config}[cache]\n    type = symlink\n"));
    site.write("f", b"added\n");
    site.haul(&["dvc", "add", "f"]).ok();
    site.haul(&["dvc", "push"]).ok();
    let cached = fs::canonicalize(site.repo.join("f")).unwrap();
    fs::set_permissions(&cached, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&cached, "written\n").unwrap();
    for args in [&["dvc", "status"][..], &["dvc", "status", "-c"], &["dvc", "gc", "-w", "--dry-run"], &["dvc", "push"]]
    {
        site.haul(args);
        assert_eq!(fs::read(site.repo.join("f")).unwrap(), b"written\n", "{args:?}");
    }
    // Also where it can't be fetched.
    let (there, away) = (site.lab.path("rem"), site.lab.path("away"));
    fs::rename(&there, &away).unwrap();
    site.haul(&["dvc", "fetch"]);
    fs::rename(&away, &there).unwrap();
    site.haul(&["--dry-run", "dvc", "fetch"]).ok();
    assert_eq!(fs::read(site.repo.join("f")).unwrap(), b"written\n");
    let ran = site.haul(&["dvc", "fetch"]).ok();
    assert_eq!(fs::read(site.repo.join("f")).unwrap(), b"added\n");
    let aside = site.repo.join(".dvc/cache/files/md5/haul-wrong");
    let kept: Vec<_> = fs::read_dir(&aside).unwrap().map(|one| one.unwrap().path()).collect();
    assert_eq!(kept.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>(), [b"written\n"]);
    assert!(ran.err.contains(kept[0].to_str().unwrap()), "{}", ran.err);
    // To DVC it is no content that nothing uses.
    if site.has_dvc() {
        site.dvc(&["gc", "-w", "-f"]).ok();
        assert!(kept[0].exists());
    }
}

/// An out with a remote of its own is never pushed to another remote, also if that one is named.
#[test]
fn what_has_a_remote_of_its_own_goes_to_no_other() {
    let site = Site::new();
    let config = fs::read_to_string(site.repo.join(".dvc/config")).unwrap();
    site.set_config(&format!("{config}['remote \"private\"']\n    url = ../../private\n"));
    site.write("mine", b"private\n");
    site.write("ours", b"ours\n");
    site.haul(&["dvc", "add", "mine", "ours"]).ok();
    let file = site.repo.join("mine.dvc");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{}  remote: private\n", text)).unwrap();
    let ran = site.haul(&["dvc", "push", "-r", "s"]).ok();
    assert_eq!(ran.out, "1 file pushed\n");
    assert!(ran.err.contains("mine: its own remote is private, so it is left out of s"), "{}", ran.err);
    if site.has_dvc() {
        assert_eq!(site.dvc(&["push", "-r", "s"]).ok().out.trim(), "Everything is up to date.");
    }
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "1 file pushed\n");
    assert!(site.lab.path("private").exists());
}

#[test]
fn nothing_is_lost_that_only_the_workspace_has() {
    let site = Site::new();
    site.tree();
    site.haul(&["dvc", "add", "data"]).ok();
    site.write("data/a.txt", b"mine alone\n");
    site.write("data/sub/mine", b"mine too\n");
    let ran = site.haul(&["dvc", "checkout"]).code(6);
    assert!(
        ran.err.contains(
            "data/a.txt and 1 more has unsaved changes: keep them with haul dvc add, or discard them with --force"
        ),
        "{}",
        ran.err
    );
    assert_eq!(fs::read(site.repo.join("data/a.txt")).unwrap(), b"mine alone\n");
    assert_eq!(site.haul(&["dvc", "checkout", "-f", "--summary"]).ok().out, "1 file modified and 1 file deleted\n");
    assert_eq!(fs::read(site.repo.join("data/a.txt")).unwrap(), b"hello\n");
    assert!(!site.repo.join("data/sub/mine").exists());
    // A part of a directory.
    fs::remove_dir_all(site.repo.join("data/sub")).unwrap();
    fs::remove_file(site.repo.join("data/empty")).unwrap();
    assert_eq!(
        site.haul(&["dvc", "status", "data/sub"]).ok().out,
        "data.dvc:\n\tchanged outs:\n\t\tdeleted:            data\n"
    );
    site.haul(&["dvc", "checkout", "data/sub"]).ok();
    assert!(site.repo.join("data/sub/bin").exists() && !site.repo.join("data/empty").exists());
}

#[test]
fn no_name_leads_out_of_the_workspace() {
    let site = Site::new();
    site.tree();
    site.haul(&["dvc", "add", "data"]).ok();
    let outside = site.lab.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir_all(site.repo.join("data/sub")).unwrap();
    std::os::unix::fs::symlink(&outside, site.repo.join("data/sub")).unwrap();
    let ran = site.haul(&["dvc", "checkout"]).code(1);
    assert!(ran.err.contains("a directory is to be here, and something else is in its place"), "{}", ran.err);
    assert_eq!(names(&outside).len(), 0);
    let text = fs::read_to_string(site.repo.join("data.dvc")).unwrap();
    site.write("evil.dvc", text.replace("path: data", "path: ../outside/x").as_bytes());
    let ran = site.haul(&["dvc", "checkout", "evil.dvc"]).code(1);
    assert!(ran.err.contains("it lies outside of the repository: use dvc for it"), "{}", ran.err);
    // Files there are executed by git and dvc.
    for path in [".git/hooks/post-checkout", ".dvc/config.local", "a/.GIT/config"] {
        site.write("evil.dvc", text.replace("path: data", &format!("path: {path}")).as_bytes());
        let ran = site.haul(&["dvc", "checkout", "evil.dvc"]).code(1);
        assert!(ran.err.contains("where nothing is ever written"), "{}", ran.err);
        assert!(!site.repo.join(path).exists());
    }
    std::os::unix::fs::symlink(&outside, site.repo.join("way")).unwrap();
    site.write("evil.dvc", text.replace("path: data", "path: way/x").as_bytes());
    let ran = site.haul(&["dvc", "checkout", "evil.dvc"]).code(1);
    assert!(ran.err.contains("it lies behind the link"), "{}", ran.err);
    assert_eq!(names(&outside).len(), 0);
}

#[test]
fn what_is_killed_leaves_nothing_wrong() {
    let site = Site::new();
    for n in 0..3_000 {
        site.write(&format!("many/{:02}/{n}", n % 50), format!("content {n}").as_bytes());
    }
    for part in [1, 5, 20] {
        let mut child = site.lab.haul_command(&["dvc", "add", "many"]);
        let mut child = child.current_dir(&site.repo).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let cache = site.repo.join(".dvc/cache/files/md5");
        let done =
            until(|| child.try_wait().unwrap().is_some() || fs::read_dir(&cache).is_ok_and(|d| d.count() >= part));
        assert!(done);
        let _ = child.kill();
        child.wait().unwrap();
    }
    site.haul(&["dvc", "add", "many"]).ok();
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    let mut child = site.lab.haul_command(&["dvc", "push"]);
    let mut child = child.current_dir(&site.repo).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    until(|| child.try_wait().unwrap().is_some() || names(&site.lab.path("rem")).len() > 200);
    let _ = child.kill();
    child.wait().unwrap();
    site.haul(&["dvc", "push"]).ok();
    site.commit();
    let clone = site.clone_to("clone");
    if site.has_dvc() {
        assert_eq!(site.dvc(&["status"]).ok().out, UP_TO_DATE);
        site.dvc_in(&clone, &["pull", "-q"]).ok();
    } else {
        site.haul_in(&clone, &["dvc", "pull"]).ok();
    }
    same_files(&clone.join("many"), &site.repo.join("many"));
}

#[test]
fn gc_shows_what_dvc_would_remove() {
    let site = Site::new();
    site.tree();
    site.haul(&["dvc", "add", "data"]).ok();
    site.haul(&["dvc", "push"]).ok();
    site.commit();
    site.write("data/a.txt", b"second\n");
    fs::remove_file(site.repo.join("data/sub/run.sh")).unwrap();
    site.haul(&["dvc", "add", "data"]).ok();
    site.commit();
    let gone = |out: &str| -> BTreeSet<String> {
        let paths = out.lines().filter_map(|line| line.split_once("/files/md5/").map(|(_, rest)| rest.to_string()));
        paths.collect()
    };
    let ours = site.haul(&["dvc", "gc", "--dry-run", "-w", "-c"]).ok();
    // What the second state has no use for: the first list, and run.sh. a.txt has a twin.
    assert!(ours.out.contains("2 files with ") && ours.out.contains(" in the cache would go."), "{}", ours.out);
    assert_eq!(ours.out.matches("1e/22361e83161aaf6ea7cfed91cb7df2.dir").count(), 2, "{}", ours.out);
    let all = site.haul(&["dvc", "gc", "--dry", "-A"]).ok();
    assert_eq!(all.out, "Nothing in the cache is unused.\n");
    if site.has_dvc() {
        let theirs = site.dvc(&["gc", "-w", "--dry"]).ok();
        let local = site.haul(&["dvc", "gc", "--dry-run", "-w"]).ok();
        assert_eq!(gone(&local.out), gone(&format!("{}{}", theirs.err, theirs.out)), "{}\n{}", theirs.out, theirs.err);
    }
    assert_eq!(
        site.haul(&["dvc", "gc", "-w"]).code(2).err,
        "haul: haul dvc gc only shows what nothing uses: add --dry-run; dvc gc removes it\n"
    );
}

#[test]
fn a_pipelines_lock_file_counts_too() {
    let site = Site::new();
    site.tree();
    site.write("out/a", b"hello\n");
    site.write("metrics.json", b"{}\n");
    let lock = "schema: '2.0'\nstages:\n  train:\n    cmd: x\n    deps:\n    - path: data/a.txt\n      hash: md5\n      md5: \
                b1946ac92492d2347c6235b4d2611184\n      size: 6\n    outs:\n    - path: metrics.json\n      hash: md5\n      md5: \
                8a80554c91d9fca8acb82f023de02f11\n      size: 3\n    - path: out\n      hash: md5\n      md5: \
                212e33b7a67e62269b5c6c4f1c820164.dir\n      size: 6\n      nfiles: 1\n";
    site.write("p/dvc.lock", lock.as_bytes());
    site.write(
        "p/dvc.yaml",
        b"stages:\n  train:\n    cmd: x\n    deps:\n    - data/a.txt\n    outs:\n    - out\n    metrics:\n    - metrics.json:\n        cache: false\n",
    );
    fs::rename(site.repo.join("data"), site.repo.join("p/data")).unwrap();
    fs::rename(site.repo.join("out"), site.repo.join("p/out")).unwrap();
    fs::rename(site.repo.join("metrics.json"), site.repo.join("p/metrics.json")).unwrap();
    let out = site.haul(&["dvc", "status"]).ok().out;
    assert_eq!(out, "p/dvc.yaml:train:\n\tchanged outs:\n\t\tnot in cache:       p/out\n");
    if !site.has_dvc() {
        return;
    }
    site.dvc(&["commit", "-q", "-f", "p/dvc.yaml"]).ok();
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    assert_eq!(site.haul(&["dvc", "push", "p/dvc.yaml:train"]).ok().out, "2 files pushed\n");
    assert_eq!(site.dvc(&["status", "-c"]).ok().out, "Cache and remote 's' are in sync.\n");
    site.write("p/data/a.txt", b"other\n");
    let changed = "p/dvc.yaml:train:\n\tchanged deps:\n\t\tmodified:           p/data/a.txt\n";
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, changed);
    assert_eq!(site.dvc(&["status"]).ok().out, changed);
}

#[test]
fn what_dvcignore_names_is_left_out() {
    let site = Site::new();
    site.tree();
    site.write(".dvcignore", b"# not these\n*.tmp\n/data/sub/\n");
    site.write("data/x.tmp", b"x");
    site.haul(&["dvc", "add", "data"]).ok();
    let text = fs::read_to_string(site.repo.join("data.dvc")).unwrap();
    assert!(text.contains("nfiles: 4"), "{text}");
    if site.has_dvc() {
        assert_eq!(site.dvc(&["status"]).ok().out, UP_TO_DATE);
        site.dvc(&["add", "-q", "data"]).ok();
        assert_eq!(fs::read_to_string(site.repo.join("data.dvc")).unwrap(), text);
    }
    site.write("data/.dvcignore", b"x\n");
    let ran = site.haul(&["dvc", "add", "data"]).code(1);
    assert!(
        ran.err.contains("data/.dvcignore: DVC allows no .dvcignore in a tracked directory: move it up"),
        "{}",
        ran.err
    );
}

#[test]
fn what_is_wrong_is_told_in_a_line() {
    let site = Site::new();
    site.tree();
    site.haul(&["dvc", "add", "data"]).ok();
    for (args, code, message) in [
        (&["dvc", "add", "nothing"][..], 4, "haul: nothing: no such file or directory\n"),
        (&["dvc", "add", "data/sub"], 1, "haul: data/sub: data is tracked already, by data.dvc: add that\n"),
        (&["dvc", "add", ".."], 1, "haul: ..: it is outside of the repository ROOT\n"),
        (
            &["dvc", "add", "--dry-run", "data"],
            2,
            "haul: haul dvc add has no --dry-run: haul dvc status shows what changed\n",
        ),
        (&["dvc", "push", "-r", "x"], 1, "haul: remote \"x\" isn't in the configuration of DVC: it has s\n"),
        (
            &["dvc", "pull", "other"],
            4,
            "haul: other: nothing of that name is tracked: a target is a tracked path, a .dvc file or a stage\n",
        ),
        (&["dvc", "push", "-d", "data"], 2, "haul: unknown flag -d (see haul help flags)\n"),
        (
            &["dvc", "gc", "--dry"],
            2,
            "haul: say what to keep: -w what the workspace uses, -a all branches, -T all tags, -A all commits\n",
        ),
    ] {
        let ran = site.haul(args).code(code);
        assert_eq!(ran.err.replace(&site.repo.display().to_string(), "ROOT"), message, "{args:?}");
    }
    let ran = site.haul_in(&site.lab.path(""), &["dvc", "status"]).code(3);
    assert!(ran.err.starts_with("haul: not in a DVC repository (run dvc init)\n"), "{}", ran.err);
    let held = fs::File::create(site.repo.join(".dvc/tmp/lock")).unwrap();
    held.lock().unwrap();
    let ran = site.haul(&["dvc", "add", "data"]).code(5);
    assert!(
        ran.err.contains("another dvc or haul works in this repository: wait for it, and run this again"),
        "{}",
        ran.err
    );
}
