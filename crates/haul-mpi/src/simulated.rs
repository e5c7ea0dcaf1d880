//! The coordinator with ranks that are only played: a tree of names, and by turns of chance what ranks do, say late, or never say.

use crate::{
    coordinator::{Coordinator, Note},
    journal::UnfinishedFiles,
    shared,
    work::{
        DirFindings, Job, LargeFileStart, LeaseResult, Pin, Problem, RankMessage, Raw, SourceEntry, Task, Totals,
        UnfinishedFile, Verb, Work,
    },
};
use haul_core::Kind;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
    sync::Arc,
};

const RANKS: usize = 5;
const LARGE: u64 = 200 << 20;
/// Files that a rank reports at once, and keeps to itself at the end of a directory.
const FILES: usize = 3;

/// Numbers by chance, the same for one seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn job(verb: Verb, delete: bool) -> Job {
    let job = shared::tests::job(verb, Path::new("/s"), Path::new("/d"));
    Job { xattrs: true, delete, patience: 1, hang: 1, ..job }
}

fn item(key: String, size: u64, ino: Option<u64>) -> SourceEntry {
    let pin = ino.map(|ino| Pin { ino, ctime: (0, 0) });
    SourceEntry {
        key: Raw::from(key),
        kind: Kind::File,
        size,
        mtime: (0, 0),
        pin,
        on_root: true,
        task: Task::Copy,
        // More than any test has.
        linked: ino.map(|_| u32::MAX),
    }
}

/// A step of what a rank does with a lease: it may be lost before each.
enum Step {
    Say(Box<RankMessage>),
    /// A file is there now.
    Copy(Raw),
}

/// Contents of a source, and the work done on it.
struct World {
    dirs: BTreeMap<Vec<u8>, (Vec<Raw>, Vec<SourceEntry>)>,
    there: BTreeSet<Vec<u8>>,
    pieces: BTreeMap<Vec<u8>, u64>,
    /// Hidden names of large files.
    partial: BTreeSet<Vec<u8>>,
    finished: BTreeSet<Vec<u8>>,
    deleted: BTreeSet<Vec<u8>>,
    /// Directories of which a listing missed something.
    unsure: BTreeSet<Vec<u8>>,
    failing: bool,
}

impl World {
    fn new(chance: &mut Chance, failing: bool) -> World {
        let mut dirs: BTreeMap<Vec<u8>, (Vec<Raw>, Vec<SourceEntry>)> = BTreeMap::new();
        let mut open = vec![String::new()];
        while let Some(dir) = open.pop() {
            let deep = dir.matches('/').count() < 3;
            let below: Vec<String> = (0..chance.below(4)).filter(|_| deep).map(|n| format!("{dir}d{n}/")).collect();
            let files = (0..chance.below(9)).map(|n| {
                let size = if chance.below(7) == 0 { LARGE } else { 10 };
                let ino = (chance.below(3) == 0).then(|| 1 + chance.below(6));
                // Names of one inode have one size.
                let size = ino.map_or(size, |ino| if ino == 1 { LARGE } else { 10 });
                let task = if chance.below(2) == 0 { Task::Compare } else { Task::Copy };
                SourceEntry { task, ..item(format!("{dir}f{n}"), size, ino) }
            });
            dirs.insert(
                dir.clone().into_bytes(),
                (below.iter().map(|d| Raw::from(d.clone())).collect(), files.collect()),
            );
            open.extend(below);
        }
        let mut names: BTreeMap<u64, u32> = BTreeMap::new();
        let all = dirs.values().flat_map(|(_, files)| files);
        all.filter_map(|file| file.pin).for_each(|pin| *names.entry(pin.ino).or_default() += 1);
        for file in dirs.values_mut().flat_map(|(_, files)| files) {
            file.linked = file.pin.map(|pin| names[&pin.ino]);
        }
        let (there, pieces, partial, finished, deleted, unsure) = Default::default();
        World { dirs, there, pieces, partial, finished, deleted, unsure, failing }
    }

