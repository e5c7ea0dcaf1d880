//! All that several indexes say, in the order of keys, merged as it lies in memory.

use super::index::{Facts, Index, IndexEntry, Indexes, decide};
use bytes::Bytes;
use std::{cmp::Reverse, collections::BinaryHeap};

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
        let entry_of = |(number, record): (usize, usize)| {
            let index: &Index = &self.indexes[number];
            Some((index.head.id.as_str(), index.entry_at(record)?))
        };
        if let [one] = all[..] {
            return Some((key, entry_of(one).and_then(|(_, entry)| entry.facts())));
        }
        let entries: Vec<(&str, IndexEntry)> = all.into_iter().filter_map(entry_of).collect();
        Some((key, decide(&entries)))
    }
}

/// True when a key begins with `prefix`.
pub fn holds(merge: Merge, prefix: &[u8]) -> bool {
    merge.take_while(|(key, _)| key.starts_with(prefix)).any(|(_, facts)| facts.is_some())
}
