//! Replacing something of another kind: deletes it at the destination where a file is to be written, if the job allows it.

use super::deletions::Deleter;
use crate::{
    backup::Backup,
    cx::{Cx, cancelled},
    ledger::Ledger,
    namesakes::{lists_beside, of_name},
    plan::{Kinds, SourceDirs, no_way},
    transfer::{ArrivedFile, FileTransfer, Mover},
};
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Mtime, Result, Side, Version,
    event::Event,
    job::{Job, Lookup, Publish},
    plan,
};
use haul_store::CopyHow;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

/// Clears obstacles from the path of a file to be written.
pub(super) struct InTheWay {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    kinds: Arc<Kinds>,
    source_dirs: Arc<SourceDirs>,
    deleter: Arc<Deleter>,
    backup: Backup,
    /// Symlinks that are to make way.
    links: tokio::sync::Mutex<Links>,
    /// A task that clears a directory holds this, and with it the remaining deletions.
    clears: tokio::sync::Mutex<()>,
    /// Directories in whose place something else stays.
    closed: Mutex<Vec<Key>>,
}

/// Symlinks of the destination where the source has directories.
#[derive(Default)]
struct Links {
    /// By the directories' keys.
    known: BTreeSet<Key>,
    /// Directories that were checked, on the way to the last written file; the outermost first.
    asked: Vec<Key>,
}

impl InTheWay {
    /// Clears nothing yet; for files that `mover` transfers.
    pub fn new(
        (ledger, mover): (&Arc<Ledger>, &Mover),
        (kinds, source_dirs): (&Arc<Kinds>, &Arc<SourceDirs>),
        deleter: &Arc<Deleter>,
    ) -> InTheWay {
        InTheWay {
            job: mover.job.clone(),
            cx: mover.cx.clone(),
            backup: mover.backup.clone(),
            ledger: ledger.clone(),
            kinds: kinds.clone(),
            source_dirs: source_dirs.clone(),
            deleter: deleter.clone(),
            links: tokio::sync::Mutex::default(),
            clears: tokio::sync::Mutex::default(),
            closed: Mutex::default(),
        }
    }

    /// True if `error` says that an entry of another kind is in the way, and the job replaces it.
    pub fn may_clear(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Exists && self.job.existing.other_kinds.are_replaced()
    }

    /// Has the store transfer a file whose place an entry of another kind had.
    pub async fn in_place_of_another_kind(
        &self,
        mover: &Mover,
        order: &mut FileTransfer,
        how: CopyHow,
    ) -> Result<ArrivedFile> {
        self.clear_target(order).await?;
        let again = mover.copy_by_server(std::slice::from_mut(order), how).await.pop();
        again.unwrap_or_else(|| Err(cancelled()))
    }

    /// Deletes the directory at a file's name: an empty one, or one with its contents where the job deletes. Also deletes entries
    /// other than regular files before a file is written in place.
    ///
    /// Errors: deletion errors; `Exists` when it must stay.
    pub async fn clear_target(&self, order: &FileTransfer) -> Result<()> {
        let dir = Key::new([order.to.path(), b"/"].concat());
        // Not what a symlink leads to.
        if self.kinds.replaces_dirs() && self.cx.dst.stat(&dir).await.is_ok() {
            self.clear_dir(&dir).await?;
        }
        self.clear_other_kind(&order.to).await?;
        if self.job.write.publish == Publish::InPlace {
            for other in of_name(&self.cx.dst, order.to.path()) {
                if self.cx.dst.stat(&other).await.is_ok_and(|there| matches!(there.kind, Kind::Symlink | Kind::Special))
                {
                    self.clear_file(&other).await?;
                }
            }
        }
        let answers = self.cx.dst.delete(vec![(dir.clone(), None)]).await;
        answers.into_iter().collect::<Result<()>>().map_err(|error| match error.kind() {
            ErrorKind::Exists => no_way(&order.to),
            _ => error.with_key(&dir),
        })
    }

    /// Notes that something that stays has the place of a directory: nothing may be written below its name, as that may be a symlink.
    pub fn close(&self, dir: Key) {
        self.closed.lock().unwrap_or_else(|e| e.into_inner()).push(dir);
    }

    fn is_closed(&self, to: &Key) -> bool {
        let closed = self.closed.lock().unwrap_or_else(|e| e.into_inner());
        closed.iter().any(|dir| to.as_bytes().starts_with(dir.as_bytes()))
    }

