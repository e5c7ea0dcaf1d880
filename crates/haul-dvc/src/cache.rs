//! The cache on this machine's disk: what it holds, how files come into it and, by links or copies, out of it. A file of the
//! cache has mode 0444 once its content is known to be what its name says; it appears under its name whole.

// A cache is files of this machine's disk, which this crate reads and writes by itself.
#![allow(clippy::disallowed_methods)]

use crate::config::Link;
use haul_cas::{
    address::{Address, Layout, Md5},
    facts::{self, Facts, io_error, went},
    manifest::{self, Child},
};
use haul_core::{Algo, Error, ErrorKind, Mtime, Result, hash::Hasher};
use haul_store::{late_errors, recent_change, unnamed_file};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt as _,
            fs::{OpenOptionsExt as _, PermissionsExt as _},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The mode of a file whose content is known to be right.
const TRUSTED: u32 = 0o444;
/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// Files up to this size are read whole, and the hashed bytes are the ones written.
const WHOLE: u64 = 1 << 20;

/// How the names of files that aren't finished begin …
const HIDDEN: &str = ".haul-";
/// … and how they end.
const UNFINISHED: &str = ".tmp";

/// Where what isn't what its name said gets its second name: beside the folders of content, whose names have two letters. DVC passes it over.
const ASIDE: &str = "haul-wrong";

/// Keeps a file's content when its name gets another.
#[derive(Debug)]
pub struct Aside {
    /// The name.
    path: PathBuf,
    /// Facts of the file that had it.
    facts: Facts,
    /// Another name of that.
    kept: PathBuf,
}

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Its folder.
    pub root: PathBuf,
    shared: bool,
    /// Where errors come late.
    pub(crate) late: Arc<late_errors::Mounts>,
    /// Where files that are to replace others in the workspace are made, if not beside them.
    pub(crate) scratch: Option<PathBuf>,
    /// Files whose content doesn't match their name, and their facts then. Such a file stays until right content comes: a symlink of a
    /// workspace may lead there, and what somebody wrote into it is nowhere else.
    wrong: Arc<Mutex<BTreeMap<PathBuf, Facts>>>,
}

/// A file that was hashed.
#[derive(Clone, Copy, Debug)]
pub struct Hashed {
    /// Of its content.
    pub md5: Md5,
    /// Its facts; after it was hashed they were still the same if `steady`.
    pub facts: Facts,
    /// It didn't change meanwhile.
    pub steady: bool,
}

impl Cache {
    /// The cache in a folder; `shared` lets a group write to it.
    pub fn new(root: PathBuf, shared: bool) -> Cache {
        Cache { root, shared, late: Arc::default(), scratch: None, wrong: Arc::default() }
    }

    /// Makes files that replace others in the workspace in this folder first, where nobody mistakes what a kill leaves for a file
    /// of the workspace.
    pub fn with_scratch(self, folder: PathBuf) -> Cache {
        Cache { scratch: Some(folder), ..self }
    }

    /// The path of the content with this address.
    pub fn path(&self, address: &Address) -> PathBuf {
        let key = address.key();
        // A key is ASCII.
        self.root.join(String::from_utf8_lossy(key.as_bytes()).as_ref())
    }

    /// Does it hold this, and in how many bytes? What isn't marked as right is hashed: then it is marked, or
    /// doesn't count. Blocks.
    pub fn holds(&self, address: &Address) -> Result<Option<u64>> {
        self.holds_whole(address, None)
    }

    /// As [`Cache::holds`], where it may be known how many bytes that has: then what has others is hashed too. A file that was cut
    /// off when the machine lost its power still has the mark. Blocks.
    pub fn holds_whole(&self, address: &Address, size: Option<u64>) -> Result<Option<u64>> {
        self.held(address, Facts::get(&self.path(address), true), size)
    }

    /// As [`Cache::holds`] of each, best in order. Blocks.
    pub fn holds_of(&self, some: &[Address]) -> Vec<Result<Option<u64>>> {
        self.facts_of(some).map(|(address, facts)| self.held(address, facts, None)).collect()
    }

