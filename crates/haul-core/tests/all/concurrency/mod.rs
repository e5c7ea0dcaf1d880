//! The concurrency controller against a simulated store: each situation that ADR 6 names, with bounds on goodput beside
//! the best fixed number (found by sweeping the same simulation), on throttled requests, and on the time to find it.

mod simulation;

use haul_core::concurrency::{Controller, Limit, RequestResult, Settings, Wait};
use simulation::{Caller, Random, Sizes, Store, World};
use std::time::Duration;

const MB: f64 = 1e6;
const SEEDS: std::ops::Range<u64> = 1..5;

fn found() -> Settings {
    Settings { pinned: None, start: 32, max: 256 }
}

fn fixed(n: usize) -> Settings {
    Settings { pinned: Some(n), start: n, max: n }
}

fn kilobyte(_: &mut Random) -> f64 {
    1e3
}

fn megabyte(_: &mut Random) -> f64 {
    MB
}

fn part(_: &mut Random) -> f64 {
    8.0 * 1_048_576.0
}

fn long_part(_: &mut Random) -> f64 {
    16.0 * 1_048_576.0
}

/// 60 % of 1 kB, 30 % of 1 MB, 10 % of 16 MiB.
fn mixed(random: &mut Random) -> f64 {
    match random.unit() {
        u if u < 0.6 => 1e3,
        u if u < 0.9 => MB,
        _ => 16.0 * 1_048_576.0,
    }
}

/// 25 MB/s a connection, 250 MB/s in all, falling beyond ten.
fn knee() -> Store {
    Store { total: 250.0 * MB, connection: 25.0 * MB, knee: 10.0, falls: 0.05, ..Store::default() }
}

fn writes() -> Store {
    Store { latency: 1.29, sigma: 0.1, refusal: 1.29, bucket: Some((5.0, 5.0)), ..Store::default() }
}

fn reads() -> Store {
    Store { latency: 0.31, sigma: 0.1, refusal: 0.31, bucket: Some((10.75, 5.0)), ..Store::default() }
}

fn run(store: &Store, settings: Settings, sizes: Sizes, until: f64, seed: u64) -> World {
    let mut world = World::new(store.clone(), vec![Caller::new(settings, sizes, seed)], seed);
    world.run(until);
    world
}

/// The most bytes a second from 5 s on that any fixed number gets.
fn best(store: &Store, sizes: Sizes, seed: u64) -> f64 {
    let all = [4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256];
    all.map(|n| run(store, fixed(n), sizes, 25.0, seed).callers[0].log.bytes(5.0, 25.0)).into_iter().fold(0.0, f64::max)
}

#[test]
fn a_run_of_a_second_and_a_half_takes_no_longer_than_the_best_fixed_number() {
    let store = Store { sigma: 0.2, total: 700.0 * MB, absorbs: 2.0 * MB, ..Store::default() };
    let job = |settings, seed| {
        let mut caller = Caller::new(settings, megabyte, seed);
        caller.todo = 1000;
        let mut world = World::new(store.clone(), vec![caller], seed);
        world.run(100.0);
        world.callers[0].log.end()
    };
    for seed in SEEDS {
        let best = [16, 32, 64, 128, 256].map(|n| job(fixed(n), seed)).into_iter().fold(f64::INFINITY, f64::min);
        let took = job(found(), seed);
        println!("seed {seed}: {took:.2} s, best {best:.2} s");
        assert!(took <= 1.1 * best);
    }
}

