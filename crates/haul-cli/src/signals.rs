//! Ctrl-C, SIGTERM, and SIGHUP of a terminal that is closed: the first stops the job cleanly, the second ends the program at once.

// A second signal ends the process right here.
#![allow(clippy::disallowed_methods)]

use crate::{error::code, prompt};
use haul::Cancel;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::signal::unix::{SignalKind, signal};

/// See [`was_asked`].
static ASKED: AtomicBool = AtomicBool::new(false);

/// True once a signal has come, also while the line about it is still being written.
pub fn was_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// The line about it may take so long: a terminal or pipe that takes nothing just now must hold up neither the end nor a second
/// signal.
const SAID_WITHIN: Duration = Duration::from_millis(200);

/// A command that doesn't end itself is ended at once, unless it is being held up by what doesn't take its output: then after this.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// It was started to outlive its terminal (nohup), or nobody can tell.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    // The first bit is signal 1.
    ignored.is_none_or(|ignored| ignored & 1 != 0)
}

/// Ends in the middle of everything.
fn end_now() -> ! {
    let _ = prompt::put_terminal_back();
    std::process::exit(i32::from(code::INTERRUPTED));
}

/// Listens for the rest of the run. A signal that can't be listened for keeps its usual effect. `finishes_itself`: the command has
/// something to put in order before it ends, however long that takes.
pub fn listen(cancel: Cancel, finishes_itself: bool) {
    let hangup = (!ignores_hangup()).then(SignalKind::hangup);
    for kind in [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hangup) {
        let is_request = Some(kind) != hangup;
        let Ok(mut stream) = signal(kind) else { continue };
        let cancel = cancel.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                ASKED.store(true, Ordering::Relaxed);
                if cancel.is_cancelled() && !is_request {
                    // A terminal that is closed says so by its shell too.
                    continue;
                }
                if cancel.is_cancelled() {
                    // Asked twice: the person means now. Hidden partial files may stay; nothing half is visible.
                    end_now();
                }
                let warned =
                    tokio::task::spawn_blocking(|| tracing::warn!("Stopping; press Ctrl-C again to stop at once"));
                let _ = tokio::time::timeout(SAID_WITHIN, warned).await;
                cancel.cancel();
                if !finishes_itself {
                    std::thread::spawn(|| {
                        std::thread::sleep(ENDS_WITHIN);
                        end_now();
                    });
                }
            }
        });
    }
}
