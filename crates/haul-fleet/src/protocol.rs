//! The lease protocol, pure: the contents of a record, which shard a worker takes, what it writes next, and the meaning of an answer to
//! that. Workers carry out these decisions, and a test searches all schedules of them (`tests/all/model.rs`).
//!
//! A shard is a row of numbered records. A record is created only where no record of that number exists, and never changed: so of
//! two workers that build on the same record one fails, and a lease that was taken over is lost to its former holder. The highest number
//! counts.
//!
//! A large file is a shard too, split off by the shard of its key. The worker that claims it begins its write, and splits off ranges of it;
//! once those are done it is claimed again, by the worker that finishes the file.

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

    /// The child of this number.
    pub fn child(&self, number: u64) -> ShardId {
        ShardId(format!("{}~{number:03}", self.0))
    }

    /// True for one that came of this one by splits.
    pub fn is_above(&self, other: &ShardId) -> bool {
        other.0.strip_prefix(&self.0).is_some_and(|rest| rest.starts_with('~'))
    }

    /// The one that it was split off from, if it was.
    pub fn parent(&self) -> Option<ShardId> {
        self.0.rsplit_once('~').map(|(parent, _)| ShardId(parent.into()))
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

impl WorkerId {
    /// The unknown writer of this unreadable record. It gives no sign of life: it counts as dead unless a next record comes.
    pub fn unread(id: &ShardId, number: u64) -> WorkerId {
        WorkerId(format!("?{id}/{number}"))
    }

    /// True for [`WorkerId::unread`].
    pub fn is_unread(&self) -> bool {
        self.0.starts_with('?')
    }
}

/// Right to work at a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardState {
    /// Anybody.
    Open,
    /// Held by the record's writer.
    Held,
    /// Nobody: no work is left.
    Done,
}

/// A shard that was split off.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Child {
    /// Its name.
    pub id: ShardId,
    /// Its work.
    pub rest: RemainingWork,
}

/// Remaining work of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemainingWork {
    /// Keys.
    Keys(KeyRange),
    /// A large file, or a range of one.
    File(FileShard),
    /// Nothing: its children must be there before it is done.
    Nothing,
}

/// A large file, or a range of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileShard {
    /// The file.
    pub key: Key,
    /// The engine's data about it: text to the protocol.
    pub about: String,
    /// How far it is.
    pub stage: Stage,
}

/// How far a large file is, or a range of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Its write isn't begun.
    New,
    /// Its write is begun. Its ranges are its children; once all are done, the next worker to claim it finishes the file.
    Begun,
    /// A range of its parts, from the first of these numbers to before the second.
    Range(u64, u64),
    /// A range, and its result: text to the protocol.
    Came(String),
}

/// State of a shard. `T` adds up the work done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record<T> {
    /// Right to work at it.
    pub state: ShardState,
    /// Writer of this record.
    pub by: WorkerId,
    /// Its remaining work.
    pub rest: RemainingWork,
    /// Outcome of the finished part.
    pub outcome: T,
    /// Keys at which it was paused or split: directories may go through them.
    pub cuts: Vec<Key>,
    /// Shards that this very record splits off. Before building on the record, make sure that these have their first records.
    pub children: Vec<Child>,
    /// Children so far.
    pub born: u64,
    /// Tries at the rest that failed for a reason that may pass. An interrupted worker is no failure.
    #[serde(default)]
    pub failures: u64,
    /// Holders that were taken for dead since something of it was last written down as done.
    #[serde(default)]
    pub deaths: u64,
    /// Why it is given up: its holder only records that.
    #[serde(default)]
    pub given_up: Option<String>,
}

impl<T: Default> Record<T> {
    /// The first record of a shard.
    pub fn first(by: &WorkerId, rest: RemainingWork) -> Record<T> {
        Record {
            state: ShardState::Open,
            by: by.clone(),
            rest,
            outcome: T::default(),
            cuts: Vec::new(),
            children: Vec::new(),
            born: 0,
            failures: 0,
            deaths: 0,
            given_up: None,
        }
    }
}

