//! Bytes to send: in memory, still in a file, still to be made, or still in another store. Cheap to clone and to send again, so that any
//! layer may retry. A part of a large file needn't be in memory at all: it is read as it is sent, a block at a time.

use crate::{
    Buffers, Store, disk,
    hashing::{self, Leisure},
    relay::Relay,
};
use bytes::Bytes;
use futures::{TryStreamExt, future::BoxFuture};
use haul_core::{Algo, Entry, Error, ErrorKind, Hasher, Hashes, Result, hash};
use std::{
    fmt,
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

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pace({})", self.piece)
    }
}

#[derive(Clone, Debug)]
enum Content {
    Pieces(Arc<[Bytes]>),
    Stretch(Stretch),
    Relay(Relay),
}

/// Bytes that are made from others as they are sent, and the same whenever they are made.
pub trait Made: fmt::Debug + Send + Sync {
    /// Some of them from `at` on, at least one and at most `most`. Blocks its thread.
    ///
    /// Errors: those of reading what they are made from.
    fn block(&self, at: u64, most: u64) -> Result<Bytes>;
}

/// Bytes that are had a block at a time.
#[derive(Clone, Debug)]
struct Stretch {
    source: Source,
    range: Range<u64>,
}

#[derive(Clone, Debug)]
enum Source {
    File(Arc<File>, Buffers),
    Made(Arc<dyn Made>),
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
        let content = Content::Stretch(Stretch { source: Source::File(file, buffers), range });
        Payload { content, hashes: Hashes::default(), meter: None, pace: None }
    }

    /// `size` bytes that are made as they are sent, in place of these, counted and held back as these.
    pub fn with_made(&self, made: Arc<dyn Made>, size: u64) -> Self {
        let content = Content::Stretch(Stretch { source: Source::Made(made), range: 0..size });
        Payload { content, hashes: Hashes::default(), ..self.clone() }
    }

    /// The same bytes, hashed by `algos` as they pass and not before: for those that are dear to have twice. Only for stores that take
    /// them ([`Caps::relays`](crate::Caps::relays)).
    pub fn passing(self, algos: Vec<Algo>) -> Self {
        let relay = Relay::of_payload(Payload { meter: None, pace: None, ..self.clone() }, algos);
        Payload { content: Content::Relay(relay), hashes: Hashes::default(), ..self }
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
    pub async fn gathered(&self) -> Result<Payload> {
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

    /// Other bytes in place of these, counted and held back as these.
    pub fn with_pieces(&self, pieces: Vec<Bytes>) -> Self {
        Payload { content: Content::Pieces(pieces.into()), hashes: Hashes::default(), ..self.clone() }
    }

    /// Bytes `range` of these, counted and held back as these. Nothing of those that are in another store.
    pub fn slice(&self, range: Range<u64>) -> Self {
        let range = range.start.min(self.len())..range.end.min(self.len());
        let content = match &self.content {
            Content::Pieces(pieces) => {
                let mut at = 0;
                let cut = pieces.iter().filter_map(|piece| {
                    let len = piece.len() as u64;
                    let (from, to) = (range.start.clamp(at, at + len) - at, range.end.clamp(at, at + len) - at);
                    at += len;
                    (from < to).then(|| piece.slice(from as usize..to as usize))
                });
                Content::Pieces(cut.collect())
            }
            Content::Stretch(stretch) => {
                let range = stretch.range.start + range.start..stretch.range.start + range.end;
                Content::Stretch(Stretch { range, ..stretch.clone() })
            }
            Content::Relay(_) => Content::Pieces([].into()),
        };
        Payload { content, hashes: Hashes::default(), ..self.clone() }
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
    pub fn begin(&self) {
        self.meter.iter().for_each(|meter| meter.set(0));
    }

    /// So many more are sent.
    pub fn sent(&self, bytes: u64) {
        self.meter.iter().for_each(|meter| meter.add(bytes));
    }

    /// The largest piece to send at once.
    pub fn piece(&self) -> Option<usize> {
        self.pace.as_ref().map(|pace| pace.piece)
    }

    /// The wait before so many more are sent.
    pub fn hold(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
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
            Content::Stretch(stretch) => stretch.range.end - stretch.range.start,
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
            Content::Stretch(_) | Content::Relay(_) => None,
        }
    }

    /// The same, shared.
    pub fn pieces_shared(&self) -> Option<Arc<[Bytes]>> {
        match &self.content {
            Content::Pieces(pieces) => Some(pieces.clone()),
            Content::Stretch(_) | Content::Relay(_) => None,
        }
    }

    /// Gives out all bytes in order, a block at a time. Blocks its thread while a file is read.
    ///
    /// Errors: the file's; `Changed` when it ends before the range does; `Unsupported` for what is in another store.
    pub fn each(&self, mut take: impl FnMut(&[u8])) -> Result<()> {
        match &self.content {
            Content::Pieces(pieces) => pieces.iter().for_each(|piece| take(piece)),
            Content::Stretch(stretch) => {
                let mut at = stretch.range.start;
                while at < stretch.range.end {
                    let block = stretch.block(at)?;
                    at += block.len() as u64;
                    take(&block);
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

    /// The block that begins at `at` of the payload, read or made on a disk thread from now on; `None` for what is in memory, or past the
    /// end.
    pub fn read_at(&self, at: u64) -> Option<impl Future<Output = Result<Bytes>> + Send + use<>> {
        let Content::Stretch(stretch) = &self.content else { return None };
        let (stretch, at) = (stretch.clone(), stretch.range.start + at);
        (at < stretch.range.end).then(|| disk::begin(move || stretch.block(at)))
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

    /// Whether its bytes still have these hashes, which they had: what is in a file may have changed.
    ///
    /// Errors: those of [`Payload::each`].
    pub async fn still_has(&self, hashes: &Hashes) -> Result<bool> {
        let Content::Stretch(_) = &self.content else { return Ok(true) };
        let Some((algo, _)) = hashes.iter().next() else { return Ok(true) };
        let now = self.clone().with_hashes(Hashes::default()).hash(&[algo]).await?;
        Ok(now.agree(hashes).is_none_or(|(_, same)| same))
    }

    /// The error of one that was refused because it isn't what was hashed any more.
    pub fn changed() -> Error {
        Error::new(ErrorKind::Changed, "read", "it changed while it was sent")
    }
}

/// The error of whoever wants to look at bytes that only pass.
pub fn on_its_way() -> Error {
    Error::new(ErrorKind::Unsupported, "read", "the bytes are in another store, to be sent as they come")
}

impl Stretch {
    /// The block that begins at `at`.
    fn block(&self, at: u64) -> Result<Bytes> {
        let most = self.range.end - at;
        let (file, buffers) = match &self.source {
            Source::File(file, buffers) => (file, buffers),
            Source::Made(made) => return made.block(at, most),
        };
        let len = BLOCK.min(most) as usize;
        buffers.fill(len, |space| match file.read_exact_at(space, at) {
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
