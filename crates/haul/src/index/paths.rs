//! Since when a source's directories have been at their paths. A ctime tells when a file changed, not since when it is found at its
//! path: a directory above it may have been renamed since, or a symlink pointed elsewhere. Where a file is taken for the copy of a key
//! because it changed before the key was stored ([ADR 3](../../../../docs/adr/0003-when-a-key-is-the-file.md)), both count.
//!
//! A file for each destination notes which inode was at each path of the source that it was made from, since when, and in which job
//! everything below was last compared without an error: for that job it counts as if it had always been there. What isn't noted is
//! taken to have come to its path when its inode last changed, as a rename does to it.
//!
//! Beside it is noted when the newest of all inodes changed. Whatever is done to a source changes an inode that stays (of a file that is
//! deleted, its directory's): where the newest is older than at the last run of the same job, the file system was set back to an
//! earlier state, and the ctimes of its files say nothing of keys that were stored since.

use super::{EarlierKnowledge, remote::whose, state_folder};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{
    Entry, Key, Listed, Mtime, Posix,
    filter::{Filter, FilterSpec},
    hash::to_hex,
    job::{Existing, Job},
    key::parent,
};
use haul_store::{Store, disk};
use std::{
    collections::HashMap,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const MAGIC: &[u8; 8] = b"haulpth1";
/// Bytes of the header, and of one directory.
const HEADER: usize = MAGIC.len() + 1;
const RECORD: usize = 8 + 8 + 8 + 8 + 2;
/// The checksum at the end.
const CHECKSUM: usize = 8;
/// So many directories are noted at most; of a source with more, all are judged by their inodes' ctimes.
const MOST: usize = 1 << 20;
/// Days after which a directory is forgotten that no run has seen.
const LIFE: u16 = 90;

/// Facts of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathFacts {
    /// The file system and the inode, hashed.
    inode: u64,
    /// Since when, in nanoseconds since 1970.
    since: u64,
    /// The job in which all below was compared; 0 is none.
    compared_by: u64,
    /// The day since 1970 when it was last seen there.
    day: u16,
}

/// All notes, by the hash of the path.
type PathNotes = HashMap<u64, PathFacts>;

/// Known paths of a run's source, and its new findings.
#[derive(Debug)]
pub(crate) struct Paths {
    file: Option<PathBuf>,
    /// The job that is under way; 0 for one whose work proves nothing for the next.
    job: u64,
    /// The newest change it sees is that of its source.
    watches: bool,
    /// It only reports its plan.
    dry_run: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    read: bool,
    /// There was a file, valid or not: a path that isn't in it didn't exist before.
    any: bool,
    noted: PathNotes,
    /// Paths that this run saw.
    seen: PathNotes,
    /// Something was found at another's path, and the file says that.
    unclear: bool,
    /// When the newest inode that was seen changed, in nanoseconds since 1970.
    newest: u64,
}

impl Paths {
    /// The recorded paths of this destination's sources, in the folder of `known`.
    pub fn new(known: &EarlierKnowledge, dst: &dyn Store, job: &Job, filter: &Filter) -> Arc<Paths> {
        let file = known.paths.as_deref().map(|folder| folder.join(to_hex(&whose(dst)[..8])));
        let watches = known.whole && is_by_names(filter.spec());
        Arc::new(Paths { file, job: fingerprint(job, filter), watches, dry_run: job.dry_run, state: Mutex::default() })
    }

