//! Input that can be read only once and goes to a file: the flags' rules for a file that exists already.

use super::deleting::allowed;
use crate::context::Context;
use haul_core::{Error, ErrorKind, Key, plan::Replace};
use haul_store::Store;
use std::sync::Arc;

/// The entries that a write to `key` may replace; `None` if the existing one stays, which is reported. Asks the store only if flags make a
/// difference.
///
/// Errors: `Exists`, for a file that must not change; `Unsupported`, if a backup is to be kept; the store can't be asked.
pub async fn may_replace(ctx: &Context, dst: &Arc<dyn Store>, key: &Key) -> Result<Option<Replace>, Error> {
    let (copy, sync) = (&ctx.flags.copy, &ctx.flags.sync);
    let backup = sync.backup_dir.is_some() || sync.suffix.is_some();
    let asks = ctx.flags.config.interactive || ctx.flags.config.dry_run;
    if !(copy.immutable || copy.ignore_existing || copy.existing || backup || asks) {
        return Ok(Some(Replace::Anything));
    }
    let there = match dst.stat(key).await {
        Ok(entry) => Some(entry),
        Err(error) if error.is_missing() => None,
        Err(error) => return Err(error),
    };
    let fails = |kind, why: &str| Err(Error::new(kind, "copy", why).with_key(key));
    match &there {
        Some(_) if copy.ignore_existing => {
            tracing::warn!("{key}: it exists and stays as it is (--ignore-existing)");
            return Ok(None);
        }
        Some(_) if copy.immutable => {
            return fails(ErrorKind::Exists, "it exists, and --immutable forbids to change it");
        }
        Some(_) if backup => {
            let why = "it exists, and what is read only once keeps no backup of it: move it away first";
            return fails(ErrorKind::Unsupported, why);
        }
        None if copy.existing => {
            tracing::warn!("{key}: it doesn't exist and isn't made (--existing)");
            return Ok(None);
        }
        _ => {}
    }
    if !allowed(ctx, "copy", key, None) {
        return Ok(None);
    }
    Ok(Some(match (dst.caps().conditional, there.map(|there| there.version)) {
        (true, None) => Replace::Absent,
        (true, Some(Some(version))) => Replace::Exactly(version),
        _ => Replace::Anything,
    }))
}