    /// Looks at a directory as `dirs::look` does: the last files aren't reported for others, and are handled before the lease ends.
    fn look(&mut self, lease: u64, dir: &[u8], after: Option<&Raw>, chance: &mut Chance) -> Vec<Step> {
        let (dirs, files) = self.dirs[dir].clone();
        let mut all: Vec<(Raw, Option<SourceEntry>)> = dirs.into_iter().map(|dir| (dir, None)).collect();
        all.extend(files.into_iter().map(|file| (file.key.clone(), Some(file))));
        if has_extra(dir) {
            all.extend(["x", "y/"].map(|name| (Raw::from([dir, name.as_bytes()].concat()), None)));
        }
        let in_the_way: Vec<Raw> = all.iter().filter(|(key, _)| is_odd(key)).map(|(key, _)| in_place(key)).collect();
        all.extend(in_the_way.into_iter().map(|key| (key, None)));
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (mut steps, mut found, mut told) = (Vec::new(), DirFindings::default(), after.is_some());
        for (key, file) in all.into_iter().filter(|(key, _)| after.is_none_or(|after| key > after)) {
            // A listing of it passed names that are reported already.
            if chance.below(40) == 0 {
                found.unsure = true;
                self.unsure.insert(dir.to_vec());
            }
            found.last = Some(key.clone());
            found.files_seen += u64::from(file.is_some());
            match file {
                Some(file) if file.linked.is_some() => found.linked.push(file),
                Some(file) if file.size >= LARGE => found.large.push(file),
                Some(file) => found.files.push(file),
                None if is_extra(&key) => found.extra.push(key),
                None => found.dirs.push((key, true)),
            }
            if found.files.len() == FILES {
                told = true;
                steps.push(Step::Say(Box::new(RankMessage::Found(lease, std::mem::take(&mut found)))));
            }
        }
        let own = std::mem::take(&mut found.files);
        let seen = DirFindings { files_seen: found.files_seen, ..DirFindings::default() };
        if told || (DirFindings { last: None, ..found.clone() }) != seen {
            found.own = own.clone();
            steps.push(Step::Say(Box::new(RankMessage::Found(lease, found))));
        } else if seen != DirFindings::default() {
            steps.push(Step::Say(Box::new(RankMessage::Found(lease, seen))));
        }
        // Its rank was stopped, or not heard, before the end of them.
        let undone = chance.below(5) == 0;
        let done = own.len() - usize::from(undone).min(own.len());
        let failing = |item: &SourceEntry| self.failing && item.key.ends_with(b"f3");
        let problems = own[..done].iter().filter(|item| failing(item)).map(|_| f3()).collect();
        let (blocked, rest): (Vec<SourceEntry>, Vec<SourceEntry>) =
            own[..done].iter().cloned().partition(|item| self.blocks(item));
        steps.extend(rest.iter().filter(|item| !failing(item)).map(|item| Step::Copy(item.key.clone())));
        steps.push(Step::Say(Box::new(RankMessage::Done(
            lease,
            LeaseResult { undone, problems, blocked, ..LeaseResult::default() },
        ))));
        steps
    }

    /// Is a directory in the place of this file?
    fn blocks(&self, item: &SourceEntry) -> bool {
        is_odd(&item.key) && !self.deleted.contains(in_place(&item.key).as_slice())
    }

    fn find(&self, key: &[u8]) -> Vec<SourceEntry> {
        self.dirs.values().flat_map(|(_, files)| files).filter(|file| file.key.as_slice() == key).cloned().collect()
    }

