//! The contract that every store keeps. `haul-testkit`'s conformance suite is its second half: every promise here
//! is tested there, on every store and through every layer.

use crate::{Admin, Bundles, Deltas, Doubles, Encrypted, Hashing, Inodes, Lanes, Payload, Resumable, ids::Root};
use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use haul_core::{
    Algo, Entry, Error, Hashes, Key, Listed, Meta, Mtime, Result, Version,
    attributes::{FileAttributes, Rights, UnpreservedAttributes},
    delta::Run,
    filter::Filter,
    keep::Keep,
    links::SourceLinks,
    plan::Replace,
};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range, sync::Arc, time::Duration};

/// One end of a transfer: a flat namespace of keys below a root. Every method may run concurrently; every
/// request is bounded in time; dropping a future or stream cancels the request.
///
/// Every store has the verbs, so none has a default. The last nine methods return *facets*: abilities that only some stores
/// have (`facets.rs`). Those default to `None`, so that a new store starts with only those it implements. A layer
/// or any other wrapper must forward each facet, adding its own work around it: a forgotten facet is an
/// ability lost without a word. `haul-testkit`'s `conformance::same_facets` checks this.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The location as a user would type it, free of secrets: `/data/in`, `r2:bucket/dir`.
    fn locator(&self) -> &str;

    /// Abilities and limits; constant for the value's life.
    fn caps(&self) -> &Caps;

    /// Entries of a key range in bytewise key order, in batches, then [`Listed::End`]. A range that can't be read is
    /// reported as [`Listed::Failed`] before any entry after it, and the listing continues after it where
    /// it can. A stream that ends without `End` was cut, or reached its limit. The root itself is never listed.
    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed>;

    /// Facts of one key, as fresh and complete as the store can give them (mtime and stored hashes always, where
    /// the store keeps them). A key that ends in `/` asks for a directory; the empty key for the root, which is
    /// `DirNotFound` when the bucket or folder doesn't exist.
    ///
    /// Errors: `NotFound`.
    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>>;

    /// Bytes `range` (all, when `None`) of exactly version `want` (any, when `None`).
    ///
    /// Errors: `NotFound`; `ChangedMeaning` when version `want` no longer exists.
    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>>;

    /// Begins a write. Nothing is visible at `key` before [`Upload::publish`]. Stores with directories create missing ones.
    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>>;

    /// Creates the directory `key` and its parents; an existing directory is success. The empty key creates the
    /// root: the folder, or the bucket. Stores without directories write a marker if they are set to, else do nothing.
    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>>;

    /// Copies within a copy domain (see [`Caps::domain`]): the bytes don't pass through the engine. One answer for
    /// each item, in the same order; `Unsupported` means "do it another way". After a `NoSpace` those that weren't begun may be
    /// answered with `Cancelled`.
    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>>;

    /// Changes mtime and metadata (`None`: leave as it is) without sending the bytes again.
    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>>;

    /// Deletes a batch of any length; one answer for each key, in the same order. A missing key counts as
    /// deleted. A key that ends in `/` is a directory, deleted only when empty (`Exists` if it isn't). The empty key
    /// is the root: the folder, or the bucket, when empty. With a version, only that version is deleted,
    /// where the store can tell at no cost ([`Caps::deletes_version`]; S3 can't).
    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>>;

    /// Adaptive limit on concurrent requests to the endpoint; `None` where none is needed (disks).
    fn lanes(&self) -> Option<&Arc<Lanes>> {
        None
    }

    /// Finds unfinished writes again; `None` where every write must begin anew.
    fn resumable(&self) -> Option<&dyn Resumable> {
        None
    }

    /// Operations that only file systems of this machine support; `None` where files have no inodes.
    fn inodes(&self) -> Option<&dyn Inodes> {
        None
    }

    /// Hashes content in place; `None` where hashing means reading it.
    fn hashing(&self) -> Option<&dyn Hashing> {
        None
    }

    /// Questions about the store as a whole, and housekeeping; `None` where there is neither.
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }

    /// Tells apart files with the same name; `None` where names are unique.
    fn doubles(&self) -> Option<&dyn Doubles> {
        None
    }

    /// Facts that only an encrypting store has; `None` for all others.
    fn encrypted(&self) -> Option<&dyn Encrypted> {
        None
    }

    /// Builds files from pieces of existing ones; `None` where all bytes of a file have to be sent.
    fn deltas(&self) -> Option<&dyn Deltas> {
        None
    }

    /// Reads and writes many small files in one request; `None` where each is a request of its own, or costs no more alone.
    fn bundles(&self) -> Option<&dyn Bundles> {
        None
    }
}

