//! Writing files: parts at their offsets into a hidden file beside the final name, then a rename.

use super::{
    Local, attributes,
    content::{data_runs, make_zeros},
    delta::{self, ReusedBytes},
    dir::Dir,
    error::{changed, check_file, fail, fail_close, fail_write},
    hidden::{Owner, Suffix},
    meta,
    publish::{self, PrivateUntil},
};
use futures::future::{BoxFuture, ready};
use haul_core::{
    Algo, Error, ErrorKind, Hashes, Key, Meta, Mtime, Result, Version,
    delta::{Recipe, Run},
    plan::Replace,
};
use haul_store::{
    Body, LateFacts, Part, Payload, StoredFacts, Unpublished, Upload, WriteSpec, disk, late_errors, statx::Statx,
};
use rustix::{
    fs::{Advice, FileType, OFlags, StatxFlags},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::IoSlice,
    num::NonZeroU64,
    ops::Range,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Operation in error messages.
pub(super) const OP: &str = "write";

/// Longest target of a symbolic link (PATH_MAX less its zero byte).
const TARGET_MAX: usize = 4095;

/// Pieces for one pwritev: the kernel takes at most 1024.
const PIECES: usize = 512;

/// See [`haul_store::Store::write`]; runs on the pool.
pub(super) fn begin(local: &Arc<Local>, key: &Key, spec: WriteSpec) -> Result<Box<dyn Upload>> {
    check_file(OP, key)?;
    meta::check_time(OP, key, spec.mtime)?;
    if key.is_symlink() {
        if !local.links.keeps() {
            return Err(Error::new(ErrorKind::Unsupported, OP, "symbolic links aren't kept here").with_key(key));
        }
        let key = Key::new(key.path());
        let link = Link { local: local.clone(), key, spec, bytes: Mutex::default() };
        return Ok(Box::new(LinkWrite(Arc::new(link))));
    }
    let place = attributes::opened(&local.root, key, spec.keep.as_deref(), || match spec.inplace {
        true => open_inplace(local, key, &spec),
        false => open_hidden(local, key, &spec),
    })?;
    let write = FileWrite(Arc::new(Inner::new(local, key, spec, place)));
    if let Err(error) = reserve(&write.0) {
        write.0.remove();
        return Err(error);
    }
    Ok(Box::new(write))
}

/// A write that resumes in the hidden file `temp`; runs on the pool.
pub(super) fn go_on(
    local: &Arc<Local>,
    key: &Key,
    spec: WriteSpec,
    hidden: publish::HiddenFile,
) -> Result<Box<dyn Upload>> {
    let place = WriteTarget {
        dir: hidden.dir,
        file: Arc::new(File::from(hidden.file)),
        temp: Some(hidden.temp),
        created: false,
    };
    let write = FileWrite(Arc::new(Inner::new(local, key, spec, place)));
    reserve(&write.0)?;
    Ok(Box::new(write))
}

/// Where the bytes go.
struct WriteTarget {
    dir: Dir,
    /// Shared with readers of sent bytes: closing another descriptor would consume an error that is reported only once.
    file: Arc<File>,
    /// The hidden name; `None` when the file is written in place.
    temp: Option<Vec<u8>>,
    /// Written in place, and wasn't there before.
    created: bool,
}

fn open_hidden(local: &Local, key: &Key, spec: &WriteSpec) -> Result<WriteTarget> {
    let until = until(spec);
    let owner = if spec.resumable { Owner::Anybody } else { Owner::Process };
    let hidden = publish::create(&local.root, OP, key, (owner, Suffix::of(OP, key, spec)?), until)?;
    Ok(WriteTarget {
        dir: hidden.dir,
        file: Arc::new(File::from(hidden.file)),
        temp: Some(hidden.temp),
        created: false,
    })
}

/// A file that others may not read in the end isn't readable while it arrives either.
pub(super) fn until(spec: &WriteSpec) -> PrivateUntil<'_> {
    match meta::meta_mode(spec.meta.as_deref(), spec.keep_setid) {
        _ if spec.hides() => PrivateUntil::Own,
        Some(mode) if mode.as_raw_mode() & 0o044 != 0o044 => PrivateUntil::Own,
        Some(_) => PrivateUntil::Open,
        None => PrivateUntil::Settled(&spec.replace),
    }
}

