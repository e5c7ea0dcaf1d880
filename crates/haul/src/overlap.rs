//! Refusing what would eat itself: a destination inside its source, a source equal to its destination, a backup in what
//! is backed up.

use crate::Cx;
use haul_core::{
    Entry, Error, ErrorKind, Key, Result,
    filter::Filter,
    job::{Job, Verb},
    names::folded,
};
use haul_store::{Caps, Domain, Store, as_dir};
use std::sync::Arc;

/// Prefix of the name of a probe file that is written at one end of a move and looked up at the other; it explains itself to a person who
/// finds one that a killed run has left.
pub(crate) const PROBE: &str = "haul-is-this-one-place-";

/// True for the key of such a file.
pub(crate) fn is_probe(key: &Key) -> bool {
    key.name().starts_with(PROBE.as_bytes())
}

/// In nanoseconds.
const SECOND: u128 = 1_000_000_000;

/// Checks the roots of a job.
///
/// Errors: `Invalid`, saying which two of them it is and what to do.
pub fn check(cx: &Cx, verb: Verb) -> Result<()> {
    let (s, d) = (cx.src.locator(), cx.dst.locator());
    if is_one_place(cx) {
        return invalid(format!("source and destination are the same: {s}"));
    }
    for (dst, src) in kept_in(&cx.dst, &cx.src) {
        if holds(&src, &dst, &cx.filter) {
            return invalid(format!(
                "the destination {d} is inside the source {s}: exclude it with a filter, or choose another"
            ));
        }
    }
    // A copy only adds below; a sync would delete the source, and a move put files over others that are yet to move.
    if verb == Verb::Copy {
        return Ok(());
    }
    for (src, dst) in kept_in(&cx.src, &cx.dst) {
        if holds(&dst, &src, &cx.filter) {
            return invalid(format!("the source {s} is inside the destination {d}: exclude it with a filter"));
        }
    }
    // Of content in another form no filter speaks.
    if grounds(&cx.src, &cx.dst).any(|(src, dst)| below(&src, &dst).is_some()) {
        return invalid(format!("the destination {d} is where the source {s} keeps its content: choose another"));
    }
    Ok(())
}

/// True when source and destination are one place.
pub fn is_one_place(cx: &Cx) -> bool {
    places(&cx.src, &cx.dst).iter().any(|(src, dst)| src == dst)
}

/// Checks what another job of the same run is yet to read against a destination in which a job before it deletes or replaces,
/// wherever `filter` lets that one come.
///
/// Errors: `Invalid`, saying which two of them it is and what to do.
pub fn check_beside(other: &Arc<dyn Store>, dst: &Arc<dyn Store>, filter: &Filter) -> Result<()> {
    let filter = filter.for_destination();
    if kept_in(other, dst).iter().any(|(other, dst)| holds(dst, other, &filter)) {
        let (s, d) = (other.locator(), dst.locator());
        return invalid(format!("the source {s} is inside the destination {d}: exclude it with a filter"));
    }
    Ok(())
}

/// Checks a folder in which records of a job are kept against the job's two ends: they would be copied, or deleted as extra.
///
/// Errors: `Invalid`, saying in which of them it is and what to do.
pub fn check_records(records: &Arc<dyn Store>, cx: &Cx, job: &Job) -> Result<()> {
    for (store, what) in [(&cx.src, "source"), (&cx.dst, "destination")] {
        let reach = reach(cx, job, what);
        if kept_in(records, store).iter().any(|(records, end)| holds(end, records, &reach)) {
            let (r, s) = (records.locator(), store.locator());
            return invalid(format!("the job's folder {r} is inside the {what} {s}: choose another place"));
        }
    }
    Ok(())
}

/// Checks the destination of replaced and deleted files.
///
/// Errors: `Invalid`, when that is part of the compared files, so that a backup could replace or be taken for a file.
pub fn check_backup(cx: &Cx, job: &Job) -> Result<()> {
    let Some(backup) = &cx.backup else { return Ok(()) };
    for (store, what) in [(&cx.dst, "destination"), (&cx.src, "source")] {
        // With a suffix, files can be kept beside their successors.
        let beside = what == "destination" && job.existing.backup_suffix.is_some();
        let reach = reach(cx, job, what);
        let overlap = |(kept, place): &(Vec<u8>, Vec<u8>)| {
            !(beside && kept == place) && (holds(place, kept, &reach) || holds(kept, place, &cx.filter))
        };
        if places(backup, store).iter().any(overlap) {
            let (b, s) = (backup.locator(), store.locator());
            return invalid(format!(
                "--backup-dir {b} overlaps with the {what} {s}: choose one outside of it, or leave it out with a filter"
            ));
        }
    }
    Ok(())
}

/// The files of one end that a job touches: including left-out ones, if they are deleted.
fn reach(cx: &Cx, job: &Job, end: &str) -> Arc<Filter> {
    if end == "destination" && job.verb == Verb::Sync && job.deletes.excluded {
        Arc::default()
    } else {
        cx.filter.clone()
    }
}

