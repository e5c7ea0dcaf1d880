//! A source, a destination and a job's folder in memory, and workers in this process.

use bytes::Bytes;
use futures::StreamExt;
use haul::{Cancel, Cx};
use haul_core::{
    Algo, Key, Listed, Meta, Mtime, Result,
    event::{Event, Sink},
    filter::{Filter, FilterSpec},
    job::{Job, Verb},
};
use haul_fleet::{
    Board, Folder, Spec,
    create::create,
    ends::{EndpointFacts, Machine},
    outcome::WorkDone,
    protocol::{Lease, RemainingWork, ShardState, Stage, WorkerId},
    report::{Summary, records, summary},
    spec::FORMAT,
    worker::{Settings, Worker, WorkerEnd},
};
use haul_mem::MemStore;
use haul_store::{Body, LateFacts, ListRequest, Meters, PartLimits, Payload, Store, WriteSpec};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

pub struct On<F>(pub F);

impl<F: Fn(&Event) + Send + Sync> Sink for On<F> {
    fn emit(&self, event: &Event) {
        (self.0)(event);
    }
}

pub fn memory(conditional: bool) -> Arc<dyn Store> {
    Arc::new(MemStore::new().with_caps(|caps| {
        (caps.domain, caps.page, caps.conditional) = (None, Some(50), conditional);
    }))
}

pub async fn put(store: &Arc<dyn Store>, key: &str, text: &'static str) {
    let spec = WriteSpec { size: Some(text.len() as u64), mtime: Some(Mtime::new(9, 0)), ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(text.as_bytes()))).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
}

pub async fn tree(store: &Arc<dyn Store>) -> BTreeMap<String, u64> {
    let (mut listing, mut all) = (store.list(ListRequest::all()), BTreeMap::new());
    while let Some(step) = listing.next().await {
        if let Listed::Batch(entries) = step {
            all.extend(entries.iter().map(|e| (e.key.to_string(), e.size)));
        }
    }
    all
}

/// Stores in memory are on no file system.
pub const NO_MOUNTS: Machine = Machine {
    below: |_| Vec::new(),
    lacking: |_, _| Vec::new(),
    fixed_below: |_| Vec::new(),
    is_read_only: |_| false,
    shares_inodes: |_| true,
};

/// A source of 600 files, a destination that has some of them and 50 others, and a job's folder.
pub struct World {
    pub src: Arc<dyn Store>,
    pub dst: Arc<dyn Store>,
    pub folder: Folder,
}

impl World {
    pub async fn new(conditional: bool) -> World {
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

    pub fn spec(&self) -> Spec {
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
            ends: EndpointFacts::default(),
            requests_a_second: 0.0,
            bytes_a_second: (None, None),
            finish: true,
            split_files_from: 0,
            made: None,
        }
    }

    pub fn board(&self) -> Board {
        Board::new(self.folder.clone(), &self.spec())
    }

    pub async fn create(&self, pieces: usize) -> Result<Spec> {
        create(&self.folder, self.spec(), (&self.src, &self.dst), pieces, (NO_MOUNTS, false), false).await
    }

    pub fn worker(&self, name: &str, spec: &Spec, sink: Arc<dyn Sink>) -> Worker {
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
            known: haul::index::EarlierKnowledge::default(),
        };
        Worker {
            me: WorkerId(name.into()),
            board: Board::new(self.folder.clone(), spec),
            spec: spec.clone(),
            job: Job::new(Verb::Sync),
            cx,
            // Long enough that a busy machine doesn't take a worker for dead.
            settings: Settings { interval: Duration::from_millis(50), patience: 100, ..Settings::default() },
            machine: NO_MOUNTS,
            stop: Cancel::default(),
            living: Arc::new(|_| ()),
            gone: Arc::new(|_| false),
            line: Arc::new(|error| error.to_string()),
        }
    }

    pub async fn summary(&self, spec: &Spec) -> Summary {
        let view = self.board().look().await.unwrap();
        summary(spec, &view, &records(&self.board(), spec, &view, &mut BTreeMap::new()).await.unwrap())
    }

    pub async fn check(&self, spec: &Spec) {
        let Summary { complete, done, shards, outcome, .. } = self.summary(spec).await;
        assert!(complete && done == shards, "{done} of {shards}");
        assert_eq!((outcome.transfers, outcome.unchanged, outcome.deletes), (540, 60, 50), "{outcome:?}");
        assert_eq!((outcome.error_count, tree(&self.dst).await), (0, tree(&self.src).await));
    }
}

pub fn silent() -> Arc<dyn Sink> {
    Arc::new(On(|_: &Event| ()))
}

/// Parts of the large files of these tests: the engine makes none smaller.
pub const PART: usize = 1 << 20;

