//! Listing a tree in bytewise key order. One directory at a time is sorted; those that come next are read ahead by the
//! pool, so a tree of many small directories is read in parallel while the consumer gets its keys in order. Memory is
//! bounded by the largest directory's names plus the read-ahead, not by the tree.

use super::{
    Local,
    dir::{Dir, Root, reopen},
    error::{fail, root_error},
    hidden::{is_temp, put_aside, sweep},
    meta, read,
};
use futures::{StreamExt, stream, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Listed, MissedRange, Result, key, key::after_prefix, links};
use haul_store::{LinkRules, Links, ListRequest, disk};
use rustix::{
    fs::{FileType, RawDir},
    io::Errno,
};
use std::{
    cmp::Ordering,
    collections::VecDeque,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::oneshot;

/// Entries in a batch: a message's cost is then nothing beside theirs.
const BATCH: usize = 1000;
/// Statx requests in one job; also the size up to which a directory is read in a single job.
const WINDOW: usize = 1000;
/// Directories read ahead below one directory …
const AHEAD: usize = 16;
/// … and in all, beyond which a directory reads ahead only two. With at most `WINDOW` entries of about 250 bytes in
/// each, that is 32 MB at worst.
const AHEAD_TOTAL: usize = 128;
/// A directory with more names isn't kept when read ahead; it is read again when its turn comes.
const AHEAD_NAMES: usize = 4096;
/// Bytes for one getdents call: the kernel fills at most this much, so fewer calls for big directories.
const GETDENTS: usize = 128 << 10;
/// How often at most a directory is read that changes while the kernel returns it in several pieces: a file renamed meanwhile may appear
/// under neither name, but only one renamed in each reading stays unseen. One listed under its old name is found to have vanished.
const READINGS: usize = 3;
/// The coarsest time that a file system notes of a change (FAT).
const COARSEST: Duration = Duration::from_secs(2);

/// See [`haul_store::Store::list`].
pub(super) fn list(local: &Local, request: ListRequest) -> BoxStream<'static, Listed> {
    let (root, links) = (local.root.clone(), local.links);
    let lister = Arc::new(Lister { root, links, request, device: OnceLock::new() });
    let (stack, batch, ready, state) = (Vec::new(), Vec::new(), VecDeque::new(), State::New);
    let walk = Walk { lister, stack, batch, ready, sent: 0, state };
    stream::unfold(walk, |mut walk| async move { walk.step().await.map(|listed| (listed, walk)) }).boxed()
}

/// Root and options of a listing; shared with the pool's jobs.
struct Lister {
    root: Arc<Root>,
    links: Links,
    request: ListRequest,
    /// The root's device, where no other is to be listed; known before anything is read.
    device: OnceLock<(u32, u32)>,
}

/// Suffix of a name in its key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    File,
    Special,
    Dir,
    Link,
}

impl Tail {
    fn kind(self) -> Kind {
        match self {
            Tail::File => Kind::File,
            Tail::Special => Kind::Special,
            Tail::Dir => Kind::Dir,
            Tail::Link => Kind::Symlink,
        }
    }

    fn bytes(self) -> &'static [u8] {
        key::ending(self.kind())
    }
}

/// A directory's names in key order, in one piece of memory.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

struct Item {
    at: u32,
    len: u16,
    tail: Tail,
    /// It may be a link, whatever it is shown as.
    link: bool,
    /// Nothing has the name: what had it was put aside, see [`put_aside`].
    put_aside: bool,
}

impl Names {
    fn push(&mut self, name: &[u8], tail: Tail, (link, put_aside): (bool, bool)) -> rustix::io::Result<()> {
        // 4 GiB of names in one directory: more than any file system keeps in working order.
        let at = u32::try_from(self.bytes.len()).map_err(|_| Errno::FBIG)?;
        let len = u16::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        self.bytes.extend_from_slice(name);
        self.items.push(Item { at, len, tail, link, put_aside });
        Ok(())
    }

