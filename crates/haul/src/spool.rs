//! A list that may be long: in memory while short, in an unlinked temporary file beyond that. Holds what is to be
//! deleted at the end of a job, so that memory stays bounded whatever the number of files.

use haul_core::{Entry, Error, Key, Result, Version};
use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write},
};

/// Keys kept in memory before the file is used; at about 100 bytes each this is 10 MB.
const IN_MEMORY: usize = 100_000;

/// Facts needed to delete a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDelete {
    /// Its key.
    pub key: Key,
    /// Bytes.
    pub size: u64,
    /// The listed version: a newer one under this name must stay.
    pub version: Option<Version>,
}

impl From<Entry> for PendingDelete {
    fn from(entry: Entry) -> Self {
        PendingDelete { key: entry.key, size: entry.size, version: entry.version }
    }
}

/// Files in the order in which they came.
#[derive(Default)]
pub struct Spool {
    memory: Vec<PendingDelete>,
    file: Option<BufWriter<File>>,
    spilled: u64,
}

impl Spool {
    /// Adds a file.
    ///
    /// Errors: a temporary file can't be written.
    pub fn push(&mut self, gone: PendingDelete) -> Result<()> {
        if self.memory.len() < IN_MEMORY && self.file.is_none() {
            self.memory.push(gone);
            return Ok(());
        }
        self.spill(&gone).map_err(|e| Error::from_io("write a temporary file", e))
    }

    fn spill(&mut self, gone: &PendingDelete) -> std::io::Result<()> {
        if self.file.is_none() {
            self.file = Some(BufWriter::new(tempfile::tempfile()?));
        }
        if let Some(file) = &mut self.file {
            file.write_all(&gone.size.to_le_bytes())?;
            write_bytes(file, gone.key.as_bytes())?;
            // No version is an empty one.
            write_bytes(file, gone.version.as_ref().map_or(&[], |v| &v.0))?;
            self.spilled += 1;
        }
        Ok(())
    }

    /// Shows each file, in their order.
    ///
    /// Errors: the temporary file can't be read.
    pub fn each(&mut self, mut show: impl FnMut(&PendingDelete)) -> Result<()> {
        self.memory.iter().for_each(&mut show);
        let Some(writer) = &mut self.file else { return Ok(()) };
        let mut read = || -> std::io::Result<()> {
            writer.flush()?;
            writer.get_ref().seek(SeekFrom::Start(0))?;
            let mut file = BufReader::new(writer.get_ref());
            for _ in 0..self.spilled {
                show(&read_one(&mut file)?);
            }
            writer.get_ref().seek(SeekFrom::End(0)).map(drop)
        };
        read().map_err(|e| Error::from_io("read a temporary file", e))
    }

    /// How many keys it holds.
    pub fn len(&self) -> u64 {
        self.memory.len() as u64 + self.spilled
    }

    /// True when it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All keys in order, `batch` at a time.
    ///
    /// Errors: the temporary file can't be read.
    pub fn into_batches(self, batch: usize) -> Result<Batches> {
        let file = match self.file {
            None => None,
            Some(writer) => {
                let mut file =
                    writer.into_inner().map_err(|e| Error::from_io("write a temporary file", e.into_error()))?;
                file.seek(SeekFrom::Start(0)).map_err(|e| Error::from_io("read a temporary file", e))?;
                Some(BufReader::new(file))
            }
        };
        Ok(Batches { memory: self.memory.into_iter(), file, left: self.spilled, batch })
    }
}

/// The keys of a [`Spool`], a batch at a time.
pub struct Batches {
    memory: std::vec::IntoIter<PendingDelete>,
    file: Option<BufReader<File>>,
    left: u64,
    batch: usize,
}

impl Batches {
    /// The next batch; empty at the end.
    ///
    /// Errors: the temporary file can't be read.
    pub fn next_batch(&mut self) -> Result<Vec<PendingDelete>> {
        let mut keys: Vec<_> = self.memory.by_ref().take(self.batch).collect();
        if let Some(file) = &mut self.file {
            while keys.len() < self.batch && self.left > 0 {
                keys.push(read_one(file).map_err(|e| Error::from_io("read a temporary file", e))?);
                self.left -= 1;
            }
        }
        Ok(keys)
    }
}

fn write_bytes(file: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(&(bytes.len() as u32).to_le_bytes())?;
    file.write_all(bytes)
}

fn read_one(file: &mut impl Read) -> std::io::Result<PendingDelete> {
    let mut size = [0; 8];
    file.read_exact(&mut size)?;
    let key = Key::new(read_bytes(file)?);
    let version = Some(read_bytes(file)?).filter(|v| !v.is_empty()).map(Version::new);
    Ok(PendingDelete { key, size: u64::from_le_bytes(size), version })
}

fn read_bytes(file: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut len = [0; 4];
    file.read_exact(&mut len)?;
    let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_all_in_order_also_beyond_memory() {
        let mut spool = Spool::default();
        let total = IN_MEMORY as u64 + 2500;
        let nth = |i: u64| PendingDelete {
            key: Key::new(format!("k{i}")),
            size: i,
            version: i.is_multiple_of(2).then(|| Version::new(i.to_le_bytes())),
        };
        for i in 0..total {
            spool.push(nth(i)).unwrap();
        }
        assert_eq!(spool.len(), total);
        // Looking at them takes none, and more may come.
        let mut shown = 0;
        spool
            .each(|gone| {
                assert_eq!(*gone, nth(shown));
                shown += 1;
            })
            .unwrap();
        assert_eq!(shown, total);
        spool.push(nth(total)).unwrap();
        let mut batches = spool.into_batches(1000).unwrap();
        let mut seen = 0;
        loop {
            let batch = batches.next_batch().unwrap();
            if batch.is_empty() {
                break;
            }
            for gone in batch {
                assert_eq!(gone, nth(seen));
                seen += 1;
            }
        }
        assert_eq!(seen, total + 1);
    }
}
