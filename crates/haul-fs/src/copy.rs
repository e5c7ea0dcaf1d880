//! Copying on this machine without passing the bytes through the engine: which file, under which name, with which facts. How
//! the bytes come over is in `content`. A batch is one job on one disk thread.

use super::{
    Local, append, attributes,
    content::Bytes,
    dir::{Dir, LastDirCache, Root},
    error::{changed, check_file, fail, fail_close, source_error, target_error},
    hidden::{Owner, Suffix, temp_name},
    meta,
    publish::{self, HiddenFile, NewNames, PrivateUntil},
    read::{link_name, no_link, open_file, regular, target},
    rename_dir,
    xattrs::XattrHolder,
};
use haul_core::{
    Error, ErrorKind, Hasher, Hashes, Key, Mtime, Result,
    attributes::{Attribute, UnpreservedAttributes},
    key::parent,
    links::{Munge, SourceLinks},
    plan::Replace,
};
use haul_store::{
    CopyHow, CopyItem, StoredFacts, Watch, blocks,
    disk::Abandoned,
    late_errors::{self, LossReporting},
    statx::Statx,
};
use rustix::{
    fs::{AtFlags, FileType, StatxFlags},
    io::Errno,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

const OP: &str = "copy";

/// One batch under way.
struct Batch<'a> {
    local: &'a Local,
    from: &'a Root,
    munge: Munge,
    bytes: Bytes<'a>,
    /// The directory of the last source.
    last: Option<(Vec<u8>, Dir)>,
    /// Small files are made without a name first.
    nameless: bool,
    /// A file found no room: those after it would each fail the same way.
    full: bool,
    /// When files of a directory report errors.
    late: LastDirCache<LossReporting>,
    /// Permissions that the directory's default ACL gives to new files.
    default: LastDirCache<Option<u32>>,
    named: NewNames,
}

/// See [`haul_store::Store::copy`]; runs on the pool.
pub(super) fn copy(
    local: &Local,
    (from, munge): (&Root, Munge),
    items: &[CopyItem],
    watch: &Watch,
    abandoned: &Abandoned,
) -> Vec<Result<StoredFacts>> {
    let bytes = Bytes::new(watch, abandoned);
    let (last, late, default, named) = Default::default();
    let mut batch = Batch { local, from, munge, bytes, last, nameless: true, full: false, late, default, named };
    let mut answers: Vec<_> = items.iter().enumerate().map(|(number, item)| batch.next(number, item)).collect();
    batch.named.force(OP, items.iter().map(|item| &item.to), &mut answers);
    answers
}

/// The hash that the source's bytes are to have, if one is known, of what came over.
///
/// Errors: `Corrupt` when it is another.
fn prove(item: &CopyItem, target: &OwnedFd, size: u64) -> Result<Hashes> {
    let Some((algo, _)) = item.spec.hashes.iter().next() else { return Ok(Hashes::default()) };
    let mut hasher = Hasher::new(&[algo]);
    blocks::read(target, 0..size, |block| hasher.update(block)).map_err(|e| e.with_key(&item.to))?;
    let hashes = hasher.finish();
    match hashes.agree(&item.spec.hashes) {
        Some((_, true)) => Ok(hashes),
        _ => {
            let message = format!("what was read does not have the {algo} that the source says it has");
            Err(Error::new(ErrorKind::Corrupt, OP, message).with_key(&item.from))
        }
    }
}

