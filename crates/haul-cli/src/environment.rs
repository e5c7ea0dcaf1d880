//! The environment of the process. Nothing else reads variables or asks for the home folder.

#![allow(clippy::disallowed_methods)] // the one place that reads them

use haul_remotes::Environment;
use std::{ffi::OsString, path::PathBuf};

/// A variable; an empty one counts as unset.
pub fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|v| !v.is_empty())
}

/// The user's home folder.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir()
}

/// All variables and the home folder, as a session takes them.
pub fn environment() -> Environment {
    Environment::new(std::env::vars_os()).with_home(home())
}
