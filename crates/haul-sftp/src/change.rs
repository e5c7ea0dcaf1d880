//! Changing what is there: directories, renames, copies, facts, deletes.

use crate::{
    dir_names, hidden,
    pool::{self, Claim, Fault, Handle},
    service::{AttributeChange, Service, at, below, version},
    wire::{self, Attrs, Reply, Request, open, status},
};
use haul_core::{Entry, Error, ErrorKind, Key, Meta, Mtime, Result, Version, plan::Replace};
use haul_store::{Cleanup, CopyHow, CopyItem, Direction, StoredFacts, UnfinishedWrites};
use std::collections::VecDeque;

const POSIX_RENAME: &str = "posix-rename@openssh.com";
const HARDLINK: &str = "hardlink@openssh.com";
const STATVFS: &str = "statvfs@openssh.com";
const LSETSTAT: &str = "lsetstat@openssh.com";

/// Bytes that a server copies before it says so: a session of which nothing is heard for too long is given up, and a slow disk takes
/// some seconds for these.
const STRETCH: u64 = 16 << 20;

/// Stretches that are asked for at once, so that the server never waits for the next.
const STRETCHES: usize = 2;

impl Service {
    /// Directories at `dir` and below it may be missing.
    pub fn forget(&self, dir: &Key) {
        let related =
            |known: &Key| known.as_bytes().starts_with(dir.as_bytes()) || dir.as_bytes().starts_with(known.as_bytes());
        self.made().retain(|known| !related(known));
        self.real().retain(|known| !related(known));
    }

    /// The directory is there.
    pub fn has(&self, dir: &Key) {
        if !dir.is_root() && !self.made().contains(dir) {
            self.made().insert(dir.clone());
        }
    }
}

/// See [`haul_store::Store::make_dir`].
pub async fn make_dir(service: &Service, key: &Key) -> Result<()> {
    if key.is_root() {
        return make_root(service).await;
    }
    let (mut missing, mut dir) = (Vec::new(), key.clone());
    // From the deepest up to one that can be made, then down again.
    while !service.made().contains(&dir) {
        match make_one(service, &service.path(&dir)?).await {
            MkdirResult::Yes => {
                service.has(&dir);
                break;
            }
            MkdirResult::There => {
                service.has(&dir);
                break;
            }
            MkdirResult::File => return Err(in_the_way(&dir)),
            MkdirResult::NoParent(fault) => {
                missing.push(dir.clone());
                if missing.len() > 1000 {
                    return Err(at("mkdir", key)(fault));
                }
                dir = dir.parent();
                if dir.is_root() {
                    make_root(service).await?;
                    break;
                }
            }
            MkdirResult::No(fault) => return Err(at("mkdir", &dir)(fault)),
        }
    }
    for dir in missing.iter().rev() {
        match make_one(service, &service.path(dir)?).await {
            MkdirResult::Yes | MkdirResult::There => service.has(dir),
            MkdirResult::File => return Err(in_the_way(dir)),
            MkdirResult::NoParent(fault) | MkdirResult::No(fault) => return Err(at("mkdir", dir)(fault)),
        }
    }
    Ok(())
}

fn in_the_way(dir: &Key) -> Error {
    let message = "a file is where a directory is needed: remove or rename it";
    Error::new(ErrorKind::Exists, "mkdir", message).with_key(dir)
}

enum MkdirResult {
    Yes,
    There,
    File,
    NoParent(Fault),
    No(Fault),
}

async fn make_one(service: &Service, path: &[u8]) -> MkdirResult {
    let made = service.ask("Mkdir", async |channel| pool::done(channel.ask(&Request::Mkdir(path))).await).await;
    let fault = match made {
        Ok(()) => return MkdirResult::Yes,
        Err(fault @ Fault::Lost(_)) => return MkdirResult::No(fault),
        Err(fault) => fault,
    };
    // Another may have made it, or it was there.
    match service.facts(path, true).await {
        Ok(attrs) if attrs.is_dir() => MkdirResult::There,
        Ok(_) => MkdirResult::File,
        Err(asked) if asked.is(status::NO_SUCH_FILE) && !fault.is(status::PERMISSION_DENIED) => {
            MkdirResult::NoParent(fault)
        }
        // Nobody knows.
        Err(asked @ Fault::Lost(_)) => MkdirResult::No(asked),
        Err(_) => MkdirResult::No(fault),
    }
}

