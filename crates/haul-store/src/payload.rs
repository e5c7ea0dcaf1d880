//! Bytes to send: in memory, still in a file, or still in another store. Cheap to clone and to send again, so that any layer may
//! retry. A part of a large file needn't be in memory at all: it is read as it is sent, a block at a time.

use crate::{
    Buffers, Store, disk,
    hashing::{self, Leisure},
    relay::Relay,
};
use bytes::Bytes;
use futures::{TryStreamExt, future::BoxFuture};
use haul_core::{Algo, Entry, Error, ErrorKind, Hasher, Hashes, Result, hash};
use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes that are read from a file at a time: few system calls, and still in the processor's cache when they are sent.
const BLOCK: u64 = 256 << 10;

/// Bytes to send, in order, and what is known of their hashes.
#[derive(Clone, Debug)]
pub struct Payload {
    content: Content,
    hashes: Hashes,
    meter: Option<Meter>,
    pace: Option<Pace>,
}

/// Counts a payload's bytes as a connection takes them. What a try counted that is begun again is taken back.
#[derive(Clone)]
pub struct Meter {
    tell: Arc<dyn Fn(i64) + Send + Sync>,
    counted: Arc<AtomicU64>,
}

impl Meter {
    /// One that tells of bytes as they go; negative ones are taken back.
    pub fn new(tell: impl Fn(i64) + Send + Sync + 'static) -> Self {
        Meter { tell: Arc::new(tell), counted: Arc::default() }
    }

    /// So many have gone in all.
    pub fn set(&self, bytes: u64) {
        let before = self.counted.swap(bytes, Ordering::Relaxed);
        if before != bytes {
            (self.tell)(bytes as i64 - before as i64);
        }
    }

    /// So many more go.
    fn add(&self, bytes: u64) {
        self.counted.fetch_add(bytes, Ordering::Relaxed);
        (self.tell)(bytes as i64);
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meter({})", self.counted.load(Ordering::Relaxed))
    }
}

type Hold = dyn Fn(u64) -> BoxFuture<'static, ()> + Send + Sync;

/// Holds a payload's bytes back as they go.
#[derive(Clone)]
pub struct Pace {
    piece: usize,
    hold: Arc<Hold>,
}

impl Pace {
    /// One that is asked before each piece of at most `piece` bytes goes.
    pub fn new(piece: usize, hold: impl Fn(u64) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Pace { piece, hold: Arc::new(hold) }
    }
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pace({})", self.piece)
    }
}

#[derive(Clone, Debug)]
enum Content {
    Pieces(Arc<[Bytes]>),
    File(FileRange),
    Relay(Relay),
}

/// A stretch of a file.
#[derive(Clone, Debug)]
struct FileRange {
    file: Arc<File>,
    range: Range<u64>,
    buffers: Buffers,
}

impl Default for Payload {
    fn default() -> Self {
        Payload::new(Vec::new())
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload::new(vec![bytes])
    }
}

impl Payload {
    /// The pieces, one after another.
    pub fn new(pieces: Vec<Bytes>) -> Self {
        Payload { content: Content::Pieces(pieces.into()), hashes: Hashes::default(), meter: None, pace: None }
    }

    /// Bytes `range` of a file, read into `buffers` whenever they are sent.
    pub fn of_file(file: Arc<File>, range: Range<u64>, buffers: Buffers) -> Self {
        let content = Content::File(FileRange { file, range, buffers });
        Payload { content, hashes: Hashes::default(), meter: None, pace: None }
    }

    /// Bytes `range` of a version of another store's key, asked for whenever they are sent, and hashed by `algos` as they pass.
    /// Only for stores that take them ([`Caps::relays`](crate::Caps::relays)).
    pub fn of_store(store: Arc<dyn Store>, entry: Entry, range: Range<u64>, algos: Vec<Algo>) -> Self {
        let content = Content::Relay(Relay::new(store, entry, range, algos));
        Payload { content, hashes: Hashes::default(), meter: None, pace: None }
    }

