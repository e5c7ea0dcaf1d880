//! A job's records that can't be read, or are gone.

use super::world::{NO_MOUNTS, PART, World, begin, ends, files, large_world, memory, ranges, silent, spoil, tree};
use haul_core::{ErrorKind, Key};
use haul_fleet::{
    Folder, Spec,
    create::create,
    outcome::WorkDone,
    protocol::{Lease, Progress, Record, RemainingWork, ShardId, ShardState, Stage, WorkerId},
    report::Summary,
};
use haul_store::WriteSpec;
use std::time::Duration;

#[tokio::test]
async fn a_shard_whose_record_cannot_be_read_is_given_up_and_keeps_what_was_counted() {
    let job = memory(true);
    let world = World { folder: Folder::new(job.clone()), ..World::new(true).await };
    let spec = world.create(4).await.unwrap();
    let (id, range) = spec.shards().swap_remove(1);
    let first = Lease {
        id: id.clone(),
        number: 0,
        record: Record::first(&WorkerId(String::new()), RemainingWork::Keys(range)),
    };
    let outcome = WorkDone { transfers: 7, ..WorkDone::default() };
    let held = first.claimed(&WorkerId("dead".into()));
    let back = held.with(Progress::GivesBack(None, outcome, Vec::new()));
    for record in [held, back] {
        assert!(world.board().write(&record).await.unwrap());
    }
    spoil(&job, &id.0, 3).await;
    spoil(&job, &id.0, 4).await;
    let errors_seen = ends(&world, &spec).await;
    let Summary { complete, outcome, .. } = world.summary(&spec).await;
    assert!(complete && outcome.error_count == 1 && outcome.transfers > 7, "{outcome:?}");
    assert_eq!(outcome.errors, errors_seen);
    assert!(
        errors_seen[0].contains(" (shard 000001): its record can't be read: 1/shards/000001/0000000004: read: "),
        "{errors_seen:?}"
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
    // The record of the file itself, once its ranges exist, and the record of a range.
    for of_file in [true, false] {
        let (mut world, _) = large_world().await;
        let job = memory(true);
        world.folder = Folder::new(job.clone());
        let spec = Spec { split_files_from: 8 * PART as u64, ..world.spec() };
        let spec = create(&world.folder, spec, (&world.src, &world.dst), 2, (NO_MOUNTS, false), false).await.unwrap();
        begin(&world, &spec).await;
        let begun = files(&world.board(), ShardState::Open, |stage| *stage == Stage::Begun).await.swap_remove(0);
        let RemainingWork::File(file) = &begun.record.rest else { panic!() };
        let about: serde_json::Value = serde_json::from_str(&file.about).unwrap();
        let token: Vec<u8> = serde_json::from_value(about["token"].clone()).unwrap();
        let lease = if of_file { begun } else { ranges(&world.board(), ShardState::Open).await.swap_remove(0) };
        spoil(&job, &lease.id.0, lease.number + 1).await;
        let errors_seen = ends(&world, &spec).await;
        let Summary { complete, outcome, .. } = world.summary(&spec).await;
        assert!(complete, "{outcome:?}");
        assert_eq!((outcome.transfers, outcome.error_count), (2, 1), "{outcome:?}");
        assert_eq!(outcome.errors, errors_seen);
        assert!(errors_seen[0].starts_with("d/large: copy: its record can't be read: "), "{errors_seen:?}");
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
        let mut lease =
            Lease { id, number: 0, record: Record::first(&WorkerId(String::new()), RemainingWork::Keys(range)) };
        for n in 0..deaths {
            lease = lease.claimed(&WorkerId(format!("dead {n}")));
            assert!(world.board().write(&lease).await.unwrap());
        }
        let errors_seen = ends(&world, &spec).await;
        let Summary { complete, outcome, .. } = world.summary(&spec).await;
        assert!(complete && outcome.error_count == errors && errors_seen == outcome.errors, "{deaths}: {outcome:?}");
        if errors > 0 {
            assert!(errors_seen[0].contains("(shard 000002): 20 workers died while they held it"), "{errors_seen:?}");
        } else {
            world.check(&spec).await;
        }
    }
}

/// A shard that was split off isn't done because no listing shows it: it may be seen late, or be lost.
#[tokio::test]
async fn a_shard_that_was_split_off_is_not_done_where_it_is_not_listed() {
    let job = memory(true);
    let world = World { folder: Folder::new(job.clone()), ..World::new(true).await };
    let spec = world.create(2).await.unwrap();
    let (id, range) = spec.shards().swap_remove(0);
    let first = Lease { id, number: 0, record: Record::first(&WorkerId(String::new()), RemainingWork::Keys(range)) };
    let held = first.claimed(&WorkerId("dead".into()));
    let cut = Progress::Reached(Key::new("d0/0001"), WorkDone::default(), vec![Key::new("d0/0050")], Vec::new());
    let cut = held.with(cut);
    let done = cut.with(Progress::Done(WorkDone::default()));
    for record in [&held, &cut, &done] {
        assert!(world.board().write(record).await.unwrap());
    }
    let mut worker = world.worker("last", &spec, silent());
    (worker.settings.interval, worker.settings.patience) = (Duration::from_millis(10), 2);
    let error = worker.work().await.unwrap_err();
    assert!(error.message().starts_with("the records of shard 000000~000 are gone"), "{error}");
    let Summary { complete, held, .. } = world.summary(&spec).await;
    assert!(!complete && held == 1);
    // Seen late, it is done like any other.
    world.board().create_split_shards(&cut).await.unwrap();
    assert!(ends(&world, &spec).await.is_empty());
    assert!(world.summary(&spec).await.complete);
    assert!(tree(&world.dst).await.contains_key("d0/0051"));
}