    fn name(&self, item: &Item) -> &[u8] {
        let at = item.at as usize;
        &self.bytes[at..at + usize::from(item.len)]
    }

    fn key(&self, folder: &[u8], item: &Item) -> Key {
        Key::new([folder, self.name(item), item.tail.bytes()].concat())
    }

    /// In key order, each once.
    fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.sort_unstable_by(|a, b| order((self.name(a), a.tail.bytes()), (self.name(b), b.tail.bytes())));
        items.dedup_by(|a, b| a.tail == b.tail && self.name(a) == self.name(b));
        self.items = items;
    }
}

/// Order of two names by the keys that they make, each with what follows it there.
fn order((a, a_ending): (&[u8], &[u8]), (b, b_ending): (&[u8], &[u8])) -> Ordering {
    let common = a.len().min(b.len());
    a[..common].cmp(&b[..common]).then_with(|| {
        let rest_a = a[common..].iter().chain(a_ending);
        let rest_b = b[common..].iter().chain(b_ending);
        rest_a.cmp(rest_b)
    })
}

/// Result of statx on one name.
enum StatResult {
    Entry(Entry),
    /// It vanished after the directory was read.
    Vanished,
    Failed(Key, Error),
}

/// A directory that was read.
struct Folder {
    names: Arc<Names>,
    /// Device and inode, asked only when links are followed or devices count.
    id: (u32, u32, u64),
    /// All entries, for small ones; else the descriptor to ask through.
    rest: Rest,
}

enum Rest {
    Ready(Vec<StatResult>),
    Ask(Dir),
}

/// A folder; `None` when it has more names than were allowed.
type FolderContents = rustix::io::Result<Option<Folder>>;

impl Lister {
    fn follow(&self) -> bool {
        self.links == Links::Follow
    }

    /// Reaches the root, and remembers its device where that counts.
    fn reach_root(&self) -> rustix::io::Result<()> {
        let root = self.root.root()?;
        if self.request.one_device {
            let st = meta::facts(&root, meta::FACTS)?;
            self.device.get_or_init(|| (st.stx_dev_major, st.stx_dev_minor));
        }
        Ok(())
    }

    fn is_beyond(&self, major: u32, minor: u32) -> bool {
        self.device.get().is_some_and(|device| *device != (major, minor))
    }

    fn mask(&self) -> rustix::fs::StatxFlags {
        match (self.request.meta, self.request.posix) {
            (true, _) => meta::FACTS_AND_META,
            (false, true) => meta::FACTS_AND_POSIX,
            (false, false) => meta::FACTS,
        }
    }

    /// Reads the directory `key`; runs on the pool.
    fn read(&self, key: &[u8], most: usize) -> FolderContents {
        let fd = self.root.open_to_list(key)?;
        let id = match self.links.follows_dirs() || self.request.one_device {
            true => meta::facts(&fd, meta::FACTS).map(|st| meta::id(&st))?,
            false => (0, 0, 0),
        };
        let mut names = Names::default();
        for again in 0..READINGS {
            let begun = jiff::Timestamp::now();
            // A new descriptor: some file systems freeze a descriptor's view when it is opened.
            let anew = if again == 0 { None } else { Some(reopen(&fd)?) };
            let read = self.read_names((key, anew.as_ref().unwrap_or(&fd)), most, &mut names)?;
            let Some(pieces) = read else { return Ok(None) };
            names.sort();
            if pieces < 2 || !changed_since(&fd, begun)? {
                break;
            }
        }
        let rest = if names.items.len() <= WINDOW {
            Rest::Ready(self.ask(key, &fd, &names, 0..names.items.len())?)
        } else {
            self.ask(key, &fd, &names, 0..1)?;
            Rest::Ask(Arc::new(fd))
        };
        Ok(Some(Folder { names: Arc::new(names), id, rest }))
    }

