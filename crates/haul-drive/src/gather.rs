//! Gathered listings of directories: one query covers up to 50. Now and then Google finds nothing for such a query, so
//! an empty directory counts only when it was queried alone. In folders that aren't the user's own it may find only a part (rclone's
//! issue 9810, googleapis/google-api-nodejs-client's 1957): they are always queried alone.

use crate::{facts::File, service::Service};
use haul_core::{Error, ErrorKind, Key, Result};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::oneshot, task::JoinSet};

/// Folders of one query, as many as in rclone.
const MOST: usize = 50;
/// Queries at once.
const AT_ONCE: usize = 8;
/// Folders that were or are being looked into before anybody asked, at most: those that a filter leaves out are among them.
const AHEAD: usize = 1000;
/// Folders that are found and not asked for yet, at most: further ones are only asked for when they are needed.
const SPARE: usize = 10_000;
/// Folders that are known to be the user's own, at most, in bytes some 20 MB: further ones are asked for by themselves.
const KNOWN: usize = 200_000;

/// A folder by its id, and where it is: so that those come first whose turn is first.
type QueuedFolder = (Key, String);

/// Contents of a folder; `None` when it has to be queried alone.
type FolderContents = Result<Option<Vec<File>>>;

enum Slot {
    /// Under way, with its waiters: none yet, or several, where shortcuts lead to it.
    Flying(Vec<oneshot::Sender<FolderContents>>),
    /// Here before it was asked for.
    Held(Vec<File>),
}

#[derive(Default)]
struct State {
    /// Asked for.
    queue: VecDeque<QueuedFolder>,
    slots: BTreeMap<String, Slot>,
    /// Will be asked for soon: they take places of queries that would be empty, and queries of their own.
    spare: BTreeSet<QueuedFolder>,
    /// Found, not asked for yet, and the user's own.
    mine: BTreeSet<String>,
    /// Slots without a waiter so far.
    ahead: usize,
    pumps: usize,
    /// They, and such as have ended.
    tasks: JoinSet<()>,
    /// Nobody will ask any more.
    stopped: bool,
}

/// The questions of one listing.
pub struct Gather {
    service: Arc<Service>,
    /// All below is wanted.
    recursive: bool,
    state: Mutex<State>,
}

