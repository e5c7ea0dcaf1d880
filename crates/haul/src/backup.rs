//! Keeping what would be replaced or deleted: moved into `--backup-dir`, or renamed with `--suffix`, before it goes.

use crate::{
    Cx,
    namesakes::{of_any_kind, target},
    pipe,
};
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Meta, Result,
    filter::Filter,
    job::{Job, Publish},
    keep::{IdMap, Keep},
    key::name,
    links::SourceLinks,
    names::extension,
    plan::Replace,
};
use haul_store::{
    AttributesBatch, AttributesItem, CopyBatch, CopyHow, CopyItem, Store, Watch, WriteSpec, as_dir, offered,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// State of a file that a transfer replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplacedFile {
    /// Nothing yet.
    #[default]
    No,
    /// It is where backups go, as far as anything is kept.
    Done,
    /// As `Done`, as a second name of the file, which still has its own.
    Linked,
    /// It was moved there: its own name is free.
    Moved,
}

/// Where replaced and deleted files go; does nothing unless a flag asks for it.
#[derive(Clone, Debug, Default)]
pub struct Backup {
    to: Option<Arc<dyn Store>>,
    suffix: Option<String>,
    before_extension: bool,
    /// A backup may be a second name of the old file: that isn't written any more.
    may_link: bool,
    /// Backups are beside their files.
    beside: bool,
    /// A deleted file isn't kept if its name ends with this: it is a backup already.
    kept_before: Option<String>,
    /// Attributes that a backup on another file system keeps.
    keep: Option<Arc<Keep>>,
    /// Those that a directory of backups has of the one that it stands for.
    dir_keep: Option<Arc<Keep>>,
    /// Symlinks that point outside the transferred tree aren't kept; this many of its directories are above the job's root.
    safe_links: Option<usize>,
    /// Directories of backups that exist.
    dirs: Arc<tokio::sync::Mutex<HashSet<Key>>>,
    /// The source, which may have names of backups.
    source: Option<(Arc<dyn Store>, Arc<Filter>)>,
    names: Arc<Mutex<Names>>,
}

/// Names with the suffix, which a backup and a file of the source may both be about to get.
#[derive(Debug, Default)]
struct Names {
    /// Files of the source that came, or are on their way.
    coming: BTreeSet<Key>,
    /// Names of this run's backups, as far as others might get them.
    taken: BTreeSet<Key>,
    /// Where files are kept, as far as others might want that name.
    chosen: BTreeMap<Key, Key>,
}

/// Has one item copied.
async fn put_one(to: &Arc<dyn Store>, from: &Arc<[u8]>, item: CopyItem) -> Result<()> {
    let batch = CopyBatch { from: from.clone(), items: vec![item], links: SourceLinks::default() };
    to.copy(batch, Watch::default()).await.into_iter().find_map(Result::err).map_or(Ok(()), Err)
}