impl<T> Record<T> {
    /// It can't be claimed before its children are done: a large file whose ranges are on their way.
    pub fn waits(&self) -> bool {
        self.state == ShardState::Open && matches!(&self.rest, RemainingWork::File(file) if file.stage == Stage::Begun)
    }
}

/// A record with its place: one that is in the store, or one that is to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease<T> {
    /// Of which shard.
    pub id: ShardId,
    /// Its number there.
    pub number: u64,
    /// The record itself.
    pub record: Record<T>,
}

/// A holder's report.
#[derive(Clone, Debug)]
pub enum Progress<T> {
    /// It came this far and goes on; the rest is cut at these keys, and only the first piece stays. These large files were met
    /// on the way: they are shards of their own from now on.
    Reached(Key, T, Vec<Key>, Vec<FileShard>),
    /// It stops, having come this far (`None`: it can't tell, and nothing was met), and leaves the rest to others.
    GivesBack(Option<Key>, T, Vec<FileShard>),
    /// It failed for a reason that may pass, and leaves it to others to try again.
    Fails,
    /// No work is left except large files that were met on the way.
    Settled(T, Vec<FileShard>),
    /// The write of a large file is begun: what is known of it now, and its ranges.
    Begun(FileShard, Vec<FileShard>),
    /// A range of a large file is done, with this result.
    Came(String),
    /// No work is left.
    Done(T),
}

/// The store's answer to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteResult {
    /// It was created.
    Created,
    /// A record existed before: another's, or this one, if an answer was lost on the way.
    Exists,
    /// None came: it may be there or not.
    Lost,
}

/// Meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The record counts.
    Stands,
    /// The store's records must be looked at.
    Look,
}

/// Meaning of a look at the store, after [`Meaning::Look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookResult {
    /// The record counts.
    Stands,
    /// Another's record exists: the lease is lost.
    Lost,
    /// No record exists: it is to be written again.
    Again,
}

/// Reads an answer.
pub fn meaning(answer: WriteResult) -> Meaning {
    match answer {
        WriteResult::Created => Meaning::Stands,
        WriteResult::Exists | WriteResult::Lost => Meaning::Look,
    }
}

impl<T: Clone + Default + PartialEq + AddAssign> Lease<T> {
    /// The record by which `me` takes over what `self` leaves to others, or what its holder, taken for dead, holds.
    pub fn claimed(&self, me: &WorkerId) -> Lease<T> {
        let mut record =
            Record { state: ShardState::Held, by: me.clone(), children: Vec::new(), ..self.record.clone() };
        // One's own claim without an answer is no death.
        record.deaths += u64::from(self.record.state == ShardState::Held && self.record.by != *me);
        Lease { id: self.id.clone(), number: self.number + 1, record }
    }

    /// The record by which `me` takes over a shard whose record `number`, its last, can't be read: to give it up, as what that said is
    /// unknown. `self` is the last one that can be read.
    pub fn beyond(&self, number: u64, me: &WorkerId, why: String) -> Lease<T> {
        let record = Record { given_up: Some(why), ..self.claimed(me).record };
        Lease { id: self.id.clone(), number: number + 1, record }
    }

    /// The record that a holder writes next.
    pub fn with(&self, progress: Progress<T>) -> Lease<T> {
        let mut record = Record { children: Vec::new(), ..self.record.clone() };
        match progress {
            Progress::Reached(key, done, cuts, files) => {
                record.settle(Some(key), done);
                self.split(&mut record, &cuts);
                self.set_aside(&mut record, files);
            }
            Progress::GivesBack(key, done, files) => {
                record.settle(key, done);
                record.state = ShardState::Open;
                self.set_aside(&mut record, files);
            }
            Progress::Fails => {
                record.failures += 1;
                record.state = ShardState::Open;
            }
            Progress::Settled(done, files) => {
                record.settle(None, done);
                record.rest = RemainingWork::Nothing;
                self.set_aside(&mut record, files);
            }
            Progress::Begun(file, ranges) => {
                record.rest = RemainingWork::File(file);
                (record.failures, record.deaths) = (0, 0);
                ranges.into_iter().for_each(|range| self.add_shard(&mut record, RemainingWork::File(range)));
            }
            Progress::Came(what) => {
                if let RemainingWork::File(file) = &mut record.rest {
                    file.stage = Stage::Came(what);
                }
                record.state = ShardState::Done;
            }
            Progress::Done(done) => {
                record.settle(None, done);
                record.state = ShardState::Done;
            }
        }
        Lease { id: self.id.clone(), number: self.number + 1, record }
    }

