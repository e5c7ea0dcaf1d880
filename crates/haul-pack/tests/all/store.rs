//! Packs on other stores: what is stored where, what plain tar makes of it, and what becomes of crashes and damage.

use bytes::Bytes;
use futures::{StreamExt, future::join_all};
use haul_core::{Entry, ErrorKind, Key, Listed, Meta, Mtime, Result, Retry};
use haul_mem::MemStore;
use haul_pack::{PackStore, Settings};
use haul_store::{Cleanup, LateFacts, Links, ListRequest, Payload, Store, StoredFacts, UnfinishedWrites, WriteSpec};
use haul_testkit::{
    conformance,
    conformance::collect,
    disk,
    faults::{Fault, Faulty, Op},
};
use std::{
    collections::BTreeMap,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Quick to send, so that tests that write one file after another don't wait.
fn quick() -> Settings {
    let short = Duration::from_millis(1);
    Settings { quiet: short, stalled: Duration::from_millis(100), ..Settings::default() }
}

/// What is written at once is one pack, also where the machine lets the writers wait for each other.
fn together(inner: &Arc<dyn Store>) -> Arc<dyn Store> {
    let long = Duration::from_millis(500);
    Arc::new(PackStore::new(inner.clone(), b"", Settings { quiet: long, stalled: long, ..Settings::default() }))
}

/// Waits until the wrapped store holds so many files that are no part of a pack; a minute at most.
async fn plain_files(inner: &Arc<dyn Store>, wanted: usize) -> bool {
    for _ in 0..6_000 {
        if names(inner).await.iter().filter(|name| name.starts_with("files/")).count() == wanted {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

fn on(inner: &Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(PackStore::new(inner.clone(), b"", quick()))
}

fn mem() -> Arc<dyn Store> {
    Arc::new(MemStore::new())
}

fn local(path: &Path) -> Arc<dyn Store> {
    disk::open(path, Links::Skip)
}

async fn put_with(store: &Arc<dyn Store>, key: &Key, bytes: &[u8], spec: WriteSpec) -> Result<StoredFacts> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..spec };
    let upload = store.write(key, spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await?;
    Ok(upload.publish(vec![part], LateFacts::default()).await?)
}

async fn put(store: &Arc<dyn Store>, name: &str, bytes: &[u8]) -> StoredFacts {
    let spec = WriteSpec { mtime: Some(Mtime::new(1_600_000_000, 123_456_789)), ..Default::default() };
    put_with(store, &Key::new(name), bytes, spec).await.unwrap_or_else(|e| panic!("{name}: {e:?}"))
}

async fn put_all(store: &Arc<dyn Store>, files: &[(&str, &[u8])]) {
    join_all(files.iter().map(|(name, bytes)| put(store, name, bytes))).await;
}

async fn get(store: &Arc<dyn Store>, name: &str) -> Result<Vec<u8>> {
    collect(store.read(&Key::new(name), None, None).await?).await
}

async fn list(store: &Arc<dyn Store>) -> Result<Vec<Entry>> {
    let mut listing = store.list(ListRequest::all());
    let mut entries = Vec::new();
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(batch) => entries.extend(batch),
            Listed::Failed { error, .. } => return Err(error),
            Listed::Vanished(_) => {}
            Listed::End => return Ok(entries),
        }
    }
    panic!("the listing was cut off")
}

async fn names(store: &Arc<dyn Store>) -> Vec<String> {
    let entries = list(store).await.expect("listed");
    entries.iter().filter(|e| !e.is_dir()).map(|e| e.key.to_string()).collect()
}

/// Keys of the wrapped store that end so.
async fn ending(inner: &Arc<dyn Store>, end: &str) -> Vec<String> {
    names(inner).await.into_iter().filter(|name| name.ends_with(end)).collect()
}

async fn delete(store: &Arc<dyn Store>, key: &str) -> Result<()> {
    store.delete(vec![(Key::new(key), None)]).await.remove(0)
}

#[tokio::test]
async fn a_version_is_not_deleted_when_another_writer_has_replaced_it() {
    let inner = mem();
    let (here, there) = (on(&inner), on(&inner));
    let copied = put(&here, "a", b"old").await.version;
    put(&there, "a", b"newer").await;
    let answer = here.delete(vec![(Key::new("a"), copied)]).await.remove(0);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Changed);
    assert_eq!(get(&on(&inner), "a").await.unwrap(), b"newer");
}

