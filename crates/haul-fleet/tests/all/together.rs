//! Workers at one job, all in this process, on stores in memory: what they do together is what one run does, and is counted once.

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use haul::{Cancel, Cx};
use haul_core::{
    Algo, ErrorKind, Key, Listed, Meta, Mtime, Result, Retry,
    event::{Event, Sink},
    filter::{Filter, FilterSpec},
    job::{Job, Verb},
    part::KeyRange,
};
use haul_fleet::{
    Board, Folder, Spec,
    create::create,
    cuts::cuts,
    files::has_write,
    outcome::Outcome,
    protocol::{Lease, Progress, Record, Rest, ShardId, Stage, State, WorkerId},
    report::{Summary, records, summary},
    spec::FORMAT,
    worker::{Ended, Settings, Worker},
};
use haul_mem::MemStore;
use haul_store::{Body, Late, ListRequest, Meters, PartLimits, Payload, Store, WriteSpec};
use haul_testkit::faults::{Fault, Faulty, Op};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

struct On<F>(F);

impl<F: Fn(&Event) + Send + Sync> Sink for On<F> {
    fn emit(&self, event: &Event) {
        (self.0)(event);
    }
}

fn memory(conditional: bool) -> Arc<dyn Store> {
    Arc::new(MemStore::new().with_caps(|caps| {
        (caps.domain, caps.page, caps.conditional) = (None, Some(50), conditional);
    }))
}

async fn put(store: &Arc<dyn Store>, key: &str, text: &'static str) {
    let spec = WriteSpec { size: Some(text.len() as u64), mtime: Some(Mtime::new(9, 0)), ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(text.as_bytes()))).await.unwrap();
    upload.publish(vec![part], Late::default()).await.unwrap();
}

async fn tree(store: &Arc<dyn Store>) -> BTreeMap<String, u64> {
    let (mut listing, mut all) = (store.list(ListRequest::all()), BTreeMap::new());
    while let Some(step) = listing.next().await {
        if let Listed::Batch(entries) = step {
            all.extend(entries.iter().map(|e| (e.key.to_string(), e.size)));
        }
    }
    all
}

/// A source of 600 files, a destination that has some of them and 50 others, and a job's folder.
struct World {
    src: Arc<dyn Store>,
    dst: Arc<dyn Store>,
    folder: Folder,
}

impl World {
    async fn new(conditional: bool) -> World {
        let (src, dst) = (memory(true), memory(true));
        for n in 0..600 {
            put(&src, &format!("d{}/{n:04}", n / 100), "text").await;
            if n % 10 == 0 {
                put(&dst, &format!("d{}/{n:04}", n / 100), "text").await;
            }
            if n % 12 == 0 {
                put(&dst, &format!("d{}/{n:04}.old", n / 100), "older").await;
            }
        }
        World { src, dst, folder: Folder::new(memory(conditional)) }
    }

    fn spec(&self) -> Spec {
        Spec {
            format: FORMAT,
            haul: "test".into(),
            id: "1".into(),
            flags: Vec::new(),
            src: "src".into(),
            dst: "dst".into(),
            filter: FilterSpec::default(),
            sync: true,
            cuts: Vec::new(),
            fixed: false,
            witnesses: Vec::new(),
            requests_a_second: 0.0,
            bytes_a_second: (None, None),
            finish: true,
            split_files_from: 0,
            made: None,
        }
    }

    fn board(&self) -> Board {
        Board::new(self.folder.clone(), &self.spec())
    }

    async fn create(&self, pieces: usize) -> Result<Spec> {
        create(&self.folder, self.spec(), &self.src, pieces, false).await
    }

    fn worker(&self, name: &str, spec: &Spec, sink: Arc<dyn Sink>) -> Worker {
        let cx = Cx {
            src: self.src.clone(),
            dst: self.dst.clone(),
            backup: None,
            compare_dest: vec![],
            copy_dest: vec![],
            filter: Arc::new(Filter::new(spec.filter.clone()).unwrap()),
            sink,
            meters: Arc::new(Meters::default()),
            cancel: Cancel::default(),
            confirm: None,
            journal: None,
            known: haul::index::Known::default(),
        };
        Worker {
            me: WorkerId(name.into()),
            board: Board::new(self.folder.clone(), spec),
            spec: spec.clone(),
            job: Job::new(Verb::Sync),
            cx,
            // Long enough that a busy machine doesn't take a worker for dead.
            settings: Settings { interval: Duration::from_millis(50), patience: 100, ..Settings::default() },
            stop: Cancel::default(),
            living: Arc::new(|_| ()),
            gone: Arc::new(|_| false),
            line: Arc::new(|error| error.to_string()),
        }
    }

    async fn summary(&self, spec: &Spec) -> Summary {
        let view = self.board().look().await.unwrap();
        summary(spec, &view, &records(&self.board(), spec, &view, &mut BTreeMap::new()).await.unwrap())
    }

