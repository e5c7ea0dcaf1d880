//! `dcp`: its words go to `haul-dcp` as they are.

use super::rsync::{journal, surroundings};
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use haul::Cx;
use haul_core::{Key, job::Verb};
use std::ffi::OsString;

/// dcp's options, sources and destination, as they are.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// dcp's options, sources and destination
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    words: Vec<OsString>,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let journals = |verb: Verb, cx: &Cx, one: Option<(&Key, &Key)>| journal(ctx, verb, cx, one);
    Ok(CommandResult::Exit(haul_dcp::run(args.words, &surroundings(ctx, &journals)).await?))
}
