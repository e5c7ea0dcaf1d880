//! The end of a job: deletions whose grounds are proved, directories made, removed, and given their times.

use crate::{
    job::Run,
    spool::{Gone, Spool},
};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key, Mtime, Posix, Result, Side,
    event::Event,
    key,
    policy::{DeleteWhen, Mode, Policy},
};
use haul_store::{CopyHow, CopyItem, Store, WriteSpec};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
};

/// Delete requests in flight at once.
const DELETES_AT_ONCE: usize = 8;

/// Most keys in one delete request, whatever the store would take.
const DELETE_BATCH: usize = 1000;

/// Files at the destination that are to be deleted, and whether they may be.
pub struct Doomed {
    state: Mutex<State>,
    max: Option<u64>,
    max_size: Option<u64>,
}

#[derive(Default)]
struct State {
    spool: Spool,
    count: u64,
    bytes: u64,
    /// The source listed at least one file.
    source_has_files: bool,
    /// The source's listing saw everything.
    source_complete: bool,
}

impl Doomed {
    /// Nothing yet.
    pub fn new(policy: &Policy) -> Self {
        Doomed { state: Mutex::default(), max: policy.max_delete, max_size: policy.max_delete_size }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One more file to delete.
    pub fn push(&self, gone: Gone) -> Result<()> {
        let mut state = self.state();
        state.count += 1;
        state.bytes += gone.size;
        state.spool.push(gone)
    }

    /// True when a delete request's worth is waiting.
    pub fn full(&self) -> bool {
        self.state().spool.len() >= DELETE_BATCH as u64
    }

    /// What a walk found of the source.
    pub fn source_seen(&self, has_files: bool, complete: bool) {
        let mut state = self.state();
        state.source_has_files |= has_files;
        state.source_complete = complete;
    }
}

/// Files at the destination that it need not have, as `--compare-dest` has them.
#[derive(Default)]
pub struct Spare(Mutex<Spool>);

impl Spare {
    fn spool(&self) -> MutexGuard<'_, Spool> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One more.
    ///
    /// Errors: those of writing a temporary file.
    pub fn push(&self, gone: Gone) -> Result<()> {
        self.spool().push(gone)
    }
}

/// Directories seen on both sides, to be settled when the files are done.
#[derive(Default)]
pub struct Dirs(Mutex<DirState>);

#[derive(Default)]
struct DirState {
    /// The source's directories: entry, and the mtime at the destination if it is there.
    src: BTreeMap<Key, SrcDir>,
    /// Directories that only the destination has.
    extra: Vec<Key>,
    /// The last of those that is in none of them.
    dying: Option<Key>,
    /// Destination directories in which something was written or deleted.
    written: HashSet<Key>,
    /// The destination's root is only made by this job.
    new_root: bool,
}

struct SrcDir {
    mtime: Option<Mtime>,
    meta: Option<Box<haul_core::Meta>>,
    posix: Option<Box<Posix>>,
    there: bool,
    there_mtime: Option<Mtime>,
    there_posix: Option<Box<Posix>>,
    /// It keeps the attributes that it has.
    anothers: bool,
}

impl Dirs {
    fn state(&self) -> MutexGuard<'_, DirState> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A directory on both sides.
    pub fn both(&self, src: Entry, dst: Entry) {
        let Entry { key, mtime, meta, posix, .. } = src;
        let (there_mtime, there_posix) = (dst.mtime, dst.posix);
        self.state()
            .src
            .insert(key, SrcDir { mtime, meta, posix, there: true, there_mtime, there_posix, anothers: false });
    }

    /// A directory of the destination that keeps the attributes that it has, whatever is written into it.
    pub fn keep(&self, dst: Entry) {
        let Entry { key, mtime, posix, .. } = dst;
        let (there_mtime, there_posix) = (mtime, posix);
        let dir = SrcDir { mtime, meta: None, posix: None, there: true, there_mtime, there_posix, anothers: true };
        self.state().src.insert(key, dir);
    }

