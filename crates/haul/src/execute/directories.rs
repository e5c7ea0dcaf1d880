//! Directories: created as files need them, finished when the files are done. Those that are missing from the source are deleted,
//! deepest first; times and attributes come last, because writing into a directory changes its time.

use super::{
    attributes::Setter,
    deletions::Deleter,
    dir_work::{Dirs, DueDirectory},
    in_the_way::InTheWay,
    pending_deletes::DELETE_BATCH,
    results::Results,
};
use crate::{
    attributes::Attributes,
    cx::Cx,
    ledger::Ledger,
    namesakes::of_name,
    plan::{Comparison, Planner, SourceDirs, asks_each, is_one_device},
};
use futures::{StreamExt, future::join_all};
use haul_core::{
    Entry, ErrorKind, Key, Listed, Posix, Result, attributes,
    chmod::Chmod,
    compare::Reason,
    event::Event,
    filter::{Filter, MarkedDirs},
    job::{Job, Root, Verb},
    keep::Keep,
    plan::{Action, Step},
};
use haul_store::{AttributesItem, Store, WriteSpec};
use std::sync::Arc;

/// Permission bits of a directory that everybody may read and enter.
const SEEN_BY_ALL: u32 = 0o055;

/// Makes, deletes and finishes directories.
pub(crate) struct Directories {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    attributes: Arc<Attributes>,
    source_dirs: Arc<SourceDirs>,
    comparison: Arc<Comparison>,
    dirs: Arc<Dirs>,
    deleter: Arc<Deleter>,
    setter: Arc<Setter>,
    way: Arc<InTheWay>,
    results: Arc<Results>,
    /// Requests at once.
    at_once: usize,
}

impl Directories {
    /// None was made yet.
    pub(super) fn new(
        (job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>),
        (attributes, planner, dirs): (&Arc<Attributes>, &Planner, &Arc<Dirs>),
        (deleter, setter, way, results): (&Arc<Deleter>, &Arc<Setter>, &Arc<InTheWay>, &Arc<Results>),
        at_once: usize,
    ) -> Directories {
        Directories {
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            attributes: attributes.clone(),
            source_dirs: planner.directories.clone(),
            comparison: planner.comparison.clone(),
            dirs: dirs.clone(),
            deleter: deleter.clone(),
            setter: setter.clone(),
            way: way.clone(),
            results: results.clone(),
            at_once,
        }
    }

    /// Does, or remembers for the end, what was decided about a directory.
    pub async fn take(&self, step: Step) {
        match (step.action, step.src, step.dst) {
            (Action::Keep, Some(src), Some(dst)) => self.dirs.both(src, dst),
            // Something in it could not be examined.
            (Action::Keep, None, Some(dst)) if step.why == Reason::NotSeen => self.dirs.extra.spare(&dst.key),
            (Action::Keep, None, Some(dst)) => self.dirs.keep(dst),
            (Action::MakeDir, Some(src), _) if src.key.is_root() => self.dirs.root_is_new(),
            (Action::MakeDir, Some(src), _) => self.new_dir(src).await,
            (Action::Delete, _, Some(dst)) => self.dirs.extra.push(dst.key),
            _ => {}
        }
    }

    /// A directory that is missing from the destination is created when something is written into it. If something of another kind
    /// has its name and is to be replaced, that is deleted at once.
    async fn new_dir(&self, src: Entry) {
        if self.job.existing.other_kinds.are_replaced() {
            // Nothing can be in a directory that is new itself: a question for each would be a round trip, one after the other.
            if self.cx.dst.caps().dirs && !self.source_dirs.is_new(&src.key.parent()) {
                let others: Vec<Key> = of_name(&self.cx.dst, src.key.path()).collect();
                let there = join_all(others.iter().map(|other| self.cx.dst.stat(other))).await;
                // One after the other: both may name the same symlink.
                for (other, _) in others.iter().zip(there).filter(|(_, there)| there.is_ok()) {
                    if let Err(error) = self.way.clear_file(other).await {
                        self.way.close(src.key);
                        return self.ledger.error(error);
                    }
                }
            }
            self.close_at_once(&src).await;
        }
        self.way.note_link(&src.key).await;
        self.dirs.src_only(src);
    }