/// Abilities and limits of a store. Data, so that tests and the planner can read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Caps {
    /// Precision of stored modification times; `None` when it can't store them.
    pub mtime: Option<Duration>,
    /// An mtime can be changed without rewriting or copying the content.
    pub set_mtime: bool,
    /// Directories keep an mtime that is set on them.
    pub set_dir_mtime: bool,
    /// Listings carry the mtime (else `stat` or `read` must be asked).
    pub mtime_listed: bool,
    /// Meaning of [`Entry::changed`].
    pub changed: ChangedMeaning,
    /// It has real directories.
    pub dirs: bool,
    /// Symlinks are listed, read and written as [`haul_core::Kind::Symlink`], as far as the store was opened to do so.
    pub symlinks: bool,
    /// An empty directory that was created shows in listings.
    pub keeps_empty_dirs: bool,
    /// Hashes that listings carry for many or all keys.
    pub hashes_listed: Vec<Algo>,
    /// Hashes that `stat` may return without reading the content.
    pub hashes_stored: Vec<Algo>,
    /// Reading costs no request and little time, so hashes may be computed by reading (local disks, memory).
    pub cheap_reads: bool,
    /// A file may be written in place while it is read, so that the bytes read may mix two versions. Implied where content is a file of
    /// this
    /// machine ([`Caps::files`]).
    pub written_in_place: bool,
    /// Listings may leave names out without a word, so each name that seems to be missing must be asked about before anything is
    /// deleted for it.
    pub listing_may_omit: bool,
    /// Bodies come as files and payloads may be files.
    pub files: bool,
    /// A part's payload may come from another store ([`Payload::of_store`]) and is streamed through.
    pub relays: bool,
    /// Limits of writing in parts; `None` means one stream, in order.
    pub parts: Option<PartLimits>,
    /// Two stores whose domains have the same name copy between themselves.
    pub domain: Option<Domain>,
    /// Location of a store that can't copy server-side and so has no domain; otherwise as [`Caps::domain`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Domain>,
    /// Moves within the store are renames ([`CopyHow::Rename`]). Where they aren't, a move is a copy, and its source is deleted together
    /// with others.
    #[serde(default = "renames")]
    pub renames: bool,
    /// A directory can be renamed with all that is below it ([`CopyHow::RenameDir`]).
    #[serde(default)]
    pub renames_dirs: bool,
    /// Largest batch that one delete request takes; 1 when each key costs a request.
    pub delete_batch: usize,
    /// Best number of files for one [`Store::copy`]: many where each takes microseconds, few where each is a request to a server;
    /// 1 where batching gains no time.
    pub copy_batch: usize,
    /// `Replace::Absent` and `Replace::Exactly` are honoured atomically.
    pub conditional: bool,
    /// [`Store::delete`] honours the version that it is given.
    pub deletes_version: bool,
    /// Largest number of keys in one page of a listing, where a listing may begin after any key at no more cost and several
    /// at once pay; `None` where that isn't so (disks, memory, services whose listings have no order).
    pub page: Option<usize>,
    /// Names that differ only by case are one.
    pub case_insensitive: bool,
    /// Metadata can be read and written.
    pub meta: bool,
    /// Only without [`Caps::attributes`]: metadata has permission bits as `mode`, in octal digits, and sets them.
    pub modes: bool,
    /// Files have inodes, with owners, permission bits and more, and these are our rights to change them; `None` where they
    /// don't. Only for stores with [`Inodes`].
    pub attributes: Option<Rights>,
    /// Concurrent requests to start with, unless the user sets a number.
    pub concurrency: usize,
    /// Small files whose publishes may wait at once: a store that packs many files into one object answers them together, the
    /// sooner the more there are. 0 where each publish is answered separately.
    pub gathers: usize,
    /// Domains of the store that holds this one's content, and of those below that one: a change there is a change here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rests_on: Vec<Domain>,
}

/// Default for stores that don't say: those of versions before this field are disks.
fn renames() -> bool {
    true
}

