//! Attributes of files beside bytes: reads them at the source and sets them at the destination, on descriptors. `haul_core::attributes`
//! decides which to set; one that can't be set is reported in the answer, not as an error.
//!
//! Order matters. Owner first, since a change of owner clears set-id bits and file capabilities; then extended
//! attributes, for which the file must still be writable; then ACLs; then the permission bits; times last.

use super::{
    Local,
    dir::{Dir, Root},
    error::{changed, check_key, fail, fail_link, fail_write},
    hidden::{Owner, Suffix, temp_name},
    meta, publish,
    xattrs::{Attrs, XattrHolder, XattrTreatment},
};
use haul_core::{
    Error, ErrorKind, Key, Meta, Mtime, Result,
    attributes::{
        Attribute, Differs, FileAttributes, Ownership, Rights, TargetAttributes, UnpreservedAttributes,
        UnpreservedReason, Xattr, wanted,
    },
    keep::Keep,
    key::parent,
};
use haul_store::{
    AttributesItem, AttributesResult, CopyItem, SmallFile, StoredFacts, WriteSpec,
    disk::Abandoned,
    statx::{Statx, Time},
};
use rustix::{
    fs::{FileType, Mode, StatxFlags},
    io::Errno,
    thread::CapabilitySet,
};
use std::{
    borrow::Cow,
    io::Read as _,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::OnceLock,
};

const OP: &str = "set attributes";

/// The set-group-ID bit of a mode.
const SET_GROUP_ID: u32 = 0o2000;

/// Facts needed of a file whose attributes are copied.
pub(super) const FACTS: StatxFlags = StatxFlags::BASIC_STATS;

/// This process's rights over files; found out once.
pub(super) fn rights() -> Rights {
    static RIGHTS: OnceLock<Rights> = OnceLock::new();
    RIGHTS.get_or_init(ask_rights).clone()
}

/// Whose files the new ones are; asked once.
fn our_uid() -> u32 {
    static UID: OnceLock<u32> = OnceLock::new();
    *UID.get_or_init(|| rustix::process::geteuid().as_raw())
}

fn ask_rights() -> Rights {
    let root = rustix::process::geteuid().is_root();
    let may = |cap| rustix::thread::capabilities(None).map_or(root, |sets| sets.effective.contains(cap));
    let mut groups: Vec<u32> =
        rustix::process::getgroups().unwrap_or_default().into_iter().map(|gid| gid.as_raw()).collect();
    groups.push(rustix::process::getegid().as_raw());
    let (any_owner, devices) = (may(CapabilitySet::CHOWN), may(CapabilitySet::MKNOD));
    Rights { any_owner, devices, groups: groups.into(), umask: super::umask() }
}

/// The attributes that a batch keeps.
#[derive(Clone, Copy)]
pub(super) struct Keeper<'a> {
    pub keep: &'a Keep,
    pub rights: &'a Rights,
    /// The permissions that the directory's default ACL gives to new files, where that was looked at: `Some(None)` without one.
    pub default: Option<Option<u32>>,
}

/// The keeper of one item; `None` when nothing is to be kept.
pub(super) fn keeper<'a>(local: &'a Local, spec: &'a WriteSpec) -> Option<Keeper<'a>> {
    spec.keep.as_deref().map(|keep| Keeper { keep, rights: &local.rights, default: None })
}

/// Source and target of a copy of attributes, and those that the user sets besides.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    from: &'a Key,
    to: &'a Key,
    mtime: Option<Mtime>,
    meta: Option<&'a Meta>,
}

impl<'a> From<&'a CopyItem> for Subject<'a> {
    fn from(item: &'a CopyItem) -> Self {
        Subject { from: &item.from, to: &item.to, mtime: item.spec.mtime, meta: item.spec.meta.as_deref() }
    }
}

impl<'a> From<&'a SmallFile> for Subject<'a> {
    fn from(SmallFile { key, spec, .. }: &'a SmallFile) -> Self {
        Subject { from: key, to: key, mtime: spec.mtime, meta: spec.meta.as_deref() }
    }
}

impl<'a> From<&'a AttributesItem> for Subject<'a> {
    fn from(item: &'a AttributesItem) -> Self {
        Subject { from: &item.from, to: &item.to, mtime: item.mtime, meta: item.meta.as_deref() }
    }
}