    /// Creates the destination's folder, so that listing it gives nothing rather than an error. A bucket is created by
    /// the first write.
    pub async fn prepare_root(&self) -> Result<()> {
        if !self.cx.dst.caps().dirs {
            return Ok(());
        }
        // Only if the source exists: a mistyped source must not leave an empty folder behind.
        if !self.cx.src.caps().dirs {
            self.see_prefix().await?;
        } else {
            let top = self.cx.src.stat(&Key::new("")).await?;
            if self.job.dirs.root == Root::Included && self.dirs.is_root_new() {
                self.close_at_once(&top).await;
            }
            if self.attributes.keep.is_some()
                && (self.job.dirs.root != Root::Excluded)
                && !self.source_dirs.keeps_own_attributes(&top.key)
            {
                // Remembered as it is now: a move changes its time.
                self.dirs.src_only(top);
            }
        }
        // Not where some new entries never get permissions of their own.
        let hides = !asks_each(&self.job, &self.cx.filter)
            && (self.job.dirs.root != Root::Excluded || !self.cx.filter.has_unlisted_parents());
        let keep = self.attributes.keep.clone().filter(|_| hides);
        if !(self.job.dirs.root != Root::Excluded) {
            // The root keeps the permissions it is created with; its entries get their own.
            self.cx.dst.make_dir(&Key::new(""), &WriteSpec::default()).await?;
        }
        self.cx.dst.make_dir(&Key::new(""), &WriteSpec { keep, ..WriteSpec::default() }).await
    }

