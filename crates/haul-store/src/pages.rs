//! Listings in order of services that have containers (buckets) and list one of them in key order, a page at a time: S3, Google Cloud
//! Storage, Azure. Pages are fetched ahead of the reader; whatever breaks is a lost range, never a short listing.

use crate::{
    ListRequest,
    task::Task,
    tree::{self, Folders, FoundName, WantedKeys},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use haul_core::{
    Entry, Error, ErrorKind, Key, Listed, MissedRange, Result, Retry,
    encoding::{Encoding, name_of},
    error::NO_KEYS,
    key::after_prefix,
};
use haul_net::{Fault, Pages, at};
use std::{
    collections::{BTreeMap, btree_map},
    hash::Hash,
    sync::Arc,
};
use tokio::sync::mpsc;

/// Pages that wait for the reader, beside the one being fetched.
const AHEAD: usize = 2;

/// A service that lists in pages.
pub trait Pager: Send + Sync + 'static {
    /// How the next page is asked for.
    type Next: Hash + Send + Sync + 'static;

    /// The root as a person writes it.
    fn locator(&self) -> &str;

    /// The root: its container, `None` where the containers are the top directories, and what all names below it begin with.
    fn root(&self) -> (Option<&str>, &[u8]);

    /// All containers, as directories in key order.
    fn containers(&self) -> BoxFuture<'_, Result<Vec<Entry>>>;

    /// One page. Names that come before those that are asked for do no harm, where they are in order.
    ///
    /// Errors: the page can't be had, or doesn't prove what it tells.
    fn page<'a>(
        self: &'a Arc<Self>,
        question: PageRequest<'a, Self::Next>,
    ) -> BoxFuture<'a, Result<PageResponse<Self::Next>>>;

    /// How keys are names, where they aren't names as they are. They come in another order then: the first page that is asked for is
    /// answered by [`PageResponse::ByDirectory`].
    fn encoding(&self) -> Option<Encoding> {
        None
    }

    /// Whether a root that is a directory is there though there is nothing in it: where directories aren't things of their own, it isn't.
    ///
    /// Errors: it is missing, see [`no_root`], or can't be asked for.
    fn empty_root(&self) -> BoxFuture<'_, Result<()>> {
        std::future::ready(Err(no_root(self.locator(), "list"))).boxed()
    }
}

/// Which page.
pub struct PageRequest<'a, N> {
    /// Where it is.
    pub scope: &'a Scope,
    /// State from the page before; `None` for the first page.
    pub next: Option<&'a N>,
    /// Entries that are still wanted, if not all. What a page holds beside (the directory that is listed) is not counted.
    pub most: Option<usize>,
    /// All below the prefix, not only up to the next slash.
    pub recursive: bool,
    /// Metadata are wanted.
    pub meta: bool,
    /// The request is for one directory that is held whole before any of it is listed: its names may come in any order.
    pub any_order: bool,
}

impl<N> PageRequest<'_, N> {
    /// The delimiter of the request.
    pub fn delimiter(&self) -> &'static str {
        if self.recursive { "" } else { "/" }
    }
}

/// Answer to a page request.
pub enum PageResponse<N> {
    /// Names and common prefixes (as directories), keyed by their names in the container, and how the next page is asked for; `None` on
    /// the last one. An object without content whose name ends in `/` is a directory, one with content a file.
    Page(Vec<Entry>, Option<N>),
    /// Keys come in another order than its names: what comes after the names that were told is listed directory by directory. Never the answer where
    /// any order will do.
    ByDirectory {
        /// Directories are things of their own there.
        has_dirs: bool,
    },
}

/// A part of the namespace that lies in one container.
pub struct Scope {
    /// The container.
    pub container: String,
    /// Prefix of the names to list.
    pub prefix: Vec<u8>,
    /// Only names after this one.
    pub after: Option<Vec<u8>>,
    /// Bytes that names lose at their front …
    pub cut: usize,
    /// … and what they get instead.
    pub front: Vec<u8>,
}

