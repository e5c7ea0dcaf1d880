//! Directory descriptors: the root, those below it, and the few used last. Everything that a key names is reached
//! through one of these, so that no symbolic link can lead out of the root.

use super::own_links::open_by_own_links;
use haul_core::{Key, key::parent};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags},
    io::{Errno, Result},
};
use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// An open directory.
pub(super) type Dir = Arc<OwnedFd>;

/// Descriptors kept: enough for the directories that the disk threads work in at one time.
const KEPT: usize = 32;

/// Longest path handed to the kernel at once; PATH_MAX is 4096 with its zero byte.
const PATH_CHUNK: usize = 4000;

/// The root of a store: its path, and its descriptor once something needed it.
pub(super) struct Root {
    path: Vec<u8>,
    /// Links below the root may lead anywhere (`--copy-links`), when reading, or those of them that the store shows as files.
    follow: bool,
    /// Links to directories may.
    follow_dirs: bool,
    /// Links on the way to the root lead there only where they are root's or this user's.
    own_links: bool,
    /// New directories are for their owner alone: their attributes come later.
    private: AtomicBool,
    open: Mutex<Open>,
}

/// How long a descriptor is taken for what its path names: when somebody renames directories during a run, their old
/// places are used no longer than this.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Open {
    root: Option<CachedDir>,
    /// Last used first.
    last: VecDeque<CachedDir>,
}

struct CachedDir {
    /// The directory's key, with its `/`.
    key: Vec<u8>,
    dir: Dir,
    until: Instant,
}

impl CachedDir {
    fn new(key: &[u8], dir: &Dir) -> Self {
        CachedDir { key: key.to_vec(), dir: dir.clone(), until: Instant::now() + FRESH }
    }

    fn fresh(&self) -> Option<Dir> {
        (Instant::now() < self.until).then(|| self.dir.clone())
    }
}

impl Root {
    pub(super) fn new(path: Vec<u8>, follow: bool) -> Self {
        Root {
            path,
            follow,
            follow_dirs: follow,
            own_links: false,
            private: AtomicBool::new(false),
            open: Mutex::default(),
        }
    }

    /// This root, following links to directories too.
    pub(super) fn following_dirs(self, follow_dirs: bool) -> Self {
        Root { follow_dirs: self.follow || follow_dirs, ..self }
    }

    /// This root, without following other users' links on the way to it.
    pub(super) fn by_own_links(self, own_links: bool) -> Self {
        Root { own_links, ..self }
    }

    pub(super) fn goes_by_own_links(&self) -> bool {
        self.own_links
    }

