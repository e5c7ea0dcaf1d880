//! A stack of work that is as long as it needs to be: what is beyond a bound in memory waits in a file without a name. Last in,
//! first out, so that a walk goes down before it goes on, and few directories are open at a time.

use std::{fs::File, io, os::unix::fs::FileExt as _};

/// Bytes kept in memory; the coordinator has four stacks.
const IN_MEMORY: usize = 32 << 20;

/// Messages, as bytes.
#[derive(Default)]
pub struct Stack {
    top: Vec<Vec<u8>>,
    bytes: usize,
    file: Option<File>,
    /// Offset and count of each block in the file, the oldest first.
    blocks: Vec<(u64, usize)>,
    end: u64,
    count: u64,
}

impl Stack {
    /// True when it holds none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds one.
    ///
    /// Errors: there is no room for the file.
    pub fn push(&mut self, one: Vec<u8>) -> io::Result<()> {
        self.bytes += one.len();
        self.count += 1;
        self.top.push(one);
        if self.bytes > IN_MEMORY { self.spill() } else { Ok(()) }
    }

    /// Takes the one that was added last.
    ///
    /// Errors: the file can't be read.
    pub fn pop(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.top.is_empty() {
            self.fetch()?;
        }
        let one = self.top.pop();
        if let Some(one) = &one {
            self.bytes -= one.len();
            self.count -= 1;
        }
        Ok(one)
    }

    /// Writes the older half to the file.
    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless()?),
        };
        let older: Vec<Vec<u8>> = self.top.drain(..self.top.len() / 2).collect();
        let mut block = Vec::new();
        for one in &older {
            block.extend_from_slice(&(one.len() as u64).to_le_bytes());
            block.extend_from_slice(one);
            self.bytes -= one.len();
        }
        file.write_all_at(&block, self.end)?;
        self.blocks.push((self.end, older.len()));
        self.end += block.len() as u64;
        Ok(())
    }

    fn fetch(&mut self) -> io::Result<()> {
        let (Some((start, count)), Some(file)) = (self.blocks.pop(), &self.file) else { return Ok(()) };
        let mut block = vec![0; (self.end - start) as usize];
        file.read_exact_at(&mut block, start)?;
        self.end = start;
        let mut rest = &block[..];
        for _ in 0..count {
            let (len, after) = rest.split_at(8);
            let len = len.iter().rev().fold(0, |len: usize, b| len << 8 | usize::from(*b));
            let (one, after) = after.split_at(len);
            self.bytes += one.len();
            self.top.push(one.to_vec());
            rest = after;
        }
        Ok(())
    }
}

/// A file that goes with the process.
#[allow(clippy::disallowed_methods)] // A file of its own.
fn nameless() -> io::Result<File> {
    let dir = std::env::temp_dir();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(&dir, flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR) {
        return Ok(file.into());
    }
    let path = dir.join(format!("haul-mpi-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_comes_first_also_from_the_file() {
        let mut stack = Stack::default();
        let one = |n: u32| [&n.to_le_bytes()[..], &vec![7; 1 << 20]].concat();
        for n in 0..100 {
            stack.push(one(n)).unwrap();
        }
        assert!(stack.blocks.len() > 1 && stack.bytes <= IN_MEMORY);
        for n in (50..100).rev() {
            assert_eq!(stack.pop().unwrap(), Some(one(n)));
        }
        stack.push(one(200)).unwrap();
        assert_eq!((stack.count, stack.pop().unwrap()), (51, Some(one(200))));
        for n in (0..50).rev() {
            assert_eq!(stack.pop().unwrap(), Some(one(n)));
        }
        assert_eq!(stack.pop().unwrap(), None);
        assert!(stack.is_empty() && stack.bytes == 0);
    }
}
