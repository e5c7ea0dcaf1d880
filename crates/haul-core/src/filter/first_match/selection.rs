//! Selection of one rsync job: the rules, the names in its arguments, and the mapping of keys to the names that rules
//! match.

use super::{RuleError, RuleSet, Side};
use crate::{Key, key};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// Names that arguments or `--files-from` give, below the job's root.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SelectedNames {
    names: Vec<Vec<u8>>,
    recursive: bool,
    /// Directories of which all that they hold directly is among the names.
    whole: Vec<Vec<u8>>,
}

impl SelectedNames {
    /// These names and the directories above them; with `recursive`, all that is below them too.
    pub fn new(mut names: Vec<Vec<u8>>, recursive: bool) -> SelectedNames {
        names.sort();
        names.dedup();
        SelectedNames { names, recursive, whole: Vec::new() }
    }

    /// Says that the names are all that these directories hold: whatever else the destination has there is extra.
    pub fn with_whole(self, whole: Vec<Vec<u8>>) -> SelectedNames {
        SelectedNames { whole, ..self }
    }

    /// The names, sorted.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Drops names.
    pub fn retain(&mut self, keep: impl FnMut(&Vec<u8>) -> bool) {
        self.names.retain(keep);
    }

    fn wants(&self, name: &[u8], is_dir: bool) -> bool {
        if self.names.binary_search_by(|n| n.as_slice().cmp(name)).is_ok() {
            return true;
        }
        let above = |dir: &[u8]| {
            let at = self.names.partition_point(|n| n.as_slice() < dir);
            self.names.get(at).is_some_and(|n| n.starts_with(dir))
        };
        (is_dir && above(&[name, b"/"].concat())) || self.below(name)
    }

    /// True for a name in one of the whole directories that the source doesn't have, as far as names tell.
    fn is_extra(&self, name: &[u8]) -> bool {
        self.whole.iter().any(|dir| {
            let rest = match dir.is_empty() {
                true => Some(name),
                false => name.strip_prefix(&dir[..]).and_then(|rest| rest.strip_prefix(b"/")),
            };
            rest.filter(|rest| !rest.is_empty()).is_some_and(|rest| {
                let end = name.len() - rest.len() + rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
                self.names.binary_search_by(|n| n.as_slice().cmp(&name[..end])).is_err()
            })
        })
    }

    /// True for a directory that is only a parent of a listed name.
    fn is_unlisted_parent(&self, dir: &[u8]) -> bool {
        self.names.binary_search_by(|n| n.as_slice().cmp(dir)).is_err() && !self.below(dir)
    }

    /// True when an argument holds this name.
    fn below(&self, name: &[u8]) -> bool {
        let mut ends = (0..name.len()).filter(|at| name[*at] == b'/');
        self.recursive && ends.any(|end| self.names.binary_search_by(|n| n.as_slice().cmp(&name[..end])).is_ok())
    }
}

/// Names that other sources of the same transfer show, as rules see them. Implemented by the caller, who may look on a disk.
pub trait OtherSources: fmt::Debug + Send + Sync {
    /// True when another source has this name, so that anything but a directory is left out here.
    fn hides(&self, name: &[u8]) -> bool;

    /// Does an earlier source show a directory of this name?
    fn has_dir(&self, name: &[u8]) -> bool;

    /// Does another source show this name, or may it?
    fn shows(&self, name: &[u8]) -> bool;

    /// Does another source show a directory of this name, or may it?
    fn shows_dir(&self, name: &[u8]) -> bool;
}

/// The entries that one job transfers, and those it may delete.
#[derive(Debug)]
pub struct Selection {
    pub(super) rules: RuleSet,
    /// Rules for what the destination may lose, instead of `rules`: the same, with the files of its own directories.
    pub(super) kept: Option<RuleSet>,
    pub(super) only: Option<SelectedNames>,
    /// Prefix of each key in the names that rules match; ends in `/` unless empty.
    pub(super) prefix: Vec<u8>,
    pub(super) others: Option<Arc<dyn OtherSources>>,
    /// Directories on the way to names take no part themselves.
    pub(super) unlisted_parents: bool,
}

impl Selection {
    /// A selection.
    pub fn new(rules: RuleSet, only: Option<SelectedNames>, prefix: Vec<u8>) -> Selection {
        Selection { rules, kept: None, only, prefix, others: None, unlisted_parents: false }
    }

    /// Sets other rules for what may be deleted at the destination.
    pub fn with_kept(self, kept: Option<RuleSet>) -> Selection {
        Selection { kept, ..self }
    }

    /// Adds the other sources of the same transfer.
    pub fn beside(self, others: Option<Arc<dyn OtherSources>>) -> Selection {
        Selection { others, ..self }
    }

    /// Leaves out directories that are only parents of names (`--no-implied-dirs`): they are made where they are missing, and
    /// nothing else.
    pub fn with_unlisted_parents(self, unlisted_parents: bool) -> Selection {
        Selection { unlisted_parents, ..self }
    }

