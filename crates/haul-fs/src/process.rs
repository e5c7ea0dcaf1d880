//! Processes by a name that counts beyond this one: which of them has surely ended.

use haul_core::{Algo, hash::hash_bytes};
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
    process::Pid,
};
use std::sync::OnceLock;

/// Where numbers of processes count: this machine until it is started again, and in it this container. `None` where the system
/// doesn't tell.
pub fn place() -> Option<u64> {
    static PLACE: OnceLock<Option<u64>> = OnceLock::new();
    *PLACE.get_or_init(|| {
        let boot = rustix::fs::open("/proc/sys/kernel/random/boot_id", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let mut bytes = [0; 64];
        let read = rustix::io::read(boot.ok()?, &mut bytes).ok().filter(|read| *read >= 32)?;
        let numbers = rustix::fs::readlinkat(CWD, "/proc/self/ns/pid", Vec::new()).ok()?;
        // Virtual machines that were copied as they ran have one of the former.
        let host = rustix::system::uname();
        let all = [&bytes[..read], numbers.as_bytes(), host.nodename().to_bytes()].join(&0);
        let hashes = hash_bytes(&[Algo::Blake3], &all);
        hashes.get(Algo::Blake3)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    })
}

/// True for the number of a process that counted at this [`place`] and has ended. A process of another machine, another container
/// or before a restart is never said to have ended, nor one whose number is in use again.
#[must_use]
pub fn has_ended(at: u64, number: u32) -> bool {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    place() == Some(at) && pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_counted_here_and_is_gone_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let here = place().unwrap();
        assert!(has_ended(here, pid));
        assert!(!has_ended(here ^ 1, pid), "another machine's");
        assert!(!has_ended(here, 1) && !has_ended(here, 0) && !has_ended(here, u32::MAX));
        assert!(!has_ended(here, std::process::id()), "this one");
    }
}
