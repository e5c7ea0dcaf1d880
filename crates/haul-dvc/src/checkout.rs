//! `checkout`: makes the workspace what is tracked, from the cache. Nothing is lost that only the workspace has, unless forced.

// A workspace is files of this machine's disk, which this crate reads and writes by itself.
#![allow(clippy::disallowed_methods)]

use crate::{
    add::no_links_above,
    config::Link,
    dvcignore::tools_own,
    hashing::{md5s, path_of, shown},
    link_or_copy::Old,
    paths::folder_of,
    repo::{Repo, SelectedPath, Tracked},
    status::{children, here},
    workspace::{WorkspaceFile, WorkspaceState},
};
use haul_cas::{
    address::{Address, Layout, Md5},
    facts::{Facts, invalid, io_error, key},
    manifest::{self, Child},
    parallel::spread,
    state::State,
};
use haul_core::{Error, ErrorKind, Result};
use haul_store::disk;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// How to.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckoutOptions {
    /// Discard unsaved changes in the workspace.
    pub force: bool,
    /// Make every link or copy anew.
    pub relink: bool,
}

/// Work done. Paths are below the root; a directory's ends in `/`.
#[derive(Debug, Default)]
pub struct CheckoutResult {
    /// Tracked paths that weren't there.
    pub added: Vec<String>,
    /// Tracked paths that were otherwise.
    pub modified: Vec<String>,
    /// Files added, modified, deleted.
    pub files: (u64, u64, u64),
    /// Content missing from the cache, and other errors.
    pub failed: Vec<Error>,
}

/// Plan for one tracked path.
struct Plan<'a> {
    tracked: &'a Tracked,
    root: PathBuf,
    was_there: bool,
    write: Vec<(String, Address, Old)>,
    delete: Vec<(String, Old)>,
    /// How many of `write` replace nothing.
    fresh: u64,
}

/// Checks out the chosen paths. All of them are looked at before anything is changed.
///
/// Errors: data would be lost; the whole can't be read or written. Errors of single files are in the result.
pub async fn checkout(
    repo: &Repo,
    chosen: &[SelectedPath],
    options: CheckoutOptions,
    state: &mut State,
) -> Result<CheckoutResult> {
    let links = repo.config.links().map_err(|why| Error::new(ErrorKind::Invalid, "checkout", why))?;
    let mut done = CheckoutResult::default();
    let mut plans = Vec::new();
    for one in chosen {
        match path(repo, one, options, state).await {
            Ok(plan) => plans.extend(plan),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound) => done.failed.push(error),
            Err(error) => return Err(error),
        }
    }
    for plan in plans {
        carry_out(repo, plan, &links, &mut done).await?;
    }
    Ok(done)
}

/// Errors: `Invalid`, where a path leads to what belongs to Git, Mercurial or DVC.
fn not_a_tools(path: &str) -> Result<()> {
    match tools_own(path) {
        Some(part) => {
            Err(invalid("checkout", Path::new(path), format!("it lies in {part}, where nothing is ever written")))
        }
        None => Ok(()),
    }
}

async fn path<'a>(
    repo: &Repo,
    chosen: &'a SelectedPath,
    options: CheckoutOptions,
    state: &mut State,
) -> Result<Option<Plan<'a>>> {
    let tracked = &chosen.tracked;
    let Some(address) = tracked.out.address.filter(|_| tracked.out.cache) else { return Ok(None) };
    let root = repo.root.join(&tracked.path);
    if !manifest::stays_inside(&tracked.path) {
        return Err(invalid("checkout", Path::new(&tracked.path), "it lies outside of the repository: use dvc for it"));
    }
    not_a_tools(&tracked.path)?;
    no_links_above(repo, &tracked.path, "checkout")?;
    let want = match address.dir {
        false => vec![Child { path: String::new(), md5: address.md5 }],
        true => children(repo, chosen).await?.ok_or_else(|| {
            let key = key(Path::new(&tracked.path));
            Error::new(ErrorKind::NotFound, "checkout", lacking(tracked, "its file list")).with_key(&key)
        })?,
    };
    let want: Vec<Child> = want.into_iter().filter(|c| chosen.holds(&c.path)).collect();
    want.iter().try_for_each(|child| not_a_tools(&child.path))?;
    let was = here(repo, tracked).await?;
    let (was_there, found) = match was {
        WorkspaceState::Nothing => (false, Vec::new()),
        WorkspaceState::File(file) => (true, vec![file]),
        WorkspaceState::Dir(mut found) => {
            found.retain(|f| chosen.holds(&f.path));
            match repo.ignored_in(folder_of(&tracked.path))?.is_empty() {
                true => (true, found),
                false => (true, hidden_too(&root, &want, found).await?),
            }
        }
    };
    let mut plan = Plan { tracked, root, was_there, write: Vec::new(), delete: Vec::new(), fresh: 0 };
    plan.fill(repo, &want, found, address.layout, options, state).await?;
    Ok(Some(plan))
}