impl Backup {
    /// The backup rules of `job` and the context's backup store.
    pub fn new(job: &Job, cx: &Cx, keep: Option<&Keep>) -> Self {
        let suffix = job.existing.backup_suffix.clone().filter(|s| !s.is_empty());
        let to = cx.backup.clone().or_else(|| suffix.as_ref().map(|_| cx.dst.clone()));
        // The backup is the old file, unchanged; a copy that others may not read at the destination they may not read here either.
        let unchanged = |keep: &Keep| {
            let (chmod, users, groups) = (Vec::new(), IdMap::default(), IdMap::default());
            Keep { perms: true, chmod, users, groups, ..keep.clone() }
        };
        let dir_keep = keep.map(|keep| Arc::new(unchanged(keep)));
        let private = || Keep { perms: true, ..Keep::default() };
        let keep = keep.map(unchanged).or_else(|| cx.dst.caps().attributes.is_some().then(private)).map(Arc::new);
        let beside = cx.backup.is_none();
        let kept_before = suffix.clone().filter(|_| !job.existing.spares_backups && beside);
        let before_extension = job.existing.suffix_keep_extension;
        let safe_links = job.links.safe;
        // A file that is written in place or appended to must not be a backup too.
        let in_place = job.write.publish == Publish::InPlace || job.existing.append.is_some();
        let may_link = cx.dst.inodes().is_some() && !in_place;
        let source = Some((cx.src.clone(), cx.filter.clone()));
        let (dirs, names) = (Arc::default(), Arc::default());
        Backup {
            to,
            suffix,
            before_extension,
            may_link,
            beside,
            kept_before,
            keep,
            dir_keep,
            safe_links,
            dirs,
            source,
            names,
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of the source will be at the destination under this name: no backup gets it.
    pub fn will_come(&self, to: &Key) {
        if self.ends_so(to) {
            self.names().coming.insert(to.clone());
        }
    }

    /// True for a name that backups have.
    fn ends_so(&self, key: &Key) -> bool {
        let Some(suffix) = self.suffix.as_deref() else { return false };
        let path = key.path();
        // The suffix may look like an extension.
        let bare = path.strip_suffix(suffix.as_bytes());
        path[..self.split(path)].ends_with(suffix.as_bytes())
            || bare.is_some_and(|bare| self.suffixed(suffix, bare) == path)
    }

    /// The name under which `key` of `dst` is kept: with the suffix, and with a further one for each such name that the source has. As with rsync,
    /// which then makes a backup of the backup. The same at each call, as far as nothing new comes to the source.
    ///
    /// Errors: the source doesn't tell whether it has something of that name.
    async fn name_for(&self, dst: &Arc<dyn Store>, key: &Key) -> Result<Key> {
        let usual = self.kept_name(key);
        if self.suffix.is_none() {
            return Ok(usual);
        }
        if let Some(chosen) = self.names().chosen.get(key) {
            return Ok(chosen.clone());
        }
        let mut name = usual.clone();
        loop {
            if !self.comes_to(dst, &name).await? {
                let may_meet = name != usual || self.ends_so(key);
                let mut names = self.names();
                if let Some(chosen) = names.chosen.get(key) {
                    return Ok(chosen.clone());
                }
                if !may_meet && !names.taken.contains(&name) {
                    return Ok(name);
                }
                if may_meet && names.taken.insert(name.clone()) {
                    names.chosen.insert(key.clone(), name.clone());
                    return Ok(name);
                }
            }
            name = self.kept_name(&name);
        }
    }

    /// Whether something of the source comes, or came, to where a backup of this name would be.
    async fn comes_to(&self, dst: &Arc<dyn Store>, kept: &Key) -> Result<bool> {
        let (Some((source, filter)), Some(to)) = (&self.source, self.in_destination(dst, kept)) else {
            return Ok(false);
        };
        let keys: Vec<Key> = of_any_kind(source, to.path()).collect();
        let is_coming = keys.iter().any(|key| self.names().coming.contains(key));
        if is_coming || filter.shown_by_another_source(&to) {
            return Ok(true);
        }
        for key in keys {
            let wanted = match key.is_dir() {
                true => filter.descend(key.as_bytes()),
                false => filter.wants_name(&Entry::file(key.clone(), 0)),
            };
            if !wanted {
                continue;
            }
            match source.stat(&key).await {
                Ok(entry) if entry.is_dir() != key.is_dir() => {}
                Err(error) if error.is_missing() => {}
                there => return there.map(|_| true),
            }
        }
        Ok(false)
    }

    async fn has(&self, kept: &Key) -> Result<bool> {
        let Some(to) = &self.to else { return Ok(false) };
        match to.stat(kept).await {
            Err(error) if error.is_missing() => Ok(false),
            there => there.map(|_| true),
        }
    }

    /// True when anything is kept.
    pub fn is_on(&self) -> bool {
        self.to.is_some()
    }

    /// True when a file deleted under this key is kept.
    pub fn keeps(&self, key: &Key) -> bool {
        let ends = |suffix: &String| key.path().ends_with(suffix.as_bytes());
        self.is_on() && !self.kept_before.as_ref().is_some_and(ends)
    }

    /// Moves `old` from the destination to the backup, or copies it there if the store doesn't rename: true if it is no longer
    /// at its old name. Without a backup this does nothing.
    ///
    /// A file that is missing already needs no backup. On a disk the file must still be the listed one: where names are folded, a file that
    /// arrived in this run may have taken the name.
    ///
    /// Errors: the copy fails; `Changed` when another file has the name by now; `Unsupported` when the backup isn't in the destination's
    /// copy domain.
    pub async fn keep(&self, cx: &Cx, old: &Entry) -> Result<bool> {
        if !self.is_on() {
            return Ok(false);
        }
        if self.is_unsafe(cx, old).await? {
            let answers = cx.dst.delete(vec![(old.key.clone(), old.version.clone())]).await;
            answers.into_iter().collect::<Result<()>>().map_err(|error| error.with_key(&old.key))?;
            return Ok(true);
        }
        let kept = self.name_for(&cx.dst, &old.key).await?;
        self.move_to(cx, old, &kept).await
    }

    async fn move_to(&self, cx: &Cx, old: &Entry, kept: &Key) -> Result<bool> {
        let renames = cx.dst.caps().renames;
        match self.put(cx, (old, kept), if renames { CopyHow::Rename } else { CopyHow::Copy }).await {
            // To another file system a rename is a copy, which the store doesn't make while bandwidth is limited.
            Err(error) if renames && error.kind() == ErrorKind::Unsupported && old.kind == Kind::File => {
                self.pass_on(cx, old, kept).await.map(|()| false)
            }
            put => put.map(|_| renames),
        }
    }

    /// Keeps `old`, whose name a waiting file is about to take. Where a second name can be linked, that is the
    /// backup, so that the file's own name is never missing.
    ///
    /// Errors: as for [`Backup::keep`].
    pub async fn keep_replaced(&self, cx: &Cx, old: &Entry) -> Result<ReplacedFile> {
        if !self.is_on() || self.is_unsafe(cx, old).await? {
            return self.keep(cx, old).await.map(|_| ReplacedFile::Done);
        }
        let kept = self.name_for(&cx.dst, &old.key).await?;
        if self.may_link {
            // An older backup goes when it is replaced, and doesn't come back.
            let replaces = self.has(&kept).await.unwrap_or(true);
            match self.put(cx, (old, &kept), CopyHow::Link).await {
                Ok(true) if !replaces => return Ok(ReplacedFile::Linked),
                Ok(_) => return Ok(ReplacedFile::Done),
                Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error),
                // Another file system, or one without hard links.
                Err(_) if old.kind == Kind::File => {
                    return self.copy_to(cx, old, &kept).await.map(|()| ReplacedFile::Done);
                }
                Err(_) => {}
            }
        }
        Ok(if self.move_to(cx, old, &kept).await? { ReplacedFile::Moved } else { ReplacedFile::Done })
    }

    /// Undoes that on a disk, when the replacement of `old` has not arrived: it has its name again, and that alone. If another file has the
    /// name by now, it stays, as the backup does: false.
    ///
    /// Errors: of the store; the backup then is where it was.
    pub async fn take_back(&self, cx: &Cx, old: &Entry, kept: ReplacedFile) -> Result<bool> {
        let (Some(to), Some(domain)) = (&self.to, self.to.as_ref().and_then(|to| to.caps().domain.clone())) else {
            return Ok(false);
        };
        let backup = self.name_for(&cx.dst, &old.key).await?;
        let there = match cx.dst.stat(&old.key).await {
            Err(error) if error.is_missing() => None,
            there => Some(there?),
        };
        match (kept, there) {
            (ReplacedFile::Linked, Some(there)) => {
                let second = to.stat(&backup).await?;
                if second.version.is_none() || there.version != second.version {
                    return Ok(false);
                }
                to.delete(vec![(backup, second.version)]).await.into_iter().collect::<Result<()>>().map(|()| true)
            }
            // Also where the new file came, and was taken away as it was not what it should be.
            (ReplacedFile::Linked | ReplacedFile::Moved, None) => {
                let spec = WriteSpec { replace: Replace::Absent, keep: self.keep.clone(), ..WriteSpec::default() };
                let (to, size) = (old.key.clone(), old.size);
                let item = CopyItem { from: backup, want: None, size, to, spec, how: CopyHow::Rename };
                put_one(&cx.dst, &domain.place, item).await.map(|()| true)
            }
            (ReplacedFile::No | ReplacedFile::Done, _) | (ReplacedFile::Moved, Some(_)) => Ok(false),
        }
    }

    /// Copies `old` to the backup and leaves the original in place.
    ///
    /// Errors: as for [`Backup::keep`].
    pub async fn keep_copy(&self, cx: &Cx, old: &Entry) -> Result<()> {
        let kept = self.name_for(&cx.dst, &old.key).await?;
        self.copy_to(cx, old, &kept).await
    }

    async fn copy_to(&self, cx: &Cx, old: &Entry, kept: &Key) -> Result<()> {
        match self.put(cx, (old, kept), CopyHow::Copy).await {
            // The store doesn't copy, or not while bandwidth is limited.
            Err(error) if error.kind() == ErrorKind::Unsupported => self.pass_on(cx, old, kept).await,
            put => put.map(drop),
        }
    }

    /// Copies `old` through memory, as private as it is.
    async fn pass_on(&self, cx: &Cx, old: &Entry, kept: &Key) -> Result<()> {
        let Some(to) = &self.to else { return Ok(()) };
        let with_key = |error: Error| error.with_key(&old.key);
        let now = match cx.dst.stat(&old.key).await {
            Err(error) if error.is_missing() => return Ok(()),
            now => now.map_err(with_key)?,
        };
        if old.version.is_some() && now.version != old.version {
            return Err(with_key(Error::new(ErrorKind::Changed, "back up", "changed since it was listed")));
        }
        let mode = now.meta.as_ref().and_then(|meta| Some(("mode".to_owned(), meta.get("mode")?.clone())));
        let meta = mode.map(|mode| Box::new(Meta::from_iter([mode])));
        let spec = WriteSpec { size: Some(now.size), mtime: now.mtime, meta, ..WriteSpec::default() };
        let bytes = pipe::read(&cx.dst, &now, None).await.map_err(with_key)?;
        pipe::write(to, kept, spec, bytes).await.map(drop).map_err(with_key)
    }

    /// False where there was nothing any more.
    async fn put(&self, cx: &Cx, (old, kept): (&Entry, &Key), how: CopyHow) -> Result<bool> {
        let Some(to) = &self.to else { return Ok(false) };
        let (Some(from), Some(domain)) = (cx.dst.caps().domain.clone(), to.caps().domain.clone()) else {
            return Err(Error::new(ErrorKind::Unsupported, "back up", "this store can't move files by itself"));
        };
        if from.name != domain.name {
            let message = "the backup directory must be on the same remote as the destination";
            return Err(Error::new(ErrorKind::Invalid, "back up", message));
        }
        if cx.backup.is_some() {
            self.make_dirs(cx, to, kept).await?;
        }
        let item = CopyItem {
            from: old.key.clone(),
            want: old.version.clone().filter(|_| cx.dst.caps().files),
            size: old.size,
            to: kept.clone(),
            spec: WriteSpec { size: Some(old.size), mtime: old.mtime, keep: self.keep.clone(), ..WriteSpec::default() },
            how,
        };
        match put_one(to, &from.place, item.clone()).await {
            // Either that, or the directory where backups go: stores that know directories by ids don't say which.
            Err(error) if error.kind() == ErrorKind::NotFound && error.op() != "write" => {
                match cx.dst.stat(&old.key).await {
                    Err(gone) if gone.is_missing() => return Ok(false),
                    // A directory that was removed meanwhile is known to be missing now, and is created again.
                    Ok(_) => put_one(to, &from.place, item).await,
                    Err(error) => Err(error),
                }
            }
            Err(error) if to.caps().dirs && error.kind() == ErrorKind::Exists => {
                // An empty directory makes way; one that holds something stays.
                let dir = Key::new([kept.path(), b"/"].concat());
                to.delete(vec![(dir, None)]).await.into_iter().collect::<Result<()>>()?;
                put_one(to, &from.place, item).await
            }
            answer => answer,
        }
        .map(|()| true)
        .map_err(|error| error.with_key(&old.key))
    }

    /// True for a symlink that is not to be kept, since it leads out.
    ///
    /// Errors: its target can't be read.
    async fn is_unsafe(&self, cx: &Cx, old: &Entry) -> Result<bool> {
        let Some(depth) = self.safe_links.filter(|_| old.is_symlink()) else { return Ok(false) };
        let target = match target(&cx.dst, &old.key).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            target => target.map_err(|error| error.with_key(&old.key))?,
        };
        let slashes = old.key.as_bytes().iter().filter(|b| **b == b'/').count();
        Ok(target.is_some_and(|target| haul_core::links::leads_out(&target, depth + slashes)))
    }

