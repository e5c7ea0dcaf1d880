//! Files that changed just before they are read. A change shows only in a file's timestamps, and those hide two things: a write
//! sets the timestamp as it begins, and may run for long after; and a second write within one clock tick may leave the
//! timestamps unchanged. So callers that rely on timestamps to detect a change during a read ask here first.
//!
//! Changes that no timestamp shows stay unseen: writes through a mapping whose pages are dirty already, and on network file systems writes
//! by another machine.

use haul_core::Mtime;
use rustix::fs::SeekFrom;
use std::{os::fd::AsFd, thread, time::Duration};

/// Kernels tick every 1 to 10 ms. A file that is changed more often than this is never still.
const TICK: Duration = Duration::from_millis(12);
/// File systems that keep whole seconds, or two of them (FAT).
const COARSE_TICK: Duration = Duration::from_millis(2100);
/// By then a file system has written a change out: those that wait longest, for half a minute.
const WRITTEN_OUT: Duration = Duration::from_secs(60);
/// How long ago a write may have begun that is still under way: longer than a disk takes for as much as one call writes.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// Waits until every write that began before shows in what is read from `file`, and every later one in its times. True when that
/// took anything: then its facts are to be asked again. It takes nothing for a file whose `mtime` isn't of the last seconds: a write
/// sets that too, and whoever set it back (as archiving tools do, and haul) had written. Blocks.
pub fn wait(file: impl AsFd, mtime: Mtime, ctime: Mtime) -> bool {
    // One time alone may have been given to the file by a user.
    let coarse = (mtime.nanos(), ctime.nanos()) == (0, 0);
    let Some(pause) = due(mtime, coarse, Mtime(jiff::Timestamp::now().as_nanosecond())) else { return false };
    if !pause.is_zero() {
        thread::sleep(pause);
    }
    // File systems that let a read see half of a write lock the file for writing and for this; the answer is of no use.
    let _ = rustix::fs::seek(file, SeekFrom::Data(0));
    true
}

/// True for a file that changed within the last minute. Until it is written out, some file systems don't know where its holes are:
/// OpenZFS up to 2.2.1 reported data as holes (its issue 15526), and so may a network file system on top of one.
pub fn is_fresh(mtime: Mtime, ctime: Mtime) -> bool {
    jiff::Timestamp::now().as_nanosecond() - mtime.max(ctime).0 < WRITTEN_OUT.as_nanos() as i128
}

/// How long the tick lasts in which a file was written; `None` for one that was written long ago.
fn due(written: Mtime, coarse: bool, now: Mtime) -> Option<Duration> {
    let nanos = |time: Duration| time.as_nanos() as i128;
    let tick = nanos(if coarse { COARSE_TICK } else { TICK });
    let age = now.0 - written.0;
    // A clock that is far ahead of ours doesn't tell when its tick ends.
    let pause = if (-tick..tick).contains(&age) { tick - age.max(0) } else { 0 };
    (age < nanos(UNDER_WAY)).then(|| Duration::from_nanos(pause as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_changed_within_a_tick_is_waited_for() {
        const MS: i128 = 1_000_000;
        let in_ms =
            |now: i128, written: i128, coarse| due(Mtime(written * MS), coarse, Mtime(now * MS)).map(|d| d.as_millis());
        let at = |now, written| in_ms(now, written, false);
        let hour = 3_600_000;
        assert_eq!(at(hour + 5, hour - 1), Some(6), "the rest of the tick");
        assert_eq!(at(hour + 10, hour - 10), Some(0), "a write may still be under way");
        assert_eq!(at(hour + 9_990, hour - 10), None);
        assert_eq!(at(hour, hour + 10), Some(12), "a clock that is slightly ahead");
        assert_eq!(at(hour, 2 * hour + 1), Some(0), "one that is far ahead");
        assert_eq!(
            (in_ms(hour + 100, hour, true), in_ms(hour + 3000, hour, true)),
            (Some(2000), Some(0)),
            "whole seconds"
        );
    }
}