impl Scope {
    /// The key of a name.
    pub fn key_of(&self, name: &[u8]) -> Key {
        Key::new([&self.front, name.get(self.cut..).unwrap_or_default()].concat())
    }

    fn is_after(&self, name: &[u8]) -> bool {
        self.after.as_ref().is_none_or(|after| name > &after[..])
    }

    /// True for requested names: a listed directory has no entry of its own in its listing.
    fn asks_for(&self, name: &[u8]) -> bool {
        self.is_after(name) && (name != &self.prefix[..] || !self.prefix.ends_with(b"/")) && name.len() > self.cut
    }

    /// Names below the root are keys as they are.
    fn is_plain(&self) -> bool {
        self.cut == 0 && self.front.is_empty()
    }
}

/// The error of a root `locator` below which there is nothing, at a service that has no empty directories.
pub fn no_root(locator: &str, op: &'static str) -> Error {
    Error::new(ErrorKind::DirNotFound, op, format!("directory {locator} not found: {NO_KEYS}"))
}

/// True for that error: the service was asked, and has no such keys. A missing bucket is another error.
pub fn is_no_root(error: &Error) -> bool {
    error.kind() == ErrorKind::DirNotFound && error.message().ends_with(NO_KEYS)
}

/// True for an object with a directory's name that isn't a marker, since it has content. No other kind of entry can have such a name: it
/// is left out, like a device on a disk, and reported.
pub fn leaves_out(entry: &Entry) -> bool {
    let left_out = entry.key.is_dir() && !entry.is_dir();
    if left_out {
        tracing::warn!("{}: left out: an object with content whose name ends in a slash", entry.key);
    }
    left_out
}

/// The error of deleting a directory where such an object has its name.
pub fn no_marker(key: &Key) -> Error {
    let message = "an object with content has the directory's name: it stays";
    Error::new(ErrorKind::Exists, "delete", message).with_key(key)
}

/// Lists as [`crate::Store::list`] says.
pub fn list<P: Pager>(pager: Arc<P>, request: ListRequest) -> BoxStream<'static, Listed> {
    // The task begins with the first poll: only then is a runtime sure to be there.
    let begin = async move {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let task = Task::spawn(async move { Lister { pager, request, sender, emitted: 0, seen: 0 }.run().await });
        futures::stream::unfold((receiver, task), |(mut receiver, task)| async move {
            receiver.recv().await.map(|step| (step, (receiver, task)))
        })
    };
    futures::stream::once(begin).flatten().boxed()
}

struct Lister<P> {
    pager: Arc<P>,
    request: ListRequest,
    sender: mpsc::Sender<Listed>,
    /// Entries that were given out.
    emitted: usize,
    /// Those, and directories that are listed themselves, which aren't given out.
    seen: usize,
}

/// Whether the listing came to its end.
#[derive(PartialEq)]
enum ListingEnd {
    End,
    /// The limit, or nobody listens any more: there may be more.
    Limit,
}

/// Errors: why no more can be listed, and from which key on.
type Went = Result<ListingEnd, (Key, Error)>;

impl<P: Pager> Lister<P> {
    async fn run(mut self) {
        let (container, root) = self.pager.root();
        let (container, root) = (container.map(str::to_owned), root.to_vec());
        let result = match container {
            Some(container) => {
                let prefix = [&root[..], &self.request.prefix].concat();
                let after = self.request.after.as_ref().map(|key| [&root[..], key.as_bytes()].concat());
                self.scope(Scope { container, prefix, after, cut: root.len(), front: Vec::new() }).await
            }
            None => self.all().await,
        };
        let last = match result {
            Ok(ListingEnd::End) => Listed::End,
            Ok(ListingEnd::Limit) => return,
            Err((from, error)) => {
                let to = after_prefix(&self.request.prefix).map(Key::new);
                Listed::Failed { lost: MissedRange { from, to }, error }
            }
        };
        // No reader, no report.
        let _ = self.sender.send(last).await;
    }

