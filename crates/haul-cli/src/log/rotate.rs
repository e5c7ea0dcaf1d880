//! A log file that begins anew when it is full. What was in it is kept beside it, under the time at which it was full:
//! `haul-2026-11-24T10-20-30.123.log`; how many of these, how long and whether compressed is the user's choice.

#![allow(clippy::disallowed_methods)] // a file that the user named for output, and those that came of it

use flate2::{Compression, write::GzEncoder};
use jiff::{Span, Zoned, civil::DateTime, tz::TimeZone};
use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    thread::JoinHandle,
};

/// When a log begins anew, and what is kept of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in the file.
    pub size: u64,
    /// Most old files; `None` keeps all.
    pub backups: Option<usize>,
    /// Days that old files are kept; `None` keeps them.
    pub days: Option<u32>,
    /// Old files are compressed.
    pub compress: bool,
}

/// The file.
pub struct Rotating {
    path: PathBuf,
    limits: Limits,
    file: File,
    size: u64,
    /// Deletes and compresses old files; one at a time.
    tidying: Option<JoinHandle<()>>,
}

/// In the names of old files; by this machine's clock.
const TIME: &str = "%Y-%m-%dT%H-%M-%S";

impl Rotating {
    /// Goes on with the file, or begins it.
    ///
    /// Errors: it can't be opened.
    pub fn open(path: &Path, limits: Limits) -> io::Result<Rotating> {
        let file = append(path, None)?;
        let size = file.metadata()?.len();
        let mut this = Rotating { path: path.into(), limits, file, size, tidying: None };
        this.tidy();
        Ok(this)
    }

    /// Puts the full file aside and begins another with its permissions.
    fn begin_anew(&mut self) -> io::Result<()> {
        let mode = self.file.metadata()?.permissions().mode();
        let mut now = Zoned::now();
        let mut aside = self.path.with_file_name(name_at(&self.path, &now));
        // Of two that are full within a millisecond neither is lost.
        while aside.exists() || compressed(&aside).exists() {
            now = now.saturating_add(Span::new().milliseconds(1));
            aside = self.path.with_file_name(name_at(&self.path, &now));
        }
        fs::rename(&self.path, &aside)?;
        self.file = append(&self.path, Some(mode))?;
        self.size = 0;
        self.tidy();
        Ok(())
    }

    fn tidy(&mut self) {
        self.wait();
        let (path, limits) = (self.path.clone(), self.limits);
        // Without the thread old files stay until the next time.
        self.tidying = std::thread::Builder::new()
            .name("log".into())
            // An old file that can't be removed or compressed stays as it is: a log has nowhere to tell it.
            .spawn(move || drop(tidy(&path, limits, &Zoned::now())))
            .ok();
    }

    fn wait(&mut self) {
        if let Some(thread) = self.tidying.take() {
            // Had it panicked, old files would stay.
            let _ = thread.join();
        }
    }
}

impl Write for Rotating {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A file that can't be put aside grows on: no line is lost for that.
        if self.size > 0 && self.size + line.len() as u64 > self.limits.size {
            let _ = self.begin_anew();
        }
        let written = self.file.write(line)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait();
        self.file.flush()
    }
}

fn append(path: &Path, mode: Option<u32>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    if let Some(mode) = mode {
        options.mode(mode & 0o777);
    }
    options.open(path)
}

/// The parts of a log's name around the time.
fn around(path: &Path) -> (Vec<u8>, Vec<u8>) {
    let stem = path.file_stem().map(OsStr::as_bytes).unwrap_or_default();
    let ending = path.extension().map(|end| [b".", end.as_bytes()].concat()).unwrap_or_default();
    ([stem, b"-"].concat(), ending)
}

fn name_at(path: &Path, now: &Zoned) -> PathBuf {
    let (before, after) = around(path);
    let time = format!("{}.{:03}", now.strftime(TIME), now.millisecond());
    PathBuf::from(OsStr::from_bytes(&[&before, time.as_bytes(), &after].concat()))
}

fn compressed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

/// When a file of this name was put aside; `None` for any other file. True if it is compressed.
fn put_aside(path: &Path, name: &OsStr) -> Option<(DateTime, bool)> {
    let (before, after) = around(path);
    let middle = name.as_bytes().strip_prefix(&before[..])?;
    let (middle, is_compressed) = match middle.strip_suffix(b".gz") {
        Some(middle) => (middle, true),
        None => (middle, false),
    };
    let time = std::str::from_utf8(middle.strip_suffix(&after[..])?).ok()?;
    let (seconds, millis) = time.split_once('.').filter(|(_, millis)| millis.len() == 3)?;
    let millis: i64 = millis.parse().ok()?;
    let time = DateTime::strptime(TIME, seconds).ok()?;
    Some((time.checked_add(Span::new().milliseconds(millis)).ok()?, is_compressed))
}