    fn held(
        &self,
        address: &Address,
        facts: rustix::io::Result<Option<Facts>>,
        size: Option<u64>,
    ) -> Result<Option<u64>> {
        let trusts = |facts: &Facts| facts.mode & 0o7777 == TRUSTED && size.is_none_or(|size| size == facts.size);
        match facts {
            Ok(Some(facts)) if facts.is_file() && trusts(&facts) => Ok(Some(facts.size)),
            Ok(Some(facts)) if facts.is_file() => self.prove(address, &self.path(address), &facts),
            Ok(_) => Ok(None),
            Err(errno) => Err(io_error("read", &self.path(address), errno)),
        }
    }

    /// For each address and size in bytes, best in order: true when the cache's own content of that address proves that content of
    /// this size has another address. Blocks.
    pub fn refutes(&self, some: &[(Address, u64)]) -> Vec<bool> {
        let addresses: Vec<Address> = some.iter().map(|(address, _)| *address).collect();
        let facts = self.facts_of(&addresses).zip(some);
        let refuted = facts.map(|((address, facts), (_, size))| {
            let Ok(Some(facts)) = facts else { return false };
            if !address.names_bytes() || !facts.is_file() || facts.size == *size {
                return false;
            }
            // One of the two was cut off; which, its hash tells.
            hash_file(&self.path(address), address.algo()).is_ok_and(|hashed| hashed.md5 == address.md5)
        });
        refuted.collect()
    }