    /// All containers: they are the top directories.
    async fn all(&mut self) -> Went {
        let (prefix, after) = (self.request.prefix.clone(), self.request.after.clone());
        if let Some(at) = prefix.iter().position(|b| *b == b'/') {
            let name = String::from_utf8_lossy(&prefix[..at]).into_owned();
            return self.inside(name, prefix[at + 1..].to_vec(), after.as_ref()).await;
        }
        let mut found = self.pager.containers().await.map_err(|error| (Key::new(&prefix), error))?;
        found.retain(|entry| entry.key.as_bytes().starts_with(&prefix));
        for entry in found {
            // All in it is before `after`.
            if after.as_ref().is_some_and(|a| entry.key.after_prefix().is_some_and(|end| end <= *a)) {
                continue;
            }
            let name = String::from_utf8_lossy(entry.key.name()).into_owned();
            if after.as_ref().is_none_or(|a| entry.key > *a) {
                self.seen += 1;
                if !self.give(vec![entry]).await {
                    return Ok(ListingEnd::Limit);
                }
            }
            if self.request.recursive && self.inside(name, Vec::new(), after.as_ref()).await? == ListingEnd::Limit {
                return Ok(ListingEnd::Limit);
            }
        }
        Ok(ListingEnd::End)
    }

    async fn inside(&mut self, container: String, prefix: Vec<u8>, after: Option<&Key>) -> Went {
        let front = [container.as_bytes(), b"/"].concat();
        let after = after.and_then(|a| a.as_bytes().strip_prefix(&front[..])).map(<[u8]>::to_vec);
        self.scope(Scope { container, prefix, after, cut: 0, front }).await
    }

    async fn scope(&mut self, scope: Scope) -> Went {
        let (mut next, mut last, mut pages) = (None::<P::Next>, None::<Vec<u8>>, Pages::default());
        loop {
            let lost = || match &last {
                // The first key that may be missing comes right after the last one seen.
                Some(last) => scope.key_of(last).with_suffix([0]),
                None => scope.key_of(scope.after.as_deref().unwrap_or_default().max(&scope.prefix[..])),
            };
            let question = PageRequest {
                scope: &scope,
                next: next.as_ref(),
                most: self.request.limit.map(|limit| limit.saturating_sub(self.emitted)),
                recursive: self.request.recursive,
                meta: self.request.meta,
                any_order: false,
            };
            let (entries, more) = match self.pager.page(question).await.map_err(|error| (lost(), error))? {
                PageResponse::Page(entries, more) => (entries, more),
                PageResponse::ByDirectory { has_dirs } => return self.by_directory(&scope, last, has_dirs).await,
            };
            if entries.is_empty() && more.is_none() && last.is_none() && self.is_of_the_root() {
                return self.pager.empty_root().await.map(|()| ListingEnd::End).map_err(|error| (lost(), error));
            }
            if let Some(fault) = disorder(&entries, last.as_deref(), &scope.prefix) {
                return Err((lost(), fault.error("list")));
            }
            let grows = !entries.is_empty();
            last = entries.last().map(|entry| entry.key.as_bytes().to_vec()).or(last);
            self.seen += entries.iter().filter(|entry| scope.is_after(entry.key.as_bytes())).count();
            let is_wanted = |entry: &Entry| scope.is_after(entry.key.as_bytes()) && !leaves_out(entry);
            let entries = entries.into_iter().filter(|entry| is_wanted(entry) && scope.asks_for(entry.key.as_bytes()));
            let entries = match scope.is_plain() {
                true => entries.collect(),
                false => entries.map(|entry| Entry { key: scope.key_of(entry.key.as_bytes()), ..entry }).collect(),
            };
            let goes_on = self.give(entries).await;
            match more {
                None => return Ok(ListingEnd::End),
                Some(_) if !goes_on => return Ok(ListingEnd::Limit),
                Some(more) => {
                    if grows {
                        pages.passed();
                    }
                    let from = || scope.key_of(last.as_deref().unwrap_or(&scope.prefix));
                    pages.next(&more).map_err(|fault| (from(), fault.error("list")))?;
                    next = Some(more);
                }
            }
        }
    }