/// Times to set; `None` leaves a time as it is.
pub(super) struct Times {
    pub mtime: Option<Mtime>,
    pub atime: Option<Mtime>,
}

fn owned(st: &Statx) -> Ownership {
    Ownership { mode: u32::from(st.stx_mode), uid: st.stx_uid, gid: st.stx_gid }
}

/// Attributes of a new file of ours before any is set. Its group may be the directory's: assume none, to be safe.
fn fresh(mode: u32, rights: &Rights) -> Ownership {
    Ownership { mode: mode & !rights.umask, uid: our_uid(), gid: u32::MAX }
}

/// Permissions that a directory's default ACL gives to new files, if it has one.
pub(super) fn default_permissions(dir: &Dir, name: &[u8]) -> Option<u32> {
    XattrHolder::name(dir, name).default_permissions()
}

impl Keeper<'_> {
    /// The facts of the file that a new one is to replace, where they are needed: `--executability` changes the
    /// permissions that are there, where the source's own aren't kept.
    pub(super) fn replaced(&self, dir: &Dir, name: &[u8]) -> Option<Statx> {
        let asks = self.keep.executability && !self.keep.private();
        let st = asks.then(|| meta::facts_at(dir, name, false, FACTS).ok()).flatten()?;
        (meta::file_type(&st) == FileType::RegularFile).then_some(st)
    }

    /// When the source was last accessed, where that is kept: asked before it is read.
    pub(super) fn accessed(&self, source: &OwnedFd) -> rustix::io::Result<Option<Time>> {
        match self.keep.atime {
            true => meta::facts(source, StatxFlags::ATIME).map(|st| Some(st.stx_atime)),
            false => Ok(None),
        }
    }

    /// Sets everything on a file that was just written and has no final name yet; `source` and its facts are from before it was
    /// read. `replaced`: facts of the file that it will replace, where that file's permissions stay.
    pub(super) fn new_file(
        &self,
        item: Subject<'_>,
        (source, before): (&XattrHolder<'_>, &Statx),
        (dir, target): (&Dir, &OwnedFd),
        replaced: Option<&Statx>,
        mtime: Option<Mtime>,
    ) -> Result<UnpreservedAttributes> {
        let there = match replaced {
            Some(st) => Ownership { mode: u32::from(st.stx_mode), ..fresh(0o666, self.rights) },
            None => fresh(0o100_666, self.rights),
        };
        let times = self.times(item, before, mtime);
        self.set_new_attributes(
            item,
            dir,
            source,
            before,
            &XattrHolder::Open(target.as_fd()),
            there,
            replaced.is_none(),
            times,
        )
    }

    /// The times of a new file: those in metadata take precedence over the source's.
    pub(super) fn times(&self, item: Subject<'_>, st: &Statx, mtime: Option<Mtime>) -> Times {
        let given = meta::meta_time(item.meta, "atime");
        Times { mtime, atime: given.or(self.keep.atime.then(|| meta::atime(st))) }
    }

    /// True where the permissions of new files depend on the directory's default ACL.
    pub(super) fn goes_by_default(&self) -> bool {
        !self.keep.private() && !self.keep.chmod.is_empty()
    }

    /// Our rights over an entry in `dir`: a default ACL of the directory sets the permissions of new entries,
    /// in place of the umask (acl(5)).
    fn rights_in(&self, (dir, name): (&Dir, &[u8]), new: bool) -> Cow<'_, Rights> {
        let asks = new && self.goes_by_default();
        let ask = || self.default.unwrap_or_else(|| default_permissions(dir, name));
        match asks.then(ask).flatten() {
            Some(permissions) => Cow::Owned(Rights { umask: !permissions & 0o777, ..self.rights.clone() }),
            None => Cow::Borrowed(self.rights),
        }
    }

    #[allow(clippy::too_many_arguments)] // each is another fact; a struct of them would be made once and taken apart once
    fn set_new_attributes(
        &self,
        item: Subject<'_>,
        target_dir: &Dir,
        source: &XattrHolder<'_>,
        st: &Statx,
        target: &XattrHolder<'_>,
        there: Ownership,
        new: bool,
        times: Times,
    ) -> Result<UnpreservedAttributes> {
        let error = |errno| fail_write(OP, item.to, errno);
        let mut there = there;
        if u32::from(st.stx_mode) & SET_GROUP_ID != 0 && !self.keep.group {
            // The copy's actual group decides whether the bit may stay.
            there.gid = target.facts(FACTS).map_err(error)?.stx_gid;
        }
        let want = wanted(owned(st), there, new, self.keep, &self.rights_in((target_dir, b"."), new));
        let mut unpreserved = want.unpreserved;
        let chowned = self.chown(target, want.uid, want.gid, &mut unpreserved).map_err(error)?;
        let attrs = self.attrs(item, source, &mut unpreserved)?;
        if self.keep.acls || !attrs.is_empty() {
            // Attributes that a new file already has come from a default ACL of its directory, or from a security module.
            let mut have = self.read(target, &mut UnpreservedAttributes::default()).map_err(error)?;
            have.retain(|name, _| Attrs::is_acl(name));
            self.put(item, target, &attrs, &have, 0o600, &mut unpreserved)?;
        }
        if let Some(mode) = want.mode {
            // With another owner, a set-id bit would grant the wrong user's rights.
            let mode = if chowned { mode } else { mode & 0o1777 };
            self.chmod(target, mode, &mut unpreserved).map_err(error)?;
            self.put_nfs4(item, target, &attrs, &mut unpreserved)?;
        }
        target.set_times(&meta::times(times.atime, times.mtime)).map_err(error)?;
        Ok(unpreserved)
    }

    /// False when owner or group were to be set and could not be.
    fn chown(
        &self,
        target: &XattrHolder<'_>,
        uid: Option<u32>,
        gid: Option<u32>,
        unpreserved: &mut UnpreservedAttributes,
    ) -> rustix::io::Result<bool> {
        if uid.is_none() && gid.is_none() {
            return Ok(true);
        }
        let why = match target.chown(uid, gid) {
            Ok(()) => return Ok(true),
            Err(Errno::PERM | Errno::ACCESS) if !self.rights.any_owner => UnpreservedReason::Denied,
            // A file system without owners, an id that a container or server doesn't know.
            Err(Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                UnpreservedReason::Lacking
            }
            Err(errno) => return Err(errno),
        };
        if uid.is_some() {
            unpreserved.add(Attribute::Owner, why);
        }
        if gid.is_some() && (uid.is_none() || target.chown(None, gid).is_err()) {
            unpreserved.add(Attribute::Group, why);
        }
        Ok(false)
    }

    fn chmod(
        &self,
        target: &XattrHolder<'_>,
        mode: u32,
        unpreserved: &mut UnpreservedAttributes,
    ) -> rustix::io::Result<()> {
        match target.chmod(Mode::from_raw_mode(mode)) {
            Err(Errno::PERM) if !self.rights.any_owner => unpreserved.add(Attribute::Mode, UnpreservedReason::Denied),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                unpreserved.add(Attribute::Mode, UnpreservedReason::Lacking)
            }
            answer => return answer,
        }
        Ok(())
    }

    /// Attributes to set on the copy: the source's, and those that the user sets on everything.
    fn attrs(
        &self,
        item: Subject<'_>,
        source: &XattrHolder<'_>,
        unpreserved: &mut UnpreservedAttributes,
    ) -> Result<Attrs> {
        let mut attrs = match self.keep.looks_inside() {
            true => self.read(source, unpreserved).map_err(|errno| fail("read attributes", item.from, errno))?,
            false => Attrs::default(),
        };
        attrs.extend(item.meta.into_iter().flatten().filter_map(|(name, value)| meta::user_attr(name, value)));
        Ok(attrs)
    }

    fn read(&self, at: &XattrHolder<'_>, unpreserved: &mut UnpreservedAttributes) -> rustix::io::Result<Attrs> {
        Attrs::read(at, |name| match Attrs::goes(name, self.keep, self.rights.any_owner) {
            XattrTreatment::Along => true,
            XattrTreatment::Not => false,
            XattrTreatment::Denied => {
                unpreserved.add(Attribute::Xattrs, UnpreservedReason::Denied);
                false
            }
        })
    }

    /// Makes the extended attributes and ACLs `have` become `want`; `mode` is what the file has now.
    fn put(
        &self,
        item: Subject<'_>,
        target: &XattrHolder<'_>,
        want: &Attrs,
        have: &Attrs,
        mode: u32,
        unpreserved: &mut UnpreservedAttributes,
    ) -> Result<Differs> {
        let mut done = Differs::default();
        // ACLs are last: one may forbid us to write.
        for acls in [false, true] {
            let kind = if acls { Attribute::Acls } else { Attribute::Xattrs };
            for (name, value) in
                want.iter().filter(|(name, value)| Attrs::is_acl(name) == acls && have.get(*name) != Some(*value))
            {
                let mut set = target.set(name, value);
                if set == Err(Errno::ACCESS) && mode & 0o200 == 0 {
                    target.chmod(Mode::from_raw_mode((mode & 0o7777) | 0o200)).map_err(|e| fail(OP, item.to, e))?;
                    set = target.set(name, value);
                }
                match set {
                    Ok(()) if acls => done.acls = true,
                    Ok(()) => done.xattrs = true,
                    Err(errno) => unpreserved.add(kind, self.why_not(item, target, errno)?),
                }
            }
            let gone = |name: &[u8]| Attrs::is_acl(name) == acls && !want.contains_key(name) && Attrs::may_go(name);
            for name in have.keys().filter(|name| gone(name)) {
                match target.remove(name) {
                    Ok(()) | Err(Errno::NODATA) if acls => done.acls = true,
                    Ok(()) | Err(Errno::NODATA) => done.xattrs = true,
                    Err(errno) => unpreserved.add(kind, self.why_not(item, target, errno)?),
                }
            }
        }
        Ok(done)
    }

    /// Sets an NFSv4 ACL once more after the permission bits, which are made from it and change it when they are set.
    fn put_nfs4(
        &self,
        item: Subject<'_>,
        target: &XattrHolder<'_>,
        want: &Attrs,
        unpreserved: &mut UnpreservedAttributes,
    ) -> Result<()> {
        for (name, value) in want.iter().filter(|(name, _)| Attrs::is_nfs4_acl(name)) {
            if let Err(errno) = target.set(name, value) {
                unpreserved.add(Attribute::Acls, self.why_not(item, target, errno)?);
            }
        }
        Ok(())
    }

    /// Why an attribute can't be set; an error where it could be but something failed.
    fn why_not(&self, item: Subject<'_>, target: &XattrHolder<'_>, errno: Errno) -> Result<UnpreservedReason> {
        match errno {
            Errno::PERM | Errno::ACCESS if !self.rights.any_owner => Ok(UnpreservedReason::Denied),
            Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS => Ok(UnpreservedReason::Lacking),
            Errno::TOOBIG | Errno::RANGE | Errno::INVAL => Ok(UnpreservedReason::Lacking),
            // Some file systems have one block for a file's attributes and say this when it is full, disk full or not.
            Errno::NOSPC if target.has_space() => Ok(UnpreservedReason::Lacking),
            errno => Err(fail_write(OP, item.to, errno)),
        }
    }
}

