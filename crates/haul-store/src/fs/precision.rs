//! How finely a file system keeps times: by its kind where that tells, else by a time that nobody can have set.

use super::meta;
use rustix::fs::{FsWord, StatxFlags};
use std::{os::fd::AsFd, time::Duration};

/// As finely as Linux tells times.
pub(super) const NANO: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);

/// Kinds (the magic numbers of statfs(2)) with a precision that is always the same: FAT, exFAT, NTFS, Windows' servers (two), HFS
/// and HFS+.
const KNOWN: [(u32, Duration); 7] = [
    (0x4d44, Duration::from_secs(2)),
    (0x2011_BAB0, Duration::from_millis(10)),
    (0x7366_746e, Duration::from_nanos(100)),
    (0xFF53_4D42, Duration::from_nanos(100)),
    (0xFE53_4D42, Duration::from_nanos(100)),
    (0x4244, SECOND),
    (0x482b, SECOND),
];

/// ext2, 3 and 4, which keep whole seconds in inodes of 128 bytes.
const EXT: u32 = 0xEF53;

/// Kinds behind which anything may be: NFS, and file systems in user space.
const BEHIND: [u32; 2] = [0x6969, 0x6573_5546];

/// The precision of times in a folder.
pub(super) fn of(folder: impl AsFd) -> Duration {
    let kind = rustix::fs::fstatfs(&folder).map(|st| st.f_type);
    let facts = meta::facts(&folder, StatxFlags::CTIME);
    kind.and_then(|kind| Ok(judge(kind, facts?.stx_ctime.tv_nsec))).unwrap_or(NANO)
}

/// `nanos`: of a change of an inode, which only the file system sets. One that keeps nanoseconds has a round number there once
/// in a hundred times, which costs nothing; one in a thousand million, where whole seconds are the question.
fn judge(kind: FsWord, nanos: u32) -> Duration {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // the numbers are of 32 bits, and signed on some machines
    let kind = kind as u32;
    if let Some((_, precision)) = KNOWN.iter().find(|(known, _)| *known == kind) {
        return *precision;
    }
    match nanos {
        0 if kind == EXT || BEHIND.contains(&kind) => SECOND,
        nanos if BEHIND.contains(&kind) && nanos % 1000 == 0 => Duration::from_micros(1),
        nanos if BEHIND.contains(&kind) && nanos % 100 == 0 => Duration::from_nanos(100),
        _ => NANO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_tells_or_a_change_does() {
        assert_eq!(judge(0x4d44, 5), Duration::from_secs(2));
        assert_eq!((judge(0xEF53, 0), judge(0xEF53, 100), judge(0xEF53, 1)), (SECOND, NANO, NANO));
        assert_eq!((judge(0x6969, 0), judge(0x6969, 7000)), (SECOND, Duration::from_micros(1)));
        assert_eq!((judge(0x6573_5546, 1300), judge(0x6573_5546, 1301)), (Duration::from_nanos(100), NANO));
        // Memory keeps all, whatever a moment looks like.
        assert_eq!(judge(0x0102_1994, 0), NANO);
    }
}
