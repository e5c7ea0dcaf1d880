//! Moving content between two places that name it by its hash, such as a cache and a remote: files first, and a directory's manifest only when all its files are there. The
//! engine moves the bytes, so progress, retries, resuming and limits are its.

use crate::{
    address::Address,
    content_view::Named,
    remote::{PresentContent, entries},
    wanted::WantedContent,
};
use futures::future::LocalBoxFuture;
use haul::{Cx, Report};
use haul_core::{
    Error, ErrorKind, Key, Result,
    event::{Event, Sink},
    job::{Compare, Existing, Job, Listing, Lookup, Publish, Verb},
};
use haul_store::Store;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

/// Result of a push or fetch.
#[derive(Debug, Default)]
pub struct TransferResult {
    /// Of the engine's jobs together.
    pub report: Report,
    /// Content missing on both sides.
    pub missing: Vec<Address>,
}

/// Remembers what arrived, and passes all on.
struct Arrivals {
    inner: Arc<dyn Sink>,
    keys: Mutex<HashSet<Key>>,
}

impl Sink for Arrivals {
    fn emit(&self, event: &Event) {
        if let Event::Done { key, .. } = event {
            self.keys.lock().unwrap_or_else(|e| e.into_inner()).insert(key.clone());
        }
        self.inner.emit(event);
    }
}

/// Sends the content missing at the remote. `cx` has the cache as its source and the remote as its destination.
///
/// Errors: the cache can't be asked. Errors of single files are in the report.
pub fn push<'a>(
    cx: &'a Cx,
    job: &'a Job,
    wanted: &'a WantedContent,
    found: &'a PresentContent,
) -> LocalBoxFuture<'a, Result<TransferResult>> {
    Box::pin(async move {
        let (dirs, files): (Vec<Address>, Vec<Address>) = found.there.lacking().partition(|a| a.dir);
        let mut brought = TransferResult::default();
        let mut there = run_job(cx, job, files, &mut brought).await?;
        // A dry run sends nothing, and says what it would send.
        if job.dry_run {
            there.extend(wanted.all().iter().copied());
        }
        let whole = |address: &Address| {
            let mut of = wanted.dirs.iter().filter(|dir| dir.address == *address);
            of.all(|dir| {
                let files = dir.children.iter().flatten().map(|md5| Address::file(address.layout, *md5));
                files.into_iter().all(|file| found.there.contains(&file) || there.contains(&file))
            })
        };
        let (complete, held_back): (Vec<Address>, Vec<Address>) = dirs.into_iter().partition(whole);
        for address in held_back {
            let message = "the list of the directory's files isn't sent, since some of the files aren't at the remote";
            let error = Error::new(ErrorKind::Io, "push", message).with_key(&Key::new(wanted.name(&address)));
            report_error(cx, &mut brought.report, error);
        }
        // A journal is of one job; manifests are small.
        let cx = Cx { journal: None, ..cx.clone() };
        run_job(&cx, job, complete, &mut brought).await?;
        Ok(brought)
    })
}

/// Brings what the cache lacks. `cx` has the remote as its source and the cache as its destination. Manifests come first, since
/// they say what else is wanted: ask again with what they say. The engine proves all by its name before it has that name.
///
/// Errors: the remote can't be asked. Errors of single files are in the report.
pub fn fetch<'a>(cx: &'a Cx, job: &'a Job, lacking: Vec<Address>) -> LocalBoxFuture<'a, Result<TransferResult>> {
    Box::pin(async move {
        let mut brought = TransferResult::default();
        run_job(cx, job, lacking, &mut brought).await?;
        Ok(brought)
    })
}

fn report_error(cx: &Cx, report: &mut Report, error: Error) {
    let error = Arc::new(error);
    cx.sink.emit(&Event::Error(error.clone()));
    report.error(error);
}

/// One job of the engine; gives what arrived.
async fn run_job(cx: &Cx, job: &Job, all: Vec<Address>, brought: &mut TransferResult) -> Result<HashSet<Address>> {
    if all.is_empty() {
        return Ok(HashSet::new());
    }
    if cx.cancel.is_cancelled() {
        // Content that failed must not count as content that needn't be transferred.
        brought.report.stopped.get_or_insert(ErrorKind::Cancelled);
        return Ok(HashSet::new());
    }
    let sources = entries(&cx.src, all.clone()).await?;
    let there: HashSet<Address> = sources.iter().filter_map(|e| Address::of_key(e.key.as_bytes())).collect();
    brought.missing.extend(all.into_iter().filter(|a| !there.contains(a)));
    if sources.is_empty() {
        return Ok(HashSet::new());
    }
    let src: Arc<dyn Store> = Arc::new(Named::new(cx.src.clone(), sources));
    let arrivals = Arc::new(Arrivals { inner: cx.sink.clone(), keys: Mutex::default() });
    let job = for_content(job, cx.dst.caps().files);
    let cx = Cx { src, sink: arrivals.clone(), ..cx.clone() };
    brought.report.add(haul::run(job, cx).await);
    let keys = std::mem::take(&mut *arrivals.keys.lock().unwrap_or_else(|e| e.into_inner()));
    Ok(keys.iter().filter_map(|key| Address::of_key(key.as_bytes())).collect())
}

/// The job that brings content under its hash, to files on a disk if so, from what a user wants of files: what the
/// destination lacks was found out already, and nothing arrives unproved.
pub fn for_content(job: &Job, disk: bool) -> Job {
    job.clone().with(|job| {
        job.verb = Verb::Copy;
        (job.compare, job.existing) = (Compare::default(), Existing::default());
        job.listing = Listing { lookup: Lookup::Never, ..Listing::default() };
        job.elsewhere.renamed = None;
        job.dirs.create_empty = false;
        job.attributes.metadata = false;
        if disk {
            // DVC's mark of a file whose content is known to be right.
            job.attributes.metadata_set = vec![("mode".into(), "100444".into())];
        }
        (job.write.publish, job.write.sparse, job.write.ignore_checksum) = (Publish::WhenWhole, false, false);
    })
}
