//! What people who use dvc every day have in their repositories: pipelines with templates, imports, unsaved changes, links.

use super::site::{Site, UP_TO_DATE, names};
use haul_testkit::lab::until;
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    process::Stdio,
};

/// A pipeline as dvc 3.67.1 wrote its lock: outs named by templates, some not cached, some not pushed, one in a folder of its own.
fn pipeline(site: &Site) {
    site.write("params.yaml", b"model:\n  path: models/m.bin\nitems: [p]\n");
    site.write(
        "dvc.yaml",
        b"vars:\n- out: o\nstages:\n  prep:\n    cmd: mkdir -p o models && echo x > o/x && echo y > o/m.json && echo z > models/m.bin\n    \
          outs:\n    - ${out}/x:\n        push: false\n    - ${model.path}\n    metrics:\n    - ${out}/m.json:\n        cache: false\n  \
          train:\n    foreach: ${items}\n    do:\n      cmd: mkdir -p t && echo a${item} > t/${item} && echo b${item} > t/${item}.json\n      \
          outs:\n      - t/${item}\n      metrics:\n      - t/${item}.json:\n          cache: false\n  away:\n    wdir: w\n    cmd: echo w > out\n    \
          outs: [out]\n",
    );
    fs::create_dir(site.repo.join("w")).unwrap();
    site.write(
        "dvc.lock",
        b"schema: '2.0'\nstages:\n  prep:\n    cmd: mkdir -p o models && echo x > o/x && echo y > o/m.json && echo z > models/m.bin\n    \
          outs:\n    - path: models/m.bin\n      hash: md5\n      md5: a8a78d0ff555c931f045b6f448129846\n      size: 2\n    - path: \
          o/m.json\n      hash: md5\n      md5: 009520053b00386d1173f3988c55d192\n      size: 2\n    - path: o/x\n      hash: md5\n      \
          md5: 401b30e3b8b5d629635a5c613cdb7919\n      size: 2\n  train@p:\n    cmd: mkdir -p t && echo ap > t/p && echo bp > \
          t/p.json\n    outs:\n    - path: t/p\n      hash: md5\n      md5: 3eeeebf5482a9fb43b96beafe3cb9341\n      size: 3\n    - path: \
          t/p.json\n      hash: md5\n      md5: 861fd3da7efbc930a5c33edd85970d60\n      size: 3\n  away:\n    cmd: echo w > out\n    outs:\n    - \
          path: out\n      hash: md5\n      md5: b938b801a0bfbd5ca4825715039e7574\n      size: 2\n  gone:\n    cmd: x\n    outs:\n    - path: \
          gone\n      hash: md5\n      md5: eeeeeeeeeeeeeeeeeeeeeeeeeeeeeee1\n      size: 2\n",
    );
}

#[test]
fn pipelines_with_templates_and_folders_of_their_own() {
    let site = Site::new();
    pipeline(&site);
    // The stages' outs, made as the pipeline makes them; the cache holds those that it keeps.
    for (path, content, cached) in [
        ("o/x", "x\n", true),
        ("o/m.json", "y\n", false),
        ("models/m.bin", "z\n", true),
        ("t/p", "ap\n", true),
        ("t/p.json", "bp\n", false),
        ("w/out", "w\n", true),
    ] {
        site.write(path, content.as_bytes());
        if cached {
            // Another repository's add is the shortest way to a cache.
            let name = format!("copy-{}", path.replace('/', "-"));
            site.write(&name, content.as_bytes());
            site.haul(&["dvc", "add", &name]).ok();
            fs::remove_file(site.repo.join(format!("{name}.dvc"))).unwrap();
            fs::remove_file(site.repo.join(name)).unwrap();
        }
    }
    if site.has_dvc() {
        assert_eq!(site.dvc(&["status"]).ok().out, UP_TO_DATE);
    }
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    // Metrics that git keeps aren't looked for in the cache; what isn't to be pushed isn't.
    let out = site.haul(&["dvc", "status", "-c"]).ok().out;
    assert_eq!(out, "\tnew:                models/m.bin\n\tnew:                t/p\n\tnew:                w/out\n");
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "3 files pushed\n");
    assert_eq!(names(&site.lab.path("rem")).len(), 3);
    if site.has_dvc() {
        assert_eq!(site.dvc(&["push"]).ok().out, "Everything is up to date.\n");
    }
    // An out in a stage's own folder comes back there.
    fs::remove_file(site.repo.join("w/out")).unwrap();
    assert_eq!(site.haul(&["dvc", "checkout"]).ok().out, "A\tw/out\n");
    assert!(!site.repo.join("out").exists());
    // Changed metrics are git's business, not checkout's.
    site.write("t/p.json", b"mine");
    assert_eq!(site.haul(&["dvc", "checkout"]).ok().out, "");
    assert_eq!(fs::read(site.repo.join("t/p.json")).unwrap(), b"mine");
    // Without knowing what it keeps nothing is done.
    site.write("dvc.yaml", b"stages: [");
    let err = site.haul(&["dvc", "push"]).code(1).err;
    assert!(err.starts_with("haul: dvc.yaml: not valid YAML: "), "{err}");
}

