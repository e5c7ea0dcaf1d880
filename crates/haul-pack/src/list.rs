//! Listing: the indexes are merged as they lie in memory; of several that name a key `index::decide` says what holds.

use super::{
    Shared,
    index::{Facts, Index, Said, decide},
    load::Indexes,
};
use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use haul_core::{Entry, Key, Listed, Lost};
use haul_store::ListRequest;
use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

/// Entries of a batch.
const BATCH: usize = 1000;

/// All keys of some indexes in order, each once.
pub struct Merge {
    indexes: Indexes,
    /// The next key of each index, the newest index first among equal keys: key, number of the index, of the record.
    heap: BinaryHeap<Reverse<(Bytes, Reverse<usize>, usize)>>,
}

impl Merge {
    /// From the first key that isn't before `from`.
    pub fn new(indexes: Indexes, from: &[u8]) -> Self {
        let first = indexes.iter().enumerate().filter_map(|(number, index)| {
            let record = index.from(from);
            (record < index.len()).then(|| Reverse((index.shared_key(record), Reverse(number), record)))
        });
        let heap = first.collect();
        Merge { indexes, heap }
    }

    fn pop(&mut self) -> Option<(Bytes, usize, usize)> {
        let Reverse((key, Reverse(number), record)) = self.heap.pop()?;
        let index = &self.indexes[number];
        if record + 1 < index.len() {
            self.heap.push(Reverse((index.shared_key(record + 1), Reverse(number), record + 1)));
        }
        Some((key, number, record))
    }
}

impl Iterator for Merge {
    /// A key and what is known of it; `None` when it is deleted.
    type Item = (Bytes, Option<Facts>);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, number, record) = self.pop()?;
        let mut all = vec![(number, record)];
        while self.heap.peek().is_some_and(|Reverse((next, ..))| *next == key) {
            all.extend(self.pop().map(|(_, number, record)| (number, record)));
        }
        let said = |(number, record): (usize, usize)| {
            let index: &Index = &self.indexes[number];
            Some((index.head.id.as_str(), index.said(record)?))
        };
        if let [one] = all[..] {
            return Some((key, said(one).and_then(|(_, said)| said.facts())));
        }
        let said: Vec<(&str, Said)> = all.into_iter().filter_map(said).collect();
        Some((key, decide(&said)))
    }
}

/// One listing under way.
struct Lister {
    merge: Merge,
    request: ListRequest,
    /// What the listed keys lose at their front.
    cut: usize,
    /// What they begin with before that.
    begin: Vec<u8>,
    /// The last directory that was given, in a listing of one level.
    dir: Option<Key>,
    left: usize,
}

/// Lists as [`haul_store::Store::list`] says. What the indexes say is read anew for listings of the root, so that one job sees
/// one state.
pub fn list(shared: Arc<Shared>, request: ListRequest) -> BoxStream<'static, Listed> {
    let begin = async move {
        match shared.indexes(request.prefix.is_empty()).await {
            Ok(indexes) => Lister::new(&shared, request, indexes).batches(),
            // A damaged index may name any key, so nothing is known of any.
            Err(error) => stream::iter([Listed::Failed { lost: Lost::from(Key::new("")), error }]).boxed(),
        }
    };
    stream::once(begin).flatten().boxed()
}

impl Lister {
    fn new(shared: &Shared, request: ListRequest, indexes: Indexes) -> Self {
        let begin = [&shared.prefix[..], &request.prefix].concat();
        let after = request.after.as_ref().map(|key| shared.full(key)).unwrap_or_default();
        let merge = Merge::new(indexes, if after > begin { &after } else { &begin });
        let left = request.limit.unwrap_or(usize::MAX).max(1);
        Lister { merge, request, cut: shared.prefix.len(), begin, dir: None, left }
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

    /// What a key is in the listing; `None` when it isn't in it, or its directory is already.
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
            _ => facts.entry(Key::new(key), self.request.meta),
        };
        self.request.after.as_ref().is_none_or(|after| entry.key > *after).then_some(entry)
    }
}