fn open_inplace(local: &Local, key: &Key, spec: &WriteSpec) -> Result<WriteTarget> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = publish::first_mode(spec.hides());
    let in_the_way = || {
        let message = "is a symbolic link, device, FIFO or socket: remove it to write a file there in place";
        Error::new(ErrorKind::Exists, OP, message).with_key(key)
    };
    let regular = |st: &Statx| meta::file_type(st) == FileType::RegularFile;
    // Before it is opened: that may do more than look.
    if let Ok(dir) = local.root.dir_beneath(key.parent().as_bytes())
        && let Ok(st) = meta::facts_at(&dir, key.name(), false, meta::FACTS)
        && !regular(&st)
        && meta::file_type(&st) != FileType::Directory
    {
        return Err(in_the_way());
    }
    let (dir, (file, created)) = publish::in_dir(&local.root, OP, key, |dir| {
        match rustix::fs::openat(dir, key.name(), flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Err(Errno::EXIST) if spec.replace != Replace::Absent => {
                rustix::fs::openat(dir, key.name(), flags, mode).map(|file| (file, false))
            }
            answer => answer.map(|file| (file, true)),
        }
    })?;
    // It is at its name from now on, which may be another's that came in this run.
    local.made.publish((OP, key), (&dir, key.name()), || Ok(()))?;
    let place = WriteTarget { dir, file: Arc::new(File::from(file)), temp: None, created };
    if !meta::facts(&place.file, meta::FACTS).is_ok_and(|st| regular(&st)) {
        return Err(in_the_way());
    }
    if let Replace::Exactly(want) = &spec.replace {
        let st = meta::facts(&place.file, meta::FACTS).map_err(|e| fail(OP, key, e))?;
        if created {
            publish::discard(&place.dir, key.name());
        }
        if created || meta::version(&st) != *want {
            return Err(changed(OP, key));
        }
    }
    Ok(place)
}

fn reserve(write: &Inner) -> Result<()> {
    let Some(size) = write.spec.size.filter(|_| !write.spec.sparse) else { return Ok(()) };
    publish::reserve(&write.place.file, size).map_err(|errno| fail(OP, &write.key, errno))
}

struct FileWrite(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    key: Key,
    spec: WriteSpec,
    place: WriteTarget,
    /// Bytes were lost, which is reported once: the written file can't be published any more.
    lost: AtomicBool,
    reused: Mutex<Option<ReusedBytes>>,
    /// Bytes of another file are taken by one thread at a time: two would wait for each other at the file, and others find no thread.
    reuses: tokio::sync::Mutex<()>,
}

impl Inner {
    fn new(local: &Arc<Local>, key: &Key, spec: WriteSpec, place: WriteTarget) -> Self {
        Inner {
            local: local.clone(),
            key: key.clone(),
            spec,
            place,
            lost: AtomicBool::new(false),
            reused: Mutex::default(),
            reuses: tokio::sync::Mutex::default(),
        }
    }

    /// Asks the file system whether it holds the written data.
    fn check_kept(&self, st: &Statx) -> Result<()> {
        let file = &self.place.file;
        if self.lost.load(Ordering::Relaxed) {
            return Err(fail_close(OP, &self.key, Errno::IO));
        }
        let forced = if self.spec.fsync { rustix::fs::fsync(file) } else { Ok(()) };
        // Also after fsync, which some file systems don't know.
        let closed = || late_errors::ask(file, self.local.late.tells_of(file, st));
        forced.and_then(|()| closed()).map_err(|errno| {
            self.lost.store(true, Ordering::Relaxed);
            fail_close(OP, &self.key, errno)
        })
    }

    fn remove(&self) {
        match &self.place.temp {
            Some(temp) => publish::discard(&self.place.dir, temp),
            None if self.place.created => publish::discard(&self.place.dir, self.key.name()),
            // The old content is partly overwritten; that is what writing in place means.
            None => {}
        }
    }

