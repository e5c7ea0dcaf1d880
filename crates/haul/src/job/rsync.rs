//! What a job does otherwise under rsync's habits: tells of directories, keeps what rules protect, takes the root along,
//! and makes way for what is of another kind.

use super::{Orders, Pass, Run};
use crate::transfer::Order;
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Listed, Mtime, Result, Side, Version, attributes,
    compare::{Difference, Reason},
    event::{Event, LeftOut},
    plan::{self, Action, Step},
    policy::{Chmod, Keep, Mode},
};
use haul_store::{CopyHow, CopyItem, ListRequest, Store, WriteSpec};
use std::sync::Arc;

/// What all may do with a directory that anybody may look into.
const SEEN_BY_ALL: u32 = 0o055;

impl Run {
    /// What differs between a source and what a destination has of its name: of attributes, what would be set.
    pub fn difference(&self, src: &Entry, dst: Option<&Entry>) -> Difference {
        let differs = Difference::between(src, dst, &self.rules);
        let there = dst.filter(|_| !differs.new).and_then(|dst| dst.posix.as_deref());
        let (Some(keep), Some(from), Some(there)) = (&self.attributes.keep, src.posix.as_deref(), there) else {
            return differs;
        };
        let (found, _) = attributes::differs(from, there, keep, &self.attributes.rights);
        Difference { perms: found.mode, owner: found.owner, group: found.group, ..differs }
    }

    /// A directory of the source, and what the destination has of it.
    pub(super) async fn dir_seen(&self, src: &Entry, dst: Option<&Entry>) {
        if self.policy.rsync.is_none() {
            return;
        }
        if dst.is_some() {
            self.note_stage(&src.key).await;
        }
        let mut differs = self.difference(src, dst);
        let mut elsewhere = false;
        if differs.new
            && let Some(found) = self.dir_elsewhere(&src.key).await
        {
            (differs, elsewhere) = (self.difference(src, Some(&found)), true);
        }
        self.cx.sink.emit(&Event::DirSeen { key: src.key.clone(), differs, elsewhere });
    }

    async fn dir_elsewhere(&self, key: &Key) -> Option<Entry> {
        for store in self.cx.compare_dest.iter().chain(&self.cx.copy_dest) {
            if let Ok(found) = store.stat(key).await {
                return Some(found);
            }
        }
        None
    }

    /// A directory that only the source has: it is made, unless nothing new may be; what is there in its place goes.
    pub(super) async fn new_dir(&self, src: Entry) {
        if self.policy.rsync.is_none() {
            // Where keys are asked for one by one, directories weren't.
            return match self.asks_each() {
                true => match self.cx.dst.stat(&src.key).await {
                    Ok(dst) => self.dirs.both(src, dst),
                    Err(_) => self.dirs.src_only(src),
                },
                false => self.dirs.src_only(src),
            };
        }
        if self.policy.existing_only && !self.other_kind_there(&src.key).await {
            return self.left_out(&src, LeftOut::New);
        }
        if self.policy.dry_run && self.is_anothers(&src.key) {
            return;
        }
        if self.keeps_dirlink(&src.key).await {
            return;
        }
        if self.policy.ignore_existing && self.other_kind_there(&src.key).await {
            return self.close(&src.key);
        }
        self.dir_seen(&src, None).await;
        if !self.policy.dry_run && self.cx.dst.caps().dirs {
            for other in of_name(&self.cx.dst, src.key.path()) {
                if let Err(error) = self.clear_file(&other).await {
                    return self.error(error);
                }
            }
        }
        self.close_at_once(&src).await;
        self.dirs.src_only(src);
    }