    /// Notes a symlink of the destination at the name of a directory that only the source has, where that is to make way.
    pub async fn note_link(&self, dir: &Key) {
        if self.links_make_way() && !self.source_dirs.is_new(&dir.parent()) && self.is_link(dir).await {
            self.links.lock().await.known.insert(dir.clone());
        }
    }

    fn links_make_way(&self) -> bool {
        let caps = self.cx.dst.caps();
        self.job.links.replace_links && caps.symlinks && caps.dirs
    }

    /// True if a symlink has the place of a directory, or if that is unknown.
    async fn is_link(&self, dir: &Key) -> bool {
        match self.cx.dst.stat(&Key::symlink(dir.path())).await {
            Ok(entry) => entry.kind == Kind::Symlink,
            Err(error) => !error.is_missing(),
        }
    }

    /// Deletes the symlinks in the place of directories on the way to `to`, or of `to` itself, before a write there.
    /// True if there was one: the entry that the destination was seen to have there is behind the link.
    ///
    /// Errors: deletion errors; `Exists` where one must stay. Then nothing may be written there.
    pub async fn replace_links(&self, to: &Key) -> Result<bool> {
        if self.is_closed(to) {
            let message = "what the destination has in the place of its directory could not be removed";
            return Err(Error::new(ErrorKind::Exists, "write", message).with_key(to));
        }
        if !self.links_make_way() {
            return Ok(false);
        }
        let mut made = false;
        let mut way = self.links.lock().await;
        let above = |dir: &&Key| to.as_bytes().starts_with(dir.as_bytes());
        let listing = &self.job.listing;
        if !self.cx.src.caps().dirs || listing.no_traverse || listing.lookup == Lookup::Never {
            // They weren't reported, or not before their contents.
            way.asked.retain(|dir| above(&dir));
            let ends = to.as_bytes().iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
            let mut is_new = false;
            for dir in ends.map(|end| Key::new(&to.as_bytes()[..end])).skip(way.asked.len()) {
                // Not behind a link.
                if !is_new && self.is_link(&dir).await {
                    self.clear_link(&Key::symlink(dir.path())).await?;
                    (is_new, made) = (true, true);
                }
                way.asked.push(dir);
            }
        }
        let on_the_way: Vec<Key> = way.known.iter().filter(above).cloned().collect();
        for dir in on_the_way {
            self.clear_link(&Key::symlink(dir.path())).await?;
            way.known.remove(&dir);
            made = true;
        }
        Ok(made)
    }

    async fn clear_link(&self, link: &Key) -> Result<()> {
        let there = match self.cx.dst.stat(link).await {
            Ok(there) if there.kind == Kind::Symlink => there,
            Err(error) if !error.is_missing() => {
                return Err(error.with_key(link));
            }
            // It was deleted meanwhile.
            Ok(_) | Err(_) => return Ok(()),
        };
        let filter = self.cx.filter.for_destination();
        let stays = self.job.existing.immutable || self.job.existing.ignore;
        if stays || !filter.wants_name(&there) || !filter.may_delete(link, false) {
            let message = "a symbolic link that must stay has the place of its directory";
            return Err(Error::new(ErrorKind::Exists, "write", message).with_key(link));
        }
        self.clear_file(link).await
    }

