//! Extended attributes including ACLs, and the calls that set attributes by name, on an open file, or on an `O_PATH` descriptor.

use super::{dir::Dir, meta};
use haul_core::{attributes::Carried, keep::Keep};
use haul_store::statx::Statx;
use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, StatxFlags, Timestamps, Uid, XattrFlags},
    io::{Errno, Result},
};
use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// Names of POSIX ACLs.
const POSIX_ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Names of NFSv4 ACLs: of Linux' NFS client (its `nfs4_dacl` and `nfs4_sacl` are parts of the first), and of ZFS where it keeps
/// them.
const NFS4_ACLS: [&[u8]; 2] = [b"system.nfs4_acl", b"system.nfs4_acl_xdr"];

/// Where a file's data are on Lustre, and other marks of that file alone: on another file they put its data in the same place,
/// or make it look like the first (lustre.org, "Lustre Internals", extended attributes of the MDT).
const LUSTRE: [&[u8]; 8] = [
    b"trusted.lov",
    b"trusted.lma",
    b"trusted.lmv",
    b"trusted.dmv",
    b"trusted.link",
    b"trusted.fid",
    b"trusted.som",
    b"trusted.hsm",
];

/// Attributes in which XFS stores POSIX ACLs and an old kind of labels, shown beside the ACLs themselves: setting or removing one behind
/// the kernel's back changes the ACL on the disk, while the one in memory stays (libattr's xattr.conf leaves them out
/// too). And a signature bound to the inode (EVM), which fits no other.
const OWN: [&[u8]; 5] = [
    b"trusted.SGI_ACL_FILE",
    b"trusted.SGI_ACL_DEFAULT",
    b"trusted.SGI_CAP_FILE",
    b"trusted.SGI_MAC_FILE",
    b"security.evm",
];

/// A link itself.
const NOFOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

/// Layout of a POSIX ACL in its xattr (linux/posix_acl_xattr.h): a version, then entries of a tag, permissions and an id; the
/// tags of owner, group, mask and others.
const ACL_HEADER: usize = 4;
const ACL_ENTRY: usize = 8;
const ACL_TAGS: [u16; 4] = [0x01, 0x04, 0x10, 0x20];

/// Permission bits that an ACL grants to owner, group (within its mask) and others.
fn default_permissions(acl: &[u8]) -> Option<u32> {
    let entries = acl.get(ACL_HEADER..)?.chunks_exact(ACL_ENTRY);
    let number = |entry: &[u8], at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let of = |tag| entries.clone().find(|entry| number(entry, 0) == tag).map(|entry| u32::from(number(entry, 2) & 7));
    let [owner, group, mask, others] = ACL_TAGS.map(of);
    Some((owner? << 6) | (mask.or(group)? << 3) | others?)
}

/// How something is opened as a mere place.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The kernel's own limit of a list of names, and of a value (XATTR_LIST_MAX, XATTR_SIZE_MAX).
const MOST: usize = 64 << 10;

/// Bytes that nearly every list and value fits into.
const USUAL: usize = 512;

