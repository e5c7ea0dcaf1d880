//! Attributes of files in a job between file systems: what is kept, and in what two files differ. What goes along with the
//! bytes is set by the store while it copies, the rest by the executor.

use crate::{
    cx::{Cx, cancelled},
    ledger::Ledger,
};
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Mtime, Posix, Result,
    attributes::{self, Attribute, FileAttributes, Rights, UnpreservedCounts, UnpreservedReason},
    chmod::Chmod,
    compare::{Difference, Rules},
    job::Job,
    keep::{IdMap, Keep},
    links::SourceLinks,
};
use haul_store::{AttributesBatch, AttributesItem, AttributesResult, Caps, Store, none_offered};
use std::sync::Arc;

/// A job's rules for attributes.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Attributes to keep; `None` when none are, or when an end is no file system.
    pub keep: Option<Arc<Keep>>,
    /// Rights at the destination.
    pub rights: Rights,
    /// Metadata that the user sets on every file.
    metadata_set: Option<Box<haul_core::Meta>>,
    /// An attribute that was requested and has no effect, as an end doesn't support it.
    lacking: Option<&'static str>,
    /// The ends are on two machines: attributes are carried from one to the other.
    apart: bool,
}

impl Attributes {
    /// The rules of `job` between the ends of `cx`. Between file systems metadata goes on descriptors and not as text
    /// through listings, so that is taken out of the job.
    pub fn new(job: &mut Job, cx: &Cx) -> Self {
        let (src, dst) = (cx.src.caps(), cx.dst.caps());
        let rights = match (&src.attributes, &dst.attributes) {
            (Some(_), Some(rights)) => rights.clone(),
            _ => {
                let modes = |caps: &Caps| caps.modes || caps.attributes.is_some();
                let wanted = job.attributes.keep.perms && !job.attributes.metadata;
                job.attributes.permissions_alone = wanted && modes(src) && modes(dst);
                return Attributes { lacking: lacking(job), ..Attributes::default() };
            }
        };
        let mut keep = job.attributes.keep.clone();
        if std::mem::take(&mut job.attributes.metadata) {
            keep = keep.with_metadata();
        }
        if !keep.any() {
            return Attributes::default();
        }
        job.attributes.metadata_set.retain(|(name, value)| !give(&mut keep, name, value));
        let metadata_set = job.attributes.metadata_set.iter().cloned().collect::<haul_core::Meta>();
        let metadata_set = (!metadata_set.is_empty()).then(|| Box::new(metadata_set));
        let place = |caps: &Caps| caps.domain.as_ref().map(|domain| domain.name.clone());
        let apart = place(src) != place(dst);
        Attributes { keep: Some(Arc::new(keep)), rights, metadata_set, lacking: None, apart }
    }

    /// True if hard links are kept.
    pub fn hard_links(&self) -> bool {
        self.keep.as_ref().is_some_and(|keep| keep.hard_links)
    }

    /// A device, FIFO or socket that is to be copied.
    pub fn special(&self, entry: &Entry) -> Option<Attribute> {
        attributes::special(entry, self.keep.as_deref()?)
    }

    /// True when a file whose facts agree must be looked at all the same.
    pub fn looks_inside(&self) -> bool {
        self.metadata_set.is_some() || self.keep.as_ref().is_some_and(|keep| keep.looks_inside())
    }

    /// True if a file's attributes follow from its source alone.
    pub fn only_of_source(&self) -> bool {
        self.keep.is_some() && self.metadata_set.is_none()
    }

    /// True when more than the listed facts of two files may have to be looked at, or of more than two.
    pub fn asks_more(&self) -> bool {
        self.looks_inside() || self.hard_links()
    }

    /// True when the listed facts of two files agree in all that is kept.
    pub fn agree(&self, src: &Entry, dst: &Entry) -> bool {
        let Some(keep) = &self.keep else { return true };
        let (Some(src), Some(dst)) = (src.posix.as_deref(), dst.posix.as_deref()) else { return false };
        let (differs, unpreserved) = attributes::differs(src, dst, keep, &self.rights);
        !differs.any() && unpreserved.is_empty()
    }