    /// True for a directory that isn't transferred itself.
    pub fn is_unlisted_parent(&self, dir: &[u8]) -> bool {
        let below = dir.strip_suffix(b"/").unwrap_or(dir);
        self.unlisted_parents && self.only.as_ref().is_some_and(|only| only.is_unlisted_parent(below))
    }

    /// True when directories may be made that aren't transferred themselves.
    pub fn has_unlisted_parents(&self) -> bool {
        self.unlisted_parents
    }

    /// True for a directory that an earlier source shows too: its attributes come from that one.
    pub fn is_of_earlier_source(&self, dir: &[u8]) -> bool {
        self.others.as_ref().is_some_and(|others| others.has_dir(&self.name(dir)))
    }

    /// True when another source shows it, or may: a directory's key is shown only where it is a directory there too.
    pub fn shown_by_another_source(&self, at: &[u8]) -> bool {
        self.others.as_ref().is_some_and(|others| match at.ends_with(b"/") {
            true => others.shows_dir(&self.name(at)),
            false => others.shows(&self.name(at)),
        })
    }

    /// True when it takes everything.
    pub fn is_all(&self) -> bool {
        self.rules.is_empty() && self.only.is_none() && self.others.is_none()
    }

    /// The rules.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// True when a directory had rules that can't be parsed.
    pub fn is_broken(&self) -> bool {
        self.rules.is_broken() || self.kept.as_ref().is_some_and(RuleSet::is_broken)
    }

    /// Errors in rules from directories, one line each.
    pub fn broken(&self) -> Vec<RuleError> {
        let kept = self.kept.iter().flat_map(RuleSet::broken);
        self.rules.broken().into_iter().chain(kept).collect()
    }

    fn protects(&self, name: &[u8], is_dir: bool, dying: bool) -> bool {
        self.kept.as_ref().unwrap_or(&self.rules).leaves_out(name, is_dir, Side::Protect, dying)
    }

    /// Texts that identify this selection.
    pub fn texts(&self) -> Vec<String> {
        let mut texts = self.rules.texts().to_vec();
        texts.push(format!("rsync prefix {}", self.prefix.escape_ascii()));
        if let Some(only) = &self.only {
            let names = only.names.iter().map(|name| format!("rsync {} {}", only.recursive, name.escape_ascii()));
            texts.extend(names);
        }
        texts
    }

    /// The name that a person and rules know a key by, below the transfer's root; a directory's without its slash.
    pub fn name(&self, at: &[u8]) -> Vec<u8> {
        let bare = key::path(at);
        let mut name = [&self.prefix, bare].concat();
        if bare.is_empty() && name.ends_with(b"/") {
            name.pop();
        }
        name
    }

    /// True when the source shows this key, by its own rules. On the `destination`, entries that the source shows must be seen too, and
    /// those that it would not lose.
    pub fn shows(&self, at: &[u8], destination: bool) -> bool {
        let (name, is_dir) = (self.name(at), at.is_empty() || at.ends_with(b"/"));
        let below = &name[self.prefix.len().min(name.len())..];
        let wanted = |only: &SelectedNames| only.wants(below, is_dir) || destination && only.is_extra(below);
        if !at.is_empty() && !self.only.as_ref().is_none_or(wanted) {
            return false;
        }
        // Rules apply to listed names and entries below them.
        if is_dir && self.only.as_ref().is_some_and(|only| only.is_unlisted_parent(below)) {
            return true;
        }
        if !is_dir && !destination && self.others.as_ref().is_some_and(|others| others.hides(&name)) {
            return false;
        }
        // Entries that a directory may lose only when it is deleted itself must be seen too. The destination's own rules are asked first:
        // so they are read when its directory is listed, and before a transfer replaces them.
        let may_go = destination && !self.protects(&name, is_dir, true);
        may_go || !self.rules.leaves_out(&name, is_dir, Side::Hide, false)
    }

    /// May the destination lose this key, which the source doesn't show? `dying`: with the directory that holds it.
    pub fn may_delete(&self, at: &Key, dying: bool) -> bool {
        let (at, name) = (at.as_bytes(), self.name(at.as_bytes()));
        let below = &name[self.prefix.len().min(name.len())..];
        let there = self.only.as_ref().is_none_or(|only| only.below(below) || only.is_extra(below));
        there && !self.protects(&name, at.ends_with(b"/"), dying)
    }

    /// The topmost directory of `dir` and those above it that isn't shown.
    pub fn shut(&self, dir: &[u8], destination: bool) -> bool {
        let mut ends = (0..dir.len()).filter(|at| dir[*at] == b'/');
        ends.any(|end| !self.shows(&dir[..=end], destination))
    }

    /// Does the source show this file, and all directories above it?
    pub fn takes(&self, at: &[u8], destination: bool) -> bool {
        !self.shut(key::parent(at), destination) && self.shows(at, destination)
    }
}
