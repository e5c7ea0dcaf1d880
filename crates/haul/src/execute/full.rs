//! A destination without room: the job ends at the first file that finds none, and one line says how much is missing.

use super::Executor;
use haul_core::{Error, ErrorKind, job::Fsync, units::size_short};
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// What is known of a job's bytes when the destination is full.
#[derive(Default)]
pub(super) struct Full {
    ordered: AtomicU64,
    arrived: AtomicU64,
    /// Everything that is to be transferred was ordered.
    complete: AtomicBool,
    /// The first file that found no room.
    first: Mutex<Option<Error>>,
}

impl Full {
    /// So many bytes are to be transferred.
    pub(super) fn ordered(&self, bytes: u64) {
        self.ordered.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of them are there.
    pub(super) fn arrived(&self, bytes: u64) {
        self.arrived.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The walk came to its end.
    pub(super) fn all_is_known(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }
}

impl Executor {
    /// Ends the job, as the destination is full. What comes back stands for the file's own error.
    pub(crate) fn no_room(&self, error: Error) -> Error {
        self.ledger.report().stopped.get_or_insert(ErrorKind::NoSpace);
        self.ledger.wind_down();
        self.full.first.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
        Error::new(ErrorKind::Cancelled, "transfer", "stopped as the destination is full")
    }

    /// True when the job was ended since there is no room.
    pub(crate) fn is_full(&self) -> bool {
        self.ledger.report().stopped == Some(ErrorKind::NoSpace)
    }

    /// Says what didn't fit, if something didn't.
    pub(super) async fn say_if_full(&self) {
        let Some(first) = self.full.first.lock().unwrap_or_else(|e| e.into_inner()).take() else { return };
        let to_go = self.full.ordered.load(Ordering::Relaxed).saturating_sub(self.full.arrived.load(Ordering::Relaxed));
        // Of a store that can't say, what is to go has to be enough.
        let free = match self.cx.dst.admin() {
            Some(admin) => admin.about().await.ok().and_then(|space| space.free),
            None => None,
        };
        let complete = self.full.complete.load(Ordering::Relaxed);
        let said = message(self.cx.dst.locator(), to_go, free, complete);
        let key = first.key().map(|key| format!(" (it began with {key}: {})", first.message())).unwrap_or_default();
        self.ledger.error(Error::new(ErrorKind::NoSpace, "copy", said + &key));
    }

    /// `--fsync end`: what was written is on the device before the job says that it is done.
    pub(super) async fn force_to_device(&self) {
        if self.job.write.fsync != Fsync::End {
            return;
        }
        for (at, store) in std::iter::once(&self.cx.dst).chain(&self.cx.backup).enumerate() {
            let Some(admin) = store.admin() else { continue };
            match admin.sync().await {
                // Nothing had to be kept, so that nobody made the folder for it.
                Err(error) if at > 0 && error.kind() == ErrorKind::DirNotFound => {}
                Err(error) if error.kind() != ErrorKind::Unsupported => self.ledger.error(error),
                _ => {}
            }
        }
    }
}

/// What a person has to know to make room.
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
