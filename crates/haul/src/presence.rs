//! Which of some keys a store has: for each its entry, or the proof that it is absent. Chooses between a request for each and leaping
//! through the listing ([`haul_core::presence`]). For jobs that needn't know the store's other keys, and for library callers.

use crate::list::page::{Page, page};
use futures::{StreamExt, stream, stream::BoxStream};
use haul_core::{
    Entry, Error, ErrorKind, Key, Result, Retry,
    job::{Job, Lookup, Verb},
    key::just_before,
    presence::{ChoiceReason, Method, MethodChoice, Next, Sample, choose},
};
use haul_store::{ListRequest, Store, task::Task};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Keys that are held at once at most, each with its answer: 330 bytes each, twice.
const HELD: usize = 100_000;
/// Pages that one walk through the listing takes: the part of its last one beyond its keys is useless, half a page in eight.
const PAGES: f64 = 8.0;
/// Keys of one walk, least and most.
const WALK: (usize, usize) = (8, 8_192);
/// Keys that are looked at for a choice.
const AHEAD: usize = 1_000;
/// Questions under way at once where the store's lanes limit them.
const WIDE: usize = 256;
/// Answers that are returned together.
const BATCH: usize = 1_000;

/// Known state of a key.
#[derive(Clone, Debug)]
pub enum KeyState {
    /// It exists.
    There(Entry),
    /// It isn't: proved.
    Absent,
    /// It could not be found out.
    Unknown(Arc<Error>),
    /// It was not to be found out ([`HasKey::is_asked`]).
    NotAsked,
}

/// Something with a key that is looked for.
pub trait HasKey: Send + 'static {
    /// The key.
    fn key(&self) -> &Key;

    /// False for a key that only passes through, keeping its place in the order.
    fn is_asked(&self) -> bool {
        true
    }
}

impl HasKey for Key {
    fn key(&self) -> &Key {
        self
    }
}

impl HasKey for Entry {
    fn key(&self) -> &Key {
        &self.key
    }

    /// Directories aren't: a store that lists in pages has none but in the names of keys.
    fn is_asked(&self) -> bool {
        !self.is_dir()
    }
}

/// How to look.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupOptions {
    /// In this way; `None` chooses.
    pub method: Option<Method>,
    /// Questions and pages at once; `None` leaves it to the store's lanes.
    pub at_once: Option<usize>,
}

/// Counts of a search, to be read at any time.
#[derive(Debug, Default)]
pub struct LookupCounts {
    requests: AtomicU64,
    choice: OnceLock<MethodChoice>,
}

impl LookupCounts {
    /// Questions and pages so far; retries not counted.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// The way that was chosen, once it is.
    pub fn choice(&self) -> Option<MethodChoice> {
        self.choice.get().copied()
    }
}

/// How a job looks up its source's keys; `None` when it must know all keys of the destination, or is set to list it.
pub(crate) fn options(job: &Job, dst: &Arc<dyn Store>) -> Option<LookupOptions> {
    let at_once = job.pace.checkers;
    if job.listing.lookup == Lookup::Never {
        return None;
    }
    if job.listing.no_traverse && job.listing.part.is_all() {
        return Some(LookupOptions { method: Some(Method::Ask), at_once });
    }
    // A part is cut so that both sides of it are listed together.
    let part = !job.listing.part.is_all();
    let all = part || job.verb == Verb::Sync || job.listing.lookup == Lookup::ListAll || dst.caps().page.is_none();
    (!all).then_some(LookupOptions { method: None, at_once })
}

/// All answers at once.
#[derive(Debug)]
pub struct LookupResult {
    /// Each key with its answer, in order.
    pub answers: Vec<(Key, KeyState)>,
    /// The way, and why.
    pub choice: MethodChoice,
    /// Questions and pages that it took.
    pub requests: u64,
}

/// Looks for `keys`, which must be in bytewise order. For so few that their answers fit in memory; else see [`search`].
pub async fn find(store: &Arc<dyn Store>, keys: Vec<Key>, options: LookupOptions) -> LookupResult {
    let (mut answers, counts) = search(store, stream::iter([keys]).boxed(), options);
    let mut all = Vec::new();
    while let Some(batch) = answers.next().await {
        all.extend(batch);
    }
    let choice = counts.choice().unwrap_or(MethodChoice { method: Method::Ask, why: ChoiceReason::Few(0) });
    LookupResult { answers: all, choice, requests: counts.requests() }
}

