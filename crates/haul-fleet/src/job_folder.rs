//! The job's folder in its store: the only thing that workers share.
//!
//! `spec`, and by the job's id `ID/cancelled`, `ID/done/SHARD`, `ID/failed/SHARD`, `ID/idle/WORKER`, `ID/signs/WORKER` and
//! `ID/shards/SHARD/NUMBER`. One listing shows all of it. Only `spec` and the records of shards matter; what is in `done` saves
//! questions, what is in `failed` saves work on files that are lost already, and each sign belongs to its worker.
//!
//! The id is in the keys because a folder may be removed and another job made there while a worker of the first still writes: what
//! two jobs write never meets.

use crate::{
    outcome::WorkDone,
    protocol::{Lease, LifeSign, LookResult, Meaning, Record, ShardId, WorkerId, WriteResult, meaning},
    spec::{FORMAT, Spec},
};
use bytes::Bytes;
use futures::StreamExt;
use haul::pipe;
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Result, Retry, Version, plan::Replace};
use haul_store::{LateFacts, ListRequest, Payload, Store, WriteSpec};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Operation name in errors when the job is missing.
const LOOK: &str = "look";
/// Where a job's spec is.
const SPEC: &str = "spec";

/// How often a record is written again whose answer was lost, before the store is taken to be out of order.
const TRIES: u32 = 10;

/// A folder that has a job, or is to have one.
#[derive(Clone, Debug)]
pub struct Folder {
    store: Arc<dyn Store>,
    requests: Arc<AtomicU64>,
}

/// Records of one job in its folder.
#[derive(Clone, Debug)]
pub struct Board {
    folder: Folder,
    /// The job's id: other jobs' records are not seen.
    job: String,
    /// Records are written without conditions: each shard has one worker that may write.
    fixed: bool,
    /// The version of the spec that was last seen to be this job's: while a listing shows it, the spec needn't be read.
    seen: Arc<Mutex<Option<Version>>>,
}

/// State of one job, as a listing of the folder shows it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Somebody has cancelled the job.
    pub cancelled: bool,
    /// Shards that are surely done.
    pub done: BTreeSet<ShardId>,
    /// Large files of which a range has failed.
    pub failed: BTreeSet<ShardId>,
    /// Workers that wait for something to do.
    pub idle: BTreeSet<WorkerId>,
    /// Signs of life.
    pub signs: BTreeMap<WorkerId, LifeSign>,
    /// The number of each shard's last record.
    pub latest: BTreeMap<ShardId, u64>,
}

fn unreadable(key: &Key, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, "read", format!("it can't be understood: {why}")).with_key(key)
}

impl Folder {
    /// The folder at the root of `store`.
    pub fn new(store: Arc<dyn Store>) -> Folder {
        Folder { store, requests: Arc::default() }
    }

    /// Where it is, as a user would type it.
    pub fn locator(&self) -> &str {
        self.store.locator()
    }

