//! The lease protocol under every schedule of a small world: workers that list, claim, work, split, give back, die, sleep through
//! their leases and wake up again, and answers that are lost. The decisions are those of `haul_fleet::protocol`, which the workers
//! run; only the store and the work are made up here.

use haul_core::{Key, part::KeyRange};
use haul_fleet::protocol::{
    Answer, Choice, Found, Lease, Meaning, Progress, Record, Seen, ShardId, State, WorkerId, choose, meaning,
};
use haul_testkit::{amount::rounds, chance::Chance};
use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

/// What is explored.
#[derive(Clone, Copy)]
struct Bounds {
    workers: usize,
    keys: u8,
    shards: usize,
    splits: u8,
    crashes: u8,
    lost_answers: u8,
    /// Nobody claims a shard that has this many records: else the world would have no end.
    records: u64,
    /// A listing is read record by record while others write; else at once.
    slow_listings: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    store: BTreeMap<(ShardId, u64), Record<u8>>,
    /// Which keys were settled, by whomever and how often.
    settled: Vec<bool>,
    workers: Vec<Worker>,
    splits: u8,
    crashes: u8,
    lost_answers: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Worker {
    me: WorkerId,
    lives: u8,
    doing: Doing,
}

type Place = (ShardId, u64);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    /// It has read the listing up to there.
    Lists(Option<Place>, BTreeMap<ShardId, (u64, Record<u8>)>),
    /// It makes sure that these have their first records, and then writes, or goes on if there is nothing to write.
    Bears(Vec<Lease<u8>>, Lease<u8>, Option<Lease<u8>>),
    Writes(Lease<u8>),
    Looks(Lease<u8>),
    Holds(Lease<u8>, Option<Key>, u8),
    Over,
}

fn key(number: u8) -> Key {
    Key::new([b'a' + number])
}

impl World {
    fn new(bounds: &Bounds) -> World {
        let maker = WorkerId("maker".into());
        let cuts = (1..bounds.shards).map(|n| key((n * usize::from(bounds.keys) / bounds.shards) as u8 - 1));
        let cuts: Vec<Key> = cuts.collect();
        let pieces = KeyRange::default().pieces(&cuts).into_iter().enumerate();
        let first = |(at, range)| ((ShardId::first(at), 0), Record::first(&maker, range));
        let worker = |n| Worker { me: WorkerId(format!("w{n}")), lives: 0, doing: Doing::Nothing };
        World {
            store: pieces.map(first).collect(),
            settled: vec![false; usize::from(bounds.keys)],
            workers: (0..bounds.workers).map(worker).collect(),
            splits: bounds.splits,
            crashes: bounds.crashes,
            lost_answers: bounds.lost_answers,
        }
    }

    fn latest(&self) -> BTreeMap<ShardId, (u64, Record<u8>)> {
        self.store.iter().map(|((id, number), record)| (id.clone(), (*number, record.clone()))).collect()
    }

    fn keys_of(&self, range: &KeyRange) -> Vec<u8> {
        (0..self.settled.len() as u8).filter(|n| range.holds(&key(*n))).collect()
    }

    /// Nothing is lost, and nothing counted twice.
    fn check(&self) {
        let latest = self.latest();
        let mut due = vec![0; self.settled.len()];
        let mut counted = 0;
        for (_, record) in latest.values() {
            counted += usize::from(record.outcome);
            let unborn = record.children.iter().filter(|child| !latest.contains_key(&child.id));
            let own = (record.state != State::Done).then_some(&record.rest);
            for range in own.into_iter().chain(unborn.map(|child| &child.range)) {
                self.keys_of(range).into_iter().for_each(|n| due[usize::from(n)] += 1);
            }
        }
        for (n, (due, settled)) in due.iter().zip(&self.settled).enumerate() {
            assert!(*due <= 1, "key {n} is due in {due} shards");
            assert!(*due == 1 || *settled, "key {n} is lost");
        }
        assert_eq!(counted + due.iter().sum::<usize>(), self.settled.len(), "each key is counted once");
        for worker in &self.workers {
            if worker.doing == Doing::Over {
                assert!(self.settled.iter().all(|settled| *settled), "it says that nothing is left");
                assert!(latest.values().all(|(_, record)| record.state == State::Done));
            }
        }
    }

    /// The store's side of a write.
    fn create(&mut self, lease: &Lease<u8>) -> Answer {
        let place = (lease.id.clone(), lease.number);
        if self.store.contains_key(&place) {
            return Answer::Exists;
        }
        self.store.insert(place, lease.record.clone());
        Answer::Created
    }

    fn with(&self, at: usize, doing: Doing) -> World {
        let mut next = self.clone();
        next.workers[at].doing = doing;
        next
    }

