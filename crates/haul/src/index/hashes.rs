//! Hashes of files that were hashed before, so that a file is hashed once: by device and inode, valid as long as size, mtime and
//! ctime are the same. One sorted file with a checksum: a damaged one counts as missing. Not for hashes that a store reports of its keys.

use super::state_folder;
use haul_core::{Algo, Inode, Mtime};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    time::{Duration, SystemTime},
};
use xxhash_rust::xxh3::xxh3_64;

/// A change within a clock tick of the file system may leave times as they are. What changed less than this before it was looked
/// at isn't remembered; kernels tick every 1 to 10 ms.
const RACY: Duration = Duration::from_millis(100);
/// How young a file may not be on file systems whose times are whole seconds, or two of them (FAT).
const RACY_COARSE: Duration = Duration::from_millis(2100);
const MAGIC: &[u8; 8] = b"haulhsh\x01";
/// Device, inode, size, mtime, ctime; the value comes behind.
const FACTS: usize = 5 * 8;
/// By what records are sorted: device and inode.
const PLACE: usize = 16;
/// The head of an algorithm's records: its number, how many there are.
const HEAD: usize = 16;
/// Records of files that a run didn't see, of one algorithm, kept beside those that it did.
const KEPT_UNSEEN: usize = 1 << 20;

/// An algorithm's number in files, below 256, never to be given to another.
pub(super) fn number(algo: Algo) -> u64 {
    match algo {
        Algo::Md5 => 1,
        Algo::Sha1 => 2,
        Algo::Sha256 => 3,
        Algo::Sha512 => 4,
        Algo::Crc32 => 5,
        Algo::Crc32c => 6,
        Algo::Crc64Nvme => 7,
        Algo::Blake3 => 8,
        Algo::Xxh3 => 9,
        Algo::Xxh128 => 10,
        Algo::QuickXor => 11,
        Algo::Dropbox => 12,
        Algo::Md5Text => 64,
    }
}

/// The algorithm of a number.
pub(super) fn of_number(wanted: u64) -> Option<Algo> {
    Algo::ALL.into_iter().chain([Algo::Md5Text]).find(|algo| number(*algo) == wanted)
}

/// Bytes of a record.
fn record(algo: Algo) -> usize {
    FACTS + algo.size()
}

/// The known hashes. Several threads may read and add.
#[derive(Debug, Default)]
pub struct FileHashes {
    file: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    was: HashFile,
    /// Which of the records in `was` are of files that this run saw.
    seen: BTreeMap<Algo, Vec<bool>>,
    /// Hashes that this run adds.
    new: BTreeMap<Algo, New>,
}

/// Records of one algorithm that a run adds. There may be millions, so they lie together.
#[derive(Debug, Default)]
struct New {
    /// Which record is of a place.
    places: HashMap<[u8; PLACE], u32>,
    records: Vec<u8>,
}

impl New {
    fn get(&self, algo: Algo, place: &[u8]) -> Option<&[u8]> {
        let number = *self.places.get(place)? as usize;
        self.records.chunks_exact(record(algo)).nth(number)
    }

    fn put(&mut self, algo: Algo, facts: &[u8; FACTS], value: &[u8]) {
        let place: [u8; PLACE] = std::array::from_fn(|n| facts[n]);
        let size = record(algo);
        // More than 4 billion files aren't hashed in one run.
        let next = (self.records.len() / size) as u32;
        let number = *self.places.entry(place).or_insert(next);
        if number == next {
            self.records.resize(self.records.len() + size, 0);
        }
        let record = &mut self.records[number as usize * size..][..size];
        record[..FACTS].copy_from_slice(facts);
        record[FACTS..].copy_from_slice(value);
    }
}

/// A file's content: the records of each algorithm, sorted by place.
#[derive(Debug, Default)]
struct HashFile {
    bytes: Vec<u8>,
    algos: BTreeMap<Algo, Range<usize>>,
    sum: u64,
}