#[test]
fn a_rate_limit_is_used_to_nine_tenths_with_one_request_in_fifty_throttled() {
    for (name, store) in [("writes", writes()), ("reads", reads())] {
        for (refusal, burst) in [(0.05, 5.0), (0.05, 10.0), (store.latency, 5.0), (store.latency, 10.0)] {
            for seed in SEEDS {
                let rate = store.bucket.unwrap().0;
                let store = Store { refusal, bucket: Some((rate, burst)), ..store.clone() };
                let world = run(&store, found(), kilobyte, 180.0, seed);
                let log = &world.callers[0].log;
                let used = log.requests(0.0, 180.0) / rate;
                let (first, _) = log.throttled(0.0, 10.0);
                let (after, of) = log.throttled(10.0, 1e9);
                println!("{name} {refusal} {burst} seed {seed}: {used:.3} of the rate, {first} then {after} of {of}");
                assert!(used >= 0.9);
                assert!(first <= 35);
                assert!((after as f64) < 0.02 * of as f64);
            }
        }
    }
}

#[test]
fn a_small_start_floods_no_service_with_a_low_request_rate() {
    // Files on a Drive: three a second, each after a question that isn't counted.
    for latency in [0.1, 0.5, 1.29] {
        let store = Store { latency, sigma: 0.1, refusal: latency, bucket: Some((3.0, 5.0)), ..Store::default() };
        let of = |start, seed| {
            let mut caller = Caller::new(Settings { start, ..found() }, kilobyte, seed);
            caller.todo = 400;
            let mut world = World::new(store.clone(), vec![caller], seed);
            world.run(300.0);
            let log = &world.callers[0].log;
            (log.throttled(0.0, 300.0), log.end())
        };
        for seed in SEEDS {
            let (((few, all), took), ((many, _), _)) = (of(4, seed), of(32, seed));
            println!("{latency} seed {seed}: {few} of {all} in {took:.1} s, {many} where it begins with 32");
            assert!(few as f64 <= 0.03 * (all + 400) as f64 && few * 5 <= many * 4);
            assert!(took <= 1.05 * 400.0 / 3.0);
        }
    }
}

#[test]
fn a_knee_is_found_and_held() {
    for (name, sizes, part_of_best) in
        [("1 MB", megabyte as Sizes, 0.92), ("8 MiB", part, 0.95), ("16 MiB", long_part, 0.92), ("mixed", mixed, 0.85)]
    {
        for seed in SEEDS {
            let store = Store { sigma: 0.1, ..knee() };
            let best = best(&store, sizes, seed);
            let world = run(&store, found(), sizes, 60.0, seed);
            let log = &world.callers[0].log;
            let (got, (mean, most)) = (log.bytes(10.0, 60.0), log.limit(20.0, 60.0));
            println!("{name} seed {seed}: {:.3} of the best, {mean:.1} at once, at most {most}", got / best);
            assert!(got >= part_of_best * best);
            // Ten bodies flow at the knee; parts spend a tenth of their time on latency, 1 MB more than half.
            if name != "1 MB" && name != "mixed" {
                assert!((9.0..16.5).contains(&mean), "{mean}");
            }
        }
    }
}

#[test]
fn a_change_of_conditions_is_followed() {
    let changes: [(&str, simulation::Change); 5] = [
        ("total halves", (30.0, |s| s.total /= 2.0)),
        ("total and knee double", (30.0, |s| (s.total, s.knee) = (s.total * 2.0, s.knee * 2.0))),
        ("latency x4", FARTHER),
        ("connections halve", (30.0, |s| (s.connection, s.knee) = (s.connection / 2.0, s.knee * 2.0))),
        ("total and knee halve", (30.0, |s| (s.total, s.knee) = (s.total / 2.0, s.knee / 2.0))),
    ];
    for (size, sizes) in [("1 MB", megabyte as Sizes), ("8 MiB", part)] {
        for (name, change) in &changes {
            for seed in SEEDS {
                let (soon, later) = after_change(*change, sizes, seed);
                println!("{size} {name} seed {seed}: {soon:.2} of the best after 10 s, {later:.2} after 20 s");
                assert!(soon >= 0.7);
                assert!(later >= 0.8);
            }
        }
    }
}

