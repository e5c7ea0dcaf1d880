//! The index of one pack: which keys it sets, and where their bytes are. Bytes in, facts out; no I/O.
//!
//! The format (docs/adr/0008-packs.md describes it for others): a head, records in bytewise key order, each key once, and
//! a CRC-64/NVME of all that. An index stays in memory as it was read, with four bytes more for each record.

use bytes::Bytes;
use haul_core::{Algo, Entry, Hashes, Key, Meta, Mtime, Version, hash::hash_bytes};
use std::{cmp::Ordering, collections::HashMap, ops::Range, sync::Arc};

/// The first bytes of every index: name of the format.
const MAGIC: &[u8; 6] = b"haulpk";
/// The format's version, two bytes after its name.
const VERSION: [u8; 2] = [0, 2];
/// The first one, still read: it names one known index at most, and no deletion of one version.
const FIRST_VERSION: [u8; 2] = [0, 1];
/// Bytes of the checksum at the end.
const SUM: usize = 8;

/// Numbers of hashes in the format. Never change one.
const ALGOS: [(u8, Algo); 12] = [
    (1, Algo::Md5),
    (2, Algo::Sha1),
    (3, Algo::Sha256),
    (4, Algo::Sha512),
    (5, Algo::Crc32),
    (6, Algo::Crc32c),
    (7, Algo::Crc64Nvme),
    (8, Algo::Blake3),
    (9, Algo::Xxh3),
    (10, Algo::Xxh128),
    (11, Algo::QuickXor),
    (12, Algo::Dropbox),
];

/// Where the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the pack of this id, from this byte on.
    Packed { pack: Arc<str>, offset: u64 },
    /// A file stored separately, in the folder of this id.
    Plain { folder: Arc<str> },
}

/// An index's facts about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub place: Location,
    pub size: u64,
    pub mtime: Mtime,
    pub hashes: Hashes,
    pub meta: Option<Box<Meta>>,
}

/// An index's statement about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexEntry {
    /// These bytes are there.
    Stored(Facts),
    /// Whatever was there is deleted.
    Deleted,
    /// The bytes at this place are deleted, and what they had replaced; not what another writer stored meanwhile.
    DeletedAt(Location),
}

/// One key of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Vec<u8>,
    pub entry: IndexEntry,
}

/// Header of an index, before the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Its own id, so that a file under a wrong name is noticed.
    pub id: String,
    /// Length of the pack's tar; 0 when it has none.
    pub tar: u64,
    /// The indexes that its writer knew of and that no other names here: were one lost, this would tell.
    pub previous: Vec<String>,
    /// Indexes whose records this one holds, so that they may be missing, and don't count where they are there.
    pub replaces: Vec<String>,
}

/// An index, read and checked.
#[derive(Debug)]
pub struct Index {
    pub head: Head,
    /// Ids that records name by number.
    ids: Vec<Arc<str>>,
    /// How long the pack of each of them is at least, by the files that are in it; 0 where none is.
    ends: Vec<u64>,
    /// It says of files that they aren't packed.
    pub has_plain: bool,
    bytes: Bytes,
    /// Where each record begins.
    starts: Vec<u32>,
}

/// All indexes, the newest last.
pub type Indexes = Arc<Vec<Arc<Index>>>;

impl Location {
    /// The id of the pack or folder.
    pub fn id(&self) -> &str {
        match self {
            Location::Packed { pack, .. } => pack,
            Location::Plain { folder } => folder,
        }
    }
}

impl IndexEntry {
    /// Of what is stored.
    pub fn facts(self) -> Option<Facts> {
        match self {
            IndexEntry::Stored(facts) => Some(facts),
            IndexEntry::Deleted | IndexEntry::DeletedAt(_) => None,
        }
    }

    fn place(&self) -> Option<&Location> {
        match self {
            IndexEntry::Stored(facts) => Some(&facts.place),
            IndexEntry::DeletedAt(place) => Some(place),
            IndexEntry::Deleted => None,
        }
    }
}