/// The root, and what of its path is missing.
async fn make_root(service: &Service) -> Result<()> {
    let root = Key::new("");
    let mut path = service.path(&root)?;
    let mut missing = Vec::new();
    loop {
        match make_one(service, &path).await {
            MkdirResult::Yes | MkdirResult::There => break,
            MkdirResult::File => {
                let message = format!("{}: a file is where a directory is needed", service.locator);
                return Err(Error::new(ErrorKind::Exists, "mkdir", message));
            }
            MkdirResult::NoParent(fault) => {
                let above = path.iter().rposition(|b| *b == b'/').filter(|at| *at > 0);
                let Some(above) = above else { return Err(at("mkdir", &root)(fault)) };
                let parent = path[..above].to_vec();
                missing.push(std::mem::replace(&mut path, parent));
            }
            MkdirResult::No(fault) => return Err(at("mkdir", &root)(fault)),
        }
    }
    for path in missing.iter().rev() {
        match make_one(service, path).await {
            MkdirResult::Yes | MkdirResult::There => {}
            MkdirResult::File => return Err(in_the_way(&root)),
            MkdirResult::NoParent(fault) | MkdirResult::No(fault) => return Err(at("mkdir", &root)(fault)),
        }
    }
    Ok(())
}

/// Gives what is at the path `from` the name `to`. `there` is what was called so when the write began. The second of what fails tells
/// that it may have been done all the same.
pub async fn settle(
    service: &Service,
    from: &[u8],
    to: &Key,
    replace: &Replace,
    there: Option<&Attrs>,
) -> Result<(), (Error, bool)> {
    let path = service.path(to).map_err(|error| (error, false))?;
    let sure = |kind, message: &str| (Error::new(kind, "write", message).with_key(to), false);
    let failed = |fault: Fault| {
        let maybe = matches!(fault, Fault::Lost(_));
        (at("write", to)(fault), maybe)
    };
    let is_dir = || sure(ErrorKind::Exists, "is a directory: remove or rename it to put a file there");
    if there.is_some_and(Attrs::is_dir) {
        return Err(is_dir());
    }
    match replace {
        Replace::Absent => return add(service, from, &path, to).await,
        Replace::Exactly(want) => match service.facts(&path, false).await {
            Ok(attrs) if version(&attrs) == *want => {}
            Err(fault @ Fault::Lost(_)) => return Err((at("write", to)(fault), false)),
            _ => return Err(sure(ErrorKind::Changed, "changed since it was listed")),
        },
        Replace::Anything => {}
    }
    let posix = service.pool.hello().await.map_err(|error| (error.with_key(to), false))?.has(POSIX_RENAME, "1");
    if posix {
        let renamed = rename_over(service, from, &path).await;
        return match renamed {
            Err(Fault::Status(code, words)) if code != status::NO_SUCH_FILE => {
                match service.facts(&path, false).await {
                    Ok(attrs) if attrs.is_dir() => Err(is_dir()),
                    _ => Err(failed(Fault::Status(code, words))),
                }
            }
            other => other.map_err(failed),
        };
    }
    // Servers without it refuse a name that is there, or don't.
    match rename(service, from, &path).await {
        Err(Fault::Status(code, words)) => match service.facts(&path, false).await {
            Ok(attrs) if attrs.is_dir() => Err(is_dir()),
            Ok(_) => swap(service, from, &path).await.map_err(failed),
            Err(_) => Err(failed(Fault::Status(code, words))),
        },
        other => other.map_err(failed),
    }
}

async fn rename_over(service: &Service, from: &[u8], to: &[u8]) -> Result<(), Fault> {
    let request = Request::Extended(POSIX_RENAME, &[from, to]);
    service.ask("Rename", async |channel| pool::done(channel.ask(&request)).await).await
}