    /// A directory that only the source has.
    pub fn src_only(&self, src: Entry) {
        let Entry { key, mtime, meta, posix, .. } = src;
        let dir = SrcDir { mtime, meta, posix, there: false, there_mtime: None, there_posix: None, anothers: false };
        self.state().src.insert(key, dir);
    }

    /// True for a directory that the destination is known to lack.
    pub fn is_new(&self, dir: &Key) -> bool {
        let state = self.state();
        if dir.is_root() { state.new_root } else { state.src.get(dir).is_some_and(|dir| !dir.there) }
    }

    /// Tells that the destination's root is only made by this job.
    pub fn root_is_new(&self) {
        self.state().new_root = true;
    }

    /// A directory of the source that turns out to be at the destination.
    fn found(&self, key: &Key, dst: Entry) {
        if let Some(dir) = self.state().src.get_mut(key) {
            (dir.there, dir.there_mtime, dir.there_posix) = (true, dst.mtime, dst.posix);
        }
    }

    /// True when the last directory that only the destination has is this one (its key) or holds it.
    pub fn is_extra(&self, dir: &Key) -> bool {
        self.state().dying.as_ref().is_some_and(|top| dir.as_bytes().starts_with(top.as_bytes()))
    }

    /// A directory that only the destination has.
    pub fn extra(&self, dst: Entry) {
        let mut state = self.state();
        if !state.dying.as_ref().is_some_and(|top| dst.key.as_bytes().starts_with(top.as_bytes())) {
            state.dying = Some(dst.key.clone());
        }
        state.extra.push(dst.key);
    }

    /// The directory `held` can't go, nor can those above it.
    pub fn spare(&self, held: &Key) {
        self.state().extra.retain(|dir| !held.as_bytes().starts_with(dir.as_bytes()));
    }

    /// Something was written or deleted at this key: the directories above it have new times now.
    pub fn written(&self, at: &Key) {
        let mut state = self.state();
        let mut dir = key::parent(at.as_bytes());
        while !dir.is_empty() && state.written.insert(Key::new(dir)) {
            dir = key::parent(dir);
        }
    }
}

impl Run {
    /// Deletes what is doomed, if the job went well enough to trust it. Called once at the end, or with
    /// `--delete-during` whenever a batch is full.
    pub async fn delete_doomed(&self) {
        let spool = {
            let mut state = self.doomed.state();
            if state.spool.is_empty() {
                return;
            }
            std::mem::take(&mut state.spool)
        };
        let waiting = spool.len();
        if self.cut_short() {
            // The limit or the signal is what the exit code tells; this only explains what stayed.
            return self.notice(None, format!("{waiting} files were not deleted, as the run was cut short"));
        }
        if let Some(error) = self.why_not_delete(waiting) {
            return self.error(error);
        }
        self.delete_all(spool, true).await;
    }

    /// Deletes these, as far as `--max-delete` lets; `told`: the sink is told of each.
    async fn delete_all(&self, spool: Spool, told: bool) {
        let batch = self.cx.dst.caps().delete_batch.clamp(1, DELETE_BATCH);
        let mut batches = match spool.into_batches(batch) {
            Ok(batches) => batches,
            Err(error) => return self.error(error),
        };
        let mut left = self.may_still_delete();
        let keys = futures::stream::poll_fn(|_| {
            let mut next = batches.next_batch().map_err(|e| self.error(e)).unwrap_or_default();
            let more = !next.is_empty() && !self.cx.cancel.is_cancelled();
            // What the limit leaves of it may be nothing; what comes after it is still to be counted.
            self.keep_to(&mut left, &mut next);
            std::task::Poll::Ready(more.then_some(next))
        });
        keys.for_each_concurrent(DELETES_AT_ONCE, |keys| self.delete_batch(keys, told)).await;
    }

