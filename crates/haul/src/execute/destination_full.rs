//! A destination without room: the job ends at the first file that finds none, and one line says how much is missing.

use crate::ledger::Ledger;
use haul_core::{Error, ErrorKind, units::size_short};
use haul_store::Store;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// State of a job's bytes when the destination is full.
pub(super) struct DestinationFull {
    dst: Arc<dyn Store>,
    ledger: Arc<Ledger>,
    ordered: AtomicU64,
    arrived: AtomicU64,
    /// Everything that is to be transferred was ordered.
    complete: AtomicBool,
    /// The first file that found no room.
    first: Mutex<Option<Error>>,
}

impl DestinationFull {
    /// Nothing was ordered yet.
    pub fn new(dst: &Arc<dyn Store>, ledger: &Arc<Ledger>) -> DestinationFull {
        DestinationFull {
            dst: dst.clone(),
            ledger: ledger.clone(),
            ordered: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            complete: AtomicBool::new(false),
            first: Mutex::default(),
        }
    }

    /// So many bytes are to be transferred.
    pub fn ordered(&self, bytes: u64) {
        self.ordered.fetch_add(bytes, Ordering::Relaxed);
    }

    /// This many of them have arrived.
    pub fn arrived(&self, bytes: u64) {
        self.arrived.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The walk came to its end.
    pub fn all_is_known(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    /// Ends the job, as the destination is full. What comes back stands for the file's own error.
    pub fn no_room(&self, error: Error) -> Error {
        self.ledger.report().stopped.get_or_insert(ErrorKind::NoSpace);
        self.ledger.wind_down();
        self.first.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
        Error::new(ErrorKind::Cancelled, "transfer", "stopped as the destination is full")
    }

    /// True when the job was ended since there is no room.
    pub fn is_full(&self) -> bool {
        self.ledger.report().stopped == Some(ErrorKind::NoSpace)
    }

    /// Says what didn't fit, if something didn't.
    pub async fn say(&self) {
        let Some(first) = self.first.lock().unwrap_or_else(|e| e.into_inner()).take() else { return };
        let to_go = self.ordered.load(Ordering::Relaxed).saturating_sub(self.arrived.load(Ordering::Relaxed));
        // For a store that doesn't report free space, the files to delete must be enough.
        let free = match self.dst.admin() {
            Some(admin) => admin.about().await.ok().and_then(|space| space.free),
            None => None,
        };
        let text = message(self.dst.locator(), to_go, free, self.complete.load(Ordering::Relaxed));
        let key = first.key().map(|key| format!(" (it began with {key}: {})", first.message())).unwrap_or_default();
        self.ledger.error(Error::new(ErrorKind::NoSpace, "copy", text + &key));
    }
}

/// The facts a person needs to make room.
fn message(place: &str, to_go: u64, free: Option<u64>, complete: bool) -> String {
    let least = if complete { "" } else { "at least " };
    let size_short = |bytes| if bytes < 1024 { format!("{bytes} B") } else { size_short(bytes) };
    let left = format!("no space left at {place}: {least}{} are still to be copied", size_short(to_go));
    match free {
        // Files take whole blocks, and a quota or the inodes may be what has run out.
        Some(free) if free >= to_go => {
            format!("{left} and {} are free: look for a quota or missing inodes", size_short(free))
        }
        Some(free) => {
            let missing = size_short(to_go - free);
            format!("{left} and {} are free: {least}{missing} are missing", size_short(free))
        }
        None => left,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;
    use haul_core::{Key, event::NoSink};
    use haul_mem::MemStore;

    #[tokio::test]
    async fn the_first_file_without_room_ends_the_job_and_is_named_once() {
        let ledger = Arc::new(Ledger::new(Arc::new(NoSink), Cancel::default(), Arc::default(), false));
        let dst: Arc<dyn Store> = Arc::new(MemStore::new());
        let full = DestinationFull::new(&dst, &ledger);
        full.ordered(500);
        full.arrived(71);
        assert!(!full.is_full());
        for key in ["a", "b"] {
            let error = Error::new(ErrorKind::NoSpace, "write", "no space left on device").with_key(&Key::new(key));
            assert_eq!(full.no_room(error).kind(), ErrorKind::Cancelled);
        }
        assert!(full.is_full() && ledger.stopping());
        full.say().await;
        full.say().await;
        let report = ledger.report();
        assert_eq!(report.error_count, 1);
        let text = report.errors[0].message();
        assert!(text.contains("at least 429 B are still to be copied"), "{text}");
        assert!(text.ends_with("(it began with a: no space left on device)"), "{text}");
    }

    #[test]
    fn the_line_says_how_much_is_missing() {
        assert_eq!(
            message("/data", 3 << 30, Some(1 << 30), true),
            "no space left at /data: 3Gi are still to be copied and 1Gi are free: 2Gi are missing"
        );
        assert_eq!(
            message("/data", 3 << 30, Some(1 << 30), false),
            "no space left at /data: at least 3Gi are still to be copied and 1Gi are free: at least 2Gi are missing"
        );
        assert_eq!(
            message("/data", 1 << 20, Some(1 << 30), true),
            "no space left at /data: 1Mi are still to be copied and 1Gi are free: look for a quota or missing inodes"
        );
        assert_eq!(
            message("/data", 429, Some(1 << 30), true),
            "no space left at /data: 429 B are still to be copied and 1Gi are free: look for a quota or missing inodes"
        );
        assert_eq!(message("r:b", 1 << 20, None, true), "no space left at r:b: 1Mi are still to be copied");
    }
}
