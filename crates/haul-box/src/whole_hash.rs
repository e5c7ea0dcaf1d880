//! The SHA-1 of a whole file whose parts arrive in any order: each part is hashed in its turn. The hash state after a part is
//! kept with the part's receipt, so that a later run resumes from there without reading the earlier bytes.

use haul_core::{Error, ErrorKind, Result};
use haul_store::{Payload, disk};
use sha1::{
    Digest, Sha1,
    digest::common::hazmat::{SerializableState, SerializedState},
};
use std::collections::BTreeMap;
use tokio::sync::{Mutex, watch};

/// A part that an earlier run sent: where it begins and ends, and the hash after it.
#[derive(Clone, Debug)]
pub struct HashedPart {
    pub from: u64,
    pub end: u64,
    pub mark: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub struct WholeHash {
    state: Mutex<State>,
    /// All bytes before this one were taken in.
    turn: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    hash: Sha1,
    /// The hash after each part that was taken in, by its end.
    marks: BTreeMap<u64, Vec<u8>>,
    /// Parts that are there and whose turn hasn't come, by their beginning.
    known: BTreeMap<u64, HashedPart>,
}

impl State {
    /// Leaps over parts that are there; where it is then.
    fn leap(&mut self, mut at: u64) -> u64 {
        while let Some(known) = self.known.remove(&at) {
            let Some(hash) = restored(&known.mark) else { break };
            self.hash = hash;
            self.marks.insert(known.end, known.mark);
            at = known.end;
        }
        at
    }
}

fn restored(mark: &[u8]) -> Option<Sha1> {
    let state = SerializedState::<Sha1>::try_from(mark).ok()?;
    Sha1::deserialize(&state).ok()
}

/// True for a hash state that can be resumed.
pub fn is_mark(mark: &[u8]) -> bool {
    restored(mark).is_some()
}

impl WholeHash {
    /// For a file of which these parts exist.
    pub fn new(known: Vec<HashedPart>) -> WholeHash {
        let known = known.into_iter().map(|known| (known.from, known)).collect();
        let mut state = State { known, ..State::default() };
        let at = state.leap(0);
        WholeHash { state: Mutex::new(state), turn: watch::Sender::new(at) }
    }

    /// Takes in the bytes from `offset` on when all before them were; gives the hash after them. Again for a part that was taken in
    /// already.
    ///
    /// Errors: the bytes can't be read.
    pub async fn take(&self, offset: u64, payload: &Payload) -> Result<Vec<u8>> {
        let end = offset + payload.len();
        let stopped = |_| Error::new(ErrorKind::Cancelled, "write", "stopped");
        self.turn.subscribe().wait_for(|turn| *turn >= offset).await.map_err(stopped)?;
        let mut state = self.state.lock().await;
        if *self.turn.borrow() > offset || payload.is_empty() && state.marks.contains_key(&end) {
            let other = || Error::new(ErrorKind::Corrupt, "write", "a part of the file came again as another");
            return state.marks.get(&end).cloned().ok_or_else(other);
        }
        let (mut hash, payload) = (state.hash.clone(), payload.clone());
        let hash = disk::run(move || {
            payload.each(|bytes| hash.update(bytes))?;
            Ok(hash)
        })
        .await?;
        let mark = hash.serialize().to_vec();
        state.hash = hash;
        state.marks.insert(end, mark.clone());
        let at = state.leap(end);
        self.turn.send_replace(at);
        Ok(mark)
    }

    /// The SHA-1 of all `size` bytes; `None` while some are missing.
    pub async fn finish(&self, size: u64) -> Option<Vec<u8>> {
        let state = self.state.lock().await;
        (*self.turn.borrow() == size).then(|| state.hash.clone().finalize().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use haul_core::{Algo, hash::hash_bytes};

    #[tokio::test]
    async fn parts_in_any_order_and_those_of_an_earlier_run() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * 7) as u8).collect();
        let part = |n: usize| Payload::from(Bytes::copy_from_slice(&bytes[n * 300..((n + 1) * 300).min(1000)]));
        let sha1 = hash_bytes(&[Algo::Sha1], &bytes).get(Algo::Sha1).unwrap().to_vec();
        let whole = WholeHash::new(Vec::new());
        let parts: Vec<_> = (0..4).map(part).collect();
        let takes = [3, 1, 0, 2].map(|n: usize| whole.take(n as u64 * 300, &parts[n]));
        let marks = futures::future::join_all(takes).await;
        assert_eq!(whole.finish(1000).await.as_ref(), Some(&sha1));
        assert!(whole.finish(999).await.is_none());
        let again = whole.take(300, &parts[1]).await.unwrap();
        assert_eq!(&again, marks[1].as_ref().unwrap());
        // 0 and 2 are there.
        let mark = |at: usize| marks[at].as_ref().unwrap().clone();
        let known =
            vec![HashedPart { from: 0, end: 300, mark: mark(2) }, HashedPart { from: 600, end: 900, mark: mark(3) }];
        assert!(known.iter().all(|known| is_mark(&known.mark)) && !is_mark(b"x"));
        let later = WholeHash::new(known);
        assert!(later.finish(300).await.is_some());
        later.take(300, &parts[1]).await.unwrap();
        later.take(900, &parts[3]).await.unwrap();
        assert_eq!(later.finish(1000).await, Some(sha1));
    }
}
