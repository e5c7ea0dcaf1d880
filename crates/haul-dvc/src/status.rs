//! `status`: whether the workspace matches the tracked content, and whether the cache holds it.

use crate::{
    hashing::md5s,
    paths::folder_of,
    repo::{Index, Repo, SelectedPath, Tracked},
    workspace::{WorkspaceState, look},
};
use haul_cas::{
    address::{Address, Md5},
    manifest::{self, Child},
    parallel::spread_batches,
    state::State,
};
use haul_core::{ErrorKind, Result};
use haul_store::disk;
use std::collections::HashMap;

/// How a tracked path differs, in DVC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It isn't there.
    Deleted,
    /// Its content is another.
    Modified,
    /// Nothing is known of its content.
    New,
    /// Some of its content is missing from the cache.
    NotInCache,
}

impl Change {
    /// As DVC says it.
    pub fn word(self) -> &'static str {
        match self {
            Change::Deleted => "deleted",
            Change::Modified => "modified",
            Change::New => "new",
            Change::NotInCache => "not in cache",
        }
    }
}

/// Changes of one `.dvc` file or stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The `.dvc` file, or the stage.
    pub name: String,
    /// Dependencies that changed.
    pub deps: Vec<(String, Change)>,
    /// Outs that changed.
    pub outs: Vec<(String, Change)>,
}

/// The name by which DVC calls what tracks something.
pub fn name_of(tracked: &Tracked) -> String {
    let Some(stage) = &tracked.stage else { return tracked.file.clone() };
    match tracked.file.strip_suffix("dvc.lock") {
        Some("") | None => stage.clone(),
        Some(folder) => format!("{folder}dvc.yaml:{stage}"),
    }
}

/// Changes of all chosen paths, with the dependencies of files and stages that were chosen as a whole.
///
/// Errors: a path can't be read.
pub async fn status(repo: &Repo, index: &Index, chosen: &[SelectedPath], state: &mut State) -> Result<Vec<Changes>> {
    let mut all: Vec<Changes> = Vec::new();
    let mut add = |tracked: &Tracked, change: Change, dep: bool| {
        let name = name_of(tracked);
        let at = all.iter().position(|c| c.name == name).unwrap_or_else(|| {
            all.push(Changes { name, deps: Vec::new(), outs: Vec::new() });
            all.len() - 1
        });
        let list = if dep { &mut all[at].deps } else { &mut all[at].outs };
        list.push((tracked.path.clone(), change));
    };
    for one in chosen {
        if let Some(change) = change(repo, one, one.tracked.out.cache, state).await? {
            add(&one.tracked, change, false);
        }
    }
    let names: std::collections::BTreeSet<String> = chosen.iter().map(|c| name_of(&c.tracked)).collect();
    for dep in index.deps.iter().filter(|dep| names.contains(&name_of(dep)) && dep.out.address.is_some()) {
        let whole = SelectedPath { tracked: dep.clone(), within: Vec::new() };
        if let Some(change) = change(repo, &whole, false, state).await? {
            add(dep, change, true);
        }
    }
    Ok(all)
}

async fn change(repo: &Repo, chosen: &SelectedPath, cached: bool, state: &mut State) -> Result<Option<Change>> {
    let tracked = &chosen.tracked;
    let Some(address) = tracked.out.address else { return Ok(Some(Change::New)) };
    let children = match cached && address.dir {
        true => match crate::status::children(repo, chosen).await? {
            Some(children) => Some(children),
            None => return Ok(Some(Change::NotInCache)),
        },
        false => None,
    };
    if cached && !all_held(repo, chosen, children.as_deref()).await? {
        return Ok(Some(Change::NotInCache));
    }
    let here = here(repo, tracked).await?;
    let expected: HashMap<&str, Md5> = match &children {
        Some(children) => children.iter().map(|c| (c.path.as_str(), c.md5)).collect(),
        None => [("", address.md5)].into(),
    };
    let root = repo.root.join(&tracked.path);
    match here {
        WorkspaceState::Nothing => Ok(Some(Change::Deleted)),
        WorkspaceState::File(file) if !address.dir => {
            let md5 = md5s(&repo.cache, &root, &[file], address.layout, &expected, state).await?;
            Ok((md5[..] != [address.md5]).then_some(Change::Modified))
        }
        WorkspaceState::File(_) => Ok(Some(Change::Modified)),
        WorkspaceState::Dir(_) if !address.dir => Ok(Some(Change::Modified)),
        WorkspaceState::Dir(mut found) => {
            found.retain(|f| chosen.holds(&f.path));
            let md5s = md5s(&repo.cache, &root, &found, address.layout, &expected, state).await?;
            let files = found.into_iter().zip(md5s).map(|(file, md5)| Child { path: file.path, md5 });
            let mut files: Vec<Child> = files.collect();
            let same = match (&children, chosen.within.is_empty()) {
                (Some(_), false) => {
                    let now: HashMap<&str, Md5> = files.iter().map(|c| (c.path.as_str(), c.md5)).collect();
                    let was: HashMap<&str, Md5> = expected.into_iter().filter(|(path, _)| chosen.holds(path)).collect();
                    if now.is_empty() && !was.is_empty() {
                        return Ok(Some(Change::Deleted));
                    }
                    now == was
                }
                _ => manifest::md5(&manifest::write(&mut files)) == address.md5,
            };
            Ok((!same).then_some(Change::Modified))
        }
    }
}

/// The workspace's state of a tracked path.
pub async fn here(repo: &Repo, tracked: &Tracked) -> Result<WorkspaceState> {
    let path = repo.root.join(&tracked.path);
    let ignored = repo.ignored_in(folder_of(&tracked.path))?;
    disk::run(move || look(&path, &ignored)).await
}

/// The files of a tracked directory; `None` when its manifest isn't in the cache.
pub async fn children(repo: &Repo, chosen: &SelectedPath) -> Result<Option<Vec<Child>>> {
    let Some(address) = chosen.tracked.out.address.filter(|a| a.dir) else { return Ok(Some(Vec::new())) };
    let cache = repo.cache.clone();
    match disk::run(move || cache.manifest(&address)).await {
        Ok(children) => Ok(Some(children)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

async fn all_held(repo: &Repo, chosen: &SelectedPath, children: Option<&[Child]>) -> Result<bool> {
    let Some(address) = chosen.tracked.out.address else { return Ok(true) };
    let cache = repo.cache.clone();
    if !address.dir {
        let size = chosen.tracked.out.size;
        return disk::run(move || cache.holds_whole(&address, size)).await.map(|held| held.is_some());
    }
    let mut all = vec![address];
    let inside = children.unwrap_or_default().iter().filter(|c| chosen.holds(&c.path));
    all.extend(inside.map(|c| Address::file(address.layout, c.md5)));
    all.sort_unstable();
    all.dedup();
    let held = spread_batches(all, move |batch| cache.holds_of(&batch)).await?;
    for one in held {
        if one?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
