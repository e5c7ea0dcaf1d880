//! Extended attributes including ACLs, and the calls that set attributes by name, on an open file, or on an `O_PATH` descriptor.

use super::{dir::Dir, meta};
use haul_core::{attributes::FileAttributes, keep::Keep};
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
pub(super) enum XattrHolder<'a> {
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
    Carried(&'a FileAttributes),
}

impl<'a> XattrHolder<'a> {
    pub(super) fn name(dir: &'a Dir, name: &'a [u8]) -> Self {
        XattrHolder::Name(dir, name, [proc_path(dir).as_bytes(), b"/", name].concat())
    }

    /// The target of a name, links followed.
    pub(super) fn followed(dir: &Dir, name: &[u8]) -> Result<Self> {
        Ok(XattrHolder::place(rustix::fs::openat(dir, name, PLACE, Mode::empty())?))
    }

    /// A name itself, held.
    pub(super) fn reached(dir: &Dir, name: &[u8]) -> Result<Self> {
        Ok(XattrHolder::place(rustix::fs::openat(dir, name, PLACE | OFlags::NOFOLLOW, Mode::empty())?))
    }

    fn place(fd: OwnedFd) -> Self {
        let path = proc_path(&fd).into_bytes();
        XattrHolder::Place(fd, path)
    }

    /// A name itself, held so that it can be changed. Files and directories are opened, which nothing is done to by
    /// that; what can't be opened, or does something when it is, is only reached.
    pub(super) fn to_change(dir: &Dir, name: &[u8], kind: FileType) -> Result<Self> {
        if matches!(kind, FileType::RegularFile | FileType::Directory) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            if let Ok(fd) = rustix::fs::openat(dir, name, flags, Mode::empty()) {
                return Ok(XattrHolder::Own(fd));
            }
        }
        XattrHolder::reached(dir, name)
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
            XattrHolder::Open(fd) => Some(*fd),
            XattrHolder::Own(fd) => Some(fd.as_fd()),
            XattrHolder::Place(..) | XattrHolder::Name(..) | XattrHolder::Carried(_) => None,
        }
    }

    pub(super) fn facts(&self, mask: StatxFlags) -> Result<Statx> {
        match self {
            XattrHolder::Open(fd) => meta::facts(fd, mask),
            XattrHolder::Own(fd) | XattrHolder::Place(fd, _) => meta::facts(fd, mask),
            XattrHolder::Name(dir, name, _) => meta::facts_at(dir, name, false, mask),
            XattrHolder::Carried(carried) => Ok(meta::of_carried(carried)),
        }
    }

    pub(super) fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            XattrHolder::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            XattrHolder::Own(fd) => rustix::fs::fchown(fd, uid, gid),
            XattrHolder::Place(fd, _) => rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
            XattrHolder::Name(dir, name, _) => rustix::fs::chownat(dir, *name, uid, gid, NOFOLLOW),
            XattrHolder::Carried(_) => Err(Errno::BADF),
        }
    }

    /// Sets the permission bits. Not of a name: the kernel would follow a link there.
    pub(super) fn chmod(&self, mode: Mode) -> Result<()> {
        match self {
            XattrHolder::Open(fd) => rustix::fs::fchmod(fd, mode),
            XattrHolder::Own(fd) => rustix::fs::fchmod(fd, mode),
            XattrHolder::Place(_, path) => rustix::fs::chmod(&path[..], mode),
            XattrHolder::Name(..) => Err(Errno::OPNOTSUPP),
            XattrHolder::Carried(_) => Err(Errno::BADF),
        }
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> Result<()> {
        match self {
            XattrHolder::Open(fd) => rustix::fs::futimens(fd, times),
            XattrHolder::Own(fd) => rustix::fs::futimens(fd, times),
            XattrHolder::Place(_, path) => rustix::fs::utimensat(CWD, &path[..], times, AtFlags::empty()),
            XattrHolder::Name(dir, name, _) => rustix::fs::utimensat(dir, *name, times, NOFOLLOW),
            XattrHolder::Carried(_) => Err(Errno::BADF),
        }
    }

    pub(super) fn set(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let flags = XattrFlags::empty();
        match (self, self.fd()) {
            (_, Some(fd)) => rustix::fs::fsetxattr(fd, name, value, flags),
            (XattrHolder::Name(_, _, path), _) => rustix::fs::lsetxattr(&path[..], name, value, flags),
            (XattrHolder::Place(_, path), _) => rustix::fs::setxattr(&path[..], name, value, flags),
            (XattrHolder::Open(_) | XattrHolder::Own(_) | XattrHolder::Carried(_), None) => Err(Errno::BADF),
        }
    }

    pub(super) fn remove(&self, name: &[u8]) -> Result<()> {
        match (self, self.fd()) {
            (_, Some(fd)) => rustix::fs::fremovexattr(fd, name),
            (XattrHolder::Name(_, _, path), _) => rustix::fs::lremovexattr(&path[..], name),
            (XattrHolder::Place(_, path), _) => rustix::fs::removexattr(&path[..], name),
            (XattrHolder::Open(_) | XattrHolder::Own(_) | XattrHolder::Carried(_), None) => Err(Errno::BADF),
        }
    }

    fn list(&self, buffer: &mut [u8]) -> Result<usize> {
        match (self, self.fd()) {
            (_, Some(fd)) => rustix::fs::flistxattr(fd, buffer),
            (XattrHolder::Name(_, _, path), _) => rustix::fs::llistxattr(&path[..], buffer),
            (XattrHolder::Place(_, path), _) => rustix::fs::listxattr(&path[..], buffer),
            (XattrHolder::Open(_) | XattrHolder::Own(_) | XattrHolder::Carried(_), None) => Err(Errno::BADF),
        }
    }

    fn get(&self, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        match (self, self.fd()) {
            (_, Some(fd)) => rustix::fs::fgetxattr(fd, name, buffer),
            (XattrHolder::Name(_, _, path), _) => rustix::fs::lgetxattr(&path[..], name, buffer),
            (XattrHolder::Place(_, path), _) => rustix::fs::getxattr(&path[..], name, buffer),
            (XattrHolder::Open(_) | XattrHolder::Own(_) | XattrHolder::Carried(_), None) => Err(Errno::BADF),
        }
    }

    /// True when its file system isn't full.
    pub(super) fn has_space(&self) -> bool {
        let st = match self {
            XattrHolder::Open(fd) => rustix::fs::fstatvfs(fd),
            XattrHolder::Own(fd) | XattrHolder::Place(fd, _) => rustix::fs::fstatvfs(fd),
            XattrHolder::Name(dir, ..) => rustix::fs::fstatvfs(dir),
            XattrHolder::Carried(_) => return false,
        };
        st.is_ok_and(|st| st.f_bavail > 0)
    }
}

