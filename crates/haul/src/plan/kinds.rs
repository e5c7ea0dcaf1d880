//! Kinds of entries: which can be copied at all, and what the destination has of another kind under a name: a directory where a file is
//! to be written, a file where the source has a symlink.

use super::{listings::is_one_device, source_names::SourceNames};
use crate::{
    Cx,
    attributes::Attributes,
    ledger::Ledger,
    namesakes::{has_other_kind, of_any_kind},
};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Listed, Result,
    attributes::{Attribute, UnpreservedAttributes, UnpreservedReason},
    compare::Reason,
    event::{Event, LeftOut},
    job::{Existing, Job, OtherKinds, Verb},
    plan::{self, Action, Step},
};
use haul_store::ListRequest;
use std::sync::Arc;

/// Knows which kinds are copied, and finds entries of another kind.
pub(crate) struct Kinds {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    attributes: Arc<Attributes>,
    /// Which names the source has, where it isn't here.
    names: SourceNames,
}

impl Kinds {
    /// Nothing was found yet.
    pub fn new((job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>), attributes: &Arc<Attributes>) -> Kinds {
        Kinds {
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            attributes: attributes.clone(),
            names: SourceNames::default(),
        }
    }

    /// False for devices and the like that aren't copied.
    pub fn can_be_copied(&self, src: &Entry) -> bool {
        let kept = |what| what == Attribute::Special || self.attributes.rights.devices;
        src.kind != Kind::Special || self.attributes.special(src).is_some_and(kept)
    }

    /// True for a device, FIFO or socket that this job doesn't copy, whoever runs it.
    pub fn is_never_kept(&self, entry: &Entry) -> bool {
        entry.kind == Kind::Special && self.attributes.special(entry).is_none()
    }

    /// Reports or counts something that can't be copied.
    pub async fn not_kept(&self, src: &Entry) {
        if src.damaged {
            return self.leads_nowhere(src);
        }
        if let Some(what) = self.attributes.special(src) {
            let mut unpreserved = UnpreservedAttributes::default();
            unpreserved.add(what, UnpreservedReason::Denied);
            self.ledger.count_unpreserved(unpreserved);
        } else if !self.job.tell.details && self.job.tell.of_left_out(src) {
            self.ledger.notice(Some(&src.key), "not copied: a symlink or special file (see --links and --copy-links)");
        }
        if self.job.tell.details {
            self.ledger.left_out(src, LeftOut::Kind(self.left_alone(src).await));
        }
    }

    /// Reports a symlink that is followed: what it led to may come back, so nothing at the destination is deleted for it.
    pub fn leads_nowhere(&self, src: &Entry) {
        let error = Error::new(ErrorKind::NotFound, "list", "the symbolic link points to nothing");
        self.ledger.error(error.with_key(&src.key));
    }

    /// Why a source entry is left alone regardless of its kind.
    async fn left_alone(&self, src: &Entry) -> Option<Reason> {
        if !self.count_for_missing() {
            return None;
        }
        match self.any_there(&src.key).await {
            true => self.job.existing.ignore.then_some(Reason::Existing),
            false => self.job.existing.only.then_some(Reason::NotExisting),
        }
    }

    /// True when it matters whether the destination has something of another kind under a missing name.
    fn count_for_missing(&self) -> bool {
        let existing = &self.job.existing;
        existing.other_kinds.are_replaced() && (existing.only || existing.ignore) && self.cx.dst.caps().dirs
    }

    /// True when the destination must be asked for other kinds before a missing file is decided about. `is_dir_new`: the directory
    /// of the file is missing too, so that nothing can be in its way.
    pub fn must_ask(&self, is_dir_new: impl FnOnce() -> bool) -> bool {
        self.count_for_missing() || self.may_be_in_the_way() && !is_dir_new()
    }

    /// True when the destination may have a directory with the name of a missing file.
    fn may_be_in_the_way(&self) -> bool {
        // It is deleted with its contents when the file is written; only a dry run has to report it before.
        let tells = self.job.verb != Verb::Sync || self.job.deletes.max.is_some();
        let counts = !self.replaces_dirs() || self.job.dry_run && tells;
        self.job.existing.other_kinds.are_replaced() && counts && self.cx.dst.caps().dirs
    }

    /// The step for a file that is missing from the destination, which may have something else of that name; `None` if that is in the
    /// way, which is reported.
    pub async fn missing(&self, src: Entry) -> Option<Step> {
        let there = self.count_for_missing() && self.is_there(&src.key).await;
        let (action, why) = missing_of_its_kind(&self.job.existing, there);
        if action == Action::Copy {
            if let Some(error) = self.in_the_way(&src, &src.key).await {
                self.ledger.error(error);
                return None;
            }
            if self.job.dry_run
                && self.replaces_dirs()
                && let Err(error) = self.report_replaced_dir(&src.key).await
            {
                self.ledger.error(error);
                return None;
            }
        }
        Some(Step::new(action, Some(src), None, why))
    }

    /// True when a directory is replaced by a file together with its contents.
    pub fn replaces_dirs(&self) -> bool {
        self.job.verb == Verb::Sync || self.job.existing.other_kinds == OtherKinds::ReplaceWhole
    }