/// Looks up the keys from `wanted`, in bytewise order, and returns them in the same order with their answers. Holds a
/// bounded number of keys, so `wanted` isn't read faster than the answers are taken.
pub fn search<T: HasKey>(
    store: &Arc<dyn Store>,
    wanted: BoxStream<'static, Vec<T>>,
    options: LookupOptions,
) -> (BoxStream<'static, Vec<(T, KeyState)>>, Arc<LookupCounts>) {
    let counts = Arc::<LookupCounts>::default();
    let caps = store.caps();
    let wide = if store.lanes().is_some() { WIDE } else { caps.concurrency };
    let search = Arc::new(Search {
        store: store.clone(),
        page: caps.page,
        at_once: options.at_once.unwrap_or(wide).max(1),
        counts: counts.clone(),
        state: Mutex::default(),
        asks_only: AtomicBool::new(caps.page.is_none()),
        refused: OnceLock::new(),
        settled: AtomicU64::new(0),
        pages: AtomicU64::new(0),
    });
    let answers = async move {
        let mut input = Input { wanted, waiting: VecDeque::new(), ended: false, taken: 0 };
        let choice = search.choose(options.method, &mut input).await;
        tracing::info!("{}: {choice}", search.store.locator());
        let _ = search.counts.choice.set(choice);
        match choice.method {
            Method::Ask => search.ask_all(input),
            Method::Leap | Method::List => search.leap_all(input),
        }
    };
    (stream::once(answers).flatten().boxed(), counts)
}

/// Keys to look up, as far as they have come.
struct Input<T> {
    wanted: BoxStream<'static, Vec<T>>,
    waiting: VecDeque<T>,
    ended: bool,
    /// How many have been taken out.
    taken: usize,
}

impl<T: HasKey> Input<T> {
    /// Waits until `count` have come, or all.
    async fn fill(&mut self, count: usize) {
        while !self.ended && self.waiting.len() < count {
            self.more().await;
        }
    }

    /// Waits until `count` that are asked for have come, or as many as may be held, or all.
    async fn fill_asked(&mut self, count: usize) {
        let (mut looked, mut asked) = (0, 0);
        while !self.ended && asked < count && self.waiting.len() < HELD {
            self.more().await;
            asked += self.waiting.range(looked..).filter(|wanted| wanted.is_asked()).count();
            looked = self.waiting.len();
        }
    }

    async fn more(&mut self) {
        match self.wanted.next().await {
            Some(batch) => self.waiting.extend(batch),
            None => self.ended = true,
        }
    }

    /// The next ones, `count` at most; none at the end.
    async fn take(&mut self, count: usize) -> Vec<T> {
        self.fill(count).await;
        let count = count.min(self.waiting.len());
        self.taken += count;
        self.waiting.drain(..count).collect()
    }

    fn asked(&self) -> impl Iterator<Item = &Key> {
        self.waiting.iter().filter(|wanted| wanted.is_asked()).map(HasKey::key)
    }
}

struct Search {
    store: Arc<dyn Store>,
    page: Option<usize>,
    at_once: usize,
    counts: Arc<LookupCounts>,
    state: Mutex<State>,
    /// Listing is useless here.
    asks_only: AtomicBool,
    /// The store doesn't know us: it would say so of every key.
    refused: OnceLock<Arc<Error>>,
    /// Keys that pages settled, and how many pages.
    settled: AtomicU64,
    pages: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Pages that were read for the choice.
    looked: Vec<Arc<Stretch>>,
    /// Nothing comes after this key.
    last: Option<Key>,
}

/// A part of the listing that was seen whole.
struct Stretch {
    /// Begins after this,
    after: Key,
    /// ends with this; `None`: it goes to the end.
    through: Option<Key>,
    entries: Vec<Entry>,
}

impl Stretch {
    fn covers(&self, key: &Key) -> bool {
        *key > self.after && self.through.as_ref().is_none_or(|through| key <= through)
    }

    fn answer(&self, key: &Key) -> KeyState {
        match self.entries.binary_search_by(|entry| entry.key.cmp(key)) {
            Ok(at) => KeyState::There(self.entries[at].clone()),
            Err(_) => KeyState::Absent,
        }
    }
}