    /// Does a lease; gives what is said of it.
    fn work(&mut self, lease: u64, work: &Work, chance: &mut Chance) -> Vec<Step> {
        if let Work::Dir { key, after, .. } = work {
            return self.look(lease, key, after.as_ref(), chance);
        }
        let mut done = LeaseResult::default();
        let mut outgoing = Vec::new();
        match work {
            Work::Dir { .. } | Work::Named { .. } => unreachable!("looked at above"),
            Work::Files { items, .. } => {
                for (number, item) in items.iter().enumerate() {
                    if self.failing && item.key.ends_with(b"f3") {
                        done.failed.push(number as u32);
                        done.problems.push(f3());
                    } else if self.blocks(item) {
                        done.blocked.push(item.clone());
                    } else {
                        // What was copied gets its attributes once more where a late step may have moved them.
                        let is_same = !differs(&item.key) || self.there.contains(item.key.as_slice());
                        assert!(item.task != Task::Attributes || is_same, "taken for the same");
                        self.there.insert(item.key.to_vec());
                    }
                }
            }
            Work::Links { names, .. } => {
                for (_, first, item) in names {
                    assert!(self.there.contains(first.as_slice()), "linked before it is there");
                    if self.blocks(item) {
                        done.blocked.push(item.clone());
                        continue;
                    }
                    self.there.insert(item.key.to_vec());
                }
            }
            Work::Begin { item, .. } if self.blocks(item) => done.began = Some(LargeFileStart::Blocked),
            Work::Begin { item, left, .. } => {
                assert!(left.is_none());
                let token = [&item.key[..], format!("#{lease}").as_bytes()].concat();
                self.partial.insert(token.clone());
                done.began = Some(LargeFileStart::Anew(Raw::from(token)));
            }
            Work::Piece { item, offset, .. } if self.failing && item.key.ends_with(b"f3") && *offset > 0 => {
                done.problems.push(f3());
            }
            Work::Piece { item, offset, len, .. } if item.task == Task::Compare => {
                done.totals.differ = u64::from(differs(&item.key) && (*offset..offset + len).contains(&(LARGE / 2)));
            }
            Work::Piece { item, len, .. } => {
                assert!(self.partial.iter().any(|token| token.starts_with(&item.key)), "written before it is begun");
                // A part of it is reported before the rest.
                outgoing.push(RankMessage::Part(lease, len / 3, 1));
                *self.pieces.entry(item.key.to_vec()).or_default() += len;
                done.crc = Some(1);
            }
            Work::Publish { item, .. } if self.failing && item.key.ends_with(b"f4") => {
                done.problems.push(Problem { line: "f4".into(), full: false, vanished: false });
            }
            Work::Discard { token, .. } => _ = self.partial.remove(token.as_slice()),
            Work::Publish { item, token, .. } => {
                self.partial.remove(token.as_slice());
                assert!(self.pieces[item.key.as_slice()] >= item.size, "published before it is whole");
                self.there.insert(item.key.to_vec());
            }
            Work::Finish { dirs } => {
                for (_, _, key, _) in dirs {
                    let (below, files) = &self.dirs[key.as_slice()];
                    assert!(
                        below.iter().all(|dir| self.finished.contains(dir.as_slice())),
                        "finished before its directories"
                    );
                    // An entry in the place of a file stays if it wasn't seen completely.
                    let may_be_missing = |file: &SourceEntry| is_odd(&file.key) && self.unsure.contains(key.as_slice());
                    let is_done = |file: &SourceEntry| self.there.contains(file.key.as_slice()) || may_be_missing(file);
                    assert!(self.failing || files.iter().all(is_done));
                    self.finished.insert(key.to_vec());
                }
            }
            Work::Remove { .. } => outgoing.push(RankMessage::Found(lease, DirFindings::default())),
            Work::Delete { keys, .. } => {
                let whole = self
                    .dirs
                    .values()
                    .flat_map(|(_, files)| files)
                    .filter(|file| !is_odd(&file.key))
                    .all(|file| self.there.contains(file.key.as_slice()));
                assert!(whole, "deleted before all is copied");
                self.deleted.extend(keys.iter().map(|key| key.to_vec()));
            }
            Work::Rmdir { dirs } => self.deleted.extend(dirs.iter().map(|(_, _, key, _)| key.to_vec())),
        }
        outgoing.push(RankMessage::Done(lease, done));
        outgoing.into_iter().map(|message| Step::Say(Box::new(message))).collect()
    }
}

/// Does the destination alone have something in this directory?
fn has_extra(dir: &[u8]) -> bool {
    !dir.ends_with(b"d2/")
}

/// Has the destination a directory of this file's name?
fn is_odd(key: &[u8]) -> bool {
    key.ends_with(b"f6")
}

/// Has the destination other bytes of a large file than the source?
fn differs(key: &[u8]) -> bool {
    key.iter().map(|byte| u32::from(*byte)).sum::<u32>() % 2 == 0
}

fn in_place(key: &[u8]) -> Raw {
    Raw::from([key, b"/"].concat())
}

fn is_extra(key: &[u8]) -> bool {
    [&b"x"[..], b"y/", b"f6/"].iter().any(|end| key.ends_with(end))
}

fn f3() -> Problem {
    Problem { line: "f3".into(), full: false, vanished: false }
}

