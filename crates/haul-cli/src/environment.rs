//! The environment of the process. Nothing else reads variables or asks for the home folder.

#![allow(clippy::disallowed_methods)] // the one place that reads them

use haul_remotes::Environment;
use std::{ffi::OsString, path::PathBuf};

/// The variables that haul reads, as `haul help environment` and the reference show them.
pub const VARIABLES: &[(&str, &str)] = &[
    (
        "HAUL_FLAG, RCLONE_FLAG",
        "A flag: HAUL_MAX_TRANSFER=1G is --max-transfer 1G. HAUL_ takes precedence over RCLONE_",
    ),
    ("HAUL_CONFIG", "haul's own config file"),
    ("RCLONE_CONFIG", "rclone's config file, which haul reads too"),
    ("HAUL_CONFIG_PASS, RCLONE_CONFIG_PASS", "Password of an encrypted config file"),
    (
        "HAUL_CONFIG_NAME_OPTION, RCLONE_CONFIG_NAME_OPTION",
        "An option of the remote NAME; HAUL_CONFIG_NAME_TYPE defines a remote",
    ),
    ("HAUL_S3_OPTION, RCLONE_S3_OPTION", "An option of all remotes of a type, here s3"),
    ("AWS_...", "Credentials and region as AWS's own tools read them; only with env_auth"),
    (
        "GOOGLE_APPLICATION_CREDENTIALS, GCE_METADATA_HOST",
        "Google's credentials file, and the host that knows the machine's account; only with env_auth",
    ),
    (
        "AZURE_..., IDENTITY_...",
        "Tenant, client, secret, certificate, token file, identity as Azure's tools read them; with env_auth or use_msi",
    ),
    (
        "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY",
        "Proxies, and hosts that need none; in lower case too. --http-proxy takes precedence",
    ),
    ("RSYNC_RSH, RSYNC_PARTIAL_DIR, CVSIGNORE", "As in rsync; only for haul rsync"),
    ("DVC_GLOBAL_CONFIG_DIR, DVC_SYSTEM_CONFIG_DIR", "As in dvc; only for haul dvc"),
    (
        "SLURM_STEP_NUM_TASKS, OMPI_COMM_WORLD_SIZE, PMI_SIZE",
        "Set by launchers of parallel programs: haul dcp refuses to run as several tasks",
    ),
    ("JOURNAL_STREAM", "Set by systemd: the log goes to the journal if standard error does"),
    ("NO_COLOR", "No colours"),
    ("TERM", "dumb means no colours and no live display"),
    ("SSH_CONNECTION", "The address that haul far listens on, if asked to listen"),
    ("HOME", "Home directory: ~/.config/haul, ~/.local/state/haul"),
    ("XDG_CONFIG_HOME", "Where config files are, instead of ~/.config"),
    ("XDG_STATE_HOME", "Where haul keeps its state, in haul/, instead of ~/.local/state"),
    ("XDG_RUNTIME_DIR", "Directory for the sockets of ssh logins, instead of a private one"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_tools_read_too_is_among_the_variables() {
        let names: Vec<&str> = VARIABLES.iter().flat_map(|(names, _)| names.split(", ")).collect();
        for name in ["HTTPS_PROXY", "NO_PROXY", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_...", "RSYNC_RSH", "CVSIGNORE"]
        {
            assert!(names.contains(&name), "{name}");
        }
    }
}
