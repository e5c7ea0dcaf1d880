//! Work on many files at once, on the disk threads, in batches so that a small file costs no hop of its own.

use futures::{StreamExt as _, stream};
use haul_core::Result;
use haul_store::disk;
use std::sync::Arc;

/// Batches on their way; the pool's threads bound what runs.
const AHEAD: usize = 64;
/// Up to this many files are a batch each, since they may be large.
const SINGLE: usize = 64;
/// Files of a batch.
const BATCH: usize = 64;

/// Results of `work` for each, in order.
///
/// Errors: a disk thread was lost.
pub async fn spread<T, R>(all: Vec<T>, work: impl Fn(T) -> R + Send + Sync + 'static) -> Result<Vec<R>>
where
    T: Send + 'static,
    R: Send + 'static,
{
    spread_batches(all, move |batch| batch.into_iter().map(&work).collect()).await
}

/// As [`spread`], for work that gains by seeing neighbours together.
pub async fn spread_batches<T, R>(
    all: Vec<T>,
    work: impl Fn(Vec<T>) -> Vec<R> + Send + Sync + 'static,
) -> Result<Vec<R>>
where
    T: Send + 'static,
    R: Send + 'static,
{
    let size = if all.len() <= SINGLE { 1 } else { BATCH };
    let work = Arc::new(work);
    let mut batches = Vec::with_capacity(all.len() / size + 1);
    let mut all = all.into_iter();
    loop {
        let batch: Vec<T> = all.by_ref().take(size).collect();
        if batch.is_empty() {
            break;
        }
        batches.push(batch);
    }
    let mut running = stream::iter(batches)
        .map(|batch| {
            let work = work.clone();
            disk::run(move || Ok(work(batch)))
        })
        .buffered(AHEAD);
    let mut out = Vec::new();
    while let Some(batch) = running.next().await {
        out.extend(batch?);
    }
    Ok(out)
}
