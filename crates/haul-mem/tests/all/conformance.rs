//! Memory keeps the contract, bare and through all layers.

use haul_mem::MemStore;
use haul_store::{Links, Store};
use haul_testkit::{
    conformance::{self, layered, skipped},
    disk::open_as,
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let summary = conformance::run(|| async { Arc::new(MemStore::new()) as Arc<dyn Store> }).await;
    assert_eq!(skipped(&summary), ["a_full_folder_is_not_deleted", "folders_are_made_once", "it_hashes_what_it_holds"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_with_directories() {
    let disk = || MemStore::new().with_caps(|caps| (caps.dirs, caps.keeps_empty_dirs) = (true, true));
    let summary = conformance::run(|| async { Arc::new(disk()) as Arc<dyn Store> }).await;
    assert_eq!(skipped(&summary), ["a_file_and_a_folder_of_one_name", "it_hashes_what_it_holds"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_in_a_folder_of_a_named_bucket() {
    let number = AtomicUsize::new(0);
    let make = || async {
        let path = format!("bucket{}/in/here", number.fetch_add(1, Ordering::Relaxed));
        let store = open_as(&haul_mem::KIND, path.as_bytes(), Links::Skip);
        // A folder in a bucket is there when something is in it.
        drop(store.make_dir(&haul_core::Key::new(""), &Default::default()).await);
        store
    };
    let store = make().await;
    assert_eq!(store.stat(&haul_core::Key::new("")).await.unwrap_err().kind(), haul_core::ErrorKind::DirNotFound);
    assert_eq!(store.locator(), ":bucket0/in/here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_through_the_layers() {
    let make = || async { layered(Arc::new(MemStore::new())) };
    let summary = conformance::run(make).await;
    assert_eq!(skipped(&summary), ["a_full_folder_is_not_deleted", "folders_are_made_once", "it_hashes_what_it_holds"]);
}