    /// Deletes what the destination need not have, if all went well: as in rsync, nothing tells of it.
    pub async fn delete_spare(&self) {
        let spool = std::mem::take(&mut *self.spare.spool());
        let failed = self.report().error_count > 0 && !self.policy.ignore_errors;
        if spool.is_empty() || self.cut_short() {
            return;
        }
        if failed {
            let waiting = spool.len();
            return self
                .notice(None, format!("{waiting} files that --compare-dest has were not deleted: there were errors"));
        }
        self.delete_all(spool, false).await;
    }

    /// The reason not to delete, if there is one: an error anywhere, a source that holds nothing, a limit.
    fn why_not_delete(&self, waiting: u64) -> Option<Error> {
        let during = self.policy.delete_when == DeleteWhen::During;
        let (count, bytes, empty) = {
            let state = self.doomed.state();
            (state.count, state.bytes, !state.source_has_files && (!during || state.source_complete))
        };
        let errors = self.report().error_count;
        if errors > 0 && !self.policy.ignore_errors {
            let message =
                format!("Refused to delete {waiting} files: there were errors (--ignore-errors deletes all the same)");
            return Some(Error::new(ErrorKind::Limit, "delete", message));
        }
        if empty && !self.policy.allow_empty_source {
            let message = format!(
                "Refused to delete {waiting} files: source {} is empty (--allow-empty-source if that is intended)",
                self.cx.src.locator()
            );
            return Some(self.fatal(message));
        }
        if let Some(max) = self.doomed.max.filter(|max| count > *max && self.policy.rsync.is_none()) {
            return Some(
                self.fatal(format!("Refused to delete {waiting} files: that is more than --max-delete {max}")),
            );
        }
        if let Some(max) = self.doomed.max_size.filter(|max| bytes > *max) {
            return Some(
                self.fatal(format!(
                    "Refused to delete {waiting} files: that is more than --max-delete-size {max} bytes"
                )),
            );
        }
        None
    }

    fn fatal(&self, message: String) -> Error {
        self.report().stopped.get_or_insert(ErrorKind::Limit);
        Error::new(ErrorKind::Limit, "delete", message)
    }

    /// How many more deletions `--max-delete` allows under rsync's habits; elsewhere it stops all before the first.
    pub(crate) fn may_still_delete(&self) -> Option<u64> {
        let max = self.doomed.max.filter(|_| self.policy.rsync.is_some())?;
        let report = self.report();
        Some(max.saturating_sub(report.totals.deletes + report.totals.dirs_deleted))
    }

    /// In a dry run, for one more deletion: true, and counted, when `--max-delete` doesn't allow it.
    pub(crate) fn is_beyond_max_delete(&self) -> bool {
        let beyond = self.may_still_delete() == Some(0);
        if beyond {
            let mut report = self.report();
            report.totals.not_deleted += 1;
            report.stopped.get_or_insert(ErrorKind::Limit);
        }
        beyond
    }

    /// Cuts `next` to what is allowed; what is beyond it is counted, and stops the job in the end.
    fn keep_to<T>(&self, left: &mut Option<u64>, next: &mut Vec<T>) {
        let Some(left) = left else { return };
        let allowed = usize::try_from(*left).unwrap_or(usize::MAX).min(next.len());
        *left -= allowed as u64;
        let beyond = next.split_off(allowed).len() as u64;
        if beyond > 0 {
            let mut report = self.report();
            report.totals.not_deleted += beyond;
            report.stopped.get_or_insert(ErrorKind::Limit);
        }
    }

