//! Facets: abilities of some stores beyond the verbs of [`Store`](crate::Store), each a small trait returned by an accessor.
//! A store implements those that it supports and ignores the others.

use crate::{Store, StoredFacts, Upload, WriteSpec, store::Part};
use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Meta, Mtime, Result, Version,
    attributes::{Differs, FileAttributes, UnpreservedAttributes},
    delta::{Chunking, Recipe},
    keep::Keep,
    links::SourceLinks,
    plan::Replace,
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc, time::Duration};

/// The facet, for callers that need it.
///
/// Errors: `Unsupported` where the store doesn't have it.
pub fn offered<T>(facet: Option<T>, op: &'static str) -> Result<T> {
    facet.ok_or_else(|| Error::new(ErrorKind::Unsupported, op, "this kind of store can't do that"))
}

/// `Unsupported` for each of `count` items.
pub fn none_offered<T>(count: usize, op: &'static str) -> Vec<Result<T>> {
    (0..count).map(|_| offered(None, op)).collect()
}

/// The `Unsupported` answer of a store that doesn't implement one verb of a facet.
fn lacking<T: Send + 'static>(op: &'static str, why: &'static str) -> BoxFuture<'static, Result<T>> {
    Box::pin(ready(Err(Error::new(ErrorKind::Unsupported, op, why))))
}

/// Finds writes again that were begun earlier, perhaps by another process, and neither published nor aborted.
pub trait Resumable: Send + Sync {
    /// Reopens the write that [`Upload::token`] names, with the parts of `sent` that are proved to be stored still: their receipts are
    /// valid for [`Upload::publish`], all other parts must be sent again. A store that can read back what was sent compares it with
    /// [`SentPart::crc64`]; one that can't compares what it reports about the parts.
    ///
    /// Errors: `NotFound` when the write is missing; `Changed` when it was begun for another `spec` (other metadata, say): discard it;
    /// `Corrupt` when the store answers but can't say what it holds of the write: begin anew, and discard it if possible; `Invalid` when
    /// the token doesn't belong to this key.
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>>;

    /// Removes the remains of a write. A write that is already missing is success: false where the store can tell.
    ///
    /// Errors: `Invalid` when the token doesn't belong to this key.
    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>>;

    /// The version that a file assembled from these parts of a write to `key` has, where it follows from their receipts: a file with this
    /// version consists of them, whoever published it. `None` where it doesn't follow.
    fn whole_version(&self, _key: &Key, _parts: &[Part]) -> Option<Version> {
        None
    }
}

/// A part sent by an earlier run, as recorded in a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentPart {
    /// The part as the store acknowledged it.
    pub part: Part,
    /// Offset of its first byte in the whole.
    pub offset: u64,
    /// CRC-64/NVME of its bytes.
    pub crc64: u64,
}

/// A write that was found again, and the parts that it has.
pub type ResumedWrite = (Box<dyn Upload>, Vec<Part>);

/// For stores whose files have inodes, with owners, permission bits and more. They also support the kinds of copy that
/// [`CopyHow::needs_inodes`](crate::CopyHow::needs_inodes) names.
pub trait Inodes: Send + Sync {
    /// Compares the attributes of existing entries (directories and the root too) with those of a source in the same copy
    /// domain or with carried ones, and with `batch.set` sets those that differ to the source's. Moves no content. One answer for each
    /// item, in the same order.
    fn attributes(&self, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>>;

    /// Attributes of files and directories (everything beside names and bytes), for a store on another machine; extended attributes and
    /// ACLs only if `inside`. One answer for each key, in the same order.
    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>>;

    /// Renames files of this store that the same job wrote under other names to their final names. As after any write, each has
    /// the permissions of the file that it replaces, unless its attributes say otherwise. One answer for each item, in the same
    /// order.
    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>>;

    /// A number that identifies the root's file system, even after a remount that changes its device number;
    /// `None` where there is none.
    fn file_system(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(std::future::ready(None))
    }
}

/// For stores that hash content in place, though they keep no hashes.
pub trait Hashing: Send + Sync {
    /// The hashes that it can compute, the best for comparing first; empty where it turns out that it can't.
    ///
    /// Errors: the other end can't be asked.
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>>;

    /// Hashes of a file's content: on this machine for small files, at the cost of one call; on another machine for all.
    ///
    /// Errors: `Changed` when it isn't `version` (if given); `Unsupported` where the caller has to use [`Store::read`] this time.
    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>>;
}

/// Attributes to compare or to set.
#[derive(Clone, Debug)]
pub struct AttributesBatch {
    /// The source store's [`Domain::place`](crate::Domain::place).
    pub from: Arc<[u8]>,
    /// Entries to set attributes on.
    pub items: Vec<AttributesItem>,
    /// How the source presents its links.
    pub links: SourceLinks,
    /// Set differing attributes, instead of only reporting them.
    pub set: bool,
}

/// An entry that gets another's attributes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttributesItem {
    /// Key below the source's root.
    pub from: Key,
    /// Key below this store's root.
    pub to: Key,
    /// The modification time to set; `None` leaves it.
    pub mtime: Option<Mtime>,
    /// Metadata that the user sets on everything.
    pub meta: Option<Box<Meta>>,
    /// Which attributes; `None` for the time alone.
    #[serde(with = "haul_core::wire::shared")]
    pub keep: Option<Arc<Keep>>,
    /// The other's attributes, where it is on another machine: `from` is ignored then.
    #[serde(with = "haul_core::wire::shared")]
    pub carried: Option<Arc<FileAttributes>>,
    /// Created for this by the same job: it has no permissions that a user may have set.
    pub new: bool,
}