async fn rename(service: &Service, from: &[u8], to: &[u8]) -> Result<(), Fault> {
    service.ask("Rename", async |channel| pool::done(channel.ask(&Request::Rename(from, to))).await).await
}

/// Where no rename replaces: what is there is put aside, under a hidden name, until the new file has its own. A run that is killed
/// between leaves it there: the next one that lists the folder puts it back, see [`put_back`].
async fn swap(service: &Service, from: &[u8], to: &[u8]) -> Result<(), Fault> {
    let (folder, name) = to.split_at(to.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1));
    let hidden = hidden::aside(name).ok_or_else(|| {
        let message = "the server can't replace a file in one step, and this name is too long to put the old one aside: \
                       remove it first";
        Error::new(ErrorKind::Unsupported, "write", message)
    })?;
    let aside = [folder, &hidden].concat();
    match rename(service, to, &aside).await {
        // An older one may have been left there. What has the name is newer.
        Err(Fault::Status(..)) if service.facts(&aside, false).await.is_ok() => {
            remove_path(service, &aside).await?;
            rename(service, to, &aside).await?;
        }
        Err(Fault::Status(_, words)) if hidden.len() > hidden::SHORT_NAME_MAX => {
            let message = format!(
                "the server can't replace a file in one step, and doesn't put the old one aside, perhaps as this name is too long for \
                 that: remove it first ({words})"
            );
            return Err(Error::new(ErrorKind::Unsupported, "write", message).into());
        }
        other => other?,
    }
    if let Err(fault) = rename(service, from, to).await {
        // The old one is not lost if this fails too: the next run puts it back.
        let _ = rename(service, &aside, to).await;
        return Err(fault);
    }
    remove_path(service, &aside).await
}

async fn remove_path(service: &Service, path: &[u8]) -> Result<(), Fault> {
    service.ask("Remove", async |channel| pool::done(channel.ask(&Request::Remove(path))).await).await
}

/// Renames a file that was set aside back, if the new file didn't get its name; where another has the name by now, the old one is removed.
/// True for the first.
///
/// Errors: the server's; then nothing was changed.
pub async fn put_back(service: &Service, aside: &Key, own: &Key) -> Result<bool> {
    let (from, to) = (service.path(aside)?, service.path(own)?);
    match service.facts(&to, false).await {
        Ok(_) => match remove_path(service, &from).await {
            Err(fault) if !fault.is(status::NO_SUCH_FILE) => Err(at("delete", aside)(fault)),
            _ => Ok(false),
        },
        // Servers that can't replace refuse a name that somebody has taken meanwhile; others would have had no need of this.
        Err(fault) if fault.is(status::NO_SUCH_FILE) => {
            rename(service, &from, &to).await.map(|()| true).map_err(at("write", own))
        }
        Err(fault) => Err(at("stat", own)(fault)),
    }
}

/// Gives a file a name that nothing has. By a hard link where there are some: servers differ in what their rename does with a name that
/// is there.
async fn add(service: &Service, from: &[u8], to: &[u8], key: &Key) -> Result<(), (Error, bool)> {
    let exists = || (Error::new(ErrorKind::Exists, "write", "is there already").with_key(key), false);
    let lost = |fault: Fault| {
        let maybe = matches!(fault, Fault::Lost(_));
        (at("write", key)(fault), maybe)
    };
    let offers = service.pool.hello().await.map_err(|error| (error, false))?.has(HARDLINK, "1");
    // A link to a symlink is one to what that leads to, on BSD and macOS.
    let links = offers && !key.is_symlink();
    if links {
        let request = Request::Extended(HARDLINK, &[from, to]);
        match service.ask("Link", async |channel| pool::done(channel.ask(&request)).await).await {
            Ok(()) => return remove(service, from, key).await.map_err(|error| (error, true)),
            Err(fault @ Fault::Lost(_)) => return Err(lost(fault)),
            // It is there, or this file system has no hard links.
            Err(_) => {}
        }
    }
    match service.facts(to, false).await {
        Ok(_) => Err(exists()),
        Err(fault) if fault.is(status::NO_SUCH_FILE) => rename(service, from, to).await.map_err(lost),
        Err(fault) => Err(lost(fault)),
    }
}