    /// Makes the directories in which `kept` is to be, those that are missing, with the permissions of those that they stand
    /// for: what nobody else may look into there nobody may here.
    async fn make_dirs(&self, cx: &Cx, to: &Arc<dyn Store>, kept: &Key) -> Result<()> {
        let (Some(keep), Some(from)) = (&self.dir_keep, cx.dst.caps().domain.as_ref()) else { return Ok(()) };
        let mut known = self.dirs.lock().await;
        for (at, _) in kept.as_bytes().iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let dir = Key::new(&kept.as_bytes()[..=at]);
            if !known.insert(dir.clone()) || to.stat(&dir).await.is_ok() {
                continue;
            }
            to.make_dir(&dir, &WriteSpec::default()).await?;
            let inodes = offered(to.inodes(), "back up")?;
            let keep = Some(keep.clone());
            let (from_dir, carried) = (dir.clone(), None);
            let item = AttributesItem { from: from_dir, to: dir, mtime: None, meta: None, keep, carried, new: true };
            let (from, links) = (from.place.clone(), SourceLinks::default());
            let answers = inodes.attributes(AttributesBatch { from, items: vec![item], links, set: true }).await;
            answers.into_iter().find_map(Result::err).map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// The key of the destination under which `key` is kept; `None` where that is elsewhere, or nothing is kept.
    pub async fn kept_in(&self, dst: &Arc<dyn Store>, key: &Key) -> Option<Key> {
        self.to.as_ref()?;
        // An unknown fact of the source fails when the backup is made.
        let name = self.name_for(dst, key).await.unwrap_or_else(|_| self.kept_name(key));
        self.in_destination(dst, &name)
    }

    /// The destination's key of the backup `kept`, if it is inside.
    fn in_destination(&self, dst: &Arc<dyn Store>, kept: &Key) -> Option<Key> {
        let (to, dst) = (self.to.as_ref()?.caps().domain.as_ref()?, dst.caps().domain.as_ref()?);
        if to.name != dst.name {
            return None;
        }
        // Either may be in the other.
        let kept = [&as_dir(&to.place)[..], kept.as_bytes()].concat();
        kept.strip_prefix(&as_dir(&dst.place)[..]).map(Key::new)
    }

    /// True for a name that a backup beside its file has.
    pub fn is_kept_name(&self, key: &Key) -> bool {
        self.beside && self.ends_so(key)
    }

    fn kept_name(&self, key: &Key) -> Key {
        let Some(suffix) = &self.suffix else { return key.clone() };
        match key.is_symlink() {
            true => Key::symlink(self.suffixed(suffix, key.path())),
            false => Key::new(self.suffixed(suffix, key.as_bytes())),
        }
    }

    fn suffixed(&self, suffix: &str, path: &[u8]) -> Vec<u8> {
        let (stem, extension) = path.split_at(self.split(path));
        [stem, suffix.as_bytes(), extension].concat()
    }

    /// Where the suffix goes.
    fn split(&self, path: &[u8]) -> usize {
        let extension = if self.before_extension { extension(name(path)).len() } else { 0 };
        path.len() - extension
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_goes_to_the_end_or_before_the_extension() {
        let backup = |before_extension| Backup { suffix: Some("-old".into()), before_extension, ..Backup::default() };
        let name = |key: &str, before| backup(before).kept_name(&Key::new(key)).to_string();
        assert_eq!(name("d.x/a.txt", false), "d.x/a.txt-old");
        assert_eq!(name("d.x/a.txt", true), "d.x/a-old.txt");
        assert_eq!(name("d.x/a", true), "d.x/a-old");
        assert_eq!(name("d.x/a.tar.gz", true), "d.x/a-old.tar.gz");
        assert_eq!(name(".profile", true), "-old.profile");
        assert_eq!(backup(false).kept_name(&Key::symlink("d/l")), Key::symlink("d/l-old"));
        assert_eq!(name("d/l.rclonelink", true), "d/l-old.rclonelink");
        let kept = |key: &str, before| Backup { beside: true, ..backup(before) }.is_kept_name(&Key::new(key));
        assert!(kept("d.x/a.txt-old", false) && kept("d.x/a-old.txt", true) && kept("d.x/a-old", true));
        let dotted = Backup { suffix: Some(".bak".into()), beside: true, before_extension: true, ..Backup::default() };
        assert!(["a.bak", "a.bak.txt"].iter().all(|key| dotted.is_kept_name(&Key::new(key))));
        assert!(!dotted.is_kept_name(&Key::new("a.txt.bak")));
        assert!(!kept("d.x/a-old.txt", false) && !kept("d-old/a.txt", true) && !kept("a.txt-old", true));
    }
}