    /// Adds a directory's names that are wanted; the number of pieces in which the kernel gave them, `None` where they become more than
    /// `most`.
    fn read_names(
        &self,
        (key, fd): (&[u8], &OwnedFd),
        most: usize,
        names: &mut Names,
    ) -> rustix::io::Result<Option<usize>> {
        let mut full = key.to_vec();
        let mut buffer = Vec::with_capacity(GETDENTS);
        let mut dir = RawDir::new(fd, buffer.spare_capacity_mut());
        let mut pieces = 0;
        loop {
            let new_piece = dir.is_buffer_empty();
            let Some(item) = dir.next() else { return Ok(Some(pieces)) };
            let item = item?;
            pieces += usize::from(new_piece);
            let mut name = item.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let mut aside = false;
            if is_temp(name) {
                let is_missing = |own: &&[u8]| meta::facts_at(fd, own, false, meta::FACTS) == Err(Errno::NOENT);
                // All that there is of a file: that it isn't there would be wrong.
                let Some(own) = put_aside(name).filter(is_missing) else {
                    if self.request.sweep {
                        sweep(fd, name);
                    }
                    continue;
                };
                (name, aside) = (own, true);
            }
            let tail = self.tail(fd, (key, name), item.file_type());
            full.truncate(key.len());
            full.extend_from_slice(name);
            full.extend_from_slice(tail.bytes());
            if !self.wanted(&full) {
                continue;
            }
            if names.items.len() == most {
                return Ok(None);
            }
            let link = !matches!(item.file_type(), FileType::RegularFile | FileType::Directory);
            names.push(name, tail, (link, aside))?;
        }
    }

    /// Suffix in the key of a name in `folder`.
    fn tail(&self, fd: &impl AsFd, (folder, name): (&[u8], &[u8]), listed: FileType) -> Tail {
        let link = listed == FileType::Symlink;
        let followed = link && (self.follow() || self.leads_to_dir(fd, name) || self.leads_out(fd, (folder, name)));
        match listed {
            FileType::RegularFile => Tail::File,
            FileType::Directory => Tail::Dir,
            FileType::Symlink if !followed && self.links.keeps() => Tail::Link,
            FileType::Symlink if !followed => Tail::Special,
            FileType::Symlink | FileType::Unknown => match meta::facts_at(fd, name, followed, meta::FACTS) {
                Ok(st) => match meta::file_type(&st) {
                    FileType::Unknown => Tail::Special,
                    FileType::Symlink if followed => Tail::Special,
                    known => self.tail(fd, (folder, name), known),
                },
                // Dangling or vanished: a second look in its turn shows which.
                Err(_) => Tail::File,
            },
            _ => Tail::Special,
        }
    }

    /// True for a link that counts as the directory it leads to.
    fn leads_to_dir(&self, fd: &impl AsFd, name: &[u8]) -> bool {
        let dirs = matches!(self.links, Links::By(LinkRules { follow_dirs: true, .. }));
        dirs && meta::facts_at(fd, name, true, meta::FACTS).is_ok_and(|st| meta::file_type(&st) == FileType::Directory)
    }

    /// True for a link that is followed because its target may be outside of the tree.
    fn leads_out(&self, fd: &impl AsFd, (folder, name): (&[u8], &[u8])) -> bool {
        let Links::By(LinkRules { follow_out: Some(above), .. }) = self.links else { return false };
        let depth = above + folder.iter().filter(|b| **b == b'/').count();
        read::target(fd, name).is_ok_and(|target| links::leads_out(&target, depth))
    }

    /// Is an entry with this tail examined through a link?
    fn follows(&self, fd: &impl AsFd, (folder, name): (&[u8], &[u8]), tail: Tail) -> bool {
        match tail {
            Tail::Dir => self.links.follows_dirs(),
            Tail::File => self.links.follows_files(),
            Tail::Special => self.follow() || self.leads_out(fd, (folder, name)),
            Tail::Link => false,
        }
    }

    /// Whether the request asks for `key` or, for a directory, for something in it.
    fn wanted(&self, key: &[u8]) -> bool {
        let after = self.request.after.as_ref().map(Key::as_bytes).unwrap_or_default();
        let begins = key.starts_with(&self.request.prefix);
        begins && (key > after || self.request.recursive && key.ends_with(b"/") && after.starts_with(key))
    }

