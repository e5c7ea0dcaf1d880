//! Several sources that may have the same names: the first that has a name transfers it, a directory has priority over all else, and
//! no name that any of them has is deleted at the destination. Each source is a job of its own; this gives a job the facts of
//! the others.

use super::{
    exit::Refusal,
    filters,
    opening::leads_out,
    options::Options,
    sub_jobs::{Part, SubJob},
};
use haul_core::{
    Key,
    filter::first_match::{OtherSources, Selection},
    job::DeleteWhen,
};
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};
use std::sync::Arc;

/// Names of one source.
#[derive(Debug)]
struct SourceView {
    /// Its folder, ending in `/`.
    root: Vec<u8>,
    selection: Selection,
    /// The folder itself is part of it.
    whole: bool,
    options: Options,
    /// The device that it ends with, where that counts.
    device: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Absent,
    Dir,
    Other,
    /// It exists, and is not part of it; or that is unknown.
    Unknown,
}

impl SourceView {
    /// The entry under a name. `NOENT` also for a link that is followed and is dangling.
    fn stat(&self, name: &[u8]) -> Result<Stat, Errno> {
        let path = [&self.root, name].concat();
        let st = rustix::fs::lstat(&path)?;
        if FileType::from_raw_mode(st.st_mode) != FileType::Symlink {
            return Ok(st);
        }
        let depth = name.iter().filter(|b| **b == b'/').count();
        if self.options.copy_links || leads_out(&self.options, &path, depth) {
            return rustix::fs::stat(path);
        }
        let dir = |st: &Stat| FileType::from_raw_mode(st.st_mode) == FileType::Directory;
        Ok(rustix::fs::stat(path).ok().filter(|led| self.options.copy_dirlinks && dir(led)).unwrap_or(st))
    }

    /// Kind of a name that this source can't reach, since the path above it is no directory of its own: the
    /// system's path lookup follows links on the way.
    fn not_reached(&self, name: &[u8]) -> Option<Kind> {
        if self.options.copy_links {
            return None;
        }
        let ends = name.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        ends.filter(|at| *at + 1 < name.len()).find_map(|at| match self.stat(&name[..at]) {
            Ok(st) if FileType::from_raw_mode(st.st_mode) == FileType::Directory => None,
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Some(Kind::Absent),
            Err(_) => Some(Kind::Unknown),
        })
    }

    fn kind(&self, name: &[u8]) -> Kind {
        if name.is_empty() {
            return if self.whole { Kind::Dir } else { Kind::Absent };
        }
        if let Some(kind) = self.not_reached(name) {
            return kind;
        }
        let st = match self.stat(name) {
            Ok(st) => st,
            // A link that is followed and leads nowhere is an error of its source.
            Err(Errno::NOENT) if rustix::fs::lstat([&self.root, name].concat()).is_ok() => return Kind::Unknown,
            Err(Errno::NOENT | Errno::NOTDIR) => return Kind::Absent,
            Err(_) => return Kind::Unknown,
        };
        let (kind, key) = match FileType::from_raw_mode(st.st_mode) {
            FileType::Directory => (Kind::Dir, Key::new([name, b"/"].concat())),
            FileType::Symlink if self.options.links => (Kind::Other, Key::symlink(name)),
            _ => (Kind::Other, Key::new(name)),
        };
        if !self.selection.takes(key.as_bytes(), false) {
            // If it is unknown which names its rules leave out, it may have this one.
            return if self.selection.is_broken() { Kind::Unknown } else { Kind::Absent };
        }
        let omitted = kind == Kind::Other || self.options.one_file_system > 1;
        if omitted && self.device.is_some_and(|device| device != st.st_dev) { Kind::Unknown } else { kind }
    }
}

#[derive(Debug)]
struct Others {
    /// Those that go before this source.
    before: Vec<Arc<SourceView>>,
    after: Vec<Arc<SourceView>>,
    /// It transfers the whole of its folder.
    whole: bool,
}

impl OtherSources for Others {
    fn hides(&self, name: &[u8]) -> bool {
        self.before.iter().any(|shown| matches!(shown.kind(name), Kind::Dir | Kind::Other))
            || self.after.iter().any(|shown| shown.kind(name) == Kind::Dir)
    }

    fn has_dir(&self, name: &[u8]) -> bool {
        // The root belongs to no source before one that transfers the whole of its folder.
        let after = name.is_empty() && !self.whole && self.after.iter().any(|shown| shown.whole);
        after || self.before.iter().any(|shown| shown.kind(name) == Kind::Dir)
    }

    fn shows(&self, name: &[u8]) -> bool {
        self.before.iter().chain(&self.after).any(|shown| shown.kind(name) != Kind::Absent)
    }

    fn shows_dir(&self, name: &[u8]) -> bool {
        let mut others = self.before.iter().chain(&self.after);
        others.any(|shown| matches!(shown.kind(name), Kind::Dir | Kind::Unknown))
    }
}

/// Tells each of several jobs of the others, and has deletions done by jobs of their own: after all transfers, or, where
/// those take sources away, before.
///
/// Errors: a rule that can't be meant.
pub fn merge(options: &Options, jobs: Vec<SubJob>) -> Result<Vec<SubJob>, Refusal> {
    let shown = jobs.iter().map(|job| shown(options, job)).collect::<Result<Vec<_>, _>>()?;
    let mut jobs = jobs;
    for (at, job) in jobs.iter_mut().enumerate() {
        let (before, after) = (shown[..at].to_vec(), shown[at + 1..].to_vec());
        let whole = job.scope.only.is_none();
        job.scope.merged = Some(Arc::new(Others { before, after, whole }));
        job.part = Part::Transfers;
    }
    let deletes = if options.delete.is_some() { deletes(&jobs) } else { Vec::new() };
    if options.remove_source {
        // Files that an earlier source transfers must still exist when this one's turn comes.
        jobs.reverse();
    }
    // The destination's files of rules count as they were before anything came, but with --delete-after.
    let by_old_rules = shown.iter().any(|shown| shown.selection.rules().per_dir()) && !options.deletes_apart();
    let first = options.delete_when() == Some(DeleteWhen::Before) || options.remove_source || by_old_rules;
    Ok(if first { [deletes, jobs].concat() } else { [jobs, deletes].concat() })
}

/// The jobs that delete: one for all if a source transfers the whole of its folder, else one for each name.
fn deletes(jobs: &[SubJob]) -> Vec<SubJob> {
    let deleting = |job: &SubJob| SubJob { part: Part::Deletes, ..job.clone() };
    if let Some(whole) = jobs.iter().find(|job| job.scope.only.is_none()) {
        return vec![deleting(whole)];
    }
    let mut known: Vec<Vec<u8>> = Vec::new();
    let mut deletes = Vec::new();
    for job in jobs {
        let mut job = deleting(job);
        let Some(only) = &mut job.scope.only else { continue };
        only.retain(|name| !known.iter().any(|known| known == name));
        known.extend(only.names().iter().cloned());
        if !only.names().is_empty() {
            deletes.push(job);
        }
    }
    deletes
}

fn shown(options: &Options, job: &SubJob) -> Result<Arc<SourceView>, Refusal> {
    let root = job.scope.root.clone().unwrap_or_default();
    let device = rustix::fs::stat(&root[..]).ok().map(|st| st.st_dev).filter(|_| options.one_file_system > 0);
    let selection = filters::selection(options, job.scope.clone())?;
    Ok(Arc::new(SourceView { root, selection, whole: job.scope.only.is_none(), options: options.clone(), device }))
}
