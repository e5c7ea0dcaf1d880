//! Forcing what was written to the device: every file system that is mounted at or below the root.

use super::{Local, error::fail, list::root_error};
use crate::Answer;
use haul_core::{Key, Result};
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
};
use std::os::fd::OwnedFd;

const OP: &str = "sync";

/// See [`crate::Extra::Sync`]; runs on the pool. What was written before a writeback failed is lost then, so its error is
/// the job's.
pub(super) fn sync(local: &Local) -> Result<Answer> {
    let root = open(local.root.path()).map_err(|e| root_error(OP, local.root.path(), e))?;
    rustix::fs::syncfs(&root).map_err(|e| root_error(OP, local.root.path(), e))?;
    for place in mounted_below(&mounts().unwrap_or_default(), &local.place) {
        let synced = match open(&place) {
            // Unmounted meanwhile (which wrote everything out), or not ours to open, so that nothing was written there.
            Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
            Ok(fd) => rustix::fs::syncfs(fd),
        };
        synced.map_err(|errno| fail(OP, &Key::new(&place), errno))?;
    }
    Ok(Answer::Done)
}

fn open(path: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// The kernel's table of what is mounted where (proc_pid_mountinfo(5)).
fn mounts() -> rustix::io::Result<Vec<u8>> {
    let fd = open(b"/proc/self/mountinfo")?;
    let (mut table, mut block) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        match rustix::io::read(&fd, &mut block) {
            Err(Errno::INTR) => {}
            Ok(0) => return Ok(table),
            answer => table.extend_from_slice(&block[..answer?]),
        }
    }
}

/// Mount points below `root`, which has no `/` at its end.
fn mounted_below(table: &[u8], root: &[u8]) -> Vec<Vec<u8>> {
    let lines = table.split(|b| *b == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let kind = fields.iter().position(|f| *f == b"-").and_then(|at| fields.get(at + 1));
        // Opening one would mount something.
        (kind != Some(&&b"autofs"[..])).then(|| fields.get(4).map(|place| unescaped(place)))?
    });
    lines.filter(|place| place.strip_prefix(root).is_some_and(|below| below.len() > 1 && below[0] == b'/')).collect()
}

/// A field as it is: space, tab, line break and backslash are written as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let code = digits.and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        plain.push(code.unwrap_or(field[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mounted_below_the_root_counts() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
            2 1 8:2 / /data rw - ext4 /dev/b rw\n\
            3 2 8:3 / /data/in\\040here rw shared:1 - xfs /dev/c rw\n\
            4 2 0:9 / /data/auto rw - autofs systemd-1 rw\n\
            5 1 8:4 / /database rw - ext4 /dev/d rw\n";
        assert_eq!(mounted_below(table, b"/data"), [b"/data/in here".to_vec()]);
        assert!(mounted_below(b"", b"/data").is_empty());
        assert_eq!(unescaped(b"a\\134b\\"), b"a\\b\\");
    }
}