    /// Why a file can't be written to `key`: the destination has a non-empty directory of its name, which must stay. The error is
    /// reported here, so that a dry run reports it too.
    pub async fn in_the_way(&self, src: &Entry, key: &Key) -> Option<Error> {
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
    async fn any_there(&self, key: &Key) -> bool {
        let plain = Key::new(key.path());
        self.cx.dst.stat(&plain).await.is_ok_and(|entry| !entry.is_dir()) || self.is_there(&plain).await
    }

    /// True when the destination has something of another kind under this name.
    pub async fn is_there(&self, key: &Key) -> bool {
        has_other_kind(&self.cx.dst, key).await
    }

    /// The source's entry of another kind under the name of this entry of the destination, which it replaces; one that is to be copied,
    /// if there is such.
    pub async fn in_its_place(&self, dst: &Entry) -> Option<Entry> {
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
            one_device: is_one_device(&self.job),
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

/// What becomes of a file that is missing from the destination; `there`: it has something of another kind under this name.
fn missing_of_its_kind(existing: &Existing, there: bool) -> (Action, Reason) {
    match there {
        true if existing.ignore => (Action::Keep, Reason::Existing),
        true => (Action::Copy, Reason::Kind),
        false if existing.only => (Action::Keep, Reason::NotExisting),
        false => (Action::Copy, Reason::Missing),
    }
}

/// The error for a file that can't be written to `key`.
pub(crate) fn no_way(key: &Key) -> Error {
    let message = "can't replace a non-empty directory with a file";
    Error::new(ErrorKind::Exists, "write", message).with_key(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, dir, disk, file, first_match, job, put};
    use haul_mem::MemStore;

    fn kinds(sample: &Sample) -> Kinds {
        Kinds::new(sample.parts(), &Arc::default())
    }

    async fn disk_with(keys: &[&str]) -> MemStore {
        let store = disk();
        for key in keys {
            put(&store, key).await;
        }
        store
    }

    fn replacing(job: &mut Job) {
        job.existing.other_kinds = OtherKinds::Replace;
    }

    #[test]
    fn a_missing_file_goes_by_what_has_its_name() {
        let reason_for =
            |ignore, only, there| missing_of_its_kind(&Existing { ignore, only, ..Existing::default() }, there);
        assert_eq!(reason_for(false, false, false), (Action::Copy, Reason::Missing));
        assert_eq!(reason_for(false, true, false), (Action::Keep, Reason::NotExisting));
        assert_eq!(reason_for(false, true, true), (Action::Copy, Reason::Kind));
        assert_eq!(reason_for(true, false, true), (Action::Keep, Reason::Existing));
        assert_eq!(reason_for(true, true, true), (Action::Keep, Reason::Existing));
        assert_eq!(reason_for(true, false, false), (Action::Copy, Reason::Missing));
    }

    #[test]
    fn a_missing_file_costs_a_question_only_where_something_may_be_in_its_way() {
        let asks = |verb, change: fn(&mut Job), dst, is_new| {
            kinds(&Sample::new(job(verb, change), disk(), dst)).must_ask(|| is_new)
        };
        assert!(!asks(Verb::Copy, |_| {}, disk(), false), "other kinds stay");
        assert!(asks(Verb::Copy, replacing, disk(), false));
        assert!(!asks(Verb::Copy, replacing, disk(), true), "nothing is in a new directory");
        assert!(!asks(Verb::Copy, replacing, MemStore::new(), false), "a bucket has no directories");
        assert!(!asks(Verb::Sync, replacing, disk(), false), "a sync replaces them with their contents");
        let limited = |job: &mut Job| {
            (job.existing.other_kinds, job.dry_run, job.deletes.max) = (OtherKinds::Replace, true, Some(1))
        };
        assert!(asks(Verb::Sync, limited, disk(), false), "which its dry run counts");
    }

    #[tokio::test]
    async fn a_directory_in_the_way_that_must_stay_is_an_error() {
        let sample = Sample::new(job(Verb::Copy, replacing), disk(), disk_with(&["full/f"]).await);
        sample.cx.dst.make_dir(&Key::new("empty/"), &haul_store::WriteSpec::default()).await.unwrap();
        let kinds = kinds(&sample);
        assert!(kinds.missing(file("full")).await.is_none());
        assert_eq!((sample.errors(), sample.heard(|event| matches!(event, Event::LeftOut { .. }))), (1, 1));
        for key in ["empty", "none"] {
            assert_eq!(kinds.missing(file(key)).await.map(|step| step.action), Some(Action::Copy), "{key}");
        }
        assert_eq!(sample.errors(), 1);
    }

    #[tokio::test]
    async fn only_an_entry_of_another_kind_takes_the_place_of_one() {
        let of = async |change: fn(&mut Job), key: &str| {
            let sample = Sample::new(job(Verb::Sync, change), disk_with(&["a", "b/c"]).await, disk());
            let there = if key.ends_with('/') { dir(key) } else { file(key) };
            kinds(&sample).in_its_place(&there).await.map(|entry| entry.key)
        };
        assert_eq!(of(replacing, "a/").await, Some(Key::new("a")));
        assert_eq!(of(replacing, "b").await, Some(Key::new("b/")));
        assert_eq!(of(replacing, "a").await, None);
        assert_eq!(of(replacing, "c/").await, None);
        assert_eq!(of(|_| {}, "a/").await, None, "other kinds stay");
    }

    #[tokio::test]
    async fn what_may_go_with_a_directory_leaves_out_protected_directories_with_their_contents() {
        let dst = disk_with(&["d/a", "d/kept/b", "d/kept-not", "d/last"]).await;
        let sample = Sample::new(job(Verb::Sync, |_| {}), disk(), dst).with(first_match(&["P kept/"], &[], None));
        let gone = kinds(&sample).held_by(&Key::new("d/")).await.unwrap();
        let gone: Vec<String> = gone.into_iter().map(|entry| entry.key.to_string()).collect();
        assert_eq!(gone, ["d/a", "d/kept-not", "d/last"]);
    }
}
