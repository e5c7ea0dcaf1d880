//! `haul obscure`: what a password looks like in a config file.

use crate::{context::Context, error::CommandResult, print};
use anyhow::{Context as _, Result};
use haul_remotes::config::obscure::obscure;
use std::io::Read as _;

/// The password.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The password; - reads it from standard input
    password: String,
}

/// Prints the obscured password.
pub async fn run(args: Args, _: &Context) -> Result<CommandResult> {
    let password = if args.password == "-" { from_stdin()? } else { args.password };
    print::line(&obscure(&password)?)?;
    Ok(CommandResult::Done)
}

fn from_stdin() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("can't read the password from standard input")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_string())
}
