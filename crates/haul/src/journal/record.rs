//! Records of a journal, and their bytes (docs/adr/0007-journal.md). Pure: bytes in, records out.

use haul_core::{Algo, Key, Mtime, Version, hash::hash_bytes};
use haul_store::{Part, SentPart};
use std::collections::BTreeMap;

/// The first bytes of every journal.
const MAGIC: &[u8; 8] = b"HAULJRNL";
/// Another one can't be read by this program.
pub const MAJOR: u16 = 1;
/// A larger one may hold kinds of records, and fields at the end of records, that this program passes over.
pub const MINOR: u16 = 1;
/// Bytes of the header: magic, major, minor, checksum.
pub const HEADER: usize = 16;
/// Bytes before a record's own: length and checksum.
const FRAME: usize = 8;
/// No record is longer: a key has at most a few thousand bytes, a command line some hundred thousand.
const LONGEST: usize = 16 << 20;

/// Number of a write within its journal.
pub type WriteNumber = u64;

/// A journal's facts about its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInfo {
    /// `copy`, `sync` or `move`.
    pub mode: String,
    /// Where from, free of secrets.
    pub src: String,
    /// Where to, free of secrets.
    pub dst: String,
    /// The command line without the program's name, free of secrets.
    pub argv: Vec<Vec<u8>>,
    /// Nothing had to be left out of `argv`.
    pub complete: bool,
    /// The folder in which it was given.
    pub folder: Vec<u8>,
    /// The destination names the one file that is transferred, not a folder.
    pub names_file: bool,
    /// When it began first.
    pub begun: Mtime,
    /// The machine that ran it last; empty where that isn't known.
    pub host: String,
}

/// A write in parts, as it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedWrite {
    /// The source's key.
    pub from: Key,
    /// Exactly what of it is sent.
    pub version: Version,
    /// Its bytes.
    pub size: u64,
    /// The destination's key.
    pub to: Key,
    /// Bytes of each part but the last.
    pub part_size: u64,
    /// The token that finds the write again.
    pub token: Vec<u8>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first one.
    Job(JobInfo),
    /// A write in parts begins.
    Opened(WriteNumber, StartedWrite),
    /// A part is at the destination.
    Part(WriteNumber, SentPart),
    /// A write was published, or given up and removed.
    Closed(WriteNumber),
    /// The job came to its own end; open writes were left to be resumed.
    End,
}

/// A write that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedWrite {
    /// Its number in the journal.
    pub write: WriteNumber,
    /// How it began.
    pub opened: StartedWrite,
    /// The parts that were sent, by number.
    pub sent: Vec<SentPart>,
}

impl UnfinishedWrite {
    /// Bytes that were sent.
    pub fn bytes(&self) -> u64 {
        self.sent.iter().map(|sent| sent.part.size).sum()
    }
}

/// Contents of a journal, up to the first invalid record.
#[derive(Debug, Default)]
pub struct Contents {
    /// Its job; `None` when not even the first record can be read.
    pub job: Option<JobInfo>,
    /// Writes that have begun and not ended.
    pub open: BTreeMap<WriteNumber, (StartedWrite, BTreeMap<u64, SentPart>)>,
    /// The job came to its own end.
    pub ended: bool,
    /// The number after the last that was used.
    pub next: WriteNumber,
    /// The file has no bytes at all.
    pub is_empty: bool,
    /// Bytes that can be believed.
    pub good: usize,
    /// It was written by a newer program, and may hold what this one passes over.
    pub newer: bool,
}

impl Contents {
    /// The writes that have begun and not ended, in their order.
    pub fn halves(&self) -> Vec<UnfinishedWrite> {
        let half = |(write, (opened, sent)): (&WriteNumber, &(StartedWrite, BTreeMap<u64, SentPart>))| {
            UnfinishedWrite { write: *write, opened: opened.clone(), sent: sent.values().cloned().collect() }
        };
        self.open.iter().map(half).collect()
    }

