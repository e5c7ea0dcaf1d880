//! Directories that a job has seen, and the work on them when its files are done: which are missing, which to delete, whose times and
//! attributes to set, and in which order.

use crate::extra_dirs::ExtraDirs;
use haul_core::{Entry, Key, Meta, Mtime, Posix, compare::Rules, key};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, MutexGuard},
};

/// The directories of both sides.
#[derive(Default)]
pub struct Dirs {
    state: Mutex<State>,
    /// Only the destination has them.
    pub extra: ExtraDirs,
}

#[derive(Default)]
struct State {
    /// The source's, and those of the destination that keep the attributes that they have.
    seen: BTreeMap<Key, Dir>,
    /// Something was written or deleted in these, at the destination.
    written: HashSet<Key>,
    /// The destination's root is only made by this job.
    new_root: bool,
    /// Something was written or deleted anywhere, which may have been in the root.
    any_written: bool,
}

#[derive(Default)]
struct Dir {
    mtime: Option<Mtime>,
    meta: Option<Box<Meta>>,
    posix: Option<Box<Posix>>,
    /// The destination has it, with this time and these facts.
    there: bool,
    there_mtime: Option<Mtime>,
    there_posix: Option<Box<Posix>>,
    /// It keeps the attributes that it has.
    keeps_own: bool,
}

/// A directory whose attributes are to be set.
#[derive(Debug, PartialEq, Eq)]
pub struct DueDirectory {
    /// Which.
    pub key: Key,
    /// The time to set; `None` where its own stays.
    pub mtime: Option<Mtime>,
    /// It is only made by this job.
    pub new: bool,
}