/// The window in which it changes is half old and half new: steps that are compared with it are judged wrongly.
#[test]
fn a_change_is_not_judged_by_the_window_it_falls_into() {
    let (mut slow, mut stuck) = (0, 0);
    for seed in 1..=40 {
        let (soon, later) = after_change(FARTHER, megabyte, seed);
        slow += u32::from(soon < 0.7);
        stuck += u32::from(later < 0.8);
    }
    println!("of 40: {slow} below 0.7 after 10 s, {stuck} below 0.8 after 20 s");
    assert!(slow <= 4);
    assert!(stuck <= 1);
}

/// Four times as many at once are needed.
const FARTHER: simulation::Change = (30.0, |s| s.latency *= 4.0);

/// Goodput from 10 to 20 s and from 20 to 40 s after a change, as parts of the best that can be had then.
fn after_change(change: simulation::Change, sizes: Sizes, seed: u64) -> (f64, f64) {
    let store = Store { sigma: 0.1, ..knee() };
    let mut changed = store.clone();
    change.1(&mut changed);
    let best = best(&changed, sizes, seed);
    let mut world = World::new(store, vec![Caller::new(found(), sizes, seed)], seed);
    world.changes.push(change);
    world.run(70.0);
    let log = &world.callers[0].log;
    (log.bytes(40.0, 50.0) / best, log.bytes(50.0, 70.0) / best)
}

#[test]
fn noise_neither_collapses_it_nor_drives_it_up() {
    let store = Store { sigma: 0.5, ..knee() };
    for (name, sizes, part_of_best) in [("1 MB", megabyte as Sizes, 0.9), ("8 MiB", part, 0.9), ("mixed", mixed, 0.75)]
    {
        for seed in SEEDS {
            let best = best(&store, sizes, seed);
            let world = run(&store, found(), sizes, 120.0, seed);
            let log = &world.callers[0].log;
            let (got, (mean, most)) = (log.bytes(10.0, 120.0), log.limit(60.0, 120.0));
            println!("{name} seed {seed}: {:.3} of the best, {mean:.1} at once, at most {most}", got / best);
            assert!(got >= part_of_best * best);
            assert!(most < 200);
        }
    }
}

#[test]
fn two_callers_share_a_link_and_a_rate() {
    let link = Store { sigma: 0.1, ..knee() };
    for (name, store, sizes) in [
        ("1 MB", &link, megabyte as Sizes),
        ("8 MiB", &link, part),
        ("writes", &writes(), kilobyte),
        ("reads", &reads(), kilobyte),
    ] {
        for begins in [0.0, 20.0] {
            for seed in SEEDS {
                let mut second = Caller::new(found(), sizes, seed + 100);
                second.begins = begins;
                let mut world = World::new(store.clone(), vec![Caller::new(found(), sizes, seed), second], seed);
                world.run(220.0);
                let [a, b] = [0, 1].map(|i| world.callers[i].log.requests(60.0, 220.0));
                let alone = match store.bucket {
                    Some((rate, _)) => rate,
                    None => {
                        let mut random = Random(0);
                        best(store, sizes, seed) / sizes(&mut random)
                    }
                };
                let (share, total) = (a.min(b) / a.max(b), (a + b) / alone);
                println!(
                    "{name} second after {begins} s seed {seed}: 1 to {:.2}, {total:.2} of one alone",
                    1.0 / share
                );
                assert!(share >= 1.0 / 3.0);
                assert!(total >= 0.7);
            }
        }
    }
}

#[test]
fn a_raised_rate_is_found() {
    for seed in SEEDS {
        let mut world = World::new(writes(), vec![Caller::new(found(), kilobyte, seed)], seed);
        world.changes.push((60.0, |s| s.bucket = Some((20.0, 10.0))));
        world.run(220.0);
        let got = world.callers[0].log.requests(150.0, 220.0);
        println!("seed {seed}: {got:.1} of 20 a second");
        assert!(got >= 18.0);
    }
}