/// Makes the symbolic link `key` that holds `text`, with the owner, attributes and times of `name` in `from`.
pub(super) fn link(
    local: &Local,
    item: &CopyItem,
    keeper: Keeper<'_>,
    (from, name, st): (&Dir, &[u8], &Statx),
    (key, text): (&Key, &[u8]),
    mtime: Mtime,
) -> Result<(Dir, UnpreservedAttributes)> {
    let suffix = Suffix::of("copy", key, &item.spec)?;
    let (dir, made) = publish::in_dir_or_errno(&local.root, "copy", key, |dir| {
        let temp = temp_name(Owner::Process, key.name(), suffix);
        rustix::fs::symlinkat(text, dir, &temp[..])?;
        Ok(temp)
    })?;
    let temp = made.map_err(|errno| fail_link("copy", key, errno))?;
    let there = Ownership { mode: 0o120_777, ..fresh(0, keeper.rights) };
    let times = keeper.times(item.into(), st, Some(mtime));
    let (source, target) = (XattrHolder::name(from, name), XattrHolder::name(&dir, &temp));
    let attributes_set = keeper.set_new_attributes(item.into(), &dir, &source, st, &target, there, true, times);
    let unpreserved = settle(item, key, (&dir, &temp), attributes_set)?;
    Ok((dir, unpreserved))
}

