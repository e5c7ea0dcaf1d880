//! State that a job leaves for the next run of the same command: the multipart writes it began, how they are found
//! again, and which of their parts have arrived. One file a job, in a folder that the caller names; created when the first
//! large file begins, deleted when the job ends without unfinished writes. The format is in docs/adr/0007-journal.md.
//!
//! Not for small files, which take one request, nor for finished ones: the next run's comparison finds those.

mod file;
mod record;
mod writer;

pub use record::{JobInfo, StartedWrite, UnfinishedWrite, WriteNumber};

use haul_core::{Algo, Error, ErrorKind, Hasher, Key, Result, filter::FilterSpec, hash::to_hex, job::Verb};
use haul_store::{SentPart, Store};
use record::{Contents, Record};
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};
use writer::{Target, Writer};

/// Ending of a journal's name.
const ENDING: &str = "journal";

/// The name of a job: the same for the same command between the same places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(String);

impl JobId {
    /// The name of the job that does `verb` from `src` to `dst`, to what `filter` takes; of one file, when `one` names
    /// it on both sides. How the job goes about it (how many at once, which limits) makes no other job; nor does a limit
    /// of age, which is another one each time.
    pub fn new(verb: Verb, src: &dyn Store, dst: &dyn Store, filter: &FilterSpec, one: Option<(&Key, &Key)>) -> JobId {
        let mut hasher = Hasher::new(&[Algo::Blake3]);
        let mut field = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        field(mode_name(verb).as_bytes());
        for store in [src, dst] {
            // A path may be typed in many ways, but names one place.
            match &store.caps().domain {
                Some(domain) => [domain.name.as_bytes(), &domain.place].map(&mut field),
                None => [b"", store.locator().as_bytes()].map(&mut field),
            };
        }
        one.iter().for_each(|(from, to)| [from, to].iter().for_each(|key| field(key.as_bytes())));
        filter.rules.iter().for_each(|rule| field(rule.as_bytes()));
        field(format!("{:?}", (filter.min_size, filter.max_size, filter.ignore_case)).as_bytes());
        filter.partition.iter().for_each(|part| field(part.to_string().as_bytes()));
        filter.meta_rules.iter().for_each(|rule| field(rule.as_bytes()));
        filter.exclude_if_present.iter().for_each(|name| field(name.as_bytes()));
        filter.files_from.iter().flatten().for_each(|name| field(name));
        let hash = hasher.finish();
        // 64 bits: two jobs of one name are not to be feared among the few that are unfinished.
        JobId(to_hex(&hash.get(Algo::Blake3).unwrap_or_default()[..8]))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A mode's word in journals.
pub fn mode_name(verb: Verb) -> &'static str {
    match verb {
        Verb::Copy => "copy",
        Verb::Sync => "sync",
        Verb::Move => "move",
        Verb::Check => "check",
    }
}

/// The journal of a job under way, or of one that another process left. Clones are the same journal; while there is one,
/// no other process can open it.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    job: JobInfo,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Writes of earlier runs that this one has not come to.
    left: Vec<UnfinishedWrite>,
    /// Writes that this run began or resumed, and that have not ended.
    open: BTreeMap<WriteNumber, UnfinishedWrite>,
    next: WriteNumber,
    /// It could not be written: nothing more is noted.
    failed: bool,
    /// The file, if it existed: the writer takes it.
    file: Option<std::fs::File>,
    writer: Option<Writer>,
}

impl State {
    /// Counts writes as under way, so that they aren't lost if nobody closes them.
    fn open(&mut self, taken: Vec<UnfinishedWrite>) -> Vec<UnfinishedWrite> {
        self.open.extend(taken.iter().map(|half| (half.write, half.clone())));
        taken
    }
}

impl Journal {
    /// The journal of the job `id` in `folder`, with the writes that earlier runs left. Without any, nothing is created yet. `job` is
    /// recorded in a new journal.
    ///
    /// Errors: `Busy` when another process does the same job; `Unsupported` when another version of haul wrote it; those
    /// of reading it.
    pub fn open(folder: &Path, id: &JobId, job: JobInfo) -> Result<Journal> {
        let path = path(folder, id);
        let found = file::open(&path)?;
        let was = found.as_ref().map(|found| found.contents.job.as_ref().map(|job| job.host.clone()));
        let host = job.host.clone();
        let mut journal = Journal::of(path, found, job);
        match was {
            // Damaged at its beginning, so that nothing in it is believed: it begins anew.
            Some(None) => journal.append(Record::Job(journal.0.job.clone())),
            // It runs on another host.
            Some(Some(was)) if was != host => {
                if let Some(shared) = Arc::get_mut(&mut journal.0) {
                    shared.job.host = host;
                }
                journal.append(Record::Job(journal.0.job.clone()));
            }
            _ => {}
        }
        Ok(journal)
    }

