//! Facets: what some stores can do besides the verbs of [`Store`](crate::Store), each a small trait that the store gives by an accessor.
//! A store has those that it can do and says nothing of the others.

use crate::{Store, Stored, Upload, WriteSpec, store::Part};
use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Meta, Mtime, Result, Version,
    attributes::{Carried, Differs, Unkept},
    delta::{Cut, Recipe},
    keep::Keep,
    links::SourceLinks,
    plan::Replace,
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc, time::Duration};

/// The facet, for who can't do without it.
///
/// Errors: `Unsupported` where the store hasn't got it.
pub fn offered<T>(facet: Option<T>, op: &'static str) -> Result<T> {
    facet.ok_or_else(|| Error::new(ErrorKind::Unsupported, op, "this kind of store can't do that"))
}

/// The same for a batch: one error for each item.
pub fn none_offered<T>(count: usize, op: &'static str) -> Vec<Result<T>> {
    (0..count).map(|_| offered(None, op)).collect()
}

/// What a store answers that lacks one verb of a facet.
fn lacking<T: Send + 'static>(op: &'static str, why: &'static str) -> BoxFuture<'static, Result<T>> {
    Box::pin(ready(Err(Error::new(ErrorKind::Unsupported, op, why))))
}

/// Finds writes again that were begun earlier, perhaps by another process, and neither published nor aborted.
pub trait Resumable: Send + Sync {
    /// Gives the write back that [`Upload::token`] names, with those of the parts `sent` that are proved to be there still: their
    /// receipts are good for [`Upload::publish`], all others must be sent again. A store that can read what was sent compares it
    /// with [`Sent::crc64`]; one that can't compares what it says of the parts.
    ///
    /// Errors: `NotFound` when it is gone; `Changed` when it was begun for something else than `spec` (other metadata,
    /// say): discard it; `Corrupt` when the store answers and can't tell what it has of it: begin anew, and discard it if
    /// that can be done; `Invalid` when the token is not one of this key.
    fn resume(&self, key: &Key, token: &[u8], sent: Vec<Sent>, spec: WriteSpec) -> BoxFuture<'_, Result<Resumed>>;

    /// Removes what is left of a write. That it is gone already is success: false where the store tells it.
    ///
    /// Errors: `Invalid` as [`Resumable::resume`].
    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>>;

    /// The version of the whole that these parts of a write to `key` make, where it follows from their receipts: what has it is them,
    /// whoever published it. `None` where it doesn't.
    fn whole_version(&self, _key: &Key, _parts: &[Part]) -> Option<Version> {
        None
    }
}

/// A part that was sent by an earlier run, as a journal remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// What the store answered.
    pub part: Part,
    /// Its first byte's place in the whole.
    pub offset: u64,
    /// CRC-64/NVME of its bytes.
    pub crc64: u64,
}

/// A write that was found again, and the parts that it has.
pub type Resumed = (Box<dyn Upload>, Vec<Part>);

/// Of a store whose files have inodes, with owners, permission bits and more. It also copies by the means that
/// [`CopyHow::needs_inodes`](crate::CopyHow::needs_inodes) tells.
pub trait Inodes: Send + Sync {
    /// Compares the attributes of what is there (a directory too, also the root) with those of a source in the same copy
    /// domain or with those that were carried here, and with `batch.set` makes them the source's as far as they differ. No bytes. One answer for each item, in the same
    /// order.
    fn attributes(&self, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<Attributed>>>;

    /// What files and directories have beside their names and bytes, for a store on another machine; extended attributes and ACLs
    /// only if `inside`. One answer for each key, in the same order.
    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<Carried>>>;

    /// Gives files of this store that the same job wrote under other names their own, by a rename. As after any write, each has
    /// the permissions of a file that it replaces, unless its attributes say otherwise. One answer for each item, in the same
    /// order.
    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>>;

    /// A number that tells the root's file system from others, also once it is mounted again, which may give it another device number;
    /// `None` where nobody knows one.
    fn file_system(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(std::future::ready(None))
    }
}

/// Of a store that hashes content where it lies, though it keeps no hashes.
pub trait Hashing: Send + Sync {
    /// The hashes that it can compute, those first by which it is best compared; none where it turns out that it can't.
    ///
    /// Errors: nobody can be asked.
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>>;