    /// Facts of what has these addresses; neighbours of one folder are looked at from there, which spares them the way to it.
    fn facts_of<'a>(
        &self,
        some: &'a [Address],
    ) -> impl Iterator<Item = (&'a Address, rustix::io::Result<Option<Facts>>)> {
        some.chunk_by(Address::shares_folder).flat_map(move |group| {
            let folder = self.path(&group[0]).parent().filter(|_| group.len() > 1).and_then(|folder| {
                rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
            });
            group.iter().map(move |address| {
                let facts = match &folder {
                    Some(folder) => Facts::get_at(folder, address.key().name(), true),
                    None => Facts::get(&self.path(address), true),
                };
                (address, facts)
            })
        })
    }

    fn prove(&self, address: &Address, path: &Path, facts: &Facts) -> Result<Option<u64>> {
        let hashed = hash_file(path, address.algo())?;
        if hashed.md5 == address.md5 {
            // An executable one keeps its bits: another name of it is in a workspace.
            if !facts.is_exec() {
                let protected = fs::set_permissions(path, fs::Permissions::from_mode(TRUSTED));
                if let Err(error) = protected {
                    tracing::debug!("{}: can't be protected: {error}", path.display());
                }
            }
            return Ok(Some(hashed.facts.size));
        }
        if self.wrong().insert(path.to_path_buf(), hashed.facts).is_none() {
            tracing::warn!("{}: its content doesn't match its name", path.display());
        }
        Ok(None)
    }

    fn wrong(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Facts>> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives all that was found not to be what its name says a second name, before right content comes. Blocks.
    ///
    /// Errors: it can be neither linked nor copied.
    pub fn keep_wrong(&self) -> Result<Vec<Aside>> {
        let all: Vec<PathBuf> = self.wrong().keys().cloned().collect();
        all.iter().filter_map(|path| self.keep_one_wrong(path).transpose()).collect()
    }

    fn keep_one_wrong(&self, path: &Path) -> Result<Option<Aside>> {
        // Held until it has a second name: whoever else needs the name waits for that.
        let mut wrong = self.wrong();
        let Some(facts) = wrong.remove(path) else { return Ok(None) };
        // Somebody else may have seen to it.
        if !is_still(path, &facts) {
            return Ok(None);
        }
        let (fan, name) = (path.parent().unwrap_or(&self.root), path.file_name().unwrap_or_default());
        let folder = fan.parent().unwrap_or(&self.root).join(ASIDE);
        let name = [fan.file_name().unwrap_or_default(), name].map(OsStr::to_string_lossy).concat();
        let mut number = 0_u64;
        loop {
            let kept = folder.join(format!("{name}.{number}"));
            self.make_folder(&kept)?;
            match second_name(path, &kept) {
                Ok(()) => return Ok(Some(Aside { path: path.to_path_buf(), facts, kept })),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(io_error("keep", path, e)),
            }
        }
    }

    /// Tells where that is by now; what still has its name needs no second one. Blocks.
    pub fn tell_kept(&self, all: Vec<Aside>) {
        for Aside { path, facts, kept } in all {
            if !is_still(&path, &facts) {
                tracing::warn!("{}: what was there is {} now", path.display(), kept.display());
            } else if let Err(error) = fs::remove_file(&kept) {
                tracing::warn!("{}: can't be removed: {error}", kept.display());
            }
        }
    }

    /// The files of a directory. Blocks.
    ///
    /// Errors: `NotFound` when the manifest isn't in the cache; also a manifest that isn't right.
    pub fn manifest(&self, address: &Address) -> Result<Vec<Child>> {
        let path = self.path(address);
        let bytes = fs::read(&path).map_err(|e| io_error("read", &path, e))?;
        if manifest::md5(&bytes) != address.md5 {
            let message = "its content doesn't match its name";
            return Err(Error::new(ErrorKind::Corrupt, "read", message).with_key(&facts::key(&path)));
        }
        manifest::parse(&bytes).map_err(|why| facts::invalid("read", &path, why))
    }

    /// Puts these bytes into it. Blocks.
    pub fn put_bytes(&self, address: &Address, bytes: &[u8]) -> Result<()> {
        let path = self.path(address);
        if self.holds_whole(address, Some(bytes.len() as u64))?.is_some() {
            return Ok(());
        }
        if self.put_nameless(&path, bytes)? {
            return Ok(());
        }
        let (tmp, mut file) = self.temporary(&path)?;
        let written = file.write_all(bytes);
        self.publish(&tmp, &path, file, written.map_err(|e| io_error("write", &tmp, e)))
    }

    /// Puts them into a file that gets its name when it is whole; false where that can't be done, also because something else has
    /// the name by now, or the folder went.
    fn put_nameless(&self, path: &Path, bytes: &[u8]) -> Result<bool> {
        let Some(mut file) = self.nameless(path)? else { return Ok(false) };
        file.write_all(bytes).map_err(|e| io_error("write", path, e))?;
        protect(&file, path)?;
        kept(&self.late, &file, path)?;
        match unnamed_file::give_name(&file, CWD, path.as_os_str().as_bytes()) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST | Errno::NOENT) => Ok(false),
            Err(e) => Err(io_error("write", path, e)),
        }
    }

    /// Hashes a file of the workspace and puts its content into the cache, in one go; by a link instead of a copy where `links`
    /// begins with one: the file is then the cache's own, except behind a symlink, where it is somebody else's. `facts` are what
    /// was seen of it before. Blocks.
    ///
    /// Errors: the file can't be read or changed meanwhile, the cache can't be written.
    pub fn take(&self, path: &Path, facts: Facts, links: &[Link]) -> Result<Hashed> {
        let file = File::open(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => went(path),
            _ => io_error("read", path, e),
        })?;
        // The facts pin the content read only if they show every change from now on.
        recent_change::wait(&file, Mtime(facts.mtime.into()), Mtime(facts.ctime.into()));
        let by_link = matches!(links.first(), Some(Link::Hardlink | Link::Symlink));
        if by_link || facts.size > WHOLE {
            return self.take_large(path, file, facts, links);
        }
        let bytes = read_whole(path, &file, facts.size as usize)?;
        let md5 = manifest::md5(&bytes);
        self.put_bytes(&Address::file(Layout::V3, md5), &bytes)?;
        Ok(Hashed { md5, facts, steady: bytes.len() as u64 == facts.size && unchanged(&file, &facts) })
    }

    fn take_large(&self, path: &Path, file: File, facts: Facts, links: &[Link]) -> Result<Hashed> {
        if matches!(links.first(), Some(Link::Hardlink | Link::Symlink)) && facts.size > 0 {
            let hashed = hash_open(path, &file, Algo::Md5)?;
            let address = Address::file(Layout::V3, hashed.md5);
            if !hashed.steady {
                return Err(changed(path));
            }
            let size = Some(hashed.facts.size);
            if self.holds_whole(&address, size)?.is_some() || self.adopt(path, &address, &hashed.facts)? {
                return Ok(hashed);
            }
            return self.take_large(
                path,
                File::open(path).map_err(|e| io_error("read", path, e))?,
                facts,
                &[Link::Copy],
            );
        }
        // The name isn't known before the bytes are.
        let new = self.root.join("files/md5/new");
        let reflink = links.contains(&Link::Reflink);
        if let Some(out) = self.nameless(&new)? {
            let md5 = copy_and_hash(path, &file, &out, reflink)?;
            let to = self.path(&Address::file(Layout::V3, md5));
            let steady = unchanged(&file, &facts);
            protect(&out, &to)?;
            kept(&self.late, &out, &to)?;
            let name = || Ok(unnamed_file::give_name(&out, CWD, to.as_os_str().as_bytes())?);
            match self.making_folder(&to, name)? {
                Ok(()) => return Ok(Hashed { md5, facts, steady }),
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(io_error("write", &to, e)),
                Err(_)
                    if self.holds_whole(&Address::file(Layout::V3, md5), steady.then_some(facts.size))?.is_some() =>
                {
                    return Ok(Hashed { md5, facts, steady });
                }
                // The file with the name isn't right.
                Err(_) => {}
            }
        }
        let (tmp, out) = self.temporary(&new)?;
        let file = File::open(path).map_err(|e| io_error("read", path, e))?;
        let copied = copy_and_hash(path, &file, &out, reflink);
        let md5 = match copied {
            Ok(md5) => md5,
            Err(error) => return Err(discard(&tmp, error)),
        };
        let address = Address::file(Layout::V3, md5);
        let steady = unchanged(&file, &facts);
        if self.holds_whole(&address, steady.then_some(facts.size))?.is_some() {
            fs::remove_file(&tmp).map_err(|e| io_error("delete", &tmp, e))?;
        } else {
            self.publish(&tmp, &self.path(&address), out, Ok(()))?;
        }
        Ok(Hashed { md5, facts, steady })
    }

    /// A file without a name in the folder of `path`, where there can be such.
    fn nameless(&self, path: &Path) -> Result<Option<File>> {
        let folder = path.parent().unwrap_or(&self.root);
        let mode = Mode::from_raw_mode(TRUSTED);
        let probe = || hidden(path).file_name().unwrap_or_default().as_bytes().to_vec();
        let open = || Ok(unnamed_file::create(CWD, folder.as_os_str().as_bytes(), mode, probe)?);
        let made = self.making_folder(path, open)?;
        Ok(made.map_err(|e| io_error("write", path, e))?.map(File::from))
    }

    /// Makes a file of the workspace the cache's own, under a second name; false where that can't be, also because another file
    /// of the same content has the name already, or is getting it just now.
    fn adopt(&self, path: &Path, address: &Address, facts: &Facts) -> Result<bool> {
        let to = self.path(address);
        self.make_folder(&to)?;
        let made = match rustix::fs::linkat(CWD, path, CWD, &to, AtFlags::empty()) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) if cannot_link(e) => return Ok(false),
            Err(e) => return Err(io_error("write", &to, e)),
        };
        // Until it has this mode, nobody believes its content.
        let now = Facts::get(&to, false).map_err(|e| io_error("read", &to, e))?;
        let same = now.filter(|now| (now.dev, now.ino) == (facts.dev, facts.ino));
        let Some(_) = same.filter(|now| (now.size, now.mtime) == (facts.size, facts.mtime)) else {
            if made {
                fs::remove_file(&to).map_err(|e| io_error("delete", &to, e))?;
            }
            // A symlink is no name of what was hashed, nor is what took the name meanwhile.
            return if same.is_some() { Err(changed(path)) } else { Ok(false) };
        };
        fs::set_permissions(&to, fs::Permissions::from_mode(TRUSTED)).map_err(|e| io_error("write", &to, e))?;
        Ok(true)
    }

    /// A new file beside `path`, with the mode that it will have.
    fn temporary(&self, path: &Path) -> Result<(PathBuf, File)> {
        let tmp = hidden(path);
        let open = || File::options().read(true).write(true).create_new(true).mode(TRUSTED).open(&tmp);
        let file = self.making_folder(path, open)?.map_err(|e| io_error("write", &tmp, e))?;
        Ok((tmp, file))
    }

    /// The result of `attempt` at `path`, whose folder is created if it is missing.
    fn making_folder<T>(&self, path: &Path, attempt: impl Fn() -> io::Result<T>) -> Result<io::Result<T>> {
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make_folder(path)?;
                Ok(attempt())
            }
            other => Ok(other),
        }
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(|e| io_error("make directory", folder, e))?;
        if self.shared {
            // As in DVC, members of the group may add to it, and what they add belongs to the group.
            let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o2775));
        }
        Ok(())
    }

    fn publish(&self, tmp: &Path, path: &Path, file: File, written: Result<()>) -> Result<()> {
        let aside = written.and_then(|()| self.keep_one_wrong(path));
        let named = aside.and_then(|aside| {
            protect(&file, tmp)?;
            kept(&self.late, &file, path)?;
            drop(file);
            let renamed = self.making_folder(path, || fs::rename(tmp, path))?.map_err(|e| io_error("write", path, e));
            self.tell_kept(aside.into_iter().collect());
            renamed
        });
        named.map_err(|error| discard(tmp, error))
    }

    /// Removes what has this address. Blocks.
    ///
    /// Errors: it can't be removed.
    pub fn remove(&self, address: &Address) -> Result<()> {
        let path = self.path(address);
        fs::remove_file(&path).map_err(|e| io_error("delete", &path, e))
    }

    /// Every address that it holds, with the size of its file. Blocks.
    ///
    /// Errors: a folder that can't be read.
    pub fn all(&self) -> Result<Vec<(Address, u64)>> {
        let mut all = Vec::new();
        for prefix in ["files/md5", ""] {
            let folder = self.root.join(prefix);
            for fan in names(&folder)? {
                if fan.len() != 2 || !fan.bytes().all(|b| b.is_ascii_hexdigit()) {
                    continue;
                }
                for name in names(&folder.join(&fan))? {
                    let key = crate::paths::joined(prefix, &format!("{fan}/{name}"));
                    let Some(address) = Address::of_key(key.as_bytes()) else { continue };
                    let path = self.root.join(&key);
                    let facts = Facts::get(&path, false).map_err(|e| io_error("read", &path, e))?;
                    all.extend(facts.filter(Facts::is_file).map(|facts| (address, facts.size)));
                }
            }
        }
        Ok(all)
    }
}

