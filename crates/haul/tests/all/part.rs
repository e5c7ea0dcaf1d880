//! Jobs over a part of their keys: runs over ranges that touch do together what one run does, and nothing outside a part is touched.

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use haul::{
    Cancel, Cx,
    part::{MayDelete, PartReport, RunControl, RunPosition},
    run_part,
};
use haul_core::{
    Error, ErrorKind, Key, Mtime,
    event::{Event, Sink},
    filter::Filter,
    job::{Job, Verb},
    part::{KeyRange, Part},
};
use haul_mem::MemStore;
use haul_store::{LateFacts, Links, ListRequest, Meters, Payload, Store, WriteSpec};
use haul_testkit::disk;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

struct On<F>(F);

impl<F: Fn(&Event) + Send + Sync> Sink for On<F> {
    fn emit(&self, event: &Event) {
        (self.0)(event);
    }
}

fn memory(page: Option<usize>) -> Arc<dyn Store> {
    Arc::new(MemStore::new().with_caps(|caps| (caps.domain, caps.page) = (None, page)))
}

async fn put(store: &Arc<dyn Store>, key: &str, text: &'static str) {
    let spec = WriteSpec { size: Some(text.len() as u64), mtime: Some(Mtime::new(9, 0)), ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(text.as_bytes()))).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
}

async fn tree(store: &Arc<dyn Store>) -> BTreeMap<String, u64> {
    let mut listing = store.list(ListRequest::all());
    let mut all = BTreeMap::new();
    while let Some(step) = listing.next().await {
        if let haul_core::Listed::Batch(entries) = step {
            all.extend(entries.iter().map(|e| (e.key.to_string(), e.size)));
        }
    }
    all
}

/// The surroundings of a job between two stores.
pub fn cx(src: &Arc<dyn Store>, dst: &Arc<dyn Store>, sink: Arc<dyn Sink>) -> Cx {
    Cx {
        src: src.clone(),
        dst: dst.clone(),
        backup: None,
        compare_dest: vec![],
        copy_dest: vec![],
        filter: Arc::new(Filter::default()),
        sink,
        meters: Arc::new(Meters::default()),
        cancel: Cancel::default(),
        confirm: None,
        journal: None,
        known: haul::index::EarlierKnowledge::default(),
    }
}

fn silent() -> Arc<dyn Sink> {
    Arc::new(On(|_: &Event| ()))
}

fn sync(part: Part) -> Job {
    Job::new(Verb::Sync).with(|job| (job.listing.part, job.deletes.allow_empty_source) = (part, true))
}

fn ok(done: &PartReport) {
    assert!(done.report.is_ok(), "{:?}", done.report.errors);
}

#[tokio::test]
async fn ranges_do_together_what_one_run_does_and_nothing_outside_their_own() {
    for page in [None, Some(3)] {
        let (src, dst) = (memory(page), memory(page));
        for key in ["a", "a/1", "a/2", "b/1", "b/2", "c", "e/1", "e/2", "e/3", "e/4", "z"] {
            put(&src, key, "new").await;
        }
        for key in ["a/0", "a/2", "b/x", "c0", "d/x", "e/2", "e/9", "zz"] {
            put(&dst, key, "older").await;
        }
        let whole = KeyRange::default();
        let cuts: Vec<Key> = ["a/1", "b/", "c0", "e/2"].map(Key::new).into();
        let mut before = tree(&dst).await;
        for range in whole.pieces(&cuts) {
            let done =
                run_part(sync(Part::Range(range.clone())), cx(&src, &dst, silent()), RunControl::default()).await;
            ok(&done);
            assert_eq!(done.reached, RunPosition::End);
            let after = tree(&dst).await;
            let outside = |all: &BTreeMap<String, u64>| {
                all.iter()
                    .filter(|(key, _)| !range.holds(&Key::new(key)))
                    .map(|(k, s)| (k.clone(), *s))
                    .collect::<Vec<_>>()
            };
            assert_eq!(outside(&before), outside(&after), "{range:?}");
            before = after;
        }
        assert_eq!(tree(&dst).await, tree(&src).await);
    }
}

