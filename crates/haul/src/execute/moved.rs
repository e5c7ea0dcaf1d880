//! The sources of a move: each is deleted once it is proved to be at the destination, at exactly the version that arrived. They go in
//! batches.

use super::distinct_ends;
use crate::{
    cx::Cx,
    ledger::Ledger,
    presence::{self, KeyState},
    spool::PendingDelete,
};
use futures::{StreamExt as _, future::BoxFuture, stream};
use haul_core::{Error, ErrorKind, Key, Side, event::Event, job::Job};
use haul_store::Store;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

/// Directories whose proofs are remembered.
const REMEMBERED: usize = 100_000;
/// Sources that wait at most while nothing is transferred: what bounds their memory, and fills the requests of stores that delete one
/// file a request.
const MANY: usize = 1000;
/// Proofs at once.
const PROOFS: usize = 16;

/// Moved sources, those that wait to be deleted.
pub(crate) struct MovedSources {
    cx: Cx,
    ledger: Arc<Ledger>,
    /// Questions at once; `None` lets the store choose.
    at_once: Option<usize>,
    waiting: Mutex<Vec<Moved>>,
    /// Directories of the source of which it is proved that those of the destination are others, or not. Each by itself: one below may
    /// be a mount.
    two_places: tokio::sync::Mutex<BTreeMap<Key, bool>>,
}

/// A source whose content is at the destination.
struct Moved {
    source: PendingDelete,
    /// Where it was found, or a file that it replaced.
    found: Option<Key>,
}

impl MovedSources {
    /// None waits yet.
    pub fn new(job: &Job, cx: &Cx, ledger: &Arc<Ledger>) -> MovedSources {
        let (cx, ledger, at_once) = (cx.clone(), ledger.clone(), job.pace.checkers);
        MovedSources { cx, ledger, at_once, waiting: Mutex::default(), two_places: tokio::sync::Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Moved>> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Adds a file that was transferred, with the version at the destination.
    pub fn push(&self, source: PendingDelete) {
        self.waiting().push(Moved { source, found: None });
    }

    /// One that was found at the destination, or replaced what was found there.
    pub fn found(&self, source: PendingDelete, to: &Key) {
        self.waiting().push(Moved { source, found: Some(to.clone()) });
    }

    /// Counts and reports a file that was renamed to its new place.
    pub fn renamed(&self, key: &Key, size: u64) {
        let totals = &mut self.ledger.report().totals;
        totals.deletes += 1;
        totals.sources_deleted += 1;
        self.ledger.tell(Event::Deleted { side: Side::Src, key: key.clone(), size });
    }

    /// Deletes a full batch, or `all` that are left.
    pub async fn delete(&self, all: bool) {
        let moved = {
            let mut waiting = self.waiting();
            if waiting.is_empty() || (!all && waiting.len() < self.cx.src.caps().delete_batch) {
                return;
            }
            std::mem::take(&mut *waiting)
        };
        let moved = self.of_two_places(moved).await;
        let moved = self.keep_unchanged(moved).await;
        let request = moved.iter().map(|moved| (moved.key.clone(), moved.version.clone())).collect();
        for (moved, answer) in moved.iter().zip(self.cx.src.delete(request).await) {
            match answer {
                Ok(()) => self.renamed(&moved.key, moved.size),
                Err(error) => self.ledger.error(error.with_key(&moved.key)),
            }
        }
    }

    /// Deletes those that wait once they are many. Of files that are at the destination already no transfer does so.
    pub async fn delete_many(&self) {
        if self.waiting().len() >= self.cx.src.caps().delete_batch.max(MANY) {
            self.delete(true).await;
        }
    }

    /// Keeps only those moved sources that aren't the destination's own files, reached in another way.
    async fn of_two_places(&self, moved: Vec<Moved>) -> Vec<PendingDelete> {
        let found = moved.iter().filter_map(|moved| Some((moved.source.key.clone(), moved.found.clone()?)));
        let one = self.in_one_place(found.collect()).await;
        let apart = |moved: &Moved| moved.found.is_none() || !one.contains(&moved.source.key.parent());
        moved.into_iter().filter(apart).map(|moved| moved.source).collect()
    }

    /// The directories of these source files, each with its key at the destination, that aren't proved to be different ones there.
    /// A missing proof is reported once for each.
    pub async fn in_one_place(&self, files: Vec<(Key, Key)>) -> BTreeSet<Key> {
        if files.is_empty() {
            return BTreeSet::new();
        }
        let mut known = self.two_places.lock().await;
        if known.len() > REMEMBERED {
            known.clear();
        }
        let (mut all, mut asked) = (BTreeSet::new(), Vec::new());
        for (from, to) in files {
            let dir = from.parent();
            if all.insert(dir.clone()) && !known.contains_key(&dir) {
                asked.push(self.proof(dir, from, to));
            }
        }
        let proofs: Vec<(Key, bool)> = stream::iter(asked).buffer_unordered(PROOFS).collect().await;
        known.extend(proofs);
        all.retain(|dir| known.get(dir) != Some(&true));
        all
    }

    fn proof(&self, dir: Key, from: Key, to: Key) -> BoxFuture<'_, (Key, bool)> {
        Box::pin(async move {
            let proved = distinct_ends::are_two(&self.cx, &from, &to).await;
            (dir, proved.map_err(|error| self.ledger.error(error)).is_ok())
        })
    }

    /// Keeps only those moved sources that may be deleted. A store that deletes whatever has the name is asked first whether it is
    /// still the version that was copied: anything newer would be the only copy.
    async fn keep_unchanged(&self, moved: Vec<PendingDelete>) -> Vec<PendingDelete> {
        let question = ExistenceQuery { store: &self.cx.src, ledger: &self.ledger, at_once: self.at_once };
        keep_unchanged(question, moved, "changed since it was copied: it stays").await
    }
}

/// A store to ask which files exist, and how to ask.
pub(super) struct ExistenceQuery<'a> {
    pub store: &'a Arc<dyn Store>,
    pub ledger: &'a Ledger,
    /// Questions at once; `None` lets the store choose.
    pub at_once: Option<usize>,
}

