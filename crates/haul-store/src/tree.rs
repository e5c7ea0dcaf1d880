//! Ordered listings of stores that have directories and list one of them at a time, in any order: WebDAV, index pages. A
//! directory is complete before any of it is listed; it is sorted, and those below it are requested ahead.

use crate::{ListRequest, task::Task};
use futures::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, MissedRange, Result, Retry, encoding::Encoding};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Entries of a batch.
const BATCH: usize = 1000;
/// Directories asked for ahead below one directory, unless the store says otherwise …
const AHEAD: usize = 16;
/// … and times as many in all, beyond which a directory asks ahead for one only.
const AHEAD_TOTAL: usize = 4;

/// A directory whose listing failed by what may pass is asked for so often …
const TRIES: u32 = 3;
/// … after this, and four times as long …
const PAUSE: Duration = Duration::from_millis(200);
/// … or as long as the server says, up to this …
const LONGEST: Duration = Duration::from_secs(30);
/// … until this many directories of a listing have failed for good: then the directories aren't the cause.
const HOPELESS: usize = 16;

/// The longest path that a directory can have, in bytes: four times that of Linux. Longer ones have directories in directories without an
/// end.
const PATH: usize = 16 << 10;

/// Says of a key whether it is asked for, or something below it.
pub type WantedKeys = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// A store that answers for one directory at a time.
pub trait Folders: Send + Sync + 'static {
    /// The entries directly in the directory `dir` (a key that ends in `/`, or the root's), all of those that are `wanted`; more do no
    /// harm. Keys are whole, those of directories end in `/`. Where [`Folders::has_dirs`] says no, the directory itself is among them
    /// if it is an object of its own: then it is listed too.
    ///
    /// Errors: `NotFound` or `DirNotFound` when it is missing.
    fn folder(&self, dir: Key, wanted: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>>;

    /// False where directories aren't things of their own: then a recursive listing tells only what is in them.
    fn has_dirs(&self) -> bool {
        true
    }

    /// How many directories below one directory are asked for at once; more where they share requests.
    fn ahead(&self) -> usize {
        AHEAD
    }
}

/// One name of a directory.
#[derive(Debug)]
pub enum FoundName {
    /// Its facts.
    Entry(Entry),
    /// It is there, and this is why no more is known.
    Failed(Key, Error),
    /// It was there, see [`Listed::Vanished`].
    Vanished(Key),
}

impl FoundName {
    /// Its key.
    pub fn key(&self) -> &Key {
        match self {
            FoundName::Entry(entry) => &entry.key,
            FoundName::Failed(key, _) | FoundName::Vanished(key) => key,
        }
    }
}

/// See [`crate::Store::list`].
pub fn list(folders: Arc<dyn Folders>, request: ListRequest) -> BoxStream<'static, Listed> {
    let walk = Walk {
        wanted: wanted(&request),
        folders,
        request,
        stack: Vec::new(),
        opening: None,
        batch: Vec::new(),
        ready: VecDeque::new(),
        emitted: 0,
        failed: Arc::default(),
        state: State::New,
    };
    stream::unfold(walk, |mut walk| async move { walk.step().await.map(|listed| (listed, walk)) }).boxed()
}

fn wanted(request: &ListRequest) -> WantedKeys {
    let (prefix, after, recursive) = (request.prefix.clone(), request.after.clone(), request.recursive);
    Arc::new(move |key| {
        let after = after.as_ref().map(Key::as_bytes).unwrap_or_default();
        key.starts_with(&prefix) && (key > after || recursive && key.ends_with(b"/") && after.starts_with(key))
    })
}

#[derive(PartialEq, Eq)]
enum State {
    New,
    Going,
    Done,
}

struct Walk {
    folders: Arc<dyn Folders>,
    wanted: WantedKeys,
    request: ListRequest,
    /// The directories on the way to the current key.
    stack: Vec<Frame>,
    /// The directory whose turn it is.
    opening: Option<(Key, ListTask)>,
    batch: Vec<Entry>,
    ready: VecDeque<Listed>,
    emitted: usize,
    /// Directories that could not be listed, however often they were asked for.
    failed: Arc<AtomicUsize>,
    state: State,
}

type ListTask = Task<Result<Vec<FoundName>>>;

