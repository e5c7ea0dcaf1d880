//! Sources whose listings may leave names out ([`haul_store::Caps::listing_may_omit`]): what they left out is at the destination still,
//! and the job fails.

use crate::safety::{cx, put};
use haul::{Cx, names};
use haul_core::{
    Key,
    job::{Job, RenameBy, Verb},
};
use haul_mem::MemStore;
use haul_store::Store;
use haul_testkit::faults::{Fault, Faulty, Op};
use std::sync::Arc;

type Files = [(&'static str, &'static str, i64)];

async fn store(files: &Files) -> Arc<dyn Store> {
    let empty = MemStore::new().with_caps(|caps| (caps.domain, caps.listing_may_omit) = (None, true));
    let store: Arc<dyn Store> = Arc::new(empty);
    for (key, text, secs) in files {
        put(&store, key, text, *secs).await;
    }
    store
}

/// A source whose listing lacks `omitted`, and a destination.
async fn between(src: &Files, omitted: &str, dst: &Files) -> Cx {
    let src = Faulty::new(store(src).await).on(Op::List, 1, Fault::Omit(Key::new(omitted)));
    cx(Arc::new(src), store(dst).await)
}

async fn keeps(cx: Cx, job: Job, key: &str, what: &str) {
    let dst = cx.dst.clone();
    let report = haul::run(job, cx).await;
    assert_eq!(report.error_count, 1, "{what}: {report:?}");
    assert!(dst.stat(&Key::new(key)).await.is_ok(), "{what}");
}

#[tokio::test]
async fn what_a_listing_leaves_out_stays() {
    let files = [("f", "one", 1), ("g", "two", 2)];
    keeps(between(&files, "f", &files).await, Job::new(Verb::Sync), "f", "alone").await;
}

/// One of the names that differ by case alone was listed, and has the size and the time of the other.
#[tokio::test]
async fn letters_in_another_case_are_another_name() {
    let files = [("dir/Bar", "AAA", 1), ("dir/bar", "BBB", 1)];
    keeps(between(&files, "dir/Bar", &files).await, Job::new(Verb::Sync), "dir/Bar", "case").await;
}

#[tokio::test]
async fn names_as_the_destination_has_them_are_asked_for_too() {
    let files = [("f", "one", 1), ("g", "two", 2)];
    let mut cx = between(&files, "f", &files).await;
    let there = names::by_folded_names(&cx.dst, &cx.filter, None).await.unwrap();
    names::rename(&mut cx, names::Naming { new: None, at_destination: Some(there) });
    keeps(cx, Job::new(Verb::Sync), "f", "--ignore-case-sync").await;
}

/// `z` is a copy of `f`, which only seems to be missing.
#[tokio::test]
async fn what_a_listing_leaves_out_gets_no_other_name() {
    let cx = between(&[("f", "one", 1), ("z", "one", 1)], "f", &[("f", "one", 1)]).await;
    let by = RenameBy { hash: false, mtime: true, leaf: false };
    keeps(cx, Job::new(Verb::Sync).with(|job| job.elsewhere.renamed = Some(by)), "f", "--track-renames").await;
}