/// Renames an entry made under a hidden name to its final name, or removes it.
fn settle(
    item: &CopyItem,
    key: &Key,
    (dir, temp): (&Dir, &[u8]),
    attributes_set: Result<UnpreservedAttributes>,
) -> Result<UnpreservedAttributes> {
    let no_file: Option<&OwnedFd> = None;
    let settled = attributes_set.and_then(|unpreserved| {
        publish::settle("copy", key, (dir, temp, key.name()), &item.spec.replace, no_file).map(|()| unpreserved)
    });
    settled.inspect_err(|_| publish::discard(dir, temp))
}

/// Makes a device, FIFO or socket anew; see [`haul_store::CopyHow::Special`].
pub(super) fn special(local: &Local, item: &CopyItem, (root, from): (&Root, &Dir)) -> Result<(Dir, StoredFacts)> {
    let name = item.from.name();
    let source_error = |errno| fail("copy", &item.from, errno);
    let source = if root.follow() {
        XattrHolder::followed(from, name).map_err(source_error)?
    } else {
        XattrHolder::name(from, name)
    };
    special_as(local, item, &source)
}

/// Makes a device, FIFO or socket from carried attributes, or from those at `source`.
pub(super) fn special_as(local: &Local, item: &CopyItem, source: &XattrHolder<'_>) -> Result<(Dir, StoredFacts)> {
    let error = |errno| fail_write("copy", &item.to, errno);
    let st = source.facts(FACTS).map_err(|errno| fail("copy", &item.from, errno))?;
    let kind = meta::file_type(&st);
    let what = match kind {
        FileType::BlockDevice | FileType::CharacterDevice => Attribute::Device,
        FileType::Fifo | FileType::Socket => Attribute::Special,
        _ => return Err(changed("copy", &item.from)),
    };
    let nothing = Keep::default();
    let keeper = Keeper { keep: item.spec.keep.as_deref().unwrap_or(&nothing), rights: &local.rights, default: None };
    let device = rustix::fs::makedev(st.stx_rdev_major, st.stx_rdev_minor);
    let mode = publish::first_mode(keeper.keep.private());
    let suffix = Suffix::of("copy", &item.to, &item.spec)?;
    let (dir, made) = publish::in_dir_or_errno(&local.root, "copy", &item.to, |dir| {
        let temp = temp_name(Owner::Process, item.to.name(), suffix);
        // Some file systems in user space make a plain file of that name, and then an error.
        rustix::fs::mknodat(dir, &temp[..], kind, mode, device).inspect_err(|_| publish::discard(dir, &temp))?;
        Ok(temp)
    })?;
    let temp = match made {
        Ok(temp) => temp,
        Err(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) => {
            let denied = errno == Errno::PERM && !keeper.rights.devices;
            let mut stored = StoredFacts::default();
            stored.unpreserved.add(what, if denied { UnpreservedReason::Denied } else { UnpreservedReason::Lacking });
            return Ok((dir, stored));
        }
        Err(errno) => return Err(error(errno)),
    };
    let mtime = item.spec.mtime.unwrap_or(meta::mtime(&st));
    let attributes_set = XattrHolder::reached(&dir, &temp).map_err(error).and_then(|target| {
        let there = fresh(0o666, keeper.rights);
        let times = keeper.times(item.into(), &st, Some(mtime));
        keeper.set_new_attributes(item.into(), &dir, source, &st, &target, there, true, times)
    });
    let unpreserved = settle(item, &item.to, (&dir, &temp), attributes_set)?;
    Ok((dir, StoredFacts { unpreserved, ..StoredFacts::default() }))
}