impl Batch<'_> {
    fn next(&mut self, number: usize, item: &CopyItem) -> Result<StoredFacts> {
        if self.full {
            return Err(Error::new(ErrorKind::Cancelled, OP, "no space is left").with_key(&item.to));
        }
        let answer = self.one(number, item);
        self.full = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        answer
    }

    fn one(&mut self, number: usize, item: &CopyItem) -> Result<StoredFacts> {
        self.bytes.check_abandoned(&item.to)?;
        let local = self.local;
        attributes::opened(&local.root, &item.to, item.spec.keep.as_deref(), || self.attempt(number, item))
    }

    fn attempt(&mut self, number: usize, item: &CopyItem) -> Result<StoredFacts> {
        if item.how == CopyHow::RenameDir {
            return rename_dir::rename(self.local, self.from, item);
        }
        check_file(OP, &item.from)?;
        check_file(OP, &item.to)?;
        meta::check_time(OP, &item.to, item.spec.mtime)?;
        if let (CopyHow::Special, Some(carried)) = (item.how, item.spec.carried.as_deref()) {
            let (made_in, stored) = attributes::special_as(self.local, item, &XattrHolder::Carried(carried))?;
            self.settled(item, &made_in);
            return Ok(stored);
        }
        let dir = self.source_dir(item)?;
        if item.how == CopyHow::Rename && !self.is_own(item) {
            let message = "what is behind a symbolic link that leads out of the directory isn't moved by renaming it";
            return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.from));
        }
        if item.how == CopyHow::Special {
            let (made_in, stored) = attributes::special(self.local, item, (self.from, &dir))?;
            self.settled(item, &made_in);
            return Ok(stored);
        }
        if let Some(name) = link_name(self.local.links, &item.from)
            && let Ok(st) = meta::facts_at(&dir, name, false, attributes::FACTS)
            && meta::file_type(&st) == FileType::Symlink
        {
            return match item.how {
                CopyHow::Link => self.hard_link(item, &dir),
                _ => self.link(number, item, &dir, name, &st),
            };
        }
        no_link(OP, &item.from)?;
        no_link(OP, &item.to)?;
        if item.how == CopyHow::Link {
            return self.hard_link(item, &dir);
        }
        if let CopyHow::Append { verify } = item.how {
            let source = append::Source { root: self.from, dir: &dir };
            if let Some(stored) = append::append(self.local, source, (number, item), &mut self.bytes, verify)? {
                return Ok(stored);
            }
        }
        if item.how == CopyHow::Rename
            && let Some(stored) = self.rename(number, item, &dir)?
        {
            return Ok(stored);
        }
        let unread = |errno| fail("read", &item.from, errno);
        let file = open_file(&dir, item.from.name(), self.from.follow()).map_err(unread)?;
        let keeper = attributes::keeper(self.local, &item.spec);
        let accessed = keeper.map_or(Ok(None), |keeper| keeper.accessed(&file)).map_err(source_error(item))?;
        self.bytes.read_ahead(item, &file)?;
        let mask = if keeper.is_some() { attributes::FACTS } else { meta::FACTS };
        let (mut before, waited) = meta::still_facts(&file, mask).map_err(source_error(item))?;
        if waited {
            self.bytes.forget_ahead();
        }
        before.stx_atime = accessed.unwrap_or(before.stx_atime);
        regular(OP, &item.from, &before)?;
        meta::check_want(item, &before)?;
        let stored = if item.spec.inplace {
            // Rare, and not worth a second way of writing in place here: the engine streams it.
            let message = "writing in place isn't done by copying on the disk";
            return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
        } else {
            self.file(number, item, &file, &before)?
        };
        if item.how == CopyHow::Rename {
            remove_source(item, &dir, item.from.name(), &before)?;
        }
        Ok(stored)
    }

    fn source_dir(&mut self, item: &CopyItem) -> Result<Dir> {
        let key = parent(item.from.as_bytes());
        if let Some((last, dir)) = &self.last
            && last == key
        {
            return Ok(dir.clone());
        }
        let dir = self.from.dir(key).map_err(source_error(item))?;
        self.last = Some((key.to_vec(), dir.clone()));
        Ok(dir)
    }

    /// False for a source that is reached only by a link out of its root: it is another folder's, and stays there.
    fn is_own(&self, item: &CopyItem) -> bool {
        !self.from.follows_dirs() || self.from.dir_beneath(parent(item.from.as_bytes())).is_ok()
    }

    fn file(&mut self, number: usize, item: &CopyItem, source: &OwnedFd, before: &Statx) -> Result<StoredFacts> {
        let private = item.spec.hides();
        if self.nameless && self.bytes.is_quick(before) {
            match publish::create_nameless(&self.local.root, OP, &item.to, private)? {
                Some(hidden) => return self.fill(number, item, source, before, &hidden),
                None => self.nameless = false,
            }
        }
        let until = if private { PrivateUntil::Own } else { PrivateUntil::Settled(&item.spec.replace) };
        let owner = (Owner::Process, Suffix::of(OP, &item.to, &item.spec)?);
        let hidden = publish::create(&self.local.root, OP, &item.to, owner, until)?;
        self.fill(number, item, source, before, &hidden).inspect_err(|_| publish::discard(&hidden.dir, &hidden.temp))
    }

    fn fill(
        &mut self,
        number: usize,
        item: &CopyItem,
        source: &OwnedFd,
        before: &Statx,
        hidden: &HiddenFile,
    ) -> Result<StoredFacts> {
        let target = &hidden.file;
        if !self.bytes.write_ahead(number, item, before, target)? {
            self.bytes.copy_bytes(number, item, source, before, target)?;
            let after = meta::facts(source, meta::FACTS).map_err(source_error(item))?;
            if meta::version(&after) != meta::version(before) {
                let message = "changed while it was copied";
                return Err(Error::new(ErrorKind::Changed, OP, message).with_key(&item.from));
            }
        }
        let spec = &item.spec;
        let meta = spec.meta.as_deref();
        let mtime = spec.mtime.or_else(|| meta::meta_time(meta, "mtime")).unwrap_or(meta::mtime(before));
        let hashes = prove(item, target, before.stx_size)?;
        let mut stored = StoredFacts { version: None, size: before.stx_size, hashes, ..StoredFacts::default() };
        let mut own_mode = meta::meta_mode(meta, spec.keep_setid).is_some();
        match (attributes::keeper(self.local, spec), meta) {
            (Some(keeper), _) => {
                let default = keeper
                    .goes_by_default()
                    .then(|| self.default.get(&hidden.dir, |dir| attributes::default_permissions(dir, b".")));
                let keeper = attributes::Keeper { default, ..keeper };
                let replaced = keeper.replaced(&hidden.dir, item.to.name());
                let (source, place) = ((&XattrHolder::Open(source.as_fd()), before), (&hidden.dir, target));
                stored.unpreserved = keeper.new_file(item.into(), source, place, replaced.as_ref(), Some(mtime))?;
                own_mode = keeper.keep.private() || replaced.is_some();
            }
            (None, Some(meta)) => meta::apply(OP, &item.to, target, meta, Some(mtime), spec.keep_setid)?,
            (None, None) => set_times(item, target, mtime)?,
        }
        let keep_mode = (!own_mode).then_some(target);
        // For files that take long to copy; a small one isn't worth the call.
        if before.stx_size >= publish::RESERVE_FROM && !hidden.temp.is_empty() {
            let now = meta::facts(target, meta::FACTS | StatxFlags::NLINK).map_err(target_error(item))?;
            publish::check_named(OP, &item.to, (&hidden.dir, &hidden.temp), &now)?;
        }
        if spec.fsync {
            rustix::fs::fsync(target).map_err(target_error(item))?;
        }
        // Also after fsync, which some file systems don't know.
        let tells = self.late.get(&hidden.dir, |dir| self.local.late.tells(dir));
        late_errors::ask(target, tells).map_err(|errno| fail_close(OP, &item.to, errno))?;
        let place = (&hidden.dir, item.to.name());
        self.local
            .made
            .publish((OP, &item.to), place, || publish::settle_hidden(OP, &item.to, hidden, spec, keep_mode))?;
        self.settled(item, &hidden.dir);
        Ok(stored)
    }

    /// Remembers that it has its name, where names are to be on the device too.
    fn settled(&mut self, item: &CopyItem, dir: &Dir) {
        if item.spec.fsync {
            self.named.note(&item.to, dir);
        }
    }

    fn link(&mut self, number: usize, item: &CopyItem, dir: &Dir, name: &[u8], st: &Statx) -> Result<StoredFacts> {
        meta::check_want(item, st)?;
        if !item.to.is_symlink() {
            let message = "a symbolic link can only be copied to a name that ends in .rclonelink";
            return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
        }
        let key = Key::new(item.to.path());
        let stored = self.make_link(item, (dir, name, st), &key)?;
        self.bytes.moved(number, stored.size);
        Ok(stored)
    }

    /// Recreates the link `name` at `key`; a move then removes the old one.
    fn make_link(&mut self, item: &CopyItem, (dir, name, st): (&Dir, &[u8], &Statx), key: &Key) -> Result<StoredFacts> {
        let target = self.munge.target(target(dir, name).map_err(source_error(item))?);
        let meta_mtime = meta::meta_time(item.spec.meta.as_deref(), "mtime");
        let mtime = item.spec.mtime.or(meta_mtime).unwrap_or(meta::mtime(st));
        let mut stored = StoredFacts { size: target.len() as u64, ..StoredFacts::default() };
        let dir_of_link = match attributes::keeper(self.local, &item.spec) {
            Some(keeper) => {
                let (source, made) = ((dir, name, st), (key, &target[..]));
                let (dir_of_link, unpreserved) = attributes::link(self.local, item, keeper, source, made, mtime)?;
                stored.unpreserved = unpreserved;
                dir_of_link
            }
            None => publish::link(&self.local.root, OP, key, &target, &item.spec, Some(mtime))?,
        };
        self.settled(item, &dir_of_link);
        if item.how == CopyHow::Rename {
            remove_source(item, dir, name, st)?;
        }
        Ok(stored)
    }

    /// Gives the source, whatever it is but a directory, another name.
    fn hard_link(&mut self, item: &CopyItem, from: &Dir) -> Result<StoredFacts> {
        let name = item.from.name();
        let st = meta::facts_at(from, name, false, meta::FACTS).map_err(source_error(item))?;
        if meta::file_type(&st) == FileType::Symlink && self.from.follow() {
            let message = "what was listed is what the symbolic link leads to";
            return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
        }
        meta::check_want(item, &st)?;
        let key = Key::new(item.to.path());
        let suffix = Suffix::of(OP, &key, &item.spec)?;
        let (dir, made) = publish::in_dir_or_errno(&self.local.root, OP, &key, |dir| {
            let temp = temp_name(Owner::Process, key.name(), suffix);
            rustix::fs::linkat(from, name, dir, &temp[..], AtFlags::empty())?;
            Ok(temp)
        })?;
        let temp = match made {
            Ok(temp) => temp,
            // Another file system, one without hard links, or an inode that has as many names as it can.
            Err(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                let message = "a hard link to it can't be made here";
                return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
            }
            Err(errno) => return Err(target_error(item)(errno)),
        };
        let no_file: Option<&OwnedFd> = None;
        publish::settle(OP, &key, (&dir, &temp, key.name()), &item.spec.replace, no_file)
            .inspect_err(|_| publish::discard(&dir, &temp))?;
        // Renaming one name of an inode over another does nothing: then the hidden name is still there.
        if st.stx_nlink > 1 {
            let _ = rustix::fs::unlinkat(&dir, &temp[..], AtFlags::empty());
        }
        self.settled(item, &dir);
        // Only regular files have a size, whatever the file system reports for others.
        let size = if meta::file_type(&st) == FileType::RegularFile { st.stx_size } else { item.size };
        Ok(StoredFacts { size, ..StoredFacts::default() })
    }

    /// Renames; `None` when source and destination aren't on one file system, or the source is a link that is followed.
    fn rename(&mut self, number: usize, item: &CopyItem, from: &Dir) -> Result<Option<StoredFacts>> {
        let st = meta::facts_at(from, item.from.name(), false, meta::FACTS).map_err(source_error(item))?;
        let kind = meta::file_type(&st);
        if kind == FileType::Symlink && self.from.follow() {
            return Ok(None);
        }
        if kind == FileType::Directory {
            regular(OP, &item.from, &st)?;
        }
        meta::check_want(item, &st)?;
        let suffix = Suffix::of(OP, &item.to, &item.spec)?;
        // Not through a hidden name: the file is whole already, and a rename shows it at once.
        let moved = publish::in_dir_or_errno(&self.local.root, OP, &item.to, |dir| match &item.spec.replace {
            // Of two names of one file a rename would leave both.
            Replace::Anything if st.stx_nlink > 1 && is_same_file((dir, item.to.name()), &st) => {
                leave_one_name((from, item.from.name()), (dir, item.to.name()), suffix)
            }
            Replace::Absent => publish::rename_new((from, item.from.name()), (dir, item.to.name())),
            Replace::Anything => rustix::fs::renameat(from, item.from.name(), dir, item.to.name()),
            Replace::Exactly(want) => match meta::facts_at(dir, item.to.name(), false, meta::FACTS) {
                Ok(st) if meta::version(&st) == *want => {
                    rustix::fs::renameat(from, item.from.name(), dir, item.to.name())
                }
                Ok(_) => Err(Errno::BADF),
                Err(errno) => Err(errno),
            },
        })?;
        let dir = match moved {
            (dir, Ok(())) => dir,
            (_, Err(Errno::XDEV)) if kind == FileType::RegularFile && item.spec.renamed_only => {
                let message = "it is to be renamed, and the destination is another file system";
                return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
            }
            (_, Err(Errno::XDEV)) if kind == FileType::RegularFile => return Ok(None),
            (_, Err(Errno::XDEV)) => return self.remake(item, from, &st).map(Some),
            (_, Err(Errno::BADF)) => return Err(changed(OP, &item.to)),
            (dir, Err(Errno::EXIST | Errno::ISDIR)) => {
                return Err(publish::exists(OP, &item.to, (&dir, item.to.name())));
            }
            (_, Err(errno)) => return Err(target_error(item)(errno)),
        };
        if kind != FileType::RegularFile {
            // It has no bytes, and kept all else; opening it might do more than look.
            self.settled(item, &dir);
            return Ok(Some(StoredFacts { size: item.size, ..StoredFacts::default() }));
        }
        if item.spec.mtime.is_some_and(|t| t != meta::mtime(&st)) || item.spec.meta.is_some() {
            let file = open_file(&dir, item.to.name(), false).map_err(target_error(item))?;
            match item.spec.meta.as_deref().filter(|_| item.spec.keep.is_none()) {
                Some(meta) => meta::apply(OP, &item.to, &file, meta, item.spec.mtime, item.spec.keep_setid)?,
                None => set_times(item, &file, item.spec.mtime.unwrap_or(meta::mtime(&st)))?,
            }
        }
        let unpreserved = match attributes::keeper(self.local, &item.spec) {
            Some(keeper) => attributes::renamed(item, keeper, &dir)?,
            None => UnpreservedAttributes::default(),
        };
        self.settled(item, &dir);
        self.bytes.moved(number, st.stx_size);
        Ok(Some(StoredFacts { size: st.stx_size, unpreserved, ..StoredFacts::default() }))
    }

    /// Moves what isn't a regular file to another file system: it is made anew there.
    ///
    /// Errors: `Unsupported` where it can't be; it stays then.
    fn remake(&mut self, item: &CopyItem, from: &Dir, st: &Statx) -> Result<StoredFacts> {
        if meta::file_type(st) == FileType::Symlink {
            return self.make_link(item, (from, item.from.name(), st), &item.to);
        }
        let (dir, stored) = attributes::special(self.local, item, (self.from, from))?;
        if stored.unpreserved.holds(Attribute::Device) || stored.unpreserved.holds(Attribute::Special) {
            let message = "what isn't a file couldn't be made on the other file system";
            return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.from));
        }
        self.settled(item, &dir);
        remove_source(item, from, item.from.name(), st)?;
        Ok(stored)
    }
}