    /// Lists the keys after `last`, directory by directory.
    async fn by_directory(&mut self, scope: &Scope, last: Option<Vec<u8>>, has_dirs: bool) -> Went {
        let below_cut = scope.prefix.get(scope.cut..).unwrap_or_default();
        if self.pager.encoding().is_some() && below_cut.split(|b| *b == b'/').rev().skip(1).any(<[u8]>::is_empty) {
            // There may be such names, but no keys for them.
            let message = "names with an empty part can only be listed without an encoding";
            let key = scope.key_of(&scope.prefix);
            return Err((key.clone(), Error::new(ErrorKind::Invalid, "list", message).with_key(&key)));
        }
        let directories = Directories(Arc::new(Container {
            pager: self.pager.clone(),
            name: scope.container.clone(),
            root: scope.prefix[..scope.cut].to_vec(),
            front: scope.front.clone(),
            meta: self.request.meta,
            has_dirs,
        }));
        let after = last.or_else(|| scope.after.clone());
        let request = ListRequest {
            prefix: scope.key_of(&scope.prefix).as_bytes().to_vec(),
            after: after.map(|after| scope.key_of(&after)),
            limit: self.request.limit.map(|limit| limit.saturating_sub(self.emitted)),
            ..self.request.clone()
        };
        let mut listing = tree::list(Arc::new(directories), request);
        while let Some(listed) = listing.next().await {
            match listed {
                Listed::Batch(entries) => {
                    self.seen += entries.len();
                    if !self.give(entries).await {
                        return Ok(ListingEnd::Limit);
                    }
                }
                Listed::End => return Ok(ListingEnd::End),
                failed => {
                    if self.sender.send(failed).await.is_err() {
                        return Ok(ListingEnd::Limit);
                    }
                }
            }
        }
        Ok(ListingEnd::Limit)
    }

    /// Delivers entries to the reader; false when it needs no more.
    async fn give(&mut self, entries: Vec<Entry>) -> bool {
        self.emitted += entries.len();
        if !entries.is_empty() && self.sender.send(Listed::Batch(entries)).await.is_err() {
            return false;
        }
        // A page whose first entry isn't given out still counts as a whole one.
        self.request.limit.is_none_or(|limit| self.emitted == 0 || self.seen < limit)
    }

    /// True when everything below the root is requested, and the root is a directory.
    fn is_of_the_root(&self) -> bool {
        self.request.prefix.is_empty() && self.request.after.is_none() && !self.pager.root().1.is_empty()
    }
}

/// The directories of a container, each asked for whole.
struct Directories<P>(Arc<Container<P>>);

/// Where they are.
struct Container<P> {
    pager: Arc<P>,
    name: String,
    /// Prefix that names have and keys don't …
    root: Vec<u8>,
    /// … and what keys have.
    front: Vec<u8>,
    meta: bool,
    has_dirs: bool,
}