    async fn delete_batch(&self, batch: Vec<Gone>, told: bool) {
        let mut going = Vec::with_capacity(batch.len());
        for gone in batch {
            if !self.confirm("delete", &gone.key) {
                continue;
            }
            if self.backup().is_on() {
                self.will_write(&gone.key).await;
            }
            if !self.backup_before_delete(&gone, told).await {
                going.push(gone);
            }
        }
        for gone in &going {
            self.will_write(&gone.key).await;
        }
        let request = going.iter().map(|gone| (gone.key.clone(), gone.version.clone())).collect();
        let answers = self.cx.dst.delete(request).await;
        for (gone, answer) in going.into_iter().zip(answers) {
            match answer {
                Ok(()) => self.deleted(gone.key, gone.size, told),
                Err(error) => {
                    if self.attributes.keep.is_some() {
                        // Its directory may have been opened for it.
                        self.dirs.written(&gone.key);
                    }
                    self.error(error.with_key(&gone.key));
                }
            }
        }
    }

    /// With `--backup-dir` or `--suffix` a deleted file is moved away instead; true when that is all there was to do.
    async fn backup_before_delete(&self, gone: &Gone, told: bool) -> bool {
        let backup = self.backup();
        if !backup.keeps(&gone.key) {
            return false;
        }
        let listed = Entry { version: gone.version.clone(), ..Entry::with_bytes(gone.key.clone(), gone.size) };
        match backup.keep(&self.cx, &listed).await {
            Ok(()) => self.deleted(gone.key.clone(), gone.size, told),
            Err(error) => self.error(error),
        }
        true
    }

    fn deleted(&self, key: Key, size: u64, told: bool) {
        self.report().totals.deletes += 1;
        self.dirs.written(&key);
        self.is_absent(&key);
        if told {
            self.cx.sink.emit(&Event::Deleted { side: Side::Dst, key, size });
        }
    }

    /// Settles directories: creates empty ones where asked, removes what the source lacks, sets times; and takes the
    /// source's empty ones away after a move.
    pub async fn finish_dirs(&self, deletes: bool) {
        if self.policy.dry_run && deletes && self.policy.rsync.is_some() {
            self.tell_extra_dirs().await;
        }
        if self.policy.dry_run || self.cx.cancel.is_cancelled() {
            return;
        }
        self.make_empty_dirs().await;
        if deletes {
            self.delete_extra_dirs().await;
        }
        self.restore_dirs().await;
        match self.attributes.keep {
            Some(_) => self.set_dir_attributes().await,
            None => self.set_dir_times().await,
        }
        if self.mode == Mode::Move && self.policy.delete_empty_src_dirs {
            self.remove_empty_src_dirs().await;
        }
    }

    async fn make_empty_dirs(&self) {
        if !self.policy.create_empty_dirs {
            return;
        }
        let missing: Vec<Key> = {
            let state = self.dirs.state();
            let missing = |k: &Key, d: &SrcDir| !d.there && !k.is_root() && !state.written.contains(k);
            state.src.iter().filter(|(k, d)| missing(k, d)).map(|(k, _)| k.clone()).collect()
        };
        for key in missing {
            if self.is_full() {
                return;
            }
            match self.cx.dst.make_dir(&key, &WriteSpec::default()).await {
                Ok(()) => {
                    self.report().totals.dirs_made += 1;
                    self.dirs.written(&key);
                    self.dirs.state().written.insert(key.clone());
                    self.cx.sink.emit(&Event::DirMade { key });
                }
                Err(error) if error.kind() == ErrorKind::NoSpace => drop(self.no_room(error.with_key(&key))),
                Err(error) => self.error(error.with_key(&key)),
            }
        }
    }

    /// Removes the directories that the source lacks, if the job went well enough to trust it.
    pub async fn delete_extra_dirs(&self) {
        if !self.policy.dry_run && !self.cut_short() && (self.report().error_count == 0 || self.policy.ignore_errors) {
            self.remove_extra_dirs().await;
        }
    }

