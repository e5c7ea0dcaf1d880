//! Packs: many small files stored as a few large tar archives, each with an index, on another store. For users with
//! 100,000 tiny files where each one costs a request. Format and reasons: docs/adr/0008-packs.md.
//!
//! Modules: `index` and `tar` are the formats (pure); `load` reads the indexes, `merge` combines them, `missing` finds packs and files
//! that they name and that don't exist; `gather` batches publishes and writes packs; `upload` is one file's write. Requests are retried by
//! the layers around the wrapped store.

mod cleanup;
mod gather;
mod index;
mod keys;
mod list;
mod load;
mod merge;
mod missing;
mod read;
mod read_ahead;
mod tar;
#[cfg(test)]
mod tests;
mod upload;

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
    stream::BoxStream,
};
use gather::{Gather, KeyRequest};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version, plan::Replace, units::parse_size,
};
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Lanes, ListRequest, OpenRequest, OptionKind, OptionSpec, Read,
    SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload, Watch, WriteSpec, offered,
};
use load::View;
use read_ahead::RecentReads;
use std::{fmt, ops::Range, sync::Arc, time::Duration};

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "pack",
    description: "Many small files in a few large tar archives on another remote",
    options: &[
        OptionSpec {
            name: "remote",
            help: "The remote and path that hold the packs, such as minio:bucket/dir.",
            default: "",
            kind: OptionKind::Remote,
            advanced: false,
            secret: false,
            examples: &[],
        },
        OptionSpec {
            name: "small",
            help: "Pack files up to this size; larger ones are stored separately. At most 16Mi.",
            default: "1Mi",
            kind: OptionKind::Size,
            advanced: true,
            secret: false,
            examples: &[],
        },
        OptionSpec {
            name: "size",
            help: "Send a pack when it has reached this size. At most 1Gi.",
            default: "30Mi",
            kind: OptionKind::Size,
            advanced: true,
            secret: false,
            examples: &[],
        },
        OptionSpec {
            name: "rebuild",
            help: "Read packs without their index if it is lost or damaged, to rescue their files. Files that were \
                   deleted or changed since then may reappear as they were.",
            default: "false",
            kind: OptionKind::Bool,
            advanced: true,
            secret: false,
            examples: &[],
        },
    ],
    open,
};

/// Largest `small`: a packed file is in memory as a whole.
const MAX_SMALL: u64 = 16 << 20;
/// Largest pack.
const MAX_SIZE: u64 = 1 << 30;

/// Files whose publishes may wait together. A pack is sent when half of them wait, so that the other half can gather
/// meanwhile. With a tar's 1.5 KiB a file, half are packs of 10 MiB from files of 1 kB; a waiting file takes some 10 kB.
const GATHERED: usize = 8192;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    const OP: &str = "open";
    let invalid = |message: &str| Error::new(ErrorKind::Invalid, OP, message);
    let inner = request.wrapped.get("remote").cloned();
    let inner = inner.ok_or_else(|| invalid("a pack remote needs the option remote: where the packs are"))?;
    let size = |name: &str, default: u64, most: u64| match request.options.get(name).filter(|v| !v.is_empty()) {
        None => Ok(default),
        Some(value) => match parse_size(value) {
            Ok(size) if size.bytes().is_none_or(|size| size <= most) => Ok(size.bytes().unwrap_or(most)),
            Ok(_) => Err(invalid(&format!("the option {name} of a pack remote is at most {most} bytes"))),
            Err(why) => Err(invalid(&format!("the option {name} of a pack remote: {why}"))),
        },
    };
    let settings = Settings {
        small: size("small", Settings::default().small, MAX_SMALL)?,
        size: size("size", Settings::default().size, MAX_SIZE)?,
        rebuild: request.options.get("rebuild").is_some_and(|v| v == "true"),
        ..Settings::default()
    };
    Ok(Arc::new(PackStore::new(inner, &request.path, settings)))
}

/// How packs are made.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Files up to this many bytes are packed.
    pub small: u64,
    /// A pack of this many bytes is sent at once.
    pub size: u64,
    /// A pack of this many files is sent at once.
    pub files: usize,
    /// A pack is sent when nothing has joined it for so long and no further small file is being written.
    pub quiet: Duration,
    /// A pack is sent when nothing has joined it for so long, whatever is being written.
    pub stalled: Duration,
    /// A pack is sent when its first file has waited for so long.
    pub patience: Duration,
    /// A file whose index comes so long after it was begun is looked for first; an index that is so late itself isn't stored.
    pub late: Duration,
    /// Do without indexes that are lost or damaged.
    pub rebuild: bool,
}