/// A store that takes parts of this size, and proves files by a CRC.
pub fn in_parts() -> Arc<dyn Store> {
    Arc::new(MemStore::new().with_caps(|caps| {
        (caps.domain, caps.hashes_listed, caps.hashes_stored) = (None, vec![], vec![Algo::Crc64Nvme]);
        caps.parts = Some(PartLimits { preferred: PART as u64, ..PartLimits::FILE });
    }))
}

pub async fn put_large(store: &Arc<dyn Store>, key: &str, first: u8) {
    let bytes: Vec<u8> = (0..24 * PART + 7).map(|n| first.wrapping_add((n / 100_003) as u8)).collect();
    let meta = Some(Box::new(Meta::from([("kind".to_owned(), "large".to_owned())])));
    let spec = WriteSpec { mtime: Some(Mtime::new(7, 1)), meta, ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from(bytes))).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
}

/// A world with a large file among small ones; its spec splits it.
pub async fn large_world() -> (World, Spec) {
    let world = World { src: in_parts(), dst: in_parts(), folder: Folder::new(memory(true)) };
    put_large(&world.src, "d/large", 1).await;
    put(&world.src, "d/a", "small").await;
    put(&world.src, "e", "small").await;
    let spec = Spec { split_files_from: 8 * PART as u64, ..world.spec() };
    let spec = create(&world.folder, spec, (&world.src, &world.dst), 2, (NO_MOUNTS, false), false).await.unwrap();
    (world, spec)
}

/// Asks once this many ranges are done.
pub fn asks_after(ranges: usize) -> (Cancel, Arc<dyn Sink>) {
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
pub async fn whole(store: &Arc<dyn Store>, key: &str) -> (Vec<u8>, Option<Mtime>, Option<Box<Meta>>) {
    let entry = store.stat(&Key::new(key)).await.unwrap();
    let Body::Stream(body) = store.read(&entry.key, None, None).await.unwrap().body else { panic!("a stream") };
    let pieces: Vec<Bytes> = body.map(Result::unwrap).collect().await;
    (pieces.concat(), entry.mtime, entry.meta)
}

pub fn with_metadata(worker: Worker) -> Worker {
    Worker { job: worker.job.clone().with(|job| job.attributes.metadata = true), ..worker }
}

/// A worker that comes after others, and finds nothing left in the end; how many ranges it sent.
pub async fn work_on(world: &World, spec: &Spec, gone: &'static str) -> usize {
    let sent = Arc::new(AtomicUsize::new(0));
    let counts = sent.clone();
    let sink = On(move |event: &Event| {
        if matches!(event, Event::RangeDone { .. }) {
            counts.fetch_add(1, Relaxed);
        }
    });
    let worker = with_metadata(world.worker("last", spec, Arc::new(sink)));
    let ended = Worker { gone: Arc::new(move |worker| worker.0 == gone), ..worker }.work().await;
    assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
    sent.load(Relaxed)
}

/// Stops after it has sent a range.
pub async fn begin(world: &World, spec: &Spec) {
    let (stop, sink) = asks_after(1);
    let ended = Worker { stop, ..with_metadata(world.worker("first", spec, sink)) }.work().await;
    assert!(matches!(ended, Ok(WorkerEnd::Stopped)), "{ended:?}");
}

/// The last records of ranges that are in this state.
pub async fn ranges(board: &Board, state: ShardState) -> Vec<Lease<WorkDone>> {
    files(board, state, |stage| matches!(stage, Stage::Range(..))).await
}

/// The last records of large files and ranges that are in this state and at this stage.
pub async fn files(board: &Board, state: ShardState, stage: fn(&Stage) -> bool) -> Vec<Lease<WorkDone>> {
    let mut found = Vec::new();
    for (id, number) in board.look().await.unwrap().latest {
        let record = board.record(&id, number).await.unwrap().unwrap();
        if record.state == state && matches!(&record.rest, RemainingWork::File(file) if stage(&file.stage)) {
            found.push(Lease { id, number, record });
        }
    }
    found
}

/// Writes what no worker writes into a job's directory.
pub async fn spoil(board: &Arc<dyn Store>, id: &str, number: u64) {
    put(board, &format!("1/shards/{id}/{number:010}"), "{").await;
}

/// Has a worker that waits for no lease long do what is left; the lines of errors that it tells.
pub async fn ends(world: &World, spec: &Spec) -> Vec<String> {
    let errors_seen = Arc::new(Mutex::new(Vec::new()));
    let hears = errors_seen.clone();
    let sink = On(move |event: &Event| {
        if let Event::Error(error) = event {
            hears.lock().unwrap().push(error.to_string());
        }
    });
    let mut worker = with_metadata(world.worker("last", spec, Arc::new(sink)));
    (worker.settings.interval, worker.settings.patience) = (Duration::from_millis(10), 2);
    let ended = worker.work().await;
    assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
    errors_seen.lock().unwrap().clone()
}
