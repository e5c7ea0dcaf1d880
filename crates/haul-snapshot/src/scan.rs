//! Current contents of a folder, with the MD5 of each file: hashed once, and again only when its facts changed. The folder
//! may be on any store.

use crate::tree::{EntryKind, Node, Tree, TreeBuilder};
use futures::{StreamExt as _, future::LocalBoxFuture, stream};
use haul::{Cx, ListOptions, index::now};
use haul_cas::{
    address::{Layout, Md5},
    facts::Facts,
    state::State,
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Key, Kind, Listed, Mtime, Result, Side, chmod::MODE_BITS, event::Event, job::Job,
    units::size_text,
};
use haul_store::{ChangedMeaning, Store};
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

/// Files and symlinks of a remote that are read at once.
const REMOTE_AT_ONCE: usize = 32;
/// Questions of a listing at once, where the user doesn't say.
const CHECKERS: usize = 64;
/// How often a file may change under its hashing before that is reported.
const CHANGED_TRIES: usize = 3;
/// Longest target of a symlink, in bytes.
const TARGET_MAX: usize = 4095;

/// A folder as it was looked at.
#[derive(Debug, Default)]
pub struct Scan {
    /// All that a version keeps; files pinned to what was hashed.
    pub tree: Arc<Tree>,
    /// Devices, FIFOs and sockets, which no version keeps.
    pub left_out: u64,
    /// Entries that disappeared during the scan, deleted or renamed: under a new name they may have been missed.
    pub vanished: Vec<Key>,
}

/// Treatment of a listed entry.
enum EntryTreatment {
    File(Entry, Md5),
    Dir(Entry),
    Link(Entry, Vec<u8>),
    Special,
    /// It is gone meanwhile, or nothing will come of it.
    Nothing,
    /// The listing came to its end.
    End,
}

/// A step of the listing.
enum Step {
    Entry(Entry),
    Failed(Error),
    Vanished(Key),
    End,
}

/// Looking at a folder.
struct FolderScan<'a> {
    cx: &'a Cx,
    state: &'a State,
    /// Before anything was listed.
    looked: SystemTime,
    /// The listing isn't whole, so there is no use in hashing more.
    failed: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
    vanished: Mutex<Vec<Key>>,
}

/// Looks at the folder `cx.src` through the filter. Hashes while it lists, and holds of each entry only what a version keeps.
///
/// Errors: all that can't be listed or read; then there is no whole to speak of.
pub fn scan<'a>(cx: &'a Cx, job: &'a Job, state: &'a State) -> LocalBoxFuture<'a, Result<Scan, Vec<Arc<Error>>>> {
    Box::pin(async move {
        let look = FolderScan {
            cx,
            state,
            looked: now(),
            failed: AtomicBool::new(false),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            vanished: Mutex::default(),
        };
        let at_once = if cx.src.caps().files { 2 * cx.src.caps().concurrency } else { REMOTE_AT_ONCE };
        let steps = haul::list(&cx.src, &cx.filter, options(job, cx)).flat_map(|step| stream::iter(steps(cx, step)));
        let mut seen = steps.map(|step| look.at(step)).buffer_unordered(at_once);
        let (mut gathered, mut errors, mut left_out, mut ended) = (TreeBuilder::default(), Vec::new(), 0, false);
        while let Some(seen) = seen.next().await {
            let added = match seen {
                Ok(EntryTreatment::File(entry, md5)) => {
                    gathered.add(node(&entry, EntryKind::File(entry.size, md5)), entry.version.as_ref())
                }
                Ok(EntryTreatment::Dir(entry)) => gathered.add(node(&entry, EntryKind::Dir), None),
                Ok(EntryTreatment::Link(entry, target)) => gathered.add(node(&entry, EntryKind::Link(&target)), None),
                Ok(EntryTreatment::Special) => {
                    left_out += 1;
                    Ok(())
                }
                Ok(EntryTreatment::End) => {
                    ended = true;
                    Ok(())
                }
                Ok(EntryTreatment::Nothing) => Ok(()),
                Err(error) => {
                    errors.push(error);
                    Ok(())
                }
            };
            errors.extend(added.err().map(|why| Error::new(ErrorKind::Invalid, "push", why)));
            if cx.cancel.is_cancelled() {
                // Files that were listed before the end are still being hashed.
                ended = false;
                break;
            }
        }
        drop(seen);
        if look.files.load(Relaxed) > 0 {
            tracing::info!("hashed {} files, {}", look.files.load(Relaxed), size_text(look.bytes.load(Relaxed)));
        }
        if errors.is_empty() && !ended {
            let kind = if cx.cancel.is_cancelled() { ErrorKind::Cancelled } else { ErrorKind::Io };
            errors.push(Error::new(kind, "list", "the listing was cut off"));
        }
        if errors.is_empty() {
            match gathered.tree() {
                Ok(tree) => {
                    let mut vanished = std::mem::take(&mut *look.vanished());
                    vanished.retain(|key| cx.filter.wants_name(&Entry::file(key.clone(), 0)));
                    return Ok(Scan { tree: Arc::new(tree), left_out, vanished });
                }
                Err(why) => errors.push(Error::new(ErrorKind::Invalid, "push", why)),
            }
        }
        Err(errors.into_iter().map(Arc::new).collect())
    })
}

