//! `--log-file`: what happens, a line for each, with the time before it. Lines go out as they are made.

use super::{named_files, options::Options};
use rustix::fs::OFlags;
use std::{
    fs::File,
    io::{self, Write as _},
};

/// The form of lines about names where no other is asked for.
pub const FORMAT: &str = "%i %n%L";

/// An open log.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// Format of a name's line; `None` for no line.
    pub format: Option<String>,
}

impl Log {
    /// Opens a file to append to; it is created if it is missing.
    ///
    /// Errors: it can't be opened.
    pub fn open(path: &[u8], options: &Options) -> io::Result<Log> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let file = named_files::open(path, flags, options.insecure_links)?;
        let format = options.log_format.as_deref().unwrap_or(FORMAT).to_owned();
        Ok(Log { file, format: Some(format).filter(|format| !format.is_empty()) })
    }

    /// Writes each line of a text that isn't empty.
    ///
    /// Errors: it can't be written.
    pub fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let at = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::system());
        let head = format!("{} [{}] ", at.strftime("%Y/%m/%d %H:%M:%S"), std::process::id());
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            self.file.write_all(&[head.as_bytes(), line, b"\n"].concat())?;
        }
        Ok(())
    }
}
