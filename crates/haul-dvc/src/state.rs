//! MD5s of files that were hashed before, so that a file is hashed once: by device and inode, good as long as size, mtime and
//! ctime are the same. One sorted file with a checksum: a damaged one is as good as none.

// It keeps its own file.
#![allow(clippy::disallowed_methods)]

use crate::{
    address::{Layout, Md5},
    facts::Facts,
};
use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use xxhash_rust::xxh3::xxh3_64;

/// A change within a clock tick of the file system may leave times as they are. What changed less than this before it was looked
/// at isn't remembered; kernels tick every 1 to 10 ms.
const RACY: Duration = Duration::from_millis(100);
/// The same for file systems that keep whole seconds, or two of them (FAT).
const RACY_COARSE: Duration = Duration::from_millis(2100);
const MAGIC: &[u8; 8] = b"haulmd5\x01";
/// Device, inode, size, mtime, ctime, MD5, flags.
const RECORD: usize = 5 * 8 + 16 + 8;
/// Records of files that a run didn't see, kept beside those that it did.
const KEPT_UNSEEN: usize = 1 << 20;

#[derive(Clone, Copy)]
struct Known {
    size: u64,
    mtime: i64,
    ctime: i64,
    layout: Layout,
    md5: Md5,
    seen: bool,
}

/// What is known.
#[derive(Default)]
pub struct State {
    file: Option<PathBuf>,
    known: HashMap<(u64, u64), Known>,
    changed: bool,
}

impl State {
    /// Reads the file; empty when it isn't there or isn't whole. `None` keeps nothing.
    pub fn load(file: Option<PathBuf>) -> State {
        let read = file.as_ref().and_then(|path| fs::read(path).ok());
        let known = read.and_then(|bytes| parse(&bytes)).unwrap_or_default();
        State { file, known, changed: false }
    }

    /// The MD5 of a file with these facts.
    pub fn get(&mut self, facts: &Facts, layout: Layout) -> Option<Md5> {
        let known = self.known.get_mut(&(facts.dev, facts.ino))?;
        let same = (known.size, known.mtime, known.ctime) == (facts.size, facts.mtime, facts.ctime);
        known.seen |= same;
        (same && known.layout == layout).then_some(known.md5)
    }

    /// Remembers what was hashed. `looked` is when the facts were asked for, before the first byte was read; younger changes
    /// could be followed by ones that facts don't show, so they aren't remembered.
    pub fn put(&mut self, facts: &Facts, layout: Layout, md5: Md5, looked: SystemTime) {
        if !settled(facts, looked) {
            return;
        }
        let (size, mtime, ctime) = (facts.size, facts.mtime, facts.ctime);
        let known = Known { size, mtime, ctime, layout, md5, seen: true };
        self.known.insert((facts.dev, facts.ino), known);
        self.changed = true;
    }

    /// Writes what changed, beside the old file, and renames. A failure costs only time later, so it is told and no error.
    pub fn save(&mut self) {
        let Some(file) = self.file.clone().filter(|_| self.changed) else { return };
        let unseen = self.known.values().filter(|k| !k.seen).count();
        if unseen > KEPT_UNSEEN.max(self.known.len() / 2) {
            self.known.retain(|_, known| known.seen);
        }
        if let Err(error) = write(&file, &self.bytes()) {
            tracing::debug!("{}: hashes can't be kept for the next run: {error}", file.display());
        }
        self.changed = false;
    }