/// Filters these files to those that are unchanged or missing. Each of the others is reported as an error (`why`). A store that
/// deletes by version isn't asked.
pub(super) async fn keep_unchanged(
    question: ExistenceQuery<'_>,
    mut moved: Vec<PendingDelete>,
    why: &'static str,
) -> Vec<PendingDelete> {
    let ExistenceQuery { store, ledger, at_once } = question;
    if store.caps().deletes_version {
        return moved;
    }
    moved.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let keys = moved.iter().map(|moved| moved.key.clone()).collect();
    let options = presence::LookupOptions { method: None, at_once };
    let found = presence::find(store, keys, options).await;
    let mut may_go = Vec::with_capacity(moved.len());
    for (moved, (key, answer)) in moved.into_iter().zip(found.answers) {
        let copied = &moved.version;
        let now = match answer {
            // Not every service lists encrypted content under the ETag that a `stat` returns.
            KeyState::There(now) if copied.is_some() && now.version != *copied => store.stat(&key).await,
            KeyState::Unknown(error) => Err(error.to_report()),
            // A file that is missing by now counts as deleted.
            KeyState::There(_) | KeyState::Absent | KeyState::NotAsked => {
                may_go.push(moved);
                continue;
            }
        };
        match now {
            Ok(now) if now.version == *copied => may_go.push(moved),
            Ok(_) => {
                ledger.error(Error::new(ErrorKind::Changed, "delete", why).with_key(&key));
            }
            Err(error) => ledger.error(error.with_key(&key)),
        }
    }
    may_go
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use haul_mem::MemStore;
    use haul_store::{LateFacts, Payload, WriteSpec};

    /// Sources in a store that deletes whatever has the name, by as many as go in a batch.
    async fn moved(delete_batch: usize, keys: &[&str]) -> MovedSources {
        let store = MemStore::new().with_caps(|caps| {
            (caps.deletes_version, caps.delete_batch) = (false, delete_batch);
        });
        let cx = Cx::between(Arc::new(store), Arc::new(MemStore::new()));
        let ledger = Arc::new(Ledger::new(cx.sink.clone(), cx.cancel.clone(), cx.filter.clone(), false));
        let moved = MovedSources::new(&Job::default(), &cx, &ledger);
        for key in keys {
            put(&moved, key, "moved").await;
            moved.push(moved.cx.src.stat(&Key::new(*key)).await.unwrap().into());
        }
        moved
    }

    async fn put(moved: &MovedSources, key: &str, text: &'static str) {
        let upload = moved.cx.src.write(&Key::new(key), WriteSpec::default()).await.unwrap();
        let part = upload.part(0, 0, Payload::from(Bytes::from(text))).await.unwrap();
        upload.publish(vec![part], LateFacts::default()).await.unwrap();
    }

    async fn left(moved: &MovedSources, keys: &[&str]) -> Vec<bool> {
        let mut left = Vec::new();
        for key in keys {
            left.push(moved.cx.src.stat(&Key::new(*key)).await.is_ok());
        }
        left
    }

    #[tokio::test]
    async fn moved_sources_are_deleted_in_full_batches_or_at_the_end() {
        let keys = ["a", "b"];
        let few = moved(3, &keys).await;
        few.delete(false).await;
        assert_eq!(left(&few, &keys).await, [true, true]);
        few.delete(true).await;
        assert_eq!((left(&few, &keys).await, few.ledger.report().totals.deletes), (vec![false, false], 2));
        let full = moved(2, &keys).await;
        full.delete(false).await;
        assert_eq!(left(&full, &keys).await, [false, false]);
    }

    #[tokio::test]
    async fn many_moved_sources_are_deleted_before_the_end() {
        let keys: Vec<String> = (0..MANY).map(|number| format!("{number:04}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let moved = moved(1, &keys[1..]).await;
        moved.delete_many().await;
        assert!(left(&moved, &keys[1..]).await.iter().all(|left| *left));
        put(&moved, keys[0], "moved").await;
        moved.found(moved.cx.src.stat(&Key::new(keys[0])).await.unwrap().into(), &Key::new(keys[0]));
        moved.delete_many().await;
        assert!(!left(&moved, &keys).await.contains(&true));
    }

    #[tokio::test]
    async fn what_was_found_there_goes_only_if_that_is_another_place() {
        for one in [false, true] {
            let mut sources = moved(9, &[]).await;
            let (here, other) = (MemStore::new(), MemStore::new());
            let there = if one { here.clone() } else { other };
            (sources.cx.src, sources.cx.dst) = (Arc::new(here), Arc::new(there));
            for key in ["brought", "found"] {
                put(&sources, key, "content").await;
            }
            let stat = async |key: &str| PendingDelete::from(sources.cx.src.stat(&Key::new(key)).await.unwrap());
            sources.push(stat("brought").await);
            sources.found(stat("found").await, &Key::new("found"));
            sources.delete(true).await;
            assert_eq!(left(&sources, &["brought", "found"]).await, [false, one]);
            assert_eq!(sources.ledger.report().error_count, u64::from(one));
        }
    }

    #[tokio::test]
    async fn one_that_changed_since_stays_and_is_an_error() {
        let sources = moved(3, &["new", "old"]).await;
        put(&sources, "new", "written meanwhile").await;
        sources.delete(true).await;
        assert_eq!(left(&sources, &["new", "old"]).await, [true, false]);
        let report = sources.ledger.report();
        assert_eq!((report.error_count, report.totals.deletes), (1, 1));
        assert_eq!(report.errors[0].message(), "changed since it was copied: it stays");
    }
}
