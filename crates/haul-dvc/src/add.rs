//! `add`: takes a file or directory into the cache and writes what tracks it: the `.dvc` file and the line in `.gitignore`.

// A repository is files of this machine's disk, which this crate reads and writes by itself.
#![allow(clippy::disallowed_methods)]

use crate::{
    cache::{Cache, Hashed, changed, discard, hidden, kept},
    config::Link,
    dvcfile::{self, OutFacts},
    hashing::path_of,
    history::{GitFacts, is_within_git},
    link_or_copy::Old,
    paths::folder_of,
    repo::{Index, Repo, below},
    workspace::{WorkspaceFile, WorkspaceState, look},
};
use haul::index::now;
use haul_cas::{
    address::{Address, Layout, Md5},
    facts::{Facts, invalid, io_error, key},
    manifest::{self, Child},
    parallel::spread,
    state::State,
};
use haul_core::{
    Error, ErrorKind, Result,
    event::{Event, Sink},
    plan::Route,
};
use haul_store::{disk, late_errors};
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Result for one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddResult {
    /// The `.dvc` file, below the root.
    pub file: String,
    /// It is new or changed.
    pub changed: bool,
    /// The `.gitignore` that was changed, below the root.
    pub gitignore: Option<String>,
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Adds a path below the root; `git` is git's state of it. Progress goes to `sink`.
///
/// Errors: the path is missing, it can't be read, it belongs to a path that is tracked already.
pub async fn add(
    repo: &Repo,
    index: &Index,
    path: &str,
    git: &GitFacts,
    state: &mut State,
    sink: &Arc<dyn Sink>,
) -> Result<AddResult> {
    check(repo, index, path)?;
    let full = repo.root.join(path);
    let ignored = repo.ignored_in(folder_of(path))?;
    if ignored.is(&full, full.is_dir()) {
        return Err(invalid("add", Path::new(path), "a .dvcignore says to ignore it"));
    }
    if ignored.is(&repo.root.join(format!("{path}.dvc")), false) {
        let message = "a .dvcignore says to ignore its .dvc file, so nobody would know of it";
        return Err(invalid("add", Path::new(path), message));
    }
    if git.tracks(path) {
        let message =
            format!("git tracks it already: git rm -r --cached '{path}' takes it out of git, and leaves it here");
        return Err(invalid("add", Path::new(path), message));
    }
    let links = repo.config.links().map_err(|why| Error::new(ErrorKind::Invalid, "add", why))?;
    let here = {
        let full = full.clone();
        disk::run(move || look(&full, &ignored)).await?
    };
    let fresh = match here {
        WorkspaceState::Nothing => {
            return Err(
                Error::new(ErrorKind::NotFound, "add", "no such file or directory").with_key(&key(Path::new(path)))
            );
        }
        WorkspaceState::File(found) => {
            let (facts, files) = (found.facts, vec![found]);
            let md5 = take(repo, &full, files, &links, state, sink).await?;
            let address = Address::file(Layout::V3, md5[0]);
            OutFacts { address, size: facts.size, nfiles: None, isexec: facts.is_exec() }
        }
        WorkspaceState::Dir(found) => directory(repo, &full, found, &links, state, sink).await?,
    };
    let (file, changed) = write(repo, index, path, &fresh)?;
    let gitignore = if repo.config.no_scm() { None } else { ignore_in_git(repo, path, git)? };
    Ok(AddResult { file, changed, gitignore, files: fresh.nfiles.unwrap_or(1), bytes: fresh.size })
}

fn check(repo: &Repo, index: &Index, path: &str) -> Result<()> {
    if path.is_empty() || path.split('/').any(|part| crate::dvcignore::is_tools_own(part.as_bytes())) {
        return Err(invalid("add", Path::new(path), "the repository itself can't be tracked"));
    }
    for out in &index.outs {
        let above = below(path, &out.path).is_some_and(|rest| !rest.is_empty());
        let inside = below(&out.path, path).is_some_and(|rest| !rest.is_empty());
        if above {
            let message = format!("{} is tracked already, by {}: add that", out.path, out.file);
            return Err(invalid("add", Path::new(path), message));
        }
        if inside {
            let message = format!("it holds {}, which {} tracks: remove {} first", out.path, out.file, out.file);
            return Err(invalid("add", Path::new(path), message));
        }
        if out.path == path && out.stage.is_some() {
            return Err(invalid(
                "add",
                Path::new(path),
                format!("a stage of {} makes it: dvc repro or dvc commit", out.file),
            ));
        }
    }
    // Through a link it would be tracked here and lie elsewhere.
    no_links_above(repo, path, "add")
}

/// Refuses a path below the root one of whose folders is a link.
pub(crate) fn no_links_above(repo: &Repo, path: &str, op: &'static str) -> Result<()> {
    let mut folder = repo.root.clone();
    for part in folder_of(path).split('/').filter(|part| !part.is_empty()) {
        folder.push(part);
        if Facts::get(&folder, false).map_err(|e| io_error(op, &folder, e))?.is_some_and(|facts| facts.is_link()) {
            return Err(invalid(op, Path::new(path), format!("it lies behind the link {}", folder.display())));
        }
    }
    Ok(())
}

async fn directory(
    repo: &Repo,
    root: &Path,
    found: Vec<WorkspaceFile>,
    links: &[Link],
    state: &mut State,
    sink: &Arc<dyn Sink>,
) -> Result<OutFacts> {
    let size = found.iter().map(|file| file.facts.size).sum();
    let paths: Vec<String> = found.iter().map(|file| file.path.clone()).collect();
    let md5s = take(repo, root, found, links, state, sink).await?;
    let mut children: Vec<Child> = paths.into_iter().zip(md5s).map(|(path, md5)| Child { path, md5 }).collect();
    let nfiles = children.len() as u64;
    let bytes = manifest::write(&mut children);
    let address = manifest::address(Layout::V3, &bytes);
    let cache = repo.cache.clone();
    disk::run(move || cache.put_bytes(&address, &bytes)).await?;
    Ok(OutFacts { address, size, nfiles: Some(nfiles), isexec: false })
}

/// Takes files into the cache and gives their MD5s.
async fn take(
    repo: &Repo,
    root: &Path,
    found: Vec<WorkspaceFile>,
    links: &[Link],
    state: &mut State,
    sink: &Arc<dyn Sink>,
) -> Result<Vec<Md5>> {
    let looked = now();
    let work: Vec<(PathBuf, WorkspaceFile, Option<Md5>)> = found
        .into_iter()
        .map(|file| {
            let known = state.get(&file.facts, Layout::V3);
            (path_of(root, &file.path), file, known)
        })
        .collect();
    let (cache, links, sink, steps) = (repo.cache.clone(), links.to_vec(), sink.clone(), AtomicU64::new(1));
    let taken = spread(work, move |(path, file, known)| {
        let step = steps.fetch_add(1, Ordering::Relaxed);
        let (name, size) = (key(&path), file.facts.size);
        sink.emit(&Event::Begun { step, key: name.clone(), size, route: Route::Server });
        let taken = one(&cache, &path, &file, known, &links);
        match &taken {
            Ok(_) => {
                sink.emit(&Event::Moved { step, bytes: size as i64 });
                sink.emit(&Event::Done { step, key: name, size, replaced: false, proved: None });
            }
            Err(_) => sink.emit(&Event::Moved { step, bytes: 0 }),
        }
        taken.map(|hashed| (file, hashed))
    })
    .await?;
    let mut md5s = Vec::with_capacity(taken.len());
    for one in taken {
        let (file, hashed) = one?;
        if hashed.facts.same(&file.facts) {
            state.put(&hashed.facts, Layout::V3, hashed.md5, looked);
        }
        md5s.push(hashed.md5);
    }
    Ok(md5s)
}

fn one(cache: &Cache, path: &Path, file: &WorkspaceFile, known: Option<Md5>, links: &[Link]) -> Result<Hashed> {
    if let Some(md5) = known
        && cache.holds_whole(&Address::file(Layout::V3, md5), Some(file.facts.size))?.is_some()
    {
        return Ok(Hashed { md5, facts: file.facts, steady: true });
    }
    // An executable one needs other bits than the cache's file has, so it is never the same file.
    let shares = |link: &&Link| matches!(link, Link::Hardlink | Link::Symlink);
    let own: Vec<Link> = links.iter().filter(|link| !shares(link)).copied().collect();
    let links = if file.facts.is_exec() { &own } else { links };
    // A link of the workspace stays what it is, unless links are how files come from the cache.
    let hashed = cache.take(path, file.facts, links)?;
    if !hashed.steady {
        return Err(changed(path));
    }
    let by_link = links.first().is_some_and(|link| shares(&link));
    if !by_link {
        return Ok(hashed);
    }
    let address = Address::file(Layout::V3, hashed.md5);
    let own = Facts::get(&cache.path(&address), false).ok().flatten();
    let already = own.is_some_and(|own| (own.dev, own.ino) == (file.facts.dev, file.facts.ino))
        && (file.link == (links.first() == Some(&Link::Symlink)));
    if !already {
        let now = Facts::get(path, true).map_err(|e| io_error("read", path, e))?;
        let pin = |facts: &Facts| (facts.dev, facts.ino, facts.size, facts.mtime);
        // Its change time may be that of the cache's new link to it.
        let now = now.filter(|now| pin(now) == pin(&hashed.facts)).ok_or_else(|| changed(path))?;
        cache.give(&address, path, links, false, &Old::File(now))?;
    }
    Ok(hashed)
}

/// Writes or updates the `.dvc` file; returns its path and whether it changed.
fn write(repo: &Repo, index: &Index, path: &str, fresh: &OutFacts) -> Result<(String, bool)> {
    let existing = index.outs.iter().find(|out| out.path == path && out.stage.is_none());
    let file = existing.map_or_else(|| format!("{path}.dvc"), |out| out.file.clone());
    let full = repo.root.join(&file);
    let old = match fs::read_to_string(&full) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(io_error("read", &full, e)),
    };
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let text = match (existing, &old) {
        (Some(out), Some(old)) => {
            let same = out.out.address == Some(fresh.address)
                && (out.out.size, out.out.nfiles, out.out.isexec) == (Some(fresh.size), fresh.nfiles, fresh.isexec);
            if same {
                return Ok((file, false));
            }
            dvcfile::update(old, out.index, fresh).map_err(|why| invalid("write", Path::new(&file), why))?
        }
        (None, Some(_)) => {
            return Err(invalid(
                "add",
                Path::new(&file),
                "it is there and tracks something else: remove it or rename it first",
            ));
        }
        (_, None) => dvcfile::write(fresh, name),
    };
    replace(&full, text.as_bytes())?;
    Ok((file, true))
}

