//! The indexes, as far as they were read: found by one listing, each fetched once and kept.

use super::{
    Shared,
    index::{Facts, Head, Index, IndexEntry, Indexes, Location, Record, encode},
    keys::{FILES, PACKS, index_key, tar_key},
    missing::{MissingFiles, Tar},
    tar,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, Result, hash::hash_bytes};
use haul_store::{Body, ListRequest, Read, disk};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// Indexes fetched at once.
const FETCHES: usize = 32;
/// How often the listing is repeated when an index no longer exists once it is fetched, since another run tidied up meanwhile, or seems to
/// be missing: a listing may show an index stored during the listing and miss an earlier one that this one names.
const RELISTS: usize = 3;
/// Bytes of a file that are read at once.
const PIECE: u64 = 1 << 20;

/// Known state of the indexes.
#[derive(Default)]
pub struct View {
    known: Mutex<IndexState>,
    /// Held by the one that reads.
    reading: tokio::sync::Mutex<()>,
    /// Time of the newest id, in nanoseconds since the epoch.
    newest: AtomicU64,
}

#[derive(Default)]
struct IndexState {
    loaded: bool,
    /// Those that count.
    indexes: Indexes,
    /// All that are there, as they were read: also those that don't count.
    read: BTreeMap<String, Arc<Index>>,
    /// Indexes that exist and don't count, since others replace them: a run that tidied up was stopped, or there were two.
    superseded: BTreeSet<String>,
    /// Packs and files that they name and that don't exist.
    lost: Arc<MissingFiles>,
    /// Indexes that this process wrote, and when: a listing that was begun earlier may miss them.
    own: BTreeMap<String, Instant>,
}

/// Result of reading the folder of packs.
enum LoadResult {
    All(Indexes),
    /// An index that another one names isn't there: what is there doesn't count.
    Lost(Error),
    /// Packs or files that they name are missing or incomplete.
    Damaged(Indexes),
}

/// Contents of the folder of packs.
#[derive(Default)]
pub struct Folder {
    pub indexes: BTreeSet<String>,
    pub tars: BTreeMap<String, Tar>,
}

impl View {
    fn known(&self) -> std::sync::MutexGuard<'_, IndexState> {
        self.known.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn loaded(&self) -> Option<Indexes> {
        let known = self.known();
        known.loaded.then(|| known.indexes.clone())
    }

    /// The indexes, as they were last read.
    pub fn now(&self) -> Indexes {
        self.known().indexes.clone()
    }

    /// Missing packs and files, as of the last read of the indexes.
    pub fn missing(&self) -> Arc<MissingFiles> {
        self.known().lost.clone()
    }

    /// The indexes in the folder that were not read yet.
    fn unread(&self, folder: &Folder) -> Vec<String> {
        let known = self.known();
        folder.indexes.iter().filter(|id| !known.read.contains_key(*id)).cloned().collect()
    }

    /// Some index that was read says of files that they aren't packed.
    fn has_plain(&self) -> bool {
        self.known().read.values().any(|index| index.has_plain)
    }

    /// Indexes that don't count any more, by what was read last.
    pub fn superseded(&self) -> BTreeSet<String> {
        self.known().superseded.clone()
    }

    /// The indexes that no other one names: those that the next one must, so that the loss of any is noticed. The newest of each
    /// writer, as a rule.
    pub fn unnamed(&self) -> Vec<String> {
        let indexes = self.now();
        let named: BTreeSet<&String> = indexes.iter().flat_map(|index| &index.head.previous).collect();
        indexes.iter().map(|index| &index.head.id).filter(|id| !named.contains(id)).cloned().collect()
    }

    /// An index that was just stored.
    pub fn add(&self, index: Index) {
        let mut known = self.known();
        let index = Arc::new(index);
        known.own.insert(index.head.id.clone(), Instant::now());
        known.read.insert(index.head.id.clone(), index.clone());
        let mut indexes = known.indexes.to_vec();
        indexes.push(index);
        indexes.sort_by(|a, b| a.head.id.cmp(&b.head.id));
        known.indexes = Arc::new(indexes);
    }

    /// Forgets everything, as the root was deleted.
    pub fn forget(&self) {
        *self.known() = IndexState::default();
    }