    /// The other store's stretch that it is.
    pub fn relay(&self) -> Option<&Relay> {
        match &self.content {
            Content::Relay(relay) => Some(relay),
            _ => None,
        }
    }

    /// The bytes of another store in memory, with the hashes that they had as they came.
    ///
    /// Errors: those of [`Store::read`].
    pub(crate) async fn gathered(&self) -> Result<Payload> {
        let Some(relay) = self.relay() else { return Ok(self.clone()) };
        let pieces = relay.pieces(&[]).try_collect().await;
        let pieces = pieces.map_err(|shown| relay.error().unwrap_or(shown))?;
        let hashes = relay.hashes().unwrap_or_default();
        Ok(Payload { content: Content::Pieces(Vec::into(pieces)), hashes, ..self.clone() })
    }

    /// With hashes of exactly these bytes, so that nobody computes them again.
    pub fn with_hashes(self, hashes: Hashes) -> Self {
        Payload { hashes, ..self }
    }

    /// Counted by `meter` by whoever sends them over a network.
    pub fn metered(self, meter: Meter) -> Self {
        Payload { meter: Some(meter), ..self }
    }

    /// Held back by `pace` by whoever sends them over a network.
    pub fn paced(self, pace: Pace) -> Self {
        Payload { pace: Some(pace), ..self }
    }

    /// They are about to be sent from the first on.
    pub(crate) fn begin(&self) {
        self.meter.iter().for_each(|meter| meter.set(0));
    }

    /// So many more are sent.
    pub(crate) fn sent(&self, bytes: u64) {
        self.meter.iter().for_each(|meter| meter.add(bytes));
    }

    /// The largest piece to send at once.
    pub(crate) fn piece(&self) -> Option<usize> {
        self.pace.as_ref().map(|pace| pace.piece)
    }

    /// The wait before so many more are sent.
    pub(crate) fn hold(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        self.pace.as_ref().map(|pace| (pace.hold)(bytes))
    }

    /// The hashes of these bytes that are known.
    pub fn hashes(&self) -> &Hashes {
        &self.hashes
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match &self.content {
            Content::Pieces(pieces) => pieces.iter().map(|b| b.len() as u64).sum(),
            Content::File(file) => file.range.end - file.range.start,
            Content::Relay(relay) => relay.size(),
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, when they are in memory.
    pub fn pieces(&self) -> Option<&[Bytes]> {
        match &self.content {
            Content::Pieces(pieces) => Some(pieces),
            Content::File(_) | Content::Relay(_) => None,
        }
    }

    /// The same, shared.
    pub(crate) fn pieces_shared(&self) -> Option<Arc<[Bytes]>> {
        match &self.content {
            Content::Pieces(pieces) => Some(pieces.clone()),
            Content::File(_) | Content::Relay(_) => None,
        }
    }

    /// Gives out all bytes in order, a block at a time. Blocks its thread while a file is read.
    ///
    /// Errors: the file's; `Changed` when it ends before the range does; `Unsupported` for what is in another store.
    pub fn each(&self, mut take: impl FnMut(&[u8])) -> Result<()> {
        match &self.content {
            Content::Pieces(pieces) => pieces.iter().for_each(|piece| take(piece)),
            Content::File(file) => {
                for at in file.blocks() {
                    take(&file.block(at)?);
                }
            }
            Content::Relay(_) => return Err(on_its_way()),
        }
        Ok(())
    }

    /// All bytes in one buffer. Blocks as [`Payload::each`].
    ///
    /// Errors: those of [`Payload::each`].
    pub fn concat(&self) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(usize::try_from(self.len()).unwrap_or(0));
        self.each(|block| all.extend_from_slice(block))?;
        Ok(all)
    }

    /// The block of a file that begins at `at` of the payload, read on a disk thread; `None` for what is in memory, or past
    /// the end.
    pub(crate) fn read_at(&self, at: u64) -> Option<impl Future<Output = Result<Bytes>> + Send + use<>> {
        let Content::File(file) = &self.content else { return None };
        let (file, at) = (file.clone(), file.range.start + at);
        (at < file.range.end).then(|| disk::run(move || file.block(at)))
    }

    /// Hashes of all bytes: those that are known, the others computed; on a disk thread when the bytes are in a file, or it
    /// takes long. CRCs run at memory speed, so those of bytes in memory are computed where they are.
    ///
    /// Errors: those of [`Payload::each`].
    pub async fn hash(&self, algos: &[Algo]) -> Result<Hashes> {
        self.hash_at(algos, hashing::NOW).await
    }

    /// The same, at once or when it costs less.
    ///
    /// Errors: those of [`Payload::each`].
    pub async fn hash_at(&self, algos: &[Algo], leisure: Leisure<'_>) -> Result<Hashes> {
        let missing: Vec<Algo> = algos.iter().copied().filter(|algo| self.hashes.get(*algo).is_none()).collect();
        let mut all = self.hashes.clone();
        if !missing.is_empty() {
            let mut hasher = Hasher::new(&missing);
            let quick = self.pieces().filter(|_| missing.iter().all(|algo| hash::combines(*algo)));
            match quick {
                Some(pieces) => pieces.iter().for_each(|piece| hasher.update(piece)),
                None => hasher = hashing::update(hasher, self, leisure).await?,
            }
            all.merge(&hasher.finish());
        }
        Ok(all)
    }
}

/// The error of whoever wants to look at bytes that only pass.
pub(crate) fn on_its_way() -> Error {
    Error::new(ErrorKind::Unsupported, "read", "the bytes are in another store, to be sent as they come")
}

impl FileRange {
    fn blocks(&self) -> impl Iterator<Item = u64> + use<> {
        (self.range.start..self.range.end).step_by(BLOCK as usize)
    }

