//! The index of one pack: which keys it sets, and where their bytes are. Bytes in, facts out; no I/O.
//!
//! The format (docs/adr/0008-packs.md describes it for others): a head, records in bytewise key order, each key once, and
//! a CRC-64/NVME of all that. An index stays in memory as it was read, with four bytes more for each record.

use bytes::Bytes;
use haul_core::{Algo, Entry, Hashes, Key, Meta, Mtime, Version, hash::hash_bytes};
use std::{cmp::Ordering, ops::Range, sync::Arc};

/// The first bytes of every index: name and version of the format.
const MAGIC: &[u8; 8] = b"haulpk\x00\x01";
/// Bytes of the checksum at the end.
const SUM: usize = 8;

/// Numbers of hashes in the format. Never change one.
const ALGOS: [(u8, Algo); 10] = [
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
];

/// Where the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the pack of this id, from this byte on.
    Packed { pack: Arc<str>, offset: u64 },
    /// A file of its own, in the folder of this id.
    Plain { folder: Arc<str> },
}

/// What an index says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub place: Place,
    pub size: u64,
    pub mtime: Mtime,
    pub hashes: Hashes,
    pub meta: Option<Box<Meta>>,
}

/// One key of an index; without facts it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Vec<u8>,
    pub facts: Option<Facts>,
}

/// What stands before the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Its own id, so that a file under a wrong name is noticed.
    pub id: String,
    /// Length of the pack's tar; 0 when it has none.
    pub tar: u64,
    /// The newest index that its writer knew of, empty if none: were it lost, this would tell.
    pub previous: String,
    /// Indexes whose records this one holds, so that they may be missing.
    pub replaces: Vec<String>,
}

/// An index, read and checked.
#[derive(Debug)]
pub struct Index {
    pub head: Head,
    /// Ids that records name by number.
    ids: Vec<Arc<str>>,
    bytes: Bytes,
    /// Where each record begins.
    starts: Vec<u32>,
}