impl Caps {
    /// False where directories exist only as prefixes of keys: there is nothing to delete, and asking would cost requests.
    pub fn has_dirs(&self) -> bool {
        self.dirs || self.keeps_empty_dirs
    }

    /// Domains that a store rests on if it keeps its content in these directories of this one.
    pub fn ground(&self, dirs: &[&[u8]]) -> Vec<Domain> {
        let own = self.domain.iter().flat_map(|domain| dirs.iter().map(|dir| domain.below(dir)));
        own.chain(self.rests_on.iter().cloned()).collect()
    }
}

/// Meaning of [`Entry::changed`] in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangedMeaning {
    /// Not reported, or meaningless.
    Unknown,
    /// An inode's ctime: any change of content or metadata moves it, and no user can set it back.
    Inode,
    /// Time at which these bytes were stored, by the store's clock.
    Stored,
}

/// Limits of writing in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartLimits {
    /// Smallest part except the last, in bytes.
    pub min: u64,
    /// Largest part, in bytes.
    pub max: u64,
    /// Maximum number of parts of one upload.
    pub count: u64,
    /// Preferred part size, in bytes.
    pub preferred: u64,
    /// The user chose the preferred size.
    pub chosen: bool,
    /// All parts except the last are a multiple of this size, in bytes; at least 1.
    pub multiple: u64,
    /// All parts except the last must have the same size.
    pub equal: bool,
    /// A part may wait until all before it are handed over too, so don't wait for its answer before that.
    pub waits: bool,
    /// The size of a file must be known before its first part is sent.
    pub sized: bool,
    /// A file up to this size is sent as a single part without the cost of a multipart upload, in bytes.
    pub single: u64,
    /// A file up to this size is copied inside the store by one request, a larger one in parts, in bytes.
    pub single_copy: u64,
}

impl PartLimits {
    /// The whole file in one request. Up to 64 MiB may wait in memory for that; a larger file is read as it is sent.
    pub const WHOLE: PartLimits = PartLimits {
        min: 1 << 62,
        max: 1 << 62,
        count: 1,
        preferred: (64 << 20) + 1,
        chosen: true,
        multiple: 1,
        equal: false,
        waits: false,
        sized: false,
        single: 64 << 20,
        single_copy: u64::MAX,
    };

    /// A file on a disk: any piece of it may be written at any time. 8 MiB is enough to make a request's latency negligible.
    pub const FILE: PartLimits = PartLimits {
        min: 1,
        max: u64::MAX / 2,
        count: u64::MAX / 2,
        preferred: 8 << 20,
        chosen: false,
        multiple: 1,
        equal: false,
        waits: false,
        sized: false,
        single: 0,
        single_copy: u64::MAX,
    };
}

/// A place within which a service copies server-side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Same name, same domain: the machine's file systems; one endpoint and account.
    pub name: String,
    /// Position of this store's root in the domain: a folder, or `bucket/prefix`. Opaque to all but the store's own kind, except that the
    /// place of a subdirectory begins with its parent's place and a slash.
    pub place: Arc<[u8]>,
    /// The place on its device, where known: a folder mounted at two places has two places in the
    /// domain and one on its device. Comparable between stores of one domain only.
    pub on_device: Option<Arc<[u8]>>,
}

impl Domain {
    /// True for the root of all that there is, also where another store keeps its content there.
    #[must_use]
    pub fn is_all(&self) -> bool {
        Domain::place_is_all(&self.place)
    }

    fn place_is_all(place: &[u8]) -> bool {
        let within = Domain::place_within(place);
        matches!(place, b"" | b"/")
            || Root::parse(place).is_some_and(|root| root.is_all())
            || within.is_some_and(|(place, prefix)| prefix.is_empty() && Domain::place_is_all(place))
    }

    /// Domain of a store of this `kind` that keeps its content at this place: both ends know the place and the prefix of
    /// their keys (`prefix`: nothing, or a directory with its slash).
    #[must_use]
    pub fn within(&self, kind: &str, prefix: &[u8]) -> Domain {
        let place = [&(self.place.len() as u64).to_le_bytes()[..], &self.place, b"/", prefix].concat();
        Domain { name: format!("{kind} {}", self.name), place: place.into(), on_device: None }
    }

    /// The place and the prefix that [`Domain::within`] was given.
    #[must_use]
    pub fn place_within(place: &[u8]) -> Option<(&[u8], &[u8])> {
        let (len, rest) = place.split_first_chunk::<8>()?;
        let (place, prefix) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        Some((place, prefix.strip_prefix(b"/")?))
    }

