//! The other end of every transfer of a bench: a store whose files are made of bytes that can't be compressed, and that
//! compares what comes back with what it would have made. Holds no content, so no disk and little memory is involved.

use bytes::Bytes;
use futures::{
    StreamExt,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Listed, Meta, Mtime, Result, Version};
use haul_store::{
    Body, Caps, ChangedMeaning, CopyBatch, LateFacts, ListRequest, Part, PartLimits, Payload, Read, Store, StoredFacts,
    Unpublished, Upload, Watch, WriteSpec,
};
use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Bytes that are made once; every file is this block, again and again, from a place of its own. A prime, so that no two
/// pages of a large file are the same.
const BLOCK: usize = 8_388_593;
/// Bytes of one piece of a body.
const PIECE: u64 = 256 << 10;
/// Entries of a batch.
const BATCH: usize = 1000;
/// A modification time like any other: 2020-01-01.
const MTIME: Mtime = Mtime(1_577_836_800_000_000_000);

/// Makes the content of every file from its key.
#[derive(Clone)]
pub struct TestContent {
    block: Bytes,
    seed: u64,
    verified: Arc<AtomicU64>,
}

impl TestContent {
    /// Bytes that depend on the seed, so that no store knows them from another bench.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut block = Vec::with_capacity(BLOCK + 8);
        while block.len() < BLOCK {
            block.extend_from_slice(&splitmix64(&mut state).to_le_bytes());
        }
        block.truncate(BLOCK);
        TestContent { block: block.into(), seed, verified: Arc::default() }
    }

    /// Bytes that came back and were as they had been sent.
    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// A store that holds these files.
    pub fn source(&self, mut keys: Vec<Key>, size: u64) -> MadeStore {
        keys.sort_unstable();
        MadeStore::new(self.clone(), keys, size)
    }

    /// A store that holds nothing and compares what is written to it.
    pub fn sink(&self) -> MadeStore {
        MadeStore::new(self.clone(), Vec::new(), 0)
    }

    /// Bytes `range` of the file `key`, in pieces.
    fn pieces(&self, key: &Key, range: Range<u64>) -> impl Iterator<Item = Bytes> + use<> {
        let (block, start, mut at) = (self.block.clone(), self.start(key), range.start);
        std::iter::from_fn(move || {
            let from = ((start + at) % BLOCK as u64) as usize;
            let length = PIECE.min(range.end.saturating_sub(at)).min((BLOCK - from) as u64);
            at += length;
            (length > 0).then(|| block.slice(from..from + length as usize))
        })
    }

    /// Where in the block a file begins: FNV-1a of its key, mixed with the seed.
    fn start(&self, key: &Key) -> u64 {
        let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let mut state = key.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ self.seed, fnv);
        splitmix64(&mut state) % BLOCK as u64
    }

    /// Are these the bytes of `key` from `offset` on?
    fn agrees(&self, key: &Key, offset: u64, payload: &Payload) -> bool {
        let mut at = offset;
        payload.pieces().is_some_and(|pieces| {
            pieces.iter().all(|piece| {
                let mut rest = &piece[..];
                let agrees = self.pieces(key, at..at + rest.len() as u64).all(|made| {
                    let (now, later) = rest.split_at(made.len());
                    rest = later;
                    now == made
                });
                at += piece.len() as u64;
                agrees
            })
        })
    }
}

/// The next number of the generator SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Made files as a store.
pub struct MadeStore {
    made: TestContent,
    keys: Vec<Key>,
    size: u64,
    caps: Caps,
}

impl fmt::Debug for MadeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MadeStore({} files of {} bytes)", self.keys.len(), self.size)
    }
}

impl MadeStore {
    fn new(made: TestContent, keys: Vec<Key>, size: u64) -> Self {
        let caps = Caps {
            mtime: Some(Duration::from_nanos(1)),
            set_mtime: true,
            set_dir_mtime: false,
            mtime_listed: true,
            changed: ChangedMeaning::Unknown,
            dirs: false,
            symlinks: false,
            keeps_empty_dirs: false,
            hashes_listed: Vec::new(),
            hashes_stored: Vec::new(),
            cheap_reads: true,
            written_in_place: false,
            listing_may_omit: false,
            files: false,
            // A local disk's, since that is what it stands for.
            parts: Some(PartLimits::FILE),
            domain: None,
            place: None,
            renames: true,
            renames_dirs: false,
            delete_batch: 1,
            conditional: false,
            deletes_version: false,
            page: None,
            case_insensitive: false,
            meta: false,
            attributes: None,
            modes: false,
            // More than any network store suits, so that the measured one decides.
            concurrency: 4096,
            copy_batch: 1,
            gathers: 0,
            rests_on: Vec::new(),
            relays: false,
        };
        MadeStore { made, keys, size, caps }
    }

    fn entry(&self, key: &Key) -> Entry {
        Entry { mtime: Some(MTIME), ..Entry::file(key.clone(), self.size) }
    }

    fn known(&self, op: &'static str, key: &Key) -> Result<Entry> {
        match self.keys.binary_search(key) {
            Ok(_) => Ok(self.entry(key)),
            Err(_) => Err(Error::new(ErrorKind::NotFound, op, "no such file was made").with_key(key)),
        }
    }
}

fn unsupported<T>(op: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, op, "made files can't do this"))
}

