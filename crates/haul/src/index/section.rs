//! Sorted records of keys in a part of a file: in blocks, each with a checksum, then a table of them, then a foot that holds the
//! checksum of the table. Written once, in order; read from any key on. And several of them as one, the newer before the older.

use super::record;
use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    os::unix::fs::FileExt,
    sync::Arc,
};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block, about: some 300 keys. What is looked for in it is decoded from its beginning.
const BLOCK: usize = 32 << 10;
const MAGIC: u64 = u64::from_le_bytes(*b"haulsec\x01");
/// The foot: magic, where the table begins, its length, records, the end of the section before, that one's foot's sum, the table's
/// sum, this foot's sum.
pub const FOOT: usize = 8 * 8;

/// A block of a section.
#[derive(Debug)]
struct Block {
    at: u64,
    length: u32,
    count: u32,
    /// When the oldest of its records of existing keys was found out; `u32::MAX` without any.
    oldest: u32,
    sum: u64,
    first: Box<[u8]>,
}

/// A section, opened: its table.
#[derive(Debug)]
pub struct Section {
    file: Arc<File>,
    blocks: Vec<Block>,
    /// Records.
    pub count: u64,
    /// The end of the section before it in the file, and that one's sum; 0 for the first.
    pub before: (u64, u64),
    /// Of its foot: pins all of it.
    pub sum: u64,
}

/// Writes a section.
pub struct SectionWriter<W> {
    out: W,
    at: u64,
    blocks: Vec<Block>,
    block: Vec<u8>,
    first: Vec<u8>,
    last: Vec<u8>,
    count: u32,
    oldest: u32,
}

impl<W: Write> SectionWriter<W> {
    /// Into `out`, whose next byte is the one at `at` of its file.
    pub fn new(out: W, at: u64) -> Self {
        let (block, first, last) = (Vec::new(), Vec::new(), Vec::new());
        SectionWriter { out, at, blocks: Vec::new(), block, first, last, count: 0, oldest: u32::MAX }
    }