    /// Where permissions aren't kept, directories are as open as the umask has it until the end. One that is less open at the source
    /// is made with its own permissions before anything comes into it.
    pub(super) async fn close_at_once(&self, src: &Entry) {
        let (Some(keep), Some(posix)) = (&self.attributes.keep, &src.posix) else { return };
        if keep.private() || self.policy.dry_run || !self.cx.dst.caps().dirs || self.is_anothers(&src.key) {
            return;
        }
        if attributes::changed(&keep.chmod, posix.mode, true) & SEEN_BY_ALL == SEEN_BY_ALL {
            return;
        }
        // Until the end it must let its owner in.
        let own = Chmod { dirs: true, files: false, clear: 0, set: 0o700, exec_if_any: 0, copied: None };
        let chmod = keep.chmod.iter().copied().chain([own]).collect();
        let item = self.attribute_item(src, &src.key, None, true);
        let spec = WriteSpec { keep: Some(Arc::new(Keep { chmod, ..(**keep).clone() })), ..item.spec };
        let item = CopyItem { spec, how: CopyHow::Attributes { set: true, new: true }, ..item };
        // What fails here fails again when something is written there, and is told then.
        if self.cx.dst.make_dir(&src.key, &WriteSpec::default()).await.is_ok() {
            self.ask_attributes(vec![item]).await;
        }
    }

