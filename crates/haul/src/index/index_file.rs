//! An index's file: a head, and sections, the newest last. Added to, or written anew and renamed; readers keep what they opened. What
//! isn't whole, or isn't of this store, is as good as none.

use super::{
    doubts::Doubts,
    record::{self, Fact},
    section::{Merge, Record, Section, SectionWriter, Source},
    state_folder,
};
use haul_core::{Key, Kind, filter::Filter};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    ops::RangeInclusive,
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"haulidx\x02";
/// Magic, the store's identity, the end, the last section's sum, the scope in which it is complete, the head's sum.
const HEAD: usize = 8 + 32 + 4 * 8;
/// [`Snapshot::whole`] of an index that has everything.
pub const ALL: u64 = 1;
/// [`Snapshot::whole`] of an index from which anything may be missing.
pub const PART: u64 = 0;
/// Sections that are added before all is written anew, and their bytes: what is added is held in memory while it is read, and
/// each run reads it. 16 MiB are some 150,000 keys.
const ADDED: (usize, u64) = (16, 16 << 20);
/// Ending of the names of an index's files.
pub const ENDING: &str = "index";
/// Ending of the names of marks, see [`state_folder::mark`].
pub const CHANGING: &str = "changing";

/// Identity of an index's store.
pub type Identity = [u8; 32];

/// An index as it was when it was opened.
#[derive(Debug)]
pub struct Snapshot {
    file: Arc<File>,
    /// Device and inode.
    id: (u64, u64),
    end: u64,
    /// The oldest first.
    sections: Vec<Arc<Section>>,
    /// Records of all sections but the first.
    added: Arc<Vec<Record>>,
    /// The scope in which it has every key that haul knew of when it was written: [`ALL`], [`PART`], or the files of a filter, see
    /// [`scope`].
    pub whole: u64,
    /// Its store has symlinks: what it keeps under their stored names is symlinks.
    links: bool,
}

/// Hash of a filter's rules, as in [`Snapshot::whole`].
pub fn scope(filter: &Filter) -> u64 {
    let spec = filter.spec();
    let sizes = spec.min_size.is_some() || spec.max_size.is_some();
    let facts = filter.needs_mtime() || filter.needs_meta();
    let part = spec.partition.is_some() || !spec.exclude_if_present.is_empty();
    let more = spec.files_from.is_some() || sizes || facts || part;
    match filter.is_all() {
        true => ALL,
        false if more || spec.rules.is_empty() => PART,
        false => xxh3_64(format!("{} {:?}", spec.ignore_case, spec.rules).as_bytes()).max(2),
    }
}

impl Snapshot {
    /// Opens the index at `path`; `None` when there is none.
    ///
    /// Errors: `InvalidData` when it is damaged, of another store or of another version of haul; those of reading.
    pub fn open(path: &Path, whose: &Identity) -> io::Result<Option<Snapshot>> {
        let Some(file) = state_folder::open(path)? else { return Ok(None) };
        let file = Arc::new(file);
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).map_err(|_| damaged())?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| head[at + n]));
        let (end, mut sum, whole) = (number(40), number(48), number(56));
        if head[..8] != *MAGIC || head[8..40] != *whose || number(64) != xxh3_64(&head[..HEAD - 8]) {
            return Err(damaged());
        }
        let (mut sections, mut at) = (Vec::new(), end);
        while at != 0 {
            let section = Section::open(&file, at, Some(sum)).map_err(|_| damaged())?;
            (at, sum) = section.before;
            sections.push(Arc::new(section));
        }
        sections.reverse();
        let mut merge = Merge::new(sections.iter().skip(1).map(Source::section).collect())?;
        let mut added = Vec::new();
        while let Some((key, body)) = merge.here() {
            added.push((key.into(), body.into()));
            merge.next()?;
        }
        let id = state_folder::identity(&file)?;
        Ok(Some(Snapshot { file, id, end, sections, added: Arc::new(added), whole, links: false }))
    }

    /// This snapshot, read for a store that has symlinks (or none).
    pub fn with_links(self, links: bool) -> Snapshot {
        Snapshot { links, ..self }
    }

    /// All records, from the first.
    ///
    /// Errors: the file can't be read.
    pub fn read(&self) -> io::Result<Merge> {
        let base = self.sections.iter().take(1).map(Source::section);
        Merge::new(base.chain([Source::List(self.added.clone(), 0)]).collect())
    }

    /// The fact in the record of the key that the store keeps under `stored`.
    pub fn fact(&self, stored: &[u8], body: &[u8]) -> Option<Fact> {
        let mut fact = record::read(stored, body)?;
        if self.links {
            fact.entry.key = Key::of_stored(stored);
            fact.entry.kind = if fact.entry.key.is_symlink() { Kind::Symlink } else { Kind::File };
        }
        Some(fact)
    }

    /// Keys of which it says something, about.
    pub fn count(&self) -> u64 {
        self.base() + self.added.len() as u64
    }

    fn base(&self) -> u64 {
        self.sections.first().map_or(0, |section| section.count)
    }

    /// About how many keys were seen to exist since `minute`, never too many.
    pub fn fresh(&self, minute: u32) -> u64 {
        let base = self.sections.first().map_or(0, |section| section.fresh(minute));
        let forgotten = self.added.iter().filter(|(_, record)| !record::is_there(record)).count() as u64;
        base.saturating_sub(forgotten)
    }

    /// Key number `number`, less than [`Snapshot::count`], in no order.
    ///
    /// Errors: the file can't be read.
    pub fn key(&self, number: u64) -> io::Result<Vec<u8>> {
        match number.checked_sub(self.base()) {
            None => self.sections[0].key(number),
            Some(number) => self.added.get(number as usize).map(|(key, _)| key.to_vec()).ok_or_else(damaged),
        }
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is damaged, or not this store's")
}

