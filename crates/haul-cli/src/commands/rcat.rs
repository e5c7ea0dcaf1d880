//! `rcat`: standard input to a file.

use super::{existing_file::may_replace, listing::open_file};
use crate::{
    context::Context,
    error::{CommandResult, code, usage},
    signals,
};
use anyhow::Result;
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use haul::{Cancel, pipe};
use haul_core::{Error, ErrorKind, Key, Mtime, plan::Replace};
use haul_store::{Store, WriteSpec};
use jiff::Timestamp;
use rustix::fs::{FileType, Stat, fstat, makedev};
use std::{
    ffi::{OsStr, OsString},
    io::{IsTerminal, Read, stdin},
    sync::Arc,
    time::Duration,
};

/// Input up to this many bytes is read before the write begins: its length is then known, and it costs one request.
const SMALL: usize = 1 << 20;

/// After the input's end a stop is waited for so long: Ctrl-C ends whoever writes the pipe too, and the end may be seen before the signal.
const STOP_WITHIN: Duration = Duration::from_millis(50);

/// Write standard input to a file
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The file to write
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Number of bytes to expect, if known; the write fails if it is wrong
    #[arg(long, value_name = "BYTES", default_value_t = -1, allow_hyphen_values = true)]
    size: i64,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    // A forgotten pipe, or a job of cron: a file must not be replaced by nothing.
    let is_null = |stat: Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == makedev(1, 3)
    };
    if stdin().is_terminal() || fstat(stdin()).is_ok_and(is_null) {
        return Err(usage("nothing to read: standard input is a terminal or /dev/null"));
    }
    if ctx.flags.config.interactive {
        return Err(usage("--interactive has nobody to ask: standard input is what is written"));
    }
    let cancel = &ctx.cancel;
    // Nothing is there yet that has to be put in order.
    let begun = tokio::select! {
        biased;
        () = cancel.cancelled() => return Ok(CommandResult::Exit(code::INTERRUPTED)),
        begun = begin(&args.path, ctx) => begun?,
    };
    let Some((store, key, replace, first)) = begun else { return Ok(CommandResult::Done) };
    let given = u64::try_from(args.size).ok();
    let size = if first.len() < SMALL { Some(given.unwrap_or(first.len() as u64)) } else { given };
    let mtime = Some(Mtime(Timestamp::now().as_nanosecond()));
    let spec = WriteSpec { size, mtime, replace, inplace: ctx.flags.copy.inplace, ..Default::default() };
    pipe::write_until(&store, &key, spec, input(first, cancel.clone()), cancel.clone()).await?;
    Ok(CommandResult::Done)
}

/// The file to write, what it may replace, and the first block of standard input; `None` in a dry run, and where a flag says that what
/// is there stays.
async fn begin(path: &OsStr, ctx: &Context) -> Result<Option<(Arc<dyn Store>, Key, Replace, Bytes)>> {
    let (store, Some(key)) = open_file(ctx, path).await? else {
        return Err(usage(format!("{}: name the file to write, not a directory", crate::journal::shown_path(path))));
    };
    let Some(replace) = may_replace(ctx, &store, &key).await? else { return Ok(None) };
    Ok(Some((store, key, replace, read_block(&ctx.cancel).await?)))
}

/// The first block, then the rest of standard input.
fn input(first: Bytes, cancel: Cancel) -> BoxStream<'static, Result<Bytes, Error>> {
    let more = first.len() == SMALL;
    let rest = futures::stream::unfold(more, move |more| {
        let cancel = cancel.clone();
        async move {
            if !more {
                return None;
            }
            match read_block(&cancel).await {
                Ok(block) if block.is_empty() => None,
                Ok(block) => {
                    let more = block.len() == SMALL;
                    Some((Ok(block), more))
                }
                Err(error) => Some((Err(error), false)),
            }
        }
    });
    let first = (!first.is_empty()).then_some(Ok(first));
    futures::stream::iter(first).chain(rest).boxed()
}

/// Reads until the block is full or the input ends.
///
/// Errors: the input can't be read; the run was stopped as it ended, so that this may not be all of it.
async fn read_block(cancel: &Cancel) -> Result<Bytes, Error> {
    let read = || {
        let mut bytes = Vec::with_capacity(SMALL);
        stdin().lock().take(SMALL as u64).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = tokio::task::spawn_blocking(read).await.unwrap_or_else(|e| Err(std::io::Error::other(e)));
    let bytes: Bytes = bytes.map_err(|e| Error::from_io("read standard input", e))?.into();
    if bytes.len() < SMALL {
        let stopped = tokio::time::timeout(STOP_WITHIN, cancel.cancelled()).await.is_ok();
        if stopped || signals::was_asked() {
            return Err(Error::new(ErrorKind::Cancelled, "read standard input", "stopped"));
        }
    }
    Ok(bytes)
}
