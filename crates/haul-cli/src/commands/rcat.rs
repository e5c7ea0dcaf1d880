//! `rcat`: standard input to a file.

use crate::{
    context::Context,
    error::{Outcome, usage},
};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use haul_core::{Key, Mtime};
use haul_store::{Late, Part, PartLimits, Payload, Store, Upload, WriteSpec};
use jiff::Timestamp;
use std::{
    ffi::OsString,
    io::{IsTerminal, Read, stdin},
    sync::Arc,
};

/// Bytes of a part where the store has no wish of its own.
const PART: u64 = 8 << 20;
/// Parts on their way at once; each holds its bytes in memory.
const AT_ONCE: usize = 4;

/// Write standard input to a file
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The file to write
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// How many bytes will come, if it is known
    #[arg(long, value_name = "BYTES", default_value_t = -1, allow_hyphen_values = true)]
    size: i64,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    if stdin().is_terminal() {
        return Err(usage("nothing to read: standard input is a terminal"));
    }
    let (store, key) = ctx.open_file(&args.path).await?;
    if ctx.flags.config.dry_run {
        tracing::warn!("{key}: Skipped upload from pipe as --dry-run is set");
        return Ok(Outcome::Done);
    }
    write(&store, &key, u64::try_from(args.size).ok()).await?;
    Ok(Outcome::Done)
}

async fn write(store: &Arc<dyn Store>, key: &Key, size: Option<u64>) -> Result<()> {
    let limits = store.caps().parts;
    let part_size = part_size(limits, size);
    let first = read_part(part_size).await?;
    // What fits in one part is of known size, and costs a single request.
    let known = if (first.len() as u64) < part_size { Some(first.len() as u64) } else { size };
    let now = Mtime(Timestamp::now().as_nanosecond());
    let spec = WriteSpec { size: known, mtime: Some(now), ..Default::default() };
    let upload = store.write(key, spec).await?;
    match send(&*upload, first, part_size, limits).await {
        Ok(parts) => {
            upload.publish(parts, Late::default()).await?;
            Ok(())
        }
        Err(error) => {
            if let Err(left) = upload.abort().await {
                tracing::error!("{key}: what was sent could not be removed: {left}");
            }
            Err(error)
        }
    }
}

/// Sends parts while there is input. Stores that take only one stream get one part at a time.
async fn send(upload: &dyn Upload, first: Bytes, part_size: u64, limits: Option<PartLimits>) -> Result<Vec<Part>> {
    let at_once = if limits.is_some() { AT_ONCE } else { 1 };
    let (mut flying, mut parts) = (FuturesUnordered::new(), Vec::new());
    let (mut index, mut offset, mut piece) = (0, 0, first);
    loop {
        let last = (piece.len() as u64) < part_size;
        if index == 0 || !piece.is_empty() {
            if limits.is_some_and(|l| index >= l.count) {
                let most = part_size.saturating_mul(index);
                anyhow::bail!("the input is longer than {most} bytes: give its length with --size");
            }
            let size = piece.len() as u64;
            flying.push(upload.part(index, offset, Payload::from(piece)));
            (index, offset) = (index + 1, offset + size);
        }
        while flying.len() >= if last { 1 } else { at_once } {
            let Some(part) = flying.next().await else { break };
            parts.push(part?);
        }
        if last {
            break;
        }
        piece = read_part(part_size).await?;
    }
    parts.sort_by_key(|p| p.index);
    Ok(parts)
}

/// Bytes of a part: what the store likes, or more when a known size would need too many of them.
fn part_size(limits: Option<PartLimits>, size: Option<u64>) -> u64 {
    let Some(limits) = limits else { return PART };
    let needed = size.map_or(0, |size| size.div_ceil(limits.count.max(1)));
    limits.preferred.max(limits.min).max(needed).min(limits.max).max(1)
}

/// Reads until the part is full or the input ends.
async fn read_part(size: u64) -> Result<Bytes> {
    let read = move || {
        let mut bytes = Vec::new();
        stdin().lock().take(size).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = tokio::task::spawn_blocking(read).await?.context("can't read standard input")?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_with_a_known_size() {
        let limits = PartLimits { min: 5, max: 100, count: 10, preferred: 8, equal: false, single: 20 };
        for (size, expected) in [(None, 8), (Some(10), 8), (Some(200), 20), (Some(5000), 100)] {
            assert_eq!(part_size(Some(limits), size), expected);
        }
        assert_eq!(part_size(None, Some(1)), PART);
    }
}
