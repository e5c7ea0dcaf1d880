//! The local disk store (`local`): everything relative to directory descriptors, on its own threads; nothing that a
//! name or a planted link says leads out of the root.

mod append;
mod attributes;
mod bundle;
mod case_collisions;
mod content;
mod copy;
mod delta;
mod dir;
mod error;
mod hidden;
mod list;
mod meta;
pub mod mounts;
mod own_links;
pub mod owners;
mod piece_cache;
mod precision;
pub mod process;
mod publish;
mod read;
mod rename_dir;
mod resume;
mod settle;
mod sync;
mod tree;
mod upload;
mod xattrs;

use bytes::Bytes;
use case_collisions::WrittenFiles;
use dir::Root;
use futures::{
    future::{BoxFuture, join_all},
    stream::BoxStream,
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Listed, Meta, Mtime, Result, Version,
    attributes::{FileAttributes, Rights},
    delta::{Chunking, Recipe, SMALLEST_BLOCK},
};
use haul_store::{
    Admin, AttributesBatch, AttributesResult, Bundles, Caps, ChangedMeaning, Cleanup, CopyBatch, Deltas, Domain,
    Hashing, Inodes, Links, ListRequest, OpenRequest, PartLimits, Read, Resumable, ResumedWrite, SentPart, SettleItem,
    SmallFile, SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload, Watch, WriteSpec,
    disk::{self, Abandoned},
    late_errors::{self, LossReporting},
};
use piece_cache::PieceCache;
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fmt,
    ops::Range,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub use own_links::open_by_own_links;

/// The kind.
pub const KIND: StoreKind = StoreKind { name: "local", description: "Local disk", options: &[], open };

/// Keys of one delete job.
const DELETE_BATCH: usize = 1000;

/// Files of one copy job: most directories are one then, some milliseconds' work for one thread, during which no other waits for
/// the directory's lock.
const COPY_BATCH: usize = 256;

/// Files of one copy job where a server is asked for each: work that keeps a thread waiting for seconds is better shared by many.
const COPY_BATCH_FAR: usize = 16;

/// Permission bits that new files don't get (the umask of this process).
pub fn umask() -> u32 {
    attributes::read_umask()
}

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let invalid = |why: String| Error::new(ErrorKind::Invalid, "open", why);
    let path = match request.path.is_empty() {
        true => b".".to_vec(),
        false => request.path,
    };
    let shown = String::from_utf8_lossy(&path).into_owned();
    if path.contains(&0) {
        return Err(invalid(format!("{}: a path can't contain a zero byte", shown.escape_debug())));
    }
    let absolute = std::path::absolute(Path::new(OsStr::from_bytes(&path)))
        .map_err(|e| invalid(format!("{shown}: can't find the current directory: {e}")))?;
    if request.own_links
        && open_by_own_links(absolute.as_os_str().as_bytes(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .is_err_and(|errno| errno == Errno::LOOP)
    {
        let why = format!("{shown}: a symbolic link on the way belongs to another user");
        return Err(Error::new(ErrorKind::Denied, "open", why));
    }
    let place: Arc<[u8]> = real(&absolute).into_os_string().into_vec().into();
    // First: what an automounter mounts there is what all else is asked of.
    let there = nearest(&place);
    // Creating `x` for the sake of `x/../y` would surprise; what exists keeps to the links on the way as they are.
    let absolute = if absolute.exists() { absolute.into_os_string().into_vec() } else { place.to_vec() };
    let locator = if request.remote.is_empty() { shown } else { format!("{}:{shown}", request.remote) };
    let domain = Domain { name: "local".into(), place: place.clone(), on_device: mounts::on_device(&place) };
    let follow_dirs = request.links.follows_dirs();
    let root = Root::new(absolute, request.links.follows_files()).following_dirs(follow_dirs);
    let root = Arc::new(root.by_own_links(request.own_links));
    let rights = attributes::rights();
    let late = late_errors::Mounts::default();
    let pieces = PieceCache(request.net.state.as_ref().map(|state| state.join("pieces")));
    let precision = there.as_ref().map_or(precision::NANO, precision::of);
    let changed = match there.as_ref().is_none_or(precision::keeps_ctime) {
        true => ChangedMeaning::Inode,
        false => ChangedMeaning::Unknown,
    };
    // Those file systems that ask a server for each answer (or another program, by FUSE) are those whose errors come late.
    let far = there.is_some_and(|there| late.tells(there) != LossReporting::AtOnce);
    Ok(Arc::new(LocalStore {
        locator,
        caps: Caps { changed, ..caps(domain, rights.clone(), precision, (far, request.links)) },
        local: Arc::new(Local {
            root,
            place,
            links: request.links,
            rights,
            late,
            made: WrittenFiles::default(),
            pieces,
        }),
    }))
}

/// The folder itself, or the nearest above it that is there already. What is mounted further down isn't looked at.
fn nearest(place: &[u8]) -> Option<OwnedFd> {
    let open = |path, flags| rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty());
    // Only what is opened as a directory is mounted by an automounter.
    let either = |path| open(path, OFlags::DIRECTORY).or_else(|_| open(path, OFlags::empty()));
    Path::new(OsStr::from_bytes(place)).ancestors().map(either).find_map(Result::ok)
}

