//! The configuration: haul's own file and rclone's, read when a remote is first asked for, and changed safely.

pub mod crypt;
pub mod file;
pub mod obscure;
pub mod paths;
mod section;
mod store;

pub use paths::ConfigPaths;
pub use section::ConfigSection;
pub use store::{AskPassword, Config, Password, Source};

/// A configuration of this text, in a file that lives as long as the folder.
#[cfg(test)]
pub fn store_for_tests(text: &str) -> (tempfile::TempDir, Config) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    #[allow(clippy::disallowed_methods)] // a test's own file
    std::fs::write(&path, text).unwrap();
    let config = Config::load(&paths::ConfigPaths::Only(path), Password::default()).unwrap();
    (dir, config)
}