    fn bytes(&self) -> Vec<u8> {
        let mut all: Vec<_> = self.known.iter().collect();
        all.sort_unstable_by_key(|(place, _)| **place);
        let mut bytes = Vec::with_capacity(MAGIC.len() + all.len() * RECORD + 8);
        bytes.extend_from_slice(MAGIC);
        for ((dev, ino), k) in all {
            let flags = u64::from(k.layout == Layout::V2);
            for number in [*dev, *ino, k.size, k.mtime as u64, k.ctime as u64, flags] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&k.md5);
        }
        let sum = xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// True when no later change could leave these facts as they are.
fn settled(facts: &Facts, looked: SystemTime) -> bool {
    let racy = if facts.ctime % 1_000_000_000 == 0 { RACY_COARSE } else { RACY };
    let last = facts.ctime.max(facts.mtime);
    let looked = looked.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(last).is_ok_and(|last| Duration::from_nanos(last) + racy < looked)
}

fn parse(bytes: &[u8]) -> Option<HashMap<(u64, u64), Known>> {
    let (rest, sum) = bytes.split_last_chunk::<8>()?;
    if xxh3_64(rest) != u64::from_le_bytes(*sum) {
        return None;
    }
    let records = rest.strip_prefix(MAGIC)?;
    let one = |record: &[u8]| {
        let number = |n: usize| record[n * 8..n * 8 + 8].try_into().map(u64::from_le_bytes).ok();
        let layout = if number(5)? & 1 == 1 { Layout::V2 } else { Layout::V3 };
        let (mtime, ctime) = (number(3)? as i64, number(4)? as i64);
        let md5 = record[48..].try_into().ok()?;
        Some(((number(0)?, number(1)?), Known { size: number(2)?, mtime, ctime, layout, md5, seen: false }))
    };
    records.len().is_multiple_of(RECORD).then(|| records.chunks(RECORD).filter_map(one).collect())
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let tmp = file.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&tmp, bytes)?;
    fs::rename(&tmp, file).inspect_err(|_| drop(fs::remove_file(&tmp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn facts(ino: u64, ctime: i64) -> Facts {
        Facts { dev: 1, ino, size: 5, mtime: 7, ctime, mode: 0o100644, nlink: 1 }
    }

    fn late() -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY
    }

    #[test]
    fn what_was_hashed_is_known_in_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a/b/state");
        let mut state = State::load(Some(file.clone()));
        state.put(&facts(1, 9), Layout::V3, [1; 16], late());
        state.put(&facts(2, 9), Layout::V2, [2; 16], late());
        state.save();
        let mut state = State::load(Some(file.clone()));
        assert_eq!(state.get(&facts(1, 9), Layout::V3), Some([1; 16]));
        assert_eq!(state.get(&facts(2, 9), Layout::V2), Some([2; 16]));
        assert_eq!(state.get(&facts(2, 9), Layout::V3), None, "another kind of hash");
        assert_eq!(state.get(&facts(1, 10), Layout::V3), None, "its ctime moved");
        assert_eq!(state.get(&Facts { size: 6, ..facts(1, 9) }, Layout::V3), None);
        assert_eq!(state.get(&facts(3, 9), Layout::V3), None);
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state");
        let mut state = State::load(Some(file.clone()));
        state.put(&facts(1, 9), Layout::V3, [1; 16], late());
        state.save();
        let whole = fs::read(&file).unwrap();
        for damage in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[damage] ^= 1;
            assert!(parse(&bytes).is_none(), "byte {damage}");
            assert!(parse(&whole[..damage]).is_none(), "cut at {damage}");
        }
        assert_eq!(parse(&whole).unwrap().len(), 1);
    }

    #[test]
    fn a_change_just_before_isnt_remembered() {
        let mut state = State::default();
        let at = |ms: i64| i64::try_from(DAY.as_nanos()).unwrap() - ms * 1_000_000 + 1;
        for (ms, kept) in [(0, false), (99, false), (101, true)] {
            state.put(&facts(1, at(ms)), Layout::V3, [1; 16], late());
            assert_eq!(state.get(&facts(1, at(ms)), Layout::V3).is_some(), kept, "{ms} ms");
        }
        // Whole seconds: this clock may be a coarse one.
        let second = i64::try_from(DAY.as_nanos()).unwrap() - 2_000_000_000;
        state.put(&facts(2, second), Layout::V3, [1; 16], late());
        assert_eq!(state.get(&facts(2, second), Layout::V3), None);
    }
}
