//! Large files whose ranges are everybody's.

use super::world::{
    NO_MOUNTS, On, PART, World, asks_after, begin, files, in_parts, large_world, memory, put, put_large, ranges,
    silent, tree, whole, with_metadata, work_on,
};
use futures::FutureExt;
use haul::Cancel;
use haul_core::{ErrorKind, Key, Retry, event::Event};
use haul_fleet::{
    Folder, Spec,
    create::create,
    files::has_write,
    outcome::WorkDone,
    protocol::{Progress, RemainingWork, ShardState, Stage, WorkerId},
    report::{Summary, records},
    worker::{Settings, Worker, WorkerEnd},
};
use haul_mem::MemStore;
use haul_store::{Store, WriteSpec};
use haul_testkit::faults::{Fault, Faulty, Op};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

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
        assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
    }
    let Summary { complete, outcome, shards, .. } = world.summary(&spec).await;
    assert!(complete && shards > 24, "{shards}");
    assert_eq!((outcome.transfers, outcome.bytes, outcome.error_count), (3, 24 * PART as u64 + 7 + 10, 0));
    assert_eq!((outcome.checks, outcome.unchanged), (0, 0));
    assert_eq!(whole(&world.dst, "d/large").await, whole(&world.src, "d/large").await);
    assert!(senders.lock().unwrap().len() > 1, "one worker sent all of it");
    let again = world.worker("late", &spec, silent()).work().await;
    assert!(matches!(again, Ok(WorkerEnd::NothingLeft(_))));
}

#[tokio::test]
async fn an_idle_worker_looks_for_ranges_before_its_next_sign_of_life() {
    let (world, _) = large_world().await;
    let world = World { folder: Folder::new(memory(true)), ..world };
    let spec = Spec { split_files_from: 8 * PART as u64, ..world.spec() };
    let spec = create(&world.folder, spec, (&world.src, &world.dst), 1, (NO_MOUNTS, false), false).await.unwrap();
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
        assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
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
    assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
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
    let spec = create(&world.folder, spec, (&world.src, &world.dst), 2, (NO_MOUNTS, false), false).await.unwrap();
    let ended = with_metadata(world.worker("w", &spec, silent())).work().await;
    assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
    let Summary { outcome, .. } = world.summary(&spec).await;
    assert_eq!((outcome.transfers, outcome.error_count), (1, 0), "{outcome:?}");
    assert_eq!(whole(&world.dst, "d/large").await, whole(&world.src, "d/large").await);
}

#[tokio::test]
async fn ranges_that_a_stopped_worker_sent_are_not_sent_again() {
    let (world, spec) = large_world().await;
    let (stop, sink) = asks_after(9);
    let first = Worker { stop, ..world.worker("first", &spec, sink) }.work().await;
    assert!(matches!(first, Ok(WorkerEnd::Stopped)), "{first:?}");
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
    assert!(matches!(ended, Ok(WorkerEnd::Cancelled)), "{ended:?}");
    let view = world.board().look().await.unwrap();
    let records = records(&world.board(), &spec, &view, &mut BTreeMap::new()).await.unwrap();
    let large = records.values().find(|record| has_write(record)).expect("it was begun");
    let RemainingWork::File(file) = &large.rest else { panic!() };
    let about: serde_json::Value = serde_json::from_str(&file.about).unwrap();
    let token: Vec<u8> = serde_json::from_value(about["token"].clone()).unwrap();
    let writes = world.dst.resumable().unwrap();
    let found = writes.resume(&Key::new("d/large"), &token, Vec::new(), WriteSpec::default()).await;
    assert_eq!(found.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
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
                let held = ranges(&board, ShardState::Held).await;
                assert_eq!(held.len(), 1);
                for range in held.into_iter().chain(ranges(&board, ShardState::Open).await) {
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
    assert!(matches!(ended, Ok(WorkerEnd::Stopped)), "{ended:?}");
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
                let held = files(&board, ShardState::Held, |stage| *stage == Stage::Begun).await;
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
    assert!(matches!(ended, Ok(WorkerEnd::Stopped)), "{ended:?}");
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
    let of = ranges(&world.board(), ShardState::Open).await[0].id.parent().unwrap();
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
        let mut range = ranges(&world.board(), ShardState::Open).await.swap_remove(0);
        range.number += 1;
        let RemainingWork::File(file) = &mut range.record.rest else { panic!() };
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

#[tokio::test]
async fn interruptions_use_up_no_tries_of_a_range() {
    for (failures, errors) in [(0, 0), (5, 1)] {
        let (world, spec) = large_world().await;
        put(&world.dst, "d/a", "small").await;
        put(&world.dst, "e", "small").await;
        begin(&world, &spec).await;
        for mut range in ranges(&world.board(), ShardState::Open).await {
            for n in 0..30 {
                let held = range.claimed(&WorkerId("interrupted".into()));
                let back = Progress::GivesBack(None, WorkDone::default(), Vec::new());
                range = held.with(if n < failures { Progress::Fails } else { back });
                assert!(world.board().write(&held).await.unwrap() && world.board().write(&range).await.unwrap());
            }
        }
        let busy = Fault::Fail(ErrorKind::Busy, Retry::Backoff);
        let mut worker = with_metadata(world.worker("last", &spec, silent()));
        worker.cx.dst = Arc::new(Faulty::new(world.dst.clone()).on(Op::Part, 1, busy));
        (worker.settings.shards, worker.job.pace.file_retries) = (1, 0);
        let ended = worker.work().await;
        assert!(matches!(ended, Ok(WorkerEnd::NothingLeft(_))), "{ended:?}");
        let outcome = world.summary(&spec).await.outcome;
        assert_eq!(outcome.error_count, errors, "{failures} failures before: {outcome:?}");
    }
}

#[tokio::test]
async fn a_range_that_one_worker_may_not_send_is_sent_by_another() {
    let (world, spec) = large_world().await;
    let reported = Arc::new(Mutex::new(Vec::new()));
    let hears = reported.clone();
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
    assert_eq!(*reported.lock().unwrap(), [ErrorKind::Cancelled], "it is no failure of the file");
    assert!(work_on(&world, &spec, "").await > 0);
    let outcome = world.summary(&spec).await.outcome;
    assert_eq!((outcome.transfers, outcome.error_count), (3, 0), "{outcome:?}");
}