impl Default for Settings {
    /// 30 MiB fill a connection of 25 MB/s for a second, so that a request's latency no longer matters; with one more
    /// file of 1 MiB that is still one request on S3, by the default of 32 MiB. The times are short enough not to bother a person
    /// at the end of a run, and long enough for the next file to come from a busy disk or over a slow network.
    /// An hour is well before house-keeping takes a pack for left behind (a day), and no single pack takes so long.
    fn default() -> Self {
        Settings {
            small: 1 << 20,
            size: 30 << 20,
            files: GATHERED / 2,
            quiet: Duration::from_millis(50),
            stalled: Duration::from_millis(500),
            patience: Duration::from_secs(30),
            late: Duration::from_secs(3600),
            rebuild: false,
        }
    }
}

/// Files in packs on another store.
#[derive(Clone)]
pub struct PackStore(Arc<Shared>);

struct Shared {
    /// Holds the packs; the layers are around it.
    inner: Arc<dyn Store>,
    /// Prefix of all keys of this store in the packs: empty, or a folder with its `/`.
    prefix: Vec<u8>,
    locator: String,
    caps: Caps,
    settings: Settings,
    view: View,
    gather: Gather,
    ahead: RecentReads,
}

impl fmt::Debug for PackStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackStore({:?})", self.0.locator)
    }
}

impl PackStore {
    /// The folder `path` in the packs on `inner`, which has the layers around it already. Sends nothing.
    pub fn new(inner: Arc<dyn Store>, path: &[u8], settings: Settings) -> Self {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let prefix = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
        let below = if path.is_empty() { String::new() } else { format!(" {}", String::from_utf8_lossy(path)) };
        let locator = format!("{} (packed){below}", inner.locator());
        let caps = caps(inner.caps(), &settings, &prefix);
        let (view, gather, ahead) = Default::default();
        PackStore(Arc::new(Shared { inner, prefix, locator, caps, settings, view, gather, ahead }))
    }
}

fn caps(inner: &Caps, settings: &Settings, prefix: &[u8]) -> Caps {
    let place = inner.domain.as_ref().map(|domain| domain.within("pack", prefix));
    Caps {
        mtime: Some(Duration::from_nanos(1)),
        set_mtime: true,
        set_dir_mtime: false,
        mtime_listed: true,
        changed: ChangedMeaning::Unknown,
        dirs: false,
        symlinks: false,
        keeps_empty_dirs: false,
        hashes_listed: vec![Algo::Md5],
        hashes_stored: vec![Algo::Md5, Algo::Crc64Nvme],
        cheap_reads: inner.cheap_reads,
        written_in_place: false,
        listing_may_omit: false,
        files: false,
        parts: inner.parts.map(|mut limits| {
            limits.single = limits.single.max(settings.small);
            limits
        }),
        domain: None,
        place,
        renames: false,
        renames_dirs: false,
        delete_batch: 1000,
        conditional: false,
        deletes_version: true,
        page: None,
        case_insensitive: false,
        meta: true,
        attributes: None,
        modes: false,
        concurrency: inner.concurrency,
        copy_batch: 1,
        gathers: settings.files * 2,
        rests_on: inner.ground(&[b"packs", b"files"]),
        relays: false,
    }
}

impl Shared {
    /// A key as it is in the packs.
    fn full(&self, key: &Key) -> Vec<u8> {
        [&self.prefix, key.as_bytes()].concat()
    }

    fn not_found(&self, op: &'static str, key: &Key) -> Error {
        Error::new(ErrorKind::NotFound, op, "no such key").with_key(key)
    }
}

impl Store for PackStore {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        list::list(self.0.clone(), request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        async move { read::stat(&self.0, &key).await }.boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        async move { read::read(&self.0, &key, want.as_ref(), range).await }.boxed()
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let key = key.clone();
        async move { upload::begin(&self.0, key, spec).await }.boxed()
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        if key.is_root() { self.0.inner.make_dir(key, spec) } else { ready(Ok(())).boxed() }
    }

    fn copy(&self, batch: CopyBatch, _: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        let unsupported = || Err(Error::new(ErrorKind::Unsupported, "copy", "packs don't copy by themselves"));
        ready(batch.items.iter().map(|_| unsupported()).collect()).boxed()
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        async move {
            if key.is_root() || key.is_dir() {
                return Ok(());
            }
            let what = KeyRequest::Touch { mtime, meta: meta.map(Box::new) };
            let joined = self.0.join(key, Replace::Anything, what).await;
            joined.map(|_| ()).map_err(|failed| failed.error)
        }
        .boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        async move { cleanup::delete(&self.0, keys).await }.boxed()
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.0.inner.lanes()
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

impl Admin for PackStore {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        async move { offered(self.0.inner.admin(), "about")?.about().await }.boxed()
    }

    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        async move { offered(self.0.inner.admin(), "userinfo")?.user().await }.boxed()
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        async move { cleanup::cleanup(&self.0, what).await }.boxed()
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        async move { offered(self.0.inner.admin(), "sync")?.sync().await }.boxed()
    }
}
