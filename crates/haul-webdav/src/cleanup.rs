//! Removes the remains of interrupted uploads.

use crate::{Service, change::remove, chunks, list, names};
use haul_core::{Entry, Result};
use haul_store::{Cleanup, UnfinishedWrites, tree::FoundName};

/// See [`haul_store::Admin::cleanup`].
pub async fn cleanup(service: &Service, what: Cleanup) -> Result<UnfinishedWrites> {
    let Cleanup { older_than, dry_run, below } = what;
    let now = jiff::Timestamp::now().as_second();
    let oldest = now.saturating_sub(i64::try_from(older_than.as_secs()).unwrap_or(i64::MAX));
    let (mut dirs, mut left, mut failed) = (vec![below.clone()], Vec::new(), Vec::new());
    while let Some(dir) = dirs.pop() {
        let found = match list::collection(service, &dir).await {
            Ok(found) => found,
            Err(error) => {
                failed.push(error);
                continue;
            }
        };
        for found in found {
            match found {
                FoundName::Entry(Entry { key, .. }) if key.is_dir() => dirs.push(key),
                FoundName::Entry(entry) if names::is_hidden(entry.key.name()) => {
                    // By its own clock: a time that came with a file may be older than the upload.
                    let begun = entry.mtime.filter(|time| time.secs() <= oldest);
                    let Some(begun) = begun else { continue };
                    if !dry_run && let Err(error) = remove(service, &entry.key).await {
                        failed.push(error);
                    }
                    left.push((entry.key, Some(begun)));
                }
                FoundName::Entry(_) | FoundName::Vanished(_) => {}
                FoundName::Failed(_, error) => failed.push(error),
            }
        }
    }
    if let Some(chunks) = service.chunks.as_ref().filter(|_| below.is_root()) {
        let (more, errors) = chunks::cleanup(service, chunks, oldest, dry_run).await;
        left.extend(more);
        failed.extend(errors);
    }
    Ok(UnfinishedWrites { found: left, failed })
}
