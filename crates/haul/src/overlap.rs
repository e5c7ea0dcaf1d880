//! Refusing what would eat itself: a destination inside its source, a source equal to its destination, a backup in what
//! is backed up.

use crate::Cx;
use haul_core::{
    Error, ErrorKind, Result,
    filter::Filter,
    policy::{Mode, Policy},
};
use haul_store::Store;
use std::sync::Arc;

/// Checks the roots of a job.
///
/// Errors: `Invalid`, saying which two of them it is and what to do.
pub fn check(cx: &Cx, mode: Mode) -> Result<()> {
    let Some((src, dst)) = places(&cx.src, &cx.dst) else { return Ok(()) };
    let (s, d) = (cx.src.locator(), cx.dst.locator());
    if src == dst {
        return invalid(format!("source and destination are the same: {s}"));
    }
    if holds(&src, &dst, &cx.filter) {
        return invalid(format!(
            "the destination {d} is inside the source {s}: exclude it with a filter, or choose another"
        ));
    }
    // A copy only adds below; a sync would delete the source, and a move put files over others that are yet to move.
    if mode != Mode::Copy && holds(&dst, &src, &cx.filter) {
        return invalid(format!("the source {s} is inside the destination {d}: exclude it with a filter"));
    }
    Ok(())
}

/// Checks where replaced and deleted files are to go.
///
/// Errors: `Invalid`, when that is part of what is compared, so that a backup could replace or be taken for a file.
pub fn check_backup(cx: &Cx, policy: &Policy) -> Result<()> {
    let Some(backup) = &cx.backup else { return Ok(()) };
    for (store, what) in [(&cx.dst, "destination"), (&cx.src, "source")] {
        let Some((kept, place)) = places(backup, store) else { continue };
        // With a suffix, files can be kept beside their successors.
        let beside = what == "destination" && kept == place && policy.backup_suffix.is_some();
        if !beside && (holds(&place, &kept, &cx.filter) || holds(&kept, &place, &cx.filter)) {
            let (b, s) = (backup.locator(), store.locator());
            return invalid(format!(
                "--backup-dir {b} overlaps with the {what} {s}: choose one outside of it, or leave it out with a filter"
            ));
        }
    }
    Ok(())
}

fn invalid(message: String) -> Result<()> {
    Err(Error::new(ErrorKind::Invalid, "start", message))
}

/// Where two stores of one domain are in it, as directories.
fn places(a: &Arc<dyn Store>, b: &Arc<dyn Store>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (a, b) = (a.caps().domain.as_ref()?, b.caps().domain.as_ref()?);
    (a.name == b.name).then(|| (as_dir(&a.place), as_dir(&b.place)))
}

/// True when `inner` is `outer` or in it, where the filter lets a job come.
fn holds(outer: &[u8], inner: &[u8], filter: &Filter) -> bool {
    inner.strip_prefix(outer).is_some_and(|below| filter.descend(below))
}

fn as_dir(place: &[u8]) -> Vec<u8> {
    let mut dir = place.to_vec();
    if dir.last() != Some(&b'/') {
        dir.push(b'/');
    }
    dir
}
