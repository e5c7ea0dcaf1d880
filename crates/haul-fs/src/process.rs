//! Processes by a name that counts beyond this one: which of them has surely ended.

use haul_core::{Algo, hash::hash_bytes};
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
    process::Pid,
};
use std::{
    ffi::{CStr, CString},
    sync::OnceLock,
};

/// Scope of process numbers: this machine until its next start, and within it this container. `None` where the system
/// doesn't say.
pub fn place() -> Option<u64> {
    static PLACE: OnceLock<Option<u64>> = OnceLock::new();
    *PLACE.get_or_init(|| {
        let boot = read_proc(c"/proc/sys/kernel/random/boot_id").ok().filter(|boot| boot.len() >= 32)?;
        let numbers = rustix::fs::readlinkat(CWD, "/proc/self/ns/pid", Vec::new()).ok()?;
        // Virtual machines that were copied as they ran have one of the former.
        let host = rustix::system::uname();
        let all = [&boot[..], numbers.as_bytes(), host.nodename().to_bytes()].join(&0);
        let hashes = hash_bytes(&[Algo::Blake3], &all);
        hashes.get(Algo::Blake3)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    })
}

/// True for a process number that was counted at this [`place`] and whose process has ended. A process of another machine, another
/// container or before a restart never counts as ended, nor one whose number is in use again.
#[must_use]
pub fn has_ended(at: u64, number: u32) -> bool {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    place() == Some(at)
        && pid.is_some_and(|pid| match rustix::process::test_kill_process(pid) {
            Err(errno) => errno == Errno::SRCH,
            Ok(()) => is_only_a_name(number),
        })
}

/// True for a zombie: a process of which only its exit code is left, because nobody has waited for it; some never do, such as the first
/// process of many containers. One of whose threads another still runs has not ended (proc(5): state and number of threads).
fn is_only_a_name(number: u32) -> bool {
    let Some(stat) = CString::new(format!("/proc/{number}/stat")).ok().and_then(|path| read_proc(&path).ok()) else {
        return false;
    };
    // The program's name is in parentheses, and may hold some.
    let text = String::from_utf8_lossy(&stat);
    let Some((_, rest)) = text.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    let is_zombie = fields.next() == Some("Z");
    is_zombie && fields.nth(THREADS).is_some_and(|threads| matches!(threads, "0" | "1"))
}

/// So many fields lie between the state of a process and the number of its threads.
const THREADS: usize = 16;

/// Reads a short file of the system's.
fn read_proc(path: &CStr) -> rustix::io::Result<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::with_capacity(1 << 10);
    rustix::io::read(file, rustix::buffer::spare_capacity(&mut bytes))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_counted_here_and_is_gone_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (pid, here) = (child.id(), place().unwrap());
        // Its parent may ask for its exit code late, or never.
        let only = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(Pid::from_child(&child)), only).unwrap();
        assert!(has_ended(here, pid));
        child.wait().unwrap();
        assert!(has_ended(here, pid));
        assert!(!has_ended(here ^ 1, pid), "another machine's");
        assert!(!has_ended(here, 1) && !has_ended(here, 0) && !has_ended(here, u32::MAX));
        assert!(!has_ended(here, std::process::id()), "this one");
    }
}