/// Something whose attributes are read or set.
pub(super) enum At<'a> {
    /// Open for input or output.
    Open(BorrowedFd<'a>),
    /// Opened as above, for this.
    Own(OwnedFd),
    /// Opened as a place (O_PATH): what may not be read, a device, a FIFO, a link. The kernel takes such descriptors in few
    /// calls; the others reach it by the descriptor's name in /proc, which leads to exactly that inode.
    Place(OwnedFd, Vec<u8>),
    /// A name in a directory that is held open; a link is never followed. The kernel has no call for extended attributes of
    /// a name in a directory, so those go by the directory's name in /proc.
    Name(&'a Dir, &'a [u8], Vec<u8>),
    /// On another machine: its attributes as they were sent.
    Carried(&'a Carried),
}

impl<'a> At<'a> {
    pub(super) fn name(dir: &'a Dir, name: &'a [u8]) -> Self {
        At::Name(dir, name, [proc_path(dir).as_bytes(), b"/", name].concat())
    }

    /// The target of a name, links followed.
    pub(super) fn followed(dir: &Dir, name: &[u8]) -> Result<Self> {
        Ok(At::place(rustix::fs::openat(dir, name, PLACE, Mode::empty())?))
    }

    /// A name itself, held.
    pub(super) fn reached(dir: &Dir, name: &[u8]) -> Result<Self> {
        Ok(At::place(rustix::fs::openat(dir, name, PLACE | OFlags::NOFOLLOW, Mode::empty())?))
    }

    fn place(fd: OwnedFd) -> Self {
        let path = proc_path(&fd).into_bytes();
        At::Place(fd, path)
    }

    /// A name itself, held so that it can be changed. Files and directories are opened, which nothing is done to by
    /// that; what can't be opened, or does something when it is, is only reached.
    pub(super) fn to_change(dir: &Dir, name: &[u8], kind: FileType) -> Result<Self> {
        if matches!(kind, FileType::RegularFile | FileType::Directory) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            if let Ok(fd) = rustix::fs::openat(dir, name, flags, Mode::empty()) {
                return Ok(At::Own(fd));
            }
        }
        At::reached(dir, name)
    }

    /// Permissions that a directory's default ACL gives to new entries; `None` where it has none.
    pub(super) fn default_permissions(&self) -> Option<u32> {
        let mut value = [0; USUAL];
        let length = self.get(POSIX_ACLS[1], &mut value).ok()?;
        default_permissions(value.get(..length)?)
    }

    /// The descriptor, where it is open for input or output.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            At::Open(fd) => Some(*fd),
            At::Own(fd) => Some(fd.as_fd()),
            At::Place(..) | At::Name(..) | At::Carried(_) => None,
        }
    }

    pub(super) fn facts(&self, mask: StatxFlags) -> Result<Statx> {
        match self {
            At::Open(fd) => meta::facts(fd, mask),
            At::Own(fd) | At::Place(fd, _) => meta::facts(fd, mask),
            At::Name(dir, name, _) => meta::facts_at(dir, name, false, mask),
            At::Carried(carried) => Ok(meta::of_carried(carried)),
        }
    }

    pub(super) fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            At::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            At::Own(fd) => rustix::fs::fchown(fd, uid, gid),
            At::Place(fd, _) => rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
            At::Name(dir, name, _) => rustix::fs::chownat(dir, *name, uid, gid, NOFOLLOW),
            At::Carried(_) => Err(Errno::BADF),
        }
    }

    /// Sets the permission bits. Not of a name: the kernel would follow a link there.
    pub(super) fn chmod(&self, mode: Mode) -> Result<()> {
        match self {
            At::Open(fd) => rustix::fs::fchmod(fd, mode),
            At::Own(fd) => rustix::fs::fchmod(fd, mode),
            At::Place(_, path) => rustix::fs::chmod(&path[..], mode),
            At::Name(..) => Err(Errno::OPNOTSUPP),
            At::Carried(_) => Err(Errno::BADF),
        }
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> Result<()> {
        match self {
            At::Open(fd) => rustix::fs::futimens(fd, times),
            At::Own(fd) => rustix::fs::futimens(fd, times),
            At::Place(_, path) => rustix::fs::utimensat(CWD, &path[..], times, AtFlags::empty()),
            At::Name(dir, name, _) => rustix::fs::utimensat(dir, *name, times, NOFOLLOW),
            At::Carried(_) => Err(Errno::BADF),
        }
    }

    pub(super) fn set(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let flags = XattrFlags::empty();
        match (self, self.fd()) {
            (_, Some(fd)) => rustix::fs::fsetxattr(fd, name, value, flags),
            (At::Name(_, _, path), _) => rustix::fs::lsetxattr(&path[..], name, value, flags),
            (At::Place(_, path), _) => rustix::fs::setxattr(&path[..], name, value, flags),
            (At::Open(_) | At::Own(_) | At::Carried(_), None) => Err(Errno::BADF),
        }
    }

    pub(super) fn remove(&self, name: &[u8]) -> Result<()> {
        match (self, self.fd()) {
            (_, Some(fd)) => rustix::fs::fremovexattr(fd, name),
            (At::Name(_, _, path), _) => rustix::fs::lremovexattr(&path[..], name),
            (At::Place(_, path), _) => rustix::fs::removexattr(&path[..], name),
            (At::Open(_) | At::Own(_) | At::Carried(_), None) => Err(Errno::BADF),
        }
    }

    fn list(&self, buffer: &mut [u8]) -> Result<usize> {
        match (self, self.fd()) {
            (_, Some(fd)) => rustix::fs::flistxattr(fd, buffer),
            (At::Name(_, _, path), _) => rustix::fs::llistxattr(&path[..], buffer),
            (At::Place(_, path), _) => rustix::fs::listxattr(&path[..], buffer),
            (At::Open(_) | At::Own(_) | At::Carried(_), None) => Err(Errno::BADF),
        }
    }

    fn get(&self, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        match (self, self.fd()) {
            (_, Some(fd)) => rustix::fs::fgetxattr(fd, name, buffer),
            (At::Name(_, _, path), _) => rustix::fs::lgetxattr(&path[..], name, buffer),
            (At::Place(_, path), _) => rustix::fs::getxattr(&path[..], name, buffer),
            (At::Open(_) | At::Own(_) | At::Carried(_), None) => Err(Errno::BADF),
        }
    }

    /// True when its file system isn't full.
    pub(super) fn has_space(&self) -> bool {
        let st = match self {
            At::Open(fd) => rustix::fs::fstatvfs(fd),
            At::Own(fd) | At::Place(fd, _) => rustix::fs::fstatvfs(fd),
            At::Name(dir, ..) => rustix::fs::fstatvfs(dir),
            At::Carried(_) => return false,
        };
        st.is_ok_and(|st| st.f_bavail > 0)
    }
}

