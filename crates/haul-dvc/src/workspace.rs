//! Walking a tracked directory: which files are in it, with the facts that tell whether they changed.

// A workspace is files of this machine's disk, which this crate reads and writes by itself.
#![allow(clippy::disallowed_methods)]

use crate::dvcignore::{self, Ignored};
use haul_cas::facts::{Facts, invalid, io_error, went};
use haul_core::Result;
use rustix::{
    fs::{Dir, FileType, Mode, OFlags},
    io::Errno,
};
use std::path::{Path, PathBuf};

/// A file of the workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceFile {
    /// Its path below the tracked directory; empty for a tracked file itself.
    pub path: String,
    /// Facts of the file, or of what the link leads to.
    pub facts: Facts,
    /// It is reached by a link.
    pub link: bool,
}

/// Current state of a tracked path.
#[derive(Debug)]
pub enum WorkspaceState {
    /// Nothing.
    Nothing,
    /// A file.
    File(WorkspaceFile),
    /// A directory with these files, in no order.
    Dir(Vec<WorkspaceFile>),
}

/// Looks at a tracked path. Blocks.
///
/// Errors: a path can't be read; a broken link; a name that isn't UTF-8, which DVC can't track; a `.dvcignore` in a tracked
/// directory, which DVC refuses.
pub fn look(path: &Path, ignored: &Ignored) -> Result<WorkspaceState> {
    let own = Facts::get(path, false).map_err(|e| io_error("read", path, e))?;
    let Some(own) = own else { return Ok(WorkspaceState::Nothing) };
    let link = own.is_link();
    let facts = if link { Facts::get(path, true).map_err(|e| io_error("read", path, e))? } else { Some(own) };
    match facts {
        Some(facts) if facts.is_file() => Ok(WorkspaceState::File(WorkspaceFile { path: String::new(), facts, link })),
        Some(facts) if facts.is_dir() && !link => Ok(WorkspaceState::Dir(walk(path, ignored)?)),
        Some(facts) if facts.is_dir() => {
            Err(invalid("read", path, "it is a link to a directory, which DVC doesn't track"))
        }
        Some(_) => Err(invalid("read", path, "it is neither a file nor a directory")),
        // A link whose file in the cache is gone.
        None => Ok(WorkspaceState::Nothing),
    }
}

fn walk(root: &Path, ignored: &Ignored) -> Result<Vec<WorkspaceFile>> {
    let mut found = Vec::new();
    let mut left = vec![String::new()];
    while let Some(folder) = left.pop() {
        one(root, &folder, ignored, &mut found, &mut left)?;
    }
    Ok(found)
}

fn one(
    root: &Path,
    folder: &str,
    ignored: &Ignored,
    found: &mut Vec<WorkspaceFile>,
    left: &mut Vec<String>,
) -> Result<()> {
    let path: PathBuf = if folder.is_empty() { root.into() } else { root.join(folder) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOENT => went(&path),
        e => io_error("list", &path, e),
    })?;
    let mut dir = Dir::read_from(&fd).map_err(|e| io_error("list", &path, e))?;
    while let Some(entry) = dir.read() {
        let entry = entry.map_err(|e| io_error("list", &path, e))?;
        let bytes = entry.file_name().to_bytes();
        if matches!(bytes, b"." | b"..") || dvcignore::is_tools_own(bytes) {
            continue;
        }
        let name = std::str::from_utf8(bytes).map_err(|_| {
            let shown = path.join(String::from_utf8_lossy(bytes).as_ref());
            invalid("read", &shown, "its name isn't UTF-8, and DVC can't track it: rename it")
        })?;
        let full = || path.join(name);
        if name == dvcignore::NAME {
            return Err(invalid("read", &full(), "DVC allows no .dvcignore in a tracked directory: move it up"));
        }
        let mut kind = entry.file_type();
        let mut facts = None;
        if matches!(kind, FileType::RegularFile | FileType::Unknown | FileType::Symlink) {
            match Facts::at(&fd, bytes, kind == FileType::Symlink) {
                Ok(known) => facts = Some(known),
                // It went between listing and asking; it may have a name now that was passed by.
                Err(Errno::NOENT) if kind != FileType::Symlink => return Err(went(&full())),
                Err(e) => return Err(io_error("read", &full(), e)),
            }
        }
        let link = kind == FileType::Symlink;
        if let Some(known) = &facts {
            kind = FileType::from_raw_mode(known.mode);
        }
        if !ignored.is_empty() && ignored.is(&full(), kind == FileType::Directory) {
            continue;
        }
        let below = crate::paths::joined(folder, name);
        match (kind, facts) {
            (FileType::Directory, _) if !link => left.push(below),
            (FileType::RegularFile, Some(facts)) => found.push(WorkspaceFile { path: below, facts, link }),
            (FileType::Directory, _) => tracing::debug!("{below}: a link to a directory; DVC leaves it out"),
            _ => return Err(invalid("read", &full(), "it is neither a file nor a directory: DVC can't track it")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;

    /// A file that is renamed while its folder is looked at may be seen under neither name, so that is no reason to leave it out.
    #[test]
    fn what_went_is_an_error_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let (mut found, mut left) = (Vec::new(), Vec::new());
        let folder = one(dir.path(), "gone", &Ignored::default(), &mut found, &mut left).unwrap_err();
        let path = dir.path().join("gone");
        let facts = Facts::get(dir.path(), true).unwrap().unwrap();
        let file = Cache::new(dir.path().join("cache"), false).take(&path, facts, &[]).unwrap_err();
        for error in [folder, file] {
            let message =
                "it went while the directory was looked at: run this again when nobody deletes or renames files there";
            assert_eq!(error.to_string(), format!("{}: read: {message}", path.display()));
        }
    }
}