/// The valid facts of a key with records in several indexes: ids of indexes with their statements, the newest first.
///
/// A version counts from the index that first named it. New facts of a version don't make it newer, and the deletion of a version
/// ends that one and those it had replaced: so a change of known facts hides no file that another run stored meanwhile.
pub fn decide(entries: &[(&str, IndexEntry)]) -> Option<Facts> {
    let since = |place: &Location| {
        let naming =
            entries.iter().filter(|(_, entry)| matches!(entry, IndexEntry::Stored(facts) if facts.place == *place));
        // A pack has the id of the index that came with it, which may be part of another by now.
        let packed = matches!(place, Location::Packed { .. }).then(|| place.id());
        naming.map(|(id, _)| *id).chain(packed).min().unwrap_or(place.id()).to_string()
    };
    // Of what is equally new, what the newest index says.
    let mut last: Option<(String, &IndexEntry)> = None;
    for (id, entry) in entries {
        let since = entry.place().map_or_else(|| id.to_string(), since);
        if last.as_ref().is_none_or(|(newest, _)| *newest < since) {
            last = Some((since, entry));
        }
    }
    let (_, IndexEntry::Stored(facts)) = last? else { return None };
    let deleted = entries.iter().any(|(_, entry)| *entry == IndexEntry::DeletedAt(facts.place.clone()));
    (!deleted).then(|| facts.clone())
}

/// The valid facts of a key, of all indexes with records of it; the newest index last.
pub fn find(indexes: &[Arc<Index>], full: &[u8]) -> Option<Facts> {
    let mut found: Vec<(&str, IndexEntry)> = Vec::new();
    // No version that is first named before this is as new as one that was found; and none of the folders that were found is
    // named before that.
    let (mut newest, mut folders) = (String::new(), None::<String>);
    for index in indexes.iter().rev() {
        let id = &index.head.id;
        if *id < newest && folders.as_ref().is_none_or(|folders| id < folders) {
            break;
        }
        let Some(entry) = index.find(full) else { continue };
        newest = newest.max(entry.place().map_or(id.as_str(), Location::id).to_string());
        if let Some(Location::Plain { folder }) = entry.place() {
            folders = Some(folders.map_or(folder.to_string(), |known| known.min(folder.to_string())));
        }
        found.push((id, entry));
    }
    decide(&found)
}

impl Facts {
    /// Pins the content: places are never written twice.
    pub fn version(&self) -> Version {
        match &self.place {
            Location::Packed { pack, offset } => Version::new(format!("{pack}+{offset}")),
            Location::Plain { folder } => Version::new(&**folder),
        }
    }

    pub fn entry(&self, key: Key, with_meta: bool) -> Entry {
        Entry {
            mtime: Some(self.mtime),
            version: Some(self.version()),
            hashes: self.hashes.clone(),
            meta: self.meta.clone().filter(|_| with_meta),
            ..Entry::file(key, self.size)
        }
    }
}

/// The bytes of an index. `records` must be in key order, each key once.
pub fn encode(head: &Head, records: &[Record]) -> Vec<u8> {
    let mut ids = Ids::default();
    let mut body = Vec::with_capacity(records.len() * 96);
    for record in records {
        encode_record(record, &mut ids, &mut body);
    }
    let mut out = [&MAGIC[..], &VERSION].concat();
    text(&mut out, head.id.as_bytes());
    number(&mut out, head.tar);
    texts(&mut out, &head.previous);
    texts(&mut out, &head.replaces);
    texts(&mut out, &ids.named);
    number(&mut out, records.len() as u64);
    out.extend(body);
    let sum = checksum(&out);
    out.extend(sum);
    out
}

fn checksum(bytes: &[u8]) -> Vec<u8> {
    hash_bytes(&[Algo::Crc64Nvme], bytes).get(Algo::Crc64Nvme).unwrap_or_default().to_vec()
}

