//! Leases of ranks that are lost, or hang in a file system: others get them, and changes by a late step of such a rank
//! are corrected at the end.

use super::{Coordinator, LateLease, Lease};
use crate::{
    shared::below,
    work::{LeaseResult, Problem, Raw, SourceEntry, Task, Verb, Work},
};

/// So many threads may hang in a file system for one lease; then it has failed.
const HANG_AT_MOST: u8 = 3;

impl Coordinator {
    /// A rank left a lease that others were given.
    pub(super) fn left(&mut self, rank: usize, lease: u64) {
        let Some(late) = self.late.remove(&lease) else { return };
        if late.hangs {
            let held = self.held.entry(rank).or_insert(1);
            *held = held.saturating_sub(1);
        }
        if !matches!(self.job.verb, Verb::Dcp | Verb::Sync) || self.job.dry_run {
            return;
        }
        let mut disturb = |root, key: &[u8]| _ = self.disturbed_dirs.insert((root, Raw::from(above(key))));
        match late.work {
            Work::Dir { root, key, .. } | Work::Named { root, key, .. } => {
                disturb(root, &key);
                self.disturbed_dirs.insert((root, key));
            }
            Work::Files { root, items, .. } => items.iter().for_each(|item| disturb(root, &item.key)),
            Work::Links { root, names } => names.iter().for_each(|(_, _, item)| disturb(root, &item.key)),
            Work::Begin { root, item, .. } | Work::Publish { root, item, .. } => disturb(root, &item.key),
            Work::Piece { item, .. } if item.task == Task::Compare => {}
            Work::Piece { root, item, .. } => _ = self.disturbed_files.insert((root, item.key.clone()), item),
            // Files it removed were missing before others did the same, and attributes of directories are the same.
            Work::Discard { .. }
            | Work::Finish { .. }
            | Work::Remove { .. }
            | Work::Delete { .. }
            | Work::Rmdir { .. } => {}
        }
    }

    /// Times that late steps have moved are set right, when all else is done.
    pub(super) fn set_right(&mut self) {
        if self.errors > 0 {
            // The next run does.
            (self.disturbed_dirs, self.disturbed_files) = Default::default();
        }
        for ((root, key), item) in std::mem::take(&mut self.disturbed_files) {
            self.disturbed_dirs.insert((root, Raw::from(above(&key))));
            let node = self.tree.virtual_node(root);
            self.push(Work::Files {
                root,
                node,
                items: vec![SourceEntry { task: Task::Attributes, linked: None, ..item }],
            });
        }
        for (root, key) in std::mem::take(&mut self.disturbed_dirs) {
            if self.job.preserve && self.job.roots[usize::from(root)].one.is_none() {
                let node = self.tree.virtual_node(root);
                self.finish.push_back((root, node, key, false));
            }
        }
    }

    /// Leases of a rank that hang in a file system, and whether it has begun them: they are given to others.
    pub fn hung(&mut self, rank: usize, leases: &[(u64, bool)]) {
        for (lease, begun) in leases {
            let Some(held) = self.leases.remove(lease) else { continue };
            if held.rank != rank {
                self.leases.insert(*lease, held);
                continue;
            }
            let (root, name) = held.work.name();
            let at = if let Work::Piece { offset, .. } = held.work { offset } else { 0 };
            let times = self.hung.entry((root, name.clone(), at)).or_insert(0);
            *times += u8::from(*begun);
            let failed = *times >= HANG_AT_MOST;
            self.late(*lease, &held, true);
            match failed {
                true => {
                    let path = below(&self.job.roots[usize::from(root)].src, &name);
                    let line = format!("{path}: was given up, since a file system did not answer {HANG_AT_MOST} times");
                    let failed = match &held.work {
                        Work::Files { items, .. } => (0..items.len() as u32).collect(),
                        _ => Vec::new(),
                    };
                    let problems = vec![Problem { line, full: false, vanished: false }];
                    self.done(rank, held.work, LeaseResult { problems, failed, ..LeaseResult::default() });
                }
                false => self.give_again(held),
            }
        }
        self.go_on();
    }

    fn late(&mut self, lease: u64, held: &Lease, hangs: bool) {
        if let Work::Begin { root, item, .. } = &held.work {
            self.begun_late.insert(lease, (*root, item.key.clone()));
        }
        self.late.insert(lease, LateLease { rank: held.rank, work: held.work.clone(), hangs, awaited: false });
    }

    /// A rank that was lost is heard again: it leaves what it had, and says so.
    pub fn back(&mut self, rank: usize) {
        for late in self.late.values_mut().filter(|late| late.rank == rank && !late.hangs) {
            late.awaited = true;
        }
    }

    /// Nobody knows what became of a rank: what it had is given to others.
    pub fn lost(&mut self, rank: usize) {
        for late in self.late.values_mut().filter(|late| late.rank == rank) {
            late.awaited = false;
        }
        let lost: Vec<u64> = self.leases.iter().filter(|(_, held)| held.rank == rank).map(|(id, _)| *id).collect();
        for lease in lost {
            if let Some(held) = self.leases.remove(&lease) {
                self.late(lease, &held, false);
                self.give_again(held);
            }
        }
        // Its threads that hang can't do anything else when it comes back.
        let hanging = self.late.values().filter(|late| late.rank == rank && late.hangs).count();
        self.held.insert(rank, hanging);
    }

    pub(super) fn give_again(&mut self, held: Lease) {
        // Its earlier reports count, but nobody has handled its own files.
        if let Work::Dir { root, node, .. } | Work::Named { root, node, .. } = held.work
            && !held.own.is_empty()
        {
            self.tree.wait(node);
            self.push(Work::Files { root, node, items: held.own });
        }
        match held.work {
            Work::Piece { id, offset, len, crc, .. } => {
                if let Some(whole) = self.larges.again(id, (offset, len, crc)) {
                    self.compared(id, whole);
                }
            }
            work => self.again.push_back(work),
        }
    }
}

/// The directory that a key is in.
fn above(key: &[u8]) -> &[u8] {
    let name = key.strip_suffix(b"/").unwrap_or(key);
    &name[..name.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1)]
}
