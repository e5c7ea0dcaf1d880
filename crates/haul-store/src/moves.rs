//! Moves whose answers were lost: the request is repeated, and then the source is gone. Whether the first try had moved it shows at the
//! destination.

use crate::{CopyHow, CopyItem, StoredFacts};
use haul_core::{Entry, Key, Result};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Moves of a store that may have been done although nobody was told so.
#[derive(Debug, Default)]
pub struct LostMoves(Mutex<HashMap<(Key, Key), Entry>>);

impl LostMoves {
    /// Notes that the answer to a move of `source` was lost.
    pub fn note(&self, item: &CopyItem, source: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((item.from.clone(), item.to.clone()), source);
    }

    /// Forgets that of a move which was made after all.
    pub fn forget(&self, item: &CopyItem) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.is_empty() {
            notes.remove(&(item.from.clone(), item.to.clone()));
        }
    }

    /// For a move whose source isn't there any more: what an earlier try has stored, if its answer was lost and `there`, which is asked
    /// only then, says that the destination has what was moved. Of files that is one of the same size and hash, where the service tells
    /// no hash the same time; `same` says of both entries whatever else must agree.
    pub async fn done(
        &self,
        item: &CopyItem,
        there: impl Future<Output = Result<Entry>>,
        same: impl Fn(&Entry, &Entry) -> bool,
    ) -> Option<StoredFacts> {
        if !matches!(item.how, CopyHow::Rename | CopyHow::RenameDir) {
            return None;
        }
        let place = (item.from.clone(), item.to.clone());
        let source = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned()?;
        let there = there.await.ok()?;
        if !is_moved(&source, &there) || !same(&source, &there) {
            return None;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
        Some(StoredFacts { version: there.version, size: there.size, hashes: there.hashes, ..StoredFacts::default() })
    }
}

fn is_moved(source: &Entry, there: &Entry) -> bool {
    let same = || match source.hashes.agree(&there.hashes) {
        Some((_, same)) => same,
        None => source.mtime.is_some() && source.mtime == there.mtime,
    };
    source.kind == there.kind && (source.is_dir() || source.size == there.size && same())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Algo, Error, ErrorKind, Mtime, hash::hash_bytes};

    #[tokio::test]
    async fn a_move_counts_as_done_only_where_its_answer_was_lost_and_the_file_is_there() {
        let item = CopyItem {
            from: Key::new("a"),
            want: None,
            size: 3,
            to: Key::new("b"),
            spec: Default::default(),
            how: CopyHow::Rename,
        };
        let file = |size, time: Option<i128>, content: Option<&[u8]>| Entry {
            mtime: time.map(Mtime),
            hashes: content.map(|bytes| hash_bytes(&[Algo::Md5], bytes)).unwrap_or_default(),
            ..Entry::file(Key::new("b"), size)
        };
        let missing = || Error::new(ErrorKind::NotFound, "stat", "missing");
        let source = file(3, Some(1), Some(b"abc"));
        let said = async |moves: &LostMoves, there: Option<Entry>| {
            moves.done(&item, async { there.ok_or_else(missing) }, |_, _| true).await.is_some()
        };
        let none = LostMoves::default();
        assert!(none.done(&item, async { unreachable!("nothing was lost") }, |_, _| true).await.is_none());
        for (there, is_done) in [
            (Some(file(3, Some(2), Some(b"abc"))), true),
            (Some(file(3, Some(1), Some(b"abd"))), false),
            (Some(file(4, Some(1), None)), false),
            (Some(file(3, Some(1), None)), true),
            (Some(file(3, Some(2), None)), false),
            (Some(file(3, None, None)), false),
            (Some(Entry::dir(Key::new("b"))), false),
            (None, false),
        ] {
            let moves = LostMoves::default();
            moves.note(&item, source.clone());
            assert_eq!(said(&moves, there.clone()).await, is_done, "{there:?}");
            assert_eq!(said(&moves, Some(source.clone())).await, !is_done, "it counts once");
        }
        let moves = LostMoves::default();
        moves.note(&item, source.clone());
        assert!(moves.done(&item, async { Ok(source.clone()) }, |_, _| false).await.is_none());
        moves.forget(&item);
        assert!(moves.done(&item, async { unreachable!("it was made") }, |_, _| true).await.is_none());
    }
}
