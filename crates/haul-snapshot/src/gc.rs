//! Freeing content that no version refers to. Nothing is deleted unless every version was read, every listing came to its end,
//! and nobody is pushing; lists go before the content that they promise. What is cut short leaves a remote that is right, and
//! the next run goes on. [ADR 15](../../../docs/adr/0015-freeing-content.md) says why so.

use crate::{
    check::referred,
    marks::{self, Mark, MarkKind, Marks, OtherMarks, RENEWED, listed},
    name,
    pull::VerifiedVersion,
    versions::{self, REMOVED},
};
use futures::future::BoxFuture;
use haul::Cancel;
use haul_cas::{
    address::{Address, Layout},
    remote::{all_of, each},
};
use haul_core::{Error, ErrorKind, Key, Mtime, Result};
use haul_store::{ListRequest, Store};
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// Where content is.
const CONTENT: &str = "files/md5/";
/// Content deleted by one call: as much as one request of the widest store takes.
const BATCH: usize = 1000;
/// How often a push that seems to run is looked for again: one that finds this run's mark withdraws its own and waits.
const LOOKS: u32 = 5;
/// Between two such looks.
const PAUSE: Duration = Duration::from_secs(2);
/// Clients of network file systems show a folder as it was up to a minute ago.
const LATE: Duration = Duration::from_secs(65);

/// How to free.
#[derive(Clone, Debug)]
pub struct GcOptions {
    /// The machine and process, for whoever finds the mark.
    pub by: String,
    /// The time.
    pub now: Mtime,
    /// So long passes between the mark and the first deletion at least; `None` leaves it to the kind of store.
    pub settle: Option<Duration>,
    /// Delete even if DVC seems to keep content on this remote too.
    pub despite_dvc: bool,
    /// Take all marks that are there at the beginning for those of dead processes.
    pub ignore_marks: bool,
}

/// Content that nothing refers to.
#[derive(Debug, Default)]
pub struct Plan {
    /// DVC's lists, with sizes in bytes.
    pub dirs: Vec<(Address, u64)>,
    /// Other content.
    pub files: Vec<(Address, u64)>,
    /// Versions that were read.
    pub versions: usize,
    /// Content that versions refer to, and its bytes.
    pub used: (u64, u64),
    /// Records of removed versions, kept until their content is freed.
    removed: Vec<Key>,
    /// The sign that DVC keeps content here too, in words.
    dvc: Option<String>,
    records: BTreeSet<Key>,
}

impl Plan {
    /// All that would go: lists first.
    pub fn all(&self) -> impl Iterator<Item = &(Address, u64)> {
        self.dirs.iter().chain(&self.files)
    }

    /// The sign that DVC keeps content here too.
    pub fn dvc(&self) -> Option<&str> {
        self.dvc.as_deref()
    }
}

/// Work done.
#[derive(Debug, Default)]
pub struct GcResult {
    /// The planned deletions.
    pub plan: Plan,
    /// How much of it was deleted before an error.
    pub deleted: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The error that ended it early.
    pub error: Option<Error>,
}

/// Looks what no version refers to.
///
/// Errors: anything that can't be listed to its end or read, or that isn't understood: what it refers to isn't known.
pub fn plan<'a>(store: &'a Arc<dyn Store>) -> BoxFuture<'a, Result<Plan>> {
    look(store, false)
}

/// `sweep`: see [`ListRequest::sweep`].
fn look<'a>(store: &'a Arc<dyn Store>, sweep: bool) -> BoxFuture<'a, Result<Plan>> {
    Box::pin(async move {
        // A mistyped place is none.
        store.stat(&Key::new("")).await?;
        // A pack reads its indexes anew for this one.
        let removed = listed(store, REMOVED).await?;
        let pushes = Marks::at(store).await?;
        let mut plan = Plan::default();
        // Content first: a version that is made meanwhile refers to what was there before its record.
        let request = ListRequest { prefix: CONTENT.into(), sweep, ..ListRequest::all() };
        let mut content: Vec<(Address, u64)> = Vec::new();
        each(store, request, |entry| {
            let address = Address::of_key(entry.key.as_bytes()).filter(|address| address.layout == Layout::V3);
            content.extend(address.map(|address| (address, entry.size)));
        })
        .await?;
        plan.records = records(store).await?;
        if plan.records.is_empty() && !content.is_empty() {
            let message = format!(
                "Refused to delete: no version is at {}, so all of its content would go (haul purge deletes a path with all that is in it)",
                store.locator()
            );
            return Err(Error::new(ErrorKind::Invalid, "gc", message));
        }
        let used = used(store, &plan.records).await?;
        plan.versions = plan.records.len();
        let mut ours = BTreeSet::new();
        for key in removed.iter().map(|entry| &entry.key).chain(pushes.all_pushes()) {
            ours.extend(marks::read_contents(store, key).await.dirs);
        }
        plan.removed = removed.into_iter().map(|entry| entry.key).collect();
        for (address, size) in content {
            match (used.contains(&address), address.dir) {
                (true, _) => plan.used = (plan.used.0 + 1, plan.used.1 + size),
                (false, true) => plan.dirs.push((address, size)),
                (false, false) => plan.files.push((address, size)),
            }
        }
        plan.dirs.sort_unstable();
        plan.files.sort_unstable();
        let foreign = plan.dirs.iter().find(|(address, _)| !ours.contains(&address.text()));
        plan.dvc = match foreign {
            Some((address, _)) => Some(format!("{} is a list of files that no snapshot made", address.key())),
            None => other_layout(store).await?,
        };
        Ok(plan)
    })
}

