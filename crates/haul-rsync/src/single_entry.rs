//! If the destination isn't a directory: a transfer of one entry gives that one the destination's name, one of several
//! creates a directory there, and one of none creates nothing. The source's entries decide, so they are looked at first.

use super::{
    Context,
    exit::{self, Refusal},
    filters, opening,
    options::Options,
    path_args::{PathArg, join},
    sub_jobs::{Dest, SubJob},
};
use futures::StreamExt as _;
use haul::ListOptions;
use haul_core::{Entry, Key, Listed, filter::first_match::SelectedNames, key};
use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, sync::Arc};

/// Entries of a job's source, as far as they count here.
enum SourceEntries {
    Nothing,
    /// The job's root, and nothing in it.
    Root,
    One(Entry),
    Several,
}

/// Gives the one entry of a transfer the destination's name; leaves no job if there is nothing to transfer.
///
/// Errors: a source or a rule that can't be used.
pub async fn settle(
    options: &Options,
    ctx: &Context<'_>,
    to: &PathArg,
    there: Dest,
    jobs: &mut Vec<SubJob>,
) -> Result<(), Refusal> {
    if to.contents() {
        return Ok(());
    }
    if jobs.len() > 1 {
        // Files that a rule leaves out don't count.
        let mut kept = Vec::new();
        for job in jobs.drain(..) {
            if job.one.is_none() || !matches!(shown(options, ctx, &job, |_| true).await?, SourceEntries::Nothing) {
                kept.push(job);
            }
        }
        *jobs = kept;
    }
    let [job] = &mut jobs[..] else { return Ok(()) };
    match shown(options, ctx, job, |_| true).await? {
        SourceEntries::Nothing => jobs.clear(),
        SourceEntries::Root => {
            (job.dst, job.into, job.alone) = (to.word(&to.path), Vec::new(), true);
        }
        SourceEntries::One(_) if job.alone => {}
        SourceEntries::One(entry) => {
            let (dir, last) = to.split();
            let name = entry.key.as_bytes();
            match name.strip_suffix(b"/") {
                // More than a name: the directories above it are counted where they take part.
                _ if entry.key.path().contains(&b'/') => {}
                Some(bare) => {
                    let src = OsString::from_vec(join(job.src.as_encoded_bytes(), bare));
                    job.scope.prefix = [&job.scope.prefix, bare, b"/"].concat();
                    job.scope.only = (!options.recursive).then(|| SelectedNames::new(Vec::new(), false));
                    (job.src, job.dst, job.top, job.alone) = (src, to.word(&to.path), true, true);
                }
                None => {
                    let ending = key::ending(entry.kind);
                    job.one = Some((entry.key.clone(), Key::new([&last, ending].concat())));
                    (job.dst, job.top, job.alone) = (to.word(&dir), false, true);
                    job.scope.only = None;
                }
            }
        }
        SourceEntries::Several => {}
    }
    // A directory that isn't there isn't to be made.
    if options.existing && there == Dest::Missing && jobs.iter().any(|job| job.alone && job.one.is_none()) {
        jobs.clear();
    }
    Ok(())
}

/// With `-m` a directory that is named and holds nothing but directories is left out.
///
/// Errors: as for [`settle`].
pub async fn leave_out_empty(options: &Options, ctx: &Context<'_>, jobs: &mut Vec<SubJob>) -> Result<(), Refusal> {
    if !options.prune_empty_dirs {
        return Ok(());
    }
    let mut kept = Vec::new();
    for job in jobs.drain(..) {
        let named = job.top && job.scope.prefix.ends_with(b"/");
        if !named
            || matches!(
                shown(options, ctx, &job, |entry| !entry.is_dir()).await?,
                SourceEntries::One(_) | SourceEntries::Several
            )
        {
            kept.push(job);
        }
    }
    *jobs = kept;
    Ok(())
}

/// Looks at a source until it is clear.
async fn shown(
    options: &Options,
    ctx: &Context<'_>,
    job: &SubJob,
    counts: impl Fn(&Entry) -> bool,
) -> Result<SourceEntries, Refusal> {
    let filter = filters::filter(options, job.scope.clone())?;
    if let Some((name, _)) = &job.one {
        let wanted = filter.wants_name(&Entry::file(name.clone(), 0));
        return Ok(if wanted { SourceEntries::One(Entry::file(name.clone(), 0)) } else { SourceEntries::Nothing });
    }
    if job.top && !job.scope.prefix.is_empty() && !filter.wants_root() {
        return Ok(SourceEntries::Nothing);
    }
    let opened = ctx.open_as(&job.src, &opening::of_source(options, job));
    let store = opened.map_err(|e| (exit::FILE_IO, format!("{e:#}")))?;
    let max_depth = (!options.recursive && job.scope.only.is_none()).then_some(1);
    let request = ListOptions { dirs: true, for_join: true, max_depth, ..ListOptions::default() };
    let mut listing = haul::list(&store, &Arc::new(filter), request);
    let mut one = None;
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) => {
                for entry in entries.into_iter().filter(&counts) {
                    if one.is_some() || job.top {
                        return Ok(SourceEntries::Several);
                    }
                    one = Some(entry);
                }
            }
            // A directory that can't be listed may have entries.
            Listed::Failed { .. } => return Ok(SourceEntries::Several),
            Listed::Vanished(_) | Listed::End => {}
        }
    }
    Ok(match one {
        Some(entry) => SourceEntries::One(entry),
        None if job.top => SourceEntries::Root,
        None => SourceEntries::Nothing,
    })
}