    fn after(&self, key: &Key) -> bool {
        self.request.after.as_ref().is_none_or(|after| key > after)
    }

    /// Asks about some of a directory's names. A directory that may be read and not searched fails as a whole.
    fn ask(
        &self,
        folder: &[u8],
        fd: &impl AsFd,
        names: &Names,
        range: Range<usize>,
    ) -> rustix::io::Result<Vec<StatResult>> {
        let mut seen = Vec::with_capacity(range.len());
        for item in &names.items[range] {
            let (name, key) = (names.name(item), names.key(folder, item));
            let follow = self.follows(fd, (folder, name), item.tail);
            seen.push(match meta::facts_at(fd, name, follow, self.mask()) {
                Ok(st) => {
                    let mut seen = self.seen(fd, name, key, item.tail, &st);
                    if follow
                        && item.link
                        && let StatResult::Entry(entry) = &mut seen
                    {
                        entry.changed = meta::changed_behind(fd, name, entry.changed);
                    }
                    seen
                }
                // Else it is this name alone: what another user has mounted there, say.
                Err(Errno::ACCESS) if !follow && is_closed(fd) => return Err(Errno::ACCESS),
                Err(Errno::NOENT) if item.put_aside => {
                    let message = "a run that came by SFTP and was interrupted has put it aside, as .haul-….old beside it: \
                                   the next copy to this folder by SFTP gives it its name back";
                    let error = Error::new(ErrorKind::Changed, "list", message).with_key(&key);
                    StatResult::Failed(key, error)
                }
                Err(Errno::NOENT) if !follow => StatResult::Vanished,
                Err(errno) => match meta::facts_at(fd, name, false, meta::FACTS) {
                    Err(Errno::NOENT) => StatResult::Vanished,
                    _ if matches!(errno, Errno::NOENT | Errno::LOOP) => {
                        let message = match errno {
                            Errno::LOOP => "the symbolic link leads back to itself",
                            _ => "the symbolic link points to nothing",
                        };
                        let error = Error::new(ErrorKind::NotFound, "list", message).with_key(&key);
                        StatResult::Failed(key, error)
                    }
                    _ => StatResult::Failed(key.clone(), fail("list", &key, errno)),
                },
            });
        }
        Ok(seen)
    }

    fn seen(&self, fd: &impl AsFd, name: &[u8], key: Key, tail: Tail, st: &haul_store::statx::Statx) -> StatResult {
        let (kind, found) = (tail.kind(), meta::file_type(st));
        let as_read = match tail {
            Tail::File => found == FileType::RegularFile,
            Tail::Dir => found == FileType::Directory,
            Tail::Link => found == FileType::Symlink,
            Tail::Special => found != FileType::RegularFile && found != FileType::Directory,
        };
        if !as_read {
            let error = Error::new(ErrorKind::Changed, "list", "was replaced while it was listed").with_key(&key);
            return StatResult::Failed(key, error);
        }
        if kind == Kind::Dir && self.request.omit_mounts && self.is_beyond(st.stx_dev_major, st.stx_dev_minor) {
            return StatResult::Failed(key.clone(), mount(&key));
        }
        let mut entry = meta::entry(key, kind, st);
        if tail == Tail::Link {
            entry.size = match read::shown_size(self.links, fd, name, st) {
                Ok(size) => size,
                Err(errno) => return StatResult::Failed(entry.key.clone(), fail("list", &entry.key, errno)),
            };
        }
        if self.request.meta && kind != Kind::Special {
            entry.meta = Some(meta::meta_at(fd, name, st));
        }
        if self.request.posix {
            entry.posix = Some(Box::new(meta::posix(st)));
        }
        StatResult::Entry(entry)
    }
}

#[derive(PartialEq, Eq)]
enum State {
    New,
    Going,
    Done,
}