impl<P: Pager> Container<P> {
    /// All that is directly in a directory.
    async fn read(&self, dir: Key) -> Result<Vec<FoundName>> {
        let Some(below) = dir.as_bytes().strip_prefix(&self.front[..]) else {
            // Above the container, which was named or is listed there.
            return Ok(vec![FoundName::Entry(Entry::dir(Key::new(&self.front)))]);
        };
        let encoding = self.pager.encoding();
        // Nothing can be of a name that there is none for.
        let below =
            name_of(encoding, below).map_err(|why| Error::new(ErrorKind::NotFound, "list", why).with_key(&dir))?;
        let scope = Scope {
            container: self.name.clone(),
            prefix: [&self.root[..], &below].concat(),
            after: None,
            cut: self.root.len(),
            front: self.front.clone(),
        };
        let (mut found, mut next, mut pages) = (BTreeMap::<Key, FoundName>::new(), None::<P::Next>, Pages::default());
        loop {
            let question = PageRequest {
                scope: &scope,
                next: next.as_ref(),
                most: None,
                recursive: false,
                meta: self.meta,
                any_order: true,
            };
            let PageResponse::Page(entries, more) =
                self.pager.page(question).await.map_err(|error| error.with_key(&dir))?
            else {
                let message = "a directory can't be listed by its directories";
                return Err(Error::new(ErrorKind::Unsupported, "list", message).with_key(&dir));
            };
            for entry in entries {
                let name = entry.key.as_bytes();
                let Some(leaf) = name.strip_prefix(&scope.prefix[..]) else {
                    let message = format!("the server listed {}, which was not asked for", entry.key);
                    return Err(Fault::broken(message).at("list", &dir));
                };
                pages.is_new(&entry.key.to_string());
                if leaves_out(&entry) {
                    continue;
                }
                let found_name = match encoding {
                    None => FoundName::Entry(Entry { key: scope.key_of(name), ..entry }),
                    Some(encoding) => decoded(encoding, &dir, leaf, &entry),
                };
                let says_more = match &found_name {
                    // Its own marker says more of a directory than that there is something in it.
                    FoundName::Entry(entry) => entry.version.is_some(),
                    FoundName::Failed(..) | FoundName::Vanished(_) => true,
                };
                match found.entry(found_name.key().clone()) {
                    btree_map::Entry::Vacant(place) => drop(place.insert(found_name)),
                    btree_map::Entry::Occupied(known) if matches!(known.get(), FoundName::Failed(..)) => {}
                    btree_map::Entry::Occupied(mut known) if says_more => drop(known.insert(found_name)),
                    btree_map::Entry::Occupied(_) => {}
                }
            }
            let Some(more) = more else { break };
            pages.next(&more).map_err(at("list", &dir))?;
            next = Some(more);
        }
        if found.is_empty() && dir.is_root() && !scope.prefix.is_empty() {
            self.pager.empty_root().await?;
        }
        // Where directories aren't things of their own, a directory's own marker tells it, but for that of the root.
        found.retain(|key, _| if self.has_dirs { *key != dir } else { key.as_bytes().len() > scope.front.len() });
        Ok(found.into_values().collect())
    }
}

/// The listing entry of a name in the directory `dir`; `leaf` is the rest of the name after the directory's.
fn decoded(encoding: Encoding, dir: &Key, leaf: &[u8], entry: &Entry) -> FoundName {
    if leaf.is_empty() {
        return FoundName::Entry(Entry { key: dir.clone(), ..entry.clone() });
    }
    match tree::decoded(encoding, dir, leaf) {
        Ok(key) => FoundName::Entry(Entry { key, ..entry.clone() }),
        Err((key, error)) => FoundName::Failed(key, error),
    }
}

impl<P: Pager> Folders for Directories<P> {
    fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let container = self.0.clone();
        async move { container.read(dir).await }.boxed()
    }

    fn has_dirs(&self) -> bool {
        self.0.has_dirs
    }
}

/// A server that loses its place would make us list for ever, or miss keys.
fn disorder(entries: &[Entry], last: Option<&[u8]>, prefix: &[u8]) -> Option<Box<Fault>> {
    let first = entries.first()?;
    let backwards =
        last.is_some_and(|last| first.key.as_bytes() <= last) || entries.windows(2).any(|two| two[0].key >= two[1].key);
    if backwards {
        let message = "the server's listing goes backwards: it can't be trusted to be whole";
        return Some(Fault::new(ErrorKind::Unsupported, Retry::Never, message));
    }
    let stray = entries.iter().find(|entry| !entry.key.as_bytes().starts_with(prefix))?;
    Some(Fault::broken(format!("the server listed {}, which was not asked for", stray.key)))
}
