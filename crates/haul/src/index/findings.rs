//! A run's findings about keys, until it ends: in memory while few, in sorted sections of unlinked temporary files beyond that.

use super::{
    record,
    section::{Record, Section, SectionWriter, Source},
};
use haul_core::{Entry, Key};
use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write},
    sync::Arc,
};

/// Keys that are held in memory: some 15 MB.
const IN_MEMORY: usize = 50_000;

/// A run's findings; of a key, the last one. By the names that stores use for keys.
#[derive(Debug, Default)]
pub struct Learned {
    now: BTreeMap<Box<[u8]>, Box<[u8]>>,
    spilled: Vec<Arc<Section>>,
}

impl Learned {
    /// Notes that a key exists, with its facts.
    ///
    /// Errors: a temporary file can't be written.
    pub fn note_present(&mut self, entry: &Entry, minute: u32) -> io::Result<()> {
        self.put(&entry.key, record::write(entry, minute))
    }

    /// Notes that a key is unknown from now on.
    ///
    /// Errors: a temporary file can't be written.
    pub fn forget(&mut self, key: &Key) -> io::Result<()> {
        self.put(key, record::FORGOTTEN.into())
    }

    /// Notes that a key is missing.
    ///
    /// Errors: a temporary file can't be written.
    pub fn note_missing(&mut self, key: &Key) -> io::Result<()> {
        self.put(key, record::GONE.into())
    }

    fn put(&mut self, key: &Key, body: Box<[u8]>) -> io::Result<()> {
        self.now.insert(key.stored().into(), body);
        if self.now.len() < IN_MEMORY {
            return Ok(());
        }
        let file = tempfile::tempfile()?;
        let mut out = BufWriter::new(&file);
        let mut writer = SectionWriter::new(&mut out, 0);
        for (key, body) in std::mem::take(&mut self.now) {
            writer.push(&key, &body)?;
        }
        let (_, end, sum) = writer.finish((0, 0))?;
        out.flush()?;
        drop(out);
        self.spilled.push(Arc::new(Section::open(&Arc::new(file), end, Some(sum))?));
        Ok(())
    }

    /// All of it, the newest last.
    pub fn into_sources(self) -> Vec<Source> {
        let list: Vec<Record> = self.now.into_iter().collect();
        let spilled = self.spilled.iter().map(Source::section);
        spilled.chain([Source::List(Arc::new(list), 0)]).collect()
    }

    /// Nothing was found out.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty() && self.spilled.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::section::Merge;

    #[test]
    fn the_last_word_on_a_key_counts_however_many_there_are() {
        let mut learned = Learned::default();
        let key = |n: usize| Key::new(format!("{:06}", n * 7919 % 120_000));
        for n in 0..120_000 {
            learned.note_present(&Entry::file(key(n), 1), 1).unwrap();
        }
        learned.forget(&key(5)).unwrap();
        learned.note_present(&Entry::file(key(6), 2), 2).unwrap();
        assert_eq!(learned.spilled.len(), 2);
        let mut merge = Merge::new(learned.into_sources()).unwrap();
        let mut count = 0;
        while let Some((at, body)) = merge.here() {
            let size = record::read(at, body).map(|fact| fact.entry.size);
            let wanted = if at == key(5).as_bytes() { None } else { Some(1 + u64::from(at == key(6).as_bytes())) };
            assert_eq!(size, wanted);
            count += 1;
            merge.next().unwrap();
        }
        assert_eq!(count, 120_000);
    }
}