fn proc_path(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Treatment of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum XattrTreatment {
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
    pub(super) fn goes(name: &[u8], keep: &Keep, root: bool) -> XattrTreatment {
        let own_places = LUSTRE.contains(&name) || OWN.contains(&name) || name.starts_with(b"lustre.");
        match name {
            name if Attrs::is_acl(name) => {
                if keep.acls {
                    XattrTreatment::Along
                } else {
                    XattrTreatment::Not
                }
            }
            name if name.starts_with(b"system.") || own_places || !keep.xattrs => XattrTreatment::Not,
            name if name.starts_with(b"user.") || root => XattrTreatment::Along,
            b"security.capability" => XattrTreatment::Denied,
            _ => XattrTreatment::Not,
        }
    }

    /// True for attributes that are removed where the source doesn't have them. Those set by a security module stay.
    pub(super) fn may_go(name: &[u8]) -> bool {
        let others = name.starts_with(b"security.") && name != b"security.capability";
        !Attrs::is_nfs4_acl(name) && !others && !OWN.contains(&name)
    }

    /// Those with names that are `kept`; none where the file system has no such thing.
    pub(super) fn read(at: &XattrHolder<'_>, mut kept: impl FnMut(&[u8]) -> bool) -> Result<Attrs> {
        if let XattrHolder::Carried(carried) = at {
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
                assert_eq!(Attrs::goes(name, &keep(true, false), root), XattrTreatment::Along);
                assert_eq!(Attrs::goes(name, &keep(false, true), root), XattrTreatment::Not);
            }
        }
        // An NFSv4 ACL missing at the source isn't removed: every file has one there.
        assert!(Attrs::may_go(POSIX_ACLS[0]) && !Attrs::may_go(NFS4_ACLS[0]));
    }

    #[test]
    fn attributes_go_as_far_as_they_are_the_files_own() {
        let all = Keep { acls: true, xattrs: true, ..Keep::default() };
        let goes = |name: &[u8], root| Attrs::goes(name, &all, root);
        assert_eq!((goes(b"user.x", false), goes(b"trusted.x", true)), (XattrTreatment::Along, XattrTreatment::Along));
        assert_eq!(
            (goes(b"trusted.x", false), goes(b"security.capability", false)),
            (XattrTreatment::Not, XattrTreatment::Denied)
        );
        assert_eq!(
            (goes(b"security.capability", true), goes(b"system.other", true)),
            (XattrTreatment::Along, XattrTreatment::Not)
        );
        assert_eq!((goes(b"lustre.lov", true), goes(b"trusted.lov", true)), (XattrTreatment::Not, XattrTreatment::Not));
        assert_eq!(
            (goes(b"trusted.SGI_ACL_FILE", true), goes(b"security.evm", true)),
            (XattrTreatment::Not, XattrTreatment::Not)
        );
        assert_eq!(Attrs::goes(b"user.x", &Keep { acls: true, ..Keep::default() }, true), XattrTreatment::Not);
    }
}
