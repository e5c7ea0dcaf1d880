//! Report of a job: the outcomes of its shards, added up.

use crate::{
    Board, Spec,
    job_folder::{View, is_of_worker},
    outcome::WorkDone,
    protocol::{FileShard, Record, RemainingWork, ShardId, ShardState, Stage, WorkerId},
};
use futures::{FutureExt, StreamExt};
use haul_core::{Error, ErrorKind, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// Records that are read at once.
pub(crate) const AT_ONCE: usize = 16;

/// A job at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// No work is left.
    pub complete: bool,
    /// Somebody has cancelled it.
    pub cancelled: bool,
    /// Shards so far.
    pub shards: usize,
    /// Shards that are done.
    pub done: usize,
    /// Shards that are held, by a live worker or not.
    pub held: usize,
    /// Workers that have given a sign of life and not taken it away.
    pub workers: usize,
    /// Those of them that have ended or are silent, as far as the observer can tell.
    pub silent: usize,
    /// Work done in all shards.
    pub outcome: WorkDone,
}

/// The last record of each shard of a job.
pub type Records = BTreeMap<ShardId, Record<WorkDone>>;

/// Records that were read, by number.
pub type ReadRecords = BTreeMap<ShardId, (u64, Record<WorkDone>)>;

/// The last records of all shards, as `view` shows their numbers; what `known` has of them already isn't read again. What came of ranges
/// of large files is left out. A shard that was split off and that no listing shows seems to be held. A record that can't be read is one error of its shard, which somebody seems to hold unless it is known
/// to be done; it is read again each time.
///
/// Errors: the store can't be reached; a record isn't there though it was listed.
pub async fn records(board: &Board, spec: &Spec, view: &View, known: &mut ReadRecords) -> Result<Records> {
    let maker = WorkerId(String::new());
    let first = |(id, range)| (id, Record::first(&maker, RemainingWork::Keys(range)));
    let mut all: Records = spec.shards().into_iter().map(first).collect();
    // A listing may be older than the known records.
    let is_known = |(known, record): &(u64, Record<WorkDone>), number| *known >= number && !record.by.is_unread();
    let news = view.latest.iter().filter(|(id, number)| !known.get(*id).is_some_and(|known| is_known(known, **number)));
    let news: Vec<(ShardId, u64)> = news.map(|(id, number)| (id.clone(), *number)).collect();
    let reads: Vec<_> = news.into_iter().map(|(id, number)| read(board, view, id, number).boxed()).collect();
    let mut reads = futures::stream::iter(reads).buffer_unordered(AT_ONCE);
    while let Some(read) = reads.next().await {
        let (id, number, record) = read?;
        known.insert(id, (number, record));
    }
    for id in unseen(known) {
        let by = WorkerId::unread(&id, 0);
        known.insert(id, (0, Record { state: ShardState::Held, ..Record::first(&by, RemainingWork::Nothing) }));
    }
    all.extend(known.iter().map(|(id, (_, record))| (id.clone(), record.clone())));
    Ok(all)
}

/// Shards that were split off from ones that are done, and so have records, but that no listing has shown: a folder of a network file
/// system may show what another node made there a minute later.
fn unseen(known: &ReadRecords) -> Vec<ShardId> {
    let done = known.iter().filter(|(_, (_, record))| record.state == ShardState::Done);
    let born = done.flat_map(|(id, (_, record))| (0..record.born).map(|number| id.child(number)));
    born.filter(|id| !known.contains_key(id)).collect()
}

async fn read(board: &Board, view: &View, id: ShardId, number: u64) -> Result<(ShardId, u64, Record<WorkDone>)> {
    match board.record(&id, number).await {
        Ok(Some(mut record)) => {
            shorten(&mut record);
            Ok((id, number, record))
        }
        Ok(None) => {
            let message = format!("record {number} of shard {id} is gone: was the job removed?");
            Err(Error::new(ErrorKind::NotFound, "read", message))
        }
        Err(error) if is_of_worker(&error) => Err(error),
        Err(error) => {
            let state = if view.done.contains(&id) { ShardState::Done } else { ShardState::Held };
            let key = board.record_key(&id, number);
            let why = format!("the record {key} can't be read: {}", error.message());
            let outcome = WorkDone { error_count: 1, errors: vec![why], ..WorkDone::default() };
            let by = WorkerId::unread(&id, number);
            let record = Record { state, outcome, ..Record::first(&by, RemainingWork::Nothing) };
            Ok((id, number, record))
        }
    }
}

/// Receipts and facts are long, and only the worker that finishes the file needs them.
pub(crate) fn shorten(record: &mut Record<WorkDone>) {
    if let RemainingWork::File(FileShard { stage: Stage::Came(came), about, .. }) = &mut record.rest {
        (*came, *about) = (String::new(), String::new());
    }
}

/// Adds up.
pub fn summary(spec: &Spec, view: &View, records: &Records) -> Summary {
    let count = |state| records.values().filter(|record| record.state == state).count();
    let finished =
        !spec.finish || records.get(&ShardId::finish()).is_some_and(|record| record.state == ShardState::Done);
    let mut outcome = WorkDone::default();
    for record in records.values() {
        outcome += record.outcome.clone();
    }
    Summary {
        complete: finished && records.values().all(|record| record.state == ShardState::Done),
        cancelled: view.cancelled,
        shards: records.len(),
        done: count(ShardState::Done),
        held: count(ShardState::Held),
        workers: view.signs.len(),
        silent: 0,
        outcome,
    }
}
