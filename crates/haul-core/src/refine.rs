//! Comparing what has attributes: a verdict on bytes with the attributes looked at too, and devices, which have no bytes.

use crate::{
    Entry,
    attributes::{BLOCK, CHARACTER, Rights, TYPE, UnpreservedAttributes, differs},
    compare::{Reason, Rules, Verdict, within},
    job::Times,
    keep::Keep,
};

/// Compares two devices, FIFOs or sockets: they are the same when they are of one kind and, for devices, of one number.
pub fn compare_special(src: &Entry, dst: &Entry, rules: &Rules) -> Verdict {
    let (Some(a), Some(b)) = (src.posix.as_deref(), dst.posix.as_deref()) else {
        return Verdict::Differ(Reason::Kind);
    };
    let device = matches!(a.mode & TYPE, BLOCK | CHARACTER);
    if rules.ignore_existing {
        return Verdict::Same(Reason::Existing);
    }
    if src.kind != dst.kind || a.mode & TYPE != b.mode & TYPE || (device && a.rdev != b.rdev) {
        return Verdict::Differ(Reason::Kind);
    }
    match (src.mtime, dst.mtime) {
        // Where times are attributes, --update is about regular files.
        (Some(a), Some(b)) if rules.update && rules.times == Times::Evidence && b > a => Verdict::Same(Reason::Newer),
        (Some(a), Some(b)) if !rules.no_touch && !within(a, b, rules.window.unwrap_or(1)) => Verdict::Touch,
        _ => Verdict::Same(Reason::Mtime),
    }
}

/// A verdict on bytes, with the attributes looked at too: the bytes that are the same may call for attributes to be set.
pub fn refine(
    verdict: Verdict,
    src: &Entry,
    dst: &Entry,
    keep: &Keep,
    rights: &Rights,
) -> (Verdict, UnpreservedAttributes) {
    let same_bytes = match verdict {
        Verdict::Same(Reason::Existing | Reason::NotExisting | Reason::Newer) => false,
        Verdict::Same(_) | Verdict::Touch => true,
        Verdict::Differ(_) | Verdict::Ask(_) | Verdict::Attributes(_) => false,
    };
    let (Some(a), Some(b)) = (src.posix.as_deref(), dst.posix.as_deref()) else {
        return (verdict, UnpreservedAttributes::default());
    };
    if !same_bytes {
        return (verdict, UnpreservedAttributes::default());
    }
    match differs(a, b, keep, rights) {
        (found, unpreserved) if found.any() && verdict != Verdict::Touch => (Verdict::Attributes(found), unpreserved),
        (_, unpreserved) => (verdict, unpreserved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Key, Kind, Mtime, Posix,
        attributes::{Differs, FIFO},
        job::Job,
    };

    const ROOT: fn() -> Rights = || Rights { any_owner: true, devices: true, umask: 0o022, ..Rights::default() };

    fn posix(mode: u32, uid: u32, gid: u32) -> Posix {
        let none = (0, 0);
        Posix { mode, uid, gid, rdev: none, nlink: 1, dev: none, ino: 1, atime: Mtime(0), size: 0, target: None }
    }

    #[test]
    fn only_a_verdict_of_same_bytes_is_refined() {
        let entry = |mode| Entry { posix: Some(Box::new(posix(mode, 0, 0))), ..Entry::file(Key::new("k"), 1) };
        let (a, b) = (entry(0o100644), entry(0o100600));
        let keep = Keep::archive();
        let say = |verdict| refine(verdict, &a, &b, &keep, &ROOT()).0;
        let found = Differs { mode: true, ..Differs::default() };
        assert_eq!(say(Verdict::Same(Reason::Mtime)), Verdict::Attributes(found));
        for verdict in [
            Verdict::Same(Reason::Existing),
            Verdict::Same(Reason::Newer),
            Verdict::Touch,
            Verdict::Differ(Reason::Size),
        ] {
            assert_eq!(say(verdict), verdict);
        }
        assert_eq!(refine(Verdict::Touch, &a, &a, &keep, &ROOT()).0, Verdict::Touch);
        assert_eq!(refine(Verdict::Same(Reason::Size), &a, &a, &keep, &ROOT()).0, Verdict::Same(Reason::Size));
    }

    #[test]
    fn devices_are_the_same_by_kind_and_number() {
        let rules = Rules::new(&Job::default(), Some(1), Some(1));
        let of = |mode, rdev, secs| Entry {
            kind: Kind::Special,
            mtime: Some(Mtime(secs)),
            posix: Some(Box::new(Posix { rdev, ..posix(mode, 0, 0) })),
            ..Entry::file(Key::new("k"), 0)
        };
        let say = |a: &Entry, b: &Entry| compare_special(a, b, &rules);
        let null = of(CHARACTER | 0o666, (1, 3), 5);
        assert_eq!(say(&null, &null), Verdict::Same(Reason::Mtime));
        assert_eq!(say(&null, &of(CHARACTER | 0o666, (1, 5), 5)), Verdict::Differ(Reason::Kind));
        assert_eq!(say(&null, &of(BLOCK | 0o666, (1, 3), 5)), Verdict::Differ(Reason::Kind));
        assert_eq!(say(&of(FIFO, (0, 0), 5), &of(FIFO, (9, 9), 6)), Verdict::Touch);
    }
}
