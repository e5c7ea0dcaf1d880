//! Files with credentials.

use haul_core::{Error, ErrorKind, Result};
use std::{env, fs, path::PathBuf};

/// The text of a credentials file; `~/` begins at home.
///
/// Errors: `Invalid`, naming what it is and where, for a file that can't be read.
// People say where their credentials are.
#[allow(clippy::disallowed_methods)]
pub fn text_of(path: &str, what: &str) -> Result<String> {
    let path = match path.strip_prefix("~/") {
        Some(rest) => env::home_dir().unwrap_or_default().join(rest),
        None => PathBuf::from(path),
    };
    fs::read_to_string(&path).map_err(|e| invalid(format!("can't read {what} {}: {e}", path.display())))
}

/// The error of credentials that can't be used.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "open", message)
}
