//! Ctrl-C and SIGTERM: the first stops the job cleanly, the second ends the program at once.

// A second signal ends the process right here.
#![allow(clippy::disallowed_methods)]

use crate::error::code;
use haul::Cancel;
use tokio::signal::unix::{SignalKind, signal};

/// Listens for the rest of the run. A signal that can't be listened for keeps its usual effect.
pub fn listen(cancel: Cancel) {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let Ok(mut stream) = signal(kind) else { continue };
        let cancel = cancel.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if cancel.is_cancelled() {
                    // Asked twice: the person means now. Hidden partial files may stay; nothing half is visible.
                    std::process::exit(i32::from(code::INTERRUPTED));
                }
                tracing::warn!("Stopping; press Ctrl-C again to stop at once");
                cancel.cancel();
            }
        });
    }
}
