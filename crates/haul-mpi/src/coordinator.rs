//! Distribution of work: the coordinator's state, which messages change. Pure: it knows no MPI, no disk and no clock; rank 0 passes it
//! the ranks' messages and asks it for their work.
//!
//! Nothing waits for a phase to end. A directory is looked at while files of others are copied; it is finished when its own listing,
//! its files and its directories are.

mod lost;

use crate::{
    input::Names,
    large::{LargeFile, LargeFiles, is_large},
    links::{LinkAction, Links},
    queue::Stack,
    shared::below,
    tree::{Node, Tree},
    work::{
        DirFindings, Job, LargeFileStart, LeaseResult, Problem, RankMessage, Raw, Root, SelectedNames, SourceEntry,
        Task, Totals, Verb, Work,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

/// Directories of one lease that finishes them.
const FINISHED_AT_ONCE: usize = 64;
/// Names of one lease that links them, or deletes them.
const NAMES_AT_ONCE: usize = 256;

/// A lease that somebody has.
struct Lease {
    rank: usize,
    work: Work,
    /// Files of a directory that its rank deals with itself.
    own: Vec<SourceEntry>,
}

/// A lease that was given to others, while its rank may still do a last step of it.
struct LateLease {
    rank: usize,
    work: Work,
    /// A thread of its rank hangs in it.
    hangs: bool,
    /// Its rank is heard, and will say when it has left it.
    awaited: bool,
}

/// A note for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A large file was begun.
    Begun(u16, SourceEntry, Raw),
    /// A piece of it arrived: offset, bytes, CRC-64.
    Piece(u16, Raw, (u64, u64, u64)),
    /// It is whole, or was given up.
    Ended(u16, Raw),
}

/// Everything that is known of a job under way.
pub struct Coordinator {
    job: Arc<Job>,
    /// Nothing else is copied.
    names: Option<Names>,
    tree: Tree,
    dirs: Stack,
    files: Stack,
    /// Entries that only the destination has; they wait until all is copied.
    extra: Stack,
    /// Files in whose place one of these is: they wait until that is deleted.
    blocked: Stack,
    deleting: bool,
    /// A name was found in the source.
    source_has_names: bool,
    /// The last directory of which it was said that nothing is deleted in it.
    spared: Option<u32>,
    links: Links,
    to_link: VecDeque<(u16, u32, Raw, SourceEntry)>,
    finish: VecDeque<(u16, u32, Raw, bool)>,
    rmdir: VecDeque<(u16, u32, Raw, bool)>,
    larges: LargeFiles,
    /// Work to lease again: a rank was lost, or was stopped.
    again: VecDeque<Work>,
    leases: HashMap<u64, Lease>,
    /// Leases that were given up.
    late: HashMap<u64, LateLease>,
    /// Directories whose time a last step of such a lease may have changed: set right when all is copied.
    disturbed_dirs: BTreeSet<(u16, Raw)>,
    disturbed_files: BTreeMap<(u16, Raw), SourceEntry>,
    /// How often a thread hung in a lease: tree, first name, and where a piece begins.
    hung: HashMap<(u16, Raw, u64), u8>,
    /// Large files that ranks were to begin that were given up since: tree and key.
    begun_late: HashMap<u64, (u16, Raw)>,
    /// Leases of each rank.
    held: HashMap<usize, usize>,
    next: u64,
    slots: usize,
    /// Sums over all ranks.
    pub totals: Totals,
    /// Files and bytes that were found so far.
    pub seen: (u64, u64),
    /// Errors so far.
    pub errors: u64,
    /// Sources that were missing when their turn came.
    pub vanished: u64,
    /// No room is left.
    pub full: bool,
    /// No more work is leased.
    pub stopping: bool,
    /// Lines to print.
    pub lines: Vec<String>,
    /// Errors to print.
    pub problems: Vec<Problem>,
    /// For the journal.
    pub notes: Vec<Note>,
    /// Something that can't go on: a stack has no room.
    pub broken: Option<String>,
}

impl Coordinator {
    /// For a job with `slots` slots in all; `left` is what an earlier run left of large files, `names` restricts the copy to these names.
    pub fn new(
        job: Arc<Job>,
        slots: usize,
        left: crate::journal::UnfinishedFiles,
        names: Option<Names>,
    ) -> Coordinator {
        let mut this = Coordinator {
            tree: Tree::default(),
            dirs: Stack::default(),
            files: Stack::default(),
            extra: Stack::default(),
            blocked: Stack::default(),
            deleting: false,
            source_has_names: false,
            spared: None,
            links: Links::default(),
            to_link: VecDeque::new(),
            finish: VecDeque::new(),
            rmdir: VecDeque::new(),
            larges: LargeFiles::new(left),
            again: VecDeque::new(),
            leases: HashMap::new(),
            late: HashMap::new(),
            disturbed_dirs: BTreeSet::new(),
            disturbed_files: BTreeMap::new(),
            hung: HashMap::new(),
            begun_late: HashMap::new(),
            held: HashMap::new(),
            next: 0,
            slots: slots.max(1),
            totals: Totals::default(),
            seen: (0, 0),
            errors: 0,
            vanished: 0,
            full: false,
            stopping: false,
            lines: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            broken: None,
            names,
            job,
        };
        this.begin();
        this
    }

    fn begin(&mut self) {
        for number in (0..self.job.roots.len()).rev() {
            let root = number as u16;
            let Root { one, .. } = &self.job.roots[number];
            let (key, alone) = match one {
                Some((from, _)) => (from.clone(), true),
                None => (Raw::new(), false),
            };
            let work = match (self.job.verb, alone) {
                (Verb::Delete, true) => Work::Delete { root, node: self.tree.virtual_node(root), keys: vec![key] },
                (Verb::Delete, false) => {
                    let node = self.tree.add(Node::going(None, root, key.clone()));
                    Work::Remove { root, node, key }
                }
                // One file is looked at as its directory would be, between its own key and the next.
                (_, true) => {
                    Work::Dir { root, node: self.tree.virtual_node(root), key, fresh: false, after: None, only: None }
                }
                (_, false) => {
                    let node = self.tree.add(Node::growing(None, root, key.clone(), false));
                    let only = self.only(root, node, &key, false);
                    Work::Dir { root, node, key, fresh: false, after: None, only }
                }
            };
            self.again.push_back(work);
        }
    }

    /// Something is mounted below a folder of the job: it may be a part of that folder, which shows its files under further names.
    pub fn has_mounts(&mut self) {
        self.links.more_names = true;
    }

    /// True when nothing is left to do, or to wait for.
    pub fn is_done(&self) -> bool {
        self.leases.is_empty() && (self.stopping || self.full || self.broken.is_some() || self.is_idle())
    }

    fn is_idle(&self) -> bool {
        self.extra.is_empty()
            && self.blocked.is_empty()
            && self.is_copied()
            && self.disturbed_dirs.is_empty()
            && self.disturbed_files.is_empty()
            && !self.late.values().any(|late| late.awaited)
    }

    /// True when all files are copied.
    fn is_copied(&self) -> bool {
        self.again.is_empty()
            && self.dirs.is_empty()
            && self.files.is_empty()
            && self.to_link.is_empty()
            && self.finish.is_empty()
            && self.rmdir.is_empty()
            && self.larges.is_empty()
            && !self.links.is_waiting()
    }

    /// How many leases a rank has.
    pub fn held(&self, rank: usize) -> usize {
        self.held.get(&rank).copied().unwrap_or(0)
    }

    /// Takes in what a rank said of a lease. What isn't its lease any more is passed over: it was given to another.
    pub fn take(&mut self, rank: usize, said: RankMessage) {
        match said {
            RankMessage::Found(lease, mut found) => {
                let Some(held) = self.leases.get_mut(&lease).filter(|held| held.rank == rank) else { return };
                let (root, node) = match &mut held.work {
                    Work::Dir { root, node, after, only, .. } => {
                        if let Some(last) = &found.last {
                            *after = Some(last.clone());
                            only.iter_mut().for_each(|only| only.names.retain(|name| name > last));
                            held.own = std::mem::take(&mut found.own);
                        }
                        (*root, *node)
                    }
                    Work::Named { root, node, names, .. } => {
                        if let Some(last) = &found.last {
                            names.retain(|name| name > last);
                            held.own = std::mem::take(&mut found.own);
                        }
                        (*root, *node)
                    }
                    Work::Remove { root, node, .. } => (*root, *node),
                    _ => return,
                };
                self.found(root, node, found);
            }
            RankMessage::Part(lease, bytes, crc) => {
                let Some(held) = self.leases.get_mut(&lease).filter(|held| held.rank == rank) else { return };
                let Work::Piece { root, item, offset, len, .. } = &mut held.work else { return };
                self.notes.push(Note::Piece(*root, item.key.clone(), (*offset, bytes, crc)));
                *offset += bytes;
                *len = len.saturating_sub(bytes);
                self.totals.bytes += bytes;
            }
            RankMessage::Done(lease, done) => {
                let Some(held) = self.leases.remove(&lease) else {
                    self.left(rank, lease);
                    if let (Some((root, key)), Some(LargeFileStart::Anew(token) | LargeFileStart::Whole(token))) =
                        (self.begun_late.remove(&lease), done.began)
                    {
                        self.larges.discard_other(root, key, token);
                    }
                    return;
                };
                if held.rank != rank {
                    self.leases.insert(lease, held);
                    return;
                }
                *self.held.entry(rank).or_insert(1) -= 1;
                match done.undone {
                    true => self.give_again(held),
                    false => self.done(rank, held.work, done),
                }
            }
            _ => {}
        }
        self.go_on();
    }

    fn found(&mut self, root: u16, node: u32, found: DirFindings) {
        self.source_has_names |= !self.tree.is_going(node) && (found.files_seen > 0 || !found.dirs.is_empty());
        self.seen.0 += found.files_seen;
        self.seen.1 += found.bytes_seen;
        self.totals += found.totals;
        self.show(found.problems, found.lines);
        if found.unsure {
            self.tree.doubt(node);
        }
        for (key, fresh) in found.dirs {
            self.tree.wait(node);
            let work = match self.tree.is_going(node) {
                true => Work::Remove { root, node, key },
                false => Work::Dir { root, node, key, fresh, after: None, only: None },
            };
            self.push(work);
        }
        if !found.files.is_empty() {
            self.tree.wait(node);
            self.push(Work::Files { root, node, items: found.files });
        }
        for item in found.linked {
            self.tree.wait(node);
            self.meet(root, node, item);
        }
        for item in found.large {
            self.tree.wait(node);
            self.larges.add(root, node, item);
        }
        let mut files = Vec::new();
        for key in found.extra {
            match key.last() {
                Some(b'/') => {
                    self.tree.wait(node);
                    let work = Work::Remove { root, node, key };
                    self.push_extra(work);
                }
                _ => files.push(key),
            }
        }
        for keys in files.chunks(NAMES_AT_ONCE) {
            self.tree.wait(node);
            self.push_extra(Work::Delete { root, node, keys: keys.to_vec() });
        }
    }

    fn show(&mut self, problems: Vec<Problem>, lines: Vec<String>) {
        for problem in problems {
            self.errors += 1;
            self.vanished += u64::from(problem.vanished);
            // What other threads meanwhile found no room for is one fact with the first.
            let known = problem.full && std::mem::replace(&mut self.full, true);
            if !known {
                self.problems.push(problem);
            }
        }
        self.lines.extend(lines);
    }

    fn push(&mut self, work: Work) {
        let stack = match work {
            Work::Files { .. } => &mut self.files,
            _ => &mut self.dirs,
        };
        self.broken = push(stack, &work).or(self.broken.take());
    }

    fn push_extra(&mut self, work: Work) {
        self.broken = push(&mut self.extra, &work).or(self.broken.take());
    }

    /// A file that its directory waits for, which may be one of several names.
    fn meet(&mut self, root: u16, node: u32, item: SourceEntry) {
        match self.links.meet(root, node, item) {
            LinkAction::First(item) => self.copy(root, node, item),
            LinkAction::Ready(name, item) => self.to_link.push_back((root, node, name, item)),
            LinkAction::Waits => {}
        }
    }

    fn copy(&mut self, root: u16, node: u32, item: SourceEntry) {
        match is_large(&item) && !self.job.dry_run {
            true => self.larges.add(root, node, item),
            false => self.push(Work::Files { root, node, items: vec![item] }),
        }
    }

    /// Files that wait until the directories in their places are deleted; their own directory waits for them.
    fn block(&mut self, root: u16, node: u32, items: Vec<SourceEntry>) {
        for item in items {
            self.tree.wait(node);
            // All that goes is gone by now.
            if self.deleting {
                self.fail_blocked(root, node, &item);
                continue;
            }
            let work = Work::Files { root, node, items: vec![item] };
            self.broken = push(&mut self.blocked, &work).or(self.broken.take());
        }
    }

    fn fail_blocked(&mut self, root: u16, node: u32, item: &SourceEntry) {
        let path = below(&self.job.roots[usize::from(root)].src, &item.key);
        let line = format!("{path}: was not copied: a directory is in its place, and was not deleted");
        self.show(vec![Problem { line, full: false, vanished: false }], Vec::new());
        self.complete(node);
    }

    fn done(&mut self, rank: usize, work: Work, done: LeaseResult) {
        self.totals += match &work {
            // A file that differs is counted once, and parts of a piece were counted before.
            Work::Piece { len, .. } => Totals { differ: 0, bytes: done.totals.bytes.min(*len), ..done.totals },
            _ => done.totals,
        };
        let failed = !done.problems.is_empty();
        self.show(done.problems, done.lines);
        let blocked: HashSet<Raw> = done.blocked.iter().map(|item| item.key.clone()).collect();
        match work {
            Work::Dir { root, node, .. } => {
                if done.finished {
                    self.tree.finished_itself(node);
                }
                self.block(root, node, done.blocked);
                self.complete(node);
            }
            Work::Remove { node, .. } => self.complete(node),
            Work::Files { root, node, items } => {
                for (number, item) in items.into_iter().enumerate() {
                    let arrived = !done.failed.contains(&(number as u32)) && !blocked.contains(&item.key);
                    self.settle_name(root, item, arrived);
                }
                self.block(root, node, done.blocked);
                self.complete(node);
            }
            Work::Links { root, names } => {
                for (number, (node, _, item)) in names.into_iter().enumerate() {
                    // Where links can't be made each name becomes a file.
                    if done.failed.contains(&(number as u32)) {
                        self.copy(root, node, SourceEntry { linked: None, task: Task::Copy, ..item });
                        continue;
                    }
                    match blocked.contains(&item.key) {
                        true => self.block(root, node, vec![item]),
                        false => self.links.linked(root, &item),
                    }
                    self.complete(node);
                }
            }
            Work::Begin { id, root, item, left } => match done.began {
                Some(LargeFileStart::Blocked) => {
                    // Parts from an earlier run still exist when it is begun after all.
                    left.into_iter().for_each(|left| self.larges.keep(root, left));
                    if let Some(LargeFile { node, .. }) = self.larges.remove(id) {
                        self.settle_name(root, item.clone(), false);
                        self.block(root, node, vec![item]);
                        self.complete(node);
                    }
                }
                Some(began) => {
                    match (&began, left) {
                        (LargeFileStart::Anew(token), _) => self.notes.push(Note::Begun(root, item, token.clone())),
                        (LargeFileStart::Found(_), Some(left)) => self.larges.found(id, left.pieces),
                        _ => {}
                    }
                    match began {
                        LargeFileStart::Linked => self.large_ended(id, true),
                        began => self.larges.began(id, began),
                    }
                }
                None => self.large_ended(id, false),
            },
            Work::Piece { id, root, item, offset, len, .. } => {
                if let Some(crc) = done.crc.filter(|_| !failed && len > 0) {
                    self.notes.push(Note::Piece(root, item.key, (offset, len, crc)));
                }
                if let Some(whole) = self.larges.piece(id, rank, !failed, done.totals.differ > 0) {
                    self.compared(id, whole);
                }
            }
            Work::Publish { id, .. } if failed => self.larges.discard(id),
            Work::Publish { id, .. } => {
                self.totals.files += 1;
                self.large_ended(id, true);
            }
            Work::Discard { id, root, key, .. } => {
                if !failed {
                    self.notes.push(Note::Ended(root, key));
                }
                if let Some(id) = id {
                    self.large_ended(id, false);
                }
            }
            Work::Finish { dirs } | Work::Rmdir { dirs } => {
                for (_, node, ..) in dirs {
                    self.complete(node);
                }
            }
            Work::Named { root, node, .. } => {
                self.block(root, node, done.blocked);
                self.complete(node);
            }
            Work::Delete { node, .. } => self.complete(node),
        }
    }

    /// A large file is compared; `whole`: all that had to be read was. A sync then copies it or gives it its attributes.
    fn compared(&mut self, id: u32, whole: bool) {
        if self.job.verb == Verb::Check || !whole {
            return self.large_ended(id, whole);
        }
        let Some(LargeFile { root, node, item, differs, .. }) = self.larges.remove(id) else { return };
        let task = if differs { Task::Copy } else { Task::Attributes };
        self.copy(root, node, SourceEntry { task, ..item });
    }

    fn large_ended(&mut self, id: u32, arrived: bool) {
        let Some(LargeFile { root, node, item, differs, .. }) = self.larges.remove(id) else { return };
        if arrived {
            self.notes.push(Note::Ended(root, item.key.clone()));
        }
        if self.job.verb == Verb::Check {
            self.totals.differ += u64::from(differs);
            self.totals.files += 1;
            if differs {
                let path = below(&self.job.roots[usize::from(root)].src, &item.key);
                self.lines.push(format!("differs: {path}"));
            }
        }
        self.settle_name(root, item, arrived);
        self.complete(node);
    }

    /// Resolves the names that wait for the first name of a file.
    fn settle_name(&mut self, root: u16, item: SourceEntry, arrived: bool) {
        if arrived {
            for (node, name) in self.links.arrived(root, &item) {
                self.to_link.push_back((root, node, item.key.clone(), name));
            }
        } else if let Some((node, next)) = self.links.failed(root, &item) {
            self.copy(root, node, next);
        }
    }

    /// One thing that this directory waited for is done.
    fn complete(&mut self, node: u32) {
        let attributes = matches!(self.job.verb, Verb::Dcp | Verb::Sync);
        let mut at = Some(node);
        while let Some(node) = at {
            at = match self.tree.complete(node, attributes) {
                crate::tree::NextStep::Waits => None,
                crate::tree::NextStep::Finish(place) => {
                    self.finish.push_back(place);
                    None
                }
                crate::tree::NextStep::Rmdir(place) => {
                    self.rmdir.push_back(place);
                    None
                }
                crate::tree::NextStep::Above(parent) => parent,
            };
        }
    }

    /// After everything that changes: deletions begin when all is copied, and only if nothing went wrong.
    fn go_on(&mut self) {
        if self.leases.is_empty() && self.errors == 0 && self.is_copied() && self.blocked.is_empty() {
            self.larges.discard_left();
        }
        // After deletions, for which directories wait.
        let done = self.leases.is_empty() && self.extra.is_empty() && self.blocked.is_empty() && self.is_copied();
        if done && !self.late.values().any(|late| late.awaited) {
            self.set_right();
        }
        let waits = !self.extra.is_empty() || !self.blocked.is_empty();
        if !waits || !self.leases.is_empty() || !self.is_copied() {
            return;
        }
        if self.deleting {
            // All that goes is gone.
            if self.extra.is_empty() {
                while let Some(Work::Files { root, node, items }) = self.pop(|this| &mut this.blocked) {
                    items.into_iter().for_each(|item| self.meet(root, node, item));
                }
            }
            return;
        }
        if self.errors > 0 || self.stopping {
            let line = "nothing was deleted, since there were errors".to_owned();
            if self.keep_extra() {
                self.problems.push(Problem { line, full: false, vanished: false });
            }
        } else if !self.source_has_names && !self.job.allow_empty_source {
            // A file system that isn't mounted looks like that.
            let Root { src, dst, .. } = &self.job.roots[0];
            let [src, dst] = [src, dst].map(|path| String::from_utf8_lossy(path));
            let line = format!(
                "Refused to delete what is in {dst}: source {src} is empty (--allow-empty-source if that is intended)"
            );
            self.keep_extra();
            self.show(vec![Problem { line, full: false, vanished: false }], Vec::new());
        }
        self.deleting = true;
    }

    /// Leaves what the destination alone has; whether that was anything.
    fn keep_extra(&mut self) -> bool {
        let mut spared = false;
        while let Ok(Some(bytes)) = self.extra.pop() {
            if let Ok(Work::Remove { node, .. } | Work::Delete { node, .. }) = rmp_serde::from_slice(&bytes) {
                spared = true;
                self.complete(node);
            }
        }
        while let Some(Work::Files { root, node, items }) = self.pop(|this| &mut this.blocked) {
            items.iter().for_each(|item| self.fail_blocked(root, node, item));
        }
        spared
    }

    /// The next lease for a rank.
    pub fn next(&mut self, rank: usize) -> Option<(u64, Work)> {
        if self.stopping || self.full || self.broken.is_some() {
            return None;
        }
        self.go_on();
        let work = self.choose(rank)?;
        let lease = self.next;
        self.next += 1;
        self.leases.insert(lease, Lease { rank, work: work.clone(), own: Vec::new() });
        *self.held.entry(rank).or_insert(0) += 1;
        Some((lease, work))
    }

    fn choose(&mut self, rank: usize) -> Option<Work> {
        if let Some(work) = self.again.pop_front() {
            return Some(work);
        }
        if let Some(work) = self.larges.publish(rank).or_else(|| self.larges.discarded()) {
            return Some(work);
        }
        if let Some((root, ..)) = self.to_link.front() {
            let root = *root;
            let mut names = Vec::new();
            while names.len() < NAMES_AT_ONCE && self.to_link.front().is_some_and(|(r, ..)| *r == root) {
                let Some((_, node, first, item)) = self.to_link.pop_front() else { break };
                names.push((node, first, item));
            }
            return Some(Work::Links { root, names });
        }
        if !self.finish.is_empty() {
            let count = self.finish.len().min(FINISHED_AT_ONCE);
            return Some(Work::Finish { dirs: self.finish.drain(..count).collect() });
        }
        if !self.rmdir.is_empty() {
            let count = self.rmdir.len().min(FINISHED_AT_ONCE);
            return Some(Work::Rmdir { dirs: self.rmdir.drain(..count).collect() });
        }
        // The walk and small files continue beside large ones.
        let others = !self.files.is_empty() || !self.dirs.is_empty();
        if !(others && self.larges.under_way() * 4 >= self.slots * 3)
            && let Some(work) = self.larges.next(self.slots)
        {
            return Some(work);
        }
        if let Some(work) = self.pop(|this| &mut this.files) {
            return Some(work);
        }
        if let Some(work) = self.pop(|this| &mut this.dirs) {
            return Some(self.open(work));
        }
        match self.deleting {
            true => self.next_extra(),
            false => None,
        }
    }

    /// Nothing goes from a directory that was listed with a doubt.
    fn next_extra(&mut self) -> Option<Work> {
        loop {
            let work = self.pop(|this| &mut this.extra)?;
            let (Work::Remove { root, node, .. } | Work::Delete { root, node, .. }) = work else { return Some(work) };
            let Some(dir) = self.tree.doubted(node) else { return Some(self.open(work)) };
            if !self.job.quiet && self.spared.replace(node) != Some(node) {
                let dir = below(&self.job.roots[usize::from(root)].dst, &dir);
                self.lines.push(format!("nothing was deleted in {dir}, in which names changed: the next run does"));
            }
            self.complete(node);
        }
    }

    fn pop(&mut self, stack: impl Fn(&mut Self) -> &mut Stack) -> Option<Work> {
        match stack(self).pop() {
            Ok(bytes) => bytes.and_then(|bytes| rmp_serde::from_slice(&bytes).ok()),
            Err(error) => {
                self.broken = Some(format!("the list of what is to be done can't be read: {error}"));
                None
            }
        }
    }

    /// A directory that is leased gets its own place in the tree; until then it is only its parent's.
    fn open(&mut self, work: Work) -> Work {
        match work {
            Work::Dir { root, node, key, fresh, after, .. } => {
                let node = self.tree.add(Node::growing(Some(node), root, key.clone(), fresh));
                let only = self.only(root, node, &key, fresh);
                Work::Dir { root, node, key, fresh, after, only }
            }
            Work::Remove { root, node, key } => {
                let node = self.tree.add(Node::going(Some(node), root, key.clone()));
                Work::Remove { root, node, key }
            }
            work => work,
        }
    }

    /// The names of a list to look at in a directory, if there is a list: the first names go with the directory, more of them are work for
    /// all.
    fn only(&mut self, root: u16, node: u32, key: &Raw, fresh: bool) -> Option<SelectedNames> {
        let names = self.names.as_ref()?.in_dir(key);
        let mut chunks = names.chunks(NAMES_AT_ONCE).map(<[Raw]>::to_vec);
        let first = chunks.next().unwrap_or_default();
        let rest: Vec<Vec<Raw>> = chunks.collect();
        let more = !rest.is_empty();
        for names in rest {
            self.tree.wait(node);
            self.push(Work::Named { root, node, key: key.clone(), fresh, names });
        }
        Some(SelectedNames { names: first, more })
    }
}

/// Adds work; what is wrong if that fails.
fn push(stack: &mut Stack, work: &Work) -> Option<String> {
    let bytes = rmp_serde::to_vec(work).expect("work is plain data");
    stack
        .push(bytes)
        .err()
        .map(|error| format!("there is no room in {} for what is to be done: {error}", std::env::temp_dir().display()))
}