    /// The shortest journal that says the same.
    pub fn compact(&self) -> Vec<u8> {
        let mut bytes = header();
        let mut put = |record: Record| bytes.extend(record.to_bytes());
        self.job.iter().for_each(|job| put(Record::Job(job.clone())));
        for half in self.halves() {
            put(Record::Opened(half.write, half.opened));
            half.sent.into_iter().for_each(|sent| put(Record::Part(half.write, sent)));
        }
        bytes
    }

    fn take(&mut self, record: Record) {
        self.ended = false;
        match record {
            Record::Job(job) => self.job = Some(job),
            Record::Opened(write, opened) => {
                self.next = self.next.max(write.saturating_add(1));
                self.open.insert(write, (opened, BTreeMap::new()));
            }
            Record::Part(write, sent) => {
                if let Some((_, parts)) = self.open.get_mut(&write) {
                    parts.insert(sent.part.index, sent);
                }
            }
            Record::Closed(write) => drop(self.open.remove(&write)),
            Record::End => self.ended = true,
        }
    }
}

/// A file that is no journal of a version that this program knows: its major version.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownVersion(pub u16);

/// The first bytes of a journal.
pub fn header() -> Vec<u8> {
    header_of(MAJOR, MINOR)
}

fn header_of(major: u16, minor: u16) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(major.to_le_bytes());
    bytes.extend(minor.to_le_bytes());
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// Reads a journal up to the first record that isn't whole: what follows a damage isn't believed.
pub fn read(bytes: &[u8]) -> Result<Contents, UnknownVersion> {
    let mut contents = Contents { is_empty: bytes.is_empty(), ..Contents::default() };
    let Some(head) = bytes.get(..HEADER).filter(|head| head.starts_with(MAGIC)) else { return Ok(contents) };
    let (major, minor) = (u16::from_le_bytes([head[8], head[9]]), u16::from_le_bytes([head[10], head[11]]));
    if head != header_of(major, minor) {
        return Ok(contents);
    }
    if major != MAJOR {
        return Err(UnknownVersion(major));
    }
    contents.newer = minor > MINOR;
    contents.good = HEADER;
    while let Some(body) = frame(&bytes[contents.good..]) {
        match decode(body) {
            Decoded::Record(record) => contents.take(record),
            Decoded::Unknown => {}
            Decoded::Wrong => break,
        }
        contents.good += FRAME + body.len();
    }
    Ok(contents)
}

/// The record at the start of `bytes`; `None` when it is cut off or damaged.
fn frame(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(bytes.get(4..FRAME)?.try_into().ok()?);
    if length == 0 || length > LONGEST {
        return None;
    }
    let body = bytes.get(FRAME..FRAME + length)?;
    (framed_checksum(body) == sum).then_some(body)
}

fn framed_checksum(body: &[u8]) -> u32 {
    checksum(&[&(body.len() as u32).to_le_bytes(), body].concat())
}

fn checksum(bytes: &[u8]) -> u32 {
    let hashes = hash_bytes(&[Algo::Crc32c], bytes);
    hashes.get(Algo::Crc32c).and_then(|c| c.try_into().ok()).map_or(0, u32::from_be_bytes)
}

const JOB: u8 = 1;
const OPENED: u8 = 2;
const PART: u8 = 3;
const CLOSED: u8 = 4;
const END: u8 = 5;

