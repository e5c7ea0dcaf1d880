//! Kind of a path, here or on another machine: a directory, a file, a symlink. A symlink that is named is copied as such, and one in the
//! way is replaced, so it must not be taken for its target.

use super::{
    Context,
    exit::{self, Refusal},
    opening,
    options::Options,
    path_args::{PathArg, join, split},
};
use futures::{StreamExt as _, future::join_all};
use haul_core::{Error, ErrorKind, Key, Kind, Listed, filter::first_match::Pattern};
use haul_remotes::OpenOptions;
use haul_store::{LinkRules, Links, ListRequest, Store};
use rustix::{fs::FileType, io::Errno};
use std::{
    collections::HashMap,
    ffi::OsString,
    sync::{Arc, Mutex, PoisonError},
};

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Dir,
    File,
    Link,
    Special,
}

/// Kind of a local path; `None` if it can't be looked up.
pub fn kind(path: &[u8], follow: bool) -> Option<EntryKind> {
    look(path, follow).ok()
}

/// Kind of a local path.
///
/// Errors: the system's.
pub fn look(path: &[u8], follow: bool) -> Result<EntryKind, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let st = if follow { rustix::fs::stat(path) } else { rustix::fs::lstat(path) }?;
    Ok(match FileType::from_raw_mode(st.st_mode) {
        FileType::Directory => EntryKind::Dir,
        FileType::RegularFile => EntryKind::File,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    })
}

/// A folder there, and whether links in it are followed.
type Folder = (OsString, bool);

/// Looks at other machines. A folder there is opened once.
pub struct FarFolders<'a> {
    options: &'a Options,
    ctx: &'a Context<'a>,
    opened: Mutex<HashMap<Folder, Arc<dyn Store>>>,
}

