//! House-keeping of indexes whose ages are made up: what is removed, remembered and forgotten. Nothing here depends on how long it
//! takes.

use super::{
    PackStore, Settings, cleanup,
    index::{Facts, Head, IndexEntry, Location, Record},
    keys::{PACKS, index_key},
    load::{id_at, time_of, whole},
    merge::Merge,
};
use bytes::Bytes;
use futures::future::join_all;
use haul_core::{ErrorKind, Hashes, Key, Mtime, Result};
use haul_mem::MemStore;
use haul_store::{Cleanup, LateFacts, Payload, Store, WriteSpec};
use std::{sync::Arc, time::Duration};

const HOUR: u64 = 3600 * 1_000_000_000;
const DAY: u64 = 24 * HOUR;

fn on(inner: &Arc<dyn Store>) -> PackStore {
    PackStore::new(inner.clone(), b"", Settings::default())
}

fn mem() -> Arc<dyn Store> {
    Arc::new(MemStore::new())
}

/// An id made `ago` nanoseconds ago.
fn id(ago: u64) -> String {
    let now = u64::try_from(jiff::Timestamp::now().as_nanosecond()).expect("after 1970");
    id_at(now - ago).expect("an id")
}

/// A record of a key; without a pack, that it is deleted.
fn record(key: &str, pack: Option<&str>) -> Record {
    let facts = |pack: &str| Facts {
        place: Location::Packed { pack: pack.into(), offset: 512 },
        size: 1,
        mtime: Mtime(0),
        hashes: Hashes::default(),
        meta: None,
    };
    Record { key: key.into(), entry: pack.map_or(IndexEntry::Deleted, |pack| IndexEntry::Stored(facts(pack))) }
}

async fn store(inner: &Arc<dyn Store>, id: &str, previous: &[&str], replaces: &[&str], records: &[Record]) {
    let owned = |ids: &[&str]| ids.iter().map(|id| id.to_string()).collect();
    let head = Head { id: id.into(), tar: 0, previous: owned(previous), replaces: owned(replaces) };
    on(inner).0.store_index(head, records).await.expect("stored");
}

async fn remove(inner: &Arc<dyn Store>, id: &str) {
    inner.delete(vec![(index_key(id), None)]).await.remove(0).expect("removed");
}

/// Keys as a process sees them that starts afresh.
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
    let what = Cleanup { older_than, dry_run: false, below: Key::new("") };
    cleanup::cleanup(&on(inner).0, what).await.expect("tidied");
}