/// The path without links, `.` and `..`, so that two ways to one folder are known as one. What isn't there yet stays as
/// it is written.
fn real(path: &Path) -> PathBuf {
    let mut real = PathBuf::new();
    for part in path.components() {
        match part {
            // The existing part of `real` has no links any more, so its parent is the lexical one.
            Component::ParentDir => {
                real.pop();
            }
            part => {
                real.push(part);
                real = real.canonicalize().unwrap_or(real);
            }
        }
    }
    real
}

fn caps(domain: Domain, rights: Rights, precision: Duration, (far, links): (bool, Links)) -> Caps {
    Caps {
        mtime: Some(precision),
        set_mtime: true,
        set_dir_mtime: true,
        mtime_listed: true,
        changed: ChangedMeaning::Inode,
        dirs: true,
        symlinks: links.tells(),
        keeps_empty_dirs: true,
        hashes_listed: Vec::new(),
        hashes_stored: Vec::new(),
        cheap_reads: true,
        written_in_place: false,
        listing_may_omit: false,
        files: true,
        parts: Some(PartLimits::FILE),
        domain: Some(domain),
        place: None,
        renames: true,
        renames_dirs: true,
        delete_batch: DELETE_BATCH,
        copy_batch: if far { COPY_BATCH_FAR } else { COPY_BATCH },
        conditional: true,
        deletes_version: true,
        page: None,
        case_insensitive: false,
        meta: true,
        attributes: Some(rights),
        modes: false,
        concurrency: disk::at_once(far),
        gathers: 0,
        rests_on: Vec::new(),
        relays: false,
    }
}

/// State shared by the pool's jobs.
struct Local {
    root: Arc<Root>,
    /// The root's path as copies name it ([`Domain::place`]).
    place: Arc<[u8]>,
    links: Links,
    /// Our rights over files.
    rights: Rights,
    /// Where errors come late.
    late: late_errors::Mounts,
    /// Files written in this run, where that has to be known.
    made: WrittenFiles,
    /// Remembered pieces of files.
    pieces: PieceCache,
}

struct LocalStore {
    locator: String,
    caps: Caps,
    local: Arc<Local>,
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalStore({:?})", self.locator)
    }
}

impl LocalStore {
    /// Runs `job` on the pool with what it shares.
    fn run<T: Send + 'static>(
        &self,
        op: &'static str,
        job: impl FnOnce(&Arc<Local>) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let local = self.local.clone();
        Box::pin(disk::bytes().run(op, move || job(&local)))
    }

    fn run_short<T: Send + 'static>(
        &self,
        op: &'static str,
        job: impl FnOnce(&Arc<Local>) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let local = self.local.clone();
        Box::pin(disk::bytes().run_short(op, move || job(&local)))
    }
}

impl LocalStore {
    /// Runs a batch as one job on the pool, which learns when nobody waits for it any more; one answer for each item, also when
    /// the job is lost. `to` is the key to report for an item.
    fn run_batch<I: Send + Sync + 'static, T: Send + 'static>(
        &self,
        op: &'static str,
        items: Vec<I>,
        to: fn(&I) -> &Key,
        job: impl FnOnce(&Arc<Local>, &[I], &Abandoned) -> Vec<Result<T>> + Send + 'static,
    ) -> BoxFuture<'static, Vec<Result<T>>> {
        let waiting = disk::JobWaiter::default();
        let abandoned = waiting.watch();
        let local = self.local.clone();
        let items: Arc<[I]> = items.into();
        let shared = items.clone();
        let done = disk::bytes().submit(move || job(&local, &shared, &abandoned));
        Box::pin(async move {
            let _waiting = waiting;
            let lost = |item| Err(disk::lost(op).with_key(to(item)));
            done.await.unwrap_or_else(|_| items.iter().map(lost).collect())
        })
    }
}