#[test]
fn an_import_is_frozen_so_its_source_may_change() {
    let site = Site::new();
    let outside = site.lab.path("outside.txt");
    fs::write(&outside, "new\n").unwrap();
    site.write("in.txt", b"old\n");
    site.haul(&["dvc", "add", "in.txt"]).ok();
    let own = fs::read_to_string(site.repo.join("in.txt.dvc")).unwrap();
    let dep = format!(
        "deps:\n- md5: 5bbf5a52328e7439ae6e719dfe712200\n  size: 4\n  hash: md5\n  path: {}\n",
        outside.display()
    );
    site.write("in.txt.dvc", format!("frozen: true\n{dep}{own}").as_bytes());
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    site.write("in.txt.dvc", format!("{dep}{own}").as_bytes());
    let out = site.haul(&["dvc", "status"]).ok().out;
    assert!(out.contains("modified:           ") && out.contains("outside.txt"), "{out}");
}

/// `data` with three files, and `one.txt`, tracked and pushed.
fn tracked(site: &Site) {
    for name in ["a", "b", "c"] {
        site.write(&format!("data/{name}"), name.as_bytes());
    }
    site.write("one.txt", b"one");
    site.haul(&["dvc", "add", "data", "one.txt"]).ok();
}

#[test]
fn force_is_for_what_was_named_alone() {
    let site = Site::new();
    tracked(&site);
    fs::remove_file(site.repo.join("data/a")).unwrap();
    fs::remove_file(site.repo.join("data/b")).unwrap();
    site.write("data/c", b"mine");
    assert_eq!(site.haul(&["dvc", "checkout", "-f", "data/a", "data/b"]).ok().out, "M\tdata/\n");
    assert_eq!(fs::read(site.repo.join("data/a")).unwrap(), b"a");
    assert_eq!(fs::read(site.repo.join("data/b")).unwrap(), b"b");
    assert_eq!(fs::read(site.repo.join("data/c")).unwrap(), b"mine");
    assert_eq!(site.haul(&["dvc", "push", "data/a", "data/b"]).ok().out, "2 files pushed\n");
}

#[test]
fn a_checkout_that_would_lose_something_changes_nothing() {
    let site = Site::new();
    tracked(&site);
    fs::remove_file(site.repo.join("data/a")).unwrap();
    site.write("one.txt", b"mine");
    let ran = site.haul(&["dvc", "checkout"]).code(6);
    assert_eq!(
        ran.err,
        "haul: one.txt has unsaved changes: keep them with haul dvc add, or discard them \
         with --force\n"
    );
    assert!(!site.repo.join("data/a").exists());
    assert_eq!(fs::read(site.repo.join("one.txt")).unwrap(), b"mine");
    // Nor is anything lost that a .dvcignore hides by now.
    site.write("one.txt", b"one");
    site.write(".dvcignore", b"*/c\n");
    site.write("data/c", b"mine");
    let err = site.haul(&["dvc", "checkout"]).code(6).err;
    assert!(err.starts_with("haul: data/c has unsaved changes"), "{err}");
    assert_eq!(fs::read(site.repo.join("data/c")).unwrap(), b"mine");
    assert_eq!(site.haul(&["dvc", "checkout", "-f"]).ok().out, "M\tdata/\n");
    assert_eq!(fs::read(site.repo.join("data/c")).unwrap(), b"c");
}

#[test]
fn folders_give_way_to_files_when_they_hold_none() {
    let site = Site::new();
    tracked(&site);
    for path in ["data/a", "one.txt"] {
        fs::remove_file(site.repo.join(path)).unwrap();
        fs::create_dir_all(site.repo.join(path).join("deep/er")).unwrap();
    }
    assert_eq!(site.haul(&["dvc", "checkout"]).ok().out, "M\tdata/\nM\tone.txt\n");
    assert_eq!(fs::read(site.repo.join("data/a")).unwrap(), b"a");
    assert_eq!(fs::read(site.repo.join("one.txt")).unwrap(), b"one");
    // One with a file gives way by force only.
    fs::remove_file(site.repo.join("one.txt")).unwrap();
    site.write("one.txt/mine", b"mine");
    site.haul(&["dvc", "checkout"]).code(6);
    assert_eq!(site.haul(&["dvc", "checkout", "-f"]).ok().out, "M\tone.txt\n");
    assert_eq!(fs::read(site.repo.join("one.txt")).unwrap(), b"one");
}

