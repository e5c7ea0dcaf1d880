//! Restoring a version into a folder: a job of the engine whose source is the version's list, so filters, comparing, deleting
//! and limits are the engine's; then modes and times that differ on what had the right bytes already.

use crate::{
    name::Version,
    record::Record,
    tree::{EntryKind, Node, Tree},
    versions,
    view::{ContentSource, KeyList, View},
};
use bytes::Bytes;
use futures::{StreamExt as _, future::LocalBoxFuture, stream};
use haul::{Cx, ListOptions, Report};
use haul_cas::address::{Address, Layout};
use haul_core::{
    Entry, Error, Key, Kind, Listed, Mtime, Result,
    chmod::MODE_BITS,
    event::Event,
    job::{Job, Verb},
    keep::Keep,
};
use haul_store::WriteSpec;
use std::{collections::HashMap, sync::Arc};

/// Changes of modes and times at once, where the user doesn't say.
const AT_ONCE: usize = 16;

/// Result of a pull.
#[derive(Debug, Default)]
pub struct PullResult {
    /// Of the engine's job.
    pub report: Report,
    /// Files of the folder that the version hasn't, and that were left; `None` where they weren't counted.
    pub more: Option<u64>,
}

/// Permissions that the owner of a folder needs to change its contents.
const OWNER: u32 = 0o700;

/// A version, read and found right.
#[derive(Clone, Debug)]
pub struct VerifiedVersion {
    /// Which.
    pub version: Version,
    /// Its record.
    pub record: Record,
    /// Its folder.
    pub tree: Arc<Tree>,
}

/// A version's folder, as the engine sees it.
#[derive(Debug)]
struct Folder {
    tree: Arc<Tree>,
    by_key: Vec<u32>,
    setid: bool,
}

impl KeyList for Folder {
    fn count(&self) -> usize {
        self.by_key.len()
    }

    fn nth(&self, n: usize) -> usize {
        self.by_key[n] as usize
    }

    fn find(&self, key: &Key) -> Option<usize> {
        self.tree.find(key)
    }

    fn key(&self, number: usize) -> Key {
        self.tree.node(number).key()
    }

    fn entry(&self, number: usize) -> Entry {
        self.tree.node(number).entry(self.setid)
    }

    fn from(&self, number: usize) -> ContentSource {
        match self.tree.node(number).what {
            EntryKind::File(_, md5) => ContentSource::Content(Address::file(Layout::V3, md5).key()),
            EntryKind::Dir => ContentSource::Nothing,
            EntryKind::Link(target) => ContentSource::Bytes(Bytes::copy_from_slice(target)),
        }
    }

    fn shown(&self, number: usize) -> Key {
        self.key(number)
    }
}

/// Reads the chosen version.
///
/// Errors: as for [`versions::find`] and [`versions::tree`].
pub fn open<'a>(
    remote: &'a Arc<dyn haul_store::Store>,
    name: &'a str,
    typed: Option<&'a str>,
) -> LocalBoxFuture<'a, Result<VerifiedVersion>> {
    Box::pin(async move {
        let (version, record) = versions::find(remote, name, typed).await?;
        let tree = Arc::new(versions::tree(remote, &record).await?);
        Ok(VerifiedVersion { version, record, tree })
    })
}

/// The surroundings of the job that restores a version: `cx.src`, the remote, as the folder that the version was.
///
/// Errors: the remote is the folder, in it, or around it.
pub fn surroundings(cx: Cx, version: &VerifiedVersion, setid: bool) -> Result<Cx> {
    haul::overlap::check(&cx, Verb::Sync)?;
    let folder = Folder { tree: version.tree.clone(), by_key: version.tree.by_key(), setid };
    let locator = format!("{} {}@{}", cx.src.locator(), version.record.name, version.version);
    Ok(Cx { src: Arc::new(View::new(cx.src.clone(), locator, Arc::new(folder), false)), ..cx })
}