/// Keys of all records.
///
/// Errors: they can't be listed to the end; something else is among them.
async fn records(store: &Arc<dyn Store>) -> Result<BTreeSet<Key>> {
    let request = ListRequest { prefix: name::RECORDS.into(), ..ListRequest::all() };
    let mut all = BTreeSet::new();
    for entry in all_of(store, request).await?.into_iter().filter(|entry| !entry.is_dir()) {
        if name::of_key(entry.key.as_bytes()).is_none() {
            let message = "this is no record of a version that this haul knows, so what it refers to isn't known";
            return Err(Error::new(ErrorKind::Invalid, "gc", message).with_key(&entry.key));
        }
        all.insert(entry.key);
    }
    Ok(all)
}

async fn used(store: &Arc<dyn Store>, records: &BTreeSet<Key>) -> Result<HashSet<Address>> {
    let mut used = HashSet::new();
    for key in records {
        let Some((name, version)) = name::of_key(key.as_bytes()) else { continue };
        let named = |error: Error| Error::new(error.kind(), "gc", format!("{name}@{version}: {}", error.message()));
        let record = versions::record(store, &name, &version).await.map_err(named)?;
        let tree = Arc::new(versions::tree(store, &record).await.map_err(named)?);
        used.extend(referred(&VerifiedVersion { version: version.clone(), record, tree }));
    }
    Ok(used)
}

/// A sign of DVC's older layout, or of its run cache.
async fn other_layout(store: &Arc<dyn Store>) -> Result<Option<String>> {
    let top = all_of(store, ListRequest::dir("")).await?;
    let is = |key: &Key| match key.as_bytes() {
        b"runs/" => true,
        [a, b, b'/'] => a.is_ascii_hexdigit() && b.is_ascii_hexdigit(),
        _ => false,
    };
    Ok(top.iter().find(|entry| is(&entry.key)).map(|entry| format!("{} is DVC's", entry.key)))
}

/// Deletes what no version refers to.
///
/// Errors: why nothing was deleted. What ends it later is in the answer.
pub fn collect<'a>(
    store: &'a Arc<dyn Store>,
    how: &'a GcOptions,
    cancel: &'a Cancel,
) -> BoxFuture<'a, Result<GcResult>> {
    Box::pin(async move {
        store.stat(&Key::new("")).await?;
        let mark = Mark::new(store, MarkKind::Gc, how.now, &how.by)?;
        mark.set().await?;
        let mut run =
            Run { store: store.clone(), mark, how: how.clone(), cancel: cancel.clone(), looked: Moment::now() };
        let done = run.work().await;
        if let Err(error) = run.mark.clear().await {
            tracing::warn!("the mark of this run stays for an hour, and pushes wait for it: {error}");
        }
        done
    })
}

/// A moment, by a clock that nobody sets and one that goes on while the machine sleeps.
struct Moment(Instant, SystemTime);

impl Moment {
    #[expect(clippy::disallowed_methods, reason = "the one place here that reads the wall clock")]
    fn now() -> Moment {
        Moment(Instant::now(), SystemTime::now())
    }

    /// At least so long ago; a clock that was set back counts for nothing.
    fn ago(&self) -> Duration {
        self.0.elapsed().max(self.1.elapsed().unwrap_or_default())
    }
}

struct Run {
    store: Arc<dyn Store>,
    mark: Mark,
    how: GcOptions,
    cancel: Cancel,
    /// When nobody else was seen last.
    looked: Moment,
}

