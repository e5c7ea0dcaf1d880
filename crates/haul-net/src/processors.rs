//! Whether this machine's processors are what holds a run up: then more requests at once would only wait for them. So it is where the
//! server runs on the same machine, or a link is faster than we are.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// They are looked at this often.
const EVERY: Duration = Duration::from_millis(100);

/// All processors do nothing for less than this part of the time …
const IDLE: f64 = 0.05;
/// … and we take at least this part of it: it is not another's work that we wait for, which would take its share of them from few
/// requests as from many.
const OURS: f64 = 0.25;

/// Counters at one moment.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    /// Seconds that our threads have run.
    ours: f64,
    /// Time of all processors, and of that what they were idle, in one unit; `None` where the system doesn't tell.
    all: Option<(u64, u64)>,
}

static LAST: Mutex<Option<(Look, bool)>> = Mutex::new(None);

/// True when they were all busy of late, and with us.
pub fn are_busy() -> bool {
    // A caller that finds it locked needn't wait for the news.
    let mut last = match LAST.try_lock() {
        Ok(last) => last,
        Err(std::sync::TryLockError::Poisoned(last)) => PoisonError::into_inner(last),
        Err(std::sync::TryLockError::WouldBlock) => return false,
    };
    match *last {
        Some((look, busy)) if look.at.elapsed() < EVERY => busy,
        Some((before, _)) => {
            let now = look();
            let busy = between(&before, &now, std::thread::available_parallelism().map_or(1, |n| n.get()));
            *last = Some((now, busy));
            busy
        }
        None => {
            *last = Some((look(), false));
            false
        }
    }
}

/// Whether `cores` processors were busy, with us, from one look to the other.
fn between(before: &Look, now: &Look, cores: usize) -> bool {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let ours = (now.ours - before.ours) / seconds / cores as f64;
    let idle = match (before.all, now.all) {
        (Some(before), Some(now)) => {
            now.1.saturating_sub(before.1) as f64 / now.0.saturating_sub(before.0).max(1) as f64
        }
        _ => 1.0,
    };
    // In a container, all that it may use may be far from all that there is.
    ours >= 1.0 - IDLE || (ours >= OURS && idle < IDLE)
}

#[allow(clippy::disallowed_methods)] // It is no file on a disk.
fn look() -> Look {
    let ours = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let ours = ours.tv_sec as f64 + ours.tv_nsec as f64 / 1e9;
    Look { at: Instant::now(), ours, all: std::fs::read_to_string("/proc/stat").ok().as_deref().and_then(total) }
}

/// Time of all processors and their idle time from `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal.
fn total(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    let idle = times.get(3)? + times.get(4)?;
    Some((times.iter().sum(), idle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_with_us_is_busy() {
        assert_eq!(total("cpu  10 0 20 60 5 1 2 2 7 7\ncpu0 1"), Some((100, 65)));
        assert_eq!((total("intr 1"), total("cpu  1 2")), (None, None));
        let at = Instant::now();
        let look = |secs: u64, ours, all| Look { at: at + Duration::from_secs(secs), ours, all };
        let busy = |ours, all| between(&look(0, 0.0, Some((0, 0))), &look(1, ours, all), 2);
        assert!(busy(1.0, Some((200, 4))), "half of it is the server's");
        assert!(!busy(0.2, Some((200, 0))), "others'");
        assert!(!busy(1.0, Some((200, 60))));
        assert!(busy(1.95, Some((3200, 3000))), "all that a container may use");
        assert!(busy(1.95, None) && !busy(1.0, None));
    }
}
