//! Standard output, buffered, for any bytes.

use anyhow::Result;
use std::io::{self, BufWriter, Stdout, Write};

/// Bytes gathered before they are written.
const BUFFER: usize = 64 << 10;

/// Buffered standard output. It must be finished: what is left when it is dropped may be lost without a word.
pub struct Out(BufWriter<Stdout>);

impl Out {
    /// Standard output.
    pub fn stdout() -> Self {
        Out(BufWriter::with_capacity(BUFFER, io::stdout()))
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_all(bytes)?)
    }

    /// Writes text and then a key, byte for byte, and ends the line.
    pub fn line(&mut self, text: &str, key: &[u8]) -> Result<()> {
        self.0.write_all(text.as_bytes())?;
        self.0.write_all(key)?;
        Ok(self.0.write_all(b"\n")?)
    }

    /// Sends out what is gathered.
    pub fn flush(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}
