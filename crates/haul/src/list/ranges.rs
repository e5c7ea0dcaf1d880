//! A listing in ranges that are read at once, returned in order: requests the pages that [`haul_core::ranges`] names. Stores
//! that don't list in pages list in their own way.

use super::page::{Page, page};
use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream, FuturesUnordered},
};
use haul_core::{
    Entry, Error, ErrorKind, Key, Listed, MissedRange, Result,
    key::after_prefix,
    ranges::{PageRequest, Ranges, WINDOW},
};
use haul_store::{Direction, ListRequest, Store, task::Task};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Lists `request`, `at_once` pages at once (0: as many as the store's lanes take). So many entries may be `waiting` for those before them.
///
/// As with any listing only [`Listed::End`] proves that the rest was seen: it comes when every range has come to its end, or was
/// told as lost.
pub fn list(
    store: &Arc<dyn Store>,
    request: ListRequest,
    at_once: usize,
    waiting: Option<usize>,
) -> BoxStream<'static, Listed> {
    let Some(size) = store.caps().page.filter(|_| request.limit.is_none()) else { return store.list(request) };
    let ranges = Ranges::new(request.after.clone(), request.until.clone(), size, waiting.unwrap_or(WINDOW));
    let listing = Listing {
        store: store.clone(),
        request: ListRequest { limit: Some(size), ..request },
        at_once,
        ranges,
        under_way: FuturesUnordered::new(),
        folders: None,
        came: BTreeMap::new(),
        last: None,
        state: State::Going,
    };
    stream::unfold(listing, |mut listing| async move { Some((listing.next().await?, listing)) }).boxed()
}

struct Listing {
    store: Arc<dyn Store>,
    request: ListRequest,
    at_once: usize,
    ranges: Ranges,
    under_way: FuturesUnordered<Task<(PageRequest, Result<Page>)>>,
    /// The question which folders a directory has.
    folders: Option<Task<Result<Page>>>,
    /// Entries of each range that were not returned yet.
    came: BTreeMap<u64, VecDeque<Step>>,
    /// The last key that was returned.
    last: Option<Key>,
    state: State,
}

enum Step {
    Entries(Vec<Entry>),
    Lost(MissedRange, Error),
}

enum State {
    Going,
    /// The store doesn't begin where it is asked to: listed from the start to the end.
    Plain(BoxStream<'static, Listed>),
    Over,
}

impl Listing {
    async fn next(&mut self) -> Option<Listed> {
        loop {
            match &mut self.state {
                State::Going => {}
                State::Plain(steps) => return Some(unseen(steps.next().await?, self.last.as_ref())),
                State::Over => return None,
            }
            // Received pages make room for more, however much there is to return first.
            while let Some(Some((ask, answer))) = self.under_way.next().now_or_never() {
                self.take(&ask, answer);
            }
            if !matches!(self.state, State::Going) {
                continue;
            }
            self.ask_for_folders();
            let width = self.width();
            while let Some(ask) = self.ranges.next(width) {
                self.under_way.push(self.ask(ask));
            }
            if let Some(step) = self.give() {
                return Some(step);
            }
            match &mut self.folders {
                None => {
                    let (ask, answer) = self.under_way.next().await?;
                    self.take(&ask, answer);
                }
                Some(folders) => tokio::select! {
                    Some((ask, answer)) = self.under_way.next() => self.take(&ask, answer),
                    found = folders => self.take_folders(found),
                },
            }
        }
    }

    /// Asks which folders a directory has, where cuts had better lie between them.
    fn ask_for_folders(&mut self) {
        if !self.request.recursive {
            return;
        }
        let Some(dir) = self.ranges.wants_folders() else { return };
        let prefix = dir.as_bytes().to_vec();
        let request = ListRequest { prefix, recursive: false, after: None, until: None, ..self.request.clone() };
        let store = self.store.clone();
        self.folders = Some(Task::spawn(async move { page(&store, request).await }));
    }

    /// An unknown folder only costs time.
    fn take_folders(&mut self, found: Result<Page>) {
        self.folders = None;
        if let Ok(Page { entries, ended }) = found {
            let folders = entries.into_iter().filter(Entry::is_dir).map(|entry| entry.key);
            self.ranges.has_folders(folders.collect(), ended);
        }
    }

    /// The next step in order, if it has come.
    fn give(&mut self) -> Option<Listed> {
        while let Some((number, over)) = self.ranges.first() {
            match self.came.get_mut(&number).and_then(VecDeque::pop_front) {
                Some(Step::Entries(entries)) => {
                    self.ranges.gave();
                    self.last = entries.last().map(|entry| entry.key.clone());
                    return Some(Listed::Batch(entries));
                }
                Some(Step::Lost(lost, error)) => {
                    if lost.to.is_none() || lost.to == after_prefix(&self.request.prefix).map(Key::new) {
                        // Nothing was seen behind it: this is where it broke off.
                        self.state = State::Over;
                    }
                    return Some(Listed::Failed { lost, error });
                }
                None if over => {
                    self.came.remove(&number);
                    self.ranges.pass();
                }
                None => return None,
            }
        }
        self.state = State::Over;
        Some(Listed::End)
    }

    fn width(&self) -> usize {
        match (self.at_once, self.store.lanes()) {
            (0, Some(lanes)) => lanes.lane(Direction::Meta).limit(),
            (0, None) => self.store.caps().concurrency,
            (pinned, _) => pinned,
        }
    }

    fn ask(&self, ask: PageRequest) -> Task<(PageRequest, Result<Page>)> {
        let (store, request) = (self.store.clone(), ListRequest { after: ask.after.clone(), ..self.request.clone() });
        Task::spawn(async move {
            let answer = page(&store, request).await;
            (ask, answer)
        })
    }

    fn take(&mut self, ask: &PageRequest, answer: Result<Page>) {
        let step = match answer {
            Ok(Page { mut entries, ended }) => {
                let keep = self.ranges.took(ask.range, &entries, ended);
                entries.truncate(keep);
                (keep > 0).then_some(Step::Entries(entries))
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let request = ListRequest { limit: None, ..self.request.clone() };
                self.state = State::Plain(self.store.list(request));
                None
            }
            Err(error) => self.ranges.failed(ask.range).map(|lost| {
                // The first question of all finds that there is nothing to list: all of it is lost, wherever it was to begin.
                let no_root = error.kind() == ErrorKind::DirNotFound && ask.after == self.request.after;
                let lost = if no_root { MissedRange { from: Key::new(""), ..lost } } else { lost };
                Step::Lost(self.within(lost), error)
            }),
        };
        if let Some(step) = step {
            self.came.entry(ask.range).or_default().push_back(step);
        }
    }

    /// A lost range within what was asked for.
    fn within(&self, lost: MissedRange) -> MissedRange {
        let prefix = Key::new(&self.request.prefix);
        MissedRange {
            from: lost.from.max(prefix),
            to: lost.to.or_else(|| after_prefix(&self.request.prefix).map(Key::new)),
        }
    }
}

/// The part of a step after `last`.
fn unseen(step: Listed, last: Option<&Key>) -> Listed {
    match step {
        Listed::Batch(mut entries) => {
            entries.retain(|entry| last.is_none_or(|last| entry.key > *last));
            Listed::Batch(entries)
        }
        other => other,
    }
}
