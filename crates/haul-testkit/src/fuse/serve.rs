//! Answers to the kernel: each by the same call on the folder that is shown, unless a fault is due.

use super::{Fault, FaultOperation, FsBehaviour, Waiting, due, lock};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, SystemTime},
};

const NFS4_ACL: &str = "system.nfs4_acl";
const ROOT: u64 = 1;
/// The kernel asks anew each time.
const STALE: Duration = Duration::ZERO;

pub(super) struct FuseFs {
    folder: PathBuf,
    behaviour: FsBehaviour,
    faults: Arc<Mutex<Vec<Fault>>>,
    waiting: Arc<Waiting>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Every number that was given out, with the path below the folder.
    paths: HashMap<u64, PathBuf>,
    numbers: HashMap<PathBuf, u64>,
    open: HashMap<u64, Open>,
    given: u64,
    /// How often a path was looked up, where that counts.
    looks: HashMap<PathBuf, u32>,
    xattrs: HashMap<PathBuf, BTreeMap<Vec<u8>, Vec<u8>>>,
}

struct Open {
    file: Arc<File>,
    number: u64,
    written: bool,
    /// It said that bytes are lost.
    reported: bool,
}

type Answer<T> = Result<T, Errno>;

impl FuseFs {
    pub(super) fn new(
        folder: &Path,
        behaviour: FsBehaviour,
        faults: Arc<Mutex<Vec<Fault>>>,
        waiting: Arc<Waiting>,
    ) -> FuseFs {
        let mut state = State::default();
        state.paths.insert(ROOT, PathBuf::new());
        state.numbers.insert(PathBuf::new(), ROOT);
        FuseFs { folder: folder.to_path_buf(), behaviour, faults, waiting, state: Mutex::new(state) }
    }

