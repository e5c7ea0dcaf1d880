//! The retry and rate layers over a store with injected faults, on a clock that doesn't take time.

use bytes::Bytes;
use futures::StreamExt;
use haul_core::{ErrorKind, Key, Listed, Result, Retry, plan::Replace};
use haul_mem::MemStore;
use haul_store::{
    CopyBatch, CopyHow, CopyItem, LateFacts, Links, ListRequest, Meters, Payload, Store, StoredFacts, Watch, WriteSpec,
    layers::{LayerSettings, rate::Rate, stack},
};
use haul_testkit::{
    conformance::collect,
    faults::{FakeClock, Fault, Faulty, Op},
    tree::content,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const BUSY: Fault = Fault::Fail(ErrorKind::Busy, Retry::Backoff);
const RESET: Fault = Fault::Fail(ErrorKind::Io, Retry::Backoff);

struct Stack {
    store: Arc<dyn Store>,
    faulty: Faulty,
    clock: Arc<FakeClock>,
    meters: Arc<Meters>,
}

fn over(mem: MemStore, faults: &[(Op, u64, Fault)]) -> Stack {
    let faulty = faults.iter().fold(Faulty::new(Arc::new(mem)), |f, (op, nth, fault)| f.on(*op, *nth, fault.clone()));
    let (clock, meters) = (FakeClock::new(0.5), Arc::new(Meters::default()));
    let settings = LayerSettings { clock: clock.clone(), ..Default::default() };
    Stack { store: stack(Arc::new(faulty.clone()), &settings, &meters), faulty, clock, meters }
}

async fn put(store: &dyn Store, name: &str, bytes: &[u8], replace: Replace) -> Result<StoredFacts> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), replace, ..Default::default() };
    let upload = store.write(&Key::new(name), spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await?;
    Ok(upload.publish(vec![part], LateFacts::default()).await?)
}

async fn filled(names: &[&str]) -> MemStore {
    let mem = MemStore::new();
    for name in names {
        put(&mem, name, name.as_bytes(), Replace::Anything).await.unwrap();
    }
    mem
}

#[tokio::test]
async fn what_may_pass_is_tried_again_with_growing_waits() {
    let s = over(filled(&["a"]).await, &[(Op::Stat, 1, BUSY), (Op::Stat, 2, RESET), (Op::Stat, 3, BUSY)]);
    s.store.stat(&Key::new("a")).await.unwrap();
    assert_eq!(s.clock.waits(), [50, 100, 200].map(Duration::from_millis));
    assert_eq!((s.meters.retries(), s.faulty.calls(Op::Stat)), (3, 4));
}

