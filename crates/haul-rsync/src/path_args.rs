//! Sources, destinations and folders as they are typed: the remote before the path, and what the path's letters say.

use super::exit::{self, Refusal};
use haul_remotes::{Location, Spec};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
};

/// Errors: the argument names a daemon.
pub fn check_daemon(word: &OsStr) -> Result<(), Refusal> {
    let bytes = word.as_bytes();
    let before_slash = bytes.split(|b| *b == b'/').next().unwrap_or_default();
    let backend = bytes.starts_with(b":");
    if bytes.starts_with(b"rsync://")
        || !backend && !bytes.starts_with(b"[") && before_slash.windows(2).any(|two| two == b"::")
    {
        let line = "rsync daemons aren't supported: name the host as HOST:PATH, which goes by ssh, or use rsync";
        return Err((exit::UNSUPPORTED, format!("{}: {line}", word.display())));
    }
    Ok(())
}

/// A typed argument, split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathArg {
    /// `remote:`, or nothing.
    pub head: Vec<u8>,
    pub path: Vec<u8>,
}

impl PathArg {
    pub fn parse(word: &OsStr) -> Result<PathArg, Refusal> {
        check_daemon(word)?;
        let bytes = word.as_bytes();
        let spec = Spec::parse(bytes).map_err(|e| (exit::USAGE, e.to_string()))?;
        let head = match spec.place {
            Location::Local => Vec::new(),
            _ => bytes[..bytes.len() - spec.path.len()].to_vec(),
        };
        Ok(PathArg { head, path: spec.path })
    }

    pub fn here(&self) -> bool {
        self.head.is_empty()
    }

    /// It is at a host, reached by ssh.
    pub fn is_host(&self) -> bool {
        [&b":far,"[..], b":sftp,"].iter().any(|way| self.head.starts_with(way))
    }

    /// As a person knows a path of it.
    pub fn shown(&self, path: &[u8]) -> Vec<u8> {
        if self.is_host() { path.to_vec() } else { self.word(path).into_vec() }
    }

    pub fn word(&self, path: &[u8]) -> OsString {
        let path = if path.is_empty() && self.here() { b"." } else { path };
        OsString::from_vec([&self.head, path].concat())
    }

    /// Below its own path.
    pub fn below(&self, name: &[u8]) -> OsString {
        self.word(&join(&self.path, name))
    }

    /// It means what is in it.
    pub fn contents(&self) -> bool {
        let last = self.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        matches!(last, b"" | b"." | b"..")
    }

    /// The folder that holds it, as typed, and its name there.
    pub fn split(&self) -> (Vec<u8>, Vec<u8>) {
        let (folder, name) = split(&self.path);
        (folder.to_vec(), name.to_vec())
    }
}

/// The part up to the last slash, and the part after it.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1))
}

/// A name below a path.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (dir, b"") => dir.to_vec(),
        (b"", name) => name.to_vec(),
        (dir, name) if dir.ends_with(b"/") => [dir, name].concat(),
        (dir, name) => [dir, b"/", name].concat(),
    }
}

/// An absolute path ending in `/`.
pub fn absolute(path: &[u8]) -> Vec<u8> {
    let path = if path.is_empty() { b"." } else { path };
    let absolute = std::path::absolute(Path::new(OsStr::from_bytes(path)));
    let mut absolute = absolute.map_or_else(|_| path.to_vec(), |p| p.into_os_string().into_vec());
    if absolute.ends_with(b"/.") {
        absolute.pop();
    }
    if !absolute.ends_with(b"/") {
        absolute.push(b'/');
    }
    absolute
}

/// A path without what says nothing: `./`, double slashes, a slash at either end.
pub fn clean(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.collect::<Vec<_>>().join(&b'/')
}

/// A path at the destination, and relative to it where it isn't absolute, as rsync takes `--link-dest` and the like.
///
/// Errors: the path can't be used.
pub fn beside(dest: &OsStr, path: &[u8], into: &[u8]) -> Result<OsString, Refusal> {
    let typed = PathArg::parse(OsStr::from_bytes(path))?;
    let to = PathArg::parse(dest)?;
    let base = match (typed.here(), path.starts_with(b"/")) {
        (false, _) => typed,
        // It is on the destination's machine. Other remotes have no such paths.
        (true, true) if to.is_host() => PathArg { path: path.to_vec(), ..to },
        (true, true) => typed,
        (true, false) => {
            let path = join(&to.path, path);
            PathArg { path, ..to }
        }
    };
    Ok(base.below(into))
}

/// True for a path on this machine.
pub fn is_here(word: &OsStr) -> bool {
    PathArg::parse(word).is_ok_and(|typed| typed.here())
}

/// The absolute path of a folder here, ending in `/`.
pub fn folder_here(word: &OsStr) -> Option<Vec<u8>> {
    is_here(word).then(|| absolute(word.as_bytes()))
}