    /// What comes after a record that stands.
    fn stands(written: Lease<u8>) -> Doing {
        let births = written.births();
        match written.record.state {
            State::Held if births.is_empty() => Doing::Holds(written, None, 0),
            State::Held => Doing::Bears(births, written, None),
            State::Open | State::Done => Doing::Nothing,
        }
    }

    fn writes(&self, at: usize, lease: Lease<u8>, out: &mut Vec<World>) {
        let after = |world: &World, answer| match meaning(answer) {
            Meaning::Stands => world.with(at, World::stands(lease.clone())),
            Meaning::Look => world.with(at, Doing::Looks(lease.clone())),
        };
        let mut there = self.clone();
        let answer = there.create(&lease);
        out.push(after(&there, answer));
        if self.lost_answers > 0 {
            for mut world in [self.clone(), there] {
                world.lost_answers -= 1;
                out.push(after(&world, Answer::Lost));
            }
        }
    }

    fn chooses(&self, bounds: &Bounds, at: usize, latest: &BTreeMap<ShardId, (u64, Record<u8>)>, out: &mut Vec<World>) {
        let seen: Vec<Seen> = latest
            .iter()
            .map(|(id, (_, record))| Seen { id: id.clone(), state: record.state, by: record.by.clone() })
            .collect();
        // Whoever is silent may be taken for dead at any time: patience only makes it rarer.
        for dead in [false, true] {
            let doing = match choose(&seen, at, |_| dead) {
                Choice::Over => Doing::Over,
                Choice::Wait => Doing::Nothing,
                Choice::Claim(id) if latest[&id].0 >= bounds.records => continue,
                Choice::Claim(id) => {
                    let (number, record) = latest[&id].clone();
                    let base = Lease { id, number, record };
                    let claim = base.claimed(&self.workers[at].me);
                    match base.births() {
                        births if births.is_empty() => Doing::Writes(claim),
                        births => Doing::Bears(births, base, Some(claim)),
                    }
                }
            };
            out.push(self.with(at, doing));
        }
    }

    /// All that may happen next.
    fn steps(&self, bounds: &Bounds) -> Vec<World> {
        (0..self.workers.len()).flat_map(|at| self.steps_of(at, bounds)).collect()
    }

    /// All that a worker may do next, or that may befall it.
    fn steps_of(&self, at: usize, bounds: &Bounds) -> Vec<World> {
        let (worker, mut out) = (&self.workers[at], Vec::new());
        match worker.doing.clone() {
            Doing::Over => return out,
            Doing::Nothing if bounds.slow_listings => out.push(self.with(at, Doing::Lists(None, BTreeMap::new()))),
            Doing::Nothing => self.chooses(bounds, at, &self.latest(), &mut out),
            Doing::Lists(after, mut seen) => {
                let next = self.store.iter().find(|(place, _)| after.as_ref().is_none_or(|after| *place > after));
                match next {
                    None => self.chooses(bounds, at, &seen, &mut out),
                    Some((place, record)) => {
                        seen.insert(place.0.clone(), (place.1, record.clone()));
                        out.push(self.with(at, Doing::Lists(Some(place.clone()), seen)));
                    }
                }
            }
            Doing::Bears(mut births, base, then) => {
                let mut next = self.clone();
                // Whether it was there before makes no difference.
                next.create(&births.remove(0));
                next.workers[at].doing = match (births.is_empty(), then) {
                    (false, then) => Doing::Bears(births, base, then),
                    (true, Some(claim)) => Doing::Writes(claim),
                    (true, None) => Doing::Holds(base, None, 0),
                };
                out.push(next);
            }
            Doing::Writes(lease) => self.writes(at, lease, &mut out),
            Doing::Looks(lease) => {
                let there = self.store.get(&(lease.id.clone(), lease.number));
                out.push(match lease.found(there) {
                    Found::Stands => self.with(at, World::stands(lease)),
                    Found::Lost => self.with(at, Doing::Nothing),
                    Found::Again => self.with(at, Doing::Writes(lease)),
                });
            }
            Doing::Holds(lease, reached, count) => self.holds(at, &lease, &reached, count, &mut out),
        }
        if self.crashes > 0 && worker.doing != Doing::Nothing {
            let mut next = self.with(at, Doing::Nothing);
            next.crashes -= 1;
            next.workers[at].lives += 1;
            next.workers[at].me = WorkerId(format!("w{at}.{}", next.workers[at].lives));
            out.push(next);
        }
        out
    }

