//! Standard output, buffered, for any bytes.

use anyhow::Result;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};

/// Bytes gathered before they are written.
const BUFFER: usize = 64 << 10;

/// Buffered standard output. It must be finished: what is left when it is dropped may be lost without a word.
pub struct Output {
    to: BufWriter<Stdout>,
    /// Names are among what is written, and a terminal shows it: what a store or a file name holds must not draw there.
    tamed: bool,
}

impl Output {
    /// Standard output for text with names in it. A terminal gets `U+FFFD` in place of control characters but line breaks and tabs.
    pub fn stdout() -> Self {
        Output { tamed: io::stdout().is_terminal(), ..Output::of_content() }
    }

    /// Standard output for the content of files, which goes as it is.
    pub fn of_content() -> Self {
        Output { to: BufWriter::with_capacity(BUFFER, io::stdout()), tamed: false }
    }

    /// Writes whole lines, or content.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.write_all(bytes)?)
    }

    fn all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes).map_err(stdout_error)
    }

    /// Writes text and then a key, and ends the line.
    pub fn line(&mut self, text: &str, key: &[u8]) -> Result<()> {
        self.all(text.as_bytes())?;
        match self.tamed {
            true => self.all(tamed(key, &[]).as_bytes())?,
            false => self.all(key)?,
        }
        Ok(self.all(b"\n")?)
    }

    /// Sends out what is gathered.
    pub fn flush(&mut self) -> Result<()> {
        Ok(self.to.flush().map_err(stdout_error)?)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.tamed {
            true => self.all(tamed(bytes, &['\n', '\t']).as_bytes())?,
            false => self.all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(stdout_error)
    }
}

/// An error of standard output, which doesn't say by itself that it isn't one of the files that are copied.
fn stdout_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("can't write to standard output: {error}"))
}

/// Text without control characters but these.
fn tamed(bytes: &[u8], but: &[char]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() && !but.contains(&c) { '\u{FFFD}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_holds_draws_nothing() {
        let name = b"a\x1b]0;title\x07b\x9b2J\nc\rd\tme\xc2\x9b";
        assert_eq!(tamed(name, &[]), "a\u{FFFD}]0;title\u{FFFD}b\u{FFFD}2J\u{FFFD}c\u{FFFD}d\u{FFFD}me\u{FFFD}");
        assert_eq!(tamed(b"name\x07\tsize\n", &['\n', '\t']), "name\u{FFFD}\tsize\n");
    }
}
