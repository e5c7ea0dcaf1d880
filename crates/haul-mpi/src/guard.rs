//! An end that comes whatever MPI does: its collective calls wait for ranks that may never come, and can't be told for how long.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Between two looks. Looks are counted: a job that Slurm suspends for an hour has waited for nobody.
const LOOK: Duration = Duration::from_millis(100);
/// How long a process that exits may run what libraries asked for at its end.
const EXIT: Duration = Duration::from_secs(2);

/// Ends this process unless it is dropped in time.
#[must_use]
pub struct Guard(Arc<AtomicBool>);

/// Ends this process with `code` after so long. `line` is printed then; launchers end the other ranks.
pub fn arm(after: Duration, code: u8, line: Option<String>) -> Guard {
    let disarmed = Arc::new(AtomicBool::new(false));
    let guard = Guard(disarmed.clone());
    thread::spawn(move || {
        let looks = after.as_millis().div_ceil(LOOK.as_millis());
        for _ in 0..looks {
            thread::sleep(LOOK);
            if disarmed.load(Ordering::Relaxed) {
                return;
            }
        }
        if let Some(line) = line {
            eprintln!("haul-mpi: {line}");
        }
        exit(code);
    });
    guard
}

/// MPI's libraries do things when a process exits, which may wait as MPI does.
#[allow(clippy::disallowed_methods)] // The main thread waits in MPI.
fn exit(code: u8) -> ! {
    thread::spawn(|| {
        thread::sleep(EXIT);
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    });
    std::process::exit(i32::from(code));
}

impl Guard {
    /// It holds until the process has ended.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs as a process of its own, by the test below.
    #[test]
    #[ignore = "ends its process"]
    fn waits_forever() {
        drop(arm(LOOK, 3, None));
        thread::sleep(3 * LOOK);
        let _armed = arm(LOOK, 7, Some("nobody comes".into()));
        loop {
            thread::park();
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // The test's own program.
    fn who_waits_too_long_ends_with_its_code() {
        let program = std::env::current_exe().unwrap();
        let arguments = ["guard::tests::waits_forever", "--exact", "--ignored", "--nocapture"];
        let ended = std::process::Command::new(program).args(arguments).output().unwrap();
        assert_eq!(ended.status.code(), Some(7), "{ended:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "haul-mpi: nobody comes\n");
    }
}