    fn split(&self, record: &mut Record<T>, cuts: &[Key]) {
        let RemainingWork::Keys(range) = &record.rest else { return };
        let mut pieces = range.pieces(cuts).into_iter();
        let Some(own) = pieces.next() else { return };
        for range in pieces {
            record.cuts.extend(range.after.clone());
            self.add_shard(record, RemainingWork::Keys(range));
        }
        record.rest = RemainingWork::Keys(own);
    }

    /// The directories of large files are finished by the last shard, as if they were cut there.
    fn set_aside(&self, record: &mut Record<T>, files: Vec<FileShard>) {
        for file in files {
            record.cuts.push(file.key.clone());
            self.add_shard(record, RemainingWork::File(file));
        }
    }

    fn add_shard(&self, record: &mut Record<T>, rest: RemainingWork) {
        record.children.push(Child { id: self.id.child(record.born), rest });
        record.born += 1;
    }

    /// The first records of the shards that this record splits off.
    pub fn births(&self) -> Vec<Lease<T>> {
        let born = |child: &Child| Lease {
            id: child.id.clone(),
            number: 0,
            record: Record::first(&self.record.by, child.rest.clone()),
        };
        self.record.children.iter().map(born).collect()
    }

    /// Is what the store has under this number this record?
    pub fn found(&self, there: Option<&Record<T>>) -> LookResult {
        match there {
            None => LookResult::Again,
            Some(there) if *there == self.record => LookResult::Stands,
            Some(_) => LookResult::Lost,
        }
    }
}

impl<T: AddAssign> Record<T> {
    fn settle(&mut self, reached: Option<Key>, done: T) {
        self.outcome += done;
        if let (Some(key), RemainingWork::Keys(range)) = (reached, &mut self.rest) {
            self.cuts.push(key.clone());
            range.after = Some(key);
            self.deaths = 0;
        }
    }
}

/// A shard as a worker sees it that has nothing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardView {
    /// Which.
    pub id: ShardId,
    /// Its state, and the writer of its last record.
    pub state: ShardState,
    /// Writer of that record.
    pub by: WorkerId,
    /// It is open, but not yet to be claimed: see [`Record::waits`] and [`ripen`].
    pub waits: bool,
}

/// Of shards that wait for their children finds those that wait no more. `seen` holds all shards, in order of their names.
pub fn ripen(seen: &mut [ShardView]) {
    for at in 0..seen.len() {
        if !seen[at].waits {
            continue;
        }
        let parent = &seen[at].id;
        let mut family = seen[at + 1..].iter().take_while(|other| other.id.0.starts_with(&parent.0));
        let waits = family.any(|other| parent.is_above(&other.id) && other.state != ShardState::Done);
        seen[at].waits = waits;
    }
}

/// Next action of an idle worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// It tries to claim this one.
    Claim(ShardId),
    /// It waits: others hold what is left.
    Wait,
    /// No work is left.
    Over,
}

/// Chooses among all shards, in order of their names and with the last of all. `start` spreads workers that begin together; `is_dead`
/// says whether a worker was silent for long enough.
pub fn choose(seen: &[ShardView], start: usize, is_dead: impl Fn(&WorkerId) -> bool) -> NextAction {
    let (others, last): (Vec<&ShardView>, Vec<&ShardView>) = seen.iter().partition(|shard| !shard.id.is_finish());
    let start = if others.is_empty() { 0 } else { start % others.len() };
    let turned = others[start..].iter().chain(&others[..start]).copied();
    let claimable = |shard: &&ShardView| match shard.state {
        ShardState::Open => !shard.waits,
        ShardState::Held => is_dead(&shard.by),
        ShardState::Done => false,
    };
    let is_open = |shard: &&ShardView| shard.state == ShardState::Open && !shard.waits;
    let mut open = turned.clone().filter(is_open).chain(turned.filter(claimable));
    if let Some(shard) = open.next() {
        return NextAction::Claim(shard.id.clone());
    }
    if others.iter().any(|shard| shard.state != ShardState::Done) {
        return NextAction::Wait;
    }
    match last.first() {
        None => NextAction::Over,
        Some(shard) if shard.state == ShardState::Done => NextAction::Over,
        Some(shard) if claimable(shard) => NextAction::Claim(shard.id.clone()),
        Some(_) => NextAction::Wait,
    }
}