    fn holds(&self, at: usize, lease: &Lease<u8>, reached: &Option<Key>, count: u8, out: &mut Vec<World>) {
        let rest = KeyRange { after: reached.clone().or(lease.record.rest.after.clone()), ..lease.record.rest.clone() };
        let left = self.keys_of(&rest);
        match left.first() {
            Some(n) => {
                let mut next = self.with(at, Doing::Holds(lease.clone(), Some(key(*n)), count + 1));
                next.settled[usize::from(*n)] = true;
                out.push(next);
            }
            None => out.push(self.with(at, Doing::Writes(lease.with(Progress::Done(count))))),
        }
        out.push(self.with(at, Doing::Writes(lease.with(Progress::GivesBack(reached.clone(), count)))));
        let Some(reached) = reached else { return };
        if self.splits == 0 {
            return;
        }
        // At any key that it has not reached, or at none.
        for cuts in left.iter().map(|n| vec![key(*n)]).chain([vec![]]) {
            let mut next = self.clone();
            next.splits -= 1;
            next.workers[at].doing = Doing::Writes(lease.with(Progress::Reached(reached.clone(), count, cuts)));
            out.push(next);
        }
    }
}

/// All worlds that can be reached; how many, and in how many of those all workers have ended.
fn explore(bounds: Bounds) -> (usize, usize) {
    let hash = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let first = World::new(&bounds);
    let (mut seen, mut todo, mut ended) = (HashSet::from([hash(&first)]), vec![first], 0);
    while let Some(world) = todo.pop() {
        world.check();
        let steps = world.steps(&bounds);
        if world.workers.iter().all(|worker| worker.doing == Doing::Over) {
            ended += 1;
        } else {
            let at_the_bound = world.store.keys().any(|(_, number)| *number >= bounds.records);
            assert!(at_the_bound || steps.iter().any(|next| *next != world), "nobody can go on");
        }
        todo.extend(steps.into_iter().filter(|next| seen.insert(hash(next))));
    }
    (seen.len(), ended)
}

/// One schedule of a world that is too large for all of them: who comes next, and what befalls him, by chance. Comes to its end.
fn walk(seed: u64, bounds: &Bounds) -> World {
    let (mut world, mut chance) = (World::new(bounds), Chance(seed));
    for _ in 0..1_000_000 {
        if world.workers.iter().all(|worker| worker.doing == Doing::Over) {
            return world;
        }
        let mut next = world.steps_of(chance.below(bounds.workers), bounds);
        // What comes first is how it goes well: else it would take very long.
        let which = if chance.below(4) > 0 { 0 } else { chance.below(next.len()) };
        if which < next.len() {
            world = next.swap_remove(which);
            world.check();
        }
    }
    panic!("seed {seed}: it has no end");
}

/// Worlds grow by ten with each record that a shard may have.
fn one() -> Bounds {
    let records = rounds(3, 4);
    Bounds { workers: 2, keys: 2, shards: 1, splits: 1, crashes: 0, lost_answers: 0, records, slow_listings: false }
}

#[track_caller]
fn holds(bounds: Bounds) {
    let (worlds, ended) = explore(bounds);
    assert!(worlds > 500 && ended > 0, "{worlds} {ended}");
}

#[test]
fn zombies_and_splits() {
    holds(Bounds { keys: 3, ..one() });
}

#[test]
fn lost_answers_to_any_record() {
    holds(Bounds { lost_answers: 1, ..one() });
}

#[test]
fn crashes_at_any_moment() {
    holds(Bounds { crashes: 1, ..one() });
}

#[test]
fn listings_that_others_write_into() {
    holds(Bounds { slow_listings: true, ..one() });
}

#[test]
fn several_shards_and_three_workers() {
    holds(Bounds { workers: 3, shards: 2, splits: 0, records: rounds(2, 3), ..one() });
}

#[test]
fn all_faults_together() {
    holds(Bounds { crashes: 1, lost_answers: 1, ..one() });
    holds(Bounds { keys: 1, splits: 0, crashes: 1, lost_answers: 1, slow_listings: true, records: 2, ..one() });
}

/// Who waits has others split what they have, again and again, while workers die, answers are lost, and whoever is slow is taken for
/// dead.
#[test]
fn twenty_workers_that_split_die_and_sleep() {
    let few = Bounds {
        workers: 20,
        keys: 120,
        shards: 3,
        splits: 100,
        crashes: 40,
        lost_answers: 100,
        records: u64::MAX,
        slow_listings: true,
    };
    let (mut shards, mut splits) = (0, 0);
    for seed in 0..rounds(10, 300) {
        let world = walk(seed, &few);
        shards += world.latest().len();
        splits += usize::from(few.splits - world.splits);
    }
    assert!(shards > 100 && splits > 100, "{shards} shards, {splits} splits");
}