/// Where something is: its directory and its name there.
fn found(root: &Root, key: &Key, write: bool) -> rustix::io::Result<(Dir, Vec<u8>)> {
    if key.is_root() {
        return Ok((root.root()?, b".".to_vec()));
    }
    let folder = parent(key.as_bytes());
    let dir = if write { root.dir_beneath(folder)? } else { root.dir(folder)? };
    Ok((dir, key.name().to_vec()))
}

/// The entry of that name, or its target.
fn at((dir, name): &(Dir, Vec<u8>), follow: bool) -> rustix::io::Result<XattrHolder<'_>> {
    if follow { XattrHolder::followed(dir, name) } else { Ok(XattrHolder::name(dir, name)) }
}

/// Attributes of an entry (everything beside name and bytes), for another machine; see [`haul_store::Inodes::carry`].
pub(super) fn carry(local: &Local, key: &Key, inside: bool, abandoned: &Abandoned) -> Result<FileAttributes> {
    const READ: &str = "read attributes";
    abandoned.check(READ, key)?;
    check_key(READ, key)?;
    let error = |errno| fail(READ, key, errno);
    let here = found(&local.root, key, false).map_err(error)?;
    let source = at(&here, local.root.follows(key)).map_err(error)?;
    let st = source.facts(FACTS).map_err(error)?;
    let all = Keep { xattrs: true, acls: true, ..Keep::default() };
    let attrs = match inside {
        true => Attrs::read(&source, |name| Attrs::goes(name, &all, true) == XattrTreatment::Along).map_err(error)?,
        false => Attrs::default(),
    };
    let xattrs = attrs.iter().map(|(name, value)| Xattr { name: name.clone(), value: value.clone() }).collect();
    let Ownership { mode, uid, gid } = owned(&st);
    let rdev = (st.stx_rdev_major, st.stx_rdev_minor);
    Ok(FileAttributes { mode, uid, gid, rdev, mtime: meta::mtime(&st), atime: meta::atime(&st), xattrs })
}