    /// Deepest first. A directory that still holds something (an excluded file, say) stays, and that is no error.
    async fn remove_extra_dirs(&self) {
        let mut extra = std::mem::take(&mut self.dirs.state().extra);
        if !has_dirs(&self.cx.dst) {
            return;
        }
        extra.sort_unstable_by(|a, b| b.cmp(a));
        // `--delete-before` walks twice.
        extra.dedup();
        let mut left = self.may_still_delete();
        self.keep_to(&mut left, &mut extra);
        for batch in extra.chunks(DELETE_BATCH) {
            let answers = self.cx.dst.delete(batch.iter().map(|k| (k.clone(), None)).collect()).await;
            for (key, answer) in batch.iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        self.report().totals.dirs_deleted += 1;
                        self.dirs.written(key);
                        self.cx.sink.emit(&Event::DirExtra { key: key.clone(), deleted: true, dry_run: false });
                    }
                    Err(e) if e.kind() == ErrorKind::Exists => {
                        self.cx.sink.emit(&Event::DirExtra { key: key.clone(), deleted: false, dry_run: false });
                    }
                    Err(error) => self.error(error.with_key(key)),
                }
            }
        }
    }

    /// What a dry run says of directories that the source lacks: one that would still hold something stays.
    async fn tell_extra_dirs(&self) {
        let mut extra = std::mem::take(&mut self.dirs.state().extra);
        extra.sort_unstable_by(|a, b| b.cmp(a));
        extra.dedup();
        let mut stay: HashSet<Key> = HashSet::new();
        for key in extra {
            let mut deleted = !stay.contains(&key);
            let mut listing = self.cx.dst.list(haul_store::ListRequest::dir(key.as_bytes()));
            while let Some(step) = listing.next().await {
                if let haul_core::Listed::Batch(entries) = step {
                    deleted &= entries.iter().all(|e| self.cx.filter.may_delete(&e.key, true));
                }
            }
            if deleted && self.is_beyond_max_delete() {
                stay.insert(key.parent());
                continue;
            }
            match deleted {
                true => self.report().totals.dirs_deleted += 1,
                false => _ = stay.insert(key.parent()),
            }
            self.cx.sink.emit(&Event::DirExtra { key, deleted, dry_run: true });
        }
    }

    /// Writing into a directory moves its time, so times come last, deepest first.
    async fn set_dir_times(&self) {
        let caps = self.cx.dst.caps();
        if self.policy.no_update_dir_mtime || !caps.dirs || !caps.set_mtime {
            return;
        }
        let due: Vec<(Key, SrcDir)> = {
            let mut state = self.dirs.state();
            let dirs = std::mem::take(&mut state.src);
            let other = |d: &SrcDir| d.there && !self.rules.dir_times_agree(d.mtime, d.there_mtime);
            let changed = |k: &Key, d: &SrcDir| state.written.contains(k) || other(d);
            dirs.into_iter().filter(|(k, d)| d.mtime.is_some() && changed(k, d)).rev().collect()
        };
        let set = due.into_iter().map(|(key, dir)| async move {
            let meta = dir.meta.as_deref().filter(|_| self.policy.metadata);
            match self.cx.dst.set_meta(&key, dir.mtime, meta).await {
                // Another program may have removed it meanwhile; nothing is lost by that.
                Err(e) if e.kind() != ErrorKind::NotFound => self.error(e.with_key(&key)),
                _ => {}
            }
        });
        futures::stream::iter(set).buffered(self.checkers()).for_each(|()| std::future::ready(())).await;
    }

    /// Gives directories that keep their attributes back what writing into them changed.
    async fn restore_dirs(&self) {
        let due: Vec<(Key, SrcDir)> = {
            let mut state = self.dirs.state();
            let (keep, rest) = std::mem::take(&mut state.src).into_iter().partition(|(_, dir)| dir.anothers);
            state.src = rest;
            let keep: BTreeMap<Key, SrcDir> = keep;
            // What is written into the root isn't noted.
            let written = |key: &Key| key.is_root() || state.written.contains(key);
            keep.into_iter().filter(|(key, _)| written(key)).rev().collect()
        };
        for (key, dir) in due {
            let mode = dir.there_posix.map(|posix| ("mode".to_string(), format!("{:o}", posix.mode & 0o7777)));
            let meta = mode.into_iter().collect::<haul_core::Meta>();
            let mtime = dir.mtime.filter(|_| !self.policy.no_update_dir_mtime);
            match self.cx.dst.set_meta(&key, mtime, Some(&meta)).await {
                Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
                    self.error(e.with_key(&key))
                }
                _ => {}
            }
        }
    }

    /// The same with attributes, of the top directory too. Deepest first, a level at a time: a directory may be closed to us
    /// once it has its own permissions.
    async fn set_dir_attributes(&self) {
        let top = Key::new("");
        match self.cx.dst.stat(&top).await {
            Ok(dst) => self.dirs.found(&top, dst),
            Err(error) => self.error(error.with_key(&top)),
        }
        let mut levels: BTreeMap<usize, Vec<CopyItem>> = BTreeMap::new();
        {
            let mut state = self.dirs.state();
            let dirs = std::mem::take(&mut state.src);
            let time = !self.policy.no_update_dir_mtime;
            for (key, dir) in dirs {
                let written = state.written.contains(&key) || (key.is_root() && !state.written.is_empty());
                let other_time = time && !self.rules.dir_times_agree(dir.mtime, dir.there_mtime);
                let other = || self.attributes.dir_differs(dir.posix.as_deref(), dir.there_posix.as_deref());
                let new = !dir.there || (key.is_root() && state.new_root);
                if written || (dir.there && (new || other_time || other())) {
                    let depth = key.as_bytes().iter().filter(|b| **b == b'/').count();
                    // Where its own is as good, it stays: a file system may not have any nearer.
                    let mtime = dir.mtime.filter(|_| time && (written || other_time));
                    let item = self.attribute_item(&Entry::dir(key.clone()), &key, mtime, true);
                    let how = CopyHow::Attributes { set: true, new };
                    levels.entry(depth).or_default().push(CopyItem { how, ..item });
                }
            }
        }
        for level in levels.into_values().rev() {
            let batches = level.chunks(self.mover.copy_batch()).map(|batch| self.set_attributes_of_dirs(batch));
            futures::stream::iter(batches).buffered(self.checkers()).for_each(|()| std::future::ready(())).await;
        }
    }

    async fn set_attributes_of_dirs(&self, dirs: &[CopyItem]) {
        let answers = self.ask_attributes(dirs.to_vec()).await;
        for (dir, answer) in dirs.iter().zip(answers) {
            match answer {
                Ok(stored) => self.count_unkept(stored.unkept),
                // Another program may have removed it meanwhile; nothing is lost by that.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => self.error(error.with_key(&dir.to)),
            }
        }
    }

    async fn remove_empty_src_dirs(&self) {
        if !has_dirs(&self.cx.src) {
            return;
        }
        let mut dirs: Vec<Key> = Vec::new();
        let all = std::sync::Arc::new(haul_core::filter::Filter::default());
        let options = crate::ListOptions { dirs: true, ..Default::default() };
        let mut listing = crate::list(&self.cx.src, &all, options);
        while let Some(step) = listing.next().await {
            if let haul_core::Listed::Batch(entries) = step {
                dirs.extend(entries.into_iter().filter(Entry::is_dir).map(|e| e.key));
            }
        }
        dirs.retain(|d| self.cx.filter.descend(d.as_bytes()));
        dirs.sort_unstable_by(|a, b| b.cmp(a));
        for batch in dirs.chunks(DELETE_BATCH) {
            let answers = self.cx.src.delete(batch.iter().map(|k| (k.clone(), None)).collect()).await;
            self.report().totals.dirs_deleted += answers.iter().filter(|a| a.is_ok()).count() as u64;
        }
    }
}

/// Where directories only show in the names of files there is none to remove, and asking would cost requests.
fn has_dirs(store: &Arc<dyn Store>) -> bool {
    store.caps().dirs || store.caps().keeps_empty_dirs
}