#[tokio::test]
async fn an_index_that_is_still_there_is_not_forgotten() {
    let inner = mem();
    let (named, written, deleted) = (id(400 * DAY), id(300 * DAY), id(200 * DAY));
    let merged = id_at(time_of(&deleted).expect("an id") + 1).expect("an id");
    let last = id(3 * DAY);
    let was = [record("a", Some(&written)), record("b", Some(&written))];
    store(&inner, &written, &[&named], &[], &was).await;
    // The run that wrote this one was stopped before it removed the first of the three.
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

/// Keys below `packs/`.
async fn stored(inner: &Arc<dyn Store>) -> Vec<Key> {
    on(inner).0.list_whole(PACKS).await.expect("listed").into_iter().map(|entry| entry.key).collect()
}

/// Copies files of `from` that are missing in `to`.
async fn arrive(from: &Arc<dyn Store>, to: &Arc<dyn Store>) {
    let there = stored(to).await;
    for key in stored(from).await.into_iter().filter(|key| !there.contains(key)) {
        let bytes = whole(from.read(&key, None, None).await.expect("read")).await.expect("read");
        let size = bytes.len() as u64;
        on(to).0.put(&key, &[bytes], size).await.expect("stored");
    }
}

/// State after two concurrent house-keepings, each based on the state before.
async fn both_tidied(inner: &Arc<dyn Store>, one: u64, two: u64) {
    let (before, other) = (stored(inner).await, mem());
    arrive(inner, &other).await;
    tidy(inner, one).await;
    tidy(&other, two).await;
    arrive(&other, inner).await;
    let left = stored(&other).await;
    let gone = before.into_iter().filter(|key| !left.contains(key)).map(|key| (key, None)).collect();
    inner.delete(gone).await.into_iter().collect::<Result<()>>().expect("removed");
}

#[tokio::test]
async fn two_who_tidy_up_at_once_lose_nothing_and_bring_nothing_back() {
    let inner = mem();
    let ids: Vec<String> = [6, 5, 3, 2].into_iter().map(|days| id(days * DAY)).collect();
    store(&inner, &ids[0], &[], &[], &[record("a", Some(&ids[0]))]).await;
    store(&inner, &ids[1], &[&ids[0]], &[], &[record("b", Some(&ids[1]))]).await;
    store(&inner, &ids[2], &[&ids[1]], &[], &[record("a", None)]).await;
    store(&inner, &ids[3], &[&ids[2]], &[], &[record("c", Some(&ids[3]))]).await;
    // One of them finds the deletion too young.
    both_tidied(&inner, 4 * DAY, DAY).await;
    assert_eq!(keys(&inner).await.expect("listed"), ["b", "c"]);
    let last = id(DAY);
    store(&inner, &last, &[&ids[3]], &[], &[record("d", Some(&last))]).await;
    both_tidied(&inner, HOUR, HOUR).await;
    assert_eq!(keys(&inner).await.expect("listed"), ["b", "c", "d"]);
    tidy(&inner, HOUR).await;
    assert_eq!(keys(&inner).await.expect("listed"), ["b", "c", "d"]);
    assert_eq!(indexes(&inner).await.len(), 1);
}

async fn put(store: &PackStore, name: String) -> Result<()> {
    let spec = WriteSpec { size: Some(name.len() as u64), ..WriteSpec::default() };
    let upload = store.write(&Key::new(name.as_str()), spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::from(name))).await?;
    upload.publish(vec![part], LateFacts::default()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_lose_nothing_while_others_tidy_up() {
    let inner = mem();
    let mut before: Vec<String> = Vec::new();
    for days in (3..23).rev() {
        let id = id(days * DAY);
        let dead = record(&format!("dead/{}", days + 1), None);
        let records = [record(&format!("dead/{days}"), Some(&id)), record(&format!("old/{days:02}"), Some(&id))];
        let mut records = [&[dead][..], &records].concat();
        records.sort_by(|a, b| a.key.cmp(&b.key));
        let named: Vec<&str> = before.last().map(String::as_str).into_iter().collect();
        store(&inner, &id, &named, &[], &records).await;
        before.push(id);
    }
    let quick = Settings { quiet: Duration::from_millis(1), stalled: Duration::from_millis(1), ..Settings::default() };
    let writers = ["x", "y", "z"].map(|who| {
        let store = PackStore::new(inner.clone(), b"", quick);
        tokio::spawn(async move {
            for n in 0..10 {
                put(&store, format!("{who}/{n}")).await.expect("stored");
            }
        })
    });
    let tidiers = [2 * DAY, 10 * DAY].map(|age| {
        let inner = inner.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                tidy(&inner, age).await;
            }
        })
    });
    for ended in join_all(writers.into_iter().chain(tidiers)).await {
        ended.expect("no error");
    }
    let mut wanted: Vec<String> = (3..23).map(|days| format!("old/{days:02}")).chain(["dead/3".to_string()]).collect();
    wanted.extend(["x", "y", "z"].iter().flat_map(|who| (0..10).map(move |n| format!("{who}/{n}"))));
    wanted.sort();
    assert_eq!(keys(&inner).await.expect("listed"), wanted);
    let left = indexes(&inner).await;
    assert!(!before.iter().any(|id| left.contains(id)), "{left:?}");
}