/// Removes a file; that it isn't there is fine.
///
/// Errors: the server's.
pub async fn remove(service: &Service, path: &[u8], key: &Key) -> Result<()> {
    match service.ask("Remove", async |channel| pool::done(channel.ask(&Request::Remove(path))).await).await {
        Err(fault) if !fault.is(status::NO_SUCH_FILE) => Err(at("delete", key)(fault)),
        _ => Ok(()),
    }
}

/// Sets facts of a name itself, not of what it leads to.
///
/// Errors: the server's.
pub async fn set_own(service: &Service, key: &Key, path: &[u8], wish: &AttributeChange) -> Result<()> {
    let can = service.pool.hello().await?.has(LSETSTAT, "1");
    if !can {
        tracing::debug!(%key, "the server can't set the time of a symbolic link");
        return Ok(());
    }
    let set =
        service.ask("Setstat", async |channel| pool::done(channel.ask(&Request::Lsetstat(path, wish.attrs))).await);
    set.await.map_err(at("set_meta", key))
}

/// See [`haul_store::Store::set_meta`].
pub async fn set_meta(service: &Service, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> Result<()> {
    const OP: &str = "set_meta";
    let path = service.path(key)?;
    let mut wish = AttributeChange::new(key, mtime, meta, true)?;
    if !service.set_times {
        wish.attrs.times = None;
    }
    if key.is_symlink() {
        return set_own(service, key, &path, &wish).await;
    }
    if let Some(owner) = wish.owner {
        let attrs = Attrs { owner: Some(owner), ..Attrs::default() };
        match service
            .ask("Setstat", async |channel| pool::done(channel.ask(&Request::Setstat(&path, attrs))).await)
            .await
        {
            Err(fault) if fault.is(status::PERMISSION_DENIED) => tracing::debug!(%key, "not allowed to set the owner"),
            other => other.map_err(at(OP, key))?,
        }
    }
    // Also where nothing is to be set: it must be there.
    service
        .ask("Setstat", async |channel| pool::done(channel.ask(&Request::Setstat(&path, wish.attrs))).await)
        .await
        .map_err(at(OP, key))
}

/// See [`haul_store::Store::delete`].
pub async fn delete(service: &Service, key: &Key, want: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    let Ok(path) = service.path(key) else { return Ok(()) };
    // A rename or delete of the way there may come any time; what we know of it is as old as the run.
    if !key.is_root() {
        refuse_behind_link(service, key).await?;
    }
    let attrs = match service.facts(&path, key.is_root()).await {
        Err(fault) if fault.is(status::NO_SUCH_FILE) => return Ok(()),
        other => other.map_err(at(OP, key))?,
    };
    if key.is_dir() || key.is_root() {
        if attrs.is_link() && service.follows() {
            // The link's target isn't ours to delete.
            return remove(service, &path, key).await;
        }
        return if attrs.is_dir() { remove_dir(service, key, &path).await } else { Ok(()) };
    }
    // Nothing is called so.
    if attrs.is_dir() || key.is_symlink() && !attrs.is_link() {
        return Ok(());
    }
    if let Some(want) = want {
        let now = if attrs.is_link() && service.follows() {
            service.facts(&path, true).await.map_err(at(OP, key))?
        } else {
            attrs
        };
        if *want != version(&now) {
            return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key));
        }
    }
    remove(service, &path, key).await
}

async fn remove_dir(service: &Service, key: &Key, path: &[u8]) -> Result<()> {
    const OP: &str = "delete";
    service.forget(key);
    match service.ask("Rmdir", async |channel| pool::done(channel.ask(&Request::Rmdir(path))).await).await {
        Ok(()) => Ok(()),
        Err(fault) if fault.is(status::NO_SUCH_FILE) => Ok(()),
        Err(fault @ Fault::Lost(_)) => Err(at(OP, key)(fault)),
        Err(fault) => match dir_names::of(service, key).await {
            Ok(names) if !names.is_empty() => {
                Err(Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key))
            }
            _ => Err(at(OP, key)(fault)),
        },
    }
}

