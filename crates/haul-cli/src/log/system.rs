//! The system's own logs: syslog and the journal of systemd. Each line is a message of its own to a socket of this machine.

use super::format::severity;
use crate::environment::env;
use jiff::Zoned;
use rustix::fs::fstat;
use std::{
    io::{self, Write},
    os::unix::net::UnixDatagram,
};
use tracing::Level;

/// Where syslog listens: on Linux, then elsewhere.
const SYSLOG: [&str; 3] = ["/dev/log", "/var/run/syslog", "/var/run/log"];
/// Where the journal listens.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Which part of the system a message of syslog is about (`--syslog-facility`).
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[value(rename_all = "UPPER")]
#[allow(missing_docs)] // The names are syslog's.
pub enum Facility {
    Kern,
    User,
    Mail,
    #[default]
    Daemon,
    Auth,
    Syslog,
    Lpr,
    News,
    Uucp,
    Cron,
    Authpriv,
    Ftp,
    Local0,
    Local1,
    Local2,
    Local3,
    Local4,
    Local5,
    Local6,
    Local7,
}

impl Facility {
    /// Its number, as RFC 5424 has it.
    fn number(self) -> u8 {
        let before_local = Facility::Local0 as u8;
        // Four numbers between the named ones and the local ones are the systems' own.
        self as u8 + if self as u8 >= before_local { 4 } else { 0 }
    }
}

/// Syslog.
pub struct Syslog(UnixDatagram);

impl Syslog {
    /// Errors: nobody listens.
    pub fn connect() -> io::Result<Syslog> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for path in SYSLOG {
            match connect(path) {
                Ok(socket) => return Ok(Syslog(socket)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The journal of systemd.
pub struct Journal(UnixDatagram);

impl Journal {
    /// `None` where nobody listens.
    pub fn connect() -> Option<Journal> {
        connect(JOURNAL).ok().map(Journal)
    }

    /// Is standard error connected to the journal, as a service's is?
    pub fn has_stderr() -> bool {
        let Ok(facts) = fstat(io::stderr()) else { return false };
        env("JOURNAL_STREAM").is_some_and(|stream| stream == *format!("{}:{}", facts.st_dev, facts.st_ino))
    }
}

fn connect(path: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(socket)
}

impl Write for Syslog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A message is sent whole: what is written is one line of the log.
        self.0.send(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Journal {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let message = line.strip_suffix(b"\n").unwrap_or(line);
        match message {
            [b'<', severity, b'>', text @ ..] => self.0.send(&fields(*severity, text))?,
            text => self.0.send(&fields(b'6', text))?,
        };
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line as syslog takes it from a program of this machine.
pub fn to_syslog(facility: Facility, level: Level, now: &Zoned, line: &str) -> String {
    let priority = facility.number() << 3 | severity(level);
    format!("<{priority}>{} haul[{}]: {line}", now.strftime("%b %e %H:%M:%S"), std::process::id())
}

/// A message in the journal's format: fields, with the length of one that has several lines.
fn fields(severity: u8, message: &[u8]) -> Vec<u8> {
    let mut fields = format!("PRIORITY={}\nSYSLOG_IDENTIFIER=haul\n", char::from(severity)).into_bytes();
    if message.contains(&b'\n') {
        fields.extend(b"MESSAGE\n");
        fields.extend((message.len() as u64).to_le_bytes());
    } else {
        fields.extend(b"MESSAGE=");
    }
    fields.extend(message);
    fields.push(b'\n');
    fields
}

/// A line with its level in front, as [`Journal`] takes it.
pub fn to_journal(level: Level, line: &str) -> String {
    format!("<{}>{line}", severity(level))
}

/// A line with its level in front, as systemd reads it from a service's standard error.
pub fn with_severity(level: Level, line: &str) -> String {
    let severity = severity(level);
    line.lines().map(|line| format!("<{severity}>{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syslog_is_told_facility_level_time_and_program() {
        let now = "2026-11-01T02:22:13.5+00:00[UTC]".parse().unwrap();
        let pid = std::process::id();
        let line = |facility, level| to_syslog(facility, level, &now, "a: Copied (new)");
        assert_eq!(line(Facility::Daemon, Level::INFO), format!("<30>Nov  1 02:22:13 haul[{pid}]: a: Copied (new)"));
        assert!(line(Facility::Local7, Level::ERROR).starts_with("<187>"));
        assert!(line(Facility::Ftp, Level::WARN).starts_with("<93>"));
        assert!(line(Facility::Kern, Level::DEBUG).starts_with("<7>"));
    }

    #[test]
    fn the_journal_is_told_fields() {
        assert_eq!(fields(b'5', b"NOTICE: x"), b"PRIORITY=5\nSYSLOG_IDENTIFIER=haul\nMESSAGE=NOTICE: x\n");
        let several = fields(b'6', b"INFO: \nErrors: 2");
        assert_eq!(several, b"PRIORITY=6\nSYSLOG_IDENTIFIER=haul\nMESSAGE\n\x10\0\0\0\0\0\0\0INFO: \nErrors: 2\n");
        assert_eq!(to_journal(Level::DEBUG, "a\nb"), "<7>a\nb");
        assert_eq!(with_severity(Level::ERROR, "a\nb"), "<3>a\n<3>b");
    }
}
