//! Listing: the indexes are merged as they lie in memory; of several that name a key `index::decide` says what holds.

use super::{
    Shared,
    index::{Facts, Indexes},
    merge::{Merge, holds},
    missing::MissingFiles,
};
use futures::{StreamExt, stream, stream::BoxStream};
use haul_core::{Entry, Key, Listed, MissedRange};
use haul_store::{ListRequest, pages};
use std::sync::Arc;

/// Entries of a batch.
const BATCH: usize = 1000;

/// One listing under way.
struct Lister {
    merge: Merge,
    missing: Arc<MissingFiles>,
    request: ListRequest,
    /// Length of the prefix cut from listed keys.
    cut: usize,
    /// That prefix and the request's.
    begin: Vec<u8>,
    /// The last directory that was given, in a listing of one level.
    dir: Option<Key>,
    left: usize,
}

/// Lists as [`haul_store::Store::list`] says. Indexes are read anew for listings of the root, so that one job sees
/// one state.
pub fn list(shared: Arc<Shared>, request: ListRequest) -> BoxStream<'static, Listed> {
    let begin = async move {
        let indexes = match request.prefix.is_empty() {
            true => shared.indexes_to_list().await,
            false => shared.indexes(false).await,
        };
        match indexes {
            Ok(indexes) if is_missing(&shared, &request, &indexes) => {
                let error = pages::no_root(&shared.locator, "list");
                stream::iter([Listed::Failed { lost: MissedRange::from(Key::new("")), error }]).boxed()
            }
            Ok(indexes) => Lister::new(&shared, request, indexes).batches(),
            // A damaged index may name any key, so nothing is known of any.
            Err(error) => stream::iter([Listed::Failed { lost: MissedRange::from(Key::new("")), error }]).boxed(),
        }
    };
    stream::once(begin).flatten().boxed()
}

/// True of a directory of packs that is listed from its root on and in which nothing is.
fn is_missing(shared: &Shared, request: &ListRequest, indexes: &Indexes) -> bool {
    let whole = request.prefix.is_empty() && request.after.is_none();
    whole && !shared.prefix.is_empty() && !holds(Merge::new(indexes.clone(), &shared.prefix), &shared.prefix)
}

impl Lister {
    fn new(shared: &Shared, request: ListRequest, indexes: Indexes) -> Self {
        let begin = [&shared.prefix[..], &request.prefix].concat();
        let after = request.after.as_ref().map(|key| shared.full(key)).unwrap_or_default();
        let merge = Merge::new(indexes, if after > begin { &after } else { &begin });
        let left = request.limit.unwrap_or(usize::MAX).max(1);
        Lister { merge, missing: shared.view.missing(), request, cut: shared.prefix.len(), begin, dir: None, left }
    }

    fn batches(self) -> BoxStream<'static, Listed> {
        stream::unfold(Some(self), |lister| async move {
            let mut lister = lister?;
            match lister.batch() {
                batch if batch.is_empty() => (lister.left > 0).then_some((Listed::End, None)),
                batch => Some((Listed::Batch(batch), Some(lister))),
            }
        })
        .boxed()
    }

    fn batch(&mut self) -> Vec<Entry> {
        let mut batch = Vec::new();
        while batch.len() < BATCH && self.left > 0 {
            let Some((full, facts)) = self.merge.next() else { break };
            if !full.starts_with(&self.begin) {
                break;
            }
            let Some(entry) = facts.and_then(|facts| self.entry(&full, &facts)) else { continue };
            self.left -= 1;
            batch.push(entry);
        }
        batch
    }

    /// The listing entry of a key; `None` when the key isn't part of the listing, or its directory was listed already.
    fn entry(&mut self, full: &[u8], facts: &Facts) -> Option<Entry> {
        let key = &full[self.cut..];
        let rest = &key[self.request.prefix.len()..];
        let entry = match rest.iter().position(|b| *b == b'/') {
            Some(at) if !self.request.recursive && at + 1 < rest.len() => {
                let dir = Key::new(&key[..self.request.prefix.len() + at + 1]);
                if self.dir.as_ref() == Some(&dir) {
                    return None;
                }
                self.dir = Some(dir.clone());
                Entry::dir(dir)
            }
            _ => Entry {
                damaged: self.missing.holds(full, &facts.place),
                ..facts.entry(Key::new(key), self.request.meta)
            },
        };
        self.request.after.as_ref().is_none_or(|after| entry.key > *after).then_some(entry)
    }
}