/// The consumer's side: gives entries in order, asks the pool for what comes next.
struct Walk {
    lister: Arc<Lister>,
    /// The directories on the way to the current key.
    stack: Vec<Frame>,
    batch: Vec<Entry>,
    ready: VecDeque<Listed>,
    sent: usize,
    state: State,
}

/// A directory being given.
struct Frame {
    key: Vec<u8>,
    names: Arc<Names>,
    id: (u32, u32, u64),
    fd: Option<Dir>,
    /// Number of the next name to give.
    next: usize,
    /// Facts of the names from `next` on.
    window: std::vec::IntoIter<StatResult>,
    /// Windows asked for and not yet looked at, in order, and the first name not yet asked about.
    windows: VecDeque<oneshot::Receiver<rustix::io::Result<Vec<StatResult>>>>,
    requested: usize,
    /// Directories among the names being read ahead, in order, and the first name not yet looked at for that.
    children: VecDeque<Child>,
    looked: usize,
}

enum Child {
    Pruned,
    Reading(oneshot::Receiver<FolderContents>),
}

impl Frame {
    fn new(key: Vec<u8>, folder: Folder) -> Self {
        let count = folder.names.items.len();
        let (window, fd, requested) = match folder.rest {
            Rest::Ready(seen) => (seen, None, count),
            Rest::Ask(fd) => (Vec::new(), Some(fd), 0),
        };
        Frame {
            key,
            names: folder.names,
            id: folder.id,
            fd,
            next: 0,
            window: window.into_iter(),
            windows: VecDeque::new(),
            requested,
            children: VecDeque::new(),
            looked: 0,
        }
    }

    /// The next name's number and facts; an error ends this directory.
    async fn next(&mut self, lister: &Arc<Lister>) -> Option<Result<(usize, StatResult), Errno>> {
        loop {
            if let Some(seen) = self.window.next() {
                self.next += 1;
                return Some(Ok((self.next - 1, seen)));
            }
            if self.next >= self.names.items.len() {
                return None;
            }
            self.ask_ahead(lister);
            self.window = match self.windows.pop_front()?.await {
                Ok(Ok(seen)) => seen.into_iter(),
                Ok(Err(errno)) => return Some(Err(errno)),
                Err(_) => return Some(Err(Errno::IO)),
            };
        }
    }

    fn ask_ahead(&mut self, lister: &Arc<Lister>) {
        let Some(fd) = &self.fd else { return };
        while self.windows.len() < 2 * disk::names().threads() && self.requested < self.names.items.len() {
            let range = self.requested..(self.requested + WINDOW).min(self.names.items.len());
            self.requested = range.end;
            let (lister, fd, names, key) = (lister.clone(), fd.clone(), self.names.clone(), self.key.clone());
            self.windows.push_back(disk::names().submit(move || lister.ask(&key, &fd, &names, range)));
        }
    }

    fn look_ahead(&mut self, lister: &Arc<Lister>, most: usize) {
        while self.children.len() < most && self.looked < self.names.items.len() {
            let item = &self.names.items[self.looked];
            self.looked += 1;
            if item.tail != Tail::Dir {
                continue;
            }
            let key = self.names.key(&self.key, item);
            self.children.push_back(match lister.request.descends(key.as_bytes()) {
                true => Child::Reading(submit(lister, key, AHEAD_NAMES)),
                false => Child::Pruned,
            });
        }
    }
}

/// True if the directory may have changed since. Where a server's clock is behind this machine's, a change can stay unseen.
fn changed_since(dir: &OwnedFd, begun: jiff::Timestamp) -> rustix::io::Result<bool> {
    let changed = meta::changed(&meta::facts(dir, meta::FACTS)?);
    Ok(changed.0 >= begun.as_nanosecond() - COARSEST.as_nanos() as i128)
}

fn submit(lister: &Arc<Lister>, key: Key, most: usize) -> oneshot::Receiver<FolderContents> {
    let lister = lister.clone();
    disk::names().submit(move || lister.read(key.as_bytes(), most))
}