    /// The item that gives `to` the attributes of `src`; without `mtime` the time stays.
    pub fn item(&self, src: &Entry, to: &Key, mtime: Option<Mtime>) -> AttributesItem {
        let meta = self.metadata_set.clone().filter(|_| !src.is_dir());
        let (from, to, keep) = (src.key.clone(), to.clone(), self.keep.clone());
        let carried = self.listed(src).map(Arc::new);
        AttributesItem { from, to, mtime, meta, keep, carried, new: false }
    }

    /// The attributes of a file to send to another machine, if its listing had all that count: asking for them would take a round trip
    /// for each file.
    pub fn listed(&self, src: &Entry) -> Option<FileAttributes> {
        let posix = src.posix.as_deref().filter(|_| self.apart && src.kind == Kind::File && !self.looks_inside())?;
        let Posix { mode, uid, gid, rdev, atime, .. } = *posix;
        Some(FileAttributes { mode, uid, gid, rdev, mtime: src.mtime?, atime, xattrs: Vec::new() })
    }

    /// Differences between a source and the destination's entry of its name: of attributes, those that would be set.
    pub fn difference(&self, rules: &Rules, src: &Entry, dst: Option<&Entry>) -> Difference {
        let differs = Difference::between(src, dst, rules);
        let there = dst.filter(|_| !differs.new).and_then(|dst| dst.posix.as_deref());
        let (Some(keep), Some(from), Some(there)) = (&self.keep, src.posix.as_deref(), there) else {
            return differs;
        };
        let (found, _) = attributes::differs(from, there, keep, &self.rights);
        Difference { perms: found.mode, owner: found.owner, group: found.group, ..differs }
    }

