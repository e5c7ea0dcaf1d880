//! `md5sum`: `hashsum md5`.

use super::hashsum::{self, HashsumOptions};
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use haul_core::Algo;
use std::ffi::OsString;

/// Print MD5 hashes of the files in a path
///
/// Without a path hashes standard input.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path; - for standard input
    #[arg(value_name = "REMOTE:PATH")]
    path: Option<OsString>,
    /// How to print.
    #[command(flatten)]
    how: HashsumOptions,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    hashsum::of(Algo::Md5, args.path, args.how, ctx).await
}
