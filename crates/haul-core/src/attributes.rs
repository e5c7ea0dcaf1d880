//! File attributes beside bytes and times: which ones a copy should have, whether an existing file differs from them, and which
//! can't be kept. Pure: the store sets them, the engine counts.

use crate::{Entry, Kind, Mtime, Posix, chmod::MODE_BITS, keep::Keep};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Set-user-id.
const SET_UID: u32 = 0o4000;
/// Set-group-id.
const SET_GID: u32 = 0o2000;
/// Execute for anybody.
const EXEC: u32 = 0o111;

/// The part of `st_mode` that says what kind of file it is, and its values.
pub(crate) const TYPE: u32 = 0o170_000;
pub(crate) const FIFO: u32 = 0o010_000;
pub(crate) const CHARACTER: u32 = 0o020_000;
const DIRECTORY: u32 = 0o040_000;
pub(crate) const BLOCK: u32 = 0o060_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const SOCKET: u32 = 0o140_000;

/// This process's rights over files of a store that has inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rights {
    /// It may give files to any owner and group, and set attributes outside of `user.` (root).
    pub any_owner: bool,
    /// It may make devices (root).
    pub devices: bool,
    /// Groups that it is in: it may give its own files to them.
    #[serde(with = "crate::wire::numbers")]
    pub groups: Arc<[u32]>,
    /// Permission bits that new files don't get.
    pub umask: u32,
}

/// Attributes in which two files differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Differs {
    /// Permission bits.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub mode: bool,
    /// Owner.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub owner: bool,
    /// Group.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub group: bool,
    /// Modification time.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub mtime: bool,
    /// Extended attributes.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub xattrs: bool,
    /// Access control lists.
    #[serde(skip_serializing_if = "crate::wire::is_false")]
    pub acls: bool,
}

impl Differs {
    /// True when they differ in anything.
    pub fn any(self) -> bool {
        self != Differs::default()
    }
}

/// An attribute that may fail to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Attribute {
    /// Its owner.
    Owner,
    /// Its group.
    Group,
    /// Its permission bits.
    Mode,
    /// Extended attributes.
    Xattrs,
    /// Access control lists.
    Acls,
    /// Itself: it is a device.
    Device,
    /// Itself: it is a FIFO or socket.
    Special,
    /// That it is one file with another name.
    HardLink,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnpreservedReason {
    /// Only root may set it.
    Denied,
    /// The destination has no such thing, or not that much of it.
    Lacking,
}

const WHATS: [Attribute; 8] = [
    Attribute::Owner,
    Attribute::Group,
    Attribute::Mode,
    Attribute::Xattrs,
    Attribute::Acls,
    Attribute::Device,
    Attribute::Special,
    Attribute::HardLink,
];

/// Attributes of one file that weren't kept: a small set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpreservedAttributes(u16);

impl UnpreservedAttributes {
    /// Adds one.
    pub fn add(&mut self, what: Attribute, why: UnpreservedReason) {
        self.0 |= 1 << (what as u16 * 2 + why as u16);
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: UnpreservedAttributes) {
        self.0 |= other.0;
    }

    /// True when everything was kept.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when this attribute is in it, for whatever reason.
    pub fn holds(self, what: Attribute) -> bool {
        self.0 & (0b11 << (what as u16 * 2)) != 0
    }

    /// All in it.
    pub fn iter(self) -> impl Iterator<Item = (Attribute, UnpreservedReason)> {
        let all =
            WHATS.into_iter().flat_map(|what| [(what, UnpreservedReason::Denied), (what, UnpreservedReason::Lacking)]);
        all.filter(move |(what, why)| self.0 & (1 << (*what as u16 * 2 + *why as u16)) != 0)
    }
}

/// How many files lost what, and why.
pub type UnpreservedCounts = BTreeMap<(Attribute, UnpreservedReason), u64>;

impl Keep {
    /// The attributes that `--archive` keeps: rsync's `-pgoD`; links, times and empty directories have rules of their own.
    pub fn archive() -> Keep {
        Keep { perms: true, owner: true, group: true, devices: true, specials: true, ..Keep::default() }
    }

    /// True when any attribute is to be kept or changed, so that listings must carry facts of inodes.
    pub fn any(&self) -> bool {
        *self != Keep::default()
    }