    /// Checks that a source whose folders are only prefixes of keys has such keys, before a folder is created for them. Asks only
    /// where a folder would be created; any other problem is reported when the source is listed.
    async fn see_prefix(&self) -> Result<()> {
        let root = Key::new("");
        match self.cx.dst.stat(&root).await {
            Err(error) if error.is_missing() => {}
            _ => return Ok(()),
        }
        match self.cx.src.stat(&root).await {
            Err(error) if error.kind() == ErrorKind::DirNotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Where permissions aren't kept, new directories have the umask's permissions until the end. One that is less open at the source
    /// gets its own permissions before anything is written into it.
    async fn close_at_once(&self, src: &Entry) {
        let (Some(keep), Some(posix)) = (&self.attributes.keep, &src.posix) else { return };
        if keep.private() || !self.cx.dst.caps().dirs || self.source_dirs.keeps_own_attributes(&src.key) {
            return;
        }
        if attributes::changed(&keep.chmod, posix.mode, true) & SEEN_BY_ALL == SEEN_BY_ALL {
            return;
        }
        // Its owner must be able to write into it until the end.
        let own = Chmod { dirs: true, files: false, clear: 0, set: 0o700, exec_if_any: 0, copied: None };
        let chmod = keep.chmod.iter().copied().chain([own]).collect();
        let keep = Some(Arc::new(Keep { chmod, ..(**keep).clone() }));
        let item = AttributesItem { keep, new: true, ..self.attributes.item(src, &src.key, None) };
        // An error here comes back when something is written there, and is reported then.
        if self.cx.dst.make_dir(&src.key, &WriteSpec::default()).await.is_ok() {
            self.setter.set_attributes(vec![item]).await;
        }
    }

    /// Finishes directories: creates empty ones if asked, deletes those that are missing from the source, sets times, and deletes
    /// the source's empty ones after a move.
    pub async fn finish(&self, deletes: bool) {
        if self.cx.cancel.is_cancelled() || self.ledger.was_quit() {
            return;
        }
        self.make_empty_dirs().await;
        if deletes {
            self.delete_extra().await;
        }
        self.restore_dirs().await;
        match self.attributes.keep {
            Some(_) => self.set_dir_attributes().await,
            None => self.set_dir_times().await,
        }
        // A directory that could not be made at the destination is at the source alone.
        let all_came = self.ledger.report().error_count == 0;
        if self.job.verb == Verb::Move && self.job.dirs.delete_empty_sources && all_came {
            self.remove_empty_src_dirs().await;
        }
    }

    async fn make_empty_dirs(&self) {
        if !self.job.dirs.create_empty {
            return;
        }
        for key in self.dirs.missing() {
            if self.results.full.is_full() {
                return;
            }
            let way = self.way.replace_links(&key).await;
            let made = match way {
                Ok(_) => self.cx.dst.make_dir(&key, &WriteSpec::default()).await,
                Err(error) => Err(error),
            };
            match made {
                Ok(()) => {
                    self.ledger.report().totals.dirs_made += 1;
                    self.dirs.made(&key);
                    self.ledger.tell(Event::DirMade { key });
                }
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    drop(self.results.full.no_room(error.with_key(&key)))
                }
                Err(error) => self.ledger.error(error.with_key(&key)),
            }
        }
    }

    /// Deletes the directories that are missing from the source, if the job went well enough to trust it.
    pub async fn delete_extra(&self) {
        if !self.ledger.cut_short() && (self.ledger.report().error_count == 0 || self.job.deletes.ignore_errors) {
            self.remove_extra_dirs().await;
        }
    }

    /// Deepest first. A directory that still holds something (an excluded file, for example) stays, which isn't an error.
    async fn remove_extra_dirs(&self) {
        let mut extra = self.dirs.extra.take();
        if !self.cx.dst.caps().has_dirs() {
            return;
        }
        let mut left = self.ledger.may_still_delete(&self.job.deletes);
        self.deleter.keep_to(&mut left, &mut extra);
        for batch in extra.chunks(DELETE_BATCH) {
            if !self.deleter.may_still_delete().await {
                return;
            }
            let answers = remove(&self.cx.dst, batch).await;
            for (key, answer) in batch.iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        self.ledger.report().totals.dirs_deleted += 1;
                        self.dirs.written(key);
                        self.ledger.tell(Event::DirExtra { key: key.clone(), deleted: true, dry_run: false });
                    }
                    Err(e) if e.kind() == ErrorKind::Exists => {
                        self.ledger.tell(Event::DirExtra { key: key.clone(), deleted: false, dry_run: false });
                    }
                    Err(error) => self.ledger.error(error.with_key(key)),
                }
            }
        }
    }

    /// Writing into a directory changes its time, so times come last, deepest first.
    async fn set_dir_times(&self) {
        let caps = self.cx.dst.caps();
        if self.job.attributes.no_update_dir_mtime || !caps.set_dir_mtime {
            return;
        }
        let set =
            self.dirs.take_other_times(&self.comparison.rules()).into_iter().map(|(key, mtime, meta)| async move {
                let meta = self.job.attributes.of_metadata(meta.as_deref(), true);
                match self.cx.dst.set_meta(&key, Some(mtime), meta.as_ref()).await {
                    // Another program may have removed it meanwhile; nothing is lost by that.
                    Err(e) if e.kind() != ErrorKind::NotFound => self.ledger.error(e.with_key(&key)),
                    _ => {}
                }
            });
        futures::stream::iter(set).buffered(self.at_once).for_each(|()| std::future::ready(())).await;
    }

    /// Restores directories that keep their own attributes after files were written into them.
    async fn restore_dirs(&self) {
        for (key, mtime, mode) in self.dirs.take_changed_of_others() {
            let mode = mode.map(|mode| ("mode".to_string(), format!("{:o}", mode & 0o7777)));
            let meta = mode.into_iter().collect::<haul_core::Meta>();
            let mtime = mtime.filter(|_| !self.job.attributes.no_update_dir_mtime);
            match self.cx.dst.set_meta(&key, mtime, Some(&meta)).await {
                Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
                    self.ledger.error(e.with_key(&key))
                }
                _ => {}
            }
        }
    }

    /// Applies directory attributes as well as times, including those of the root. Deepest first, a level at a time: a directory
    /// may be closed to us once it has its own permissions.
    async fn set_dir_attributes(&self) {
        let top = Key::new("");
        if !self.dirs.is_root_due() {
            match self.cx.dst.stat(&top).await {
                Ok(dst) => self.dirs.found(&top, dst),
                Err(error) => self.ledger.error(error.with_key(&top)),
            }
        }
        let time = !self.job.attributes.no_update_dir_mtime;
        let differ = |src: Option<&Posix>, dst: Option<&Posix>| self.attributes.dir_differs(src, dst);
        for level in self.dirs.take_levels(&self.comparison.rules(), time, differ) {
            let item = |due: &DueDirectory| {
                let item = self.attributes.item(&Entry::dir(due.key.clone()), &due.key, due.mtime);
                AttributesItem { new: due.new, ..item }
            };
            let level: Vec<AttributesItem> = level.iter().map(item).collect();
            let batches = level.chunks(self.cx.copy_batch()).map(|batch| self.set_attributes_of_dirs(batch));
            futures::stream::iter(batches).buffered(self.at_once).for_each(|()| std::future::ready(())).await;
        }
    }

    async fn set_attributes_of_dirs(&self, dirs: &[AttributesItem]) {
        let answers = self.setter.set_attributes(dirs.to_vec()).await;
        for (dir, answer) in dirs.iter().zip(answers) {
            match answer {
                Ok(done) => self.ledger.count_unpreserved(done.unpreserved),
                // Another program may have removed it meanwhile; nothing is lost by that.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => self.ledger.error(error.with_key(&dir.to)),
            }
        }
    }

    async fn remove_empty_src_dirs(&self) {
        if !self.cx.src.caps().has_dirs() {
            return;
        }
        let (mut dirs, mut marked) = (Vec::<Key>::new(), MarkedDirs::default());
        let all = std::sync::Arc::new(Filter::default());
        let one_device = is_one_device(&self.job);
        // A mount point isn't removed either.
        let options = crate::ListOptions { dirs: true, one_device, omit_mounts: one_device, ..Default::default() };
        let mut listing = crate::list(&self.cx.src, &all, options);
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => {
                    entries.iter().for_each(|entry| marked.see(&self.cx.filter, entry));
                    dirs.extend(entries.into_iter().filter(Entry::is_dir).map(|e| e.key));
                }
                // Excluded entries stay, whether they can be listed or not.
                Listed::Failed { error, .. } if error.key().is_some_and(|key| self.is_left_out(key)) => {}
                Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => {}
                Listed::Failed { error, .. } => self.ledger.error(error),
                Listed::Vanished(_) | Listed::End => {}
            }
        }
        dirs.retain(|d| self.cx.filter.descend(d.as_bytes()) && !marked.holds(d.as_bytes()));
        dirs.sort_unstable_by(|a, b| b.cmp(a));
        for batch in dirs.chunks(DELETE_BATCH) {
            for (dir, answer) in batch.iter().zip(remove(&self.cx.src, batch).await) {
                match answer {
                    Ok(()) => self.ledger.report().totals.dirs_deleted += 1,
                    // A directory that isn't empty stays.
                    Err(error) if error.is_missing() || error.kind() == ErrorKind::Exists => {}
                    Err(error) => self.ledger.error(error.with_key(dir)),
                }
            }
        }
    }

    fn is_left_out(&self, dir: &Key) -> bool {
        dir.is_dir() && !self.cx.filter.descend(dir.as_bytes())
    }
}

/// Removes directories, each after its contents. One that isn't empty is tried again if something in it was deleted: that
/// answer may have come after its own, if it had to be requested twice.
async fn remove(store: &Arc<dyn Store>, dirs: &[Key]) -> Vec<Result<()>> {
    let delete = |dirs: &[&Key]| store.delete(dirs.iter().map(|dir| ((*dir).clone(), None)).collect());
    let mut answers = delete(&dirs.iter().collect::<Vec<_>>()).await;
    let is_full = |answer: &Result<()>| answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Exists);
    let lost_something = |at: usize| {
        let mut below = (0..at).rev().take_while(|other| dirs[*other].as_bytes().starts_with(dirs[at].as_bytes()));
        below.any(|other| answers[other].is_ok())
    };
    let again: Vec<usize> = (0..answers.len()).filter(|at| is_full(&answers[*at]) && lost_something(*at)).collect();
    if !again.is_empty() {
        let later = delete(&again.iter().map(|at| &dirs[*at]).collect::<Vec<_>>()).await;
        again.into_iter().zip(later).for_each(|(at, answer)| answers[at] = answer);
    }
    answers
}