    /// The domain of a directory below this one; this domain for an empty key.
    #[must_use]
    pub fn below(&self, dir: &[u8]) -> Domain {
        let at = |place: &Arc<[u8]>| match dir {
            b"" => place.clone(),
            dir => [&as_dir(place), dir].concat().into(),
        };
        Domain { name: self.name.clone(), place: at(&self.place), on_device: self.on_device.as_ref().map(at) }
    }
}

/// A [place](Domain::place) with a slash at its end, unless it is the root of everything.
#[must_use]
pub fn as_dir(place: &[u8]) -> Vec<u8> {
    match place {
        b"" | [.., b'/'] => place.to_vec(),
        _ => [place, b"/"].concat(),
    }
}

/// Range and form of a listing.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ListRequest {
    /// Only keys that start with these bytes. A whole directory's prefix ends in `/`.
    #[serde(with = "haul_core::wire::raw")]
    pub prefix: Vec<u8>,
    /// Only keys after this one.
    pub after: Option<Key>,
    /// Keys after this one aren't needed. Stores may list them all the same; the caller stops there.
    pub until: Option<Key>,
    /// Everything below the prefix, or (`false`) only down to the next `/`, where directories stand for their contents.
    pub recursive: bool,
    /// Stop after about this many entries. The stream ends in `End` only if there are no more, else without it. Where
    /// [`Caps::page`] says so, a limit of one page is one request.
    pub limit: Option<usize>,
    /// Ask for metadata too, where that costs no request for each key.
    pub meta: bool,
    /// Ask for facts of inodes too, where there are inodes; costs nothing there.
    pub posix: bool,
    /// Directories that this filter refuses to descend into need not be opened: nothing in them is wanted, nor are they
    /// themselves. Stores with flat listings may ignore it, and the caller still filters the entries. Left out on a wire
    /// where it can't leave this machine ([`Filter::is_portable`]).
    #[serde(with = "haul_core::filter::portable", skip_serializing_if = "haul_core::filter::portable::is_none")]
    pub prune_by: Option<Arc<Filter>>,
    /// Don't cross mount points below the root. Each one is listed as a directory, and its contents are reported as lost, by an error
    /// of the kind `Hidden`.
    pub one_device: bool,
    /// With `one_device`: the directory isn't listed either, and is lost too.
    pub omit_mounts: bool,
    /// The caller is about to write there: remains of unfinished writes are removed where they are met, if the process that began them is
    /// known to be dead and nobody can resume them.
    pub sweep: bool,
}

impl CopyHow {
    /// True for copies that most stores answer with `Unsupported`: only stores with [`Inodes`] support them, and
    /// [`CopyHow::RenameDir`] only those that say so.
    pub fn needs_inodes(self) -> bool {
        !matches!(self, CopyHow::Copy | CopyHow::Rename)
    }
}

impl ListRequest {
    /// Everything.
    pub fn all() -> Self {
        ListRequest { recursive: true, ..Default::default() }
    }

    /// One directory (`""` or ending in `/`), without the contents of its subdirectories.
    pub fn dir(prefix: impl Into<Vec<u8>>) -> Self {
        ListRequest { prefix: prefix.into(), ..Default::default() }
    }

    /// False for a directory (its key, ending in `/`) that need not be opened.
    pub fn descends(&self, dir: &[u8]) -> bool {
        let meets = |through: &Key| dir <= through.as_bytes();
        self.until.as_ref().is_none_or(meets) && self.prune_by.as_ref().is_none_or(|filter| filter.descend(dir))
    }
}

impl fmt::Debug for ListRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListRequest")
            .field("prefix", &self.prefix.escape_ascii().to_string())
            .field("after", &self.after)
            .field("until", &self.until)
            .field("recursive", &self.recursive)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// An answered read: facts about the key, and its bytes.
#[derive(Debug)]
pub struct Read {
    /// Facts that came with the bytes. `size` is that of the whole content, not of the range.
    pub entry: Entry,
    /// The bytes of the range.
    pub body: Body,
}

