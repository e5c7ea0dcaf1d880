//! Questions about folders, each answered once for all that wait for it.

use crate::facts::File;
use haul_core::Result;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// Who asks for the facts of one folder.
#[derive(Debug, Default)]
struct Slot {
    /// Questions that have begun.
    begun: AtomicU64,
    /// The number of the last question that was answered, and its answer.
    last: tokio::sync::Mutex<Option<(u64, Option<File>)>>,
}

/// Folders that are being asked for: all whose files came before a question began share its answer.
#[derive(Debug, Default)]
pub struct PendingFolders(Mutex<BTreeMap<String, Arc<Slot>>>);

impl PendingFolders {
    fn slot(&self, id: &str) -> Arc<Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id.to_owned()).or_default().clone()
    }

    /// Removes the slot if nobody else holds it.
    fn leave(&self, id: &str, slot: Arc<Slot>) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(&slot) <= 2 {
            slots.remove(id);
        }
    }

    /// A folder's facts, from a `question` that begins after this call; `None` when there is no such folder.
    pub async fn ask(&self, id: &str, question: impl AsyncFnOnce() -> Result<Option<File>>) -> Result<Option<File>> {
        let slot = self.slot(id);
        let before = slot.begun.load(SeqCst);
        let answer = async {
            let mut last = slot.last.lock().await;
            if let Some((number, answer)) = &*last
                && *number > before
            {
                return Ok(answer.clone());
            }
            let number = slot.begun.fetch_add(1, SeqCst) + 1;
            let answer = question().await?;
            *last = Some((number, answer.clone()));
            Ok(answer)
        }
        .await;
        self.leave(id, slot);
        answer
    }
}
