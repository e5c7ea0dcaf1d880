//! Files and folders that options and the last argument name. Symbolic links of other users aren't followed on the way to them,
//! unless `--insecure-links` says so.

use super::{
    Context,
    exit::{self, Refusal},
    path_args::is_here,
};
use haul_core::ErrorKind;
use haul_fs::open_by_own_links;
use haul_remotes::OpenOptions;
use haul_store::Store;
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    sync::{Arc, Mutex},
};

/// Opens a file.
///
/// Errors: it can't be opened; one that [`is_foreign_link`] for a link of another user.
pub fn open(path: &[u8], flags: OFlags, any_links: bool) -> io::Result<File> {
    let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
    let opened = match any_links {
        true => rustix::fs::openat(CWD, path, flags, mode),
        false => open_by_own_links(path, flags, mode),
    };
    Ok(File::from(opened?))
}

/// True when a link of another user was on the way.
pub fn is_foreign_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// The error as text for a person.
pub fn why(error: &io::Error) -> String {
    if is_foreign_link(error) { foreign_link().into() } else { error.to_string() }
}

/// Content of a file.
///
/// Errors: as for [`open`]; it can't be read.
pub fn read(path: &[u8], any_links: bool) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open(path, OFlags::RDONLY, any_links)?.read_to_end(&mut text)?;
    Ok(text)
}

/// Files of rules and names, which are read once: each job asks for them, and for the destination's sake, and a pipe gives what it
/// holds but once.
#[derive(Clone, Debug, Default)]
pub struct InputFiles(Arc<Mutex<Files>>);

/// Content of each path, or why it can't be read.
type Files = HashMap<Vec<u8>, Result<Vec<u8>, String>>;

impl InputFiles {
    /// A file that an option names; `-` is standard input.
    ///
    /// Errors: one line that names it.
    pub fn text(&self, path: &[u8], any_links: bool) -> Result<Vec<u8>, String> {
        let mut files = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let read = || {
            let mut text = Vec::new();
            match path {
                b"-" => io::stdin().read_to_end(&mut text).map(|_| text).map_err(|e| format!("standard input: {e}")),
                path => read(path, any_links).map_err(|e| format!("{}: {}", String::from_utf8_lossy(path), why(&e))),
            }
        };
        files.entry(path.to_vec()).or_insert_with(read).clone()
    }
}

/// Looks at the way to the destination before anything is done.
///
/// Errors: a link of another user is on it.
pub fn check_dest(any_links: bool, dest: &OsStr) -> Result<(), Refusal> {
    let looked = !any_links && is_here(dest);
    match looked.then(|| open_by_own_links(dest.as_bytes(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())) {
        Some(Err(Errno::LOOP)) => Err((exit::SELECTION, format!("{}: {}", dest.display(), foreign_link()))),
        _ => Ok(()),
    }
}

/// Opens a folder.
///
/// Errors: it can't be opened, with the exit code.
pub fn store(ctx: &Context<'_>, path: &OsStr, options: &OpenOptions) -> Result<Arc<dyn Store>, Refusal> {
    ctx.session.open(path, options).map_err(|error| match error.cause() {
        haul_remotes::Error::Store(denied) if denied.kind() == ErrorKind::Denied && is_here(path) => {
            (exit::SELECTION, format!("{}: {}", path.display(), foreign_link()))
        }
        _ => (exit::FILE_IO, format!("{:#}", anyhow::Error::from(error))),
    })
}

fn foreign_link() -> &'static str {
    "Refused to follow a symbolic link of another user on the way (--insecure-links follows it)"
}
