//! A file that is built from the existing one: both ends report the chunks of theirs, and only chunks that the destination
//! doesn't have are sent. The destination proves the whole by its hash before it becomes visible.

use super::{
    Count, FileTransfer, Mover,
    pump::PumpResult,
    read::{Bytes, Source, store_range},
    unfinished::Target,
};
use crate::{
    backup::ReplacedFile,
    cx::cancelled,
    io::file_range,
    recipes::{self, Pair},
};
use futures::{StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use haul_core::{
    Algo, Entry, Hashes, Kind, Result, Version,
    delta::{Plan, Recipe, Run},
    plan::Route,
};
use haul_store::{Part, Payload, Store};
use std::{fs::File, sync::Arc};

/// Bytes of a piece that comes, at most: several are under way at once.
pub const PIECE: u64 = 1 << 20;

/// Pieces that are under way at once: small ones, for the most part. Those of a page each fill a link of 20 MB/s over 50 ms.
const AT_ONCE: usize = 256;

/// Runs of bytes that the destination has already, in one request …
const RUNS: usize = 1000;
/// … or this many bytes of them and one run more, so that progress is visible.
const RUN_BYTES: u64 = 64 << 20;

/// Such requests that are under way at once: the destination copies one after the other.
const RUNS_AT_ONCE: usize = 8;

/// How a file is built.
pub struct Delta {
    plan: Plan,
    /// The version of the old file.
    old: Version,
    new: Recipe,
}

impl Delta {
    /// How it would be sent if it had to be sent whole: in parts, so that any range can be read.
    pub const ROUTE: Route = Route::Parts { size: PIECE };

    /// The hash that proves the whole.
    pub fn whole(&self) -> Hashes {
        Hashes::default().with(Algo::Blake3, &self.new.whole)
    }
}

impl Mover {
    /// How a file is built from the existing one; `None` if it is sent whole.
    pub(super) async fn delta(&self, order: &FileTransfer, src: &Entry) -> Option<Delta> {
        let old = order.replaced.as_ref().filter(|old| old.kind == Kind::File)?;
        let compared = self.cx.known.recipes.take(src, old);
        if order.kept != ReplacedFile::No {
            return None;
        }
        if self.cx.journal.as_ref().is_some_and(|journal| journal.holds(&order.to)) {
            return None;
        }
        let version = old.version.clone()?;
        let sides = ((&self.cx.src, src), (&self.cx.dst, old));
        let cut = recipes::cut(&self.job, sides.0, sides.1)?;
        let compared = match compared {
            Some(pair) => Ok(pair),
            None => tokio::select! {
                biased;
                () = self.cx.cancel.cancelled() => return None,
                compared = recipes::ask(sides.0, sides.1, cut) => compared,
            },
        };
        let in_place = self.writes_in_place(order);
        let planned = compared.and_then(|Pair { new, old }| Ok((Plan::of(&old, &new, in_place, PIECE)?, new)));
        match planned {
            Ok((plan, new)) if plan.matched() > 0 && new.size == src.size => Some(Delta { plan, old: version, new }),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(%error, key = %order.to, "goes whole");
                None
            }
        }
    }
}

/// Runs that go with one request each.
fn requests(runs: &[Run]) -> impl Iterator<Item = &[Run]> {
    let (mut count, mut bytes) = (0, 0);
    // Each with its next: one that fills a request is the last of it.
    runs.chunk_by(move |run, _| {
        (count, bytes) = (count + 1, bytes + run.size);
        let goes_on = count < RUNS && bytes < RUN_BYTES;
        if !goes_on {
            (count, bytes) = (0, 0);
        }
        goes_on
    })
}

/// Where bytes come from that have to come.
enum From {
    File(Arc<File>),
    Store(Arc<dyn Store>, Box<Entry>),
}

/// Brings what the destination doesn't have, and has it take the rest from the old file.
///
/// Errors: the first of any read or write. `Cancelled` when the rest is more than may be moved.
pub async fn pump(
    mover: &Mover,
    source: Source,
    target: &Target,
    delta: &Delta,
    count: &Count<'_>,
) -> Result<PumpResult> {
    let Delta { plan, old, new } = delta;
    let from = match source.bytes {
        Bytes::File(file) => From::File(file),
        Bytes::Ranges { store, entry } => From::Store(store, Box::new(entry)),
        Bytes::Stream { .. } => unreachable!("a source is opened for parts"),
    };
    let from = &from;
    let bring = |(index, offset, size): (u64, u64, u64)| -> BoxFuture<'_, Result<Part>> {
        Box::pin(async move {
            if !count.allows(size) {
                return Err(cancelled());
            }
            let _memory = mover.budget.memory(size).await;
            let range = offset..offset + size;
            let payload = match from {
                From::File(file) => Payload::from(file_range(file.clone(), range, mover.budget.buffers.clone()).await?),
                From::Store(store, entry) => store_range(store.clone(), (**entry).clone(), range).await?,
            };
            if payload.len() != size {
                return Err(haul_store::blocks::ended_early(payload.len(), size));
            }
            let part = target.upload.part(index, offset, payload).await?;
            count.add(size);
            Ok(part)
        })
    };
    let take = |runs: &[Run]| -> BoxFuture<'_, Result<Vec<Part>>> {
        let runs = runs.to_vec();
        Box::pin(async move {
            let bytes = runs.iter().map(|run| run.size).sum();
            let parts = target.upload.reuse(old, runs).await?;
            count.skip(bytes);
            Ok(parts)
        })
    };
    // Both at once: existing chunks are copied while the rest is on its way.
    let taken = stream::iter(requests(&plan.runs).map(take)).buffer_unordered(RUNS_AT_ONCE).try_collect::<Vec<_>>();
    let brought = stream::iter(plan.literals.iter().copied().map(bring)).buffer_unordered(AT_ONCE).try_collect();
    let (taken, mut parts): (_, Vec<Part>) = futures::future::try_join(taken, brought).await?;
    parts.extend(taken.into_iter().flatten());
    parts.sort_by_key(|part| part.index);
    let bytes = parts.iter().map(|part| part.size).sum();
    debug_assert_eq!(bytes, new.size);
    Ok(PumpResult { bytes, parts, hashes: delta.whole(), unproved: None, memory: None })
}