    fn publish(&self, parts: &[Part], late: LateFacts) -> Result<StoredFacts> {
        let error = |errno| fail_write(OP, &self.key, errno);
        let file = &self.place.file;
        let size = total(&self.key, &self.spec, parts)?;
        let st = meta::facts(file, meta::FACTS | StatxFlags::NLINK | StatxFlags::MNT_ID).map_err(error)?;
        if meta::file_type(&st) != FileType::RegularFile {
            return Err(Error::new(ErrorKind::Exists, OP, "is a device, FIFO or socket").with_key(&self.key));
        }
        let name = self.place.temp.as_deref().unwrap_or(self.key.name());
        publish::check_named(OP, &self.key, (&self.place.dir, name), &st)?;
        // The last blocks may have been zeros, which weren't written.
        if st.stx_size < size && !self.spec.sparse {
            let message = format!("{} bytes arrived, but the file holds {}", size, st.stx_size);
            return Err(Error::new(ErrorKind::Corrupt, OP, message).with_key(&self.key));
        }
        // Longer when a part was sent again shorter, when written in place, or when more space was reserved.
        if st.stx_size != size
            || self.spec.size.is_some_and(|reserved| reserved >= publish::RESERVE_FROM && reserved > size)
        {
            rustix::fs::ftruncate(file, size).map_err(error)?;
        }
        let pieces = self.proved(size)?;
        let meta = late.meta.as_deref().or(self.spec.meta.as_deref());
        let mtime = late.mtime.or(self.spec.mtime);
        meta::check_time(OP, &self.key, mtime)?;
        set_facts(&self.key, file, meta, mtime, self.spec.keep_setid)?;
        self.check_kept(&st)?;
        if self.spec.drop_cache {
            let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        }
        if let Some(temp) = &self.place.temp {
            let keep_mode = takes_mode(&self.spec, meta).then_some(file);
            let name = self.key.name();
            self.local.made.publish((OP, &self.key), (&self.place.dir, name), || {
                publish::settle(OP, &self.key, (&self.place.dir, &temp[..], name), &self.spec.replace, keep_mode)
            })?;
        }
        if self.spec.fsync {
            publish::sync_dir(&self.place.dir).map_err(error)?;
        }
        // After the rename, which moves ctime. Should this fail the file is there all the same.
        let version = meta::facts(file, meta::FACTS).ok().map(|st| meta::version(&st));
        let mut hashes = Hashes::default();
        if let Some(mut pieces) = pieces {
            hashes.set(Algo::Blake3, &pieces.whole);
            pieces.version = version.clone();
            self.local.pieces.keep(&pieces);
        }
        Ok(StoredFacts { version, size, hashes, ..StoredFacts::default() })
    }

    /// A file that was built from another is proved; what it holds in pieces.
    fn proved(&self, size: u64) -> Result<Option<Recipe>> {
        let reused = self.reused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some(whole), Some(reused)) = (self.spec.hashes.get(Algo::Blake3), reused) else { return Ok(None) };
        delta::prove(&self.local, (&self.key, &self.place.file), size, whole, &reused).map(Some)
    }
}

/// The total size of the parts, checked against the announced size.
fn total(key: &Key, spec: &WriteSpec, parts: &[Part]) -> Result<u64> {
    let sizes: BTreeMap<u64, u64> = parts.iter().map(|p| (p.index, p.size)).collect();
    let size = sizes.values().sum();
    check_size(key, spec, size)?;
    Ok(size)
}

/// Sets the time of a file, and what metadata says of it.
pub(super) fn set_facts(
    key: &Key,
    file: impl AsFd,
    meta: Option<&Meta>,
    mtime: Option<Mtime>,
    keep_setid: bool,
) -> Result<()> {
    match meta {
        Some(meta) => meta::apply(OP, key, file, meta, mtime, keep_setid),
        None if mtime.is_some() => {
            rustix::fs::futimens(file, &meta::times(None, mtime)).map_err(|errno| fail_write(OP, key, errno))
        }
        None => Ok(()),
    }
}

/// True for a file without permissions of its own, which takes those of the file that it replaces.
pub(super) fn takes_mode(spec: &WriteSpec, meta: Option<&Meta>) -> bool {
    !spec.is_private() && meta::meta_mode(meta, spec.keep_setid).is_none()
}