/// Bytes on offer.
pub enum Body {
    /// A file and the range in it.
    File(Arc<std::fs::File>, Range<u64>),
    /// Pieces in order. An error ends the stream; a stream that ends early shows only in the reader's byte count.
    Stream(BoxStream<'static, Result<Bytes>>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::File(_, range) => write!(f, "File({range:?})"),
            Body::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// How to write: condition on the existing file, and facts to keep with the new one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct WriteSpec {
    /// Bytes to come; `None` when unknown (a pipe). When known, `publish` fails with `Corrupt` unless exactly as
    /// many arrived.
    pub size: Option<u64>,
    /// Condition on what exists at the key.
    pub replace: Replace,
    /// Modification time to keep; `None` leaves it to the store.
    pub mtime: Option<Mtime>,
    /// Metadata to keep.
    pub meta: Option<Box<Meta>>,
    /// Hashes of the whole content as the source knows them: the store may verify against them or keep them
    /// (`md5chksum`), and answers `Corrupt` when it stored something else.
    pub hashes: Hashes,
    /// Write directly to the final name instead of a temporary one (`--inplace`).
    pub inplace: bool,
    /// Suffix of the temporary name.
    pub partial_suffix: String,
    /// Keep set-uid, set-gid and sticky bits of `meta`'s mode.
    pub keep_setid: bool,
    /// For a rename: `Unsupported` if its bytes would have to be copied. Only used on this machine, so it crosses no wire.
    #[serde(skip)]
    pub renamed_only: bool,
    /// Don't rely on the size (`--ignore-size`): whatever arrives is stored.
    pub size_may_differ: bool,
    /// Attributes to take over from the source in a copy between file systems; other stores ignore it. On the root's
    /// [`Store::make_dir`] it says that directories get their attributes later: until then those made from now on are
    /// accessible to their owner alone, and those of ours that forbid a change are opened for it.
    #[serde(with = "haul_core::wire::shared", skip_serializing_if = "Option::is_none")]
    pub keep: Option<Arc<Keep>>,
    /// The source's attributes, where the source is on another machine: for [`CopyHow::Special`], and for a new file there, whose store
    /// sets
    /// them (those of [`WriteSpec::keep`]) before the publish is answered. Only stores that have [`Store::inodes`] and no files of this
    /// machine
    /// get them with a write.
    #[serde(with = "haul_core::wire::shared", skip_serializing_if = "Option::is_none")]
    pub carried: Option<Arc<FileAttributes>>,
    /// Write blocks of zeros as holes, where the store has holes.
    pub sparse: bool,
    /// The bytes, then the name, are on the device before the publish or copy is answered. Stores whose publishes are durable already
    /// ignore it.
    pub fsync: bool,
    /// Drop the transferred bytes from the page cache, where the store has one.
    pub drop_cache: bool,
    /// The token will be saved, so that a later run can resume the write: no sweep removes it (see [`ListRequest::sweep`]).
    pub resumable: bool,
}

impl WriteSpec {
    /// See [`Keep::private`]; false where nothing is kept.
    pub fn is_private(&self) -> bool {
        self.keep.as_ref().is_some_and(|keep| keep.private())
    }

    /// See [`Keep::hides`]; false where nothing is kept.
    pub fn hides(&self) -> bool {
        self.keep.as_ref().is_some_and(|keep| keep.hides())
    }
}

impl Default for WriteSpec {
    fn default() -> Self {
        WriteSpec {
            size: None,
            replace: Replace::Anything,
            mtime: None,
            meta: None,
            hashes: Hashes::default(),
            inplace: false,
            partial_suffix: ".partial".into(),
            keep_setid: false,
            renamed_only: false,
            size_may_differ: false,
            keep: None,
            carried: None,
            sparse: false,
            fsync: false,
            drop_cache: false,
            resumable: false,
        }
    }
}

/// Facts that the store reports about the file it now holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredFacts {
    /// Version of the written file.
    pub version: Option<Version>,
    /// Bytes as the store counts them if it does, else as sent.
    pub size: u64,
    /// Hashes of the whole content that the store computed itself, or checked against ours.
    pub hashes: Hashes,
    /// Attributes of [`WriteSpec::keep`] that could not be kept. For a device or FIFO that could not be made, this is the answer, and
    /// nothing was changed.
    #[serde(rename = "unkept")]
    pub unpreserved: UnpreservedAttributes,
}

/// A part that the store holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Number, from 0.
    pub index: u64,
    /// Bytes.
    pub size: u64,
    /// The store's receipt.
    #[serde(with = "haul_core::wire::raw")]
    pub tag: Vec<u8>,
}

