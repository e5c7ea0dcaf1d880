//! Hidden files that a killed write left: found again as far as they hold what was written, and cleaned up.

use super::local::tree;
use bytes::Bytes;
use haul_core::{Algo, ErrorKind, Key};
use haul_store::{Cleanup, Links, Part, Payload, SentPart, Store, UnfinishedWrites, WriteSpec};
use haul_testkit::disk::open;
use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    sync::Arc,
    time::Duration,
};
use tempfile::{TempDir, tempdir};

#[tokio::test]
async fn cleanup_removes_what_a_killed_write_left() {
    let temp = tree();
    let store = open(temp.path(), Links::Skip);
    let upload = store.write(&Key::new("a/y/new"), WriteSpec::default()).await.unwrap();
    drop(upload);
    let cleanup = |secs, dry_run| {
        let what = Cleanup { older_than: Duration::from_secs(secs), dry_run, below: Key::new("") };
        let found = store.admin().unwrap().cleanup(what);
        async move {
            let UnfinishedWrites { found, failed } = found.await.unwrap();
            assert!(failed.is_empty(), "{failed:?}");
            found.len()
        }
    };
    assert_eq!(cleanup(3600, false).await, 0, "too young");
    assert_eq!(cleanup(0, true).await, 1);
    assert_eq!(cleanup(0, false).await, 1);
    assert_eq!(cleanup(0, false).await, 0);
    assert_eq!(fs::read_dir(temp.path().join("a/y")).unwrap().count(), 1);
}

/// A hidden file left by a write of `f`, with one part of 5 bytes: its token and path.
async fn left_behind(temp: &TempDir, store: &Arc<dyn Store>) -> (Vec<u8>, std::path::PathBuf) {
    let spec = WriteSpec { size: Some(10), ..WriteSpec::default() };
    let upload = store.write(&Key::new("f"), spec).await.unwrap();
    upload.part(0, 0, Payload::from(Bytes::from_static(b"hello"))).await.unwrap();
    let token = upload.token().await.unwrap().unwrap();
    let path = temp.path().join(std::ffi::OsStr::from_bytes(&token));
    assert_eq!(fs::read(&path).unwrap(), b"hello");
    (token, path)
}

fn hello() -> Vec<SentPart> {
    let crc = haul_core::hash::hash_bytes(&[Algo::Crc64Nvme], b"hello");
    let crc64 = u64::from_be_bytes(crc.get(Algo::Crc64Nvme).unwrap().try_into().unwrap());
    vec![SentPart { part: Part { index: 0, size: 5, tag: Vec::new() }, offset: 0, crc64 }]
}

async fn parts_found(store: &Arc<dyn Store>, token: &[u8]) -> haul_core::Result<usize> {
    let spec = WriteSpec { size: Some(10), ..WriteSpec::default() };
    Ok(store.resumable().unwrap().resume(&Key::new("f"), token, hello(), spec).await?.1.len())
}

#[tokio::test]
async fn a_partial_file_is_believed_only_as_far_as_it_holds_what_was_written() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    let (token, path) = left_behind(&temp, &store).await;
    assert_eq!(parts_found(&store, &token).await.unwrap(), 1);
    // What a loss of power leaves: zeros, or a file that ends early.
    fs::write(&path, b"he\0\0\0").unwrap();
    assert_eq!(parts_found(&store, &token).await.unwrap(), 0);
    fs::write(&path, b"hell").unwrap();
    assert_eq!(parts_found(&store, &token).await.unwrap(), 0);
}

#[tokio::test]
async fn what_took_a_partial_files_place_is_left_alone() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    let outside = tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"hello").unwrap();
    let (token, path) = left_behind(&temp, &store).await;
    let gone = async || parts_found(&store, &token).await.unwrap_err().kind();
    fs::write(&path, b"longer than the file").unwrap();
    assert_eq!(gone().await, ErrorKind::NotFound);
    fs::remove_file(&path).unwrap();
    symlink(outside.path().join("secret"), &path).unwrap();
    assert_eq!(gone().await, ErrorKind::NotFound);
    fs::remove_file(&path).unwrap();
    fs::hard_link(outside.path().join("secret"), &path).unwrap();
    assert_eq!(gone().await, ErrorKind::NotFound);
    assert!(store.resumable().unwrap().discard(&Key::new("f"), &token).await.unwrap());
    assert!(!path.exists());
    assert!(
        !store.resumable().unwrap().discard(&Key::new("f"), &token).await.unwrap(),
        "it is told that nothing was there"
    );
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"hello");
}

#[tokio::test]
async fn a_token_leads_only_to_hidden_files_beside_the_key() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    fs::write(temp.path().join("precious"), b"hello").unwrap();
    fs::create_dir(temp.path().join("d")).unwrap();
    let (hidden, _) = left_behind(&temp, &store).await;
    let above = [b"../", &hidden[..]].concat();
    for (key, token) in [("f", &b"precious"[..]), ("d/f", &hidden), ("d/f", &above), ("f", b"d/"), ("..", &hidden)] {
        assert_eq!(
            store.resumable().unwrap().discard(&Key::new(key), token).await.unwrap_err().kind(),
            ErrorKind::Invalid,
            "{key}"
        );
    }
    assert!(temp.path().join("precious").exists());
}

#[tokio::test]
async fn what_is_written_in_place_or_is_a_link_is_not_found_again() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Keep);
    let inplace = WriteSpec { inplace: true, ..WriteSpec::default() };
    for (key, spec) in [(Key::new("f"), inplace), (Key::symlink("l"), WriteSpec::default())] {
        let upload = store.write(&key, spec).await.unwrap();
        assert_eq!(upload.token().await.unwrap(), None, "{key}");
        upload.abort().await.unwrap();
    }
}
