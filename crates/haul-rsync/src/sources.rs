//! Sources and destination as typed, by rsync's rules: `SRC/` is what is in it, `SRC` itself; what becomes of them is a
//! list of jobs, one for each folder of origin.

mod destination;

use super::{
    Context,
    entry_kind::{EntryKind, FarFolders, kind, look},
    exit::{self, Refusal},
    filters::{self, Scope},
    merge::merge,
    missing_names::unlisted,
    name_clashes,
    opening::leads_out,
    options::Options,
    path_args::{PathArg, absolute, clean, folder_here, join},
    single_entry,
    sink::Lines,
    sub_jobs::{Dest, Part, SubJob},
};
use destination::Destination;
use futures::{StreamExt as _, TryStreamExt as _};
use haul_core::{Error, ErrorKind, Key, filter::first_match::SelectedNames};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
};

/// Sources of one folder.
type Names = Vec<(Vec<u8>, EntryKind)>;

/// Sources on other machines that are asked for at once.
const ASKED: usize = 64;

/// Takes arguments apart.
pub struct Planner<'a> {
    pub options: &'a Options,
    pub ctx: &'a Context<'a>,
    pub lines: &'a Lines,
    /// Some source is missing: then nothing is deleted.
    pub incomplete: bool,
    /// Sources may show the same names.
    pub shares: bool,
    /// Looks at paths on other machines.
    pub there: FarFolders<'a>,
}