/// Ids that records refer to by number. Each large file has its own, so there may be as many as records.
#[derive(Default)]
struct Ids {
    named: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
}

impl Ids {
    fn number(&mut self, id: &Arc<str>) -> u64 {
        *self.numbers.entry(id.clone()).or_insert_with(|| {
            self.named.push(id.clone());
            self.named.len() as u64 - 1
        })
    }
}

fn encode_record(record: &Record, ids: &mut Ids, out: &mut Vec<u8>) {
    text(out, &record.key);
    let deleted = matches!(record.entry, IndexEntry::DeletedAt(_));
    match record.entry.place() {
        None => out.push(0),
        Some(Location::Packed { pack, offset }) => {
            out.push(if deleted { 3 } else { 1 });
            number(out, ids.number(pack));
            number(out, *offset);
        }
        Some(Location::Plain { folder }) => {
            out.push(if deleted { 4 } else { 2 });
            number(out, ids.number(folder));
        }
    }
    let IndexEntry::Stored(facts) = &record.entry else { return };
    number(out, facts.size);
    let secs = facts.mtime.secs();
    number(out, ((secs << 1) ^ (secs >> 63)) as u64);
    number(out, u64::from(facts.mtime.nanos()));
    let known: Vec<_> =
        facts.hashes.iter().filter_map(|(a, value)| Some((ALGOS.iter().find(|(_, b)| a == *b)?.0, value))).collect();
    out.push(known.len() as u8);
    for (algo, value) in known {
        out.push(algo);
        out.extend(value);
    }
    let none = Meta::new();
    let meta = facts.meta.as_deref().unwrap_or(&none);
    number(out, meta.len() as u64);
    for (name, value) in meta {
        text(out, name.as_bytes());
        text(out, value.as_bytes());
    }
}

/// Seven bits a byte, the lowest first; all but the last have the eighth bit set.
fn number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend(bytes);
}

fn texts(out: &mut Vec<u8>, texts: &[impl AsRef<str>]) {
    number(out, texts.len() as u64);
    texts.iter().for_each(|each| text(out, each.as_ref().as_bytes()));
}

/// Reads from the front of bytes; `None` when they end or can't be right.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn number(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }

    fn string(&mut self) -> Option<String> {
        String::from_utf8(self.text()?.to_vec()).ok()
    }

    /// A count of things that take a byte each at least.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|n| *n <= self.bytes.len())
    }

    fn strings(&mut self) -> Option<Vec<String>> {
        (0..self.count()?).map(|_| self.string()).collect()
    }

    /// A record, and the number of the id that it names.
    fn record(&mut self, ids: &[Arc<str>]) -> Option<(Record, usize)> {
        let key = self.text()?.to_vec();
        let kind = self.byte()?;
        if kind == 0 {
            return Some((Record { key, entry: IndexEntry::Deleted }, 0));
        }
        let named = self.count()?;
        let id = ids.get(named)?.clone();
        let place = match kind {
            1 | 3 => Location::Packed { pack: id, offset: self.number()? },
            2 | 4 => Location::Plain { folder: id },
            _ => return None,
        };
        if kind > 2 {
            return Some((Record { key, entry: IndexEntry::DeletedAt(place) }, named));
        }
        let size = self.number()?;
        let (secs, nanos) = (self.number()?, u32::try_from(self.number()?).ok()?);
        let secs = (secs >> 1) as i64 ^ -((secs & 1) as i64);
        let mut hashes = Hashes::default();
        for _ in 0..self.byte()? {
            let number = self.byte()?;
            let (_, algo) = ALGOS.iter().find(|(n, _)| *n == number)?;
            hashes.set(*algo, self.take(algo.size())?);
        }
        let mut meta = Meta::new();
        for _ in 0..self.count()? {
            meta.insert(self.string()?, self.string()?);
        }
        let meta = (!meta.is_empty()).then(|| Box::new(meta));
        let facts = Facts { place, size, mtime: Mtime::new(secs, nanos), hashes, meta };
        Some((Record { key, entry: IndexEntry::Stored(facts) }, named))
    }
}