/// Refuses a number of bytes other than announced.
pub(super) fn check_size(key: &Key, spec: &WriteSpec, size: u64) -> Result<()> {
    match spec.size {
        Some(want) if want != size && !spec.size_may_differ => {
            let message = format!("{size} bytes arrived instead of {want}: nothing was changed");
            Err(Error::new(ErrorKind::Corrupt, OP, message).with_key(key))
        }
        _ => Ok(()),
    }
}

/// Writes all of a new file.
pub(super) fn write_whole(file: impl AsFd + Copy, bytes: &[u8], sparse: bool) -> rustix::io::Result<()> {
    if !sparse {
        return write_at(file, 0, [bytes]);
    }
    write_data(file, 0, bytes)?;
    // The last blocks may have been zeros, which weren't written.
    rustix::fs::ftruncate(file, bytes.len() as u64)
}

impl Upload for FileWrite {
    /// The hidden file's key. A write in place has none, since its bytes can't be told from the old ones.
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        let temp = self.0.place.temp.as_deref();
        Box::pin(ready(Ok(temp.map(|temp| [self.0.key.parent().as_bytes(), temp].concat()))))
    }

    fn is_shared(&self) -> bool {
        self.0.place.temp.is_some()
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        Box::pin(ready(Ok(Body::File(self.0.place.file.clone(), range))))
    }

    fn reuse(&self, version: &Version, runs: Vec<Run>) -> BoxFuture<'_, Result<Vec<Part>>> {
        let (inner, version) = (self.0.clone(), version.clone());
        Box::pin(async move {
            if inner.spec.hashes.get(Algo::Blake3).is_none() {
                let why = "without a hash of the whole no file is built from another";
                return Err(Error::new(ErrorKind::Unsupported, OP, why).with_key(&inner.key));
            }
            let _turn = self.0.reuses.lock().await;
            let reuse = move || {
                let WriteTarget { dir, file, temp, .. } = &inner.place;
                let (size, in_place) = (inner.spec.size.unwrap_or(0), temp.is_none());
                let to = delta::Reusing {
                    key: &inner.key,
                    dir,
                    file,
                    size,
                    in_place,
                    sparse: inner.spec.sparse,
                    reused: &inner.reused,
                };
                delta::reuse(&to, &version, &runs)
            };
            disk::bytes().run(OP, reuse).await
        })
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        let inner = self.0.clone();
        Box::pin(disk::bytes().run(OP, move || {
            let fail = |e| fail(OP, &inner.key, e);
            match payload.pieces() {
                Some(pieces) if !inner.spec.sparse => {
                    write_at(&inner.place.file, offset, pieces.iter().map(|p| &p[..])).map_err(fail)?;
                }
                Some(pieces) => {
                    let mut at = offset;
                    for piece in pieces {
                        write_data(&inner.place.file, at, piece).map_err(fail)?;
                        at += piece.len() as u64;
                    }
                }
                None => write_blocks(&inner.place.file, offset, &payload, inner.spec.sparse, fail)?,
            }
            if inner.spec.drop_cache {
                // Makes the kernel begin to write the part out; its pages go as the file is published.
                let _ =
                    rustix::fs::fadvise(&inner.place.file, offset, NonZeroU64::new(payload.len()), Advice::DontNeed);
            }
            Ok(Part { index, size: payload.len(), tag: Vec::new() })
        }))
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let published = disk::bytes().run(OP, move || inner.publish(&parts, late)).await;
            published.map_err(|error| Unpublished { error, upload: self })
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let inner = self.0;
        Box::pin(disk::bytes().run(OP, move || {
            inner.remove();
            Ok(())
        }))
    }
}

