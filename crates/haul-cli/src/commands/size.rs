//! `size`: how many files, how many bytes.

use super::listing::{Failures, Source, depth};
use crate::{
    context::Context,
    error::Outcome,
    show::out::{Out, quiet},
};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use haul_core::units::{count_text, size_text};
use std::ffi::OsString;

/// Show the number of files in a path and their total size
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    quiet(count(args, ctx).await)
}

async fn count(args: Args, ctx: &Context) -> Result<Outcome> {
    let source = Source::open(ctx, &args.path).await?;
    let mut entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let (mut files, mut bytes, mut failures) = (0u64, 0u64, Failures::default());
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry) else { continue };
        files += 1;
        bytes = bytes.saturating_add(entry.size);
    }
    // A total that lacks something is no total: nothing is printed then.
    failures.finish()?;
    let mut out = Out::stdout();
    out.bytes(if args.json { json(files, bytes) } else { text(files, bytes) }.as_bytes())?;
    out.flush()?;
    Ok(Outcome::Done)
}

fn json(files: u64, bytes: u64) -> String {
    // No store of ours lists files of unknown size.
    format!("{{\"count\":{files},\"bytes\":{bytes},\"sizeless\":0}}\n")
}

fn text(files: u64, bytes: u64) -> String {
    let short = count_text(files);
    let exact = if short == files.to_string() { String::new() } else { format!(" ({files})") };
    format!("Total objects: {short}{exact}\nTotal size: {} ({bytes} Byte)\n", size_text(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_read_as_rclones() {
        assert_eq!(text(2, 6), "Total objects: 2\nTotal size: 6 B (6 Byte)\n");
        assert_eq!(text(1234, 1536), "Total objects: 1.234k (1234)\nTotal size: 1.500 KiB (1536 Byte)\n");
        assert_eq!(json(2, 6), "{\"count\":2,\"bytes\":6,\"sizeless\":0}\n");
    }
}