fn play(seed: u64, failing: bool) {
    let chance = &mut Chance(seed);
    let mut world = World::new(chance, failing);
    // An earlier run left a part of a file that the source has no more.
    let pin = Pin { ino: 99, ctime: (0, 0) };
    let left = UnfinishedFile { key: Raw::from("gone"), token: Raw::from("gone#"), pin, pieces: vec![(0, 1, 1)] };
    world.partial.insert(left.token.to_vec());
    // A source that holds something is never taken for an empty one.
    let allow_empty_source = world.dirs.values().all(|(dirs, files)| dirs.is_empty() && files.is_empty());
    let job = Arc::new(Job { allow_empty_source, ..job(Verb::Sync, true) });
    let mut state = Coordinator::new(job, RANKS * 2, UnfinishedFiles::from([((0, 99), left)]), None);
    let mut under_way: Vec<(usize, VecDeque<Step>)> = Vec::new();
    let (mut silent, mut mute, mut hung) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    let (mut holders, mut told_unsure) = (BTreeMap::new(), BTreeSet::new());
    for turn in 0.. {
        assert!(turn < 100_000, "seed {seed}: it doesn't end");
        if state.is_done() {
            break;
        }
        let rank = chance.below(RANKS as u64) as usize;
        if state.held(rank) < 4
            && let Some((lease, work)) = state.next(rank)
        {
            let steps = world.work(lease, &work, chance);
            holders.insert(lease, (rank, work));
            under_way.push((rank, steps.into()));
        }
        // A rank is lost. It does no more, or what it does and says comes all the same, late.
        if chance.below(60) == 0 {
            state.lost(rank);
            holders.retain(|_, (of, _)| *of != rank);
            if chance.below(2) == 0 {
                silent.extend(under_way.extract_if(.., |(of, _)| *of == rank));
                mute.insert(rank);
            }
        }
        // One that does all it had is heard again.
        if chance.below(40) == 0 && !mute.contains(&rank) {
            state.back(rank);
        }
        // A thread hangs, and does its lease all the same when it wakes up.
        if chance.below(60) == 0
            && let Some((lease, (_, work))) = holders.iter().find(|(_, (of, _))| *of == rank)
            && hung.entry(work.name()).or_insert(0) < &mut 2
        {
            *hung.entry(work.name()).or_insert(0) += 1;
            let lease = *lease;
            holders.remove(&lease);
            state.hung(rank, &[(lease, true)]);
        }
        if !under_way.is_empty() {
            let one = chance.below(under_way.len() as u64) as usize;
            let (rank, steps) = &mut under_way[one];
            match steps.pop_front() {
                Some(Step::Say(said)) => {
                    if let RankMessage::Found(lease, DirFindings { unsure: true, .. }) = &*said
                        && let Some((_, Work::Dir { key, .. })) = holders.get(lease)
                    {
                        told_unsure.insert(key.to_vec());
                    }
                    if let RankMessage::Done(lease, _) = &*said {
                        holders.remove(lease);
                    }
                    state.take(*rank, *said);
                }
                Some(Step::Copy(key)) => _ = world.there.insert(key.to_vec()),
                None => _ = under_way.swap_remove(one),
            }
        }
    }
    let in_place =
        |problem: &&Problem| problem.line.ends_with("was not copied: a directory is in its place, and was not deleted");
    let blocked = state.problems.iter().filter(in_place).count() as u64;
    for (dir, file) in world.dirs.iter().flat_map(|(dir, (_, files))| files.iter().map(move |file| (dir, file))) {
        let blocked = is_odd(&file.key) && (state.errors > blocked || world.unsure.contains(dir));
        let failed = failing && (file.key.ends_with(b"f3") || file.key.ends_with(b"f4") && file.size >= LARGE);
        assert!(
            failed || blocked || world.there.contains(file.key.as_slice()),
            "seed {seed}: {:?} is missing",
            world.find(&file.key)
        );
    }
    assert_eq!(world.finished.len(), world.dirs.len(), "seed {seed}");
    // A rank that was given up hides from us the writes it began and didn't report.
    for step in under_way.iter().chain(&silent).flat_map(|(_, steps)| steps) {
        if let Step::Say(said) = step
            && let RankMessage::Done(_, LeaseResult { began: Some(LargeFileStart::Anew(token)), .. }) = &**said
        {
            world.partial.remove(token.as_slice());
        }
    }
    // After an error there is a next run, which may go on with it.
    let kept = BTreeSet::from_iter((state.errors > 0).then(|| b"gone#".to_vec()));
    assert_eq!(world.partial, kept, "seed {seed}: partial files that nobody goes on with");
    match state.errors - blocked {
        // Of a lost rank it isn't known what it saw, and a directory that is looked at again may be seen whole.
        0 => {
            let gone = |dir: &Vec<u8>, name: &str| world.deleted.contains(&[dir, name.as_bytes()].concat());
            for dir in world.dirs.keys().filter(|dir| has_extra(dir) && !world.unsure.contains(*dir)) {
                assert!(gone(dir, "x") && gone(dir, "y/"), "seed {seed}: something is left in {dir:?}");
            }
            for dir in &told_unsure {
                assert!(
                    !gone(dir, "x") && !gone(dir, "y/"),
                    "seed {seed}: deleted in {dir:?}, which wasn't seen whole"
                );
            }
        }
        _ => assert!(world.deleted.is_empty(), "seed {seed}: deleted after an error"),
    }
}