impl Search {
    async fn choose<T: HasKey>(&self, pinned: Option<Method>, input: &mut Input<T>) -> MethodChoice {
        if let Some(method) = pinned {
            return MethodChoice { method, why: ChoiceReason::Pinned };
        }
        if self.page.is_none() {
            return MethodChoice { method: Method::Ask, why: ChoiceReason::OnlyWay };
        }
        input.fill_asked(AHEAD).await;
        let count = input.asked().count();
        let wanted = input.ended.then_some(count);
        let mut sample = Sample::default();
        loop {
            match choose(wanted, sample) {
                Next::Go(choice) => return choice,
                Next::Look => {}
            }
            // First where they begin, then in their middle.
            let open: Vec<&Key> = input.asked().filter(|key| self.known(key).is_none()).collect();
            let at = if sample.pages == 0 { 0 } else { open.len() / 2 };
            let Some(key) = open.get(at) else {
                return MethodChoice { method: Method::Leap, why: ChoiceReason::SeenWhole };
            };
            let Ok(stretch) = self.stretch(just_before(key.as_bytes())).await else {
                return MethodChoice { method: Method::Ask, why: ChoiceReason::OnlyWay };
            };
            sample.pages += 1;
            sample.ended |= stretch.through.is_none() && sample.pages == 1;
            sample.settled += open.iter().filter(|key| stretch.covers(key)).count() as u64;
            self.settled.store(sample.settled, Relaxed);
            self.state().looked.push(stretch);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The answer for a key if it needs no request.
    fn known(&self, key: &Key) -> Option<KeyState> {
        let state = self.state();
        if let Some(stretch) = state.looked.iter().find(|stretch| stretch.covers(key)) {
            return Some(stretch.answer(key));
        }
        state.last.as_ref().is_some_and(|last| key > last).then_some(KeyState::Absent)
    }

    /// Reads the page that begins after `after`.
    ///
    /// Errors: of the listing. A failure is no loss: the keys can be looked up one by one.
    async fn stretch(&self, after: Vec<u8>) -> Result<Arc<Stretch>> {
        self.counts.requests.fetch_add(1, Relaxed);
        let after = Key::new(after);
        let begin = (!after.is_root()).then(|| after.clone());
        let request = ListRequest { after: begin, limit: self.page, ..ListRequest::all() };
        let Page { entries, ended } = match page(&self.store, request).await {
            Ok(page) => page,
            // A store that isn't there holds nothing: that is proof, not a failure.
            Err(error) if error.kind() == ErrorKind::DirNotFound => Page { entries: Vec::new(), ended: true },
            Err(error) => {
                tracing::debug!("the listing can't be read, asking instead: {error}");
                self.asks_only.store(true, Relaxed);
                if error.kind() == ErrorKind::Unauthenticated {
                    let _ = self.refused.set(Arc::new(error.to_report()));
                }
                return Err(error);
            }
        };
        // Not before it has come: what it settles is counted then, too.
        self.pages.fetch_add(1, Relaxed);
        let last = entries.last().map(|entry| entry.key.clone());
        let through = if ended { None } else { last.clone() };
        if ended {
            let last = last.unwrap_or_else(|| after.clone());
            let mut state = self.state();
            state.last = Some(state.last.take().map_or(last.clone(), |known| known.min(last)));
        }
        Ok(Arc::new(Stretch { after, through, entries }))
    }

    async fn ask(&self, key: &Key) -> KeyState {
        if let Some(error) = self.refused.get() {
            return KeyState::Unknown(error.clone());
        }
        self.counts.requests.fetch_add(1, Relaxed);
        match self.store.stat(key).await {
            Ok(entry) if entry.is_dir() != key.is_dir() => KeyState::Absent,
            Ok(entry) => KeyState::There(entry),
            Err(e) if e.is_missing() => KeyState::Absent,
            Err(error) if self.page.is_some() && error.retry() == Retry::Never => self.listed_instead(key, error).await,
            Err(error) => KeyState::Unknown(Arc::new(error.with_key(key))),
        }
    }

    /// The listing's answer for a key that can't be looked up. A lookup's answer has no room for a reason, and some stores
    /// refuse to say that a key is missing, or reject names that they can't hold.
    async fn listed_instead(&self, key: &Key, error: Error) -> KeyState {
        if let Some(error) = self.refused.get() {
            return KeyState::Unknown(error.clone());
        }
        match self.stretch(just_before(key.as_bytes())).await {
            Ok(stretch) if stretch.covers(key) => stretch.answer(key),
            _ => match self.refused.get() {
                Some(refused) => KeyState::Unknown(refused.clone()),
                None => KeyState::Unknown(Arc::new(error.with_key(key))),
            },
        }
    }

    async fn ask_unless_known<T: HasKey>(&self, wanted: T) -> (T, KeyState) {
        let answer = match self.known(wanted.key()) {
            _ if !wanted.is_asked() => KeyState::NotAsked,
            Some(answer) => answer,
            None => self.ask(wanted.key()).await,
        };
        (wanted, answer)
    }

    fn ask_all<T: HasKey>(self: Arc<Self>, input: Input<T>) -> BoxStream<'static, Vec<(T, KeyState)>> {
        let at_once = self.at_once;
        let one_by_one = stream::unfold(input, |mut input| async move {
            let batch = input.take(BATCH).await;
            (!batch.is_empty()).then_some((stream::iter(batch), input))
        });
        let answers = one_by_one.flatten().map(move |wanted| {
            let search = self.clone();
            Task::spawn(async move { search.ask_unless_known(wanted).await })
        });
        answers.buffered(at_once).ready_chunks(BATCH).boxed()
    }

    fn leap_all<T: HasKey>(self: Arc<Self>, input: Input<T>) -> BoxStream<'static, Vec<(T, KeyState)>> {
        let (room, at_once) = (Arc::new(Semaphore::new(HELD)), self.at_once);
        let search = self.clone();
        let walks = stream::unfold((input, room), move |(mut input, room)| {
            let search = search.clone();
            async move {
                let count = search.walk_length();
                let held = room.clone().acquire_many_owned(count as u32).await.ok()?;
                let keys = input.take(count).await;
                (!keys.is_empty()).then_some(((keys, held), (input, room)))
            }
        });
        let answers = walks.map(move |(keys, held): (Vec<T>, OwnedSemaphorePermit)| {
            let search = self.clone();
            Task::spawn(async move { (search.walk(keys).await, held) })
        });
        // They are held until they are returned.
        answers.buffered(at_once).map(|(answers, _held)| answers).boxed()
    }