/// Compares the attributes of two things that are there, and sets what differs; see [`haul_store::Inodes::attributes`]. Runs on the
/// pool.
pub(super) fn of_item(
    local: &Local,
    from: &Root,
    item: &AttributesItem,
    set: bool,
    abandoned: &Abandoned,
) -> Result<AttributesResult> {
    abandoned.check(OP, &item.to)?;
    match existing(local, from, item, set) {
        // Who only compares changes nothing, directories that are closed to us included.
        Err(error) if set && denied(&error, item.keep.as_deref()) && open_up(&local.root, &item.to) => {
            existing(local, from, item, set)
        }
        answer => answer,
    }
}

/// One attempt at setting the attributes of an existing entry.
pub(super) fn existing(local: &Local, from: &Root, item: &AttributesItem, set: bool) -> Result<AttributesResult> {
    check_key(OP, &item.from)?;
    check_key(OP, &item.to)?;
    meta::check_time(OP, &item.to, item.mtime)?;
    let source_error = |errno| fail(OP, &item.from, errno);
    let target_error = |errno| fail(OP, &item.to, errno);
    let (dir, name) = found(&local.root, &item.to, true).map_err(target_error)?;
    let here;
    let source = match item.carried.as_deref() {
        Some(carried) => XattrHolder::Carried(carried),
        None => {
            here = found(from, &item.from, false).map_err(source_error)?;
            at(&here, from.follows(&item.from)).map_err(source_error)?
        }
    };
    let st = source.facts(FACTS).map_err(source_error)?;
    let there = meta::facts_at(&dir, &name, false, FACTS).map_err(target_error)?;
    let links = meta::file_type(&there) == FileType::Symlink;
    if meta::file_type(&st) != meta::file_type(&there) || item.to.is_symlink() && !links {
        return Err(changed(OP, &item.to));
    }
    let nothing = Keep::default();
    let keeper = Keeper { keep: item.keep.as_deref().unwrap_or(&nothing), rights: &local.rights, default: None };
    // A new directory has got the default ACL of the one that it is in.
    let inside = if meta::file_type(&st) == FileType::Directory { &name[..] } else { b"." };
    let rights = keeper.rights_in((&dir, inside), item.new);
    let want = wanted(owned(&st), owned(&there), item.new, keeper.keep, &rights);
    let mut unpreserved = want.unpreserved;
    let attrs = keeper.attrs(item.into(), &source, &mut unpreserved)?;
    let have = match keeper.keep.looks_inside() || !attrs.is_empty() {
        true => {
            keeper.read(&XattrHolder::name(&dir, &name), &mut UnpreservedAttributes::default()).map_err(target_error)?
        }
        false => Attrs::default(),
    };
    let (xattrs, acls) = attrs.differ(&have);
    let differs = Differs {
        mtime: item.mtime.is_some_and(|mtime| mtime != meta::mtime(&there)),
        xattrs,
        acls,
        ..owned_otherwise(&want, &there)
    };
    if !set || !differs.any() {
        return Ok(AttributesResult { differs, unpreserved });
    }
    let target = XattrHolder::to_change(&dir, &name, meta::file_type(&there)).map_err(target_error)?;
    let now = target.facts(FACTS).map_err(target_error)?;
    if (now.stx_ino, meta::file_type(&now)) != (there.stx_ino, meta::file_type(&there)) {
        return Err(changed(OP, &item.to));
    }
    let job = Change { keeper, item: item.into(), target: &target, there: &there, want, attrs: &attrs, have };
    let differs = job.make(differs, &st, &mut unpreserved)?;
    Ok(AttributesResult { differs, unpreserved })
}

