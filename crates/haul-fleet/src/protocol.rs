//! The lease protocol, pure: what a record says, which shard a worker takes, what it writes next, and what an answer to that means.
//! Workers do what is decided here, and a test searches all schedules of it (`tests/all/model.rs`).
//!
//! A shard is a row of numbered records. A record is created only where no record of that number exists, and never changed: so of
//! two who build on the same record one fails, and a lease that was taken over is lost to whoever held it. The highest number
//! counts.

use haul_core::{
    Key, Version,
    part::{KeyRange, Part},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::AddAssign,
};

/// Names a shard: its number among those that the job was made with, and for one that was split off, its parent's name and which
/// of its children it is. A child's name comes after its parent's and all that begins with that and a `/`: a listing that shows a
/// parent's end shows the children after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub String);

impl ShardId {
    /// One of those that the job was made with, from 0 on.
    pub fn first(number: usize) -> ShardId {
        ShardId(format!("{number:06}"))
    }

    /// The last shard of all: directories through which cuts go. Its name comes after those of all others.
    pub fn finish() -> ShardId {
        ShardId("finish".into())
    }

    /// True for [`ShardId::finish`].
    pub fn is_finish(&self) -> bool {
        self.0 == "finish"
    }

    fn child(&self, number: u64) -> ShardId {
        ShardId(format!("{}~{number:03}", self.0))
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names a worker; no two ever have one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerId(pub String);

/// Who may work at a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Anybody.
    Open,
    /// Who wrote the record.
    Held,
    /// Nobody: there is nothing left.
    Done,
}

/// A shard that was split off.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Child {
    /// Its name.
    pub id: ShardId,
    /// Its keys.
    pub range: KeyRange,
}

/// What is known of a shard. `T` adds up what was done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record<T> {
    /// Who may work at it.
    pub state: State,
    /// Who wrote this.
    pub by: WorkerId,
    /// What is left of it.
    pub rest: KeyRange,
    /// What came of what isn't left.
    pub outcome: T,
    /// Keys at which it was paused or split: directories may go through them.
    pub cuts: Vec<Key>,
    /// What this very record splits off. Whoever builds on the record makes sure first that these have their first records.
    pub children: Vec<Child>,
    /// Children so far.
    pub born: u64,
}

impl<T: Default> Record<T> {
    /// The first record of a shard.
    pub fn first(by: &WorkerId, range: KeyRange) -> Record<T> {
        let (outcome, cuts, children) = (T::default(), Vec::new(), Vec::new());
        Record { state: State::Open, by: by.clone(), rest: range, outcome, cuts, children, born: 0 }
    }
}

/// A record with its place: one that is in the store, or one that is to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease<T> {
    /// Of which shard.
    pub id: ShardId,
    /// Its number there.
    pub number: u64,
    /// What it says.
    pub record: Record<T>,
}

/// What a holder has to say.
#[derive(Clone, Debug)]
pub enum Progress<T> {
    /// It came this far and goes on; what is left is cut at these keys, and only the first piece stays.
    Reached(Key, T, Vec<Key>),
    /// It stops, having come this far (`None`: it can't tell), and leaves the rest to others.
    GivesBack(Option<Key>, T),
    /// Nothing is left.
    Done(T),
}

/// What the store answered to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is there.
    Created,
    /// Something was there before: another's record, or this one, if an answer was lost on the way.
    Exists,
    /// None came: it may be there or not.
    Lost,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The record counts.
    Stands,
    /// What the store has must be looked at.
    Look,
}

/// What a look at the store means, after [`Meaning::Look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The record counts.
    Stands,
    /// Another's record is there: the lease is lost.
    Lost,
    /// Nothing is there: it is to be written again.
    Again,
}

/// Reads an answer.
pub fn meaning(answer: Answer) -> Meaning {
    match answer {
        Answer::Created => Meaning::Stands,
        Answer::Exists | Answer::Lost => Meaning::Look,
    }
}

impl<T: Clone + Default + PartialEq + AddAssign> Lease<T> {
    /// The record by which `me` takes over what `self` leaves to others, or what its holder, taken for dead, holds.
    pub fn claimed(&self, me: &WorkerId) -> Lease<T> {
        let record = Record { state: State::Held, by: me.clone(), children: Vec::new(), ..self.record.clone() };
        Lease { id: self.id.clone(), number: self.number + 1, record }
    }

    /// The record that a holder writes next.
    pub fn with(&self, progress: Progress<T>) -> Lease<T> {
        let mut record = Record { children: Vec::new(), ..self.record.clone() };
        match progress {
            Progress::Reached(key, done, cuts) => {
                record.settle(Some(key), done);
                self.split(&mut record, &cuts);
            }
            Progress::GivesBack(key, done) => {
                record.settle(key, done);
                record.state = State::Open;
            }
            Progress::Done(done) => {
                record.settle(None, done);
                record.state = State::Done;
            }
        }
        Lease { id: self.id.clone(), number: self.number + 1, record }
    }

