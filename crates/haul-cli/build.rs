//! Tells the program from which commit it is built, for `haul version`.

// A build has an environment, and git, of its own.
#![allow(clippy::disallowed_methods)]

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=HAUL_COMMIT");
    // Where the sources aren't a repository a packager may say it: HAUL_COMMIT="5d68303 2026-11-23".
    let from_env = std::env::var("HAUL_COMMIT").ok();
    let commit = from_env.or_else(|| git(&["log", "-1", "--abbrev=12", "--format=%h %cs"])).unwrap_or_default();
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    println!("cargo:rustc-env=HAUL_BUILT_FROM={commit}");
    // Cargo always sets these two.
    let cargo = |name| std::env::var(name).unwrap_or_default();
    println!("cargo:rustc-env=HAUL_BUILT_FOR={} ({})", cargo("TARGET"), cargo("PROFILE"));
}

fn git(args: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(args).output().ok().filter(|ran| ran.status.success())?;
    let text = String::from_utf8(ran.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