    /// A listing of `src` in which [`Entry::changed`] of a file is also not before it came to its path. Facts of inodes are needed
    /// for that, and are left in only if `keep_posix`.
    pub fn listing(
        self: &Arc<Self>,
        src: Arc<dyn Store>,
        raw: BoxStream<'static, Listed>,
        keep_posix: bool,
    ) -> BoxStream<'static, Listed> {
        let walk = Walk { paths: self.clone(), src, keep_posix, above: Vec::new(), root: None, newest: i128::MIN };
        let steps = futures::stream::unfold((raw, walk), |(mut raw, mut walk)| async move {
            if walk.above.is_empty() {
                // Before it is opened to be listed.
                walk.ask(Key::new("")).await;
            }
            let step = match raw.next().await? {
                Listed::Batch(entries) => Listed::Batch(walk.dated(entries).await),
                Listed::End => {
                    walk.ask_root_again().await;
                    walk.paths.note_present(walk.newest);
                    Listed::End
                }
                other => other,
            };
            Some((step, (raw, walk)))
        });
        steps.boxed()
    }

    /// Notes what was seen. `compared` says that the run ended without an error, and that nothing of its source was left out. True where
    /// the source turned out to have been set back: what this run took for unchanged may differ, and the next one asks for all of it.
    pub async fn end(self: &Arc<Self>, compared: bool) -> bool {
        let paths = self.clone();
        match disk::run(move || Ok(paths.keep(compared))).await {
            Ok(Ok(went_back)) => went_back,
            Ok(Err(error)) => {
                tracing::debug!(%error, "where directories are can't be noted");
                false
            }
            Err(_) => false,
        }
    }

    fn note_present(&self, newest: i128) {
        let mut state = self.state();
        state.newest = state.newest.max(unsigned(newest));
    }

    /// Notes the newest change of the source, and says whether a newer one was seen before.
    fn goes_back(&self, file: &Path, compared: bool) -> io::Result<bool> {
        if !compared || self.job == 0 || !self.watches {
            return Ok(false);
        }
        let (newest, unclear) = {
            let state = self.state();
            (state.newest, state.unclear)
        };
        let file = file.with_extension("newest");
        let now = [self.job, newest].map(u64::to_le_bytes).concat();
        let now = [&now[..], &xxh3_64(&now).to_le_bytes()].concat();
        let was = state_folder::read(&file).filter(|was| was.len() == now.len());
        if was.as_deref() == Some(&now[..]) {
            return Ok(false);
        }
        state_folder::replace(&file, |file| file.write_all(&now))?;
        let was = was.filter(|was| was[16..] == xxh3_64(&was[..16]).to_le_bytes() && was[..8] == now[..8]);
        let before = was.and_then(|was| was[8..16].try_into().ok().map(u64::from_le_bytes));
        Ok(!unclear && before.is_some_and(|before| before > newest))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Since when the directory `key` has been there, in nanoseconds since 1970. Of what is at another's path now, and of what nothing
    /// can be said, since now. Writes a file where that has to be known before anything is done about it.
    fn since(&self, key: &Key, inode: Option<u64>, changed: Option<Mtime>, above: i128) -> i128 {
        let mut state = self.state();
        if !state.read {
            state.read = true;
            if let Some(bytes) = self.file.as_deref().and_then(state_folder::read) {
                state.any = true;
                // A run that saw something at another's path and was killed leaves nothing to go by.
                state.noted =
                    decode(&bytes).filter(|(unclear, _)| !unclear).map(|(_, noted)| noted).unwrap_or_default();
            }
        }
        let (Some(inode), Some(changed)) = (inode, changed) else { return now() };
        let path = xxh3_64(key.as_bytes());
        let was = state.seen.get(&path).or_else(|| state.noted.get(&path)).copied();
        let (since, compared_by, replaced) = match was {
            // Whatever is above it by now: this path leads there.
            Some(was) if was.inode == inode => (was.since, was.compared_by, false),
            Some(_) => (unsigned(now()), 0, true),
            None if key.is_root() && state.any => (unsigned(now()), 0, true),
            None => (unsigned(above.max(changed.0)), 0, false),
        };
        if replaced && !state.unclear && !self.dry_run {
            state.unclear = true;
            if let Some(Err(error)) = self.file.as_deref().map(|file| write(file, true, &PathNotes::new())) {
                tracing::debug!(%error, "where directories are can't be noted");
            }
        }
        if state.seen.len() <= MOST {
            state.seen.insert(path, PathFacts { inode, since, compared_by, day: day() });
        }
        let trusted = compared_by == self.job && self.job != 0;
        if trusted { i128::MIN } else { i128::from(since) }
    }

    /// Says which inode the root is at the end of a listing.
    fn root_is(&self, now: Option<u64>) {
        let mut state = self.state();
        if let Some(root) = state.seen.get_mut(&xxh3_64(b""))
            && Some(root.inode) != now
        {
            root.inode = 0;
        }
    }

    /// See [`Paths::end`].
    fn keep(&self, compared: bool) -> io::Result<bool> {
        let read = self.state().read;
        let Some(file) = self.file.as_deref().filter(|_| read && !self.dry_run) else { return Ok(false) };
        let _lock = state_folder::lock(&file.with_extension("lock"))?;
        if self.goes_back(file, compared)? {
            write(file, true, &PathNotes::new())?;
            return Ok(true);
        }
        let State { noted: was, seen, unclear, any, .. } = std::mem::take(&mut *self.state());
        if seen.len() > MOST {
            return state_folder::remove(file).map(|()| false);
        }
        // Notes that another run has written meanwhile, or begun.
        let (others_unclear, others) = match state_folder::read(file) {
            Some(bytes) => decode(&bytes).unwrap_or((true, PathNotes::new())),
            None => (false, PathNotes::new()),
        };
        let mut noted = others.clone();
        if unclear {
            for (path, at) in was {
                noted.entry(path).or_insert(at);
            }
        }
        for (path, mut at) in seen.iter().map(|(path, at)| (*path, *at)) {
            if compared && self.job != 0 && at.inode != 0 {
                at.compared_by = self.job;
            }
            if others.get(&path).is_some_and(|other| other.inode != at.inode) {
                // Two runs saw two things at one path.
                at = PathFacts { inode: 0, since: unsigned(now()), compared_by: 0, ..at };
            }
            noted.insert(path, at);
        }
        let oldest = day().saturating_sub(LIFE);
        let fits = others.len() + seen.len() <= 2 * MOST;
        noted.retain(|path, at| at.day >= oldest && (fits || seen.contains_key(path)));
        if !any || unclear || noted != others {
            write(file, others_unclear && !unclear, &noted)?;
        }
        Ok(false)
    }
}