impl Store for LocalStore {
    fn locator(&self) -> &str {
        &self.locator
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        list::list(&self.local, request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        self.run_short("stat", move |local| read::stat(local, &key))
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        self.run("read", move |local| read::read(local, &key, want.as_ref(), range))
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let key = key.clone();
        self.run("write", move |local| upload::begin(local, &key, spec))
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let (key, spec) = (key.clone(), spec.clone());
        self.run("mkdir", move |local| tree::make_dir(local, &key, &spec))
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        let CopyBatch { from, items, links } = batch;
        self.run_batch(
            "copy",
            items,
            |item| &item.to,
            move |local, items, abandoned| {
                let from = copy::source_root(local, &from, links);
                copy::copy(local, (&from, links.munge), items, &watch, abandoned)
            },
        )
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        self.run("set_meta", move |local| tree::set_meta(local, &key, mtime, meta.as_ref()))
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        let jobs: Vec<_> = keys
            .chunks(DELETE_BATCH)
            .map(|chunk| {
                let (local, chunk) = (self.local.clone(), chunk.to_vec());
                (chunk.len(), disk::bytes().submit(move || tree::delete(&local, &chunk)))
            })
            .collect();
        Box::pin(async move {
            let answers = jobs.into_iter().map(|(count, job)| async move {
                job.await.unwrap_or_else(|_| (0..count).map(|_| Err(disk::lost("delete"))).collect())
            });
            join_all(answers).await.into_iter().flatten().collect()
        })
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        Some(self)
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn deltas(&self) -> Option<&dyn Deltas> {
        Some(self)
    }

    fn bundles(&self) -> Option<&dyn Bundles> {
        Some(self)
    }
}

impl Bundles for LocalStore {
    fn fetch(&self, wanted: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<(Entry, Bytes)>>> {
        self.run_batch(
            "read",
            wanted,
            |(key, _)| key,
            |local, wanted, abandoned| bundle::fetch(local, wanted, abandoned),
        )
    }

    fn put(&self, files: Vec<SmallFile>) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        self.run_batch("write", files, |file| &file.key, |local, files, abandoned| bundle::put(local, files, abandoned))
    }
}

impl Deltas for LocalStore {
    fn smallest_block(&self) -> u32 {
        SMALLEST_BLOCK
    }

    fn recipe(&self, key: &Key, version: Option<&Version>, cut: Chunking) -> BoxFuture<'_, Result<Recipe>> {
        let (key, version) = (key.clone(), version.cloned());
        self.run("read", move |local| delta::recipe(local, &key, version.as_ref(), cut))
    }
}

impl Resumable for LocalStore {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let (key, token) = (key.clone(), token.to_vec());
        self.run("resume", move |local| resume::resume(local, &key, &token, &sent, spec))
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        let (key, token) = (key.clone(), token.to_vec());
        self.run("discard", move |local| resume::discard(local, &key, &token))
    }
}

impl Inodes for LocalStore {
    fn file_system(&self) -> BoxFuture<'_, Option<u64>> {
        let id = self.run_short("look at the file system", |local| {
            let root = local.root.root().ok();
            Ok(root.and_then(|root| mounts::file_system(&root, &local.place)))
        });
        Box::pin(async move { id.await.ok().flatten() })
    }

    fn attributes(&self, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
        let AttributesBatch { from, items, links, set } = batch;
        self.run_batch(
            "set attributes",
            items,
            |item| &item.to,
            move |local, items, abandoned| {
                let from = copy::source_root(local, &from, links);
                items.iter().map(|item| attributes::of_item(local, &from, item, set, abandoned)).collect()
            },
        )
    }

    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
        self.run_batch(
            "read attributes",
            keys,
            |key| key,
            move |local, keys, abandoned| {
                keys.iter().map(|key| attributes::carry(local, key, inside, abandoned)).collect()
            },
        )
    }

    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
        self.run_batch(
            "rename",
            items,
            |item| &item.to,
            |local, items, abandoned| settle::settle(local, items, abandoned),
        )
    }
}

impl Hashing for LocalStore {
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>> {
        Box::pin(async { Ok(Algo::ALL.into()) })
    }

    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>> {
        let (key, version, algos) = (key.clone(), version.cloned(), algos.to_vec());
        self.run_short("read", move |local| read::hash(local, &key, version.as_ref(), &algos))
    }
}

impl Admin for LocalStore {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        self.run("about", |local| tree::about(local))
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        self.run("clean up", move |local| tree::cleanup(local, what))
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.run("sync", |local| sync::sync(local))
    }
}