impl Dirs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A directory on both sides.
    pub fn both(&self, src: Entry, dst: Entry) {
        let Entry { key, mtime, meta, posix, .. } = src;
        let (there_mtime, there_posix) = (dst.mtime, dst.posix);
        let dir = Dir { mtime, meta, posix, there: true, there_mtime, there_posix, keeps_own: false };
        self.state().seen.insert(key, dir);
    }

    /// A directory of the destination that keeps the attributes that it has, whatever is written into it.
    pub fn keep(&self, dst: Entry) {
        let Entry { key, mtime, posix, .. } = dst;
        let (there_mtime, there_posix) = (mtime, posix);
        let dir = Dir { mtime, there: true, there_mtime, there_posix, keeps_own: true, ..Dir::default() };
        self.state().seen.insert(key, dir);
    }

    /// A directory that only the source has.
    pub fn src_only(&self, src: Entry) {
        let Entry { key, mtime, meta, posix, .. } = src;
        self.state().seen.insert(key, Dir { mtime, meta, posix, ..Dir::default() });
    }

    /// A directory of the source that turns out to be at the destination.
    pub fn found(&self, key: &Key, dst: Entry) {
        if let Some(dir) = self.state().seen.get_mut(key) {
            (dir.there, dir.there_mtime, dir.there_posix) = (true, dst.mtime, dst.posix);
        }
    }

    /// The destination's root is only made by this job.
    pub fn root_is_new(&self) {
        self.state().new_root = true;
    }

    /// True when the destination's root is only made by this job.
    pub fn is_root_new(&self) -> bool {
        self.state().new_root
    }

    /// True if the root's attributes are to be set whatever it has.
    pub fn is_root_due(&self) -> bool {
        self.state().any_written
    }

    /// Something was written or deleted at this key: the directories above it have new times now.
    pub fn written(&self, at: &Key) {
        let mut state = self.state();
        state.any_written = true;
        let mut dir = key::parent(at.as_bytes());
        while !dir.is_empty() && state.written.insert(Key::new(dir)) {
            dir = key::parent(dir);
        }
    }

    /// A directory was made: it has a new time, as those above it have.
    pub fn made(&self, dir: &Key) {
        self.written(dir);
        self.state().written.insert(dir.clone());
    }

    /// The source's directories that are missing at the destination, as nothing was written into them.
    pub fn missing(&self) -> Vec<Key> {
        let state = self.state();
        let missing = |key: &Key, dir: &Dir| !dir.there && !key.is_root() && !state.written.contains(key);
        state.seen.iter().filter(|(key, dir)| missing(key, dir)).map(|(key, _)| key.clone()).collect()
    }

    /// Directories that keep their own attributes and were written into: the time and mode to give back, the deepest first.
    pub fn take_changed_of_others(&self) -> Vec<(Key, Option<Mtime>, Option<u32>)> {
        let mut state = self.state();
        let (own, rest): (BTreeMap<_, _>, _) =
            std::mem::take(&mut state.seen).into_iter().partition(|(_, dir)| dir.keeps_own);
        state.seen = rest;
        // Writes into the root aren't noted.
        let changed = own.into_iter().filter(|(key, _)| key.is_root() || state.written.contains(key));
        changed.rev().map(|(key, dir)| (key, dir.mtime, dir.there_posix.map(|posix| posix.mode))).collect()
    }

    /// Directories whose time is another than the source's, with that and the source's metadata, the deepest first.
    pub fn take_other_times(&self, rules: &Rules) -> Vec<(Key, Mtime, Option<Box<Meta>>)> {
        let mut state = self.state();
        let seen = std::mem::take(&mut state.seen);
        let other = |dir: &Dir| dir.there && !rules.dir_times_agree(dir.mtime, dir.there_mtime);
        let due = seen.into_iter().filter(|(key, dir)| state.written.contains(key) || other(dir));
        due.rev().filter_map(|(key, dir)| Some((key, dir.mtime?, dir.meta))).collect()
    }

    /// Directories whose attributes are to be set, the root too, by levels and the deepest first: one may be closed to us once it
    /// has its own permissions. `time`: times are set, too. `differ` compares what both sides have.
    pub fn take_levels(
        &self,
        rules: &Rules,
        time: bool,
        differ: impl Fn(Option<&Posix>, Option<&Posix>) -> bool,
    ) -> Vec<Vec<DueDirectory>> {
        let mut state = self.state();
        let seen = std::mem::take(&mut state.seen);
        let mut levels: BTreeMap<usize, Vec<DueDirectory>> = BTreeMap::new();
        for (key, dir) in seen {
            let written = state.written.contains(&key) || (key.is_root() && state.any_written);
            let other_time = time && !rules.dir_times_agree(dir.mtime, dir.there_mtime);
            let other = || differ(dir.posix.as_deref(), dir.there_posix.as_deref());
            // Nobody may have looked at the root.
            let new = if key.is_root() { state.new_root } else { !dir.there };
            if written || (dir.there && (new || other_time || other())) {
                let depth = key.as_bytes().iter().filter(|b| **b == b'/').count();
                // Where its own is as good, it stays: a file system may not have any nearer.
                let mtime = dir.mtime.filter(|_| time && (written || other_time));
                levels.entry(depth).or_default().push(DueDirectory { key, mtime, new });
            }
        }
        levels.into_values().rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::job::Job;

    fn dir(key: &str, mtime: i128) -> Entry {
        Entry { mtime: Some(Mtime(mtime)), ..Entry::dir(Key::new(key)) }
    }

    fn rules() -> Rules {
        Rules::new(&Job::default(), Some(1), Some(1))
    }

    fn keys(all: &[Key]) -> Vec<String> {
        all.iter().map(Key::to_string).collect()
    }

    #[test]
    fn directories_without_new_files_are_missing() {
        let dirs = Dirs::default();
        for key in ["", "a/", "a/b/", "c/"] {
            dirs.src_only(dir(key, 1));
        }
        dirs.both(dir("d/", 1), dir("d/", 1));
        dirs.written(&Key::new("a/file"));
        assert_eq!(keys(&dirs.missing()), ["a/b/", "c/"]);
        dirs.made(&Key::new("a/b/"));
        dirs.found(&Key::new("c/"), dir("c/", 1));
        assert!(dirs.missing().is_empty());
    }

    #[test]
    fn times_are_set_where_they_differ_or_something_was_written() {
        let dirs = Dirs::default();
        dirs.both(dir("same/", 5), dir("same/", 5));
        dirs.both(dir("other/", 5), dir("other/", 6));
        dirs.both(dir("written/", 5), dir("written/", 5));
        dirs.both(dir("written/in/", 7), dir("written/in/", 7));
        dirs.both(Entry::dir(Key::new("unknown/")), dir("unknown/", 6));
        dirs.src_only(dir("absent/", 5));
        dirs.written(&Key::new("written/in/file"));
        let due: Vec<_> =
            dirs.take_other_times(&rules()).into_iter().map(|(key, mtime, _)| (key.to_string(), mtime.0)).collect();
        assert_eq!(due, [("written/in/".into(), 7), ("written/".into(), 5), ("other/".into(), 5)]);
        assert!(dirs.take_other_times(&rules()).is_empty());
    }

    #[test]
    fn attributes_are_set_by_levels() {
        let dirs = Dirs::default();
        dirs.root_is_new();
        dirs.src_only(dir("", 9));
        dirs.found(&Key::new(""), dir("", 1));
        dirs.both(dir("a/", 5), dir("a/", 5));
        dirs.both(dir("a/b/", 5), dir("a/b/", 4));
        dirs.both(dir("c/", 5), dir("c/", 5));
        dirs.src_only(dir("new/", 5));
        dirs.src_only(dir("empty/", 5));
        dirs.written(&Key::new("new/file"));
        let due =
            |key: &str, mtime: Option<i128>, new| DueDirectory { key: Key::new(key), mtime: mtime.map(Mtime), new };
        let levels = dirs.take_levels(&rules(), true, |_, _| false);
        assert_eq!(
            levels,
            [
                vec![due("a/b/", Some(5), false)],
                // One that isn't there, as nothing came into it, has no attributes to set.
                vec![due("new/", Some(5), true)],
                vec![due("", Some(9), true)],
            ]
        );
        dirs.both(dir("a/", 5), dir("a/", 4));
        assert_eq!(dirs.take_levels(&rules(), false, |_, _| true), [vec![due("a/", None, false)]]);
    }

    #[test]
    fn directories_that_keep_their_times_get_them_back_after_writes() {
        let dirs = Dirs::default();
        for key in ["", "a/", "b/"] {
            dirs.keep(dir(key, 3));
        }
        dirs.both(dir("a/mine/", 1), dir("a/mine/", 1));
        dirs.written(&Key::new("a/mine/file"));
        let back: Vec<_> =
            dirs.take_changed_of_others().into_iter().map(|(key, mtime, _)| (key.to_string(), mtime)).collect();
        assert_eq!(back, [("a/".into(), Some(Mtime(3))), (String::new(), Some(Mtime(3)))]);
        assert_eq!(dirs.take_other_times(&rules()).len(), 1, "the others are still there");
    }
}
