//! The destination's index as a job uses it: opened once, updated with the store's answers, closed at the end.

use crate::{
    Cx,
    backup::Backup,
    index::{IndexError, IndexScope, RemoteIndex},
};
use haul_core::{
    Entry, Error, ErrorKind, Key,
    filter::Filter,
    job::{Job, Lookup},
};
use haul_store::Store;
use std::sync::{Arc, OnceLock};

/// Permitted uses of an index for a job that covers the files of `filter`, and must know `all` of them at the destination,
/// or only those of its source.
pub(crate) fn uses(job: &Job, filter: &Filter, all: bool) -> IndexScope {
    // Of these the index can't tell what they leave out of the destination.
    let facts = filter.needs_mtime() || filter.needs_meta();
    let unclear = job.listing.max_depth.is_some() || !filter.markers().is_empty() || facts;
    match all {
        _ if job.listing.lookup != Lookup::Cheapest || job.listing.no_traverse => IndexScope::Nothing,
        false => IndexScope::Wanted,
        true if unclear => IndexScope::Nothing,
        true => IndexScope::All,
    }
}

/// The destination's index, once it is opened.
#[derive(Default)]
pub(crate) struct Index(OnceLock<Arc<RemoteIndex>>);

impl Index {
    /// Opens it, if the job has one.
    pub async fn open(&self, cx: &Cx, uses: IndexScope) {
        let Some(settings) = &cx.known.index else { return };
        if let Some(index) = RemoteIndex::open(settings, &cx.dst, &cx.sink, uses).await {
            let _ = self.0.set(index);
        }
    }

    /// The index itself.
    pub fn get(&self) -> Option<&Arc<RemoteIndex>> {
        self.0.get()
    }

    /// A key of the destination is about to be written or deleted.
    pub async fn will_write(&self, dst: &Arc<dyn Store>, key: &Key, backup: &Backup) {
        if let Some(index) = self.get() {
            index.will_change(key).await;
            // The existing file may be backed up under another name first.
            if let Some(kept) = backup.kept_in(dst, key).await {
                index.will_change(&kept).await;
            }
        }
    }

    /// The store said so of a key of the destination.
    pub fn note_present(&self, entry: &Entry) {
        if let Some(index) = self.get() {
            index.note_present(entry);
        }
    }

    /// The store said that a key of the destination isn't there.
    pub fn is_absent(&self, key: &Key) {
        if let Some(index) = self.get() {
            index.note_missing(key);
        }
    }

    /// An error may tell that the index was wrong about a key.
    pub fn is_gone(&self, key: &Key, error: &Error) {
        let how = match error.kind() {
            ErrorKind::NotFound => IndexError::Gone,
            ErrorKind::Changed => IndexError::Changed,
            _ => return,
        };
        if let Some(index) = self.get().filter(|index| index.snapshot().is_some()) {
            index.contradicted(key, how);
        }
    }

    /// Keeps the job's findings for the next one.
    pub async fn end(&self) {
        if let Some(index) = self.get() {
            index.end().await;
        }
    }
}