    /// The journal that a run of the job `id` left; `None` when there is none.
    ///
    /// Errors: as for [`Journal::open`]; `Corrupt` when it doesn't even name its job.
    pub fn find(folder: &Path, id: &JobId) -> Result<Option<Journal>> {
        let path = path(folder, id);
        let Some(found) = file::open(&path)? else { return Ok(None) };
        let job = found.contents.job.clone().ok_or_else(|| nameless(&path))?;
        Ok(Some(Journal::of(path, Some(found), job)))
    }

    fn of(path: PathBuf, found: Option<file::ExistingJournal>, mut job: JobInfo) -> Journal {
        let mut state = State::default();
        if let Some(file::ExistingJournal { file, contents }) = found {
            (state.left, state.next, state.file) = (contents.halves(), contents.next, Some(file));
            job = contents.job.unwrap_or(job);
        }
        Journal(Arc::new(Shared { path, job, state: Mutex::new(state) }))
    }

    /// The journal's job.
    pub fn job(&self) -> &JobInfo {
        &self.0.job
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// True while a half-done write to `to` waits to be taken.
    pub fn holds(&self, to: &Key) -> bool {
        self.state().left.iter().any(|half| half.opened.to == *to)
    }

    /// Takes the half-done writes to `to` that earlier runs left: to resume one, or to remove it and say so
    /// ([`Journal::closed`]).
    pub fn take(&self, to: &Key) -> Vec<UnfinishedWrite> {
        let mut state = self.state();
        let (taken, left) = std::mem::take(&mut state.left).into_iter().partition(|half| half.opened.to == *to);
        state.left = left;
        state.open(taken)
    }

    /// Takes all that earlier runs left and this one has not come to.
    pub fn take_rest(&self) -> Vec<UnfinishedWrite> {
        let mut state = self.state();
        let taken = std::mem::take(&mut state.left);
        state.open(taken)
    }

    /// Notes the begin of a multipart write. When this resolves it is durable: a part may be sent, and the next run will find it.
    ///
    /// Errors: the journal can't be written. That is reported once; after it, nothing is noted (`None`).
    pub async fn opened(&self, opened: StartedWrite) -> Result<Option<WriteNumber>> {
        let (write, barrier) = {
            let mut state = self.state();
            if state.failed {
                return Ok(None);
            }
            let write = state.next;
            state.next += 1;
            state.open.insert(write, UnfinishedWrite { write, opened: opened.clone(), sent: Vec::new() });
            let writer = self.writer(&mut state)?;
            writer.append(Record::Opened(write, opened).to_bytes());
            (write, writer.barrier())
        };
        let Err(error) = barrier.await else { return Ok(Some(write)) };
        let mut state = self.state();
        state.open.remove(&write);
        // Others may have waited for the same failure.
        if std::mem::replace(&mut state.failed, true) { Ok(None) } else { Err(error) }
    }

    /// A part of a write is at the destination. Doesn't wait.
    pub fn part(&self, write: WriteNumber, sent: SentPart) {
        if let Some(half) = self.state().open.get_mut(&write) {
            match half.sent.binary_search_by_key(&sent.part.index, |before| before.part.index) {
                Ok(at) => half.sent[at] = sent.clone(),
                Err(at) => half.sent.insert(at, sent.clone()),
            }
        }
        self.append(Record::Part(write, sent));
    }

    /// A write was published, or given up and removed. Doesn't wait.
    pub fn closed(&self, write: WriteNumber) {
        self.state().open.remove(&write);
        self.append(Record::Closed(write));
    }

    /// True when some part of a write under way is at the destination.
    pub fn has_parts(&self, write: WriteNumber) -> bool {
        self.state().open.get(&write).is_some_and(|half| !half.sent.is_empty())
    }

    /// How a write under way was begun.
    pub fn begun_as(&self, write: WriteNumber) -> Option<StartedWrite> {
        self.state().open.get(&write).map(|half| half.opened.clone())
    }

    /// Bytes at the destination of a file whose write was left as it is.
    pub fn bytes_left(&self, to: &Key) -> u64 {
        self.state().left.iter().filter(|half| half.opened.to == *to).map(UnfinishedWrite::bytes).max().unwrap_or(0)
    }

    /// A write under way is left as it is, for another attempt or run to take.
    pub fn kept(&self, write: WriteNumber) {
        let mut state = self.state();
        let half = state.open.remove(&write);
        state.left.extend(half);
    }

    fn append(&self, record: Record) {
        let mut state = self.state();
        // A write failure is reported where somebody waits.
        if let Ok(writer) = self.writer(&mut state) {
            writer.append(record.to_bytes());
        }
    }

    fn writer<'s>(&self, state: &'s mut State) -> Result<&'s Writer> {
        let writer = match state.writer.take() {
            Some(writer) => writer,
            None => {
                let (path, file) = (self.0.path.clone(), state.file.take());
                Writer::start(Target { path, file, start: start(&self.0.job) })?
            }
        };
        Ok(state.writer.insert(writer))
    }

    /// How many writes are half done, of this run and earlier ones, and the bytes of them that are at the destination.
    pub fn half_done(&self) -> (usize, u64) {
        let state = self.state();
        let halves = || state.open.values().chain(&state.left);
        (halves().count(), halves().map(UnfinishedWrite::bytes).sum())
    }

    /// Notes the job's end: without unfinished writes the journal is deleted, else its contents are durable.
    ///
    /// Errors: it can't be written or deleted.
    pub async fn end(&self) -> Result<()> {
        let end = {
            let mut state = self.state();
            if state.writer.is_none() && state.file.is_none() {
                return Ok(());
            }
            let delete = state.open.is_empty() && state.left.is_empty();
            let writer = self.writer(&mut state)?;
            writer.append(Record::End.to_bytes());
            let end = writer.end(delete);
            state.writer = None;
            end
        };
        end.await
    }
}