    /// True when facts of inodes aren't enough to tell whether two files agree.
    pub fn looks_inside(&self) -> bool {
        self.xattrs || self.acls
    }

    /// True when the destination gets the source's permission bits.
    fn whole_mode(&self) -> bool {
        self.perms || self.acls
    }

    /// True when files may be created in directories that would expose them: new files are then private until
    /// they have their final permissions.
    pub fn private(&self) -> bool {
        self.whole_mode()
    }

    /// True when new files get permissions before they are done, so that only their owner can access them until then.
    pub fn hides(&self) -> bool {
        self.whole_mode() || !self.chmod.is_empty()
    }

    /// Adds what `--metadata` asks for.
    pub fn with_metadata(mut self) -> Keep {
        let all = Keep::archive();
        (self.perms, self.owner, self.group) = (all.perms, all.owner, all.group);
        (self.devices, self.specials) = (all.devices, all.specials);
        (self.atime, self.xattrs) = (true, true);
        self
    }
}

/// Is it a symbolic link?
pub fn is_symlink(mode: u32) -> bool {
    mode & TYPE == SYMLINK
}

/// Is it a regular file?
pub fn is_regular(mode: u32) -> bool {
    mode & TYPE == REGULAR
}

/// Is it a directory?
pub fn is_dir(mode: u32) -> bool {
    mode & TYPE == DIRECTORY
}

/// Type of a device, FIFO or socket, when `keep` asks for it; `None` for all other entries.
pub fn special(entry: &Entry, keep: &Keep) -> Option<Attribute> {
    let posix = entry.posix.as_deref().filter(|_| entry.kind == Kind::Special)?;
    match posix.mode & TYPE {
        BLOCK | CHARACTER => keep.devices.then_some(Attribute::Device),
        FIFO | SOCKET => keep.specials.then_some(Attribute::Special),
        _ => None,
    }
}

/// Mode (with the type) and owner of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl From<&Posix> for Ownership {
    fn from(posix: &Posix) -> Self {
        Ownership { mode: posix.mode, uid: posix.uid, gid: posix.gid }
    }
}

/// Attributes of a file (everything beside name and bytes), on their way to another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAttributes {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device numbers, major and minor, of a device.
    pub rdev: (u32, u32),
    /// Last change of its content.
    pub mtime: Mtime,
    /// Last access.
    pub atime: Mtime,
    /// Extended attributes including ACLs, as far as they were requested and the kernel returns them.
    pub xattrs: Vec<Xattr>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// With its namespace: `user.x`.
    #[serde(with = "crate::wire::raw")]
    pub name: Vec<u8>,
    /// Its bytes.
    #[serde(with = "crate::wire::raw")]
    pub value: Vec<u8>,
}

/// Attributes to set on a copy; `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Attributes that should be set but can't be.
    pub unpreserved: UnpreservedAttributes,
}

/// Attributes to set on the copy of `src`, whose current ones are `there`. `new`: it was just created for this, so it has no
/// permissions that a user may have set.
///
/// A set-id bit says "with the rights of this owner": it is dropped where the owner is neither kept nor given.
pub fn wanted(src: Ownership, there: Ownership, new: bool, keep: &Keep, rights: &Rights) -> TargetAttributes {
    let mut unpreserved = UnpreservedAttributes::default();
    let uid = keep.users.of(src.uid).or(keep.owner.then_some(src.uid));
    let uid = match uid {
        Some(uid) if uid != there.uid && !rights.any_owner => {
            unpreserved.add(Attribute::Owner, UnpreservedReason::Denied);
            None
        }
        uid => uid,
    };
    let gid = keep.groups.of(src.gid).or(keep.group.then_some(src.gid));
    let gid = match gid {
        Some(gid) if gid != there.gid && !rights.any_owner && !rights.groups.contains(&gid) => {
            unpreserved.add(Attribute::Group, UnpreservedReason::Denied);
            None
        }
        gid => gid,
    };
    let mode = mode(src, (uid.unwrap_or(there.uid), gid.unwrap_or(there.gid)), there.mode, new, keep, rights);
    TargetAttributes { mode, uid, gid, unpreserved }
}