    /// Is what has this key looked at through a link?
    pub(super) fn follows(&self, key: &Key) -> bool {
        if key.is_dir() { self.follow_dirs } else { self.follow && !key.is_symlink() }
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(super) fn follow(&self) -> bool {
        self.follow
    }

    pub(super) fn follows_dirs(&self) -> bool {
        self.follow_dirs
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The root, which must exist and be a directory.
    pub(super) fn root(&self) -> Result<Dir> {
        if let Some(dir) = self.lock().root.as_ref().and_then(CachedDir::fresh) {
            return Ok(dir);
        }
        let dir: Dir = Arc::new(self.open_root(dir_flags())?);
        self.lock().root = Some(CachedDir::new(b"", &dir));
        Ok(dir)
    }

    fn open_root(&self, flags: OFlags) -> Result<OwnedFd> {
        match self.own_links {
            true => open_by_own_links(&self.path, flags, Mode::empty()),
            false => rustix::fs::openat(CWD, self.path(), flags, Mode::empty()),
        }
    }

    /// The root, created with everything above it when it doesn't exist.
    pub(super) fn make_root(&self) -> Result<Dir> {
        match self.root() {
            Err(Errno::NOENT) => make_path(&self.path, self.new_mode())?,
            answer => return answer,
        }
        self.root()
    }

    /// True when directories get their permissions at the end of the run.
    pub(super) fn is_private(&self) -> bool {
        self.private.load(Ordering::Relaxed)
    }

    /// The mode that a directory is made with.
    fn new_mode(&self) -> Mode {
        Mode::from_raw_mode(if self.is_private() { 0o700 } else { 0o777 })
    }

    /// Makes directories for their owner alone from now on.
    pub(super) fn make_private(&self) {
        self.private.store(true, Ordering::Relaxed);
    }

    /// Gives up all descriptors: something was renamed, deleted or recreated.
    pub(super) fn forget(&self) {
        *self.lock() = Open::default();
    }

    /// The existing directory `key` (empty, or ending in `/`) for reading: links are followed as the store is set.
    pub(super) fn dir(&self, key: &[u8]) -> Result<Dir> {
        self.find(key, self.follow_dirs)
    }

    /// The existing directory `key` for changing its contents: never outside the root.
    pub(super) fn dir_beneath(&self, key: &[u8]) -> Result<Dir> {
        self.find(key, false)
    }

    fn find(&self, key: &[u8], follow: bool) -> Result<Dir> {
        if key.is_empty() {
            return self.root();
        }
        // A descriptor that was reached through a link out of the root must not serve a write.
        if !follow && let Some(dir) = self.kept(key) {
            return Ok(dir);
        }
        let root = self.root()?;
        let links = if follow { LinksLead::Anywhere } else { LinksLead::Below };
        let dir: Dir = Arc::new(open_below(&root, key, dir_flags(), links)?);
        if !follow {
            self.keep(key, &dir);
        }
        Ok(dir)
    }

    /// The directory `key` for changing its contents, created with missing parents (root included).
    pub(super) fn make(&self, key: &[u8]) -> Result<Dir> {
        match self.dir_beneath(key) {
            Err(Errno::NOENT) => {}
            answer => return answer,
        }
        let mut dir = self.make_root()?;
        // Level by level, each through the descriptor of the one above: mkdirat with a longer path would follow links.
        for (at, _) in key.iter().enumerate().filter(|(_, b)| **b == b'/') {
            let level = &key[..=at];
            dir = match self.dir_beneath(level) {
                Err(Errno::NOENT) => {
                    let name = &level[parent(level).len()..at];
                    match rustix::fs::mkdirat(&dir, name, self.new_mode()) {
                        Ok(()) | Err(Errno::EXIST) => self.dir_beneath(level)?,
                        Err(errno) => return Err(errno),
                    }
                }
                answer => answer?,
            };
        }
        Ok(dir)
    }

    fn kept(&self, key: &[u8]) -> Option<Dir> {
        let last = &mut self.lock().last;
        let at = last.iter().position(|kept| kept.key == key)?;
        let found = last.remove(at)?;
        let dir = found.fresh()?;
        last.push_front(found);
        Some(dir)
    }

    fn keep(&self, key: &[u8], dir: &Dir) {
        let last = &mut self.lock().last;
        last.push_front(CachedDir::new(key, dir));
        last.truncate(KEPT);
    }

    /// Opens a directory for listing it.
    pub(super) fn open_to_list(&self, key: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if key.is_empty() {
            return self.open_root(flags);
        }
        let root = self.root()?;
        match self.follow_dirs {
            true => open_below(&root, key, flags, LinksLead::Anywhere),
            false => open_below(&root, key, flags | OFlags::NOFOLLOW, LinksLead::Below),
        }
    }

    /// Is there a link on the way to the directory `key`, even one that stays below the root?
    pub(super) fn is_behind_link(&self, key: &[u8]) -> Result<bool> {
        if key.is_empty() {
            return Ok(false);
        }
        match open_below(&*self.root()?, key, dir_flags(), LinksLead::Nowhere) {
            Ok(_) => Ok(false),
            Err(Errno::LOOP) => Ok(true),
            Err(errno) => Err(errno),
        }
    }
}

/// A directory that was opened only as a place, opened anew: to set its attributes, or to read its names from the beginning.
pub(super) fn reopen(dir: impl AsFd) -> Result<OwnedFd> {
    rustix::fs::openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// How a directory is opened for work in it: permission to search it is enough.
fn dir_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Where links below a directory may lead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinksLead {
    Anywhere,
    /// To an entry below the directory.
    Below,
    Nowhere,
}

/// A link on the way is followed only as `links` says.
fn open_below(dir: &OwnedFd, key: &[u8], flags: OFlags, links: LinksLead) -> Result<OwnedFd> {
    let path = key.strip_suffix(b"/").unwrap_or(key);
    if path.len() <= PATH_CHUNK {
        return open_short(dir.as_fd(), path, flags, links);
    }
    // Deeper than the kernel takes in one piece: down in steps.
    let cut = path[..PATH_CHUNK].iter().rposition(|b| *b == b'/').ok_or(Errno::NAMETOOLONG)?;
    let step = open_short(dir.as_fd(), &path[..cut], dir_flags(), links)?;
    open_below(&step, &path[cut + 1..], flags, links)
}

fn open_short(dir: impl AsFd, path: &[u8], flags: OFlags, links: LinksLead) -> Result<OwnedFd> {
    let resolve = match links {
        LinksLead::Anywhere => return rustix::fs::openat(dir, path, flags, Mode::empty()),
        LinksLead::Below => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        LinksLead::Nowhere => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    };
    // EAGAIN means that something was renamed while the kernel looked; a few tries are what openat2(2) advises.
    for _ in 0..8 {
        match rustix::fs::openat2(dir.as_fd(), path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => return open_by_steps(dir, path, flags),
            answer => return answer,
        }
    }
    Err(Errno::AGAIN)
}

/// For kernels and sandboxes without openat2: part by part, without following any link, and never upwards.
fn open_by_steps(dir: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let mut parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    if parts.iter().any(|part| matches!(*part, b".." | b"")) {
        return Err(Errno::XDEV);
    }
    let last = parts.pop().unwrap_or(path);
    let mut here: Option<OwnedFd> = None;
    for part in parts {
        let flags = dir_flags() | OFlags::NOFOLLOW;
        here = Some(match &here {
            None => rustix::fs::openat(dir.as_fd(), part, flags, Mode::empty())?,
            Some(fd) => rustix::fs::openat(fd, part, flags, Mode::empty())?,
        });
    }
    let flags = flags | OFlags::NOFOLLOW;
    match &here {
        None => rustix::fs::openat(dir.as_fd(), last, flags, Mode::empty()),
        Some(fd) => rustix::fs::openat(fd, last, flags, Mode::empty()),
    }
}

/// `mkdir -p`; `mode` is of the last.
fn make_path(path: &[u8], mode: Mode) -> Result<()> {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    match rustix::fs::mkdirat(CWD, trimmed, mode) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            let above = parent(trimmed);
            if above.is_empty() || above == trimmed {
                return Err(Errno::NOENT);
            }
            make_path(above, Mode::from_raw_mode(0o777))?;
            match rustix::fs::mkdirat(CWD, trimmed, mode) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(errno),
            }
        }
        Err(errno) => Err(errno),
    }
}