    /// Removes what has this name, unless it is a directory.
    ///
    /// Errors: those of deleting; in a move, that this job brought it.
    async fn clear_file(&self, key: &Key) -> Result<()> {
        match self.cx.dst.stat(key).await {
            Ok(entry) if !entry.is_dir() => {
                self.check_older(&entry)?;
                if self.backup().keeps(&entry.key) {
                    return self.backup().keep(&self.cx, &entry).await;
                }
                let answers = self.cx.dst.delete(vec![(key.clone(), self.pin(&entry))]).await;
                answers.into_iter().collect::<Result<()>>().map_err(|e| e.with_key(key))
            }
            // What is there, if anything is, will say so itself when it is written to.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// True when it counts whether the destination has something of another kind under a name that it lacks.
    pub(super) fn asks_of_other_kinds(&self) -> bool {
        let policy = &self.policy;
        policy.rsync.is_some() && (policy.existing_only || policy.ignore_existing) && self.cx.dst.caps().dirs
    }

    /// A file that the destination lacks as such: it may have something else of that name.
    pub(super) async fn missing_of_its_kind(&self, src: Entry, orders: &Orders) {
        let there = self.asks_of_other_kinds() && self.other_kind_there(&src.key).await;
        let (action, why) = match there {
            true if self.policy.ignore_existing => (Action::Keep, Reason::Existing),
            true => (Action::Copy, Reason::Kind),
            false if self.policy.existing_only => (Action::Keep, Reason::NotExisting),
            false => (Action::Copy, Reason::Missing),
        };
        if action == Action::Copy
            && let Some(error) = self.in_the_way(&src, &src.key).await
        {
            return self.error(error);
        }
        if action == Action::Copy
            && self.policy.dry_run
            && self.replaces_dirs()
            && let Err(error) = self.tell_gone_before(&src.key).await
        {
            return self.error(error);
        }
        self.act(Step { action, src: Some(src), dst: None, why }, orders).await;
    }

    /// What leaves a source alone whatever it is.
    pub(super) async fn left_alone(&self, src: &Entry) -> Option<Reason> {
        if !self.asks_of_other_kinds() {
            return None;
        }
        match self.any_kind_there(&src.key).await {
            true => self.policy.ignore_existing.then_some(Reason::Existing),
            false => self.policy.existing_only.then_some(Reason::NotExisting),
        }
    }

    /// True when a directory makes way for a file with all that it holds.
    fn replaces_dirs(&self) -> bool {
        self.mode == Mode::Sync || self.policy.rsync.as_ref().is_some_and(|habits| habits.force)
    }

    /// True when the destination may have a directory of the name of a file that it lacks. None is in a directory that is new
    /// itself.
    pub(super) fn may_be_in_the_way(&self, key: &Key) -> bool {
        // With all that it holds it goes when the file comes; only a dry run has to tell of it before.
        let tells = self.mode != Mode::Sync || self.policy.max_delete.is_some();
        let counts = !self.replaces_dirs() || self.policy.dry_run && tells;
        self.policy.rsync.is_some() && counts && self.cx.dst.caps().dirs && !self.dirs.is_new(&key.parent())
    }

    /// Why a file can't come to `key`: a directory of its name is at the destination, holds something, and isn't to go with
    /// that. Which is told, so that a dry run tells it too.
    pub(super) async fn in_the_way(&self, src: &Entry, key: &Key) -> Option<Error> {
        let dir = Key::new([key.path(), b"/"].concat());
        // Not what a symlink leads to.
        if self.replaces_dirs() || !self.cx.dst.caps().dirs || self.cx.dst.stat(&dir).await.is_err() {
            return None;
        }
        let request = ListRequest { limit: Some(1), ..ListRequest::dir(dir.as_bytes()) };
        let mut listing = self.cx.dst.list(request);
        while let Some(step) = listing.next().await {
            if matches!(&step, Listed::Batch(entries) if !entries.is_empty()) {
                self.left_out(src, LeftOut::InTheWay);
                return Some(no_way(key));
            }
        }
        None
    }

    /// Tells, in a dry run, what goes with the directory that makes way for a file.
    ///
    /// Errors: those for which it can't go.
    async fn tell_gone_before(&self, key: &Key) -> Result<()> {
        let dir = Key::new([key.path(), b"/"].concat());
        if self.cx.dst.stat(&dir).await.is_err() {
            return Ok(());
        }
        let gone = self.held_by(&dir).await?;
        self.check_may_delete(&dir, gone.len() as u64)?;
        if self.mode == Mode::Sync {
            // The listing of the destination tells it.
            return Ok(());
        }
        gone.into_iter().rev().for_each(|entry| match entry.is_dir() {
            true => self.cx.sink.emit(&Event::DirExtra { key: entry.key, deleted: true, dry_run: true }),
            false => self.decided(&plan::extra(entry, true)),
        });
        Ok(())
    }

    /// True when the destination has anything under this name.
    async fn any_kind_there(&self, key: &Key) -> bool {
        let plain = Key::new(key.path());
        self.cx.dst.stat(&plain).await.is_ok_and(|entry| !entry.is_dir()) || self.other_kind_there(&plain).await
    }

    /// True when the destination has something else under this name.
    pub async fn other_kind_there(&self, key: &Key) -> bool {
        for other in of_any_kind(&self.cx.dst, key.path()) {
            if other != *key && self.cx.dst.stat(&other).await.is_ok_and(|e| e.is_dir() == other.is_dir()) {
                return true;
            }
        }
        false
    }

    /// What only the destination has, but the source shows under the same name as something of another kind: it is not
    /// deleted but replaced.
    pub(super) async fn is_replaced(&self, dst: &Entry) -> bool {
        self.in_its_place(dst).await.is_some()
    }

    /// What the source shows in the place of this: what is to be copied, if anything is.
    async fn in_its_place(&self, dst: &Entry) -> Option<Entry> {
        if self.policy.rsync.is_none() || !self.cx.src.caps().files {
            return None;
        }
        let mut found = None;
        for other in of_any_kind(&self.cx.src, dst.key.path()) {
            if other == dst.key {
                continue;
            }
            let Ok(entry) = self.cx.src.stat(&other).await else { continue };
            let entry = Entry { key: other, ..entry };
            if entry.key.is_dir() == entry.is_dir() && self.cx.filter.wants_name(&entry) {
                if self.can_be_copied(&entry) {
                    return Some(entry);
                }
                found = Some(entry);
            }
        }
        found
    }

    /// A directory that the source provably lacks.
    pub(super) async fn extra_dir(&self, dst: Entry, src_files: u64) {
        if self.cx.filter.others_show(&dst.key) {
            self.dirs.keep(dst);
        } else if self.may_lose(&dst) {
            let name = Key::new(dst.key.path());
            let other = self.in_its_place(&dst).await;
            if other.is_some() || self.cx.filter.others_show(&name) {
                // What it holds goes when its place is taken, which may never be; a dry run tells where it would, unless another job
                // takes the place and tells.
                let tells = self.policy.dry_run && !self.deletes_only();
                if !tells || other.is_some_and(|other| !self.can_be_copied(&other)) {
                    *self.kept_below.lock().unwrap_or_else(|e| e.into_inner()) = Some(dst.key);
                }
            } else if self.extra_below(&dst, src_files).await {
                self.dirs.extra(dst);
            }
        }
    }

    /// Where only the top level is compared, what a directory that goes holds isn't listed: all of it goes too, but for other
    /// file systems where they are left alone, and the directories above them. False when `dir` itself can't go for that.
    pub(super) async fn extra_below(&self, dir: &Entry, src_files: u64) -> bool {
        if self.policy.rsync.is_none() || self.policy.max_depth.is_none() || self.mode != Mode::Sync {
            return true;
        }
        let filter = Arc::new(self.cx.filter.for_destination());
        let request = ListRequest {
            prefix: dir.key.as_bytes().to_vec(),
            descend: Some(Arc::new(move |dir| filter.descend(dir))),
            one_device: self.one_device(),
            ..ListRequest::all()
        };
        let mut listing = self.cx.dst.list(request);
        let mut goes = true;
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => {
                    for entry in entries {
                        match entry.is_dir() {
                            true if self.may_lose(&entry) => self.dirs.extra(entry),
                            true => {}
                            false => self.extra(entry, src_files).await,
                        }
                    }
                }
                Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => {
                    goes = false;
                    error.key().into_iter().for_each(|mount| self.dirs.spare(mount));
                }
                Listed::Failed { error, .. } => self.error(error),
                Listed::End => {}
            }
        }
        goes
    }

