//! Standard output for commands that print text.

use anyhow::{Context as _, Result};
use std::io::Write as _;

/// Prints text and a line break. A reader that went away (`| head`) is no error of ours, but ends the command.
pub fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("can't write to standard output")
}

/// Prints text as it is.
pub fn text(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("can't write to standard output")
}
