//! Where the config files are, haul's own first, then rclone's; and where haul keeps what isn't configuration.

use crate::Environment;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The files of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConfigPaths {
    /// No file at all: `--config ""`.
    #[default]
    Nowhere,
    /// This file and no other: `--config FILE`.
    Only(PathBuf),
    /// haul's own, then rclone's, which counts for what haul's doesn't have.
    Both {
        /// haul's own file.
        own: PathBuf,
        /// rclone's.
        rclone: PathBuf,
    },
}

/// The files of a run, by `--config`, `HAUL_CONFIG`, `RCLONE_CONFIG`, `XDG_CONFIG_HOME` and the home folder.
pub fn places(flag: Option<&OsString>, environment: &Environment) -> ConfigPaths {
    if let Some(flag) = flag {
        return if flag.is_empty() { ConfigPaths::Nowhere } else { ConfigPaths::Only(flag.into()) };
    }
    let home = environment.home().map_or_else(PathBuf::new, Path::to_path_buf);
    let base = environment.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    let own = environment.get("HAUL_CONFIG").map_or_else(|| base.join("haul/haul.conf"), PathBuf::from);
    ConfigPaths::Both { own, rclone: rclone_file(environment, &home, &base) }
}

/// The folder for journals, in the one for what haul remembers.
pub fn journals(flag: Option<&OsString>, environment: &Environment) -> Option<PathBuf> {
    state(flag, environment).map(|state| state.join("jobs"))
}

/// The folder for what haul remembers: `--state-dir` (or its variable), in `XDG_STATE_HOME` or the home folder; `None` when
/// there is none of these, or the flag is empty.
pub fn state(flag: Option<&OsString>, environment: &Environment) -> Option<PathBuf> {
    let state = match flag {
        Some(flag) if flag.is_empty() => return None,
        Some(flag) => PathBuf::from(flag),
        None => match environment.get("XDG_STATE_HOME") {
            Some(base) => PathBuf::from(base).join("haul"),
            None => environment.home()?.join(".local/state/haul"),
        },
    };
    // The job may be looked up from another folder than the one it runs in.
    Some(std::path::absolute(&state).unwrap_or(state))
}

/// The first of rclone's places that has a file; the usual one when none has.
fn rclone_file(environment: &Environment, home: &Path, base: &Path) -> PathBuf {
    if let Some(path) = environment.get("RCLONE_CONFIG") {
        return path.into();
    }
    let usual = home.join(".config/rclone/rclone.conf");
    let all = [base.join("rclone/rclone.conf"), usual.clone(), home.join(".rclone.conf")];
    all.into_iter().find(|path| path.exists()).unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // A test makes its own files.

    use super::*;

    fn environment(vars: &[(&str, &str)], home: Option<&Path>) -> Environment {
        let vars = vars.iter().map(|(name, value)| (name.into(), value.into()));
        Environment::new(vars).with_home(home.map(Path::to_path_buf))
    }

    fn of(flag: Option<&str>, vars: &[(&str, &str)], home: &Path) -> ConfigPaths {
        places(flag.map(OsString::from).as_ref(), &environment(vars, Some(home)))
    }

    #[test]
    fn journals_by_flag_environment_and_home() {
        let of = |flag: Option<&str>, vars: &[(&str, &str)], home: Option<&str>| {
            journals(flag.map(OsString::from).as_ref(), &environment(vars, home.map(Path::new)))
        };
        let state = [("XDG_STATE_HOME", "/x")];
        assert_eq!(of(Some("/s"), &state, Some("/h")), Some("/s/jobs".into()));
        assert_eq!(of(Some(""), &state, Some("/h")), None);
        assert_eq!(of(None, &state, Some("/h")), Some("/x/haul/jobs".into()));
        assert_eq!(of(None, &[], Some("/h")), Some("/h/.local/state/haul/jobs".into()));
        assert_eq!(of(None, &[], None), None);
        assert_eq!(of(Some("s"), &[], None), Some(std::env::current_dir().unwrap().join("s/jobs")));
    }

    #[test]
    fn places_by_flag_environment_and_home() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let at = |p: &str| home.join(p);
        assert_eq!(of(Some(""), &[], home), ConfigPaths::Nowhere);
        assert_eq!(of(Some("x"), &[("HAUL_CONFIG", "/h")], home), ConfigPaths::Only("x".into()));
        let both = |own: PathBuf, rclone: PathBuf| ConfigPaths::Both { own, rclone };
        assert_eq!(of(None, &[], home), both(at(".config/haul/haul.conf"), at(".config/rclone/rclone.conf")));
        assert_eq!(of(None, &[("HAUL_CONFIG", "/h"), ("RCLONE_CONFIG", "/r")], home), both("/h".into(), "/r".into()));
        std::fs::write(at(".rclone.conf"), "").unwrap();
        assert_eq!(of(None, &[], home), both(at(".config/haul/haul.conf"), at(".rclone.conf")));
        let xdg = at("xdg");
        std::fs::create_dir_all(xdg.join("rclone")).unwrap();
        std::fs::write(xdg.join("rclone/rclone.conf"), "").unwrap();
        assert_eq!(
            of(None, &[("XDG_CONFIG_HOME", xdg.to_str().unwrap())], home),
            both(xdg.join("haul/haul.conf"), xdg.join("rclone/rclone.conf"))
        );
    }
}