    async fn check(&self, spec: &Spec) {
        let Summary { complete, done, shards, outcome, .. } = self.summary(spec).await;
        assert!(complete && done == shards, "{done} of {shards}");
        assert_eq!((outcome.transfers, outcome.unchanged, outcome.deletes), (540, 60, 50), "{outcome:?}");
        assert_eq!((outcome.error_count, tree(&self.dst).await), (0, tree(&self.src).await));
    }
}

fn silent() -> Arc<dyn Sink> {
    Arc::new(On(|_: &Event| ()))
}

#[tokio::test]
async fn four_workers_do_what_one_run_does() {
    let world = World::new(true).await;
    let spec = world.create(8).await.unwrap();
    assert!(spec.cuts.len() >= 5 && !spec.witnesses.is_empty() && !spec.fixed, "{spec:?}");
    let workers = (0..4).map(|n| world.worker(&format!("w{n}"), &spec, silent()).work());
    for ended in futures::future::join_all(workers).await {
        assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    }
    world.check(&spec).await;
    assert!(world.board().look().await.unwrap().signs.is_empty(), "they took their signs away");
    let late = world.worker("late", &spec, silent()).work().await;
    assert!(matches!(late, Ok(Ended::NothingLeft(_))));
}

#[tokio::test]
async fn the_tasks_of_one_worker_do_not_claim_what_another_of_them_has_claimed() {
    let world = World::new(true).await;
    let spec = world.create(2).await.unwrap();
    let worker = world.worker("w", &spec, silent());
    let settings = Settings { shards: 4, ..worker.settings.clone() };
    let ended = Worker { settings, ..worker }.work().await;
    assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    world.check(&spec).await;
}

#[tokio::test]
async fn one_that_is_stopped_gives_back_what_it_held_and_another_goes_on_there() {
    let world = World::new(true).await;
    let spec = world.create(2).await.unwrap();
    let seen = AtomicUsize::new(0);
    let stop = Cancel::default();
    let asks = stop.clone();
    let sink = On(move |event: &Event| {
        if matches!(event, Event::Decided { .. }) && seen.fetch_add(1, Relaxed) == 50 {
            asks.cancel();
        }
    });
    let first = Worker { stop, ..world.worker("first", &spec, Arc::new(sink)) };
    let ended = first.work().await;
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    let half = world.summary(&spec).await;
    assert!(!half.complete && half.held == 0 && half.outcome.transfers > 0, "{half:?}");
    let second = world.worker("second", &spec, silent()).work().await;
    assert!(matches!(second, Ok(Ended::NothingLeft(_))), "{second:?}");
    world.check(&spec).await;
}

#[tokio::test]
async fn one_that_waits_gets_a_part_of_what_another_holds() {
    let world = World::new(true).await;
    let spec = world.create(1).await.unwrap();
    assert!(spec.cuts.is_empty());
    // The holder is slow, so that the other has time to ask.
    let slow: Arc<dyn Sink> = Arc::new(On(|event: &Event| {
        if matches!(event, Event::Decided { .. }) {
            std::thread::sleep(Duration::from_millis(3));
        }
    }));
    let workers = ["one", "two"].map(|name| {
        let worker = world.worker(name, &spec, slow.clone());
        let settings = Settings { interval: Duration::from_millis(20), shards: 1, ..worker.settings.clone() };
        Worker { settings, ..worker }.work()
    });
    for ended in futures::future::join_all(workers).await {
        assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    }
    world.check(&spec).await;
    assert!(world.summary(&spec).await.shards > 2, "it was split");
}

#[tokio::test]
async fn one_that_waits_is_seen_before_the_next_sign_of_life_where_nothing_is_left_to_claim() {
    let world = World::new(true).await;
    let spec = world.create(1).await.unwrap();
    // All of it takes some two seconds, much less than an interval.
    let slow: Arc<dyn Sink> = Arc::new(On(|event: &Event| {
        if matches!(event, Event::Decided { .. }) {
            std::thread::sleep(Duration::from_millis(3));
        }
    }));
    let workers = ["one", "two"].map(|name| {
        let worker = world.worker(name, &spec, slow.clone());
        let settings = Settings { interval: Duration::from_secs(4), shards: 1, ..worker.settings.clone() };
        Worker { settings, ..worker }.work()
    });
    for ended in futures::future::join_all(workers).await {
        assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    }
    world.check(&spec).await;
    assert!(world.summary(&spec).await.shards > 1, "it was split");
}

#[tokio::test]
async fn a_store_without_conditions_gives_each_worker_its_shards() {
    let world = World::new(false).await;
    let spec = world.create(6).await.unwrap();
    assert!(spec.fixed);
    let error = world.worker("none", &spec, silent()).work().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let worker = |n: usize| {
        let worker = world.worker(&format!("w{n}"), &spec, silent());
        Worker { settings: Settings { number: Some((n, 3)), ..worker.settings.clone() }, ..worker }.work()
    };
    for ended in futures::future::join_all([worker(0), worker(1), worker(2)]).await {
        assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    }
    world.check(&spec).await;
}