impl AttributesItem {
    /// Attributes to set on a new file, taken from those that came along with its bytes.
    pub fn carried_along(
        key: &Key,
        spec: &WriteSpec,
        keep: &Arc<Keep>,
        carried: &Arc<FileAttributes>,
    ) -> AttributesItem {
        let (keep, carried) = (Some(keep.clone()), Some(carried.clone()));
        AttributesItem { from: key.clone(), to: key.clone(), mtime: spec.mtime, meta: None, keep, carried, new: true }
    }
}

/// Result of setting the attributes of one entry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AttributesResult {
    /// Attributes that differ, or differed and were set.
    pub differs: Differs,
    /// Attributes that could not be kept.
    #[serde(rename = "unkept")]
    pub unpreserved: UnpreservedAttributes,
}

/// A file to rename to its final name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettleItem {
    /// Its current key.
    pub from: Key,
    /// Its final key.
    pub to: Key,
    /// What may exist there before.
    pub replace: Replace,
    /// Its attributes, which were set already.
    #[serde(with = "haul_core::wire::shared")]
    pub keep: Option<Arc<Keep>>,
}

/// Questions about the store as a whole, and housekeeping. A store implements those it can; if it has a better reason than "can't" (the
/// service tidies up by itself), it gives that in its own `Unsupported` answer.
pub trait Admin: Send + Sync {
    /// How much space there is.
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        lacking("about", "the store doesn't tell how much space it has")
    }

    /// The service's facts about the account: labels (`email`) and their values, the most telling first.
    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        lacking("userinfo", "the service doesn't tell whose account it is")
    }

    /// A public link to a key that lasts this long.
    fn link(&self, _key: &Key, _lasts: Duration) -> BoxFuture<'_, Result<String>> {
        lacking("link", "the store makes no public links")
    }

    /// Finds unfinished writes, and removes them unless it is a dry run.
    ///
    /// Errors: nothing could be searched; other failures are in the answer.
    fn cleanup(&self, _what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        lacking("clean up", "the store tells nothing of writes that were never finished")
    }

    /// Empties the service's trash completely, unless it is a dry run; returns its top level.
    fn empty_trash(&self, _dry_run: bool) -> BoxFuture<'_, Result<Vec<Key>>> {
        lacking("empty the trash", "the store has no trash that can be emptied")
    }

    /// Changes a file's storage class, named as the service names it.
    fn set_tier(&self, _key: &Key, _tier: &str) -> BoxFuture<'_, Result<()>> {
        lacking("set the storage class", "the store has no storage classes")
    }

    /// Forces everything written so far to the device. `Unsupported` where publishes are durable already.
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        lacking("sync", "what the store has answered it has")
    }
}

/// Bytes in total, used and free; `None` where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceUsage {
    /// Size of the whole.
    pub total: Option<u64>,
    /// In use.
    pub used: Option<u64>,
    /// Available to this user.
    pub free: Option<u64>,
}

/// Which unfinished writes to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleanup {
    /// Only those at least this old.
    pub older_than: Duration,
    /// Only find them.
    pub dry_run: bool,
    /// Only those below this directory; the empty key is the root. `Unsupported` by stores that can only search the whole.
    pub below: Key,
}

/// Unfinished writes.
#[derive(Debug, Default)]
pub struct UnfinishedWrites {
    /// Key, and when it was begun.
    pub found: Vec<(Key, Option<Mtime>)>,
    /// Errors of whatever couldn't be searched or removed.
    pub failed: Vec<Error>,
}

/// For stores that allow several files of the same name in a directory, which no key tells apart.
pub trait Doubles: Send + Sync {
    /// All entries of a directory, including those that share a name, in key order. The version of each entry, a directory's
    /// too, tells it from all others.
    ///
    /// Errors: `Invalid` where the directory's own name is ambiguous.
    fn all_in(&self, dir: &Key) -> BoxFuture<'_, Result<Vec<Entry>>>;

    /// Checks that one of several files of the same name is still what was listed: for its sake others are deleted.
    ///
    /// Errors: `Changed` when it no longer matches `entry`, or is missing.
    fn check_one(&self, entry: &Entry) -> BoxFuture<'_, Result<()>>;

    /// Deletes one of several files of the same name. A file that is already missing is success.
    ///
    /// Errors: `Changed` when it no longer matches `entry`.
    fn delete_one(&self, entry: &Entry) -> BoxFuture<'_, Result<()>>;

