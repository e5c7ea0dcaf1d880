//! `haul version`.

use crate::{context::Context, error::Outcome, print};
use anyhow::Result;

/// Nothing to say about it.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Prints version and platform.
pub async fn run(_: Args, _: &Context) -> Result<Outcome> {
    print::line(&format!(
        "haul v{}\n- os/type: {}\n- os/arch: {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    ))?;
    Ok(Outcome::Done)
}