/// A run's findings, to be put into an index.
pub struct NewFindings {
    /// In sorted sources, the newest last.
    pub found: Vec<Source>,
    /// The index's other facts are void.
    pub replaces: bool,
    /// The scope in which it then has every key, where it replaces.
    pub whole: u64,
    /// Its facts in these places are void too.
    pub doubts: Doubts,
    /// Findings of other minutes aren't kept.
    pub within: RangeInclusive<u32>,
}

/// Puts a run's findings into the index at `path`. The caller holds the lock. `was` is the index as it was when the run
/// began.
///
/// Others may have added facts meanwhile that are newer than ours: keys that they know of become unknown. Nor does the index
/// keep that a key existed when they rewrote it. That costs requests, where the other way would
/// cost data.
///
/// Errors: of the file system. The old index then is unchanged, and must be removed if it can't stay.
pub fn add(path: &Path, whose: &Identity, was: Option<&Snapshot>, addition: NewFindings) -> io::Result<()> {
    let now = match Snapshot::open(path, whose) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        now => now?,
    };
    let theirs = match (was, &now) {
        // Somebody had reason to drop it. One that says nothing takes its place: to others that began with none it is another one,
        // so that they, who can't know what we changed, say nothing of what they saw.
        (Some(_), None) => {
            let nothing = OwnFindings { found: Merge::new(Vec::new())?, theirs: None, whole: PART };
            return rewrite(path, whose, None, nothing, &Doubts::None, &addition.within);
        }
        (None, None) => Some(Vec::new()),
        (None, Some(_)) => None,
        (Some(was), Some(now)) if was.id == now.id => {
            Some(now.sections[was.sections.len().min(now.sections.len())..].to_vec())
        }
        (Some(_), Some(_)) => None,
    };
    let NewFindings { found, replaces, whole, doubts, within } = addition;
    let alone = theirs.as_ref().is_some_and(Vec::is_empty);
    let whole = match &now {
        _ if replaces => {
            if alone {
                whole
            } else {
                PART
            }
        }
        Some(now) if doubts.is_empty() => now.whole,
        _ => PART,
    };
    let theirs = theirs.map(|sections| Merge::new(sections.iter().map(Source::section).collect())).transpose()?;
    let ours = OwnFindings { found: Merge::new(found)?, theirs, whole };
    match now {
        Some(now) if !replaces && doubts.is_empty() && now.has_room() => append(path, &now, ours),
        now => {
            let old = if replaces { None } else { now.as_ref() };
            // A dropped part may hold what others forgot; ours marks those keys as forgotten.
            rewrite(path, whose, old, ours, &doubts, &within)
        }
    }
}

/// Our findings, as far as they still hold.
struct OwnFindings {
    found: Merge,
    /// Facts that others added meanwhile; `None` when that is unknown.
    theirs: Option<Merge>,
    /// The scope in which the index then has every key, as far as is known yet.
    whole: u64,
}