    /// Requests so far, as a bucket counts them.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Entry>> {
        let mut listing = self.store.list(ListRequest { prefix: prefix.into(), ..ListRequest::all() });
        let mut all = Vec::new();
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => all.extend(entries.into_iter().filter(|entry| !entry.is_dir())),
                // A folder without any file yet, or a removed one: not every store marks this as the end.
                Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => return Ok(all),
                // A sign of life that its worker removed meanwhile is not missed.
                Listed::Failed { error, .. } if error.kind() == ErrorKind::NotFound => {}
                Listed::Vanished(_) => {}
                Listed::Failed { error, .. } => return Err(error),
                Listed::End => {
                    let pages = self.store.caps().page.map_or(1, |page| all.len().div_ceil(page.max(1)).max(1));
                    self.requests.fetch_add(pages as u64, Relaxed);
                    return Ok(all);
                }
            }
        }
        Err(Error::new(ErrorKind::Io, "list", "the listing of the job's directory broke off"))
    }

    /// The job.
    ///
    /// Errors: there is none; it is of a later format.
    pub async fn spec(&self) -> Result<Spec> {
        let key = Key::new(SPEC);
        let Some(spec) = self.read::<serde_json::Value>(&key).await? else {
            let message = format!("there is no job of haul fleet at {}", self.locator());
            return Err(Error::new(ErrorKind::NotFound, "find", message));
        };
        let format = spec.get("format").and_then(serde_json::Value::as_u64);
        if format != Some(u64::from(FORMAT)) {
            let message = format!("the job at {} was made by another version of haul: use the same", self.locator());
            return Err(Error::new(ErrorKind::Invalid, "find", message));
        }
        serde_json::from_value(spec).map_err(|e| unreadable(&key, e))
    }

    async fn read<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        self.requests.fetch_add(1, Relaxed);
        let mut bytes = match pipe::read(&self.store, &Entry::file(key.clone(), 0), None).await {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        while let Some(piece) = bytes.next().await {
            text.extend_from_slice(&piece?);
        }
        serde_json::from_slice(&text).map(Some).map_err(|e| unreadable(key, e))
    }

    async fn put(&self, key: &Key, text: Vec<u8>, replace: Replace) -> Result<()> {
        self.requests.fetch_add(1, Relaxed);
        let spec = WriteSpec { size: Some(text.len() as u64), replace, ..WriteSpec::default() };
        let upload = self.store.write(key, spec).await?;
        let part = upload.part(0, 0, Payload::from(Bytes::from(text))).await?;
        match upload.publish(vec![part], LateFacts::default()).await {
            Ok(_) => Ok(()),
            Err(failed) => {
                // A leftover upload is hidden, and of a few hundred bytes.
                let _ = failed.upload.abort().await;
                Err(failed.error)
            }
        }
    }

    async fn create(&self, key: &Key, value: &impl Serialize, replace: Replace) -> Result<WriteResult> {
        let text = serde_json::to_vec(value).map_err(|e| Error::new(ErrorKind::Invalid, "write", e.to_string()))?;
        match self.put(key, text, replace).await {
            Ok(()) => Ok(WriteResult::Created),
            Err(error) if matches!(error.kind(), ErrorKind::Exists | ErrorKind::Changed) => Ok(WriteResult::Exists),
            // It may have arrived. A store that will never take it says so when it is tried again.
            Err(error) if error.kind() != ErrorKind::Cancelled && error.retry() != Retry::Never => {
                Ok(WriteResult::Lost)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates the job. False if there is one already. Finds out whether the store supports conditional writes: if it doesn't, the job's
    /// shards belong to workers by number.
    ///
    /// Errors: of the store.
    pub async fn make(&self, spec: &mut Spec) -> Result<bool> {
        let key = Key::new(SPEC);
        if self.read::<serde_json::Value>(&key).await?.is_some() {
            return Ok(false);
        }
        if !spec.fixed {
            spec.fixed = !self.keeps_conditions().await?;
        }
        match self.create(&key, spec, Replace::Absent).await? {
            WriteResult::Created => Ok(true),
            WriteResult::Exists => Ok(false),
            WriteResult::Lost => Ok(self.spec().await?.id == spec.id),
        }
    }

    /// Tries whether the store refuses a second object of one name.
    async fn keeps_conditions(&self) -> Result<bool> {
        if !self.store.caps().conditional {
            return Ok(false);
        }
        let key = Key::new("probe");
        // Of an answer that was lost nothing is known, but that the object may be there.
        let refused = |error: Error| match error.kind() {
            ErrorKind::Unsupported => {
                let message = format!(
                    "{} refuses writes on a condition, which its remote is set to have: set a provider without them (provider = Other \
                     in an S3 remote), and workers are told apart by number",
                    self.store.locator()
                );
                Error::new(ErrorKind::Unsupported, "create", message)
            }
            _ => error,
        };
        for _ in 0..TRIES {
            if self.create(&key, &0, Replace::Absent).await.map_err(refused)? == WriteResult::Lost {
                continue;
            }
            let answer = self.create(&key, &1, Replace::Absent).await?;
            if answer != WriteResult::Lost {
                self.remove(&key).await?;
                return Ok(answer == WriteResult::Exists);
            }
        }
        let message = "the store gave no answer from which to tell whether it keeps conditions: try again";
        Err(Error::new(ErrorKind::Unreachable, "create", message))
    }

    async fn remove(&self, key: &Key) -> Result<()> {
        self.requests.fetch_add(1, Relaxed);
        self.store.delete(vec![(key.clone(), None)]).await.into_iter().collect()
    }
}

impl Board {
    /// Access to the records of this spec's job in the folder.
    pub fn new(folder: Folder, spec: &Spec) -> Board {
        Board { folder, job: spec.id.clone(), fixed: spec.fixed, seen: Arc::default() }
    }

    /// Where it is, as a user would type it.
    pub fn locator(&self) -> &str {
        self.folder.locator()
    }

    /// Requests so far, as a bucket counts them.
    pub fn requests(&self) -> u64 {
        self.folder.requests()
    }

    fn key(&self, path: &str) -> Key {
        Key::new(format!("{}/{path}", self.job))
    }

    /// Where a shard's record is in the folder.
    pub(crate) fn record_key(&self, id: &ShardId, number: u64) -> Key {
        self.key(&format!("shards/{id}/{number:010}"))
    }

    /// One look at all records.
    ///
    /// Errors: of the listing; a listing that broke off; the job was removed ([`is_removed`]), whether another one exists or not.
    pub async fn look(&self) -> Result<View> {
        let (mut view, mut spec) = (View::default(), None);
        for entry in self.folder.list("").await? {
            let Ok(path) = std::str::from_utf8(entry.key.as_bytes()) else { continue };
            match path.split_once('/') {
                None if path == SPEC => spec = Some(entry.version),
                Some((job, path)) if job == self.job => view.take(path, &entry),
                _ => {}
            }
        }
        match spec {
            Some(version) => self.check_version(version).await?,
            None => return Err(self.removed()),
        }
        Ok(view)
    }

    async fn check_version(&self, version: Option<Version>) -> Result<()> {
        let seen = || self.seen.lock().unwrap_or_else(|e| e.into_inner());
        if version.is_some() && *seen() == version {
            return Ok(());
        }
        self.check().await?;
        *seen() = version;
        Ok(())
    }

    /// Checks that this job is still the folder's.
    ///
    /// Errors: it was removed ([`is_removed`]), whether another one exists or not; those of the store.
    pub async fn check(&self) -> Result<()> {
        let spec = self.folder.read::<serde_json::Value>(&Key::new(SPEC)).await?;
        let id = spec.as_ref().and_then(|spec| spec.get("id")).and_then(serde_json::Value::as_str);
        if id == Some(&self.job) { Ok(()) } else { Err(self.removed()) }
    }

    fn removed(&self) -> Error {
        Error::new(ErrorKind::NotFound, LOOK, format!("the job at {} was removed", self.locator()))
    }

    /// The number of a shard's last record.
    ///
    /// Errors: of the listing.
    pub async fn latest(&self, id: &ShardId) -> Result<Option<u64>> {
        let entries = self.folder.list(&format!("{}/shards/{id}/", self.job)).await?;
        Ok(entries.iter().filter_map(|entry| number(entry.key.name())).max())
    }

    /// A shard's record; `None` if there is none of that number.
    ///
    /// Errors: it can't be read.
    pub async fn record(&self, id: &ShardId, number: u64) -> Result<Option<Record<WorkDone>>> {
        self.folder.read(&self.record_key(id, number)).await
    }

    /// Writes a record, and finds out what became of it if the answer doesn't say. True if it stands, false if another's does.
    ///
    /// Errors: the store can't be asked.
    pub async fn write(&self, lease: &Lease<WorkDone>) -> Result<bool> {
        let key = self.record_key(&lease.id, lease.number);
        let replace = if self.fixed { Replace::Anything } else { Replace::Absent };
        for _ in 0..TRIES {
            match meaning(self.folder.create(&key, &lease.record, replace.clone()).await?) {
                Meaning::Stands => return Ok(true),
                Meaning::Look => match self.folder.read(&key).await {
                    // Nobody can build on it, whoever wrote it.
                    Err(error) if is_spoiled(&error) => return Ok(false),
                    there => match lease.found(there?.as_ref()) {
                        LookResult::Stands => return Ok(true),
                        LookResult::Lost => return Ok(false),
                        LookResult::Again => {}
                    },
                },
            }
        }
        Err(Error::new(ErrorKind::Io, "write", "the store took a record again and again, but doesn't have it")
            .with_key(&key))
    }

    /// Makes sure that the shards split off by this record exist: nobody may build on it before.
    ///
    /// Errors: of the store.
    pub async fn create_split_shards(&self, lease: &Lease<WorkDone>) -> Result<()> {
        for child in lease.births() {
            // Somebody else may have seen to it.
            self.write(&child).await?;
        }
        Ok(())
    }

    /// Writes a sign of life; each must differ from the one before.
    ///
    /// Errors: of the store.
    pub async fn sign(&self, worker: &WorkerId, text: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(text).map_err(|e| Error::new(ErrorKind::Invalid, "write", e.to_string()))?;
        self.folder.put(&self.key(&format!("signs/{}", worker.0)), text, Replace::Anything).await
    }

    /// Notes that this worker waits for work, or no longer.
    ///
    /// Errors: of the store.
    pub async fn idle(&self, worker: &WorkerId, waits: bool) -> Result<()> {
        let key = self.key(&format!("idle/{}", worker.0));
        match waits {
            true => self.folder.put(&key, Vec::new(), Replace::Anything).await,
            false => self.folder.remove(&key).await,
        }
    }

    /// Removes a worker's sign of life: it has ended.
    ///
    /// Errors: of the store.
    pub async fn leave(&self, worker: &WorkerId) -> Result<()> {
        self.folder.remove(&self.key(&format!("signs/{}", worker.0))).await
    }

    /// Notes that a shard is done, so that nobody need read its records to know.
    ///
    /// Errors: of the store.
    pub async fn note_done(&self, id: &ShardId) -> Result<()> {
        self.folder.put(&self.key(&format!("done/{id}")), Vec::new(), Replace::Anything).await
    }

    /// Notes that a range of this large file has failed, so that nobody need transfer the others.
    ///
    /// Errors: of the store.
    pub async fn note_failed(&self, id: &ShardId) -> Result<()> {
        self.folder.put(&self.key(&format!("failed/{id}")), Vec::new(), Replace::Anything).await
    }

    /// Cancels the job.
    ///
    /// Errors: of the store.
    pub async fn cancel(&self) -> Result<()> {
        self.folder.put(&self.key("cancelled"), Vec::new(), Replace::Anything).await
    }
}

/// True for the error of a look or check that found no job of that id in its folder any more.
pub fn is_removed(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && error.op() == LOOK
}

/// True for an error after which this process can read no record, rather than not this one.
pub(crate) fn is_of_worker(error: &Error) -> bool {
    use ErrorKind::{Cancelled, Unauthenticated, Unreachable};
    matches!(error.kind(), Cancelled | Unauthenticated | Unreachable)
}

/// True for an error of reading a record that any other worker would get as well.
pub(crate) fn is_spoiled(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt || error.kind() == ErrorKind::Io && error.retry() == Retry::Never
}

fn number(name: &[u8]) -> Option<u64> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

impl View {
    /// Takes in what is at this path of the job.
    fn take(&mut self, path: &str, entry: &Entry) {
        match path.split('/').collect::<Vec<_>>()[..] {
            ["cancelled"] => self.cancelled = true,
            ["failed", id] => _ = self.failed.insert(ShardId(id.into())),
            ["done", id] => _ = self.done.insert(ShardId(id.into())),
            ["idle", worker] => _ = self.idle.insert(WorkerId(worker.into())),
            ["signs", worker] => _ = self.signs.insert(WorkerId(worker.into()), entry.version.clone()),
            ["shards", id, record] => {
                let Some(number) = number(record.as_bytes()) else { return };
                let latest = self.latest.entry(ShardId(id.into())).or_default();
                *latest = number.max(*latest);
            }
            _ => {}
        }
    }
}
