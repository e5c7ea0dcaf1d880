//! What a job goes by of what earlier runs found out, and what it must not.

#![allow(clippy::disallowed_methods)] // A test makes and reads its own files.

use haul::{hash, index::FileHashes};
use haul_core::{Algo, Error, ErrorKind, Key, Retry};
use haul_store::{Links, Store};
use haul_testkit::{
    disk,
    faults::{Faulty, Op},
    folder,
};
use std::{fs, sync::Arc, time::Duration};

#[tokio::test]
async fn a_file_is_read_once_and_again_when_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    folder::write(&path, b"one", 1_600_000_000_000_000_000);
    let disk = Arc::new(Faulty::new(disk::open(dir.path(), Links::Skip)));
    let store: Arc<dyn Store> = disk.clone();
    // Beyond the time in which another change could go unseen.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let kept = FileHashes::default();
    let md5 = async |kept: Option<&FileHashes>| {
        let entry = store.stat(&Key::new("f")).await.unwrap();
        let known = hash::known_or_read(kept, &store, &entry, &[Algo::Md5]).await.unwrap();
        (known.hex(Algo::Md5).unwrap()[..4].to_string(), disk.calls(Op::Read))
    };
    assert_eq!(md5(Some(&kept)).await, ("f97c".into(), 1));
    assert_eq!(md5(Some(&kept)).await, ("f97c".into(), 1));
    assert_eq!(md5(None).await, ("f97c".into(), 2), "not believed unasked");
    // The same size and time: the change time alone tells.
    folder::write(&path, b"two", 1_600_000_000_000_000_000);
    assert_eq!(md5(Some(&kept)).await, ("b8a9".into(), 3));
    assert_eq!(md5(Some(&kept)).await, ("b8a9".into(), 4), "it changed just now, so it isn't remembered");
    fs::remove_file(&path).unwrap();
    let entry = haul_core::Entry::file(Key::new("f"), 3);
    let gone: Error = hash::known_or_read(Some(&kept), &store, &entry, &[Algo::Md5]).await.unwrap_err();
    assert_eq!((gone.kind(), gone.retry()), (ErrorKind::NotFound, Retry::Never));
}