    /// Where what a request is about is; each begins with it.
    fn path(&self, number: INodeNo) -> Answer<PathBuf> {
        self.waiting.wait(self.behaviour.delay);
        lock(&self.state).paths.get(&number.0).cloned().ok_or(Errno::ESTALE)
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Answer<PathBuf> {
        let path = self.path(parent)?.join(name);
        if !self.behaviour.folds_case || fs::symlink_metadata(self.real(&path)).is_ok() {
            return Ok(path);
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let there = fs::read_dir(self.real(folder))?.filter_map(|entry| Some(entry.ok()?.file_name()));
        Ok(there
            .into_iter()
            .find(|there| there.eq_ignore_ascii_case(name))
            .map_or(path.clone(), |there| folder.join(there)))
    }

    fn real(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.folder.clone() } else { self.folder.join(path) }
    }

    fn check(&self, path: &Path, is: impl Fn(&FaultOperation) -> bool) -> Answer<()> {
        match due(&self.faults, path, is) {
            Some(fault) => Err(Errno::from_i32(fault.errno.raw_os_error())),
            None => Ok(()),
        }
    }

    /// The number of what has this path.
    fn number(&self, path: &Path) -> u64 {
        let first = self.behaviour.first_inode.max(ROOT + 1);
        let state = &mut *lock(&self.state);
        if let Some(number) = state.numbers.get(path) {
            return *number;
        }
        let number = first + state.paths.len() as u64;
        state.paths.insert(number, path.to_path_buf());
        state.numbers.insert(path.to_path_buf(), number);
        number
    }

    fn entry(&self, path: &Path) -> Answer<FileAttr> {
        let st = fs::symlink_metadata(self.real(path))?;
        Ok(self.attr(self.number(path), &st))
    }

    fn attr(&self, number: u64, st: &Metadata) -> FileAttr {
        let time = |seconds: i64, nanos: i64| {
            let whole = self.behaviour.whole_seconds || self.behaviour.whole_root && number == ROOT;
            let nanos = if whole { 0 } else { nanos };
            SystemTime::UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), nanos as u32)
        };
        let ctime = time(st.ctime(), st.ctime_nsec());
        FileAttr {
            ino: INodeNo(number),
            size: st.size(),
            blocks: st.blocks(),
            atime: time(st.atime(), st.atime_nsec()),
            mtime: time(st.mtime(), st.mtime_nsec()),
            ctime,
            crtime: ctime,
            kind: FileType::from_std(st.file_type()).unwrap_or(FileType::RegularFile),
            perm: (st.mode() & 0o7777) as u16,
            nlink: st.nlink() as u32,
            uid: st.uid(),
            gid: st.gid(),
            rdev: st.rdev() as u32,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Facts by number: of an open file also when it has no name any more.
    fn facts(&self, number: INodeNo) -> Answer<FileAttr> {
        let path = self.path(number)?;
        let open = lock(&self.state).open.values().find(|open| open.number == number.0).map(|open| open.file.clone());
        let st = match open {
            Some(file) => file.metadata()?,
            None => fs::symlink_metadata(self.real(&path))?,
        };
        Ok(self.attr(number.0, &st))
    }

    fn keep(&self, file: File, number: u64) -> FileHandle {
        let state = &mut *lock(&self.state);
        state.given += 1;
        state.open.insert(state.given, Open { file: Arc::new(file), number, written: false, reported: false });
        FileHandle(state.given)
    }

    fn file(&self, handle: FileHandle) -> Answer<Arc<File>> {
        lock(&self.state).open.get(&handle.0).map(|open| open.file.clone()).ok_or(Errno::EBADF)
    }

    /// Gives what was just made to who asked for it.
    fn made(&self, request: &Request, path: &Path, mode: Option<u32>) -> Answer<FileAttr> {
        let real = self.real(path);
        std::os::unix::fs::lchown(&real, Some(request.uid()), Some(request.gid()))?;
        if let Some(mode) = mode {
            fs::set_permissions(&real, fs::Permissions::from_mode(mode & 0o7777))?;
        }
        self.entry(path)
    }

    fn forget(&self, path: &Path) {
        let state = &mut *lock(&self.state);
        state.numbers.remove(path);
        state.xattrs.remove(path);
    }

    /// What was at `from`, and below it, is at `to` now.
    fn moved(&self, from: &Path, to: &Path) {
        self.forget(to);
        let state = &mut *lock(&self.state);
        let new = |path: &Path| match path.strip_prefix(from) {
            Ok(rest) if rest.as_os_str().is_empty() => Some(to.to_path_buf()),
            Ok(rest) => Some(to.join(rest)),
            Err(_) => None,
        };
        let numbers: Vec<_> = state.numbers.iter().filter_map(|(old, n)| Some((old.clone(), new(old)?, *n))).collect();
        for (old, new, number) in numbers {
            state.numbers.remove(&old);
            state.paths.insert(number, new.clone());
            state.numbers.insert(new, number);
        }
        let xattrs: Vec<_> = state.xattrs.keys().filter_map(|old| Some((old.clone(), new(old)?))).collect();
        for (old, new) in xattrs {
            let of = state.xattrs.remove(&old).unwrap_or_default();
            state.xattrs.insert(new, of);
        }
    }

    fn renamed(&self, from: &Path, to: &Path, flags: RenameFlags) -> Answer<()> {
        if !flags.is_empty() && self.behaviour.no_conditional_rename {
            return Err(Errno::EINVAL);
        }
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        rustix::fs::renameat_with(CWD, self.real(from), CWD, self.real(to), flags).map_err(io::Error::from)?;
        self.moved(from, to);
        Ok(())
    }

    /// Cuts a file off whose closing says that bytes are lost.
    fn closed(&self, handle: FileHandle) -> Answer<()> {
        let (path, file) = {
            let state = lock(&self.state);
            let open = state.open.get(&handle.0).ok_or(Errno::EBADF)?;
            if !open.written || open.reported {
                return Ok(());
            }
            (state.paths.get(&open.number).cloned().unwrap_or_default(), open.file.clone())
        };
        let Some(fault) = due(&self.faults, &path, |of| matches!(of, FaultOperation::Close(_))) else { return Ok(()) };
        if let FaultOperation::Close(left) = fault.of
            && file.metadata()?.len() > left
        {
            file.set_len(left)?;
        }
        lock(&self.state).open.entry(handle.0).and_modify(|open| open.reported = true);
        Err(Errno::from_i32(fault.errno.raw_os_error()))
    }

    /// Attributes of a path; its ACL among them where such are.
    fn xattrs(&self, number: INodeNo) -> Answer<BTreeMap<Vec<u8>, Vec<u8>>> {
        let path = self.path(number)?;
        let mut all = lock(&self.state).xattrs.get(&path).cloned().unwrap_or_default();
        let st = fs::symlink_metadata(self.real(&path))?;
        if self.behaviour.nfs4_acls && !st.is_symlink() {
            let made = format!("{:04o} from the mode", st.mode() & 0o7777);
            all.entry(NFS4_ACL.into()).or_insert(made.into_bytes());
        }
        Ok(all)
    }

    fn set_xattr(&self, number: INodeNo, name: &OsStr, value: Option<&[u8]>) -> Answer<()> {
        let path = self.path(number)?;
        let can = match name.as_bytes() {
            name if name == NFS4_ACL.as_bytes() => self.behaviour.nfs4_acls,
            name => name.starts_with(b"user.") && !self.behaviour.no_user_xattrs,
        };
        if !can {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(acl) = value.filter(|_| name == NFS4_ACL) {
            let digits = acl.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
            let mode = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok()).ok_or(Errno::EINVAL)?;
            fs::set_permissions(self.real(&path), fs::Permissions::from_mode(mode))?;
        } else {
            // Its ctime moves.
            let st = fs::symlink_metadata(self.real(&path))?;
            std::os::unix::fs::lchown(self.real(&path), Some(st.uid()), Some(st.gid()))?;
        }
        let mut state = lock(&self.state);
        let all = state.xattrs.entry(path).or_default();
        match value {
            Some(value) => drop(all.insert(name.as_bytes().to_vec(), value.to_vec())),
            None => drop(all.remove(name.as_bytes()).ok_or(Errno::ENODATA)?),
        }
        Ok(())
    }

    fn set_times(&self, path: &Path, atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>) -> Answer<()> {
        let time = |time: Option<TimeOrNow>| match time {
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Some(TimeOrNow::SpecificTime(time)) => {
                let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) }
            }
        };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        rustix::fs::utimensat(CWD, self.real(path), &times, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?;
        Ok(())
    }
}