    /// The next record. Keys come in order, each once.
    ///
    /// Errors: the file can't be written.
    pub fn push(&mut self, key: &[u8], body: &[u8]) -> io::Result<()> {
        if self.count == 0 {
            self.first = key.to_vec();
            self.last.clear();
        }
        let shared = self.last.iter().zip(key).take_while(|(a, b)| a == b).count();
        for number in [shared, key.len() - shared, body.len()] {
            record::put(&mut self.block, number as u64);
        }
        self.block.extend_from_slice(&key[shared..]);
        self.block.extend_from_slice(body);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.count += 1;
        self.oldest = self.oldest.min(record::minute(body).unwrap_or(u32::MAX));
        if self.block.len() >= BLOCK { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        self.out.write_all(&self.block)?;
        let length = self.block.len() as u32;
        let first = std::mem::take(&mut self.first).into();
        let (at, count, oldest, sum) = (self.at, self.count, self.oldest, xxh3_64(&self.block));
        self.blocks.push(Block { at, length, count, oldest, sum, first });
        self.at += u64::from(length);
        self.block.clear();
        (self.count, self.oldest) = (0, u32::MAX);
        Ok(())
    }

    /// Ends the section; returns its output, the section's end and its sum. `before` is of the section before it.
    ///
    /// Errors: the file can't be written.
    pub fn finish(mut self, before: (u64, u64)) -> io::Result<(W, u64, u64)> {
        self.end_block()?;
        let mut table = Vec::new();
        let mut count = 0;
        for block in &self.blocks {
            for number in [block.at, block.length.into(), block.count.into(), block.oldest.into()] {
                record::put(&mut table, number);
            }
            table.extend_from_slice(&block.sum.to_le_bytes());
            record::put(&mut table, block.first.len() as u64);
            table.extend_from_slice(&block.first);
            count += u64::from(block.count);
        }
        let numbers = [MAGIC, self.at, table.len() as u64, count, before.0, before.1, xxh3_64(&table)];
        let mut foot: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let sum = xxh3_64(&foot);
        foot.extend_from_slice(&sum.to_le_bytes());
        self.out.write_all(&table)?;
        self.out.write_all(&foot)?;
        Ok((self.out, self.at + (table.len() + FOOT) as u64, sum))
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is damaged")
}

impl Section {
    /// The section that ends at `end`, whose foot has this sum; any, with `None`.
    ///
    /// Errors: `InvalidData` when that isn't so; those of reading.
    pub fn open(file: &Arc<File>, end: u64, sum: Option<u64>) -> io::Result<Section> {
        let mut foot = [0; FOOT];
        file.read_exact_at(&mut foot, end.checked_sub(FOOT as u64).ok_or_else(damaged)?)?;
        let number = |n: usize| u64::from_le_bytes(std::array::from_fn(|byte| foot[n * 8 + byte]));
        let own = xxh3_64(&foot[..FOOT - 8]);
        if number(7) != own || sum.is_some_and(|sum| sum != own) || number(0) != MAGIC {
            return Err(damaged());
        }
        let (at, length) = (number(1), number(2));
        if at.checked_add(length).and_then(|to| to.checked_add(FOOT as u64)) != Some(end) {
            return Err(damaged());
        }
        let mut table = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        file.read_exact_at(&mut table, at)?;
        if xxh3_64(&table) != number(6) {
            return Err(damaged());
        }
        let blocks = blocks(&table).ok_or_else(damaged)?;
        Ok(Section { file: file.clone(), blocks, count: number(3), before: (number(4), number(5)), sum: own })
    }

    fn read(&self, number: usize) -> io::Result<Vec<u8>> {
        let block = &self.blocks[number];
        let mut bytes = vec![0; block.length as usize];
        self.file.read_exact_at(&mut bytes, block.at)?;
        if xxh3_64(&bytes) == block.sum { Ok(bytes) } else { Err(damaged()) }
    }

    /// Records in blocks of which none is older than `minute`.
    pub fn fresh(&self, minute: u32) -> u64 {
        self.blocks.iter().filter(|block| block.oldest >= minute).map(|block| u64::from(block.count)).sum()
    }

    /// The key of record `number`, counted from 0.
    ///
    /// Errors: the file can't be read; there are fewer records.
    pub fn key(self: &Arc<Self>, mut number: u64) -> io::Result<Vec<u8>> {
        let at = self.blocks.iter().position(|block| {
            let inside = number < u64::from(block.count);
            number -= if inside { 0 } else { u64::from(block.count) };
            inside
        });
        let mut cursor = Cursor::new(self.clone());
        cursor.next_block = at.ok_or_else(damaged)?;
        for _ in 0..=number {
            cursor.next()?;
        }
        Ok(cursor.key)
    }
}

fn blocks(mut table: &[u8]) -> Option<Vec<Block>> {
    let (rest, mut blocks) = (&mut table, Vec::new());
    while !rest.is_empty() {
        let at = record::take(rest)?;
        let mut short = || u32::try_from(record::take(rest)?).ok();
        let (length, count, oldest) = (short()?, short()?, short()?);
        let sum = u64::from_le_bytes(record::take_bytes(rest, 8)?.try_into().ok()?);
        let key = record::take(rest)?;
        blocks.push(Block { at, length, count, oldest, sum, first: record::take_bytes(rest, key)?.into() });
    }
    Some(blocks)
}

/// A place in a section.
#[derive(Debug)]
pub struct Cursor {
    section: Arc<Section>,
    next_block: usize,
    bytes: Vec<u8>,
    at: usize,
    left: u32,
    key: Vec<u8>,
    body: Range<usize>,
    /// It is at a record.
    here: bool,
}

impl Cursor {
    /// Before the first record.
    pub fn new(section: Arc<Section>) -> Cursor {
        let (bytes, key) = (Vec::new(), Vec::new());
        Cursor { section, next_block: 0, bytes, at: 0, left: 0, key, body: 0..0, here: false }
    }

    fn next(&mut self) -> io::Result<()> {
        self.here = false;
        while self.left == 0 {
            if self.next_block == self.section.blocks.len() {
                return Ok(());
            }
            self.bytes = self.section.read(self.next_block)?;
            (self.at, self.left) = (0, self.section.blocks[self.next_block].count);
            self.key.clear();
            self.next_block += 1;
        }
        let mut rest = &self.bytes[self.at..];
        let mut number = || record::take(&mut rest).and_then(|number| usize::try_from(number).ok());
        let (Some(shared), Some(own), Some(body)) = (number(), number(), number()) else { return Err(damaged()) };
        let start = self.bytes.len() - rest.len();
        let end = start.checked_add(own).and_then(|at| at.checked_add(body));
        let Some(end) = end.filter(|end| *end <= self.bytes.len() && shared <= self.key.len()) else {
            return Err(damaged());
        };
        self.key.truncate(shared);
        self.key.extend_from_slice(&self.bytes[start..start + own]);
        self.body = start + own..end;
        self.at = end;
        self.left -= 1;
        self.here = true;
        Ok(())
    }

    fn seek(&mut self, target: &[u8]) -> io::Result<()> {
        if self.here && *self.key >= *target {
            return Ok(());
        }
        let ahead = &self.section.blocks[self.next_block..];
        if ahead.first().is_some_and(|block| *block.first <= *target) {
            let skipped = ahead.partition_point(|block| *block.first <= *target) - 1;
            self.next_block += skipped;
            self.left = 0;
        }
        loop {
            self.next()?;
            if !self.here || *self.key >= *target {
                return Ok(());
            }
        }
    }
}

/// Where records come from, in order of keys.
#[derive(Debug)]
pub enum Source {
    /// A section.
    Section(Cursor),
    /// A list in memory, and the place in it.
    List(Arc<Vec<Record>>, usize),
}

/// A key and its record.
pub type Record = (Box<[u8]>, Box<[u8]>);

impl Source {
    /// A section from its beginning.
    pub fn section(section: &Arc<Section>) -> Source {
        Source::Section(Cursor::new(section.clone()))
    }

    fn here(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Source::Section(cursor) if cursor.here => Some((&cursor.key, &cursor.bytes[cursor.body.clone()])),
            Source::Section(_) => None,
            Source::List(list, at) => list.get(*at).map(|(key, body)| (&**key, &**body)),
        }
    }

    fn next(&mut self) -> io::Result<()> {
        match self {
            Source::Section(cursor) => cursor.next(),
            Source::List(_, at) => {
                *at += 1;
                Ok(())
            }
        }
    }

    fn seek(&mut self, target: &[u8]) -> io::Result<()> {
        match self {
            Source::Section(cursor) => cursor.seek(target),
            Source::List(list, at) => {
                *at += list[(*at).min(list.len())..].partition_point(|(key, _)| **key < *target);
                Ok(())
            }
        }
    }
}

/// Several sources as one: of a key that several have, the last one's record.
#[derive(Debug)]
pub struct Merge {
    sources: Vec<Source>,
    best: Option<usize>,
}

impl Merge {
    /// At the first record. The newest source is the last.
    ///
    /// Errors: the file can't be read.
    pub fn new(mut sources: Vec<Source>) -> io::Result<Merge> {
        for source in &mut sources {
            if let Source::Section(cursor) = source {
                cursor.next()?;
            }
        }
        let mut merge = Merge { sources, best: None };
        merge.choose();
        Ok(merge)
    }

