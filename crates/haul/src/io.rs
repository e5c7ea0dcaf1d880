//! Shared by pipes and transfers: reading a range of a file, and aborting a write.

use haul_core::{Error, Key, Result};
use haul_store::{Buffers, Upload, disk};
use std::{ops::Range, os::unix::fs::FileExt as _, sync::Arc, time::Duration};

/// An abort that gets no answer is given up after this long; the store's own clean-up has to do it then.
pub const ABORT_WITHIN: Duration = Duration::from_secs(10);

/// Reads a range of a file into one piece. A file that ends early gives a shorter piece.
pub async fn file_range(file: Arc<std::fs::File>, range: Range<u64>, buffers: Buffers) -> Result<bytes::Bytes> {
    let read = move |buffer: &mut [u8]| {
        let mut got = 0;
        while got < buffer.len() {
            match file.read_at(&mut buffer[got..], range.start + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::from_io("read", e)),
            }
        }
        Ok(got)
    };
    disk::run(move || buffers.fill((range.end - range.start) as usize, read)).await
}

/// Gives up a write and hands back the error that it was given up for.
pub async fn abort(upload: Box<dyn Upload>, error: Error) -> Error {
    if let Some(why) = give_up(upload).await {
        tracing::debug!("the unfinished write could not be removed{why}");
    }
    error
}

/// As [`abort`], for a write that no later run resumes: what can't be removed is told.
pub async fn abort_for_good(upload: Box<dyn Upload>, error: Error, key: &Key) -> Error {
    if let Some(why) = give_up(upload).await {
        tracing::warn!("{key}: what was sent could not be removed{why} (haul cleanup removes it)");
    }
    error
}

/// What was sent stays, and why.
async fn give_up(upload: Box<dyn Upload>) -> Option<String> {
    match tokio::time::timeout(ABORT_WITHIN, upload.abort()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!(": {error}")),
        Err(_) => Some(" in time".into()),
    }
}
