//! The index of a destination: existing keys and their facts, as earlier runs found them. Trusted only as far as it is young, an audit
//! of this run confirms it, and no run was killed while it changed the destination. Says which keys exist, never which don't.

use super::{
    audit::{Audit, AuditCounts, AuditOptions, ENOUGH, IndexError, audit},
    doubts::Doubts,
    findings::Learned,
    index_file::{self, ALL, CHANGING, ENDING, Identity, NewFindings, PART, Snapshot, scope},
    record::{self, Fact},
    state_folder,
};
use haul_core::{
    Algo, Entry, Error, Hasher, Key,
    event::{Event, Sink},
    filter::Filter,
    hash::to_hex,
};
use haul_store::{Store, disk};
use std::{
    fs::File,
    io,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

/// For how many minutes something is believed after it was seen: seven days.
const LIFE: u32 = 7 * 24 * 60;
/// By how many minutes a clock may be set back before what was just seen counts as seen in the future.
const SLACK: u32 = 10;
/// Age from which a confirmed fact is noted as seen anew: a day. Younger ones need no writing.
const AGED: u32 = 24 * 60;

/// How to use indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder that they are in.
    pub folder: PathBuf,
    /// List the whole destination, and say in what the index is wrong.
    pub verify: bool,
    /// A key's content is always the same (it is named by its hash), so that nothing is ever changed.
    pub content: bool,
    /// Makes what is audited foreseeable, for tests.
    pub seed: Option<u64>,
    /// The time, in minutes since 1970, for tests; `None` asks the clock.
    pub minute: Option<u32>,
}

/// A job's use of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexScope {
    /// Nothing: it only keeps it true.
    Nothing,
    /// Keys of its source.
    Wanted,
    /// All existing keys.
    All,
}

/// The index of a destination in a run.
pub struct RemoteIndex {
    name: String,
    path: PathBuf,
    whose: Identity,
    settings: Settings,
    sink: Arc<dyn Sink>,
    was: Option<Arc<Snapshot>>,
    /// True if `was` may be trusted.
    believed: bool,
    /// It never knew some of the existing keys.
    lacks: bool,
    /// When the run began.
    minute: u32,
    state: Mutex<State>,
    replaces: AtomicBool,
    /// The scope in which a listing of this run had every key.
    listed: AtomicU64,
}

#[derive(Default)]
struct State {
    /// `None` when the index was given up.
    learned: Option<Learned>,
    /// Where it isn't believed.
    doubts: Doubts,
    /// Where it was found to be wrong while it was believed there.
    late: Doubts,
    /// Says that this run changes what the index knows.
    mark: Option<(PathBuf, File)>,
    /// It should have been dropped, and could not be: the mark must outlive this run.
    stuck: bool,
}

/// Contents of the folder.
struct OpenedFolder {
    was: Option<Snapshot>,
    /// A run was killed while it changed something.
    killed: bool,
    /// Another process is changing something now.
    busy: bool,
}

