//! State of a running job for the next run of the same job: its folders, and its half-written
//! large files. Lines of JSON in the state folder of the user, which the nodes of a cluster share. The file exists as long as
//! the job isn't done.

use crate::work::{Job, JobStart, Pin, Raw, TargetIdentities, UnfinishedFile};
use haul_core::{
    Algo,
    hash::{hash_bytes, to_hex},
};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
};

/// One line.
#[derive(Serialize, Deserialize)]
enum Line {
    /// The job goes into these folders. Comes first.
    Into(TargetIdentities),
    /// When it first began.
    Since(JobStart),
    /// A large file was begun: tree, key, where, version.
    Begun(u16, Raw, Raw, Pin),
    /// A piece arrived: tree, key, offset, bytes, CRC-64.
    Piece(u16, Raw, u64, u64, u64),
    /// It is whole, or was given up.
    Ended(u16, Raw),
}

/// State that an earlier run of the same job left.
pub struct EarlierRun {
    /// The folders that it went into; empty where it hadn't come so far.
    targets: TargetIdentities,
    /// When it began; empty where it doesn't say so.
    pub since: JobStart,
    /// Its large files.
    pub rest: UnfinishedFiles,
}

impl EarlierRun {
    /// Did it go into these folders? A journal is found by their paths alone, and another folder may have got one of these since.
    pub fn went_into(&self, now: &TargetIdentities) -> bool {
        self.targets == *now && !now.is_empty() && now.iter().all(Option::is_some)
    }
}

/// Unfinished large files, by tree and inode: of several names of a file any may come first.
pub type UnfinishedFiles = HashMap<(u16, u64), UnfinishedFile>;

/// Where the journal of a job is.
fn path(job: &Job, state: &Path) -> Result<PathBuf, String> {
    let what = serde_json::to_vec(&(job.verb, &job.roots, job.preserve, job.delete, job.contents, &job.input));
    let hashes = hash_bytes(&[Algo::Blake3], &what.map_err(|e| e.to_string())?);
    let hash = hashes.get(Algo::Blake3).unwrap_or_default();
    Ok(state.join(format!("{}.mpi", to_hex(&hash[..hash.len().min(16)]))))
}

/// Was this job begun and not done?
pub fn is_left(job: &Job, state: &Path) -> bool {
    path(job, state).is_ok_and(|path| path.exists())
}

