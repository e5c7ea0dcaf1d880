//! A worker's checks before a step that can't be undone: whether the lease is still its own, by the store's answer of this moment
//! and by its own sign of life; before it deletes, also whether it still sees both ends.

use crate::{
    Board, Spec,
    ends::Machine,
    job_folder::is_removed,
    protocol::{ShardId, WorkerId},
};
use futures::future::{BoxFuture, FutureExt};
use haul::part::MayDelete;
use haul_core::{Error, ErrorKind, Result};
use haul_store::Store;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A worker's signs of life.
#[derive(Debug)]
pub(crate) struct LifeSigns {
    board: Board,
    me: WorkerId,
    given: AtomicU64,
    /// When the last one that the store took was begun.
    last: Mutex<Option<Instant>>,
}

impl LifeSigns {
    /// None was given yet.
    pub fn new(board: Board, me: WorkerId) -> LifeSigns {
        LifeSigns { board, me, given: AtomicU64::new(0), last: Mutex::default() }
    }

    /// Writes a sign of life, which differs from all before.
    ///
    /// Errors: of the store.
    pub async fn give(&self) -> Result<()> {
        let begun = Instant::now();
        let sign = serde_json::json!({ "sign": self.given.fetch_add(1, Relaxed) });
        self.board.sign(&self.me, &sign).await?;
        *self.last.lock().unwrap_or_else(|e| e.into_inner()) = Some(begun);
        Ok(())
    }

    /// True when the last one is no older than this.
    pub fn is_within(&self, age: Duration) -> bool {
        let last = *self.last.lock().unwrap_or_else(|e| e.into_inner());
        last.is_some_and(|last| last.elapsed() <= age)
    }
}

/// The hold on one shard.
pub(crate) struct ShardHold {
    pub board: Board,
    pub spec: Arc<Spec>,
    pub src: Arc<dyn Store>,
    pub dst: Arc<dyn Store>,
    pub machine: Machine,
    pub id: ShardId,
    /// The number of the record by which it is held.
    pub number: u64,
    pub signs: Arc<LifeSigns>,
    /// A worker whose sign is older may be taken for dead soon.
    pub fresh: Duration,
}

impl ShardHold {
    async fn holds_and_sees(&self) -> Result<()> {
        self.spec.ends.check((&self.src, &self.dst), self.machine).await?;
        if self.spec.fixed { Ok(()) } else { self.holds().await }
    }

    /// Asks the store only if the worker's own sign doesn't prove that nobody can have taken the shard over yet.
    ///
    /// Errors: as for [`ShardHold::holds`].
    pub async fn may_go_on(&self) -> Result<()> {
        if self.signs.is_within(self.fresh) { Ok(()) } else { self.holds().await }
    }

    /// Asks the store.
    ///
    /// Errors: `Cancelled` where the lease is lost, or may be soon; those of the store.
    pub async fn holds(&self) -> Result<()> {
        let lost = |why: &str| {
            let message = format!("nothing more is done in shard {}: {why}", self.id);
            Error::new(ErrorKind::Cancelled, "work", message)
        };
        if !self.signs.is_within(self.fresh / 2) {
            self.signs.give().await?;
        }
        // Records of a job that was removed may be there: this worker's own, written since.
        match self.board.check().await {
            Err(error) if is_removed(&error) => return Err(lost(error.message())),
            checked => checked?,
        }
        if self.board.latest(&self.id).await? != Some(self.number) {
            return Err(lost("another worker has taken it over"));
        }
        // Last: the answers above may have been long on their way.
        match self.signs.is_within(self.fresh) {
            true => Ok(()),
            false => Err(lost("this worker has given no sign of life for too long")),
        }
    }
}

impl MayDelete for ShardHold {
    fn ask(&self) -> BoxFuture<'_, Result<()>> {
        self.holds_and_sees().boxed()
    }
}