    /// A new id, later than all that are known: by time, so that a later one counts, and by chance, so that two
    /// writers never have the same one.
    pub fn new_id(&self) -> Result<String> {
        let now = u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0);
        let later = |newest: u64| Some(now.max(newest + 1));
        let before = self.newest.fetch_update(Ordering::AcqRel, Ordering::Acquire, later).unwrap_or(0);
        id_at(now.max(before + 1))
    }
}

/// An id of this time, in nanoseconds since the epoch, that nobody else has.
pub fn id_at(time: u64) -> Result<String> {
    let mut chance = [0; 4];
    let random = aws_lc_rs::rand::fill(&mut chance);
    random.map_err(|_| Error::new(ErrorKind::Io, "write", "the system gives no random numbers"))?;
    Ok(format!("{time:016x}-{:08x}", u32::from_be_bytes(chance)))
}

/// Nanoseconds since the epoch at which an id was made; `None` when it isn't an id.
pub fn time_of(id: &str) -> Option<u64> {
    let (time, chance) = id.split_once('-')?;
    let right = time.len() == 16 && chance.len() == 8 && u32::from_str_radix(chance, 16).is_ok();
    u64::from_str_radix(time, 16).ok().filter(|_| right)
}

impl Shared {
    /// The indexes: read now if `fresh`, or if they weren't read yet.
    ///
    /// Errors: listing or reading the wrapped store failed; `Corrupt` when an index is damaged, or missing.
    pub async fn indexes(&self, fresh: bool) -> Result<Indexes> {
        self.read_indexes(fresh, false).await
    }

    /// The indexes, read now, and a warning about all missing packs and files that they name: for a listing of everything.
    ///
    /// Errors: as [`Shared::indexes`].
    pub async fn indexes_to_list(&self) -> Result<Indexes> {
        self.read_indexes(true, true).await
    }

    async fn read_indexes(&self, fresh: bool, all: bool) -> Result<Indexes> {
        if let Some(indexes) = self.view.loaded().filter(|_| !fresh) {
            return Ok(indexes);
        }
        let _reading = self.view.reading.lock().await;
        if let Some(indexes) = self.view.loaded().filter(|_| !fresh) {
            return Ok(indexes);
        }
        let mut rounds = 1;
        loop {
            match self.load(all).await {
                Ok(LoadResult::All(indexes)) => return Ok(indexes),
                Err(error) if rounds == RELISTS || error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(LoadResult::Lost(error)) if rounds == RELISTS => return Err(error),
                Ok(LoadResult::Damaged(indexes)) if rounds == RELISTS => {
                    let missing = self.view.missing().confirmed(&self.inner).await?;
                    if all {
                        missing.tell();
                    }
                    self.view.known().lost = Arc::new(missing);
                    return Ok(indexes);
                }
                Ok(LoadResult::Lost(_) | LoadResult::Damaged(_)) | Err(_) => rounds += 1,
            }
        }
    }

    /// As [`Shared::indexes`], for a write, which makes the root if there is none.
    pub async fn indexes_to_write(&self) -> Result<Indexes> {
        match self.indexes(false).await {
            Err(error) if error.kind() == ErrorKind::DirNotFound => {
                self.view.known().loaded = true;
                Ok(self.view.now())
            }
            loaded => loaded,
        }
    }

