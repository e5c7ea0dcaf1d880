//! `haul version`.

use crate::{context::Context, error::CommandResult, print};
use anyhow::Result;
use haul_remotes::registry;

/// Nothing to say about it.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Prints version, commit, platform and what is built in.
pub async fn run(_: Args, _: &Context) -> Result<CommandResult> {
    let commit = match env!("HAUL_BUILT_FROM").split_once(' ') {
        Some((commit, date)) => format!("{commit} of {date}"),
        None => "unknown".into(),
    };
    let stores: Vec<&str> = registry::kinds().iter().map(|kind| kind.name).collect();
    print::line(&format!(
        "haul v{}\n- commit: {commit}\n- os/type: {}\n- os/arch: {}\n- built for: {}\n- stores: {}\n- ncdu: {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        env!("HAUL_BUILT_FOR"),
        stores.join(", "),
        if cfg!(feature = "ncdu") { "yes" } else { "no" }
    ))?;
    Ok(CommandResult::Done)
}