impl OwnFindings {
    /// The record to write for the next key.
    fn here(&mut self) -> io::Result<Option<Record>> {
        let Some((key, body)) = self.found.here() else { return Ok(None) };
        let holds = match &mut self.theirs {
            None => false,
            Some(theirs) => {
                theirs.seek(key)?;
                theirs.here().is_none_or(|(theirs, _)| theirs != key)
            }
        };
        let body = if holds { body } else { record::FORGOTTEN };
        if body == record::FORGOTTEN {
            // It may be there.
            self.whole = PART;
        }
        Ok(Some((key.into(), body.into())))
    }
}

impl Snapshot {
    /// True while another section may be added.
    fn has_room(&self) -> bool {
        let added = self.sections.iter().skip(1).map(|section| section.count).sum::<u64>();
        let base = self.base();
        let size = self.sections.first().map_or(0, |_| self.end / (base + added).max(1) * added);
        self.sections.len() < ADDED.0 && size < ADDED.1 && added <= base / 4 + 1_000
    }
}

fn append(path: &Path, now: &Snapshot, mut ours: OwnFindings) -> io::Result<()> {
    if ours.here()?.is_none() {
        return Ok(());
    }
    let mut out = BufWriter::new(PositionedWriter { file: &now.file, at: now.end });
    let mut writer = SectionWriter::new(&mut out, now.end);
    while let Some((key, body)) = ours.here()? {
        writer.push(&key, &body)?;
        ours.found.next()?;
    }
    let last = now.sections.last().map_or(0, |section| section.sum);
    let (_, end, sum) = writer.finish((now.end, last))?;
    out.flush()?;
    drop(out);
    now.file.sync_data()?;
    // Until here the head says nothing of it.
    let mut whose = [0; 32];
    now.file.read_exact_at(&mut whose, 8)?;
    now.file.write_all_at(&head(&whose, end, sum, ours.whole), 0)?;
    now.file.sync_data()?;
    tracing::debug!(path = %path.display(), bytes = end - now.end, "added to the index");
    Ok(())
}

fn rewrite(
    path: &Path,
    whose: &Identity,
    old: Option<&Snapshot>,
    mut ours: OwnFindings,
    doubts: &Doubts,
    within: &RangeInclusive<u32>,
) -> io::Result<()> {
    let mut before = old.map_or_else(|| Merge::new(Vec::new()), Snapshot::read)?;
    // An existing key's fact is too old to be kept.
    let mut dropped = false;
    state_folder::replace(path, |file| {
        file.write_all(&[0; HEAD])?;
        let mut out = BufWriter::with_capacity(1 << 20, &*file);
        let mut writer = SectionWriter::new(&mut out, HEAD as u64);
        let keep = |body: &[u8]| record::minute(body).is_some_and(|minute| within.contains(&minute));
        while let Some((key, body)) = ours.here()? {
            while let Some((older, record)) = before.here().filter(|(older, _)| *older < &*key) {
                if keep(record) && !doubts.holds(older) {
                    writer.push(older, record)?;
                } else {
                    dropped |= record::is_there(record);
                }
                before.next()?;
            }
            if before.here().is_some_and(|(older, _)| *older == *key) {
                before.next()?;
            }
            if keep(&body) {
                writer.push(&key, &body)?;
            }
            ours.found.next()?;
        }
        while let Some((older, record)) = before.here() {
            if keep(record) && !doubts.holds(older) {
                writer.push(older, record)?;
            } else {
                dropped |= record::is_there(record);
            }
            before.next()?;
        }
        let (_, end, sum) = writer.finish((0, 0))?;
        out.flush()?;
        drop(out);
        let whole = if dropped { PART } else { ours.whole };
        file.write_all_at(&head(whose, end, sum, whole), 0)
    })
}

fn head(whose: &Identity, end: u64, sum: u64, whole: u64) -> Vec<u8> {
    let mut head = [&MAGIC[..], whose, &end.to_le_bytes(), &sum.to_le_bytes(), &whole.to_le_bytes()].concat();
    let own = xxh3_64(&head);
    head.extend_from_slice(&own.to_le_bytes());
    head
}

/// Writes into a file from a place on.
struct PositionedWriter<'a> {
    file: &'a File,
    at: u64,
}

impl Write for PositionedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
