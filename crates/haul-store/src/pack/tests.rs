//! House-keeping of indexes whose ages are made up: what is removed, remembered and forgotten. No test here waits.

use super::{
    PackStore, Settings, extra,
    index::{Facts, Head, Place, Record, Said},
    list::Merge,
    load::{id_at, index_key, time_of},
};
use crate::{Extra, Store, mem::MemStore};
use haul_core::{ErrorKind, Hashes, Key, Mtime, Result};
use std::{sync::Arc, time::Duration};

const HOUR: u64 = 3600 * 1_000_000_000;
const DAY: u64 = 24 * HOUR;

fn on(inner: &Arc<dyn Store>) -> PackStore {
    PackStore::new(inner.clone(), b"", Settings::default())
}

fn mem() -> Arc<dyn Store> {
    Arc::new(MemStore::new())
}

/// An id that was made so many nanoseconds ago.
fn id(ago: u64) -> String {
    let now = u64::try_from(jiff::Timestamp::now().as_nanosecond()).expect("after 1970");
    id_at(now - ago).expect("an id")
}

/// A record of a key; without a pack, that it is deleted.
fn record(key: &str, pack: Option<&str>) -> Record {
    let facts = |pack: &str| Facts {
        place: Place::Packed { pack: pack.into(), offset: 512 },
        size: 1,
        mtime: Mtime(0),
        hashes: Hashes::default(),
        meta: None,
    };
    Record { key: key.into(), said: pack.map_or(Said::Deleted, |pack| Said::Stored(facts(pack))) }
}

async fn store(inner: &Arc<dyn Store>, id: &str, previous: &[&str], replaces: &[&str], records: &[Record]) {
    let owned = |ids: &[&str]| ids.iter().map(|id| id.to_string()).collect();
    let head = Head { id: id.into(), tar: 0, previous: owned(previous), replaces: owned(replaces) };
    on(inner).0.store_index(head, records).await.expect("stored");
}

async fn remove(inner: &Arc<dyn Store>, id: &str) {
    inner.delete(vec![(index_key(id), None)]).await.remove(0).expect("removed");
}

/// What somebody sees who knows nothing yet.
async fn keys(inner: &Arc<dyn Store>) -> Result<Vec<String>> {
    let merge = Merge::new(on(inner).0.indexes(true).await?, b"");
    let held = merge.filter_map(|(key, facts)| facts.map(|_| String::from_utf8_lossy(&key).into_owned()));
    Ok(held.collect())
}

/// The ids of the indexes that are there.
async fn indexes(inner: &Arc<dyn Store>) -> Vec<String> {
    on(inner).0.folder().await.expect("listed").indexes.into_iter().collect()
}

async fn tidy(inner: &Arc<dyn Store>, older_than: u64) {
    let older_than = Duration::from_nanos(older_than);
    let request = Extra::Cleanup { older_than, dry_run: false, below: Key::new("") };
    extra::extra(&on(inner).0, request).await.expect("tidied");
}

#[tokio::test]
async fn an_index_that_is_still_there_is_not_forgotten() {
    let inner = mem();
    let (named, written, deleted) = (id(400 * DAY), id(300 * DAY), id(200 * DAY));
    let merged = id_at(time_of(&deleted).expect("an id") + 1).expect("an id");
    let last = id(3 * DAY);
    let was = [record("a", Some(&written)), record("b", Some(&written))];
    store(&inner, &written, &[&named], &[], &was).await;
    // Who made this one was stopped before it removed the first of the three.
    store(&inner, &merged, &[], &[&named, &written, &deleted], &was[1..]).await;
    store(&inner, &last, &[&merged], &[], &[record("c", Some(&last))]).await;
    assert_eq!(keys(&inner).await.expect("listed"), ["b", "c"]);
    tidy(&inner, DAY).await;
    let left = indexes(&inner).await;
    assert_eq!(left.len(), 1, "{left:?}");
    // As it was before the old one was removed too, or if that was not done.
    store(&inner, &written, &[&named], &[], &was).await;
    assert_eq!(keys(&inner).await.expect("listed"), ["b", "c"], "a stays deleted, and nothing seems lost");
}

#[tokio::test]
async fn an_index_that_a_newer_one_names_is_not_forgotten() {
    let inner = mem();
    let (first, second) = (id(301 * DAY), id(300 * DAY));
    store(&inner, &first, &[], &[], &[record("a", Some(&first))]).await;
    store(&inner, &second, &[&first], &[], &[record("b", Some(&second))]).await;
    tidy(&inner, DAY).await;
    let (last, young) = (id(3 * DAY), id(HOUR));
    store(&inner, &last, &[], &[], &[record("c", Some(&last))]).await;
    // Of a run that went on for long, and knew the first two as they were.
    store(&inner, &young, &[&second], &[], &[record("d", Some(&young))]).await;
    tidy(&inner, DAY).await;
    assert_eq!(indexes(&inner).await.len(), 2);
    assert_eq!(keys(&inner).await.expect("listed"), ["a", "b", "c", "d"]);
    remove(&inner, &indexes(&inner).await.remove(0)).await;
    assert_eq!(keys(&inner).await.expect_err("the merged one is lost").kind(), ErrorKind::Corrupt);
}