impl FileHashes {
    /// Reads the file; empty when it isn't there or isn't whole. `None` keeps nothing after this run.
    pub fn load(file: Option<PathBuf>) -> FileHashes {
        let was = file.as_deref().map(HashFile::load).unwrap_or_default();
        FileHashes { file, state: Mutex::new(State { was, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The hash of the file that is so.
    pub fn get(&self, inode: &Inode, algo: Algo) -> Option<Vec<u8>> {
        let facts = facts(inode)?;
        let state = &mut *self.state();
        if let Some(record) = state.new.get(&algo).and_then(|new| new.get(algo, &facts[..PLACE])) {
            return (record[..FACTS] == facts).then(|| record[FACTS..].to_vec());
        }
        let (at, record) = state.was.find(algo, &facts)?;
        if record[..FACTS] != facts {
            return None;
        }
        let value = record[FACTS..].to_vec();
        let count = state.was.count(algo);
        state.seen.entry(algo).or_insert_with(|| vec![false; count])[at] = true;
        Some(value)
    }

    /// Remembers a computed hash. `looked` is when the facts were asked for or before, and before the first byte was read;
    /// younger changes could be followed by ones that facts don't show, so they aren't remembered. Neither is a file that changed after
    /// `looked` by the file system's clock: one of the two is wrong.
    pub fn put(&self, inode: &Inode, algo: Algo, value: &[u8], looked: SystemTime) {
        let Some(facts) = facts(inode).filter(|_| settled(inode, looked) && value.len() == algo.size()) else { return };
        self.state().new.entry(algo).or_default().put(algo, &facts, value);
    }

    /// Writes new hashes, beside those that another process has written meanwhile. A failure costs only time later, so it
    /// is reported and no error.
    pub fn save(&self) {
        let Some(file) = &self.file else { return };
        let mut state = self.state();
        if state.new.is_empty() {
            return;
        }
        let now = HashFile::load(file);
        if now.sum != state.was.sum {
            (state.was, state.seen) = (now, BTreeMap::new());
        }
        let bytes = state.bytes();
        if let Err(error) = state_folder::replace(file, |file| std::io::Write::write_all(file, &bytes)) {
            tracing::debug!("{}: hashes can't be kept for the next run: {error}", file.display());
        }
        *state = State { was: HashFile::parse(bytes).unwrap_or_default(), ..State::default() };
    }
}

impl State {
    /// The whole file, old and new.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let algos: std::collections::BTreeSet<Algo> = self.was.algos.keys().chain(self.new.keys()).copied().collect();
        for algo in algos {
            let none = New::default();
            let new = self.new.get(&algo).unwrap_or(&none);
            let seen = self.seen.get(&algo);
            let was = self.was.records(algo);
            let unseen = seen.map_or(0, |seen| seen.iter().filter(|seen| !**seen).count());
            let forget = unseen > KEPT_UNSEEN.max((was.len() + new.places.len()) / 2);
            let kept = was.enumerate().filter(|(n, _)| !forget || seen.is_none_or(|seen| seen[*n]));
            let kept = kept.map(|(_, record)| record).filter(|record| !new.places.contains_key(&record[..PLACE]));
            let mut all: Vec<&[u8]> = kept.chain(new.records.chunks_exact(record(algo))).collect();
            all.sort_unstable();
            bytes.extend_from_slice(&number(algo).to_le_bytes());
            bytes.extend_from_slice(&(all.len() as u64).to_le_bytes());
            all.into_iter().for_each(|record| bytes.extend_from_slice(record));
        }
        let sum = xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }
}

impl HashFile {
    fn load(path: &Path) -> HashFile {
        state_folder::read(path).and_then(HashFile::parse).unwrap_or_default()
    }

    fn parse(bytes: Vec<u8>) -> Option<HashFile> {
        let (rest, sum) = bytes.split_last_chunk::<8>()?;
        let sum = u64::from_le_bytes(*sum);
        if xxh3_64(rest) != sum || !rest.starts_with(MAGIC) {
            return None;
        }
        let (mut at, end, mut algos) = (MAGIC.len(), rest.len(), BTreeMap::new());
        let number = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        while at < end {
            let algo = of_number(number(at)?)?;
            let length = usize::try_from(number(at + 8)?).ok()?.checked_mul(record(algo))?;
            at += HEAD;
            let to = at.checked_add(length).filter(|to| *to <= end)?;
            algos.insert(algo, at..to);
            at = to;
        }
        Some(HashFile { bytes, algos, sum })
    }

    fn records(&self, algo: Algo) -> std::slice::ChunksExact<'_, u8> {
        let range = self.algos.get(&algo).cloned().unwrap_or_default();
        self.bytes[range].chunks_exact(record(algo))
    }

    fn count(&self, algo: Algo) -> usize {
        self.records(algo).len()
    }

    /// The record of a place, and its number.
    fn find(&self, algo: Algo, facts: &[u8]) -> Option<(usize, &[u8])> {
        let range = self.algos.get(&algo)?.clone();
        let (all, size) = (&self.bytes[range], record(algo));
        let (mut low, mut high) = (0, all.len() / size);
        while low < high {
            let middle = low + (high - low) / 2;
            let record = &all[middle * size..(middle + 1) * size];
            match record[..PLACE].cmp(&facts[..PLACE]) {
                std::cmp::Ordering::Equal => return Some((middle, record)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// The facts as records have them; `None` for times that nanoseconds since 1970 in 64 bits can't hold.
fn facts(inode: &Inode) -> Option<[u8; FACTS]> {
    let time = |time: Mtime| i64::try_from(time.0).ok().map(i64::cast_unsigned);
    let numbers = [inode.dev, inode.ino, inode.size, time(inode.mtime)?, time(inode.ctime)?];
    let mut facts = [0; FACTS];
    for (number, bytes) in numbers.into_iter().zip(facts.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&number.to_be_bytes());
    }
    Some(facts)
}

/// True when no later change could leave these facts as they are.
fn settled(inode: &Inode, looked: SystemTime) -> bool {
    let racy = if inode.ctime.nanos() == 0 { RACY_COARSE } else { RACY };
    let last = inode.ctime.max(inode.mtime);
    let looked = looked.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(last.0).is_ok_and(|last| Duration::from_nanos(last) + racy < looked)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // A test makes and reads its own files.

    use super::*;
    use std::fs;

    const DAY: Duration = Duration::from_secs(86_400);
    const MD5: Algo = Algo::Md5;
    const CRC: Algo = Algo::Crc32c;

    fn inode(ino: u64, ctime: i128) -> Inode {
        Inode { dev: 1, ino, size: 5, mtime: Mtime(7), ctime: Mtime(ctime) }
    }

    fn late() -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY
    }

    #[test]
    fn what_was_hashed_is_known_in_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a/b/hashes");
        let all = FileHashes::load(Some(file.clone()));
        for n in (1..100).rev() {
            all.put(&inode(n, 9), MD5, &[n as u8; 16], late());
        }
        all.put(&inode(1, 9), CRC, &[7; 4], late());
        all.put(&inode(2, 9), Algo::Md5Text, &[2; 16], late());
        all.save();
        for all in [all, FileHashes::load(Some(file.clone()))] {
            for n in 1..100 {
                assert_eq!(all.get(&inode(n, 9), MD5), Some(vec![n as u8; 16]));
            }
            assert_eq!(all.get(&inode(1, 9), CRC), Some(vec![7; 4]), "two of one file");
            assert_eq!(all.get(&inode(2, 9), Algo::Md5Text), Some(vec![2; 16]));
            assert_eq!(all.get(&inode(2, 9), CRC), None, "another hash");
            assert_eq!(all.get(&inode(1, 10), MD5), None, "its ctime moved");
            assert_eq!(all.get(&Inode { size: 6, ..inode(1, 9) }, MD5), None);
            assert_eq!(all.get(&Inode { dev: 2, ..inode(1, 9) }, MD5), None);
        }
    }

    #[test]
    fn two_processes_keep_each_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hashes");
        let (a, b) = (FileHashes::load(Some(file.clone())), FileHashes::load(Some(file.clone())));
        a.put(&inode(1, 9), MD5, &[1; 16], late());
        b.put(&inode(2, 9), MD5, &[2; 16], late());
        a.save();
        b.save();
        b.put(&inode(1, 10), MD5, &[3; 16], late());
        b.save();
        let all = FileHashes::load(Some(file));
        assert_eq!((all.get(&inode(1, 9), MD5), all.get(&inode(1, 10), MD5)), (None, Some(vec![3; 16])));
        assert_eq!(all.get(&inode(2, 9), MD5), Some(vec![2; 16]));
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hashes");
        let all = FileHashes::load(Some(file.clone()));
        all.put(&inode(1, 9), MD5, &[1; 16], late());
        all.put(&inode(1, 9), CRC, &[1; 4], late());
        all.save();
        let whole = fs::read(&file).unwrap();
        for damage in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[damage] ^= 1;
            assert!(HashFile::parse(bytes).is_none(), "byte {damage}");
            assert!(HashFile::parse(whole[..damage].to_vec()).is_none(), "cut at {damage}");
        }
        assert_eq!(HashFile::parse(whole).unwrap().count(MD5), 1);
    }

    #[test]
    fn a_change_just_before_isnt_remembered() {
        let all = FileHashes::default();
        let at = |ms: i128| DAY.as_nanos() as i128 - ms * 1_000_000 + 1;
        // The last one is of a clock that was set back since.
        for (ms, kept) in [(0, false), (99, false), (101, true), (-86_400_000, false)] {
            all.put(&inode(1, at(ms)), MD5, &[1; 16], late());
            assert_eq!(all.get(&inode(1, at(ms)), MD5).is_some(), kept, "{ms} ms");
        }
        // Whole seconds: this clock may be a coarse one.
        let second = DAY.as_nanos() as i128 - 2_000_000_000;
        all.put(&inode(2, second), MD5, &[1; 16], late());
        assert_eq!(all.get(&inode(2, second), MD5), None);
    }
}
