//! `haul config`.

use crate::{context::Context, error::Outcome};
use anyhow::Result;

/// What to do with the configuration.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs it.
pub async fn run(_: Args, _: &Context) -> Result<Outcome> {
    Ok(Outcome::Done)
}