    /// Keys that are worth a walk of their own now.
    fn walk_length(&self) -> usize {
        let per_page = self.settled.load(Relaxed) as f64 / self.pages.load(Relaxed).max(1) as f64;
        ((per_page * PAGES) as usize).clamp(WALK.0, WALK.1)
    }

    /// Settles keys that follow each other, one page after the other.
    async fn walk<T: HasKey>(&self, keys: Vec<T>) -> Vec<(T, KeyState)> {
        let mut answers = Vec::with_capacity(keys.len());
        let mut stretch: Option<Arc<Stretch>> = None;
        let (mut pages, mut settled) = (0u64, 0u64);
        let mut keys = keys.into_iter();
        while let Some(wanted) = keys.next() {
            let key = wanted.key();
            if !wanted.is_asked() {
                answers.push((wanted, KeyState::NotAsked));
                continue;
            }
            if let Some(answer) = stretch.as_ref().filter(|s| s.covers(key)).map(|s| s.answer(key)) {
                settled += 1;
                self.settled.fetch_add(1, Relaxed);
                answers.push((wanted, answer));
                continue;
            }
            if let Some(answer) = self.known(key) {
                answers.push((wanted, answer));
                continue;
            }
            // Where hardly a page settles more than the key that it was read for, asking is cheaper.
            let sparse = pages >= 4 && settled * 2 < pages * 3;
            if sparse || self.asks_only.load(Relaxed) {
                answers.extend(self.ask_rest(std::iter::once(wanted).chain(keys)).await);
                return answers;
            }
            // More than a page may lie between the place just before a key and the key.
            let from = just_before(key.as_bytes());
            let from = match stretch.as_ref().and_then(|s| s.through.as_ref()) {
                Some(through) if through.as_bytes() > &from[..] => through.as_bytes().to_vec(),
                _ => from,
            };
            pages += 1;
            let covered = match self.stretch(from).await {
                Ok(next) => stretch.insert(next).covers(key),
                Err(_) => false,
            };
            if covered {
                let answer = stretch.as_ref().map_or(KeyState::Absent, |s| s.answer(key));
                settled += 1;
                self.settled.fetch_add(1, Relaxed);
                answers.push((wanted, answer));
            } else {
                answers.push(self.ask_unless_known(wanted).await);
            }
        }
        answers
    }

    async fn ask_rest<T: HasKey>(&self, keys: impl Iterator<Item = T>) -> Vec<(T, KeyState)> {
        stream::iter(keys.map(|wanted| self.ask_unless_known(wanted))).buffered(16).collect().await
    }
}