    /// Says what could not be kept: once for each kind.
    pub fn report_unpreserved(&self, ledger: &Ledger) {
        if let Some(lacking) = self.lacking {
            ledger.notice(None, lacking);
        }
        let counts: UnpreservedCounts = ledger.report().totals.unpreserved.clone();
        for ((what, why), count) in counts {
            ledger.notice(None, words(what, why, count));
        }
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

#[cfg(test)]
impl Attributes {
    /// Those of a job that keeps these, between two file systems.
    pub(crate) fn keeping(keep: Keep) -> Attributes {
        Attributes { keep: Some(Arc::new(keep)), ..Attributes::default() }
    }
}

/// Has the attributes of a batch compared, or set, at `to`. Those of a source on another machine are carried there. One answer for each
/// item, in the same order.
pub async fn ask(
    from: &dyn Store,
    to: &dyn Store,
    items: Vec<AttributesItem>,
    links: SourceLinks,
    set: bool,
) -> Vec<Result<AttributesResult>> {
    const OP: &str = "set attributes";
    let count = items.len();
    let (Some(source), Some(inodes)) = (&from.caps().domain, to.inodes()) else { return none_offered(count, OP) };
    let Some(domain) = &to.caps().domain else { return none_offered(count, OP) };
    if source.name == domain.name {
        return inodes.attributes(AttributesBatch { from: source.place.clone(), items, links, set }).await;
    }
    let Some(carrier) = from.inodes() else { return none_offered(count, OP) };
    let unknown = || items.iter().filter(|item| item.carried.is_none());
    let inside = unknown().any(|item| item.keep.as_ref().is_some_and(|keep| keep.looks_inside()));
    let keys: Vec<Key> = unknown().map(|item| item.from.clone()).collect();
    let mut read = match keys.is_empty() {
        true => Vec::new(),
        false => carrier.carry(keys, inside).await,
    }
    .into_iter();
    let silent = || Error::new(ErrorKind::Io, OP, "the store gave no answer");
    let (mut ready, mut answers) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for item in items {
        let carried = match item.carried.clone() {
            Some(carried) => Ok(carried),
            None => read.next().unwrap_or_else(|| Err(silent())).map(Arc::new),
        };
        answers.push(carried.map(|carried| ready.push(AttributesItem { carried: Some(carried), ..item })));
    }
    let batch = AttributesBatch { from: domain.place.clone(), items: ready, links, set };
    let mut set = inodes.attributes(batch).await.into_iter();
    answers.into_iter().map(|carried| carried.and_then(|()| set.next().unwrap_or_else(|| Err(silent())))).collect()
}

/// Has the attributes of a batch compared, or set, between the ends of `cx`, unless the job is stopped; one answer for each item.
pub async fn ask_ends(
    cx: &Cx,
    items: Vec<AttributesItem>,
    links: SourceLinks,
    set: bool,
) -> Vec<Result<AttributesResult>> {
    let count = items.len();
    tokio::select! {
        biased;
        () = cx.cancel.cancelled() => (0..count).map(|_| Err(cancelled())).collect(),
        answers = ask(&*cx.src, &*cx.dst, items, links, set) => answers,
    }
}

/// The message if an end is no file system.
fn lacking(job: &Job) -> Option<&'static str> {
    match (job.attributes.metadata, job.attributes.keep.hard_links) {
        (true, true) => Some(
            "hard links are kept between file systems only, here or with haul at the other end: each name becomes a file",
        ),
        (false, _) if job.attributes.permissions_alone => Some(
            "of attributes only the permissions of what is sent are kept: others between file systems only, here or with haul at the other end",
        ),
        (false, _) if job.attributes.keep.any() => Some(
            "attributes of files are kept between file systems only, here or with haul at the other end; --metadata keeps what a store can hold of them",
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
            let set = mode & haul_core::chmod::MODE_BITS;
            let rule = Chmod {
                dirs: false,
                files: true,
                clear: haul_core::chmod::MODE_BITS,
                set,
                exec_if_any: 0,
                copied: None,
            };
            keep.chmod.push(rule);
        }
        _ => return false,
    }
    true
}

/// True for a regular file.
pub fn is_plain(entry: &Entry) -> bool {
    let regular = entry.posix.as_ref().is_none_or(|posix| attributes::is_regular(posix.mode));
    entry.kind == Kind::File && regular
}

/// One line: the attribute that was not kept, of how many files, and why.
fn words(what: Attribute, why: UnpreservedReason, count: u64) -> String {
    let s = if count == 1 { "" } else { "s" };
    let lost = match what {
        Attribute::Owner => format!("owner of {count} file{s} not kept"),
        Attribute::Group => format!("group of {count} file{s} not kept"),
        Attribute::Mode => format!("permissions of {count} file{s} not kept"),
        Attribute::Xattrs => format!("extended attributes of {count} file{s} not kept, or not all"),
        Attribute::Acls => format!("ACLs of {count} file{s} not kept"),
        Attribute::Device => format!("{count} device{s} not copied"),
        Attribute::Special => format!("{count} FIFO{s} or socket{s} not copied"),
        Attribute::HardLink => format!("{count} name{s} of hard links copied as file{s}"),
    };
    let because = match (what, why) {
        (Attribute::Owner, UnpreservedReason::Denied) => "only root may give files away",
        (Attribute::Group, UnpreservedReason::Denied) => "only root may give files to a group that it isn't in",
        (Attribute::Mode, UnpreservedReason::Denied) => "they belong to another user",
        (Attribute::Device, UnpreservedReason::Denied) => "only root may make them",
        (_, UnpreservedReason::Denied) => "only root may set them",
        (Attribute::Owner | Attribute::Group, UnpreservedReason::Lacking) => {
            "the destination's file system has none, or doesn't know it"
        }
        (Attribute::Mode, UnpreservedReason::Lacking) => "the destination's file system has no such permissions",
        (Attribute::Xattrs, UnpreservedReason::Lacking) => {
            "the destination's file system takes none of that kind or size"
        }
        (Attribute::Acls, UnpreservedReason::Lacking) => "the destination's file system has none",
        (Attribute::Device | Attribute::Special, UnpreservedReason::Lacking) => "the destination doesn't allow them",
        (Attribute::HardLink, UnpreservedReason::Lacking) => "the destination can't link them",
    };
    format!("{lost}: {because}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_said_in_one_line() {
        assert_eq!(
            words(Attribute::Owner, UnpreservedReason::Denied, 12),
            "owner of 12 files not kept: only root may give files away"
        );
        assert_eq!(
            words(Attribute::Xattrs, UnpreservedReason::Lacking, 1),
            "extended attributes of 1 file not kept, or not all: the destination's file system takes none of that kind or size"
        );
        assert_eq!(
            words(Attribute::HardLink, UnpreservedReason::Lacking, 2),
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