/// A job on ranks of `threads` threads, of which one has begun a large file.
fn with_large_begun(threads: usize) -> Coordinator {
    let mut state = Coordinator::new(Arc::new(job(Verb::Dcp, false)), threads, UnfinishedFiles::new(), None);
    let (look, _) = state.next(0).unwrap();
    let found = DirFindings { large: vec![item("large".into(), LARGE, None)], ..DirFindings::default() };
    state.take(0, RankMessage::Found(look, found));
    let (begin, _) = state.next(0).unwrap();
    let began = Some(LargeFileStart::Anew(Raw::from("hidden")));
    state.take(0, RankMessage::Done(begin, LeaseResult { began, ..LeaseResult::default() }));
    state
}

#[test]
fn a_large_file_is_compared_by_many_and_copied_only_where_it_differs() {
    let compare = |differs: bool, lost: bool, dry_run: bool| {
        let job = Job { contents: true, dry_run, ..job(Verb::Sync, false) };
        let mut state = Coordinator::new(Arc::new(job), 8, UnfinishedFiles::new(), None);
        let (look, _) = state.next(0).unwrap();
        let large = vec![SourceEntry { task: Task::Compare, ..item("large".into(), LARGE, None) }];
        state.take(0, RankMessage::Found(look, DirFindings { large, files_seen: 1, ..DirFindings::default() }));
        state.take(0, RankMessage::Done(look, LeaseResult::default()));
        let pieces: Vec<u64> = (0..4).map(|rank| state.next(rank).unwrap().0).collect();
        for (rank, lease) in pieces.into_iter().enumerate().rev() {
            let totals = Totals { differ: u64::from(differs && rank == 3), ..Totals::default() };
            match lost && rank == 0 {
                true => state.lost(0),
                false => state.take(rank, RankMessage::Done(lease, LeaseResult { totals, ..LeaseResult::default() })),
            }
        }
        let mut rest = 0;
        loop {
            let (lease, work) = state.next(1).unwrap();
            let Work::Piece { .. } = work else { return (rest, work) };
            rest += 1;
            state.take(1, RankMessage::Done(lease, LeaseResult::default()));
        }
    };
    let all = LARGE.div_ceil(16 << 20) as usize;
    for lost in [false, true] {
        let (rest, Work::Files { items, .. }) = compare(false, lost, false) else { panic!("it is the same") };
        assert_eq!((rest, items[0].task), (all - 4 + usize::from(lost), Task::Attributes));
        // One difference is enough, and there is nobody to wait for.
        assert!(matches!(compare(true, lost, false), (0, Work::Begin { .. })));
    }
    let (0, Work::Files { items, .. }) = compare(true, false, true) else { panic!("a dry run begins nothing") };
    assert_eq!(items[0].task, Task::Copy);
}

#[test]
fn large_files_are_copied_before_others_are_compared() {
    let job = Job { contents: true, ..job(Verb::Sync, false) };
    let mut state = Coordinator::new(Arc::new(job), 2, UnfinishedFiles::new(), None);
    let (look, _) = state.next(0).unwrap();
    let of = |large: Vec<SourceEntry>| DirFindings { files_seen: large.len() as u64, large, ..DirFindings::default() };
    let doubtful = (0..5).map(|n| SourceEntry { task: Task::Compare, ..item(format!("doubtful{n}"), 2 * LARGE, None) });
    state.take(0, RankMessage::Found(look, of(doubtful.collect())));
    let Some((compared, Work::Piece { len, .. })) = state.next(0) else {
        panic!("all that is known is to be compared")
    };
    assert_eq!(len, 2 * LARGE, "there is more for the other slot");
    state.take(0, RankMessage::Found(look, of(vec![item("missing".into(), LARGE, None)])));
    let totals = Totals { differ: 1, ..Totals::default() };
    state.take(0, RankMessage::Done(compared, LeaseResult { totals, ..LeaseResult::default() }));
    for expected in ["doubtful4", "missing"] {
        let Some((lease, Work::Begin { item, .. })) = state.next(0) else { panic!("{expected} waits") };
        assert_eq!(item.key, expected.as_bytes());
        let began = Some(LargeFileStart::Anew(Raw::from("hidden")));
        state.take(0, RankMessage::Done(lease, LeaseResult { began, ..LeaseResult::default() }));
    }
    let mut written = 0;
    while written < 3 * LARGE {
        let Some((_, Work::Piece { item, len, .. })) = state.next(0) else { panic!("no piece") };
        assert_eq!(item.task, Task::Copy, "after {written}");
        written += len;
    }
    let Some((_, Work::Piece { item, .. })) = state.next(0) else { panic!("no comparison") };
    assert_eq!(item.task, Task::Compare);
}

