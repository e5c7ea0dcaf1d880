//! Runs rsync itself and `haul rsync` on equal folders, and compares what comes out.

use haul_testkit::{lab::temporary, peers};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};
use tempfile::TempDir;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Exit code, lines, names, contents, times in seconds.
    All,
    /// As `All` without the lines.
    Trees,
    /// As `All`, and which names are one file.
    Links,
    /// As `Trees`, and permissions and owners.
    Modes,
    /// As `All`, and permissions and owners.
    Attributes,
}

/// One side's outcome.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    code: Option<i32>,
    lines: Vec<String>,
    tree: BTreeMap<PathBuf, String>,
}

/// Two equal folders, one for each program.
pub struct Oracle {
    rsync: PathBuf,
    setup: String,
    room: TempDir,
    /// Who runs them, where that is another than this user.
    user: Option<u32>,
    haul: PathBuf,
    /// When all was made whose time a set-up doesn't say.
    made: SystemTime,
}

/// A user that owns nothing, of whom root may make use.
const NOBODY: u32 = 65534;

impl Oracle {
    /// Folders made by a shell script; `None`, said so, where rsync isn't installed.
    pub fn new(setup: &str) -> Option<Oracle> {
        let rsync = peers::need("rsync")?;
        let haul = env!("CARGO_BIN_EXE_haul").into();
        let room = temporary("haul-rsync-").unwrap();
        Some(Oracle { rsync, setup: setup.into(), room, user: None, haul, made: SystemTime::now() })
    }

