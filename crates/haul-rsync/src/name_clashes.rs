//! Several sources of which some are remotes: each is a job that knows nothing of the others, so names that two of them would transfer
//! to one place are refused before anything is done. Sources that are all on this machine are merged instead.

use super::{
    Context,
    exit::{self, Refusal},
    opening,
    options::Options,
    sub_jobs::SubJob,
};
use futures::StreamExt as _;
use haul_core::{ErrorKind, Key, Listed};
use haul_remotes::secrets::shown;
use haul_store::{ListRequest, Store};
use std::sync::Arc;

/// Checks that no two jobs transfer the same name.
///
/// Errors: two jobs transfer the same name, or may.
pub async fn check(options: &Options, ctx: &Context<'_>, jobs: &[SubJob]) -> Result<(), Refusal> {
    let refuse = |line: String| Err((exit::UNSUPPORTED, format!("{line}: run them one after the other")));
    if jobs.len() < 2 {
        return Ok(());
    }
    if options.keep_dirlinks && jobs.iter().any(|job| job.scope.root.is_none()) {
        return refuse("-K with several sources works only where all of them are on this machine".into());
    }
    let (contents, named): (Vec<&SubJob>, Vec<&SubJob>) = jobs.iter().partition(|job| job.top && job.into.is_empty());
    if contents.len() > 1 {
        return refuse("several sources that end in / work only where all of them are on this machine".into());
    }
    let names: Vec<(&SubJob, Vec<u8>)> =
        named.iter().flat_map(|job| names(job).into_iter().map(|name| (*job, name))).collect();
    for (at, (job, name)) in names.iter().enumerate() {
        if let Some((other, _)) = names[..at].iter().find(|(_, other)| meet(other, name)) {
            let (a, b, name) = (shown(&other.src), shown(&job.src), String::from_utf8_lossy(name));
            return refuse(format!("two sources contain {name:?}: {a} and {b}"));
        }
    }
    for job in contents {
        let store =
            ctx.open_as(&job.src, &opening::looked_at(options)).map_err(|e| (exit::FILE_IO, format!("{e:#}")))?;
        for (_, name) in &names {
            if shows(&store, name).await? {
                let (src, name) = (shown(&job.src), String::from_utf8_lossy(name));
                return refuse(format!("{src} contains {name:?}, as does another source"));
            }
        }
    }
    Ok(())
}

/// The names that a job transfers to the destination, without the mark of their kind.
fn names(job: &SubJob) -> Vec<Vec<u8>> {
    match (&job.one, &job.scope.only) {
        (Some((_, to)), _) => vec![to.path().to_vec()],
        (None, Some(only)) => only.names().to_vec(),
        (None, None) => vec![job.into.clone()],
    }
}

/// True when two names are one, or one is below the other.
fn meet(a: &[u8], b: &[u8]) -> bool {
    let below = |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    below(a, b) || below(b, a)
}

/// Errors: the store can't tell.
async fn shows(store: &Arc<dyn Store>, name: &[u8]) -> Result<bool, Refusal> {
    let prefix = [name, b"/"].concat();
    let link = store.caps().symlinks.then(|| Key::symlink(name));
    let dir = store.caps().dirs.then(|| Key::new(&prefix[..]));
    for key in [Key::new(name)].into_iter().chain(link).chain(dir) {
        match store.stat(&key).await {
            Ok(_) => return Ok(true),
            // A closed directory yields no files, as its job reports.
            Err(error) if store.caps().dirs && error.kind() == ErrorKind::Denied => return Ok(false),
            Err(_) => {}
        }
    }
    let mut listing = store.list(ListRequest { prefix, limit: Some(1), ..ListRequest::all() });
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) if !entries.is_empty() => return Ok(true),
            Listed::Batch(_) | Listed::Vanished(_) => {}
            Listed::Failed { error, .. } => return Err((exit::FILE_IO, error.to_string())),
            Listed::End => return Ok(false),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_clash_where_one_contains_the_other() {
        assert!(meet(b"a", b"a") && meet(b"a/b", b"a") && meet(b"a", b"a/b/c"));
        assert!(!meet(b"a", b"ab") && !meet(b"a/b", b"a/c"));
    }
}