/// Another name of a file, or a copy of it where there can be none.
fn second_name(path: &Path, kept: &Path) -> io::Result<()> {
    match rustix::fs::linkat(CWD, path, CWD, kept, AtFlags::empty()) {
        Err(e) if cannot_link(e) => {
            let mut copy = File::options().write(true).create_new(true).open(kept)?;
            io::copy(&mut File::open(path)?, &mut copy).map(drop)
        }
        linked => Ok(linked?),
    }
}

/// True if a path still has these facts.
fn is_still(path: &Path, facts: &Facts) -> bool {
    let same = |now: Facts| (now.dev, now.ino, now.size, now.mtime) == (facts.dev, facts.ino, facts.size, facts.mtime);
    Facts::get(path, true).is_ok_and(|now| now.is_some_and(same))
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(e) => return Err(io_error("list", folder, e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| io_error("list", folder, e))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// A hidden name beside a path, that no other process takes.
pub(crate) fn hidden(path: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    static PROCESS: OnceLock<u32> = OnceLock::new();
    let (process, number) = (PROCESS.get_or_init(std::process::id), NUMBER.fetch_add(1, Ordering::Relaxed));
    path.with_file_name(format!("{HIDDEN}{process}-{number}{UNFINISHED}"))
}

/// True for the names that [`hidden`] gives.
pub(crate) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(HIDDEN.as_bytes()) && name.ends_with(UNFINISHED.as_bytes())
}

/// All of a small file, by one read for its bytes and one that shows its end.
fn read_whole(path: &Path, file: &File, size: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; size + 1];
    let mut filled = 0;
    loop {
        let got = rustix::io::read(file, &mut bytes[filled..]).map_err(|e| io_error("read", path, e))?;
        filled += got;
        // Less than there is room for: that was all.
        if got == 0 || filled < bytes.len() && filled >= size {
            bytes.truncate(filled);
            return Ok(bytes);
        }
        if filled == bytes.len() {
            bytes.resize(filled * 2, 0);
        }
    }
}

