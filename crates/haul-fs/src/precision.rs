//! Timestamp precision of a file system: by its kind where that is known, else by timestamps that nobody can have set; and whether its
//! ctimes are reliable.

use super::meta;
use rustix::fs::{FsWord, Mode, OFlags, RawDir, StatxFlags};
use std::{os::fd::AsFd, time::Duration};

/// The precision of Linux timestamps.
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

/// Kinds whose ctime may be a time that a user set, or none that lasts: FAT, exFAT, HFS and HFS+, and whatever is behind FUSE.
const NO_CTIME: [u32; 5] = [0x4d44, 0x2011_BAB0, 0x4244, 0x482b, 0x6573_5546];

/// Most of what a folder holds that is looked at, where the folder itself looks coarse.
const SAMPLES: usize = 16;

/// The precision of times in a folder.
pub(super) fn of(folder: impl AsFd) -> Duration {
    let kind = rustix::fs::fstatfs(&folder).map(|st| st.f_type);
    let facts = meta::facts(&folder, StatxFlags::CTIME);
    let judged = kind.and_then(|kind| Ok((kind, judge(kind, facts?.stx_ctime.tv_nsec))));
    match judged {
        Ok((kind, coarse)) if coarse > NANO && is_behind(kind) => finest(coarse, held(&folder), kind),
        Ok((_, precision)) => precision,
        Err(_) => NANO,
    }
}

/// False where a ctime doesn't show when an inode changed.
pub(super) fn keeps_ctime(folder: impl AsFd) -> bool {
    let kind = rustix::fs::fstatfs(&folder).ok().and_then(|st| u32::try_from(st.f_type).ok());
    kind.is_none_or(|kind| !NO_CTIME.contains(&kind))
}

/// A number may be round by chance, and a folder be one that a program makes up: the finest of all times counts.
fn finest(folder: Duration, held: impl IntoIterator<Item = u32>, kind: FsWord) -> Duration {
    held.into_iter().map(|nanos| judge(kind, nanos)).fold(folder, Duration::min)
}

/// Nanoseconds of the ctimes of the first that a folder holds; none where it can't be listed.
fn held(folder: impl AsFd) -> Vec<u32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(folder, c".", flags, Mode::empty()) else { return Vec::new() };
    let mut buffer = Vec::with_capacity(4 << 10);
    let mut items = RawDir::new(&fd, buffer.spare_capacity_mut());
    let mut nanos = Vec::new();
    while let Some(Ok(item)) = items.next() {
        let name = item.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        nanos.extend(meta::facts_at(&fd, name, false, StatxFlags::CTIME).map(|st| st.stx_ctime.tv_nsec));
        if nanos.len() >= SAMPLES {
            break;
        }
    }
    nanos
}

fn is_behind(kind: FsWord) -> bool {
    BEHIND.iter().any(|behind| u32::try_from(kind) == Ok(*behind))
}

/// `nanos`: of a change of an inode, which only the file system sets. One that keeps nanoseconds has a round number there once
/// in a hundred times; one in a thousand million, where whole seconds are the question.
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
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use haul_testkit::fuse::{FsBehaviour, MountedFs};
    use std::fs;

    #[test]
    fn a_folder_that_looks_coarse_is_asked_for_what_it_holds() {
        assert_eq!(finest(SECOND, [7000, 1300], 0x6969), Duration::from_nanos(100));
        let whole = [
            FsBehaviour { whole_root: true, ..FsBehaviour::default() },
            FsBehaviour { whole_seconds: true, ..FsBehaviour::default() },
        ];
        for (habits, fine) in whole.into_iter().zip([true, false]) {
            let lab = tempfile::tempdir().unwrap();
            let (real, net) = (lab.path().join("real"), lab.path().join("net"));
            let Some(_mounted) = MountedFs::new(&real, &net, habits) else { return };
            assert_eq!(of(fs::File::open(&net).unwrap()), SECOND, "nothing is in it");
            for number in 0..SAMPLES {
                fs::write(net.join(number.to_string()), "").unwrap();
                // All of one tick of the clock would have one time.
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(of(fs::File::open(&net).unwrap()), if fine { NANO } else { SECOND });
        }
    }

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