/// How many pieces a holder cuts what it has left into, where `idle` workers wait, `open` shards wait for them, and `holders` hold
/// one.
pub fn pieces(idle: usize, open: usize, holders: usize) -> usize {
    let wanted = idle.saturating_sub(open);
    // A larger number would cost requests, and the next waiting worker gets its share of the rest then.
    if wanted == 0 { 1 } else { 1 + wanted.div_ceil(holders.max(1)).min(7) }
}

/// Tells dead workers from others without a clock: a live worker rewrites its sign of life in each of its intervals. One
/// whose sign this worker sees unchanged in `looks` looks, each at least an interval of its own after the one before, counts as
/// dead. It needn't be: then it finds its lease lost.
#[derive(Clone, Debug)]
pub struct Patience {
    looks: u32,
    signs: BTreeMap<WorkerId, (LifeSign, u32)>,
}

/// A sign of life as a listing shows it.
pub type LifeSign = Option<Version>;

impl Patience {
    /// Counts a worker as dead after `looks` looks.
    pub fn new(looks: u32) -> Patience {
        Patience { looks: looks.max(1), signs: BTreeMap::new() }
    }

    /// Adds a look: the signs of all that have one. `holders` are the workers that hold a shard, with a sign or without.
    pub fn look(&mut self, signs: &BTreeMap<WorkerId, LifeSign>, holders: &BTreeSet<WorkerId>) {
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
        Lease { id: ShardId::first(3), number: 4, record: Record::first(&worker("a"), keys(key(after), through)) }
    }

    fn keys(after: Option<Key>, through: &str) -> RemainingWork {
        RemainingWork::Keys(KeyRange { after, through: key(through) })
    }

    fn file(stage: Stage) -> FileShard {
        FileShard { key: Key::new("d/large"), about: String::new(), stage }
    }

    #[test]
    fn a_split_leaves_the_first_piece_and_names_the_others() {
        let held = lease("a", "z").claimed(&worker("b"));
        let cuts = vec![Key::new("b"), Key::new("k"), Key::new("p")];
        let next = held.with(Progress::Reached(Key::new("c"), 7, cuts, Vec::new()));
        assert_eq!((next.number, next.record.outcome, next.record.born), (6, 7, 2));
        assert_eq!(next.record.rest, keys(key("c"), "k"));
        let born: Vec<_> = next.births().into_iter().map(|child| (child.id.0, child.record.rest)).collect();
        assert_eq!(born[0], ("000003~000".into(), keys(key("k"), "p")));
        assert_eq!(born[1], ("000003~001".into(), keys(key("p"), "z")));
        let later = next.with(Progress::Reached(Key::new("d"), 1, vec![Key::new("e")], Vec::new()));
        assert_eq!((later.births()[0].id.0.as_str(), later.record.outcome), ("000003~002", 8));
        assert!(later.with(Progress::Done(0)).births().is_empty());
    }

    #[test]
    fn a_large_file_is_split_off_and_then_split_itself() {
        let held = lease("a", "z").claimed(&worker("b"));
        let settled = held.with(Progress::Settled(2, vec![file(Stage::New)]));
        assert_eq!(
            (settled.record.state, &settled.record.rest, settled.record.outcome),
            (ShardState::Held, &RemainingWork::Nothing, 2)
        );
        assert_eq!(settled.record.cuts, [Key::new("d/large")], "its directory is finished last");
        let born = settled.births().remove(0).claimed(&worker("c"));
        assert_eq!(born.id.0, "000003~000");
        let begun =
            born.with(Progress::Begun(file(Stage::Begun), vec![file(Stage::Range(0, 2)), file(Stage::Range(2, 3))]));
        assert!(!begun.record.waits(), "its ranges may not be there yet");
        assert_eq!(begun.births()[1].id.0, "000003~000~001");
        assert!(begun.with(Progress::GivesBack(None, 0, Vec::new())).record.waits());
        let range = begun.births().remove(0).claimed(&worker("d")).with(Progress::Came("parts".into()));
        assert_eq!(
            (range.record.state, range.record.rest),
            (ShardState::Done, RemainingWork::File(file(Stage::Came("parts".into()))))
        );
    }

