//! Creating a job: where it is cut, and the recorded facts of its ends.

use crate::{
    Folder, Spec,
    cuts::cuts,
    ends::{EndpointFacts, Machine},
};
use futures::future::LocalBoxFuture;
use haul_core::{Error, ErrorKind, Result, filter::Filter, part::KeyRange};
use haul_store::Store;
use std::sync::Arc;

/// Cuts the source of `spec` into about `pieces` pieces and creates the job, and its destination if that is a local directory.
/// With `one_device` nothing mounted below is looked at, with `may_be_empty` a sync may empty its destination.
///
/// Errors: the source can't be listed; it has no file and the job would delete all; there is a job already.
pub fn create<'a>(
    folder: &'a Folder,
    mut spec: Spec,
    (src, dst): (&'a Arc<dyn Store>, &'a Arc<dyn Store>),
    pieces: usize,
    (machine, one_device): (Machine, bool),
    may_be_empty: bool,
) -> LocalBoxFuture<'a, Result<Spec>> {
    Box::pin(async move {
        let filter = Filter::new(spec.filter.clone()).map_err(|why| Error::new(ErrorKind::Invalid, "filter", why))?;
        spec.cuts = cuts(src, &KeyRange::default(), pieces).await?;
        spec.ends = EndpointFacts::look((src, dst), (&Arc::new(filter), one_device), &spec.cuts, machine).await?;
        if spec.ends.witnesses.is_empty() && spec.sync && !may_be_empty {
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