    /// True when neither side is listed beyond its own file system.
    pub(super) fn one_device(&self) -> bool {
        self.policy.rsync.as_ref().is_some_and(|habits| habits.one_device)
    }

    /// True for a link that may have to be left out for where it leads.
    pub(super) fn looks_at_link(&self, src: &Entry) -> bool {
        src.is_symlink() && self.policy.rsync.as_ref().is_some_and(|habits| habits.safe_links.is_some())
    }

    /// May the destination lose this, as far as rules say? Remembers directories that it may not, with what they hold.
    pub(super) fn may_lose(&self, dst: &Entry) -> bool {
        if self.policy.rsync.is_none() {
            return true;
        }
        if self.cx.filter.others_show(&dst.key) {
            return false;
        }
        let mut kept = self.kept_below.lock().unwrap_or_else(|e| e.into_inner());
        if kept.as_ref().is_some_and(|dir| dst.key.as_bytes().starts_with(dir.as_bytes())) {
            return false;
        }
        let dying = self.dirs.is_extra(&dst.key.parent());
        let may = self.cx.filter.may_delete(&dst.key, dying);
        if !may && dst.is_dir() {
            *kept = Some(dst.key.clone());
        }
        may
    }

    /// True when the job's root itself is part of it: with rsync's habits it may be what its arguments name alone.
    pub(super) fn takes_top(&self) -> bool {
        self.policy.rsync.as_ref().is_none_or(|habits| habits.top_dir)
    }

    /// True for a directory of the source that has nothing to do with what the destination's looks like.
    pub(super) fn is_anothers(&self, dir: &Key) -> bool {
        self.deletes_only() || self.cx.filter.is_anothers(dir)
    }

    /// Only deletions are asked for.
    pub(super) fn deletes_only(&self) -> bool {
        self.policy.rsync.as_ref().is_some_and(|habits| habits.deletes_only)
    }

    /// A job that only deletes.
    pub(super) async fn delete_alone(self: Arc<Self>) {
        // Where nothing is nothing goes.
        if self.cx.dst.stat(&Key::new("")).await.is_err_and(|error| error.kind() == ErrorKind::DirNotFound) {
            return;
        }
        self.clone().pass(Pass::DeletesOnly).await;
        self.delete_doomed().await;
        self.finish_dirs(true).await;
    }

    /// Takes the job's root along, where it is part of the transfer.
    pub(super) async fn see_top_dir(&self) {
        let root = Key::new("");
        if self.policy.rsync.is_some() && self.is_anothers(&root) {
            // One that isn't there yet has nothing to keep.
            if let Ok(dst) = self.cx.dst.stat(&root).await {
                self.dirs.keep(dst);
            }
            return;
        }
        if !self.policy.rsync.as_ref().is_some_and(|habits| habits.top_dir) {
            return;
        }
        // A source that isn't there is told when it is listed.
        if let Ok(src) = self.cx.src.stat(&root).await {
            let dst = self.cx.dst.stat(&root).await.ok();
            if dst.is_none() {
                self.dirs.root_is_new();
            }
            self.dir_seen(&src, dst.as_ref()).await;
            // What is written into it changes its time, so it is set in any case.
            let there = Entry { mtime: None, ..src.clone() };
            self.dirs.both(src, there);
        }
    }

