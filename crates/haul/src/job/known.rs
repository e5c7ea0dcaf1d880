//! What a job goes by of what earlier runs found out of its destination, and what it notes for later ones.

use super::Run;
use crate::index::{RemoteIndex, Use, Uses, Wrong, noted};
use futures::stream::BoxStream;
use haul_core::{
    Entry, Error, ErrorKind, Key, Listed,
    compare::{HashAnswer, Need, Verdict, compare},
    policy::{DeleteWhen, Mode},
};
use std::sync::Arc;

impl Run {
    /// Opens the destination's index, if the job has one.
    pub(super) async fn open_index(&self) {
        let Some(settings) = &self.cx.known.index else { return };
        let uses = self.uses_of_index();
        if let Some(index) = RemoteIndex::open(settings, &self.cx.dst, &self.cx.sink, uses).await {
            let _ = self.index.set(index);
        }
    }

    /// What this job may go by the index for. A move deletes its source, so it believes nobody but the store.
    fn uses_of_index(&self) -> Uses {
        let (policy, filter) = (&self.policy, &self.cx.filter);
        let asks = policy.no_check_dest || policy.no_traverse || policy.list_all || policy.rsync.is_some();
        let attributes = self.attributes.keep.is_some() || policy.use_server_mtime;
        match self.mode {
            _ if asks || attributes => Uses::Nothing,
            Mode::Copy | Mode::Check => Uses::Wanted,
            // Of these the index can't tell what of the destination they leave out.
            Mode::Sync if policy.max_depth.is_some() || !filter.markers().is_empty() || filter.needs_mtime() => {
                Uses::Nothing
            }
            Mode::Sync if policy.delete_when == DeleteWhen::Before => Uses::Nothing,
            Mode::Sync => Uses::All,
            Mode::Move => Uses::Nothing,
        }
    }

    /// How the job goes by the index; `None` when it doesn't.
    pub(super) fn use_of_index(&self) -> Option<Use> {
        let index = self.index.get()?;
        let snapshot = index.snapshot()?;
        let all = self.mode == Mode::Sync;
        let (rules, about) = (self.rules, self.dst_filter());
        if all && !index.knows_all(&about) {
            return None;
        }
        let settles = move |src: &Entry, dst: &Entry| match compare(src, dst, &rules, false, HashAnswer::NotAsked) {
            Verdict::Same(_) => true,
            // The hashes are in the index.
            Verdict::Ask(Need::Hash) => !dst.hashes.is_empty() && rules.compare == haul_core::policy::Compare::Checksum,
            _ => false,
        };
        let is_about = move |dst: &Entry| about.wants_name(dst);
        let extras = all.then(|| Arc::new(is_about) as _);
        Some(Use { index: index.clone(), snapshot, settles: Arc::new(settles), extras })
    }

    /// All of the destination is listed to see whether the index is right.
    pub(super) fn verifies_index(&self) -> bool {
        self.index.get().is_some_and(|index| index.to_verify().is_some())
    }

    /// The destination's listing, noted in the index as it goes by.
    pub(super) fn noted(&self, listing: BoxStream<'static, Listed>) -> BoxStream<'static, Listed> {
        let filter = self.policy.max_depth.is_none().then(|| self.dst_filter());
        noted(listing, self.index.get(), filter)
    }

    /// The store said so of a key of the destination.
    pub fn saw(&self, entry: &Entry) {
        if let Some(index) = self.index.get() {
            index.saw(entry);
        }
    }

    /// The store said that a key of the destination isn't there.
    pub fn is_absent(&self, key: &Key) {
        if let Some(index) = self.index.get() {
            index.gone(key);
        }
    }

    /// A key of the destination is about to be written or deleted, whatever was found there: the index may know of it.
    pub async fn will_write(&self, key: &Key) {
        if let Some(index) = self.index.get() {
            index.will_change(key).await;
            // What is there may be kept under another name first.
            if let Some(kept) = self.backup().kept_in(&self.cx.dst, key) {
                index.will_change(&kept).await;
            }
        }
    }

    /// An error may tell that the index was wrong about a key.
    pub(super) fn is_gone(&self, key: &Key, error: &Error) {
        let how = match error.kind() {
            ErrorKind::NotFound => Wrong::Gone,
            ErrorKind::Changed => Wrong::Changed,
            _ => return,
        };
        if let Some(index) = self.index.get().filter(|index| index.snapshot().is_some()) {
            index.contradicted(key, how);
        }
    }

    /// What the job found out is kept for the next one.
    pub(super) async fn end_index(&self) {
        if let Some(index) = self.index.get() {
            index.end().await;
        }
    }
}