/// Errors that mean: not by this kind of link, not here. The same list as DVC's, with the limit of names a file.
pub(crate) fn cannot_link(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::OPNOTSUPP
            | Errno::XDEV
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::AGAIN
            | Errno::MLINK
    )
}

/// The mode that says: this is right. The process's umask may take bits away from new files; the first one tells.
fn protect(file: &File, path: &Path) -> Result<()> {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let as_made = *KNOWN.get_or_init(|| Facts::of(file).is_ok_and(|facts| facts.mode & 0o7777 == TRUSTED));
    if as_made {
        return Ok(());
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(TRUSTED)).map_err(|e| io_error("write", path, e))
}

/// Refuses a file that the file system turns out not to hold as it was written: some report that when it is closed.
///
/// Errors: write errors, of a file system that writes late.
pub(crate) fn kept(mounts: &late_errors::Mounts, file: &File, path: &Path) -> Result<()> {
    mounts.ask(file).map_err(|e| {
        let close_error = io_error("write", path, e);
        let message = format!("write error reported on close: {}", close_error.message());
        Error::new(close_error.kind(), "write", message).with_key(&facts::key(path))
    })
}

pub(crate) fn discard(tmp: &Path, error: Error) -> Error {
    // A leftover has a hidden name that nobody takes for content.
    let _ = fs::remove_file(tmp);
    error
}