/// A write in progress. `publish` and `abort` take it by value, so neither can happen twice; dropping it without
/// either leaves hidden remains (a partial file, an unfinished multipart upload), never a visible half.
pub trait Upload: Send + Sync {
    /// Enough to find this write again after a crash ([`Resumable::resume`]), also before its first part; `None` where the
    /// store can't. A store that would otherwise wait to see whether one request is enough begins a multipart write
    /// when asked: ask only for files that will have parts.
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>>;

    /// Size in bytes of each part but the last, where the service sets it for this write: it replaces the size chosen within
    /// [`PartLimits`]. `None` where it doesn't. When to ask: as for [`Upload::token`]. Parts of other sizes are accepted too, but each may
    /// wait for the one before it, and [`Resumable::resume`] need not prove them.
    fn part_size(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// True if several processes may send parts of this write at once, in any order: each opens it by the token ([`Resumable::resume`]
    /// with no sent parts), and any of them publishes it with the receipts of all. A part that was answered
    /// survives a failure of its sender's machine; where [`Upload::read_back`] returns a file, only once that was fsynced.
    fn is_shared(&self) -> bool {
        false
    }

    /// Bytes of parts that were sent already, in this run or an earlier one, for a caller that must hash the whole.
    ///
    /// Errors: `Unsupported` where sent bytes can't be read before the publish.
    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>>;

    /// Sends part `index`, which starts at byte `offset` of the whole. Parts may be sent concurrently and out of order;
    /// sending one again replaces it. Parts other than the last keep within [`PartLimits`].
    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>>;

    /// Reuses runs of bytes of the file that has the name now instead of sending them; each run is a part. A write in place
    /// leaves them where they are: then every run has its old offset. The result is verified before it is visible: the spec has the
    /// BLAKE3 of the whole, and `publish` answers `Corrupt` where the stored bytes have another.
    ///
    /// Errors: `Unsupported` where the store can't, or the spec has no BLAKE3; `ChangedMeaning` where the file isn't `version`.
    fn reuse(&self, version: &Version, runs: Vec<Run>) -> BoxFuture<'_, Result<Vec<Part>>> {
        let _ = (version, runs);
        let error = Error::new(haul_core::ErrorKind::Unsupported, "write", "the store makes no file from another");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Makes the whole visible at once, under the spec's `replace` condition. `late` overrides facts that were only known
    /// after the bytes had passed.
    ///
    /// Errors: `Corrupt` when the store's answer doesn't match the bytes sent, or the size differs from the spec's;
    /// then nothing new is visible. `Exists` or `ChangedMeaning` when the condition doesn't hold. The write
    /// is returned with the error, to be published again or aborted.
    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>>;

    /// Removes everything sent so far.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// A publish that failed, and the write that it was to publish.
pub struct Unpublished {
    /// Why it failed.
    pub error: haul_core::Error,
    /// The write, unchanged: publish it again, or abort it.
    pub upload: Box<dyn Upload>,
}

impl From<Unpublished> for haul_core::Error {
    /// Gives the write up without removing what was sent of it.
    fn from(failed: Unpublished) -> Self {
        failed.error
    }
}

impl fmt::Debug for Unpublished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unpublished({:?})", self.error)
    }
}

/// Facts that a writer learns only while the bytes pass; each `Some` or non-empty value replaces the spec's.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LateFacts {
    /// Modification time (from the source's answer to the read).
    pub mtime: Option<Mtime>,
    /// Metadata.
    pub meta: Option<Box<Meta>>,
    /// Hashes of what passed.
    pub hashes: Hashes,
}

/// Copies to do within a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyBatch {
    /// The source store's [`Domain::place`].
    #[serde(with = "haul_core::wire::raw")]
    pub from: Arc<[u8]>,
    /// The copies to make.
    pub items: Vec<CopyItem>,
    /// How the source shows its links, where there are links.
    pub links: SourceLinks,
}

/// One copy of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyItem {
    /// Key below the source's root.
    pub from: Key,
    /// Exactly this version, when given; `ChangedMeaning` if it is gone.
    pub want: Option<Version>,
    /// Bytes, as listed.
    pub size: u64,
    /// Key below this store's root.
    pub to: Key,
    /// How to write it. Without metadata and mtime the source's own are kept where the store can.
    pub spec: WriteSpec,
    /// By which means.
    pub how: CopyHow,
}