fn options(job: &Job, cx: &Cx) -> ListOptions {
    ListOptions {
        max_depth: job.listing.max_depth,
        dirs: true,
        posix: true,
        mtimes: true,
        checkers: job.pace.checkers.unwrap_or(CHECKERS),
        pages: job.pace.checkers.unwrap_or(0),
        ask_each: job.listing.no_traverse && cx.filter.files_from().is_some(),
        ..ListOptions::default()
    }
}

fn steps(cx: &Cx, step: Listed) -> Vec<Step> {
    match step {
        Listed::Batch(entries) => {
            let files = entries.iter().filter(|e| e.has_bytes());
            let (count, bytes) = files.fold((0, 0), |(n, sum), e| (n + 1, sum + e.size));
            cx.sink.emit(&Event::Listed { side: Side::Src, files: count, bytes });
            entries.into_iter().map(Step::Entry).collect()
        }
        Listed::Failed { error, .. } => vec![Step::Failed(error)],
        Listed::Vanished(key) => vec![Step::Vanished(key)],
        Listed::End => vec![Step::End],
    }
}

impl FolderScan<'_> {
    fn vanished(&self) -> MutexGuard<'_, Vec<Key>> {
        self.vanished.lock().unwrap_or_else(|e| e.into_inner())
    }

    async fn at(&self, step: Step) -> Result<EntryTreatment> {
        let entry = match step {
            Step::Entry(entry) => entry,
            Step::Failed(error) => {
                self.failed.store(true, Relaxed);
                return Err(error);
            }
            Step::Vanished(key) => {
                self.vanished().push(key);
                return Ok(EntryTreatment::Nothing);
            }
            Step::End => return Ok(EntryTreatment::End),
        };
        match entry.kind {
            Kind::Dir => Ok(EntryTreatment::Dir(entry)),
            Kind::Special => Ok(EntryTreatment::Special),
            Kind::File | Kind::Symlink if self.failed.load(Relaxed) => Ok(EntryTreatment::Nothing),
            Kind::Symlink => match target(self.cx, &entry).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.vanished().push(entry.key);
                    Ok(EntryTreatment::Nothing)
                }
                target => target.map(|target| EntryTreatment::Link(entry, target)),
            },
            Kind::File => self.file(entry).await,
        }
    }

    async fn file(&self, entry: Entry) -> Result<EntryTreatment> {
        // Where a user can set all that tells a change, nothing is remembered.
        let tells = self.cx.src.caps().changed == ChangedMeaning::Inode;
        let facts = |entry: &Entry| facts(entry).filter(|_| tells);
        let remembered = || self.state.get(&facts(&entry)?, Layout::V3);
        if let Some(md5) = entry.hashes.get(Algo::Md5).and_then(|md5| md5.try_into().ok()).or_else(remembered) {
            return Ok(EntryTreatment::File(entry, md5));
        }
        let listed = entry.version.clone();
        // In a box: most files are known, and pass by without the room that this takes.
        let key = entry.key.clone();
        let Some((entry, md5)) = Box::pin(hash(self.cx, entry)).await? else {
            self.vanished().push(key);
            return Ok(EntryTreatment::Nothing);
        };
        self.files.fetch_add(1, Relaxed);
        self.bytes.fetch_add(entry.size, Relaxed);
        // Facts of another state of the file than the listed one were looked at later.
        if let Some(facts) = facts(&entry).filter(|_| entry.version == listed) {
            self.state.put(&facts, Layout::V3, md5, self.looked);
        }
        Ok(EntryTreatment::File(entry, md5))
    }
}

