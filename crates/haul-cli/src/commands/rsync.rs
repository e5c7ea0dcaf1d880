//! `rsync`: its words go to `haul-rsync` as they are, with this process's session, terminal and journals.

use super::job;
use crate::{context::Context, error::CommandResult, flags};
use anyhow::Result;
use haul::{Cx, journal::Journal};
use haul_core::{Key, job::Verb};
use std::ffi::OsString;

/// rsync's options, sources and destination, as they are.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// rsync's options, sources and destination
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    words: Vec<OsString>,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let journals = |verb: Verb, cx: &Cx, one: Option<(&Key, &Key)>| journal(ctx, verb, cx, one);
    Ok(CommandResult::Exit(haul_rsync::run(args.words, &surroundings(ctx, &journals)).await?))
}

/// Context for a front end with its own command line.
pub fn surroundings<'a>(ctx: &'a Context, journals: &'a haul_rsync::Journals<'a>) -> haul_rsync::Context<'a> {
    haul_rsync::Context {
        session: &ctx.session,
        screen: ctx.screen.clone(),
        meters: ctx.meters.clone(),
        cancel: ctx.cancel.clone(),
        dry_run: ctx.flags.config.dry_run,
        interactive: ctx.flags.config.interactive,
        memory: flags::transfer::max_memory(&ctx.flags.copy),
        known: ctx.known(),
        journals,
    }
}

/// The journal of one of its jobs.
pub fn journal(ctx: &Context, verb: Verb, cx: &Cx, one: Option<(&Key, &Key)>) -> Result<Option<Journal>> {
    job::journal(ctx, verb, cx, one, false)
}