impl Index {
    /// Reads an index and checks all of it: checksum, format, order of keys, and that it is the one of this id.
    ///
    /// Errors: what is wrong, in a few words.
    pub fn read(id: &str, bytes: Bytes) -> Result<Index, &'static str> {
        let whole = bytes.len().checked_sub(SUM).ok_or("it is too short")?;
        if !bytes.starts_with(MAGIC) {
            return Err("it isn't an index");
        }
        if checksum(&bytes[..whole]) != bytes[whole..] {
            return Err("its checksum is wrong");
        }
        let version = &bytes[MAGIC.len()..whole.max(MAGIC.len()).min(MAGIC.len() + VERSION.len())];
        if version != VERSION && version != FIRST_VERSION {
            return Err("its format is newer than this haul knows");
        }
        let index = Index::parse(bytes.slice(..whole)).ok_or("what it says can't be right")?;
        if index.head.id != id { Err("it is the index of another pack") } else { Ok(index) }
    }

    fn parse(bytes: Bytes) -> Option<Index> {
        let first = bytes[MAGIC.len()..].starts_with(&FIRST_VERSION);
        let mut input = Input { bytes: &bytes, at: MAGIC.len() + VERSION.len() };
        let (id, tar) = (input.string()?, input.number()?);
        let previous = match first {
            true => Some(input.string()?).filter(|id| !id.is_empty()).into_iter().collect(),
            false => input.strings()?,
        };
        let replaces = input.strings()?;
        let ids = input.strings()?.into_iter().map(Into::into).collect::<Vec<Arc<str>>>();
        let count = input.count()?;
        let mut starts = Vec::with_capacity(count);
        let mut last: Option<Vec<u8>> = None;
        let (mut ends, mut has_plain) = (vec![0; ids.len()], false);
        for _ in 0..count {
            starts.push(u32::try_from(input.at).ok()?);
            let (record, number) = input.record(&ids)?;
            if let IndexEntry::Stored(Facts { place, size, .. }) = &record.entry {
                match place {
                    Location::Packed { offset, .. } => ends[number] = ends[number].max(offset.saturating_add(*size)),
                    Location::Plain { .. } => has_plain = true,
                }
            }
            if last.as_ref().is_some_and(|last| *last >= record.key) {
                return None;
            }
            last = Some(record.key);
        }
        if input.at != bytes.len() {
            return None;
        }
        Some(Index { head: Head { id, tar, previous, replaces }, ids, ends, has_plain, bytes, starts })
    }

    /// The packs in which it says that files are, and how long each must be at least for that, in bytes.
    pub fn packs(&self) -> impl Iterator<Item = (&str, u64)> {
        self.ids.iter().map(|id| &**id).zip(self.ends.iter().copied()).filter(|(_, end)| *end > 0)
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The key of record `number`, in order.
    pub fn key(&self, number: usize) -> &[u8] {
        let mut input = Input { bytes: &self.bytes, at: self.starts[number] as usize };
        input.text().unwrap_or_default()
    }

    /// The key of record `number`, as shared bytes without a copy.
    pub fn shared_key(&self, number: usize) -> Bytes {
        self.bytes.slice_ref(self.key(number))
    }

    /// The statement of record `number`.
    pub fn entry_at(&self, number: usize) -> Option<IndexEntry> {
        Some(Input { bytes: &self.bytes, at: self.starts[number] as usize }.record(&self.ids)?.0.entry)
    }

    /// The number of the first record whose key isn't before `key`.
    pub fn from(&self, key: &[u8]) -> usize {
        let Range { mut start, mut end } = 0..self.len();
        while start < end {
            let middle = start + (end - start) / 2;
            match self.key(middle).cmp(key) {
                Ordering::Less => start = middle + 1,
                _ => end = middle,
            }
        }
        start
    }

    /// The statement about a key, if any.
    pub fn find(&self, key: &[u8]) -> Option<IndexEntry> {
        let number = self.from(key);
        (number < self.len() && self.key(number) == key).then(|| self.entry_at(number))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let hashes = hash_bytes(&[Algo::Md5, Algo::Crc64Nvme], b"x");
        let meta = Some(Box::new(Meta::from([("mode".into(), "100644".into())])));
        let facts = |place, mtime| Facts { place, size: 70_000, mtime, hashes: hashes.clone(), meta: meta.clone() };
        vec![
            record(b"a/\xff", IndexEntry::Stored(facts(packed("p1", 512), Mtime(-1)))),
            record(b"b", IndexEntry::Deleted),
            record(b"c", IndexEntry::Stored(facts(plain("f"), Mtime::new(1 << 40, 7)))),
            record(b"d", IndexEntry::Stored(Facts { meta: None, ..facts(packed("p1", u64::MAX), Mtime(0)) })),
            record(b"e", IndexEntry::DeletedAt(packed("p2", 300))),
            record(b"f", IndexEntry::DeletedAt(plain("f"))),
        ]
    }

    fn record(key: &[u8], entry: IndexEntry) -> Record {
        Record { key: key.into(), entry }
    }

    fn plain(folder: &str) -> Location {
        Location::Plain { folder: folder.into() }
    }

    fn packed(pack: &str, offset: u64) -> Location {
        Location::Packed { pack: pack.into(), offset }
    }

    fn head() -> Head {
        Head {
            id: "id".into(),
            tar: 9,
            previous: vec!["before".into(), "beside".into()],
            replaces: vec!["x".into(), "y".into()],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let index = Index::read("id", encode(&head(), &records()).into()).unwrap();
        assert_eq!(index.head, head());
        assert_eq!(index.len(), 6);
        for (number, record) in records().into_iter().enumerate() {
            assert_eq!(index.key(number), record.key);
            assert_eq!(index.find(&record.key), Some(record.entry));
        }
        assert_eq!(index.find(b"aa"), None);
        assert_eq!(index.find(b"z"), None);
        assert_eq!((index.from(b""), index.from(b"bb"), index.from(b"z")), (0, 2, 6));
        assert_eq!(index.ids.iter().map(|id| &**id).collect::<Vec<_>>(), ["p1", "f", "p2"]);
    }

    #[test]
    fn the_format_stays_as_it_is() {
        let facts = Facts {
            place: packed("id", 300),
            size: 5,
            mtime: Mtime::new(-2, 1),
            hashes: Hashes::default().with(Algo::Crc32, [1, 2, 3, 4]),
            meta: None,
        };
        let head = Head { id: "id".into(), tar: 128, previous: vec!["p".into()], replaces: Vec::new() };
        let records = [record(b"k", IndexEntry::Stored(facts)), record(b"l", IndexEntry::DeletedAt(plain("f")))];
        let bytes = encode(&head, &records);
        let stored = b"\x01k\x01\x00\xac\x02\x05\x03\x01\x01\x05\x01\x02\x03\x04\x00";
        let now = b"haulpk\x00\x02\x02id\x80\x01\x01\x01p\x00\x02\x02id\x01f\x02";
        assert_eq!(bytes[..bytes.len() - SUM], [&now[..], stored, b"\x01l\x04\x01"].concat());
        // The format of the first version.
        let mut first = [&b"haulpk\x00\x01\x02id\x80\x01\x01p\x00\x01\x02id\x01"[..], stored].concat();
        first.extend(checksum(&first));
        let read = Index::read("id", first.into()).unwrap();
        assert_eq!((&read.head, read.len(), read.entry_at(0)), (&head, 1, Some(records[0].entry.clone())));
    }

    /// Ids and what they say, the newest first.
    fn holds(entries: &[(&str, IndexEntry)]) -> Option<(Location, i128)> {
        let indexes: Vec<Arc<Index>> = entries
            .iter()
            .rev()
            .map(|(id, entry)| {
                let head = Head { id: id.to_string(), ..Head::default() };
                Arc::new(Index::read(id, encode(&head, &[record(b"k", entry.clone())]).into()).unwrap())
            })
            .collect();
        let facts = find(&indexes, b"k");
        assert_eq!(facts, decide(entries), "found by what is needed as by all");
        facts.map(|facts| (facts.place, facts.mtime.0))
    }

    #[test]
    fn a_change_of_known_facts_hides_no_newer_version() {
        let stored = |place: &Location, mtime| {
            IndexEntry::Stored(Facts {
                place: place.clone(),
                size: 1,
                mtime: Mtime(mtime),
                hashes: Hashes::default(),
                meta: None,
            })
        };
        let (p1, p2, f0) = (packed("1", 0), packed("2", 0), plain("0"));
        assert_eq!(holds(&[]), None);
        assert_eq!(holds(&[("2", stored(&p2, 2)), ("1", stored(&p1, 1))]), Some((p2.clone(), 2)), "the later one");
        assert_eq!(holds(&[("3", stored(&p1, 3)), ("1", stored(&p1, 1))]), Some((p1.clone(), 3)), "the newest facts");
        let touched = [("3", stored(&p1, 3)), ("2", stored(&p2, 2)), ("1", stored(&p1, 1))];
        assert_eq!(holds(&touched), Some((p2.clone(), 2)), "the touch didn't know the new version");
        assert_eq!(holds(&touched[..2]), Some((p2.clone(), 2)), "nor when the first index is part of another");
        assert_eq!(holds(&[("3", IndexEntry::Deleted), ("2", stored(&p2, 2))]), None);
        assert_eq!(
            holds(&[("3", stored(&p1, 3)), ("2", IndexEntry::Deleted), ("1", stored(&p1, 1))]),
            None,
            "it stays gone"
        );
        let deleted = |place: &Location| IndexEntry::DeletedAt(place.clone());
        assert_eq!(holds(&[("3", deleted(&p2)), ("2", stored(&p2, 2)), ("1", stored(&p1, 1))]), None);
        assert_eq!(holds(&[("3", deleted(&p2)), ("1", stored(&p1, 1))]), None, "what it had replaced stays replaced");
        assert_eq!(
            holds(&[("3", deleted(&p1)), ("2", stored(&p2, 2)), ("1", stored(&p1, 1))]),
            Some((p2.clone(), 2)),
            "another version was deleted"
        );
        // A separately stored file counts from the index that names it, not from when its write began.
        assert_eq!(holds(&[("2", stored(&f0, 2)), ("1", stored(&p1, 1))]), Some((f0.clone(), 2)));
        assert_eq!(holds(&[("2", stored(&f0, 2)), ("1", IndexEntry::Deleted)]), Some((f0.clone(), 2)));
        assert_eq!(
            holds(&[("3", stored(&f0, 3)), ("2", stored(&p2, 2)), ("1", stored(&f0, 1))]),
            Some((p2, 2)),
            "nor from its new facts"
        );
        assert_eq!(holds(&[("3", deleted(&f0)), ("2", stored(&f0, 2)), ("1", stored(&p1, 1))]), None);
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let good = encode(&head(), &records());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(Index::read("id", bad.into()).is_err(), "byte {at}");
            assert!(Index::read("id", good[..at].to_vec().into()).is_err(), "cut to {at}");
        }
        assert_eq!(Index::read("other", good.into()).err(), Some("it is the index of another pack"));
    }

    #[test]
    fn what_cannot_be_right_is_refused_whatever_its_checksum() {
        let mut records = records();
        records.swap(0, 1);
        assert!(Index::read("id", encode(&head(), &records).into()).is_err(), "keys out of order");
        let mut huge = [&MAGIC[..], &VERSION].concat();
        huge.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        let sum = checksum(&huge);
        huge.extend(sum);
        assert!(Index::read("", huge.into()).is_err(), "a count without its things");
    }
}