/// Writes all pieces from `offset` on.
fn write_at<'a>(
    file: impl AsFd + Copy,
    mut offset: u64,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> rustix::io::Result<()> {
    let mut pieces: Vec<IoSlice> = pieces.into_iter().filter(|p| !p.is_empty()).map(IoSlice::new).collect();
    let mut rest = &mut pieces[..];
    while !rest.is_empty() {
        let some = rest.len().min(PIECES);
        let written = match rustix::io::pwritev(file, &rest[..some], offset) {
            Err(Errno::INTR) => continue,
            Ok(0) => return Err(Errno::IO),
            answer => answer?,
        };
        offset += written as u64;
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

/// Writes what isn't blocks of zeros; for those a hole is made, as other bytes may be there: of a part that was sent before, or
/// of a file that is written in place.
fn write_data(file: impl AsFd + Copy, offset: u64, bytes: &[u8]) -> rustix::io::Result<()> {
    let mut at = 0;
    for data in data_runs(bytes, offset) {
        make_hole(file, offset + at as u64, &bytes[at..data.start])?;
        write_at(file, offset + data.start as u64, [&bytes[data.clone()]])?;
        at = data.end;
    }
    make_hole(file, offset + at as u64, &bytes[at..])
}

/// Makes a range that holds `zeros` read as zeros.
fn make_hole(file: impl AsFd + Copy, offset: u64, zeros: &[u8]) -> rustix::io::Result<()> {
    if zeros.is_empty() || make_zeros(file, offset, zeros.len() as u64)? {
        return Ok(());
    }
    write_at(file, offset, [zeros])
}

/// Writes the rest of another file, from `offset` on.
fn write_blocks(
    file: &File,
    mut offset: u64,
    payload: &Payload,
    sparse: bool,
    fail: impl Fn(Errno) -> Error,
) -> Result<()> {
    let mut written = Ok(());
    payload.each(|block| {
        if written.is_ok() {
            written = if sparse { write_data(file, offset, block) } else { write_at(file, offset, [block]) };
            offset += block.len() as u64;
        }
    })?;
    written.map_err(fail)
}

/// A symbolic link that arrives as the bytes of its target.
struct LinkWrite(Arc<Link>);

struct Link {
    local: Arc<Local>,
    /// The link's own key.
    key: Key,
    spec: WriteSpec,
    bytes: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Link {
    fn publish(&self, parts: &[Part], late: &LateFacts) -> Result<StoredFacts> {
        let size = total(&self.key, &self.spec, parts)?;
        let bytes = self.bytes.lock().unwrap_or_else(|e| e.into_inner());
        let target: Vec<u8> = bytes.values().flatten().copied().collect();
        if target.len() as u64 != size || target.is_empty() || target.contains(&0) {
            let message = "this isn't the target of a symbolic link: it is empty, incomplete or contains a zero byte";
            return Err(Error::new(ErrorKind::Invalid, OP, message).with_key(&self.key));
        }
        let meta = late.meta.as_deref().or(self.spec.meta.as_deref());
        let mtime = late.mtime.or(self.spec.mtime).or_else(|| meta::meta_time(meta, "mtime"));
        meta::check_time(OP, &self.key, mtime)?;
        let root = &self.local.root;
        let dir = attributes::opened(root, &self.key, self.spec.keep.as_deref(), || {
            publish::link(root, OP, &self.key, &target, &self.spec, mtime)
        })?;
        if self.spec.fsync {
            publish::sync_dir(&dir).map_err(|e| fail_write(OP, &self.key, e))?;
        }
        Ok(StoredFacts { size, ..StoredFacts::default() })
    }
}

impl Upload for LinkWrite {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(ready(Ok(None)))
    }

    fn read_back(&self, _range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let message = "a symbolic link that isn't there yet can't be read";
        Box::pin(ready(Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&self.0.key))))
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        let size = payload.len();
        let answer = if offset.saturating_add(size) > TARGET_MAX as u64 {
            let message = format!("a symbolic link's target can have at most {TARGET_MAX} bytes");
            Err(Error::new(ErrorKind::Invalid, OP, message).with_key(&self.0.key))
        } else {
            payload.concat().map(|bytes| {
                self.0.bytes.lock().unwrap_or_else(|e| e.into_inner()).insert(offset, bytes);
                Part { index, size, tag: Vec::new() }
            })
        };
        Box::pin(ready(answer))
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        Box::pin(async move {
            let link = self.0.clone();
            let published = disk::bytes().run(OP, move || link.publish(&parts, &late)).await;
            published.map_err(|error| Unpublished { error, upload: self })
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(ready(Ok(())))
    }
}