#[test]
fn what_lies_behind_a_symlink_does_not_become_the_caches_own() {
    for links in ["hardlink", "symlink"] {
        let site = Site::new();
        let config = fs::read_to_string(site.repo.join(".dvc/config")).unwrap();
        site.set_config(&format!("{config}[cache]\n    type = {links}\n"));
        let outside = site.lab.path("outside");
        fs::write(&outside, "somebody's").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o644)).unwrap();
        site.write("data/a", b"a");
        symlink(&outside, site.repo.join("data/l")).unwrap();
        site.haul(&["dvc", "add", "data"]).ok();
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o644, "{links}");
        fs::remove_file(&outside).unwrap();
        // All of it is in the cache, in files.
        for name in names(&site.repo.join(".dvc/cache")) {
            let facts = fs::symlink_metadata(site.repo.join(".dvc/cache").join(&name)).unwrap();
            assert!(facts.is_file() && facts.permissions().mode() & 0o777 == 0o444, "{links}: {name}");
        }
        fs::remove_dir_all(site.repo.join("data")).unwrap();
        site.haul(&["dvc", "checkout"]).ok();
        assert_eq!(fs::read(site.repo.join("data/l")).unwrap(), b"somebody's");
    }
}

#[test]
fn an_executable_file_stays_one_whatever_links_the_cache_uses() {
    for links in ["hardlink", "symlink"] {
        let site = Site::new();
        let config = fs::read_to_string(site.repo.join(".dvc/config")).unwrap();
        site.set_config(&format!("{config}[cache]\n    type = {links}\n"));
        for path in ["run.sh", "data/run.sh"] {
            site.write(path, format!("#!/bin/sh {path}\n").as_bytes());
            fs::set_permissions(site.repo.join(path), fs::Permissions::from_mode(0o755)).unwrap();
        }
        site.haul(&["dvc", "add", "run.sh", "data"]).ok();
        for path in ["run.sh", "data/run.sh"] {
            let facts = fs::symlink_metadata(site.repo.join(path)).unwrap();
            let mode = facts.permissions().mode() & 0o777;
            assert!(facts.is_file() && facts.nlink() == 1 && mode == 0o755, "{links}: {path}: {mode:o}");
        }
        for name in names(&site.repo.join(".dvc/cache")) {
            let facts = fs::symlink_metadata(site.repo.join(".dvc/cache").join(&name)).unwrap();
            assert!(facts.is_file() && facts.permissions().mode() & 0o777 == 0o444, "{links}: {name}");
        }
        assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    }
}

/// Modes keep nobody from writing who is root.
#[test]
fn what_root_wrote_through_a_link_of_the_cache_is_a_change() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root writes what nobody may write");
        return;
    }
    for links in ["hardlink", "symlink"] {
        let site = Site::new();
        let config = fs::read_to_string(site.repo.join(".dvc/config")).unwrap();
        site.set_config(&format!("{config}[cache]\n    type = {links}\n"));
        site.write("a", b"as it was");
        site.haul(&["dvc", "add", "a"]).ok();
        assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
        fs::write(site.repo.join("a"), b"as it is").unwrap();
        assert_ne!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE, "{links}");
    }
}