/// Where symlinks are followed, a listing shows what may lie anywhere; nothing of that is deleted.
async fn refuse_behind_link(service: &Service, key: &Key) -> Result<()> {
    if !service.follows() {
        return Ok(());
    }
    let mut dirs = Vec::new();
    let mut dir = key.parent();
    while !dir.is_root() && !service.real().contains(&dir) {
        dirs.push(dir.clone());
        dir = dir.parent();
    }
    for dir in dirs.into_iter().rev() {
        match service.facts(&service.path(&dir)?, false).await {
            Ok(attrs) if attrs.is_link() => {
                let message = format!(
                    "Refused to delete what is behind the symbolic link {}: use --links, or skip_links",
                    String::from_utf8_lossy(dir.path())
                );
                return Err(Error::new(ErrorKind::Denied, "delete", message).with_key(key));
            }
            Ok(_) => {
                service.real().insert(dir);
            }
            Err(fault) if fault.is(status::NO_SUCH_FILE) => return Ok(()),
            Err(fault) => return Err(at("delete", &dir)(fault)),
        }
    }
    Ok(())
}

/// See [`haul_store::Store::copy`].
pub async fn copy(service: &Service, from: &[u8], item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let unsupported = |message: &str| Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to);
    if item.how == CopyHow::RenameDir {
        return rename_dir(service, from, item).await;
    }
    if item.how.needs_inodes() {
        return Err(unsupported("SFTP tells too little of files for this"));
    }
    let hello = service.pool.hello().await?;
    let by_link = service.copy_is_hardlink && hello.has(HARDLINK, "1");
    if item.how == CopyHow::Copy && !by_link && !hello.has("copy-data", "1") {
        return Err(unsupported("the server doesn't copy by itself (copy-data)"));
    }
    let error = at(OP, &item.from);
    let source = below(from, &item.from)?;
    let there = service.facts(&source, service.follows()).await.map_err(&error)?;
    let is_kept_link = there.is_link() && item.from.is_symlink();
    let goes = there.is_file() || is_kept_link && item.how == CopyHow::Rename;
    if !goes {
        return Err(match there.is_dir() {
            true => Error::new(ErrorKind::NotFound, OP, "this is a directory").with_key(&item.from),
            false => unsupported("only files are copied there"),
        });
    }
    if item.want.as_ref().is_some_and(|want| *want != version(&there)) {
        return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(&item.from));
    }
    let own = service.path(&item.to)?;
    let target = match service.facts(&own, false).await {
        Err(fault) if fault.is(status::NO_SUCH_FILE) => None,
        other => Some(other.map_err(at(OP, &item.to))?),
    };
    let size = there.size.unwrap_or(0);
    let stored = |facts: &Attrs| StoredFacts { version: Some(version(facts)), size, ..StoredFacts::default() };
    make_dir(service, &item.to.parent()).await?;
    if item.how == CopyHow::Rename {
        if own == source {
            return Ok(stored(&there));
        }
        let settled = settle(service, &source, &item.to, &item.spec.replace, target.as_ref()).await;
        settled.map_err(|(error, _)| error)?;
        // It has kept its time, and another user's may not be set.
        let has_it = |mtime: &Mtime| {
            there.times.is_some_and(|(_, seconds)| mtime.0.div_euclid(1_000_000_000) == i128::from(seconds))
        };
        let mtime = item.spec.mtime.filter(|mtime| !has_it(mtime));
        if (mtime.is_some() || item.spec.meta.is_some())
            && let Err(error) = set_meta(service, &item.to, mtime, item.spec.meta.as_deref()).await
        {
            if error.kind() != ErrorKind::Denied || item.spec.meta.is_some() {
                return Err(error);
            }
            // It was renamed: reporting a failure would make the caller believe that the old name holds.
            tracing::warn!("{}: renamed, but its time may not be set: {error}", item.to);
        }
        return Ok(stored(&there));
    }
    let temp_key =
        Key::new([item.to.parent().as_bytes(), &hidden::new(item.to.name(), &item.spec.partial_suffix)].concat());
    let temp = service.path(&temp_key)?;
    if by_link {
        let request = Request::Extended(HARDLINK, &[&source, &temp]);
        let linked = service.ask("Link", async |channel| pool::done(channel.ask(&request)).await).await;
        linked.map_err(at(OP, &item.to))?;
        return finish_copy(service, &temp, item, target.as_ref()).await.map(|()| stored(&there));
    }
    let mtime = item.spec.mtime.or_else(|| there.times.map(|(_, mtime)| Mtime::new(mtime.into(), 0)));
    let mut wish = AttributeChange::new(
        &item.to,
        mtime.filter(|_| service.set_times),
        item.spec.meta.as_deref(),
        item.spec.keep_setid,
    )?;
    let kept = target.filter(Attrs::is_file).and_then(|target| target.mode);
    wish.attrs.mode = wish.attrs.mode.or_else(|| kept.or(there.mode).map(|mode| mode & 0o777));
    let copied = async {
        let turn = service.turn("Copy", Direction::Copy, 0).await?;
        let result = copy_data(&turn.claim, &source, &temp, size, &wish).await;
        turn.end(&result);
        let facts = result.map_err(at(OP, &item.to))?;
        finish_copy(service, &temp, item, target.as_ref()).await.map(|()| stored(&facts))
    };
    match copied.await {
        Ok(stored) => Ok(stored),
        Err(error) => {
            let _ = remove(service, &temp, &item.to).await;
            Err(no_space(service, error, size).await)
        }
    }
}