#[test]
fn a_caller_who_wants_three_at_once_leaves_the_limit_alone() {
    let mut caller = Caller::new(found(), kilobyte, 1);
    caller.demand = |now| if now < 30.0 { 3 } else { usize::MAX };
    let mut world = World::new(Store { sigma: 0.3, ..Store::default() }, vec![caller], 1);
    world.run(29.9);
    let (mean, most) = world.callers[0].log.limit(0.0, 29.9);
    assert_eq!((mean, most), (32.0, 32));
    world.run(35.0);
    let got = world.callers[0].log.requests(32.0, 35.0);
    assert!(got > 2000.0, "{got} of 5120 a second that 256 at once bring");
}

#[test]
fn a_pinned_number_stays() {
    let store = Store { sigma: 0.1, bucket: Some((100.0, 10.0)), ..Store::default() };
    let world = run(&store, fixed(24), kilobyte, 60.0, 1);
    let log = &world.callers[0].log;
    assert!(log.limits.iter().all(|l| l.1 == 24 && l.2 <= 24));
    let (throttled, of) = log.throttled(10.0, 60.0);
    let rate = log.requests(10.0, 60.0);
    println!("{rate:.1} a second, {throttled} of {of} throttled");
    assert!(rate > 88.0 && (throttled as f64) < 0.03 * of as f64);
    // Nothing throttles: as many as pinned, all the time.
    let world = run(&Store { sigma: 0.1, ..Store::default() }, fixed(24), kilobyte, 10.0, 1);
    assert!(world.callers[0].log.limits.iter().skip(1).all(|l| l.2 == 24));
}

#[test]
fn stray_throttling_is_no_rate() {
    let store = Store { chance: 0.01, sigma: 0.1, total: 700.0 * MB, ..Store::default() };
    for seed in SEEDS {
        let got = run(&store, found(), megabyte, 40.0, seed).callers[0].log.requests(10.0, 40.0);
        println!("seed {seed}: {got:.0} of 700 a second");
        assert!(got >= 450.0);
    }
}

#[test]
fn a_limited_number_of_connections_is_kept() {
    for (takes, seed) in [(20, 1), (20, 2), (100, 1), (100, 2)] {
        let store = Store { takes, sigma: 0.1, refusal: 0.01, ..Store::default() };
        let world = run(&store, found(), kilobyte, 60.0, seed);
        let log = &world.callers[0].log;
        let (throttled, of) = log.throttled(10.0, 60.0);
        let part = log.requests(10.0, 60.0) / (takes as f64 / 0.05);
        println!("{takes} seed {seed}: {part:.2} of what they can, {throttled} of {of} refused");
        assert!(part >= 0.7 && (throttled as f64) < 0.03 * of as f64);
    }
}

#[test]
fn dropped_connections_are_too_many_connections() {
    for (takes, seed) in [(10, 1), (10, 2), (20, 1), (100, 1)] {
        let store = Store { takes, drops: true, sigma: 0.1, connection: 25.0 * MB, refusal: 0.001, ..Store::default() };
        let world = run(&store, found(), part, 40.0, seed);
        let log = &world.callers[0].log;
        let (dropped, of) = log.throttled(2.0, 40.0);
        let part = log.bytes(2.0, 40.0) / (takes as f64 * 25.0 * MB * 0.33 / 0.385);
        println!("{takes} seed {seed}: {part:.2} of what they can, {dropped} of {of} dropped");
        assert!(part >= 0.85 && (dropped as f64) < 0.08 * of as f64);
    }
}

/// Each request more costs a little of what all get, too little to be seen at once.
#[test]
fn on_busy_processors_few_are_enough() {
    let store = Store {
        latency: 0.001,
        sigma: 0.3,
        connection: 400.0 * MB,
        total: 1000.0 * MB,
        knee: 3.0,
        falls: 0.004,
        here: true,
        ..Store::default()
    };
    for seed in SEEDS {
        let (mean, most) = run(&store, found(), part, 20.0, seed).callers[0].log.limit(3.0, 20.0);
        assert!(mean < 16.0 && most <= 32, "seed {seed}: {mean} on average, {most} at most");
    }
}

