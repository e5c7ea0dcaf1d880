//! Hashes of a store's files: known ones if the store has them, computed where reading is cheap or requested.

use crate::index::{self, FileHashes};
use futures::{StreamExt, TryStreamExt};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hasher, Hashes, Inode, Result,
    compare::HashAnswer,
    hash::{self, PIECE, PieceHasher},
};
use haul_store::{Body, Buffers, ChangedMeaning, Payload, Seal, Store, blocks, disk, hashing};
use std::{
    fs::File,
    ops::Range,
    sync::{Arc, OnceLock},
};
use tokio::sync::Semaphore;

/// Files of this many pieces and more are hashed by several threads, where the algorithm allows it.
const SPLIT_FROM: u64 = 4 * PIECE;

/// Reads the whole content of `entry` and hashes it.
///
/// Errors: the read fails; `ChangedMeaning` when it isn't the listed version any more; `Io` when it ends early.
pub async fn read_and_hash(store: &Arc<dyn Store>, entry: &Entry, algos: &[Algo]) -> Result<Hashes> {
    let beside = Hasher::new(algos).gains_side_by_side() && entry.size > hashing::INLINE;
    // Where the bytes lie on another machine, they are hashed there, however many they are.
    let there = !store.caps().files;
    if let Some(hashing) = store.hashing().filter(|_| store.caps().cheap_reads)
        && (there || entry.size < SPLIT_FROM && !beside)
    {
        match hashing.hash(&entry.key, entry.version.as_ref(), algos).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            hashes => return hashes.map_err(|error| error.with_key(&entry.key)),
        }
    }
    // Closed never.
    let _turn = match store.caps().cheap_reads {
        true => turns(beside, store.caps().concurrency).acquire().await.ok(),
        false => None,
    };
    let read = store.read(&entry.key, entry.version.as_ref(), None).await?;
    let size = read.entry.size;
    let mut hasher = Hasher::new(algos);
    match read.body {
        Body::File(file, range) => {
            let split = range.end - range.start >= SPLIT_FROM && algos.iter().all(|algo| hash::splits(*algo));
            let hashed = match split {
                true => in_pieces(file, range, algos, store.caps().concurrency).await,
                false => {
                    let payload = Payload::of_file(file, range, buffers());
                    hashing::update(hasher, &payload, hashing::NOW).await.map(Hasher::finish)
                }
            };
            let hashes = hashed.map_err(|e| e.with_key(&entry.key))?;
            if read.entry.version.is_some() && store.stat(&entry.key).await?.version != read.entry.version {
                return Err(Error::new(ErrorKind::Changed, "hash", "changed while it was read").with_key(&entry.key));
            }
            Ok(hashes)
        }
        Body::Stream(mut pieces) => {
            let mut got = 0;
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(|e| e.with_key(&entry.key))?;
                got += piece.len() as u64;
                hasher.update(&piece);
            }
            if got != size {
                return Err(blocks::ended_early(got, size).with_key(&entry.key));
            }
            Ok(hasher.finish())
        }
    }
}

/// Reads the whole content of `entry`, encrypts it with `like` and hashes that.
///
/// Errors: as for [`read_and_hash`].
pub async fn read_and_hash_sealed(
    store: &Arc<dyn Store>,
    entry: &Entry,
    mut like: Box<dyn Seal>,
    algos: &[Algo],
) -> Result<Hashes> {
    let with_key = |error: Error| error.with_key(&entry.key);
    let read = store.read(&entry.key, entry.version.as_ref(), None).await?;
    let (mut hasher, mut got, size) = (Hasher::new(algos), 0, read.entry.size);
    let mut pieces = match read.body {
        Body::Stream(pieces) => pieces,
        Body::File(file, range) => {
            let payload = Payload::of_file(file, range.clone(), buffers());
            (hasher, like) = disk::run(move || {
                payload.each(|block| hasher.update(&like.take(block)))?;
                Ok((hasher, like))
            })
            .await
            .map_err(with_key)?;
            got = range.end - range.start;
            futures::stream::empty().boxed()
        }
    };
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(with_key)?;
        got += piece.len() as u64;
        (hasher, like) = disk::run(move || {
            hasher.update(&like.take(&piece));
            Ok((hasher, like))
        })
        .await?;
    }
    if got != size {
        return Err(with_key(blocks::ended_early(got, size)));
    }
    hasher.update(&like.end());
    if read.entry.version.is_some() && store.stat(&entry.key).await?.version != read.entry.version {
        return Err(with_key(Error::new(ErrorKind::Changed, "hash", "changed while it was read")));
    }
    Ok(hasher.finish())
}

