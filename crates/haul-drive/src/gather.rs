//! Questions for what is in directories, gathered: one query asks for up to 50. Now and then Google finds nothing for such a query, so
//! one that is empty counts only when it was asked for by itself.

use crate::{facts::File, service::Service};
use haul_core::{Error, ErrorKind, Key, Result};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// Folders of one query, as many as rclone asks for.
const MOST: usize = 50;
/// Queries at once.
const AT_ONCE: usize = 4;
/// Answers that nobody has asked for yet, at most.
const HELD: usize = 1000;
/// Folders that are found and not asked for yet, at most: further ones are only asked for when they are needed.
const SPARE: usize = 10_000;
/// Folders that are known to be in no shared drive, at most, in bytes some 20 MB: further ones are asked for by themselves.
const KNOWN: usize = 200_000;

/// What is in a folder; `None` when it has to be asked for by itself.
type Answer = Result<Option<Vec<File>>>;

enum Slot {
    /// On its way, to whoever asks: several, where shortcuts lead to it.
    Flying(Vec<oneshot::Sender<Answer>>),
    /// Here before it was asked for.
    Held(Vec<File>),
}

#[derive(Default)]
struct State {
    /// Asked for.
    queue: VecDeque<String>,
    slots: BTreeMap<String, Slot>,
    /// Will be asked for soon, the soonest first: they take places of queries that would be empty.
    spare: VecDeque<String>,
    /// Found, not asked for yet, and in no shared drive.
    mine: BTreeSet<String>,
    held: usize,
    pumps: usize,
}

/// The questions of one listing.
pub struct Gather {
    service: Arc<Service>,
    /// All below is wanted.
    recursive: bool,
    state: Mutex<State>,
}

impl Gather {
    /// Of a listing that begins.
    pub fn new(service: Arc<Service>, recursive: bool) -> Arc<Gather> {
        Arc::new(Gather { service, recursive, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in the folder `id`, which is the directory `key`.
    pub async fn children(self: &Arc<Self>, id: &str, key: &Key) -> Result<Vec<File>> {
        if let Some(files) = self.gathered(id).await? {
            return Ok(files);
        }
        let files = self.service.children(id).await.map_err(|refused| refused.at("list", key))?;
        self.found(&mut self.state(), &files);
        Ok(files)
    }

    async fn gathered(self: &Arc<Self>, id: &str) -> Answer {
        // Google says that in shared drives new files may be missing in such answers for an hour.
        let config = &self.service.config;
        let alone = config.shared_with_me || config.starred_only;
        if alone || !self.recursive || !self.state().mine.remove(id) {
            return Ok(None);
        }
        let (send, receive) = oneshot::channel();
        {
            let mut state = self.state();
            let mut waiting = match state.slots.remove(id) {
                Some(Slot::Held(files)) => {
                    state.held -= 1;
                    return Ok(Some(files).filter(|files| !files.is_empty()));
                }
                Some(Slot::Flying(waiting)) => waiting,
                None => {
                    state.queue.push_back(id.to_owned());
                    Vec::new()
                }
            };
            waiting.push(send);
            state.slots.insert(id.to_owned(), Slot::Flying(waiting));
            if state.pumps < AT_ONCE && !state.queue.is_empty() {
                state.pumps += 1;
                tokio::spawn(self.clone().pump());
            }
        }
        let gone = |_| Err(Error::new(ErrorKind::Cancelled, "list", "stopped"));
        receive.await.unwrap_or_else(gone)
    }

    async fn pump(self: Arc<Self>) {
        loop {
            // Those that are about to ask do so first.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            let Some(ids) = self.next() else { return };
            let any: Vec<_> = ids.iter().map(|id| self.service.inside(id)).collect();
            let found = self.service.search(&self.service.shown(&any.join(" or "))).await;
            let mut state = self.state();
            match found {
                Ok(files) => self.deal(&mut state, &ids, files),
                Err(refused) => {
                    // One that is gone spoils the query for all.
                    let gone = refused.fault.kind == ErrorKind::NotFound;
                    let error = refused.fault.error("list");
                    for id in &ids {
                        let Some(Slot::Flying(waiting)) = state.slots.remove(id) else { continue };
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
    fn next(&self) -> Option<Vec<String>> {
        let mut state = self.state();
        let mut ids = Vec::new();
        while let Some(id) = if ids.len() < MOST { state.queue.pop_front() } else { None } {
            match state.slots.get(&id) {
                Some(Slot::Flying(waiting)) if waiting.iter().any(|send| !send.is_closed()) => ids.push(id),
                _ => drop(state.slots.remove(&id)),
            }
        }
        if ids.is_empty() {
            state.pumps -= 1;
            return None;
        }
        while ids.len() < MOST && state.held < HELD {
            let Some(id) = state.spare.pop_front() else { break };
            if !state.slots.contains_key(&id) {
                state.slots.insert(id.clone(), Slot::Flying(Vec::new()));
                ids.push(id);
            }
        }
        Some(ids)
    }

    fn deal(&self, state: &mut State, ids: &[String], files: Vec<File>) {
        let mut each: BTreeMap<&str, Vec<File>> = ids.iter().map(|id| (&**id, Vec::new())).collect();
        for file in files {
            for parent in &file.parents {
                if let Some(own) = each.get_mut(&**parent) {
                    own.push(file.clone());
                }
            }
        }
        // The first ones are needed first.
        for id in ids.iter().rev() {
            let files = each.remove(&**id).unwrap_or_default();
            self.found(state, &files);
            match state.slots.remove(id) {
                Some(Slot::Flying(waiting)) if waiting.is_empty() => {
                    state.held += 1;
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
    }

    fn found(&self, state: &mut State, files: &[File]) {
        if !self.recursive {
            return;
        }
        let mut folders: Vec<_> = files.iter().filter(|file| file.is_folder() && file.drive_id.is_empty()).collect();
        folders.sort_by(|a, b| b.name.cmp(&a.name));
        for folder in folders {
            state.spare.push_front(folder.id.clone());
            if state.mine.len() < KNOWN {
                state.mine.insert(folder.id.clone());
            }
        }
        state.spare.truncate(SPARE);
    }
}