/// True for a directory that may be read but not searched: no entry of it can be examined.
fn is_closed(dir: &impl AsFd) -> bool {
    meta::facts_at(dir, b".", false, meta::FACTS).is_err_and(|errno| errno == Errno::ACCESS)
}

async fn read_whole(lister: &Arc<Lister>, key: &Key) -> rustix::io::Result<Folder> {
    match submit(lister, key.clone(), usize::MAX).await {
        Ok(Ok(Some(folder))) => Ok(folder),
        Ok(Err(errno)) => Err(errno),
        Ok(Ok(None)) | Err(_) => Err(Errno::IO),
    }
}

impl Walk {
    async fn step(&mut self) -> Option<Listed> {
        loop {
            if let Some(listed) = self.ready.pop_front() {
                return Some(listed);
            }
            match self.state {
                State::New => self.start().await,
                State::Going => self.advance().await,
                State::Done => return None,
            }
        }
    }

    async fn start(&mut self) {
        self.state = State::Going;
        let prefix = &self.lister.request.prefix;
        let base = Key::new(&prefix[..prefix.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1)]);
        let root = Key::new("");
        // The root is checked first even when only a part is listed: without a root there is no proof of anything.
        let lister = self.lister.clone();
        let reached = disk::names().submit(move || lister.reach_root()).await;
        if let Err(errno) = reached.unwrap_or(Err(Errno::IO)) {
            return self.fail_all(root_error("list", self.lister.root.path(), errno));
        }
        if super::error::check_key("list", &base).is_err() {
            // No such directory can exist here, so nothing is in it.
            return;
        }
        match read_whole(&self.lister, &base).await {
            Ok(folder) if self.is_beyond(&folder) => self.lose_mount(base.as_bytes()),
            Ok(folder) => self.stack.push(Frame::new(base.as_bytes().to_vec(), folder)),
            Err(errno) if base == root => self.fail_all(root_error("list", self.lister.root.path(), errno)),
            Err(Errno::NOENT | Errno::NOTDIR) => self.vanished(base),
            Err(errno) => self.lose(MissedRange::below(&base), fail("list", &base, errno)),
        }
    }

    fn fail_all(&mut self, error: Error) {
        self.ready.push_back(Listed::Failed { lost: MissedRange::from(Key::new("")), error });
        self.state = State::Done;
    }

    /// Delivers known entries up to the end of a batch, a directory, or a failure.
    async fn advance(&mut self) {
        let total: usize = self.stack.iter().map(|f| f.children.len()).sum();
        let Some(frame) = self.stack.last_mut() else {
            return self.finish();
        };
        if self.lister.request.recursive {
            // At least one, so that a directory always finds its own reading; the rest as far as memory allows.
            frame.look_ahead(&self.lister, if total < AHEAD_TOTAL { AHEAD } else { 2 });
        }
        let (number, seen) = match frame.next(&self.lister).await {
            None => {
                self.stack.pop();
                return;
            }
            Some(Err(errno)) => {
                let from = frame.names.items.get(frame.next).map(|item| frame.names.key(&frame.key, item));
                let folder = Key::new(&frame.key);
                let lost =
                    MissedRange { from: from.unwrap_or(folder.clone()), to: after_prefix(&frame.key).map(Key::new) };
                self.stack.pop();
                return self.lose(lost, fail("list", &folder, errno));
            }
            Some(Ok(found)) => found,
        };
        let item = &frame.names.items[number];
        let is_dir = item.tail == Tail::Dir;
        let vanished = matches!(seen, StatResult::Vanished).then(|| frame.names.key(&frame.key, item));
        let child = if is_dir && self.lister.request.recursive { frame.children.pop_front() } else { None };
        match (seen, child) {
            (StatResult::Vanished, _) => vanished.into_iter().for_each(|key| self.vanished(key)),
            // Nobody wants to know more of it.
            (StatResult::Entry(_) | StatResult::Failed(..), Some(Child::Pruned)) => {}
            (StatResult::Failed(key, error), _) if is_dir => self.lose(MissedRange::below(&key), error),
            (StatResult::Failed(key, error), _) => {
                let is_denied = error.kind() == ErrorKind::Denied;
                let dir = Key::new([key.path(), b"/"].concat());
                self.lose(MissedRange::only(&key), error);
                if is_denied {
                    // Not all file systems return kinds with names.
                    let hidden = Error::new(ErrorKind::Hidden, "list", "it may be a directory").with_key(&dir);
                    self.lose(MissedRange::below(&dir), hidden);
                }
            }
            (StatResult::Entry(entry), Some(Child::Reading(reading))) => self.enter(entry, reading).await,
            (StatResult::Entry(entry), None) if is_dir && !self.lister.request.descends(entry.key.as_bytes()) => {}
            (StatResult::Entry(entry), None) => self.give(entry),
        }
    }

    /// Lists a directory and continues in it.
    async fn enter(&mut self, entry: Entry, reading: oneshot::Receiver<FolderContents>) {
        let folder = match reading.await {
            Ok(Ok(Some(folder))) => Ok(folder),
            Ok(Ok(None)) => read_whole(&self.lister, &entry.key).await,
            Ok(Err(errno)) => Err(errno),
            Err(_) => Err(Errno::IO),
        };
        let folder = match folder {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return self.vanished(entry.key),
            Err(errno) => {
                // It is there all the same, but for what it may hold.
                let (folder, inside) = (entry.key.clone(), MissedRange::inside(&entry.key));
                let lost = if errno == Errno::ACCESS { inside } else { MissedRange::below(&folder) };
                if errno == Errno::ACCESS && self.lister.after(&folder) {
                    self.give(entry);
                }
                return self.lose(lost, fail("list", &folder, errno));
            }
        };
        if self.lister.links.follows_dirs() && self.stack.iter().any(|frame| frame.id == folder.id) {
            let error = Error::new(ErrorKind::Invalid, "list", "a symbolic link leads back to a directory above it");
            return self.lose(MissedRange::below(&entry.key), error.with_key(&entry.key));
        }
        let key = entry.key.as_bytes().to_vec();
        let beyond = self.is_beyond(&folder);
        if self.lister.after(&entry.key) {
            self.give(entry);
        }
        if beyond {
            return self.lose_mount(&key);
        }
        if self.state == State::Going {
            self.stack.push(Frame::new(key, folder));
        }
    }

    fn is_beyond(&self, folder: &Folder) -> bool {
        self.lister.is_beyond(folder.id.0, folder.id.1)
    }

    /// Reports that the contents of the directory `key` are on another file system.
    fn lose_mount(&mut self, key: &[u8]) {
        let key = Key::new(key);
        self.lose(MissedRange::inside(&key), mount(&key));
    }

    fn give(&mut self, entry: Entry) {
        if self.batch.capacity() == 0 {
            self.batch.reserve(BATCH);
        }
        self.batch.push(entry);
        self.sent += 1;
        if self.batch.len() == BATCH {
            self.flush();
        }
        if self.lister.request.limit.is_some_and(|limit| self.sent >= limit) {
            self.stop();
        }
    }

    fn vanished(&mut self, key: Key) {
        self.ready.push_back(Listed::Vanished(key));
    }

    fn lose(&mut self, lost: MissedRange, error: Error) {
        self.flush();
        self.ready.push_back(Listed::Failed { lost, error });
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.ready.push_back(Listed::Batch(std::mem::take(&mut self.batch)));
        }
    }

    fn finish(&mut self) {
        self.flush();
        self.ready.push_back(Listed::End);
        self.stop();
    }

    /// There may be more, so without an `End`.
    fn stop(&mut self) {
        self.flush();
        self.stack.clear();
        self.state = State::Done;
    }
}

/// Why nothing below the directory `key` is listed.
fn mount(key: &Key) -> Error {
    Error::new(ErrorKind::Hidden, "list", "a mount point: another file system begins here").with_key(key)
}
