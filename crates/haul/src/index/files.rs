//! The state folder's files as this module reads and writes them, and the clock.

// The state folder is the engine's own, no store's; and this is where this crate reads the clock.
#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The time.
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// A whole file; `None` when it can't be read.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    fs::read(path).ok()
}

/// Makes the folder of `path`: names and hashes are for nobody else's eyes.
pub fn make_folder(path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Writes a file beside `path`, then puts it in its place: readers have the old one or the whole new one.
///
/// Errors: those of `write` and of the file system; then the old one is as it was.
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