    /// Hashes of a file's content: on this machine for small files, at the cost of one call; on another for all.
    ///
    /// Errors: `Changed` when it isn't `version` (if given); `Unsupported` where [`Store::read`] has to be asked just now.
    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>>;
}

/// Attributes to compare or to set.
#[derive(Clone, Debug)]
pub struct AttributesBatch {
    /// The source store's [`Domain::place`](crate::Domain::place).
    pub from: Arc<[u8]>,
    /// What is to have them.
    pub items: Vec<AttributesItem>,
    /// How the source shows its links.
    pub links: SourceLinks,
    /// Set what differs, instead of only telling.
    pub set: bool,
}

/// One thing that is to have another's attributes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttributesItem {
    /// Key below the source's root.
    pub from: Key,
    /// Key below this store's root.
    pub to: Key,
    /// Its modification time is to be this one; `None` leaves it.
    pub mtime: Option<Mtime>,
    /// What the user gives to everything besides.
    pub meta: Option<Box<Meta>>,
    /// Which attributes; `None` for the time alone.
    #[serde(with = "haul_core::wire::shared")]
    pub keep: Option<Arc<Keep>>,
    /// The other's attributes, where it is on another machine: `from` is not looked at then.
    #[serde(with = "haul_core::wire::shared")]
    pub carried: Option<Arc<Carried>>,
    /// It was made for this by the same job: it has no permissions of its own that a user may have set.
    pub new: bool,
}

impl AttributesItem {
    /// What a new file is to have of the attributes that came along with its bytes.
    pub fn carried_along(key: &Key, spec: &WriteSpec, keep: &Arc<Keep>, carried: &Arc<Carried>) -> AttributesItem {
        let (keep, carried) = (Some(keep.clone()), Some(carried.clone()));
        AttributesItem { from: key.clone(), to: key.clone(), mtime: spec.mtime, meta: None, keep, carried, new: true }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Attributed {
    /// What differs, or differed and was set.
    pub differs: Differs,
    /// What could not be kept.
    pub unkept: Unkept,
}

/// A file that gets its own name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettleItem {
    /// Where it is.
    pub from: Key,
    /// Its name.
    pub to: Key,
    /// What may be there before.
    pub replace: Replace,
    /// The attributes that it was given.
    #[serde(with = "haul_core::wire::shared")]
    pub keep: Option<Arc<Keep>>,
}

/// Questions about the store as a whole and chores. A store that has some of them leaves the others out; what it knows better
/// than "can't" (that a service tidies up by itself) it says in its own answer, which is `Unsupported` too.
pub trait Admin: Send + Sync {
    /// How much space there is.
    fn about(&self) -> BoxFuture<'_, Result<Space>> {
        lacking("about", "the store doesn't tell how much space it has")
    }

    /// What the service tells of the account: words (`email`) and what they are, the most telling first.
    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        lacking("userinfo", "the service doesn't tell whose account it is")
    }

    /// A public link to a key that lasts this long.
    fn link(&self, _key: &Key, _lasts: Duration) -> BoxFuture<'_, Result<String>> {
        lacking("link", "the store makes no public links")
    }

    /// Finds writes that were begun and never finished, and removes them unless only asked for.
    ///
    /// Errors: nothing could be looked through; what else fails is in the answer.
    fn cleanup(&self, _what: Cleanup) -> BoxFuture<'_, Result<Unfinished>> {
        lacking("clean up", "the store tells nothing of writes that were never finished")
    }

    /// Empties the service's trash, whatever is in it, unless only asked for; gives what it holds at its top.
    fn empty_trash(&self, _dry_run: bool) -> BoxFuture<'_, Result<Vec<Key>>> {
        lacking("empty the trash", "the store has no trash that can be emptied")
    }

    /// Gives a file another storage class, as the service calls it.
    fn set_tier(&self, _key: &Key, _tier: &str) -> BoxFuture<'_, Result<()>> {
        lacking("set the storage class", "the store has no storage classes")
    }

    /// Forces everything that was written so far to the device. `Unsupported` where a publish is durable by itself.
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        lacking("sync", "what the store has answered it has")
    }
}

/// Bytes in total, used and free; `None` where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Space {
    /// Size of the whole.
    pub total: Option<u64>,
    /// In use.
    pub used: Option<u64>,
    /// Available to this user.
    pub free: Option<u64>,
}

/// Which unfinished writes are to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleanup {
    /// Only those at least this old.
    pub older_than: Duration,
    /// Only find them.
    pub dry_run: bool,
    /// Only below this directory; the empty key is the whole. `Unsupported` by stores that can only look at the whole.
    pub below: Key,
}

/// Writes that were never finished.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Key, when begun.
    pub found: Vec<(Key, Option<Mtime>)>,
    /// What couldn't be looked through, or removed.
    pub failed: Vec<Error>,
}

/// Of a store in which several things in a directory may have one name, so that no key tells them apart.
pub trait Doubles: Send + Sync {
    /// All that is in a directory, also what has a name that others have, in key order. The version of each entry, a directory's
    /// too, tells it from all others.
    ///
    /// Errors: `Invalid` where the directory's own name is one of several.
    fn all_in(&self, dir: &Key) -> BoxFuture<'_, Result<Vec<Entry>>>;