    /// Makes way for a file where a directory is: it goes when it is empty, or with all that is in it where deleting is
    /// asked for. What isn't a regular file makes way for one that is written in place.
    ///
    /// Errors: those of deleting, or that it is not to be.
    pub(super) async fn make_way(&self, order: &Order) -> Result<()> {
        let dir = Key::new([order.to.path(), b"/"].concat());
        // Not what a symlink leads to.
        if self.replaces_dirs() && self.cx.dst.stat(&dir).await.is_ok() {
            self.clear_dir(&dir).await?;
        }
        self.clear_other_kind(&order.to).await?;
        if self.policy.inplace {
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

    /// True where two names may be one place at the destination, and what came under one must not go for the other: in a move,
    /// and where symlinks of the destination stay.
    fn never_replaces_own(&self) -> bool {
        self.policy.rsync.as_ref().is_some_and(|habits| self.moves() || habits.keep_dirlinks)
    }

    /// Where that counts: true for what may have come in this run. In a move it may be the only copy of another source, which is
    /// gone.
    pub(super) fn came_in_this_run(&self, there: &Entry) -> bool {
        let untold = there.changed.is_none() && !there.is_dir() && self.began().is_some();
        self.never_replaces_own() && (untold || self.is_of_this_run(there))
    }

    /// True for what this run wrote or changed, as its time says.
    fn is_of_this_run(&self, there: &Entry) -> bool {
        let began = self.began().zip(there.changed);
        began.is_some_and(|(began, changed)| !there.is_dir() && changed >= began)
    }

    fn began(&self) -> Option<Mtime> {
        self.policy.rsync.as_ref().and_then(|habits| habits.began)
    }

    /// Errors: `Exists`, where that counts, for what may have come in this run.
    pub(super) fn check_older(&self, there: &Entry) -> Result<()> {
        if self.came_in_this_run(there) { Err(two_for_one(&there.key)) } else { Ok(()) }
    }

    /// Where symlinks of the destination stay, so that two names of the source may be one place there.
    ///
    /// Errors: `Exists`, for what may have come in this run.
    pub(super) fn check_not_behind_link(&self, there: &Entry) -> Result<()> {
        let habits = self.policy.rsync.as_ref().filter(|habits| habits.keep_dirlinks);
        let began = habits.and_then(|habits| habits.began);
        if began.is_none_or(|began| there.changed.is_none_or(|changed| changed < began)) {
            return Ok(());
        }
        let message =
            "this name leads, through a symbolic link of the destination, to a file that was copied in this run";
        Err(Error::new(ErrorKind::Exists, "write", message).with_key(&there.key))
    }

    /// What deleting is to find, where another transfer of the same move may come first.
    pub(super) fn pin(&self, there: &Entry) -> Option<Version> {
        there.version.clone().filter(|_| self.moves())
    }

    /// Removes a file or link of this name where the one that is to come is of the other kind and must not replace anything,
    /// since its source goes. What this job has brought stays: on a disk that takes two names for one it is another's only copy.
    async fn clear_other_kind(&self, key: &Key) -> Result<()> {
        if !self.never_replaces_own() {
            return Ok(());
        }
        for other in of_name(&self.cx.dst, key.path()) {
            let Ok(there) = self.cx.dst.stat(&other).await else { continue };
            let older = other != *key && !there.is_dir() && !self.came_in_this_run(&there);
            if older || there.kind == Kind::Special {
                self.clear_file(&other).await?;
            }
        }
        Ok(())
    }

    /// Errors: `Limit`, when a directory holds more than `--max-delete` still allows; what it holds is then counted as left.
    fn check_may_delete(&self, dir: &Key, count: u64) -> Result<()> {
        if self.may_still_delete().is_none_or(|left| count <= left) {
            return Ok(());
        }
        self.report().totals.not_deleted += count;
        let message =
            "could not make way for it: --max-delete doesn't allow to delete what the directory of that name holds";
        Err(Error::new(ErrorKind::Limit, "write", message).with_key(dir))
    }

    /// What makes way is counted and told as deleted.
    fn told_gone(&self, entry: Entry) {
        let (key, size, is_dir) = (entry.key.clone(), entry.size, entry.is_dir());
        if is_dir {
            self.report().totals.dirs_deleted += 1;
            return self.cx.sink.emit(&Event::DirExtra { key, deleted: true, dry_run: false });
        }
        self.report().totals.deletes += 1;
        self.decided(&plan::extra(entry, true));
        self.cx.sink.emit(&Event::Deleted { side: Side::Dst, key, size });
    }

    /// What a directory holds and may lose with its place.
    ///
    /// Errors: what can't be listed, so another file system in it where those are left alone.
    async fn held_by(&self, dir: &Key) -> Result<Vec<Entry>> {
        let filter = Arc::new(self.cx.filter.for_destination());
        let descend = filter.clone();
        let request = ListRequest {
            prefix: dir.as_bytes().to_vec(),
            descend: Some(Arc::new(move |dir| descend.descend(dir))),
            one_device: self.one_device(),
            // To tell what each is.
            posix: true,
            ..ListRequest::all()
        };
        let mut listing = self.cx.dst.list(request);
        let (mut gone, mut kept) = (Vec::new(), None::<Key>);
        // A directory that is kept keeps what it holds.
        let mut may_go = |entry: &Entry| {
            if kept.as_ref().is_some_and(|dir| entry.key.as_bytes().starts_with(dir.as_bytes())) {
                return false;
            }
            let may = filter.may_delete(&entry.key, true);
            if !may && entry.is_dir() {
                kept = Some(entry.key.clone());
            }
            may
        };
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => gone.extend(entries.into_iter().filter(&mut may_go)),
                Listed::Failed { error, .. } => return Err(error),
                Listed::End => {}
            }
        }
        Ok(gone)
    }

