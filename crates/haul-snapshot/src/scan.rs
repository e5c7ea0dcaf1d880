//! What a folder holds at the moment, with the MD5 of each file: hashed once, and again only when its facts changed. The folder
//! may be on any store.

use crate::tree::{LINK, Node, Tree, What};
use futures::{StreamExt as _, stream};
use haul::{Cx, ListOptions, index::now};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Key, Kind, Listed, Mtime, Result, Side, Version,
    attributes::{MODE_BITS, is_link},
    event::Event,
    policy::Policy,
    units::size_text,
};
use haul_dvc::{
    address::{Layout, Md5},
    facts::Facts,
    state::State,
};
use haul_store::Store;
use std::sync::Arc;

/// Files of a remote that are read at once to be hashed, where it doesn't know their MD5.
const REMOTE_AT_ONCE: usize = 32;
/// Symlinks that are asked for at once.
const LINKS_AT_ONCE: usize = 64;
/// How often a file may change under its hashing before that is reported.
const CHANGED_TRIES: usize = 3;
/// Longest target of a symlink, in bytes.
const TARGET_MAX: usize = 4095;

/// A file as it was looked at.
#[derive(Clone, Debug)]
pub struct File {
    /// Its key in the folder's store.
    pub key: Key,
    /// Bytes.
    pub size: u64,
    /// Pins the content that was hashed.
    pub version: Option<Version>,
    /// Of that content.
    pub md5: Md5,
}

/// A folder as it was looked at.
#[derive(Debug, Default)]
pub struct Scan {
    /// All that a version keeps.
    pub tree: Tree,
    /// The files.
    pub files: Vec<File>,
    /// Devices, FIFOs and sockets, which no version keeps.
    pub left_out: u64,
}

/// What a listing brought.
#[derive(Default)]
struct Listing {
    files: Vec<Entry>,
    links: Vec<Entry>,
    dirs: Vec<Entry>,
    left_out: u64,
}