impl<'a> FarFolders<'a> {
    /// One that has looked at nothing yet.
    pub fn new(options: &'a Options, ctx: &'a Context<'a>) -> FarFolders<'a> {
        FarFolders { options, ctx, opened: Mutex::default() }
    }

    /// A folder below the place of `typed`; with `follow`, links in it are what they lead to, else links.
    ///
    /// Errors: it can't be meant.
    pub fn open(&self, typed: &PathArg, path: &[u8], follow: bool) -> Result<Arc<dyn Store>, Refusal> {
        let folder = (typed.word(path), follow);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = opened.get(&folder) {
            return Ok(store.clone());
        }
        let links = if follow { Links::Follow } else { Links::Keep };
        let options = OpenOptions { links, ..opening::looked_at(self.options) };
        let store = self.ctx.open_as(&folder.0, &options).map_err(|error| (exit::FILE_IO, format!("{error:#}")))?;
        Ok(opened.entry(folder).or_insert(store).clone())
    }

    /// The place of `typed` as its job lists it: links that are followed are what they lead to, the others links.
    ///
    /// Errors: it can't be meant.
    pub fn open_as_listed(&self, typed: &PathArg) -> Result<Arc<dyn Store>, Refusal> {
        let options = self.options;
        let Some(rules) = options.link_rules(0).filter(|_| options.copy_unsafe_links && !options.copy_links) else {
            return self.open(typed, &typed.path, options.copy_links || options.copy_dirlinks);
        };
        let links = Links::By(LinkRules { keep: true, ..rules });
        let opening = OpenOptions { links, ..opening::looked_at(options) };
        let store = self.ctx.open_as(&typed.word(&typed.path), &opening);
        store.map_err(|error| (exit::FILE_IO, format!("{error:#}")))
    }

    /// True for a place with real directories, where a name is one thing at a time.
    pub fn has_dirs(&self, typed: &PathArg) -> Result<bool, Refusal> {
        Ok(self.open(typed, &typed.path, false)?.caps().dirs)
    }

    /// Kind of a path below the place of `typed`; `None` if it is missing.
    ///
    /// Errors: it can't be asked.
    pub async fn kind_of(&self, typed: &PathArg, path: &[u8], follow: bool) -> Result<Option<EntryKind>, Refusal> {
        match self.look(typed, path, follow).await? {
            Ok(what) => Ok(Some(what)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Kind of a path below the place of `typed`; within: why the kind of this path is unknown, although its machine answers.
    ///
    /// Errors: it can't be asked.
    pub async fn look(&self, typed: &PathArg, path: &[u8], follow: bool) -> Result<Result<EntryKind, Error>, Refusal> {
        let path = path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(path);
        let (folder, name) = split(path);
        if matches!(name, b"" | b"." | b"..") {
            let root = self.open(typed, path, follow)?.stat(&Key::new("")).await;
            return of_path(root.map(|_| EntryKind::Dir));
        }
        let store = self.open(typed, folder, follow)?;
        let link = store.caps().symlinks.then(|| Key::symlink(name));
        // The key of a file shows of a symlink only that it is a special file.
        let keys: Vec<Key> = link.into_iter().chain([Key::new(name), Key::new([name, b"/"].concat())]).collect();
        let answers = join_all(keys.iter().map(|key| store.stat(key))).await;
        let mut absent = Error::new(ErrorKind::NotFound, "stat", "not found");
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(entry) if entry.is_dir() == key.is_dir() => return Ok(Ok(entry.kind.into())),
                Ok(_) => {}
                Err(error) => match of_path(Err(error))? {
                    Err(error) if !error.is_missing() => return Ok(Err(error)),
                    Err(error) => absent = error,
                    Ok(_) => {}
                },
            }
        }
        Ok(Err(absent))
    }

    /// True for a directory, here or there, and for a symlink to one; a symlink there will do, as haul there may not follow any.
    ///
    /// Errors: it can't be asked.
    pub async fn is_dir(&self, typed: &PathArg) -> Result<bool, Refusal> {
        match typed.here() {
            true => Ok(kind(&typed.path, true) == Some(EntryKind::Dir)),
            false => Ok(matches!(self.look(typed, &typed.path, false).await?, Ok(EntryKind::Dir | EntryKind::Link))),
        }
    }

    /// The names in a directory there; `None` where it can't be listed.
    ///
    /// Errors: it can't be meant.
    pub async fn held(&self, typed: &PathArg, dir: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Refusal> {
        let store = self.open(typed, dir, false)?;
        let mut listing = store.list(ListRequest { posix: true, ..ListRequest::dir("") });
        let (mut names, mut is_whole) = (Vec::new(), false);
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => names.extend(entries.iter().map(|entry| entry.key.path().to_vec())),
                Listed::Failed { .. } => return Ok(None),
                Listed::Vanished(_) => {}
                Listed::End => is_whole = true,
            }
        }
        Ok(is_whole.then_some(names))
    }

    /// True for a symlink, so named, that rsync follows for where it leads (`--copy-unsafe-links`).
    pub async fn leads_out(&self, typed: &PathArg, path: &[u8]) -> Result<bool, Refusal> {
        let (folder, name) = split(path);
        let store = self.open(typed, folder, false)?;
        let target = haul::link_target(&store, &Key::symlink(name)).await;
        Ok(target.ok().flatten().is_some_and(|target| haul_core::links::leads_out(&target, 0)))
    }

    /// The paths that one with `*`, `?` or `[…]` stands for, sorted, as the shell there would give them, each with what it is where
    /// that was seen; the path itself where it is none, or stands for nothing.
    ///
    /// Errors: it can't be asked.
    pub async fn expanded(&self, typed: &PathArg) -> Result<Vec<(Vec<u8>, Option<EntryKind>)>, Refusal> {
        let is_wild = |part: &[u8]| part.iter().any(|b| b"*?[".contains(b));
        if !is_wild(&typed.path) || !self.has_dirs(typed)? {
            return Ok(vec![(typed.path.clone(), None)]);
        }
        let root = if typed.path.starts_with(b"/") { b"/".to_vec() } else { Vec::new() };
        let mut found: Vec<(Vec<u8>, Option<EntryKind>)> = vec![(root, None)];
        let trimmed = typed.path.strip_prefix(b"/").unwrap_or(&typed.path);
        for part in trimmed.split(|b| *b == b'/') {
            let mut longer = Vec::new();
            for (path, what) in found {
                // Nothing is in a file.
                if matches!(what, Some(EntryKind::File | EntryKind::Special)) {
                    continue;
                }
                let Some(pattern) = Pattern::new(part).ok().filter(|_| is_wild(part)) else {
                    longer.push((if part.is_empty() { [&path[..], b"/"].concat() } else { join(&path, part) }, None));
                    continue;
                };
                longer.extend(self.matching(typed, &path, &pattern, part.starts_with(b".")).await?);
            }
            found = longer;
        }
        let mut there = Vec::new();
        for (path, what) in found {
            // The part after a wildcard need not exist in each of its directories.
            if what.is_some() || self.look(typed, &path, false).await?.is_ok() {
                there.push((path, what));
            }
        }
        Ok(if there.is_empty() { vec![(typed.path.clone(), None)] } else { there })
    }

    async fn matching(
        &self,
        typed: &PathArg,
        dir: &[u8],
        pattern: &Pattern,
        hidden: bool,
    ) -> Result<Vec<(Vec<u8>, Option<EntryKind>)>, Refusal> {
        let store = self.open(typed, dir, false)?;
        let mut listing = store.list(ListRequest { posix: true, ..ListRequest::dir("") });
        let (mut names, mut is_whole) = (Vec::new(), false);
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => names.extend(entries.into_iter().map(|e| (e.key.path().to_vec(), e.kind))),
                // No directory, or a closed one: the shell there would find nothing in it either.
                Listed::Failed { error, .. } if error.is_missing() || error.kind() == ErrorKind::Denied => {
                    return Ok(Vec::new());
                }
                Listed::Failed { error, .. } => return Err((exit::FILE_IO, format!("list failed: {error}"))),
                Listed::Vanished(_) => {}
                Listed::End => is_whole = true,
            }
        }
        if !is_whole {
            return Err((exit::FILE_IO, format!("list failed: {} was cut", store.locator())));
        }
        names.retain(|(name, _)| (hidden || !name.starts_with(b".")) && pattern.matches(name, false));
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(names.into_iter().map(|(name, kind)| (join(dir, &name), Some(kind.into()))).collect())
    }
}

impl From<Kind> for EntryKind {
    fn from(kind: Kind) -> EntryKind {
        match kind {
            Kind::Dir => EntryKind::Dir,
            Kind::File => EntryKind::File,
            Kind::Symlink => EntryKind::Link,
            Kind::Special => EntryKind::Special,
        }
    }
}

/// True for an error of one path, which leaves others as they are.
pub fn is_of_path(error: &Error) -> bool {
    error.is_missing() || error.kind() == ErrorKind::Denied
}

fn of_path(answer: haul_core::Result<EntryKind>) -> Result<Result<EntryKind, Error>, Refusal> {
    match answer {
        Err(error) if !is_of_path(&error) => Err(failed(&error)),
        answer => Ok(answer),
    }
}

fn failed(error: &Error) -> Refusal {
    (exit::FILE_IO, format!("stat failed: {error}"))
}