    fn split(&self, record: &mut Record<T>, cuts: &[Key]) {
        let mut pieces = record.rest.pieces(cuts).into_iter();
        let Some(own) = pieces.next() else { return };
        for range in pieces {
            record.cuts.extend(range.after.clone());
            record.children.push(Child { id: self.id.child(record.born), range });
            record.born += 1;
        }
        record.rest = own;
    }

    /// The first records of what this record splits off.
    pub fn births(&self) -> Vec<Lease<T>> {
        let born = |child: &Child| Lease {
            id: child.id.clone(),
            number: 0,
            record: Record::first(&self.record.by, child.range.clone()),
        };
        self.record.children.iter().map(born).collect()
    }

    /// Is what the store has under this number this record?
    pub fn found(&self, there: Option<&Record<T>>) -> Found {
        match there {
            None => Found::Again,
            Some(there) if *there == self.record => Found::Stands,
            Some(_) => Found::Lost,
        }
    }
}

impl<T: AddAssign> Record<T> {
    fn settle(&mut self, reached: Option<Key>, done: T) {
        self.outcome += done;
        if let Some(key) = reached {
            self.cuts.push(key.clone());
            self.rest.after = Some(key);
        }
    }
}

/// A shard as a worker sees it that has nothing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which.
    pub id: ShardId,
    /// Its state, and who wrote its last record.
    pub state: State,
    /// Who wrote that.
    pub by: WorkerId,
}

/// What a worker that has nothing to do does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It tries to claim this one.
    Claim(ShardId),
    /// It waits: others hold what is left.
    Wait,
    /// Nothing is left.
    Over,
}

/// Chooses among all shards, in order of their names and with the last of all. `start` spreads those who begin together; `is_dead`
/// tells of whom nothing was heard for long enough.
pub fn choose(seen: &[Seen], start: usize, is_dead: impl Fn(&WorkerId) -> bool) -> Choice {
    let (others, last): (Vec<&Seen>, Vec<&Seen>) = seen.iter().partition(|shard| !shard.id.is_finish());
    let start = if others.is_empty() { 0 } else { start % others.len() };
    let turned = others[start..].iter().chain(&others[..start]).copied();
    let claimable = |shard: &&Seen| match shard.state {
        State::Open => true,
        State::Held => is_dead(&shard.by),
        State::Done => false,
    };
    let mut open = turned.clone().filter(|shard| shard.state == State::Open).chain(turned.filter(claimable));
    if let Some(shard) = open.next() {
        return Choice::Claim(shard.id.clone());
    }
    if others.iter().any(|shard| shard.state != State::Done) {
        return Choice::Wait;
    }
    match last.first() {
        None => Choice::Over,
        Some(shard) if shard.state == State::Done => Choice::Over,
        Some(shard) if claimable(shard) => Choice::Claim(shard.id.clone()),
        Some(_) => Choice::Wait,
    }
}

/// How many pieces a holder cuts what it has left into, where `idle` workers wait, `open` shards wait for them, and `holders` hold
/// one.
pub fn pieces(idle: usize, open: usize, holders: usize) -> usize {
    let wanted = idle.saturating_sub(open);
    // More than this at once is paid for in requests, and the next who waits gets his share of what is left then.
    if wanted == 0 { 1 } else { 1 + wanted.div_ceil(holders.max(1)).min(7) }
}

/// Tells dead workers from others without a clock: a worker that lives writes its sign of life anew in each of its intervals. One
/// whose sign this worker sees unchanged in so many looks, each at least an interval of its own after the one before, is taken for
/// dead. It needn't be: then it finds its lease lost.
#[derive(Clone, Debug)]
pub struct Patience {
    looks: u32,
    signs: BTreeMap<WorkerId, (Sign, u32)>,
}

/// A sign of life as a listing shows it.
pub type Sign = Option<Version>;

impl Patience {
    /// Takes a worker for dead after so many looks.
    pub fn new(looks: u32) -> Patience {
        Patience { looks: looks.max(1), signs: BTreeMap::new() }
    }

    /// Takes in what a look shows: the signs of all who have one. `holders` are those who hold something, with a sign or without.
    pub fn look(&mut self, signs: &BTreeMap<WorkerId, Sign>, holders: &BTreeSet<WorkerId>) {
        let mut next = BTreeMap::new();
        for worker in signs.keys().chain(holders) {
            let sign = signs.get(worker).cloned().flatten();
            let unchanged = match self.signs.get(worker) {
                Some((before, times)) if *before == sign => times + 1,
                _ => 0,
            };
            next.insert(worker.clone(), (sign, unchanged));
        }
        self.signs = next;
    }

    /// Nothing was heard of it for long enough.
    pub fn is_dead(&self, worker: &WorkerId) -> bool {
        self.signs.get(worker).is_some_and(|(_, times)| *times >= self.looks)
    }
}