/// A job that left a journal.
#[derive(Clone, Debug)]
pub struct UnfinishedJob {
    /// Its name.
    pub id: JobId,
    /// The job.
    pub job: JobInfo,
    /// Its half-done writes.
    pub halves: Vec<UnfinishedWrite>,
    /// A process is doing it now.
    pub running: bool,
    /// It came to its own end: stopped, or with errors. Else it was killed.
    pub ended: bool,
}

/// The jobs in `folder` that have not ended, by when they began; and why some journals can't be read.
///
/// Errors: the folder can't be read. That there is none is no error.
pub fn unfinished(folder: &Path) -> Result<(Vec<UnfinishedJob>, Vec<Error>)> {
    let (mut jobs, mut unreadable) = (Vec::new(), Vec::new());
    for path in file::names(folder, ENDING)? {
        let id = JobId(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        match file::look(&path) {
            // Nothing was begun: its first record is durable before the first part is sent.
            Ok((contents, _)) if contents.is_empty => {}
            Ok((contents, running)) => match job_of(&path, &contents) {
                Ok(job) => {
                    let (halves, ended) = (contents.halves(), contents.ended);
                    jobs.push(UnfinishedJob { id, job, halves, running, ended });
                }
                Err(error) => unreadable.push(error),
            },
            // It ended just now.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => unreadable.push(error),
        }
    }
    jobs.sort_by(|a, b| (a.job.begun, &a.id).cmp(&(b.job.begun, &b.id)));
    Ok((jobs, unreadable))
}

fn job_of(path: &Path, contents: &Contents) -> Result<JobInfo> {
    contents.job.clone().ok_or_else(|| nameless(path))
}

fn nameless(path: &Path) -> Error {
    let message = format!("{} is damaged and doesn't say of which job it is: delete it", path.display());
    Error::new(ErrorKind::Corrupt, "journal", message)
}

fn path(folder: &Path, id: &JobId) -> PathBuf {
    folder.join(&id.0).with_extension(ENDING)
}

/// The first bytes of a new journal.
fn start(job: &JobInfo) -> Vec<u8> {
    [record::header(), Record::Job(job.clone()).to_bytes()].concat()
}

#[cfg(test)]
mod tests;
