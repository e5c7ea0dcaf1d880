//! `touch`: times of files, and new empty files.

use super::{
    deleting::allowed,
    listing::{Failures, Source, open_file},
};
use crate::{
    context::Context,
    error::{CommandResult, usage},
};
use anyhow::Result;
use futures::StreamExt;
use haul::{ListOptions, pipe};
use haul_core::{Entry, ErrorKind, Key, Mtime, plan::Replace};
use haul_store::{Store, WriteSpec};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use std::{
    ffi::{OsStr, OsString},
    sync::Arc,
};

/// Set the modification time of files, or create an empty one
///
/// For a directory, sets the times of the files in it; with --recursive, also of files in subdirectories.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Don't create the file if it doesn't exist
    #[arg(long, short = 'C')]
    no_create: bool,
    /// Set this time instead of now: YYMMDD, YYYY-MM-DDTHH:MM:SS, or that with a fraction of a second; in UTC
    #[arg(long, short = 't', value_name = "TIME")]
    timestamp: Option<String>,
    /// Read --timestamp as local time
    #[arg(long)]
    localtime: bool,
    /// Touch all files below a directory; create nothing
    #[arg(long, short = 'R')]
    recursive: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let time = match &args.timestamp {
        Some(text) => timestamp(text, args.localtime)?,
        None => Mtime(Timestamp::now().as_nanosecond()),
    };
    let (store, key) = open_file(ctx, &args.path).await?;
    let Some(key) = key else { return below(ctx, &args.path, time, args.recursive).await };
    match store.stat(&key).await {
        Ok(entry) if entry.is_dir() => below(ctx, &args.path, time, args.recursive).await,
        Ok(entry) => {
            if allowed(ctx, "touch", &key, Some(entry.size)) {
                store.set_meta(&key, Some(time), None).await?;
            }
            Ok(CommandResult::Done)
        }
        Err(e) if e.is_missing() => {
            if is_folder(ctx, &args.path).await? {
                return below(ctx, &args.path, time, args.recursive).await;
            }
            create(&args, ctx, &store, &key, time).await
        }
        Err(e) => Err(e.into()),
    }
}

/// Is the path a directory, or, on a store without those, the beginning of some key?
async fn is_folder(ctx: &Context, path: &OsStr) -> Result<bool> {
    let store = ctx.open(path)?;
    if !store.caps().dirs {
        return super::listing::holds_something(&store).await;
    }
    Ok(store.stat(&Key::new("")).await.is_ok_and(|e| e.is_dir()))
}

async fn create(args: &Args, ctx: &Context, store: &Arc<dyn Store>, key: &Key, time: Mtime) -> Result<CommandResult> {
    if args.no_create || args.recursive {
        let why = if args.no_create { "--no-create" } else { "--recursive" };
        tracing::warn!("{}: Not touching nonexistent file due to {why}", crate::journal::shown_path(&args.path));
        return Ok(CommandResult::Done);
    }
    if allowed(ctx, "touch (create)", key, None) {
        let replace = if store.caps().conditional { Replace::Absent } else { Replace::Anything };
        let spec = WriteSpec { size: Some(0), mtime: Some(time), replace, ..Default::default() };
        match pipe::write(store, key, spec, futures::stream::empty().boxed()).await {
            // Somebody made it meanwhile.
            Err(error) if error.kind() == ErrorKind::Exists => store.set_meta(key, Some(time), None).await?,
            written => drop(written?),
        }
    }
    Ok(CommandResult::Done)
}

/// Sets the times of the files in a directory, several at once.
async fn below(ctx: &Context, path: &OsStr, time: Mtime, recursive: bool) -> Result<CommandResult> {
    let source = Source::open(ctx, path).await?;
    let max_depth = if recursive { super::listing::depth(&ctx.flags, true) } else { Some(1) };
    let entries = source.entries(ListOptions { max_depth, ..Default::default() });
    let store = &source.store;
    let touched = entries.map(|entry| async move {
        let entry: Entry = entry?;
        if allowed(ctx, "touch", &entry.key, Some(entry.size)) {
            store.set_meta(&entry.key, Some(time), None).await?;
        }
        Ok(())
    });
    let mut touched = touched.buffered(ctx.flags.pace.transfers.unwrap_or(4).max(1)).boxed();
    let mut failures = Failures::default();
    while let Some(answer) = touched.next().await {
        failures.keep(answer);
    }
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// Reads `--timestamp`.
fn timestamp(text: &str, local: bool) -> Result<Mtime> {
    let zone = if local { TimeZone::system() } else { TimeZone::UTC };
    let wrong = || usage(format!("bad time {text:?}: write YYMMDD, YYYY-MM-DDTHH:MM:SS, or that with .fraction"));
    let layout = if text.len() == 6 { "%y%m%d" } else { "%Y-%m-%dT%H:%M:%S%.f" };
    let civil = match text.len() {
        6 => jiff::civil::Date::strptime(layout, text).map(DateTime::from),
        _ => DateTime::strptime(layout, text),
    };
    let zoned = civil.and_then(|c| c.to_zoned(zone)).map_err(|_| wrong())?;
    Ok(Mtime(zoned.timestamp().as_nanosecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_as_rclone_reads_them() {
        for (text, secs, nanos) in [
            ("171030", 1_509_321_600, 0),
            ("2006-01-02T15:04:05", 1_136_214_245, 0),
            ("2006-01-02T15:04:05.123456789", 1_136_214_245, 123_456_789),
            ("2006-01-02T15:04:05.5", 1_136_214_245, 500_000_000),
        ] {
            assert_eq!(timestamp(text, false).unwrap(), Mtime::new(secs, nanos), "{text}");
        }
        for text in ["", "1", "20060102", "2006-01-02", "2006-13-02T15:04:05", "17103x"] {
            assert!(timestamp(text, false).is_err(), "{text}");
        }
    }
}
