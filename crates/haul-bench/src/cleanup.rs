//! Removes what a bench sent: every key that it wrote, whatever else is below its own folder, and that folder.

use futures::{StreamExt, future::LocalBoxFuture};
use haul_core::{Error, ErrorKind, Key, Listed, Result};
use haul_store::{Cleanup, ListRequest, Store, UnfinishedWrites};
use std::{sync::Arc, time::Duration};

/// Refuses a folder that holds anything: a bench touches only what it made.
pub fn fresh<'a>(store: &'a Arc<dyn Store>) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let mut steps = store.list(ListRequest { limit: Some(1), ..ListRequest::all() });
        while let Some(step) = steps.next().await {
            match step {
                Listed::Vanished(_) => {}
                Listed::Batch(entries) if entries.is_empty() => {}
                Listed::Batch(_) => {
                    let message = format!("{} holds something already: run it again", store.locator());
                    return Err(Error::new(ErrorKind::Exists, "start", message));
                }
                Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => return Ok(()),
                Listed::Failed { error, .. } => return Err(error),
                Listed::End => return Ok(()),
            }
        }
        Err(Error::new(ErrorKind::Io, "list", "the listing broke off"))
    })
}

/// Removes `written` and whatever a listing finds beside it. Goes on after an error and gives the first.
pub fn clear<'a>(store: &'a Arc<dyn Store>, written: Vec<Key>) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let mut first = None;
        let mut keep = |result: Result<()>| {
            if let Err(error) = result {
                first.get_or_insert(error);
            }
        };
        // By name, since a listing may lag behind what was written.
        delete(store, written, &mut keep).await;
        let (mut files, mut dirs) = (Vec::new(), Vec::new());
        let mut steps = store.list(ListRequest::all());
        while let Some(step) = steps.next().await {
            match step {
                Listed::Batch(entries) => {
                    for entry in entries {
                        if entry.is_dir() { dirs.push(entry.key) } else { files.push(entry.key) }
                    }
                }
                Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => {}
                Listed::Failed { error, .. } => keep(Err(error)),
                Listed::Vanished(_) | Listed::End => {}
            }
        }
        delete(store, files, &mut keep).await;
        // The deepest first.
        dirs.sort_by_key(|dir| std::cmp::Reverse(dir.as_bytes().iter().filter(|b| **b == b'/').count()));
        for dir in dirs {
            delete(store, vec![dir], &mut keep).await;
        }
        // In a bucket the folder is gone with its last key, and the root would be more than ours.
        if store.caps().dirs {
            delete(store, vec![Key::new("")], &mut keep).await;
        }
        // A transfer that was stopped may have left an upload that it began.
        if let Some(admin) = store.admin() {
            match admin.cleanup(Cleanup { older_than: Duration::ZERO, dry_run: false, below: Key::new("") }).await {
                Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::DirNotFound) => {}
                Err(error) => tracing::debug!("unfinished uploads could not be looked for: {error}"),
                Ok(UnfinishedWrites { failed, .. }) => {
                    failed
                        .iter()
                        .for_each(|error| tracing::debug!("unfinished uploads could not be looked for: {error}"));
                }
            }
        }
        first.map_or(Ok(()), Err)
    })
}

async fn delete(store: &Arc<dyn Store>, keys: Vec<Key>, keep: &mut impl FnMut(Result<()>)) {
    if keys.is_empty() {
        return;
    }
    for answer in store.delete(keys.into_iter().map(|key| (key, None)).collect()).await {
        keep(answer);
    }
}