/// Entries of a directory still to be listed, in order.
struct Frame {
    entries: VecDeque<FoundName>,
    /// The answers to come for directories among the first `looked` of them.
    ahead: VecDeque<ListTask>,
    looked: usize,
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
        let prefix = &self.request.prefix;
        let base = Key::new(&prefix[..prefix.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1)]);
        if base.as_bytes().split(|b| *b == b'/').rev().skip(1).any(is_odd) {
            // No such directory can exist here, so nothing is in it; if there is a root.
            if let Err(error) = self.ask(Key::new("")).await {
                self.fail_all(error);
            }
            return;
        }
        match self.ask(base.clone()).await {
            Ok(entries) => self.enter(&base, entries),
            Err(error) if base.is_root() => self.fail_all(error),
            Err(error) if error.is_missing() => self.prove_missing(base, error).await,
            Err(error) => self.lose(MissedRange::below(&base), error),
        }
    }

    /// Nothing is at `base`, as the server says. That counts once a directory above says so too: a page that something else than
    /// the store sends would say the same.
    async fn prove_missing(&mut self, base: Key, error: Error) {
        let mut below = base.clone();
        while !below.is_root() {
            let above = below.parent();
            match self.ask(above.clone()).await {
                Ok(entries) if entries.iter().any(|found| *found.key() == below) => {
                    return self.lose(MissedRange::below(&base), error);
                }
                Ok(_) => return,
                Err(error) if above.is_root() => return self.fail_all(error),
                Err(error) if error.is_missing() => below = above,
                Err(error) => return self.lose(MissedRange::below(&base), error),
            }
        }
    }

    fn spawn(&self, dir: Key) -> ListTask {
        let (folders, wanted, failed) = (self.folders.clone(), self.wanted.clone(), self.failed.clone());
        Task::spawn(async move {
            if dir.as_bytes().len() > PATH {
                let message =
                    format!("its path is longer than {PATH} bytes: the server lists directories without an end");
                return Err(Error::new(ErrorKind::Invalid, "list", message).with_key(&dir));
            }
            let (mut pause, mut tried) = (PAUSE, 0);
            loop {
                let error = match folders.folder(dir.clone(), wanted.clone()).await {
                    Ok(entries) => return complete(&dir, entries),
                    Err(error) => error,
                };
                let wait = match error.retry() {
                    Retry::Never => return Err(error),
                    Retry::Backoff => pause,
                    Retry::After(wait) => wait.min(LONGEST),
                };
                tried += 1;
                if tried == TRIES || failed.load(Ordering::Relaxed) >= HOPELESS {
                    failed.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
                tracing::debug!(%dir, %error, "listing it again");
                tokio::time::sleep(wait).await;
                pause *= 4;
            }
        })
    }

    async fn ask(&self, dir: Key) -> Result<Vec<FoundName>> {
        // Whether a directory is there is asked of its parent, whatever of it is wanted.
        let wanted: WantedKeys =
            if self.is_above(&dir) { Arc::new(|key| key.ends_with(b"/")) } else { self.wanted.clone() };
        let listed = Task::spawn(self.folders.folder(dir.clone(), wanted)).await?;
        complete(&dir, listed)
    }

    fn is_above(&self, dir: &Key) -> bool {
        let base = self.request.prefix.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        dir.as_bytes().len() < base
    }

    fn fail_all(&mut self, error: Error) {
        let error = match error.is_missing() {
            true => Error::new(ErrorKind::DirNotFound, "list", error.message()).with_retry(error.retry()),
            false => error,
        };
        self.ready.push_back(Listed::Failed { lost: MissedRange::from(Key::new("")), error });
        self.state = State::Done;
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

    fn enter(&mut self, dir: &Key, mut entries: Vec<FoundName>) {
        // Names in it that can't be read: what they are called counts as unknown, so nothing is missing there.
        let unread = |found: &FoundName| {
            let of_dir = |error: &Error| matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid);
            matches!(found, FoundName::Failed(key, error) if key == dir && of_dir(error))
        };
        if let Some(FoundName::Failed(_, error)) = entries.iter().position(unread).map(|at| entries.swap_remove(at)) {
            self.lose(MissedRange::below(dir), error);
        }
        entries.retain(|found| {
            let key = found.key();
            key != dir && (self.wanted)(key.as_bytes()) && (!key.is_dir() || self.request.descends(key.as_bytes()))
        });
        entries.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        self.stack.push(Frame { entries: entries.into(), ahead: VecDeque::new(), looked: 0 });
    }

    /// Tells what is known up to the end of a batch, a directory, or a failure.
    async fn advance(&mut self) {
        if let Some((dir, asked)) = self.opening.take() {
            if !self.batch.is_empty() {
                // Deliver known entries before waiting for an answer.
                self.flush();
                self.opening = Some((dir, asked));
                return;
            }
            match asked.await {
                Ok(mut entries) => {
                    let is_own = |found: &FoundName| matches!(found, FoundName::Entry(entry) if entry.key == dir);
                    let own = entries.iter().position(|found| is_own(found) && !self.folders.has_dirs());
                    if let Some(FoundName::Entry(own)) = own.map(|at| entries.swap_remove(at)) {
                        self.tell(own);
                    }
                    self.enter(&dir, entries);
                }
                // It was listed: that the server now says it is missing proves nothing of what was in it.
                Err(error) => self.lose(MissedRange::below(&dir), error),
            }
            return;
        }
        let entry = match self.next() {
            None => return,
            Some(FoundName::Entry(entry)) if self.request.recursive && entry.is_dir() && !self.folders.has_dirs() => {
                return;
            }
            Some(FoundName::Entry(entry)) => entry,
            Some(FoundName::Vanished(key)) => {
                self.flush();
                self.ready.push_back(Listed::Vanished(key));
                return;
            }
            Some(FoundName::Failed(key, error)) => {
                let to = (!key.is_dir()).then(|| key.with_suffix([0])).or_else(|| key.after_prefix());
                return self.lose(MissedRange { from: key, to }, error);
            }
        };
        self.tell(entry);
    }

    fn tell(&mut self, entry: Entry) {
        if self.request.after.as_ref().is_some_and(|after| entry.key <= *after) {
            return;
        }
        if self.request.limit.is_some_and(|limit| self.emitted >= limit.max(1)) {
            self.flush();
            self.state = State::Done;
            return;
        }
        self.emitted += 1;
        self.batch.push(entry);
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    /// The next entry; what is in it, if it is a directory, is then being asked for.
    fn next(&mut self) -> Option<FoundName> {
        let under_way: usize = self.stack.iter().map(|frame| frame.ahead.len()).sum();
        let Some(mut frame) = self.stack.pop() else {
            self.flush();
            self.ready.push_back(Listed::End);
            self.state = State::Done;
            return None;
        };
        let is_open = |found: &FoundName| matches!(found, FoundName::Entry(entry) if entry.is_dir());
        if self.request.recursive {
            let ahead = self.folders.ahead();
            let most = if under_way < AHEAD_TOTAL * ahead { ahead } else { 1 };
            while frame.ahead.len() < most && frame.looked < frame.entries.len() {
                let found = &frame.entries[frame.looked];
                frame.looked += 1;
                if is_open(found) {
                    frame.ahead.push_back(self.spawn(found.key().clone()));
                }
            }
        }
        // The last one leaves its directory.
        let found = frame.entries.pop_front()?;
        frame.looked = frame.looked.saturating_sub(1);
        if self.request.recursive && is_open(&found) {
            let listing = frame.ahead.pop_front().unwrap_or_else(|| self.spawn(found.key().clone()));
            self.opening = Some((found.key().clone(), listing));
        }
        self.stack.push(frame);
        Some(found)
    }
}

/// Errors: `Invalid` when an entry isn't directly in the directory, or two are of one name.
fn complete(dir: &Key, entries: Vec<FoundName>) -> Result<Vec<FoundName>> {
    let mut seen = BTreeSet::new();
    for found in entries.iter().filter(|found| dir.is_root() || found.key() != dir) {
        let key = found.key();
        let name = key.path().strip_prefix(dir.as_bytes()).unwrap_or_default();
        let wrong = match found {
            // A bucket may have names that can't be told, but that is all that is wrong with them.
            FoundName::Failed(..) if name.is_empty() && (key.is_dir() || key.is_root()) => continue,
            _ if is_odd(name) || name.contains(&b'/') => "the server listed a name that can't be in this directory",
            _ if !seen.insert(key) => "the server listed one name twice",
            _ => continue,
        };
        return Err(Error::new(ErrorKind::Invalid, "list", wrong).with_key(key));
    }
    Ok(entries)
}

/// The key of the name `leaf`, which may end in `/`, in the directory `dir`.
///
/// Errors: `Invalid`, with the key, for a name that isn't what the encoding makes of the key: under its key another name is asked for.
pub fn decoded(encoding: Encoding, dir: &Key, leaf: &[u8]) -> Result<Key, (Key, Error)> {
    let key = Key::new([dir.as_bytes(), &encoding.decode_path(leaf)].concat());
    if encoding.encode_path(&key.as_bytes()[dir.as_bytes().len()..]).as_deref() == Ok(leaf) {
        return Ok(key);
    }
    let message = format!(
        "it was not written with this encoding: its name there is {:?}, and without an encoding it can be read",
        String::from_utf8_lossy(leaf)
    );
    let error = Error::new(ErrorKind::Invalid, "list", message).with_key(&key);
    Err((key, error))
}

/// Names that no file or directory can have.
pub fn is_odd(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..") || name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, sync::Mutex};

    /// Directories and what is in them; what isn't there is missing, but for those that answer with an error of this kind.
    #[derive(Default)]
    struct Made {
        folders: BTreeMap<&'static str, Vec<&'static str>>,
        broken: BTreeMap<&'static str, ErrorKind>,
        /// Those that answer so often with an error that may pass.
        busy: Mutex<BTreeMap<&'static str, u32>>,
        /// Directories aren't things of their own.
        flat: bool,
    }

    impl Folders for Made {
        fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
            let name = dir.to_string();
            let fail = |kind| Error::new(kind, "list", "no").with_key(&dir);
            if let Some(left) = self.busy.lock().unwrap().get_mut(&*name).filter(|left| **left > 0) {
                *left -= 1;
                let error = fail(ErrorKind::Busy).with_retry(Retry::Backoff);
                return Box::pin(async { Err(error) });
            }
            let answer = match (self.broken.get(&*name), self.folders.get(&*name)) {
                (Some(kind), _) => Err(fail(*kind)),
                (None, None) => Err(fail(ErrorKind::NotFound)),
                (None, Some(names)) => Ok(names
                    .iter()
                    .map(|child| match child.strip_prefix('!') {
                        Some(bad) => FoundName::Failed(Key::new(format!("{name}{bad}")), fail(ErrorKind::Denied)),
                        None => FoundName::Entry(Entry::with_bytes(Key::new(format!("{name}{child}")), 1)),
                    })
                    .map(|found| match found {
                        FoundName::Entry(entry) if entry.key.is_dir() => FoundName::Entry(Entry::dir(entry.key)),
                        FoundName::Entry(entry) if entry.key.as_bytes().ends_with(b"gone") => {
                            FoundName::Vanished(entry.key)
                        }
                        other => other,
                    })
                    .collect()),
            };
            Box::pin(async { answer })
        }

        fn has_dirs(&self) -> bool {
            !self.flat
        }
    }

    async fn listed_lines(made: Made, request: ListRequest) -> Vec<String> {
        let mut out = Vec::new();
        let mut listing = list(Arc::new(made), request);
        while let Some(listed) = listing.next().await {
            match listed {
                Listed::Batch(batch) => out.extend(batch.iter().map(|entry| entry.key.to_string())),
                Listed::Failed { lost, error } => {
                    out.push(format!("lost {}..{:?}: {:?}", lost.from, lost.to.map(|k| k.to_string()), error.kind()));
                }
                Listed::Vanished(key) => out.push(format!("vanished {key}")),
                Listed::End => out.push("end".into()),
            }
        }
        out
    }

    fn made(folders: &[(&'static str, &[&'static str])]) -> Made {
        Made { folders: folders.iter().map(|(name, names)| (*name, names.to_vec())).collect(), ..Made::default() }
    }

    #[tokio::test]
    async fn a_directory_whose_listing_fails_for_a_moment_is_asked_for_again() {
        let tree = |busy: &[(&'static str, u32)]| Made {
            busy: Mutex::new(busy.iter().copied().collect()),
            ..made(&[("", &["a/", "b/"]), ("a/", &["1"]), ("b/", &["2"])])
        };
        let whole = ["a/", "a/1", "b/", "b/2", "end"];
        assert_eq!(listed_lines(tree(&[("a/", 2), ("b/", 1)]), ListRequest::all()).await, whole);
        let lost = ["a/", "lost a/..Some(\"a0\"): Busy", "b/", "b/2", "end"];
        assert_eq!(listed_lines(tree(&[("a/", u32::MAX)]), ListRequest::all()).await, lost);
    }

    #[tokio::test]
    async fn what_vanished_is_told_in_its_place() {
        let tree = made(&[("", &["z", "a/", "b-gone"]), ("a/", &["gone", "x"])]);
        assert_eq!(
            listed_lines(tree, ListRequest::all()).await,
            ["a/", "vanished a/gone", "a/x", "vanished b-gone", "z", "end"]
        );
    }

    #[tokio::test]
    async fn a_tree_in_any_order_is_told_in_order() {
        let tree = || made(&[("", &["z", "a/", "a-b", "a0"]), ("a/", &["y", "b/", "!x"]), ("a/b/", &["2", "1"])]);
        let whole =
            ["a-b", "a/", "a/b/", "a/b/1", "a/b/2", "lost a/x..Some(\"a/x\\0\"): Denied", "a/y", "a0", "z", "end"];
        assert_eq!(listed_lines(tree(), ListRequest::all()).await, whole);
        let after = ListRequest { after: Some(Key::new("a/b/1")), ..ListRequest::all() };
        assert_eq!(listed_lines(tree(), after).await, whole[4..]);
        let level = listed_lines(tree(), ListRequest::dir("")).await;
        assert_eq!(level, ["a-b", "a/", "a0", "z", "end"]);
        assert_eq!(listed_lines(tree(), ListRequest { limit: Some(2), ..ListRequest::all() }).await, whole[..2]);
    }

    #[tokio::test]
    async fn what_is_missing_is_believed_of_a_directory_above_alone() {
        let request = |prefix: &str| ListRequest { prefix: prefix.into(), ..ListRequest::all() };
        let tree = |names| made(&[("", names)]);
        assert_eq!(listed_lines(tree(&["b"]), request("a/x/")).await, ["end"]);
        assert_eq!(
            listed_lines(tree(&["a/"]), request("a/")).await,
            ["lost a/..Some(\"a0\"): NotFound"; 1]
                .map(String::from)
                .into_iter()
                .chain(["end".into()])
                .collect::<Vec<_>>()
        );
        assert_eq!(listed_lines(Made::default(), request("a/")).await, ["lost ..None: DirNotFound"]);
        assert_eq!(listed_lines(Made::default(), ListRequest::all()).await, ["lost ..None: DirNotFound"]);
        // Listed above, and then said to be missing.
        assert_eq!(
            listed_lines(tree(&["a/", "b"]), ListRequest::all()).await,
            ["a/", "lost a/..Some(\"a0\"): NotFound", "b", "end"]
        );
    }

    /// Each directory holds one more.
    struct Endless;

    impl Folders for Endless {
        fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
            let below = Key::new(format!("{dir}{}/", "d".repeat(99)));
            Box::pin(async { Ok(vec![FoundName::Entry(Entry::dir(below))]) })
        }
    }

    #[tokio::test]
    async fn directories_in_directories_have_an_end() {
        let (mut emitted, mut failed) = (0, Vec::new());
        let mut listing = list(Arc::new(Endless), ListRequest::all());
        while let Some(listed) = listing.next().await {
            match listed {
                Listed::Batch(batch) => emitted += batch.len(),
                Listed::Failed { error, .. } => failed.push(error.message().to_owned()),
                Listed::Vanished(_) | Listed::End => {}
            }
        }
        assert_eq!(emitted, PATH / 100 + 1);
        let message = "its path is longer than 16384 bytes: the server lists directories without an end";
        assert_eq!(failed, [message]);
    }

    #[tokio::test]
    async fn a_marker_tells_its_directory_where_there_are_no_directories() {
        let tree = || Made {
            flat: true,
            ..made(&[("", &["d/", "e/", "z"]), ("d/", &["", "x/", "y"]), ("d/x/", &["1"]), ("e/", &["2"])])
        };
        assert_eq!(listed_lines(tree(), ListRequest::all()).await, ["d/", "d/x/1", "d/y", "e/2", "z", "end"]);
        let below = ListRequest { prefix: "d/".into(), ..ListRequest::all() };
        assert_eq!(listed_lines(tree(), below).await, ["d/x/1", "d/y", "end"]);
        let after = ListRequest { after: Some(Key::new("d/")), ..ListRequest::all() };
        assert_eq!(listed_lines(tree(), after).await, ["d/x/1", "d/y", "e/2", "z", "end"]);
        let few = ListRequest { limit: Some(2), ..ListRequest::all() };
        assert_eq!(listed_lines(tree(), few).await, ["d/", "d/x/1"]);
        assert_eq!(listed_lines(tree(), ListRequest::dir("d/")).await, ["d/x/", "d/y", "end"]);
    }

    #[tokio::test]
    async fn names_that_lead_elsewhere_are_refused() {
        for name in ["../x", "a/b", "..", "./", "", "x//"] {
            let listed = listed_lines(made(&[("", &["ok", name])]), ListRequest::all()).await;
            assert_eq!(listed, ["lost ..None: Invalid"], "{name:?}");
        }
        assert_eq!(listed_lines(made(&[("", &["ok", "ok"])]), ListRequest::all()).await, ["lost ..None: Invalid"]);
    }
}