/// Limits the files that are hashed at once, in the whole process as the disk threads are: a disk that seeks reads few files
/// at once faster than many. Files hashed side by side are limited to half of that, but no fewer than others.
fn turns(beside: bool, at_once: usize) -> &'static Semaphore {
    static LARGE: OnceLock<Semaphore> = OnceLock::new();
    static BESIDE: OnceLock<Semaphore> = OnceLock::new();
    match beside {
        true => BESIDE.get_or_init(|| Semaphore::new(at_once.max(hash::side_by_side() / 2).max(1))),
        false => LARGE.get_or_init(|| Semaphore::new(at_once.max(1))),
    }
}

/// Memory to read into: a few blocks for each file.
fn buffers() -> Buffers {
    static BUFFERS: OnceLock<Buffers> = OnceLock::new();
    BUFFERS.get_or_init(Buffers::default).clone()
}

/// Hashes a large file on `threads` threads at once.
async fn in_pieces(file: Arc<File>, range: Range<u64>, algos: &[Algo], threads: usize) -> Result<Hashes> {
    let count = (range.end - range.start).div_ceil(PIECE);
    let algos: Arc<[Algo]> = algos.into();
    let pieces = futures::stream::iter(0..count).map(|number| {
        let (file, algos) = (file.clone(), algos.clone());
        let start = range.start + number * PIECE;
        let piece = start..(start + PIECE).min(range.end);
        disk::run(move || {
            let mut hasher = PieceHasher::new(&algos, number);
            blocks::read(&file, piece, |block| hasher.update(block))?;
            Ok(hasher.finish())
        })
    });
    let pieces: Vec<_> = pieces.buffered(threads.max(1)).try_collect().await?;
    hash::join_pieces(&algos, &pieces).ok_or_else(|| blocks::ended_early(0, range.end - range.start))
}

/// The hashes of `entry`'s content: those that `known` has of exactly this state of the file, else by reading, which `known` then
/// remembers. Without `known` as [`read_and_hash`], but that the inode may have been given other times and attributes since it was listed:
/// other names of the same file get them in the same job.
pub async fn known_or_read(
    known: Option<&FileHashes>,
    store: &Arc<dyn Store>,
    entry: &Entry,
    algos: &[Algo],
) -> Result<Hashes> {
    let mut hashes = of_version(known, store, entry, algos).await;
    for _ in 0..MORE_NAMES {
        match hashes {
            Err(error) if error.kind() == ErrorKind::Changed && store.caps().cheap_reads => {
                let now = store.stat(&entry.key).await?;
                if now.size != entry.size {
                    return Err(error);
                }
                hashes = of_version(known, store, &now, algos).await;
            }
            hashes => return hashes,
        }
    }
    hashes
}

/// How often a file is read again at most whose other names get attributes meanwhile.
const MORE_NAMES: usize = 3;

async fn of_version(
    known: Option<&FileHashes>,
    store: &Arc<dyn Store>,
    entry: &Entry,
    algos: &[Algo],
) -> Result<Hashes> {
    let inode = |entry: &Entry| {
        let version = entry.version.as_ref().filter(|_| store.caps().changed == ChangedMeaning::Inode)?;
        Inode::of(version)
    };
    let Some((known, inode)) = known.zip(inode(entry)) else { return read_and_hash(store, entry, algos).await };
    let mut hashes = Hashes::default();
    for algo in algos {
        if let Some(value) = known.get(&inode, *algo) {
            hashes.set(*algo, value);
        }
    }
    if algos.iter().all(|algo| hashes.get(*algo).is_some()) {
        return Ok(hashes);
    }
    let looked = index::now();
    // It reads this version of the file or none.
    let hashes = read_and_hash(store, entry, algos).await?;
    for (algo, value) in hashes.iter() {
        known.put(&inode, algo, value, looked);
    }
    Ok(hashes)
}

/// Hashes known of `entry` without reading its bytes: as listed, else as stored.
pub async fn known(store: &Arc<dyn Store>, entry: &Entry) -> Result<Hashes> {
    if !entry.hashes.is_empty() || store.caps().hashes_stored.is_empty() {
        return Ok(entry.hashes.clone());
    }
    Ok(store.stat(&entry.key).await?.hashes)
}

/// The hashes that a store without cheap reads computes where the bytes lie; none where it doesn't.
///
/// Errors: the store can't be asked.
pub async fn computed_there(store: &Arc<dyn Store>) -> Result<Vec<Algo>> {
    match store.hashing().filter(|_| !store.caps().cheap_reads) {
        Some(hashing) => hashing.algos().await,
        None => Ok(Vec::new()),
    }
}