impl Gather {
    /// State of a new listing.
    pub fn new(service: Arc<Service>, recursive: bool) -> Arc<Gather> {
        Arc::new(Gather { service, recursive, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listing was given up: no more queries are sent, and pending ones aren't awaited.
    pub fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        state.tasks.abort_all();
    }

    /// Contents of the folder `id`, which is the directory `key`.
    pub async fn children(self: &Arc<Self>, id: &str, key: &Key) -> Result<Vec<File>> {
        if let Some(files) = self.gathered(id, key).await? {
            return Ok(files);
        }
        let files = self.service.children(id).await.map_err(|refused| refused.at("list", key))?;
        self.found(&mut self.state(), key, &files);
        Ok(files)
    }

    async fn gathered(self: &Arc<Self>, id: &str, key: &Key) -> FolderContents {
        // Google says that in shared drives new files may be missing in such answers for an hour.
        let config = &self.service.config;
        let alone = config.shared_with_me || config.starred_only;
        if alone || !self.recursive || !self.state().mine.remove(id) {
            return Ok(None);
        }
        let (send, receive) = oneshot::channel();
        {
            let mut state = self.state();
            let slot = state.slots.remove(id);
            if matches!(&slot, Some(Slot::Held(_))) || matches!(&slot, Some(Slot::Flying(nobody)) if nobody.is_empty())
            {
                state.ahead -= 1;
            }
            let mut waiting = match slot {
                Some(Slot::Held(files)) => {
                    self.more(&mut state);
                    return Ok(Some(files).filter(|files| !files.is_empty()));
                }
                Some(Slot::Flying(waiting)) => waiting,
                None => {
                    state.queue.push_back((key.clone(), id.to_owned()));
                    Vec::new()
                }
            };
            waiting.push(send);
            state.slots.insert(id.to_owned(), Slot::Flying(waiting));
            self.more(&mut state);
        }
        let gone = |_| Err(Error::new(ErrorKind::Cancelled, "list", "stopped"));
        receive.await.unwrap_or_else(gone)
    }

    /// Begins a further query where there is one to ask.
    fn more(self: &Arc<Self>, state: &mut State) {
        if !state.stopped && state.pumps < AT_ONCE && (!state.queue.is_empty() || state.looks_ahead()) {
            while state.tasks.try_join_next().is_some() {}
            state.pumps += 1;
            state.tasks.spawn(self.clone().pump());
        }
    }

    async fn pump(self: Arc<Self>) {
        loop {
            // Those that are about to ask do so first.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            let Some(ids) = self.next() else { return };
            let any: Vec<_> = ids.iter().map(|(_, id)| self.service.inside(id)).collect();
            let found = self.service.search(&self.service.shown(&any.join(" or "))).await;
            let mut state = self.state();
            match found {
                Ok(files) => self.deal(&mut state, &ids, files),
                Err(refused) => {
                    // A missing folder fails the query for all.
                    let gone = refused.fault.kind == ErrorKind::NotFound;
                    let error = refused.fault.error("list");
                    for (_, id) in &ids {
                        let Some(Slot::Flying(waiting)) = state.slots.remove(id) else { continue };
                        state.ahead -= usize::from(waiting.is_empty());
                        for send in waiting {
                            // Who doesn't wait any more needs no answer.
                            let _ = send.send(if gone { Ok(None) } else { Err(error.to_report()) });
                        }
                    }
                }
            }
        }
    }

    /// The folders of the next query; `None` when there is nothing to ask.
    fn next(&self) -> Option<Vec<QueuedFolder>> {
        let mut state = self.state();
        let mut batch = Vec::new();
        while let Some(place) = if batch.len() < MOST { state.queue.pop_front() } else { None } {
            match state.slots.get(&place.1) {
                Some(Slot::Flying(waiting)) if waiting.iter().any(|send| !send.is_closed()) => batch.push(place),
                _ => drop(state.slots.remove(&place.1)),
            }
        }
        if batch.is_empty() && !state.looks_ahead() {
            state.pumps -= 1;
            return None;
        }
        while batch.len() < MOST && state.ahead < AHEAD {
            let Some(place) = state.spare.pop_first() else { break };
            // Others were asked for meanwhile.
            if state.mine.contains(&place.1) && !state.slots.contains_key(&place.1) {
                state.slots.insert(place.1.clone(), Slot::Flying(Vec::new()));
                state.ahead += 1;
                batch.push(place);
            }
        }
        if batch.is_empty() {
            state.pumps -= 1;
            return None;
        }
        Some(batch)
    }

    fn deal(self: &Arc<Self>, state: &mut State, batch: &[QueuedFolder], files: Vec<File>) {
        let mut each: BTreeMap<&str, Vec<File>> = batch.iter().map(|(_, id)| (&**id, Vec::new())).collect();
        for file in files {
            let mut belongs = false;
            for parent in &file.parents {
                if let Some(own) = each.get_mut(&**parent) {
                    own.push(file.clone());
                    belongs = true;
                }
            }
            if !belongs {
                // It is in one of them, and nothing says in which: each is queried alone.
                each.clear();
                break;
            }
        }
        for (key, id) in batch {
            let files = each.remove(&**id).unwrap_or_default();
            self.found(state, key, &files);
            match state.slots.remove(id) {
                Some(Slot::Flying(waiting)) if waiting.is_empty() => {
                    state.slots.insert(id.clone(), Slot::Held(files));
                }
                Some(Slot::Flying(waiting)) => {
                    for send in waiting {
                        // Who doesn't wait any more needs no answer.
                        let _ = send.send(Ok(Some(files.clone()).filter(|files| !files.is_empty())));
                    }
                }
                _ => {}
            }
        }
        self.more(state);
    }

    /// Notes the folders among what a folder holds.
    fn found(&self, state: &mut State, dir: &Key, files: &[File]) {
        if !self.recursive {
            return;
        }
        for folder in files.iter().filter(|file| file.is_folder() && file.owned_by_me && file.drive_id.is_empty()) {
            if state.mine.len() < KNOWN {
                state.mine.insert(folder.id.clone());
                let name = self.service.config.encoding.decode(folder.name.as_bytes());
                state.spare.insert((Key::new([dir.as_bytes(), &name, b"/"].concat()), folder.id.clone()));
            }
        }
        while state.spare.len() > SPARE {
            state.spare.pop_last();
        }
    }
}

impl State {
    /// True when a whole query of folders may be sent ahead of demand.
    fn looks_ahead(&self) -> bool {
        self.spare.len() >= MOST && self.ahead + MOST <= AHEAD
    }
}
