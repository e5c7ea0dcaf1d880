//! What of a job is remembered while it runs, for the next run of the same job: that it was begun, and where its large files are
//! half written. Lines of JSON in the state folder of the user, which the nodes of a cluster share. The file is there as long as
//! the job isn't done.

use crate::work::{Job, Left, Pin, Raw};
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
    /// A large file was begun: tree, key, where, version.
    Begun(u16, Raw, Raw, Pin),
    /// A piece arrived: tree, key, offset, bytes, CRC-64.
    Piece(u16, Raw, u64, u64, u64),
    /// It is whole, or was given up.
    Ended(u16, Raw),
}

/// What was left, by tree and inode: of several names of a file any may come first.
pub type Rest = HashMap<(u16, u64), Left>;

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
    pub fn open(job: &Job, state: &Path) -> Result<(Journal, Option<Rest>), String> {
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
        let rest = there.then(|| read(&file));
        Ok((Journal { path, file }, rest))
    }

    fn write(&mut self, line: &Line) {
        // A journal that can't be written costs the next run time, and nothing else.
        if let Ok(mut text) = serde_json::to_vec(line) {
            text.push(b'\n');
            let _ = self.file.write_all(&text);
        }
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

    /// The job is done: there is nothing to go on with.
    #[allow(clippy::disallowed_methods)] // A file of its own.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn read(file: &File) -> Rest {
    let mut rest: HashMap<(u16, Raw), Left> = HashMap::new();
    // The last line may be cut: it tells nothing then.
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    for line in lines.filter_map(|line| serde_json::from_slice::<Line>(&line).ok()) {
        match line {
            Line::Begun(root, key, token, pin) => {
                rest.insert((root, key.clone()), Left { key, token, pin, pieces: Vec::new() });
            }
            Line::Piece(root, key, offset, len, crc) => {
                if let Some(left) = rest.get_mut(&(root, key)) {
                    left.pieces.push((offset, len, crc));
                }
            }
            Line::Ended(root, key) => _ = rest.remove(&(root, key)),
        }
    }
    rest.into_iter().map(|((root, _), left)| ((root, left.pin.ino), left)).collect()
}

/// Where journals are: haul's state folder.
#[allow(clippy::disallowed_methods)] // This binary has no flags for it.
pub fn state() -> PathBuf {
    let env = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = env("XDG_STATE_HOME").or_else(|| env("HOME").map(|home| home.join(".local/state")));
    base.unwrap_or_else(std::env::temp_dir).join("haul").join("mpi")
}