fn send_xattr(size: u32, bytes: &[u8], reply: ReplyXattr) {
    match size as usize {
        0 => reply.size(bytes.len() as u32),
        room if room < bytes.len() => reply.error(Errno::ERANGE),
        _ => reply.data(bytes),
    }
}

fn send_empty(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn send_entry(answer: Answer<FileAttr>, reply: ReplyEntry) {
    match answer {
        Ok(attr) => reply.entry(&STALE, &attr, Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

fn send_attr(answer: Answer<FileAttr>, reply: ReplyAttr) {
    match answer {
        Ok(attr) => reply.attr(&STALE, &attr),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for FuseFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if self.behaviour.whole_seconds {
            let set = config.set_time_granularity(Duration::from_secs(1));
            set.map_err(|_| io::Error::other("whole seconds aren't taken"))?;
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.child(parent, name).and_then(|path| {
            self.check(&path, |of| *of == FaultOperation::Lookup)?;
            if self.behaviour.shifting_inodes {
                let state = &mut *lock(&self.state);
                let looks = state.looks.entry(path.clone()).or_default();
                *looks += 1;
                if *looks == 2 && self.real(&path).is_file() {
                    // What has the old number still finds its path.
                    state.numbers.remove(&path);
                }
            }
            self.entry(&path)
        });
        send_entry(found, reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        send_attr(self.facts(ino), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || {
            let path = self.path(ino)?;
            let real = self.real(&path);
            if let Some(size) = size {
                OpenOptions::new().write(true).open(&real)?.set_len(size)?;
            }
            if uid.is_some() || gid.is_some() {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chownat(CWD, &real, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?;
            }
            if let Some(mode) = mode {
                fs::set_permissions(&real, fs::Permissions::from_mode(mode & 0o7777))?;
                // The ACL is made from it now.
                if let Some(of) = lock(&self.state).xattrs.get_mut(&path) {
                    of.remove(NFS4_ACL.as_bytes());
                }
            }
            if atime.is_some() || mtime.is_some() {
                self.set_times(&path, atime, mtime)?;
            }
            self.facts(ino)
        };
        send_attr(set(), reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.path(ino).and_then(|path| Ok(fs::read_link(self.real(&path))?)) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, rdev: u32, reply: ReplyEntry) {
        let made = self.child(parent, name).and_then(|path| {
            let (kind, bits) = (rustix::fs::FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
            rustix::fs::mknodat(CWD, self.real(&path), kind, bits, u64::from(rdev)).map_err(io::Error::from)?;
            self.made(request, &path, Some(mode))
        });
        send_entry(made, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let made = self.child(parent, name).and_then(|path| {
            fs::create_dir(self.real(&path))?;
            self.made(request, &path, Some(mode))
        });
        send_entry(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.child(parent, name).and_then(|path| {
            fs::remove_file(self.real(&path))?;
            self.forget(&path);
            Ok(())
        });
        send_empty(gone, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.child(parent, name).and_then(|path| {
            fs::remove_dir(self.real(&path))?;
            self.forget(&path);
            Ok(())
        });
        send_empty(gone, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.child(parent, name).and_then(|path| {
            symlink(target, self.real(&path))?;
            self.made(request, &path, None)
        });
        send_entry(made, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let paths = self.child(parent, name).and_then(|from| Ok((from, self.child(newparent, newname)?)));
        send_empty(paths.and_then(|(from, to)| self.renamed(&from, &to, flags)), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let linked = || {
            if self.behaviour.no_hard_links {
                return Err(Errno::EPERM);
            }
            let (from, to) = (self.path(ino)?, self.child(newparent, newname)?);
            fs::hard_link(self.real(&from), self.real(&to))?;
            self.entry(&to)
        };
        send_entry(linked(), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let write = flags.acc_mode() != fuser::OpenAccMode::O_RDONLY;
        let opened = self.path(ino).and_then(|path| {
            let file = OpenOptions::new().read(true).write(write).open(self.real(&path))?;
            Ok(self.keep(file, ino.0))
        });
        match opened {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let flags = rustix::fs::OFlags::from_bits_retain(flags.unsigned_abs());
        let made = self.child(parent, name).and_then(|path| {
            let (new, cut) = (flags.contains(rustix::fs::OFlags::EXCL), flags.contains(rustix::fs::OFlags::TRUNC));
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).create_new(new).truncate(cut);
            let file = file.open(self.real(&path))?;
            let attr = self.made(request, &path, Some(mode))?;
            Ok((attr, self.keep(file, attr.ino.0)))
        });
        match made {
            Ok((attr, handle)) => reply.created(&STALE, &attr, Generation(0), handle, FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = || {
            let end = offset + u64::from(size);
            let bad = |of: &FaultOperation| matches!(of, FaultOperation::Read(range) if range.start < end && offset < range.end);
            self.check(&self.path(ino)?, bad)?;
            let (file, mut bytes) = (self.file(fh)?, vec![0; size as usize]);
            let mut got = 0;
            while got < bytes.len() {
                match file.read_at(&mut bytes[got..], offset + got as u64)? {
                    0 => break,
                    more => got += more,
                }
            }
            bytes.truncate(got);
            Ok::<_, Errno>(bytes)
        };
        match read() {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = || {
            let end = offset + data.len() as u64;
            self.check(&self.path(ino)?, |of| matches!(of, FaultOperation::Write(room) if end > *room))?;
            self.file(fh)?.write_all_at(data, offset)?;
            lock(&self.state).open.entry(fh.0).and_modify(|open| open.written = true);
            self.waiting.written.fetch_add(data.len() as u64, Ordering::Relaxed);
            Ok::<_, Errno>(data.len() as u32)
        };
        match write() {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, fh: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        send_empty(self.closed(fh), reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.state).open.remove(&fh.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        send_empty(self.path(ino).and_then(|path| self.check(&path, |of| *of == FaultOperation::Fsync)), reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = || {
            let path = self.path(ino)?;
            let mut names = vec![(".".into(), FileType::Directory), ("..".into(), FileType::Directory)];
            for entry in fs::read_dir(self.real(&path))? {
                let entry = entry?;
                let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
                names.push((entry.file_name(), kind));
            }
            names[2..].sort_by(|a, b| a.0.cmp(&b.0));
            Ok::<_, Errno>((path, names))
        };
        let (path, names) = match listed() {
            Ok(listed) => listed,
            Err(errno) => return reply.error(errno),
        };
        for (at, (name, kind)) in names.into_iter().enumerate().skip(offset as usize) {
            // Names before it are sent first.
            if let Err(errno) = self.check(&path, |of| matches!(of, FaultOperation::List(after) if at >= after + 2)) {
                return if at as u64 == offset { reply.error(errno) } else { reply.ok() };
            }
            let number = if at < 2 { ino.0 } else { self.number(&path.join(&name)) };
            if reply.add(INodeNo(number), at as u64 + 1, kind, &name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match rustix::fs::statvfs(&self.folder) {
            Ok(st) => reply.statfs(
                st.f_blocks,
                st.f_bfree,
                st.f_bavail,
                st.f_files,
                st.f_ffree,
                st.f_bsize as u32,
                255,
                st.f_frsize as u32,
            ),
            Err(errno) => reply.error(Errno::from_i32(errno.raw_os_error())),
        }
    }

    fn setxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, value: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        send_empty(self.set_xattr(ino, name, Some(value)), reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.xattrs(ino).and_then(|mut all| all.remove(name.as_bytes()).ok_or(Errno::ENODATA));
        match value {
            Ok(value) => send_xattr(size, &value, reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.xattrs(ino) {
            Ok(all) => {
                let names: Vec<u8> = all.keys().flat_map(|name| [&name[..], b"\0"].concat()).collect();
                send_xattr(size, &names, reply);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send_empty(self.set_xattr(ino, name, None), reply);
    }
}