    /// Renames one of several files of the same name within its directory.
    ///
    /// Errors: `Exists` when the name is taken; `Changed` when it no longer matches `entry`.
    fn rename_one(&self, entry: &Entry, to: &Key) -> BoxFuture<'_, Result<()>>;

    /// Moves the contents of directories of the same name into the first of them, and deletes the others, empty then.
    ///
    /// Errors: an entry couldn't be moved; its directory stays.
    fn merge_dirs(&self, dirs: Vec<Entry>) -> BoxFuture<'_, Result<()>>;
}

/// For stores that encrypt.
pub trait Encrypted: Send + Sync {
    /// Hashes of the encrypted file in the store below, and a sealer that encrypts other content the way that file was encrypted.
    ///
    /// Errors: `Changed` when it isn't `version` (if given); `Unsupported` where content isn't encrypted.
    fn sealed(&self, key: &Key, version: Option<&Version>) -> BoxFuture<'_, Result<EncryptedFile>>;

    /// The encrypted key in the store below.
    ///
    /// Errors: `Invalid` for a name that is too long.
    fn hidden(&self, key: &Key) -> Result<Key>;

    /// The plain key of one in the store below.
    ///
    /// Errors: `Invalid` when it isn't an encrypted key.
    fn plain(&self, hidden: &Key) -> Result<Key>;
}

/// An encrypted file.
#[derive(Debug)]
pub struct EncryptedFile {
    /// Hashes that the store below has.
    pub hashes: Hashes,
    /// Encrypts in the same way.
    pub like: Box<dyn Seal>,
}

/// Encrypts content as it arrives. CPU-bound: not for threads that mustn't block.
pub trait Seal: fmt::Debug + Send {
    /// Takes further bytes; returns the encrypted ones that are ready.
    fn take(&mut self, plain: &[u8]) -> Bytes;

    /// The rest, after all bytes.
    fn end(&mut self) -> Bytes;
}

/// For stores that report a file's pieces without sending it, and build a file from pieces of another
/// ([`Upload::reuse`](crate::Upload::reuse)).
pub trait Deltas: Send + Sync {
    /// Bytes of the smallest blocks that it cuts a file into.
    fn smallest_block(&self) -> u32;

    /// The pieces of a file.
    ///
    /// Errors: `Changed` when it isn't `version` (if given), or changed while it was read; `Invalid` for an impossible cut.
    fn recipe(&self, key: &Key, version: Option<&Version>, cut: Chunking) -> BoxFuture<'_, Result<Recipe>>;
}

/// For stores that accept many small files in one request. Nothing is retried here: a caller that gets no answer for a file
/// reads or writes it alone.
pub trait Bundles: Send + Sync {
    /// Reads whole files, each with its facts, as [`Store::read`] does; also proved unchanged while they were read. One
    /// answer for each, in the same order.
    ///
    /// Errors: `Unsupported` where a file has to be read alone, for example because the batch exceeds [`SmallFile::FETCHED`] bytes;
    /// else those of [`Store::read`].
    fn fetch(&self, wanted: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<(Entry, Bytes)>>>;

    /// Writes whole files, publishes each separately, and sets the attributes that came along with it ([`WriteSpec::carried`]). One answer
    /// for each, in the same order. After a `NoSpace` those that weren't begun may be answered with `Cancelled`.
    ///
    /// Errors: `Unsupported` where they have to be written alone; else those of [`Store::write`] and [`Upload::publish`].
    fn put(&self, files: Vec<SmallFile>) -> BoxFuture<'_, Vec<Result<StoredFacts>>>;
}

/// A small file to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SmallFile {
    /// Its name.
    pub key: Key,
    /// How it is written.
    pub spec: WriteSpec,
    /// Its whole content.
    #[serde(with = "haul_core::wire::raw")]
    pub bytes: Bytes,
}

impl SmallFile {
    /// Largest file in a bundle, in bytes.
    pub const MOST: u64 = 64 << 10;

    /// Largest bundle, in bytes: small enough that a question queued behind it doesn't wait long.
    pub const TOGETHER: u64 = 256 << 10;

    /// Largest number of files in a bundle.
    pub const COUNT: usize = 256;

    /// Largest total that is fetched at once, in bytes: files that were small when listed may have grown.
    pub const FETCHED: u64 = 4 * SmallFile::TOGETHER;
}

/// Names of the facets that a store has: for tests and messages.
pub fn facets(store: &dyn Store) -> Vec<&'static str> {
    let has = [
        ("lanes", store.lanes().is_some()),
        ("resumable", store.resumable().is_some()),
        ("inodes", store.inodes().is_some()),
        ("hashing", store.hashing().is_some()),
        ("admin", store.admin().is_some()),
        ("doubles", store.doubles().is_some()),
        ("encrypted", store.encrypted().is_some()),
        ("deltas", store.deltas().is_some()),
        ("bundles", store.bundles().is_some()),
    ];
    has.into_iter().filter_map(|(name, has)| has.then_some(name)).collect()
}