    /// Deletes one file of them. That it is gone already is success.
    ///
    /// Errors: `Changed` when it isn't what `entry` says any more.
    fn delete_one(&self, entry: &Entry) -> BoxFuture<'_, Result<()>>;

    /// Gives one file of them another name in its directory.
    ///
    /// Errors: `Exists` when the name is taken; `Changed` as above.
    fn rename_one(&self, entry: &Entry, to: &Key) -> BoxFuture<'_, Result<()>>;

    /// Moves what directories of one name hold into the first of them, and deletes the others, empty then.
    ///
    /// Errors: what couldn't be moved; its directory stays.
    fn merge_dirs(&self, dirs: Vec<Entry>) -> BoxFuture<'_, Result<()>>;
}

/// Of a store that encrypts.
pub trait Encrypted: Send + Sync {
    /// Hashes of a file as the store below has it, and what encrypts other content as that file was encrypted.
    ///
    /// Errors: `Changed` when it isn't `version` (if given); `Unsupported` where content isn't encrypted.
    fn sealed(&self, key: &Key, version: Option<&Version>) -> BoxFuture<'_, Result<Sealed>>;

    /// The key that the store below has for one.
    ///
    /// Errors: `Invalid` for a name that is too long.
    fn hidden(&self, key: &Key) -> Result<Key>;

    /// The key behind one of the store below.
    ///
    /// Errors: `Invalid` for one that hides none.
    fn plain(&self, hidden: &Key) -> Result<Key>;
}

/// An encrypted file.
#[derive(Debug)]
pub struct Sealed {
    /// Those that the store below has.
    pub hashes: Hashes,
    /// Encrypts alike.
    pub like: Box<dyn Seal>,
}

/// Encrypts content as it comes. Takes time: not for threads that mustn't wait.
pub trait Seal: fmt::Debug + Send {
    /// Takes further bytes; gives encrypted ones that are ready.
    fn take(&mut self, plain: &[u8]) -> Bytes;

    /// The rest, when all bytes came.
    fn end(&mut self) -> Bytes;
}

/// Of a store that tells what a file holds without sending it, and makes a file from another that it has
/// ([`Upload::reuse`](crate::Upload::reuse)).
pub trait Deltas: Send + Sync {
    /// Bytes of the smallest blocks that it cuts a file into.
    fn smallest_block(&self) -> u32;

    /// The pieces of a file.
    ///
    /// Errors: `Changed` when it isn't `version` (if given), or changed while it was read; `Invalid` for a cut that can't be.
    fn recipe(&self, key: &Key, version: Option<&Version>, cut: Cut) -> BoxFuture<'_, Result<Recipe>>;
}

/// Of a store that is sent many small files with one request, and sends them so. Nothing is tried again: who has no answer for a file
/// reads or writes it alone.
pub trait Bundles: Send + Sync {
    /// Whole files, each with its facts, as [`Store::read`] gives them; also proved not to have changed while they were read. One
    /// answer for each, in the same order.
    ///
    /// Errors: `Unsupported` for what has to be read alone, such as files that make more than [`Small::FETCHED`] bytes together;
    /// else those of [`Store::read`].
    fn fetch(&self, wanted: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<(Entry, Bytes)>>>;

    /// Writes whole files, each of which is published by itself, and sets the attributes that came along with it
    /// ([`WriteSpec::carried`]). One answer for each, in the same order. After a `NoSpace` those that weren't begun may be answered with
    /// `Cancelled`.
    ///
    /// Errors: `Unsupported` where they have to be written alone; else those of [`Store::write`] and [`Upload::publish`].
    fn put(&self, files: Vec<Small>) -> BoxFuture<'_, Vec<Result<Stored>>>;
}

/// A small file that is to be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Small {
    /// Its name.
    pub key: Key,
    /// How it is written.
    pub spec: WriteSpec,
    /// All that it is to hold.
    #[serde(with = "haul_core::wire::raw")]
    pub bytes: Bytes,
}

impl Small {
    /// Bytes of one that goes with others, at most.
    pub const MOST: u64 = 64 << 10;

    /// Bytes of all that go together: little enough that a question which comes behind them doesn't wait long.
    pub const TOGETHER: u64 = 256 << 10;

    /// And so many of them.
    pub const COUNT: usize = 256;

    /// Bytes of all that are fetched together, at most: what was small when it was listed may have grown.
    pub const FETCHED: u64 = 4 * Small::TOGETHER;
}

/// Which facets a store has, by name: for tests, and for who must tell people.
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