/// Processors that are busy where more at once bring more are no reason to stop short of it.
#[test]
fn where_the_link_is_the_limit_busy_processors_change_nothing() {
    let far = Store { connection: 25.0 * MB, total: 4000.0 * MB, here: true, ..Store::default() };
    for seed in SEEDS {
        for store in [&Store { here: true, ..knee() }, &far] {
            let away = Store { here: false, ..store.clone() };
            let bytes = |store: &Store| run(store, found(), part, 25.0, seed).callers[0].log.bytes(5.0, 25.0);
            assert!(bytes(store) > 0.9 * bytes(&away), "seed {seed}");
        }
    }
}

#[test]
fn a_fault_now_and_then_costs_no_concurrency() {
    for seed in SEEDS {
        let store = Store { chance: 0.03, drops: true, sigma: 0.1, total: 700.0 * MB, ..Store::default() };
        let got = run(&store, found(), megabyte, 20.0, seed).callers[0].log.bytes(2.0, 20.0) / (700.0 * MB);
        println!("seed {seed}: {got:.2}");
        assert!(got >= 0.9);
    }
}

#[test]
fn throttling_halves_once_a_round_trip() {
    let at = Duration::from_millis;
    let mut lane = Controller::new(Settings { pinned: None, start: 32, max: 64 });
    let mut tickets: Vec<_> = (0..12).map(|_| lane.start(at(0)).unwrap()).collect();
    assert!(matches!(lane.start(at(0)), Err(Wait::For(_))), "the others are spread");
    // Twelve were sent; the twelve refusals of one round trip halve once.
    for ticket in tickets.drain(..) {
        lane.finish(at(50), ticket, RequestResult::Throttled(None));
    }
    assert_eq!(lane.shown(at(50)).limit, 6);
    assert!(lane.shown(at(50)).rate.is_some());
    assert_eq!(lane.shown(at(50)).by, Limit::Rate);
}

#[test]
fn retry_after_holds_the_lane_for_exactly_that_long() {
    for settings in [found(), fixed(8)] {
        let mut lane = Controller::new(settings);
        let (a, b) = (lane.start(Duration::ZERO).unwrap(), lane.start(Duration::ZERO).unwrap());
        let now = Duration::from_millis(40);
        lane.finish(now, a, RequestResult::Throttled(Some(Duration::from_secs(7))));
        assert_eq!(lane.start(now).unwrap_err(), Wait::For(Duration::from_secs(7)));
        // A shorter one doesn't shorten it.
        lane.finish(Duration::from_secs(1), b, RequestResult::Throttled(Some(Duration::from_secs(2))));
        assert_eq!(lane.start(Duration::from_secs(3)).unwrap_err(), Wait::For(Duration::from_millis(4040)));
        assert!(lane.start(Duration::from_millis(7040)).is_ok());
    }
    let store = Store { bucket: Some((50.0, 20.0)), retry_after: Some(2.0), sigma: 0.1, ..Store::default() };
    let world = run(&store, found(), kilobyte, 60.0, 1);
    let log = &world.callers[0].log;
    for refused in log.ended.iter().filter(|e| e.3) {
        assert!(!log.started.iter().any(|s| *s > refused.1 + 1e-6 && *s < refused.1 + 2.0 - 1e-6));
    }
}

#[test]
fn failures_say_nothing_of_load() {
    let mut lane = Controller::new(found());
    for round in 0..200u64 {
        let now = Duration::from_millis(round * 50);
        let mut tickets = Vec::new();
        while let Ok(ticket) = lane.start(now) {
            tickets.push(ticket);
        }
        for ticket in tickets {
            lane.finish(now + Duration::from_millis(50), ticket, RequestResult::Failed);
        }
    }
    let shown = lane.shown(Duration::from_secs(10));
    assert_eq!((shown.limit, shown.in_flight, shown.rate), (32, 0, None));
}