impl Record {
    /// Length, checksum, kind, fields.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = self.body();
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(framed_checksum(&body).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn body(&self) -> Vec<u8> {
        match self {
            Record::Job(job) => {
                let JobInfo { mode, src, dst, argv, complete, folder, names_file, begun, host } = job;
                let mut out = Out::new(JOB);
                out.bytes(mode.as_bytes()).bytes(src.as_bytes()).bytes(dst.as_bytes()).bytes(folder);
                out.bytes(&begun.0.to_le_bytes()).number(u64::from(*complete)).number(u64::from(*names_file));
                out.number(argv.len() as u64);
                argv.iter().fold(&mut out, |out, word| out.bytes(word)).bytes(host.as_bytes());
                out.0
            }
            Record::Opened(write, opened) => {
                let StartedWrite { from, version, size, to, part_size, token } = opened;
                let mut out = Out::new(OPENED);
                out.number(*write).bytes(from.as_bytes()).bytes(&version.0).number(*size);
                out.bytes(to.as_bytes()).number(*part_size).bytes(token);
                out.0
            }
            Record::Part(write, SentPart { part, offset, crc64 }) => {
                let mut out = Out::new(PART);
                out.number(*write).number(part.index).number(part.size).number(*offset).number(*crc64).bytes(&part.tag);
                out.0
            }
            Record::Closed(write) => {
                let mut out = Out::new(CLOSED);
                out.number(*write);
                out.0
            }
            Record::End => Out::new(END).0,
        }
    }
}

enum Decoded {
    Record(Record),
    /// Of a kind that a newer program writes.
    Unknown,
    /// Its checksum is right but its fields aren't: written by a program with a fault.
    Wrong,
}

fn decode(body: &[u8]) -> Decoded {
    let Some((kind, fields)) = body.split_first() else { return Decoded::Wrong };
    let mut fields = In(fields);
    let record = match *kind {
        JOB => fields.job().map(Record::Job),
        OPENED => fields.opened(),
        PART => fields.part(),
        CLOSED => fields.number().map(Record::Closed),
        END => Some(Record::End),
        _ => return Decoded::Unknown,
    };
    record.map_or(Decoded::Wrong, Decoded::Record)
}

/// Fields one after another: numbers as 8 bytes, little-endian; bytes after their length in 4.
struct Out(Vec<u8>);

impl Out {
    fn new(kind: u8) -> Self {
        Out(vec![kind])
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend((bytes.len() as u32).to_le_bytes());
        self.0.extend(bytes);
        self
    }
}

/// The reverse. What is left at the end, a newer program wrote.
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn job(&mut self) -> Option<JobInfo> {
        let (mode, src, dst, folder) = (self.text()?, self.text()?, self.text()?, self.bytes()?.to_vec());
        let begun = Mtime(i128::from_le_bytes(self.bytes()?.try_into().ok()?));
        let (complete, names_file) = (self.number()? != 0, self.number()? != 0);
        let count = self.number()?;
        let argv = (0..count).map(|_| self.bytes().map(<[u8]>::to_vec)).collect::<Option<_>>()?;
        // Format 1.0 ended here.
        let host = if self.0.is_empty() { String::new() } else { self.text()? };
        Some(JobInfo { mode, src, dst, argv, complete, folder, names_file, begun, host })
    }

    fn opened(&mut self) -> Option<Record> {
        let write = self.number()?;
        let opened = StartedWrite {
            from: Key::new(self.bytes()?),
            version: Version::new(self.bytes()?),
            size: self.number()?,
            to: Key::new(self.bytes()?),
            part_size: self.number()?,
            token: self.bytes()?.to_vec(),
        };
        Some(Record::Opened(write, opened))
    }