pub(crate) fn changed(path: &Path) -> Error {
    Error::new(ErrorKind::Changed, "add", "it changed while it was read: run this again when nobody writes to it")
        .with_key(&facts::key(path))
}

fn unchanged(file: impl AsFd, before: &Facts) -> bool {
    Facts::of(file).is_ok_and(|now| now.same(before))
}

/// Copies all of `from` to `out` and gives the MD5 of what `out` holds.
fn copy_and_hash(path: &Path, from: &File, out: &File, reflink: bool) -> Result<Md5> {
    if reflink && rustix::fs::ioctl_ficlone(out, from).is_ok() {
        return Ok(hash_bytes(path, out, Algo::Md5, PIECE as u64)?.0);
    }
    let mut hasher = Hasher::new(&[Algo::Md5]);
    let (mut source, mut sink) = (from, out);
    let mut buffer = vec![0; PIECE];
    loop {
        let got = source.read(&mut buffer).map_err(|e| io_error("read", path, e))?;
        if got == 0 {
            break;
        }
        hasher.update(&buffer[..got]);
        sink.write_all(&buffer[..got]).map_err(|e| io_error("write", path, e))?;
    }
    Ok(md5_of(hasher))
}

fn md5_of(hasher: Hasher) -> Md5 {
    let hashes = hasher.finish();
    let value = hashes.iter().next().map(|(_, value)| value);
    value.and_then(|value| value.try_into().ok()).unwrap_or_default()
}

/// Hashes a file, by [`Layout::algo`] of its layout. Blocks.
///
/// Errors: it can't be read.
pub fn hash_file(path: &Path, algo: Algo) -> Result<Hashed> {
    let file = File::open(path).map_err(|e| io_error("read", path, e))?;
    hash_open(path, &file, algo)
}

fn hash_open(path: &Path, file: &File, algo: Algo) -> Result<Hashed> {
    let mut facts = Facts::of(file).map_err(|e| io_error("read", path, e))?;
    if recent_change::wait(file, Mtime(facts.mtime.into()), Mtime(facts.ctime.into())) {
        facts = Facts::of(file).map_err(|e| io_error("read", path, e))?;
    }
    let (md5, read) = hash_bytes(path, file, algo, facts.size)?;
    Ok(Hashed { md5, facts, steady: read == facts.size && unchanged(file, &facts) })
}

