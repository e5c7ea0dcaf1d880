//! A move of a whole directory to a free name, in stores that rename directories: one request instead of one for each file.
//! Entries that no transfer of files would move go along: empty directories, symlinks.

use crate::{cx::Cx, overlap, report::Report};
use haul_core::{
    Key, Result,
    event::Event,
    job::{Attributes, Job, Mounts, Verb},
    plan::Replace,
};
use haul_store::{CopyBatch, CopyHow, CopyItem, Store, Watch, WriteSpec};
use std::sync::Arc;

/// A directory, by its key (which ends in `/`) in a store of the folder above it.
pub struct Directory {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The key.
    pub key: Key,
}

/// True for a job that moves all that its source has and asks nothing of single files, between stores that could do it at once.
pub fn may_go_whole(job: &Job, cx: &Cx) -> bool {
    let attributes = Attributes { metadata: false, ..job.attributes.clone() };
    let renames = |store: &Arc<dyn Store>| store.caps().renames_dirs;
    job.verb == Verb::Move
        && !job.dry_run
        && cx.filter.is_all()
        && (cx.confirm.is_none() && cx.backup.is_none() && job.existing.backup_suffix.is_none())
        && (cx.compare_dest.is_empty() && cx.copy_dest.is_empty() && !job.existing.only)
        && (job.listing.max_depth.is_none() && job.listing.mounts == Mounts::Cross)
        && !(job.links.source.follow_dirs || job.links.source.follow_files)
        && attributes == Attributes::default()
        && job.limits.transfer.is_none()
        && !(job.tell.details || job.tell.extra)
        && (renames(&cx.src) && renames(&cx.dst))
        && overlap::check(cx, Verb::Move).is_ok()
}

/// Moves the directory; `None` if it must be moved file by file. `cx` names both ends to the sink.
pub async fn move_whole(cx: &Cx, job: &Job, from: &Directory, to: &Directory) -> Option<Report> {
    let domain = |store: &Arc<dyn Store>| store.caps().domain.clone();
    let (old, new) = domain(&from.store).zip(domain(&to.store))?;
    if old.name != new.name || !is_free(to).await {
        return None;
    }
    let spec = WriteSpec { replace: Replace::Absent, ..WriteSpec::default() };
    let (from_key, to_key) = (from.key.clone(), to.key.clone());
    let item = CopyItem { from: from_key, want: None, size: 0, to: to_key, spec, how: CopyHow::RenameDir };
    let batch = CopyBatch { from: old.place, items: vec![item], links: job.links.source };
    let answer = to.store.copy(batch, Watch::default()).await.pop();
    if let Some(Err(error)) = &answer {
        tracing::debug!(%error, "the directory is not moved as a whole");
    }
    // The answer to a successful rename may be lost.
    let done = matches!(answer, Some(Ok(_))) || is_free(from).await && matches!(is_taken(to).await, Ok(true));
    if !done {
        return None;
    }
    let mut report = Report::default();
    report.totals.renames = 1;
    let place = |store: &Arc<dyn Store>| Key::new(store.locator());
    cx.sink.emit(&Event::Renamed { from: place(&cx.src), to: place(&cx.dst) });
    Some(report)
}

/// Whether a directory or a file exists there.
async fn is_taken(at: &Directory) -> Result<bool> {
    for key in [&at.key, &Key::new(at.key.path())] {
        match at.store.stat(key).await {
            Err(error) if error.is_missing() => {}
            other => return other.map(|_| true),
        }
    }
    Ok(false)
}

/// True if certainly nothing exists there.
async fn is_free(at: &Directory) -> bool {
    matches!(is_taken(at).await, Ok(false))
}