#[tokio::test]
async fn a_run_is_paused_at_a_key_and_the_next_one_goes_on_there() {
    let (src, dst) = (memory(None), memory(None));
    let names: Vec<String> = (0..200).map(|n| format!("d{}/{n:03}", n / 40)).collect();
    for name in &names {
        put(&src, name, "text").await;
        put(&dst, &format!("{name}-extra"), "extra").await;
    }
    let (mut range, mut runs, mut transfers) = (KeyRange::default(), 0, 0);
    loop {
        let reins = RunControl::default();
        let (pause, seen) = (reins.pause.clone(), Mutex::new(0));
        let sink = On(move |event: &Event| {
            if matches!(event, Event::Decided { .. }) {
                let mut seen = seen.lock().unwrap();
                *seen += 1;
                if *seen == 60 {
                    pause.cancel();
                }
            }
        });
        let done = run_part(sync(Part::Range(range.clone())), cx(&src, &dst, Arc::new(sink)), reins).await;
        ok(&done);
        (runs, transfers) = (runs + 1, transfers + done.report.totals.transfers);
        match done.reached {
            RunPosition::Key(key) => {
                let there = tree(&dst).await;
                let due = names.iter().filter(|name| Key::new(name) <= key).count();
                assert!(names[..due].iter().all(|name| there.contains_key(name)), "all up to {key} is settled");
                assert!(there.keys().all(|name| Key::new(name) > key || !name.ends_with("-extra")));
                range.after = Some(key);
            }
            RunPosition::End => break,
            RunPosition::Unknown => panic!("{:?}", done.report),
        }
    }
    assert!(runs > 2, "{runs}");
    assert_eq!((transfers, tree(&dst).await), (200, tree(&src).await));
}

struct No;

impl MayDelete for No {
    fn ask(&self) -> BoxFuture<'_, Result<(), Error>> {
        std::future::ready(Err(Error::new(ErrorKind::Cancelled, "delete", "the lease is lost"))).boxed()
    }
}

#[tokio::test]
async fn nothing_is_deleted_once_it_may_not_be() {
    let (src, dst) = (memory(None), memory(None));
    put(&src, "a", "text").await;
    put(&dst, "b", "text").await;
    let done = run_part(sync(Part::All), cx(&src, &dst, silent()), RunControl::new(Some(Arc::new(No)))).await;
    assert_eq!((done.report.error_count, done.report.totals.deletes), (1, 0));
    assert_eq!(tree(&dst).await.len(), 2);
}

#[tokio::test]
async fn no_consent_keeps_a_directory_where_a_file_is_to_be_written() {
    let lab = tempfile::tempdir().unwrap();
    let at = |path: &str| lab.path().join(path);
    file(&at("src/name"), 1_000_000);
    file(&at("dst/name/of a directory"), 2_000_000);
    let (src, dst) = (disk::open(&at("src"), Links::Skip), disk::open(&at("dst"), Links::Skip));
    let done = run_part(sync(Part::All), cx(&src, &dst, silent()), RunControl::new(Some(Arc::new(No)))).await;
    assert!(done.report.error_count > 0, "{:?}", done.report);
    assert!(at("dst/name/of a directory").is_file());
}

fn file(path: &Path, secs: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "text").unwrap();
    for path in [path, path.parent().unwrap()] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
}

#[tokio::test]
async fn directories_through_which_cuts_go_are_finished_on_their_own() {
    let lab = tempfile::tempdir().unwrap();
    let at = |path: &str| lab.path().join(path);
    for name in ["src/a/k", "src/a/x", "src/b/c/m", "src/b/c/z"] {
        file(&at(name), 1_000_000);
    }
    for name in ["dst/a/old", "dst/gone/k", "dst/gone/z"] {
        file(&at(name), 2_000_000);
    }
    let (src, dst) = (disk::open(&at("src"), Links::Skip), disk::open(&at("dst"), Links::Skip));
    let cuts: Vec<Key> = ["a/m", "b/c/n", "gone/m"].map(Key::new).into();
    for range in KeyRange::default().pieces(&cuts) {
        ok(&run_part(sync(Part::Range(range)), cx(&src, &dst, silent()), RunControl::default()).await);
    }
    assert!(at("dst/gone").exists(), "it was not empty when the first of its files went");
    let dirs: Vec<Key> = ["a/", "b/", "b/c/", "gone/"].map(Key::new).into();
    ok(&run_part(sync(Part::Dirs(dirs.into())), cx(&src, &dst, silent()), RunControl::default()).await);
    assert!(!at("dst/gone").exists() && !at("dst/a/old").exists() && at("dst/b/c/z").exists());
    let time = |path: &str| fs::metadata(at(path)).unwrap().modified().unwrap();
    for dir in ["a", "b", "b/c"] {
        assert_eq!(time(&format!("dst/{dir}")), time(&format!("src/{dir}")), "{dir}");
    }
}