/// Removes old files beyond the limits, and compresses the others if that is wanted.
fn tidy(path: &Path, limits: Limits, now: &Zoned) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut old = Vec::new();
    for found in fs::read_dir(folder)? {
        let name = found?.file_name();
        old.extend(put_aside(path, &name).map(|(time, is_compressed)| (time, is_compressed, folder.join(name))));
    }
    old.sort();
    old.reverse();
    let oldest = limits.days.map(|days| now.saturating_sub(Span::new().days(days)));
    let mut kept = 0;
    let mut last = None;
    for (time, is_compressed, path) in old {
        // One that was being compressed when haul was killed counts once.
        kept += usize::from(last != Some(time));
        last = Some(time);
        let too_old =
            oldest.as_ref().is_some_and(|oldest| time.to_zoned(TimeZone::system()).is_ok_and(|time| time < *oldest));
        if too_old || limits.backups.is_some_and(|most| kept > most) {
            fs::remove_file(&path)?;
        } else if limits.compress && !is_compressed {
            compress(&path)?;
        }
    }
    Ok(())
}

/// Puts a compressed file in a file's place. It has its own name when it is whole.
fn compress(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    let mut half = path.as_os_str().to_owned();
    half.push(".gz.partial");
    let to = OpenOptions::new().create(true).write(true).truncate(true).mode(mode & 0o777).open(&half)?;
    let mut gzip = GzEncoder::new(to, Compression::default());
    io::copy(&mut File::open(path)?, &mut gzip)?;
    gzip.finish()?.sync_all()?;
    fs::rename(&half, compressed(path))?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, io::Read as _};

    fn limits(size: u64) -> Limits {
        Limits { size, backups: None, days: None, compress: false }
    }

    /// Contents of a folder, by name; compressed files are decompressed.
    fn files(folder: &Path) -> BTreeMap<String, String> {
        let read = |path: &Path| {
            let bytes = fs::read(path).unwrap();
            let mut text = String::new();
            if path.extension().is_some_and(|end| end == "gz") {
                flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
            } else {
                text = String::from_utf8(bytes).unwrap();
            }
            text
        };
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name().into_string().unwrap(), read(&entry.path()))).collect()
    }

    #[test]
    fn a_full_file_is_kept_and_no_line_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haul.log");
        fs::write(&path, "before\n").unwrap();
        let mut log = Rotating::open(&path, limits(14)).unwrap();
        for line in ["one\n", "two\n", "three, longer than a file\n", "four\n"] {
            assert_eq!(log.write(line.as_bytes()).unwrap(), line.len());
        }
        log.flush().unwrap();
        let files = files(folder.path());
        let all: Vec<&str> = files.values().map(String::as_str).collect();
        assert_eq!(all, ["before\none\n", "two\n", "three, longer than a file\n", "four\n"], "{files:?}");
        assert!(files.contains_key("haul.log"), "{files:?}");
        let named = files.keys().filter(|name| put_aside(&path, OsStr::new(name)).is_some());
        assert_eq!(named.count(), 3);
    }

    #[test]
    fn the_newest_are_kept_and_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haul.log");
        fs::write(folder.path().join("haul-other.log"), "not of this log").unwrap();
        let compress = Limits { backups: Some(2), compress: true, ..limits(1) };
        let mut log = Rotating::open(&path, compress).unwrap();
        for line in ["1\n", "2\n", "3\n", "4\n"] {
            assert_eq!(log.write(line.as_bytes()).unwrap(), 2);
        }
        log.flush().unwrap();
        let files = files(folder.path());
        let all: Vec<&str> = files.values().map(String::as_str).collect();
        assert_eq!(all, ["2\n", "3\n", "not of this log", "4\n"], "{files:?}");
        assert_eq!(files.keys().filter(|name| name.ends_with(".log.gz")).count(), 2, "{files:?}");
    }

    #[test]
    fn old_files_go_after_so_many_days() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haul");
        for name in ["haul-2026-11-20T10-00-00.000", "haul-2026-11-23T10-00-00.500", "haul-2026-11-2xT10-00-00.000"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let now: Zoned = "2026-11-24T12:00:00+00:00[UTC]".parse().unwrap();
        tidy(&path, Limits { days: Some(3), ..limits(1) }, &now).unwrap();
        let names: Vec<String> = files(folder.path()).into_keys().collect();
        assert_eq!(names, ["haul-2026-11-23T10-00-00.500", "haul-2026-11-2xT10-00-00.000"]);
    }
}