/// The directories that the last shard finishes: those in which a cut is, in order.
pub fn crossed<'c>(cuts: impl IntoIterator<Item = &'c Key>) -> Part {
    let mut dirs = BTreeSet::new();
    for cut in cuts {
        let bytes = cut.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
        dirs.extend(ends.map(|end| Key::new(&bytes[..end])));
    }
    Part::Dirs(dirs.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str) -> WorkerId {
        WorkerId(name.into())
    }

    fn key(text: &str) -> Option<Key> {
        Some(Key::new(text))
    }

    fn lease(after: &str, through: &str) -> Lease<u64> {
        let range = KeyRange { after: key(after), through: key(through) };
        Lease { id: ShardId::first(3), number: 4, record: Record::first(&worker("a"), range) }
    }

    #[test]
    fn a_split_leaves_the_first_piece_and_names_the_others() {
        let held = lease("a", "z").claimed(&worker("b"));
        let next = held.with(Progress::Reached(Key::new("c"), 7, vec![Key::new("b"), Key::new("k"), Key::new("p")]));
        assert_eq!((next.number, next.record.outcome, next.record.born), (6, 7, 2));
        assert_eq!(next.record.rest, KeyRange { after: key("c"), through: key("k") });
        let born: Vec<_> = next.births().into_iter().map(|child| (child.id.0, child.record.rest)).collect();
        assert_eq!(born[0], ("000003~000".into(), KeyRange { after: key("k"), through: key("p") }));
        assert_eq!(born[1], ("000003~001".into(), KeyRange { after: key("p"), through: key("z") }));
        let later = next.with(Progress::Reached(Key::new("d"), 1, vec![Key::new("e")]));
        assert_eq!((later.births()[0].id.0.as_str(), later.record.outcome), ("000003~002", 8));
        assert!(later.with(Progress::Done(0)).births().is_empty());
    }

    #[test]
    fn a_childs_name_comes_after_its_parents_records() {
        let parent = ShardId::first(3);
        let records = format!("s/{parent}/9999999999");
        assert!(format!("s/{}/", parent.child(0)) > records && format!("s/{}/", ShardId::first(4)) > records);
        assert!(ShardId::finish() > ShardId::first(999_999).child(9));
    }

    #[test]
    fn open_shards_go_first_then_those_of_the_dead_and_the_last_only_when_all_are_done() {
        let seen = |states: &str| -> Vec<Seen> {
            let last = states.len() - 1;
            let shard = |(at, state)| Seen {
                id: if at == last { ShardId::finish() } else { ShardId::first(at) },
                state: match state {
                    'o' => State::Open,
                    'd' => State::Done,
                    _ => State::Held,
                },
                by: worker(if state == 'x' { "dead" } else { "alive" }),
            };
            states.chars().enumerate().map(shard).collect()
        };
        let chosen = |states: &str, start| choose(&seen(states), start, |worker| worker.0 == "dead");
        let claim = |at| Choice::Claim(ShardId::first(at));
        assert_eq!(chosen("oooo", 4), claim(1), "the last is not counted");
        assert_eq!((chosen("xodo", 0), chosen("hxho", 0), chosen("hddo", 0)), (claim(1), claim(1), Choice::Wait));
        assert_eq!(chosen("dddo", 7), Choice::Claim(ShardId::finish()));
        assert_eq!(chosen("dddx", 7), Choice::Claim(ShardId::finish()));
        assert_eq!((chosen("dddh", 0), chosen("dddd", 0)), (Choice::Wait, Choice::Over));
        assert_eq!(choose(&[], 3, |_| false), Choice::Over);
    }

    #[test]
    fn who_gives_no_new_sign_for_long_enough_is_taken_for_dead() {
        let mut patience = Patience::new(2);
        let signs = |a: u8, b: u8| {
            let sign = |n: u8| Some(Version(vec![n].into()));
            BTreeMap::from([(worker("a"), sign(a)), (worker("b"), sign(b))])
        };
        let holders = BTreeSet::from([worker("b"), worker("gone")]);
        for (n, dead) in [(1, false), (2, false), (3, true)] {
            patience.look(&signs(n, 1), &holders);
            assert_eq!((patience.is_dead(&worker("a")), patience.is_dead(&worker("b"))), (false, dead), "look {n}");
            assert_eq!(patience.is_dead(&worker("gone")), dead, "it never gave one");
        }
        patience.look(&signs(3, 2), &holders);
        assert!(!patience.is_dead(&worker("b")), "it only slept");
        assert!(!patience.is_dead(&worker("unheard of")), "it was not seen holding anything yet");
    }

    #[test]
    fn holders_split_as_much_as_is_missing() {
        for (idle, open, holders, expected) in
            [(0, 0, 4, 1), (3, 3, 4, 1), (1, 0, 1, 2), (4, 0, 2, 3), (5, 1, 1, 5), (99, 0, 1, 8), (1, 0, 9, 2)]
        {
            assert_eq!(pieces(idle, open, holders), expected, "{idle} {open} {holders}");
        }
    }

    #[test]
    fn directories_in_which_a_cut_is_are_finished_last() {
        let cuts = ["a/b/x", "a/c/", "d", "a/b/y"].map(Key::new);
        let Part::Dirs(dirs) = crossed(&cuts) else { panic!() };
        assert_eq!(&*dirs, ["a/", "a/b/", "a/c/"].map(Key::new));
    }
}