/// True when `src`, and `dst` at the key `to`, are one file, reached in two ways. On disks a version pins the file itself (there may be
/// a bind mount), in packs its bytes. A service may go by two names, or know us by two keys: there it is the place, the content,
/// and when it was stored.
pub fn one_file(cx: &Cx, src: &Entry, to: &Key, dst: &Entry) -> bool {
    if src.version.is_none() || src.version != dst.version {
        return false;
    }
    let (a, b) = (cx.src.caps(), cx.dst.caps());
    match (&a.domain, &b.domain) {
        _ if a.files && b.files => true,
        (Some(a), Some(b)) => {
            // Some answers name the second alone.
            let at_once = src.changed.zip(dst.changed).is_some_and(|(a, b)| a.distance(b) < SECOND);
            at_once && key_in_domain(a, &src.key) == key_in_domain(b, to)
        }
        (None, None) => true,
        _ => false,
    }
}

/// True when nothing but the names of the services tells `src`, and what will be at the key `to` of the destination, from being one
/// file. Between disks a write never destroys what it reads, whatever the names.
pub fn could_be_one(cx: &Cx, src: &Key, to: &Key) -> bool {
    let (a, b) = (cx.src.caps(), cx.dst.caps());
    match (&a.domain, &b.domain) {
        _ if a.files || b.files => false,
        (Some(a), Some(b)) => key_in_domain(a, src) == key_in_domain(b, to),
        (None, None) => src == to,
        _ => false,
    }
}

fn key_in_domain(domain: &Domain, key: &Key) -> Vec<u8> {
    [&as_dir(&domain.place), key.as_bytes()].concat()
}

fn invalid(message: String) -> Result<()> {
    Err(Error::new(ErrorKind::Invalid, "start", message))
}

/// Where two stores of one domain are, as directories: in it, and on their devices, where a folder that is mounted twice is
/// one.
fn places(a: &Arc<dyn Store>, b: &Arc<dyn Store>) -> Vec<(Vec<u8>, Vec<u8>)> {
    place(a.caps()).map_or_else(Vec::new, |at| pairs(at, place(b.caps()), folds(a, b)))
}

/// True if names that differ by case are one.
fn folds(a: &Arc<dyn Store>, b: &Arc<dyn Store>) -> bool {
    a.caps().case_insensitive || b.caps().case_insensitive
}

fn place(caps: &Caps) -> Option<&Domain> {
    caps.domain.as_ref().or(caps.place.as_ref())
}

fn pairs(a: &Domain, b: Option<&Domain>, folds: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Some(b) = b.filter(|b| b.name == a.name) else { return Vec::new() };
    let on_devices = a.on_device.iter().zip(&b.on_device);
    let own = |place: &[u8]| if folds { folded(&as_dir(place)).into_bytes() } else { as_dir(place) };
    std::iter::once((&a.place, &b.place)).chain(on_devices).map(|(a, b)| (own(a), own(b))).collect()
}

/// True when `inner` is `outer` or in it, where the filter lets a job come.
fn holds(outer: &[u8], inner: &[u8], filter: &Filter) -> bool {
    below(outer, inner).is_some_and(|below| filter.descend(below))
}

/// Where in `outer` `inner` is.
fn below<'a>(outer: &[u8], inner: &'a [u8]) -> Option<&'a [u8]> {
    // A path from the top is in none that begins at a user's own folder.
    let apart = outer.is_empty() && inner.starts_with(b"/");
    inner.strip_prefix(outer).filter(|_| !apart)
}

/// Where `a` is beside where `b` is, and where what `a` rests on is: what is deleted or read there is its content in another form.
fn kept_in(a: &Arc<dyn Store>, b: &Arc<dyn Store>) -> Vec<(Vec<u8>, Vec<u8>)> {
    places(a, b).into_iter().chain(grounds(a, b)).collect()
}

/// Where what `a` rests on is, beside where `b` is.
fn grounds(a: &Arc<dyn Store>, b: &Arc<dyn Store>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    a.caps().rests_on.iter().flat_map(|ground| pairs(ground, place(b.caps()), folds(a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_in_another_by_whole_names() {
        for (outer, inner, expected) in [
            ("a", "a", Some("")),
            ("a", "a/b", Some("b/")),
            ("a", "ab", None),
            ("a/b", "a", None),
            ("/", "/a", Some("a/")),
            // All buckets, and a user's own folder: paths from the top are elsewhere.
            ("", "bucket", Some("bucket/")),
            ("", "", Some("")),
            ("", "/srv", None),
        ] {
            let (outer, inner) = (as_dir(outer.as_bytes()), as_dir(inner.as_bytes()));
            assert_eq!(below(&outer, &inner), expected.map(str::as_bytes), "{outer:?} {inner:?}");
        }
    }
}
