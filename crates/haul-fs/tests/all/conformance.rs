//! Disks keep the contract, bare and through all layers.

use haul_store::{Links, Store};
use haul_testkit::{
    conformance::{self, layered, skipped},
    disk,
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

fn local(root: &Path, number: &AtomicUsize, links: Links) -> Arc<dyn Store> {
    disk::open(&root.join(format!("root{}", number.fetch_add(1, Ordering::Relaxed))), links)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_disk() {
    for links in [Links::Skip, Links::Follow, Links::Keep] {
        let (temp, number) = (tempfile::tempdir().expect("a folder"), AtomicUsize::new(0));
        let summary = conformance::run(|| async { local(temp.path(), &number, links) }).await;
        let mut skips = skipped(&summary);
        skips.retain(|name| *name != "metadata_is_kept");
        assert_eq!(skips, ["a_file_and_a_folder_of_one_name", "hashes_are_of_the_content"], "{links:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_disk_through_the_layers() {
    let (temp, number) = (tempfile::tempdir().expect("a folder"), AtomicUsize::new(0));
    let summary = conformance::run(|| async { layered(local(temp.path(), &number, Links::Skip)) }).await;
    let mut skips = skipped(&summary);
    skips.retain(|name| *name != "metadata_is_kept");
    // With a limit set the disk's own copy isn't used, since it can't be slowed down, and what is hashed is read.
    let limited = ["copies_stay_inside", "copies_answer_for_each", "it_hashes_what_it_holds"];
    assert_eq!(skips[..2], ["a_file_and_a_folder_of_one_name", "hashes_are_of_the_content"]);
    assert_eq!(skips[2..], limited);
}