/// See [`CopyHow::RenameDir`].
async fn rename_dir(service: &Service, from: &[u8], item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let refused = |kind, message: &str| Err(Error::new(kind, OP, message).with_key(&item.to));
    let source = below(from, &item.from)?;
    let there = service.facts(&source, false).await.map_err(at(OP, &item.from))?;
    if !there.is_dir() {
        return refused(ErrorKind::Unsupported, "what is to be renamed is no directory itself");
    }
    let own = service.path(&item.to)?;
    // Servers refuse a name that is there, or don't.
    match service.facts(&own, false).await {
        Err(fault) if fault.is(status::NO_SUCH_FILE) => {}
        Err(fault) => return Err(at(OP, &item.to)(fault)),
        Ok(_) => return refused(ErrorKind::Exists, "something is there already"),
    }
    make_dir(service, &item.to.parent()).await?;
    rename(service, &source, &own).await.map_err(at(OP, &item.to))?;
    service.forget(&item.from);
    Ok(StoredFacts::default())
}

async fn finish_copy(service: &Service, temp: &[u8], item: &CopyItem, target: Option<&Attrs>) -> Result<()> {
    settle(service, temp, &item.to, &item.spec.replace, target).await.map_err(|(error, _)| error)
}

async fn copy_data(channel: &Claim, from: &[u8], to: &[u8], size: u64, wish: &AttributeChange) -> Result<Attrs, Fault> {
    let opened = channel.ask(&Request::Open(from, open::READ, Attrs::default()));
    let flags = open::WRITE | open::CREATE | open::EXCLUSIVE;
    let made = channel.ask(&Request::Open(to, flags, Attrs { mode: Some(0o600), ..Attrs::default() }));
    let (opened, made) = (Handle::opened(channel, opened).await, Handle::opened(channel, made).await);
    let (opened, made) = (opened?, made?);
    let mut in_flight = VecDeque::new();
    for from in (0..size.max(1)).step_by(STRETCH as usize) {
        if in_flight.len() == STRETCHES
            && let Some(done) = in_flight.pop_front()
        {
            pool::done(done).await?;
        }
        // The last one goes to the end, wherever that is by now: a file that grew is found out by its size.
        let bytes = if size - from > STRETCH { STRETCH } else { 0 };
        in_flight.push_back(channel.ask(&Request::CopyData(&opened.name, from, bytes, &made.name, from)));
    }
    for done in in_flight {
        pool::done(done).await?;
    }
    if let Some(owner) = wish.owner {
        let attrs = Attrs { owner: Some(owner), ..Attrs::default() };
        // Not everybody may.
        drop(channel.ask(&Request::Fsetstat(&made.name, attrs)));
    }
    let set = channel.ask(&Request::Fsetstat(&made.name, wish.attrs));
    let facts = channel.ask(&Request::Fstat(&made.name));
    let closed = made.close();
    pool::done(set).await?;
    let facts = pool::attrs(facts).await?;
    pool::done(closed).await?;
    match facts.size == Some(size) {
        true => Ok(facts),
        false => {
            let message = format!("the copy has {} bytes instead of {size}", facts.size.unwrap_or(0));
            Err(Error::new(ErrorKind::Corrupt, "copy", message).into())
        }
    }
}

