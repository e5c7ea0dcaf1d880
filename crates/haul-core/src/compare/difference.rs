//! What differs between two entries of one name, fact by fact, for those who are shown it (`--itemize-changes`). It decides nothing.

use super::{Rules, times_apart};
use crate::{Entry, Kind, attributes::Differs};
use serde::{Deserialize, Serialize};

/// Type of an entry, as file systems tell types apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    /// A regular file.
    #[default]
    File,
    /// A directory.
    Dir,
    /// A symlink.
    Link,
    /// A block or character device.
    Device,
    /// A FIFO or socket.
    Special,
}

impl FileType {
    /// The type of `entry`.
    pub fn of(entry: &Entry) -> FileType {
        // File types of `st_mode`, see inode(7).
        let kind = entry.posix.as_ref().map(|posix| posix.mode & 0o170_000);
        match (entry.kind, kind) {
            (Kind::Dir, _) => FileType::Dir,
            (Kind::Symlink, _) | (_, Some(0o120_000)) => FileType::Link,
            (_, Some(0o060_000 | 0o020_000)) => FileType::Device,
            (_, Some(0o010_000 | 0o140_000)) | (Kind::Special, None) => FileType::Special,
            _ => FileType::File,
        }
    }
}

/// Facts in which two entries of one name differ, for `--itemize-changes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Difference {
    /// Type of the source, or of the destination where the source has nothing.
    pub what: FileType,
    /// The destination has no such entry, or one of another type.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub new: bool,
    /// Sizes of regular files.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub size: bool,
    /// Modification times, as the comparison sees them.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub mtime: bool,
    /// Permission bits, where both sides have them; likewise the rest.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub perms: bool,
    /// Whether anyone may execute it.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub executable: bool,
    /// The owner's number.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub owner: bool,
    /// The group's number.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub group: bool,
    /// Access times.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub atime: bool,
    /// Extended attributes, where they were looked at.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub xattrs: bool,
    /// Access control lists, where they were looked at.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub acls: bool,
}

impl Difference {
    /// A difference of attributes alone, between files that are otherwise the same.
    pub fn of(src: &Entry, found: Differs) -> Difference {
        let Differs { mode, owner, group, mtime, xattrs, acls } = found;
        let what = FileType::of(src);
        Difference { what, perms: mode, owner, group, mtime, xattrs, acls, ..Difference::default() }
    }

    /// Nothing, of a directory.
    pub fn of_dir() -> Difference {
        Difference { what: FileType::Dir, ..Difference::default() }
    }

    /// Difference between a source and the destination's entry of the same name.
    pub fn between(src: &Entry, dst: Option<&Entry>, rules: &Rules) -> Difference {
        // Without symlinks of their own key one may stand where a FIFO is to come.
        let both_known = |dst: &Entry| src.posix.is_some() && dst.posix.is_some();
        let same = |dst: &&Entry| !both_known(dst) || FileType::of(dst) == FileType::of(src);
        let dst = dst.filter(|dst| dst.kind == src.kind);
        let Some(dst) = dst.filter(same) else {
            return Difference { what: FileType::of(src), new: true, ..Difference::default() };
        };
        let mtime = times_apart(src, dst, rules);
        let size = src.size_differs(dst) && !src.is_dir();
        let differs = Difference { what: FileType::of(src), size, mtime, ..Difference::default() };
        let (Some(a), Some(b)) = (&src.posix, &dst.posix) else { return differs };
        let executable = |mode: u32| mode & 0o111 != 0;
        Difference {
            perms: a.mode & 0o7777 != b.mode & 0o7777,
            executable: executable(a.mode) != executable(b.mode),
            owner: a.uid != b.uid,
            group: a.gid != b.gid,
            atime: a.atime.secs() != b.atime.secs(),
            ..differs
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Mtime, Posix, job::Job};

    fn entry(mode: u32) -> Entry {
        let posix = Posix {
            mode,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            nlink: 1,
            dev: (0, 0),
            ino: 1,
            atime: Mtime(0),
            size: 1,
            target: None,
        };
        Entry { mtime: Some(Mtime(0)), posix: Some(Box::new(posix)), ..Entry::file(Key::new("k"), 1) }
    }

    #[test]
    fn another_type_under_the_name_is_new() {
        let rules = Rules::new(&Job::default(), Some(1), Some(1));
        let (file, fifo) = (entry(0o100_644), entry(0o010_644));
        let new = |what| Difference { what, new: true, ..Difference::default() };
        assert_eq!(Difference::between(&file, None, &rules), new(FileType::File));
        assert_eq!(Difference::between(&fifo, Some(&file), &rules), new(FileType::Special));
        assert_eq!(Difference::between(&file, Some(&file), &rules), Difference::default());
    }

    #[test]
    fn each_fact_is_compared_by_itself() {
        let rules = Rules::new(&Job::default(), Some(1), Some(1));
        let src = entry(0o100_755);
        let dst = Entry { size: 2, mtime: Some(Mtime(5_000_000_000)), ..entry(0o100_644) };
        let wanted = Difference { size: true, mtime: true, perms: true, executable: true, ..Difference::default() };
        assert_eq!(Difference::between(&src, Some(&dst), &rules), wanted);
    }
}
