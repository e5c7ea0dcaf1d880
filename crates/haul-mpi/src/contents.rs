//! Comparing bytes, and the possible results of a read.

use crate::{shared::HeldLease, work::SourceEntry};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::Body;
use std::{fs::File, ops::Range, os::unix::fs::FileExt as _, sync::Arc};

/// Bytes read and written at a time: fits a core's cache, and is a whole request to most file systems of networks.
pub const BLOCK: u64 = 1 << 20;

pub fn file(body: Body, key: &Key) -> Result<Arc<File>> {
    match body {
        Body::File(file, _) => Ok(file),
        Body::Stream(_) => Err(Error::new(ErrorKind::Unsupported, "read", "is no file of a file system").with_key(key)),
    }
}

pub fn stopped() -> Error {
    Error::new(ErrorKind::Cancelled, "copy", "was stopped")
}

pub fn shorter(error: std::io::Error, key: &Key) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Changed, "copy", "became shorter while it was copied").with_key(key)
        }
        _ => Error::from_io("read", error).with_key(key),
    }
}

/// Compares a range with what this store has under the destination's name.
pub async fn compare_with(
    shared: &HeldLease,
    root: u16,
    item: &SourceEntry,
    range: Range<u64>,
    other: &Arc<dyn haul_store::Store>,
) -> Result<bool> {
    let sides = &shared.sides[usize::from(root)];
    let key = item.key();
    let to = sides.to(&key);
    let read = async |store: &Arc<dyn haul_store::Store>, key: &Key| store.read(key, None, Some(range.clone())).await;
    if item.kind != haul_core::Kind::File {
        let (ours, theirs) = (target_of(&sides.src, &key).await?, target_of(other, &to).await?);
        return Ok(ours == theirs);
    }
    let ours = file(read(&sides.src, &key).await?.body, &key)?;
    let theirs = file(read(other, &to).await?.body, &to)?;
    let (mut a, mut b) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
    let mut at = range.start;
    while at < range.end {
        if !shared.may_go_on() {
            return Err(stopped());
        }
        let len = (range.end - at).min(BLOCK) as usize;
        ours.read_exact_at(&mut a[..len], at).map_err(|error| shorter(error, &key))?;
        theirs.read_exact_at(&mut b[..len], at).map_err(|error| shorter(error, &to))?;
        if a[..len] != b[..len] {
            return Ok(false);
        }
        at += len as u64;
        shared.moved(len as u64);
    }
    Ok(true)
}

async fn target_of(store: &Arc<dyn haul_store::Store>, key: &Key) -> Result<Vec<u8>> {
    use futures::TryStreamExt as _;
    match store.read(key, None, None).await?.body {
        Body::Stream(pieces) => Ok(pieces.try_collect::<Vec<_>>().await?.concat()),
        Body::File(..) => Err(Error::new(ErrorKind::Changed, "read", "is no symbolic link any more").with_key(key)),
    }
}
