//! Making a job: where it is cut, and by what its workers know the source again.

use crate::{Folder, Spec, cuts::cuts};
use futures::{
    StreamExt,
    future::{BoxFuture, LocalBoxFuture},
};
use haul::{ListOptions, list};
use haul_core::{
    Error, ErrorKind, Key, Listed, Result,
    filter::Filter,
    part::{KeyRange, Part},
};
use haul_store::Store;
use std::sync::Arc;

/// Files that are kept as witnesses. Some may go while the job runs; all of them only where the source isn't what it was.
const WITNESSES: usize = 8;

/// Cuts the source of `spec` into about so many pieces and makes the job. With `may_be_empty` a sync may empty its destination.
///
/// Errors: the source can't be listed; it has no file and the job would delete all; there is a job already.
pub fn create<'a>(
    folder: &'a Folder,
    mut spec: Spec,
    src: &'a Arc<dyn Store>,
    pieces: usize,
    may_be_empty: bool,
) -> LocalBoxFuture<'a, Result<Spec>> {
    Box::pin(async move {
        let filter = Filter::new(spec.filter.clone()).map_err(|why| Error::new(ErrorKind::Invalid, "filter", why))?;
        spec.cuts = cuts(src, &KeyRange::default(), pieces).await?;
        spec.witnesses = witnesses(src, &Arc::new(filter), &spec.cuts).await?;
        if spec.witnesses.is_empty() && spec.sync && !may_be_empty {
            let message = format!(
                "{} has no files: refused to make a job that deletes all of the destination (--allow-empty-source allows it)",
                src.locator()
            );
            return Err(Error::new(ErrorKind::Limit, "create", message));
        }
        if !folder.make(&mut spec).await? {
            let message = format!(
                "there is a job at {0} already: haul fleet work {0} goes on with it, haul purge {0} removes it",
                folder.locator()
            );
            return Err(Error::new(ErrorKind::Exists, "create", message));
        }
        Ok(spec)
    })
}

/// Some files from all over the source.
async fn witnesses(src: &Arc<dyn Store>, filter: &Arc<Filter>, cuts: &[Key]) -> Result<Vec<Key>> {
    let step = cuts.len().div_ceil(WITNESSES).max(1);
    let starts = std::iter::once(None).chain(cuts.iter().step_by(step).cloned().map(Some)).take(WITNESSES);
    let mut found = Vec::new();
    for after in starts {
        let part = Part::Range(KeyRange { after, through: None });
        let mut listing = list(src, filter, ListOptions { part, pages: 1, ..ListOptions::default() });
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => {
                    if let Some(first) = entries.into_iter().find(|entry| entry.has_bytes()) {
                        found.push(first.key);
                        break;
                    }
                }
                // A bucket's prefix without keys holds no files; a directory that isn't there is a wrong source.
                Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound && !src.caps().dirs => break,
                Listed::Failed { error, lost } if lost.from.is_root() => return Err(error),
                Listed::Failed { .. } | Listed::Vanished(_) => {}
                Listed::End => break,
            }
        }
    }
    found.dedup();
    Ok(found)
}

/// Checks that `src` is the source that the job was made for: that one of the files is there that it had.
///
/// Errors: none is there; nothing could be found out.
pub fn check_source<'a>(spec: &'a Spec, src: &'a Arc<dyn Store>) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if spec.witnesses.is_empty() {
            return Ok(());
        }
        for key in &spec.witnesses {
            match src.stat(key).await {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {}
                Err(error) => return Err(error),
            }
        }
        let message = format!(
            "{} has none of the files that it had when the job was made: is it mounted on this machine, and the same there?",
            src.locator()
        );
        Err(Error::new(ErrorKind::Limit, "start", message))
    })
}
