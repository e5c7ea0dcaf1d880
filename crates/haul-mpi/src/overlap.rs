//! Refuses what would eat itself, as the engine's `overlap` does: a destination in its source, and of a sync a source in its
//! destination. Places are compared as they are without links, and on their devices, where a folder that is mounted twice is one.

use crate::{
    shared::open,
    work::{Job, Root, Verb},
};
use std::sync::Arc;

/// Checks the trees of a job. Single files are none.
///
/// Errors: one line, saying which two of them it is.
pub fn check(job: &Job) -> Result<(), String> {
    if job.verb == Verb::Delete {
        return Ok(());
    }
    for Root { src, dst, .. } in job.roots.iter().filter(|root| root.one.is_none()) {
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let refused = |why| Err(format!("Refused to copy {} to {}: {why}", shown(src), shown(dst)));
        for (src, dst) in places(src, dst, job.follow)? {
            if src == dst {
                return refused("they are the same directory");
            }
            if dst.starts_with(&src) {
                return refused("it is in the source");
            }
            // A copy only adds below; a sync would delete the source.
            if job.verb == Verb::Sync && src.starts_with(&dst) {
                return refused("the source is in it");
            }
        }
    }
    if let (Some(other), [Root { dst, one: None, .. }]) = (&job.link_dest, &job.roots[..]) {
        let shown = String::from_utf8_lossy(other);
        for (place, dst) in places(other, dst, false)? {
            if place.starts_with(&dst) {
                return Err(format!("Refused --link-dest {shown}: it is in the destination"));
            }
        }
    }
    Ok(())
}

/// Source and destination, with a slash at their end.
type Places = (Vec<u8>, Vec<u8>);

/// Where both are.
fn places(src: &[u8], dst: &[u8], follow: bool) -> Result<Vec<Places>, String> {
    let domain = |path, follow| {
        let store = open(path, follow).map_err(|e| e.message().to_owned())?;
        store.caps().domain.clone().ok_or_else(|| "has no place in a file system".to_owned())
    };
    let (src, dst) = (domain(src, follow)?, domain(dst, false)?);
    let on_devices = src.on_device.iter().zip(&dst.on_device);
    Ok(std::iter::once((&src.place, &dst.place)).chain(on_devices).map(|(a, b)| (as_dir(a), as_dir(b))).collect())
}

fn as_dir(place: &Arc<[u8]>) -> Vec<u8> {
    [place.strip_suffix(b"/").unwrap_or(place), b"/"].concat()
}