/// Restores into `cx.dst`. With `Verb::Sync` what the version hasn't goes, if all else went well; else it stays.
pub fn pull<'a>(cx: &'a Cx, job: &'a Job, version: &'a VerifiedVersion) -> LocalBoxFuture<'a, PullResult> {
    Box::pin(async move {
        let job = job.clone().with(|job| {
            // Content is what its hash says, or isn't restored.
            (job.compare.ignore_size, job.write.ignore_checksum) = (false, false);
            job.compare.server_mtime = false;
            job.attributes.metadata = true;
            job.dirs.create_empty = true;
        });
        let disk = cx.dst.caps().attributes.is_some() && !job.dry_run;
        if disk {
            open_up(cx, version, job.verb).await;
            hide(cx, version).await;
        }
        let mut report = haul::run(job.clone(), cx.clone()).await;
        let mut more = None;
        // Opened folders are closed again, and private ones made so, also after a failure or a stop by the user.
        if disk {
            match settle(cx, &job, version, &mut report).await {
                Ok(count) => more = report.is_ok().then_some(count),
                // After an error this one has the same cause, or doesn't count beside it.
                Err(error) if report.is_ok() => report_error(cx, &mut report, error),
                Err(error) => tracing::debug!("{error}"),
            }
        }
        PullResult { report, more }
    })
}

/// Folders that are made from now on are their owner's alone, until they get their modes at the end: one of them may be to stay so,
/// whatever becomes of this process.
async fn hide(cx: &Cx, version: &VerifiedVersion) {
    let mut dirs = version.tree.nodes().filter(|node| node.what == EntryKind::Dir);
    // A version of a store without modes leaves them to the system, at the end too.
    if dirs.any(|node| node.mode.is_none()) {
        return;
    }
    let keep = Arc::new(Keep { perms: true, ..Keep::default() });
    if let Err(error) = cx.dst.make_dir(&Key::new(""), &WriteSpec { keep: Some(keep), ..WriteSpec::default() }).await {
        // The job finds the same, and tells it.
        tracing::debug!("{error}");
    }
}

/// Folders in which something is to be changed and which their owner may not write to are opened; [`settle`] closes them.
async fn open_up(cx: &Cx, version: &VerifiedVersion, verb: Verb) {
    let closed = |node: &Node| node.what == EntryKind::Dir && node.mode.is_some_and(|mode| mode & OWNER != OWNER);
    let mut dirs: HashMap<Key, (u32, HashMap<Key, Node>)> = HashMap::new();
    for node in version.tree.nodes().filter(closed) {
        dirs.insert(node.key(), (node.mode.unwrap_or_default(), HashMap::new()));
    }
    if dirs.is_empty() {
        return;
    }
    for node in version.tree.nodes() {
        if let Some((_, inside)) = dirs.get_mut(&node.key().parent()) {
            inside.insert(node.key(), node);
        }
    }
    for (key, (bits, inside)) in dirs {
        let Ok(there) = cx.dst.stat(&key).await else { continue };
        if !differs_inside(cx, &key, &inside, verb).await {
            continue;
        }
        let bits = bits & 0o777 | OWNER;
        let meta = haul_core::Meta::from([("mode".to_string(), format!("{:o}", 0o040_000 | bits))]);
        if let Err(error) = cx.dst.set_meta(&key, there.mtime, Some(&meta)).await {
            tracing::debug!("{key}: can't be opened: {error}");
        }
    }
}

/// True when something right in this folder isn't as in the version; what can't be looked at may not be.
async fn differs_inside(cx: &Cx, key: &Key, inside: &HashMap<Key, Node<'_>>, verb: Verb) -> bool {
    let mut listing = cx.dst.list(haul_store::ListRequest::dir(key.as_bytes()));
    let mut seen = 0;
    while let Some(step) = listing.next().await {
        let Listed::Batch(entries) = step else { continue };
        for entry in entries {
            match inside.get(&entry.key) {
                Some(node) => {
                    seen += 1;
                    let want = node.entry(false);
                    if !entry.is_dir() && (want.size, want.mtime) != (entry.size, entry.mtime) {
                        return true;
                    }
                }
                None if verb == Verb::Sync => return true,
                None => {}
            }
        }
    }
    seen != inside.len()
}

