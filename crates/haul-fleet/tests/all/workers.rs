//! Workers at one job, all in this process, on stores in memory: what they do together is what one run does, and is counted once.

use super::world::{On, World, memory, put, silent, tree};
use futures::FutureExt;
use haul::Cancel;
use haul_core::{
    ErrorKind, Key, Result, Retry,
    event::{Event, Sink},
    part::KeyRange,
};
use haul_fleet::{
    Board, Folder, Spec,
    cuts::cuts,
    report::Summary,
    worker::{Settings, Worker, WorkerEnd},
};
use haul_store::Store;
use haul_testkit::faults::{Fault, Faulty, Op};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Empties a store at once: one in memory needs no waiting.
fn purge(store: &Arc<dyn Store>) {
    let all = tree(store).now_or_never().expect("memory answers at once");
    let keys = all.keys().map(|key| (Key::new(key), None)).collect();
    store.delete(keys).now_or_never().expect("memory answers at once").into_iter().collect::<Result<()>>().unwrap();
}

#[tokio::test]
async fn four_workers_do_what_one_run_does() {
    let world = World::new(true).await;
    let spec = world.create(8).await.unwrap();
    assert!(spec.cuts.len() >= 5 && !spec.ends.witnesses.is_empty() && !spec.fixed, "{spec:?}");
    let workers = (0..4).map(|n| world.worker(&format!("w{n}"), &spec, silent()).work());
    for ended in futures::future::join_all(workers).await {
        assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
    }
    world.check(&spec).await;
    assert!(world.board().look().await.unwrap().signs.is_empty(), "they took their signs away");
    let late = world.worker("late", &spec, silent()).work().await;
    assert!(matches!(late, Ok(WorkerEnd::NothingLeft(_))));
}

#[tokio::test]
async fn the_tasks_of_one_worker_do_not_claim_what_another_of_them_has_claimed() {
    let world = World::new(true).await;
    let spec = world.create(2).await.unwrap();
    let worker = world.worker("w", &spec, silent());
    let settings = Settings { shards: 4, ..worker.settings.clone() };
    let ended = Worker { settings, ..worker }.work().await;
    assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
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
    assert!(matches!(ended, Ok(WorkerEnd::Stopped)), "{ended:?}");
    let half = world.summary(&spec).await;
    assert!(!half.complete && half.held == 0 && half.outcome.transfers > 0, "{half:?}");
    let second = world.worker("second", &spec, silent()).work().await;
    assert!(matches!(second, Ok(WorkerEnd::NothingLeft(_))), "{second:?}");
    world.check(&spec).await;
}

#[tokio::test]
async fn a_new_worker_soon_sees_a_worker_that_starts_a_little_later() {
    let world = World::new(true).await;
    let spec = world.create(8).await.unwrap();
    let slow: Arc<dyn Sink> = Arc::new(On(|event: &Event| {
        if matches!(event, Event::Decided { .. }) {
            std::thread::sleep(Duration::from_millis(4));
        }
    }));
    // All of it takes less than a quarter of an interval.
    let start = |name, heard: Arc<AtomicUsize>| {
        let worker = world.worker(name, &spec, slow.clone());
        let settings = Settings { interval: Duration::from_secs(16), shards: 1, ..worker.settings.clone() };
        Worker { settings, living: Arc::new(move |living| _ = heard.fetch_max(living, Relaxed)), ..worker }.work()
    };
    let heard = Arc::<AtomicUsize>::default();
    let first = start("first", heard.clone());
    let second = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        start("second", Arc::default()).await
    };
    let (first, second) = tokio::join!(first, second);
    assert!(
        matches!((&first, &second), (Ok(WorkerEnd::NothingLeft(_)), Ok(WorkerEnd::NothingLeft(_)))),
        "{first:?}, {second:?}"
    );
    assert_eq!(heard.load(Relaxed), 2);
    world.check(&spec).await;
}

#[tokio::test]
async fn a_waiting_worker_gets_a_part_of_another_workers_shard() {
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
        assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
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
        assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
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
        assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
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
    assert!(matches!(world.worker("w", &spec, silent()).work().await, Ok(WorkerEnd::Cancelled)));
    assert!(world.summary(&spec).await.cancelled);
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
    assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
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

/// A shard that deletes nothing because of an error in it is no reason to end: all others are done, and delete.
#[tokio::test]
async fn an_error_keeps_what_is_extra_in_its_own_shard_alone() {
    let world = World::new(true).await;
    let spec = world.create(4).await.unwrap();
    let denied = Fault::Fail(ErrorKind::Denied, Retry::Never);
    let mut worker = world.worker("one", &spec, silent());
    worker.cx.src = Arc::new(Faulty::new(world.src.clone()).on(Op::Read, 3, denied));
    let ended = worker.work().await;
    assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
    let Summary { complete, outcome, .. } = world.summary(&spec).await;
    let extra = tree(&world.dst).await.keys().filter(|key| key.ends_with(".old")).count();
    assert!(complete && outcome.error_count > 0, "{outcome:?}");
    assert!((1..40).contains(&extra) && outcome.deletes as usize + extra == 50, "{extra} are left of 50: {outcome:?}");
}
