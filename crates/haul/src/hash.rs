//! Hashes of what a store holds: known ones where the store has them, computed where reading is cheap or asked for.

use futures::StreamExt;
use haul_core::{Algo, Entry, Error, ErrorKind, Hasher, Hashes, Result, compare::HashAnswer};
use haul_store::{Body, Store, disk};
use std::{os::unix::fs::FileExt, sync::Arc};

/// Bytes read at a time when a file is hashed.
const BLOCK: usize = 1 << 20;

/// Reads the whole content of `entry` and hashes it.
///
/// Errors: those of the read; `Changed` when it isn't the listed version any more; `Io` when it ends early.
pub async fn read_and_hash(store: &Arc<dyn Store>, entry: &Entry, algos: &[Algo]) -> Result<Hashes> {
    let read = store.read(&entry.key, entry.version.as_ref(), None).await?;
    let size = read.entry.size;
    let mut hasher = Hasher::new(algos);
    match read.body {
        Body::File(file, range) => {
            let key = entry.key.clone();
            disk::run(move || {
                let mut buffer = vec![0; BLOCK.min((range.end - range.start) as usize).max(1)];
                let mut at = range.start;
                while at < range.end {
                    let want = buffer.len().min((range.end - at) as usize);
                    let got =
                        file.read_at(&mut buffer[..want], at).map_err(|e| Error::from_io("read", e).with_key(&key))?;
                    if got == 0 {
                        return Err(ended_early(at - range.start, range.end - range.start).with_key(&key));
                    }
                    hasher.update(&buffer[..got]);
                    at += got as u64;
                }
                Ok(hasher.finish())
            })
            .await
        }
        Body::Stream(mut pieces) => {
            let mut got = 0;
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(|e| e.with_key(&entry.key))?;
                got += piece.len() as u64;
                hasher.update(&piece);
            }
            if got != size {
                return Err(ended_early(got, size).with_key(&entry.key));
            }
            Ok(hasher.finish())
        }
    }
}

/// The error of a body that is shorter than promised.
pub fn ended_early(got: u64, want: u64) -> Error {
    Error::new(ErrorKind::Io, "read", format!("it ended after {got} of {want} bytes"))
        .with_retry(haul_core::Retry::Backoff)
}

/// Hashes known of `entry` without reading its bytes: as listed, else as stored.
pub async fn known(store: &Arc<dyn Store>, entry: &Entry) -> Result<Hashes> {
    if !entry.hashes.is_empty() || store.caps().hashes_stored.is_empty() {
        return Ok(entry.hashes.clone());
    }
    Ok(store.stat(&entry.key).await?.hashes)
}

/// The hash of one key by `algo`: known, or computed when reading is cheap or `download` is set. `None`: the store
/// has no such hash.
pub async fn of(store: &Arc<dyn Store>, entry: &Entry, algo: Algo, download: bool) -> Result<Option<Vec<u8>>> {
    if !download && !store.caps().cheap_reads {
        return Ok(known(store, entry).await?.get(algo).map(<[u8]>::to_vec));
    }
    Ok(read_and_hash(store, entry, &[algo]).await?.get(algo).map(<[u8]>::to_vec))
}

/// Compares two entries by hash: what both know, else what one knows and the other computes cheaply, else BLAKE3 on
/// both where both are cheap to read.
pub async fn compare(a: (&Arc<dyn Store>, &Entry), b: (&Arc<dyn Store>, &Entry)) -> Result<HashAnswer> {
    let (cheap_a, cheap_b) = (a.0.caps().cheap_reads, b.0.caps().cheap_reads);
    if cheap_a && cheap_b {
        let both =
            futures::try_join!(read_and_hash(a.0, a.1, &[Algo::Blake3]), read_and_hash(b.0, b.1, &[Algo::Blake3]))?;
        return Ok(answer(&both.0, &both.1));
    }
    if cheap_a {
        return compare_known_and_cheap(b, a).await;
    }
    if cheap_b {
        return compare_known_and_cheap(a, b).await;
    }
    if let Some((algo, same)) = a.1.hashes.agree(&b.1.hashes) {
        return Ok(HashAnswer::Known(algo, same));
    }
    let (x, y) = futures::try_join!(known(a.0, a.1), known(b.0, b.1))?;
    Ok(answer(&x, &y))
}

async fn compare_known_and_cheap(
    known_side: (&Arc<dyn Store>, &Entry),
    cheap: (&Arc<dyn Store>, &Entry),
) -> Result<HashAnswer> {
    let have = known(known_side.0, known_side.1).await?;
    let Some(algo) = have.iter().map(|(a, _)| a).next() else { return Ok(HashAnswer::NoneInCommon) };
    let computed = read_and_hash(cheap.0, cheap.1, &[algo]).await?;
    Ok(answer(&have, &computed))
}

fn answer(a: &Hashes, b: &Hashes) -> HashAnswer {
    match a.agree(b) {
        Some((algo, same)) => HashAnswer::Known(algo, same),
        None => HashAnswer::NoneInCommon,
    }
}
