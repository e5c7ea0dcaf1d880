//! Beside the real DVC 2: repositories, caches and remotes of the older layout, each taking what the other wrote.

use super::site::{Site, TREE_V2, UP_TO_DATE, names, same_files};
use haul_testkit::{lab::ProgramResult, peers};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

const IN_SYNC: &str = "Cache and remote 's' are in sync.\n";

/// A repository, and DVC 2.
struct Older {
    site: Site,
    dvc: PathBuf,
}

impl Older {
    /// With a folder `data` that DVC 2 tracks; `None` where there is no DVC 2.
    fn new() -> Option<Older> {
        let older = Older { dvc: peers::need("dvc2")?, site: Site::new() };
        older.site.tree();
        older.dvc(&older.site.repo, &["add", "-q", "data"]).ok();
        let tracked = fs::read_to_string(older.site.repo.join("data.dvc")).unwrap();
        assert_eq!(tracked, format!("outs:\n- md5: {TREE_V2}\n  size: 34\n  nfiles: 7\n  path: data\n"));
        older.site.commit();
        Some(older)
    }

    fn dvc(&self, folder: &Path, args: &[&str]) -> ProgramResult {
        let mut command = self.site.lab.command(&self.dvc);
        command.args(args);
        self.site.run(command, folder)
    }
}

#[test]
fn haul_takes_what_dvc_2_wrote() {
    let Some(older) = Older::new() else { return };
    let site = &older.site;
    // Its cache is ours: nothing is hashed anew into another layout.
    let cache = names(&site.repo.join(".dvc/cache"));
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    assert_eq!(site.haul(&["dvc", "checkout"]).ok().out, "");
    older.dvc(&site.repo, &["push", "-q"]).ok();
    assert_eq!(site.haul(&["dvc", "status", "-c"]).ok().out, IN_SYNC);
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "Everything is up to date.\n");
    assert_eq!(names(&site.repo.join(".dvc/cache")), cache);
    let clone = site.clone_to("clone");
    assert_eq!(site.haul_in(&clone, &["dvc", "pull"]).ok().out, "A\tdata/\n7 files fetched and 7 files added\n");
    same_files(&clone.join("data"), &site.repo.join("data"));
    assert_eq!(names(&clone.join(".dvc/cache")), cache);
    assert_eq!(older.dvc(&clone, &["status"]).ok().out, UP_TO_DATE);
    // A change that DVC 2 makes.
    site.write("data/windows.txt", b"one\r\ntwo\r\n");
    fs::remove_file(site.repo.join("data/empty")).unwrap();
    assert!(site.haul(&["dvc", "status"]).ok().out.contains("modified:           data"));
    older.dvc(&site.repo, &["add", "-q", "data"]).ok();
    assert_eq!(site.haul(&["dvc", "status"]).ok().out, UP_TO_DATE);
    let out = site.haul(&["dvc", "status", "-c"]).ok().out;
    assert_eq!(out, "\tnew:                data\n\tnew:                data/windows.txt\n");
}

#[test]
fn dvc_2_takes_what_haul_sent_and_repaired() {
    let Some(older) = Older::new() else { return };
    let site = &older.site;
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "7 files pushed\n");
    assert_eq!(older.dvc(&site.repo, &["status", "-c"]).ok().out, IN_SYNC);
    // DVC doesn't look behind the directory's list; haul does.
    let lost = site.lab.path("rem/b1/946ac92492d2347c6235b4d2611184");
    fs::remove_file(&lost).unwrap();
    assert_eq!(older.dvc(&site.repo, &["push"]).ok().out, "Everything is up to date.\n");
    assert_eq!(site.haul(&["dvc", "push"]).ok().out, "1 file pushed\n");
    assert_eq!(fs::metadata(&lost).unwrap().permissions().mode() & 0o777, 0o444);
    let clone = site.clone_to("clone");
    older.dvc(&clone, &["pull", "-q"]).ok();
    same_files(&clone.join("data"), &site.repo.join("data"));
    // What haul fetches and checks out is DVC 2's own, too.
    let other = site.clone_to("other");
    site.haul_in(&other, &["dvc", "fetch"]).ok();
    older.dvc(&other, &["checkout", "-q"]).ok();
    same_files(&other.join("data"), &site.repo.join("data"));
    assert_eq!(older.dvc(&other, &["status"]).ok().out, UP_TO_DATE);
}