    /// Reads what is new. With `all` also whether the files are there that aren't packed, which costs a listing of them.
    async fn load(&self, all: bool) -> Result<LoadResult> {
        let begun = Instant::now();
        let folder = self.folder().await?;
        let unread = self.view.unread(&folder);
        let fetched: Vec<Index> =
            stream::iter(unread).map(|id| self.fetch(id, &folder)).buffer_unordered(FETCHES).try_collect().await?;
        let rebuilt = self.rebuild(&folder).await?;
        let newest = folder.indexes.iter().chain(folder.tars.keys()).filter_map(|id| time_of(id)).max();
        self.view.newest.fetch_max(newest.unwrap_or(0), Ordering::AcqRel);
        let has_plain = fetched.iter().any(|index| index.has_plain) || self.view.has_plain();
        let files = if all && has_plain { Some(self.files().await?) } else { None };
        let mut known = self.view.known();
        // Indexes that this process wrote since the listing began may not be in it.
        let own = std::mem::take(&mut known.own);
        known.own = own.into_iter().filter(|(_, at)| *at >= begun).collect();
        let mut all = std::mem::take(&mut known.read);
        all.retain(|id, _| folder.indexes.contains(id) || known.own.contains_key(id));
        all.extend(fetched.into_iter().chain(rebuilt).map(|index| (index.head.id.clone(), Arc::new(index))));
        known.read = all.clone();
        let superseded = superseded(&all);
        if !self.settings.rebuild
            && let Err(error) = none_lost(&all, &superseded)
        {
            return Ok(LoadResult::Lost(error));
        }
        known.superseded = superseded;
        all.retain(|id, _| !known.superseded.contains(id));
        // Files that this process has just stored may not be in the listings.
        let listed = all.iter().filter(|(id, _)| !known.own.contains_key(*id)).map(|(_, index)| index.clone());
        known.lost = Arc::new(MissingFiles::of(&Arc::new(listed.collect()), &folder.tars, files.as_ref()));
        known.indexes = Arc::new(all.into_values().collect());
        known.loaded = true;
        let indexes = known.indexes.clone();
        Ok(if known.lost.is_empty() { LoadResult::All(indexes) } else { LoadResult::Damaged(indexes) })
    }

    /// The files that aren't packed, with their sizes.
    async fn files(&self) -> Result<HashMap<Key, u64>> {
        match self.list_whole(FILES).await {
            Err(error) if error.is_missing() => Ok(HashMap::new()),
            files => Ok(files?.into_iter().map(|file| (file.key, file.size)).collect()),
        }
    }

    /// Current contents of the folder of packs.
    pub async fn folder(&self) -> Result<Folder> {
        let mut folder = Folder::default();
        for entry in self.list_whole(PACKS).await? {
            let name = entry.key.display().into_owned();
            let name = name.strip_prefix(PACKS).unwrap_or_default();
            if let Some(id) = name.strip_suffix(".idx").filter(|id| time_of(id).is_some()) {
                folder.indexes.insert(id.into());
            } else if let Some(id) = name.strip_suffix(".tar").filter(|id| time_of(id).is_some()) {
                folder.tars.insert(id.into(), Tar { stored: entry.mtime.or(entry.changed), size: entry.size });
            }
        }
        Ok(folder)
    }

    /// All files below a folder of the wrapped store.
    pub async fn list_whole(&self, prefix: &str) -> Result<Vec<Entry>> {
        let mut listing = self.inner.list(ListRequest { prefix: prefix.into(), ..ListRequest::all() });
        let mut found = Vec::new();
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => found.extend(entries.into_iter().filter(|e| !e.is_dir())),
                Listed::Failed { error, .. } => return Err(error),
                Listed::Vanished(_) => {}
                Listed::End => return Ok(found),
            }
        }
        Err(Error::new(ErrorKind::Io, "list", "the listing of the packs was cut off"))
    }

    async fn fetch(&self, id: String, folder: &Folder) -> Result<Index> {
        let key = index_key(&id);
        let bytes = whole(self.inner.read(&key, None, None).await?).await?;
        match Index::read(&id, bytes) {
            Ok(index) => Ok(index),
            Err(why) if self.settings.rebuild => {
                tracing::warn!("{key}: the index is damaged ({why}): doing without it");
                if folder.tars.contains_key(&id) { self.index_of_tar(&id).await } else { Ok(empty(&id)) }
            }
            Err(why) => {
                let message = format!(
                    "the index is damaged: {why}; the option rebuild of a pack remote reads the packs without it"
                );
                Err(Error::new(ErrorKind::Corrupt, "read", message).with_key(&key))
            }
        }
    }

    /// With the option `rebuild`, indexes made from the packs that have none.
    async fn rebuild(&self, folder: &Folder) -> Result<Vec<Index>> {
        let mut rebuilt = Vec::new();
        if self.settings.rebuild {
            for id in folder.tars.keys().filter(|id| !folder.indexes.contains(*id)) {
                tracing::warn!("{}: the pack has no index: reading it whole", tar_key(id));
                rebuilt.push(self.index_of_tar(id).await?);
            }
        }
        Ok(rebuilt)
    }

    async fn index_of_tar(&self, id: &str) -> Result<Index> {
        let key = tar_key(id);
        let bytes = whole(self.inner.read(&key, None, None).await?).await?;
        let corrupt =
            |why| Error::new(ErrorKind::Corrupt, "read", format!("the pack is damaged: {why}")).with_key(&key);
        let mut records = BTreeMap::new();
        for member in tar::members(&bytes).map_err(corrupt)? {
            let place = Location::Packed { pack: id.into(), offset: member.offset };
            let content = bytes.slice(member.offset as usize..(member.offset + member.size) as usize);
            let hashes = hash_bytes(&[Algo::Md5, Algo::Crc64Nvme], &content);
            let facts = Facts { place, size: member.size, mtime: member.mtime, hashes, meta: member.meta };
            // Of two of one name the later counts, as for tar itself.
            records.insert(member.key, facts);
        }
        let records: Vec<Record> =
            records.into_iter().map(|(key, facts)| Record { key, entry: IndexEntry::Stored(facts) }).collect();
        let head = Head { id: id.into(), tar: bytes.len() as u64, ..Head::default() };
        Index::read(id, encode(&head, &records).into()).map_err(corrupt)
    }
}