fn report_error(cx: &Cx, report: &mut Report, error: Error) {
    let error = Arc::new(error);
    cx.sink.emit(&Event::Error(error.clone()));
    report.error(error);
}

/// Sets the modes of what was there with the right bytes, and the modes and times of folders; gives how many files the version
/// hasn't.
async fn settle(cx: &Cx, job: &Job, version: &VerifiedVersion, report: &mut Report) -> Result<u64> {
    let tree = &version.tree;
    let options = ListOptions {
        max_depth: job.listing.max_depth,
        dirs: true,
        posix: true,
        checkers: job.pace.checkers.unwrap_or(AT_ONCE),
        ..ListOptions::default()
    };
    let mut steps = haul::list(&cx.dst, &cx.filter, options);
    // After an error a file may be another than the version's.
    let whole = report.is_ok();
    let (mut due, mut more) = (Vec::new(), 0);
    while let Some(step) = steps.next().await {
        match step {
            Listed::Batch(entries) => {
                for entry in entries {
                    match tree.find(&entry.key) {
                        Some(place) if whole || entry.is_dir() => {
                            due.extend(differs(&tree.node(place), &entry, job).map(|mtime| (place, mtime)));
                        }
                        Some(_) => {}
                        None => more += u64::from(entry.kind != Kind::Dir),
                    }
                }
            }
            Listed::Failed { error, .. } => return Err(error),
            Listed::Vanished(_) | Listed::End => {}
        }
    }
    // Files before the folder that they are in, which may then be closed to us.
    due.sort_by_cached_key(|(place, _)| std::cmp::Reverse(tree.node(*place).key()));
    let set = |(place, mtime): (usize, Option<Mtime>)| {
        let node = tree.node(place);
        let (key, meta) = (node.key(), node.meta(job.attributes.keep_setid));
        let dst = cx.dst.clone();
        async move {
            let set = dst.set_meta(&key, mtime, meta.as_deref()).await;
            (key, set)
        }
    };
    let (dirs, files): (Vec<_>, Vec<_>) =
        due.into_iter().partition(|(place, _)| tree.node(*place).what == EntryKind::Dir);
    let at_once = job.pace.checkers.unwrap_or(AT_ONCE);
    // Folders one after the other, the deepest first.
    for (all, at_once) in [(files, at_once), (dirs, 1)] {
        let mut answers = stream::iter(all).map(&set).buffered(at_once);
        while let Some((key, answer)) = answers.next().await {
            match answer {
                Ok(()) => {
                    let differs = haul_core::attributes::Differs { mode: true, ..Default::default() };
                    cx.sink.emit(&Event::Touched { key, differs });
                    report.totals.touched += 1;
                }
                Err(error) => report_error(cx, report, error.with_key(&key)),
            }
        }
    }
    Ok(more)
}

/// The time to set of what is there under a node's key, if its mode, or a folder's time, isn't the node's.
fn differs(node: &Node, there: &Entry, job: &Job) -> Option<Option<Mtime>> {
    if matches!(node.what, EntryKind::Link(_)) {
        return None;
    }
    let is = there.posix.as_ref().map(|posix| posix.mode & MODE_BITS);
    let mode = node.mode_to_set(job.attributes.keep_setid);
    // A bit that isn't restored may be there, where a folder passes its group on.
    let mask = if job.attributes.keep_setid { MODE_BITS } else { 0o777 };
    let other_mode = mode.is_some_and(|mode| is.is_some_and(|is| is & mask != mode & mask));
    let other_time = node.mtime.is_some() && there.mtime != node.mtime;
    let dir_time = node.what == EntryKind::Dir && other_time && !job.attributes.no_update_dir_mtime;
    (other_mode || dir_time).then(|| node.mtime.filter(|_| dir_time).or(there.mtime))
}