impl Planner<'_> {
    /// The jobs that transfer `sources` to `dest`.
    ///
    /// Errors: the paths can't be used, with the exit code. Single sources that are missing are reported here.
    pub async fn plan(&mut self, sources: &[OsString], dest: &OsStr) -> Result<Vec<SubJob>, Refusal> {
        let to = PathArg::parse(dest)?;
        let there = self.destination(&to).look().await?;
        let mut jobs = Vec::new();
        if self.options.files_from.is_some() || self.options.names.is_some() || self.options.relative() {
            self.relative(sources, &to, &mut jobs).await?;
        } else {
            self.plain(sources, &to, there, &mut jobs).await?;
        }
        let has_dirs = to.here() || self.there.has_dirs(&to)?;
        if has_dirs && there != Dest::Dir {
            single_entry::settle(self.options, self.ctx, &to, there, &mut jobs).await?;
        }
        single_entry::leave_out_empty(self.options, self.ctx, &mut jobs).await?;
        let deletes = self.options.delete.is_some() || self.options.force;
        if to.is_host() && deletes {
            // One file deletes nothing.
            filters::check_far_rules(self.options, jobs.iter().filter(|job| !job.alone).map(|job| job.scope.clone()))?;
        }
        self.destination(&to).check(there, &jobs).await?;
        if has_dirs && !to.here() && there == Dest::Missing {
            self.destination(&to).check_above(&jobs).await?;
        }
        // A move takes away what --delete-after would compare with: there the source's files of rules stand for those that came.
        let late = self.options.deletes_apart() && !self.options.remove_source;
        if to.here() && deletes && (late || !self.options.deletes_apart()) {
            jobs.iter_mut().for_each(|job| job.scope.dest = Some(absolute(&to.path)));
        }
        if self.shares {
            return merge(self.options, jobs);
        }
        name_clashes::check(self.options, self.ctx, &jobs).await?;
        let others: Vec<Vec<u8>> = jobs.iter().flat_map(|job| job.scope.others.clone()).collect();
        for job in &mut jobs {
            job.scope.others = if job.top && job.into.is_empty() { others.clone() } else { Vec::new() };
        }
        if late && to.here() {
            return deletes_last(self.options, jobs);
        }
        Ok(jobs)
    }

    fn destination<'d>(&'d self, to: &'d PathArg) -> Destination<'d> {
        Destination { options: self.options, ctx: self.ctx, lines: self.lines, far: &self.there, to }
    }

    /// Sources with the paths that they were typed with.
    async fn relative(&mut self, sources: &[OsString], to: &PathArg, jobs: &mut Vec<SubJob>) -> Result<(), Refusal> {
        let mut groups: Vec<(PathArg, Vec<Named>)> = Vec::new();
        let mut add = |root: PathArg, name: Named| match groups.iter_mut().find(|(there, _)| *there == root) {
            Some((_, names)) => names.push(name),
            None => groups.push((root, vec![name])),
        };
        if let (Some(names), [source]) = (&self.options.names, sources) {
            let root = PathArg::parse(source)?;
            names.iter().for_each(|name| add(root.clone(), Named::new(name)));
        } else if let Some(list) = &self.options.files_from {
            let [source] = sources else {
                return Err((exit::USAGE, "--files-from takes one SRC and a DEST".into()));
            };
            let text =
                self.options.input.text(list, self.options.insecure_links).map_err(|line| (exit::USAGE, line))?;
            let ends = |b: &u8| if self.options.from0 { *b == 0 } else { matches!(b, b'\n' | b'\r' | 0) };
            let comment = |line: &[u8]| matches!(line.first(), Some(b'#' | b';'));
            let source = PathArg::parse(source)?;
            if source.here() && kind(&source.path, true) != Some(EntryKind::Dir) {
                let errno = if kind(&source.path, true).is_none() { Errno::NOENT } else { Errno::NOTDIR };
                let path = String::from_utf8_lossy(&source.path).into_owned();
                return Err((exit::SELECTION, format!("could not go to {path:?}: {}", errno_text(errno))));
            }
            for line in text.split(ends).filter(|line| !line.is_empty() && !comment(line)) {
                let line = &collapsed(line)[..];
                match line.windows(3).position(|w| w == b"/./").filter(|_| source.here()) {
                    Some(at) => {
                        let path = join(&source.path, line[..=at].strip_prefix(b"/").unwrap_or(&line[..=at]));
                        add(PathArg { path, ..source.clone() }, Named::new(&line[at + 3..]));
                    }
                    None => add(source.clone(), Named::new(line)),
                }
            }
        } else {
            for (typed, _) in self.expanded(sources).await? {
                let (root, name) = match typed.path.windows(3).position(|w| w == b"/./") {
                    Some(at) => (typed.path[..=at].to_vec(), &typed.path[at + 3..]),
                    None if typed.path.starts_with(b"/") => (b"/".to_vec(), &typed.path[1..]),
                    None => (Vec::new(), &typed.path[..]),
                };
                if name.split(|b| *b == b'/').any(|part| part == b"..") {
                    let line = format!("found \"..\" dir in relative path: {}", typed.word(&typed.path).display());
                    return Err((exit::USAGE, line));
                }
                add(PathArg { head: typed.head, path: root }, Named::new(name));
            }
        }
        self.shares = groups.len() > 1 && groups.iter().all(|(root, _)| root.here());
        for (root, mut names) in groups {
            let mut dot = !self.options.no_implied_dirs && names.iter().any(|named| named.dot);
            if root.here() {
                names.retain(|named| self.is_there(&join(&root.path, &named.name)));
            } else if !self.drop_missing(&root, &mut names).await? {
                continue;
            }
            if !root.here() {
                dot = !self.options.no_implied_dirs && names.iter().any(|named| named.dot);
            }
            self.drop_excluded(&root, &mut names)?;
            if root.here() {
                let mut dirs = HashSet::new();
                names.retain(|named| {
                    let path = join(&root.path, &named.name);
                    kind(&path, self.options.copy_links)
                        .is_none_or(|what| self.takes(what, if named.name.is_empty() { b"." } else { &named.name }))
                        && self.is_reached(&root, named, &mut dirs)
                });
            }
            if names.is_empty() && !dot {
                continue;
            }
            let whole = names.iter().any(|named| named.name.is_empty());
            let top = whole || dot;
            let only = match whole && self.options.recursive {
                true => None,
                false => {
                    let (names, whole) = self.listed(&root, names).await?;
                    Some(SelectedNames::new(names, self.options.recursive).with_whole(whole))
                }
            };
            let here = root.here().then(|| absolute(&root.path));
            let scope = Scope { root: here, bare_root: only.is_some() && !whole, only, ..Scope::default() };
            let (src, dst) = (root.word(&root.path), to.word(&to.path));
            jobs.push(SubJob { src, into: Vec::new(), dst, scope, top, one: None, part: Part::Whole, alone: false });
        }
        Ok(())
    }

    /// The names, and, without -r, what is in directories whose content is meant; and which those are, as far as they could be
    /// read.
    async fn listed(&self, root: &PathArg, names: Vec<Named>) -> Result<(Vec<Vec<u8>>, Vec<Vec<u8>>), Refusal> {
        let (mut all, mut whole) = (Vec::new(), Vec::new());
        for named in names {
            if named.contents && !self.options.recursive {
                let dir = join(&root.path, &named.name);
                let held = match root.here() {
                    true => held(&absolute(&dir)).ok(),
                    false => self.there.held(root, &dir).await?,
                };
                // A list that can't be read is reported by the job, which lists it.
                if let Some(held) = held {
                    all.extend(held.iter().map(|name| join(&named.name, name)));
                    whole.push(named.name.clone());
                }
            }
            all.push(named.name);
        }
        all.retain(|name| !name.is_empty());
        Ok((all, whole))
    }

    /// Drops names that rules leave out: then the directories above them are no part of the transfer either. What rules in
    /// files of directories leave out stays for the job, which reads those.
    fn drop_excluded(&self, root: &PathArg, names: &mut Vec<Named>) -> Result<(), Refusal> {
        let scope = Scope { root: root.here().then(|| absolute(&root.path)), bare_root: true, ..Scope::default() };
        let rules = filters::selection(self.options, scope)?;
        if rules.is_all() || rules.rules().per_dir() {
            return Ok(());
        }
        names.retain(|named| {
            let is_dir = match root.here() {
                true => Some(self.kind(&join(&root.path, &named.name), named.contents) == Some(EntryKind::Dir)),
                false => None,
            };
            let shows = |ending: &[u8]| rules.shows(&[&named.name, ending].concat(), false);
            // Of a name there it isn't known what it is.
            named.name.is_empty() || is_dir != Some(true) && shows(b"") || is_dir != Some(false) && shows(b"/")
        });
        Ok(())
    }

    fn is_there(&mut self, path: &[u8]) -> bool {
        let there = kind(path, self.options.copy_links).is_some();
        if !there {
            self.missing(path, false);
        }
        there
    }

    /// False, which is reported, for a path behind a symlink that isn't followed: listing the source doesn't get there. `dirs`:
    /// paths known to be no symlinks.
    fn is_reached(&mut self, root: &PathArg, named: &Named, dirs: &mut HashSet<Vec<u8>>) -> bool {
        if self.options.copy_links || self.options.copy_dirlinks {
            return true;
        }
        let name = &named.name;
        let above = name.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        for (depth, end) in above.chain(named.contents.then_some(name.len())).enumerate() {
            if end == 0 || dirs.contains(&name[..end]) {
                continue;
            }
            let path = join(&root.path, &name[..end]);
            let to_dir = kind(&path, false) == Some(EntryKind::Link) && kind(&path, true) == Some(EntryKind::Dir);
            if to_dir && !leads_out(self.options, &path, depth) {
                self.tell_behind_link(&path);
                return false;
            }
            dirs.insert(name[..end].to_vec());
        }
        true
    }

    fn tell_behind_link(&mut self, path: &[u8]) {
        let shown = String::from_utf8_lossy(path).into_owned();
        let line = format!("\"{shown}\" is a symbolic link to a directory, which only -k (--copy-dirlinks) follows");
        self.tell_left_out(&line);
    }

    /// Says why something of a source isn't copied.
    fn tell_left_out(&mut self, line: &str) {
        self.lines.complain(line);
        self.lines.trouble(|trouble| trouble.partial += 1);
        self.incomplete = true;
    }

    /// Drops names that are missing from a source on another machine, and the content of symlinks, and reports them; false if no name is
    /// left. Its job reports one that can't be listed.
    async fn drop_missing(&mut self, root: &PathArg, names: &mut Vec<Named>) -> Result<bool, Refusal> {
        let Ok(store) = self.there.open_as_listed(root) else { return Ok(true) };
        let all: Vec<Vec<u8>> = names.iter().map(|named| named.name.clone()).collect();
        let unlisted = unlisted(&store, &all).await?;
        let had = names.len();
        names.retain(|named| {
            let path = root.shown(&join(&root.path, &named.name));
            let is_missing = unlisted.missing.contains(&named.name);
            if is_missing && !self.options.ignore_missing {
                self.tell_of_missing(&path);
            }
            let is_behind = named.contents && unlisted.links.contains(&named.name);
            if is_behind {
                self.tell_behind_link(&path);
            }
            if unlisted.left_out.contains(&named.name) {
                let shown = String::from_utf8_lossy(&path);
                self.tell_left_out(&format!(
                    "\"{shown}\" isn't missing, but the server's listing of its directory leaves it out: not copied"
                ));
            }
            !is_missing && !is_behind
        });
        Ok(had == 0 || !names.is_empty())
    }

    /// Tells of a source here that there is nothing to be seen of; `contents`: what is in it was meant. Missing arguments may be
    /// ignored, but only what the system itself says isn't there is missing: a directory that can't be read now has been there, and
    /// what came from it must stay.
    fn missing(&mut self, path: &[u8], contents: bool) {
        let errno = look(path, contents || self.options.copy_links).err().unwrap_or(Errno::NOENT);
        let is_absent = errno == Errno::NOENT && !contents && look(path, false) == Err(Errno::NOENT);
        if !(is_absent && self.options.ignore_missing) {
            self.tell_of(&absolute(path), errno);
        }
    }

    /// Tells of a source on another machine that there is nothing to be seen of, by the same rules.
    fn missing_there(&mut self, typed: &PathArg, error: &Error) {
        let why = match error.is_missing() {
            true if self.options.ignore_missing && !typed.contents() => return,
            true => errno_text(Errno::NOENT),
            false => error.message().to_owned(),
        };
        self.tell_why(&typed.shown(&typed.path), &why);
    }

    fn tell_of_missing(&mut self, path: &[u8]) {
        self.tell_of(path, Errno::NOENT);
    }

    fn tell_of(&mut self, path: &[u8], errno: Errno) {
        self.tell_why(path, &errno_text(errno));
    }

    fn tell_why(&mut self, path: &[u8], why: &str) {
        let shown = String::from_utf8_lossy(path.strip_suffix(b"/").unwrap_or(path)).into_owned();
        self.tell_left_out(&format!("link_stat \"{shown}\" failed: {why}"));
    }

    async fn plain(
        &mut self,
        sources: &[OsString],
        to: &PathArg,
        there: Dest,
        jobs: &mut Vec<SubJob>,
    ) -> Result<(), Refusal> {
        let mut taken: Vec<(PathArg, EntryKind)> = Vec::new();
        let looked_at = futures::stream::iter(self.expanded(sources).await?).map(async |(typed, seen)| {
            let what = match typed.here() {
                true => self.kind(&typed.path, typed.contents()).ok_or(None),
                false => self.kind_there(&typed, seen).await?.map_err(Some),
            };
            Ok::<_, Refusal>((typed, what))
        });
        let looked_at: Vec<(PathArg, Result<EntryKind, Option<Error>>)> =
            looked_at.buffered(ASKED).try_collect().await?;
        for (typed, what) in looked_at {
            let what = match what {
                Ok(EntryKind::Link) if !self.options.links => EntryKind::Special,
                Ok(what) => what,
                Err(None) => {
                    self.missing(&typed.path, typed.contents());
                    continue;
                }
                Err(Some(error)) => {
                    self.missing_there(&typed, &error);
                    continue;
                }
            };
            let name = if typed.contents() { b".".to_vec() } else { typed.split().1 };
            if self.takes(what, &name) {
                taken.push((typed, what));
            }
        }
        // Where symlinks of the destination stay, two names may be one place there.
        let links = self.options.keep_dirlinks && taken.len() > 1 && taken.iter().all(|(typed, _)| typed.here());
        self.shares = links || share_names(&taken);
        // By the folder that holds them, in the order of the first of each; each by itself where names may be the same.
        let mut folders: Vec<(PathArg, Names)> = Vec::new();
        for (typed, what) in taken {
            if typed.contents() {
                let scope = Scope { root: typed.here().then(|| absolute(&typed.path)), ..Scope::default() };
                let (src, dst) = (typed.word(&typed.path), to.word(&to.path));
                jobs.push(SubJob {
                    src,
                    into: Vec::new(),
                    dst,
                    scope,
                    top: true,
                    one: None,
                    part: Part::Whole,
                    alone: false,
                });
                continue;
            }
            let (folder, name) = typed.split();
            let folder = PathArg { head: typed.head, path: folder };
            if self.shares {
                jobs.push(self.of_names(&folder, vec![name], to, Vec::new()));
                continue;
            }
            match folders.iter_mut().find(|(known, _)| known.head == folder.head && known.path == folder.path) {
                Some((_, names)) => names.push((name, what)),
                None => folders.push((folder, vec![(name, what)])),
            }
        }
        let alone = folders.len() == 1 && folders[0].1.len() == 1 && jobs.is_empty();
        for (folder, names) in folders {
            jobs.push(self.of_folder(folder, names, to, there, alone).await?);
        }
        Ok(())
    }

    /// The sources, each with what its wildcards stand for: this machine's shell has done so for what is here.
    async fn expanded(&self, sources: &[OsString]) -> Result<Vec<(PathArg, Option<EntryKind>)>, Refusal> {
        let mut all = Vec::new();
        for source in sources {
            let typed = PathArg::parse(source)?;
            match typed.here() {
                true => all.push((typed, None)),
                false => {
                    let paths = self.there.expanded(&typed).await?;
                    all.extend(paths.into_iter().map(|(path, what)| (PathArg { path, ..typed.clone() }, what)));
                }
            }
        }
        Ok(all)
    }

    /// Kind of a source on another machine, which may have been `seen`; within: why it is unknown.
    async fn kind_there(&self, typed: &PathArg, seen: Option<EntryKind>) -> Result<Result<EntryKind, Error>, Refusal> {
        let there = &self.there;
        if !there.has_dirs(typed)? {
            let is_file = destination::open(self.options, self.ctx, typed).await?.1.is_some();
            return Ok(Ok(if is_file { EntryKind::File } else { EntryKind::Dir }));
        }
        if typed.contents() {
            let mut path = &typed.path[..];
            while let Some(less) = path.strip_suffix(b"/").or(path.strip_suffix(b"/.")).filter(|less| !less.is_empty())
            {
                path = less;
            }
            return Ok(match there.look(typed, path, true).await? {
                Ok(EntryKind::Dir) => Ok(EntryKind::Dir),
                Ok(_) => Err(Error::new(ErrorKind::Invalid, "stat", errno_text(Errno::NOTDIR))),
                Err(error) => Err(error),
            });
        }
        let what = match seen.filter(|_| !self.options.copy_links) {
            None => there.look(typed, &typed.path, self.options.copy_links).await?,
            Some(seen) => Ok(seen),
        };
        if !matches!(what, Ok(EntryKind::Link)) {
            return Ok(what);
        }
        // A symlink that leads nowhere is one all the same.
        let target = there.look(typed, &typed.path, true).await?;
        let follows = self.options.copy_dirlinks && matches!(target, Ok(EntryKind::Dir))
            || self.options.copy_unsafe_links && there.leads_out(typed, &typed.path).await?;
        Ok(if follows { target } else { what })
    }

    /// Some names of a folder, below the destination's root.
    fn of_names(&self, folder: &PathArg, names: Vec<Vec<u8>>, to: &PathArg, others: Vec<Vec<u8>>) -> SubJob {
        let root = folder.here().then(|| absolute(&folder.path));
        let only = Some(SelectedNames::new(names, self.options.recursive));
        let scope = Scope { root, bare_root: true, only, others, ..Scope::default() };
        let (src, dst) = (folder.word(&folder.path), to.word(&to.path));
        SubJob { src, into: Vec::new(), dst, scope, top: false, one: None, part: Part::Whole, alone: false }
    }

    /// Kind of the destination's own entry under a name; `None` if it is missing or the store has no directories.
    async fn in_dest(&self, to: &PathArg, name: &[u8]) -> Result<Option<EntryKind>, Refusal> {
        let path = join(&to.path, name);
        match to.here() {
            true => Ok(kind(&path, false)),
            false if self.there.has_dirs(to)? => self.there.kind_of(to, &path, false).await,
            false => Ok(None),
        }
    }

    /// Kind of a local source; `contents`: its contents are meant.
    fn kind(&self, path: &[u8], contents: bool) -> Option<EntryKind> {
        let dir = self.options.copy_dirlinks && kind(path, true) == Some(EntryKind::Dir);
        kind(path, self.options.copy_links || contents || dir || leads_out(self.options, path, 0))
    }

    /// Is this kind of source taken at all?
    fn takes(&self, what: EntryKind, name: &[u8]) -> bool {
        let options = self.options;
        let shown = String::from_utf8_lossy(name);
        match what {
            EntryKind::Dir if !options.recursive && options.dirs != Some(true) => {
                self.lines.tell(&format!("skipping directory {shown}"));
                false
            }
            _ => true,
        }
    }

    async fn of_folder(
        &self,
        folder: PathArg,
        names: Names,
        to: &PathArg,
        there: Dest,
        alone: bool,
    ) -> Result<SubJob, Refusal> {
        let others: Vec<Vec<u8>> = names.iter().map(|(name, _)| name.clone()).collect();
        let root = folder.here().then(|| absolute(&folder.path));
        let scope = Scope { root, bare_root: true, others, ..Scope::default() };
        let has = match names.as_slice() {
            [(name, EntryKind::Dir)] if self.options.recursive => self.in_dest(to, name).await?,
            _ => None,
        };
        // An entry other than a directory is replaced, or followed within the destination (-K); a missing one may not be created:
        // neither can be a job's folder.
        let is_folder = match has {
            Some(what) => what == EntryKind::Dir,
            None => !self.options.existing || !to.here() && !self.there.has_dirs(to)?,
        };
        Ok(match names.as_slice() {
            [(name, EntryKind::Dir)] if self.options.recursive && is_folder => {
                let prefix = [name, &b"/"[..]].concat();
                let (src, dst) = (folder.below(name), to.below(name));
                SubJob {
                    src,
                    into: name.clone(),
                    dst,
                    scope: Scope { prefix, ..scope },
                    top: true,
                    one: None,
                    part: Part::Whole,
                    alone: false,
                }
            }
            [(name, what @ (EntryKind::File | EntryKind::Link | EntryKind::Special))] => {
                let names_file = alone && there != Dest::Dir && !to.contents();
                let (dir, last) = if names_file { to.split() } else { (to.path.clone(), name.clone()) };
                let key = |name: &[u8]| match what {
                    EntryKind::Link => Key::symlink(name),
                    _ => Key::new(name),
                };
                let one = Some((key(name), key(&last)));
                SubJob {
                    src: folder.word(&folder.path),
                    into: Vec::new(),
                    dst: to.word(&dir),
                    scope,
                    top: false,
                    one,
                    part: Part::Whole,
                    alone: names_file,
                }
            }
            names => {
                let names = names.iter().map(|(name, _)| name.clone()).collect();
                self.of_names(&folder, names, to, scope.others)
            }
        })
    }
}

