//! A journal's file: found, locked, cut back to its valid records, compacted, created.

// The state folder is the journal's own, no store's.
#![allow(clippy::disallowed_methods)]

use super::record::{self, Contents, UnknownVersion};
use haul_core::{Error, ErrorKind, Result};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

const OP: &str = "journal";

/// A journal is rewritten when its obsolete records exceed this, and exceed the rest.
const DEAD: usize = 64 << 10;

/// An existing journal, locked.
pub struct ExistingJournal {
    /// At its end.
    pub file: File,
    /// Its contents.
    pub contents: Contents,
}

/// Opens and locks the journal at `path`; `None` when there is none. What can't be believed is cut off.
///
/// Errors: `Busy` when another process has it; `Unsupported` when another version of haul wrote it.
pub fn open(path: &Path) -> Result<Option<ExistingJournal>> {
    loop {
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(at(path, e)),
        };
        lock(path, &file)?;
        // The process that had the lock may have deleted or replaced it as its last deed.
        if same_file(path, &file) {
            return found(path, file).map(Some);
        }
    }
}

fn found(path: &Path, mut file: File) -> Result<ExistingJournal> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| at(path, e))?;
    let contents = contents(path, &bytes)?;
    let live = contents.compact();
    if contents.good == 0 || !contents.newer && contents.good > 2 * live.len().max(DEAD) {
        let file = replace(path, &live)?;
        return Ok(ExistingJournal { file, contents });
    }
    if contents.good < bytes.len() {
        tracing::debug!(path = %path.display(), bytes = bytes.len() - contents.good, "a journal's damaged end is cut off");
        file.set_len(contents.good as u64).and_then(|()| file.sync_data()).map_err(|e| at(path, e))?;
    }
    file.seek(SeekFrom::End(0)).map_err(|e| at(path, e))?;
    Ok(ExistingJournal { file, contents })
}

/// Contents of the journal at `path`, read-only; and whether a process has it now.
pub fn look(path: &Path) -> Result<(Contents, bool)> {
    let mut file = File::open(path).map_err(|e| at(path, e))?;
    // Shared, so that two that look don't take each other for a job.
    let running = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| at(path, e))?;
    Ok((contents(path, &bytes)?, running))
}

fn contents(path: &Path, bytes: &[u8]) -> Result<Contents> {
    record::read(bytes).map_err(|UnknownVersion(major)| {
        let path = path.display();
        let message = format!(
            "{path} is of format {major}, and this haul reads format {}: use the haul that wrote it",
            record::MAJOR
        );
        Error::new(ErrorKind::Unsupported, OP, message)
    })
}

/// The files in `folder` with this ending; none when it isn't there.
pub fn names(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| at(folder, e))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(|e| at(folder, e)));
    let paths = paths.collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == ending)).collect())
}

/// Makes the journal at `path`, with its folder, locked, and durable by name.
///
/// Errors: `Busy` when another process has made it meanwhile.
pub fn create(path: &Path, start: &[u8]) -> Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Keys and command lines are private.
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| at(folder, e))?;
    let mut file =
        OpenOptions::new().append(true).create_new(true).mode(0o600).open(path).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => busy(),
            _ => at(path, e),
        })?;
    lock(path, &file)?;
    let made = file.write_all(start).and_then(|()| File::open(folder)?.sync_all());
    if let Err(error) = made {
        // Half a header is useless, and would look like a damaged journal.
        if let Err(e) = fs::remove_file(path) {
            tracing::debug!("{}: can't be removed: {e}", path.display());
        }
        return Err(at(path, error));
    }
    Ok(file)
}

/// Puts a new journal of these bytes in the place of the one at `path`, which we hold. The new one is locked before it
/// is there.
fn replace(path: &Path, bytes: &[u8]) -> Result<File> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&new)?;
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        Ok(file)
    };
    let file = write().map_err(|e| at(&new, e))?;
    lock(&new, &file)?;
    let renamed = fs::rename(&new, path).and_then(|()| File::open(path.parent().unwrap_or(path))?.sync_all());
    renamed.map_err(|e| at(path, e))?;
    Ok(file)
}

fn lock(path: &Path, file: &File) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(busy()),
        Err(TryLockError::Error(e)) => Err(at(path, e)),
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::Busy, OP, "another haul is doing the same job now")
}

fn same_file(path: &Path, file: &File) -> bool {
    match (fs::metadata(path), file.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

fn at(path: &Path, error: io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    let kind = Error::from_io(OP, io::Error::from(error.kind())).kind();
    Error::new(kind, OP, message).with_source(error)
}
