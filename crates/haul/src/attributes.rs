//! Attributes of files in a job between file systems: what is kept, setting it on what has the same bytes already, in
//! batches on the disks' own threads, and saying once, at the end, what could not be kept. What goes along with the bytes
//! is set by the store while it copies.

use crate::{Cx, job::Run, transfer::Order};
use haul_core::{
    Entry, Error, Key, Kind, Mtime, Posix,
    attributes::{self, Differs, Rights, Unkept, UnkeptCounts, What, Why},
    compare::{Difference, Reason, Verdict},
    event::Event,
    plan::Action,
    policy::{Chmod, IdMap, Keep, Policy},
};
use haul_store::{CopyBatch, CopyHow, CopyItem, Stored, WriteSpec};
use std::sync::Arc;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

/// Files that may wait to have their attributes looked at.
pub const BACKLOG: usize = 4096;

/// What a job keeps.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// What is kept; `None` when nothing is, or when an end is no file system of this machine.
    pub keep: Option<Arc<Keep>>,
    /// What may be done at the destination.
    pub rights: Rights,
    /// What the user gives to everything as metadata.
    given: Option<Box<haul_core::Meta>>,
    /// What was asked for and has no effect, as an end has no such thing.
    lacking: Option<&'static str>,
}

impl Attributes {
    /// What `policy` asks for between the ends of `cx`. Between file systems metadata goes on descriptors and not as text
    /// through listings, so that is taken out of the policy.
    pub fn new(policy: &mut Policy, cx: &Cx) -> Self {
        let (src, dst) = (cx.src.caps(), cx.dst.caps());
        let domains = src.domain.as_ref().zip(dst.domain.as_ref()).is_some_and(|(a, b)| a.name == b.name);
        let rights = match (&src.attributes, &dst.attributes) {
            (Some(_), Some(rights)) if domains => rights.clone(),
            _ => return Attributes { lacking: lacking(policy), ..Attributes::default() },
        };
        let mut keep = policy.keep.clone();
        if std::mem::take(&mut policy.metadata) {
            keep = keep.with_metadata();
        }
        if !keep.any() {
            return Attributes::default();
        }
        policy.metadata_set.retain(|(name, value)| !give(&mut keep, name, value));
        let given = policy.metadata_set.iter().cloned().collect::<haul_core::Meta>();
        let given = (!given.is_empty()).then(|| Box::new(given));
        Attributes { keep: Some(Arc::new(keep)), rights, given, lacking: None }
    }

    /// What is kept of names that are one file.
    pub fn hard_links(&self) -> bool {
        self.keep.as_ref().is_some_and(|keep| keep.hard_links)
    }

    /// A device, FIFO or socket that is to be copied.
    pub fn special(&self, entry: &Entry) -> Option<What> {
        attributes::special(entry, self.keep.as_deref()?)
    }

    /// True when a file whose facts agree must be looked at all the same.
    pub fn looks_inside(&self) -> bool {
        self.given.is_some() || self.keep.as_ref().is_some_and(|keep| keep.looks_inside())
    }

    /// True when more than the listed facts of two files may have to be looked at, or of more than two.
    pub fn asks_more(&self) -> bool {
        self.looks_inside() || self.hard_links()
    }

    /// True when the listed facts of two files agree in all that is kept.
    pub fn agree(&self, src: &Entry, dst: &Entry) -> bool {
        let Some(keep) = &self.keep else { return true };
        let (Some(src), Some(dst)) = (src.posix.as_deref(), dst.posix.as_deref()) else { return false };
        let (differs, unkept) = attributes::differs(src, dst, keep, &self.rights);
        !differs.any() && unkept.is_empty()
    }

    /// True when a directory's attributes may have to be set.
    pub fn dir_differs(&self, src: Option<&Posix>, dst: Option<&Posix>) -> bool {
        let Some(keep) = &self.keep else { return false };
        match (src, dst) {
            (Some(src), Some(dst)) => self.looks_inside() || attributes::differs(src, dst, keep, &self.rights).0.any(),
            _ => false,
        }
    }
}

/// What to say where an end is no file system of this machine.
fn lacking(policy: &Policy) -> Option<&'static str> {
    match (policy.metadata, policy.keep.hard_links) {
        (true, true) => Some("hard links are kept between local file systems only: each name becomes a file"),
        (false, _) if policy.keep.any() => Some(
            "attributes of files are kept between local file systems only; --metadata keeps what a store can hold of them",
        ),
        _ => None,
    }
}

/// Takes a pair of `--metadata-set` as a rule for attributes; false when it is none.
fn give(keep: &mut Keep, name: &str, value: &str) -> bool {
    match (name, value.parse().ok(), u32::from_str_radix(value, 8).ok()) {
        ("uid", Some(uid), _) => keep.users = IdMap::all(uid),
        ("gid", Some(gid), _) => keep.groups = IdMap::all(gid),
        ("mode", _, Some(mode)) => {
            let set = mode & attributes::MODE_BITS;
            let rule =
                Chmod { dirs: false, files: true, clear: attributes::MODE_BITS, set, exec_if_any: 0, copied: None };
            keep.chmod.push(rule);
        }
        _ => return false,
    }
    true
}