fn proc_path(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Treatment of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goes {
    /// It is copied.
    Along,
    /// It isn't.
    Not,
    /// It should be, and only root may.
    Denied,
}

/// Extended attributes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attrs(BTreeMap<Vec<u8>, Vec<u8>>);

impl Deref for Attrs {
    type Target = BTreeMap<Vec<u8>, Vec<u8>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Attrs {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Attrs {
    /// True for the name of an ACL.
    pub(super) fn is_acl(name: &[u8]) -> bool {
        POSIX_ACLS.contains(&name) || Attrs::is_nfs4_acl(name)
    }

    /// True for the name of an NFSv4 ACL: the permission bits derive from it, and changing those changes it.
    pub(super) fn is_nfs4_acl(name: &[u8]) -> bool {
        NFS4_ACLS.contains(&name)
    }

    /// Whether an attribute of this name is copied; as root, others than `user.` may be.
    pub(super) fn goes(name: &[u8], keep: &Keep, root: bool) -> Goes {
        let own_places = LUSTRE.contains(&name) || OWN.contains(&name) || name.starts_with(b"lustre.");
        match name {
            name if Attrs::is_acl(name) => {
                if keep.acls {
                    Goes::Along
                } else {
                    Goes::Not
                }
            }
            name if name.starts_with(b"system.") || own_places || !keep.xattrs => Goes::Not,
            name if name.starts_with(b"user.") || root => Goes::Along,
            b"security.capability" => Goes::Denied,
            _ => Goes::Not,
        }
    }

    /// True for attributes that are removed where the source doesn't have them. Those set by a security module stay.
    pub(super) fn may_go(name: &[u8]) -> bool {
        let others = name.starts_with(b"security.") && name != b"security.capability";
        !Attrs::is_nfs4_acl(name) && !others && !OWN.contains(&name)
    }

    /// Those with names that are `kept`; none where the file system has no such thing.
    pub(super) fn read(at: &At<'_>, mut kept: impl FnMut(&[u8]) -> bool) -> Result<Attrs> {
        if let At::Carried(carried) = at {
            let some = carried.xattrs.iter().filter(|xattr| kept(&xattr.name));
            return Ok(Attrs(some.map(|xattr| (xattr.name.clone(), xattr.value.clone())).collect()));
        }
        let names = match grow(|buffer| at.list(buffer)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Attrs::default()),
            names => names?,
        };
        let mut attrs = Attrs::default();
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty() && kept(name)) {
            match grow(|buffer| at.get(name, buffer)) {
                Ok(value) => drop(attrs.insert(name.to_vec(), value)),
                // It vanished in between, or it is listed but can't be read by anybody.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(attrs)
    }

    /// Whether extended attributes, and ACLs, differ from those that are to be.
    pub(super) fn differ(&self, have: &Attrs) -> (bool, bool) {
        let differ = |acls: bool| {
            let of = |attrs: &Attrs| {
                let some = attrs.iter().filter(move |(name, _)| Attrs::is_acl(name) == acls);
                some.map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>()
            };
            let (want, mut have) = (of(self), of(have));
            have.retain(|name, _| want.contains_key(name) || Attrs::may_go(name));
            want != have
        };
        if self == have { (false, false) } else { (differ(false), differ(true)) }
    }
}

/// Reads what may be longer than the usual.
fn grow(mut read: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut small = [0; USUAL];
    match read(&mut small) {
        Err(Errno::RANGE) => {}
        answer => return Ok(small[..answer?].to_vec()),
    }
    let mut large = vec![0; MOST];
    let len = read(&mut large)?;
    large.truncate(len);
    Ok(large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acls_go_by_their_own_switch_and_never_with_attributes() {
        let keep = |acls, xattrs| Keep { acls, xattrs, ..Keep::default() };
        for name in POSIX_ACLS.iter().chain(&NFS4_ACLS) {
            for root in [false, true] {
                assert_eq!(Attrs::goes(name, &keep(true, false), root), Goes::Along);
                assert_eq!(Attrs::goes(name, &keep(false, true), root), Goes::Not);
            }
        }
        // An NFSv4 ACL missing at the source isn't removed: every file has one there.
        assert!(Attrs::may_go(POSIX_ACLS[0]) && !Attrs::may_go(NFS4_ACLS[0]));
    }

    #[test]
    fn attributes_go_as_far_as_they_are_the_files_own() {
        let all = Keep { acls: true, xattrs: true, ..Keep::default() };
        let goes = |name: &[u8], root| Attrs::goes(name, &all, root);
        assert_eq!((goes(b"user.x", false), goes(b"trusted.x", true)), (Goes::Along, Goes::Along));
        assert_eq!((goes(b"trusted.x", false), goes(b"security.capability", false)), (Goes::Not, Goes::Denied));
        assert_eq!((goes(b"security.capability", true), goes(b"system.other", true)), (Goes::Along, Goes::Not));
        assert_eq!((goes(b"lustre.lov", true), goes(b"trusted.lov", true)), (Goes::Not, Goes::Not));
        assert_eq!((goes(b"trusted.SGI_ACL_FILE", true), goes(b"security.evm", true)), (Goes::Not, Goes::Not));
        assert_eq!(Attrs::goes(b"user.x", &Keep { acls: true, ..Keep::default() }, true), Goes::Not);
    }
}