/// Sets the user's own attributes (`--chmod`, `--chown`, `--metadata-set`) on a file that kept the rest by being
/// renamed.
pub(super) fn renamed(item: &CopyItem, keeper: Keeper<'_>, dir: &Dir) -> Result<UnpreservedAttributes> {
    let error = |errno| fail(OP, &item.to, errno);
    let Keep { chmod, users, groups, .. } = keeper.keep;
    let mut unpreserved = UnpreservedAttributes::default();
    if chmod.is_empty() && users.is_empty() && groups.is_empty() && item.spec.meta.is_none() {
        return Ok(unpreserved);
    }
    let there = meta::facts_at(dir, item.to.name(), false, FACTS).map_err(error)?;
    let target = XattrHolder::to_change(dir, item.to.name(), meta::file_type(&there)).map_err(error)?;
    let (users, groups) = (users.clone(), groups.clone());
    let given = Keep { perms: !chmod.is_empty(), chmod: chmod.clone(), users, groups, ..Keep::default() };
    let keeper = Keeper { keep: &given, ..keeper };
    let want = wanted(owned(&there), owned(&there), false, keeper.keep, keeper.rights);
    unpreserved.merge(want.unpreserved);
    let differs = owned_otherwise(&want, &there);
    let attrs = keeper.attrs(item.into(), &target, &mut unpreserved)?;
    let job = Change {
        keeper,
        item: item.into(),
        target: &target,
        there: &there,
        want,
        attrs: &attrs,
        have: Attrs::default(),
    };
    job.make(differs, &there, &mut unpreserved)?;
    Ok(unpreserved)
}

/// Gives a file of ours the permissions of the regular file that it is about to replace, if there is one; with
/// [`Keep::executability`] it may be executed as it may now.
pub(super) fn keep_mode(
    keep: Option<&Keep>,
    (from, name): (&Dir, &[u8]),
    (to, replaced): (&Dir, &[u8]),
) -> rustix::io::Result<()> {
    let Ok(there) = meta::facts_at(to, replaced, false, FACTS) else { return Ok(()) };
    if meta::file_type(&there) != FileType::RegularFile {
        return Ok(());
    }
    let file = super::read::open_file(from, name, false)?;
    let mut mode = u32::from(there.stx_mode) & 0o777;
    if keep.is_some_and(|keep| keep.executability) {
        mode = match u32::from(meta::facts(&file, FACTS)?.stx_mode) & 0o111 {
            0 => mode & !0o111,
            _ if mode & 0o111 == 0 => mode | (mode & 0o444) >> 2,
            _ => mode,
        };
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
}

/// The owner, group and permission bits that differ from the wanted ones.
fn owned_otherwise(want: &TargetAttributes, there: &Statx) -> Differs {
    Differs {
        mode: want.mode.is_some_and(|mode| mode != owned(there).mode & 0o7777),
        owner: want.uid.is_some_and(|uid| uid != there.stx_uid),
        group: want.gid.is_some_and(|gid| gid != there.stx_gid),
        ..Differs::default()
    }
}

/// A change of an existing entry.
struct Change<'a> {
    keeper: Keeper<'a>,
    item: Subject<'a>,
    target: &'a XattrHolder<'a>,
    there: &'a Statx,
    want: TargetAttributes,
    attrs: &'a Attrs,
    have: Attrs,
}