/// A file at the destination whose attributes are to be looked at.
pub struct Due {
    /// The source.
    src: Entry,
    /// Its key at the destination.
    to: Key,
    /// Why they are to be set, when that is known.
    why: Option<Reason>,
    /// Why the bytes are the same.
    same: Reason,
}

impl Run {
    /// A verdict on bytes with what facts of inodes say of attributes.
    pub fn with_attributes(&self, verdict: Verdict, src: &Entry, dst: &Entry) -> Verdict {
        let Some(keep) = &self.attributes.keep else { return verdict };
        let (verdict, unkept) = attributes::refine(verdict, src, dst, keep, &self.attributes.rights);
        if !self.attributes.looks_inside() && matches!(verdict, Verdict::Same(_)) {
            self.count_unkept(unkept);
        }
        verdict
    }

    /// True when an unchanged file goes to [`Run::look`] before it counts as such.
    pub fn must_look(&self, why: Reason) -> bool {
        !why.is_left_alone() && self.attributes.looks_inside()
    }

    /// Has the attributes of an unchanged file looked at.
    pub async fn look(&self, src: Entry, to: Key, same: Reason, to_look_at: &mpsc::Sender<Due>) {
        // Fails only when the job is stopping.
        let _ = to_look_at.send(Due { src, to, why: None, same }).await;
    }

    /// Has attributes and time of a file set.
    pub async fn dress(&self, src: Entry, to: Key, why: Reason, to_look_at: &mpsc::Sender<Due>) {
        let _ = to_look_at.send(Due { src, to, why: Some(why), same: why }).await;
    }

    /// Sets attributes in batches as they become due, until no more can come.
    pub async fn set_attributes(self: Arc<Self>, mut due: mpsc::Receiver<Due>) {
        let permits = Arc::new(Semaphore::new(self.checkers()));
        let mut running = JoinSet::new();
        let most = self.mover.copy_batch();
        while let Some(first) = due.recv().await {
            let mut batch = vec![first];
            while let (true, Ok(next)) = (batch.len() < most, due.try_recv()) {
                batch.push(next);
            }
            let Ok(permit) = permits.clone().acquire_owned().await else { break };
            let run = self.clone();
            running.spawn(async move {
                run.attribute_batch(batch).await;
                drop(permit);
            });
            while let Some(ended) = running.try_join_next() {
                self.joined("set attributes", ended);
            }
        }
        while let Some(ended) = running.join_next().await {
            self.joined("set attributes", ended);
        }
    }

    async fn attribute_batch(&self, batch: Vec<Due>) {
        let dry_run = self.policy.dry_run;
        let omit_links = self.policy.rsync.as_ref().is_some_and(|habits| habits.omit_link_times.is_some());
        let omit = |src: &Entry| self.policy.no_update_mtime || (omit_links && src.is_symlink());
        let time = |due: &Due| due.why.and(due.src.mtime).filter(|_| !omit(&due.src));
        let items = batch.iter().map(|due| self.attribute_item(&due.src, &due.to, time(due), !dry_run)).collect();
        let answers = self.ask_attributes(items).await;
        for (due, answer) in batch.into_iter().zip(answers) {
            let Due { src, to, why, same } = due;
            match answer {
                Ok(stored) => {
                    self.count_unkept(stored.unkept);
                    let changed = stored.differs.any();
                    if why.is_none() {
                        let (action, why) = match changed {
                            true => (Action::Touch, Reason::Attributes(stored.differs)),
                            false => (Action::Keep, same),
                        };
                        let (key, size, differs) = (to.clone(), src.size, Difference::of(&src, stored.differs));
                        self.cx.sink.emit(&Event::Decided { key, action, why, size, differs, dry_run });
                    }
                    if changed {
                        self.touched(to, stored.differs);
                    }
                    self.kept(&src, same);
                }
                Err(error) => self.error(if error.key().is_some() { error } else { error.with_key(&to) }),
            }
        }
    }

    /// Counts a file whose time or attributes were set (or, in a dry run, would be).
    pub fn touched(&self, key: Key, differs: Differs) {
        self.report().totals.touched += 1;
        if !self.policy.dry_run {
            self.cx.sink.emit(&Event::Touched { key, differs });
        }
    }

    /// An item that sets attributes; without `mtime` the time stays.
    pub fn attribute_item(&self, src: &Entry, to: &Key, mtime: Option<Mtime>, set: bool) -> CopyItem {
        let spec = WriteSpec {
            mtime,
            meta: self.attributes.given.clone().filter(|_| !src.is_dir()),
            keep: self.attributes.keep.clone(),
            ..WriteSpec::default()
        };
        let how = CopyHow::Attributes { set, new: false };
        CopyItem { from: src.key.clone(), want: None, size: src.size, to: to.clone(), spec, how, log: None }
    }

