//! `size`: how many files, how many bytes.

use super::listing::{Failures, Source, depth};
use crate::{
    context::Context,
    error::CommandResult,
    show::out::{Output, quiet},
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(count(args, ctx).await)
}

async fn count(args: Args, ctx: &Context) -> Result<CommandResult> {
    let source = Source::open(ctx, &args.path).await?;
    let mut entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let (mut total, mut failures) = (Total::default(), Failures::default());
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry) else { continue };
        total.files += 1;
        total.bytes = total.bytes.saturating_add(entry.size);
        total.sizeless += u64::from(!entry.sized);
    }
    // A total that lacks something is no total: nothing is printed then.
    failures.finish()?;
    let mut out = Output::stdout();
    out.bytes(if args.json { json(&total) } else { text(&total) }.as_bytes())?;
    out.flush()?;
    Ok(CommandResult::Done)
}

#[derive(Default)]
struct Total {
    files: u64,
    bytes: u64,
    /// Files whose size nobody knows.
    sizeless: u64,
}

fn json(&Total { files, bytes, sizeless }: &Total) -> String {
    format!("{{\"count\":{files},\"bytes\":{bytes},\"sizeless\":{sizeless}}}\n")
}

fn text(&Total { files, bytes, sizeless }: &Total) -> String {
    let count = |count: u64| match count_text(count) {
        short if short == count.to_string() => short,
        short => format!("{short} ({count})"),
    };
    let mut text = format!("Total objects: {}\nTotal size: {} ({bytes} Byte)\n", count(files), size_text(bytes));
    if sizeless > 0 {
        text += &format!("Total objects with unknown size: {}\n", count(sizeless));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_read_as_rclones() {
        let total = |files, bytes, sizeless| Total { files, bytes, sizeless };
        assert_eq!(text(&total(2, 6, 0)), "Total objects: 2\nTotal size: 6 B (6 Byte)\n");
        assert_eq!(text(&total(1234, 1536, 0)), "Total objects: 1.234k (1234)\nTotal size: 1.500 KiB (1536 Byte)\n");
        let some = text(&total(3, 6, 1));
        assert_eq!(some, "Total objects: 3\nTotal size: 6 B (6 Byte)\nTotal objects with unknown size: 1\n");
        assert_eq!(json(&total(2, 6, 0)), "{\"count\":2,\"bytes\":6,\"sizeless\":0}\n");
    }
}