#[tokio::test]
async fn what_wont_change_is_not_tried_again() {
    let s = over(filled(&[]).await, &[(Op::Stat, 1, Fault::Fail(ErrorKind::Denied, Retry::Never))]);
    assert_eq!(s.store.stat(&Key::new("a")).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!((s.meters.retries(), s.faulty.calls(Op::Stat)), (0, 1));
}

#[tokio::test]
async fn ten_tries_are_enough() {
    let faults: Vec<_> = (1..=20).map(|nth| (Op::Stat, nth, BUSY)).collect();
    let s = over(filled(&["a"]).await, &faults);
    assert_eq!(s.store.stat(&Key::new("a")).await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(s.faulty.calls(Op::Stat), 10);
    let longest = s.clock.waits().into_iter().max().unwrap();
    assert_eq!(longest, Duration::from_secs(10), "half of the longest wait of 20 s");
}

#[tokio::test]
async fn a_store_that_never_answered_gets_three_tries() {
    let gone = Fault::Fail(ErrorKind::Unreachable, Retry::Backoff);
    let faults: Vec<_> = (1..=20).map(|nth| (Op::Stat, nth, gone.clone())).collect();
    let s = over(filled(&["a"]).await, &faults);
    assert_eq!(s.store.stat(&Key::new("a")).await.unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(s.faulty.calls(Op::Stat), 3);
    assert!(s.clock.waits().iter().sum::<Duration>() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_wait_that_the_server_names_is_kept() {
    let after = Retry::After(Duration::from_secs(7));
    let s = over(filled(&["a"]).await, &[(Op::Stat, 1, Fault::Fail(ErrorKind::Busy, after))]);
    s.store.stat(&Key::new("a")).await.unwrap();
    assert_eq!(s.clock.waits(), [Duration::from_millis(7050)]);
}

#[tokio::test]
async fn a_body_goes_on_where_it_broke() {
    let bytes = content(1, 500_000);
    let mem = MemStore::new();
    put(&mem, "f", &bytes, Replace::Anything).await.unwrap();
    let faults =
        [(Op::Read, 1, Fault::Break(100_000)), (Op::Read, 2, RESET), (Op::Read, 3, Fault::Cut(1)), (Op::Read, 4, BUSY)];
    let s = over(mem, &faults);
    let read = s.store.read(&Key::new("f"), None, None).await.unwrap();
    assert!(collect(read).await.unwrap() == bytes);
    assert_eq!(s.faulty.calls(Op::Read), 5);

    let s = over(MemStore::new(), &[(Op::Read, 1, Fault::Break(10))]);
    put(&*s.store, "f", &bytes, Replace::Anything).await.unwrap();
    let read = s.store.read(&Key::new("f"), None, Some(1000..200_000)).await.unwrap();
    assert!(collect(read).await.unwrap() == bytes[1000..200_000]);
}

#[tokio::test]
async fn a_body_never_goes_on_with_another_version() {
    let s = over(MemStore::new(), &[(Op::Read, 1, Fault::Break(100_000))]);
    put(&*s.store, "f", &content(1, 300_000), Replace::Anything).await.unwrap();
    let read = s.store.read(&Key::new("f"), None, None).await.unwrap();
    put(&*s.store, "f", &content(2, 300_000), Replace::Anything).await.unwrap();
    assert_eq!(collect(read).await.unwrap_err().kind(), ErrorKind::Changed);
}

async fn listed(store: &dyn Store, request: ListRequest) -> (Vec<String>, Vec<ErrorKind>, bool) {
    let (mut keys, mut failed, mut ended) = (Vec::new(), Vec::new(), false);
    let mut listing = store.list(request);
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => keys.extend(batch.iter().map(|e| e.key.to_string())),
            Listed::Failed { error, .. } => failed.push(error.kind()),
            Listed::Vanished(_) => {}
            Listed::End => ended = true,
        }
    }
    (keys, failed, ended)
}

#[tokio::test]
async fn a_listing_goes_on_after_its_last_key() {
    for fault in [Fault::Break(2), Fault::Cut(2)] {
        let names = ["a", "b", "c", "d", "e"];
        let s = over(filled(&names).await, &[(Op::List, 1, fault.clone()), (Op::List, 2, fault), (Op::List, 3, BUSY)]);
        assert_eq!(listed(&*s.store, ListRequest::all()).await, (names.map(String::from).into(), vec![], true));
        assert_eq!(s.faulty.calls(Op::List), 4);
    }
}

#[tokio::test]
async fn a_listing_that_keeps_failing_says_what_it_lost() {
    let faults: Vec<_> = (1..=20).map(|nth| (Op::List, nth, BUSY)).collect();
    let s = over(filled(&["a"]).await, &faults);
    assert_eq!(listed(&*s.store, ListRequest::all()).await, (vec![], vec![ErrorKind::Busy], false));
    assert_eq!(s.faulty.calls(Op::List), 10);
}

#[tokio::test]
async fn only_the_failed_items_of_a_batch_are_sent_again() {
    let fail = |items: &[usize]| Fault::FailItems(items.into(), ErrorKind::Busy, Retry::Backoff);
    let s = over(filled(&["a", "b", "c"]).await, &[(Op::Delete, 1, fail(&[0, 2])), (Op::Delete, 2, fail(&[1]))]);
    let keys = ["a", "b", "c"].map(|name| (Key::new(name), None));
    let answers = s.store.delete(keys.into()).await;
    assert!(answers.len() == 3 && answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(s.faulty.calls(Op::Delete), 3);
    assert_eq!(listed(&*s.store, ListRequest::all()).await.0, [""; 0]);
}

#[tokio::test]
async fn a_copy_sent_again_is_counted_once() {
    let fail = Fault::FailItems(vec![1], ErrorKind::Busy, Retry::Backoff);
    let s = over(filled(&["a", "bb", "ccc"]).await, &[(Op::Copy, 1, fail)]);
    let counted = Arc::new(Mutex::new(Vec::new()));
    let sink = counted.clone();
    let watch = Watch::new(move |item, bytes| sink.lock().unwrap().push((item, bytes)));
    let item = |name: &str| CopyItem {
        from: Key::new(name),
        want: None,
        size: name.len() as u64,
        to: Key::new(format!("to/{name}")),
        spec: WriteSpec::default(),
        how: CopyHow::Copy,
    };
    let from = s.store.caps().domain.clone().unwrap().place;
    let items = ["a", "bb", "ccc"].map(item).into();
    let answers = s.store.copy(CopyBatch { from, items, links: Default::default() }, watch).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let mut counted = counted.lock().unwrap().clone();
    counted.sort();
    assert_eq!(counted, [(0, 1), (1, 2), (2, 3)], "numbers are of the whole batch");
    assert_eq!(s.meters.retries(), 1);
}

#[tokio::test]
async fn a_small_write_is_published_again() {
    for fault in [BUSY, RESET, Fault::LoseAnswer(ErrorKind::Timeout, Retry::Backoff)] {
        let s = over(MemStore::new(), &[(Op::Part, 1, RESET), (Op::Publish, 1, fault), (Op::Publish, 2, BUSY)]);
        put(&*s.store, "f", b"12345", Replace::Anything).await.unwrap();
        let read = s.store.read(&Key::new("f"), None, None).await.unwrap();
        assert_eq!(collect(read).await.unwrap(), b"12345");
        assert_eq!(s.faulty.calls(Op::Publish), 3);
    }
}

#[tokio::test]
async fn a_conditional_write_whose_answer_was_lost_is_not_done_again() {
    let s = over(MemStore::new(), &[(Op::Publish, 1, Fault::LoseAnswer(ErrorKind::Timeout, Retry::Backoff))]);
    let error = put(&*s.store, "f", b"1", Replace::Absent).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "not Exists, which would be its own doing");
    let s = over(MemStore::new(), &[(Op::Publish, 1, BUSY)]);
    put(&*s.store, "f", b"1", Replace::Absent).await.unwrap();
}

#[tokio::test]
async fn a_wrong_hash_reaches_the_caller() {
    let s = over(MemStore::new(), &[(Op::Publish, 1, Fault::WrongHash)]);
    let stored = put(&*s.store, "f", b"123456789", Replace::Anything).await.unwrap();
    assert_eq!(stored.hashes.hex(haul_core::Algo::Md5).as_deref(), Some("da06186bcdc4bac77a0ae7e0e49db2f4"));
}

/// Bytes between a disk and another store count once, at the other store: reading a file to send it is no download.
#[tokio::test]
async fn bytes_of_a_disk_count_only_between_disks() {
    let temp = tempfile::tempdir().unwrap();
    let (clock, meters) = (FakeClock::new(0.0), Arc::new(Meters::default()));
    let settings =
        |rate: &Arc<Rate>| LayerSettings { clock: clock.clone(), rate: Some(rate.clone()), ..Default::default() };
    let disk = |rate| stack(haul_testkit::disk::open(temp.path(), Links::Skip), &settings(rate), &meters);
    let both = async |store: &Arc<dyn Store>| {
        let before = clock.waits().len();
        put(&**store, "f", &content(1, 200_000), Replace::Anything).await.unwrap();
        collect(store.read(&Key::new("f"), None, None).await.unwrap()).await.unwrap();
        clock.waits()[before..].iter().sum::<Duration>().as_secs_f64().round()
    };
    let rate = Arc::new(Rate::new(Some(100_000), Some(100_000)));
    assert_eq!(both(&disk(&rate)).await, 4.0, "two seconds each way");
    let disk = disk(&rate);
    let other = stack(Arc::new(MemStore::new()), &settings(&rate), &meters);
    assert_eq!((both(&disk).await, both(&other).await), (0.0, 4.0));
}

#[tokio::test]
async fn bytes_are_slowed_down_to_the_limit() {
    let (clock, meters) = (FakeClock::new(0.0), Arc::new(Meters::default()));
    let rate = Arc::new(Rate::new(Some(1000), Some(100_000)));
    let settings = LayerSettings { clock: clock.clone(), rate: Some(rate.clone()), ..Default::default() };
    let store = stack(Arc::new(MemStore::new()), &settings, &meters);
    put(&*store, "f", &content(1, 200_000), Replace::Anything).await.unwrap();
    let sent: Duration = clock.waits().iter().sum();
    assert_eq!((sent.as_secs(), clock.waits().len()), (201, 1), "half a percent is kept back");
    collect(store.read(&Key::new("f"), None, None).await.unwrap()).await.unwrap();
    let waited: Duration = clock.waits()[1..].iter().sum();
    // The fake clock moves on exactly as told, so the pieces add up to the whole, but for rounding.
    assert!(waited.abs_diff(Duration::from_secs(2)) < Duration::from_millis(20), "{waited:?}");
    rate.set(None, None);
    put(&*store, "f", &content(1, 200_000), Replace::Anything).await.unwrap();
    assert!(waited.abs_diff(clock.waits()[1..].iter().sum()) < Duration::from_millis(1));
}