/// Adds to what was found in a directory the files that are tracked though a `.dvcignore` hides them: they aren't to be lost.
async fn hidden_too(root: &Path, want: &[Child], found: Vec<WorkspaceFile>) -> Result<Vec<WorkspaceFile>> {
    let known: HashSet<&str> = found.iter().map(|file| file.path.as_str()).collect();
    let unseen: Vec<String> =
        want.iter().filter(|c| !known.contains(c.path.as_str())).map(|c| c.path.clone()).collect();
    let root = root.to_path_buf();
    let looked: Vec<Result<Option<WorkspaceFile>>> = spread(unseen, move |path| {
        let full = path_of(&root, &path);
        let facts = Facts::get(&full, false).map_err(|e| io_error("read", &full, e))?;
        Ok(facts.filter(Facts::is_file).map(|facts| WorkspaceFile { path, facts, link: false }))
    })
    .await?;
    let looked = looked.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(found.into_iter().chain(looked.into_iter().flatten()).collect())
}

/// Advice for content that isn't in the cache.
fn lacking(tracked: &Tracked, what: &str) -> String {
    match tracked.imported {
        false => format!("{what} isn't cached; run haul dvc pull"),
        true => format!("{what} isn't cached and is imported; run dvc fetch"),
    }
}

async fn carry_out(repo: &Repo, plan: Plan<'_>, links: &[Link], done: &mut CheckoutResult) -> Result<()> {
    let (tracked, was_there, root) = (plan.tracked, plan.was_there, plan.root.clone());
    let dir = tracked.out.address.is_some_and(|address| address.dir);
    let changes = !plan.write.is_empty() || !plan.delete.is_empty();
    let modified = plan.write.len() as u64 - plan.fresh;
    let deleted = plan.delete.len() as u64;
    let written = apply(repo, dir, plan, links, &mut done.failed).await?;
    done.files.0 += written.saturating_sub(modified);
    done.files.1 += modified.min(written);
    done.files.2 += deleted;
    let slash = if dir { "/" } else { "" };
    if changes {
        let list = if was_there { &mut done.modified } else { &mut done.added };
        list.push(format!("{}{slash}", tracked.path));
    }
    if tracked.out.isexec {
        make_executable(&root)?;
    }
    Ok(())
}

impl Plan<'_> {
    /// How many bytes a tracked file has, where that is known; of those in a directory it isn't.
    fn size(&self) -> Option<u64> {
        let out = &self.tracked.out;
        out.size.filter(|_| out.address.is_some_and(|address| !address.dir))
    }

    async fn fill(
        &mut self,
        repo: &Repo,
        want: &[Child],
        found: Vec<WorkspaceFile>,
        layout: Layout,
        options: CheckoutOptions,
        state: &mut State,
    ) -> Result<()> {
        let expected: HashMap<&str, Md5> = want.iter().map(|c| (c.path.as_str(), c.md5)).collect();
        // A file that was cut off isn't known by being the cache's own.
        let size = self.size();
        let whole = found.iter().all(|file| size.is_none_or(|size| size == file.facts.size));
        let own = if whole { &expected } else { &HashMap::new() };
        let md5s = md5s(&repo.cache, &self.root, &found, layout, own, state).await?;
        let mut same: HashSet<&str> = HashSet::new();
        let mut doubtful = Vec::new();
        // `force` covers files that appear meanwhile too.
        let old = |file: Option<&WorkspaceFile>| match (options.force, file) {
            (true, _) => Old::Any,
            (false, None) => Old::Nothing,
            (false, Some(file)) => Old::File(file.facts),
        };
        for (file, md5) in found.iter().zip(&md5s) {
            match expected.get(file.path.as_str()) {
                Some(wanted) if wanted == md5 => drop(same.insert(&file.path)),
                Some(_) => doubtful.push((file.path.clone(), *md5, file.facts.size)),
                None => {
                    self.delete.push((file.path.clone(), old(Some(file))));
                    doubtful.push((file.path.clone(), *md5, file.facts.size));
                }
            }
        }
        if !options.force {
            only_here(repo, layout, doubtful, &self.tracked.path).await?;
        }
        let there: HashMap<&str, &WorkspaceFile> = found.iter().map(|f| (f.path.as_str(), f)).collect();
        for child in want.iter().filter(|c| options.relink || !same.contains(c.path.as_str())) {
            let file = there.get(child.path.as_str()).copied();
            self.write.push((child.path.clone(), Address::file(layout, child.md5), old(file)));
            self.fresh += u64::from(file.is_none());
        }
        Ok(())
    }
}