/// A listing on its way.
struct Walk {
    paths: Arc<Paths>,
    src: Arc<dyn Store>,
    keep_posix: bool,
    /// The directories above the current key, the root first, and since when each has been there.
    above: Vec<(Key, i128)>,
    /// The root's device, and the identity of its file system.
    root: Option<((u32, u32), u64)>,
    /// When the newest inode changed, in nanoseconds since 1970.
    newest: i128,
}

impl Walk {
    async fn dated(&mut self, mut entries: Vec<Entry>) -> Vec<Entry> {
        for entry in &mut entries {
            self.date(entry).await;
            if !self.keep_posix {
                entry.posix = None;
            }
        }
        entries
    }

    async fn date(&mut self, entry: &mut Entry) {
        let above = self.reach(parent(entry.key.stored().strip_suffix(b"/").unwrap_or(entry.key.stored()))).await;
        if entry.is_dir() {
            self.enter(entry, above).await;
        } else {
            self.newest = entry.changed.map_or(self.newest, |changed| self.newest.max(changed.0));
            entry.changed = entry.changed.map(|changed| Mtime(changed.0.max(above)));
        }
    }

    /// Since when the directory `dir` has been there; asked for where the listing didn't show it.
    async fn reach(&mut self, dir: &[u8]) -> i128 {
        while self.above.last().is_some_and(|(key, _)| !dir.starts_with(key.as_bytes())) {
            self.above.pop();
        }
        if self.above.is_empty() {
            self.ask(Key::new("")).await;
        }
        let mut known = self.above.last().map_or(0, |(key, _)| key.as_bytes().len());
        while let Some(len) = dir[known..].iter().position(|b| *b == b'/') {
            known += len + 1;
            self.ask(Key::new(&dir[..known])).await;
        }
        self.above.last().map_or_else(now, |(_, since)| *since)
    }