/// Has deletions done by jobs of their own, where the destination's directories bring rules: as the transfers left those.
///
/// Errors: a rule that can't be meant.
fn deletes_last(options: &Options, jobs: Vec<SubJob>) -> Result<Vec<SubJob>, Refusal> {
    let (mut all, mut last) = (Vec::new(), Vec::new());
    for job in jobs {
        if job.one.is_some() || !filters::selection(options, job.scope.clone())?.rules().per_dir() {
            all.push(job);
            continue;
        }
        last.push(SubJob { part: Part::Deletes, ..job.clone() });
        all.push(SubJob { part: Part::Transfers, ..job });
    }
    all.extend(last);
    Ok(all)
}

/// True when sources here may show the same names: one is what is in a folder, or two have the same name.
fn share_names(taken: &[(PathArg, EntryKind)]) -> bool {
    let name = |typed: &PathArg| if typed.contents() { None } else { Some(typed.split().1) };
    let names: Vec<_> = taken.iter().map(|(typed, _)| name(typed)).collect();
    let twice = (1..names.len()).any(|at| names[..at].contains(&names[at]));
    let contents = names.len() > 1 && names.contains(&None);
    taken.iter().all(|(typed, _)| typed.here()) && (twice || contents)
}

/// A name as an argument or a list gives it, below its root.
struct Named {
    name: Vec<u8>,
    /// It ends in a slash: what is in it is meant.
    contents: bool,
    /// It begins with `./`: the root is part of it.
    dot: bool,
}