/// The journal of a job under way.
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of a job; what an earlier run left, where one was left.
    ///
    /// Errors: one line. Another run of the same job is under way.
    pub fn open(job: &Job, state: &Path) -> Result<(Journal, Option<EarlierRun>), String> {
        let path = path(job, state)?;
        let failed = |e: io::Error| format!("{}: {e}", path.display());
        fs::create_dir_all(state).map_err(failed)?;
        let there = path.exists();
        let file = File::options().create(true).read(true).append(true).open(&path).map_err(failed)?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .is_err_and(|errno| errno == rustix::io::Errno::WOULDBLOCK)
        {
            return Err(format!("another run of this job is under way: its journal is {}", path.display()));
        }
        let earlier = there.then(|| read(&file));
        Ok((Journal { path, file }, earlier))
    }

    /// Forgets what an earlier run left.
    ///
    /// Errors: one line.
    pub fn clear(&self) -> Result<(), String> {
        self.file.set_len(0).map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// The job goes into these folders, and began then. Without this no run goes on with the job, so it is on the disk before anything is
    /// written.
    ///
    /// Errors: one line.
    pub fn goes_into(&mut self, targets: &TargetIdentities, since: &JobStart) -> Result<(), String> {
        let noted = self.add(&Line::Into(targets.clone())).and_then(|()| self.add(&Line::Since(since.clone())));
        let noted = noted.and_then(|()| self.file.sync_all());
        noted.map_err(|error| {
            format!(
                "{}: {error} (without it a run that is ended can't go on; XDG_STATE_HOME sets another place)",
                self.path.display()
            )
        })
    }

    fn write(&mut self, line: &Line) {
        // A failed note about a large file costs the next run time, and nothing else.
        let _ = self.add(line);
    }

    fn add(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)
    }

    /// A large file was begun.
    pub fn begun(&mut self, root: u16, key: &Raw, token: &Raw, pin: Pin) {
        self.write(&Line::Begun(root, key.clone(), token.clone(), pin));
    }

    /// A piece of it arrived.
    pub fn piece(&mut self, root: u16, key: &Raw, (offset, len, crc): (u64, u64, u64)) {
        self.write(&Line::Piece(root, key.clone(), offset, len, crc));
    }

    /// It is whole, or was given up.
    pub fn ended(&mut self, root: u16, key: &Raw) {
        self.write(&Line::Ended(root, key.clone()));
    }

    /// Removes the journal: the job is done, and nothing is left to resume.
    #[allow(clippy::disallowed_methods)] // A file of its own.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn read(file: &File) -> EarlierRun {
    let (mut targets, mut since) = (TargetIdentities::new(), JobStart::new());
    let mut rest: HashMap<(u16, Raw), UnfinishedFile> = HashMap::new();
    // The last line may be cut: it tells nothing then.
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    for line in lines.filter_map(|line| serde_json::from_slice::<Line>(&line).ok()) {
        match line {
            Line::Into(folders) => targets = folders,
            Line::Since(began) => since = began,
            Line::Begun(root, key, token, pin) => {
                rest.insert((root, key.clone()), UnfinishedFile { key, token, pin, pieces: Vec::new() });
            }
            Line::Piece(root, key, offset, len, crc) => {
                if let Some(left) = rest.get_mut(&(root, key)) {
                    left.pieces.push((offset, len, crc));
                }
            }
            Line::Ended(root, key) => _ = rest.remove(&(root, key)),
        }
    }
    EarlierRun {
        targets,
        since,
        rest: rest.into_iter().map(|((root, _), left)| ((root, left.pin.ino), left)).collect(),
    }
}

/// Where journals are: haul's state folder.
#[allow(clippy::disallowed_methods)] // This binary has no flags for it.
pub fn state() -> PathBuf {
    let env = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = env("XDG_STATE_HOME").or_else(|| env("HOME").map(|home| home.join(".local/state")));
    base.unwrap_or_else(std::env::temp_dir).join("haul").join("mpi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_of_an_earlier_run_only_if_all_are_known_to_be() {
        let folder = |ino, made: &str| Some((ino, made.to_owned()));
        let (one, two) = (|| folder(1, "2026-11-27T02:00:00Z"), || folder(2, ""));
        let went_into = |then: &[Option<(u64, String)>], now: &[Option<(u64, String)>]| {
            let (since, rest) = Default::default();
            EarlierRun { targets: then.to_vec(), since, rest }.went_into(&now.to_vec())
        };
        assert!(went_into(&[one(), two()], &[one(), two()]));
        // A number is given again where a folder was removed.
        assert!(!went_into(&[one()], &[folder(1, "2026-11-27T02:00:01Z")]));
        assert!(!went_into(&[one()], &[two()]));
        assert!(!went_into(&[one(), two()], &[one()]));
        assert!(!went_into(&[one(), None], &[one(), None]));
        assert!(!went_into(&[], &[two()]) && !went_into(&[], &[]));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    fn a_job_whose_folders_can_not_be_noted_does_not_begin() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("journal");
        fs::write(&path, "").unwrap();
        let mut journal = Journal { file: File::open(&path).unwrap(), path: path.clone() };
        let line = format!(
            "{}: Bad file descriptor (os error 9) (without it a run that is ended can't go on; XDG_STATE_HOME sets another place)",
            path.display()
        );
        assert_eq!(journal.goes_into(&vec![Some((1, String::new()))], &JobStart::new()), Err(line));
    }
}
