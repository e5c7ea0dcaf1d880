//! The lease protocol under every schedule of a small world: workers that list, claim, work, split, give back, die, sleep through
//! their leases and wake up again, and answers that are lost; large files whose ranges are sent by several and which one finishes,
//! and sources that change meanwhile; records that nobody can read any more, and shards that are given up. The decisions are those of `haul_fleet::protocol`, which the workers run; only the stores and
//! the work are made up here.

use haul_core::{Key, part::KeyRange};
use haul_fleet::protocol::{
    FileShard, Lease, LookResult, Meaning, NextAction, Progress, Record, RemainingWork, ShardId, ShardState, ShardView,
    Stage, WorkerId, WriteResult, choose, meaning, ripen,
};
use haul_testkit::{amount::rounds, chance::Chance};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

/// Bounds of the exploration.
#[derive(Clone, Copy)]
struct Bounds {
    workers: usize,
    keys: u8,
    /// The last key is a large file with this many ranges, if any.
    ranges: u8,
    /// How often its source may turn out to have changed.
    changes: u8,
    shards: usize,
    splits: u8,
    crashes: u8,
    lost_answers: u8,
    /// How many records nobody can read any more.
    spoils: u8,
    /// After this many holders that died a shard is given up.
    deaths: u64,
    /// Nobody claims a shard that has this many records: else the world would have no end. Of keys, of the large file, of its ranges.
    records: u64,
    file_records: u64,
    range_records: u64,
    /// The world begins with the shard of the large file, its only key.
    file_alone: bool,
    /// A listing is read record by record while others write; else at once.
    slow_listings: bool,
}

impl Bounds {
    fn records_of(&self, record: &Record<u8>) -> u64 {
        match &record.rest {
            RemainingWork::Keys(_) | RemainingWork::Nothing => self.records,
            RemainingWork::File(FileShard { stage: Stage::New | Stage::Begun, .. }) => self.file_records,
            RemainingWork::File(_) => self.range_records,
        }
    }

