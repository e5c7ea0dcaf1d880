//! Refusing what would eat itself: a destination inside its source, a source equal to its destination.

use crate::Cx;
use haul_core::{Error, ErrorKind, Result, filter::Filter};
use haul_store::Store;
use std::sync::Arc;

/// Checks all places of a job before anything is touched.
///
/// Errors: as [`check`] and [`check_backup`].
pub fn check_all(cx: &Cx, deletes: bool) -> Result<()> {
    check(&cx.src, &cx.dst, &cx.filter, deletes)?;
    let Some(backup) = &cx.backup else { return Ok(()) };
    check_backup(backup, &cx.dst, "destination", &cx.filter)?;
    check_backup(backup, &cx.src, "source", &cx.filter)
}

/// Checks two roots of a job.
///
/// Errors: `Invalid`, saying which of the two it is and what to do.
pub fn check(src: &Arc<dyn Store>, dst: &Arc<dyn Store>, filter: &Filter, deletes: bool) -> Result<()> {
    let (Some(a), Some(b)) = (&src.caps().domain, &dst.caps().domain) else { return Ok(()) };
    if a.name != b.name {
        return Ok(());
    }
    let (src_place, dst_place) = (as_dir(&a.place), as_dir(&b.place));
    let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, "start", message));
    if src_place == dst_place {
        return invalid(format!("source and destination are the same: {}", src.locator()));
    }
    if let Some(below) = dst_place.strip_prefix(src_place.as_slice())
        && filter.descend(below)
    {
        let (d, s) = (dst.locator(), src.locator());
        return invalid(format!(
            "the destination {d} is inside the source {s}: exclude it with a filter, or choose another"
        ));
    }
    if deletes && src_place.starts_with(&dst_place) && filter.descend(&src_place[dst_place.len()..]) {
        let (d, s) = (dst.locator(), src.locator());
        return invalid(format!(
            "the source {s} is inside the destination {d}, which would delete from it: exclude it with a filter"
        ));
    }
    Ok(())
}

/// Checks that `--backup-dir` lies apart from an end of the job, `what`: inside it, a backup would be taken for a file to
/// be deleted, and backed up again by the next run. A filter that leaves it out makes it apart.
///
/// Errors: `Invalid`, saying what to do.
pub fn check_backup(backup: &Arc<dyn Store>, end: &Arc<dyn Store>, what: &str, filter: &Filter) -> Result<()> {
    let (Some(a), Some(b)) = (&backup.caps().domain, &end.caps().domain) else { return Ok(()) };
    let (kept, place) = (as_dir(&a.place), as_dir(&b.place));
    let inside = kept.strip_prefix(place.as_slice()).is_some_and(|below| below.is_empty() || filter.descend(below));
    if a.name != b.name || !(inside || place.starts_with(&kept)) {
        return Ok(());
    }
    let (backup, end) = (backup.locator(), end.locator());
    let message = format!(
        "--backup-dir {backup} overlaps with the {what} {end}: choose one outside of it, or leave it out with a filter"
    );
    Err(Error::new(ErrorKind::Invalid, "start", message))
}

fn as_dir(place: &[u8]) -> Vec<u8> {
    let mut dir = place.to_vec();
    if dir.last() != Some(&b'/') {
        dir.push(b'/');
    }
    dir
}
