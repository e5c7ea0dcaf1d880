//! How the stores of a run are opened: what symlinks mean at the source and at the destination, and how long to wait for a
//! silent remote.

use super::{options::Options, sub_jobs::SubJob};
use haul_remotes::OpenOptions;
use haul_store::{LinkRules, Links, patience};
use std::time::Duration;

/// A store that is only looked at.
pub fn looked_at(options: &Options) -> OpenOptions {
    let wait = |seconds: Option<u64>| seconds.map(|seconds| patience(Some(Duration::from_secs(seconds))));
    OpenOptions {
        links: links(options, options.copy_links, None),
        connect_timeout: wait(options.contimeout),
        idle_timeout: wait(options.timeout),
        ..OpenOptions::default()
    }
}

/// A source that is listed by itself. `above` is the number of directories of the transfer above its folder.
pub fn of_listing(options: &Options, above: usize) -> OpenOptions {
    let links = links(options, options.copy_links, options.link_rules(above));
    OpenOptions { links, ..looked_at(options) }
}

/// A job's source. All users of it open it like this, so that its links mean the same to each of them.
pub fn of_source(options: &Options, job: &SubJob) -> OpenOptions {
    of_listing(options, job.above())
}

/// A job's destination, and the paths that options name beside it. The targets of the destination's links are not the source's.
pub fn of_destination(options: &Options) -> OpenOptions {
    let rules = options.keep_dirlinks.then_some(LinkRules { tell: true, ..LinkRules::default() });
    let links = links(options, false, rules);
    OpenOptions { links, own_links: !options.insecure_links, ..looked_at(options) }
}

fn links(options: &Options, follow: bool, rules: Option<LinkRules>) -> Links {
    match (follow, rules) {
        (true, _) => Links::Follow,
        (false, Some(rules)) => Links::By(LinkRules { keep: options.links, ..rules }),
        (false, None) if options.links => Links::Keep,
        (false, None) => Links::Skip,
    }
}

/// True for a symlink here, `depth` directories below the top of the transfer, that is followed because of its target.
pub fn leads_out(options: &Options, path: &[u8], depth: usize) -> bool {
    let target = || rustix::fs::readlink(path, Vec::new()).map(|target| target.into_bytes());
    options.copy_unsafe_links && target().is_ok_and(|target| haul_core::links::leads_out(&target, depth))
}
