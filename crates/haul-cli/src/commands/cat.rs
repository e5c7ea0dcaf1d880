//! `cat`: the bytes of files to standard output.

use super::listing::{Failures, Source, depth};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    show::out::{Output, quiet},
};
use anyhow::Result;
use futures::StreamExt;
use haul::{ListOptions, pipe};
use haul_core::{Entry, Error, ErrorKind};
use haul_store::Store;
use std::{ffi::OsString, ops::Range, sync::Arc};

/// Print the content of files, one after another
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Print only the first N bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    head: u64,
    /// Print only the last N bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    tail: u64,
    /// Start at byte N, counted from the end if negative
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    offset: i64,
    /// Print only N bytes
    #[arg(long, value_name = "N", default_value_t = -1, allow_hyphen_values = true)]
    count: i64,
    /// Read, but print nothing
    #[arg(long)]
    discard: bool,
    /// Print this after each file
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    separator: String,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(print(args, ctx).await)
}

async fn print(args: Args, ctx: &Context) -> Result<CommandResult> {
    let window = window(&args)?;
    let source = Source::open(ctx, &args.path).await?;
    let mut entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let mut sink = Sink { out: Output::of_content(), discard: args.discard };
    let mut failures = Failures::default();
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry) else { continue };
        if let Err(error) = sink.file(&source.store, &entry, window).await {
            // A read error concerns one file; a write error ends the command.
            failures.add(error.downcast::<Error>()?);
        }
        sink.write(args.separator.as_bytes())?;
    }
    sink.out.flush()?;
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// Where to start (negative: from the end), and how many bytes.
type Window = (i64, Option<u64>);

fn window(args: &Args) -> Result<Window> {
    let ranges = [args.head > 0, args.tail > 0, args.offset != 0 || args.count >= 0];
    if ranges.iter().filter(|r| **r).count() > 1 {
        return Err(usage("use only one of --head, --tail, and --offset with --count"));
    }
    if args.head > 0 {
        return Ok((0, Some(args.head)));
    }
    if args.tail > 0 {
        return Ok((0i64.saturating_sub_unsigned(args.tail), None));
    }
    Ok((args.offset, u64::try_from(args.count).ok()))
}

/// The bytes of a file of this size that the window shows; `None` when it shows none.
fn range((start, count): Window, size: u64) -> Option<Range<u64>> {
    let start = if start < 0 { size.saturating_sub(start.unsigned_abs()) } else { start.unsigned_abs() };
    let end = count.map_or(size, |n| start.saturating_add(n).min(size));
    (start < end).then_some(start..end)
}

struct Sink {
    out: Output,
    discard: bool,
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.discard { Ok(()) } else { self.out.bytes(bytes) }
    }

    async fn file(&mut self, store: &Arc<dyn Store>, entry: &Entry, window: Window) -> Result<()> {
        entry.undamaged()?;
        let Some(range) = range(window, entry.size) else { return Ok(()) };
        let wanted = range.end - range.start;
        let part = (wanted != entry.size).then_some(range);
        let mut pieces = pipe::read(store, entry, part).await.map_err(|e| named(e, entry))?;
        let mut got = 0;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|e| named(e, entry))?;
            got += piece.len() as u64;
            self.write(&piece)?;
        }
        if got != wanted {
            let message = format!("it ended after {got} of {wanted} bytes");
            return Err(Error::new(ErrorKind::Io, "read", message).with_key(&entry.key).into());
        }
        Ok(())
    }
}

fn named(error: Error, entry: &Entry) -> Error {
    if error.key().is_some() { error } else { error.with_key(&entry.key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows() {
        for (window, size, expected) in [
            ((0, None), 3, Some(0..3)),
            ((0, None), 0, None),
            ((1, None), 3, Some(1..3)),
            ((-2, None), 3, Some(1..3)),
            ((-9, None), 3, Some(0..3)),
            ((-2, Some(1)), 3, Some(1..2)),
            ((0, Some(2)), 3, Some(0..2)),
            ((2, Some(u64::MAX)), 3, Some(2..3)),
            ((9, None), 3, None),
            ((0, Some(0)), 3, None),
        ] {
            assert_eq!(range(window, size), expected, "{window:?}");
        }
    }
}
