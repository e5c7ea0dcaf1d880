//! Counts, and the words in which `--stats` and `-v` close. Pure.

use super::format::{decimal, number};
use haul_core::compare::{Difference, FileType};
use std::time::Duration;

/// How many of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Symlinks.
    pub links: u64,
    /// Devices.
    pub devices: u64,
    /// FIFOs and sockets.
    pub specials: u64,
}

impl Count {
    /// One more of this.
    pub fn add(&mut self, what: FileType) {
        match what {
            FileType::File => self.files += 1,
            FileType::Dir => self.dirs += 1,
            FileType::Link => self.links += 1,
            FileType::Device => self.devices += 1,
            FileType::Special => self.specials += 1,
        }
    }

    /// Of any kind.
    pub fn total(&self) -> u64 {
        self.files + self.dirs + self.links + self.devices + self.specials
    }

    fn shown(&self, human: u8) -> String {
        let kinds = [
            ("reg", self.files),
            ("dir", self.dirs),
            ("link", self.links),
            ("dev", self.devices),
            ("special", self.specials),
        ];
        let kinds = kinds.iter().filter(|(_, n)| *n > 0).map(|(kind, n)| format!("{kind}: {}", number(*n, human)));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let total = number(self.total(), human);
        if kinds.is_empty() { total } else { format!("{total} ({kinds})") }
    }
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// In the source.
    pub files: Count,
    /// New at the destination.
    pub created: Count,
    /// Gone from it.
    pub deleted: Count,
    /// Bytes of all that is in the source.
    pub bytes: u64,
    /// Regular files whose bytes were brought.
    pub transferred: u64,
    /// Their bytes.
    pub transferred_bytes: u64,
    /// Transfers that ended well.
    pub arrived: u64,
    /// Bytes of files among them.
    pub arrived_bytes: u64,
    /// Bytes that moved, or were there already.
    pub moved: u64,
    /// Of these, those that were there.
    pub matched: u64,
    /// Files come from a remote to this machine.
    pub receives: bool,
}

impl Stats {
    /// Something of the source.
    pub fn seen(&mut self, what: FileType, size: u64) {
        self.files.add(what);
        self.bytes += size;
    }

    /// Something that is transferred.
    pub fn transferred(&mut self, differs: &Difference, size: u64) {
        if differs.new {
            self.created.add(differs.what);
        }
        if differs.what == FileType::File {
            self.transferred += 1;
            self.transferred_bytes += size;
        }
    }

    /// The lines of `--stats`. haul sends no lists of files, so those lines are of zeros.
    pub fn lines(&self, human: u8, dry_run: bool) -> String {
        let n = |n| number(n, human);
        [
            String::new(),
            format!("Number of files: {}", self.files.shown(human)),
            format!("Number of created files: {}", self.created.shown(human)),
            format!("Number of deleted files: {}", self.deleted.shown(human)),
            format!("Number of regular files transferred: {}", n(self.transferred)),
            format!("Total file size: {} bytes", n(self.bytes)),
            format!("Total transferred file size: {} bytes", n(self.transferred_bytes)),
            format!("Literal data: {} bytes", n(self.sent(dry_run))),
            format!("Matched data: {} bytes", n(if dry_run { 0 } else { self.matched })),
            "File list size: 0".into(),
            "File list generation time: 0.001 seconds".into(),
            "File list transfer time: 0.000 seconds".into(),
            format!("Total bytes sent: {}", n(self.ways(dry_run).0)),
            format!("Total bytes received: {}", n(self.ways(dry_run).1)),
        ]
        .join("\n")
    }

    fn sent(&self, dry_run: bool) -> u64 {
        if dry_run { 0 } else { self.transferred_bytes.saturating_sub(self.matched) }
    }

    /// Bytes sent and received.
    fn ways(&self, dry_run: bool) -> (u64, u64) {
        let bytes = self.sent(dry_run);
        if self.receives { (0, bytes) } else { (bytes, 0) }
    }

    /// The one line at the end of a log.
    pub fn last(&self, human: u8, dry_run: bool) -> String {
        let n = |n| number(n, human);
        let (sent, received) = self.ways(dry_run);
        format!("sent {} bytes  received {} bytes  total size {}", n(sent), n(received), n(self.bytes))
    }

    /// The two lines at the end.
    pub fn closing(&self, took: Duration, human: u8, dry_run: bool) -> String {
        let sent = self.sent(dry_run);
        let rate = decimal(sent as f64 / (took.as_secs_f64() + 0.5), human, 2);
        let speedup = if sent == 0 { 0.0 } else { self.bytes as f64 / sent as f64 };
        let note = if dry_run { " (DRY RUN)" } else { "" };
        format!(
            "\nsent {} bytes  received {} bytes  {rate} bytes/sec\ntotal size is {}  speedup is {}{note}",
            number(self.ways(dry_run).0, human),
            number(self.ways(dry_run).1, human),
            number(self.bytes, human),
            decimal(speedup, 0, 2),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_rsyncs() {
        let mut stats = Stats::default();
        stats.seen(FileType::Dir, 0);
        stats.seen(FileType::File, 1234);
        stats.transferred(&Difference { new: true, ..Difference::default() }, 1234);
        let text = stats.lines(0, false);
        assert!(
            text.starts_with("\nNumber of files: 2 (reg: 1, dir: 1)\nNumber of created files: 1 (reg: 1)\n"),
            "{text}"
        );
        assert!(text.contains("\nTotal transferred file size: 1,234 bytes\n"), "{text}");
        let end = "\nsent 1,234 bytes  received 0 bytes  2,468.00 bytes/sec\ntotal size is 1,234  speedup is 1.00";
        assert_eq!(stats.closing(Duration::ZERO, 0, false), end);
        let end = "\nsent 0 bytes  received 0 bytes  0.00 bytes/sec\ntotal size is 1,234  speedup is 0.00 (DRY RUN)";
        assert_eq!(stats.closing(Duration::ZERO, 0, true), end);
        assert_eq!(stats.last(0, false), "sent 1,234 bytes  received 0 bytes  total size 1,234");
        assert!(stats.lines(0, true).contains("\nLiteral data: 0 bytes\n"));
    }
}