/// True where the file `st` has this name.
fn is_same_file((dir, name): (&Dir, &[u8]), st: &Statx) -> bool {
    meta::facts_at(dir, name, false, meta::FACTS).is_ok_and(|there| meta::id(&there) == meta::id(st))
}

/// Takes the name `old` from a file that is called `new` too. A hidden name holds it meanwhile: the two may be one, written in other
/// letters, on a file system that folds them.
fn leave_one_name((from, old): (&Dir, &[u8]), (to, new): (&Dir, &[u8]), suffix: Suffix<'_>) -> rustix::io::Result<()> {
    let hidden = temp_name(Owner::Process, new, suffix);
    rustix::fs::linkat(from, old, to, &hidden[..], AtFlags::empty())?;
    rustix::fs::unlinkat(from, old, AtFlags::empty())?;
    match meta::facts_at(to, new, false, meta::FACTS) {
        Err(Errno::NOENT) => rustix::fs::renameat(to, &hidden[..], to, new),
        _ => rustix::fs::unlinkat(to, &hidden[..], AtFlags::empty()),
    }
}

/// The end of a move by copying: deletes only the file that was copied. Where the two names turn out to be one, the source is the
/// copy by now.
fn remove_source(item: &CopyItem, dir: &Dir, name: &[u8], copied: &Statx) -> Result<()> {
    let now = meta::facts_at(dir, name, false, meta::FACTS).map_err(source_error(item))?;
    // A followed link's target was copied; the link's own facts don't matter.
    if meta::file_type(&now) == meta::file_type(copied) && !meta::pinned(&meta::version(copied), &now) {
        return Err(changed(OP, &item.from));
    }
    super::dir::unlink(dir, name, false).map_err(|errno| fail("delete the source", &item.from, errno))
}

fn set_times(item: &CopyItem, file: impl AsFd, mtime: Mtime) -> Result<()> {
    rustix::fs::futimens(file, &meta::times(None, Some(mtime))).map_err(target_error(item))
}

/// The source's root for a batch: this store's own descriptors when it copies within itself.
pub(super) fn source_root(local: &Arc<Local>, from: &[u8], links: SourceLinks) -> Arc<Root> {
    match *from == *local.place {
        true => local.root.clone(),
        false => {
            let follow = local.root.follow() || links.follow_files;
            let root = Root::new(from.to_vec(), follow).following_dirs(links.follow_dirs);
            // A store's names have no link on the way: one that is there now was put there by someone.
            Arc::new(root.by_own_links(local.root.goes_by_own_links()))
        }
    }
}
