//! Small files, many one after the other on one disk thread: each is read, or written and published, in one go.

use super::{
    Local, attributes,
    dir::LastDirCache,
    error::{changed, check_file, fail, fail_close},
    hidden::{Owner, Suffix},
    meta,
    publish::{self, HiddenFile, NewNames, PrivateUntil},
    read::open_regular,
    upload,
    xattrs::XattrHolder,
};
use bytes::Bytes;
use haul_core::{Entry, Error, ErrorKind, Key, Result, Version, attributes::UnpreservedAttributes};
use haul_store::{
    SmallFile, StoredFacts, WriteSpec, blocks,
    disk::Abandoned,
    late_errors::{self, LossReporting},
};
use std::os::fd::OwnedFd;

/// See [`haul_store::Bundles::fetch`]; runs on the pool.
pub(super) fn fetch(
    local: &Local,
    wanted: &[(Key, Option<Version>)],
    abandoned: &Abandoned,
) -> Vec<Result<(Entry, Bytes)>> {
    let mut room = SmallFile::FETCHED;
    let each = wanted.iter().map(|(key, version)| {
        abandoned.check("read", key)?;
        let (entry, bytes) = fetch_one(local, key, version.as_ref(), room)?;
        room -= bytes.len() as u64;
        Ok((entry, bytes))
    });
    each.collect()
}

fn fetch_one(local: &Local, key: &Key, version: Option<&Version>, room: u64) -> Result<(Entry, Bytes)> {
    const OP: &str = "read";
    let (entry, file) = open_regular(local, key, version)?;
    if entry.size > room {
        return Err(alone(OP, key));
    }
    let bytes = blocks::held(&file, 0..entry.size).map_err(|e| fail(OP, key, e))?;
    let after = meta::facts(&file, meta::FACTS).map_err(|e| fail(OP, key, e))?;
    if bytes.len() as u64 != entry.size || entry.version != Some(meta::version(&after)) {
        return Err(changed(OP, key));
    }
    Ok((entry, bytes.into()))
}

/// One batch of files that are written.
struct Batch<'a> {
    local: &'a Local,
    /// They are made without a name first.
    nameless: bool,
    /// When files of a directory report errors.
    late: LastDirCache<LossReporting>,
    named: NewNames,
}

/// See [`haul_store::Bundles::put`]; runs on the pool. Where no space is left, those after that are not begun.
pub(super) fn put(local: &Local, files: &[SmallFile], abandoned: &Abandoned) -> Vec<Result<StoredFacts>> {
    let (late, named) = Default::default();
    let (mut batch, mut full) = (Batch { local, nameless: true, late, named }, false);
    let each = files.iter().map(|file| {
        abandoned.check(upload::OP, &file.key)?;
        if full {
            return Err(Error::new(ErrorKind::Cancelled, upload::OP, "no space is left").with_key(&file.key));
        }
        let stored = batch.put(file);
        full = stored.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        stored
    });
    let mut stored: Vec<_> = each.collect();
    batch.named.force(upload::OP, files.iter().map(|file| &file.key), &mut stored);
    stored
}

impl Batch<'_> {
    fn put(&mut self, file: &SmallFile) -> Result<StoredFacts> {
        let SmallFile { key, spec, bytes } = file;
        check_file(upload::OP, key)?;
        meta::check_time(upload::OP, key, spec.mtime)?;
        if key.is_symlink() || spec.inplace || spec.resumable {
            return Err(alone(upload::OP, key));
        }
        upload::check_size(key, spec, bytes.len() as u64)?;
        let local = self.local;
        let hidden = attributes::opened(&local.root, key, spec.keep.as_deref(), || self.create(key, spec))?;
        self.fill(file, &hidden).inspect_err(|_| {
            if !hidden.temp.is_empty() {
                publish::discard(&hidden.dir, &hidden.temp);
            }
        })
    }

    fn create(&mut self, key: &Key, spec: &WriteSpec) -> Result<HiddenFile> {
        let (root, until, suffix) = (&self.local.root, upload::until(spec), Suffix::of(upload::OP, key, spec)?);
        if self.nameless {
            match publish::create_nameless(root, upload::OP, key, matches!(until, PrivateUntil::Own))? {
                Some(hidden) => return Ok(hidden),
                None => self.nameless = false,
            }
        }
        publish::create(root, upload::OP, key, (Owner::Process, suffix), until)
    }

    fn fill(&mut self, file: &SmallFile, hidden: &HiddenFile) -> Result<StoredFacts> {
        let SmallFile { key, spec, bytes } = file;
        let target = &hidden.file;
        upload::write_whole(target, bytes, spec.sparse).map_err(|e| fail(upload::OP, key, e))?;
        let attributes_set = self.set_attributes(file, hidden)?;
        let forced = if spec.fsync { rustix::fs::fsync(target) } else { Ok(()) };
        // Also after fsync, which some file systems don't know.
        let tells = self.late.get(&hidden.dir, |dir| self.local.late.tells(dir));
        forced.and_then(|()| late_errors::ask(target, tells)).map_err(|errno| fail_close(upload::OP, key, errno))?;
        let keep_mode = (!attributes_set.own_mode).then_some::<&OwnedFd>(target);
        self.local.made.publish((upload::OP, key), (&hidden.dir, key.name()), || {
            publish::settle_hidden(upload::OP, key, hidden, spec, keep_mode)
        })?;
        if spec.fsync {
            self.named.note(key, &hidden.dir);
        }
        // After it has its name, which moves ctime. Should this fail the file is there all the same.
        let version = meta::facts(target, meta::FACTS).ok().map(|st| meta::version(&st));
        Ok(StoredFacts {
            version,
            size: bytes.len() as u64,
            unpreserved: attributes_set.unpreserved,
            ..StoredFacts::default()
        })
    }

    /// Sets what the file is to have beside its bytes, before it has its name.
    fn set_attributes(&self, file: &SmallFile, hidden: &HiddenFile) -> Result<AttributesResult> {
        let SmallFile { key, spec, .. } = file;
        let meta = spec.meta.as_deref();
        let (Some(keeper), Some(carried)) = (attributes::keeper(self.local, spec), spec.carried.as_deref()) else {
            upload::set_facts(key, &hidden.file, meta, spec.mtime, spec.keep_setid)?;
            return Ok(AttributesResult {
                own_mode: !upload::takes_mode(spec, meta),
                unpreserved: UnpreservedAttributes::default(),
            });
        };
        let source = XattrHolder::Carried(carried);
        let before = source.facts(meta::FACTS).map_err(|errno| fail(upload::OP, key, errno))?;
        let replaced = keeper.replaced(&hidden.dir, key.name());
        let place = (&hidden.dir, &hidden.file);
        let unpreserved = keeper.new_file(file.into(), (&source, &before), place, replaced.as_ref(), spec.mtime)?;
        Ok(AttributesResult { own_mode: keeper.keep.private() || replaced.is_some(), unpreserved })
    }
}

/// Result of setting the attributes of a file.
struct AttributesResult {
    /// Its permissions are its own, not those of the file that it replaces.
    own_mode: bool,
    unpreserved: UnpreservedAttributes,
}

fn alone(op: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::Unsupported, op, "this file can't go with others").with_key(key)
}