fn node<'a>(entry: &'a Entry, what: EntryKind<'a>) -> Node<'a> {
    let path = entry.key.path();
    let mode = entry.posix.as_ref().map(|posix| posix.mode & MODE_BITS).filter(|_| !matches!(what, EntryKind::Link(_)));
    Node { path, what, mode, mtime: entry.mtime }
}

/// The facts that tell whether a file changed, as a listing of a disk has them.
fn facts(entry: &Entry) -> Option<Facts> {
    let posix = entry.posix.as_ref()?;
    let nanos = |time: Option<Mtime>| i64::try_from(time?.0).ok();
    Some(Facts {
        dev: u64::from(posix.dev.0) << 32 | u64::from(posix.dev.1),
        ino: posix.ino,
        size: entry.size,
        mtime: nanos(entry.mtime)?,
        ctime: nanos(entry.changed)?,
        mode: posix.mode,
        nlink: posix.nlink,
    })
}

async fn hash(cx: &Cx, mut entry: Entry) -> Result<Option<(Entry, Md5)>> {
    let mut tries = 0;
    loop {
        if cx.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "read", "stopped"));
        }
        tries += 1;
        match md5(&cx.src, &entry).await {
            Ok(md5) => return Ok(Some((entry, md5))),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Changed && tries < CHANGED_TRIES => {
                let posix = entry.posix.take();
                entry = match cx.src.stat(&entry.key).await {
                    Ok(now) => Entry { posix: now.posix.clone().or(posix), ..now },
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(error.with_key(&entry.key)),
                };
            }
            Err(error) => return Err(error.with_key(&entry.key)),
        }
    }
}

async fn md5(store: &Arc<dyn Store>, entry: &Entry) -> Result<Md5> {
    let mut known = haul::hash::known(store, entry).await?;
    if known.get(Algo::Md5).is_none() {
        known = haul::hash::read_and_hash(store, entry, &[Algo::Md5]).await?;
    }
    let md5 = known.get(Algo::Md5).and_then(|md5| md5.try_into().ok());
    md5.ok_or_else(|| Error::new(ErrorKind::Unsupported, "hash", "no MD5 could be had"))
}

/// Where a symlink points.
async fn target(cx: &Cx, entry: &Entry) -> Result<Vec<u8>> {
    let of = |error: Error| error.with_key(&entry.key);
    let mut pieces = haul::pipe::read(&cx.src, entry, None).await.map_err(of)?;
    let mut target = Vec::new();
    while let Some(piece) = pieces.next().await {
        target.extend_from_slice(&piece.map_err(of)?);
        if target.len() > TARGET_MAX {
            return Err(of(Error::new(ErrorKind::Invalid, "read", "a symlink's target is longer than a disk takes")));
        }
    }
    Ok(target)
}