/// Writes a file beside the old one and renames it.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let tmp = hidden(path);
    let error = |e| io_error("write", path, e);
    let written = fs::File::create(&tmp).and_then(|mut file| file.write_all(bytes).map(|()| file)).map_err(error);
    let named = written
        .and_then(|file| kept(&late_errors::Mounts::default(), &file, path))
        .and_then(|()| fs::rename(&tmp, path).map_err(error));
    named.map_err(|e| discard(&tmp, e))
}

/// Adds the line to the `.gitignore` beside the path, unless it is there.
fn ignore_in_git(repo: &Repo, path: &str, git: &GitFacts) -> Result<Option<String>> {
    if !is_within_git(&repo.root) {
        return Ok(None);
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let file = crate::paths::joined(folder, ".gitignore");
    let full = repo.root.join(&file);
    let line = format!("/{}", escaped(name));
    let old = match fs::read_to_string(&full) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(io_error("read", &full, e)),
    };
    if old.lines().any(|l| l.trim_end() == line) || git.ignores(path) {
        return Ok(None);
    }
    let broken = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
    let open = fs::File::options().append(true).create(true).open(&full);
    let written = open.and_then(|mut f| f.write_all(format!("{broken}{line}\n").as_bytes()).map(|()| f));
    kept(&late_errors::Mounts::default(), &written.map_err(|e| io_error("write", &full, e))?, &full)?;
    Ok(Some(file))
}

/// A name as gitignore takes it literally.
fn escaped(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if matches!(c, '[' | ']' | '!' | '*' | '#' | '?' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