impl Change<'_> {
    /// Sets differing attributes; returns those that were changed.
    fn make(mut self, differs: Differs, st: &Statx, unpreserved: &mut UnpreservedAttributes) -> Result<Differs> {
        let error = |errno| fail(OP, self.item.to, errno);
        let (keeper, target, before) = (self.keeper, self.target, owned(self.there));
        let mut done = Differs { mode: differs.mode, mtime: differs.mtime, ..Differs::default() };
        let mut owned_as_wanted = true;
        let mut bits = before.mode;
        if differs.owner || differs.group {
            let (uid, gid) = (self.want.uid.filter(|_| differs.owner), self.want.gid.filter(|_| differs.group));
            owned_as_wanted = keeper.chown(target, uid, gid, unpreserved).map_err(error)?;
            done.owner = differs.owner && !unpreserved.holds(Attribute::Owner);
            done.group = differs.group && !unpreserved.holds(Attribute::Group);
            if keeper.keep.looks_inside() {
                // A change of owner clears capabilities.
                self.have = keeper.read(target, &mut UnpreservedAttributes::default()).map_err(error)?;
            }
            bits = owned(&target.facts(FACTS).map_err(error)?).mode;
        }
        let inside = keeper.put(self.item, target, self.attrs, &self.have, bits, unpreserved)?;
        (done.xattrs, done.acls) = (inside.xattrs, inside.acls);
        let mode = self.want.mode.unwrap_or(before.mode & 0o7777);
        let mode = if owned_as_wanted { mode } else { mode & 0o1777 };
        // ACLs and the way to extended attributes change the bits too.
        let is_link = meta::file_type(self.there) == FileType::Symlink;
        if !is_link && (differs.mode || inside.any() || bits != before.mode) {
            keeper.chmod(target, mode, unpreserved).map_err(error)?;
            keeper.put_nfs4(self.item, target, self.attrs, unpreserved)?;
            done.mode &= !unpreserved.holds(Attribute::Mode);
        }
        if differs.mtime {
            let times = keeper.times(self.item, st, self.item.mtime);
            let atime = times.atime.or(Some(meta::atime(self.there)));
            target.set_times(&meta::times(atime, times.mtime)).map_err(error)?;
        }
        Ok(done)
    }
}

/// Does `work`, and once more where directories of ours on the way to `key` may have been closed to us: opens them, unless that was
/// done meanwhile.
pub(super) fn opened<T>(root: &Root, key: &Key, keep: Option<&Keep>, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    match work() {
        Err(error) if denied(&error, keep) => {
            open_up(root, key);
            work()
        }
        answer => answer,
    }
}

/// Makes the directories on the way to `key` writable and searchable for us, where they are ours and weren't; true when
/// that changed anything. Their own permissions come back when directories get their attributes.
pub(super) fn open_up(root: &Root, key: &Key) -> bool {
    let folder = parent(key.as_bytes());
    let slashes = folder.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
    let mut opened = false;
    for end in std::iter::once(0).chain(slashes) {
        let Ok(dir) = root.dir_beneath(&folder[..end]) else { return opened };
        let Ok(st) = meta::facts(&dir, FACTS) else { return opened };
        let mode = u32::from(st.stx_mode) & 0o7777;
        let ours = st.stx_uid == our_uid();
        // By path, as the kernel takes no change of mode on a descriptor that is only a place; it leads to that place.
        let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
        if ours && mode & 0o700 != 0o700 && rustix::fs::chmod(path, Mode::from_raw_mode(mode | 0o700)).is_ok() {
            opened = true;
        }
    }
    opened
}

/// True for an error that may only be due to directories that we have no access to, where they may be opened.
pub(super) fn denied(error: &Error, keep: Option<&Keep>) -> bool {
    error.kind() == ErrorKind::Denied && keep.is_some_and(Keep::private)
}

/// Permission bits that new files don't get. Read, since asking the kernel for it changes it for a moment.
pub(super) fn read_umask() -> u32 {
    let mut status = String::new();
    let read = std::fs::File::open("/proc/self/status").and_then(|mut file| file.read_to_string(&mut status));
    let line = read.ok().and_then(|_| status.lines().find_map(|line| line.strip_prefix("Umask:")));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}