/// Refuses to lose what the cache doesn't have.
async fn only_here(repo: &Repo, layout: Layout, doubtful: Vec<(String, Md5, u64)>, name: &str) -> Result<()> {
    let cache = repo.cache.clone();
    let held =
        move |(path, md5, size)| cache.holds_whole(&Address::file(layout, md5), Some(size)).map(|held| (path, held));
    let kept = spread(doubtful, held).await?;
    let mut lost = Vec::new();
    for one in kept {
        let (path, held) = one?;
        if held.is_none() {
            lost.push(shown(name, &path));
        }
    }
    lost.sort_unstable();
    let Some(first) = lost.first() else { return Ok(()) };
    let more = if lost.len() > 1 { format!(" and {} more", lost.len() - 1) } else { String::new() };
    let message =
        format!("{first}{more} has unsaved changes: keep them with haul dvc add, or discard them with --force");
    Err(Error::new(ErrorKind::Exists, "checkout", message).with_key(&key(Path::new(name))))
}

/// Deletes, makes folders, writes; gives how many files were written.
async fn apply(repo: &Repo, dir: bool, plan: Plan<'_>, links: &[Link], failed: &mut Vec<Error>) -> Result<u64> {
    let size = plan.size();
    let Plan { tracked, root, write, delete, .. } = plan;
    let target = root.clone();
    let folders: BTreeSet<String> =
        write.iter().filter_map(|(path, ..)| Some(path.rsplit_once('/')?.0.to_string())).collect();
    disk::run(move || {
        delete.iter().try_for_each(|(path, old)| remove(&target, path, old))?;
        let above = if dir { Some(target.as_path()) } else { target.parent() };
        if let Some(above) = above {
            fs::create_dir_all(above).map_err(|e| io_error("make directory", above, e))?;
        }
        folders.iter().try_for_each(|folder| make_folder(&target, folder))
    })
    .await?;
    let (cache, links, isexec) = (repo.cache.clone(), links.to_vec(), tracked.out.isexec);
    let why = lacking(tracked, "its content");
    let given = spread(write, move |(path, address, old)| {
        let target = path_of(&root, &path);
        if cache.holds_whole(&address, size)?.is_none() {
            return Err(Error::new(ErrorKind::NotFound, "checkout", why.clone()).with_key(&key(&target)));
        }
        cache.give(&address, &target, &links, isexec, &old)
    })
    .await?;
    let mut written = 0;
    for one in given {
        match one {
            Ok(()) => written += 1,
            Err(error) => failed.push(error),
        }
    }
    Ok(written)
}

/// Removes a file and the folders that it leaves empty.
fn remove(root: &Path, path: &str, old: &Old) -> Result<()> {
    let full = path_of(root, path);
    old.check(&full)?;
    fs::remove_file(&full).map_err(|e| io_error("delete", &full, e))?;
    let mut folder = full.parent();
    while let Some(empty) = folder.filter(|f| f.starts_with(root) && *f != root) {
        // One that isn't empty stays, as do those above.
        if fs::remove_dir(empty).is_err() {
            break;
        }
        folder = empty.parent();
    }
    Ok(())
}

/// Makes a folder below the root; refuses to go through a link, which could lead out of it.
fn make_folder(root: &Path, folder: &str) -> Result<()> {
    let mut path = PathBuf::from(root);
    for part in folder.split('/') {
        path.push(part);
        match Facts::get(&path, false).map_err(|e| io_error("make directory", &path, e))? {
            Some(facts) if facts.is_dir() => {}
            Some(_) => {
                return Err(invalid(
                    "checkout",
                    &path,
                    "a directory is to be here, and something else is in its place",
                ));
            }
            None => fs::create_dir(&path).map_err(|e| io_error("make directory", &path, e))?,
        }
    }
    Ok(())
}

fn make_executable(path: &Path) -> Result<()> {
    let Some(facts) = Facts::get(path, true).map_err(|e| io_error("read", path, e))? else { return Ok(()) };
    if facts.is_exec() {
        return Ok(());
    }
    let mode = facts.mode & 0o777;
    let exec = fs::Permissions::from_mode(mode | (mode & 0o444) >> 2);
    fs::set_permissions(path, exec).map_err(|e| io_error("checkout", path, e))
}
