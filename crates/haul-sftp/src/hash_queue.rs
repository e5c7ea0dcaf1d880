//! Files that wait for their hashes, and the sessions that compute them: which go together, and when another session pays.

use crate::shell::Shell;
use haul_core::{Algo, Result};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{OnceCell, oneshot};

/// Files of one command.
const FILES: usize = 1000;

/// Bytes of the files of one command, if they are several: others wait for its end.
const BYTES: u64 = 256 << 20;

/// With this many bytes waiting, another session pays: as much as a processor hashes in a few tenths of a second.
const BUSY: u64 = 64 << 20;

/// Sessions that hash at once: a host has others to serve, and a connection other sessions.
const SESSIONS: usize = 4;

/// A hash command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Takes names of many files, and prints the hash and the name of each.
    Many(String),
    /// The user's own: takes the name of one, and prints its hash first.
    One(String),
}

/// Files that are to be hashed, and the sessions that do it.
#[derive(Debug, Default)]
pub struct Hashers {
    waiting: Mutex<HashQueue>,
    /// The command for each hash, once that was found out.
    pub commands: OnceCell<Vec<(Algo, Command)>>,
}

#[derive(Debug, Default)]
pub struct HashQueue {
    /// In the order in which they came.
    pub files: VecDeque<HashRequest>,
    /// Sessions that work, or are being begun.
    pub at_work: usize,
    /// Those that wait for work.
    pub idle: Vec<Shell>,
}

/// A file whose hash somebody waits for.
#[derive(Debug)]
pub struct HashRequest {
    pub algo: Algo,
    pub path: Vec<u8>,
    pub size: u64,
    pub answer: oneshot::Sender<Result<Vec<u8>>>,
}

impl Hashers {
    /// Locks the queue.
    pub fn lock(&self) -> MutexGuard<'_, HashQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HashQueue {
    /// The next files for a session, all of one hash.
    pub fn batch(&mut self) -> Vec<HashRequest> {
        let mut batch: Vec<HashRequest> = Vec::new();
        let mut bytes: u64 = 0;
        while let Some(next) = self.files.front() {
            bytes = bytes.saturating_add(next.size);
            let fits = batch.first().is_none_or(|first| first.algo == next.algo && bytes <= BYTES);
            if !fits || batch.len() == FILES {
                break;
            }
            batch.extend(self.files.pop_front());
        }
        batch
    }

    /// Whether another session pays.
    pub fn is_busy(&self) -> bool {
        let bytes = self.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
        self.at_work == 0 || self.at_work < SESSIONS && (bytes >= BUSY || self.files.len() > FILES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_together_as_far_as_that_makes_nobody_wait() {
        let mut waiting = HashQueue::default();
        assert!(waiting.is_busy(), "nobody works");
        waiting.at_work = 1;
        let push = |waiting: &mut HashQueue, algo, size| {
            let answer = oneshot::channel().0;
            waiting.files.push_back(HashRequest { algo, path: Vec::new(), size, answer });
        };
        (0..700).for_each(|_| push(&mut waiting, Algo::Md5, 1));
        assert!(!waiting.is_busy());
        push(&mut waiting, Algo::Sha1, 1 << 40);
        push(&mut waiting, Algo::Sha1, 1);
        assert!(waiting.is_busy());
        waiting.at_work = SESSIONS;
        assert!(!waiting.is_busy());
        let mut sizes = Vec::new();
        while let batch @ [_, ..] = &waiting.batch()[..] {
            sizes.push(batch.len());
        }
        assert_eq!(sizes, [700, 1, 1], "a large file goes alone");
    }
}