/// Hashes what is still to be read of a file, about `size` bytes; how many these were.
fn hash_bytes(path: &Path, mut file: &File, algo: Algo, size: u64) -> Result<(Md5, u64)> {
    let mut hasher = Hasher::new(&[algo]);
    let mut buffer = vec![0; PIECE.min(size as usize + 1)];
    let mut read = 0;
    loop {
        let got = file.read(&mut buffer).map_err(|e| io_error("read", path, e))?;
        if got == 0 {
            return Ok((md5_of(hasher), read));
        }
        hasher.update(&buffer[..got]);
        read += got as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_found_by_its_size_and_put_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().join("cache"), false);
        let cut = |address: &Address| {
            let path = cache.path(address);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(TRUSTED)).unwrap();
        };
        let address = Address::file(Layout::V3, manifest::md5(b"bytes"));
        cache.put_bytes(&address, b"bytes").unwrap();
        assert_eq!(cache.holds_whole(&address, Some(5)).unwrap(), Some(5));
        // A size that somebody noted wrong condemns nothing.
        assert_eq!(cache.holds_whole(&address, Some(6)).unwrap(), Some(5));
        cut(&address);
        assert_eq!(cache.holds_whole(&address, Some(5)).unwrap(), None);
        cache.put_bytes(&address, b"bytes").unwrap();
        cut(&address);
        cache.put_bytes(&address, b"bytes").unwrap();
        assert_eq!(fs::read(cache.path(&address)).unwrap(), b"bytes");
        // Of files too large to be read whole, and of those that become the cache's own.
        for (links, size) in [(Link::Copy, WHOLE + 1), (Link::Hardlink, 5)] {
            let (file, bytes) = (dir.path().join("file"), vec![7; size as usize]);
            fs::write(&file, &bytes).unwrap();
            let facts = || Facts::get(&file, true).unwrap().unwrap();
            let address = Address::file(Layout::V3, manifest::md5(&bytes));
            cache.put_bytes(&address, &bytes).unwrap();
            cut(&address);
            assert!(cache.take(&file, facts(), &[links]).unwrap().steady);
            assert!(fs::read(cache.path(&address)).unwrap() == bytes, "{links:?}");
        }
    }

    #[test]
    fn many_are_looked_at_as_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().into(), false);
        let put = |bytes: &[u8]| {
            let address = Address::file(Layout::V3, manifest::md5(bytes));
            cache.put_bytes(&address, bytes).unwrap();
            address
        };
        let there = put(b"there");
        let unmarked = put(b"unmarked");
        fs::set_permissions(cache.path(&unmarked), fs::Permissions::from_mode(0o644)).unwrap();
        let near = |address: &Address| {
            let mut near = *address;
            near.md5[15] ^= 1;
            near
        };
        // Cut off, and never proved.
        let cut = near(&unmarked);
        fs::write(cache.path(&cut), b"unm").unwrap();
        let (absent, alone) = (near(&there), Address::file(Layout::V3, [0xee; 16]));
        let mut some = vec![there, unmarked, cut, absent, alone];
        some.sort_unstable();
        let held: Vec<_> = cache.holds_of(&some).into_iter().map(|held| held.unwrap()).collect();
        let expected: Vec<_> = some
            .iter()
            .map(|address| match address {
                a if *a == there => Some(5),
                a if *a == unmarked => Some(8),
                _ => None,
            })
            .collect();
        assert_eq!(held, expected);
        // It stays until its name is needed, and isn't lost then.
        assert_eq!(fs::read(cache.path(&cut)).unwrap(), b"unm");
        let folder = dir.path().join("files/md5").join(ASIDE);
        let aside = || names(&folder).unwrap();
        // Also where nothing replaces it.
        let kept = cache.keep_wrong().unwrap();
        assert_eq!((kept.len(), aside().len()), (1, 1));
        cache.tell_kept(kept);
        assert_eq!((fs::read(cache.path(&cut)).unwrap(), aside().len()), (b"unm".to_vec(), 0));
        assert!(cache.holds(&cut).unwrap().is_none());
        let kept = cache.keep_wrong().unwrap();
        fs::remove_file(cache.path(&cut)).unwrap();
        cache.tell_kept(kept);
        assert_eq!(fs::read(folder.join(&aside()[0])).unwrap(), b"unm");
        // A file missing from the cache refutes nothing.
        assert_eq!(cache.refutes(&[(there, 5), (absent, 5)]), [false, false]);
        assert_eq!(cache.refutes(&[(there, 4), (absent, 4)]), [true, false]);
    }
}
