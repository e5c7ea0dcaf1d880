//! Things of another kind under a key's name at the destination: a directory where a file is to be written, a file where the
//! source has a symlink. Finds them, and decides whether they may be replaced.

use super::{Outlet, Planner};
use crate::namesakes::{has_other_kind, of_any_kind};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key, Listed, Result,
    compare::Reason,
    event::{Event, LeftOut},
    job::{OtherKinds, Verb},
    plan::{self, Action, Step},
};
use haul_store::ListRequest;
use std::sync::Arc;

impl Planner {
    /// True when it matters whether the destination has something of another kind under a missing name.
    pub(super) fn asks_of_other_kinds(&self) -> bool {
        let job = &self.job;
        job.existing.other_kinds.are_replaced() && (job.existing.only || job.existing.ignore) && self.cx.dst.caps().dirs
    }

    /// Decides about a file that is missing from the destination, which may have something else of that name.
    pub(super) async fn missing_of_its_kind(&self, src: Entry, out: &impl Outlet) {
        let there = self.asks_of_other_kinds() && self.other_kind_there(&src.key).await;
        let (action, why) = match there {
            true if self.job.existing.ignore => (Action::Keep, Reason::Existing),
            true => (Action::Copy, Reason::Kind),
            false if self.job.existing.only => (Action::Keep, Reason::NotExisting),
            false => (Action::Copy, Reason::Missing),
        };
        if action == Action::Copy
            && let Some(error) = self.in_the_way(&src, &src.key).await
        {
            return self.ledger.error(error);
        }
        if action == Action::Copy
            && self.job.dry_run
            && self.replaces_dirs()
            && let Err(error) = self.report_replaced_dir(&src.key).await
        {
            return self.ledger.error(error);
        }
        self.file(Step::new(action, Some(src), None, why), out).await;
    }

    /// Why a source entry is left alone regardless of its kind.
    pub(super) async fn left_alone(&self, src: &Entry) -> Option<Reason> {
        if !self.asks_of_other_kinds() {
            return None;
        }
        match self.any_kind_there(&src.key).await {
            true => self.job.existing.ignore.then_some(Reason::Existing),
            false => self.job.existing.only.then_some(Reason::NotExisting),
        }
    }

    /// True when a directory is replaced by a file together with its contents.
    pub fn replaces_dirs(&self) -> bool {
        self.job.verb == Verb::Sync || self.job.existing.other_kinds == OtherKinds::ReplaceWhole
    }

    /// True when the destination may have a directory with the name of a missing file. There is none in a directory that is new
    /// itself.
    pub(super) fn may_be_in_the_way(&self, key: &Key) -> bool {
        // It is deleted with its contents when the file is written; only a dry run has to report it before.
        let tells = self.job.verb != Verb::Sync || self.job.deletes.max.is_some();
        let counts = !self.replaces_dirs() || self.job.dry_run && tells;
        self.job.existing.other_kinds.are_replaced() && counts && self.cx.dst.caps().dirs && !self.is_new(&key.parent())
    }

    /// Why a file can't be written to `key`: the destination has a non-empty directory of its name, which must stay. The error is
    /// reported here, so that a dry run reports it too.
    pub(super) async fn in_the_way(&self, src: &Entry, key: &Key) -> Option<Error> {
        let dir = Key::new([key.path(), b"/"].concat());
        // A symlink itself, not its target.
        if self.replaces_dirs() || !self.cx.dst.caps().dirs || self.cx.dst.stat(&dir).await.is_err() {
            return None;
        }
        let request = ListRequest { limit: Some(1), ..ListRequest::dir(dir.as_bytes()) };
        let mut listing = self.cx.dst.list(request);
        while let Some(step) = listing.next().await {
            if matches!(&step, Listed::Batch(entries) if !entries.is_empty()) {
                self.ledger.left_out(src, LeftOut::InTheWay);
                return Some(no_way(key));
            }
        }
        None
    }

    /// Reports in a dry run what would be deleted with the directory that a file replaces.
    ///
    /// Errors: why it can't be deleted.
    async fn report_replaced_dir(&self, key: &Key) -> Result<()> {
        let dir = Key::new([key.path(), b"/"].concat());
        if self.cx.dst.stat(&dir).await.is_err() {
            return Ok(());
        }
        let gone = self.held_by(&dir).await?;
        self.ledger.check_may_delete(&self.job.deletes, &dir, gone.len() as u64)?;
        if self.job.verb == Verb::Sync {
            // The listing of the destination reports it.
            return Ok(());
        }
        for entry in gone.into_iter().rev() {
            match entry.is_dir() {
                true => self.ledger.tell(Event::DirExtra { key: entry.key, deleted: true, dry_run: true }),
                false => self.ledger.decided(&plan::extra(entry, true)),
            }
        }
        Ok(())
    }

    /// True when the destination has anything under this name.
    async fn any_kind_there(&self, key: &Key) -> bool {
        let plain = Key::new(key.path());
        self.cx.dst.stat(&plain).await.is_ok_and(|entry| !entry.is_dir()) || self.other_kind_there(&plain).await
    }

    /// True when the destination has something else under this name.
    pub(super) async fn other_kind_there(&self, key: &Key) -> bool {
        has_other_kind(&self.cx.dst, key).await
    }

    /// True for an entry that only the destination has, while the source has one of another kind under the same name: it is replaced,
    /// not deleted.
    pub(super) async fn is_replaced(&self, dst: &Entry) -> bool {
        self.in_its_place(dst).await.is_some()
    }

    /// The source's entry of this name that is to be copied, if there is one.
    pub(super) async fn in_its_place(&self, dst: &Entry) -> Option<Entry> {
        // Where there are no real directories several things may have one name, and none takes another's place.
        let (src, asks) = (&self.cx.src, self.job.existing.other_kinds.are_replaced() && self.cx.dst.caps().dirs);
        let caps = src.caps();
        if !asks || !caps.files && (!caps.dirs || !self.names.may_hold(src, dst.key.path()).await) {
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

    /// The contents of a directory that may be deleted with it.
    ///
    /// Errors: something in it can't be listed, for example another file system where those are left alone.
    pub async fn held_by(&self, dir: &Key) -> Result<Vec<Entry>> {
        let filter = Arc::new(self.cx.filter.for_destination());
        let request = ListRequest {
            prefix: dir.as_bytes().to_vec(),
            prune_by: Some(filter.clone()),
            one_device: self.one_device(),
            // To report what each one is.
            posix: true,
            ..ListRequest::all()
        };
        let mut listing = self.cx.dst.list(request);
        let (mut gone, mut kept) = (Vec::new(), None::<Key>);
        // A directory that stays keeps its contents.
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
                Listed::Vanished(_) | Listed::End => {}
            }
        }
        Ok(gone)
    }
}

/// The error for a file that can't be written to `key`.
pub(crate) fn no_way(key: &Key) -> Error {
    let message = "can't replace a non-empty directory with a file";
    Error::new(ErrorKind::Exists, "write", message).with_key(key)
}
