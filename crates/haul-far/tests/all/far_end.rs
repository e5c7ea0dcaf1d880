//! What the far end allows, and what it makes of a near end that is cut off or talks nonsense.

use crate::stage;
use bytes::Bytes;
use futures::StreamExt as _;
use haul_core::{ErrorKind, Key, Listed, Meta};
use haul_far::{Settings, serve};
use haul_store::{LateFacts, ListRequest, Payload, SmallFile, Store, WriteSpec};
use std::fs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex, split};

async fn put(store: &dyn Store, key: &str, bytes: &[u8]) -> haul_core::Result<()> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await?;
    upload.publish(vec![part], LateFacts::default()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_outside_of_the_allowed_one_is_refused() {
    let allowed = tempfile::tempdir().unwrap();
    let root = Some(allowed.path().as_os_str().as_encoded_bytes().to_vec());
    let settings = Settings { root, ..stage::settings() };
    for outside in ["/etc", "../..", "a/../../b"] {
        let store = stage::open(std::path::Path::new(outside), settings.clone());
        let error = store.stat(&Key::new("x")).await.unwrap_err();
        let expected = format!("{outside} is outside of {}", allowed.path().display());
        assert_eq!((error.kind(), error.message()), (ErrorKind::Denied, expected.as_str()));
    }
    // A link that leads out of it isn't followed either.
    std::os::unix::fs::symlink("/etc", allowed.path().join("way-out")).unwrap();
    let store = stage::open(std::path::Path::new("way-out"), settings);
    assert!(store.stat(&Key::new("passwd")).await.is_err());
    assert!(put(&*store, "haul-was-here", b"x").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_far_end_that_may_only_be_read_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("there"), "old").unwrap();
    let store = stage::open(folder.path(), Settings { read_only: true, ..stage::settings() });
    let expected = "haul there was started with --read-only";
    let denied = |error: haul_core::Error| assert_eq!((error.kind(), error.message()), (ErrorKind::Denied, expected));
    denied(put(&*store, "there", b"new").await.unwrap_err());
    denied(store.make_dir(&Key::new("d/"), &WriteSpec::default()).await.unwrap_err());
    denied(store.set_meta(&Key::new("there"), None, Some(&Meta::new())).await.unwrap_err());
    denied(store.delete(vec![(Key::new("there"), None)]).await.remove(0).unwrap_err());
    assert_eq!(store.stat(&Key::new("there")).await.unwrap().size, 3);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_as_something_else_is_not_published() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("one"), "old").unwrap();
    let path = folder.path().as_os_str().as_encoded_bytes();
    let dial = std::sync::Arc::new(stage::Garbled(stage::Here(stage::settings())));
    let store = haul_far::open_on(&stage::request(path), dial, "far garbled").unwrap();
    let corrupt = |error: haul_core::Error| assert_eq!(error.kind(), ErrorKind::Corrupt);
    corrupt(put(&*store, "one", stage::GARBLED.as_bytes()).await.unwrap_err());
    assert_eq!(fs::read(folder.path().join("one")).unwrap(), b"old");
    let small = |key: &str, bytes: &'static str| {
        let spec = WriteSpec { size: Some(bytes.len() as u64), ..WriteSpec::default() };
        SmallFile { key: Key::new(key), spec, bytes: Bytes::from_static(bytes.as_bytes()) }
    };
    let files =
        vec![small("a", "as sent"), small("one", stage::GARBLED), small("two", stage::GARBLED), small("z", "last")];
    let mut answers = store.bundles().unwrap().put(files).await.into_iter();
    assert_eq!(answers.next().unwrap().unwrap().size, 7);
    corrupt(answers.next().unwrap().unwrap_err());
    corrupt(answers.next().unwrap().unwrap_err());
    assert_eq!(answers.next().unwrap().unwrap().size, 4);
    let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "one", "z"]);
    assert_eq!(fs::read(folder.path().join("one")).unwrap(), b"old");
    corrupt(put(&*store, "large", &stage::GARBLED.as_bytes().repeat(1 << 18)).await.unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_near_end_hangs_up_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = stage::open(folder.path(), stage::settings());
    let spec = WriteSpec { size: Some(8 << 20), ..WriteSpec::default() };
    let upload = store.write(&Key::new("large"), spec).await.unwrap();
    upload.part(0, 0, Payload::from(Bytes::from(vec![1; 4 << 20]))).await.unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the hidden half");
    drop(upload);
    drop(store);
    // The far end notices by the end of its input, and tidies up: waits for that, not for a time.
    while fs::read_dir(folder.path()).unwrap().count() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_is_cut_says_what_it_did_not_see() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5000 {
        fs::write(folder.path().join(format!("{number:05}")), "").unwrap();
    }
    // A far end that hangs up after some of what it says.
    let (near, far) = duplex(1 << 16);
    let (from, to) = split(far);
    let served = tokio::spawn(serve(from, to, stage::settings()));
    struct Cut(std::sync::Mutex<Option<haul_far::Pipe>>);
    impl std::fmt::Debug for Cut {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Cut")
        }
    }
    impl haul_far::Dial for Cut {
        fn dial(&self) -> futures::future::BoxFuture<'_, haul_core::Result<haul_far::Call>> {
            let pipe = self.0.lock().unwrap().take();
            let gone = || haul_core::Error::new(ErrorKind::Unreachable, "connect", "gone");
            Box::pin(std::future::ready(pipe.map(haul_far::Call::Pipes).ok_or_else(gone)))
        }
    }
    let (input, output) = split(near);
    let pipe = haul_far::Pipe { input: Box::new(input.take(100_000)), output: Box::new(output), end: None };
    let path = folder.path().as_os_str().as_encoded_bytes();
    let dial = std::sync::Arc::new(Cut(std::sync::Mutex::new(Some(pipe))));
    let store = haul_far::open_on(&stage::request(path), dial, "far cut").unwrap();
    let (mut seen, mut ended, mut lost) = (0, false, None);
    let mut listing = store.list(ListRequest::all());
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(entries) => seen += entries.len(),
            Listed::Failed { lost: range, .. } => lost = Some(range),
            Listed::Vanished(_) => {}
            Listed::End => ended = true,
        }
    }
    assert!(seen < 5000 && !ended, "{seen}");
    assert!(lost.unwrap().holds(&Key::new("04999")));
    drop(store);
    served.abort();
}

#[tokio::test]
async fn nonsense_ends_with_an_error_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = Some(folder.path().as_os_str().as_encoded_bytes().to_vec());
    for nonsense in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n...."[..],
        &[0xff; 200],
        b"\x00haulfar0123456789abcdef\xff\xff\xff\xff\x01",
        b"",
    ] {
        let (near, far) = duplex(1 << 16);
        let (from, to) = split(far);
        let settings = Settings { root: root.clone(), ..stage::settings() };
        let served = tokio::spawn(serve(from, to, settings));
        let (mut input, mut output) = split(near);
        output.write_all(nonsense).await.unwrap();
        output.shutdown().await.unwrap();
        let mut message = Vec::new();
        input.read_to_end(&mut message).await.unwrap();
        assert!(served.await.unwrap().is_err(), "{}", nonsense.escape_ascii());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