/// What a power cut may leave of a file that wasn't on the disk yet: its name and mode without its content.
#[test]
fn content_that_was_cut_off_in_the_cache_is_not_taken_for_whole() {
    let site = Site::new();
    site.write("a", b"data\n");
    site.haul(&["dvc", "add", "a"]).ok();
    let cached = names(&site.repo.join(".dvc/cache"));
    let cached = site.repo.join(".dvc/cache").join(cached.iter().find(|name| name.contains("files/md5/")).unwrap());
    let cut = || {
        fs::set_permissions(&cached, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&cached, "").unwrap();
        fs::set_permissions(&cached, fs::Permissions::from_mode(0o444)).unwrap();
    };
    cut();
    let ran = site.haul(&["dvc", "status"]).ok();
    assert!(ran.out.contains("not in cache:       a"), "{}", ran.out);
    for again in ["its state is known", "it is hashed anew"] {
        site.haul(&["dvc", "add", "a"]).ok();
        cut();
        if again != "its state is known" {
            site.write("a", b"data\n");
        }
        site.haul(&["dvc", "add", "a"]).ok();
        assert_eq!(fs::read(&cached).unwrap(), b"data\n", "{again}");
    }
    cut();
    fs::remove_file(site.repo.join("a")).unwrap();
    let ran = site.haul(&["dvc", "checkout"]);
    assert!(
        ran.code != 0 && ran.err.contains("a: its content isn't cached; run haul dvc pull"),
        "{} {}",
        ran.out,
        ran.err
    );
    assert!(!site.repo.join("a").exists());
    // A file of the workspace isn't given up for such a one.
    site.write("a", b"data\n");
    site.haul(&["dvc", "add", "a"]).ok();
    site.write("a", b"other\n");
    site.haul(&["dvc", "add", "a"]).ok();
    site.write("a", b"data\n");
    cut();
    site.haul(&["dvc", "checkout"]).code(6);
    assert_eq!(fs::read(site.repo.join("a")).unwrap(), b"data\n");
}

#[test]
fn a_killed_checkout_leaves_nothing_for_the_workspaces_own() {
    for links in ["copy", "hardlink", "symlink"] {
        let site = Site::new();
        let config = fs::read_to_string(site.repo.join(".dvc/config")).unwrap();
        site.set_config(&format!("{config}[cache]\n    type = {links}\n"));
        for n in 0..600 {
            site.write(&format!("data/{}/{n}", n % 7), format!("{n}").repeat(2000).as_bytes());
        }
        site.haul(&["dvc", "add", "data"]).ok();
        let cache = names(&site.repo.join(".dvc/cache"));
        for forced in [false, true] {
            // Once into nothing, once over what is there.
            if forced {
                for n in 0..600 {
                    fs::remove_file(site.repo.join(format!("data/{}/{n}", n % 7))).unwrap();
                    site.write(&format!("data/{}/{n}", n % 7), b"mine");
                }
            } else {
                fs::remove_dir_all(site.repo.join("data")).unwrap();
            }
            let mut command = site.lab.haul_command(&["dvc", "checkout", "--force"]);
            let mut child = command.current_dir(&site.repo).stdout(Stdio::null()).spawn().unwrap();
            let begun = || {
                let path = site.repo.join("data/0/7");
                fs::metadata(path).is_ok_and(|facts| facts.len() > 10)
            };
            until(|| begun() || child.try_wait().unwrap().is_some());
            let _ = child.kill();
            child.wait().unwrap();
            assert!(names(&site.repo.join("data")).iter().all(|name| !name.contains(".haul-")), "{links}");
            site.haul(&["dvc", "checkout", if forced { "--force" } else { "--summary" }]).ok();
            assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
            assert!(names(&site.repo.join(".dvc/tmp")).iter().all(|name| !name.contains(".haul-")), "{links}");
        }
        assert_eq!(names(&site.repo.join(".dvc/cache")), cache, "{links}");
    }
}

#[test]
fn a_killed_add_of_a_large_file_leaves_nothing_in_the_cache() {
    let site = Site::new();
    fs::File::create(site.repo.join("big")).unwrap().set_len(1 << 30).unwrap();
    let mut command = site.lab.haul_command(&["dvc", "add", "big"]);
    let mut child = command.current_dir(&site.repo).stdout(Stdio::null()).spawn().unwrap();
    // The copy is open, under a hidden name or none, and takes a while.
    let open = format!("/proc/{}/fd", child.id());
    let copies = || {
        let files = fs::read_dir(&open).into_iter().flatten().flatten();
        let mut open = files.filter_map(|file| fs::read_link(file.path()).ok());
        open.any(|path| path.starts_with(site.repo.join(".dvc/cache")))
    };
    assert!(until(|| copies() || child.try_wait().unwrap().is_some()));
    assert!(child.try_wait().unwrap().is_none(), "it was done before");
    child.kill().unwrap();
    child.wait().unwrap();
    let left = names(&site.repo.join(".dvc/cache"));
    // File systems without unnamed files (O_TMPFILE) are left with a hidden one.
    assert!(left.len() <= 1 && left.iter().all(|name| name.contains(".haul-")), "{left:?}");
    site.haul(&["dvc", "status"]).ok();
}