impl Named {
    fn new(typed: &[u8]) -> Named {
        let contents = matches!(typed, b"" | b".") || typed.ends_with(b"/") || typed.ends_with(b"/.");
        Named { name: clean(typed), contents, dot: typed.starts_with(b"./") }
    }
}

/// A path without `DIR/..`, by its letters alone; what would lead above its root stays there.
fn collapsed(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match parts.last() {
            Some(last) if part == b".." && !matches!(*last, b"" | b".") => _ = parts.pop(),
            // As in rsync the root is then no part of the transfer.
            _ if part == b".." && parts == [b"."] => parts.clear(),
            _ if part == b".." => {}
            _ => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// An error of the system as rsync tells it: its words and its number.
fn errno_text(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let number = format!(" (os error {})", errno.raw_os_error());
    format!("{} ({})", text.strip_suffix(&number).unwrap_or(&text), errno.raw_os_error())
}

/// The names in a directory here.
fn held(dir: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    let dir = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Makes the destination that is named as a directory, here, where nothing came to it: as in rsync it is there in the end. Where
/// that can't be, nothing is missed.
pub fn make_named_dir(dest: &OsStr) {
    if let Some(dir) = folder_here(dest).filter(|_| dest.as_bytes().ends_with(b"/")) {
        let _ = rustix::fs::mkdir(&dir[..], Mode::from_raw_mode(0o777));
    }
}

/// True for a directory here, or a symlink to one.
pub fn is_dir(path: &[u8]) -> bool {
    kind(path, true) == Some(EntryKind::Dir)
}
