//! Resources of one process on this machine: memory, open files. Read once, at the start; nothing else asks the system.

#![allow(clippy::disallowed_methods)] // the one place that reads /proc and /sys

use std::{fs, path::PathBuf, sync::OnceLock};

/// Most memory that transfers hold when the user doesn't say, in bytes.
const MOST: u64 = 1 << 30;
/// Least, in bytes: a few parts of an upload.
const LEAST: u64 = 64 << 20;
/// One part in this many of the process's resources.
const SHARE: u64 = 8;

/// Bytes that transfers may hold by default: an eighth of what the machine and the control group that the process runs in
/// (a container, a Slurm job) let it have, between 64 MiB and 1 GiB.
pub fn memory() -> u64 {
    static MEMORY: OnceLock<u64> = OnceLock::new();
    let look = || {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limits = [total(), group_v2(&groups), group_v1(&groups)];
        share(limits.into_iter().flatten().min())
    };
    *MEMORY.get_or_init(look)
}

fn share(limit: Option<u64>) -> u64 {
    limit.map_or(MOST / 2, |bytes| (bytes / SHARE).clamp(LEAST, MOST))
}

fn total() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// The least limit of our group and those above it (cgroup v2); `max` is none.
fn group_v2(groups: &str) -> Option<u64> {
    let path = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let mut dir = PathBuf::from("/sys/fs/cgroup").join(path);
    let mut least = None;
    while dir.starts_with("/sys/fs/cgroup") {
        let limit = fs::read_to_string(dir.join("memory.max")).ok().and_then(|t| t.trim().parse().ok());
        least = least.into_iter().chain(limit).min();
        if !dir.pop() {
            break;
        }
    }
    least
}

/// The limit of our group (cgroup v1); without one it is a number beyond any machine.
fn group_v1(groups: &str) -> Option<u64> {
    let path = groups.lines().find_map(|l| l.split_once(":memory:/"))?.1;
    let file = PathBuf::from("/sys/fs/cgroup/memory").join(path).join("memory.limit_in_bytes");
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The name of this machine.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Lets this process open as many files and sockets as the system allows without asking: the usual soft limit of 1024 is
/// less than two busy endpoints and the files between them.
pub fn allow_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A limit that can't be raised stays; running out is then an error of the one file that it meets.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_within_bounds() {
        assert_eq!(share(Some(4 << 30)), 512 << 20);
        assert_eq!(share(Some(256 << 30)), MOST);
        assert_eq!(share(Some(100 << 20)), LEAST);
        assert_eq!(share(None), MOST / 2);
        assert!((LEAST..=MOST).contains(&memory()));
    }
}