#[test]
fn names_beyond_those_of_an_inode_are_links_where_something_is_mounted() {
    let play = |has_mounts: bool| {
        let mut state = Coordinator::new(Arc::new(job(Verb::Dcp, false)), 2, UnfinishedFiles::new(), None);
        if has_mounts {
            state.has_mounts();
        }
        let (look, _) = state.next(0).unwrap();
        let mut done = Vec::new();
        for key in ["a", "b", "bound/a"] {
            let linked = vec![SourceEntry { linked: Some(2), ..item(key.into(), 10, Some(7)) }];
            state.take(0, RankMessage::Found(look, DirFindings { linked, files_seen: 1, ..DirFindings::default() }));
            let (lease, work) = state.next(0).unwrap();
            done.push(match &work {
                Work::Files { .. } => format!("copy {key}"),
                Work::Links { names, .. } => format!("link {key} to {}", String::from_utf8_lossy(&names[0].1)),
                other => panic!("{other:?}"),
            });
            state.take(0, RankMessage::Done(lease, LeaseResult::default()));
        }
        done
    };
    assert_eq!(play(true), ["copy a", "link b to a", "link bound/a to a"]);
    // All names that there are have come: it is forgotten.
    assert_eq!(play(false), ["copy a", "link b to a", "copy bound/a"]);
}