impl Store for MadeStore {
    fn locator(&self) -> &str {
        "made files"
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let wanted = |key: &&Key| {
            key.as_bytes().starts_with(&request.prefix) && request.after.as_ref().is_none_or(|after| *key > after)
        };
        let entries: Vec<Entry> = self.keys.iter().filter(wanted).map(|key| self.entry(key)).collect();
        let batches: Vec<Listed> = entries.chunks(BATCH).map(|chunk| Listed::Batch(chunk.to_vec())).collect();
        stream::iter(batches.into_iter().chain([Listed::End])).boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let root = Entry { kind: Kind::Dir, ..Entry::file(key.clone(), 0) };
        Box::pin(ready(if key.is_root() { Ok(root) } else { self.known("stat", key) }))
    }

    fn read(&self, key: &Key, _: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let read = self.known("read", key).map(|entry| {
            let range = range.unwrap_or(0..entry.size);
            let pieces = self.made.pieces(key, range.start..range.end.min(entry.size));
            Read { entry, body: Body::Stream(stream::iter(pieces.map(Ok)).boxed()) }
        });
        Box::pin(ready(read))
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let upload: Box<dyn Upload> =
            Box::new(Compared { made: self.made.clone(), key: key.clone(), size: spec.size.unwrap_or(0) });
        Box::pin(ready(Ok(upload)))
    }

    fn make_dir(&self, _: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        Box::pin(ready(Ok(())))
    }

    fn copy(&self, batch: CopyBatch, _: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        Box::pin(ready(batch.items.iter().map(|_| unsupported("copy")).collect()))
    }

    fn set_meta(&self, _: &Key, _: Option<Mtime>, _: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        Box::pin(ready(unsupported("set_meta")))
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(ready(keys.iter().map(|_| unsupported("delete")).collect()))
    }
}

/// A write of which nothing is kept but whether it was right.
struct Compared {
    made: TestContent,
    key: Key,
    size: u64,
}

impl Compared {
    fn corrupt(&self, what: String) -> Error {
        Error::new(ErrorKind::Corrupt, "write", what).with_key(&self.key)
    }
}

impl Upload for Compared {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(ready(Ok(None)))
    }

    fn read_back(&self, _: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        Box::pin(ready(unsupported("read_back")))
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        let size = payload.len();
        let part = match self.made.agrees(&self.key, offset, &payload) {
            true => Ok(Part { index, size, tag: Vec::new() }),
            false => Err(self.corrupt(format!("the {size} bytes from {offset} on are not those that were sent"))),
        };
        Box::pin(ready(part))
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        _: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        let size: u64 = parts.iter().map(|part| part.size).sum();
        if size != self.size {
            let error = self.corrupt(format!("{size} bytes came back of {}", self.size));
            return Box::pin(ready(Err(Unpublished { error, upload: self })));
        }
        self.made.verified.fetch_add(size, Ordering::Relaxed);
        Box::pin(ready(Ok(StoredFacts { size, ..StoredFacts::default() })))
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn content(store: &MadeStore, key: &Key, range: Option<Range<u64>>) -> Vec<u8> {
        let Body::Stream(stream) = store.read(key, None, range).await.unwrap().body else { unreachable!() };
        stream.map(|piece| piece.unwrap().to_vec()).collect::<Vec<_>>().await.concat()
    }

    #[tokio::test]
    async fn files_differ_and_ranges_are_of_the_whole() {
        let made = TestContent::new(7);
        let (a, b) = (Key::new("a"), Key::new("b"));
        let size = BLOCK as u64 + 12_345;
        let store = made.source(vec![b.clone(), a.clone()], size);
        let whole = content(&store, &a, None).await;
        assert_eq!(whole.len() as u64, size);
        assert!(whole != content(&store, &b, None).await);
        assert!(whole != content(&TestContent::new(8).source(vec![a.clone()], size), &a, None).await);
        for range in [0..1, 5..300_000, size - 9..size, size - 5..size + 5] {
            let want = &whole[range.start as usize..(range.end as usize).min(whole.len())];
            assert!(content(&store, &a, Some(range.clone())).await == want, "{range:?}");
        }
        assert_eq!(store.read(&Key::new("c"), None, None).await.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn what_comes_back_is_compared() {
        let made = TestContent::new(7);
        let key = Key::new("a");
        let whole = content(&made.source(vec![key.clone()], 600_000), &key, None).await;
        let spec = || WriteSpec { size: Some(600_000), ..WriteSpec::default() };
        let payload = |range: Range<usize>| Payload::from(Bytes::copy_from_slice(&whole[range]));

        let upload = made.sink().write(&key, spec()).await.unwrap();
        let second = upload.part(1, 300_000, payload(300_000..600_000)).await.unwrap();
        let first = upload.part(0, 0, payload(0..300_000)).await.unwrap();
        upload.publish(vec![first.clone(), second], LateFacts::default()).await.unwrap();
        assert_eq!(made.verified(), 600_000);

        let upload = made.sink().write(&key, spec()).await.unwrap();
        let error = upload.part(0, 1, payload(0..300_000)).await.unwrap_err();
        assert_eq!(error.to_string(), "a: write: the 300000 bytes from 1 on are not those that were sent");
        let mut wrong = whole[..100].to_vec();
        wrong[99] ^= 1;
        assert!(upload.part(0, 0, Bytes::from(wrong).into()).await.is_err());
        let error = upload.publish(vec![first], LateFacts::default()).await.unwrap_err().error;
        assert_eq!(error.to_string(), "a: write: 300000 bytes came back of 600000");
        assert_eq!(made.verified(), 600_000);
    }
}