    async fn ask(&mut self, dir: Key) {
        let above = self.above.last().map_or(i128::MIN, |(_, since)| *since);
        let entry = self.src.stat(&dir).await.unwrap_or_else(|_| Entry { changed: None, ..Entry::dir(dir) });
        self.enter(&entry, above).await;
    }

    /// The listed root may be another directory than the one that was asked about first, if somebody replaced it
    /// just then. The next run then trusts neither.
    async fn ask_root_again(&self) {
        let now = self.src.stat(&Key::new("")).await.ok().and_then(|entry| entry.posix);
        let now = now.map(|posix| inode(&posix, self.root));
        self.paths.root_is(now);
    }

    async fn enter(&mut self, dir: &Entry, above: i128) {
        if dir.key.is_root()
            && let Some(posix) = &dir.posix
        {
            let id = match self.src.inodes() {
                Some(inodes) => inodes.file_system().await,
                None => None,
            };
            self.root = Some((posix.dev, id.unwrap_or_else(|| number(posix.dev))));
        }
        self.newest = dir.changed.map_or(self.newest, |changed| self.newest.max(changed.0));
        let inode = dir.posix.as_deref().map(|posix| inode(posix, self.root));
        let (paths, key, changed) = (self.paths.clone(), dir.key.clone(), dir.changed);
        // Reads the file the first time, and may write it.
        let since = match key.is_root() {
            true => disk::run(move || Ok(paths.since(&key, inode, changed, above))).await.unwrap_or_else(|_| now()),
            false => paths.since(&key, inode, changed, above),
        };
        self.above.push((dir.key.clone(), since));
    }
}

/// Identity of an inode: its number, and the file system. A device number is assigned at each mount, so it is used only for
/// file systems mounted below the root.
fn inode(posix: &Posix, root: Option<((u32, u32), u64)>) -> u64 {
    let file_system = root.filter(|(dev, _)| *dev == posix.dev).map_or_else(|| number(posix.dev), |(_, id)| id);
    let mut hasher = Xxh3::new();
    [file_system, posix.ino].iter().for_each(|field| hasher.update(&field.to_le_bytes()));
    // 0 is no inode.
    hasher.digest().max(1)
}

fn number((major, minor): (u32, u32)) -> u64 {
    u64::from(major) << 32 | u64::from(minor)
}

/// Hash of the job settings that decide what is compared and left out: speed and output don't count. 0 for a job that compares only a
/// part, or transfers more than data.
fn fingerprint(job: &Job, filter: &Filter) -> u64 {
    if !job.listing.part.is_all() || !filter.is_portable() {
        return 0;
    }
    let Job { verb, compare, existing, deletes, elsewhere, listing, dirs, links, attributes, write, .. } = job;
    // The time when the command began doesn't affect its comparison.
    let existing = Existing { began: None, ..existing.clone() };
    let settings = (verb, compare, existing, deletes, elsewhere, listing, dirs, links, attributes, write);
    xxh3_64(format!("{settings:?}{:?}", filter.spec()).as_bytes()).max(1)
}

/// True for a filter that leaves out the same of the same each time, and nothing for its age or what is beside it.
fn is_by_names(filter: &FilterSpec) -> bool {
    let FilterSpec { files_from, min_size, max_size, newer_than, older_than, exclude_if_present, partition, .. } =
        filter;
    let by_facts = [min_size, max_size].into_iter().any(Option::is_some)
        || [newer_than, older_than].into_iter().any(Option::is_some)
        || !filter.meta_rules.is_empty();
    !by_facts && files_from.is_none() && exclude_if_present.is_empty() && partition.is_none()
}

/// In nanoseconds since 1970.
fn now() -> i128 {
    state_folder::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as i128
}

/// Nanoseconds as they are noted: until the year 2554.
fn unsigned(nanos: i128) -> u64 {
    u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
}

fn day() -> u16 {
    u16::try_from(now() / (24 * 60 * 60 * 1_000_000_000)).unwrap_or(u16::MAX)
}