    /// True when the destination shows a directory under this very name, not only under one that it takes for the same.
    async fn is_called_so(&self, dir: &Key) -> bool {
        let mut listing = self.cx.dst.list(ListRequest::dir(dir.parent().as_bytes()));
        while let Some(step) = listing.next().await {
            if matches!(&step, Listed::Batch(entries) if entries.iter().any(|entry| entry.key == *dir)) {
                return true;
            }
        }
        false
    }

    /// Removes what a directory holds, as far as rules let it.
    ///
    /// Errors: before anything is deleted, what can't be listed, so another file system in it where those are left alone; that
    /// this job brought something of it: on a disk that takes two names for one it is another directory's.
    async fn clear_dir(&self, dir: &Key) -> Result<()> {
        let gone = self.held_by(dir).await?;
        gone.iter().try_for_each(|entry| self.check_older(entry))?;
        // The time alone could be that of a file that lost another of its names.
        if let Some(own) = gone.iter().find(|entry| self.is_of_this_run(entry))
            && !self.is_called_so(dir).await
        {
            return Err(two_for_one(&own.key));
        }
        self.check_may_delete(dir, gone.len() as u64)?;
        // What a directory holds comes after it.
        for entry in gone.into_iter().rev() {
            if self.backup().keeps(&entry.key) && !entry.is_dir() {
                self.backup().keep(&self.cx, &entry).await?;
                continue;
            }
            for answer in self.cx.dst.delete(vec![(entry.key.clone(), self.pin(&entry))]).await {
                match answer {
                    Err(error) if error.kind() != ErrorKind::Exists => return Err(error.with_key(&entry.key)),
                    Ok(()) => self.told_gone(entry.clone()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn two_for_one(key: &Key) -> Error {
    let message = "the destination takes this name for the name of another file that was copied in this run";
    Error::new(ErrorKind::Exists, "write", message).with_key(key)
}

fn no_way(key: &Key) -> Error {
    let message = "could not make way for it: a directory of that name is there and holds something";
    Error::new(ErrorKind::Exists, "write", message).with_key(key)
}

/// The same, and the directory's.
pub(super) fn of_any_kind(store: &Arc<dyn Store>, name: &[u8]) -> impl Iterator<Item = Key> {
    of_name(store, name).chain([Key::new([name, b"/"].concat())])
}

/// The keys by which a store knows what is called so and is no directory: of a file or the like, and of a symlink.
pub(super) fn of_name(store: &Arc<dyn Store>, name: &[u8]) -> impl Iterator<Item = Key> {
    let link = store.caps().symlinks.then(|| Key::symlink(name));
    std::iter::once(Key::new(name)).chain(link)
}