fn empty(id: &str) -> Index {
    let head = Head { id: id.into(), ..Head::default() };
    match Index::read(id, encode(&head, &[]).into()) {
        Ok(index) => index,
        Err(why) => unreachable!("an index that was just made: {why}"),
    }
}

/// Indexes whose records are in other ones: those that one names as replaced, and of two that replace others the one that replaces less.
fn superseded(indexes: &BTreeMap<String, Arc<Index>>) -> BTreeSet<String> {
    let merged: Vec<(&String, BTreeSet<&String>)> = indexes
        .iter()
        .filter(|(_, index)| !index.head.replaces.is_empty())
        .map(|(id, index)| (id, index.head.replaces.iter().collect()))
        .collect();
    let replaced = |id: &String| merged.iter().any(|(other, replaces)| *other != id && replaces.contains(id));
    let less = |id: &String| {
        let own = merged.iter().find(|(merged, _)| *merged == id).map(|(_, own)| own);
        own.is_some_and(|own| {
            merged.iter().any(|(other, others)| own.is_subset(others) && (own.len() < others.len() || id < *other))
        })
    };
    indexes.keys().filter(|id| replaced(id) || less(id)).cloned().collect()
}

/// Each index names those that its writer knew and no other named; one that is named must be there, or be replaced by another.
/// Those that don't count are not asked: what they named is older than they are, so whoever replaced them knew it too.
fn none_lost(indexes: &BTreeMap<String, Arc<Index>>, superseded: &BTreeSet<String>) -> Result<()> {
    let replaced: BTreeSet<&String> = indexes.values().flat_map(|index| &index.head.replaces).collect();
    let counting = indexes.iter().filter(|(id, _)| !superseded.contains(*id));
    let named = counting.flat_map(|(_, index)| &index.head.previous);
    for id in named {
        if !indexes.contains_key(id) && !replaced.contains(id) {
            let message = "the index is missing, and with it files can't be told from deleted ones; the option rebuild \
                           of a pack remote reads the packs without it";
            return Err(Error::new(ErrorKind::Corrupt, "read", message).with_key(&index_key(id)));
        }
    }
    Ok(())
}

/// All bytes of a body.
pub async fn whole(read: Read) -> Result<Bytes> {
    let mut pieces = pieces(read.body);
    let mut all = Vec::new();
    while let Some(piece) = pieces.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all.into())
}

/// A body as a stream, also one that is a file.
pub fn pieces(body: Body) -> stream::BoxStream<'static, Result<Bytes>> {
    let (file, range) = match body {
        Body::Stream(stream) => return stream,
        Body::File(file, range) => (file, range),
    };
    stream::try_unfold(range.start, move |at| {
        let (file, end) = (file.clone(), range.end);
        async move {
            if at >= end {
                return Ok(None);
            }
            let len = (end - at).min(PIECE) as usize;
            let read = move || {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, at).map_err(|e| Error::from_io("read", e))?;
                Ok(Bytes::from(bytes))
            };
            Ok(Some((disk::run(read).await?, at + len as u64)))
        }
    })
    .boxed()
}