fn mode(src: Ownership, owner: (u32, u32), there: u32, new: bool, keep: &Keep, rights: &Rights) -> Option<u32> {
    if is_symlink(src.mode) {
        // A link's bits mean nothing.
        return None;
    }
    if keep.whole_mode() {
        let mut bits = src.mode & MODE_BITS;
        if owner.0 != src.uid && keep.users.of(src.uid).is_none() {
            bits &= !SET_UID;
        }
        // A directory's set-gid bit only picks the group of new files in it, and grants nobody's rights.
        if owner.1 != src.gid && keep.groups.of(src.gid).is_none() && !is_dir(src.mode) {
            bits &= !SET_GID;
        }
        return Some(changed(&keep.chmod, bits, is_dir(src.mode)));
    }
    // A directory that got its group from the one above it hands it on.
    let handed_on = if is_dir(src.mode) { there & SET_GID } else { 0 };
    let made = (new && !keep.chmod.is_empty())
        .then(|| changed(&keep.chmod, src.mode & 0o777, is_dir(src.mode)) & 0o777 & !rights.umask | handed_on);
    if !keep.executability || src.mode & TYPE != REGULAR {
        return made;
    }
    let bits = made.unwrap_or(there & MODE_BITS);
    let runs = changed(&keep.chmod, src.mode & 0o777, false) & EXEC != 0;
    Some(match (runs, bits & EXEC != 0) {
        (true, false) => bits | ((bits & 0o444) >> 2),
        (false, true) => bits & !EXEC,
        _ => bits,
    })
}

/// Permission bits after `--chmod`.
pub fn changed(chmod: &[crate::chmod::Chmod], bits: u32, is_dir: bool) -> u32 {
    let executable = is_dir || bits & EXEC != 0;
    let of_kind = chmod.iter().filter(|change| if is_dir { change.dirs } else { change.files });
    of_kind.fold(bits, |bits, change| change.apply(bits, executable)) & MODE_BITS
}