    /// Has a batch of such items done; one answer for each.
    pub async fn ask_attributes(&self, items: Vec<CopyItem>) -> Vec<Result<Stored, Error>> {
        let count = items.len();
        let stopped = || (0..count).map(|_| Err(crate::transfer::cancelled())).collect();
        let Some(domain) = &self.cx.src.caps().domain else { return stopped() };
        let batch = CopyBatch { from: domain.place.clone(), items, progress: None, links: self.mover.source_links() };
        tokio::select! {
            biased;
            () = self.cx.cancel.cancelled() => stopped(),
            answers = self.cx.dst.copy(batch) => answers,
        }
    }

    /// Sets the attributes of a file that came by a way that keeps none.
    pub async fn dress_now(&self, src: &Entry, to: &Key, new: bool) {
        self.dress_by(src, to, new, self.attributes.keep.clone()).await;
    }

    /// The same for what an order brought.
    pub async fn dress_ordered(&self, order: &Order) {
        // What made way has left no permissions of its own.
        let new = !order.replaced.as_ref().is_some_and(is_plain);
        self.dress_by(&order.src, &order.to, new, self.mover.keep_of(order)).await;
    }

    /// The same by other rules.
    pub async fn dress_by(&self, src: &Entry, to: &Key, new: bool, keep: Option<Arc<Keep>>) {
        if keep.is_none() {
            return;
        }
        let how = CopyHow::Attributes { set: true, new };
        let mut item = CopyItem { how, ..self.attribute_item(src, to, self.mover.set_time(src).or(src.mtime), true) };
        item.spec.keep = keep;
        let answers = self.ask_attributes(vec![item]).await;
        for answer in answers {
            match answer {
                Ok(stored) => self.count_unkept(stored.unkept),
                Err(error) => self.error(error.with_key(to)),
            }
        }
    }

    /// Counts what of one file could not be kept.
    pub fn count_unkept(&self, unkept: Unkept) {
        if unkept.is_empty() {
            return;
        }
        let mut report = self.report();
        for lost in unkept.iter() {
            *report.totals.unkept.entry(lost).or_default() += 1;
        }
    }

    /// Says what could not be kept: once for each kind.
    pub fn say_unkept(&self) {
        if let Some(lacking) = self.attributes.lacking {
            self.notice(None, lacking);
        }
        let counts: UnkeptCounts = self.report().totals.unkept.clone();
        for ((what, why), count) in counts {
            self.notice(None, words(what, why, count));
        }
    }
}

/// True for a regular file.
pub fn is_plain(entry: &Entry) -> bool {
    let regular = entry.posix.as_ref().is_none_or(|posix| attributes::is_regular(posix.mode));
    entry.kind == Kind::File && regular
}

/// What was not kept, of how many files, and why; one line.
fn words(what: What, why: Why, count: u64) -> String {
    let s = if count == 1 { "" } else { "s" };
    let lost = match what {
        What::Owner => format!("owner of {count} file{s} not kept"),
        What::Group => format!("group of {count} file{s} not kept"),
        What::Mode => format!("permissions of {count} file{s} not kept"),
        What::Xattrs => format!("extended attributes of {count} file{s} not kept, or not all"),
        What::Acls => format!("ACLs of {count} file{s} not kept"),
        What::Device => format!("{count} device{s} not copied"),
        What::Special => format!("{count} FIFO{s} or socket{s} not copied"),
        What::HardLink => format!("{count} name{s} of hard links copied as file{s}"),
    };
    let because = match (what, why) {
        (What::Owner, Why::Denied) => "only root may give files away",
        (What::Group, Why::Denied) => "only root may give files to a group that it isn't in",
        (What::Mode, Why::Denied) => "they belong to another user",
        (What::Device, Why::Denied) => "only root may make them",
        (_, Why::Denied) => "only root may set them",
        (What::Owner | What::Group, Why::Lacking) => "the destination's file system has none, or doesn't know it",
        (What::Mode, Why::Lacking) => "the destination's file system has no such permissions",
        (What::Xattrs, Why::Lacking) => "the destination's file system takes none of that kind or size",
        (What::Acls, Why::Lacking) => "the destination's file system has none",
        (What::Device | What::Special, Why::Lacking) => "the destination doesn't allow them",
        (What::HardLink, Why::Lacking) => "the destination can't link them",
    };
    format!("{lost}: {because}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_said_in_one_line() {
        assert_eq!(words(What::Owner, Why::Denied, 12), "owner of 12 files not kept: only root may give files away");
        assert_eq!(
            words(What::Xattrs, Why::Lacking, 1),
            "extended attributes of 1 file not kept, or not all: the destination's file system takes none of that kind or size"
        );
        assert_eq!(
            words(What::HardLink, Why::Lacking, 2),
            "2 names of hard links copied as files: the destination can't link them"
        );
    }

    #[test]
    fn metadata_that_is_an_attribute_becomes_a_rule() {
        let mut keep = Keep::default();
        assert!(give(&mut keep, "mode", "100640") && give(&mut keep, "uid", "7"));
        assert!(!give(&mut keep, "colour", "7") && !give(&mut keep, "gid", "staff"));
        assert_eq!((keep.users, keep.groups, keep.chmod[0].set), (IdMap::all(7), IdMap::default(), 0o640));
    }
}