fn write(file: &Path, unclear: bool, noted: &PathNotes) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEADER + noted.len() * RECORD + CHECKSUM);
    bytes.extend_from_slice(MAGIC);
    bytes.push(u8::from(unclear));
    for (path, at) in noted {
        for number in [*path, at.inode, at.since, at.compared_by] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&at.day.to_le_bytes());
    }
    bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    state_folder::replace(file, |file| file.write_all(&bytes))
}

/// Whether it is unclear, and the notes; `None` for a file that is damaged.
fn decode(bytes: &[u8]) -> Option<(bool, PathNotes)> {
    let (all, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
    let rest = all.strip_prefix(MAGIC).filter(|_| checksum == xxh3_64(all).to_le_bytes())?;
    let (unclear, records) = rest.split_first()?;
    let noted = records.chunks(RECORD).map(|record| {
        let number = |at: usize| Some(u64::from_le_bytes(record.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        let day = u16::from_le_bytes(record.get(4 * 8..)?.try_into().ok()?);
        Some((number(0)?, PathFacts { inode: number(1)?, since: number(2)?, compared_by: number(3)?, day }))
    });
    Some((*unclear != 0, noted.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{filter::FilterSpec, job::Verb, part::Part};
    use haul_mem::MemStore;

    const JOB: Verb = Verb::Sync;
    const NANOS: i128 = 1_000_000_000;

    /// A directory as it is listed.
    fn dir(key: &str, ino: u64, changed: i128) -> Entry {
        let posix = Posix {
            mode: 0o040_755,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            nlink: 2,
            dev: (8, 1),
            ino,
            atime: Mtime(0),
            size: 0,
            target: None,
        };
        Entry { posix: Some(Box::new(posix)), changed: Some(Mtime(changed * NANOS)), ..Entry::dir(Key::new(key)) }
    }

    struct Lab(tempfile::TempDir, MemStore);

    impl Lab {
        fn run(&self, job: &Job) -> Arc<Paths> {
            let known =
                EarlierKnowledge { paths: Some(self.0.path().into()), whole: true, ..EarlierKnowledge::default() };
            Paths::new(&known, &self.1, job, &Filter::default())
        }

        /// Since when these directories have been there, in seconds, each in the one before; `None` for since now.
        fn since(paths: &Paths, dirs: &[Entry]) -> Vec<Option<i128>> {
            let begun = now();
            let mut above = i128::MIN;
            let since = dirs.iter().map(|dir| {
                let inode = dir.posix.as_deref().map(|posix| inode(posix, Some(((8, 1), 77))));
                above = paths.since(&dir.key, inode, dir.changed, above);
                (above < begun).then_some(above.max(0) / NANOS)
            });
            since.collect()
        }

        /// As `since`, in a run of its own, which ends well or not.
        fn of(&self, job: &Job, dirs: &[Entry], ends_well: bool) -> Vec<Option<i128>> {
            let paths = self.run(job);
            let since = Lab::since(&paths, dirs);
            paths.keep(ends_well).unwrap();
            since
        }
    }

    fn lab() -> Lab {
        Lab(tempfile::tempdir().unwrap(), MemStore::new())
    }

    #[test]
    fn what_is_not_noted_goes_by_its_inodes_times() {
        let lab = lab();
        let dirs = [dir("", 1, 100), dir("a/", 2, 50), dir("a/b/", 3, 200)];
        assert_eq!(lab.of(&Job::new(JOB), &dirs, false), [Some(100), Some(100), Some(200)]);
        // Seen since then at the same place: new names in it change nothing.
        let later = [dir("", 1, 900), dir("a/", 2, 900), dir("a/b/", 3, 900), dir("a/b/new/", 4, 900)];
        assert_eq!(lab.of(&Job::new(JOB), &later, false), [Some(100), Some(100), Some(200), Some(900)]);
    }

    #[test]
    fn a_replaced_directory_counts_from_now_until_a_run_compared_it() {
        let lab = lab();
        let (job, other) = (Job::new(JOB), Job::new(Verb::Copy));
        let at = |a, b| [dir("", 1, 100), dir("a/", a, 100), dir("a/b/", b, 100)];
        lab.of(&job, &at(2, 3), true);
        assert_eq!(
            lab.of(&job, &at(2, 3), true),
            [Some(0), Some(0), Some(0)],
            "compared, so as if it had always been there"
        );
        assert_eq!(
            lab.of(&other, &at(2, 3), false),
            [Some(100), Some(100), Some(100)],
            "another job compares other things"
        );
        assert_eq!(lab.of(&job, &at(12, 13), false), [Some(0), None, None]);
        assert_eq!(lab.of(&job, &at(12, 13), false)[0], Some(0));
        assert!(lab.of(&job, &at(12, 13), true)[1] != Some(0), "no run without an error has compared it yet");
        assert_eq!(lab.of(&job, &at(12, 13), true), [Some(0), Some(0), Some(0)]);
        assert_eq!(lab.of(&job, &at(2, 3), true), [Some(0), None, None], "nor is what was there before there still");
    }

    #[test]
    fn a_root_that_was_replaced_while_it_was_listed_is_not_believed() {
        let lab = lab();
        let job = Job::new(JOB);
        lab.of(&job, &[dir("", 1, 100)], true);
        let paths = lab.run(&job);
        Lab::since(&paths, &[dir("", 1, 100)]);
        paths.root_is(Some(5));
        paths.keep(true).unwrap();
        assert_eq!(lab.of(&job, &[dir("", 1, 100)], true), [None]);
    }

    #[test]
    fn another_source_is_another_place() {
        let lab = lab();
        let job = Job::new(JOB);
        lab.of(&job, &[dir("", 1, 100)], true);
        assert_eq!(lab.of(&job, &[dir("", 2, 50), dir("b/", 3, 50)], true), [None, None]);
        assert_eq!(lab.of(&job, &[dir("", 1, 100)], true), [None]);
        // Nobody has replaced a file that the other side doesn't have.
        assert_eq!(lab.of(&job, &[dir("", 2, 50), dir("b/", 3, 50)], true), [None, Some(0)]);
    }

    #[test]
    fn a_run_that_was_killed_after_it_saw_a_change_leaves_nothing_to_go_by() {
        let lab = lab();
        let job = Job::new(JOB);
        lab.of(&job, &[dir("", 1, 100), dir("a/", 2, 100)], true);
        // The change is noted before anything follows from it.
        Lab::since(&lab.run(&job), &[dir("", 1, 100), dir("a/", 12, 100)]);
        assert_eq!(lab.of(&job, &[dir("", 1, 100), dir("a/", 2, 100)], true), [None, None]);
        assert_eq!(lab.of(&job, &[dir("", 1, 100), dir("a/", 2, 100)], true), [Some(0), Some(0)]);
        // One that saw none was in the right.
        Lab::since(&lab.run(&job), &[dir("", 1, 100), dir("a/", 2, 100)]);
        assert_eq!(lab.of(&job, &[dir("", 1, 100)], true), [Some(0)]);
    }

    #[test]
    fn two_runs_that_disagree_leave_neither_right() {
        for ino in [2, 3] {
            let lab = lab();
            let job = Job::new(JOB);
            let (one, two) = (lab.run(&job), lab.run(&job));
            Lab::since(&one, &[dir("", 1, 100), dir("a/", 2, 100)]);
            Lab::since(&two, &[dir("", 1, 100), dir("a/", 3, 100)]);
            one.keep(true).unwrap();
            two.keep(true).unwrap();
            assert_eq!(lab.of(&job, &[dir("", 1, 100), dir("a/", ino, 100)], true), [Some(0), None]);
        }
    }

    #[test]
    fn an_unknown_directory_counts_from_now() {
        let lab = lab();
        let nothing = Entry::dir(Key::new(""));
        assert_eq!(lab.of(&Job::new(JOB), &[nothing], true), [None]);
        // Of a damaged file only its existence is known.
        lab.of(&Job::new(JOB), &[dir("", 1, 100)], true);
        let file = lab.run(&Job::new(JOB)).file.clone().unwrap();
        let mut bytes = state_folder::read(&file).unwrap();
        bytes[12] ^= 1;
        state_folder::replace(&file, |file| file.write_all(&bytes)).unwrap();
        assert_eq!(lab.of(&Job::new(JOB), &[dir("", 1, 100)], true), [None]);
    }

    #[test]
    fn a_job_is_the_same_only_if_it_compares_and_leaves_out_the_same() {
        let job = Job::new(JOB);
        let own = fingerprint(&job, &Filter::default());
        let faster = job.clone().with(|job| job.pace.transfers = Some(1));
        assert_eq!(own, fingerprint(&faster, &Filter::default()));
        let filter = Filter::new(FilterSpec { rules: vec!["- *.js".into()], ..FilterSpec::default() }).unwrap();
        assert_ne!(own, fingerprint(&job, &filter));
        let dry = job.clone().with(|job| job.dry_run = true);
        assert_eq!(own, fingerprint(&dry, &Filter::default()));
        let part = job.with(|job| job.listing.part = Part::Dirs(Arc::new([])));
        assert_eq!(fingerprint(&part, &Filter::default()), 0);
    }

    #[test]
    fn a_file_system_that_is_mounted_again_is_the_same() {
        let at = |dev| {
            let dir = dir("a/", 5, 1);
            inode(&Posix { dev, ..*dir.posix.unwrap() }, Some((dev, 77)))
        };
        assert_eq!(at((8, 1)), at((8, 2)));
        let below = *dir("a/", 5, 1).posix.unwrap();
        assert_ne!(inode(&below, Some(((8, 2), 77))), at((8, 1)), "another is mounted there");
    }

    #[tokio::test]
    async fn files_are_not_older_than_their_place_also_where_a_listing_begins_further_down() {
        let src = MemStore::new();
        let paths = lab().run(&Job::new(JOB));
        let file = |key: &str| Entry { changed: Some(Mtime(5 * NANOS)), ..Entry::file(Key::new(key), 1) };
        let batch = vec![dir("a/", 2, 20), file("a/x"), dir("a/b/", 3, 10), file("a/b/y"), file("a/z")];
        let begun = now();
        let raw = futures::stream::iter([Listed::Batch(batch), Listed::End]).boxed();
        let listed: Vec<_> = paths.listing(Arc::new(src), raw, false).collect().await;
        let Listed::Batch(entries) = &listed[0] else { panic!("a batch") };
        // The root can't be asked about here, so all of it counts as new.
        assert!(entries.iter().filter(|e| !e.is_dir()).all(|e| e.changed.is_some_and(|at| at.0 >= begun)));
        assert!(entries.iter().all(|e| e.posix.is_none()));
    }

    #[test]
    fn a_source_that_was_set_back_is_noticed() {
        let lab = lab();
        let root = [dir("", 1, 10)];
        let ends = |job: &Job, newest: i128, compared: bool| {
            let paths = lab.run(job);
            let since = Lab::since(&paths, &root);
            paths.note_present(newest * NANOS);
            (since[0].is_some(), paths.keep(compared).unwrap())
        };
        let (job, other) = (Job::new(JOB), Job::new(Verb::Copy));
        assert_eq!(ends(&job, 20, true), (true, false));
        assert_eq!(ends(&job, 20, true), (true, false));
        assert_eq!(ends(&job, 30, true), (true, false));
        // Another job may be about less of it, and one that broke off saw less.
        assert_eq!(ends(&job, 15, false), (true, false));
        assert_eq!(ends(&job, 15, true), (true, true));
        // The next run believes nothing, and then all is as before.
        assert_eq!(ends(&job, 15, true), (false, false));
        assert!(!ends(&job, 16, true).1);
        assert!(!ends(&other, 12, true).1);
        assert!(!ends(&job, 16, true).1);
    }
}