/// The cases that packs skip, on any store: no directories, no copies inside the store, no conditions, and a write that
/// was cut short begins again.
const SKIPS: [&str; 12] = [
    "conditions_hold",
    "a_resumed_write_publishes_the_whole",
    "only_parts_that_are_there_are_believed",
    "a_write_that_ended_is_gone",
    "a_write_given_up_later_leaves_nothing",
    "another_writes_token_is_refused",
    "what_was_sent_is_read_back",
    "a_full_folder_is_not_deleted",
    "folders_are_made_once",
    "copies_stay_inside",
    "copies_answer_for_each",
    "it_hashes_what_it_holds",
];

fn skipped(summary: &conformance::Summary) -> Vec<&'static str> {
    println!("{summary}");
    summary.skipped.iter().map(|(name, _)| *name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packs_in_memory_keep_the_contract() {
    let summary = conformance::run(|| async { on(&mem()) }).await;
    assert_eq!(skipped(&summary), SKIPS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packs_on_a_disk_keep_the_contract() {
    let (temp, number) = (tempfile::tempdir().expect("a folder"), AtomicUsize::new(0));
    let make = || async {
        let path = temp.path().join(format!("root{}", number.fetch_add(1, Ordering::Relaxed)));
        on(&local(&path))
    };
    let summary = conformance::run(make).await;
    assert_eq!(skipped(&summary), SKIPS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_all_large_keep_the_contract() {
    let settings = Settings { small: 0, ..quick() };
    let summary = conformance::run(|| async { Arc::new(PackStore::new(mem(), b"", settings)) as Arc<dyn Store> }).await;
    assert_eq!(skipped(&summary), SKIPS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_packs_is_a_part_of_them() {
    let inner = mem();
    put_all(&on(&inner), &[("a", b"1"), ("d/e/f", b"2"), ("d/g", b"3"), ("d0", b"4")]).await;
    let folder: Arc<dyn Store> = Arc::new(PackStore::new(inner.clone(), b"/d/", quick()));
    assert_eq!(names(&folder).await, ["e/f", "g"]);
    assert_eq!(get(&folder, "e/f").await.expect("read"), b"2");
    put(&folder, "new", b"5").await;
    delete(&folder, "g").await.expect("deleted");
    assert_eq!(names(&on(&inner)).await, ["a", "d/e/f", "d/new", "d0"]);
    assert_eq!(folder.locator(), ":memory: (packed) d");
    let none: Arc<dyn Store> = Arc::new(PackStore::new(inner.clone(), b"none", quick()));
    assert_eq!(none.stat(&Key::new("")).await.expect_err("nothing is in it").kind(), ErrorKind::DirNotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_written_together_are_one_pack_that_tar_reads() {
    let temp = tempfile::tempdir().expect("a folder");
    let inner = local(temp.path());
    let store = together(&inner);
    let long = format!("{}/f", "long-".repeat(40));
    let files: Vec<(String, Vec<u8>)> =
        [("a/b.txt", 5), ("empty", 0), ("\u{e9} \u{1F69A}", 700), (&long, 512), ("big", 200_000)]
            .into_iter()
            .map(|(name, size)| (name.to_string(), haul_testkit::tree::content(size, size)))
            .collect();
    join_all(files.iter().map(|(name, bytes)| put(&store, name, bytes))).await;
    let packs = ending(&inner, ".tar").await;
    assert_eq!(packs.len(), 1, "{packs:?}");
    assert_eq!(names(&inner).await.len(), 2, "the pack and its index");
    let pack = temp.path().join(&packs[0]);
    let tar = |args: &[&str]| {
        let mut command = Command::new("tar");
        command.args(args).arg(&pack).env("LC_ALL", "C.UTF-8").env("TZ", "UTC").current_dir(temp.path());
        let output = command.output().expect("tar runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let table = tar(&["--full-time", "-tvf"]);
    let line = table.lines().find(|l| l.ends_with(" a/b.txt")).unwrap_or_else(|| panic!("{table}"));
    assert!(line.contains(" 5 2020-09-13 12:26:40 "), "{line}");
    std::fs::create_dir(temp.path().join("out")).expect("made");
    tar(&["-C", "out", "-xf"]);
    for (name, bytes) in &files {
        assert!(std::fs::read(temp.path().join("out").join(name)).expect("extracted") == *bytes, "{name}");
        assert!(get(&store, name).await.expect("read") == *bytes, "{name}");
        // One that knows nothing yet reads the same.
        assert!(get(&on(&inner), name).await.expect("read") == *bytes, "{name}");
    }
    let read = store.read(&Key::new("big"), None, Some(70_000..70_010)).await.expect("a range");
    assert_eq!(collect(read).await.expect("bytes"), files[4].1[70_000..70_010]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pack_is_sent_when_it_is_large_enough() {
    let inner = mem();
    let slow = Duration::from_secs(30);
    let settings = Settings { size: 110_000, files: 50, quiet: slow, stalled: slow, patience: slow, ..quick() };
    let store: Arc<dyn Store> = Arc::new(PackStore::new(inner.clone(), b"", settings));
    let write = |size: usize, count: usize| {
        let store = &store;
        async move {
            let bytes = vec![7; size];
            let keys: Vec<Key> = (0..count).map(|n| Key::new(format!("{size}/{n}"))).collect();
            let puts = keys.iter().map(|key| put_with(store, key, &bytes, WriteSpec::default()));
            for stored in join_all(puts).await {
                stored.expect("stored");
            }
        }
    };
    write(1, 100).await;
    assert_eq!(ending(&inner, ".tar").await.len(), 2, "by number");
    write(10_000, 20).await;
    assert_eq!(ending(&inner, ".tar").await.len(), 4, "by size");
    // Larger than one part of the wrapped store.
    let settings = Settings { size: 20 << 20, ..settings };
    let store: Arc<dyn Store> = Arc::new(PackStore::new(inner.clone(), b"", settings));
    let keys: Vec<Key> = (0..20).map(|n| Key::new(format!("m{n}"))).collect();
    let bytes: Vec<Vec<u8>> = (0..20).map(|n| haul_testkit::tree::content(n, 1 << 20)).collect();
    join_all(keys.iter().zip(&bytes).map(|(key, bytes)| put_with(&store, key, bytes, WriteSpec::default()))).await;
    for (key, bytes) in keys.iter().zip(&bytes) {
        assert!(get(&on(&inner), &key.to_string()).await.expect("read") == *bytes, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_small_becomes_large_and_small_again() {
    let inner = mem();
    let store: Arc<dyn Store> = Arc::new(PackStore::new(inner.clone(), b"", Settings { small: 10, ..quick() }));
    for (round, bytes) in
        [&b"small"[..], b"larger than ten bytes", b"again larger than ten", b"tiny"].iter().enumerate()
    {
        put(&store, "d/f", bytes).await;
        for store in [&store, &on(&inner)] {
            assert_eq!(get(store, "d/f").await.expect("read"), *bytes, "round {round}");
            assert_eq!(list(store).await.expect("listed")[0].size, bytes.len() as u64);
        }
        // Replaced files are deleted after the answer.
        assert!(plain_files(&inner, usize::from(bytes.len() > 10)).await, "round {round}");
    }
    put(&store, "d/f", b"larger than ten bytes").await;
    delete(&store, "d/f").await.expect("deleted");
    assert!(names(&store).await.is_empty());
    assert!(plain_files(&inner, 0).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_before_the_index_leaves_what_cleanup_finds() {
    let inner = mem();
    put_all(&on(&inner), &[("a", b"1"), ("b", b"2")]).await;
    // As if the run had ended between the two: an old pack without an index.
    let orphan = "packs/0000000000000001-00000000.tar";
    put(&inner, orphan, b"whatever").await;
    let store = on(&inner);
    assert_eq!(names(&store).await, ["a", "b"]);
    let day = Duration::from_secs(24 * 3600);
    for dry_run in [true, false] {
        let what = Cleanup { older_than: day, dry_run, below: Key::new("") };
        let UnfinishedWrites { found, .. } = store.admin().unwrap().cleanup(what).await.expect("done");
        assert_eq!(found.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>(), [orphan]);
    }
    assert!(!names(&inner).await.contains(&orphan.to_string()));
    assert_eq!(get(&on(&inner), "b").await.expect("read"), b"2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanup_makes_one_index_and_drops_what_is_dead() {
    let inner = mem();
    let store = together(&inner);
    put_all(&store, &[("a", b"old"), ("b", b"2")]).await;
    put_all(&store, &[("c", b"3")]).await;
    put_all(&store, &[("a", b"new")]).await;
    delete(&store, "c").await.expect("deleted");
    assert_eq!((ending(&inner, ".tar").await.len(), ending(&inner, ".idx").await.len()), (3, 4));
    let before = on(&inner);
    list(&before).await.expect("listed");
    let tidy = Cleanup { older_than: Duration::ZERO, dry_run: false, below: Key::new("") };
    on(&inner).admin().unwrap().cleanup(tidy.clone()).await.expect("done");
    assert_eq!((ending(&inner, ".tar").await.len(), ending(&inner, ".idx").await.len()), (2, 1));
    for store in [&on(&inner), &before] {
        assert_eq!(names(store).await, ["a", "b"]);
        assert_eq!(get(store, "a").await.expect("read"), b"new");
    }
    // Writers that knew the old indexes go on, and nothing seems lost.
    put_all(&before, &[("d", b"4")]).await;
    put_all(&store, &[("e", b"5")]).await;
    assert_eq!(names(&on(&inner)).await, ["a", "b", "d", "e"]);
    on(&inner).admin().unwrap().cleanup(tidy).await.expect("done");
    assert_eq!(names(&on(&inner)).await, ["a", "b", "d", "e"]);
    assert_eq!(ending(&inner, ".idx").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_never_overwrite_each_other() {
    let inner = mem();
    let (one, two) = (on(&inner), on(&inner));
    let write = |store: Arc<dyn Store>, who: &'static str| async move {
        for round in 0..5 {
            let keys: Vec<String> = (0..20).map(|n| format!("{who}/{round}/{n}")).collect();
            join_all(keys.iter().map(|key| put(&store, key, key.as_bytes()))).await;
        }
    };
    tokio::join!(tokio::spawn(write(one.clone(), "one")), tokio::spawn(write(two.clone(), "two"))).0.expect("written");
    for store in [one, two, on(&inner)] {
        let all = names(&store).await;
        assert_eq!(all.len(), 200);
        for name in all.iter().step_by(17) {
            assert_eq!(get(&store, name).await.expect("read"), name.as_bytes());
        }
    }
}

/// What is stored in `from` and not in `to`, as if it had been under way until now.
async fn arrive(from: &Arc<dyn Store>, to: &Arc<dyn Store>) {
    let there = names(to).await;
    for name in names(from).await.into_iter().filter(|name| !there.contains(name)) {
        put(to, &name, &get(from, &name).await.expect("read")).await;
    }
}

/// A store that holds the same, for a writer whose requests arrive late.
async fn apart(inner: &Arc<dyn Store>) -> Arc<dyn Store> {
    let other = mem();
    arrive(inner, &other).await;
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_known_facts_hides_no_late_version() {
    for (what, bytes) in [("packed", &b"tiny"[..]), ("by itself", b"larger than ten bytes")] {
        for deletes in [false, true] {
            let inner = mem();
            let on = |inner: &Arc<dyn Store>| -> Arc<dyn Store> {
                Arc::new(PackStore::new(inner.clone(), b"", Settings { small: 10, ..quick() }))
            };
            let old = put(&on(&inner), "k", b"an older version").await.version;
            // The other's pack has its id before ours, and arrives after it.
            let slow = apart(&inner).await;
            put(&on(&slow), "k", bytes).await;
            let here = on(&inner);
            match deletes {
                true => here.delete(vec![(Key::new("k"), old)]).await.remove(0).expect("deleted"),
                false => here.set_meta(&Key::new("k"), Some(Mtime(5)), None).await.expect("touched"),
            }
            arrive(&slow, &inner).await;
            for store in [&on(&inner), &here] {
                assert_eq!(list(store).await.expect("listed")[0].size, bytes.len() as u64, "{what}");
                assert_eq!(get(store, "k").await.expect("read"), bytes, "{what}, deletes: {deletes}");
            }
            on(&inner).admin().unwrap().cleanup(tidy(Duration::ZERO)).await.expect("tidied");
            assert_eq!(get(&on(&inner), "k").await.expect("read"), bytes, "{what}, deletes: {deletes}, tidied");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_replaces_counts_more_than_what_it_replaces() {
    let inner = mem();
    let settings = Settings { small: 10, quiet: Duration::from_millis(200), ..quick() };
    let on = || Arc::new(PackStore::new(inner.clone(), b"", settings)) as Arc<dyn Store>;
    let here = on();
    put_all(&here, &[("k", b"first of all, by itself"), ("x", b"x")]).await;
    // Another writer's clock is years ahead.
    put(&inner, "packs/7000000000000000-00000000.tar", b"").await;
    put(&on(), "k", b"then, by itself too").await;
    // A pack that looks first, and so learns of what the other wrote.
    let touch = here.set_meta(&Key::new("x"), Some(Mtime(5)), None);
    tokio::join!(put(&here, "k", b"last"), async { touch.await.expect("touched") });
    assert_eq!(get(&on(), "k").await.expect("read"), b"last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_any_writers_last_index_is_noticed() {
    let inner = mem();
    put_all(&on(&inner), &[("first", b"0")]).await;
    let (one, two) = (on(&inner), on(&inner));
    assert_eq!((names(&one).await.len(), names(&two).await.len()), (1, 1), "neither knows of what the other writes");
    put_all(&one, &[("one", b"1")]).await;
    put_all(&two, &[("two", b"2")]).await;
    put_all(&on(&inner), &[("last", b"3")]).await;
    let indexes = ending(&inner, ".idx").await;
    for index in &indexes[..3] {
        let some = apart(&inner).await;
        delete(&some, index).await.expect("deleted");
        let error = list(&on(&some)).await.expect_err("an index is lost");
        assert_eq!((error.kind(), error.key().map(Key::to_string)), (ErrorKind::Corrupt, Some(index.clone())));
    }
    // Also of the one that house-keeping made of all.
    on(&inner).admin().unwrap().cleanup(tidy(Duration::ZERO)).await.expect("tidied");
    let merged = ending(&inner, ".idx").await.remove(0);
    put_all(&on(&inner), &[("more", b"4")]).await;
    delete(&inner, &merged).await.expect("deleted");
    assert_eq!(list(&on(&inner)).await.expect_err("nearly all is lost").kind(), ErrorKind::Corrupt);
}

/// House-keeping of all that is so old.
fn tidy(older_than: Duration) -> Cleanup {
    Cleanup { older_than, dry_run: false, below: Key::new("") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stopped_cleanup_left_does_not_count() {
    let inner = mem();
    put_all(&on(&inner), &[("a", b"1"), ("b", b"2")]).await;
    delete(&on(&inner), "a").await.expect("deleted");
    let before = apart(&inner).await;
    on(&inner).admin().unwrap().cleanup(tidy(Duration::ZERO)).await.expect("tidied");
    // As if it had been stopped before it removed the older of the two.
    let first = ending(&before, ".idx").await.remove(0);
    put(&inner, &first, &get(&before, &first).await.expect("read")).await;
    let store = on(&inner);
    assert_eq!(names(&store).await, ["b"], "what was deleted stays deleted");
    // It was read once, and isn't again.
    spoil(&inner, &first, 20).await;
    assert_eq!(names(&store).await, ["b"]);
    spoil(&inner, &first, 20).await;
    on(&inner).admin().unwrap().cleanup(tidy(Duration::ZERO)).await.expect("tidied");
    assert_eq!(ending(&inner, ".idx").await.len(), 1);
    assert_eq!(names(&on(&inner)).await, ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_removed_before_it_is_named_is_told() {
    let inner = mem();
    // Two make a pack, and nothing is sent before.
    let wait = Duration::from_secs(3600);
    let settings = Settings { small: 10, files: 2, quiet: wait, stalled: wait, patience: wait, ..Settings::default() };
    let settings = Settings { late: Duration::ZERO, ..settings };
    let store: Arc<dyn Store> = Arc::new(PackStore::new(inner.clone(), b"", settings));
    let (key, small) = (Key::new("k"), Key::new("small"));
    let published = put_with(&store, &key, b"larger than ten bytes", WriteSpec::default());
    let removed = async {
        assert!(plain_files(&inner, 1).await);
        let file = names(&inner).await.remove(0);
        delete(&inner, &file).await.expect("deleted");
        let sent = put_with(&store, &small, b"tiny", WriteSpec::default()).await;
        assert_eq!(sent.expect_err("its pack isn't named").kind(), ErrorKind::Changed);
        file
    };
    let (published, file) = tokio::join!(published, removed);
    let error = published.expect_err("its bytes are gone");
    assert_eq!((error.kind(), error.key().map(Key::to_string)), (ErrorKind::Changed, Some(file)));
    assert!(names(&on(&inner)).await.is_empty(), "and it isn't shown as if it were there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_is_late_is_sent_anew() {
    let inner = mem();
    put(&on(&inner), "k", b"old").await;
    let before = ending(&inner, ".idx").await;
    let late: Arc<dyn Store> =
        Arc::new(PackStore::new(inner.clone(), b"", Settings { late: Duration::ZERO, ..quick() }));
    let error = put_with(&late, &Key::new("k"), b"new", WriteSpec::default()).await.expect_err("it may be hidden");
    assert_eq!(error.kind(), ErrorKind::Changed);
    let index = error.key().expect("named").to_string();
    assert_eq!(
        error.to_string(),
        format!(
            "{index}: write: the index took so long that others may have tidied up meanwhile: it must be sent anew"
        )
    );
    assert_eq!(ending(&inner, ".idx").await, before);
    assert_eq!(get(&on(&inner), "k").await.expect("read"), b"old");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_index_may_name_is_kept_when_its_answer_is_lost() {
    let inner = mem();
    // The file's own publish is the first, its index's the second.
    let lost = Fault::LoseAnswer(ErrorKind::Io, Retry::Never);
    let faulty: Arc<dyn Store> = Arc::new(Faulty::new(inner.clone()).on(Op::Publish, 2, lost));
    let store: Arc<dyn Store> = Arc::new(PackStore::new(faulty, b"", Settings { small: 10, ..quick() }));
    let bytes = b"larger than ten bytes";
    let upload = store.write(&Key::new("k"), WriteSpec::default()).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(bytes))).await.expect("sent");
    let Err(failed) = upload.publish(vec![part], LateFacts::default()).await else { panic!("the answer was lost") };
    failed.upload.abort().await.expect("given up");
    assert_eq!(get(&on(&inner), "k").await.expect("read"), bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_one_listing_lacks_is_not_lost() {
    let inner = mem();
    put_all(&on(&inner), &[("a", b"1")]).await;
    put_all(&on(&inner), &[("b", b"2")]).await;
    let first = Key::new(ending(&inner, ".idx").await.remove(0));
    let faulty = Faulty::new(inner.clone()).on(Op::List, 1, Fault::Omit(first));
    assert_eq!(names(&on(&(Arc::new(faulty.clone()) as Arc<dyn Store>))).await, ["a", "b"]);
    assert_eq!((faulty.calls(Op::List), faulty.calls(Op::Read)), (2, 2), "what was read isn't read again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_lately_is_kept_whatever_the_writers_clock() {
    let inner = mem();
    put_all(&on(&inner), &[("a", b"1")]).await;
    let key = Key::new("packs/0000000000000001-00000000.tar");
    put_with(&inner, &key, b"under way", WriteSpec::default()).await.expect("stored");
    on(&inner).admin().unwrap().cleanup(tidy(Duration::from_secs(24 * 3600))).await.expect("tidied");
    assert!(names(&inner).await.contains(&key.to_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_is_kept_whatever_the_clock_of_who_tidies_up() {
    let inner = mem();
    // The clock here is three days ahead of the store's and of that of the one who writes.
    let three = Duration::from_secs(3 * 24 * 3600);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970") - three;
    let id = format!("{:016x}-00000000", time.as_nanos());
    let under_way = [format!("files/{id}/k"), format!("packs/{id}.tar")];
    for key in &under_way {
        put_with(&inner, &Key::new(key.as_str()), b"under way", WriteSpec::default()).await.expect("stored");
    }
    let there: Arc<dyn Store> = Arc::new(Faulty::new(inner.clone()).behind(three));
    on(&there).admin().unwrap().cleanup(tidy(Duration::from_secs(24 * 3600))).await.expect("tidied");
    assert_eq!(names(&inner).await, under_way);
}

/// Overwrites a key of a memory store with other bytes.
async fn spoil(inner: &Arc<dyn Store>, key: &str, at: usize) {
    let mut bytes = get(inner, key).await.expect("read");
    bytes[at] ^= 0x20;
    put(inner, key, &bytes).await;
}

fn rescue(inner: &Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(PackStore::new(inner.clone(), b"", Settings { rebuild: true, ..quick() }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_index_is_an_error_and_can_be_done_without() {
    let inner = mem();
    let meta = Some(Box::new(Meta::from([("colour".into(), "red".into())])));
    let mtime = Some(Mtime::new(-5, 250_000_000));
    let spec = WriteSpec { meta: meta.clone(), mtime, ..Default::default() };
    put_with(&on(&inner), &Key::new("x/y"), b"content", spec).await.expect("stored");
    let index = ending(&inner, ".idx").await.remove(0);
    spoil(&inner, &index, 60).await;
    let error = list(&on(&inner)).await.expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(
        error.to_string(),
        format!(
            "{index}: read: the index is damaged: its checksum is wrong; the option rebuild of a pack remote reads the packs without it"
        )
    );
    let kinds = [
        on(&inner).stat(&Key::new("x/y")).await.map(drop),
        get(&on(&inner), "x/y").await.map(drop),
        put_with(&on(&inner), &Key::new("z"), b"1", WriteSpec::default()).await.map(drop),
    ];
    for result in kinds {
        assert_eq!(result.expect_err("damaged").kind(), ErrorKind::Corrupt);
    }
    for lost in [false, true] {
        if lost {
            delete(&inner, &index).await.expect("deleted");
            assert!(names(&on(&inner)).await.is_empty());
        }
        let store = rescue(&inner);
        let entry = store.stat(&Key::new("x/y")).await.expect("there");
        assert_eq!((entry.mtime, entry.meta), (mtime, meta.clone()));
        assert_eq!(get(&store, "x/y").await.expect("read"), b"content");
        let error = put_with(&store, &Key::new("z"), b"1", WriteSpec::default()).await.expect_err("for reading only");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_index_that_others_knew_is_an_error() {
    let inner = mem();
    put_all(&on(&inner), &[("a", b"1")]).await;
    put_all(&on(&inner), &[("b", b"2")]).await;
    let first = ending(&inner, ".idx").await.remove(0);
    delete(&inner, &first).await.expect("deleted");
    let error = list(&on(&inner)).await.expect_err("what was in it can't be told from what was deleted");
    assert_eq!((error.kind(), error.key().map(Key::to_string)), (ErrorKind::Corrupt, Some(first)));
    assert_eq!(names(&rescue(&inner)).await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_pack_is_noticed_by_who_reads_it() {
    let inner = mem();
    put_all(&on(&inner), &[("a", b"content of a")]).await;
    let pack = ending(&inner, ".tar").await.remove(0);
    let at = get(&inner, &pack).await.expect("read").windows(7).position(|w| w == b"content").expect("in it");
    spoil(&inner, &pack, at).await;
    let error = get(&on(&inner), "a").await.expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.to_string(), "a: read: the pack holds something else than its index says: it is damaged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_and_deletions_cost_no_new_bytes() {
    let inner = mem();
    let store = together(&inner);
    put_all(&store, &[("a", b"1"), ("b", b"2"), ("c", b"3")]).await;
    store.set_meta(&Key::new("a"), Some(Mtime(5)), None).await.expect("set");
    assert!(store.delete(vec![(Key::new("b"), None), (Key::new("none"), None)]).await.iter().all(Result::is_ok));
    assert_eq!(ending(&inner, ".tar").await.len(), 1);
    let found: BTreeMap<String, Option<Mtime>> =
        list(&on(&inner)).await.expect("listed").into_iter().map(|e| (e.key.to_string(), e.mtime)).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(found["a"], Some(Mtime(5)));
    assert_eq!(get(&on(&inner), "a").await.expect("read"), b"1");
}