/// The hashes of `entry` by `algo`: as known, else as the store computes them where the bytes lie.
async fn known_or_computed_there(store: &Arc<dyn Store>, entry: &Entry, algo: Algo) -> Result<Hashes> {
    let known = known(store, entry).await?;
    if known.get(algo).is_some() || !computed_there(store).await?.contains(&algo) {
        return Ok(known);
    }
    match store.hashing() {
        Some(hashing) => hashing.hash(&entry.key, entry.version.as_ref(), &[algo]).await,
        None => Ok(known),
    }
}

/// The hash of one key by `algo`: known, or computed where the bytes lie, when reading is cheap or `download` is set. `None`: the
/// store has no such hash. `kept` saves reading what was hashed before, see [`known_or_read`]; `download` reads in any case.
pub async fn of(
    kept: Option<&FileHashes>,
    store: &Arc<dyn Store>,
    entry: &Entry,
    algo: Algo,
    download: bool,
) -> Result<Option<Vec<u8>>> {
    if !download && !store.caps().cheap_reads {
        return Ok(known_or_computed_there(store, entry, algo).await?.get(algo).map(<[u8]>::to_vec));
    }
    let kept = kept.filter(|_| !download);
    Ok(known_or_read(kept, store, entry, &[algo]).await?.get(algo).map(<[u8]>::to_vec))
}

/// Compares two entries by hash: what both know, else what one knows and the other computes cheaply, else BLAKE3 on
/// both where both are cheap to read, else what they compute where the bytes lie. `kept` saves reading what was hashed before, see [`known_or_read`].
pub async fn compare(
    kept: Option<&FileHashes>,
    a: (&Arc<dyn Store>, &Entry),
    b: (&Arc<dyn Store>, &Entry),
) -> Result<HashAnswer> {
    let (cheap_a, cheap_b) = (a.0.caps().cheap_reads, b.0.caps().cheap_reads);
    let links = [a.1, b.1].iter().all(|entry| entry.is_symlink() && entry.hashes.is_empty());
    // Hashing on the server would hash the target of a symlink.
    if cheap_a && cheap_b || links {
        let algo = [Algo::Blake3];
        let (x, y) = futures::try_join!(known_or_read(kept, a.0, a.1, &algo), known_or_read(kept, b.0, b.1, &algo))?;
        return Ok(answer(&x, &y));
    }
    if cheap_a {
        return compare_known_and_cheap(kept, b, a).await;
    }
    if cheap_b {
        return compare_known_and_cheap(kept, a, b).await;
    }
    if let Some((algo, same)) = a.1.hashes.agree(&b.1.hashes) {
        return Ok(HashAnswer::Known(algo, same));
    }
    let (x, y) = futures::try_join!(known(a.0, a.1), known(b.0, b.1))?;
    if x.agree(&y).is_some() {
        return Ok(answer(&x, &y));
    }
    let (of_a, of_b) = futures::try_join!(computed_there(a.0), computed_there(b.0))?;
    let by_a = of_a.iter().find(|algo| y.get(**algo).is_some() || of_b.contains(algo));
    let Some(algo) = by_a.or(of_b.iter().find(|algo| x.get(**algo).is_some())) else {
        return Ok(HashAnswer::NoneInCommon);
    };
    let there = |(store, entry)| known_or_computed_there(store, entry, *algo);
    let (x, y) = futures::try_join!(there(a), there(b))?;
    Ok(answer(&x, &y))
}

async fn compare_known_and_cheap(
    kept: Option<&FileHashes>,
    known_side: (&Arc<dyn Store>, &Entry),
    cheap: (&Arc<dyn Store>, &Entry),
) -> Result<HashAnswer> {
    let mut have = known(known_side.0, known_side.1).await?;
    if have.is_empty()
        && let Some(algo) = computed_there(known_side.0).await?.first()
    {
        have = known_or_computed_there(known_side.0, known_side.1, *algo).await?;
    }
    let Some(algo) = have.iter().map(|(a, _)| a).next() else { return Ok(HashAnswer::NoneInCommon) };
    let computed = known_or_read(kept, cheap.0, cheap.1, &[algo]).await?;
    Ok(answer(&have, &computed))
}

fn answer(a: &Hashes, b: &Hashes) -> HashAnswer {
    match a.agree(b) {
        Some((algo, same)) => HashAnswer::Known(algo, same),
        None => HashAnswer::NoneInCommon,
    }
}