/// Looks at the folder `cx.src` through the filter. What goes wrong is told to the sink too.
///
/// Errors: all that can't be listed or read; then there is no whole to speak of.
pub async fn scan(cx: &Cx, policy: &Policy, state: &mut State) -> Result<Scan, Vec<Arc<Error>>> {
    let looked = now();
    let listing = list(cx, policy).await?;
    let mut errors = Vec::new();
    let (files, links) = (hashed(cx, listing.files, state, looked).await, targets(cx, listing.links).await);
    let mut nodes: Vec<Node> = listing.dirs.iter().map(|dir| node(dir, What::Dir, "/")).collect();
    let mut known = Vec::with_capacity(files.len());
    for file in files {
        match file {
            Ok(Some((entry, md5))) => {
                nodes.push(node(&entry, What::File(entry.size, md5), ""));
                known.push(File { key: entry.key, size: entry.size, version: entry.version, md5 });
            }
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    for link in links {
        match link {
            Ok((entry, target)) => nodes.push(node(&entry, What::Link(target), LINK)),
            Err(error) => errors.push(error),
        }
    }
    let tree = Tree::new(nodes).map_err(|why| Error::new(ErrorKind::Invalid, "push", why));
    match tree {
        Ok(tree) if errors.is_empty() => Ok(Scan { tree, files: known, left_out: listing.left_out }),
        Ok(_) => Err(errors.into_iter().map(Arc::new).collect()),
        Err(error) => Err(errors.into_iter().chain([error]).map(Arc::new).collect()),
    }
}

async fn list(cx: &Cx, policy: &Policy) -> Result<Listing, Vec<Arc<Error>>> {
    let options = ListOptions {
        max_depth: policy.max_depth,
        dirs: true,
        posix: true,
        mtimes: true,
        checkers: policy.checkers.unwrap_or(LINKS_AT_ONCE),
        pages: policy.checkers.unwrap_or(0),
        ask_each: policy.no_traverse && cx.filter.files_from().is_some(),
        ..ListOptions::default()
    };
    let mut steps = haul::list(&cx.src, &cx.filter, options);
    let (mut listing, mut errors, mut ended) = (Listing::default(), Vec::new(), false);
    while let Some(step) = steps.next().await {
        if cx.cancel.is_cancelled() {
            break;
        }
        match step {
            Listed::Batch(entries) => {
                let files = entries.iter().filter(|e| e.kind == Kind::File);
                let (count, bytes) = files.fold((0, 0), |(n, sum), e| (n + 1, sum + e.size));
                cx.sink.emit(&Event::Listed { side: Side::Src, files: count, bytes });
                entries.into_iter().for_each(|entry| listing.take(entry));
            }
            Listed::Failed { error, .. } => errors.push(Arc::new(error)),
            Listed::End => ended = true,
        }
    }
    if errors.is_empty() && !ended {
        let kind = if cx.cancel.is_cancelled() { ErrorKind::Cancelled } else { ErrorKind::Io };
        errors.push(Arc::new(Error::new(kind, "list", "the listing was cut off")));
    }
    if errors.is_empty() { Ok(listing) } else { Err(errors) }
}

impl Listing {
    fn take(&mut self, entry: Entry) {
        // On a disk the inode tells; elsewhere haul and rclone keep a symlink as a file of such a name.
        let link = entry.posix.as_ref().map_or(entry.is_link(), |posix| is_link(posix.mode));
        match entry.kind {
            Kind::Dir => self.dirs.push(entry),
            Kind::File if link => self.links.push(entry),
            Kind::File => self.files.push(entry),
            Kind::Special => self.left_out += 1,
        }
    }
}

fn node(entry: &Entry, what: What, end: &str) -> Node {
    let key = entry.key.as_bytes();
    let path = key.strip_suffix(end.as_bytes()).unwrap_or(key).to_vec();
    let mode = entry.posix.as_ref().map(|posix| posix.mode & MODE_BITS).filter(|_| !matches!(what, What::Link(_)));
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

/// The MD5 of each file; `None` for one that is gone.
async fn hashed(
    cx: &Cx,
    files: Vec<Entry>,
    state: &mut State,
    looked: std::time::SystemTime,
) -> Vec<Result<Option<(Entry, Md5)>>> {
    let local = cx.src.caps().files;
    let at_once = if local { 2 * cx.src.caps().concurrency } else { REMOTE_AT_ONCE };
    let mut done = Vec::with_capacity(files.len());
    let mut unknown = Vec::new();
    for entry in files {
        let remembered = || state.get(&facts(&entry)?, Layout::V3);
        match entry.hashes.get(Algo::Md5).and_then(|md5| md5.try_into().ok()).or_else(remembered) {
            Some(md5) => done.push(Ok(Some((entry, md5)))),
            None => unknown.push(entry),
        }
    }
    if !unknown.is_empty() {
        let bytes = unknown.iter().map(|entry| entry.size).sum();
        tracing::info!("hashing {} files, {}", unknown.len(), size_text(bytes));
    }
    let mut hashing = stream::iter(unknown)
        .map(|entry| async move {
            let listed = entry.version.clone();
            let found = hash(cx, entry).await?;
            // Facts of another state of the file than the listed one were looked at later.
            Ok(found.map(|(entry, md5)| (entry.version == listed, entry, md5)))
        })
        .buffer_unordered(at_once);
    while let Some(found) = hashing.next().await {
        done.push(found.map(|found| {
            let (as_listed, entry, md5) = found?;
            if let Some(facts) = facts(&entry).filter(|_| as_listed) {
                state.put(&facts, Layout::V3, md5, looked);
            }
            Some((entry, md5))
        }));
    }
    done
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
            Err(error) if error.kind() == ErrorKind::NotFound => {
                cx.sink.emit(&Event::Notice { key: Some(entry.key), message: "it is gone, and left out".into() });
                return Ok(None);
            }
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

/// Where symlinks point.
async fn targets(cx: &Cx, links: Vec<Entry>) -> Vec<Result<(Entry, Vec<u8>)>> {
    let read = |entry: Entry| async move {
        let mut pieces = haul::pipe::read(&cx.src, &entry, None).await.map_err(|e| e.with_key(&entry.key))?;
        let mut target = Vec::new();
        while let Some(piece) = pieces.next().await {
            target.extend_from_slice(&piece.map_err(|e| e.with_key(&entry.key))?);
            if target.len() > TARGET_MAX {
                let message = "a symlink's target is longer than a disk takes";
                return Err(Error::new(ErrorKind::Invalid, "read", message).with_key(&entry.key));
            }
        }
        Ok((entry, target))
    };
    stream::iter(links).map(read).buffer_unordered(LINKS_AT_ONCE).collect().await
}
