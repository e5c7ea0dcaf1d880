//! The environment of the process. Nothing else reads variables or asks for the home folder.

#![allow(clippy::disallowed_methods)] // the one place that reads them

use haul_remotes::Environment;
use std::{ffi::OsString, path::PathBuf};

/// The variables that haul reads, as `haul help environment` and the reference show them.
pub const VARIABLES: &[(&str, &str)] = &[
    ("HAUL_FLAG, RCLONE_FLAG", "A flag: HAUL_MAX_TRANSFER=1G is --max-transfer 1G. HAUL_ counts before RCLONE_"),
    ("HAUL_CONFIG", "haul's own config file"),
    ("RCLONE_CONFIG", "rclone's config file, which haul reads too"),
    ("HAUL_CONFIG_PASS, RCLONE_CONFIG_PASS", "Password of an encrypted config file"),
    (
        "HAUL_CONFIG_NAME_OPTION, RCLONE_CONFIG_NAME_OPTION",
        "An option of the remote NAME; HAUL_CONFIG_NAME_TYPE defines a remote",
    ),
    ("HAUL_S3_OPTION, RCLONE_S3_OPTION", "An option of all remotes of a type, here s3"),
    ("AWS_...", "Credentials and region as AWS's own tools read them; only with env_auth"),
    ("NO_COLOR", "No colours"),
    ("TERM", "dumb means no colours and no live display"),
    ("SSH_CONNECTION", "The address that haul far listens on, if it is asked to"),
    ("HOME", "Home directory: ~/.config/haul, ~/.local/state/haul"),
    ("XDG_CONFIG_HOME", "Where config files are, instead of ~/.config"),
    ("XDG_STATE_HOME", "Where haul keeps its state, in haul/, instead of ~/.local/state"),
];

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