    fn part(&mut self) -> Option<Record> {
        let (write, index, size) = (self.number()?, self.number()?, self.number()?);
        let (offset, crc64, tag) = (self.number()?, self.number()?, self.bytes()?.to_vec());
        Some(Record::Part(write, SentPart { part: Part { index, size, tag }, offset, crc64 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> JobInfo {
        JobInfo {
            mode: "copy".into(),
            src: "/data".into(),
            dst: "r:b".into(),
            argv: vec![b"copy".to_vec(), b"/data\xff".to_vec()],
            complete: true,
            folder: b"/home/x".to_vec(),
            names_file: true,
            begun: Mtime(-5),
            host: "node7".into(),
        }
    }

    fn opened(to: &str) -> StartedWrite {
        StartedWrite {
            from: Key::new(b"a\n\xff"),
            version: Version::new([1, 2, 3]),
            size: 30,
            to: Key::new(to),
            part_size: 10,
            token: b"token".to_vec(),
        }
    }

    fn sent(index: u64) -> SentPart {
        SentPart { part: Part { index, size: 10, tag: vec![index as u8; 3] }, offset: index * 10, crc64: index << 60 }
    }

    fn records() -> Vec<Record> {
        vec![
            Record::Job(job()),
            Record::Opened(0, opened("x")),
            Record::Part(0, sent(1)),
            Record::Opened(1, opened("y")),
            Record::Part(1, sent(0)),
            Record::Part(0, sent(0)),
            Record::Closed(1),
            Record::End,
        ]
    }

    fn journal(records: &[Record]) -> Vec<u8> {
        [header(), records.iter().flat_map(Record::to_bytes).collect()].concat()
    }

    #[test]
    fn records_read_back() {
        let bytes = journal(&records());
        let contents = read(&bytes).unwrap();
        assert_eq!((contents.good, contents.next, contents.ended, contents.newer), (bytes.len(), 2, true, false));
        assert_eq!(contents.job, Some(job()));
        let half = UnfinishedWrite { write: 0, opened: opened("x"), sent: vec![sent(0), sent(1)] };
        assert_eq!(half.bytes(), 20);
        assert_eq!(contents.halves(), [half]);
        let again = read(&contents.compact()).unwrap();
        assert_eq!((again.halves(), again.job), (contents.halves(), Some(job())));
    }

    #[test]
    fn whatever_is_cut_off_the_rest_before_it_is_believed() {
        let bytes = journal(&records());
        let ends: Vec<usize> =
            records().iter().scan(HEADER, |at, r| Some((*at, *at += r.to_bytes().len()).0)).collect();
        for cut in 0..bytes.len() {
            let contents = read(&bytes[..cut]).unwrap();
            let good = ends.iter().rev().find(|end| **end <= cut).copied().unwrap_or(0);
            assert_eq!(contents.good, good, "cut at {cut}");
        }
    }

    /// A flipped bit anywhere: what is read is what a journal said that ended somewhere before it.
    #[test]
    fn nothing_is_believed_from_a_damage_on() {
        let records = records();
        let bytes = journal(&records);
        let whole: Vec<_> = (0..=records.len()).map(|n| read(&journal(&records[..n])).unwrap().halves()).collect();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let contents = read(&bytes).unwrap();
                assert!(contents.good <= at, "a flipped bit in byte {at} was believed");
                assert!(whole.contains(&contents.halves()));
            }
        }
        // Blocks that were given to the file but never written are zeros.
        let torn = [&bytes[..], &[0; 4096]].concat();
        assert_eq!(read(&torn).unwrap().good, bytes.len());
    }

    #[test]
    fn what_a_newer_program_wrote_is_passed_over() {
        let body = [&Record::Opened(0, opened("x")).body()[..], b"a field more"].concat();
        let mut longer = (body.len() as u32).to_le_bytes().to_vec();
        longer.extend(framed_checksum(&body).to_le_bytes());
        longer.extend(body);
        let mut unknown = 3u32.to_le_bytes().to_vec();
        unknown.extend(framed_checksum(&[200, 1, 2]).to_le_bytes());
        unknown.extend([200, 1, 2]);
        let part = Record::Part(0, sent(0)).to_bytes();
        let bytes = [header_of(MAJOR, MINOR + 1), longer, unknown, part].concat();
        let contents = read(&bytes).unwrap();
        assert_eq!((contents.good, contents.newer), (bytes.len(), true));
        assert_eq!(contents.halves(), [UnfinishedWrite { write: 0, opened: opened("x"), sent: vec![sent(0)] }]);
        assert_eq!(read(&header_of(MAJOR + 1, 0)).unwrap_err(), UnknownVersion(MAJOR + 1));
    }
}