#[test]
fn paths_are_shown_from_the_current_folder() {
    let site = Site::new();
    tracked(&site);
    site.write("sub/b.txt", b"bee");
    let sub = site.repo.join("sub");
    let ran = site.haul_in(&sub, &["dvc", "add", "b.txt"]).ok();
    assert_eq!(ran.out, "\nTo track the changes with git, run:\n\n\tgit add .gitignore b.txt.dvc\n");
    fs::remove_file(sub.join("b.txt")).unwrap();
    fs::remove_file(site.repo.join("data/a")).unwrap();
    for args in [&["status"][..], &["status", "--json"]] {
        let ours = site.haul_in(&sub, &[&["dvc"], args].concat()).ok().out;
        for name in ["b.txt.dvc", "../data.dvc", "../data"] {
            assert!(ours.contains(name), "{ours}");
        }
        if site.has_dvc() && args.len() > 1 {
            let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(json(&ours), json(&site.dvc_in(&sub, args).ok().out));
        }
    }
    let out = site.haul_in(&sub, &["dvc", "status", "-c"]).ok().out;
    assert!(out.contains("new:                b.txt\n") && out.contains("new:                ../data/a\n"), "{out}");
    let out = site.haul_in(&sub, &["dvc", "checkout"]).ok().out;
    assert_eq!(out, "M\t../data/\nA\tb.txt\n");
}

#[test]
fn what_git_tracks_is_not_added_and_what_it_ignores_gets_no_second_line() {
    let site = Site::new();
    site.write("code/x.py", b"x");
    site.commit();
    for path in ["code", "code/x.py"] {
        let err = site.haul(&["dvc", "add", path]).code(1).err;
        let message = format!(
            "haul: {path}: git tracks it already: git rm -r --cached '{path}' takes it out of git, and leaves it here\n"
        );
        assert_eq!(err, message);
        assert!(!site.repo.join(format!("{path}.dvc")).exists());
    }
    site.write(".gitignore", b"*.bin\n");
    site.write("a.bin", b"a");
    let ran = site.haul(&["dvc", "add", "a.bin"]).ok();
    assert_eq!(ran.out, "\nTo track the changes with git, run:\n\n\tgit add a.bin.dvc\n");
    assert_eq!(fs::read_to_string(site.repo.join(".gitignore")).unwrap(), "*.bin\n");
}

#[test]
fn git_is_asked_once_however_many_are_added() {
    let site = Site::new();
    site.write(".gitignore", b"*.bin\n");
    site.write("code-2/x.py", b"x");
    site.write("code/x.py", b"x");
    site.commit();
    let many: Vec<String> = (0..70).map(|n| format!("d/{n}.{}", if n == 7 { "bin" } else { "txt" })).collect();
    many.iter().for_each(|path| site.write(path, path.as_bytes()));
    // A git that notes what it is asked.
    let (bin, log) = (site.repo.join("../bin"), site.repo.join("../asked"));
    fs::create_dir_all(&bin).unwrap();
    let search = std::env::var("PATH").unwrap();
    let script = format!("#!/bin/sh\necho \"$*\" >> '{}'\nPATH='{search}' exec git \"$@\"\n", log.display());
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let add = |paths: &[&str]| {
        let mut command = site.lab.haul_command(&[&["dvc", "add"], paths].concat());
        command.env("PATH", format!("{}:{search}", bin.display()));
        let ran = site.run(command, &site.repo);
        let calls = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        let count = |what: &str| calls.lines().filter(|line| line.contains(what)).count();
        assert_eq!((count("ls-files"), count("check-ignore")), (1, 1), "{calls}");
        ran
    };
    let all: Vec<&str> = many.iter().map(String::as_str).collect();
    for some in [&all[..5], &all[5..]] {
        add(some).ok();
    }
    let lines = fs::read_to_string(site.repo.join("d/.gitignore")).unwrap();
    assert_eq!(lines.lines().count(), 69, "all but the one that git ignores anyway");
    assert!(!lines.contains("/7.bin") && lines.contains("/69.txt\n"));
    // Also among so many that they aren't named to git.
    for others in [&all[..5], &all[..]] {
        let err = add(&[&["code"], others].concat()).code(1).err;
        assert!(err.starts_with("haul: code: git tracks it already: "), "{err}");
    }
    assert!(!site.repo.join("code.dvc").exists());
}

#[test]
fn a_remote_that_is_not_configured_is_an_error_also_when_nothing_is_to_be_moved() {
    let site = Site::new();
    tracked(&site);
    site.haul(&["dvc", "push"]).ok();
    for what in [&["push"][..], &["fetch"], &["pull"], &["status"]] {
        let err = site.haul(&[&["dvc"], what, &["-r", "nope"]].concat()).code(1).err;
        assert_eq!(err, "haul: remote \"nope\" isn't in the configuration of DVC: it has s\n");
    }
}