    /// Deletes the entry with this name, unless it is a directory.
    ///
    /// Errors: deletion errors; in a move, when this job wrote it.
    pub async fn clear_file(&self, key: &Key) -> Result<()> {
        match self.cx.dst.stat(key).await {
            Ok(entry) if !entry.is_dir() => {
                self.check_older(&entry)?;
                self.deleter.check_may_delete().await.map_err(|e| e.with_key(key))?;
                if self.backup.keeps(&entry.key) && self.backup.keep(&self.cx, &entry).await? {
                    return Ok(());
                }
                let answers = self.cx.dst.delete(vec![(key.clone(), self.pin(&entry))]).await;
                answers.into_iter().collect::<Result<()>>().map_err(|e| e.with_key(key))
            }
            // If anything is there, writing to it will report it.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Deletes a file or symlink of this name where one of the other kind is to be written and must not replace anything, because
    /// its source will be deleted. A file that this job wrote stays: on a disk that takes two names for one, it is the only copy
    /// of another source.
    async fn clear_other_kind(&self, key: &Key) -> Result<()> {
        if !self.never_replaces_own() {
            return Ok(());
        }
        for other in of_name(&self.cx.dst, key.path()) {
            let Ok(there) = self.cx.dst.stat(&other).await else { continue };
            let older = other != *key && !there.is_dir() && !self.may_be_of_this_run(&there);
            if older || there.kind == Kind::Special {
                self.clear_file(&other).await?;
            }
        }
        Ok(())
    }

    /// Deletes what a directory holds, as far as the rules allow.
    ///
    /// Errors, before anything is deleted: something in it can't be listed (another file system, where those are left alone), or
    /// was written by this job: on a disk that takes two names for one, it belongs to another directory.
    async fn clear_dir(&self, dir: &Key) -> Result<()> {
        let gone = self.kinds.held_by(dir).await?;
        gone.iter().try_for_each(|entry| self.check_older(entry))?;
        // The time alone could also come from deleting another name of the file.
        if let Some(own) = gone.iter().find(|entry| self.is_of_this_run(entry))
            // The destination may list the directory under another name that it takes for the same.
            && !lists_beside(&self.cx.dst, dir, |entry| entry.key == *dir).await
        {
            return Err(two_for_one(&own.key));
        }
        // Deletions for one directory count before the next is checked.
        let _alone = self.clears.lock().await;
        self.ledger.check_may_delete(&self.job.deletes, dir, gone.len() as u64)?;
        // A directory's contents come after it.
        for entry in gone.into_iter().rev() {
            self.deleter.check_may_delete().await.map_err(|e| e.with_key(&entry.key))?;
            let kept = self.backup.keeps(&entry.key) && !entry.is_dir();
            if kept && self.backup.keep(&self.cx, &entry).await? {
                self.report_deleted(entry);
                continue;
            }
            for answer in self.cx.dst.delete(vec![(entry.key.clone(), self.pin(&entry))]).await {
                match answer {
                    Err(error) if error.kind() != ErrorKind::Exists => return Err(error.with_key(&entry.key)),
                    Ok(()) => self.report_deleted(entry.clone()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// True if two names may be the same place at the destination, so that a file written under one must not be deleted for the
    /// other: in a move, and where symlinks of the destination stay.
    fn never_replaces_own(&self) -> bool {
        self.job.existing.began.is_some() && (self.job.moves() || self.job.links.keep_dirlinks)
    }

    /// Where [`Self::never_replaces_own`] holds: true for a file that this run may have written. In a move it may be the only copy
    /// of another source.
    pub fn may_be_of_this_run(&self, there: &Entry) -> bool {
        self.never_replaces_own() && (self.is_untold(there) || self.is_of_this_run(there))
    }

    /// True for a file of which the destination doesn't tell when it was changed.
    fn is_untold(&self, there: &Entry) -> bool {
        there.changed.is_none() && !there.is_dir() && self.began().is_some()
    }

    /// True for a file that this run wrote or changed, by its change time.
    fn is_of_this_run(&self, there: &Entry) -> bool {
        let began = self.began().zip(there.changed);
        began.is_some_and(|(began, changed)| !there.is_dir() && changed >= began)
    }

    fn began(&self) -> Option<Mtime> {
        self.job.existing.began
    }

    /// Errors: `Exists`, for a file that [`Self::may_be_of_this_run`].
    pub fn check_older(&self, there: &Entry) -> Result<()> {
        match self.may_be_of_this_run(there) {
            true if self.is_untold(there) => {
                let message = "what is there is of another kind and may be a file that this run wrote, since the destination tells no \
                               change times: remove it there, then run this again";
                Err(Error::new(ErrorKind::Exists, "write", message).with_key(&there.key))
            }
            true => Err(two_for_one(&there.key)),
            false => Ok(()),
        }
    }

    /// The version that deleting must find, where another transfer of the same move may be faster.
    pub fn pin(&self, there: &Entry) -> Option<Version> {
        there.version.clone().filter(|_| self.job.moves())
    }

    /// Counts and reports what was replaced as deleted.
    fn report_deleted(&self, entry: Entry) {
        let (key, size, is_dir) = (entry.key.clone(), entry.size, entry.is_dir());
        if is_dir {
            self.ledger.report().totals.dirs_deleted += 1;
            return self.ledger.tell(Event::DirExtra { key, deleted: true, dry_run: false });
        }
        self.ledger.report().totals.deletes += 1;
        self.ledger.decided(&plan::extra(entry, true));
        self.ledger.tell(Event::Deleted { side: Side::Dst, key, size });
    }
}

fn two_for_one(key: &Key) -> Error {
    let message = "the destination takes this name for the name of another file that was copied in this run";
    Error::new(ErrorKind::Exists, "write", message).with_key(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, disk, executor, file, has, job, put};
    use haul_core::job::{BeyondMax, OtherKinds, Verb};

    fn way(sample: &Sample) -> Arc<InTheWay> {
        executor(sample).way.clone()
    }

    fn order(sample: &Sample, key: &str) -> FileTransfer {
        FileTransfer::new(sample.ledger.next_step(), file(key), Key::new(key), None)
    }

    #[tokio::test]
    async fn nothing_is_written_below_the_name_of_something_that_stays() {
        let way = way(&Sample::of(job(Verb::Copy, |_| {})));
        way.close(Key::new("a/"));
        let replace = async |key: &str| way.replace_links(&Key::new(key)).await.map_err(|error| error.kind());
        assert_eq!(replace("a/b/c").await, Err(ErrorKind::Exists));
        assert_eq!((replace("a-b").await, replace("a").await), (Ok(false), Ok(false)));
    }

    #[test]
    fn what_this_run_may_have_written_is_not_replaced_where_two_names_may_be_one_place() {
        let outcome_of = |verb, dirlinks, changed: Option<i128>| {
            let job = job(verb, |job| (job.existing.began, job.links.keep_dirlinks) = (Some(Mtime(10)), dirlinks));
            let there = Entry { changed: changed.map(Mtime), ..file("a") };
            way(&Sample::of(job)).check_older(&there).is_err()
        };
        for (verb, dirlinks) in [(Verb::Move, false), (Verb::Copy, true)] {
            assert!(outcome_of(verb, dirlinks, Some(10)) && !outcome_of(verb, dirlinks, Some(9)));
            assert!(outcome_of(verb, dirlinks, None), "nobody knows");
        }
        assert!(!outcome_of(Verb::Copy, false, Some(10)) && !outcome_of(Verb::Copy, false, None));
    }

    #[test]
    fn only_a_move_deletes_exactly_what_it_saw() {
        let there = Entry { version: Some(Version::new("1")), ..file("a") };
        let pin = |verb| way(&Sample::of(job(verb, |_| {}))).pin(&there);
        assert_eq!((pin(Verb::Move), pin(Verb::Copy)), (there.version.clone(), None));
    }

    #[tokio::test]
    async fn a_directory_makes_way_with_its_contents_only_if_the_job_deletes() {
        for (verb, other_kinds, goes) in [
            (Verb::Sync, OtherKinds::Replace, true),
            (Verb::Copy, OtherKinds::ReplaceWhole, true),
            (Verb::Copy, OtherKinds::Replace, false),
        ] {
            let dst = disk();
            for key in ["a/b", "a/c/d", "a-b"] {
                put(&dst, key).await;
            }
            let sample = Sample::new(job(verb, |job| job.existing.other_kinds = other_kinds), disk(), dst);
            let cleared = way(&sample).clear_target(&order(&sample, "a")).await;
            assert_eq!(cleared.err().map(|error| error.kind()), (!goes).then_some(ErrorKind::Exists));
            assert_eq!((has(&sample.cx.dst, "a/c/d").await, has(&sample.cx.dst, "a/").await), (!goes, !goes));
            assert!(has(&sample.cx.dst, "a-b").await);
            let totals = sample.totals();
            assert_eq!((totals.deletes, totals.dirs_deleted), if goes { (2, 1) } else { (0, 0) });
        }
    }

    #[tokio::test]
    async fn a_directory_stays_whole_where_a_limit_forbids_to_delete_all_of_it() {
        let dst = disk();
        for key in ["a/b", "a/c"] {
            put(&dst, key).await;
        }
        let limited = job(Verb::Sync, |job| (job.deletes.max, job.deletes.beyond_max) = (Some(1), BeyondMax::KeepRest));
        let sample = Sample::new(limited, disk(), dst);
        assert!(way(&sample).clear_target(&order(&sample, "a")).await.is_err());
        assert!(has(&sample.cx.dst, "a/b").await && has(&sample.cx.dst, "a/c").await);
    }
}