/// Bytes in total, free, and available to this user.
///
/// Errors: `Unsupported` where the server doesn't tell.
pub async fn space(service: &Service) -> Result<(u64, u64, u64)> {
    let unsupported = || Error::new(ErrorKind::Unsupported, "about", "the server doesn't tell how much space there is");
    if !service.pool.hello().await?.has(STATVFS, "2") {
        return Err(unsupported());
    }
    let root = Key::new("");
    let path = service.path(&root)?;
    let reply =
        service.ask("Statvfs", async |channel| match channel.ask(&Request::Extended(STATVFS, &[&path])).await? {
            Reply::Extended(answer) => Ok(answer),
            other => Err(Fault::unexpected(other)),
        });
    wire::space(reply.await.map_err(at("about", &root))?).ok_or_else(unsupported)
}

/// The error of a write; where the server has no words for it and no room for `size` bytes, that is said.
pub async fn no_space(service: &Service, error: Error, size: u64) -> Error {
    if error.kind() != ErrorKind::Io || !error.message().starts_with("the server says") {
        return error;
    }
    match space(service).await {
        Ok((_, _, available)) if available < size.max(1) => {
            let reworded = Error::new(ErrorKind::NoSpace, error.op().to_owned(), "no space is left there");
            match error.key() {
                Some(key) => reworded.with_key(key),
                None => reworded,
            }
        }
        _ => error,
    }
}

/// See [`haul_store::Admin::cleanup`].
pub async fn cleanup(service: &Service, what: Cleanup) -> UnfinishedWrites {
    let Cleanup { older_than, dry_run, below } = what;
    let now = jiff::Timestamp::now().as_second();
    let oldest = now.saturating_sub(i64::try_from(older_than.as_secs()).unwrap_or(i64::MAX));
    let (mut dirs, mut left) = (vec![below], UnfinishedWrites::default());
    while let Some(dir) = dirs.pop() {
        let names = match dir_names::of(service, &dir).await {
            Ok(names) => names,
            Err(error) => {
                left.failed.push(error);
                continue;
            }
        };
        for name in names {
            let key = Key::new([dir.as_bytes(), &name.name].concat());
            if service.path(&key).is_err() || name.name.contains(&b'/') {
                let message = "the server listed a name that can't be one";
                left.failed.push(Error::new(ErrorKind::Invalid, "cleanup", message).with_key(&dir));
            } else if name.attrs.is_dir() {
                dirs.push(Entry::dir(key).key);
            } else if let Some(own) = hidden::put_aside(&name.name) {
                // It may be all that there is of a file.
                let own = Key::new([dir.as_bytes(), own].concat());
                if !dry_run && let Err(error) = put_back(service, &key, &own).await {
                    left.failed.push(error);
                }
            } else if hidden::is_hidden(&name.name) {
                let time = name.attrs.times.map(|(_, mtime)| Mtime::new(mtime.into(), 0));
                let Some(time) = time.filter(|time| time.secs() <= oldest) else { continue };
                if !dry_run && let Err(error) = remove(service, &service.path(&key).unwrap_or_default(), &key).await {
                    left.failed.push(error);
                }
                left.found.push((key, Some(time)));
            }
        }
    }
    left
}