    fn choose(&mut self) {
        let keys = self.sources.iter().enumerate().filter_map(|(n, source)| Some((source.here()?.0, n)));
        // Of equal keys the last source's.
        self.best = keys.min_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1))).map(|(_, n)| n);
    }

    /// The key and record here; `None` at the end.
    pub fn here(&self) -> Option<(&[u8], &[u8])> {
        self.sources[self.best?].here()
    }

    /// Moves to the next key.
    ///
    /// Errors: the file can't be read.
    pub fn next(&mut self) -> io::Result<()> {
        let Some(best) = self.best else { return Ok(()) };
        for n in 0..self.sources.len() {
            let same = match (self.sources[n].here(), self.sources[best].here()) {
                (Some((a, _)), Some((b, _))) => n != best && a == b,
                _ => false,
            };
            if same {
                self.sources[n].next()?;
            }
        }
        self.sources[best].next()?;
        self.choose();
        Ok(())
    }

    /// Moves to the first key that isn't before `target`.
    ///
    /// Errors: the file can't be read.
    pub fn seek(&mut self, target: &[u8]) -> io::Result<()> {
        for source in &mut self.sources {
            source.seek(target)?;
        }
        self.choose();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Entry, Key};

    fn section(keys: impl Iterator<Item = String>, minute: u32) -> (Arc<File>, Arc<Section>) {
        let file = tempfile::tempfile().unwrap();
        let mut writer = SectionWriter::new(&file, 0);
        for key in keys {
            writer.push(key.as_bytes(), &record::write(&Entry::file(Key::new(&key), 7), minute)).unwrap();
        }
        let (_, end, sum) = writer.finish((0, 0)).unwrap();
        let file = Arc::new(file);
        let section = Arc::new(Section::open(&file, end, Some(sum)).unwrap());
        (file, section)
    }

    fn name(n: u64) -> String {
        format!("folder/{:03}/{n:06}", n / 100)
    }

    #[test]
    fn every_key_is_found_from_any_place_on() {
        let (_, section) = section((0..20_000).map(|n| name(2 * n)), 9);
        assert!(section.blocks.len() > 3 && section.count == 20_000);
        assert_eq!((section.fresh(9), section.fresh(10)), (20_000, 0));
        for n in [0, 1, 299, 19_999] {
            assert_eq!(section.key(n).unwrap(), name(2 * n).as_bytes());
        }
        assert!(section.key(20_000).is_err());
        for step in [1, 7, 500, 3_000] {
            let mut merge = Merge::new(vec![Source::section(&section)]).unwrap();
            for n in (0..39_999).step_by(step) {
                merge.seek(name(n).as_bytes()).unwrap();
                assert_eq!(merge.here().unwrap().0, name(n + n % 2).as_bytes());
            }
            merge.seek(b"z").unwrap();
            assert!(merge.here().is_none());
        }
    }

    #[test]
    fn the_newest_of_several_counts() {
        let (_, old) = section((0..1_000).map(name), 1);
        let (_, new) = section((500..1_500).map(name), 2);
        let list = vec![(name(700).into_bytes().into(), record::FORGOTTEN.into())];
        let all = [Source::section(&old), Source::section(&new), Source::List(Arc::new(list), 0)];
        let mut merge = Merge::new(all.into()).unwrap();
        for n in 0..1_500 {
            let (key, body) = merge.here().unwrap();
            let minute = if n == 700 { None } else { Some(if n < 500 { 1 } else { 2 }) };
            assert_eq!((key, record::minute(body)), (name(n).as_bytes(), minute));
            merge.next().unwrap();
        }
        assert!(merge.here().is_none());
    }

    #[test]
    fn damage_anywhere_is_seen() {
        let (file, section) = section((0..600).map(name), 1);
        let end = file.metadata().unwrap().len();
        let whole = |section: &Arc<Section>| {
            let mut merge = Merge::new(vec![Source::section(section)])?;
            while merge.here().is_some() {
                merge.next()?;
            }
            io::Result::Ok(())
        };
        for at in (0..end).step_by(37).chain(end - 80..end) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            let seen = Section::open(&file, end, None).and_then(|section| whole(&Arc::new(section)));
            assert!(seen.is_err(), "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        whole(&section).unwrap();
        for cut in (0..end).step_by(41) {
            assert!(Section::open(&file, cut, None).is_err(), "cut at {cut}");
        }
    }
}