/// Differences between a destination file and its wanted attributes, by facts of inodes alone, and what can't be kept.
pub fn differs(src: &Posix, dst: &Posix, keep: &Keep, rights: &Rights) -> (Differs, UnpreservedAttributes) {
    let wanted = wanted(src.into(), dst.into(), false, keep, rights);
    let differs = Differs {
        mode: wanted.mode.is_some_and(|mode| mode != dst.mode & MODE_BITS),
        owner: wanted.uid.is_some_and(|uid| uid != dst.uid),
        group: wanted.gid.is_some_and(|gid| gid != dst.gid),
        ..Differs::default()
    };
    (differs, wanted.unpreserved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, chmod::Chmod, keep::IdMap};

    const ROOT: fn() -> Rights = || Rights { any_owner: true, devices: true, umask: 0o022, ..Rights::default() };
    const USER: fn() -> Rights = || Rights { groups: [100, 200].into(), umask: 0o022, ..Rights::default() };

    fn posix(mode: u32, uid: u32, gid: u32) -> Posix {
        let none = (0, 0);
        Posix { mode, uid, gid, rdev: none, nlink: 1, dev: none, ino: 1, atime: Mtime(0), size: 0, target: None }
    }

    fn mode_of(src: &Posix, dst: &Posix, new: bool, keep: &Keep, rights: &Rights) -> Option<u32> {
        wanted(src.into(), dst.into(), new, keep, rights).mode
    }

    #[test]
    fn archive_wants_mode_owner_and_group() {
        let keep = Keep::archive();
        let (src, dst) = (posix(0o100640, 7, 8), posix(0o100644, 7, 9));
        let (found, unpreserved) = differs(&src, &dst, &keep, &ROOT());
        assert_eq!(found, Differs { mode: true, group: true, ..Differs::default() });
        assert!(unpreserved.is_empty());
        assert!(!differs(&src, &src, &keep, &ROOT()).0.any());
        let atime = Posix { atime: Mtime(5), ..src.clone() };
        assert!(!differs(&src, &atime, &Keep { atime: true, ..keep }, &ROOT()).0.any());
    }

    #[test]
    fn what_only_root_may_is_no_difference_for_others() {
        let keep = Keep::archive();
        let (src, dst) = (posix(0o100644, 7, 200), posix(0o100644, 1000, 300));
        let (found, unpreserved) = differs(&src, &dst, &keep, &USER());
        assert_eq!(found, Differs { group: true, ..Differs::default() });
        assert_eq!(unpreserved.iter().collect::<Vec<_>>(), [(Attribute::Owner, UnpreservedReason::Denied)]);
        let (found, unpreserved) = differs(&posix(0o100644, 1000, 9), &dst, &keep, &USER());
        assert!(!found.any() && unpreserved.holds(Attribute::Group) && !unpreserved.holds(Attribute::Owner));
    }

    #[test]
    fn set_id_bits_go_where_their_owner_does() {
        let keep = Keep::archive();
        let (src, there) = (posix(0o106755, 7, 8), posix(0o100644, 1000, 100));
        assert_eq!(mode_of(&src, &there, true, &keep, &ROOT()), Some(0o6755));
        assert_eq!(mode_of(&src, &there, true, &keep, &USER()), Some(0o755));
        let perms = Keep { perms: true, ..Keep::default() };
        assert_eq!(mode_of(&src, &there, true, &perms, &ROOT()), Some(0o755));
        let given = Keep { users: IdMap::all(5), groups: IdMap::all(5), ..keep.clone() };
        assert_eq!(mode_of(&src, &there, true, &given, &ROOT()), Some(0o6755));
        // A directory's set-group-ID bit is about new entries in it.
        assert_eq!(mode_of(&posix(0o042755, 7, 8), &there, true, &perms, &USER()), Some(0o2755));
    }

    #[test]
    fn a_link_has_an_owner_but_no_mode() {
        let (src, dst) = (posix(0o120777, 7, 8), posix(0o120755, 1, 1));
        let (found, _) = differs(&src, &dst, &Keep::archive(), &ROOT());
        assert_eq!(found, Differs { owner: true, group: true, ..Differs::default() });
    }

    #[test]
    fn executability_follows_read() {
        let keep = Keep { executability: true, ..Keep::default() };
        let there = |mode: u32| posix(REGULAR | mode, 0, 0);
        let say = |src, dst| mode_of(&there(src), &there(dst), false, &keep, &ROOT());
        assert_eq!(say(0o700, 0o644), Some(0o755));
        assert_eq!(say(0o700, 0o744), Some(0o744));
        assert_eq!(say(0o600, 0o755), Some(0o644));
        assert_eq!(mode_of(&posix(0o040700, 0, 0), &posix(0o040600, 0, 0), false, &keep, &ROOT()), None);
    }

    #[test]
    fn chmod_alone_is_for_new_files() {
        let all = Chmod { dirs: true, files: true, clear: 0, set: 0o022, exec_if_any: 0, copied: None };
        let keep = Keep { chmod: vec![all], ..Keep::default() };
        let (src, there) = (posix(0o104700, 0, 0), posix(0o100600, 0, 0));
        assert_eq!(mode_of(&src, &there, true, &keep, &ROOT()), Some(0o700));
        assert_eq!(mode_of(&src, &there, false, &keep, &ROOT()), None);
        let keep = Keep { perms: true, ..keep };
        assert_eq!(mode_of(&src, &there, false, &keep, &ROOT()), Some(0o4722));
    }

    #[test]
    fn conditional_execute_bits_go_to_directories_and_what_has_one() {
        let keep = Keep {
            perms: true,
            chmod: vec![Chmod { dirs: true, files: true, clear: 0, set: 0, exec_if_any: EXEC, copied: None }],
            ..Keep::default()
        };
        let say = |mode| mode_of(&posix(mode, 0, 0), &posix(0o100600, 0, 0), true, &keep, &ROOT());
        assert_eq!(say(0o100644), Some(0o644));
        assert_eq!(say(0o100744), Some(0o755));
        assert_eq!(say(0o040600), Some(0o711));
    }

    #[test]
    fn devices_and_fifos_are_kept_apart() {
        let of = |mode| Entry {
            kind: Kind::Special,
            posix: Some(Box::new(posix(mode, 0, 0))),
            ..Entry::file(Key::new("k"), 0)
        };
        let keep = Keep { specials: true, ..Keep::default() };
        assert_eq!(special(&of(CHARACTER | 0o666), &keep), None);
        assert_eq!(special(&of(SOCKET), &keep), Some(Attribute::Special));
        assert_eq!(special(&of(SYMLINK), &Keep::archive()), None);
    }
}