/// Removes the file or link at `name`, or the empty directory.
pub(super) fn unlink(dir: &Dir, name: &[u8], is_dir: bool) -> Result<()> {
    rustix::fs::unlinkat(dir, name, if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() })
}

/// A fact about the last directory: asked once for consecutive files there, since on a network it is a request.
pub(super) struct LastDirCache<T>(Option<(Dir, T)>);

impl<T> Default for LastDirCache<T> {
    fn default() -> Self {
        LastDirCache(None)
    }
}

impl<T: Copy> LastDirCache<T> {
    /// The known fact about this directory, or the answer of `ask`.
    pub fn get(&mut self, dir: &Dir, ask: impl FnOnce(&Dir) -> T) -> T {
        match &self.0 {
            Some((last, known)) if Dir::ptr_eq(last, dir) => *known,
            _ => {
                let found = ask(dir);
                self.0 = Some((dir.clone(), found));
                found
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_deeper_than_path_max_can_be_made_and_opened() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::new(temp.path().as_os_str().as_encoded_bytes().to_vec(), false);
        let key = "0123456789abcdef0123456789abcdef/".repeat(200);
        root.make(key.as_bytes()).unwrap();
        root.forget();
        root.dir(key.as_bytes()).unwrap();
        root.open_to_list(key.as_bytes()).unwrap();
    }

    #[test]
    fn links_may_not_lead_out_but_may_lead_inside() {
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let root = Root::new(temp.path().as_os_str().as_encoded_bytes().to_vec(), false);
        root.make(b"real/").unwrap();
        symlink("real", temp.path().join("inside")).unwrap();
        symlink(outside.path(), temp.path().join("out")).unwrap();
        symlink("../..", temp.path().join("real/up")).unwrap();
        root.make(b"inside/x/").unwrap();
        assert!(temp.path().join("real/x").is_dir());
        assert_eq!(root.make(b"out/x/").unwrap_err(), Errno::XDEV);
        assert_eq!(root.make(b"real/up/x/").unwrap_err(), Errno::XDEV);
        assert!(!outside.path().join("x").exists());
    }

    #[test]
    fn without_openat2_no_link_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::new(temp.path().as_os_str().as_encoded_bytes().to_vec(), false);
        root.make(b"real/sub/").unwrap();
        symlink("real", temp.path().join("inside")).unwrap();
        let fd = root.root().unwrap();
        open_by_steps(&fd, b"real/sub", dir_flags()).unwrap();
        assert!(open_by_steps(&fd, b"inside/sub", dir_flags()).is_err());
        for path in [&b"real/.."[..], b"../x", b"/etc", b".."] {
            assert_eq!(open_by_steps(&fd, path, dir_flags()).unwrap_err(), Errno::XDEV, "{}", path.escape_ascii());
        }
    }
}