#[test]
fn many_names_of_a_list_are_work_for_all() {
    let all: Vec<String> = (0..600).map(|n| format!("{n:03}")).chain(["d/x".into()]).collect();
    let names = crate::input::tests::names(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let mut state = Coordinator::new(Arc::new(job(Verb::Dcp, false)), 4, UnfinishedFiles::new(), Some(names));
    let Some((first, Work::Dir { only: Some(only), .. })) = state.next(0) else { panic!("no directory") };
    assert_eq!((only.names.len(), only.more), (256, true));
    let Some((second, Work::Named { names, .. })) = state.next(1) else { panic!("no names") };
    assert_eq!(names.last(), Some(&Raw::from("d/")));
    let Some((third, Work::Named { .. })) = state.next(2) else { panic!("no more names") };
    // The second rank is lost after it reported some: the rest and its own files are leased again.
    let own = vec![item("598".into(), 10, None)];
    let last = Some(Raw::from("598"));
    state.take(1, RankMessage::Found(second, DirFindings { own, last, ..DirFindings::default() }));
    state.lost(1);
    let mut again: Vec<(u64, Work)> = (0..2).map(|_| state.next(3).unwrap()).collect();
    again.sort_by_key(|(_, work)| matches!(work, Work::Files { .. }));
    let [(rest, Work::Named { names, .. }), (files, Work::Files { .. })] = &again[..] else { panic!("{again:?}") };
    assert_eq!(names[..], ["599", "d/"].map(Raw::from));
    let dirs = vec![(Raw::from("d/"), true)];
    state.take(3, RankMessage::Found(*rest, DirFindings { dirs, ..DirFindings::default() }));
    for (rank, lease) in [(0, first), (2, third), (3, *files), (3, *rest)] {
        state.take(rank, RankMessage::Done(lease, LeaseResult::default()));
    }
    let Some((below, Work::Dir { key, only: Some(only), .. })) = state.next(0) else { panic!("no directory below") };
    assert_eq!(
        (key, only),
        (Raw::from("d/"), crate::work::SelectedNames { names: vec![Raw::from("d/x")], more: false })
    );
    assert!(state.next(0).is_none(), "the directory waits for what is in it");
    state.take(0, RankMessage::Done(below, LeaseResult { finished: true, ..LeaseResult::default() }));
    assert!(matches!(state.next(0), Some((_, Work::Finish { .. }))));
}

#[test]
fn what_is_told_of_a_piece_is_not_done_again() {
    let mut state = with_large_begun(1);
    let Some((lease, Work::Piece { offset: 0, len, .. })) = state.next(1) else { panic!("no piece") };
    state.take(1, RankMessage::Part(lease, 1000, 7));
    assert_eq!(state.notes.last(), Some(&Note::Piece(0, Raw::from("large"), (0, 1000, 7))));
    state.lost(1);
    // It says so too late.
    state.take(1, RankMessage::Part(lease, 1000, 7));
    let Some((lease, Work::Piece { offset: 1000, len: rest, .. })) = state.next(2) else { panic!("no rest") };
    assert_eq!(rest, len - 1000);
    let totals = Totals { bytes: rest, ..Totals::default() };
    state.take(2, RankMessage::Done(lease, LeaseResult { crc: Some(8), totals, ..LeaseResult::default() }));
    assert_eq!(state.notes.last(), Some(&Note::Piece(0, Raw::from("large"), (1000, rest, 8))));
    assert_eq!(state.totals.bytes, len);
}

#[test]
fn an_empty_source_empties_nothing_unless_told() {
    let names = |names: &[&str]| names.iter().map(|name| Raw::from(*name)).collect::<Vec<_>>();
    let extra = || DirFindings { extra: names(&["x", "y/"]), ..DirFindings::default() };
    let play = |allow_empty_source, dry_run, found: Vec<DirFindings>| {
        let job = Job { allow_empty_source, dry_run, ..job(Verb::Sync, true) };
        let mut state = Coordinator::new(Arc::new(job), 4, UnfinishedFiles::new(), None);
        let (look, _) = state.next(0).unwrap();
        found.into_iter().for_each(|found| state.take(0, RankMessage::Found(look, found)));
        state.take(0, RankMessage::Done(look, LeaseResult::default()));
        let mut deletes = 0;
        while let Some((lease, work)) = state.next(0) {
            deletes += usize::from(matches!(work, Work::Delete { .. } | Work::Remove { .. }));
            state.take(0, RankMessage::Done(lease, LeaseResult::default()));
        }
        assert!(state.is_done());
        (deletes, state.problems.into_iter().map(|problem| problem.line).collect::<Vec<_>>(), state.errors)
    };
    let line = "Refused to delete what is in /d: source /s is empty (--allow-empty-source if that is intended)";
    for dry_run in [false, true] {
        assert_eq!(play(false, dry_run, vec![extra()]), (0, vec![line.to_owned()], 1));
    }
    let deleted = || (2, vec![], 0);
    assert_eq!(play(true, false, vec![extra()]), deleted());
    // A file that is the same already, a directory, and what was told before.
    assert_eq!(play(false, false, vec![DirFindings { files_seen: 1, ..extra() }]), deleted());
    let dir = || DirFindings { dirs: vec![(Raw::from("d/"), false)], ..DirFindings::default() };
    assert_eq!(play(false, false, vec![DirFindings { extra: extra().extra, ..dir() }]), deleted());
    assert_eq!(play(false, false, vec![dir(), extra()]), deleted());
    // Where nothing would be deleted nothing is refused.
    assert_eq!(play(false, false, vec![]), (0, vec![], 0));
}

#[test]
fn what_hangs_is_tried_by_others_and_fails_in_the_end() {
    let mut state = Coordinator::new(Arc::new(job(Verb::Dcp, false)), 4, UnfinishedFiles::new(), None);
    let (look, _) = state.next(0).unwrap();
    let files = vec![item("a".into(), 10, None), item("b".into(), 10, None)];
    state.take(0, RankMessage::Found(look, DirFindings { files, ..DirFindings::default() }));
    state.take(0, RankMessage::Done(look, LeaseResult::default()));
    for rank in [1, 2, 3] {
        let (lease, work) = state.next(rank).unwrap();
        assert!(matches!(work, Work::Files { .. }));
        assert!(state.next(rank).is_none());
        // One that only waits for a thread says nothing against the file system.
        if rank == 1 {
            state.hung(rank, &[(lease, false)]);
            assert_eq!(state.held(rank), 1, "no thread of it is free");
            let (lease, _) = state.next(4).unwrap();
            state.hung(4, &[(lease, true)]);
        } else {
            state.hung(rank, &[(lease, true)]);
        }
        assert_eq!(state.errors, u64::from(rank == 3));
    }
    let line = "/s/a: was given up, since a file system did not answer 3 times";
    assert_eq!(state.problems.iter().map(|problem| problem.line.as_str()).collect::<Vec<_>>(), [line]);
    // The directory is finished, and the job ends without the threads that hang.
    let (lease, work) = state.next(0).unwrap();
    assert!(matches!(work, Work::Finish { .. }));
    state.take(0, RankMessage::Done(lease, LeaseResult::default()));
    assert!(state.is_done());
}

#[test]
fn pieces_that_hang_on_one_node_are_given_to_another() {
    let mut state = with_large_begun(8);
    let pieces: Vec<(u64, bool)> = (0..5).map(|_| (state.next(1).unwrap().0, true)).collect();
    state.hung(1, &pieces);
    assert_eq!((state.errors, state.held(1)), (0, 5));
    let again: Vec<Work> = (0..5).map(|_| state.next(2).unwrap().1).collect();
    assert!(again.iter().all(|work| matches!(work, Work::Piece { .. })));
}

#[test]
fn what_a_late_step_may_have_moved_is_set_right_at_the_end() {
    let mut state = Coordinator::new(Arc::new(job(Verb::Dcp, false)), 4, UnfinishedFiles::new(), None);
    let (look, _) = state.next(0).unwrap();
    let found = DirFindings { files: vec![item("f".into(), 10, None)], ..DirFindings::default() };
    state.take(0, RankMessage::Found(look, found));
    state.take(0, RankMessage::Done(look, LeaseResult::default()));
    let (first, _) = state.next(1).unwrap();
    state.lost(1);
    let (second, _) = state.next(0).unwrap();
    state.take(0, RankMessage::Done(second, LeaseResult::default()));
    let finish = |state: &mut Coordinator| {
        let Some((lease, Work::Finish { dirs })) = state.next(0) else { panic!("nothing to finish") };
        assert_eq!(dirs.iter().map(|(_, _, key, _)| key.to_vec()).collect::<Vec<_>>(), [b""]);
        state.take(0, RankMessage::Done(lease, LeaseResult::default()));
    };
    finish(&mut state);
    assert!(state.is_done(), "nobody waits for one who isn't heard");
    state.back(1);
    assert!(!state.is_done() && state.next(0).is_none(), "it is about to say that it has left the lease");
    state.take(1, RankMessage::Done(first, LeaseResult { undone: true, ..LeaseResult::default() }));
    finish(&mut state);
    assert!(state.is_done());
}

#[test]
fn obstacles_are_deleted_with_the_rest_and_not_after_an_error() {
    let play = |error: bool| {
        let mut state = Coordinator::new(Arc::new(job(Verb::Sync, true)), 4, UnfinishedFiles::new(), None);
        let (look, _) = state.next(0).unwrap();
        let (small, large) = (item("a".into(), 10, None), item("large".into(), LARGE, None));
        let (first, second) = (item("h".into(), 10, Some(7)), item("i".into(), 10, Some(7)));
        let extra = ["a/", "h/", "large/"].map(Raw::from).to_vec();
        let (files, large, linked) = (vec![small], vec![large], vec![first, second]);
        state.take(
            0,
            RankMessage::Found(
                look,
                DirFindings { files_seen: 4, files, large, linked, extra, ..DirFindings::default() },
            ),
        );
        let problems = if error { vec![f3()] } else { vec![] };
        state.take(0, RankMessage::Done(look, LeaseResult { problems, ..LeaseResult::default() }));
        let (mut deleted, mut order) = (BTreeSet::new(), Vec::new());
        while let Some((lease, work)) = state.next(0) {
            let mut done = LeaseResult::default();
            let blocks = |item: &SourceEntry| deleted.len() < 3 && item.key != b"i"[..];
            let mut name = |what: &str, key: &Raw| order.push(format!("{what} {}", String::from_utf8_lossy(key)));
            match &work {
                Work::Files { items, .. } if blocks(&items[0]) => done.blocked = items.clone(),
                Work::Files { items, .. } => name("copy", &items[0].key),
                Work::Links { names, .. } => name("link", &names[0].2.key),
                Work::Begin { item, .. } if blocks(item) => done.began = Some(LargeFileStart::Blocked),
                Work::Begin { .. } => done.began = Some(LargeFileStart::Whole(Raw::from("hidden"))),
                Work::Publish { item, .. } => name("copy", &item.key),
                Work::Rmdir { dirs } => deleted.extend(dirs.iter().map(|(_, _, key, _)| key.to_vec())),
                Work::Finish { .. } => name("finish", &Raw::new()),
                Work::Remove { .. } => {}
                other => panic!("{other:?}"),
            }
            state.take(0, RankMessage::Done(lease, done));
        }
        assert!(state.is_done());
        let problems: Vec<String> = state.problems.into_iter().map(|problem| problem.line).collect();
        (deleted.len(), order, problems)
    };
    let (deleted, mut order, problems) = play(false);
    assert_eq!((deleted, &order[0][..], &order[4][..]), (3, "copy i", "finish "));
    order[1..4].sort();
    assert_eq!((&order[1..4], problems), (&["copy a", "copy large", "link h"].map(String::from)[..], vec![]));
    let (deleted, order, mut problems) = play(true);
    assert_eq!((deleted, order), (0, ["copy i", "finish "].map(String::from).to_vec()));
    problems.sort();
    let line = |name: &str| format!("/s/{name}: was not copied: a directory is in its place, and was not deleted");
    assert_eq!(problems[..3], ["a", "h", "large"].map(line));
    assert_eq!(problems[3..], ["f3", "nothing was deleted, since there were errors"]);
}

#[test]
fn everything_is_done_whatever_ranks_are_lost() {
    for seed in 0..300 {
        play(seed, false);
    }
}

#[test]
fn nothing_is_deleted_after_an_error_and_the_rest_is_done() {
    for seed in 0..300 {
        play(seed, true);
    }
}
