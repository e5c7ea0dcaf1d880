//! A place for snapshots: a lab with a folder `src` to push and a store `store`.

use haul_testkit::lab::{Lab, ProgramResult};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

pub const HAUL: &str = env!("CARGO_BIN_EXE_haul");

pub struct Site {
    pub lab: Lab,
}

impl Site {
    pub fn new() -> Site {
        Site { lab: Lab::new(HAUL) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.lab.path(name)
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Runs haul. An argument that begins with `@` is a path in the lab; others may hold one, as versions do.
    pub fn haul(&self, args: &[&str]) -> ProgramResult {
        let mut command = self.lab.command(Path::new("timeout"));
        command.args(["-k", "5", "300", HAUL]);
        for arg in args {
            match arg.strip_prefix('@') {
                Some(name) => command.arg(self.path(name)),
                None => command.arg(arg),
            };
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        ProgramResult { code, out: text(&output.stdout), err: text(&output.stderr), line: format!("{command:?}") }
    }

    /// Pushes `src` to `store` and gives `NAME@VERSION`.
    #[track_caller]
    pub fn push(&self) -> String {
        self.haul(&["snapshot", "push", "@src", "@store"]).ok().out.trim().to_string()
    }
}

/// What a version keeps of all that is in a folder: mode, time, content or target.
pub fn facts(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let st = fs::symlink_metadata(&path).unwrap();
            let time = format!("{}.{:09}", st.mtime(), st.mtime_nsec());
            let what = if st.is_symlink() {
                format!("{time} -> {:?}", fs::read_link(&path).unwrap())
            } else if st.is_dir() {
                left.push(path.clone());
                format!("{:o} {time}", st.mode())
            } else {
                format!("{:o} {time} {:?}", st.mode(), fs::read(&path).unwrap())
            };
            all.insert(path.strip_prefix(root).unwrap().to_path_buf(), what);
        }
    }
    all
}

/// Files below a folder.
pub fn names(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => drop(found.insert(path.strip_prefix(folder).unwrap().display().to_string())),
            }
        }
    }
    found
}
