//! The destination's listing, when a job lists all of it: noted in its index, and compared with that (`--verify-index`).

use super::{
    audit::{AuditCounts, agree},
    index_file::Snapshot,
    remote::RemoteIndex,
    section::Merge,
};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{Entry, Listed, filter::Filter};
use haul_store::disk;
use std::{io, sync::Arc};

/// Notes in the index what `listing` gives, and, if it comes to its end without a gap, that it is all that `filter` lets through;
/// `None` when it leaves out more. What the index said before counts no more; it is compared, if it is to be and nothing is left out.
pub fn noted(
    listing: BoxStream<'static, Listed>,
    index: Option<&Arc<RemoteIndex>>,
    filter: Option<Filter>,
) -> BoxStream<'static, Listed> {
    let Some(index) = index.cloned() else { return listing };
    index.lists_all();
    let verify = index.to_verify().filter(|_| filter.as_ref().is_some_and(Filter::is_all));
    let verify = verify.and_then(|was| Some((was.read().ok()?, was)));
    let state = (listing, index, filter, verify, AuditCounts::default());
    futures::stream::unfold(state, |(mut listing, index, mut filter, verify, mut verified)| async move {
        let step = listing.next().await?;
        match &step {
            Listed::Batch(entries) => entries.iter().for_each(|entry| index.note_present(entry)),
            Listed::Failed { .. } => filter = None,
            Listed::Vanished(_) => {}
            Listed::End => filter.iter().for_each(|filter| index.listed_all(filter)),
        }
        let Some(mut was) = verify else { return Some((step, (listing, index, filter, None, verified))) };
        let work = move || {
            let compared = compare((&mut was.0, &was.1), &step, &mut verified);
            Ok((was, step, verified, compared.is_ok()))
        };
        // It fails only when the disk's threads have ended, with the process.
        let (was, step, verified, readable) = disk::run(work).await.ok()?;
        if matches!(step, Listed::End) && readable {
            index.tell_verified(verified);
        }
        Some((step, (listing, index, filter, readable.then_some(was), verified)))
    })
    .boxed()
}

/// Compares one step of the listing with the index.
fn compare((was, snapshot): (&mut Merge, &Snapshot), step: &Listed, verified: &mut AuditCounts) -> io::Result<()> {
    let (entries, ended): (&[Entry], bool) = match step {
        Listed::Batch(entries) => (entries, false),
        Listed::End => (&[], true),
        Listed::Vanished(_) | Listed::Failed { .. } => return Ok(()),
    };
    let mut entries = entries.iter().filter(|entry| !entry.is_dir()).peekable();
    loop {
        let Some(fact) = was.here().map(|(key, body)| snapshot.fact(key, body)) else { return Ok(()) };
        match (fact, entries.peek()) {
            (_, None) if !ended => return Ok(()),
            (None, _) => {}
            (Some(fact), Some(entry)) if entry.key < fact.entry.key => {
                entries.next();
                continue;
            }
            (Some(fact), Some(entry)) if entry.key == fact.entry.key => {
                let right = agree(&fact.entry, entry);
                *(if right { &mut verified.right } else { &mut verified.changed }) += 1;
                entries.next();
            }
            (Some(_), _) => verified.gone += 1,
        }
        was.next()?;
    }
}
