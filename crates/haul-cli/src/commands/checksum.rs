//! `checksum`: checks files against a file of hashes.

use super::{file_lists::Lists, hash_sums};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    show::out::quiet,
};
use anyhow::Result;
use haul_core::Algo;
use std::ffi::OsString;

/// Arguments of `checksum`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Type of hash, such as sha256
    #[arg(value_name = "HASH")]
    hash: String,
    /// File of hashes, as written by sha256sum; it may be on a remote
    #[arg(value_name = "SUMFILE")]
    file: OsString,
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Read the files and hash them instead of asking the store
    #[arg(long)]
    download: bool,
    /// Ignore files that aren't in the file of hashes
    #[arg(long)]
    one_way: bool,
    #[command(flatten)]
    lists: Lists,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let algo: Algo = args.hash.parse().map_err(usage)?;
    let how = hash_sums::SumsOptions { download: args.download, one_way: args.one_way, lists: Some(&args.lists) };
    quiet(hash_sums::check(algo, &args.path, &args.file, how, ctx).await)
}
