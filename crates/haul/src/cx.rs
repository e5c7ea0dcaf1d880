//! Everything that a job touches and that isn't data: stores, filter, sink, counters, cancellation. No globals.

use crate::{index::EarlierKnowledge, journal::Journal};
use haul_core::{Error, ErrorKind, Key, event::Sink, filter::Filter};
use haul_store::{Meters, Store};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

/// The surroundings of one job.
#[derive(Clone)]
pub struct Cx {
    /// Where data comes from.
    pub src: Arc<dyn Store>,
    /// Where data goes to.
    pub dst: Arc<dyn Store>,
    /// Where replaced and deleted files are moved (`--backup-dir`); same copy domain as `dst`.
    pub backup: Option<Arc<dyn Store>>,
    /// Files in these stores need not be copied (`--compare-dest`).
    pub compare_dest: Vec<Arc<dyn Store>>,
    /// Files in these stores are copied from there, inside the provider (`--copy-dest`).
    pub copy_dest: Vec<Arc<dyn Store>>,
    /// The files that the job covers; the same for both sides.
    pub filter: Arc<Filter>,
    /// Receives events.
    pub sink: Arc<dyn Sink>,
    /// Counts requests and retries.
    pub meters: Arc<Meters>,
    /// Stops the job.
    pub cancel: Cancel,
    /// Asked before each step that changes something (`--interactive`); `None` means yes to all.
    pub confirm: Option<Arc<dyn Confirm>>,
    /// Remembers large files that are on their way, for the next run; `None` lets them begin again.
    pub journal: Option<Journal>,
    /// Facts from earlier runs that it may rely on.
    pub known: EarlierKnowledge,
}

impl Cx {
    /// Files that are handed to the destination's store at once, where it copies by itself. At least 1.
    pub(crate) fn copy_batch(&self) -> usize {
        self.src.caps().copy_batch.min(self.dst.caps().copy_batch).max(1)
    }
}

#[cfg(test)]
impl Cx {
    /// Between two stores, with nothing else around.
    pub(crate) fn between(src: Arc<dyn Store>, dst: Arc<dyn Store>) -> Cx {
        Cx {
            src,
            dst,
            backup: None,
            compare_dest: vec![],
            copy_dest: vec![],
            filter: Arc::default(),
            sink: Arc::new(haul_core::event::NoSink),
            meters: Arc::default(),
            cancel: Cancel::default(),
            confirm: None,
            journal: None,
            known: EarlierKnowledge::default(),
        }
    }
}

/// Asks a person about one change.
pub trait Confirm: Send + Sync {
    /// May `what` (for example `delete`) be done to `key`? Blocks until answered. It isn't asked again after [`Answer::Quit`], but by
    /// questions that wait meanwhile.
    fn ask(&self, what: &str, key: &Key) -> Answer;
}

/// A person's answer about one change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It may be done.
    Yes,
    /// Not this.
    No,
    /// No to this and to all that comes; what was answered before is done.
    Quit,
}

/// The error of a job that was stopped.
pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "transfer", "stopped")
}

/// Stops a job from outside: nothing new is started, what is running is given up without leaving half a file
/// visible. Clones share one state.
#[derive(Clone, Default)]
pub struct Cancel(Arc<State>);

#[derive(Default)]
struct State {
    set: AtomicBool,
    notify: Notify,
}

impl Cancel {
    /// Stops the job.
    pub fn cancel(&self) {
        self.0.set.store(true, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    /// True once stopped.
    pub fn is_cancelled(&self) -> bool {
        self.0.set.load(Ordering::SeqCst)
    }

    /// Resolves once stopped.
    pub async fn cancelled(&self) {
        let notified = self.0.notify.notified();
        tokio::pin!(notified);
        // Registered before the check, so a call in between isn't missed.
        notified.as_mut().enable();
        if !self.is_cancelled() {
            notified.await;
        }
    }
}
