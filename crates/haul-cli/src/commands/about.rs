//! `about`: how much space there is.

use crate::{
    context::Context,
    error::CommandResult,
    show::out::{Output, quiet},
};
use anyhow::Result;
use haul_core::units::size_text;
use haul_store::{SpaceUsage, offered};
use std::ffi::OsString;

/// Show total, used and free space
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show exact numbers of bytes
    #[arg(long)]
    full: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(about(args, ctx).await)
}

async fn about(args: Args, ctx: &Context) -> Result<CommandResult> {
    let store = ctx.open(&args.path)?;
    let SpaceUsage { total, used, free } = offered(store.admin(), "about")?.about().await?;
    let fields = [("Total", total), ("Used", used), ("Free", free)];
    let mut out = Output::stdout();
    out.bytes(if args.json { json(&fields) } else { text(&fields, args.full) }.as_bytes())?;
    out.flush()?;
    Ok(CommandResult::Done)
}

fn text(fields: &[(&str, Option<u64>)], full: bool) -> String {
    let value = |n: u64| if full { n.to_string() } else { size_text(n) };
    let known = fields.iter().filter_map(|(name, n)| n.map(|n| (name, n)));
    known.map(|(name, n)| format!("{:<9}{}\n", format!("{name}:"), value(n))).collect()
}

fn json(fields: &[(&str, Option<u64>)]) -> String {
    let known = fields.iter().filter_map(|(name, n)| n.map(|n| format!("\t\"{}\": {n}", name.to_lowercase())));
    format!("{{\n{}\n}}\n", known.collect::<Vec<_>>().join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_reads_as_rclones() {
        let fields = [("Total", Some(2048)), ("Used", None), ("Free", Some(1536))];
        assert_eq!(text(&fields, false), "Total:   2 KiB\nFree:    1.500 KiB\n");
        assert_eq!(text(&fields, true), "Total:   2048\nFree:    1536\n");
        assert_eq!(json(&fields), "{\n\t\"total\": 2048,\n\t\"free\": 1536\n}\n");
    }
}