    fn is_given_up(&self, record: &Record<u8>) -> bool {
        record.given_up.is_some() || record.deaths >= self.deaths
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    store: BTreeMap<(ShardId, u64), Record<u8>>,
    /// Records that can't be read.
    spoiled: BTreeSet<Place>,
    spoils: u8,
    /// Which keys were settled, by whomever and how often.
    settled: Vec<bool>,
    /// Writes of the large file that are begun and have not ended, and which of its ranges each has; by number, from 0 on.
    writes: BTreeMap<u8, Vec<bool>>,
    begun: u8,
    published: u8,
    changes: u8,
    /// Writes that a worker began and left without a record, as it died.
    orphans: usize,
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
    Bears(Vec<Lease<u8>>, Box<Lease<u8>>, Option<Box<Lease<u8>>>),
    Writes(Lease<u8>),
    Looks(Lease<u8>),
    Holds(Lease<u8>, Option<Key>, u8, Vec<FileShard>),
    /// It removes a write that it began, and whose record was refused.
    Discards(u8),
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
        let file = FileShard { key: key(bounds.keys - 1), about: String::new(), stage: Stage::New };
        let rest =
            |range| if bounds.file_alone { RemainingWork::File(file.clone()) } else { RemainingWork::Keys(range) };
        let first = |(at, range)| ((ShardId::first(at), 0), Record::first(&maker, rest(range)));
        let worker = |n| Worker { me: WorkerId(format!("w{n}")), lives: 0, doing: Doing::Nothing };
        World {
            store: pieces.map(first).collect(),
            spoiled: BTreeSet::new(),
            spoils: bounds.spoils,
            settled: vec![false; usize::from(bounds.keys)],
            writes: BTreeMap::new(),
            begun: 0,
            published: 0,
            changes: bounds.changes,
            orphans: 0,
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

    /// The keys that this much is due for. Ranges of a file are due with the file.
    fn due_in(&self, rest: &RemainingWork) -> Vec<u8> {
        match rest {
            RemainingWork::Keys(range) => self.keys_of(range),
            RemainingWork::File(FileShard { stage: Stage::New | Stage::Begun, key: large, .. }) => {
                (0..self.settled.len() as u8).filter(|n| key(*n) == *large).collect()
            }
            RemainingWork::File(_) | RemainingWork::Nothing => Vec::new(),
        }
    }

    /// Nothing is lost but what is given up, and nothing counted twice.
    fn check(&self, bounds: &Bounds) {
        let latest = self.latest();
        let mut due = vec![0; self.settled.len()];
        let mut given_up = vec![false; self.settled.len()];
        let mut counted = 0;
        for (id, (_, record)) in &latest {
            counted += usize::from(record.outcome);
            if bounds.is_given_up(record) {
                // Where not even the first record can be read, the error can't say of which keys it is.
                let first = (id.clone(), 0);
                let unread = self.spoiled.contains(&first).then(|| &self.store[&first].rest);
                let all = [Some(&record.rest), unread].into_iter().flatten().flat_map(|rest| self.due_in(rest));
                all.for_each(|n| given_up[usize::from(n)] = true);
                continue;
            }
            let unborn = record.children.iter().filter(|child| !latest.contains_key(&child.id));
            let own = (record.state != ShardState::Done).then_some(&record.rest);
            for rest in own.into_iter().chain(unborn.map(|child| &child.rest)) {
                self.due_in(rest).into_iter().for_each(|n| due[usize::from(n)] += 1);
            }
        }
        for (n, (due, settled)) in due.iter().zip(&self.settled).enumerate() {
            assert!(*due <= 1, "key {n} is due in {due} shards");
            assert!(*due == 1 || *settled || given_up[n], "key {n} is lost");
        }
        let (all, of_given_up) = (self.settled.len(), given_up.iter().filter(|given| **given).count());
        let accounted = counted + due.iter().sum::<usize>();
        assert!(accounted <= all && accounted + of_given_up >= all, "each key is counted once");
        assert!(self.published <= 1, "it is published once");
        if self.workers.iter().any(|worker| worker.doing == Doing::Over) {
            self.check_end(bounds, &latest, &given_up);
        }
    }

    /// Somebody says that nothing is left.
    fn check_end(&self, bounds: &Bounds, latest: &BTreeMap<ShardId, (u64, Record<u8>)>, given_up: &[bool]) {
        assert!(self.settled.iter().zip(given_up).all(|(settled, given_up)| *settled || *given_up));
        // Work is lost with a shard that is given up as its last record can't be read; and a holder that slept gives a child its first
        // record after the parent was given up.
        let given_up = |id: &ShardId| latest.get(id).is_some_and(|(_, record)| record.given_up.is_some());
        let late = |id: &ShardId| given_up(id) || latest.keys().any(|parent| parent.is_above(id) && given_up(parent));
        assert!(latest.iter().all(|(id, (_, record))| record.state == ShardState::Done || late(id)));
        // A worker whose lease was lost may not have removed its write yet.
        let known = self.workers.iter().filter(|worker| self.begun_by(worker).is_some()).count();
        assert!(self.writes.len() <= self.orphans + known, "a write is left behind");
        let is_file = |record: &Record<u8>| matches!(record.rest, RemainingWork::File(_));
        let failed = |record: &Record<u8>| {
            came(record).is_some_and(|what| what != "sent") || is_file(record) && bounds.is_given_up(record)
        };
        let large = latest.values().any(|(_, record)| is_file(record));
        let failed = latest.values().any(|(_, record)| failed(record));
        assert!(!large || failed || self.published == 1, "the large file is there");
    }

    /// The write that a worker has begun and that no record mentions.
    fn begun_by(&self, worker: &Worker) -> Option<u8> {
        match &worker.doing {
            Doing::Discards(write) => Some(*write),
            Doing::Writes(lease) | Doing::Looks(lease) => begins(lease),
            _ => None,
        }
        .filter(|write| self.writes.contains_key(write))
    }

    /// The store's side of a write.
    fn create(&mut self, lease: &Lease<u8>) -> WriteResult {
        let place = (lease.id.clone(), lease.number);
        if self.store.contains_key(&place) {
            return WriteResult::Exists;
        }
        self.store.insert(place, lease.record.clone());
        WriteResult::Created
    }

    fn with(&self, at: usize, doing: Doing) -> World {
        let mut next = self.clone();
        next.workers[at].doing = doing;
        next
    }

    /// Next step after a record that stands.
    fn stands(written: Lease<u8>) -> Doing {
        let births = written.births();
        match written.record.state {
            ShardState::Held if births.is_empty() => Doing::Holds(written, None, 0, Vec::new()),
            ShardState::Held => Doing::Bears(births, Box::new(written), None),
            ShardState::Open | ShardState::Done => Doing::Nothing,
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
                out.push(after(&world, WriteResult::Lost));
            }
        }
    }

    fn chooses(&self, bounds: &Bounds, at: usize, latest: &BTreeMap<ShardId, (u64, Record<u8>)>, out: &mut Vec<World>) {
        let shard = |(id, (number, record)): (&ShardId, &(u64, Record<u8>))| {
            let id = id.clone();
            if self.spoiled.contains(&(id.clone(), *number)) {
                let by = WorkerId::unread(&id, *number);
                return ShardView { id, state: ShardState::Held, by, waits: false };
            }
            ShardView { id, state: record.state, by: record.by.clone(), waits: record.waits() }
        };
        let mut seen: Vec<ShardView> = latest.iter().map(shard).collect();
        ripen(&mut seen);
        // A silent worker may count as dead at any time: patience only makes it rarer.
        for dead in [false, true] {
            let doing = match choose(&seen, at, |_| dead) {
                NextAction::Over => Doing::Over,
                NextAction::Wait => Doing::Nothing,
                NextAction::Claim(id) if latest[&id].0 >= bounds.records_of(&latest[&id].1) => continue,
                NextAction::Claim(id) => {
                    let (number, record) = latest[&id].clone();
                    let me = &self.workers[at].me;
                    if self.spoiled.contains(&(id.clone(), number)) {
                        let claim = self.last_readable(&id, number, me).beyond(number, me, "unread".into());
                        out.push(self.with(at, Doing::Writes(claim)));
                        continue;
                    }
                    let base = Lease { id, number, record };
                    let claim = base.claimed(me);
                    match base.births() {
                        births if births.is_empty() => Doing::Writes(claim),
                        births => Doing::Bears(births, Box::new(base), Some(Box::new(claim))),
                    }
                }
            };
            out.push(self.with(at, doing));
        }
    }

    /// The last record before this one that can be read; one that says nothing if there is none.
    fn last_readable(&self, id: &ShardId, before: u64, me: &WorkerId) -> Lease<u8> {
        let readable = (0..before).rev().find(|number| !self.spoiled.contains(&(id.clone(), *number)));
        let record = readable.map_or_else(
            || Record::first(me, RemainingWork::Nothing),
            |number| self.store[&(id.clone(), number)].clone(),
        );
        Lease { id: id.clone(), number: readable.unwrap_or(0), record }
    }

    /// All that may happen next.
    fn steps(&self, bounds: &Bounds) -> Vec<World> {
        let spoils = self.latest().into_iter().filter(|_| self.spoils > 0).map(|(id, (number, _))| {
            let mut next = self.clone();
            next.spoils -= 1;
            next.spoiled.insert((id, number));
            next
        });
        (0..self.workers.len()).flat_map(|at| self.steps_of(at, bounds)).chain(spoils).collect()
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
                    (true, Some(claim)) => Doing::Writes(*claim),
                    (true, None) => Doing::Holds(*base, None, 0, Vec::new()),
                };
                out.push(next);
            }
            Doing::Writes(lease) => self.writes(at, lease, &mut out),
            Doing::Looks(lease) => {
                let place = (lease.id.clone(), lease.number);
                let found = match self.spoiled.contains(&place) {
                    true => LookResult::Lost,
                    false => lease.found(self.store.get(&place)),
                };
                out.push(match found {
                    LookResult::Stands => self.with(at, World::stands(lease)),
                    LookResult::Lost => self.with(at, begins(&lease).map_or(Doing::Nothing, Doing::Discards)),
                    LookResult::Again => self.with(at, Doing::Writes(lease)),
                });
            }
            Doing::Holds(lease, ..) if bounds.is_given_up(&lease.record) => out.push(self.gives_up(at, &lease)),
            Doing::Holds(lease, reached, count, files) => match &lease.record.rest {
                RemainingWork::Keys(range) => self.holds(at, &lease, range, (&reached, count, files), bounds, &mut out),
                RemainingWork::File(file) => self.holds_file(at, &lease, file, bounds, &mut out),
                RemainingWork::Nothing => out.push(self.with(at, Doing::Writes(lease.with(Progress::Done(0))))),
            },
            Doing::Discards(write) => {
                let mut next = self.with(at, Doing::Nothing);
                next.writes.remove(&write);
                out.push(next);
            }
        }
        if self.crashes > 0 && worker.doing != Doing::Nothing {
            let mut next = self.with(at, Doing::Nothing);
            next.crashes -= 1;
            next.orphans += usize::from(self.begun_by(worker).is_some());
            next.workers[at].lives += 1;
            next.workers[at].me = WorkerId(format!("w{at}.{}", next.workers[at].lives));
            out.push(next);
        }
        out
    }

    /// Its holder removes what it knows to have been begun, and writes down that nobody goes on.
    fn gives_up(&self, at: usize, lease: &Lease<u8>) -> World {
        let writes = |progress| self.with(at, Doing::Writes(lease.with(progress)));
        let stage = match &lease.record.rest {
            RemainingWork::File(file) => &file.stage,
            RemainingWork::Keys(_) | RemainingWork::Nothing => return writes(Progress::Done(0)),
        };
        if matches!(stage, Stage::Range(..)) {
            return writes(Progress::Came("given up".into()));
        }
        let mut next = writes(Progress::Done(0));
        let place = (lease.id.child(0), 0);
        let range = self.store.get(&place).filter(|_| !self.spoiled.contains(&place));
        for rest in [Some(&lease.record.rest), range.map(|record| &record.rest)].into_iter().flatten() {
            if let RemainingWork::File(FileShard { about, .. }) = rest
                && let Ok(write) = about.parse::<u8>()
            {
                next.writes.remove(&write);
            }
        }
        // The write that only the unreadable record mentions.
        let own = self.store.iter().filter(|((id, _), _)| *id == lease.id);
        let unread = own.filter(|(place, _)| self.spoiled.contains(place)).map(|(_, record)| &record.rest);
        let lost = unread.filter(|rest| match rest {
            RemainingWork::File(FileShard { stage: Stage::Begun, about, .. }) => {
                about.parse::<u8>().is_ok_and(|write| next.writes.contains_key(&write))
            }
            _ => false,
        });
        next.orphans += lost.count();
        next
    }

    fn holds(
        &self,
        at: usize,
        lease: &Lease<u8>,
        range: &KeyRange,
        (reached, count, files): (&Option<Key>, u8, Vec<FileShard>),
        bounds: &Bounds,
        out: &mut Vec<World>,
    ) {
        let rest = KeyRange { after: reached.clone().or(range.after.clone()), ..range.clone() };
        let left = self.keys_of(&rest);
        match left.first() {
            Some(n) if bounds.ranges > 0 && n + 1 == bounds.keys => {
                let file = FileShard { key: key(*n), about: String::new(), stage: Stage::New };
                let files = files.iter().cloned().chain([file]).collect();
                out.push(self.with(at, Doing::Holds(lease.clone(), Some(key(*n)), count, files)));
            }
            Some(n) => {
                let mut next = self.with(at, Doing::Holds(lease.clone(), Some(key(*n)), count + 1, files.clone()));
                next.settled[usize::from(*n)] = true;
                out.push(next);
            }
            None if files.is_empty() => out.push(self.with(at, Doing::Writes(lease.with(Progress::Done(count))))),
            None => {
                let settled = lease.with(Progress::Settled(count, files.clone()));
                out.push(self.with(at, Doing::Writes(settled)));
            }
        }
        let given = lease.with(Progress::GivesBack(reached.clone(), count, files.clone()));
        out.push(self.with(at, Doing::Writes(given)));
        let Some(reached) = reached else { return };
        if self.splits == 0 {
            return;
        }
        // At any key that it has not reached, or at none.
        for cuts in left.iter().map(|n| vec![key(*n)]).chain([vec![]]) {
            let mut next = self.clone();
            next.splits -= 1;
            let progress = Progress::Reached(reached.clone(), count, cuts, files.clone());
            next.workers[at].doing = Doing::Writes(lease.with(progress));
            out.push(next);
        }
    }

    fn holds_file(&self, at: usize, lease: &Lease<u8>, file: &FileShard, bounds: &Bounds, out: &mut Vec<World>) {
        let writes = |world: &World, progress| world.with(at, Doing::Writes(lease.with(progress)));
        let back = writes(self, Progress::GivesBack(None, 0, Vec::new()));
        match &file.stage {
            Stage::New => {
                let mut next = self.clone();
                next.writes.insert(next.begun, vec![false; bounds.ranges.into()]);
                let about = next.begun.to_string();
                next.begun += 1;
                let of = |stage| FileShard { about: about.clone(), stage, ..file.clone() };
                let ranges = (0..bounds.ranges.into()).map(|n| of(Stage::Range(n, n + 1))).collect();
                out.push(writes(&next, Progress::Begun(of(Stage::Begun), ranges)));
                out.push(back);
            }
            Stage::Begun => self.finishes(at, lease, write_of(file), out),
            Stage::Range(n, _) => {
                let mut next = self.clone();
                let what = match next.writes.get_mut(&write_of(file)) {
                    Some(has) => {
                        has[*n as usize] = true;
                        "sent"
                    }
                    None => "gone",
                };
                out.push(writes(&next, Progress::Came(what.into())));
                if self.changes > 0 {
                    let mut next = writes(self, Progress::Came("changed".into()));
                    next.changes -= 1;
                    out.push(next);
                }
                out.push(back);
            }
            Stage::Came(_) => unreachable!("it is done"),
        }
    }

    /// The worker that claimed a file whose ranges seemed to be done reads the result of each.
    fn finishes(&self, at: usize, lease: &Lease<u8>, write: u8, out: &mut Vec<World>) {
        let latest = self.latest();
        let readable = |id: &ShardId| latest.get(id).filter(|(n, _)| !self.spoiled.contains(&(id.clone(), *n)));
        let ranges = (0..lease.record.born).map(|n| readable(&lease.id.child(n)));
        let came: Option<Vec<&str>> = ranges.map(|range| range.and_then(|(_, record)| came(record))).collect();
        let Some(came) = came else {
            let back = lease.with(Progress::GivesBack(None, 0, Vec::new()));
            return out.push(self.with(at, Doing::Writes(back)));
        };
        let mut next = self.with(at, Doing::Writes(lease.with(Progress::Done(1))));
        let large = next.settled.len() - 1;
        next.settled[large] = true;
        // A write that is gone was finished by another, or nothing can be done about it.
        if let Some(has) = next.writes.remove(&write)
            && came.iter().all(|what| *what == "sent")
        {
            assert!(has.iter().all(|there| *there), "a range is missing from what is published");
            next.published += 1;
        }
        out.push(next);
    }
}