/// By which means a copy within a domain is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyHow {
    /// The bytes are there twice afterwards, as far as a user can tell.
    #[default]
    Copy,
    /// A rename instead where source and destination allow it, else a copy; the source is then gone either way. Only of stores
    /// that [rename](Caps::renames).
    Rename,
    /// A directory, both of whose keys end in `/`, gets another name with all that is below it, by one request and only where nothing
    /// is: else `Exists`. `Unsupported` where it must be moved file by file. Only of stores with [`Caps::renames_dirs`].
    RenameDir,
    /// Another name of the same file (a hard link); `Unsupported` where the two can't be one.
    Link,
    /// Appends the source's remaining bytes to the existing file, in place, and its attributes become
    /// the source's; as [`CopyHow::Copy`] where it isn't shorter, or where (with `verify`) it begins otherwise than the
    /// source.
    Append {
        /// Compare what is there first.
        verify: bool,
    },
    /// A device, FIFO or socket is made anew; the source is not looked at where its attributes were carried along.
    Special,
}

/// Observer of a batch of copies: hears of bytes as they are copied, and remembers large copies. It goes beside the request,
/// which is data.
#[derive(Clone, Default)]
pub struct Watch {
    /// Called with an item's number and further bytes of it.
    progress: Option<Arc<dyn Fn(usize, u64) + Send + Sync>>,
    /// By item; those beyond the end have none.
    logs: Vec<Option<Arc<dyn LogCopy>>>,
}

impl Watch {
    /// Tells `progress` of an item's number and of bytes that were copied of it.
    pub fn new(progress: impl Fn(usize, u64) + Send + Sync + 'static) -> Watch {
        Watch { progress: Some(Arc::new(progress)), logs: Vec::new() }
    }

    /// Has copies in parts remembered, each item's by its own.
    pub fn with_logs(self, logs: Vec<Option<Arc<dyn LogCopy>>>) -> Watch {
        Watch { logs, ..self }
    }

    /// Tells of further bytes of an item.
    pub fn copied(&self, item: usize, bytes: u64) {
        if let Some(progress) = self.progress.as_ref().filter(|_| bytes > 0) {
            progress(item, bytes);
        }
    }

    /// The log of this item, if it is a large one that goes in parts.
    pub fn log(&self, item: usize) -> Option<&dyn LogCopy> {
        self.logs.get(item)?.as_deref()
    }

    /// This watch for a batch that holds some of the items: each has the number in it that it has in `numbers`.
    pub fn of(&self, numbers: Vec<usize>) -> Watch {
        let watch = self.clone();
        self.through(numbers, move |number, bytes| watch.copied(number, bytes))
    }

    /// As [`Watch::of`], but `progress` is called, with the numbers that items have here.
    pub fn through(&self, numbers: Vec<usize>, progress: impl Fn(usize, u64) + Send + Sync + 'static) -> Watch {
        let logs = numbers.iter().map(|number| self.logs.get(*number).cloned().flatten()).collect();
        let report = move |at: usize, bytes| {
            if let Some(number) = numbers.get(at) {
                progress(*number, bytes);
            }
        };
        Watch { progress: self.progress.is_some().then(|| Arc::new(report) as _), logs }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// Log of a copy in parts, and of an earlier one. A copy that is dropped stays as last logged.
pub trait LogCopy: Send + Sync {
    /// The copy that an earlier run or try began and left; the same until [`LogCopy::ended`].
    fn left(&self) -> Option<LeftCopy>;

    /// A copy begins, found again by `token` ([`Resumable::discard`] takes it too). Resolves when that is durable, or can't be.
    fn begun(&self, token: Vec<u8>, part_size: u64) -> BoxFuture<'_, ()>;

    /// A part is at the destination.
    fn copied(&self, part: Part);

    /// The copy that was left or begun is whole and visible, or removed.
    fn ended(&self);

    /// Of what was left the store can't tell what is there. True when that has been so often enough to begin anew: then it is
    /// left no more.
    fn untold(&self, error: &Error) -> bool;
}

/// A copy that was begun and left.
#[derive(Clone, Debug)]
pub struct LeftCopy {
    /// The token that finds it.
    pub token: Vec<u8>,
    /// Bytes of each part but the last.
    pub part_size: u64,
    /// The parts that were copied.
    pub parts: Vec<Part>,
}