    /// The same, made and run by a user who may not read everything.
    pub fn unprivileged(setup: &str) -> Option<Oracle> {
        let mut oracle = Oracle::new(setup)?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(oracle.room.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            // Where the other user finds it.
            let haul = oracle.room.path().join("haul");
            fs::copy(&oracle.haul, &haul).unwrap();
            (oracle.user, oracle.haul) = (Some(NOBODY), haul);
        }
        Some(oracle)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Makes the folders anew, and gives where they are: one after the other under one name, since absolute paths are part of what
    /// is compared. The script runs once; what it made is kept and copied, since it starts dozens of programs.
    pub fn set_up(&self) -> PathBuf {
        let (work, kept) = (self.cleared(), self.room.path().join("kept"));
        // What another user may not read can't be copied by them.
        if self.user.is_some() {
            return self.made_by_script(work);
        }
        if !kept.exists() {
            fs::rename(self.made_by_script(work.clone()), &kept).unwrap();
        }
        let copied = Command::new("cp").arg("-a").args([&kept, &work]).status().unwrap();
        if copied.success() { work } else { self.made_by_script(self.cleared()) }
    }

    /// The place for the folders, with nothing in it.
    fn cleared(&self) -> PathBuf {
        let work = self.room.path().join("work");
        if work.exists() {
            let opened = Command::new("chmod").args(["-R", "u+rwX"]).arg(&work).status().unwrap();
            assert!(opened.success());
            fs::remove_dir_all(&work).unwrap();
        }
        work
    }

    fn made_by_script(&self, work: PathBuf) -> PathBuf {
        fs::create_dir(&work).unwrap();
        std::os::unix::fs::chown(&work, self.user, self.user).unwrap();
        let began = fs::metadata(&work).unwrap().mtime();
        let made = self.command(Path::new("bash")).args(["-ec", &self.setup]).current_dir(&work).status().unwrap();
        assert!(made.success(), "the set-up failed");
        self.give_one_time(&work, began);
        work
    }

    /// Gives all entries made since then one time, so that a second that ended during the set-up changes nothing.
    fn give_one_time(&self, path: &Path, since: i64) {
        let node = fs::symlink_metadata(path).unwrap();
        if node.is_dir() {
            fs::read_dir(path).unwrap().for_each(|below| self.give_one_time(&below.unwrap().path(), since));
        }
        if (since..=since + 60).contains(&node.mtime()) {
            let made = self.made.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
            let last_modification = Timespec { tv_sec: made, tv_nsec: 0 };
            let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let times = Timestamps { last_access, last_modification };
            utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }

    fn run(&self, program: &Path, first: &[&str], args: &[String], compare: Compare) -> (Outcome, String) {
        // Copying the set-up would read its files and change their access times.
        let atimes =
            |arg: &String| arg == "--atimes" || arg.starts_with('-') && !arg.starts_with("--") && arg.contains('U');
        let work = if args.iter().any(atimes) { self.made_by_script(self.cleared()) } else { self.set_up() };
        let state = self.room.path().join("state");
        let output = self
            .command(program)
            .args(first)
            .args(args)
            .current_dir(&work)
            .env("HOME", self.room.path())
            .env("XDG_STATE_HOME", &state)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // rsync says this once for each try, haul once.
        let is_compared = |line: &&str| {
            !line.starts_with("cannot delete non-empty directory")
                && !matches!(compare, Compare::Trees | Compare::Modes)
        };
        let mut lines: Vec<String> = text.lines().filter(is_compared).map(String::from).collect();
        lines.sort();
        let mut tree = BTreeMap::new();
        describe(&work, &work, compare, &mut tree);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (Outcome { code: output.status.code(), lines, tree }, errors)
    }

    /// Both programs must come to the same.
    pub fn same(&self, args: &[impl AsRef<str>], compare: Compare) {
        let args: Vec<String> = args.iter().map(|arg| arg.as_ref().to_string()).collect();
        let (expected, rsync_output) = self.run(&self.rsync, &[], &args, compare);
        let (got, errors) = self.run(&self.haul, &["rsync"], &args, compare);
        assert!(
            expected == got,
            "{args:?}\nrsync: {expected:#?}\n{rsync_output}\nhaul: {got:#?}\n{errors}\nset up by:\n{}",
            self.setup
        );
    }

    /// As [`Oracle::same`], without the lines that are printed.
    pub fn same_but_for_lines(&self, args: &[&str], compare: Compare) {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        let (expected, rsync_output) = self.run(&self.rsync, &[], &args, compare);
        let (got, errors) = self.run(&self.haul, &["rsync"], &args, compare);
        assert!(
            expected.code == got.code && expected.tree == got.tree,
            "{args:?}\nrsync: {expected:#?}\n{rsync_output}\nhaul: {got:#?}\n{errors}"
        );
    }

    /// What `haul rsync` alone does: exit code, standard output, standard error.
    pub fn haul(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        let (outcome, errors) = self.run(&self.haul, &["rsync"], &args, Compare::All);
        (outcome.code, outcome.lines.join("\n"), errors)
    }

    /// What rsync alone prints, its lines sorted.
    pub fn rsync_lines(&self, args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        self.run(&self.rsync, &[], &args, Compare::All).0.lines.join("\n")
    }

    /// The folder that the last run worked in.
    pub fn folder(&self) -> PathBuf {
        self.room.path().join("work")
    }
}

/// Set-ups date what they make before this; what is later was dated by the run.
const LATE: i64 = 1_780_000_000;

fn describe(root: &Path, dir: &Path, compare: Compare, tree: &mut BTreeMap<PathBuf, String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let st = fs::symlink_metadata(&path).unwrap();
        let kind = st.file_type();
        let content = if kind.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if kind.is_dir() {
            "dir".into()
        } else if kind.is_file() {
            fs::read(&path).map_or("unreadable".into(), |bytes| format!("{:?}", String::from_utf8_lossy(&bytes)))
        } else {
            format!("special {}", kind.is_fifo())
        };
        let time = if st.mtime() < LATE { st.mtime().to_string() } else { "now".into() };
        let mut text = format!("{content} {time}");
        if matches!(compare, Compare::Attributes | Compare::Modes) {
            let mode = if kind.is_symlink() { 0 } else { st.mode() };
            text.push_str(&format!(" {mode:o} {} {} {}", st.uid(), st.gid(), st.rdev()));
        }
        if matches!(compare, Compare::Links | Compare::Attributes) && kind.is_file() {
            text.push_str(&format!(" {} names", st.nlink()));
        }
        tree.insert(path.strip_prefix(root).unwrap().to_path_buf(), text);
        if kind.is_dir() {
            describe(root, &path, compare, tree);
        }
    }
}