impl RemoteIndex {
    /// Opens the index of a store, and audits it if it is to be trusted. `None` for stores that don't list in pages, and if the
    /// folder can't be used, which is reported.
    pub async fn open(
        settings: &Settings,
        store: &Arc<dyn Store>,
        sink: &Arc<dyn Sink>,
        uses: IndexScope,
    ) -> Option<Arc<RemoteIndex>> {
        let name = store.locator().to_string();
        if store.caps().page.is_none() {
            tracing::info!("{name}: no index, because this kind of store can't be listed in pages");
            return None;
        }
        let whose = whose(&**store);
        let path = settings.folder.join(to_hex(&whose[..8])).with_extension(ENDING);
        let found = path.clone();
        let opened = disk::run(move || open(&found, &whose).map_err(|e| Error::from_io("open the index", e))).await;
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                notice(sink, format!("No index of {name}: {}", error.message()));
                return None;
            }
        };
        if opened.killed {
            let message = "an earlier run was killed while it changed the destination, so its index is ignored";
            notice(sink, format!("{name}: {message}"));
        }
        if opened.busy {
            tracing::info!("{name}: another haul is changing it, so its index is ignored");
        }
        let mut index = RemoteIndex {
            name,
            path,
            whose,
            settings: settings.clone(),
            sink: sink.clone(),
            was: opened.was.map(|was| Arc::new(was.with_links(store.caps().symlinks))),
            lacks: false,
            believed: uses != IndexScope::Nothing && !opened.busy && !settings.verify,
            minute: settings.minute.unwrap_or_else(|| minute(state_folder::now())),
            state: Mutex::new(State { learned: Some(Learned::default()), ..State::default() }),
            replaces: AtomicBool::new(false),
            listed: AtomicU64::new(PART),
        };
        index.believed &= index.was.is_some();
        if index.believed {
            index.audit(store, uses == IndexScope::All).await;
        }
        Some(Arc::new(index))
    }

    async fn audit(&mut self, store: &Arc<dyn Store>, unknown: bool) {
        let Some(was) = &self.was else { return };
        let (young, aged, seed) = (self.young(), self.minute.saturating_sub(AGED), self.settings.seed);
        let content = self.settings.content;
        match audit(was, store, AuditOptions { young, aged, unknown, content, seed }).await {
            Ok(Audit { wrong, news, borne_out, unknown: others, .. }) => {
                // One that holds what a filter let through has never known the rest.
                self.lacks = others > 0 && was.whole == ALL;
                tracing::info!("{}: the listing bears out {borne_out} keys of the index", self.name);
                let mut doubts = Doubts::default();
                wrong.iter().for_each(|(key, _)| doubts.add(key.as_bytes()));
                if wrong.len() >= ENOUGH {
                    doubts = Doubts::All;
                }
                if let Some((key, how)) = wrong.first() {
                    self.tell_wrong(key, *how, &doubts);
                }
                // Beside content lie short-lived files (records of snapshots, marks): knowing them helps nobody, and losing them is no
                // loss.
                let lasts = |entry: &&Entry| !content || is_named_by_hash(entry.key.as_bytes());
                news.iter().filter(lasts).for_each(|entry| self.note_present(entry));
                wrong.iter().filter(|(_, how)| *how == IndexError::Gone).for_each(|(key, _)| self.note_missing(key));
                self.state().doubts = doubts;
            }
            Err(error) => {
                tracing::info!("{}: the index can't be audited, so it is ignored: {error}", self.name);
                self.believed = false;
            }
        }
    }

    fn tell_wrong(&self, key: &Key, how: IndexError, doubts: &Doubts) {
        let how = if how == IndexError::Gone { "is gone" } else { "was changed by others" };
        notice(
            &self.sink,
            format!("{}: the index is wrong, {key} {how}: {} is looked at again", self.name, doubts.what()),
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// When something must have been seen to count.
    fn young(&self) -> RangeInclusive<u32> {
        self.minute.saturating_sub(LIFE)..=self.minute + SLACK
    }

    /// The index as it was opened, if it is trusted at all.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.was.clone().filter(|_| self.believed && self.state().doubts != Doubts::All)
    }

    /// True when the index has every key of a filter, as far as haul can know, and much of that is young: a job that must
    /// know all existing keys may rely on it.
    pub fn knows_all(&self, filter: &Filter) -> bool {
        let Some(was) = self.snapshot().filter(|_| !self.lacks) else { return false };
        let whole = was.whole == ALL || was.whole != PART && was.whole == scope(filter);
        whole && 2 * was.fresh(*self.young().start()) >= was.count()
    }

    /// True when the index, as it was opened, has a key as existing.
    ///
    /// Errors: it can't be read.
    pub fn has(&self, key: &Key) -> io::Result<bool> {
        let Some(was) = &self.was else { return Ok(false) };
        let mut all = was.read()?;
        all.seek(key.stored())?;
        Ok(all.here().is_some_and(|(here, body)| here == key.stored() && record::is_there(body)))
    }

    /// Entries of these keys, in their order, as far as the index is trusted; empty when it isn't.
    pub async fn believed(self: &Arc<Self>, mut keys: Vec<Key>) -> Vec<Entry> {
        let (Some(was), doubts, young) = (self.snapshot(), self.doubts(), self.young()) else { return Vec::new() };
        keys.sort_unstable();
        let look = move || {
            let mut all = was.read()?;
            let mut found = Vec::new();
            for key in keys {
                all.seek(key.stored())?;
                let here = all.here().filter(|(here, _)| *here == key.stored() && !doubts.holds(here));
                let fact = here.and_then(|(key, body)| was.fact(key, body));
                found.extend(fact.filter(|fact| young.contains(&fact.minute)).map(|fact| fact.entry));
            }
            io::Result::Ok(found)
        };
        let found = disk::run(move || look().map_err(|e| Error::from_io("read the index", e))).await;
        found.unwrap_or_else(|error| {
            self.give_up(&io::Error::other(error.message().to_string()));
            Vec::new()
        })
    }

    /// The store says that a key isn't there, which the index believably had.
    pub fn lost(&self, key: &Key) {
        self.contradicted(key, IndexError::Gone);
        self.note_missing(key);
    }

    /// True when it was found to be wrong in this run.
    pub fn is_wrong(&self) -> bool {
        let state = self.state();
        !state.doubts.is_empty() || !state.late.is_empty()
    }

    /// True when all is to be looked for (`--verify-index`).
    pub fn verifies(&self) -> bool {
        self.settings.verify
    }

    /// To be compared with a listing (`--verify-index`).
    pub(crate) fn to_verify(&self) -> Option<Arc<Snapshot>> {
        self.was.clone().filter(|_| self.settings.verify)
    }

    /// True for a fact that the index may use for a key outside of its doubts.
    pub(crate) fn is_young(&self, fact: &Fact) -> bool {
        self.young().contains(&fact.minute)
    }

    /// Where the index isn't believed now.
    pub(crate) fn doubts(&self) -> Doubts {
        self.state().doubts.clone()
    }

    /// Where it wasn't believed until now, if there is more now: what was believed between must be looked at again.
    pub(crate) fn more_doubts(&self) -> Option<Doubts> {
        let state = &mut *self.state();
        let before = state.doubts.clone();
        state.doubts.join(std::mem::take(&mut state.late));
        (before != state.doubts).then_some(before)
    }

    /// The store says otherwise of a key that the index has.
    pub(crate) fn contradicted(&self, key: &Key, how: IndexError) {
        let mut doubts = {
            let mut state = self.state();
            let known = state.doubts.holds(key.as_bytes()) || state.late.holds(key.as_bytes());
            state.late.add(key.as_bytes());
            if known {
                return;
            }
            state.doubts.clone()
        };
        doubts.join(self.state().late.clone());
        self.tell_wrong(key, how, &doubts);
    }

    /// Notes a key as the store reported it, or as it confirmed to have stored it.
    pub fn note_present(&self, entry: &Entry) {
        if entry.has_bytes() {
            let minute = self.minute;
            self.learn(|learned| learned.note_present(entry, minute));
        }
    }

    /// Notes that a key is unknown from now on.
    pub fn forget(&self, key: &Key) {
        self.learn(|learned| learned.forget(key));
    }

    /// The store said that a key isn't there.
    pub fn note_missing(&self, key: &Key) {
        self.learn(|learned| learned.note_missing(key));
    }

    fn learn(&self, learn: impl FnOnce(&mut Learned) -> io::Result<()>) {
        let failed = {
            let mut state = self.state();
            state.learned.as_mut().and_then(|learned| learn(learned).err())
        };
        if let Some(error) = failed {
            self.give_up(&error);
        }
    }

    /// All of the destination is listed in this run: what the index said before counts no more.
    pub fn lists_all(&self) {
        self.replaces.store(true, Relaxed);
    }

    /// The listing came to its end, and gave all that this filter lets through.
    pub(crate) fn listed_all(&self, filter: &Filter) {
        self.listed.store(scope(filter), Relaxed);
    }

    /// Notes that a key is about to be written or deleted, which the index or one that another process creates meanwhile may have.
    /// When this resolves a kill can't make the index wrong.
    pub async fn will_change(&self, key: &Key) {
        self.forget(key);
        let marked = {
            let state = self.state();
            state.learned.is_none() || state.mark.is_some() || self.settings.content
        };
        if marked {
            return;
        }
        let (path, lock) = (self.path.clone(), self.path.with_extension("lock"));
        let mark =
            disk::run(move || state_folder::mark(&path, CHANGING, &lock).map_err(|e| Error::from_io("mark", e))).await;
        match mark {
            Ok(mark) => {
                let before = self.state().mark.replace(mark);
                if let Some((path, _)) = before {
                    // Two were made at once: one is enough.
                    let _ =
                        disk::run(move || state_folder::remove(&path).map_err(|e| Error::from_io("unmark", e))).await;
                }
            }
            Err(error) => self.give_up(&io::Error::other(error.message().to_string())),
        }
    }

    /// Drops the index: it can't be kept true. The job goes on without it.
    pub(crate) fn give_up(&self, error: &io::Error) {
        if self.state().learned.take().is_none() {
            return;
        }
        let removed = state_folder::remove(&self.path);
        self.state().stuck = removed.is_err();
        let then = match &removed {
            Ok(()) => "the next run looks at everything".to_string(),
            Err(error) => format!("and not be removed ({error}): delete {}", self.path.display()),
        };
        notice(&self.sink, format!("The index of {} can't be kept ({error}): {then}", self.name));
    }

    /// Keeps the findings for the next run. A failure costs only time later, so it is reported and no error.
    pub async fn end(&self) {
        let (learned, doubts, mark, stuck) = {
            let mut state = self.state();
            let mut doubts = state.doubts.clone();
            doubts.join(state.late.clone());
            (state.learned.take(), doubts, state.mark.take(), state.stuck)
        };
        let (replaces, whole) = (self.replaces.load(Relaxed), self.listed.load(Relaxed));
        let (path, whose, was, within) = (self.path.clone(), self.whose, self.was.clone(), self.young());
        let idle = learned.as_ref().is_some_and(Learned::is_empty) && doubts.is_empty() && !replaces;
        let kept = disk::run(move || {
            let add = || match learned {
                Some(learned) if !idle => {
                    let _lock = state_folder::lock(&path.with_extension("lock"))?;
                    let found = learned.into_sources();
                    index_file::add(
                        &path,
                        &whose,
                        was.as_deref(),
                        NewFindings { found, replaces, whole, doubts, within },
                    )
                    .inspect_err(|_| drop(state_folder::remove(&path)))
                }
                _ => Ok(()),
            };
            let added: io::Result<()> = add();
            // After it: a kill between the two costs the index, not the truth.
            let gone = !stuck && (added.is_ok() || !path.exists());
            let unmarked = mark.filter(|_| gone).map_or(Ok(()), |(path, _)| state_folder::remove(&path));
            added.and(unmarked).map_err(|error| Error::from_io("keep the index", error))
        })
        .await;
        if let Err(error) = kept {
            let name = &self.name;
            notice(
                &self.sink,
                format!("The index of {name} can't be kept ({}): the next run looks at everything", error.message()),
            );
        }
    }

    /// Says what a listing of everything found of the index.
    pub(crate) fn tell_verified(&self, found: AuditCounts) {
        let (name, AuditCounts { right, gone, changed }) = (&self.name, found);
        notice(
            &self.sink,
            format!("{name}: the index is right about {right} keys, {gone} are gone, {changed} were changed by others"),
        );
    }
}