impl Run {
    async fn work(&mut self) -> Result<GcResult> {
        let began = Moment::now();
        self.alone().await?;
        let plan = self.while_renewed(look(&self.store, true)).await?;
        if plan.all().next().is_none() {
            self.forget(&plan).await?;
            return Ok(GcResult { plan, ..GcResult::default() });
        }
        if let Some(sign) = plan.dvc().filter(|_| !self.how.despite_dvc) {
            let message = format!(
                "Refused to delete: DVC seems to keep content here too: {sign} (--despite-dvc if only snapshots need this remote)"
            );
            return Err(Error::new(ErrorKind::Invalid, "gc", message));
        }
        let caps = self.store.caps();
        let by_store = if caps.cheap_reads && caps.dirs { LATE } else { Duration::ZERO };
        let wait = self.how.settle.unwrap_or(by_store).saturating_sub(began.ago());
        if !wait.is_zero() {
            let seconds = wait.as_secs_f64().ceil();
            tracing::warn!("Deleting in {seconds} s, when every client can see that gc is running (--settle)");
        }
        self.wait(wait).await?;
        self.alone().await?;
        if records(&self.store).await? != plan.records {
            let message = "Refused to delete: versions were made or removed meanwhile: run this again";
            return Err(Error::new(ErrorKind::Changed, "gc", message));
        }
        // From here on what others remember of the remote doesn't count.
        let before = Marks::at(&self.store).await?;
        Mark::new(&self.store, MarkKind::Freed, self.how.now, &self.how.by)?.set().await?;
        let mut freed = GcResult { plan, ..GcResult::default() };
        let done = async {
            // Where a list is, its files were: so all lists go before any of these.
            let dirs = std::mem::take(&mut freed.plan.dirs);
            let files = std::mem::take(&mut freed.plan.files);
            let mut done = Ok(());
            for batch in dirs.chunks(BATCH).chain(files.chunks(BATCH)) {
                done = self.delete(batch, &mut freed).await;
                if done.is_err() {
                    break;
                }
            }
            (freed.plan.dirs, freed.plan.files) = (dirs, files);
            done?;
            // The newest is found by its name, which a clock that went back would make the earlier one.
            marks::remove(&self.store, before.all_freed().to_vec()).await?;
            self.forget(&freed.plan).await
        };
        freed.error = done.await.err();
        Ok(freed)
    }

    /// Removed versions are remembered no more.
    async fn forget(&self, plan: &Plan) -> Result<()> {
        for batch in plan.removed.chunks(BATCH) {
            marks::remove(&self.store, batch.to_vec()).await?;
        }
        Ok(())
    }

    /// Deletes a batch, and counts what is gone.
    async fn delete(&mut self, batch: &[(Address, u64)], freed: &mut GcResult) -> Result<()> {
        self.cancelled()?;
        if self.looked.ago() > RENEWED / 5 {
            self.alone().await?;
        }
        let keys = batch.iter().map(|(address, _)| (address.key(), None)).collect();
        let answers = self.store.delete(keys).await;
        let mut failed = (answers.len() != batch.len())
            .then(|| Error::new(ErrorKind::Io, "delete", "the store answered for another number of keys"));
        for ((address, size), answer) in batch.iter().zip(answers) {
            match answer {
                Ok(()) => {
                    freed.deleted += 1;
                    freed.bytes += size;
                }
                Err(error) => failed = failed.or(Some(error.with_key(&address.key()))),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Makes sure that nobody pushes or frees, and that this run's own mark stands; then sets it anew. Marks of the dead are removed; which lists they
    /// were about to store is remembered.
    async fn alone(&mut self) -> Result<()> {
        let mut looks = 0;
        let others = loop {
            let (_, mut others) = marks::beside(&self.store, &self.mark.key).await?;
            if std::mem::take(&mut self.how.ignore_marks) {
                others.dead.append(&mut others.pushes);
                others.dead.append(&mut others.gcs);
            }
            looks += 1;
            if (others.pushes.is_empty() && others.gcs.is_empty()) || looks == LOOKS {
                break others;
            }
            self.wait(PAUSE).await?;
        };
        if let Some(error) = self.occupied(&others).await {
            return Err(error);
        }
        for key in &others.dead {
            versions::remember(
                &self.store,
                &String::from_utf8_lossy(key.leaf().as_bytes()),
                marks::read_contents(&self.store, key).await,
            )
            .await?;
        }
        self.mark.set().await?;
        self.looked = Moment::now();
        // A push that only slept finds that its mark is gone, or what was freed.
        marks::remove(&self.store, others.dead).await
    }

    async fn occupied(&self, others: &OtherMarks) -> Option<Error> {
        let (what, key) = match (others.pushes.first(), others.gcs.first()) {
            (Some(key), _) => ("a push", key),
            (None, Some(key)) => ("another gc", key),
            (None, None) => return None,
        };
        let by = marks::read_contents(&self.store, key).await.by;
        let by = if by.is_empty() { String::new() } else { format!(" ({by})") };
        let message = format!(
            "Refused to delete: {what} is running{by}: run this again when it is done. If it was killed, its mark {key} counts for an hour, or until --ignore-marks"
        );
        Some(Error::new(ErrorKind::Busy, "lock", message))
    }

    /// Does something that may take long, while the mark stays fresh.
    async fn while_renewed<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let renew = async {
            loop {
                tokio::time::sleep(RENEWED).await;
                if let Err(error) = self.mark.set().await {
                    return error;
                }
            }
        };
        tokio::select! {
            done = work => done,
            error = renew => Err(error),
            () = self.cancel.cancelled() => Err(stopped()),
        }
    }

    async fn wait(&self, time: Duration) -> Result<()> {
        if time.is_zero() {
            return self.cancelled();
        }
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = self.cancel.cancelled() => Err(stopped()),
        }
    }

    fn cancelled(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(stopped()) } else { Ok(()) }
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Cancelled, "gc", "stopped")
}

#[cfg(test)]
mod tests;