    #[test]
    fn failures_and_deaths_are_counted_apart_and_interruptions_are_neither() {
        let held = lease("a", "z").claimed(&worker("b"));
        assert_eq!((held.record.failures, held.record.deaths), (0, 0));
        let back = held.with(Progress::GivesBack(None, 0, Vec::new()));
        let failed = back.claimed(&worker("c")).with(Progress::Fails);
        assert_eq!((failed.record.state, failed.record.failures, failed.record.deaths), (ShardState::Open, 1, 0));
        let again = failed.claimed(&worker("d"));
        let taken = again.claimed(&worker("e")).claimed(&worker("f"));
        assert_eq!((taken.record.failures, taken.record.deaths), (1, 2));
        assert_eq!(again.claimed(&worker("d")).record.deaths, 0, "its own claim, of which it heard nothing");
        let further = taken.with(Progress::Reached(Key::new("c"), 1, Vec::new(), Vec::new()));
        assert_eq!(further.record.deaths, 0, "something of it was done");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_passed_over_to_give_its_shard_up() {
        let given_up = lease("a", "z").beyond(7, &worker("b"), "why".into());
        assert_eq!((given_up.number, given_up.record.given_up.as_deref()), (8, Some("why")));
        assert_eq!(given_up.record.state, ShardState::Held);
        assert!(WorkerId::unread(&given_up.id, 7).is_unread() && !given_up.record.by.is_unread());
    }

    #[test]
    fn a_file_whose_ranges_are_done_waits_no_more() {
        let seen = |states: &str| {
            let names = ["000001~000", "000001~0001", "000001~000~000", "000001~000~001", "000002"];
            let shard = |(name, state): (&str, char)| {
                let state = if state == 'd' { ShardState::Done } else { ShardState::Open };
                ShardView { id: ShardId(name.into()), state, by: worker("w"), waits: name == "000001~000" }
            };
            let mut seen: Vec<ShardView> = names.into_iter().zip(states.chars()).map(shard).collect();
            ripen(&mut seen);
            seen[0].waits
        };
        assert_eq!(["ooddo", "odddo", "oddod", "odood"].map(seen), [false, false, true, true]);
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
        let seen = |states: &str| -> Vec<ShardView> {
            let last = states.len() - 1;
            let shard = |(at, state)| ShardView {
                id: if at == last { ShardId::finish() } else { ShardId::first(at) },
                state: match state {
                    'o' | 'w' => ShardState::Open,
                    'd' => ShardState::Done,
                    _ => ShardState::Held,
                },
                by: worker(if state == 'x' { "dead" } else { "alive" }),
                waits: state == 'w',
            };
            states.chars().enumerate().map(shard).collect()
        };
        let chosen = |states: &str, start| choose(&seen(states), start, |worker| worker.0 == "dead");
        let claim = |at| NextAction::Claim(ShardId::first(at));
        assert_eq!(chosen("oooo", 4), claim(1), "the last is not counted");
        assert_eq!((chosen("xodo", 0), chosen("hxho", 0), chosen("hddo", 0)), (claim(1), claim(1), NextAction::Wait));
        assert_eq!(chosen("dddo", 7), NextAction::Claim(ShardId::finish()));
        assert_eq!(chosen("dddx", 7), NextAction::Claim(ShardId::finish()));
        assert_eq!((chosen("dddh", 0), chosen("dddd", 0)), (NextAction::Wait, NextAction::Over));
        assert_eq!((chosen("wwoo", 0), chosen("wddo", 0)), (claim(2), NextAction::Wait));
        assert_eq!(choose(&[], 3, |_| false), NextAction::Over);
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