impl Facts {
    /// Pins the content: places are never written twice.
    pub fn version(&self) -> Version {
        match &self.place {
            Place::Packed { pack, offset } => Version::new(format!("{pack}+{offset}")),
            Place::Plain { folder } => Version::new(&**folder),
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
    let mut ids: Vec<Arc<str>> = Vec::new();
    let mut body = Vec::with_capacity(records.len() * 96);
    for record in records {
        encode_record(record, &mut ids, &mut body);
    }
    let mut out = MAGIC.to_vec();
    text(&mut out, head.id.as_bytes());
    number(&mut out, head.tar);
    text(&mut out, head.previous.as_bytes());
    number(&mut out, head.replaces.len() as u64);
    head.replaces.iter().for_each(|id| text(&mut out, id.as_bytes()));
    number(&mut out, ids.len() as u64);
    ids.iter().for_each(|id| text(&mut out, id.as_bytes()));
    number(&mut out, records.len() as u64);
    out.extend(body);
    let sum = checksum(&out);
    out.extend(sum);
    out
}

fn checksum(bytes: &[u8]) -> Vec<u8> {
    hash_bytes(&[Algo::Crc64Nvme], bytes).get(Algo::Crc64Nvme).unwrap_or_default().to_vec()
}

fn encode_record(record: &Record, ids: &mut Vec<Arc<str>>, out: &mut Vec<u8>) {
    let mut id_number = |id: &Arc<str>| match ids.iter().rposition(|known| known == id) {
        Some(at) => at as u64,
        None => {
            ids.push(id.clone());
            ids.len() as u64 - 1
        }
    };
    text(out, &record.key);
    let Some(facts) = &record.facts else {
        out.push(0);
        return;
    };
    match &facts.place {
        Place::Packed { pack, offset } => {
            out.push(1);
            number(out, id_number(pack));
            number(out, *offset);
        }
        Place::Plain { folder } => {
            out.push(2);
            number(out, id_number(folder));
        }
    }
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

    fn record(&mut self, ids: &[Arc<str>]) -> Option<Record> {
        let key = self.text()?.to_vec();
        let place = match self.byte()? {
            0 => return Some(Record { key, facts: None }),
            1 => {
                let pack = ids.get(self.count()?)?.clone();
                Place::Packed { pack, offset: self.number()? }
            }
            2 => Place::Plain { folder: ids.get(self.count()?)?.clone() },
            _ => return None,
        };
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
        Some(Record { key, facts: Some(Facts { place, size, mtime: Mtime::new(secs, nanos), hashes, meta }) })
    }
}

impl Index {
    /// Reads an index and checks all of it: checksum, format, order of keys, and that it is the one of this id.
    ///
    /// Errors: what is wrong, in a few words.
    pub fn read(id: &str, bytes: Bytes) -> Result<Index, &'static str> {
        let whole = bytes.len().checked_sub(SUM).ok_or("it is too short")?;
        if !bytes.starts_with(&MAGIC[..6]) {
            return Err("it isn't an index");
        }
        if checksum(&bytes[..whole]) != bytes[whole..] {
            return Err("its checksum is wrong");
        }
        if !bytes.starts_with(MAGIC) {
            return Err("its format is newer than this haul knows");
        }
        let index = Index::parse(bytes.slice(..whole)).ok_or("what it says can't be right")?;
        if index.head.id != id { Err("it is the index of another pack") } else { Ok(index) }
    }

    fn parse(bytes: Bytes) -> Option<Index> {
        let mut input = Input { bytes: &bytes, at: MAGIC.len() };
        let (id, tar, previous) = (input.string()?, input.number()?, input.string()?);
        let replaces = (0..input.count()?).map(|_| input.string()).collect::<Option<Vec<_>>>()?;
        let ids = (0..input.count()?).map(|_| Some(input.string()?.into())).collect::<Option<Vec<Arc<str>>>>()?;
        let count = input.count()?;
        let mut starts = Vec::with_capacity(count);
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..count {
            starts.push(u32::try_from(input.at).ok()?);
            let record = input.record(&ids)?;
            if last.as_ref().is_some_and(|last| *last >= record.key) {
                return None;
            }
            last = Some(record.key);
        }
        if input.at != bytes.len() {
            return None;
        }
        Some(Index { head: Head { id, tar, previous, replaces }, ids, bytes, starts })
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

    /// The same, to be kept without a copy.
    pub fn shared_key(&self, number: usize) -> Bytes {
        self.bytes.slice_ref(self.key(number))
    }

    /// The facts of record `number`; `None` when the key is deleted.
    pub fn facts(&self, number: usize) -> Option<Facts> {
        Input { bytes: &self.bytes, at: self.starts[number] as usize }.record(&self.ids)?.facts
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

    /// What it says of a key: nothing, deleted, or the facts.
    pub fn find(&self, key: &[u8]) -> Option<Option<Facts>> {
        let number = self.from(key);
        (number < self.len() && self.key(number) == key).then(|| self.facts(number))
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
            Record { key: b"a/\xff".into(), facts: Some(facts(packed("p1", 512), Mtime(-1))) },
            Record { key: b"b".into(), facts: None },
            Record {
                key: b"c".into(),
                facts: Some(facts(Place::Plain { folder: "f".into() }, Mtime::new(1 << 40, 7))),
            },
            Record { key: b"d".into(), facts: Some(Facts { meta: None, ..facts(packed("p1", u64::MAX), Mtime(0)) }) },
        ]
    }

    fn packed(pack: &str, offset: u64) -> Place {
        Place::Packed { pack: pack.into(), offset }
    }

    fn head() -> Head {
        Head { id: "id".into(), tar: 9, previous: "before".into(), replaces: vec!["x".into(), "y".into()] }
    }

    #[test]
    fn what_was_written_is_read() {
        let index = Index::read("id", encode(&head(), &records()).into()).unwrap();
        assert_eq!(index.head, head());
        assert_eq!(index.len(), 4);
        for (number, record) in records().into_iter().enumerate() {
            assert_eq!(index.key(number), record.key);
            assert_eq!(index.find(&record.key), Some(record.facts));
        }
        assert_eq!(index.find(b"aa"), None);
        assert_eq!(index.find(b"z"), None);
        assert_eq!((index.from(b""), index.from(b"bb"), index.from(b"z")), (0, 2, 4));
        assert_eq!(index.ids.iter().map(|id| &**id).collect::<Vec<_>>(), ["p1", "f"]);
    }

    #[test]
    fn the_format_stays_as_it_is() {
        let record = Record {
            key: b"k".into(),
            facts: Some(Facts {
                place: packed("id", 300),
                size: 5,
                mtime: Mtime::new(-2, 1),
                hashes: Hashes::default().with(Algo::Crc32, [1, 2, 3, 4]),
                meta: None,
            }),
        };
        let head = Head { id: "id".into(), tar: 128, ..Head::default() };
        let bytes = encode(&head, &[record]);
        let expected = b"haulpk\x00\x01\x02id\x80\x01\x00\x00\x01\x02id\x01\x01k\x01\x00\xac\x02\x05\x03\x01\x01\x05\x01\x02\x03\x04\x00";
        assert_eq!(bytes[..bytes.len() - SUM], expected[..]);
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
        let mut huge = MAGIC.to_vec();
        huge.extend([0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        let sum = checksum(&huge);
        huge.extend(sum);
        assert!(Index::read("", huge.into()).is_err(), "a count without its things");
    }
}
