//! Reading what must be small: a remote may hold anything under a name.

use futures::StreamExt as _;
use haul_core::{Entry, Error, ErrorKind, Key, Result};
use haul_store::Store;
use std::sync::Arc;

/// All of a key that has no more than `most` bytes.
///
/// Errors: it can't be read, or has more.
pub async fn small(store: &Arc<dyn Store>, key: &Key, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read(store, key, most, |piece| bytes.extend_from_slice(piece)).await?;
    Ok(bytes)
}

/// Gives all of a key to `take`, if that isn't more than `most` bytes.
///
/// Errors: it can't be read, or has more.
pub async fn read(store: &Arc<dyn Store>, key: &Key, most: u64, mut take: impl FnMut(&[u8])) -> Result<()> {
    let mut pieces = haul::pipe::read(store, &Entry::file(key.clone(), 0), None).await.map_err(|e| e.with_key(key))?;
    let mut got = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|e| e.with_key(key))?;
        got += piece.len() as u64;
        if got > most {
            let message = format!("file is implausibly large (more than {most} bytes)");
            return Err(Error::new(ErrorKind::Corrupt, "read", message).with_key(key));
        }
        take(&piece);
    }
    Ok(())
}
