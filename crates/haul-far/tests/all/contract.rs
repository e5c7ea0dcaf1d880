//! The contract of stores, over a connection: with a folder of its own, and with one below the folder that the far end allows.

use crate::stage;
use haul_store::layers::{LayerSettings, stack};
use haul_testkit::conformance;
use std::sync::Mutex;

#[tokio::test(flavor = "multi_thread")]
async fn a_far_folder_keeps_the_contract() {
    let folders = Mutex::new(Vec::new());
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let store = stage::open(folder.path(), stage::settings());
        folders.lock().unwrap().push(folder);
        async move { store }
    };
    println!("{}", conformance::run(make).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_below_the_allowed_one_keeps_it_through_the_layers() {
    let folders = Mutex::new(Vec::new());
    let make = || {
        let allowed = tempfile::tempdir().unwrap();
        let root = Some(allowed.path().as_os_str().as_encoded_bytes().to_vec());
        let settings = haul_far::Settings { root, ..stage::settings() };
        let store = stage::open(&allowed.path().join("a/b"), settings);
        folders.lock().unwrap().push(allowed);
        async move { stack(store, &LayerSettings::default(), &Default::default()) }
    };
    println!("{}", conformance::run(make).await);
}
