//! Several sources that make one tree, where deletions come before the first transfer: names missing from the first source are looked up in
//! the others one by one, so none of them is listed yet. Here all of them are, since nothing is deleted after an error.

use super::{
    Context,
    exit::{self, Refusal},
    filters, opening,
    options::Options,
    path_args::is_here,
    sink::{Lines, NameRoot},
    sub_jobs::{Part, SubJob},
    tell_broken_rules,
};
use futures::StreamExt as _;
use haul::ListOptions;
use haul_core::{
    ErrorKind, Listed, Side,
    event::{Event, Sink as _},
};
use std::{os::unix::ffi::OsStrExt as _, sync::Arc};

/// Known facts of the sources.
pub struct SourceProof {
    /// All their contents could be listed.
    pub whole: bool,
    /// Rules of their directories can't be parsed.
    pub broken: bool,
}

/// Lists the source of every job that transfers more than one file, and reports its errors.
///
/// Errors: a source that can't be opened, a rule that can't be used.
pub async fn look(
    options: &Options,
    ctx: &Context<'_>,
    lines: &Arc<Lines>,
    jobs: &[SubJob],
) -> Result<SourceProof, Refusal> {
    let mut proof = SourceProof { whole: true, broken: false };
    for job in jobs.iter().filter(|job| job.part == Part::Transfers && job.one.is_none()) {
        lines.enter(NameRoot {
            prefix: job.scope.prefix.clone(),
            typed: is_here(&job.src).then(|| job.src.as_bytes().to_vec()),
            one: None,
        });
        let filter = Arc::new(filters::filter(options, job.scope.clone())?);
        let opened = ctx.open_as(&job.src, &opening::of_source(options, job));
        let store = opened.map_err(|e| (exit::FILE_IO, format!("{e:#}")))?;
        let request = ListOptions {
            dirs: true,
            for_join: true,
            max_depth: options.max_depth(),
            one_device: options.one_file_system > 0,
            omit_mounts: options.one_file_system > 1 && options.max_depth().is_none(),
            ..ListOptions::default()
        };
        let mut listing = haul::list(&store, &filter, request);
        let mut ended = false;
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(_) | Listed::Vanished(_) => {}
                Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => {}
                Listed::Failed { error, .. } => {
                    proof.whole = false;
                    lines.emit(&Event::ListFailed { side: Side::Src, error: Arc::new(error.to_report()) });
                }
                Listed::End => ended = true,
            }
        }
        proof.whole &= ended;
        proof.broken |= tell_broken_rules(&filter, lines);
    }
    Ok(proof)
}