    /// The block that begins at `at` of the file.
    fn block(&self, at: u64) -> Result<Bytes> {
        let len = BLOCK.min(self.range.end - at) as usize;
        self.buffers.fill(len, |space| match self.file.read_exact_at(space, at) {
            Ok(()) => Ok(len),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(Error::new(ErrorKind::Changed, "read", "the file became shorter while it was read"))
            }
            Err(e) => Err(Error::from_io("read", e)),
        })
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use haul_core::hash::hash_bytes;

    fn file(bytes: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        Arc::new(file)
    }

    #[tokio::test]
    async fn a_range_of_a_file_is_sent_as_what_it_holds() {
        let bytes: Vec<u8> = (0..BLOCK as usize * 2 + 99).map(|i| ((i * 7) >> 3) as u8).collect();
        let payload = Payload::of_file(file(&bytes), 5..bytes.len() as u64 - 4, Buffers::default());
        let want = &bytes[5..bytes.len() - 4];
        assert_eq!(payload.len(), want.len() as u64);
        assert!(payload.concat().unwrap() == want);
        assert!(payload.pieces().is_none());
        let algos = [Algo::Md5, Algo::Crc64Nvme];
        assert_eq!(payload.hash(&algos).await.unwrap(), hash_bytes(&algos, want));
        let second = payload.read_at(BLOCK).unwrap().await.unwrap();
        assert!(second == want[BLOCK as usize..2 * BLOCK as usize]);
        assert!(payload.read_at(payload.len()).is_none());
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error() {
        let payload = Payload::of_file(file(b"short"), 0..10, Buffers::default());
        let error = payload.concat().unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Changed, "the file became shorter while it was read"));
        assert!(payload.hash(&[Algo::Md5]).await.is_err());
    }

    #[tokio::test]
    async fn a_hash_that_is_known_is_not_computed() {
        let known = Hashes::default().with(Algo::Md5, [7; 16]);
        let payload = Payload::from(Bytes::from_static(b"x")).with_hashes(known.clone());
        assert_eq!(payload.hash(&[Algo::Md5]).await.unwrap(), known);
    }
}
