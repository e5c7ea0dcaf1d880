//! Small jobs for the tests of single stages of the planner, and of the executor's owners.

use crate::{
    Cx, Totals,
    attributes::Attributes,
    backup::Backup,
    budget::Budget,
    destination_index::Index,
    execute::Executor,
    ledger::Ledger,
    plan::{Outlet, Planner},
    transfer::Mover,
};
use bytes::Bytes;
use haul_core::{
    Entry, Key, Mtime, Posix,
    event::{Event, Sink},
    filter::{
        Filter,
        first_match::{Builder, RuleFiles, SelectedNames, Selection},
    },
    job::{Job, Verb},
    plan::{Action, Step},
};
use haul_mem::MemStore;
use haul_store::{LateFacts, Payload, Store, WriteSpec};
use std::sync::{Arc, Mutex};

/// Job, surroundings and ledger of a stage under test, and its events.
pub(crate) struct Sample {
    pub job: Arc<Job>,
    pub cx: Cx,
    pub ledger: Arc<Ledger>,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Sink for Heard {
    fn emit(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Sample {
    /// A job between two stores.
    pub fn new(job: Job, src: MemStore, dst: MemStore) -> Sample {
        let heard = Arc::<Heard>::default();
        let cx = Cx { sink: heard.clone(), ..Cx::between(Arc::new(src), Arc::new(dst)) };
        let ledger = Arc::new(Ledger::new(cx.sink.clone(), cx.cancel.clone(), cx.filter.clone(), job.dry_run));
        Sample { job: Arc::new(job), cx, ledger, heard }
    }

    /// A job between two empty buckets.
    pub fn of(job: Job) -> Sample {
        Sample::new(job, MemStore::new(), MemStore::new())
    }

    /// This with a filter.
    pub fn with(mut self, filter: Filter) -> Sample {
        self.cx.filter = Arc::new(filter);
        self
    }

    /// As stages take it.
    pub fn parts(&self) -> (&Arc<Job>, &Cx, &Arc<Ledger>) {
        (&self.job, &self.cx, &self.ledger)
    }

    /// What moves the bytes of this job.
    pub fn mover(&self) -> Mover {
        Mover {
            cx: self.cx.clone(),
            job: self.job.clone(),
            budget: Budget::new(&self.job, &*self.cx.src, &*self.cx.dst),
            keep: None,
            backup: Backup::default(),
            allowance: None,
        }
    }

    /// Work so far.
    pub fn totals(&self) -> Totals {
        self.ledger.report().totals.clone()
    }

    /// Errors so far.
    pub fn errors(&self) -> u64 {
        self.ledger.report().error_count
    }

    /// How many of the events so far are such.
    pub fn heard(&self, is_such: impl Fn(&Event) -> bool) -> usize {
        self.heard.0.lock().unwrap().iter().filter(|event| is_such(event)).count()
    }
}

/// A job with this verb, changed.
pub(crate) fn job(verb: Verb, change: impl FnOnce(&mut Job)) -> Job {
    Job::new(verb).with(change)
}

/// A file of one byte.
pub(crate) fn file(key: &str) -> Entry {
    Entry::file(Key::new(key), 1)
}

/// A directory.
pub(crate) fn dir(key: &str) -> Entry {
    Entry::dir(Key::new(key))
}

/// A symlink.
pub(crate) fn symlink(key: &str) -> Entry {
    Entry::with_bytes(Key::symlink(key), 1)
}

/// Facts of an inode with this number and as many names.
pub(crate) fn posix(ino: u64, nlink: u32) -> Option<Box<Posix>> {
    let none = (0, 0);
    let (mode, atime) = (0o100_644, Mtime(0));
    Some(Box::new(Posix { mode, uid: 0, gid: 0, rdev: none, nlink, dev: none, ino, atime, size: 0, target: None }))
}

/// True if the store has this.
pub(crate) async fn has(store: &Arc<dyn Store>, key: &str) -> bool {
    store.stat(&Key::new(key)).await.is_ok()
}

/// A store that behaves like a disk.
pub(crate) fn disk() -> MemStore {
    MemStore::new().with_caps(|caps| (caps.dirs, caps.symlinks) = (true, true))
}

/// Writes a file of one byte; below a directory that exists, if the store has such.
pub(crate) async fn put(store: &MemStore, key: &str) {
    let upload = store.write(&Key::new(key), WriteSpec::default()).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from("x"))).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
}

#[derive(Debug)]
struct NoFiles;

impl RuleFiles for NoFiles {
    fn of_dir(&self, _: &[u8], _: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn named(&self, _: &[u8]) -> Result<Vec<u8>, String> {
        Err("there are no files of rules".into())
    }
}

/// An executor of this job.
pub(crate) fn executor(sample: &Sample) -> Arc<Executor> {
    let (attributes, index) = (Arc::<Attributes>::default(), Arc::<Index>::default());
    let planner = Arc::new(Planner::new(sample.parts(), &attributes, &index, 1, None));
    Arc::new(Executor::new(&sample.ledger, &attributes, &index, &planner, sample.mover(), None))
}

/// A filter by rules of which the first match counts, over these names alone if some are given.
pub(crate) fn first_match(rules: &[&str], only: &[&str], min_size: Option<u64>) -> Filter {
    let mut builder = Builder::new(b"/".to_vec(), Arc::new(NoFiles), false, false);
    rules.iter().for_each(|rule| builder.filter(rule.as_bytes()).unwrap());
    let names = only.iter().map(|name| name.as_bytes().to_vec()).collect();
    let only = (!only.is_empty()).then(|| SelectedNames::new(names, true));
    let unlisted = only.is_some();
    let selection = Selection::new(builder.build(), only, Vec::new()).with_unlisted_parents(unlisted);
    Filter::first_match(selection, min_size, None)
}

/// Keeps the steps that it takes.
#[derive(Clone, Default)]
pub(crate) struct Taken(Arc<Mutex<Vec<Step>>>);

impl Outlet for Taken {
    async fn take(&self, step: Step) {
        self.0.lock().unwrap().push(step);
    }
}

impl Taken {
    /// The steps so far, by action and key.
    pub fn steps(&self) -> Vec<(Action, String)> {
        let steps = self.0.lock().unwrap();
        steps.iter().map(|step| (step.action, step.key().map(Key::to_string).unwrap_or_default())).collect()
    }
}
