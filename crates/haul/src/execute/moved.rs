//! The sources of a move: each is deleted once it is proved to be at the destination, at exactly the version that arrived. They go in
//! batches.

use crate::{
    cx::Cx,
    ledger::Ledger,
    presence::{self, Answer},
    spool::Gone,
};
use haul_core::{Error, ErrorKind, Key, Side, event::Event, job::Job};
use haul_store::Store;
use std::sync::{Arc, Mutex, MutexGuard};

/// Moved sources, those that wait to be deleted.
pub(crate) struct MovedSources {
    src: Arc<dyn Store>,
    ledger: Arc<Ledger>,
    /// Questions at once; `None` lets the store choose.
    at_once: Option<usize>,
    waiting: Mutex<Vec<Gone>>,
}

impl MovedSources {
    /// None waits yet.
    pub fn new(job: &Job, cx: &Cx, ledger: &Arc<Ledger>) -> MovedSources {
        let (src, ledger) = (cx.src.clone(), ledger.clone());
        MovedSources { src, ledger, at_once: job.pace.checkers, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Gone>> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One that is at the destination, in the version that is there.
    pub fn push(&self, moved: Gone) {
        self.waiting().push(moved);
    }

    /// Counts and tells one that is no more, as it was renamed to where it is now.
    pub fn renamed(&self, key: &Key, size: u64) {
        self.ledger.report().totals.deletes += 1;
        self.ledger.tell(Event::Deleted { side: Side::Src, key: key.clone(), size });
    }

    /// Deletes a full batch, or `all` that are left.
    pub async fn delete(&self, all: bool) {
        let moved = {
            let mut waiting = self.waiting();
            if waiting.is_empty() || (!all && waiting.len() < self.src.caps().delete_batch) {
                return;
            }
            std::mem::take(&mut *waiting)
        };
        let moved = self.still_there(moved).await;
        let request = moved.iter().map(|moved| (moved.key.clone(), moved.version.clone())).collect();
        for (moved, answer) in moved.iter().zip(self.src.delete(request).await) {
            match answer {
                Ok(()) => self.renamed(&moved.key, moved.size),
                Err(error) => self.ledger.error(error.with_key(&moved.key)),
            }
        }
    }

    /// Keeps only those moved sources that may be deleted. A store that deletes whatever has the name is asked first whether it is
    /// still the version that was copied: anything newer would be the only copy.
    async fn still_there(&self, mut moved: Vec<Gone>) -> Vec<Gone> {
        if self.src.caps().deletes_version {
            return moved;
        }
        moved.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let keys = moved.iter().map(|moved| moved.key.clone()).collect();
        let options = presence::Options { method: None, at_once: self.at_once };
        let found = presence::find(&self.src, keys, options).await;
        let mut may_go = Vec::with_capacity(moved.len());
        for (moved, (key, answer)) in moved.into_iter().zip(found.answers) {
            let copied = &moved.version;
            let now = match answer {
                // Not every service lists encrypted content under the ETag that it gives to those who ask.
                Answer::There(now) if copied.is_some() && now.version != *copied => self.src.stat(&key).await,
                Answer::Unknown(error) => Err(error.to_report()),
                // A file that is missing by now counts as deleted.
                Answer::There(_) | Answer::Absent | Answer::NotAsked => {
                    may_go.push(moved);
                    continue;
                }
            };
            match now {
                Ok(now) if now.version == *copied => may_go.push(moved),
                Ok(_) => {
                    let message = "changed since it was copied: it stays";
                    self.ledger.error(Error::new(ErrorKind::Changed, "delete", message).with_key(&key));
                }
                Err(error) => self.ledger.error(error.with_key(&key)),
            }
        }
        may_go
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;
    use bytes::Bytes;
    use haul_core::event::NoSink;
    use haul_mem::MemStore;
    use haul_store::{Late, Payload, WriteSpec};

    /// Sources in a store that deletes whatever has the name, by as many as go in a batch.
    async fn moved(delete_batch: usize, keys: &[&str]) -> MovedSources {
        let store = MemStore::new().with_caps(|caps| {
            (caps.deletes_version, caps.delete_batch) = (false, delete_batch);
        });
        let src: Arc<dyn Store> = Arc::new(store);
        let ledger = Arc::new(Ledger::new(Arc::new(NoSink), Cancel::default(), Arc::default(), false));
        let moved = MovedSources { src, ledger, at_once: None, waiting: Mutex::default() };
        for key in keys {
            put(&moved, key, "moved").await;
            moved.push(moved.src.stat(&Key::new(*key)).await.unwrap().into());
        }
        moved
    }

    async fn put(moved: &MovedSources, key: &str, text: &'static str) {
        let upload = moved.src.write(&Key::new(key), WriteSpec::default()).await.unwrap();
        let part = upload.part(0, 0, Payload::from(Bytes::from(text))).await.unwrap();
        upload.publish(vec![part], Late::default()).await.unwrap();
    }

    async fn left(moved: &MovedSources, keys: &[&str]) -> Vec<bool> {
        let mut left = Vec::new();
        for key in keys {
            left.push(moved.src.stat(&Key::new(*key)).await.is_ok());
        }
        left
    }

    #[tokio::test]
    async fn they_go_when_they_fill_a_batch_or_at_the_end() {
        let keys = ["a", "b"];
        let few = moved(3, &keys).await;
        few.delete(false).await;
        assert_eq!(left(&few, &keys).await, [true, true]);
        few.delete(true).await;
        assert_eq!((left(&few, &keys).await, few.ledger.report().totals.deletes), (vec![false, false], 2));
        let full = moved(2, &keys).await;
        full.delete(false).await;
        assert_eq!(left(&full, &keys).await, [false, false]);
    }

    #[tokio::test]
    async fn one_that_changed_since_stays_and_is_an_error() {
        let sources = moved(3, &["new", "old"]).await;
        put(&sources, "new", "written meanwhile").await;
        sources.delete(true).await;
        assert_eq!(left(&sources, &["new", "old"]).await, [true, false]);
        let report = sources.ledger.report();
        assert_eq!((report.error_count, report.totals.deletes), (1, 1));
        assert_eq!(report.errors[0].message(), "changed since it was copied: it stays");
    }
}
