//! The state folder's files as this module reads and writes them, and the clock.

// The state folder is the engine's own, no store's; and this is where this crate reads the clock.
#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

/// A lock is held while an index is written: ten million keys take some seconds.
const PATIENCE: Duration = Duration::from_secs(20);
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// The time.
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// A whole file; `None` when it can't be read.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    fs::read(path).ok()
}

/// Creates the folder of `path`, private: names and hashes are for nobody else.
pub fn make_folder(path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Writes a file beside `path`, then puts it in its place: readers have the old one or the whole new one.
///
/// Errors: `write` or the file system fails; then the old file is unchanged.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = make_folder(path)?;
    let tmp = path.with_extension(format!("{}.tmp", std::process::id()));
    let made = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&tmp);
    let written = made.and_then(|mut file| {
        write(&mut file)?;
        file.flush()?;
        file.sync_data()
    });
    written.and_then(|()| fs::rename(&tmp, path)).inspect_err(|_| drop(fs::remove_file(&tmp)))?;
    File::open(folder)?.sync_all()
}

/// Holds a lock until it is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

/// Locks the file `path`, which is made if need be and stays.
///
/// Errors: `WouldBlock` when another process has it for 20 s; those of the file system.
pub fn lock(path: &Path) -> io::Result<Lock> {
    make_folder(path)?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => std::thread::sleep(TRY_AGAIN),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A file that marks this process as busy, for as long as it lives or the file stays. Its name is the first free one of
/// `NAME.N.ENDING`. Durable when this returns. A reader of marks holds `lock`, so that it sees no mark before it is locked.
///
/// Errors: of the file system, and as for [`lock`].
pub fn mark(path: &Path, ending: &str, lock_at: &Path) -> io::Result<(PathBuf, File)> {
    let folder = make_folder(path)?;
    let _lock = lock(lock_at)?;
    for number in 0.. {
        let at = path.with_extension(format!("{}-{number}.{ending}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&at) {
            Ok(file) => {
                file.lock()?;
                File::open(&folder)?.sync_all()?;
                return Ok((at, file));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The marks of this name, of live processes and of dead ones. The caller holds the lock under which they are made.
///
/// Errors: of the file system.
pub fn marks(path: &Path, ending: &str) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut live, mut dead) = (Vec::new(), Vec::new());
    let stem = path.file_stem().unwrap_or_default().as_encoded_bytes();
    let entries = match fs::read_dir(path.parent().unwrap_or(Path::new("."))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((live, dead)),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let ours = name.as_encoded_bytes().strip_prefix(stem).is_some_and(|rest| rest.starts_with(b"."));
        if !ours || entry.path().extension().is_none_or(|e| e != ending) {
            continue;
        }
        match File::open(entry.path()) {
            // Shared, so that two that look don't take each other for its owner.
            Ok(file) if file.try_lock_shared().is_ok() => dead.push(entry.path()),
            Ok(_) => live.push(entry.path()),
            // It ended just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok((live, dead))
}

/// Removes a file; success if it is missing.
///
/// Errors: of the file system.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file to read and write it; `None` when it is missing.
///
/// Errors: of the file system.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Identity of a file, which differs from that of another one under its name.
///
/// Errors: of the file system.
pub fn identity(file: &File) -> io::Result<(u64, u64)> {
    let facts = file.metadata()?;
    Ok((facts.dev(), facts.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mark_is_made_while_somebody_looks_at_them() {
        let dir = tempfile::tempdir().unwrap();
        let (path, at) = (dir.path().join("x.index"), dir.path().join("x.lock"));
        let held = lock(&at).unwrap();
        let marking = std::thread::spawn({
            let (path, at) = (path.clone(), at.clone());
            move || mark(&path, "changing", &at).unwrap()
        });
        for _ in 0..20 {
            std::thread::sleep(TRY_AGAIN);
            let (live, dead) = marks(&path, "changing").unwrap();
            assert!(live.is_empty() && dead.is_empty());
        }
        drop(held);
        let (mark, file) = marking.join().unwrap();
        assert_eq!(marks(&path, "changing").unwrap(), (vec![mark.clone()], vec![]));
        drop(file);
        assert_eq!(marks(&path, "changing").unwrap(), (vec![], vec![mark]));
    }
}