fn notice(sink: &Arc<dyn Sink>, message: String) {
    sink.emit(&Event::Notice { key: None, message });
}

fn minute(time: SystemTime) -> u32 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs() / 60).unwrap_or(u32::MAX - SLACK)
}

/// True for keys as DVC's layouts have them: the last part is digits of a hash, perhaps with an ending.
fn is_named_by_hash(key: &[u8]) -> bool {
    let name = haul_core::key::name(key);
    let digits = name.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    digits >= 30 && matches!(name.get(digits), None | Some(b'.'))
}

/// Identity of the store. A path may be typed in many ways, but names one place; and no secret is in it.
pub(super) fn whose(store: &dyn Store) -> Identity {
    let mut hasher = Hasher::new(&[Algo::Blake3]);
    let fields: [&[u8]; 2] = match &store.caps().domain {
        Some(domain) => [domain.name.as_bytes(), &domain.place],
        None => [b"", store.locator().as_bytes()],
    };
    for field in fields {
        hasher.update(&(field.len() as u64).to_le_bytes());
        hasher.update(field);
    }
    let mut whose = [0; 32];
    whose.copy_from_slice(hasher.finish().get(Algo::Blake3).unwrap_or(&[0; 32]));
    whose
}

fn open(path: &std::path::Path, whose: &Identity) -> io::Result<OpenedFolder> {
    let _lock = state_folder::lock(&path.with_extension("lock"))?;
    let (live, dead) = state_folder::marks(path, CHANGING)?;
    let killed = !dead.is_empty() && path.exists();
    if !dead.is_empty() {
        state_folder::remove(path)?;
        dead.iter().try_for_each(|mark| state_folder::remove(mark))?;
    }
    let was = match Snapshot::open(path, whose) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::info!("{}: {error}, so it is rebuilt", path.display());
            state_folder::remove(path)?;
            None
        }
        was => was?,
    };
    Ok(OpenedFolder { was, killed, busy: !live.is_empty() })
}