#[tokio::test]
async fn a_worker_that_sees_another_source_ends_before_it_does_anything() {
    let world = World::new(true).await;
    let spec = world.create(2).await.unwrap();
    let before = tree(&world.dst).await;
    let mut worker = world.worker("w", &spec, silent());
    worker.cx.src = memory(true);
    let error = worker.work().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert_eq!(tree(&world.dst).await, before);
}

#[tokio::test]
async fn a_job_is_made_once_and_not_to_empty_a_destination() {
    let world = World::new(true).await;
    world.create(2).await.unwrap();
    assert_eq!(world.create(2).await.unwrap_err().kind(), ErrorKind::Exists);
    let empty = World { src: memory(true), folder: Folder::new(memory(true)), ..world };
    assert_eq!(empty.create(2).await.unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(empty.folder.spec().await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_cancelled_job_stops_its_workers() {
    let world = World::new(true).await;
    let spec = world.create(4).await.unwrap();
    world.board().cancel().await.unwrap();
    assert!(matches!(world.worker("w", &spec, silent()).work().await, Ok(Ended::Cancelled)));
    assert!(world.summary(&spec).await.cancelled);
}

/// Empties a store at once: one in memory needs no waiting.
fn purge(store: &Arc<dyn Store>) {
    let all = tree(store).now_or_never().expect("memory answers at once");
    let keys = all.keys().map(|key| (Key::new(key), None)).collect();
    store.delete(keys).now_or_never().expect("memory answers at once").into_iter().collect::<Result<()>>().unwrap();
}

/// A worker of a job that was removed, with another made in its place: it writes nothing of the other, does no more than what was
/// under way, and ends.
#[tokio::test]
async fn a_worker_of_a_job_that_was_removed_does_nothing_of_the_next_one_there() {
    let job = memory(true);
    let world = World { folder: Folder::new(job.clone()), ..World::new(true).await };
    let spec = world.create(4).await.unwrap();
    let next = World { src: memory(true), dst: memory(true), folder: world.folder.clone() };
    for n in 0..50 {
        put(&next.src, &format!("d{}/{n:04}", n / 10), "other").await;
    }
    let next_spec = Spec { id: "2".into(), cuts: spec.cuts.clone(), finish: false, ..next.spec() };
    let (seen, place, made) = (AtomicUsize::new(0), job.clone(), next_spec.clone());
    let folder = world.folder.clone();
    let sink = On(move |event: &Event| {
        if !matches!(event, Event::Decided { .. }) {
            return;
        }
        match seen.fetch_add(1, Relaxed) {
            20 => {
                purge(&place);
                let made = folder.make(&mut made.clone()).now_or_never().expect("memory answers at once");
                assert!(made.unwrap());
            }
            // Slow, so that a look comes before the end.
            21.. => std::thread::sleep(Duration::from_millis(5)),
            _ => {}
        }
    });
    let worker = world.worker("late", &spec, Arc::new(sink));
    let error = worker.work().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.message().ends_with(" was removed"), "{error}");
    let left = tree(&world.dst).await;
    assert!(left.keys().any(|key| key.ends_with(".old")), "it deleted in a job that was removed");
    assert!(left.len() < tree(&world.src).await.len(), "it went on to the end");
    // The other's worker finds nothing done.
    let view = Board::new(next.folder.clone(), &next_spec).look().await.unwrap();
    assert!(view.latest.is_empty() && view.done.is_empty() && view.signs.is_empty(), "{view:?}");
    let ended = next.worker("next", &next_spec, silent()).work().await;
    assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    assert_eq!(tree(&next.dst).await, tree(&next.src).await);
}

#[tokio::test]
async fn cuts_balance_names_of_many_kinds() {
    type Name = fn(usize) -> String;
    let kinds: [(&str, Name); 4] = [
        ("counters", |n| format!("archive/2026/object-{n:08}.bin")),
        ("directories", |n| format!("{}/{}/{n}", ["alpha", "beta", "gamma", "delta"][n % 4], n % 37)),
        ("hashes", |n| format!("{:016x}", (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))),
        ("letters", |n| format!("é{}ü/{n}", char::from(b'a' + (n % 26) as u8))),
    ];
    for (kind, name) in kinds {
        let store = memory(true);
        for n in 0..3_000 {
            put(&store, &name(n), "x").await;
        }
        let cuts = cuts(&store, &KeyRange::default(), 8).await.unwrap();
        let pieces = KeyRange::default().pieces(&cuts);
        let keys: Vec<Key> = tree(&store).await.keys().map(Key::new).collect();
        let sizes: Vec<usize> = pieces.iter().map(|piece| keys.iter().filter(|key| piece.holds(key)).count()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 3_000);
        assert!(sizes.len() >= 6 && *sizes.iter().max().unwrap() <= 1_000, "{kind}: {sizes:?}");
    }
}

/// Parts of the large files of these tests: the engine makes none smaller.
const PART: usize = 1 << 20;

/// A store that takes parts of this size, and proves files by a CRC.
fn in_parts() -> Arc<dyn Store> {
    Arc::new(MemStore::new().with_caps(|caps| {
        (caps.domain, caps.hashes_listed, caps.hashes_stored) = (None, vec![], vec![Algo::Crc64Nvme]);
        caps.parts = Some(PartLimits { preferred: PART as u64, ..PartLimits::FILE });
    }))
}

async fn put_large(store: &Arc<dyn Store>, key: &str, first: u8) {
    let bytes: Vec<u8> = (0..24 * PART + 7).map(|n| first.wrapping_add((n / 100_003) as u8)).collect();
    let meta = Some(Box::new(Meta::from([("kind".to_owned(), "large".to_owned())])));
    let spec = WriteSpec { mtime: Some(Mtime::new(7, 1)), meta, ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from(bytes))).await.unwrap();
    upload.publish(vec![part], Late::default()).await.unwrap();
}

/// A world with a large file among small ones; its spec splits it.
async fn large_world() -> (World, Spec) {
    let world = World { src: in_parts(), dst: in_parts(), folder: Folder::new(memory(true)) };
    put_large(&world.src, "d/large", 1).await;
    put(&world.src, "d/a", "small").await;
    put(&world.src, "e", "small").await;
    let spec = Spec { split_files_from: 8 * PART as u64, ..world.spec() };
    let spec = create(&world.folder, spec, &world.src, 2, false).await.unwrap();
    (world, spec)
}

/// Asks once so many ranges are done.
fn asks_after(ranges: usize) -> (Cancel, Arc<dyn Sink>) {
    let (done, asked) = (AtomicUsize::new(0), Cancel::default());
    let asks = asked.clone();
    let sink = On(move |event: &Event| {
        if matches!(event, Event::RangeDone { .. }) && done.fetch_add(1, Relaxed) + 1 == ranges {
            asks.cancel();
        }
    });
    (asked, Arc::new(sink))
}

/// All that a file is.
async fn whole(store: &Arc<dyn Store>, key: &str) -> (Vec<u8>, Option<Mtime>, Option<Box<Meta>>) {
    let entry = store.stat(&Key::new(key)).await.unwrap();
    let Body::Stream(body) = store.read(&entry.key, None, None).await.unwrap().body else { panic!("a stream") };
    let pieces: Vec<Bytes> = body.map(Result::unwrap).collect().await;
    (pieces.concat(), entry.mtime, entry.meta)
}

fn with_metadata(worker: Worker) -> Worker {
    Worker { job: worker.job.clone().with(|job| job.attributes.metadata = true), ..worker }
}

#[tokio::test]
async fn ranges_of_a_large_file_are_everybodys() {
    let (world, spec) = large_world().await;
    let senders = Arc::new(Mutex::new(BTreeSet::new()));
    let workers = (0..4).map(|n| {
        let senders = senders.clone();
        let sink = On(move |event: &Event| {
            if matches!(event, Event::RangeDone { .. }) {
                senders.lock().unwrap().insert(n);
                // Slow, so that the others have time to look.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let worker = with_metadata(world.worker(&format!("w{n}"), &spec, Arc::new(sink)));
        let settings = Settings { interval: Duration::from_millis(20), shards: 1, ..worker.settings.clone() };
        Worker { settings, ..worker }.work()
    });
    for ended in futures::future::join_all(workers).await {
        assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    }
    let Summary { complete, outcome, shards, .. } = world.summary(&spec).await;
    assert!(complete && shards > 24, "{shards}");
    assert_eq!((outcome.transfers, outcome.bytes, outcome.error_count), (3, 24 * PART as u64 + 7 + 10, 0));
    assert_eq!((outcome.checks, outcome.unchanged), (0, 0));
    assert_eq!(whole(&world.dst, "d/large").await, whole(&world.src, "d/large").await);
    assert!(senders.lock().unwrap().len() > 1, "one worker sent all of it");
    let again = world.worker("late", &spec, silent()).work().await;
    assert!(matches!(again, Ok(Ended::NothingLeft(_))));
}

#[tokio::test]
async fn who_has_nothing_to_do_yet_looks_for_ranges_long_before_the_next_sign_of_life() {
    let (world, _) = large_world().await;
    let world = World { folder: Folder::new(memory(true)), ..world };
    let spec = Spec { split_files_from: 8 * PART as u64, ..world.spec() };
    let spec = create(&world.folder, spec, &world.src, 1, false).await.unwrap();
    let senders = Arc::new(Mutex::new(BTreeSet::new()));
    let workers = (0..2).map(|n| {
        let senders = senders.clone();
        let sink = On(move |event: &Event| {
            if matches!(event, Event::RangeDone { .. }) {
                senders.lock().unwrap().insert(n);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let worker = with_metadata(world.worker(&format!("w{n}"), &spec, Arc::new(sink)));
        let settings = Settings { interval: Duration::from_secs(3), shards: 1, ..worker.settings.clone() };
        Worker { settings, ..worker }.work()
    });
    for ended in futures::future::join_all(workers).await {
        assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    }
    assert_eq!(senders.lock().unwrap().len(), 2, "one worker sent all of it");
    let outcome = world.summary(&spec).await.outcome;
    assert_eq!((outcome.transfers, outcome.error_count), (3, 0), "{outcome:?}");
}

#[tokio::test]
async fn a_large_file_that_changes_on_the_way_is_an_error_and_not_a_mixture() {
    let (world, spec) = large_world().await;
    let (changes, sink) = asks_after(6);
    let worker = world.worker("w", &spec, sink);
    let change = async {
        changes.cancelled().await;
        put_large(&world.src, "d/large", 2).await;
    };
    let (ended, ()) = futures::join!(worker.work(), change);
    assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    let outcome = world.summary(&spec).await.outcome;
    assert_eq!((outcome.transfers, outcome.error_count, outcome.errors.len()), (2, 1, 1), "{outcome:?}");
    assert!(outcome.errors[0].contains("changed while it was copied"), "{outcome:?}");
    assert_eq!(tree(&world.dst).await.keys().collect::<Vec<_>>(), ["d/a", "e"]);
}

#[tokio::test]
async fn a_large_file_that_is_proved_by_a_hash_of_the_whole_goes_by_one_worker() {
    let (world, _) = large_world().await;
    let src: Arc<dyn Store> = Arc::new(MemStore::new().with_caps(|caps| caps.domain = None));
    put_large(&src, "d/large", 1).await;
    let world = World { src, folder: Folder::new(memory(true)), ..world };
    let spec = Spec { split_files_from: PART as u64, ..world.spec() };
    let spec = create(&world.folder, spec, &world.src, 2, false).await.unwrap();
    let ended = with_metadata(world.worker("w", &spec, silent())).work().await;
    assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    let Summary { outcome, .. } = world.summary(&spec).await;
    assert_eq!((outcome.transfers, outcome.error_count), (1, 0), "{outcome:?}");
    assert_eq!(whole(&world.dst, "d/large").await, whole(&world.src, "d/large").await);
}

#[tokio::test]
async fn ranges_that_a_stopped_worker_sent_are_not_sent_again() {
    let (world, spec) = large_world().await;
    let (stop, sink) = asks_after(9);
    let first = Worker { stop, ..world.worker("first", &spec, sink) }.work().await;
    assert!(matches!(first, Ok(Ended::Stopped)), "{first:?}");
    let rest = work_on(&world, &spec, "").await;
    assert!((1..=16).contains(&rest), "{rest}");
    assert_eq!(whole(&world.dst, "d/large").await.0, whole(&world.src, "d/large").await.0);
}

#[tokio::test]
async fn a_cancelled_job_leaves_no_write_behind() {
    let (world, spec) = large_world().await;
    let (cancels, sink) = asks_after(6);
    let cancel = async {
        cancels.cancelled().await;
        world.board().cancel().await.unwrap();
    };
    let (ended, ()) = futures::join!(world.worker("w", &spec, sink).work(), cancel);
    assert!(matches!(ended, Ok(Ended::Cancelled)), "{ended:?}");
    let view = world.board().look().await.unwrap();
    let records = records(&world.board(), &spec, &view, &mut BTreeMap::new()).await.unwrap();
    let large = records.values().find(|record| has_write(record)).expect("it was begun");
    let Rest::File(file) = &large.rest else { panic!() };
    let about: serde_json::Value = serde_json::from_str(&file.about).unwrap();
    let token: Vec<u8> = serde_json::from_value(about["token"].clone()).unwrap();
    let writes = world.dst.resumable().unwrap();
    let found = writes.resume(&Key::new("d/large"), &token, Vec::new(), WriteSpec::default()).await;
    assert_eq!(found.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// A worker that comes after others, and finds nothing left in the end; how many ranges it sent.
async fn work_on(world: &World, spec: &Spec, gone: &'static str) -> usize {
    let sent = Arc::new(AtomicUsize::new(0));
    let counts = sent.clone();
    let sink = On(move |event: &Event| {
        if matches!(event, Event::RangeDone { .. }) {
            counts.fetch_add(1, Relaxed);
        }
    });
    let worker = with_metadata(world.worker("last", spec, Arc::new(sink)));
    let ended = Worker { gone: Arc::new(move |worker| worker.0 == gone), ..worker }.work().await;
    assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    sent.load(Relaxed)
}

/// Stops after it has sent a range.
async fn begin(world: &World, spec: &Spec) {
    let (stop, sink) = asks_after(1);
    let ended = Worker { stop, ..with_metadata(world.worker("first", spec, sink)) }.work().await;
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
}

/// The last records of ranges that are in this state.
async fn ranges(board: &Board, state: State) -> Vec<Lease<Outcome>> {
    files(board, state, |stage| matches!(stage, Stage::Range(..))).await
}

/// The last records of large files and ranges that are in this state and at this stage.
async fn files(board: &Board, state: State, stage: fn(&Stage) -> bool) -> Vec<Lease<Outcome>> {
    let mut found = Vec::new();
    for (id, number) in board.look().await.unwrap().latest {
        let record = board.record(&id, number).await.unwrap().unwrap();
        if record.state == state && matches!(&record.rest, Rest::File(file) if stage(&file.stage)) {
            found.push(Lease { id, number, record });
        }
    }
    found
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_does_not_condemn_a_file() {
    let (world, spec) = large_world().await;
    begin(&world, &spec).await;
    // It sees another version than all others. While it looks, another worker takes all ranges over.
    let other = in_parts();
    for first in [3, 2] {
        put_large(&other, "d/large", first).await;
    }
    put(&other, "d/a", "small").await;
    put(&other, "e", "small").await;
    let (stop, board) = (Cancel::default(), world.board());
    let asks = stop.clone();
    let sink = On(move |event: &Event| {
        if matches!(event, Event::Begun { step, .. } if *step > 1 << 48) && !asks.is_cancelled() {
            let taken = async {
                let held = ranges(&board, State::Held).await;
                assert_eq!(held.len(), 1);
                for range in held.into_iter().chain(ranges(&board, State::Open).await) {
                    assert!(board.write(&range.claimed(&WorkerId("taker".into()))).await.unwrap());
                }
            };
            taken.now_or_never().expect("memory answers at once");
            asks.cancel();
        }
    });
    let zombie = World { src: other, dst: world.dst.clone(), folder: world.folder.clone() };
    let zombie = zombie.worker("zombie", &spec, Arc::new(sink));
    let settings = Settings { interval: Duration::from_secs(600), shards: 1, ..zombie.settings.clone() };
    let ended = Worker { settings, stop, ..zombie }.work().await;
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    assert!(world.board().look().await.unwrap().failed.is_empty());
    assert!(work_on(&world, &spec, "taker").await > 0);
    let outcome = world.summary(&spec).await.outcome;
    assert_eq!((outcome.transfers, outcome.error_count), (3, 0), "{outcome:?}");
    assert_eq!(whole(&world.dst, "d/large").await.0, whole(&world.src, "d/large").await.0);
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_removes_no_write() {
    let (world, spec) = large_world().await;
    put(&world.dst, "d/a", "small").await;
    put(&world.dst, "e", "small").await;
    // It can't finish the file. Before it gives it up, another worker takes it over.
    let (stop, board) = (Cancel::default(), world.board());
    let asks = stop.clone();
    let sink = On(move |event: &Event| {
        if matches!(event, Event::Retried { .. }) {
            let taken = async {
                let held = files(&board, State::Held, |stage| *stage == Stage::Begun).await;
                board.write(&held[0].claimed(&WorkerId("taker".into()))).await.unwrap()
            };
            assert!(taken.now_or_never().expect("memory answers at once"));
            asks.cancel();
        }
    });
    let busy = Fault::Fail(ErrorKind::Busy, Retry::Backoff);
    let fails = Fault::Fail(ErrorKind::Invalid, Retry::Never);
    let dst = Faulty::new(world.dst.clone()).on(Op::Publish, 1, busy).on(Op::Publish, 2, fails);
    let mut zombie = with_metadata(world.worker("zombie", &spec, Arc::new(sink)));
    zombie.cx.dst = Arc::new(dst.clone());
    (zombie.settings.interval, zombie.settings.shards) = (Duration::from_secs(600), 1);
    let ended = Worker { stop, ..zombie }.work().await;
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    assert_eq!((dst.calls(Op::Publish), dst.calls(Op::Discard)), (2, 0));
    assert_eq!(work_on(&world, &spec, "taker").await, 0);
    let outcome = world.summary(&spec).await.outcome;
    assert_eq!((outcome.transfers, outcome.error_count), (1, 0), "{outcome:?}");
    assert_eq!(whole(&world.dst, "d/large").await, whole(&world.src, "d/large").await);
}

#[tokio::test]
async fn a_file_whose_ranges_were_left_out_says_so() {
    let (world, spec) = large_world().await;
    begin(&world, &spec).await;
    let of = ranges(&world.board(), State::Open).await[0].id.parent().unwrap();
    world.board().note_failed(&of).await.unwrap();
    work_on(&world, &spec, "").await;
    let outcome = world.summary(&spec).await.outcome;
    assert_eq!((outcome.transfers, outcome.error_count), (2, 1), "{outcome:?}");
    assert!(outcome.errors[0].contains("d/large: a range of it was left out"), "{outcome:?}");
    assert_eq!(tree(&world.dst).await.keys().collect::<Vec<_>>(), ["d/a", "e"]);
}

#[tokio::test]
async fn a_record_of_a_range_that_makes_no_sense_is_an_error_of_its_file_alone() {
    for (was, is) in [("\"part_size\":1048576", "\"part_size\":0"), ("{", "<")] {
        let (world, spec) = large_world().await;
        begin(&world, &spec).await;
        let mut range = ranges(&world.board(), State::Open).await.swap_remove(0);
        range.number += 1;
        let Rest::File(file) = &mut range.record.rest else { panic!() };
        let about = file.about.replacen(was, is, 1);
        assert!(about != file.about, "{about}");
        file.about = about;
        assert!(world.board().write(&range).await.unwrap());
        work_on(&world, &spec, "").await;
        let outcome = world.summary(&spec).await.outcome;
        assert_eq!((outcome.transfers, outcome.error_count), (2, 1), "{outcome:?}");
        assert!(outcome.errors[0].contains("d/large: read: a large file's record can't be understood"), "{outcome:?}");
    }
}

/// Writes what no worker writes into a job's directory.
async fn spoil(board: &Arc<dyn Store>, id: &str, number: u64) {
    put(board, &format!("1/shards/{id}/{number:010}"), "{").await;
}

/// Has a worker that waits for no lease long do what is left; the lines of errors that it tells.
async fn ends(world: &World, spec: &Spec) -> Vec<String> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    let sink = On(move |event: &Event| {
        if let Event::Error(error) = event {
            hears.lock().unwrap().push(error.to_string());
        }
    });
    let mut worker = with_metadata(world.worker("last", spec, Arc::new(sink)));
    (worker.settings.interval, worker.settings.patience) = (Duration::from_millis(10), 2);
    let ended = worker.work().await;
    assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
    told.lock().unwrap().clone()
}

#[tokio::test]
async fn a_shard_whose_record_cannot_be_read_is_given_up_and_keeps_what_was_counted() {
    let job = memory(true);
    let world = World { folder: Folder::new(job.clone()), ..World::new(true).await };
    let spec = world.create(4).await.unwrap();
    let (id, range) = spec.shards().swap_remove(1);
    let first = Lease { id: id.clone(), number: 0, record: Record::first(&WorkerId(String::new()), Rest::Keys(range)) };
    let outcome = Outcome { transfers: 7, ..Outcome::default() };
    let held = first.claimed(&WorkerId("dead".into()));
    let back = held.with(Progress::GivesBack(None, outcome, Vec::new()));
    for record in [held, back] {
        assert!(world.board().write(&record).await.unwrap());
    }
    spoil(&job, &id.0, 3).await;
    spoil(&job, &id.0, 4).await;
    let told = ends(&world, &spec).await;
    let Summary { complete, outcome, .. } = world.summary(&spec).await;
    assert!(complete && outcome.error_count == 1 && outcome.transfers > 7, "{outcome:?}");
    assert_eq!(outcome.errors, told);
    assert!(
        told[0].contains(" (shard 000001): its record can't be read: 1/shards/000001/0000000004: read: "),
        "{told:?}"
    );
    let (src, dst) = (tree(&world.src).await, tree(&world.dst).await);
    let missing: Vec<_> = src.keys().filter(|key| !dst.contains_key(*key)).collect();
    let (after, through) = (spec.cuts[0].to_string(), spec.cuts[1].to_string());
    assert!(!missing.is_empty() && missing.iter().all(|key| **key > after && **key <= through), "{missing:?}");
    let extra: Vec<_> = dst.keys().filter(|key| !src.contains_key(*key)).collect();
    assert!(!extra.is_empty() && extra.iter().all(|key| **key > after && **key <= through), "{extra:?}");
}

#[tokio::test]
async fn what_a_done_shard_came_to_is_an_error_where_it_cannot_be_read() {
    let job = memory(true);
    let world = World { folder: Folder::new(job.clone()), ..World::new(true).await };
    let spec = world.create(4).await.unwrap();
    ends(&world, &spec).await;
    let last = world.board().look().await.unwrap().latest[&ShardId::first(2)];
    spoil(&job, "000002", last).await;
    assert!(ends(&world, &spec).await.is_empty());
    let Summary { complete, outcome, .. } = world.summary(&spec).await;
    assert!(complete && outcome.error_count == 1, "{outcome:?}");
    assert_eq!(tree(&world.dst).await, tree(&world.src).await);
}

#[tokio::test]
async fn a_large_file_of_which_a_record_cannot_be_read_leaves_nothing_behind() {
    // Of the file itself, once its ranges are there, and of a range.
    for of_file in [true, false] {
        let (mut world, _) = large_world().await;
        let job = memory(true);
        world.folder = Folder::new(job.clone());
        let spec = Spec { split_files_from: 8 * PART as u64, ..world.spec() };
        let spec = create(&world.folder, spec, &world.src, 2, false).await.unwrap();
        begin(&world, &spec).await;
        let begun = files(&world.board(), State::Open, |stage| *stage == Stage::Begun).await.swap_remove(0);
        let Rest::File(file) = &begun.record.rest else { panic!() };
        let about: serde_json::Value = serde_json::from_str(&file.about).unwrap();
        let token: Vec<u8> = serde_json::from_value(about["token"].clone()).unwrap();
        let lease = if of_file { begun } else { ranges(&world.board(), State::Open).await.swap_remove(0) };
        spoil(&job, &lease.id.0, lease.number + 1).await;
        let told = ends(&world, &spec).await;
        let Summary { complete, outcome, .. } = world.summary(&spec).await;
        assert!(complete, "{outcome:?}");
        assert_eq!((outcome.transfers, outcome.error_count), (2, 1), "{outcome:?}");
        assert_eq!(outcome.errors, told);
        assert!(told[0].starts_with("d/large: copy: its record can't be read: "), "{told:?}");
        let writes = world.dst.resumable().unwrap();
        let found = writes.resume(&Key::new("d/large"), &token, Vec::new(), WriteSpec::default()).await;
        assert_eq!(found.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    }
}

#[tokio::test]
async fn a_shard_over_which_workers_die_is_given_up_in_the_end() {
    for (deaths, errors) in [(19, 0), (20, 1)] {
        let world = World::new(true).await;
        let spec = world.create(4).await.unwrap();
        let (id, range) = spec.shards().swap_remove(2);
        let mut lease = Lease { id, number: 0, record: Record::first(&WorkerId(String::new()), Rest::Keys(range)) };
        for n in 0..deaths {
            lease = lease.claimed(&WorkerId(format!("dead {n}")));
            assert!(world.board().write(&lease).await.unwrap());
        }
        let told = ends(&world, &spec).await;
        let Summary { complete, outcome, .. } = world.summary(&spec).await;
        assert!(complete && outcome.error_count == errors && told == outcome.errors, "{deaths}: {outcome:?}");
        if errors > 0 {
            assert!(told[0].contains("(shard 000002): 20 workers died while they held it"), "{told:?}");
        } else {
            world.check(&spec).await;
        }
    }
}

#[tokio::test]
async fn interruptions_use_up_no_tries_of_a_range() {
    for (failures, errors) in [(0, 0), (5, 1)] {
        let (world, spec) = large_world().await;
        put(&world.dst, "d/a", "small").await;
        put(&world.dst, "e", "small").await;
        begin(&world, &spec).await;
        for mut range in ranges(&world.board(), State::Open).await {
            for n in 0..30 {
                let held = range.claimed(&WorkerId("interrupted".into()));
                let back = Progress::GivesBack(None, Outcome::default(), Vec::new());
                range = held.with(if n < failures { Progress::Fails } else { back });
                assert!(world.board().write(&held).await.unwrap() && world.board().write(&range).await.unwrap());
            }
        }
        let busy = Fault::Fail(ErrorKind::Busy, Retry::Backoff);
        let mut worker = with_metadata(world.worker("last", &spec, silent()));
        worker.cx.dst = Arc::new(Faulty::new(world.dst.clone()).on(Op::Part, 1, busy));
        (worker.settings.shards, worker.job.pace.file_retries) = (1, 0);
        let ended = worker.work().await;
        assert!(matches!(ended, Ok(Ended::NothingLeft(_))), "{ended:?}");
        let outcome = world.summary(&spec).await.outcome;
        assert_eq!(outcome.error_count, errors, "{failures} failures before: {outcome:?}");
    }
}

#[tokio::test]
async fn a_range_that_one_worker_may_not_send_is_sent_by_another() {
    let (world, spec) = large_world().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    let sink = On(move |event: &Event| match event {
        Event::Failed { error, .. } | Event::Error(error) => hears.lock().unwrap().push(error.kind()),
        _ => {}
    });
    // Two small files and a range come before it.
    let denied = Fault::Fail(ErrorKind::Denied, Retry::Never);
    let dst: Arc<dyn Store> = Arc::new(Faulty::new(world.dst.clone()).on(Op::Part, 8, denied));
    let mut worker = with_metadata(world.worker("stranger", &spec, Arc::new(sink)));
    (worker.cx.dst, worker.settings.shards) = (dst, 1);
    assert_eq!(worker.work().await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(*told.lock().unwrap(), [ErrorKind::Cancelled], "it is no failure of the file");
    assert!(work_on(&world, &spec, "").await > 0);
    let outcome = world.summary(&spec).await.outcome;
    assert_eq!((outcome.transfers, outcome.error_count), (3, 0), "{outcome:?}");
}

/// Its walk is over long before the files that it found are there.
#[tokio::test]
async fn what_a_worker_without_credentials_leaves_another_does() {
    let world = World::new(true).await;
    let spec = world.create(1).await.unwrap();
    let unknown = Fault::Fail(ErrorKind::Unauthenticated, Retry::Never);
    let mut sick = world.worker("sick", &spec, silent());
    sick.cx.dst = Arc::new(Faulty::new(world.dst.clone()).on(Op::Publish, 400, unknown));
    assert_eq!(sick.work().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    world.worker("healthy", &spec, silent()).work().await.unwrap();
    let Summary { complete, outcome, .. } = world.summary(&spec).await;
    assert!(complete && outcome.error_count == 0, "{outcome:?}");
    assert_eq!(tree(&world.dst).await, tree(&world.src).await);
}