/// The write of a file, as it is noted in these worlds.
fn write_of(file: &FileShard) -> u8 {
    file.about.parse().unwrap()
}

/// The write that this record would mention for the first time.
fn begins(lease: &Lease<u8>) -> Option<u8> {
    match &lease.record.rest {
        RemainingWork::File(file) if file.stage == Stage::Begun && !lease.record.children.is_empty() => {
            Some(write_of(file))
        }
        _ => None,
    }
}

fn came(record: &Record<u8>) -> Option<&str> {
    match &record.rest {
        RemainingWork::File(FileShard { stage: Stage::Came(what), .. }) => Some(what),
        RemainingWork::Nothing if record.given_up.is_some() && record.state == ShardState::Done => Some("given up"),
        _ => None,
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
        world.check(&bounds);
        let steps = world.steps(&bounds);
        if world.workers.iter().all(|worker| worker.doing == Doing::Over) {
            ended += 1;
        } else {
            let at_the_bound = world.store.iter().any(|((_, number), record)| *number >= bounds.records_of(record));
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
        // The first choice is the good case: otherwise it would take very long.
        let which = if chance.below(4) > 0 { 0 } else { chance.below(next.len()) };
        if which < next.len() {
            world = next.swap_remove(which);
            world.check(bounds);
        }
    }
    panic!("seed {seed}: it has no end");
}

/// Worlds grow by ten with each record that a shard may have.
fn one() -> Bounds {
    let records = rounds(3, 4);
    Bounds {
        workers: 2,
        keys: 2,
        ranges: 0,
        changes: 0,
        shards: 1,
        splits: 1,
        crashes: 0,
        lost_answers: 0,
        spoils: 0,
        deaths: u64::MAX,
        records,
        file_records: 0,
        range_records: 0,
        file_alone: false,
        slow_listings: false,
    }
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

#[test]
fn records_that_nobody_can_read() {
    holds(Bounds { spoils: 1, ..one() });
    holds(Bounds { spoils: 2, splits: 0, ..one() });
    holds(Bounds { keys: 1, spoils: 1, splits: 0, crashes: 1, lost_answers: 1, records: 2, ..one() });
}

#[test]
fn shards_over_which_workers_die() {
    holds(Bounds { deaths: 1, ..one() });
    holds(Bounds { deaths: 2, splits: 0, crashes: 1, spoils: 1, ..one() });
}

/// One large file of two ranges, which the shard of its key has split off already. Each of its shards is claimed once at least.
fn large() -> Bounds {
    let (file_records, range_records) = (rounds(4, 5), 1);
    Bounds { keys: 1, ranges: 2, splits: 0, file_records, range_records, file_alone: true, ..one() }
}

#[test]
fn a_large_file_whose_holders_sleep() {
    holds(large());
    holds(Bounds { ranges: 1, file_records: 5, range_records: 2, ..large() });
}

#[test]
fn a_large_file_that_changes() {
    holds(Bounds { changes: 1, ..large() });
}

#[test]
fn a_large_file_whose_workers_die() {
    holds(Bounds { ranges: 1, range_records: 2, crashes: 1, ..large() });
}

#[test]
fn a_large_file_of_which_a_record_cannot_be_read() {
    holds(Bounds { ranges: 1, spoils: 1, ..large() });
}

#[test]
fn a_large_file_that_is_given_up() {
    holds(Bounds { ranges: 1, range_records: 2, deaths: 1, ..large() });
}

#[test]
fn a_large_file_and_lost_answers() {
    holds(Bounds { ranges: 1, lost_answers: 1, ..large() });
}

#[test]
fn a_large_file_in_listings_that_others_write_into() {
    holds(Bounds { ranges: 1, slow_listings: true, ..large() });
}

/// With a small file before it, in a shard that is split, given back and lost.
#[test]
fn a_large_file_is_split_off_once() {
    let before = Bounds { keys: 2, ranges: 1, splits: 1, records: 2, file_alone: false, ..large() };
    holds(before);
    // The largest of these worlds.
    if rounds(0, 1) > 0 {
        holds(Bounds { splits: 0, crashes: 1, ..before });
    }
}

/// Waiting workers have others split their shards, again and again, while workers die, answers are lost, and slow ones count as
/// dead.
#[test]
fn twenty_workers_that_split_die_and_sleep() {
    let few = Bounds {
        workers: 20,
        keys: 120,
        ranges: 9,
        changes: 0,
        shards: 3,
        splits: 100,
        crashes: 40,
        lost_answers: 100,
        spoils: 0,
        deaths: u64::MAX,
        records: u64::MAX,
        file_records: u64::MAX,
        range_records: u64::MAX,
        file_alone: false,
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
